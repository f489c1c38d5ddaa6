#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Every kind of PDU that an initiator and a target exchange, once at least, with its answer checked.

    wire_traffic.py PORT TARGET CHAP-TARGET PINGED-TARGET

LUN 1 of each is 16 MiB or more in blocks of 512 bytes. CHAP-TARGET knows joe:secretsecret and shows
jim:terceseecret. PINGED-TARGET sends NOP-In after a second of silence. Prints TAP lines. test_wire.sh has a
dissector of others judge what this put on the wire.
"""
import os, random, struct, sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
sys.dont_write_bytecode = True
from iscsi_peer import CHAP, NONE, Gone, Peer, crc32c, pdu

PORT, TARGET, CHAP_TARGET, PINGED = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
Peer.address, Peer.target = ('127.0.0.1', PORT), TARGET
random.seed(7143)

# What an initiator may say about itself and ask for (RFC 7143, 13), and what has to be answered.
ALL_KEYS = ['InitiatorAlias=alias of mine', 'HeaderDigest=CRC32C,None', 'DataDigest=CRC32C,None', 'MaxConnections=4',
            'InitialR2T=No', 'ImmediateData=Yes', 'MaxRecvDataSegmentLength=65536', 'MaxBurstLength=262144',
            'FirstBurstLength=65536', 'DefaultTime2Wait=2', 'DefaultTime2Retain=20', 'MaxOutstandingR2T=8',
            'DataPDUInOrder=Yes', 'DataSequenceInOrder=Yes', 'ErrorRecoveryLevel=0', 'IFMarker=No', 'OFMarker=No',
            'IFMarkInt=2048', 'OFMarkInt=2048', 'TaskReporting=RFC3720', 'iSCSIProtocolLevel=1',
            'X-org.tgtd.test=whatever', 'NobodyKnowsThis=1']
DECLARED = ['InitiatorAlias']


def u32(b, at):
    return struct.unpack('>I', b[at:at + 4])[0]


def full(p, *keys, target=None, **ids):
    """A login by two stages; the operational answer."""
    assert p.login_step(0, 1, p.names(target=target) + ['AuthMethod=None'], **ids)[None] == (0, True)
    answer = p.login_step(1, 3, keys, **ids)
    assert answer[None] == (0, True), answer
    return answer


def ready(*keys, **more):
    p = Peer(**more)
    full(p, *keys)
    attention(p)
    return p


def attention(p):
    """Until no unit attention is left."""
    for _ in range(4):
        p.out(p.command(b'', 0x80))
        if p.wait_status(p.itt - 1)[1] == 0:
            return
    raise AssertionError('LUN 1 is not ready')


def solicited(p, itt, data, piece=8192, backwards=False):
    """Answers R2Ts until the response; (R2Ts, status)."""
    r2ts = 0
    while True:
        head, _ = p.recv()
        if head[0] == 0x21:
            return r2ts, head[3]
        assert head[0] == 0x31 and u32(head, 16) == itt, 'R2T, not %#x' % head[0]
        r2ts += 1
        ttt, at, n = u32(head, 20), u32(head, 40), u32(head, 44)
        cuts = [(o, min(piece, n - o)) for o in range(0, n, piece)]
        order = list(enumerate(cuts))
        if backwards:
            order = list(enumerate(reversed(cuts)))
        for sn, (o, k) in order:
            p.out(p.data_out(itt, ttt, data[at + o:at + o + k], sn=sn, offset=at + o, final=sn == len(cuts) - 1))


def same(p, lba, data):
    p.out(p.read(lba, len(data) // 512))
    got, status = p.wait_status(p.itt - 1)
    assert status == 0 and got == data, 'what was written is read'


# ---- login ---------------------------------------------------------------------------------------------------

def login_with_all_keys():
    """Login with all keys: each negotiated one is answered, declarations are not."""
    p = Peer()
    answer = full(p, *ALL_KEYS)
    for key in ALL_KEYS:
        key = key.split('=')[0]
        assert (key in answer) != (key in DECLARED), (key, answer)
    assert answer['NobodyKnowsThis'] == 'NotUnderstood' and answer['X-org.tgtd.test'] == 'NotUnderstood', answer
    assert answer['HeaderDigest'] == answer['DataDigest'] == 'CRC32C', answer
    attention(p)
    p.logout()
    # The same in pieces of 100 bytes.
    p = Peer()
    p.login_step(0, 1, p.names() + ['AuthMethod=CHAP,None'], chunk=100)
    assert p.login_step(1, 3, ALL_KEYS, chunk=100)[None] == (0, True)
    attention(p)
    p.logout()
    # Nothing is offered: straight into the operational stage, and straight through.
    p = Peer()
    assert p.login_step(1, 3, p.names())[None] == (0, True)
    attention(p)
    p.logout()


def refused_logins():
    """Logins that are refused: no such target, no session, secret wrong, authentication skipped."""
    p = Peer()
    assert p.login_step(1, 3, p.names(target=TARGET + '.no'))[None][0] == 0x203
    p.close()
    p = Peer()
    assert p.login_step(1, 3, p.names(), tsih=0x7fff)[None][0] == 0x20a
    p.close()
    p = Peer()
    assert p.login_step(1, 3, ['InitiatorName=' + p.name])[None][0] == 0x207
    p.close()
    p = Peer()
    assert p.login_step(1, 3, p.names(target=CHAP_TARGET))[None][0] == 0x201
    p.close()
    p = Peer()
    assert p.chap(5, 'joe', 'wrongwrongwrong', names=p.names(target=CHAP_TARGET)) == 0x201
    p.close()


def chap():
    """CHAP by each algorithm, one-way and mutual."""
    for number in CHAP:
        for back in None, ('jim', 'terceseecret'):
            p = Peer()
            assert p.chap(number, 'joe', 'secretsecret', back, names=p.names(target=CHAP_TARGET)) == 0
            assert p.login_step(1, 3, ['HeaderDigest=None'])[None] == (0, True)
            attention(p)
            p.logout()


def text(p, keys, itt=0x600, final=True):
    """A text exchange; answers with the C bit are asked for to their end. (keys answered, PDUs)."""
    whole, ttt, pdus = b'', NONE, 0
    data = b''.join(k.encode() + b'\0' for k in keys)
    while True:
        p.out(pdu(0x44, 0x80 if final else 0, 0, itt, struct.pack('>III', ttt, p.cmdsn, p.statsn), data))
        head, got = p.recv()
        assert head[0] == 0x24, 'text: opcode %#x' % head[0]
        pdus += 1
        whole += got
        ttt, data = u32(head, 20), b''
        if head[1] & 0x80:
            return [k.split('=', 1) for k in whole.decode().split('\0') if k], pdus


def discovery():
    """Discovery: all targets over several PDUs, one target, none."""
    p = Peer()
    answer = p.login_step(1, 3, p.names('Discovery') + ['MaxRecvDataSegmentLength=512', 'HeaderDigest=CRC32C'])
    assert answer[None] == (0, True)
    keys, pdus = text(p, ['SendTargets=All'])
    names = [v for k, v in keys if k == 'TargetName']
    assert TARGET in names and len(names) >= 20 and pdus > 2, (len(names), pdus)
    assert len([k for k, v in keys if k == 'TargetAddress']) >= len(names)
    assert text(p, ['SendTargets=' + TARGET])[0][0] == ['TargetName', TARGET]
    assert text(p, ['SendTargets=' + TARGET + '.no'])[0] == []
    p.logout()


def renegotiation():
    """Text in full feature phase: SendTargets of the own target, a new MaxRecvDataSegmentLength."""
    p = ready('MaxRecvDataSegmentLength=65536')
    assert text(p, ['SendTargets='])[0][0] == ['TargetName', TARGET]
    text(p, ['MaxRecvDataSegmentLength=4096'])
    p.out(p.read(0, 64))
    sizes = []
    while True:
        head, data = p.recv()
        sizes.append(len(data))
        if head[1] & 1:
            break
    assert max(sizes) == 4096 and sum(sizes) == 32768, sizes
    assert ['NobodyKnowsThis', 'NotUnderstood'] in text(p, ['NobodyKnowsThis=1'])[0]
    # In two requests: the first with neither F nor C, so that the target has to wait.
    head = pdu(0x44, 0, 0, 0x601, struct.pack('>III', NONE, p.cmdsn, p.statsn), b'MaxRecvDataSegmentLength=8192\0')
    p.out(head)
    head, _ = p.recv()
    assert head[0] == 0x24 and not head[1] & 0x80 and u32(head, 20) != NONE
    p.out(pdu(0x44, 0x80, 0, 0x601, struct.pack('>III', u32(head, 20), p.cmdsn, p.statsn)))
    head, _ = p.recv()
    assert head[0] == 0x24 and head[1] & 0x80
    p.logout()


# ---- data ----------------------------------------------------------------------------------------------------

def writes():
    """Writes: immediate, unsolicited, solicited data and each mixture, with each pair of digests."""
    for digests in [], ['HeaderDigest=CRC32C'], ['DataDigest=CRC32C'], ['HeaderDigest=CRC32C', 'DataDigest=CRC32C']:
        for initial_r2t in 'Yes', 'No':
            for immediate in 'Yes', 'No':
                p = Peer()
                full(p, 'InitialR2T=' + initial_r2t, 'ImmediateData=' + immediate, 'FirstBurstLength=4096',
                     'MaxBurstLength=16384', 'MaxOutstandingR2T=2', 'DataPDUInOrder=Yes', 'DataSequenceInOrder=Yes', *digests)
                attention(p)
                for blocks in 1, 8, 9, 80:
                    data = os.urandom(blocks * 512)
                    now = min(2048, len(data)) if immediate == 'Yes' else 0
                    burst = min(4096, len(data)) if initial_r2t == 'No' else now
                    p.out(p.write(100, blocks, data[:now], final=burst == now))
                    itt = p.itt - 1
                    for sn, o in enumerate(range(now, burst, 1024)):
                        n = min(1024, burst - o)
                        p.out(p.data_out(itt, NONE, data[o:o + n], sn=sn, offset=o, final=o + n == burst))
                    r2ts, status = solicited(p, itt, data, 1536)
                    assert status == 0 and (r2ts > 0) == (burst < len(data)), (r2ts, status, burst, blocks)
                    same(p, 100, data)
                p.logout()


def writes_out_of_order():
    """Data-Out PDUs of a sequence in any order, where that was agreed on."""
    p = ready('DataPDUInOrder=No', 'DataSequenceInOrder=No', 'MaxOutstandingR2T=4', 'MaxBurstLength=32768', 'InitialR2T=Yes',
              'ImmediateData=No')
    data = os.urandom(131072)
    p.out(p.write(0, 256))
    assert solicited(p, p.itt - 1, data, 4096, backwards=True)[1] == 0
    same(p, 0, data)
    p.logout()


def large_bursts():
    """A read and a write of 8 MiB, bursts and segments as long as the target takes them."""
    p = Peer(timeout=60)
    answer = full(p, 'MaxBurstLength=16776192', 'FirstBurstLength=262144', 'MaxRecvDataSegmentLength=16776192',
                  'MaxOutstandingR2T=16', 'InitialR2T=Yes')
    piece = int(answer['MaxRecvDataSegmentLength'])
    attention(p)
    data = os.urandom(1 << 20) * 8
    p.out(p.write(0, 16384))
    assert solicited(p, p.itt - 1, data, piece)[1] == 0
    p.out(p.read(0, 16384))
    assert p.wait_status(p.itt - 1) == (data, 0)
    p.logout()


def residuals():
    """Less and more than was expected, both ways; sense data; an INQUIRY that is cut."""
    p = ready()
    inquiry = struct.pack('>BBBHB', 0x12, 0, 0, 255, 0)
    for edtl in 8, 255, 4096:
        p.out(p.command(inquiry, 0xc1, edtl))
        data, status = p.wait_status(p.itt - 1)
        assert status == 0 and len(data) == min(edtl, len(data))
    p.out(p.command(struct.pack('>BxIxHx', 0x28, 0, 8), 0xc1, 512))
    p.wait_status(p.itt - 1)
    p.out(p.command(struct.pack('>BxIxHx', 0x28, 0, 1), 0xc1, 4096))
    p.wait_status(p.itt - 1)
    p.out(p.command(struct.pack('>BxIxHx', 0x28, 0xffffffff, 8), 0xc1, 4096))
    assert p.wait_status(p.itt - 1)[1] == 2
    p.out(p.command(b'\xee', 0x80))
    assert p.wait_status(p.itt - 1)[1] == 2
    p.out(p.command(bytes([0x88]) + struct.pack('>xQIH', 0, 8, 0), 0xc1, 4096))
    assert p.wait_status(p.itt - 1)[1] == 0
    p.logout()


def several_connections():
    """A session of four connections, commands by turns, one logged out by another."""
    first = Peer()
    full(first, 'MaxConnections=4', 'ImmediateData=Yes', 'InitialR2T=Yes')
    ids = dict(tsih=first.tsih, isid=struct.pack('>BHBH', 0x80, 0x1234, 0, first.count & 0xffff))
    conns = [first]
    for cid in 1, 2, 3:
        p = Peer()
        p.name, p.cmdsn = first.name, first.cmdsn
        p.login_step(1, 3, p.names(), cid=cid, **ids)
        conns.append(p)
    sn = first.cmdsn
    for turn in range(40):
        p = conns[turn % 4]
        p.cmdsn, sn = sn, sn + 1
        p.itt = 0x1000 + turn
        if turn % 3:
            p.out(p.read(turn, 16))
        else:
            p.out(p.write(turn, 2, os.urandom(1024)))
        p.wait_status(p.itt - 1)
    p = conns[2]
    p.out(pdu(0x46, 0x81, 0, 0x7001, struct.pack('>HxxII', 3, sn, p.statsn)))
    assert p.recv()[0][0] == 0x26
    assert conns[3].closed_by_target()
    p.out(pdu(0x46, 0x81, 0, 0x7002, struct.pack('>HxxII', 2, sn, p.statsn)))
    assert p.recv()[0][0] == 0x26
    assert conns[2].closed_by_target()
    first.cmdsn = sn
    first.out(pdu(0x46, 0x81, 0, 0x7003, struct.pack('>HxxII', 9, sn, first.statsn)))
    head, _ = first.recv()
    assert head[0] == 0x26 and head[2] == 1, 'CID not found'
    first.out(pdu(0x46, 0x82, 0, 0x7004, struct.pack('>HxxII', 1, sn, first.statsn)))
    head, _ = first.recv()
    assert head[0] == 0x26 and head[2] == 2, 'no recovery'
    first.logout()
    assert conns[1].closed_by_target()


def offloaded_copy():
    """A token of 64 blocks, what it is good for, and the blocks written by it; a copy that names its own LU."""
    p = ready('ImmediateData=Yes')
    data = os.urandom(32768)
    p.out(p.write(500, 64))
    assert solicited(p, p.itt - 1, data)[1] == 0

    def out(cdb, param, edtl=None):
        p.out(p.command(cdb, 0xa1, len(param), param))
        return p.wait_status(p.itt - 1)[1]

    def block_range(lba, blocks):
        return struct.pack('>QIxxxx', lba, blocks)

    ranges = block_range(500, 32) + block_range(532, 32)
    token = struct.pack('>HBxIxxxxxxH', 14 + len(ranges), 0, 30, len(ranges)) + ranges  # POPULATE TOKEN, 30 s inactive
    assert out(struct.pack('>BBxxxxIIxx', 0x83, 0x10, 77, len(token)), token) == 0
    p.out(p.command(struct.pack('>BBIxxxxIxx', 0x84, 0x07, 77, 1024), 0xc1, 1024))  # RECEIVE ROD TOKEN INFORMATION
    info, status = p.wait_status(p.itt - 1)
    assert status == 0 and info[5] & 0x7f == 1, info[:32].hex()
    at = 32 + info[13]
    rod = info[at + 6:at + 6 + 512]
    assert len(rod) == 512, len(rod)
    param = struct.pack('>HBxIQ', 0, 0, 0, 0) + rod + bytes(6) + struct.pack('>H', 16) + block_range(9000, 64)
    param = struct.pack('>H', len(param) - 2) + param[2:]
    assert out(struct.pack('>BBxxxxIIxx', 0x83, 0x11, 78, len(param)), param) == 0
    same(p, 9000, data)
    # EXTENDED COPY(LID1): one segment, block to block, from 500 to 12000
    p.out(p.command(bytes([0x12, 1, 0x83, 1, 0, 0]), 0xc1, 256))
    page, status = p.wait_status(p.itt - 1)
    assert status == 0
    naa = page[4:]
    while naa[1] & 0x3f != 3:
        naa = naa[4 + naa[3]:]
    naa = naa[:4 + naa[3]]
    cscd = (bytes([0xe4, 0, 0, 0]) + naa).ljust(28, b'\0') + bytes([0, 0, 2, 0])
    segment = struct.pack('>BBHHHxxHQQ', 2, 0, 24, 0, 0, 64, 500, 12000)
    param = struct.pack('>BBHxxxxII', 5, 0, len(cscd), len(segment), 0) + cscd + segment
    assert out(struct.pack('>BBxxxxxxxxIxx', 0x83, 0, len(param)), param) == 0
    same(p, 12000, data)
    for action in 0, 3, 4, 5, 6:  # RECEIVE COPY RESULTS: what has become of lists, and what can be asked for
        p.out(p.command(struct.pack('>BBBxxxxxxxIxx', 0x84, action, 5, 512), 0xc1, 512))
        p.wait_status(p.itt - 1)
    p.logout()


# ---- the rest ------------------------------------------------------------------------------------------------

def pings():
    """NOP-Out with and without data, not immediate, and the target's own NOP-In."""
    p = ready('HeaderDigest=CRC32C', 'DataDigest=CRC32C')
    for n in 0, 1, 2, 3, 4, 511, 4096:
        data = os.urandom(n)
        p.out(pdu(0x40, 0x80, 0, 0x700 + n, struct.pack('>III', NONE, p.cmdsn, p.statsn), data))
        assert p.recv()[1] == data, 'a ping returns its data'
    p.out(p.nop(0x799, immediate=False))
    assert p.recv()[0][0] == 0x20
    p.logout()
    p = Peer()
    full(p, target=PINGED)
    head, _ = p.recv()
    assert head[0] == 0x20 and u32(head, 16) == NONE and u32(head, 20) != NONE, 'the target pings'
    p.out(pdu(0x40, 0x80, 0, NONE, struct.pack('>III', u32(head, 20), p.cmdsn, p.statsn)))
    p.logout()


