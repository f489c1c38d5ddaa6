#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""A file system of one file, "disk", that hangs as a real one does: as long as there is a file HANGS, who writes to it is in
the kernel, and no signal gets him out (fuse(4); linux/fuse.h). As long as there is HANGS.size, so is who asks for its
size; HANGS.close: who closes it.

    hanging_fs.py DIRECTORY MIB HANGS       mounts it, says "mounted", and serves until it is unmounted; exit status 77 when
                                            this machine does not let us mount
"""
import ctypes, os, select, struct, sys, time

LOOKUP, FORGET, GETATTR, OPEN, READ, WRITE, RELEASE, FSYNC, FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, INTERRUPT, BATCH_FORGET = \
    1, 2, 3, 14, 15, 16, 18, 20, 25, 26, 27, 28, 29, 36, 42
ENOENT, ENOSYS = 2, 38


def attributes(node, size):
    mode, links = (0o40755, 2) if node == 1 else (0o100600, 1)
    return struct.pack('<6Q10I', node, 0 if node == 1 else size, 0, 0, 0, 0, 0, 0, 0, mode, links, 0, 0, 0, 4096, 0)


class Fs:
    def __init__(self, fd, size, hangs):
        self.fd, self.data, self.hangs, self.kept = fd, bytearray(size), hangs, []
        self.unsaid, self.unclosed = [], []

    def answer(self, unique, data=b'', error=0):
        os.write(self.fd, struct.pack('<IiQ', 16 + len(data), -error, unique) + data)

    def entry(self, node):
        return attributes(node, len(self.data))

    def write(self, unique, body):
        at, n = struct.unpack('<8xQI', body[:20])
        self.data[at:at + n] = body[40:40 + n]
        self.answer(unique, struct.pack('<II', n, 0))

    def size(self, unique, node):
        """To be asked for each time."""
        self.answer(unique, struct.pack('<QII', 60 if node == 1 else 0, 0, 0) + self.entry(node))

    def one(self, request):
        _, op, unique, node = struct.unpack('<IIQQ', request[:24])
        body = request[40:]
        if op == INIT:
            self.answer(unique, struct.pack('<IIIIHHIIHHI28x', 7, 31, 65536, 0, 16, 12, 65536 * 2, 1, 32, 0, 0))
        elif op in (FORGET, BATCH_FORGET, INTERRUPT):
            pass
        elif op == LOOKUP and body == b'disk\0':
            self.answer(unique, struct.pack('<QQQQII', 2, 0, 60, 0, 0, 0) + self.entry(2))
        elif op == LOOKUP:
            self.answer(unique, error=ENOENT)
        elif op == GETATTR and node == 2 and os.path.exists(self.hangs + '.size'):
            self.unsaid.append(unique)
        elif op == GETATTR:
            self.size(unique, node)
        elif op in (OPEN, OPENDIR):
            self.answer(unique, struct.pack('<QII', 0, 1, 0))  # FOPEN_DIRECT_IO
        elif op == READ:
            at, n = struct.unpack('<8xQI', body[:20])
            self.answer(unique, bytes(self.data[at:at + n]))
        elif op == WRITE and os.path.exists(self.hangs):
            self.kept.append((unique, body))
        elif op == WRITE:
            self.write(unique, body)
        elif op == FLUSH and os.path.exists(self.hangs + '.close'):
            self.unclosed.append(unique)
        elif op in (RELEASE, FSYNC, FLUSH, READDIR, RELEASEDIR):
            self.answer(unique)
        else:
            self.answer(unique, error=ENOSYS)

    def serve(self):
        while True:
            if self.kept and not os.path.exists(self.hangs):
                for unique, body in self.kept:
                    self.write(unique, body)
                self.kept = []
            if self.unsaid and not os.path.exists(self.hangs + '.size'):
                for unique in self.unsaid:
                    self.size(unique, 2)
                self.unsaid = []
            if self.unclosed and not os.path.exists(self.hangs + '.close'):
                for unique in self.unclosed:
                    self.answer(unique)
                self.unclosed = []
            if not select.select([self.fd], [], [], 0.02)[0]:
                continue
            try:
                self.one(os.read(self.fd, 1 << 18))
            except FileNotFoundError:  # interrupted
                continue
            except OSError:  # unmounted
                return


def main():
    directory, mib, hangs = sys.argv[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        fd = os.open('/dev/fuse', os.O_RDWR)
    except OSError:
        sys.exit(77)
    if libc.mount(b'hanging', directory.encode(), b'fuse', 0,
                  b'fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other' % fd):
        sys.exit(77)
    print('mounted', flush=True)
    Fs(fd, int(mib) << 20, hangs).serve()


if __name__ == '__main__':
    main()
