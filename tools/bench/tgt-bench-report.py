#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""tgt-bench-report: turns what tgt-bench measured (JSON) into a text table and an SVG plot.

usage: tgt-bench-report REPORT.json [COUNT.json...]
       tgt-bench-report --brief REPORT.json PICTURE.svg

The first file gives the cases; counts of system calls and instructions are taken from all, and what
tgt-bench-cache found is added to it. The results are written beside the first as .txt and .svg, and
the text is printed. See tgt-bench(8). With --brief: one picture for a page, of four cases.

Exit status: 0; 1 a file cannot be read or written, or is no report; 2 wrong usage.
"""
import json
import math
import os
import re
import sys

# ---- what was to be shown ------------------------------------------------------------------------


def cache_shows(cache):
    out = []

    def bar(what, value, text, held):
        out.append({'what': what, 'value': value, 'bar': text, 'held': held})

    long_read = cache.get('reads', {}).get('512 KiB')
    if long_read:
        bar('512 KiB read hit: partition locks', long_read['most_locks'], '<= 2', long_read['most_locks'] <= 2)
    for name, words, least in (('distinct', 'a LU each', 1.9), ('same', 'one LU', 1.8)):
        if name in cache.get('scaling', {}):
            s = cache['scaling'][name]['cache']
            bar('cache, 1 -> 2 threads, %s: by the clock' % words, s['by_clock'], '>= %.1f' % least, s['by_clock'] >= least)
            bar('cache, 1 -> 2 threads, %s: by CPU time' % words, s['by_cpu'], '>= %.1f' % least, s['by_cpu'] >= least)
    return out


def shows(found, idle, counts):
    """The project's bars, each with what was measured: (text, value, bar, held or None)."""
    out = []

    def get(case, who, key='iops'):
        s = found.get(case, {}).get(who)
        return s[key] if s and s[key] else None

    def ratio(text, a, b, least=None, most=None):
        if a is None or b is None:
            return
        v = a / b
        held = (least is None or v >= least) and (most is None or v <= most)
        out.append({'what': text, 'value': v, 'bar': ('>= %.2f' % least) if least is not None else '<= %.2f' % most,
                    'held': held})

    ratio('4 KiB read d32: IOPS of the bare loop', get('r4k-d32', 'ours'), get('r4k-d32', 'bare'), 0.80)
    ratio('4 KiB read d32: IOPS of tgt null', get('r4k-d32', 'ours'), get('r4k-d32', 'tgt-null'), 8.0)
    ratio('4 KiB read d1: p50 of the bare loop', get('r4k-d1', 'ours', 'p50'), get('r4k-d1', 'bare', 'p50'), most=1.15)
    ratio('4 KiB read d1: CPU an I/O of the bare loop', get('r4k-d1', 'ours', 'cpu_us'),
          get('r4k-d1', 'bare', 'cpu_us'), most=1.20)
    ratio('4 KiB write d32: IOPS of the bare loop', get('w4k-d32', 'ours'), get('w4k-d32', 'bare'), 0.70)
    ratio('4 KiB write d32, cached file: IOPS of the bare loop', get('w4k-d32', 'ours-aio'), get('w4k-d32', 'bare'), 0.70)
    ratio('4 KiB write d32, cached file: IOPS of tgt rdwr', get('w4k-d32', 'ours-aio'), get('w4k-d32', 'tgt-rdwr'), 8.0)
    for size in ('256k', '1m'):
        ratio('%s read d32: bandwidth of the bare loop' % size, get('r%s-d32' % size, 'ours', 'mbps'),
              get('r%s-d32' % size, 'bare', 'mbps'), 0.95)
        ratio('%s write d32: bandwidth of the bare loop' % size, get('w%s-d32' % size, 'ours', 'mbps'),
              get('w%s-d32' % size, 'bare', 'mbps'), 0.85)
    ratio('64 KiB read with both digests: IOPS without', get('r64k-d32-crc', 'ours'), get('r64k-d32', 'ours'), 0.88)
    ratio('4 x d32 to 4 LUs: CPU an I/O of one connection', get('r4k-4x32', 'ours', 'cpu_us'),
          get('r4k-d32', 'ours', 'cpu_us'), most=1.05)
    ratio('two cores, load on the same: CPU an I/O, both, of one core', get('cores-2', 'ours-2', 'total_cpu_us'),
          get('cores-1', 'ours-1', 'total_cpu_us'), most=1.10)
    ratio('half of the maximum rate: p99 over p50', get('r4k-half', 'ours', 'p99'), get('r4k-half', 'ours', 'p50'), most=3.0)
    ratio('512 idle connections: IOPS without', get('r4k-idle512', 'ours'), get('r4k-d32', 'ours'), 0.95)
    if 'ours' in idle:
        v = idle['ours']['no_connection']
        out.append({'what': 'idle: share of a core', 'value': v, 'bar': '< 0.005', 'held': v < 0.005})
    for row in counts:
        if row['case'] == '4 KiB read, depth 32' and row['subject'] == 'ours':
            for key, bar in (('syscalls', 0.15), ('instructions', 600), ('allocations', 0)):
                if row[key] is not None:
                    out.append({'what': '4 KiB read d32: %s an I/O' % key, 'value': row[key],
                                'bar': '<= %g' % bar, 'held': row[key] <= bar})
    return out


