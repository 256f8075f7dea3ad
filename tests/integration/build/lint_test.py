"""Shows that tools/lint --includes finds an include that points upward or across, and a folder that is not in
LAYERS."""

import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))

from tarn_tools import includes  # noqa: E402


def complaints(path, *included):
    return includes.complaints(path, "".join(f'#include "{name}"\n' for name in included), lambda name: "/" in name)


class IncludesTest(unittest.TestCase):
    def test_downward_is_fine(self):
        self.assertEqual(complaints("server/shard/shard.cc", "server/shard/shard.h", "server/store/store.h", "core/types.h"), [])
        self.assertEqual(complaints("server/tier/residency.cc", "server/exhaustion.h", "kernels/rows.h"), [])
        self.assertEqual(complaints("kernels/cpu/rows.cc", "kernels/rows.h", "wire_generated.h", "core/table/table_spec.h"), [])
        self.assertEqual(complaints("tests/unit/core/hash_test.cc", "core/hash.h", "sim/fleet/fleet.h"), [])

    def test_upward_and_across_are_named(self):
        for user, used in (("server/store/store.cc", "server/shard/shard.h"), ("core/view.h", "core/job/job.h"),
                           ("worker/client/client.cc", "server/store/life.h"), ("scheduler/leases/leases.cc", "server/loop.h"),
                           ("server/tier/residency.h", "server/store/store.h"), ("net/frame.h", "worker/tarn.h"),
                           ("worker/client/plan.h", "worker/train/trainer.h"), ("kernels/rows.h", "sim/fleet/fleet.h")):
            found = complaints(user, "core/types.h", used)
            self.assertEqual(len(found), 1, f"{user} includes {used}: {found}")
            self.assertTrue(found[0].startswith(f"{user}:2: ") and used in found[0], found[0])

    def test_a_new_folder_has_to_be_placed(self):
        self.assertIn("server/replica/chain.cc: its folder is not in LAYERS", complaints("server/replica/chain.cc")[0])
        self.assertIn("server/replica/chain.h is in a folder", complaints("server/loop.cc", "server/replica/chain.h")[0])

    def test_the_sources_pass(self):
        done = subprocess.run([ROOT / "tools/lint", "--includes"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"includes of \d{3,} files point downward")

    def test_bad_usage_says_what_is_expected(self):
        for words, expected in ((["--since"], "needs a commit"), (["--since", "nowhere"], "no such commit: nowhere"),
                                (["--nothing"], "unknown option"), (["nowhere.cc"], "no such file"),
                                (["--format", "--tidy"], "expected one of --format and --tidy")):
            done = subprocess.run([ROOT / "tools/lint", *words], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
            self.assertIn(expected, done.stderr)

    def test_files_are_relative_to_the_current_folder(self):
        done = subprocess.run([ROOT / "tools/lint", "--includes", "error.h"], cwd=ROOT / "core", capture_output=True, text=True)
        self.assertIn("--includes checks all files", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
