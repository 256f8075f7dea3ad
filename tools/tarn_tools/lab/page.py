"""The comparison as a page, and as a LaTeX table."""

import bisect
import html
import json
import math
import pathlib
import statistics

from tarn_tools import charts
from tarn_tools.lab.results import FLIPS, PAIRS_MAX

CSS = pathlib.Path(__file__).parents[1].joinpath("report.css").read_text(encoding="utf-8")
LINES_MAX = 12  # series of a chart
METRIC_NAMES = {"auc": "AUC", "logloss": "log-loss", "accuracy": "accuracy"}


def classes(index):
    """The classes of the n-th series: six colours, then the same ones dashed."""
    return charts.colour(index) + (" dashed" if index >= 6 else "")


def size(value):
    return "" if value is None else charts.short(value, " ") + "B"


def spread(value, form):
    """Median and range: "0.7881 (0.7875–0.7890)"."""
    if value is None:
        return "–"
    if value["n"] == 1 or value["low"] == value["high"]:
        return form(value["median"])
    return f"{form(value['median'])} <small>{form(value['low'])}–{form(value['high'])}</small>"


def score(value):
    return f"{value:.4f}"


def seconds(value):
    return f"{value:.3g}"


def at_edge(results, row):
    """Whether the chosen point has the lowest or highest value that was tried of a key of the grid: the best may lie
    beyond. False for a search, which proposes values anywhere within its bounds."""
    if results["search"]:
        return False
    tried = [trial["point"] for trial in results["trials"]
             if (trial["condition"], trial["algorithm"]) == (row["condition"], row["algorithm"])]
    for key, value in row["point"].items():
        values = {point[key] for point in tried}
        if len(values) > 1 and all(isinstance(each, (int, float)) and not isinstance(each, bool) for each in values) and value in (min(values), max(values)):
            return True
    return False


def point_text(point):
    return ", ".join(f"{key.rsplit('.', 1)[-1]} {value}" for key, value in point.items()) or "–"


def difference(row):
    if row["difference"] is None:
        return "–"
    p = "" if row["p"] is None else f" <small>p {row['p']:.2g}</small>"
    return f"{row['difference']:+.4f}{p}"


def target_cell(row, key, form):
    if row[key] is None:
        return "not reached"
    seeds = row["seeds"]
    reached = "" if row["reached_target"] >= seeds else f" <small>{row['reached_target']} of {seeds}</small>"
    return spread(row[key], form) + reached


def is_best(row, rows, more_is_better):
    """Whether no row shows a better median. Rows that show the same digits are equal. A row that lacks seeds, which have
    diverged or failed, is not compared."""
    def is_whole(row):
        return row["quality"] and row["quality"]["n"] == row["seeds"]

    if not is_whole(row):
        return False
    medians = [other["quality"]["median"] for other in rows if is_whole(other)]
    return score(row["quality"]["median"]) == score(max(medians) if more_is_better else min(medians))