# ---- reports -------------------------------------------------------------------------------------


def scaling_axes(cases):
    """The points of the scaling charts: axis -> series -> [(x, subject's summary)]. A series is a subject's name
    without the number of cores it is named for."""
    axes = {}
    for case in cases.values():
        if not case.get('axis'):
            continue
        axis, x = case['axis']
        for name, s in case['subjects'].items():
            if s.get('total_cpu_us'):
                series = axes.setdefault(axis, {}).setdefault(re.sub(r'-\d+$', '', name), [])
                series.append((x, s))
    return axes


def scaling_text(cases):
    lines = []
    for axis, series in scaling_axes(cases).items():
        lines.append('CPU us an I/O, target + load = both (K IOPS), against %s:' % axis)
        names = list(series)
        lines.append('%-12s' % axis + ''.join('%36s' % n for n in names))
        for i, (x, _) in enumerate(series[names[0]]):
            row = '%-12d' % x
            for n in names:
                found = [s for at, s in series[n] if at == x]
                row += '%36s' % ('%.2f + %.2f = %.2f (%.0f)' % (
                    found[0]['cpu_us'], found[0]['load_cpu_us'], found[0]['total_cpu_us'], found[0]['iops'] / 1e3)
                    if found else '-')
            lines.append(row)
        lines.append('')
    return lines


def notes_of(name, case):
    """What a reader of the figures of this case has to know, in words."""
    got, out = case['subjects'], []
    keys = {json.dumps({k: v for k, v in s['agreed'].items() if k != 'max_send_segment'},
                       sort_keys=True) for s in got.values()}
    bare = got.get('bare', {})
    if bare.get('cpu_cores') is not None and bare['cpu_cores'] < 0.93:
        out.append('the bare loop got only %.2f of its core: other work ran here; see --realtime' %
                   bare['cpu_cores'])
    if name == 'r4k-half' and bare.get('p50') and bare['p99'] > 3 * bare['p50']:
        out.append("the bare loop's own p99 is %.0f times its p50: pauses of this machine, in which "
                   'work piles up' % (bare['p99'] / bare['p50']))
    if len(keys) > 1:
        out.append('not every subject agreed to the same keys; see the JSON report')
    for subject, s in got.items():
        if s['spread'] > 0.15:
            out.append('%s: the rounds are %.0f %% apart' % (subject, s['spread'] * 100))
        if s['rounds'] < 3:
            out.append('%s: %d round%s only' % (subject, s['rounds'], 's' * (s['rounds'] > 1)))
    return out


