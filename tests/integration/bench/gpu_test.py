"""Shows, without a GPU, that bench/gpu is ready for one: its programs print every figure of its table (on the CPU), the
table compares each with its ceiling, target and peer, and a missing GPU and a part that fails are reported."""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
BIN = pathlib.Path(os.environ.get("TARN_BIN_DIR", ROOT / "build/release/bin"))
TOOL = ROOT / "bench/gpu"
TORCH_PEER = ROOT / "bench/gpu_bench/torch_peer"
sys.path.insert(0, str(ROOT / "tools"))

from tarn_tools import bench, gpu_bench, gpu_checks, gpu_fleet, gpu_programs, gpu_table  # noqa: E402

# Hides a GPU of the machine from these tests.
ENVIRONMENT = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}


def run(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=600, env=ENVIRONMENT)


def promised(*parts):
    return {row.name for part in parts for row in gpu_table.PARTS[part]}


def figure(name, value, unit, **more):
    return {"name": name, "value": value, "unit": unit, "settings": {"device": "NVIDIA H100"}, **more}


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tarn-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "out"

    def stand_ins(self, **scripts):
        """A folder with all programs of bench/gpu, each a script of sh; those not named do nothing."""
        folder = self.folder / "bin"
        folder.mkdir()
        for name in (*gpu_bench.PROGRAMS, *(name for name in scripts if name in gpu_programs.TESTS)):
            (folder / name).write_text("#!/bin/sh\n" + scripts.get(name, ""))
            (folder / name).chmod(0o755)
        return folder

    def lines(self):
        return {line["name"]: line for line in map(json.loads, (self.out / "results.jsonl").read_text().splitlines())}


class ProgramTest(Folder):
    def test_says_every_figure_that_the_table_promises(self):
        done = run(BIN / "gpu_bench", "--device", "cpu", "--tiny")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [bench.figure_of("gpu_bench", line) for line in done.stdout.splitlines()]
        names = [line["name"] for line in lines]
        self.assertEqual(len(set(names)), len(names), "a name came twice")
        expected = promised(*gpu_bench.OF_GPU_BENCH)
        self.assertLessEqual(expected, set(names))
        self.assertTrue(all(name.startswith("product.") for name in set(names) - expected))
        for line in lines:
            self.assertGreater(line["value"], 0, line)
            self.assertEqual(line["settings"]["device"], "cpu")

    def test_parts_are_chosen(self):
        for part in ("limits", "hot_rows"):
            done = run(BIN / "gpu_bench", "--device", "cpu", "--tiny", "--only", part)
            names = [json.loads(line)["name"] for line in done.stdout.splitlines()]
            self.assertEqual(set(names), promised(part))

    def test_without_a_gpu_it_says_so(self):
        done = run(BIN / "gpu_bench")
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertIn("no GPU: nothing was measured: ", done.stderr)

    def test_bad_options_are_told(self):
        for words, expected in [
            (["--only", "magic"], "magic"),
            (["--batch", "0"], "--batch"),
            (["--device", "tpu"], 'gpu_bench: device "tpu": expected cpu, gpu or gpu:N'),
        ]:
            done = run(BIN / "gpu_bench", *words)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(expected, done.stderr)

    def test_torch_is_measured_or_said_to_be_missing(self):
        small = ["--batch", "8", "--fields", "2", "--dim", "4", "--field-keys", "50", "--steps", "1", "--warmup", "1"]
        done = run(sys.executable, TORCH_PEER, "--device", "cpu", "--no-compile", "--repetitions", "1", *small)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual({json.loads(line)["name"] for line in done.stdout.splitlines()}, promised("torch"))
        done = run(sys.executable, TORCH_PEER)
        for line in map(json.loads, done.stdout.splitlines()):
            self.assertRegex(line["skipped"], "has no torch|finds no GPU")


