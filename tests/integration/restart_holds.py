#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What a session holds of a unit is in force before any session's first command after a planned restart.

    restart_holds.py TGTD_BIN DIR RESTARTS

RESERVE of SPC-2 keeps everybody else out, whoever goes on first and whoever logs in meanwhile; and what one session does to
a unit, all others are told of. Prints a TAP line for each thing that must hold.
"""
import collections, socket, sys, threading, time

from planned_restart import Session, Tgtd, READ, io
from iscsi_peer import Gone, is_

MODE_SELECT = bytes([0x15, 0x10, 0, 0, 24, 0])
TOLD = '06/2a/01'


def mode_page(s):
    """The caching mode page, as MODE SELECT takes it."""
    status, page = s.run(b'\x1a\x08\x08\0\xff', 24)
    assert status == 'good' and len(page) == 24, (status, page)
    return bytearray(4) + bytearray([8]) + page[5:]


class Reader(threading.Thread):
    """Reads what another session has reserved, several at a time. Each must be refused."""

    def __init__(self, session, depth=4):
        super().__init__(daemon=True)
        self.s, self.depth = session, depth
        self.got = collections.Counter()
        self.stop = False
        self.wrong = None

    def run(self):
        under_way = 0
        try:
            while not self.stop or under_way:
                while under_way < self.depth and not self.stop and self.s.may_send():
                    self.s.out(self.s.read(0, 1, lun=2))
                    under_way += 1
                head, data = self.s.recv()
                if head[0] == 0x21 or head[0] == 0x25 and head[1] & 1:
                    under_way -= 1
                    self.got[head[3] if head[3] != 2 else data[2:16].hex()] += 1
        except (Gone, AssertionError, OSError) as e:
            self.wrong = repr(e)


class Comer(threading.Thread):
    """Logs in again and again, and reads."""

    def __init__(self):
        super().__init__(daemon=True)
        self.passed = self.refused = 0
        self.stop = False

    def run(self):
        while not self.stop:
            try:
                s = Session()
                for _ in range(3):  # after what a new one is told
                    told = s.run(io(READ, 0, 1), 512, lun=2)[0]
                    self.passed += told == 'good'
                    self.refused += told == 'status 18'
                s.close()
            except (Gone, AssertionError, OSError):
                time.sleep(0.002)


def until(condition):
    end = time.monotonic() + 60
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)


def reserved(t, restarts):
    readers = [Reader(Session().ready()) for _ in range(12)]
    holder = Session().ready()  # the last one that came
    for s in [r.s for r in readers] + [holder]:
        s.run(b'\0', lun=2)
        s.noticed.clear()
    is_('RESERVE of SPC-2, of LUN 2', holder.run(b'\x16', lun=2)[0] == 'good')
    comer = Comer()
    for th in readers + [comer]:
        th.start()
    done = 0
    for _ in range(restarts):
        before = [sum(r.got.values()) for r in readers]
        done += t.restart()[0] == 0
        until(lambda: all(r.wrong or sum(r.got.values()) > n + 50 for r, n in zip(readers, before)))
        if holder.run(io(READ, 0, 1), 512, lun=2)[0] != 'good':
            break
    is_('%u planned restarts, over which the holder reads' % restarts, done == restarts, done, t.log()[-2000:])
    for th in readers + [comer]:
        th.stop = True
    for th in readers + [comer]:
        th.join(60)
    is_('no reader has ended', not any(r.wrong for r in readers), [r.wrong for r in readers if r.wrong])
    got = sum((r.got for r in readers), collections.Counter())
    is_('RESERVE keeps all others out, each time: %u of %u refused' % (got[0x18], sum(got.values())),
        got and set(got) == {0x18}, got)
    is_('... and who logs in: %u refused' % comer.refused, not comer.passed and comer.refused, comer.passed)
    is_('it is released', holder.run(b'\x17', lun=2)[0] == 'good')


def told(t, restarts):
    """One session changes a mode page with the first command that is read after a restart."""
    writers = [Session().ready() for _ in range(3)]
    others = [Session().ready() for _ in range(9)]
    changer = writers[0]
    for s in others + writers:
        while s.run(b'\0')[0] != 'good':
            pass
    missed, twice, refused, page = 0, 0, 0, mode_page(changer)
    for i in range(restarts):
        before = t.worker()
        asked = threading.Thread(target=t.restart)
        asked.start()
        until(lambda: t.log().count('leaving to the next worker') > i + t.before)
        page[6] ^= 4  # WCE
        changer.out(changer.command(MODE_SELECT, 0xa1, 24, bytes(page)))
        refused += changer.wait_status(changer.itt - 1)[1] != 0
        asked.join(60)
        until(lambda: t.worker() != before)
        for s in others:
            missed += s.run(b'\0')[0] != TOLD
            twice += s.run(b'\0')[0] != 'good'
    is_('a mode page can be changed', not refused, refused)
    is_('a mode page that is changed with the first command: all others are told', not missed, missed, restarts * len(others))
    is_('... once', not twice, twice)


def main(bin, dir, restarts):
    t = Tgtd(bin, dir)
    t.configure(2)
    for lun in (1, 2):  # sessions of one unit on several threads
        t.must('logicalunit', 'update', '--tid', 1, '--lun', lun, '--params', 'threads=4')
    reserved(t, int(restarts))
    t.before = t.log().count('leaving to the next worker')
    told(t, int(restarts))
    is_('it ends with 0', t.stop() == 0, t.log()[-2000:])


if __name__ == '__main__':
    main(*sys.argv[1:])
    sys.exit(is_.failures > 0)
