"""Shows that tools/build uses a CUDA toolkit that is installed after a first build without one, whatever that build
found on the PATH, and does not configure more often than needed. Builds a small project with our cmake/cuda.cmake."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
TOOLKIT = ROOT / "build/cuda-toolkit"
PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(small LANGUAGES CXX)
include(cmake/cuda.cmake)
add_custom_target(nothing ALL)
"""


def write(path, text, mode=0o644):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


class Build(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tarn-test-")
        self.addCleanup(folder.cleanup)
        self.top = pathlib.Path(folder.name)
        for name in ("tools/build", "cmake/cuda.cmake", "CMakePresets.json"):
            (self.top / name).parent.mkdir(exist_ok=True)
            shutil.copy2(ROOT / name, self.top / name)
        write(self.top / "CMakeLists.txt", PROJECT)
        write(self.top / "tools/install", "#!/bin/sh\n", 0o755)
        # A compiler that exists and does not work, as on some machines.
        write(self.top / "path/nvcc", "#!/bin/sh\nexit 1\n", 0o755)

    def build(self):
        environment = {k: v for k, v in os.environ.items() if k != "CUDACXX"}
        environment["PATH"] = f"{self.top / 'path'}:{environment['PATH']}"
        done = subprocess.run([self.top / "tools/build", "release"], capture_output=True, text=True, env=environment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def install(self, nvcc):
        write(self.top / "build/cuda-toolkit/nvidia/cu13/bin/nvcc", nvcc, 0o755)

    def test_without_a_toolkit_it_configures_once(self):
        self.assertIn("CUDA: OFF", self.build())
        self.assertNotIn("configuring", self.build())

    def test_a_build_that_is_to_have_no_cuda_stays_so(self):
        subprocess.run(["cmake", "--preset", "release", "-DTARN_CUDA=OFF"], cwd=self.top, check=True,
                       stdout=subprocess.DEVNULL)
        self.install("#!/bin/sh\nexit 1\n")
        self.assertNotIn("configuring", self.build())

    @unittest.skipUnless((TOOLKIT / "nvidia/cu13/bin/nvcc").exists(), "no toolkit here: tools/install cuda")
    def test_kernels_are_built_once_the_toolkit_is_there(self):
        self.assertIn("CUDA: OFF", self.build())
        (self.top / "build/cuda-toolkit").symlink_to(TOOLKIT.resolve())
        self.assertIn("CUDA: ON", self.build())
        self.assertNotIn("configuring", self.build())


if __name__ == "__main__":
    unittest.main()
