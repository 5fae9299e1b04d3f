// SPDX-License-Identifier: Apache-2.0
/* The directory of a store with one metad becomes that of the first of a group: what goes on, what is refused; cut short at each sync and write. */
#include "metad/core.h"
#include "metad/replica/founding.h"
#include "metad/restore.h"
#include "tests/lib/metad_bed.h"
#include "tests/lib/no_leaks.h"
#include "tests/lib/unit.h"

enum { NAMES = 20 };
static const uint64_t s_ns = 1000000000;

static struct metad_bed bed, *const b = &bed;
static struct err err;

static bool leads(void *ctx)
{
	(void)ctx;
	return b->md->ready;
}

static void wait_lead(void)
{
	ck_assert_msg(sim_run(b->sim, leads, NULL, sim_now_ns(b->sim) + 60 * s_ns), "it does not lead");
}

static void be_one(void)
{
	b->options.group = (struct metad_group){0};
}

static void be_replica(bool found)
{
	b->options.group = (struct metad_group){.id = 1, .found = found, .members.count = 1};
	b->options.group.members.addrs[0] = b->options.listen;
}

static const char *name_of(int i)
{
	static char name[16];

	snprintf(name, sizeof(name), "name-%d", i);
	return name;
}

static int lookup(const char *name)
{
	return bed_lookup_path(b, name, strlen(name));
}

static void check_names(void)
{
	for (int i = 0; i < NAMES; i++)
		ck_assert_msg(lookup(name_of(i)) == 0, "%s is gone", name_of(i));
}

static void lose_power(void)
{
	sim_host_crash(b->server_io);
	sim_host_restart(b->server_io);
	b->md = NULL;
}

static void make_names(int count)
{
	for (int i = 0; i < count; i++) {
		if (i == count / 2)
			metad_bed_silence(b, 1000);
		ck_assert_int_eq(bed_mkdir(b, name_of(i)), 0);
	}
}

/* Some of what it acknowledged is in its table, the rest in its log alone, when power fails. */
static void open_one(uint64_t seed)
{
	metad_bed_open_sim(b, seed);
	make_names(NAMES);
}

/* Its log has several segments. */
static void open_long(uint64_t seed)
{
	metad_bed_open_sim(b, seed);
	metad_bed_stop(b);
	strcpy(b->dir, "/long");
	ck_assert_int_eq(io_mkdir(b->server_io, b->dir, 0755), 0);
	ck_assert_int_eq(io_sync_dir(b->server_io, "/"), 0);
	b->options.log_segment_bytes = METAD_BED_MIB;
	metad_bed_start(b);
	make_names(3 * METAD_BED_MIB / 4096 / 2);
}

static int pass(void *ctx, const char *name)
{
	(void)ctx, (void)name;
	return 0;
}

static bool is_there(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", b->dir, name);
	return io_list_dir(b->server_io, path, pass, NULL) != ERR_NOENT;
}

static int mkdir_as(const char *path, Craton__RequestId *id)
{
	Craton__MkdirRequest req = CRATON__MKDIR_REQUEST__INIT;

	req.parent = INODE_ROOT;
	req.path = bed_text(path);
	req.mode = 0755;
	req.id = id;
	return bed_call(b, &rpc_metad_mkdir, &req.base);
}

START_TEST(test_example)
{
	struct ledger_view view;

	open_one(1);
	lose_power();
	be_replica(true);
	metad_bed_start(b);
	wait_lead();
	check_names();
	ck_assert_int_eq(bed_mkdir(b, "after"), 0);
	ledger_view(b->md->ledger, &view);
	ck_assert_uint_eq(view.id, 1);
	ck_assert_uint_eq(view.count, 1);
	ck_assert_uint_eq(view.next_id, 2);
	metad_bed_stop(b);

	be_one();
	ck_assert_int_eq(metad_bed_try_start(b, &err), ERR_INVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "start it with --replica"));
	be_replica(true); /* it has led: no unit keeps that */
	ck_assert_int_eq(metad_bed_try_start(b, &err), ERR_EXIST);
	ck_assert_ptr_nonnull(strstr(err.text, "without --found"));
	be_replica(false);
	metad_bed_start(b);
	wait_lead();
	check_names();
	ck_assert_int_eq(lookup("after"), 0);
	metad_bed_close(b);
}
END_TEST

