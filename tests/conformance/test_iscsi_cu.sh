#!/usr/bin/env bash
# libiscsi's conformance suite (Debian's iscsi-test-cu, all 615 tests, --dataloss) against a ram LUN, an
# aio LUN, and an aio LUN behind a cache far smaller than it. One TAP line a test; what the suite skips
# is listed with its reason.
#
#   ISCSI_TEST_CU   another build of the tool, e.g. the newest; what is wrong with newer tests stands below
#
#   TGT_TEST_CACHE   say "size=1m": an aio LUN behind such a cache instead of these three
set -u
cd "$(dirname "$0")/../.."
bin=${TGT_BIN:-build/bin}
work=$(mktemp -d /var/tmp/tgtd-conformance-XXXXXX)
export TGT_IPC_SOCKET=$work/socket
cu=${ISCSI_TEST_CU:-iscsi-test-cu}
pid=
trap '[ -n "$pid" ] && kill -KILL $pid 2>/dev/null; rm -rf "$work"' EXIT
iqn=iqn.2026-11.org.tgtd.test:conformance

# Tests of newer versions that no target can pass, or none that keeps to the standard. They are not run, and the
# families they are in are run test by test, for one of them hangs.
queue="wants its request in libiscsi's own queue after libiscsi has sent it, before any byte of a target's"
declare -A wrong=(
	[iSCSITMF.AbortTaskSimpleAsync]=$queue
	[iSCSITMF.LUNResetSimpleAsync]=$queue
	[iSCSISendTargets.Simple]="wants SendTargets=All in a normal session, which RFC 7143 annex C says must not be supported"
	[iSCSISendTargets.Invalid]="wants a Reject for a key that is not understood; RFC 7143 6.2 says NotUnderstood, and it hangs on that"
)

# The suite's tests, but for sanitize: run_suite NAME OUT URL...
run_suite() {
	local name=$1 out=$2 list family t
	shift 2
	list=$("$cu" -l 2>/dev/null | grep '^ALL\.' | sort -u)
	# Debian's has no test that hangs, and what the others want was so in its libiscsi.
	if ! grep -qxF ALL.iSCSISendTargets.Invalid <<<"$list"; then
		timeout 500 "$cu" --dataloss "$@" >"$out" 2>&1 || echo "not ok $name: $cu ended with $?"
		return
	fi
	for family in $(awk -F. 'NF == 2 && $2 != "Sanitize" { print $2 }' <<<"$list"); do
		if ! printf '%s\n' "${!wrong[@]}" | grep -q "^$family\."; then
			timeout 120 "$cu" --dataloss -t "ALL.$family" "$@" >>"$out" 2>&1 || echo "not ok $name $family: $cu ended with $?"
			continue
		fi
		for t in $(awk -F. -v f="$family" 'NF == 3 && $2 == f { print $3 }' <<<"$list"); do
			if [ -n "${wrong[$family.$t]:-}" ]; then
				echo "ok $name $family.$t # SKIP ${wrong[$family.$t]}"
				continue
			fi
			timeout 60 "$cu" --dataloss -t "ALL.$family.$t" "$@" >>"$out" 2>&1 || echo "not ok $name $family.$t: $cu ended with $?"
		done
	done
}

# Turns the suite's output into TAP. A result stands behind "Test: NAME ..." or, when the test printed
# messages, at the beginning of a later line.
to_tap() {
	awk -v run="$1" '
	function result(ok) {
		if (test == "") return
		if (!ok) printf "not ok %s %s.%s\n", run, suite, test
		else if (skip != "") printf "ok %s %s.%s # SKIP %s\n", run, suite, test, skip
		else printf "ok %s %s.%s\n", run, suite, test
		test = ""; skip = ""
	}
	/^Suite: / { suite = $2 }
	/^  Test: / { result(0); test = $2; skip = ""; sub(/^  Test: [^ ]+ \.\.\./, "") }
	/\[SKIPPED\]/ { s = $0; sub(/.*\[SKIPPED\] */, "", s); if (skip == "") skip = s }
	/^passed/ { result(1) }
	/^ *FAILED/ { result(0) }
	END { result(0) }'
}

