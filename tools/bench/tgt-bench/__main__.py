#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""tgt-bench: measures iSCSI targets side by side in one run; see tgt-bench(8).

Subjects (this project's tgtd, Debian's tgt, the bare loop, any other target) are started once, pinned
to the target's core, and stopped (SIGSTOP) while another one is measured. For each case every
subject runs in turn, round after round (A B A B), so that what the machine does meanwhile hits all of
them alike; reported are medians, their spread, and the ratio to the bare loop, which is the limit of
this machine's TCP.
"""
import argparse
import fnmatch
import json
import os
import shutil
import signal
import subprocess
import sys
import time

from cases import SCALING_LUS, cases_of, powers, wanted
from common import KEYS, Trouble, machine_words, run_quiet, say, setup_netns, size
from count import COUNT_CASES, count_mode
from env import Env
from rounds import Bench
from subjects import BareLoop, Daemon, Other


# ---- start ---------------------------------------------------------------------------------------


def enter_netns():
    """A network of our own, with only loopback and without the host's congestion control: BBR (some
    distributions' default) paces loopback and hides much of the large-block throughput."""
    if os.environ.get('TGT_BENCH_NETNS') or not shutil.which('unshare') or not shutil.which('ip'):
        return
    argv = ['unshare', '-n' if os.geteuid() == 0 else '-rn']
    if subprocess.run(argv + ['true'], stderr=subprocess.DEVNULL).returncode != 0:
        say('no network namespace of our own (not allowed): congestion control is set for each socket where possible')
        return
    os.environ['TGT_BENCH_NETNS'] = '1'
    os.execvp('unshare', argv + [sys.executable] + sys.argv)


def parse_args():
    p = argparse.ArgumentParser(prog='tgt-bench', description='Measure iSCSI targets side by side; see tgt-bench(8).')
    p.add_argument('--set', choices=('short', 'full', 'scaling', 'weigh'), default='short',
                   help='which cases (short: under 5 minutes; scaling: against LUs, connections, cores; weigh: other ways to '
                   'the socket, in the bare loop)')
    p.add_argument('--case', action='append', default=[], metavar='PATTERN', help='only these cases (shell patterns)')
    p.add_argument('--only', action='append', default=[], metavar='PATTERN', help='only these subjects')
    p.add_argument('--subject', action='append', default=[], metavar='NAME=HOST:PORT,IQN[,LUN[,PID]]',
                   help='one more target, run by somebody else')
    p.add_argument('--variant', action='append', default=[], metavar='NAME=ARGS',
                   help='one more tgtd of ours with these arguments, e.g. centralized="--central-events"')
    p.add_argument('--tgtd-args', default='', help='arguments for every tgtd of ours')
    p.add_argument('--target-cpu', default=None, help='CPUs of the targets (default: 1)')
    p.add_argument('--load-cpu', default='0', help='CPUs of the load, one thread each (default: 0)')
    p.add_argument('--rounds', type=int, default=3)
    p.add_argument('--time', type=float, default=0.9, help='seconds measured a round')
    p.add_argument('--warmup', type=float, default=0.2)
    p.add_argument('--idle-time', type=float, default=3.0)
    p.add_argument('--range', type=size, default='64m', help='how many bytes of the LUs are used (64m)')
    p.add_argument('--files', default=None, help='where backing files go (default: memory, if it has room)')
    p.add_argument('--fill-given', action='store_true', help='overwrite the LUs of --subject, too, before measuring')
    p.add_argument('--out', default='build/bench')
    p.add_argument('--realtime', action='store_true',
                   help='run targets and load before all other work (SCHED_RR), on a machine that others use')
    p.add_argument('--host-net', action='store_true', help='stay in this network namespace')
    p.add_argument('--count', metavar='SUBJECT', help='count system calls and instructions of one subject instead')
    p.add_argument('--count-ios', type=int, default=20000)
    p.add_argument('--count-cases', type=int, default=2, help='how many of the counting cases (up to %d)' % len(COUNT_CASES))
    p.add_argument('--list', action='store_true', help='list cases and subjects')
    o = p.parse_args()
    if o.target_cpu is None:
        o.target_cpu = '1' if (os.cpu_count() or 1) > 1 else '0'
    if o.rounds < 1 or o.time <= 0:
        p.error('--rounds and --time must be positive')
    return o


def cores_of():
    return powers(os.cpu_count() or 1)


def scaling_subject(build, env, name, cores, control, args):
    """A tgtd of ours that may use the first `cores` CPUs, with an LU for each connection of the largest case. Memory LUs
    need no cache, and preparing the memory of a large one would take a core for a minute."""
    def make(wrap):
        d = Daemon(name, 'tgtd, ram, %d cores%s' % (cores, ', one event thread' if '--central-events' in args else ''),
                   env.tgtd, env.tgtadm, 'ram', control, args + ['--cache', 'size=64m'], wrap)
        more = cores_of()[1:]
        d.cpus, d.targets, d.lu_size = '0-%d' % (cores - 1), SCALING_LUS + len(more), '128m'
        d.threads = {SCALING_LUS + i: n for i, n in enumerate(more)}
        return d
    build[name] = make


