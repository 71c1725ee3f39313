#!/usr/bin/env python3
"""Draws docs/weir.svg: where Weir stands between clients and the API server.

Run `python3 docs/diagram.py` after a change; the same source gives the same file, byte for byte. `--check` fails if the file differs.
It uses Python's standard library only. The picture has a background of its own and a dark variant
(`prefers-color-scheme`), so that it is readable on light and dark pages.
"""

import sys
from html import escape
from pathlib import Path

WIDTH, HEIGHT = 980, 424

STYLE = """
  .page { fill: #ffffff; stroke: #d0d7de }
  .box { fill: #f6f8fa; stroke: #8c959f }
  .weir { fill: #ddf4ff; stroke: #0969da }
  .part { fill: #ffffff; stroke: #0969da }
  .line { fill: none; stroke: #57606a; stroke-width: 1.6 }
  .cached { fill: none; stroke: #0969da; stroke-width: 2 }
  .tip { fill: #57606a }
  .tip-cached { fill: #0969da }
  text { fill: #1f2328; font: 14px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif }
  .name { font-weight: 600; font-size: 15px }
  .note { fill: #57606a; font-size: 12.5px }
  .note-cached { fill: #0550ae; font-size: 12.5px }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; stroke: #30363d }
    .box { fill: #161b22; stroke: #6e7681 }
    .weir { fill: #0c2d4a; stroke: #4493f8 }
    .part { fill: #0d1117; stroke: #4493f8 }
    .line { stroke: #9198a1 }
    .cached { stroke: #4493f8 }
    .tip { fill: #9198a1 }
    .tip-cached { fill: #4493f8 }
    text { fill: #f0f6fc }
    .note { fill: #9198a1 }
    .note-cached { fill: #79c0ff }
  }
"""


def box(x, y, width, height, kind="box"):
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="8"/>'


def text(x, y, words, kind="", anchor="middle"):
    kind = f' class="{kind}"' if kind else ""
    return f'<text{kind} x="{x}" y="{y}" text-anchor="{anchor}">{escape(words)}</text>'


def labelled(x, y, width, height, name, notes=(), kind="box"):
    """A box with a name and lines below it, centred as a whole."""
    middle = y + height / 2 - 9 * len(notes)
    parts = [box(x, y, width, height, kind), text(x + width / 2, round(middle + 5), name, "name")]
    parts += [
        text(x + width / 2, round(middle + 5 + 18 * (number + 1)), note, "note")
        for number, note in enumerate(notes)
    ]
    return parts


def arrow(points, kind="line"):
    """A line through the points, with a tip at the last one."""
    (from_x, from_y), (to_x, to_y) = points[-2], points[-1]
    step_x, step_y = (to_x > from_x) - (to_x < from_x), (to_y > from_y) - (to_y < from_y)
    back_x, back_y = to_x - 9 * step_x, to_y - 9 * step_y
    tip = [
        (to_x, to_y),
        (back_x + 5 * step_y, back_y + 5 * step_x),
        (back_x - 5 * step_y, back_y - 5 * step_x),
    ]
    path = "M" + " L".join(f"{x} {y}" for x, y in [*points[:-1], (back_x, back_y)])
    corners = " ".join(f"{x},{y}" for x, y in tip)
    tip_kind = "tip-cached" if kind == "cached" else "tip"
    return [f'<path class="{kind}" d="{path}"/>', f'<polygon class="{tip_kind}" points="{corners}"/>']


def picture():
    parts = [box(1, 1, WIDTH - 2, HEIGHT - 2, "page")]

    clients = ["kubectl", "controllers", "Prometheus", "kubelets"]
    for number, name in enumerate(clients):
        y = 72 + 76 * number
        parts += labelled(24, y, 124, 52, name)
        parts.append(f'<path class="line" d="M148 {y + 26} L176 {y + 26}"/>')
    parts.append('<path class="line" d="M176 98 L176 326"/>')

    parts += [box(200, 24, 510, 376, "weir"), text(455, 50, "Weir", "name")]
    parts += arrow([(176, 212), (222, 212)])
    parts += labelled(222, 172, 110, 80, "listeners", ["TLS, HTTP,", "Unix socket"], "part")
    parts += arrow([(332, 212), (366, 212)])
    parts += labelled(366, 172, 118, 80, "delegate", ["can the cache", "answer this?"], "part")

    parts += labelled(534, 76, 156, 96, "watch caches", ["one per resource,", "kept by a reflector"], "part")
    parts += arrow([(425, 172), (425, 124), (534, 124)], "cached")
    parts.append(text(425, 94, "GET, LIST, WATCH", "note-cached"))
    parts.append(text(425, 112, "from the cache", "note-cached"))

    parts += labelled(534, 268, 156, 80, "forward", ["unchanged, streamed", "both ways"], "part")
    parts += arrow([(425, 252), (425, 308), (534, 308)])
    parts.append(text(425, 328, "everything else:", "note"))
    parts.append(text(425, 346, "writes, exec, Tables, …", "note"))

    parts += labelled(806, 76, 150, 272, "kube-apiserver")
    parts += arrow([(806, 124), (690, 124)], "cached")
    parts.append(text(758, 94, "one list and", "note-cached"))
    parts.append(text(758, 112, "one watch", "note-cached"))
    parts += arrow([(690, 308), (806, 308)])

    parts += labelled(831, 368, 100, 36, "etcd")
    parts.append('<path class="line" d="M881 348 L881 368"/>')
    return parts


def main():
    title = "Clients connect to Weir, which answers reads from its watch caches and forwards the rest to kube-apiserver"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        *picture(),
        "</svg>",
    ]
    drawing = "\n".join(lines) + "\n"
    path = Path(__file__).with_name("weir.svg")
    if sys.argv[1:] != ["--check"]:
        path.write_text(drawing, encoding="utf-8")
    elif path.read_text(encoding="utf-8") != drawing:
        sys.exit("docs/weir.svg differs from what docs/diagram.py draws")


if __name__ == "__main__":
    main()
