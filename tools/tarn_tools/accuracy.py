"""tools/accuracy: trains the examples that have a reference result with real fleets, in every consistency mode."""

import argparse
import math
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from tarn_tools import called, errors, launch_options, summary

LAUNCH = launch_options.ROOT / "tools/launch"
EXAMPLES = launch_options.ROOT / "examples"
EXIT_OK, EXIT_MISSED, EXIT_USAGE, EXIT_SKIPPED = 0, 1, 2, 77
CANNOT_TELL = "cannot tell"
STOP_SECONDS_MAX = 60.0  # from SIGTERM to the end of a launcher

# The reference results: metric of summary.json -> (reference, tolerance). A run is good if it is at most the tolerance
# below the reference. References are results of one thread with batches of one row; a9a: of liblinear with C = 0.1;
# criteo: of PyTorch with the same batches (bench/pytorch_quality).
REFERENCES = {
    "flights-logistic_regression": {"eval_auc": (0.709, 0.003)},
    "flights-fm": {"eval_auc": (0.760, 0.004)},
    "flights-wide_deep": {"eval_auc": (0.763, 0.004)},
    "flights-deepfm": {"eval_auc": (0.769, 0.004)},
    "adult-logistic_regression": {"eval_auc": (0.9175, 0.003)},
    "adult-fm": {"eval_auc": (0.920, 0.003)},
    "adult-deepfm": {"eval_auc": (0.922, 0.003)},
    "a9a-logistic_regression": {"eval_auc": (0.9025, 0.002), "eval_accuracy": (0.8503, 0.002)},
    "agaricus-logistic_regression": {"eval_accuracy": (1.0, 0.0)},
    "fashion-mlp": {"eval_accuracy": (0.892, 0.006)},
    "criteo-dlrm": {"eval_auc": (0.788, 0.003)},
    "criteo-dcn_v2": {"eval_auc": (0.793, 0.003)},
}
SYNCHRONOUS = ["criteo-dlrm", "criteo-dcn_v2"]  # their reference is for bsp and does not apply to delayed gradients
NAMES = {"eval_auc": "AUC", "eval_accuracy": "accuracy"}

MODES = {
    "bsp": ["consistency.mode=bsp", "consistency.apply=aggregated"],
    "ssp": ["consistency.mode=ssp", "consistency.staleness=4", "consistency.apply=immediate"],
    "asp": ["consistency.mode=asp", "consistency.apply=immediate"],
}
FLEET = ["fleet.servers=2", "fleet.workers=4"]
UNORDERED_RUNS = 3  # runs in ssp and asp, whose results differ from run to run; a run in bsp always gives the same bits

ABOUT = """\
Test results of the examples with 4 workers and 2 servers, compared with those of one thread: `bsp` aggregated, `ssp` with
bound 4 and `asp` both immediate. A line of `ssp` and `asp` is the run with the median result of three. ok: no more than
the tolerance below the reference, which is an AUC unless another figure is named. s: seconds of training and evaluation,
which other load on the machine prolongs."""
BESIDE_ABOUT = """\
Test results of the examples with and without `{}`, 4 workers and 2 servers: means of {} seeds, the smallest
and the largest. Difference: the mean over the seeds of the difference of two runs with the same seed, and its standard
error. ok: the mean difference is at most the allowed one, in either direction. "cannot tell": the standard error is
larger than the allowed difference, and the mean exceeds that by at most three standard errors."""

BESIDE_HEADER = """\
| set | model | mode | figure | seeds | without | with | difference | allowed | ok |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"""

HEADER = """\
| set | model | mode | test AUC | log-loss | accuracy | reference | tolerance | ok | s |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"""

AUC_BESIDE = 0.001  # by which --beside may change the metric
SIGNIFICANT_ERRORS = 3  # a difference of this many standard errors is significant for any number of seeds

DESCRIPTION = """\
Trains the examples with 4 workers and 2 servers in bsp (aggregated), ssp (bound 4, immediate) and asp (immediate),
prints their test results as a Markdown table and compares them with the reference results. Results of ssp and asp
differ from run to run: each is trained three times, and the run with the median result counts.

An example without its data is skipped. README.md lists the default folders of the data sets. --data DIR names a folder
with the sets in subfolders: DIR/flights, DIR/adult, DIR/libsvm, DIR/fashion-mnist, DIR/criteo-1m (which tools/quickstart
makes in data/).

With --beside, compares each example with and without that setting instead, with the same seeds. The mean difference may
be up to 0.001 of AUC in either direction, or, without an AUC, the tolerance of the accuracy. With few seeds a difference
may be chance: if its standard error exceeds the tolerance, the table reports that the result is undecided, and how many
seeds should suffice.
"""

