# SPDX-License-Identifier: Apache-2.0
"""Bar charts of the results as SVG: one panel a workload, each a file of its own, and all of them on one page."""
from html import escape

WIDTH, LABEL, RIGHT, BAR_STEP = 430, 60, 92, 24
COLOURS = {"weft": "#c2410c", "go": "#0e7490"}
OTHER = "#94a3b8"


def number(x):
    return f"{x:,.0f}".replace(",", " ") if x >= 100 else f"{x:.1f}" if x >= 10 else f"{x:.2f}"


def panel_height(row):
    return 46 + BAR_STEP * len(row["results"])


def panel(row, x, y):
    """A title, and for each system a bar with a whisker over the middle half of its rounds; the dashed line is the bar to meet."""
    results, scale = row["results"], WIDTH - LABEL - RIGHT
    top = max([r["q3"] for r in results.values()] + [1e-9])
    out = [f'<g transform="translate({x},{y})">'
           f'<text y="14" font-weight="600">{escape(row["name"])} <tspan fill="#64748b" font-weight="400">'
           f'{escape(row["what"])}, {escape(row["unit"])}{", higher is better" if row["higher"] else ""}</tspan></text>']
    labels, line = [], 24
    for name, r in results.items():
        width, low, high = (LABEL + scale * v / top for v in (r["median"], r["q1"], r["q3"]))
        middle = line + 8
        out.append(f'<text x="{LABEL - 6}" y="{line + 13}" text-anchor="end">{escape(name)}</text>'
                   f'<rect x="{LABEL}" y="{line}" width="{max(width - LABEL, 1):.1f}" height="16" rx="2" fill="{COLOURS.get(name, OTHER)}"/>'
                   f'<path d="M{low:.1f} {middle}H{high:.1f}M{low:.1f} {middle - 3}v6M{high:.1f} {middle - 3}v6" stroke="#0f172a" fill="none"/>')
        labels.append(f'<text x="{max(width, high) + 6:.1f}" y="{line + 13}" stroke="#ffffff" stroke-width="4" '
                      f'paint-order="stroke">{number(r["median"])}</text>')
        line += BAR_STEP
    goal = row["goal"]
    if goal is not None and goal <= top:
        at = LABEL + scale * goal / top
        out.append(f'<path d="M{at:.1f} 20V{line - 2}" stroke="#0f172a" stroke-dasharray="3 3"/>')
    return "".join(out + labels) + "</g>"


def page(width, height, body):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
            f'font-family="system-ui, sans-serif" font-size="12" fill="#0f172a">'
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>{body}</svg>\n')


def write(folder, rows, headline):
    """<row>.svg for each row, and overview.svg with all of them in two columns."""
    rows = [r for r in rows if r["results"]]
    for row in rows:
        (folder / f'{row["name"]}.svg').write_text(page(WIDTH + 32, panel_height(row) + 12, panel(row, 16, 12)))
    body, heights = [f'<text x="16" y="24" fill="#64748b">{escape(headline)} · dashed: the bar</text>'], [40, 40]
    for row in rows:
        column = heights.index(min(heights))
        body.append(panel(row, 16 + column * (WIDTH + 32), heights[column]))
        heights[column] += panel_height(row)
    (folder / "overview.svg").write_text(page(2 * (WIDTH + 32), max(heights) + 8, "".join(body)))
