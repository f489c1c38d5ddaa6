# SPDX-License-Identifier: GPL-2.0-or-later
#
# Persistent reservations as sg_persist and the kernel see them: two initiators on one LUN, each type,
# conflicts, preemption under I/O, registrations that move and that survive a restart or the death of the
# daemon (APTPL).

P=127.0.0.1:3260
T=iqn.2026-11.net.tgtd:pr
TWO=iqn.2026-11.net.tgtd:vm-two
CONFLICT=24 # SG_LIB_CAT_RES_CONFLICT

start() { tgtd_start $P -- --state-dir /run/state; }

configure() {
	adm --op update --mode sys --name State -v offline && target_new 1 $T && lun_new 1 1 aio /dev/ram0 &&
		adm --op update --mode sys --name State -v ready
}

pr_out() { # DEVICE OPTIONS...: PERSISTENT RESERVE OUT
	local dev=$1
	shift
	sg_persist --no-inquiry --out "$@" "$dev"
}

pr_in() { # DEVICE OPTION
	sg_persist --no-inquiry --in "$2" "$1"
}

# What is registered and reserved, as `A` sees it: the keys in order, then key and type of the reservation.
state() {
	sg_turs "$A" >/dev/null 2>&1 # a unit attention for what B did
	sg_turs "$A" >/dev/null 2>&1
	pr_in "$A" --read-keys | sed -n 's/^ *\(0x[0-9a-f]*\)$/\1/p' | sort | tr '\n' ' '
	pr_in "$A" --read-reservation | tr '\n' ' ' |
		sed -n 's/.*Key=\(0x[0-9a-f]*\).*type: \(.*[^ ]\) *$/\1 \2/p; s/.*there is NO reservation held.*/none/p'
	echo
}

is() { # STATE
	local now
	now=$(state | tr '\n' ' ' | sed 's/  */ /g; s/ $//')
	[ "$now" = "$1" ] || { echo "is: $now"; echo "expected: $1"; return 1; }
}

status() { # COMMAND...: how it ends, as a number; what it prints only on the way to /out/steps.log
	"$@" >&2
	echo $?
}

# may DEVICE R W: whether reads and writes pass (1), or meet a reservation conflict (0).
may() {
	local r w
	# The first command may still meet a unit attention for what the other did.
	sg_turs "$1" >/dev/null 2>&1
	sg_turs "$1" >/dev/null 2>&1
	r=$(status sg_raw --request=4096 "$1" 28 00 00 00 00 00 00 00 08 00)
	w=$(status sg_raw --send=4096 --infile=/run/zeros "$1" 2a 00 00 00 00 00 00 00 08 00)
	[ "$r$w" = "$(($2 ? 0 : CONFLICT))$(($3 ? 0 : CONFLICT))" ] || { echo "$1: read ends with $r, write with $w, expected $2 $3"; return 1; }
}

# The unit attention that an initiator gets once, and by which it knows.
told() { # DEVICE TEXT
	sg_turs -v "$1" >/run/turs 2>&1
	grep -qi "$2" /run/turs || { cat /run/turs; return 1; }
}

registering() {
	head -c 4096 /dev/zero >/run/zeros
	is none && pr_out "$A" --register --param-sark=0xa && pr_out "$B" --register --param-sark=0xb || return 1
	is '0xa 0xb none' || return 1
	# a key that is not there, and one that is not mine
	[ "$(status pr_out "$A" --register --param-rk=0xb --param-sark=0xc)" = $CONFLICT ] &&
		[ "$(status pr_out "$A" --reserve --param-rk=0xb --prout-type=1)" = $CONFLICT ] || return 1
	pr_out "$A" --register-ignore --param-sark=0xaa && is '0xaa 0xb none' &&
		pr_out "$A" --register --param-rk=0xaa --param-sark=0xa && is '0xa 0xb none' || return 1
	pr_in "$A" --report-capabilities >/run/caps
	cat /run/caps
	for bit in 'CRH): 1' 'SIP_C): 1' 'ATP_C): 1' 'PTPL_C): 1' 'PTPL_A): 0' 'TMV): 1' \
		'Write Exclusive, all registrants: 1' 'Exclusive Access, all registrants: 1' \
		'Write Exclusive, registrants only: 1' 'Exclusive Access, registrants only: 1' 'Write Exclusive: 1' 'Exclusive Access: 1'; do
		grep -q "$bit" /run/caps || { echo "no: $bit"; return 1; }
	done
}

