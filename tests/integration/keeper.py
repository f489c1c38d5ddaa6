# SPDX-License-Identifier: GPL-2.0-or-later
"""Helpers of test_keeper.sh that a shell cannot be.

    keeper.py waits PORT KEEPER WORKER    connects while there is no worker, and is served by the next one
    keeper.py refused PORT SECONDS        connects all the time; prints how many were refused
    keeper.py write PORT TARGET LBA BYTE  one sector, acknowledged
    keeper.py read PORT TARGET LBA        the first byte of a sector
    keeper.py fill PORT TARGET N SEED     N sectors from the first on, each with a stamp of its own
    keeper.py filled PORT TARGET N SEED   reads them; fails at the first that is not
    keeper.py readiness PORT TARGET       sense key, ASC and ASCQ of TEST UNIT READY, in hexadecimal; 0: it is ready
    keeper.py sync PORT TARGET            SYNCHRONIZE CACHE; its status
    keeper.py asks PORT TARGET LBA        READ of a sector and SYNCHRONIZE CACHE, and waits for no answer
    keeper.py load PORT TARGET LBA OVER   writes and reads in one session until the file OVER is there
    keeper.py busy PORT TARGET N FILE     reads and writes sectors 8 to N anywhere, 16 at a time, until its session ends; FILE
                                          is made when it has done some
    keeper.py rests PORT TARGET FILE      a session that does nothing; FILE is made when it rests, and when that has gone
                                          it prints whether the session goes on
    keeper.py notify PATH                 prints what is said to a service manager: "PID LINE"
    keeper.py hold PID SECONDS            keeps the memory of PID's worker "in use", as its I/O would
"""
import mmap, os, random, signal, socket, struct, sys, time

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


def stamped(at, seed):
    return b''.join(struct.pack('>II', lba, int(seed)) * 64 for lba in range(at, at + 64))


def fill(port, target, n, seed):
    Peer.address, Peer.target = ('127.0.0.1', int(port)), target
    peer = Peer(timeout=60).login().ready()
    for at in range(0, int(n), 64):
        peer.out(peer.write(at, 64, stamped(at, seed)))
        if peer.wait_status(peer.itt - 1)[1]:
            sys.exit('a write fails')


def filled(port, target, n, seed):
    Peer.address, Peer.target = ('127.0.0.1', int(port)), target
    peer = Peer(timeout=60).login().ready()
    for at in range(0, int(n), 64):
        peer.out(peer.read(at, 64))
        if peer.wait_status(peer.itt - 1)[0] != stamped(at, seed):
            sys.exit('sectors from %u on are not what was written' % at)


def readiness(port, target):
    Peer.address, Peer.target = ('127.0.0.1', int(port)), target
    p = Peer().login()
    for _ in range(4):  # unit attentions
        p.out(p.command(b'\0', 0x80))
        head, data = p.recv()
        while head[0] != 0x21:
            head, data = p.recv()
        status, sense = head[3], data[2:]
        if not status or sense[2] & 15 != 6:
            break
    print('%x/%02x/%02x' % (sense[2] & 15, sense[12], sense[13]) if status else '0')


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


def busy(port, target, n, file):
    Peer.address, Peer.target = ('127.0.0.1', int(port)), target
    peer = Peer(timeout=60)
    peer.name += '-busy'
    peer.login().ready()
    done = 0

    def ask():
        at = random.randrange(1, int(n) // 8) * 8
        peer.out(peer.write(at, 8, bytes(4096)) if random.random() < 0.3 else peer.read(at, 8))

    try:
        for _ in range(16):
            ask()
        while True:
            head, _ = peer.recv()
            if head[0] == 0x21 or head[0] == 0x25 and head[1] & 1:
                done += 1
                ask()
            if done == 200:
                open(file, 'w').close()
    except (Gone, OSError):
        print('%d done' % done)


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
