"""bench/gpu: runs the GPU benchmarks, their limits and PyTorch, and writes the results."""

import argparse
import contextlib
import dataclasses
import json
import math
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

from tarn_tools import bench, bench_table, bundle, errors, fleet, gpu_table, launch_options, stages, summary

ROOT = launch_options.ROOT
IN_BUNDLE = not (ROOT / "tools/build").exists()
PROGRAMS = ("gpu_bench", "model_step", "tarn-generate", *launch_options.PROGRAMS)
TESTS = sorted(bundle.GPU_TESTS)
TORCH_PEER = ROOT / "bench/gpu_bench/torch_peer"
PEERS_PYTHON = ROOT / "build/peers/bin/python3"
# Part -> the parts of gpu_bench that it runs, each in a separate process, so that a permanent GPU error fails only one.
OF_GPU_BENCH = {
    "limits": ["limits"],
    "kernels": ["embedding", "plans", "optimizers"],
    "products": ["products"],
    "hot_rows": ["hot_rows"],
    "steps": ["steps"],
}
PARTS = list(gpu_table.PARTS)
OF_CHECK = ["tests", "sanitizer"]
# A part may use its share of the remaining time, relative to the shares of the parts after it. The shares of the parts
# with figures add up to the seconds of 8.5 minutes, as do those of --check.
SHARES = {"limits": 20, "kernels": 60, "products": 50, "hot_rows": 40, "steps": 60, "stepper": 60, "fleet": 140,
          "torch": 80, "tests": 200, "sanitizer": 310}
EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_NO_GPU, EXIT_INTERRUPTED = 0, 1, 2, 3, 130
GRACE_SECONDS = 5  # from SIGTERM to SIGKILL
RESERVE_SECONDS = 10  # of --minutes, kept for the end
HOT_STALENESS = 10_000  # clocks; more than a run has, so that each row is pulled once
FLEET_SECONDS = 20  # seconds of measurement for a fleet that reaches its target
FLEET_SECONDS_MAX = 90  # seconds of a fleet, including its start; a slower one is stopped, and its result until then is used
STEADY_SECONDS_MIN = 3
LINE_SECONDS = 1  # between two lines of a fleet in metrics.jsonl
SANITIZERS = ("memcheck", "racecheck", "synccheck", "initcheck")
OF_QUICK_SANITIZER = ("memcheck", "racecheck")
# The tests that --check runs under racecheck. Those of training steps would take minutes each, with the same kernels.
OF_QUICK_RACECHECK = "gpu_kernels_test"
# Kernels of CUB and cuBLAS with known findings, which are not errors of tarn (NVIDIA/cccl 1891, 1903, 2104).
OF_LIBRARIES = re.compile(r"\b(cub|thrust)::|cublas|cutlass|\bnvjet|xmma|\b(ampere|hopper|volta|sm\d\d)_|gemmk?\d|gemv|splitKreduce")
OUTPUT_SHOWN = 400  # characters shown of a program's last output

DESCRIPTION = """\
Measures tarn on a GPU and compares it with the limits of the GPU and with PyTorch on the same GPU: kernels, matrix
products, the hot-row cache, training steps, and a fleet on this machine. With --check it checks the results instead: it
runs the GPU tests, and runs them again under compute-sanitizer. Prints each figure and writes to the folder of --out:

  results.jsonl  every line of every program
  table.md       every figure with its limit, its target and its peer; the GPU, the driver, the command; updated after
                 each part
  logs/          the output of every program

and packs the folder into FOLDER.tar.gz. Each program runs in a separate process, so a permanent GPU error fails only
one part.

Without a GPU it prints 'no GPU: nothing was measured' and exits with status 3.
"""

