#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What plain TCP gives: tcp_stream.py serve PORT | read|write HOST PORT SECONDS

read and write print the MB/s that came through, after a quarter of the time to get up to speed.
"""
import socket
import sys
import time

SIZE = 1 << 18


def serve(port):
    s = socket.create_server(('0.0.0.0', port))
    while True:
        c, _ = s.accept()
        try:
            buf = bytearray(SIZE)
            if c.recv(1) == b'r':
                while True:
                    c.sendall(buf)
            # a write: the other side hears how much has come, when it asks by ending its half
            got, marks = 0, []
            while True:
                n = c.recv_into(buf)
                if not n:
                    break
                got += n
                marks.append((time.monotonic(), got))
            late = [m for m in marks if m[0] - marks[0][0] >= (marks[-1][0] - marks[0][0]) / 4]
            rate = (late[-1][1] - late[0][1]) / max(late[-1][0] - late[0][0], 1e-3)
            c.sendall(b'%.3f\n' % (rate / 1e6))
        except OSError:
            pass
        c.close()


def client(what, host, port, seconds):
    s = socket.create_connection((host, port), 60)
    s.sendall(what[:1].encode())
    buf, start = bytearray(SIZE), time.monotonic()
    warm, got = start + seconds / 4, 0
    if what == 'write':
        while time.monotonic() - start < seconds:
            s.sendall(buf)
        s.shutdown(socket.SHUT_WR)
        print(s.makefile().readline().strip())
        return
    while time.monotonic() - start < seconds:
        n = s.recv_into(buf)
        got += n if time.monotonic() >= warm else 0
    print('%.3f' % (got / (time.monotonic() - warm) / 1e6))


if sys.argv[1] == 'serve':
    serve(int(sys.argv[2]))
else:
    client(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
