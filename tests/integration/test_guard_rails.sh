#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# U11: what is likely a mistake is said: one naa on two stores, a store that shrank, an include that
# matches nothing, a short secret, an initiator's name that is none, a portal that is none, a parameter
# that there is not. U10: how much memory the cache takes of itself is modest, and said at the start.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
conf=$dir/t.conf
admin() {
	out=$("$bin/tgt-admin" -c "$conf" "$@" 2>&1)
	rc=$?
}
code() { [ "$rc" = "$1" ]; }
warned() { [ "$rc" = 0 ] && has "tgtadm: warning: $1"; }
# Why a request is refused is told with --debug.
refused_for() { [ "$rc" = 22 ] && has "tgtadm: $1"; }
lu() { adm --mode logicalunit --op update --tid 1 --lun "$1" --params "$2"; }
for i in 1 2; do truncate -s 64M "$dir/disk$i"; done
ln -s disk1 "$dir/link1"
daemon_start ours
adm --mode target --op new --tid 1 -T iqn.2026-11.org.example:a
adm --mode logicalunit --op new --tid 1 --lun 1 -b "$dir/disk1" --bsopts share=yes
adm --mode logicalunit --op new --tid 1 --lun 2 -b "$dir/disk2"
adm --mode logicalunit --op new --tid 1 --lun 3 -b "$dir/link1" --bsopts share=yes

# ---- one naa on two stores
naa=6000000000000000000000000000abcd
lu 1 naa=$naa
is "a naa" done_silently
lu 3 naa=${naa^^}
is "... is the same disk's by another name, too" done_silently
lu 2 naa=$naa
is "U11: one naa on two stores" warned "target 1 LUN 2 has the naa of target 1 LUN 1, and another store"
lu 2 naa=
is "... it is taken back" test "$rc" = 0
adm --mode target --op delete --tid 1 --force
printf '<target iqn.2026-11.org.example:%d>\n<backing-store %s>\nnaa %s\nallow-in-use yes\n</backing-store>\n</target>\n' \
	1 "$dir/disk1" $naa 2 "$dir/disk2" $naa >"$conf"
for how in "-e -p" -e "--update ALL"; do
	# shellcheck disable=SC2086
	admin $how
	is "U11: tgt-admin $how says so" has "$conf:8: warning: naa $naa is that of LUN 1 of iqn.2026-11.org.example:1, too"
	is "... and goes on" code 0
done
sed -i "s#$dir/disk2#$dir/link1#" "$conf"
admin --update ALL --force
is "two paths of one disk have one naa" not has naa
admin --delete ALL --force

# ---- a store that shrank
adm --mode target --op new --tid 1 -T iqn.2026-11.org.example:a
adm --mode logicalunit --op new --tid 1 --lun 1 -b "$dir/disk1"
truncate -s 96M "$dir/disk1"
lu 1 refresh=1
is "a store that grew is nothing to warn of" done_silently
for what in refresh resize; do
	truncate -s 64M "$dir/disk1"
	lu 1 $what=1
	is "U11: one that shrank is: $what" warned \
		"target 1 LUN 1: the store has shrunk from 100663296 to 67108864 bytes"
	truncate -s 96M "$dir/disk1"
	lu 1 $what=1
done
lu 1 "path=$dir/disk2"
is "U11: and a path to a smaller store" warned \
	"target 1 LUN 1: the store has shrunk from 100663296 to 67108864 bytes"
printf '<target iqn.2026-11.org.example:a>\n\tbacking-store %s\n</target>\n' "$dir/disk2" >"$conf"
truncate -s 32M "$dir/disk2"
admin --update ALL
is "U11: tgt-admin says it, with the line" has "$conf:2: warning: target 1 LUN 1: the store has shrunk"
is "... and did it, since nobody is logged in" code 0

# ---- an include that matches nothing
mkdir "$dir/empty" "$dir/full"
echo "# nothing" >"$dir/full/a.conf"
include() {
	echo "include $1" >"$conf"
	admin -e
}
include "$dir/empty/*.conf"
is "an empty folder of snippets is as it comes" said 0 ""
include "$dir/full/*.conf"
is "... and one that has some" said 0 ""
include "$dir/full/*.cnf"
is "U11: files of other names are said" said 0 \
	"tgt-admin: $conf:1: warning: include $dir/full/*.cnf: no file in that folder matches"
