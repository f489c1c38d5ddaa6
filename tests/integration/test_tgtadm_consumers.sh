#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The calls of those who drive tgtadm by script, and how they read its answers: OpenStack Cinder,
# Pacemaker's iSCSITarget and iSCSILogicalUnit agents, Longhorn, OpenStack Ironic. Written from their
# command lines and patterns.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2010-10.org.openstack:volume-1
device=$dir/volume-1
truncate -s 1G "$device"
daemon_start ours -d 1 # as Longhorn's helper has it for debugging

# Somebody logged in to target $1, by name, LUN 1. It reads until it is killed.
login() {
	python3 -B tests/integration/reader.py "$port" "$1" 2>/dev/null &
	initiator=$!
	for _ in $(seq 100); do
		adm --lld iscsi --op show --mode target
		has "I_T nexus: " && return 0
		sleep 0.05
	done
	return 1
}
# exec does not leave a wrapper that would reap it
logout() { kill -9 "$initiator" 2>/dev/null; wait "$initiator" 2>/dev/null; }
shows() { adm --lld iscsi --op show --mode target; printf '%s\n' "$out"; }

# ---- Cinder: a file a volume, tgt-admin --update and --delete by name -----------------------------------
mkdir "$dir/volumes"
echo "include $dir/volumes/*" >"$dir/targets.conf"
cinder() { out=$("$bin/tgt-admin" --conf "$dir/targets.conf" "$@" 2>&1); rc=$?; }
cat >"$dir/volumes/volume-1" <<END

                <target $iqn>
                    backing-store $device
                    driver iscsi
                    incominguser chapuser chapsecret123
                    write-cache on
                </target>
END
cinder --update $iqn
is "cinder: create by --update" test "$rc" = 0
cinder --show
tid=$(printf '%s\n' "$out" | awk -v iqn=$iqn 'index($0, iqn) { sub(":", "", $2); print $2; exit }')
is "cinder: tid is the second word of the Target line" test "$tid" = 1
is "cinder: finds the line of LUN 1, blanks and all" has_line "        LUN: 1"
is "cinder: the account is bound" has_line "        chapuser"
cinder --update $iqn
is "cinder: update again" test "$rc" = 0
adm --lld iscsi --op new --mode logicalunit --tid "$tid" --lun 1 -b "$device"
is "cinder: recreating the LUN that is there" refused "this logical unit number already exists"
cinder --force --delete $iqn
is "cinder: delete" test "$rc" = 0
cinder --show
is "cinder: it is gone" not has $iqn
cinder --delete $iqn
is "cinder: deleting again does not fail" test "$rc" = 0
adm --lld iscsi --op delete --mode target --tid 1
is "cinder: tgtadm says what it looks for" refused "can't find the target"
rm "$dir/volumes/volume-1"
adm --lld iscsi --mode account --op delete --user chapuser
is "cinder: the account stayed" done_silently

# ---- Pacemaker: the iSCSITarget agent --------------------------------------------------------------------
adm --lld iscsi --op new --mode target --tid=1 --targetname iqn.2009-02.com.example:pcmk
is "pacemaker: start" done_silently
adm --lld iscsi --op update --mode target --tid=1 --name=MaxBurstLength --value=262144
is "pacemaker: additional parameter" done_silently
adm --lld iscsi --op bind --mode target --tid=1 --initiator-address=127.0.0.1
is "pacemaker: allowed initiator" done_silently
adm --lld iscsi --mode account --op new --user=pcmk --password=secretsecret
is "pacemaker: account" done_silently
adm --lld iscsi --mode account --op bind --tid=1 --user=pcmk
is "pacemaker: bound" done_silently
is "pacemaker: monitor finds the target" grep -Eq "^Target 1: iqn.2009-02.com.example:pcmk$" <(shows)

# ---- Pacemaker: the iSCSILogicalUnit agent
adm --lld iscsi --op new --mode logicalunit --tid=1 --lun=1 --backing-store "$device"
is "pacemaker: logical unit" done_silently
adm --lld iscsi --op update --mode logicalunit --tid=1 --lun=1 \
	--params scsi_id=p_lun1,scsi_sn=1a2b3c4d,vendor_id=LIO-ORG,product_id=p_lun1
is "pacemaker: its parameters" done_silently
is "pacemaker: monitor finds the LUN" \
	grep -q "LUN: 1$" <(shows | sed -ne "/^Target 1: /,/^Target/p")
