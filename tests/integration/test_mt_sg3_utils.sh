#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The tools of sg3-utils against a daemon on this machine: the VM's scenario of that name, with a
# preloaded library (sg_over_iscsi.c) in place of the kernel's initiator.
set -u
cd "$(dirname "$0")/../.." || exit 1
for tool in sg_inq sg_write_x iscsi-ls "${CC:-cc}"; do
	command -v "$tool" >/dev/null || { echo "ok sg3_utils # SKIP no $tool"; exit 0; }
done
. tests/integration/admin_lib.sh

# ---- what guest/lib.sh has in the VM ---------------------------------------------------------------

RUN=$dir
CONDITION_MET=0 # libiscsi makes GOOD of it
preload=$dir/sg_over_iscsi.so
sg_tools=$(compgen -c | grep -E '^(sg|scsi)_' | sort -u)

step() {
	local name=$1
	shift
	case $1 in
	resets) echo "ok $name # SKIP there is no kernel initiator to tell" ;;
	*)
		if "$@" >"$dir/step" 2>&1; then
			echo "ok $name"
		else
			echo "not ok $name"
			tail -n 25 "$dir/step" | sed 's/^/#    /'
			failures=$((failures + 1))
		fi
		;;
	esac
}
need() {
	local before=$failures
	step "$@"
	[ $failures = $before ] || exit 1
}
adm() {
	out=$("$bin/tgtadm" "$@" 2>&1)
	rc=$?
	return $rc
}
tgtd_start() { daemon_start ours; }
tgtd_stop() { daemon_stop; }
iscsid_up() { ${CC:-cc} -std=gnu17 -D_GNU_SOURCE -O1 -Wall -Wextra -shared -fPIC -o "$preload" tests/integration/sg_over_iscsi.c -liscsi -ldl; }
login() { export SG_TARGET=$1 SG_PORTAL=127.0.0.1:$port; }
logout() { :; }
modules() { :; }
block_links() { :; }
wait_sd() { printf -v "$1" %s "/dev/tgt$3"; }
wait_sg() { printf -v "$1" %s "/dev/tgt$3"; }
until_true() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.1
	done
}
target_new() {
	adm --lld iscsi --op new --mode target --tid "$1" -T "$2" && adm --lld iscsi --op bind --mode target --tid "$1" -I ALL
}
lun_new() { # TID LUN BSTYPE STORE [OPTIONS]
	local tid=$1 lun=$2 type=$3 store=$4
	shift 4
	adm --lld iscsi --op new --mode logicalunit --tid "$tid" --lun "$lun" --bstype "$type" --backing-store "$store" "$@"
}
# The scenario calls the tools by name, sometimes through others (timeout, if).
for tool in $sg_tools; do
	eval "$tool() { LD_PRELOAD=$preload command $tool \"\$@\"; }"
done

. tests/vm/guest/sg3_utils.sh
exit $((failures > 0))
