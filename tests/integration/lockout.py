#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Everything that a stranger can do before login, all at once and from one address, while others
log in from another and the administrator asks (defects W3, W4, W14).

    lockout.py PORT TGTADM TARGET DISCOVERY HALF_OPEN PIPELINES WRONG SECONDS LOGIN_S ADMIN_S

TARGET wants CHAP (joe, secret-of-joe-1). Discovery sessions that stay, connections that never end
their login, connections that pipeline SendTargets, wrong CHAP answers: as many of each. Every login
with CHAP must be through within LOGIN_S seconds, every answer to the administrator there within
ADMIN_S. Prints TAP lines with the figures.
"""
import os, select, struct, subprocess, sys, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
sys.dont_write_bytecode = True
from iscsi_peer import NONE, Gone, Peer, pdu
import resource, socket

PORT, ADM, TARGET = int(sys.argv[1]), sys.argv[2], sys.argv[3]
DISCOVERY, HALF_OPEN, PIPELINES, WRONG = (int(a) for a in sys.argv[4:8])
SECONDS, LOGIN_S, ADMIN_S = (float(a) for a in sys.argv[8:11])
Peer.address, Peer.target = ('127.0.0.1', PORT), TARGET
failures = 0


def is_(name, ok, more=''):
    global failures
    failures += not ok
    print('%sok %s%s' % ('' if ok else 'not ', name, ' # ' + more if more else ''), flush=True)


# ---- the attackers: a process each, which says what it has done when it is told to end ----------

def stopped():
    return select.select([sys.stdin], [], [], 0)[0]


def peer():
    return Peer(source='127.0.0.1', timeout=20)


def discovery():
    """Sessions that are opened and stay; one that is sent away is opened again."""
    many, opened = [], 0
    while not stopped():
        try:
            if len(many) < DISCOVERY:
                p = peer()
                p.send(p.login_pdu(['InitiatorName=' + p.name, 'SessionType=Discovery']))
                p.sock.setblocking(False)
                many.append(p)
                opened += 1
                continue
            for p in many:
                try:
                    if not p.sock.recv(4096):
                        raise OSError
                except BlockingIOError:
                    pass
                except OSError:
                    many.remove(p)
        except (Gone, OSError):
            time.sleep(0.01)
    return opened


def half_open():
    """The first PDU of a login with the C bit, or nothing; never the rest."""
    many, opened = [], 0
    while not stopped():
        try:
            if len(many) == HALF_OPEN:
                many.pop(0).close()
            p = peer()
            if opened % 2:
                p.send(p.login_pdu(p.names(), flags=0x40))
            many.append(p)
            opened += 1
        except (Gone, OSError):
            time.sleep(0.01)
    return opened


def pipelines():
    """SendTargets=All without end; every answer is taken."""
    some, asked = [], 0
    one = pdu(0x44, 0x80, 0, 5, struct.pack('>III', NONE, 1, 0), b'SendTargets=All\0')
    left = {}
    while not stopped():
        while len(some) < PIPELINES and not stopped():
            try:
                p = peer().login(session='Discovery')
                p.sock.setblocking(False)
                some.append(p.sock)
            except (Gone, OSError, AssertionError):
                break
        r, w, _ = select.select(some, some, [], 0.5) if some else ([], [], [])
        for s in set(r) | set(w):
            try:
                if s in r and not s.recv(1 << 20):
                    raise OSError
                if s in w:
                    data = left.get(s) or one * 100
                    n = s.send(data)
                    left[s] = data[n:]
                    asked += n // len(one)
            except BlockingIOError:
                pass
            except OSError:
                some.remove(s)
                left.pop(s, None)
    return asked


def wrong():
    """CHAP answers that are wrong, one connection each, many at a time."""
    given, refused, at_work = 0, 0, []
    while not stopped():
        while len(at_work) < 64 and given < WRONG:
            try:
                p = peer()
                p.login_step(0, None, p.names() + ['AuthMethod=CHAP'])
                p.login_step(0, None, ['CHAP_A=7'])
                user = ('joe', 'ann', 'x%u' % given)[given % 3]
                p.send(p.login_pdu(['CHAP_N=' + user, 'CHAP_R=0x' + '5a' * 32], flags=0x81))
                at_work.append(p.sock)
                given += 1
            except (Gone, OSError, AssertionError):
                break
        for s in select.select(at_work, [], [], 0.05)[0] if at_work else ():
            refused += 1
            at_work.remove(s)
            s.close()
        if given >= WRONG and not at_work:
            time.sleep(0.05)
    return given, refused


def listener():
    """A listener that is no target: takes every connection and every byte, and says nothing."""
    s = socket.create_server(('127.0.0.1', PORT), backlog=4096)
    s.setblocking(False)
    poll, conns, taken = select.epoll(), {}, 0
    poll.register(s, select.EPOLLIN)
    poll.register(sys.stdin, select.EPOLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd == sys.stdin.fileno():
                return taken
            if fd == s.fileno():
                try:
                    c = s.accept()[0]
                except OSError:
                    continue
                c.setblocking(False)
                poll.register(c, select.EPOLLIN)
                conns[c.fileno()] = c
                taken += 1
                continue
            try:
                if conns[fd].recv(1 << 18):
                    continue
            except BlockingIOError:
                continue
            except OSError:
                pass
            conns.pop(fd).close()


# ---- who must not notice -------------------------------------------------------------------------

def login():
    start = time.monotonic()
    while time.monotonic() - start < 60:
        try:
            p = Peer(timeout=60, source='127.0.0.2')
            if p.chap(5, 'joe', 'secret-of-joe-1') == 0:
                if p.login_step(1, 3, [])[None] == (0, True):
                    took = time.monotonic() - start
                    p.logout()
                    return took
        except (Gone, OSError, AssertionError):
            pass
        time.sleep(0.01)
    return 60.0


def ask():
    start = time.monotonic()
    try:
        rc = subprocess.run([ADM, '--mode', 'system', '--op', 'show'], timeout=60,
                            stdout=subprocess.DEVNULL).returncode
    except subprocess.TimeoutExpired:
        rc = 1
    return 60.0 if rc else time.monotonic() - start


def spread(times):
    times = sorted(times)
    return '%u of them: median %.0f ms, longest %.0f ms' % (
        len(times), times[len(times) // 2] * 1000, times[-1] * 1000)


def main():
    attackers = [(what, subprocess.Popen([sys.executable] + sys.argv + [what],
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                         preexec_fn=lambda: os.nice(10)))
                 for what in ('discovery', 'half_open', 'pipelines', 'wrong')]
    time.sleep(min(SECONDS / 4, 5))
    logins, answers, start = [], [], time.monotonic()
    while time.monotonic() - start < SECONDS:
        logins.append(login())
        answers.append(ask())
        time.sleep(0.1)
    for what, p in attackers:
        said = p.communicate('\n', timeout=120)[0]
        is_('%s: it was an attack' % what, p.returncode == 0, said.strip())
    is_('W3, W4: a login with CHAP from another address, within %g s' % LOGIN_S,
        max(logins) <= LOGIN_S, spread(logins))
    is_('W3, W4: an answer to the administrator, within %g s' % ADMIN_S,
        max(answers) <= ADMIN_S, spread(answers))


limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
if len(sys.argv) > 11:
    print(globals()[sys.argv[11]]())
else:
    main()
    sys.exit(failures != 0)
