/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool: memory for data in flight, all files of a client together: pages of one greatest cell (1 MiB), from the loop's registered
 * buffers, kept and used again (first touch of fresh memory is dear).
 *
 * First a number of pages is reserved, then pages are taken within the reservation, so that whoever began can finish. A waiter is
 * granted in order of arrival, at the end of a turn. An *urgent* waiter (a read that must rebuild and holds other memory meanwhile)
 * may go past the bound if no other urgent one does: it can always finish, so nobody waits for ever.
 */
#ifndef CLIENT_POOL_H
#define CLIENT_POOL_H

#include <stdbool.h>
#include <stdint.h>
#include "common/base/limits.h"
#include "common/base/list.h"
#include "common/io/io.h"

enum { POOL_PAGE_BYTES = LIMIT_CELL_BYTES };

struct pool {
	struct io *io;
	uint32_t max_pages, reserved_pages, taken_pages, made_pages;
	bool urgent_held;
	struct list free;    /* pages, linked in their first bytes */
	struct list waiters;
	struct io_turn_hook hook;
};

struct pool_wait {
	struct list link;
	uint32_t pages;
	bool urgent;
	bool again;                            /* urgent: it is the one that went past the bound, and needs more to end */
	bool holds_urgent;                     /* set by the grant; pass to pool_unreserve */
	void (*granted)(struct pool_wait *w);  /* the pages are reserved */
};

void pool_init(struct pool *p, struct io *io, uint64_t bytes);
void pool_fini(struct pool *p);
/* False if there is no room now, or others wait. */
bool pool_reserve(struct pool *p, uint32_t pages);
void pool_unreserve(struct pool *p, uint32_t pages);
void pool_release_urgent(struct pool *p);
void *pool_take(struct pool *p);
void pool_put(struct pool *p, void *page);
void pool_wait(struct pool *p, struct pool_wait *w);
void pool_wait_cancel(struct pool *p, struct pool_wait *w); /* no-op if it does not wait */
bool pool_has_waiters(const struct pool *p);

#endif
