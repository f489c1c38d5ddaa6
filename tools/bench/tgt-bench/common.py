# SPDX-License-Identifier: GPL-2.0-or-later
"""What the parts of tgt-bench share: keys, processes, CPU time."""
import argparse
import os
import re
import shutil
import socket
import subprocess
import sys
import time

KEYS = {  # the same for every subject, at both ends
    'max-recv-segment': 256 << 10,
    'first-burst': 256 << 10,
    'max-burst': 1 << 20,
}
TARGETS = 4  # LUs of a subject, one a target
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


def worker_of(pid):
    """The process that serves: our daemon's is the only child of the one that was started."""
    def stat(p):
        with open('/proc/%s/stat' % p) as f:
            name, rest = f.read().rsplit(')', 1)
        return name.split('(', 1)[1], int(rest.split()[1])
    for p in filter(str.isdigit, os.listdir('/proc')):
        try:
            if stat(p) == (stat(pid)[0], pid):
                return int(p)
        except OSError:
            pass
    return pid


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


def size(text):
    m = re.match(r'(\d+)([kmg]?)$', text.lower())
    if not m:
        raise argparse.ArgumentTypeError('not a size: %r' % text)
    return int(m.group(1)) << {'': 0, 'k': 10, 'm': 20, 'g': 30}[m.group(2)]


def machine_words():
    model = '?'
    with open('/proc/cpuinfo') as f:
        for line in f:
            if line.startswith('model name'):
                model = line.split(':', 1)[1].strip()
                break
    return '%s, %d CPUs, Linux %s' % (model, os.cpu_count() or 0, os.uname().release)


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
