#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Keeps what a worker of tgtd leaves (events/kept_msg.h), and starts the next one at once, however often they die.

    keeper.py TGTD OPTIONS...

The keeper in tgtd gives up on workers that die three times within ten seconds; a test that kills them wants them back.
It does no more than that: SIGTERM is passed on, and the end of a worker by itself is the end, unless it has asked to be
replaced.
"""
import os, signal, socket, struct, sys

MAGIC, FDS = 0x6b657074, 253
LEFT, BEGIN, DONE, PUT, DROP, RESTART = 1, 2, 3, 4, 5, 9
MESSAGE = struct.Struct('<IIIIQQ128s')
left, ending, planned = {}, [], []


def send(link, word, fds=(), keys=(), seq=0, value=0, when=0):
    data = MESSAGE.pack(MAGIC, word, seq, len(fds), value, when, b'')
    socket.send_fds(link, [data + b''.join(k.ljust(65, b'\0') for k in keys)], list(fds))


def start(args, restarts):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.set_inheritable(True)
    pid = os.fork()
    if pid == 0:
        os.execve(args[0], args, dict(os.environ, TGTD_KEEPER=str(theirs.fileno())))
    theirs.close()
    keys = list(left)
    for at in range(0, len(keys), FDS):
        some = keys[at:at + FDS]
        send(ours, LEFT, [left[k] for k in some], some)
    tombstone = os.memfd_create('tombstone')
    os.ftruncate(tombstone, 4096)
    send(ours, BEGIN, [tombstone], value=restarts)
    os.close(tombstone)
    return pid, ours


def serve(link):
    """Until the worker has closed its end."""
    while True:
        data, fds = socket.recv_fds(link, 65536, FDS)[:2]
        if not data:
            return
        _, word, seq, _, _, _, text = MESSAGE.unpack(data[:MESSAGE.size])
        key = text.split(b'\0')[0]
        if word in (PUT, DROP):
            if key in left:
                os.close(left.pop(key))
            if word == PUT:
                left[key] = fds.pop()
            send(link, DONE, seq=seq)
        if word == RESTART:
            planned.append(text)
        for fd in fds:
            os.close(fd)


def main():
    worker, restarts = [0], 0

    def end(number, frame):
        ending.append(number)
        os.kill(worker[0], signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        worker[0], link = start(sys.argv[1:], restarts)
        try:
            serve(link)
        except ConnectionError:
            pass
        link.close()
        status = os.waitpid(worker[0], 0)[1]
        if ending or not (os.WIFSIGNALED(status) or planned):
            sys.exit(os.waitstatus_to_exitcode(status) & 255)
        planned.clear()
        restarts += 1


if __name__ == '__main__':
    main()
