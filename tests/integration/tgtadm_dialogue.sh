# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# One long conversation with a daemon, for test_tgtadm_side_by_side.sh. `say` commands must be
# answered byte for byte as by Debian's tgt. `ours` commands are answered differently on purpose; the
# reason stands beside each, and the golden file holds our answer.
#
# `six` commands want IPv6, which not every machine has: they are not in the golden file.
#
# login TID IQN and logout hold and end a session.
#
# $store, ${store}2 ... ${store}9: files of 64 MiB. $port: the daemon's portal.

say -m
say --mode target --op show
say -m account -o show
say -m portal -o show
say -m lld -o bind
say -m lld -o new

# ---- the command line itself
say
say -m sys
say -o show
say -o foo -m sys
say -m foo -o show
say -m sys -o new
say xx
say -Z
say --nonsense
say -t abc -m target -o show
say -t -m target
say -m target -o show -t 99999999999
say -m target -o new -t -3 -T x
say --mod target --op show
say --o show
say --l iscsi -m target -o show
say --lld=iscsi --op=show --mode=target
say -Y foo
say -m sys -o show -L foo
say -m target -o new -t 0 -T iqn.x
say -m target -o new -T iqn.x
say -m target -o new -t 1
say -m target -o delete
say -m target -o stat
say -m target -o show -Q x
say -m target -o show -t 0
say -m target -o show -t 99
say -m tgt -o start -t 1
say -m target -o bind -t 1
say -m target -o unbind -t 1
say -m target -o bind
say -m target -o update -t 1
say -m target -o update -t 1 -n x
say -m sys -o update -n x
say -m sys -o update -P x -n a -v b
say -m lu -o show -t 1 -l 1
say -m lu -o new -t 1
say -m lu -o new -l 1
say -m lu -o new -t 0 -l 1
say -m lu -o new -t 1 -l 1 -Y changer
say -m lu -o new -t 1 -l 1 -T x
say -m lu -o update -t 1 -l 1 -T x
say -m lu -o bind -t 1 -l 1
say -m account -o new
say -m account -o new -u x
say -m account -o show -t 1
say -m account -o stat
say -m account -o bind
say -m portal -o bind
say -m portal -o new
say -m portal -o show -t 1
say -P portal=127.0.0.1:1 -m portal -o new
say -m portal -o new -P foo=1
say -m portal -o new -P portal=bogus
say -m session -o new
say -m conn -o update
say -m conn -o show
say -m lld -o start -t 1

# ---- targets
say -m target -o new -t 1 -T iqn.2026-11.org.example:one
say --lld iscsi --op new --mode target --tid 3 --targetname iqn.2026-11.org.example:three
say -m target -o new -t 1 -T iqn.2026-11.org.example:other
say -m target -o new -t 9 -T iqn.2026-11.org.example:one
say -m target -o new -t 9 -T iqn_underscore
say -m target -o new -t 9 -T "iqn with blank"
say -L foo -m target -o new -t 9 -T iqn.x
say -m target -o show
say -m target -o delete -t 77
say -m target -o delete -t 77 --force
say -m target -o update -t 77 -n state -v offline
say -m target -o update -t 1 -n state -v offline
say -m target -o update -t 1 -n state -v sleepy
say -m target -o show
say -m target -o update -t 1 -n state -v ready
say -m target -o update -t 1 -n nop_interval -v 5
say -m target -o update -t 1 -n nop_count -v 7
say -m target -o show
say -m target -o update -t 1 -n nop_interval -v 0
say -m target -o update -t 1 -n nop_count -v 0
say -m target -o update -t 1 -n MaxBurstLength -v 5
say -m target -o update -t 1 -n MaxBurstLength -v 65536
say -m target -o update -t 1 -n HeaderDigest -v CRC32C
say -m target -o update -t 1 -n Foo -v 5
say -m target -o update -t 3 -n RedirectAddress -v 192.168.1.1
say -m target -o show -t 3
say -m target -o update -t 3 -n RedirectPort -v 3261
say -m target -o update -t 3 -n RedirectReason -v Temporary
say -m target -o show -t 3
say -m target -o update -t 3 -n RedirectReason -v Permanent
say -m target -o show -t 3
say -m target -o update -t 3 -n RedirectAddress -v ""

