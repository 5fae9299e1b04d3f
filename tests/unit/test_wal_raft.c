/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three replicas: the real Raft core over real logs on simulated disks, which lose power at any moment. The driver between them does what
 * raft.h asks for by the calls of wal_replica.h. What must hold: one leader a term, one entry an index, and what was applied anywhere stays.
 *
 * A table is a number here: up to where entries are applied and durable.
 */
#include <inttypes.h>
#include <string.h>
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/io/io_sim.h"
#include "common/kv/wal_replica.h"
#include "metad/raft/raft.h"
#include "tests/lib/unit.h"

enum { NODES = 3, INDICES = 8192, TERMS = 4096, BODIES = 16, PACKETS = 256, CACHED = 12, BODY_BYTES = 30000 };
static const uint64_t ms_ns = 1000000;

/* A crash forgets what lived on the host, as a crash does: no leaks are looked for. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}

struct body {
	uint64_t term, stamp; /* stamp: 0: of a leader's first entry, or the group's */
};

struct packet {
	struct raft_message m;
	struct body bodies[BODIES];
};

struct event {
	struct raft_event e;
	struct packet packet; /* of e.message */
	struct list link;
};

struct world;

struct node {
	struct world *w;
	uint64_t id;
	struct io *host;
	struct wal *wal;
	struct raft_core core;
	struct raft_update u;
	struct raft_message out[RAFT_MESSAGES_MAX];
	struct event now;   /* being worked off */
	bool up, busy;      /* busy: with `now` */
	struct list events; /* that wait for it */
	struct wal_save save;
	struct wal_restart restart;
	struct body entries
		[INDICES]; /* what is cached, and more: the driver takes no more than CACHED from it for messages */
	uint64_t applied, table;
	uint32_t founding;
};

struct world {
	struct sim *sim;
	struct rng rng;
	struct node nodes[NODES];
	struct packet packets[PACKETS];
	uint32_t packet_count;
	struct body chosen[INDICES];
	uint64_t chosen_last, next_stamp, leaders[TERMS];
	bool well;
	uint32_t cuts, installs, disk_fills, crashes;
};

static struct world world;

static uint64_t now_ms(const struct node *n)
{
	return sim_now_ns(n->w->sim) / ms_ns;
}

static struct raft_config group(void)
{
	struct raft_config config = {.index = 1, .count = NODES, .last_id = NODES};

	for (uint32_t i = 0; i < NODES; i++)
		config.members[i] = (struct raft_member){.id = i + 1, .voter = true};
	return config;
}

/* ---- events ---- */

static void work_off(struct node *n);

static void push(struct node *n, const struct raft_event *e, const struct packet *packet)
{
	struct event *event = MEM_NEW(struct event);

	event->e = *e;
	if (packet)
		event->packet = *packet;
	event->e.message = packet ? &event->packet.m : NULL;
	list_push_back(&n->events, &event->link);
	work_off(n);
}

static void post(struct world *w, const struct packet *packet)
{
	if (w->packet_count < PACKETS && (w->well || !rng_chance(&w->rng, 1, 30)))
		w->packets[w->packet_count++] = *packet;
}

static void on_fatal(void *ctx, int code, const char *text)
{
	(void)ctx;
	ck_abort_msg("%d: %s", code, text);
}

static void on_durable(void *ctx, uint64_t index)
{
	struct node *n = ctx;

	if (n->core.last_index)
		push(n, &(struct raft_event){.type = RAFT_PERSISTED, .index = index}, NULL);
}

/* ---- entries ---- */

struct entry {
	struct wal_append append;
	uint8_t data[BODY_BYTES];
};

static void entry_done(struct wal_append *append, int code)
{
	ck_assert(code == 0 || code == ERR_CANCELED);
	mem_free(CONTAINER_OF(append, struct entry, append));
}

static void add(struct node *n, uint64_t index, struct body body)
{
	struct entry *e = MEM_NEW(struct entry);

	memcpy(e->data, &body.stamp, sizeof(body.stamp));
	e->append.data = slice_of(e->data, body.stamp ? BODY_BYTES : 100);
	e->append.term = body.term;
	e->append.done = entry_done;
	ck_assert_uint_lt(index, INDICES);
	n->entries[index] = body;
	wal_submit(n->wal, &e->append);
	ck_assert_uint_eq(e->append.index, index);
}

