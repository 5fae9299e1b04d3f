// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/joiner.h"

#include <string.h>
#include "common/base/sometimes.h"
#include "metad/core.h"

enum {
	UNWANTED_MAX = 10, /* who says so may not lead any more, and not know it */
	OLDER_SEEDS = 8,   /* in one of so many a lost founder comes back with the build of before, */
	OLDER_MORE = 12,   /* for so many starts if it is let in with that */
};

#define AGAIN_NS (CLUSTER_S / 2)
#define BLANK_NS (5 * CLUSTER_S) /* a leader writes to a member much more often */

static uint64_t now_ns(const struct joiner *j)
{
	return sim_now_ns(j->cluster->sim);
}

static struct cluster_node *node_of(const struct joiner *j)
{
	return &j->cluster->nodes[j->node];
}

static bool is_up(const struct joiner *j)
{
	return cluster_running(j->cluster, j->node) && !node_of(j)->metad->failed;
}

static bool is_blank(const struct joiner *j)
{
	return is_up(j) && replica_is_blank(node_of(j)->metad->ledger->replica);
}

static bool has_something(const struct joiner *j)
{
	return is_up(j) && !is_blank(j);
}

static bool is_older(const struct joiner *j)
{
	return is_up(j) && node_of(j)->metad->options.supports < STATE_CLUSTER_VERSION;
}

/* The group has risen above what the joiner's build supports: not only somebody says so. */
static bool has_risen(const struct joiner *j)
{
	const struct cluster *c = j->cluster;

	for (unsigned i = 0; i < c->node_count; i++)
		if (cluster_is_metad(c, i) && cluster_running(c, i) && c->nodes[i].metad->state.formatted &&
			c->nodes[i].metad->state.meta.version > node_of(j)->metad->options.supports)
			return true;
	return false;
}

/* ---- what is asked ---- */

static void answered(struct client_op *op)
{
	((struct joiner *)op->user)->answered = true;
}

static void say_word(struct joiner *j)
{
	struct io_addr addr = cluster_metad_addr(j->cluster, j->node);

	if (j->state == JOINER_ADD)
		io_addr_format(&addr, j->word);
	else
		snprintf(j->word, sizeof(j->word), "metad-%llu", (unsigned long long)node_of(j)->replica);
}

static void ask(struct joiner *j)
{
	struct cluster *c = j->cluster;

	for (unsigned i = c->first_client; i < c->client_end; i++) {
		if (!cluster_running(c, i))
			continue;
		j->client = i;
		j->client_starts = c->nodes[i].starts;
		j->asking = true;
		j->answered = false;
		say_word(j);
		j->op = (struct client_op){.kind = CLIENT_MEMBERS,
			.flags = j->state == JOINER_ADD ? CR_META_ADD : CR_META_REMOVE,
			.setting = j->word,
			.members = &j->members,
			.done = answered,
			.user = j};
		cluster_client_start(c, i, &j->op);
		return;
	}
}

static bool is_client_gone(const struct joiner *j)
{
	const struct cluster_node *n = &j->cluster->nodes[j->client];

	return n->state != CLUSTER_RUNNING || n->starts != j->client_starts;
}

static void take_answer(struct joiner *j)
{
	int code = j->answered ? j->op.err.code : ERR_TIMEDOUT;

	cluster_note(j->cluster, "joiner %s %s: %s %s", j->state == JOINER_ADD ? "add" : "remove", j->word, err_name(code),
		code && j->answered ? j->op.err.text : "");
	j->asking = false;
	j->next_ns = now_ns(j) + AGAIN_NS;
	j->unwanted = code == ERR_INVAL && has_something(j) ? j->unwanted + 1 : 0;
	if (j->state == JOINER_ADD && code == 0) {
		j->state = JOINER_MEMBER;
	} else if (j->state == JOINER_ADD && code == ERR_EXIST) {
		j->state = is_blank(j) ? JOINER_REMOVE : JOINER_MEMBER;
	} else if (j->state == JOINER_ADD && code == ERR_INVAL && is_older(j) && strstr(j->op.err.text, "of an older build") && has_risen(j)) {
		SOMETIMES(sim_joiner_renewed);
		j->unwanted = 0;
		cluster_renew_metad(j->cluster, j->node);
	} else if (j->state == JOINER_ADD && j->unwanted >= UNWANTED_MAX) {
		j->state = JOINER_EMPTY;
	} else if (j->state == JOINER_REMOVE && (code == 0 || (j->lost && code == ERR_NOENT))) {
		j->number++;
		j->state = JOINER_EMPTY;
	} else if (j->state == JOINER_REMOVE && code == ERR_NOENT) {
		j->state = JOINER_ADD; /* it never was one */
	}
}

