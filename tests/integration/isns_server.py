#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""A stand-in for an iSNS server (RFC 4171): writes down what it is told, and answers well or badly.

    isns_server.py PORT-FILE LOG MODE-FILE

One line of LOG a message: REG or DEREG, its flags, then tag=value of each attribute. MODE-FILE says how to answer:
good; refuse (status 3); silent; close; garbage; slow (a byte at a time).
"""
import ipaddress, os, random, socket, struct, sys, time

listener = socket.create_server(('127.0.0.1', 0))
with open(sys.argv[1] + '.new', 'w') as f:
    f.write(str(listener.getsockname()[1]))
os.rename(sys.argv[1] + '.new', sys.argv[1])
log = open(sys.argv[2], 'a', buffering=1)


def exactly(s, n):
    got = b''
    while len(got) < n:
        more = s.recv(n - len(got))
        if not more:
            raise EOFError
        got += more
    return got


def value(tag, v):
    if tag in (1, 32):
        assert v.endswith(b'\0') and len(v) % 4 == 0
        return v.rstrip(b'\0').decode()
    if tag in (16, 49):
        a = ipaddress.IPv6Address(v)
        return str(a.ipv4_mapped or a)
    return str(int.from_bytes(v, 'big')) if v else ''


while True:
    s, _ = listener.accept()
    s.settimeout(20)
    try:
        version, function, length, flags, xid, seq = struct.unpack('>HHHHHH', exactly(s, 12))
        body = exactly(s, length)
        assert version == 1 and seq == 0 and flags & 0x8c00 == 0x8c00, 'header'
        words, at = [], 0
        while at < len(body):
            tag, n = struct.unpack('>II', body[at:at + 8])
            words.append('%u=%s' % (tag, value(tag, body[at + 8:at + 8 + n])))
            at += 8 + n
        assert at == len(body), 'attributes'
        with open(sys.argv[3]) as f:
            mode = f.read().strip()
        log.write('%s %x %s\n' % ({1: 'REG', 4: 'DEREG'}[function], flags, ' '.join(words)))
        answer = struct.pack('>HHHHHHI', 1, function | 0x8000, 4 + length, 0x4c00, xid, 0, 3 if mode == 'refuse' else 0) + body
        if mode in ('good', 'refuse'):
            s.sendall(answer)
            s.recv(1)
        elif mode == 'slow':
            for b in answer[:16]:
                s.sendall(bytes([b]))
                time.sleep(0.01)
            s.recv(1)
        elif mode == 'silent':
            s.recv(1)
        elif mode == 'garbage':
            s.sendall(random.randbytes(5000))
    except (OSError, EOFError, AssertionError) as e:
        if isinstance(e, AssertionError):
            log.write('WRONG %s\n' % e)
    finally:
        s.close()
