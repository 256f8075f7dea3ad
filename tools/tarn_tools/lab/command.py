"""The command tools/lab."""

import argparse
import csv
import fcntl
import json
import os
import pathlib
import signal
import subprocess
import sys

from tarn_tools import called, launch_options
from tarn_tools.errors import message
from tarn_tools.lab import page, results, runs, search
from tarn_tools.lab.algorithms import ALGORITHMS
from tarn_tools.lab.study import StudyError, read
from tarn_tools.new_folder import new_folder

PROGRAM = "tools/lab"
ABOUT = """Compares training algorithms. LAB.toml names a job, the algorithms, seeds, conditions and a grid of settings
(docs/lab.md). Each combination is a trial: a run of the job, by default in simulated time, which repeats to the bit.
Trials run several at a time; an interrupted study continues where it was.

  tools/lab examples/lab/stragglers.toml
  tools/lab --list                          the algorithms: name, hook, paper, keys"""
ENDING = """Writes into DIR: comparison.html (open it in a browser), results.json, measured.html and measured.json
(processor time), comparison.csv, trials.csv, trials.parquet if pyarrow is installed, table.tex, and in trials/ a run
folder for each trial.

exit status: 0 all trials ended, diverged ones included; 1 some failed; 2 bad usage or bad LAB.toml; 130 interrupted"""


def parse(argv):
    parser = argparse.ArgumentParser(prog=called.here(PROGRAM), description=ABOUT, epilog=ENDING,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", metavar="LAB.toml", nargs="?")
    parser.add_argument("--list", action="store_true", help="list the algorithms, one a line, and exit")
    parser.add_argument("--out", metavar="DIR", help="folder of the results (default: runs/lab/NAME)")
    parser.add_argument("--jobs", type=int, metavar="N", default=0, help="trials at a time (default: one for each core; real runs: 1)")
    parser.add_argument("--plan", action="store_true", help="list the trials and exit")
    parser.add_argument("--bin-dir", metavar="DIR", help="folder of the programs (default: build them)")
    options = parser.parse_args(argv)
    if not options.list and options.study is None:
        parser.error("expected a LAB.toml, or --list")
    if options.jobs < 0:
        parser.error(f"--jobs {options.jobs}: expected at least 1")
    return options


def show(line, outcome):
    """Shows the progress: on a terminal, updates one line and prints a line for each failure; else a line per trial."""
    if sys.stdout.isatty():
        if outcome.status == "failed":
            print(f"\r\x1b[Kfailed: {outcome.trial.label}: {outcome.reason}")
        print(f"\r\x1b[K{line}", end="", flush=True)
    else:
        print(f"{line}: {outcome.trial.label}: {outcome.status}{': ' + outcome.reason if outcome.reason else ''}", flush=True)


def write_csv(path, rows):
    keys = list(dict.fromkeys(key for row in rows for key in row))
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, keys)
        writer.writeheader()
        writer.writerows(rows)


def flat(record, left_out=("curve", "overrides", "staleness_histogram", "gradient_delay_histogram")):
    """A record as a row of a table, without `left_out`; the members of a nested dict become columns KEY.MEMBER."""
    row = {}
    for key, value in record.items():
        if key in left_out:
            continue
        if isinstance(value, dict):
            row.update({f"{key}.{inner}": item for inner, item in value.items()})
        else:
            row[key] = value
    return row


