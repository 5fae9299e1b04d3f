/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/raft/explore.h"

#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include "common/base/check.h"
#include "common/base/mem.h"
#include "tests/raft/explore_state.h"

enum { NOW_MS = 1000000, CHOICES_MAX = 64, OUTCOMES_MAX = 96, LATELY = 1 << 15 };
#define NEVER_MS (UINT64_C(1) << 62)

enum action_kind {
	ASK,      /* a pre-candidate that gets no answer */
	CAMPAIGN, /* its pre-votes are granted */
	LEARN,    /* of a higher term: arg */
	REFUSED,  /* a candidate, by arg */
	SYNCED,
	CRASH,
	QUIT,    /* a leader that heard no quorum */
	GIVE_UP, /* a transfer */
	SUBMIT,
	CHANGE, /* what: arg / 4, of whom: arg % 4 */
	TRANSFER,
	READ,
	COMPACT,
	FETCHED,
	DELIVER,  /* letter: arg */
	APPENDED, /* up to arg / 4, by arg % 4 */
	APPEND,   /* of a term: arg, see append_arg */
	SNAPSHOT, /* of term arg / 16, at arg % 16 */
	ACTION_KINDS,
};

struct action {
	enum action_kind kind;
	uint32_t node, arg;
};

/* One that was found new, and how it came to be. */
struct child {
	struct child *next;
	struct action action;
	struct state state;
};

/* The way from the first state to that which is looked at; each with those that are still to be. */
struct frame {
	struct child *from, *todo;
};

/* What a core makes of a message. */
struct outcome {
	struct raft_core core;
	struct raft_update update;
	struct raft_message messages[RAFT_MESSAGES_MAX];
};

struct explorer {
	const struct explore_limits *limits;
	struct explore_counts counts;
	uint64_t *seen;
	uint64_t seen_cap;
	uint64_t lately[LATELY]; /* of those looked for lately, for the processor's cache */
	struct state *next;      /* where a step is tried */
	/* The choices of this step: those given, and beyond them the first; how many there were. */
	uint32_t choice[CHOICES_MAX], bound[CHOICES_MAX], choice_count, choice_at;
	struct outcome outcomes[OUTCOMES_MAX]; /* of the messages that one replica may get from one leader */
	uint32_t outcome_count;
	struct child *free;
	struct frame *frames;
	uint32_t frame_count, frame_cap;
	bool whole;
	const char *why;
};

static struct explorer *the_explorer; /* of the ways of its worlds */

/* ---- what is left open ---- */

static uint64_t choose(struct world *w, uint64_t bound)
{
	struct explorer *x = the_explorer;
	uint32_t at = x->choice_at;

	(void)w;
	CHECK(bound > 0 && at < CHOICES_MAX);
	if (bound == 1)
		return 0;
	x->choice_at++;
	if (at == x->choice_count) {
		x->choice[at] = 0;
		x->bound[at] = (uint32_t)bound;
		x->choice_count++;
	}
	CHECK(x->choice[at] < bound);
	return x->choice[at];
}

/* What is in one message is decided when it arrives: a leader may send any part of its log (explore.h, 2). */
static uint64_t fill(struct world *w, const struct raft_peer *peer, uint64_t bound)
{
	(void)w;
	(void)peer;
	return bound - 1;
}

static uint64_t takes_ms(struct world *w, uint64_t most, bool often_short)
{
	(void)w;
	(void)most;
	(void)often_short;
	return 0;
}

/* Of what a leader sends: that it is what it may send. */
static void check_append(struct world *w, const struct raft_message *m, const struct world_entry *bodies)
{
	const struct world_node *n = &w->nodes[m->from - 1];
	const struct world_entry *prev = world__log_at(&n->log, m->append.prev_index);
	bool is_so = n->core.role == RAFT_LEADER && m->append.commit <= n->core.commit &&
		m->append.last <= world__log_last(&n->log) &&
		m->append.prev_term ==
			(prev                                  ? prev->term
					: m->append.prev_index ? n->log.base_term
							       : 0);

	for (uint64_t i = m->append.prev_index + 1; is_so && i <= m->append.last; i++) {
		const struct world_entry *e = world__log_at(&n->log, i), *sent = &bodies[i - m->append.prev_index - 1];

		is_so = e && e->term == sent->term && e->value == sent->value && e->config == sent->config;
	}
	if (!is_so)
		world__fail(w, "node %u sends what its log does not say", world__id(w, n));
}

