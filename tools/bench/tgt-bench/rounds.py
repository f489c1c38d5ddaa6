# SPDX-License-Identifier: GPL-2.0-or-later
"""The rounds: every subject in turn, case by case; and what idling costs."""
import json
import statistics
import subprocess
import time

from cases import IDLE, wanted
from common import Trouble, say, thread_ns, wait_until_idle
from subjects import Other


def summary(results):
    """Medians over the rounds of one subject in one case."""
    def med(get):
        values = [v for v in (get(r) for r in results) if v is not None]
        return statistics.median(values) if values else None

    def distribution():
        """Medians over the rounds of each percentile."""
        points = [dict(map(tuple, r.get('distribution_us', []))) for r in results]
        return [[p, statistics.median(found[p] for found in points)] for p in points[0]
                if all(p in found for found in points)]

    iops = [r['iops'] for r in results]
    middle = statistics.median(iops)
    return {
        'rounds': len(results),
        'iops': middle,
        'iops_rounds': iops,
        'spread': (max(iops) - min(iops)) / middle if middle else 0.0,
        'mbps': med(lambda r: r['mbps']),
        'p50': med(lambda r: r['latency_us']['all']['p50']),
        'p99': med(lambda r: r['latency_us']['all']['p99']),
        'p999': med(lambda r: r['latency_us']['all']['p999']),
        'max': med(lambda r: r['latency_us']['all']['max']),
        'distribution_us': distribution(),
        'rates': [r['rates'] for r in results if r.get('rates', {}).get('iops')],
        'cpu_us': med(lambda r: r.get('target_cpu', {}).get('us_per_io')),
        'cpu_cores': med(lambda r: r.get('target_cpu', {}).get('cores')),
        'load_cpu_us': med(lambda r: r['load'].get('cpu_us_per_io')),
        'total_cpu_us': med(lambda r: r['load']['cpu_us_per_io'] + r['target_cpu']['us_per_io']
                            if 'target_cpu' in r and 'cpu_us_per_io' in r['load'] else None),
        'load_waits': med(lambda r: r['load']['waits']),
        'ios_per_receive': med(lambda r: r['load']['ios_per_receive']),
        'agreed': results[-1]['agreed'],
        'threads': results[-1].get('target_cpu', {}).get('threads', []),
    }


def cpu_list(text):
    cpus = set()
    for part in text.split(','):
        lo, _, hi = part.partition('-')
        cpus |= set(range(int(lo), int(hi or lo) + 1))
    return cpus


def pauses(env, seconds):
    """What this machine does to a program that only looks at the clock, on the load's and the target's core at
    once: how long each gap was. Whatever arrives in a gap waits at least for its end, so that this is a floor of
    any target's latency at a fixed rate."""
    procs = [subprocess.Popen(env.first() + [env.bareloop, '--pauses', str(seconds), '--cpu', cpu], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True)
             for cpu in {str(min(cpu_list(env.target_cpus))), str(min(cpu_list(env.opts.load_cpu)))}]
    return [json.loads(p.communicate()[0]) for p in procs]


def floor_of(found, share):
    """The latency in us that so large a share of arrivals exceeds by the pauses alone: an arrival at a random time within a
    gap waits for what is left of it. Gaps of both cores count; none is long enough to matter: 0."""
    gaps = [(g, p['seconds'] * 1e9) for p in found for g in p['gaps_ns']]
    low, high = 0.0, max([g for g, _ in gaps] or [0])
    for _ in range(60):
        x = (low + high) / 2
        if sum(max(0.0, g - x) / t for g, t in gaps) > share:
            low = x
        else:
            high = x
    return high / 1e3


