# SPDX-License-Identifier: GPL-2.0-or-later
"""Initiators of test_gateways.sh: paths.py IQN SHARED FLAG write|read ADDRESS:PORT...

write  Writes stamped blocks and reads them back over whatever path serves, as multipath does,
       until the file FLAG is there; then reads all of them. Prints what it has seen.
read   A second one, of the first path alone: whatever it reads is what had been acknowledged when
       it asked, or newer.

Both share SHARED: by block the generation that was begun last, and the one that was acknowledged.
"""
import mmap, os, random, struct, sys, time

sys.dont_write_bytecode = True
sys.path.insert(0, 'tests/cluster')
from initiator import Paths, Peer, addresses_of  # noqa: E402

BLOCKS = 64  # of 4 KiB
LUN = int(os.environ.get('LUN', 1))
iqn, shared, flag, what = sys.argv[1:5]
addresses = addresses_of(sys.argv[5:])
if not os.path.exists(shared):
    with open(shared, 'wb') as f:
        f.truncate(16 * BLOCKS)
with open(shared, 'r+b') as f:
    memory = mmap.mmap(f.fileno(), 16 * BLOCKS)
Peer.target = iqn


def begun(block, gen=None):
    if gen is not None:
        memory[16 * block:16 * block + 8] = struct.pack('<Q', gen)
    return struct.unpack('<Q', memory[16 * block:16 * block + 8])[0]


def acked(block, gen=None):
    if gen is not None:
        memory[16 * block + 8:16 * block + 16] = struct.pack('<Q', gen)
    return struct.unpack('<Q', memory[16 * block + 8:16 * block + 16])[0]


def stamped(block, gen):
    return struct.pack('<QQ', gen, block) * 256 if gen else bytes(4096)


def generation(block, data):
    gen, at = struct.unpack('<QQ', data[:16])
    assert data == stamped(block, gen) and (not gen or at == block), ('torn', block, gen)
    return gen


def counter(name):
    """A file of numbers that grow: who reads it meanwhile finds those of before, never none."""
    fd = os.open(shared + name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    return lambda *n: os.pwrite(fd, (' '.join(map(str, n)) + '\n').encode(), 0)


paths = Paths(addresses)
seen, transfer = paths.seen, paths.transfer


def write_all():
    r, writes, reads, worst, last = random.Random(os.getpid()), 0, 0, 0.0, time.monotonic()
    gen, note = max(begun(block) for block in range(BLOCKS)), counter('.n')
    while not os.path.exists(flag):
        block = r.randrange(BLOCKS)
        if r.random() < 0.3:
            before = acked(block)
            got = generation(block, transfer(lambda p: p.read(block * 8, 8, lun=LUN)))
            assert before <= got <= begun(block), ('read', block, before, got, begun(block))
            reads += 1
        else:
            gen += 1
            begun(block, gen)
            transfer(lambda p: p.write(block * 8, 8, stamped(block, gen), lun=LUN))
            acked(block, gen)
            writes += 1
        now = time.monotonic()
        worst, last = max(worst, now - last), now
        note(writes, int(worst * 1000))
    for block in range(BLOCKS):
        got = generation(block, transfer(lambda p: p.read(block * 8, 8, lun=LUN)))
        assert acked(block) == got, ('lost', block, acked(block), got)
    print('%u writes, %u reads, longest stall %u ms, %s' % (writes, reads, worst * 1000, seen))


def read_all():
    r, good, refused, note = random.Random(os.getpid()), 0, {}, counter('.r')
    while not os.path.exists(flag):
        block = r.randrange(BLOCKS)
        before = acked(block)
        data, status = paths.paths[0].do(lambda p: p.read(block * 8, 8, lun=LUN))
        if status == 'good':
            got = generation(block, data)
            assert before <= got <= begun(block), ('STALE', block, before, got, begun(block))
            good += 1
        else:
            refused[status] = refused.get(status, 0) + 1
            time.sleep(0.005)
        note(good)
    print('%u reads, none stale, %s' % (good, refused))


(write_all if what == 'write' else read_all)()
