"""summary.json of a run, and the table of results that tools/launch prints from it."""

import json
import os
import pathlib
import shlex

from tarn_tools import called, stages
from tarn_tools.progress import duration, number, reported_text

FROM_METRICS = (  # of the scheduler's line of metrics.jsonl
    "samples",
    "samples_per_second",
    "staleness_mean",
    "staleness_max",
    "gradient_delay_mean",
    "gradient_delay_max",
    "pull_bytes",
    "push_bytes",
    "cache_rows",
    "cache_hits",
    "refreshed_rows",
    "hot_rows",
    "hot_hits",
    "combined_pushes",
    "batches_passed_over",
    "malformed_lines",
    "rows_not_finite",
    "gradients_discarded",
    "gradient_delay_sum",
    "gradient_delay_count",
    "stage_seconds",
    "cpu_seconds",
    "workers_died",
)
# Unknown, although 0 in the summary, if no sample was trained.
MEASURED = ("samples_per_second", "staleness_mean", "staleness_max", "pull_bytes", "push_bytes")
FROM_SCHEDULER = ("eval_auc", "eval_logloss", "eval_accuracy", "parameters_hash")  # known only at the end


def read(path):
    """summary.json as a dict; empty if it is missing or damaged."""
    try:
        with open(path, encoding="utf-8") as file:
            record = json.load(file)
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def version(path):
    """A value that differs after the file has been written again, which replaces it; None if it does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def complete(record, job, latest):
    """The summary of a run whose scheduler could not write one, from job.toml and the newest line of metrics.

    Every field of a summary exists, null if unknown; fields of `record` are kept.
    """
    fleet, consistency = job.get("fleet", {}), job.get("consistency", {})
    mode = consistency.get("mode")
    applies = {"bsp": "aggregated", "ssp": "immediate", "asp": "immediate"}  # the default
    bounds = {"bsp": 0, "ssp": consistency.get("staleness")}
    known = {
        "job": job.get("job", {}).get("name"),
        "model": job.get("model", {}).get("kind"),
        "seed": job.get("job", {}).get("seed"),
        "mode": mode,
        "apply": consistency.get("apply", applies.get(mode)),
        "staleness_bound": bounds.get(mode),
        "train_logloss": latest.get("loss"),
    }
    known |= {key: fleet.get(key) for key in ("servers", "shards", "workers")}
    known |= {key: latest.get(key) for key in FROM_METRICS}
    known |= dict.fromkeys(FROM_SCHEDULER)
    return known | record


def byte_count(value):
    """1536 -> "1.5 kB"."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if abs(value) < 1000:
            return f"{value:,.0f} {unit}" if unit == "bytes" else f"{value:,.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"


def counted(count, noun):
    """1, "server" -> "1 server"; 2, "server" -> "2 servers"."""
    return f"{count:,.0f} {noun}{'' if count == 1 else 's'}"


def fleet_text(servers, shards, workers):
    """2, 2, 1 -> "2 servers with 2 shards each, 1 worker"."""
    return f"{counted(servers, 'server')} with {counted(shards, 'shard')} each, {counted(workers, 'worker')}"


def share_text(record, asked_key, found_key):
    """{"asked": 200, "found": 50} -> "25.0% of 200 rows"; None if there were no look-ups."""
    asked, found = number(record, asked_key) or 0, number(record, found_key) or 0
    return f"{100 * found / asked:.1f}% of {asked:,.0f} rows" if asked else None


def hot_text(record):
    """The share of look-ups in the hot-row caches that found the row; None without look-ups."""
    return share_text(record, "hot_rows", "hot_hits")


def bound_text(record):
    found = stages.bound(record)
    return f"{found[0]}: {found[1]}" if found else None


def passed_over_text(record):
    """How many batches were not pushed because their gradients did not fit fp16; None without any."""
    batches = number(record, "batches_passed_over") or 0
    return f"{batches:,.0f} (their gradients do not fit fp16)" if batches else None


def malformed_text(record):
    """How often training has skipped a line of its files; None if it never did."""
    lines = number(record, "malformed_lines") or 0
    return f"{lines:,.0f}, skipped (in the workers' logs)" if lines else None


