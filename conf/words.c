/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The words of targets.conf: where each belongs, what its values are, and which
 * one a mistyped word may be. */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "conf/model.h"
#include "events/bug.h"

#define YES_NO "Yes or No"
#define DIGESTS "None, CRC32C, or both with a comma between them"
#define LENGTH "512 to 16777215"
#define FLAG "0 or 1"
#define IOPS "0 to 1000000000"
#define BANDWIDTH "0 or 1K to 1T bytes, with K, M, G or T if you like"
#define USER_FILE "a name and the file of a password"
#define PORTAL "an address with or without a port, as 192.0.2.1:3260; or :3260, all addresses"
#define STORE (CONF_IN_TARGET | CONF_IN_STORE)

static const struct word {
	const char *text;
	unsigned places;
	enum conf_kind kind;
	const char *says;
} words[] = {
	{ "include", CONF_IN_FILE | STORE, CONF_UNKNOWN, NULL },
	{ "default-driver", CONF_IN_FILE, CONF_UNKNOWN, "iscsi or iser" },
	{ "ignore-errors", CONF_IN_FILE, CONF_UNKNOWN, "yes or no" },
	{ "control-port", CONF_IN_FILE, CONF_UNKNOWN, "0 to 32767" },
	{ "incomingdiscoveryuser-file", CONF_IN_FILE, CONF_UNKNOWN, USER_FILE },
	{ "outgoingdiscoveryuser-file", CONF_IN_FILE, CONF_UNKNOWN, USER_FILE },
	{ "incomingdiscoveryuser", CONF_IN_FILE, CONF_UNKNOWN, "a name and a password" },
	{ "outgoingdiscoveryuser", CONF_IN_FILE, CONF_UNKNOWN, "a name and a password" },
	{ "iSNS", CONF_IN_FILE, CONF_SYSTEM, "On or Off" },
	{ "iSNSServerIP", CONF_IN_FILE, CONF_SYSTEM, "an address" },
	{ "iSNSServerPort", CONF_IN_FILE, CONF_SYSTEM, "1 to 65535" },
	{ "iSNSAccessControl", CONF_IN_FILE, CONF_SYSTEM, "On or Off" },
	{ "weak_secrets", CONF_IN_FILE, CONF_SYSTEM, "warn or refuse" },
	{ "debug", CONF_IN_FILE, CONF_SYSTEM, "on or off" },
	{ "latency_initiators", CONF_IN_FILE, CONF_SYSTEM, "on or off" },
	{ "cache-affinity", CONF_IN_FILE, CONF_SYSTEM, "auto, forward, send, inline or off" },
	{ "cache-threshold", CONF_IN_FILE, CONF_SYSTEM, "bytes, with k or m behind the number" },
	{ "cache-size", CONF_IN_FILE, CONF_SYSTEM, "bytes, with k, m, g or t behind the number" },
	{ "stopped-driver", CONF_IN_FILE, CONF_SYSTEM, "iscsi or iser" },
	{ "portal", CONF_IN_FILE, CONF_UNKNOWN, PORTAL },
	{ "account", CONF_IN_FILE, CONF_UNKNOWN, "a name and a password" },
	{ "account-file", CONF_IN_FILE, CONF_UNKNOWN, USER_FILE },
	{ "target", CONF_IN_FILE | CONF_IS_BLOCK, CONF_UNKNOWN, NULL },
	{ "cluster", CONF_IN_FILE | CONF_IS_BLOCK, CONF_UNKNOWN, NULL },
	{ "gateway", CONF_IN_CLUSTER, CONF_UNKNOWN,
	  "a name, a number from 1 to 65535, and for mirrors an address with or without a port" },
	{ "pool", CONF_IN_CLUSTER, CONF_UNKNOWN, NULL },
	{ "ceph-conf", CONF_IN_CLUSTER, CONF_UNKNOWN, NULL },
	{ "ceph-id", CONF_IN_CLUSTER, CONF_UNKNOWN, NULL },
	{ "ceph-cluster", CONF_IN_CLUSTER, CONF_UNKNOWN, NULL },
	{ "mirror-secret-file", CONF_IN_CLUSTER, CONF_UNKNOWN, "a file, named from the root" },
	{ "mirror-memory", CONF_IN_CLUSTER, CONF_UNKNOWN,
	  "16m to 256g bytes, with k, m, g or t behind the number" },
	{ "mirror-transport", CONF_IN_CLUSTER, CONF_UNKNOWN, "auto, tcp or rdma" },
	{ "backing-store", CONF_IN_TARGET | CONF_IS_BLOCK, CONF_UNKNOWN, NULL },
	{ "direct-store", CONF_IN_TARGET | CONF_IS_BLOCK, CONF_UNKNOWN, NULL },
	{ "driver", CONF_IN_TARGET, CONF_UNKNOWN, "iscsi or iser" },
	{ "controller_tid", CONF_IN_TARGET, CONF_UNKNOWN, "a number above 0" },
	{ "initiator-address", CONF_IN_TARGET, CONF_UNKNOWN, "ALL, an address or a network" },
	{ "initiator-name", CONF_IN_TARGET, CONF_UNKNOWN, NULL },
	{ "expose", CONF_IN_TARGET, CONF_UNKNOWN, NULL },
	{ "initiator-limit", CONF_IN_TARGET, CONF_UNKNOWN, NULL },
	{ "incominguser-file", CONF_IN_TARGET, CONF_UNKNOWN, USER_FILE },
	{ "outgoinguser-file", CONF_IN_TARGET, CONF_UNKNOWN, USER_FILE },
	{ "incominguser", CONF_IN_TARGET, CONF_UNKNOWN, "a name and a password" },
	{ "outgoinguser", CONF_IN_TARGET, CONF_UNKNOWN, "a name and a password" },
	{ "bind-user", CONF_IN_TARGET, CONF_UNKNOWN, "a user and an initiator name" },

	{ "lun", STORE, CONF_STORE, "1 to 16383" },
	{ "bs-type", STORE, CONF_STORE, "rdwr, aio, ram, null, nbd or rbd" },
	{ "bsopts", STORE, CONF_STORE, NULL },
	{ "bsoflags", STORE, CONF_STORE, "sync, direct or sync:direct" },
	{ "block-size", STORE, CONF_STORE, "512 or 4096" },
	{ "device-type", STORE, CONF_STORE, "disk" },
	{ "allow-in-use", STORE, CONF_STORE, "yes or no" },
	{ "write-cache", STORE, CONF_CACHE, "on, off, mirror or through" },
	{ "mode_page", STORE, CONF_MULTI, "page:subpage:length:byte:byte..." },
	{ "params", STORE, CONF_MULTI, "name=value[,name=value...]" },
	{ "scsi_id", STORE, CONF_PARAM, "1 to 36 characters" },
	{ "naa", STORE, CONF_PARAM,
	  "16 hexadecimal digits that begin with 2, 3 or 5, or 32 with 6" },
	{ "scsi_sn", STORE, CONF_PARAM, "1 to 36 characters" },
	{ "vendor_id", STORE, CONF_PARAM, "1 to 8 characters" },
	{ "product_id", STORE, CONF_PARAM, "1 to 16 characters" },
	{ "product_rev", STORE, CONF_PARAM, "1 to 4 characters" },
	{ "sense_format", STORE, CONF_PARAM, FLAG },
	{ "removable", STORE, CONF_PARAM, FLAG },
	{ "online", STORE, CONF_PARAM, FLAG },
	{ "path", STORE, CONF_PARAM, NULL },
	{ "readonly", STORE, CONF_PARAM, FLAG },
	{ "swp", STORE, CONF_PARAM, FLAG },
	{ "lbppbe", STORE, CONF_PARAM, "0 to 15" },
	{ "la_lba", STORE, CONF_PARAM, "0 to 16383" },
	{ "optimal_xfer_gran", STORE, CONF_PARAM, "0 to 65535" },
	{ "optimal_xfer_len", STORE, CONF_PARAM, "0 to 4294967295" },
	{ "thin_provisioning", STORE, CONF_PARAM, FLAG },
	{ "rotation_rate", STORE, CONF_PARAM, "0 to 65534" },
	{ "sanitize_rate", STORE, CONF_PARAM, "0 to 1048576" },
	{ "atomic_unit", STORE, CONF_PARAM, "0 to 1048576, a power of two" },
	{ "iops_limit", STORE, CONF_PARAM, IOPS },
	{ "read_iops_limit", STORE, CONF_PARAM, IOPS },
	{ "write_iops_limit", STORE, CONF_PARAM, IOPS },
	{ "iops_burst", STORE, CONF_PARAM, IOPS },
	{ "bandwidth_limit", STORE, CONF_PARAM, BANDWIDTH },
	{ "read_bandwidth_limit", STORE, CONF_PARAM, BANDWIDTH },
	{ "write_bandwidth_limit", STORE, CONF_PARAM, BANDWIDTH },
	{ "bandwidth_burst", STORE, CONF_PARAM, BANDWIDTH },
	{ "threads", STORE, CONF_PARAM, "1 to 64" },

	{ "HeaderDigest", CONF_IN_TARGET, CONF_KEY, DIGESTS },
	{ "DataDigest", CONF_IN_TARGET, CONF_KEY, DIGESTS },
	{ "InitialR2T", CONF_IN_TARGET, CONF_KEY, YES_NO },
	{ "ImmediateData", CONF_IN_TARGET, CONF_KEY, YES_NO },
	{ "DataPDUInOrder", CONF_IN_TARGET, CONF_KEY, YES_NO },
	{ "DataSequenceInOrder", CONF_IN_TARGET, CONF_KEY, YES_NO },
	{ "MaxRecvDataSegmentLength", CONF_IN_TARGET, CONF_KEY, LENGTH },
	{ "FirstBurstLength", CONF_IN_TARGET, CONF_KEY, LENGTH },
	{ "MaxBurstLength", CONF_IN_TARGET, CONF_KEY, LENGTH },
	{ "MaxOutstandingR2T", CONF_IN_TARGET, CONF_KEY, "1 to 65535" },
	{ "MaxConnections", CONF_IN_TARGET, CONF_KEY, "1 to 65535" },
	{ "ErrorRecoveryLevel", CONF_IN_TARGET, CONF_KEY, "0 to 2" },
	{ "DefaultTime2Wait", CONF_IN_TARGET, CONF_KEY, "0 to 3600" },
	{ "DefaultTime2Retain", CONF_IN_TARGET, CONF_KEY, "0 to 3600" },
	{ "RedirectAddress", CONF_IN_TARGET, CONF_KEY, NULL },
	{ "RedirectPort", CONF_IN_TARGET, CONF_KEY, "0 to 65535" },
	{ "RedirectReason", CONF_IN_TARGET, CONF_KEY, "Temporary or Permanent" },
	{ "MaxQueueCmd", CONF_IN_TARGET, CONF_KEY, "1 to 128" },
	{ "nop_interval", CONF_IN_TARGET, CONF_KEY, "0 to 3600" },
	{ "data_out_timeout", CONF_IN_TARGET, CONF_KEY, "0 to 3600" },
	{ "nop_count", CONF_IN_TARGET, CONF_KEY, "0 to 1000" },
	{ "state", CONF_IN_FILE | CONF_IN_TARGET, CONF_KEY, "ready or offline" },
	{ "default-mask", CONF_IN_FILE | CONF_IN_TARGET, CONF_KEY, "all or none" },
	{ "allow_target_reset", CONF_IN_TARGET, CONF_KEY, YES_NO },
	{ "allow_explicit_alua", CONF_IN_TARGET, CONF_KEY, YES_NO },
	{ "alua_state", CONF_IN_TARGET, CONF_KEY,
	  "active-optimized, active-non-optimized, transitioning, transitioning-to-standby (or "
	  "another state), standby or unavailable, or such a state for each group: "
	  "1=standby;2=active-optimized" },
	{ "alua_groups", CONF_IN_TARGET, CONF_KEY,
	  "ports for each group but 1, which has the others: 2=3,4;5=9" },
	{ "portals", CONF_IN_TARGET, CONF_KEY,
	  "addresses with ports: 192.0.2.1:3260;192.0.2.2:3260" },
	{ "alua_preferred", CONF_IN_TARGET, CONF_KEY, "0 to 65535" },
	{ "alua_transition_time", CONF_IN_TARGET, CONF_KEY, "0 to 255" },
	/* of tgt's files: taken, though nothing follows from them, which the daemon says */
	{ "MaxXmitDataSegmentLength", 0, CONF_KEY, LENGTH },
	{ "IFMarker", 0, CONF_KEY, YES_NO },
	{ "OFMarker", 0, CONF_KEY, YES_NO },
	{ "IFMarkInt", 0, CONF_KEY, NULL },
	{ "OFMarkInt", 0, CONF_KEY, NULL },
	{ "RDMAExtensions", 0, CONF_KEY, YES_NO },
	{ "TargetRecvDataSegmentLength", 0, CONF_KEY, LENGTH },
	{ "InitiatorRecvDataSegmentLength", 0, CONF_KEY, LENGTH },
	{ "MaxOutstandingUnexpectedPDUs", 0, CONF_KEY, NULL },
};

