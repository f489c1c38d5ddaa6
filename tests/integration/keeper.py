# SPDX-License-Identifier: GPL-2.0-or-later
"""Helpers of test_keeper.sh that a shell cannot be.

    keeper.py waits PORT KEEPER WORKER    connects while there is no worker, and is served by the next one
    keeper.py refused PORT SECONDS        connects all the time; prints how many were refused
    keeper.py write PORT TARGET LBA BYTE  one sector, acknowledged
    keeper.py read PORT TARGET LBA        the first byte of a sector
    keeper.py sync PORT TARGET            SYNCHRONIZE CACHE; its status
    keeper.py asks PORT TARGET LBA        READ of a sector and SYNCHRONIZE CACHE, and waits for no answer
    keeper.py load PORT TARGET LBA OVER   writes and reads in one session until the file OVER is there
    keeper.py rests PORT TARGET FILE      a session that does nothing; FILE is made when it rests, and when that has gone
                                          it prints whether the session goes on
    keeper.py notify PATH                 prints what is said to a service manager: "PID LINE"
    keeper.py hold PID SECONDS            keeps the memory of PID's worker "in use", as its I/O would
"""
import mmap, os, signal, socket, struct, sys, time

sys.path.insert(0, 'tests/support')
from iscsi_peer import Gone, Peer


def waits(port, keeper, worker):
    Peer.address, Peer.target = ('127.0.0.1', int(port)), None
    os.kill(int(keeper), signal.SIGSTOP)
    os.kill(int(worker), signal.SIGKILL)
    while open('/proc/%s/stat' % worker).read().rsplit(')', 1)[1].split()[0] != 'Z' or \
            len(os.listdir('/proc/%s/task' % worker)) > 1:
        time.sleep(0.01)
    peer = Peer(timeout=30)  # accepted by nobody
    print('connected')
    began = time.monotonic()
    os.kill(int(keeper), signal.SIGCONT)
    peer.login(session='Discovery')
    print('logged in')
    print('# %.0f ms from the end of one worker to an answer of the next' % ((time.monotonic() - began) * 1000))


def refused(port, seconds):
    until, tries, bad = time.monotonic() + float(seconds), 0, 0
    while time.monotonic() < until:
        tries += 1
        try:
            socket.create_connection(('127.0.0.1', int(port)), 5).close()
        except ConnectionRefusedError:
            bad += 1
        except OSError:
            pass  # closed at once: its worker was killed
        time.sleep(0.001)
    print('%d of %d' % (bad, tries))


def write(port, target, lba, byte):
    Peer.address, Peer.target = ('127.0.0.1', int(port)), target
    peer = Peer().login().ready()
    peer.out(peer.write(int(lba), 1, bytes([int(byte)]) * 512))
    sys.exit(peer.wait_status(peer.itt - 1)[1])


def read(port, target, lba):
    Peer.address, Peer.target = ('127.0.0.1', int(port)), target
    peer = Peer().login().ready()
    peer.out(peer.read(int(lba), 1))
    print(peer.wait_status(peer.itt - 1)[0][0])


def sync(port, target):
    Peer.address, Peer.target = ('127.0.0.1', int(port)), target
    peer = Peer().login().ready()
    peer.out(peer.command(bytes([0x35] + [0] * 9), 0x81))
    sys.exit(peer.wait_status(peer.itt - 1)[1])


def asks(port, target, lba):
    Peer.address, Peer.target = ('127.0.0.1', int(port)), target
    peer = Peer()
    peer.name += '-asks'
    peer.login().ready()
    peer.out(peer.command(bytes([0x35] + [0] * 9), 0x81))
    peer.out(peer.read(int(lba), 1))
    time.sleep(300)


def load(port, target, lba, over):
    Peer.address, Peer.target = ('127.0.0.1', int(port)), target
    peer = Peer(timeout=60)
    peer.name += '-load-' + lba
    peer.login().ready()
    n, longest = 0, 0
    while not os.path.exists(over):
        began = time.monotonic()
        at, byte = int(lba) + n % 512, n % 251
        peer.out(peer.write(at, 1, bytes([byte]) * 512))
        if peer.wait_status(peer.itt - 1)[1]:
            sys.exit('a write fails')
        peer.out(peer.read(at, 1))
        if peer.wait_status(peer.itt - 1)[0] != bytes([byte]) * 512:
            sys.exit('sector %d is not what was written' % at)
        n += 1
        longest = max(longest, time.monotonic() - began)
    print('%d writes and reads, the longest pair took %.0f ms' % (n, longest * 1000))


def rests(port, target, file):
    Peer.address, Peer.target = ('127.0.0.1', int(port)), target
    peer = Peer(timeout=60)
    peer.name += '-rests'
    peer.login().ready().answers()
    time.sleep(0.5)  # nothing tells a client that it has been recorded
    open(file, 'w').close()
    while os.path.exists(file):
        time.sleep(0.02)
    try:
        print('goes on' if peer.answers() else 'no answer')
    except (Gone, OSError):
        print('has ended')


def notify(path):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    s.bind(path)
    while True:
        text, control, _, _ = s.recvmsg(4096, 256)
        pid = struct.unpack('3i', control[0][2][:12])[0]
        for line in text.decode().splitlines():
            print(pid, line, flush=True)


def hold(pid, seconds):
    for fd in os.listdir('/proc/%s/fd' % pid):
        path = '/proc/%s/fd/%s' % (pid, fd)
        if 'tgtd-tombstone' in os.readlink(path):
            with open(path, 'r+b') as f, mmap.mmap(f.fileno(), 4096):
                print('held', flush=True)
                time.sleep(float(seconds))
            return
    sys.exit('no tombstone')


globals()[sys.argv[1]](*sys.argv[2:])
