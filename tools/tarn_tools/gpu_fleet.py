"""The part of bench/gpu that measures fleets with a GPU worker on this machine."""

import dataclasses
import json
import math
import os
import pathlib
import shutil
import sys
import tempfile

from tarn_tools import bench, gpu_programs, gpu_table, launch_options, stages, summary

HOT_STALENESS = 10_000  # clocks; more than a run has, so that each row is pulled once
SECONDS = 20  # seconds of measurement for a fleet that reaches its target
SECONDS_MAX = 90  # seconds of a fleet, including its start; a slower one is stopped, and its result until then is used
STEADY_SECONDS_MIN = 3
LINE_SECONDS = 1  # between two lines of a fleet in metrics.jsonl


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes of the job that a fleet trains."""

    batch: int = 65536
    rows: int = 1 << 23  # rows per epoch: nearly a second at the highest target, so that the end of an epoch matters little
    target: bool = True  # true: as many epochs as needed to measure at the target; false: two
    dim: int = 128
    bottom: tuple = (512, 256)
    hidden: tuple = (1024, 1024, 512, 256)
    hot_rows: int = 24_000_000  # more than the data should have keys; the note reports the hit rate

    def epochs(self, name):
        """The epochs of the fleet with this name: the first one, with cold caches, and the measured ones."""
        if not self.target:
            return 2
        at_least = next(row.at_least for row in gpu_table.PARTS["fleet"] if row.name == name)
        return 1 + math.ceil(at_least * (SECONDS + 2 * LINE_SECONDS) / self.rows)


TINY = Sizes(batch=64, rows=256, target=False, dim=4, bottom=(8,), hidden=(8,), hot_rows=10_000)


def precision_of(options):
    return "fp32" if options.device == "cpu" else "bf16"


def joined(sizes):
    """(512, 256) -> "512,256"."""
    return ",".join(map(str, sizes))


def job_text(name, options, sizes, data, hot_rows):
    """The job of a fleet: DLRM in MLPerf's shape on generated rows."""
    return f"""\
[job]
name = "{name.replace('.', '-')}"
[fleet]
servers = {options.servers}
shards = {options.shards}
workers = {options.workers}
[consistency]
mode = "ssp"
staleness = {HOT_STALENESS if hot_rows else 8}
own_pushes = "bounded"
[storage]
durability = "none"
checkpoint_final = false
[data]
dir = {json.dumps(str(data))}
format = "criteo"
train = "train.tsv"
bins = ["none"]
dense_integers = true
split_rows = {8 * sizes.batch}
[model]
kind = "dlrm"
embedding_dim = {sizes.dim}
bottom = [{joined(sizes.bottom)}]
hidden = [{joined(sizes.hidden)}]
[train]
batch_rows = {sizes.batch}
epochs = {sizes.epochs(name)}
device = "{options.device}"
precision = "{precision_of(options)}"
prefetch = 4
hot_rows = {hot_rows}
[optimizer]
kind = "row_wise_adagrad"
learning_rate = 0.02
[optimizer.dense]
kind = "sgd"
learning_rate = 0.01
[tables.embedding]
pull_codec = "bf16"
push_codec = "bf16"
"""


def steady_lines(text):
    """The first and last line of metrics.jsonl between which a fleet is measured; nothing if there are too few.

    Begins with the second epoch: in the first one programs start, data is opened, matrix product algorithms are measured
    and the hot-row cache is cold. Ends with the last line before the last sample, whose exact time is unknown."""
    records = [json.loads(line) for line in text.splitlines() if '"scheduler"' in line]
    trained = [record for record in records if record.get("samples")]
    lines = [record for record in trained if record["epoch"] >= 2 and record["samples"] < trained[-1]["samples"]]
    return (lines[0], lines[-1]) if len(lines) > 1 else None


def steady_rate(text):
    """Samples per second between the lines of steady_lines(); None if the time is too short."""
    first, last = steady_lines(text) or ({"time": 0}, {"time": 0})
    seconds = last["time"] - first["time"]
    return (last["samples"] - first["samples"]) / seconds if seconds >= STEADY_SECONDS_MIN else None


def figure_of(name, options, sizes, run_dir, ended=False):
    """The figure of a fleet from its files. ended: it was stopped at its time limit."""
    record = summary.read(run_dir / "summary.json")
    metrics = run_dir / "metrics.jsonl"
    found = steady_rate(metrics.read_text()) if metrics.exists() else None
    whole = None if ended else record.get("samples_per_second")
    if not found and not whole:
        raise bench.Failed("its files have no throughput")
    bound = stages.bound(record)
    asked = record.get("hot_rows") or 0
    note = [] if found else ["with its start, too short without"]
    note += [f"{whole:,.0f} samples/s over all"] if whole else ["ended before it was done"]
    note += [f"bound by {bound[0]}: {bound[1]}"] if bound else []
    note += [f"{100 * record['hot_hits'] / asked:.1f}% of rows found"] if asked else []
    return {
        "name": name,
        "value": found or whole,
        "unit": "samples/s",
        "settings": {"device": options.gpu, "batch": sizes.batch, "dim": sizes.dim, "samples": record.get("samples"),
                     "servers": options.servers, "shards": options.shards, "workers": options.workers},
        "cores": len(os.sched_getaffinity(0)),
        "note": "; ".join(note),
    }


def train(name, command, options, sizes, run_dir, seconds=math.inf):
    """The figure of a fleet that is done, or that was stopped because it was too slow."""
    try:
        gpu_programs.run(command, options, lambda line: None, min(SECONDS_MAX, seconds))
    except gpu_programs.Late as late:
        try:
            return figure_of(name, options, sizes, run_dir, ended=True)
        except bench.Failed:
            raise late
    return figure_of(name, options, sizes, run_dir)


def measure(options, results):
    sizes = TINY if options.tiny else Sizes()
    sizes = dataclasses.replace(sizes, batch=options.batch or sizes.batch)
    with tempfile.TemporaryDirectory(prefix="tarn-gpu-") as scratch:
        scratch = pathlib.Path(scratch)
        generate = [options.bin_dir / "tarn-generate", "--out", scratch / "data", "--valid", 0, "--test", 0]
        gpu_programs.run([*generate, "--rows", sizes.rows], options, lambda line: None)

        def train_one(what, seconds):
            name, hot_rows = what
            job, run_dir = scratch / f"{name}.toml", scratch / name
            job.write_text(job_text(name, options, sizes, scratch / "data", hot_rows))
            command = [sys.executable, launch_options.ROOT / "tools/launch", job, "--bin-dir", options.bin_dir, "--run-dir", run_dir]
            try:
                results.add(train(name, [*command, "--quiet"], options, sizes, run_dir, seconds))
            except bench.Failed as failure:
                raise bench.Failed(f"{name}: {failure}; its logs: {options.out / 'logs' / name}") from failure
            finally:
                keep_logs(run_dir, options.out / "logs" / name)

        gpu_programs.each(options, (("fleet.hot", sizes.hot_rows), ("fleet.pulled", 0)), train_one)


def keep_logs(run_dir, folder):
    """Copies the logs, metrics.jsonl and summary.json of a fleet to `folder`; its run directory is temporary."""
    if (run_dir / "logs").is_dir():
        shutil.copytree(run_dir / "logs", folder, dirs_exist_ok=True)
        for name in ("metrics.jsonl", "summary.json"):
            if (run_dir / name).exists():
                shutil.copy(run_dir / name, folder)
