"""Shows that --help of every script builds, installs and starts nothing, that tools/inspect and tools/checkpoint accept
--bin-dir at any position, that tools/install cuda shows why pip failed, that .ci/run fails if the tests or the CUDA
code fail, and that Python sources need no Python newer than Debian 12's. Stubs replace the programs that have effects;
each records its calls."""

import ast
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
FOLDERS = (".ci", "bench", "examples", "python", "tests", "tools")
IGNORED = shutil.ignore_patterns("__pycache__", "corpus", "results", "*.cc", "*.h")
DOES_SOMETHING = ("apt-get", "cargo", "cmake", "ctest", "debootstrap", "dpkg-query", "g++", "git", "make", "ninja", "redis-server",
                  "ssh", "unshare")

# What Python 3.11.2 does not have. Methods and functions of the standard library:
NEWER_NAMES = {"batched", "sumprod", "binomialvariate", "process_cpu_count", "get_annotate", "full_match", "from_uri"}
# Keyword arguments, of functions with these names; None: of any.
NEWER_KEYWORDS = {"filter": {"extract", "extractall", "unpack_archive"}, "onexc": {"rmtree"}, "delete_on_close": None,
                  "walk_up": None, "follow_symlinks": {"glob", "rglob", "exists", "is_file", "is_dir"}, "case_sensitive": None,
                  "recurse_symlinks": None, "deprecated": {"add_argument", "add_parser"}}


def write(path, text, mode=0o755):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


