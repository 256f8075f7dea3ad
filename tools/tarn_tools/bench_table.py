"""What tools/bench found, as a Markdown table and a picture: each figure of tarn beside its limits and peers."""

import html
import statistics

from tarn_tools import charts

# Columns beside tarn: title -> the figures' names, the first that was measured. {T}: tcp or ipc; {HOST}: tcp, or ipc
# between processes of one host; {OP}: the operation; {WIRE}: the operation whose messages have the same size; {SIZE}:
# 1mb or 16mb; {VERB}: Redis' word for it.
COLUMNS = {
    "raw ZeroMQ": ["zmq.{T}.{WIRE}"],
    "plain sockets": ["socket.{T}.{WIRE}"],
    "shared memory": ["shm.{WIRE}"],
    "row store alone": ["store.{OP}"],
    "array": ["array.{OP}"],
    "memory copy": ["memory.copy_{SIZE}"],
    "ps-lite": ["ps_lite.{HOST}.{OP}"],
    "ps-lite, array": ["ps_lite_array.{HOST}.{OP}"],
    "Redis": ["redis.{T}.{VERB}", "redis.unix.{VERB}"],
    "RocksDB": ["rocksdb.{OP}"],
    "torch, gloo": ["gloo.{T}.{WIRE}"],
    "torch, RPC": ["torch_rpc.{T}.{OP}"],
}
SERVERS = "servers"  # the bench
COLOURS = ["#2f6bd8", "#d9762b", "#23947a", "#8a55c8", "#c23f77", "#7c8494", "#4c9f38", "#b8860b", "#506070",
           "#a05a2c", "#1f9fb4", "#6b7f2a", "#94566f"]
WIDTH, LEFT, RIGHT, BAR, GAP, HEAD = 900, 250, 120, 14, 16, 46


def number(value, unit):
    """12345678, "rows/s" -> "12.3M"; GB and times as they are."""
    return charts.short(value) if unit.endswith("/s") else f"{value:.3g}"


def in_words(line):
    if "skipped" in line:
        return f"{line['name']}: skipped: {line['skipped']}"
    return f"{line['name']}: {number(line['value'], line['unit'])} {line['unit']}"


def by_name(figures):
    """{name: {repetition: value}}, {name: unit}, {name: why it was skipped}."""
    values, units, skipped = {}, {}, {}
    for figure in figures:
        name = figure["name"]
        if "skipped" in figure:
            skipped[name] = figure["skipped"]
        else:
            values.setdefault(name, {})[figure["bench"], figure["repetition"]] = figure["value"]
            units[name] = figure["unit"]
    return values, units, skipped


def beside(name, values):
    """[(title, name)] of what stands beside a figure of tarn."""
    _, transport, operation = name.split(".")
    operation = operation.removesuffix("_planned")
    words = {
        "T": "tcp" if transport in ("shm", "spin") else transport,
        "HOST": "tcp" if transport == "tcp" else "ipc",
        "OP": operation,
        "WIRE": operation.replace("adagrad", "sparse"),
        "SIZE": operation.rsplit("_", 1)[1],
        "VERB": {"sparse_pull": "mget", "sparse_push": "mset"}.get(operation, ""),
    }
    found = []
    for title, patterns in COLUMNS.items():
        names = [pattern.format(**words) for pattern in patterns]
        measured = next((each for each in names if each in values), None)
        if measured:
            found.append((title, measured))
    return found


def spread(series):
    return f"{statistics.median(series):.2f} ({min(series):.2f} to {max(series):.2f})"


def median_and_spread(series, unit):
    around = f" ({number(min(series), unit)} to {number(max(series), unit)})" if len(series) > 1 else ""
    return f"{number(statistics.median(series), unit)}{around} {unit}"


def ratios(ours, other):
    """Of the repetitions that have both."""
    return [ours[key] / other[key] for key in ours if other.get(key)]


def table(head, rows):
    lines = ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]]
    return "\n".join(lines) + "\n"


