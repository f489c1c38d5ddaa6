#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""CHAP secrets and those who guess them (defect W14); test_secrets.sh runs it.

    secrets.py memory PID SECRET        prints "N M": places in the daemon's memory where the secret
                                        stands, and how many of them a core file would have
    secrets.py shown TGTADM FOLDER      what others see of a tgtadm at work
    secrets.py PORT guess               many wrong answers from one address
    secrets.py PORT masks               what is seen with default-mask=none

Prints TAP lines but for `memory`; ends with 1 when one of them is "not ok".
"""
import os, re, resource, signal, socket, struct, subprocess, sys, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
sys.dont_write_bytecode = True
from iscsi_peer import Gone, Peer

IQN = 'iqn.2026-11.org.tgtd.test:'
failures = 0


def is_(name, ok, more=''):
    global failures
    failures += not ok
    print('%sok %s%s' % ('' if ok else 'not ', name, ' # %s' % more if more else ''), flush=True)


def memory(pid, secret):
    """Each mapping that a core could have, with its VmFlags; memory that others share is data."""
    found = dumped = 0
    areas, flags = [], {}
    for line in open('/proc/%s/smaps' % pid):
        m = re.match(r'([0-9a-f]+)-([0-9a-f]+) (\S+) ', line)
        if m:
            areas.append((int(m[1], 16), int(m[2], 16), m[3]))
        elif line.startswith('VmFlags:'):
            flags[areas[-1]] = line.split()[1:]
    with open('/proc/%s/mem' % pid, 'rb', 0) as mem:
        for area in areas:
            start, end, mode = area
            if 'r' not in mode or mode[3] == 's':
                continue
            at, before = start, b''
            while at < end:
                try:
                    mem.seek(at)
                    piece = mem.read(min(1 << 20, end - at))
                except (OSError, ValueError, OverflowError):
                    break
                if not piece:
                    break
                n = (before + piece).count(secret)
                found += n
                dumped += n if 'dd' not in flags[area] else 0
                before, at = piece[-len(secret) + 1:], at + len(piece)
    print(found, dumped)


def attempt(user, secret, source='127.0.0.1', timeout=30, name=None, target=None):
    """The status with which it ends; None: no answer."""
    try:
        p = Peer(timeout=timeout, source=source)
        if name:
            p.name = name
        return p.chap(7, user, secret, names=p.names(target=target))
    except (Gone, OSError, AssertionError):
        return None
    finally:
        try:
            p.close()
        except UnboundLocalError:
            pass


def guess():
    """W14: 3,258 guesses a second from one thread. Now a few, then one each few seconds."""
    start, wrong = time.monotonic(), 0
    while time.monotonic() - start < 6:
        wrong += attempt('joe', 'guess-number-%05u' % wrong) == 0x201
    is_('W14: few wrong answers are looked at in 6 s', 3 <= wrong <= 12, wrong)
    begun = time.monotonic()
    ok = attempt('joe', 'secret-of-joe-1', source='127.0.0.2') == 0
    took = time.monotonic() - begun
    is_('a right one from another address does not wait', ok, '%.3f s' % took)
    ok = attempt('ann', 'secret-of-ann-1') == 0
    is_('nor does another account from the same address', ok)
    # Behind one address, as behind a NAT: many that guess, and one that knows.
    peers = []
    for i in range(40):
        p = Peer(timeout=30)
        p.login_step(0, None, p.names() + ['AuthMethod=CHAP'])
        p.login_step(0, None, ['CHAP_A=7'])
        p.send(p.login_pdu(['CHAP_N=joe', 'CHAP_R=0x' + '00' * 32], flags=0x81))
        peers.append(p)
    start, status = time.monotonic(), None
    while status != 0 and time.monotonic() - start < 60:
        status = attempt('joe', 'secret-of-joe-1')
        if status:
            is_('who is not looked at yet is told to come back: %04x' % status, status == 0x302)
            time.sleep(1)
    is_('the right one from that address gets in when the others are through', status == 0,
        '%.1f s' % (time.monotonic() - start))
    for p in peers:
        p.close()


def shown(tgtadm, folder):
    """What ps and a core have of a tgtadm that waits for a daemon which does not answer."""
    path = os.path.join(folder, 'silent')
    s = socket.socket(socket.AF_UNIX)
    s.bind(path + '.0')
    s.listen()

    def run(command):
        return subprocess.Popen(command, cwd=folder, env=dict(os.environ, TGT_IPC_SOCKET=path),
                                preexec_fn=lambda: resource.setrlimit(
                                    resource.RLIMIT_CORE, (resource.RLIM_INFINITY,) * 2))

    def dumped(p):
        """Does it leave a core?"""
        os.kill(p.pid, signal.SIGQUIT)
        return os.WCOREDUMP(os.waitpid(p.pid, 0)[1])

    other = run(['sleep', '1000'])
    time.sleep(0.1)
    if not dumped(other):
        print('# no program leaves a core here')
    p = run([tgtadm, '--op', 'new', '--mode', 'account', '--user', 'z', '--password',
             'seen-by-ps-1234'])
    s.settimeout(60)
    asked = s.accept()[0]  # as long as it is open, tgtadm waits
    assert b'seen-by-ps-1234' in asked.recv(65536), 'the request has it'
    line = open('/proc/%u/cmdline' % p.pid, 'rb').read()
    is_('W14: ps does not show it', b'--user' in line and b'seen-by-ps' not in line, line)
    is_('... while it waits', p.poll() is None)
    is_('W14: no core is left of it', not dumped(p))
    asked.close()


def luns(p):
    p.out(p.command(struct.pack('>BxBxxxI', 0xa0, 0, 4096), 0xc1, 4096, lun=0))
    data, status = p.wait_status(p.itt - 1)
    while status == 2:
        p.out(p.command(struct.pack('>BxBxxxI', 0xa0, 0, 4096), 0xc1, 4096, lun=0))
        data, status = p.wait_status(p.itt - 1)
    n = struct.unpack('>I', data[:4])[0]
    return sorted(data[8 + i + 1] for i in range(0, n, 8))


def masks():
    """Lines come when the administrator has done something."""
    p = Peer()
    p.name = IQN + 'mask-host'
    p.login()
    print(luns(p), flush=True)
    for line in sys.stdin:
        got, deadline = None, time.monotonic() + 20
        want = eval(line)
        while got != want and time.monotonic() < deadline:
            got = luns(p)
            time.sleep(0.05)
        print(got, flush=True)


if sys.argv[1] == 'memory':
    memory(sys.argv[2], sys.argv[3].encode())
elif sys.argv[1] == 'shown':
    shown(*sys.argv[2:])
    sys.exit(failures != 0)
else:
    Peer.address = ('127.0.0.1', int(sys.argv[1]))
    Peer.target = IQN + ('open' if sys.argv[2] == 'masks' else 'chap')
    try:
        {'guess': guess, 'masks': masks}[sys.argv[2]]()
    except Exception as e:
        is_('%s: %r' % (sys.argv[2], e), False)
    sys.exit(failures != 0)
