#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Defects that were proved at commit b8780b1, C1 to C9 and W1, each as initiators see it, with live daemons.

    defects.py BIN [C1...]      tgtd and tgtadm of BIN; tgt-load of $TGT_LOAD, else of BIN

Prints a TAP line for each, with what was seen; $TIMES: with how long it took. Any build of tgtd can be asked, b8780b1's
too (tests/bench/before-after): an option that it has not is left out, so that what fails fails for the defect. Stores
are files that tests/preload makes sick.
"""
import glob, os, shutil, signal, socket, struct, subprocess, sys, tempfile, threading, time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')
sys.path.insert(0, os.path.join(ROOT, 'tests/support'))
sys.dont_write_bytecode = True
from iscsi_peer import Gone, Peer, NONE, pdu
from ports import free_port

BIN = LOAD = None
IQN = 'iqn.2026-11.org.tgtd.test:defects-%s'
MIB = 1 << 20
WRONG = (AssertionError, Gone, OSError)  # what a peer says that is not answered


def children(pid):
    found = []
    for entry in os.listdir('/proc'):
        try:
            with open('/proc/%s/stat' % entry) as f:
                if entry.isdigit() and int(f.read().rsplit(')', 1)[1].split()[1]) == pid:
                    found.append(int(entry))
        except (OSError, ValueError, IndexError):
            pass
    return found


class Daemon:
    """A private one, with units of names: each a target of its own, with a file of @size behind LUN 1."""

    helps = {}

    def __init__(self, cache, preload=None, *options, **env):
        self.dir = tempfile.mkdtemp(prefix='tgtd-defects-', dir='/var/tmp')
        self.loads, self.tid = [], 0
        os.mkdir(self.dir + '/words')
        self.env = dict(os.environ, TGT_IPC_SOCKET=self.dir + '/socket')
        env = dict(self.env, HOSTILE=self.dir + '/words', TOLD_LATE=self.dir + '/lost', SICK=self.dir + '/sick', **env)
        if BIN not in Daemon.helps:
            Daemon.helps[BIN] = subprocess.run([BIN + '/tgtd', '--help'], stdout=subprocess.PIPE, text=True).stdout
        if preload:
            subprocess.run(['cc', '-shared', '-fPIC', '-O1', '-o', self.dir + '/preload.so',
                            '%s/tests/preload/%s.c' % (ROOT, preload), '-ldl', '-lpthread'], check=True)
            env.update(LD_PRELOAD=self.dir + '/preload.so',
                       ASAN_OPTIONS='verify_asan_link_order=0:' + env.get('ASAN_OPTIONS', ''))
            if '--seccomp' in Daemon.helps[BIN]:  # it makes calls that event threads may not make
                options += '--seccomp', 'off'
        for _ in range(5):
            self.port = free_port('127.0.0.1')
            with open(self.dir + '/log', 'ab') as log:
                self.process = subprocess.Popen(
                    [BIN + '/tgtd', '-f', '-C', '0', '--state-dir', self.dir, '--cache', cache, '--iscsi',
                     'portal=127.0.0.1:%d,nop_interval=0,nop_count=0' % self.port, *options], stdout=log, stderr=log, env=env)
            end = time.monotonic() + 60
            while time.monotonic() < end and self.process.poll() is None:
                if self.adm('system', 'show')[0] == 0:
                    Peer.address = ('127.0.0.1', self.port)
                    return
                time.sleep(0.02)
        with open(self.dir + '/log') as f:
            said = f.read()[-2000:]
        self.process.kill()
        shutil.rmtree(self.dir, ignore_errors=True)
        raise SystemExit('not ok a daemon does not come up: ' + said)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for p in self.loads:
            p.kill()
            p.wait()
        os.kill(self.process.pid, signal.SIGSTOP)  # it starts no other worker
        for pid in children(self.process.pid) + [self.process.pid]:
            os.kill(pid, signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)

    def adm(self, mode, op, *args):
        p = subprocess.run([BIN + '/tgtadm', '-C', '0', '--mode', mode, '--op', op, *map(str, args)], env=self.env,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        return p.returncode, p.stdout

    def must(self, *args):
        rc, out = self.adm(*args)
        assert rc == 0, (args, out)
        return out

    def unit(self, name, size, make=True):
        self.tid += 1
        path = '%s/%s' % (self.dir, name)
        if make:
            with open(path, 'wb') as f:
                f.truncate(size)
        self.must('target', 'new', '--tid', self.tid, '-T', IQN % ('%s-%u' % (name, self.tid)))
        self.must('target', 'bind', '--tid', self.tid, '-I', 'ALL')
        self.must('logicalunit', 'new', '--tid', self.tid, '--lun', 1, '-b', path)
        return IQN % ('%s-%u' % (name, self.tid))

    def is_from_now(self, name, words):
        """How a store is: words of tests/preload/hostile_store.c."""
        with open(self.dir + '/words/.new', 'w') as f:
            f.write(words + '\n')
        os.rename(self.dir + '/words/.new', self.dir + '/words/' + name)

    def load(self, target, *options, wait=False):
        p = subprocess.Popen([LOAD + '/tgt-load', '--portal', '127.0.0.1:%d' % self.port, '--target', target, '--warmup', '0',
                              '--threads', '1', '--wait', 'block', '--quiet', '--initiator',
                              'iqn.2026-11.org.tgtd.test:load-%u' % len(self.loads), *map(str, options)],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.loads.append(p)
        if wait:
            p.wait()
        return p

    def share(self, seconds):
        """Of one processor, what the nodes' and the units' threads have had within so many seconds."""
        pid = (children(self.process.pid) or [self.process.pid])[0]

        def used():
            ns = 0
            for task in glob.glob('/proc/%d/task/*' % pid):
                with open(task + '/comm') as comm, open(task + '/schedstat') as stat:
                    if comm.read().startswith(('node-', 'lu-')):  # (others look at the stores' files)
                        ns += int(stat.read().split()[0])
            return ns

        before, began = used(), time.monotonic()
        time.sleep(seconds)
        return (used() - before) / 1e9 / (time.monotonic() - began)


def peer(target, timeout=20.0, *keys):
    Peer.target = target
    p = Peer(timeout=timeout)
    p.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return p.login(*keys).ready()


def put_many(p, writes):
    """(lba, data, flags) each: begins all of them, and sends what R2Ts ask for. Seconds until each had ended; None: it
    did not in time, or not well."""
    began, out, took = time.monotonic(), {}, {}
    for lba, data, flags in writes:
        out[p.itt] = data
        p.out(p.command(struct.pack('>BBIxHx', 0x2a, flags, lba, len(data) // 512), 0xa1, len(data)))
    try:
        while len(took) < len(out):
            head, _ = p.recv()
            itt, ttt = struct.unpack('>II', head[16:24])
            if head[0] == 0x31:
                at, n = struct.unpack('>II', head[40:48])
                for k in range(0, n, 8192):
                    part = out[itt][at + k:at + min(n, k + 8192)]
                    p.out(p.data_out(itt, ttt, part, k // 8192, at + k, k + 8192 >= n))
            elif head[0] == 0x21:
                took[itt] = time.monotonic() - began if head[3] == 0 else None
    except WRONG:
        pass
    return [took.get(itt) for itt in out]


def put(p, lba, data, flags=0):
    return put_many(p, [(lba, data, flags)])[0]


def get(p, lba, blocks):
    """The data, and how long it took; None: there was no answer in time."""
    began = time.monotonic()
    try:
        p.out(p.read(lba, blocks))
        data, status = p.wait_status(p.itt - 1)
    except WRONG:
        return None, time.monotonic() - began
    return data if status == 0 else None, time.monotonic() - began


def sync(p, lba=0, blocks=0):
    """Its SCSI status; None: there was no answer in time."""
    try:
        p.out(p.command(struct.pack('>BxIxH', 0x35, lba, blocks), 0x80))
        return p.wait_status(p.itt - 1)[1]
    except WRONG:
        return None


def c1():
    """another store of the same name is another store"""
    with Daemon('size=32m') as d:
        first = peer(d.unit('a', 16 * MIB))
        assert put(first, 0, b'\x11' * 4096) is not None and sync(first) == 0
        with open(d.dir + '/new', 'wb') as f:
            f.write(b'\x22' * 16 * MIB)
        os.rename(d.dir + '/new', d.dir + '/a')
        second = peer(d.unit('a', 16 * MIB, make=False))
        data, _ = get(second, 0, 8)
        wrote = put(second, 8, b'\x33' * 4096) is not None and sync(second) == 0
        with open(d.dir + '/a', 'rb') as f:
            f.seek(4096)
            there = f.read(4096) == b'\x33' * 4096
        own = data == b'\x22' * 4096
        return own and wrote and there, 'the second unit reads %s data; what it writes and makes stable is %s' % (
            'its own' if own else "the first one's", 'there' if there else 'not in its file')


def c2():
    """a dead store leaves the others their writes"""
    with Daemon('size=64m', 'hostile_store') as d:
        dead, well = d.unit('dead', 256 * MIB), d.unit('well', 64 * MIB)
        p, served, asked = peer(well, 5.0), 0, 0
        d.is_from_now('dead', 'hang-write')
        d.load(dead, '--read', 0, '--connections', 8, '--depth', 32, '--bs', '512k', '--time', 600)
        time.sleep(2)
        while asked < 16 and asked - served < 3:
            asked += 1
            if put(p, asked * 1024, bytes(512 << 10)) is not None:
                served += 1
            else:
                p = peer(well, 5.0)
        return served == 16, '%u of %u writes of 512 KiB are served, each within 5 s' % (served, asked)


def c3():
    """after a failed SYNC the others read"""
    with Daemon('size=16m', 'hostile_store') as d:
        sick, well = d.unit('sick', 128 * MIB), d.unit('well', 16 * MIB)
        reader, writer = peer(well, 5.0), peer(sick, 20.0)
        d.load(sick, '--read', 0, '--bs', '64k', '--pattern', 'sequential', '--range', '24m', '--depth', 8, '--count', 384,
               wait=True)
        time.sleep(4)  # until all of it is written back, and nothing of it is stable
        d.is_from_now('sick', 'hang-write fail-sync=1')
        status = sync(writer)
        d.load(sick, '--read', 0, '--bs', '256k', '--depth', 64, '--time', 600)
        time.sleep(2)
        data, took = get(reader, 2048, 8)
        return bool(status) and data is not None, 'the SYNC %s; a read of another store: %s' % (
            'fails' if status else 'ends with %s' % status,
            '%.0f ms' % (took * 1e3) if data is not None else 'none within %.0f s' % took)


def c4():
    """a write does not wait for other partitions"""
    mib, mbps = 128, 10
    with Daemon('size=%um,partitions=16,group=8' % mib, 'sick_stores', SICK_MBPS=str(mbps)) as d:
        p, took = peer(d.unit('disk', 4096 * MIB), 30.0), []
        # Groups of 32 KiB, one at a time, as fast as they go: all partitions are about to be full when the first one is.
        until = time.monotonic() + 60
        while time.monotonic() < until and sum(took) < 7:
            took.append(put(p, len(took) * 7919 % 131072 * 64, bytes(32 << 10)) or 30.0)
        waited = max(took) * mbps * 1e6 / MIB
        return waited < mib / 10, 'the longest of %u writes of 32 KiB waits %.2f s, for %.1f MiB of a cache of %u' % (
            len(took), max(took), waited, mib)


def c6():
    """a SYNC is not GOOD over what a FUA write has been told is lost"""
    with Daemon('size=32m', 'told_late') as d:
        target = d.unit('told', 16 * MIB)
        a, b = peer(target), peer(target)
        b.ready()
        assert put(a, 0, b'\x11' * 4096) is not None
        open(d.dir + '/lost', 'w').close()
        fua = []
        t = threading.Thread(target=lambda: fua.append(put(a, 64, b'\x22' * 4096, 8)))
        t.start()
        while os.path.exists(d.dir + '/lost'):
            time.sleep(0.01)
        status = sync(b, 0, 8)
        t.join()
        return fua == [None] and status == 2, 'the FUA write %s, the SYNC meanwhile ends with %s' % (
            'fails' if fua == [None] else 'is GOOD', {0: 'GOOD', 2: 'CHECK CONDITION'}.get(status, status))


def bad_block(block, one_in):
    return ((block + 1) * 0x9e3779b97f4a7c15 % (1 << 64) >> 32) % one_in == 0


def c7():
    """blocks that cannot be written do not keep good ones back"""
    n = 4096
    with Daemon('size=64m', 'hostile_store') as d:
        target = d.unit('thin', 64 * MIB)
        d.is_from_now('thin', 'thin=64')
        p = peer(target)
        assert None not in put_many(p, [(k * 128, b'\x77' * 65536, 0) for k in range(n // 16)][:128])
        assert None not in put_many(p, [(k * 128, b'\x77' * 65536, 0) for k in range(n // 16)][128:])
        good = [b for b in range(n) if not bad_block(b, 64)]
        began, there = time.monotonic(), 0
        while there < len(good) and time.monotonic() - began < 15:
            time.sleep(0.1)
            with open(d.dir + '/thin', 'rb') as f:
                data = f.read(n << 12)
            there = sum(data[b << 12] == 0x77 for b in good)
        return there == len(good), '%u of %u good blocks are on the store %.1f s later' % (
            there, len(good), time.monotonic() - began)


def c8():
    """extents are not looked for in all blocks"""
    mib, n = 512, 8000
    with Daemon('size=%um' % mib) as d:
        target = d.unit('thin', 16384 * MIB)
        d.must('logicalunit', 'update', '--tid', 1, '--lun', 1, '--params', 'thin_provisioning=1')
        p = peer(target, 60.0)
        # Nothing is written back for 3 s. (A store that hangs would be given less as soon as that is seen.)
        writes = [(k * (32 << 20) // n // 8 * 8, bytes(4096), 0) for k in range(n)]
        for k in range(0, n, 100):
            assert None not in put_many(p, writes[k:k + 100])
        began = time.monotonic()
        p.out(p.command(struct.pack('>BBBxxxxHx', 0x4d, 0, 0x4c, 1024), 0xc0, 1024))
        try:
            log = p.wait_status(p.itt - 1)[1] == 0
        except WRONG:
            log = False
        took = time.monotonic() - began
        return log and took < 0.5, 'LOG SENSE 0Ch over %u scattered blocks: %s' % (
            n, '%.0f ms' % (took * 1e3) if log else 'none in %.0f s' % took)


def c9_abort():
    """what waits at a store that hangs can be aborted"""
    with Daemon('size=32m', 'hostile_store') as d:
        target = d.unit('hung', 16 * MIB)
        p = peer(target, 5.0)
        d.is_from_now('hung', 'hang-read')
        for k in range(40):
            p.out(p.read(k * 16, 8))
        time.sleep(0.3)
        began = time.monotonic()
        try:
            answer = p.manage(5)  # LOGICAL UNIT RESET
        except WRONG:
            answer = None
        took = time.monotonic() - began
        return answer == 0, 'a reset of its unit is %s' % (
            'answered in %.0f ms' % (took * 1e3) if answer == 0 else 'not answered in %.0f s' % took)


def c9_forwarded():
    """what waits for blocks on another node can be aborted"""
    with Daemon('size=16m,affinity=forward,readahead=off', 'hostile_store', '--numa-nodes', '4') as d:
        p, tasks, answered = peer(d.unit('hung', 64 * MIB), 5.0), [], 0
        d.is_from_now('hung', 'hang-read')
        for k in range(100):
            tasks.append((p.itt, p.cmdsn))
            p.out(p.read(k * 1024, 512))
        time.sleep(0.5)
        try:
            for itt, sn in tasks[:79:-1]:
                assert p.manage(1, itt=itt, sn=sn) == 0  # ABORT TASK
                answered += 1
        except WRONG:
            pass
        return answered == 20, '%u of 20 are aborted, each within 5 s' % answered


def c9_small():
    """what a small cache admits is served beside a dead store"""
    with Daemon('size=1m,readahead=off', 'hostile_store') as d:
        dead, well = d.unit('dead', 4 * MIB), d.unit('well', 4 * MIB)
        writer, reader = peer(dead), peer(well, 5.0)
        for k in range(64):
            assert put(writer, k * 32, bytes(16384)) is not None
        time.sleep(4)  # as in C3
        d.is_from_now('dead', 'fail-sync=1 fail-write=1')
        status = sync(writer)
        served = asked = 0
        while asked < 8 and asked - served < 3:
            asked += 1
            if get(reader, asked * 600 + 1, 512)[0] is not None:
                served += 1
            else:
                reader = peer(well, 5.0)
        return bool(status) and served == 8, '%u of %u reads of 256 KiB' % (served, asked)


def c9_ticks():
    """what is clean costs no processor time"""
    with Daemon('size=512m,partitions=256', 'hostile_store') as d:
        target = d.unit('bad', 16 * MIB)
        for k in range(200):
            with open('%s/clean-%u' % (d.dir, k), 'wb') as f:
                f.truncate(16 * MIB)
            d.must('logicalunit', 'new', '--tid', 1, '--lun', 2 + k, '-b', '%s/clean-%u' % (d.dir, k))
        idle = d.share(3)
        d.is_from_now('bad', 'fail-write=1')
        assert put(peer(target), 0, bytes(4096)) is not None
        time.sleep(4)
        more = d.share(3) - idle
        return more < 0.0025, '201 units, of which one has a block that cannot be written: %.2f %% of a processor ' \
            'more than when idle' % (more * 100)


def w1():
    """owed write data takes the cache from nobody else"""
    with Daemon('size=64m') as d:
        one, two = d.unit('one', 256 * MIB), d.unit('two', 256 * MIB)
        victim = peer(two, 5.0, 'ImmediateData=No')
        greedy = [peer(one, 20.0, 'ImmediateData=No', 'InitialR2T=Yes') for _ in range(6)]
        for i, s in enumerate(greedy):
            for k in range(128):
                s.out(s.write((i * 128 + k) % 250 * 2048, 2048))
        time.sleep(1)
        took = [put(victim, n * 1000, bytes(4096)) for n in range(20)] if put(victim, 0, bytes(4096)) is not None else [None]
        for s in greedy:
            s.close()
        return None not in took, 'writes of 4 KiB to another target: %s' % (
            'the longest of %u %.1f ms' % (len(took), max(took) * 1e3) if None not in took else 'none within 5 s')


TESTS = {'C1': c1, 'C2': c2, 'C3': c3, 'C4': c4, 'C6': c6, 'C7': c7, 'C8': c8, 'C9-abort': c9_abort,
         'C9-forwarded': c9_forwarded, 'C9-small': c9_small, 'C9-ticks': c9_ticks, 'W1': w1}


def ask(name, bin, load):
    """Is it as it should be, and what was seen."""
    global BIN, LOAD
    BIN, LOAD = os.path.abspath(bin), os.path.abspath(load)
    try:
        return TESTS[name]()
    except Exception as e:
        return False, 'it cannot be asked: %r' % e


def main():
    failures = 0
    for name in sys.argv[2:] or TESTS:
        began = time.monotonic()
        good, said = ask(name, sys.argv[1], os.environ.get('TGT_LOAD', sys.argv[1]))
        failures += not good
        print('%s %s %s: %s' % ('ok' if good else 'not ok', name, TESTS[name].__doc__, said), flush=True)
        if os.environ.get('TIMES'):
            print('#   %.1f s' % (time.monotonic() - began), flush=True)
    return failures > 0


if __name__ == '__main__':
    sys.exit(main())