def text_report(run, checks):
    meta = run['meta']
    lines = ['tgt-bench %s, %s, target on CPU %s, load on CPU %s, %d rounds of %.1f s after %.1f s' %
             (meta['when'], meta['machine'], meta['target_cpu'], meta['load_cpu'], meta['rounds'], meta['time'],
              meta['warmup']),
             'Medians; spread is (max - min) / median of the rounds; CPU and latencies in us; MB is 10^6 bytes;',
             'waits is the share of its time that the load had nothing to do: near 0 it is the limit itself.', '']
    if meta.get('realtime'):
        lines.insert(-1, 'realtime: the kernel keeps 5 % for other work (sched_rt_runtime_us), in pauses of 50 ms: read no p99 or '
                         'maximum here.')
    head = '%-13s %9s %7s %8s %9s %9s %9s %9s %8s %6s %6s' % (
        'subject', 'K IOPS', 'of bare', 'spread', 'MB/s', 'p50', 'p99', 'p99.9', 'CPU/IO', 'cores', 'waits')
    for name_of_case, case in run['cases'].items():
        got = case['subjects']
        if not got:
            continue
        lines += ['%s: %s' % (name_of_case, case['title']), head]
        bare = got.get('bare', {}).get('iops')
        for name, s in got.items():
            lines.append('%-13s %9.1f %7s %7.0f%% %9.1f %9.1f %9.1f %9.1f %8s %6s %5.0f%%' % (
                name, s['iops'] / 1e3, '%.3f' % (s['iops'] / bare) if bare else '-', s['spread'] * 100, s['mbps'],
                s['p50'], s['p99'], s['p999'],
                '%.2f' % s['cpu_us'] if s['cpu_us'] is not None else '-',
                '%.2f' % s['cpu_cores'] if s['cpu_cores'] is not None else '-', s['load_waits'] * 100))
        if case.get('floor'):
            lines.append('  %-11s pauses of this machine alone, with any target: p99 %.0f us, p99.9 %.0f us' %
                         ('floor', case['floor']['p99'], case['floor']['p999']))
        lines += ['  NOTE: ' + note for note in notes_of(name_of_case, case)]
        lines.append('')
    lines += scaling_text(run['cases'])
    if run['idle']:
        lines.append('idle, % of a core: no connection / one connection with one I/O a second')
        for name, v in run['idle'].items():
            one = v['one_connection']
            lines.append('%-10s %.3f / %s' % (name, v['no_connection'] * 100, '-' if one is None else '%.3f' % (one * 100)))
        lines.append('')
    for row in run['counts']:
        lines.append('%s, %s, an I/O: %s system calls, %s user-space instructions, %s heap allocations' % (
            row['subject'], row['case'], '-' if row['syscalls'] is None else '%.4f' % row['syscalls'],
            '-' if row['instructions'] is None else '%.0f' % row['instructions'],
            '-' if row['allocations'] is None else '%.4f' % row['allocations']))
    if run.get('cache_text'):
        lines += ['', 'The cache by itself (tgt-bench-cache):'] + ['  ' + t for t in run['cache_text']]
    if checks:
        lines += ['', 'What is to be shown:']
        for c in checks:
            lines.append('  %-6s %-58s %8.3f  (%s)' % ('holds' if c['held'] else 'FAILS', c['what'], c['value'], c['bar']))
    if run['trouble']:
        lines += ['', 'Trouble:'] + ['  ' + t for t in run['trouble']]
    return '\n'.join(lines) + '\n'


def esc(text):
    return text.replace('&', '&amp;').replace('<', '&lt;').replace('>', '&gt;')


COLOURS = {'bare': ['#555555'], 'ours': ['#0b6fb8', '#4aa3df', '#9ccbe8', '#5b8db8', '#2f4b7c'],
           'tgt': ['#d1495b', '#edae49'], 'other': ['#66a182', '#8d5a97', '#a3865a']}


def colours(names):
    """One colour for each subject: a family for ours, one for Debian's tgt, one for others."""
    out, used = {}, {}
    for name in names:
        family = name.split('-')[0] if name.split('-')[0] in COLOURS else 'other'
        shades = COLOURS[family]
        out[name] = shades[used.get(family, 0) % len(shades)]
        used[family] = used.get(family, 0) + 1
    return out


def nice(v):
    if v >= 100:
        return '%.0f' % v
    return '%.1f' % v if v >= 10 else '%.2f' % v


def svg_page(width, height, body):
    return ('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif">\n'
            '<style>.t{font-size:18px;font-weight:bold}.c{font-size:14px;font-weight:bold}.h{font-size:11px;fill:#666}'
            '.v{font-size:11px}.a{font-size:9px;fill:#666}.n{font-size:11px;fill:#8a4b00}</style>\n<rect width="100%%" height="100%%" fill="white"/>\n%s\n</svg>\n' %
            (width, height + 10, '\n'.join(body)))