static void append(struct node *n)
{
	const struct packet *p = &n->now.packet;

	for (uint64_t i = n->u.append.first; i <= n->u.append.last; i++) {
		struct body body = {n->u.append.term, 0};

		if (n->u.append.kind == RAFT_APPEND_RECEIVED)
			body = p->bodies[i - p->m.append.prev_index - 1];
		else if (n->u.append.kind == RAFT_APPEND_SUBMITTED)
			body.stamp = ++n->w->next_stamp;
		add(n, i, body);
	}
}

static void apply(struct node *n)
{
	struct world *w = n->w;
	uint64_t to = n->core.commit < n->core.persisted ? n->core.commit : n->core.persisted;

	for (; n->applied < to; n->applied++) {
		uint64_t i = n->applied + 1;

		if (i > w->chosen_last) {
			w->chosen[i] = n->entries[i];
			w->chosen_last = i;
		}
		ck_assert_uint_eq(w->chosen[i].term, n->entries[i].term);
		ck_assert_uint_eq(w->chosen[i].stamp, n->entries[i].stamp);
	}
}

/* ---- messages that carry entries ---- */

struct filling {
	struct wal_read read;
	struct node *n;
	struct packet packet;
};

/* What is wanted has left the log: the core is told so first, or it would want the same again for ever. */
static void cannot_fill(struct node *n, const struct raft_message *m)
{
	push(n, &(struct raft_event){.type = RAFT_COMPACTED}, NULL);
	push(n, &(struct raft_event){.type = RAFT_SENT, .peer = m->to, .term = m->term}, NULL);
}

/* Bodies of prev_index + 1 .. last are in the packet. */
static void fill_and_post(struct node *n, struct packet *p, uint64_t last)
{
	struct raft_event sent = {.type = RAFT_SENT, .peer = p->m.to, .term = p->m.term};
	const struct wal_index *index = wal_index(n->wal);
	uint64_t prev = p->m.append.prev_index, first = prev > index->base_index ? prev : prev + 1;
	struct raft_run runs[BODIES + 1];
	uint32_t count = 0;

	if (prev < index->base_index || last > n->core.last_index) {
		cannot_fill(n, &p->m);
		return;
	}
	for (uint64_t i = first; i <= last; i++) {
		/* of those that wait for their frame, the cache knows */
		uint64_t term = i <= wal_index_last(index) ? wal_index_term(index, i) : n->entries[i].term;

		if (count == 0 || runs[count - 1].term != term)
			runs[count++] = (struct raft_run){i, term};
	}
	if (raft_fill(&n->core, &p->m, last, runs, count)) {
		if (p->m.append.last == 1 && prev == 0) {
			p->m.append.has_config = true;
			p->m.append.config = group();
		}
		post(n->w, p);
		sent.index = p->m.append.last > prev ? p->m.append.last : 0;
		sent.bytes = (uint32_t)(p->m.append.last - prev) * BODY_BYTES;
	}
	push(n, &sent, NULL);
}

static void on_read(struct wal_read *read, int code)
{
	struct filling *f = CONTAINER_OF(read, struct filling, read);
	uint64_t index, term, last = f->packet.m.append.prev_index;
	struct slice data;

	while (code == 0 && wal_read_next(read, &index, &term, &data)) {
		struct body *body = &f->packet.bodies[last - f->packet.m.append.prev_index];

		ck_assert_uint_eq(index, ++last);
		body->term = term;
		memcpy(&body->stamp, data.data, sizeof(body->stamp));
		if (index == 1)
			break; /* a configuration ends a message */
	}
	f->n->w->disk_fills += last > f->packet.m.append.prev_index;
	if (last == f->packet.m.append.prev_index)
		cannot_fill(f->n, &f->packet.m);
	else
		fill_and_post(f->n, &f->packet, last);
	wal_read_end(read);
	mem_free(f);
}

