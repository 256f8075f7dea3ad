"""Small SVG charts: in a page (Drawing.figure), with colours for light and dark from charts.css, or several in a
separate file (sheet)."""

import dataclasses
import html
import math
import pathlib
import re

WIDTH, HEIGHT = 560, 250
LEFT, RIGHT, TOP, BOTTOM = 72, 14, 12, 42
POINTS_MAX = 400
DOTS_MAX = 12  # maximum points of a line that is drawn with a dot per point
MARK_NAME_WIDTH, MARK_NAME_HEIGHT = 62, 14
GAP, TITLE_HEIGHT, LEGEND_HEIGHT, LETTER_WIDTH = 20, 24, 18, 6.6  # on a sheet
CSS = pathlib.Path(__file__).with_name("charts.css").read_text(encoding="utf-8")
EMPTY = '<p class="empty">no data</p>'


def short(value, space=""):
    """12 -> "12", 1500 -> "1.5k", 2e6 -> "2M", 0.1234 -> "0.123"; `space` goes before the unit."""
    if value == 0:
        return "0" + space
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{space}{unit}"
    return f"{value:.3g}{space}"


def colour(index):
    """The class of the n-th series."""
    return f"c{index % 6 + 1}"


@dataclasses.dataclass
class Drawing:
    """A chart: title, contents (empty without data), a note, and [(name, class)] for a legend."""

    title: str
    parts: list = dataclasses.field(default_factory=list)
    height: float = HEIGHT
    note: str = ""
    names: list = dataclasses.field(default_factory=list)

    def figure(self):
        """The chart as part of a page."""
        body = EMPTY
        if self.parts:
            title = html.escape(self.title, quote=True)
            body = f'<svg viewBox="0 0 {WIDTH} {self.height}" role="img" aria-label="{title}">{"".join(self.parts)}</svg>'
        legend = "".join(f'<i class="{classes}"></i>{html.escape(name)} ' for name, classes in self.names)
        note = f'<span class="note">{legend}{html.escape(self.note)}</span>' if self.note or legend else ""
        return f"<figure><figcaption>{html.escape(self.title)}{note}</figcaption>{body}</figure>"

    def placed(self, x, y):
        """The SVG group of this chart on a sheet, and its height there."""
        head, top = [text("title", 0, 15, "start", self.title)], TITLE_HEIGHT
        if self.names:
            head.append(legend(self.names, 0, TITLE_HEIGHT))
            top += LEGEND_HEIGHT
        body = f'<g transform="translate(0 {top})">{"".join(self.parts)}</g>'
        return f'<g transform="translate({x} {y})">{"".join(head)}{body}</g>', top + self.height


def text(classes, x, y, anchor, content):
    return f'<text class="{classes}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(content)}</text>'


def legend(names, x, y):
    """Names with their colours, in a row."""
    parts = []
    for name, classes in names:
        parts.append(f'<path class="line {classes}" d="M{x:.0f} {y + 6}h16"/>' + text("tick", x + 22, y + 10, "start", name))
        x += 36 + LETTER_WIDTH * len(name)
    return "".join(parts)


def sheet_style():
    """charts.css with the light colours and without variables, which some SVG viewers do not support."""
    light = dict(re.findall(r"--(\w+): (#\w+)", CSS.split("@media")[0]))
    rules = "\n".join(line for line in CSS.splitlines() if line.startswith("svg "))
    return re.sub(r"var\(--(\w+)\)", lambda match: light[match.group(1)], rules)


def sheet(title, drawings, columns=2, names=()):
    """An SVG file: the drawings in rows of `columns`, under a title and a legend of them all."""
    columns = min(columns, max(1, len(drawings)))
    parts = [text("heading", GAP, 28, "start", title)]
    y = 44
    if names:
        parts.append(legend(names, GAP, y))
        y += LEGEND_HEIGHT + GAP // 2
    for begin in range(0, len(drawings), columns):
        heights = []
        for column, drawing in enumerate(drawings[begin : begin + columns]):
            part, height = drawing.placed(GAP + column * (WIDTH + GAP), y)
            parts.append(part)
            heights.append(height)
        y += max(heights) + GAP
    width = GAP + columns * (WIDTH + GAP)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" font-family="sans-serif" font-size="12">'
        f"<style>{sheet_style()}</style>"
        f'<rect class="card" width="{width}" height="{y}"/>{"".join(parts)}</svg>\n'
    )


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
    """Reduces a line to about POINTS_MAX points in total: replaces runs of points of equal length by their means."""
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
    """The limits of an axis with a margin; a flat line gets a margin on both sides."""
    low, high = min(values), max(values)
    if from_zero:
        return 0.0, (high * 1.06 or 1.0)
    margin = (high - low) * 0.06 or abs(high) * 0.05 or 1.0
    return low - margin, high + margin


