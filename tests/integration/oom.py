# SPDX-License-Identifier: GPL-2.0-or-later
"""Helpers of test_oom.sh.

    oom.py fill PORT TARGET FIRST MIB     reads so much, from that MiB on
    oom.py hog EVENTS                     for each line on stdin: takes memory until that file counts another kill, prints
                                          "killed", and keeps what it has taken
"""
import os, sys, time

sys.path.insert(0, 'tests/support')
from iscsi_peer import Peer


def fill(port, target, first, mib):
    Peer.address, Peer.target = ('127.0.0.1', int(port)), target
    peer = Peer(timeout=60).login().ready()
    for at in range(int(first) * 2048, (int(first) + int(mib)) * 2048, 64):
        peer.out(peer.read(at, 64))
        peer.wait_status(peer.itt - 1)


def kills(events):
    with open(events) as f:
        return [int(line.split()[1]) for line in f if line.startswith('oom_kill ')][0]


def hog(events):
    taken = []
    for _ in sys.stdin:
        before, end = kills(events), time.monotonic() + 60
        while kills(events) == before and time.monotonic() < end:
            taken.append(bytearray(os.urandom(4096) * 32))
        print('killed' if kills(events) > before else 'not killed', flush=True)


globals()[sys.argv[1]](*sys.argv[2:])
