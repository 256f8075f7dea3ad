"""Shows that a run with durability "log" survives the death of a server or of the scheduler at every named point of its
log, its checkpoints, their manifest, its state, its eviction and its recovery: the process dies of SIGKILL right before,
right after or in the middle of the one system call (crash_at.cc), everything else is killed, the run goes on in its own
folder, and it is judged as in crash_test.py.

A point that is not reached fails its test. TARN_POINT_CRASHES sets how often each is crashed (1 unless set; 20 for the
recorded figures): at another call of the kind each time, in turn under bsp + aggregated and an immediate mode.
`python3 crash_points_test.py CrashPointsTest.test_log_create_after` crashes at that one point."""

import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from typing import NamedTuple

from crash_run import RUN_SECONDS_MAX, CrashCase
from fleet_case import BIN

CRASHES = int(os.environ.get("TARN_POINT_CRASHES", "1"))
SEED = int(os.environ.get("TARN_POINT_SEED", "11"))
CRASH_AT = BIN / "tarn-crash-at.so"
IMMEDIATE = ("asp", "ssp")

SERVER, SCHEDULER = "tarn-server", "tarn-scheduler"
SEGMENT, LOG, MARK = "*/log/shard-*/segment-*.log", "*/log/shard-?", "*/log/shard-*/mark"
PART, CHECKPOINT = "*/ckpt-*/*-shard-*.sst", "*/checkpoints/ckpt-+([0-9])"
MANIFEST, STATE, SUMMARY = CHECKPOINT + "/MANIFEST", "*/scheduler.state", "*/summary.json"
OVER = "*/scheduler.over"
# A file that replaces another has no name while it is written, where the file system can do that.
NEW_MANIFEST, NEW_STATE = f"@({CHECKPOINT}/#*|{MANIFEST}.tmp-*)", f"@(*/run-+([!/])/#*|{STATE}.tmp-*)"
NAMED = "@(create|link)"
COLD, TIER, TIER_MANIFEST = "*/tier/shard-*/segment-*.sst", "*/tier/shard-*/0*.sst", "*/tier/shard-*/MANIFEST-*"


class Crash(NamedTuple):
    """A crash of one process of `program` at a call (crash_at.cc): one of the first `most` that match."""

    program: str
    kind: str
    pattern: str
    moment: str
    most: int = 1


class Point(NamedTuple):
    """`first`: an earlier crash. The run reaches the point while it recovers from that one."""

    crash: Crash
    first: Crash | None = None
    tiered: bool = False


