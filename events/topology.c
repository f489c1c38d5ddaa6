/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The machine, as the kernel shows it below /sys:
 *
 *     sys/devices/system/node/online            which nodes there are
 *     sys/devices/system/node/node<N>/          cpulist, meminfo, distance
 *     sys/devices/system/cpu/online             the CPUs of a kernel without NUMA
 *     sys/class/net/<if>/device/numa_node       where an adapter is plugged in
 *     sys/class/net/<if>/lower_<if2>            what a bond, bridge or vlan stands on
 *     sys/class/infiniband/<dev>/device/numa_node, or .../parent (soft-RoCE: its interface)
 *
 * Read once and never again: memory and CPUs that come or go later are not followed.
 */
#include <dirent.h>
#include <ifaddrs.h>
#include <limits.h>
#include <netinet/in.h>
#include <numaif.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "events/bug.h"
#include "events/log.h"
#include "events/topology.h"

#define DISTANCE_LOCAL 10
#define DISTANCE_REMOTE 20
#define STACK_DEPTH_MAX 4 /* a vlan on a bond on a bridge port ... */
#define OS_NODES_MAX 1024

static _Atomic(const struct topology *) in_use;

void topology_use(const struct topology *t)
{
	in_use = t;
}

const struct topology *topology_current(void)
{
	return in_use;
}

/* Reads a small file into @buf, without the newline at its end. Its length, or -errno. */
printf_like(3, 4) static int topology_read_file(char *buf, size_t size, const char *fmt, ...)
{
	char path[PATH_MAX];
	va_list ap;
	FILE *f;
	size_t n;
	int len;

	va_start(ap, fmt);
	len = vsnprintf(path, sizeof(path), fmt, ap);
	va_end(ap);
	if (len < 0 || (size_t)len >= sizeof(path))
		return -ENAMETOOLONG;
	f = fopen(path, "re");
	if (!f)
		return -errno;
	n = fread(buf, 1, size - 1, f);
	/* Some attributes are there but answer EINVAL or EIO: as good as not there. */
	len = ferror(f) ? -EIO : (int)n;
	fclose(f);
	if (len < 0)
		return len;
	while (n > 0 && (buf[n - 1] == '\n' || buf[n - 1] == ' '))
		n--;
	buf[n] = '\0';
	return (int)n;
}

/* Calls @each for every number of the kernel's list format,
 * "0-3,8,10-11". -EINVAL if it is none. */
static int parse_list(const char *s, unsigned limit, void (*each)(unsigned n, void *arg), void *arg)
{
	while (*s) {
		unsigned long from, to;
		char *end;

		from = to = strtoul(s, &end, 10);
		if (end == s)
			return -EINVAL;
		if (*end == '-') {
			s = end + 1;
			to = strtoul(s, &end, 10);
			if (end == s || to < from)
				return -EINVAL;
		}
		for (; from <= to && from < limit; from++)
			each((unsigned)from, arg);
		if (*end == ',')
			end++;
		else if (*end)
			return -EINVAL;
		s = end;
	}
	return 0;
}

static void add_cpu(unsigned cpu, void *set)
{
	CPU_SET(cpu, (cpu_set_t *)set);
}

/* The CPUs that this process may run on; all of them when that cannot be told, and when the tree is
 * a recorded one, to which our own affinity means nothing. */
static void allowed_cpus(cpu_set_t *set, bool live)
{
	if (!live || sched_getaffinity(getpid(), sizeof(*set), set) < 0)
		memset(set, 0xff, sizeof(*set));
}

static uint64_t meminfo_field(const char *text, const char *field)
{
	const char *at = strstr(text, field);
	uint64_t kib;

	return at && sscanf(at + strlen(field), ": %lu kB", &kib) == 1 ? KiB(kib) : 0;
}

/* The kernel has no MemAvailable for a node. As it reckons for the machine: what is free, and half
 * of what can be taken back. */
static void read_memory(struct topo_node *n, const char *text)
{
	n->mem_total = meminfo_field(text, "MemTotal");
	n->mem_free = meminfo_field(text, "MemFree");
	n->mem_avail = n->mem_free + (meminfo_field(text, "Active(file)") +
				      meminfo_field(text, "Inactive(file)") +
				      meminfo_field(text, "SReclaimable")) / 2;
}

