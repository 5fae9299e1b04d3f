/* SPDX-License-Identifier: Apache-2.0 */
/* A store of three metads in the simulator: who leads serves, what was acknowledged outlives it, and takes effect once. */
#include "metad/raft_codec.h"
#include "tests/lib/metad_group.h"

struct hinted {
	struct rpc_call call;
	struct metad_bed *bed;
	int status;
	char address[IO_ADDR_TEXT_BYTES];
};

static void hint_done(struct rpc_call *call, int status, const ProtobufCMessage *msg, uint32_t payload_len)
{
	struct hinted *h = CONTAINER_OF(call, struct hinted, call);

	(void)payload_len, (void)msg;
	h->status = status;
	if (call->leader.family)
		io_addr_format(&call->leader, h->address);
	metad_bed_set_done(h->bed);
}

/* A lookup, and whom to ask instead. */
static struct hinted ask(struct metad_bed *b)
{
	Craton__LookupRequest req = CRATON__LOOKUP_REQUEST__INIT;
	struct hinted h = {.bed = b};

	req.parent = INODE_ROOT;
	req.path = bed_text("x");
	h.call = (struct rpc_call){.method = &rpc_metad_lookup,
		.request = &req.base,
		.deadline_ns = io_clock_ns(b->client_io) + 60 * s_ns,
		.done = hint_done};
	rpc_call_start(b->peer, &h.call);
	metad_bed_wait(b);
	return h;
}

/* ---- tests ---- */

START_TEST(test_example)
{
	struct metad_bed *lead, *next;
	Craton__RequestId id;

	open_group(1);
	lead = wait_leader();
	ck_assert_int_eq(bed_open_session(lead, &id), 0);
	id.number = id.unanswered = 1;
	ck_assert_int_eq(mkdir_as(lead, &id, "a"), 0);
	crash(lead);
	next = wait_leader();
	ck_assert_int_eq(mkdir_as(next, &id, "a"), 0); /* the recorded reply */
	id.number = id.unanswered = 2;
	ck_assert_int_eq(mkdir_as(next, &id, "a"), ERR_EXIST);
	ck_assert_int_eq(lookup(next, "a"), 0);
	restart(lead);
	check_equal();
	close_group();
}
END_TEST

START_TEST(test_followers_refuse_and_say_who_leads)
{
	char address[IO_ADDR_TEXT_BYTES];
	struct metad_bed *lead, *other;
	struct hinted h;

	open_group(2);
	lead = wait_leader();
	io_addr_format(&lead->options.listen, address);
	other = follower();
	metad_bed_silence(other, 1000);
	h = ask(other);
	ck_assert_int_eq(h.status, ERR_NOT_LEADER);
	ck_assert_str_eq(h.address, address);
	ck_assert_int_eq(ask(lead).status, ERR_NOENT);
	/* Nobody leads: nobody is named. */
	for (int i = 0; i < METADS; i++)
		if (&beds[i] != other)
			crash(&beds[i]);
	metad_bed_silence(other, 5000);
	h = ask(other);
	ck_assert_int_eq(h.status, ERR_NOT_LEADER);
	ck_assert_str_eq(h.address, "");
	close_group();
}
END_TEST

/* It does not know yet that it was deposed: clients still reach it. */
START_TEST(test_deposed_leader_serves_no_old_rows)
{
	struct metad_bed *old, *next;
	Craton__RequestId id;
	int status;

	for (uint64_t seed = 10; seed < 20; seed++) {
		open_group(seed);
		old = wait_leader();
		ck_assert_int_eq(bed_open_session(old, &id), 0);
		cut_off(old, true);
		next = wait_other_leader(old);
		id.number = id.unanswered = 1;
		ck_assert_int_eq(mkdir_as(next, &id, "new"), 0);
		status = lookup(old, "new");
		ck_assert_msg(status != ERR_NOENT, "an old leader has answered with rows that are no longer true");
		ck_assert_int_eq(lookup(next, "new"), 0);
		cut_off(old, false);
		metad_bed_silence(old, 3000);
		check_equal();
		close_group();
	}
}
END_TEST

