# SPDX-License-Identifier: GPL-2.0-or-later
"""Tenants with accounts (user NAME, secret secret-of-NAME), and what they do to logical units: for
the tests of one tenant against another. Set Peer.address and Peer.target first.
"""
import struct

from iscsi_peer import Peer

ISID = b'\x80\x11\x22\x33\x44\x55'
run = Peer.run


def tenant_login(p, name, user, isid=ISID, target=None, **ids):
    """Of a connection that has sent nothing yet: how the login ends. @ids: tsih, cid."""
    p.name = name
    status = p.chap(7, user, 'secret-of-' + user, names=p.names(target=target), isid=isid, **ids)
    if status:
        return status
    answer = p.login_step(1, 3, ['ImmediateData=Yes', 'InitialR2T=Yes'], isid=isid, **ids)
    assert answer[None][0] or answer[None][1], answer
    return answer[None][0]


def enter(name, user, target=None, isid=ISID):
    p = Peer(timeout=60)
    status = tenant_login(p, name, user, isid=isid, target=target)
    assert not status, '%s: %04x' % (name, status)
    return p


def ready(p, *luns):
    for lun in luns:
        for _ in range(6):
            got = run(p, bytes(6), lun=lun)[0]
            if not got.startswith('06'):
                break
        assert got == 'good', (lun, got)
    return p


def read(p, lba, blocks, lun=1):
    return run(p, struct.pack('>BxIxHx', 0x28, lba, blocks), blocks * 512, lun=lun)


def write(p, lba, data, lun=1):
    return run(p, struct.pack('>BxIxHx', 0x2a, lba, len(data) // 512), out=data, lun=lun)[0]


def pr_out(p, action, kind=0, key=0, new=0, lun=1):
    return run(p, struct.pack('>BBBxxIx', 0x5f, action, kind, 24),
               out=struct.pack('>QQ8x', key, new), lun=lun)[0]


def pr_in(p, action, lun=1):
    return run(p, struct.pack('>BB5xHx', 0x5e, action, 256), 256, lun=lun)


def populate(p, lun, ident, seconds=0):
    """POPULATE TOKEN for eight blocks; @seconds: its inactivity timeout."""
    out = struct.pack('>HHBxxxI2xH', 30, 0, 0, 0, 16) + struct.pack('>QI4x', 0, 8)
    out = out[:4] + struct.pack('>I', seconds) + out[8:]
    return run(p, struct.pack('>BB4xIIxx', 0x83, 0x10, ident, len(out)), out=out, lun=lun)[0]


def token_of(p, lun, ident):
    got, data = run(p, struct.pack('>BBIxxxxIxx', 0x84, 7, ident, 1024), 1024, lun=lun)
    at = 32 + data[13] + 6 if len(data) > 13 else 0
    return got, data[at:at + 512] if len(data) >= at + 512 else None


def use_token(p, token, lun):
    """WRITE USING TOKEN: eight blocks to block 64."""
    out = struct.pack('>HH4xQ', 550, 0, 0) + token + struct.pack('>6xHQI4x', 16, 64, 8)
    return run(p, struct.pack('>BB4xIIxx', 0x83, 0x11, 9, len(out)), out=out, lun=lun)[0]


def naa_of(p, lun):
    """The designator of type NAA, from VPD page 83h."""
    data = run(p, [0x12, 1, 0x83, 1, 0, 0], 256, lun=lun)[1]
    at = 4
    while at < len(data):
        if data[at + 1] & 0x3f == 3:
            return data[at:at + 4 + data[at + 3]]
        at += 4 + data[at + 3]


def identification(naa):
    """A unit as EXTENDED COPY has it, by that designator."""
    return (b'\xe4\0\0\0' + naa).ljust(28, b'\0') + struct.pack('>BBH', 0, 0, 512)
