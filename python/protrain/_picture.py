"""Pictures for notebooks."""

import html

COLOURS = {'weights': '#4c78a8', 'optimizer': '#f58518', 'gradients': '#e45756', 'activations': '#72b7b2', 'workspace': '#b279a2',
           'room': '#bab0ac', 'free': '#e8e8e8'}
OTHER = '#9d755d'
WIDTH, LEFT, BAR = 720, 70, 560


def size_text(n):
    unit = 0
    while n >= 1024 and unit < 5:
        n /= 1024
        unit += 1
    return f'{n:.0f} B' if unit == 0 else f'{n:.3g} {["B", "KiB", "MiB", "GiB", "TiB", "PiB"][unit]}'


def _text(x, y, text, size=12, anchor='start'):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="currentColor">{html.escape(text)}</text>'


def _bar(tier, parts, y):
    """One tier: a rectangle for each kind of content, and below it what they are."""
    total = sum(parts.values())
    out = [_text(LEFT - 8, y + 15, tier, 13, 'end')]
    x = float(LEFT)
    legend = LEFT
    for name, n in parts.items():
        if not n:
            continue
        wide = BAR * n / total
        tip = html.escape(f'{name} {size_text(n)}')
        colour = COLOURS.get(name, OTHER)
        out.append(f'<rect x="{x:.2f}" y="{y}" width="{max(wide, 0.5):.2f}" height="20" fill="{colour}"><title>{tip}</title></rect>')
        x += wide
        label = f'{name} {size_text(n)}'
        out.append(f'<rect x="{legend}" y="{y + 27}" width="8" height="8" fill="{colour}"/>')
        out.append(_text(legend + 11, y + 35, label, 10))
        legend += 24 + 6 * len(label)
    out.append(_text(LEFT + BAR + 8, y + 15, size_text(total), 12))
    return ''.join(out)


def plan_svg(plan):
    data = plan.data
    tiers = {t: parts for t, parts in data.get('memory', {}).items() if sum(v for k, v in parts.items() if k != 'free')}
    y, out = 24, []
    if plan.fits:
        p = data['predicted']
        out.append(_text(LEFT, y, f'step {p["step_s"]:.3g} s, {p["tokens_per_s"]:.0f} tokens/s', 15))
    else:
        out.append(_text(LEFT, y, 'it does not fit', 15))
    y += 16
    for tier, parts in tiers.items():
        out.append(_bar(tier, parts, y))
        y += 50
    for way in data.get('ways', []):
        y += 18
        fits = f'{way["step_s"]:.3g} s per step' if way.get('fits') and 'step_s' in way else 'does not fit'
        out.append(_text(LEFT, y, ('* ' if way.get('asked') else '') + f'{way["name"]}: {fits}', 12))
    height = y + 16
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            f'font-family="system-ui,sans-serif">{"".join(out)}</svg>')


def plan_html(plan):
    reason = f'<p>{html.escape(plan.reason)}</p>' if plan.reason else ''
    return (f'<div>{reason}{plan_svg(plan)}<details><summary>in words</summary><pre>{html.escape(plan.text)}</pre></details></div>')


def run_html(run):
    """The losses as a curve."""
    points = [(s.step, s.loss) for s in run.steps]
    head = f'<p>{html.escape(repr(run))}</p>'
    if len(points) < 2:
        return f'<div>{head}</div>'
    low, high = min(y for _, y in points), max(y for _, y in points)
    first, last = points[0][0], points[-1][0]
    at = ' '.join(f'{LEFT + BAR * (x - first) / (last - first):.1f},{20 + 140 * (high - y) / ((high - low) or 1):.1f}' for x, y in points)
    texts = (_text(LEFT - 6, 24, f'{high:.3g}', 11, 'end') + _text(LEFT - 6, 164, f'{low:.3g}', 11, 'end') +
             _text(LEFT, 182, f'step {first}', 11) + _text(LEFT + BAR, 182, f'{last}', 11, 'end'))
    line = f'<polyline fill="none" stroke="#4c78a8" stroke-width="1.5" points="{at}"/>'
    return (f'<div>{head}<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} 190" width="{WIDTH}" height="190" '
            f'font-family="system-ui,sans-serif">{line}{texts}</svg></div>')