/* Nor does it refuse changes by its old rows: the session began at the next one. */
START_TEST(test_deposed_leader_refuses_no_session)
{
	struct metad_bed *old, *next;
	Craton__RequestId id;
	int status;

	for (uint64_t seed = 20; seed < 30; seed++) {
		open_group(seed);
		old = wait_leader();
		cut_off(old, true);
		next = wait_other_leader(old);
		ck_assert_int_eq(bed_open_session(next, &id), 0);
		id.number = id.unanswered = 1;
		status = mkdir_as(old, &id, "new");
		ck_assert_msg(status != ERR_SESSION_LOST && status != ERR_PERM, "an old leader has refused a session that it does not know");
		ck_assert_int_eq(mkdir_as(next, &id, "new"), 0);
		cut_off(old, false);
		metad_bed_silence(old, 3000);
		check_equal();
		close_group();
	}
}
END_TEST

/* What was logged by a leader that nobody hears is neither acknowledged nor refused as undone; sent again it takes effect once. */
START_TEST(test_what_a_cut_off_leader_logged)
{
	struct metad_bed *old, *next;
	struct pending p = {0};

	open_group(3);
	old = wait_leader();
	prepare_mkdir(old, &p);
	start_call(old, &p, &rpc_metad_mkdir, &p.req.base);
	ck_assert(sim_run(sim, is_logged, old, sim_now_ns(sim) + 10 * s_ns));
	cut_off(old, true);
	ck_assert(sim_run(sim, is_answered, &p, sim_now_ns(sim) + 10 * s_ns));
	ck_assert_int_eq(p.status, ERR_STOPPED); /* not "it is not done": it may be */
	next = wait_other_leader(old);
	ck_assert_int_eq(lookup(next, "a"), ERR_NOENT);
	cut_off(old, false);
	ck_assert_int_eq(mkdir_as(next, &p.id, "a"), 0);
	ck_assert_int_eq(mkdir_as(next, &p.id, "a"), 0);
	metad_bed_silence(old, 3000);
	check_equal();
	close_group();
}
END_TEST

static bool is_asking(void *ctx)
{
	return ((struct metad_bed *)ctx)->md->asking;
}

static bool is_waiting(void *ctx)
{
	return !list_empty(&((struct metad_bed *)ctx)->md->gate);
}

/* Its log fails while it asks the others, and more requests wait for the next question: all are refused, and it asks no more. */
START_TEST(test_leader_fails_while_it_asks)
{
	Craton__LookupRequest look = CRATON__LOOKUP_REQUEST__INIT;
	struct pending change = {0}, first = {0}, second = {0};
	struct metad_bed *b;

	open_group(8);
	b = wait_leader();
	craton__request_id__init(&change.id);
	ck_assert_int_eq(bed_open_session(b, &change.id), 0);
	change.id.number = change.id.unanswered = 1;
	craton__mkdir_request__init(&change.req);
	change.req.parent = look.parent = INODE_ROOT;
	change.req.path = look.path = bed_text("a");
	change.req.id = &change.id;
	sim_fault_after(b->server_io, SIM_FAULT_WRITE, 1, ERR_IO);
	sim_disk_stall(b->server_io, s_ns / 2);
	start_call(b, &change, &rpc_metad_mkdir, &change.req.base);
	ck_assert(sim_run(sim, is_logged, b, sim_now_ns(sim) + 10 * s_ns));
	cut_off(b, true);
	start_call(b, &first, &rpc_metad_lookup, &look.base);
	ck_assert(sim_run(sim, is_asking, b, sim_now_ns(sim) + s_ns / 10));
	start_call(b, &second, &rpc_metad_lookup, &look.base);
	ck_assert(sim_run(sim, is_waiting, b, sim_now_ns(sim) + s_ns / 10));
	ck_assert(sim_run(sim, is_answered, &second, sim_now_ns(sim) + 2 * s_ns));
	ck_assert_int_ne(b->fatal, 0);
	ck_assert(first.done && change.done);
	/* Not the failure of a disk, which is no matter of theirs: who leads next has an answer. */
	ck_assert_int_eq(first.status, ERR_STOPPED);
	ck_assert_int_eq(second.status, ERR_STOPPED);
	ck_assert_int_eq(change.status, ERR_STOPPED);
	b->fatal = 0;
	crash(b);
	close_group();
}
END_TEST

