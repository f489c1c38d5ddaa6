#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Keeps what a worker of tgtd leaves (events/kept_msg.h), and starts the next one at once, however often they die.

    keeper.py TGTD OPTIONS...

The keeper in tgtd gives up on workers that die three times within ten seconds; a test that kills them wants them back.
It does no more than that: SIGTERM is passed on, and the end of a worker by itself is the end, unless it has asked to be
replaced. Then the next one prepares meanwhile, and begins when the one before has testified that nothing of it is
under way, or has ended.

The file $KEEPER_FORGETS, when it is there, names kinds of descriptors (store, open, ...) that the next one does not get.
"""
import os, select, signal, socket, struct, sys

MAGIC, FDS = 0x6b657074, 253
LEFT, BEGIN, DONE, PUT, DROP, RESTART, CAN, PREPARE, PREPARED, GO, QUIESCENT = 1, 2, 3, 4, 5, 9, 13, 14, 15, 16, 17
MESSAGE = struct.Struct('<IIIIQQ128s')
left, ending, dying = {}, [], []


def send(link, word, fds=(), keys=(), seq=0, value=0):
    data = MESSAGE.pack(MAGIC, word, seq, len(fds), value, 0, b'')
    try:
        socket.send_fds(link, [data + b''.join(k.ljust(65, b'\0') for k in keys)], list(fds))
    except OSError:
        pass  # it has gone, as will be seen


def receive(link):
    """The word, its number, its text, and what came with it; None: it has gone."""
    try:
        data, fds = socket.recv_fds(link, 65536, FDS)[:2]
    except ConnectionError:
        return None
    if not data:
        return None
    for fd in fds:
        os.set_inheritable(fd, False)  # the next worker has what it is told of, and no more
    _, word, seq, _, _, _, text = MESSAGE.unpack(data[:MESSAGE.size])
    return word, seq, text.split(b'\0')[0], fds


def hear(link, word, seq, key, fds):
    if word in (PUT, DROP):
        if key in left:
            os.close(left.pop(key))
        if word == PUT:
            left[key] = fds.pop()
        send(link, DONE, seq=seq)
    for fd in fds:
        os.close(fd)


def serve(link):
    """Until the worker has closed its end."""
    said = receive(link)
    while said:
        hear(link, *said)
        said = receive(link)


def forget():
    try:
        with open(os.environ['KEEPER_FORGETS'], 'rb') as f:
            kinds = f.read().split()
    except (KeyError, FileNotFoundError):
        return
    for key in [k for k in left if k.split(b'/')[0] in kinds]:
        os.close(left.pop(key))


class Worker:
    """A process, and the socket to it. One that has been told to prepare is told to begin later."""

    def __init__(self, args):
        self.link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs.set_inheritable(True)
        self.pid = os.fork()
        if self.pid == 0:
            os.execve(args[0], args, dict(os.environ, TGTD_KEEPER=str(theirs.fileno())))
        theirs.close()
        self.prepared = self.planned = False

    def told(self, word, restarts):
        forget()
        keys = list(left)
        for at in range(0, len(keys), FDS):
            some = keys[at:at + FDS]
            send(self.link, LEFT, [left[k] for k in some], some)
        if word == PREPARE:
            send(self.link, PREPARE, value=restarts)
            return
        tombstone = os.memfd_create('tombstone')
        os.ftruncate(tombstone, 4096)
        send(self.link, CAN, value=1)
        send(self.link, BEGIN, [tombstone], value=restarts)
        os.close(tombstone)


def serve_with_next(worker, args, restarts):
    """Until the worker has closed its end, or has testified and was killed. The next one, if it has been run; and which."""
    next_one, asked = None, False
    while True:
        dying[:] = [pid for pid in dying if not os.waitpid(pid, os.WNOHANG)[0]]
        links = [worker.link] + ([next_one.link] if next_one and not asked else [])
        for link in select.select(links, [], [], 0.02 if dying else None)[0]:
            if next_one and link is next_one.link:
                said = receive(next_one.link)
                next_one.prepared = said is not None and said[0] == PREPARED
                if said is None or next_one.prepared:
                    asked = True
                    send(worker.link, GO)
                continue
            said = receive(worker.link)
            if said is None:
                return next_one, False
            hear(worker.link, *said)
            if said[0] == RESTART and not next_one:
                worker.planned = True
                next_one = Worker(args)
                next_one.told(PREPARE, restarts + 1)
            if said[0] == QUIESCENT and asked and next_one.prepared:
                os.kill(worker.pid, signal.SIGKILL)
                return next_one, True


def main():
    args, restarts = sys.argv[1:], 0
    worker = Worker(args)

    def end(number, frame):
        ending.append(number)
        os.kill(worker.pid, signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        worker.told(BEGIN, restarts)
        next_one, testified = serve_with_next(worker, args, restarts)
        worker.link.close()
        if testified:
            dying.append(worker.pid)
        else:
            status = os.waitpid(worker.pid, 0)[1]
            if ending or not (os.WIFSIGNALED(status) or worker.planned):
                if next_one:
                    os.kill(next_one.pid, signal.SIGKILL)
                sys.exit(os.waitstatus_to_exitcode(status) & 255)
        worker = next_one or Worker(args)
        restarts += 1


if __name__ == '__main__':
    main()
