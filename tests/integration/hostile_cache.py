#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Sick stores, a hostile tenant and a busy administrator, all at once, beside a unit that is well.

    hostile_cache.py PORT IQN FOLDER SECONDS SEED TGTADM KEEPER-PID KILLS

Targets IQN:well, IQN:tenant and IQN:sick-N (N from 1) have a LUN 1 of 32 MiB each. A store is sick as
the words say in the file of its name in FOLDER/hostile (tests/preload/hostile_store.c). Each writer has
blocks of its own, which say where they are and of which write they are. Judged is that

  - the commands of who is on a well store end within TGT_HOSTILE_WAIT_MS (5,000), without an error,
    while no worker is killed;
  - what a block shows is of the last write that was answered, or of a later one, whatever befalls its
    store;
  - after a SYNCHRONIZE CACHE that ends well the store's file itself shows that, for its writer;
  - one to a store whose fdatasync() fails all the while does not end well; one to a well store does,
    and where a worker is killed, it has no MEDIUM or HARDWARE ERROR;
  - the administrator is answered within 15 s;
  - all of it ends when the stores are well again, and nothing is dirty then.

Prints TAP lines.
"""
import os, random, re, signal, struct, subprocess, sys, threading, time, traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
sys.dont_write_bytecode = True
from iscsi_peer import NONE, Gone, Peer, is_, pdu

PORT, IQN, FOLDER, SECONDS, SEED = (int(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4]),
                                    int(sys.argv[5]))
TGTADM, KEEPER, KILLS = sys.argv[6], int(sys.argv[7]), int(sys.argv[8])
WAIT = float(os.environ.get('TGT_HOSTILE_WAIT_MS', '5000')) / 1e3
SICK = len([f for f in os.listdir(FOLDER) if f.startswith('sick-')])
Peer.address, Peer.target = ('127.0.0.1', PORT), IQN + ':well'
SIZES = os.environ.get('TGT_HOSTILE_SIZES', '16m 24m 48m 96m').split()
BLOCKS = 65536
OVER = time.monotonic() + SECONDS
wrong = []
lock = threading.Lock()
sickness_at = os.path.join(FOLDER, 'hostile')


def over():
    return time.monotonic() > OVER or bool(wrong)


def violated(what):
    with lock:
        wrong.append(what)


class Initiator(Peer):
    target_name = None

    def __init__(self, target, name, **more):
        super().__init__(**more)
        self.target_name, self.name = target, IQN + ':' + name

    def names(self, session='Normal', target=None):
        return super().names(session, self.target_name)

    def login(self):
        answer = self.login_step(1, 3, self.names() + ['ImmediateData=Yes', 'InitialR2T=No',
                                                       'FirstBurstLength=65536'])
        if answer[None] != (0, True):
            raise Gone('login')
        return self


def enter(target, name, **more):
    for _ in range(200):
        try:
            return Initiator(target, name, **more).login()
        except (Gone, OSError, AssertionError):
            time.sleep(0.1)
    raise Gone('nobody lets us in')


class Writer(threading.Thread):
    """One that has blocks [first, first + n) of a unit to itself."""

    def __init__(self, target, index, first, n, well):
        super().__init__(daemon=True)
        self.target, self.index, self.first, self.n, self.well = target, index, first, n, well
        self.rnd = random.Random(SEED * 1000 + index * 7 + len(target))
        self.number = 0
        self.floor, self.issued, self.zeroed = [0] * n, [0] * n, [0] * n
        self.longest, self.commands, self.failed = 0, 0, 0
        self.store, self.syncs = target.split(':')[-1], [0, 0]  # that failed, that ended well
        self.peer = None

    def block(self, k, number):
        return struct.pack('>QQQ', self.index, self.first + k, number) * 21 + bytes(8)

    def check(self, at, data, where=''):
        """What of @data, blocks from @at on, is not right; None: all is."""
        for k in range(len(data) // 512):
            b, i = data[k * 512:k * 512 + 512], at + k
            if b == bytes(512):
                if self.floor[i] and self.zeroed[i] < self.floor[i]:
                    return '%s%s: block %u is zeros, write %u was answered' % (
                        self.target, where, self.first + i, self.floor[i])
                continue
            number = struct.unpack('>Q', b[16:24])[0]
            if b != self.block(i, number) or not self.floor[i] <= number <= self.issued[i]:
                return '%s%s: block %u shows %u (%s), answered was %u, sent %u' % (
                    self.target, where, self.first + i, number, b[:48].hex(), self.floor[i],
                    self.issued[i])

    def judge(self, at, data):
        bad = self.check(at, data)
        if bad:
            violated(bad)

    def on_store(self):
        """A SYNC has ended well. (What failed may be written now: then a look may see a part.)"""
        for tries in range(20):
            with open(os.path.join(FOLDER, self.store), 'rb') as f:
                f.seek(self.first * 512)
                bad = self.check(0, f.read(self.n * 512), ', the file after a SYNC')
            if not bad:
                break
            time.sleep(0.05)
        else:
            violated(bad)

    def sync(self):
        before = how_is(self.store)
        got = self.ask(bytes([0x35] + [0] * 9))[0]
        self.syncs[got == 'good'] += 1
        if got == 'good':
            if 'fail-sync=1' in before[1].split() and how_is(self.store) == before:
                violated('%s: a SYNC ends well, each fdatasync() fails' % self.target)
            self.on_store()
        elif self.well and got[:2] in ('03', '04'):
            violated('%s: a SYNC ends with %s' % (self.target, got))

    def ask(self, cdb, edtl=0, out=None):
        if not self.peer:
            self.peer = enter(self.target, 'w%u' % self.index, timeout=150)
        start = time.monotonic()
        try:
            while True:
                got = self.peer.run(cdb, edtl, out)
                if not got[0].startswith('06/'):
                    break
        except (Gone, OSError) as e:
            self.peer.close()
            self.peer = None
            got = 'gone', b''
        self.commands += 1
        self.longest = max(self.longest, time.monotonic() - start)
        self.failed += got[0] != 'good'
        if self.well and not KILLS and got[0] not in ('good', '0e/1d/00'):
            violated('%s: %s for %s' % (self.target, got[0], bytes(cdb).hex()))
        return got

    def change(self, at, n, cdb, out, zero=False):
        self.number += 1
        for i in range(at, at + n):
            self.issued[i] = self.number
            if zero:
                self.zeroed[i] = self.number
        if callable(out):
            out = out(self.number)
        if self.ask(cdb, 0, out)[0] == 'good':
            for i in range(at, at + n):
                self.floor[i] = self.number

    def one(self):
        r = self.rnd
        n = r.choice([1, 2, 8, 8, 8, 16, 64, r.randint(1, 100)])
        n = min(n, self.n)
        at = r.randint(0, self.n - n)
        lba = self.first + at
        # (Data comes with the command, within FirstBurstLength.)
        what = r.random()
        if what < 0.45:
            fua = 8 if r.random() < 0.1 else 0
            self.change(at, n, struct.pack('>BBQIxx', 0x8a, fua, lba, n),
                        lambda number: b''.join(self.block(at + k, number) for k in range(n)))
        elif what < 0.8:
            got, data = self.ask(struct.pack('>BxQIxx', 0x88, lba, n), n * 512)
            if got == 'good':
                self.judge(at, data)
        elif what < 0.85:
            self.change(at, n, struct.pack('>B6xHx', 0x42, 24),
                        struct.pack('>HH4xQI4x', 22, 16, lba, n), zero=True)
        elif what < 0.9:
            self.change(at, n, struct.pack('>BBQIxx', 0x93, 1, lba, n), None, zero=True)
        elif what < 0.95 and self.floor[at] == self.issued[at]:
            was = bytes(512) if self.zeroed[at] == self.floor[at] else \
                self.block(at, self.floor[at])
            self.number += 1
            self.issued[at] = self.number
            got = self.ask(struct.pack('>BxQ3xBxx', 0x89, lba, 1), 0,
                           was + self.block(at, self.number))[0]
            if got == 'good':
                self.floor[at] = self.number
            elif got == '0e/1d/00':
                violated('%s: block %u does not compare' % (self.target, lba))
        else:
            self.sync()

    def all_again(self, patience):
        """Everything is read, and made stable where the store lets one."""
        end = time.monotonic() + patience
        for at in range(0, self.n, 128):
            n = min(128, self.n - at)
            while True:
                got, data = self.ask(struct.pack('>BxQIxx', 0x88, self.first + at, n), n * 512)
                if got == 'good':
                    self.judge(at, data)
                    break
                if time.monotonic() > end:
                    violated('%s: %s at the end' % (self.target, got))
                    return
                time.sleep(0.2)

    def run(self):
        try:
            while not over():
                self.one()
            if not self.well:
                healthy.wait()
            self.all_again(60)
        except Exception:
            violated('%s: %s' % (self.target, traceback.format_exc()))


class Tenant(threading.Thread):
    """Whatever one may do to a unit of its own, and not wait for it."""

    def __init__(self, index):
        super().__init__(daemon=True)
        self.index, self.rnd = index, random.Random(SEED * 77 + index)
        self.rounds = 0

    def command(self, p):
        r = self.rnd
        lba, n = r.randrange(0, BLOCKS - 2048), r.choice([1, 8, 64, 512, 2048])
        what = r.randrange(13)
        if what < 2:  # it owes the data
            return p.command(struct.pack('>BxQIxx', 0x8a, lba, n), 0xa1, n * 512)
        if what < 4:
            return p.command(struct.pack('>BxQIxx', 0x88, lba, n), 0xc1, n * 512)
        if what == 4:
            return p.command(struct.pack('>B6xHx', 0x42, 40), 0xa1, 40,
                             struct.pack('>HH4xQI4xQI4x', 38, 32, 0, BLOCKS, lba, n))
        if what == 5:
            return p.command(struct.pack('>BBQIxx', 0x93, 1, 0, r.choice([n, BLOCKS])), 0x81)
        if what == 6:
            return p.command(struct.pack('>BxQ3xBxx', 0x89, lba, 1), 0xa1, 1024, bytes(1024))
        if what == 7:
            return p.command(struct.pack('>BxQxxHxx', 0x9c, lba & ~7, 8), 0xa1, 4096, bytes(4096))
        if what == 8:
            return p.command(bytes([r.choice([0x16, 0x17, 0x35])] + [0] * 9), 0x81)
        if what == 9:
            n = min(n, 64)
            return p.command(struct.pack('>BBQIxx', r.choice([0x8a, 0x8b]), r.choice([0, 8]), lba, n),
                             0xa1, n * 512, bytes(n * 512))
        if what == 10:
            return p.command(struct.pack('>BBQIxx', 0x9e, 0x12, 0, 65536), 0xc1, 65536)
        if what == 11:
            return p.command(struct.pack('>BBQIxx', 0x8f, 0, lba, n), 0x81)
        segment = struct.pack('>BBHHHxxHQQ', 2, 0, 24, 0, 1, n, lba, r.randrange(0, BLOCKS - 2048))
        out = struct.pack('>BBH4xI4x', 7, 0, 64, len(segment)) + self.id + self.id + segment
        return p.command(struct.pack('>BB8xIxx', 0x83, 0, len(out)), 0xa1, len(out), out)

    def one(self):
        r = self.rnd
        p = enter(IQN + ':tenant', 't%u' % self.index, rcvbuf=r.choice([0, 4096]), timeout=3)
        data = p.run([0x12, 1, 0x83, 1, 0, 0], 256)[1]
        at = 4
        while at < len(data) and data[at + 1] & 0x3f != 3:
            at += 4 + data[at + 3]
        naa = data[at:at + 4 + data[at + 3]]
        self.id = (b'\xe4\0\0\0' + naa).ljust(28, b'\0') + struct.pack('>BBH', 0, 0, 512)
        for _ in range(r.randint(1, 40)):
            c = bytearray(self.command(p))
            c[8:10] = struct.pack('>H', r.choice([1, 1, 1, 2, 3, 4]))
            p.out(bytes(c))
            if r.random() < 0.05:
                p.out(pdu(0x42, 0x80 | r.choice([2, 4, 5, 5]), 1, 0x7a7a7a,
                          struct.pack('>IIII', NONE, p.cmdsn, p.statsn, 0)))
        if r.random() < 0.5:
            time.sleep(r.random() * 2)
        if r.random() < 0.3:
            p.manage(5)
        p.close(reset=r.random() < 0.5)

    def run(self):
        while not over():
            try:
                self.one()
            except (Gone, OSError, AssertionError, IndexError):
                pass
            except Exception:
                violated(traceback.format_exc())
            self.rounds += 1


WORDS = ['hang-write', 'hang-read', 'hang-read hang-write hang-sync', 'hang-clear', 'wait',
         'fail-write=3', 'fail-read=5', 'fail-sync=2', 'full=4', 'odd', 'short=3',
         'odd short=2 fail-sync=3', 'fail-sync=1', 'fail-sync=1 fail-write=2', 'hang-sync fail-write=2', 'wait hang-clear']


states = {}  # of a store: how often it has changed, and how it is; '': perhaps changing


def how_is(name):
    with lock:
        return states.get(name, (0, ''))


def make(name, words):
    with lock:
        turn = states.get(name, (0, ''))[0] + 1
        states[name] = turn, ''
    with open(os.path.join(sickness_at, '.new'), 'w') as f:
        f.write(words)
    os.rename(os.path.join(sickness_at, '.new'), os.path.join(sickness_at, name))
    with lock:
        states[name] = turn, words


def sickness():
    r = random.Random(SEED)
    while not over():
        make('sick-%u' % r.randint(1, SICK), r.choice(WORDS + ['']))
        time.sleep(r.random() * 0.8)


def failing_syncs():
    """Each store in turn: no SYNC ends well while none does below. Then what may be lost is in doubt,
    and when an administrator has looked after it one does."""
    for k in range(1, SICK + 1):
        w = Writer('%s:sick-%u' % (IQN, k), 10 * k + 9, 20000, 8, False)
        w.change(0, 8, struct.pack('>BxQIxx', 0x8a, w.first, 8),
                 lambda number: b''.join(w.block(i, number) for i in range(8)))
        make(w.store, 'fail-sync=1')
        for _ in range(3):
            w.sync()
        is_('%s: no SYNC ends well' % w.store, w.syncs == [3, 0], w.syncs)
        os.unlink(os.path.join(sickness_at, w.store))
        with lock:
            states.pop(w.store)
        end = time.monotonic() + 90
        while not w.syncs[1] and time.monotonic() < end:
            admin.adm('-m', 'logicalunit', '-o', 'update', '-t', str(2 + k), '-l', '1', '--params',
                      'refresh=1')
            w.sync()
        is_('%s: ... and when it was looked after one does' % w.store, w.syncs[1], w.syncs)
        if w.peer:
            w.peer.close()


class Admin(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.longest, self.what, self.count = 0, '', 0

    def adm(self, *args):
        start = time.monotonic()
        try:
            p = subprocess.run([TGTADM, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               timeout=60, text=True)
            out = p.stdout
        except subprocess.TimeoutExpired:
            out = 'no answer in 60 s'
        took = time.monotonic() - start
        self.count += 1
        if took > self.longest:
            self.longest, self.what = took, ' '.join(args)
        return out

    def run(self):
        r = random.Random(SEED + 5)
        while not over():
            what = r.randrange(9)
            k = r.randint(1, SICK)
            if what == 0:
                self.adm('-m', 'cache', '-o', 'update', '--params',
                         'size=' + r.choice(SIZES))
            elif what == 1:
                self.adm('-m', 'cache', '-o', 'show')
            elif what == 2:
                self.adm('-m', 'target', '-o', 'show')
            elif what == 3:
                self.adm('-m', 'logicalunit', '-o', 'update', '-t', '2', '-l', '1', '--params',
                         r.choice(['online=0', 'online=1', 'online=1', 'refresh=1']))
            elif what == 4:  # a unit more on a sick store comes, and goes by force
                name = os.path.join(FOLDER, 'more-%u' % k)
                with open(name, 'a') as f:  # ... or shrinks and grows under it
                    f.truncate(r.choice([8 << 20, 8 << 20, 1 << 20, 12345, 32 << 20]))
                self.adm('-m', 'logicalunit', '-o', 'new', '-t', '2', '-l', str(1 + k), '-b', name)
            elif what == 5:
                self.adm('-m', 'logicalunit', '-o', 'delete', '-t', '2', '-l', str(1 + k),
                         *r.choice([[], ['--force']]))
            elif what == 8:
                self.adm('-m', 'logicalunit', '-o', 'update', '-t', '2', '-l', str(1 + k), '--params',
                         r.choice(['refresh=1', 'resize=1', 'online=0', 'online=1',
                                   'path=' + os.path.join(FOLDER, 'more-%u' % r.randint(1, SICK))]))
            elif what == 6:
                self.adm('-m', 'logicalunit', '-o', 'latency', '-t', '1', '-l', '1')
            else:
                self.adm('-m', 'cache', '-o', 'stat', '-t', str(2 + k), '-l', '1')
            time.sleep(r.random() * 0.2)
        self.adm('-m', 'logicalunit', '-o', 'update', '-t', '2', '-l', '1', '--params', 'online=1')


def worker():
    for p in os.listdir('/proc'):
        if p.isdigit():
            try:
                with open('/proc/%s/status' % p) as f:
                    if re.search(r'^PPid:\s*%u$' % KEEPER, f.read(), re.M):
                        return int(p)
            except OSError:
                pass


def kills():
    r = random.Random(SEED + 9)
    for _ in range(KILLS):
        time.sleep(SECONDS / (KILLS + 1) * (0.5 + r.random()))
        pid = worker()
        if over() or not pid:
            return
        os.kill(pid, signal.SIGKILL)


healthy = threading.Event()
well = [Writer(IQN + ':well', i, i * 8192, 4096, True) for i in range(3)]
sick = [Writer('%s:sick-%u' % (IQN, k), 10 * k + i, i * 4096, 2048, False)
        for k in range(1, SICK + 1) for i in range(3)]
tenants = [Tenant(i) for i in range(4)]
admin = Admin()
side = [threading.Thread(target=sickness, daemon=True), threading.Thread(target=kills, daemon=True)]
for t in well + sick + tenants + [admin] + side:
    t.start()
for t in well:
    t.join(SECONDS + 120)
is_('who is on a well store has ended', not any(t.is_alive() for t in well))
admin.join(90)
is_('so has the administrator', not admin.is_alive())
side[0].join(10)
for name in os.listdir(sickness_at):
    os.unlink(os.path.join(sickness_at, name))
states.clear()
healthy.set()
for t in sick + tenants + side:
    t.join(150)
is_('the stores are well: their writers end', not any(t.is_alive() for t in sick),
    [t.target for t in sick if t.is_alive()])
is_('tenants end', not any(t.is_alive() for t in tenants))
print('# well: %u commands, longest %.0f ms; sick: %u commands, %u failed; %u rounds of tenants; '
      '%u admin commands, longest %.0f ms: %s' %
      (sum(t.commands for t in well), max(t.longest for t in well) * 1e3,
       sum(t.commands for t in sick), sum(t.failed for t in sick),
       sum(t.rounds for t in tenants), admin.count, admin.longest * 1e3, admin.what))
print('# SYNCs: %u of well stores, %u of sick ones failed and %u did not' %
      (sum(t.syncs[1] for t in well), sum(t.syncs[0] for t in sick), sum(t.syncs[1] for t in sick)))
is_('SYNCs of well stores were judged', sum(t.syncs[1] for t in well))
failing_syncs()
is_('nobody on a well store has waited for long', KILLS or max(t.longest for t in well) < WAIT)
is_('the administrator is answered in time', admin.longest < 15, admin.what)
is_('all shows what was answered', not wrong, *wrong[:5])
for k in range(1, SICK + 3):
    out = ''
    for _ in range(600):
        out = admin.adm('-m', 'cache', '-o', 'stat', '-t', str(k), '-l', '1')
        if re.search(r'Dirty: 0\b', out):
            break
        time.sleep(0.2)
    is_('nothing of unit %u is dirty at last' % k, re.search(r'Dirty: 0\b', out), out)
sys.exit(is_.failures > 0)