# full_status: both registrations by the names of their initiators, and whose the reservation is.
full_status() {
	pr_out "$A" --reserve --param-rk=0xa --prout-type=5 && pr_in "$B" --read-full-status >/run/full || return 1
	cat /run/full
	[ "$(grep -c 'Key=0x' /run/full)" = 2 ] && [ "$(grep -c 'iSCSI name and session id\|world wide unique port id' /run/full)" = 2 ] &&
		grep -q "$INITIATOR,i,0x" /run/full && grep -q "$TWO,i,0x" /run/full &&
		[ "$(grep -c '<< Reservation holder >>\|Reservation holder' /run/full)" -ge 1 ] || return 1
	[ "$(status pr_out "$B" --reserve --param-rk=0xb --prout-type=5)" = $CONFLICT ] &&
		pr_out "$A" --release --param-rk=0xa --prout-type=5 && told "$B" 'reservations released' && is '0xa 0xb none'
}

# each_type: what the holder, another registrant and a stranger may do (SPC-4 table 46).
each_type() { # TYPE NAME   REGISTRANT_R REGISTRANT_W   STRANGER_R STRANGER_W
	pr_out "$A" --reserve --param-rk=0xa --prout-type=$1 || return 1
	case $1 in
	7 | 8) is "0xa 0xb 0x0 $2" ;;
	*) is "0xa 0xb 0xa $2" ;;
	esac && may "$A" 1 1 && may "$B" $3 $4 || return 1
	pr_out "$B" --register --param-rk=0xb --param-sark=0 && may "$B" $5 $6 && may "$A" 1 1 || return 1
	# one who is not registered cannot reserve, release or clear, but may ask
	[ "$(status pr_out "$B" --reserve --param-rk=0 --prout-type=$1)" = $CONFLICT ] &&
		[ "$(status pr_out "$B" --clear --param-rk=0)" = $CONFLICT ] && pr_in "$B" --read-keys | grep -q 0xa || return 1
	pr_out "$B" --register --param-sark=0xb && pr_out "$A" --release --param-rk=0xa --prout-type=$1 && is '0xa 0xb none' &&
		may "$B" 1 1
}

wrong_type() {
	pr_out "$A" --reserve --param-rk=0xa --prout-type=1 || return 1
	[ "$(status pr_out "$A" --release --param-rk=0xa --prout-type=3)" = 5 ] && is '0xa 0xb 0xa Write Exclusive' &&
		[ "$(status pr_out "$A" --reserve --param-rk=0xa --prout-type=3)" = $CONFLICT ] &&
		[ "$(status pr_out "$A" --reserve --param-rk=0xa --prout-type=2)" = 5 ] &&
		pr_out "$A" --release --param-rk=0xa --prout-type=1
}

preempting() {
	pr_out "$A" --reserve --param-rk=0xa --prout-type=1 && pr_out "$B" --preempt --param-rk=0xb --param-sark=0xa --prout-type=3 || return 1
	told "$A" 'registrations preempted' && is '0xb 0xb Exclusive Access' && may "$A" 0 0 && may "$B" 1 1 || return 1
	# the kernel's own view of it: a write that fails, no retry for ever
	timeout 20 dd if=/dev/zero of="$A" bs=4k count=1 oflag=direct && return 1
	pr_out "$B" --clear --param-rk=0xb && is none && may "$A" 1 1
}

# The loser writes as fast as it can. After PREEMPT AND ABORT has been answered none of its bytes may come.
preempt_and_abort() {
	local fio
	pr_out "$A" --register-ignore --param-sark=0xa && pr_out "$B" --register-ignore --param-sark=0xb &&
		pr_out "$A" --reserve --param-rk=0xa --prout-type=5 || return 1
	sg_turs "$A"
	sg_turs "$B"
	fio --name=loser --filename="$A" --rw=randwrite --bs=64k --size=8m --iodepth=16 --direct=1 --ioengine=libaio --buffer_pattern=0xaa \
		--time_based --runtime=60 --aux-path=/run >/run/fio.loser 2>&1 &
	fio=$!
	sleep 2
	kill -0 $fio || { cat /run/fio.loser; return 1; }
	pr_out "$B" --preempt-abort --param-rk=0xb --param-sark=0xa --prout-type=5 || return 1
	dd if=/dev/zero of="$B" bs=1M count=8 oflag=direct || return 1
	wait $fio && { echo "the loser saw no error"; return 1; }
	cat /run/fio.loser
	is '0xb 0xb Write Exclusive, registrants only' && may "$A" 1 0 || return 1
	dd if="$B" bs=1M count=8 iflag=direct | cmp -n $((8 << 20)) - /dev/zero
}

