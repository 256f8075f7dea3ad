"""Small SVG charts as strings. Colours come from the page's CSS (classes c1..c6, grid, axis), so that one drawing
suits light and dark."""

import html
import math

WIDTH, HEIGHT = 560, 250
LEFT, RIGHT, TOP, BOTTOM = 72, 14, 12, 42
POINTS_MAX = 400
DOTS_MAX = 12  # of a line that shows all of its points
MARK_NAME_WIDTH, MARK_NAME_HEIGHT = 62, 14
EMPTY = '<p class="empty">no data</p>'


def short(value, space=""):
    """12 -> "12", 1500 -> "1.5k", 2e6 -> "2M", 0.1234 -> "0.123"; `space` goes before the unit."""
    if value == 0:
        return "0" + space
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{space}{unit}"
    return f"{value:.3g}{space}"


def seconds_label(value):
    return f"{value:g} s" if value < 120 else f"{value / 60:.3g} min"


def ticks(low, high, count=5):
    """About `count` round numbers from low to high."""
    if not high > low:
        return [low]
    raw = (high - low) / count
    step = 10.0 ** math.floor(math.log10(raw))
    step *= next(m for m in (1, 2, 2.5, 5, 10) if m * step >= raw)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, int(math.floor(high / step + 1e-9)) + 1)]


def pieces(points):
    """[[(x, y), ...], ...]: the points between one None and the next."""
    found = [[]]
    for point in points:
        if point is None:
            found.append([])
        else:
            found[-1].append(point)
    return [piece for piece in found if piece]


def thinned(points):
    """Pieces of the line, with about POINTS_MAX points together: means of equal runs."""
    found = pieces(points)
    size = math.ceil(sum(len(piece) for piece in found) / POINTS_MAX)
    if size <= 1:
        return found
    thin = []
    for piece in found:
        runs = [piece[i : i + size] for i in range(0, len(piece), size)]
        thin.append([(sum(x for x, _ in run) / len(run), sum(y for _, y in run) / len(run)) for run in runs])
    return thin


def value_range(values, from_zero):
    """Limits of an axis with a little air; a flat line gets room on both sides."""
    low, high = min(values), max(values)
    if from_zero:
        return 0.0, (high * 1.06 or 1.0)
    air = (high - low) * 0.06 or abs(high) * 0.05 or 1.0
    return low - air, high + air


def tick(x, y, anchor, content):
    """A small label of an axis or a mark."""
    return f'<text class="tick" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(content)}</text>'


def frame(x_ticks, y_ticks, scale_x, scale_y, x_format, y_format, x_title):
    """Grid, axis and their labels."""
    parts = []
    for value in y_ticks:
        y = scale_y(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(tick(LEFT - 8, y + 4, "end", y_format(value)))
    base = HEIGHT - BOTTOM
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}"/>')
    for value in x_ticks:
        at_end = scale_x(value) > WIDTH - RIGHT - 12
        parts.append(tick(scale_x(value), base + 17, "end" if at_end else "middle", x_format(value)))
    parts.append(tick(WIDTH - RIGHT, HEIGHT - 4, "end", x_title))
    return parts


def figure(title, body, note="", names=()):
    """A chart with its caption; `names` of several series become a legend."""
    legend = "".join(f'<i class="c{index % 6 + 1}"></i>{html.escape(name)} ' for index, name in enumerate(names))
    note = f'<span class="note">{legend}{html.escape(note)}</span>' if note or legend else ""
    return f"<figure><figcaption>{html.escape(title)}{note}</figcaption>{body}</figure>"


def empty(title):
    return figure(title, EMPTY)


def svg(parts, title, height=HEIGHT):
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{html.escape(title, quote=True)}">'
        + "".join(parts)
        + "</svg>"
    )


