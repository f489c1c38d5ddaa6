/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * librbd and librados, loaded when the first store or gateway group wants them. A build needs
 * neither, and a daemon that serves no image maps none of their 30 MB.
 *
 * Their interface is declared here as far as it is used. Where their headers are installed, those
 * are taken, and the compiler compares each declaration with theirs.
 */
#ifndef CACHE_BACKEND_RBD_LIB_H
#define CACHE_BACKEND_RBD_LIB_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "events/base.h"

#if __has_include(<rbd/librbd.h>)
#include <rbd/librbd.h>
#define RBD_HEADERS 1
#else
#define RBD_HEADERS 0
typedef void *rados_t;
typedef void *rados_ioctx_t;
typedef void *rbd_image_t;
typedef void *rbd_completion_t;
typedef void (*rbd_callback_t)(rbd_completion_t c, void *arg);
typedef void (*rbd_update_callback_t)(void *arg);
typedef void *rados_completion_t;
typedef void *rados_write_op_t;
typedef void (*rados_callback_t)(rados_completion_t c, void *arg);
typedef void (*rados_watchcb2_t)(void *arg, uint64_t notify_id, uint64_t handle,
				 uint64_t notifier_id, void *data, size_t len);
typedef void (*rados_watcherrcb_t)(void *arg, uint64_t cookie, int err);
typedef enum { RBD_LOCK_MODE_EXCLUSIVE, RBD_LOCK_MODE_SHARED } rbd_lock_mode_t;
#define LIBRADOS_CREATE_EXCLUSIVE 1
typedef struct {
	char *name;
	char *value;
	int source;
} rbd_config_option_t;
#endif

#define RBD_ZEROES_THICK 1 /* rbd_aio_write_zeroes: allocate them */
#define RBD_LOCKS (1u << 2) /* rbd_get_features: exclusive-lock */

