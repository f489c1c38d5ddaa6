/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the service actions of PERSISTENT RESERVE OUT make of a state (SPC-4 6.16), and whom that
 * keeps out. */
#include "events/bytes.h"
#include "tgtd/scsi/commands/pr_rules.h"

static const struct pr_outcome pr_good = { .status = SAM_GOOD },
			       pr_refused = { .status = SAM_RESERVATION_CONFLICT };

static struct pr_outcome pr_changed(void)
{
	return (struct pr_outcome){ .status = SAM_GOOD, .changed = true };
}

static struct pr_outcome pr_bad_param(uint16_t byte)
{
	return (struct pr_outcome){ .status = SAM_CHECK_CONDITION,
				    .asc = ASC_INVALID_FIELD_IN_PARAMETER_LIST,
				    .field = byte };
}

static struct pr_outcome pr_check(uint16_t asc)
{
	return (struct pr_outcome){ .status = SAM_CHECK_CONDITION, .asc = asc };
}

/* All registrants but @except are told that the reservation has gone. */
static void tell_released(struct scsi_pr *pr, const struct pr_reg *except)
{
	struct pr_reg *reg;

	list_for_each(reg, &pr->regs, link)
		reg->released += reg != except;
}

static void pr_release(struct scsi_pr *pr, const struct pr_reg *by)
{
	/* SPC-4 5.12.11.2.2: registrants of these types have been using what is gone now. */
	if (pr_registrants(pr->type))
		tell_released(pr, by);
	pr->type = PR_NONE;
	pr->holder = NULL;
}

static void unregister(struct scsi_pr *pr, struct pr_reg *reg)
{
	if (pr_all_registrants(pr->type)) {
		if (pr->nregs == 1)
			pr->type = PR_NONE;
	} else if (pr->holder == reg) {
		pr_release(pr, reg);
	}
	pr_remove(pr, reg, 0, false);
}

/* Takes back the registrations added last, down to @before. */
static void unregister_last(struct scsi_pr *pr, unsigned before)
{
	while (pr->nregs > before)
		pr_remove(pr, list_entry(pr->regs.prev, struct pr_reg, link), 0, false);
	pr_forget_gone(pr);
}

/* How many more the initiator that asks may make. */
static unsigned pr_room(const struct scsi_pr *pr, const struct pr_request *q)
{
	const struct pr_reg *reg;
	unsigned made = 0;

	list_for_each(reg, &pr->regs, link)
		made += pr_made_by(reg, q->iqn);
	return MIN(q->unit_max - MIN(pr->nregs, q->unit_max),
		   q->initiator_max - MIN(made, q->initiator_max));
}

static bool pr_has_room(const struct scsi_pr *pr, const struct pr_request *q, size_t more)
{
	return !q->has_room || q->has_room(pr, more);
}

/* The TransportIDs of SPEC_I_PT, from byte 24 on: @room of them at most. All or none. */
static struct pr_outcome register_others(struct scsi_pr *pr, const struct pr_request *q,
					 uint64_t key, bool all_ports, unsigned room)
{
	const uint8_t *p = q->data + 28;
	size_t left, n;
	unsigned before = pr->nregs;
	struct pr_outcome r;

	if (q->len < 28 || get_be32(q->data + 24) != q->len - 28)
		return pr_check(ASC_PARAMETER_LIST_LENGTH_ERROR);
	for (left = q->len - 28; left > 0; left -= n, p += n) {
		char name[SCSI_PORT_NAME_MAX];
		struct pr_reg *reg;
		bool device;

		n = pr_transport_id_parse(p, left, name, &device);
		r = pr_bad_param((uint16_t)(p - q->data));
		if (n == 0 || pr_find(pr, name, q->rtpi))
			goto undo;
		reg = pr->nregs - before < room ? pr_add(pr, name, q->rtpi, key, q->iqn) : NULL;
		if (!reg) {
			r = pr_check(ASC_INSUFFICIENT_REGISTRATION_RESOURCES);
			goto undo;
		}
		reg->device = device;
		reg->all_ports = all_ports;
	}
	return pr_changed();
undo:
	unregister_last(pr, before);
	return r;
}

