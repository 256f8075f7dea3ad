"""Shows that the threads of servers and workers get batch scheduling (core/batch_scheduling.h) and the nice value of the
fleet, and keep another policy that the user has chosen."""

import os
import pathlib
import signal
import subprocess
import time
import unittest

import processes
from fleet_case import FleetCase

SECONDS_MAX = 120  # limit of a wait for what must happen
THREADS = (("tarn-server", "shard-0"), ("tarn-server", "ZMQbg/IO/0"), ("tarn-worker", "tarn-worker"),
           ("tarn-worker", "ZMQbg/IO/0"), ("tarn-worker", "tarn-reader"), ("tarn-scheduler", "tarn-scheduler"))
NODES = [key for key in THREADS if key[0] != "tarn-scheduler"]


@unittest.skipIf(os.sched_getscheduler(0) != os.SCHED_OTHER, "this process has a policy of its own (chrt)")
class SchedulingTest(FleetCase):
    def policies(self, name, *before):
        """{(program, thread's name): (policy, nice value)} of a fleet that is started with `before`."""
        run_dir = self.folder / name
        fleet = subprocess.Popen([*before, *self.command(self.job(epochs=10_000, workers=1), run_dir)], stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True)
        self.addCleanup(fleet.communicate)
        self.addCleanup(fleet.kill)
        deadline = time.monotonic() + SECONDS_MAX
        found = {}
        while not found.keys() >= set(THREADS):
            self.assertIsNone(fleet.poll(), "the fleet has ended")
            self.assertLess(time.monotonic(), deadline, f"threads after {SECONDS_MAX} s: {sorted(found)}")
            for pid, program in processes.of_run(run_dir).items():
                for thread in pathlib.Path(f"/proc/{pid}/task").glob("*"):
                    try:
                        named, number = (thread / "comm").read_text().strip(), int(thread.name)
                        found[program, named] = os.sched_getscheduler(number), os.getpriority(os.PRIO_PROCESS, number)
                    except OSError:
                        pass  # ended meanwhile
        fleet.send_signal(signal.SIGINT)
        self.assertEqual(fleet.wait(timeout=SECONDS_MAX), 0)
        return {key: found[key] for key in THREADS}

    def test_threads_have_batch_scheduling_and_the_nice_value_of_the_fleet(self):
        own = os.getpriority(os.PRIO_PROCESS, 0)
        expected = dict.fromkeys(NODES, (os.SCHED_BATCH, own)) | {THREADS[-1]: (os.SCHED_OTHER, own)}
        self.assertEqual(self.policies("default"), expected)
        found = self.policies("nice", "nice", "-n", "5")
        self.assertEqual({key: found[key] for key in NODES}, dict.fromkeys(NODES, (os.SCHED_BATCH, min(own + 5, 19))))

    def test_a_policy_that_the_user_has_chosen_stays(self):
        found = self.policies("idle", "chrt", "--idle", "0")
        self.assertEqual({policy for policy, _ in found.values()}, {os.SCHED_IDLE})


if __name__ == "__main__":
    unittest.main()