static void post(struct world *w, const struct raft_message *m, const struct world_entry *bodies)
{
	if (m->type == RAFT_APPEND)
		check_append(w, m, bodies);
	state_post(CONTAINER_OF(w, struct state, world), m);
}

static const struct world_ways all_ways = {.choose = choose, .fill = fill, .takes_ms = takes_ms, .post = post};

/* Choices that were not made yet? */
static bool choose_otherwise(struct explorer *x)
{
	while (x->choice_count && x->choice[x->choice_count - 1] + 1 == x->bound[x->choice_count - 1])
		x->choice_count--;
	if (x->choice_count == 0)
		return false;
	x->choice[x->choice_count - 1]++;
	return true;
}

/* ---- steps ---- */

/* No time runs out by itself. */
static void stop_clock(struct raft_core *core)
{
	core->heard_ms = 0;
	core->heartbeat_at_ms = core->quorum_at_ms = core->transfer_until_ms = NEVER_MS;
}

static void tick(struct world *w, struct world_node *n)
{
	struct raft_event event = {.type = RAFT_TICK};

	world__step(w, n, &event, NULL);
	stop_clock(&n->core);
}

static void receive(
	struct world *w, struct world_node *n, const struct raft_message *m, const struct world_entry *bodies)
{
	struct raft_event event = {.type = RAFT_RECEIVE, .message = m};

	world__step(w, n, &event, bodies);
}

static void campaign(struct world *w, struct world_node *n, bool granted)
{
	struct raft_event event = {.type = RAFT_CAMPAIGN};
	uint64_t term = n->core.term + 1;

	world__step(w, n, &event, NULL);
	for (uint32_t i = 0; granted && i < w->node_count && n->core.role == RAFT_PRE_CANDIDATE; i++) {
		struct raft_message m = {.type = RAFT_VOTED, .from = i + 1, .to = world__id(w, n), .term = term};

		m.voted.pre = m.voted.granted = true;
		if (&w->nodes[i] != n)
			receive(w, n, &m, NULL);
	}
}

static void crash(struct explorer *x, struct state *s, struct world_node *n)
{
	world__crash(&s->world, n);
	s->crashes[n - s->world.nodes]++;
	world__start(&s->world, n);
	x->counts.crashes++;
}

static void operate(struct explorer *x, struct state *s, struct world_node *n, const struct action *a)
{
	struct raft_event event = {.type = a->kind == TRANSFER ? RAFT_TRANSFER : RAFT_CHANGE, .peer = a->arg % 4};
	uint64_t before = n->core.last_index;

	event.change = (enum raft_change)(a->arg / 4);
	world__step(&s->world, n, &event, NULL);
	if (a->kind == TRANSFER) {
		s->transfers += n->core.transfer_to != 0;
		x->counts.transfers += n->core.transfer_to != 0;
	} else {
		s->changes += n->core.last_index != before;
		x->counts.changes += n->core.last_index != before;
	}
}

static void read_begin(struct state *s, struct world_node *n)
{
	struct world *w = &s->world;
	struct raft_event event = {.type = RAFT_READ};

	w->asked = &w->reads[0];
	w->reads[0] = (struct world_read){.node = world__id(w, n), .floor = w->committed.count, .term = n->core.term};
	world__step(w, n, &event, NULL);
	s->reads += w->reads[0].open;
}

static uint32_t append_arg(uint64_t term, uint64_t prev, uint64_t last, uint64_t commit)
{
	return (uint32_t)(term << 12 | prev << 8 | last << 4 | commit);
}

