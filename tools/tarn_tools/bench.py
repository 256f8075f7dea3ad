"""tools/bench: runs the benchmarks of the data plane, their limits and their peers in turns, and writes the results."""

import argparse
import contextlib
import json
import os
import pathlib
import platform
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time

from tarn_tools import bench_table, errors, fleet, launch_options

ROOT = launch_options.ROOT
BIN = ROOT / "build/release/bin"
SCRIPTS = ROOT / "bench/data_plane"
PEERS_PYTHON = ROOT / "build/peers/bin/python3"
PROGRAMS = ("push_pull", "data_plane_limits", "ps_lite_peer", "redis_peer", "rocksdb_peer", "tarn-scheduler", "tarn-server")
# The largest --batch that each of these programs supports.
BATCH_MAX = {"data_plane_limits": 1_000_000, "ps_lite_peer": 1_000_000, "redis_peer": 500_000, "rocksdb_peer": 1_000_000}
LINE_SHOWN = 200  # characters shown of a line that is not a figure
EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130

# The purpose of each bench, and its programs: name, arguments, and whether it accepts --rows, --batch and --depth.
BENCHES = {
    "sparse": (
        "random rows of a large table; beside raw ZeroMQ, the row store alone, an array, shared memory, ps-lite, Redis, "
        "RocksDB, torch's RPC",
        [
            ("push_pull", ["--only", "sparse"], True),
            ("data_plane_limits", ["--for", "sparse", "--only", "rows", "zmq", "sockets", "shm"], True),
            ("ps_lite_peer", ["--only", "sparse"], True),
            ("redis_peer", [], True),
            ("rocksdb_peer", [], True),
            ("torch_peer", ["--only", "rpc_sparse"], True),
        ],
    ),
    "dense": (
        "tensors of 1 MB and 16 MB; beside raw ZeroMQ, plain sockets, shared memory, memory copy, ps-lite, torch with gloo",
        [
            ("push_pull", ["--only", "dense"], True),
            ("data_plane_limits", ["--for", "dense", "--only", "copy", "zmq", "sockets", "shm"], True),
            ("ps_lite_peer", ["--only", "dense"], True),
            ("torch_peer", ["--only", "gloo_dense"], False),
        ],
    ),
    "small": (
        "rows of 1 KB, many in flight and one; beside raw ZeroMQ, plain sockets, shared memory, ps-lite, torch with gloo and "
        "RPC",
        [
            ("push_pull", ["--only", "small"], True),
            ("data_plane_limits", ["--for", "small", "--only", "zmq", "sockets", "shm"], True),
            ("ps_lite_peer", ["--only", "small"], True),
            ("torch_peer", ["--only", "gloo_small", "rpc_small"], False),
        ],
    ),
    "servers": (
        "random rows of a large table on two servers beside the same on one, over tcp and shared memory",
        [
            ("push_pull", ["--only", "sparse", "--transport", "tcp", "--transport", "shm", "--servers", "1"], True),
            ("push_pull", ["--only", "sparse", "--transport", "tcp", "--transport", "shm", "--servers", "2"], True),
        ],
    ),
}

DESCRIPTION = """\
Builds the release preset and measures push and pull between processes of this machine, in turns with their limits and
peers. Prints each figure and, at the end, a Markdown table. Writes to the folder of --out:

  results.jsonl  every line of every program, with its bench and repetition
  table.md       medians with their spread, ratios to limits and peers, the machine, the commit and the command
  picture.svg    the same as bars
"""

EPILOG = """\
A peer that is not installed is skipped, with a message. tools/install bench installs Redis; ps-lite is built from its
sources in build/peers/ps-lite; torch is searched for in this Python and in build/peers. Other load on the machine
distorts the figures: `nice -n -10 tools/bench` as root helps.

exit codes  0 done    1 a program or writing failed    2 bad usage    130 interrupted
"""


class Failed(Exception):
    """The measurement failed; the message has the reason."""


def positive(kind):
    def parse(text):
        value = kind(text)
        if value <= 0:
            raise ValueError
        return value

    parse.__name__ = f"{kind.__name__} above 0"
    return parse


