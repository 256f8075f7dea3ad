"""Shows how tools/launch uses the folder of a run: one launcher at a time, a refused resume leaves it as it was, and folders
that cannot be used are named. Fake programs stand in for the fleet (fake_program.py)."""

import json
import signal
import subprocess
import sys
import unittest

from launch_case import TOOLS, LaunchCase, eventually

from tarn_tools import launch_options


class RunFolderTest(LaunchCase):
    def test_resume_takes_the_job_of_the_run(self):
        self.launch()
        first, self.run_dir = self.run_dir, self.folder / "resumed"
        command = [argument for argument in self.command() if not argument.endswith("job.toml")]
        done = subprocess.run([*command, "--resume", str(first)], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        arguments = json.loads(self.lines("arguments")[0])
        self.assertEqual(arguments[arguments.index("--resume") + 1], str(first))
        self.assertEqual(arguments[arguments.index("--job") + 1], str(first / "job.toml"))

    def test_a_damaged_manifest_is_reported_by_the_scheduler(self):
        (self.folder / "ckpt").mkdir()
        (self.folder / "ckpt/MANIFEST").write_bytes(b"damaged")
        options = launch_options.parse_arguments(["--resume", str(self.folder / "ckpt")])
        self.assertIsNone(options.job)

    def test_a_run_is_resumed_by_one_launcher_at_a_time(self):
        """Also while the first still waits for its scheduler, whose address the second must not use."""
        for slow_seconds in (0, 3):
            with self.subTest(slow_seconds=slow_seconds):
                self.run_dir = self.folder / f"crashed-{slow_seconds}"
                self.run_dir.mkdir()
                (self.run_dir / "scheduler.state").touch()  # a run with a log, which ended with a crash
                resume = [*self.command(f"seconds = 60\nslow_seconds = {slow_seconds}\n"), "--resume", str(self.run_dir)]
                first = subprocess.Popen(resume, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.folder)
                self.addCleanup(first.stdout.close)
                self.addCleanup(first.kill)
                self.assertTrue(eventually(lambda: len(self.pids()) >= (1 if slow_seconds else 5)))
                (self.run_dir / "summary.json").write_text("{}")
                second = subprocess.run(resume, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
                                        cwd=self.folder)
                self.assertEqual(second.returncode, 2, second.stdout)
                self.assertIn(f"{self.run_dir}: another tools/launch runs in this folder", second.stdout)
                self.assertTrue((self.run_dir / "summary.json").exists(), "it changed the folder of the first")
                self.assertTrue(eventually(lambda: len(self.pids()) == 5))
                self.assertIsNone(first.poll())
                first.send_signal(signal.SIGINT)
                output, _ = first.communicate(timeout=20)
                self.assertEqual(first.returncode, 0, output)
                self.assertEqual(len(self.pids()), 5, "the second has started processes")

    def crashed_run(self):
        """The files of a run with a log, which has failed: {name: text}."""
        files = {
            "scheduler.state": "",
            "metrics.jsonl": '{"role": "scheduler", "samples": 7}\n',
            "summary.json": '{"job": "fake", "status": "failed", "reason": "worker 1: no such file"}',
            "report.html": "the report",
            "trace.json": "the trace",
            "logs/scheduler-0.log": "its log\n",
        }
        (self.run_dir / "logs").mkdir(parents=True)
        for name, text in files.items():
            (self.run_dir / name).write_text(text)
        return files

    def test_a_refused_resume_leaves_the_run_as_it_was(self):
        before = self.crashed_run()
        done = self.launch("bad_job = true\n", "--resume", str(self.run_dir))
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("unknown key 'modle'", done.stdout)
        self.assertIn(f"the run did not continue; its results in {self.run_dir} stay as they were\n", done.stdout)
        for text in ("status", "samples"):
            self.assertNotIn(text, done.stdout)
        self.assertEqual({name: (self.run_dir / name).read_text() for name in before}, before)

        done = self.launch("", "--resume", str(self.run_dir))
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(json.loads((self.run_dir / "summary.json").read_text())["status"], "finished")

    def test_a_resume_that_is_stopped_before_it_begins_leaves_the_run_as_it_was(self):
        before = self.crashed_run()
        command = [*self.command("slow_seconds = 60\n"), "--resume", str(self.run_dir)]
        launcher = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.folder)
        self.addCleanup(launcher.stdout.close)
        self.addCleanup(launcher.kill)
        self.assertTrue(eventually(lambda: self.lines("arguments")))
        launcher.send_signal(signal.SIGINT)
        launcher.send_signal(signal.SIGTERM)  # kills
        output, _ = launcher.communicate(timeout=20)
        self.assertEqual(launcher.returncode, 130, output)
        self.assertIn("failed: killed by a second", output)
        self.assertEqual({name: (self.run_dir / name).read_text() for name in before}, before)

    def test_a_launcher_that_was_killed_holds_no_folder(self):
        self.run_dir.mkdir()
        (self.run_dir / "scheduler.state").touch()
        launcher = self.launch_in_background("seconds = 60\n", 5, "--resume", str(self.run_dir))
        launcher.kill()
        launcher.wait()
        done = self.launch("", "--resume", str(self.run_dir))
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_a_new_folder_is_used_by_one_launcher(self):
        """By one of several that begin at once in one --run-dir. A folder with only the lock of an ended launcher is
        empty."""
        self.run_dir.mkdir()
        (self.run_dir / "launch.lock").touch()
        command = self.command("seconds = 2\n")
        launchers = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.folder)
                     for _ in range(4)]
        outputs = [launcher.communicate(timeout=60)[0] for launcher in launchers]
        self.assertEqual(sorted(launcher.returncode for launcher in launchers), [0, 2, 2, 2], outputs)
        self.assertEqual(sum("another tools/launch runs in this folder" in output for output in outputs), 3, outputs)
        self.assertEqual(len(self.pids()), 5)

    def test_an_empty_run_dir_is_used_and_never_removed(self):
        self.run_dir.mkdir()
        self.assertEqual(self.launch("bad_job = true\n").returncode, 2)
        self.assertEqual(list(self.run_dir.iterdir()), [])
        self.assertEqual(self.launch().returncode, 0)

    def test_a_used_run_dir_and_a_missing_job_are_refused(self):
        self.run_dir.mkdir()
        (self.run_dir / "precious").touch()
        done = self.launch()
        self.assertEqual(done.returncode, 2)
        self.assertIn("is not empty", done.stdout)
        self.assertIn(f"--resume {self.run_dir}", done.stdout)
        self.assertTrue((self.run_dir / "precious").exists())
        missing = subprocess.run([sys.executable, str(TOOLS / "launch"), "no.toml"], capture_output=True, text=True)
        self.assertEqual(missing.returncode, 2)
        self.assertIn("no such job file: no.toml", missing.stderr)

    def test_folders_that_cannot_be_used_are_named(self):
        self.run_dir.mkdir()
        nothing = self.command()[:2] + ["--resume", str(self.run_dir)]
        done = subprocess.run(nothing, capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"--resume {self.run_dir}: neither a run (job.toml) nor a checkpoint (MANIFEST)", done.stderr)
        self.run_dir = self.folder / "job.toml/run"
        done = self.launch()
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stdout, f"tools/launch: {self.run_dir}: Not a directory\n")


if __name__ == "__main__":
    unittest.main()
