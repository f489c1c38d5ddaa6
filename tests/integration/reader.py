#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""An initiator that is there until it is killed: reader.py PORT IQN [NAME]. It logs in and reads the first block of
LUN 1 again and again, whatever the status. (iscsi-perf gives up when it, or its target, was not scheduled for a second.)
"""
import os, sys, time
sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'support'))
from iscsi_peer import Peer

Peer.address, Peer.target = ('127.0.0.1', int(sys.argv[1])), sys.argv[2]
peer = Peer(timeout=600)
peer.login(name=sys.argv[3] if len(sys.argv) > 3 else None)
while True:
    peer.out(peer.read(0, 1))
    peer.wait_status(peer.itt - 1)
    time.sleep(0.01)
