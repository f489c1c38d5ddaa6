# SPDX-License-Identifier: GPL-2.0-or-later
"""The initiator of test_nbd.sh and of tests/cluster: nbd.py [ADDRESS:]PORT IQN COMMAND LUN [ARG]

write LUN SEED    256 random blocks of 4 KiB, as SEED says, then SYNCHRONIZE CACHE
unsynced LUN SEED the same without SYNCHRONIZE CACHE
check LUN SEED    reads them back
sync LUN          SYNCHRONIZE CACHE; prints the status
syncsense LUN     the same; prints good, or the sense data as KEY/ASC/ASCQ
fua LUN           a block of zeros, with FUA; prints the status
extents LUN       GET LBA STATUS from block 0: prints "BLOCKS STATE" of each descriptor
unmap LUN         the first MiB
scatter LUN       writes 1 MiB, unmaps 256 ranges of it that share the cache's blocks, and reads
                  it back; prints right
capacity LUN      READ CAPACITY(16): prints the bytes
sense LUN read|write [LBA]    a block of 4 KiB; prints good, or the sense data as KEY/ASC/ASCQ
caw LUN LBA IS BECOMES N      COMPARE AND WRITE of N blocks of such bytes; prints the status
bytes LUN LBA N   reads N blocks: prints the byte that all of them are, or mixed
atomic LUN LBA N BYTE     WRITE ATOMIC(16) of N blocks; prints good, or KEY/ASC/ASCQ
offers LUN        WRITE ATOMIC: its length by VPD page B0h, its SUPPORT by REPORT SUPPORTED OPCODES
zeros LUN LBA     WRITE SAME(16) of zeros with UNMAP over 8 MiB; prints the status
through LUN SEED FLAG   writes and verifies until a file FLAG is there; FLAG.n has how many
"""
import os
import random
import struct
import sys

sys.path.insert(0, 'tests/support')
sys.dont_write_bytecode = True
from iscsi_peer import Peer  # noqa: E402

address, _, port = sys.argv[1].rpartition(':')
Peer.address, Peer.target = (address or '127.0.0.1', int(port)), sys.argv[2]
command, lun = sys.argv[3], int(sys.argv[4])
Peer.count = os.getpid() & 0x3fff  # a name of its own for each
p = Peer(timeout=120).login()


def do(make):
    for _ in range(4):  # unit attentions
        p.out(make())
        data, status = p.wait_status(p.itt - 1)
        if status != 2:
            break
    return data, status


def sense_of(pdu):
    """KEY/ASC/ASCQ of what is sent, or good."""
    p.out(pdu)
    while True:
        head, data = p.recv()
        if head[0] == 0x25 and head[1] & 1:
            return 'good'
        if head[0] == 0x21:
            return '%x/%02x/%02x' % (data[4] & 15, data[14], data[15]) if head[3] == 2 else \
                'status %u' % head[3] if head[3] else 'good'


def blocks(seed):
    r = random.Random(seed)
    return [(lba, r.randbytes(4096)) for lba in r.sample(range(0, 64 << 10, 8), 256)]


def sync():
    return do(lambda: p.command(b'\x35', 0x80, lun=lun))[1]


do(lambda: p.command(b'', 0x80, lun=lun))
if command in ('write', 'unsynced'):
    for lba, data in blocks(sys.argv[5]):
        assert not do(lambda: p.write(lba, 8, data, lun=lun))[1], lba
    print(sync() if command == 'write' else 0)
elif command == 'check':
    for lba, data in blocks(sys.argv[5]):
        got, status = do(lambda: p.read(lba, 8, lun=lun))
        assert not status and got == data, (lba, status)
    print('same')
elif command == 'sync':
    print(sync())
elif command == 'syncsense':
    print(sense_of(p.command(b'\x35', 0x80, lun=lun)))
elif command == 'fua':
    print(do(lambda: p.command(struct.pack('>BBIBHB', 0x2a, 8, 8, 0, 8, 0), 0xa1, 4096, bytes(4096), lun=lun))[1])
elif command == 'unmap':
    data = struct.pack('>HHIQII', 22, 16, 0, 0, 2048, 0)
    print(do(lambda: p.command(b'\x42' + bytes(6) + struct.pack('>H', 24), 0xa1, 24, data, lun=lun))[1])