def comparison(values, units, names):
    """The table of some figures of tarn; columns that none of them has are left out."""
    cells = {name: dict(beside(name, values)) for name in names}
    titles = [title for title in COLUMNS if any(title in row for row in cells.values())]
    rows = []
    for name in names:
        row = [name, median_and_spread(list(values[name].values()), units[name])]
        for title in titles:
            other = cells[name].get(title)
            row.append(spread(ratios(values[name], values[other])) if other else "")
        rows.append(row)
    return table(["figure", "tarn", *(f"/ {title}" for title in titles)], rows)


def of_servers(figures):
    """The figures of the bench "servers", which has each name twice, and the others."""
    parts = [], []
    for figure in figures:
        parts[figure["bench"] != SERVERS].append(figure)
    return parts


def servers_comparison(figures):
    """A row a figure: on one server, on two, and the ratio of the pairs; "" without figures."""
    by_count = {count: by_name([f for f in figures if f.get("settings", {}).get("servers") == count]) for count in (1, 2)}
    one, units, _ = by_count[1]
    two = by_count[2][0]
    rows = []
    for name in (name for name in one if name in two):
        sides = [median_and_spread(list(values[name].values()), units[name]) for values in (one, two)]
        rows.append([name, *sides, spread(ratios(two[name], one[name]))])
    return table(["figure", "1 server", "2 servers", "2 servers / 1"], rows) if rows else ""


def document(where, figures):
    pairs, figures = of_servers(figures)
    values, units, skipped = by_name(figures)
    parts = ["# Data plane\n", "\n".join(f"- {what}: {value}" for what, value in where) + "\n"]
    parts.append(
        "Medians, smallest and largest. A ratio is tarn's figure divided by the other's, each pair of one repetition: "
        "above 1 means faster, and for round trips (us) slower.\n"
    )
    ours = [name for name in values if name.startswith("tarn.")]
    for group in ("sparse", "adagrad", "dense", "small"):
        names = [name for name in ours if name.split(".")[2].startswith(group)]
        if names:
            parts.append(comparison(values, units, names))
    both = servers_comparison(pairs)
    if both:
        parts += ["Two servers beside one; they and the worker share the cores:\n", both]
    others = [name for name in values if not name.startswith("tarn.")]
    rows = [[name, median_and_spread(list(values[name].values()), units[name])] for name in sorted(others)]
    if rows:
        parts += ["Limits and peers:\n", table(["figure", "value"], rows)]
    if skipped:
        parts.append("Skipped:\n")
        parts.append("\n".join(f"- {name}: {why}" for name, why in sorted(skipped.items())) + "\n")
    return "\n".join(parts)


def bar(y, title, value, unit, longest, colour):
    width = max(1.0, value / longest * (WIDTH - LEFT - RIGHT))
    return (
        f'<text x="{LEFT - 8}" y="{y + BAR - 3}" text-anchor="end">{html.escape(title)}</text>'
        f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR - 2}" rx="2" fill="{colour}"/>'
        f'<text x="{LEFT + width + 6:.1f}" y="{y + BAR - 3}">{number(value, unit)} {html.escape(unit)}</text>'
    )


def picture(figures):
    """An SVG: one group of bars for each figure of tarn but those of the bench "servers", each group with a scale of its
    own."""
    values, units, _ = by_name(of_servers(figures)[1])
    parts, y = [], HEAD
    for name in (name for name in values if name.startswith("tarn.")):
        group = [("tarn", name), *beside(name, values)]
        medians = [statistics.median(values[each].values()) for _, each in group]
        parts.append(f'<text x="{LEFT}" y="{y}" font-weight="600">{html.escape(name.removeprefix("tarn."))}</text>')
        y += 6
        for (title, _), value in zip(group, medians):
            colour = COLOURS[0] if title == "tarn" else COLOURS[1 + list(COLUMNS).index(title)]
            parts.append(bar(y, title, value, units[name], max(medians) or 1, colour))
            y += BAR
        y += GAP + BAR
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" font-family="sans-serif" font-size="12">'
        f'<rect width="{WIDTH}" height="{y}" fill="#ffffff"/>'
        f'<text x="{LEFT}" y="22" font-size="15" font-weight="600">Data plane: medians; each group has its own scale</text>'
        + "".join(parts)
        + "</svg>\n"
    )
