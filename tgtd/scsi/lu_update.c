/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tgtd's `update` of a logical unit: values by name, the unit attention that each change deserves.
 * Main loop; what commands see of it changes under lu->lock.
 */
#include <errno.h>
#include <stdlib.h>
#include <strings.h>
#include "events/hash.h"
#include "tgtd/scsi/lu.h"

static bool parse_bool(const char *v, bool *out)
{
	static const char *const yes[] = { "1", "yes", "on", "true" }, *const no[] = { "0", "no",
										       "off",
										       "false" };

	for (unsigned i = 0; i < ARRAY_SIZE(yes); i++) {
		if (strcasecmp(v, yes[i]) == 0) {
			*out = true;
			return true;
		}
		if (strcasecmp(v, no[i]) == 0) {
			*out = false;
			return true;
		}
	}
	return false;
}

static bool lu_update_parse_number(const char *v, uint64_t max, uint64_t *out)
{
	char *end;

	if (v[0] < '0' || v[0] > '9')
		return false;
	errno = 0;
	*out = strtoull(v, &end, 0);
	return errno == 0 && *end == 0 && *out <= max;
}

/* SPC-4 4.4.1: printable ASCII. What does not fit the field is cut off, as tgt does: consumers
 * give longer texts and count on it. 0, -EINVAL, or how much is left. */
static int parse_text(const char *v, char *dst, size_t size)
{
	size_t n = strlen(v), fits = MIN(n, size - 1);

	for (size_t i = 0; i < n; i++)
		if (v[i] < 0x20 || v[i] > 0x7e)
			return -EINVAL;
	memset(dst, 0, size);
	memcpy(dst, v, fits);
	return fits < n ? (int)fits : 0;
}

/* Two units whose scsi_id differs behind the cut stay two: multipath goes by the NAA, which is made
 * of scsi_id, and would write to one what belongs to the other. */
static int parse_scsi_id(const char *v, struct scsi_lu_conf *conf)
{
	int left = parse_text(v, conf->scsi_id, sizeof(conf->scsi_id));

	if (left >= 0)
		conf->scsi_id_rest = left ? fnv1a(0, v + left, strlen(v + left)) ?: 1 : 0;
	return left;
}

/* SPC-4 7.8.6.6: IEEE Extended (2), Locally Assigned (3), IEEE Registered (5) have eight bytes,
 * IEEE Registered Extended (6) sixteen. */
static bool parse_naa(const char *v, char *dst, size_t size)
{
	size_t n = strlen(v);
	bool hex = strspn(v, "0123456789abcdefABCDEF") == n;

	if (n && !(hex && n == 16 && strchr("235", *v)) && !(hex && n == 32 && *v == '6'))
		return false;
	return parse_text(v, dst, size) == 0;
}

