#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Everything at once: verified and unverified loads on four targets with two LUs each (memory, and files
# behind a small cache) while an administrator creates and deletes targets and LUs, closes connections,
# and changes parameters as fast as he can; then SIGTERM under load. Under ThreadSanitizer (make check-tsan)
# each report fails it, under AddressSanitizer each report and leak.
#
#   TGT_CHURN_SECONDS   how long the load goes (default 6)
#   TGT_CHURN_LOG       lines of the daemon's log to print when it fails (default 400)
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
seconds=${TGT_CHURN_SECONDS:-6}
iqn=iqn.2026-11.org.tgtd.test:churn
# The tools are not what is tested: the plain build's are faster when they are there.
[ -x build/bin/tgt-load ] && [ -x build/bin/tgtadm ] && tools=$PWD/build/bin
load=${tools:-$bin}/tgt-load
loaders=()
trap 'for p in "${loaders[@]}"; do kill $p; done 2>/dev/null; wait "${loaders[@]}" 2>/dev/null; daemon_kill; rm -rf "$dir"' EXIT
export TSAN_OPTIONS="${TSAN_OPTIONS:-} exitcode=66"
daemon_start ours --cache "${TGT_TEST_CACHE:-size=8m}"

lu_new() { # tid lun
	if [ "$2" = 1 ]; then
		adm --op new --mode logicalunit --tid "$1" --lun 1 --bstype ram --backing-store 16m
	else
		adm --op new --mode logicalunit --tid "$1" --lun "$2" --bstype aio --backing-store "$dir/disk-$1-$2" \
			"${@:3}"
	fi
}
target_new() {
	adm --op new --mode target --tid "$1" -T "$iqn$1" && adm --op bind --mode target --tid "$1" -I ALL
	lu_new "$1" 1
	lu_new "$1" 2
}
for tid in 1 2 3 4 5; do
	truncate -s 64m "$dir/disk-$tid-2" "$dir/disk-$tid-3"
	[ $tid = 5 ] || target_new $tid
done
is "four targets of two LUs" test "$rc" = 0

# Targets 1 and 2 are written and read back; nobody takes them away.
verified() { # number, target, lun, options...
	local n=$1 t=$2 l=$3
	shift 3
	"$load" --portal "127.0.0.1:$port" --target "$iqn$t" --lun "$l" --verify --read 50 --time "$seconds" --warmup 0 \
		--wait block --quiet "$@" >"$dir/verify.$n" 2>&1
	echo $? >"$dir/status.$n"
}
verified 1 1 1-2 --lun-mode io --connections 2 --depth 8 --bs 512:10,4k:50,64k:10,1m:1 --range 16m &
verifiers=($!)
verified 2 2 1 --connections 2 --depth 16 --bs 4k:80,32k:10 --immediate-data No --range 16m --data-digest CRC32C &
verifiers+=($!)
verified 3 2 2 --connections 1 --depth 32 --bs 4k:80,256k:10 --initial-r2t Yes --header-digest CRC32C &
verifiers+=($!)
# Targets 3 and 4 lose LUs, connections and themselves under load; the initiators come back.
storm() {
	trap 'kill $(jobs -p) 2>/dev/null; exit' TERM
	while :; do
		"$load" --portal "127.0.0.1:$port" --target "$iqn$1" --lun 1-2 --lun-mode io --read 40 --connections 4 \
			--depth 16 --bs 512:10,4k:50,128k:5 --range 16m --time 5 --warmup 0 --wait block --quiet \
			>/dev/null 2>&1 &
		wait $!
		sleep 0.05
	done
}
storm 3 &
loaders=($!)
storm 4 &
loaders+=($!)

connections() { # tid: sid and cid of each
	adm --op show --mode conn --tid "$1"
	printf '%s\n' "$out" | awk '/^Session:/ { sid = $2 } /Connection:/ { print sid, $2 }'
}
refusals=0
may() { "$@"; [ "$rc" = 0 ] || refusals=$((refusals + 1)); }
rounds=0
start=$SECONDS
while alive; do
	took=$((SECONDS - start))
	# three rounds at least, unless the machine is so busy that they take too long
	[ $took -ge "$seconds" ] && { [ $rounds -ge 3 ] || [ $took -ge $((seconds + 12)) ]; } && break
	rounds=$((rounds + 1))
	[ $((rounds % 2)) = 0 ] && wce=0x14 cached=through || wce=0x10 cached=none
	may adm --op update --mode logicalunit --tid 3 --lun 1 --params readonly=1
	# event threads come and go, also under the verified load
	for tid in 1 3; do may adm --op update --mode logicalunit --tid $tid --lun 1 --params threads=$((rounds % 3 + 1)); done
	may adm --op update --mode logicalunit --tid 3 --lun 2 --params online=0
	may adm --op update --mode logicalunit --tid 3 --lun 2 --params vendor_id=CHURN$((rounds % 2))
	# the caching page: WCE off and on
	may adm --op update --mode logicalunit --tid 4 --lun 2 \
		--params "mode_page=8:0:18:$wce:0:0xff:0xff:0:0:0xff:0xff:0xff:0xff:0x80:0x14:0:0:0:0:0:0"
	may adm --op new --mode logicalunit --tid 3 --lun 3 --bstype aio --backing-store "$dir/disk-3-3" \
		--bsopts cache=${cached/through/write-through}
	adm --op show --mode target
	may adm --op update --mode logicalunit --tid 3 --lun 1 --params readonly=0
	may adm --op update --mode logicalunit --tid 3 --lun 2 --params online=1
	may adm --op delete --mode logicalunit --tid 3 --lun 3
	for tid in 3 4; do
		read -r sid cid < <(connections $tid) && may adm --op delete --mode conn --tid $tid --sid "$sid" --cid "$cid"
	done
	# a LU comes and goes under load; then its whole target
	may adm --op delete --mode logicalunit --tid 4 --lun $((rounds % 2 + 1))
	adm --op stat --mode target --tid 3
	may lu_new 4 $((rounds % 2 + 1))
	if [ $((rounds % 3)) = 0 ]; then
		may adm --op delete --mode target --tid 4 --force
		may target_new 4
	fi
	may target_new 5
	adm --op show --mode cache
	may adm --op delete --mode target --tid 5
	adm --op show --mode session --tid 3
done
echo "# $rounds rounds, $refusals refusals"
wait "${verifiers[@]}"
for n in 1 2 3; do
	out=$(cat "$dir/verify.$n")
	is "verified load $n" test "$(cat "$dir/status.$n")" = 0
done
is "the daemon is alive" alive
is "rounds were made" test $rounds -gt 0
rounds_refused() { [ $refusals -lt $((rounds * 13)) ]; }
is "most changes are accepted" rounds_refused
# the storm goes on while it ends
out=
is "SIGTERM under load: ends with 0" daemon_stop
is "no report" no_report
finish "${TGT_CHURN_LOG:-400}"
