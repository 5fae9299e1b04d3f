/* SPDX-License-Identifier: Apache-2.0 */
/* metad_group: a store of several metads in the simulator, for tests: who leads, cuts and crashes, and whether their tables are equal. */
#ifndef TESTS_LIB_METAD_GROUP_H
#define TESTS_LIB_METAD_GROUP_H

#include "common/base/crc32c.h"
#include "metad/core.h"
#include "tests/lib/metad_bed.h"
#include "tests/lib/no_leaks.h"
#include "tests/lib/unit.h"

enum { METADS = 3, METADS_MAX = 5, PORT = 7000 };
static const uint64_t s_ns = 1000000000;

static struct metad_bed beds[METADS_MAX];
static int bed_count; /* METADS founders, and those that were added */
static bool bed_gone[METADS_MAX]; /* no members any more; down for good */
static struct sim *sim;

/* ---- the group ---- */

static inline bool is_up(const struct metad_bed *b)
{
	return b->md && sim_host_is_up(b->server_io);
}

static inline struct metad_bed *leader(void)
{
	struct metad_bed *found = NULL;

	for (int i = 0; i < bed_count; i++)
		if (is_up(&beds[i]) && beds[i].md->ready && (!found || beds[i].md->role.term > found->md->role.term))
			found = &beds[i];
	return found;
}

static inline bool has_leader(void *ctx)
{
	(void)ctx;
	return leader() != NULL;
}

static inline struct metad_bed *wait_leader(void)
{
	struct metad_bed *b;

	ck_assert(sim_run(sim, has_leader, NULL, sim_now_ns(sim) + 60 * s_ns));
	b = leader();
	ck_assert_ptr_nonnull(b);
	return b;
}

static const struct metad_bed *not_leader_bed; /* of is_other_leader */

static inline bool is_other_leader(void *ctx)
{
	struct metad_bed *b = leader();

	(void)ctx;
	return b && b != not_leader_bed;
}

static inline struct metad_bed *wait_other_leader(const struct metad_bed *than)
{
	struct metad_bed *b;

	not_leader_bed = than;
	ck_assert(sim_run(sim, is_other_leader, NULL, sim_now_ns(sim) + 60 * s_ns));
	b = leader();
	ck_assert_ptr_nonnull(b);
	return b;
}

static inline struct metad_bed *follower(void)
{
	struct metad_bed *b = wait_leader();

	return b == &beds[0] ? &beds[1] : &beds[0];
}

static inline struct metad_bed *third(const struct metad_bed *b, const struct metad_bed *other)
{
	for (int i = 0; i < METADS; i++)
		if (&beds[i] != b && &beds[i] != other)
			return &beds[i];
	ck_abort();
}

static inline void open_group(uint64_t seed)
{
	sim = sim_new(&(struct sim_options){.seed = seed});
	bed_count = METADS;
	memset(bed_gone, 0, sizeof(bed_gone));
	metad_bed_open_group(beds, METADS, sim, PORT);
}

static inline void close_group(void)
{
	for (int i = 0; i < bed_count; i++) {
		struct metad_bed *b = &beds[i];

		ck_assert_int_eq(b->fatal, 0);
		metad_bed_free_reply(b);
		if (is_up(b))
			metad_bed_stop(b);
		rpc_peer_close(b->peer, metad_bed_set_done, b);
		metad_bed_wait(b);
	}
	sim_free(sim);
}

static inline void crash(struct metad_bed *b)
{
	sim_host_crash(b->server_io);
	b->md = NULL;
}

static inline void restart(struct metad_bed *b)
{
	sim_host_restart(b->server_io);
	metad_bed_start(b);
}

static inline void cut_off(struct metad_bed *b, bool cut)
{
	for (int i = 0; i < bed_count; i++)
		if (&beds[i] != b)
			(cut ? sim_cut : sim_heal)(b->server_io, beds[i].server_io);
}

/* ---- tables ---- */

/* Of what commands write; what follows from it (the reverse index) is so far as the last commit. */
static inline uint32_t digest(struct metad_bed *b)
{
	struct kv_scan scan;
	uint32_t crc = 0;

	for (kv_seek(b->md->state.kv, &scan, slice_of(NULL, 0)); kv_scan_valid(&scan); kv_scan_next(&scan)) {
		if (scan.key.data[0] == STATE_TABLE_DISK_BLOCK)
			continue;
		crc = crc32c_extend(crc, scan.key.data, scan.key.len);
		crc = crc32c_extend(crc, scan.value.data, scan.value.len);
	}
	kv_scan_end(&scan);
	return crc;
}

static inline bool are_equal(void *ctx)
{
	const struct metad_bed *b = leader();

	(void)ctx;
	if (!b)
		return false;
	for (int i = 0; i < bed_count; i++)
		if (!bed_gone[i] && (!is_up(&beds[i]) || !beds[i].md->state.kv || ledger_applied(beds[i].md->ledger) != ledger_applied(b->md->ledger)))
			return false;
	return true;
}

static inline void check_equal(void)
{
	ck_assert(sim_run(sim, are_equal, NULL, sim_now_ns(sim) + 60 * s_ns));
	for (int i = 0; i < bed_count; i++)
		if (!bed_gone[i])
			ck_assert_uint_eq(digest(&beds[i]), digest(leader()));
}

/* ---- calls ---- */

