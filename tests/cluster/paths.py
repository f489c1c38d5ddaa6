# SPDX-License-Identifier: GPL-2.0-or-later
"""Initiators of test_gateways.sh: paths.py IQN SHARED FLAG write|read ADDRESS:PORT...

write  Writes stamped blocks and reads them back over whatever path serves, as multipath does,
       until the file FLAG is there; then reads all of them. Prints what it has seen.
read   A second one, of the first path alone: whatever it reads is what had been acknowledged when
       it asked, or newer.

Both share SHARED: by block the generation that was begun last, and the one that was acknowledged.
"""
import mmap, os, random, socket, struct, sys, time

sys.path.insert(0, 'tests/support')
sys.dont_write_bytecode = True
from iscsi_peer import Gone, Peer  # noqa: E402

BLOCKS = 64  # of 4 KiB
iqn, shared, flag, what = sys.argv[1:5]
addresses = [(a.split(':')[0], int(a.split(':')[1])) for a in sys.argv[5:]]
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


class Path:
    def __init__(self, address):
        self.address, self.peer, self.again = address, None, 0

    def ready(self):
        """A session, or None; tried twice a second."""
        if self.peer or time.monotonic() < self.again:
            return self.peer
        self.again = time.monotonic() + 0.5
        socket.setdefaulttimeout(1)
        try:
            Peer.count = os.getpid() & 0x3fff
            self.peer = Peer(timeout=1.5, address=self.address).login()
        except (Gone, OSError, AssertionError, struct.error):
            self.peer = None
        return self.peer

    def do(self, make):
        """Data and the sense as text, good, or gone."""
        peer = self.ready()
        if not peer:
            return b'', 'gone'
        try:
            peer.out(make(peer))
            got = b''
            while True:
                head, data = peer.recv()
                if head[0] == 0x25:
                    got += data
                    if head[1] & 1:
                        return got, 'good' if not head[3] else 'status %u' % head[3]
                elif head[0] == 0x21:
                    if head[3] == 2:
                        return got, '%x/%02x/%02x' % (data[4] & 15, data[14], data[15])
                    return got, 'status %u' % head[3] if head[3] else 'good'
        except (Gone, OSError, AssertionError, struct.error):
            try:
                peer.close()
            except OSError:
                pass
            self.peer = None
            return b'', 'gone'


paths = [Path(a) for a in addresses]
seen = {}


def transfer(make):
    """Until one path has done it: another one after standby or a loss."""
    at, until = transfer.at, time.monotonic() + 150
    while time.monotonic() < until:
        data, status = paths[at].do(make)
        seen[status] = seen.get(status, 0) + 1
        if status == 'good':
            transfer.at = at
            return data
        if status.startswith('6/'):
            continue
        at = (at + 1) % len(paths)
        if status in ('2/04/0a', 'gone') or at == transfer.at:
            time.sleep(0.01)
    raise AssertionError('no path serves: %s' % seen)


transfer.at = 0


def write_all():
    r, writes, reads, worst, last = random.Random(os.getpid()), 0, 0, 0.0, time.monotonic()
    gen = max(begun(block) for block in range(BLOCKS))
    while not os.path.exists(flag):
        block = r.randrange(BLOCKS)
        if r.random() < 0.3:
            before = acked(block)
            got = generation(block, transfer(lambda p: p.read(block * 8, 8, lun=1)))
            assert before <= got <= begun(block), ('read', block, before, got, begun(block))
            reads += 1
        else:
            gen += 1
            begun(block, gen)
            transfer(lambda p: p.write(block * 8, 8, stamped(block, gen), lun=1))
            acked(block, gen)
            writes += 1
        now = time.monotonic()
        worst, last = max(worst, now - last), now
        with open(shared + '.n', 'w') as f:
            f.write('%u %u\n' % (writes, int(worst * 1000)))
    for block in range(BLOCKS):
        got = generation(block, transfer(lambda p: p.read(block * 8, 8, lun=1)))
        assert acked(block) == got, ('lost', block, acked(block), got)
    print('%u writes, %u reads, longest stall %u ms, %s' % (writes, reads, worst * 1000, seen))


def read_all():
    r, good, refused = random.Random(os.getpid()), 0, {}
    while not os.path.exists(flag):
        block = r.randrange(BLOCKS)
        before = acked(block)
        data, status = paths[0].do(lambda p: p.read(block * 8, 8, lun=1))
        if status == 'good':
            got = generation(block, data)
            assert before <= got <= begun(block), ('STALE', block, before, got, begun(block))
            good += 1
        else:
            refused[status] = refused.get(status, 0) + 1
            time.sleep(0.005)
        with open(shared + '.r', 'w') as f:
            f.write('%u\n' % good)
    print('%u reads, none stale, %s' % (good, refused))


(write_all if what == 'write' else read_all)()
