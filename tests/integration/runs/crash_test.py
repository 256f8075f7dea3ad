"""Shows that a run with durability "log" survives SIGKILL of every process, again and again, at random moments, with
and without checkpoints: it goes on with `tools/launch --resume` in its own folder, and every row of every epoch was
trained exactly once, by what the workers wrote down themselves (record.py) and the ends that the scheduler announced.
Where the bits of a run follow from its data alone (bsp + aggregated), they are those of a run that nothing disturbed.

TARN_CRASHES sets how many times everything is killed over all runs (8 unless set; 500 for the recorded figures)."""

import os
import random
import resource
import shutil
import signal
import subprocess
import time
import unittest

from crash_run import RUN_SECONDS_MAX, CrashCase

CRASHES = int(os.environ.get("TARN_CRASHES", "8"))
SEED = int(os.environ.get("TARN_CRASH_SEED", "5"))
CRASHES_OF_A_RUN = 4
MODES = (("bsp", "aggregated"), ("ssp", "immediate"), ("asp", "immediate"), ("ssp", "aggregated"))
FIRST_BATCH_SECONDS_MAX = 60
PAGE = 4096  # of a log: server/log/log_format.h


class CrashTest(CrashCase):
    rows = 40_000

    def setUp(self):
        super().setUp()
        self.random = random.Random(SEED)
        self.totals |= dict.fromkeys(("crashes", "runs", "early"), 0)

    def test_nothing_is_lost_and_nothing_is_done_twice(self):
        while self.totals["crashes"] < CRASHES:
            number = self.totals["runs"]
            mode, apply = MODES[number % len(MODES)]
            checkpoint_clocks = (0, 20)[number // len(MODES) % 2 ^ number % 2]
            self.totals["runs"] += 1
            with self.subTest(run=number, mode=mode, apply=apply, checkpoint_clocks=checkpoint_clocks):
                self.run_with_crashes(number, mode, apply, checkpoint_clocks)
        print("crash test: everything killed {crashes} times over {runs} runs ({early} times before the first batch); "
              "{incarnations} incarnations ended; every row once, {voided} batches voided (aggregated), {repeated} "
              "repeated (immediate)".format(**self.totals))

    def test_a_damaged_log_is_refused_by_name(self):
        """Another server's log, a flipped bit, a log cut short: the run goes on only after the log is restored."""
        job, run_dir, written = self.job_of("bsp", "aggregated", 0), self.folder / "damaged", self.folder / "damaged-record"
        command = self.command(job, run_dir, bin_dir=self.recording_programs("damaged", written))
        self.start_and_kill(command, run_dir, written, early=False)
        logs = [next((run_dir / f"log/shard-{shard}").glob("segment-*")) for shard in (0, 1)]
        whole = [log.read_bytes() for log in logs]
        self.assertGreater(len(whole[0]), 4 * PAGE)
        flipped = bytearray(whole[0])
        flipped[PAGE + 100] ^= 1
        end = max(at for at in range(0, len(whole[0]), PAGE) if any(whole[0][at : at + PAGE])) // 2
        for damage, says in ((bytes(flipped), f"offset {PAGE}"), (whole[0][:end], "was durable"), (whole[1], "shard")):
            logs[0].write_bytes(damage)
            done = subprocess.run(self.going_on(command, run_dir), capture_output=True, text=True, timeout=RUN_SECONDS_MAX)
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            self.assertIn(logs[0].name, done.stdout + done.stderr)
            self.assertIn(says, done.stdout + done.stderr)
        logs[0].write_bytes(whole[0])
        self.finish(command, run_dir)
        self.judge(run_dir, written, "aggregated", self.bits_of("bsp", "aggregated", 0))

    def test_an_older_and_a_lost_state_are_refused_by_name(self):
        """The logs are ahead of an older state. The run goes on only after its newest state is restored."""
        job, run_dir, written = self.job_of("bsp", "aggregated", 0), self.folder / "aged", self.folder / "aged-record"
        command = self.command(job, run_dir, bin_dir=self.recording_programs("aged", written))
        self.start_and_kill(command, run_dir, written, early=False)
        state = run_dir / "scheduler.state"
        older = state.read_bytes()
        self.start_and_kill(command, run_dir, written, early=False)
        newest = state.read_bytes()
        state.write_bytes(older)
        done = subprocess.run(self.going_on(command, run_dir), capture_output=True, text=True, timeout=RUN_SECONDS_MAX)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("scheduler.state", done.stdout + done.stderr)
        state.unlink()
        code, _, output = self.launch(job, "elsewhere", "--resume", run_dir)
        self.assertEqual(code, 2, output)
        self.assertIn("scheduler.state: not found", output)
        state.write_bytes(newest)
        self.finish(command, run_dir)
        self.judge(run_dir, written, "aggregated", self.bits_of("bsp", "aggregated", 0))

    def test_a_moved_run_goes_on_from_its_own_checkpoint(self):
        """Another run is at the old path of a moved run. Its checkpoints, put into the moved folder, are rejected."""
        job, run_dir, written = self.job_of("bsp", "aggregated", 20), self.folder / "here", self.folder / "moved-record"
        programs = self.recording_programs("moved", written)
        command = self.command(job, run_dir, bin_dir=programs)
        launch = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        while not (run_dir / "checkpoints/ckpt-3/MANIFEST").exists():  # the state names it, or the one before
            self.assertIsNone(launch.poll())
            time.sleep(0.002)
        self.kill_everything(launch, run_dir)
        moved = self.folder / "there"
        run_dir.rename(moved)
        whole = [manifest.parent for manifest in moved.glob("checkpoints/*/MANIFEST")]
        self.run_ok(job, run_dir, "--set", "optimizer.learning_rate=0.5", "--set", "storage.checkpoints_kept=1000")

        kept = self.folder / "kept"
        kept.mkdir()
        for directory in whole:
            directory.rename(kept / directory.name)
            shutil.copytree(run_dir / "checkpoints" / directory.name, directory)
        go_on = self.going_on(self.command(job, moved, bin_dir=programs), moved)
        done = subprocess.run(go_on, capture_output=True, text=True, timeout=RUN_SECONDS_MAX)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertIn("/MANIFEST: its files", done.stdout + done.stderr)
        for directory in whole:
            shutil.rmtree(directory)
            (kept / directory.name).rename(directory)
        self.finish(self.command(job, moved, bin_dir=programs), moved)
        self.judge(moved, written, "aggregated", self.bits_of("bsp", "aggregated", 20))

    def test_a_log_without_room_fails_the_run_by_name(self):
        """Files may not grow beyond 8 MiB: the run fails and names the file, and goes on without that limit."""
        job, run_dir, written = self.job_of("bsp", "aggregated", 0), self.folder / "full", self.folder / "full-record"
        command = self.command(job, run_dir, bin_dir=self.recording_programs("full", written))

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 20, resource.RLIM_INFINITY))

        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, preexec_fn=limit)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("segment-0000000001.log", done.stdout + done.stderr)
        self.assertIn("File too large", done.stdout + done.stderr)
        self.finish(command, run_dir)
        self.judge(run_dir, written, "aggregated", self.bits_of("bsp", "aggregated", 0))

    def bits_of(self, mode, apply, checkpoint_clocks):
        """The parameters_hash that the run must end with; None if it does not follow from the data alone."""
        if (mode, apply) != ("bsp", "aggregated"):
            return None
        return self.undisturbed("bsp", self.job_of(mode, apply, checkpoint_clocks))

    def run_with_crashes(self, number, mode, apply, checkpoint_clocks):
        job = self.job_of(mode, apply, checkpoint_clocks)
        run_dir, written = self.folder / f"crash-{number}", self.folder / f"record-{number}"
        programs = self.recording_programs(number, written)
        for _ in range(min(CRASHES_OF_A_RUN, CRASHES - self.totals["crashes"])):
            self.start_and_kill(self.command(job, run_dir, bin_dir=programs), run_dir, written)
            self.totals["crashes"] += 1
            if self.is_over(run_dir):
                break  # it ended before it was killed
        killed = self.is_over(run_dir)
        if not killed:
            self.finish(self.command(job, run_dir, bin_dir=programs), run_dir)
        self.judge(run_dir, written, apply, self.bits_of(mode, apply, checkpoint_clocks), killed)

    def start_and_kill(self, command, run_dir, written, early=True):
        self.empty_unless_begun(run_dir)
        launch = subprocess.Popen(self.going_on(command, run_dir), stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        before = written.stat().st_size if written.exists() else 0
        if early and self.random.random() < 0.2:
            time.sleep(self.random.uniform(0, 1))
        else:
            deadline = time.monotonic() + FIRST_BATCH_SECONDS_MAX
            while time.monotonic() < deadline and launch.poll() is None:
                if written.exists() and written.stat().st_size > before:
                    break
                time.sleep(0.002)
            time.sleep(self.random.uniform(0, 1.0) ** 2)
        self.totals["early"] += not written.exists() or written.stat().st_size == before
        self.kill_everything(launch, run_dir)


if __name__ == "__main__":
    unittest.main(verbosity=2)