def not_finite_text(record):
    """How many gradients changed nothing since they had infinite or NaN values; None without any."""
    rows = number(record, "rows_not_finite") or 0
    return f"{rows:,.0f}, infinite or NaN: their rows were skipped (see the servers' logs)" if rows else None


def discarded_text(record):
    """How many gradients the update rule or the consistency policy discarded; None without any."""
    gradients = number(record, "gradients_discarded") or 0
    return f"{gradients:,.0f}, which came too late" if gradients else None


def delays_by_worker(record):
    """[(rank, mean gradient delay)] of the workers whose pushes were counted, by rank."""
    sums, counts = record.get("gradient_delay_sum") or {}, record.get("gradient_delay_count") or {}
    return sorted((int(rank), sums.get(rank, 0) / count) for rank, count in counts.items() if count)


def delay_text(record):
    """"mean 2.83, max 9, by worker 1.20 to 5.04"; the last part if workers differ."""
    means = [mean for _, mean in delays_by_worker(record)]
    least, most = min(means, default=0), max(means, default=0)
    mean, largest = number(record, "gradient_delay_mean"), number(record, "gradient_delay_max")
    parts = [
        None if mean is None else f"mean {mean:.2f}",
        None if largest is None else f"max {largest:.0f}",
        f"by worker {least:.2f} to {most:.2f}" if least != most else None,
    ]
    return ", ".join(part for part in parts if part) or None


def not_kept_text(record):
    """Which epoch is the best and has no checkpoint; None if it has one, or the job keeps none."""
    if record.get("best_kept") is not False:
        return None
    kept = "best_checkpoint is of an earlier one" if record.get("best_checkpoint") else "there is no best_checkpoint"
    return f"epoch {number(record, 'best_epoch'):.0f} could not be kept: {kept} (logs/scheduler-0.log)"


def cache_text(record):
    """{"cache_rows": 200, "cache_hits": 50} -> "25.0% of 200 rows"; None if no worker has a cache or combines pushes."""
    combined, refreshed = number(record, "combined_pushes") or 0, number(record, "refreshed_rows") or 0
    parts = [
        share_text(record, "cache_rows", "cache_hits"),
        f"{refreshed:,.0f} refreshed" if refreshed else None,
        f"{combined:,.0f} pushes combined" if combined else None,
    ]
    return ", ".join(part for part in parts if part) or None


def held_out(record):
    """The data set of the final scores: "test", "validation" if there is no test set, or "eval" if neither is known."""
    if number(record, "test_rows"):
        return "test"
    return "validation" if number(record, "valid_rows") else "eval"


def loss_text(record):
    """The training log-loss. A run that is done has none if all of its batches were passed over; then the text has this
    reason."""
    loss = number(record, "train_logloss")
    if loss is not None:
        return f"{loss:.4f}"
    unknown = record.get("status") == "done" and "train_logloss" in record and number(record, "samples")
    return "none: no batch was pushed" if unknown else None


def best_text(record):
    """Which epoch the log-losses and scores are of, and its checkpoint; None with fewer than two epochs."""
    best, epochs = number(record, "best_epoch"), len(record.get("epochs") or [])
    if best is None or epochs < 2:
        return None
    kept = record.get("best_checkpoint") or ""
    newest = record.get("checkpoint") or kept
    if pathlib.Path(kept).parent == pathlib.Path(newest).parent:  # else it is of the run that this one resumed
        kept = pathlib.Path(kept).name
    return f"{best:.0f} of {epochs}{kept and f' ({kept})'}: its losses and scores follow"


