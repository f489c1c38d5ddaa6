# SPDX-License-Identifier: GPL-2.0-or-later
"""Where the programs are, how they are pinned and how the load is run."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

from common import GIB, KEYS, Trouble, find_program, size


class Env:
    """Where things are and how they are pinned."""

    def __init__(self, opts):
        here = os.path.dirname(os.path.abspath(sys.argv[0]))
        ours = os.environ.get('TGT_BIN') or here
        self.opts = opts
        self.load = find_program('tgt-load', ours, here)
        self.bareloop = find_program('tgt-bareloop', ours, here)
        # Built, all programs lie in one folder; installed, the daemon lies in PREFIX/sbin.
        sbin = os.path.normpath(os.path.join(here, '../../../sbin'))
        self.debian_tgtd, self.debian_tgtadm = self.find_debian()
        self.tgtd = find_program('tgtd', ours, sbin)
        self.tgtadm = find_program('tgtadm', ours, sbin)
        if self.tgtd == self.debian_tgtd:
            self.tgtd = None
        self.report = find_program('tgt-bench-report', ours, here)
        if not self.load or not self.bareloop or not self.report:
            raise Trouble('tgt-load, tgt-bareloop and tgt-bench-report are not beside this program')
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

    def pin(self, argv, cpus=None):
        return self.first() + ['taskset', '-c', cpus or self.target_cpus] + argv

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
        return self.opts.range // case.luns

    def load_argv(self, subject, args, connections=1, cpus=None, luns=None, first=0):
        """The load's command line. The range is shared by the LUs of a case, so that every case but
        those that say otherwise touches equally many bytes: how far memory is from the core decides
        more than anything a target does."""
        iqns = subject.iqns[first:first + (luns or connections)]
        argv = self.first() + [self.load, '--portal', subject.portal, '--target', ','.join(iqns),
                               '--lun', str(subject.lun),
                               '--connections', str(connections), '--cpu', cpus or self.opts.load_cpu,
                               '--congestion', 'reno', '--json', '-']
        for key, value in KEYS.items():
            argv += ['--' + key, str(value)]
        if '--range' not in args:
            argv += ['--range', str(self.opts.range // (luns or connections))]
        if subject.pid:
            argv += ['--target-pid', str(subject.pid)]
        return argv + args

    def run_load(self, subject, args, connections=1, timeout=120, cpus=None, luns=None, first=0):
        argv = self.load_argv(subject, args, connections, cpus, luns, first)
        try:
            done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  timeout=timeout)
        except subprocess.TimeoutExpired:
            raise Trouble('%s: tgt-load did not end within %d s' % (subject.name, timeout))
        if done.returncode != 0:
            raise Trouble('%s: tgt-load: %s' % (subject.name, done.stderr.strip() or done.returncode))
        return json.loads(done.stdout)
