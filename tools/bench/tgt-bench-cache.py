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


def beside(program):
    """Hits of the cache beside reads of a ram store (C10), over sets that fit into memory; and what
    is to be said of the others."""
    with open('/proc/meminfo') as f:
        available = next(int(line.split()[1]) << 10 for line in f
                         if line.startswith('MemAvailable:'))
    rows, left_out = [], []
    for mib in (256, 4096, 16384):
        needed = (mib << 20) * 5 // 2
        if needed > available:
            left_out.append('reads over %d MiB beside a ram store are left out: '
                            'they need %.1f GiB of memory, and %.1f are free' % (mib, needed / (1 << 30), available / (1 << 30)))
            continue
        said = run([program, '--beside-ram', '-s', '%dm' % mib, '-j']).stdout
        rows.append(json.loads(said))
    return rows, left_out


def misses_of(program, args, n, function):
    """Of a first-level data cache of 32 KiB, by callgrind, in all of @n requests."""
    with tempfile.TemporaryDirectory() as work:
        said = run([shutil.which('valgrind'), '--tool=callgrind', '--cache-sim=yes',
                    '--D1=32768,8,64', '--toggle-collect=' + function,
                    '--callgrind-out-file=%s/out' % work, program, '-n', str(n)] + args).stderr
    for line in said.splitlines():
        if 'Collected : ' in line:
            numbers = line.split('Collected : ')[1].split()
            return int(numbers[4]) + int(numbers[5]) # Ir Dr Dw I1mr D1mr D1mw
    raise RuntimeError('callgrind collected nothing: ' + said[-300:])


def lines_of(program, args, n, function, calls=1):
    """Lines that a request finds far away, by what twice as many miss more. What all use is near."""
    more = misses_of(program, args, 2 * n, function) - misses_of(program, args, n, function)
    return more / (n * calls)


def model(program, nodes):
    """Cache lines of each job, counted anew, and what the model makes of those compiled in."""
    if not shutil.which('valgrind'):
        raise RuntimeError('lines are counted by valgrind')
    counted = {}

    def job(name, small, large):
        block = (large - small) / 63  # 64 blocks against one
        counted[name] = {'block': block, 'request': max(small - block, 0)}

    wide = ['-s', '128m']
    hit = [lines_of(program, ['-b', size] + wide, n, 'one_read')
           for size, n in (('4k', 20000), ('256k', 1000))]
    job('hit', *hit)
    missed = []
    for size, n, found in (('4k', 20000, hit[0]), ('256k', 1500, hit[1])):
        args = ['-m', '-b', size, '-s', '64m']
        share = json.loads(run([program, '-n', str(n), '-j'] + args).stdout)['hits']
        both = lines_of(program, args, n, 'cache_read', 2)  # it warms up by as many
        missed.append((both - share * found) / (1 - share))
    job('miss', *missed)
    for name, function in (('write: blocks', 'cache_write_prepare'),
                           ('write: end', 'cache_write')):
        job(name, *(lines_of(program, ['-w', '-b', size, '-s', '64m'], n, function)
                    for size, n in (('4k', 20000), ('256k', 500))))
    simulate = ['--numa-nodes', str(nodes)] if nodes else []
    machines = json.loads(run([program, '--model', '-j'] + simulate).stdout)
    return {'counted': counted, 'machines': machines}


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
    for row in c.get('beside', []):
        lines.append('reads of %d KiB over %d MiB, %d at a time, bytes copied: '
                     'cache %.0f ns, ram %.0f ns: %.2f of its speed' %
                     (row['bytes'] >> 10, row['span'] >> 20, row['depth'], row['cache_ns'],
                      row['ram_ns'], row['ratio']))
    lines += c.get('beside_left_out', [])
    for name, row in c.get('model', {}).get('counted', {}).items():
        used = c['model']['machines'][0][name]
        lines.append('%s: %.1f lines a block and %.1f a request; the model goes by %.1f and %.1f'
                     % (name, row['block'], row['request'], used['lines_block'],
                        used['lines_request']))
    for m in c.get('model', {}).get('machines', []):
        since = ['never' if n < 0 else 'from %d KiB' % (n >> 10)
                 for n in (m['hit']['back_from'], m['hit']['send_from'])]
        lines.append('%s, a hop of %d ns, %.1f ns more a remote line: '
                     'a hit is forwarded %s; if the worker sent it, %s' %
                     (m['machine'], m['hop_ns'], m['line_ns'][1] - m['line_ns'][0], *since))
        for w in m.get('ways', []):
            lines.append('%s, reads of %d KiB: inline %.0f ns; '
                         'handed back %.0f, modelled %.0f: %.2f; '
                         'sent by the worker %.0f, modelled %.0f: %.2f' %
                         (m['machine'], w['bytes'] >> 10, w['inline_ns'],
                          w['back_ns'], w['back_model_ns'], w['back_ns'] / w['back_model_ns'],
                          w['send_ns'], w['send_model_ns'], w['send_ns'] / w['send_model_ns']))
    if 'model' in c and not any('ways' in m for m in c['model']['machines']):
        lines.append('this machine has one node: there is nothing to be measured beside the model')
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
    p.add_argument('--model', action='store_true',
                   help='instead: what forwarding is worth, by its model, and its counts')
    p.add_argument('--numa-nodes', type=int,
                   help='with --model: this machine with so many, simulated')
    p.add_argument('--blocks', action='store_true', help='instead: what the size of blocks costs')
    o = p.parse_args()
    here = os.environ.get('TGT_BIN') or os.path.dirname(os.path.abspath(sys.argv[0]))
    program = os.path.join(here, 'tgt-cachebench')
    os.makedirs(o.out, exist_ok=True)
    cache, trouble = {}, []
    try:
        if o.blocks:
            cache['blocks'] = blocks(program)
        elif o.model:
            cache['model'] = model(program, o.numa_nodes)
        else:
            for kind, table, function in (('reads', READS, 'one_read'), ('writes', WRITES, 'one_write')):
                cache[kind] = {}
                for name, args, n in table:
                    r = json.loads(run([program, '-n', '5000', '-j'] + SPAN + args).stdout)
                    cache[kind][name] = {'locks': r['locks'], 'most_locks': r['most_locks'],
                                         'instructions': instructions(program, args, n, function)}
            cache['beside'], cache['beside_left_out'] = beside(program)
            if len(os.sched_getaffinity(0)) > 1:
                cache['scaling'] = scaling(program, o.passes, o.rounds)
            else:
                trouble.append('cache: one processor, nothing scales')
    except (RuntimeError, OSError, ValueError, subprocess.TimeoutExpired) as e:
        trouble.append('cache: %s' % e)
    for line in text(cache):
        say('cache: ' + line)
    name = ('cache-blocks.json' if o.blocks else
            'cache-model.json' if o.model else 'cache.json')
    with open(os.path.join(o.out, name), 'w') as f:
        json.dump({'cache': cache, 'cache_text': text(cache), 'counts': [], 'trouble': trouble}, f, indent=1)
    for t in trouble:
        say(t)
    return 1 if trouble else 0


if __name__ == '__main__':
    sys.exit(main())