def svg_bars(x, y, width, title, rows, colour):
    """One panel of horizontal bars; rows are (name, value, rounds): a mark for each round, and a
    line from the least of them to the most."""
    out = ['<text x="%d" y="%d" class="h">%s</text>' % (x, y, esc(title))]
    top = max([v for _, v, rounds in rows for v in [v] + rounds if v] or [1.0])
    for i, (name, v, rounds) in enumerate(rows):
        yy = y + 8 + i * 17
        scale = (width - 60) / top
        w = scale * v if v else 0
        out.append('<rect x="%d" y="%d" width="%.1f" height="12" fill="%s"/>' %
                   (x, yy, max(w, 0.5), colour[name]))
        end = max([w] + [scale * r for r in rounds])
        if len(rounds) > 1:
            out.append('<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#222"/>' %
                       (x + scale * min(rounds), yy + 6, x + scale * max(rounds), yy + 6))
            out += ['<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#222"/>' %
                    (x + scale * r, yy + 3, x + scale * r, yy + 9) for r in rounds]
        out.append('<text x="%.1f" y="%d" class="v">%s</text>' %
                   (x + end + 4, yy + 10, nice(v) if v else '-'))
    return out


def svg_grid(x, y, width, height, title, log_x, log_y):
    """The frame of a panel; log_x and log_y are lists of (place from 0 to 1, text)."""
    out = ['<text x="%d" y="%d" class="h">%s</text>' % (x, y, esc(title))]
    for at, text in log_x:
        px = x + 40 + at * (width - 60)
        out.append('<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#ddd"/>' %
                   (px, y + 8, px, y + 8 + height))
        out.append('<text x="%.1f" y="%d" class="a" text-anchor="middle">%s</text>' %
                   (px, y + 20 + height, esc(text)))
    for at, text in log_y:
        py = y + 8 + height - at * height
        out.append('<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/>' %
                   (x + 40, py, x + width - 20, py))
        out.append('<text x="%d" y="%.1f" class="a" text-anchor="end">%s</text>' %
                   (x + 36, py + 3, esc(text)))
    return out


def svg_curve(x, y, width, height, points, colour):
    return '<polyline fill="none" stroke="%s" stroke-width="1.5" points="%s"/>' % (
        colour, ' '.join('%.1f,%.1f' % (x + 40 + px * (width - 60), y + 8 + height - py * height)
                         for px, py in points))


def svg_distribution(x, y, width, height, got, colour):
    """Distribution functions of latency: across, microseconds; up, nines, so that the tail has as
    much room as the rest."""
    curves = {n: s['distribution_us'] for n, s in got.items() if s.get('distribution_us')}
    values = [v for c in curves.values() for _, v in c if v > 0]
    if not values:
        return []
    lo, hi = math.log10(min(values)), math.log10(max(values))
    hi = max(hi, lo + 0.1)

    def across(v):
        return (math.log10(max(v, 1e-3)) - lo) / (hi - lo)

    def up(percent):
        return -math.log10(1 - min(percent, 99.99) / 100) / 4

    marks = [(across(m * 10 ** d), '%g' % (m * 10 ** d))
             for d in range(math.floor(lo), math.ceil(hi) + 1)
             for m in ((1,) if hi - lo > 2 else (1, 2, 5)) if lo <= math.log10(m) + d <= hi]
    out = svg_grid(x, y, width, height, 'share of commands done within so many us', marks,
                   [(up(p), '%g %%' % p) for p in (0, 50, 90, 99, 99.9, 99.99)])
    for name, curve in curves.items():
        out.append(svg_curve(x, y, width, height, [(across(v), up(p)) for p, v in curve],
                             colour[name]))
    return out


def svg_rates(x, y, width, height, got, colour):
    """The rate over time, one round behind the other; from zero up."""
    rates = {n: s['rates'] for n, s in got.items() if s.get('rates')}
    values = [v for rounds in rates.values() for r in rounds for v in r['iops']]
    if not values or not max(values):
        return []
    top = 1.1 * max(values)
    rounds = max(len(r) for r in rates.values())
    seconds = max(r['seconds'] * len(r['iops']) for of in rates.values() for r in of)
    out = svg_grid(x, y, width, height, 'K IOPS over time, rounds of %.1f s' % seconds,
                   [(i / rounds, 'round %d' % (i + 1)) for i in range(rounds)],
                   [(i / 3, nice(top * i / 3e3)) for i in range(4)])
    for name, of in rates.items():
        for i, r in enumerate(of):
            n = len(r['iops'])
            out.append(svg_curve(x, y, width, height,
                                 [((i + (k + 0.5) / n) / rounds, v / top)
                                  for k, v in enumerate(r['iops'])], colour[name]))
    return out


