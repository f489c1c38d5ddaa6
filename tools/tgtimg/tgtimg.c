/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tgtimg: makes and shows image files for disks. The command line is that of tgt's tool; tapes and
 * DVDs are not emulated here, so it knows disks only, and it does not overwrite what exists. Beyond
 * that it shows what a cache has left in its memory (arena.c).
 */
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/tgtimg/arena.h"

static const char program[] = "tgtimg";

enum { OP_NONE, OP_NEW, OP_SHOW };

__attribute__((noreturn)) static void usage(const char *fmt, ...) printf_like(1, 2);
static void usage(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "%s: ", program);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\nTry `%s --help' for more information.\n", program);
	exit(EINVAL);
}

__attribute__((noreturn)) static void help(void)
{
	printf("Usage: tgtimg [OPTION]\n"
	       "Image files for tgtd's disks, version %s\n\n"
	       "  --op new --device-type disk --type disk --size <MiB> --file <path> [--thin-provisioning]\n"
	       "                        create a disk image; the file must not exist\n"
	       "  --op show --device-type disk --file <path>\n"
	       "                        print size and allocation of an image\n"
	       "  --arena <path> [--extents]\n"
	       "                        print what the memory of a cache holds, of a copy of it or of\n"
	       "                        /proc/<PID>/fd/<N>; with all extents that are dirty\n"
	       "  --thin-provisioning   allocate space when it is written to\n"
	       "  --barcode             of tapes: refused\n"
	       "  --help                display this help and exit\n\n"
	       "See tgtimg(8).\n",
	       TGT_VERSION);
	exit(0);
}

/* @mib mebibytes at @path, allocated unless @thin. Exit status. */
static int create(const char *path, uint64_t mib, bool thin)
{
	off_t size = (off_t)(mib << 20);
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0660), err;

	if (fd < 0) {
		fprintf(stderr, "%s: cannot create %s: %s\n", program, path, strerror(errno));
		return 2;
	}
	err = thin ? (ftruncate(fd, size) ? errno : 0) : posix_fallocate(fd, 0, size);
	if (!err && close(fd))
		err = errno;
	if (err) {
		fprintf(stderr, "%s: cannot give %s %" PRIu64 " MiB: %s\n", program, path, mib,
			strerror(err));
		unlink(path); /* half an image is none */
		return 3;
	}
	printf("Created blank DISK image file : %s\n", path);
	return 0;
}

static int show(const char *path)
{
	struct stat st;

	if (stat(path, &st)) {
		fprintf(stderr, "%s: cannot read %s: %s\n", program, path, strerror(errno));
		return 2;
	}
	if (!S_ISREG(st.st_mode)) {
		fprintf(stderr, "%s: %s is not an image file\n", program, path);
		return 2;
	}
	printf("Type: disk\nSize: %" PRIu64 "\nAllocated: %" PRIu64 "\nThin-provisioning: %s\n",
	       (uint64_t)st.st_size, (uint64_t)st.st_blocks * 512,
	       st.st_blocks * 512 < st.st_size ? "Yes" : "No");
	return 0;
}

static void need_disk(const char *type)
{
	if (!strcmp(type, "tape") || !strcmp(type, "cd"))
		usage("tapes and DVDs are not emulated");
	if (strcmp(type, "disk"))
		usage("unknown target type: %s", type);
}

/* MiB; 0 when it is no number above 0 that fits a file. */
static uint64_t parse_size(const char *text)
{
	char *end;
	uint64_t n;

	errno = 0;
	n = strtoull(text, &end, 10);
	return *text < '0' || *text > '9' || *end || errno || n > INT64_MAX >> 20 ? 0 : n;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "help", no_argument, NULL, 'h' },
		{ "op", required_argument, NULL, 'o' },
		{ "device-type", required_argument, NULL, 'Y' },
		{ "barcode", required_argument, NULL, 'b' },
		{ "size", required_argument, NULL, 's' },
		{ "type", required_argument, NULL, 't' },
		{ "file", required_argument, NULL, 'f' },
		{ "thin-provisioning", no_argument, NULL, 'T' },
		{ "arena", required_argument, NULL, 'A' },
		{ "extents", no_argument, NULL, 'E' },
		{ NULL, 0, NULL, 0 },
	};
	const char *size = NULL, *type = NULL, *file = NULL, *arena = NULL;
	int ch, op = OP_NONE;
	bool thin = false, extents = false;

	while ((ch = getopt_long(argc, argv, "ho:Y:b:s:t:f:T", options, NULL)) >= 0) {
		switch (ch) {
		case 'o':
			op = !strcmp(optarg, "new")  ? OP_NEW :
			     !strcmp(optarg, "show") ? OP_SHOW :
						       OP_NONE;
			if (op == OP_NONE) {
				fprintf(stderr, "%s: unknown operation: %s\n", program, optarg);
				return 1;
			}
			break;
		case 'Y':
			need_disk(optarg);
			break;
		case 'b':
			usage("a disk has no barcode");
		case 's':
			size = optarg;
			break;
		case 't':
			type = optarg;
			break;
		case 'f':
			file = optarg;
			break;
		case 'T':
			thin = true;
			break;
		case 'A':
			arena = optarg;
			break;
		case 'E':
			extents = true;
			break;
		case 'h':
			help();
		default:
			fprintf(stderr, "Try `%s --help' for more information.\n", program);
			return EINVAL;
		}
	}
	if (optind < argc)
		usage("unrecognized option '%s'", argv[optind]);
	if (arena && (op != OP_NONE || size || type || file || thin))
		usage("--arena goes with --extents alone");
	if (extents && !arena)
		usage("--extents goes with --arena");
	if (arena)
		return tgtimg_arena(program, arena, extents);
	if (op == OP_NONE)
		usage("specify the operation type");
	if (!file)
		usage("specify a newly created file");
	if (op == OP_SHOW)
		return show(file);
	if (!type)
		usage("Missing media type: DISK");
	if (strcasecmp(type, "disk"))
		usage("Media type must be DISK for disk devices");
	if (!size)
		usage("Missing the capacity param");
	if (!parse_size(size)) {
		printf("Capacity must be > 0\n");
		return 3;
	}
	return create(file, parse_size(size), thin);
}
