# SPDX-License-Identifier: GPL-2.0-or-later
"""Initiators of test_gateways.sh: resets.py IQN OWNER STANDBY FUNCTION

One of each gateway (ADDRESS:PORT). A reset (5: of the logical unit, 6: of the target) at the
standby gateway's port is COMPLETE when the owner has done it: its initiator hears of it next.
"""
import sys

sys.path.insert(0, 'tests/support')
sys.dont_write_bytecode = True
from iscsi_peer import Peer  # noqa: E402

iqn, owner, standby, function = sys.argv[1:5]
Peer.target = iqn


def session(count, address):
    Peer.count = count
    host, port = address.split(':')
    return Peer(timeout=60, address=(host, int(port))).login()


def sense(peer):
    """Of TEST UNIT READY."""
    return peer.run(bytes(6))[0]


def quiet(peer):
    """Nothing more is to be said."""
    for _ in range(20):
        if sense(peer) == 'good':
            return True
    return False


at_owner, at_standby = session(1, owner), session(2, standby)
assert quiet(at_owner), 'the owner does not serve'
response = at_standby.manage(int(function))
assert response == 0, ('response', response)
heard = sense(at_owner)
assert heard.startswith('06/29/'), ('the owner has not done it', heard)
print('done at the owner: %s' % heard)
