/* SPDX-License-Identifier: Apache-2.0 */
/*
 * values: all that a crew did to one thing, without any order among its workers, and what a look at it may find by time alone: a value
 * whose change began before the look ended, and which no change replaced that began after that one had been acknowledged and was itself
 * acknowledged before the look began.
 */
#ifndef TESTS_SIM_VALUES_H
#define TESTS_SIM_VALUES_H

#include "tests/sim/checker.h"

#define VALUES_NEVER UINT64_MAX

/* Content 0: it was removed. */
struct values_change {
	struct content content;
	uint64_t begin, end; /* ticks; end VALUES_NEVER: not acknowledged, so it may take effect at any time */
	bool dead;           /* it was given up before it could take effect */
};

struct values {
	struct values_change *changes; /* the first is that nothing was there */
	size_t count, cap;
};

void values_init(struct values *v, uint64_t *tick);
void values_fini(struct values *v);
/* A change begins: its place. */
size_t values_add(struct values *v, uint64_t *tick, struct content content);
/* Could a look between begin and end have found this change's value? */
bool values_may_be_found(const struct values *v, const struct values_change *c, uint64_t begin, uint64_t end);
/* Could it have found nothing; something? */
bool values_may_be_nothing(const struct values *v, uint64_t begin, uint64_t end);
bool values_may_be_something(const struct values *v, uint64_t begin, uint64_t end);

#endif
