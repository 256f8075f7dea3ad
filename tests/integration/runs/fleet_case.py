"""Runs real fleets for tests: small data made once, tools/launch as a user would call it, the summary as result."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
BIN = pathlib.Path(os.environ.get("TARN_BIN_DIR", ROOT / "build/release/bin"))
LAUNCH = ROOT / "tools/launch"


class FleetCase(unittest.TestCase):
    """A folder of its own for each test class, with a generated data set of `rows` rows for training."""

    rows = 20_000

    @classmethod
    def setUpClass(cls):
        cls._folder = tempfile.TemporaryDirectory(prefix="tarn-test-")
        cls.folder = pathlib.Path(cls._folder.name)
        cls.data = cls.folder / "data"
        subprocess.run(
            [BIN / "tarn-generate", "--rows", str(cls.rows), "--valid", "2000", "--test", "2000", "--seed", "7",
             "--out", cls.data],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    @classmethod
    def tearDownClass(cls):
        cls._folder.cleanup()

    def job(self, **more):
        """A job file: logistic regression and embeddings, small and quick. Returns its path."""
        text = f"""
[job]
name = "test"
seed = 3
[fleet]
servers = {more.get('servers', 2)}
shards = {more.get('shards', 1)}
workers = {more.get('workers', 2)}
heartbeat_seconds = 0.2
lease_seconds = 10
worker_restarts = {more.get('restarts', 3)}
[consistency]
mode = "{more.get('mode', 'bsp')}"
staleness = {more.get('staleness', 0)}
apply = "{more.get('apply', 'aggregated')}"
[storage]
durability = "{more.get('durability', 'none')}"
checkpoint_clocks = {more.get('checkpoint_clocks', 0)}
checkpoint_final = {str(more.get('checkpoint_final', False)).lower()}
checkpoints_kept = {more.get('checkpoints_kept', 3)}
memory = "{more.get('memory', '0')}"
[data]
dir = "{self.data}"
format = "criteo"
train = "train.tsv"
valid = "{more.get('valid', '')}"
test = "{more.get('test', '')}"
split_rows = {more.get('split_rows', 1024)}
[model]
kind = "{more.get('model', 'deepfm')}"
embedding_dim = {more.get('embedding_dim', 4)}
hidden = [8]
[train]
batch_rows = {more.get('batch_rows', 128)}
epochs = {more.get('epochs', 1)}
[optimizer]
kind = "{more.get('optimizer', 'adam')}"
learning_rate = 0.01
"""
        path = self.folder / f"job-{self.id()}.toml"
        path.write_text(text)
        return path

    def recording_programs(self, number, written, program="", environment=None):
        """A folder with the programs, in which tarn-worker keeps a record and `program` has more in its environment."""
        folder = self.folder / f"bin-{number}"
        folder.mkdir()
        for name in ("tarn-scheduler", "tarn-server"):
            if name != program:
                (folder / name).symlink_to(BIN / name)
        self.wrap(folder / "tarn-worker", f'exec "{BIN}/tarn-worker" --record "{written}" "$@"')
        if program:
            more = " ".join(f"'{name}={value}'" for name, value in environment.items())
            self.wrap(folder / program, f'exec env {more} "{BIN}/{program}" "$@"')
        return folder

    @staticmethod
    def wrap(path, line):
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)

    def command(self, job, run_dir, *more, bin_dir=BIN):
        return [sys.executable, LAUNCH, job, "--bin-dir", bin_dir, "--run-dir", run_dir, "--quiet", *more]

    def launch(self, job, name, *more, timeout=240):
        """Runs to the end; returns (exit code, summary or None, output)."""
        run_dir = self.folder / name
        done = subprocess.run(self.command(job, run_dir, *more), capture_output=True, text=True, timeout=timeout)
        summary = run_dir / "summary.json"
        return done.returncode, json.loads(summary.read_text()) if summary.exists() else None, done.stdout + done.stderr

    def run_ok(self, job, name, *more):
        code, summary, output = self.launch(job, name, *more)
        self.assertEqual(code, 0, output)
        self.assertIn(summary["status"], ("done", "stopped"), output)
        return summary