def task_management():
    """Each task management function, on tasks that are there and on such as are not."""
    p = ready('InitialR2T=Yes', 'ImmediateData=No')

    def tmf(function, lun=1, ref=NONE, ref_sn=0):
        p.out(pdu(0x42, 0x80 | function, lun, 0x800 + function, struct.pack('>IIII', ref, p.cmdsn, p.statsn, ref_sn)))
        while True:
            head, _ = p.recv()
            if head[0] == 0x22:
                return head[2]
            assert head[0] == 0x31

    for function in 1, 2, 4, 5, 9, 10:
        p.out(p.write(0, 64))
        assert p.recv()[0][0] == 0x31
        if function == 9:
            assert tmf(9, ref=p.itt - 1, ref_sn=p.cmdsn - 1) == 7, 'query of a task'
            assert tmf(1, ref=p.itt - 1, ref_sn=p.cmdsn - 1) == 0
        elif function == 10:
            assert tmf(10) == 7, 'query of a task set'
            assert tmf(2) == 0
        else:
            assert tmf(function, ref=p.itt - 1 if function == 1 else NONE, ref_sn=p.cmdsn - 1) == 0
        attention(p)
    assert tmf(1, ref=0x99, ref_sn=(p.cmdsn - 100) & NONE) == 1, 'no such task'
    assert tmf(5, lun=77) == 2, 'no such LUN'
    assert tmf(8, ref=0x99) in (4, 5), 'no reassignment'
    assert tmf(12) in (0, 7), 'query of asynchronous events'
    assert tmf(99) == 255
    assert tmf(6) == 0, 'warm reset'
    attention(p)
    assert tmf(7) == 0, 'cold reset'
    assert p.closed_by_target()
    p = Peer()
    full(p)
    p.out(pdu(0x42, 0x80 | 11, 1, 0x8aa, struct.pack('>III', NONE, p.cmdsn, p.statsn)))
    assert p.recv()[0][2] == 0, 'I_T nexus reset'
    assert p.closed_by_target()