EPILOG = """\
  tools/accuracy                                              all, about 7 minutes on 2 cores
  tools/accuracy --mode asp flights-fm                        one of them
  tools/accuracy --mode bsp --beside train.precision=bf16     what bf16 costs
  tools/accuracy --mode bsp --beside train.precision=bf16 --seeds 8 criteo-dlrm

exit codes  0 all within the tolerance or better    1 an example missed it, was undecided or failed
            2 bad usage                             77 no failure, but examples were skipped without data or reference
"""


def parse_arguments(argv):
    parser = argparse.ArgumentParser(
        prog=called.here("tools/accuracy"),
        description=called.here(DESCRIPTION),
        epilog=called.here(EPILOG),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("examples", nargs="*", metavar="EXAMPLE", help="only these examples, such as flights-fm (default: all)")
    parser.add_argument("--mode", action="append", choices=list(MODES), help="only this mode; may be repeated (default: all)")
    parser.add_argument("--list", action="store_true", help="list the examples and exit")
    parser.add_argument("--data", metavar="DIR", help="search the data sets here first, each in its own folder (see above)")
    parser.add_argument("--out", metavar="FILE", help="also write the table to this file, with date, machine and commit")
    parser.add_argument("--bin-dir", metavar="DIR", help="folder of the programs (default: build/release/bin, after a build)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="section.key=value", dest="overrides", help="override a key of every job"
    )
    parser.add_argument(
        "--beside", metavar="section.key=value", help="compare runs with and without this setting"
    )
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="with --beside: runs of each (default: %(default)s)")
    parser.add_argument("--timeout", type=float, default=600, metavar="SECONDS", help="time limit per run (default: %(default)s)")
    parser.set_defaults(quiet=True)  # only the table goes to stdout
    options = parser.parse_args(argv)
    known = list(REFERENCES)
    for name in options.examples:
        if name not in known:
            parser.error(f"no reference for '{name}'; the examples are: {', '.join(known)}")
    if options.data and not os.path.isdir(options.data):
        parser.error(f"--data {options.data}: no such folder")
    if options.out and not pathlib.Path(options.out).absolute().parent.is_dir():
        parser.error(f"--out {options.out}: its folder does not exist")
    if options.seeds < 1:
        parser.error(f"--seeds {options.seeds}: expected at least 1")
    options.all = not options.examples
    options.examples = options.examples or known
    options.mode = options.mode or list(MODES)
    return options


def data_settings(example, options):
    """The --set arguments that point an example's data.dir to --data, if its data set exists; a data.dir of --set has
    precedence."""
    if not options.data:
        return []
    name = pathlib.Path(launch_options.read_toml(EXAMPLES / f"{example}.toml")["data"]["dir"]).name
    folder = pathlib.Path(options.data).absolute() / name
    return [f"data.dir={folder}"] if folder.is_dir() else []


def missing_data(example, options):
    """The first missing data file of an example, or None."""
    path = EXAMPLES / f"{example}.toml"
    settings = [*data_settings(example, options), *options.overrides]
    data = launch_options.overridden(launch_options.read_toml(path), settings)["data"]
    endings = ("-images-idx3-ubyte", "-images-idx3-ubyte.gz") if data["format"] == "idx" else ("",)
    for part in ("train", "valid", "test"):
        files = [path.parent / data["dir"] / (data[part] + ending) for ending in endings if data.get(part)]
        if files and not any(file.exists() for file in files):
            return files[-1].resolve()
    return None


def command(example, mode, run_dir, options, more=()):
    settings = [argument for each in [*FLEET, *MODES[mode], *data_settings(example, options), *options.overrides, *more] for argument in ("--set", each)]
    return [sys.executable, LAUNCH, EXAMPLES / f"{example}.toml", "--quiet", "--plain", "--run-dir", run_dir, "--bin-dir", options.bin_dir, *settings]