/* Sessions and what they were answered, writers and what they were given. */
START_TEST(test_clients_go_on)
{
	Craton__RequestId id;
	Craton__AllocateReply *given;
	uint64_t inode, epoch, block;

	open_one(2);
	bed_register_all(b, 6);
	ck_assert_int_eq(bed_open_session(b, &id), 0);
	id.number = id.unanswered = 1;
	ck_assert_int_eq(mkdir_as("once", &id), 0);
	ck_assert_int_eq(bed_open_file(b, "f", false, &inode, &epoch), 0);
	ck_assert_int_eq(bed_allocate(b, inode, epoch, 1), 0);
	given = (Craton__AllocateReply *)b->reply;
	b->reply = NULL;
	block = given->blocks[0]->block;
	lose_power();
	be_replica(true);
	metad_bed_start(b);
	wait_lead();
	ck_assert_int_eq(mkdir_as("once", &id), 0);
	id.number = id.unanswered = 2;
	ck_assert_int_eq(mkdir_as("once", &id), ERR_EXIST);
	bed_beat_all(b, 6);
	ck_assert_int_eq(bed_commit_one(b, inode, epoch, given->blocks[0], 0, false, 0), 0);
	ck_assert_int_eq(bed_allocate(b, inode, epoch, 1), 0);
	ck_assert_uint_gt(((const Craton__AllocateReply *)b->reply)->blocks[0]->block, block);
	protobuf_c_message_free_unpacked(&given->base, NULL);
	metad_bed_close(b);
}
END_TEST

/* Nothing is left of what it was. */
START_TEST(test_directory)
{
	open_one(3);
	metad_bed_stop(b);
	ck_assert(is_there("kv"));
	be_replica(true);
	metad_bed_start(b);
	wait_lead();
	ck_assert(!is_there("kv") && !is_there("founding") && is_there("table-0"));
	metad_bed_close(b);
}
END_TEST

/* A store that nothing was done with yet, or that has hardly begun. */
START_TEST(test_of_nothing)
{
	metad_bed_open_sim(b, 4);
	lose_power();
	be_replica(true);
	metad_bed_start(b);
	wait_lead();
	ck_assert_int_eq(bed_mkdir(b, "a"), 0);
	metad_bed_close(b);
}
END_TEST

static void check_refused(int code, const char *says)
{
	ck_assert_int_eq(metad_bed_try_start(b, &err), code);
	ck_assert_msg(strstr(err.text, says), "%s: it should say: %s", err.text, says);
	ck_assert(!is_there("founding") && !is_there("table-0"));
	be_one();
	b->options.cluster = metad_bed_cluster;
	metad_bed_start(b);
	check_names();
	lose_power();
}

START_TEST(test_refused)
{
	static const char segment[] = "/metad/log/log-0000000000000001";

	open_one(5);
	lose_power();
	be_replica(false);
	check_refused(ERR_INVAL, "docs/groups.md");
	be_replica(true);
	b->options.group.id = 2;
	b->options.group.members.count = 2;
	check_refused(ERR_INVAL, "alone in `metad`");
	be_replica(true);
	b->options.group.members.count = 3;
	check_refused(ERR_INVAL, "alone in `metad`");
	be_replica(false);
	b->options.group.join = true;
	check_refused(ERR_INVAL, "--replica 1 --found");
	be_replica(true);
	b->options.cluster.bytes[0]++;
	check_refused(ERR_WRONG_CLUSTER, "use the right one of both");
	be_replica(true);
	ck_assert_int_eq(sim_flip_bit(b->server_io, segment, 20, 1), 0);
	ck_assert_int_eq(metad_bed_try_start(b, &err), ERR_CORRUPT);
	ck_assert_int_eq(sim_flip_bit(b->server_io, segment, 20, 1), 0);
	be_one();
	metad_bed_start(b);
	check_names();
	metad_bed_close(b);
}
END_TEST

/* ---- cut short ---- */

static int started;
static bool has_stopped;

