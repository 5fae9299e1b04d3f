/* SPDX-License-Identifier: Apache-2.0 */
/* Somebody on the network records the letters of a group and sends them again: each is refused and counted, and honest ones are not. */
#include "tests/lib/links_bed.h"

enum { TAPE_MAX = 4000 };

struct recorded {
	uint64_t to, from;
	uint8_t *bytes;
	size_t len;
};

/* All that came to anybody while it ran. */
static struct recorded tape[TAPE_MAX];
static uint32_t taped;

static void record(const struct node *to, const Craton__RaftRequest *request)
{
	struct recorded *r = &tape[taped++];

	ck_assert_uint_le(taped, TAPE_MAX);
	*r = (struct recorded){
		.to = to->id, .from = request->from, .len = craton__raft_request__get_packed_size(request)};
	r->bytes = mem_alloc(r->len);
	craton__raft_request__pack(request, r->bytes);
}

static void forget_tape(void)
{
	while (taped > 0)
		mem_free(tape[--taped].bytes);
}

static void run_ms(struct bed *b, uint64_t ms)
{
	sim_run(b->sim, NULL, NULL, sim_now_ns(b->sim) + ms * ms_ns);
}

/* ---- who sends them again: on a host of its own, with no secret ---- */

static struct io *thief;
static struct rpc_peer *to_nodes[NODES];

static void thief_open(struct bed *b)
{
	const struct rpc_identity self = self_of(&cluster, 1);

	thief = sim_host_add(b->sim, "thief", 1 << 20);
	for (uint32_t i = 0; i < NODES; i++) {
		const struct rpc_peer_options to = {
			.addr = sim_host_addr(b->nodes[i].host, PORT), .self = self, .conns = 1};

		to_nodes[i] = rpc_peer_new(thief, &to);
	}
}

struct theft {
	struct rpc_call call;
	Craton__RaftRequest *request;
};

static uint32_t answered, believed;

static void theft_done(struct rpc_call *call, int status, const ProtobufCMessage *msg, uint32_t payload_len)
{
	struct theft *t = CONTAINER_OF(call, struct theft, call);

	(void)msg, (void)payload_len;
	answered += status != ERR_TIMEDOUT && status != ERR_CONNRESET && status != ERR_CONNREFUSED;
	believed += status == 0;
	craton__raft_request__free_unpacked(t->request, NULL);
	mem_free(t);
}

static void replay(const struct recorded *r)
{
	struct theft *t = MEM_NEW(struct theft);

	t->request = craton__raft_request__unpack(NULL, r->len, r->bytes);
	t->call = (struct rpc_call){.method = &rpc_metad_raft,
		.request = &t->request->base,
		.deadline_ns = io_now_ns(thief) + 3000 * ms_ns,
		.done = theft_done};
	rpc_call_start(to_nodes[r->to - 1], &t->call);
}

static const struct recorded *last_of(uint64_t from, uint64_t to)
{
	for (uint32_t i = taped; i > 0; i--)
		if (tape[i - 1].from == from && tape[i - 1].to == to)
			return &tape[i - 1];
	ck_abort_msg("%d wrote nothing to %d", (int)from, (int)to);
	return NULL;
}

static uint64_t refused_by(const struct bed *b)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < NODES; i++) {
		const struct raft_links_counts *c = raft_links_counts(b->nodes[i].links);

		sum += c->replayed + c->unstamped + c->wrong_version;
	}
	return sum;
}

static uint64_t received_by(const struct bed *b)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < NODES; i++)
		sum += raft_links_counts(b->nodes[i].links)->received;
	return sum;
}

static void isolate_all(struct bed *b, bool cut)
{
	for (uint32_t i = 0; i < NODES; i++)
		isolate(b, &b->nodes[i], cut);
	run_ms(b, 500);
}

