#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Defect W14: CHAP secrets. Their length, their ways into the daemon (file, standard input), where
# they may never stand (ps, a log, a core, memory after they have gone), and those who guess them.
# And default-mask: a unit is invisible until somebody is bound. The peers are secrets.py.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.tgtd.test
conf=$dir/t.conf
peer() { python3 tests/integration/secrets.py "$@"; }
scene() { peer "$port" "$@" || failures=$((failures + 1)); }
admin() {
	out=$("$bin/tgt-admin" -c "$conf" "$@" 2>&1)
	rc=$?
}
account() { adm --op new --mode account --user "$@"; }

# 1. length
daemon_start ours
account short --password secret
is "a short secret is taken" test "$rc" = 0
is "... with a warning" said 0 "tgtadm: warning: the password of short has fewer than 12 characters"
adm --op update --mode system --name weak_secrets --value refuse
is "they can be refused from now on; what is there is told" \
	said 0 "tgtadm: warning: the password of short has fewer than 12 characters"
account shorter --password elevenbytes
is "a short secret is refused" refused "invalid request"
adm --op update --mode account --user short --password elevenbytes
is "... as a change, too" refused "invalid request"
account long --password twelve-bytes
is "12 bytes are enough" done_silently
adm --op show --mode system
is "it is shown" has_line "    weak_secrets=refuse"
adm --op update --mode system --name weak_secrets --value maybe
is "warn or refuse" refused "invalid request"
adm --op show --mode system --name config
is "it is exported" has_line "weak_secrets refuse"
account nobody --password PLEASE_CORRECT_THE_PASSWORD
is "what a dump has in its place is none" refused "invalid request"

# 2. from a file, from standard input
(umask 077 && echo "secret-of-joe-1" >"$dir/joe" && echo "secret-of-ann-1" >"$dir/ann")
account joe --password-file "$dir/joe"
is "a secret from a file" done_silently
out=$(echo secret-of-ann-1 | "$bin/tgtadm" --op new --mode account --user ann --password - 2>&1)
rc=$?
is "... from standard input" done_silently
account x --password-file "$dir/none"
is "no such file" refused "cannot read $dir/none: No such file or directory"
: >"$dir/empty"
account x --password-file "$dir/empty"
is "an empty one" has "there is no password on the first line"
head -c 300 /dev/zero | tr '\0' a >"$dir/large"
account x --password-file "$dir/large"
is "one that is too long" has "longer than 255 bytes"
printf 'secret-\001of-control\n' >"$dir/control"
account x --password-file "$dir/control"
is "control characters" has "control characters"
cp "$dir/joe" "$dir/open" && chmod 644 "$dir/open"
account x --password-file "$dir/open"
is "one that others can read" said 0 "tgtadm: warning: $dir/open can be read by others"
adm --op new --mode account --user y --password-file "$dir/joe" --password z
is "one at a time" has "one password at a time"

# 3. what others see of a tgtadm
peer shown "$bin/tgtadm" "$dir" || failures=$((failures + 1))

# 4. logins with them
adm --op new --mode target --tid 1 -T $iqn:chap
adm --op bind --mode target --tid 1 -I ALL
adm --op bind --mode account --tid 1 --user joe
adm --op bind --mode account --tid 1 --user ann
scene guess
adm --op show --mode system --name failed-logins
is "failed logins are counted by address" has "127.0.0.1 joe: "
adm --op stat --mode system --name iscsi_auth
is "... and in sum" has iscsi_auth_failures

# 5. targets.conf
cat >"$conf" <<C
weak_secrets refuse
incomingdiscoveryuser-file disco $dir/ann
<target $iqn:filed>
	incominguser-file filer $dir/joe
	outgoinguser-file back $dir/ann
	bind-user filer $iqn:host
