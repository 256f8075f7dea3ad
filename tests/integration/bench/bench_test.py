"""Shows, with tiny settings, that the benchmarks of the data plane print every figure that they promise, that bad options
get one clear line, that a failing or missing program is reported, that no process or folder is left behind, and that
tools/bench writes a table and a picture with every figure next to its limits."""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[3]
BIN = pathlib.Path(os.environ.get("TARN_BIN_DIR", ROOT / "build/release/bin"))
TOOL = ROOT / "tools/bench"
TORCH_PEER = ROOT / "bench/data_plane/torch_peer"
TINY = ["--seconds", "0.02", "--rows", "10000", "--batch", "1000"]
sys.path.insert(0, str(ROOT / "tools"))

from tarn_tools import bench, bench_table

SPARSE = ["sparse_pull", "sparse_pull_planned", "sparse_push", "sparse_push_planned", "adagrad_push", "adagrad_push_planned"]
WIRE = {
    "sparse": ["sparse_pull", "sparse_push"],
    "dense": ["dense_pull_1mb", "dense_push_1mb", "dense_pull_16mb", "dense_push_16mb"],
    "small": ["small_pull_many", "small_pull_one"],
}
OURS = SPARSE + WIRE["dense"] + WIRE["small"]
ALL_WIRE = [name for names in WIRE.values() for name in names]


