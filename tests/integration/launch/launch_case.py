"""Runs tools/launch with fake programs in the place of the fleet (fake_program.py)."""

import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
TOOLS = HERE.parents[2] / "tools"
sys.path.insert(0, str(TOOLS))

FLEET = '[job]\nname = "fake"\n[fleet]\nservers = 2\nshards = 2\nworkers = 2\nworker_restarts = 2\n'
DATA = '[data]\ntrain = "rows"\n'


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


class LaunchCase(unittest.TestCase):
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
        (self.folder / "rows").touch()

    def command(self, fake="", *more):
        job = self.folder / "job.toml"
        job.write_text(FLEET + ("" if "[data]" in fake else DATA) + "[fake]\n" + fake)
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

    def launch_in_background(self, fake, processes, *more, **options):
        """The running launcher, once that many processes of the fleet have begun. options: of Popen."""
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True} | options
        launcher = subprocess.Popen(self.command(fake, *more), cwd=self.folder, **options)
        if launcher.stdout is not None:
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
