// SPDX-License-Identifier: Apache-2.0
/* linear: see the header. The history is told apart into groups of coupled names, each of which is searched; then the window. */
#include "tests/lib/linear.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/mem.h"
#include "tests/lib/linear_priv.h"

enum {
	STEPS_MAX = 100000000,   /* of one search: a minute or two */
	WINDOW_STEPS = 20000000, /* for finding the window; where they end it is as short as it is by then */
};

struct named {
	const char *name;
	uint32_t leader; /* another name of the same group; its own number: it leads */
};

struct check {
	const struct linear_history *h;
	struct linear_result *r;
	struct named *names; /* in order */
	size_t name_count;
	size_t *order;  /* operations by group and invocation */
	uint64_t *made; /* inodes whose creation was acknowledged, in order */
	size_t made_count, bytes;
	size_t steps_left; /* of WINDOW_STEPS */
};

/* ---- histories ---- */

struct linear_op *linear_add(struct linear_history *h)
{
	if (h->count == h->cap) {
		h->cap = h->cap ? 2 * h->cap : 256;
		h->ops = mem_realloc(h->ops, h->cap * sizeof(h->ops[0]));
	}
	h->ops[h->count] = (struct linear_op){0};
	return &h->ops[h->count++];
}

void linear_fini(struct linear_history *h)
{
	mem_free(h->ops);
	*h = (struct linear_history){0};
}

void linear_result_fini(struct linear_result *r)
{
	mem_free(r->window);
	*r = (struct linear_result){0};
}

const char *linear_kind_name(enum linear_kind kind)
{
	static const char *const names[] = {[LINEAR_CREATE] = "create",
		[LINEAR_LOOKUP] = "lookup",
		[LINEAR_UNLINK] = "unlink",
		[LINEAR_RENAME] = "rename",
		[LINEAR_LINK] = "link"};

	return (size_t)kind < ARRAY_COUNT(names) ? names[kind] : NULL;
}

const char *linear_outcome_name(enum linear_outcome outcome)
{
	static const char *const names[] = {
		[LINEAR_OK] = "ok", [LINEAR_EXIST] = "EEXIST", [LINEAR_NOENT] = "ENOENT", [LINEAR_UNKNOWN] = "unknown"};

	return (size_t)outcome < ARRAY_COUNT(names) ? names[outcome] : NULL;
}

static bool has_to(const struct linear_op *op)
{
	return op->kind == LINEAR_RENAME || op->kind == LINEAR_LINK;
}

static bool says_nothing(const struct linear_op *op)
{
	return op->kind == LINEAR_LOOKUP && op->outcome == LINEAR_UNKNOWN;
}

static const char *malformed(const struct linear_op *op)
{
	if (!linear_kind_name(op->kind) || !linear_outcome_name(op->outcome))
		return "there is no such operation or outcome";
	if (!op->name[0] || (has_to(op) && !op->to[0]))
		return "a name is missing";
	if (memchr(op->name, 0, sizeof(op->name)) == NULL || memchr(op->to, 0, sizeof(op->to)) == NULL)
		return "a name does not end";
	if (op->outcome != LINEAR_UNKNOWN && op->ret < op->invoke)
		return "it returned before it was invoked";
	if (op->outcome == LINEAR_EXIST && op->kind != LINEAR_CREATE && op->kind != LINEAR_LINK &&
		!(op->kind == LINEAR_RENAME && op->noreplace))
		return "it cannot be refused with EEXIST";
	if (op->outcome == LINEAR_NOENT && op->kind == LINEAR_CREATE)
		return "a create cannot be refused with ENOENT";
	if (op->outcome == LINEAR_OK && !has_to(op) && op->kind != LINEAR_UNLINK && op->inode == 0)
		return "it tells no inode";
	return NULL;
}

/* ---- groups ---- */

