/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The name of a process, and whether it is gone. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/support/unit.h"
#include "tgtd/cluster/live/process.h"

static char name[GW_PROCESS_MAX + 1];

/* Waits for the state of a zombie without reaping it. */
static void await_zombie(pid_t pid)
{
	siginfo_t info;

	ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
}

START_TEST(it_lives)
{
	ck_assert(process_name(getpid(), name));
	ck_assert(!process_is_gone(name));
}
END_TEST

START_TEST(it_has_ended)
{
	const pid_t child = fork();

	if (!child) {
		pause();
		_exit(0);
	}
	ck_assert(process_name(child, name));
	ck_assert(!process_is_gone(name));
	kill(child, SIGSTOP);
	ck_assert(!process_is_gone(name));
	kill(child, SIGKILL);
	await_zombie(child);
	ck_assert(process_is_gone(name)); /* where nobody reaps, for good */
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	ck_assert(process_is_gone(name));
}
END_TEST

static void *lives_on(void *arg)
{
	const char byte = 1;

	for (;;) {
		if (arg && write(*(int *)arg, &byte, 1) < 0)
			break;
		arg = NULL;
		pause();
	}
	return NULL;
}

/* The first thread has ended: /proc says zombie, and the others still have all that is open. */
START_TEST(its_first_thread_alone_has_ended)
{
	char path[40], text[256] = "", byte;
	int pipes[2];
	pid_t child;

	ck_assert_int_eq(pipe(pipes), 0);
	child = fork();
	if (!child) {
		pthread_t t;

		if (pthread_create(&t, NULL, lives_on, &pipes[1]))
			_exit(1);
		syscall(SYS_exit, 0);
	}
	ck_assert_int_eq(read(pipes[0], &byte, 1), 1);
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)child);
	while (!strstr(text, ") Z ")) {
		FILE *f = fopen(path, "r");

		ck_assert_ptr_nonnull(f);
		ck_assert_ptr_nonnull(fgets(text, sizeof(text), f));
		fclose(f);
	}
	ck_assert(process_name(child, name));
	ck_assert(!process_is_gone(name));
	kill(child, SIGKILL);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	ck_assert(process_is_gone(name));
	close(pipes[0]);
	close(pipes[1]);
}
END_TEST

/* The @part of this process's name is another one. */
static const char *with(unsigned part, const char *text)
{
	static char other[2 * GW_PROCESS_MAX];
	char mine[GW_PROCESS_MAX + 1], *p = mine, *end;

	ck_assert(process_name(getpid(), mine));
	while (part--)
		p = strchr(p, '/') + 1;
	end = p + strcspn(p, "/");
	snprintf(other, sizeof(other), "%.*s%s%s", (int)(p - mine), mine, text, end);
	return other;
}

START_TEST(what_is_another)
{
	ck_assert(!process_is_gone(with(0, "00000000000000000000000000000000")));
	ck_assert(process_is_gone(with(1, "00000000-0000-0000-0000-000000000000")));
	ck_assert(!process_is_gone(with(2, "1")));
	ck_assert(process_is_gone(with(3, "2147483647"))); /* more than there can be */
	ck_assert(process_is_gone(with(4, "1")));	   /* its number is another's by now */
}
END_TEST

START_TEST(what_is_no_name)
{
	static const char *const texts[] = { "", "/", "////", "a/b/1/2/3", "?" };

	for (unsigned i = 0; i < ARRAY_SIZE(texts); i++)
		ck_assert(!process_is_gone(texts[i]));
	ck_assert(!process_is_gone(with(1, "")));
	ck_assert(!process_is_gone(with(1, "0000")));
	ck_assert(!process_is_gone(with(3, "0")));
	ck_assert(!process_is_gone(with(3, "-1")));
	ck_assert(!process_is_gone(with(3, "99999999999")));
	ck_assert(!process_is_gone(with(4, "1x")));
	ck_assert(!process_name(0, name));
	ck_assert_str_eq(name, "");
}
END_TEST

UNIT_MAIN("process", 20, it_lives, it_has_ended, its_first_thread_alone_has_ended, what_is_another,
	  what_is_no_name)
