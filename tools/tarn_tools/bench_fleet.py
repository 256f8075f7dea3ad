"""Trains jobs with fleets on this machine, for benches."""

import json
import pathlib
import subprocess
import sys

from tarn_tools import launch_options


def train(bench, job, sets, run_dir, *options):
    """The summary of a run in `run_dir`. sets: ["section.key=value"]; options: more options of tools/launch. If the
    fleet fails, ends the bench with the launcher's output."""
    command = [launch_options.ROOT / "tools/launch", job, "--quiet", "--run-dir", run_dir, *options]
    command += [word for each in sets for word in ("--set", each)]
    done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        sys.exit(f"{bench}: {' '.join(map(str, command))} ended with exit code {done.returncode}:\n{done.stdout}")
    return json.loads(pathlib.Path(run_dir, "summary.json").read_text(encoding="utf-8"))
