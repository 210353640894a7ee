# SPDX-License-Identifier: Apache-2.0
"""The results as SVG: a panel of bars a workload, each a file of its own, all of them on one page; one chart that sets every
system in relation to Go; and lines over n for the growth of a workload."""
import math
from html import escape

WIDTH, LABEL, RIGHT, BAR_STEP = 450, 80, 92, 24
COLOURS = {"weft": "#c2410c", "go": "#0e7490", "tokio": "#7c3aed", "boost_fiber": "#65a30d", "erlang": "#be185d",
           "java": "#b45309", "threads": "#475569", "epoll": "#0f172a"}
OTHER = "#94a3b8"
INK, PALE, LINE = "#0f172a", "#64748b", "#e2e8f0"
REACH = 6       # bars longer than this many times the longer one of weft's and Go's are cut


def number(x):
    return f"{x:,.0f}".replace(",", " ") if x >= 100 else f"{x:.1f}" if x >= 10 else f"{x:.2f}"


def colour(name):
    return COLOURS.get(name, OTHER)


def panel_height(row):
    return 46 + BAR_STEP * len(row["results"])


def panel(row, x, y):
    """A title, and for each system a bar with a whisker over the middle half of its rounds; the dashed line is the bar to meet."""
    results, scale = row["results"], WIDTH - LABEL - RIGHT
    top = max([r["q3"] for r in results.values()] + [1e-9])
    pair = [results[s]["q3"] for s in ("weft", "go") if s in results]
    top = min(top, REACH * max(pair)) if pair and max(pair) > 0 else top
    out = [f'<g transform="translate({x},{y})">'
           f'<text y="14" font-weight="600">{escape(row["name"])} <tspan fill="{PALE}" font-weight="400">'
           f'{escape(row["what"])}, {escape(row["unit"])}{", higher is better" if row["higher"] else ""}</tspan></text>']
    labels, line = [], 24
    for name, r in results.items():
        width, low, high = (LABEL + scale * min(v, top) / top for v in (r["median"], r["q1"], r["q3"]))
        middle = line + 8
        out.append(f'<text x="{LABEL - 6}" y="{line + 13}" text-anchor="end">{escape(name)}</text>'
                   f'<rect x="{LABEL}" y="{line}" width="{max(width - LABEL, 1):.1f}" height="16" rx="2" fill="{colour(name)}"/>')
        if r["median"] > top:    # cut off
            out.append(f'<path d="M{width - 14:.1f} {line - 1}l-5 18M{width - 9:.1f} {line - 1}l-5 18" stroke="#ffffff" stroke-width="2.5"/>')
        else:
            out.append(f'<path d="M{low:.1f} {middle}H{high:.1f}M{low:.1f} {middle - 3}v6M{high:.1f} {middle - 3}v6" stroke="{INK}" fill="none"/>')
        # Twice, first as a white edge: not every viewer knows paint-order.
        for edge in (' stroke="#ffffff" stroke-width="4"', ""):
            labels.append(f'<text x="{max(width, high) + 6:.1f}" y="{line + 13}"{edge}>{number(r["median"])}</text>')
        line += BAR_STEP
    goal = row["goal"]
    if goal is not None and goal <= top:
        at = LABEL + scale * goal / top
        out.append(f'<path d="M{at:.1f} 20V{line - 2}" stroke="{INK}" stroke-dasharray="3 3"/>')
    return "".join(out + labels) + "</g>"


def page(width, height, body):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
            f'font-family="system-ui, sans-serif" font-size="12" fill="{INK}">'
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>{body}</svg>\n')


def write(folder, rows, headline):
    """<row>.svg for each row, and overview.svg with all of them in two columns."""
    rows = [r for r in rows if r["results"]]
    for row in rows:
        (folder / f'{row["name"]}.svg').write_text(page(WIDTH + 32, panel_height(row) + 12, panel(row, 16, 12)))
    body, heights = [f'<text x="16" y="24" fill="{PALE}">{escape(headline)} · dashed: the bar</text>'], [40, 40]
    for row in rows:
        column = heights.index(min(heights))
        body.append(panel(row, 16 + column * (WIDTH + 32), heights[column]))
        heights[column] += panel_height(row)
    (folder / "overview.svg").write_text(page(2 * (WIDTH + 32), max(heights) + 8, "".join(body)))


def key(names, x, y):
    out = []
    for name in names:
        out.append(f'<circle cx="{x + 5}" cy="{y - 4}" r="5" fill="{colour(name)}"/><text x="{x + 15}" y="{y}">{escape(name)}</text>')
        x += 30 + 7 * len(name)
    return "".join(out)


