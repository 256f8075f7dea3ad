"""Shows that servers with a memory budget end in the same bits as without one, that their processes stay within it
although their rows do not fit, and that their metrics of it are true."""

import json
import subprocess
import time
import unittest

import processes
from fleet_case import FleetCase

MIB = 1 << 20
BUDGET = 96 * MIB
CUT_BUDGET = 128 * MIB  # larger: memory is checked every 20 ms, and may grow in between by an amount independent of it
TOLERANCE = 1.1  # limit of the resident memory, relative to the budget


def resident_bytes(pid):
    """The resident memory of a process; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as status:
            for line in status:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


class MemoryTest(FleetCase):
    rows = 30_000

    def wide_job(self, **more):
        # Rows of 240 values and two slots for each: several times the budget.
        return self.job(servers=1, workers=1, batch_rows=256, model="fm", embedding_dim=240, **more)

    def last_of_servers(self, run_dir):
        """The last line of metrics of each shard."""
        last = {}
        for line in (run_dir / "metrics.jsonl").read_text().splitlines():
            entry = json.loads(line)
            if entry["role"] == "shard":
                last[entry["rank"]] = entry
        return list(last.values())

    def run_and_watch(self, job, name, *more):
        """Runs to the end. Returns the summary and the largest resident memory of a server, in bytes."""
        run_dir = self.folder / name
        process = subprocess.Popen(self.command(job, run_dir, *more), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        most = 0
        while process.poll() is None:
            for pid, program in processes.of_run(run_dir).items():
                if program == "tarn-server":
                    most = max(most, resident_bytes(pid))
            time.sleep(0.02)
        output = process.stdout.read().decode()
        process.stdout.close()
        self.assertEqual(process.returncode, 0, output)
        return json.loads((run_dir / "summary.json").read_text()), most

    def test_same_bits_within_the_budget(self):
        for shards in (1, 2):
            with self.subTest(shards=shards):
                job = self.wide_job(shards=shards)
                free, took = self.run_and_watch(job, f"free-{shards}")
                self.assertGreater(took, 2 * BUDGET, "the job is too small to show anything")
                bound, most = self.run_and_watch(job, f"bound-{shards}", "--set", f"storage.memory={BUDGET}")
                print(f"{shards} shards: {took / MIB:.0f} MiB without a budget, {most / MIB:.0f} MiB with "
                      f"{BUDGET / MIB:.0f} MiB", flush=True)
                self.assertEqual(bound["parameters_hash"], free["parameters_hash"])
                self.assertEqual(bound["samples"], free["samples"])
                self.assertLessEqual(most, TOLERANCE * BUDGET)
                metrics = self.last_of_servers(self.folder / f"bound-{shards}")
                self.assertEqual(len(metrics), shards)
                for shard in metrics:
                    self.assertGreater(shard["cold_rows"], 0)
                    self.assertGreater(shard["tier_bytes"], 0)
                    self.assertGreater(shard["tier_evicted"], 0)
                    self.assertLessEqual(shard["process_bytes"], TOLERANCE * BUDGET)

    def test_full_checkpoints_under_pushes_stay_within_the_budget(self):
        job = self.wide_job(mode="asp", apply="immediate", durability="checkpoint", checkpoint_clocks=25, epochs=3)
        _, most = self.run_and_watch(job, "cuts", "--set", f"storage.memory={CUT_BUDGET}", "--set",
                                     "storage.checkpoint_chain=0")
        shard, = self.last_of_servers(self.folder / "cuts")
        print(f"{shard['checkpoints']} checkpoints, {shard['cut_early_bytes'] / MIB:.0f} MiB copied early: "
              f"{most / MIB:.0f} MiB with {CUT_BUDGET / MIB:.0f} MiB", flush=True)
        self.assertGreater(shard["checkpoints"], 2)
        self.assertGreater(shard["cold_rows"], 0)
        self.assertGreater(shard["cut_early_bytes"], CUT_BUDGET, "the job is too small to show anything")
        self.assertLessEqual(most, TOLERANCE * CUT_BUDGET)

    def test_what_lies_on_disk_is_removed(self):
        self.run_and_watch(self.wide_job(), "removed", "--set", f"storage.memory={BUDGET}")
        left = [path for path in (self.folder / "removed/tier").rglob("*.sst")]
        self.assertEqual(left, [])

    def test_a_tier_that_cannot_be_written_ends_the_run(self):
        code, _, output = self.launch(self.job(), "nowhere", "--set", f"storage.memory={BUDGET}", "--set",
                                      "storage.tier_dir=/proc/nowhere")
        self.assertNotEqual(code, 0)
        self.assertIn("/proc/nowhere/shard-", output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
