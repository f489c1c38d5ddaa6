# SPDX-License-Identifier: GPL-2.0-or-later
"""Starts tgtd as a worker of ours, which finds by its own keys what no tgtd has left.

    left_garbage.py WHAT PORT ELSEWHERE TGTD OPTIONS...

WHAT: pipe, zero, directory, memfd, elsewhere (a socket that listens at 127.0.0.1:ELSEWHERE and
blocks), queue (the right address, but nothing listens), version (an arena of another version). What it puts and drops is answered. SIGTERM
is passed on; its exit status is ours.
"""
import os, signal, socket, sys

sys.path.insert(0, 'tests/support')
sys.dont_write_bytecode = True
import keeper

what, port, elsewhere, args = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]


def garbage():
    if what == 'pipe':
        return os.pipe()[0]
    if what == 'zero':
        return os.open('/dev/zero', os.O_RDWR)
    if what == 'directory':
        return os.open('/', os.O_RDONLY)
    if what == 'version':
        fd = os.memfd_create('arena', os.MFD_ALLOW_SEALING)
        os.write(fd, b'tgtarena' + (1000001).to_bytes(4, 'little') + bytes(8 << 20))
        return fd
    if what == 'memfd':
        fd = os.memfd_create('garbage')
        os.write(fd, os.urandom(1 << 20))
        return fd
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if what == 'elsewhere':
        s.bind(('127.0.0.1', elsewhere))
        s.listen()
    return s.detach()


ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
theirs.set_inheritable(True)
pid = os.fork()
if pid == 0:
    ours.close()
    os.execve(args[0], args, dict(os.environ, TGTD_KEEPER=str(theirs.fileno())))
theirs.close()
signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGTERM))
fd = garbage()
keys = [k.encode() for k in ('portal/127.0.0.1:' + port, 'portal/127.0.0.1:1', 'portal/x',
                             'admin/0', 'state', 'arena/0', 'no/such/thing')]
keeper.send(ours, keeper.LEFT, [fd] * len(keys), keys)
tombstone = os.memfd_create('tombstone')
os.ftruncate(tombstone, 4096)
# One has died soon: this one may not ask for another.
keeper.send(ours, keeper.BEGIN, [tombstone], seq=1, value=1)
for f in fd, tombstone:
    os.close(f)
try:
    keeper.serve(ours)
except ConnectionError:
    pass
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 255)
