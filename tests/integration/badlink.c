/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A bad network link without the kernel's netem: a tun device here, one in a network namespace of
 * its own, and this program in between, which delays, loses, doubles, reorders and damages packets.
 *
 *     badlink NEAR-ADDRESS FAR-ADDRESS     (IPv4, of one /24)
 *
 * Prints the process id by which `nsenter -t PID -n` reaches the other end. Lines on standard input
 * say what happens to each packet of either direction from then on; what a line does not name does
 * not happen:
 *
 *     delay US jitter US loss P duplicate P reorder P damage P      (P: 0 to 1)
 *
 * Reordered packets are not delayed, as with netem. It ends with its standard input.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PACKET_MAX 2048
#define PACKETS_MAX 200000

struct packet {
	uint64_t due, seq;
	int to;
	uint32_t len;
	uint8_t data[];
};

static struct packet *heap[PACKETS_MAX];
static size_t npackets;
static uint64_t nseq;
static struct {
	double delay, jitter, loss, duplicate, reorder, damage;
} now;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static bool chance(double p)
{
	return p > 0 && drand48() < p;
}

static bool before(const struct packet *a, const struct packet *b)
{
	return a->due < b->due || (a->due == b->due && a->seq < b->seq);
}

static void push(struct packet *p)
{
	size_t i = npackets++;

	for (; i && before(p, heap[(i - 1) / 2]); i = (i - 1) / 2)
		heap[i] = heap[(i - 1) / 2];
	heap[i] = p;
}

static struct packet *pop(void)
{
	struct packet *first = heap[0], *last = heap[--npackets];
	size_t i = 0, k;

	while ((k = 2 * i + 1) < npackets) {
		if (k + 1 < npackets && before(heap[k + 1], heap[k]))
			k++;
		if (!before(heap[k], last))
			break;
		heap[i] = heap[k];
		i = k;
	}
	heap[i] = last;
	return first;
}

static void queue(const uint8_t *data, uint32_t len, int to)
{
	struct packet *p;
	double us = now.delay;

	if (npackets == PACKETS_MAX || !(p = malloc(sizeof(*p) + len)))
		return; /* lost */
	if (now.jitter > 0)
		us += now.jitter * (2 * drand48() - 1);
	if (chance(now.reorder) || us < 0)
		us = 0;
	p->due = now_ns() + (uint64_t)(us * 1000);
	p->seq = nseq++;
	p->to = to;
	p->len = len;
	memcpy(p->data, data, len);
	if (chance(now.damage))
		p->data[lrand48() % len] ^= (uint8_t)(1 << lrand48() % 8);
	push(p);
}

static void come_in(int from, int to)
{
	uint8_t data[PACKET_MAX];

	for (unsigned i = 0; i < 64; i++) {
		ssize_t n = read(from, data, sizeof(data));

		if (n <= 0)
			return;
		if (chance(now.loss))
			continue;
		queue(data, (uint32_t)n, to);
		if (chance(now.duplicate))
			queue(data, (uint32_t)n, to);
	}
}

static void go_out(void)
{
	const uint64_t t = now_ns();

	while (npackets && heap[0]->due <= t) {
		struct packet *p = pop();

		if (write(p->to, p->data, p->len) < 0 && errno != EINVAL && errno != EIO)
			perror("badlink: write");
		free(p);
	}
}

static void obey(char *line)
{
	static const char *const word[] = { "delay", "jitter", "loss", "duplicate", "reorder",
					    "damage" };
	double *const value[] = { &now.delay,	  &now.jitter,	&now.loss,
				  &now.duplicate, &now.reorder, &now.damage };
	char *save, *key = strtok_r(line, " \n", &save), *arg;

	memset(&now, 0, sizeof(now));
	for (; key; key = strtok_r(NULL, " \n", &save)) {
		size_t i = 0;

		while (i < 6 && strcmp(key, word[i]))
			i++;
		arg = strtok_r(NULL, " \n", &save);
		if (i == 6 || !arg) {
			fprintf(stderr, "badlink: %s?\n", key);
			exit(2);
		}
		*value[i] = strtod(arg, NULL);
	}
}

/* A tun device in the namespace of the caller, up. -1: it cannot be had. */
static int open_tun(const char *name, const char *address)
{
	struct ifreq ifr = { .ifr_flags = IFF_TUN | IFF_NO_PI };
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	char command[256];

	snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", name);
	snprintf(command, sizeof(command),
		 "ip link set lo up && ip addr add %s/24 dev %s && "
		 "ip link set %s txqueuelen 20000 up",
		 address, name, name);
	if (fd < 0 || ioctl(fd, TUNSETIFF, &ifr) < 0 || system(command)) {
		perror("badlink: tun");
		return -1;
	}
	return fd;
}

static int receive_fd(int sock)
{
	char byte, control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { &byte, 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
			    .msg_controllen = sizeof(control) };
	int fd;

	if (recvmsg(sock, &m, MSG_CMSG_CLOEXEC) != 1 || !CMSG_FIRSTHDR(&m))
		return -1;
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	return fd;
}

static bool send_fd(int sock, int fd)
{
	char byte = 0, control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { &byte, 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
			    .msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	return sendmsg(sock, &m, 0) == 1;
}

/* The other end: a process that is there for its namespace. */
static pid_t other_end(int sock[2], const char *address)
{
	pid_t pid = fork();
	int fd;

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (unshare(CLONE_NEWNET) || (fd = open_tun("far", address)) < 0 || !send_fd(sock[1], fd))
		_exit(1);
	close(fd);
	for (;;)
		pause();
}

static void relay(int near, int far)
{
	struct pollfd p[3] = { { near, POLLIN, 0 }, { far, POLLIN, 0 }, { 0, POLLIN, 0 } };
	char line[256];

	for (;;) {
		struct timespec wait = { 3600, 0 };

		if (npackets) {
			uint64_t t = now_ns(), due = heap[0]->due;
			uint64_t ns = due > t ? due - t : 0;

			wait.tv_sec = (time_t)(ns / 1000000000);
			wait.tv_nsec = (long)(ns % 1000000000);
		}
		if (ppoll(p, 3, &wait, NULL) < 0 && errno != EINTR)
			return;
		if (p[2].revents) {
			ssize_t n = read(0, line, sizeof(line) - 1);

			if (n <= 0)
				return;
			line[n] = 0;
			obey(line);
		}
		if (p[0].revents)
			come_in(near, far);
		if (p[1].revents)
			come_in(far, near);
		go_out();
	}
}

int main(int argc, char **argv)
{
	int sock[2], near, far;
	pid_t pid;

	if (argc != 3) {
		fprintf(stderr, "usage: badlink NEAR-ADDRESS FAR-ADDRESS\n");
		return 2;
	}
	prctl(PR_SET_TIMERSLACK, 1);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock))
		return 1;
	pid = other_end(sock, argv[2]);
	close(sock[1]);
	near = open_tun("near", argv[1]);
	far = pid > 0 ? receive_fd(sock[0]) : -1;
	if (near < 0 || far < 0)
		return 1;
	printf("%d\n", (int)pid);
	fflush(stdout);
	relay(near, far);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return 0;
}
