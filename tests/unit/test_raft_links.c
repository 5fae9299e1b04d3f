/* SPDX-License-Identifier: Apache-2.0 */
/* A group over common/rpc in the simulator: connections that break, hosts that die, letters of strangers. */
#include "tests/lib/links_bed.h"

static const struct uuid another = {{'o', 't', 'h', 'e', 'r'}};
static const uint8_t wrong_secret[32] = {2};

START_TEST(test_group)
{
	struct bed *b = bed_new(1, 64 << 20);

	submit_many(b, 300);
	ck_assert_uint_eq(b->acknowledged, 300);
	settle(b);
	for (int round = 0; round < 6; round++) {
		node_crash(&b->nodes[round % NODES]);
		submit_many(b, 30);
		for (uint32_t i = 1; i < NODES; i++)
			sim_reset(b->nodes[0].host, b->nodes[i].host);
		settle(b);
	}
	ck_assert_uint_gt(b->acknowledged, 400);
	bed_free(b);
}
END_TEST

/* What the log has no more goes as a snapshot, over connections that break. */
START_TEST(test_snapshot)
{
	struct bed *b = bed_new(2, 0);
	struct node *away = &b->nodes[elected(b)->id % NODES];
	uint64_t before = sim_now_ns(b->sim);

	isolate(b, away, true);
	while (wal_index(replica_log(elected(b)->r))->base_index <= replica_applied(away->r)) {
		ck_assert_uint_lt(sim_now_ns(b->sim) - before, 300000 * ms_ns);
		submit_many(b, 350);
		sim_run(b->sim, NULL, NULL, sim_now_ns(b->sim) + 3000 * ms_ns);
	}
	isolate(b, away, false);
	for (int i = 0; i < 5; i++) {
		sim_run(b->sim, NULL, NULL, sim_now_ns(b->sim) + 100 * ms_ns);
		sim_reset(elected(b)->host, away->host);
	}
	settle(b);
	ck_assert_uint_ge(away->installed, 1);
	bed_free(b);
}
END_TEST

static void send_vote(struct raft_links *links, uint64_t from, uint64_t to)
{
	struct raft_message m = {.type = RAFT_PRE_VOTE, .from = from, .to = to, .term = 1 << 20};

	raft_links_send(links, &m, NULL, 0);
}

/* Strangers are refused, and counted, and nothing of theirs is stepped. */
START_TEST(test_strangers)
{
	struct bed *b = bed_new(3, 64 << 20);
	struct io *host = sim_host_add(b->sim, "stranger", 1 << 20);
	struct io_addr addr = sim_host_addr(b->nodes[0].host, PORT);
	const struct raft_links_options wrong_key = {.self = self_of(&cluster, 3), .id = 3, .secret = wrong_secret},
					wrong_cluster = {.self = self_of(&another, 3), .id = 3, .secret = secret},
					right = {.self = self_of(&cluster, 9), .id = 9, .secret = secret};
	struct raft_links *one = raft_links_new(host, &wrong_key), *two = raft_links_new(host, &wrong_cluster),
			  *three = raft_links_new(host, &right);
	const struct raft_links_counts *counts = raft_links_counts(b->nodes[0].links);

	settle(b);
	ck_assert_int_eq(raft_links_member(one, 1, &addr), 0);
	ck_assert_int_eq(raft_links_member(two, 1, &addr), 0);
	ck_assert_int_eq(raft_links_member(three, 2, &addr), 0); /* that is where 1 is */
	send_vote(one, 3, 1);
	send_vote(two, 3, 1);
	send_vote(three, 9, 2);
	sim_run(b->sim, NULL, NULL, sim_now_ns(b->sim) + 10000 * ms_ns);
	ck_assert_uint_eq(counts->wrong_signature, 1);
	ck_assert_uint_eq(counts->wrong_cluster, 0); /* it did not get past its HELLO */
	ck_assert_uint_eq(counts->not_here, 1);
	ck_assert_uint_eq(raft_links_counts(one)->refused, 1);
	ck_assert_uint_eq(raft_links_counts(two)->refused + raft_links_counts(two)->lost, 1);
	ck_assert_uint_lt(replica_core(b->nodes[0].r)->term, 1 << 20);
	bed_free(b);
}
END_TEST