static const struct word *words_find(const char *text)
{
	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (!strcmp(words[i].text, text))
			return &words[i];
	return NULL;
}

enum conf_kind conf_kind(const char *key)
{
	const struct word *w = words_find(key);

	return w ? w->kind : CONF_UNKNOWN;
}

bool conf_is_global(const char *key)
{
	const struct word *w = words_find(key);

	return w && w->places & CONF_IN_FILE && (w->kind == CONF_SYSTEM || w->kind == CONF_KEY);
}

const char *conf_says(const char *key)
{
	const struct word *w = words_find(key);

	return w ? w->says : NULL;
}

/* ---- what may have been meant ---------------------------------------------------------------- */

#define WORD_MAX 40

static char folded(char ch)
{
	return ch == '_' ? '-' : (char)tolower((unsigned char)ch);
}

/* How many letters are to be changed, added, left out, or swapped with their neighbours; case, '-'
 * and '_' are the same. (Optimal string alignment.) */
static unsigned distance(const char *a, const char *b)
{
	unsigned rows[3][WORD_MAX + 1], *before = rows[0], *last = rows[1], *now = rows[2];
	size_t n = strlen(a), m = strlen(b);

	if (n > WORD_MAX || m > WORD_MAX)
		return WORD_MAX;
	for (size_t j = 0; j <= m; j++)
		last[j] = (unsigned)j;
	for (size_t i = 1; i <= n; i++) {
		unsigned *oldest = before;

		now[0] = (unsigned)i;
		for (size_t j = 1; j <= m; j++) {
			bool same = folded(a[i - 1]) == folded(b[j - 1]);

			now[j] = MIN(MIN(last[j], now[j - 1]) + 1, last[j - 1] + !same);
			if (i > 1 && j > 1 && folded(a[i - 1]) == folded(b[j - 2]) &&
			    folded(a[i - 2]) == folded(b[j - 1]))
				now[j] = MIN(now[j], before[j - 2] + 1);
		}
		before = last;
		last = now;
		now = oldest;
	}
	return last[m];
}

