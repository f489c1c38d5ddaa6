# SPDX-License-Identifier: GPL-2.0-or-later
"""What initiators of gateways share: a path to one of them, and commands by whichever serves."""
import os, socket, struct, sys, time

sys.path.insert(0, 'tests/support')
sys.dont_write_bytecode = True
from iscsi_peer import Gone, Peer  # noqa: E402


NEXUS = os.environ.get('NEXUS', '')


def login_of(peer, nexus=NEXUS[:1]):
    """By the name of $NEXUS, if there is one: as nexuses.py calls it, which may have registered it."""
    if not nexus:
        return peer.login()
    return peer.login(name='iqn.2026-11.org.tgtd.test:' + nexus, isid=struct.pack('>BHBH', 0x80, 0x77, 0, ord(nexus)))


def addresses_of(words):
    return [(a.split(':')[0], int(a.split(':')[1])) for a in words]


class Path:
    def __init__(self, address):
        self.address, self.peer, self.again = address, None, 0

    def ready(self):
        """A session, or None; tried twice a second."""
        if self.peer or time.monotonic() < self.again:
            return self.peer
        self.again = time.monotonic() + 0.5
        socket.setdefaulttimeout(1)
        try:
            Peer.count = os.getpid() & 0x3fff
            self.peer = login_of(Peer(timeout=1.5, address=self.address))
        except (Gone, OSError, AssertionError, struct.error):
            self.peer = None
        return self.peer

    def do(self, make):
        """Data and the sense as text, good, or gone."""
        peer = self.ready()
        if not peer:
            return b'', 'gone'
        try:
            peer.out(make(peer))
            got = b''
            while True:
                head, data = peer.recv()
                if head[0] == 0x25:
                    got += data
                    if head[1] & 1:
                        return got, 'good' if not head[3] else 'status %u' % head[3]
                elif head[0] == 0x21:
                    if head[3] == 2:
                        return got, '%x/%02x/%02x' % (data[4] & 15, data[14], data[15])
                    return got, 'status %u' % head[3] if head[3] else 'good'
        except (Gone, OSError, AssertionError, struct.error):
            try:
                peer.close()
            except OSError:
                pass
            self.peer = None
            return b'', 'gone'


class Paths:
    def __init__(self, addresses):
        self.paths, self.at, self.seen = [Path(a) for a in addresses], 0, {}

    def transfer(self, make, also=()):
        """Until one path has done it: another one after standby or a loss. The data; with @also, other
        answers that end it, the last one, and whether it may have been done before."""
        at, until, maybe = self.at, time.monotonic() + 150, False
        while time.monotonic() < until:
            data, status = self.paths[at].do(make)
            self.seen[status] = self.seen.get(status, 0) + 1
            if status == 'good' or status in also:
                self.at = at
                return (status, maybe) if also else data
            if status.startswith('6/'):
                continue
            assert status != 'status 24' or not NEXUS, 'who is registered may write'
            maybe = maybe or status == 'gone'
            at = (at + 1) % len(self.paths)
            if status in ('2/04/0a', 'gone') or at == self.at:
                time.sleep(0.01)
        raise AssertionError('no path serves: %s' % self.seen)
