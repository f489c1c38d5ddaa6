#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The worker is killed again and again, under a mixed load (issue 17, show 2): nothing acknowledged is lost.

    worker_kills.py BIN DIR KILLS SEED

Clients write stamped sectors to eight units, each in a range of its own, and know what was acknowledged: WRITE, FUA, UNMAP,
COMPARE AND WRITE, SYNCHRONIZE CACHE, registrations. An administrator makes units, targets and accounts, sets parameters, and
changes the size of the cache. Meanwhile the worker ends by SIGKILL, SIGSEGV, SIGSTOP and then SIGKILL, by the watchdog, or
before it serves. After each end all sectors are read, and what was configured is looked at. Prints TAP, and figures.
"""
import collections, multiprocessing, os, random, re, resource, select, signal, socket, struct, subprocess, sys, threading, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
sys.dont_write_bytecode = True
from iscsi_peer import Gone, Peer, is_

BIN, DIR, KILLS, SEED = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
SECONDS = float(os.environ.get('TGT_KILL_SECONDS', 'inf'))
PRELOAD = os.path.join(BIN, '..', 'tests', 'preload', 'stall.so')
IQN = 'iqn.2026-11.org.tgtd.test:kills'
SECTOR, BLOCK = 512, 4096
UNIT, UNITS = 4 << 20, 8
QUICK = 10.3  # seconds: keeper.c takes a worker that has lived as long for one that serves
WATCHDOG = 2
PATIENCE = 120
OK, REFUSED, NO_DAEMON, UNKNOWN = 0, 22, 107, 104
LOST = 'LOST'  # what a client says first that has found something lost


def now():
    return time.monotonic()


# ---- one client ----------------------------------------------------------------------------------

def stamp(lun, lba, n, gen):
    return b''.join(struct.pack('<3Q', gen, at, lun) + struct.pack('<Q', gen * 0x9e3779b97f4a7c15 + at & (1 << 64) - 1) * 61
                    for at in range(lba, lba + n))


class Connection(Peer):
    def __init__(self, name, target=IQN):
        Peer.__init__(self, timeout=PATIENCE)
        self.name, Peer.target = name, target
        self.login('MaxRecvDataSegmentLength=262144', isid=b'\x80\x12\x34\x00\x00\x01')

    def answer(self, itt):
        whole = b''
        while True:
            head, data = self.recv()
            if struct.unpack('>I', head[16:20])[0] != itt:
                continue
            whole += data if head[0] == 0x25 else b''
            if head[0] == 0x21 and head[3] == 2:
                return (data[4] & 15, data[14], data[15]), b''
            if head[0] == 0x21 or head[0] == 0x25 and head[1] & 1:
                return head[3], whole

    def scsi(self, lun, cdb, out=b'', length=0):
        """Status or (key, asc, ascq), and data. What a nexus or a busy unit has to say is waited out, and a unit that becomes
        ready: a worker that has died may have something under way at its store."""
        end = now() + PATIENCE
        while True:
            self.out(self.command(bytes(cdb), 0x81 | (0x20 if out else 0x40 if length else 0), len(out) or length, out, lun=lun))
            status, data = self.answer(self.itt - 1)
            if status not in (8, 0x28, (2, 4, 1)) and not (isinstance(status, tuple) and status[0] == 6) or now() > end:
                return status, data
            time.sleep(0.001 if isinstance(status, tuple) and status[0] == 6 else 0.01)


def cdb10(code, lba, n, flags=0):
    return struct.pack('>BBIxHx', code, flags, lba, n)


class Client:
    """Of sectors [first, first + n) of a unit; one command at a time. What is in them: self.has; @asked: what the command whose
    answer has not come would make of it."""

    def __init__(self, number, lun, first, n, port, pause, pipe, answered):
        self.answered, self.slot = answered, number + 1
        self.number, self.lun, self.first, self.n, self.pause, self.pipe = number, lun, first, n, pause, pipe
        self.name = 'iqn.2026-11.org.tgtd.test:client-%d' % number
        Peer.address = ('127.0.0.1', port)
        self.r = random.Random(SEED * 1000 + number)
        self.has, self.gen, self.peer, self.asked = bytearray(n * SECTOR), 0, None, None
        self.key = self.asked_key = 0
        self.seen = collections.Counter()

    # -- commands: each is a pair of what is sent, and what it makes of sectors [lba, lba + len)

    def any_range(self, most):
        n = self.r.choice([1, 1, 8, 8, 8, self.r.randint(1, most)])
        lba = self.first + self.r.randrange(self.n - n)
        if self.r.random() < 0.4:
            lba = lba // 8 * 8
        return max(lba, self.first), n

    def held(self, lba, n):
        at = (lba - self.first) * SECTOR
        return bytes(self.has[at:at + n * SECTOR])

    def ask(self, what, lba, n, becomes, cdb, out=b'', whole=False):
        self.asked = lba, n, becomes, whole
        status, data = self.scsi(cdb, out)
        self.asked = None
        if status != 0:
            self.lost('%s of %d+%d: status %s' % (what, lba, n, status))
        if becomes is not None:
            at = (lba - self.first) * SECTOR
            self.has[at:at + len(becomes)] = becomes
        self.seen[what] += 1

    def step(self):
        x = self.r.random()
        self.gen += 1
        if x < 0.50:
            lba, n = self.any_range(64)
            data = stamp(self.lun, lba, n, self.gen)
            fua = self.r.random() < 0.05
            self.ask('FUA' if fua else 'WRITE', lba, n, data, cdb10(0x2a, lba, n, 8 if fua else 0), data)
        elif x < 0.62:
            lba, n = self.any_range(16)
            data = stamp(self.lun, lba, n, self.gen)
            cdb = struct.pack('>BBQ3xBxx', 0x89, 0, lba, n)
            self.ask('COMPARE AND WRITE', lba, n, data, cdb, self.held(lba, n) + data, whole=True)
        elif x < 0.68:
            lba, n = self.any_range(64)
            parameters = struct.pack('>HHxxxxQIxxxx', 22, 16, lba, n)
            self.ask('UNMAP', lba, n, bytes(n * SECTOR), bytes([0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0]), parameters)
        elif x < 0.73:
            self.ask('SYNCHRONIZE CACHE', self.first, 0, None, cdb10(0x35, 0, 0))
        elif x < 0.75 and self.lun == UNITS:
            self.register()
        else:
            lba, n = self.any_range(64)
            self.verify(lba, n)
            self.seen['READ'] += 1

    def register(self):
        new = self.gen
        self.asked_key = new
        self.check(self.pr_out(6, 0, new), 'REGISTER AND IGNORE')
        self.key, self.asked_key = new, 0
        self.check(self.pr_out(1, 5, 0), 'RESERVE')
        self.seen['PERSISTENT RESERVE OUT'] += 1

    def pr_out(self, action, kind, new):
        parameters = struct.pack('>QQ8x', 0 if action == 6 else self.key, new)
        return self.scsi([0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0], parameters)[0]

    def check(self, status, what):
        if status != 0:
            self.lost('%s: status %s' % (what, status))

    def scsi(self, cdb, out=b'', length=0):
        """The first answer to what was sent after the last end of a worker counts, over whichever connection it comes."""
        sent = now()
        got = self.peer.scsi(self.lun, cdb, out, length)
        if sent > self.answered[0] > self.answered[self.slot]:
            self.answered[self.slot] = now()
        return got

    # -- what is there

    def read(self, lba, n):
        status, data = self.scsi(cdb10(0x28, lba, n), length=n * SECTOR)
        self.check(status, 'READ')
        return data

    def verify(self, lba, n):
        data, held = self.read(lba, n), self.held(lba, n)
        if data != held:
            self.differs(lba, data, held, 'READ')

    def differs(self, lba, data, held, where):
        bad = [i for i in range(0, len(held), SECTOR) if data[i:i + SECTOR] != held[i:i + SECTOR]]
        shown = ['%d shows %s, not %s' % (lba + i // SECTOR, says(data[i:i + SECTOR]), says(held[i:i + SECTOR])) for i in bad[:5]]
        self.lost('%s: LUN %d: %d sectors: %s' % (where, self.lun, len(bad), '; '.join(shown)))

    def lost(self, what):
        self.pipe.send((LOST, what))
        raise SystemExit(1)

    def settle(self):
        """The answer to what was asked has not come: it has happened, by sectors unless it is atomic, or not."""
        if self.asked_key:
            keys = self.scsi([0x5e, 0, 0, 0, 0, 0, 0, 1, 0, 0], length=256)[1]
            if struct.pack('>Q', self.asked_key) in keys:
                self.key = self.asked_key
            self.asked_key = 0
        if not self.asked:
            return
        lba, n, becomes, whole = self.asked
        if becomes is None:
            self.asked = None
            return
        data, held, new = self.read(lba, n), self.held(lba, n), 0
        for i in range(0, n * SECTOR, SECTOR):
            if data[i:i + SECTOR] == becomes[i:i + SECTOR]:
                new += 1
            elif data[i:i + SECTOR] != held[i:i + SECTOR]:
                self.differs(lba, data, held, 'what was under way')
        if whole and 0 < new < n:
            self.lost('a COMPARE AND WRITE of LUN %d, %d+%d is torn: %d sectors of it' % (self.lun, lba, n, new))
        at = (lba - self.first) * SECTOR
        self.has[at:at + len(data)] = data
        self.asked = None

    def registered(self):
        if not self.key:
            return
        keys = self.scsi([0x5e, 0, 0, 0, 0, 0, 0, 1, 0, 0], length=256)[1]
        if keys[8:] != struct.pack('>Q', self.key):
            self.lost('the registration %x is not there: %s' % (self.key, keys.hex()))
        other = Connection('iqn.2026-11.org.tgtd.test:nobody')
        status = other.scsi(self.lun, cdb10(0x2a, self.first, 1), bytes(SECTOR))[0]
        other.close()
        if status != 0x18 and self.scsi([0x5e, 1, 0, 0, 0, 0, 0, 1, 0, 0], length=256)[1][4:8] != bytes(4):
            self.lost('who has not registered may write: status %s' % (status,))

    def connect(self):
        """Logged in anew, and the first answer: when."""
        end = now() + PATIENCE
        while True:
            try:
                self.peer = Connection(self.name)
                self.scsi(cdb10(0x28, self.first, 1), length=SECTOR)
                self.settle()
                self.registered()
                for at in range(self.first, self.first + self.n, 256):
                    self.verify(at, min(256, self.first + self.n - at))
                self.pipe.send(('verified', now()))
                return
            except (Gone, ConnectionError, AssertionError) as e:
                if self.peer:
                    self.peer.close()
                if now() > end:
                    self.lost('cannot log in for %d s: %r' % (PATIENCE, e))
                time.sleep(0.001)

    def run(self):
        self.connect()
        while not self.pause.is_set() or self.asked:
            try:
                self.step()
            except (Gone, ConnectionError, AssertionError):
                self.peer.close()
                self.connect()

    def paused(self):
        """Until the parent says what is next: more, the end and then the store."""
        self.pipe.send(('paused', dict(self.seen)))
        while True:
            what = self.pipe.recv()
            if what == 'more':
                return True
            if what == 'leave':
                self.peer.close()
                self.pipe.send(('left',))
                continue
            with open(what % self.lun, 'rb') as f:
                f.seek(self.first * SECTOR)
                data = f.read(self.n * SECTOR)
            if data != bytes(self.has):
                self.differs(self.first, data, bytes(self.has), 'in the store')
            self.pipe.send(('stored',))
            return False


def says(sector):
    gen, lba, lun = struct.unpack('<3Q', sector[:24])
    if not any(sector):
        return 'zeros'
    return 'write %d of %d.%d' % (gen, lun, lba) if sector == stamp(lun, lba, 1, gen) else 'a mixture'


def client(*args):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    c = Client(*args)
    while True:
        c.run()
        if not c.paused():
            return


# ---- the administrator ---------------------------------------------------------------------------

class Administrator(threading.Thread):
    """Changes of which each leaves a word behind that nothing else has, or takes one away."""

    def __init__(self, tgtd, r):
        threading.Thread.__init__(self, daemon=True)
        self.tgtd, self.r, self.n = tgtd, r, 0
        self.words = {}  # what: (word, is it there); None: it may be
        self.seen = collections.Counter()
        self.wrong, self.stop, self.checks = None, False, 0

    def run(self):
        checked = 0
        while not self.stop and not self.wrong:
            self.wrong = self.step()
            if not self.wrong and checked != self.checks:
                checked = self.checks
                self.wrong = self.check()

    def end(self):
        self.stop = True
        self.join(PATIENCE)
        return self.wrong or ('it hangs' if self.is_alive() else self.check())

    def did(self, what, rc, word, there):
        self.seen['%s: %d' % (what.split()[0], rc)] += 1
        if rc == OK:
            self.words[what] = word, there
        elif rc == UNKNOWN:
            self.words[what + ' ' + word] = word, None
            if what in self.words:
                self.words[what] = self.words[what][0], None
        elif rc != NO_DAEMON:
            return '%s: exit status %d' % (what, rc)
        return None

    def step(self):
        """None, or what went wrong."""
        self.n += 1
        n, adm = self.n, self.tgtd.adm
        kind = self.r.randrange(6)
        if kind == 0:
            word = 'V%06d' % n
            return self.did('parameter', adm('logicalunit', 'update', '--tid', 20, '--lun', 1, '--params', 'vendor_id=' + word)[0],
                            word, True)
        if kind == 1:
            return self.unit(n)
        if kind == 2:
            return self.account(n)
        if kind == 3:
            return self.target(n)
        if kind == 4:
            self.seen['size: %d' % adm('cache', 'update', '--name', 'size', '--value', self.r.choice(['12m', '16m', '24m']))[0]] += 1
            return None
        return self.store(n)

    def toggle(self, what, make, take):
        """Takes away what is there, or makes it. Whatever is not known is taken away first."""
        old = self.words.get(what)
        unknown = [k for k, v in self.words.items() if k.startswith(what) and v[1] is None]
        if unknown:
            rc = take(self.words[unknown[0]][0])
            if rc in (OK, REFUSED):  # it was not there
                for k in unknown:
                    del self.words[k]
            return None if rc in (OK, REFUSED, NO_DAEMON, UNKNOWN) else '%s: exit status %d' % (what, rc)
        if old and old[1]:
            return self.did(what, take(old[0]), old[0], False)
        return make()

    def unit(self, n):
        word, adm = 'L%06d' % n, self.tgtd.adm
        return self.toggle('unit', lambda: self.did('unit', adm(
            'logicalunit', 'new', '--tid', 20, '--lun', 2, '-E', 'null', '-b', '1m', '--params', 'vendor_id=' + word)[0], word, True),
            lambda _: adm('logicalunit', 'delete', '--tid', 20, '--lun', 2)[0])

    def account(self, n):
        word, adm = 'u%06d' % n, self.tgtd.adm
        return self.toggle('account', lambda: self.did('account', adm(
            'account', 'new', '--user', word, '--password', 'secretsecret')[0], word, True),
            lambda word: adm('account', 'delete', '--user', word)[0])

    def target(self, n):
        word, adm = '%s-n%06d' % (IQN, n), self.tgtd.adm
        return self.toggle('target', lambda: self.did('target', adm('target', 'new', '--tid', 21, '-T', word)[0], word, True),
                           lambda _: adm('target', 'delete', '--tid', 21)[0])

    def store(self, n):
        """A unit on a store comes and goes, with what was written to it."""
        adm, path, word = self.tgtd.adm, self.tgtd.dir + '/comes', 'S%06d' % n
        rc = adm('logicalunit', 'new', '--tid', 20, '--lun', 3, '-b', path, '--params', 'vendor_id=' + word)[0]
        if rc != OK:
            adm('logicalunit', 'delete', '--tid', 20, '--lun', 3)
            return None
        try:
            Peer.address = ('127.0.0.1', self.tgtd.port)
            peer = Connection('iqn.2026-11.org.tgtd.test:admin', IQN + '-admin')
            data = stamp(3, 0, 16, n)
            if peer.scsi(3, cdb10(0x2a, 0, 16), data)[0] != 0:
                return 'WRITE to a unit that has come fails'
            peer.close()
        except (Gone, ConnectionError, AssertionError):
            adm('logicalunit', 'delete', '--tid', 20, '--lun', 3)
            return None
        end, out = now() + PATIENCE, ''
        while now() < end:
            rc, out = adm('logicalunit', 'delete', '--tid', 20, '--lun', 3)
            if rc == OK or rc == REFUSED and 'still active' not in out:
                break  # (an answer before may have been lost)
        else:
            return 'a unit cannot be deleted: %d %s' % (rc, out)
        self.seen['store comes and goes'] += 1
        with open(path, 'rb') as f:
            got = f.read(16 * SECTOR)
        return None if got == data else 'a deleted unit has not written back: %s, not %d' % (says(got[:SECTOR]), n)

    def check(self):
        """Is what was acknowledged configured? None, or what is not."""
        for _ in range(100):
            (rc, config), (rc2, users) = self.tgtd.adm('system', 'show', '--name', 'config'), self.tgtd.adm('account', 'show')
            if rc == rc2 == OK:
                break
        else:
            return 'no configuration: %d, %d' % (rc, rc2)
        text = config + users
        for what, (word, there) in self.words.items():
            if there is not None and (word in text) != there:
                return '%s: %s is %s there' % (what, word, 'not' if there else 'still')
        return None


# ---- the daemon ----------------------------------------------------------------------------------

class Tgtd:
    def __init__(self):
        self.dir = DIR
        os.makedirs(DIR + '/state')
        os.makedirs(DIR + '/cores')
        for i in range(UNITS):
            with open('%s/disk-%d' % (DIR, i + 1), 'wb') as f:
                f.truncate(UNIT)
        with open(DIR + '/comes', 'wb') as f:
            f.truncate(1 << 20)
        self.stall = DIR + '/stall'
        self.stalls = os.path.exists(PRELOAD) and not BIN.rstrip('/').endswith(('asan/bin', 'tsan/bin'))
        self.env = dict(os.environ, TGT_IPC_SOCKET=DIR + '/socket', STALL=self.stall)
        for _ in range(5):
            self.start()
            if self.wait():
                return
        raise SystemExit('not ok a daemon does not come up: %s' % self.log()[-2000:])

    def start(self):
        with socket.socket() as s:
            s.bind(('127.0.0.1', 0))
            self.port = s.getsockname()[1]
        env = dict(self.env, LD_PRELOAD=PRELOAD) if self.stalls else self.env
        with open(DIR + '/log', 'ab') as log:
            self.process = subprocess.Popen(
                [BIN + '/tgtd', '-f', '-C', '0', '--state-dir', DIR + '/state', '--cache', 'size=16m', '--watchdog', str(WATCHDOG),
                 '--iscsi', 'portal=127.0.0.1:%d,nop_interval=0,nop_count=0' % self.port], stdout=log, stderr=log, env=env,
                cwd=DIR + '/cores')

    def wait(self):
        end = now() + 60
        while now() < end and self.process.poll() is None:
            if self.adm('system', 'show')[0] == OK:
                return True
            time.sleep(0.02)
        return False

    def adm(self, mode, op, *args):
        p = subprocess.run([BIN + '/tgtadm', '-C', '0', '--mode', mode, '--op', op, *[str(a) for a in args]], env=self.env,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return p.returncode, p.stdout

    def must(self, *args):
        rc, out = self.adm(*args)
        if rc != OK:
            raise SystemExit('not ok %s: %s' % (args, out))

    def configure(self):
        self.must('target', 'new', '--tid', 1, '-T', IQN)
        self.must('target', 'new', '--tid', 20, '-T', IQN + '-admin')
        for tid in 1, 20:
            self.must('target', 'bind', '--tid', tid, '-I', 'ALL')
        more = {6: ['--bsoflags', 'direct'], 7: ['--bsopts', 'cache=write-through']}
        for lun in range(1, UNITS + 1):
            self.must('logicalunit', 'new', '--tid', 1, '--lun', lun, '-b', '%s/disk-%d' % (DIR, lun), *more.get(lun, []),
                      '--params', 'thin_provisioning=1')
        self.must('logicalunit', 'new', '--tid', 20, '--lun', 1, '-E', 'null', '-b', '1m')

    def worker(self):
        """Of the keeper's; 0: there is none now."""
        with open('/proc/%d/task/%d/children' % (self.process.pid, self.process.pid)) as f:
            return int((f.read().split() or ['0'])[0])

    def log(self):
        with open(DIR + '/log', errors='replace') as f:
            return f.read()

    def drop_cores(self):
        """Of an end that was ours."""
        n = 0
        for name in os.listdir(DIR + '/cores'):
            n += 1
            os.unlink(DIR + '/cores/' + name)
        return n

    def strange_cores(self):
        """Of ends that were not: their backtraces."""
        texts = []
        for name in os.listdir(DIR + '/cores'):
            at = DIR + '/cores/' + name
            texts.append(subprocess.run(['gdb', '-q', '-batch', '-ex', 'thread apply all bt 12', BIN + '/tgtd', at],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout[-6000:])
            os.unlink(at)
        return texts

    def said(self):
        """How many workers have ended by which signal, as the keeper says; and how many the watchdog has ended."""
        log = self.log()
        return collections.Counter(re.findall(r'keeper: worker \d+ killed by signal (\d+)', log)), \
            log.count(': it is ended, and another one started')

    def hits(self):
        rows = [line.split() for line in self.adm('cache', 'stat')[1].splitlines()]
        row = dict(zip(rows[0], rows[1]))
        return int(row['hits']), int(row['misses'])


# ---- ends of workers -----------------------------------------------------------------------------

def kill(pid, sig):
    try:
        os.kill(pid, sig)
    except ProcessLookupError:
        pass


class Ends:
    """Ends workers, and knows how many in a row have died so soon that the keeper counts them."""

    def __init__(self, tgtd, load, r):
        self.tgtd, self.load, self.r, self.quick, self.cores, self.strange = tgtd, load, r, 0, 0, []
        self.done = collections.Counter()

    def kinds(self, left):
        kinds = ['kill'] * 6 + ['segv'] * 2 + ['stop'] * 2
        if left > 1 and self.quick < 1:
            kinds += ['twice'] * 2
        if self.tgtd.stalls and (not self.done['watchdog'] or self.r.random() < 0.1):
            kinds += ['watchdog'] * 3
        return kinds

    def one(self, left):
        """Returns how it was ended, and when it died; load.answered[0] is that as soon as it is known."""
        how, pid = self.r.choice(self.kinds(left)), self.tgtd.worker()
        self.quick += 1
        self.strange += self.tgtd.strange_cores()
        began = now()
        if how == 'watchdog':
            with open(self.tgtd.stall, 'w') as f:
                f.write(self.r.choice(['sleeps', 'circles']))
            with socket.create_connection(('127.0.0.1', self.tgtd.port)):
                died = self.load.answered[0] = await_end(pid)
            os.unlink(self.tgtd.stall)
            self.cores += self.tgtd.drop_cores()
            return how, died
        if how == 'stop':
            kill(pid, signal.SIGSTOP)
            time.sleep(self.r.random() * 0.3)
            began = now()
        self.load.answered[0] = began
        kill(pid, signal.SIGSEGV if how == 'segv' else signal.SIGKILL)
        if how == 'segv':
            await_end(pid)
            self.cores += self.tgtd.drop_cores()
        if how == 'twice':
            self.quick += 1
            await_end(pid)
            second = 0
            while not second or second == pid:
                second = self.tgtd.worker()
            time.sleep(self.r.random() ** 2 * 0.3)
            began = self.load.answered[0] = now()
            kill(second, signal.SIGKILL)
            self.done[how] += 1
        return how, began


def await_end(pid):
    end = now() + PATIENCE
    while now() < end:
        try:
            with open('/proc/%d/stat' % pid) as f:
                if f.read().rsplit(')', 1)[1].split()[0] in 'ZX':
                    return now()
        except (FileNotFoundError, ProcessLookupError):
            return now()
        time.sleep(0.001)
    raise SystemExit('not ok worker %d does not end' % pid)


# ---- the whole -----------------------------------------------------------------------------------

class Load:
    def __init__(self, port):
        self.pause, self.pipes, self.failed = multiprocessing.Event(), [], None
        self.over, self.ended = False, []
        half = UNIT // SECTOR // 2
        places = [(lun, 0, half) for lun in range(1, UNITS + 1)] + [(lun, half, half) for lun in (1, 2, 6, 7)]
        # When the last worker has ended, and when each client had its first answer after that.
        self.answered = multiprocessing.Array('d', 1 + len(places), lock=False)
        for number, (lun, first, n) in enumerate(places):
            ours, theirs = multiprocessing.Pipe()
            p = multiprocessing.Process(target=client, args=(number, lun, first, n, port, self.pause, theirs, self.answered),
                                        daemon=True)
            p.start()
            theirs.close()
            self.pipes.append(ours)

    def hear(self, wait):
        """What clients say within so many seconds, as they say it."""
        for pipe in select.select([p for p in self.pipes if p not in self.ended], [], [], wait)[0]:
            try:
                said = pipe.recv()
            except EOFError:
                self.ended.append(pipe)
                if self.over:
                    continue
                said = LOST, 'a client has ended'
            if said[0] == LOST and not self.failed:
                self.failed = said[1]
            yield pipe, said

    def each(self, word):
        """Until all have said it, or one has failed: what they said."""
        got, end = {}, now() + PATIENCE
        while len(got) < len(self.pipes) and not self.failed:
            if now() > end:
                self.failed = '%d of %d clients: not %s' % (len(self.pipes) - len(got), len(self.pipes), word)
            for pipe, said in self.hear(1):
                if said[0] == word:
                    got[pipe] = said
        return list(got.values())

    def tell(self, what):
        for pipe in self.pipes:
            try:
                pipe.send(what)
            except BrokenPipeError:
                self.failed = self.failed or 'a client has ended'


def percentile(v, p):
    return sorted(v)[min(len(v) - 1, int(len(v) * p / 100))] if v else 0


def after(load, died):
    """The first answer of a worker that came after that, to whom it ever gave it; None: none."""
    end = now() + PATIENCE
    while not load.failed and now() < end:
        list(load.hear(0.01))
        answers = [at for at in load.answered[1:] if at > died]
        if answers:
            return min(answers)
    return None


def kills(tgtd, load, admin, r):
    ends, gaps, left, wrong = Ends(tgtd, load, r), collections.defaultdict(list), KILLS, None
    serving, over = now(), now() + SECONDS
    while left > 0 and now() < over and not load.failed and not admin.wrong:
        # The third in a row is one too many for the keeper.
        wait = max(r.random() * r.choice([0.1, 0.5, 2]), QUICK if ends.quick >= 2 else 0)
        while now() < serving + wait and not admin.wrong and not load.failed:
            list(load.hear(0.01))
        if admin.wrong or load.failed:
            break
        if now() - serving >= QUICK:
            ends.quick = 0
        before = ends.done['twice']
        how, died = ends.one(left)
        left -= 1 + ends.done['twice'] - before
        if how != 'twice':
            ends.done[how] += 1
        first = after(load, died)
        if not first:
            wrong = 'nobody serves after %s' % how
            break
        gaps['watchdog' if how == 'watchdog' else 'core' if how == 'segv' else 'killed'].append((first - died) * 1000)
        serving = now()
        admin.checks += 1
    return ends, gaps, wrong


def hit_ratio(tgtd, r):
    """Reads at random in less than the cache has, before and after a kill."""
    Peer.address = ('127.0.0.1', tgtd.port)
    places = [r.randrange(3 * UNIT // BLOCK) for _ in range(2500)]

    def reads():
        peer = Connection('iqn.2026-11.org.tgtd.test:hits')
        h, m = tgtd.hits()
        for at in places:
            peer.scsi(1 + at * BLOCK // UNIT, cdb10(0x28, at * BLOCK % UNIT // SECTOR, 8), length=BLOCK)
        peer.close()
        hits, misses = tgtd.hits()
        return (hits - h) / max(1, hits - h + misses - m)

    tgtd.adm('cache', 'update', '--name', 'size', '--value', '16m')
    reads()
    reads()
    before = reads()
    pid = tgtd.worker()
    kill(pid, signal.SIGKILL)
    await_end(pid)
    tgtd.wait()
    return before, reads()


def main():
    r = random.Random(SEED)
    resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
    tgtd = Tgtd()
    tgtd.configure()
    load, admin = Load(tgtd.port), Administrator(tgtd, random.Random(SEED + 1))
    load.each('verified')
    admin.start()
    began = now()
    ends, gaps, wrong = kills(tgtd, load, admin, r)
    took = now() - began
    wrong = wrong or admin.end()
    load.pause.set()
    done = collections.Counter()
    for _, seen in load.each('paused'):
        done.update(seen)
    is_('nothing that was acknowledged is lost', not load.failed, load.failed)
    is_('what was configured is there', not wrong, wrong)
    print('# %d ends of a worker in %d s: %s; %d cores' % (sum(ends.done.values()) + ends.done['twice'], took,
                                                         dict(ends.done), ends.cores))
    print('# commands: %s' % dict(done))
    print('# changes: %s' % dict(admin.seen))
    for kind, ms in sorted(gaps.items()):
        print('# %s: from the end to the first answer of the next: p50 %.0f, p99 %.0f, most %.0f ms, of %d' %
              (kind, percentile(ms, 50), percentile(ms, 99), max(ms), len(ms)))
    is_('the load was mixed', all(done[k] for k in ('WRITE', 'FUA', 'COMPARE AND WRITE', 'UNMAP', 'SYNCHRONIZE CACHE', 'READ',
                                                    'PERSISTENT RESERVE OUT')), done)
    if not load.failed and tgtd.process.poll() is None:
        if ends.quick >= 2:  # the next end is not to be the third
            time.sleep(QUICK)
        before, then = hit_ratio(tgtd, r)
        is_('the cache is as warm afterwards: hit ratio %.3f before, %.3f after' % (before, then), then >= 0.95 * before)
    load.tell('leave')
    load.each('left')
    tgtd.process.terminate()
    status = tgtd.process.wait(timeout=60)
    is_('it ends with 0', status == 0, status)
    load.over = True
    load.tell(DIR + '/disk-%d')
    load.each('stored')
    is_('all of it is in the stores', not load.failed, load.failed)
    bad = [line for line in tgtd.log().splitlines() if any(w in line for w in
           ('Sanitizer', 'runtime error', 'BUG:', 'restoring: ', 'LOST', 'cannot be true', 'giving up', 'begins empty', 'In doubt'))]
    said, watchdog = tgtd.said()
    is_('nobody but the watchdog has ended a worker by SIGABRT: %d' % watchdog,
        said['6'] == watchdog == ends.done['watchdog'], (said, ends.done))
    is_('the keeper has said what was a fault: %d' % ends.done['segv'], said['11'] == ends.done['segv'], said)
    strange = ends.strange + tgtd.strange_cores()
    is_('no worker has left a core that was not made to', not strange, '\n#   '.join('\n'.join(strange).splitlines()))
    is_('no report', not bad, '\n#   '.join(bad[:20]))
    if is_.failures:
        print('# the log ends:\n' + '\n'.join('#  ' + line for line in tgtd.log().splitlines()[-60:]))
    sys.exit(is_.failures > 0)


if __name__ == '__main__':
    main()