def make_subjects(env, opts):
    """Builders by name, in the order of the tables."""
    control = 1000 + os.getpid() % 30000  # Debian's tgt wants it below 32768
    args = opts.tgtd_args.split()
    build = {'bare': lambda wrap: BareLoop('bare', 'the same bytes, no logic', wrap),
             'bare-spread': lambda wrap: BareLoop('bare-spread', 'the bare loop, receiving into 96 MiB in turn',
                                                  wrap, ['--spread', '96m'])}
    if opts.set == 'weigh':
        build['bare-uring'] = lambda wrap: BareLoop('bare-uring', 'the bare loop by io_uring', wrap, ['--engine', 'uring'])
        build['bare-zerocopy'] = lambda wrap: BareLoop('bare-zerocopy', 'the bare loop, MSG_ZEROCOPY', wrap,
                                                       ['--zerocopy', '4k'])

    def ours(name, what, bstype, n, extra=(), like=None):
        def make(wrap):
            d = Daemon(name, what, env.tgtd, env.tgtadm, bstype, control + n, args + list(extra), wrap)
            d.like = like
            return d
        build[name] = make

    def debian(name, bstype, n):
        build[name] = lambda wrap: Daemon(name, 'Debian tgt, ' + bstype, env.debian_tgtd, env.debian_tgtadm,
                                          bstype, control + n, (), wrap)

    if env.tgtd and env.tgtd != env.debian_tgtd:
        ours('ours', 'tgtd, ram', 'ram', 0)
        ours('ours-aio', 'tgtd, cached file', 'aio', 1)
        ours('ours-null', 'tgtd, null', 'null', 2)
        for i, text in enumerate(opts.variant):
            name, _, extra = text.partition('=')
            ours('ours-' + name, 'tgtd, ram, ' + extra, 'ram', 10 + i, extra.split(), 'ours')
    if opts.set == 'scaling' and 'ours' in build:
        for i, n in enumerate(cores_of()):
            scaling_subject(build, env, 'ours-%d' % n, n, control + 100 + i, args)
            scaling_subject(build, env, 'central-%d' % n, n, control + 200 + i, args + ['--central-events'])
    debian('tgt-rdwr', 'rdwr', 3)
    debian('tgt-null', 'null', 4)
    return build


def main():
    opts = parse_args()
    if not opts.list and not opts.host_net and not opts.subject:
        enter_netns()
    net = setup_netns()
    os.makedirs(opts.out, exist_ok=True)
    env = Env(opts)
    build = make_subjects(env, opts)
    given = [Other(t) for t in opts.subject]
    known = cases_of(opts.set, cores_of())
    cases = [c for c in known if (opts.set == 'full' or not c.full_only or opts.case)]
    if opts.case:
        cases = [c for c in cases if any(fnmatch.fnmatch(c.name, p) for p in opts.case)]
    if opts.list:
        for c in known:
            print('%-14s %s%s' % (c.name, c.title, ' (full)' if c.full_only else ''))
        for name, b in build.items():
            print('%-14s %s' % (name, b([]).what))
        return 0

    meta = {'when': time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime()), 'machine': machine_words(), 'network': net,
            'target_cpu': opts.target_cpu, 'load_cpu': opts.load_cpu, 'rounds': opts.rounds, 'time': opts.time,
            'warmup': opts.warmup, 'keys': KEYS, 'realtime': opts.realtime}
    if opts.set == 'scaling':
        meta['target_cpu'] = meta['load_cpu'] = '0-%d, as many as the case says' % (cores_of()[-1] - 1)
    counts, subjects = [], []
    bench = Bench(env, subjects, [] if opts.count else cases, {s.name for s in given})
    try:
        if opts.count:
            if opts.count not in build:
                raise Trouble('no subject %r to count; there are: %s' % (opts.count, ' '.join(build)))
            counts = count_mode(env, lambda name, wrap: build[name](wrap), opts.count, opts)
        else:
            for s in [b([]) for b in build.values()] + given:
                if opts.only and not any(fnmatch.fnmatch(s.name, p) for p in opts.only) and s not in given:
                    continue
                if s not in given and not any(wanted(c, s, bench.given) for c in cases):
                    continue
                if s.missing:
                    bench.trouble.append('%s: %s' % (s.name, s.missing))
                    continue
                try:
                    s.start(env)
                    subjects.append(s)
                    s.pause()
                except (Trouble, OSError) as e:
                    s.stop()
                    bench.trouble.append('%s: %s' % (s.name, e))
                    say('%s does not take part: %s' % (s.name, e))
            bench.fill()
            bench.run()
            if opts.idle_time > 0 and not opts.case and opts.set in ('short', 'full'):
                bench.measure_idle()
    except KeyboardInterrupt:
        bench.trouble.append('interrupted')
    finally:
        for s in subjects:
            s.stop()
        env.close()

    stem = os.path.join(opts.out, 'count-%s' % opts.count if opts.count else opts.set if opts.set in ('scaling', 'weigh') else 'report')
    with open(stem + '.json', 'w') as f:
        json.dump({'meta': meta, 'subjects': [s.name for s in subjects],
                   'cases': {c.name: {'title': c.title, 'unit': c.unit, 'axis': c.axis, 'floor': bench.floor.get(c.name),
                             'subjects': bench.found.get(c.name, {})}
                             for c in bench.cases},
                   'idle': bench.idle, 'counts': counts, 'trouble': bench.trouble}, f, indent=1)
    sys.stdout.flush()
    subprocess.run([env.report, stem + '.json'])
    return 1 if bench.trouble else 0


def leave(signum, frame):
    """Ended from outside: what was started is stopped on the way out."""
    raise KeyboardInterrupt


if __name__ == '__main__':
    signal.signal(signal.SIGTERM, leave)
    try:
        sys.exit(main())
    except Trouble as t:
        say('tgt-bench: %s' % t)
        sys.exit(1)
