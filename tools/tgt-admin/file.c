/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tgt-admin: targets.conf, with what is asked of the devices it names. */
#include <fcntl.h>
#include <scsi/sg.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <strings.h>
#include <unistd.h>

#include "tools/tgt-admin/admin.h"

static void complain(void *arg, const char *text)
{
	fprintf(stderr, "tgt-admin: %s\n", text);
}

/* A string field of INQUIRY data, without its padding. */
static const char *field(const uint8_t *data, size_t from, size_t len, char *buf)
{
	memcpy(buf, data + from, len);
	buf[len] = 0;
	while (len && (buf[len - 1] == ' ' || !buf[len - 1]))
		buf[--len] = 0;
	while (*buf == ' ')
		buf++;
	return buf;
}

static bool sg_command(int fd, const uint8_t *cdb, uint8_t cdb_len, uint8_t *data, unsigned len)
{
	uint8_t cdb_copy[16], sense[32];
	sg_io_hdr_t io = {
		.interface_id = 'S',
		.dxfer_direction = SG_DXFER_FROM_DEV,
		.cmd_len = cdb_len,
		.mx_sb_len = sizeof(sense),
		.dxfer_len = len,
		.dxferp = data,
		.cmdp = cdb_copy,
		.sbp = sense,
		.timeout = 10000,
	};

	memcpy(cdb_copy, cdb, cdb_len);
	memset(data, 0, len);
	return !ioctl(fd, SG_IO, &io) && !(io.info & SG_INFO_CHECK);
}

static void set_unless(struct conf_lu *lu, const char *key, const char *value)
{
	if (*value && !conf_get(&lu->options, key) && !strchr(value, ','))
		conf_add_kv(&g.want, &lu->options, key, value);
}

static void set_number_unless(struct conf_lu *lu, const char *key, unsigned value)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", value);
	if (value)
		set_unless(lu, key, text);
}

/* A direct-store shows itself as the disk that it is: SPC-4 6.6 (INQUIRY),
 * SBC-4 5.20 (READ CAPACITY). */
static void imitate(struct conf_lu *lu)
{
	static const uint8_t inquiry[] = { 0x12, 0, 0, 0, 96, 0 },
			     serial[] = { 0x12, 1, 0x80, 0, 255, 0 },
			     limits[] = { 0x12, 1, 0xb0, 0, 64, 0 },
			     capacity[] = { 0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0 };
	uint8_t data[256];
	char buf[256];
	int fd = open(lu->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return;
	if (sg_command(fd, inquiry, sizeof(inquiry), data, 96)) {
		set_unless(lu, "vendor_id", field(data, 8, 8, buf));
		set_unless(lu, "product_id", field(data, 16, 16, buf));
		set_unless(lu, "product_rev", field(data, 32, 4, buf));
	}
	if (sg_command(fd, serial, sizeof(serial), data, 255) && data[1] == 0x80 && data[3] <= 36)
		set_unless(lu, "scsi_sn", field(data, 4, data[3], buf));
	if (sg_command(fd, limits, sizeof(limits), data, 64) && data[1] == 0xb0) {
		set_number_unless(lu, "optimal_xfer_gran", (unsigned)data[6] << 8 | data[7]);
		set_number_unless(lu, "optimal_xfer_len",
				  (unsigned)data[12] << 24 | (unsigned)data[13] << 16 |
					  (unsigned)data[14] << 8 | data[15]);
	}
	if (sg_command(fd, capacity, sizeof(capacity), data, 32)) {
		set_number_unless(lu, "lbppbe", data[13] & 0xf);
		set_number_unless(lu, "la_lba", (unsigned)(data[14] & 0x3f) << 8 | data[15]);
		set_number_unless(lu, "block-size",
				  (unsigned)data[8] << 24 | (unsigned)data[9] << 16 |
					  (unsigned)data[10] << 8 | data[11]);
	}
	close(fd);
}

/* The "path" of the others is a size, or a server's URI. */
bool store_is_file(const struct conf_lu *lu)
{
	const char *type = conf_get(&lu->options, "bs-type");

	return !type || !strcmp(type, "rdwr") || !strcmp(type, "aio");
}

/* 0: cannot be told. */
static uint64_t size_now(const char *path)
{
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	uint64_t size = 0;
	struct stat st;

	if (fd < 0)
		return 0;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode))
		size = (uint64_t)st.st_size;
	else if (ioctl(fd, BLKGETSIZE64, &size))
		size = 0;
	close(fd);
	return size;
}

