/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tgtd/admin: flags and options of stores, the registry, what was set by hand, growing output. */
#include <stdlib.h>

#include "tests/support/unit.h"
#include "tgtd/admin/admin_int.h"

START_TEST(flags)
{
	uint8_t f;

	ck_assert(store_parse_flags(NULL, &f) && f == 0);
	ck_assert(store_parse_flags("", &f) && f == 0);
	ck_assert(store_parse_flags("sync", &f) && f == ADM_BS_SYNC);
	ck_assert(store_parse_flags("direct", &f) && f == ADM_BS_DIRECT);
	ck_assert(store_parse_flags("sync:direct", &f) && f == (ADM_BS_SYNC | ADM_BS_DIRECT));
	ck_assert(store_parse_flags("direct:sync", &f) && f == (ADM_BS_SYNC | ADM_BS_DIRECT));
	ck_assert(!store_parse_flags("syn", &f));
	ck_assert(!store_parse_flags("synchronous", &f));
	ck_assert(!store_parse_flags("sync,direct", &f));
	ck_assert(!store_parse_flags(":", &f));
}
END_TEST

START_TEST(options)
{
	struct topology topo = { .nnodes = 2 };
	struct store_opts o;

	adm.conf.topo = &topo;
	ck_assert(store_parse_opts(NULL, "aio", &o) && o.node == -1 && !o.uncached &&
		  !o.write_through);
	ck_assert(store_parse_opts("cache=none", "aio", &o) && o.uncached);
	ck_assert(store_parse_opts("cache=write-through;node=1", "aio", &o) && o.write_through &&
		  o.node == 1);
	ck_assert(store_parse_opts("node=0,cache=write-through,cache=write-back", "aio", &o) &&
		  !o.write_through && o.node == 0);
	ck_assert(store_parse_opts("share=yes", "aio", &o) && o.shared);
	ck_assert(!store_parse_opts("share=yes,cache=none", "aio", &o));
	ck_assert(!store_parse_opts("node=2", "aio", &o));
	ck_assert(!store_parse_opts("node=", "aio", &o));
	ck_assert(!store_parse_opts("node=-1", "aio", &o));
	ck_assert(!store_parse_opts("node=1x", "aio", &o));
	ck_assert(!store_parse_opts("cache=some", "aio", &o));
	ck_assert(!store_parse_opts("conf=/etc/ceph/ceph.conf", "aio", &o));
	ck_assert(!store_parse_opts(
		"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
		"aio", &o));
	/* Where a store of another kind has words of its own. */
	ck_assert(store_parse_opts("conf=/etc/ceph/ceph.conf;id=a;node=1", "rbd", &o) &&
		  o.node == 1);
	ck_assert(!store_parse_opts("conf=/etc/ceph/ceph.conf;idea=a", "rbd", &o));
	adm.conf.topo = NULL;
}
END_TEST

START_TEST(stores)
{
	ck_assert(store_known("rdwr") && store_known("aio") && store_known("ram") &&
		  store_known("null"));
	ck_assert(!store_known("") && !store_known("cache"));
}
END_TEST

#define N 5000

START_TEST(registry)
{
	struct adm_target *t = calloc(N, sizeof(*t));
	struct adm_lu *lu = calloc(N, sizeof(*lu));

	registry_init();
	for (uint32_t k = 0; k < N; k++) {
		t[k].tid = k * 7 + 1;
		list_init(&t[k].hash);
		list_init(&t[k].luns);
		registry_add_target(&t[k]);
		lu[k].target = &t[k % 10];
		lu[k].lun = k / 10 + 1; /* 0 is the controller, which has no entry */
		list_init(&lu[k].hash);
		list_init(&lu[k].link);
		registry_add_lu(&lu[k]);
	}
	for (uint32_t k = 0; k < N; k++) {
		ck_assert_ptr_eq(registry_target(k * 7 + 1), &t[k]);
		ck_assert_ptr_eq(registry_lu(&t[k % 10], k / 10 + 1), &lu[k]);
	}
	ck_assert_ptr_null(registry_target(2));
	ck_assert_ptr_null(registry_lu(&t[0], N));
	ck_assert_ptr_null(registry_lu(&t[11], 1));
	list_del(&t[3].hash);
	ck_assert_ptr_null(registry_target(22));
	registry_init();
	free(t);
	free(lu);
}
END_TEST

START_TEST(sets)
{
	struct list l = LIST_INIT(l);

	ck_assert_int_eq(set_put(&l, "a", "1", "0"), 0);
	ck_assert_int_eq(set_put(&l, "b", "2", NULL), 0);
	ck_assert_int_eq(set_put(&l, "a", "3", "1"), 0);
	ck_assert_str_eq(set_find(&l, "a")->value, "3");
	/* what it was before the first change */
	ck_assert_str_eq(set_find(&l, "a")->original, "0");
	ck_assert_ptr_null(set_find(&l, "b")->original);
	ck_assert_ptr_null(set_find(&l, "c"));
	set_drop(set_find(&l, "a"));
	set_drop(set_find(&l, "a")); /* NULL */
	ck_assert_ptr_null(set_find(&l, "a"));
	set_drop_all(&l);
	ck_assert(list_empty(&l));
}
END_TEST

START_TEST(output)
{
	struct adm_out out = { 0 };
	char big[10000];

	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = 0;
	out_puts(&out, "");
	for (int k = 0; k < 50; k++) {
		out_printf(&out, "%d:%s\n", k, big);
		out_puts(&out, "-");
	}
	ck_assert(!out.failed);
	ck_assert_uint_eq(out.len, 10 * (2 + 9999 + 2) + 40 * (3 + 9999 + 2));
	ck_assert_mem_eq(out.buf, "0:xxx", 5);
	out_free(&out);
	ck_assert_uint_eq(out.len, 0);
}
END_TEST

UNIT_MAIN("admin_parse", 20, flags, options, stores, registry, sets, output)
