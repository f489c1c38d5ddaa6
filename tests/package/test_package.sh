#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The Debian packages: built from this tree, judged by lintian, installed over a machine that has tgt (made
# with mmdebstrap). What the machine had in /etc/tgt stays; the unit's commands do what they say, under systemd
# in a container where that boots, else in order. `make check-package`; needs root and a Debian mirror.
set -u
cd "$(dirname "$0")/../.." || exit 2
tree=$PWD
tmp=$(mktemp -d /tmp/tgtd-package.XXXXXX)
root=$tmp/root
cleanup() {
	[ -z "${boot:-}" ] || { machinectl terminate tgtd-test || kill "$boot"; } 2>/dev/null
	[ -z "${exporter:-}" ] || kill "$exporter" 2>/dev/null
	[ -z "${daemon:-}" ] || kill "$daemon" 2>/dev/null
	for at in proc dev sys; do umount -l "$root/$at" 2>/dev/null; done
	rm -rf --one-file-system "$tmp"
}
trap cleanup EXIT
n=0
is() { # DESCRIPTION COMMAND...
	local what=$1; shift
	n=$((n + 1))
	if "$@" >"$tmp/out" 2>&1; then echo "ok $n - $what"; else
		echo "not ok $n - $what"; sed 's/^/# /' "$tmp/out" | tail -n 40; fi
}
skip_all() { echo "ok 1 - packages # SKIP $1"; exit 0; }

[ "$(id -u)" = 0 ] || skip_all "not root"
for program in dpkg-buildpackage dh lintian mmdebstrap; do
	command -v $program >/dev/null || skip_all "$program is not installed (make check-package installs it)"
done

# ---- built, judged
mkdir -p "$tmp/src/tgtd"
{ git ls-files -co --exclude-standard 2>/dev/null || find . -path ./build -prune -o -type f -print; } |
	tar cf - -T - | tar xf - -C "$tmp/src/tgtd"
build() { (cd "$tmp/src/tgtd" && DEB_BUILD_OPTIONS="nocheck parallel=2" dpkg-buildpackage -b -us -uc); }
is "the packages build" build
is "lintian has no errors and no warnings" \
	lintian --allow-root --fail-on error,warning "$tmp"/src/tgtd_*.changes

# ---- installed beside tgt
is "a machine with tgt" mmdebstrap --variant=minbase \
	--include=tgt,systemd,systemd-sysv,dbus,libiscsi-bin,procps bookworm "$root"
[ -x "$root/usr/sbin/tgtd" ] || { echo "1..$n"; exit 1; }
mounts() { mount -t proc proc "$root/proc"; mount --rbind /dev "$root/dev"; mount --rbind /sys "$root/sys"; }
mounts
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod +x "$root/usr/sbin/policy-rc.d"
iqn=iqn.2026-11.com.example:kept
printf '# ours, edited\ninclude /etc/tgt/conf.d/*.conf\n' >"$root/etc/tgt/targets.conf"
printf '<target %s>\n\tbacking-store /srv/disk.img\n</target>\n' $iqn >"$root/etc/tgt/conf.d/disk.conf"
truncate -s 16M "$root/srv/disk.img"
cp -a "$root/etc/tgt" "$tmp/before"
cp "$tmp"/src/tgtd_*.deb "$tmp"/src/tgtd-tools_*.deb "$root/root/"
cp /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null
in_root() { DEBIAN_FRONTEND=noninteractive chroot "$root" "$@"; }
in_root apt-get update -q >/dev/null 2>&1
install_debs() { in_root sh -c 'apt-get install -y -q --no-install-recommends /root/tgtd_*.deb /root/tgtd-tools_*.deb </dev/null'; }
is "apt-get install ./tgtd_*.deb, without a question" install_debs
is "tgt went" in_root sh -c '[ "$(dpkg-query -W -f "\${db:Status-Status}" tgt)" != installed ]'
is "/etc/tgt is as it was" diff -r "$tmp/before" "$root/etc/tgt"
is "tgtd is ours" in_root sh -c 'tgtd --version | grep -q "tgtd 0\.\|^0\.1"'
is "the unit is enabled" test -L "$root/etc/systemd/system/multi-user.target.wants/tgtd.service"
is "tgt.service is a name of it" \
	sh -c "readlink '$root/etc/systemd/system/tgt.service' | grep -q tgtd.service"
