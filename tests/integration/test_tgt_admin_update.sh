#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# tgt-admin makes the daemon what the file says in one run, says by its exit code whether it did, and
# has nothing to do in a second run: renamed targets and stores that change hands (U5), exit codes and
# every word of targets.conf (U6), and --pretend, which checks what the others check (U7).
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
conf=$dir/targets.conf
readers=
trap 'kill -9 $readers 2>/dev/null; daemon_kill; rm -rf "$dir"' EXIT
for i in 1 2 3 4 5 6; do truncate -s 16M "$dir/disk$i"; done

admin() {
	out=$("$bin/tgt-admin" -c "$conf" "$@" 2>&1)
	rc=$?
}
code() { [ "$rc" = "$1" ]; }
requests() { [ "$(printf '%s\n' "$out" | grep -c '^tgtadm ')" = "$1" ]; }
# Of the configuration that the daemon has: the stores of a target, in order
stores() {
	"$bin/tgt-admin" --dump |
		sed -n "/^<target $1>/,/^<\/target>/s/.*backing-store \([^>]*\)>*$/\1/p" |
		sed "s#$dir/##" | grep -v '</' | tr '\n' ' '
}
stands() { [ "$(stores "$1")" = "$2" ]; }
exists() { "$bin/tgt-admin" --dump | grep -q "^<target $1>"; }
# The file: "name: disk disk...", one target each
file() {
	: >"$conf"
	while IFS=: read -r name disks; do
		[ -n "$name" ] || continue
		echo "<target iqn.x:$name>"
		lun=1
		for disk in $disks; do
			printf '\t<backing-store %s>\n\t\tlun %d\n\t</backing-store>\n' "$dir/$disk" $lun
			lun=$((lun + 1))
		done
		echo "</target>"
	done <<<"$1" >>"$conf"
}
# Somebody is logged in to this target until killed
log_in() {
	local tid
	python3 -B tests/integration/reader.py "$port" "$1" "iqn.x:init-$RANDOM" 2>/dev/null &
	reader=$!
	readers="$readers $reader"
	tid=$("$bin/tgt-admin" -s | sed -n "s/^Target \([0-9]*\): $1\$/\1/p")
	for _ in $(seq 200); do
		adm -m conn -o show -t "$tid"
		[ -n "$out" ] && return
		sleep 0.05
	done
	echo "not ok somebody is logged in to $1"
	failures=$((failures + 1))
}
log_out() {
	local tid
	kill -9 "$reader" 2>/dev/null
	wait "$reader" 2>/dev/null
	readers=${readers% "$reader"}
	tid=$("$bin/tgt-admin" -s | sed -n "s/^Target \([0-9]*\): $1\$/\1/p")
	[ -z "$tid" ] || no_connection "$tid"
}
settled() {
	admin --update ALL -v
	is "... and a second run has nothing to do" said 0 ""
}

daemon_start ours

# ---- U5: names and stores that change hands
file "a: disk1"
admin -e
file "b: disk1"
admin --update ALL
is "U5 a target is renamed in one run" code 0
is "... with its LUN" stands iqn.x:b "disk1 "
is "... and the old name is gone" not exists iqn.x:a
settled

file $'a: disk1\nb: disk2\nc: disk3'
admin --update ALL
is "U5 three targets, one of them new, one with another store" code 0
file $'b: disk1\nc: disk2\nd: disk3'
admin --update ALL
is "U5 a chain of names: a to b, b to c, c to d" code 0
is "... first" stands iqn.x:b "disk1 "
is "... second" stands iqn.x:c "disk2 "
is "... third" stands iqn.x:d "disk3 "
settled

file $'b: disk2\nc: disk1\nd: disk3'
admin --update ALL
is "U5 two targets swap their stores" code 0
is "... one" stands iqn.x:b "disk2 "
is "... and the other" stands iqn.x:c "disk1 "
settled

file $'b: disk1 disk3\nc: disk2\nd: disk4'
admin --update ALL
is "U5 a circle, a chain and a new LUN on a store that another leaves" code 0
is "... one" stands iqn.x:b "disk1 disk3 "
is "... two" stands iqn.x:c "disk2 "
is "... three" stands iqn.x:d "disk4 "
settled

file $'b: disk3 disk1\nc: disk2\nd: disk4'
admin --update ALL
is "U5 two LUNs of a target swap" code 0
is "... they have" stands iqn.x:b "disk3 disk1 "
settled

