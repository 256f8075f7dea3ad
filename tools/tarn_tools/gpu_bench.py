"""bench/gpu: runs the GPU benchmarks, their limits and PyTorch, and writes the results."""

import argparse
import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import time

from tarn_tools import bench, bench_table, errors, gpu_checks, gpu_fleet, gpu_programs, gpu_table, launch_options

ROOT = launch_options.ROOT
IN_BUNDLE = not (ROOT / "tools/build").exists()
PROGRAMS = ("gpu_bench", "model_step", "tarn-generate", *launch_options.PROGRAMS)
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
EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_NO_GPU, EXIT_INTERRUPTED = 0, 1, 2, gpu_programs.EXIT_NO_GPU, 130
RESERVE_SECONDS = 10  # of --minutes, kept for the end

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
    options.sanitizers = gpu_checks.OF_QUICK_SANITIZER if options.check else gpu_checks.SANITIZERS
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


def measure_by_gpu_bench(part):
    """Returns the function that measures a part with gpu_bench."""

    def measure_it(options, results):
        command = [options.bin_dir / "gpu_bench", "--device", options.device, *(["--tiny"] if options.tiny else [])]
        command += ["--batch", options.batch] if options.batch else []
        take = lambda line: results.add(bench.figure_of("gpu_bench", line))
        run_one = lambda word, seconds: gpu_programs.run([*command, "--only", word], options, take, seconds)
        gpu_programs.each(options, OF_GPU_BENCH[part], run_one)

    return measure_it


def measure_stepper(options, results):
    """Steps of the worker's compute stage: rows from host memory, gradients back to it."""
    sizes = gpu_fleet.TINY if options.tiny else gpu_fleet.Sizes()
    batch, precision = options.batch or sizes.batch, gpu_fleet.precision_of(options)

    def measure_one(what, seconds):
        model, graphs = what
        lines = []
        command = [options.bin_dir / "model_step", "--model", model, "--device", options.device, "--rows", batch]
        command += ["--dim", sizes.dim, "--bottom", gpu_fleet.joined(sizes.bottom), "--hidden", gpu_fleet.joined(sizes.hidden)]
        command += ["--cross-layers", 3, "--cross-rank", 512, "--field-keys", 100 if options.tiny else 100_000]
        command += ["--steps", 8, "--warmup", 4]
        command += ["--precision", precision, *([] if graphs else ["--no-graphs"])]
        gpu_programs.run(command, options, lines.append, seconds)
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

    runs = [(model, graphs) for model in ("dlrm", "dcn_v2") for graphs in (True, False)]
    gpu_programs.each(options, runs, measure_one)


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
    batch = options.batch or (gpu_fleet.TINY.batch if options.tiny else gpu_fleet.Sizes.batch)
    command = [*gpu_programs.only_gpu(options), torch_python(options), TORCH_PEER, "--batch", batch, *(small if options.tiny else [])]
    command += ["--device", "cpu" if options.device == "cpu" else "gpu"]
    gpu_programs.run(command, options, lambda line: results.add(bench.figure_of("torch_peer", line)))


MEASURES = {
    **{part: measure_by_gpu_bench(part) for part in OF_GPU_BENCH},
    "stepper": measure_stepper,
    "fleet": gpu_fleet.measure,
    "torch": measure_torch,
    "tests": gpu_checks.measure_tests,
    "sanitizer": gpu_checks.measure_sanitizer,
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
        except gpu_programs.NoGpu as failure:  # the GPU was there at the start: gpu_of() found it
            print(f"bench/gpu: {failure}", file=sys.stderr)
            good = False
            results.skip(part, str(failure))
        write(options, where, results.lines, options.only)
    return good


def gpu_of(options):
    """The device's name. Raises NoGpu if there is no GPU, and Failed if the program cannot start."""
    lines = []
    gpu_programs.run([options.bin_dir / "gpu_bench", "--device", options.device, "--probe"], options, lines.append)
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
                gpu_programs.run(command, options, lambda line: None, 10)


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
    options.ends = began + 60 * options.minutes - min(gpu_programs.GRACE_SECONDS + RESERVE_SECONDS, 6 * options.minutes)
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
        if subprocess.run([ROOT / "tools/build", "release", *PROGRAMS]).returncode:
            return False
        if set(OF_CHECK) & set(options.only):
            known = subprocess.run(["ninja", "-C", ROOT / "build/release", "-t", "targets", "all"], capture_output=True, text=True).stdout
            tests = [test for test in gpu_programs.TESTS if f"\n{test}: phony\n" in known]  # none without CUDA
            if tests and subprocess.run([ROOT / "tools/build", "release", *tests]).returncode:
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
    except gpu_programs.NoGpu as why:
        print(f"bench/gpu: {why}", file=sys.stderr)
        return EXIT_NO_GPU
    except (bench.Failed, OSError, ValueError) as error:
        print(f"bench/gpu: {errors.message(error)}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        print(f"\nbench/gpu: interrupted; the results so far are in {options.out / 'results.jsonl'}", file=sys.stderr)
        return EXIT_INTERRUPTED
