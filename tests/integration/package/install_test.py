"""Shows that what `cmake --install` installs is enough for programs of others: public headers compile alone, a project
outside of the tree finds the library with find_package and pkg-config, its C and C++ programs train on a fleet of the
installed programs, and a third program reads an export of that run."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
BUILD = pathlib.Path(os.environ.get("TARN_BUILD_DIR", ROOT / "build/release"))
CXX, CC = os.environ.get("CXX", "g++"), os.environ.get("CC", "gcc")
LEARNED = [f"x[{key:2}] = {key:7.4f}" for key in (1, 2, 3, 5, 8, 13)]


def run(*words, **more):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **more)
    if done.returncode:
        raise AssertionError(f"{words}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.prefix, cls.project = cls.folder / "prefix", cls.folder / "project"
        run("cmake", "--install", BUILD, "--prefix", cls.prefix)
        shutil.copytree(HERE / "outside", cls.project)
        (cls.project / "project.cmake").rename(cls.project / "CMakeLists.txt")  # whose name would make it one of the tests
        shutil.copy(ROOT / "examples/cpp/hello.cc", cls.project)
        run("cmake", "-S", cls.project, "-B", cls.folder / "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={cls.prefix}",
            f"-DCMAKE_CXX_COMPILER={CXX}", f"-DCMAKE_C_COMPILER={CC}")
        run("cmake", "--build", cls.folder / "build")

    def trained(self, program, *settings):
        """What the program prints as the worker of a fleet of installed programs."""
        out, run_dir = self.folder / f"{program.name}.out", self.folder / f"{program.name}.run"
        script = f'"{program}" --scheduler "$TARN_SCHEDULER" > "{out}"'
        run(sys.executable, ROOT / "tools/launch", ROOT / "examples/cpp/hello.toml", "--bin-dir", self.prefix / "bin", "--quiet",
            "--plain", "--run-dir", run_dir, *(word for setting in settings for word in ("--set", setting)), "--", "sh", "-c", script)
        return out.read_text().splitlines()

    def test_what_is_installed(self):
        files = {str(path.relative_to(self.prefix)) for path in self.prefix.rglob("*") if path.is_file()}
        headers = {name for name in files if name.startswith("include/")}
        self.assertLessEqual({"include/tarn/worker/tarn.h", "include/tarn/worker/tarn_c.h", "include/tarn/serving/model.h"}, headers)
        self.assertEqual({name for name in files if not name.startswith(("include/", "bin/tarn-"))},
                         {"lib/libtarn.so", "lib/pkgconfig/tarn.pc", *(f"lib/cmake/tarn/tarn-{part}.cmake" for part in
                          ("config", "config-version", "targets", f"targets-{self.build_type()}"))})
        for program in ("scheduler", "server", "worker", "keys", "checkpoint", "inspect", "generate"):
            run(self.prefix / "bin" / f"tarn-{program}", "--help")

    @staticmethod
    def build_type():
        cache = (BUILD / "CMakeCache.txt").read_text()
        return next(line.partition("=")[2] for line in cache.splitlines() if line.startswith("CMAKE_BUILD_TYPE:")).lower()

    def test_headers_compile_alone(self):
        include = self.prefix / "include/tarn"
        for header in sorted(include.rglob("*.h")):
            alone = f'#include "{header.relative_to(include)}"\n'
            run(CXX, "-std=c++23", "-Wall", "-Werror", "-fsyntax-only", f"-I{include}", "-x", "c++", "-", input=alone)
        run(CC, "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{include}", "-x", "c", "-",
            input='#include "worker/tarn_c.h"\n')

    def test_programs_of_others_train_and_serve(self):
        self.assertEqual(self.trained(self.folder / "build/hello_c"), LEARNED)
        keep = ("storage.durability=checkpoint", "storage.checkpoint_final=true")
        self.assertEqual(self.trained(self.folder / "build/hello_cc", *keep)[: len(LEARNED)], LEARNED)
        export = self.folder / "model.tarn"
        run(self.prefix / "bin/tarn-inspect", "export", self.folder / "hello_cc.run", export)
        self.assertEqual(run(self.folder / "build/serve", export), "x[13] = 13.0000, 14 absent\n")

    def test_pkg_config_says_how_to_compile(self):
        environment = {**os.environ, "PKG_CONFIG_PATH": str(self.prefix / "lib/pkgconfig")}
        flags = run("pkg-config", "--cflags", "--libs", "tarn", env=environment).split()
        program = self.folder / "by_pkg_config"
        run(CC, "-std=c99", self.project / "hello.c", "-o", program, *flags, f"-Wl,-rpath,{self.prefix / 'lib'}")
        self.assertEqual(subprocess.run([program], capture_output=True).returncode, 2)  # no address is given
        self.assertEqual(run("pkg-config", "--modversion", "tarn", env=environment), "0.1.0\n")

    def test_the_library_exports_its_interface_alone(self):
        told = run("nm", "-D", "--defined-only", "--demangle", self.prefix / "lib/libtarn.so")
        names = [line.split(" ", 2)[2] for line in told.splitlines()]
        self.assertIn("tarn_connect", names)
        self.assertTrue(any(name.startswith("tarn::Client::Connect(") for name in names))
        for name in names:
            self.assertRegex(name, r"tarn(_|::)")
            self.assertNotRegex(name, r"^tarn::(net|kernels|worker)::")


if __name__ == "__main__":
    unittest.main(verbosity=2)
