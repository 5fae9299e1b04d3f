/* SPDX-License-Identifier: Apache-2.0 */
/* deadline: an ordered set of points in time: one timer serves thousands of calls. Pure. (Private to common/rpc.) */
#ifndef COMMON_RPC_DEADLINE_H
#define COMMON_RPC_DEADLINE_H

#include <stddef.h>
#include <stdint.h>

struct deadline {
	uint64_t at_ns;
	size_t place; /* private: 0 when in no set; zeroed memory will do */
};

struct deadline_set {
	struct deadline **heap; /* heap[1] is the first */
	size_t count, cap;
};

void deadline_init(struct deadline_set *set);
void deadline_fini(struct deadline_set *set);
/* Moves it if it is in the set. */
void deadline_put(struct deadline_set *set, struct deadline *d, uint64_t at_ns);
/* A no-op if it is not in. */
void deadline_remove(struct deadline_set *set, struct deadline *d);
struct deadline *deadline_first(const struct deadline_set *set); /* NULL: empty */

#endif