EPILOG = """\
parts of --only, in this order; each gets a share of the time that remains of --minutes
  limits     the machine: copies, matrix products, transfers from and to the host, launches
  kernels    embeddings, plans, optimizers and interaction, compared with copies
  products   the models' matrix products, compared with cuBLASLt's fastest algorithm
  hot_rows   look-ups in the hot-row cache
  steps      DLRM and DCN v2 with all rows in the cache: the GPU alone
  stepper    the same through the worker's compute stage, rows from the host; with and without graphs
  fleet      DLRM with servers and a worker on this machine, twice, at most 90 s each; 2 GB of rows in $TMPDIR
  torch      PyTorch, if a Python has it
  tests      the GPU tests, and every program at small sizes (only with --only or --check)
  sanitizer  four tools of compute-sanitizer, if installed; they slow programs down many times (only with --only or
             --check)

  bench/gpu --check                                     correctness: tests, memcheck, racecheck of kernels
  bench/gpu                                             all figures
  bench/gpu --only kernels products --out runs/kernels
  bench/gpu --only sanitizer --minutes 60 --limit 900   takes longer than all other parts together
  bench/gpu --device cpu --tiny                         on the CPU, at tiny sizes: tests the benchmark itself

On a machine without packages, unpack a bundle (tools/bundle) and run its tarn/bench/gpu, which needs Python 3.11;
tarn/bin/gpu_bench needs no Python. A slim bundle has no cuBLAS: give the folder of libcublasLt.so with --cuda-lib. Other
load on the GPU or the machine distorts the figures.

exit codes  0 done    1 a part failed; the others are in the table    2 bad usage    3 no GPU    130 interrupted
"""


class NoGpu(Exception):
    """There is no GPU, so nothing was measured."""


class Late(bench.Failed):
    """A program exceeded its time limit."""


@dataclasses.dataclass(frozen=True)
class FleetSizes:
    """The sizes of the job that a fleet trains."""

    batch: int = 65536
    rows: int = 1 << 23  # rows per epoch: nearly a second at the highest target, so that the end of an epoch matters little
    target: bool = True  # true: as many epochs as needed to measure at the target; false: two
    dim: int = 128
    bottom: tuple = (512, 256)
    hidden: tuple = (1024, 1024, 512, 256)
    hot_rows: int = 24_000_000  # more than the data should have keys; the note reports the hit rate

    def epochs(self, name):
        """The epochs of the fleet with this name: the first one, with cold caches, and the measured ones."""
        if not self.target:
            return 2
        at_least = next(row.at_least for row in gpu_table.PARTS["fleet"] if row.name == name)
        return 1 + math.ceil(at_least * (FLEET_SECONDS + 2 * LINE_SECONDS) / self.rows)


TINY_FLEET = FleetSizes(batch=64, rows=256, target=False, dim=4, bottom=(8,), hidden=(8,), hot_rows=10_000)


