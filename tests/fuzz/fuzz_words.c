/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Short texts that administrators write, and what a server says of ranges: limits, target port
 * groups, portals, names of images and URIs of exports, extents. The first byte of the input says
 * which. What must hold: a text is refused, or what is made of it prints to a text that makes the
 * same; where the tools and the daemon read the same words, they agree.
 */
#include <stdlib.h>

#include "cache/backend/rbd_name.h"
#include "conf/limit.h"
#include "conf/portal.h"
#include "events/bug.h"
#include "events/bytes.h"
#include "tgtd/iscsi/portal.h"
#include "tgtd/scsi/target.h"
#ifdef HAVE_LIBNBD
/* All of the two, so that nothing of the library's other objects is taken beside them. */
#include "cache/backend/nbd.c"
#include "cache/backend/nbd_extent.c"
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- limits ---------------------------------------------------------------------------------- */

/* One key and its value: both sides take it, or none. */
static void one_limit(const char *key, const char *value)
{
	struct scsi_limit_conf c = { 0 };
	const int rc = scsi_limit_parse(&c, key, value);

	BUG_ON(conf_limit_known(key) == (rc == -ENOENT));
	if (rc != -ENOENT)
		BUG_ON(conf_limit_ok(key, value) == (rc != 0));
}

/* Each pair of @text, as the daemon takes them. */
static void take_limits(struct scsi_limit_conf *c, char *text)
{
	char *save = NULL;

	for (char *pair = strtok_r(text, ",", &save); pair; pair = strtok_r(NULL, ",", &save)) {
		char *value = strchr(pair, '=');

		BUG_ON(!value);
		*value++ = 0;
		BUG_ON(scsi_limit_parse(c, pair, value));
	}
}

static void limits(char *text, char *other)
{
	struct scsi_limit_conf c = { 0 }, again = { 0 };
	char why[200] = "", out[SCSI_LIMIT_TEXT];
	char *value = strchr(text, '=');
	struct conf conf;

	if (value && !strchr(text, ',')) {
		char *key = strndup(text, (size_t)(value - text));

		one_limit(key, value + 1);
		free(key);
	}
	if (conf_limits_wrong(text, why, sizeof(why))) {
		BUG_ON(!*why);
		return;
	}
	if (!conf_limits_wrong(other, why, sizeof(why))) {
		conf_init(&conf);
		BUG_ON(conf_limits_change(&conf, text, text));
		(void)conf_limits_change(&conf, text, other);
		conf_free(&conf);
	}
	take_limits(&c, text);
	scsi_limit_print(&c, out, sizeof(out));
	BUG_ON(conf_limits_wrong(out, why, sizeof(why)));
	take_limits(&again, out);
	for (unsigned k = 0; k < SCSI_LIMIT_KEYS; k++)
		BUG_ON(scsi_limit_value(&c, k) != scsi_limit_value(&again, k));
}

/* ---- target port groups ---------------------------------------------------------------------- */

static void groups(const char *key, const char *text)
{
	char out[SCSI_TPGS_TEXT], twice[SCSI_TPGS_TEXT];
	struct scsi_tpgs g, again;

	scsi_tpgs_init(&g);
	scsi_tpgs_init(&again);
	if (scsi_tpgs_parse(&g, key, text))
		return;
	BUG_ON(g.n > SCSI_TPG_MAX || g.nports > SCSI_PORTS_MAX || g.nstates > SCSI_TPG_MAX);
	scsi_tpgs_print(&g, key, out, sizeof(out));
	BUG_ON(scsi_tpgs_parse(&again, key, out));
	scsi_tpgs_print(&again, key, twice, sizeof(twice));
	BUG_ON(strcmp(out, twice));
}

/* ---- portals --------------------------------------------------------------------------------- */

