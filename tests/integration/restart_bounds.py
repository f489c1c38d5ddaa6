#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""A worker that stands still amid a restart is not waited for beyond its time (issue 17): somebody else serves, and nothing
acknowledged is lost.

    restart_bounds.py CASE TGTD_BIN DIR         one of CASES
    restart_bounds.py random TGTD_BIN DIR ROUNDS SEED   stopped or killed at random moments of planned restarts

Prints a TAP line for each thing that must hold.
"""
import os, random, shutil, signal, sys, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
sys.dont_write_bytecode = True
from amid_restarts import QUICK, Daemon, children, kill, until, wrote
from iscsi_peer import is_
from planned_restart import Session, finish, sessions_with_load
from stop_child import SETPGID, StopChild

BOUND = 20  # seconds: planned.c, keeper.c
ROOM = 25   # the same, and what a busy machine takes for the rest


class Bounded(Daemon):
    """With a load of sessions that write, and log in again where they have to."""

    def __init__(self, bin, dir, preload=None):
        os.environ['STILL'] = dir + '/still'
        super().__init__(bin, dir, preload=preload)
        self.configure()
        self.loads = sessions_with_load(1, again=True, depth=4)[::3]
        for l in self.loads:
            l.start()

    def still(self, how):
        with open(self.dir + '/still.new', 'w') as f:
            f.write(how)
        os.rename(self.dir + '/still.new', self.dir + '/still')

    def serves(self, than, seconds, began=None):
        """Another worker than @than, to all sessions: how long after @began, None: not in @seconds."""
        began = began or time.monotonic()
        if not until(lambda: self.number() not in (None, *than), seconds):
            return None
        done = [l.done for l in self.loads]
        if not until(lambda: all(l.done > d for l, d in zip(self.loads, done)), seconds):
            return None
        return time.monotonic() - began

    def number(self):
        try:
            return self.worker()
        except (OSError, ValueError):
            return None

    def over(self):
        finish(self.loads)
        for l in self.loads:
            is_('%s: nothing acknowledged is lost (%u commands, %u logins)' %
                (', '.join(l.s.keys) or 'no digests', l.done, l.logins), not l.errors, l.errors, self.log()[-3000:])
        is_('it ends with 0', self.stop() == 0, self.log()[-2000:])
        self.abandon()

    def is_soon(self, what, than, least, most, says='', began=None):
        took = self.serves(than, most, began)
        is_('%s: another one serves' % what, took is not None, self.log()[-3000:])
        is_('... in time: %.1f s' % (took or 0), took is not None and least <= took)
        is_('... which the log says', says in self.log(), says, self.log()[-2000:])


def gone(pid):
    return until(lambda: not os.path.exists('/proc/%u' % pid), 20) is not None


def owes(t):
    """A session that never sends what it is asked for: it takes two seconds to bring to rest."""
    s = Session('ImmediateData=No').ready()
    s.out(s.write(6000, 8, b''))
    s.recv()
    return s


def leaves(t, n):
    return until(lambda: t.log().count('another worker is to go on') > n, 30)


# ---- what fork() has just made -------------------------------------------------------------------

def forked(t):
    for call, where in ((None, 'before it has done anything'), (SETPGID, 'before it runs a program')):
        old = t.worker()
        with StopChild(t.process.pid) as child:
            asked = t.ask('system', 'restart', 'now')
            new = child.stopped(call)
        is_('a child of the keeper is stopped %s' % where, new)
        t.is_soon('... in a planned restart', (old,), 0, BOUND + ROOM)
        is_('... and it has gone', gone(new))
        asked.wait(60)
        time.sleep(QUICK)
        old = t.worker()
        with StopChild(t.process.pid) as child:
            kill(old)
            new = child.stopped(call)
        t.is_soon('... and when a worker has died', (old,), 0, BOUND + ROOM)
        is_('... and it has gone', gone(new))


def closing(t):
    """Who closes a file for the keeper, which may hang, is stopped: the keeper does not wait for that."""
    finish(t.loads)
    with StopChild(t.process.pid) as child:
        t.process.terminate()
        new = child.stopped()
    is_('who is to close a file for the keeper is stopped', new)
    is_('... it ends with 0', t.ends() == 0, t.process.poll(), t.log()[-2000:])
    is_('... which the log says', 'a file that nobody needs stays open' in t.log(), t.log()[-2000:])
    is_('... and it has gone', gone(new))


# ---- the next worker -----------------------------------------------------------------------------

def begins(t, how, says):
    old, began = t.worker(), time.monotonic()
    t.still(how)
    asked = t.ask('system', 'restart', 'now')
    new = t.next(old)
    until(lambda: says in t.log(), BOUND + ROOM)
    os.unlink(t.dir + '/still')
    t.is_soon('the next worker stands still as it begins (%s)' % how, (old, new), BOUND / 2, ROOM, says, began)
    is_('... and it has gone', gone(new))
    asked.wait(60)


def stops(t):
    begins(t, 'stop', 'as it begins, it is stopped')


def sleeps(t):
    begins(t, 'sleep', 'as it begins, it stands still')


def renewed(t):
    """Another program than before: the one before serves again."""
    first = os.stat(t.bin + '/tgtd').st_ino
    shutil.copy(t.bin + '/tgtd', t.bin + '/tgtd.new')
    os.rename(t.bin + '/tgtd.new', t.bin + '/tgtd')
    begins(t, 'stop', 'as it begins, it is stopped')
    is_('... of the program before', os.stat('/proc/%u/exe' % t.worker()).st_ino == first)
    is_('... which the log says', 'going back to the one before' in t.log(), t.log()[-2000:])


def ended(t):
    """The end is wanted meanwhile: it comes when another one has written back."""
    finish(t.loads)
    data, old = wrote(t, b'E'), t.worker()
    t.still('stop')
    asked = t.ask('system', 'restart', 'now')
    until(lambda: not os.path.exists('/proc/%u' % old))
    t.process.terminate()
    until(lambda: 'as it begins, it is stopped' in t.log(), BOUND + ROOM)
    os.unlink(t.dir + '/still')
    is_('SIGTERM while the next worker is stopped as it begins: it ends with 0', t.ends() == 0, t.process.poll(), t.log()[-2000:])
    is_('... after another one has written back', t.stored(64) == data)
    asked.wait(60)


def after_death(t):
    """As often as workers may die: nobody gives up for that."""
    time.sleep(QUICK)
    for _ in range(2):
        old, began = t.worker(), time.monotonic()
        t.still('stop')
        kill(old)
        new = t.next(old)
        time.sleep(BOUND / 4)
        os.unlink(t.dir + '/still')
        t.is_soon('the one after a dead one is stopped as it begins', (old, new), BOUND / 2, BOUND + ROOM,
                  'as it begins, it is stopped', began)
    is_('... and counts as one that stood still', '2 stalled' in t.must('system', 'show'), t.must('system', 'show'))


def prepared(t):
    """It is stopped when it waits to be told to begin: another one is run at once."""
    old, s = t.worker(), owes(t)
    asked = t.ask('system', 'restart', 'now')
    new = t.next(old)
    leaves(t, 0)
    kill(new, signal.SIGSTOP)
    t.is_soon('the next worker is stopped when it is prepared', (old, new), 0, BOUND, 'the next worker is stopped')
    is_('... and it has gone', gone(new))
    asked.wait(60)
    s.close()


# ---- the one before ------------------------------------------------------------------------------

def old_stops(t):
    old, s = t.worker(), owes(t)
    asked = t.ask('system', 'restart', 'now')
    leaves(t, 0)
    kill(old, signal.SIGSTOP)
    t.is_soon('the one before is stopped as it brings sessions to rest', (old,), BOUND / 2, BOUND + ROOM,
              'as it is to leave, it is stopped')
    is_('... and it has gone', gone(old))
    asked.wait(60)
    s.close()


def old_is_deaf(t):
    old = t.worker()
    asked = t.ask('system', 'restart', 'now')
    t.next(old)
    kill(old, signal.SIGSTOP)
    t.is_soon('the one before is stopped before it is told to go', (old,), BOUND / 2, BOUND + ROOM, 'as it is to leave, it is stopped')
    is_('... and it has gone', gone(old))
    asked.wait(60)


CASES = {'forked': forked, 'closing': closing, 'stops': stops, 'sleeps': sleeps, 'renewed': renewed, 'ended': ended, 'death': after_death, 'prepared': prepared,
         'old-stops': old_stops, 'old-deaf': old_is_deaf}


def at_random(t, rounds, seed):
    r, wrong, slowest = random.Random(int(seed)), None, 0
    for i in range(int(rounds)):
        old, n = t.worker(), t.log().count('another worker is to go on')
        asked = t.ask('system', 'restart', 'now')
        new = t.next(old)
        if r.random() < 0.5:  # of the steps after this one
            leaves(t, n)
        nap = r.random() ** 2 * r.choice((0.01, 0.05, 0.2))
        time.sleep(nap)
        whom = r.choice(((old,), (new,), (new,), (old, new)))
        sig = r.choice((signal.SIGSTOP, signal.SIGSTOP, signal.SIGKILL))
        for pid in whom:
            kill(pid, sig) if pid in children(t.process.pid) else None
        said = 'round %u, %.1f ms: signal %u to %s of %u and %u' % (i, nap * 1000, sig, whom, old, new)
        # Whoever serves may be the one that was stopped, when the restart was over: nobody waits for that.
        end = time.monotonic() + 2 * (BOUND + ROOM)
        took = t.serves((old,), 2 * (BOUND + ROOM)) if t.worker() == old else 0
        if t.number() in whom and sig == signal.SIGSTOP:
            kill(t.number(), signal.SIGCONT)
        done = [l.done for l in t.loads]
        if took is None or not until(lambda: all(l.done > d for l, d in zip(t.loads, done)), max(1, end - time.monotonic())):
            wrong = said
            break
        print('# %s: %.1f s' % (said, took), flush=True)
        slowest = max(slowest, took)
        asked.wait(120)
        if any(l.errors for l in t.loads):
            break
        time.sleep(QUICK if sig == signal.SIGKILL else 0)
    is_('%s times a worker is stopped or killed amid a planned restart: somebody serves (%.1f s at most)' % (rounds, slowest),
        not wrong, wrong, t.log()[-3000:])


if __name__ == '__main__':
    case, bin, dir = sys.argv[1:4]
    if case == 'renewed':
        os.makedirs(dir + '-bin')
        for name in 'tgtd', 'tgtadm':
            shutil.copy(bin + '/' + name, dir + '-bin')
        bin = dir + '-bin'
    t = Bounded(bin, dir, preload=os.environ.get('STILL_SO'))
    try:
        at_random(t, *sys.argv[4:]) if case == 'random' else CASES[case](t)
        if t.process.poll() is None:
            t.over()
    finally:
        t.abandon()
    sys.exit(is_.failures > 0)
