#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# tgt-admin: what a targets.conf makes is what Debian's tgt-admin makes of it with Debian's tgt, as
# `show` tells; reloading changes what differs and nothing else; faults change nothing.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
conf=$dir/targets.conf
for i in 1 2 3 4 5 6; do truncate -s $((16 * i))M "$dir/disk$i"; done

admin() {
	if [ "$kind" = ours ]; then
		out=$("$bin/tgt-admin" -c "$conf" "$@" 2>&1)
	else
		out=$(PATH=/usr/sbin:$PATH /usr/sbin/tgt-admin -c "$conf" "$@" 2>&1)
	fi
	rc=$?
}
succeeds() { [ "$rc" = 0 ]; }
fails() { [ "$rc" != 0 ]; }

cat >"$conf" <<END
default-driver iscsi
include $dir/conf.d/*.conf

<target iqn.2026-11.org.example:plain>
	backing-store $dir/disk1
</target>

<target iqn.2026-11.org.example:all>
	controller_tid 10
	<backing-store $dir/disk3>
		lun 7
		vendor_id VENDOR1
		scsi_sn SERIAL
		write-cache on
	</backing-store>
	<backing-store $dir/disk2>
		product_id DISK2
		readonly 1
		block-size 4096
	</backing-store>
	write-cache off
	initiator-address 192.168.100.1
	initiator-address 10.0.0.0/8
	incominguser user1 secretpass12
	incominguser user2 secretpass23
	outgoinguser userA secretpassAA
	MaxBurstLength 131072
</target>
END
mkdir "$dir/conf.d"
cat >"$dir/conf.d/more.conf" <<END
<target iqn.2026-11.org.example:included>
	backing-store $dir/disk5
	backing-store $dir/disk4
	bs-type aio
	scsi_id ID-%
</target>
END
cp "$conf" "$dir/first.conf"

daemon_start ours
admin -e
is "-e succeeds" succeeds
is "-e says nothing" test -z "$out"
adm -m target -o show
shown=$out
is "numbers by name, controller_tid kept" has "Target 10: iqn.2026-11.org.example:all"

admin --update ALL -v
is "nothing differs, nothing is done" said 0 ""
admin -e
is "-e again succeeds" succeeds
adm -m target -o show
is "-e again changes nothing" test "$out" = "$shown"

# ---- a reload changes only what differs
sed -i -e "s/MaxBurstLength 131072/MaxBurstLength 65536/" -e "s/VENDOR1/VENDOR2/" "$conf"
admin --update ALL -v
is "two differences, two requests" test "$(printf '%s\n' "$out" | grep -c '^tgtadm ')" = 2
adm -m target -o show -t 10
is "a session key has changed" has_line "MaxBurstLength=65536"
sed -i "/MaxBurstLength/d" "$conf"
admin --update iqn.2026-11.org.example:all
adm -m target -o show -t 10
is "a key that is no longer said has its default again" not has_line "MaxBurstLength=65536"

sed -i "s#backing-store $dir/disk1\$#backing-store $dir/disk1\n\tbacking-store $dir/disk6#" "$conf"
admin --update ALL -v
is "a new disk is one request" test "$(printf '%s\n' "$out" | grep -c '^tgtadm ')" = 1
adm -m target -o show
is "a new disk is there" has "Backing store path: $dir/disk6"

sed -i "s/user1 secretpass12/user1 secretpass99/" "$conf"
admin --update ALL -v
is "a new password is one request" test "$(printf '%s\n' "$out" | grep '^tgtadm ')" = \
	"tgtadm -C 0 --lld iscsi --mode account --op update --user=user1 --password=PLEASE_CORRECT_THE_PASSWORD"
admin --update ALL -v
is "which is made once" said 0 ""
sed -i "s/\twrite-cache off/\twrite-cache off\n\tnop_interval 17/" "$conf"
admin --update ALL
adm -m target -o show -t 10
is "nop_interval is set" has_line "nop_interval=17"
sed -i "/nop_interval/d" "$conf"
admin --update ALL
adm -m target -o show -t 10
is "and goes back" has_line "nop_interval=0"

# ---- with an initiator logged in
python3 -B tests/integration/reader.py "$port" iqn.2026-11.org.example:plain \
	iqn.2026-11.org.example:init 2>/dev/null &
reader=$!
plain=$(printf '%s\n' "$shown" | sed -n 's/^Target \([0-9]*\): .*:plain$/\1/p')
for _ in $(seq 100); do
	adm -m conn -o show -t "$plain"
	[ -n "$out" ] && break
	sleep 0.05
done
is "an initiator is logged in" has "Initiator: iqn.2026-11.org.example:init"
session=$(printf '%s\n' "$out" | sed -n 's/^Session: //p')
cp "$conf" "$dir/second.conf"
sed -i "s#backing-store $dir/disk6\$#backing-store $dir/disk6\n\tincominguser user3 secretpass34\n\tproduct_id RENAMED#" "$conf"
admin --update ALL -v
is "a target in use is updated" succeeds
adm -m conn -o show -t "$plain"
is "its session goes on" has_line "Session: $session"
adm -m target -o show
is "and it has the new name" has "user3"
sed -i "s#\tproduct_id RENAMED#\tbs-type aio#" "$conf"
admin --update ALL
is "another kind of store is refused while in use" has "is in use, LUN 1 won't be changed without --force"
adm -m target -o show
is "it keeps its store" test "$(printf '%s\n' "$out" | grep -A14 'LUN: 1$' | grep -c 'type: rdwr')" -ge 1
echo >"$dir/empty.conf"
conf=$dir/empty.conf admin --delete iqn.2026-11.org.example:plain
is "a target in use is not deleted" has "is in use, it won't be deleted."
admin --force --delete iqn.2026-11.org.example:plain
is "--force deletes it" succeeds
adm -m target -o show
is "it is gone" not has ":plain"
kill -9 $reader 2>/dev/null
wait $reader 2>/dev/null

# ---- faults: nothing is changed
cp "$dir/first.conf" "$conf"
admin -e
adm -m target -o show
before=$out
cat >>"$conf" <<END
<target iqn.2026-11.org.example:bad>
	backing-store $dir/disk1
	readonly maybe
</target>
END
admin --update ALL
is "a bad value is refused" fails
is "with file and line" has "targets.conf:$(grep -n maybe "$conf" | cut -d: -f1): readonly is 0 or 1, not 'maybe'"
echo "<target iqn.x>" >>"$conf"
admin -e
is "an open block is refused" has "the file ends inside of <target iqn.x> of line"
adm -m target -o show
is "and nothing was changed" test "$out" = "$before"
admin -c /nonexistent -e
is "a missing file is told" said 2 "Config file /nonexistent not found. Exiting..."

# ---- what only the daemon knows: asked before anything is changed
adm -m target -o show
before=$out
mkfifo "$dir/fifo"
printf 'too small' >"$dir/tiny"
while IFS='|' read -r line says; do
	cp "$dir/first.conf" "$conf"
	cat >>"$conf" <<END
<target iqn.2026-11.org.example:aaa>
	backing-store $dir/disk6
</target>
<target iqn.2026-11.org.example:zzz>
	<backing-store ${line#*@}>
		${line%@*}
	</backing-store>
	$(case $line in *Length*|nop*) echo "${line%@*}" ;; esac)
</target>
END
	case $line in *Length*|nop*) sed -i "/^\t\t${line%@*}$/d" "$conf" ;; esac
	[ "${line#*@}" = "$dir/disk6" ] && sed -i "/:aaa>/,/target>/d" "$conf"
	admin --update ALL
	is "refused: $says" test "$rc" = 22
	is "and says why: $says" has "$says"
	is "and that nothing was changed: $says" has_line "tgt-admin: nothing was changed"
	adm -m target -o show
	is "and nothing was: $says" test "$out" = "$before"
done <<END
params readonly=maybe@$dir/disk6|readonly cannot be 'maybe'
mode_page 8:0:what@$dir/disk6|mode_page cannot be '8:0:what'
bsopts cache=maybe@$dir/disk6|not 'cache=maybe'
lun 3@$dir/fifo|neither a file nor a block device
lun 3@$dir/tiny|smaller than one block of 512 bytes
MaxBurstLength 12@$dir/disk6|MaxBurstLength cannot be '12'
nop_interval never@$dir/disk6|nop_interval cannot be 'never'
END
rm "$dir/fifo" "$dir/tiny"

# ---- refused in the middle: half of it is taken away again, the others, before and after it, are made
cp "$dir/first.conf" "$conf"
admin --update ALL
cat >>"$conf" <<END
<target iqn.2026-11.org.example:zzzz>
	backing-store $dir/disk6
	incominguser user7 secretpass77
</target>
<target iqn.2026-11.org.example:zzz>
	backing-store $dir/disk1m
</target>
END
truncate -s 1M "$dir/disk1m"
exec 9<>"$dir/disk1m"
python3 - <<'END'
import fcntl, struct
fcntl.fcntl(9, 37, struct.pack('hhqqi4x', 1, 0, 0, 0, 0))  # F_OFD_SETLK, F_WRLCK: as another daemon
END
admin --update ALL
is "refused in the middle" test "$rc" = 22
is "it says what" has "in use: another daemon or program has it open for writing"
is "and what is not made" has_line "tgt-admin: not made: iqn.2026-11.org.example:zzz: refused"
is "without passwords" not has "secretpass77"
adm -m target -o show
is "the others are" has "Backing store path: $dir/disk6"
is "and no half of this one" not grep -q ':zzz$' <<<"$out"
exec 9>&-
admin --update ALL -v
is "the next time it is made" succeeds
is "and no more" test "$(printf '%s\n' "$out" | grep -c '^tgtadm ')" = 3
cp "$dir/first.conf" "$conf"
admin --update ALL
adm -m target -o show
is "and all of it goes again" test "$out" = "$before"

# ---- one disk twice in a file: the first has it
cat >>"$conf" <<END
<target iqn.2026-11.org.example:twin1>
	backing-store $dir/disk6
</target>
<target iqn.2026-11.org.example:twin2>
	backing-store $dir/disk6
</target>
END
admin --update ALL -v
is "a disk that another LUN of the file takes is skipped" has "Device $dir/disk6 is used (already tgtd target?)."
adm -m target -o show
is "one LUN has it" test "$(printf '%s\n' "$out" | grep -c "path: $dir/disk6$")" = 1
cp "$dir/first.conf" "$conf"
admin --update ALL

# ---- selections and states
cp "$dir/first.conf" "$conf"
admin --offline tid=10
adm -m target -o show
is "--offline tid=10" test "$(printf '%s\n' "$out" | grep -c 'State: offline')" = 1
admin --ready ALL
adm -m target -o show
is "--ready ALL" not has "State: offline"
admin --ready iqn.nobody
is "--ready of nothing" said 1 'There is no target with name "iqn.nobody", can'\''t ready it!'
admin --update tid=99
is "--update of an unknown tid" said 1 "There is no target with tid 99, can't continue!"
admin --update iqn.nobody
is "--update of an unknown name" test "$rc" = 1
admin -s
shown=$out
adm --op show --mode target
is "-s is tgtadm's show" test "$out" = "$shown"
admin -p --delete ALL
is "-p only prints" test "$(printf '%s\n' "$out" | grep -c -- '--mode target --op delete')" = 3
adm --op show --mode target
is "and does nothing" test "$out" = "$shown"
admin --delete iqn.nobody
is "deleting what is not there succeeds" said 0 ""

# ---- dump and back
tid=$(printf '%s\n' "$shown" | sed -n 's/^Target \([0-9]*\): .*:plain$/\1/p')
adm --op update --mode logicalunit --tid "$tid" --lun 1 --params write_cache=off
is "the write cache is off by its own name" said 0 ""
admin --dump
is "and the dump says so as the file does" not has write_cache
printf '%s\n' "$out" | sed 's/PLEASE_CORRECT_THE_PASSWORD/secretpass/' >"$dir/dump.conf"
admin --delete ALL
adm --op show --mode target
is "--delete ALL" said 0 ""
adm --mode account --op show
while read -r user; do adm --mode account --op delete --user "$user"; done < <(printf '%s\n' "$out" | sed -n 's/^    //p')
conf=$dir/dump.conf
admin -e
is "a dump is a configuration" succeeds
adm --op show --mode target
is "which makes the same" test "$out" = "$shown"
admin --delete ALL

# ---- skipped devices
cat >"$dir/skip.conf" <<END
<target iqn.2026-11.org.example:skip>
	backing-store $dir/missing
	backing-store $dir/disk1
</target>
<target iqn.2026-11.org.example:twice>
	backing-store $dir/disk2
</target>
<target iqn.2026-11.org.example:wrong>
	backing-store $dir/disk3
	block-size 4096
	lbppbe 3
</target>
END
conf=$dir/skip.conf
admin -e -v
is "a missing device is skipped" has "$dir/missing does not exist - please check the configuration file"
admin --update ALL -v
is "what was skipped is skipped again" has "Skipping device"
cat >>"$dir/skip.conf" <<END
<target iqn.2026-11.org.example:zz>
	backing-store $dir/disk2
</target>
END
admin --update ALL -v
is "a device of another LU is skipped" has "Device $dir/disk2 is used (already tgtd target?)."
sed -i '$d' "$dir/skip.conf"
printf '\tallow-in-use yes\n</target>\n' >>"$dir/skip.conf"
admin --update ALL
is "unless it is allowed; the missing one is still missing" test "$rc" = 3
adm --op show --mode target
is "then two have it" test "$(printf '%s\n' "$out" | grep -c "path: $dir/disk2$")" = 2
admin --delete iqn.2026-11.org.example:zz
adm --op show --mode target
is "the others are there" test "$(printf '%s\n' "$out" | grep -c 'Type: disk')" = 3
admin --delete ALL
is "daemon ends cleanly" daemon_stop

# ---- without a daemon
admin -s
is "no daemon" said 107 "tgt-admin: no tgtd answers on control port 0"

# ---- what Debian's tools make of the same file
if [ ! -x /usr/sbin/tgtd ] || ! perl -MConfig::General -e 1 2>/dev/null; then
	echo "ok the same as Debian's tgt-admin # SKIP packages tgt and libconfig-general-perl are not installed"
	exit $((failures > 0))
fi
conf=$dir/first.conf
daemon_start ours
admin -p -e
ours_commands=$(printf '%s\n' "$out" | grep -v '^#' | sed -e 's/  */ /g' -e 's/ $//' | sort)
is "W14: none of them has a secret" not has secretpass
admin -e
adm -m target -o show
ours=$out
admin --delete ALL
daemon_stop
daemon_start debian
admin -p -e
theirs_commands=$(printf '%s\n' "$out" | grep -v '^#' | sed -e 's/  */ /g' -e 's/ $//' \
	-e 's/ --password=.*/ --password=PLEASE_CORRECT_THE_PASSWORD/' | grep . | sort)
admin -e
adm -m target -o show
theirs=$out
daemon_kill
out=$(diff <(echo "$theirs") <(echo "$ours"))
is "a file makes what it makes with Debian's tgt" test -z "$out"
out=$(diff <(echo "$theirs_commands") <(echo "$ours_commands"))
is "by the same command lines, but for the secrets that tgt-admin does not print" test -z "$out"
exit $((failures > 0))
