#!/usr/bin/env bash
# libiscsi's conformance suite (Debian's iscsi-test-cu, all 615 tests, --dataloss) against a ram LUN, an
# aio LUN, and an aio LUN behind a cache far smaller than it. One TAP line a test; what the suite skips
# is listed with its reason.
#
#   test_iscsi_cu.sh [ram] [aio] [small-cache]    all three unless named
#   test_iscsi_cu.sh rbd|rbd-none    images cu and cu2 of a Ceph that is there: tests/cluster/test_rbd_cu.sh
#
#   ISCSI_TEST_CU   another build of the tool, e.g. the newest; what is wrong with newer tests stands below
#   CU_TESTS         say "Read10 Sanitize.BlockErase": these families and tests alone
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

# Tests of newer versions that no target can pass, or none that keeps to the standard. The families they are in are
# run test by test, for one of them hangs. Checked again with libiscsi 65ebd14 (June 2026).
declare -A wrong=(
	[CompareAndWrite.InvalidDataOutSize]="means to change the command's number of blocks, but changes all PDUs but commands: an ordinary miscompare, which it wants to be ILLEGAL REQUEST"
	[iSCSISendTargets.Simple]="wants SendTargets=All in a normal session, which RFC 7143 annex C says must not be supported"
	[iSCSISendTargets.Invalid]="wants a Reject for a key that is not understood; RFC 7143 6.2 says NotUnderstood, which libiscsi cannot read: it connects again, drops the next request for that and waits for its answer for ever"
)
# Debian's has none that hangs; what others want was so in its libiscsi.
list=$("$cu" -l 2>/dev/null | grep '^ALL\.' | sort -u)
newer=
! grep -qxF ALL.iSCSISendTargets.Invalid <<<"$list" || newer=1
# One thing is wrong with these: they want a request in libiscsi's own queue right after it was put there, but an empty
# queue is sent at once, before any byte of a target's. They are run, and this may fail, and nothing else.
# PwrCnd sends START STOP UNIT with each POWER CONDITION from 1 to 15, and wants GOOD for all. SBC-4 5.31 reserves 4, 6,
# 8, 9 and Ch to Fh, and "receipt of reserved code values in defined fields shall be reported as error" (SPC-4 3.3).
# 2, 3, 5, Ah and Bh ask for power conditions that this unit has not; it is told so (5.31), not put off with GOOD
# (W13). What the test is about, that none of them ejects the medium, does hold: its TEST UNIT READY succeeds, and
# test_answers.sh has all sixteen.
declare -A may_fail=(
	[StartStopUnit.PwrCnd]="CU_ASSERT_EQUAL(_r,0)"
	[iSCSITMF.AbortTaskSimpleAsync]="CU_ASSERT_EQUAL(iscsi_out_queue_length(sd->iscsi_ctx),1)"
	[iSCSITMF.LUNResetSimpleAsync]="CU_ASSERT_EQUAL(iscsi_out_queue_length(sd->iscsi_ctx),1)"
)

# Each UNMAP of Unmap.Simple has up to 256 ranges, and a cluster is asked for each.
family_s=120 suite_s=500
case ${1-} in rbd*) family_s=600 suite_s=1200 ;; esac
# WriteAtomic16.Simple sends up to 256 blocks, and wants GOOD, whatever MAXIMUM ATOMIC TRANSFER LENGTH says: 32 blocks
# behind a cache on rbd. SBC-4 5.48 has ILLEGAL REQUEST for more. tests/cluster/test_rbd.sh writes as many as are offered.
case ${1-} in rbd) may_fail[WriteAtomic16.Simple]="CU_ASSERT_EQUAL(_r,0)" ;; esac

# run_family NAME OUT FAMILY URL...: test by test, where one of them is not to be run, or may fail.
run_family() {
	local name=$1 out=$2 family=$3 rc t
	shift 3
	if ! printf '%s\n' "${!wrong[@]}" "${!may_fail[@]}" | grep -q "^$family\."; then
		timeout "$family_s" "$cu" --dataloss -t "ALL.$family" "$@" >>"$out" 2>&1 || echo "not ok $name $family: $cu ended with $?"
		return
	fi
	for t in $(awk -F. -v f="$family" 'NF == 3 && $2 == f { print $3 }' <<<"$list"); do
		if [ -n "$newer" ] && [ -n "${wrong[$family.$t]:-}" ]; then
			echo "ok $name $family.$t # SKIP ${wrong[$family.$t]}"
			continue
		fi
		timeout 60 "$cu" --dataloss -t "ALL.$family.$t" "$@" >>"$out" 2>&1
		rc=$?
		# 1: a test failed, which to_tap sees
		[ $rc = 0 ] || { [ $rc = 1 ] && [ -n "${may_fail[$family.$t]:-}" ]; } || echo "not ok $name $family.$t: $cu ended with $rc"
	done
}

