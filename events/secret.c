/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See secret.h. Slots of two sizes, cut from chunks that are never given back; a lock, a leaf. */
#include <pthread.h>
#include <sys/mman.h>

#include "events/bug.h"
#include "events/secret.h"

#define CHUNK KiB(64)

struct slot {
	struct slot *next;
};

static struct {
	size_t size;
	struct slot *free;
} classes[] = { { 256, NULL }, { 4096, NULL } };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *map_secret(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	if (madvise(p, size, MADV_DONTDUMP)) {
		munmap(p, size);
		return NULL;
	}
	(void)mlock(p, size); /* RLIMIT_MEMLOCK may say no */
	return p;
}

void secret_cleanse(void *p, size_t size)
{
	explicit_bzero(p, size);
}

/* Lock held. */
static void *take_slot(unsigned c)
{
	struct slot *s = classes[c].free;

	if (!s) {
		char *chunk = map_secret(CHUNK);

		for (size_t at = 0; chunk && at < CHUNK; at += classes[c].size) {
			s = (struct slot *)(chunk + at);
			s->next = classes[c].free;
			classes[c].free = s;
		}
		s = classes[c].free;
	}
	if (!s)
		return NULL;
	classes[c].free = s->next;
	s->next = NULL; /* all of it is zero again */
	return s;
}

static unsigned class_of(size_t size)
{
	unsigned c = 0;

	while (c < ARRAY_SIZE(classes) && size > classes[c].size)
		c++;
	return c;
}

void *secret_alloc(size_t size)
{
	unsigned c = class_of(size);
	void *p;

	ASSERT(size);
	if (c == ARRAY_SIZE(classes))
		return map_secret(size);
	pthread_mutex_lock(&lock);
	p = take_slot(c);
	pthread_mutex_unlock(&lock);
	return p;
}

void secret_free(void *p, size_t size)
{
	unsigned c = class_of(size);
	struct slot *s = p;

	if (!p)
		return;
	secret_cleanse(p, size);
	if (c == ARRAY_SIZE(classes)) {
		munmap(p, size);
		return;
	}
	pthread_mutex_lock(&lock);
	s->next = classes[c].free;
	classes[c].free = s;
	pthread_mutex_unlock(&lock);
}

char *secret_strdup(const char *text)
{
	size_t size = strlen(text) + 1;
	char *copy = secret_alloc(size);

	return copy ? memcpy(copy, text, size) : NULL;
}

void secret_strfree(char *text)
{
	if (text)
		secret_free(text, strlen(text) + 1);
}
