/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tgt-bareloop: the bare loop. It answers an initiator with the bytes a target would send, over the
 * same socket calls, and does nothing else: no LU, no tasks, no checks beyond what keeps it in
 * step. What it reaches is the limit of this machine's TCP, against which targets are measured; it
 * stores nothing and must never serve data.
 *
 *   wait (spin) ── one recv, many commands ── an iovec for each answer ── one sendmsg
 *
 * Reads are answered from fixed memory; write data is received into the receive buffer and dropped,
 * which is always the same memory and so stays in the core's cache, unless --spread says how much
 * memory is received into in turn.
 * Tags of commands in flight must differ in their low 12 bits (tgt-load's do; so do those of
 * Linux).
 *
 * Being bare it is also where other ways to the same socket are weighed: --engine uring, --zerocopy
 * (tests/bench/README.md has what came of it).
 */
#include "tools/bench/tgt-bareloop/bare.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct options opt = {
	.max_recv_segment = 256 << 10,
	.first_burst = 256 << 10,
	.max_burst = 1 << 20,
	.lu_bytes = 1ull << 30,
	.memory = IO_MAX,
	.recv_size = 1 << 20,
	.cpu = -1,
};
uint8_t *memory;
volatile sig_atomic_t stopping;
uint64_t zc_calls, zc_copied, zc_refused;

static void on_signal(int sig)
{
	stopping = 1;
}

static uint64_t size_arg(const char *s)
{
	char *end;
	uint64_t v = strtoull(s, &end, 10);

	switch (*end | 0x20) {
	case 'g':
		return v << 30;
	case 'm':
		return v << 20;
	case 'k':
		return v << 10;
	default:
		return v;
	}
}

static int usage(int rc)
{
	fputs("usage: tgt-bareloop [--portal ADDR:PORT] [--cpu N] [--memory SIZE] [--size SIZE]\n"
	      "                    [--recv-size SIZE] [--spread SIZE] [--sndbuf SIZE] [--congestion NAME]\n"
	      "                    [--wait spin|block] [--engine epoll|uring] [--zerocopy SIZE]\n"
	      "                    [--first-burst SIZE] [--max-burst SIZE] [--max-recv-segment SIZE]\n"
	      "       tgt-bareloop --pauses SECONDS [--cpu N]\n",
	      rc ? stderr : stdout);
	return rc;
}

static int options(int argc, char **argv)
{
	static const struct option longs[] = {
		{"portal", required_argument, NULL, 'p'},
		{"cpu", required_argument, NULL, 'c'},
		{"memory", required_argument, NULL, 'm'},
		{"size", required_argument, NULL, 's'},
		{"recv-size", required_argument, NULL, 'r'},
		{"spread", required_argument, NULL, 'S'},
		{"sndbuf", required_argument, NULL, 'b'},
		{"congestion", required_argument, NULL, 'g'},
		{"wait", required_argument, NULL, 'w'},
		{"engine", required_argument, NULL, 'e'},
		{"zerocopy", required_argument, NULL, 'z'},
		{"pauses", required_argument, NULL, 'P'},
		{"first-burst", required_argument, NULL, 'f'},
		{"max-burst", required_argument, NULL, 'x'},
		{"max-recv-segment", required_argument, NULL, 'y'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	char host[64] = "127.0.0.1";
	unsigned port = 3260;
	int o;

	while ((o = getopt_long(argc, argv, "p:c:h", longs, NULL)) != -1) {
		switch (o) {
		case 'p':
			if (sscanf(optarg, "%63[0-9.]:%u", host, &port) != 2)
				return usage(2);
			break;
		case 'c':
			opt.cpu = atoi(optarg);
			break;
		case 'm':
			opt.memory = size_arg(optarg);
			break;
		case 's':
			opt.lu_bytes = size_arg(optarg);
			break;
		case 'r':
			opt.recv_size = (uint32_t)size_arg(optarg);
			break;
		case 'S':
			opt.spread = size_arg(optarg);
			break;
		case 'b':
			opt.sndbuf = (uint32_t)size_arg(optarg);
			break;
		case 'g':
			snprintf(opt.congestion, sizeof(opt.congestion), "%s", optarg);
			break;
		case 'w':
			opt.block = strcmp(optarg, "block") == 0;
			break;
		case 'e':
			opt.uring = strcmp(optarg, "uring") == 0;
			if (!opt.uring && strcmp(optarg, "epoll") != 0)
				return usage(2);
			break;
		case 'P':
			opt.pauses = atof(optarg);
			if (opt.pauses <= 0.0)
				return usage(2);
			break;
		case 'z':
			opt.zerocopy = (uint32_t)size_arg(optarg);
			break;
		case 'f':
			opt.first_burst = (uint32_t)size_arg(optarg);
			break;
		case 'x':
			opt.max_burst = (uint32_t)size_arg(optarg);
			break;
		case 'y':
			opt.max_recv_segment = (uint32_t)size_arg(optarg);
			break;
		case 'h':
			usage(0);
			exit(0);
		default:
			return usage(2);
		}
	}
	if (optind != argc || opt.memory < IO_MAX || opt.lu_bytes < 1 << 20 ||
	    opt.recv_size < 16384 || opt.max_recv_segment < 512 ||
	    opt.max_recv_segment > 0xffffff || port == 0 || port > 65535)
		return usage(2);
	opt.addr.sin_family = AF_INET;
	opt.addr.sin_port = htons((uint16_t)port);
	return inet_pton(AF_INET, host, &opt.addr.sin_addr) == 1 ? 0 : usage(2);
}

static int die(const char *what)
{
	fprintf(stderr, "tgt-bareloop: %s: %s\n", what, strerror(errno));
	return 1;
}

int main(int argc, char **argv)
{
	int one = 1, lfd, rc = options(argc, argv);

	if (rc)
		return rc;
	signal(SIGTERM, on_signal);
	signal(SIGINT, on_signal);
	if (opt.cpu >= 0) {
		cpu_set_t set;

		CPU_ZERO(&set);
		CPU_SET(opt.cpu, &set);
		if (sched_setaffinity(0, sizeof(set), &set) != 0)
			return die("--cpu");
	}
	if (opt.pauses > 0.0)
		return pauses(opt.pauses);
	memory = mmap(NULL, opt.memory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return die("memory");
	madvise(memory, opt.memory, MADV_HUGEPAGE);
	memset(memory, 0x5a, opt.memory);
	/* io_uring waits for a socket itself, unless that is told not to wait. */
	lfd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | (opt.uring ? 0 : SOCK_NONBLOCK), 0);
	if (lfd < 0 || setsockopt(lfd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
	    bind(lfd, (struct sockaddr *)&opt.addr, sizeof(opt.addr)) != 0 || listen(lfd, 128) != 0)
		return die("portal");
	rc = opt.uring ? engine_uring(lfd) : engine_epoll(lfd);
	while (nconn > 0)
		conn_drop(conns[0]);
	if (opt.zerocopy)
		fprintf(stderr,
			"tgt-bareloop: %llu sends with MSG_ZEROCOPY, copied by the kernel after "
			"all: %s%llu, refused: %llu\n",
			(unsigned long long)zc_calls, opt.uring ? "not told, " : "",
			(unsigned long long)zc_copied, (unsigned long long)zc_refused);
	munmap(memory, opt.memory);
	close(lfd);
	return rc;
}
