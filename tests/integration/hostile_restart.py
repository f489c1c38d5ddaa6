#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""One tenant against another while a worker takes over from one before: planned restarts, and a
worker that is killed.

    hostile_restart.py TGTD_BIN DIR RESTARTS

LUN 1 is A's, LUN 2 is B's, both see LUN 3. A has reservations, and a session that is to notice
nothing. B tries A's name meanwhile, and leaves its own sessions in the worst states that there are.
Prints TAP lines.
"""
import os, struct, sys, threading, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
sys.dont_write_bytecode = True
from iscsi_peer import NONE, Gone, Peer, is_, pdu
from planned_restart import Session, Tgtd
from tenant import ISID, enter, pr_in, pr_out, read, ready, tenant_login, write

TARGET = 'iqn.2026-11.org.tgtd.test:planned'
A, B = TARGET + '-a', TARGET + '-b'
KEEP = bytes(range(256)) * 16
USER = {A: 'tenant-a', B: 'tenant-b'}


class Tenant(Session):
    """A session with an account, that looks at all that it is told."""

    def __init__(self, name, isid=ISID, **more):
        self.tenant, self.isid = name, isid
        super().__init__(**more)

    def login(self, *keys, **more):
        status = tenant_login(self, self.tenant, USER[self.tenant], isid=self.isid)
        assert not status, '%s: %04x' % (self.tenant, status)
        return self


class Imposter(threading.Thread):
    """Logs in under A's name and ISID, again and again, with B's account; each second time it asks
    to join A's session."""

    def __init__(self, tsih):
        super().__init__(daemon=True)
        self.over, self.statuses, self.tsih = False, {}, tsih

    def run(self):
        which = 0
        while not self.over:
            which = 1 - which
            try:
                p = Peer(timeout=60)
                status = '%04x' % tenant_login(p, A, 'tenant-b', tsih=which and self.tsih)
                p.close()
            except (Gone, OSError):
                status = 'gone'
            except AssertionError as e:
                status = str(e)[:60]
            self.statuses[status] = self.statuses.get(status, 0) + 1


def configure(t):
    t.must('target', 'new', '--tid', 1, '--targetname', TARGET)
    t.must('target', 'update', '--tid', 1, '--name', 'default-mask', '--value', 'none')
    for lun in 1, 2, 3:
        with open('%s/disk-%d' % (t.dir, lun), 'wb') as f:
            f.truncate(8 << 20)
        t.must('logicalunit', 'new', '--tid', 1, '--lun', lun, '-b', '%s/disk-%d' % (t.dir, lun))
    for name, luns in ((A, '1,3'), (B, '2,3')):
        t.must('account', 'new', '--user', USER[name], '--password', 'secret-of-' + USER[name])
        t.must('account', 'bind', '--tid', 1, '--user', USER[name])
        t.must('target', 'bind', '--tid', 1, '-Q', name)
        t.must('target', 'update', '--tid', 1, '-Q', name, '--expose', luns)


# ---- B's sessions, as a restart finds them -------------------------------------------------------

def half_header(p):
    whole = p.write(0, 8, b'h' * 4096, lun=2)
    p.send(whole[:20])
    p.rest = whole[20:]


def half_data(p):
    whole = p.write(8, 8, b'd' * 4096, lun=2)
    p.send(whole[:48 + 2000])
    p.rest = whole[48 + 2000:]


def owes_data(p):
    p.out(p.write(16, 128, lun=2))
    assert p.recv()[0][0] == 0x31, 'R2T'


def held(p):
    for i in range(20):  # what comes before them never does
        p.out(p.command(bytes(6), 0x81, cmdsn=p.cmdsn + 1 + i, itt=900 + i, lun=2))


def open_text(p):
    p.out(pdu(0x44, 0x40, 0, 0x51, struct.pack('>III', NONE, p.cmdsn, p.statsn), b'X-half='))


def half_login(p):
    """Under A's name, in the middle of its steps."""
    p.name = A
    p.login_step(0, None, p.names(target=TARGET) + ['AuthMethod=CHAP,None'], isid=ISID)


def deaf(p):
    """Does not read what it has asked for."""
    for _ in range(100):
        p.out(p.command(struct.pack('>BxIxHx', 0x28, 0, 1024), 0xc1, 1024 * 512, lun=2))


def resets(p):
    """Task management that is under way."""
    for i in range(60):
        p.out(pdu(0x42, 0x85, 3, 0x6000 + i, struct.pack('>IIII', NONE, p.cmdsn, p.statsn, 0)))


STATES = (half_header, half_data, owes_data, held, open_text, half_login, deaf, resets)


def talk(p, stop):
    """Never silent: what comes in while it is carried over is as good as at any other time."""
    try:
        while not stop.is_set():
            assert p.answers()
    except (Gone, AssertionError, OSError):
        pass


def sessions_of_b():
    many = []
    for i, state in enumerate(STATES):
        p = Peer(rcvbuf=4096 if state is deaf else 0, timeout=60)
        if state is not half_login:
            assert not tenant_login(p, B, 'tenant-b', isid=b'\x80\x22\0\0\0' + bytes([i]))
            ready(p, 2, 3)
        state(p)
        many.append(p)
    return many