ln -s disk3 "$dir/other-name"
file $'b: disk5\nc: disk2\nd: disk4\ne: other-name'
admin --update ALL
is "U5 a store that goes on under another name" code 0
is "... does" stands iqn.x:e "other-name "
settled
printf '<target iqn.x:a>\n\tcontroller_tid 22\n\tbacking-store %s\n</target>\n<target iqn.x:b>\n\tcontroller_tid 11\n\tbacking-store %s\n</target>\n' \
	"$dir/disk1" "$dir/disk2" >"$conf"
admin --update ALL
is "U5 targets with numbers" code 0
sed -i -e 's/tid 22/tid 33/' -e 's/tid 11/tid 22/' -e 's/tid 33/tid 11/' "$conf"
admin --update ALL
is "U5 swap their numbers" code 0
is "... with their LUNs" stands iqn.x:a "disk1 "
is "... both" stands iqn.x:b "disk2 "
settled

# ---- U5, U6: somebody is logged in
admin --force --delete ALL
file $'a: disk1\nb: disk2'
admin --update ALL
log_in iqn.x:a
admin --update ALL
is "U6 nothing changes, somebody is logged in: 0" said 0 ""
file $'b: disk2\nnew: disk1\nother: disk3'
admin --update ALL -p
is "U7 --pretend tells what is left" code 3
is "... too" has "(iqn.x:a) is in use, it won't be deleted."
admin --update ALL
is "U6 the old name is in use: 3" code 3
is "... which is said" has "(iqn.x:a) is in use, it won't be deleted."
is "... of both" has "tgt-admin: not made: iqn.x:new: it needs what is in the way: iqn.x:a"
is "U5 no target without its LUN" not exists iqn.x:new
is "... the old one stays" stands iqn.x:a "disk1 "
is "... independent ones are made" stands iqn.x:other "disk3 "
file $'a: disk2\nb: disk1\nother: disk3'
log_in iqn.x:b
admin --update ALL
is "U6 a swap of two that are in use: 3" code 3
is "... one keeps its store" stands iqn.x:a "disk1 "
is "... and the other" stands iqn.x:b "disk2 "
log_out iqn.x:b
admin --update ALL
is "U5 one of them is free: it goes by way of that one" code 0
is "... under the session of the other" stands iqn.x:a "disk2 "
is "... both" stands iqn.x:b "disk1 "
settled
sed -i '/iqn.x:a>/a\	bs-type aio' "$conf"
admin --update ALL
is "U6 another kind of store in use: 3" code 3
is "... which is said" has "is in use, LUN 1 won't be changed without --force."
is "... on standard error, too" has "tgt-admin: not made: iqn.x:a: LUN 1: in use; --force does it"
admin -e
is "-e leaves targets that exist" code 0
admin --delete iqn.x:a
is "U6 --delete of one in use: 3" code 3
admin --update ALL --force
is "U6 with --force: 0" code 0
adm -m target -o show
is "... and it is done" has "Backing store type: aio"
admin --update ALL --force -v
is "... once" said 0 ""
file $'new: disk2\nb: disk1\nother: disk3'
admin --update ALL --force
is "U5 a target in use is renamed with --force" code 0
is "... with its LUN" stands iqn.x:new "disk2 "
for reader in $readers; do
	kill -9 "$reader" 2>/dev/null
	wait "$reader" 2>/dev/null
done
readers=
settled

# ---- U6: what is not there is not as the file says
file $'new: disk2\nb: disk1 missing\nother: disk3'
admin --update ALL
is "U6 a store is missing: 3" code 3
is "... which is said" has "Skipping device: $dir/missing"
admin --update ALL
is "... again" code 3
admin --delete ALL
admin -e
is "... but -e goes on, as ever" code 0

# ---- U6: half of a target
admin --delete ALL
exec 9<>"$dir/disk6"
python3 - 9 <<'END'
import fcntl, struct, sys
fcntl.fcntl(9, 37, struct.pack('hhqqi4x', 1, 0, 0, 0, 0))  # F_OFD_SETLK, F_WRLCK: as another daemon
END
file $'a: disk1 disk6\nb: disk2 disk6\nc: disk3'
sed -i '/iqn.x:b>/,$s#.*disk6.*#\t<backing-store '"$dir/disk4"'>#' "$conf"
admin --update ALL --force
is "U6 one LUN is refused: 22" code 22
is "... its target is not left by half" not exists iqn.x:a
is "... those after it are made" stands iqn.x:b "disk2 disk4 "
is "... all" stands iqn.x:c "disk3 "
exec 9>&-
admin --update ALL
is "... and the next run makes the rest" code 0
is "... of it" stands iqn.x:a "disk1 disk6 "
settled

