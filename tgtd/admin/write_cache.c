/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * write_cache= of a logical unit. The device server knows on and off (WCE). `mirror` is on, for
 * units whose writes are answered when another gateway has them, too: it is refused where that
 * cannot be. `through` is off.
 */
#include "cache/engine/mirror.h"
#include "cache/engine/stat.h"
#include "tgtd/admin/admin_int.h"
#include "tgtd/cluster/live/group.h"

bool write_cache_mirrors(const char *key, const char *value)
{
	return value && !strcmp(key, "write_cache") && !strcmp(value, "mirror");
}

const char *write_cache_value(const char *key, const char *value)
{
	if (!value || strcmp(key, "write_cache") != 0)
		return value;
	return !strcmp(value, "mirror") ? "on" : !strcmp(value, "through") ? "off" : value;
}

const char *write_cache_no_mirror(const struct adm_lu *lu)
{
	const char *none = group_mirrors_not();
	struct cache_info info;

	if (none || !lu)
		return none;
	if (!apply_lu_of_group(lu))
		return "it is no unit of the group of gateways (bsopts group=)";
	if (!adm.conf.cache || lu->uncached)
		return "it has no cache";
	if (lu->write_through)
		return "its store is write-through (bsopts, bsoflags)";
	cache_get_info(adm.conf.cache, &info);
	static_assert(CACHE_MIRROR_BLOCK_MAX == KiB(32), "the text says so");
	if (info.block > CACHE_MIRROR_BLOCK_MAX)
		return "blocks of the cache are larger than 32 KiB";
	return NULL;
}

enum adm_status write_cache_refuse(struct adm_call *call, const char *why)
{
	return admin_refuse(call, ADM_INVALID_REQUEST, "write_cache cannot be 'mirror': %s", why);
}