static void append_get(
	const struct state *s, uint32_t arg, struct raft_message *m, struct world_entry bodies[WORLD_BODIES])
{
	uint64_t prev = arg >> 8 & 15;
	const struct world_log *log = &s->offers[arg >> 12].log;

	m->type = RAFT_APPEND;
	m->term = arg >> 12;
	m->from = s->world.leaders[m->term];
	m->append.prev_index = prev;
	m->append.prev_term = prev == log->base_index ? log->base_term : world__log_at(log, prev)->term;
	m->append.last = arg >> 4 & 15;
	m->append.commit = arg & 15;
	for (uint64_t i = prev + 1; i <= m->append.last; i++) {
		const struct world_entry *e = world__log_at(log, i);

		bodies[i - prev - 1] = *e;
		if (i == prev + 1 || e->term != e[-1].term)
			m->append.runs[m->append.run_count++] = (struct raft_run){i, e->term};
		if (e->config) {
			m->append.has_config = true;
			m->append.config = s->world.configs[e->config];
		}
	}
}

static void act(struct explorer *x, struct state *s, const struct action *a)
{
	struct world *w = &s->world;
	struct world_node *n = &w->nodes[a->node];
	struct raft_message m = {.from = a->arg, .to = a->node + 1, .term = n->core.term};
	struct world_entry bodies[WORLD_BODIES] = {{.term = 0}};
	struct raft_event event = {.type = RAFT_SUBMIT, .count = 1, .message = &n->fetch};

	switch (a->kind) {
	case ASK:
	case CAMPAIGN:
		campaign(w, n, a->kind == CAMPAIGN);
		break;
	case LEARN:
		m = (struct raft_message){.type = RAFT_APPENDED,
			.from = 1 + (a->node + 1) % WORLD_NODES,
			.to = a->node + 1,
			.term = a->arg};
		m.appended.reject = true;
		m.appended.index = 1;
		receive(w, n, &m, NULL);
		break;
	case REFUSED:
		m.type = RAFT_VOTED;
		receive(w, n, &m, NULL);
		break;
	case SYNCED:
		world__sync_end(w, n);
		x->counts.syncs++;
		break;
	case CRASH:
		crash(x, s, n);
		break;
	case QUIT:
		for (uint32_t i = 0; i < RAFT_MEMBERS_MAX; i++)
			n->core.peers[i].active = false;
		n->core.quorum_at_ms = 0;
		tick(w, n);
		break;
	case GIVE_UP:
		n->core.transfer_until_ms = 0;
		tick(w, n);
		break;
	case SUBMIT:
		world__step(w, n, &event, NULL);
		break;
	case CHANGE:
	case TRANSFER:
		operate(x, s, n, a);
		break;
	case READ:
		read_begin(s, n);
		break;
	case COMPACT:
		s->compactions++;
		world__compact(w, n, n->applied);
		break;
	case FETCHED:
		n->fetch_busy = false;
		event.type = RAFT_SNAPSHOT_READY;
		world__step(w, n, &event, NULL);
		break;
	case DELIVER:
		state_letter_unpack(&s->letters[a->arg], &m);
		receive(w, n, &m, NULL);
		break;
	case APPENDED:
		m.type = RAFT_APPENDED;
		m.from = a->arg % 4;
		m.appended.index = m.appended.seen = a->arg / 4;
		receive(w, n, &m, NULL);
		x->counts.deliveries++;
		break;
	case APPEND:
		append_get(s, a->arg, &m, bodies);
		receive(w, n, &m, bodies);
		break;
	case SNAPSHOT:
		m.term = a->arg / 16;
		m.from = w->leaders[m.term];
		state_snapshot(w, a->arg % 16, &m);
		receive(w, n, &m, NULL);
		x->counts.deliveries++;
		break;
	case ACTION_KINDS:
		CHECK_UNREACHABLE();
	}
}

/* What decides nothing any more is made the same. */
static void settle(struct state *s, struct world_node *n)
{
	stop_clock(&n->core);
	if (n->core.role != RAFT_LEADER)
		n->core.read_seq = n->core.read_index = n->core.read_confirmed = 0;
	state_settle(s, (uint32_t)(n - s->world.nodes));
	state_rehash_node(s, (uint32_t)(n - s->world.nodes));
}

static void count(struct explorer *x, const struct world_counts *c)
{
	x->counts.elections += c->elections;
	x->counts.commits += c->committed;
	x->counts.cuts += c->cuts;
	x->counts.torn += c->torn;
	x->counts.rollbacks += c->rollbacks;
	x->counts.reads += c->reads;
	x->counts.snapshots += c->snapshots;
	x->counts.steps++;
}

/* ---- what was seen ---- */

