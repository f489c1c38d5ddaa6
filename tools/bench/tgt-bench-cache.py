#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""tgt-bench-cache: the part "cache" of the bench; see tgt-bench(8).

Without a daemon and without a network: tgt-cachebench runs the cache in its own process. Counted are instructions
(callgrind) and partition locks of a read hit; measured is how reads scale from one thread to two, on a LU each and
on one. That is done in short slices in turn, by the clock and by processor time, beside a loop that shares nothing:
a machine that is busy shows in the clock and in that loop, contention in the cache's processor time alone.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

READS = (  # what, arguments, how many under callgrind
    ('4 KiB', ['-b', '4k'], 60000),
    ('256 KiB', ['-b', '256k'], 2000),
    ('512 KiB', ['-b', '512k', '-a', '4k'], 1000),
)
WRITES = (
    ('4 KiB', ['-w', '-b', '4k'], 8000),
    ('256 KiB', ['-w', '-b', '256k'], 500),
)
SPAN = ['-s', '8m']


def say(text):
    print(text, file=sys.stderr, flush=True)


def run(argv):
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
    if done.returncode != 0:
        raise RuntimeError('%s: exit %d: %s' % (' '.join(argv), done.returncode, done.stderr.strip()[-300:]))
    return done


def instructions(program, args, n, function, extra=()):
    """Of one request, from its submission to the last reference put. None without valgrind."""
    valgrind = shutil.which('valgrind')
    if not valgrind:
        return None
    with tempfile.TemporaryDirectory() as work:
        said = run([valgrind, '--tool=callgrind', '--toggle-collect=' + function, '--callgrind-out-file=%s/out' % work, program,
                    '-n', str(n)] + SPAN + args + list(extra)).stderr
    for line in said.splitlines():
        if 'Collected : ' in line:
            return int(line.rsplit(' ', 1)[1]) / n
    raise RuntimeError('callgrind collected nothing: ' + said[-300:])


def scaling(program, passes, rounds):
    """1 thread to 2, on a LU each and on one, in turn; medians over the passes."""
    ways = {'distinct': [], 'same': ['-1']}
    found = {name: [] for name in ways}
    for _ in range(passes):
        for name, args in ways.items():
            said = run([program, '-t', '2', '-r', str(rounds), '-n', '20000', '-s', '512m', '-c', 'size=1200m', '-j'] + args).stdout
            found[name].append(json.loads(said))
    out = {}
    for name, runs in found.items():
        out[name] = {side: {key: statistics.median(r[side][key] for r in runs) for key in runs[0][side]}
                     for side in ('cache', 'machine')}
        out[name]['contended'] = statistics.median(r['contended'] for r in runs)
    return out


def blocks(program):
    """What the size of blocks costs: instructions of hits, and memory under small random reads."""
    rows = []
    for size in ('4k', '8k', '16k', '32k', '64k'):
        said = run([program, '-m', '-b', '4k', '-s', '64m', '-n', '200000', '-j', '-c', 'block=' + size]).stdout
        row = json.loads(said)
        for name, args, n in READS[:2]:
            row[name] = instructions(program, args, n, 'one_read', ['-c', 'block=' + size])
        rows.append(row)
    return rows


def text(c):
    def number(v):
        return '-' if v is None else '%.0f' % v

    lines = []
    for name, r in c.get('reads', {}).items():
        lines.append('read hit of %s: %s instructions, %.2f partition locks, %d at most' %
                     (name, number(r['instructions']), r['locks'], r['most_locks']))
    for name, r in c.get('writes', {}).items():
        lines.append('overwrite of %s: %s instructions' % (name, number(r['instructions'])))
    for name, words in (('distinct', 'on a LU each'), ('same', 'on one LU')):
        if name in c.get('scaling', {}):
            s, m = c['scaling'][name]['cache'], c['scaling'][name]['machine']
            lines.append('1 -> 2 threads %s: %.2f -> %.2f M/s, %.1f -> %.1f ns of CPU each: scales %.2f by the clock, %.2f by CPU time; '
                         'the machine itself %.2f and %.2f' %
                         (words, s['rate_one'] / 1e6, s['rate_all'] / 1e6, s['cpu_ns_one'], s['cpu_ns_all'], s['by_clock'], s['by_cpu'],
                          m['by_clock'], m['by_cpu']))
    for row in c.get('blocks', []):
        lines.append('blocks of %d KiB: %s instructions a 4 KiB read, %s a 256 KiB read; random 4 KiB reads over twice the cache: '
                     '%.1f %% hits, %.1f %% of the memory holds data' %
                     (row['block'] >> 10, number(row['4 KiB']), number(row['256 KiB']), row['hits'] * 100, row['filled'] * 100))
    return lines


def main():
    p = argparse.ArgumentParser(prog='tgt-bench-cache', description='The part "cache" of the bench; see tgt-bench(8).')
    p.add_argument('--out', default='build/bench')
    p.add_argument('--passes', type=int, default=3, help='of the scaling')
    p.add_argument('--rounds', type=int, default=11, help='of slices in each')
    p.add_argument('--blocks', action='store_true', help='instead: what the size of blocks costs')
    o = p.parse_args()
    here = os.environ.get('TGT_BIN') or os.path.dirname(os.path.abspath(sys.argv[0]))
    program = os.path.join(here, 'tgt-cachebench')
    os.makedirs(o.out, exist_ok=True)
    cache, trouble = {}, []
    try:
        if o.blocks:
            cache['blocks'] = blocks(program)
        else:
            for kind, table, function in (('reads', READS, 'one_read'), ('writes', WRITES, 'one_write')):
                cache[kind] = {}
                for name, args, n in table:
                    r = json.loads(run([program, '-n', '5000', '-j'] + SPAN + args).stdout)
                    cache[kind][name] = {'locks': r['locks'], 'most_locks': r['most_locks'],
                                         'instructions': instructions(program, args, n, function)}
            if len(os.sched_getaffinity(0)) > 1:
                cache['scaling'] = scaling(program, o.passes, o.rounds)
            else:
                trouble.append('cache: one processor, nothing scales')
    except (RuntimeError, OSError, ValueError, subprocess.TimeoutExpired) as e:
        trouble.append('cache: %s' % e)
    for line in text(cache):
        say('cache: ' + line)
    with open(os.path.join(o.out, 'cache-blocks.json' if o.blocks else 'cache.json'), 'w') as f:
        json.dump({'cache': cache, 'cache_text': text(cache), 'counts': [], 'trouble': trouble}, f, indent=1)
    for t in trouble:
        say(t)
    return 1 if trouble else 0


if __name__ == '__main__':
    sys.exit(main())