class Tools(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tarn-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.top, self.marks = self.folder / "top", self.folder / "marks"
        self.stub = f'#!/bin/sh\necho "$0 $*" >>{self.marks}\nexit 1\n'
        for name in DOES_SOMETHING:
            write(self.folder / "path" / name, self.stub)

    def copy(self):
        for name in FOLDERS:
            shutil.copytree(ROOT / name, self.top / name, ignore=IGNORED)

    def run_in(self, *command, **more):
        environment = os.environ | {"PATH": f"{self.folder / 'path'}:{os.environ['PATH']}"}
        return subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, cwd=self.top,
                              env=environment, **more)

    def marked(self):
        return self.marks.read_text() if self.marks.exists() else ""

    def files(self):
        return sorted(str(path) for path in self.top.rglob("*") if "__pycache__" not in path.parts)

    def test_the_options_of_quickstart(self):
        for words, expected in ((("--sett", "a=b"), "unrecognized arguments: --sett"), (("--set", "a"), "expected section.key=value"),
                                (("--plain", "job.toml"), "job.toml: expected only options of tools/launch"),
                                (("--run-dir", ROOT), "this folder is not empty"), (("--quiet",), "")):
            code = "import sys; from tarn_tools import quickstart; sys.exit(quickstart.check(sys.argv[1:]))"
            done = subprocess.run(["python3", "-c", code, *words], cwd=ROOT / "tools", capture_output=True, text=True)
            self.assertEqual((done.returncode, expected in done.stderr), (2 if expected else 0, True), done.stderr)

    def test_other_data_of_the_quickstart(self):
        sys.path.insert(0, str(ROOT / "tools"))
        from tarn_tools import quickstart

        for text, why in (("echo generate.json is missing >&2; exit 1", "generate.json is missing"), ("kill -9 $$", "exit code -9")):
            (self.folder / "tarn-generate").write_text(f"#!/bin/sh\n{text}\n")
            (self.folder / "tarn-generate").chmod(0o755)
            with unittest.mock.patch.object(quickstart, "DATA", self.folder), self.assertRaisesRegex(OSError, f": {why}. Remove"):
                quickstart.make_data(self.folder)

    def test_a_new_folder(self):
        """It appears when it is complete; what a killed process has left is removed, what another one writes is not."""
        sys.path.insert(0, str(ROOT / "tools"))
        from tarn_tools.new_folder import new_folder

        target = self.folder / "data"
        (self.folder / "data.0123.part").mkdir()
        with new_folder(target) as first, new_folder(target) as second:
            (first / "file").write_text("first")
            (second / "file").write_text("second")
            self.assertFalse(target.exists())
        self.assertEqual((target / "file").read_text(), "second")  # the first to be complete
        with self.assertRaises(ValueError), new_folder(self.folder / "other"):
            raise ValueError
        self.assertEqual([path.name for path in self.folder.iterdir() if path.name not in ("path", "top")], ["data"])

    def test_help_starts_nothing(self):
        self.copy()
        scripts = [path for path in sorted(self.top.rglob("*")) if path.is_file() and os.access(path, os.X_OK)]
        names = [str(path.relative_to(self.top)) for path in scripts]
        self.assertIn("tools/inspect", names)
        self.assertIn("tests/fuzz/run", names)
        before = self.files()
        for option in ("--help", "-h"):
            for path, name in zip(scripts, names):
                with self.subTest(f"{name} {option}"):
                    done = self.run_in(path, option)
                    self.assertEqual((done.returncode, done.stderr), (0, ""))
                    self.assertIn("usage", done.stdout.lower())
                    self.assertEqual(self.marked(), "")
        self.assertEqual(self.files(), before)

    def test_help_of_a_command_of_a_program_builds_nothing(self):
        self.copy()
        for tool in ("inspect", "checkpoint"):
            done = self.run_in(self.top / "tools" / tool, "list", "--help")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("--bin-dir", done.stdout)
            self.assertIn(f"tools/build release tarn-{tool}", done.stdout)
        self.assertEqual(self.marked(), "")

    def test_programs_of_another_folder_are_run_as_they_are(self):
        self.copy()
        for tool in ("inspect", "checkpoint"):
            programs = self.folder / f"a folder for {tool}"
            write(programs / f"tarn-{tool}", '#!/bin/sh\nprintf "<%s>" "$@"\n')
            command = self.top / "tools" / tool
            for words in (["--bin-dir", programs, "list", "a b"], ["list", "a b", "--bin-dir", programs],
                          ["list", f"--bin-dir={programs}", "a b"]):
                done = self.run_in(command, *words)
                self.assertEqual((done.returncode, done.stdout), (0, "<list><a b>"), done.stderr)
            helped = self.run_in(command, "--help", "--bin-dir", programs)
            self.assertEqual(helped.returncode, 0, helped.stderr)
            self.assertIn("--bin-dir DIR", helped.stdout)
            self.assertTrue(helped.stdout.endswith("<--help>"), helped.stdout)
            for words, why in ((["list", "--bin-dir"], "--bin-dir needs a folder"),
                               (["--bin-dir", self.folder, "list"], f"no program tarn-{tool} in it")):
                done = self.run_in(command, *words)
                self.assertEqual(done.returncode, 2)
                self.assertIn(why, done.stderr)
        self.assertEqual(self.marked(), "")

    def test_install_cuda_shows_why_pip_failed(self):
        self.copy()
        write(self.folder / "path/dpkg-query", "#!/bin/sh\necho installed python3-venv\n")
        # Like pip, whose messages about retries are warnings, which --quiet --quiet hides.
        pip = '#!/bin/sh\ncase "$*" in *--quiet*--quiet*) ;; *) echo "WARNING: connection refused by the proxy" >&2 ;; esac\nexit 1\n'
        write(self.folder / "pip", pip)
        write(self.folder / "path/python3", f'#!/bin/sh\nmkdir -p "$3/bin" && cp {self.folder}/pip "$3/bin/pip"\n')
        done = self.run_in(self.top / "tools/install", "cuda")
        self.assertEqual(done.returncode, 1)
        self.assertIn("connection refused by the proxy", done.stderr)
        self.assertRegex(done.stderr, "tools/install: failed: .*pip install .*nvidia-cublas")
        write(self.folder / "path/python3", "#!/bin/sh\necho ensurepip is not available\nexit 1\n")
        done = self.run_in(self.top / "tools/install", "cuda")
        self.assertEqual(done.returncode, 1)
        self.assertIn("ensurepip is not available", done.stderr)

    def run_ci(self, tests, toolkit, cuda):
        """Runs .ci/run with stubs that end with these exit statuses. Returns its exit status and the summary."""
        for name, status, said in (("test", tests, "=== summary (1 min)"), ("install", toolkit, "ERROR: no network"),
                                   ("build", cuda, "x.cu(1): error: no such name"), ("bundle", 0, "x/gpu.tar.xz: 9 programs")):
            write(self.top / "tools" / name, f'#!/bin/sh\necho "{said}"\necho "$0 $*" >>{self.marks}\nexit {status}\n')
        done = self.run_in(self.top / ".ci/run", "--quick")
        return done.returncode, done.stdout[done.stdout.rindex("=== summary"):]

    def test_ci_fails_with_the_tests_and_with_the_cuda_code(self):
        self.copy()
        for tests, toolkit, cuda, expected, told in ((0, 0, 0, 0, "ok .* 9 programs"), (1, 0, 0, 1, "ok"),
                                                     (0, 0, 1, 1, "FAILED .*x.cu.1.: error: no such name"),
                                                     (0, 1, 1, 0, "skipped .*ERROR: no network"), (1, 1, 0, 1, "skipped")):
            with self.subTest(tests=tests, toolkit=toolkit, cuda=cuda):
                code, summary = self.run_ci(tests, toolkit, cuda)
                self.assertEqual(code, expected)
                self.assertRegex(summary, f"=== summary .*\ncuda +{told}")
        self.assertIn("tools/test --ci --quick\n", self.marked())

    def test_ci_refuses_what_tools_test_does(self):
        self.copy()
        code, _ = self.run_ci(2, 0, 0)
        self.assertEqual(code, 2)
        self.assertNotIn("tools/install", self.marked())

    def test_bare_machine_refuses_bad_usage(self):
        self.copy()
        for words, why in ((["--mirrors", "x"], "unknown option '--mirrors'"), (["--base"], "--base needs a value")):
            done = self.run_in(self.top / "tools/bare-machine", *words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(why, done.stderr)
        self.assertEqual(self.marked(), "")


class OldPython(unittest.TestCase):
    """The tests run with the Python of this machine; users may have 3.11.2."""

    @staticmethod
    def newer(tree):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                for keyword in node.keywords:
                    of = NEWER_KEYWORDS.get(keyword.arg, ())
                    if of is None or name in of:
                        yield node.lineno, f"{name}({keyword.arg}=)"
            elif isinstance(node, ast.Attribute) and node.attr in NEWER_NAMES:
                yield node.lineno, node.attr

    def test_nothing_is_newer_than_debian_12(self):
        checked = 0
        for folder in FOLDERS:
            for path in sorted((ROOT / folder).rglob("*")):
                if not path.is_file() or (path.suffix != ".py" and not path.read_bytes().startswith(b"#!/usr/bin/env python3")):
                    continue
                tree = ast.parse(path.read_text(), str(path), feature_version=(3, 11))
                self.assertEqual(list(self.newer(tree)), [], path)
                checked += 1
        self.assertGreater(checked, 50)

    def test_it_is_found(self):
        tree = ast.parse("a.extractall(b, filter='data')\nitertools.batched(x, 2)\nextract(x)\nfilter(f, x)\n")
        self.assertEqual([line for line, _ in self.newer(tree)], [1, 2])


if __name__ == "__main__":
    unittest.main()
