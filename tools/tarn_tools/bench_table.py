"""Makes a Markdown table and a picture of the results of tools/bench: each figure of tarn with its limits and peers."""

import statistics

from tarn_tools import charts

# Columns next to tarn: title -> names of figures, of which the first that was measured is shown. {T}: tcp or ipc;
# {HOST}: tcp, or ipc between processes of one host; {OP}: the operation; {WIRE}: the operation whose messages have the
# same size; {SIZE}: 1mb or 16mb; {VERB}: the command of Redis.
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
SERVERS = "servers"  # name of the bench
OURS = {"shm": "tarn, shared memory", "spin": "tarn, busy polling", "ipc": "tarn, ipc", "tcp": "tarn, tcp"}  # titles of the bars
PEERS = ["ps-lite", "ps-lite, array", "Redis", "RocksDB", "torch, gloo", "torch, RPC"]
# The bars next to an operation. Limits that are many times faster are left out, because they would hide the others.
BESIDE = {"sparse": ["row store alone", *PEERS], "adagrad": ["row store alone"]}
LIMITS = ["raw ZeroMQ", "plain sockets", *PEERS]
OURS_CLASS, PEER_CLASS, LIMIT_CLASS = "c1", "c2", "c6"  # of charts.css


def number(value, unit):
    """12345678, "rows/s" -> "12.3M"; GB and times without a suffix."""
    return charts.short(value) if unit.endswith("/s") else f"{value:.3g}"


def in_words(line):
    if "skipped" in line:
        return f"{line['name']}: skipped: {line['skipped']}"
    return f"{line['name']}: {number(line['value'], line['unit'])} {line['unit']}"


def by_name(figures):
    """{name: {(bench, repetition): value}}, {name: unit}, {name: why it was skipped}."""
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
    """[(title, name)] of the figures next to a figure of tarn."""
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


def spread(series, form=2):
    """Median, smallest and largest value. form: the number of decimal places, or a function from a number to text."""
    text = form if callable(form) else f"{{:,.{form}f}}".format
    return f"{text(statistics.median(series))} ({text(min(series))} to {text(max(series))})"


def median_and_spread(series, unit):
    around = f" ({number(min(series), unit)} to {number(max(series), unit)})" if len(series) > 1 else ""
    return f"{number(statistics.median(series), unit)}{around} {unit}"


def ratios(ours, other):
    """The ratios for repetitions that have both figures."""
    return [ours[key] / other[key] for key in ours if other.get(key)]


def table(head, rows):
    lines = ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]]
    return "\n".join(lines) + "\n"


def comparison(values, units, names):
    """The table of some figures of tarn, without empty columns."""
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
    """Separates the figures of the bench "servers", which has each name twice, from the others."""
    parts = [], []
    for figure in figures:
        parts[figure["bench"] != SERVERS].append(figure)
    return parts


def servers_comparison(figures):
    """One row per figure: on one server, on two, and the ratio of the pairs; "" without figures."""
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
        parts += ["Two servers compared with one; they and the worker share the cores:\n", both]
    others = [name for name in values if not name.startswith("tarn.")]
    rows = [[name, median_and_spread(list(values[name].values()), units[name])] for name in sorted(others)]
    if rows:
        parts += ["Limits and peers:\n", table(["figure", "value"], rows)]
    if skipped:
        parts.append("Skipped:\n")
        parts.append("\n".join(f"- {name}: {why}" for name, why in sorted(skipped.items())) + "\n")
    return "\n".join(parts)


def bars_of(operation, values, units):
    """[(title, name, class)]: every transport of tarn, limits over tcp, and peers over their fastest transport."""
    found, others = [], {}
    for transport, title in OURS.items():
        if (name := f"tarn.{transport}.{operation}") in values:
            found.append((title, name, OURS_CLASS))
            for other, each in beside(name, values):
                others.setdefault(other, []).append(each)
    best = min if units[found[0][1]] == "us" else max
    for title in BESIDE.get(operation.split("_")[0], LIMITS):
        if title in PEERS and title in others:
            name = best(others[title], key=lambda each: statistics.median(values[each].values()))
            way = name.split(".")[1]
            found.append((f"{title}, {way}" if way in ("ipc", "unix") else title, name, PEER_CLASS))
        elif title in others:
            found.append((title, others[title][-1], LIMIT_CLASS))  # tcp is last
    return found


def panel(operation, bars, values, units):
    """The panel of an operation, with its own scale."""
    unit = units[bars[0][1]]
    better = ", less is better" if unit == "us" else ""
    medians = [(title, statistics.median(values[name].values()), classes) for title, name, classes in bars]
    drawn = [(title, value, number(value, unit), classes) for title, value, classes in medians]
    return charts.bar_chart(f"{operation}, {unit}{better}", drawn, row=20)


def operations(values):
    """The operations of tarn, each once, without the variants that use existing plans (_planned)."""
    names = [name.split(".")[2] for name in values if name.startswith("tarn.")]
    return list(dict.fromkeys(name for name in names if not name.endswith("_planned")))


def picture(figures):
    """An SVG with a panel per operation that compares tarn with limits and peers; without the bench "servers"."""
    values, units, _ = by_name(of_servers(figures)[1])
    drawn = [panel(operation, bars_of(operation, values, units), values, units) for operation in operations(values)]
    legend = [("tarn", OURS_CLASS), ("limits", LIMIT_CLASS), ("peers", PEER_CLASS)]
    return charts.sheet("Push and pull: medians, each panel with its own scale", drawn, columns=3, names=legend)