static void fill(struct node *n, const struct raft_message *m)
{
	uint64_t prev = m->append.prev_index, last = prev, room = m->append.room_bytes / BODY_BYTES + 1;
	struct filling *f = MEM_NEW(struct filling);

	f->n = n;
	f->packet.m = *m;
	f->read.from = prev + 1;
	f->read.to = prev + BODIES;
	f->read.max_bytes = m->append.room_bytes;
	f->read.done = on_read;
	/* What is not durable yet cannot be read, and is cached, however much it is. */
	if (m->append.room_bytes && prev + 1 + CACHED <= n->core.last_index && prev < wal_durable_index(n->wal)) {
		if (wal_read(n->wal, &f->read) == 0)
			return;
		cannot_fill(n, m);
	} else {
		while (m->append.room_bytes && last < n->core.last_index && last - prev < room &&
			last - prev < BODIES && !(prev == 0 && last == 1)) {
			last++;
			f->packet.bodies[last - prev - 1] = n->entries[last];
		}
		fill_and_post(n, &f->packet, last);
	}
	mem_free(f);
}

static void snapshot_take(struct node *n, uint64_t to)
{
	struct packet p = {.m = {.type = RAFT_SNAPSHOT}};

	if (n->table == 0 || n->table < n->core.base_index)
		return;
	p.m.snapshot.index = n->table;
	p.m.snapshot.term = n->entries[n->table].term;
	p.m.snapshot.config = group();
	push(n, &(struct raft_event){.type = RAFT_SNAPSHOT_TAKEN, .peer = to}, &p);
}

/* ---- one update, in the order of raft.h ---- */

static void from_cut_on(struct node *n)
{
	struct world *w = n->w;
	const struct raft_core *core = &n->core;

	if (n->u.truncate_from) {
		wal_cut(n->wal, n->u.truncate_from);
		w->cuts++;
	}
	if (n->u.append.kind)
		append(n);
	if (core->role == RAFT_LEADER) {
		ck_assert_uint_lt(core->term, TERMS);
		ck_assert(w->leaders[core->term] == 0 || w->leaders[core->term] == n->id);
		w->leaders[core->term] = n->id;
	}
	for (uint32_t i = 0; i < n->u.message_count; i++) {
		const struct raft_message *m = &n->out[i];

		if (m->type == RAFT_APPEND && m->append.fill)
			fill(n, m);
		else
			post(w, &(struct packet){.m = *m});
	}
	wal_note_commit(n->wal, core->commit);
	apply(n);
	if (n->u.fetch) /* fetched, durable and verified at once here */
		push(n, &(struct raft_event){.type = RAFT_SNAPSHOT_READY}, &n->now.packet);
	for (uint32_t i = 0; n->u.snapshot_wanted && i < RAFT_MEMBERS_MAX; i++)
		if (n->u.snapshot_wanted >> i & 1)
			snapshot_take(n, core->peers[i].id);
	n->busy = false;
}

static void on_restarted(struct wal_restart *restart, int code)
{
	struct node *n = CONTAINER_OF(restart, struct node, restart);

	ck_assert_int_eq(code, 0);
	n->applied = n->table = restart->index;
	n->entries[restart->index].term = restart->term;
	n->w->installs++;
	from_cut_on(n);
	work_off(n);
}

static void from_install_on(struct node *n)
{
	if (!n->u.install) {
		from_cut_on(n);
		return;
	}
	n->restart.index = n->now.packet.m.snapshot.index;
	n->restart.term = n->now.packet.m.snapshot.term;
	n->restart.done = on_restarted;
	wal_restart(n->wal, &n->restart);
}

static void on_saved(struct wal_save *save, int code)
{
	struct node *n = CONTAINER_OF(save, struct node, save);

	ck_assert_int_eq(code, 0);
	from_install_on(n);
	work_off(n);
}

/* What an event says at the time when its turn comes. False: nothing any more. */
static bool is_due(struct node *n, struct raft_event *e)
{
	const struct wal_index *index = wal_index(n->wal);
	uint64_t first, last;

	switch (e->type) {
	case RAFT_PERSISTED:
		e->index = wal_durable_index(n->wal);
		e->epoch = n->core.epoch;
		return e->index > n->core.persisted;
	case RAFT_COMPACTED:
		e->index = index->base_index;
		e->term = index->base_term;
		return e->index > n->core.base_index;
	case RAFT_RECEIVE:
		ck_assert_int_eq(raft_message_check(e->message), 0);
		if (e->message->type == RAFT_APPEND)
			e->count = e->message->append.last - e->message->append.prev_index;
		break;
	default:
		break;
	}
	if (e->message && raft_asks(&n->core, e->message, &first, &last)) {
		while (first <= last && n->entries[first].term == raft_message_term(e->message, first))
			first++;
		e->differs = first;
	}
	return true;
}