/* With nobody else to be heard nothing that was recorded is. */
static void check_refused(struct bed *b)
{
	uint64_t received, refused;

	isolate_all(b, true);
	received = received_by(b);
	refused = refused_by(b);
	answered = believed = 0;
	for (uint32_t i = 0; i < taped; i++) {
		replay(&tape[i]);
		if (i % 64 == 63)
			run_ms(b, 10);
	}
	run_ms(b, 1000);
	ck_assert_uint_eq(answered, taped);
	ck_assert_uint_eq(believed, 0);
	ck_assert_uint_eq(received_by(b), received);
	ck_assert_uint_eq(refused_by(b), refused + taped);
	isolate_all(b, false);
}

/* ---- tests ---- */

/* Heartbeats of a dead leader, again and again: another one is elected all the same. */
START_TEST(test_dead_leader)
{
	struct bed *b = bed_new(20, 64 << 20);
	struct node *dead;
	uint64_t refused;

	settle(b);
	thief_open(b);
	dead = leader(b);
	b->tap = record;
	run_ms(b, 500);
	b->tap = NULL;
	node_crash(dead);
	refused = refused_by(b);
	for (int i = 0; i < 50 && !leader(b); i++) {
		for (uint64_t to = 1; to <= NODES; to++)
			if (to != dead->id)
				replay(last_of(dead->id, to));
		run_ms(b, 200);
	}
	ck_assert_msg(leader(b) != NULL, "nobody leads: the heartbeats of a dead leader count");
	ck_assert_uint_gt(refused_by(b), refused);
	forget_tape();
	bed_free(b);
}
END_TEST

static void write_of_all_kinds(struct bed *b)
{
	struct io_addr addr = sim_host_addr(b->nodes[1].host, PORT);
	const uint64_t id = 2;

	submit_many(b, 5);
	raft_links_ask(b->nodes[0].links, 2, &(struct replica_ask){.snapshot = 3, .number = 4});
	raft_links_part(
		b->nodes[0].links, 2, &(struct replica_part){.snapshot = 3, .number = 4, .data = slice_of("part", 4)});
	raft_links_knock(b->nodes[0].links, &addr, &id, 1);
	run_ms(b, 500);
}

/* Of any kind, from the first one on, also of a life before, and of who is not known any more. */
START_TEST(test_recorded_letters)
{
	struct bed *b = bed_new(21, 64 << 20);

	b->tap = record;
	settle(b);
	write_of_all_kinds(b);
	b->tap = NULL;
	ck_assert_uint_gt(taped, 50);
	thief_open(b);
	check_refused(b);
	settle(b);
	for (uint32_t i = 0; i < NODES; i++) { /* who writes, and who it is for */
		node_crash(&b->nodes[i]);
		settle(b);
		check_refused(b);
		settle(b);
	}
	forget_tape();
	b->tap = record;
	write_of_all_kinds(b);
	b->tap = NULL;
	for (uint32_t i = 0; i < NODES; i++)
		for (uint64_t id = 1; id <= NODES; id++)
			if (id != b->nodes[i].id)
				ck_assert_int_eq(raft_links_member(b->nodes[i].links, id, NULL), 0);
	check_refused(b);
	forget_tape();
	bed_free(b);
}
END_TEST

static uint64_t lost_by(const struct bed *b)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < NODES; i++)
		sum += raft_links_counts(b->nodes[i].links)->refused;
	return sum;
}

