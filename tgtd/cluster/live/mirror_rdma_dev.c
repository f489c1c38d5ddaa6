/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The device of a gateway's address (mirror_rdma.h): opened for mirrors alone, so that its events
 * come here, one protection domain, the peer's slots registered once, and memory to send from.
 */
#ifdef HAVE_RDMA
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "events/log.h"
#include "tgtd/cluster/live/mirror_rdma_impl.h"

#define MEM_MIN KiB(8) /* and powers of two above */
#define IDLE_MAX MiB(64)

static void async_come(struct loop_fd *lfd, uint32_t revents)
{
	struct mirror_rdma_dev *dev = container_of(lfd, struct mirror_rdma_dev, async);
	struct ibv_async_event ev;

	(void)revents;
	for (unsigned i = 0; i < 16 && !rdma_v->get_async_event(dev->is.ctx, &ev); i++) {
		const enum ibv_event_type type = ev.event_type;

		/* What befalls a queue pair is seen by its completions. */
		rdma_v->ack_async_event(&ev);
		if (type != IBV_EVENT_DEVICE_FATAL || dev->gone)
			continue;
		dev->gone = true;
		log_error("mirror: %s: fatal error of the device: links go on over TCP",
			  dev->is.ctx->device->name);
		dev->told(dev->told_arg);
	}
}

static const char *dev_limits(struct mirror_rdma_dev *dev)
{
	const unsigned windows = IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
	struct ibv_device_attr attr;

	if (rdma_v->query_device(dev->is.ctx, &attr))
		return "it cannot be queried";
	dev->depth = MIN((uint32_t)QUEUE, (uint32_t)MAX(attr.max_qp_wr, 0));
	if (dev->depth < QUEUE_MIN || attr.max_cqe < (int)dev->depth + MESSAGES)
		return "its queues are too short";
	if (!dev->slots.base)
		return NULL;
	if (!(attr.device_cap_flags & windows)) {
		log_notice("mirror: %s has no memory windows of type 2: others cannot write here",
			   dev->is.ctx->device->name);
		dev->slots.base = NULL;
	}
	return NULL;
}

static const char *dev_registers(struct mirror_rdma_dev *dev)
{
	dev->pd = rdma_v->alloc_pd(dev->is.ctx);
	if (!dev->pd)
		return "no protection domain";
	if (!dev->slots.base)
		return NULL;
	/* For windows: by this key alone nobody gets in. */
	dev->slots_mr = rdma_v->reg_mr(dev->pd, dev->slots.base, dev->slots.len,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	return dev->slots_mr ? NULL :
			       "what is held for others cannot be registered: look at the limit "
			       "of locked memory (ulimit -l)";
}

static const char *dev_listens(struct mirror_rdma_dev *dev, struct loop *main)
{
	const int fd = dev->is.ctx->async_fd, flags = fcntl(fd, F_GETFL);

	dev->async = (struct loop_fd){ .fd = fd, .events = EPOLLIN, .ready = async_come };
	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) ||
			       loop_fd_add(main, &dev->async) ?
		       "its events cannot be waited for" :
		       NULL;
}

bool mirror_rdma_dev_is_there(const struct sockaddr_storage *addr)
{
	struct rdma_found found;

	if (rdma_v->find_device((const struct sockaddr *)addr, &found))
		return false;
	rdma_v->close_device(found.ctx);
	return true;
}

struct mirror_rdma_dev *mirror_rdma_dev_open(struct loop *main, const struct sockaddr_storage *addr,
					     const struct mirror_slots *slots,
					     void (*gone)(void *arg), void *arg, char *why,
					     size_t len)
{
	struct mirror_rdma_dev *dev = calloc(1, sizeof(*dev));
	const char *wrong;
	int rc;

	if (!dev) {
		snprintf(why, len, "no memory");
		return NULL;
	}
	rc = rdma_v->find_device((const struct sockaddr *)addr, &dev->is);
	if (rc) {
		free(dev);
		snprintf(why, len, "no device has this gateway's address (%s)", strerror(-rc));
		return NULL;
	}
	pthread_mutex_init(&dev->lock, NULL);
	list_init(&dev->idle);
	dev->told = gone;
	dev->told_arg = arg;
	if (slots)
		dev->slots = *slots;
	wrong = dev_limits(dev);
	wrong = wrong ? wrong : dev_registers(dev);
	wrong = wrong ? wrong : dev_listens(dev, main);
	if (!wrong)
		return dev;
	snprintf(why, len, "%s: %s", dev->is.ctx->device->name, wrong);
	mirror_rdma_dev_close(dev);
	return NULL;
}

