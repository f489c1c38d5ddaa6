#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What others wait for at a planned restart when one tenant's sessions do not come to rest.

    greedy_restart.py silent TGTD_BIN DIR   their data does not come, or their answers are not taken
    greedy_restart.py slow TGTD_BIN DIR     their data comes bit by bit, so that there is always hope
    greedy_restart.py flood TGTD_BIN DIR    ... beside pings that keep the thread busy
    greedy_restart.py late TGTD_BIN DIR     they rest at first, and not when they are asked once more

A session of somebody else reads meanwhile, of another unit. It must not notice more than a moment in which nothing is
answered. Prints TAP lines.
"""
import os, select, struct, sys, threading, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
sys.dont_write_bytecode = True
from iscsi_peer import NONE, Gone, Peer, crc32c, is_, pdu
from planned_restart import IQN, Session, Tgtd

GREEDY = IQN + '.greedy'
KEYS = ('FirstBurstLength=65536', 'MaxBurstLength=262144')


class Reader(threading.Thread):
    """One read after the other: the longest that one took, and all that was noticed."""

    def __init__(self):
        super().__init__(daemon=True)
        Peer.target = IQN
        self.s = Session().ready()
        self.s.noticed.clear()
        self.over, self.longest, self.n, self.wrong = False, 0, 0, None

    def run(self):
        try:
            while not self.over:
                began = time.monotonic()
                self.s.out(self.s.read(0, 8))
                _, status = self.s.wait_status(self.s.itt - 1)
                assert status == 0, status
                self.longest = max(self.longest, time.monotonic() - began)
                self.n += 1
                time.sleep(0.002)
        except (Gone, AssertionError, OSError) as e:
            self.wrong = repr(e)


def greedy(*keys, rcvbuf=0):
    Peer.target = GREEDY
    s = Session.__new__(Session)
    Peer.__init__(s, rcvbuf=rcvbuf, timeout=60)
    s.noticed, s.number, s.max_cmdsn, s.next_sn, s.keys = [], Peer.count, None, None, keys
    s.login(*KEYS, *keys)
    s.next_sn = s.statsn
    return s.ready()


def owes(s, blocks=2048):
    """A write that is asked for its data."""
    s.out(s.write(0, blocks))
    while True:
        head, _ = s.recv()
        if head[0] == 0x31:
            break
    s.itt_owed, s.ttt, s.sn, s.off = s.itt - 1, struct.unpack('>I', head[20:24])[0], 0, 0
    return s


def a_bit(s):
    """512 bytes of it, as they go over the wire."""
    p = s.data_out(s.itt_owed, s.ttt, bytes(512), s.sn, s.off, final=False)
    s.sn, s.off = s.sn + 1, s.off + 512
    return p + (crc32c(p[48:]) if s.data_digest else b'')


class Slow(threading.Thread):
    """Sends a bit of all that is owed, again and again. With @flood pings in between, whose answers it takes."""

    def __init__(self, sessions, flood=False, every=0.4):
        super().__init__(daemon=True)
        self.left, self.every, self.over = list(sessions), every, False
        self.queue = {s: b'' for s in sessions}
        self.pings = b''
        if flood:
            s = sessions[0]
            p = pdu(0x40, 0x80, 0, 0x99, struct.pack('>III', NONE, s.cmdsn, s.statsn), bytes(8192))
            self.pings = (p + (crc32c(p[48:]) if s.data_digest else b'')) * 32
        for s in sessions:
            s.sock.setblocking(False)

    def move(self, s, reads, writes):
        try:
            if s.sock in reads and not s.sock.recv(1 << 20):
                return False
            if s.sock in writes:
                self.queue[s] = self.queue[s] or self.pings
                self.queue[s] = self.queue[s][s.sock.send(self.queue[s]):]
        except BlockingIOError:
            pass
        except OSError:
            return False
        return True

    def run(self):
        next_bit = time.monotonic()
        while not self.over and self.left:
            if time.monotonic() >= next_bit:
                next_bit = time.monotonic() + self.every
                for s in self.left:
                    self.queue[s] += a_bit(s)
            reads, writes, _ = select.select([s.sock for s in self.left],
                                             [s.sock for s in self.left if self.queue[s] or self.pings], [], 0.05)
            self.left = [s for s in self.left if self.move(s, reads, writes)]


def start(bin, dir):
    t = Tgtd(bin, dir)
    t.configure()
    t.must('target', 'new', '--tid', 2, '--targetname', GREEDY)
    t.must('target', 'bind', '--tid', 2, '-I', 'ALL')
    with open(dir + '/disk-greedy', 'wb') as f:
        f.truncate(8 << 20)
    t.must('logicalunit', 'new', '--tid', 2, '--lun', 1, '-b', dir + '/disk-greedy')
    return t, Reader()


def restart_beside(t, reader, most, meanwhile=None):
    if '/asan/' in t.bin or '/tsan/' in t.bin:  # many times the work, beside other tests
        most *= 2
    reader.start()
    time.sleep(0.5)
    began = time.monotonic()
    if meanwhile:
        threading.Thread(target=meanwhile, daemon=True).start()
    rc, out = t.restart()
    took = time.monotonic() - began
    time.sleep(0.5)
    reader.over = True
    reader.join(90)
    print('# it took %.1f s; the longest of %u reads %.2f s' % (took, reader.n, reader.longest))
    is_('a restart', rc == 0, out, t.log()[-2000:])
    is_('who has nothing to do with it waits for %.1f s at most' % most, reader.longest < most, reader.longest,
        [x for x in t.log().splitlines() if 'restart' in x or 'ends' in x][-5:])
    is_('... and has noticed nothing', not reader.wrong and not reader.s.noticed, reader.wrong, reader.s.noticed)
    is_('... on the connection that it had', reader.s.answers())
    return took


def over(t):
    is_('it ends with 0', t.stop() == 0, t.log()[-2000:])


def silent(bin, dir):
    t, reader = start(bin, dir)
    many = [owes(greedy()) for _ in range(3)]
    held, text, half, deaf = greedy(), greedy(), greedy(), greedy(rcvbuf=4096)
    for i in range(20):
        held.out(held.command(bytes(6), 0x81, cmdsn=held.cmdsn + 1 + i, itt=900 + i))
    text.out(pdu(0x44, 0x40, 0, 0x51, struct.pack('>III', NONE, text.cmdsn, text.statsn), b'X-half='))
    half.send(half.write(8, 8, b'd' * 4096)[:2000])
    for _ in range(100):
        deaf.out(deaf.read(0, 1024))
    took = restart_beside(t, reader, 1.5)
    is_('they get two seconds', took > 1.5, took)
    is_('... and end', all(s.closed_by_target() for s in many + [held, half]))
    over(t)


def slow(bin, dir):
    t, reader = start(bin, dir)
    many = [owes(greedy()) for _ in range(4)]
    work = Slow(many)
    work.start()
    restart_beside(t, reader, 1.5)
    is_('they end', not wait_for(work))
    over(t)


def flood(bin, dir):
    t, reader = start(bin, dir)
    many = [owes(greedy('DataDigest=CRC32C')) for _ in range(24)]
    work = Slow(many, flood=True)
    work.start()
    time.sleep(1)
    took = restart_beside(t, reader, 4)
    is_('it does not take long', took < 20, took)
    work.over = True
    over(t)


def wait_for(work):
    work.join(20)
    work.over = True
    return work.left


def late(bin, dir):
    """One does not rest at first. When others are served again, more of its kind begin."""
    t, reader = start(bin, dir)
    first, more = owes(greedy()), [greedy() for _ in range(4)]
    work = [Slow([first])]
    work[0].start()

    def begin():
        """As soon as nothing has been answered for a while: then it is asked once more."""
        time.sleep(1.5)
        for s in more:
            owes(s)
        work.append(Slow(more))
        work[1].start()

    took = restart_beside(t, reader, 6, begin)
    is_('it does not take long', took < 20, took)
    is_('they end', not any(map(wait_for, work)))
    over(t)


if __name__ == '__main__':
    try:
        globals()[sys.argv[1]](*sys.argv[2:])
    except (Gone, AssertionError, OSError, struct.error) as e:
        import traceback
        traceback.print_exc(file=sys.stdout)
        is_('it comes to its end', False, type(e).__name__, e)
    sys.exit(is_.failures > 0)
