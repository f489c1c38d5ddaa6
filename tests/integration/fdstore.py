# SPDX-License-Identifier: GPL-2.0-or-later
"""What test_fdstore.sh does: plays the part of systemd, its descriptor store and its restarts.

    fdstore.py BIN DIR
"""
import array, fcntl, mmap, os, random, signal, socket, subprocess, sys, threading, time

sys.path.insert(0, 'tests/support')
import ports
from iscsi_peer import Gone, Peer, is_

BIN, DIR = sys.argv[1:]
IQN = 'iqn.2026-11.org.tgtd:fdstore'
SECTORS = 32768  # of the store
ENV = dict(os.environ, TGT_IPC_SOCKET=DIR + '/socket')


class Manager:
    """NOTIFY_SOCKET and what was stored: [(name, fd)], as systemd has it: what is the same file is there once."""

    def __init__(self):
        self.store, self.lines = [], []
        self.path = DIR + '/notify'
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        while True:
            text, control, _, _ = self.socket.recvmsg(4096, socket.CMSG_SPACE(16 * 4))
            fds = array.array('i')
            for level, kind, data in control:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    fds.frombytes(data[:len(data) - len(data) % 4])
            said = dict(line.split('=', 1) for line in text.decode().splitlines())
            self.lines.append(said)
            if said.get('FDSTOREREMOVE') == '1':
                for name, fd in self.store:
                    if name == said['FDNAME']:
                        os.close(fd)
                self.store = [(name, fd) for name, fd in self.store if name != said['FDNAME']]
            for fd in fds:
                os.set_inheritable(fd, False)
                self.store.append((said['FDNAME'], fd))

    def names(self):
        return sorted(name for name, _ in self.store)

    def fd(self, name):
        return [fd for n, fd in self.store if n == name][0]


def place(fds):
    """They are 3 and up, as of sd_listen_fds(3)."""
    high = [os.dup2(fd, 200 + i, inheritable=True) for i, fd in enumerate(fds)]
    for i, fd in enumerate(high):
        os.dup2(fd, 3 + i, inheritable=True)
        os.close(fd)


