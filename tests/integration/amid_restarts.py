#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Workers die amid what else happens to them (issue 17): a planned restart, another size of the cache, another program in the
keeper's place, the end. Nothing acknowledged is lost, and somebody serves again.

    amid_restarts.py ends TGTD_BIN DIR              at chosen moments: the end, no worker can be run
    amid_restarts.py few TGTD_BIN DIR               units, where few files may be open
    amid_restarts.py stopped TGTD_BIN DIR           the next worker stands still as it prepares
    amid_restarts.py random TGTD_BIN DIR ROUNDS SEED   under load, at random moments

Prints a TAP line for each thing that must hold.
"""
import os, random, resource, shutil, signal, subprocess, sys, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
sys.dont_write_bytecode = True
from iscsi_peer import Gone, is_
from planned_restart import READ, WRITE, Session, Tgtd, finish, io, sessions_with_load

QUICK = 10.3  # seconds: keeper.c takes a worker that has lived as long for one that serves


def children(pid):
    """The oldest first; with those that nobody has looked after yet."""
    try:
        with open('/proc/%u/task/%u/children' % (pid, pid)) as f:
            return [int(c) for c in f.read().split()]
    except OSError:
        return []


def kill(pid, number=signal.SIGKILL):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def runs(pid):
    """The program, and not the keeper's yet, which waits for that; or it has gone."""
    try:
        with open('/proc/%u/environ' % pid, 'rb') as f:
            said = f.read()
            return not said or b'TGTD_KEEPER=' in said
    except OSError:
        return True


def until(what, seconds=30):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        got = what()
        if got:
            return got
        time.sleep(0.002)
    return None


