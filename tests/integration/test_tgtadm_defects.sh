#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What tgt gets wrong in its administration, and we must not: one test a defect.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.example:t
truncate -s 64M "$dir/a" "$dir/b" "$dir/c"
daemon_start ours

# Logs in as initiator $1 and asks LUN 1 who it is.
may_log_in() { iscsi-inq -i "$1" "iscsi://127.0.0.1:$port/$iqn/1" >"$dir/inq" 2>&1; }

adm -m target -o new -t 1 -T $iqn
adm -m lu -o new -t 1 -l 1 -b "$dir/a"

# ---- tgt crashes when the first of two accounts is unbound and targets are shown
for user in u1 u2; do
	adm -m account -o new -u $user -p secret$user
	adm -m account -o bind -u $user -t 1
done
adm -m account -o unbind -u u1 -t 1
is "unbind the first of two accounts" done_silently
adm -m target -o show
is "and show" has_line "        u2"
is "only the second is left" not has_line "        u1"
adm -m account -o delete -u u2
adm -m target -o show
is "a deleted account is bound nowhere" not has_line "        u2"
for user in u1 u2; do
	adm -m account -o new -u $user -p secret$user
	adm -m account -o bind -u $user
done
adm -m account -o unbind -u u1
adm -m sys -o show
is "the same for discovery" has_line "    u2"
adm -m account -o unbind -u u2

# ---- a target without a name
adm -m target -o new -t 2 -T ""
is "a target without a name is refused" refused "invalid request"
adm -m target -o show
is "and was not made" not has "Target 2:"
# other tools of other times say it without the option
adm -m target -o new -t 2
is "the tool refuses it too" refused "creating new target requires a name, use --targetname"

# ---- names and addresses: tgt lets in who matches either
is "nobody is bound: nobody comes in" not may_log_in iqn.a
adm -m target -o bind -t 1 -Q iqn.a
is "names only: the name comes in" may_log_in iqn.a
is "names only: another does not" not may_log_in iqn.b
adm -m target -o bind -t 1 -I ALL
is "ALL addresses do not open what names close" not may_log_in iqn.b
is "the name still comes in" may_log_in iqn.a
adm -m target -o unbind -t 1 -I ALL
adm -m target -o bind -t 1 -I 192.0.2.1
is "the right name from the wrong address" not may_log_in iqn.a
adm -m target -o unbind -t 1 -I 192.0.2.1
adm -m target -o bind -t 1 -I 127.0.0.0/8
is "the right name from the right network" may_log_in iqn.a
adm -m target -o unbind -t 1 -Q iqn.a
is "address only" may_log_in iqn.b
adm -m target -o unbind -t 1 -I 127.0.0.0/8
is "the last rule is gone: nobody" not may_log_in iqn.a
adm -m target -o bind -t 1 -I ALL

# ---- per initiator masking
adm -m lu -o new -t 1 -l 2 -b "$dir/b"
adm -m target -o unbind -t 1 -I ALL
adm -m target -o bind -t 1 -Q iqn.a --expose 2
is "bind with a mask" done_silently
adm -m target -o show
is "the mask is shown" has_line "        iqn.a (LUNs 2)"
# a LUN that is not there answers INQUIRY with peripheral qualifier 3 (SPC-4 6.6)
sees() { iscsi-inq -i iqn.a "iscsi://127.0.0.1:$port/$iqn/$1" 2>&1 | grep -q "Qualifier:CONNECTED"; }
is "it sees LUN 2" sees 2
is "it does not see LUN 1" not sees 1
adm -m target -o update -t 1 -Q iqn.a --expose 1
is "and then the other" sees 1
adm -m target -o update -t 1 -Q iqn.a --expose all
is "and then both" sees 2
adm -m target -o update -t 1 -Q iqn.a --expose 5-3
is "a bad mask is refused" refused "invalid request"
adm -m target -o update -t 1 -Q iqn.a --expose 1 --params iops_limit=5
is "a mask and limits in one request are refused: one would be ignored" refused "invalid request"
adm --debug -m system -o show --name nothing
is "what the system does not have is refused" test "$rc" = 22
is "... and what it has is said" has "it has config, counters, stores, failed-logins, work"
adm -m target -o unbind -t 1 -Q iqn.a
adm -m target -o bind -t 1 -I ALL

