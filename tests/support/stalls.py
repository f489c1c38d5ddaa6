# SPDX-License-Identifier: GPL-2.0-or-later
"""When this machine itself stood still: what no program on it can do anything about.

    stalls.py FILE

A process on each processor sleeps for a millisecond, over and over, and comes before every other one
(SCHED_FIFO). When it is late its processor did not run: in a virtual machine because the hypervisor
gave it to others, or went for memory. FILE gets a line "BEGIN END" of time.monotonic() for each time
that one was late by more than LATE; the program ends when it is told to (SIGTERM), or when who has begun it has ended.
"""
import ctypes
import os
import signal
import sys
import time

NAP, LATE = 0.001, 0.001
PR_SET_PDEATHSIG = 1


def watch(cpu, out):
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.sched_setaffinity(0, {cpu})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    last = time.monotonic()
    while True:
        time.sleep(NAP)
        now = time.monotonic()
        if now - last > NAP + LATE:
            os.write(out, b'%.6f %.6f\n' % (last, now))
        last = now


def during(path):
    """What @path has: the stalls in the order of their beginnings, those that overlap as one."""
    with open(path) as f:
        found = sorted(tuple(map(float, line.split())) for line in f if line.endswith('\n'))
    whole = []
    for begin, end in found:
        if whole and begin <= whole[-1][1]:
            whole[-1] = (whole[-1][0], max(end, whole[-1][1]))
        else:
            whole.append((begin, end))
    return whole


def inside(stalls, begin, end):
    """How much of the time from @begin to @end was one of @stalls."""
    return sum(max(0.0, min(end, e) - max(begin, b)) for b, e in stalls)


def end_with_parent(sig):
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, sig)


if __name__ == '__main__':
    end_with_parent(signal.SIGTERM)
    fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
    children = []
    for cpu in os.sched_getaffinity(0):
        child = os.fork()
        if child == 0:
            end_with_parent(signal.SIGKILL)
            watch(cpu, fd)
        children.append(child)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    for child in children:
        os.kill(child, signal.SIGKILL)
