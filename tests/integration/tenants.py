#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Tenants of one target, each with a CHAP account, and what a login may ask for: defects W5, W8,
W11, W12.

    tenants.py PORT SCENE...

test_tenants.sh makes the targets. Prints TAP lines; ends with 1 when one of them is "not ok".
"""
import os, struct, sys, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
sys.dont_write_bytecode = True
from iscsi_peer import Gone, Peer, is_

Peer.address = ('127.0.0.1', int(sys.argv[1]))
IQN = 'iqn.2026-11.org.tgtd.test:'
Peer.target = IQN + 'shared'
A, B, C = ('%shost-%s' % (IQN, who) for who in 'abc')
SECRET = {'tenant-' + who: 'secret-of-tenant-' + who for who in 'abc'}
ISID, ISID2 = b'\x80\x11\x22\x33\x44\x55', b'\x80\x11\x22\x33\x44\x66'
FIRST = 0x12345678  # CmdSN that tells a session from others


def exchange(p, stage, to, keys, **ids):
    """One request, one response: its status, whether the stage ended, keys, ExpCmdSN, MaxCmdSN."""
    text = b''.join(k.encode() + b'\0' for k in keys)
    p.send(p.login_pdu([], flags=(0 if to is None else 0x80 | to) | stage << 2, data=text, **ids))
    head, data = p.recv()
    assert head[0] == 0x23, 'login: opcode %#x' % head[0]
    answer = dict(k.split('=', 1) for k in data.decode().split('\0') if k)
    p.tsih = struct.unpack('>H', head[14:16])[0]
    exp_cmd_sn, max_cmd_sn, status = struct.unpack('>IIH', head[28:38])
    return status, bool(head[1] & 0x80), answer, exp_cmd_sn, max_cmd_sn


def enter(name, user=None, isid=ISID, cmdsn=1, keys=(), **ids):
    """Logs in. The connection, and the status with which that ended."""
    p = Peer()
    p.name, p.cmdsn = name, cmdsn
    if user:
        status = p.chap(7, user, SECRET[user], isid=isid, **ids)
        if status:
            return p, status
        keys = list(keys)
    else:
        keys = p.names() + list(keys)
    status, ended, *_ = exchange(p, 1, 3, keys, isid=isid, **ids)
    assert status or ended, 'neither refused nor in full feature phase'
    return p, status


def refused(what, want, *who, **more):
    p, status = enter(*who, **more)
    is_('%s: %04x' % (what, want), status == want, 'status %04x' % status)
    if not status:
        time.sleep(0.2)  # what its session does to another's is seen below
    p.close()


def let_in(what, *who, **more):
    p, status = enter(*who, **more)
    is_(what, status == 0, 'status %04x' % status)
    return p


def leave(p):
    try:
        p.logout()
    except (Gone, OSError):
        p.close()


def alive(p):
    try:
        return p.answers()
    except (Gone, AssertionError):
        return False


def command(p, cdb, flags=0x81, edtl=0, data=b'', lun=1):
    """Data and status, past the unit attentions of a new session."""
    for _ in range(4):
        p.out(p.command(cdb, flags, edtl, data, lun=lun))
        got, status = p.wait_status(p.itt - 1)
        if status != 2:
            break
    return got, status


def pr_out(p, action, kind, key, new):
    cdb = struct.pack('>BBBxxIx', 0x5f, action, kind, 24)
    return command(p, cdb, 0xa1, 24, struct.pack('>QQ8x', key, new))[1]


def holder(p):
    return command(p, struct.pack('>BB5xHx', 0x5e, 1, 256), 0xc1, 256)[0][8:16]


# ---- W5 ----------------------------------------------------------------------------------------

def reinstatement():
    """Nobody but the account that made it ends, joins or inherits a session."""
    a = let_in('A logs in', A, 'tenant-a', cmdsn=FIRST)
    is_('... sees LUN 1', command(a, b'')[1] == 0)
    is_('... registers a key', pr_out(a, 0, 0, 0, 0xaaaa) == 0)
    is_('... reserves LUN 1', pr_out(a, 1, 1, 0xaaaa, 0) == 0)
    for i in range(3):
        refused("B under A's name and ISID", 0x202, A, 'tenant-b')
    refused("B under A's name, ISID and TSIH", 0x202, A, 'tenant-b', tsih=a.tsih, cid=1)
    refused("B under A's name, ISID, TSIH and CID", 0x202, A, 'tenant-b', tsih=a.tsih)
    refused("B under A's name with another ISID", 0x202, A, 'tenant-b', isid=ISID2)
    refused('nobody under it', 0x201, A)
    is_("A's session goes on", alive(a))
    try:
        kept = holder(a) == struct.pack('>Q', 0xaaaa)
    except (Gone, AssertionError):
        kept = False
    is_("A's reservation stays", kept)
    b = let_in('B under a name of its own', B, 'tenant-b')
    is_('... sees no LUN 1', command(b, b'')[1] != 0)
    leave(b)
    other = let_in('A with another ISID: a second session', A, 'tenant-a', isid=ISID2)
    leave(other)
    again = let_in('A reinstates its session', A, 'tenant-a', cmdsn=FIRST)
    is_('... the old one ends', a.closed_by_target())
    is_('... its reservation stays', holder(again) == struct.pack('>Q', 0xaaaa))
    is_('... and is given back',
        pr_out(again, 2, 1, 0xaaaa, 0) == 0 and pr_out(again, 0, 0, 0xaaaa, 0) == 0)
    # An initiator that hangs up, or logs out, may be back at once with another account.
    for how in range(6):
        user = ('tenant-b', 'tenant-a')[how % 2]
        if how < 3:
            leave(again)
        else:
            again.close(reset=how == 5)
        end = time.monotonic() + 30
        again, status = enter(A, user)
        # That it has hung up may be seen a little later, on a busy machine.
        while status and how >= 3 and time.monotonic() < end:
            again.close()
            again, status = enter(A, user)
        is_('it has left, and is back with another account', not status, 'status %04x' % status)
    again.close()


def open_session():
    """A session without authentication is that of who needs none: see test_tenants.sh."""
    p = let_in('nobody has to prove anything', A, cmdsn=FIRST)
    print('# session %u' % p.tsih)
    sys.stdout.flush()
    sys.stdin.readline()  # accounts are bound meanwhile
    refused('an account under its name and ISID', 0x202, A, 'tenant-b')
    is_('the session goes on', alive(p))
    sys.stdin.readline()  # ... and taken away
    again = let_in('without an account again: it is reinstated', A)
    is_('... the old one ends', p.closed_by_target())
    leave(again)


def changed_account():
    """The account is deleted and made anew under its name, while its session lives."""
    p = let_in('A logs in', A, 'tenant-a')
    sys.stdin.readline()
    refused("another account under A's name", 0x202, A, 'tenant-b')
    is_('the session goes on', alive(p))
    SECRET['tenant-a'] = 'another-secret-of-a'
    again = let_in('the account with the same name reinstates it', A, 'tenant-a')
    is_('... the old one ends', p.closed_by_target())
    leave(again)


def ties():
    """tenant-a is tied to the name of A and to another, tenant-b and tenant-c are not."""
    for name in (A, IQN + 'host-a2'):
        leave(let_in('a tied account under its name', name, 'tenant-a'))
        refused('another account under it', 0x202, name, 'tenant-b')
    refused('a tied account under a name of nobody', 0x202, C, 'tenant-a')
    refused('a tied account under a name that another has used', 0x202, B, 'tenant-a')
    leave(let_in('an untied account under a name of nobody', B, 'tenant-b'))
    leave(let_in('... and another', C, 'tenant-b'))


def owner():
    """The administrator says whose a name is: who has it by other means loses it to its owner."""
    squatter = let_in("B under A's name, which is nobody's", A, 'tenant-b')
    refused('A finds it taken', 0x202, A, 'tenant-a')
    sys.stdin.readline()  # tenant-a is tied to it
    is_('who is in stays', alive(squatter))
    a = let_in('A takes it', A, 'tenant-a')
    is_('... the old session ends', squatter.closed_by_target())
    refused('B is not let in again', 0x202, A, 'tenant-b')
    is_("A's session goes on", alive(a))
    leave(a)


def untied():
    leave(let_in('the account logs in under any name again', C, 'tenant-a'))
    leave(let_in('... and others under its name', A, 'tenant-b'))


def spelling():
    """Reservations take two spellings of a name for one, so nobody is let in by another spelling."""
    Peer.target = IQN + 'spelled'
    big = A.upper().replace('IQN.', 'iqn.')
    a = let_in('A logs in', A, 'tenant-a')
    is_('... reserves LUN 1', command(a, b'')[1] == 0 and pr_out(a, 0, 0, 0, 0xaaaa) == 0 and
        pr_out(a, 1, 1, 0xaaaa, 0) == 0)
    for name in (big, A.upper()):
        refused("B under A's name in capitals", 0x202, name, 'tenant-b')
    b, status = enter(big, 'tenant-b')
    is_("... nor ends A's reservation so", status or command(b, b'') and pr_out(b, 3, 0, 0xaaaa, 0))
    b.close()
    p = Peer()
    p.name = A + ',i,0x801122334455'
    status, *_ = exchange(p, 0, None, p.names() + ['AuthMethod=CHAP,None'])
    is_('a name with a comma: 0200', status == 0x200, '%04x' % status)
    p.close()
    again = let_in('A in capitals is A', big, 'tenant-a')
    is_('... and reinstates its session', a.closed_by_target())
    is_('... its reservation stays', holder(again) == struct.pack('>Q', 0xaaaa))
    leave(again)
    b = let_in('B, to which LUN 1 is not shown, in capitals', B.upper(), 'tenant-b')
    is_('... sees no LUN 1', command(b, b'')[1] != 0)
    is_('... but LUN 2', command(b, b'', lun=2)[1] == 0)
    leave(b)
    sys.stdin.readline()  # tenant-c is tied to the name of C
    refused("B under C's name in capitals", 0x202, C.upper(), 'tenant-b')
    leave(let_in('C in capitals', C.upper(), 'tenant-c'))


def overtaken():
    """Logins that are under way while the administrator shuts them out."""
    Peer.target = IQN + 'spelled'
    ends = []

    def half(user, name):
        p = Peer()
        p.name = name
        if user:
            assert not p.chap(7, user, SECRET[user], isid=ISID)
        else:
            assert not exchange(p, 1, None, p.names(), isid=ISID)[0]
        ends.append((p, name, user))

    def finish(what, want):
        for p, name, user in ends:
            status, *_ = exchange(p, 1, 3, [], isid=ISID)
            is_('%s, %s of %s: %04x' % (what, name[-6:], user, want), status == want,
                '%04x' % status)
            p.close()
        ends.clear()

    half(None, A)
    is_('a login without an account is under way', True)
    sys.stdin.readline()
    finish('accounts are demanded meanwhile', 0x201)
    half('tenant-a', A)
    half('tenant-b', B)
    half('tenant-c', C)
    is_('logins with accounts are under way', True)
    sys.stdin.readline()
    finish('shut out meanwhile', 0x201)
    sys.stdin.readline()
    half('tenant-c', C)
    is_('a login with an account is under way', True)
    sys.stdin.readline()
    finish('no rule lets it in any more', 0x202)


# ---- W12 ---------------------------------------------------------------------------------------

def far(numbers):
    """Numbers that tell nothing of the session that began with FIRST."""
    return all(abs(n - FIRST) > 0x10000 for n in numbers)


def numbers():
    """No serial numbers of a session for who has not proven the right to it."""
    a, _ = enter(A, 'tenant-a', cmdsn=FIRST, keys=['MaxConnections=4'])
    for _ in range(5):
        command(a, b'')
    ids = dict(tsih=a.tsih, isid=ISID, cid=1)
    p = Peer()
    p.name = A
    status, _, _, *got = exchange(p, 1, 3, p.names(target=IQN + 'nobody'), **ids)
    is_('no such target', status == 0x203, '%04x' % status)
    is_("... and no numbers of A's session", far(got), got)
    p.close()
    for name in (A, B):
        p = Peer()
        p.name = name
        status, _, _, *got = exchange(p, 0, None, p.names() + ['AuthMethod=CHAP,None'], **ids)
        is_('before authentication there are none', not status and far(got), status, got)
        is_('... and nothing is opened', (got[1] - got[0]) & 0xffffffff == 0xffffffff, got)
        p.close()
    p = Peer()
    p.name = A
    p.chap(7, 'tenant-b', SECRET['tenant-b'], **ids)
    status, _, _, *got = exchange(p, 1, None, [], **ids)
    is_('nor for another account', far(got), got)
    p.close()
    a.out(a.command(b'', 0x81))
    a.wait_status(a.itt - 1)
    second = Peer()
    second.name, second.cmdsn = A, a.cmdsn
    second.chap(7, 'tenant-a', SECRET['tenant-a'], **ids)
    status, ended, _, *got = exchange(second, 1, 3, [], **ids)
    is_("a connection that is added has its session's",
        not status and ended and got[0] == a.cmdsn, status, got)
    is_('... and its window', got[1] - got[0] > 1, got)
    is_('the session goes on', alive(a) and alive(second))
    second.close()
    leave(a)


# ---- W8 ----------------------------------------------------------------------------------------

def bursts():
    """MaxBurstLength is 8192 here: FirstBurstLength never comes to more, and is taken."""
    Peer.target = IQN + 'bursts'
    first, last = 'FirstBurstLength=65536', 'MaxBurstLength=262144'
    ours = ['ImmediateData=Yes', 'InitialR2T=No', 'MaxRecvDataSegmentLength=65536']
    for what, steps in (('FirstBurstLength first', [[first, last]]),
                        ('MaxBurstLength first', [[last, first]]),
                        ('in requests of their own', [[first], [last]]), ('alone', [[first]]),
                        ('less offered later', [[first], ['MaxBurstLength=4096']])):
        p = Peer()
        got = {}
        for i, keys in enumerate(steps):
            keys = keys if i else p.names() + ours + keys
            to = 3 if i == len(steps) - 1 else None
            status, ended, answer, *_ = exchange(p, 1, to, keys)
            got.update(answer)
        most = got.get('MaxBurstLength', '262144')
        most = 262144 if most == 'Reject' else int(most)
        burst = int(got['FirstBurstLength'])
        is_('%s: %u of %u' % (what, burst, most),
            not status and ended and burst <= min(most, 8192), status, got)
        p.ready()
        p.out(p.write(0, burst // 512, bytes(burst)))
        try:
            is_('... as much immediate data is taken', p.wait_status(p.itt - 1)[1] == 0)
        except Gone as e:
            is_('... as much immediate data is taken', False, e)
        p.close()


# ---- W11 ---------------------------------------------------------------------------------------

def digests():
    """Both digests are CRC32C only: nobody gets in without them."""
    Peer.target = IQN + 'digests'
    both = {'HeaderDigest': 'CRC32C', 'DataDigest': 'CRC32C'}
    agreed = [k + '=' + v for k, v in both.items()]

    def asked(p):
        status, ended, answer, *_ = exchange(p, 1, 3, p.names())
        asks = not status and not ended and {k: answer.get(k) for k in both} == both
        is_('who offers none is asked', asks, status, ended, answer)
        return asks

    p = Peer()
    if asked(p):
        status, ended, answer, *_ = exchange(p, 1, 3, agreed)
        is_('... and gets in with them',
            not status and ended and not any(k in answer for k in both), status, answer)
        p.header_digest = p.data_digest = True
        p.ready()
        p.out(p.write(8, 8, bytes(4096)))
        is_('... which are in force', p.wait_status(p.itt - 1)[1] == 0)
        p.close()
    none = ['HeaderDigest=None', 'DataDigest=None']
    for what, keys in (('none', none), ('one', agreed[:1]), ('no answer', []),
                       ('NotUnderstood', ['HeaderDigest=NotUnderstood', 'DataDigest=CRC32C'])):
        p = Peer()
        if asked(p):
            status, *_ = exchange(p, 1, 3, keys)
            is_('... %s: 0200' % what, status == 0x200, '%04x' % status)
        p.close()
    for what, stage, keys in (('None is not enough', 1, none),
                              ('None and another is not', 1, [none[0] + ',CRC32C', none[1]]),
                              ('nor no negotiation at all', 0, [])):
        p = Peer()
        status, *_ = exchange(p, stage, 3, p.names() + keys)
        is_(what + ': 0200', status == 0x200, '%04x' % status)
        p.close()
    p = Peer().login('HeaderDigest=None,CRC32C', 'DataDigest=CRC32C,None')
    is_('who offers both ways gets CRC32C', p.header_digest and p.data_digest and alive(p))
    p.close()
    p = Peer().login(session='Discovery')
    is_('discovery needs none', True)
    p.close()


for scene in sys.argv[2:]:
    try:
        globals()[scene]()
    except (Gone, AssertionError, OSError, KeyError) as e:
        is_(scene, False, type(e).__name__, e)
sys.exit(is_.failures > 0)
