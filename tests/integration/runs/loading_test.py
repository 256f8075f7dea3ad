"""Shows that a run may take much longer than its leases to load its rows: servers do not mistake their own
loading for silence of the scheduler, and the scheduler answers the workers that wait, so that they do not give up."""

import time
import unittest

from fleet_case import BIN, FleetCase

SLOW_OPEN = BIN / "tarn-slow-open.so"
SLOW_SECONDS = 4


class LoadingTest(FleetCase):
    rows = 6_000

    def loads_slowly(self, durability, pattern, name):
        job = self.job(durability=durability, checkpoint_clocks=10, checkpoint_final=True)
        first = self.run_ok(job, f"{name}-first")
        programs = self.recording_programs(name, self.folder / f"{name}-record", "tarn-server", {
            "LD_PRELOAD": SLOW_OPEN, "TARN_TEST_SLOW_OPEN": pattern, "TARN_TEST_SLOW_SECONDS": str(SLOW_SECONDS)})
        begin = time.monotonic()
        again = self.run_ok(job, f"{name}-again", "--resume", self.folder / f"{name}-first", "--bin-dir", programs,
                            "--set", "train.epochs=2", "--set", "fleet.lease_seconds=1")
        self.assertEqual(again["samples"], 2 * self.rows)
        self.assertNotEqual(again["parameters_hash"], first["parameters_hash"])
        self.assertGreater(time.monotonic() - begin, SLOW_SECONDS, "nothing was slow")

    def test_a_checkpoint_that_takes_four_leases(self):
        self.loads_slowly("checkpoint", "*/ckpt-*/*-shard-*.sst", "checkpoint")


if __name__ == "__main__":
    unittest.main(verbosity=2)
