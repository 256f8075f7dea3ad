"""tools/report: one self-contained page about a run, made from metrics.jsonl, summary.json and job.toml.

Sections without data are omitted.
"""

import argparse
import html
import json
import pathlib
import sys
import time

from tarn_tools import called, charts, series, stages, summary
from tarn_tools.progress import duration, figure, number

CSS = pathlib.Path(__file__).with_name("report.css").read_text(encoding="utf-8")
STAGES = ("read", "plan", "pull", "compute", "push", "wait")
STAGES_AHEAD = ("read", "plan")
NO_STAGES = ("room", "flight", "wall")  # these times overlap with the stages
EPOCH_SETS = (("train", "training"), ("valid", "validation"), ("test", "test"))
EPOCH_SCORES = (("logloss", "log-loss"), ("auc", "AUC"), ("accuracy", "accuracy"))
# CSS classes of a status: a run that was stopped is neither a success nor a failure.
TONES = {"done": "good", "finished": "good", "stopped": "halted", "unfinished": "halted"}
WORKERS_DRAWN = 32
MARKS_MAX = 40  # epochs of which a chart shows where each began
STAGE_NAMES = {"read": "read ahead", "plan": "plan ahead", "pull": "await pulls", "wait": "await data"}


def tile(name, value, under=""):
    name, value, under = html.escape(name), html.escape(value), html.escape(under)
    return f"<div class=tile><span>{name}</span><b>{value}</b><small>{under}</small></div>"


def joined(*texts, by=", "):
    """Joins the texts that are not empty."""
    return by.join(text for text in texts if text)


def headline(record):
    """The numbers that a reader looks for first."""
    if trained_nothing(record):
        return ""

    def text(key, form):
        value = number(record, key)
        return None if value is None else form.format(value)

    seconds, best = number(record, "seconds"), text("best_possible_auc", "best possible {:.4f}")
    pulled, pushed = number(record, "pull_bytes"), number(record, "push_bytes")
    bound = text("staleness_bound", "bound {:.0f}") if record.get("mode") == "ssp" else None
    largest = text("staleness_max", "max {:.0f}")
    tiles = [
        *((f"{name}, reported", figure(value), "last, mean of the workers") for name, value in
          (record.get("reported") or {}).items()),
        (
            "Samples a second",
            text("samples_per_second", "{:,.0f}"),
            joined(text("samples", "{:,.0f}"), seconds is not None and f"in {duration(seconds)}", by=" "),
        ),
        ("AUC, held out", text("eval_auc", "{:.4f}"), best),
        ("Log-loss, held out", text("eval_logloss", "{:.4f}"), text("train_logloss", "training {:.4f}")),
        ("Accuracy, held out", text("eval_accuracy", "{:.4f}"), None),
        ("Staleness, mean", text("staleness_mean", "{:.2f}"), joined(largest, bound)),
        ("Gradient delay, mean", text("gradient_delay_mean", "{:.2f}"), text("gradient_delay_max", "max {:.0f}")),
        (
            "Pulled",
            None if pulled is None else summary.byte_count(pulled),
            None if pushed is None else f"{summary.byte_count(pushed)} pushed",
        ),
        ("Worker cache", summary.cache_text(record), None),
        ("Hot rows", summary.hot_text(record), None),
        ("Malformed lines", summary.malformed_text(record), None),
        (
            "Gradients skipped",
            text("rows_not_finite", "{:,.0f}") if record.get("rows_not_finite") else None,
            "infinite or NaN values: their rows were skipped",
        ),
        ("Gradients discarded", summary.discarded_text(record), None),
        ("Batches passed over", summary.passed_over_text(record), None),
        (
            "Workers died",
            text("workers_died", "{:.0f}") if record.get("workers_died") else None,
            text("batches_repeated", "{:.0f} batches repeated"),
        ),
    ]
    return (
        "<div class=tiles>"
        + "".join(tile(name, value, under or "") for name, value, under in tiles if value)
        + "</div>"
    )


def average(record, key, form):
    value = number(record, key)
    return None if value is None else "mean " + form.format(value)


