#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""One tenant takes all that it can get of what tenants share: registrations and the state journal,
tokens, results of copies, the controller (LUN 0), the event thread. The other one gets its own.

    hostile_room.py PORT LUNS

test_hostile_room.sh makes the target. LUN 1 is A's, LUNs from 10 on are B's, both see LUN 3 and,
as everybody does, LUN 0. Prints TAP lines. Where the administrator is to try, it waits for a line.
"""
import os, struct, sys, threading, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
sys.dont_write_bytecode = True
from iscsi_peer import NONE, Gone, Peer, is_, pdu
from tenant import (enter, identification, naa_of, populate, pr_in, pr_out, read, ready, run,
                    token_of, write)

Peer.address = ('127.0.0.1', int(sys.argv[1]))
IQN = 'iqn.2026-11.org.tgtd.test:'
Peer.target = IQN + 'shared'
A, B = IQN + 'host-a', IQN + 'host-b'
OWN = range(10, 10 + int(sys.argv[2]))  # units of B
NO_ROOM = '05/55/04'


def transport_id(name):
    name = name.encode().ljust(224, b'x')[:223] + b'\0'
    return struct.pack('>BBH', 5, 0, len(name)) + name


def register_others(p, lun, names):
    """REGISTER with SPEC_I_PT."""
    ids = b''.join(transport_id(n) for n in names)
    out = struct.pack('>QQ4xB3xI', 0, 0xb, 8, len(ids)) + ids
    return run(p, struct.pack('>BBBxxIx', 0x5f, 0, 0, len(out)), out=out, lun=lun)[0]


def all_registrations(b, lun):
    """As many as B gets: itself, and initiators that there are not. How many that was."""
    n = 0
    while n < 5000:
        got = register_others(b, lun, ['iqn.%u.%u.' % (lun, n + i) for i in range(35)])
        if got == NO_ROOM:
            break
        assert got == 'good', (lun, n, got)
        n += 35
        got = pr_out(b, 0, 0, 0xb, 0, lun=lun)  # itself no more: only then others can be named
        assert got == 'good', (lun, n, got)
    pr_out(b, 0, 0, 0, 0xb, lun=lun)
    return n


def registrations(a, b):
    took = [all_registrations(b, lun) for lun in (3, *OWN)]
    print('# B has made %u registrations: %s' % (sum(took), took))
    is_('(B has made many)', sum(took) >= 900 * len(took), took)
    is_("A registers at its own unit", pr_out(a, 0, 0, 0, 0xa) == 'good')
    is_('... and reserves it', pr_out(a, 1, 1, 0xa) == 'good')
    got = pr_out(a, 0, 0, 0, 0xa, lun=3)
    is_('A registers at the unit that both see', got == 'good', got)
    is_('... and gives that up', pr_out(a, 0, 0, 0xa, 0, lun=3) == 'good')
    print('# the administrator tries')
    sys.stdout.flush()
    sys.stdin.readline()


def tokens(a, b):
    is_('(A makes a token)', populate(a, 3, 77) == 'good')
    got, n = 'good', 0
    while got == 'good' and n < 1500:
        got = populate(b, 3, 1000 + n, 3600)
        n += got == 'good'
    print('# B has made %u tokens: %s' % (n, got))
    got = populate(a, 3, 78)
    is_('A makes one, when B has made all that it may', got == 'good', got)
    for i in range(1100):
        populate(b, 3, 5000 + i)
    for ident in (77, 78):
        got, token = token_of(a, 3, ident)
        is_("A's result %u is there after 1,100 more of B's" % ident, got == 'good' and token, got)


def background_copy(p, lun, source, to, ident, segments, blocks, at):
    """A command that copies in the background, segment by segment: its PDU."""
    cscd = identification(source) + identification(to)
    segment = struct.pack('>BBHHHxxHQQ', 2, 0, 24, 0, 1, blocks, 0, at) * segments
    head = struct.pack('>BxH11xBBxxxI18xHHxx', 1, 0x20, 1, 0xff, ident, len(cscd), len(segment))
    out = head + cscd + segment
    return p.command(struct.pack('>BB8xIxx', 0x83, 1, len(out)), 0xa1, len(out), out, lun=lun)


def background(a, b):
    """As many copies in the background as there may be, and one more."""
    naa, own = (naa_of(b, OWN[0]), naa_of(b, OWN[1])), naa_of(a, 1)
    first = b.itt
    b.send(b''.join(background_copy(b, OWN[0], *naa, 100 + i, 256, 2048, 0) for i in range(20)))
    statuses = {}
    while len(statuses) < 20:
        head, _ = b.recv()
        if head[0] == 0x21:
            statuses[struct.unpack('>I', head[16:20])[0] - first] = head[3]
    print('# of 20 copies of B in the background %u were begun' % list(statuses.values()).count(0))
    a.out(background_copy(a, 1, own, own, 1, 1, 8, 1024))
    is_("A's copy in the background is begun", a.wait_status(a.itt - 1)[1] == 0)
    is_('(none of B was refused for another reason)', set(statuses.values()) <= {0, 8}, statuses)


def controller(a, b):
    """What B reserves of LUN 0 is nothing that A's use of its units needs."""
    ready(a, 0), ready(b, 0)
    got = run(b, [0x16, 0, 0, 0, 0, 0], lun=0)[0]
    print('# RESERVE(6) of LUN 0: %s' % got)
    for step in ('RESERVE(6)', 'PERSISTENT RESERVE OUT'):
        if step != 'RESERVE(6)':
            run(b, [0x17, 0, 0, 0, 0, 0], lun=0)
            got = pr_out(b, 0, 0, 0, 0xb, lun=0), pr_out(b, 1, 3, 0xb, lun=0)
            print('# Exclusive Access of LUN 0: %s' % (got,))
        for p, who in ((a, 'A'), (enter(A, 'tenant-a', isid=b'\x80\x11\x22\x33\x44\x77'),
                                  'A by a new session')):
            got, data = run(p, struct.pack('>BxBxxxI', 0xa0, 0, 256) + bytes(2), 256, lun=0)
            luns = [data[at:at + 2].hex() for at in range(8, len(data), 8)]
            is_("%s of LUN 0 by B: REPORT LUNS of %s" % (step, who),
                luns == ['0000', '0001', '0003'], got, luns)
            got, data = run(p, [0x12, 0, 0, 0, 96, 0], 96, lun=0)
            is_('... INQUIRY', got == 'good' and len(data) >= 36, got)
            got, data = run(p, [0x03, 0, 0, 0, 64, 0], 64, lun=0)
            is_('... REQUEST SENSE', got == 'good', got)
            if p is not a:
                ready(p, 1)
                p.logout()
        is_('... its unit feels nothing', read(a, 0, 8)[0] == 'good')
    pr_out(b, 3, 0, 0xb, lun=0)


