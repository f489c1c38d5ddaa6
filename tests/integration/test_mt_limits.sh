#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Limits of IOPS and bandwidth on a live daemon: of LUs with one and two event threads, of an
# initiator with several sessions, from targets.conf and by tgtadm, while commands wait. Nobody gets
# more than a limit says, and a change reaches those who wait. (How exactly they hold on a quiet
# machine: tests/bench/limits.)
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.tgtd.test:limits
cat >"$dir/targets.conf" <<CONF
<target $iqn>
	controller_tid 1
	<backing-store 16m>
		lun 1
		bs-type ram
		iops_limit 200
		threads 2
	</backing-store>
	<backing-store 17m>
		lun 2
		bs-type ram
		bandwidth_limit 2M
		bandwidth_burst 64K
	</backing-store>
	<backing-store 18m>
		lun 3
		bs-type ram
	</backing-store>
	initiator-limit iqn.2026-11.org.tgtd.test:slow iops_limit=100,bandwidth_limit=10M
	initiator-address ALL
</target>
CONF
daemon_start ours
admin() {
	out=$("$bin/tgt-admin" -C 0 -c "$dir/targets.conf" "$@" 2>&1)
	rc=$?
}
load() { # LUN SECONDS OPTIONS...
	local lun=$1 seconds=$2
	shift 2
	timeout 100 "$bin/tgt-load" --portal "127.0.0.1:$port" --target $iqn --lun "$lun" --time "$seconds" \
		--warmup 0 --quiet --json - "$@" >"$dir/load.$lun.json" 2>"$dir/load.$lun.err"
}
# ios, bytes or seconds of what tgt-load has said
of() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$dir/load.$1.json" "$2"; }
# Not more than RATE a second, and a burst; more than a third of it, however busy the machine is.
holds() { # LUN FIGURE RATE BURST
	python3 -c '
import sys
n, seconds, rate, burst = map(float, sys.argv[1:])
print("# %d in %.2f s: %.1f a second, the limit is %d" % (n, seconds, n / seconds, rate))
sys.exit(not rate * seconds / 3 <= n <= rate * (seconds + 0.2) + burst)' \
		"$(of "$1" "$2")" "$(of "$1" seconds)" "$3" "$4"
}

admin -e
is "a file with limits is taken" test "$rc$out" = 0
admin --update ALL -p
is "and differs in nothing from the daemon" test -z "$(echo "$out" | grep -v '^#')"
adm --mode target --op show
is "a LU shows its limits" grep -q 'Limits: bandwidth_limit=2097152,bandwidth_burst=65536' <<<"$out"
is "others do not" test "$(grep -c Limits: <<<"$out")" = 2
adm --mode target --op show --tid 1
is "a target shows those of initiators" \
	grep -q '^limits of iqn.2026-11.org.tgtd.test:slow=iops_limit=100,bandwidth_limit=10M$' <<<"$out"

load 1 3 --connections 4 --depth 16 --bs 4k --read 50 &
one=$!
load 2 3 --depth 4 --bs 64k --read 30 &
two=$!
load 3 3 --depth 8 --bs 4k
wait $one $two
is "IOPS hold over four sessions on two threads" holds 1 ios 200 20
is "bandwidth holds" holds 2 bytes 2097152 393216
# (Of a busy machine it gets what is left, which is more than who is held.)
is "one without limits goes on beside them" test "$(of 3 ios)" -gt 1000

load 3 3 --connections 3 --depth 8 --bs 4k --initiator iqn.2026-11.org.tgtd.test:slow
is "an initiator's limit holds for its sessions together" holds 3 ios 100 10

# Online: what was to take minutes is over at once.
adm --mode logicalunit --op update --tid 1 --lun 1 --params iops_limit=1
load 1 60 --depth 32 --count 32 &
one=$!
waiting() {
	for _ in $(seq 300); do
		adm --mode system --op stat --name scsi_limit_waiting
		[ "${out##* }" -ge "$1" ] && return 0
		sleep 0.1
	done
	return 1
}
is "commands wait" waiting 20
adm --mode logicalunit --op update --tid 1 --lun 1 --params iops_limit
is "without a limit they are released" wait $one
adm --mode system --op stat --name scsi_limit_waiting
is "and nobody waits" test "$out" = "scsi_limit_waiting 0"

# The initiator goes, and the LU goes, while they wait.
adm --mode logicalunit --op update --tid 1 --lun 2 --params iops_limit=1
"$bin/tgt-load" --portal "127.0.0.1:$port" --target $iqn --lun 2 --time 60 --warmup 0 --quiet --depth 32 \
	>/dev/null 2>&1 &
two=$!
is "others wait" waiting 20
adm --mode target --op update --tid 1 --initiator-name iqn.2026-11.org.tgtd.test:slow --params iops_limit,bandwidth_limit
is "an initiator's limits are taken back" test "$rc" = 0
adm --mode target --op show --tid 1
is "and shown no more" test "$(grep -c '^limits of' <<<"$out")" = 0
kill -KILL $two
wait $two 2>/dev/null
is "nobody is left when the initiator has gone" no_connection 1
adm --mode system --op stat --name scsi_limit_waiting
is "nor any of its commands" test "$out" = "scsi_limit_waiting 0"
"$bin/tgt-load" --portal "127.0.0.1:$port" --target $iqn --lun 2 --time 60 --warmup 0 --quiet --depth 32 \
	>/dev/null 2>&1 &
two=$!
is "others wait again" waiting 20
adm --mode target --op delete --tid 1 --force
is "the target goes with all that wait" test "$rc" = 0
kill $two # it would try to log in again until its time is over
wait $two

for bad in iops_limit=-1 iops_limit=x bandwidth_limit=5 bandwidth_limit=2T iops=3 iops_limit=; do
	adm --mode target --op new --tid 2 -T $iqn.2
	adm --mode target --op update --tid 2 --initiator-name iqn.a --params "$bad"
	is "$bad is refused" test "$rc" = 22
done
is "no report" no_report
is "it ends with 0" daemon_stop
finish 20