static int by_text(const void *a, const void *b)
{
	return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static uint32_t number_of(const struct check *c, const char *name)
{
	struct named key = {.name = name};
	const struct named *found = bsearch(&key, c->names, c->name_count, sizeof(key), by_text);

	CHECK(found);
	return (uint32_t)(found - c->names);
}

static uint32_t leader_of(struct check *c, uint32_t n)
{
	while (c->names[n].leader != n) {
		c->names[n].leader = c->names[c->names[n].leader].leader;
		n = c->names[n].leader;
	}
	return n;
}

static void name_all(struct check *c)
{
	size_t n = 0;

	c->names = mem_array(2 * c->h->count + 1, sizeof(c->names[0]));
	for (size_t i = 0; i < c->h->count; i++) {
		c->names[n++].name = c->h->ops[i].name;
		if (has_to(&c->h->ops[i]))
			c->names[n++].name = c->h->ops[i].to;
	}
	qsort(c->names, n, sizeof(c->names[0]), by_text);
	for (size_t i = 0; i < n; i++)
		if (i == 0 || strcmp(c->names[i].name, c->names[c->name_count - 1].name) != 0)
			c->names[c->name_count++] = c->names[i];
	for (uint32_t i = 0; i < c->name_count; i++)
		c->names[i].leader = i;
	for (size_t i = 0; i < c->h->count; i++)
		if (has_to(&c->h->ops[i])) {
			uint32_t a = leader_of(c, number_of(c, c->h->ops[i].name));

			c->names[a].leader = leader_of(c, number_of(c, c->h->ops[i].to));
		}
}

struct place {
	uint32_t leader;
	uint64_t invoke;
	size_t op;
};

static int by_place(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->leader != y->leader)
		return x->leader < y->leader ? -1 : 1;
	if (x->invoke != y->invoke)
		return x->invoke < y->invoke ? -1 : 1;
	return x->op < y->op ? -1 : x->op > y->op;
}

static void order_all(struct check *c)
{
	struct place *places = mem_array(c->h->count + 1, sizeof(places[0]));

	c->order = mem_array(c->h->count + 1, sizeof(c->order[0]));
	for (size_t i = 0; i < c->h->count; i++) {
		const struct linear_op *op = &c->h->ops[i];

		if (says_nothing(op))
			continue;
		places[c->r->checked++] = (struct place){leader_of(c, number_of(c, op->name)), op->invoke, i};
		c->r->unknown += op->outcome == LINEAR_UNKNOWN;
	}
	qsort(places, c->r->checked, sizeof(places[0]), by_place);
	for (size_t i = 0; i < c->r->checked; i++)
		c->order[i] = places[i].op;
	mem_free(places);
}

/* ---- one group ---- */

static bool is_made(const struct check *c, uint64_t inode)
{
	return bsearch(&inode, c->made, c->made_count, sizeof(inode), by_number) != NULL;
}

static bool tells_inode(const struct linear_op *op)
{
	return op->outcome == LINEAR_OK && (op->kind == LINEAR_CREATE || op->kind == LINEAR_LOOKUP);
}

static size_t put_distinct(uint64_t *values, size_t count)
{
	size_t distinct = 0;

	qsort(values, count, sizeof(values[0]), by_number);
	for (size_t i = 0; i < count; i++)
		if (i == 0 || values[i] != values[distinct - 1])
			values[distinct++] = values[i];
	return distinct;
}

static uint32_t at(const uint64_t *values, size_t count, uint64_t value)
{
	return (uint32_t)((const uint64_t *)bsearch(&value, values, count, sizeof(value), by_number) - values);
}

static void group_init(struct check *c, const size_t *ops, size_t count, struct linear_group *g)
{
	uint64_t *known = mem_array(count + 1, sizeof(known[0])), *foreign = mem_array(count + 1, sizeof(foreign[0]));
	uint64_t *names = mem_array(2 * count + 1, sizeof(names[0]));
	size_t known_count = 0, foreign_count = 0, name_count = 0;

	for (size_t i = 0; i < count; i++) {
		const struct linear_op *op = &c->h->ops[ops[i]];

		names[name_count++] = number_of(c, op->name);
		names[name_count++] = number_of(c, has_to(op) ? op->to : op->name);
		if (tells_inode(op) && is_made(c, op->inode))
			known[known_count++] = op->inode;
		else if (tells_inode(op))
			foreign[foreign_count++] = op->inode;
	}
	name_count = put_distinct(names, name_count);
	known_count = put_distinct(known, known_count);
	foreign_count = put_distinct(foreign, foreign_count);
	*g = (struct linear_group){.items = mem_array(count + 1, sizeof(g->items[0])),
		.count = count,
		.names = (uint32_t)name_count,
		.foreign = (uint32_t)foreign_count,
		.first_foreign = VALUE_FIRST + (uint32_t)known_count,
		.first_symbol = VALUE_FIRST + (uint32_t)(known_count + foreign_count)};
	for (size_t i = 0; i < count; i++) {
		const struct linear_op *op = &c->h->ops[ops[i]];
		struct linear_item *item = &g->items[i];

		*item = (struct linear_item){.op = op, .optional = op->outcome == LINEAR_UNKNOWN};
		item->name = at(names, name_count, number_of(c, op->name));
		item->to = has_to(op) ? at(names, name_count, number_of(c, op->to)) : item->name;
		if (tells_inode(op) && is_made(c, op->inode))
			item->value = VALUE_FIRST + at(known, known_count, op->inode);
		else if (tells_inode(op))
			item->value = g->first_foreign + at(foreign, foreign_count, op->inode);
		else if (op->kind == LINEAR_CREATE && op->outcome == LINEAR_UNKNOWN)
			item->value = g->first_symbol;
	}
	mem_free(known);
	mem_free(foreign);
	mem_free(names);
}