# An initiator that reads LUN 1, and has logged in; until it is killed.
start_reading() {
	python3 -B tests/integration/reader.py "$port" $iqn 2>/dev/null &
	reader=$!
	for _ in $(seq 100); do
		adm -m conn -o show -t 1
		[ -n "$out" ] && break
		sleep 0.05
	done
}
stop_reading() {
	kill -9 $reader
	wait $reader 2>/dev/null
}

# ---- tgt says "still active" for an LU whose initiator has gone
start_reading
is "an initiator reads" has "Session:"
stop_reading
for _ in $(seq 60); do
	adm -m conn -o show -t 1
	[ -z "$out" ] && break
	sleep 0.05
done
is "its session ends when it vanishes" done_silently
adm -m lu -o delete -t 1 -l 1
is "an LU can be deleted after a disconnect" done_silently
adm -m lu -o new -t 1 -l 1 -b "$dir/a"
is "and made again on the same file at once" done_silently

# ---- forced delete of a target in use completes
start_reading
adm -m target -o delete -t 1
is "a target in use is kept" refused "this target is still active"
start=$EPOCHREALTIME
adm -m target -o delete -t 1 --force
is "--force deletes it" done_silently
is "within 5 seconds" awk "BEGIN { exit !($EPOCHREALTIME - $start < 5) }"
stop_reading
adm -m target -o new -t 1 -T $iqn
is "name and number are free at once" done_silently
adm -m lu -o new -t 1 -l 1 -b "$dir/a"
is "and the store" done_silently

# ---- many incoming accounts, one outgoing
for i in $(seq 64); do
	adm -m account -o new -u many$i -p secretsecret$i
	adm -m account -o bind -u many$i -t 1
done
is "64 incoming accounts" done_silently
adm -m account -o new -u many65 -p secretsecret65
adm -m account -o bind -u many65 -t 1
is "the 65th is refused" refused "too many accounts"
adm -m account -o bind -u many1 -t 1 -O
adm -m account -o bind -u many2 -t 1 -O
is "a second outgoing account is refused" refused "this target already has an outgoing account"

# ---- the daemon's own counters while it runs (tgt has none)
counter() { adm -m sys -o stat -n "$1" && printf '%s\n' "$out" | awk -v n="$1" '$1 == n {print $2}'; }
before=$(counter iscsi_commands)
iscsi-inq "iscsi://127.0.0.1:$port/$iqn/1" >"$dir/inq" 2>&1 || iscsi-ls "iscsi://127.0.0.1:$port" >"$dir/inq" 2>&1
accepted=$(counter iscsi_conns_accepted)
is "counters by name" test "${accepted:-0}" -gt 0 -a "${before:-x}" != x
adm -m sys -o stat -n tcp_
is "a prefix shows its family and no other" \
	sh -c "printf '%s\n' \"\$1\" | awk 'NF != 2 || !/^tcp_/ {bad = 1} END {exit bad || NR < 4}'" sh "$out"
adm -m sys -o stat -n all
is "all of them" sh -c "printf '%s\n' \"\$1\" | grep -c '^[a-z_]* [0-9]*\$' | awk '{exit \$1 < 40}'" sh "$out"
adm -m sys -o stat -n nosuch_
is "an unknown family is refused" refused "invalid request"

# ---- SIGTERM is ignored by tgt; it talks of RDMA where there is none
is "SIGTERM ends the daemon with 0" daemon_stop
out=$(grep -i "rdma\|iser" "$dir/log")
is "one line about missing RDMA at most" test "$(printf "%s" "$out" | grep -c "")" -le 1
exit $((failures > 0))