/* In huge pages, if the system has them: every look is at another place. What is not touched is not there. */
static uint64_t *seen_new(size_t bytes)
{
	void *seen = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	CHECK(seen != MAP_FAILED);
	(void)madvise(seen, bytes, MADV_HUGEPAGE); /* a hint: without it all goes as well, and slower */
	return seen;
}

/* True: not before. The table is full when nine tenths of it are. */
static bool is_new(struct explorer *x, state_hash name)
{
	uint64_t tag = (uint64_t)name | 1;
	uint64_t at = (uint64_t)(((state_hash)(uint64_t)(name >> 64) * x->seen_cap) >> 64);
	uint64_t *lately = &x->lately[tag >> 1 & (LATELY - 1)];

	if (*lately == tag)
		return false;
	*lately = tag;
	while (x->seen[at]) {
		if (x->seen[at] == tag)
			return false;
		at = at + 1 == x->seen_cap ? 0 : at + 1;
	}
	if (x->counts.states >= x->seen_cap / 10 * 9) {
		x->whole = false;
		x->why = "the memory given is used";
		return false;
	}
	x->seen[at] = tag;
	x->counts.states++;
	return true;
}

static struct child *child_new(struct explorer *x)
{
	struct child *c = x->free;

	if (!c)
		return mem_alloc(sizeof(*c));
	x->free = c->next;
	return c;
}

/* ---- the search ---- */

static const char *action_text(const struct action *a, const struct state *before, char text[200])
{
	static const char *const kinds[ACTION_KINDS] = {"asks for votes", "campaigns", "learns of term",
		"is refused by", "has synced", "crashes and starts", "hears no quorum", "gives its transfer up",
		"gets an entry", "changes members:", "hands over to", "is read from", "compacts",
		"has fetched a snapshot"};
	static const char *const types[RAFT_MESSAGE_TYPES] = {"", "PRE_VOTE", "VOTE", "VOTED", "APPEND", "APPENDED",
		"SNAPSHOT", "READ_PROBE", "READ_ACK", "TIMEOUT_NOW"};
	const union state_letter *l = &before->letters[a->kind == DELIVER ? a->arg : 0];

	if (a->kind == APPEND)
		snprintf(text, 200, "node %u gets APPEND of term %u: entries behind %u up to %u, commit %u",
			a->node + 1, a->arg >> 12, a->arg >> 8 & 15, a->arg >> 4 & 15, a->arg & 15);
	else if (a->kind == APPENDED)
		snprintf(text, 200, "node %u gets APPENDED of %u: up to %u", a->node + 1, a->arg % 4, a->arg / 4);
	else if (a->kind == SNAPSHOT)
		snprintf(text, 200, "node %u is sent the snapshot at %u by the leader of term %u", a->node + 1,
			a->arg % 16, a->arg / 16);
	else if (a->kind == DELIVER)
		snprintf(text, 200, "node %u gets %s of %u, term %u", a->node + 1, types[l->type], l->from, l->term);
	else if (a->kind == CHANGE)
		snprintf(text, 200, "node %u changes members: %u of %u", a->node + 1, a->arg / 4, a->arg % 4);
	else
		snprintf(text, 200, "node %u %s %u", a->node + 1, kinds[a->kind], a->arg);
	return text;
}

static void print_nodes(const struct state *s)
{
	for (uint32_t i = 0; i < s->world.node_count; i++) {
		const struct world_node *n = &s->world.nodes[i];

		printf("      node %u: %s of term %" PRIu64 ", vote %" PRIu64 ", log", i + 1,
			world__role_name(n->core.role), n->core.term, n->core.vote);
		for (uint32_t j = 0; j < n->log.count; j++)
			printf(" %" PRIu64 "%s", n->log.entries[j].term, n->log.entries[j].config ? "c" : "");
		printf(", persisted %" PRIu64 ", commit %" PRIu64 "\n", n->core.persisted, n->core.commit);
	}
}

static void print_way(const struct explorer *x, const struct action *last)
{
	char text[200];

	for (uint32_t i = 1; i < x->frame_count; i++) {
		printf("%4u  %s\n", i, action_text(&x->frames[i].from->action, &x->frames[i - 1].from->state, text));
		print_nodes(&x->frames[i].from->state);
	}
	printf("%4u  %s\n", x->frame_count, action_text(last, &x->frames[x->frame_count - 1].from->state, text));
	print_nodes(x->next);
}