/* clang-format off */
#define RBD_CALLS(C)                                                                           \
	C(int, rados_create2, (rados_t *, const char *cluster, const char *user, uint64_t))    \
	C(int, rados_conf_read_file, (rados_t, const char *path))                              \
	C(int, rados_conf_set, (rados_t, const char *option, const char *value))               \
	C(int, rados_conf_get, (rados_t, const char *option, char *buf, size_t))               \
	C(int, rados_connect, (rados_t))                                                       \
	C(void, rados_shutdown, (rados_t))                                                     \
	C(int, rados_cluster_fsid, (rados_t, char *buf, size_t))                               \
	C(int, rados_ioctx_create, (rados_t, const char *pool, rados_ioctx_t *))               \
	C(void, rados_ioctx_destroy, (rados_ioctx_t))                                          \
	C(int64_t, rados_ioctx_get_id, (rados_ioctx_t))                                        \
	C(void, rados_ioctx_set_namespace, (rados_ioctx_t, const char *))                      \
	C(void, rados_set_pool_full_try, (rados_ioctx_t))                                      \
	C(int, rados_getaddrs, (rados_t, char **))                                             \
	C(void, rados_buffer_free, (char *))                                                   \
	C(int, rados_wait_for_latest_osdmap, (rados_t))                                        \
	C(int, rados_mon_command,                                                              \
	  (rados_t, const char **, size_t, const char *in, size_t, char **out, size_t *,       \
	   char **status, size_t *))                                                           \
	C(int, rados_aio_create_completion2, (void *, rados_callback_t, rados_completion_t *)) \
	C(int, rados_aio_get_return_value, (rados_completion_t))                               \
	C(uint64_t, rados_aio_get_version, (rados_completion_t))                               \
	C(void, rados_aio_release, (rados_completion_t))                                       \
	C(int, rados_aio_read,                                                                 \
	  (rados_ioctx_t, const char *, rados_completion_t, char *, size_t, uint64_t))         \
	C(rados_write_op_t, rados_create_write_op, (void))                                     \
	C(void, rados_release_write_op, (rados_write_op_t))                                    \
	C(void, rados_write_op_assert_version, (rados_write_op_t, uint64_t))                   \
	C(void, rados_write_op_create, (rados_write_op_t, int exclusive, const char *))        \
	C(void, rados_write_op_write_full, (rados_write_op_t, const char *, size_t))           \
	C(int, rados_aio_write_op_operate,                                                     \
	  (rados_write_op_t, rados_ioctx_t, rados_completion_t, const char *, time_t *, int))  \
	C(int, rados_watch3,                                                                   \
	  (rados_ioctx_t, const char *, uint64_t *, rados_watchcb2_t, rados_watcherrcb_t,      \
	   uint32_t timeout_s, void *))                                                        \
	C(int, rados_unwatch2, (rados_ioctx_t, uint64_t))                                      \
	C(int, rados_watch_flush, (rados_t))                                                   \
	C(int, rados_notify_ack,                                                               \
	  (rados_ioctx_t, const char *, uint64_t id, uint64_t, const char *, int))             \
	C(int, rados_aio_notify,                                                               \
	  (rados_ioctx_t, const char *, rados_completion_t, const char *, int,                 \
	   uint64_t timeout_ms, char **reply, size_t *))                                       \
	C(int, rbd_open, (rados_ioctx_t, const char *, rbd_image_t *, const char *snap))       \
	C(int, rbd_open_read_only, (rados_ioctx_t, const char *, rbd_image_t *, const char *)) \
	C(int, rbd_close, (rbd_image_t))                                                       \
	C(int, rbd_get_size, (rbd_image_t, uint64_t *))                                        \
	C(int, rbd_get_id, (rbd_image_t, char *id, size_t))                                    \
	C(int, rbd_get_stripe_unit, (rbd_image_t, uint64_t *))                                 \
	C(int, rbd_get_features, (rbd_image_t, uint64_t *))                                    \
	C(int, rbd_lock_acquire, (rbd_image_t, rbd_lock_mode_t))                               \
	C(int, rbd_lock_release, (rbd_image_t))                                                \
	C(int, rbd_lock_get_owners, (rbd_image_t, rbd_lock_mode_t *, char **, size_t *))       \
	C(void, rbd_lock_get_owners_cleanup, (char **, size_t))                                \
	C(int, rbd_lock_break, (rbd_image_t, rbd_lock_mode_t, const char *owner))              \
	C(int, rbd_is_exclusive_lock_owner, (rbd_image_t, int *))                              \
	C(int, rbd_snap_get_id, (rbd_image_t, const char *snap, uint64_t *))                   \
	C(int, rbd_diff_iterate2,                                                              \
	  (rbd_image_t, const char *from, uint64_t, uint64_t, uint8_t parent, uint8_t whole,   \
	   int (*)(uint64_t, size_t, int, void *), void *))                                    \
	C(int, rbd_config_image_list, (rbd_image_t, rbd_config_option_t *, int *))             \
	C(void, rbd_config_image_list_cleanup, (rbd_config_option_t *, int))                   \
	C(int, rbd_update_watch, (rbd_image_t, uint64_t *, rbd_update_callback_t, void *))     \
	C(int, rbd_update_unwatch, (rbd_image_t, uint64_t))                                    \
	C(int, rbd_aio_create_completion, (void *, rbd_callback_t, rbd_completion_t *))        \
	C(ssize_t, rbd_aio_get_return_value, (rbd_completion_t))                               \
	C(void, rbd_aio_release, (rbd_completion_t))                                           \
	C(int, rbd_aio_read, (rbd_image_t, uint64_t, size_t, char *, rbd_completion_t))        \
	C(int, rbd_aio_write, (rbd_image_t, uint64_t, size_t, const char *, rbd_completion_t)) \
	C(int, rbd_aio_readv,                                                                  \
	  (rbd_image_t, const struct iovec *, int n, uint64_t, rbd_completion_t))              \
	C(int, rbd_aio_writev,                                                                 \
	  (rbd_image_t, const struct iovec *, int n, uint64_t, rbd_completion_t))              \
	C(int, rbd_aio_flush, (rbd_image_t, rbd_completion_t))                                 \
	C(int, rbd_aio_write_zeroes,                                                           \
	  (rbd_image_t, uint64_t, size_t, rbd_completion_t, int zero_flags, int flags))        \
	C(ssize_t, rbd_aio_compare_and_write,                                                  \
	  (rbd_image_t, uint64_t, size_t, const char *is, const char *becomes,                 \
	   rbd_completion_t, uint64_t *mismatch, int flags))
/* What older libraries lack (before librbd 16): NULL then. */
#define RBD_MAYBE_CALLS(C)                                                                     \
	C(int, rbd_quiesce_watch,                                                              \
	  (rbd_image_t, rbd_update_callback_t quiesce, rbd_update_callback_t unquiesce,        \
	   void *arg, uint64_t *))                                                             \
	C(void, rbd_quiesce_complete, (rbd_image_t, uint64_t, int))                            \
	C(int, rbd_quiesce_unwatch, (rbd_image_t, uint64_t))
/* clang-format on */

struct rbd_lib {
#define RBD_FIELD(ret, name, args) ret(*name) args;
	RBD_CALLS(RBD_FIELD)
	RBD_MAYBE_CALLS(RBD_FIELD)
#undef RBD_FIELD
};

/* NULL, with the reason. A thread of offload_submit_library(). The same for all, for good. */
const struct rbd_lib *rbd_lib_load(char *why, size_t len) must_check;

#endif