def finished_epochs(record):
    return [entry for entry in record.get("epochs") or [] if isinstance(entry, dict)]


def validation(metrics, record, score, axis):
    """[(x, score)] of the validation set, each where its epoch's training ended."""
    epochs = finished_epochs(record)
    if not epochs:  # of a run that did not finish: from its metrics
        points = metrics.scheduler(f"valid_{score}", axis)
        return [point for i, point in enumerate(points) if i == 0 or point[1] != points[i - 1][1]]
    ends = metrics.epoch_ends(len(epochs), number(record, "train_rows"), axis)
    scored = [(ends.get(int(entry.get("epoch", i + 1))), epoch_score(entry, "valid", score)) for i, entry in enumerate(epochs)]
    return [(x, y) for x, y in scored if x is not None and y is not None]


def epoch_marks(metrics, record, axis):
    """[(x, "epoch 2"), ...]: where each epoch but the first began."""
    begun = min(metrics.epochs_begun(), MARKS_MAX)
    ends = metrics.epoch_ends(begun - 1, number(record, "train_rows"), axis)
    return [(x, f"epoch {epoch + 1}") for epoch, x in ends.items()]


def learning_charts(metrics, record):
    drawn = []
    for axis, x_title in (("samples", "samples"), ("time", "seconds")):
        for title, key, score in (("Log-loss", "loss", "logloss"), ("AUC", "auc", "auc")):
            training, held_out = metrics.by_epoch(key, axis), validation(metrics, record, score, axis)
            if not training and key == "auc":  # a model of several classes has no AUC
                continue
            drawn.append(
                charts.line_chart(
                    f"{title}, by {axis}",
                    [("training, mean of the epoch", training), ("validation", held_out)],
                    x_title,
                    y_format=lambda v: f"{v:.4g}",
                    note=f"training, last {training[-1][1]:.4f}" if training else None,
                    marks=epoch_marks(metrics, record, axis),
                )
            )
    drawn.append(
        charts.line_chart(
            "Samples a second",
            [("samples/s", metrics.throughput())],
            "seconds",
            from_zero=True,
            note=average(record, "samples_per_second", "{:,.0f}"),
        )
    )
    drawn.append(
        charts.line_chart(
            "Staleness, mean so far",
            [("clocks", metrics.scheduler("staleness_mean", "time"))],
            "seconds",
            from_zero=True,
        )
    )
    return drawn


def reported_charts(metrics):
    """One chart for each name that programs have reported."""
    return [
        charts.line_chart(name, [("mean of the workers", points)], "seconds", y_format=lambda v: f"{v:.4g}",
                          note=f"last {points[-1][1]:.5g}")
        for name, points in metrics.reported().items()
    ]


def stage_bars(seconds):
    """The bars of the stages. A share refers to the sequential stages, because reading and planning run in parallel."""
    names = [name for name in STAGES if name in seconds]
    names += [name for name in seconds if name not in STAGES + NO_STAGES]
    times = {name: number(seconds, name) for name in names if number(seconds, name) is not None}
    total = sum(time for name, time in times.items() if name not in STAGES_AHEAD) or 1.0
    shares = {name: "" if name in STAGES_AHEAD else f", {100 * time / total:.0f}%" for name, time in times.items()}
    return [(STAGE_NAMES.get(name, name), time, f"{time:,.1f} s{shares[name]}") for name, time in times.items()]


def histogram_chart(title, unit, histogram, of):
    buckets = [(int(s), n) for s, n in histogram or [] if n >= 0]
    total = sum(n for _, n in buckets)
    columns = [(str(s), n / total) for s, n in sorted(buckets)] if total else []
    return charts.column_chart(title, columns, unit, f"{total:,.0f} {of}" if total else "")


def delay_chart(delays):
    """The mean gradient delay of each worker; of many, those with the largest."""
    largest = sorted(sorted(delays, key=lambda delay: -delay[1])[:WORKERS_DRAWN])
    note = f"mean, the largest {WORKERS_DRAWN} of {len(delays)}" if len(delays) > WORKERS_DRAWN else "mean"
    return charts.bar_chart("Gradient delay by worker", [(f"worker {rank}", mean, f"{mean:.2f}") for rank, mean in largest], note)


