"""Shows that runs survive SIGKILL of their workers: every run ends, and every row of every epoch was trained exactly
once, by the workers' own records (record.py), not by the scheduler's account. Batches that were pushed and trained
again are voided by the shards under bsp + aggregated, and counted in the summary otherwise.

Every run also shows that the check can fail: it must reject the run's record with a batch left out, with a batch
doubled, and with an end clock that is one off.

TARN_KILLS sets how many kills are made over all runs (10 unless set; 200 for the recorded figures)."""

import json
import os
import random
import signal
import subprocess
import time
import unittest

import processes
import record
from fleet_case import FleetCase

KILLS = int(os.environ.get("TARN_KILLS", "10"))
KILLS_OF_A_RUN = 5
EPOCHS = 2
MODES = (("bsp", "aggregated"), ("ssp", "immediate"), ("bsp", "aggregated"), ("asp", "immediate"))
SECONDS_MAX = 240
IN_FLIGHT_SECONDS_MAX = 1.0


class KillTest(FleetCase):
    rows = 60_000

    def setUp(self):
        self.random = random.Random(11)
        self.totals = dict.fromkeys(("kills", "runs", "died", "trained", "voided", "repeated", "checkpoints"), 0)

    def test_every_row_is_trained_exactly_once(self):
        while self.totals["kills"] < KILLS:
            number = self.totals["runs"]
            mode, apply = MODES[number % len(MODES)]
            # With and without checkpoints in every mode.
            checkpoint_clocks = 15 if number // len(MODES) % 2 == number % 2 else 0
            self.totals["runs"] += 1
            self.judge(self.run_with_kills(number, mode, apply, checkpoint_clocks), apply)
        print("kill test: {kills} SIGKILLs over {runs} runs ({checkpoints} checkpoints); {died} incarnations died in the "
              "fleet, {trained} of them after their first batch; every row once, {voided} batches voided (aggregated), "
              "{repeated} repeated (immediate)".format(**self.totals))

    def run_with_kills(self, number, mode, apply, checkpoint_clocks):
        """Kills random workers while the run goes on. Returns its summary, its record and its verdicts."""
        job = self.job(workers=3, mode=mode, apply=apply, staleness=2 if mode == "ssp" else 0, epochs=EPOCHS, batch_rows=64,
                       restarts=1000, durability="checkpoint" if checkpoint_clocks else "none",
                       checkpoint_clocks=checkpoint_clocks)
        run_dir, written = self.folder / f"kill-{number}", self.folder / f"record-{number}"
        command = self.command(job, run_dir, bin_dir=self.recording_programs(number, written))
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        made, deadline = 0, time.monotonic() + SECONDS_MAX
        while process.poll() is None and time.monotonic() < deadline:
            self.bide(written)
            if made < KILLS_OF_A_RUN and self.totals["kills"] < KILLS and self.kill_one(run_dir):
                made += 1
                self.totals["kills"] += 1
        if process.poll() is None:
            process.kill()
        output, _ = process.communicate()
        self.assertEqual(process.returncode, 0, output)
        self.totals["checkpoints"] += len(list(run_dir.glob("checkpoints/ckpt-*/MANIFEST")))
        summary = json.loads((run_dir / "summary.json").read_text())
        ends = record.verdicts((run_dir / "logs/scheduler-0.log").read_text())
        return summary, record.Record(written.read_text()), ends

    def bide(self, written):
        """Waits for a random time; every other wait ends while batches are in flight, not during a start or a pause."""
        time.sleep(self.random.uniform(0.02, 0.4))
        if self.random.random() < 0.5 or not written.exists():
            return
        size, deadline = written.stat().st_size, time.monotonic() + IN_FLIGHT_SECONDS_MAX
        while written.stat().st_size == size and time.monotonic() < deadline:
            time.sleep(0.0005)
        time.sleep(self.random.uniform(0, 0.005))

    def kill_one(self, run_dir):
        pids = processes.workers(run_dir)
        if not pids:
            return False
        try:
            os.kill(self.random.choice(pids), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def judge(self, outcome, apply):
        summary, written, ends = outcome
        self.assertEqual(summary["status"], "done")
        self.assertEqual(summary["samples"], EPOCHS * self.rows)
        self.assertEqual(record.coverage_errors(written.batches, ends, EPOCHS, self.rows), [])
        self.assertEqual(record.verdict_errors(written, ends), [])
        least, most = record.repeats(written, ends)
        if apply == "aggregated":
            self.assertEqual(summary["batches_repeated"], 0)
            self.totals["voided"] += most
        else:
            self.assertGreaterEqual(summary["batches_repeated"], least)
            self.assertLessEqual(summary["batches_repeated"], most)
            self.totals["repeated"] += summary["batches_repeated"]
        trained = {batch.incarnation for batch in written.batches} & set(ends)
        self.totals["died"] += len(ends)
        self.totals["trained"] += len(trained)
        self.damage(written, ends)

    def damage(self, written, ends):
        """The check must reject the record that this run would have left if one thing had gone wrong."""
        def refused(batches, ends):
            self.assertNotEqual(record.coverage_errors(batches, ends, EPOCHS, self.rows), [])

        counted = [batch for batch in written.batches if record.counts(batch, ends)]
        one = self.random.choice(counted)
        refused([batch for batch in written.batches if batch != one], ends)
        refused([*written.batches, one], ends)
        for incarnation, end in ends.items():
            clocks = {batch.clock for batch in written.batches if batch.incarnation == incarnation}
            if end - 1 in clocks:
                refused(written.batches, ends | {incarnation: end - 1})
            if end in clocks:
                refused(written.batches, ends | {incarnation: end + 1})


if __name__ == "__main__":
    unittest.main(verbosity=2)
