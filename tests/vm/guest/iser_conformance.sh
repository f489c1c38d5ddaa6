# SPDX-License-Identifier: GPL-2.0-or-later
#
# libiscsi's conformance tool over iSER, suite by suite: nothing fails, and where it skips something it
# skips no less over TCP.

P=$RDMA_IP:3260
CU_LIMIT=300 # a connection takes the tool seconds: it registers 64 MiB for each
WORKERS=3    # at once, each with a target of its own
IQN=iqn.2026-11.net.tgtd:cu

configure() {
	local w
	for w in $(seq $WORKERS); do
		target_new "$w" $IQN"$w" &&
			adm --op update --mode target --tid "$w" --name allow_target_reset --value Yes &&
			lun_new "$w" 1 ram 64m || return 1
	done
}

# suite NAME: over iSER, and again over TCP if it skipped a test.
suite() {
	local skipped
	conformance iser://$P/$T/1 "$1" --dataloss || return 1
	skipped=$(grep -ci skipped "$CU_OUT")
	[ "$skipped" -gt 0 ] || return 0
	conformance iscsi://$P/$T/1 "$1" --dataloss || return 1
	echo "skipped: $skipped over iSER, $(grep -ci skipped "$CU_OUT") over TCP"
	[ "$skipped" -le "$(grep -ci skipped "$CU_OUT")" ]
}

# worker N SUITE...: each one's output and status in files.
worker() {
	local s
	CU_OUT=/run/cu.$1 T=$IQN$1
	shift
	for s; do
		suite "$s" >"/run/out.$s" 2>&1
		echo $? >"/run/rc.$s"
	done
}

result() {
	cat "/run/out.$1"
	return "$(cat "/run/rc.$1")"
}

need 'soft-RoCE device' rdma_up
need 'tgtd starts' tgtd_start $P
need 'targets and LUNs' configure
if [ "${SUITES:-}" = all ]; then
	SUITES=$(iscsi-test-cu --list | grep -E '^SCSI\.[^.]+$' | grep -vE 'Multipath|GetLBAStatus')
fi
# PART=1/3: that third of them.
SUITES=$(printf '%s\n' $SUITES | awk -v part="${PART:-1/1}" '{split(part, p, "/"); if (NR % p[2] == p[1] % p[2]) print}')
for w in $(seq $WORKERS); do
	# shellcheck disable=SC2046
	worker "$w" $(printf '%s\n' $SUITES | awk -v w="$w" -v n=$WORKERS 'NR % n == w % n') &
done
for s in $SUITES; do
	while [ ! -s "/run/rc.$s" ]; do sleep 0.2; done
	step "$s" result "$s"
done
step 'kernel log' kernel_clean 'detected conn error'
step 'tgtd stops on SIGTERM' tgtd_stop