void file_sizes(const char *target)
{
	struct conf_target *t, *other;
	struct conf_lu *lu, *have;
	const char *path;

	list_for_each(t, &g.want.targets, link) {
		if (target && strcmp(t->name, target))
			continue;
		other = conf_find_target(&g.have, t->name);
		list_for_each(lu, &t->lus, link) {
			have = other ? conf_find_lun(other, lu->lun) : NULL;
			path = conf_get(&lu->options, "path");
			if (have && have->size)
				lu->size = size_now(path ? path : lu->path) / have->block *
					   have->block;
		}
	}
}

struct named {
	const char *naa;
	const struct conf_target *target;
	const struct conf_lu *lu;
};

static int by_naa(const void *a, const void *b)
{
	return strcasecmp(((const struct named *)a)->naa, ((const struct named *)b)->naa);
}

static bool file_is_memory(const struct conf_lu *lu)
{
	const char *type = conf_get(&lu->options, "bs-type");

	return type && (!strcmp(type, "ram") || !strcmp(type, "null"));
}

static bool other_store(const struct conf_lu *a, const struct conf_lu *b)
{
	char x[4200], y[4200];

	if (file_is_memory(a) || file_is_memory(b))
		return true;
	store_identify(NULL, conf_lu_path(a), x, sizeof(x));
	store_identify(NULL, conf_lu_path(b), y, sizeof(y));
	return strcmp(x, y);
}

/* Two disks with one NAA are one to initiators, which then mix up what they write. */
static void warn_naa(void)
{
	struct named *all = calloc(g.want.nlus + 1, sizeof(*all));
	struct conf_target *t;
	struct conf_lu *lu;
	size_t n = 0;

	if (!all)
		exit(ENOMEM);
	list_for_each(t, &g.want.targets, link) {
		list_for_each(lu, &t->lus, link) {
			const char *naa = conf_get(&lu->options, "naa");

			if (naa)
				all[n++] = (struct named){ naa, t, lu };
		}
	}
	qsort(all, n, sizeof(*all), by_naa);
	for (size_t i = 1; i < n; i++)
		if (!by_naa(&all[i - 1], &all[i]) && other_store(all[i - 1].lu, all[i].lu))
			fprintf(stderr,
				"tgt-admin: %s:%u: warning: naa %s is that of LUN %u of %s, too, on another store: initiators take them for one disk\n",
				all[i].lu->pos.file, all[i].lu->pos.line, all[i].naa,
				all[i - 1].lu->lun, all[i - 1].target->name);
	free(all);
}

/* `allow-in-use yes` also means: by another LU of the daemon. */
static void share(struct conf_lu *lu)
{
	const char *allow = conf_get(&lu->options, "allow-in-use");

	if (allow && !strcmp(allow, "yes") && !conf_get(&lu->options, "bsopts") &&
	    store_is_file(lu))
		conf_add_kv(&g.want, &lu->options, "bsopts", "share=yes");
}

/* "All addresses" of a machine without IPv6 is one portal, not two. */
static void drop_ipv6(void)
{
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct conf_kv *kv, *tmp;

	if (fd >= 0) {
		close(fd);
		return;
	}
	list_for_each_safe(kv, tmp, &g.want.portals, link)
		if (*kv->key == '[' && *kv->value == ':')
			list_del(&kv->link);
}

void file_load(void)
{
	struct conf_error err;
	struct conf_target *t;
	struct conf_lu *lu;

	conf_init(&g.want);
	if (access(g.conf_file, F_OK)) {
		fprintf(stderr, "Config file %s not found. Exiting...\n", g.conf_file);
		exit(2);
	}
	if (conf_parse_file(&g.want, g.conf_file, &err)) {
		fprintf(stderr, "tgt-admin: %s\n", err.text);
		exit(1);
	}
	if (g.want.control_port >= 0) {
		if (g.port > 0 && g.port != g.want.control_port) {
			fprintf(stderr,
				"tgt-admin: the file says control-port %d, the command line %d\n",
				g.want.control_port, g.port);
			exit(1);
		}
		g.port = g.want.control_port;
	}
	g.ignore_errors |= g.want.ignore_errors;
	drop_ipv6();
	conf_resolve(&g.want);
	conf_relax(&g.want, complain, NULL);
	list_for_each(t, &g.want.targets, link) {
		list_for_each(lu, &t->lus, link) {
			share(lu);
			if (lu->direct)
				imitate(lu);
		}
	}
	warn_naa();
	/* all or nothing: a fault anywhere, and nothing is changed */
	if (conf_verify(&g.want, complain, NULL))
		exit(1);
}
