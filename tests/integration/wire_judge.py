#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What Wireshark's dissector says of a capture, judged.

    wire_judge.py PORTS ISNS-PORTS FIELDS

PORTS: of the target, with commas; ISNS-PORTS: the server's, and that where it asks us; FIELDS: a file with a line a frame, its fields as test_wire.sh has them, with
bars between. Everything that the dissector finds wrong is wrong, but for what it is known to get wrong itself, which is
named and counted. Prints TAP lines.
"""
import collections, sys
ports, isns_ports, path = sys.argv[1].split(','), sys.argv[2].split(','), sys.argv[3]
ERROR = 0x800000
bad, excused, seen = [], collections.Counter(), collections.Counter()


def unknown_kind(side, payload):
    """What Wireshark 4.0 does not take for iSCSI though it is: its checks are those of RFC 3720's draft 13.
    Task management functions and responses of RFC 7144 (functions 9 to 12, response 7; functions beyond those
    exist only to be refused), text with neither F nor C (RFC 7143 11.10.1: more is to come, but no pair is
    cut), and what wire_traffic.py gets wrong in order to see it rejected. The whole payload has to be PDUs, one of them such."""
    at, found = 0, None
    while at < len(payload):
        if len(payload) < at + 48:
            return None
        op, flags, third = payload[at] & 0x3f, payload[at + 1], payload[at + 2]
        if op == 2 and flags & 0x7f > 8:
            found = 'RFC 7144 task management function'
        elif op == 0x22 and third == 7:
            found = 'RFC 7144 task management response'
        elif op in (4, 0x24) and not flags & 0xc0:
            found = 'text with neither F nor C'
        elif side == 'initiator' and (op == 4 and flags & 0xc0 == 0xc0 or op == 6 and flags & 0x7f > 2):
            found = 'request that has to be rejected'
        n = int.from_bytes(payload[at + 5:at + 8], 'big')
        at += 48 + 4 * payload[at + 4] + n + -n % 4
    return found if at == len(payload) else None


# Where the length stands of what follows it, by the command that asks: offset, bytes, and what it does not count.
LENGTHS = {0x12: (2, 2, 4), 0x1a: (0, 1, 1), 0x5a: (0, 2, 2), 0x4d: (2, 2, 4), 0x5e: (4, 4, 8)}


def asked_for_less(cdb, data):
    """The allocation length was smaller than what there is; the dissector reads on."""
    if cdb == 0x9e:
        return len(data) < 32  # READ CAPACITY(16)
    if cdb not in LENGTHS:
        return False
    at, n, uncounted = LENGTHS[cdb]
    return len(data) < at + n or int.from_bytes(data[at:at + n], 'big') + uncounted > len(data)


def data_of(payload):
    """The data segment of the first PDU, if it has no digest."""
    n = int.from_bytes(payload[5:8], 'big')
    return payload[48:48 + n]


def provisioning_page(cdb, data):
    """Mode pages that are whole, one behind the other (SPC-5 7.5.4), among them Logical Block Provisioning
    (1Ch/02h, SBC-4 6.5.7)."""
    if cdb not in (0x1a, 0x5a):
        return False
    head = 4 if cdb == 0x1a else 8
    at = head + (data[3] if cdb == 0x1a else int.from_bytes(data[6:8], 'big'))
    found = False
    while at + 4 <= len(data):
        found |= data[at] & 0x7f == 0x5c and data[at + 1] == 2
        at += 4 + int.from_bytes(data[at + 2:at + 4], 'big') if data[at] & 0x40 else 2 + data[at + 1]
    return found and at == len(data)


def cut(payload):
    """A PDU that is not a whole iSNS message, or the rest of one whose beginning came before."""
    return int.from_bytes(payload[6:8], 'big') & 0xc00 != 0xc00


isns = collections.Counter()
for line in open(path):
    frame, source, ops, cbit, malformed, severity, message, length, later, again, order, segment, cdb, payload, function, dest = line.rstrip('\n').split('|')
    side = 'target' if source in ports else 'initiator'
    if source in isns_ports or dest in isns_ports:
        for f in function.split(','):
            if f:
                isns[int(f, 0)] += 1
        server = source == isns_ports[0] or dest == isns_ports[1]
        if malformed and server and cut(bytes.fromhex(payload.replace(':', ''))):
            excused["iSNS: a message of the server's in several PDUs, cut anywhere (RFC 4171 5.2)"] += 1
        elif malformed or any(int(x, 0) >= ERROR for x in severity.split(',') if x):
            bad.append('frame %s, iSNS: %s' % (frame, message))
        elif length != '0' and not function and not later and not again and not order:
            bad.append('frame %s: %s bytes that are no iSNS: %s' % (frame, length, payload[:96]))
        continue
    cdb = int(cdb.split(',')[0], 0) if cdb.strip() else -1
    for op in ops.split(','):
        if op:
            seen[side, int(op, 0)] += 1
    if malformed:
        # The dissector reads a string beyond the end of a Login Request that the C bit cuts inside of a pair, which
        # RFC 7143 11.10.5 allows. Only the initiator of this test cuts there; nothing of the target is excused.
        if side == 'initiator' and ops == '0x03' and cbit in ('1', 'True'):
            excused['Login Request cut inside of a pair'] += 1
        elif side == 'target' and ops == '0x25' and asked_for_less(cdb, data_of(bytes.fromhex(payload.replace(':', '')))):
            excused['more announced than was asked for'] += 1
        elif side == 'target' and ops == '0x25' and cdb == 0x4d and \
                data_of(bytes.fromhex(payload.replace(':', '')))[0] & 0x3f == 0:
            excused['Supported Log Pages, whose list it takes for parameters'] += 1
        elif side == 'target' and ops == '0x25' and provisioning_page(cdb, data_of(bytes.fromhex(payload.replace(':', '')))):
            excused['a mode page that it does not know: Logical Block Provisioning'] += 1
        elif side == 'initiator' and ops in ('0x01', '0x05') and cdb in (0x1d, 0x3b):
            excused['parameters of SEND DIAGNOSTIC or WRITE BUFFER, which it takes for another CDB'] += 1
        elif not ops and (again or order):
            # TCP's matter: the dissector says it of bytes that come twice on a busy loopback.
            excused['TCP segment that overlaps one before'] += 1
        else:
            bad.append('frame %s, %s, opcode %s: malformed: %s' % (frame, side, ops, message))
    elif any(int(s, 0) >= ERROR for s in severity.split(',') if s):
        bad.append('frame %s, %s, opcode %s: %s' % (frame, side, ops, message))
    elif length != '0' and not ops and not later and not again and not order:
        kind = unknown_kind(side, bytes.fromhex(payload.replace(':', '')))
        if kind:
            excused[kind] += 1
        else:
            bad.append('frame %s, %s: %s bytes that are no iSCSI: %s' % (frame, side, length, payload[:96]))
names = {'initiator': {0: 'NOP-Out', 1: 'SCSI Command', 2: 'Task Management', 3: 'Login', 4: 'Text', 5: 'Data-Out', 6: 'Logout',
                       0x10: 'SNACK'},
         'target': {0x20: 'NOP-In', 0x21: 'SCSI Response', 0x22: 'Task Management Response', 0x23: 'Login Response',
                    0x24: 'Text Response', 0x25: 'Data-In', 0x26: 'Logout Response', 0x31: 'R2T', 0x32: 'Asynchronous Message',
                    0x3f: 'Reject'}}
for side in names:
    print('# %s: ' % side + ', '.join('%s %u' % (names[side][op], seen[side, op]) for op in names[side]))
# Registration, its end, changes and their registration, queries, and "are you there?", each with its response.
functions = {1: 'DevAttrReg', 2: 'DevAttrQry', 4: 'DevDereg', 5: 'SCNReg', 8: 'SCN', 13: 'ESI'}
print('# iSNS: ' + ', '.join('%s %u and %u' % (functions[f], isns[f], isns[0x8000 | f]) for f in functions))
missing = [functions[f] for f in functions if not isns[f] or not isns[0x8000 | f]] + [names[side][op] for side in names for op in names[side] if not seen[side, op]]
for what, n in excused.items():
    print('# excused: %s, %u' % (what, n))
for b in bad[:40]:
    print('# ' + b)
print('ok' if not missing else 'not ok', 'each kind of PDU was seen' + (': not ' + ', '.join(missing) if missing else ''))
print('ok' if not bad else 'not ok', 'the dissector finds nothing wrong')
sys.exit(bool(bad or missing))
