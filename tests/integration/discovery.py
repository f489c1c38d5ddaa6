#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Discovery by many, and by those who mean harm, against a running tgtd that anybody reaches.

    discovery.py PORT TARGETS PORTALS SOCKET-TOOL WHAT

TARGETS have the names NAME-1 ... NAME-n; the first one wants CHAP (joe, secretsecret). WHAT is
sessions, pipelining, whole or full (four normal sessions are all that there may be). Nothing here needs a quiet machine: every wait is for a condition.
"""
import os, select, socket, struct, subprocess, sys, threading, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
sys.dont_write_bytecode = True
from iscsi_peer import NONE, Gone, Peer, pdu

PORT, TARGETS, PORTALS = (int(a) for a in sys.argv[1:4])
ADM, WHAT = sys.argv[4:]
NAME = 'iqn.2026-11.org.tgtd.test:a-name-as-long-as-those-of-provisioners-'
Peer.address, Peer.target = ('127.0.0.1', PORT), NAME + '1'
failures = 0


def is_(name, ok, more=''):
    global failures
    failures += not ok
    print('%sok %s%s' % ('' if ok else 'not ', name, ' # ' + more if more else ''), flush=True)


def chap_login(source, deadline):
    """A login with CHAP from @source within @deadline seconds, which may take several attempts."""
    start = time.monotonic()
    while time.monotonic() - start < deadline:
        try:
            p = Peer(timeout=deadline, source=source)
            if p.chap(5, 'joe', 'secretsecret') == 0 and p.login_step(1, 3, [])[None] == (0, True):
                return p, time.monotonic() - start
        except (Gone, OSError, AssertionError):
            pass
        time.sleep(0.1)
    return None, time.monotonic() - start


def ask(p, keys=b'SendTargets=All\0', ttt=NONE, itt=5):
    return pdu(0x44, 0x80, 0, itt, struct.pack('>III', ttt, p.cmdsn, p.statsn), keys)


def whole(p, keys=b'SendTargets=All\0'):
    """The answer and how many PDUs it took."""
    text, ttt, pdus = b'', NONE, 0
    while True:
        p.send(ask(p, keys, ttt))
        head, data = p.recv()
        assert head[0] == 0x24, 'opcode %#x' % head[0]
        assert data.endswith(b'\0') or not data, 'whole pairs'
        pdus += 1
        text += data
        if head[1] & 0x80:
            assert head[20:24] == b'\xff\xff\xff\xff'
            return text, pdus
        assert head[1] == 0x40 and data, 'C, and something'
        keys, ttt = b'', struct.unpack('>I', head[20:24])[0]


def complete(text):
    """Each target once, with each portal, and nothing else."""
    found = {}
    for key, value in (pair.split('=', 1) for pair in text.decode().split('\0') if pair):
        if key == 'TargetName':
            assert value not in found, 'not twice: ' + value
            at = found[value] = []
        else:
            assert key == 'TargetAddress', key
            at.append(value)
    portals = ['127.0.0.%u:%u,1' % (1 + i, PORT) for i in range(PORTALS)]
    return found == {'%s%u' % (NAME, n): portals for n in range(1, TARGETS + 1)}


def sessions():
    """W3: as many discovery sessions as one address can open, none of which leaves."""
    peers, inside = [], 0
    start = time.monotonic()
    for i in range(4096):
        try:
            p = Peer(source='127.0.0.1')
            p.send(p.login_pdu(['InitiatorName=' + p.name, 'SessionType=Discovery']))
            peers.append(p)
        except (Gone, OSError):
            pass
    for p in peers:
        try:
            p.sock.settimeout(60)
            p.inside = p.recv()[0][36] == 0
        except (Gone, AssertionError):
            p.inside = False
        inside += p.inside
    is_('discovery sessions have a budget', 0 < inside < 1024,
        '%u of %u in %.1f s' % (inside, len(peers), time.monotonic() - start))
    for source in '127.0.0.2', '127.0.0.1':
        p, took = chap_login(source, 20)
        is_('W3: a CHAP login from %s beside them' % source, p is not None, '%.2f s' % took)
        if p:
            p.close()
    # Nor do connections that say nothing.
    silent = [Peer(source='127.0.0.1') for _ in range(2000)]
    p, took = chap_login('127.0.0.2', 20)
    is_('a CHAP login beside connections that say nothing', p is not None, '%.2f s' % took)
    p = Peer(source='127.0.0.2').login(session='Discovery')
    is_('and another address discovers', complete(whole(p)[0]))
    for q in silent:
        q.close()
    # Each is silent; after 2 s it makes room for who asks, after 30 it goes.
    start, gone = time.monotonic(), False
    while not gone and time.monotonic() - start < 60:
        try:
            whole(Peer(source='127.0.0.1').login(session='Discovery'))
            gone = True
        except Gone:
            time.sleep(0.2)
    is_('a silent one makes room', gone, '%.1f s' % (time.monotonic() - start))
    left = [q for q in peers if q.inside]
    while left and time.monotonic() - start < 100:
        poll = select.poll()
        for q in left:
            poll.register(q.sock, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(1000)}
        left = [q for q in left if q.sock.fileno() not in ready]
    is_('idle ones are gone', not left, '%.0f s' % (time.monotonic() - start))


def pipelining():
    """W4: a hundred that ask without end and take every answer."""
    stop, asked, threads = threading.Event(), [0], []
    many = []
    for i in range(100):
        many.append(Peer(source='127.0.0.1').login(session='Discovery'))

    def hammer(some):
        burst = {p: b'' for p in some}
        for p in some:
            p.sock.setblocking(False)
        while not stop.is_set():
            r, w, _ = select.select([p.sock for p in some], [p.sock for p in some], [], 0.5)
            for p in some:
                try:
                    if p.sock in r and not p.sock.recv(1 << 20):
                        some.remove(p)
                        break
                    if p.sock in w:
                        if not burst[p]:
                            burst[p] = ask(p) * 100  # immediate ones: CmdSN stands still
                        n = p.sock.send(burst[p])
                        burst[p] = burst[p][n:]
                        asked[0] += n // 64
                except BlockingIOError:
                    pass
                except OSError:
                    some.remove(p)
                    break

    for i in range(2):
        t = threading.Thread(target=hammer, args=(many[i::2],), daemon=True)
        t.start()
        threads.append(t)
    while asked[0] < 5000:
        time.sleep(0.05)
    for n in range(3):
        p, took = chap_login('127.0.0.2', 20)
        is_('W4: a CHAP login beside them', p is not None, '%.2f s' % took)
        if p:
            p.close()
        start = time.monotonic()
        try:
            rc = subprocess.run([ADM, '--mode', 'target', '--op', 'show'], timeout=15,
                                stdout=subprocess.DEVNULL).returncode
        except subprocess.TimeoutExpired:
            rc = None
        took = time.monotonic() - start
        is_('W4: tgtadm show beside them', rc == 0 and took < 10, '%.2f s' % took)
    start = time.monotonic()
    try:
        p = Peer(source='127.0.0.2', timeout=20).login(session='Discovery')
        ok = complete(whole(p)[0])
    except (Gone, AssertionError):
        ok = False
    is_('W4: a discovery from another address', ok, '%.2f s' % (time.monotonic() - start))
    stop.set()
    for t in threads:
        t.join()
    print('# %u requests sent' % asked[0])


def all_of_it():
    """W9: however long the list is, and whatever the PDUs' length."""
    for size in 512, 8192, 262144, None:
        keys = ['MaxRecvDataSegmentLength=%u' % size] if size else []
        p = Peer(source='127.0.0.1').login(*keys, session='Discovery')
        try:
            text, pdus = whole(p)
        except (Gone, AssertionError) as e:
            text, pdus = b'', str(e)
        is_('W9: SendTargets=All in PDUs of %s' % size, complete(text),
            '%u bytes, %s PDUs' % (len(text), pdus))
    p = Peer(source='127.0.0.1').login(session='Discovery')
    one = b'SendTargets=%s%u\0' % (NAME.encode(), TARGETS)
    text = whole(p, one)[0]
    name = b'TargetName=%s%u\0' % (NAME.encode(), TARGETS)
    is_('SendTargets= of one', text.startswith(name) and text.count(b'TargetName=') == 1 and
        text.count(b'TargetAddress=') == PORTALS)
    is_('of none', whole(p, b'SendTargets=iqn.2026-11.org.tgtd.test:no\0')[0] == b'')


def full():
    """W3: discovery has room of its own, as well where normal sessions have taken all of theirs."""
    Peer.target = NAME + '2'
    peers = [Peer().login() for _ in range(4)]
    try:
        Peer().login()
        is_('there is no room for a fifth session', False)
    except Gone as e:
        is_('there is no room for a fifth session', '0x3 0x2' in str(e), str(e))
    text = whole(Peer().login(session='Discovery'))[0]
    is_('W3: discovery has its own', complete(text))
    for p in peers:
        p.close()


try:
    {'sessions': sessions, 'pipelining': pipelining, 'whole': all_of_it,
     'full': full}[WHAT]()
except Exception as e:
    is_('%s: %r' % (WHAT, e), False)
sys.exit(failures != 0)