def cost_charts(metrics, record):
    drawn = [
        histogram_chart("Measured staleness of pulls", "clocks", record.get("staleness_histogram"), "pulls"),
        histogram_chart("Gradient delay", "sections applied in between", record.get("gradient_delay_histogram"), "sections"),
        charts.bar_chart("Where the workers' time goes", stage_bars(record.get("stage_seconds") or {}), "summed over workers"),
        charts.line_chart(
            "Traffic, bytes a second",
            [("pulled", metrics.rate("pull_bytes")), ("pushed", metrics.rate("push_bytes"))],
            "seconds",
            from_zero=True,
        ),
    ]
    delays = summary.delays_by_worker(record)
    if any(mean for _, mean in delays):
        drawn.insert(2, delay_chart(delays))
    if values := metrics.last_by_node("shard", "rows"):
        total = sum(value for _, value in values) or 1.0
        bars = [(f"shard {node}", value, f"{charts.short(value)}, {100 * value / total:.0f}%") for node, value in values]
        drawn.append(charts.bar_chart("Shards: rows", bars))
    return drawn


def stage_table(record):
    """How busy each stage of the workers was, what it waited for, and what bounds the job."""
    lines = stages.table(record)
    if not lines:
        return ""
    head = "<tr><th>stage</th><th>busy</th><th>waits</th><th>for</th></tr>"
    body = "".join("<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in line) + "</tr>" for line in lines)
    return f"<div class=card><p>{html.escape(stages.sentence(record))}</p><table class=stages>{head}{body}</table></div>"


def epoch_score(entry, data_set, score):
    """A score of one epoch, written as {"valid": {"auc": 0.7}} or as {"valid_auc": 0.7}."""
    scores = entry.get(data_set)
    if isinstance(scores, dict):
        return number(scores, score)
    return number(entry, f"{data_set}_{score}")


def best_possible(record, columns):
    """The last row of the table of epochs: the best possible scores, of the data set of the final scores; else ""."""
    known = {"auc": number(record, "best_possible_auc"), "logloss": number(record, "best_possible_logloss")}
    data_set = {"test": "test", "validation": "valid"}.get(summary.held_out(record))
    cells = [known.get(score) if column_set == data_set else None for column_set, score, _ in columns]
    if not any(cells):
        return ""
    text = "".join(f"<td>{'' if value is None else f'{value:.4f}'}</td>" for value in cells)
    return f"<tr class=possible><td>best possible</td>{text}</tr>"


def epoch_heading(columns):
    """Two rows: the data sets, and the scores of each."""
    groups = []
    for data_set, _, _ in columns:
        if not groups or groups[-1][0] != data_set:
            groups.append([data_set, 0])
        groups[-1][1] += 1
    names = dict(EPOCH_SETS)
    above = "".join(f"<th colspan={count}>{names[data_set]}</th>" for data_set, count in groups)
    below = "".join(f"<th>{name}</th>" for _, _, name in columns)
    return [f"<tr><th rowspan=2>epoch</th>{above}</tr>", f"<tr>{below}</tr>"]


def epoch_table(record):
    epochs = finished_epochs(record)
    columns = [
        (data_set, score, score_name) for data_set, _ in EPOCH_SETS for score, score_name in EPOCH_SCORES
    ]
    columns = [column for column in columns if any(epoch_score(entry, *column[:2]) is not None for entry in epochs)]
    if any(score == "auc" for _, score, _ in columns):
        columns = [column for column in columns if column[1] != "accuracy"]
    if not columns:
        return ""
    rows = epoch_heading(columns)
    best_index = max((index for index, entry in enumerate(epochs) if entry.get("best") is True), default=None)
    for index, entry in enumerate(epochs):
        cells = [epoch_score(entry, data_set, score) for data_set, score, _ in columns]
        text = "".join(f"<td>{'' if value is None else f'{value:.4f}'}</td>" for value in cells)
        best = index == best_index
        label = f"{int(entry.get('epoch', index + 1))}{' (best)' if best else ''}"
        rows.append(f"<tr{' class=best' if best else ''}><td>{label}</td>{text}</tr>")
    rows.append(best_possible(record, columns))
    return "<h2>Evaluation</h2><div class=card><table class=epochs>" + "".join(rows) + "</table></div>"


def details(title, text):
    body = f"<summary>{html.escape(title)}</summary><pre>{html.escape(text)}</pre>"
    return f"<div class=card><details>{body}</details></div>"


def trained_nothing(record):
    return number(record, "samples") == 0


def of_own_programs(record):
    """Whether the workers were programs of the user, whose samples and losses are unknown."""
    return "model" in record and record["model"] is None


def section(title, drawings):
    return f"<h2>{title}</h2><div class=charts>" + "".join(drawing.figure() for drawing in drawings) + "</div>"


def figures(metrics, record):
    """The charts and tables of all that was measured."""
    if trained_nothing(record):
        why = "Nothing was trained" if record.get("status") != "diverged" else "No row was acknowledged before the end"
        return [f"<p class=under>{why}, so there is nothing to draw.</p>"]
    if of_own_programs(record):
        leased = learning_charts(metrics, record) if number(record, "samples") else []
        charted = [("Learning", reported_charts(metrics) + leased), ("Cost", cost_charts(metrics, record))]
        parts = [(title, [drawing for drawing in drawings if drawing.parts]) for title, drawings in charted]
        return [*(section(title, drawings) for title, drawings in parts if drawings), epoch_table(record)]
    return [
        section("Learning", learning_charts(metrics, record)),
        epoch_table(record),
        section("Cost", cost_charts(metrics, record)),
        stage_table(record),
    ]


def page(run_dir):
    record = summary.read(run_dir / "summary.json")
    metrics = series.Metrics.load(run_dir / "metrics.jsonl")
    job = str(record.get("job") or run_dir.name)
    status = str(record.get("status") or "unfinished")
    tone = TONES.get(status, "bad")
    about = [summary_text for name, summary_text in summary.rows(record) if name in ("fleet", "mode")]
    if metrics.start:
        about.append(time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(metrics.start)))
    reason = record.get("reason") if tone == "bad" or record.get("reason") != status else None
    reason = None if tone == "good" else reason
    body = [
        f'<h1>{html.escape(job)} <span class="badge {tone}">{html.escape(status)}</span></h1>',
        f"<p class=under>{html.escape(' · '.join(about))}</p>",
        f'<p class="reason {tone}">{html.escape(str(reason))}</p>' if reason else "",
        headline(record),
        *figures(metrics, record),
        "<h2>Files</h2>",
    ]
    try:
        body.append(details("job.toml", (run_dir / "job.toml").read_text()))
    except OSError:
        pass
    body.append(details("summary.json", json.dumps(record, indent=2)))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(job)} · tarn</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{charts.CSS}{CSS}</style></head>'
        f"<body><main>{''.join(body)}</main></body></html>\n"
    )


def write(run_dir):
    """Writes report.html into the folder of a run and returns its path. Raises OSError."""
    run_dir = pathlib.Path(run_dir)
    path = run_dir / "report.html"
    path.write_text(page(run_dir), encoding="utf-8")
    return path


def main(argv):
    parser = argparse.ArgumentParser(
        prog=called.here("tools/report"), description="Writes RUN_DIR/report.html from the files of a run."
    )
    parser.add_argument("run_dir", metavar="RUN_DIR")
    options = parser.parse_args(argv)
    run_dir = pathlib.Path(options.run_dir)
    if not any((run_dir / name).exists() for name in ("summary.json", "metrics.jsonl")):
        parser.error(f"no run in {run_dir}: neither summary.json nor metrics.jsonl")
    try:
        print(write(run_dir))
    except OSError as error:
        print(f"{called.here('tools/report')}: {error}", file=sys.stderr)
        return 1
    return 0