# REGISTER AND MOVE to an initiator port named by its TransportID.
moving() {
	local id key=0xb
	pr_in "$B" --read-full-status >/run/full
	cat /run/full
	pr_out "$A" --register-ignore --param-sark=0xa && pr_in "$B" --read-full-status >/run/full || return 1
	id=$(grep -o "$INITIATOR,i,0x[0-9a-f]*" /run/full | head -n 1)
	[ -n "$id" ] || { cat /run/full; return 1; }
	pr_out "$B" --register-move --param-rk=$key --param-sark=0xa --relative-target-port=1 --transport-id="$id" || return 1
	is '0xa 0xb 0xa Write Exclusive, registrants only' && pr_out "$A" --clear --param-rk=0xa && told "$B" 'reservations preempted' && is none
}

# Registrations for others: SPEC_I_PT and ALL_TG_PT.
for_others() {
	local id
	pr_out "$A" --register --param-sark=0xa && pr_in "$A" --read-full-status >/run/full || return 1
	pr_out "$B" --register --param-sark=0xb && pr_in "$A" --read-full-status >/run/full || return 1
	id=$(grep -o "$TWO,i,0x[0-9a-f]*" /run/full | head -n 1)
	pr_out "$B" --register --param-rk=0xb --param-sark=0 && pr_out "$A" --register --param-rk=0xa --param-sark=0 && is none || return 1
	pr_out "$A" --register --param-sark=0xc --param-alltgpt --transport-id="$id" || return 1
	is '0xc 0xc none' && pr_in "$A" --read-full-status | grep -c 'All target ports bit set' | grep -qx 2 || return 1
	pr_out "$B" --reserve --param-rk=0xc --prout-type=1 && may "$A" 1 0 && pr_out "$B" --clear --param-rk=0xc && is none
}

# ---- APTPL ---------------------------------------------------------------------------------------------

back() { # both sessions work again
	start && configure || return 1
	until_true 60 eval 'sg_turs $A >/dev/null 2>&1 && sg_turs $B >/dev/null 2>&1'
}

with_aptpl() {
	pr_out "$A" --register --param-sark=0xa --param-aptpl && pr_out "$B" --register --param-sark=0xb --param-aptpl &&
		pr_out "$A" --reserve --param-rk=0xa --prout-type=6 || return 1
	pr_in "$A" --report-capabilities | grep 'PTPL_A): 1' && ls -l /run/state
}

survived() {
	is '0xa 0xb 0xa Exclusive Access, registrants only' && pr_in "$A" --read-full-status >/run/full || return 1
	cat /run/full
	grep -q "$INITIATOR,i,0x" /run/full && grep -q "$TWO,i,0x" /run/full && may "$A" 1 1 && may "$B" 1 1 || return 1
	pr_out "$B" --register --param-rk=0xb --param-sark=0 --param-aptpl && may "$B" 0 0 && pr_out "$B" --register --param-sark=0xb --param-aptpl
}

after_sigterm() { tgtd_stop && back && survived; }

after_sigkill() {
	tgtd_kill
	back && survived
}

# The last word counts: a registration without APTPL takes the file back.
without_aptpl() {
	pr_out "$A" --register-ignore --param-sark=0xa || return 1
	pr_in "$A" --report-capabilities | grep 'PTPL_A): 0' && tgtd_stop && back && is none && may "$B" 1 1
}

need 'memory disk' brd_up 1 65536
need 'tgtd starts' start
need 'target and LUN' configure
need 'initiator' iscsid_up
need 'a second initiator' second_initiator two $TWO
need 'login of both' eval "login $T $P && login $T $P two"
need 'a disk each' eval "wait_sd A $T 1 tcp && wait_sd B $T 1 two"
step 'register, register and ignore, wrong keys, capabilities' registering
step 'read full status' full_status
step 'write exclusive' each_type 1 'Write Exclusive' 1 0 1 0
step 'exclusive access' each_type 3 'Exclusive Access' 0 0 0 0
step 'write exclusive, registrants only' each_type 5 'Write Exclusive, registrants only' 1 1 1 0
step 'exclusive access, registrants only' each_type 6 'Exclusive Access, registrants only' 1 1 0 0
step 'write exclusive, all registrants' each_type 7 'Write Exclusive, all registrants' 1 1 1 0
step 'exclusive access, all registrants' each_type 8 'Exclusive Access, all registrants' 1 1 0 0
step 'release and reserve with another type are refused' wrong_type
step 'preempt' preempting
step 'preempt and abort under I/O' preempt_and_abort
step 'register and move' moving
step 'registration for another initiator, on all ports' for_others
step 'registrations that survive' with_aptpl
step 'they survive SIGTERM' after_sigterm
step 'they survive SIGKILL' after_sigkill
step 'and do not once APTPL is taken back' without_aptpl
step 'logout of both' logout $T
step 'kernel log: nothing but refused commands and lost connections' kernel_clean \
	'reservation conflict|Reservation Conflict|critical nexus error|Buffer I/O error|I/O error, dev sd|detected conn error|session recovery|connection.*closed'
step 'tgtd stops on SIGTERM' tgtd_stop
