"""The command tools/replay."""

import argparse
import pathlib
import subprocess
import sys

from tarn_tools import called, fleet, launch_options, summary
from tarn_tools.errors import message

PROGRAM = "tools/replay"
ABOUT = """Repeats a run to the bit, also one that was asynchronous, and compares the result with that of the run. The run
must have been started with --record:

  tools/launch JOB.toml --record --run-dir runs/mine
  tools/replay runs/mine

The repetition takes place in one process on this machine, which needs the same data and the same kind of processor: each
shard applies pushes and answers pulls in the recorded order, and each worker gets the same data as in the run.

With --until the replay follows the recording for that many samples. Then the job continues in simulated time, with the
changes of --set. In this way several algorithms continue from the same parameters. The update rule can change only
between rules without state, such as from sgd:

  tools/replay runs/mine --until 50000 --set optimizer.kind=staleness_aware_sgd --out runs/other"""
ENDING = """Runs that a record does not determine are rejected: runs of user programs, on a GPU, with a cache of rows in
the workers (worker_cache, push_every, train.hot_rows), with rows that expire by the time of day, that were stopped, or
in which a process died. --until also needs pushes that are applied when they arrive (asp, or ssp with
apply = "immediate").

exit status: 0 the result is equal, or with --until the job is done; 1 it differs, or the run cannot be repeated;
2 bad usage; 4 with --until, training diverged"""

# Fields of summary.json that follow from the record.
COMPARED = ("status", "reason", "parameters_hash", "samples", "train_logloss", "eval_logloss", "eval_auc", "eval_accuracy",
            "staleness_histogram", "gradient_delay_histogram")
COMPARED_DIVERGED = ("status",)  # the others depend on which worker reported first
EXIT_OK, EXIT_DIFFERS, EXIT_USAGE, EXIT_DIVERGED = 0, 1, 2, 4
SHOWN_CHARS = 60


class CannotRepeat(Exception):
    """The run cannot be repeated; the message has the reason."""


def check(run_dir):
    """The summary of a run that can be repeated. Raises CannotRepeat."""
    record = summary.read(run_dir / "summary.json")
    if not record:
        raise CannotRepeat(f"{run_dir}: no summary.json is in it: expected the folder of a run that has ended")
    if not (run_dir / "record").is_dir():
        raise CannotRepeat(f"{run_dir}: this run was not recorded: expected one of tools/launch --record")
    if record.get("status") not in ("done", "diverged"):
        raise CannotRepeat(f"{run_dir}: this run is '{record.get('status')}': expected one that ended by itself, done or diverged")
    if record.get("workers_died"):
        raise CannotRepeat(f"{run_dir}: {record['workers_died']} of its workers died; the messages that they lost are not recorded")
    return record


def new_folder(run_dir):
    """The first folder of RUN_DIR/replay, replay-2, ... that does not exist."""
    number = 1
    while (folder := run_dir / ("replay" if number == 1 else f"replay-{number}")).exists():
        number += 1
    return folder


def shown(value):
    text = str(value)
    return text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS] + " ..."


def differences(run, repeated):
    """(key, value in the run, value in the repetition) of what should be equal and is not."""
    keys = COMPARED_DIVERGED if run["status"] == "diverged" else COMPARED
    return [(key, run.get(key), repeated.get(key)) for key in keys if run.get(key) != repeated.get(key)]


def show_continued(out, options):
    record = summary.read(out / "summary.json")
    if not options.quiet:
        keys = ("eval_auc", "eval_logloss", "parameters_hash")
        figures = [f"{key} {record[key]}" for key in keys if record.get(key) is not None]
        print(f"continued after {options.until:,} samples: {', '.join(figures)}")
    return EXIT_OK


def repeat(run_dir, out, options):
    run = check(run_dir)
    bin_dir = launch_options.find_programs(options, ["tarn-simulate"])
    command = [bin_dir / "tarn-simulate", "--replay", run_dir, "--run-dir", out, *(["--quiet"] if options.quiet else [])]
    if options.until is not None:
        command += ["--until", str(options.until)]
    for override in options.overrides:
        command += ["--set", override]
    done = subprocess.run(command, preexec_fn=fleet.dies_with_us())
    if options.until is not None:
        return show_continued(out, options) if done.returncode == EXIT_OK else done.returncode
    if done.returncode not in (EXIT_OK, EXIT_DIVERGED):
        return EXIT_DIFFERS
    differ = differences(run, summary.read(out / "summary.json"))
    for key, before, now in differ:
        print(f"{called.here(PROGRAM)}: {key} differs: {shown(before)} in the run, {shown(now)} when repeated", file=sys.stderr)
    if not differ and not options.quiet:
        print(f"equal: {'diverged' if run['status'] == 'diverged' else 'parameters_hash ' + run['parameters_hash']}")
    return EXIT_DIFFERS if differ else EXIT_OK


@called.interruptible(PROGRAM)
def main(argv):
    parser = argparse.ArgumentParser(prog=called.here(PROGRAM), description=called.here(ABOUT), epilog=called.here(ENDING),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", metavar="RUN_DIR", help="folder of the recorded run")
    parser.add_argument("--out", metavar="DIR", help="new folder for the repetition's files (default: RUN_DIR/replay)")
    parser.add_argument("--until", type=int, metavar="SAMPLES", help="follow the recording only for this many samples, then continue the job")
    parser.add_argument("--set", action="append", default=[], metavar="section.key=value", dest="overrides",
                        help="with --until: override a key of the job from there on; may be repeated")
    parser.add_argument("--quiet", action="store_true", help="print only differences and errors")
    parser.add_argument("--bin-dir", metavar="DIR", help="folder of the programs (default: build them)")
    options = parser.parse_args(argv)
    if options.overrides and options.until is None:
        parser.error("--set needs --until SAMPLES, from which on it changes the job")
    if options.until is not None and options.until < 1:
        parser.error(f"--until {options.until}: expected at least 1")
    run_dir = pathlib.Path(options.run)
    try:
        return repeat(run_dir, pathlib.Path(options.out) if options.out else new_folder(run_dir), options)
    except (CannotRepeat, OSError) as error:
        print(f"{called.here(PROGRAM)}: {called.here(message(error))}", file=sys.stderr)
        return EXIT_DIFFERS
    except subprocess.CalledProcessError as error:
        print(f"{called.here(PROGRAM)}: the programs cannot be built:\n{error.stdout or ''}", end="", file=sys.stderr)
        return EXIT_DIFFERS
