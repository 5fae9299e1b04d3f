// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/values.h"

#include "common/base/mem.h"

void values_init(struct values *v, uint64_t *tick)
{
	*v = (struct values){0};
	values_add(v, tick, (struct content){0});
	v->changes[0].end = ++*tick;
}

void values_fini(struct values *v)
{
	mem_free(v->changes);
}

size_t values_add(struct values *v, uint64_t *tick, struct content content)
{
	if (v->count == v->cap) {
		v->cap = v->cap ? 2 * v->cap : 16;
		v->changes = mem_realloc(v->changes, v->cap * sizeof(v->changes[0]));
	}
	v->changes[v->count] = (struct values_change){.content = content, .begin = ++*tick, .end = VALUES_NEVER};
	return v->count++;
}

bool values_may_be_found(const struct values *v, const struct values_change *c, uint64_t begin, uint64_t end)
{
	if (c->dead || c->begin > end)
		return false;
	for (size_t i = 0; i < v->count; i++) {
		const struct values_change *later = &v->changes[i];

		if (later->end < begin && later->begin > c->end)
			return false;
	}
	return true;
}

static bool may_be(const struct values *v, bool something, uint64_t begin, uint64_t end)
{
	for (size_t i = 0; i < v->count; i++)
		if ((v->changes[i].content.id != 0) == something && values_may_be_found(v, &v->changes[i], begin, end))
			return true;
	return false;
}

bool values_may_be_nothing(const struct values *v, uint64_t begin, uint64_t end)
{
	return may_be(v, false, begin, end);
}

bool values_may_be_something(const struct values *v, uint64_t begin, uint64_t end)
{
	return may_be(v, true, begin, end);
}