is "pacemaker: monitor finds the store" grep -Eq "Backing store.*: $device\$" <(shows)
adm --lld iscsi --mode account --op unbind --tid=1 --user=pcmk
is "pacemaker: unbind the account" done_silently
adm --lld iscsi --mode account --op delete --user=pcmk
is "pacemaker: delete the account" done_silently

is "an initiator logs in" login iqn.2009-02.com.example:pcmk
adm --lld iscsi --op unbind --mode target --tid=1 --initiator-address=127.0.0.1
is "pacemaker: stop closes the door" done_silently
sid=$(shows | sed -ne '/^Target 1:/,/^Target/ s/^.*I_T nexus: \([0-9]*\)$/\1/p')
cid=$(shows | sed -ne "/I_T nexus: $sid\$/,/LUN information/ s/^.*Connection: \([0-9]*\)\$/\1/p")
is "pacemaker: reads session and connection" test -n "$sid" -a -n "$cid"
adm --lld iscsi --op delete --mode conn --tid=1 --sid="$sid" --cid="$cid"
is "pacemaker: closes the connection" done_silently
for _ in $(seq 100); do
	adm --lld iscsi --op delete --mode logicalunit --tid=1 --lun=1
	[ "$rc" = 0 ] && break
	sleep 0.05
done
is "pacemaker: stops the logical unit" done_silently
for _ in $(seq 100); do
	adm --lld iscsi --op delete --mode target --tid=1
	[ "$rc" = 0 ] && break
	sleep 0.05
done
is "pacemaker: stops the target" done_silently
logout
is "pacemaker: monitor finds nothing" test -z "$(shows)"

# An agent's flags for the store, and what it runs when a resource is stopped twice.
adm --lld iscsi --op new --mode target --tid=1 --targetname iqn.2009-02.com.example:pcmk
adm --lld iscsi --op new --mode logicalunit --tid=1 --lun=1 --backing-store "$device" --bstype rdwr --bsoflags direct
is "pacemaker: a store with flags" done_silently
is "pacemaker: ... is shown with them" grep -q "Backing store flags: direct" <(shows)
adm --lld iscsi --op delete --mode logicalunit --tid=1 --lun=1
adm --lld iscsi --op delete --mode logicalunit --tid=1 --lun=1
is "pacemaker: a logical unit that is gone is said so" refused "can't find the logical unit"
adm --lld iscsi --op delete --mode target --tid=1
adm --lld iscsi --op delete --mode target --tid=1
is "pacemaker: a target that is gone is said so" refused "can't find the target"

# ---- test suites of distributions: systemd's, SUSE's -----------------------------------------------------------
adm --lld iscsi --op new --mode target --tid=1 --targetname iqn.2021-09.com.example:iscsi.test
adm --lld iscsi --op new --mode logicalunit --tid 1 --lun 1 -b "$device"
adm --lld iscsi --op update --mode logicalunit --tid 1 --lun 1
is "systemd: an update of nothing succeeds" done_silently
adm --lld iscsi --op update --mode logicalunit --tid 1 --lun 1 --params readonly=yes
is "readonly=yes is accepted" done_silently
is "... and means what it says: tgt takes it for 0" test "$(shows | grep -c 'Readonly: Yes')" = 1
adm --lld iscsi --op update --mode logicalunit --tid 1 --lun=1 --params 'scsi_id="noname1"'
is "a name in quotes keeps them" grep -q 'SCSI ID: "noname1"$' <(shows)
adm --lld iscsi --op delete --mode target --force --tid 1

# ---- Longhorn -----------------------------------------------------------------------------------------------
adm --op show --mode system
is "longhorn: the daemon is up and has rdwr" has " rdwr"
adm --lld iscsi --mode target --op new --tid 1 --targetname iqn.2019-10.io.longhorn:vol
adm --lld iscsi --mode logicalunit --op new --tid 1 --lun 1 -b "$device" --bstype rdwr
is "longhorn: target and LUN" done_silently
adm --lld iscsi --mode target --op bind --tid 1 --initiator-address ALL
is "longhorn: open" done_silently
tid=$(shows | sed -n 's/^Target \([0-9]*\):.* iqn.2019-10.io.longhorn:vol$/\1/p')
is "longhorn: finds the tid by how the line ends" test "$tid" = 1
adm --lld iscsi --op unbind --mode target --tid 1 -I ALL
is "longhorn: closed" done_silently
adm --lld iscsi --op bind --mode target --tid 1 -I ALL
adm --lld iscsi --op new --mode logicalunit --tid 1 --lun 2 -b "$device.2" --bstype aio --bsopts size=1
is "longhorn: a store that is not there is refused" test "$rc" = 22
is "longhorn: logs in" login iqn.2019-10.io.longhorn:vol
adm --lld iscsi --mode conn --op show --tid 1
sid=$(printf '%s\n' "$out" | sed -n 's/^Session: //p')
cid=$(printf '%s\n' "$out" | sed -n 's/^    Connection: //p')
is "longhorn: finds the session" has_line "        IP Address: 127.0.0.1"
adm --lld iscsi --mode target --op delete --tid 1
is "longhorn: a target in use is not deleted" refused "this target is still active"
logout
adm --lld iscsi --mode conn --op delete --tid 1 --sid "$sid" --cid "$cid"
is "longhorn: closes it, gone or not" test "$rc" = 0 -o "$out" = "tgtadm: can't find the session"
for _ in $(seq 100); do
	adm --lld iscsi --mode target --op delete --tid 1
	[ "$rc" = 0 ] && break
	sleep 0.05