# ---- floods --------------------------------------------------------------------------------------

def batch(p, cdb, lun, edtl=0, out=None, n=16):
    """@n commands at once, and their answers."""
    flags = 0x81 | (0x20 if out is not None else 0x40 if edtl else 0)
    length = len(out) if out is not None else edtl
    first = p.itt
    p.send(b''.join(p.command(bytes(cdb), flags, length, out or b'', lun=lun) for _ in range(n)))
    left = set(range(first, first + n))
    while left:
        head, _ = p.recv()
        if head[0] in (0x21, 0x3f) or head[0] == 0x25 and head[1] & 1:
            left.discard(struct.unpack('>I', head[16:20])[0])


def flood_registers(p):
    out = struct.pack('>QQ8x', 0, 0xb)
    batch(p, struct.pack('>BBBxxIx', 0x5f, 6, 0, 24), OWN[0], out=out)


def flood_full_status(p):
    batch(p, struct.pack('>BB5xHx', 0x5e, 3, 65535), OWN[0], edtl=65535)


def flood_pings(p):
    for i in range(16):
        p.send(pdu(0x40, 0x80, 0, i + 1, struct.pack('>III', NONE, p.cmdsn, p.statsn), bytes(8192)))
    for _ in range(16):
        while p.recv()[0][0] != 0x20:
            pass


def flood_texts(p):
    p.out(pdu(0x44, 0x80, 0, 0x51, struct.pack('>III', NONE, p.cmdsn, p.statsn),
              b'SendTargets=\0' + b''.join(b'X-%u=%u\0' % (i, i) for i in range(200))))
    p.recv()


def flood_resets(p):
    for lun in (0, OWN[0], 3):
        p.manage(5, lun)


def flood_same(p):
    batch(p, struct.pack('>BxQIxx', 0x93, 0, 32768), OWN[2], out=b'S' * 512)


def flood_verify(p):
    batch(p, struct.pack('>BxQIxx', 0x8f, 0, 32768), OWN[2])


def flood_named(p):
    """The dearest of refusals: hundreds of names, the last one there already."""
    register_others(p, OWN[1], ['iqn.new.%u' % i for i in range(34)] + ['iqn.%u.0.' % OWN[1]])


def floods(a):
    stop, done = threading.Event(), {}

    def flood(kind, isid):
        try:
            p = ready(enter(B, 'tenant-b', isid=isid), 0, *OWN[:3], 3)
            while not stop.is_set():
                kind(p)
                done[kind.__name__] = done.get(kind.__name__, 0) + 1
            p.close()
        except (Gone, AssertionError, OSError) as e:
            done[kind.__name__] = 'ended: %s' % e

    kinds = (flood_registers, flood_full_status, flood_pings, flood_texts, flood_resets,
             flood_named, flood_same, flood_verify)
    threads = [threading.Thread(target=flood, args=(k, b'\x80\x11\x22\x33\x55' + bytes([i])))
               for i, k in enumerate(kinds)]
    for t in threads:
        t.start()
    end = time.monotonic() + 20
    while len(done) < len(kinds) and time.monotonic() < end:
        time.sleep(0.02)
    slowest, n = 0, 0
    for n in range(200):
        began = time.monotonic()
        while True:  # resets of LUN 3 are B's to do: they are told, and that is all
            got = read(a, 0, 8)[0]
            if not got.startswith('06'):
                break
        slowest = max(slowest, time.monotonic() - began)
        if got != 'good':
            break
    stop.set()
    for t in threads:
        t.join(60)
    is_("200 reads of A's beside B's floods", n == 199 and got == 'good', n, got)
    print('# the slowest read took %.0f ms; %s' % (1000 * slowest, done))


def main():
    a = ready(enter(A, 'tenant-a'), 1, 3)
    a.sock.settimeout(240)
    b = ready(enter(B, 'tenant-b'), 3, *OWN)
    is_('(A writes)', write(a, 0, b'A' * 4096) == 'good')
    controller(a, b)
    background(a, b)
    tokens(a, b)
    registrations(a, b)
    floods(a)
    is_("A's data is as it was", read(a, 0, 8)[1] == b'A' * 4096)
    is_("A's reservation is as it was", pr_in(a, 1)[1][8:16] == struct.pack('>Q', 0xa))
    is_("A's session has gone on", a.answers())
    a.logout()


try:
    main()
except (Gone, AssertionError, OSError, struct.error) as e:
    import traceback
    traceback.print_exc(file=sys.stdout)
    is_('the attack comes to its end', False, type(e).__name__, e)
sys.exit(is_.failures > 0)
