/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See cachetest.h. */
#include "tests/support/expect.h"
#include "tests/support/cachetest.h"

void ct_open(struct bt *t, const struct ct_shape *s, struct cache **cache, struct memdisk **disk)
{
	static struct topology topo;
	static struct loop *workers[TOPO_MAX_NODES];
	struct cache_conf conf = { .topo = &topo, .workers = workers, .stepped = true };
	char err[200] = "";

	ck_assert_int_eq(topology_simulate(&topo, s->nodes), 0);
	bt_init(t, NULL, 1);
	for (unsigned i = 0; i < s->nodes; i++)
		workers[i] = t->loop;
	ck_assert_msg(cache_parse(&conf, s->conf, err, sizeof(err)) == 0, "%s", err);
	*cache = cache_create(&conf);
	ck_assert_ptr_nonnull(*cache);
	*disk = memdisk_create(s->disk, s->block_size ? s->block_size : 512, "memdisk-1");
	ck_assert_ptr_nonnull(*disk);
	(*disk)->now_percent = s->now_percent;
	(*disk)->delay_ns = s->delay_us * 1000;
	t->blk = cache_open(*cache, &(*disk)->blk, s->write_through);
	ck_assert_ptr_nonnull(t->blk);
}

void ct_close(struct bt *t, struct cache *cache)
{
	blk_close(t->blk);
	/* As a worker of its own does: what was posted to it comes before its end. */
	for (int i = 0; i < 3; i++)
		loop_step(t->loop, 0);
	cache_destroy(cache);
	for (int i = 0; i < 3; i++)
		loop_step(t->loop, 0);
	loop_destroy(t->loop);
}
