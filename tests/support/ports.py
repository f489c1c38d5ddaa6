# SPDX-License-Identifier: GPL-2.0-or-later
"""Ports for tests."""
import random, socket


def free_port(address=''):
    """One that nobody has, of those that the kernel gives to nobody: it stays free until it is bound, unless another
    test happens to choose the same."""
    low = int(open('/proc/sys/net/ipv4/ip_local_port_range').read().split()[0])
    while True:
        with socket.socket() as s:
            port = random.randrange(10000, max(low, 12000))
            try:
                s.bind((address, port))
                return port
            except OSError:
                continue
