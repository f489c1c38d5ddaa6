# SPDX-License-Identifier: GPL-2.0-or-later
"""An initiator that changes a unit in all ways: changes.py IQN FLAG FIRST BLOCKS ADDRESS:PORT...

Writes of sectors and blocks, with FUA or without, WRITE ATOMIC where it is offered, WRITE SAME of
zeros, UNMAP, COMPARE AND WRITE of one block and of several, SYNCHRONIZE CACHE, over whatever path
serves, and one after the other: so it knows each byte of its BLOCKS blocks of 4 KiB from block FIRST
on, whatever becomes of gateways. It reads them back now and then, and all of them when the file FLAG
is there. Prints what it has done. $WAYS, such as "atomic read": these alone, by their names below.
"""
import os, random, struct, sys

sys.dont_write_bytecode = True
sys.path.insert(0, 'tests/cluster')
from initiator import Paths, Peer, addresses_of  # noqa: E402

iqn, flag, first, blocks = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
Peer.target = iqn
paths = Paths(addresses_of(sys.argv[5:]))
SECTORS = 8 * blocks
is_ = bytearray(512 * SECTORS)
r = random.Random(os.getpid())
did, serial = {}, 0
MISCOMPARE, REFUSED, NOT_OFFERED = 'e/1d/00', '5/24/00', '5/20/00'


def command(p, cdb, data=b'', reads=0):
    flags = 0x81 | (0x40 if reads else 0x20 if data else 0)
    return p.command(cdb, flags, edtl=reads or len(data), data=data)


def rw16(op, at, n, flags=0):
    return struct.pack('>BBQIBB', op, flags, 8 * first + at, n, 0, 0)


def fresh(n):
    global serial
    serial += 1
    return b''.join(struct.pack('<QQ', serial, i) * 32 for i in range(n))


def place(most):
    """Sectors that begin and end in blocks, or anywhere."""
    n = r.randrange(1, most + 1)
    at = r.randrange(SECTORS - n + 1)
    if r.random() < 0.5 and n >= 8:
        at, n = at // 8 * 8, n // 8 * 8
    return at, n


def changed(at, data):
    is_[512 * at:512 * at + len(data)] = data


def write():
    at, n = place(r.choice([1, 8, 32]))
    data, flags = fresh(n), 8 if r.random() < 0.1 else 0
    paths.transfer(lambda p: command(p, rw16(0x8a, at, n, flags), data))
    changed(at, data)


def zero():
    at, n = place(64)
    paths.transfer(lambda p: command(p, rw16(0x93, at, n), bytes(512)))
    changed(at, bytes(512 * n))


def offered():
    """Sectors of a WRITE ATOMIC, by VPD page B0h: one length, 0 for none, whoever serves."""
    cdb, lengths = struct.pack('>BBBHB', 0x12, 1, 0xb0, 64, 0), set()
    for path in paths.paths:
        page, status = path.do(lambda p: command(p, cdb, reads=64))
        if status == 'good':
            lengths.add(struct.unpack('>III', page[44:56]))
    assert len(lengths) == 1 and len(set(*lengths)) == 1, 'maximum, alignment, granularity: %s' % lengths
    return lengths.pop()[0]


def atomic():
    """All of it or nothing, also when the answer is lost: which one is looked at before it is repeated.
    Of any other length it is refused, by whoever serves. So to have lost an answer to that, and to be
    refused then, says nothing."""
    n = r.choice([ATOMIC, ATOMIC, ATOMIC // 2, 2 * ATOMIC])
    at = r.randrange(SECTORS // n) * n
    data, was = fresh(n), bytes(is_[512 * at:512 * (at + n)])
    cdb = struct.pack('>BBQHHBB', 0x9c, 0, 8 * first + at, 0, n, 0, 0)
    while n == ATOMIC:
        status, _ = paths.transfer(lambda p: command(p, cdb, data), also=('gone', REFUSED, NOT_OFFERED))
        if status == 'gone':
            got = paths.transfer(lambda p: command(p, rw16(0x88, at, n), reads=512 * n))
            there = [got[i:i + 512] == data[i:i + 512] for i in range(0, 512 * n, 512)]
            assert got == was or all(there), 'sectors %u+%u: of a WRITE ATOMIC there is %s' % (at, n, there)
            what = 'lost, and is %sthere' % ('' if all(there) else 'not ')
            did['atomic ' + what] = did.get('atomic ' + what, 0) + 1
            continue
        assert status == 'good', 'a WRITE ATOMIC is refused: %s' % status
        changed(at, data)
        return
    status, _ = paths.transfer(lambda p: command(p, cdb, data), also=(REFUSED,))
    assert status == REFUSED, 'a WRITE ATOMIC of %u sectors is taken, %u is offered' % (n, ATOMIC)


def unmap():
    """Of two ranges: both are zeros then."""
    both = [place(64), place(8)]
    data = struct.pack('>HHI', 6 + 32, 32, 0) + b''.join(struct.pack('>QII', 8 * first + at, n, 0) for at, n in both)
    paths.transfer(lambda p: command(p, b'\x42' + bytes(6) + struct.pack('>HB', len(data), 0), data))
    for at, n in both:
        changed(at, bytes(512 * n))


def compare_and_write():
    at, n = place(r.choice([1, 8, 16]))
    data, was = fresh(n), bytes(is_[512 * at:512 * (at + n)])
    wrong = r.random() < 0.1
    have = bytes(len(was) - 1) + b'x' if wrong else was
    cdb = struct.pack('>BBQBBBBBB', 0x89, 0, 8 * first + at, 0, 0, 0, n, 0, 0)
    status, maybe = paths.transfer(lambda p: command(p, cdb, have + data), also=(MISCOMPARE, REFUSED))
    if status == REFUSED:
        did['too long'] = did.get('too long', 0) + 1
    elif status == 'good':
        assert not wrong, 'what differs was written'
        changed(at, data)
    elif not wrong:  # it had been done: the answer was lost
        assert maybe, 'it differs from what was written'
        changed(at, data)


def sync():
    paths.transfer(lambda p: command(p, struct.pack('>BBQIBB', 0x91, 0, 0, 0, 0, 0)))


def read(at=None, n=None):
    if at is None:
        at, n = place(64)
    got = paths.transfer(lambda p: command(p, rw16(0x88, at, n), reads=512 * n))
    want = bytes(is_[512 * at:512 * (at + n)])
    if got != want:
        bad = [at + i for i in range(n) if got[512 * i:512 * i + 512] != want[512 * i:512 * i + 512]]
        i = bad[0] - at
        raise AssertionError('sectors %s: %s is not %s' % (bad[:8], got[512 * i:512 * i + 16].hex(),
                                                           want[512 * i:512 * i + 16].hex()))


# Nothing of before is known.
for at in range(0, SECTORS, 64):
    n = min(64, SECTORS - at)
    paths.transfer(lambda p: command(p, rw16(0x93, at, n), bytes(512)))
ways = [write] * 8 + [zero, unmap] * 2 + [atomic] + [compare_and_write] * 3 + [sync] + [read] * 4
ATOMIC = offered()
print('at work', flush=True)
if not ATOMIC:
    ways.remove(atomic)
if 'WAYS' in os.environ:
    ways = [w for w in ways if w.__name__ in os.environ['WAYS'].split()]
while not os.path.exists(flag):
    way = r.choice(ways)
    way()
    did[way.__name__] = did.get(way.__name__, 0) + 1
for at in range(0, SECTORS, 64):
    read(at, min(64, SECTORS - at))
print('%s, %s' % (did, paths.seen))
