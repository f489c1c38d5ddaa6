/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See rdmafake.h; rdmafake_impl.h tells what is where. */
#ifdef HAVE_RDMA
#include <pthread.h>

#include "tests/support/rdmafake_impl.h"

struct fake_rdma fake;

/*
 * Every entry takes one lock: the test's ends and the target may run on several threads. TSan is
 * not to see any of it, neither accesses nor the order that the lock makes: hardware would order
 * nothing between the threads that use it, so what it reports are the target's own races.
 */
#ifdef __SANITIZE_THREAD__
#define TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TSAN 1
#endif
#endif
#ifdef TSAN
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
void AnnotateIgnoreSyncBegin(const char *file, int line);
void AnnotateIgnoreSyncEnd(const char *file, int line);
#endif

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

int rdmafake_enter(void)
{
#ifdef TSAN
	AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
	AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
	AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
#endif
	pthread_mutex_lock(&lock);
	return 0;
}

void rdmafake_leave(int *guard)
{
	(void)guard;
	pthread_mutex_unlock(&lock);
#ifdef TSAN
	AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
	AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
	AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
#endif
}

void rdmafake_install(void)
{
	GUARD;
	static struct rdma_verbs verbs;
	struct ibv_device_attr *a = &fake.attr;

	a->max_mr_size = a->max_mr_size ? a->max_mr_size : 1ull << 40;
	a->max_qp_wr = a->max_qp_wr ? a->max_qp_wr : 4096;
	a->max_cqe = a->max_cqe ? a->max_cqe : 1 << 16;
	a->max_cq = a->max_cq ? a->max_cq : 1 << 16;
	a->max_sge = a->max_sge ? a->max_sge : 16;
	a->max_sge_rd = a->max_sge_rd ? a->max_sge_rd : 8;
	a->max_qp_rd_atom = a->max_qp_rd_atom ? a->max_qp_rd_atom : 4;
	a->max_qp_init_rd_atom =
		a->max_qp_init_rd_atom ? a->max_qp_init_rd_atom : a->max_qp_rd_atom;
	fake.max_msg = fake.max_msg ? fake.max_msg : 1 << 30;
	if (!fake.max_inline_set)
		fake.max_inline = 76; /* as some adapters do: headers only */
	a->device_cap_flags |= IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
	fake.devices = fake.devices ? fake.devices : 1;
	fake_dev_reset();
	rdmafake_cm_verbs(&verbs);
	rdmafake_dev_verbs(&verbs);
	rdmafake_cq_verbs(&verbs);
	rdmafake_qp_verbs(&verbs);
	rdma_v = &verbs;
}

bool rdmafake_clean(void)
{
	GUARD;
	return !fake.ids && !fake.qps && !fake.cqs && !fake.chans && !fake.mrs && !fake.pds &&
	       !fake.event_channels && !fake.mws && !fake.contexts;
}
#endif