/* Its disk hangs: it hears of no failure, and is heard. Another leads soon; what was logged and not acknowledged takes effect once. */
START_TEST(test_leader_whose_disk_hangs)
{
	struct metad_bed *old, *next;
	struct pending p = {0};

	open_group(12);
	old = wait_leader();
	prepare_mkdir(old, &p);
	sim_disk_stall(old->server_io, 30 * s_ns);
	start_call(old, &p, &rpc_metad_mkdir, &p.req.base);
	ck_assert(sim_run(sim, is_answered, &p, sim_now_ns(sim) + 5 * s_ns));
	ck_assert_int_eq(p.status, ERR_STOPPED);
	next = wait_other_leader(old);
	ck_assert_int_eq(mkdir_as(next, &p.id, "a"), 0);
	ck_assert_int_eq(ask(old).status, ERR_NOT_LEADER);
	metad_bed_silence(old, 500);
	ck_assert_int_eq(old->md->ill, LEDGER_LOG_HANGS);
	ck_assert_int_eq(next->md->ill, LEDGER_WELL);
	metad_bed_silence(old, 600 * 1000);
	ck_assert_int_eq(old->md->ill, LEDGER_WELL);
	check_equal();
	close_group();
}
END_TEST

/* Handlers answer a failure with what they would say of a success; of this one nobody may read that as a hint. */
START_TEST(test_refusal_in_a_method_s_own_words)
{
	Craton__MaintenanceRequest away = CRATON__MAINTENANCE_REQUEST__INIT;
	struct metad_bed *b, *other;
	struct pending p = {0};

	open_group(13);
	b = wait_leader();
	other = follower();
	bed_register_all(b, 6);
	cut_off(other, true);
	ck_assert_int_eq(replica_transfer(b->md->ledger->replica, other->options.group.id, ignore_handed, NULL), 0);
	metad_bed_silence(b, 10); /* handing over, in vain: it takes no entries */
	away.server = (char *)"1";
	away.for_ms = 1000;
	start_call(b, &p, &rpc_metad_maintenance, &away.base);
	ck_assert(sim_run(sim, is_answered, &p, sim_now_ns(sim) + 10 * s_ns));
	ck_assert_int_eq(p.status, ERR_NOT_LEADER);
	cut_off(other, false);
	metad_bed_silence(b, 3000);
	check_equal();
	close_group();
}
END_TEST

static bool waits_for_flush(void *ctx)
{
	return ((struct metad_bed *)ctx)->md->backup.waiting != NULL;
}

/* Leaders die one after the other while directories are made: each is made once, none that was acknowledged is lost. */
START_TEST(test_leaders_die)
{
	struct metad_bed *b, *dead = NULL;
	Craton__RequestId id;
	char path[16];

	open_group(4);
	b = wait_leader();
	ck_assert_int_eq(bed_open_session(b, &id), 0);
	for (uint64_t i = 1; i <= 60; i++) {
		int status;

		snprintf(path, sizeof(path), "d%d", (int)i);
		id.number = id.unanswered = i;
		if (i % 10 == 3) {
			crash(b);
			dead = b;
		}
		do {
			b = wait_leader();
			status = mkdir_as(b, &id, path);
			if (status)
				metad_bed_silence(b, 50);
		} while (status == ERR_NOT_LEADER || status == ERR_STOPPED || status == ERR_AGAIN || status == ERR_CONNRESET ||
			status == ERR_CONNREFUSED || status == ERR_HOSTUNREACH);
		ck_assert_int_eq(status, 0);
		if (i % 10 == 8 && dead) {
			restart(dead);
			dead = NULL;
		}
	}
	b = wait_leader();
	for (int i = 1; i <= 60; i++) {
		snprintf(path, sizeof(path), "d%d", i);
		ck_assert_int_eq(lookup(b, path), 0);
	}
	check_equal();
	close_group();
}
END_TEST