static void on_stopped(void *ctx)
{
	(void)ctx;
	has_stopped = true;
	sim_host_crash(b->server_io);
}

static void try_start(void *ctx)
{
	(void)ctx;
	started = metad_bed_try_start(b, &err);
}

static bool leads_or_has_stopped(void *ctx)
{
	return has_stopped || leads(ctx);
}

/* Power fails at its nth sync, or if there are fewer, when it leads. True: nothing is left to do of the conversion. */
static bool convert_until(uint64_t nth, enum sim_loss loss)
{
	be_replica(true);
	sim_set_loss(b->server_io, loss);
	has_stopped = false;
	started = 0;
	sim_stop_at_sync(b->server_io, nth, on_stopped, NULL);
	if (!sim_try(b->sim, try_start, NULL))
		on_stopped(NULL);
	ck_assert_msg(started == 0, "%s", err.text);
	ck_assert(sim_run(b->sim, leads_or_has_stopped, NULL, sim_now_ns(b->sim) + 60 * s_ns));
	sim_stop_at_sync(b->server_io, 0, NULL, NULL);
	if (!has_stopped)
		sim_host_crash(b->server_io);
	sim_host_restart(b->server_io);
	b->md = NULL;
	return is_there("table-0") && !is_there("founding");
}

/* It starts as the one or as the other, and has all; also after the next loss of power. True: as a replica. */
static bool starts_as_replica(void)
{
	bool replica = false;

	for (int i = 0; i < 2; i++) {
		int code;

		be_one();
		code = metad_bed_try_start(b, &err);
		ck_assert_msg(code == 0 || (code == ERR_INVAL && strstr(err.text, "--replica")), "%s", err.text);
		ck_assert(i == 0 || replica == (code != 0));
		replica = code != 0;
		if (replica) {
			be_replica(false);
			ck_assert_msg(metad_bed_try_start(b, &err) == 0, "%s", err.text);
			wait_lead();
		}
		rpc_peer_reset(b->peer, ERR_CONNRESET);
		check_names();
		sim_set_loss(b->server_io, SIM_LOSS_ALL);
		lose_power();
	}
	return replica;
}

static void end_as_replica(void)
{
	be_replica(true);
	metad_bed_start(b);
	wait_lead();
	check_names();
	ck_assert_int_eq(bed_mkdir(b, "after"), 0);
	sim_set_loss(b->server_io, SIM_LOSS_ALL);
	lose_power();
	metad_bed_start(b);
	wait_lead();
	check_names();
	ck_assert_int_eq(lookup("after"), 0);
	metad_bed_close(b);
}

START_TEST(test_power_fails_at_each_sync)
{
	static const enum sim_loss losses[] = {SIM_LOSS_ALL, SIM_LOSS_NONE, SIM_LOSS_ANY, SIM_LOSS_TORN, SIM_LOSS_ANY, SIM_LOSS_ANY};
	uint32_t ones = 0, replicas = 0;
	bool ended = false;

	for (uint64_t n = 1; !ended; n += unit_step()) {
		for (size_t i = 0; i < ARRAY_COUNT(losses); i++) {
			bool replica, done;

			open_one(100 * n + i);
			sim_set_loss(b->server_io, losses[i]);
			lose_power();
			done = convert_until(n, losses[i]);
			ended |= done && losses[i] == SIM_LOSS_ALL;
			replica = starts_as_replica();
			ck_assert_msg(replica || !done, "it was a group's, and is one metad again");
			ones += !replica;
			replicas += replica;
			end_as_replica();
		}
	}
	ck_assert_uint_gt(ones, 2 * ARRAY_COUNT(losses) / unit_step());
	ck_assert_uint_gt(replicas, 5 * ARRAY_COUNT(losses) / unit_step());
}
END_TEST

START_TEST(test_power_fails_of_several_segments)
{
	enum { TRIES = 6 }; /* what is lost is drawn */
	bool done = false;

	for (uint64_t n = 1; !done; n += unit_step()) {
		for (uint64_t i = 0; i < TRIES; i++) {
			open_long(400 + TRIES * n + i);
			ck_assert(is_there("log/log-0000000000000002"));
			lose_power();
			done = convert_until(n, SIM_LOSS_ANY);
			(void)starts_as_replica();
			end_as_replica();
		}
	}
}
END_TEST

