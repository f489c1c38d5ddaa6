#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Several administrators at once, each doing anything to any target, while initiators log in and work.

    admin_chaos.py TOOLS DIR PORT SECONDS SEED

TOOLS is where tgtadm, tgt-admin and tgt-load are. Target 1, IQN + "1", has LUNs 1 and 2 of 16 MiB: it is written, read
back and left in peace but for its threads. Targets 2 to 6 come, change and go; DIR/disk-1 ... disk-8 are there for their
LUNs. Prints a TAP line for each thing that must hold.
"""
import collections, multiprocessing, os, random, struct, subprocess, sys, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
sys.dont_write_bytecode = True
from iscsi_peer import NONE, Gone, Peer, pdu

TOOLS, DIR, PORT, SECONDS, SEED = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])
IQN = 'iqn.2026-11.org.tgtd.test:chaos'
ADMINS, LOADS, LOGINS = 4, 4, 3


def run(*args):
    p = subprocess.run([str(a) for a in args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                       errors='replace', timeout=120)
    return p.returncode, p.stdout


class Admin:
    def __init__(self, number):
        self.r, self.number, self.seen = random.Random(SEED * 100 + number), number, collections.Counter()

    def ask(self, mode, op, *args):
        rc, out = run(TOOLS + '/tgtadm', '--mode', mode, '--op', op, *args)
        self.seen['done' if rc == 0 else 'refused' if rc == 22 else 'wrong: %s %s: %d %s' % (mode, op, rc, out)] += 1
        return rc, out

    def tid(self):
        return self.r.randint(2, 6)

    def disk(self):
        return '%s/disk-%d' % (DIR, self.r.randint(1, 8))

    def lun_new(self, tid, lun):
        r = self.r
        store = r.choice([['ram', '4m'], ['ram', '16m,block=4k'], ['null', '1g'], ['aio', self.disk()], ['rdwr', self.disk()]])
        args = ['--bstype', store[0], '--backing-store', store[1]]
        if store[1].startswith('/'):
            args += r.choice([[], ['--bsopts', 'cache=none'], ['--bsopts', 'cache=write-through'], ['--bsopts', 'share=yes']])
        args += r.choice([[], ['--params', 'threads=%d' % r.randint(0, 4)], ['--params', 'write_cache=off,vendor_id=X'],
                          ['--params', 'path=' + self.disk()], ['--params', 'nonsense=1']])
        self.ask('logicalunit', 'new', '--tid', tid, '--lun', lun, *args)

    def target(self):
        tid, r = self.tid(), self.r
        if r.random() < 0.4:
            self.ask('target', 'delete', '--tid', tid, *r.choice([[], ['--force']]))
            return
        self.ask('target', 'new', '--tid', tid, '-T', IQN + str(tid))
        self.ask('target', 'bind', '--tid', tid, '-I', 'ALL')
        for lun in range(1, r.randint(2, 4)):
            self.lun_new(tid, lun)

    def lun(self):
        tid, lun, r = self.tid(), self.r.randint(1, 6), self.r
        x = r.random()
        if x < 0.1:
            self.ask('logicalunit', 'update', '--tid', 1, '--lun', r.randint(1, 2), '--params', 'threads=%d' % r.randint(1, 4))
        elif x < 0.35:
            self.lun_new(tid, lun)
        elif x < 0.55:
            self.ask('logicalunit', 'delete', '--tid', tid, '--lun', lun)
        else:
            self.ask('logicalunit', 'update', '--tid', tid, '--lun', lun, '--params', r.choice([
                'online=0', 'online=1', 'readonly=1', 'readonly=0', 'vendor_id=A', 'threads=%d' % r.randint(1, 5),
                'path=' + self.disk(), 'write_cache=off', 'write_cache=on', 'refresh=1', 'sense_format=1', 'threads']))

    def access(self):
        r, tid = self.r, self.tid()
        who = r.choice([['-I', 'ALL'], ['-I', '127.0.0.1'], ['-I', '10.0.0.0/8'], ['-Q', 'iqn.p-%d' % r.randint(0, 3)]])
        x = r.random()
        if x < 0.6:
            self.ask('target', 'bind', '--tid', tid, *who, *(['--expose', r.choice(['1', '1,3-5'])] if who[0] == '-Q' else []))
        elif x < 0.85:
            self.ask('target', 'unbind', '--tid', tid, *who)
        else:
            self.ask('target', 'update', '--tid', tid, '-Q', 'iqn.p-%d' % r.randint(0, 3), '--expose', r.choice(['all', '2-4']))

    def account(self):
        r, user = self.r, 'u%d' % self.r.randint(0, 4)
        op = r.choice(['new', 'update', 'delete', 'bind', 'bind', 'unbind'])
        args = ['--password', 'secretsecret%d' % r.randint(0, 1)] if op in ('new', 'update') else []
        if op in ('bind', 'unbind'):
            args = ['--tid', r.randint(5, 6)] + r.choice([[], [], ['--outgoing']])
        self.ask('account', op, '--user', user, *args)

    def settings(self):
        r = self.r
        key, value = r.choice([('state', 'offline'), ('state', 'ready'), ('state', 'ready'), ('MaxBurstLength', '65536'),
                               ('ErrorRecoveryLevel', '1'), ('nop_interval', '1'), ('nop_interval', '0'), ('MaxQueueCmd', '4'),
                               ('MaxQueueCmd', ''), ('HeaderDigest', 'CRC32C'),
                               ('ImmediateData', 'No'), ('alua_state', 'standby'),
                               ('alua_state', ''), ('allow_explicit_alua', 'Yes'),
                               ('allow_explicit_alua', ''), ('allow_target_reset', 'Yes')])
        self.ask('target', 'update', '--tid', self.tid(), '-n', key, '-v', value)

    def connections(self):
        tid, sid = self.tid(), None
        for line in self.ask('conn', 'show', '--tid', tid)[1].splitlines():
            words = line.split()
            sid = words[1] if line.startswith('Session:') else sid
            if words[:1] == ['Connection:'] and self.r.random() < 0.7:
                self.ask('conn', 'delete', '--tid', tid, '--sid', sid, '--cid', words[1])

    def look(self):
        self.ask(*self.r.choice([('target', 'show'), ('session', 'show'), ('session', 'stat'), ('system', 'stat'), ('cache', 'stat'),
                                 ('system', 'show', '--name', 'config'), ('target', 'stat', '--tid', self.tid())]))

    def portal(self):
        self.ask('portal', self.r.choice(['new', 'delete']), '--param', 'portal=127.0.0.2:%d' % (PORT + self.r.randint(0, 2)))

    def file(self):
        name = '%s/conf-%d' % (DIR, self.number)
        if self.r.random() < 0.5 or not os.path.exists(name):
            with open(name, 'w') as f:
                f.write(run(TOOLS + '/tgt-admin', '--dump')[1])
        else:
            run(TOOLS + '/tgt-admin', '-c', name, '--update', 'ALL', *self.r.choice([[], ['--force']]))

    def work(self, end):
        kinds = [self.target] * 4 + [self.lun] * 8 + [self.access] * 3 + [self.account] * 2 + [self.settings, self.connections,
                                                                                         self.look, self.portal, self.file]
        while time.monotonic() < end:
            self.r.choice(kinds)()
        return self.seen


def load(number, end):
    """The first two verify target 1; the others work on what they find."""
    r, seen = random.Random(SEED * 1000 + number), collections.Counter()
    while time.monotonic() < end:
        mine = number < 2
        args = [TOOLS + '/tgt-load', '--portal', '127.0.0.1:%d' % PORT, '--target', IQN + str(1 if mine else r.randint(2, 6)),
                '--lun', number + 1 if mine else r.randint(1, 3), '--read', 50, '--range', '4m', '--depth', r.choice([1, 8, 32]),
                '--bs', r.choice(['4k', '512:10,4k:50,64k:10,1m:1']), '--time', r.randint(1, 3), '--warmup', 0, '--wait', 'block',
                '--connections', 1 if mine else r.randint(1, 3), '--quiet', '--initiator', 'iqn.p-%d' % number]
        rc, out = run(*args, *(['--verify'] if mine else []))
        if mine:
            seen['verified' if rc == 0 else 'wrong: ' + out] += 1
        elif rc:
            time.sleep(0.05)
    return seen


def login(number, end):
    r, seen = random.Random(SEED * 3000 + number), collections.Counter()
    while time.monotonic() < end:
        Peer.target = IQN + str(r.randint(2, 6))
        p = Peer(timeout=60, address=('127.0.0.1', PORT))
        p.name = 'iqn.p-%d' % r.randint(0, 3)
        try:
            x = r.random()
            if x < 0.2:
                p.chap(r.choice([5, 7]), 'u%d' % r.randint(0, 4), 'secretsecret%d' % r.randint(0, 1))
                raise Gone
            if x < 0.3:
                p.send(p.login_pdu(p.names())[:r.randint(1, 100)])
                raise Gone
            if x < 0.5:
                p.login_step(1, None, p.names())
                time.sleep(r.random() * 0.3)
                p.login_step(1, 3, [])
            else:
                p.login()
            seen['logins'] += 1
            for _ in range(r.randint(0, 20)):
                lun = r.randint(0, 5)
                p.out(r.choice([p.read(r.randint(0, 1000), r.choice([1, 8, 128]), lun=lun),
                                p.command(bytes([0x35] + [0] * 9), 0x80, lun=lun),
                                p.command(bytes([0x1e, 0, 0, 0, r.randint(0, 1), 0]), 0x80, lun=lun)]))
                if r.random() < 0.05:
                    p.out(pdu(0x42, 0x80 | r.choice([2, 5, 6, 7]), lun, 0x8000, struct.pack('>IIII', NONE, p.cmdsn, p.statsn, 0)))
            if r.random() < 0.7:
                p.answers()
        except (Gone, OSError, AssertionError):
            seen['refused or ended'] += 1
        p.close(reset=r.random() < 0.4)
    return seen


def work(kind, number, end, results):
    try:
        results.put(Admin(number).work(end) if kind == 'admin' else (load if kind == 'load' else login)(number, end))
    except Exception as e:
        results.put(collections.Counter({'wrong: %s %d: %r' % (kind, number, e): 1}))


results, end = multiprocessing.Queue(), time.monotonic() + SECONDS
for kind, n in (('admin', ADMINS), ('load', LOADS), ('login', LOGINS)):
    for number in range(n):
        multiprocessing.Process(target=work, args=(kind, number, end, results)).start()
total = collections.Counter()
for _ in range(ADMINS + LOADS + LOGINS):
    total += results.get()
wrong = [k for k in total if k.startswith('wrong')]
for k, n in sorted(total.items()):
    print('# %d %s' % (n, k.replace('\n', ' ')))
print('ok requests are done or refused, and data is what was written' if not wrong else 'not ok something went wrong')
busy = total['done'] > 20 and total['verified'] > 1 and total['logins'] > 2
print('ok much was done' if busy else 'not ok not much was done')
sys.exit(bool(wrong) or not busy)