def rows(record):
    """(name, text) pairs for a summary; fields that it lacks are left out."""

    def get(key, text="{:,.0f}"):
        value = number(record, key)
        return None if value is None else text.format(value)

    def joined(*parts):
        kept = [part for part in parts if part]
        return ", ".join(kept)

    mode = record.get("mode")
    if mode == "ssp":
        mode = joined("ssp", get("staleness_bound", "bound {:.0f}"))
    seconds, pulled, pushed = (number(record, key) for key in ("seconds", "pull_bytes", "push_bytes"))
    if number(record, "samples") == 0:  # what was never measured is not zero
        record = {key: value for key, value in record.items() if key not in MEASURED}
        pulled = pushed = None
    best, scored = number(record, "best_possible_auc"), held_out(record)
    fleet = [number(record, key) for key in ("servers", "shards", "workers")]
    return [
        (name, text)
        for name, text in [
            ("status", record.get("status")),
            (
                "fleet",
                None if None in fleet else fleet_text(*fleet),
            ),
            ("mode", joined(mode, record.get("apply"))),
            ("samples", get("samples")),
            ("time", None if seconds is None else duration(seconds) if seconds >= 60 else f"{seconds:.1f} s"),
            ("samples/s", get("samples_per_second")),
            ("best epoch", best_text(record)),
            ("train log-loss", loss_text(record)),
            (
                f"{scored} AUC",
                joined(get("eval_auc", "{:.4f}"), best and f"best possible {best:.4f}") if get("eval_auc") else None,
            ),
            (f"{scored} log-loss", get("eval_logloss", "{:.4f}")),
            (f"{scored} accuracy", get("eval_accuracy", "{:.4f}")),
            ("reported", reported_text(record)),
            ("best epoch", not_kept_text(record)),
            ("staleness", joined(get("staleness_mean", "mean {:.2f}"), get("staleness_max", "max {:.0f}"))),
            ("gradient delay", delay_text(record)),
            (
                "traffic",
                joined(
                    None if pulled is None else byte_count(pulled) + " pulled",
                    None if pushed is None else byte_count(pushed) + " pushed",
                ),
            ),
            ("worker cache", cache_text(record)),
            ("hot rows", hot_text(record)),
            ("bound by", bound_text(record)),
            ("malformed lines", malformed_text(record)),
            ("batches passed over", passed_over_text(record)),
            ("gradients skipped", not_finite_text(record)),
            ("gradients discarded", discarded_text(record)),
            ("workers died", get("workers_died") if record.get("workers_died") else None),
            ("batches repeated", get("batches_repeated") if record.get("batches_repeated") else None),
            ("parameters", record.get("parameters_hash")),
        ]
        if text
    ]


def complete_checkpoints(run_dir):
    """The manifests of the run's checkpoints, oldest first, without copies that a user has made beside them."""
    found = [path for path in run_dir.glob("checkpoints/ckpt-*/MANIFEST") if path.parent.name[5:].isdecimal()]
    return sorted(found, key=lambda path: int(path.parent.name[5:]))


def resumable(record, run_dir):
    """(folder to resume from, overrides) of a run that is not done; None if it has left nothing.

    A diverged run continues from its best checkpoint, whose evaluation was finite, else its newest, with a smaller
    learning rate.
    """
    checkpoints = complete_checkpoints(run_dir)
    status = record.get("status")
    if status in ("stopped", "failed") and ((run_dir / "scheduler.state").exists() or checkpoints):
        return run_dir, ()
    if status == "diverged":
        best = pathlib.Path(record.get("best_checkpoint") or "") / "MANIFEST"  # may be of the run that this one resumed
        start = best if record.get("best_checkpoint") and best.is_file() else next(reversed(checkpoints), None)
        return start and (start.parent, ("optimizer.learning_rate=SMALLER",))
    return None


def resume_command(start, *overrides):
    return shlex.join([*called.words("launch"), "--resume", str(start), *(word for text in overrides for word in ("--set", text))])


def table(record, run_dir, page, go_on=resume_command):
    """The whole table, with the paths of the run and the report and, for a run that is not done, the command that
    continues it: go_on(folder, *overrides)."""
    lines = rows(record) + [("run", str(run_dir))]
    if page is not None:
        lines.append(("report", str(page)))
    if (start := resumable(record, run_dir)) is not None:
        lines.append(("go on", go_on(start[0], *start[1])))
    width = max(len(name) for name, _ in lines)
    return "\n".join(["", str(record.get("job", "job"))] + [f"  {name:<{width}}  {text}" for name, text in lines])