IN_LOG = Crash(SERVER, "write", SEGMENT, "half", 100)
IN_SEGMENT = Crash(SERVER, "allocate", SEGMENT, "after", 4)  # there is no header yet
IN_PART = Crash(SERVER, "write", PART, "half", 4)
IN_COLD = Crash(SERVER, "write", COLD, "half", 20)
POINTS = {
    "log_create_before": Point(Crash(SERVER, "create", SEGMENT, "before", 4)),
    "log_create_after": Point(Crash(SERVER, "create", SEGMENT, "after", 4)),
    "log_allocate_after": Point(IN_SEGMENT),
    "log_write_before": Point(Crash(SERVER, "write", SEGMENT, "before", 100)),
    "log_write_half": Point(IN_LOG),
    "log_write_after": Point(Crash(SERVER, "write", SEGMENT, "after", 100)),
    "log_sync_before": Point(Crash(SERVER, "sync", SEGMENT, "before", 100)),
    "log_sync_after": Point(Crash(SERVER, "sync", SEGMENT, "after", 100)),
    "log_folder_sync_before": Point(Crash(SERVER, "sync", LOG, "before", 4)),
    "log_mark_create_after": Point(Crash(SERVER, "create", MARK, "after")),
    "log_mark_write_half": Point(Crash(SERVER, "write", MARK, "half", 100)),
    "log_mark_sync_before": Point(Crash(SERVER, "sync", MARK, "before", 4)),
    "log_trim_before": Point(Crash(SERVER, "truncate", SEGMENT, "before", 3)),
    "log_drop_before": Point(Crash(SERVER, "remove", SEGMENT, "before", 3)),
    "log_drop_after": Point(Crash(SERVER, "remove", SEGMENT, "after", 3)),
    "checkpoint_create_before": Point(Crash(SERVER, "create", PART, "before", 4)),
    "checkpoint_create_after": Point(Crash(SERVER, "create", PART, "after", 4)),
    "checkpoint_write_half": Point(IN_PART),
    "checkpoint_sync_before": Point(Crash(SERVER, "sync", PART, "before", 4)),
    "checkpoint_sync_after": Point(Crash(SERVER, "sync", PART, "after", 4)),
    "checkpoint_link_before": Point(Crash(SERVER, "link", PART, "before", 2)),
    "checkpoint_link_after": Point(Crash(SERVER, "link", PART, "after", 2)),
    "manifest_create_after": Point(Crash(SCHEDULER, "create", NEW_MANIFEST, "after", 4)),
    "manifest_write_half": Point(Crash(SCHEDULER, "write", NEW_MANIFEST, "half", 4)),
    "manifest_sync_before": Point(Crash(SCHEDULER, "sync", NEW_MANIFEST, "before", 4)),
    "manifest_named_after": Point(Crash(SCHEDULER, NAMED, MANIFEST + ".tmp-*", "after", 4)),
    "manifest_rename_before": Point(Crash(SCHEDULER, "rename", MANIFEST, "before", 4)),
    "manifest_rename_after": Point(Crash(SCHEDULER, "rename", MANIFEST, "after", 4)),
    "manifest_folder_sync_before": Point(Crash(SCHEDULER, "sync", CHECKPOINT, "before", 4)),
    "manifest_root_sync_before": Point(Crash(SCHEDULER, "sync", "*/checkpoints", "before", 4)),
    "manifest_prune_before": Point(Crash(SCHEDULER, "remove", MANIFEST, "before", 3)),
    "manifest_prune_after": Point(Crash(SCHEDULER, "remove", MANIFEST, "after", 3)),
    "manifest_prune_files_after": Point(Crash(SCHEDULER, "remove", PART, "after", 3)),
    "state_create_after": Point(Crash(SCHEDULER, "create", NEW_STATE, "after", 20)),
    "state_write_half": Point(Crash(SCHEDULER, "write", NEW_STATE, "half", 20)),
    "state_sync_before": Point(Crash(SCHEDULER, "sync", NEW_STATE, "before", 20)),
    "state_sync_after": Point(Crash(SCHEDULER, "sync", NEW_STATE, "after", 20)),
    "state_named_after": Point(Crash(SCHEDULER, NAMED, STATE + ".tmp-*", "after", 20)),
    "state_rename_before": Point(Crash(SCHEDULER, "rename", STATE, "before", 20)),
    "state_rename_after": Point(Crash(SCHEDULER, "rename", STATE, "after", 20)),
    "state_over_before": Point(Crash(SCHEDULER, "rename", OVER, "before")),
    "state_over_after": Point(Crash(SCHEDULER, "rename", OVER, "after")),
    "state_remove_before": Point(Crash(SCHEDULER, "remove", OVER, "before")),
    "summary_rename_before": Point(Crash(SCHEDULER, "rename", SUMMARY, "before")),
    "summary_rename_after": Point(Crash(SCHEDULER, "rename", SUMMARY, "after")),
    "eviction_create_after": Point(Crash(SERVER, "create", COLD, "after", 20), tiered=True),
    "eviction_write_half": Point(IN_COLD, tiered=True),
    "eviction_ingest_before": Point(Crash(SERVER, "link", TIER, "before", 20), tiered=True),
    "eviction_ingest_after": Point(Crash(SERVER, "link", TIER, "after", 20), tiered=True),
    "eviction_ingested_half": Point(Crash(SERVER, "write", TIER_MANIFEST, "half", 40), tiered=True),
    "eviction_remove_before": Point(Crash(SERVER, "remove", TIER, "before", 5), tiered=True),
    "eviction_remove_after": Point(Crash(SERVER, "remove", TIER, "after", 5), tiered=True),
    "recovery_log_sync_before": Point(Crash(SERVER, "sync", SEGMENT, "before"), first=IN_LOG),
    "recovery_log_sync_after": Point(Crash(SERVER, "sync", SEGMENT, "after"), first=IN_LOG),
    "recovery_log_folder_sync_before": Point(Crash(SERVER, "sync", LOG, "before"), first=IN_LOG),
    "recovery_log_write_half": Point(Crash(SERVER, "write", SEGMENT, "half", 5), first=IN_LOG),
    "recovery_torn_remove_before": Point(Crash(SERVER, "remove", SEGMENT, "before"), first=IN_SEGMENT),
    "recovery_torn_remove_after": Point(Crash(SERVER, "remove", SEGMENT, "after"), first=IN_SEGMENT),
    "recovery_partial_remove_before": Point(Crash(SCHEDULER, "remove", PART, "before"), first=IN_PART),
    "recovery_partial_remove_after": Point(Crash(SCHEDULER, "remove", PART, "after"), first=IN_PART),
    "recovery_tier_remove_after": Point(Crash(SERVER, "remove", COLD, "after"), first=IN_COLD, tiered=True),
    "recovery_state_rename_before": Point(Crash(SCHEDULER, "rename", STATE, "before"), first=IN_LOG),
    "recovery_state_rename_after": Point(Crash(SCHEDULER, "rename", STATE, "after"), first=IN_LOG),
}