def parse_arguments(argv):
    parser = argparse.ArgumentParser(
        prog="tools/bench",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(BENCHES)} (all)")
    parser.add_argument("--list", action="store_true", help="list the benchmarks and exit")
    parser.add_argument("--repetitions", type=positive(int), default=5, metavar="N", help="paired runs of each (default: %(default)s)")
    parser.add_argument("--seconds", type=positive(float), default=1, metavar="S", help="seconds per figure (default: %(default)s)")
    parser.add_argument("--rows", type=positive(int), default=10_000_000, metavar="N", help="rows of the sparse table (default: %(default)s)")
    parser.add_argument("--batch", type=positive(int), default=10_000, metavar="N", help="keys per request (default: %(default)s)")
    parser.add_argument("--depth", type=positive(int), default=8, metavar="N", help="sparse requests in flight (default: %(default)s)")
    parser.add_argument("--out", type=pathlib.Path, metavar="FOLDER", help="folder for the results (default: runs/bench-DATE-TIME)")
    parser.add_argument("--bin-dir", type=pathlib.Path, metavar="DIR", help="folder of the programs (default: build/release/bin, after a build)")
    options = parser.parse_args(argv)
    for name in options.names:
        if name not in BENCHES:
            parser.error(f"no benchmark '{name}'; the benchmarks are: {', '.join(BENCHES)}")
    if options.batch > options.rows:
        parser.error(f"--batch {options.batch}: expected at most --rows ({options.rows}), because keys are distinct")
    options.names = options.names or list(BENCHES)
    chosen = {program for name in options.names for program, _, _ in BENCHES[name][1]}
    most, program = min(((BATCH_MAX[program], program) for program in chosen & BATCH_MAX.keys()), default=(options.batch, ""))
    if options.batch > most:
        parser.error(f"--batch {options.batch}: {program} supports at most {most}")
    options.out = options.out or ROOT / "runs" / time.strftime("bench-%Y%m%d-%H%M%S")
    return options


def torch_python():
    """A Python that has torch, else this one, which then reports that torch is missing."""
    has_torch = subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode == 0
    return PEERS_PYTHON if not has_torch and PEERS_PYTHON.exists() else sys.executable


def commands(name, options):
    """The command lines of one repetition of a bench."""
    for program, arguments, sized in BENCHES[name][1]:
        line = [options.bin_dir / program] if program != "torch_peer" else [torch_python(), SCRIPTS / program]
        line += [*arguments, "--seconds", options.seconds]
        if sized:
            line += ["--rows", options.rows, "--batch", options.batch, "--depth", options.depth]
        yield [str(word) for word in line]


def busy_seconds():
    """CPU seconds of the whole machine since its start, and those stolen by other guests of the host."""
    _, user, nice, system, _, _, irq, softirq, steal, *_ = pathlib.Path("/proc/stat").read_text().split(maxsplit=11)
    return sum(map(int, (user, nice, system, irq, softirq, steal))) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    """CPU seconds of the programs that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Others:
    """Measures other load on the machine while a program runs, in cores."""

    def __init__(self):
        self._began, self._busy, self._own = time.monotonic(), busy_seconds(), own_seconds()

    def cores(self):
        used = (busy_seconds() - self._busy) - (own_seconds() - self._own)
        return max(0.0, used / (time.monotonic() - self._began))


def program_of(command):
    """The program of a command line: the first word after `env` and its variables, or the script of a Python command."""
    while command[0] == "env" or re.match(r"[A-Z_]+=", command[0]):
        command = command[1:]
    return command[0] if command[1].startswith("-") else command[1]


def figure_of(program, text):
    """Parses the figure on a line of a program's output."""
    try:
        line = json.loads(text)
    except ValueError:
        line = None
    if isinstance(line, dict) and "name" in line and ("skipped" in line or {"value", "unit"} <= line.keys()):
        return line
    raise Failed(f"{program}: no figure: {text.strip()[:LINE_SHOWN]}")


def run(command, record):
    """Runs a program, which is killed if this one ends, and passes each of its figures to `record`. Raises Failed if it
    fails."""
    program, parent = program_of(command), os.getpid()
    print(f"bench: {shlex.join([pathlib.Path(command[0]).name, *command[1:]])}", flush=True)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, errors="replace", preexec_fn=lambda: fleet.die_with(parent)
    ) as process:
        try:
            for line in process.stdout:
                record(figure_of(program, line))
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        raise Failed(f"{program} failed with exit code {process.returncode}")


