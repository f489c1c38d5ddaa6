#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Initiators that do what none should, against a running tgtd, and one good initiator after each.

    bad_peers.py PORT TARGET ROUNDS DAEMON-PID GROWTH-KIB

The target has LUN 1, of 16 MiB or more in blocks of 512 bytes. Prints TAP lines. A bad peer may lose its
connection, or be refused; others must be served at once, and memory must not grow from round to round.
"""
import os, random, socket, struct, sys, threading, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
sys.dont_write_bytecode = True
from iscsi_peer import NONE, Gone, Peer, crc32c, pdu

PORT, TARGET, ROUNDS, PID, GROWTH = (int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
Peer.address, Peer.target = ('127.0.0.1', PORT), TARGET
random.seed(7143)

def good():
    """Somebody else is served: writes, reads back, leaves."""
    p = Peer().login()
    for _ in range(3):  # the unit attention of a new session
        p.out(p.command(b'', 0x80))
        if p.wait_status(p.itt - 1)[1] == 0:
            break
    data = os.urandom(4096)
    p.out(p.write(8, 8, data))
    assert p.wait_status(p.itt - 1)[1] == 0
    p.out(p.read(8, 8))
    assert p.wait_status(p.itt - 1) == (data, 0), 'what was written is read'
    p.logout()


def ready(*keys, **more):
    """A session whose unit attentions are gone."""
    p = Peer(**more).login(*keys)
    for _ in range(3):
        p.out(p.command(b'', 0x80))
        if p.wait_status(p.itt - 1)[1] == 0:
            return p
    raise AssertionError('LUN 1 is not ready')


# ---- what bad peers do ------------------------------------------------------------------------------------

def half_open():
    """Nothing, a part of a header, a part of the keys, one step of two: then silence, or gone."""
    peers = []
    for i in range(8):
        p = Peer()
        login = p.login_pdu(['InitiatorName=' + p.name, 'TargetName=' + TARGET])
        peers.append(p)
        if i % 4:
            p.send([b'', login[:20], login[:60], p.login_pdu(['InitiatorName=' + p.name, 'TargetName=' + TARGET], flags=0)][i % 4])
    good()
    for p in peers[:4]:
        p.close()
    for p in peers[4:]:
        assert p.closed_by_target(), 'a login that does not end is ended'
        p.close()


def slow_readers():
    """Large reads that nobody takes."""
    peers = []
    for i in range(6):
        p = ready(rcvbuf=4096)
        for _ in range(40):
            p.out(p.read(0, 2048))
        peers.append(p)
    good()
    time.sleep(0.5)
    good()
    for i, p in enumerate(peers):
        p.close(reset=i % 2)


def session_storm():
    """300 sessions come and go, ten at a time."""
    failed = []

    def some():
        try:
            for i in range(30):
                p = Peer().login()
                if i % 3 == 0:
                    p.close(reset=i % 2)
                else:
                    p.logout()
        except Exception as e:
            failed.append(e)

    threads = [threading.Thread(target=some) for _ in range(10)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed, failed[0]


def reinstatement():
    """One initiator port logs in again and again: the old session ends each time (RFC 7143, 6.3.5)."""
    old = []
    for _ in range(20):
        p = Peer().login(isid=b'\x80\1\2\3\4\5', name='iqn.2026-11.org.tgtd.test:again')
        p.out(p.read(0, 2048))
        old.append(p)
    for p in old[:-1]:
        assert p.closed_by_target(), 'the old session has ended'
        p.close()
    assert old[-1].answers()
    old[-1].close()


def garbage():
    """Random bytes, other protocols, flipped bits: before login and after it."""
    for i in range(60):
        p = Peer()
        login = bytearray(p.login_pdu(['InitiatorName=' + p.name, 'TargetName=' + TARGET, 'MaxRecvDataSegmentLength=8192']))
        try:
            if i % 4 == 0:
                p.send(os.urandom(random.randrange(1, 5000)))
            elif i % 4 == 1:
                p.send(random.choice([b'GET / HTTP/1.1\r\nHost: a\r\n\r\n' * 9, b'\x16\3\1' + bytes(300), bytes(5000), b'\xff' * 5000]))
            elif i % 4 == 2:
                for _ in range(random.randrange(1, 8)):
                    login[random.randrange(len(login))] ^= 1 << random.randrange(8)
                p.send(login)
            else:
                p.login()
                p.send(os.urandom(random.randrange(48, 5000)))
                p.send(p.nop(1) * 3)
        except Gone:
            pass
        p.close(reset=i % 3 == 0)


def flipped_commands():
    """Sessions in full feature phase whose PDUs are right but for a few bits."""
    for i in range(60):
        p = Peer().login()
        try:
            for q in (p.read(0, 64), p.write(4096, 8, bytes(4096)), p.nop(9), p.data_out(1, 2, bytes(512))):
                q = bytearray(q)
                # no length grows beyond what follows: such a peer just waits
                for _ in range(random.randrange(1, 5)):
                    q[random.choice([0, 1, 2, 3] + list(range(8, 48)))] ^= 1 << random.randrange(8)
                p.send(q)
        except Gone:
            pass
        p.close(reset=i % 2)


def reset_in_data_out():
    """TCP RST in the middle of immediate data, of an R2T's data, and with an R2T unanswered."""
    for i in range(24):
        p = ready()
        if i % 3 == 0:
            p.send(p.write(2048, 16, bytes(8192))[:48 + random.randrange(8192)])
        else:
            p.out(p.write(2048, 512))
            while True:
                head, _ = p.recv()
                if head[0] == 0x31:
                    break
            if i % 3 == 1:
                ttt = struct.unpack('>I', head[20:24])[0]
                q = p.data_out(p.itt - 1, ttt, bytes(8192), final=False)
                p.send(q + p.data_out(p.itt - 1, ttt, bytes(8192), sn=1, offset=8192)[:random.randrange(8000)])
        p.close(reset=True)