static void portals(const char *text)
{
	char names[2][CONF_PORTAL_LEN], name[CONF_PORTAL_LEN] = "";
	const unsigned n = conf_portal_names(text, names);
	struct iscsi_portal p;

	if (n == 2) /* without an address, which the daemon makes two of */
		return;
	if (!iscsi_portal_parse(text, &p))
		iscsi_portal_format(&p, name, sizeof(name));
	BUG_ON(strcmp(n ? names[0] : "", name));
	if (n)
		BUG_ON(!conf_portal_clash(names[0], names[0]));
}

/* ---- images, exports, extents ---------------------------------------------------------------- */

static void images(const char *path, const char *opts)
{
	char why[200] = "";
	struct rbd_name n;

	if (rbd_name_parse(&n, path, opts, why, sizeof(why))) {
		BUG_ON(!*why);
		return;
	}
	BUG_ON(!*n.image || !*n.pool || strncmp(n.user, "client.", 7) || !*n.cluster);
	BUG_ON(strpbrk(n.image, "/@") || strpbrk(n.pool, "/@") || strpbrk(n.snap, "@"));
}

#ifdef HAVE_LIBNBD
static void exports(char *uri)
{
	struct nbd n = { .link = { .uri = uri } };
	char path[PATH_MAX];

	if (nbd_socket(uri, path))
		BUG_ON(strlen(path) >= sizeof(path));
	nbd_identity(&n);
	BUG_ON(strncmp(n.blk.store_id, "nbd:", 4) || !n.blk.identity);
	BUG_ON(!memchr(n.blk.store_id, 0, sizeof(n.blk.store_id)));
}

/* What a server says of a range, in whatever pieces: never more than was asked for, never nothing,
 * in whole blocks, and never a hole where there is data. */
static void extents(const uint8_t *data, size_t size)
{
	enum { N = 16 };
	uint32_t entries[2 * N] = { 0 };
	struct nbd_ask a = { 0 };
	enum blk_extent what;
	uint64_t run, len, holes = 0;
	uint32_t block;
	int error = 0;
	size_t n;

	if (size < 3)
		return;
	block = 512u << (data[0] & 3);
	len = (uint64_t)block * (1 + get_be16(data + 1));
	n = MIN((size - 3) / 5, (size_t)N);
	for (size_t i = 0; i < n; i++) {
		entries[2 * i] = get_be32(data + 3 + 5 * i);
		entries[2 * i + 1] = data[3 + 5 * i + 4];
	}
	for (size_t i = 0; i < n && entries[2 * i + 1] & LIBNBD_STATE_HOLE; i++)
		holes += entries[2 * i];
	BUG_ON(nbd_extents(&a, data[0] & 4 ? "other" : NBD_CONTEXT, 0, entries, 2 * n, &error));
	nbd_ask_says(&a, len, &what, &run);
	nbd_whole_blocks(block, len, &what, &run);
	BUG_ON(!run || run > len || run % block);
	BUG_ON(what == BLK_EXTENT_DEALLOCATED && run > holes);
}
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const keys[] = { "alua_groups", "alua_state", "alua_preferred",
					    "alua_transition_time" };
	char *text, *other;

	if (!size)
		return 0;
	text = malloc(size);
	BUG_ON(!text);
	memcpy(text, data + 1, size - 1);
	text[size - 1] = 0;
	other = strchr(text, '\n');
	if (other)
		*other++ = 0;
	else
		other = text + strlen(text);
	switch (data[0] % 10) {
	case 0:
		limits(text, other);
		break;
	case 1:
	case 2:
	case 3:
	case 4:
		groups(keys[data[0] % 10 - 1], text);
		break;
	case 5:
		portals(text);
		break;
	case 6:
		images(text, *other ? other : NULL);
		break;
#ifdef HAVE_LIBNBD
	case 7:
		exports(text);
		break;
	case 8:
		extents(data + 1, size - 1);
		break;
#endif
	default:
		break;
	}
	free(text);
	return 0;
}
