#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""One tenant against another, with all that SCSI and iSCSI give it, on a live daemon: the table of
means and refusals in tgtd/iscsi/README.md.

    hostile.py PORT

test_hostile_tenant.sh makes the target. LUN 1 is A's, LUN 2 is B's, both see LUN 3. A has a
reservation on LUN 1, a write under way, a token, and a copy's result; B wants them. Prints TAP
lines.
"""
import os, struct, sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
sys.dont_write_bytecode = True
from iscsi_peer import NONE, Gone, Peer, is_, pdu
from tenant import (enter, identification, naa_of, pr_in, pr_out, populate, read, ready, run,
                    token_of, use_token, write)

Peer.address = ('127.0.0.1', int(sys.argv[1]))
IQN = 'iqn.2026-11.org.tgtd.test:'
Peer.target = IQN + 'shared'
A, B = IQN + 'host-a', IQN + 'host-b'
KEEP = bytes(range(256)) * 16  # 4 KiB of A's, at the beginning of LUN 1
manage = Peer.manage
GONE = '05/25/00'


# ---- a unit that is not B's ----------------------------------------------------------------------

def commands(b):
    """Whatever is asked of a unit outside of the mask, it is not there."""
    out = bytes(512)
    for name, cdb, edtl, data in (
            ('TEST UNIT READY', bytes(6), 0, None),
            ('READ(6)', [8, 0, 0, 0, 1, 0], 512, None),
            ('READ(10)', struct.pack('>BxIxHx', 0x28, 0, 1), 512, None),
            ('READ(16)', struct.pack('>BxQIxx', 0x88, 0, 1), 512, None),
            ('WRITE(10)', struct.pack('>BxIxHx', 0x2a, 0, 1), 0, out),
            ('WRITE(16)', struct.pack('>BxQIxx', 0x8a, 0, 1), 0, out),
            ('WRITE ATOMIC(16)', struct.pack('>BxQxxHxx', 0x9c, 0, 1), 0, out),
            ('WRITE AND VERIFY(10)', struct.pack('>BxIxHx', 0x2e, 0, 1), 0, out),
            ('WRITE SAME(16)', struct.pack('>BxQIxx', 0x93, 0, 1), 0, out),
            ('COMPARE AND WRITE', struct.pack('>BxQ3xBxx', 0x89, 0, 1), 0, out * 2),
            ('ORWRITE(16)', struct.pack('>BxQIxx', 0x8b, 0, 1), 0, out),
            ('UNMAP', struct.pack('>B6xHx', 0x42, 24), 0, struct.pack('>HH4xQI4x', 22, 16, 0, 8)),
            ('VERIFY(10)', struct.pack('>BxIxHx', 0x2f, 0, 1), 0, None),
            ('PRE-FETCH(10)', struct.pack('>BxIxHx', 0x34, 0, 1), 0, None),
            ('SYNCHRONIZE CACHE', [0x35] + [0] * 9, 0, None),
            ('FORMAT UNIT', [4, 0, 0, 0, 0, 0], 0, None),
            ('SANITIZE', [0x48, 1] + [0] * 8, 0, None),
            ('START STOP UNIT', [0x1b, 0, 0, 0, 0, 0], 0, None),
            ('PREVENT ALLOW', [0x1e, 0, 0, 0, 1, 0], 0, None),
            ('RESERVE(6)', [0x16, 0, 0, 0, 0, 0], 0, None),
            ('RELEASE(6)', [0x17, 0, 0, 0, 0, 0], 0, None),
            ('MODE SENSE(6)', [0x1a, 0, 0x3f, 0, 255, 0], 255, None),
            ('MODE SELECT(6)', [0x15, 0x11, 0, 0, 24, 0], 0, bytes(24)),
            ('LOG SENSE', [0x4d, 0, 0x40, 0, 0, 0, 0, 2, 0, 0], 512, None),
            ('READ CAPACITY(10)', [0x25] + [0] * 9, 8, None),
            ('READ CAPACITY(16)', [0x9e, 0x10] + [0] * 11 + [32, 0, 0], 32, None),
            ('GET LBA STATUS', [0x9e, 0x12] + [0] * 11 + [64, 0, 0], 64, None),
            ('REPORT TARGET PORT GROUPS', [0xa3, 0x0a] + [0] * 7 + [64, 0, 0], 64, None),
            ('SET TARGET PORT GROUPS', [0xa4, 0x0a] + [0] * 7 + [8, 0, 0], 0,
             struct.pack('>IBxH', 0, 3, 1)),
            ('SET TIMESTAMP', [0xa4, 0x0f] + [0] * 7 + [12, 0, 0], 0, bytes(12)),
            ('RECEIVE ROD TOKEN INFORMATION', struct.pack('>BBIxxxxIxx', 0x84, 7, 5, 512), 512,
             None),
            ('EXTENDED COPY', [0x83, 0] + [0] * 11 + [16, 0, 0], 0, bytes(16)),
            ('POPULATE TOKEN', [0x83, 0x10] + [0] * 11 + [32, 0, 0], 0, bytes(32)),
            ('VPD page 83h', [0x12, 1, 0x83, 0, 255, 0], 255, None)):
        got, told = run(b, cdb, edtl, data)
        want = GONE if name != 'VPD page 83h' else '05/24/00'
        is_('%s: %s' % (name, want), got == want and not told, got, told[:32].hex())
        nowhere = run(b, cdb, edtl, data, lun=99)[0]
        is_('... as where there is no unit at all', got == nowhere, got, nowhere)
    for name, action in (('REGISTER', 0), ('RESERVE', 1), ('RELEASE', 2), ('CLEAR', 3),
                         ('PREEMPT', 4), ('PREEMPT AND ABORT', 5),
                         ('REGISTER AND IGNORE EXISTING KEY', 6)):
        got = pr_out(b, action, 1, 0xaaaa, 0xbbbb)
        is_('PERSISTENT RESERVE OUT, %s: %s' % (name, GONE), got == GONE, got)
    for action in range(4):
        got, data = pr_in(b, action)
        is_('PERSISTENT RESERVE IN %d: %s' % (action, GONE), got == GONE and not data, got,
            data[:16].hex())
    got, data = run(b, [0x12, 0, 0, 0, 96, 0], 96)
    is_('INQUIRY: nothing there that could be', got == 'good' and data[0] == 0x7f, got,
        data[:8].hex())
    got, data = run(b, [0x03, 0, 0, 0, 64, 0], 64)
    is_('REQUEST SENSE: no such unit', data[2] & 15 == 5 and data[12] == 0x25, got, data.hex())


def spellings(b):
    """A unit has many numbers in SAM-5 4.7; the mask holds for each."""
    for field in ('0001', '4001', '0101', '3f01', '8001', '8101', 'd2000001', 'e1000001',
                  '00010001', '40010001', '0001000000000001', '4001000000000001', 'c001',
                  'ffff', '0000000000000001', '0002000000000001'):
        field = bytes.fromhex(field.ljust(16, '0'))
        got, data = run(b, struct.pack('>BxIxHx', 0x28, 0, 8), 4096, field=field)
        is_('LUN %s: not a byte of A' % field.hex(),
            KEEP[:512] not in data and (got != 'good' or field[1] == 2), got)
        c = run(b, struct.pack('>BxIxHx', 0x2a, 0, 1), out=b'B' * 512, field=field)[0]
        is_('... nor is one written', c != 'good', c)
    got, data = run(b, struct.pack('>BxBxxxI', 0xa0, 2, 256) + bytes(2), 256)
    luns = [data[at:at + 2].hex() for at in range(8, len(data), 8)]
    is_('REPORT LUNS names what is its own', luns == ['0000', '0002', '0003', 'c101'], luns)


# ---- tasks, resets -------------------------------------------------------------------------------

def tasks(b, theirs):
    itt, sn, ttt = theirs
    for name, function, want in (('ABORT TASK', 1, 1), ('ABORT TASK SET', 2, 2),
                                 ('CLEAR ACA', 3, 2), ('CLEAR TASK SET', 4, 2),
                                 ('LOGICAL UNIT RESET', 5, 2)):
        tag = itt if function == 1 else NONE
        got = manage(b, function, 1, tag, sn), manage(b, function, 99, tag, sn)
        is_("%s on A's unit: as where there is none" % name, got == (want, want), got)
    got = manage(b, 1, 2, itt, sn)
    is_("ABORT TASK with A's tag on B's unit: no such task", got in (0, 1), got)
    for name, function in (('TARGET WARM RESET', 6), ('TARGET COLD RESET', 7)):
        got = manage(b, function, 0)
        is_('%s: not authorized' % name, got == 6, got)
    got = manage(b, 8, 1, itt)
    is_("TASK REASSIGN of A's task", got in (1, 2, 3, 4), got)
    # data for A's task, in A's words, in sessions of B's own: they may end
    for lun in (1, 2):
        p = enter(B, 'tenant-b')
        try:
            d = bytearray(p.data_out(itt, ttt, b'B' * 4096))
            d[8:10] = struct.pack('>H', lun)
            p.out(bytes(d))
            p.answers()
        except (Gone, AssertionError):
            pass
        try:
            p.out(pdu(0x10, 0x81, 0, itt, struct.pack('>IIII', ttt, 0, 0, 0)))  # SNACK
            p.answers()
        except (Gone, AssertionError, OSError):
            pass
        p.close()


# ---- copies, tokens ------------------------------------------------------------------------------

def copy(p, source, to, through):
    """EXTENDED COPY of 8 blocks between two units, by their names, sent to LUN @through."""
    segment = struct.pack('>BBHHHxxHQQ', 2, 0, 24, 0, 1, 8, 0, 0)
    head = struct.pack('>BBH4xI4x', 7, 0, 64, len(segment))
    out = head + identification(source) + identification(to) + segment
    return run(p, struct.pack('>BB8xIxx', 0x83, 0, len(out)), out=out, lun=through)[0]


def copies(a, b, naa):
    is_('(a copy that B may make is made)', copy(b, naa[2], naa[3], 2) == 'good')
    for through in (2, 3):
        for name, source, to in (("from A's unit", naa[1], naa[2]),
                                 ("to A's unit", naa[2], naa[1])):
            got = copy(b, source, to, through)
            is_('EXTENDED COPY %s through LUN %d is refused' % (name, through),
                got[:2] in ('0a', '05'), got)
    got, token = token_of(b, 3, 77)
    is_("B gets no result of A's copy operation", token is None and got != 'good', got)
    got = populate(b, 2, 8)
    told, token = token_of(b, 2, 8)
    is_('(a token of its own is made)', got == 'good' and token, got, told)
    got = use_token(b, token, 2)
    is_('(... and taken)', got == 'good', got)
    mine = bytearray(token)
    guesses = [os.urandom(512), bytes(mine[:8]) + os.urandom(504),
               bytes(mine[:256]) + os.urandom(256)]
    for at in range(0, 280, 8):
        mine[at] ^= 1
        guesses.append(bytes(mine))
        mine[at] ^= 1
    taken = [use_token(b, guess, 2) for guess in guesses]
    data = read(b, 64, 8, lun=2)[1]
    is_("no token that B makes up has anything of A's", data != KEEP, taken)


# ---- ports, numbers, text ------------------------------------------------------------------------

def ports(b):
    for lun in (2, 3):
        got = run(b, [0xa4, 0x0a] + [0] * 7 + [8, 0, 0], out=struct.pack('>IBxH', 0, 3, 1),
                  lun=lun)[0]
        is_('SET TARGET PORT GROUPS on LUN %d: refused' % lun, got in ('05/20/00', '05/24/00'),
            got)


def words(b, a):
    p = enter(B, 'tenant-b')
    for value in (IQN + 'private', '', 'All'):
        text = b'SendTargets=%s\0' % value.encode()
        p.out(pdu(0x44, 0x80, 0, 0x51, struct.pack('>III', NONE, p.cmdsn, p.statsn), text))
        head, data = p.recv()
        is_('SendTargets=%s: nothing of what is not its own' % value,
            head[0] == 0x3f or b'private' not in data, head.hex(), data)
    p.close()
    p = Peer()
    p.name = B
    p.login(session='Discovery', name=B)
    p.out(pdu(0x44, 0x80, 0, 0x51, struct.pack('>III', NONE, p.cmdsn, p.statsn),
              b'SendTargets=All\0'))
    data = p.recv()[1]
    is_('discovery does not name the target that lets in A alone', b'private' not in data, data)
    p.close()
    # logout of other connections: it has none but its own
    p = enter(B, 'tenant-b')
    for reason in (1, 2):
        p.out(pdu(0x46, 0x80 | reason, 0, 0x61, struct.pack('>HxxII', 7, p.cmdsn, p.statsn)))
        try:
            head, _ = p.recv()
            is_('logout of another connection, reason %d: refused' % reason,
                head[0] == 0x3f or head[2], head.hex())
        except Gone:
            is_('logout of another connection, reason %d: its own ends' % reason, True)
            break
    p.close()
    # numbers: a flood beyond its window takes nothing of A's
    p = enter(B, 'tenant-b')
    for i in range(600):
        p.out(p.command(bytes(6), 0x81, cmdsn=(p.cmdsn + 0x10000 + i) & NONE, lun=1))
    is_('commands outside of its window are dropped', p.answers())
    p.close()


def shared(a, b):
    """LUN 3 is the administrator's choice: there SPC's rules hold, and nothing beyond."""
    assert pr_out(a, 0, 0, 0, 0xa3, lun=3) == 'good' and pr_out(a, 1, 1, 0xa3, lun=3) == 'good'
    while run(b, bytes(6), lun=3)[0].startswith('06'):
        pass
    got = write(b, 0, b'B' * 512, lun=3)
    is_("a write under A's reservation: RESERVATION CONFLICT", got == 'status 18', got)
    got = [pr_out(b, action, 1, 0xa3, 0, lun=3) for action in (1, 2, 3, 4, 5)]
    is_("without a key of its own B may do nothing to it, though it knows A's",
        set(got) == {'status 18'}, got)
    got = manage(b, 5, 3)
    is_('LOGICAL UNIT RESET of what it sees: done', got == 0, got)
    got = pr_in(a, 1, lun=3)
    if got[0].startswith('06'):
        got = pr_in(a, 1, lun=3)
    is_("... A's reservation stays", got[1][8:16] == struct.pack('>Q', 0xa3), got)
    # With a key of its own it may take the reservation, as SPC-4 5.12.11.4 has it. A is told.
    while run(b, bytes(6), lun=3)[0].startswith('06'):
        pass
    got = pr_out(b, 0, 0, 0, 0xb3, lun=3), pr_out(b, 4, 1, 0xb3, 0xa3, lun=3)
    is_('with a key of its own B preempts it', got == ('good', 'good'), got)
    got = [run(a, bytes(6), lun=3)[0] for _ in range(2)]
    is_('... A is told: REGISTRATIONS PREEMPTED', '06/2a/05' in got, got)
    while run(a, bytes(6), lun=3)[0].startswith('06'):
        pass
    got = write(a, 0, b'A' * 512, lun=3), pr_out(a, 0, 0, 0, 0xa4, lun=3), \
        pr_out(a, 4, 1, 0xa4, 0xb3, lun=3), write(a, 0, b'A' * 512, lun=3)
    is_('... and may do the same', got == ('status 18', 'good', 'good', 'good'), got)


def own_units(b):
    """What B may do to its own unit, and to the controller, which everybody sees: others' units
    feel nothing of it."""
    for lun in (0, 2):
        while run(b, bytes(6), lun=lun)[0].startswith('06'):
            pass
        got = run(b, [0xa4, 0x0f] + [0] * 7 + [12, 0, 0], out=bytes(10) + b'\1\0', lun=lun)[0]
        is_('(SET TIMESTAMP on LUN %d is done)' % lun, got == 'good', got)
        got = manage(b, 5, lun)
        is_('(LOGICAL UNIT RESET of LUN %d is done)' % lun, got == 0, got)
        while run(b, bytes(6), lun=lun)[0].startswith('06'):
            pass
        got = run(b, [0x16, 0, 0, 0, 0, 0], lun=lun)[0]
        is_('(RESERVE(6) of LUN %d is done)' % lun, got == 'good', got)
        for change in (0x0c, 0x08):  # DS off and on: page 0Ah, TST and others as they are
            sense = run(b, [0x1a, 8, 8, 0, 64, 0], 64, lun=lun)[1]
            page = bytearray(sense[4:])
            if len(page) >= 4:
                page[0] &= 0x3f
                page[2] ^= change & 4
                run(b, [0x15, 0x10, 0, 0, 4 + len(page), 0], out=bytes(4) + bytes(page), lun=lun)


def main():
    a = ready(enter(A, 'tenant-a'), 1, 3)
    assert write(a, 0, KEEP) == 'good' and write(a, 64, bytes(4096)) == 'good'
    assert pr_out(a, 0, 0, 0, 0xaaaa) == 'good' and pr_out(a, 1, 1, 0xaaaa) == 'good'
    naa = {1: naa_of(a, 1), 3: naa_of(a, 3)}
    assert populate(a, 3, 77) == 'good'
    # a write of A's that waits for its data
    a.out(a.command(struct.pack('>BxIxHx', 0x2a, 64, 8), 0xa1, 4096))
    theirs = a.itt - 1, a.cmdsn - 1
    head, _ = a.recv()
    assert head[0] == 0x31, 'R2T'
    theirs += (struct.unpack('>I', head[20:24])[0],)

    b = ready(enter(B, 'tenant-b'), 2, 3)
    naa[2] = naa_of(b, 2)
    commands(b)
    spellings(b)
    ports(b)
    own_units(b)
    copies(a, b, naa)
    words(b, a)
    tasks(enter(B, 'tenant-b'), theirs)

    a.out(a.data_out(theirs[0], theirs[2], b'a' * 4096))
    is_("A's write ends with A's data", a.wait_status(theirs[0])[1] == 0)
    got = run(a, bytes(6))[0]
    is_('A has no unit attention of all that', got == 'good', got)
    is_("A's data is as it was", read(a, 0, 8)[1] == KEEP and read(a, 64, 8)[1] == b'a' * 4096)
    is_("A's reservation is as it was", pr_in(a, 1)[1][8:16] == struct.pack('>Q', 0xaaaa))
    got = token_of(a, 3, 77)
    is_("A's token is A's", got[0] == 'good' and got[1], got[0])
    shared(a, ready(enter(B, 'tenant-b'), 2))
    is_("A's session has gone on", a.answers())
    a.logout()


try:
    main()
except (Gone, AssertionError, OSError, struct.error) as e:
    import traceback
    traceback.print_exc(file=sys.stdout)
    is_('the attack comes to its end', False, type(e).__name__, e)
sys.exit(is_.failures > 0)