/* Who was away for long gets the table, not the entries, and can lead with it. */
START_TEST(test_table_of_the_leader)
{
	struct metad_bed *b, *away;
	char path[64];

	open_group(5);
	b = wait_leader();
	away = follower();
	crash(away);
	for (int i = 0; i < 3000; i++) {
		snprintf(path, sizeof(path), "directory-with-a-name-that-takes-room-%d", i);
		ck_assert_int_eq(bed_mkdir(b, path), 0);
	}
	ck_assert_uint_gt(wal_index(replica_log(b->md->ledger->replica))->base_index, 1);
	restart(away);
	check_equal();
	ck_assert_uint_eq(replica_counts(away->md->ledger->replica)->snapshots_installed, 1);
	for (int i = 0; i < METADS; i++)
		if (&beds[i] != away)
			cut_off(&beds[i], true);
	for (int i = 0; i < METADS; i++)
		if (&beds[i] != b)
			for (int j = 0; j < METADS; j++)
				if (&beds[j] != b && i != j)
					sim_heal(beds[i].server_io, beds[j].server_io);
	b = wait_other_leader(b);
	ck_assert_int_eq(lookup(b, path), 0);
	close_group();
}
END_TEST

/* The two kinds of directory are never mixed, and a replica is not made by mistake. */
START_TEST(test_directories)
{
	struct metad_bed *b = &beds[0];
	struct metad_group group;
	struct err err = {0};

	open_group(6);
	wait_leader();
	metad_bed_stop(b);
	group = b->options.group;
	b->options.group = (struct metad_group){0};
	ck_assert_int_eq(metad_bed_try_start(b, &err), ERR_INVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "holds a replica of a group"));
	b->options.group = group;
	b->options.group.found = true;
	ck_assert_int_eq(metad_bed_try_start(b, &err), ERR_EXIST);
	ck_assert_ptr_nonnull(strstr(err.text, "without --found"));
	b->options.group.found = false; /* it is there */
	metad_bed_start(b);
	metad_bed_stop(b);
	b->options.dir = "/other";
	ck_assert_int_eq(io_mkdir(b->server_io, "/other", 0755), 0);
	ck_assert_int_eq(metad_bed_try_start(b, &err), ERR_NOENT);
	ck_assert_ptr_nonnull(strstr(err.text, "--found"));
	b->options.group = (struct metad_group){0};
	metad_bed_start(b);
	metad_bed_stop(b);
	b->options.group = group;
	ck_assert_int_eq(metad_bed_try_start(b, &err), ERR_INVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "becomes the first of a group"));
	close_group();
}
END_TEST

/* A backup waits for the table while its leader is deposed: it is refused, and nothing is left of it. */
START_TEST(test_backup_of_a_deposed_leader)
{
	Craton__BackupRequest req = CRATON__BACKUP_REQUEST__INIT;
	struct pending p = {0};
	struct metad_bed *b, *next;

	open_group(11);
	b = wait_leader();
	ck_assert_int_eq(bed_mkdir(b, "a"), 0);
	sim_disk_stall(b->server_io, 5 * s_ns);
	start_call(b, &p, &rpc_metad_backup, &req.base);
	ck_assert(sim_run(sim, waits_for_flush, b, sim_now_ns(sim) + s_ns));
	cut_off(b, true);
	next = wait_other_leader(b);
	ck_assert(sim_run(sim, is_answered, &p, sim_now_ns(sim) + 30 * s_ns));
	ck_assert_int_eq(p.status, ERR_STOPPED);
	ck_assert(!b->md->backup.waiting && !b->md->backup.snapshot);
	cut_off(b, false);
	ck_assert_int_eq(lookup(next, "a"), 0);
	close_group();
}
END_TEST

