#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""A relay that harms one of the connections through it.

    cutter.py PORT reset|silence BYTES     prints the port where it listens, and relays to 127.0.0.1:PORT

When the second one has brought so many bytes (1m: MiB) either way, it is reset, or nothing is passed on any more.
"""
import socket, struct, sys, threading

port, way, limit = int(sys.argv[1]), sys.argv[2], int(sys.argv[3].rstrip('m')) << 20


class Pair:
    def __init__(self, client, number):
        self.ends = client, socket.create_connection(('127.0.0.1', port))
        self.number, self.passed, self.silent = number, 0, False
        for i in 0, 1:
            threading.Thread(target=self.relay, args=(self.ends[i], self.ends[1 - i]), daemon=True).start()

    def relay(self, a, b):
        try:
            while True:
                data = a.recv(65536)
                if not data:
                    break
                self.passed += len(data)
                if self.number == 2 and self.passed > limit:
                    if way == 'reset':
                        break
                    self.silent = True
                if not self.silent:
                    b.sendall(data)
        except OSError:
            pass
        for s in self.ends:
            try:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
                s.shutdown(socket.SHUT_RDWR)
                s.close()
            except OSError:
                pass


listener = socket.socket()
listener.bind(('127.0.0.1', 0))
listener.listen(64)
print(listener.getsockname()[1], flush=True)
pairs = []
while True:
    pairs.append(Pair(listener.accept()[0], len(pairs) + 1))
