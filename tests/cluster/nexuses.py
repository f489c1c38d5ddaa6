# SPDX-License-Identifier: GPL-2.0-or-later
"""Initiators of test_reservations.sh: nexuses.py IQN GATEWAY=ADDRESS:PORT...

Reads lines, answers each by one. NEXUS is an initiator's letter and a gateway's: xa. A nexus that is
lost logs in again. What it is told about that, and about who serves, is not passed on. While nobody
serves, a line is repeated.

    out NEXUS ACTION TYPE KEY SAKEY [FLAGS]    PERSISTENT RESERVE OUT
    move NEXUS KEY SAKEY TO                    REGISTER AND MOVE, to the nexus TO, without UNREG
    keys|gen|res|full|caps NEXUS               what PERSISTENT RESERVE IN says
    write|read|tur|reserve6 NEXUS
    stuff NEXUS                                registers others until that is refused: how many
    close NEXUS
    begin NAME LINE, end NAME                  the line goes on while others do; its answer
"""
import select, socket, struct, sys, threading, time

sys.path.insert(0, 'tests/support')
sys.dont_write_bytecode = True
from iscsi_peer import Gone, Peer  # noqa: E402

Peer.target = sys.argv[1]
address, tag = {}, {'a': 11, 'b': 12, 'c': 13}
for word in sys.argv[2:]:
    name, _, where = word.partition('=')
    host, _, port = where.partition(':')
    address[name] = (host, int(port))
open_ones = {}
ACTIONS = ['register', 'reserve', 'release', 'clear', 'preempt', 'abort', 'ignore', 'move']


def name_of(nexus):
    return 'iqn.2026-11.org.tgtd.test:' + nexus[0]


def isid_of(nexus):
    return struct.pack('>BHBH', 0x80, 0x77, 0, ord(nexus[0]))


def port_of(nexus):
    return '%s,i,0x%s' % (name_of(nexus), isid_of(nexus).hex())


def ended(sock):
    try:
        return select.select([sock], [], [], 0)[0] and not sock.recv(1, socket.MSG_PEEK)
    except OSError:
        return True


def peer_of(nexus):
    if nexus in open_ones and ended(open_ones[nexus].sock):
        open_ones.pop(nexus).close()
    if nexus not in open_ones:
        peer = Peer(timeout=60, address=address[nexus[1]])
        peer.login(name=name_of(nexus), isid=isid_of(nexus))
        open_ones[nexus] = peer
    return open_ones[nexus]


def run(nexus, cdb, edtl=0, out=None):
    try:
        until = time.monotonic() + 60
        while True:
            said = peer_of(nexus).run(cdb, edtl, out)
            if said[0] == '02/04/0a' and time.monotonic() < until:
                time.sleep(0.02)  # somebody is about to take it
            elif said[0] != '06/2a/06' and not said[0].startswith('06/29/'):
                return said
    except (Gone, OSError, AssertionError) as e:
        open_ones.pop(nexus, None)
        return 'gone', repr(e).encode()


def prout(nexus, action, kind, key, sakey, flags, more=b''):
    p = struct.pack('>QQIBxxx', key, sakey, 0, flags) + more
    return run(nexus, struct.pack('>BBBxxIx', 0x5f, action, kind, len(p)), out=p)[0]


def transport_id(port):
    name = port.encode() + b'\0'
    name += bytes(-len(name) % 4)
    return struct.pack('>BxH', 0x45 if ',i,' in port else 5, len(name.ljust(20, b'\0'))) + name.ljust(20, b'\0')


def prin(nexus, action):
    return run(nexus, struct.pack('>BBxxxxxHx', 0x5e, action, 65535), 65535)


def stuff(nexus):
    """Registers nobody's ports by SPEC_I_PT, twenty at a time, each time under another port of its own."""
    made = 0
    for i in range(200):
        ids = b''.join(transport_id('iqn.2026-11.org.tgtd.test:nobody-%d-%d,i,0x%012x' % (i, j, j)) for j in range(20))
        status = prout(nexus, 0, 0, 0, 0x5717, 8, struct.pack('>I', len(ids)) + ids)
        if status != 'good':
            return '%d %s' % (made, status)
        made += 21
        status = prout(nexus, 0, 0, 0x5717, 0, 0)
        if status != 'good':
            return 'unregistering: ' + status
        made -= 1
    return '%d without end' % made


def one(words):
    what, nexus = words[0], words[1]
    if what == 'out':
        key, sakey = int(words[4], 16), int(words[5], 16)
        return prout(nexus, ACTIONS.index(words[2]), int(words[3]), key, sakey, int(words[6]) if words[6:] else 0)
    if what == 'move':
        to = transport_id(port_of(words[4]))
        p = struct.pack('>QQxBHI', int(words[2], 16), int(words[3], 16), 0, tag[words[4][1]], len(to)) + to
        return run(nexus, struct.pack('>BBxxxIx', 0x5f, 7, len(p)), out=p)[0]
    if what == 'keys':
        status, d = prin(nexus, 0)
        if status != 'good':
            return status
        return ' '.join('%x' % k for k in sorted(struct.unpack('>%dQ' % ((len(d) - 8) // 8), d[8:]))) or 'none'
    if what == 'gen':
        status, d = prin(nexus, 0)
        return status if status != 'good' else str(struct.unpack('>I', d[:4])[0])
    if what == 'res':
        status, d = prin(nexus, 1)
        if status != 'good':
            return status
        return '%d %x' % (d[21], struct.unpack('>Q', d[8:16])[0]) if len(d) > 8 else 'none'
    if what == 'caps':
        status, d = prin(nexus, 2)
        return status if status != 'good' else d.hex()
    if what == 'full':
        status, d = prin(nexus, 3)
        if status != 'good':
            return status
        at, rows = 8, []
        while at < len(d):
            key, bits, kind, rtpi, n = struct.unpack('>Q4xBB4xHI', d[at:at + 24])
            name = d[at + 28:at + 24 + n].split(b'\0')[0].decode().split(':')[-1].split(',')[0]
            rows.append('%s/%d/%x%s' % (name, rtpi, key, '*' if bits & 1 else ''))
            at += 24 + n
        return ' '.join(sorted(rows)) or 'none'
    if what == 'write':
        return run(nexus, struct.pack('>BxIxHx', 0x2a, 0, 1), out=bytes(512))[0]
    if what == 'read':
        return run(nexus, struct.pack('>BxIxHx', 0x28, 0, 1), 512)[0]
    if what == 'tur':
        return run(nexus, [0] * 6)[0]
    if what == 'reserve6':
        return run(nexus, [0x16] + [0] * 5)[0]
    if what == 'stuff':
        return stuff(nexus)
    if what == 'close':
        peer = open_ones.pop(nexus, None)
        if peer:
            peer.close()
        return 'closed'
    return 'what?'


later = {}


def answer_later(words):
    later[words[0]] = one(words[1:])


for line in sys.stdin:
    words = line.split()
    if words[0] == 'begin':  # begin NAME LINE: goes on while others do
        t = threading.Thread(target=answer_later, args=(words[1:],), daemon=True)
        later.pop(words[1], None)
        t.start()
        print('begun', flush=True)
    elif words[0] == 'end':  # end NAME: its answer
        until = time.monotonic() + 120
        while words[1] not in later and time.monotonic() < until:
            time.sleep(0.01)
        print(later.pop(words[1], 'no answer'), flush=True)
    else:
        print(one(words), flush=True)
