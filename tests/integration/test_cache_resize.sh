#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The cache of a running daemon becomes larger and smaller under load that is verified (W10): no
# error, no wrong byte, no long pause. TGT_RESIZE_LONG=1: up to 4 GiB, and longer. A pause is long
# when a command takes more than 2 s: on a busy machine threads wait for processors, and for a disk
# that others use. Where commands were slow before, it is three times as long. TGT_STRICT=1, for a
# quiet machine: 50 ms, without excuse; what of it the machine itself stood still is said (stalls.py).
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.tgtd.test:resize
large=1g largest=1024
[ -n "${TGT_RESIZE_LONG:-}" ] && large=4g largest=4096
pause_ms=2000
case ${TGT_BIN:-} in */asan/* | */tsan/*) pause_ms=6000 ;; esac
[ -n "${TGT_STRICT:-}" ] && pause_ms=50

# What tgtadm shows of the cache.
shown() {
	adm --mode cache --op show
	printf '%s\n' "$out" | sed -n "s/^ *$1: //p"
}

# The size in MiB is $1, and the change of size is done.
has_size() {
	local deadline=$((SECONDS + 120))
	while [ $SECONDS -lt $deadline ]; do
		case "$(shown Size)/$(shown Resize)" in
		"$1 MiB/done"*) return 0 ;;
		*/failed*) break ;;
		esac
		sleep 0.2
	done
	adm --mode cache --op show
	return 1
}

refuses() {
	adm --mode cache --op update --params "$1"
	[ "$rc" = 22 ] && tail -3 "$dir/log" | grep -q "cache update refused: .*$2"
}

resident() { awk '/^RssShmem/ { print int($2 / 1024) }' "/proc/$worker/status"; }

daemon_start ours --cache size=256m
adm --op new --mode target --tid 1 -T $iqn
adm --op bind --mode target --tid 1 -I ALL
truncate -s 768m "$dir/disk"
adm --op new --mode logicalunit --tid 1 --lun 1 --bstype aio --backing-store "$dir/disk"
is "a LUN behind a cache of 256 MiB" test "$rc" = 0
is "whether the memory is locked is said" test -n "$(shown Memory)"

is "too small is refused" refuses size=2m 'too small for the number of partitions'
is "more than there is memory is refused" refuses size=800t 'room'
is "no size is refused" refuses size=much 'not a size'
is "another name is refused" refuses block=8k 'cannot be changed while the cache runs'

cat >"$dir/load.py" <<'PY'
# Writers and readers with a model each: every read is compared. Says the longest time that a command took, and what of
# the longest is left without the machine's own stalls, if these are known.
import os, random, select, sys, time
sys.path.insert(0, 'tests/support')
from iscsi_peer import Peer
import stalls

Peer.address, Peer.target = ('127.0.0.1', int(sys.argv[1])), sys.argv[2]
slot, stop, begun, seconds = int(sys.argv[3]), sys.argv[4], sys.argv[5], 300
random.seed(slot)
Peer.count = slot * 1000  # a name of its own
SPAN = 180 << 11  # sectors of each: four of them are 720 MiB
base, unit = slot * SPAN, 128
p = Peer().login().ready()
model, before, beside, n, end = {}, 0.0, [], 0, time.monotonic() + seconds
while not os.path.exists(stop) and time.monotonic() < end:
    at = random.randrange(SPAN // unit)
    began = time.monotonic()
    if random.random() < 0.5:
        data = random.randbytes(16) * (unit * 512 // 16)
        p.out(p.write(base + at * unit, unit, data))
        assert p.wait_status(p.itt - 1)[1] == 0, 'a write failed'
        model[at] = data
    else:
        p.out(p.read(base + at * unit, unit))
        got, status = p.wait_status(p.itt - 1)
        assert status == 0, 'a read failed'
        assert got == model.get(at, bytes(unit * 512)), 'wrong bytes at %d' % at
    ended = time.monotonic()
    if os.path.exists(begun):
        beside.append((began, ended))
    else:
        before = max(before, ended - began)
    n += 1
for at, data in model.items():
    p.out(p.read(base + at * unit, unit))
    assert p.wait_status(p.itt - 1) == (data, 0), 'lost at %d' % at
p.logout()
longest = max(e - b for b, e in beside)
still = stalls.during(sys.argv[6]) if os.path.exists(sys.argv[6]) else []
own = max(e - b - stalls.inside(still, b, e) for b, e in beside)
print('# %d commands, longest %.0f ms before the changes of size, %.0f ms beside them, %.0f of it not the machine'
      % (n, before * 1000, longest * 1000, own * 1000))
assert n > 100
PY

rm -f "$dir/stop" "$dir/begun"
watch=
if [ -n "${TGT_STRICT:-}" ]; then
	python3 -B tests/support/stalls.py "$dir/stalls" &
	watch=$!
fi
loads=
for i in 0 1 2 3; do
	timeout 400 python3 -B "$dir/load.py" "$port" $iqn $i "$dir/stop" "$dir/begun" "$dir/stalls" >"$dir/load.$i" 2>&1 &
	loads="$loads $!"
done
sleep 4
before=$(resident)
touch "$dir/begun"
adm --mode cache --op update --params size=$large
is "to $large under load" test "$rc" = 0
is "it gets there" has_size $largest
is "its memory is there" test "$(resident)" -ge $((before + largest - 256 - 8))
sleep 2
adm --mode cache --op update --params size=128m
is "to 128 MiB under load" test "$rc" = 0
is "it gets there, too" has_size 128
is "its memory is the system's again" test "$(resident)" -le $((before + 16))
adm --mode cache --op update --name size --value $large
is "another size ..." test "$rc" = 0
adm --mode cache --op update --params size=200m
is "... takes the place of one that is under way" has_size 200
touch "$dir/stop"
if [ -n "${TGT_RESIZE_LONG:-}" ]; then # what the daemon's own clock says of the slowest
	adm --mode system --op latency
	printf '%s\n' "$out" | sed 's/^/# /'
	adm --mode logicalunit --op slow --tid 1 --lun 1
	printf '%s\n' "$out" | sed 's/^/# /'
fi
bad=0
for l in $loads; do wait "$l" || bad=1; done
[ -z "$watch" ] || kill "$watch"
cat "$dir"/load.?
out=$(cat "$dir"/load.?)
is "no error, no wrong byte" test $bad = 0

# No command of a load took longer beside the changes of size than $pause_ms.
no_pause() {
	printf '%s\n' "$out" | awk -v limit="$pause_ms" -v strict="${TGT_STRICT:-}" '
		/^# [0-9]+ commands, longest/ {
			before = $5; beside = $12; n++
			most = !strict && 3 * before > limit ? 3 * before : limit
			if (beside > most) {
				printf "# a pause of %d ms; %d ms are allowed\n", beside, most
				bad = 1
			}
		}
		END { exit bad || n != 4 }'
}
is "no pause of more than $pause_ms ms" no_pause
is "the daemon says what it did" grep -q 'cache: 128 MiB now' "$dir/log"
is "nothing is wrong in its log" no_report
is "it ends with 0" daemon_stop
exit $((failures > 0))