# The suite's tests, but for sanitize and CHAP: run_suite NAME OUT URL...
run_suite() {
	local name=$1 out=$2 family rc
	shift 2
	if [ -z "$newer" ]; then
		timeout "$suite_s" "$cu" --dataloss "$@" >"$out" 2>&1
		rc=$?
		# 1: a test failed, which to_tap sees, if the suite came to its end
		[ $rc = 0 ] || { [ $rc = 1 ] && grep -q '^Run Summary' "$out"; } || echo "not ok $name: $cu ended with $rc"
		return
	fi
	for family in $(awk -F. 'NF == 2 && $2 != "Sanitize" && $2 != "iSCSICHAP" { print $2 }' <<<"$list"); do
		run_family "$name" "$out" "$family" "$@"
	done
}

# What newer versions ask of CHAP, by accounts: with names that look like binary values, too, which they are not.
chap_users='joe 0x6a6f65 0bam9l'

chap_target() {
	local user
	"$bin/tgtadm" --op new --mode target --tid 3 -T $iqn-3 &&
		"$bin/tgtadm" --op bind --mode target --tid 3 -I ALL &&
		"$bin/tgtadm" --op new --mode logicalunit --tid 3 --lun 1 --bstype ram --backing-store 16m || return
	for user in $chap_users; do
		"$bin/tgtadm" --op new --mode account --user "$user" --password secretsecret &&
			"$bin/tgtadm" --op bind --mode account --tid 3 --user "$user" || return
	done
}

# run_chap NAME OUT PLACE
run_chap() {
	local name=$1 out=$2 place=$3 user
	grep -qx ALL.iSCSICHAP <<<"$list" || return 0
	for user in $chap_users; do
		timeout 60 "$cu" --dataloss -t ALL.iSCSICHAP "iscsi://$user%secretsecret@$place" >"$out" 2>&1 ||
			echo "not ok $name iSCSICHAP as $user: $cu ended with $?"
		to_tap "$name, $user" "$out"
	done
}

# to_tap NAME FILE: turns the suite's output into TAP. A result stands behind "Test: NAME ..." or, when the test printed
# messages, at the beginning of a later line. What failed follows, a line each: FILE:LINE  - WHAT.
to_tap() {
	awk -v run="$1" '
	function result() {
		if (test == "") return
		if (state == "failed" && known && !others) {
			printf "ok %s %s.%s: but for %s, which no target can pass\n", run, suite, test, excuse[suite "." test]
			excused++
		} else if (state != "passed") printf "not ok %s %s.%s\n", run, suite, test
		else if (skip != "") printf "ok %s %s.%s # SKIP %s\n", run, suite, test, skip
		else printf "ok %s %s.%s\n", run, suite, test
		test = ""; skip = ""
	}
	NR == FNR { excuse[$1] = $2; next }
	/^Suite: / { result(); suite = $2 }
	/^  Test: / { result(); test = $2; skip = state = ""; known = others = 0; sub(/^  Test: [^ ]+ \.\.\./, "") }
	/^ +[0-9]+\. [^ ]+:[0-9]+  - / {
		what = $0; sub(/^ +[0-9]+\. [^ ]+ +- /, "", what); sub(/ +$/, "", what)
		if ((suite "." test) in excuse && index(what, excuse[suite "." test]) == 1) known++; else others++
	}
	/\[SKIPPED\]/ { s = $0; sub(/.*\[SKIPPED\] */, "", s); if (skip == "") skip = s }
	/^passed/ { state = "passed" }
	/^ *FAILED/ { state = "failed" }
	/^Run Summary/ { result() }
	END {
		result()
		if (excused) printf "# %s: %d of the failed tests count as passed, see there\n", run, excused
	}' <(for t in "${!may_fail[@]}"; do echo "$t ${may_fail[$t]}"; done) "$2"
}

