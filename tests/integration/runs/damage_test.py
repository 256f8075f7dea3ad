"""Shows that no damage to the files of a run passes silently: a run with durability "log" is killed, and one of its
files is damaged in a copy (a bit, a block, an end cut off or grown, another file's bytes in its place). The copy either
does not go on and names the file, or, if the damaged bytes are not needed (such as those after the last record of a
log), ends as if nothing had happened: every row trained once, same bits. Damaged checkpoints are also given to
tarn-inspect, which must reject each and name the file.

TARN_DAMAGES sets how many files are damaged: half of them under tarn-inspect, half in runs that are to go on (24 unless
set; 1000 for the recorded figures)."""

import os
import random
import shutil
import subprocess
import time
import unittest

from crash_run import RUN_SECONDS_MAX, CrashCase
from fleet_case import BIN

DAMAGES = int(os.environ.get("TARN_DAMAGES", "24"))
SEED = int(os.environ.get("TARN_DAMAGE_SEED", "17"))
BLOCK = 512
# The files that a restart reads -> how often they are chosen, relative to each other.
FILES = {"log/*/segment-*.log": 8, "log/*/mark": 2, "checkpoints/ckpt-*/*.sst": 5, "checkpoints/ckpt-*/MANIFEST": 4,
         "scheduler.state": 1}


def used(data):
    """The length without reserved space, which is zeros at the end."""
    return len(data.rstrip(b"\0")) or len(data)


def flip(rng, data, others):
    at = rng.randrange(used(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1:]


def blank(rng, data, others):
    at = rng.randrange(used(data)) // BLOCK * BLOCK
    return data[:at] + bytes(len(data[at : at + BLOCK])) + data[at + BLOCK:]


def scramble(rng, data, others):
    at = rng.randrange(used(data)) // BLOCK * BLOCK
    return data[:at] + rng.randbytes(len(data[at : at + BLOCK])) + data[at + BLOCK:]


def cut(rng, data, others):
    return data[:rng.randrange(used(data))]


def grow(rng, data, others):
    return data + rng.randbytes(rng.randint(1, 2 * BLOCK))


def swap(rng, data, others):
    return rng.choice(others) if others else data


DAMAGE = (flip, flip, flip, blank, scramble, cut, grow, swap)


class DamageTest(CrashCase):
    rows = 40_000  # the third checkpoint comes before the middle

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        case = cls("test_runs_that_go_on")
        case.random = random.Random(SEED)
        cls.job_file = case.job_of("bsp", "aggregated", 24, checkpoints_kept=2)
        cls.bits = case.run_ok(cls.job_file, "undisturbed")["parameters_hash"]
        cls.whole, cls.written = cls.folder / "whole", cls.folder / "whole-record"
        programs = case.recording_programs("whole", cls.written)
        launch = subprocess.Popen(case.command(cls.job_file, cls.whole, bin_dir=programs), stdout=subprocess.DEVNULL,
                                  stderr=subprocess.STDOUT)
        while not any(cls.whole.glob("checkpoints/ckpt-[3-9]/MANIFEST")):
            case.assertIsNone(launch.poll(), "the run ended before its third checkpoint")
            time.sleep(0.002)
        time.sleep(0.05)
        case.kill_everything(launch, cls.whole)
        case.assertFalse(case.is_over(cls.whole), "the run ended before it was killed")

    def setUp(self):
        super().setUp()
        self.random = random.Random(f"{SEED} {self.id()}")

    def damaged(self, run_dir, patterns):
        """Damages one file of a run; returns its path and what was done."""
        while True:
            pattern = self.random.choices(list(patterns), list(patterns.values()))[0]
            files = sorted(path for path in run_dir.glob(pattern) if path.stat().st_size)
            path, damage = self.random.choice(files), self.random.choice(DAMAGE)
            data = path.read_bytes()
            bad = damage(self.random, data, [other.read_bytes() for other in files if other != path])
            if bad == data:
                continue
            path.unlink()  # checkpoints share files by links
            path.write_bytes(bad)
            return path, damage.__name__

    def copy_of_run(self, name):
        run_dir = self.folder / name
        subprocess.run(["cp", "-a", "--sparse=always", self.whole, run_dir], check=True)
        return run_dir

    def test_checkpoints(self):
        # Without the checkpoint that was being written when everything was killed.
        checkpoints = sorted(path.parent for path in self.whole.glob("checkpoints/ckpt-*/MANIFEST"))
        for number in range(DAMAGES // 2):
            copy, checkpoint = self.folder / "checkpoint", self.random.choice(checkpoints)
            shutil.copytree(checkpoint, copy / checkpoint.name)
            path, how = self.damaged(copy, {"ckpt-*/*": 1})
            with self.subTest(number=number, file=path.name, damage=how):
                done = subprocess.run([BIN / "tarn-inspect", "verify", path.parent], capture_output=True, text=True,
                                      timeout=60)
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                self.assertIn(path.name, done.stderr)
            shutil.rmtree(copy)

    def test_runs_that_go_on(self):
        refused = harmless = 0
        for number in range(DAMAGES // 2):
            run_dir, written = self.copy_of_run(f"run-{number}"), self.folder / f"record-{number}"
            shutil.copy(self.written, written)
            path, how = self.damaged(run_dir, FILES)
            programs = self.recording_programs(number, written)
            with self.subTest(number=number, file=str(path.relative_to(run_dir)), damage=how):
                command = self.going_on(self.command(self.job_file, run_dir, bin_dir=programs), run_dir)
                done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX)
                if done.returncode == 0:
                    harmless += 1
                    self.judge(run_dir, written, "aggregated", self.bits)
                else:
                    refused += 1
                    self.assertIn(path.name, done.stdout + done.stderr)
            shutil.rmtree(run_dir)
        print(f"damage test: {DAMAGES // 2} checkpoints refused by name; of {DAMAGES // 2} runs {refused} did not go on "
              f"and named the file, {harmless} ended with the same bits")


if __name__ == "__main__":
    unittest.main(verbosity=2)