class Bench:
    def __init__(self, env, subjects, cases, given):
        self.env, self.subjects, self.cases, self.given = env, subjects, cases, given
        self.found = {}    # case -> subject -> summary
        self.trouble = []  # what went wrong, in words
        self.idle = {}
        self.floor = {}    # case -> medians of what pauses of the machine alone make of p99 and p99.9
        self.current = None

    def switch_to(self, subject):
        """Only the measured subject runs; the others are stopped meanwhile."""
        if self.current is subject:
            return
        if self.current is not None:
            self.current.pause()
        subject.resume()
        self.current = subject

    def fill(self):
        for s in self.subjects:
            self.switch_to(s)
            if s.name.startswith('bare') or (s.name in self.given and not self.env.opts.fill_given):
                continue
            say('filling %s' % s.name)
            for i, iqn in enumerate(s.iqns):
                used = [self.env.range_of(c) for c in self.cases if wanted(c, s, self.given) and c.first <= i < c.first + c.luns]
                if not used:
                    continue
                one = Other('x=%s,%s,%d' % (s.portal, iqn, s.lun))
                try:
                    self.env.run_load(one, ['--range', str(max(used)), '--fill', '--bs', '4k', '--depth', '8',
                                            '--time', '0.05', '--warmup', '0'])
                except Trouble as t:
                    self.trouble.append(str(t))
                    break
            if s.cpus and s.pid:
                wait_until_idle(s.pid)  # else what it does in the background for its memory would be counted on the idle core

    def one(self, case, subject, args):
        self.switch_to(subject)
        args = args + ['--time', str(self.env.opts.time), '--warmup', str(self.env.opts.warmup)]
        if case.idle:
            args += ['--idle', str(case.idle)]
        if case.rate_of:
            if subject.pid is not None:
                wait_until_idle(subject.pid)  # it sleeps at this rate: what is in the background would run between
            base = self.found.get(case.rate_of, {}).get(subject.name)
            if not base:
                raise Trouble('%s: needs %s first' % (case.name, case.rate_of))
            args += ['--rate', '%.0f' % (base['iops'] / 2)]
        return self.env.run_load(subject, args, case.connections, luns=case.luns, first=case.first,
                                 cpus='0-%d' % (case.load_cpus - 1) if case.load_cpus else None)

    def run(self):
        rounds = self.env.opts.rounds
        plan = [(c, [s for s in self.subjects if wanted(c, s, self.given)]) for c in self.cases]
        total = sum(len(who) * rounds for _, who in plan)
        step = 0
        for case, who in plan:
            results = {s.name: [] for s in who}
            dead, floors = set(), []
            for rnd in range(rounds):
                if case.rate_of:
                    if self.current is not None:
                        self.current.pause()
                        self.current = None
                    found = pauses(self.env, self.env.opts.time)
                    floors.append((floor_of(found, 0.01), floor_of(found, 0.001)))
                    say('[%3d/%d] %-12s round %d  pauses of the machine alone: p99 %.0f us, p99.9 %.0f us' %
                        (step, total, case.name, rnd + 1, floors[-1][0], floors[-1][1]))
                # Every other round in the opposite order, so that neighbours do not always follow
                # the same neighbour.
                for s in who if rnd % 2 == 0 else reversed(who):
                    step += 1
                    if s.name in dead:
                        continue
                    try:
                        r = self.one(case, s, list(case.args))
                    except Trouble as t:
                        self.trouble.append('%s: %s' % (case.name, t))
                        say('[%3d/%d] %-12s round %d  %-9s %s' % (step, total, case.name, rnd + 1, s.name, t))
                        dead.add(s.name)
                        continue
                    results[s.name].append(r)
                    say('[%3d/%d] %-12s round %d  %-13s %9.1f K IOPS %8.1f MB/s  p50 %.1f us' %
                        (step, total, case.name, rnd + 1, s.name, r['iops'] / 1e3, r['mbps'],
                         r['latency_us']['all']['p50']))
            if floors:
                self.floor[case.name] = {'p99': statistics.median(f[0] for f in floors),
                                         'p999': statistics.median(f[1] for f in floors)}
            self.found[case.name] = {n: summary(r) for n, r in results.items() if r}
        for s in self.subjects:
            bad = s.off_core(cpu_list(s.cpus or self.env.target_cpus))
            if bad:
                self.trouble.append('%s: threads may run off the target\'s core: %s' % (s.name, ' '.join(bad)))

    def measure_idle(self):
        """Share of a core that a subject takes with nothing to do: no connection, then one."""
        seconds = self.env.opts.idle_time
        for s in self.subjects:
            if s.pid is None or s.name not in IDLE:
                continue
            self.switch_to(s)
            wait_until_idle(s.pid)
            t0, c0 = time.monotonic(), thread_ns(s.pid)
            time.sleep(seconds)
            none = (thread_ns(s.pid) - c0) / 1e9 / (time.monotonic() - t0)
            argv = self.env.load_argv(s, ['--depth', '1', '--rate', '1', '--arrival', 'fixed', '--wait', 'block',
                                          '--warmup', '0.5', '--time', str(seconds)])
            done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            one = json.loads(done.stdout)['target_cpu']['cores'] if done.returncode == 0 else None
            self.idle[s.name] = {'no_connection': none, 'one_connection': one}
            say('idle: %-9s %.3f %% of a core; with one connection and one I/O a second %s' %
                (s.name, none * 100, '-' if one is None else '%.3f %%' % (one * 100)))