elif command == 'scatter':
    data = bytearray(random.Random('scatter').randbytes(1 << 20))
    ranges = [(8 * n + n % 5, 1 + n % 4) for n in range(256)]
    for at in range(0, 2048, 128):
        assert not do(lambda: p.write(at, 128, data[at * 512:(at + 128) * 512], lun=lun))[1], at
    what = struct.pack('>HHI', 6 + 16 * 256, 16 * 256, 0) + b''.join(
        struct.pack('>QII', lba, n, 0) for lba, n in random.Random(5).sample(ranges, 256))
    assert not do(lambda: p.command(b'\x42' + bytes(6) + struct.pack('>H', len(what)), 0xa1,
                                    len(what), what, lun=lun))[1]
    for lba, n in ranges:
        data[lba * 512:(lba + n) * 512] = bytes(512 * n)
    for at in range(0, 2048, 128):
        got, status = do(lambda: p.read(at, 128, lun=lun))
        assert not status and got == data[at * 512:(at + 128) * 512], (at, status)
    print('right')
elif command == 'extents':
    got, status = do(lambda: p.command(struct.pack('>BBQI', 0x9e, 0x12, 0, 4096), 0xc1, 4096, lun=lun))
    assert not status, status
    for at in range(8, 4 + struct.unpack('>I', got[:4])[0], 16):
        lba, n, state = struct.unpack('>QIB', got[at:at + 13])
        print(n, state)
elif command == 'capacity':
    got, status = do(lambda: p.command(struct.pack('>BBQI', 0x9e, 0x10, 0, 32), 0xc1, 32, lun=lun))
    last, size = struct.unpack('>QI', got[:12])
    print((last + 1) * size)
elif command == 'sense':
    lba = int(sys.argv[6]) if len(sys.argv) > 6 else 0
    print(sense_of(p.read(lba, 8, lun=lun) if sys.argv[5] == 'read' else
                   p.write(lba, 8, b'\x55' * 4096, lun=lun)))
elif command == 'caw':
    lba, n = int(sys.argv[5]), int(sys.argv[8])
    both = b''.join(bytes([int(b)]) * 512 * n for b in sys.argv[6:8])
    print(do(lambda: p.command(struct.pack('>BBQ3xBBB', 0x89, 0, lba, n, 0, 0), 0xa1, len(both),
                               both, lun=lun))[1])
elif command == 'bytes':
    n = int(sys.argv[6])
    got, status = do(lambda: p.read(int(sys.argv[5]), n, lun=lun))
    assert not status and len(got) == n * 512, status
    print('mixed' if len(set(got)) > 1 else got[0])
elif command == 'atomic':
    lba, n = int(sys.argv[5]), int(sys.argv[6])
    print(sense_of(p.command(struct.pack('>BBQHHBB', 0x9c, 0, lba, 0, n, 0, 0), 0xa1, 512 * n,
                             bytes([int(sys.argv[7])]) * 512 * n, lun=lun)))
elif command == 'offers':
    limits, _ = do(lambda: p.command(struct.pack('>BBBHB', 0x12, 1, 0xb0, 64, 0), 0xc1, 64, lun=lun))
    got, _ = do(lambda: p.command(struct.pack('>BBBBHIBB', 0xa3, 0x0c, 1, 0x9c, 0, 64, 0, 0), 0xc1, 64, lun=lun))
    print(struct.unpack('>I', limits[44:48])[0], got[1] & 7)
elif command == 'zeros':
    cdb = struct.pack('>BBQIBB', 0x93, 8, int(sys.argv[5]), 16384, 0, 0)
    print(do(lambda: p.command(cdb, 0xa1, 512, bytes(512), lun=lun))[1])
elif command == 'through':
    r, n, have = random.Random(sys.argv[5]), 0, {}
    while not os.path.exists(sys.argv[6]) or n < 200:
        lba = r.randrange(0, 8 << 10, 8)
        if lba in have and r.random() < 0.5:
            got, status = do(lambda: p.read(lba, 8, lun=lun))
            assert not status and got == have[lba], (n, lba, status)
        else:
            have[lba] = r.randbytes(4096)
            assert not do(lambda: p.write(lba, 8, have[lba], lun=lun))[1], (n, lba)
        n += 1
        with open(sys.argv[6] + '.n', 'w') as f:
            f.write('%u\n' % n)
    print(n, 'right')
p.logout()
