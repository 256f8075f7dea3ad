"""Trains jobs with fleets on this machine, for benches."""

import json
import pathlib
import shlex
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


def keep_on_cores(built, folder, cores):
    """Writes scripts to `folder` that start the programs of `built`. cores: {program: cores}; each process of a program
    stays on one of them, by its --rank in turns. Without cores it may use all."""
    for name, of_ranks in cores.items():
        lines = ["#!/bin/sh"]
        command = shlex.quote(str(pathlib.Path(built, name).resolve()))
        if of_ranks:
            lines.append('core=; rank=0; last=; for word; do [ "$last" = --rank ] && rank=$word; last=$word; done')
            choices = " ".join(f"{i}) core={core} ;;" for i, core in enumerate(of_ranks))
            lines.append(f"case $((rank % {len(of_ranks)})) in {choices} esac")
            command = f"taskset -c $core {command}"
        script = pathlib.Path(folder, name)
        script.write_text("\n".join([*lines, f'exec {command} "$@"', ""]), encoding="utf-8")
        script.chmod(0o755)
