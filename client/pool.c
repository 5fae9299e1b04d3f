/* SPDX-License-Identifier: Apache-2.0 */
/* pool: see the header. Invariant: taken <= reserved; made <= the greatest number ever taken at once. */
#include "client/pool.h"

#include "common/base/check.h"

static bool fits(const struct pool *p, uint32_t pages)
{
	return p->reserved_pages + pages <= p->max_pages;
}

static bool may_exceed(const struct pool *p, const struct pool_wait *w)
{
	return w->urgent && (!p->urgent_held || w->again);
}

/* One grant may let its owner ask again: new waiters go to the end, so the loop ends. */
static void grant(struct io_turn_hook *hook)
{
	struct pool *p = CONTAINER_OF(hook, struct pool, hook);

	while (!list_empty(&p->waiters)) {
		struct pool_wait *w = LIST_ENTRY(p->waiters.next, struct pool_wait, link);

		/* An urgent one need not be the first. */
		if (!fits(p, w->pages))
			LIST_FOREACH(it, &p->waiters) {
				struct pool_wait *u = LIST_ENTRY(it, struct pool_wait, link);

				if (may_exceed(p, u)) {
					w = u;
					break;
				}
			}
		if (!fits(p, w->pages)) {
			if (!may_exceed(p, w))
				return;
			p->urgent_held = true;
			w->holds_urgent = true;
		}
		p->reserved_pages += w->pages;
		list_remove(&w->link);
		w->granted(w);
	}
}

void pool_init(struct pool *p, struct io *io, uint64_t bytes)
{
	*p = (struct pool){.io = io, .max_pages = (uint32_t)(bytes / POOL_PAGE_BYTES)};
	list_init(&p->free);
	list_init(&p->waiters);
	io_turn_hook_init(&p->hook, grant);
}

void pool_fini(struct pool *p)
{
	struct list *page;

	CHECK(p->reserved_pages == 0 && p->taken_pages == 0 && list_empty(&p->waiters));
	io_turn_hook_remove(p->io, &p->hook);
	while ((page = list_pop_front(&p->free)))
		io_buffer_free(p->io, page, POOL_PAGE_BYTES);
}

bool pool_reserve(struct pool *p, uint32_t pages)
{
	if (!list_empty(&p->waiters) || !fits(p, pages))
		return false;
	p->reserved_pages += pages;
	return true;
}

void pool_unreserve(struct pool *p, uint32_t pages)
{
	CHECK(p->reserved_pages >= pages && p->reserved_pages - pages >= p->taken_pages);
	p->reserved_pages -= pages;
	if (!list_empty(&p->waiters))
		io_at_turn_end(p->io, &p->hook);
}

void pool_release_urgent(struct pool *p)
{
	CHECK(p->urgent_held);
	p->urgent_held = false;
	if (!list_empty(&p->waiters))
		io_at_turn_end(p->io, &p->hook);
}

void *pool_take(struct pool *p)
{
	struct list *page = list_pop_front(&p->free);

	CHECK(p->taken_pages < p->reserved_pages);
	p->taken_pages++;
	if (page)
		return page;
	p->made_pages++;
	return io_buffer_alloc(p->io, POOL_PAGE_BYTES);
}

void pool_put(struct pool *p, void *page)
{
	CHECK(p->taken_pages > 0);
	p->taken_pages--;
	/* The last one used is the warmest. */
	list_push_front(&p->free, page);
}

void pool_wait(struct pool *p, struct pool_wait *w)
{
	w->holds_urgent = false;
	list_push_back(&p->waiters, &w->link);
	io_at_turn_end(p->io, &p->hook);
}

void pool_wait_cancel(struct pool *p, struct pool_wait *w)
{
	if (!list_linked(&w->link))
		return;
	list_remove(&w->link);
	if (!list_empty(&p->waiters))
		io_at_turn_end(p->io, &p->hook);
}

bool pool_has_waiters(const struct pool *p)
{
	return !list_empty(&p->waiters);
}