/* What it knew beside the rows is of another time: ids that it may not give any more, servers that others have heard since. */
START_TEST(test_who_leads_again_begins_anew)
{
	struct metad_bed *first, *second;
	uint64_t inode, epoch, ids[3];

	open_group(9);
	first = wait_leader();
	bed_register_all(first, 6);
	ck_assert_int_eq(bed_open_file(first, "f", false, &inode, &epoch), 0);
	ck_assert_int_eq(bed_allocate(first, inode, epoch, 1), 0);
	ids[0] = ((const Craton__AllocateReply *)first->reply)->blocks[0]->block;
	ck_assert_uint_gt(first->md->range.end, 0);
	ck_assert_uint_gt(first->md->token_key.id, 0);
	plan_gc_hurry(&first->md->gc.plan, 1);
	cut_off(first, true);
	second = wait_other_leader(first);
	memcpy(second->servers, first->servers, sizeof(second->servers));
	second->state_ms = 0;
	bed_beat_all(second, 6);
	ck_assert_int_eq(bed_allocate(second, inode, epoch, 1), 0);
	ids[1] = ((const Craton__AllocateReply *)second->reply)->blocks[0]->block;
	cut_off(first, false);
	metad_bed_silence(first, 3000);
	do { /* until it is the turn of the first again */
		struct metad_bed *b = wait_leader();

		crash(b);
		wait_other_leader(b);
		restart(b);
		metad_bed_silence(first, 1000);
	} while (wait_leader() != first);
	ck_assert_uint_eq(first->md->range.end, 0);
	ck_assert_uint_eq(first->md->token_key.id, 0);
	ck_assert_uint_eq(first->md->gc.plan.hurry_ms, 0);
	for (uint32_t id = 1; id <= 6; id++)
		ck_assert_uint_eq(first->md->servers[id].heard_ns, 0);
	first->state_ms = 0;
	bed_beat_all(first, 6);
	ck_assert_int_eq(bed_allocate(first, inode, epoch, 1), 0);
	ids[2] = ((const Craton__AllocateReply *)first->reply)->blocks[0]->block;
	ck_assert(ids[0] < ids[1] && ids[1] < ids[2]);
	close_group();
}
END_TEST

static int check_row(void *ctx, struct slice key, struct slice value)
{
	(void)value;
	++*(int *)ctx;
	ck_assert_int_ne(key.data[0], 0);
	return 0;
}

/* Who is in the group is not the store's: a backup is restored into another one. */
START_TEST(test_backup_has_rows_of_the_store_alone)
{
	static struct backup_check c;
	Craton__BackupRequest req = CRATON__BACKUP_REQUEST__INIT;
	const Craton__BackupReply *reply;
	struct metad_bed *b;
	struct err err = {0};
	int rows = 0;

	open_group(7);
	b = wait_leader();
	ck_assert_int_eq(bed_mkdir(b, "a"), 0);
	ck_assert_int_eq(bed_call(b, &rpc_metad_backup, &req.base), 0);
	reply = (const Craton__BackupReply *)b->reply;
	ck_assert_int_eq(backup_check_header(&c, slice_of(reply->data.data, BACKUP_HEADER_BYTES), &err), 0);
	ck_assert_uint_eq(reply->data.len, BACKUP_HEADER_BYTES);
	do {
		req.id = reply->id;
		req.offset += reply->data.len;
		ck_assert_int_eq(bed_call(b, &rpc_metad_backup, &req.base), 0);
		reply = (const Craton__BackupReply *)b->reply;
		ck_assert_msg(backup_check_section(&c, slice_of(reply->data.data, reply->data.len), check_row, &rows, &err) == 0, "%s",
			err.text);
	} while (!c.ended);
	ck_assert_int_gt(rows, 2);
	close_group();
}
END_TEST

