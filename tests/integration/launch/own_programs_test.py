"""Shows how tools/launch runs programs of the user's own in the place of the workers: how they fail, begin anew and end the
run. Fake programs stand in for the rest of the fleet (fake_program.py)."""

import json
import os
import signal
import unittest
import unittest.mock

from launch_case import FLEET, LaunchCase, eventually


class OwnProgramsTest(LaunchCase):
    def test_programs_of_the_users_own_are_the_workers(self):
        done = self.launch("seconds = 60\nsamples = 0\n", "--", "sh", "-c", 'echo "$TARN_RANK of $TARN_WORKERS: $TARN_SCHEDULER $0"', "a b")
        self.assertEqual(done.returncode, 0, done.stdout)
        for rank in range(2):
            self.assertRegex(done.stdout, f"worker-{rank}: {rank} of 2: tcp://127.0.0.1:[0-9]+ a b\n")
        self.assertEqual(self.lines("signals")[0], "scheduler 2", "it is stopped once all programs have ended")
        self.assertEqual(len(self.pids()), 3)
        record = json.loads((self.run_dir / "summary.json").read_text())
        self.assertEqual((record["status"], record["samples"]), ("done", None))
        page = (self.run_dir / "report.html").read_text()
        self.assertNotIn("Learning", page)
        self.assertNotIn("no data", page)
        self.assertRegex((self.run_dir / "logs/worker-1.log").read_text(), "1 of 2")

    def test_a_program_that_fails_ends_the_run_where_it_may_not_begin_anew(self):
        fails = ("--", "sh", "-c", "echo no data >&2; test $TARN_RANK = 0 || exit 3; sleep 60")
        job = FLEET.replace("worker_restarts = 2\n", "")
        with unittest.mock.patch("launch_case.FLEET", job):
            done = self.launch("seconds = 60\n", *fails)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("failed: worker-1 died: exit code 3 (no data); log: ", done.stdout)
        record = json.loads((self.run_dir / "summary.json").read_text())
        self.assertEqual(record["status"], "failed")

    def test_a_program_begins_anew_where_the_job_says_so(self):
        once = 'test -e "$TARN_RUN_DIR/$TARN_RANK" || { touch "$TARN_RUN_DIR/$TARN_RANK"; exit 1; }; echo again'
        done = self.launch("seconds = 60\n", "--", "sh", "-c", once)
        self.assertEqual(done.returncode, 0, done.stdout)
        for rank in range(2):
            self.assertIn(f"launch: worker-{rank} restarted (1 of 2)", done.stdout)
            self.assertIn(f"worker-{rank}: again", done.stdout)

    def test_a_program_that_keeps_failing_ends_the_run(self):
        """Even if the other programs would end well: only they know whether they can do its part."""
        fails = ("--", "sh", "-c", "test $TARN_RANK = 1 && exit 3; sleep 60")
        done = self.launch("seconds = 60\n", *fails)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("launch: worker-1 restarted (2 of 2)", done.stdout)
        self.assertIn("failed: worker-1 died: exit code 3; log: ", done.stdout)
        self.assertIn("; it was restarted 2 times", done.stdout)

    def test_a_program_that_fails_while_another_ends_well_fails_the_run(self):
        together = "touch $TARN_RUN_DIR/$TARN_RANK; while ! test -e $TARN_RUN_DIR/$((1 - TARN_RANK)); do :; done; exit $TARN_RANK"
        done = self.launch("seconds = 60\n", "--", "sh", "-c", together)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("failed: worker-1 died: exit code 1; log: ", done.stdout)

    def test_ctrl_c_after_the_programs_does_not_end_the_last_checkpoint(self):
        launcher = self.launch_in_background("seconds = 60\nstop_seconds = 5\n", 3, "--", "true")
        self.assertTrue(eventually(lambda: self.lines("signals")))
        launcher.send_signal(signal.SIGINT)
        output, _ = launcher.communicate(timeout=20)
        self.assertEqual(launcher.returncode, 0, output)
        self.assertIn("launch: SIGINT: the programs have ended, and the fleet is stopping; press again to kill", output)
        self.assertEqual(self.lines("signals"), [f"scheduler {int(signal.SIGINT)}"])
        record = json.loads((self.run_dir / "summary.json").read_text())
        self.assertEqual((record["status"], record["reason"]), ("done", ""))

    def test_a_run_that_was_stopped_without_its_checkpoint_is_not_done(self):
        launcher = self.launch_in_background("seconds = 60\nstop_seconds = 20\n", 3, "--", "true")
        self.assertTrue(eventually(lambda: self.lines("signals")))
        os.kill(self.pids()[0], signal.SIGINT)
        output, _ = launcher.communicate(timeout=20)
        record = json.loads((self.run_dir / "summary.json").read_text())
        self.assertEqual(record["status"], "stopped", output)

    def test_the_folder_log_of_a_program_stays(self):
        makes = 'mkdir -p "$TARN_RUN_DIR/log"; touch "$TARN_RUN_DIR/log/$TARN_RANK"'
        done = self.launch("seconds = 60\n", "--", "sh", "-c", makes)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(sorted(path.name for path in (self.run_dir / "log").iterdir()), ["0", "1"])

    def test_a_program_that_is_not_there_is_not_tried_again(self):
        done = self.launch("seconds = 60\n", "--", "./nosuch")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stdout, "failed: worker-[01] died: exit code 127 .*nosuch")
        self.assertNotIn("restarted", done.stdout)
        done = self.launch("", "--")
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("a program is missing after --", done.stdout)


if __name__ == "__main__":
    unittest.main()