/* One node's cpulist and meminfo. False when we cannot run there. */
static bool read_node(struct topo_node *n, const char *root, unsigned os, const cpu_set_t *allowed)
{
	char buf[8192];

	CPU_ZERO(&n->cpus);
	if (topology_read_file(buf, sizeof(buf), "%s/sys/devices/system/node/node%u/cpulist", root,
			       os) < 0 ||
	    parse_list(buf, CPU_SETSIZE, add_cpu, &n->cpus) < 0) {
		log_warn("topology: cannot read the CPUs of node %u: left out", os);
		return false;
	}
	CPU_AND(&n->cpus, &n->cpus, allowed);
	n->ncpus = (unsigned)CPU_COUNT(&n->cpus);
	if (n->ncpus == 0)
		return false;
	n->os_node = (int)os;
	if (topology_read_file(buf, sizeof(buf), "%s/sys/devices/system/node/node%u/meminfo", root,
			       os) > 0)
		read_memory(n, buf);
	return true;
}

struct os_nodes {
	unsigned count;
	uint16_t number[OS_NODES_MAX];
};

static void add_os_node(unsigned n, void *arg)
{
	struct os_nodes *os = arg;

	os->number[os->count++] = (uint16_t)n;
}

static int dense_node(const struct topology *t, long os_node)
{
	for (unsigned i = 0; i < t->nnodes; i++)
		if (t->node[i].os_node == os_node)
			return (int)i;
	return -1;
}

/* A row of the distance table names every online node, also those that were left out. */
static void read_distances(struct topology *t, const char *root, const struct os_nodes *os)
{
	char buf[8192];

	for (unsigned i = 0; i < t->nnodes; i++) {
		char *s = buf, *end;

		for (unsigned j = 0; j < t->nnodes; j++)
			t->distance[i][j] = i == j ? DISTANCE_LOCAL : DISTANCE_REMOTE;
		if (topology_read_file(buf, sizeof(buf),
				       "%s/sys/devices/system/node/node%d/distance", root,
				       t->node[i].os_node) < 0)
			continue;
		for (unsigned k = 0; k < os->count; k++, s = end) {
			unsigned long d = strtoul(s, &end, 10);
			int j = dense_node(t, os->number[k]);

			if (end == s)
				break;
			if (j >= 0 && d >= DISTANCE_LOCAL && d <= UINT8_MAX)
				t->distance[i][j] = (uint8_t)d;
		}
	}
}

/* A kernel without NUMA: all CPUs, all memory. */
static int read_single_node(struct topology *t, const char *root, const cpu_set_t *allowed)
{
	struct topo_node *n = &t->node[0];
	char buf[8192];
	int rc;

	memset(n, 0, sizeof(*n));
	rc = topology_read_file(buf, sizeof(buf), "%s/sys/devices/system/cpu/online", root);
	if (rc < 0)
		return rc;
	if (parse_list(buf, CPU_SETSIZE, add_cpu, &n->cpus) < 0)
		return -EINVAL;
	CPU_AND(&n->cpus, &n->cpus, allowed);
	n->ncpus = (unsigned)CPU_COUNT(&n->cpus);
	if (n->ncpus == 0)
		return -ENODEV;
	if (topology_read_file(buf, sizeof(buf), "%s/proc/meminfo", root) > 0)
		read_memory(n, buf);
	t->nnodes = 1;
	t->distance[0][0] = DISTANCE_LOCAL;
	return 0;
}

static int read_nodes(struct topology *t, const char *root, const cpu_set_t *allowed)
{
	struct os_nodes os = { .count = 0 };
	char buf[8192];

	if (topology_read_file(buf, sizeof(buf), "%s/sys/devices/system/node/online", root) < 0)
		return read_single_node(t, root, allowed);
	if (parse_list(buf, OS_NODES_MAX, add_os_node, &os) < 0)
		return -EINVAL;
	for (unsigned k = 0; k < os.count; k++) {
		struct topo_node *n = &t->node[t->nnodes];

		if (t->nnodes == TOPO_MAX_NODES) {
			log_warn("topology: more than %d nodes: the others are not used",
				 TOPO_MAX_NODES);
			break;
		}
		memset(n, 0, sizeof(*n));
		if (!read_node(n, root, os.number[k], allowed))
			continue;
		n->id = (int)t->nnodes++;
	}
	if (t->nnodes == 0)
		return read_single_node(t, root, allowed);
	read_distances(t, root, &os);
	return 0;
}

