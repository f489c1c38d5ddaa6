# SPDX-License-Identifier: GPL-2.0-or-later
"""An NBD server that misbehaves: bad_nbd.py SOCKET|PORT HOW

Serves 64 MiB of zeros by the fixed newstyle handshake and simple replies, but for HOW:
empty, huge, odd      the size: 0, 2^63 - 1, 1000 bytes
blocks                its requests are of 8192 bytes at least
garbage               answers every request with bytes that mean nothing
stranger              answers with a cookie that nobody asked by
short                 ends the connection amid the data of a READ
errors                answers every request with an error, one after the other
silent                answers no request
closes, always        ends connections as soon as they are made: but for the first, all
talks                 names contexts, and never comes to an end of that
chunks                answers requests by structured replies that never end
nothing               answers READ by a structured reply that has no data
twice                 says of a range that it has data, and then that it has none
"""
import os
import socket
import struct
import sys

path, how = sys.argv[1], sys.argv[2]
size = {'empty': 0, 'huge': (1 << 63) - 1, 'odd': 1000}.get(how, 64 << 20)
FLAGS = 1 | 4 | 8 | 32  # has flags, FLUSH, FUA, TRIM
structured = how in ('talks', 'chunks', 'nothing', 'twice')
errors = connections = 0


def get(c, n):
    data = b''
    while len(data) < n:
        more = c.recv(n - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def option_reply(c, option, kind, data=b''):
    c.sendall(struct.pack('>QIII', 0x3e889045565a9, option, kind, len(data)) + data)


def chunk(cookie, flags, kind, data=b''):
    return struct.pack('>IHHQI', 0x668e33ef, flags, kind, cookie, len(data)) + data


def serve(c):
    global errors, connections
    connections += 1
    c.sendall(b'NBDMAGICIHAVEOPT' + struct.pack('>H', 1 | 2))
    get(c, 4)
    while True:
        _, option, n = struct.unpack('>QII', get(c, 16))
        data = get(c, n)
        if option in (6, 7):  # INFO, GO
            option_reply(c, option, 3, struct.pack('>HQH', 0, size, FLAGS))
            if how == 'blocks':
                option_reply(c, option, 3, struct.pack('>HIII', 3, 8192, 8192, 1 << 20))
            option_reply(c, option, 1)
            if option == 7:
                break
        elif option == 8 and structured:
            option_reply(c, option, 1)
        elif option == 10 and structured:  # SET_META_CONTEXT
            while how == 'talks':
                c.sendall((struct.pack('>QIII', 0x3e889045565a9, option, 4, 4 + 15) +
                           struct.pack('>I', 1) + b'base:allocation') * (1 << 17))
            option_reply(c, option, 4, struct.pack('>I', 1) + b'base:allocation')
            option_reply(c, option, 1)
        elif option == 2:
            option_reply(c, option, 1)
            return
        else:
            option_reply(c, option, 0x80000001)
            assert data is not None
    if how == 'always' or how == 'closes' and connections > 1:
        return
    while True:
        _, _, kind, cookie, at, n = struct.unpack('>IHHQQI', get(c, 28))
        if kind == 1:
            get(c, n)
        if kind == 2:
            return
        if how == 'garbage':
            c.sendall(os.urandom(64))
            continue
        if how == 'silent':
            continue
        if how == 'chunks':  # NBD_REPLY_TYPE_NONE is the last one; BLOCK_STATUS, or a hole, is not
            one = chunk(cookie, 0, 5, struct.pack('>III', 1, 4096, 0)) if kind == 7 else \
                chunk(cookie, 0, 32769, struct.pack('>IH', 5, 0))
            while True:
                c.sendall(one * (1 << 17))
        if how == 'nothing' and kind == 0:
            c.sendall(chunk(cookie, 1, 0))
            continue
        if how == 'twice' and kind == 7:
            c.sendall(chunk(cookie, 0, 5, struct.pack('>III', 1, n // 2, 0)) +
                      chunk(cookie, 1, 5, struct.pack('>III', 1, n // 2, 3)))
            continue
        if how == 'twice' and kind == 0:
            c.sendall(chunk(cookie, 1, 1, struct.pack('>Q', at) + bytes(n)))
            continue
        if how == 'stranger':
            cookie += 1
        error = 0
        if how == 'errors':
            errors += 1
            error = (1, 5, 12, 22, 28, 75, 95, 108, 0x7fffffff)[errors % 9]
        c.sendall(struct.pack('>IIQ', 0x67446698, error, cookie))
        if kind == 0 and not error:
            c.sendall(bytes(n // 2 if how == 'short' else n))
            if how == 'short':
                return


s = socket.socket(socket.AF_INET if path.isdigit() else socket.AF_UNIX)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(('127.0.0.1', int(path)) if path.isdigit() else path)
s.listen(8)
while True:
    conn = s.accept()[0]
    try:
        serve(conn)
    except (EOFError, OSError):
        pass
    conn.close()
