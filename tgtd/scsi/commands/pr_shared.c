/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See pr_shared.h. */
#include <stdlib.h>
#include "events/bytes.h"
#include "tgtd/scsi/commands/pr_shared.h"

#define PR_FORM 1
#define PR_REG_FIXED 24 /* bytes of a registration besides its texts */

static_assert(SCSI_PORT_NAME_MAX <= 256, "a name's length is one byte");

void pr_shared_init(struct pr_shared *s)
{
	pr_init(&s->pr);
	s->ngone = 0;
}

/* ---- writing --------------------------------------------------------------------------------- */

static uint8_t *put_number(uint8_t *p, uint64_t v, unsigned bytes)
{
	while (bytes--)
		*p++ = (uint8_t)(v >> (8 * bytes));
	return p;
}

static uint8_t *put_pr_text(uint8_t *p, const char *text)
{
	const size_t n = strlen(text);

	*p++ = (uint8_t)n;
	memcpy(p, text, n);
	return p + n;
}

/* How many bytes it takes. */
static size_t reg_bytes(const struct pr_reg *reg)
{
	return PR_REG_FIXED + strlen(reg->initiator) + (reg->maker ? 1 + strlen(reg->maker) : 0);
}

static uint8_t *put_reg(uint8_t *p, const struct pr_reg *reg)
{
	p = put_number(p, reg->id, 8);
	p = put_number(p, reg->key, 8);
	p = put_number(p, reg->rtpi, 2);
	p = put_number(p,
		       (reg->device ? PR_SHARED_DEVICE : 0) |
			       (reg->all_ports ? PR_SHARED_ALL_PORTS : 0) |
			       (reg->maker ? PR_SHARED_MAKER : 0),
		       1);
	p = put_number(p, reg->released, 4);
	p = put_pr_text(p, reg->initiator);
	return reg->maker ? put_pr_text(p, reg->maker) : p;
}

size_t pr_encode(const struct pr_shared *s, uint8_t *buf)
{
	const struct scsi_pr *pr = &s->pr;
	const struct pr_reg *reg;
	uint8_t *p = buf;

	p = put_number(p, PR_FORM, 1);
	p = put_number(p, pr->generation, 4);
	p = put_number(p, pr->type, 1);
	p = put_number(p, pr->aptpl, 1);
	p = put_number(p, pr->holder ? pr->holder->id : 0, 8);
	p = put_number(p, pr->last_id, 8);
	p = put_number(p, pr->nregs, 2);
	list_for_each(reg, &pr->regs, link)
		p = put_reg(p, reg);
	p = put_number(p, s->ngone, 2);
	for (unsigned i = 0; i < s->ngone; i++) {
		p = put_number(p, s->gone[i].id, 8);
		p = put_number(p, s->gone[i].ua, 2);
		p = put_number(p, s->gone[i].abort, 1);
	}
	return (size_t)(p - buf);
}

/* ---- reading --------------------------------------------------------------------------------- */

struct pr_in {
	const uint8_t *p, *end;
	const char *why; /* the first thing that is wrong */
};

static uint64_t get_number(struct pr_in *r, unsigned bytes)
{
	uint64_t v = 0;

	if ((size_t)(r->end - r->p) < bytes) {
		r->why = r->why ?: "they are cut short";
		r->p = r->end;
		return 0;
	}
	while (bytes--)
		v = v << 8 | *r->p++;
	return v;
}

static void pr_in_check(struct pr_in *r, bool ok, const char *why)
{
	if (!ok && !r->why)
		r->why = why;
}

/* One word, as the names of ports and devices are; "" when it is none. */
static void get_text(struct pr_in *r, char text[SCSI_PORT_NAME_MAX])
{
	const size_t n = get_number(r, 1);

	*text = 0;
	pr_in_check(r, n && n <= (size_t)(r->end - r->p), "a name does not fit");
	for (size_t i = 0; !r->why && i < n; i++)
		pr_in_check(r, r->p[i] > ' ' && r->p[i] != 0x7f, "a name is none");
	if (r->why)
		return;
	memcpy(text, r->p, n);
	text[n] = 0;
	r->p += n;
}

static void get_reg(struct pr_in *r, struct scsi_pr *pr, uint64_t last_id, uint64_t holder)
{
	char name[SCSI_PORT_NAME_MAX], maker[SCSI_PORT_NAME_MAX] = "";
	const uint64_t id = get_number(r, 8), key = get_number(r, 8);
	const uint16_t rtpi = (uint16_t)get_number(r, 2);
	const uint8_t bits = (uint8_t)get_number(r, 1);
	const uint32_t released = (uint32_t)get_number(r, 4);
	struct pr_reg *reg;

	pr_in_check(r, id > pr->last_id && id <= last_id, "a registration's number is wrong");
	pr_in_check(r, key && !(bits & ~PR_SHARED_BITS), "a registration is none");
	get_text(r, name);
	if (bits & PR_SHARED_MAKER)
		get_text(r, maker);
	reg = r->why ? NULL : pr_add(pr, name, rtpi, key, *maker ? maker : NULL);
	pr_in_check(r, reg, "there is no memory");
	if (!reg)
		return;
	reg->id = pr->last_id = id;
	reg->device = bits & PR_SHARED_DEVICE;
	reg->all_ports = bits & PR_SHARED_ALL_PORTS;
	reg->released = released;
	if (id == holder)
		pr->holder = reg;
}