# ---- access
say -m target -o bind -t 1 -I ALL
say -m target -o bind -t 1 -I ALL
say -m target -o bind -t 1 -I 10.0.0.0/8
say -m target -o bind -t 1 -I 192.168.1.1
say -m target -o bind -t 1 -Q iqn.1993-08.org.debian:01:abc
say -m target -o bind -t 1 -Q iqn.1993-08.org.debian:01:abc
say -m target -o bind -t 77 -I ALL
say -m target -o show
say -m target -o unbind -t 1 -I 1.2.3.4
say -m target -o unbind -t 1 -Q nobody
say -m target -o unbind -t 1 -I ALL
say -m target -o unbind -t 1 -Q iqn.1993-08.org.debian:01:abc
say -m target -o unbind -t 77 -I ALL
say -m target -o unbind -t 1 -I 10.0.0.0/8
say -m target -o unbind -t 1 -H 3
say -m target -o show

# ---- logical units
say -m lu -o new -t 1 -l 1 -b "$store"
say --lld iscsi --op new --mode logicalunit --tid 1 --lun 1 -b "$store"
say -m lu -o new -t 1 -l 0 -b "$store"
say -m lu -o new -t 77 -l 1 -b "$store"
say -m lu -o new -t 1 -l 20 -b /nonexistent/file
say -m lu -o new -t 1 -l 20 -E nonsense -b "$store"
say -m lu -o new -t 1 -l 20 -f bad -b "$store"
say -m lu -o new -t 1 -l 20 -Y pt -b "$store"
say -m lu -o new -t 1 -l 5 -f sync -b "${store}5"
say -m lu -o new -t 1 -l 2 -f sync:direct -b "${store}2"
say -m lu -o new -t 1 -l 4 -y 4096 -b "${store}4"
say -m lu -o new -t 1 -l 3 -E aio -b "${store}3"
say -m lu -o new -t 1 -l 300 -b "${store}6"
say -m lu -o new -t 1 -l 7
say -m target -o show
say -m lu -o update -t 1 -l 7 -P path="${store}7"
say -m lu -o update -t 1 -l 1 -P readonly=1,nonsense=2
say -m lu -o update -t 1 -l 1 -P vendor_id=ACME,product_id=Disk,product_rev=0103,scsi_sn=SN0001
say -m lu -o update -t 1 -l 1 -P scsi_id=ID0001
say -m lu -o update -t 1 -l 2 -P removable=1,sense_format=1
say -m lu -o update -t 1 -l 2 -P online=0
say -m lu -o update -t 1 -l 3 -P thin_provisioning=1
say -m lu -o update -t 1 -l 3 -P mode_page=8:0:18:0x10:0:0xff:0xff:0:0:0xff:0xff:0xff:0xff:0x80:0x14:0:0:0:0:0:0
say -m lu -o update -t 1 -l 1
say -m lu -o update -t 1 -l 88 -P readonly=1
say -m lu -o update -t 77 -l 1 -P readonly=1
say -m lu -o update -t 1 -l 1 -P Online=No
say -m target -o show
say -m lu -o update -t 1 -l 2 -P online=1
say -m lu -o delete -t 1 -l 88
say -m lu -o delete -t 77 -l 1
say -m lu -o delete -t 1 -l 0
say -m lu -o delete -t 1 -l 300
say -m lu -o delete -t 1 -l 300
say -m lu -o stat -t 1 -l 1
say -m lu -o stat -t 1 -l 88
say -m lu -o stat -t 77 -l 1
say -m target -o stat -t 1
say -m target -o stat -t 77
say -m sys -o stat

# ---- accounts
say -m account -o new -u u1 -p secret1-of-u1
say -m account -o new -u u2 -p secret2-of-u2
say -m account -o new -u u1 -p other
say -m account -o show
say -m account -o bind -u nobody -t 1
say -m account -o bind -u u1 -t 77
say -m account -o bind -u u1 -t 1
say -m account -o bind -u u1 -t 1
say -m account -o bind -u u2 -t 1 --outgoing
say -m account -o bind -u u1 -t 1 --outgoing
say -m target -o show
say -m account -o unbind -u u1 -t 1
say -m account -o unbind -u u1 -t 1
say -m account -o unbind -u u2 -t 1
say -m account -o unbind -u u2 -t 1 --outgoing
say -m account -o unbind -u u2 -t 1 --outgoing
say -m account -o bind -u u1 -t 1
say -m account -o delete -u u1
say -m account -o delete -u u1
say -m account -o show
say -m account -o delete -u u2
say -m account -o show