def recovery():
    """ErrorRecoveryLevel 1: status, data and R2T asked for again, DataACK, damaged data sent again."""
    p = ready('ErrorRecoveryLevel=1', 'HeaderDigest=CRC32C', 'DataDigest=CRC32C', 'MaxRecvDataSegmentLength=8192',
              'MaxBurstLength=65536', 'InitialR2T=Yes', 'ImmediateData=Yes', 'FirstBurstLength=65536', 'DataPDUInOrder=Yes')

    def snack(kind, itt, ttt, begin, run):
        p.out(pdu(0x10, 0x80 | kind, 1, itt, struct.pack('>IIIIIII', ttt, 0, seen, 0, 0, begin, run)))

    # status: nothing of it has been acknowledged
    seen = p.statsn
    p.out(p.command(b'', 0x80))
    first, _ = p.recv()
    assert first[0] == 0x21
    snack(1, NONE, NONE, u32(first, 24), 1)
    again, _ = p.recv()
    assert again[0] == 0x21 and again[16:28] == first[16:28], 'the same status again'
    # data
    seen = p.statsn
    p.statsn = seen
    p.out(p.read(0, 128))
    itt, pieces = p.itt - 1, []
    while True:
        head, data = p.recv()
        if head[0] == 0x21:
            break
        pieces.append((head, data))
        if head[1] & 0x40:
            snack(2, NONE, u32(head, 20), u32(head, 36) + 1, 0)
    assert len(pieces) == 8
    snack(0, itt, NONE, 2, 3)
    for k in 2, 3, 4:
        head, data = p.recv()
        if head[0] == 0x3f:
            break  # acknowledged meanwhile
        assert head[0] == 0x25 and u32(head, 36) == k and data == pieces[k][1], 'the same data again'
    # R2T
    seen = p.statsn
    p.out(p.write(0, 128))
    itt = p.itt - 1
    first, _ = p.recv()
    assert first[0] == 0x31
    snack(0, itt, NONE, 0, 1)
    again, _ = p.recv()
    assert again[0] == 0x31 and again[20:24] == first[20:24], 'the same R2T again'
    # its data, the second PDU damaged: rejected, and asked for by another R2T
    data = os.urandom(65536)
    for sn in range(8):
        q = p.data_out(itt, u32(first, 20), data[sn * 8192:sn * 8192 + 8192], sn=sn, offset=sn * 8192, final=sn == 7)
        q = q[:48] + crc32c(q[:48]) + q[48:] + crc32c(q[48:])
        p.send(q[:-1] + bytes([q[-1] ^ 1]) if sn == 1 else q)
    rejects = 0
    while True:
        head, _ = p.recv()
        if head[0] == 0x3f:
            assert head[2] == 2, 'data digest error'
            rejects += 1
        elif head[0] == 0x31:
            at, n = u32(head, 40), u32(head, 44)
            p.out(p.data_out(itt, u32(head, 20), data[at:at + n], offset=at))
        else:
            assert head[0] == 0x21 and head[3] == 0, 'the write ends well'
            break
    assert rejects == 1
    same(p, 0, data)
    # what cannot be had
    seen = p.statsn
    snack(0, 0x7fff, NONE, 0, 0)
    head, _ = p.recv()
    assert head[0] == 0x3f and head[2] == 3, 'SNACK reject'
    p.logout()