static void get_gone(struct pr_in *r, struct pr_gone *g, uint64_t last_id)
{
	uint8_t abort;

	g->id = get_number(r, 8);
	g->ua = (uint16_t)get_number(r, 2);
	abort = (uint8_t)get_number(r, 1);
	g->abort = abort;
	pr_in_check(r, g->id && g->id <= last_id && abort <= 1, "what is gone is unknown");
	pr_in_check(r, !g->ua || g->ua == UA_RES_PREEMPTED || g->ua == UA_REG_PREEMPTED,
		    "a unit attention is unknown");
}

const char *pr_decode(struct pr_shared *s, const void *bytes, size_t len)
{
	struct pr_in r = { bytes, (const uint8_t *)bytes + len, NULL };
	struct scsi_pr *pr = &s->pr;
	uint64_t holder, last_id;
	unsigned n, aptpl;

	pr_shared_init(s);
	if (!len)
		return NULL;
	pr_in_check(&r, get_number(&r, 1) == PR_FORM, "another version of tgtd wrote them");
	pr->generation = (uint32_t)get_number(&r, 4);
	pr->type = (uint8_t)get_number(&r, 1);
	pr_in_check(&r, pr_type_known(pr->type), "their type is unknown");
	aptpl = (unsigned)get_number(&r, 1);
	pr_in_check(&r, aptpl <= 1, "APTPL is neither 0 nor 1");
	pr->aptpl = aptpl;
	holder = get_number(&r, 8);
	last_id = get_number(&r, 8);
	/* So that no later number is another's. */
	pr_in_check(&r, last_id <= PR_ID_MAX, "the last registration's number is wrong");
	n = (unsigned)get_number(&r, 2);
	pr_in_check(&r, n <= PR_SHARED_REGISTRATIONS, "there are too many registrations");
	for (unsigned i = 0; i < n && !r.why; i++)
		get_reg(&r, pr, last_id, holder);
	pr->last_id = last_id;
	n = (unsigned)get_number(&r, 2);
	pr_in_check(&r, n <= PR_SHARED_GONE, "too many registrations are gone");
	for (; s->ngone < n && !r.why; s->ngone++)
		get_gone(&r, &s->gone[s->ngone], last_id);
	if (!pr->type || pr_all_registrants(pr->type))
		pr_in_check(&r, !holder && (!pr->type || pr->nregs), "nobody can hold this");
	else
		pr_in_check(&r, pr->holder, "who holds it is not registered");
	pr_in_check(&r, r.p == r.end, "they are longer than their fields");
	if (r.why)
		pr_fini(pr);
	return r.why;
}

/* ---- changes --------------------------------------------------------------------------------- */

struct pr_gone pr_shared_gone(const struct pr_shared *s, uint64_t id)
{
	for (unsigned i = s->ngone; i-- > 0;)
		if (s->gone[i].id == id)
			return s->gone[i];
	return (struct pr_gone){ .id = id, .ua = UA_REG_PREEMPTED };
}

/* What the action has taken away is for other gateways to see. */
static void note_gone(struct pr_shared *s)
{
	const struct pr_reg *reg;

	list_for_each(reg, &s->pr.gone, link) {
		if (s->ngone == PR_SHARED_GONE)
			memmove(s->gone, s->gone + 1, --s->ngone * sizeof(s->gone[0]));
		s->gone[s->ngone++] =
			(struct pr_gone){ .id = reg->id, .ua = reg->ua, .abort = reg->abort };
	}
	pr_forget_gone(&s->pr);
}

/* Bytes of all registrations, or of those that @iqn has made. */
static size_t regs_bytes(const struct scsi_pr *pr, const char *iqn)
{
	const struct pr_reg *reg;
	size_t n = 0;

	list_for_each(reg, &pr->regs, link)
		if (!iqn || pr_made_by(reg, iqn))
			n += reg_bytes(reg);
	return n;
}

int pr_shared_do(const uint8_t *from, size_t from_len, struct pr_request q, uint8_t *to,
		 size_t *to_len, struct pr_outcome *r)
{
	struct pr_shared *s = malloc(sizeof(*s));
	const char *why = s ? pr_decode(s, from, from_len) : NULL;
	size_t own;

	if (!s || why) {
		free(s);
		return s ? -EBADMSG : -ENOMEM;
	}
	q.lasts = true; /* the object outlives all of them */
	q.unit_max = PR_SHARED_REGISTRATIONS;
	q.initiator_max = PR_SHARED_INITIATOR;
	q.has_room = NULL;
	own = regs_bytes(&s->pr, q.iqn);
	*r = pr_do(&s->pr, &q);
	if (r->changed && (regs_bytes(&s->pr, NULL) > PR_SHARED_BYTES ||
			   regs_bytes(&s->pr, q.iqn) > MAX(own, PR_SHARED_INITIATOR_BYTES)))
		*r = (struct pr_outcome){ .status = SAM_CHECK_CONDITION,
					  .asc = ASC_INSUFFICIENT_REGISTRATION_RESOURCES };
	if (r->changed) {
		note_gone(s);
		*to_len = pr_encode(s, to);
	}
	pr_fini(&s->pr);
	free(s);
	return 0;
}