/* The replicas that did nothing are the same in every next state. */
static void keep_hashes(struct state *s, const struct state *next, uint32_t changed)
{
	for (uint32_t i = 0; i < WORLD_NODES; i++) {
		if (i == changed)
			continue;
		memcpy(s->node_hash[i], next->node_hash[i], sizeof(s->node_hash[i]));
		s->node_known[i] = next->node_known[i];
	}
}

/* Every way that this may go. False: one of them broke a law. */
static bool try(struct explorer *x, struct state *s, struct action a, struct child **todo)
{
	x->choice_count = 0;
	do {
		struct world_node *n = &x->next->world.nodes[a.node];
		struct child *c;
		state_hash name;

		*x->next = *s;
		memset(&x->next->world.counts, 0, sizeof(x->next->world.counts));
		x->choice_at = 0;
		act(x, x->next, &a);
		count(x, &x->next->world.counts);
		if (x->next->world.fault[0]) {
			print_way(x, &a);
			return false;
		}
		if (a.kind == REFUSED) /* checked; what follows is what follows when no vote arrives (explore.h, 3) */
			continue;
		settle(x->next, n);
		name = state_name(x->next, x->limits->snapshots);
		keep_hashes(s, x->next, a.node);
		if (!is_new(x, name))
			continue;
		c = child_new(x);
		c->state = *x->next;
		c->action = a;
		c->next = *todo;
		*todo = c;
	} while (choose_otherwise(x));
	return true;
}

/* It says nothing that is not known, and is true. */
static bool says_nothing_new(struct state *s, const struct world_node *n, const struct raft_message *m)
{
	const struct raft_core *leader = &s->world.nodes[m->to - 1].core;

	if (m->type != RAFT_APPENDED)
		return false;
	world__check_message(&s->world, (struct world_node *)n, m);
	if (s->world.fault[0]) {
		s->world.fault[0] = 0; /* the step itself will tell */
		return false;
	}
	if (m->appended.reject || leader->role != RAFT_LEADER || leader->term != m->term ||
		s->acked[m->term][m->from - 1] >= m->appended.index)
		return true;
	for (uint32_t i = 0; i < leader->config.count; i++)
		if (leader->peers[i].id == m->from)
			return leader->peers[i].match >= m->appended.index;
	return false;
}

/* Whether a message makes a difference that none before it made (explore.h, 7). */
static bool is_step(struct explorer *x, struct state *s, const struct world_node *n, const struct raft_message *m)
{
	static const struct raft_update nothing;
	struct outcome *o = &x->outcomes[x->outcome_count];
	struct raft_event event = {.type = RAFT_RECEIVE, .message = m};
	struct raft_update u;
	uint32_t i = 0;

	CHECK(x->outcome_count < OUTCOMES_MAX);
	event.differs = world__look_up(&s->world, n, m);
	x->counts.asked += event.differs != 0;
	if (m->type == RAFT_APPEND)
		event.count = m->append.last - m->append.prev_index;
	memcpy(&o->core, &n->core, sizeof(o->core));
	raft_step(&o->core, n->clock_ms, &event, o->messages, &o->update);
	o->update.messages = NULL;
	u = o->update;
	u.message_count = 0;
	u.commit = 0;
	if (memcmp(&u, &nothing, sizeof(u)) == 0) {
		struct raft_core core = o->core;

		stop_clock(&core);
		core.rng = n->core.rng;
		core.election_at_ms = n->core.election_at_ms;
		while (i < o->update.message_count && says_nothing_new(s, n, &o->messages[i]))
			i++;
		if (i == o->update.message_count && memcmp(&core, &n->core, sizeof(core)) == 0)
			return false;
	}
	for (i = 0; i < x->outcome_count; i++) {
		const struct outcome *p = &x->outcomes[i];

		if (memcmp(&o->update, &p->update, sizeof(o->update)) == 0 &&
			memcmp(&o->core, &p->core, sizeof(o->core)) == 0 &&
			memcmp(o->messages, p->messages, o->update.message_count * sizeof(o->messages[0])) == 0)
			return false;
	}
	x->outcome_count++;
	return true;
}