/* ---- the window ---- */

/* What is left of the group when it begins at that time: what was under way then may have taken effect already. */
static struct linear_group cut(const struct linear_group *g, uint64_t from, uint64_t to)
{
	struct linear_group part = *g;

	part.items = mem_array(g->count + 1, sizeof(part.items[0]));
	part.is_new = mem_array(g->first_symbol + 1, sizeof(part.is_new[0]));
	part.count = 0;
	for (size_t i = 0; i < g->count; i++) {
		struct linear_item item = g->items[i];
		bool is_before = item.op->invoke < from;

		if (item.op->invoke > to || (!item.optional && item.op->ret < from) ||
			(is_before && !linear__changes(&item)))
			continue;
		item.optional |= is_before;
		if (item.op->kind == LINEAR_CREATE && item.op->outcome == LINEAR_OK && !item.optional)
			part.is_new[item.value] = true;
		part.items[part.count++] = item;
	}
	return part;
}

static void cut_free(struct linear_group *part)
{
	mem_free(part->items);
	mem_free(part->is_new);
}

static enum linear_verdict search(struct check *c, const struct linear_group *g, bool middle, size_t *ret_failed)
{
	struct linear_search s = {.group = g, .middle = middle, .bytes = c->bytes, .steps = c->steps_left / 10};

	linear__search(&s);
	c->steps_left -= s.stepped < c->steps_left ? s.stepped : c->steps_left;
	*ret_failed = s.failed;
	return s.verdict;
}

static bool fails_from(struct check *c, const struct linear_group *g, uint64_t from, uint64_t to)
{
	struct linear_group part = cut(g, from, to);
	size_t failed;
	bool fails = search(c, &part, true, &failed) == LINEAR_NO;

	cut_free(&part);
	return fails;
}

/* Reads one by one: what has no order without one of them has none with it. */
static void thin(struct check *c, struct linear_group *g, bool middle)
{
	for (size_t i = g->count; i-- > 0;) {
		struct linear_item item = g->items[i];
		size_t failed;

		if (linear__changes(&item))
			continue;
		memmove(&g->items[i], &g->items[i + 1], (g->count - i - 1) * sizeof(item));
		g->count--;
		if (search(c, g, middle, &failed) == LINEAR_NO)
			continue;
		memmove(&g->items[i + 1], &g->items[i], (g->count - i) * sizeof(item));
		g->items[i] = item;
		g->count++;
	}
}

/* Without the items whose names nothing couples with the names of those that cannot be explained. */
static void keep_coupled(struct check *c, struct linear_group *g, bool middle)
{
	bool *is_in = mem_array(g->names + 1, sizeof(is_in[0])), more = true;
	size_t failed, kept = 0;

	if (search(c, g, middle, &failed) != LINEAR_NO) {
		mem_free(is_in);
		return;
	}
	is_in[g->items[failed].name] = is_in[g->items[failed].to] = true;
	while (more) {
		more = false;
		for (size_t i = 0; i < g->count; i++) {
			const struct linear_item *item = &g->items[i];

			if (is_in[item->name] == is_in[item->to])
				continue;
			is_in[item->name] = is_in[item->to] = more = true;
		}
	}
	for (size_t i = 0; i < g->count; i++)
		if (is_in[g->items[i].name])
			g->items[kept++] = g->items[i];
	g->count = kept;
	mem_free(is_in);
}