def train(example, mode, folder, options, more=()):
    """Runs one fleet. Returns its summary, empty if it failed, and its output."""
    run_dir = pathlib.Path(tempfile.mkdtemp(dir=folder)) / "run"
    process = subprocess.Popen(
        command(example, mode, run_dir, options, more), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        output, _ = process.communicate(timeout=options.timeout)
    except (subprocess.TimeoutExpired, KeyboardInterrupt) as reason:
        process.send_signal(signal.SIGTERM)  # the launcher then ends its fleet
        output, _ = process.communicate(timeout=STOP_SECONDS_MAX)
        if isinstance(reason, KeyboardInterrupt):
            raise
        return {}, f"{output}not done after {options.timeout:.0f} s"
    record = summary.read(run_dir / "summary.json") if process.returncode == 0 else {}
    return (record if record.get("status") == "done" else {}), output


def is_good(example, record):
    """Whether no metric is below its reference by more than the tolerance."""
    slack = 1e-9  # allows for rounding of decimal fractions
    return all(
        (record.get(metric) or 0.0) >= reference - tolerance - slack
        for metric, (reference, tolerance) in REFERENCES[example].items()
    )


def row(example, mode, record, verdict):
    def figure(key, digits=4):
        value = record.get(key)
        return "-" if value is None else f"{value:.{digits}f}"

    references = REFERENCES[example]
    several = len(references) > 1 or "eval_auc" not in references
    name_of = {metric: f"{NAMES[metric]} " if several else "" for metric in references}
    data_set, model = example.split("-", 1)
    cells = [
        data_set,
        model,
        mode,
        figure("eval_auc"),
        figure("eval_logloss"),
        figure("eval_accuracy"),
        ", ".join(f"{name_of[metric]}{reference:g}" for metric, (reference, _) in references.items()),
        f"{next(iter(references.values()))[1]:g}",
        verdict,
        figure("seconds", 1),
    ]
    return f"| {' | '.join(cells)} |"


def run_all(options):
    """Yields a verdict and a line of the table for each example and mode."""
    with tempfile.TemporaryDirectory(prefix="tarn-accuracy-") as folder:
        for example in options.examples:
            missing = missing_data(example, options)
            if missing:
                print(f"SKIP {example}: {missing} is missing", file=sys.stderr, flush=True)
            for mode in options.mode:
                if mode != "bsp" and example in SYNCHRONOUS and not options.beside:
                    print(f"{example}, {mode}: its reference is valid only for bsp", file=sys.stderr, flush=True)
                    continue
                if missing:
                    made = beside_row(example, mode, [], "skipped") if options.beside else row(example, mode, {}, "skipped")
                    yield "skipped", made
                    continue
                if options.beside:
                    yield compare(example, mode, folder, options)
                    continue
                record = middle_run(example, mode, folder, options)
                verdict = "failed" if not record else "yes" if is_good(example, record) else "NO"
                yield verdict, row(example, mode, record, verdict)


def middle_run(example, mode, folder, options):
    """The summary of the run with the median of the example's first metric; empty if a run failed."""
    records = []
    for _ in range(1 if mode == "bsp" else UNORDERED_RUNS):
        record, output = train(example, mode, folder, options)
        if not record:
            print(f"{example}, {mode} failed:\n{output}", file=sys.stderr, flush=True)
            return {}
        records.append(record)
    metric = next(iter(REFERENCES[example]))
    return sorted(records, key=lambda record: record.get(metric) or 0.0)[len(records) // 2]


def allowed_beside(example):
    """The metric of an example that --beside compares, and its allowed change."""
    if "eval_auc" in REFERENCES[example]:
        return "eval_auc", AUC_BESIDE
    return "eval_accuracy", REFERENCES[example]["eval_accuracy"][1]


def compare(example, mode, folder, options):
    """Trains an example with and without options.beside. Returns the verdict and a line of the table."""
    metric, allowed = allowed_beside(example)
    pairs = []
    for seed in range(1, options.seeds + 1):
        pair = []
        for more in ([], [options.beside]):
            record, output = train(example, mode, folder, options, [*more, f"job.seed={seed}"])
            if not record:
                print(f"{example}, {mode} failed:\n{output}", file=sys.stderr, flush=True)
                return "failed", beside_row(example, mode, [], "failed")
            pair.append(record[metric])
        pairs.append(pair)
        print(f"{example}, {mode}, seed {seed}: {pair[0]:.4f} and {pair[1]:.4f}", file=sys.stderr, flush=True)
    verdict, why = judge(pairs, allowed)
    return verdict, beside_row(example, mode, pairs, f"{verdict}{why}")


def difference(pairs):
    """The mean difference of (without, with) pairs and its standard error, which is infinite for one pair."""
    found = [with_it - without for without, with_it in pairs]
    error = statistics.stdev(found) / math.sqrt(len(found)) if len(found) > 1 else math.inf
    return statistics.mean(found), error


def judge(pairs, allowed):
    """Whether the mean difference is within the allowed range: returns "yes", "NO" or CANNOT_TELL, and for the last the
    reason."""
    slack = 1e-9  # allows for rounding of decimal fractions
    mean, error = difference(pairs)
    if math.isinf(error):
        return CANNOT_TELL, ": one seed"
    if abs(mean) - SIGNIFICANT_ERRORS * error > allowed + slack:
        return "NO", ""
    if error > allowed + slack:
        return CANNOT_TELL, f": {seeds_to_tell(error, len(pairs), allowed)} seeds should suffice"
    return ("yes" if abs(mean) <= allowed + slack else "NO"), ""


def seeds_to_tell(error, seeds, allowed):
    """The number of seeds for which the standard error equals the allowed change; it falls with the square root."""
    return math.ceil(seeds * (error / allowed) ** 2 - 1e-9) if allowed else "no number of"


def beside_row(example, mode, pairs, verdict):
    def figure(values):
        return f"{statistics.mean(values):.4f} ({min(values):.4f} to {max(values):.4f})"

    metric, allowed = allowed_beside(example)
    figures = ["-"] * 3
    if pairs:
        without, with_it = zip(*pairs)
        mean, error = difference(pairs)
        figures = [figure(without), figure(with_it), f"{mean:+.4f}" + ("" if math.isinf(error) else f" ± {error:.4f}")]
    cells = [*example.split("-", 1), mode, NAMES[metric], str(len(pairs) or "-"), *figures, f"{allowed:g}", verdict]
    return f"| {' | '.join(cells)} |"


def machine():
    """"2 cores of AMD EPYC 7763", with the number of cores that this process may use."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            model = next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        model = "an unknown processor"
    return f"{len(os.sched_getaffinity(0))} cores of {model}"


def commit():
    done = subprocess.run(
        ["git", "-C", launch_options.ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def page(lines, options):
    chosen = [] if options.all else [*options.examples]
    if options.mode != list(MODES):
        chosen += [f"--mode {mode}" for mode in options.mode]
    arguments = chosen + [f"--set {each}" for each in options.overrides]
    if options.beside:
        arguments += [f"--beside {options.beside}", f"--seeds {options.seeds}"]
    table = "\n".join([BESIDE_HEADER if options.beside else HEADER, *lines])
    return f"""\
# Accuracy of distributed training

{BESIDE_ABOUT.format(options.beside, options.seeds) if options.beside else ABOUT}

- Command: `{" ".join([*called.words("accuracy"), *arguments])}`
- Date: {time.strftime("%Y-%m-%d", time.gmtime())}
- Machine: {machine()}
- Commit: {commit()}

{table}
"""


def main(argv):
    options = parse_arguments(argv)
    if options.list:
        print("\n".join(REFERENCES))
        return EXIT_OK
    try:
        options.bin_dir = launch_options.find_programs(options)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"{called.here('tools/accuracy')}: {getattr(error, 'stdout', None) or errors.message(error)}", file=sys.stderr)
        return EXIT_USAGE
    lines, verdicts = [], set()
    print(BESIDE_HEADER if options.beside else HEADER, flush=True)
    try:
        for verdict, line in run_all(options):
            print(line, flush=True)
            lines.append(line)
            verdicts.add(verdict)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    if options.out:
        pathlib.Path(options.out).write_text(page(lines, options), encoding="utf-8")
    if "skipped" in verdicts:
        print(called.here("tools/accuracy") + ": examples without data were skipped; give the folder of the sets with --data DIR (see --help)",
              file=sys.stderr)
    if verdicts & {"NO", "failed", CANNOT_TELL}:
        return EXIT_MISSED
    return EXIT_SKIPPED if "skipped" in verdicts or not verdicts else EXIT_OK
