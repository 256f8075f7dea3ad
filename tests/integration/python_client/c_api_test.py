"""The C functions refuse null pointers, and what they need not have may be null."""

import ctypes
import math
import os
import time
import unittest

from small_fleet import BIN, PATIENCE_SECONDS, Fleet

from tarn import library as library_module


class CApiTest(unittest.TestCase):
    """The C functions reject null pointers, and name the argument; ctypes passes None as a null pointer."""

    def setUp(self):
        self.library = ctypes.CDLL(os.environ.get("TARN_LIBRARY", str(BIN.parent / "lib/libtarn.so")))
        self.library.tarn_last_error.restype = self.library.tarn_job_text.restype = ctypes.c_char_p
        self.out = ctypes.c_void_p()

    def refused(self, name, missing, *arguments):
        self.assertEqual(getattr(self.library, name)(*arguments), 1, name)
        self.assertIn(f"{name}: {missing} is a null pointer", self.library.tarn_last_error().decode())
        self.assertIsNone(self.out.value)

    def test_codes(self):
        out, keys, none, zero = ctypes.byref(self.out), (ctypes.c_uint64 * 1)(), None, ctypes.c_size_t(0)
        one, seconds = ctypes.c_size_t(1), ctypes.c_double(0)
        self.refused("tarn_connect", "scheduler", none, none, out)
        self.refused("tarn_connect", "client", b"tcp://127.0.0.1:1", none, none)
        for name in ("tarn_leave", "tarn_barrier"):
            self.refused(name, "client", none)
        self.refused("tarn_tick", "client", none, out)
        self.refused("tarn_open_table", "client", none, b"t", out)
        self.refused("tarn_create_table", "client", none, b"t", b"dim = 1", out)
        self.refused("tarn_pull", "client", none, none, keys, one, none, out)
        self.refused("tarn_pull_many", "client", none, none, zero, none, out)
        self.refused("tarn_push_many", "client", none, none, zero, none)
        self.refused("tarn_plan_make", "client", none, none, keys, one, out)
        self.refused("tarn_pull_plan", "client", none, none, none, out)
        self.refused("tarn_push_plan", "client", none, none, none, none, none, ctypes.c_uint64(0), none)
        self.refused("tarn_pull_plans", "client", none, none, zero, none, out)
        self.refused("tarn_push_plans", "client", none, none, zero, ctypes.c_uint64(0), none)
        self.refused("tarn_tick_at", "client", none, ctypes.c_uint64(1), ctypes.c_uint64(1), out)
        self.refused("tarn_tick_to", "client", none, ctypes.c_uint64(1), out)
        self.refused("tarn_request_checkpoint", "client", none, out)
        self.refused("tarn_request_leases", "client", none, keys, none, zero, none, zero, out)
        self.refused("tarn_prefetch", "client", none, none, keys, zero)
        self.refused("tarn_push", "client", none, none, none, one, none, none)
        self.refused("tarn_wait", "future", none, seconds)
        self.refused("tarn_rows", "future", none, seconds, out, none)
        self.refused("tarn_rows_of", "future", none, zero, seconds, out, none)

    def test_values_of_nothing(self):
        for name in ("tarn_rank", "tarn_clock", "tarn_table_dim", "tarn_table_rows", "tarn_ready", "tarn_plan_size"):
            self.assertEqual(getattr(self.library, name)(None), 0, name)
        self.assertEqual(self.library.tarn_job_text(None), b"")
        for name in ("tarn_plan_keys", "tarn_plan_index"):
            self.assertEqual(getattr(self.library, name)(None), 0, name)
        for name in ("tarn_close", "tarn_table_free", "tarn_plan_free", "tarn_future_free"):
            getattr(self.library, name)(None)

    def test_of_a_client(self):
        out, none, one = ctypes.byref(self.out), None, ctypes.c_size_t(1)
        with Fleet() as fleet:
            client, table = ctypes.c_void_p(), ctypes.c_void_p()
            self.assertEqual(self.library.tarn_connect(fleet.address.encode(), none, ctypes.byref(client)), 0)
            self.refused("tarn_open_table", "name", client, none, out)
            self.refused("tarn_report", "names[0]", client, (ctypes.c_char_p * 1)(), (ctypes.c_double * 1)(), one)
            report = library_module.CLeaseReport(rows=1, logits=ctypes.addressof(ctypes.c_float()))
            self.refused("tarn_request_leases", "done[0].positives", client, (ctypes.c_uint64 * 3)(), ctypes.byref(report), one,
                         (library_module.CLease * 1)(), one, ctypes.byref(library_module.CLeaseAnswer()))
            self.refused("tarn_open_table", "table", client, b"t", none)
            self.refused("tarn_create_table", "description", client, b"t", none, out)
            self.assertEqual(self.library.tarn_create_table(client, b"t", b"dim = 2", ctypes.byref(table)), 0)
            self.refused("tarn_pull", "keys", client, table, none, one, none, out)
            self.refused("tarn_pull", "future", client, table, none, ctypes.c_size_t(0), none, none)
            good = library_module.CTablePull(table=table.value)
            for missing, pull in (("table", library_module.CTablePull(n=1)),
                                  ("keys", library_module.CTablePull(table=table.value, n=1))):
                self.refused("tarn_pull_many", f"pulls[1].{missing}", client, (library_module.CTablePull * 2)(good, pull),
                             ctypes.c_size_t(2), none, out)
            push = library_module.CTablePush(table=table.value, n=1, keys=ctypes.addressof(ctypes.c_uint64()))
            self.refused("tarn_push_many", "pushes[0].gradients", client, ctypes.byref(push), one, none)
            wrong = library_module.CPullOptions(size=1)
            self.assertEqual(self.library.tarn_pull(client, table, none, ctypes.c_size_t(0), ctypes.byref(wrong), out), 1)
            self.assertIn("tarn_pull_options.size is 1, expected 32", self.library.tarn_last_error().decode())
            self.refused("tarn_push", "gradients", client, table, (ctypes.c_uint64 * 1)(), one, none, none)
            self.assertEqual(self.library.tarn_push(client, table, none, ctypes.c_size_t(0), none, none), 0)
            self.held_gradients(client, table)
            self.assertEqual(self.library.tarn_leave(client), 0)
            self.library.tarn_table_free(table)
            self.library.tarn_close(client)


    def held_gradients(self, client, table):
        """A push of a plan releases its gradients exactly once, on any thread, also if it is rejected."""
        plan, future, released = ctypes.c_void_p(), ctypes.c_void_p(), []
        release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(released.append)
        keys = (ctypes.c_uint64 * 3)(5, 6, 5)
        self.assertEqual(self.library.tarn_plan_make(client, table, keys, ctypes.c_size_t(3), ctypes.byref(plan)), 0)
        for context, value in ((7, 1.0), (8, math.inf)):
            gradients = (ctypes.c_float * 4)(*[value] * 4)
            code = self.library.tarn_push_plan(client, plan, gradients, release, ctypes.c_void_p(context),
                                               ctypes.c_uint64(0), ctypes.byref(future))
            self.assertEqual(code, 0 if value == 1 else 1)
            if code == 0:
                self.assertEqual(self.library.tarn_wait(future, ctypes.c_double(PATIENCE_SECONDS)), 0)
                self.library.tarn_future_free(future)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(released) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual(sorted(released), [7, 8])
        code = self.library.tarn_push_plan(client, plan, None, release, ctypes.c_void_p(9), ctypes.c_uint64(0), None)
        self.assertEqual(code, 1)
        self.assertEqual(released[-1], 9)
        self.library.tarn_plan_free(plan)


if __name__ == "__main__":
    unittest.main()