static inline int mkdir_as(struct metad_bed *b, Craton__RequestId *id, const char *path)
{
	Craton__MkdirRequest req = CRATON__MKDIR_REQUEST__INIT;

	req.parent = INODE_ROOT;
	req.path = bed_text(path);
	req.id = id;
	return bed_call(b, &rpc_metad_mkdir, &req.base);
}

static Craton__RequestId group_session; /* of make_dir; craton__request_id__init begins another */

/* By whoever leads. */
static inline int make_dir(const char *path)
{
	struct metad_bed *b = wait_leader();

	if (!group_session.session)
		ck_assert_int_eq(bed_open_session(b, &group_session), 0);
	group_session.unanswered = ++group_session.number;
	return mkdir_as(b, &group_session, path);
}

static inline int lookup(struct metad_bed *b, const char *path)
{
	return bed_lookup_path(b, path, strlen(path));
}

/* ---- calls that take their time ---- */

struct pending {
	struct rpc_call call;
	Craton__MkdirRequest req;
	Craton__RequestId id;
	bool done;
	int status;
};

static inline void pending_done(struct rpc_call *call, int status, const ProtobufCMessage *msg, uint32_t payload_len)
{
	struct pending *p = CONTAINER_OF(call, struct pending, call);

	(void)msg, (void)payload_len;
	p->done = true;
	p->status = status;
}

static inline void start_call(struct metad_bed *b, struct pending *p, const struct rpc_method *method, const ProtobufCMessage *request)
{
	p->call = (struct rpc_call){
		.method = method, .request = request, .deadline_ns = io_clock_ns(b->client_io) + 60 * s_ns, .done = pending_done};
	rpc_call_start(b->peer, &p->call);
}

static inline bool is_answered(void *ctx)
{
	return ((struct pending *)ctx)->done;
}

/* A directory that is to be made, numbered in a session of its own: start_call() with &p->req.base sends it. */
static inline void prepare_mkdir(struct metad_bed *at, struct pending *p)
{
	craton__request_id__init(&p->id);
	ck_assert_int_eq(bed_open_session(at, &p->id), 0);
	p->id.number = p->id.unanswered = 1;
	craton__mkdir_request__init(&p->req);
	p->req.parent = INODE_ROOT;
	p->req.path = bed_text("a");
	p->req.id = &p->id;
}

/* Whether the leader has given the first entry that waits a place in its log. */
static inline bool is_logged(void *ctx)
{
	struct list *entries = &((struct metad_bed *)ctx)->md->ledger->entries;

	return !list_empty(entries) && LIST_ENTRY(entries->next, struct ledger_entry, link)->submit.index != 0;
}

/* ---- what operators ask for ---- */

enum { TRANSFER = 1, ADD = 3, REMOVE = 4 }; /* as enum cr_meta_action */

static inline void ignore_handed(void *ctx, int code)
{
	(void)ctx, (void)code;
}

struct asked {
	struct pending p;
	Craton__MembersRequest req;
	char word[IO_ADDR_TEXT_BYTES];
};

static inline void start_action(struct metad_bed *b, struct asked *a, uint32_t action, const char *word)
{
	*a = (struct asked){0};
	craton__members_request__init(&a->req);
	snprintf(a->word, sizeof(a->word), "%s", word);
	a->req.action = action;
	a->req.member = a->word;
	start_call(b, &a->p, &rpc_metad_members, &a->req.base);
}

static inline int act(struct metad_bed *b, uint32_t action, const char *word)
{
	struct asked a;

	start_action(b, &a, action, word);
	ck_assert(sim_run(sim, is_answered, &a.p, sim_now_ns(sim) + 10 * s_ns));
	return a.p.status;
}

static inline const char *number(const struct metad_bed *b)
{
	static char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)b->options.group.id);
	return text;
}

/* What is answered when the leader is asked to do that. */
static inline const Craton__MembersReply *ask_members(uint32_t action, const struct metad_bed *whom)
{
	Craton__MembersRequest req = CRATON__MEMBERS_REQUEST__INIT;
	struct metad_bed *b = wait_leader();
	char addr[IO_ADDR_TEXT_BYTES] = "";

	if (whom)
		io_addr_format(&whom->options.listen, addr);
	req.action = action;
	req.member = addr;
	bed_call(b, &rpc_metad_members, &req.base);
	ck_assert_ptr_nonnull(b->reply);
	return (const Craton__MembersReply *)b->reply;
}

/* metad-4 waits to be added. */
static inline struct metad_bed *start_joiner(uint16_t supports)
{
	struct metad_bed *b = &beds[bed_count++];

	metad_bed_make(b, sim, (uint64_t)bed_count, PORT);
	b->client_io = beds[0].client_io;
	b->options.group.members = beds[0].options.group.members;
	b->options.group.join = true;
	b->options.supports = supports;
	metad_bed_start(b);
	return b;
}

static inline bool all_are_equal_voters(void *ctx)
{
	const struct raft_core *core = replica_core(wait_leader()->md->ledger->replica);

	for (uint32_t i = 0; i < core->config.count; i++)
		if (!core->config.members[i].voter)
			return false;
	return core->config.count == (uint32_t)bed_count && are_equal(ctx);
}

static inline void add(struct metad_bed *b)
{
	metad_bed_silence(b, 1000); /* connections to who was there before have gone */
	ck_assert_str_eq(ask_members(ADD, b)->error, "");
	for (int i = 0; i < 600 && !all_are_equal_voters(NULL); i++)
		metad_bed_silence(b, 100);
	ck_assert(all_are_equal_voters(NULL));
}

#endif