def table(results, rows):
    simulated, target = results["engine"] == "simulated", results["target_loss"]
    heads = ["algorithm", "at", f"{METRIC_NAMES[results['metric']]}", f"against {results['baseline']}", "train log-loss"]
    heads += ["simulated s" if simulated else "s", "traffic"]
    if target is not None:
        heads += [f"s to loss {target:g}", "traffic to it"]
    heads += ["staleness", "gradient delay", "diverged"]
    if any(row["failed"] for row in rows):
        heads.append("failed")
    lines = ["<tr>" + "".join(f"<th>{html.escape(head)}</th>" for head in heads) + "</tr>"]
    for row in rows:
        edge = " <small>edge of the grid</small>" if at_edge(results, row) else ""
        some = "" if row["quality"] is None or row["quality"]["n"] == row["seeds"] else f" <small>{row['quality']['n']} of {row['seeds']} seeds</small>"
        cells = [html.escape(row["algorithm"]), html.escape(point_text(row["point"])) + edge, spread(row["quality"], score) + some, difference(row),
                 spread(row["train_logloss"], score)]
        cells += [spread(row["seconds"], seconds), spread(row["bytes"], size)]
        if target is not None:
            cells += [target_cell(row, "seconds_to_target", seconds), target_cell(row, "bytes_to_target", size)]
        mean = row["gradient_delay_mean"]
        cells += ["–" if row["staleness_mean"] is None else f"{row['staleness_mean']:.2f}",
                  "–" if mean is None else f"{mean:.1f} <small>max {row['gradient_delay_max']}</small>",
                  f"{row['diverged']} of {row['trials']}" if row["diverged"] else "0"]
        if "failed" in heads:
            cells.append(str(row["failed"]))
        best = " class=best" if is_best(row, rows, results["metric"] != "logloss") else ""
        lines.append(f"<tr{best}>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return "<div class=card><table>" + "".join(lines) + "</table></div>"


def chosen(results, row):
    """The finished trials of a row at its point."""
    return [trial for trial in results["trials"]
            if (trial["condition"], trial["algorithm"], trial["point"]) == (row["condition"], row["algorithm"], row["point"])
            and trial["status"] == "done"]


def mean_curve(trials, axis):
    """[(x, loss)]: means of the seeds' curves at equal shares of the samples."""
    curves = [trial["curve"] for trial in trials if trial["curve"] and trial["curve"][-1][1] > 0]
    count = min((len(curve) for curve in curves), default=0)
    points = [[_at_share(curve, (i + 1) / count) for curve in curves] for i in range(count)]
    return [tuple(sum(point[key] for point in of_all) / len(of_all) for key in (axis, 3)) for of_all in points]


def _at_share(curve, share):
    """The point of a curve at this share of its samples, between its points on a straight line."""
    samples = share * curve[-1][1]
    index = bisect.bisect_left(curve, samples, key=lambda point: point[1])
    if index == 0 or curve[index][1] == samples:
        return curve[index]
    before, behind = curve[index - 1], curve[index]
    part = (samples - before[1]) / (behind[1] - before[1])
    return [a + part * (b - a) for a, b in zip(before, behind)]


def curve_chart(results, rows, title, axis, x_title, x_format):
    series = [(row["algorithm"], mean_curve(chosen(results, row), axis), classes(index))
              for index, row in enumerate(rows[:LINES_MAX])]
    return charts.line_chart(title, series, x_title, x_format=x_format)


def grid_chart(results, condition):
    """Validation score by the value of the first key of each grid, if that is a number: mostly the learning rate. With
    more keys, at the best of their values. Points with a trial that diverged or failed are left out."""
    names = {next(iter(trial["point"])).rsplit(".", 1)[-1] for trial in results["trials"] if trial["point"]}
    if not names:
        return charts.Drawing("")
    key, series = " or ".join(sorted(names)), []
    for index, algorithm in enumerate(results["algorithms"][:LINES_MAX]):
        by_point, by_value = {}, {}
        for trial in results["trials"]:
            if (trial["condition"], trial["algorithm"]) == (condition, algorithm["name"]):
                by_point.setdefault(tuple(trial["point"].values()), []).append(trial["choice"])
        for (value, *_), scores in ((point, scores) for point, scores in by_point.items() if point):
            if isinstance(value, (int, float)) and value > 0 and None not in scores:
                by_value.setdefault(value, []).append(sum(scores) / len(scores))
        best = min if results["metric"] == "logloss" else max
        line = [(math.log10(value), best(means)) for value, means in sorted(by_value.items())]
        series.append((algorithm["name"], line, classes(index)))
    values = sorted({x for _, line, _ in series for x, _ in line})
    if len(values) < 2:
        return charts.Drawing("")
    return charts.line_chart(f"validation {METRIC_NAMES[results['metric']]} by {key}", series, key,
                             x_format=lambda x: charts.short(10**x), x_ticks=values)


def delay_chart(results, rows, name, title, x_title):
    """Shares of pulls or sections by staleness or delay; values above the 98th percentile are left out."""
    series = []
    for index, row in enumerate(rows[:LINES_MAX]):
        buckets = {}
        for trial in chosen(results, row):
            for value, count in trial[f"{name}_histogram"] or []:
                buckets[value] = buckets.get(value, 0) + count
        total, seen, line = sum(buckets.values()), 0, []
        if not total:
            continue
        for value in range(max(buckets, default=0) + 1):
            if seen > 0.98 * total:
                break
            seen += buckets.get(value, 0)
            line.append((value, buckets.get(value, 0) / total))
        if len(line) == 1:
            line.append((1, 0.0))
        series.append((row["algorithm"], line, classes(index)))
    return charts.line_chart(title, series, x_title, y_format=lambda y: f"{100 * y:.3g}%", from_zero=True)


def section(results, condition):
    rows = [row for row in results["comparison"] if row["condition"] == condition]
    settings = ", ".join(f"{key} = {value}" for key, value in results["conditions"][condition].items())
    head = f"<h2>{html.escape(condition or 'Comparison')}</h2>"
    if settings:
        head += f"<p class=under>{html.escape(settings)}</p>"
    if len(rows) > LINES_MAX:
        head += f"<p class=under>The charts show the first {LINES_MAX} of {len(rows)} algorithms.</p>"
    drawings = [
        curve_chart(results, rows, "training loss by samples", 1, "samples", charts.short),
        curve_chart(results, rows, f"training loss by {'simulated ' if results['engine'] == 'simulated' else ''}seconds", 0, "seconds", charts.short),
        curve_chart(results, rows, "training loss by traffic", 2, "bytes", lambda x: charts.short(x, " ") + "B"),
        grid_chart(results, condition),
        delay_chart(results, rows, "staleness", "staleness of pulls", "clocks"),
        delay_chart(results, rows, "gradient_delay", "gradient delay", "sections applied between pull and push"),
    ]
    return head + table(results, rows) + '<div class="charts" style="margin-top:14px">' + "".join(
        drawing.figure() for drawing in drawings if drawing.parts) + "</div>"


def failures(results):
    lines = [f"<tr><td>{html.escape(trial['condition'] + ' ' + trial['algorithm'])}</td><td>{html.escape(point_text(trial['point']))}</td>"
             f"<td>{trial['seed']}</td><td>{trial['status']}</td><td style='text-align:left;white-space:normal'>{html.escape(trial['reason'])}</td></tr>"
             for trial in results["trials"] if trial["status"] != "done"]
    if not lines:
        return ""
    head = "<tr><th>algorithm</th><th>at</th><th>seed</th><th>status</th><th style='text-align:left'>reason</th></tr>"
    return "<h2>Trials that diverged or failed</h2><div class=card><table>" + head + "".join(lines) + "</table></div>"


def method(results):
    seeds = len(results["seeds"])
    chosen_text = ""
    if any(trial["point"] for trial in results["trials"]):
        chosen_text = ("Each algorithm is shown at the point of its grid with the best mean validation score; the choice "
                       "does not use the test set. ")
    test = (f"a sign-flip test with {FLIPS:,} random flips, which cannot be below {1 / (FLIPS + 1):.1g}" if seeds > PAIRS_MAX else
            f"an exact sign-flip test, which with {seeds} pairs cannot be below {2 ** (1 - seeds):.2g}")
    target = results["target_loss"]
    target_text = "" if target is None else f"The target is a training loss of {target:g}, as a mean of five points of the curve. "
    return (f"<h2>Method</h2><p>Median and range over {seeds} seeds. {chosen_text}{target_text}Differences from "
            f"{html.escape(results['baseline'])} are means of pairs with equal seeds; p is that of {test}. Staleness is in "
            "clocks; the gradient delay is the number of sections that were applied to a partition between a pull and its push; their charts leave out values above the "
            "98th percentile.</p>")


def document(title, body):
    return (f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title} · tarn</title>'
            f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{charts.CSS}{CSS}main {{ max-width: 1480px; }} th, td {{ padding: 7px 9px; }} td small {{ color: var(--soft); '
            "font-size: 12px; display: block; }</style></head>"
            f"<body><main>{''.join(body)}</main></body></html>\n")


def measured_page(results, measured):
    """Quality and training loss against processor seconds. Unlike the comparison, this page differs when a study is
    repeated. `measured`: runs.measured() of each trial, with its folder."""
    name = html.escape(results["name"])
    body = [f"<h1>{name}: processor time</h1>", "<p class=under>medians over the seeds, of the processes of a trial; the time at which a "
            "loss was reached is assumed to be proportional to the samples</p>"]
    of_folder = {each["folder"]: each for each in measured}
    for condition in results["conditions"]:
        rows = [row for row in results["comparison"] if row["condition"] == condition]
        lines, scaled = [], []
        for row in rows:
            trials = chosen(results, row)
            cells = [html.escape(row["algorithm"]), spread(row["quality"], score)]
            for key, form in (("cpu_seconds", seconds), ("wall_seconds", seconds), ("peak_mib", lambda value: f"{value:.0f} MiB")):
                values = [of_folder[trial["folder"]][key] for trial in trials if of_folder[trial["folder"]].get(key) is not None]
                cells.append(form(statistics.median(values)) if values else "–")
            lines.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
            for trial in trials:
                cpu, samples = of_folder[trial["folder"]].get("cpu_seconds"), trial["samples"]
                if cpu and samples:
                    curve = [[point[1] / samples * cpu, *point[1:]] for point in trial["curve"]]
                    scaled.append({**trial, "curve": curve})
        head = "".join(f"<th>{text}</th>" for text in ("algorithm", METRIC_NAMES[results["metric"]], "CPU s", "wall s", "memory"))
        drawing = curve_chart({**results, "trials": scaled}, rows, "training loss by processor seconds", 0, "CPU seconds", charts.short)
        figure = f'<div style="margin-top:14px; max-width: 720px">{drawing.figure()}</div>' if drawing.parts else ""
        body.append(f"<h2>{html.escape(condition or 'Comparison')}</h2><div class=card><table><tr>{head}</tr>{''.join(lines)}</table></div>{figure}")
    return document(f"{name}: processor time", body)


def page(results, command):
    name = html.escape(results["name"])
    counts = f"{len(results['trials'])} trials, {results['engine']} time" if results["engine"] == "simulated" else \
        f"{len(results['trials'])} trials, real time"
    body = [
        f"<h1>{name}</h1>",
        f"<p class=under>{html.escape(results['about'] + ' · ' if results['about'] else '')}{counts}</p>",
        *(section(results, condition) for condition in results["conditions"]),
        failures(results),
        method(results),
        "<h2>Repeat it</h2><div class=card><pre>" + html.escape(
            f"{command}\n# sha256 of the study and its job: {results['sha256']}") + "</pre></div>",
        "<div class=card><details><summary>comparison as JSON</summary><pre>"
        + html.escape(json.dumps(results["comparison"], indent=1)) + "</pre></details></div>",
    ]
    return document(name, body)


def escape_tex(text):
    return "".join({"_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$"}.get(character, character) for character in text)


def _of_seeds(row):
    """" (2/3)" if only two of three seeds have a value."""
    n = row["quality"]["n"]
    return "" if n == row["seeds"] else f" ({n}/{row['seeds']})"


def latex(results, command):
    """A tabular environment for booktabs, one group of rows for each condition."""
    metric, time = METRIC_NAMES[results["metric"]], "simulated s" if results["engine"] == "simulated" else "s"
    lines = [f"% {command}", f"% sha256 of the study and its job: {results['sha256']}", r"\begin{tabular}{llrrrrrr}", r"\toprule",
             rf"& algorithm & {metric} & range & $p$ & {time} & delay & diverged \\"]
    for condition in results["conditions"]:
        lines.append(r"\midrule")
        for index, row in enumerate(row for row in results["comparison"] if row["condition"] == condition):
            quality = row["quality"]
            first = escape_tex(condition) if index == 0 else ""
            value, spread_text = ("--", "--") if quality is None else (f"{quality['median']:.4f}{_of_seeds(row)}", f"{quality['low']:.4f}--{quality['high']:.4f}")
            when = "--" if row["seconds"] is None else f"{row['seconds']['median']:.3g}"
            delay = "--" if row["gradient_delay_mean"] is None else f"{row['gradient_delay_mean']:.1f}"
            p = "--" if row["p"] is None else f"{row['p']:.2g}"
            diverged = f"{row['diverged']} of {row['trials']}" if row["diverged"] else "0"
            lines.append(rf"{first} & {escape_tex(row['algorithm'])} & {value} & {spread_text} & {p} & {when} & {delay} & {diverged} \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])