/* The process is killed, and what it did is seen by the next one, but not durable: power fails in that one's life. */
START_TEST(test_killed_before_power_fails)
{
	enum { SYNCS = 5 };
	bool ended = false;

	for (uint64_t n = 1; !ended; n += unit_step()) {
		for (uint64_t m = 1; m <= SYNCS; m++) {
			open_one(200 + n);
			lose_power();
			ended = convert_until(n, SIM_LOSS_NONE);
			(void)convert_until(m, SIM_LOSS_ALL);
			(void)starts_as_replica();
			end_as_replica();
		}
	}
}
END_TEST

/* Each write, or sync, fails in turn: that is said, nothing is lost, and it may be tried again. */
START_TEST(test_disk_fails)
{
	static const enum sim_fault faults[] = {SIM_FAULT_WRITE, SIM_FAULT_SYNC};

	for (size_t i = 0; i < ARRAY_COUNT(faults); i++) {
		uint32_t failed = 0;
		int code = -1;

		for (uint32_t n = 1; code; n += unit_step()) {
			open_one(300 + n);
			lose_power();
			be_replica(true);
			sim_fault_after(b->server_io, faults[i], n, ERR_IO);
			code = metad_bed_try_start(b, &err);
			sim_fault_after(b->server_io, faults[i], 0, 0);
			ck_assert_msg(code == 0 || code == ERR_IO, "%s", err.text);
			failed += code != 0;
			lose_power();
			(void)starts_as_replica();
			end_as_replica();
		}
		ck_assert_uint_gt(failed, 8 / unit_step());
	}
}
END_TEST

/* What was decided goes on when there is room again. */
START_TEST(test_disk_is_full)
{
	int code;

	open_one(7);
	lose_power();
	be_replica(true);
	sim_disk_full(b->server_io, true);
	code = metad_bed_try_start(b, &err);
	sim_disk_full(b->server_io, false);
	ck_assert_msg(code == 0 || code == ERR_NOSPC, "%s", err.text);
	lose_power();
	(void)starts_as_replica();
	end_as_replica();
}
END_TEST

static void check_note(uint64_t byte, uint8_t bit, int code)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/founding", b->dir);
	ck_assert_int_eq(sim_flip_bit(b->server_io, path, byte, bit), 0);
	ck_assert_int_eq(metad_bed_try_start(b, &err), code);
	ck_assert_int_eq(sim_flip_bit(b->server_io, path, byte, bit), 0);
}

/* Whoever may not go on with it changes nothing. */
START_TEST(test_note)
{
	open_one(8);
	lose_power();
	for (uint64_t n = 1; !is_there("founding"); n++)
		ck_assert(!convert_until(n, SIM_LOSS_NONE));
	ck_assert(is_there("kv"));
	for (int i = 0; i < 2; i++) {
		if (i == 0)
			be_one();
		else
			be_replica(true);
		check_note(4, 1, ERR_VERSION);
		check_note(0, 0, ERR_CORRUPT);
		check_note(33, 7, ERR_CORRUPT);
	}
	be_one();
	ck_assert_int_eq(metad_bed_try_start(b, &err), ERR_INVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "start it with --replica 1"));
	be_replica(false);
	b->options.group.id = 2;
	ck_assert_int_eq(metad_bed_try_start(b, &err), ERR_INVAL);
	be_replica(true);
	b->options.cluster.bytes[0]++;
	ck_assert_int_eq(metad_bed_try_start(b, &err), ERR_WRONG_CLUSTER);
	b->options.cluster = metad_bed_cluster;
	ck_assert(is_there("kv") && is_there("founding"));
	end_as_replica();
}
END_TEST

/* ---- a group that is lost, and founded anew of a backup ---- */

enum { METADS = 3, FILE_MAX = 1 << 20 };

static struct metad_bed beds[METADS], *const left = &beds[0];
static struct sim *sim;
static bool has_restored;

