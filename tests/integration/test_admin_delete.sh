#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Deleting what is busy is refused or, by force, over within a deadline; deleting what has lost its peer or its
# store succeeds. Initiators under load, initiators that no longer read, stores that are gone.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.example:d
readers=()
trap 'for r in "${readers[@]}"; do kill -KILL "$r" 2>/dev/null; done; daemon_kill; rm -rf "$dir"' EXIT
truncate -s 64M "$dir/a" "$dir/b"
daemon_start ours

# A reader with 32 requests of 1 MiB under way, of target $1 LUN $2.
reader() {
	iscsi-perf -i "iqn.reader$RANDOM" -m 32 -b 2048 "iscsi://127.0.0.1:$port/$iqn$1/$2" >/dev/null 2>&1 &
	readers+=($!)
	reader=$!
}
# Until target $1 has $2 connections, at most 10 seconds.
connections() {
	for _ in $(seq 200); do
		adm -m conn -o show -t "$1"
		[ "$(printf '%s\n' "$out" | grep -c 'Connection:')" = "$2" ] && return 0
		sleep 0.05
	done
	return 1
}
# One that takes no answers: target $1 LUN 1 has what it keeps under way.
stuck_reader() {
	local says
	exec {says}< <(exec python3 -B tests/integration/stuck_reader.py "$port" "$iqn$1")
	reader=$!
	readers+=("$reader")
	read -r -t 60 -u "$says" _
	exec {says}<&-
}
end_reader() {
	kill -KILL "$1" 2>/dev/null
	wait "$1" 2>/dev/null
}
# Runs adm; $took is how long.
timed() {
	local from=$EPOCHREALTIME
	adm "$@"
	took=$(awk "BEGIN { print $EPOCHREALTIME - $from }")
}
within() { awk "BEGIN { exit !($took < $1) }"; }
target() {
	adm -m target -o new -t "$1" -T "$iqn$1"
	adm -m target -o bind -t "$1" -I ALL
}
disk() { adm -m lu -o new -t "$1" -l "$2" -b "$3" "${@:4}"; }

# ---- an LU with commands under way
target 1
disk 1 1 "$dir/a"
reader 1 1
is "a reader is there" connections 1 1
refusals=0
for _ in $(seq 20); do
	timed -m lu -o delete -t 1 -l 1
	[ "$rc" = 0 ] && break
	[ "$out" = "tgtadm: this logical unit is still active" ] && refusals=$((refusals + 1))
done
is "an LU under load: still active, or gone between two commands" test "$rc" = 0 -o $refusals = 20
is "either way at once" within 2
[ "$rc" = 0 ] && disk 1 1 "$dir/a"
end_reader "$reader"
is "it disconnects" connections 1 0
[ "$rc" = 0 ] && timed -m lu -o delete -t 1 -l 1
is "then the LU can be deleted" done_silently
is "at once" within 2
timed -m lu -o delete -t 1 -l 1
is "what is not there is told" refused "can't find the logical unit"
disk 1 1 "$dir/a"
is "and its number and store are free" done_silently

# ---- a reader that does not read
stuck_reader 1
is "a reader comes" connections 1 1
timed -m lu -o delete -t 1 -l 1
is "answers that nobody takes keep an LU" refused "this logical unit is still active"
is "which is said at once" within 2
timed -m target -o delete -t 1
is "and its target" refused "this target is still active"
adm -m conn -o show -t 1
sid=$(printf '%s\n' "$out" | sed -n 's/^Session: //p')
cid=$(printf '%s\n' "$out" | sed -n 's/^ *Connection: //p')
timed -m conn -o delete -t 1 -s "$sid" -c "$cid"
is "its connection can be closed" done_silently
is "and is" connections 1 0
timed -m lu -o delete -t 1 -l 1
is "then the LU goes" done_silently
is "at once, too" within 2
end_reader "$reader"
disk 1 1 "$dir/a"

# ---- by force, with several that do not read
for _ in 1 2 3 4 5 6; do stuck_reader 1; done
is "six readers" connections 1 6
timed -m target -o delete -t 1
is "a target in use is kept" refused "this target is still active"
timed -m target -o delete -t 1 --force
is "--force deletes it" done_silently
is "within 5 seconds" within 5
for r in "${readers[@]: -6}"; do end_reader "$r"; done
target 1
is "its name is free at once" done_silently
disk 1 1 "$dir/a"
is "and its store" done_silently

# ---- an account in use
adm -m account -o new -u user -p secretsecret1
adm -m account -o bind -t 1 -u user
iscsi-perf -m 1 "iscsi://user%secretsecret1@127.0.0.1:$port/${iqn}1/1" >/dev/null 2>&1 &
reader=$!
readers+=("$reader")
is "it has logged in with the account" connections 1 1
timed -m account -o delete -u user
is "the account can be deleted" done_silently
sleep 0.3
is "the session goes on" connections 1 1
timed -m account -o delete -u user
is "a second time it is not there" refused "can't find the account"

# ---- an access rule in use: as with tgt it is asked at login; sessions stay
adm -m target -o unbind -t 1 -I ALL
is "the rule that let it in can be deleted" done_silently
sleep 0.3
is "its session goes on" connections 1 1
is "but nobody comes in any more" not iscsi-inq "iscsi://127.0.0.1:$port/${iqn}1/1"
end_reader "$reader"
connections 1 0
adm -m target -o bind -t 1 -I ALL

# ---- a portal in use
second=$(pick_port)
adm -m portal -o new -P "portal=127.0.0.1:$second"
is "a second portal" done_silently
iscsi-perf -m 1 "iscsi://127.0.0.1:$second/${iqn}1/1" >/dev/null 2>&1 &
reader=$!
readers+=("$reader")
is "a session by way of it" connections 1 1
timed -m portal -o delete -P "portal=127.0.0.1:$second"
is "a portal in use can be deleted" done_silently
sleep 0.3
is "sessions that came by it go on" connections 1 1
is "nobody comes by it any more" not iscsi-inq "iscsi://127.0.0.1:$second/${iqn}1/1"
end_reader "$reader"
connections 1 0

# ---- stores that are gone
disk 1 2 "$dir/b"
reader 1 2
connections 1 1
end_reader "$reader"
connections 1 0
rm "$dir/b"
timed -m lu -o delete -t 1 -l 2
is "an LU whose file was deleted" done_silently
truncate -s 64M "$dir/b"
disk 1 2 "$dir/b"
truncate -s 0 "$dir/b"
timed -m lu -o delete -t 1 -l 2
is "an LU whose file has shrunk" done_silently
truncate -s 64M "$dir/b"
disk 1 2 "$dir/b"
mkdir "$dir/away"
mv "$dir/b" "$dir/away/"
timed -m target -o delete -t 1 --force
is "a target with an LU whose file was moved" done_silently
is "at once" within 5
timed -m target -o delete -t 1
is "a target that is not there" refused "can't find the target"

# ---- the daemon's end with readers that do not read
target 3
disk 3 1 "$dir/a"
for _ in 1 2 3; do stuck_reader 3; done
connections 3 3
from=$EPOCHREALTIME
is "SIGTERM ends the daemon with 0" daemon_stop
took=$(awk "BEGIN { print $EPOCHREALTIME - $from }")
is "within 8 seconds" within 8
exit $((failures > 0))