enum update_kind {
	UPD_TEXT, UPD_ID, UPD_NAA, UPD_BOOL, UPD_U8, UPD_U16, UPD_U32, UPD_POW2, UPD_LIMIT
};
static const struct update_key {
	const char *name;
	enum update_kind kind;
	size_t offset, size;
	uint64_t max;
	uint16_t ua;
	bool disk; /* means nothing on the controller */
} update_keys[] = {
#define F(f) offsetof(struct scsi_lu_conf, f), sizeof(((struct scsi_lu_conf *)0)->f)
	{ "scsi_id", UPD_ID, F(scsi_id), 0, UA_IDENTIFIER, false },
	{ "naa", UPD_NAA, F(naa), 0, UA_IDENTIFIER, false },
	{ "scsi_sn", UPD_TEXT, F(scsi_sn), 0, UA_INQUIRY, false },
	{ "vendor_id", UPD_TEXT, F(vendor_id), 0, UA_INQUIRY, false },
	{ "product_id", UPD_TEXT, F(product_id), 0, UA_INQUIRY, false },
	{ "product_rev", UPD_TEXT, F(product_rev), 0, UA_INQUIRY, false },
	{ "sense_format", UPD_BOOL, F(sense_format), 1, UA_MODE_CHANGED, false },
	{ "removable", UPD_BOOL, F(removable), 1, UA_INQUIRY, false },
	{ "readonly", UPD_BOOL, F(readonly), 1, UA_MODE_CHANGED, true },
	{ "online", UPD_BOOL, F(online), 1, 0, true },
	{ "swp", UPD_BOOL, F(swp), 1, UA_MODE_CHANGED, true },
	{ "write_cache", UPD_BOOL, F(write_cache), 1, UA_MODE_CHANGED, true },
	{ "thin_provisioning", UPD_BOOL, F(thin_provisioning), 1, UA_INQUIRY, true },
	{ "lbppbe", UPD_U8, F(lbppbe), 15, UA_CAPACITY, true },
	{ "la_lba", UPD_U16, F(la_lba), 0x3fff, UA_CAPACITY, true },
	{ "optimal_xfer_gran", UPD_U32, F(optimal_xfer_gran), 0xffff, UA_INQUIRY, true },
	{ "optimal_xfer_len", UPD_U32, F(optimal_xfer_len), UINT32_MAX, UA_INQUIRY, true },
	{ "sanitize_rate", UPD_U32, F(sanitize_rate), 1 << 20, 0, true },
	{ "atomic_unit", UPD_POW2, F(atomic_unit), MiB(1), UA_INQUIRY, true },
	{ "iops_limit", UPD_LIMIT, F(limit), 0, 0, true },
	{ "read_iops_limit", UPD_LIMIT, F(limit), 0, 0, true },
	{ "write_iops_limit", UPD_LIMIT, F(limit), 0, 0, true },
	{ "iops_burst", UPD_LIMIT, F(limit), 0, 0, true },
	{ "bandwidth_limit", UPD_LIMIT, F(limit), 0, 0, true },
	{ "read_bandwidth_limit", UPD_LIMIT, F(limit), 0, 0, true },
	{ "write_bandwidth_limit", UPD_LIMIT, F(limit), 0, 0, true },
	{ "bandwidth_burst", UPD_LIMIT, F(limit), 0, 0, true },
	{ "rotation_rate", UPD_U16, F(rotation_rate), UINT16_MAX, UA_INQUIRY, true },
#undef F
};

/* @value as @k takes it, into @conf. As scsi_lu_check(). */
static int set_value(struct scsi_lu_conf *conf, const struct update_key *k, const char *value)
{
	uint8_t *p = (uint8_t *)conf + k->offset;
	uint64_t v;
	bool b;

	switch (k->kind) {
	case UPD_TEXT:
		return parse_text(value, (char *)p, k->size);
	case UPD_ID:
		return parse_scsi_id(value, conf);
	case UPD_NAA:
		if (!parse_naa(value, (char *)p, k->size))
			return -EINVAL;
		break;
	case UPD_BOOL:
		if (!parse_bool(value, &b))
			return -EINVAL;
		*(bool *)p = b;
		break;
	case UPD_LIMIT:
		return scsi_limit_parse(&conf->limit, k->name, value);
	default:
		if (!lu_update_parse_number(value, k->max, &v) ||
		    (k->kind == UPD_POW2 && (v & (v - 1))))
			return -EINVAL;
		if (k->kind == UPD_U8)
			*p = (uint8_t)v;
		else if (k->kind == UPD_U16)
			*(uint16_t *)(void *)p = (uint16_t)v;
		else
			*(uint32_t *)(void *)p = (uint32_t)v;
	}
	return 0;
}

int scsi_lu_check(const char *key, const char *value)
{
	const struct scsi_feature *feature = scsi_feature_of(key);
	struct scsi_lu_conf scratch;

	if (feature)
		return feature->check(value);
	for (unsigned i = 0; i < ARRAY_SIZE(update_keys); i++)
		if (strcmp(update_keys[i].name, key) == 0)
			return set_value(&scratch, &update_keys[i], value);
	return -ENOENT;
}