is "tgt-exporter's unit is not enabled: it listens" \
	sh -c "! ls '$root'/etc/systemd/system/*.wants/tgt-exporter.service 2>/dev/null"
is "the instruments are there" test -x "$root/usr/lib/tgtd/bench/tgt-load"
is "pages" sh -c "cd '$root/usr/share/man' && ls man8/tgtd.8.gz man8/tgtadm.8.gz man5/targets.conf.5.gz man8/tgt-load.8.gz"

# ---- running
not() { ! "$@"; }
figures='exec 3<>/dev/tcp/127.0.0.1/9260 && printf "GET /metrics HTTP/1.0\r\n\r\n" >&3 &&
	grep -q "^tgtd_up 1" <&3'
rm -f "$root/usr/sbin/policy-rc.d"
if command -v systemd-nspawn >/dev/null && [ -d /run/systemd/system ]; then
	umount -l "$root/proc" "$root/dev" "$root/sys"
	systemd-nspawn -q -D "$root" -M tgtd-test --private-network --boot >"$tmp/boot" 2>&1 &
	boot=$!
	in_machine() { systemd-run -q -M tgtd-test --wait --pipe "$@"; }
	for _ in $(seq 60); do in_machine true 2>/dev/null && break; sleep 1; done
	active() { in_machine systemctl is-active "$1"; }
	is "under systemd the unit becomes active" active tgtd
	is "and serves what the file says" in_machine sh -c "iscsi-ls iscsi://127.0.0.1 | grep -q $iqn"
	is "tgt-exporter is off until somebody wants it" not active tgt-exporter
	is "then it starts" in_machine systemctl start tgt-exporter
	is "and answers" in_machine bash -c "$figures"
	# Keeper and worker as systemd sees them; tests/vm/test_systemd.sh has more, under a kernel of its own.
	machine_file() { in_machine cat "$1"; }
	main=$(in_machine systemctl show -P MainPID tgtd)
	worker=$(machine_file /var/lib/tgt/worker.pid)
	is "the worker is not the main process" sh -c "[ -n '$worker' ] && [ '$worker' != '$main' ]"
	is "reload" in_machine systemctl reload tgt
	is "which leaves the worker alone" sh -c "[ '$(machine_file /var/lib/tgt/worker.pid)' = '$worker' ]"
	new_worker() {
		for _ in $(seq 30); do
			now=$(machine_file /var/lib/tgt/worker.pid 2>/dev/null)
			[ -n "$now" ] && [ "$now" != "$worker" ] && worker=$now && return
			sleep 1
		done
		return 1
	}
	same_main() { [ "$(in_machine systemctl show -P MainPID tgtd)" = "$main" ] && active tgtd; }
	in_machine kill -KILL "$worker"
	is "a worker that is killed is replaced" new_worker
	is "and the unit stays as it is" same_main
	is "and serves what the file says" in_machine sh -c "iscsi-ls iscsi://127.0.0.1 | grep -q $iqn"
	in_machine sh -c 'cp /usr/sbin/tgtd /usr/sbin/tgtd.new && mv /usr/sbin/tgtd.new /usr/sbin/tgtd'
	is "reload with a new program" in_machine systemctl reload tgt
	is "replaces the worker" new_worker
	is "and not the main process" same_main
	is "stop" in_machine systemctl stop tgtd
