"""Shows that bsp + aggregated ends in the same bits whatever the shape of the fleet, on every repetition, and when a
run was stopped at a checkpoint and resumed. parameters_hash covers all values and all optimizer slots."""

import json
import signal
import subprocess
import time
import unittest

from fleet_case import BIN, FleetCase


class BitsTest(FleetCase):
    def test_shapes_and_repetitions(self):
        hashes = {}
        for servers in (1, 2, 4):
            for shards in (1, 2, 3):
                job = self.job(servers=servers, shards=shards, workers=2)
                summary = self.run_ok(job, f"shape-{servers}-{shards}")
                self.assertEqual(summary["samples"], self.rows)
                hashes[servers, shards] = summary["parameters_hash"]
        again = self.run_ok(self.job(servers=2, shards=2, workers=2), "again")
        hashes["again"] = again["parameters_hash"]
        self.assertEqual(len(set(hashes.values())), 1, hashes)
        other = self.run_ok(self.job(servers=1, workers=2), "other", "--set", "job.seed=4")
        self.assertNotEqual(other["parameters_hash"], again["parameters_hash"])

    def test_lanes_change_no_bit(self):
        job = self.job(servers=2, shards=2, workers=2)
        hashes = {lanes: self.run_ok(job, f"lanes-{lanes}", "--no-shm", "--set", f"fleet.lanes={lanes}")
                  ["parameters_hash"] for lanes in (1, 3)}
        self.assertEqual(hashes[1], hashes[3])

    def test_batches_of_different_sizes(self):
        shares = "--set", "train.batch_shares=[3,1]"
        whole = self.run_ok(self.job(servers=1, epochs=2), "shares", *shares)
        self.assertEqual(whole["samples"], 2 * self.rows)
        job = self.job(servers=2, shards=2, epochs=2, durability="checkpoint", checkpoint_clocks=30)
        self.stop_at_first_checkpoint(job, "shares-stopped", *shares)
        resumed = self.run_ok(job, "shares-resumed", "--resume", self.folder / "shares-stopped", *shares)
        self.assertEqual(resumed["parameters_hash"], whole["parameters_hash"])
        equal = self.run_ok(job, "shares-ended", "--resume", self.folder / "shares-stopped", "--set", "train.batch_shares=[]")
        self.assertEqual(equal["samples"], 2 * self.rows)
        self.assertNotEqual(equal["parameters_hash"], whole["parameters_hash"])

    def test_resume_ends_in_the_same_bits(self):
        whole = self.run_ok(self.job(servers=2, shards=2, epochs=2), "whole")
        job = self.job(servers=2, shards=2, epochs=2, durability="checkpoint", checkpoint_clocks=30)
        stopped = self.stop_at_first_checkpoint(job, "stopped")
        self.assertLess(stopped["samples"], 2 * self.rows)
        resumed = self.run_ok(job, "resumed", "--resume", self.folder / "stopped")
        self.assertEqual(resumed["samples"], 2 * self.rows)
        self.assertEqual(resumed["parameters_hash"], whole["parameters_hash"])
        # Onto another number of servers and shards: the same bits again.
        moved = self.run_ok(job, "moved", "--resume", self.folder / "stopped", "--set", "fleet.servers=1",
                            "--set", "fleet.shards=3")
        self.assertEqual(moved["parameters_hash"], whole["parameters_hash"])
        # Onto another number of partitions, with which a new chain of checkpoints begins; and from that onto a third.
        parted = self.run_ok(job, "parted", "--resume", self.folder / "stopped", "--set", "fleet.shards=3", "--set",
                             "fleet.partition_bits=9", "--set", "storage.checkpoints_kept=100")
        self.assertEqual(parted["parameters_hash"], whole["parameters_hash"])
        shown = [json.loads(subprocess.run([BIN / "tarn-inspect", "show", directory, "--json"], check=True,
                                           capture_output=True).stdout)
                 for directory in sorted(self.folder.glob("parted/checkpoints/ckpt-*"))]
        self.assertEqual({one["partition_bits"] for one in shown}, {9})
        self.assertEqual(min(len(one["generations"]) for one in shown), 1)
        fewer = self.run_ok(job, "fewer", "--resume", shown[0]["directory"], "--set", "fleet.partition_bits=2")
        self.assertEqual(fewer["parameters_hash"], whole["parameters_hash"])

    def test_resume_with_pushes_of_the_largest_alone(self):
        top_k = [part for table in ("embedding", "linear", '"layer.0"') for part in
                 ("--set", f"tables.{table}.push_codec=topk", "--set", f"tables.{table}.push_topk=0.1")]
        hashes = {self.run_ok(self.job(servers=servers, shards=shards, epochs=2), f"topk-{servers}-{shards}", *top_k)
                  ["parameters_hash"] for servers, shards in ((1, 1), (2, 3))}
        self.assertEqual(len(hashes), 1, "what is sent does not depend on the shards")
        all_of_it = self.run_ok(self.job(epochs=2), "topk-none")
        self.assertNotIn(all_of_it["parameters_hash"], hashes)
        job = self.job(servers=2, shards=2, epochs=2, durability="checkpoint", checkpoint_clocks=30)
        self.stop_at_first_checkpoint(job, "topk-stopped", *top_k)
        for blob in self.folder.glob("topk-stopped/checkpoints/ckpt-*/*.blob"):
            self.assertGreater(blob.stat().st_size, 1000)
        shape = ["--set", "fleet.servers=1", "--set", "fleet.shards=3"]
        for more in ([], shape):
            resumed = self.run_ok(job, f"topk-resumed-{len(more)}", "--resume", self.folder / "topk-stopped", *top_k, *more)
            self.assertEqual({resumed["parameters_hash"]}, hashes)
        self.damage_is_named(job, top_k)

    def damage_is_named(self, job, top_k):
        blobs = sorted(self.folder.glob("topk-stopped/checkpoints/ckpt-*/*-worker-1-*.blob"))
        good = blobs[-1].read_bytes()
        at = len(good) // 2
        blobs[-1].write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1:])
        verified = subprocess.run([BIN / "tarn-inspect", "verify", blobs[-1].parent], capture_output=True, text=True)
        self.assertIn(str(blobs[-1]), verified.stderr)
        code, _, output = self.launch(job, "topk-damaged", "--resume", self.folder / "topk-stopped", *top_k)
        self.assertNotEqual(code, 0)
        self.assertIn(blobs[-1].name, output)
        blobs[-1].write_bytes(good)
        verified = subprocess.run([BIN / "tarn-inspect", "verify", blobs[-1].parent], capture_output=True, text=True)
        self.assertIn("complete and undamaged", verified.stdout)
        shown = subprocess.run([BIN / "tarn-inspect", "show", blobs[-1].parent], capture_output=True, text=True)
        self.assertIn(blobs[-1].name, shown.stdout)

    def stop_at_first_checkpoint(self, job, name, *more):
        run_dir = self.folder / name
        process = subprocess.Popen(self.command(job, run_dir, *more), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        deadline = time.time() + 120
        while not list(run_dir.glob("checkpoints/ckpt-*/MANIFEST")) and time.time() < deadline:
            self.assertIsNone(process.poll(), "the run ended before its first checkpoint")
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
        summary = json.loads((run_dir / "summary.json").read_text())
        self.assertEqual(summary["status"], "stopped", output)
        return summary


if __name__ == "__main__":
    unittest.main(verbosity=2)
