"""A figure of a report.html of `protrain ritz` as a file of its own, with its title and its key, for pages of text.

    python3 bench/ritz/pictures.py REPORT.html NUMBER OUT.svg      the first figure is 0
"""
import re
import sys

STYLE = """<style>text{font:12px system-ui,sans-serif;fill:#667085}.title{font-size:14px;font-weight:600;fill:#1b1f24}
.grid{stroke:#e3e6ea}.line{fill:none;stroke:currentColor;stroke-width:1.8;stroke-linejoin:round}.band{fill:currentColor;opacity:.18}
.key{fill:currentColor}.series0{color:#2563eb}.series1{color:#ea7317}.series2{color:#139a74}.series3{color:#8b5cf6}</style>"""
TOP = 28


def main():
    report, number, out = sys.argv[1:4]
    with open(report) as f:
        figure = re.findall(r"<figure>(.*?)</figure>", f.read(), re.S)[int(number)]
    title = re.search(r"<b>(.*?)</b>", figure).group(1)
    names = re.findall(r'<i class="(series\d)"></i>(.*?)</span>', figure)
    width, height, inside = re.search(r'<svg viewBox="0 0 (\d+) (\d+)"[^>]*>(.*?)</svg>', figure, re.S).groups()
    key, at = "", 90 + 7 * len(title)
    for series, name in names:
        key += f'<rect class="key {series}" x="{at}" y="9" width="11" height="11" rx="3"/><text x="{at + 16}" y="19">{name}</text>'
        at += 34 + 7 * len(name)
    with open(out, "w") as f:
        f.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {int(height) + TOP}" role="img" aria-label="{title}">{STYLE}'
                f'<rect width="100%" height="100%" fill="#fff"/><text class="title" x="74" y="19">{title}</text>{key}'
                f'<g transform="translate(0 {TOP})">{inside}</g></svg>\n')


main()