def eventually(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def using(folder):
    """Processes with this folder in their command line."""
    lines = subprocess.run(["ps", "-eo", "stat=,args="], capture_output=True, text=True).stdout.splitlines()
    return [line for line in lines if str(folder) in line and not line.startswith("Z")]


def children(process):
    """The processes that it started, the oldest first."""
    command = ["ps", "--ppid", str(process.pid), "--sort", "start_time,pid", "-o", "pid="]
    return [int(word) for word in subprocess.run(command, capture_output=True, text=True).stdout.split()]


def runs(pid):
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    return state != "" and not state.startswith("Z")


def names(prefixes, operations):
    return {f"{prefix}.{operation}" for prefix in prefixes for operation in operations}


class BenchTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tarn-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        # The programs create their temporary folders here.
        self.environment = {**os.environ, "TMPDIR": folder.name}

    def assert_measured(self, figures, installed):
        """Every figure has a value, or, without the program, none has one."""
        for line in figures.values():
            if installed:
                self.assertGreater(line.get("value", 0), 0, line)
            else:
                self.assertIn("skipped", line)

    def run_program(self, *command):
        return subprocess.run(
            [str(word) for word in command], capture_output=True, text=True, timeout=300, env=self.environment
        )

    def stand_ins(self, **scripts):
        """A folder with all programs of tools/bench, each a script of sh; those not named do nothing."""
        folder = self.folder / "bin"
        folder.mkdir()
        for name in bench.PROGRAMS:
            (folder / name).write_text("#!/bin/sh\n" + scripts.get(name, ""))
            (folder / name).chmod(0o755)
        return folder

    def assert_tool_fails(self, programs, *words):
        """Runs the tool, which must fail with exit code 1 and one error line with these words. Returns the line."""
        done = self.run_program(TOOL, "small", "--repetitions", "1", "--out", self.folder / "out", "--bin-dir", programs)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        own = [line for line in done.stderr.splitlines() if line.startswith("tools/bench: ")]
        self.assertEqual(len(own), 1, done.stderr)
        for word in words:
            self.assertIn(word, own[0])
        return own[0]

    def figures(self, *command):
        """{name: line}; every line parses, no name comes twice, and nothing is left behind."""
        done = self.run_program(*command)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        found = {line["name"]: line for line in lines}
        self.assertEqual(len(found), len(lines), "a name came twice")
        for line in lines:
            if "skipped" not in line:
                self.assertGreater(line["value"], 0, line)
                self.assertGreaterEqual(line["cores"], 1)
                self.assertTrue(line["unit"] and line["settings"], line)
        self.assertEqual(list(self.folder.iterdir()), [], "folders left behind")
        return found

    def assert_usage_error(self, command, *words):
        done = self.run_program(*command)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stdout, "")
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertNotIn("Traceback", done.stderr)

    def test_push_pull_prints_every_figure(self):
        found = self.figures(BIN / "push_pull", *TINY)
        self.assertEqual(
            set(found), names(["tarn.tcp", "tarn.ipc", "tarn.shm"], OURS) | names(["tarn.spin"], WIRE["small"])
        )
        self.assertEqual(found["tarn.tcp.sparse_pull"]["settings"]["rows"], 10000)
        self.assertEqual(found["tarn.tcp.adagrad_push"]["settings"]["optimizer"], "row_wise_adagrad")
        self.assertIn("server_cores", found["tarn.ipc.dense_push_1mb"])
        self.assertIn("p99", found["tarn.tcp.small_pull_one"])

    def test_push_pull_of_several_servers_and_only_one_part(self):
        found = self.figures(BIN / "push_pull", *TINY, "--only", "sparse", "--transport", "ipc", "--servers", "2")
        self.assertEqual(set(found), names(["tarn.ipc"], SPARSE))

    def test_limits_print_every_figure(self):
        expected = names(["zmq.tcp", "zmq.ipc", "shm"], ALL_WIRE)
        expected |= names(["socket.tcp"], ALL_WIRE) - {"socket.tcp.sparse_pull"}
        expected |= names(["array", "store"], ["sparse_pull", "sparse_push", "adagrad_push"])
        expected |= {f"memory.copy_{size}" for size in ("1mb", "16mb", "256mb")}
        self.assertEqual(set(self.figures(BIN / "data_plane_limits", *TINY)), expected)

    def test_limits_of_one_kind(self):
        found = self.figures(BIN / "data_plane_limits", *TINY, "--for", "small", "--only", "zmq")
        self.assertEqual(set(found), names(["zmq.tcp", "zmq.ipc"], WIRE["small"]))

    def test_limits_take_the_largest_batch(self):
        largest = ["--for", "sparse", "--only", "zmq", "--only", "sockets", "--batch", "1000000", "--depth", "1", "--seconds", "0.01"]
        found = self.figures(BIN / "data_plane_limits", *largest)
        self.assertEqual(set(found), names(["zmq.tcp", "zmq.ipc"], WIRE["sparse"]) | {"socket.tcp.sparse_push"})

    def test_limits_end_with_either_side(self):
        command = [BIN / "data_plane_limits", "--for", "small", "--only", "zmq", "--seconds", "600"]
        for side in range(2):
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
                try:
                    self.assertTrue(eventually(lambda: len(children(process)) == 2))
                    os.kill(children(process)[side], signal.SIGKILL)
                    errors = process.communicate(timeout=60)[1]
                finally:
                    process.kill()
            self.assertEqual(process.returncode, 1)
            self.assertIn("a process of the benchmark has ended: killed by signal 9", errors)

    def test_redis_is_measured_or_said_to_be_missing(self):
        expected = {f"redis.{way}.{verb}" for way in ("tcp", "unix") for verb in ("mget", "mset")}
        found = self.figures(BIN / "redis_peer", *TINY)
        self.assertEqual(set(found), expected)
        self.assert_measured(found, shutil.which("redis-server"))
        missing = self.figures(BIN / "redis_peer", "--program", "no-such-redis-server", *TINY)
        self.assertEqual(set(missing), expected)
        for line in missing.values():
            self.assertIn("no-such-redis-server is not installed", line["skipped"])

    def test_redis_peer_tells_why_its_server_does_not_start(self):
        server = self.stand_ins(push_pull="echo no more room >&2; exit 3\n") / "push_pull"
        done = self.run_program(BIN / "redis_peer", "--program", server, *TINY)
        self.assertEqual(done.returncode, 1)
        for words in (str(server), "exit code 3", "no more room"):
            self.assertIn(words, done.stderr)

    def test_torch_is_measured_or_said_to_be_missing(self):
        found = self.figures(sys.executable, TORCH_PEER, "--seconds", "0.02", "--rows", "1000", "--batch", "100")
        gloo = {f"gloo.tcp.{each}" for each in ("dense_push_1mb", "dense_push_16mb", "small_pull_one")}
        rpc = {f"torch_rpc.tcp.{each}" for each in ("sparse_pull", "sparse_push", "small_pull_many", "small_pull_one")}
        self.assertEqual(set(found), gloo | rpc)
        self.assert_measured(found, importlib.util.find_spec("torch"))
        only = self.figures(sys.executable, TORCH_PEER, "--seconds", "0.02", "--only", "gloo_small")
        self.assertEqual(set(only), {"gloo.tcp.small_pull_one"})

    def test_ps_lite_is_measured_or_said_to_be_missing(self):
        ways = [f"{prefix}.{way}" for prefix in ("ps_lite", "ps_lite_array") for way in ("tcp", "ipc")]
        found = self.figures(BIN / "ps_lite_peer", *TINY)
        self.assertEqual(set(found), names(ways, WIRE["sparse"]) | names(ways[:2], WIRE["dense"] + WIRE["small"]))
        self.assert_measured(found, "value" in found["ps_lite.tcp.sparse_pull"])  # found while the build was configured
        only = self.figures(BIN / "ps_lite_peer", *TINY, "--only", "small")
        self.assertEqual(set(only), names(ways[:2], WIRE["small"]))

    def test_rocksdb_is_measured(self):
        found = self.figures(BIN / "rocksdb_peer", *TINY)
        self.assertEqual(set(found), {"rocksdb.sparse_pull", "rocksdb.sparse_push"})
        self.assert_measured(found, True)

    def test_bad_options_are_told_in_one_line(self):
        for program in ("push_pull", "data_plane_limits", "ps_lite_peer", "redis_peer", "rocksdb_peer"):
            self.assert_usage_error([BIN / program, "--rows", "0"], "--rows")
            self.assert_usage_error([BIN / program, "--seconds", "none"], "--seconds")
        self.assert_usage_error([BIN / "push_pull", "--transport", "rdma"], "--transport", "rdma")
        self.assert_usage_error([BIN / "push_pull", "--rows", "10", "--batch", "11"], "--batch", "at most --rows")
        self.assert_usage_error([BIN / "data_plane_limits", "--only", "magic"], "--only", "magic")
        self.assert_usage_error([TORCH_PEER, "--seconds", "0"], "--seconds")
        self.assert_usage_error([TOOL, "spars"], "no benchmark 'spars'", "sparse, dense, small")
        self.assert_usage_error([TOOL, "--repetitions", "0"], "--repetitions")
        self.assert_usage_error([TOOL, "--rows", "10", "--batch", "11"], "at most --rows")
        self.assert_usage_error([TOOL, "--bin-dir", self.folder], str(self.folder), "not found")

    def test_batches_are_those_that_all_programs_take(self):
        for name, most, program in (("sparse", 500_000, "redis_peer"), ("small", 1_000_000, "data_plane_limits")):
            self.assertEqual(bench.parse_arguments([name, "--batch", str(most)]).batch, most)
            self.assert_usage_error([BIN / program, "--batch", str(most + 1)], "--batch", str(most))
            self.assert_usage_error([TOOL, name, "--list", "--batch", str(most + 1)], "--batch", program, str(most))
        self.assert_usage_error([TOOL, "--list", "--batch", "500001"], "redis_peer")

    def test_push_pull_tells_why_a_server_does_not_start(self):
        programs = self.folder / "bin"
        programs.mkdir()
        (programs / "push_pull").write_bytes((BIN / "push_pull").read_bytes())
        (programs / "push_pull").chmod(0o755)
        (programs / "tarn-scheduler").write_text("#!/bin/sh\necho no more room >&2\nexit 3\n")
        (programs / "tarn-scheduler").chmod(0o755)
        done = self.run_program(programs / "push_pull", *TINY)
        self.assertEqual(done.returncode, 1)
        for words in ("tarn-scheduler", "exit code 3", "no more room"):
            self.assertIn(words, done.stderr)

    def test_nothing_stays_behind_a_program_that_is_killed(self):
        for end in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            command = [BIN / "push_pull", "--only", "small", "--seconds", "600"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, env=self.environment) as process:
                self.assertTrue(eventually(lambda: list(self.folder.glob("*/address"))))
                process.send_signal(end)
            self.assertTrue(eventually(lambda: not list(self.folder.iterdir())), f"a folder after {end.name}")
            self.assertTrue(eventually(lambda: not using(self.folder)), f"a process after {end.name}")

    def test_interrupted_tool_ends_its_program(self):
        out = self.folder / "out"
        command = [TOOL, "small", "--seconds", "600", "--out", out, "--bin-dir", BIN]
        for end in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment) as process:
                self.assertTrue(eventually(lambda: list(self.folder.glob("*/address"))))
                process.send_signal(end)
                errors = process.communicate()[1]
            if end == signal.SIGKILL:
                self.assertEqual(process.returncode, -end)
            else:
                self.assertEqual(process.returncode, 130, errors)
                self.assertIn("interrupted", errors)
            self.assertTrue(eventually(lambda: [path.name for path in self.folder.iterdir()] == ["out"]), end.name)
            self.assertTrue(eventually(lambda: not using(self.folder)), end.name)

    def test_torch_peer_ends_with_all_its_processes(self):
        # A fake torch: each process that joins creates a file, and then blocks forever in C code.
        package = self.folder / "torch"
        package.mkdir()
        (package / "__init__.py").write_text("")
        (package / "distributed.py").write_text(
            "import ctypes, os, pathlib\n"
            "def init_process_group(*_, **__):\n"
            "    (pathlib.Path(__file__).parent / f'{os.getpid()}.joined').touch()\n"
            "    while True: ctypes.PyDLL(None).sleep(600)\n"
        )
        for end in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            environment = {**self.environment, "PYTHONPATH": str(self.folder)}
            with subprocess.Popen([sys.executable, TORCH_PEER], stderr=subprocess.PIPE, env=environment) as process:
                try:
                    self.assertTrue(eventually(lambda: len(list(package.glob("*.joined"))) == 2))
                    joined = list(package.glob("*.joined"))
                    process.send_signal(end)
                    self.assertTrue(eventually(lambda: not any(runs(path.stem) for path in joined)), end.name)
                finally:
                    process.kill()
            for path in joined:
                path.unlink()

    def test_tool_writes_lines_table_and_picture(self):
        out = self.folder / "out"
        done = self.run_program(TOOL, "sparse", "small", "--repetitions", "2", "--out", out, "--bin-dir", BIN, *TINY)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
        ours = [line for line in lines if line["name"].startswith("tarn.")]
        self.assertEqual(len(ours), 2 * (3 * len(SPARSE) + 4 * len(WIRE["small"])))
        self.assertEqual({line["repetition"] for line in lines}, {0, 1})
        table = (out / "table.md").read_text()
        for words in ("commit", "CPU", "kernel", "other work meanwhile: ", "tools/bench sparse small", "/ raw ZeroMQ", "/ row store alone"):
            self.assertIn(words, table)
        for name in {line["name"] for line in lines}:
            self.assertIn(name, table)
        self.assertIn(table, done.stdout)
        self.assertIn("sparse: 2 of 2 done", done.stdout)
        svg = xml.etree.ElementTree.parse(out / "picture.svg").getroot()
        self.assertTrue(svg.tag.endswith("svg"))
        drawn = {line["name"] for line in ours if not line["name"].endswith("_planned")}
        self.assertGreater(len(svg.findall(".//{*}rect")), len(drawn) + 3 * 2)  # beside tarn's, limits of each operation

    def test_tool_measures_two_servers_beside_one(self):
        out = self.folder / "out"
        done = self.run_program(TOOL, "servers", "--repetitions", "2", "--out", out, "--bin-dir", BIN, *TINY)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
        self.assertEqual({line["name"] for line in lines}, names(["tarn.tcp", "tarn.shm"], SPARSE))
        self.assertEqual([line["settings"]["servers"] for line in lines].count(2), 2 * 2 * len(SPARSE))
        table = (out / "table.md").read_text()
        self.assertIn("| figure | 1 server | 2 servers | 2 servers / 1 |", table)
        self.assertNotIn("Limits and peers", table)

    def test_tool_fails_with_a_program_that_fails(self):
        programs = self.stand_ins(push_pull="exit 1\n")
        self.assert_tool_fails(programs, f"{programs / 'push_pull'} failed with exit code 1")

    def test_tool_names_a_program_that_cannot_be_started(self):
        programs = self.stand_ins()
        (programs / "push_pull").chmod(0o644)
        said = self.assert_tool_fails(programs, str(programs / "push_pull"), "Permission denied")
        self.assertNotIn("--out", said)

    def test_tool_names_the_line_that_is_no_figure(self):
        for line in ("loading...", "[1, 2]", '{"name": "half"}', "caf\\351"):
            programs = self.stand_ins(push_pull=f"printf '{line}\\n'; exec sleep 600\n")
            self.assert_tool_fails(programs, str(programs / "push_pull"), line.split("\\")[0])
            self.assertTrue(eventually(lambda: not using(programs)))
            shutil.rmtree(programs)

    def test_tool_tells_what_it_cannot_write(self):
        out = self.folder / "out"
        figure = '{"name": "tarn.tcp.small_pull_one", "value": 1, "unit": "us"}'
        programs = self.stand_ins(push_pull=f"echo '{figure}'\n")
        out.write_text("a file")
        self.assert_tool_fails(programs, "--out: ", str(out))
        out.unlink()
        out.mkdir()
        (out / "results.jsonl").symlink_to("/dev/full")
        self.assert_tool_fails(programs, "--out: ", "No space left")

    def test_tool_lists_its_benches(self):
        done = self.run_program(TOOL, "--list")
        self.assertEqual(done.returncode, 0)
        self.assertEqual([line.split()[0] for line in done.stdout.splitlines()], list(bench.BENCHES))


