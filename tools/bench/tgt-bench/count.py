# SPDX-License-Identifier: GPL-2.0-or-later
"""Counting what timing cannot tell: system calls, instructions, allocations."""
import os
import re
import shutil
import signal
import subprocess
import time

from common import Trouble, run_quiet, say, wait_until_idle


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
            if s.pid is not None:
                wait_until_idle(s.pid, 5.0)  # it gets its memory in the background
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