def rejects():
    """What is rejected, with the header of what was wrong."""
    p = ready('ImmediateData=No', 'InitialR2T=Yes')
    wrong = [pdu(0x1c, 0x80, 0, 1), pdu(0x10, 0x80, 0, 2), p.write(0, 8, bytes(4096), cmdsn=p.cmdsn),
             pdu(0x43, 0x87, 0, 5), pdu(0x46, 0x87, 0, 6, struct.pack('>III', 0, p.cmdsn + 1, 0)),
             pdu(0x44, 0xc0, 0, 7, struct.pack('>III', NONE, p.cmdsn + 1, 0)), p.data_out(9, NONE, b'')]
    for k, q in enumerate(wrong):
        p.out(q)
        if k == len(wrong) - 1:
            break  # for a task that is no more: no answer
        head, data = p.recv()
        assert head[0] == 0x3f and data[:48] == q[:48], 'reject %u' % k
    # the number of the write that was refused is not taken as received
    p.out(p.read(0, 8))
    head, data = p.recv()
    assert head[0] == 0x25 and u32(head, 28) == p.cmdsn, 'the gap is filled'
    assert p.answers()
    p.logout()


SCENES = [login_with_all_keys, refused_logins, chap, discovery, renegotiation, writes, writes_out_of_order, large_bursts,
          residuals, several_connections, offloaded_copy, pings, task_management, recovery, rejects]
fine = True
only = os.environ.get('ONLY', '').split()
for scene in SCENES:
    if only and scene.__name__ not in only:
        continue
    try:
        scene()
        print('ok ' + scene.__name__ + ': ' + scene.__doc__)
    except (Exception, Gone) as e:
        fine = False
        where = e.__traceback__
        while where.tb_next:
            if where.tb_frame.f_code.co_filename == __file__:
                line = where.tb_lineno
            where = where.tb_next
        print('# %s: in line %d, from line %d: %s: %s' % (scene.__name__, where.tb_lineno, line, type(e).__name__, e))
        print('not ok ' + scene.__name__ + ': ' + scene.__doc__)
    sys.stdout.flush()
sys.exit(not fine)
