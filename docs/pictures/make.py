"""Makes plan.svg and report.svg from what the program wrote; docs/pictures/make calls it:

    python3 docs/pictures/make.py PLAN.txt RUN/report.html

The charts of report.svg are those of the page, unchanged; only their arrangement is new."""
import html
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
COLOURS = {"W": "#2563eb", "O": "#ea7317", "G": "#139a74", "A": "#8b5cf6", "T": "#d14d8b", "r": "#9aa3af"}


def write(name, width, height, body):
    with open(os.path.join(HERE, name), "w") as f:
        f.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">{body}</svg>\n')


def plan(path):
    """The screen in a monospaced font; the letters of the bars have the colours of the page."""
    lines = open(path).read().rstrip("\n").split("\n")
    step, left = 17, 14
    text = []
    for i, line in enumerate(lines):
        bar = re.match(r"(\w+ +\[)([A-Za-z.]+)(\].*)", line)
        shown = html.escape(line)
        if bar:
            runs = re.findall(r"((.)\2*)", bar[2])
            shown = html.escape(bar[1]) + "".join(f'<tspan fill="{COLOURS.get(c, "#98a2b3")}">{r}</tspan>' for r, c in runs) + html.escape(bar[3])
        text.append(f'<text x="{left}" y="{26 + i * step}" xml:space="preserve">{shown}</text>')
    width, height = 2 * left + int(7.85 * max(map(len, lines))), 30 + step * len(lines)
    style = "text{font:13px ui-monospace,Menlo,Consolas,monospace;fill:#e6e9ee}"
    write("plan.svg", width, height, f'<style>{style}</style><rect width="{width}" height="{height}" rx="8" fill="#101317"/>' + "".join(text))


def report(path):
    """The loss and step time, the memory of each tier, what each layer saves, and the last step, one below the other."""
    page = open(path).read()
    style = re.search(r"<style>\n(.*?)</style>", page, re.S)[1]
    light = dict(re.findall(r"--(\w+):(#\w+)", style.split("@media")[0]))
    rules = re.sub(r"var\(--(\w+)\)", lambda m: light[m[1]], style[style.index("svg{"):])
    rules = "text{font:12px system-ui,sans-serif}" + re.sub(r"svg\{.*?\}", "", rules)
    body, y, width, column = [], 10, 1100, 540

    def put(x, title, svg, wide):
        nonlocal body
        box = re.search(r'viewBox="0 0 (\d+) (\d+)"', svg)
        height = wide * int(box[2]) / int(box[1])
        inner = re.sub(r"<title>.*?</title>", "", re.sub(r"^<svg[^>]*>|</svg>$", "", svg.strip(), flags=re.S), flags=re.S)
        body.append(f'<text x="{x}" y="{y + 14}" style="font-size:13px;font-weight:600">{title}</text>'
                    f'<svg x="{x}" y="{y + 22}" width="{wide}" height="{height:.0f}" viewBox="{box[0][9:-1]}">{inner}</svg>')
        return height + 36

    charts = re.findall(r"<figcaption>(.*?)</figcaption>(<svg.*?</svg>)", page, re.S)
    wanted = [c for c in charts if re.match(r"Loss|Time per step", re.sub(r"<.*?>", "", c[0]).strip())]
    y += max(put(10 + i * (column + 20), re.search(r"<b>(.*?)</b>", c[0])[1], c[1], column - 10) for i, c in enumerate(wanted[:2]))
    for title, svg in re.findall(r'<div class="card"><p><b>(.*?</p>)(.*?</svg>)', page, re.S):
        y += put(10, re.sub(r"<.*?>", "", title), svg[svg.index("<svg"):], width - 20)
    for heading in ("What each layer saves", "The last step, predicted and measured"):
        found = re.search(f"<h2>{heading}</h2>.*?(<svg.*?</svg>)", page, re.S)
        if found:
            y += put(10, heading, found[1], width - 20)
    write("report.svg", width, round(y), f'<style>{rules}</style><rect width="{width}" height="{round(y)}" rx="8" fill="#fff"/>' + "".join(body))


if __name__ == "__main__":
    plan(sys.argv[1])
    report(sys.argv[2])
