/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The admin socket's requests and answers: any bytes are refused or decode to a request that
 * encodes to one which decodes to the same.
 */
#include <stdlib.h>

#include "conf/adm_proto.h"
#include "events/bug.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void same(const struct adm_req *a, const struct adm_req *b)
{
	BUG_ON(a->mode != b->mode || a->op != b->op || a->device_type != b->device_type ||
	       a->force != b->force || a->outgoing != b->outgoing || a->has_tid != b->has_tid ||
	       a->has_sid != b->has_sid || a->has_cid != b->has_cid || a->has_lun != b->has_lun ||
	       a->has_host != b->has_host || a->tid != b->tid || a->cid != b->cid ||
	       a->host != b->host || a->sid != b->sid || a->lun != b->lun);
	for (unsigned i = 0; i < ADM_TEXTS; i++)
		BUG_ON(!a->text[i] != !b->text[i] ||
		       (a->text[i] && strcmp(a->text[i], b->text[i])));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t buf[ADM_REQ_HEADER + ADM_REQ_MAX];
	struct adm_req req, again;
	enum adm_status status;
	uint32_t text, detail;
	uint8_t *exact;
	int len;

	if (size >= ADM_RSP_HEADER && !adm_rsp_decode(data, &status, &text, &detail))
		BUG_ON(text > ADM_RSP_MAX || detail > ADM_REQ_MAX || !adm_status_text(status));
	if (size < ADM_REQ_HEADER)
		return 0;
	/* the header only when it is right: fuzzing need not find the magic bytes */
	len = adm_req_header(data);
	BUG_ON(len > ADM_REQ_MAX);
	data += ADM_REQ_HEADER;
	size = MIN(size - ADM_REQ_HEADER, (size_t)ADM_REQ_MAX);
	exact = malloc(size ? size : 1);
	BUG_ON(!exact);
	memcpy(exact, data, size);
	if (!adm_req_decode(&req, exact, size)) {
		size_t n = adm_req_encode(&req, buf, sizeof(buf));

		/* device type 0 is always said when encoding, so it may be longer than what came */
		if (n) {
			BUG_ON(adm_req_header(buf) != (int)(n - ADM_REQ_HEADER));
			BUG_ON(adm_req_decode(&again, buf + ADM_REQ_HEADER, n - ADM_REQ_HEADER));
			same(&req, &again);
		}
	}
	free(exact);
	return 0;
}
