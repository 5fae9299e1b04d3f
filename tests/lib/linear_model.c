// SPDX-License-Identifier: Apache-2.0
/* linear_model: the store of names with one client, as a step. */
#include <string.h>
#include "tests/lib/linear_priv.h"

static bool took_effect(const struct linear_item *item)
{
	return item->op->outcome == LINEAR_OK || item->op->outcome == LINEAR_UNKNOWN;
}

bool linear__changes(const struct linear_item *item)
{
	return item->op->kind != LINEAR_LOOKUP && took_effect(item);
}

bool linear__depend(const struct linear_item *a, const struct linear_item *b)
{
	return (linear__changes(a) || linear__changes(b)) &&
		(a->name == b->name || a->name == b->to || a->to == b->name || a->to == b->to);
}

bool linear__alike(const struct linear_item *a, const struct linear_item *b)
{
	return a->op->kind == b->op->kind && a->op->noreplace == b->op->noreplace && a->name == b->name &&
		a->to == b->to && a->value == b->value;
}

static bool is_bound(const struct linear_group *g, const uint32_t *state, uint32_t value)
{
	uint32_t i = value - g->first_foreign;

	return state[g->names + i / 32] >> i % 32 & 1;
}

static bool is_foreign(const struct linear_group *g, uint32_t value)
{
	return value >= g->first_foreign && value < g->first_symbol;
}

static bool is_symbol(const struct linear_group *g, uint32_t value)
{
	return value >= g->first_symbol;
}

static bool is_new(const struct linear_group *g, uint32_t value)
{
	return g->is_new && value < g->first_symbol && g->is_new[value];
}

static uint32_t new_symbol(const struct linear_group *g, const uint32_t *state)
{
	uint32_t symbol = g->first_symbol;

	for (uint32_t n = 0; n < g->names; n++)
		if (is_symbol(g, state[n]) && state[n] >= symbol)
			symbol = state[n] + 1;
	return symbol;
}

/* Symbols by the first name that they are at. */
static void number_symbols(const struct linear_group *g, uint32_t *state)
{
	uint32_t next = g->first_symbol;

	for (uint32_t n = 0; n < g->names; n++) {
		uint32_t was = state[n];

		if (was < next)
			continue;
		for (uint32_t k = n; k < g->names && was != next; k++) {
			if (state[k] == was)
				state[k] = next;
			else if (state[k] == next)
				state[k] = was;
		}
		next++;
	}
}

/* The symbol is the inode that was found. */
static void bind(const struct linear_group *g, uint32_t *state, uint32_t symbol, uint32_t found)
{
	uint32_t i = found - g->first_foreign;

	for (uint32_t n = 0; n < g->names; n++)
		if (state[n] == symbol)
			state[n] = found;
	state[g->names + i / 32] |= (uint32_t)1 << i % 32;
}

static bool find(const struct linear_group *g, uint32_t *state, uint32_t name, uint32_t found)
{
	uint32_t value = state[name];

	if (value == VALUE_SOME && !is_new(g, found))
		state[name] = found;
	else if (is_symbol(g, value) && is_foreign(g, found) && !is_bound(g, state, found))
		bind(g, state, value, found);
	return state[name] == found;
}

/* Two values that differ: could they be one inode all the same? Only where the beginning is not known. */
static bool may_be_one(const struct linear_group *g, const uint32_t *state, uint32_t a, uint32_t b)
{
	if (a == VALUE_SOME || b == VALUE_SOME)
		return !is_new(g, a) && !is_new(g, b);
	return (is_symbol(g, a) && is_foreign(g, b) && !is_bound(g, state, b)) ||
		(is_symbol(g, b) && is_foreign(g, a) && !is_bound(g, state, a));
}

/* No name that it looks at is ANY; state becomes what is behind it, for a rename perhaps one more. */
static size_t rename_step(const struct linear_group *g, const struct linear_item *item, uint32_t *state)
{
	size_t words = linear__state_words(g), count = 0;
	uint32_t from = state[item->name], to = state[item->to];

	if (from == VALUE_NONE || (item->op->noreplace && to != VALUE_NONE))
		return 0;
	if (item->name == item->to || (from == to && from != VALUE_SOME))
		return 1;
	if (to != VALUE_NONE && may_be_one(g, state, from, to)) {
		memcpy(state + words, state, words * sizeof(state[0]));
		count++;
	}
	state[count * words + item->name] = VALUE_NONE;
	state[count * words + item->to] = from;
	return count + 1;
}

static size_t plain_step(const struct linear_group *g, const struct linear_item *item, uint32_t *state)
{
	const struct linear_op *op = item->op;
	bool is_there = state[item->name] != VALUE_NONE, is_to_there = state[item->to] != VALUE_NONE;

	if (op->outcome == LINEAR_NOENT)
		return !is_there;
	if (op->outcome == LINEAR_EXIST)
		return is_there && is_to_there;
	switch (op->kind) {
	case LINEAR_CREATE:
		state[item->name] = is_symbol(g, item->value) ? new_symbol(g, state) : item->value;
		return !is_there;
	case LINEAR_LOOKUP:
		return is_there && find(g, state, item->name, item->value);
	case LINEAR_UNLINK:
		state[item->name] = VALUE_NONE;
		return is_there;
	case LINEAR_RENAME:
		return rename_step(g, item, state);
	case LINEAR_LINK:
		state[item->to] = state[item->name];
		return is_there && !is_to_there;
	}
	return 0;
}

size_t linear__step(const struct linear_group *g, const struct linear_item *item, const uint32_t *state, uint32_t *out)
{
	size_t words = linear__state_words(g), count = 0;
	unsigned names = state[item->name] == VALUE_ANY ? 2 : 1;
	unsigned tos =
		item->to != item->name && state[item->to] == VALUE_ANY && item->op->outcome != LINEAR_NOENT ? 2 : 1;

	for (unsigned i = 0; i < names * tos; i++) {
		uint32_t *at = out + count * words;
		size_t found;

		memcpy(at, state, words * sizeof(at[0]));
		if (names == 2)
			at[item->name] = i % 2 ? VALUE_SOME : VALUE_NONE;
		if (tos == 2)
			at[item->to] = i / names % 2 ? VALUE_SOME : VALUE_NONE;
		found = plain_step(g, item, at);
		if (item->optional && found == 1 && memcmp(at, state, words * sizeof(at[0])) == 0)
			found = 0;
		for (size_t k = 0; k < found; k++)
			number_symbols(g, at + k * words);
		count += found;
	}
	return count;
}