run() {
	local name=$1 cache=$2 port out=$work/$1.out
	shift 2
	port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
	"$bin/tgtd" -f --state-dir "$work" --iscsi portal=127.0.0.1:$port --cache "$cache" >"$work/$name.log" 2>&1 &
	pid=$!
	for _ in $(seq 200); do "$bin/tgtadm" --op show --mode system >/dev/null 2>&1 && break; sleep 0.1; done
	"$bin/tgtadm" --op new --mode target --tid 1 -T $iqn &&
		"$bin/tgtadm" --op bind --mode target --tid 1 -I ALL &&
		"$bin/tgtadm" --op new --mode logicalunit --tid 1 --lun 1 "$@" ||
		{ echo "not ok $name: cannot configure"; return; }
	"$bin/tgtadm" --op update --mode logicalunit --tid 1 --lun 1 --params thin_provisioning=1 ||
		{ echo "not ok $name: cannot be made thin"; return; }
	# Sanitize.Reset looks at the operation for some seconds, which it must last: it is slowed down for it. Then the
	# test sleeps for a minute: beside the others, on a target of its own.
	local store="--bstype ram --backing-store 64m" reset
	if [ "$name" != ram ]; then
		truncate -s 64m "$work/disk2"
		store="--bstype aio --backing-store $work/disk2"
	fi
	"$bin/tgtadm" --op new --mode target --tid 2 -T $iqn-2 &&
		"$bin/tgtadm" --op bind --mode target --tid 2 -I ALL &&
		"$bin/tgtadm" --op new --mode logicalunit --tid 2 --lun 1 $store &&
		"$bin/tgtadm" --op update --mode logicalunit --tid 2 --lun 1 --params thin_provisioning=1,sanitize_rate=8 ||
		{ echo "not ok $name: cannot configure the second target"; return; }
	timeout 300 iscsi-test-cu --dataloss --allow-sanitize -t "ALL.Sanitize.Reset" \
		"iscsi://127.0.0.1:$port/$iqn-2/1" >"$out.reset" 2>&1 &
	reset=$!
	# The second path is a second session to the same LU, for the multipath tests.
	local url=iscsi://127.0.0.1:$port/$iqn/1
	run_suite "$name" "$out" "$url" "$url"
	for t in BlockErase BlockEraseReserved CryptoErase CryptoEraseReserved ExitFailureMode InvalidServiceAction \
		Overwrite OverwriteReserved Readonly Reservations; do
		timeout 60 "$cu" --dataloss --allow-sanitize -t "ALL.Sanitize.$t" "$url" >>"$out" 2>&1 ||
			echo "not ok $name Sanitize.$t: $cu ended with $?"
	done
	wait $reset || echo "not ok $name Sanitize.Reset: iscsi-test-cu ended with $?"
	to_tap "$name" <"$out.reset"
	to_tap "$name" <"$out"
	awk -v n="$name" '$1 == "tests" { for (i = 2; i <= 5; i++) s[i] += $i }
		END { printf "# %s: %d tests, %d run, %d passed, %d failed\n", n, s[2], s[3], s[4], s[5] }' "$out"
	kill -TERM $pid
	wait $pid
	local rc=$?
	pid=
	if [ $rc -eq 0 ]; then echo "ok $name: tgtd ended cleanly"; else echo "not ok $name: tgtd ended with $rc"; tail -20 "$work/$name.log"; fi
}

truncate -s 256m "$work/disk"
if [ -n "${TGT_TEST_CACHE:-}" ]; then
	run "aio-$TGT_TEST_CACHE" "$TGT_TEST_CACHE" --bstype aio --backing-store "$work/disk"
	exit
fi
run ram size=32m --bstype ram --backing-store 256m
run aio size=64m --bstype aio --backing-store "$work/disk"
run small-cache size=4m --bstype aio --backing-store "$work/disk"