/* ---- changes of the group ---- */

/* It is heard of for three seconds after its death; without another one the group would have no majority until it is back. */
START_TEST(test_removal_next_to_one_just_dead)
{
	struct metad_bed *b, *dead, *other;

	open_group(21);
	b = wait_leader();
	dead = follower();
	other = third(b, dead);
	metad_bed_silence(b, 1000);
	crash(dead);
	ck_assert_int_eq(act(b, REMOVE, number(other)), ERR_BUSY);
	ck_assert_int_eq(bed_mkdir(b, "a"), 0); /* the group has its majority */
	ck_assert_int_eq(act(b, REMOVE, number(b)), ERR_BUSY);
	ck_assert(b->md->ready);
	restart(dead);
	metad_bed_silence(b, 1000);
	ck_assert_int_eq(act(b, REMOVE, number(other)), 0);
	crash(other);
	ck_assert_int_eq(bed_mkdir(b, "b"), 0);
	close_group();
}
END_TEST

/* A client asks again when an attempt has taken it too long: it is told what came of it, not that it was done already. */
START_TEST(test_what_is_asked_again)
{
	struct metad_bed *b, *dead, *other;
	struct asked first, second;
	char addr[IO_ADDR_TEXT_BYTES];

	open_group(22);
	b = wait_leader();
	dead = follower();
	other = third(b, dead);
	metad_bed_silence(b, 1000);
	crash(dead);
	start_action(b, &first, REMOVE, number(other));
	start_action(b, &second, REMOVE, number(other));
	ck_assert(sim_run(sim, is_answered, &second.p, sim_now_ns(sim) + 10 * s_ns));
	ck_assert_int_eq(first.p.status, ERR_AGAIN);
	ck_assert_int_eq(second.p.status, ERR_BUSY);
	ck_assert_int_eq(b->md->members.busy, false);
	io_addr_format(&dead->options.listen, addr);
	ck_assert_int_eq(act(b, REMOVE, addr), 0);
	ck_assert_int_eq(act(b, REMOVE, addr), 0);
	ck_assert_int_eq(act(b, REMOVE, number(dead)), 0);
	ck_assert_int_eq(act(b, REMOVE, "metad-4"), ERR_NOENT); /* there never was one */
	ck_assert_int_eq(act(b, TRANSFER, number(dead)), ERR_NOENT);
	close_group();
}
END_TEST

START_TEST(test_address_written_otherwise)
{
	struct metad_bed *b;
	char text[IO_ADDR_TEXT_BYTES], addr[IO_ADDR_TEXT_BYTES];

	open_group(23);
	b = wait_leader();
	io_addr_format(&follower()->options.listen, addr);
	snprintf(text, sizeof(text), "%.*s:0%s", (int)(strrchr(addr, ':') - addr), addr, strrchr(addr, ':') + 1);
	ck_assert_int_eq(act(b, TRANSFER, text), 0);
	wait_other_leader(b);
	close_group();
}
END_TEST

/* Who was cut off does not know whether it still belongs to the group: that others are asked first is for whoever asks. */
START_TEST(test_who_knows_of_no_leader)
{
	Craton__MembersRequest req = CRATON__MEMBERS_REQUEST__INIT;
	struct metad_bed *b;

	open_group(24);
	wait_leader();
	b = follower();
	cut_off(b, true);
	metad_bed_silence(b, 5000);
	ck_assert_int_eq(bed_call(b, &rpc_metad_members, &req.base), 0);
	req.led = true;
	ck_assert_int_eq(bed_call(b, &rpc_metad_members, &req.base), ERR_NOT_LEADER);
	cut_off(b, false);
	metad_bed_silence(b, 3000);
	close_group();
}
END_TEST