static const char *where(unsigned places)
{
	return places & CONF_IN_STORE  ? "in a <target>, or in a block of a store" :
	       places & CONF_IN_TARGET	? "in a <target>" :
	       places & CONF_IN_CLUSTER ? "in a <cluster>" :
					 "outside of targets";
}

void conf_hint(const char *word, enum conf_place place, char *out, size_t len)
{
	const struct word *best;
	unsigned best_distance;

	ASSERT(word && len);
	ASSERT(place);
	best = words_find(word);
	best_distance = (unsigned)strlen(word) / 3 + 1;
	*out = 0;
	if (best && best->places) {
		snprintf(out, len, ": it belongs %s", where(best->places));
		return;
	}
	best = NULL;
	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		unsigned d;

		if (!words[i].places ||
		    ((words[i].places ^ place) & CONF_IS_BLOCK && place & CONF_IS_BLOCK))
			continue;
		/* of two that are as near, the one that may stand here */
		d = 2 * distance(word, words[i].text) + !(words[i].places & place);
		if (d < 2 * best_distance) {
			best = &words[i];
			best_distance = (d + 1) / 2;
		}
	}
	if (best && best->places & place)
		snprintf(out, len, ": did you mean %s%s%s?", place & CONF_IS_BLOCK ? "<" : "'",
			 best->text, place & CONF_IS_BLOCK ? ">" : "'");
	else if (best)
		snprintf(out, len, ": did you mean '%s'? It belongs %s", best->text,
			 where(best->places));
}