static int read_numa_node(const struct topology *t, const char *root, const char *class,
			  const char *name)
{
	char buf[64];

	if (topology_read_file(buf, sizeof(buf), "%s/sys/class/%s/%s/device/numa_node", root, class,
			       name) <= 0)
		return -1;
	return dense_node(t, strtol(buf, NULL, 10));
}

/* The node of an interface, or of the interfaces that it stands on when those agree. */
static int net_node(const struct topology *t, const char *root, const char *name, int depth)
{
	char path[PATH_MAX];
	struct dirent *e;
	int node, found = -1;
	DIR *d;

	node = read_numa_node(t, root, "net", name);
	if (node >= 0 || depth == 0)
		return node;
	if (snprintf(path, sizeof(path), "%s/sys/class/net/%s", root, name) >= (int)sizeof(path) ||
	    !(d = opendir(path)))
		return -1;
	while ((e = readdir(d))) {
		if (strncmp(e->d_name, "lower_", 6) != 0)
			continue;
		node = net_node(t, root, e->d_name + 6, depth - 1);
		if (node < 0 || (found >= 0 && node != found)) {
			found = -1;
			break;
		}
		found = node;
	}
	closedir(d);
	return found;
}

static int rdma_node(const struct topology *t, const char *root, const char *name)
{
	char parent[64];
	int node = read_numa_node(t, root, "infiniband", name);

	if (node < 0 && topology_read_file(parent, sizeof(parent),
					   "%s/sys/class/infiniband/%s/parent", root, name) > 0)
		node = net_node(t, root, parent, STACK_DEPTH_MAX);
	return node;
}

static int not_hidden(const struct dirent *e)
{
	return e->d_name[0] != '.';
}

/* Is there hardware behind this name? The virtual interfaces of containers and machines are legion,
 * and worth a place in the table only when their node is known. */
static bool has_device(const char *root, const char *class, const char *name)
{
	char path[PATH_MAX];

	return snprintf(path, sizeof(path), "%s/sys/class/%s/%s/device", root, class, name) <
		       (int)sizeof(path) &&
	       access(path, F_OK) == 0;
}

static bool add_adapter(struct topology *t, const char *root, const char *name, bool rdma)
{
	struct topo_adapter *a = &t->adapter[t->nadapters];
	int node;

	if (strlen(name) >= sizeof(a->name))
		return true;
	node = rdma ? rdma_node(t, root, name) : net_node(t, root, name, STACK_DEPTH_MAX);
	if (node < 0 && !rdma && !has_device(root, "net", name))
		return true;
	if (t->nadapters == ARRAY_SIZE(t->adapter))
		return false;
	strcpy(a->name, name);
	a->rdma = rdma;
	a->node = node;
	t->nadapters++;
	return true;
}

static void read_adapters(struct topology *t, const char *root, bool rdma)
{
	char path[PATH_MAX];
	struct dirent **names;
	bool full = false;
	int n;

	if (snprintf(path, sizeof(path), "%s/sys/class/%s", root, rdma ? "infiniband" : "net") >=
	    (int)sizeof(path))
		return;
	n = scandir(path, &names, not_hidden, alphasort);
	for (int i = 0; i < n; i++) {
		if (!full && !add_adapter(t, root, names[i]->d_name, rdma)) {
			full = true;
			log_warn("topology: too many adapters: %s and what follows are not known",
				 names[i]->d_name);
		}
		free(names[i]);
	}
	if (n >= 0)
		free(names);
}

int topology_detect(struct topology *t, const char *root)
{
	cpu_set_t allowed;
	int rc;

	memset(t, 0, sizeof(*t));
	t->live = *root == '\0';
	allowed_cpus(&allowed, t->live);
	rc = read_nodes(t, root, &allowed);
	if (rc < 0)
		return rc;
	read_adapters(t, root, true); /* first: there are few, and their node matters most */
	read_adapters(t, root, false);
	return 0;
}