class Daemon(Tgtd):
    def ask(self, *args):
        """tgtadm, which is not waited for."""
        return subprocess.Popen([self.bin + '/tgtadm', '-C', '0', '--mode', args[0], '--op', 'update', '--name', args[1], '--value',
                                 args[2]], env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def next(self, old, seconds=30):
        """The worker that is to come after @old, as soon as it has been run; 0: there is none."""
        return until(lambda: ([c for c in children(self.process.pid) if c != old] or [0])[-1], seconds) or 0

    def stored(self, lba):
        with open(self.dir + '/disk-1', 'rb') as f:
            f.seek(lba * 512)
            return f.read(4096)

    def ends(self):
        try:
            return self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            return 'it goes on'

    def abandon(self):
        """Nobody is left of it, whatever has gone wrong."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGSTOP)
            for c in children(self.process.pid):
                kill(c)
            self.process.kill()
            self.process.wait()


def wrote(t, byte):
    """Something dirty: acknowledged, and not in the store."""
    s = Session().ready()
    data = byte * 4096
    is_('a write is acknowledged', s.run(io(WRITE, 64, 8), out=data) == ('good', b''))
    s.close()
    return data


def has(t, data):
    s = Session().ready()
    got = s.run(io(READ, 64, 8), 4096)
    s.close()
    return got == ('good', data)


def daemon(bin, dir, name, *options):
    os.makedirs(dir, exist_ok=True)
    t = Daemon(bin, dir + '/' + name, *options)
    t.configure()
    return t


def ends(bin, dir):
    # All at once: the keeper hears of it when it goes on.
    t = daemon(bin, dir, 'both')
    data, old = wrote(t, b'A'), t.worker()
    asked = t.ask('system', 'restart', 'now')
    new = t.next(old)
    t.process.send_signal(signal.SIGSTOP)
    kill(new)
    kill(old)
    t.process.terminate()
    t.process.send_signal(signal.SIGCONT)
    is_('both workers are killed amid a planned restart, then SIGTERM: it ends with 0', t.ends() == 0, t.process.poll(), t.log()[-2000:])
    is_('... and has written back', t.stored(64) == data)
    asked.wait(60)
    t.abandon()

    # Who is to write back is killed
    t = daemon(bin, dir, 'savers')
    data = wrote(t, b'B')
    before = children(t.process.pid)[0]
    t.process.send_signal(signal.SIGSTOP)
    kill(before)
    t.process.terminate()
    t.process.send_signal(signal.SIGCONT)
    for _ in range(2):
        saver = until(lambda: ([c for c in children(t.process.pid) if c != before] or [0])[0])
        kill(saver) if saver else None
        before = saver
    is_('who is to write back is killed, and the next one: it ends with 0', t.ends() == 0, t.process.poll(), t.log()[-2000:])
    is_('... and has written back', t.stored(64) == data)
    t.abandon()

    # For a while no worker can be run
    t = daemon(bin, dir, 'none')
    data, old = wrote(t, b'C'), t.worker()
    many = resource.prlimit(t.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(t.process.pid, resource.RLIMIT_NOFILE, (4, many[1]))
    kill(old)
    until(lambda: 'no worker can be started' in t.log() or t.process.poll() is not None)
    is_('no worker can be started, for a while: the keeper goes on', t.process.poll() is None, t.log()[-2000:])
    is_('... and says so', 'no worker can be started: nobody is served' in t.log())
    if t.process.poll() is None:
        resource.prlimit(t.process.pid, resource.RLIMIT_NOFILE, many)
        is_('... then one serves', t.another(old), t.log()[-2000:])
        is_('... which has it', has(t, data))
        resource.prlimit(t.process.pid, resource.RLIMIT_NOFILE, (4, many[1]))
        kill(t.worker())
        time.sleep(0.5)
        t.process.terminate()
        time.sleep(0.5)
        resource.prlimit(t.process.pid, resource.RLIMIT_NOFILE, many)
        is_('SIGTERM when none can be started: it ends with 0 when one can', t.ends() == 0, t.process.poll(), t.log()[-2000:])
        is_('... which has written back', t.stored(64) == data)
    t.abandon()


# Few files may be open, and who becomes root may not change that (CAP_SYS_RESOURCE).
FEW = '''import ctypes, os, resource, sys
assert ctypes.CDLL(None).prctl(24, 24, 0, 0, 0) == 0
resource.setrlimit(resource.RLIMIT_NOFILE, (120, 120))
os.execv(sys.argv[1], sys.argv[1:])'''


def few(bin, dir):
    os.makedirs(dir, exist_ok=True)
    t = Daemon(bin, dir + '/few', keeper=[sys.executable, '-c', FEW])
    t.configure()
    rc, out, lun = 0, '', 1
    while not rc and lun < 60:
        lun += 1
        with open('%s/disk-%d' % (t.dir, lun), 'wb') as f:
            f.truncate(1 << 20)
        rc, out = t.adm('logicalunit', 'new', '--tid', 1, '--lun', lun, '-b', '%s/disk-%d' % (t.dir, lun))
    units = range(1, lun)
    is_('few files may be open: units, until one is refused', len(units) > 4 and 'another unit needs' in out + t.log(), lun, out)
    s = Session()

    def all_have(byte):
        for lun in units:
            for _ in range(3):
                s.run(b'\0', lun=lun)
            yield lun, s.run(io(WRITE, 64, 8), out=byte * 4096, lun=lun)[0], s.run(io(READ, 64, 8), 4096, lun=lun)

    for what in 'all are served', 'after a planned restart, too', 'after another one':
        got = [x for x in all_have(what[:1].encode()) if x[1:] != ('good', ('good', what[:1].encode() * 4096))]
        s.noticed.clear()
        is_('... %s: %u units' % (what, len(units)), not got, got[:3], t.log()[-1500:])
        t.restart()
    is_('... and the session goes on', s.run(b'\0')[0] == 'good' and not s.noticed, s.noticed)
    s.close()
    is_('it ends with 0', t.stop() == 0, t.log()[-2000:])
    t.abandon()


def stopped(bin, dir):
    """Nobody says that it will ever go on: it is not waited for beyond its time."""
    ours = dir + '/bin'
    os.makedirs(ours)
    shutil.copy(bin + '/tgtd', ours + '/tgtd')
    os.symlink(os.path.realpath(bin + '/tgtadm'), ours + '/tgtadm')
    t = daemon(ours, dir, 'stopped')
    data, old, first = wrote(t, b'S'), t.worker(), os.stat(ours + '/tgtd').st_ino
    s = Session().ready()
    shutil.copy(bin + '/tgtd', ours + '/tgtd.new')
    os.rename(ours + '/tgtd.new', ours + '/tgtd')
    began = time.monotonic()
    asked = t.ask('system', 'restart', 'now')
    new = t.next(old)
    until(lambda: runs(new))
    kill(new, signal.SIGSTOP)
    is_('the next worker is stopped as it prepares: another one serves', t.another(old) and t.worker() != new, t.log()[-2000:])
    print('# it took %.1f s' % (time.monotonic() - began))
    is_('... the one before has served meanwhile, and its session goes on', s.run(io(READ, 64, 8), 4096) == ('good', data))
    is_('... it runs the program before', os.stat('/proc/%u/exe' % t.worker()).st_ino == first)
    is_('... which the log says', 'going back to the one before' in t.log(), t.log()[-2000:])
    is_('... and the one that was stopped has gone', not os.path.exists('/proc/%u' % new))
    asked.wait(60)
    s.close()
    is_('it ends with 0', t.stop() == 0, t.log()[-2000:])
    t.abandon()


class Amid:
    """What is done while something else is under way. How many workers in a row the keeper may count by then: see QUICK."""

    def __init__(self, t, r):
        self.t, self.r, self.asked, self.said = t, r, [], ''

    def ask(self, *args):
        self.asked.append(self.t.ask(*args))

    def nap(self, most):
        s = self.r.random() ** self.r.choice((1, 2)) * most
        self.said += ' %.1f ms' % (s * 1000)
        time.sleep(s)

    def resize(self):
        self.ask('cache', 'size', self.r.choice(('8m', '12m', '24m', '40m')))

    # -- of these the keeper counts none

    def next_dies(self, old):
        self.ask('system', 'restart', 'now')
        new = self.t.next(old)
        self.nap(0.15)
        if new and self.t.worker() == old:
            kill(new)

    def next_stops(self, old):
        self.ask('system', 'restart', 'now')
        new = self.t.next(old)
        until(lambda: runs(new))
        kill(new, signal.SIGSTOP) if new else None
        self.nap(0.5)
        kill(new, signal.SIGCONT) if new else None

    def one_after_the_other(self, old):
        for _ in range(3):
            self.ask('system', 'restart', self.r.choice(('now', 'keeper')))
            self.nap(0.05)

    def restart_in_resize(self, old):
        self.resize()
        self.nap(0.1)
        self.ask('system', 'restart', 'now')
        self.nap(0.1)
        self.resize()

    # -- and of these one or two

    def old_dies(self, old):
        self.ask('system', 'restart', 'now')
        self.nap(0.2)
        kill(old)

    def both_die(self, old):
        self.ask('system', 'restart', 'now')
        new = self.t.next(old)
        self.nap(0.15)
        for pid in self.r.choice(((old, new), (new, old))):
            kill(pid) if pid else None

    def resize_dies(self, old):
        self.resize()
        self.nap(0.2)
        kill(old)

    def keeper_changes(self, old):
        self.ask('system', 'restart', 'keeper')
        self.nap(0.1)
        kill(self.r.choice(children(self.t.process.pid) or [old]))

    FREE = next_dies, next_stops, one_after_the_other, restart_in_resize
    COUNT = old_dies, both_die, resize_dies, keeper_changes


def at_random(bin, dir, rounds, seed):
    t = daemon(bin, dir, 'random')
    r = random.Random(int(seed))
    loads = sessions_with_load(int(seed), again=True)
    for l in loads:
        l.start()
    amid, quick, wrong, files = Amid(t, r), 0, None, None
    for i in range(int(rounds)):
        what = r.choice(Amid.FREE if i % 2 or quick > 1 else Amid.COUNT)
        # (A worker that has lived long enough between begins that anew.)
        quick += 2 * (what in Amid.COUNT) if what is not Amid.keeper_changes else 1
        amid.said = what.__name__
        what(amid, t.worker())
        for p in amid.asked:
            p.wait(120)
        amid.asked.clear()
        if not until(lambda: t.adm('system', 'show')[0] == 0 or t.process.poll() is not None, 60) or t.process.poll() is not None:
            wrong = 'nobody serves after ' + amid.said
            break
        done = [l.done for l in loads]
        if not until(lambda: all(l.done > d for l, d in zip(loads, done)) or any(l.errors for l in loads), 60):
            wrong = 'not all are served after ' + amid.said
            break
        if any(l.errors for l in loads):
            break
        now = len(os.listdir('/proc/%u/fd' % t.process.pid))
        files = files or now
        if now > files + 24:
            wrong = 'the keeper has %u descriptors, not %u, after %s' % (now, files, amid.said)
            break
        if quick > 1 and i + 1 < int(rounds):
            time.sleep(QUICK)
            quick = 0
    is_('%s times something happens amid something else: somebody serves' % rounds, not wrong, wrong, t.log()[-3000:])
    finish(loads)
    for l in loads:
        is_('%s: nothing acknowledged is lost (%u commands, %u logins)' % (', '.join(l.s.keys) or 'no digests', l.done, l.logins),
            not l.errors, l.errors, amid.said, t.log()[-3000:])
    is_('it ends with 0', t.stop() == 0, t.log()[-2000:])
    t.abandon()


if __name__ == '__main__':
    {'ends': ends, 'few': few, 'stopped': stopped, 'random': at_random}[sys.argv[1]](*sys.argv[2:])
    sys.exit(is_.failures > 0)