def wrong_digests():
    """A header digest that is wrong ends the connection; a data digest loses the data at least."""
    for _ in range(5):
        p = ready('HeaderDigest=CRC32C', 'DataDigest=CRC32C')
        assert p.header_digest and p.data_digest, 'digests are agreed on'
        assert p.answers()
        p.send(p.nop(5) + b'\1\2\3\4')
        assert p.closed_by_target(), 'header digest'
        p.close()
        p = ready('DataDigest=CRC32C')
        p.send(p.write(16, 8, os.urandom(4096)) + b'\1\2\3\4')
        itt = p.itt - 1
        try:
            assert p.wait_status(itt)[1] != 0, 'data digest'
        except Gone:
            pass
        p.close()


def itt_reuse():
    """A task tag that is in use: refused, whatever becomes of the first."""
    for i in range(10):
        p = ready()
        p.out(p.write(64, 512, itt=0x55))
        while p.recv()[0][0] != 0x31:
            pass
        p.out(p.read(64, 8, itt=0x55) if i % 2 else p.write(64, 8, bytes(4096), itt=0x55))
        try:
            head, _ = p.recv()
            assert head[0] in (0x3f, 0x32) or head[0] == 0x21 and head[3], 'refused, not %#x' % head[0]
        except Gone:
            pass
        p.close(reset=i % 3 == 0)


def outside_the_window():
    """CmdSN beyond MaxCmdSN or long past: dropped without a word (RFC 7143, 4.2.2.1)."""
    p = ready()
    for cmdsn in (p.cmdsn + 100000, p.cmdsn - 5, p.cmdsn + 0x80000000 & NONE, p.cmdsn - 1):
        p.out(p.read(0, 8, cmdsn=cmdsn & NONE, itt=0x66))
    p.out(p.read(0, 8))
    assert p.wait_status(p.itt - 1)[1] == 0
    assert p.answers()
    # holes: everything waits for the first, which never comes
    first = p.cmdsn
    for i in range(1, 60):
        p.out(p.write(0, 8, bytes(4096), cmdsn=first + i, itt=0x100 + i))
    assert p.answers()
    p.close(reset=True)


def lengths():
    """Additional headers and data segments of every length, there and not there."""
    for ahs in (1, 2, 63, 255):
        p = ready()
        p.send(p.read(0, 8, ahs=os.urandom(ahs * 4)))
        p.send(p.read(0, 8, ahs=struct.pack('>HB', 0xffff, 1) + bytes(ahs * 4 - 3), itt=0x70))
        p.send(p.nop(3))
        try:
            p.recv()
        except Gone:
            pass
        p.close()
        p = Peer().login()
        p.send(p.read(0, 8, ahs_words=ahs))
        p.close()
    for n in (0x1ffff, 0x40001, 0xffffff):
        p = Peer().login()
        try:
            p.send(p.write(0, 8, length=n) + bytes(100000))
        except Gone:
            pass
        p.close(reset=True)
        p = Peer()
        try:
            p.send(pdu(0x43, 0x87, 0, 0, bytes(28), bytes(8192), length=n))
        except Gone:
            pass
        assert p.closed_by_target(), 'no such login'
        p.close()


