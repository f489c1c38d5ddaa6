#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# U10: completion for every program and word. A bash in a terminal gets lines and the Tab key
# (bash_line.py): options, modes, names of what the daemon has (the one that -C names), parameters and
# their values. And no word of the tools, of conf/words.c and of the options is forgotten.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
root=$(pwd)
export TMPDIR_LINE=$dir
export PATH=$bin:$PATH

# Lines on standard input, two for each case: what is typed; what it becomes, or what is listed.
cases() {
	local typed wanted got i=0
	local -a lines
	mapfile -t lines
	for ((i = 0; i < ${#lines[@]}; i += 2)); do printf '%s\n' "${lines[i]}"; done >"$dir/typed"
	(cd "$dir" && python3 -B "$root/tests/integration/bash_line.py" "$root/tools/completion.bash") \
		<"$dir/typed" >"$dir/got" 2>"$dir/err"
	out=$(cat "$dir/err")
	is "bash answers" test -z "$out"
	for ((i = 0; i < ${#lines[@]}; i += 2)); do
		typed=${lines[i]} wanted=${lines[i + 1]}
		got=$(sed -n "$((i / 2 + 1))p" "$dir/got")
		out="wanted $wanted"$'\n'"got    $got"
		is "$typed" test "${got% }" = "${wanted% }"
	done
}

daemon_start ours
truncate -s 16M "$dir"/disk-{one,two}
for user in alice albert bob; do adm -m account -o new -u $user -p secret-$user-12; done
# shellcheck disable=SC2016 # not here
adm -m account -o new -u 'al$(touch${IFS}owned)`touch${IFS}owned`' -p secret-of-nobody
adm -m target -o new -t 1 -T iqn.2026-11.org.example:first
adm -m target -o new -t 12 -T iqn.2026-11.org.example:second
adm -m lu -o new -t 12 -l 3 -b "$dir/disk-one"
adm -m lu -o new -t 12 -l 25 -b "$dir/disk-two"
adm -m target -o bind -t 12 -Q iqn.2026-11.org.example:host-a
adm -m target -o bind -t 12 -I 10.0.0.0/8
adm -m target -o bind -t 1 -I ALL
cases <<END_OF_CASES
tgtadm --mode acc
line: tgtadm --mode account
tgtadm -m tgt -o u
list: unbind update
tgtadm --mode=ca
line: tgtadm --mode=cache
tgtadm --mode target --op up
line: tgtadm --mode target --op update
tgtadm --init
list: --initiator-address --initiator-name
tgtadm -m lu -o delete -t 
list: 1 12
tgtadm -m lu -o delete -t 12 -l 
list: 25 3
tgtadm -m lu -o delete --tid=12 --lun=2
line: tgtadm -m lu -o delete --tid=12 --lun=25
tgtadm -m lu -o update -t 12 -l 3 -P vend
line: tgtadm -m lu -o update -t 12 -l 3 -P vendor_id=
tgtadm -m lu -o update -t 12 -l 3 --params readonly=1,write_cache=of
line: tgtadm -m lu -o update -t 12 -l 3 --params readonly=1,write_cache=off
tgtadm -m lu -o update -t 12 -l 3 -P vendor_id=X,product_
list: X,product_id= X,product_rev=
tgtadm -m lu -o new -t 12 -l 4 -b $dir/disk-o
line: tgtadm -m lu -o new -t 12 -l 4 -b $dir/disk-one
tgtadm -m lu -o new -t 12 -l 4 -E 
list: aio nbd null ram rbd rdwr
tgtadm -m target -o update -t 1 -n Header
line: tgtadm -m target -o update -t 1 -n HeaderDigest
tgtadm -m target -o update -t 1 -n state -v off
line: tgtadm -m target -o update -t 1 -n state -v offline
tgtadm -m target -o unbind -t 12 -Q iqn.2026-11.org.exa
line: tgtadm -m target -o unbind -t 12 -Q iqn.2026-11.org.example:host-a
tgtadm -m target -o unbind -t 12 -Q iqn.2026-11.org.example:ho
line: tgtadm -m target -o unbind -t 12 -Q iqn.2026-11.org.example:host-a
tgtadm -m target -o unbind -t 12 -I 10
line: tgtadm -m target -o unbind -t 12 -I 10.0.0.0/8
tgtadm -m account -o delete -u al
list: albert alice
tgtadm -m sys -o update -n iSNSS
list: iSNSServerIP iSNSServerPort
tgtadm -m sys -o update -n State -v r
line: tgtadm -m sys -o update -n State -v ready
tgtadm -m cache -o update -n affinity -v in
line: tgtadm -m cache -o update -n affinity -v inline
tgtadm -m portal -o delete -P por
line: tgtadm -m portal -o delete -P portal=
tgtadm -m portal -o delete -P portal=127
line: tgtadm -m portal -o delete -P portal=127.0.0.1:$port,1
tgt-admin --update iqn.2026-11.org.example:s
line: tgt-admin --update iqn.2026-11.org.example:second
tgt-admin --update tid=
list: 1 12
tgt-admin --pre
line: tgt-admin --pretend
tgt-admin -c $dir/disk-t
line: tgt-admin -c $dir/disk-two
tgt-admin -C 
line: tgt-admin -C 0
tgtd --cache aff
line: tgtd --cache affinity=
tgtd --cache size=1g,affinity=for
line: tgtd --cache size=1g,affinity=forward
tgtd --after-loss d
line: tgtd --after-loss doubt
tgtd --numa
line: tgtd --numa-nodes
tgtimg --device-type d
line: tgtimg --device-type disk
tgt-setup-lun -b nul
line: tgt-setup-lun -b null
tgt-probe --wr
line: tgt-probe --write
tgt-load --max-rec
line: tgt-load --max-recv-segment
tgtadm -m cache -o update -P si
line: tgtadm -m cache -o update -P size=
tgt-exporter --listen 127.0.0.1:
line: tgt-exporter --listen 127.0.0.1:9260
tgt-exporter --listen=[
line: tgt-exporter --listen=[::1]:9260
tgt-top --view=nodes --sort hit
line: tgt-top --view=nodes --sort hit_ratio
tgt-top -C 
line: tgt-top -C 0
END_OF_CASES

is "nothing runs that stands in a name" not test -e "$dir/owned"

# ---- another daemon
# (at an address of its own, where nobody has the port)
"$bin/tgtd" -f -C 7 --state-dir "$dir/state7" --cache size=16m \
	--iscsi "portal=127.77.$((RANDOM % 250)).$((RANDOM % 250 + 1))" >"$dir/log7" 2>&1 &
other=$!
trap 'kill -9 $other 2>/dev/null; daemon_kill; rm -rf "$dir"' EXIT
for _ in $(seq 300); do
	"$bin/tgtadm" -C 7 -m sys -o show >/dev/null 2>&1 && break
	sleep 0.1
done
adm -C 7 -m target -o new -t 77 -T iqn.2026-11.org.example:seventh
cases <<'END_OF_CASES'
tgtadm -C 7 -m target -o delete -t 
line: tgtadm -C 7 -m target -o delete -t 77
tgtadm -C7 -m target -o delete -t 
line: tgtadm -C7 -m target -o delete -t 77
tgtadm --control-port=7 -m target -o delete -t 
line: tgtadm --control-port=7 -m target -o delete -t 77
tgt-admin -C 7 --delete iqn
line: tgt-admin -C 7 --delete iqn.2026-11.org.example:seventh
tgtadm -m target -o delete -t 
list: 1 12
tgtadm -C 9 -m target -o delete -t 7
line: tgtadm -C 9 -m target -o delete -t 7
END_OF_CASES
kill "$other"
wait "$other"

# ---- no word is forgotten
words() { bash -c '. tools/completion.bash; printf "%s\n" '"$1"; }
known() { # NAME LIST WORDS...
	local name=$1 list=$2 word missing=
	shift 2
	for word; do printf '%s\n' "$list" | grep -qx -- "$word" || missing="$missing $word"; done
	out="missing:$missing"
	is "$name" test -z "$missing" -a $# -gt 0
}
# What is offered behind a line, a word a line
offered() {
	printf '%s\n' "$1" | (cd "$dir" && python3 -B "$root/tests/integration/bash_line.py" \
		"$root/tools/completion.bash" 2>&1) | sed -e 's/^list: //' -e "s/^line: ${2-$1}//" | tr ' ' '\n' |
		grep . | sort
}
# shellcheck disable=SC2046 # words
both() { # NAME LINE WORDS...: what is offered behind the line are these words, and no others
	local name=$1 line=$2
	shift 2
	out=$(diff <(offered "$line") <(printf '%s\n' "$@" | sort -u))
	is "$name" test -z "$out" -a $# -gt 0
}
helped() { "$bin/$1" --help; }
# shellcheck disable=SC2016,SC2046 # bash -c's; words
{
	of() { sed -n "s/^	{ \"\([^\"]*\)\", .*$1.*/\1/p" conf/words.c; }
	known "the parameters of LUNs in conf/words.c" "$(words '$_tgtd_lu_params')" $(of CONF_PARAM)
	known "the keys of targets" "$(words '$_tgtd_target_keys')" \
		$(sed -n 's/^	{ "\([^"]*\)", \(CONF_IN_FILE | \)*CONF_IN_TARGET, CONF_KEY.*/\1/p' conf/words.c)
	known "the settings of the daemon" "$(words '$_tgtd_settings')" \
		$(sed -n '/^static enum adm_status system_update/,/^}/s/.*strcmp(name, "\([^"]*\)").*/\1/p' \
			tgtd/admin/verbs.c)
	known "the keys of tgtd --cache" "$(grep -A5 '_tgtd_pairs .size block' tools/completion.bash |
		tr -cs 'a-z_' '\n')" $("$bin/tgtd" --help | sed -n '/--cache KEY/,/; off/p' |
		grep -oE '[a-z]+=' | tr -d =)
	for program in tgtadm tgt-admin tgt-exporter tgt-top; do
		[ -e "$bin/$program" ] || { echo "ok $program # SKIP its library is missing"; continue; }
		# (what is refused in any case is not offered)
		both "the options of $program are those of its help" "$program --" \
			$(helped $program | grep -oE -- '--[a-z][a-z-]*[a-z]' | grep -vxE -- '--(host|bus)')
	done
	both "the modes of tgtadm are those of its help" "tgtadm --mode " \
		$(helped tgtadm | sed -n 's/^  --mode \([a-z]*\) .*/\1/p')
	for mode in $(helped tgtadm | sed -n 's/^  --mode \([a-z]*\) .*/\1/p' | sort -u); do
		both "the operations of $mode are those of the help" "tgtadm --mode $mode --op " \
			$(helped tgtadm | sed -n "s/^  --mode $mode --op \([a-z|]*\).*/\1/p" | tr '|' '\n')
	done
	both "what system shows by name" "tgtadm --mode system --op show --name " \
		$(sed -n '/^} shown/,/^}/s/^	{ "\([^"]*\)".*/\1/p' tgtd/admin/verbs.c)
	both "... its help has, too" "tgtadm --mode system --op show --name " \
		$(helped tgtadm | sed -n 's/.*--op show \[--name \([a-z|-]*\)\].*/\1/p' | tr '|' '\n')
	both "kinds of events" "tgtadm --mode system --op watch --name " \
		$(helped tgtadm | sed -n 's/.*--op watch \[--name \([a-z,_]*\)\].*/\1/p' | tr ',' '\n')
}
for view in lus initiators threads nodes; do
	# shellcheck disable=SC2046 # words
	both "the columns of tgt-top's $view" "tgt-top -v $view -s " $(sed -n "/ ${view%s}_columns\[\]/,/^};/p" \
		tools/tgt-top/rates.c | sed -n 's/^	\(T(\|{ \)"\([a-z0-9_]*\)".*/\2/p')
done
for program in $(cd "$bin" && echo tgt*); do
	out=$(bash -c '. tools/completion.bash; complete -p '"$program" 2>&1)
	is "$program is completed" test $? = 0
done
is "daemon ends cleanly" daemon_stop
finish
