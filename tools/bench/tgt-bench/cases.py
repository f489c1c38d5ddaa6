# SPDX-License-Identifier: GPL-2.0-or-later
"""Cases, and the sets of them."""
import fnmatch

from common import TARGETS


class Case:
    def __init__(self, name, title, args, who, connections=1, unit='iops', **kw):
        self.name, self.title, self.args, self.who = name, title, args, who
        self.connections, self.unit = connections, unit
        self.rate_of = kw.get('rate_of')
        self.idle = kw.get('idle', 0)
        self.full_only = kw.get('full_only', False)
        self.axis = kw.get('axis')      # (what grows, how much of it): a point of a scaling chart
        self.load_cpus = kw.get('load_cpus')  # instead of --load-cpu
        self.luns = kw.get('luns') or connections  # LUs in use
        self.first = kw.get('first', 0)  # the first of them


IDLE = ('ours', 'tgt-rdwr')  # whose idling is measured
DIGESTS = ['--header-digest', 'CRC32C', '--data-digest', 'CRC32C']
MAIN = 'bare ours ours-* tgt-rdwr'
CASES = [
    Case('r4k-d32', '4 KiB random read, depth 32', ['--bs', '4k', '--depth', '32'], MAIN + ' tgt-null'),
    Case('w4k-d32', '4 KiB random write, depth 32', ['--bs', '4k', '--depth', '32', '--read', '0'], MAIN),
    Case('r4k-d1', '4 KiB random read, depth 1', ['--bs', '4k', '--depth', '1'], MAIN + ' tgt-null'),
    Case('w4k-d1', '4 KiB random write, depth 1', ['--bs', '4k', '--depth', '1', '--read', '0'], MAIN,
         full_only=True),
    Case('r512-d32', '512 B random read, depth 32', ['--bs', '512', '--depth', '32'], MAIN, full_only=True),
    Case('r64k-d32', '64 KiB random read, depth 32', ['--bs', '64k', '--depth', '32'], MAIN),
    Case('r64k-d32-crc', 'the same, header and data digests', ['--bs', '64k', '--depth', '32'] + DIGESTS, MAIN),
    Case('w64k-d32', '64 KiB random write, depth 32', ['--bs', '64k', '--depth', '32', '--read', '0'], MAIN + ' bare-spread',
         full_only=True),
    Case('w64k-d32-crc', '64 KiB random write, both digests',
         ['--bs', '64k', '--depth', '32', '--read', '0'] + DIGESTS, MAIN, full_only=True),
    Case('r256k-d32', '256 KiB read, depth 32', ['--bs', '256k', '--depth', '32'], MAIN, unit='mbps'),
    Case('r256k-d32-crc', 'the same, header and data digests', ['--bs', '256k', '--depth', '32'] + DIGESTS, MAIN, unit='mbps',
         full_only=True),
    Case('w256k-d32', '256 KiB write, depth 32', ['--bs', '256k', '--depth', '32', '--read', '0'],
         MAIN + ' bare-spread',
         unit='mbps'),
    Case('r1m-d32', '1 MiB read, depth 32', ['--bs', '1m', '--depth', '32'], MAIN, unit='mbps'),
    Case('r1m-d32-crc', 'the same, header and data digests', ['--bs', '1m', '--depth', '32'] + DIGESTS, MAIN, unit='mbps',
         full_only=True),
    Case('w1m-d32', '1 MiB write, depth 32', ['--bs', '1m', '--depth', '32', '--read', '0'],
         MAIN + ' bare-spread', unit='mbps'),
    Case('m4k-d32', '4 KiB 70 % reads, Zipf 0.99, depth 32',
         ['--bs', '4k', '--depth', '32', '--read', '70', '--pattern', 'zipf'], MAIN, full_only=True),
    Case('r4k-4x32', '4 KiB read, 4 connections x depth 32, 4 LUs', ['--bs', '4k', '--depth', '32'],
         'bare ours tgt-rdwr', connections=TARGETS),
    Case('r4k-half', '4 KiB read at half of the maximum rate', ['--bs', '4k', '--depth', '256'],
         'bare ours tgt-rdwr', rate_of='r4k-d32'),
    Case('r4k-1g', '4 KiB random read over 1 GiB, depth 32: out of the caches of the core',
         ['--bs', '4k', '--depth', '32', '--range', '1g'], 'bare ours'),
    Case('r4k-idle512', '4 KiB read, depth 32, beside 512 idle connections', ['--bs', '4k', '--depth', '32'],
         'bare ours', idle=512),
]


