/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What has come of a sequence with DataPDUInOrder=No: see dataout.h. */
#include "tgtd/iscsi/core.h"

bool iscsi_ranges_add(struct iscsi_ranges *s, uint64_t from, uint64_t to)
{
	unsigned i = 0;

	while (i < s->n && s->r[i].to < from)
		i++;
	/* i is the first that could touch it. */
	if (i < s->n && from < s->r[i].to && s->r[i].from < to)
		return false;
	if (i < s->n && s->r[i].to == from) {
		if (i + 1 < s->n && s->r[i + 1].from < to)
			return false;
		s->r[i].to = to;
		if (i + 1 < s->n && s->r[i + 1].from == to) {
			s->r[i].to = s->r[i + 1].to;
			memmove(&s->r[i + 1], &s->r[i + 2], (s->n - i - 2) * sizeof(s->r[0]));
			s->n--;
		}
		return true;
	}
	if (i < s->n && s->r[i].from == to) {
		s->r[i].from = from;
		return true;
	}
	if (s->n == ISCSI_RANGES_MAX)
		return false;
	memmove(&s->r[i + 1], &s->r[i], (s->n - i) * sizeof(s->r[0]));
	s->r[i].from = from;
	s->r[i].to = to;
	s->n++;
	return true;
}

bool iscsi_ranges_whole(const struct iscsi_ranges *s, uint64_t end)
{
	return !s->n || (s->n == 1 && s->r[0].from == 0 && s->r[0].to == end);
}

bool iscsi_in_place(const struct iscsi_conn *conn, struct iscsi_ranges *s, uint64_t start,
		    uint64_t got, uint64_t off, uint32_t len)
{
	if (conn->params.data_pdu_in_order)
		return off == start + got;
	if (!s->n) {
		if (off == start + got)
			return true;
		if (got) {
			s->r[0].from = start;
			s->r[0].to = start + got;
			s->n = 1;
		}
	}
	return !len || iscsi_ranges_add(s, off, off + len);
}
