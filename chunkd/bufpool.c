/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots come from arenas of 8 MiB (large) and 1 MiB (small). A free slot holds the link to the next in its first bytes, so that keeping
 * it costs nothing. First touch of memory is dear, which is why arenas are touched when they are made and never given back.
 *
 * Hence small slots get a quarter of the memory at most; beyond it large ones serve small needs too. A flood of small chunks would
 * otherwise leave no memory for large ones as long as the daemon lives.
 */
#include "chunkd/bufpool.h"

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/list.h"
#include "common/base/mem.h"

enum { SIZE_SMALL, SIZE_LARGE, SIZES };

#define FIRST_MORE_BYTES ((uint64_t)64 << 20)

static const uint32_t slot_bytes[SIZES] = {BUFPOOL_SMALL_BYTES, BUFPOOL_LARGE_BYTES};
static const uint32_t arena_bytes[SIZES] = {1 << 20, 8 << 20};

_Static_assert((int)BUFPOOL_LARGE_BYTES >= (int)LIMIT_CELL_BYTES, "a cell fits a slot");
_Static_assert((int)BUFPOOL_LARGE_BYTES >= (int)LIMIT_TRAILER_BYTES, "a trailer fits a slot");

struct slot {
	struct slot *next;
};

struct arena {
	void *memory;
	uint32_t bytes;
	struct arena *next;
};

struct bufpool {
	struct io *io;
	uint64_t max_bytes, arena_total, small_total;
	struct arena *arenas;
	struct slot *slots[SIZES];
	uint64_t held[BUFPOOL_USES], limit[BUFPOOL_USES];
	struct list waiting[BUFPOOL_USES];
	struct io_turn_hook hook;
};

static bool grow(struct bufpool *p, int size)
{
	uint32_t bytes = arena_bytes[size];
	struct arena *arena;

	if (p->arena_total + bytes > p->max_bytes)
		return false;
	if (size == SIZE_SMALL && p->small_total + bytes > p->max_bytes / 4)
		return false;
	arena = mem_alloc(sizeof(*arena));
	*arena = (struct arena){.memory = io_buffer_alloc(p->io, bytes), .bytes = bytes, .next = p->arenas};
	p->arenas = arena;
	p->arena_total += bytes;
	p->small_total += size == SIZE_SMALL ? bytes : 0;
	for (uint32_t at = bytes; at > 0; at -= slot_bytes[size]) {
		struct slot *slot = (struct slot *)(void *)((uint8_t *)arena->memory + at - slot_bytes[size]);

		slot->next = p->slots[size];
		p->slots[size] = slot;
	}
	return true;
}

static void wake(struct io_turn_hook *hook)
{
	struct bufpool *p = CONTAINER_OF(hook, struct bufpool, hook);

	for (int use = 0; use < BUFPOOL_USES; use++) {
		struct list now;

		/* Those that find nothing queue up again behind: one pass over those that waited at its start. */
		list_init(&now);
		while (!list_empty(&p->waiting[use]))
			list_push_back(&now, list_pop_front(&p->waiting[use]));
		while (!list_empty(&now)) {
			struct bufpool_wait *w = LIST_ENTRY(list_pop_front(&now), struct bufpool_wait, link);

			w->run(w);
		}
	}
}

struct bufpool *bufpool_new(struct io *io, uint64_t max_bytes)
{
	struct bufpool *p = MEM_NEW(struct bufpool);
	uint64_t least = 4ull * (arena_bytes[SIZE_SMALL] + arena_bytes[SIZE_LARGE]);

	p->io = io;
	p->max_bytes = max_bytes < least ? least : max_bytes;
	p->limit[BUFPOOL_PUT] = p->max_bytes / 4 * 3;
	p->limit[BUFPOOL_GET] = p->max_bytes / 2;
	for (int use = 0; use < BUFPOOL_USES; use++)
		list_init(&p->waiting[use]);
	io_turn_hook_init(&p->hook, wake);
	(void)grow(p, SIZE_LARGE);
	if (p->max_bytes >= FIRST_MORE_BYTES)
		(void)grow(p, SIZE_LARGE);
	(void)grow(p, SIZE_SMALL);
	return p;
}

void bufpool_free(struct bufpool *p)
{
	if (!p)
		return;
	for (int use = 0; use < BUFPOOL_USES; use++)
		CHECK(p->held[use] == 0 && list_empty(&p->waiting[use]));
	io_turn_hook_remove(p->io, &p->hook);
	while (p->arenas) {
		struct arena *next = p->arenas->next;

		io_buffer_free(p->io, p->arenas->memory, p->arenas->bytes);
		mem_free(p->arenas);
		p->arenas = next;
	}
	mem_free(p);
}

int bufpool_get(struct bufpool *p, enum bufpool_use use, size_t bytes, struct bufpool_buf *ret_buf)
{
	int size = bytes <= BUFPOOL_SMALL_BYTES ? SIZE_SMALL : SIZE_LARGE;
	struct slot *slot;

	CHECK(bytes > 0 && bytes <= BUFPOOL_LARGE_BYTES);
	if (p->held[use] + slot_bytes[size] > p->limit[use])
		return ERR_OVERLOADED;
	if (!p->slots[size] && !grow(p, size)) {
		if (size == SIZE_LARGE || p->held[use] + BUFPOOL_LARGE_BYTES > p->limit[use])
			return ERR_OVERLOADED;
		if (!p->slots[SIZE_LARGE] && !grow(p, SIZE_LARGE))
			return ERR_OVERLOADED;
		size = SIZE_LARGE;
	}
	slot = p->slots[size];
	p->slots[size] = slot->next;
	p->held[use] += slot_bytes[size];
	*ret_buf = (struct bufpool_buf){.data = (uint8_t *)slot, .bytes = slot_bytes[size], .use = (uint8_t)use};
	return 0;
}

void bufpool_put(struct bufpool *p, struct bufpool_buf *buf)
{
	int size = buf->bytes == BUFPOOL_SMALL_BYTES ? SIZE_SMALL : SIZE_LARGE;
	struct slot *slot = (struct slot *)(void *)buf->data;

	if (!slot)
		return;
	CHECK(p->held[buf->use] >= buf->bytes);
	p->held[buf->use] -= buf->bytes;
	slot->next = p->slots[size];
	p->slots[size] = slot;
	buf->data = NULL;
	for (int use = 0; use < BUFPOOL_USES; use++)
		if (!list_empty(&p->waiting[use]))
			io_at_turn_end(p->io, &p->hook);
}

void bufpool_wait(struct bufpool *p, enum bufpool_use use, struct bufpool_wait *wait)
{
	CHECK(!list_linked(&wait->link));
	list_push_back(&p->waiting[use], &wait->link);
}

void bufpool_wait_cancel(struct bufpool_wait *wait)
{
	if (list_linked(&wait->link))
		list_remove(&wait->link);
}

uint64_t bufpool_held_bytes(const struct bufpool *p, enum bufpool_use use)
{
	return p->held[use];
}

uint64_t bufpool_free_bytes(const struct bufpool *p, enum bufpool_use use)
{
	return p->limit[use] - p->held[use];
}
