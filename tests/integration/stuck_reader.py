#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""An initiator that asks and never takes the answers: stuck_reader.py PORT IQN. It logs in, waits out the unit
attentions, asks LUN 1 for 32 reads of 1 MiB into a receive buffer of 4 KiB, says "stuck" when answers have begun to
come and there was time for more, and stays until it is killed. What is stopped with SIGSTOP may have its last answers
in the socket buffers already, and nothing under way.
"""
import os, select, signal, sys, time
sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'support'))
from iscsi_peer import Peer

Peer.address, Peer.target = ('127.0.0.1', int(sys.argv[1])), sys.argv[2]
peer = Peer(rcvbuf=4096)
peer.name += '-%u' % os.getpid()
peer.login().ready()
for n in range(32):
    peer.out(peer.read(n * 2048, 2048))
select.select([peer.sock], [], [], 30)
time.sleep(0.2)  # what the buffers take is sent, and the daemon has read all commands
print('stuck', flush=True)
signal.pause()
