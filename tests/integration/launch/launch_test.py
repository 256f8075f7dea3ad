"""Shows that tools/launch restarts dead workers, fails with the reason when a server dies, turns Ctrl-C into a clean
stop, and leaves no process behind however it ends. Fake programs stand in for the fleet (fake_program.py)."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
TOOLS = HERE.parents[2] / "tools"
sys.path.insert(0, str(TOOLS))

from tarn_tools import progress, report, series, summary

FLEET = '[job]\nname = "fake"\n[fleet]\nservers = 2\nshards = 2\nworkers = 2\nworker_restarts = 2\n[fake]\n'


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def eventually(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


class LaunchTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.bin_dir = self.folder / "bin"
        self.bin_dir.mkdir()
        body = f"#!{sys.executable} -S\n" + (HERE / "fake_program.py").read_text()
        for name in ("tarn-scheduler", "tarn-server", "tarn-worker"):
            (self.bin_dir / name).write_text(body)
            (self.bin_dir / name).chmod(0o755)
        self.run_dir = self.folder / "run"

    def command(self, fake="", *more):
        job = self.folder / "job.toml"
        job.write_text(FLEET + fake)
        return [
            sys.executable,
            str(TOOLS / "launch"),
            str(job),
            "--bin-dir",
            str(self.bin_dir),
            "--run-dir",
            str(self.run_dir),
            *more,
        ]

    def launch(self, fake="", *more):
        done = subprocess.run(
            self.command(fake, *more),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            cwd=self.folder,
        )
        self.assert_nothing_left()
        return done

    def launch_in_background(self, fake, processes):
        """The running launcher, once that many processes of the fleet have begun."""
        launcher = subprocess.Popen(
            self.command(fake), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.folder
        )
        self.addCleanup(launcher.stdout.close)
        self.addCleanup(launcher.kill)
        self.assertTrue(eventually(lambda: len(self.pids()) >= processes and (self.run_dir / "metrics.jsonl").exists()))
        time.sleep(0.2)  # until the fakes have set their signal handlers
        return launcher

    def lines(self, name):
        path = self.run_dir / name
        return path.read_text().splitlines() if path.exists() else []

    def pids(self):
        return [int(line.split()[2]) for line in self.lines("pids")]

    def assert_nothing_left(self):
        self.assertTrue(eventually(lambda: not any(alive(pid) for pid in self.pids()), 3.0), "processes are left")
        self.assertEqual(list(self.folder.glob("**/.scheduler-address")), [])

    def test_a_run_ends_with_a_table_and_a_report(self):
        done = self.launch('prints = "disk is slow"\n')
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(len(self.pids()), 5)
        for text in ("status", "finished", "eval AUC", "0.7500", "report.html", "scheduler: disk is slow"):
            self.assertIn(text, done.stdout)
        self.assertIn("<svg", (self.run_dir / "report.html").read_text())

    def test_quiet_shows_only_the_result(self):
        done = self.launch("", "--quiet")
        self.assertNotIn("launch:", done.stdout)
        self.assertIn("eval AUC", done.stdout)

    def test_a_dead_worker_is_restarted(self):
        done = self.launch("seconds = 2.0\nworker_crashes = 1\ncrashing_rank = 1\n")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("worker-1 restarted (1 of 2)", done.stdout)
        self.assertIn("gradient is not finite", done.stdout)
        self.assertEqual(len(self.pids()), 6)

    def test_a_worker_that_dies_for_ever_is_left_out(self):
        done = self.launch("seconds = 3.0\nworker_crashes = 9\n")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("worker-0 was restarted 2 times; going on without it", done.stdout)
        self.assertEqual(len(self.pids()), 7)

    def test_no_worker_left_fails_the_run(self):
        job = FLEET.replace("workers = 2", "workers = 1")
        path = self.folder / "one.toml"
        path.write_text(job + "seconds = 60\nworker_crashes = 9\n")
        command = self.command()
        command[2] = str(path)
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("no worker is left", done.stdout)
        self.assert_nothing_left()

    def test_a_dead_server_fails_the_run(self):
        done = self.launch("seconds = 60\nserver_dies = true\n")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("server-1 died: killed by SIGABRT", done.stdout)
        self.assertIn("logs/server-1.log", done.stdout)
        self.assertIn("    disk is full", done.stdout)
        self.assertIn(
            "server-1 died", json.loads((self.run_dir / "summary.json").read_text()).get("reason", "server-1 died")
        )

    def test_a_bad_job_is_told_and_leaves_no_folder(self):
        done = self.launch("bad_job = true\n")
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("did you mean 'model'?", done.stdout)
        self.assertFalse(self.run_dir.exists())

    def test_ctrl_c_is_a_clean_stop_by_the_scheduler_alone(self):
        launcher = self.launch_in_background("seconds = 60\n", processes=5)
        launcher.send_signal(signal.SIGINT)
        output, _ = launcher.communicate(timeout=20)
        self.assertEqual(launcher.returncode, 0, output)
        self.assertIn("stopped", output)
        self.assertEqual(self.lines("signals"), [f"scheduler {int(signal.SIGINT)}"])
        self.assert_nothing_left()

    def test_a_second_ctrl_c_kills(self):
        launcher = self.launch_in_background("seconds = 60\ndeaf = true\n", processes=5)
        launcher.send_signal(signal.SIGTERM)
        self.assertTrue(eventually(lambda: self.lines("signals")))
        self.assertIsNone(launcher.poll())
        launcher.send_signal(signal.SIGINT)
        output, _ = launcher.communicate(timeout=20)
        self.assertEqual(launcher.returncode, 130, output)
        self.assert_nothing_left()

    def test_kill_9_of_the_launcher_leaves_no_process(self):
        launcher = self.launch_in_background("seconds = 60\n", processes=5)
        launcher.kill()
        launcher.wait()
        self.assert_nothing_left()

    def test_resume_takes_the_job_of_the_run(self):
        self.launch()
        first, self.run_dir = self.run_dir, self.folder / "resumed"
        command = [argument for argument in self.command() if not argument.endswith("job.toml")]
        done = subprocess.run([*command, "--resume", str(first)], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        arguments = json.loads(self.lines("arguments")[0])
        self.assertEqual(arguments[arguments.index("--resume") + 1], str(first))
        self.assertEqual(arguments[arguments.index("--job") + 1], str(first / "job.toml"))

    def test_a_used_run_dir_and_a_missing_job_are_refused(self):
        self.run_dir.mkdir()
        (self.run_dir / "precious").touch()
        self.assertEqual(self.launch().returncode, 2)
        missing = subprocess.run([sys.executable, str(TOOLS / "launch"), "no.toml"], capture_output=True, text=True)
        self.assertEqual(missing.returncode, 2)
        self.assertIn("no such job file: no.toml", missing.stderr)


class ReportTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.run_dir = pathlib.Path(folder.name)

    def test_missing_and_damaged_files_still_give_a_page(self):
        self.assertIn("no data", report.write(self.run_dir).read_text())
        (self.run_dir / "summary.json").write_text(
            '{"job": "<b>", "seconds": null, "epochs": [3], "stages": {"pull": 1}}'
        )
        (self.run_dir / "metrics.jsonl").write_text(
            '{"role": "scheduler", "time": 1, "loss": 0.5}\n[]\n{"role": "sched'
        )
        page = report.write(self.run_dir).read_text()
        self.assertIn("&lt;b&gt;", page)
        self.assertNotIn("<b> ", page)
        self.assertNotIn("http", page.replace("http-equiv", ""))

    def test_rates_survive_the_restart_of_a_worker(self):
        lines = [
            {"role": "worker", "rank": 0, "time": t, "counters": {"pull_bytes": value}}
            for t, value in ((0, 0), (1, 100), (2, 200), (3, 10), (4, 110))
        ]
        metrics = series.Metrics(lines)
        self.assertEqual([value for _, value in metrics.rate("pull_bytes")], [100, 100, 100])

    def test_texts(self):
        self.assertEqual(progress.duration(95), "1:35")
        self.assertEqual(summary.byte_count(1536), "1.5 KiB")
        record = {"progress": 0.5, "loss": float("nan"), "auc": 0.75, "samples": 1000, "eta_seconds": 3}
        self.assertEqual(progress.progress_line(record), " 50%  1,000 samples  AUC 0.7500  3 s left")
        for columns in range(80):
            self.assertLessEqual(len(progress.progress_line(record, columns)), columns)
        self.assertEqual(progress.progress_line({"samples": 0, "state": "waiting"}), "waiting")


if __name__ == "__main__":
    unittest.main()