static void work_off(struct node *n)
{
	struct list *next;

	while (!n->busy && (next = list_pop_front(&n->events))) {
		struct event *event = LIST_ENTRY(next, struct event, link);

		n->now = *event;
		if (event->e.message)
			n->now.e.message = &n->now.packet.m;
		mem_free(event);
		if (!is_due(n, &n->now.e))
			continue;
		n->busy = true;
		n->u = (struct raft_update){.messages = n->out};
		raft_step(&n->core, now_ms(n), &n->now.e, n->out, &n->u);
		if (!n->u.meta) {
			from_install_on(n);
			continue;
		}
		n->save.term = n->core.term;
		n->save.vote = n->core.vote;
		n->save.done = on_saved;
		wal_save(n->wal, &n->save);
	}
}

/* ---- start ---- */

static int on_entry(void *ctx, uint64_t index, struct slice data, struct err *err)
{
	struct node *n = ctx;

	(void)err;
	memcpy(&n->entries[index].stamp, data.data, sizeof(n->entries[index].stamp));
	return 0;
}

static void open_log(struct node *n)
{
	const struct wal_replica replica = {.cluster = "group", .replica = n->id, .on_durable = on_durable};
	const struct wal_options options = {
		.dir = "/log", .segment_bytes = 1 << 20, .replica = &replica, .on_fatal = on_fatal, .ctx = n};
	struct err err;
	int rc = wal_open(n->host, &options, 1, on_entry, n, &n->wal, &err);

	ck_assert_msg(rc == 0, "%s", err.text);
}

static void start(struct node *n)
{
	struct raft_options options = {.id = n->id,
		.heartbeat_ms = 10,
		.election_ms = 60,
		.message_bytes = 4 * BODY_BYTES,
		.inflight_bytes = 16 * BODY_BYTES,
		.seed = rng_u64(&n->w->rng)};
	struct raft_boot boot = {.config = group()};
	const struct wal_index *index;
	struct raft_run *runs;
	struct wal_run *found;

	open_log(n);
	index = wal_index(n->wal);
	boot.term = wal_meta(n->wal)->term;
	boot.vote = wal_meta(n->wal)->vote;
	boot.base_index = index->base_index;
	boot.base_term = index->base_term;
	boot.last_index = wal_index_last(index);
	found = wal_index_runs(index, &boot.run_count);
	runs = mem_array(boot.run_count + 1, sizeof(*runs));
	for (uint32_t i = 0; i < boot.run_count; i++)
		runs[i] = (struct raft_run){found[i].first, found[i].term};
	boot.runs = runs;
	for (uint64_t i = boot.base_index; i <= boot.last_index; i++)
		n->entries[i].term = wal_index_term(index, i);
	if (n->table < boot.base_index)
		n->table = boot.base_index; /* the slots are the manifest: of the table, too */
	n->applied = n->table;
	boot.commit = wal_commit(n->wal) > n->table ? wal_commit(n->wal) : n->table;
	list_init(&n->events);
	n->busy = false;
	n->up = true;
	ck_assert_int_eq(raft_init(&n->core, &options, &boot, now_ms(n)), 0);
	mem_free(runs);
	mem_free(found);
}

static void on_founding_saved(struct wal_save *save, int code)
{
	struct node *n = CONTAINER_OF(save, struct node, save);

	ck_assert_int_eq(code, 0);
	n->founding++;
}

static void on_closed(void *ctx, int code)
{
	ck_assert_int_eq(code, 0);
	((struct node *)ctx)->founding++;
}

static bool is_founded(void *ctx)
{
	return ((struct node *)ctx)->founding == 2;
}

/* The first entry, the same on each. */
static void found(struct node *n)
{
	memset(&n->core, 0, sizeof(n->core));
	open_log(n);
	n->save = (struct wal_save){.term = 1, .done = on_founding_saved};
	wal_save(n->wal, &n->save);
	add(n, 1, (struct body){1, 0});
	wal_close(n->wal, on_closed, n);
	ck_assert(sim_run(n->w->sim, is_founded, n, UINT64_MAX));
}

/* ---- the world ---- */

