#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Connections go on when the worker is killed amid reads and writes (issue 17, item 7): --keep-connections=all.

    keep_connections.py load TGTD_BIN DIR KILLS   sessions under load, killed again and again
    keep_connections.py owed TGTD_BIN DIR KILLS   ... that are owed data: R2Ts, and unsolicited
    keep_connections.py cut TGTD_BIN DIR          what exactly is under way: answers that nobody takes, halves, commands in a row
    keep_connections.py speed TGTD_BIN DIR KILLS [SIZE]  ... by tgt-load, which looks at what it reads, and loses no connection
    keep_connections.py ended TGTD_BIN DIR        who has ended another's write, and was told so, relies on that
    keep_connections.py told TGTD_BIN DIR         a unit attention that has not gone out yet is told, or its session ends
    keep_connections.py skipped TGTD_BIN DIR      a command that was aborted before it came has no effect afterwards
    keep_connections.py late TGTD_BIN DIR LATE_SO ... when the main thread gets no processor while it tells loops
    keep_connections.py hostile TGTD_BIN DIR      who violates the protocol meanwhile ends alone

Sessions look at each number that they are told, and at each digest: planned_restart.py. Prints a TAP line for each thing that
must hold.
"""
import os, random, re, select, signal, struct, subprocess, sys, threading, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
from planned_restart import IQN, SIZE, Load, Session, Tgtd, finish, io, stamp, READ, WRITE
from quiet_sessions import QUICK, REST, Kills, goes_on, in_step, wait
from iscsi_peer import Gone, NONE, Peer, is_, pdu

ALL = '--keep-connections=all'
KINDS = [(), ('HeaderDigest=CRC32C',), ('DataDigest=CRC32C',), ('HeaderDigest=CRC32C', 'DataDigest=CRC32C'), ('reads',), ('reads',)]
went_on = lambda t: [x for x in t.log().splitlines() if 'of them were at work' in x]


class Work(Load):
    """All data of a write comes with it, as with a stock Linux initiator. Of 'reads' there are no writes."""

    def issue(self):
        n = self.r.choice((1, 1, 1, 2))
        if 'reads' in self.s.keys or self.r.random() < 0.5:
            n = self.r.choice((1, 1, 2, 4, 16))
        else:
            n = -n
        at = self.r.randrange(0, self.n - abs(n) + 1)
        blocks = range(at, at + abs(n))
        if self.busy.intersection(blocks):
            return False
        itt, lba = self.s.itt, (self.first + at) * SIZE // 512
        if n > 0:
            self.s.out(self.s.read(lba, n * SIZE // 512))
            self.commands[itt] = ('read', blocks, b'', bytearray(n * SIZE), time.monotonic())
        else:
            data = b''
            for b in blocks:
                self.wrote[b] += 1
                data += stamp(self.who, b, self.wrote[b])
            self.s.out(self.s.write(lba, len(data) // 512, data))
            self.commands[itt] = ('write', blocks, data, None, time.monotonic())
        self.busy.update(blocks)
        return True


def session(keys):
    s = Session(*[k for k in keys if '=' in k])
    s.keys = keys
    return s


class Owed(Load):
    """Most data of its writes is asked for by R2Ts, in bursts of 16 KiB; or comes unsolicited, in several PDUs."""

    def issue(self):
        if 'InitialR2T=No' not in self.s.keys:
            return super().issue()
        at = self.r.randrange(0, self.n - 7)
        blocks = range(at, at + 8)
        if self.busy.intersection(blocks):
            return False
        itt, lba, data = self.s.itt, (self.first + at) * SIZE // 512, b''
        for b in blocks:
            self.wrote[b] += 1
            data += stamp(self.who, b, self.wrote[b])
        self.s.out(self.s.write(lba, len(data) // 512, data[:4096], final=False))
        for off in range(4096, 16384, 4096):
            self.s.out(self.s.data_out(itt, NONE, data[off:off + 4096], off // 4096 - 1, off, off == 12288))
        self.commands[itt] = ('write', blocks, data, None, time.monotonic())
        self.busy.update(blocks)
        return True


BURSTS = ('MaxBurstLength=16384',)
OWED = [BURSTS, BURSTS + ('ImmediateData=No',), BURSTS + ('HeaderDigest=CRC32C', 'DataDigest=CRC32C'),
        BURSTS + ('MaxOutstandingR2T=4',), BURSTS + ('InitialR2T=No', 'FirstBurstLength=16384')]


class Again(Work):
    def log_in_again(self):
        keys, self.s.keys = self.s.keys, tuple(k for k in self.s.keys if '=' in k)
        super().log_in_again()
        self.s.keys = keys


def killed_under(t, loads, n):
    """@n times, amid what they have under way."""
    for l in loads:
        l.s.noticed.clear()
        l.start()
    k, serves = Kills(t), True
    for _ in range(int(n)):
        done = sum(l.done for l in loads)
        wait(lambda: sum(l.done for l in loads) > done + 50)
        serves &= k.kill()
    is_('killed %s times: another one serves' % n, serves, t.log()[-3000:])
    finish(loads)


def owed(bin, dir, n):
    t = Tgtd(bin, dir, ALL)
    t.configure()
    loads = [Owed(i, session(keys).ready(), 11, again=True) for i, keys in enumerate(OWED)]
    killed_under(t, loads, n)
    for l in loads:
        is_('%s: each write that is owed data is answered once, and nothing acknowledged is lost (%u commands, %u logins)' %
            (', '.join(l.s.keys), l.done, l.logins), not l.errors, l.errors)
        if not l.logins:
            is_('... and nothing was noticed', not l.s.noticed, l.s.noticed)
    logins, all = sum(l.logins for l in loads), len(loads) * int(n)
    is_('at %s kills most of %u sessions went on, %u logged in again' % (n, len(loads), logins), logins * 4 <= all,
        [x for x in t.log().splitlines() if 'of the process before ends' in x][-9:])
    for x in t.log().splitlines():
        if 'of the process before ends' in x:
            print('# ' + x)
    is_('it ends with 0', t.stop() == 0, t.log()[-2000:])


def load(bin, dir, n):
    t = Tgtd(bin, dir, ALL)
    t.configure()
    loads = [Again(i, session(keys).ready(), 7, depth=16, again=True) for i, keys in enumerate(KINDS)]
    killed_under(t, loads, n)
    for l in loads:
        kind = ', '.join(l.s.keys) or 'ordinary'
        is_('%s: each command is answered once, and nothing acknowledged is lost (%u commands, %u logins)' %
            (kind, l.done, l.logins), not l.errors, l.errors)
        if 'reads' in l.s.keys:
            is_('... nobody has logged in', not l.logins, [x for x in t.log().splitlines() if 'ends' in x or 'cannot' in x][-9:])
        if not l.logins:
            is_('... and nothing was noticed', not l.s.noticed, l.s.noticed)
    print('# %u logins of %u sessions at %s kills' % (sum(l.logins for l in loads), len(loads), n))
    for x in went_on(t):
        print('# ' + x)
    is_('it ends with 0', t.stop() == 0, t.log()[-2000:])
    is_('no system call was refused', 'system call' not in t.log(), [x for x in t.log().splitlines() if 'system call' in x][:3])


DIGESTS = [(), ('HeaderDigest=CRC32C',), ('DataDigest=CRC32C',), ('HeaderDigest=CRC32C', 'DataDigest=CRC32C')]
name = lambda keys: ', '.join(keys) or 'ordinary'


def deaf(*keys):
    """One that has little room for answers."""
    s = Session.__new__(Session)
    Peer.__init__(s, rcvbuf=4096, timeout=60)
    s.noticed, s.number, s.max_cmdsn, s.next_sn, s.keys = [], Peer.count, None, None, keys
    s.login(*keys)
    s.next_sn = s.statsn
    s.ready()
    s.noticed.clear()
    return s


def fill(s, first, n, version):
    for b in range(first, first + n):
        assert s.run(io(WRITE, b * 8, 8), out=stamp(9, b, version)) == ('good', b'')


class Reads:
    """Many reads of @n blocks from @first on, in a row."""

    def __init__(self, s, first, n, commands):
        self.s, self.first, self.n = s, first, n
        self.got = {s.itt + i: bytearray(n * SIZE) for i in range(commands)}
        self.have = dict.fromkeys(self.got, 0)
        self.ended = []
        for _ in range(commands):
            s.out(s.read(first * 8, n * 8))

    def take(self):
        """All answers: each block is whole, and of a version; of each command all of it came once, in order."""
        versions, sn = set(), {}
        while len(self.ended) < len(self.got):
            head, data = self.s.recv()
            itt, at = struct.unpack('>I', head[16:20])[0], struct.unpack('>I', head[40:44])[0]
            assert head[0] == 0x25 and itt in self.got and itt not in self.ended, (hex(head[0]), itt)
            assert at == self.have[itt], 'offset %u, not %u' % (at, self.have[itt])
            assert struct.unpack('>I', head[36:40])[0] == sn.get(itt, 0), 'DataSN'
            sn[itt] = sn.get(itt, 0) + 1
            self.got[itt][at:at + len(data)] = data
            self.have[itt] += len(data)
            if head[1] & 1:
                assert head[3] == 0 and self.have[itt] == self.n * SIZE and not head[1] & 6, (head[1], head[3])
                self.ended.append(itt)
        for data in self.got.values():
            for i in range(self.n):
                block = bytes(data[i * SIZE:(i + 1) * SIZE])
                version = struct.unpack('>Q', block[8:16])[0]
                assert block == stamp(9, self.first + i, version), 'block %u is torn' % (self.first + i)
                versions.add(version)
        return versions


class Owes:
    """A write of 64 KiB that is asked for 32 KiB at a time, of which @upto bytes of PDUs have come (-1: all but one)."""

    def __init__(self, who, keys, upto):
        self.s = Session(*keys, 'ImmediateData=No', 'MaxBurstLength=32768').ready()
        self.s.noticed.clear()
        self.what = 'who owes data of a write goes on, %s: %d bytes of it had come' % (name(keys), upto)
        self.lba = 8192 + 128 * who
        self.data = b''.join(stamp(9, 1024 + 16 * who + b, 1) for b in range(16))
        self.itt = self.s.itt
        self.s.out(self.s.write(self.lba, 128))
        burst = self.burst(self.s.recv())
        self.rest = burst[upto:]
        self.s.send(burst[:upto])

    def burst(self, r2t):
        """The Data-Out that an R2T asks for, in PDUs of 8 KiB."""
        head = r2t[0]
        assert head[0] == 0x31, hex(head[0])
        ttt, self.r2t_sn, at, left = struct.unpack('>I12xIII', head[20:48])
        sn, out, self.asked = 0, b'', (at, left)
        while left:
            n = min(left, 8192)
            out += framed(self.s, self.s.data_out(self.itt, ttt, self.data[at:at + n], sn, at, n == left))
            sn, at, left = sn + 1, at + n, left - n
        return out

    def goes_on(self):
        asked, before = [], self.r2t_sn
        self.s.send(self.rest)
        while True:
            head, _ = self.s.recv()
            if head[0] == 0x21:
                break
            out = self.burst((head, b''))
            assert self.r2t_sn == before + 1, 'R2TSN %u behind %u' % (self.r2t_sn, before)
            before = self.r2t_sn
            asked.append(self.asked)
            self.s.send(out)
        assert head[3] == 0, 'status %u' % head[3]
        assert asked in ([(0, 32768), (32768, 32768)], [(0, 32768)] * 2 + [(32768, 32768)]), asked
        assert self.s.run(io(READ, self.lba, 128), len(self.data)) == ('good', self.data)
        return True


def holds(what, function):
    try:
        result = function()
        is_(what, result is not False, result)
        return result
    except (Gone, AssertionError, OSError, KeyError) as e:
        is_(what, False, repr(e))


def cut(bin, dir):
    t = Tgtd(bin, dir, ALL)
    t.configure()
    k = Kills(t)
    writer = Session().ready()
    fill(writer, 0, 256, 1)
    calm = in_step(Session().ready())
    deafs = [deaf(*keys) for keys in DIGESTS]
    reads = [Reads(s, 0, 256, 12) for s in deafs]  # 12 MiB for each: the socket is full, and what is queued is sent in part
    late = [Session(*keys).ready() for keys in DIGESTS]
    one = [s.write(4096, 8, stamp(9, 512, i)) for i, s in enumerate(late)]
    for s, p in zip(late, one):  # half of a write, and half of a header
        s.noticed.clear()
        p = framed(s, p)
        s.send(p[:3000])
        s.rest = p[3000:]
    owers = [Owes(i, keys, upto) for i, (keys, upto) in enumerate(
        ((keys, upto) for keys in DIGESTS for upto in (0, 20, 48, 5000, 8196, 12000, 16384, 31000, -1)))]
    halves, whole = (in_step(Session().ready()) for _ in range(2))
    for s, flags, keys in (halves, 0x40, b'SendTar'), (whole, 0x80, b'MaxRecvDataSegmentLength=512\0'):
        s.out(pdu(0x44, flags, 0, 0x77, struct.pack('>III', NONE, s.cmdsn, s.statsn), keys))
        is_('a text request is answered', s.recv()[0][0] == 0x24)
    time.sleep(1)
    fill(writer, 0, 256, 2)  # blocks that are on their way are written meanwhile
    in_step(writer)
    accepted = t.stat('iscsi_conns_accepted')
    is_('killed, and another one serves', k.kill(), t.log()[-2000:])
    seen = set()
    holds('it goes on: who was at rest', lambda: fill(writer, 0, 16, 3) or goes_on(calm))
    for s, r in zip(deafs, reads):
        what = holds('it goes on, %s: %u reads of 1 MiB, of which a part was sent: none twice, none torn' %
                     (name(s.keys), len(r.got)), r.take)
        seen |= what or set()
        is_('... and nothing was noticed', not s.noticed and goes_on(s), s.noticed)
    is_('some of them before it was written, and some after', 1 in seen and seen & {2, 3}, seen)
    for i, s in enumerate(late):
        s.send(s.rest)
        holds('it goes on, %s: half of a write had come' % name(s.keys), lambda: s.wait_status(s.itt - 1)[1] == 0)
        is_('... which was carried out once, and nothing was noticed',
            s.run(io(READ, 4096, 8), SIZE) == ('good', stamp(9, 512, i)) and not s.noticed, s.noticed)
    for o in owers:
        holds(o.what + ': it is asked for again, and written', o.goes_on)
        is_('... and nothing was noticed', not o.s.noticed and o.s.answers(), o.s.noticed)
    is_('who is in the middle of a text exchange is reset', halves.closed_by_target() and not halves.noticed, halves.noticed)
    whole.out(whole.read(0, 8))
    holds('it goes on with what was agreed on anew: PDUs of 512 bytes', lambda: [len(whole.recv()[1]) for _ in range(8)] == [512] * 8)
    is_('nobody has logged in', t.stat('iscsi_conns_accepted') == 0, (accepted, t.stat('iscsi_conns_accepted')))
    is_('the log says what went on', bool(went_on(t)), t.log()[-2000:])
    is_('... and statistics', t.stat('iscsi_kept_busy') >= len(deafs), t.stat('iscsi_kept_busy'))
    # Again, in the middle of what is owed from the first time
    reads = [Reads(s, 0, 256, 8) for s in deafs]
    owers = [Owes(40 + i, keys, upto) for i, (keys, upto) in enumerate(
        ((keys, upto) for keys in DIGESTS for upto in (0, 5000, 12000, -1)))]
    time.sleep(1)
    time.sleep(QUICK)
    is_('killed twice in a row', k.kill() and k.kill())
    for o in owers:
        holds(o.what + ': it is asked for again, and written', o.goes_on)
        is_('... and nothing was noticed', not o.s.noticed and o.s.answers(), o.s.noticed)
    for s, r in zip(deafs, reads):
        try:
            r.take()
            is_('it goes on, or is reset: ' + name(s.keys), not s.noticed, s.noticed)
        except Gone:
            is_('it goes on, or is reset: ' + name(s.keys), True)
        except (AssertionError, KeyError) as e:
            is_('it goes on, or is reset: ' + name(s.keys), False, repr(e))
    is_('it ends with 0', t.stop() == 0, t.log()[-2000:])
    is_('no system call was refused', 'system call' not in t.log(), [x for x in t.log().splitlines() if 'system call' in x][:3])


def supply(s, itt, fill, head):
    """Brings all data that is asked for; the status, None: the session has ended."""
    try:
        while head[0] == 0x31:
            ttt, (at, left) = struct.unpack('>I', head[20:24])[0], struct.unpack('>II', head[40:48])
            s.out(s.data_out(itt, ttt, fill * left, 0, at, True))
            head = s.recv()[0]
        return head[3] if head[0] == 0x21 else None
    except (Gone, OSError):
        return None


def ended(bin, dir):
    t = Tgtd(bin, dir, ALL)
    t.configure()
    k, other = Kills(t), Session().ready()
    page = bytearray(other.run(b'\x1a\x08\x0a\0\xff', edtl=255)[1])
    page[0], page[4], page[9] = 0, page[4] & 0x3f, page[9] | 0x40
    is_('TASK ABORTED status is asked for', other.run(bytes([0x15, 0x10, 0, 0, len(page), 0]), out=bytes(page))[0] == 'good')
    register = lambda key, action: other.run(bytes([0x5f, action, 0x05, 0, 0, 0, 0, 0, 24, 0]), out=key)[0]
    for i, (what, end) in enumerate((
            ('CLEAR TASK SET', lambda s: other.manage(4) == 0),
            ('LOGICAL UNIT RESET', lambda s: other.manage(5) == 0),
            ('PREEMPT AND ABORT, and the reservation is given back',
             lambda s: [register(struct.pack('>QQ8x', *keys), action) for action, keys in
                        ((6, (0, 2)), (5, (2, 1)), (3, (2, 0)))] == ['good'] * 3))):
        s = Session().ready()
        if i == 2:
            is_('it registers', s.run(bytes([0x5f, 6, 0, 0, 0, 0, 0, 0, 24, 0]), out=struct.pack('>QQ8x', 0, 1))[0] == 'good')
        s.out(s.write(8192, 128))
        r2t = s.recv()[0]
        is_('a write is owed data', r2t[0] == 0x31)
        while other.run(b'\0')[0] != 'good':
            pass
        is_('... and ended by another: ' + what, end(s))
        while other.run(b'\0')[0] != 'good':
            pass
        is_('... who writes then', other.run(io(WRITE, 8192, 8), out=stamp(7, 1, i)) == ('good', b''))
        time.sleep(QUICK if i else REST)
        is_('killed, and another one serves', k.kill(), t.log()[-2000:])
        status = supply(s, s.itt - 1, b'A', r2t)
        is_('... the write that was ended is no success', status != 0, status)
        reader = Session().ready()
        is_('... and nothing of it is there', reader.run(io(READ, 8192, 8), SIZE) == ('good', stamp(7, 1, i)))
        other = reader
    is_('it ends with 0', t.stop() == 0, t.log()[-2000:])


def told(bin, dir):
    """Its answer waits behind data that nobody takes, and the attention itself pends no more."""
    t = Tgtd(bin, dir, ALL)
    t.configure(2)
    k, s = Kills(t), deaf('MaxRecvDataSegmentLength=4096')
    data = 0
    for _ in range(48):
        s.out(s.read(0, 512))
    time.sleep(1)
    s.out(s.command(b'', 0x80, lun=2))  # it has sent nothing to that unit yet: POWER ON
    itt = s.itt - 1
    time.sleep(1)
    while data < 3 << 20:  # some batches are over then, and a record was made anew
        head, more = s.recv()
        data += len(more)
        assert head[0] == 0x25, hex(head[0])
    time.sleep(1)
    is_('killed, and another one serves', k.kill(), t.log()[-2000:])
    try:
        while head[16:20] != struct.pack('>I', itt):
            head, more = s.recv()
        is_('a unit attention that was on its way is told', head[3] == 2 and more[4] & 15 == 6, head[3], more.hex())
    except (Gone, OSError):
        is_('a unit attention that was on its way is told, or the session ends', True)
    is_('it ends with 0', t.stop() == 0, t.log()[-2000:])


def skipped(bin, dir):
    """RFC 7143 11.5.1: its number is within the window, so it shall have no effect when it comes."""
    t = Tgtd(bin, dir, ALL)
    t.configure(1)
    k = Kills(t)
    old, new = b'o' * 512, b'n' * 512
    for ahead, which in ((0, 'the next one'), (1, 'one behind it')):
        s = in_step(Session().ready())
        is_('a block is written', s.run(struct.pack('>BxIxHx', 0x2a, 0, 1), out=old)[0] == 'good')
        first, s.cmdsn = s.cmdsn, s.cmdsn + ahead + 1
        is_('a command that has not come is aborted: ' + which, s.manage(1, itt=0x77, sn=first + ahead) == 0)
        is_('... killed, and another one serves', k.kill(), t.log()[-2000:])
        try:
            if ahead:
                s.out(s.command(b'', 0x80, cmdsn=first))
            s.out(s.write(0, 1, new, cmdsn=first + ahead, itt=0x77))
            data = s.run(struct.pack('>BxIxHx', 0x28, 0, 1), 512)
            is_('... it has no effect', data == ('good', old), data[0])
        except (Gone, OSError):
            data = Session().ready().run(struct.pack('>BxIxHx', 0x28, 0, 1), 512)
            is_('... it has no effect, since its session has ended', data == ('good', old), data[0])
    is_('it ends with 0', t.stop() == 0, t.log()[-2000:])


def late(bin, dir, late_so):
    """One loop knows that all go on, others not yet: who clears the task set there finds what is under way here."""
    os.environ['LATE_LOOP'] = waits = dir + '/waits'
    t = Tgtd(bin, dir, ALL, '--seccomp', 'off', preload=late_so)
    t.configure(4)
    one, owes, two = (in_step(Session().ready()) for _ in range(3))  # each has a loop
    owes.out(owes.write(8192, 128))
    r2t = owes.recv()[0]
    is_('a write is owed data', r2t[0] == 0x31)
    before = t.worker()
    open(waits, 'w').close()
    os.kill(before, signal.SIGKILL)
    for s in one, two:
        s.out(s.nop(0x4e4f51))
    told = select.select([one.sock, two.sock], [], [], 5)[0]
    print('# %u of the others may go on' % len(told))
    if not told:
        os.unlink(waits)
    s = two if two.sock in told else one
    while s.recv()[0][0] != 0x20:
        pass
    is_('its task set is cleared', s.manage(4) == 0)
    while s.run(b'\0')[0] != 'good':
        pass
    is_('... and it is written', s.run(io(WRITE, 8192, 8), out=stamp(7, 1, 1)) == ('good', b''))
    if told:
        os.unlink(waits)
    is_('another one serves', t.another(before), t.log()[-2000:])
    owes.sock.settimeout(3)
    try:
        status = supply(owes, owes.itt - 1, b'A', r2t)
    except AssertionError:
        status = None
    is_('the write that was ended is no success', status != 0, status)
    is_('... and nothing of it is there', Session().ready().run(io(READ, 8192, 8), SIZE) == ('good', stamp(7, 1, 1)))
    is_('it ends with 0', t.stop() == 0, t.log()[-2000:])


def speed(bin, dir, n, size='4k'):
    """Four sessions, each with 32 commands under way, as fast as it goes; another daemon each time."""
    kept = lost = again = 0
    for i in range(int(n)):
        where = '%s/%u' % (dir, i)
        os.mkdir(where)
        t = Tgtd(bin, where, ALL)
        t.configure(4)
        load = subprocess.Popen([bin + '/tgt-load', '--portal', '127.0.0.1:%d' % t.port, '--target', IQN, '--lun', '1,2,3,4',
                                 '--connections', '4', '--depth', '32', '--read', '50', '--bs', size, '--range', '4m',
                                 '--verify', '--warmup', '0', '--time', '5'], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True)
        wait(lambda: t.stat('iscsi_commands') > 500)
        time.sleep(random.random() / 5)
        before = t.worker()
        os.kill(before, signal.SIGKILL)
        serves = t.another(before)
        on, ended = map(int, re.search(r'(\d+) sessions with \d+ connections go on, (\d+) have ended', t.log()).groups())
        try:
            out, _ = load.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            load.kill()
            out, _ = load.communicate()
            out += ' it hangs'
        kept, lost, again = kept + on, lost + ended, again + bool(went_on(t))
        ok = serves and load.returncode == (1 if ended else 0) and not re.search(r' [1-9]\d* wrong', out)
        ok &= 'hangs' not in out and (not ended or '%u connections lost' % ended in out)
        if not ok or i == int(n) - 1:
            is_('killed under a load of four sessions (%u times): all that was read was right' % (i + 1), ok, out[-600:])
        for x in t.log().splitlines():
            if 'of the process before ends' in x:
                print('# ' + x)
        is_('it ends with 0', t.stop() == 0, t.log()[-2000:])
    is_('commands of %s: of %u sessions %u went on, %u did not' % (size, kept + lost, kept, lost), kept >= 3 * lost)
    print('# in %u of %s kills something was under way' % (again, n))


def framed(s, p):
    """Its bytes, with the digests agreed on."""
    sent, s.send = [], lambda data: sent.append(data)
    s.out(p)
    del s.send
    return b''.join(sent)


def hostile(bin, dir):
    """Each has something under way when the worker is killed, and goes on in a way that is against the protocol."""
    t = Tgtd(bin, dir, ALL)
    t.configure()
    k = Kills(t)
    good = Again(0, session(()).ready(), 3, depth=16, again=True)
    good.s.noticed.clear()
    good.start()

    def bad_data(s):
        s.send(b'\xff' * len(s.rest))  # (data is what it is)
        s.send(os.urandom(480))

    def same_tag(s):
        s.send(s.rest)
        for _ in range(3):
            s.out(s.read(0, 2048, itt=s.itt - 1))

    def far_number(s):
        s.send(s.rest)
        s.out(s.read(0, 8, cmdsn=s.cmdsn + 5000))
        s.out(s.read(0, 8, cmdsn=max(s.cmdsn - 40, 0)))
        s.out(pdu(0x05, 0x80, 1, s.itt - 1, struct.pack('>IIIIII', 0x1234, 0, s.statsn, 0, 0, 0), b'x' * 512))

    def gone(s):
        s.close(reset=True)

    def login_again(s):
        s.send(s.rest)
        s.send(s.login_pdu(['InitiatorName=' + s.name, 'TargetName=' + Peer.target]))

    def long(s):
        s.send(s.rest)
        s.send(pdu(0x01, 0xa1, 1, 77, struct.pack('>III', 512, s.cmdsn, 0) + bytes(16), length=0xffffff))

    def owes(s, *flags):
        """It had been asked for 32 KiB, and was in the middle of them."""
        s.send(s.rest)
        for i, final in enumerate(flags):
            s.out(s.data_out(s.itt - 1, s.ttt, os.urandom(4096), i * 77, i * 1000 & 0xfffc, final))

    def never_final(s):
        owes(s, *[False] * 64)

    def twice_final(s):
        owes(s, True, True, False, True)

    def made_up(s):
        s.send(s.rest)
        for ttt in (s.ttt ^ 8, s.ttt ^ 1, NONE, 0):
            s.out(s.data_out(s.itt - 1, ttt, bytes(4096), 0, 0, True))

    def aborts(s):
        owes(s, False)
        s.out(pdu(0x42, 0x81, 1, s.itt, struct.pack('>IIII', s.itt - 1, s.cmdsn, s.statsn, s.cmdsn - 1)))
        owes(s, True)

    ways = [bad_data, same_tag, far_number, gone, login_again, long, never_final, twice_final, made_up, aborts]
    owing = (never_final, twice_final, made_up, aborts)
    for keys in DIGESTS[::3]:
        peers = [Session(*keys).ready() for _ in ways]
        calm = in_step(Session().ready())
        for s in peers[-len(owing):]:
            s.out(s.write(8192, 64))
            s.ttt = struct.unpack('>I', s.recv()[0][20:24])[0]
            p = framed(s, s.data_out(s.itt - 1, s.ttt, bytes(8192), 0, 0, False))
            s.send(p[:3000])
            s.rest = p[3000:]
        for s in peers[:-len(owing)]:
            for _ in range(5):
                s.out(s.read(0, 128))
            p = framed(s, s.write(4096, 8, bytes(4096)))
            s.send(p[:1000])
            s.rest = p[1000:]
        threads = [threading.Thread(target=lambda w=w, s=s: quietly(w, s)) for w, s in zip(ways, peers)]
        killed = []
        killer = threading.Thread(target=lambda: killed.append(k.kill()))
        killer.start()
        for x in threads:
            x.start()
        for x in threads + [killer]:
            x.join()
        is_('killed, and another one serves: ' + name(keys), killed == [True], t.log()[-2000:])
        time.sleep(0.5)
        is_('... who was at rest goes on', goes_on(calm), calm.noticed)
        is_('... and others may log in', Session().ready().answers())
    finish([good])
    is_('a session that does nothing wrong: nothing acknowledged is lost (%u commands, %u logins)' % (good.done, good.logins),
        not good.errors, good.errors)
    log = t.log()
    is_('nobody died of that', log.count('killed by signal') == 2 and 'signal 6' not in log and 'signal 11' not in log,
        [x for x in log.splitlines() if 'signal' in x])
    is_('it ends with 0', t.stop() == 0, t.log()[-2000:])


def quietly(way, s):
    try:
        way(s)
    except (Gone, OSError):
        pass


if __name__ == '__main__':
    {'load': load, 'owed': owed, 'cut': cut, 'speed': speed, 'ended': ended, 'told': told, 'skipped': skipped,
     'late': late, 'hostile': hostile}[sys.argv[1]](*sys.argv[2:])
    sys.exit(is_.failures > 0)