# ---- U6: every word of targets.conf.5, and nothing to do in a second run
admin --delete ALL
(umask 077 && echo secret-of-a-file >"$dir/secret")
every() {
	cat >"$conf" <<END
default-driver iscsi
ignore-errors no
control-port 0
include $dir/conf.d/*.conf
incomingdiscoveryuser disc secret-disc12
outgoingdiscoveryuser odisc secret-disc34
incomingdiscoveryuser-file disc-f $dir/secret
weak_secrets refuse
default-mask none
account-file loose $dir/secret
portal 127.0.0.1:$port
cache-affinity inline
cache-threshold 64k
cache-size $("$bin/tgtadm" -m cache -o show | sed -n 's/^ *Size: \([0-9]*\) MiB/\1m/p')
debug off
latency_initiators $1
stopped-driver iser
iSNSServerIP 127.0.0.1
iSNSServerPort 3205
iSNSAccessControl Off
iSNS Off
<target iqn.x:all>
	driver iscsi
	controller_tid 7
	<backing-store $dir/disk1>
		lun 3
		bs-type rdwr
		bsopts cache=write-through
		bsoflags direct:sync
		block-size 512
		device-type disk
		write-cache $1
		scsi_id ID-of-this
		naa 6000000000000000000000000000aBcd
		scsi_sn SN 1
		vendor_id VEND
		product_id PRODUCT 1
		product_rev 0x1
		sense_format 1
		removable 1
		online 1
		readonly 0
		lbppbe 0x3
		la_lba 7
		optimal_xfer_gran 0010
		optimal_xfer_len 2048
		thin_provisioning 1
		rotation_rate 1
		sanitize_rate 100
		threads 2
		mode_page 10:0:10:2
		mode_page 0x1c:0:0xa:8
		mode_page 0x3e:0:2:1:2
		swp 0
		params vendor_id=ABC,product_rev=9
		allow-in-use yes
	</backing-store>
	<backing-store 64m>
		bs-type ram
		write-cache $1
	</backing-store>
	<backing-store 64m>
		bs-type null
	</backing-store>
	<backing-store $dir/disk2>
		mode_page 8:0:18:0x10:0:0xff:0xff:0:0:0xff:0xff:0xff:0xff:0x80:0x14:0:0:0:0:0:0
	</backing-store>
	<backing-store $dir/disk3>
		mode_page 0x08:0:0x12:0x10:0:0xff
		write-cache $1
	</backing-store>
	<backing-store $dir/disk4>
		mode_page 8:0:18:0x14:0:0xff:0xff:0:0:0xff:0xff:0xff:0xff:0x80:0x14:0:0:0:0:0:0
		path $dir/disk5
	</backing-store>
	direct-store $dir/disk6
	initiator-address 10.0.0.0/8
	initiator-address fe80::/10
	initiator-name iqn.x:one
	expose iqn.x:one 1,3-5
	initiator-limit iqn.x:one iops_limit=5000
	incominguser user1 secret-user12
	bind-user user1 iqn.x:one
	outgoinguser user2 secret-user34
	incominguser-file user3 $dir/secret
	default-mask all
	state $2
	nop_interval 3
	nop_count 4
	data_out_timeout 30
	allow_target_reset Yes
	allow_explicit_alua Yes
	alua_state standby
	MaxXmitDataSegmentLength 8192
	IFMarker No
	OFMarker No
	IFMarkInt 2048
	OFMarkInt 2048
	MaxQueueCmd 32
	RedirectAddress 127.0.0.1
	RedirectPort 3261
	RedirectReason Temporary
	MaxRecvDataSegmentLength 8192
	HeaderDigest None
	DataDigest CRC32C,None
	InitialR2T Yes
	MaxOutstandingR2T 1
	ImmediateData Yes
	FirstBurstLength 65536
	MaxBurstLength 262144
	DataPDUInOrder Yes
	DataSequenceInOrder Yes
	ErrorRecoveryLevel 0
	DefaultTime2Wait 2
	DefaultTime2Retain 20
	MaxConnections 1
</target>
<target iqn.x:nobody>
	initiator-address NONE
	outgoinguser-file user4 $dir/secret
</target>
END
}
mkdir -p "$dir/conf.d"
printf '<target iqn.x:included>\n\tdriver iscsi\n\tMaxConnections 2\n</target>\n' >"$dir/conf.d/more.conf"
for cache in on off on; do
	for state in ready offline ready; do
		every $cache $state
		admin --update ALL -v
		is "U6 every word, write-cache $cache, $state" code 0
		settled
	done
done
before=$("$bin/tgt-admin" --dump)
admin --update ALL --force
is "... with --force neither" test "$("$bin/tgt-admin" --dump)" = "$before"
# the words of the manual are in the file, but for this one: a daemon has one outgoing user
echo "# outgoingdiscoveryuser-file" >>"$conf"
# (and those of a gateway: tests/cluster/test_gateways.sh)
echo "# ceph-conf ceph-id ceph-cluster mirror-secret-file mirror-memory mirror-transport" >>"$conf"
missing=
for word in $(sed -n '/^\.SH GLOBAL/,/^\.SH SEE/p' conf/targets.conf.5 | sed -n '/^\.TP/{n;p;n;/^\.[BI]/p;}' |
	sed 's/\\-/-/g' | grep -o '[A-Za-z][A-Za-z_0-9-]*[A-Za-z0-9]' |
	grep -E '^([a-z]+[-_][a-z_-]+|[A-Z][A-Za-z0-9]*[a-z][A-Z][A-Za-z0-9]*|iSNS[A-Za-z]*|naa|lun|bsopts|bsoflags|params|threads|online|removable|readonly|path|state|driver|expose|include)$'); do
	grep -qw -- "$word" "$conf" "$dir/conf.d/more.conf" || missing="$missing $word"
done
out="not in the file:$missing"
is "... and the manual has no other words" test -z "$missing"
missing=
for word in $(sed -n 's/^	{ "\([^"]*\)", .*CONF_.*/\1/p' conf/words.c); do
	sed 's/\\-/-/g' conf/targets.conf.5 | grep -qw -- "$word" || missing="$missing $word"
done
out="not in the manual:$missing"
is "... but all words that there are" test -z "$missing"
sed -i '/mode_page.*8:0/d' "$conf"
admin --update ALL
is "U6 a caching page goes without the LUN being made anew" code 0
settled
sed -i -e '/params/d' -e '/mode_page/d' -e '/threads/d' -e '/write-cache/d' "$conf"
admin --update ALL
is "U6 words go" code 0
settled

# ---- U7: --pretend refuses what -e refuses, with the same words
file ""
admin --update ALL
is "an empty file leaves nothing" test -z "$("$bin/tgt-admin" -s)"
while IFS='|' read -r line says; do
	file $'a: disk1\nb: disk2'
	sed -i "/iqn.x:b>/a\\	$line" "$conf"
	for how in "-e" "--update ALL"; do
		# shellcheck disable=SC2086
		admin $how
		really=$rc:$out
		# shellcheck disable=SC2086
		admin $how -p
		is "U7 $how -p as $how: $line" test "$rc:$out" = "$really"
		is "... refused" not code 0
		is "... for that" has "$says"
		is "... and prints no request" requests 0
	done
done <<'END'
MaxBurstLength 12|MaxBurstLength cannot be '12'
readonly maybe|readonly is 0 or 1, not 'maybe'
bsopts cache=maybe|not 'cache=maybe'
nop_interval never|nop_interval cannot be 'never'
naa 123|naa cannot be '123'
END
file $'a: disk1\nb: disk2'
for size in 7000000g lots; do
	printf '<target iqn.x:b>\n\tbacking-store %s\n\tbs-type ram\n</target>\n' $size >"$conf"
	admin -e -p
	is "U7 so much memory there is not: $size" code 22
done
file $'a: disk1\nb: disk2'
printf tiny >"$dir/disk2"
admin -e -p
is "U7 a store that is too small" code 22
truncate -s 16M "$dir/disk2"
admin -e -p
is "U7 a good file: 0" code 0
is "... and its requests" requests 6
adm -m target -o show
is "... which are not made" test -z "$out"
is "daemon ends cleanly" daemon_stop
is "nothing was reported" no_report

# ---- U7: without a daemon
admin -e -p
is "U7 no daemon: 107, as without -p" code 107
is "... which is said" has "tgt-admin: no tgtd answers on control port 0: only the file is checked"
is "... and the requests" requests 6
echo nonsense >>"$conf"
admin -e -p
is "... a fault in the file is told all the same" code 1
# ---- numbers: tgt-admin's own beside controller_tid ------------------------------------------------------------
[ -z "$pid" ] && daemon_start ours
admin --update ALL -f -c /dev/null
numbers() { "$bin/tgtadm" -o show -m target | sed -n 's/^Target \([0-9]*\): iqn.x:/\1=/p' | tr '\n' ' '; }
numbered() { out=$(numbers) && [ "$out" = "$1" ]; }
printf '<target iqn.x:%s>\n\tcontroller_tid %s\n</target>\n' c 1 >"$conf"
for name in a b d; do printf '<target iqn.x:%s>\n</target>\n' $name >>"$conf"; done
admin -e
is "a controller_tid below numbers given before it: all are made" code 0
is "... each with a number of its own" numbered "1=c 2=a 3=b 4=d "
admin --update ALL -v
is "... and a second run has nothing to do" said 0 ""
printf '<target iqn.x:e>\n\tcontroller_tid 2147483647\n</target>\n<target iqn.x:f>\n</target>\n' >>"$conf"
admin --update ALL
is "after the last number there is" code 0
is "... come the low ones that are free" numbered "1=c 2=a 3=b 4=d 5=f 2147483647=e "
printf '<target iqn.x:g>\n\tbacking-store %s\n\tlun 0x5\n</target>\n' "$dir/disk1" >"$conf"
admin --update ALL
is "a target's lun is read as a store's is" code 0
out=$("$bin/tgtadm" -o show -m target)
is "... which is LUN 5" has_line "        LUN: 5"

# ---- several at once, and one that is killed --------------------------------------------------------------------
# The same disks under other names and in another order, time after time
shuffled() {
	local name
	for name in $(printf '%s\n' a b c d e f g h | shuf | head -6); do echo "$name"; done >"$dir/names"
	file "$(paste -d: "$dir/names" <(printf 'disk%d\n' $(shuf -i 1-6)))"
}
pretty=yes
for _ in $(seq 8); do
	shuffled
	runs=
	for _ in 1 2 3; do
		"$bin/tgt-admin" -c "$conf" --update ALL >>"$dir/runs" 2>&1 &
		runs="$runs $!"
	done
	for run in $runs; do wait "$run" || pretty=no; done
	admin --update ALL -v
	[ "$rc$out" = 0 ] || pretty=no
done
out=$(tail -20 "$dir/runs")
is "three runs at once: each ends with 0, and then all is as the file says" test $pretty = yes
pretty=yes
for i in $(seq 40); do
	shuffled
	"$bin/tgt-admin" -c "$conf" --update ALL >/dev/null 2>&1 &
	run=$!
	sleep "0.0$((i % 20 + 10))"
	{ kill -9 $run; wait $run; } 2>/dev/null
	admin --update ALL
	[ "$rc$out" = 0 ] || break
	admin --update ALL -v
	[ "$rc$out" = 0 ] || break
done
is "a run after one that was killed makes what the file says, with 0" test "$rc$out" = 0

# Somebody else has the turn, and keeps it
waits() { # PORT
	(
		flock 9
		timeout 2 "$bin/tgt-admin" -c "$conf" --update ALL
	) 9>"$dir/socket.$1.admin.lock"
	out=$?
	[ $out = 124 ]
}
is "a run waits for another one" waits 0
printf 'control-port 8\n' >"$conf"
is "... also where the file says which daemon it is for" waits 8

# ---- tid=N ---------------------------------------------------------------------------------------------------------
file 'a: disk1'
admin --update ALL -f
before=$(numbers)
tid=${before%=*}
for value in $((tid + (1 << 32))) ${tid}x 99999999999999999999 -$tid; do
	admin --delete "tid=$value"
	is "--delete tid=$value is no target's" numbered "$before"
	admin --offline "tid=$value"
	is "... nor is --offline's" code 1
	admin --update "tid=$value"
	is "... nor --update's" code 1
done
admin --delete "tid=$tid"
is "tid=$tid is" numbered ""

finish