static void on_closed(void *ctx)
{
	((struct bed *)ctx)->closed = true;
}

static bool is_closed(void *ctx)
{
	return ((struct bed *)ctx)->closed;
}

/* To who is not there, so much waits, and no more; an end waits for nobody. */
START_TEST(test_bounds)
{
	struct bed *b = bed_new(4, 64 << 20);
	struct io *host = sim_host_add(b->sim, "other", 1 << 20);
	const struct raft_links_options options = {.self = self_of(&cluster, 9), .id = 9, .secret = secret};
	struct raft_links *links = raft_links_new(host, &options);
	struct io_addr addr = sim_host_addr(b->nodes[0].host, PORT);

	node_crash(&b->nodes[0]);
	send_vote(links, 9, 1);
	ck_assert_uint_eq(raft_links_counts(links)->lost, 1); /* no address */
	ck_assert_int_eq(raft_links_member(links, 1, &addr), 0);
	for (int i = 0; i < 2 * LINK_LETTERS_MAX; i++)
		send_vote(links, 9, 1);
	ck_assert_uint_eq(raft_links_counts(links)->sent, LINK_LETTERS_MAX);
	ck_assert_uint_eq(raft_links_counts(links)->lost, 1 + LINK_LETTERS_MAX);
	sim_run(b->sim, NULL, NULL, sim_now_ns(b->sim) + 10000 * ms_ns);
	ck_assert_uint_eq(raft_links_counts(links)->lost, 1 + 2 * LINK_LETTERS_MAX);
	for (uint64_t id = 2; id <= LINKS_MAX; id++)
		ck_assert_int_eq(raft_links_member(links, id, &addr), 0);
	ck_assert_int_eq(raft_links_member(links, 77, &addr), ERR_OVERFLOW);
	ck_assert_int_eq(raft_links_member(links, 2, NULL), 0);
	sim_run(b->sim, NULL, NULL, sim_now_ns(b->sim) + 100 * ms_ns);
	ck_assert_int_eq(raft_links_member(links, 77, &addr), 0);
	send_vote(links, 9, 77);
	raft_links_close(links, on_closed, b);
	ck_assert(sim_run(b->sim, is_closed, b, sim_now_ns(b->sim) + 1000 * ms_ns));
	bed_free(b);
}
END_TEST

/* ---- invitations ---- */

/* Who waits at an address, with the last letter that came there; or one who says yes and has no secret. */
struct waiting {
	struct raft_links *links;
	Craton__RaftRequest *last;
	int asked, joined;
	bool lies;
};

static int on_invited(void *ctx, bool now)
{
	struct waiting *w = ctx;

	w->asked++;
	w->joined += now;
	return 0;
}

static void on_letter(void *ctx, struct rpc_req *req)
{
	static uint8_t nonce[RAFT_NONCE_BYTES], mac[HMAC_BYTES];
	Craton__RaftReply lie = {PROTOBUF_C_MESSAGE_INIT(&craton__raft_reply__descriptor), {sizeof(nonce), nonce}, {sizeof(mac), mac}, 0, 0, 0, {0, NULL}};
	struct waiting *w = ctx;
	size_t len = protobuf_c_message_get_packed_size(req->msg);
	uint8_t *bytes = mem_alloc(len);

	protobuf_c_message_pack(req->msg, bytes);
	if (w->last)
		craton__raft_request__free_unpacked(w->last, NULL);
	w->last = craton__raft_request__unpack(NULL, len, bytes);
	mem_free(bytes);
	if (w->lies)
		rpc_reply(req, &(struct rpc_reply){.msg = &lie.base});
	else
		raft_links_handle(w->links, req);
}

static struct raft_links *waiting_links(struct io *host, struct waiting *w)
{
	const struct raft_links_options options = {
		.self = self_of(&cluster, 4), .id = 4, .supports = supports, .secret = secret, .invited = on_invited, .ctx = w};

	return raft_links_new(host, &options);
}

static uint16_t answered_supports;

static void on_answer(void *ctx, int status, uint16_t its)
{
	*(int *)ctx = status;
	answered_supports = its;
}

