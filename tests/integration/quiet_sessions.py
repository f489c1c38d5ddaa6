#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Sessions that do nothing go on when the worker is killed (issue 17, item 6): no login, no unit attention.

    quiet_sessions.py kinds TGTD_BIN DIR         each kind of session; what was under way; ends, again and again
    quiet_sessions.py kills TGTD_BIN DIR KILLS   killed again and again beside sessions under load
    quiet_sessions.py hostile TGTD_BIN DIR KILLS ... beside halves of PDUs, commands in a row, logins, logouts
    quiet_sessions.py late TGTD_BIN DIR LATE_SO  killed when loops serve, and the main thread has got no processor

A session that went on answers by the next StatSN on the connection that it had. Prints a TAP line for each thing that must
hold.
"""
import os, signal, struct, sys, threading, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
from planned_restart import IQN, KINDS, Load, Session, Tgtd, finish, io, second, READ, WRITE
from iscsi_peer import Gone, NONE, Peer, is_, pdu

QUICK = 10.3  # seconds: keeper.c takes a worker that has lived as long for one that serves
REST = 0.5  # seconds: nothing tells a client that its answer, which it has, is in the record


class Kills:
    """The worker is killed; of two ends in a row one at most comes soon."""

    def __init__(self, t, sig=signal.SIGKILL):
        self.t, self.soon, self.since, self.sig = t, False, time.monotonic(), sig

    def kill(self, sig=None):
        if self.soon:
            time.sleep(max(0, self.since + QUICK - time.monotonic()))
        lived = time.monotonic() - self.since
        before = self.t.worker()
        os.kill(before, sig or self.sig)
        ok = self.t.another(before)
        self.since = time.monotonic()
        self.soon = lived < QUICK
        return ok


def goes_on(s, lun=1):
    """It answers on its connection, by the number that is due, and nothing was noticed."""
    try:
        s.out(s.nop(0x4e4f51))
        head, _ = s.recv()
        while head[0] != 0x20 or head[16:20] != b'\0NOQ':
            head, _ = s.recv()
        return s.run(b'\0', lun=lun)[0] == 'good' and not s.noticed
    except (Gone, AssertionError, OSError):
        return False


def in_step(s):
    """All that was sent is answered and, at ErrorRecoveryLevel 1, acknowledged."""
    assert s.answers()
    if 'ErrorRecoveryLevel=1' in s.keys[:1]:
        s.out(pdu(0x40, 0x80, 0, NONE, struct.pack('>III', NONE, s.cmdsn, s.statsn)))
        time.sleep(0.5)  # nothing says that it has come
    s.noticed.clear()
    return s


def wait(condition, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return False


def chapped(user, secret):
    p = Session.__new__(Session)
    Peer.__init__(p, timeout=60)
    p.noticed, p.number, p.max_cmdsn, p.next_sn, p.keys = [], Peer.count, None, None, ()
    assert p.chap(7, user, secret) == 0
    answer = p.login_step(1, 3, ['ImmediateData=Yes'])
    assert answer[None] == (0, True), answer
    p.next_sn = p.statsn
    return p


def name(keys):
    return ', '.join(keys) or 'ordinary'


def kinds(bin, dir):
    t = Tgtd(bin, dir)
    t.configure(4)
    t.must('account', 'new', '--user', 'joe', '--password', 'secretsecret')
    t.must('target', 'new', '--tid', 2, '--targetname', IQN + '.chap')
    t.must('target', 'bind', '--tid', 2, '-I', 'ALL')
    t.must('account', 'bind', '--tid', 2, '--user', 'joe')
    with open(dir + '/disk-chap', 'wb') as f:
        f.truncate(8 << 20)
    t.must('logicalunit', 'new', '--tid', 2, '--lun', 1, '-b', dir + '/disk-chap')
    kills = Kills(t)
    sessions = [Session(*keys).ready() for keys in KINDS]
    Peer.target = IQN + '.chap'
    chap = chapped('joe', 'secretsecret').ready()
    Peer.target = IQN
    two = Session('MaxConnections=2')
    other = second(two)
    two.ready()
    other.cmdsn = two.cmdsn
    other.answers()
    holder = Session().ready()
    holder.run(b'\0', lun=2)
    is_('RESERVE of SPC-2', holder.run(b'\x16', lun=2)[0] == 'good')
    told, sized = Session().ready(), Session().ready()
    for lun in (3, 4):  # it knows their sizes
        sized.run(b'\0', lun=lun)
    for s in sessions + [told]:
        s.run(b'\0', lun=2)
        s.noticed.clear()
    t.must('logicalunit', 'update', '--tid', 1, '--lun', 2, '--params', 'vendor_id=OTHER')
    data = b'D' * 4096
    is_('a write', sessions[0].run(io(WRITE, 128, 8), out=data) == ('good', b''))
    everyone = sessions + [chap, two, holder, told]
    for s in everyone + [sized]:
        in_step(s)
    for lun, mib in (3, 16), (4, 4):  # nobody who serves looks at it
        os.truncate('%s/disk-%d' % (dir, lun), mib << 20)
    clean = in_step(Session())  # no command was ever sent: POWER ON pends

    # Busy ones: a write whose data does not come, half of a header, the number after the next, a ping of ours
    writes, half, gap = (in_step(Session().ready()) for _ in range(3))
    writes.out(writes.write(512, 8))
    is_('it is asked for', writes.recv()[0][0] == 0x31)
    half.send(half.read(64, 8)[:20])
    gap.cmdsn += 1
    gap.out(gap.read(64, 8))
    pair = Session('MaxConnections=2')
    busy = second(pair)
    in_step(pair.ready())
    busy.cmdsn = pair.cmdsn
    busy.answers()
    busy.send(busy.read(64, 8)[:30])
    time.sleep(0.5)  # (what is not read yet would not be lost)
    is_('killed, and another one serves', kills.kill(), t.log()[-2000:])

    for s, keys in zip(sessions, KINDS):
        is_('it goes on: ' + name(keys), goes_on(s), s.noticed)
    is_('... with CHAP', goes_on(chap), chap.noticed)
    other.cmdsn = two.cmdsn
    other.out(other.read(128, 8))
    is_('... with two connections: the second', other.wait_status(other.itt - 1) == (data, 0))
    two.cmdsn = other.cmdsn
    is_('... and the first', goes_on(two), two.noticed)
    is_('... without a command yet: POWER ON pends as before', clean.run(b'\0')[0].startswith('06/29/'))
    is_('what was written is there', sessions[0].run(io(READ, 128, 8), 4096)[1] == data)
    is_('RESERVE holds', holder.run(b'\0', lun=2)[0] in ('good', '06/3f/03') and
        sessions[0].run(io(READ, 0, 1), 512, lun=2)[0] in ('status 18', '06/3f/03'))
    sizes = [[sized.run(b'\0', lun=lun)[0] for lun in (1, 3, 3, 4, 4)] for _ in range(2)]
    is_('a store has another size by now: CAPACITY DATA HAS CHANGED, once',
        sizes == [['good', '06/2a/09', 'good', '06/2a/09', 'good'], ['good'] * 5], sizes)
    capacity = [int.from_bytes(sized.run(b'\x25', 8, lun=lun)[1][:4], 'big') for lun in (3, 4)]
    is_('... which is that', capacity == [(mib << 20) // 512 - 1 for mib in (16, 4)], capacity)
    is_('an attention that pended is told', told.run(b'\0', lun=2)[0] in ('06/3f/03', 'status 18'))
    for s, text in ((writes, 'a write that waits for its data'), (half, 'half of a header'), (gap, 'a command too early'),
                    (pair, 'two connections, one of them busy'), (busy, '... the busy one')):
        is_('it is reset: ' + text, s.closed_by_target())
    is_('nobody has logged in', t.stat('iscsi_conns_accepted') == 0, t.stat('iscsi_conns_accepted'))
    is_('those that were reset log in again', all(Session().ready() for _ in range(5)))

    # A second end, at once and after a planned one; who ends is gone for good
    for s in everyone:
        s.noticed.clear()
        s.run(b'\0', lun=1)
        in_step(s)
    is_('a planned restart', t.restart()[0] == 0)
    kills.since = time.monotonic()
    for s in everyone:
        is_('it goes on after it', goes_on(s), s.noticed)
        in_step(s)
    sessions[1].logout()
    sessions[2].close()
    wait(lambda: t.must('target', 'show').count('I_T nexus: ') <= len(everyone) + 4)
    sessions = [sessions[0]] + sessions[3:]
    for s in sessions:
        in_step(s)
    is_('killed once more', kills.kill())
    for s in sessions + [chap, two, holder]:
        is_('it goes on after that', goes_on(s), s.noticed)
        in_step(s)
    is_('killed by SIGSEGV', kills.kill(signal.SIGSEGV))
    for s in sessions + [chap, two, holder]:
        is_('it goes on after that, too', goes_on(s), s.noticed)
    for s in sessions:
        s.logout()
    is_('it ends with 0', t.stop() == 0, t.log()[-2000:])
    is_('no system call was refused', 'system call' not in t.log(), [x for x in t.log().splitlines() if 'system call' in x][:3])


def kills(bin, dir, n):
    t = Tgtd(bin, dir)
    t.configure()
    loads = [Load(i, Session(*keys).ready(), 7, depth=4, again=True) for i, keys in enumerate(KINDS)]
    calm = [in_step(Session(*keys).ready()) for keys in KINDS]
    for l in loads:
        l.s.noticed.clear()
        l.start()
    k, went_on, serves = Kills(t), 0, True
    for _ in range(int(n)):
        done = sum(l.done for l in loads)
        wait(lambda: sum(l.done for l in loads) > done + 50)
        for s in calm:
            in_step(s)
        time.sleep(REST)
        serves &= k.kill()
        on = [goes_on(s) for s in calm]
        went_on += sum(on)
        for i, s in enumerate(calm):
            if not on[i]:
                print('# not: %s: %s' % (name(s.keys), s.noticed))
                calm[i] = in_step(Session(*s.keys).ready())
    is_('killed %s times: another one serves' % n, serves, t.log()[-3000:])
    is_('all %u quiet sessions went on, each time (%u)' % (len(calm), went_on), went_on == len(calm) * int(n),
        [x for x in t.log().splitlines() if 'ends' in x][-12:])
    finish(loads)
    for l in loads:
        is_('under load, %s: nothing acknowledged is lost (%u commands, %u logins)' % (name(l.s.keys), l.done, l.logins),
            not l.errors, l.errors)
    is_('it ends with 0', t.stop() == 0, t.log()[-2000:])


class Busy(threading.Thread):
    """Does one thing again and again, and takes whatever becomes of it."""

    def __init__(self, what):
        super().__init__(daemon=True)
        self.what, self.over, self.n, self.failed = what, False, 0, []

    def run(self):
        while not self.over:
            try:
                self.what()
                self.n += 1
            except (Gone, OSError):
                time.sleep(0.01)
            except (AssertionError, Exception) as e:
                self.failed.append(repr(e))
                time.sleep(0.1)


def in_and_out():
    s = Session()
    s.run(b'\0')
    s.logout()


def logs_in():
    Session().sock.close()


def pings():
    s = Session().ready()
    for _ in range(50):
        for i in range(8):
            s.out(s.nop(i, immediate=i % 2))
        for i in range(8):
            s.recv()
    s.sock.close()


def discovers():
    Peer(timeout=60).login(session='Discovery').sock.close()


def hostile(bin, dir, n):
    t = Tgtd(bin, dir)
    t.configure()
    others = [Busy(what) for what in (in_and_out, in_and_out, logs_in, pings, discovers)]
    calm = [in_step(Session(*keys).ready()) for keys in KINDS]
    for o in others:
        o.start()
    k = Kills(t)
    for i in range(int(n)):
        done = [o.n for o in others]
        wait(lambda: all(o.n > d for o, d in zip(others, done)))
        half = []
        for cut in (1, 47, 48, 49, 48 + 4096):  # of a write with immediate data, all of which is read but never answered
            s = in_step(Session().ready())
            s.send(s.write(8192 // 512 * 20, 16, b'H' * 8192)[:cut])
            half.append(s)
        row = in_step(Session().ready())  # commands in a row, which nobody waits for
        row.send(b''.join(row.read(b * 8, 8) for b in range(32)))
        for s in calm:
            in_step(s)
        time.sleep(REST)
        k.soon |= i % 2 == 1  # (its own end must not be one of two that come soon)
        ok = k.kill()
        if i % 2:  # and the next one, as soon as it serves, or while the one after that starts
            before = t.worker()
            try:
                os.kill(before, signal.SIGKILL)
            except ProcessLookupError:
                pass
            ok &= t.another(before)
            k.since, k.soon = time.monotonic(), True
        went = [goes_on(s) for s in calm]
        # (A worker that is killed as it takes sessions over may have touched one: that one ends.)
        least = len(went) - i % 2
        is_('all quiet sessions go on among logins, logouts, pings', sum(went) >= least, went, t.log()[-2000:])
        calm = [s if on else in_step(Session(*s.keys).ready()) for s, on in zip(calm, went)]
        is_('halves are reset', all(s.closed_by_target() for s in half))
        is_('another one serves', ok)
        for s in half:
            s.close()
        try:  # it got all answers, or an end; never the answer to something else
            got = [row.recv()[0] for _ in range(32)]
            is_('answers in a row are those that are due', not row.noticed and len(got) == 32, row.noticed)
        except Gone:
            pass
        row.close()
    for o in others:
        o.over = True
    for o in others:
        o.join(60)
        is_('nobody was told nonsense', not o.failed, o.failed[:3])
    time.sleep(max(0, k.since + QUICK - time.monotonic()))
    for s in calm:
        in_step(s)
    time.sleep(REST)
    is_('a first end', k.kill() and all(goes_on(s) for s in calm), t.log()[-2000:])
    for s in calm:
        in_step(s)
    time.sleep(REST)
    before = t.worker()
    os.kill(before, signal.SIGKILL)
    is_('a second one within ten seconds', t.another(before) and all(goes_on(s) for s in calm), t.log()[-2000:])
    for s in calm:
        in_step(s)
    before = t.worker()
    os.kill(before, signal.SIGKILL)
    is_('after a third one another one serves', t.another(before))
    is_('... and all sessions have ended: one of them may be the cause', all(s.closed_by_target() for s in calm))
    for s in calm:
        s.close()
    is_('the sessions that ended are gone', wait(lambda: 'I_T nexus: ' not in t.must('target', 'show')), t.must('target', 'show'))
    fds = lambda: len([f for f in os.listdir('/proc/%d/fd' % t.process.pid)
                       if 'socket' in os.readlink('/proc/%d/fd/%s' % (t.process.pid, f))])
    is_('... and the keeper has none of their sockets', wait(lambda: fds() <= 6), fds())
    is_('it ends with 0', t.stop() == 0, t.log()[-2000:])


def late(bin, dir, late_so):
    """What one session does to another before the keeper has what that is now: told, or not done."""
    os.environ['LATE_QUIET'] = waits = dir + '/waits'
    t = Tgtd(bin, dir, '--seccomp', 'off', preload=late_so)
    t.configure()
    for planned in False, True:
        a, b = (in_step(Session().ready()) for _ in range(2))
        a.sock.settimeout(5)
        time.sleep(QUICK)  # (it is not one of those that die soon)
        before, restored = t.worker(), t.log().count('restored what was configured')
        open(waits, 'w').close()
        if planned:
            asked = threading.Thread(target=t.restart)
            asked.start()
        else:
            os.kill(before, signal.SIGKILL)
        wait(lambda: t.log().count('restored what was configured') > restored)
        done = False
        try:
            done = a.manage(5) == 0
        except (AssertionError, Gone, OSError):
            pass
        print('# LOGICAL UNIT RESET: %s' % ('done' if done else 'no answer yet'))
        for pid in children(t):
            os.kill(pid, signal.SIGKILL)
        os.unlink(waits)
        is_('another worker serves', t.another(before), t.log()[-2000:])
        if planned:
            asked.join(60)
        try:
            while not done:
                done = a.recv()[0][0] == 0x22
        except (AssertionError, Gone, OSError):
            pass
        try:
            told = b.run(b'\0')[0]
        except (Gone, OSError):
            told = 'its end'
        is_('who goes on is told of a reset that was %sdone: %s' % ('' if done else 'not ', told),
            told in (('06/29/03', 'its end') if done else ('good', 'its end')))
    is_('it ends with 0', t.stop() == 0, t.log()[-2000:])


def children(t):
    try:
        with open('/proc/%u/task/%u/children' % (t.process.pid, t.process.pid)) as f:
            return [int(pid) for pid in f.read().split()]
    except OSError:
        return []


if __name__ == '__main__':
    globals()[sys.argv[1]](*sys.argv[2:])
    sys.exit(is_.failures > 0)
