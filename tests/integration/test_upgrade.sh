#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Another program takes over that does not know the cache's memory (issue 17, show 5): the one before writes all back while it
# serves, sessions go on, and nothing is lost. Where that cannot be done, or the worker dies meanwhile, the program stays.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
. tests/integration/worker_lib.sh
iqn=iqn.2026-11.org.tgtd:upgrade
ulimit -c 0
export TGT_TEST_CACHE=size=64m
other=$(dirname "$bin")/tests/other/tgtd
[ -e "$other" ] || { echo "not ok there is no $other: make ${other#"$PWD/"}"; exit 1; }
real=$bin
mkdir "$dir/bin"
ln -s "$real/tgtadm" "$dir/bin/tgtadm"
install_program() {
	cp "$1" "$dir/bin/tgtd.new"
	mv "$dir/bin/tgtd.new" "$dir/bin/tgtd"
}
runs() { cmp -s "/proc/$worker/exe" "$1"; }
configure() { # with the store $1
	rm -f "$dir/$1"
	truncate -s 128m "$dir/$1"
	adm --mode target --op new --tid 1 --targetname $iqn
	adm --mode target --op bind --tid 1 -I ALL
	adm --mode logicalunit --op new --tid 1 --lun 1 -b "$dir/$1"
}

# ---- there and back, under load
install_program "$real/tgtd"
bin=$dir/bin daemon_start ours
configure store
loads=
for lba in 1000 2000 3000 4000; do
	python3 -B tests/integration/keeper.py load "$port" $iqn $lba "$dir/over" >"$dir/load-$lba" 2>&1 &
	loads="$loads $!"
done
n=64
for program in "$other" "$real/tgtd" "$other" "$real/tgtd"; do
	n=$((n + 1))
	install_program "$program"
	peer write "$port" $iqn $n $n
	is "a write is acknowledged" test "$?" = 0
	: >"$dir/log"
	adm --mode system --op update --name restart
	is "a program of another version: restart" test "$rc" = 0
	is "... another worker" another
	is "... of that program" runs "$program"
	is "... after all was written back" logged 'cache: all is in the stores: the next program begins with an empty one'
	took=$(sed -n 's/.*keeper: planned restart: //p' "$dir/log")
	is "... which is said ($took)" test -z "${took##*written back in *}"
	is "... and sessions have gone on" logged '[1-9] sessions with [1-9] connections go on, 0 have ended'
	is "... what was written is in the store" test "$(stored store $n)" = $n
	peer read "$port" $iqn $n
	is "... and is read" test "$out" = $n
	peer sync "$port" $iqn
	is "SYNCHRONIZE CACHE succeeds" test "$?" = 0
done
adm --mode target --op show
is "nothing is in doubt" not has "In doubt"
touch "$dir/over"
for load in $loads; do
	wait "$load"
	is "a session has noticed nothing" test $? = 0
done
printf '# %s\n' "$(cat "$dir"/load-*)"
is "it ends with 0" daemon_stop

# ---- the worker dies, or is to end, while it writes back
case $real in *san/bin) echo "ok slow stores # SKIP sanitizers want to be the first library" && finish ;; esac
export SLOW_MS=$dir/slow_ms
begin_slow() { # something is dirty, and takes a while
	echo 0 >"$SLOW_MS"
	install_program "$real/tgtd"
	bin=$dir/bin LD_PRELOAD=$real/../tests/preload/slow_store.so daemon_start ours --seccomp off
	configure slow-store
	echo 3000 >"$SLOW_MS"
	peer write "$port" $iqn 64 "$1"
	is "a write is acknowledged" test "$?" = 0
	install_program "$other"
	adm --mode system --op update --name restart &
	asks=$!
	is "a program of another version: what is dirty is written back" log_says 'does not know it: all is written back first'
}
begin_slow 91
kill -9 "$worker"
is "the worker dies meanwhile: another one" another
is "... of the program that knows the cache" runs "$real/tgtd"
is "... which the other one had refused" logged 'what was left is of another version of tgtd, which alone can write it back'
echo 0 >"$SLOW_MS"
peer read "$port" $iqn 64
is "... and nothing is lost" test "$out" = 91
is "it ends with 0" daemon_stop
is "... and has written back" test "$(stored slow-store 64)" = 91
wait $asks
begin_slow 92
kill -TERM "$pid"
sleep 0.5
echo 0 >"$SLOW_MS"
is "somebody wants the end meanwhile: the end, with 0" ends_with 0
is "... after all was written back" test "$(stored slow-store 64)" = 92
is "... and nothing is lost" not logged LOST
wait $asks
is "no report" no_report
finish 60