def line_chart(title, series, x_title, x_format=short, y_format=short, from_zero=False, marks=(), note=None):
    """series: [(name, [(x, y), ...]), ...], with None in the place of a point where a line is interrupted.

    marks: [(x, name), ...] of vertical lines; as many names as have room. A line of few points has a dot at each.
    """
    series = [(name, thinned(points)) for name, points in series]
    series = [(name, lines) for name, lines in series if lines]
    if not series:
        return empty(title)
    all_points = [point for _, lines in series for line in lines for point in line]
    x_values, y_values = [x for x, _ in all_points], [y for _, y in all_points]
    x_low, x_high = min(0, *x_values), max(x_values)
    if x_high == x_low:
        x_high = x_low + 1
    y_low, y_high = value_range(y_values, from_zero)
    top = TOP + (MARK_NAME_HEIGHT if marks else 0)

    def scale_x(x):
        return LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)

    def scale_y(y):
        return HEIGHT - BOTTOM - (y - y_low) / (y_high - y_low) * (HEIGHT - top - BOTTOM)

    parts = frame(ticks(x_low, x_high, 6), ticks(y_low, y_high), scale_x, scale_y, x_format, y_format, x_title)
    room = 0.0  # from where on a name does not touch the one before
    for x, name in marks:
        at = scale_x(x)
        if not LEFT <= at < WIDTH - RIGHT - 2:
            continue
        parts.append(f'<line class="mark" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        if at >= room and at + MARK_NAME_WIDTH <= WIDTH:
            parts.append(tick(at + 4, TOP + 8, "start", name))
            room = at + MARK_NAME_WIDTH
    for index, (name, lines) in enumerate(series):
        for line in lines:
            path = " ".join(f"{scale_x(x):.1f},{scale_y(y):.1f}" for x, y in line)
            parts.append(f'<polyline class="line c{index % 6 + 1}" points="{path}"/>')
        dots = [point for line in lines for point in line]
        for x, y in dots if len(dots) <= DOTS_MAX else dots[-1:]:
            parts.append(
                f'<circle class="dot c{index % 6 + 1}" cx="{scale_x(x):.1f}" cy="{scale_y(y):.1f}" r="3.5">'
                f"<title>{html.escape(name)}: {y_format(y)}</title></circle>"
            )
    if len(series) > 1:
        return figure(title, svg(parts, title), names=[name for name, _ in series])
    return figure(title, svg(parts, title), note or f"last {y_format(series[0][1][-1][-1][1])}")


def column_chart(title, columns, x_title, note=""):
    """columns: [(label, value), ...] with values as shares of 1."""
    if not columns:
        return empty(title)
    high = max(value for _, value in columns) or 1.0
    step = (WIDTH - LEFT - RIGHT) / len(columns)
    base = HEIGHT - BOTTOM

    def scale_y(y):
        return base - y / (high * 1.12) * (HEIGHT - TOP - BOTTOM)

    parts = frame([], ticks(0, high * 1.12, 4), None, scale_y, None, lambda v: f"{100 * v:.3g}%", x_title)
    every = math.ceil(len(columns) / 16)
    for index, (label, value) in enumerate(columns):
        x, y, width = LEFT + step * (index + 0.12), scale_y(value), min(step * 0.76, 60)
        x += (step * 0.76 - width) / 2
        parts.append(
            f'<rect class="c1" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{base - y:.1f}" rx="2">'
            f"<title>{html.escape(label)}: {100 * value:.2f}%</title></rect>"
        )
        if index % every == 0:
            parts.append(tick(x + width / 2, base + 16, "middle", label))
        if len(columns) <= 9:
            parts.append(tick(x + width / 2, y - 5, "middle", f"{100 * value:.1f}%"))
    return figure(title, svg(parts, title), note)


def bar_chart(title, bars, value_format, note="", beside=()):
    """Horizontal bars, one a row: [(name, value), ...], with shares of the sum of all but those named in `beside`."""
    bars = [(name, value) for name, value in bars if value is not None]
    if not bars:
        return empty(title)
    total = sum(value for name, value in bars if name not in beside) or 1.0
    high = max(value for _, value in bars) or 1.0
    left, right, row = 116, 150, 30
    parts = []
    for index, (name, value) in enumerate(bars):
        y = 8 + index * row
        width = value / high * (WIDTH - left - right)
        parts.append(f'<text class="name" x="{left - 10}" y="{y + 15}" text-anchor="end">{html.escape(name)}</text>')
        parts.append(f'<rect class="c1" x="{left}" y="{y}" width="{max(width, 1):.1f}" height="20" rx="2"/>')
        share = "" if name in beside else f", {100 * value / total:.0f}%"
        parts.append(tick(left + width + 8, y + 15, "start", value_format(value) + share))
    return figure(title, svg(parts, title, height=16 + row * len(bars)), note)