def finish_halves(many):
    """What was half there is made whole: it is what it would have been, or its session has
    ended."""
    for p, lba, want in ((many[0], 0, b'h'), (many[1], 8, b'd')):
        try:
            p.send(p.rest)
            _, status = p.wait_status(p.itt - 1)
            b = ready(enter(B, 'tenant-b', isid=b'\x80\x33\0\0\0\0'), 2)
            is_('a write of which half had come is whole',
                status == 0 and read(b, lba, 8, lun=2)[1] == want * 4096, status)
            b.logout()
        except (Gone, OSError) as e:
            print('# %s: its session has ended: %s' % (want, e))


# ---- A, meanwhile --------------------------------------------------------------------------------

def attentions(p, lun):
    """B may reset the unit that both see: A is told, and that is all."""
    while Peer.run(p, bytes(6), lun=lun)[0].startswith('06'):
        pass


def unharmed(a, when):
    got = read(a, 0, 8)
    is_('%s: A reads what it wrote' % when, got == ('good', KEEP), got[0])
    other = enter(A, 'tenant-a', isid=b'\x80\x66\0\0\0\0')
    got = other.run(bytes(6))[0], other.run(bytes(6))[0]
    is_("... A's RESERVE of LUN 1 keeps its other session out", got[1] == 'status 18', got)
    other.logout()
    attentions(a, 3)
    got = pr_in(a, 1, lun=3)
    is_("... A's persistent reservation of LUN 3", got[1][8:16] == struct.pack('>Q', 0xa3), got)
    attacker = ready(enter(B, 'tenant-b', isid=b'\x80\x44\0\0\0\0'), 2)
    attentions(attacker, 3)
    got = write(attacker, 0, b'B' * 512, lun=3), write(attacker, 0, b'B' * 512, lun=1)
    is_('... which keeps B out', got == ('status 18', '05/25/00'), got)
    attacker.logout()
    noticed = [x for x in a.noticed if 'sense 700006' not in x]
    is_('... and has noticed nothing', not noticed, noticed[:5])
    a.noticed.clear()


def main(bin, dir, restarts):
    t = Tgtd(bin, dir)
    configure(t)
    a = Tenant(A)
    ready(a, 1, 3)
    assert write(a, 0, KEEP) == 'good' and a.run(b'\x16')[0] == 'good'
    assert pr_out(a, 0, 0, 0, 0xa3, lun=3) == 'good' and pr_out(a, 1, 1, 0xa3, lun=3) == 'good'
    a.noticed.clear()
    imposter = Imposter(a.tsih)
    imposter.start()
    for i in range(int(restarts)):
        many = sessions_of_b()
        talker, stop = ready(enter(B, 'tenant-b', isid=b'\x80\x55\0\0\0\0'), 2), threading.Event()
        speech = threading.Thread(target=talk, args=(talker, stop), daemon=True)
        speech.start()
        began = time.monotonic()
        rc, out = t.restart()
        took = time.monotonic() - began
        is_('restart %u among hostile sessions' % i, rc == 0, out, t.log()[-2000:])
        print('# it took %.1f s' % took)
        unharmed(a, 'after it')
        finish_halves(many)
        unharmed(a, 'when B has gone on')
        stop.set()
        speech.join(60)
        for p in (*many, talker):
            p.close(reset=True)
    imposter.over = True
    imposter.join(60)
    print('# logins under the name of A: %s' % imposter.statuses)
    is_("none of B's logins under A's name came in", '0000' not in imposter.statuses and
        imposter.statuses.get('0202', 0) > 0, imposter.statuses)

    # A worker that is killed takes A's session with it. Its name is tied: nobody else gets it.
    for name in (A, B):
        t.must('account', 'bind', '--tid', 1, '--user', USER[name], '--initiator-name', name)
    imposter = Imposter(0)
    imposter.start()
    before = t.worker()
    os.kill(before, 9)
    is_('a worker is killed: another one serves', t.another(before), t.log()[-2000:])
    a2 = Tenant(A)
    ready(a2, 1, 3)
    imposter.over = True
    imposter.join(60)
    print('# logins under the name of A: %s' % imposter.statuses)
    is_('... and lets nobody in under the name of A', '0000' not in imposter.statuses,
        imposter.statuses)
    got = pr_in(a2, 1, lun=3)
    is_("... A's persistent reservation is there", got[1][8:16] == struct.pack('>Q', 0xa3), got)
    b = ready(enter(B, 'tenant-b'), 2)
    attentions(b, 3)
    got = write(b, 0, b'B' * 512, lun=3), write(b, 0, b'B' * 512, lun=1)
    is_('... and keeps B out', got == ('status 18', '05/25/00'), got)
    is_('... and so does the mask: what A wrote is there', read(a2, 0, 8)[1] == KEEP)
    a2.logout()
    b.logout()
    is_('it ends with 0', t.stop() == 0, t.log()[-2000:])


if __name__ == '__main__':
    try:
        main(*sys.argv[1:])
    except (Gone, AssertionError, OSError, struct.error) as e:
        import traceback
        traceback.print_exc(file=sys.stdout)
        is_('the attack comes to its end', False, type(e).__name__, e)
    sys.exit(is_.failures > 0)
