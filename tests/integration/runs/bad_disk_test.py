"""Shows that a bad disk does not end a run: training goes on without a checkpoint that could not be written, and the
scheduler's state may take several leases to write."""

import time
import unittest

from fleet_case import BIN, FleetCase

BAD_DISK = BIN / "tarn-bad-disk.so"
STALL_SECONDS = 5


class BadDiskTest(FleetCase):
    rows = 60_000

    def programs(self, name, program, **environment):
        return self.recording_programs(name, self.folder / f"{name}-record", program,
                                       {"LD_PRELOAD": BAD_DISK, **environment})

    def log(self, name):
        return (self.folder / name / "logs/scheduler-0.log").read_text()

    def test_training_goes_on_without_a_checkpoint(self):
        for durability in ("checkpoint", "log"):
            job = self.job(durability=durability, checkpoint_clocks=5, checkpoint_final=True)
            name = f"full-{durability}"
            # Two failures for one file: if it cannot be opened for direct writes, the server opens it without.
            programs = self.programs(name, "tarn-server", TARN_TEST_FULL="*/ckpt-*/*.sst:2")
            record = self.run_ok(job, name, "--bin-dir", programs)
            self.assertEqual(record["samples"], self.rows)
            log = self.log(name)
            # A short training may end before the scheduler orders a periodic one.
            self.assertRegex(log, r"checkpoint 1 \((periodic|best)\) could not be written .*No space left on device")
            self.assertTrue(any((self.folder / name / "checkpoints").glob("ckpt-*/MANIFEST")))
            self.assertFalse((self.folder / name / "checkpoints/ckpt-1").exists())

    def test_checkpoints_of_a_run_with_a_log_on_a_disk_that_is_nearly_full(self):
        """Each checkpoint begins a segment of the log. The disk has less space than a segment reserves."""
        job = self.job(durability="log", checkpoint_clocks=20, checkpoint_final=True)
        programs = self.programs("scarce", "tarn-server", TARN_TEST_SCARCE=f"*/log/shard-*/*:{1 << 20}")
        record = self.run_ok(job, "scarce", "--bin-dir", programs)
        self.assertEqual(record["samples"], self.rows)
        self.assertGreater(self.log("scarce").count(" is complete: "), 2)
        alone = self.run_ok(job, "plenty")
        self.assertEqual(record["parameters_hash"], alone["parameters_hash"])

    def test_a_log_on_a_file_system_that_cannot_reserve_space(self):
        job = self.job(durability="log", checkpoint_clocks=20, checkpoint_final=True)
        programs = self.programs("unreserved", "tarn-server", TARN_TEST_UNRESERVED="*/log/shard-*/*")
        record = self.run_ok(job, "unreserved", "--bin-dir", programs)
        self.assertEqual(record["samples"], self.rows)
        self.assertEqual(record["parameters_hash"], self.run_ok(job, "reserved")["parameters_hash"])

    def test_a_state_that_takes_five_leases_to_write(self):
        job = self.job(durability="log", checkpoint_final=False)
        for skip in (2, 5, 8):
            name = f"stall-{skip}"
            programs = self.programs(name, "tarn-scheduler",
                                     TARN_TEST_STALL=f"*/{name}/#*:{skip}:{STALL_SECONDS}")
            begin = time.monotonic()
            record = self.run_ok(job, name, "--bin-dir", programs, "--set", "fleet.lease_seconds=1")
            self.assertGreater(time.monotonic() - begin, STALL_SECONDS, "nothing stalled")
            self.assertEqual(record["samples"], self.rows)
            self.assertEqual(record["workers_died"], 0)
            self.assertFalse((self.folder / name / "log").exists(), "the run is over")


if __name__ == "__main__":
    unittest.main(verbosity=2)