/* ---- addresses ---- */

static void move(struct metad_bed *b)
{
	crash(b);
	rpc_peer_close(b->peer, metad_bed_set_done, b);
	metad_bed_wait(b);
	b->peer = NULL;
	b->options.listen.port += 100;
}

/* All are named in another order than that in which the group was founded. */
static void name_backwards(void)
{
	for (int i = 0; i < METADS; i++)
		for (int j = 0; j < METADS; j++)
			beds[i].options.group.members.addrs[METADS - 1 - j] = beds[j].options.listen;
}

START_TEST(test_list_in_another_order)
{
	struct metad_bed *b;

	open_group(25);
	b = wait_leader();
	ck_assert_int_eq(bed_mkdir(b, "a"), 0);
	name_backwards();
	for (int i = 0; i < METADS; i++)
		crash(&beds[i]);
	for (int i = 0; i < METADS; i++)
		restart(&beds[i]);
	b = wait_leader();
	ck_assert_int_eq(lookup(b, "a"), 0);
	check_equal();
	close_group();
}
END_TEST

static bool is_corrected(void *ctx)
{
	(void)ctx;
	for (int i = 0; i < METADS; i++) {
		const struct raft_core *core = is_up(&beds[i]) ? replica_core(beds[i].md->ledger->replica) : NULL;
		struct io_addr addr;

		for (uint32_t j = 0; core && j < core->config.count; j++)
			if (!raft_place_get(core->config.members[j].place, &addr) ||
				!io_addr_equal(&addr, &beds[core->config.members[j].id - 1].options.listen))
				return false;
	}
	return true;
}

/* The log says where they were. */
START_TEST(test_hosts_get_other_addresses)
{
	struct metad_bed *b, *gone;

	open_group(26);
	b = wait_leader();
	ck_assert_int_eq(bed_mkdir(b, "a"), 0);
	gone = follower();
	ck_assert_int_eq(act(b, REMOVE, number(gone)), 0);
	crash(gone);
	for (int i = 0; i < METADS; i++)
		if (&beds[i] != gone)
			move(&beds[i]);
	name_backwards();
	for (int i = 0; i < METADS; i++)
		if (&beds[i] != gone)
			restart(&beds[i]);
	b = wait_leader();
	ck_assert_int_eq(lookup(b, "a"), 0);
	ck_assert(sim_run(sim, is_corrected, NULL, sim_now_ns(sim) + 30 * s_ns));
	close_group();
}
END_TEST

/* One of them, which the others know at its old address only. */
START_TEST(test_one_host_gets_another_address)
{
	struct metad_bed *b;

	open_group(27);
	wait_leader();
	b = follower();
	move(b);
	for (int i = 0; i < METADS; i++)
		b->options.group.members.addrs[i] = beds[i].options.listen;
	restart(b);
	ck_assert_int_eq(bed_mkdir(wait_leader(), "a"), 0);
	check_equal();
	close_group();
}
END_TEST

UNIT_MAIN("metad_group", test_example, test_followers_refuse_and_say_who_leads, test_deposed_leader_serves_no_old_rows,
	test_deposed_leader_refuses_no_session, test_what_a_cut_off_leader_logged, test_leader_fails_while_it_asks, test_leader_whose_disk_hangs, test_refusal_in_a_method_s_own_words, test_leaders_die, test_table_of_the_leader, test_who_leads_again_begins_anew, test_backup_of_a_deposed_leader, test_backup_has_rows_of_the_store_alone, test_directories,
	test_removal_next_to_one_just_dead, test_what_is_asked_again, test_address_written_otherwise, test_who_knows_of_no_leader,
	test_list_in_another_order, test_hosts_get_other_addresses, test_one_host_gets_another_address)
