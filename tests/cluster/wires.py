# SPDX-License-Identifier: GPL-2.0-or-later
"""Links between gateways that can be cut: wires.py CUT NAME=FROM:PORT=TO:PORT...

Each wire listens at FROM:PORT and carries bytes to TO:PORT. CUT is a file of names, one a line,
that may change at any time. As long as a wire is named there nothing passes, in neither direction,
and neither end is told: bytes stay where they are, connections are accepted and lead nowhere.
Behind a name "end" its connections are ended at once.
"""
import os, select, socket, sys

cut_file = sys.argv[1]


def address(text):
    host, port = text.rsplit(':', 1)
    return host, int(port)


class Wire:
    def __init__(self, text):
        self.name, here, there = text.split('=')
        self.there = address(there)
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(address(here))
        self.listener.listen(64)
        self.peer = {}  # socket: the other one
        self.left = {}  # socket: bytes that it has not taken yet

    def accept(self):
        a, _ = self.listener.accept()
        b = socket.socket()
        try:
            b.connect(self.there)
        except OSError:
            a.close()
            b.close()
            return
        for s, o in ((a, b), (b, a)):
            s.setblocking(False)
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.peer[s], self.left[s] = o, b''

    def end(self, s):
        for x in (s, self.peer[s]):
            self.peer.pop(x)
            self.left.pop(x)
            x.close()

    def moves(self, s):
        """What @s has sent goes to the other one."""
        o = self.peer[s]
        try:
            data = s.recv(1 << 18)
            if not data:
                return self.end(s)
            self.left[o] += data
            self.drains(o)
        except BlockingIOError:
            pass
        except OSError:
            if s in self.peer:
                self.end(s)

    def drains(self, s):
        try:
            n = s.send(self.left[s])
            self.left[s] = self.left[s][n:]
        except BlockingIOError:
            pass
        except OSError:
            self.end(s)


wires = [Wire(w) for w in sys.argv[2:]]
print('wired', flush=True)
seen, cut = None, {}
while True:
    try:
        now = os.stat(cut_file).st_mtime_ns
    except OSError:
        now = None
    if now != seen:
        seen = now
        words = open(cut_file).read().split() if now else []
        cut = {w for w in words if w != 'end'}
        for w in wires:
            if w.name in cut and 'end' in words:
                for s in list(w.peer):
                    if s in w.peer:
                        w.end(s)
    reads, writes, where = [], [], {}
    for w in wires:
        if w.name in cut:
            continue
        reads.append(w.listener)
        where[w.listener] = w
        for s, o in w.peer.items():
            where[s] = w
            if not w.left[o]:
                reads.append(s)
            if w.left[s]:
                writes.append(s)
    r, x, _ = select.select(reads, writes, [], 0.01)
    for s in x:
        if s in where[s].peer:
            where[s].drains(s)
    for s in r:
        w = where[s]
        if s is w.listener:
            w.accept()
        elif s in w.peer:
            w.moves(s)
