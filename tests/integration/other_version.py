# SPDX-License-Identifier: GPL-2.0-or-later
"""What test_other_version.sh does: fdstore.py's systemd, and a tgtd of another version than the one that has died.

    other_version.py BIN DIR
"""
import os, shutil, signal, sys, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fdstore import BIN, DIR, IQN, Manager, Tgtd
from iscsi_peer import Peer, is_

OURS, OTHER = BIN + '/tgtd', os.path.dirname(BIN.rstrip('/')) + '/tests/other/tgtd'
HELD = ['arena/0', 'state', 'tombstone']
SYNC = bytes([0x35] + [0] * 9)


def sector(n):
    return (b'%d ' % n).ljust(512, b'.')


def cdb(code, lba):
    return bytes([code, 0, 0, 0, 0, lba, 0, 0, 1, 0])


class Unit:
    """By its number: each command in a session of its own."""

    def __init__(self, lun):
        self.lun = lun

    def ask(self, peer, command, out, length):
        peer.out(peer.command(command, 0x81 | (0x20 if out else 0x40 if length else 0), len(out) or length, out, lun=self.lun))
        return self.answer(peer)

    def answer(self, peer):
        data = b''
        while True:
            head, got = peer.recv()
            if head[0] == 0x25:
                data += got
            if head[0] == 0x21 and head[3] == 2:
                return data, 2, (got[4] & 15, got[14], got[15])
            if head[0] == 0x21 or head[0] == 0x25 and head[1] & 1:
                return data, head[3], None

    def settled(self, command, out=b'', length=0):
        """What a nexus has to hear first is heard, and a unit that becomes ready is waited for."""
        end = time.monotonic() + 60
        Peer.target = IQN
        peer = Peer(timeout=60).login()
        while True:
            data, status, sense = self.ask(peer, command, out, length)
            if not sense or (sense[0] != 6 and sense != (2, 4, 1)) or time.monotonic() > end:
                peer.close()
                return data, status, sense
            time.sleep(0.001)

    def write(self, n):
        return self.settled(cdb(0x2a, 8), out=sector(n))[1]

    def has(self):
        data, status, sense = self.settled(cdb(0x28, 8), length=512)
        return int(data.split()[0]) if data[:1].isdigit() else sense or status or 0

    def sync(self):
        return self.settled(SYNC)[1]


A, B = Unit(1), Unit(2)


def until(what, seconds=60):
    end = time.monotonic() + seconds
    while not what() and time.monotonic() < end:
        time.sleep(0.02)
    return what()


def b_is_clean(tgtd):
    """And has no record, which would stay for a minute."""
    b_unit = ('--tid', 1, '--lun', 2)
    for args in (('delete', *b_unit), ('new', *b_unit, '-b', DIR + '/b')):
        rc, out = tgtd.adm('logicalunit', *args)
        if rc:
            raise SystemExit('not ok %s: %s' % (args, out))


def killed_dirty(tgtd, n):
    """Unit A has @n, which its store has not; nothing else is dirty."""
    b_is_clean(tgtd)
    for _ in range(100):
        A.write(n)
        worker = tgtd.worker()
        os.kill(worker, signal.SIGSTOP)
        if stored('a') != n:
            tgtd.kill_both()
            return
        os.kill(worker, signal.SIGCONT)
        A.write(n + 100)
    raise SystemExit('not ok nothing is dirty for long enough')


def stored(name):
    with open(DIR + '/' + name, 'rb') as f:
        f.seek(8 * 512)
        got = f.read(512)
    return int(got.split()[0]) if got[:1].isdigit() else 0


def configure(tgtd):
    for args in (('target', 'new', '--tid', 1, '-T', IQN), ('target', 'bind', '--tid', 1, '-I', 'ALL'),
                 ('logicalunit', 'new', '--tid', 1, '--lun', 1, '-b', DIR + '/a'),
                 ('logicalunit', 'new', '--tid', 1, '--lun', 2, '-b', DIR + '/b')):
        rc, out = tgtd.adm(*args)
        is_('%s %s' % args[:2], rc == 0, out)


def shown(tgtd, mode, word):
    rc, out = tgtd.adm(mode, 'show')
    return rc == 0 and word in out


def starts(manager, tgtd, program, what):
    tgtd.start(manager.store, program)
    serves = tgtd.serves()
    is_('%s: it serves' % what, serves)
    if not serves:
        print('# ' + open(tgtd.log).read().replace('\n', '\n# '))
        sys.exit(1)