run() {
	local name=$1 cache=$2 port t out=$work/$1.out
	shift 2
	port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
	"$bin/tgtd" -f --state-dir "$work" --iscsi portal=127.0.0.1:$port --cache "$cache" >"$work/$name.log" 2>&1 &
	pid=$!
	for _ in $(seq 200); do "$bin/tgtadm" --op show --mode system >/dev/null 2>&1 && break; sleep 0.1; done
	"$bin/tgtadm" --op new --mode target --tid 1 -T $iqn &&
		"$bin/tgtadm" --op bind --mode target --tid 1 -I ALL &&
		"$bin/tgtadm" --op update --mode target --tid 1 --name allow_target_reset --value Yes &&
		"$bin/tgtadm" --op new --mode logicalunit --tid 1 --lun 1 "$@" ||
		{ echo "not ok $name: cannot configure"; return; }
	"$bin/tgtadm" --op update --mode logicalunit --tid 1 --lun 1 --params thin_provisioning=1 ||
		{ echo "not ok $name: cannot be made thin"; return; }
	local url=iscsi://127.0.0.1:$port/$iqn/1
	if [ -n "${CU_TESTS-}" ]; then
		for t in $CU_TESTS; do
			timeout 120 "$cu" --dataloss --allow-sanitize -t "ALL.$t" "$url" "$url" >>"$out" 2>&1
			rc=$?
			# 1: a test failed, which to_tap sees
			[ $rc -le 1 ] || echo "not ok $name $t: $cu ended with $rc"
		done
		summary "$name" "$out"
		return
	fi
	# Sanitize.Reset looks at the operation for some seconds, which it must last: it is slowed down for it. Then the
	# test sleeps for a minute: beside the others, on a target of its own.
	local store="--bstype ram --backing-store 64m" reset
	case $name in
	ram) ;;
	rbd*) store="--bstype rbd --backing-store rbd/cu2 --bsopts ${*: -1}" ;;
	*)
		truncate -s 64m "$work/disk2"
		store="--bstype aio --backing-store $work/disk2"
		;;
	esac
	"$bin/tgtadm" --op new --mode target --tid 2 -T $iqn-2 &&
		"$bin/tgtadm" --op bind --mode target --tid 2 -I ALL &&
		"$bin/tgtadm" --op update --mode target --tid 2 --name allow_target_reset --value Yes &&
		"$bin/tgtadm" --op new --mode logicalunit --tid 2 --lun 1 $store &&
		"$bin/tgtadm" --op update --mode logicalunit --tid 2 --lun 1 --params thin_provisioning=1,sanitize_rate=8 ||
		{ echo "not ok $name: cannot configure the second target"; return; }
	chap_target || { echo "not ok $name: cannot configure the third target"; return; }
	timeout 300 "$cu" --dataloss --allow-sanitize -t "ALL.Sanitize.Reset" \
		"iscsi://127.0.0.1:$port/$iqn-2/1" >"$out.reset" 2>&1 &
	reset=$!
	# The second path of the URL is a second session to the same LU, for the multipath tests.
	run_suite "$name" "$out" "$url" "$url"
	for t in BlockErase BlockEraseReserved CryptoErase CryptoEraseReserved ExitFailureMode InvalidServiceAction \
		Overwrite OverwriteReserved Readonly Reservations; do
		timeout 60 "$cu" --dataloss --allow-sanitize -t "ALL.Sanitize.$t" "$url" >>"$out" 2>&1 ||
			echo "not ok $name Sanitize.$t: $cu ended with $?"
	done
	# What that unit could not be asked: a removable medium of 4 KiB physical blocks, then a write-protected one.
	local others="$out.others"
	"$bin/tgtadm" --op update --mode logicalunit --tid 1 --lun 1 --params removable=1,lbppbe=3 ||
		echo "not ok $name: cannot be made removable"
	for t in PreventAllow StartStopUnit CompareAndWrite WriteSame10 WriteSame16 Unmap; do
		run_family "$name, removable" "$others" $t "$url" "$url"
	done
	to_tap "$name, removable" "$others"
	"$bin/tgtadm" --op update --mode logicalunit --tid 1 --lun 1 --params removable=0,readonly=1 ||
		echo "not ok $name: cannot be made read-only"
	run_family "$name, read-only" "$others.ro" ReadOnly "$url"
	to_tap "$name, read-only" "$others.ro"
	# What it asks of CHAP, on a target that asks for it.
	run_chap "$name" "$out.chap" "127.0.0.1:$port/$iqn-3/1"
	wait $reset || echo "not ok $name Sanitize.Reset: $cu ended with $?"
	to_tap "$name" "$out.reset"
	summary "$name" "$out"
}

# summary NAME OUT: what has been run, and the end of the daemon
summary() {
	local name=$1 out=$2
	to_tap "$name" "$out"
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
# All of them at a time: each has a daemon and files of its own, and much of the suite is waiting.
if [ $# = 0 ]; then
	for name in ram aio small-cache; do
		tests/conformance/test_iscsi_cu.sh $name >"$work/all.$name" 2>&1 &
	done
	rc=0
	for job in $(jobs -p); do wait "$job" || rc=1; done
	cat "$work"/all.*
	exit $rc
fi
for name; do
	case $name in
	ram) run ram size=32m --bstype ram --backing-store 256m ;;
	aio) run aio size=64m --bstype aio --backing-store "$work/disk" ;;
	small-cache) run small-cache size=4m --bstype aio --backing-store "$work/disk" ;;
	rbd) run rbd size=64m --bstype rbd --backing-store rbd/cu --bsopts "conf=$CEPH_CONF;id=admin" ;;
	rbd-none)
		run rbd-none size=64m --bstype rbd --backing-store rbd/cu --bsopts "conf=$CEPH_CONF;id=admin;cache=none"
		;;
	*) echo "not ok $name: no such run" ;;
	esac
done