class TableTest(unittest.TestCase):
    def test_ratios_are_of_one_repetition_and_gaps_are_left_empty(self):
        def figure(name, repetition, value, unit="rows/s"):
            return {"bench": "sparse", "repetition": repetition, "name": name, "value": value, "unit": unit}

        figures = [figure("tarn.tcp.sparse_pull", 0, 2e6), figure("zmq.tcp.sparse_pull", 0, 4e6),
                   figure("tarn.tcp.sparse_pull", 1, 9e6), figure("zmq.tcp.sparse_pull", 1, 9e6),
                   figure("tarn.ipc.sparse_pull", 0, 1e6),
                   {"bench": "sparse", "repetition": 0, "name": "redis.tcp.mget", "skipped": "not there"}]
        text = bench_table.document([("commit", "abc")], figures)
        self.assertIn("| tarn.tcp.sparse_pull | 5.5M (2M to 9M) rows/s | 0.75 (0.50 to 1.00) |", text)
        self.assertIn("| tarn.ipc.sparse_pull | 1M rows/s |  |", text)
        self.assertIn("- redis.tcp.mget: not there", text)
        self.assertIsNone(re.search(r"/ Redis", text))

    def test_servers_are_compared_in_pairs_and_apart_from_the_other_benches(self):
        def figure(bench_name, servers, repetition, value):
            return {"bench": bench_name, "repetition": repetition, "name": "tarn.shm.sparse_pull", "value": value,
                    "unit": "rows/s", "settings": {"servers": servers}}

        figures = [figure("sparse", 1, 0, 7e6), figure("servers", 1, 0, 2e6), figure("servers", 2, 0, 3e6),
                   figure("servers", 2, 1, 8e6), figure("servers", 1, 1, 4e6)]
        text = bench_table.document([("commit", "abc")], figures)
        self.assertIn("| tarn.shm.sparse_pull | 7M rows/s |", text)
        self.assertIn("| tarn.shm.sparse_pull | 3M (2M to 4M) rows/s | 5.5M (3M to 8M) rows/s | 1.75 (1.50 to 2.00) |", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