def powers(most):
    """1, 2, 4 ... and `most` itself."""
    out = []
    n = 1
    while n < most:
        out.append(n)
        n *= 2
    return out + [most]


SCALING_LUS = 8  # with one event thread each; behind them one for each further number of threads


def scaling(cores):
    """CPU time of target and load together for each I/O, against LUs, connections and cores. Target and load run on
    the same cores; the load sleeps while it waits, so that both take only what they need. Subjects are named
    for how many cores they may use."""
    args = ['--bs', '4k', '--depth', '32', '--wait', 'block']
    most, both = cores[-1], 'ours-%d central-%d' % (cores[-1], cores[-1])
    out = []
    for n in (1, 2, 4, 8):
        out.append(Case('lus-%d' % n, '%d LUs, a connection each, %d cores' % (n, most), args, both, connections=n,
                        axis=('LUs', n), load_cpus=most))
    for n in (1, 2, 4, 8, 16):
        out.append(Case('conns-%d' % n, '%d connections to one LU, %d cores' % (n, most), args, both, connections=n,
                        axis=('connections', n), load_cpus=most, luns=1))
    for i, n in enumerate(cores):
        out.append(Case('threads-%d' % n, '8 connections to one LU with %d event threads, %d cores' % (n, most), args, both,
                        connections=8, axis=('event threads of one LU', n), load_cpus=most, luns=1,
                        first=SCALING_LUS - 1 + i if i else 0))
    for n in cores:
        out.append(Case('cores-%d' % n, '4 LUs, a connection each, %d cores' % n, args, 'ours-%d central-%d' % (n, n),
                        connections=4, axis=('cores', n), load_cpus=n))
    return out


def weigh():
    """Other ways to the socket, in the bare loop."""
    who = 'bare bare-uring bare-zerocopy'
    return [
        Case('r4k-d32', '4 KiB random read, depth 32', ['--bs', '4k', '--depth', '32'], 'bare bare-uring'),
        Case('r4k-d1', '4 KiB random read, depth 1', ['--bs', '4k', '--depth', '1'], 'bare bare-uring'),
        Case('w4k-d32', '4 KiB random write, depth 32', ['--bs', '4k', '--depth', '32', '--read', '0'], 'bare bare-uring'),
        Case('r4k-4x32', '4 KiB read, 4 connections x depth 32', ['--bs', '4k', '--depth', '32'], 'bare bare-uring',
             connections=4),
        Case('r64k-d32', '64 KiB random read, depth 32', ['--bs', '64k', '--depth', '32'], who),
        Case('r256k-d32', '256 KiB read, depth 32', ['--bs', '256k', '--depth', '32'], who, unit='mbps'),
        Case('w256k-d32', '256 KiB write, depth 32', ['--bs', '256k', '--depth', '32', '--read', '0'], 'bare bare-uring',
             unit='mbps'),
        Case('r1m-d32', '1 MiB read, depth 32', ['--bs', '1m', '--depth', '32'], who, unit='mbps'),
    ]


def cases_of(name, cores):
    """The cases of a set."""
    if name == 'scaling':
        return scaling(cores)
    if name == 'weigh':
        return weigh()
    return CASES


def wanted(case, subject, given):
    if subject.name in given:
        return not (case.connections > 1 and len(subject.iqns) < case.connections)
    return any(fnmatch.fnmatch(name, p) for name in (subject.name, subject.like) if name for p in case.who.split())
