# SPDX-License-Identifier: GPL-2.0-or-later
"""Subjects: what is measured, and how it is started."""
import os
import re
import signal
import subprocess
import time

from common import (GIB, IQN, KEYS, TARGETS, Trouble, free_port, run_quiet, wait_for_port,
                    worker_of)


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
        self.like = None        # takes part in whatever this one does: a variant of it
        self.cpus = None        # instead of --target-cpu
        self.targets = TARGETS

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
            os.kill(self.pid or self.proc.pid, signal.SIGSTOP)

    def resume(self):
        if self.proc is not None and self.proc.poll() is None:
            os.kill(self.pid or self.proc.pid, signal.SIGCONT)

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
                       self.args, self.cpus)
        self.proc = env.spawn(self, argv)
        wait_for_port(port, self.proc, 60.0)
        self.pid = self.proc.pid
        self.portal = '127.0.0.1:%d' % port
        self.iqns = ['%s:t%d' % (IQN, i) for i in range(self.targets)]


class Daemon(Subject):
    """A tgtd, ours or Debian's: the same command line and the same tgtadm verbs."""

    def __init__(self, name, what, tgtd, tgtadm, bstype, control, args=(), wrap=()):
        super().__init__(name, what)
        self.tgtd, self.tgtadm, self.bstype = tgtd, tgtadm, bstype
        self.control, self.args, self.wrap = control, list(args), list(wrap)
        self.lu_size = '1g'
        self.file_bytes = GIB
        self.threads = {}  # event threads of LUs that have more than one
        if not tgtd or not tgtadm:
            self.missing = 'not installed'

    def adm(self, *args, check=True):
        return run_quiet([self.tgtadm, '-C', str(self.control), '--lld', 'iscsi'] + list(args), check)

    def backing(self, env, i):
        if self.bstype == 'ram' or (self.bstype == 'null' and self.tgtd == env.tgtd):
            return self.lu_size
        path = os.path.join(env.files, '%s-%d.img' % (self.name, i))
        with open(path, 'wb') as f:
            f.truncate(self.file_bytes)
        return path

    def start(self, env):
        port = free_port()
        # What is wrapped around it (callgrind) looks into the process that it starts alone.
        alone = self.wrap and '--no-keeper' in run_quiet([self.tgtd, '--help'], False)
        argv = env.pin(self.wrap + [self.tgtd, '-f', '-C', str(self.control), '--iscsi',
                                    'portal=127.0.0.1:%d' % port] +
                       (['--no-keeper'] if alone else []) + self.args, self.cpus)
        self.proc = env.spawn(self, argv)
        wait_for_port(port, self.proc, 60.0)
        self.pid = worker_of(self.proc.pid)
        self.portal = '127.0.0.1:%d' % port
        self.iqns = []
        for i in range(self.targets):
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
            if i in self.threads:
                self.adm('--op', 'update', '--mode', 'logicalunit', '--tid', tid, '--lun', '1',
                         '--params', 'threads=%d' % self.threads[i])
            self.iqns.append(iqn)
        wait_until_prepared(self.pid)


def wait_until_prepared(pid):
    """Memory is prepared by a thread that ends, which must not be taken for what serves."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        names = []
        for tid in os.listdir('/proc/%d/task' % pid):
            try:
                with open('/proc/%d/task/%s/comm' % (pid, tid)) as f:
                    names.append(f.read().strip())
            except OSError:
                pass
        if 'arena-prepare' not in names:
            return
        time.sleep(0.1)


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
