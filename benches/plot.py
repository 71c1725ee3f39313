#!/usr/bin/env python3
"""Draws one SVG per curve of benches/plots/growth.json, which `cargo bench --bench growth` writes.

It needs only Python's standard library. Both axes are logarithmic. The law of a series is a thin
dashed line from its first point; where the measured line is steeper, the law does not hold.
"""

import json
import math
import pathlib
from xml.sax.saxutils import escape

PLOTS = pathlib.Path(__file__).parent / "plots"

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 72, 36, 44, 52

# Distinguishable with colour blindness too: for a white and for a black background.
COLOURS = [("#0072b2", "#56b4e9"), ("#d55e00", "#e69f00"), ("#009e73", "#2fcf9f")]
SERIES = ".s{0} {{ stroke: {1}; }} circle.s{0} {{ fill: {1}; }}"
LIGHT, DARK = ("\n".join(SERIES.format(n, pair[i]) for n, pair in enumerate(COLOURS)) for i in (0, 1))

STYLE = f"""
text {{ font: 12px system-ui, sans-serif; fill: #1f2328; }}
text.title {{ font-size: 15px; font-weight: 600; }}
rect.background {{ fill: #ffffff; }}
line.grid {{ stroke: #d1d9e0; stroke-width: 1; }}
polyline {{ fill: none; stroke-width: 2; }}
polyline.law {{ stroke-width: 1; stroke-dasharray: 5 4; }}
{LIGHT}
@media (prefers-color-scheme: dark) {{
text {{ fill: #f0f6fc; }}
rect.background {{ fill: #0d1117; }}
line.grid {{ stroke: #3d444d; }}
{DARK}
}}
"""

LAWS = {
    "constant": ("constant", lambda x: 1.0),
    "logarithm": ("logarithm", lambda x: 1.0 + math.log10(x)),
    "linear": ("proportional", lambda x: x),
}


def main():
    curves = json.loads((PLOTS / "growth.json").read_text(encoding="utf-8"))
    for name, curve in curves.items():
        path = PLOTS / f"{name}.svg"
        path.write_text(svg(curve), encoding="utf-8")
        print(path)


def svg(curve):
    """Returns one plot."""
    points = [point for series in curve["series"] for point in series["points"]]
    across = Axis([x for x, _ in points], LEFT, WIDTH - RIGHT)
    up = Axis([y for _, y in points], HEIGHT - BOTTOM, TOP + 18 * len(curve["series"]) + 8)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">',
        f"<title>{escape(curve['title'])}</title><style>{STYLE}</style>",
        f'<rect class="background" width="{WIDTH}" height="{HEIGHT}"/>',
        text(LEFT, 24, curve["title"], "start", "title"),
    ]
    for value in across.ticks():
        x = across.at(value)
        parts.append(line("grid", x, up.start, x, up.end))
        parts.append(text(x, HEIGHT - BOTTOM + 18, number(value), "middle"))
    for value in up.ticks():
        y = up.at(value)
        parts.append(line("grid", across.start, y, across.end, y))
        parts.append(text(LEFT - 8, y + 4, number(value), "end"))
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, curve["x"], "middle"))
    middle = (up.start + up.end) / 2
    parts.append(
        f'<text x="16" y="{middle:.0f}" text-anchor="middle" transform="rotate(-90 16 {middle:.0f})">{escape(curve["y"])}</text>'
    )
    for index, series in enumerate(curve["series"]):
        parts += drawn(series, f"s{index % len(COLOURS)}", TOP + 18 * index, across, up)
    return "\n".join(parts + ["</svg>", ""])


def drawn(series, colour, legend, across, up):
    """Returns a series with its law and its line in the legend, in the class of its colour."""
    at = lambda points: " ".join(f"{across.at(x):.1f},{up.at(y):.1f}" for x, y in points)
    label = series["name"]
    parts = []
    if series["law"]:
        word, law = LAWS[series["law"]]
        label += f"; grows as x^{series['exponent']:.2f}, law: {word}"
        first, last = series["points"][0], series["points"][-1]
        factor = first[1] / law(first[0])
        steps = [first[0] * (last[0] / first[0]) ** (step / 40) for step in range(41)]
        line_of = [(x, factor * law(x)) for x in steps]
        inside = [(x, y) for x, y in line_of if up.low <= y <= up.high]
        parts.append(
            f'<polyline class="law {colour}" points="{at(inside)}"/>'
        )
    parts.append(
        f'<polyline class="{colour}" points="{at(series["points"])}"/>'
    )
    for x, y in series["points"]:
        parts.append(f'<circle cx="{across.at(x):.1f}" cy="{up.at(y):.1f}" r="3.5" class="{colour}"/>')
    parts.append(f'<circle cx="{LEFT + 5}" cy="{legend}" r="4" class="{colour}"/>')
    parts.append(text(LEFT + 16, legend + 4, label, "start"))
    return parts


class Axis:
    """A logarithmic axis. Its ends are the nearest 1, 2 or 5 times a power of ten."""

    def __init__(self, values, start, end):
        self.start, self.end = start, end
        low, high = min(values), max(values)
        steps = [mantissa * 10.0**decade for decade in range(-6, 12) for mantissa in (1, 2, 5)]
        self.low = max(step for step in steps if step <= low * 1.0001)
        self.high = min(step for step in steps if step >= high * 0.9999)
        # Widens a short axis, so that a nearly constant series looks flat.
        if self.high / self.low < 10:
            self.low, self.high = self.low / 2, self.high * 2

    def at(self, value):
        """Returns the coordinate of a value."""
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self):
        """Returns powers of ten; on a short axis also their multiples by two and five."""
        mantissas = (1,) if self.high / self.low >= 1000 else (1, 2, 5)
        all_of = [mantissa * 10.0**decade for decade in range(-6, 12) for mantissa in mantissas]
        return [tick for tick in all_of if self.low * 0.999 <= tick <= self.high * 1.001]


def line(kind, x1, y1, x2, y2):
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def text(x, y, what, anchor, kind="label"):
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(what)}</text>'


def number(value):
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


if __name__ == "__main__":
    main()
