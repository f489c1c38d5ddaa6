#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What a target answers, byte by byte, where libraries send nothing of the kind: defect W13.

    answers.py PORT SCENE...

test_answers.sh makes the targets. Prints TAP lines; ends with 1 when one of them is "not ok".
"""
import os, struct, sys, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
sys.dont_write_bytecode = True
from iscsi_peer import NONE, Gone, Peer, is_, pdu

Peer.address = ('127.0.0.1', int(sys.argv[1]))
Peer.target = 'iqn.2026-11.org.tgtd.test:answers'
ACA = 4
run, manage = Peer.run, Peer.manage


def log_in(lun=1, name=None):
    p = Peer().login('ImmediateData=Yes', name=name)
    while run(p, b'\0' * 6, lun=lun)[0].startswith('06'):
        pass
    return p


def power():
    p = log_in()
    for pc in range(16):
        want = 'good' if pc in (0, 1, 7) else '05/24/00'
        got = run(p, [0x1b, 0, 0, 0, pc << 4 | 1, 0])[0]
        is_('POWER CONDITION %xh: %s' % (pc, want), got == want, got)
    is_('... and the unit is ready', run(p, b'\0' * 6)[0] == 'good')


def aca():
    p = log_in()
    got = run(p, b'\0' * 6, attr=ACA)[0]
    is_('the attribute ACA without ACA: 05/49/00', got == '05/49/00', got)
    got = run(p, struct.pack('>BxIxHx', 0x2a, 0, 1), out=b'x' * 512, attr=ACA)[0]
    is_('... nor is anything written', got == '05/49/00' and
        run(p, struct.pack('>BxIxHx', 0x28, 0, 1), 512)[1] == bytes(512), got)


def reserved_tag():
    p = log_in()
    before = p.cmdsn
    p.out(pdu(0, 0x80, 0, NONE, struct.pack('>III', NONE, p.cmdsn, p.statsn)))
    head, _ = p.recv()
    is_('a NOP-Out with the reserved tag and a number is rejected', (head[0], head[2]) == (0x3f, 4), head.hex())
    is_('... and takes no number', struct.unpack('>I', head[28:32])[0] == before, head.hex())
    is_('... so the command that has it runs', run(p, b'\0' * 6)[0] == 'good')


def abort_by_lun():
    p = log_in()
    # a write that waits for its data
    p.out(p.command(struct.pack('>BxIxHx', 0x2a, 8, 8), 0xa1, 4096))
    itt, sn = p.itt - 1, p.cmdsn - 1
    head, _ = p.recv()
    assert head[0] == 0x31, 'R2T'
    ttt = struct.unpack('>I', head[20:24])[0]
    is_('ABORT TASK by another LUN: no such task', manage(p, 1, 0, itt, sn) == 1)
    is_('ABORT TASK by a LUN that is not there', manage(p, 1, 77, itt, sn) == 2)
    p.out(p.data_out(itt, ttt, b'y' * 4096))
    is_('... and the task goes on', p.wait_status(itt)[1] == 0)
    is_('... to its end', run(p, struct.pack('>BxIxHx', 0x28, 8, 8), 4096)[1] == b'y' * 4096)


def format_unit():
    """LUN 2: 64 MiB of a file, at 16 MiB/s."""
    p, q = log_in(2), log_in(2)
    for lba in (0, 70000, 131071):
        assert run(p, struct.pack('>BxIxHx', 0x2a, lba, 1), out=b'f' * 512, lun=2)[0] == 'good'
    got = run(p, [0x04, 0x80, 0, 0, 0, 0], lun=2)[0]
    is_('FORMAT UNIT with protection information: 05/24/00', got == '05/24/00', got)
    got = run(p, [0x04, 0x10, 0, 0, 0, 0], out=bytes([0, 0, 0, 8]), lun=2)[0]
    is_('... with a defect list: 05/26/00', got == '05/26/00', got)
    got = run(p, [0x04, 0x10, 0, 0, 0, 0], out=bytes([0, 2, 0, 0]), lun=2)[0]
    is_('FORMAT UNIT with IMMED: good', got == 'good', got)
    got = run(q, b'\0' * 6, lun=2)[0]
    is_('... others hear 02/04/04', got == '02/04/04', got)
    seen = []
    deadline = time.time() + 60
    while time.time() < deadline:
        sense = run(p, [0x03, 0, 0, 0, 64, 0], 64, lun=2)[1]
        if sense[12:14] != b'\x04\x04':
            break
        assert sense[15] & 0x80, 'SKSV'
        seen.append(struct.unpack('>H', sense[16:18])[0])
        time.sleep(0.05)
    is_('REQUEST SENSE tells the progress, which grows', seen and seen == sorted(seen), seen)
    is_('... to its end', time.time() < deadline and run(q, b'\0' * 6, lun=2)[0] == 'good')
    is_('it reads as zeros', all(run(p, struct.pack('>BxIxHx', 0x28, lba, 1), 512, lun=2)[1] == bytes(512)
                                 for lba in (0, 70000, 131071)))
    assert run(p, struct.pack('>BxIxHx', 0x2a, 70000, 1), out=b'f' * 512, lun=2)[0] == 'good'
    got = run(p, [0x04, 0, 0, 0, 0, 0], lun=2)[0]
    is_('FORMAT UNIT without IMMED ends when it is done', got == 'good' and
        run(p, struct.pack('>BxIxHx', 0x28, 70000, 1), 512, lun=2)[1] == bytes(512), got)


def page_1c_02(on=(0, 0), count=(0, 0), situa=0):
    return struct.pack('>BBHB11x', 0x5c, 2, 28, situa) + b''.join(
        struct.pack('>BBxxI', 0x80 * on[i] | i, i + 1, count[i]) for i in (0, 1))


def thresholds():
    """LUN 3: a thin unit of 64 MiB in a file; LUN 1: not thin. Sets of 2^11 blocks: 1 MiB."""
    p, q = log_in(3), log_in(3)

    def select(page):
        return run(p, [0x55, 0x10, 0, 0, 0, 0, 0, 0, 8 + len(page), 0], out=bytes(8) + page, lun=3)[0]

    def told(who, want=True):
        deadline = time.time() + (20 if want else 5)
        while time.time() < deadline:
            got = run(who, b'\0' * 6, lun=3)[0]
            if got != 'good' and got != '06/2a/01':
                return got == '06/38/07'
            time.sleep(0.1)
        return False

    def log(p):
        d = run(p, [0x4d, 0, 0x4c, 0, 0, 0, 0, 0, 64, 0], 64, lun=3)[1]
        assert len(d) == 28, d.hex()
        return struct.unpack('>IB', d[8:13]) + struct.unpack('>IB', d[20:25])

    b2 = run(p, [0x12, 1, 0xb2, 0, 64, 0], 64, lun=3)[1]
    is_('VPD B2h has the exponent 11', b2[4] == 11, b2.hex())
    d = run(p, [0x5a, 8, 0x1c, 2, 0, 0, 0, 0, 64, 0], 64, lun=3)[1]
    is_('mode page 1Ch/02h: two thresholds, disabled', d[8:] == page_1c_02(), d.hex())
    d = run(p, [0x5a, 8, 0x5c, 2, 0, 0, 0, 0, 64, 0], 64, lun=3)[1]
    is_('... of which state and count are changeable', d[12] == 1 and d[24:32].hex() == '80000000ffffffff' and
        d[32:40].hex() == '80000000ffffffff', d.hex())
    left, scope, used, used_scope = log(p)
    is_('the log page says what is left for all, and used by it', scope == 2 and used_scope == 1 and left > 100 and
        used == 0, left, scope, used, used_scope)
    got = run(p, [0x55, 0x10, 0, 0, 0, 0, 0, 0, 40, 0], out=bytes(8) + page_1c_02()[:17] + b'\3' +
              page_1c_02()[18:], lun=3)[0]
    is_('another resource is refused', got == '05/26/00', got)
    is_('a threshold of what is used', select(page_1c_02((0, 1), (0, 8))) == 'good')
    is_('... far off: nobody is told', not told(p, False))
    for lba in range(0, 16384, 128):
        assert run(p, struct.pack('>BxIxHx', 0x2a, lba, 128), out=b'u' * 65536, lun=3)[0] == 'good'
    is_('... reached: this initiator is told, by 06/38/07', told(p))
    is_('... and the other one', told(q))
    is_('... once', not told(p, False))
    is_('the log page says how much', log(p)[2] == 8, log(p))
    is_('a threshold of what is left, for one nexus', select(page_1c_02((1, 0), (left + 1000, 0), 1)) == 'good')
    one, other = told(p), told(q, False)
    if not one:
        one, other = other, one
    is_('... reached: one is told, and one alone', one and not other, one, other)
    r = log_in(1)
    b2 = run(r, [0x12, 1, 0xb2, 0, 64, 0], 64)[1]
    is_('not thin: no exponent, no mode page', b2[4] == 0 and
        run(r, [0x5a, 8, 0x1c, 2, 0, 0, 0, 0, 64, 0], 64)[0] == '05/24/00', b2.hex())


def groups_of(p, cdb1=0x0a, lun=1):
    """REPORT TARGET PORT GROUPS: {group: (state, preferred, status, ports)}, transition time."""
    what, d = run(p, [0xa3, cdb1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0], 512, lun=lun)
    assert what == 'good', what
    assert struct.unpack('>I', d[:4])[0] == len(d) - 4, d.hex()
    at, found = (8 if cdb1 & 0xe0 else 4), {}
    while at < len(d):
        n = d[at + 7]
        assert d[at + 1] == 0x8f, d.hex()
        found[struct.unpack('>H', d[at + 2:at + 4])[0]] = (
            d[at] & 15, d[at] >> 7, d[at + 5],
            [struct.unpack('>H', d[at + 10 + 4 * i:at + 12 + 4 * i])[0] for i in range(n)])
        at += 8 + 4 * n
    return found, (d[5] if cdb1 & 0xe0 else None)


def designators(p):
    d, at, found = run(p, [0x12, 1, 0x83, 2, 0, 0], 512)[1], 4, {}
    while at < len(d):
        kind = d[at + 1] & 0x0f
        if kind in (4, 5):
            found[kind] = struct.unpack('>H', d[at + 6:at + 8])[0]
        at += 4 + d[at + 3]
    return found[4], found[5]


def at_portal(port):
    p = Peer(address=('127.0.0.1', port)).login('ImmediateData=Yes')
    while run(p, b'\0' * 6)[0].startswith('06'):
        pass
    return p


def step(name, ok, *more):
    """A line, and on with it when the other side has done its part."""
    is_(name, ok, *more)
    sys.stdin.readline()


def attentions(p):
    """Those that are there, and what TEST UNIT READY says then."""
    found = []
    while True:
        got = run(p, b'\0' * 6)[0]
        if not got.startswith('06'):
            return found, got
        found.append(got[3:])


SECOND = int(os.environ.get('SECOND', 0))
# by state: TEST UNIT READY, INQUIRY, REPORT LUNS, MODE SENSE, PR IN, READ, START, LOG SENSE
PROBES = [([0, 0, 0, 0, 0, 0], 0), ([0x12, 0, 0, 0, 96, 0], 96), ([0xa0] + [0] * 8 + [64, 0, 0], 64),
          ([0x1a, 8, 0x0a, 0, 64, 0], 64), ([0x5e, 0, 0, 0, 0, 0, 0, 0, 64, 0], 64),
          ([0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], 512), ([0x1b, 0, 0, 0, 1, 0], 0),
          ([0x4d, 0, 0x40, 0, 0, 0, 0, 0, 64, 0], 64)]


def probe(p):
    return [run(p, *x)[0] for x in PROBES]


def port_groups():
    one, two = at_portal(Peer.address[1]), at_portal(SECOND)
    got, _ = groups_of(one)
    is_('one group with both ports', got == {1: (0, 0, 0, [1, 2])}, got)
    step('VPD 83h: ports 1 and 2, group 1', (designators(one), designators(two)) == ((1, 1), (2, 1)))
    got = attentions(one), attentions(two)
    is_('group 2 has port 2: INQUIRY DATA HAS CHANGED, ASYMMETRIC ACCESS STATE CHANGED',
        got == ((['2a/06', '3f/03'], 'good'),) * 2, got)
    step('VPD 83h: groups 1 and 2', (designators(one), designators(two)) == ((1, 1), (2, 2)))
    # alua_state 2=standby, preferred 1, transition time 30
    got = attentions(one), attentions(two)
    is_('standby: everybody hears of it; port 1 is ready, port 2 is not',
        got == ((['2a/06'], 'good'), (['2a/06'], '02/04/0b')), got)
    got = groups_of(two, 0x2a)
    is_('... REPORT TARGET PORT GROUPS with the extended header',
        got == ({1: (0, 1, 0, [1]), 2: (2, 0, 2, [2])}, 30), got)
    got = run(two, [3, 0, 0, 0, 64, 0], 64)[1]
    is_('... REQUEST SENSE says why', got[2] & 15 == 2 and got[12:14] == b'\x04\x0b', got.hex())
    wait, ok = '02/04/0b', 'good'
    got = probe(two)
    step('... what standby takes', got == [wait, ok, ok, ok, ok, wait, wait, ok], got)
    # 1=transitioning;2=unavailable
    for p, code, name in ((one, '02/04/0a', 'transitioning'), (two, '02/04/0c', 'unavailable')):
        got = attentions(p)
        is_(name + ': it is heard, and refused', got == (['2a/06'], code), got)
        got = probe(p)
        is_('... what it takes', got == [code, ok, ok, code, code, code, code, code], got)
    got, _ = groups_of(one)
    step('... and both are told', {g: got[g][0] for g in got} == {1: 15, 2: 3}, got)
    # explicit, both active
    attentions(one), attentions(two)
    got = run(two, [0xa4, 0x0a] + [0] * 7 + [12, 0, 0], out=struct.pack('>IBxHBxH', 0, 1, 1, 2, 9))[0]
    is_('SET TARGET PORT GROUPS with a group that is not there: nothing is set', got == '05/26/00' and
        groups_of(one)[0][1][0] == 0, got)
    got = run(two, [0xa4, 0x0a] + [0] * 7 + [12, 0, 0], out=struct.pack('>IBxHBxH', 0, 2, 1, 1, 2))[0]
    is_('... with both', got == 'good' and [groups_of(two)[0][g][:3] for g in (1, 2)] ==
        [(2, 1, 1), (1, 0, 1)], got, groups_of(two))
    got = attentions(one), attentions(two)
    step('... the other one hears of it, who has set it does not',
         got == ((['2a/06'], '02/04/0b'), ([], 'good')), got)
    # the administrator takes it back
    got = attentions(one), attentions(two)
    is_('the administrator sets them back', got == ((['2a/06'], 'good'), (['2a/06'], 'good')), got)


def restarted():
    two = Peer(address=('127.0.0.1', SECOND)).login('ImmediateData=Yes')
    got = attentions(two)
    is_('after a restart port 2 is in standby', got[1] == '02/04/0b', got)
    got = groups_of(two, 0x2a)
    is_('... and the groups are as they were', got == ({1: (0, 1, 0, [1]), 2: (2, 0, 2, [2])}, 30), got)


def send_targets(port):
    """What a discovery session at @port is told: [(name, address), ...]."""
    p = Peer(address=('127.0.0.1', port)).login(session='Discovery')
    p.out(pdu(0x44, 0x80, 0, 0x51, struct.pack('>III', NONE, p.cmdsn, p.statsn), b'SendTargets=All\0'))
    head, data = p.recv()
    assert head[0] == 0x24, head.hex()
    p.close()
    found, name = [], None
    for line in data.decode().split('\0'):
        if line.startswith('TargetName='):
            name = line[11:]
            found.append((name, None))
        elif line:
            found.append((name, line.split('=', 1)[1]))
    return found


def login_status(port, target):
    p = Peer(address=('127.0.0.1', port))
    p.send(p.login_pdu(['InitiatorName=' + p.name, 'SessionType=Normal', 'TargetName=' + target]))
    head, _ = p.recv()
    p.close()
    return head[36] << 8 | head[37]


def bound():
    """Target `bound` is bound to the second portal; `answers` is at both."""
    first, there = Peer.address[1], Peer.target.replace('answers', 'bound')
    for port in (first, SECOND):
        got = send_targets(port)
        is_('discovery at port %s shows what is bound' % 'ab'[port == SECOND],
            [a for n, a in got if n == there] == [None, '127.0.0.1:%u,2' % SECOND] and
            len([a for n, a in got if n == Peer.target]) == 3, got)
    got = login_status(first, there), login_status(SECOND, there)
    is_('a login at the other one: 0203', got == (0x203, 0), ['%04x' % x for x in got])
    Peer.target = there
    p = at_portal(SECOND)
    got, _ = groups_of(p)
    is_('it has that port alone', got == {1: (0, 0, 0, [2])}, got)
    step('... in VPD 88h, too', struct.unpack('>H', run(p, [0x12, 1, 0x88, 2, 0, 0], 512)[1][6:8])[0] == 2)
    got = attentions(p)
    is_('bound to both: INQUIRY DATA HAS CHANGED', got == (['3f/03'], 'good'), got)
    got, _ = groups_of(p)
    is_('... and both ports', got == {1: (0, 0, 0, [1, 2])}, got)
    is_('... where it lets in', login_status(first, there) == 0)
    got = [a for n, a in send_targets(first) if n == there]
    step('... and discovery shows both', len(got) == 3, got)
    got = [a for n, a in send_targets(first) if n == there]
    is_('bound to a portal that is not there: nobody is shown it', got == [], got)
    is_('... sessions that are there stay', attentions(p)[1] == 'good')


for scene in sys.argv[2:]:
    try:
        globals()[scene]()
    except (Gone, AssertionError, OSError, KeyError, IndexError, struct.error) as e:
        is_(scene, False, type(e).__name__, e)
sys.exit(is_.failures > 0)