def tick(x, y, anchor, content):
    """A small label of an axis or a mark."""
    return text("tick", x, y, anchor, content)


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


def draw_marks(marks, scale_x):
    """Vertical lines, and as many of their names as fit."""
    parts, room = [], 0.0  # room: minimum position at which a name does not overlap the previous one
    for x, name in marks:
        at = scale_x(x)
        if not LEFT <= at < WIDTH - RIGHT - 2:
            continue
        parts.append(f'<line class="mark" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        if at >= room and at + MARK_NAME_WIDTH <= WIDTH:
            parts.append(tick(at + 4, TOP + 8, "start", name))
            room = at + MARK_NAME_WIDTH
    return parts


def draw_series(name, classes, lines, scale_x, scale_y, y_format):
    """The pieces of a line. Few points have a dot each; of many, only the last."""
    parts = []
    for line in lines:
        path = " ".join(f"{scale_x(x):.1f},{scale_y(y):.1f}" for x, y in line)
        parts.append(f'<polyline class="line {classes}" points="{path}"/>')
    dots = [point for line in lines for point in line]
    for x, y in dots if len(dots) <= DOTS_MAX else dots[-1:]:
        parts.append(
            f'<circle class="dot {classes}" cx="{scale_x(x):.1f}" cy="{scale_y(y):.1f}" r="3.5">'
            f"<title>{html.escape(name)}: {y_format(y)}</title></circle>"
        )
    return parts


def line_chart(title, series, x_title, x_format=short, y_format=short, from_zero=False, marks=(), note=None, x_ticks=None):
    """series: [(name, [(x, y), ...]), ...], with None where a line is interrupted. An optional third item is the line's
    class ("c2 dashed"); default: by index.

    marks: [(x, name), ...] of vertical lines. x_ticks: positions of the labels of the x axis, from its beginning to its
    end; without them the axis begins at 0.
    """
    given = [(one[0], one[2] if len(one) > 2 else colour(index), thinned(one[1])) for index, one in enumerate(series)]
    given = [one for one in given if one[2]]
    if not given:
        return Drawing(title)
    all_points = [point for _, _, lines in given for line in lines for point in line]
    x_values, y_values = [x for x, _ in all_points], [y for _, y in all_points]
    x_low, x_high = (x_ticks[0], x_ticks[-1]) if x_ticks else (min(0, *x_values), max(x_values))
    if x_high == x_low:
        x_high = x_low + 1
    y_low, y_high = value_range(y_values, from_zero)
    top = TOP + (MARK_NAME_HEIGHT if marks else 0)

    def scale_x(x):
        return LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)

    def scale_y(y):
        return HEIGHT - BOTTOM - (y - y_low) / (y_high - y_low) * (HEIGHT - top - BOTTOM)

    x_ticks = x_ticks or ticks(x_low, x_high, 6)
    parts = frame(x_ticks, ticks(y_low, y_high), scale_x, scale_y, x_format, y_format, x_title)
    parts += draw_marks(marks, scale_x)
    for name, classes, lines in given:
        parts += draw_series(name, classes, lines, scale_x, scale_y, y_format)
    if len(given) > 1:
        return Drawing(title, parts, names=[(name, classes) for name, classes, _ in given])
    return Drawing(title, parts, note=note or f"last {y_format(given[0][2][-1][-1][1])}")


def column_chart(title, columns, x_title, note=""):
    """columns: [(label, value), ...] with values as shares of 1."""
    if not columns:
        return Drawing(title)
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
    return Drawing(title, parts, note=note)


def bar_chart(title, bars, note="", row=30):
    """Horizontal bars, one per row: [(name, value, words), ...]. The words are next to the bar; an optional fourth item
    is its class."""
    if not bars:
        return Drawing(title)
    high = max(bar[1] for bar in bars) or 1.0
    left, right, thick = 150, 140, row * 2 / 3
    parts = []
    for index, (name, value, words, *classes) in enumerate(bars):
        y = 8 + index * row
        width = max(value / high * (WIDTH - left - right), 1)
        parts.append(text("name", left - 10, y + thick * 0.75, "end", name))
        parts.append(
            f'<rect class="{classes[0] if classes else "c1"}" x="{left}" y="{y}" width="{width:.1f}" height="{thick:.1f}" rx="2"/>'
        )
        parts.append(tick(left + width + 8, y + thick * 0.75, "start", words))
    return Drawing(title, parts, 16 + row * len(bars), note)