def relative(rows, names, headline):
    """One chart: each row a line, each system a dot, placed by how many times Go's speed it reaches; right is faster."""
    rows = [r for r in rows if r["results"].get("go", {}).get("median")]
    left, width, step, top = 330, 560, 24, 76
    speeds = {}
    for row in rows:
        base = row["results"]["go"]["median"]
        for name, r in row["results"].items():
            if r["median"] > 0:
                speeds[row["name"], name] = r["median"] / base if row["higher"] else base / r["median"]
    low, high = min(list(speeds.values()) + [0.5]), max(list(speeds.values()) + [2])
    low, high = max(low, 0.01), min(high, 100)
    place = lambda v: left + width * (math.log(min(max(v, low), high)) - math.log(low)) / (math.log(high) - math.log(low))
    bottom = top + step * len(rows)
    out = [f'<text x="16" y="24" fill="{PALE}">{escape(headline)}</text>', key(names, 16, 48)]
    for tick in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100):
        if low <= tick <= high:
            out.append(f'<path d="M{place(tick):.1f} {top - 8}V{bottom}" stroke="{INK if tick == 1 else LINE}"/>'
                       f'<text x="{place(tick):.1f}" y="{bottom + 16}" text-anchor="middle">{tick:g}×</text>')
    for i, row in enumerate(rows):
        y = top + step * i + 8
        out.append(f'<text x="{left - 14}" y="{y + 4}" text-anchor="end">{escape(row["what"])}</text><path d="M{left} {y}h{width}" stroke="{LINE}"/>')
        for name in [n for n in names if n != "weft"] + ["weft"]:
            if (row["name"], name) in speeds:
                out.append(f'<circle cx="{place(speeds[row["name"], name]):.1f}" cy="{y}" r="{7 if name == "weft" else 5}" fill="{colour(name)}" '
                           f'fill-opacity="0.9"/>')
    out.append(f'<text x="{left + width / 2}" y="{bottom + 36}" text-anchor="middle" fill="{PALE}">times Go\'s speed (memory: times less); right is better</text>')
    return page(left + width + 24, bottom + 50, "".join(out))


DASHES = ("", "6 3", "2 3", "8 3 2 3")


def lines(title, unit, series, headline):
    """series: (system, procs) -> [(n, value)]. Both axes logarithmic; a colour a system, a dash a number of procs."""
    left, top, width, height = 64, 64, 520, 300
    points = [p for s in series.values() for p in s]
    bounds = lambda values: (math.floor(math.log10(min(values)) + 1e-9), max(math.ceil(math.log10(max(values)) - 1e-9), math.floor(math.log10(min(values))) + 1))
    (x0, x1), (y0, y1) = bounds([n for n, _ in points]), bounds([max(v, 1e-3) for _, v in points])
    px = lambda n: left + width * (math.log10(n) - x0) / (x1 - x0)
    py = lambda v: top + height - height * (math.log10(max(v, 1e-3)) - y0) / (y1 - y0)
    out = [f'<text x="16" y="22" font-weight="600">{escape(title)} <tspan fill="{PALE}" font-weight="400">{escape(unit)}, over n</tspan></text>'
           f'<text x="16" y="42" fill="{PALE}" font-size="10">{escape(headline)}</text>']
    out += [f'<path d="M{px(10 ** e):.1f} {top}v{height}" stroke="{LINE}"/><text x="{px(10 ** e):.1f}" y="{top + height + 16}" text-anchor="middle">10'
            f'<tspan dy="-4" font-size="9">{e}</tspan></text>' for e in range(x0, x1 + 1)]
    out += [f'<path d="M{left} {py(10 ** e):.1f}h{width}" stroke="{LINE}"/><text x="{left - 6}" y="{py(10 ** e) + 4:.1f}" text-anchor="end">{10 ** e:g}</text>'
            for e in range(y0, y1 + 1)]
    procs = sorted({p for _, p in series})
    for i, ((name, p), s) in enumerate(series.items()):
        dash = DASHES[procs.index(p) % len(DASHES)]
        path = "M" + "L".join(f"{px(n):.1f} {py(v):.1f}" for n, v in s)
        out.append(f'<path d="{path}" fill="none" stroke="{colour(name)}" stroke-width="2" stroke-dasharray="{dash}"/>')
        out.append(f'<path d="M{left + width + 14} {top + 8 + 18 * i}h26" stroke="{colour(name)}" stroke-width="2" stroke-dasharray="{dash}"/>'
                   f'<text x="{left + width + 46}" y="{top + 12 + 18 * i}">{escape(name)}, {p} P</text>')
    return page(left + width + 150, top + height + 32, "".join(out))