static struct pr_outcome do_register(struct scsi_pr *pr, const struct pr_request *q,
				     struct pr_reg *reg, bool ignore)
{
	const uint8_t *p = q->data;
	uint64_t key = get_be64(p), new_key = get_be64(p + 8);
	bool spec_i_pt = p[20] & 0x08, all_ports = p[20] & 0x04, aptpl = p[20] & 0x01;
	unsigned before = pr->nregs, room;
	struct pr_outcome r;

	if (!ignore && key != (reg ? reg->key : 0))
		return pr_refused;
	if (aptpl && !q->lasts)
		return pr_bad_param(20);
	/* who takes part in nothing names nobody else */
	if (spec_i_pt && (ignore || reg || new_key == 0))
		return pr_bad_param(20);
	if (!spec_i_pt && q->len != 24)
		return pr_check(ASC_PARAMETER_LIST_LENGTH_ERROR);
	if (reg) {
		if (new_key == 0)
			unregister(pr, reg);
		else
			reg->key = new_key;
	} else if (new_key == 0) {
		return pr_good; /* nothing to take away */
	} else if (!pr_has_room(pr, q, q->len / 24)) {
		return pr_check(ASC_INSUFFICIENT_REGISTRATION_RESOURCES);
	} else {
		room = pr_room(pr, q);
		if (spec_i_pt) {
			r = register_others(pr, q, new_key, all_ports, room);
			if (r.status != SAM_GOOD)
				return r;
		}
		/* Named itself above? */
		reg = pr_find(pr, q->initiator, q->rtpi);
		if (!reg && pr->nregs - before < room)
			reg = pr_add(pr, q->initiator, q->rtpi, new_key, NULL);
		if (!reg) {
			unregister_last(pr, before); /* the others too: all or none */
			return pr_check(ASC_INSUFFICIENT_REGISTRATION_RESOURCES);
		}
		reg->all_ports = all_ports;
	}
	pr->aptpl = aptpl;
	pr->generation++;
	return pr_changed();
}

static struct pr_outcome do_reserve(struct scsi_pr *pr, struct pr_reg *reg, uint8_t type)
{
	if (pr->type) /* again the same is no change, anything else a conflict */
		return pr_holds(pr, reg) && pr->type == type ? pr_good : pr_refused;
	pr->type = type;
	pr->holder = pr_all_registrants(type) ? NULL : reg;
	return pr_changed();
}

static struct pr_outcome do_release(struct scsi_pr *pr, const struct pr_reg *reg, uint8_t type)
{
	if (!pr_holds(pr, reg))
		return pr_good;
	if (pr->type != type)
		return pr_check(ASC_INVALID_RELEASE_OF_PERSISTENT_RESERVATION);
	pr_release(pr, reg);
	return pr_changed();
}

static struct pr_outcome do_clear(struct scsi_pr *pr, const struct pr_reg *own)
{
	pr->type = PR_NONE;
	pr->holder = NULL;
	while (!list_empty(&pr->regs)) {
		struct pr_reg *reg = list_first(&pr->regs, struct pr_reg, link);

		pr_remove(pr, reg, reg == own ? 0 : UA_RES_PREEMPTED, false);
	}
	pr->generation++;
	return pr_changed();
}

/* SPC-4 5.12.11.4 */
static struct pr_outcome do_preempt(struct scsi_pr *pr, const struct pr_request *q,
				    struct pr_reg *own)
{
	struct pr_reg *reg, *tmp;
	uint64_t victim = get_be64(q->data + 8);
	bool all = pr_all_registrants(pr->type), take;
	uint8_t before = pr->type;
	unsigned n = 0;

