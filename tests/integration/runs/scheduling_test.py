"""Shows that the threads of servers and workers have batch scheduling (core/batch_scheduling.h), and keep the nice value
and any other policy that the user has chosen."""

import os
import pathlib
import signal
import subprocess
import time
import unittest

import processes
from fleet_case import FleetCase

PATIENCE_SECONDS = 120  # limit of a wait for what must happen
THREADS = ("shard-0", "ZMQbg/IO/0", "tarn-worker", "tarn-reader")


@unittest.skipIf(os.sched_getscheduler(0) != os.SCHED_OTHER, "this process has a policy of its own (chrt)")
class SchedulingTest(FleetCase):
    def policies(self, name, *before):
        """{thread's name: (policy, nice value)} of the servers and workers of a fleet that is started with `before`."""
        run_dir = self.folder / name
        fleet = subprocess.Popen([*before, *self.command(self.job(epochs=10_000, workers=1), run_dir)], stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True)
        self.addCleanup(fleet.communicate)
        self.addCleanup(fleet.kill)
        deadline = time.monotonic() + PATIENCE_SECONDS
        found = {}
        while not found.keys() >= set(THREADS):
            self.assertIsNone(fleet.poll(), "the fleet has ended")
            self.assertLess(time.monotonic(), deadline, f"threads after {PATIENCE_SECONDS} s: {sorted(found)}")
            for pid, program in processes.of_run(run_dir).items():
                for thread in pathlib.Path(f"/proc/{pid}/task").glob("*") if program != "tarn-scheduler" else ():
                    try:
                        named, number = (thread / "comm").read_text().strip(), int(thread.name)
                        found[named] = os.sched_getscheduler(number), os.getpriority(os.PRIO_PROCESS, number)
                    except OSError:
                        pass  # ended meanwhile
        fleet.send_signal(signal.SIGINT)
        self.assertEqual(fleet.wait(timeout=PATIENCE_SECONDS), 0)
        return {named: found[named] for named in THREADS}

    def test_threads_have_batch_scheduling_and_the_nice_value_of_the_fleet(self):
        own = os.getpriority(os.PRIO_PROCESS, 0)
        self.assertEqual(self.policies("default"), dict.fromkeys(THREADS, (os.SCHED_BATCH, own)))
        nicer = min(own + 5, 19)
        self.assertEqual(self.policies("nice", "nice", "-n", "5"), dict.fromkeys(THREADS, (os.SCHED_BATCH, nicer)))

    def test_a_policy_that_the_user_has_chosen_stays(self):
        found = self.policies("idle", "chrt", "--idle", "0")
        self.assertEqual({policy for policy, _ in found.values()}, {os.SCHED_IDLE})


if __name__ == "__main__":
    unittest.main()
