"""Shows how bench/instructions reads a profile of callgrind, and which names it gives to functions."""

import pathlib
import tempfile
import unittest

from floors_test import load

PROFILE = """\
version: 1
cmd: ./program
positions: line
events: Ir
summary: 166
fl=(1) a.cc
fn=(1) tarn::Work(int)
10 5
+2 7
cfi=(2) b.cc
cfn=(2) std::Sum(int)
calls=3 20
* 60
-1 4
fl=(2)
fn=(2)
20 60
cfn=(3) tarn::Work(int)::{lambda()#1}::operator()() const
calls=2 30
21 90
fn=(3)
30 90
totals: 166
"""


class InstructionsTest(unittest.TestCase):
    def setUp(self):
        self.tool = load("instructions")

    def test_the_cost_of_a_call_counts_once(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "program.1"
            path.write_text(PROFILE)
            own, calls = self.tool.read(path)
            of_program, _ = self.tool.profile(folder, "program")
        self.assertEqual(sum(own.values()), 166)
        self.assertEqual(own["tarn::Work(int)"], 16)
        self.assertEqual(calls["std::Sum(int)"], 3)
        self.assertEqual(of_program["Sum"], 60)

    def test_a_call_of_a_lambda_is_none_of_its_function(self):
        self.assertTrue(self.tool.is_call("tarn::Work(int)", "Work("))
        self.assertFalse(self.tool.is_call("tarn::Work(int)::{lambda()#1}::operator()() const", "Work("))

    def test_names_lack_namespaces_return_type_and_arguments(self):
        names = {"tarn::net::Decode(std::span<int, 3ul>)'2": "net::Decode",
                 "void tarn::(anonymous namespace)::Add<void (*)(int)>(int)": "Add<void (*)(int)>",
                 "__memcpy_avx_unaligned_erms": "__memcpy_avx_unaligned_erms"}
        self.assertEqual({name: self.tool.short(name) for name in names}, names)

    def test_a_killed_process_ends_it(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "program.1").write_text(PROFILE)
            (pathlib.Path(folder) / "program.2").touch()
            with self.assertRaisesRegex(SystemExit, "no profile of program"):
                self.tool.profile(folder, "program")


if __name__ == "__main__":
    unittest.main()