@contextlib.contextmanager
def writing_out():
    """Raises Failed for an OSError of writing to the folder of --out."""
    try:
        yield
    except OSError as error:
        raise Failed(f"--out: {errors.message(error)}") from error


def measure(options):
    """Returns all figures as a list of dicts, also written to results.jsonl as they arrive, and the cores used by other
    load during each program."""
    figures, busy, results = [], [], options.out / "results.jsonl"
    with writing_out():
        options.out.mkdir(parents=True, exist_ok=True)
        for name in ("table.md", "picture.svg"):  # of an earlier measurement
            (options.out / name).unlink(missing_ok=True)
        results.write_text("")
    for name in options.names:
        for repetition in range(options.repetitions):
            began = time.monotonic()
            lines = list(commands(name, options))

            def record(line):
                figure = {"bench": name, "repetition": repetition, **line}
                with writing_out(), open(results, "a", encoding="utf-8") as out:
                    out.write(json.dumps(figure) + "\n")
                figures.append(figure)
                print(f"  {bench_table.in_words(line)}", flush=True)

            # Every other repetition in reverse order, so that slow drift affects all programs alike.
            for command in lines if repetition % 2 == 0 else reversed(lines):
                others = Others()
                run(command, record)
                busy.append(others.cores())
            seconds = time.monotonic() - began
            print(f"bench: {name}: {repetition + 1} of {options.repetitions} done, {seconds:.0f} s", flush=True)
    return figures, busy


def first_line(path, prefix):
    try:
        lines = pathlib.Path(path).read_text().splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(prefix)), "")


def commit():
    """The commit of this checkout, or of the bundle; else "unknown"."""
    if (ROOT / "COMMIT").exists():
        return (ROOT / "COMMIT").read_text().strip()
    if not (ROOT / ".git").exists() or not shutil.which("git"):
        return "unknown"
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True).stdout.strip()
    return (head or "unknown") + (", changed" if changed else "")


def circumstances(argv):
    """The conditions of the measurement, as (name, value) pairs."""
    memory_kb = int(first_line("/proc/meminfo", "MemTotal").split()[0])
    return [
        ("date", time.strftime("%Y-%m-%d %H:%M")),
        ("CPU", first_line("/proc/cpuinfo", "model name") or platform.machine()),
        ("cores", str(len(os.sched_getaffinity(0)))),
        ("memory", f"{memory_kb / 2**20:.0f} GiB"),
        ("kernel", platform.release()),
        ("commit", commit()),
        ("command", shlex.join(["tools/bench", *argv])),
    ]


def write_results(options, where, figures):
    text = bench_table.document(where, figures)
    with writing_out():
        (options.out / "picture.svg").write_text(bench_table.picture(figures))
        (options.out / "table.md").write_text(text)
    print(f"\n{text}\nbench: {options.out / 'table.md'}, picture.svg and results.jsonl")


def measure_and_write(argv, options):
    """Measures and writes all results. Raises Failed or KeyboardInterrupt if it does not complete."""
    where = circumstances(argv)
    figures, busy = measure(options)
    where.append(("other work meanwhile", f"{bench_table.spread(busy)} cores"))
    write_results(options, where, figures)


def main(argv):
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options = parse_arguments(argv)
    if options.list:
        for name, (about, _) in BENCHES.items():
            print(f"{name:8} {about}")
        return EXIT_OK
    if not options.bin_dir:
        options.bin_dir = BIN
        if subprocess.run([ROOT / "tools/build", "release", *PROGRAMS]).returncode:
            return EXIT_FAILED
    for program in PROGRAMS:
        if not (options.bin_dir / program).exists():
            print(f"tools/bench: {options.bin_dir / program}: not found; expected the programs in --bin-dir",
                  file=sys.stderr)
            return EXIT_USAGE
    try:
        measure_and_write(argv, options)
    except (Failed, OSError) as error:
        print(f"tools/bench: {errors.message(error)}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        print(f"\ntools/bench: interrupted; the results so far are in {options.out / 'results.jsonl'}", file=sys.stderr)
        return EXIT_INTERRUPTED
    return EXIT_OK