def write_parquet(path, rows):
    """Writes the file if pyarrow is installed; returns whether it is."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        return False
    keys = list(dict.fromkeys(key for row in rows for key in row))
    columns = {key: [row.get(key) for row in rows] for key in keys}
    columns = {key: [None if value is None else str(value) for value in values]
               if len({float if type(value) is int else type(value) for value in values if value is not None}) > 1 else values
               for key, values in columns.items()}
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return True


def write_all(out, found, outcomes, command):
    (out / "results.json").write_text(json.dumps(found, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    times = [{**{key: trial[key] for key in ("condition", "algorithm", "seed", "quality")}, "folder": f"trials/{outcome.trial.folder}",
              **runs.measured(outcome)} for trial, outcome in zip(found["trials"], outcomes)]
    (out / "measured.json").write_text(json.dumps(times, indent=1) + "\n", encoding="utf-8")
    (out / "measured.html").write_text(page.measured_page(found, times), encoding="utf-8")
    trials = [flat(record) for record in found["trials"]]
    write_csv(out / "trials.csv", trials)
    write_csv(out / "comparison.csv", [flat(row) for row in found["comparison"]])
    write_parquet(out / "trials.parquet", trials)
    (out / "table.tex").write_text(page.latex(found, command), encoding="utf-8")
    (out / "comparison.html").write_text(page.page(found, command), encoding="utf-8")


def summary(found):
    """The comparison for a terminal."""
    lines = []
    width = max(len(row["algorithm"]) for row in found["comparison"])
    for condition in found["conditions"]:
        lines.append(f"{condition or found['name']}: {page.METRIC_NAMES[found['metric']]}, median of {len(found['seeds'])} seeds")
        for row in (row for row in found["comparison"] if row["condition"] == condition):
            quality = "-" if row["quality"] is None else f"{row['quality']['median']:.4f}"
            if row["quality"] is not None and row["quality"]["n"] < row["seeds"]:
                quality += f" ({row['quality']['n']} of {row['seeds']} seeds)"
            when = "" if row["seconds"] is None else f"  {row['seconds']['median']:8.3g}{' simulated' if found['engine'] == 'simulated' else ''} s"
            size = "" if row["bytes"] is None else f"  {page.size(row['bytes']['median']):>8}"
            bad = f"  {row['diverged']} diverged" if row["diverged"] else ""
            bad += f"  {row['failed']} failed" if row["failed"] else ""
            point = "" if not row["point"] else f"  {page.point_text(row['point'])}"
            lines.append(f"  {row['algorithm']:<{width}}  {quality}{when}{size}{bad}{point}")
    return "\n".join(lines)


def make_data(study, folder):
    """Generates the job's data if it is missing. Raises StudyError if the folder has other data."""
    if study.generate is None:
        return
    arguments = [text for key, value in study.generate.items() for text in (f"--{key}", str(value))]

    def generate(out, *more):
        done = subprocess.run([folder / "tarn-generate", *arguments, "--out", out, *more], capture_output=True, text=True)
        return (done.stderr.strip() or f"exit code {done.returncode}") if done.returncode else ""

    if not study.data_dir.is_dir():
        print(f"data: generating {study.data_dir}", flush=True)
        with new_folder(study.data_dir) as part:
            if failure := generate(part):
                raise StudyError(f"{study.path}: lab.generate: {failure}")
    if difference := generate(study.data_dir, "--check"):
        raise StudyError(f"{study.path}: lab.generate: {difference}. Remove {study.data_dir}, name another folder as data.dir of the "
                         "job, or remove lab.generate")


def bin_dir(options, engine):
    of_engine = ["tarn-simulate"] if engine == "simulated" else ["tarn-scheduler", "tarn-server", "tarn-worker"]
    options.quiet = False
    return launch_options.find_programs(options, ["tarn-generate", *of_engine]).resolve()


def count(study):
    """The maximum number of trials of a study."""
    if study.search:
        return study.search["points"] * len(study.conditions) * len(study.entries) * len(study.seeds)
    return len(study.trials())


def plan(study):
    for trial in study.trials():  # with a search, one for each condition, algorithm and seed
        print(trial.label)
    if study.search:
        print(f"each with {study.search['points']} points of [search]: {count(study)} trials at most")


def run(options):
    study = read(options.study)
    if options.plan:
        plan(study)
        return 0
    out = pathlib.Path(options.out or f"runs/lab/{study.name.replace(' ', '_')}")
    folder = bin_dir(options, study.engine)
    make_data(study, folder)
    (out / "trials").mkdir(parents=True, exist_ok=True)
    lock = open(out / "lock", "w", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise StudyError(f"{out}: another study writes there; wait for it, or choose another folder with --out") from error
    jobs = options.jobs or (len(os.sched_getaffinity(0)) if study.engine == "simulated" else 1)
    print(f"{study.name}: {count(study)} trials, {jobs} at a time, in {out}", flush=True)

    def run_trials(trials, where=""):
        return runs.Queue(study, out.resolve(), folder, jobs).run(trials, lambda line, outcome: show(where + line, outcome))

    outcomes = search.run(study, run_trials) if study.search else run_trials(study.trials())
    if sys.stdout.isatty():
        print("\r\x1b[K", end="")
    found = results.of_study(study, outcomes)
    write_all(out, found, outcomes, f"{called.here(PROGRAM)} {options.study}")
    print(summary(found))
    print(f"comparison  {out / 'comparison.html'}")
    failed = [outcome for outcome in outcomes if outcome.status == "failed"]
    for outcome in failed[:5]:
        print(f"{called.here(PROGRAM)}: {outcome.trial.label}: {outcome.reason}", file=sys.stderr)
    if failed:
        print(f"{called.here(PROGRAM)}: {len(failed)} of {len(outcomes)} trials failed; the next run of the same study tries them again",
              file=sys.stderr)
    return 1 if failed else 0


def main(argv):
    options = parse(argv)
    if options.list:
        print("\n".join(algorithm.line() for algorithm in ALGORITHMS))
        return 0
    for name in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(name) != signal.SIG_IGN:  # nohup
            signal.signal(name, signal.default_int_handler)
    try:
        return run(options)
    except KeyboardInterrupt:
        print(f"\n{called.here(PROGRAM)}: interrupted; the same command continues", file=sys.stderr)
        return 130
    except (StudyError, OSError, subprocess.CalledProcessError) as error:
        print(f"{called.here(PROGRAM)}: {message(error)}", file=sys.stderr)
        return 2