include "$dir/no-such/*.conf"
is "U11: no folder, too" said 0 \
	"tgt-admin: $conf:1: warning: include $dir/no-such/*.conf: there is no folder $dir/no-such/"

# ---- secrets, names, portals, parameters
adm --mode account --op new --user short --password 12345
is "U11: a secret of five characters" warned "the password of short has fewer than 12 characters"
adm --mode target --op bind --tid 1 -Q notaniqn
is "U11: an initiator's name that is none" warned \
	"'notaniqn' is no name of an initiator: those begin with iqn., eui. or naa."
for name in iqn.2026-11.org.example:host eui.0123456789abcdef naa.6000000000000000000000000000abcd \
	IQN.2026-11.org.example:capitals; do
	adm --mode target --op bind --tid 1 -Q "$name"
	is "... $name is one" done_silently
done
printf '<target iqn.2026-11.org.example:b>\n\tinitiator-name notaniqn\n</target>\n' >"$conf"
admin -e -p
is "U11: -p says it of a file" has "$conf:2: warning: 'notaniqn' is no name of an initiator"
for portal in 127.0.0.1:99999 127.0.0.1:0 localhost 127.0.0.1:80,0 "[::1" 127.0.0.1: 300.1.1.1; do
	adm --debug --mode portal --op new --params "portal=$portal"
	is "U11: portal=$portal" refused_for "'$portal' is no portal: it is an address with or without a port"
done
adm --debug --mode portal --op new --params "portal=127.0.0.1:$port"
is "... one that there is" refused_for "there is a portal at 127.0.0.1:$port"
adm --debug --mode portal --op delete --params portal=127.0.0.1:1
is "... one that there is not" refused_for "there is no portal at 127.0.0.1:1"
out=$("$bin/tgtd" -f -C 99 --state-dir "$dir/x" --cache size=16m --iscsi portal=127.0.0.1:99999 2>&1)
is "U11: tgtd --iscsi portal=127.0.0.1:99999" has "ports are 1 to 65535"
params() { adm --debug --mode logicalunit --op update --tid 1 --lun 1 --params "$1"; }
params color=blue
is "U11: a parameter that there is not" refused_for "no logical unit parameter is called 'color'"
params vendorid=X
is "... with what may be meant" refused_for \
	"no logical unit parameter is called 'vendorid': did you mean 'vendor_id'?"
params readonly=blue
is "... one that there is" refused_for "readonly cannot be 'blue': it is 0 or 1"
adm --debug --mode target --op update --tid 1 --name HeaderDigst --value None
is "... of a target" refused_for \
	"no target parameter is called 'HeaderDigst': did you mean 'HeaderDigest'?"
is "the daemon ends" daemon_stop

# ---- U10: how much of the memory the cache takes
free() { awk '/MemAvailable/ { print int($2 / 1024) }' /proc/meminfo; }
before=$(free)
# (at an address of its own, where nobody has the port)
"$bin/tgtd" -f -C 0 --state-dir "$dir/state" \
	--iscsi "portal=127.78.$((RANDOM % 250)).$((RANDOM % 250 + 1))" >"$dir/log" 2>&1 &
pid=$!
for _ in $(seq 300); do
	"$bin/tgtadm" -m cache -o show >"$dir/cache" 2>/dev/null && break
	sleep 0.1
done
size=$(sed -n 's/^ *Size: \([0-9]*\) MiB/\1/p' "$dir/cache")
after=$(($(free) + size))
most=$((before > after ? before : after))
out="$size MiB of $before MiB, $after MiB"
# others take and give back memory meanwhile
is "U10: a cache of its own size takes an eighth of the free memory at most" \
	test "$size" -ge 15 -a $((size * 8)) -le $((most + most / 4 + 128))
is "U10: and says so" grep -q "cache: $size MiB, an eighth of the memory that is free" "$dir/log"
is "the daemon ends" daemon_stop
finish
