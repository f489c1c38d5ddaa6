# SPDX-License-Identifier: GPL-2.0-or-later
#
# PostgreSQL on ext4 on our target: pgbench, while the worker is killed PG_KILLS times. What clients
# were told is committed is there, also after the server has recovered from a crash of its own, and
# pg_amcheck has nothing to say. Data pages have checksums; the table is larger than its buffers.

P=127.0.0.1:3260
T=iqn.2026-11.net.tgtd:pg
PG_KILLS=${PG_KILLS:-20}
SCALE=${SCALE:-3} # 100,000 accounts, about 15 MB, each
SEED=${SEED:-$RANDOM}
RANDOM=$SEED
PG=/mnt/pg/data
PGBIN=$(printf '%s\n' /usr/lib/postgresql/*/bin | tail -n 1)
export PGHOST=/run/pg PGUSER=postgres PGDATABASE=bench

[ -x "$PGBIN/initdb" ] || {
	skip 'all of it' 'no PostgreSQL here (tools/install-deps postgresql-15)'
	exit 0
}

start() { tgtd_start $P -- --state-dir /run/state; }
configure() { target_new 1 $T && lun_new 1 1 aio /dev/ram0; }

as_pg() { (cd /run/pg && setpriv --reuid=postgres --regid=postgres --clear-groups "$@"); }
sql() { as_pg "$PGBIN/psql" -X -q -A -t -v ON_ERROR_STOP=1 -c "$1"; }

pg_start() { as_pg "$PGBIN/pg_ctl" -D $PG -l /run/pg/log -w -t 300 start; }
# Without a word: what is only in its memory is gone, as after a crash.
pg_crash() { as_pg "$PGBIN/pg_ctl" -D $PG -m immediate -w -t 60 stop; }

pg_new() {
	mkdir -p /run/pg && chown postgres:postgres /run/pg /mnt/pg || return 1
	as_pg "$PGBIN/initdb" -D $PG -k -N -A trust -E UTF8 --locale=C --no-instructions \
		--wal-segsize=4 || return 1
	cat >>$PG/postgresql.conf <<-'END'
		listen_addresses = ''
		unix_socket_directories = '/run/pg'
		shared_buffers = 8MB
		max_wal_size = 24MB
		min_wal_size = 8MB
		checkpoint_timeout = 30s
		jit = off
	END
	pg_start && PGDATABASE=postgres sql 'create database bench' &&
		as_pg "$PGBIN/pgbench" -i -q -s "$SCALE" && sync -f /mnt/pg
}

# A load of 13 s, amid which the worker dies. So each lives long enough not to be taken for one of a
# crash loop. What pgbench says it was told is added to TOLD.
TOLD=0
round() {
	local load worker told
	as_pg "$PGBIN/pgbench" -n -c 4 -j 2 -T 13 >/run/pg/bench 2>&1 &
	load=$!
	worker=$(tgtd_serving)
	sleep "$((2 + RANDOM % 7)).$((RANDOM % 10))"
	kill -0 $load && kill -KILL "$worker" && another_serves "$worker" || return 1
	wait $load || { cat /run/pg/bench; return 1; }
	cat /run/pg/bench
	told=$(sed -n 's/^number of transactions actually processed: \([0-9]*\).*/\1/p' \
		/run/pg/bench)
	grep -q '^number of failed transactions: 0 ' /run/pg/bench && [ "${told:-0}" -gt 0 ] ||
		return 1
	TOLD=$((TOLD + told))
}

rounds() {
	local i
	for i in $(seq "$PG_KILLS"); do
		round || { echo "round $i of $PG_KILLS"; return 1; }
	done
}

# Each transaction has one row of history, and changes three balances by the same amount.
all_there() {
	local rows
	rows=$(sql 'select count(*) from pgbench_history') || return 1
	echo "told of $TOLD transactions, $rows are there"
	[ "$rows" = "$TOLD" ] && [ "$TOLD" -gt 0 ] && [ "$(sql 'select count(*) from (
		select sum(delta) from pgbench_history union
		select sum(abalance) from pgbench_accounts union
		select sum(bbalance) from pgbench_branches union
		select sum(tbalance) from pgbench_tellers) as sums')" = 1 ]
}

crashed_and_back() {
	pg_crash && umount /mnt/pg && blockdev --flushbufs "$SD" && check_fs ext4 "$SD" &&
		mount -t ext4 "$SD" /mnt/pg && pg_start && grep 'redo done' /run/pg/log
}

# Nothing of it fits into the server's buffers: all is read from the disk.
amcheck() {
	echo 3 >/proc/sys/vm/drop_caches
	as_pg "$PGBIN/pg_amcheck" --install-missing --heapallindexed --rootdescend --parent-check \
		-d bench
}

no_complaint() { ! grep -E 'PANIC|ERROR|could not|corrupt|invalid page' /run/pg/log; }

need 'memory disk' brd_up 1 204800
need 'tgtd starts' start
need 'target and LUN' configure
need 'initiator' iscsid_up
need 'login' login $T $P
need 'disk' wait_sd SD $T 1
need 'file system' make_fs ext4 "$SD" /mnt/pg
need 'PostgreSQL, and accounts' pg_new
echo "# $SCENARIO: SEED=$SEED"
step "pgbench goes on over $PG_KILLS kills of the worker" rounds
echo "# $SCENARIO: $PG_KILLS kills: $(dmesg | grep -c 'detected conn error') lost connections," \
	"$(grep -c 'operational after recovery' /out/iscsid.log) logins," \
	"$TOLD transactions told to be committed"
step 'all that was said to be committed is there' all_there
step 'the server crashes, the file system is clean, the server recovers' crashed_and_back
step 'all that was said to be committed is there still' all_there
step 'pg_amcheck' amcheck
step "the server's log" no_complaint
cp /run/pg/log /out/postgres.log
step 'the server stops' as_pg "$PGBIN/pg_ctl" -D $PG -m fast -w -t 120 stop
step 'umount' umount /mnt/pg
step 'file system is clean' check_fs ext4 "$SD"
step 'logout' logout $T
step 'no kernel error but lost connections' kernel_clean 'detected conn error'
step 'tgtd stops on SIGTERM' tgtd_stop