static void mem_free(struct mirror_rdma_mem *mem)
{
	rdma_v->dereg_mr(mem->mr);
	munmap(mem->addr, mem->len);
	free(mem);
}

void mirror_rdma_dev_close(struct mirror_rdma_dev *dev)
{
	struct mirror_rdma_mem *mem, *tmp;

	if (!dev)
		return;
	BUG_ON(dev->used);
	if (dev->async.loop)
		loop_fd_del(&dev->async);
	list_for_each_safe(mem, tmp, &dev->idle, link)
		mem_free(mem);
	if (dev->slots_mr)
		rdma_v->dereg_mr(dev->slots_mr);
	if (dev->pd)
		rdma_v->dealloc_pd(dev->pd);
	rdma_v->close_device(dev->is.ctx);
	pthread_mutex_destroy(&dev->lock);
	free(dev);
}

bool mirror_rdma_dev_is_gone(const struct mirror_rdma_dev *dev)
{
	return dev->gone;
}

bool mirror_rdma_dev_lends(const struct mirror_rdma_dev *dev)
{
	return dev->slots_mr;
}

/* ---- memory to send from --------------------------------------------------------------------- */
static struct mirror_rdma_mem *mem_new(struct mirror_rdma_dev *dev, size_t len)
{
	struct mirror_rdma_mem *mem = calloc(1, sizeof(*mem));
	struct ibv_mr *mr;

	if (!mem)
		return NULL;
	mem->dev = dev;
	mem->len = len;
	mem->addr = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mem->addr == MAP_FAILED) {
		free(mem);
		return NULL;
	}
	mr = rdma_v->reg_mr(dev->pd, mem->addr, len, IBV_ACCESS_LOCAL_WRITE);
	if (!mr) {
		log_ratelimited(LOG_LVL_WARN,
				"mirror: %zu KiB cannot be registered: %m. Look at the limit of "
				"locked memory (ulimit -l)",
				len >> 10);
		munmap(mem->addr, len);
		free(mem);
		return NULL;
	}
	mem->mr = mr;
	mem->lkey = mr->lkey;
	return mem;
}

struct mirror_rdma_mem *mirror_rdma_mem_get(struct mirror_rdma_dev *dev, size_t len)
{
	struct mirror_rdma_mem *mem, *found = NULL;
	size_t size = MEM_MIN;

	while (size < len)
		size *= 2;
	pthread_mutex_lock(&dev->lock);
	list_for_each(mem, &dev->idle, link)
		if (mem->len == size) {
			found = mem;
			list_del(&mem->link);
			dev->idle_bytes -= size;
			break;
		}
	dev->used++;
	pthread_mutex_unlock(&dev->lock);
	if (!found)
		found = mem_new(dev, size);
	if (!found) {
		pthread_mutex_lock(&dev->lock);
		dev->used--;
		pthread_mutex_unlock(&dev->lock);
	}
	return found;
}

void mirror_rdma_mem_put(struct mirror_rdma_mem *mem)
{
	struct mirror_rdma_dev *dev = mem->dev;
	bool keep;

	pthread_mutex_lock(&dev->lock);
	keep = dev->idle_bytes + mem->len <= IDLE_MAX;
	if (keep) {
		list_add_head(&dev->idle, &mem->link);
		dev->idle_bytes += mem->len;
		dev->used--;
	}
	pthread_mutex_unlock(&dev->lock);
	if (keep)
		return;
	mem_free(mem);
	pthread_mutex_lock(&dev->lock);
	dev->used--;
	pthread_mutex_unlock(&dev->lock);
}
#endif