# ---- portals
say -m portal -o new -P portal=127.0.0.1:$port
say -m portal -o delete -P portal=127.0.0.1:1
say -m portal -o new -P portal=127.0.0.2:$port
say -m portal -o show
say -m portal -o delete -P portal=127.0.0.2:$port
six -m portal -o new -P portal=[::1]:$port
six -m portal -o show
six -m portal -o delete -P portal=[::1]:$port
say -m portal -o show

# ---- sessions and connections, when there are none
say -m conn -o show -t 1
say -m conn -o show -t 77
say -m conn -o stat -t 1 -s 1 -c 0
say -m conn -o delete -t 1 -s 1 -c 0
say -m conn -o delete -t 77 -s 1 -c 0
say -m session -o stat -t 1
say -m session -o stat -t 1 -s 1
say -m session -o delete -t 1

# ---- the daemon
say -m lld -o start -L nonsense
say -m sys -o update -n State -v offline
say -m sys -o update -n State -v bogus
say -m sys -o update -n State -v ready
say -m sys -o update -n debug -v on
say -m sys -o update -n debug -v maybe
say -m sys -o update -n debug -v off
say -m sys -o update -n foo -v on
say -m sys -o update -n iSNS -v Off
say -m sys -o update -n iSNS -v Maybe
say -m sys -o update -n iSNSServerIP -v 192.168.1.9
say -m sys -o update -n iSNSServerPort -v 3206
say -m sys -o update -n iSNSAccessControl -v On
say -m lld -o start
say -m lld -o stop
say -m sys -o delete

# ---- answered differently, on purpose
ours "tgt takes any text for an address, and the rule then matches nobody" -m target -o bind -t 1 -I bogus
ours "tgt takes 512 for any block size it does not like" -m lu -o new -t 1 -l 60 -y 500 -b "${store}8"
ours "our aio store knows the flags" -m lu -o new -t 1 -l 61 -E aio -f sync -b "${store}8"
ours "LUNs end at 16383 (flat addressing, SAM-5 4.7.7.4); tgt makes one that no initiator can name" \
	-m lu -o new -t 1 -l 99999 -b "${store}9"
ours "only disks are emulated" -m lu -o new -t 1 -l 62 -Y osd -b "${store}9"
ours "tgt's host binding is for Fibre Channel and does nothing here" -m target -o bind -t 1 -H 3
ours "tgt reads no further than the digits, and does not say so" -m target -o show -t 0x1z
ours "tgt cuts what is too long, and does not say so" -m lu -o update -t 1 -l 1 -P scsi_id=0123456789012345678901234567890123456789
ours "tgt takes every text for 0" -m lu -o update -t 1 -l 1 -P online=x
ours "tgt cannot show sessions" -m session -o show -t 1
ours "tgt wants an argument behind -O" -m account -o bind -t 1 -u nobody -O
ours "a store belongs to one LU: two would not see each other's reservations" -m lu -o new -t 1 -l 63 -b "$store"
ours "other stores, devices and drivers" -m sys -o show
ours "targets by driver: ours has no iser unless asked for" -m lld -o show
ours "what we negotiate is more than tgt does" -m target -o show -t 1

say -m target -o delete -t 1
say -m target -o delete -t 3

# ---- somebody is logged in
say -m target -o new -t 7 -T iqn.2026-11.org.example:used
say -m lu -o new -t 7 -l 1 -b "${store}9"
say -m target -o bind -t 7 -I ALL
login 7 iqn.2026-11.org.example:used
say -m target -o show
say -m conn -o show -t 7
say -m conn -o stat -t 7 -s 99 -c 0
say -m conn -o delete -t 7 -s 99 -c 0
say -m session -o stat -t 7 -s 99
say -m target -o delete -t 7
logout
say -m target -o delete -t 7
say -m target -o show
ours "tgt makes targets without a name, and crashes on them later" -m target -o new -t 50 -T ""
