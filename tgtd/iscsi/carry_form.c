/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See carry_form.h. */
#include "events/bug.h"
#include "tgtd/iscsi/carry_form.h"
#include "tgtd/iscsi/digest.h"
#include "tgtd/iscsi/session.h"

#define CARRY_MAGIC 0x6e6f697373657331ull

struct carry_head {
	uint64_t magic;
	uint32_t version;
	uint32_t crc; /* of all behind it */
	uint64_t len; /* of that */
	uint32_t sessions, next_tsih;
	uint32_t session_len, lun_len, conn_len;
	uint32_t reserved;
};
static_assert(sizeof(struct carry_head) == CARRY_HEAD_LEN, "its size is known");
static_assert(sizeof(struct carry_session) % 8 == 0 && sizeof(struct carry_lun) % 8 == 0 &&
		      sizeof(struct carry_conn) % 8 == 0,
	      "aligned, one behind the other");
/* So long is what version 1 has at least. */
#define SESSION_MIN sizeof(struct carry_session)
#define LUN_MIN offsetof(struct carry_lun, blocks)
#define CONN_MIN sizeof(struct carry_conn)
#define STRUCT_MAX KiB(64) /* of any version */

uint32_t carry_crc(uint32_t crc, const void *data, size_t len)
{
	ASSERT(len <= CARRY_SIZE_MAX);
	return digest_update(crc, data, (uint32_t)len);
}

/* ---- parameters ------------------------------------------------------------------------------ */

void carry_put_params(struct carry_params *out, const struct iscsi_params *p)
{
	*out = (struct carry_params){
		.header_digest = p->header_digest,
		.data_digest = p->data_digest,
		.initial_r2t = p->initial_r2t,
		.immediate_data = p->immediate_data,
		.data_pdu_in_order = p->data_pdu_in_order,
		.data_sequence_in_order = p->data_sequence_in_order,
		.error_recovery_level = p->error_recovery_level,
		.max_connections = p->max_connections,
		.max_outstanding_r2t = p->max_outstanding_r2t,
		.time2wait = p->time2wait,
		.time2retain = p->time2retain,
		.max_burst = p->max_burst,
		.first_burst = p->first_burst,
		.max_recv_dsl = p->max_recv_dsl,
		.max_xmit_dsl = p->max_xmit_dsl,
	};
}

void carry_get_params(struct iscsi_params *p, const struct carry_params *in)
{
	iscsi_params_init(p); /* what only iSER has */
	p->header_digest = in->header_digest;
	p->data_digest = in->data_digest;
	p->initial_r2t = in->initial_r2t;
	p->immediate_data = in->immediate_data;
	p->data_pdu_in_order = in->data_pdu_in_order;
	p->data_sequence_in_order = in->data_sequence_in_order;
	p->error_recovery_level = (uint8_t)in->error_recovery_level;
	p->max_connections = (uint16_t)in->max_connections;
	p->max_outstanding_r2t = (uint16_t)in->max_outstanding_r2t;
	p->time2wait = (uint16_t)in->time2wait;
	p->time2retain = (uint16_t)in->time2retain;
	p->max_burst = in->max_burst;
	p->first_burst = in->first_burst;
	p->max_recv_dsl = in->max_recv_dsl;
	p->max_xmit_dsl = in->max_xmit_dsl;
}

/* RFC 7143 clause 13: its keys' ranges. */
static bool params_wrong(const struct carry_params *p)
{
	const uint32_t flags = p->header_digest | p->data_digest | p->initial_r2t |
			       p->immediate_data | p->data_pdu_in_order | p->data_sequence_in_order;
	const uint32_t length_min = 512, length_max = (1 << 24) - 1;

	if (flags > 1 || p->error_recovery_level > 1)
		return true;
	if (!p->max_connections || p->max_connections > UINT16_MAX || !p->max_outstanding_r2t ||
	    p->max_outstanding_r2t > UINT16_MAX || p->time2wait > 3600 || p->time2retain > 3600)
		return true;
	return p->first_burst < length_min || p->first_burst > p->max_burst ||
	       p->max_burst > length_max || p->max_recv_dsl < length_min ||
	       p->max_recv_dsl > length_max || p->max_xmit_dsl < length_min ||
	       p->max_xmit_dsl > length_max;
}

/* ---- writing --------------------------------------------------------------------------------- */

void carry_put_head(uint8_t out[CARRY_HEAD_LEN], uint32_t n, uint32_t next_tsih, uint64_t len,
		    uint32_t crc)
{
	const struct carry_head h = { .magic = CARRY_MAGIC,
				      .version = CARRY_VERSION,
				      .len = len,
				      .sessions = n,
				      .next_tsih = next_tsih,
				      .session_len = sizeof(struct carry_session),
				      .lun_len = sizeof(struct carry_lun),
				      .conn_len = sizeof(struct carry_conn) };

	memcpy(out, &h, sizeof(h));
	/* The sessions first, then what the head says of them. */
	crc = carry_crc(crc, out + offsetof(struct carry_head, len),
			sizeof(h) - offsetof(struct carry_head, len));
	memcpy(out + offsetof(struct carry_head, crc), &crc, sizeof(crc));
}

/* By powers of two: all of one class, or as many as there is room for and none above. */
#define SIZE_CLASSES 65u

static unsigned size_class(uint64_t size)
{
	return size ? 64u - (unsigned)__builtin_clzll(size) : 0;
}

