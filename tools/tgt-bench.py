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
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

KEYS = {  # the same for every subject, at both ends
    'max-recv-segment': 256 << 10,
    'first-burst': 256 << 10,
    'max-burst': 1 << 20,
}
TARGETS = 4
IQN = 'iqn.2026-11.tgt.bench'
GIB = 1 << 30


def say(text):
    print(text, file=sys.stderr, flush=True)


class Trouble(Exception):
    pass


def find_program(name, *places):
    for place in places:
        if place:
            path = os.path.join(place, name)
            if os.access(path, os.X_OK):
                return os.path.abspath(path)
    return shutil.which(name)


def run_quiet(argv, check=True):
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if check and done.returncode != 0:
        raise Trouble('%s: exit %d: %s' % (' '.join(argv), done.returncode, done.stdout.strip()))
    return done.stdout


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def wait_for_port(port, proc, seconds=60.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if proc.poll() is not None:
            raise Trouble('%s ended with %s' % (proc.args[0], proc.returncode))
        with socket.socket() as s:
            s.settimeout(0.2)
            if s.connect_ex(('127.0.0.1', port)) == 0:
                return
        time.sleep(0.05)
    raise Trouble('%s does not listen on port %d' % (proc.args[0], port))


def thread_ns(pid):
    """CPU time of a process in ns, all threads."""
    total = 0
    for tid in os.listdir('/proc/%d/task' % pid):
        try:
            with open('/proc/%d/task/%s/schedstat' % (pid, tid)) as f:
                total += int(f.read().split()[0])
        except (OSError, ValueError, IndexError):
            pass
    return total


def wait_until_idle(pid, seconds=60.0, slice_s=0.5):
    """What a process does by itself after it was told to do something, like getting memory, is over (or does not
    end, which will be seen)."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        before = thread_ns(pid)
        time.sleep(slice_s)
        if (thread_ns(pid) - before) / 1e9 < slice_s / 50:
            return


# ---- subjects ------------------------------------------------------------------------------------


class Subject:
    """Something to be measured: where it listens, its targets, and its process (if it is ours)."""

    def __init__(self, name, what):
        self.name = name
        self.what = what
        self.proc = None
        self.pid = None
        self.portal = None
        self.iqns = []
        self.lun = 1
        self.missing = None

    def start(self, env):
        raise NotImplementedError

    def stop(self):
        if self.proc is None:
            return
        self.resume()
        self.proc.terminate()
        try:
            self.proc.wait(5)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait()
        self.proc = None

    def pause(self):
        if self.proc is not None and self.proc.poll() is None:
            self.proc.send_signal(signal.SIGSTOP)

    def resume(self):
        if self.proc is not None and self.proc.poll() is None:
            self.proc.send_signal(signal.SIGCONT)

    def off_core(self, cpus):
        """Threads that may run elsewhere than on the target's cores."""
        if self.pid is None:
            return []
        bad = []
        for tid in os.listdir('/proc/%d/task' % self.pid):
            try:
                if not os.sched_getaffinity(int(tid)) <= cpus:
                    with open('/proc/%d/task/%s/comm' % (self.pid, tid)) as f:
                        bad.append(f.read().strip())
            except OSError:
                pass
        return bad


class BareLoop(Subject):
    def __init__(self, name, what, wrap=(), args=()):
        super().__init__(name, what)
        self.wrap, self.args = list(wrap), list(args)

    def start(self, env):
        port = free_port()
        argv = env.pin(self.wrap + [env.bareloop, '--memory', '1g', '--portal', '127.0.0.1:%d' % port] +
                       self.args)
        self.proc = env.spawn(self, argv)
        wait_for_port(port, self.proc, 60.0)
        self.pid = self.proc.pid
        self.portal = '127.0.0.1:%d' % port
        self.iqns = ['%s:t%d' % (IQN, i) for i in range(TARGETS)]


class Daemon(Subject):
    """A tgtd, ours or Debian's: the same command line and the same tgtadm verbs."""

    def __init__(self, name, what, tgtd, tgtadm, bstype, control, args=(), wrap=()):
        super().__init__(name, what)
        self.tgtd, self.tgtadm, self.bstype = tgtd, tgtadm, bstype
        self.control, self.args, self.wrap = control, list(args), list(wrap)
        if not tgtd or not tgtadm:
            self.missing = 'not installed'

    def adm(self, *args, check=True):
        return run_quiet([self.tgtadm, '-C', str(self.control), '--lld', 'iscsi'] + list(args), check)

    def backing(self, env, i):
        if self.bstype == 'ram':
            return '1g'
        if self.bstype == 'null' and self.tgtd == env.tgtd:
            return '1g'
        path = os.path.join(env.files, '%s-%d.img' % (self.name, i))
        with open(path, 'wb') as f:
            f.truncate(GIB)
        return path

    def start(self, env):
        port = free_port()
        argv = env.pin(self.wrap + [self.tgtd, '-f', '-C', str(self.control), '--iscsi',
                                    'portal=127.0.0.1:%d' % port] + self.args)
        self.proc = env.spawn(self, argv)
        wait_for_port(port, self.proc, 60.0)
        self.pid = self.proc.pid
        self.portal = '127.0.0.1:%d' % port
        self.iqns = []
        for i in range(TARGETS):
            tid, iqn = str(i + 1), '%s:t%d' % (IQN, i)
            self.adm('--op', 'new', '--mode', 'target', '--tid', tid, '-T', iqn)
            for name, value in (('MaxRecvDataSegmentLength', KEYS['max-recv-segment']),
                                ('FirstBurstLength', KEYS['first-burst']),
                                ('MaxBurstLength', KEYS['max-burst']),
                                ('InitialR2T', 'No'), ('ImmediateData', 'Yes'),
                                ('HeaderDigest', 'CRC32C,None'), ('DataDigest', 'CRC32C,None')):
                # What a target does not know stays at its default; what was agreed is reported.
                self.adm('--op', 'update', '--mode', 'target', '--tid', tid, '--name', name,
                         '--value', str(value), check=False)
            self.adm('--op', 'new', '--mode', 'logicalunit', '--tid', tid, '--lun', '1',
                     '--bstype', self.bstype, '--backing-store', self.backing(env, i))
            self.adm('--op', 'bind', '--mode', 'target', '--tid', tid, '-I', 'ALL')
            self.iqns.append(iqn)


class Other(Subject):
    """A target that somebody else runs: NAME=HOST:PORT,IQN[,LUN[,PID]]."""

    def __init__(self, text):
        m = re.match(r'([^=,]+)=([^,]+),([^,]+)(?:,(\d+))?(?:,(\d+))?$', text)
        if not m:
            raise Trouble('--subject wants NAME=HOST:PORT,IQN[,LUN[,PID]], not %r' % text)
        super().__init__(m.group(1), 'given')
        self.portal, self.iqns = m.group(2), [m.group(3)]
        self.lun = int(m.group(4) or 1)
        self.pid = int(m.group(5)) if m.group(5) else None

    def start(self, env):
        pass


# ---- cases ---------------------------------------------------------------------------------------


class Case:
    def __init__(self, name, title, args, who, connections=1, unit='iops', **kw):
        self.name, self.title, self.args, self.who = name, title, args, who
        self.connections, self.unit = connections, unit
        self.rate_of = kw.get('rate_of')
        self.idle = kw.get('idle', 0)
        self.full_only = kw.get('full_only', False)


IDLE = ('ours', 'tgt-rdwr')  # whose idling is measured
DIGESTS = ['--header-digest', 'CRC32C', '--data-digest', 'CRC32C']
MAIN = 'bare ours ours-* tgt-rdwr'
CASES = [
    Case('r4k-d32', '4 KiB random read, depth 32', ['--bs', '4k', '--depth', '32'], MAIN + ' tgt-null'),
    Case('w4k-d32', '4 KiB random write, depth 32', ['--bs', '4k', '--depth', '32', '--read', '0'], MAIN),
    Case('r4k-d1', '4 KiB random read, depth 1', ['--bs', '4k', '--depth', '1'], MAIN + ' tgt-null'),
    Case('w4k-d1', '4 KiB random write, depth 1', ['--bs', '4k', '--depth', '1', '--read', '0'], MAIN,
         full_only=True),
    Case('r512-d32', '512 B random read, depth 32', ['--bs', '512', '--depth', '32'], MAIN, full_only=True),
    Case('r64k-d32', '64 KiB random read, depth 32', ['--bs', '64k', '--depth', '32'], MAIN),
    Case('r64k-d32-crc', 'the same, header and data digests', ['--bs', '64k', '--depth', '32'] + DIGESTS, MAIN),
    Case('w64k-d32', '64 KiB random write, depth 32', ['--bs', '64k', '--depth', '32', '--read', '0'], MAIN + ' bare-spread',
         full_only=True),
    Case('w64k-d32-crc', '64 KiB random write, both digests',
         ['--bs', '64k', '--depth', '32', '--read', '0'] + DIGESTS, MAIN, full_only=True),
    Case('r256k-d32', '256 KiB read, depth 32', ['--bs', '256k', '--depth', '32'], MAIN, unit='mbps'),
    Case('w256k-d32', '256 KiB write, depth 32', ['--bs', '256k', '--depth', '32', '--read', '0'],
         MAIN + ' bare-spread',
         unit='mbps'),
    Case('r1m-d32', '1 MiB read, depth 32', ['--bs', '1m', '--depth', '32'], MAIN, unit='mbps'),
    Case('w1m-d32', '1 MiB write, depth 32', ['--bs', '1m', '--depth', '32', '--read', '0'],
         MAIN + ' bare-spread', unit='mbps'),
    Case('m4k-d32', '4 KiB 70 % reads, Zipf 0.99, depth 32',
         ['--bs', '4k', '--depth', '32', '--read', '70', '--pattern', 'zipf'], MAIN, full_only=True),
    Case('r4k-4x32', '4 KiB read, 4 connections x depth 32, 4 LUs', ['--bs', '4k', '--depth', '32'],
         'bare ours tgt-rdwr', connections=TARGETS),
    Case('r4k-half', '4 KiB read at half of the maximum rate', ['--bs', '4k', '--depth', '256'],
         'bare ours tgt-rdwr', rate_of='r4k-d32'),
    Case('r4k-1g', '4 KiB random read over 1 GiB, depth 32: out of the caches of the core',
         ['--bs', '4k', '--depth', '32', '--range', '1g'], 'bare ours'),
    Case('r4k-idle512', '4 KiB read, depth 32, beside 512 idle connections', ['--bs', '4k', '--depth', '32'],
         'bare ours', idle=512),
]


def wanted(case, subject, given):
    if subject.name in given:
        return not (case.connections > 1 and len(subject.iqns) < case.connections)
    return any(fnmatch.fnmatch(subject.name, p) for p in case.who.split())


# ---- running -------------------------------------------------------------------------------------


class Env:
    """Where things are and how they are pinned."""

    def __init__(self, opts):
        here = os.path.dirname(os.path.abspath(sys.argv[0]))
        ours = os.environ.get('TGT_BIN') or here
        self.opts = opts
        self.load = find_program('tgt-load', ours, here)
        self.bareloop = find_program('tgt-bareloop', ours, here)
        self.tgtd = find_program('tgtd', ours) if os.environ.get('TGT_BIN') or here != '/usr/sbin' else None
        self.tgtadm = find_program('tgtadm', ours)
        self.report = find_program('tgt-bench-report', ours, here)
        if not self.load or not self.bareloop or not self.report:
            raise Trouble('tgt-load, tgt-bareloop and tgt-bench-report are not beside this program')
        self.debian_tgtd, self.debian_tgtadm = self.find_debian()
        self.target_cpus = opts.target_cpu
        self.work = tempfile.mkdtemp(prefix='tgt-bench-')
        self.files = opts.files or self.pick_files()
        self.made_files = opts.files is None
        self.logs = {}

    @staticmethod
    def find_debian():
        """Debian's tgt, if that is what lies in /usr/sbin (our own may be installed there)."""
        owner = subprocess.run(['dpkg-query', '-S', '/usr/sbin/tgtd'], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True) if shutil.which('dpkg-query') else None
        if owner and owner.stdout.startswith('tgt:') and os.access('/usr/sbin/tgtd', os.X_OK):
            return '/usr/sbin/tgtd', '/usr/sbin/tgtadm'
        return None, None

    def pick_files(self):
        """Backing files lie in memory where there is room: disks are not what is compared."""
        st = os.statvfs('/dev/shm') if os.path.isdir('/dev/shm') else None
        base = '/dev/shm' if st and st.f_bavail * st.f_frsize > 16 * GIB else self.work
        return tempfile.mkdtemp(prefix='tgt-bench-files-', dir=base)

    def pin(self, argv):
        return self.first() + ['taskset', '-c', self.target_cpus] + argv

    def first(self):
        return ['chrt', '-r', '1'] if self.opts.realtime else []

    def spawn(self, subject, argv):
        path = os.path.join(self.opts.out, 'log-%s.txt' % subject.name)
        log = open(path, 'wb')
        proc = subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        log.close()
        self.logs[subject.name] = path
        return proc

    def close(self):
        shutil.rmtree(self.work, ignore_errors=True)
        if self.made_files:
            shutil.rmtree(self.files, ignore_errors=True)

    def range_of(self, case):
        """How much of each LU a case uses."""
        if '--range' in case.args:
            return size(case.args[case.args.index('--range') + 1])
        return self.opts.range // case.connections

    def load_argv(self, subject, args, connections=1):
        """The load's command line. The range is shared by the LUs of a case, so that every case but
        those that say otherwise touches equally many bytes: how far memory is from the core decides
        more than anything a target does."""
        iqns = subject.iqns[:connections] if connections <= len(subject.iqns) else subject.iqns
        argv = self.first() + [self.load, '--portal', subject.portal, '--target', ','.join(iqns),
                               '--lun', str(subject.lun),
                               '--connections', str(connections), '--cpu', self.opts.load_cpu,
                               '--congestion', 'reno', '--json', '-']
        for key, value in KEYS.items():
            argv += ['--' + key, str(value)]
        if '--range' not in args:
            argv += ['--range', str(self.opts.range // connections)]
        if subject.pid:
            argv += ['--target-pid', str(subject.pid)]
        return argv + args

    def run_load(self, subject, args, connections=1, timeout=120):
        argv = self.load_argv(subject, args, connections)
        try:
            done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  timeout=timeout)
        except subprocess.TimeoutExpired:
            raise Trouble('%s: tgt-load did not end within %d s' % (subject.name, timeout))
        if done.returncode != 0:
            raise Trouble('%s: tgt-load: %s' % (subject.name, done.stderr.strip() or done.returncode))
        return json.loads(done.stdout)


def summary(results):
    """Medians over the rounds of one subject in one case."""
    def med(get):
        values = [v for v in (get(r) for r in results) if v is not None]
        return statistics.median(values) if values else None

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
        'cpu_us': med(lambda r: r.get('target_cpu', {}).get('us_per_io')),
        'cpu_cores': med(lambda r: r.get('target_cpu', {}).get('cores')),
        'load_waits': med(lambda r: r['load']['waits']),
        'ios_per_receive': med(lambda r: r['load']['ios_per_receive']),
        'agreed': results[-1]['agreed'],
        'threads': results[-1].get('target_cpu', {}).get('threads', []),
    }


class Bench:
    def __init__(self, env, subjects, cases, given):
        self.env, self.subjects, self.cases, self.given = env, subjects, cases, given
        self.found = {}    # case -> subject -> summary
        self.trouble = []  # what went wrong, in words
        self.idle = {}
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
                used = [self.env.range_of(c) for c in self.cases if wanted(c, s, self.given) and i < c.connections]
                if not used:
                    continue
                one = Other('x=%s,%s,%d' % (s.portal, iqn, s.lun))
                try:
                    self.env.run_load(one, ['--range', str(max(used)), '--fill', '--bs', '4k', '--depth', '8',
                                            '--time', '0.05', '--warmup', '0'])
                except Trouble as t:
                    self.trouble.append(str(t))
                    break

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
        return self.env.run_load(subject, args, case.connections)

    def run(self):
        rounds = self.env.opts.rounds
        plan = [(c, [s for s in self.subjects if wanted(c, s, self.given)]) for c in self.cases]
        total = sum(len(who) * rounds for _, who in plan)
        step = 0
        cpus = set()
        for part in self.env.target_cpus.split(','):
            lo, _, hi = part.partition('-')
            cpus |= set(range(int(lo), int(hi or lo) + 1))
        for case, who in plan:
            results = {s.name: [] for s in who}
            dead = set()
            for rnd in range(rounds):
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
                    say('[%3d/%d] %-12s round %d  %-9s %9.1f K IOPS %8.1f MB/s  p50 %.1f us' %
                        (step, total, case.name, rnd + 1, s.name, r['iops'] / 1e3, r['mbps'],
                         r['latency_us']['all']['p50']))
            self.found[case.name] = {n: summary(r) for n, r in results.items() if r}
        for s in self.subjects:
            bad = s.off_core(cpus)
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


# ---- counting ------------------------------------------------------------------------------------


BACKGROUND = ('arena-prepare', 'tgtd-background')  # threads whose work is not for any I/O


def working_threads(pid):
    tids = []
    for tid in os.listdir('/proc/%d/task' % pid):
        try:
            with open('/proc/%d/task/%s/comm' % (pid, tid)) as f:
                if f.read().strip() not in BACKGROUND:
                    tids.append(tid)
        except OSError:
            pass
    return tids


def count_syscalls(env, subject, args, ios):
    """System calls of the process for each I/O, from the kernel's tracepoint (nothing is slowed)."""
    perf = shutil.which('perf')
    if not perf or subject.pid is None:
        return None
    load = env.load_argv(subject, args + ['--count', str(ios)])
    done = subprocess.run([perf, 'stat', '-x', ',', '-e', 'raw_syscalls:sys_enter', '-t',
                           ','.join(working_threads(subject.pid)), '--'] + load, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in done.stderr.splitlines():
        parts = line.split(',')
        if len(parts) > 2 and parts[2] == 'raw_syscalls:sys_enter' and parts[0].isdigit():
            return int(parts[0]) / ios
    return None


def syscalls_by_name(env, subject, args, ios):
    """Which calls, by strace (slow: the mix is right, the batching is not)."""
    strace = shutil.which('strace')
    if not strace or subject.pid is None:
        return {}
    out = os.path.join(env.work, 'strace')
    tracer = subprocess.Popen([strace, '-c', '-f', '-p', str(subject.pid), '-o', out],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(1.0)
    try:
        env.run_load(subject, args + ['--count', str(ios)])
    finally:
        tracer.send_signal(signal.SIGINT)
        tracer.wait()
    names = {}
    with open(out) as f:
        for line in f:
            parts = line.split()
            if len(parts) >= 5 and parts[3].isdigit() and parts[-1] not in ('total', 'syscall'):
                names[parts[-1]] = int(parts[3]) / ios
    return names


def callgrind_total(path):
    """The instructions in a dump, None while it is not complete."""
    try:
        with open(path) as f:
            for line in f:
                if line.startswith('totals:'):
                    return int(line.split()[1])
    except FileNotFoundError:
        pass
    return None


ALLOCATORS = {'malloc', 'calloc', 'realloc', 'memalign', 'aligned_alloc', 'posix_memalign', 'reallocarray'}


def callgrind_allocations(path):
    """Calls of the allocator in a dump. Names are given once, as (id) NAME, and then by id."""
    names, calls, callee = {}, 0, None
    with open(path) as f:
        for line in f:
            m = re.match(r'c?fn=\((\d+)\)(?: (.*))?$', line)
            if m:
                if m.group(2):
                    names[m.group(1)] = re.sub(r"'\d+$", '', m.group(2)).split('@')[0]
                callee = m.group(1) if line.startswith('cfn=') else None
            elif line.startswith('calls=') and callee is not None:
                if names.get(callee) in ALLOCATORS:
                    calls += int(line[6:].split()[0])
                callee = None
    return calls


def callgrind_functions(path):
    """Instructions in a dump by function, without those of functions that it called."""
    names, cost, function, called = {}, {}, None, False
    with open(path) as f:
        for line in f:
            m = re.match(r'(c?)fn=\((\d+)\)(?: (.*))?$', line)
            if m:
                if m.group(3):
                    names[m.group(2)] = m.group(3)
                if not m.group(1):
                    function = names.get(m.group(2), '?')
            elif line.startswith('calls='):
                called = True  # the next line is what they took
            elif line[0] in '0123456789+-*':
                if not called and function is not None:
                    cost[function] = cost.get(function, 0) + int(line.split()[1])
                called = False
    return cost


def count_instructions(env, make, args, ios):
    """User-space instructions and heap allocations for each I/O: a target under callgrind serves two runs of different
    length; the difference of their counts, divided by the difference of their lengths, leaves out
    login, logout and everything else that does not grow with I/O."""
    valgrind, control = shutil.which('valgrind'), shutil.which('callgrind_control')
    if not valgrind or not control:
        return None, None, []
    base = os.path.join(env.work, 'callgrind.out')
    subject = make([valgrind, '--tool=callgrind', '--callgrind-out-file=' + base, '--'])
    dumps = 0
    try:
        subject.start(env)
        short, long_ = max(ios // 10, 100), ios

        def one(n):
            nonlocal dumps
            env.run_load(subject, args + ['--count', str(n)], timeout=580)
            dumps += 1
            path = '%s.%d' % (base, dumps)
            said = run_quiet([control, '-d', 'tgt-bench', str(subject.pid)])
            end = time.monotonic() + 20
            while callgrind_total(path) is None:
                if time.monotonic() > end:
                    raise Trouble('no dump of callgrind: ' + said.strip())
                time.sleep(0.1)
            return callgrind_total(path), callgrind_allocations(path), callgrind_functions(path)

        # Every block is there before it is read: reads are hits, not holes.
        env.run_load(subject, ['--fill', '--bs', '64k', '--time', '0.05', '--warmup', '0'], timeout=580)
        one(short)  # caches filled, pages touched
        a = one(short)
        b = one(long_)
        kept = os.path.join(env.opts.out, 'callgrind.%s' % subject.name)
        shutil.copy('%s.%d' % (base, dumps), kept)
        say('profile kept in %s (callgrind_annotate)' % kept)
        each = {name: (n - a[2].get(name, 0)) / (long_ - short) for name, n in b[2].items()}
        most = sorted(each.items(), key=lambda kv: -kv[1])[:20]
        return [(b[0] - a[0]) / (long_ - short), (b[1] - a[1]) / (long_ - short), most]
    finally:
        subject.stop()


COUNT_CASES = [
    ('4 KiB read, depth 32', ['--bs', '4k', '--depth', '32']),
    ('4 KiB write, depth 32', ['--bs', '4k', '--depth', '32', '--read', '0']),
    ('4 KiB read, depth 1', ['--bs', '4k', '--depth', '1']),
    ('64 KiB read, depth 32', ['--bs', '64k', '--depth', '32']),
]


def count_mode(env, make_subject, name, opts):
    rows = []
    for title, args in COUNT_CASES[:opts.count_cases]:
        row = {'case': title, 'subject': name}
        s = make_subject(name, [])
        try:
            s.start(env)
            env.run_load(s, ['--fill', '--bs', '4k', '--time', '0.05', '--warmup', '0'])
            row['syscalls'] = count_syscalls(env, s, args, opts.count_ios * 10)
            row['by_name'] = syscalls_by_name(env, s, args, opts.count_ios)
        finally:
            s.stop()
        row['instructions'], row['allocations'], row['functions'] = count_instructions(
            env, lambda wrap: make_subject(name, wrap), args, opts.count_ios)
        rows.append(row)
        say('%s, %s, an I/O: %s system calls, %s instructions in user space, %s heap allocations' %
            (name, title, '-' if row['syscalls'] is None else '%.4f' % row['syscalls'],
             '-' if row['instructions'] is None else '%.0f' % row['instructions'],
             '-' if row['allocations'] is None else '%.4f' % row['allocations']))
        for call, per in sorted(row['by_name'].items(), key=lambda kv: -kv[1]):
            if per >= 0.0005:
                say('    %-16s %.4f under strace' % (call, per))
        for function, per in row['functions']:
            if per >= 5:
                say('    %6.1f instructions in %s' % (per, function))
    return rows


def machine_words():
    model = '?'
    with open('/proc/cpuinfo') as f:
        for line in f:
            if line.startswith('model name'):
                model = line.split(':', 1)[1].strip()
                break
    return '%s, %d CPUs, Linux %s' % (model, os.cpu_count() or 0, os.uname().release)


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


def setup_netns():
    if not os.environ.get('TGT_BENCH_NETNS'):
        return 'host'
    run_quiet(['ip', 'link', 'set', 'lo', 'up'])
    try:
        with open('/proc/sys/net/ipv4/tcp_congestion_control', 'w') as f:
            f.write('reno')
    except OSError as e:
        say('congestion control stays as it is: %s' % e)
    with open('/proc/sys/net/ipv4/tcp_congestion_control') as f:
        return 'own namespace, ' + f.read().strip()


def size(text):
    m = re.match(r'(\d+)([kmg]?)$', text.lower())
    if not m:
        raise argparse.ArgumentTypeError('not a size: %r' % text)
    return int(m.group(1)) << {'': 0, 'k': 10, 'm': 20, 'g': 30}[m.group(2)]


def parse_args():
    p = argparse.ArgumentParser(prog='tgt-bench', description='Measure iSCSI targets side by side; see tgt-bench(8).')
    p.add_argument('--set', choices=('short', 'full'), default='short', help='which cases (short: under 5 minutes)')
    p.add_argument('--case', action='append', default=[], metavar='PATTERN', help='only these cases (shell patterns)')
    p.add_argument('--only', action='append', default=[], metavar='PATTERN', help='only these subjects')
    p.add_argument('--subject', action='append', default=[], metavar='NAME=HOST:PORT,IQN[,LUN[,PID]]',
                   help='one more target, run by somebody else')
    p.add_argument('--variant', action='append', default=[], metavar='NAME=ARGS',
                   help='one more tgtd of ours with these arguments, e.g. centralized="--central"')
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


def make_subjects(env, opts):
    """Builders by name, in the order of the tables."""
    control = 1000 + os.getpid() % 30000  # Debian's tgt wants it below 32768
    args = opts.tgtd_args.split()
    build = {'bare': lambda wrap: BareLoop('bare', 'the same bytes, no logic', wrap),
             'bare-spread': lambda wrap: BareLoop('bare-spread', 'the bare loop, receiving into 96 MiB in turn',
                                                  wrap, ['--spread', '96m'])}

    def ours(name, what, bstype, n, extra=()):
        build[name] = lambda wrap: Daemon(name, what, env.tgtd, env.tgtadm, bstype, control + n,
                                          args + list(extra), wrap)

    def debian(name, bstype, n):
        build[name] = lambda wrap: Daemon(name, 'Debian tgt, ' + bstype, env.debian_tgtd, env.debian_tgtadm,
                                          bstype, control + n, (), wrap)

    if env.tgtd and env.tgtd != env.debian_tgtd:
        ours('ours', 'tgtd, ram', 'ram', 0)
        ours('ours-aio', 'tgtd, cached file', 'aio', 1)
        ours('ours-null', 'tgtd, null', 'null', 2)
        for i, text in enumerate(opts.variant):
            name, _, extra = text.partition('=')
            ours('ours-' + name, 'tgtd, ram, ' + extra, 'ram', 10 + i, extra.split())
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
    cases = [c for c in CASES if (opts.set == 'full' or not c.full_only or opts.case)]
    if opts.case:
        cases = [c for c in cases if any(fnmatch.fnmatch(c.name, p) for p in opts.case)]
    if opts.list:
        for c in CASES:
            print('%-14s %s%s' % (c.name, c.title, ' (full)' if c.full_only else ''))
        for name, b in build.items():
            print('%-14s %s' % (name, b([]).what))
        return 0

    meta = {'when': time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime()), 'machine': machine_words(), 'network': net,
            'target_cpu': opts.target_cpu, 'load_cpu': opts.load_cpu, 'rounds': opts.rounds, 'time': opts.time,
            'warmup': opts.warmup, 'keys': KEYS, 'realtime': opts.realtime}
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
            if opts.idle_time > 0 and not opts.case:
                bench.measure_idle()
    except KeyboardInterrupt:
        bench.trouble.append('interrupted')
    finally:
        for s in subjects:
            s.stop()
        env.close()

    stem = os.path.join(opts.out, 'count-%s' % opts.count if opts.count else 'report')
    with open(stem + '.json', 'w') as f:
        json.dump({'meta': meta, 'subjects': [s.name for s in subjects],
                   'cases': {c.name: {'title': c.title, 'unit': c.unit, 'subjects': bench.found.get(c.name, {})}
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
