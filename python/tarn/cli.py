"""The command `tarn`: every tool and program under one name. `tarn --help` lists them."""

import importlib
import os
import pathlib
import re
import subprocess
import sys
from typing import NoReturn

PACKAGE = pathlib.Path(__file__).resolve().parent
# The directory of programs and tools: this package, or the checkout that contains it.
ROOT = PACKAGE if (PACKAGE / "bin").is_dir() else PACKAGE.parents[1]
PROGRAMS = ROOT / ("bin" if ROOT == PACKAGE else "build/release/bin")

# Command -> description. Commands of TOOLS are functions of tarn_tools; the others are programs named tarn-COMMAND.
COMMANDS = {
    "start here": {
        "quickstart": "generate a data set and train on it with a fleet on this machine",
    },
    "train": {
        "launch": "start a fleet for one job, on this machine or on several; also with your own program as worker",
        "checkpoint": "request a checkpoint of a running job",
        "report": "write report.html of a run",
        "generate": "generate click-through data in the Criteo format with a known best AUC",
        "accuracy": "train the examples in every mode of consistency and compare them with reference results",
    },
    "experiment": {
        "lab": "compare training algorithms in simulated time",
        "simulate": "run one job in simulated time",
        "replay": "repeat a recorded run to the bit",
    },
    "use trained parameters": {
        "inspect": "list, show, verify, print, convert and export checkpoints",
        "predict": "score the rows of a file with an export",
    },
    "start processes by hand": {
        "scheduler": "the scheduler of a job",
        "server": "a server, which stores parameters",
        "worker": "a worker, which trains a built-in model",
        "keys": "generate the key file of a fleet that communicates over TCP",
    },
}
TOOLS = ("quickstart", "launch", "report", "accuracy", "predict", "lab", "replay")

INTRODUCTION = """\
usage: tarn COMMAND [ARGUMENT...]

tarn is a parameter server: servers hold the tables of a model that outgrows one machine, workers pull rows and push
gradients. `tarn COMMAND --help` explains a command.
"""
FIRST_STEPS = """\
first steps:

  tarn quickstart                                     1 million rows, a factorization machine: minutes on two cores
  tarn launch job.toml                                your own job; see `tarn launch --help`
  tarn launch job.toml -- python3 train.py            your program as each worker, which joins by tarn.connect()
  tarn inspect list runs/mine                         the checkpoints of a run
"""


def introduction() -> str:
    width = max(len(name) for group in COMMANDS.values() for name in group)
    groups = [
        "\n".join([f"{title}:", *(f"  {name:<{width}}  {about}" for name, about in group.items())])
        for title, group in COMMANDS.items()
    ]
    return "\n".join([INTRODUCTION, "\n\n".join(groups), "", FIRST_STEPS])


def run_program(name: str, arguments: list[str]) -> NoReturn:
    """Replaces this process by the program. In a package, adapts the program's help, which names the tools of a
    checkout."""
    path = PROGRAMS / f"tarn-{name}"
    if not os.access(path, os.X_OK):
        sys.exit(f"tarn: no program {path}" + ("" if ROOT == PACKAGE else f": build it with {ROOT}/tools/build"))
    if ROOT == PACKAGE and ("-h" in arguments or "--help" in arguments):
        shown = subprocess.run([path, *arguments], capture_output=True, text=True, check=False)
        print(re.sub(r"\btools/(checkpoint|inspect|lab|launch|replay)\b", r"tarn \1", shown.stdout), end="")
        print(shown.stderr, end="", file=sys.stderr)
        sys.exit(shown.returncode)
    os.execv(path, [str(path), *arguments])


def run_tool(name: str, arguments: list[str]) -> int:
    sys.path.insert(0, str(ROOT / "tools"))
    return int(importlib.import_module(f"tarn_tools.{name}").main(arguments) or 0)


def main(argv: list[str] | None = None) -> int:
    name, *arguments = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if name in ("-h", "--help", "help"):
        print(introduction(), end="")
        return 0
    if name == "--version":
        import tarn

        print(f"tarn {tarn.__version__}")
        return 0
    if not any(name in group for group in COMMANDS.values()):
        known = ", ".join(command for group in COMMANDS.values() for command in group)
        print(f"tarn: unknown command {name!r}; expected one of {known}", file=sys.stderr)
        return 2
    return run_tool(name, arguments) if name in TOOLS else run_program(name, arguments)