static int invite(struct bed *b, const struct io_addr *addr)
{
	int status = 1;

	ck_assert_int_eq(raft_links_invite(b->nodes[0].links, &(struct raft_links_place){4, *addr}, on_answer, &status), 0);
	sim_run(b->sim, NULL, NULL, sim_now_ns(b->sim) + 1000 * ms_ns);
	return status;
}

static int replay_status;

static void replay_done(struct rpc_call *call, int status, const ProtobufCMessage *msg, uint32_t payload_len)
{
	(void)call, (void)msg, (void)payload_len;
	replay_status = status;
}

static uint64_t unanswered(struct bed *b, struct rpc_server *server, uint64_t ms)
{
	struct rpc_stats stats;

	sim_run(b->sim, NULL, NULL, sim_now_ns(b->sim) + ms * ms_ns);
	rpc_server_get_stats(server, &stats);
	return stats.requests - stats.responses;
}

static void send_letters(struct raft_links *links, uint64_t to, int count)
{
	const struct raft_message m = {.type = RAFT_APPEND, .from = 1, .to = to, .term = 1};

	for (int i = 0; i < count; i++)
		raft_links_send(links, &m, NULL, 0);
}

/* That letters were taken is said for several at once, or a moment later; and when who took them ends. */
START_TEST(test_taken)
{
	static const struct rpc_handler handlers[] = {{.method = &rpc_metad_raft, .handle = on_letter}, {.method = NULL}};
	struct bed *b = bed_new(8, 64 << 20);
	struct raft_links *from = b->nodes[0].links;
	struct io *host = sim_host_add(b->sim, "r4", 1 << 20);
	struct waiting w = {0};
	const struct rpc_server_options options = {
		.listen = sim_host_addr(host, PORT), .self = self_of(&cluster, 4), .handlers = handlers, .ctx = &w};
	struct rpc_server *server;
	struct err err;

	w.links = waiting_links(host, &w);
	ck_assert_int_eq(rpc_server_open(host, &options, &server, &err), 0);
	ck_assert_int_eq(raft_links_member(from, 4, &options.listen), 0);
	send_letters(from, 4, 1);
	ck_assert_uint_eq(unanswered(b, server, 500), 0);
	send_letters(from, 4, 15);
	ck_assert_uint_eq(unanswered(b, server, 5), 15);
	ck_assert_uint_eq(unanswered(b, server, 25), 0);
	send_letters(from, 4, 35);
	ck_assert_uint_eq(unanswered(b, server, 5), 3);
	raft_links_close(w.links, on_closed, b);
	ck_assert(sim_run(b->sim, is_closed, b, sim_now_ns(b->sim) + 5 * ms_ns));
	ck_assert_uint_eq(unanswered(b, server, 0), 0);
	ck_assert_uint_eq(raft_links_counts(from)->refused, 0);
	craton__raft_request__free_unpacked(w.last, NULL);
	bed_free(b);
}
END_TEST

/* An invitation lets in who has asked for it since its start, and says yes for nobody else. */
START_TEST(test_invitation)
{
	static const struct rpc_handler handlers[] = {{.method = &rpc_metad_raft, .handle = on_letter}, {.method = NULL}};
	struct bed *b = bed_new(5, 64 << 20);
	struct io *host = sim_host_add(b->sim, "r4", 1 << 20);
	struct waiting w = {0};
	const struct rpc_server_options options = {
		.listen = sim_host_addr(host, PORT), .self = self_of(&cluster, 4), .handlers = handlers, .ctx = &w};
	const struct rpc_peer_options to = {.addr = options.listen, .self = self_of(&cluster, 1), .conns = 1};
	struct rpc_call call = {.method = &rpc_metad_raft, .done = replay_done};
	struct rpc_server *server;
	struct err err;

	w.links = waiting_links(host, &w);
	ck_assert_int_eq(rpc_server_open(host, &options, &server, &err), 0);
	ck_assert_int_eq(invite(b, &options.listen), 0);
	ck_assert_int_eq(w.asked, 2);
	ck_assert_int_eq(w.joined, 1);

	/* It has lost its disk, and waits again: the letter that let it in comes once more. */
	w.links = waiting_links(host, &w);
	call.request = &w.last->base;
	call.deadline_ns = sim_now_ns(b->sim) + 10000 * ms_ns;
	w.last = NULL;
	rpc_call_start(rpc_peer_new(b->nodes[1].host, &to), &call);
	sim_run(b->sim, NULL, NULL, sim_now_ns(b->sim) + 1000 * ms_ns);
	ck_assert_int_eq(replay_status, ERR_AGAIN);
	ck_assert_int_eq(w.joined, 1);

	w.lies = true;
	ck_assert_int_eq(invite(b, &options.listen), ERR_ACCES);
	bed_free(b);
}
END_TEST