static void tell_window(struct check *c, const struct linear_group *g, size_t failed)
{
	struct linear_result *r = c->r;
	uint64_t to = g->items[failed].op->ret;
	struct linear_group part;
	size_t lo = 0, hi = failed; /* it fails from lo on, in the sense of r->from_start; it does not from behind hi */

	r->from_start = !fails_from(c, g, g->items[0].op->invoke, to);
	while (!r->from_start && lo < hi) {
		size_t middle = (lo + hi + 1) / 2;

		if (fails_from(c, g, g->items[middle].op->invoke, to))
			lo = middle;
		else
			hi = middle - 1;
	}
	part = cut(g, g->items[lo].op->invoke, to);
	keep_coupled(c, &part, !r->from_start);
	thin(c, &part, !r->from_start);
	r->window = mem_array(part.count + 1, sizeof(r->window[0]));
	for (size_t i = 0; i < part.count; i++)
		r->window[r->window_count++] = (size_t)(part.items[i].op - c->h->ops);
	cut_free(&part);
}

/* ---- the check ---- */

/* An inode that nobody can have made by then: this needs no search, and no window can tell it as well. */
static bool check_foreign(struct check *c, const struct linear_group *g)
{
	uint64_t first = UINT64_MAX;

	for (size_t i = 0; i < g->count; i++)
		if (g->items[i].value >= g->first_symbol && g->items[i].op->invoke < first)
			first = g->items[i].op->invoke;
	for (size_t i = 0; i < g->count; i++) {
		const struct linear_item *item = &g->items[i];

		if (item->value < g->first_foreign || item->value >= g->first_symbol || item->op->ret >= first)
			continue;
		c->r->verdict = LINEAR_NO;
		c->r->from_start = true;
		snprintf(c->r->text, sizeof(c->r->text), "%s names an inode that nobody has made", item->op->name);
		c->r->window = mem_array(1, sizeof(c->r->window[0]));
		c->r->window[c->r->window_count++] = (size_t)(item->op - c->h->ops);
		return false;
	}
	return true;
}

static void check_group(struct check *c, const size_t *ops, size_t count)
{
	struct linear_group g;
	bool *conflicts = mem_array(count + 1, sizeof(conflicts[0]));
	struct linear_search s = {.conflicts = conflicts, .bytes = c->bytes, .steps = STEPS_MAX};

	group_init(c, ops, count, &g);
	if (!check_foreign(c, &g)) {
		mem_free(g.items);
		mem_free(conflicts);
		return;
	}
	s.group = &g;
	linear__search(&s);
	c->r->groups++;
	for (size_t i = 0; i < count; i++)
		c->r->conflicts += conflicts[i];
	if (s.widest > c->r->widest)
		c->r->widest = s.widest;
	if (s.verdict == LINEAR_NO) {
		snprintf(c->r->text, sizeof(c->r->text), "no order explains a %s of %s",
			linear_kind_name(g.items[s.failed].op->kind), g.items[s.failed].op->name);
		c->r->verdict = LINEAR_NO;
		tell_window(c, &g, s.failed);
	} else if (s.verdict == LINEAR_UNDECIDED && c->r->verdict == LINEAR_YES) {
		snprintf(c->r->text, sizeof(c->r->text), "the search among %u names coupled with %s passes its bound",
			g.names, g.items[0].op->name);
		c->r->verdict = LINEAR_UNDECIDED;
	}
	mem_free(g.items);
	mem_free(conflicts);
}

struct sight {
	uint64_t inode;
	uint32_t leader;
	bool create;
	size_t op;
};

static int by_inode(const void *a, const void *b)
{
	const struct sight *x = a, *y = b;

	if (x->inode != y->inode)
		return x->inode < y->inode ? -1 : 1;
	if (x->create != y->create)
		return x->create ? -1 : 1;
	return x->op < y->op ? -1 : x->op > y->op;
}

static void tell_two(struct check *c, size_t a, size_t b, const char *what)
{
	struct linear_result *r = c->r;

	r->verdict = LINEAR_NO;
	snprintf(r->text, sizeof(r->text), "inode %llu %s", (unsigned long long)c->h->ops[a].inode, what);
	r->window = mem_array(2, sizeof(r->window[0]));
	r->window[0] = a;
	r->window[1] = b;
	r->window_count = 2;
}