def wrong_data_out():
    """Data for no task, with another tag, out of order, beyond the end, more than asked for."""
    for i in range(14):
        p = ready()
        p.out(p.write(64, 64))
        itt = p.itt - 1
        while True:
            head, _ = p.recv()
            if head[0] == 0x31:
                break
        ttt = struct.unpack('>I', head[20:24])[0]
        try:
            p.out([lambda: p.data_out(0x999, ttt, bytes(512)),
                   lambda: p.data_out(itt, ttt ^ 1, bytes(512)),
                   lambda: p.data_out(itt, ttt, bytes(512), sn=5),
                   lambda: p.data_out(itt, ttt, bytes(512), offset=0x7fffffff),
                   lambda: p.data_out(itt, ttt, bytes(8192), offset=64 * 512 - 512),
                   lambda: p.data_out(itt, NONE, bytes(512)),
                   lambda: p.data_out(itt, ttt, b'', final=True)][i % 7]())
            p.out(p.nop(4))
            p.recv()
        except Gone:
            pass
        p.close(reset=i % 2)


def wrong_opcodes():
    """Each opcode, at the wrong time and with nothing in it."""
    for op in range(0, 128):
        p = Peer().login()
        try:
            p.send(pdu(op, 0x80, 1, 0x33, struct.pack('>III', NONE, p.cmdsn, 0), b'a=b\0'))
            p.send(pdu(op, 0x00, 1, 0x34, struct.pack('>III', NONE, p.cmdsn + 1, 0)))
            p.send(p.nop(5))
            p.recv()
        except Gone:
            pass
        p.close(reset=op % 2)


def endless_text():
    """Keys that go on and on, at login and after."""
    for flags in (0x44, 0x40):
        p = Peer()
        try:
            for _ in range(200):
                p.send(p.login_pdu([], flags=flags, data=b'X-' + b'k' * 8000))
                p.recv()
        except Gone:
            pass
        else:
            raise AssertionError('login keys without end')
        p.close()
    p = Peer().login(session='Discovery')
    try:
        for i in range(200):
            p.send(pdu(0x44, 0x40, 0, 0x44, struct.pack('>III', NONE, p.cmdsn, p.statsn), b'X-' + b'k' * 8000))
            p.recv()
    except Gone:
        pass
    p.close()


def flood_of_pings():
    """Immediate pings, aborts and text requests by thousands; nobody reads what comes back."""
    peers = []
    for i in range(3):
        p = ready(rcvbuf=4096, timeout=1)
        tmf = pdu(0x42, 0x80 | 1, 1, 0x21, struct.pack('>III', 0x99, p.cmdsn, 0))
        text = pdu(0x44, 0x80, 0, 0x22, struct.pack('>III', NONE, p.cmdsn, 0), b'SendTargets=\0')
        try:
            p.send((p.nop(0x20) + tmf + text) * 4000)
        except Gone:
            pass
        peers.append(p)
    good()
    for i, p in enumerate(peers):
        p.close(reset=i == 1)


def logouts():
    """Logout with commands in flight, of a connection that is not there, twice."""
    for i in range(12):
        p = ready()
        p.out(p.write(64, 512))
        for _ in range(20):
            p.out(p.read(0, 2048))
        out = pdu(0x46, 0x80 | i % 3, 0, 0x7777, struct.pack('>HxxII', 9 if i % 2 else 0, p.cmdsn, 0))
        try:
            p.send(out + out)
            while p.recv()[0][0] != 0x26:
                pass
        except Gone:
            pass
        p.close(reset=i % 4 == 0)


# ---- all of them --------------------------------------------------------------------------------------------

SCENES = [half_open, slow_readers, session_storm, reinstatement, garbage, flipped_commands, reset_in_data_out, wrong_digests,
          itt_reuse, outside_the_window, lengths, wrong_data_out, wrong_opcodes, endless_text, flood_of_pings, logouts]


def rss():
    for line in open('/proc/%d/status' % PID):
        if line.startswith('VmRSS:'):
            return int(line.split()[1])


def play(scene, first):
    start = time.monotonic()
    try:
        scene()
        good()
        ok = True
        print('# %s: %.1f s' % (scene.__name__, time.monotonic() - start))
    except Exception as e:
        ok = False
        where = e.__traceback__
        while where.tb_next:
            where = where.tb_next
        print('# %s, line %d: %s: %s' % (scene.__name__, where.tb_lineno, type(e).__name__, e))
    if first or not ok:
        print(('ok ' if ok else 'not ok ') + scene.__name__ + ': ' + scene.__doc__.split('.')[0].split(':')[0])
    sys.stdout.flush()
    return ok


fine = True
sizes = []
only = os.environ.get('ONLY', '').split()
for n in range(ROUNDS):
    for scene in SCENES:
        if (not only or scene.__name__ in only) and os.path.exists('/proc/%d' % PID):
            fine = play(scene, n == 0) and fine
    time.sleep(0.5)
    sizes.append(rss() or 0)
growth = sizes[-1] - sizes[0]
print('# resident after each round: ' + ', '.join('%d KiB' % s for s in sizes))
flat = ROUNDS == 1 or growth < GROWTH * (ROUNDS - 1)
print(('ok ' if flat else 'not ok ') + 'memory does not grow from round to round')
sys.exit(not (fine and flat))