class ToolTest(Folder):
    def test_without_a_gpu_nothing_is_measured(self):
        done = run(TOOL, "--bin-dir", BIN, "--out", self.out)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("bench/gpu: no GPU: nothing was measured: ", done.stderr)
        self.assertFalse(self.out.exists())

    def test_every_part_runs_on_a_cpu_and_the_table_says_that_it_is_none(self):
        done = run(TOOL, "--bin-dir", BIN, "--out", self.out, "--device", "cpu", "--tiny", "--limit", "500", "--minutes", "60", "--only",
                   "limits", "kernels", "hot_rows", "steps", "stepper", "fleet", "tests", "sanitizer")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines, table = self.lines(), (self.out / "table.md").read_text()
        self.assertEqual(set(lines), promised("limits", "kernels", "hot_rows", "steps", "stepper", "fleet", "tests", "sanitizer"))
        for name in promised("fleet", "stepper"):
            self.assertGreater(lines[name]["value"], 0)
        self.assertEqual(lines["fleet.pulled"]["settings"]["samples"], 2 * 4 * 64)
        self.assertIn("of rows found", lines["fleet.hot"]["note"])
        self.assertNotIn("of rows found", lines["fleet.pulled"]["note"])
        for name in promised("sanitizer"):
            self.assertEqual(lines[name]["skipped"], "no GPU")
        self.assertIn("figures mean nothing", table)
        self.assertNotIn("yes |", table)
        self.assertNotIn("**no**", table)
        for words in ("- GPU: cpu", "- driver: ", "- commit: ", "bench/gpu --bin-dir"):
            self.assertIn(words, table)
        with tarfile.open(f"{self.out}.tar.gz") as archive:
            names = archive.getnames()
        for name in ("out/table.md", "out/results.jsonl", "out/logs/fleet.hot/metrics.jsonl"):
            self.assertIn(name, names)
        self.assertTrue(any(re.match(r"out/logs/\d+-gpu_bench.*limits", name) for name in names), names)

    def test_a_part_that_fails_is_told_and_the_others_are_measured(self):
        copy = json.dumps(figure("limit.copy", 3000.0, "GB/s"))
        tell = f"case $* in *--probe*) echo H100;; *) echo '{copy}';; esac\n"
        programs = self.stand_ins(gpu_bench=tell, model_step="echo the GPU is on fire >&2; exit 1\n")
        done = run(TOOL, "--bin-dir", programs, "--out", self.out, "--only", "limits", "stepper")
        self.assertEqual(done.returncode, 1)
        self.assertIn("the GPU is on fire", done.stderr)
        table = (self.out / "table.md").read_text()
        self.assertIn("not measured: " + str(programs / "model_step"), table)
        self.assertIn("| limit.copy | copy within GPU memory, bytes read and written | 3,000 GB/s |", table)
        self.assertIn("not measured: its program did not report it", table)

    def test_a_program_that_does_not_end_is_ended(self):
        programs = self.stand_ins(gpu_bench="case $* in *--probe*) echo H100;; *) sleep 600;; esac\n")
        done = run(TOOL, "--bin-dir", programs, "--out", self.out, "--only", "products", "--limit", "0.3")
        self.assertEqual(done.returncode, 1)
        self.assertIn("not done after 0.3 s", done.stderr)

    def test_a_part_that_does_not_end_leaves_the_others_their_share(self):
        copy = json.dumps(figure("hot_rows.find", 5e9, "keys/s"))
        hang = f"case $* in *--probe*) echo H100;; *products*) sleep 600;; *) echo '{copy}';; esac\n"
        programs = self.stand_ins(gpu_bench=hang)
        began = time.monotonic()
        done = run(TOOL, "--bin-dir", programs, "--out", self.out, "--only", "products", "hot_rows", "--minutes", "0.05")
        self.assertLess(time.monotonic() - began, 30)
        self.assertEqual(done.returncode, 1)
        self.assertIn("not done after", self.lines()["product.dlrm"]["skipped"])
        self.assertEqual(self.lines()["hot_rows.find"]["value"], 5e9)

    def test_an_error_that_stays_costs_one_process(self):
        copy, plan = json.dumps(figure("kernel.unique_keys", 5e9, "keys/s")), json.dumps(figure("plan.batch", 5e9, "keys/s"))
        fail = (f"case $* in *--probe*) echo H100;; *embedding*) echo '{copy}'; echo 'address out of bounds' >&2; exit 1;;"
                f" *plans*) echo '{plan}';; esac\n")
        done = run(TOOL, "--bin-dir", self.stand_ins(gpu_bench=fail), "--out", self.out, "--only", "kernels")
        self.assertEqual(done.returncode, 1)
        lines = self.lines()
        self.assertEqual({name for name in lines if "value" in lines[name]}, {"kernel.unique_keys", "plan.batch"})
        self.assertIn("address out of bounds", lines["kernel.embedding_forward"]["skipped"])

    def test_the_table_is_there_after_every_part(self):
        copy = json.dumps(figure("limit.copy", 3000.0, "GB/s"))
        tell = (f"case $* in *--probe*) echo H100;; *limits*) echo '{copy}';; *) cp {self.out}/table.md {self.folder}/then;"
                " kill -9 $PPID;; esac\n")
        run(TOOL, "--bin-dir", self.stand_ins(gpu_bench=tell), "--out", self.out, "--only", "limits", "hot_rows")
        self.assertIn("3,000 GB/s", (self.folder / "then").read_text())
        self.assertIn("3,000 GB/s", (self.out / "table.md").read_text())

    def test_by_default_there_are_figures_and_with_check_there_is_what_is_right(self):
        parse = lambda *words: gpu_bench.parse_arguments(["--out", "x", *words])
        self.assertEqual(set(gpu_bench.PARTS), {*parse().only, *parse("--check").only})
        self.assertEqual(parse("--check").only, ["tests", "sanitizer"])
        self.assertEqual(set(gpu_bench.SHARES), set(gpu_bench.PARTS))
        self.assertLessEqual(parse().minutes, 8.5)

    def test_programs_without_a_device_option_see_only_that_device(self):
        def words(device, visible=None):
            environment = {key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"}
            if visible is not None:
                environment["CUDA_VISIBLE_DEVICES"] = visible
            with unittest.mock.patch.dict(os.environ, environment, clear=True):
                return gpu_programs.only_gpu(argparse.Namespace(device=device))

        self.assertEqual(words("gpu"), [])
        self.assertEqual(words("gpu:1"), ["env", "CUDA_VISIBLE_DEVICES=1"])
        self.assertEqual(words("gpu:1", "4,7"), ["env", "CUDA_VISIBLE_DEVICES=7"])
        with self.assertRaisesRegex(bench.Failed, "--device gpu:1: not among CUDA_VISIBLE_DEVICES=4"):
            words("gpu:1", "4")
        self.assertEqual(bench.program_of([*words("gpu:1"), "gpu_kernels_test", "--gtest_brief=1"]), "gpu_kernels_test")

    def test_tests_that_fail_or_do_not_run_are_told(self):
        one_failed = "[  PASSED  ] 3 tests.\n[  FAILED  ] 1 test, listed below:\n[  FAILED  ] GpuTest.Relu\n"
        programs = self.stand_ins(
            gpu_bench="case $* in *--probe*) echo H100;; *--tiny*) echo '{}';; esac\n",
            gpu_kernels_test=f"printf '{one_failed}'; exit 1\n",
            gpu_stepper_test="echo '[  PASSED  ] 5 tests.'\n", gpu_train_test="echo '[  PASSED  ] 0 tests.'\n")
        done = run(TOOL, "--bin-dir", programs, "--out", self.out, "--only", "tests")
        self.assertEqual(done.returncode, 1)
        lines, table = self.lines(), (self.out / "table.md").read_text()
        self.assertEqual((lines["tests.gpu_kernels_test"]["value"], lines["tests.gpu_stepper_test"]["value"]), (1, 0))
        self.assertIn("failed: GpuTest.Relu", table)
        self.assertIn("no test passed", lines["tests.gpu_train_test"]["skipped"])
        self.assertEqual(table.count("| at most 0 | **no** |"), 1)

    def test_a_missing_library_is_told_with_what_helps(self):
        programs = self.stand_ins(
            gpu_bench='echo "$LD_LIBRARY_PATH: error while loading shared libraries: libcublasLt.so.13" >&2; exit 127\n')
        done = run(TOOL, "--bin-dir", programs, "--out", self.out, "--cuda-lib", "/opt/cuda")
        self.assertEqual(done.returncode, 1)
        for words in ("/opt/cuda", "libcublasLt.so.13", "give its folder with --cuda-lib DIR"):
            self.assertIn(words, done.stderr)


    def test_bad_usage_says_what_is_expected(self):
        for words, expected in [
            (["--only", "magic"], "magic"),
            (["--device", "tpu"], "expected gpu, gpu:N or cpu"),
            (["--limit", "0"], "--limit"),
            (["--bin-dir", self.folder], "expected the programs"),
        ]:
            done = run(TOOL, *words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(expected, done.stderr)

    def test_help_says_what_it_takes(self):
        told = run(TOOL, "--help").stdout
        for part in gpu_bench.PARTS:
            self.assertIn(f"\n  {part} ", told)
        self.assertIn("no GPU: nothing was measured", told)

    def test_draws_again_what_an_earlier_run_found(self):
        self.out.mkdir()
        lines = [figure("limit.copy", 4000.0, "GB/s"), figure("kernel.optimizer_adam", 3700.0, "GB/s")]
        (self.out / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (self.out / "circumstances.json").write_text('[["GPU", "NVIDIA H100"]]')
        done = run(TOOL, "--draw", self.out / "results.jsonl")
        self.assertEqual(done.returncode, 0, done.stderr)
        table = (self.out / "table.md").read_text()
        self.assertIn("- GPU: NVIDIA H100", table)
        self.assertIn("| 92.5% | 90% | yes |", table)


class TableTest(unittest.TestCase):
    LINES = [
        figure("limit.copy", 3000.0, "GB/s"),
        figure("limit.product", 700.0, "TFLOP/s"),
        figure("kernel.embedding_forward", 2800.0, "GB/s"),
        figure("kernel.optimizer_adam", 2600.0, "GB/s"),
        figure("kernel.unique_keys", 5e9, "keys/s"),
        figure("product.dlrm", 500.0, "TFLOP/s", limit=550.0),
        figure("product.512x256_relu", 400.0, "TFLOP/s", limit=500.0),
        figure("step.dlrm", 12e6, "samples/s"),
        figure("step.dcn_v2", 2e6, "samples/s"),
        figure("torch.dlrm", 4e6, "samples/s", note="without torch.compile, which failed: no gcc"),
        {"name": "torch.dcn_v2", "skipped": "out of memory"},
    ]

    def row(self, name, parts=("kernels", "products", "steps", "torch")):
        text = gpu_table.document([("GPU", "NVIDIA H100")], self.LINES, parts)
        found = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
        self.assertEqual(len(found), 1, text)
        return [cell.strip() for cell in found[0].split("|")[3:-1]]

    def test_every_figure_stands_beside_its_ceiling_target_and_peer(self):
        self.assertEqual(self.row("kernel.embedding_forward"), ["2,800 GB/s", "3,000 GB/s", "93.3%", "90%", "yes", ""])
        self.assertEqual(self.row("kernel.optimizer_adam"), ["2,600 GB/s", "3,000 GB/s", "86.7%", "90%", "**no**", ""])
        self.assertEqual(self.row("kernel.unique_keys"), ["5G keys/s", "", "", "", "", ""])
        self.assertEqual(self.row("product.dlrm"), ["500 TFLOP/s", "550 TFLOP/s", "90.9%", "85%", "yes", ""])
        self.assertEqual(self.row("product.512x256_relu"), ["400 TFLOP/s", "500 TFLOP/s", "80.0%", "", "", ""])
        self.assertEqual(self.row("step.dlrm"), ["12M samples/s", "", "", "10M samples/s", "yes", "3.00x"])
        self.assertEqual(self.row("step.dcn_v2"), ["2M samples/s", "", "", "2.6M samples/s", "**no**", ""])

    def test_what_is_missing_says_why(self):
        self.assertEqual(self.row("torch.dcn_v2")[0], "not measured: out of memory")
        self.assertEqual(self.row("kernel.optimizer_sgd")[0], "not measured: its program did not report it")

    def test_only_the_parts_that_were_asked_for_are_shown(self):
        text = gpu_table.document([], self.LINES, ["steps"])
        self.assertIn("## limits", text)
        self.assertIn("## steps", text)
        self.assertNotIn("## kernels", text)
        self.assertIn("- torch.dlrm: without torch.compile", text)

    def test_a_cpu_reaches_no_target(self):
        lines = [{**line, "settings": {"device": "cpu"}} for line in self.LINES if "skipped" not in line]
        text = gpu_table.document([], lines, ["kernels", "steps"])
        self.assertIn("figures mean nothing", text)
        self.assertNotIn("yes |", text)

    def test_the_names_of_parts_and_targets_are_those_of_the_issue(self):
        rows = {row.name: row for part in gpu_table.PARTS.values() for row in part}
        self.assertEqual(len(rows), sum(map(len, gpu_table.PARTS.values())), "a name is there twice")
        self.assertEqual(rows["kernel.embedding_backward_adagrad"].share, 0.60)
        self.assertEqual(rows["fleet.pulled"].at_least, 2.5e6)
        self.assertEqual(rows["hot_rows.find"].at_least, 4e9)
        for row in rows.values():
            self.assertTrue(row.ceiling in ("", "own") or row.ceiling in rows)
            self.assertTrue(row.peer == "" or row.peer in rows)


class SanitizerTest(Folder):
    CLEAN = "========= ERROR SUMMARY: 0 errors"
    RACES = "========= RACECHECK SUMMARY: {} hazards displayed (0 errors, {} warnings)"
    PASSED = "[  PASSED  ] 7 tests."
    # The output of gtest if every test was skipped, and if no test matches its filter.
    SKIPPED = "[  PASSED  ] 0 tests.\n[  SKIPPED ] 7 tests, listed below:"
    NONE = "[==========] 0 tests from 0 test suites ran. (0 ms total)\n[  PASSED  ] 0 tests."

    def sanitize(self, code=0, errors=CLEAN, races=RACES.format(0, 0), tests=PASSED):
        """Runs the part with a fake sanitizer that prints this for each of two test programs."""
        sanitizer = self.folder / "compute-sanitizer"
        sanitizer.write_text(f"#!/bin/sh\necho '{tests}'\ncase $2 in racecheck) echo '{races}';; *) echo '{errors}';; esac\n"
                             f"echo 'no such device' >&2\nexit {code}\n")
        sanitizer.chmod(0o755)
        programs = self.folder / "bin"
        if not programs.exists():
            self.stand_ins(gpu_bench="echo H100\n", gpu_kernels_test="", gpu_stepper_test="")
        done = run(TOOL, "--bin-dir", programs, "--out", self.out, "--only", "sanitizer", "--sanitizer", sanitizer)
        return done, self.lines(), (self.out / "table.md").read_text()

    def test_all_tools_find_nothing(self):
        done, lines, table = self.sanitize()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(set(lines), {f"sanitizer.{tool}" for tool in ("memcheck", "racecheck", "synccheck", "initcheck")})
        for line in lines.values():
            self.assertEqual(line["value"], 0)
            self.assertEqual(line["settings"]["passed"], "gpu_kernels_test: 7 gpu_stepper_test: 7")
        self.assertEqual(table.count("| at most 0 | yes |"), 4)

    def test_errors_and_hazards_count(self):
        done, lines, table = self.sanitize(86, "========= ERROR SUMMARY: 2 errors", self.RACES.format(3, 3))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual({name: line["value"] for name, line in lines.items()},
                         {"sanitizer.memcheck": 4, "sanitizer.racecheck": 6, "sanitizer.synccheck": 4, "sanitizer.initcheck": 4})
        self.assertEqual(table.count("| at most 0 | **no** |"), 4)

    def test_tests_that_did_not_run_are_not_clean(self):
        for tests in (self.SKIPPED, self.NONE, ""):
            done, lines, table = self.sanitize(tests=tests)
            self.assertEqual(done.returncode, 1)
            for tool in gpu_checks.SANITIZERS:
                self.assertIn(f"under {tool}: no test passed", lines[f"sanitizer.{tool}"]["skipped"])
            self.assertNotIn("yes |", table)

    def test_a_test_that_fails_is_not_clean(self):
        tests = "[  PASSED  ] 6 tests.\n[  FAILED  ] 1 test, listed below:\n[  FAILED  ] GpuTest.Relu"
        done, lines, table = self.sanitize(86, "========= ERROR SUMMARY: 2 errors", tests=tests)
        self.assertEqual(done.returncode, 1)
        self.assertIn("gpu_kernels_test under memcheck: GpuTest.Relu failed", lines["sanitizer.memcheck"]["skipped"])

    def test_a_tool_that_fails_is_told_and_the_others_go_on(self):
        done, lines, table = self.sanitize(races="killed")
        self.assertEqual(done.returncode, 1)
        self.assertIn("racecheck did not report the number of errors", lines["sanitizer.racecheck"]["skipped"])
        self.assertEqual(table.count("| at most 0 | yes |"), 3)
        done, lines, table = self.sanitize(code=1)
        self.assertEqual(done.returncode, 1)
        self.assertIn("no such device", lines["sanitizer.memcheck"]["skipped"])

    def test_a_sanitizer_that_is_not_there(self):
        programs = self.stand_ins(gpu_bench="echo H100\n", gpu_kernels_test="")
        done = run(TOOL, "--bin-dir", programs, "--out", self.out, "--only", "sanitizer", "--sanitizer", "/no/such")
        self.assertEqual(done.returncode, 1)
        self.assertIn("not measured: [Errno 2]", (self.out / "table.md").read_text())

    OF_CUB = """\
========= Uninitialized __global__ memory read of size 4 bytes
=========     at void cub::CUB_200700_800_NS::DeviceRadixSortOnesweepKernel<unsigned long>(int*, int)+0x1b10
=========     by thread (5,0,0) in block (0,0,0)
=========
========= Warning: Race reported between Write access at void cub::DeviceScanKernel<int>(int)+0x70
=========     and Read access at void cub::DeviceScanKernel<int>(int)+0x90 [16 hazards]
"""
    OF_OURS = """\
========= Invalid __global__ read of size 16 bytes
=========     at void tarn::kernels::cuda::MoveRowsKernel<4, false>(unsigned int)+0x70 in move_rows.cuh:39
=========     by thread (0,0,0) in block (0,0,0)
"""

    def test_findings_in_the_kernels_of_libraries_are_left_out_and_counted(self):
        self.assertEqual(gpu_checks.findings_in(self.OF_CUB + self.OF_OURS + "========= ERROR SUMMARY: 3 errors\n"), (3, 2))
        done, lines, table = self.sanitize(86, self.OF_CUB + self.OF_OURS + "========= ERROR SUMMARY: 3 errors")
        self.assertEqual(lines["sanitizer.memcheck"]["value"], 2)
        self.assertIn("sanitizer.memcheck: 4 findings in kernels of CUB and cuBLAS are left out", table)

    def test_errors_of_several_programs_add_up(self):
        self.assertEqual(gpu_checks.error_count("== ERROR SUMMARY: 1 error\n== ERROR SUMMARY: 12 errors\n"), 13)
        self.assertEqual(gpu_checks.error_count("== RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n"), 1)
        self.assertIsNone(gpu_checks.error_count("nothing"))


def told(at, samples, epoch=1, role="scheduler"):
    return json.dumps({"time": at, "role": role, "samples": samples, "epoch": epoch}) + "\n"


class FleetTest(Folder):
    SIZES = gpu_fleet.Sizes()
    TARGETS = {row.name: row.at_least for row in gpu_table.PARTS["fleet"]}
    START, COLD = 12.0, 0.25  # seconds before the first batch; the first epoch's share of the rate

    def metrics(self, name, rate):
        """metrics.jsonl of a fleet that trains at this rate from its second epoch on: a line a second, whole
        batches."""
        rows, cold_seconds = self.SIZES.rows, self.SIZES.rows / (self.COLD * rate)
        every = rows * self.SIZES.epochs(name)
        lines, at, samples = [], 0.3, 0
        while at < 400 and samples < every:
            at += 1
            warm = max(0, at - self.START - cold_seconds)
            cold = min(max(0, at - self.START), cold_seconds)
            samples = min(every, int(self.COLD * rate * cold + rate * warm))
            samples -= samples % self.SIZES.batch
            lines.append(told(at, samples, min(samples // rows + 1, self.SIZES.epochs(name))))
            lines.append(told(at, samples, role="worker"))
        return "".join([*lines, told(at + 1, samples, self.SIZES.epochs(name))])

    def test_a_fleet_below_at_and_above_its_target_is_told_as_it_is(self):
        for name, target in self.TARGETS.items():
            for times in (0.3, 0.9, 1, 1.1, 2, 4):
                found = gpu_fleet.steady_rate(self.metrics(name, times * target))
                self.assertIsNotNone(found, f"{name} at {times} times its target")
                self.assertAlmostEqual(found / (times * target), 1, delta=0.02, msg=f"{name} at {times} times its target")

    def test_at_its_target_it_is_measured_for_twenty_seconds(self):
        for name, target in self.TARGETS.items():
            first, last = gpu_fleet.steady_lines(self.metrics(name, target))
            self.assertGreaterEqual(last["time"] - first["time"], 20)
            self.assertGreaterEqual(first["epoch"], 2)
            self.assertLess(last["time"] - first["time"], 26)

    def test_the_rate_leaves_out_the_first_epoch_and_the_end(self):
        text = told(0, 0) + told(20, 1000) + told(21, 2000, 2) + told(24, 5000, 2, "worker") + told(26, 7000, 2)
        self.assertEqual(gpu_fleet.steady_rate(text + told(27, 7500, 2) + told(40, 7500, 2)), 1000.0)
        self.assertIsNone(gpu_fleet.steady_rate(told(0, 0)))
        self.assertIsNone(gpu_fleet.steady_rate(""))
        self.assertIsNone(gpu_fleet.steady_rate(told(0, 100, 2) + told(1, 900, 2) + told(2, 1700, 2)), "too short")
        self.assertIsNone(gpu_fleet.steady_rate(told(0, 100) + told(9, 900) + told(20, 1700)), "no second epoch")

    def options(self):
        return gpu_bench.parse_arguments(["--out", str(self.out)])

    def figure_of(self, text, record=None, **more):
        (self.folder / "metrics.jsonl").write_text(text)
        (self.folder / "summary.json").write_text(json.dumps(record or {}))
        options = self.options()
        options.gpu = "H100"
        return gpu_fleet.figure_of("fleet.hot", options, self.SIZES, self.folder, **more)

    def test_a_fleet_that_was_too_slow_is_told_with_what_it_reached(self):
        rate = 0.1 * self.TARGETS["fleet.hot"]
        text = "".join(line + "\n" for line in self.metrics("fleet.hot", rate).splitlines()
                       if json.loads(line)["time"] < gpu_fleet.SECONDS_MAX)
        found = self.figure_of(text, ended=True)
        self.assertAlmostEqual(found["value"] / rate, 1, delta=0.02)
        self.assertIn("ended before it was done", found["note"])
        with self.assertRaises(bench.Failed):
            self.figure_of(told(0, 0), {"samples_per_second": 9}, ended=True)

    def test_a_fleet_that_trained_too_shortly_says_so(self):
        found = self.figure_of(told(0, 0), {"samples_per_second": 9, "samples": 20})
        self.assertEqual(found["value"], 9)
        self.assertIn("with its start, too short without", found["note"])

    def test_a_fleet_whose_time_is_over_is_ended(self):
        with unittest.mock.patch.object(gpu_programs, "run", side_effect=gpu_programs.Late("not done after 90 s")):
            options = self.options()
            options.gpu = "H100"
            with self.assertRaisesRegex(gpu_programs.Late, "not done after 90 s"):
                gpu_fleet.train("fleet.hot", ["launch"], options, self.SIZES, self.folder)
            (self.folder / "metrics.jsonl").write_text(self.metrics("fleet.hot", 1e6))
            figure_found = gpu_fleet.train("fleet.hot", ["launch"], options, self.SIZES, self.folder)
            self.assertAlmostEqual(figure_found["value"], 1e6, delta=2e4)


if __name__ == "__main__":
    unittest.main(verbosity=2)