</target>
C
adm --op delete --mode target --tid 1 --force
admin --update ALL -v
is "targets.conf names files" test "$rc" = 0
is "... and says so in commands" has "--user=filer --password-file=$dir/joe"
is "W14: no secret is printed" not has secret-of
admin --update ALL -v
is "... and has nothing to do then" said 0 ""
admin --dump
is "a dump names them" has "	incominguser-file filer $dir/joe"
is "... outgoing" has "	outgoinguser-file back $dir/ann"
is "... of discovery" has_line "incomingdiscoveryuser-file disco $dir/ann"
"$bin/tgt-admin" --dump >"$dir/dumped"
admin -c "$dir/dumped" --update ALL -v
not_sent() { [ "$rc" = 0 ] && not has "tgtadm -C"; }
is "W14: a dump is taken back as it is" not_sent
(umask 077 && echo "other-secret-of-joe" >"$dir/joe")
admin --update ALL -v
is "another secret in a file is one request" has "--op update --user=filer --password-file=$dir/joe"
sed -i "s#incominguser-file filer .*#incominguser filer spelled-out-secret#" "$conf"
admin --update ALL -v
is "from a file into the configuration" has "--user=filer --password=PLEASE_CORRECT_THE_PASSWORD"
is "W14: nor is that printed" not has spelled-out
admin --dump
is "... the file is forgotten" has "	incominguser filer PLEASE_CORRECT_THE_PASSWORD"
admin --update ALL -v
is "... once" said 0 ""
echo "incomingdiscoveryuser-file d relative" >"$conf"
admin --update ALL
is "a file is named from the root" has "$conf:1: expected: a user, and the file"
echo "incomingdiscoveryuser-file d $dir/none" >"$conf"
admin --update ALL
is "a missing file is an error" has "$conf:1: cannot read $dir/none"

# 6. memory (a sanitized build has terabytes of shadow, which also remembers what was freed)
case $bin in
*/asan/* | */tsan/*) echo "ok W14: memory # SKIP a sanitized build" ;;
*)
	account keep --password never-in-a-core-42
	out=$(peer memory "$worker" never-in-a-core-42)
	is "W14: it stands in memory that no core has" test "${out% *}" -ge 1 -a "${out#* }" = 0
	adm --op update --mode account --user keep --password another-secret-7
	out=$(peer memory "$worker" never-in-a-core-42)
	is "W14: ... and nowhere when it is replaced" test "$out" = "0 0"
	adm --op delete --mode account --user keep
	out=$(peer memory "$worker" another-secret-7)
	is "W14: ... or deleted" test "$out" = "0 0"
	for n in 1 2 3 4 5 6 7 8; do account keep$n --password "a-secret-to-log-$n"; done
	for n in 1 2 3 4; do adm --op delete --mode account --user keep$n; done
	out=$(peer memory "$worker" a-secret-to-log-3)
	is "... also among others" test "$out" = "0 0"
	;;
esac
out=$(grep -c -e never-in-a-core -e another-secret -e secret-of -e a-secret-to-log "$dir/log")
is "no log has one" test "$out" = 0

# 7. masks
adm --op new --mode target --tid 9 -T $iqn:open
adm --op bind --mode target --tid 9 -I ALL
for lun in 1 2; do
	adm --op new --mode logicalunit --tid 9 --lun $lun --bstype ram --backing-store 8m
done
coproc PEER { peer "$port" masks; }
exec {lines}<&"${PEER[0]}" {go}>&"${PEER[1]}"
sees() {
	[ "$1" = first ] || echo "$2" >&"$go"
	read -r -t 30 out <&"$lines"
	[ "$out" = "$2" ]
}
is "everybody sees all" sees first "[0, 1, 2]"
adm --op update --mode target --tid 9 --name default-mask --value none
is "default-mask=none is taken" done_silently
is "... and hides all units, at once" sees now "[0]"
adm --op update --mode target --tid 9 -Q $iqn:mask-host --expose 2
is "but what is exposed" sees now "[0, 2]"
adm --op update --mode target --tid 9 -Q $iqn:mask-host --expose all
is "... until it is not" sees now "[0]"
adm --op bind --mode target --tid 9 -Q $iqn:mask-host
is "who is bound by its name sees all" sees now "[0, 1, 2]"
adm --op unbind --mode target --tid 9 -Q $iqn:mask-host
is "... until it is not" sees now "[0]"
adm --op show --mode target --tid 9
is "it is shown" has_line default-mask=none
adm --op show --mode system --name config
is "... and exported" has_line "	default-mask none"
adm --op update --mode target --tid 9 --name default-mask --value ''
is "as the daemon: all" sees now "[0, 1, 2]"
adm --op update --mode system --name default-mask --value none
is "the daemon's" sees now "[0]"
adm --op show --mode system --name config
is "... is exported" has_line "default-mask none"
adm --op update --mode target --tid 9 --name default-mask --value all
is "a target may be open all the same" sees now "[0, 1, 2]"
adm --op update --mode target --tid 9 --name default-mask --value some
is "all or none" refused "invalid request"
adm --op new --mode target --tid 10 -T $iqn:later
adm --op show --mode target
eval "exec ${PEER[1]}>&-"
exec {go}>&-
wait "$PEER_PID" 2>/dev/null

is "it ends with 0" daemon_stop
is "no report" no_report
finish