	if (victim == 0 && !all)
		return pr_bad_param(8);
	/* Does this take the reservation, or only registrations? */
	take = all ? victim == 0 : pr->holder && pr->holder->key == victim;
	list_for_each(reg, &pr->regs, link)
		n += victim == 0 || reg->key == victim;
	if (n == 0)
		return pr_refused;
	if (take) {
		pr->type = PR_NONE;
		pr->holder = NULL;
	}
	list_for_each_safe(reg, tmp, &pr->regs, link)
		if (reg != own && (victim == 0 || reg->key == victim))
			pr_remove(pr, reg, UA_REG_PREEMPTED, q->action == PR_PREEMPT_AND_ABORT);
	if (take) {
		pr->type = q->type;
		pr->holder = pr_all_registrants(q->type) ? NULL : own;
		if (before != q->type &&
		    pr_registrants(before)) /* the others' access has changed */
			tell_released(pr, own);
	} else if (all && pr->nregs == 0) {
		pr->type = PR_NONE;
	}
	pr->generation++;
	return pr_changed();
}

/* SPC-4 5.12.8 */
static struct pr_outcome do_move(struct scsi_pr *pr, const struct pr_request *q, struct pr_reg *own)
{
	const uint8_t *p = q->data;
	struct pr_reg *to;
	uint64_t new_key = get_be64(p + 8);
	bool unreg = p[17] & 0x02, aptpl = p[17] & 0x01, device;
	uint16_t rtpi = get_be16(p + 18);
	char name[SCSI_PORT_NAME_MAX];

	if (!pr->type) /* INVALID FIELD IN CDB: there is nothing to move */
		return pr_check(ASC_INVALID_FIELD_IN_CDB);
	if (pr->holder != own) /* also when all registrants hold it */
		return pr_refused;
	if (new_key == 0)
		return pr_bad_param(8);
	if (aptpl && !q->lasts)
		return pr_bad_param(17);
	if (get_be32(p + 20) != q->len - 24)
		return pr_check(ASC_PARAMETER_LIST_LENGTH_ERROR);
	if (pr_transport_id_parse(p + 24, q->len - 24, name, &device) != q->len - 24)
		return pr_bad_param(24);
	if (pr_matches(own, name, rtpi) || rtpi == 0)
		return pr_bad_param(rtpi == 0 ? 18 : 24);
	to = pr_find(pr, name, rtpi);
	if (!to) {
		to = pr_has_room(pr, q, 1) && pr_room(pr, q) ?
			     pr_add(pr, name, rtpi, new_key, q->iqn) :
			     NULL;
		if (!to)
			return pr_check(ASC_INSUFFICIENT_REGISTRATION_RESOURCES);
		to->device = device;
	}
	to->key = new_key;
	pr->holder = to;
	if (unreg)
		pr_remove(pr, own, 0, false);
	pr->aptpl = aptpl;
	pr->generation++;
	return pr_changed();
}

struct pr_outcome pr_do(struct scsi_pr *pr, const struct pr_request *q)
{
	struct pr_reg *own = pr_find(pr, q->initiator, q->rtpi);
	struct pr_outcome r;

	/* Only the two that register are open to those who are not registered, and every other one
	 * must know its key. */
	if (q->action == PR_REGISTER || q->action == PR_REGISTER_AND_IGNORE)
		r = do_register(pr, q, own, q->action == PR_REGISTER_AND_IGNORE);
	else if (!own || own->key != get_be64(q->data))
		r = pr_refused;
	else if (q->action == PR_RESERVE)
		r = do_reserve(pr, own, q->type);
	else if (q->action == PR_RELEASE)
		r = do_release(pr, own, q->type);
	else if (q->action == PR_CLEAR)
		r = do_clear(pr, own);
	else if (q->action == PR_REGISTER_AND_MOVE)
		r = do_move(pr, q, own);
	else
		r = do_preempt(pr, q, own);
	return r;
}

uint32_t pr_denied(const struct scsi_pr *pr, const struct pr_reg *reg)
{
	if (!pr->type || pr_holds(pr, reg) || (pr_registrants(pr->type) && reg))
		return 0;
	switch (pr->type) {
	case PR_WRITE_EXCLUSIVE:
	case PR_WRITE_EXCLUSIVE_RO:
	case PR_WRITE_EXCLUSIVE_AR:
		return GATE_DENY_WRITE;
	default:
		return GATE_DENY_WRITE | GATE_DENY_READ;
	}
}