def svg_ranges(x, y, width, title, rows, colour):
    """p50, p99 and p99.9 of each subject as a line with three marks, on a logarithmic axis."""
    out = ['<text x="%d" y="%d" class="h">%s</text>' % (x, y, esc(title))]
    values = [v for _, r in rows for v in r if v]
    if not values:
        return out
    lo, hi = math.log10(min(values)) - 0.05, math.log10(max(values)) + 0.05

    def place(v):
        return x + (width - 20) * (math.log10(max(v, 1e-3)) - lo) / (hi - lo)

    for decade in range(math.ceil(lo), math.floor(hi) + 1):
        px = place(10 ** decade)
        out.append('<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#ddd"/>' % (px, y + 4, px, y + 8 + len(rows) * 17))
        out.append('<text x="%.1f" y="%d" class="v">%g</text>' % (px + 2, y + 16 + len(rows) * 17, 10 ** decade))
    for i, (name, r) in enumerate(rows):
        yy = y + 14 + i * 17
        out.append('<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="%s" stroke-width="2"/>' %
                   (place(r[0]), yy, place(r[2]), yy, colour[name]))
        for v, size in zip(r, (5, 4, 3)):
            out.append('<circle cx="%.1f" cy="%d" r="%d" fill="%s"/>' % (place(v), yy, size, colour[name]))
    return out


def svg_lines(x, y, width, height, title, series, colour):
    """A panel of lines over a logarithmic x from zero up: series is name -> [(x, value)]."""
    out = ['<text x="%d" y="%d" class="h">%s</text>' % (x, y, esc(title))]
    xs = sorted({p[0] for points in series.values() for p in points})
    top = 1.15 * max(v for points in series.values() for _, v in points)
    y0, left = y + 10 + height, x + 30

    def place(px, v):
        along = math.log2(px / xs[0]) / max(math.log2(xs[-1] / xs[0]), 1e-9)
        return left + along * (width - 60), y0 - v / top * height

    for i in range(4):
        v = top * i / 3
        out.append('<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/>' % (left, place(xs[0], v)[1], left + width - 60, place(xs[0], v)[1]))
        out.append('<text x="%d" y="%.1f" class="v">%s</text>' % (x, place(xs[0], v)[1] + 4, nice(v)))
    for px in xs:
        out.append('<text x="%.1f" y="%d" class="v">%d</text>' % (place(px, 0)[0] - 3, y0 + 14, px))
    for name, points in series.items():
        places = [place(*p) for p in points]
        out.append('<polyline fill="none" stroke="%s" stroke-width="2" points="%s"/>' %
                   (colour[name], ' '.join('%.1f,%.1f' % p for p in places)))
        out += ['<circle cx="%.1f" cy="%.1f" r="4" fill="%s"/>' % (p + (colour[name],)) for p in places]
    return out


def svg_scaling(run, y):
    """The scaling charts: a row for each axis."""
    axes = scaling_axes(run['cases'])
    names = sorted({n for series in axes.values() for n in series}, reverse=True)
    colour = dict(zip(names, ('#0b6fb8', '#d1495b', '#66a182')))
    body = []
    for axis, series in axes.items():
        body.append('<text x="20" y="%d" class="c">Against %s</text>' % (y, esc(axis)))
        for i, n in enumerate(names):
            body.append('<text x="20" y="%d" class="v" fill="%s">%s</text>' % (y + 34 + i * 17, colour[n], esc(n)))
        for column, (title, key, unit) in enumerate((('CPU us an I/O, target and load', 'total_cpu_us', 1.0),
                                                     ('CPU us an I/O, target', 'cpu_us', 1.0), ('K IOPS', 'iops', 1e3))):
            body += svg_lines(110 + column * 280, y + 16, 270, 120, title,
                              {n: [(x, s[key] / unit) for x, s in points] for n, points in series.items()}, colour)
        y += 190
    return body, y


