"""What tools/launch was asked to do: its command line, the folder of the run and the programs."""

import argparse
import os
import pathlib
import subprocess
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ("tarn-scheduler", "tarn-server", "tarn-worker")

HELP_EPILOG = """\
Ctrl-C (or SIGTERM) stops cleanly: the scheduler cuts a checkpoint and ends the fleet; a second one kills it.
A dead worker is started again, fleet.worker_restarts times at most; a dead server or scheduler fails the run.

exit codes  0 the run finished or was stopped cleanly    1 it failed
            2 bad usage or bad job                       130 killed by a second Ctrl-C
"""


def parse_arguments(argv):
    parser = argparse.ArgumentParser(
        prog="tools/launch",
        description="Trains one job with a scheduler, servers and workers on this machine.",
        epilog=HELP_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("job", nargs="?", metavar="JOB.toml", help="the job; with --resume, that run's own by default")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="section.key=value",
        dest="overrides",
        help="overrides one key of the job; may be repeated",
    )
    parser.add_argument("--resume", metavar="RUN_DIR", help="goes on from that run's newest whole checkpoint")
    parser.add_argument("--run-dir", metavar="DIR", help="where the run leaves its files (runs/<job>-<UTC time>)")
    parser.add_argument("--bin-dir", metavar="DIR", help="where the programs are (build/release/bin, built if missing)")
    parser.add_argument("--quiet", action="store_true", help="only failures and the result")
    parser.add_argument("--plain", action="store_true", help="lines instead of one updating line")
    options = parser.parse_args(argv)
    if options.job is None and options.resume is None:
        parser.error("JOB.toml is missing")
    if options.job is None:
        options.job = os.path.join(options.resume, "job.toml")
    if not os.path.isfile(options.job):
        parser.error(f"no such job file: {options.job}")
    if options.resume and not os.path.isdir(options.resume):
        parser.error(f"no such run: {options.resume}")
    return options


def read_toml(path):
    """The file's contents; empty if it is no TOML: the scheduler says what is wrong with a job."""
    try:
        return tomllib.loads(pathlib.Path(path).read_text())
    except (OSError, ValueError):
        return {}


def job_name(options):
    name = read_toml(options.job).get("job", {}).get("name", "job")
    for override in options.overrides:
        key, _, value = override.partition("=")
        if key.strip() == "job.name":
            name = value.strip().strip("\"'")
    kept = "".join(c if c.isalnum() or c in "-_." else "-" for c in str(name)).lstrip(".")
    return kept or "job"


def make_run_dir(options):
    """The new folder of this run, with logs/ in it."""
    if options.run_dir:
        path = pathlib.Path(options.run_dir)
        if path.exists() and any(path.iterdir()):
            raise FileExistsError(f"{path} is not empty: a run needs a folder of its own")
        (path / "logs").mkdir(parents=True)
        return path
    base = f"{job_name(options)}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    for attempt in range(1, 1000):
        path = pathlib.Path("runs") / (base if attempt == 1 else f"{base}-{attempt}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        (path / "logs").mkdir()
        return path
    raise FileExistsError(f"runs/{base} and 998 more exist")


def find_programs(options):
    """The folder of the three programs; builds them where the default one lacks them."""
    folder = pathlib.Path(options.bin_dir) if options.bin_dir else ROOT / "build/release/bin"
    missing = [name for name in PROGRAMS if not os.access(folder / name, os.X_OK)]
    if missing and not options.bin_dir:
        subprocess.run([ROOT / "tools/build", "release", *PROGRAMS], check=True)
    elif missing:
        raise FileNotFoundError(f"no program {missing[0]} in {folder}")
    return folder
