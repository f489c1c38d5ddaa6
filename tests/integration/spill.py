#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Write data that waits for a CmdSN which does not come; test_spill.sh runs it.

    spill.py PORT

Prints what has happened, a line each, and waits for a line before it goes on.
"""
import os, struct, sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
sys.dont_write_bytecode = True
from iscsi_peer import Gone, Peer

Peer.address = ('127.0.0.1', int(sys.argv[1]))
SIZE = 256 << 10
SESSIONS, WRITES = 12, 127
DATA = bytes(SIZE)


def enter(target):
    Peer.target = 'iqn.2026-11.org.tgtd.test:spill%u' % target
    p = Peer(timeout=120).login('ImmediateData=Yes', 'InitialR2T=Yes', 'FirstBurstLength=%u' % SIZE,
                                'MaxBurstLength=%u' % SIZE)
    return p.ready()


def hold(p, n):
    """Writes whose data waits, since a number before theirs is missing: that number."""
    missing = p.cmdsn
    p.cmdsn += 1
    for _ in range(n):
        p.out(p.write(0, SIZE // 512, DATA))
    return missing


def release(p, missing, n):
    """The missing command comes; the statuses of the writes."""
    first = p.itt - n
    p.out(p.command(b'', 0x80, cmdsn=missing, itt=0x7000))
    seen = {}
    while len(seen) <= n:
        head, _ = p.recv()
        if head[0] == 0x21:
            seen[struct.unpack('>I', head[16:20])[0]] = head[3]
    assert seen.pop(0x7000) == 0
    return [seen[first + i] for i in range(n)]


def told(p):
    """All that was sent has been read."""
    p.out(p.nop(0x4e4f50))
    while p.recv()[0][0] != 0x20:
        pass


def waits(what, target, n):
    p = enter(target)
    got = release(p, hold(p, n), n)
    print('%s: %02x' % (what, max(got)), flush=True)
    p.logout()


try:
    greedy = [enter(1) for _ in range(SESSIONS)]
    missing = [hold(p, WRITES) for p in greedy]
    for p in greedy:
        told(p)
    print('taken', flush=True)
    sys.stdin.readline()
    waits('other target', 2, 1)
    waits('other target, 16 MiB', 2, 64)
    waits('same target', 1, 1)
    got = [release(p, m, WRITES) for p, m in zip(greedy, missing)]
    print('first session: %s; last session: %s' % (
        'all good' if not any(got[0]) else 'some full',
        'some full' if set(got[-1]) == {0, 0x28} else got[-1]), flush=True)
    for p in greedy:
        p.close()
except (Gone, AssertionError, OSError) as e:
    print('%s: %s' % (type(e).__name__, e), flush=True)
