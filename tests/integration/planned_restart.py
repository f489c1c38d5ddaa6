#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Sessions go on over a planned restart (issue 17, item 5): no login, no unit attention, nothing lost.

    planned_restart.py load TGTD_BIN DIR RESTARTS SEED   sessions under load, restarted again and again
    planned_restart.py state TGTD_BIN DIR SLOW_SO        what an initiator could notice; a store that hangs
    planned_restart.py kill TGTD_BIN DIR ROUNDS SEED     kill -9 of the one or the other worker meanwhile

Each session under load has blocks of its own. A block says which session wrote it, where, and which write of it that was;
what is read must be what was acknowledged last, or what is being written. Prints a TAP line for each thing that must hold.
"""
import os, random, select, shutil, signal, socket, struct, subprocess, sys, threading, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
sys.dont_write_bytecode = True
from iscsi_peer import Gone, Peer, NONE, is_, pdu

KEEPER = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support', 'keeper.py')
IQN = 'iqn.2026-11.org.tgtd.test:planned'
sn_less = lambda a, b: (a - b) & 0xffffffff > 0x7fffffff


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


class Tgtd:
    def __init__(self, bin, dir, *options, keeper=None, preload=None):
        self.bin, self.dir = bin, dir
        os.makedirs(dir + '/state')
        self.env = dict(os.environ, TGT_IPC_SOCKET=dir + '/socket')
        env = dict(self.env)
        if preload:
            env.update(LD_PRELOAD=preload, SLOW_MS=dir + '/slow_ms',
                       ASAN_OPTIONS='verify_asan_link_order=0:' + env.get('ASAN_OPTIONS', ''))
        for _ in range(5):
            self.port = free_port()
            with open(dir + '/log', 'ab') as log:
                self.process = subprocess.Popen(
                    (keeper or []) + [bin + '/tgtd', '-f', '-C', '0', '--state-dir', dir + '/state', '--cache', 'size=16m',
                                      '--iscsi', 'portal=127.0.0.1:%d,nop_interval=0,nop_count=0' % self.port, *options],
                    stdout=log, stderr=log, env=env)
            end = time.monotonic() + 60
            while time.monotonic() < end and self.process.poll() is None:
                if self.adm('system', 'show')[0] == 0:
                    Peer.address, Peer.target = ('127.0.0.1', self.port), IQN
                    return
                time.sleep(0.02)
        raise SystemExit('not ok a daemon does not come up: %s' % self.log()[-2000:])

    def adm(self, mode, op, *args, bin=None):
        p = subprocess.run([(bin or self.bin) + '/tgtadm', '-C', '0', '--mode', mode, '--op', op, *map(str, args)],
                           env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
        return p.returncode, p.stdout

    def must(self, *args):
        rc, out = self.adm(*args)
        assert rc == 0, (args, out)
        return out

    def configure(self, luns=1):
        self.must('target', 'new', '--tid', 1, '--targetname', IQN)
        self.must('target', 'bind', '--tid', 1, '-I', 'ALL')
        for lun in range(1, luns + 1):
            with open('%s/disk-%d' % (self.dir, lun), 'wb') as f:
                f.truncate(8 << 20)
            self.must('logicalunit', 'new', '--tid', 1, '--lun', lun, '-b', '%s/disk-%d' % (self.dir, lun))

    def restart(self, value='now'):
        return self.adm('system', 'update', '--name', 'restart', '--value', value)

    def worker(self):
        with open(self.dir + '/state/worker.pid') as f:
            return int(f.read())

    def another(self, than):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                if self.worker() != than and self.adm('system', 'show')[0] == 0:
                    return True
            except (OSError, ValueError):
                pass
            time.sleep(0.01)
        return False

    def stat(self, name):
        return int(self.must('system', 'stat', '--name', name).split()[-1])

    def log(self):
        with open(self.dir + '/log', errors='replace') as f:
            return f.read()

    def stop(self):
        self.process.terminate()
        return self.process.wait(timeout=120)


class Session(Peer):
    """A peer that looks at everything that it is told: StatSN is the next one, and MaxCmdSN is kept to."""

    def __init__(self, *keys, **more):
        super().__init__(timeout=60)
        self.noticed, self.number = [], Peer.count  # what nobody should notice
        self.max_cmdsn = None
        self.next_sn = None
        self.keys = keys
        self.login(*keys, **more)
        self.next_sn = self.statsn

    def login(self, *keys, **more):
        ours = ('ImmediateData=Yes', 'InitialR2T=Yes', 'FirstBurstLength=8192', 'MaxRecvDataSegmentLength=65536')
        names = [k.split('=')[0] for k in keys]
        super().login(*[k for k in ours if k.split('=')[0] not in names], *keys, **more)
        return self

    def recv(self):
        head, data = super().recv()
        if head[0] == 0x23:
            self.tsih = struct.unpack('>H', head[14:16])[0]
        sn, exp, top = struct.unpack('>III', head[24:36])
        counts = head[0] in (0x21, 0x22, 0x24, 0x26, 0x32, 0x3f) or head[0] == 0x25 and head[1] & 1 or \
            head[0] == 0x20 and head[16:20] != b'\xff' * 4
        if self.next_sn is not None and (counts or head[0] in (0x20, 0x31)):
            if sn != self.next_sn:
                self.noticed.append('StatSN %u, not %u, in %#x' % (sn, self.next_sn, head[0]))
            if counts:
                self.next_sn = sn + 1 & 0xffffffff
            self.statsn = self.next_sn # a ping has the next one, and does not take it
        if head[0] != 0x25 or head[1] & 1:
            if self.max_cmdsn is not None and sn_less(top, self.max_cmdsn):
                self.noticed.append('MaxCmdSN goes back from %u to %u' % (self.max_cmdsn, top))
            self.max_cmdsn = top
        if head[0] in (0x32, 0x3f):
            self.noticed.append('%s, reason or event %u' % ({0x32: 'asynchronous message', 0x3f: 'Reject'}[head[0]],
                                                           head[36] if head[0] == 0x32 else head[2]))
        if head[0] == 0x21 and head[3]:
            self.noticed.append('status %u, sense %s' % (head[3], data[2:16].hex()))
        if head[0] == 0x20 and head[16:20] == b'\xff' * 4 and head[20:24] != b'\xff' * 4:
            self.out(pdu(0x40, 0x80, 0, NONE, head[20:24] + struct.pack('>II', self.cmdsn, self.statsn)))
        return head, data

    def may_send(self):
        return self.max_cmdsn is None or not sn_less(self.max_cmdsn, self.cmdsn)


SIZE = 4096


def stamp(who, block, version):
    return struct.pack('>IIQ', who, block, version) * (SIZE // 16)


class Load(threading.Thread):
    """Reads and writes of one session, several at a time, of blocks that nobody else has."""

    def __init__(self, who, session, seed, depth=8, blocks=48, again=False):
        super().__init__(daemon=True)
        self.who, self.s, self.depth, self.again = who, session, depth, again
        self.r = random.Random(seed * 100 + who)
        self.first, self.n = who * blocks, blocks
        self.version = [0] * blocks  # acknowledged
        self.wrote = [0] * blocks    # sent, the highest
        self.busy = set()
        self.commands = {}           # by ITT: what it is
        self.over, self.errors = False, []
        self.done = self.logins = 0
        self.slowest = 0

    def say(self, text):
        self.errors.append(text)
        self.over = True

    def issue(self):
        n = self.r.choice((1, 1, 1, 2, 4, 8, 16))
        at = self.r.randrange(0, self.n - n + 1)
        blocks = range(at, at + n)
        if self.busy.intersection(blocks):
            return False
        itt = self.s.itt
        lba = (self.first + at) * SIZE // 512
        if self.r.random() < 0.5:
            self.s.out(self.s.read(lba, n * SIZE // 512))
            self.commands[itt] = ('read', blocks, b'', bytearray(n * SIZE), time.monotonic())
        else:
            data = b''
            for b in blocks:
                self.wrote[b] += 1
                data += stamp(self.who, b, self.wrote[b])
            self.s.out(self.s.write(lba, n * SIZE // 512, b'' if 'ImmediateData=No' in self.s.keys else data[:8192]))
            self.commands[itt] = ('write', blocks, data, None, time.monotonic())
        self.busy.update(blocks)
        return True

    def ended(self, itt, status):
        kind, blocks, data, got, began = self.commands.pop(itt)
        self.busy.difference_update(blocks)
        self.done += 1
        self.slowest = max(self.slowest, time.monotonic() - began)
        if status:
            self.say('%s of block %u: status %u' % (kind, blocks[0], status))
            return
        for i, b in enumerate(blocks):
            if kind == 'write':
                self.version[b] = self.wrote[b]
            else:
                self.look(b, bytes(got[i * SIZE:(i + 1) * SIZE]))

    def look(self, b, data):
        low, high = self.version[b], self.wrote[b]
        if not any(data == (stamp(self.who, b, v) if v else bytes(SIZE)) for v in range(high, low - 1, -1)):
            self.say('block %u is %s..., neither version %u nor up to %u' % (b, data[:16].hex(), low, high))
        self.version[b] = max(low, struct.unpack('>Q', data[8:16])[0])

    def step(self):
        while len(self.commands) < self.depth and self.s.may_send() and not self.over and not self.stop:
            if not self.issue():
                break
        if not self.commands:
            # (the window is closed, or all is over: what comes says more)
            if not select.select([self.s.sock], [], [], 0.05)[0]:
                return
        head, data = self.s.recv()
        itt = struct.unpack('>I', head[16:20])[0]
        if head[0] == 0x25:
            at = struct.unpack('>I', head[40:44])[0]
            self.commands[itt][3][at:at + len(data)] = data
            if head[1] & 1:
                self.ended(itt, head[3])
        elif head[0] == 0x21:
            self.ended(itt, head[3])
        elif head[0] == 0x31:
            ttt, (at, length) = head[20:24], struct.unpack('>II', head[40:48])
            whole = self.commands[itt][2]
            sn = 0
            while length:
                n = min(length, 8192)
                self.s.out(self.s.data_out(itt, struct.unpack('>I', ttt)[0], whole[at:at + n], sn, at, n == length))
                sn, at, length = sn + 1, at + n, length - n
        elif head[0] == 0x32 and self.again:
            self.s.noticed.clear()

    stop = False

    def run(self):
        while not self.over and not (self.stop and not self.commands):
            try:
                self.step()
            except (Gone, OSError) as e:
                if not self.again:
                    self.say('%s after %u commands' % (e, self.done))
                elif not self.stop or self.commands:
                    self.log_in_again()
            except Exception as e:
                self.say('%s: %r' % (type(e).__name__, e))

    def log_in_again(self):
        """Nobody knows what became of what was under way: any version of it may be there."""
        self.commands.clear()
        self.busy.clear()
        self.logins += 1
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                old, self.s = self.s, Session(*self.s.keys)
                old.sock.close()
                self.s.ready()
                self.s.noticed.clear()
                return
            except (Gone, OSError, AssertionError):
                time.sleep(0.02)
        self.say('nobody lets it in again')

    def read_all(self):
        """All blocks once more, one after the other."""
        for b in range(self.n):
            self.s.out(self.s.read((self.first + b) * SIZE // 512, SIZE // 512))
            data, status = self.s.wait_status(self.s.itt - 1)
            if status:
                self.say('status %u at the end' % status)
            else:
                self.look(b, data)


KINDS = [(), ('HeaderDigest=CRC32C',), ('DataDigest=CRC32C',), ('HeaderDigest=CRC32C', 'DataDigest=CRC32C'),
         ('ErrorRecoveryLevel=1', 'DataDigest=CRC32C'), ('ImmediateData=No',)]


def sessions_with_load(seed, again=False, depth=8):
    loads = []
    for i, keys in enumerate(KINDS):
        s = Session(*keys).ready()
        s.noticed.clear()
        loads.append(Load(i, s, seed, depth=depth, again=again))
    return loads


def finish(loads):
    for l in loads:
        l.stop = True
    for l in loads:
        l.join(90)
        if l.is_alive():
            l.errors.append('it hangs with %u commands under way' % len(l.commands))
    for l in loads:
        if not l.errors:
            l.read_all()


def load(bin, dir, restarts, seed):
    # The program is a copy: half-way another one is put in its place, or by turns one of another version.
    ours, other = dir + '/bin', os.environ.get('TGT_OTHER_BIN')
    shutil.copytree(bin, ours, ignore=lambda d, names: [n for n in names if n not in ('tgtd', 'tgtadm')])
    t = Tgtd(ours, dir)
    t.configure()
    loads = sessions_with_load(int(seed), depth=4)  # (what has begun has to end within seconds, on any machine)
    tsihs = [l.s.tsih for l in loads]
    for l in loads:
        l.start()
    replaced, served = 0, []
    for i in range(int(restarts)):
        if other or i == int(restarts) // 2:
            shutil.copy((other if other and i % 2 == 0 else bin) + '/tgtd', ours + '/tgtd.new')
            os.rename(ours + '/tgtd.new', ours + '/tgtd')
        before, done = t.worker(), sum(l.done for l in loads)
        rc, out = t.restart()
        replaced += rc == 0 and t.worker() != before
        end = time.monotonic() + 30
        while sum(l.done for l in loads) < done + 50 and time.monotonic() < end and not any(l.errors for l in loads):
            time.sleep(0.01)
        served.append(sum(l.done for l in loads) - done)
    is_('%s planned restarts' % restarts, replaced == int(restarts), replaced, t.log()[-3000:])
    is_('another program serves at the end', os.stat('/proc/%u/exe' % t.worker()).st_ino == os.stat(ours + '/tgtd').st_ino)
    finish(loads)
    for l in loads:
        name = ', '.join(l.s.keys) or 'no digests'
        is_('%s: %u commands, none failed, nothing lost' % (name, l.done), not l.errors, l.errors, t.log()[-3000:])
        is_('... and nothing was noticed', not l.s.noticed, l.s.noticed[:5])
    log = t.log()
    is_('nobody logged in meanwhile', log.count('logged in to') == len(loads), log.count('logged in to'))
    is_('all sessions were carried over each time',
        log.count('%u sessions with %u connections go on, 0 have ended' % (len(loads), len(loads))) == int(restarts),
        [x for x in log.splitlines() if 'go on' in x or 'ends' in x][:6])
    took = [x for x in log.splitlines() if 'planned restart: ' in x]
    is_('the log says what each took', len(took) == int(restarts), took)
    is_('the next worker need not have waited until the memory had gone', any('memory' not in x for x in took), took)
    show = t.must('target', 'show')
    is_('they have the TSIH that they had', all('I_T nexus: %u\n' % n in show for n in tsihs), show)
    is_('the cache was taken over each time', log.count("an earlier process's is taken over") == int(restarts))
    print('# commands between restarts: %u to %u; the slowest command took %.0f ms' %
          (min(served), max(served), 1000 * max(l.slowest for l in loads)))
    is_('it ends with 0', t.stop() == 0, t.log()[-2000:])


def kill(bin, dir, rounds, seed):
    t = Tgtd(bin, dir, keeper=[sys.executable, KEEPER])
    t.configure()
    loads = sessions_with_load(int(seed), again=True)
    r = random.Random(int(seed))
    for l in loads:
        l.start()
    serves = True
    for i in range(int(rounds)):
        before, done = t.worker(), sum(l.done for l in loads)
        asked = subprocess.Popen([bin + '/tgtadm', '-C', '0', '--mode', 'system', '--op', 'update', '--name', 'restart'],
                                 env=t.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if i % 2:  # the old one, or whoever has its number by then
            time.sleep(r.uniform(0, 0.08))
            victim = before
        else:      # the new one
            end = time.monotonic() + 20
            victim = before
            while victim == before and time.monotonic() < end:
                victim = child_of(t.process.pid) or before
            time.sleep(r.uniform(0, 0.08))
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            pass
        serves &= t.another(before)
        asked.wait(60)
        end = time.monotonic() + 60
        while sum(l.done for l in loads) < done + 50 and time.monotonic() < end and not any(l.errors for l in loads):
            time.sleep(0.01)
    is_('%s planned restarts in which a worker was killed: another one serves' % rounds, serves, t.log()[-3000:])
    finish(loads)
    for l in loads:
        is_('%s: nothing acknowledged is lost (%u commands, %u logins)' % (', '.join(l.s.keys) or 'no digests', l.done, l.logins),
            not l.errors, l.errors, t.log()[-3000:])
    is_('it ends with 0', t.stop() == 0, t.log()[-2000:])


def child_of(pid):
    try:
        with open('/proc/%u/task/%u/children' % (pid, pid)) as f:
            children = f.read().split()
    except OSError:
        children = []
    return int(children[-1]) if children else None  # the youngest


READ, WRITE = 0x28, 0x2a
io = lambda op, lba, n: struct.pack('>BxIxHx', op, lba, n)


def limit_of_files(pid):
    with open('/proc/%u/limits' % pid) as f:
        return int(f.read().split('Max open files')[1].split()[0])


def priorities(t):
    """The nice values that a worker was seen with as it went in a planned restart."""
    pid, values = t.worker(), []

    def watch():
        try:
            while True:
                with open('/proc/%u/stat' % pid) as f:
                    values.append(int(f.read().rsplit(')', 1)[1].split()[16]))
        except (OSError, IndexError):
            return

    watcher = threading.Thread(target=watch)
    watcher.start()
    t.restart()
    watcher.join()
    return values


def state(bin, dir, slow_so):
    t = Tgtd(bin, dir, '--seccomp', 'off', preload=slow_so)
    t.configure(2)
    with open(dir + '/slow', 'wb') as f:
        f.truncate(8 << 20)
    t.must('logicalunit', 'new', '--tid', 1, '--lun', 3, '-b', dir + '/slow')
    a, b = Session('HeaderDigest=CRC32C').ready(), Session('DataDigest=CRC32C').ready()
    for s in (a, b):
        s.run(b'\0', lun=2)
        s.noticed.clear()

    # What is dirty is not written back, what is clean is still there.
    clean, dirty = b'C' * 4096, b'D' * 4096
    is_('a block that is written back', a.run(io(WRITE, 64, 8), out=clean) == ('good', b'') and a.run(b'\x35')[0] == 'good')
    with open(dir + '/disk-1', 'r+b') as f:
        f.seek(64 * 512)
        f.write(b'x' * 4096)  # behind the cache's back
    is_('a block that is dirty', a.run(io(WRITE, 128, 8), out=dirty) == ('good', b''))
    rc, out = t.restart()
    is_('restart', rc == 0, out)
    taken = [x for x in t.log().splitlines() if 'is taken over' in x][-1]
    is_('what was dirty is dirty still', ' 0 KiB of them dirty' not in taken, taken)
    is_('the cache is warm: the store is not asked', b.run(io(READ, 64, 8), 4096)[1] == clean)
    is_('what was dirty is there', b.run(io(READ, 128, 8), 4096)[1] == dirty)

    # Reservations, and attentions that pend
    key = b'ABCDEFGH'
    is_('registers', a.run(b'\x5f\x00\0\0\0\0\0\0\x18\0', out=bytes(8) + key + bytes(8)) == ('good', b''))
    is_('reserves (Write Exclusive)', a.run(b'\x5f\x01\x01\0\0\0\0\0\x18\0', out=key + bytes(16)) == ('good', b''))
    is_('... which keeps another one out', b.run(io(WRITE, 8, 1), out=bytes(512))[0] == 'status 18')
    is_('RESERVE of SPC-2, of LUN 2', b.run(b'\x16', lun=2)[0] == 'good')
    is_('... keeps another one out', a.run(io(READ, 0, 1), 512, lun=2)[0] == 'status 18')
    t.must('logicalunit', 'update', '--tid', 1, '--lun', 1, '--params', 'vendor_id=OTHER')
    statsn, tsih = a.statsn, a.tsih
    a.noticed.clear(), b.noticed.clear()
    rc, out = t.restart()
    is_('restart', rc == 0, out)
    told = [s.run(b'\0')[0] for s in (a, b)]
    is_('the attention that pended is told: INQUIRY DATA HAS CHANGED', told == ['06/3f/03'] * 2, told)
    is_('... once, and no other', b.run(b'\0')[0] == 'good' and a.run(b'\0')[0] == 'good')
    is_('the reservation holds', b.run(io(WRITE, 8, 1), out=bytes(512))[0] == 'status 18')
    is_('the holder writes', a.run(io(WRITE, 8, 1), out=bytes(512)) == ('good', b''))
    is_('RESERVE holds', a.run(io(READ, 0, 1), 512, lun=2)[0] == 'status 18')
    is_('... for who has it', b.run(io(READ, 0, 1), 512, lun=2)[0] == 'good')
    is_('StatSN goes on', a.statsn == statsn + 4, a.statsn, statsn)
    is_('the reservation is released', a.run(b'\x5f\x02\x01\0\0\0\0\0\x18\0', out=key + bytes(16)) == ('good', b''))
    b.run(b'\0')
    a.noticed.clear(), b.noticed.clear()

    # A store that has grown while this worker did not look
    is_('RELEASE of SPC-2', b.run(b'\x17', lun=2)[0] == 'good')
    with open(dir + '/disk-2', 'r+b') as f:
        f.truncate(16 << 20)
    is_('nobody has noticed that the store has grown', b.run(b'\0', lun=2)[0] == 'good')
    t.restart()
    told = [[s.run(b'\0', lun=lun)[0] for lun in (2, 2, 1)] for s in (a, b)]
    is_('after a restart all are told: CAPACITY DATA HAS CHANGED',
        told == [['06/2a/09', 'good', 'good']] * 2, told)
    a.noticed.clear(), b.noticed.clear()

    # Bytes that have been received in part; a connection in login; a discovery session
    half = a.read(64, 8)
    if a.header_digest:
        from iscsi_peer import crc32c
        half = half[:48] + crc32c(half[:48])
    a.send(half[:20])
    in_login, discovery = socket.create_connection(Peer.address), Peer(timeout=20)
    discovery.login(session='Discovery')
    t.restart()
    a.send(half[20:])
    is_('a header of which half had come is made whole', a.wait_status(a.itt - 1) == (clean, 0))
    in_login.settimeout(20)
    is_('a connection in login is closed', closed(in_login))
    is_('a discovery session is closed', discovery.closed_by_target())

    # A session whose connection breaks meanwhile; one that is idle
    c = Session().ready()
    c.close(reset=True)
    t.restart()
    is_('a session that has broken does not matter to others', a.run(io(READ, 64, 8), 4096)[1] == clean)

    # Nothing can be written there
    os.makedirs(dir + '/state/worker.pid.new/x')
    is_('a restart while worker.pid cannot be written', t.restart()[0] == 0)
    is_('... it does not name who has ended', not os.path.exists(dir + '/state/worker.pid'))
    shutil.rmtree(dir + '/state/worker.pid.new')
    is_('... and the next one writes it again', t.restart()[0] == 0 and os.path.exists('/proc/%u' % t.worker()))

    # What nobody waits for, and what the next worker would wait for
    with open('/proc/%u/status' % t.worker()) as f:
        places = int(f.read().split('FDSize:')[1].split()[0])
    is_('the kernel has room for what a worker is going to open', places >= min(limit_of_files(t.worker()), 1 << 14),
        places)
    is_('a worker that has testified ends when nobody else wants the processor', any(19 in priorities(t) for _ in range(5)))

    # Two connections of one session
    d = Session('MaxConnections=2')
    e = second(d)
    d.ready()
    e.cmdsn = d.cmdsn
    t.restart()
    e.out(e.read(64, 8))
    is_('a session of two connections goes on: the second', e.wait_status(e.itt - 1) == (clean, 0))
    d.cmdsn = e.cmdsn
    is_('... and the first', d.run(io(READ, 64, 8), 4096)[1] == clean)

    # A store that hangs
    hung = Session()
    hung.out(hung.command(b'', 0x80, lun=3))
    hung.wait_status(hung.itt - 1)
    a.noticed.clear(), b.noticed.clear(), hung.noticed.clear()
    with open(dir + '/slow_ms', 'w') as f:
        f.write('600000')
    commands = t.stat('iscsi_commands')
    hung.out(hung.read(0, 8, lun=3))
    end = time.monotonic() + 20
    while t.stat('iscsi_commands') == commands and time.monotonic() < end:
        time.sleep(0.01)
    before, began = t.worker(), time.monotonic()
    asked = threading.Thread(target=t.restart)
    asked.start()
    is_('restart with a command that hangs: its session is ended', hung.closed_by_target())
    os.unlink(dir + '/slow_ms')  # (the next worker could not open it)
    asked.join(60)
    is_('... and another worker serves', t.another(before), t.log()[-2000:])
    print('# it took %.1f s' % (time.monotonic() - began))
    is_('... and told that it may log in again at once', any('asynchronous message, reason or event 3' in x for x in hung.noticed),
        hung.noticed)
    is_('... the log says so', 'a command does not end' in t.log())
    is_('the others go on', a.run(io(READ, 64, 8), 4096)[1] == clean and b.run(io(READ, 64, 8), 4096)[1] == clean)
    is_('... and have noticed nothing', not a.noticed and not b.noticed, a.noticed, b.noticed)
    again = Session().ready()
    is_('who was ended logs in again', again.run(io(READ, 64, 8), 4096)[1] == clean)

    # The end while a restart is under way: nothing is lost
    is_('a last write', a.run(io(WRITE, 256, 8), out=b'E' * 4096) == ('good', b''))
    asked = subprocess.Popen([bin + '/tgtadm', '-C', '0', '--mode', 'system', '--op', 'update', '--name', 'restart'],
                             env=t.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 20
    n = t.log().count('leaving to the next worker')
    while t.log().count('leaving to the next worker') == n and time.monotonic() < end:
        time.sleep(0.001)
    status = t.stop()
    asked.wait(60)
    is_('SIGTERM amid a restart: it ends with 0', status == 0, status, t.log()[-2000:])
    with open(dir + '/disk-1', 'rb') as f:
        f.seek(256 * 512)
        is_('... and has written back', f.read(4096) == b'E' * 4096)


def closed(s):
    try:
        return s.recv(1) == b''
    except ConnectionError:
        return True
    except OSError:
        return False


def second(first):
    """Another connection of its session."""
    p = Peer(timeout=60)
    p.name, p.cmdsn = first.name, first.cmdsn
    keys = ['InitiatorName=' + first.name, 'SessionType=Normal', 'TargetName=' + Peer.target]
    p.send(p.login_pdu(keys, tsih=first.tsih, isid=struct.pack('>BHBH', 0x80, 0x1234, 0, first.number), cid=1))
    head, _ = p.recv()
    assert head[0] == 0x23 and not head[36], 'login of a second connection: %x%02x' % (head[36], head[37])
    return p


if __name__ == '__main__':
    {'load': load, 'state': state, 'kill': kill}[sys.argv[1]](*sys.argv[2:])
    sys.exit(is_.failures > 0)