def svg_report(run, checks):
    names = run['subjects'] or ['?']
    meta = run['meta']
    colour = colours(names)
    body, y = [], 70
    body.append('<text x="20" y="24" class="t">tgt-bench %s</text>' % esc(meta['when']))
    body.append('<text x="20" y="42" class="v">%s; target on CPU %s, load on CPU %s; medians of %d '
                'rounds of %.1f s; black marks are the rounds</text>' %
                (esc(meta['machine']), meta['target_cpu'], meta['load_cpu'], meta['rounds'],
                 meta['time']))
    if meta.get('realtime'):
        body.append('<text x="20" y="57" class="n">realtime: the kernel keeps 5 % for other work, in '
                    'pauses of 50 ms: read no p99 or maximum here.</text>')
    for name_of_case, case in run['cases'].items():
        got = case['subjects']
        if not got or case.get('axis'):
            continue
        rows = list(got.items())
        body.append('<text x="20" y="%d" class="c">%s</text>' % (y, esc(case['title'])))
        for i, (n, _) in enumerate(rows):
            body.append('<text x="20" y="%d" class="v">%s</text>' % (y + 34 + i * 17, esc(n)))
        in_iops = case['unit'] == 'iops'
        body += svg_bars(110, y + 16, 250, 'K IOPS' if in_iops else 'MB/s',
                         [(n, s['iops'] / 1e3 if in_iops else s['mbps'],
                           [r / 1e3 if in_iops else r * s['mbps'] / s['iops']
                            for r in s['iops_rounds'] if s['iops']]) for n, s in rows], colour)
        body += svg_bars(380, y + 16, 220, 'CPU us an I/O',
                         [(n, s['cpu_us'] or 0, []) for n, s in rows], colour)
        body += svg_ranges(620, y + 16, 300, 'latency us: p50, p99, p99.9',
                           [(n, (s['p50'], s['p99'], s['p999'])) for n, s in rows], colour)
        y += 46 + len(rows) * 17
        for note in notes_of(name_of_case, case):
            body.append('<text x="20" y="%d" class="n">note: %s</text>' % (y, esc(note)))
            y += 15
        curves = svg_distribution(20, y + 10, 450, 130, got, colour)
        curves += svg_rates(490, y + 10, 450, 130, got, colour)
        body += curves
        y += 190 if curves else 16
    charts, y = svg_scaling(run, y)
    body += charts
    for title, lines in (('The cache by itself', run.get('cache_text', [])),
                         ('Trouble', run['trouble'])):
        if lines:
            body.append('<text x="20" y="%d" class="c">%s</text>' % (y, title))
        for line in lines:
            y += 15
            body.append('<text x="20" y="%d" class="n" xml:space="preserve">%s</text>' %
                        (y, esc(line)))
        y += 30 if lines else 0
    if checks:
        body.append('<text x="20" y="%d" class="c">What is to be shown</text>' % y)
        for c in checks:
            y += 17
            body.append('<text x="20" y="%d" class="v" fill="%s">%s  %s: %.3f (%s)</text>' %
                        (y, '#2a7f3f' if c['held'] else '#b3261e', 'holds' if c['held'] else 'fails', esc(c['what']),
                         c['value'], esc(c['bar'])))
        y += 30
    return svg_page(960, y, body)


BRIEF = {'bare': 'bare loop (no target, the limit)', 'ours': 'tgtd, memory', 'ours-aio': 'tgtd, cached file',
         'tgt-rdwr': "Debian's tgt, file"}
BRIEF_CASES = ('r4k-d32', 'w4k-d32', 'r256k-d32', 'w256k-d32')