done
is "longhorn: deletes the target" done_silently

# ---- Ironic ---------------------------------------------------------------------------------------------------
adm --lld iscsi --mode target --op show
is "ironic: waits for the daemon" done_silently
adm --lld iscsi --mode target --op new --tid 1 --targetname iqn.2008-10.org.openstack:node
is "ironic: target" done_silently
adm --lld iscsi --mode target --op show
is "ironic: sees it" has "iqn.2008-10.org.openstack:node"
adm --lld iscsi --mode logicalunit --op new --tid 1 --lun 1 --backing-store "$device"
is "ironic: disk" done_silently
adm --lld iscsi --mode target --op bind --tid 1 --initiator-address ALL
is "ironic: open" done_silently
adm --lld iscsi --mode target --op delete --force --tid 1
is "ironic: forced delete" done_silently

# ---- tgt-setup-lun ----------------------------------------------------------------------------------------------
setup() { out=$(PATH=$bin:$PATH "$bin/tgt-setup-lun" "$@" 2>&1 </dev/null); rc=$?; }
setup -n iqn.x:setup -d "$device" 192.168.1.2 192.168.1.3
is "tgt-setup-lun: makes a target" test "$rc" = 0
adm --op show --mode target
is "tgt-setup-lun: by its name" has_line "Target 1: iqn.x:setup"
is "tgt-setup-lun: with its disk" has "Backing store path: $device"
is "tgt-setup-lun: for two initiators" has_line "        192.168.1.3"
is "tgt-setup-lun: and nobody else" not has_line "        ALL"
setup -n iqn.x:setup -d "$device"
is "tgt-setup-lun: asks before it adds to a target" test "$rc" = 1
setup -n second -d 64m -b ram
is "tgt-setup-lun: a short name, a ram disk" test "$rc" = 0
adm --op show --mode target
is "tgt-setup-lun: gets a full name" has "Target 2: iqn.2001-04.com."
is "tgt-setup-lun: open to all" has_line "        ALL"
setup -n third -d "$dir/missing"
is "tgt-setup-lun: a missing device" test "$rc" = 1
adm --op show --mode target
is "tgt-setup-lun: leaves nothing behind" not has "Target 3:"
setup
is "tgt-setup-lun: usage" test "$rc" = 1

# ---- the daemon's own counters -----------------------------------------------------------------------------------
adm --op stat --mode system --name all
counted=$(printf '%s\n' "$out" | sed 's/ .*//')
is "counters: a name and a number a line" test -z "$(printf '%s\n' "$out" | grep -Evx '[a-z0-9_]+ [0-9]+')"
adm --op show --mode system --name counters
is "counters: each is explained" test "$(printf '%s\n' "$out" | grep -Ex '[a-z0-9_]+ (counter|gauge)( of bytes)?: .+' | sed 's/ .*//')" = "$counted"
is "counters: with its unit" has_line "store_read_bytes counter of bytes: bytes read from backing stores"

# ---- the end, as Longhorn does it ---------------------------------------------------------------------------------
adm --op delete --mode system
is "system delete is refused while targets exist" refused "invalid request"
for tid in 1 2; do adm --mode target --op delete --tid $tid; done
adm --op delete --mode system
is "system delete" done_silently
gone() { ! kill -0 "$pid" 2>/dev/null; }
is "the daemon is gone when it returns" gone
status=0
wait "$pid" || status=$?
pid=
is "it ended with 0" test "$status" = 0
adm --op show --mode system
is "no daemon: 107 and the text that scripts know" said 107 \
	"tgtadm: failed to send request hdr to tgt daemon, Transport endpoint is not connected"
exit $((failures > 0))
