"""Shows that runs survive SIGKILL of their workers: every run ends with every row trained, by the scheduler's account.

That account is what is checked, not an independent one: that nothing is trained twice under bsp + aggregated is shown
by the simulator's oracle, not here. Repeats in the other modes are read from the summary.

TARN_KILLS sets how many kills are made over all runs (12 unless set; 200 for the recorded figures)."""

import os
import pathlib
import random
import signal
import subprocess
import time
import unittest

from fleet_case import FleetCase

KILLS = int(os.environ.get("TARN_KILLS", "12"))


def workers_of(run_dir):
    """Process ids of the workers of a run."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            line = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if line[0].endswith(b"tarn-worker") and str(run_dir).encode() in b" ".join(line):
            found.append(int(entry.name))
    return found


class KillTest(FleetCase):
    def test_kills(self):
        rng = random.Random(11)
        kills = runs = repeated = 0
        while kills < KILLS:
            mode, apply = (("bsp", "aggregated"), ("bsp", "aggregated"), ("ssp", "immediate"), ("asp", "immediate"))[runs % 4]
            made, summary = self.run_with_kills(rng, mode, apply, runs, KILLS - kills)
            kills += made
            runs += 1
            repeated += summary["batches_repeated"]
            self.assertEqual(summary["status"], "done")
            self.assertEqual(summary["samples"], 2 * self.rows, f"run {runs} ({mode} + {apply})")
            if apply == "aggregated":
                self.assertEqual(summary["batches_repeated"], 0)
        print(f"{kills} SIGKILLs over {runs} runs, all ended; {repeated} batches repeated in immediate mode")

    def run_with_kills(self, rng, mode, apply, number, most):
        job = self.job(workers=3, mode=mode, apply=apply, staleness=2 if mode == "ssp" else 0, epochs=2, restarts=1000)
        run_dir = self.folder / f"kill-{number}"
        process = subprocess.Popen(self.command(job, run_dir), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        made = 0
        wanted = min(most, 8)
        deadline = time.time() + 240
        while process.poll() is None and time.time() < deadline:
            time.sleep(rng.uniform(0.05, 0.5))
            pids = workers_of(run_dir)
            if made < wanted and pids:
                try:
                    os.kill(rng.choice(pids), signal.SIGKILL)
                    made += 1
                except ProcessLookupError:
                    pass
        if process.poll() is None:
            process.kill()
        output, _ = process.communicate()
        self.assertEqual(process.returncode, 0, output)
        import json
        return made, json.loads((run_dir / "summary.json").read_text())


if __name__ == "__main__":
    unittest.main(verbosity=2)