def svg_brief(run):
    """One picture for a page: four cases, the bare loop, ours, Debian's tgt; the line is from the least to the most."""
    meta, body, y = run['meta'], [], 64
    colour = colours(BRIEF)
    body.append('<text x="16" y="24" class="t">What one core serves, of what it could at best</text>')
    body.append('<text x="16" y="42" class="v">%s; target on CPU %s, load on CPU %s; medians of %d rounds, %s</text>' %
                (esc(meta['machine']), meta['target_cpu'], meta['load_cpu'], meta['rounds'], esc(meta['when'][:10])))
    for name in BRIEF_CASES:
        case = run['cases'].get(name)
        if not case or 'bare' not in case['subjects']:
            continue
        body.append('<text x="16" y="%d" class="c">%s</text>' % (y, esc(case['title'])))
        rows = [(n, case['subjects'][n]) for n in BRIEF if n in case['subjects']]
        top = max(max(s['iops_rounds']) for _, s in rows)
        for i, (n, s) in enumerate(rows):
            at, scale = y + 8 + i * 18, 430 / top
            lo, hi = min(s['iops_rounds']) * scale, max(s['iops_rounds']) * scale
            body.append('<text x="16" y="%d" class="v">%s</text>' % (at + 10, esc(BRIEF[n])))
            body.append('<rect x="200" y="%d" width="%.1f" height="13" fill="%s"/>' % (at, max(s['iops'] * scale, 0.5), colour[n]))
            body.append('<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#222"/>' % (200 + lo, at + 6, 200 + hi, at + 6))
            value = '%s K IOPS' % nice(s['iops'] / 1e3) if case['unit'] == 'iops' else '%s GB/s' % nice(s['mbps'] / 1e3)
            body.append('<text x="%.1f" y="%d" class="v">%s</text>' % (206 + max(hi, s['iops'] * scale), at + 10, value))
        y += 32 + len(rows) * 18
    return svg_page(740, y, body)


# ---- files ---------------------------------------------------------------------------------------


class Bad(Exception):
    """What is wrong with a file, in words."""


def load(path):
    try:
        with open(path, encoding='utf-8') as f:
            run = json.load(f)
    except OSError as e:
        raise Bad('%s: %s' % (path, e.strerror)) from None
    except (ValueError, RecursionError) as e:
        raise Bad('%s: not JSON: %s' % (path, e)) from None
    if not isinstance(run, dict) or 'meta' not in run or 'cases' not in run:
        raise Bad('%s: no report of tgt-bench: it has no meta and cases' % path)
    for key, kind in (('meta', dict), ('cases', dict), ('counts', list), ('trouble', list),
                      ('idle', dict), ('subjects', list)):
        if not isinstance(run.setdefault(key, kind()), kind):
            raise Bad('%s: no report of tgt-bench: %s is no %s' % (path, key, kind.__name__))
    return run


def write(path, text):
    try:
        with open(path, 'w', encoding='utf-8') as f:
            f.write(text)
    except OSError as e:
        raise Bad('%s: %s' % (path, e.strerror)) from None


def report(paths):
    runs = [load(path) for path in paths]
    run = runs[0]
    parts = {key: other[key] for other in runs[1:] for key in ('cache', 'cache_text') if key in other}
    if parts:  # one report for both
        run.update(parts)
        write(paths[0], json.dumps(run, indent=1))
    for other in runs[1:]:
        run['counts'] += other['counts']
        run['trouble'] += other['trouble']
    found = {name: case['subjects'] for name, case in run['cases'].items()}
    checks = shows(found, run['idle'], run['counts']) + cache_shows(run.get('cache', {}))
    text = text_report(run, checks)
    stem = os.path.splitext(paths[0])[0]
    picture = svg_report(run, checks) if found else None
    write(stem + '.txt', text)
    if picture:
        write(stem + '.svg', picture)
    sys.stdout.write(text)
    print('written: %s.json %s.txt%s' % (stem, stem, ' %s.svg' % stem if picture else ''),
          file=sys.stderr)


def main():
    brief = len(sys.argv) == 4 and sys.argv[1] == '--brief'
    if not brief and (len(sys.argv) < 2 or sys.argv[1].startswith('-')):
        print(__doc__.strip(), file=sys.stderr)
        return 0 if sys.argv[1:] in (['-h'], ['--help']) else 2
    paths = sys.argv[2:3] if brief else sys.argv[1:]
    try:
        if brief:
            write(sys.argv[3], svg_brief(load(paths[0])))
        else:
            report(paths)
    except Bad as e:
        print('tgt-bench-report: %s' % e, file=sys.stderr)
        return 1
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as e:
        # a file of another version, or one that somebody has edited
        print('tgt-bench-report: %s: no report of this tgt-bench: %s %s' %
              (paths[0], type(e).__name__, e), file=sys.stderr)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