uint64_t carry_choose(const uint64_t *size, bool *fits, unsigned n, uint64_t room)
{
	uint64_t of_class[SIZE_CLASSES] = { 0 }, used = 0;
	unsigned all = 0;

	for (unsigned i = 0; i < n; i++)
		of_class[size_class(size[i])] += size[i];
	while (all < SIZE_CLASSES && of_class[all] <= room - used)
		used += of_class[all++];
	for (unsigned i = 0; i < n; i++) {
		const unsigned c = size_class(size[i]);

		fits[i] = c < all || (c == all && size[i] <= room - used);
		used += c == all && fits[i] ? size[i] : 0;
	}
	return used;
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool length_ok(uint32_t len, size_t min)
{
	return len >= min && len <= STRUCT_MAX && len % 8 == 0;
}

int carry_read(struct carry_reader *r, const void *data, size_t len)
{
	struct carry_head h;
	uint32_t crc;

	if (len < sizeof(h) || len > CARRY_SIZE_MAX)
		return -EBADMSG;
	memcpy(&h, data, sizeof(h));
	if (h.magic != CARRY_MAGIC)
		return -EBADMSG;
	if (h.version != CARRY_VERSION)
		return -ENOTSUP;
	if (h.len != len - sizeof(h))
		return -EBADMSG;
	*r = (struct carry_reader){ .p = (const uint8_t *)data + sizeof(h),
				    .end = (const uint8_t *)data + len,
				    .sessions = h.sessions,
				    .next_tsih = h.next_tsih,
				    .session_len = h.session_len,
				    .lun_len = h.lun_len,
				    .conn_len = h.conn_len };
	crc = carry_crc(DIGEST_INIT, r->p, h.len);
	crc = carry_crc(crc, (const uint8_t *)&h + offsetof(struct carry_head, len),
			sizeof(h) - offsetof(struct carry_head, len));
	if (crc != h.crc || h.next_tsih > UINT16_MAX || h.sessions > UINT16_MAX ||
	    !length_ok(h.session_len, SESSION_MIN) || !length_ok(h.lun_len, LUN_MIN) ||
	    !length_ok(h.conn_len, CONN_MIN))
		return -EBADMSG;
	return 0;
}

/* A struct of @len bytes there goes to @out, of which we know @size. */
static bool take_struct(struct carry_reader *r, uint32_t len, void *out, size_t size)
{
	if ((size_t)(r->end - r->p) < len)
		return false;
	memcpy(out, r->p, MIN(len, size));
	r->p += len;
	return true;
}

bool carry_read_session(struct carry_reader *r, struct carry_session *s)
{
	memset(s, 0, sizeof(*s));
	if (!r->sessions || !take_struct(r, r->session_len, s, sizeof(*s)))
		return false;
	r->sessions--;
	return s->nluns <= SCSI_MAX_LUN + 1 && s->nconns && s->nconns <= CARRY_CONNS_MAX;
}

bool carry_read_lun(struct carry_reader *r, struct carry_lun *l)
{
	memset(l, 0, sizeof(*l));
	return take_struct(r, r->lun_len, l, sizeof(*l));
}

bool carry_read_conn(struct carry_reader *r, struct carry_conn *c, const uint8_t **unparsed)
{
	uint64_t len;

	memset(c, 0, sizeof(*c));
	if (!take_struct(r, r->conn_len, c, sizeof(*c)))
		return false;
	len = ALIGN_UP((uint64_t)c->unparsed, 8u);
	if (c->unparsed > CARRY_UNPARSED_MAX || len > (uint64_t)(r->end - r->p))
		return false;
	*unparsed = r->p;
	r->p += len;
	return true;
}

/* ---- what is wrong with it ------------------------------------------------------------------- */

static bool text_wrong(const char *text, size_t size, bool may_be_empty)
{
	const size_t len = strnlen(text, size);

	return len == size || (!len && !may_be_empty);
}

static bool address_wrong(const struct sockaddr_storage *a)
{
	return a->ss_family != AF_INET && a->ss_family != AF_INET6 && a->ss_family != AF_UNIX &&
	       a->ss_family != AF_UNSPEC;
}

const char *carry_session_wrong(const struct carry_session *s)
{
	if (!s->tid || !s->tsih || s->tsih > UINT16_MAX || s->tpgt > UINT16_MAX)
		return "its numbers";
	/* Nothing is under way: what may come is what the window has room for. */
	if (!s->window || s->window > ISCSI_CMD_WINDOW ||
	    s->max_cmd_sn + 1 - s->exp_cmd_sn > s->window || s->luns_changed > 1)
		return "its window";
	if (params_wrong(&s->params) || s->nconns > s->params.max_connections)
		return "its parameters";
	if (text_wrong(s->target, sizeof(s->target), false) ||
	    text_wrong(s->initiator, sizeof(s->initiator), false) ||
	    text_wrong(s->alias, sizeof(s->alias), true) ||
	    text_wrong(s->user, sizeof(s->user), true))
		return "its names";
	return address_wrong(&s->peer) ? "its address" : NULL;
}

const char *carry_lun_wrong(const struct carry_lun *l)
{
	if (l->lun > SCSI_MAX_LUN || l->nua > SCSI_CARRIED_UAS || (l->holds & ~SCSI_CARRIED_ALL))
		return "a logical unit";
	for (unsigned i = 0; i < l->nua; i++)
		if (!l->ua[i])
			return "a unit attention";
	return NULL;
}

const char *carry_conn_wrong(const struct carry_conn *c, const struct carry_session *s)
{
	if (c->cid > UINT16_MAX || c->tpgt > UINT16_MAX || c->counted > 1)
		return "a connection's numbers";
	/* Beyond what it was sent, nobody acknowledges. */
	if (sn_lt(c->stat_sn, c->exp_stat_sn))
		return "a connection's StatSN";
	if (params_wrong(&c->params) ||
	    c->params.error_recovery_level != s->params.error_recovery_level)
		return "a connection's parameters";
	return address_wrong(&c->peer) || address_wrong(&c->local) ? "a connection's address" :
								     NULL;
}