static bool try_leader(struct explorer *x, struct state *s, uint32_t i, struct child **todo)
{
	const struct raft_core *core = &s->world.nodes[i].core;
	const struct explore_limits *limits = x->limits;
	bool ok = try(x, s, (struct action){QUIT, i, 0}, todo);

	if (core->transfer_to)
		ok = ok && try(x, s, (struct action){GIVE_UP, i, 0}, todo);
	if (s->world.next_value < limits->submits)
		ok = ok && try(x, s, (struct action){SUBMIT, i, 0}, todo);
	for (uint32_t j = 1; j <= WORLD_NODES && ok; j++) {
		if (s->changes < limits->changes)
			ok = try(x, s, (struct action){CHANGE, i, RAFT_PROMOTE * 4 + j}, todo) &&
				try(x, s, (struct action){CHANGE, i, RAFT_REMOVE * 4 + j}, todo);
		if (ok && s->transfers < limits->transfers)
			ok = try(x, s, (struct action){TRANSFER, i, j}, todo);
		for (uint32_t a = 1; ok && j != i + 1 && a <= s->acked[core->term][j - 1]; a++)
			ok = try(x, s, (struct action){APPENDED, i, a * 4 + j}, todo);
	}
	if (ok && s->reads < limits->reads && !s->world.reads[0].open)
		ok = try(x, s, (struct action){READ, i, 0}, todo);
	return ok;
}

static bool try_node(struct explorer *x, struct state *s, uint32_t i, struct child **todo)
{
	const struct world_node *n = &s->world.nodes[i];
	const struct raft_core *core = &n->core;
	uint64_t greatest = 0;
	bool ok = true;

	for (uint32_t j = 0; j < WORLD_NODES; j++)
		if (s->world.nodes[j].core.term > greatest)
			greatest = s->world.nodes[j].core.term;
	if (core->role != RAFT_LEADER && core->term < 1 + x->limits->terms)
		ok = try(x, s, (struct action){ASK, i, 0}, todo) && try(x, s, (struct action){CAMPAIGN, i, 0}, todo);
	for (uint64_t term = core->term + 1; ok && term <= greatest; term++)
		ok = try(x, s, (struct action){LEARN, i, (uint32_t)term}, todo);
	for (uint32_t j = 0; ok && core->role == RAFT_CANDIDATE && j < WORLD_NODES; j++)
		if (j != i && s->world.nodes[j].core.term >= core->term)
			ok = try(x, s, (struct action){REFUSED, i, j + 1}, todo);
	if (ok && n->sync_busy)
		ok = try(x, s, (struct action){SYNCED, i, 0}, todo);
	if (ok && s->crashes[i] < x->limits->crashes)
		ok = try(x, s, (struct action){CRASH, i, 0}, todo);
	if (ok && core->role == RAFT_LEADER)
		ok = try_leader(x, s, i, todo);
	if (ok && s->compactions < x->limits->compactions && n->applied > n->log.base_index)
		ok = try(x, s, (struct action){COMPACT, i, 0}, todo);
	if (ok && n->fetch_busy)
		ok = try(x, s, (struct action){FETCHED, i, 0}, todo);
	return ok;
}

/* Whatever the leader of this term may have sent; of commit indexes those that may make a difference. A message ends behind a configuration. */
static bool try_offer(struct explorer *x, struct state *s, uint64_t term, uint32_t to, struct child **todo)
{
	const struct state_offer *offer = &s->offers[term];
	const struct raft_core *core = &s->world.nodes[to].core;
	uint64_t end = world__log_last(&offer->log);
	bool ok = true;

	x->outcome_count = 0;
	for (uint64_t prev = offer->log.base_index; prev <= end; prev++) {
		for (uint64_t last = prev; ok && last <= end && last - prev <= x->limits->split; last++) {
			uint64_t known = core->verified > last ? core->verified : last;
			uint64_t most = offer->commit < known ? offer->commit : known;

			for (uint64_t commit = core->commit < most ? core->commit : most; ok && commit <= most;
				commit++) {
				struct action a = {APPEND, to, append_arg(term, prev, last, commit)};
				struct raft_message m = {.to = to + 1};
				struct world_entry bodies[WORLD_BODIES];

				append_get(s, a.arg, &m, bodies);
				x->counts.deliveries++;
				ok = !is_step(x, s, &s->world.nodes[to], &m) || try(x, s, a, todo);
			}
			if (last > prev && world__log_at(&offer->log, last)->config)
				break;
		}
	}
	for (uint32_t index = 1; ok && x->limits->snapshots && index <= offer->applied; index++)
		ok = try(x, s, (struct action){SNAPSHOT, to, (uint32_t)term * 16 + index}, todo);
	return ok;
}

