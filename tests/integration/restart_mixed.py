#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Planned restarts in the middle of all that initiators and administrators do (issue 17, item 5): each of
them sees what it would see without one.

    restart_mixed.py TGTD_BIN DIR RESTARTS SEED

Each actor has sessions and units of its own, and goes through a cycle again and again: reservations and
PREEMPT, MODE SELECT, resets, aborted tasks, writes whose data comes in pieces (immediate, unsolicited, by
R2T), answers that are taken late, sessions of two connections, logins by mutual CHAP and logouts, discovery,
an administrator's changes. Restarts come at random instants of these, of the worker and of the keeper.
Prints a TAP line for each actor.
"""
import os, random, struct, sys, threading, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
sys.dont_write_bytecode = True
from iscsi_peer import Gone, NONE, Peer, is_, pdu
from planned_restart import IQN, READ, WRITE, Session, Tgtd, io, second
from tenant import pr_in, pr_out

CHAP, OWN = IQN + '.chap', IQN + '.own'
UNITS = 9
PR, MODE, RESET, ABORT, PIECES, UNSOLICITED, TWO, LATE, ADMIN = range(1, UNITS + 1)
UNKNOWN, NO_DAEMON = 104, 107  # tgtadm: nobody knows, nobody answered


def expect(what, got, *wanted):
    if got not in wanted:
        raise AssertionError('%s: %s, not %s' % (what, got, ' or '.join(map(str, wanted))))


def enter(lun, *keys):
    """A session that has heard all that its unit has to say at first."""
    s = Session(*keys)
    for _ in range(4):
        if s.run(b'\0', lun=lun)[0] == 'good':
            break
    s.noticed.clear()
    return s


def answer(s):
    """The next PDU that is no ping."""
    while True:
        head, data = s.recv()
        if head[0] != 0x20:
            return head, data


class Actor(threading.Thread):
    """Goes through its cycle until it is told to end, or something is not as it must be."""

    def __init__(self, name, seed):
        super().__init__(daemon=True)
        self.name, self.r = name, random.Random('%s %s' % (name, seed))
        self.n, self.over, self.wrong, self.sessions, self.at = 0, False, None, [], ''
        self.slowest = 0

    def run(self):
        while not self.over and not self.wrong:
            began = time.monotonic()
            try:
                self.cycle()
            except (Gone, OSError, AssertionError, struct.error, KeyError, IndexError) as e:
                self.wrong = '%s at "%s" of cycle %u: %s' % (type(e).__name__, self.at, self.n, e)
            self.slowest = max(self.slowest, time.monotonic() - began)
            for s in self.sessions:
                odd = [x for x in s.noticed if not x.startswith('status')]
                if odd and not self.wrong:
                    self.wrong = 'cycle %u: %s' % (self.n, odd[:3])
                s.noticed.clear()
            self.n += 1

    def step(self, text):
        """Something is about to happen; now and then a moment later."""
        self.at = text
        if self.r.random() < 0.3:
            time.sleep(self.r.random() ** 2 * 0.05)

    def good(self, what, got):
        self.step(what)
        expect(what, got() if callable(got) else got, 'good')

    def says(self, what, s, lun, *wanted):
        self.step(what)
        expect(what, s.run(b'\0', lun=lun)[0], *wanted)


class Reservations(Actor):
    def __init__(self, seed):
        super().__init__('reservations and PREEMPT', seed)
        self.a, self.b = self.sessions = [enter(PR, 'HeaderDigest=CRC32C'), enter(PR)]

    def cycle(self):
        a, b = self.a, self.b
        write = lambda s: s.run(io(WRITE, 8, 1), out=bytes(512), lun=PR)[0]
        self.good('a registers', lambda: pr_out(a, 0, new=0xa, lun=PR))
        self.good('b registers', lambda: pr_out(b, 0, new=0xb, lun=PR))
        self.good('a reserves', lambda: pr_out(a, 1, 1, 0xa, lun=PR))
        self.step('b is kept out')
        expect(self.at, write(b), 'status 18')
        self.good('a writes', lambda: write(a))
        self.good('b preempts', lambda: pr_out(b, 4, 1, 0xb, 0xa, lun=PR))
        self.says('a is told', a, PR, '06/2a/05')
        self.says('... once', a, PR, 'good')
        self.step('a is kept out')
        expect(self.at, write(a), 'status 18')
        self.good('b writes', lambda: write(b))
        self.step('the keys')
        expect(self.at, pr_in(b, 0, lun=PR)[1][4:16], struct.pack('>IQ', 8, 0xb))
        self.good('a registers again', lambda: pr_out(a, 0, new=0xa, lun=PR))
        self.good('b clears', lambda: pr_out(b, 3, 0, 0xb, lun=PR))
        self.says('a is told of that', a, PR, '06/2a/03')
        self.says('... once', a, PR, 'good')
        self.says('b is not', b, PR, 'good')
        self.good('RESERVE', lambda: a.run(b'\x16', lun=PR)[0])
        self.step('... keeps b out')
        expect(self.at, b.run(io(READ, 8, 1), 512, lun=PR)[0], 'status 18')
        self.good('RELEASE', lambda: a.run(b'\x17', lun=PR)[0])
        self.good('b reads', lambda: b.run(io(READ, 8, 1), 512, lun=PR)[0])


class Modes(Actor):
    def __init__(self, seed):
        super().__init__('MODE SELECT', seed)
        self.a, self.b = self.sessions = [enter(MODE, 'DataDigest=CRC32C'), enter(MODE)]

    def page(self, s):
        got, data = s.run(bytes([0x1a, 8, 8, 0, 255, 0]), 255, lun=MODE)
        expect('MODE SENSE', got, 'good')
        return data[4:24]

    def cycle(self):
        self.step('it is asked')
        page = bytearray(self.page(self.a))
        page[0] &= 0x3f
        page[2] ^= 4  # WCE
        self.good('MODE SELECT', lambda: self.a.run(bytes([0x15, 0x10, 0, 0, 24, 0]), out=bytes(4) + bytes(page), lun=MODE)[0])
        self.says('the other one is told', self.b, MODE, '06/2a/01')
        self.says('... once', self.b, MODE, 'good')
        self.says('who asked is not', self.a, MODE, 'good')
        for s in self.a, self.b:
            self.step('it holds')
            expect('WCE', self.page(s)[2] & 4, page[2] & 4)


class Resets(Actor):
    """Of a unit, while a write waits for its data. (Of the same session: what others wait for is not read while it
    comes to rest.)"""

    def __init__(self, seed):
        super().__init__('resets', seed)
        self.a, self.b = self.sessions = [enter(RESET), enter(RESET, 'HeaderDigest=CRC32C', 'DataDigest=CRC32C')]

    def cycle(self):
        a, b = self.a, self.b
        self.step('a write')
        b.out(b.write(64, 16, lun=RESET))
        itt = b.itt - 1
        head, _ = answer(b)
        expect('an R2T', head[0], 0x31)
        self.step('LOGICAL UNIT RESET')
        expect(self.at, b.manage(5, lun=RESET), 0)
        if self.r.random() < 0.5:
            self.step('data that nobody wants any more')
            b.out(data_out(b, itt, head, bytes(8192), RESET))
        self.step('a ping')
        expect('its answer', b.answers(), True)
        for s in b, a:
            self.says('each is told', s, RESET, '06/29/03')
            self.says('... once', s, RESET, 'good')


def data_out(s, itt, r2t, data, lun, sn=0, offset=0, final=True):
    ttt = struct.unpack('>I', r2t[20:24])[0] if r2t else NONE
    p = s.data_out(itt, ttt, data, sn, offset, final)
    return p[:8] + struct.pack('>H', lun) + p[10:]


class Aborts(Actor):
    def __init__(self, seed):
        super().__init__('aborted tasks', seed)
        self.s, = self.sessions = [enter(ABORT, 'DataDigest=CRC32C')]

    def cycle(self):
        s = self.s
        self.step('a write')
        s.out(s.write(0, 64, lun=ABORT))
        itt = s.itt - 1
        head, _ = answer(s)
        expect('an R2T', head[0], 0x31)
        if self.r.random() < 0.6:
            self.step('some of its data')
            s.out(data_out(s, itt, head, bytes(4096), ABORT, final=False))
        self.step('ABORT TASK')
        expect(self.at, s.manage(1, lun=ABORT, itt=itt, sn=s.cmdsn - 1), 0)
        self.step('a ping')
        expect('its answer', s.answers(), True)
        self.step('ABORT TASK of what there is not')
        expect(self.at, s.manage(1, lun=ABORT, itt=itt, sn=s.cmdsn - 1), 0, 1)
        self.good('a command', lambda: s.run(b'\0', lun=ABORT)[0])


class Pieces(Actor):
    """Large writes, whose data comes in pieces, now and then late: by R2T alone, or unsolicited at first."""

    def __init__(self, name, seed, lun, *keys):
        super().__init__(name, seed)
        self.lun, self.unsolicited = lun, 'InitialR2T=No' in keys
        self.immediate = 0 if 'ImmediateData=No' in keys else 8192
        self.s, = self.sessions = [enter(lun, 'FirstBurstLength=65536', 'MaxBurstLength=131072', 'MaxOutstandingR2T=4', *keys)]

    def some(self, itt, r2t, data, at, end):
        sn = 0
        while at < end:
            n = min(end - at, self.r.choice((512, 4096, 8192)) if self.r.random() < 0.3 else 8192)
            self.step('data')
            self.s.out(data_out(self.s, itt, r2t, data[at:at + n], self.lun, sn, at, at + n == end))
            at, sn = at + n, sn + 1

    def cycle(self):
        s, blocks = self.s, self.r.choice((16, 64, 256, 1000))
        lba = self.r.randrange(0, 15000 - blocks)
        data = self.r.randbytes(blocks * 512)
        first = min(self.immediate, len(data))
        begun = min(65536, len(data)) if self.unsolicited else first
        self.step('a write')
        s.out(s.write(lba, blocks, data[:first], final=begun == first, lun=self.lun))
        itt = s.itt - 1
        if begun > first:
            self.some(itt, None, data, first, begun)
        while True:
            head, _ = answer(s)
            if head[0] == 0x21:
                expect('its status', head[3], 0)
                break
            expect('an R2T', head[0], 0x31)
            at, n = struct.unpack('>II', head[40:48])
            self.some(itt, head, data, at, at + n)
        self.step('it is read')
        got, back = s.run(io(READ, lba, blocks), blocks * 512, lun=self.lun)
        expect('READ', got, 'good')
        expect('what was written', back == data, True)


class Two(Actor):
    """A session of two connections: what one writes, the other one reads."""

    def __init__(self, seed):
        super().__init__('two connections', seed)
        self.a = Session('MaxConnections=2')
        self.b = second(self.a)
        self.b.itt = 1 << 20  # a tag is the session's
        for _ in range(4):
            if self.a.run(b'\0', lun=TWO)[0] == 'good':
                break
        self.a.noticed.clear()
        self.sessions = [self.a]

    def cycle(self):
        a, b = self.a, self.b
        if self.r.random() < 0.5:
            a, b = b, a
        data, lba = self.r.randbytes(4096), self.r.randrange(0, 1000) * 8
        a.cmdsn = b.cmdsn = max(a.cmdsn, b.cmdsn)
        self.good('a write by one', lambda: a.run(io(WRITE, lba, 8), out=data, lun=TWO)[0])
        b.cmdsn = a.cmdsn
        self.step('a read by the other')
        expect(self.at, b.run(io(READ, lba, 8), 4096, lun=TWO) == ('good', data), True)
        self.step('both at once')
        a.cmdsn = b.cmdsn + 1
        a.out(a.read(lba, 8, lun=TWO))  # the later one first
        self.step('the one before')
        b.out(b.read(lba, 8, lun=TWO))
        expect('one', b.wait_status(b.itt - 1), (data, 0))
        expect('and the other', a.wait_status(a.itt - 1), (data, 0))


class Late(Actor):
    """Asks for much, and takes it late."""

    def __init__(self, seed):
        super().__init__('answers that are taken late', seed)
        self.s, = self.sessions = [enter(LATE)]
        self.data = self.r.randbytes(1 << 20)
        for at in range(0, 1 << 20, 8192):
            expect('a write', self.s.run(io(WRITE, at // 512, 16), out=self.data[at:at + 8192], lun=LATE)[0], 'good')

    def cycle(self):
        s, first = self.s, self.s.itt
        self.step('it asks')
        for _ in range(8):
            s.out(s.read(0, 2048, lun=LATE))
        time.sleep(self.r.random() * 0.2)
        got = {first + i: bytearray(1 << 20) for i in range(8)}
        while got:
            head, data = answer(s)
            itt, at = struct.unpack('>I', head[16:20])[0], struct.unpack('>I', head[40:44])[0]
            expect('Data-In', head[0], 0x25)
            got[itt][at:at + len(data)] = data
            if head[1] & 1:
                expect('status', head[3], 0)
                expect('what was written', got.pop(itt) == self.data, True)


class Logins(Actor):
    """Mutual CHAP, a command, a logout. A restart may end it, but never have it refused."""

    def __init__(self, seed):
        super().__init__('logins by mutual CHAP, and logouts', seed)
        self.gone = 0

    def cycle(self):
        p = None
        try:
            self.step('a connection')
            p = Peer(timeout=60)
            p.name, isid = IQN + '-logins', b'\x80\x12\x34\0\0\1'
            self.step('a login')
            status = p.chap(7, 'joe', 'secretsecret', ('target', 'othersecretsecret'), p.names(target=CHAP), isid=isid)
            expect('its status', status, 0, 0x0301)
            if not status:
                answer = p.login_step(1, 3, ['ImmediateData=Yes'], isid=isid)
                expect('its end', answer[None], (0, True), (0x0301, False), (0x0301, True))
                status = answer[None][0]
            if not status:
                self.step('a command')
                expect(self.at, p.run(b'\0')[0][:5], '06/29')
                self.step('a logout')
                p.logout()
        except (Gone, OSError):
            self.gone += 1
            time.sleep(0.02)
        if p:
            p.close()


class Discovery(Actor):
    def __init__(self, seed):
        super().__init__('discovery', seed)
        self.gone = 0

    def cycle(self):
        p = None
        try:
            self.step('a login')
            p = Peer(timeout=60)
            p.login(session='Discovery', name=IQN + '-discovery')
            self.step('SendTargets')
            p.out(pdu(0x44, 0x80, 0, 5, struct.pack('>III', NONE, p.cmdsn, p.statsn), b'SendTargets=All\0'))
            head, data = p.recv()
            expect('its answer', head[0], 0x24)
            expect('targets', sorted(k[11:] for k in data.decode().split('\0') if k.startswith('TargetName=')), [IQN, CHAP, OWN])
        except (Gone, OSError):
            self.gone += 1
            time.sleep(0.02)
        if p:
            p.close()


class Administrator(Actor):
    """What it has changed holds, and initiators are told of it, once."""

    def __init__(self, t, seed):
        super().__init__('an administrator', seed)
        self.t = t
        self.s, = self.sessions = [enter(ADMIN)]
        Peer.target = OWN
        self.own = enter(0)
        Peer.target = IQN
        self.sessions.append(self.own)
        self.vendor, self.lost = self.has(), 0

    def has(self):
        return self.s.run(bytes([0x12, 0, 0, 0, 96, 0]), 96, lun=ADMIN)[1][8:16].decode().strip()

    def adm(self, *args):
        self.step(' '.join(map(str, args)))
        rc, out = self.t.adm(*args)
        if rc not in (0, UNKNOWN, NO_DAEMON):
            raise AssertionError('%u: %s' % (rc, out))
        self.lost += rc != 0
        return rc

    def cycle(self):
        new = 'V%u' % (self.n % 1000)
        rc = self.adm('logicalunit', 'update', '--tid', 1, '--lun', ADMIN, '--params', 'vendor_id=' + new)
        now = self.has()
        expect('the name', now, *{0: [new], NO_DAEMON: [self.vendor]}.get(rc, [new, self.vendor]))
        if now != self.vendor:
            self.says('it is told', self.s, ADMIN, '06/3f/03')
        self.says('... once', self.s, ADMIN, 'good')
        self.vendor = now
        for op, more in (('new', ('-E', 'null', '-b', '1m')), ('delete', ())):
            while True:
                self.step(op)
                rc, out = self.t.adm('logicalunit', op, '--tid', 3, '--lun', 1, '--debug', *more)
                if not rc:
                    break
                # (asked again: it may have been done)
                if rc not in (UNKNOWN, NO_DAEMON) and not self.lost:
                    raise AssertionError('%u: %s' % (rc, out))
                self.lost += 1
                if rc not in (UNKNOWN, NO_DAEMON):
                    break
            self.says('LUNs have changed', self.own, 0, '06/3f/0e')
            self.says('... once', self.own, 0, 'good')


def main(bin, dir, restarts, seed):
    t = Tgtd(bin, dir)
    t.configure(UNITS)
    t.must('account', 'new', '--user', 'joe', '--password', 'secretsecret')
    t.must('account', 'new', '--user', 'target', '--password', 'othersecretsecret')
    t.must('target', 'new', '--tid', 2, '--targetname', CHAP)
    t.must('target', 'bind', '--tid', 2, '-I', 'ALL')
    t.must('account', 'bind', '--tid', 2, '--user', 'joe')
    t.must('account', 'bind', '--tid', 2, '--user', 'target', '--outgoing')
    t.must('logicalunit', 'new', '--tid', 2, '--lun', 1, '-E', 'null', '-b', '1m')
    t.must('target', 'new', '--tid', 3, '--targetname', OWN)
    t.must('target', 'bind', '--tid', 3, '-I', 'ALL')
    actors = [Reservations(seed), Modes(seed), Resets(seed), Aborts(seed),
              Pieces('large writes by R2T', seed, PIECES, 'ImmediateData=No', 'HeaderDigest=CRC32C'),
              Pieces('large writes, unsolicited at first', seed, UNSOLICITED, 'InitialR2T=No', 'DataDigest=CRC32C'),
              Two(seed), Late(seed), Logins(seed), Discovery(seed), Administrator(t, seed)]
    r, done = random.Random(int(seed)), 0
    for a in actors:
        a.start()
    for i in range(int(restarts)):
        n = [a.n for a in actors]
        end = time.monotonic() + 120
        while time.monotonic() < end and not any(a.wrong for a in actors) and any(a.n == m for a, m in zip(actors, n)):
            time.sleep(0.01)
        time.sleep(r.random() * 0.1)
        before = t.worker()
        rc, out = t.restart('keeper' if i % 4 == 3 else 'now')
        done += not rc and (t.worker() != before) == (i % 4 != 3)
        if any(a.wrong for a in actors):
            break
    is_('%s restarts' % restarts, done == int(restarts), done, t.log()[-2000:])
    for a in actors:
        a.over = True
    for a in actors:
        a.join(90)
        gone = ', %u ended by restarts' % a.gone if hasattr(a, 'gone') else ''
        is_('%s: %u cycles, the slowest %.1f s%s' % (a.name, a.n, a.slowest, gone), not a.wrong and not a.is_alive() and a.n > 2,
            a.wrong or 'it hangs at "%s"' % a.at)
    ended = [x for x in t.log().splitlines() if 'of the process before ends: ' in x]
    is_('no session was ended', not ended, ended[:5])
    is_('it ends with 0', t.stop() == 0, t.log()[-2000:])
    is_('no report', not any(w in t.log() for w in ('BUG:', 'Sanitizer', 'runtime error', 'restoring: ')), t.log()[-2000:])
    if is_.failures:
        print(''.join('# %s\n' % x for x in t.log().splitlines()[-40:]))


if __name__ == '__main__':
    main(*sys.argv[1:])
    sys.exit(is_.failures > 0)