static bool is_led(void *ctx)
{
	struct metad_bed **ret_leader = ctx;

	for (int i = 0; i < METADS; i++)
		if (beds[i].md && beds[i].md->ready)
			*ret_leader = &beds[i];
	return *ret_leader != NULL;
}

static void take_backup(struct metad_bed *of)
{
	Craton__BackupRequest req = CRATON__BACKUP_REQUEST__INIT;
	const Craton__BackupReply *reply;
	uint8_t *file = mem_alloc(FILE_MAX);
	size_t len = 0;

	do {
		req.offset = len;
		ck_assert_int_eq(bed_call(of, &rpc_metad_backup, &req.base), 0);
		reply = (const Craton__BackupReply *)of->reply;
		req.id = reply->id;
		ck_assert_uint_le(len + reply->data.len, FILE_MAX);
		memcpy(file + len, reply->data.data, reply->data.len);
		len += reply->data.len;
	} while (!reply->end);
	ck_assert_int_eq(io_write_file(left->server_io, "/backup", file, len, 0600), 0);
	mem_free(file);
}

static void on_restored(void *ctx, int code, const char *text)
{
	(void)ctx;
	ck_assert_msg(code == 0, "%s", text);
	has_restored = true;
}

static bool is_restored(void *ctx)
{
	(void)ctx;
	return has_restored;
}

static void restore_group(void)
{
	strcpy(left->dir, "/new");
	ck_assert_int_eq(io_mkdir(left->server_io, left->dir, 0755), 0);
	restore_start(left->server_io,
		&(struct restore_options){.dir = left->dir,
			.file = "/backup",
			.cluster = metad_bed_cluster,
			.replica = FOUNDING_REPLICA,
			.backend = &kv_mem,
			.log_segment_bytes = METAD_BED_MIB,
			.done = on_restored});
	ck_assert(sim_run(sim, is_restored, NULL, sim_now_ns(sim) + 60 * s_ns));
}

static bool left_leads(void *ctx)
{
	(void)ctx;
	return left->md->ready;
}

/* They have their old directories, and lead each other: what they say is not heard. */
START_TEST(test_those_that_were_lost_come_back)
{
	struct ledger_view before, after;
	struct metad_bed *leader = NULL;

	sim = sim_new(&(struct sim_options){.seed = 6});
	metad_bed_open_group(beds, METADS, sim, 7000);
	ck_assert(sim_run(sim, is_led, &leader, sim_now_ns(sim) + 60 * s_ns));
	ck_assert_int_eq(bed_mkdir(leader, "before"), 0);
	take_backup(leader);
	metad_bed_silence(left, 60 * 1000); /* more of theirs, which only they know */
	for (int i = 0; i < METADS; i++) {
		sim_host_crash(beds[i].server_io);
		sim_host_restart(beds[i].server_io);
		beds[i].md = NULL;
	}
	restore_group();
	for (int i = 1; i < METADS; i++)
		metad_bed_start(&beds[i]);
	leader = NULL;
	ck_assert(sim_run(sim, is_led, &leader, sim_now_ns(sim) + 60 * s_ns));
	left->options.group.found = false;
	metad_bed_start(left);
	ck_assert(sim_run(sim, left_leads, NULL, sim_now_ns(sim) + 60 * s_ns));
	ck_assert_int_eq(bed_lookup_path(left, "before", 6), 0);
	left->session.session = left->state_ms = 0;
	ledger_view(left->md->ledger, &before);
	for (int i = 0; i < 5; i++) {
		metad_bed_silence(left, 2000);
		ck_assert_int_eq(bed_mkdir(left, (const char *const[]){"a", "b", "c", "d", "e"}[i]), 0);
	}
	ledger_view(left->md->ledger, &after);
	ck_assert_uint_eq(after.count, 1);
	ck_assert_uint_eq(after.term, before.term);
	ck_assert_uint_eq(after.leader, FOUNDING_REPLICA);
	sim_free(sim);
}
END_TEST

UNIT_MAIN("metad_found", test_example, test_clients_go_on, test_directory, test_of_nothing, test_refused, test_power_fails_at_each_sync,
	test_power_fails_of_several_segments, test_killed_before_power_fails, test_disk_fails, test_disk_is_full, test_note, test_those_that_were_lost_come_back)