static bool try_all(struct explorer *x, struct state *s, struct child **todo)
{
	for (uint32_t i = 0; i < s->letter_count; i++) {
		uint32_t to = s->letters[i].to - 1u;
		struct raft_message m;

		state_letter_unpack(&s->letters[i], &m);
		x->outcome_count = 0;
		x->counts.deliveries++;
		if (is_step(x, s, &s->world.nodes[to], &m) && !try(x, s, (struct action){DELIVER, to, i}, todo))
			return false;
	}
	for (uint32_t i = 0; i < WORLD_NODES; i++) {
		if (!try_node(x, s, i, todo))
			return false;
		for (uint64_t term = s->world.nodes[i].core.term; term < WORLD_TERMS; term++)
			if (s->offers[term].open && s->world.leaders[term] != i + 1 && !try_offer(x, s, term, i, todo))
				return false;
	}
	return true;
}

static void frame_push(struct explorer *x, struct child *from)
{
	if (x->frame_count == x->frame_cap) {
		x->frame_cap = x->frame_cap ? 2 * x->frame_cap : 256;
		x->frames = mem_realloc(x->frames, x->frame_cap * sizeof(*x->frames));
	}
	x->frames[x->frame_count++] = (struct frame){.from = from};
	if (x->frame_count > x->counts.deepest)
		x->counts.deepest = x->frame_count;
}

static struct child *first_state(struct explorer *x)
{
	struct child *c = child_new(x);

	memset(c, 0, sizeof(*c));
	c->state.world.ways = &all_ways;
	c->state.world.now_ms = NOW_MS;
	c->state.world.well = true; /* nothing breaks but what is chosen to */
	for (uint32_t i = 0; i < WORLD_NODES; i++)
		c->state.world.nodes[i].clock_ms = NOW_MS;
	world__found(&c->state.world, WORLD_NODES, x->limits->learner, true);
	for (uint32_t i = 0; i < WORLD_NODES; i++)
		settle(&c->state, &c->state.world.nodes[i]);
	is_new(x, state_name(&c->state, x->limits->snapshots));
	return c;
}

static bool search(struct explorer *x)
{
	time_t begin = time(NULL);
	bool ok = true;

	frame_push(x, first_state(x));
	ok = try_all(x, &x->frames[0].from->state, &x->frames[0].todo);
	while (ok && x->frame_count) {
		struct frame *top = &x->frames[x->frame_count - 1];
		struct child *c = top->todo;

		if (!c) {
			top->from->next = x->free;
			x->free = top->from;
			x->frame_count--;
			continue;
		}
		top->todo = c->next;
		if (x->limits->seconds && (uint64_t)(time(NULL) - begin) >= x->limits->seconds) {
			x->whole = false;
			x->why = "the time given is over";
			break;
		}
		if (!x->whole)
			break;
		frame_push(x, c);
		ok = try_all(x, &c->state, &x->frames[x->frame_count - 1].todo);
	}
	return ok;
}

bool explore(const struct explore_limits *limits, struct explore_counts *ret_counts, bool *ret_whole, char why[512])
{
	struct explorer *x = MEM_NEW(struct explorer);
	bool ok;

	x->limits = limits;
	x->whole = true;
	x->why = "";
	x->seen_cap = limits->memory_bytes / sizeof(x->seen[0]);
	x->seen = seen_new(limits->memory_bytes);
	x->next = MEM_NEW(struct state);
	the_explorer = x;
	ok = search(x);
	*ret_counts = x->counts;
	*ret_whole = x->whole;
	snprintf(why, 512, "%s", ok ? x->why : x->next->world.fault);
	(void)munmap(x->seen, limits->memory_bytes);
	mem_free(x->next);
	mem_free(x->frames);
	mem_free(x); /* the states go with the process */
	return ok;
}
