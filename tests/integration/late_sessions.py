#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""A store is late when a worker was killed, and sessions that went on ask for it (tests/preload/late_open.c): their commands
wait, and nothing is noticed. One that is later than that is becoming ready meanwhile, as for anybody.

    late_sessions.py TGTD_BIN DIR LATE_SO

Prints a TAP line for each thing that must hold.
"""
import os, select, struct, sys, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
from planned_restart import IQN, SIZE, Session, Tgtd, io, stamp, READ, WRITE
from quiet_sessions import QUICK, REST, Kills, goes_on, in_step, wait
from iscsi_peer import Gone, is_

ABORT_TASK = 1
AWAIT = 5  # seconds: late.c
TUR = b'\0'


class Late:
    def __init__(self, bin, dir, so):
        os.environ['LATE_OPEN'] = self.hangs = dir + '/hangs'
        self.t = t = Tgtd(bin, dir, '--seccomp', 'off', preload=so)
        t.must('target', 'new', '--tid', 1, '--targetname', IQN)
        t.must('target', 'bind', '--tid', 1, '-I', 'ALL')
        for lun, disk in (1, 'late'), (2, 'disk'), (3, 'late-too'):
            with open('%s/%s' % (dir, disk), 'wb') as f:
                f.truncate(8 << 20)
            t.must('logicalunit', 'new', '--tid', 1, '--lun', lun, '-b', '%s/%s' % (dir, disk))
        self.kills = Kills(t)

    def kill(self, *calm):
        """The worker; sessions are at rest, and both stores that are late hang when they are opened."""
        for s in calm:
            in_step(s)
        time.sleep(REST)
        open(self.hangs, 'w').close()
        is_('killed, and another one serves', self.kills.kill(), self.t.log()[-2000:])

    def comes(self):
        os.unlink(self.hangs)

    def ready(self):
        return wait(lambda: self.t.must('target', 'show').count('Late:') == 0)


def ready(luns=(1, 2, 3)):
    """A session that no unit has anything to tell."""
    s = Session()
    for lun in luns:
        while s.run(TUR, lun=lun)[0] != 'good':
            pass
    return in_step(s)


def begin(s, cdb=TUR, edtl=0, lun=1):
    """A command is sent; its tag and number."""
    c = s.command(bytes(cdb), 0x80 | (0x40 if edtl else 0) | 1, edtl, lun=lun)
    s.out(c)
    return struct.unpack('>I', c[16:20])[0], struct.unpack('>I', c[24:28])[0]


def silent(s, seconds=0.3):
    return not select.select([s.sock], [], [], seconds)[0]


def answer(s, itt):
    """Sense, status or data of that command, or its end."""
    whole = b''
    try:
        while True:
            head, data = s.recv()
            if struct.unpack('>I', head[16:20])[0] != itt:
                continue
            whole += data if head[0] == 0x25 else b''
            if head[0] == 0x21 and head[3] == 2:
                sense = data[2:]
                return '%02x/%02x/%02x' % (sense[2] & 15, sense[12], sense[13])
            if head[0] == 0x21 or head[1] & 1:
                return whole or ('status %02x' % head[3] if head[3] else 'good')
    except (Gone, AssertionError, OSError) as e:
        return repr(e)


def pages(s):
    """What INQUIRY says: standard data, and the pages that follow from the store."""
    return [s.run(bytes([0x12, page > 0, page, 2, 0, 0]), 512) for page in (0, 0x80, 0x86, 0x8f, 0xb0, 0xb1, 0xb2)]


def in_time(l):
    calm, reader, leaver, aborts, rests, scans = (ready() for _ in range(6))
    before = pages(calm)
    is_('a write', calm.run(io(WRITE, 64, 8), out=stamp(1, 8, 1)) == ('good', b''))
    l.kill(calm, reader, leaver, aborts, rests, scans)
    asked = begin(calm)
    read = begin(reader, io(READ, 64, 8), SIZE)
    begin(leaver)
    held = begin(aborts)
    is_('a unit whose store is late does not answer', silent(calm) and silent(reader))
    is_('... INQUIRY is answered at once', scans.run(b'\x12\0\0\2\0\0', 512) == before[0])
    scan = begin(scans, b'\x12\1\xb2\2\0\0', 512)
    is_('... but not what follows from the store', silent(scans))
    is_('... a ping is answered', calm.answers())
    is_('... and so is another unit', calm.run(TUR, lun=2)[0] == 'good' and reader.run(io(READ, 0, 8), SIZE, lun=2)[0] == 'good')
    is_('... ABORT TASK ends a command that waits', aborts.manage(ABORT_TASK, itt=held[0], sn=held[1]) == 0)
    is_('... which is not answered then', silent(aborts, 0.1))
    leaver.logout()
    is_('... a session with one logs out', True)
    new = Session()
    fresh = begin(new)
    is_('... one that has just come waits, too', silent(new))
    newer = Session()
    page = begin(newer, b'\x12\1\xb0\2\0\0', 512)
    is_('... as it does for what follows from the store', silent(newer))
    l.comes()
    is_('the store comes: TEST UNIT READY is answered', answer(calm, asked[0]) == 'good', calm.noticed)
    is_('... and a read', answer(reader, read[0]) == stamp(1, 8, 1), reader.noticed)
    is_('... and INQUIRY', answer(scans, scan[0]) == before[6][1], scans.noticed)
    is_('... to who has just come, too', answer(newer, page[0]) == before[4][1] and pages(newer) == before)
    for s in calm, reader, aborts, rests, scans:
        is_('... nobody has noticed anything', goes_on(s) and goes_on(s, lun=3), s.noticed)
    is_('... POWER ON is for who has just come', answer(new, fresh[0]).startswith('06/29/') and new.run(TUR)[0] == 'good')
    is_('... and the log says of no NOT READY', 'NOT READY' not in l.t.log(), l.t.log()[-2000:])
    for s in calm, reader, aborts, rests, scans, new, newer:
        s.logout()


def another_size(l, dir):
    knows, asks = ready(), ready()
    l.kill(knows, asks)
    asked = begin(asks)
    os.truncate(dir + '/late', 16 << 20)
    l.comes()
    is_('a store comes that has another size: who asks is told', answer(asks, asked[0]) == '06/2a/09')
    is_('... once', asks.run(TUR)[0] == 'good')
    is_('... and so is who was at rest', [knows.run(TUR)[0] for _ in range(2)] == ['06/2a/09', 'good'])
    capacity = int.from_bytes(asks.run(b'\x25', 8)[1][:4], 'big')
    is_('... which is that', capacity == (16 << 20) // 512 - 1, capacity)
    knows.logout()
    asks.logout()


def too_late(l):
    asks, rests = ready(), ready()
    before = pages(asks)
    l.kill(asks, rests)
    began = time.monotonic()
    told = answer(asks, begin(asks)[0])
    took = time.monotonic() - began
    is_('a store hangs: its unit is becoming ready', told == '02/04/01', told)
    is_('... after %.1f s' % took, AWAIT - 3 < took < AWAIT + 15)
    is_('... which the log says', 'target 1 LUN 1 is NOT READY: ' in l.t.log())
    began = time.monotonic()
    told = rests.run(TUR)[0]
    is_('... who asks then is told at once', told == '02/04/01' and time.monotonic() - began < 3, told)
    rc, out = l.t.adm('logicalunit', 'update', '--tid', 1, '--lun', 1, '--params', 'write_cache=off')
    is_('... its cache is off, and what is in it is not said to be written', rc != 0, rc, out)
    is_('... which the log says', 'could not be written: its store is not open' in l.t.log())
    l.comes()
    is_('... it comes', l.ready())
    for s in asks, rests:
        told = [s.run(TUR)[0] for _ in range(6)]
        is_('... and that is told: the medium may have changed, and what INQUIRY says',
            sorted(told) == ['06/28/00', '06/2a/01', '06/2a/09', '06/3f/03', 'good', 'good'], told)
        is_('... which is what it was', pages(s) == before)
        s.logout()


def no_memory(l, thread):
    """That thread gets none for what it needs to take in the store."""
    none = l.hangs + '.no_memory'
    asks, rests, waits = ready(), ready(), ready()
    l.kill(asks, rests, waits)
    asked = begin(asks)
    with open(none, 'w') as f:
        f.write(thread)
    l.comes()
    is_('a store comes, and %s has no memory to take it in: its unit waits' % thread, silent(asks, 1))
    is_('... which the log says', 'LUN 1: its store answers, and cannot be taken in yet' in l.t.log())
    os.unlink(none)
    told = answer(asks, asked[0])
    is_('... for memory', told == 'good', told, l.t.log()[-2000:])
    for s in asks, rests:
        is_('... nobody has noticed anything', goes_on(s) and goes_on(s, lun=3), s.noticed)
    is_('... and it is late no more', l.ready(), l.t.must('target', 'show'))
    if is_.failures:
        return
    l.kill(waits, asks, rests)
    with open(none, 'w') as f:
        f.write(thread)
    l.comes()
    told = answer(waits, begin(waits)[0])
    is_('no memory for longer: its unit is becoming ready', told == '02/04/01', told)
    os.unlink(none)
    is_('... and is ready when there is some', l.ready(), l.t.log()[-2000:])
    told = [waits.run(TUR)[0] for _ in range(4)]
    is_('... as the store that was there', told == ['06/28/00', '06/2a/09', '06/3f/03', 'good'], told)
    for s in asks, rests, waits:
        s.logout()


def many(l):
    """Units of one target come back one after the other."""
    n, rests = 8, ready()
    l.t.must('target', 'new', '--tid', 2, '--targetname', IQN + '.many')
    for lun in range(1, n + 1):
        disk = '%s/late-%d' % (l.t.dir, lun)
        with open(disk, 'wb') as f:
            f.truncate(1 << 20)
        l.t.must('logicalunit', 'new', '--tid', 2, '--lun', lun, '-b', disk)
    time.sleep(max(0, l.kills.since + QUICK - time.monotonic()))
    began = time.monotonic()
    l.kill(rests)
    took = time.monotonic() - began
    is_('%u stores of one target hang: all others wait for %.1f s' % (n, took), took < n)
    is_('... and are served', rests.run(TUR, lun=2)[0] == 'good' and not rests.noticed, rests.noticed)
    l.comes()
    is_('... they come', l.ready() and goes_on(rests) and goes_on(rests, lun=3), rests.noticed)
    l.t.must('target', 'delete', '--tid', 2)
    rests.logout()


def other_ends(l):
    """What else may happen to commands that wait."""
    asks, rests = ready(), ready()
    l.kill(asks, rests)
    asked, other = begin(asks), begin(rests, lun=3)
    is_('both wait', silent(asks) and silent(rests))
    l.t.must('logicalunit', 'delete', '--tid', 1, '--lun', 3)
    is_('a unit is deleted whose commands wait', rests.answers() and rests.run(TUR, lun=2)[0] in ('good', '06/3f/0e'))
    rc, out = l.t.restart()
    told = answer(asks, asked[0])  # (or first that LUNs have changed)
    is_('a planned restart does not wait: who waits is told', told in ('02/04/01', '06/3f/0e') and rc == 0, told, out)
    l.kills.since = time.monotonic()
    l.comes()
    is_('... and goes on', asks.answers() and l.ready())
    asks.logout()
    rests.logout()


def main(bin, dir, so):
    l = Late(bin, dir, so)
    in_time(l)
    another_size(l, dir)
    too_late(l)
    for thread in 'tgtd', 'tgtd-helper':
        no_memory(l, thread)
    many(l)
    other_ends(l)
    is_('it ends with 0', l.t.stop() == 0, l.t.log()[-2000:])


main(*sys.argv[1:])
sys.exit(is_.failures > 0)