static int update_locked(struct scsi_lu *lu, const struct update_key *k, const char *value)
{
	bool was_online = lu->conf.online;
	int ret = set_value(&lu->conf, k, value);

	if (ret < 0)
		return ret;
	if (strcmp(k->name, "sense_format") == 0)
		lu->mode.d_sense = lu->mode_saved.d_sense = lu->mode_default.d_sense =
			lu->conf.sense_format;
	else if (strcmp(k->name, "swp") == 0)
		lu->mode.swp = lu->mode_saved.swp = lu->mode_default.swp = lu->conf.swp;
	else if (strcmp(k->name, "write_cache") == 0)
		lu->mode.wce = lu->mode_saved.wce = lu->mode_default.wce = lu->conf.write_cache;
	else if (strcmp(k->name, "online") == 0 && lu->conf.online) {
		lu->ejected = false;
		if (!was_online)
			scsi_ua_raise_locked(lu, NULL, UA_MEDIUM);
	}
	lu->generation++;
	scsi_lu_update_gate_locked(lu);
	if (k->ua)
		scsi_ua_raise_locked(lu, NULL, k->ua);
	return ret;
}

int scsi_lu_update(struct scsi_lu *lu, const char *key, const char *value)
{
	const struct scsi_feature *feature = scsi_feature_of(key);
	int ret = -ENOENT;

	if (feature)
		return feature->update(lu, value);
	for (unsigned i = 0; i < ARRAY_SIZE(update_keys); i++) {
		const struct update_key *k = &update_keys[i];

		if (strcmp(k->name, key) != 0)
			continue;
		if (k->disk && !lu->blk)
			return -EINVAL;
		pthread_mutex_lock(&lu->lock);
		if (strcmp(key, "online") == 0 && lu->prevents > 0 && strchr("0nNfF", value[0]) &&
		    value[0])
			ret = -EBUSY; /* this device has Prevent Removal set */
		else
			ret = update_locked(lu, k, value);
		pthread_mutex_unlock(&lu->lock);
		if (k->kind == UPD_LIMIT && !ret)
			scsi_limit_lu(lu);
		break;
	}
	return ret;
}

/* ---- what is cached is to be in the store ---------------------------------------------------- */

struct flush {
	struct blk_req req;
	struct scsi_lu *lu;
	void (*done)(void *arg, int status);
	void *arg;
};

static void lu_update_flushed(struct blk_req *req)
{
	struct flush *f = container_of(req, struct flush, req);
	struct scsi_lu *lu = f->lu;

	f->done(f->arg, req->status);
	blk_req_fini(req);
	/* From here on the store may be closed. */
	pthread_mutex_lock(&lu->lock);
	scsi_lu_gone_over_locked(lu);
	pthread_mutex_unlock(&lu->lock);
	free(f);
}

void scsi_lu_flush(struct scsi_lu *lu, void (*done)(void *arg, int status), void *arg)
{
	struct flush *f = calloc(1, sizeof(*f));
	bool goes;

	pthread_mutex_lock(&lu->lock);
	goes = lu->deleting;
	lu->ngone += f && !goes && lu->blk;
	pthread_mutex_unlock(&lu->lock);
	if (!f || goes || !lu->blk) {
		done(arg, goes ? -EBUSY : !lu->blk ? 0 : -ENOMEM);
		free(f);
		return;
	}
	f->lu = lu;
	blk_req_init(&f->req);
	f->req.op = BLK_SYNC;
	f->req.flags = BLK_F_WHAT_CAN;
	f->req.done = lu_update_flushed;
	f->done = done;
	f->arg = arg;
	if (blk_submit(lu->blk, &f->req))
		lu_update_flushed(&f->req);
}