class CrashPointsTest(CrashCase):
    rows = 6_000
    crashes = early = 0

    @classmethod
    def tearDownClass(cls):
        print(f"crash points: {cls.crashes} crashes; {cls.early} runs ended before the call that was chosen")
        super().tearDownClass()

    def job_at(self, point, mode, apply, **more):
        settings = {"checkpoints_kept": 1}
        if point.tiered:
            settings |= {"model": "fm", "embedding_dim": 240, "memory": "64MiB"}
        return self.job_of(mode, apply, 6, **(settings | more))

    def crash_repeatedly(self, name, point):
        for repetition in range(CRASHES):
            turn = list(POINTS).index(name) + repetition
            mode, apply = ("bsp", "aggregated") if turn % 2 == 0 else (IMMEDIATE[turn // 2 % 2], "immediate")
            self.random = random.Random(f"{SEED} {name} {repetition}")
            with self.subTest(repetition=repetition, mode=mode):
                self.crash_and_judge(f"{name}-{repetition}", point, mode, apply)

    def crash_and_judge(self, name, point, mode, apply):
        """Crashes a run at the point, lets it go on, and judges it. A run may end before the chosen call; then another
        must reach the first call of the kind, at the latest a third one with ten times as many clocks."""
        for attempt, most, batch_rows in (("any", None, 32), ("first", 1, 32), ("long", 1, 3)):
            job = self.job_at(point, mode, apply, batch_rows=batch_rows)
            run_dir, written = self.folder / f"run-{name}-{attempt}", self.folder / f"record-{name}-{attempt}"
            if all(not self.is_over(run_dir) and self.crash_at(crash, most, job, run_dir, written)
                   for crash in (point.first, point.crash) if crash):
                break
            CrashPointsTest.early += 1
            self.assertNotEqual(attempt, "long", f"point never reached: {point}")
        over = self.is_over(run_dir)  # some points are reached only after the run is over
        if not over:
            self.finish(self.command(job, run_dir, bin_dir=self.recording_programs(f"{name}-last", written)), run_dir)
            kept = len(list(run_dir.glob("checkpoints/ckpt-*")))
            self.assertLessEqual(kept, 2, "all but the newest and the best are outdated")
        bits = None
        if (mode, apply) == ("bsp", "aggregated"):
            undisturbed = self.job_at(point, mode, apply, batch_rows=batch_rows, memory="0")
            bits = self.undisturbed(f"tiered-{point.tiered}-{batch_rows}", undisturbed)
        self.judge(run_dir, written, apply, bits, killed=over)
        shutil.rmtree(run_dir)

    def crash_at(self, crash, most, job, run_dir, written):
        """Starts or resumes the run until a process of crash.program has died at the point. Returns whether one has."""
        CrashPointsTest.crashes += 1
        told, number = self.folder / f"told-{self.crashes}", self.random.randint(1, most or crash.most)
        programs = self.recording_programs(f"crash-{self.crashes}", written, crash.program, {
            "LD_PRELOAD": CRASH_AT, "TARN_TEST_CRASH_TOLD": told,
            "TARN_TEST_CRASH": f"{crash.kind}:{crash.pattern}:{number}:{crash.moment}"})
        self.empty_unless_begun(run_dir)
        command = self.going_on(self.command(job, run_dir, bin_dir=programs), run_dir)
        with open(self.folder / "launch.log", "w+", encoding="utf-8") as output:
            launch = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
            deadline = time.monotonic() + RUN_SECONDS_MAX
            while not told.exists() and launch.poll() is None and time.monotonic() < deadline:
                time.sleep(0.002)
            ended_well = launch.poll() == 0
            self.kill_everything(launch, run_dir)
            output.seek(0)
            self.assertTrue(told.exists() or ended_well, output.read())
        return told.exists()


class CrashAtTest(unittest.TestCase):
    """Shows with a small program that the library does at a call what the points rely on."""

    CALLS = """import os
fd = os.open("partial", os.O_WRONLY | os.O_CREAT)
for text in (b"1234", b"abcd", b"5678"):
    os.write(fd, text)
os.rename("partial", "whole")
"""

    def left_by(self, plan):
        """{name: bytes} of what the calls leave behind, and whether the process died of it."""
        with tempfile.TemporaryDirectory(prefix="tarn-test-") as name:
            folder = pathlib.Path(name)
            environment = os.environ | {"LD_PRELOAD": str(CRASH_AT), "TARN_TEST_CRASH": plan,
                                        "TARN_TEST_CRASH_TOLD": f"{name}/told"}
            done = subprocess.run([sys.executable, "-c", self.CALLS], cwd=folder, env=environment, timeout=60)
            self.assertEqual((folder / "told").exists(), done.returncode == -signal.SIGKILL)
            return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "told"}, done.returncode != 0

    def test_the_process_dies_before_after_or_within_the_call(self):
        for plan, left in (("write:*/partial:2:before", {"partial": b"1234"}),
                           ("write:*/partial:2:half", {"partial": b"1234ab"}),
                           ("write:*/partial:2:after", {"partial": b"1234abcd"}),
                           ("rename:whole:1:before", {"partial": b"1234abcd5678"}),
                           ("rename:whole:1:after", {"whole": b"1234abcd5678"})):
            with self.subTest(plan):
                self.assertEqual(self.left_by(plan), (left, True))

    def test_no_call_fits(self):
        for plan in ("write:*/partial:4:before", "write:*/other:1:before", "sync:*/partial:1:before"):
            with self.subTest(plan):
                self.assertEqual(self.left_by(plan), ({"whole": b"1234abcd5678"}, False))


def test_of(name, point):
    return lambda self: self.crash_repeatedly(name, point)


for point_name, the_point in POINTS.items():
    setattr(CrashPointsTest, f"test_{point_name}", test_of(point_name, the_point))

if __name__ == "__main__":
    unittest.main(verbosity=2)