else
	echo "# no systemd here to boot a container with: the unit's commands in order"
	exec_lines() { sed -n "s/^$1=-\?//p" "$root/lib/systemd/system/tgtd.service"; }
	mkdir -p "$root/var/lib/tgt" "$root/run/tgtd"
	# with no more rights than there
	unit() { cat "$root"/lib/systemd/system/"$1".service{,.d/*.conf} 2>/dev/null | sed -n "s/^$2=//p"; }
	caps=-all$(for cap in $(unit tgtd CapabilityBoundingSet); do echo -n ",+${cap#CAP_}"; done)
	unshare -n sh -c 'ip link set lo up; exec chroot "$1" sh -c "
		. /etc/default/tgtd; exec setpriv --groups=$2 --bounding-set=$3 $4"' _ "$root" \
		"$(unit tgtd SupplementaryGroups)" "${caps,,}" "$(exec_lines ExecStart)" >"$tmp/log" 2>&1 &
	daemon=$!
	inside() { nsenter -t "$daemon" -n -- chroot "$root" "$@"; }
	for _ in $(seq 100); do inside tgtadm --op show --mode system >/dev/null 2>&1 && break; sleep 0.1; done
	post() { exec_lines ExecStartPost | while read -r line; do inside sh -c "$line" || exit 1; done; }
	is "ExecStartPost" post
	is "the daemon serves what the file says" inside sh -c "iscsi-ls iscsi://127.0.0.1 | grep -q $iqn"
	nsenter -t "$daemon" -n -- chroot "$root" setpriv --reuid=nobody --regid=nogroup \
		--groups="$(unit tgt-exporter SupplementaryGroups)" --no-new-privs \
		sh -c "exec $(unit tgt-exporter ExecStart)" >"$tmp/exporter" 2>&1 &
	exporter=$!
	answers() {
		for _ in $(seq 50); do inside bash -c "$figures" && return; sleep 0.1; done
		cat "$tmp/exporter"
		return 1
	}
	is "tgt-exporter answers, as the user and in the group of its unit" answers
	newcomer() { # as README.md says it, but for the first, which has been done
		sed -n '/^## From a package to the first figure/,/^## G/s/^    //p' README.md |
			sed 1d >"$tmp/commands"
		[ -s "$tmp/commands" ] && while read -r line; do
			echo "$line"
			inside bash -c "${line//\/dev\/vg0\/disk1//srv/first.img}" </dev/null || return
		done <"$tmp/commands"
	}
	truncate -s 16M "$root/srv/first.img"
	is "a newcomer's commands, of README.md" newcomer
	is "after them the first LUN is served" inside sh -c "iscsi-ls -s iscsi://127.0.0.1 | grep -q disk1"
	is "and is in the file" grep -q 'backing-store /srv/first.img' "$root/etc/tgt/targets.conf"
	is "as is what was there before" grep -q "$iqn" "$root/etc/tgt/targets.conf"
	cp -p "$tmp/before/targets.conf" "$root/etc/tgt/targets.conf"
	kill $exporter
	exporter=
	reload() { exec_lines ExecReload | while read -r line; do inside sh -c "$line" || exit 1; done; }
	worker() { cat "$root/var/lib/tgt/worker.pid"; }
	new_worker() { # another one serves
		for _ in $(seq 200); do
			[ -n "$(worker)" ] && [ "$(worker)" != "$before" ] &&
				inside tgtadm --op show --mode system >/dev/null 2>&1 && return
			sleep 0.1
		done
		tail -n 20 "$tmp/log"
		return 1
	}
	before=$(worker)
	is "ExecReload" reload
	is "which leaves the worker alone" test "$(worker)" = "$before"
	kill -KILL "$before"
	is "a worker that is killed is replaced" new_worker
	is "which serves what the file says" inside sh -c "iscsi-ls iscsi://127.0.0.1 | grep -q $iqn"
	before=$(worker)
	cp "$root/usr/sbin/tgtd" "$root/usr/sbin/tgtd.new" && mv "$root/usr/sbin/tgtd.new" "$root/usr/sbin/tgtd"
	is "ExecReload with a new program" reload
	is "replaces the worker" new_worker
	is "by that program" test "/proc/$(worker)/exe" -ef "$root/usr/sbin/tgtd"
	nsenter -t "$daemon" -n -- python3 -B tests/integration/keeper.py write 3260 $iqn 64 77
	stop() { kill -TERM "$daemon" && wait "$daemon"; }
	is "SIGTERM ends it with 0" stop
	is "and what it had acknowledged is in the store" sh -c \
		"[ \"\$(dd if='$root/srv/disk.img' bs=512 skip=64 count=1 status=none | od -An -tu1 -N1 | tr -d ' ')\" = 77 ]"
	daemon=
fi
mountpoint -q "$root/dev" || mounts
cp debian/tests/session "$root/root/session"
is "debian/tests/session" in_root /root/session

# ---- gone again
is "purge" in_root apt-get purge -y -q tgtd tgtd-tools
is "the configuration that tgt owns stays" diff -r "$tmp/before/targets.conf" "$root/etc/tgt/targets.conf"
is "no program is left" sh -c "! ls '$root'/usr/sbin/tgt* 2>/dev/null"
echo "1..$n"
cd "$tree" || exit
