"""Shows that a long wait logs what it waits for (logger `tarn`), and that Ctrl-C ends it."""

import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import unittest
import unittest.mock

from small_fleet import PATIENCE_SECONDS, ROOT, Fleet

import tarn
from tarn import library as library_module


class Reaction(logging.Handler):
    """Keeps the messages, and runs an action at the first."""

    def __init__(self, action):
        super().__init__()
        self.messages, self._action = [], action

    def emit(self, record):
        self.messages.append(record.getMessage())
        if len(self.messages) == 1:
            self._action()


class WaitsTest(unittest.TestCase):
    def setUp(self):
        fleet = Fleet(workers=2)
        self.enterContext(fleet)
        self.clients = [None, None]
        threads = [threading.Thread(target=lambda i=i: self.clients.__setitem__(i, tarn.connect(fleet.address))) for i in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.enterContext(unittest.mock.patch.object(library_module, "NOTE_SECONDS", 0.2))

    def message(self, wait, action):
        """The first message of a wait that does not end before it, because the message triggers the action."""
        reaction, logger = Reaction(action), logging.getLogger("tarn")
        logger.addHandler(reaction)
        self.addCleanup(logger.removeHandler, reaction)
        wait()
        logger.removeHandler(reaction)
        return reaction.messages[0]

    def test_rows_of_a_clock_that_others_have_not_reached(self):
        table = self.clients[0].table("users", dim=2)
        self.clients[0].tick()
        said = self.message(table.pull([1]).wait, self.clients[1].tick)
        self.assertRegex(said, "tarn: waiting for 0 s for rows: other workers have not finished an earlier clock, or")

    def test_a_barrier(self):
        other = threading.Thread(target=lambda: self.clients[1].barrier())
        said = self.message(self.clients[0].barrier, other.start)
        other.join()
        self.assertRegex(said, "tarn: waiting for 0 s for a barrier: other workers have not called it")

    def test_a_table_that_another_worker_creates(self):
        said = self.message(lambda: self.clients[0].table("late"), lambda: self.clients[1].table("late", dim=2))
        self.assertRegex(said, "tarn: waiting for 0 s for table 'late': no worker has created it")

    def test_a_client_is_of_one_process(self):
        with self.assertRaisesRegex(TypeError, "a client cannot be pickled or copied: .* call tarn.connect in each process"):
            pickle.dumps(self.clients[0])

    def tearDown(self):
        for client in self.clients:
            client.leave()


class InterruptedTest(unittest.TestCase):
    def test_ctrl_c_ends_the_waiting(self):
        waits = {
            "connect": "tarn.connect('tcp://127.0.0.1:1', insecure=True)",
            "table": "ps.table('nobodys')",
            "pull": "ps.tick(); ps.table('t', dim=1).pull([1]).wait()",
            "barrier": "ps.barrier()",
        }
        for what, wait in waits.items():
            with self.subTest(what), Fleet(workers=2) as fleet:
                program = ("import signal, tarn, threading\nothers = []\n"
                           # ignored where a shell runs the test in the background
                           "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
                           f"join = lambda: others.append(tarn.connect('{fleet.address}'))\n"
                           "threading.Thread(target=join, daemon=True).start()\n"
                           f"ps = tarn.connect('{fleet.address}')\nprint('waits', flush=True)\n"
                           f"try:\n    {wait}\nexcept KeyboardInterrupt:\n    print('interrupted', flush=True)\n"
                           "import os\nos._exit(0)\n")
                process = self.start(program)
                self.assertEqual(process.stdout.readline(), "waits\n")
                time.sleep(0.3)
                process.send_signal(signal.SIGINT)
                self.assertEqual(process.communicate(timeout=PATIENCE_SECONDS)[0], "interrupted\n")

    def start(self, program):
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True,
                                   env=os.environ | {"PYTHONPATH": str(ROOT / "python")})
        self.addCleanup(process.kill)
        return process

    def test_close_after_an_interrupted_leave_does_not_wait(self):
        with Fleet(workers=2) as fleet:
            program = ("import signal, tarn, threading, time\nothers = []\n"
                       "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
                       f"join = lambda: others.append(tarn.connect('{fleet.address}'))\n"
                       "threading.Thread(target=join, daemon=True).start()\n"
                       f"ps = tarn.connect('{fleet.address}')\nrows = ps.table('t', dim=1)\nps.tick()\n"
                       "waits = rows.pull([1])\nthreading.Timer(1, print, ['waits'], {'flush': True}).start()\n"
                       "try:\n    ps.leave()\nexcept KeyboardInterrupt:\n    ps.close()\n"
                       "print('closed', flush=True)\nimport os\nos._exit(0)\n")
            with self.start(program) as process:
                self.assertEqual(process.stdout.readline(), "waits\n")
                process.send_signal(signal.SIGINT)
                self.assertEqual(process.communicate(timeout=PATIENCE_SECONDS)[0], "closed\n")

    def test_close_after_an_interrupted_barrier_lets_the_others_go_on(self):
        """The worker sends no more heartbeats, though its process lives: others would wait for its ticks without end."""
        with Fleet(workers=2) as fleet:
            program = ("import signal, tarn, threading, time\n"
                       "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
                       f"ps = tarn.connect('{fleet.address}')\n"
                       "threading.Timer(1, print, ['waits'], {'flush': True}).start()\n"
                       "try:\n    ps.barrier()\nexcept KeyboardInterrupt:\n    ps.close()\n"
                       "print('closed', flush=True)\ntime.sleep(600)\n")
            with self.start(program) as process:
                with tarn.connect(fleet.address) as ps:
                    rows = ps.table("t", dim=1)
                    self.assertEqual(process.stdout.readline(), "waits\n")
                    process.send_signal(signal.SIGINT)
                    self.assertEqual(process.stdout.readline(), "closed\n")
                    ps.tick()
                    rows.pull([1]).wait(timeout=PATIENCE_SECONDS)
                process.kill()

    def test_errors_can_be_pickled(self):
        """Otherwise a pool of processes would wait without end for a result that is one."""
        error = pickle.loads(pickle.dumps(tarn.Gone(17, "the fleet has ended")))
        self.assertEqual((type(error), error.code, str(error)), (tarn.Gone, 17, "the fleet has ended"))


if __name__ == "__main__":
    unittest.main()