int topology_simulate(struct topology *t, unsigned nnodes)
{
	unsigned cpus[CPU_SETSIZE], ncpus = 0;
	uint64_t mem_total = 0, mem_free = 0, mem_avail = 0;
	int rc;

	if (nnodes < 1 || nnodes > TOPO_MAX_NODES)
		return -EINVAL;
	rc = topology_detect(t, "");
	if (rc < 0)
		return rc;
	for (unsigned i = 0; i < t->nnodes; i++) {
		mem_total += t->node[i].mem_total;
		mem_free += t->node[i].mem_free;
		mem_avail += t->node[i].mem_avail;
		for (unsigned c = 0; c < CPU_SETSIZE; c++)
			if (CPU_ISSET(c, &t->node[i].cpus))
				cpus[ncpus++] = c;
	}
	ASSERT(ncpus > 0);
	t->simulated = true;
	t->nnodes = nnodes;
	for (unsigned i = 0; i < nnodes; i++) {
		struct topo_node *n = &t->node[i];

		memset(n, 0, sizeof(*n));
		n->id = (int)i;
		n->os_node = -1;
		n->mem_total = mem_total / nnodes;
		n->mem_free = mem_free / nnodes;
		n->mem_avail = mem_avail / nnodes;
		for (unsigned k = i; k < MAX(ncpus, i + 1); k += nnodes)
			CPU_SET(cpus[k % ncpus], &n->cpus);
		n->ncpus = (unsigned)CPU_COUNT(&n->cpus);
		for (unsigned j = 0; j < nnodes; j++)
			t->distance[i][j] = i == j ? DISTANCE_LOCAL : DISTANCE_REMOTE;
	}
	for (unsigned i = 0; i < t->nadapters; i++)
		t->adapter[i].node = (int)(i % nnodes);
	return 0;
}

void topology_memory(const struct topology *t, unsigned node, uint64_t *total, uint64_t *free)
{
	struct topo_node now = t->node[node];
	char buf[8192];

	if (t->live && !t->simulated && t->nnodes > 1 &&
	    topology_read_file(buf, sizeof(buf), "/sys/devices/system/node/node%d/meminfo",
			       now.os_node) > 0) {
		read_memory(&now, buf);
	} else if (t->live && (t->simulated || t->nnodes == 1) &&
		   topology_read_file(buf, sizeof(buf), "/proc/meminfo") > 0) {
		read_memory(&now, buf);
		now.mem_total /= t->nnodes;
		now.mem_free /= t->nnodes;
	}
	*total = now.mem_total;
	*free = now.mem_free;
}

int topology_adapter_node(const struct topology *t, const char *name)
{
	for (unsigned i = 0; i < t->nadapters; i++)
		if (strcmp(t->adapter[i].name, name) == 0)
			return t->adapter[i].node;
	return -1;
}

/* ---- addresses ------------------------------------------------------------------------------- */

static bool same_ip(const struct sockaddr *a, const struct sockaddr *b)
{
	if (a->sa_family != b->sa_family)
		return false;
	if (a->sa_family == AF_INET6)
		return !memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
			       &((const struct sockaddr_in6 *)b)->sin6_addr,
			       sizeof(struct in6_addr));
	return a->sa_family == AF_INET && ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
						  ((const struct sockaddr_in *)b)->sin_addr.s_addr;
}

static bool interface_of(const struct sockaddr *addr, char name[TOPO_NAME_MAX])
{
	struct ifaddrs *all, *i;
	bool found = false;

	if (getifaddrs(&all))
		return false;
	for (i = all; i && !found; i = i->ifa_next)
		if (i->ifa_addr && same_ip(i->ifa_addr, addr) &&
		    strlen(i->ifa_name) < TOPO_NAME_MAX) {
			strcpy(name, i->ifa_name);
			found = true;
		}
	freeifaddrs(all);
	return found;
}

bool (*topology_interface)(const struct sockaddr *addr, char name[TOPO_NAME_MAX]) = interface_of;

int topology_address_node(const struct topology *t, const struct sockaddr *addr)
{
	char name[TOPO_NAME_MAX];

	return topology_interface(addr, name) ? topology_adapter_node(t, name) : -1;
}

int topology_bind_memory(const struct topology *t, void *addr, size_t len, int node)
{
	unsigned long mask[OS_NODES_MAX / (8 * sizeof(unsigned long))] = { 0 };
	unsigned os;

	ASSERT(node >= 0 && (unsigned)node < t->nnodes);
	if (t->simulated || t->nnodes == 1)
		return 0;
	os = (unsigned)t->node[node].os_node;
	mask[os / (8 * sizeof(*mask))] |= 1ul << os % (8 * sizeof(*mask));
	/* The kernel reads one bit less than it is told. */
	if (mbind(addr, len, MPOL_PREFERRED, mask, OS_NODES_MAX + 1, MPOL_MF_MOVE) < 0)
		return -errno;
	return 0;
}