def is_apart(manager, tgtd, b):
    is_('... the unit whose data is there is not ready', A.has()[:1] == (2,), A.has())
    is_('... nor takes it writes', A.write(99) == 2)
    is_('... and is shown so', shown(tgtd, 'target', 'Apart: what is dirty of it is in memory of another version'))
    is_('... the other one is served', B.has() == b and B.write(b + 1) == 0 and B.sync() == 0, B.has())
    is_('... what is kept is shown', shown(tgtd, 'cache', 'Apart: '))
    is_('... and is with the service manager, too', until(lambda: manager.names() == ['apart/0/0'] + HELD), manager.names())


def is_back(manager, tgtd, a, b):
    is_('... what was acknowledged is there', A.has() == a, A.has())
    is_('... and SYNCHRONIZE CACHE succeeds', A.sync() == 0)
    is_('... what the other version has served since is there as well', B.has() == b, B.has())
    is_('... nothing is kept any more', until(lambda: manager.names() == HELD) and not shown(tgtd, 'cache', 'Apart: '),
        manager.names())
    is_('... nor shown', not shown(tgtd, 'target', 'Apart') and not shown(tgtd, 'target', 'In doubt'))
    is_('... and the store has it', until(lambda: stored('a') == a), stored('a'))


def there_and_back(manager, tgtd):
    starts(manager, tgtd, OURS, 'one version')
    configure(tgtd)
    killed_dirty(tgtd, 10)
    starts(manager, tgtd, OTHER, 'another version')
    is_apart(manager, tgtd, 20)
    rc, out = tgtd.adm('logicalunit', 'new', '--tid', 1, '--lun', 3, '-b', DIR + '/a')
    is_('... a new unit of that store is there', rc == 0, out)
    is_('... and not ready either', isinstance(Unit(3).has(), tuple))
    is_('... it goes', tgtd.adm('logicalunit', 'delete', '--tid', 1, '--lun', 3)[0] == 0)
    tgtd.kill_both()
    starts(manager, tgtd, OTHER, 'the other version once more')
    is_apart(manager, tgtd, 21)
    b_is_clean(tgtd)
    tgtd.kill_both()
    starts(manager, tgtd, OURS, 'the version that knows it')
    is_back(manager, tgtd, 10, 22)


def given_up(manager, tgtd):
    killed_dirty(tgtd, 11)
    starts(manager, tgtd, OTHER, 'another version')
    is_apart(manager, tgtd, 22)
    rc, out = tgtd.adm('logicalunit', 'update', '--tid', 1, '--lun', 1, '--params', 'refresh=1')
    is_('refresh=1 gives it up', rc == 0, out)
    is_('... which the log says', tgtd.said('is given up, by tgtadm: LOST'))
    is_('... the unit has what its store has', A.has() == stored('a') and A.write(12) == 0 and A.sync() == 0, A.has())
    is_('... nothing is kept any more', until(lambda: manager.names() == HELD) and not shown(tgtd, 'cache', 'Apart: '),
        manager.names())


def planned(manager, tgtd):
    """Another version serves beside it; an administrator installs the one that knows it, and restarts."""
    program = DIR + '/tgtd'
    killed_dirty(tgtd, 13)  # of the other version
    shutil.copy(OURS, program)
    starts(manager, tgtd, program, 'one that does not know it')
    is_apart(manager, tgtd, 23)
    shutil.copy(OTHER, program + '.new')
    os.rename(program + '.new', program)
    worker = tgtd.worker()
    rc, out = tgtd.adm('system', 'update', '--name', 'restart')
    is_('a planned restart to the version that knows it', rc == 0, out)
    is_('... it serves', until(lambda: tgtd.worker() != worker) and tgtd.serves())
    is_back(manager, tgtd, 13, 24)


def stopped(manager, tgtd):
    killed_dirty(tgtd, 14)  # of the other version
    starts(manager, tgtd, OURS, 'one that does not know it')
    is_apart(manager, tgtd, 24)
    tgtd.process.terminate()
    is_('it ends with 1', tgtd.process.wait(timeout=120) == 1)
    is_('... and says what it has not written', tgtd.said('ends with this daemon, unless a service manager has it'))
    starts(manager, tgtd, OTHER, 'the version that knows it')
    configure(tgtd)
    is_back(manager, tgtd, 14, 25)
    tgtd.process.terminate()
    is_('it ends with 0', tgtd.process.wait(timeout=120) == 0)
    is_('... and nothing is stored any more', until(lambda: manager.names() == []), manager.names())


def main():
    for name in 'a', 'b':
        with open(DIR + '/' + name, 'wb') as f:
            f.write(bytes(8 * 512) + sector(20))
            f.truncate(4 << 20)
    os.mkdir(DIR + '/state')
    manager = Manager()
    tgtd = Tgtd(manager)
    there_and_back(manager, tgtd)
    given_up(manager, tgtd)
    planned(manager, tgtd)
    stopped(manager, tgtd)
    if is_.failures:
        print('# ' + open(tgtd.log).read().replace('\n', '\n# '))
    sys.exit(is_.failures > 0)


main()
