"""Shows that a bundle is complete: unpacked elsewhere, its programs find every library but those of C and C++ in it,
and its tools/launch trains with them without CUDA's libraries. With TARN_SLIM_MB_MAX, also that the archive, packed
with xz, has less than so many MB."""

import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

from fleet_case import BIN, ROOT, FleetCase

sys.path.insert(0, str(ROOT / "tools"))
from tarn_tools.bundle import (  # noqa: E402
    OF_CUDA, OF_GPU, OF_THE_C_LIBRARY, OF_THE_COMPILER, cuda_libraries_of, glibc_needed, loaded_by_name)
from tarn_tools.launch_options import use_fallback_libraries  # noqa: E402


SLIM_MB_MAX = os.environ.get("TARN_SLIM_MB_MAX")


class Bundle(FleetCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.archive = cls.folder / ("b.tar.xz" if SLIM_MB_MAX else "b.tar.gz")
        cls.said = subprocess.run([ROOT / "tools/bundle", "--slim", "--bin-dir", BIN, "--out", cls.archive], check=True,
                                  capture_output=True, text=True).stdout
        (cls.folder / "elsewhere").mkdir()
        subprocess.run(["tar", "-xf", cls.archive, "-C", cls.folder / "elsewhere"], check=True)
        cls.top = cls.folder / "elsewhere/tarn"

    def test_every_library_is_in_it(self):
        programs = sorted((self.top / "bin").iterdir())
        self.assertIn("tarn-server", [p.name for p in programs])
        for program in programs:
            told = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
            for line in told.splitlines():
                name, arrow, path = line.strip().partition(" => ")
                self.assertFalse(OF_CUDA.match(name), f"{program.name} does not start without {name}")
                if arrow and not OF_THE_C_LIBRARY.match(name) and name not in OF_THE_COMPILER:
                    self.assertIn(str(self.top / "lib"), os.path.realpath(path.split(" (0x")[0]),
                                  f"{program.name}: {line}")

    def test_a_slim_one_has_nothing_of_cudas(self):
        names = [path.name for path in (self.top / "lib").rglob("*")]
        self.assertIn("libstdc++.so.6", names)
        self.assertEqual([name for name in names if OF_CUDA.match(name)], [])

    @unittest.skipUnless(SLIM_MB_MAX, "TARN_SLIM_MB_MAX is not set")
    def test_a_slim_one_is_small(self):
        self.assertLess(self.archive.stat().st_size, int(SLIM_MB_MAX) * 1_000_000)

    def test_only_what_is_a_fallback_asks_for_a_newer_c_library(self):
        fallback = self.top / "lib/fallback"
        self.assertEqual({path.name for path in fallback.iterdir()}, OF_THE_COMPILER)
        needed = glibc_needed([*(self.top / "bin").iterdir(), *(self.top / "lib").glob("*.so*")])
        self.assertIn(f"glibc {needed} or newer", self.said)

        def version(text):
            return tuple(map(int, text.split(".")))

        self.assertLess(version(needed), version(glibc_needed(fallback.iterdir())))

    def test_programs_that_find_no_library_get_the_fallback(self):
        program = self.folder / "bundle/bin/tarn-scheduler"
        for folder in ("bin", "lib/fallback"):
            (self.folder / "bundle" / folder).mkdir(parents=True, exist_ok=True)
        for code, expected in ((0, None), (127, str(self.folder.resolve() / "bundle/lib/fallback"))):
            program.write_text(f"#!/bin/sh\nexit {code}\n")
            program.chmod(0o755)
            with unittest.mock.patch.dict(os.environ):
                os.environ.pop("LD_LIBRARY_PATH", None)
                use_fallback_libraries(program.parent)
                self.assertEqual(os.environ.get("LD_LIBRARY_PATH"), expected)

    def test_without_slim_it_would_have_the_libraries_that_programs_load(self):
        programs = [BIN / "tarn-worker"]
        names = cuda_libraries_of(programs)
        self.assertLessEqual(loaded_by_name(programs), set(names))
        self.assertEqual([name for name in names if not OF_CUDA.match(name)
                          and name not in OF_THE_COMPILER], [])

    def test_it_says_whether_it_has_cuda(self):
        self.assertRegex(self.said, "with CUDA, whose libraries the target has|without CUDA")

    def test_it_trains(self):
        run = self.folder / "run"
        done = subprocess.run([sys.executable, self.top / "tools/launch", self.job(), "--run-dir", run, "--quiet"],
                              capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads((run / "summary.json").read_text())["samples"], self.rows)
        listed = subprocess.run([self.top / "tools/inspect", "list", run], capture_output=True, text=True)
        self.assertEqual((listed.returncode, listed.stderr), (0, ""))
        self.assertTrue((self.top / "tools/checkpoint").exists())
        self.assertTrue((self.top / "python/tarn/export.py").exists())
        scored = subprocess.run([sys.executable, self.top / "tools/predict", run, self.folder / "none", "-"],
                                capture_output=True, text=True)
        self.assertIn("No such file or directory", scored.stderr)

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

    def bundle_for_a_gpu(self, folder):
        out = self.folder / "for-a-gpu.tar.gz"
        done = subprocess.run([ROOT / "tools/bundle", "--gpu", "--bin-dir", folder, "--out", out], capture_output=True,
                              text=True)
        self.assertEqual(done.returncode == 0, out.exists())
        out.unlink(missing_ok=True)
        return done

    def programs_with(self, **code):
        """A folder of programs with embedded code for GPUs in nvcc's format: {kind: architecture}."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        entries = b"".join(struct.pack("<HHIQ12xI32x", {"ptx": 1, "sm": 2}[kind], 0x101, 64, 0, architecture)
                           for kind, architecture in code.items())
        embedded = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries if code else b""
        for name in OF_GPU:
            (folder / name).write_bytes((BIN / "tarn-generate").read_bytes() + embedded + b"libcublasLt.so.13\0")
            (folder / name).chmod(0o755)
        return folder

    def test_one_for_a_gpu_has_code_for_it_or_there_is_none(self):
        for folder, expected in [
            (self.programs_with(), "is built without CUDA"),
            (self.programs_with(sm=80, ptx=90), "no machine code of sm_90"),
            (self.programs_with(sm=90), "no PTX of compute_90 or older"),
            (self.programs_with(sm=90, ptx=100), "no PTX of compute_90 or older"),
        ]:
            done = self.bundle_for_a_gpu(folder)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn(expected, done.stderr)
        (folder := self.programs_with(sm=90, ptx=90)).joinpath("gpu_kernels_test").unlink()
        self.assertIn("gpu_kernels_test not found", self.bundle_for_a_gpu(folder).stderr)
        done = self.bundle_for_a_gpu(self.programs_with(sm=90, ptx=80))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("with CUDA, whose libraries the target has", done.stdout)

    def test_help_says_what_it_is(self):
        told = subprocess.run([ROOT / "tools/bundle", "--help"], capture_output=True, text=True, check=True).stdout
        self.assertIn("--slim", told)

    def test_a_name_that_is_no_archive_is_refused(self):
        done = subprocess.run([ROOT / "tools/bundle", "--out", "x.zip"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("expected a name that ends in .tar.xz or .tar.gz", done.stderr)


if __name__ == "__main__":
    unittest.main()
