"""tools/quickstart after the build: makes a data set and trains the example on it."""

import argparse
import os
import pathlib
import subprocess
import sys

from tarn_tools import called, launch, launch_options
from tarn_tools.new_folder import new_folder

GENERATE = "tarn-generate"
DATA = pathlib.Path("data/criteo-1m")
ROWS = ("--rows", "1000000", "--valid", "50000", "--test", "100000", "--seed", "7", "--profile", "criteo")
JOB = called.ROOT / "examples/criteo-fm.toml"

DESCRIPTION = """\
Generates 1 million rows of click-through data in data/criteo-1m below the current folder (about 300 MB), trains a
factorization machine on it with 1 scheduler, 2 servers with 2 shards each and 2 workers on this machine, and prints the
result and the path of the report (in runs/). A second run uses the same data.

Options are passed to tools/launch:
  tools/quickstart --set consistency.mode=asp
"""


def parse_arguments(argv):
    parser = argparse.ArgumentParser(
        prog=called.here("tools/quickstart"),
        usage=called.here("tools/quickstart [LAUNCH OPTION...]"),
        description=called.here(DESCRIPTION),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    options = parser.parse_known_args(argv)[1]
    jobs = [word for word in options if word.endswith(".toml") and "=" not in word]
    if jobs or (options and not options[0].startswith("-")):
        parser.error(f"{(jobs or options)[0]}: expected only options of {called.here('tools/launch')}, which trains other jobs: "
                     f"{called.here('tools/launch')} JOB.toml")
    run_dir = launch_options.parse_arguments([str(JOB), *options]).run_dir  # exits on an error
    try:
        if run_dir:
            launch_options.require_empty(pathlib.Path(run_dir))
    except OSError as error:
        parser.error(str(error))
    return options


def check(argv):
    """Exits with an error for options that tools/launch does not have, before anything takes long."""
    parse_arguments(argv)


def make_data(bin_dir):
    if DATA.is_dir():
        done = subprocess.run([bin_dir / GENERATE, *ROWS, "--out", DATA, "--check"], capture_output=True, text=True)
        if done.returncode:
            why = done.stderr.strip() or f"exit code {done.returncode}"
            raise OSError(f"{DATA} is not the data of the quickstart: {why}. Remove that folder")
        print(f"    {DATA} is there already")
        return
    with new_folder(DATA) as part:
        subprocess.run([bin_dir / GENERATE, *ROWS, "--out", part], check=True)


def data_setting():
    """The --set arguments that point data.dir of the job to DATA; empty if it does already, as in a checkout's root."""
    job_data = (JOB.parent / launch_options.read_toml(JOB)["data"]["dir"]).resolve()
    return [] if job_data == DATA.resolve() else ["--set", f"data.dir={DATA}"]


@called.interruptible("tools/quickstart")
def main(argv):
    options = parse_arguments(argv)
    try:
        print("==> data: 1,000,000 rows to train on, 50,000 to validate, 100,000 to test", flush=True)
        make_data(launch_options.find_programs(argparse.Namespace(bin_dir=None, quiet=True), [GENERATE]))
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"{called.here('tools/quickstart')}: {error}", file=sys.stderr)
        return 1
    print(f"==> training {os.path.relpath(JOB)}: 1 scheduler, 2 servers with 2 shards each, 2 workers (Ctrl-C stops cleanly)",
          flush=True)
    return launch.main([str(JOB), *data_setting(), *options])
