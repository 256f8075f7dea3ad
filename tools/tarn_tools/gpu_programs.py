"""Runs the programs of bench/gpu with time limits, and keeps their output."""

import contextlib
import math
import os
import pathlib
import re
import shlex
import signal
import subprocess
import tempfile
import threading
import time

from tarn_tools import bench, bundle, fleet

EXIT_NO_GPU = 3  # of gpu_bench, and of bench/gpu
TESTS = sorted(bundle.GPU_TESTS)
GRACE_SECONDS = 5  # from SIGTERM to SIGKILL
OUTPUT_SHOWN = 400  # characters shown of a program's last output


class NoGpu(Exception):
    """There is no GPU, so nothing was measured."""


class Late(bench.Failed):
    """A program exceeded its time limit."""


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


def only_gpu(options):
    """Words before the command of a program without --device: it then sees only the GPU of `options`."""
    index = options.device.partition(":")[2]
    if not index:
        return []
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    seen = [index] if visible is None else visible.split(",")[int(index):][:1]
    if not seen:
        raise bench.Failed(f"--device {options.device}: not among CUDA_VISIBLE_DEVICES={visible}")
    return ["env", f"CUDA_VISIBLE_DEVICES={seen[0]}"]


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
