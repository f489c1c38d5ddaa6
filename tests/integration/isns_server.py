#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""A stand-in for an iSNS server (RFC 4171): writes down what it is told, and answers well or badly.

    isns_server.py PORT-FILE LOG MODE-FILE     serves
    isns_server.py ask PORT esi ENTITY IP IPPORT | scn NODE SOURCE | unknown | FILE-OF-BYTES...
                                               asks a client: prints the status, and whether the rest is the question's

One line of LOG a message: REG or DEREG, its flags, then tag=value of each attribute; other messages go to LOG.more
(SCNREG, QRY). MODE-FILE says how to answer: good; refuse (status 3); silent; close; garbage; slow (a byte at a time);
no-esi, no-scn (refused, the rest is good); once (one question a connection); forgot (knows of no entity).
MODE-FILE.initiators: lines "target initiator", who shares a discovery domain with whom.
"""
import errno, ipaddress, os, random, socket, struct, sys, threading, time

NAMES = {1: 'REG', 2: 'QRY', 4: 'DEREG', 5: 'SCNREG'}


def exactly(s, n):
    got = b''
    while len(got) < n:
        more = s.recv(n - len(got))
        if not more:
            raise EOFError
        got += more
    return got


def message(s):
    version, function, length, flags, xid, seq = struct.unpack('>HHHHHH', exactly(s, 12))
    assert version == 1 and seq == 0 and flags & 0x8c00 == 0x8c00, 'header'
    return function, flags, xid, exactly(s, length)


def attributes(body):
    at, out = 0, []
    while at < len(body):
        tag, n = struct.unpack('>II', body[at:at + 8])
        out.append((tag, body[at + 8:at + 8 + n]))
        at += 8 + n
    assert at == len(body), 'attributes'
    return out


def value(tag, v):
    if tag in (1, 32) and v:
        assert v.endswith(b'\0') and len(v) % 4 == 0, 'text'
        return v.rstrip(b'\0').decode()
    if tag in (16, 49) and v:
        a = ipaddress.IPv6Address(v)
        return str(a.ipv4_mapped or a)
    return str(int.from_bytes(v, 'big')) if v else ''


def attr(tag, v):
    if isinstance(v, str):
        v = v.encode() + b'\0'
        v += b'\0' * (-len(v) % 4)
    elif isinstance(v, int):
        v = struct.pack('>I', v)
    return struct.pack('>II', tag, len(v)) + v


def ask(port, what):
    s = socket.create_connection(('127.0.0.1', int(port)), 10)
    s.settimeout(10)
    stamp = attr(4, struct.pack('>Q', int(time.time())))
    function, body = 0x8, b''
    if what[0] == 'esi':
        function = 0xd
        body = stamp + attr(1, what[1]) + attr(16, b'\0' * 10 + b'\xff\xff' + socket.inet_aton(what[2])) + attr(17, int(what[3]))
    elif what[0] == 'scn':
        body = attr(32, what[1]) + stamp + attr(35, 0x08) + attr(32, what[2])
    elif what[0] == 'unknown':
        function, body = 0x9, attr(32, 'x')
    else:
        got = b''
        try:
            with open(what[0], 'rb') as f:
                s.sendall(f.read())
            s.shutdown(socket.SHUT_WR)
            got = s.makefile('rb').read()
        except ConnectionError:
            pass
        except OSError as e:  # not connected any more
            assert e.errno == errno.ENOTCONN
        print('%u bytes' % len(got))
        return
    # in two PDUs, the second of which comes in pieces: a sequence (5.1.5)
    cut = len(body) // 8 * 4
    first = struct.pack('>HHHHHH', 1, function, cut, 0x4400, 77, 0) + body[:cut]
    second = struct.pack('>HHHHHH', 1, function, len(body) - cut, 0x4800, 77, 1) + body[cut:]
    s.sendall(first + second[:5])
    time.sleep(0.05)
    s.sendall(second[5:])
    rfunction, _, xid, answer = message(s)
    assert rfunction == function | 0x8000 and xid == 77, 'answer'
    rest = {'esi': body, 'scn': attr(32, what[1]) if len(what) > 1 else b''}.get(what[0], b'')
    print(int.from_bytes(answer[:4], 'big'), 'as asked' if answer[4:] == rest else 'otherwise')


if sys.argv[1] == 'ask':
    ask(sys.argv[2], sys.argv[3:])
    sys.exit(0)

listener = socket.create_server(('127.0.0.1', 0))
with open(sys.argv[1] + '.new', 'w') as f:
    f.write(str(listener.getsockname()[1]))
os.rename(sys.argv[1] + '.new', sys.argv[1])
log = open(sys.argv[2], 'a', buffering=1)
more = open(sys.argv[2] + '.more', 'a', buffering=1)
known = []  # the attributes of the last registration, of all its messages


def answer_to(function, flags, attrs, mode):
    """status, attributes"""
    if mode == 'refuse':
        return 3, b''
    if function == 1:
        if mode == 'no-esi' and any(t == 20 for t, _ in attrs):
            return 21, b''
        if flags & 0x1000:
            known.clear()
        known.extend(attrs)
    if function == 4:
        known.clear()
    if function == 5 and mode == 'no-scn':
        return 17, b''
    if function == 2:
        source, key = attrs[0][1], attrs[1]
        out = attr(*key) + attr(0, b'')
        if key[0] == 1:
            if mode == 'forgot' or not known:
                return 9, b''
            return 0, out + b''.join(attr(t, v) for t, v in known if t in (16, 17, 32))
        assert key == (33, b'\0\0\0\2'), 'key'
        try:
            with open(sys.argv[3] + '.initiators') as f:
                pairs = [line.split() for line in f]
        except FileNotFoundError:
            pairs = []
        return 0, out + b''.join(attr(32, b) for a, b in pairs if a == value(32, source))
    return 0, b''


def serve(s):
    s.settimeout(20)
    try:
        while True:
            function, flags, xid, body = message(s)
            attrs = attributes(body)
            line = '%s %x %s\n' % (NAMES[function], flags, ' '.join('%u=%s' % (t, value(t, v)) for t, v in attrs))
            with open(sys.argv[3]) as f:
                mode = f.read().strip()
            status, rest = answer_to(function, flags, attrs, mode)
            (log if function in (1, 4) else more).write(line)
            payload = struct.pack('>I', status) + rest
            # in two or more PDUs, as long answers come
            size = min(len(payload) // 8 * 4 + 4, 65532)
            cuts = [payload[i:i + size] for i in range(0, len(payload), size)]
            answer = b''.join(struct.pack('>HHHHHH', 1, function | 0x8000, len(c), 0x4000 | (0 if i else 0x400) |
                                          (0x800 if i == len(cuts) - 1 else 0), xid, i) + c for i, c in enumerate(cuts))
            if mode == 'silent':
                s.recv(1)
                return
            if mode == 'close':
                return
            if mode == 'garbage':
                s.sendall(random.randbytes(5000))
                return
            if mode == 'slow':
                for b in answer:
                    s.sendall(bytes([b]))
                    time.sleep(0.01)
            else:
                s.sendall(answer)
            if mode == 'once':
                return
    except AssertionError as e:
        log.write('WRONG %s\n' % e)
    except (OSError, EOFError):
        pass
    finally:
        s.close()


while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