def parse_arguments(argv):
    parser = argparse.ArgumentParser(
        prog="bench/gpu",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    positive = bench.positive
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help="only these parts (default: all with figures)")
    parser.add_argument("--check", action="store_true", help="only tests, memcheck and racecheck of kernels, no figures")
    parser.add_argument("--device", default="gpu", metavar="gpu|gpu:N|cpu", help="compute device (default: %(default)s)")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes: test the benchmark without measuring")
    parser.add_argument("--batch", type=positive(int), metavar="N", help="rows per batch (default: 65536)")
    parser.add_argument("--servers", type=positive(int), default=1, metavar="N", help="servers of the fleet (default: %(default)s)")
    parser.add_argument("--shards", type=positive(int), metavar="N", help="shards per server (default: half of the cores, at most 8)")
    parser.add_argument("--workers", type=positive(int), default=1, metavar="N", help="workers of the fleet, on one GPU (default: %(default)s)")
    parser.add_argument("--limit", type=positive(float), default=300, metavar="S", help="time limit per program, in seconds (default: %(default)s)")
    parser.add_argument("--minutes", type=positive(float), default=8.5, metavar="M", help="time limit for all parts, in minutes (default: %(default)s)")
    parser.add_argument("--python", metavar="FILE", help="Python with torch (default: this one, or build/peers/bin/python3)")
    parser.add_argument("--sanitizer", metavar="FILE", help="compute-sanitizer (default: from the PATH or /usr/local/cuda)")
    parser.add_argument("--cuda-lib", metavar="DIR", help="folder of CUDA's libraries, if programs do not find them")
    parser.add_argument("--bin-dir", type=pathlib.Path, metavar="DIR", help="folder of the programs (default: built, or the bundle's)")
    parser.add_argument("--out", type=pathlib.Path, metavar="FOLDER", help="folder for the results (default: runs/gpu-DATE-TIME)")
    parser.add_argument("--draw", type=pathlib.Path, metavar="FILE", help="measure nothing; make the table from this results.jsonl")
    options = parser.parse_args(argv)
    if not re.fullmatch(r"cpu|gpu(:\d+)?", options.device):
        parser.error(f"--device {options.device}: expected gpu, gpu:N or cpu")
    if options.check and options.only:
        parser.error("--check and --only: expected only one of them")
    options.only = options.only or [part for part in PARTS if (part in OF_CHECK) == options.check]
    options.sanitizers = OF_QUICK_SANITIZER if options.check else SANITIZERS
    options.shards = options.shards or max(1, min(8, len(os.sched_getaffinity(0)) // 2))
    options.out = options.out or ROOT / "runs" / time.strftime("gpu-%Y%m%d-%H%M%S")
    return options


class Results:
    """Collects lines of figures, and writes them to a file as they arrive."""

    def __init__(self, path):
        self.lines, self._path = [], path
        with bench.writing_out():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")

    def add(self, line):
        self.lines.append(line)
        with bench.writing_out(), open(self._path, "a", encoding="utf-8") as out:
            out.write(json.dumps({"bench": "gpu", **line}) + "\n")
        print(f"  {bench_table.in_words(line)}", flush=True)

    def skip(self, part, why):
        """Adds the reason why the missing rows of a part were not measured."""
        have = {line["name"] for line in self.lines}
        for row in gpu_table.PARTS[part]:
            if row.name not in have:
                self.add({"name": row.name, "skipped": why})


def environment(options):
    """The environment of the programs; None: that of this process."""
    if not options.cuda_lib:
        return None
    behind = os.environ.get("LD_LIBRARY_PATH")
    return {**os.environ, "LD_LIBRARY_PATH": options.cuda_lib + (f":{behind}" if behind else "")}


def end(process, number):
    """Sends a signal to a program and its children in its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def why_it_failed(code, last_line):
    """Describes an exit code. last_line: the last line on stderr."""
    hint = "; give its folder with --cuda-lib DIR" if "libcublas" in last_line and "shared" in last_line else ""
    return f"{fleet.describe_exit(code)}: {last_line[:OUTPUT_SHOWN]}{hint}"


@contextlib.contextmanager
def log_of(options, command):
    """The file for a program's output, in the folder of --out if that exists."""
    if not options.out.is_dir():
        with tempfile.TemporaryFile("w+") as log:
            yield log
        return
    folder = options.out / "logs"
    with bench.writing_out():
        folder.mkdir(exist_ok=True)
        name = "-".join(re.sub(r"[^\w.]+", "", pathlib.Path(word).name) for word in command if word and word != "env")
        log = open(folder / f"{len(list(folder.iterdir())):02}-{name[:80]}.log", "w+", errors="replace")
    with log:
        log.write(shlex.join(command) + "\n")
        log.flush()
        yield log


def run(command, options, on_line, seconds=math.inf):
    """Runs a program and calls on_line with each line of its output. The program is ended at its time limit, and when this
    process ends. Raises Failed, Late at the time limit, and NoGpu if the program finds no GPU."""
    limit = min(options.limit, options.ends - time.monotonic(), options.part_ends - time.monotonic(), seconds)
    if limit <= 0:
        raise bench.Failed(f"no time left of the {options.minutes:g} minutes of --minutes")
    command = [str(word) for word in command]
    print(f"bench/gpu: {shlex.join([pathlib.Path(command[0]).name, *command[1:]])}", flush=True)
    parent, program = os.getpid(), bench.program_of(command)
    with log_of(options, command) as log, tempfile.TemporaryFile("w+", errors="replace") as errors, subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=errors, text=True, errors="replace", env=environment(options),
        start_new_session=True, preexec_fn=lambda: fleet.die_with(parent)
    ) as process:
        late = threading.Event()
        timers = [
            threading.Timer(limit, lambda: (late.set(), end(process, signal.SIGTERM))),
            threading.Timer(limit + GRACE_SECONDS, lambda: end(process, signal.SIGKILL)),
        ]
        for timer in timers:
            timer.start()
        try:
            for line in process.stdout:
                log.write(line)
                on_line(line)
            process.wait()
        except BaseException:
            end(process, signal.SIGTERM)
            raise
        finally:
            for timer in timers:
                timer.cancel()
        errors.seek(0)
        error_text = errors.read()
        log.write(error_text + f"exit {process.returncode}\n")
        error_lines = error_text.strip().splitlines() or [""]
    if late.is_set():
        raise Late(f"{program}: not done after {limit:.3g} s (--limit, --minutes)")
    if process.returncode == EXIT_NO_GPU and program.endswith("gpu_bench"):
        raise NoGpu(error_lines[-1].partition(": ")[2])
    if process.returncode:
        raise bench.Failed(f"{program}: {why_it_failed(process.returncode, error_lines[-1])}")


def each(options, commands, take):
    """Runs take(what, seconds) for each item with an equal share of the part's time, even if some fail. Raises Failed if
    any has failed."""
    failures = []
    for i, what in enumerate(commands):
        seconds = (options.part_ends - time.monotonic()) / (len(commands) - i)
        try:
            take(what, seconds)
        except (bench.Failed, OSError, ValueError) as failure:
            failures.append(str(failure))
    if failures:
        raise bench.Failed("; ".join(failures))


def measure_by_gpu_bench(part):
    """Returns the function that measures a part with gpu_bench."""

    def measure_it(options, results):
        command = [options.bin_dir / "gpu_bench", "--device", options.device, *(["--tiny"] if options.tiny else [])]
        command += ["--batch", options.batch] if options.batch else []
        take = lambda line: results.add(bench.figure_of("gpu_bench", line))
        each(options, OF_GPU_BENCH[part], lambda word, seconds: run([*command, "--only", word], options, take, seconds))

    return measure_it


def precision_of(options):
    return "fp32" if options.device == "cpu" else "bf16"


def joined(sizes):
    """(512, 256) -> "512,256"."""
    return ",".join(map(str, sizes))


def measure_stepper(options, results):
    """Steps of the worker's compute stage: rows from host memory, gradients back to it."""
    sizes = TINY_FLEET if options.tiny else FleetSizes()
    batch, precision = options.batch or sizes.batch, precision_of(options)

    def measure_one(what, seconds):
        model, graphs = what
        lines = []
        command = [options.bin_dir / "model_step", "--model", model, "--device", options.device, "--rows", batch]
        command += ["--dim", sizes.dim, "--bottom", joined(sizes.bottom), "--hidden", joined(sizes.hidden)]
        command += ["--cross-layers", 3, "--cross-rank", 512, "--field-keys", 100 if options.tiny else 100_000]
        command += ["--steps", 8, "--warmup", 4]
        run([*command, "--precision", precision, *([] if graphs else ["--no-graphs"])], options, lines.append, seconds)
        record = json.loads(lines[-1]) if lines else {}
        if "compute" not in record:
            raise bench.Failed(f"model_step --model {model} printed no result")
        results.add({
            "name": f"stepper.{model}" + ("" if graphs else "_no_graphs"),
            "value": record["rows"] * record["steps"] / record["compute"],
            "unit": "samples/s",
            "settings": {"device": options.gpu, "batch": batch, "dim": sizes.dim, "steps": record["steps"],
                         "precision": precision},
            "gpu_of_step": record.get("gpu_of_step", {}),
            "note": f"{record.get('graphs_launched', 0)} steps were launched as graphs; a step: "
                    + ", ".join(f"{count:,.1f} {name.replace('_', ' ')}" for name, count in record.get("gpu_of_step", {}).items()),
        })

    each(options, [(model, graphs) for model in ("dlrm", "dcn_v2") for graphs in (True, False)], measure_one)


def job_text(name, options, sizes, data, hot_rows):
    """The job of a fleet: DLRM in MLPerf's shape on generated rows."""
    return f"""\
[job]
name = "{name.replace('.', '-')}"
[fleet]
servers = {options.servers}
shards = {options.shards}
workers = {options.workers}
[consistency]
mode = "ssp"
staleness = {HOT_STALENESS if hot_rows else 8}
own_pushes = "bounded"
[storage]
durability = "none"
checkpoint_final = false
[data]
dir = {json.dumps(str(data))}
format = "criteo"
train = "train.tsv"
bins = ["none"]
dense_integers = true
split_rows = {8 * sizes.batch}
[model]
kind = "dlrm"
embedding_dim = {sizes.dim}
bottom = [{joined(sizes.bottom)}]
hidden = [{joined(sizes.hidden)}]
[train]
batch_rows = {sizes.batch}
epochs = {sizes.epochs(name)}
device = "{options.device}"
precision = "{precision_of(options)}"
prefetch = 4
hot_rows = {hot_rows}
[optimizer]
kind = "row_wise_adagrad"
learning_rate = 0.02
[optimizer.dense]
kind = "sgd"
learning_rate = 0.01
[tables.embedding]
pull_codec = "bf16"
push_codec = "bf16"
"""


def steady_lines(text):
    """The first and last line of metrics.jsonl between which a fleet is measured; nothing if there are too few.

    Begins with the second epoch: in the first one programs start, data is opened, matrix product algorithms are measured
    and the hot-row cache is cold. Ends with the last line before the last sample, whose exact time is unknown."""
    records = [json.loads(line) for line in text.splitlines() if '"scheduler"' in line]
    trained = [record for record in records if record.get("samples")]
    lines = [record for record in trained if record["epoch"] >= 2 and record["samples"] < trained[-1]["samples"]]
    return (lines[0], lines[-1]) if len(lines) > 1 else None


def steady_rate(text):
    """Samples per second between the lines of steady_lines(); None if the time is too short."""
    first, last = steady_lines(text) or ({"time": 0}, {"time": 0})
    seconds = last["time"] - first["time"]
    return (last["samples"] - first["samples"]) / seconds if seconds >= STEADY_SECONDS_MIN else None


def fleet_figure(name, options, sizes, run_dir, ended=False):
    """The figure of a fleet from its files. ended: it was stopped at its time limit."""
    record = summary.read(run_dir / "summary.json")
    metrics = run_dir / "metrics.jsonl"
    found = steady_rate(metrics.read_text()) if metrics.exists() else None
    whole = None if ended else record.get("samples_per_second")
    if not found and not whole:
        raise bench.Failed("its files have no throughput")
    bound = stages.bound(record)
    asked = record.get("hot_rows") or 0
    note = [] if found else ["with its start, too short without"]
    note += [f"{whole:,.0f} samples/s over all"] if whole else ["ended before it was done"]
    note += [f"bound by {bound[0]}: {bound[1]}"] if bound else []
    note += [f"{100 * record['hot_hits'] / asked:.1f}% of rows found"] if asked else []
    return {
        "name": name,
        "value": found or whole,
        "unit": "samples/s",
        "settings": {"device": options.gpu, "batch": sizes.batch, "dim": sizes.dim, "samples": record.get("samples"),
                     "servers": options.servers, "shards": options.shards, "workers": options.workers},
        "cores": len(os.sched_getaffinity(0)),
        "note": "; ".join(note),
    }


def train_fleet(name, command, options, sizes, run_dir, seconds=math.inf):
    """The figure of a fleet that is done, or that was stopped because it was too slow."""
    try:
        run(command, options, lambda line: None, min(FLEET_SECONDS_MAX, seconds))
    except Late as late:
        try:
            return fleet_figure(name, options, sizes, run_dir, ended=True)
        except bench.Failed:
            raise late
    return fleet_figure(name, options, sizes, run_dir)


def measure_fleet(options, results):
    sizes = TINY_FLEET if options.tiny else FleetSizes()
    sizes = dataclasses.replace(sizes, batch=options.batch or sizes.batch)
    with tempfile.TemporaryDirectory(prefix="tarn-gpu-") as scratch:
        scratch = pathlib.Path(scratch)
        generate = [options.bin_dir / "tarn-generate", "--out", scratch / "data", "--valid", 0, "--test", 0]
        run([*generate, "--rows", sizes.rows], options, lambda line: None)

        def train_one(what, seconds):
            name, hot_rows = what
            job, run_dir = scratch / f"{name}.toml", scratch / name
            job.write_text(job_text(name, options, sizes, scratch / "data", hot_rows))
            command = [sys.executable, ROOT / "tools/launch", job, "--bin-dir", options.bin_dir, "--run-dir", run_dir]
            try:
                results.add(train_fleet(name, [*command, "--quiet"], options, sizes, run_dir, seconds))
            except bench.Failed as failure:
                raise bench.Failed(f"{name}: {failure}; its logs: {options.out / 'logs' / name}") from failure
            finally:
                keep_logs(run_dir, options.out / "logs" / name)

        each(options, (("fleet.hot", sizes.hot_rows), ("fleet.pulled", 0)), train_one)


def keep_logs(run_dir, folder):
    """Copies the logs, metrics.jsonl and summary.json of a fleet to `folder`; its run directory is temporary."""
    if (run_dir / "logs").is_dir():
        shutil.copytree(run_dir / "logs", folder, dirs_exist_ok=True)
        for name in ("metrics.jsonl", "summary.json"):
            if (run_dir / name).exists():
                shutil.copy(run_dir / name, folder)


def torch_python(options):
    """A Python that has torch, else this one, which then reports that torch is missing."""
    if options.python:
        return options.python
    for python in (sys.executable, PEERS_PYTHON, shutil.which("python3")):
        if python and pathlib.Path(python).exists():
            if subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0:
                return python
    return sys.executable


def measure_torch(options, results):
    small = ["--fields", 5, "--dim", 8, "--field-keys", 100, "--steps", 1, "--warmup", 1, "--repetitions", 1, "--no-compile"]
    batch = options.batch or (TINY_FLEET.batch if options.tiny else FleetSizes.batch)
    command = [torch_python(options), TORCH_PEER, "--batch", batch, *(small if options.tiny else [])]
    command += ["--device", "cpu" if options.device == "cpu" else "gpu"]
    run(command, options, lambda line: results.add(bench.figure_of("torch_peer", line)))


def find_sanitizer(options):
    if options.sanitizer:
        return options.sanitizer
    places = [shutil.which("compute-sanitizer"), "/usr/local/cuda/bin/compute-sanitizer"]
    return next((place for place in places if place and os.access(place, os.X_OK)), None)


def why_no_sanitizer(options, sanitizer, tests):
    if options.device == "cpu":
        return "no GPU"
    if not sanitizer:
        return "compute-sanitizer is not installed"
    return "" if tests else "the GPU tests do not exist; tools/build builds them if there is a CUDA toolkit"


def error_count(text):
    """The number of errors and hazards reported by compute-sanitizer, or None."""
    found = re.findall(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard", text)
    return sum(int(errors or hazards) for errors, hazards in found) if found else None


def findings_in(text):
    """The number of findings of compute-sanitizer, and how many of them are in kernels of CUDA's libraries. A finding begins
    with a line that names its kind, and names its kernel in that line or a following one."""
    found = of_libraries = 0
    for finding in re.split(r"^=+ (?=\S)", text, flags=re.MULTILINE)[1:]:
        if re.match(r"(COMPUTE-SANITIZER|ERROR SUMMARY|RACECHECK SUMMARY|LEAK SUMMARY|Target application)", finding):
            continue
        kernels = re.findall(r"(?:\bin |\bat )(?:0x[0-9a-f]+ in )?(?!block )([A-Za-z_][^\n]*\()", finding)
        if not kernels:
            continue
        found += 1
        of_libraries += all(OF_LIBRARIES.search(kernel) for kernel in kernels)
    return found, of_libraries


def tests_passed(text):
    """The number of passed tests in the output of a test program; 0 if all were skipped or none ran."""
    found = re.findall(r"\[  PASSED  \] (\d+) test", text)
    return sum(map(int, found))


def measure_sanitizer(options, results):
    sanitizer = find_sanitizer(options)
    tests = [options.bin_dir / name for name in TESTS if (options.bin_dir / name).exists()]
    if why := why_no_sanitizer(options, sanitizer, tests):
        results.skip("sanitizer", why)
        return

    def use(tool, seconds):
        ends = time.monotonic() + seconds
        quick = options.check and tool == "racecheck"
        chosen = [test for test in tests if not quick or test.name == OF_QUICK_RACECHECK]
        try:
            found = [sanitized(options, sanitizer, tool, test, (ends - time.monotonic()) / (len(chosen) - i))
                     for i, test in enumerate(chosen)]
        except bench.Failed as failure:
            results.add({"name": f"sanitizer.{tool}", "skipped": str(failure)})
            raise
        ran = " ".join(f"{test.name}: {passed}" for test, (_, _, passed) in zip(chosen, found))
        left_out = sum(of_libraries for _, of_libraries, _ in found)
        note = {"note": f"{left_out} findings in kernels of CUB and cuBLAS are left out"} if left_out else {}
        results.add({"name": f"sanitizer.{tool}", "value": sum(errors for errors, _, _ in found), "unit": "errors",
                     "settings": {"device": options.gpu, "passed": ran}, **note})

    each(options, options.sanitizers, use)


def sanitizer_command(sanitizer, tool, test):
    command = [sanitizer, "--tool", tool, "--error-exitcode", "86"]
    if tool == "memcheck":
        command += ["--report-api-errors", "no"]  # tests provoke CUDA errors
    # Death tests trap on purpose, and large arrays leave the tools no memory for their records of every byte. With few
    # blocks the loops iterate, so that races between iterations are found.
    blocks = ["env", "TARN_TEST_BLOCKS=2"] if tool == "racecheck" else []
    return blocks + command + [test, "--gtest_filter=-*DeathTest*:GpuLargeArrays*"]


def sanitized(options, sanitizer, tool, test, seconds=math.inf):
    """The errors found by a tool in a test program, those found in CUDA's libraries, which do not count, and the number
    of passed tests (skipped ones are not counted)."""
    lines = []
    try:
        run(sanitizer_command(sanitizer, tool, test), options, lines.append, seconds)
    except bench.Failed as failure:
        if not error_count("".join(lines)):
            raise bench.Failed(f"{test.name} under {tool}: {failure}") from failure
    reported, passed = error_count("".join(lines)), tests_passed("".join(lines))
    if reported is None:
        raise bench.Failed(f"{test.name}: {tool} did not report the number of errors")
    if passed == 0:
        raise bench.Failed(f"{test.name} under {tool}: no test passed, all were skipped or none ran")
    _, of_libraries = findings_in("".join(lines))
    return max(0, reported - of_libraries), of_libraries, passed


def measure_tests(options, results):
    """Runs the GPU tests, and every program at small sizes."""

    def test_one(name, seconds):
        lines, failure = [], None
        try:
            run([options.bin_dir / name, "--gtest_brief=1"], options, lines.append, seconds)
        except bench.Failed as why:
            failure = why
        output = "".join(lines)
        failed = sorted(set(re.findall(r"^\[  FAILED  \] ([\w/]+\.[\w/]+)", output, re.MULTILINE)))
        if failed or not failure and tests_passed(output):
            note = {"note": "failed: " + " ".join(failed)} if failed else {}
            results.add({"name": f"tests.{name}", "value": len(failed), "unit": "failed",
                         "settings": {"device": options.gpu, "passed": tests_passed(output)}, **note})
        if failure or not tests_passed(output):
            raise failure or bench.Failed(f"{name}: no test passed, all were skipped or none ran")

    def run_tiny(_, seconds):
        lines = []
        run([options.bin_dir / "gpu_bench", "--device", options.device, "--tiny"], options, lines.append, seconds)
        results.add({"name": "tests.tiny", "value": len(lines), "unit": "figures", "settings": {"device": options.gpu}})

    on_cpu = options.device == "cpu"
    tests = [name for name in TESTS if not on_cpu and (options.bin_dir / name).exists()]
    for name in TESTS:
        if name not in tests:
            why = "no GPU" if on_cpu else "it does not exist; tools/build builds it if there is a CUDA toolkit"
            results.add({"name": f"tests.{name}", "skipped": why})
    each(options, [(test_one, name) for name in tests] + [(run_tiny, "")], lambda what, seconds: what[0](what[1], seconds))


MEASURES = {
    **{part: measure_by_gpu_bench(part) for part in OF_GPU_BENCH},
    "stepper": measure_stepper,
    "fleet": measure_fleet,
    "torch": measure_torch,
    "tests": measure_tests,
    "sanitizer": measure_sanitizer,
}


def measure(options, where, results):
    """Measures all parts, even if some fail. Returns whether no part failed."""
    good = True
    parts = [part for part in PARTS if part in options.only]
    for i, part in enumerate(parts):
        now = time.monotonic()
        options.part_ends = now + (options.ends - now) * SHARES[part] / sum(SHARES[later] for later in parts[i:])
        try:
            MEASURES[part](options, results)
        except (bench.Failed, OSError, ValueError) as failure:
            print(f"bench/gpu: {errors.message(failure)}", file=sys.stderr)
            good = False
            results.skip(part, str(failure))
        except NoGpu as failure:  # the GPU was there at the start: gpu_of() found it
            print(f"bench/gpu: {failure}", file=sys.stderr)
            good = False
            results.skip(part, str(failure))
        write(options, where, results.lines, options.only)
    return good


def gpu_of(options):
    """The device's name. Raises NoGpu if there is no GPU, and Failed if the program cannot start."""
    lines = []
    run([options.bin_dir / "gpu_bench", "--device", options.device, "--probe"], options, lines.append)
    return "".join(lines).strip()


def driver():
    """The version of NVIDIA's driver; "none" without a driver, "unknown" if its version is not found."""
    try:
        text = pathlib.Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return "none"
    found = re.search(r"Kernel Module\b.*?\s(\d+\.[\d.]+)", text)
    return found[1] if found else "unknown"


def circumstances(argv, gpu):
    where = [(what, value) for what, value in bench.circumstances(argv) if what != "command"]
    return [*where[:1], ("GPU", gpu), ("driver", driver()), *where[1:], ("command", shlex.join(["bench/gpu", *argv]))]


def write(options, where, lines, parts):
    """Writes the table of the results so far; returns it."""
    text = gpu_table.document(where, lines, parts)
    with bench.writing_out():
        for name, content in (("table.md", text), ("circumstances.json", json.dumps(where) + "\n")):
            part = options.out / f"{name}.part"
            part.write_text(content)
            part.replace(options.out / name)
    return text


def pack(options):
    """Packs the folder of --out into one file beside it."""
    path = options.out.with_name(options.out.name + ".tar.gz")
    with bench.writing_out():
        part = path.with_name(path.name + ".part")
        with tarfile.open(part, "w:gz") as archive:
            archive.add(options.out, options.out.name)
        part.replace(path)
    return path


def note_machine(options):
    """Writes the output of nvidia-smi and a description of the processors to the logs."""
    for command in (["nvidia-smi", "-q"], ["lscpu", "--extended"], ["nvidia-smi", "topo", "-m"]):
        if shutil.which(command[0]):
            with contextlib.suppress(bench.Failed, OSError):
                run(command, options, lambda line: None, 10)


def draw(options):
    """Writes the table of an earlier run to its folder."""
    lines = [json.loads(line) for line in options.draw.read_text().splitlines()]
    saved = options.draw.with_name("circumstances.json")
    where = [tuple(pair) for pair in json.loads(saved.read_text())] if saved.exists() else []
    names = {line["name"] for line in lines}
    parts = [part for part, rows in gpu_table.PARTS.items() if part != "limits" and any(row.name in names for row in rows)]
    options.out = options.draw.parent
    print(f"{write(options, where, lines, parts)}\nbench/gpu: {options.out / 'table.md'}")


def measure_and_write(argv, options):
    began = time.monotonic()
    options.ends = began + 60 * options.minutes - min(GRACE_SECONDS + RESERVE_SECONDS, 6 * options.minutes)
    options.part_ends = options.ends
    options.gpu = gpu_of(options)
    where, results = circumstances(argv, options.gpu), Results(options.out / "results.jsonl")
    note_machine(options)
    good = measure(options, where, results)
    where.append(("took", f"{(time.monotonic() - began) / 60:.1f} minutes"))
    print(f"\n{write(options, where, results.lines, options.only)}")
    print(f"bench/gpu: {options.out / 'table.md'} and results.jsonl; with all logs: {pack(options)}")
    return EXIT_OK if good else EXIT_FAILED


def find_programs(options):
    """Sets --bin-dir to the programs of the bundle, or to those of the build after building them. False: the build failed."""
    if options.bin_dir is None and not IN_BUNDLE:
        tests = TESTS if set(OF_CHECK) & set(options.only) and (ROOT / "build/cuda-toolkit").exists() else ()
        if subprocess.run([ROOT / "tools/build", "release", *PROGRAMS, *tests]).returncode:
            return False
    options.bin_dir = (options.bin_dir or (ROOT / "bin" if IN_BUNDLE else ROOT / "build/release/bin")).resolve()
    launch_options.use_fallback_libraries(options.bin_dir)
    return True


def main(argv):
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options = parse_arguments(argv)
    try:
        if options.draw:
            draw(options)
            return EXIT_OK
        if not find_programs(options):
            return EXIT_FAILED
        for program in PROGRAMS:
            if not (options.bin_dir / program).exists():
                print(f"bench/gpu: {options.bin_dir / program}: not found; expected the programs in --bin-dir",
                      file=sys.stderr)
                return EXIT_USAGE
        return measure_and_write(argv, options)
    except NoGpu as why:
        print(f"bench/gpu: {why}", file=sys.stderr)
        return EXIT_NO_GPU
    except (bench.Failed, OSError, ValueError) as error:
        print(f"bench/gpu: {errors.message(error)}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        print(f"\nbench/gpu: interrupted; the results so far are in {options.out / 'results.jsonl'}", file=sys.stderr)
        return EXIT_INTERRUPTED