/* What members say first is not lost, and from then on nothing of theirs is refused, until one starts again. */
START_TEST(test_honest_letters)
{
	struct bed *b = bed_new(22, 64 << 20);
	uint64_t refused;

	settle(b);
	submit_many(b, 50);
	settle(b);
	ck_assert_uint_gt(refused_by(b), 0);
	ck_assert_uint_le(refused_by(b), 2 * NODES * (NODES - 1));
	ck_assert_uint_eq(lost_by(b), 0);
	refused = refused_by(b);
	for (int round = 0; round < 4; round++) {
		for (uint32_t i = 1; i < NODES; i++)
			sim_reset(b->nodes[0].host, b->nodes[i].host);
		submit_many(b, 50);
		settle(b);
	}
	ck_assert_uint_eq(lost_by(b), 0);
	ck_assert_uint_le(refused_by(b), refused + 4); /* overtaken, over a connection that broke */
	for (uint32_t i = 0; i < NODES; i++) {
		node_crash(&b->nodes[i]);
		run_ms(b, 2000);
		settle(b);
		submit_many(b, 20);
		settle(b); /* the others have found it again, too */
		refused = refused_by(b);
		run_ms(b, 5000);
		ck_assert_uint_eq(refused_by(b), refused);
	}
	ck_assert_uint_le(lost_by(b), NODES);
	bed_free(b);
}
END_TEST

/* A letter to who has never been heard gets there, by a knock too. */
START_TEST(test_first_letter)
{
	const struct raft_links_options options = {
		.self = self_of(&cluster, 9), .id = 9, .supports = STATE_CLUSTER_VERSION, .secret = secret};
	struct bed *b = bed_new(23, 64 << 20);
	struct raft_links *links = raft_links_new(sim_host_add(b->sim, "other", 1 << 20), &options);
	struct io_addr addr = sim_host_addr(b->nodes[0].host, PORT);
	const struct raft_links_counts *own = raft_links_counts(links);
	const uint64_t id = 1;
	uint64_t received;

	settle(b);
	isolate_all(b, true);
	received = received_by(b);
	raft_links_knock(links, &addr, &id, 1);
	run_ms(b, 100);
	ck_assert_uint_eq(received_by(b), received + 1);
	ck_assert_int_eq(raft_links_member(links, 1, &addr), 0);
	raft_links_ask(links, 1, &(struct replica_ask){.snapshot = 1});
	raft_links_ask(links, 1, &(struct replica_ask){.snapshot = 2});
	run_ms(b, 100);
	ck_assert_uint_eq(received_by(b), received + 3);
	ck_assert_uint_eq(own->refused + own->lost, 0);
	bed_free(b);
}
END_TEST

static void reopen_as(struct node *n, uint16_t build)
{
	node_crash(n);
	run_ms(n->b, 1000);
	supports = build;
	come_together(n->b);
	supports = STATE_CLUSTER_VERSION;
}

/* Builds that know no stamps are heard, and hear, until all rows say that there are none any more; a metad may go back to one until then. */
START_TEST(test_older_builds)
{
	uint64_t received, refused;
	struct bed *b;

	group_version = STATE_CLUSTER_STAMPS - 1;
	supports = STATE_CLUSTER_STAMPS - 1;
	b = bed_new(24, 64 << 20);
	come_together(b);
	for (uint32_t i = 0; i < NODES; i++) {
		reopen_as(&b->nodes[i], STATE_CLUSTER_STAMPS);
		submit_many(b, 10);
		come_together(b);
	}
	reopen_as(&b->nodes[0], STATE_CLUSTER_STAMPS - 1);
	submit_many(b, 10);
	come_together(b);
	ck_assert_uint_eq(b->acknowledged, 40);

	group_version = STATE_CLUSTER_STAMPS;
	isolate(b, &b->nodes[2], true);
	run_ms(b, 1000);
	received = raft_links_counts(b->nodes[1].links)->received;
	refused = raft_links_counts(b->nodes[1].links)->wrong_version;
	run_ms(b, 5000);
	ck_assert_uint_eq(raft_links_counts(b->nodes[1].links)->received, received);
	ck_assert_uint_gt(raft_links_counts(b->nodes[1].links)->wrong_version, refused);
	bed_free(b);
	group_version = 0;
}
END_TEST

UNIT_MAIN("raft_links_replay", test_dead_leader, test_recorded_letters, test_honest_letters, test_first_letter,
	test_older_builds)