/* What the groups do not see one by one: an inode is made once, and stays with the names of one group. */
static void check_inodes(struct check *c)
{
	struct sight *sights = mem_array(c->h->count + 1, sizeof(sights[0]));
	size_t count = 0;

	for (size_t i = 0; i < c->h->count; i++) {
		const struct linear_op *op = &c->h->ops[i];

		if (tells_inode(op))
			sights[count++] = (struct sight){
				op->inode, leader_of(c, number_of(c, op->name)), op->kind == LINEAR_CREATE, i};
	}
	qsort(sights, count, sizeof(sights[0]), by_inode);
	c->made = mem_array(count + 1, sizeof(c->made[0]));
	for (size_t i = 0; i < count; i++) {
		if (sights[i].create)
			c->made[c->made_count++] = sights[i].inode;
		if (i == 0 || sights[i].inode != sights[i - 1].inode || c->r->verdict != LINEAR_YES)
			continue;
		if (sights[i].create)
			tell_two(c, sights[i - 1].op, sights[i].op, "was made twice");
		else if (sights[i].leader != sights[i - 1].leader)
			tell_two(c, sights[i - 1].op, sights[i].op, "is seen at two names that nothing couples");
	}
	mem_free(sights);
}

void linear_check(const struct linear_history *h, size_t bytes, struct linear_result *r)
{
	struct check c = {.h = h, .r = r, .bytes = bytes, .steps_left = WINDOW_STEPS};

	*r = (struct linear_result){.verdict = LINEAR_YES};
	for (size_t i = 0; i < h->count; i++) {
		const char *why = malformed(&h->ops[i]);

		if (!why)
			continue;
		r->verdict = LINEAR_MALFORMED;
		snprintf(r->text, sizeof(r->text), "operation %zu: %s", i + 1, why);
		return;
	}
	name_all(&c);
	order_all(&c);
	check_inodes(&c);
	for (size_t from = 0, to; from < r->checked && r->verdict != LINEAR_NO; from = to) {
		uint32_t leader = leader_of(&c, number_of(&c, h->ops[c.order[from]].name));

		for (to = from; to < r->checked && leader_of(&c, number_of(&c, h->ops[c.order[to]].name)) == leader;)
			to++;
		check_group(&c, c.order + from, to - from);
	}
	mem_free(c.names);
	mem_free(c.order);
	mem_free(c.made);
}

/* ---- for a reader ---- */

static void describe_op(const struct linear_op *op, uint64_t zero, struct buf *out)
{
	char names[2 * LINEAR_NAME_BYTES + 8];

	snprintf(names, sizeof(names), "%s%s%s", op->name, has_to(op) ? " -> " : "", has_to(op) ? op->to : "");
	buf_printf(out, "  %12lld ", (long long)(op->invoke - zero));
	if (op->outcome == LINEAR_UNKNOWN)
		buf_printf(out, "%12s", "...");
	else
		buf_printf(out, "%12lld", (long long)(op->ret - zero));
	buf_printf(out, "  client %-4u %s%s %-24s %s", op->client, linear_kind_name(op->kind), op->noreplace ? "!" : "",
		names, linear_outcome_name(op->outcome));
	if (tells_inode(op))
		buf_printf(out, " %llu", (unsigned long long)op->inode);
	buf_printf(out, "\n");
}

void linear_describe(const struct linear_history *h, const struct linear_result *r, struct buf *out)
{
	static const char *const verdicts[] = {[LINEAR_YES] = "linearizable",
		[LINEAR_NO] = "NOT LINEARIZABLE",
		[LINEAR_UNDECIDED] = "undecided",
		[LINEAR_MALFORMED] = "not a history"};
	uint64_t zero = UINT64_MAX;

	buf_printf(out, "%s%s%s\n", verdicts[r->verdict], r->text[0] ? ": " : "", r->text);
	for (size_t i = 0; i < r->window_count; i++)
		if (h->ops[r->window[i]].invoke < zero)
			zero = h->ops[r->window[i]].invoke;
	if (r->window_count)
		buf_printf(out, "these %zu have no order, %s (invoked, returned: from %llu on):\n", r->window_count,
			r->from_start ? "where no name named anything at first" : "whatever the names were before",
			(unsigned long long)zero);
	for (size_t i = 0; i < r->window_count; i++)
		describe_op(&h->ops[r->window[i]], zero, out);
}