static void crash(struct node *n)
{
	n->w->crashes++;
	n->up = false;
	sim_set_loss(n->host, (enum sim_loss)rng_below(&n->w->rng, 4));
	sim_host_crash(n->host);
}

static void restart(struct node *n)
{
	sim_host_restart(n->host);
	start(n);
}

static bool never(void *ctx)
{
	(void)ctx;
	return false;
}

static void deliver(struct world *w)
{
	for (uint64_t i = rng_below(&w->rng, w->packet_count / (w->well ? 1 : 2) + 1); i > 0; i--) {
		uint64_t at = w->well ? 0 : rng_below(&w->rng, w->packet_count);
		struct packet p = w->packets[at];
		struct node *n = &w->nodes[p.m.to - 1];

		if (w->well || !rng_chance(&w->rng, 1, 50)) { /* or again later */
			w->packet_count--;
			memmove(&w->packets[at], &w->packets[at + 1], (w->packet_count - at) * sizeof(p));
		}
		if (n->up)
			push(n, &(struct raft_event){.type = RAFT_RECEIVE}, &p);
	}
}

static void live(struct node *n)
{
	struct world *w = n->w;

	if (!n->up)
		return;
	push(n, &(struct raft_event){.type = RAFT_TICK}, NULL);
	if (n->core.role == RAFT_LEADER && rng_chance(&w->rng, 1, 2) && n->core.last_index < INDICES - 100 &&
		n->core.last_index < n->core.commit + 60)
		push(n, &(struct raft_event){.type = RAFT_SUBMIT, .count = rng_between(&w->rng, 1, 3)}, NULL);
	if (rng_chance(&w->rng, 1, 20) && !n->busy) {
		n->table = n->applied;
		wal_trim(n->wal, n->table);
		push(n, &(struct raft_event){.type = RAFT_COMPACTED}, NULL);
	}
}

static void run(struct world *w, uint32_t ms)
{
	for (uint32_t t = 0; t < ms; t++) {
		for (uint32_t i = 0; i < NODES; i++) {
			struct node *n = &w->nodes[i];

			if (n->up && !w->well && rng_chance(&w->rng, 1, n->core.role == RAFT_LEADER ? 120 : 400))
				crash(n);
			else if (!n->up && rng_chance(&w->rng, 1, w->well ? 1 : 80))
				restart(n);
			live(n);
		}
		deliver(w);
		sim_run(w->sim, never, NULL, sim_now_ns(w->sim) + ms_ns);
	}
}

START_TEST(test_group)
{
	uint32_t cuts = 0, installs = 0, disk_fills = 0, crashes = 0;
	uint64_t chosen = 0;

	for (uint64_t seed = 1; seed <= 12; seed += unit_step()) {
		struct world *w = &world;
		const struct sim_options options = {.seed = seed};

		memset(w, 0, sizeof(*w));
		rng_init(&w->rng, seed);
		w->sim = sim_new(&options);
		for (uint32_t i = 0; i < NODES; i++) {
			struct node *n = &w->nodes[i];

			n->w = w;
			n->id = i + 1;
			n->host = sim_host_add(w->sim, "host", 64 << 20);
			ck_assert_int_eq(io_mkdir(n->host, "/log", 0700), 0);
			ck_assert_int_eq(io_sync_dir(n->host, "/"), 0);
			found(n);
			start(n);
		}
		run(w, 3000);
		w->well = true;
		run(w, 1500);
		for (uint32_t i = 0; i < NODES; i++) {
			ck_assert(w->nodes[i].up);
			ck_assert_uint_ge(w->nodes[i].applied + 70, w->chosen_last);
		}
		chosen += w->chosen_last;
		cuts += w->cuts;
		installs += w->installs;
		disk_fills += w->disk_fills;
		crashes += w->crashes;
		sim_free(w->sim);
	}
	/* or the test tests nothing */
	ck_assert_uint_gt(chosen, 10000 / unit_step());
	ck_assert_uint_gt(cuts, 15 / unit_step());
	ck_assert_uint_gt(installs, 30 / unit_step());
	ck_assert_uint_gt(disk_fills, 1000 / unit_step());
	ck_assert_uint_gt(crashes, 200 / unit_step());
}
END_TEST

UNIT_MAIN("wal_raft", test_group)