class Tgtd:
    def __init__(self, manager):
        self.manager, self.process, self.port = manager, None, 0

    def start(self, store, program=BIN + '/tgtd'):
        """With what is in @store."""
        port = self.port = self.port or ports.free_port('127.0.0.1')
        names, fds = [n for n, _ in store], [fd for _, fd in store]
        env = dict(ENV, NOTIFY_SOCKET=self.manager.path, LISTEN_FDS=str(len(fds)), LISTEN_FDNAMES=':'.join(names))
        if not fds:
            del env['LISTEN_FDS'], env['LISTEN_FDNAMES']
        self.log = DIR + '/log'
        with open(self.log, 'wb') as log:
            self.process = subprocess.Popen(
                ['sh', '-c', 'LISTEN_PID=$$; export LISTEN_PID; exec "$@"', 'sh', program, '-f', '-C', '0', '--state-dir',
                 DIR + '/state', '--cache', 'size=16m', '--iscsi', 'portal=127.0.0.1:%d,nop_interval=0,nop_count=0' % port],
                stdout=log, stderr=log, env=env, close_fds=False, preexec_fn=lambda: place(fds))
        Peer.address = ('127.0.0.1', port)

    def serves(self, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            if self.adm('system', 'show')[0] == 0:
                return True
            time.sleep(0.05)
        return False

    def holds(self):  # how many, without those of nothing
        fds = '/proc/%d/fd/' % self.process.pid
        return sum(os.readlink(fds + fd) != '/dev/null' for fd in os.listdir(fds))

    def adm(self, mode, op, *args):
        p = subprocess.run([BIN + '/tgtadm', '-C', '0', '--mode', mode, '--op', op, *[str(a) for a in args]], env=ENV,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return p.returncode, p.stdout

    def worker(self):
        with open('/proc/%d/task/%d/children' % (self.process.pid, self.process.pid)) as f:
            return int(f.read().split()[0])

    def said(self, text, seconds=30):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with open(self.log, errors='replace') as f:
                if text in f.read():
                    return True
            time.sleep(0.05)
        return False

    def kill_both(self):
        worker = self.worker()
        os.kill(worker, signal.SIGSTOP)  # else it would write back
        self.process.kill()
        self.process.wait()
        os.kill(worker, signal.SIGKILL)
        while not has_gone(worker):
            time.sleep(0.01)

    def configure(self):
        for args in (('target', 'new', '--tid', 1, '-T', IQN), ('target', 'bind', '--tid', 1, '-I', 'ALL'),
                     ('logicalunit', 'new', '--tid', 1, '--lun', 1, '-b', DIR + '/disk')):
            rc, out = self.adm(*args)
            if rc:
                raise SystemExit('not ok %s: %s' % (args, out))


def has_gone(pid):
    try:
        with open('/proc/%d/stat' % pid) as f:
            return f.read().rsplit(')', 1)[1].split()[0] in 'ZX' and len(os.listdir('/proc/%d/task' % pid)) == 1
    except (FileNotFoundError, ProcessLookupError):
        return True


def login():
    Peer.target = IQN
    return Peer(timeout=60).login().ready()


def status_of(peer, what):
    peer.out(what)
    return peer.wait_status(peer.itt - 1)


def stamp(lba, n):
    return (b'%d %d ' % (lba, n)).ljust(512, b'.')


def write_some(r, model, many):
    """Until it has gone; what was acknowledged is in @model, and what may have been written in @maybe."""
    maybe = {}
    try:
        peer = login()
        for n in range(many):
            lba = r.randrange(SECTORS)
            maybe[lba] = stamp(lba, r.randrange(1 << 30))
            if status_of(peer, peer.write(lba, 1, maybe[lba]))[1]:
                raise SystemExit('not ok a write fails')
            model[lba] = maybe.pop(lba)
            if n % 97 == 96:
                status_of(peer, peer.command(bytes([0x35] + [0] * 9), 0x81))
        peer.close()
    except (OSError, Gone):
        pass
    return maybe


def wrong(model, maybe):
    peer, bad = login(), 0
    for lba, data in model.items():
        got = status_of(peer, peer.read(lba, 1))[0]
        if got == maybe.get(lba, data):
            model[lba] = got
        bad += got not in (data, maybe.get(lba))
    sync = status_of(peer, peer.command(bytes([0x35] + [0] * 9), 0x81))[1]
    peer.close()
    return bad, sync


def memfd(size=4096):
    fd = os.memfd_create('test', os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    return fd


def killed_again_and_again(manager, tgtd, r):
    model, lost = {}, 0
    tgtd.start([])
    is_('it serves', tgtd.serves())
    tgtd.configure()
    is_('what is kept is stored', manager.names() == ['arena/0', 'state', 'tombstone'], manager.names())
    is_('... without being polled', all(s.get('FDPOLL') == '0' for s in manager.lines if s.get('FDSTORE')))
    for k in range(6):
        timer = threading.Timer(r.random() * 1.5 + 0.05, tgtd.kill_both)
        timer.start()
        maybe = write_some(r, model, 100000)
        timer.join()
        tgtd.start(manager.store)
        if not tgtd.serves():
            is_('it serves after kill %d' % k, False, open(tgtd.log).read()[-2000:])
            break
        bad, sync = wrong(model, maybe)
        lost += bad + (sync != 0)
        is_('it goes on after kill %d of both: %d sectors acknowledged, %d wrong' % (k, len(model), bad),
            not bad and not sync and tgtd.said('going on with what the service manager has kept', 1))
        is_('... each name once', manager.names() == ['arena/0', 'state', 'tombstone'], manager.names())
    out = tgtd.adm('target', 'show')[1]
    is_('... as it was configured, and nothing in doubt', IQN in out and 'In doubt' not in out, out)
    is_('... which counts as a restart', '    Restarts: 1' in tgtd.adm('system', 'show')[1], tgtd.adm('system', 'show')[1])
    return model


def keeper_replaced(manager, tgtd, r, model):
    """Another program keeps; then the worker dies, and then both."""
    names, worker = ['arena/0', 'state', 'tombstone'], tgtd.worker()
    tgtd.adm('system', 'update', '--name', 'restart', '--value', 'keeper')
    is_('the keeper is replaced', tgtd.said('keeper: this program has taken over'))
    os.kill(worker, signal.SIGKILL)
    is_('... and its worker dies: another one serves', tgtd.said('keeper: another worker serves') and tgtd.serves())
    time.sleep(0.2)  # until the manager has heard it
    is_('... each name is there once', manager.names() == names, manager.names())
    write_some(r, model, 50)
    tgtd.kill_both()
    tgtd.start(manager.store)
    is_('... both die: what was acknowledged is there', tgtd.serves() and wrong(model, {}) == (0, 0) and
        tgtd.said('going on with what the service manager has kept', 1))


def keeper_alone(manager, tgtd, r, model):
    worker = tgtd.worker()
    maybe = write_some(r, model, 50)
    tgtd.process.kill()
    tgtd.process.wait()
    tgtd.start(manager.store)
    is_('the keeper alone is killed: its worker writes back, and another one serves', tgtd.serves())
    is_('... which begins anew', tgtd.said('the worker before had ended well', 1) and IQN not in tgtd.adm('target', 'show')[1])
    with open(DIR + '/disk', 'rb') as f:
        disk = f.read()
    is_('... all is in the store', not maybe and all(disk[lba * 512:lba * 512 + 512] == data for lba, data in model.items()))
    is_('... that one has gone', has_gone(worker))


def held_memory(manager, tgtd, r, model):
    """Somebody looks into the dead worker's memory."""
    tgtd.configure()
    write_some(r, model, 50)
    held = mmap.mmap(manager.fd('tombstone'), 4096)
    tgtd.kill_both()
    tgtd.start(manager.store)
    is_('who is not gone is waited for', tgtd.said('the worker of the keeper before, or its I/O, is there still'))
    is_('... and nobody serves', tgtd.adm('system', 'show')[0] != 0)
    held.close()
    is_('... until it is', tgtd.serves() and wrong(model, {}) == (0, 0))


def foreign(manager, tgtd):
    """Names and descriptors that are none of ours; and pairs of a name."""
    tgtd.kill_both()
    ours = [(n, os.dup(fd)) for n, fd in manager.store]
    a, b = socket.socketpair()
    cases = [('two of a name', ours + [('arena/0', memfd())], 'there are two of one name'),
             ('no tombstone', [s for s in ours if s[0] != 'tombstone'], 'nothing says when the worker before has gone'),
             ('an empty tombstone', [s for s in ours if s[0] != 'tombstone'] + [('tombstone', memfd(0))],
              'nothing says how the worker before has ended'),
             ('no journal', [s for s in ours if s[0] != 'state'], 'there is no state journal'),
             ('a socket', [('state', a.fileno()), ('tombstone', b.fileno())], "'state', which is none of ours"),
             ('other names', [('arena/64', memfd()), ('arena/00', memfd()), ('portal/x', b.fileno()), ('arena/', memfd())],
              "'arena/64', which is none of ours")]
    for name, store, why in cases:
        # (What is to be forgotten is closed.)
        manager.store = [(n, fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 300)) for n, fd in store]
        tgtd.start(manager.store)
        is_('%s: it serves' % name, tgtd.serves())
        is_('... without that: %s' % why, tgtd.said(why, 1) and IQN not in tgtd.adm('target', 'show')[1])
        is_('... and has nothing of it', tgtd.holds() < 17)
        tgtd.kill_both()
    manager.store = [('state', memfd(1 << 20)), ('arena/0', memfd(1 << 20)), ('tombstone', memfd())]
    tgtd.start(manager.store)
    is_('what is in them is none: it serves', tgtd.serves())


def main():
    r = random.Random(17)
    with open(DIR + '/disk', 'wb') as f:
        f.truncate(SECTORS * 512)
    os.mkdir(DIR + '/state')
    manager = Manager()
    tgtd = Tgtd(manager)
    model = killed_again_and_again(manager, tgtd, r)
    keeper_replaced(manager, tgtd, r, model)
    keeper_alone(manager, tgtd, r, model)
    held_memory(manager, tgtd, r, model)
    foreign(manager, tgtd)
    tgtd.process.terminate()
    is_('it ends with 0', tgtd.process.wait(timeout=60) == 0)
    end = time.monotonic() + 20
    while manager.names() and time.monotonic() < end:
        time.sleep(0.05)
    is_('... and nothing is stored any more', manager.names() == [], manager.names())
    if is_.failures:
        print('# ' + open(tgtd.log).read().replace('\n', '\n# '))
    sys.exit(is_.failures > 0)


if __name__ == '__main__':
    main()