/* ---- the member ---- */

static void look_at_member(struct joiner *j)
{
	if (!is_blank(j)) {
		j->blank_ns = 0;
	} else if (!j->blank_ns) {
		j->blank_ns = now_ns(j);
	} else if (now_ns(j) >= j->blank_ns + BLANK_NS) {
		j->blank_ns = 0;
		j->state = JOINER_REMOVE;
	}
}

/* That it gave up is right, and no reason to start it again: only who loses power meanwhile asks once more. */
static void look_at_lost(struct joiner *j)
{
	const struct raft_core *core = is_up(j) ? replica_core(node_of(j)->metad->ledger->replica) : NULL;

	if (core && (core->term || core->last_index))
		cluster_fail(j->cluster, "%s takes part in a group that it has forgotten", node_of(j)->name);
	if (node_of(j)->fatal != ERR_EXIST)
		return;
	node_of(j)->fatal = 0;
	if (j->state == JOINER_LOST) {
		SOMETIMES(sim_lost_founder_refused);
		j->state = JOINER_REMOVE;
	}
}

static void begin_again(struct joiner *j)
{
	j->unwanted = 0;
	j->lost = false;
	cluster_empty_metad(j->cluster, j->node, j->number);
	j->state = JOINER_ADD;
}

void joiner_begin(struct joiner *j, struct cluster *cluster)
{
	*j = (struct joiner){.cluster = cluster, .state = JOINER_ADD, .node = cluster_add_metad(cluster)};
	j->number = node_of(j)->replica;
}

void joiner_begin_lost(struct joiner *j, struct cluster *cluster, unsigned node)
{
	*j = (struct joiner){.cluster = cluster, .state = JOINER_LOSE, .node = node, .number = cluster->options.metads, .lost = true};
}

void joiner_look(struct joiner *j)
{
	if (j->state == JOINER_NONE || j->cluster->failed)
		return;
	if (j->lost && j->state != JOINER_LOSE)
		look_at_lost(j);
	if (j->asking) {
		if (j->answered || is_client_gone(j))
			take_answer(j);
		return;
	}
	if (j->state == JOINER_MEMBER) {
		look_at_member(j);
	} else if (j->state == JOINER_LOSE && has_something(j)) {
		cluster_note(j->cluster, "%s loses its directory", node_of(j)->name);
		if (j->cluster->options.seed % OLDER_SEEDS == 0)
			node_of(j)->older_starts = node_of(j)->starts + OLDER_MORE; /* its host is set up again as it was once */
		j->state = JOINER_LOST;
		cluster_empty_metad(j->cluster, j->node, node_of(j)->replica);
	} else if (j->state == JOINER_REMOVE && now_ns(j) >= j->next_ns) {
		ask(j);
	} else if (cluster_running(j->cluster, j->node) && j->state == JOINER_EMPTY) {
		begin_again(j);
	} else if (cluster_running(j->cluster, j->node) && j->state == JOINER_ADD && now_ns(j) >= j->next_ns) {
		ask(j);
	}
}

bool joiner_idle(const struct joiner *j)
{
	return j->state == JOINER_NONE || (j->state == JOINER_MEMBER && !j->asking && !is_blank(j));
}
