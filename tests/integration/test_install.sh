#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# make install into a DESTDIR, as a packager does it: what lies where, that what lies there fits together, and that
# make uninstall leaves nothing but the configuration.
set -u
bin=${TGT_BIN:-$(pwd)/build/bin}
variant=$(basename "$(dirname "$bin")")
[ "$variant" = build ] && variant=release
root=$(mktemp -d /var/tmp/tgtd-install-XXXXXX)
trap 'rm -rf "$root"' EXIT
failures=0

result() { # NAME PROBLEM...: ok without any
	local name=$1
	shift
	if [ -z "$*" ]; then
		echo "ok $name"
	else
		echo "not ok $name"
		printf '%s\n' "$*" | sed 's/^/# /'
		failures=$((failures + 1))
	fi
}
make_it() { (umask 077; env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make -s VARIANT="$variant" DESTDIR="$root" "$@") >"$root.log" 2>&1 || { cat "$root.log"; echo failed; }; rm -f "$root.log"; }
missing() { for f in "$@"; do [ -e "$root/$f" ] || echo "$f is missing"; done; }

instruments=$(cd tools/bench && for p in tgt-*; do echo "${p%%.*}"; done | sort -u)
programs=$(for p in "$bin"/*; do basename "$p"; done | grep -vxF "$instruments")
result "make install" "$(make_it install)"
result "every program is there, and has its manual page" "$(for p in $programs; do
	missing "usr/sbin/$p" "usr/share/man/man8/$p.8"; done)"
result "no instrument is" "$(for p in $instruments; do find "$root" -name "$p*"; done)"
result "configuration, unit, example, completion" "$(missing etc/tgt/targets.conf etc/tgt/conf.d lib/systemd/system/tgtd.service \
	usr/share/doc/tgtd/examples/targets.conf.example usr/share/man/man5/targets.conf.5 usr/share/bash-completion/completions/{tgtadm,tgt-admin,tgtd,tgt-setup-lun,tgtimg,tgt-probe})"
result "whatever the umask is everybody may read, but not the passwords" "$(find "$root/usr" "$root/lib" -type f ! -perm -444; [ "$(stat -c %a "$root/etc/tgt/targets.conf")" = 600 ] || stat "$root/etc/tgt/targets.conf")"
result "what is not a program lies in /usr/share, /lib and /etc" "$(find "$root" -type f -perm /111 ! -path '*/usr/sbin/*';
	find "$root" -mindepth 1 -maxdepth 1 ! -name etc ! -name lib ! -name usr)"
result "the installed programs start" "$(for p in tgtd tgtadm; do "$root/usr/sbin/$p" --version >/dev/null || echo "$p: $?"; done)"
result "the example is what tgt-admin reads" "$("$root/usr/sbin/tgt-admin" -p -e -C 999 -c "$root/usr/share/doc/tgtd/examples/targets.conf.example" 2>&1 | grep -v 'no tgtd answers on control port 999')"
if command -v man >/dev/null; then
	result "man reads the pages, also those that stand for another" "$(for page in "$root"/usr/share/man/man?/*; do
		(cd "$root/usr/share/man" && MANROFFSEQ='' MANWIDTH=100 man --warnings=w -l "$page" 2>&1 >/dev/null); done
		(cd "$root/usr/share/man" && man -M "$root/usr/share/man" -w tgtadm tgtd 5 targets.conf >/dev/null) 2>&1)"
else
	echo "ok man reads the pages # SKIP man is not installed"
fi
result "what the unit runs is installed" "$(sed -n 's/^Exec[A-Za-z]*=-\?\(\S*\).*/\1/p' "$root/lib/systemd/system/tgtd.service" | sort -u | while read -r p; do missing "$p"; done)"

result "the unit makes the directories that tgtd uses" "$(for d in $("$root/usr/sbin/tgtd" --help | sed -n 's/.*--state-dir.*(default \(.*\)).*/\1/p') /run/tgtd; do
	grep -qE "^(State|Runtime)Directory=${d##*/}\$" "$root/lib/systemd/system/tgtd.service" || echo "not $d"; done)"

# ---- completion ---------------------------------------------------------------------------------
offers() { # WORDS...: what may stand for the last of them
	bash -c '
		. "$1"; shift
		COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
		$(complete -p "$1" | sed "s/.*-F \(\S*\).*/\1/")
		printf "%s\n" "${COMPREPLY[@]}"' offers "$root/usr/share/bash-completion/completions/$1" "$@"
}
usage=$("$root/usr/sbin/tgtadm" --help)
result "tgtadm's modes and operations are offered" "$(printf '%s\n' "$usage" | sed -n 's/^  --mode \([a-z]*\) --op \([a-z|]*\).*/\1 \2/p' | while read -r mode ops; do
	offers tgtadm --mode "" | grep -qx "$mode" || echo "not the mode $mode"
	for op in ${ops//|/ }; do offers tgtadm --mode "$mode" --op "" | grep -qx "$op" || echo "not --mode $mode --op $op"; done
done)"
for p in tgtadm tgt-admin; do
	result "$p's options are offered, all and no others" "$(diff <(offers $p -- | sort) <("$root/usr/sbin/$p" --help | grep -oE -e '--[a-z][a-z-]+' | grep -vxE -e '--(mode|op|host|bus)' | cat - <([ $p = tgtadm ] && printf '%s\n' --mode --op) | sort -u))"
done
result "a word that is begun is completed" "$([ "$(offers tgtadm --mode target --op upd)" = update ] || offers tgtadm --mode target --op upd)"

# ---- again, elsewhere, and away -----------------------------------------------------------------
result "make install-bench" "$(make_it install-bench)"
result "the instruments are there, each with its page" "$(for p in $instruments; do
	missing "usr/lib/tgtd/bench/$p" "usr/share/man/man8/$p.8"; done)"
result "they start where they lie" "$(for p in tgt-load tgt-bench tgt-cachebench; do
	"$root/usr/lib/tgtd/bench/$p" --help >/dev/null || echo "$p: $?"; done)"
echo "# mine" >"$root/etc/tgt/targets.conf"
result "a second install" "$(make_it install)"
result "leaves a configuration as it is" "$([ "$(cat "$root/etc/tgt/targets.conf")" = "# mine" ] || cat "$root/etc/tgt/targets.conf")"
result "make uninstall" "$(make_it uninstall)"
result "leaves the configuration, and nothing else" "$(find "$root" -type f ! -path "$root/etc/tgt/targets.conf"; missing etc/tgt/targets.conf)"
result "make install PREFIX=/usr/local" "$(make_it install PREFIX=/usr/local)"
result "its unit runs what is installed there" "$(missing usr/local/sbin/tgtd; grep -n '/usr/sbin' "$root/usr/local/lib/systemd/system/tgtd.service")"
result "make uninstall there" "$(make_it uninstall PREFIX=/usr/local)$(find "$root" -type f ! -path "$root/etc/tgt/targets.conf")"
exit $((failures > 0))
