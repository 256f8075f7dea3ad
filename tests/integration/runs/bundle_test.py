"""Shows that a bundle is complete: unpacked elsewhere, its programs find every library but the C library's in it, and
its tools/launch trains with them."""

import json
import os
import subprocess
import sys
import tarfile
import unittest

from fleet_case import BIN, ROOT, FleetCase

sys.path.insert(0, str(ROOT / "tools"))
from tarn_tools.bundle import OF_THE_C_LIBRARY  # noqa: E402


class Bundle(FleetCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        archive = cls.folder / "b.tar.gz"
        subprocess.run([ROOT / "tools/bundle", "--bin-dir", BIN, "--out", archive], check=True,
                       stdout=subprocess.DEVNULL)
        with tarfile.open(archive) as packed:
            packed.extractall(cls.folder / "elsewhere", filter="fully_trusted")
        cls.top = cls.folder / "elsewhere/tarn"

    def test_every_library_is_in_it(self):
        programs = sorted((self.top / "bin").iterdir())
        self.assertIn("tarn-server", [p.name for p in programs])
        for program in programs:
            told = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
            for line in told.splitlines():
                name, arrow, path = line.strip().partition(" => ")
                if arrow and not OF_THE_C_LIBRARY.match(name):
                    self.assertIn(str(self.top / "lib"), os.path.realpath(path.split(" (0x")[0]),
                                  f"{program.name}: {line}")

    def test_it_trains(self):
        run = self.folder / "run"
        done = subprocess.run([sys.executable, self.top / "tools/launch", self.job(), "--run-dir", run, "--quiet"],
                              capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads((run / "summary.json").read_text())["samples"], self.rows)

    def test_its_gpu_bench_runs_without_the_checkout(self):
        out = self.folder / "gpu"
        command = [sys.executable, self.top / "bench/gpu", "--device", "cpu", "--tiny", "--only", "kernels", "hot_rows"]
        done = subprocess.run([*command, "--out", out], capture_output=True, text=True, cwd=self.folder,
                              env={"PATH": os.environ["PATH"]})
        self.assertEqual(done.returncode, 0, done.stderr)
        table = (out / "table.md").read_text()
        self.assertIn(f"- commit: {(self.top / 'COMMIT').read_text().strip()}\n", table)
        self.assertIn("| hot_rows.find |", table)
        self.assertTrue((self.top / "bench/gpu_bench/torch_peer").exists())

    def test_help_says_what_it_is(self):
        told = subprocess.run([ROOT / "tools/bundle", "--help"], capture_output=True, text=True, check=True).stdout
        self.assertIn("--slim", told)

    def test_a_name_that_is_no_archive_is_refused(self):
        done = subprocess.run([ROOT / "tools/bundle", "--out", "x.zip"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("expected a name that ends in .tar.xz or .tar.gz", done.stderr)


if __name__ == "__main__":
    unittest.main()
