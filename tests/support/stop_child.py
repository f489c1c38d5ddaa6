# SPDX-License-Identifier: GPL-2.0-or-later
"""A process that is stopped when fork() has just made it, and it runs no program yet.

    with StopChild(pid) as next:    # of process @pid, the next child
        ... what makes it fork ...
        child = next.stopped()      # its number, before its first instruction; it goes on with SIGCONT
        child = next.stopped(SETPGID)       # the same, after that system call

As for a debugger that follows forks, or a freezer. It takes ptrace(2), and is for one thread.
"""
import ctypes, os, platform, signal, time

SETPGID = {'x86_64': 109}.get(platform.machine(), 154)
CONT, DETACH, SYSCALL, GETEVENTMSG, SEIZE = 7, 17, 24, 0x4201, 0x4206
FORK, VFORK, CLONE = 1, 2, 3
WALL = 0x40000000
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
libc.ptrace.restype = ctypes.c_long


def ptrace(what, pid, data=None):
    if libc.ptrace(what, pid, None, data):
        raise OSError(ctypes.get_errno(), 'ptrace(%#x)' % what)


def wait(pid, seconds):
    """What it has stopped for: None, it has not."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        got, status = os.waitpid(pid, WALL | os.WNOHANG)
        if got:
            return status
        time.sleep(0.0005)
    return None


def doing(pid):
    """The number of its system call; -1: it is in none."""
    with open('/proc/%u/syscall' % pid) as f:
        return int(f.read().split()[0])


class StopChild:
    def __init__(self, pid):
        self.pid = pid

    def __enter__(self):
        ptrace(SEIZE, self.pid, sum(1 << e for e in (FORK, VFORK, CLONE)))
        self.traced = True
        return self

    def stopped(self, call=None, seconds=20):
        """None: there was no child in time."""
        end = time.monotonic() + seconds
        while True:
            status = wait(self.pid, end - time.monotonic())
            if status is None or not os.WIFSTOPPED(status):
                return None
            if status >> 16 in (FORK, VFORK, CLONE):
                break
            ptrace(CONT, self.pid, 0 if status >> 16 else os.WSTOPSIG(status))
        child = ctypes.c_ulong()
        ptrace(GETEVENTMSG, self.pid, ctypes.addressof(child))
        wait(child.value, 10)
        ptrace(DETACH, self.pid)
        self.traced = False
        while call is not None and doing(child.value) != call:
            ptrace(SYSCALL, child.value)
            wait(child.value, 10)
        os.kill(child.value, signal.SIGSTOP)
        ptrace(DETACH, child.value)
        return child.value

    def __exit__(self, *what):
        if self.traced:
            os.kill(self.pid, signal.SIGSTOP)
            wait(self.pid, 10)
            ptrace(DETACH, self.pid)
            os.kill(self.pid, signal.SIGCONT)