/* Who is invited says what his build supports to who says it himself; others are understood as they were. */
START_TEST(test_invitation_of_another_build)
{
	static const struct rpc_handler handlers[] = {{.method = &rpc_metad_raft, .handle = on_letter}, {.method = NULL}};
	static const uint16_t builds[][3] = {{9, 8, 8}, {9, 0, STATE_CLUSTER_UNSAID}, {0, 8, STATE_CLUSTER_UNSAID}, {0, 0, STATE_CLUSTER_UNSAID}};

	for (size_t i = 0; i < ARRAY_COUNT(builds); i++) {
		struct waiting w = {0};
		struct rpc_server_options options = {.self = self_of(&cluster, 4), .handlers = handlers, .ctx = &w};
		struct rpc_server *server;
		struct io *host;
		struct err err;
		struct bed *b;

		supports = builds[i][0];
		b = bed_new(6 + i, 64 << 20);
		host = sim_host_add(b->sim, "r4", 1 << 20);
		supports = builds[i][1];
		w.links = waiting_links(host, &w);
		options.listen = sim_host_addr(host, PORT);
		ck_assert_int_eq(rpc_server_open(host, &options, &server, &err), 0);
		ck_assert_int_eq(invite(b, &options.listen), 0);
		ck_assert_int_eq(w.joined, 1);
		ck_assert_uint_eq(answered_supports, builds[i][2]);
		bed_free(b);
	}
	supports = STATE_CLUSTER_VERSION;
}
END_TEST

/* What a member's build supports its letters say, each anew; of one that has been silent it is not known any more. */
static bool is_said(void *ctx)
{
	struct bed *b = ctx;
	const struct node *l = leader(b);
	const struct raft_links_own own = raft_links_own(l->links, b->nodes[l->id % NODES].id);

	return own.applied == replica_applied(b->nodes[l->id % NODES].r) && own.term == replica_core(l->r)->term && own.room == RAFT_ROOM_NONE;
}

/* How far its rows are, in which term it is, and whether there is room for more. */
START_TEST(test_what_members_say)
{
	struct bed *b = bed_new(11, 64 << 20);
	struct node *l = elected(b);

	settle(b);
	ck_assert_int_eq(raft_links_own(l->links, b->nodes[l->id % NODES].id).room, RAFT_ROOM_UNSAID);
	raft_links_say_room(b->nodes[l->id % NODES].links, RAFT_ROOM_NONE);
	ck_assert(sim_run(b->sim, is_said, b, sim_now_ns(b->sim) + 10000 * ms_ns));
	ck_assert_uint_gt(raft_links_own(l->links, b->nodes[l->id % NODES].id).applied, 0);
	bed_free(b);
}
END_TEST

START_TEST(test_what_builds_support)
{
	struct node *l, *other;
	struct bed *b;

	supports = 7;
	b = bed_new(10, 64 << 20);
	l = elected(b);
	other = &b->nodes[l->id % NODES];
	settle(b);
	ck_assert_uint_eq(raft_links_own(l->links, other->id).supports, 7);
	ck_assert_uint_eq(raft_links_own(l->links, 9).supports, 0);
	node_crash(other);
	sim_run(b->sim, NULL, NULL, sim_now_ns(b->sim) + 2 * LINK_HEARD_MS * ms_ns);
	ck_assert_uint_eq(raft_links_own(l->links, other->id).supports, 0);
	supports = 0;
	settle(b);
	ck_assert_ptr_eq(leader(b), l);
	ck_assert_uint_eq(raft_links_own(l->links, other->id).supports, STATE_CLUSTER_UNSAID);
	supports = STATE_CLUSTER_VERSION;
	bed_free(b);
}
END_TEST

UNIT_MAIN("raft_links", test_group, test_snapshot, test_strangers, test_bounds, test_taken, test_invitation, test_invitation_of_another_build,
	test_what_builds_support, test_what_members_say)
