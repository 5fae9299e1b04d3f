// SPDX-License-Identifier: Apache-2.0
/*
 * A metad whose metadata are saved while it works, lost, and made anew: on simulated hosts, with the restore cut short by a crash at every
 * moment.
 */
#include "common/code/backup.h"
#include "metad/core.h"
#include "metad/replica/founding.h"
#include "metad/restore.h"
#include "metad/state/keys.h"
#include "tests/lib/metad_bed.h"
#include "tests/lib/no_leaks.h"
#include "tests/lib/unit.h"

enum { FILE_MAX = 8 << 20 };

static struct metad_bed bed, *const b = &bed;
static uint8_t *file;
static size_t file_len;

static int lookup(const char *path)
{
	return bed_lookup_path(b, path, strlen(path));
}

static void make_dirs(const char *prefix, int from, int to)
{
	char path[300];

	for (int i = from; i < to; i++) {
		snprintf(path, sizeof(path), "%s-%04d-%0*d", prefix, i, 220, i); /* long names: many sections, soon */
		ck_assert_int_eq(bed_mkdir(b, path), 0);
	}
}

static uint32_t count_dirs(const char *prefix, int to)
{
	char path[300];
	uint32_t n = 0;

	for (int i = 0; i < to; i++) {
		snprintf(path, sizeof(path), "%s-%04d-%0*d", prefix, i, 220, i);
		n += lookup(path) == 0;
	}
	return n;
}

/* The next part into `file`. */
static int part(uint64_t *id, bool *ret_end)
{
	Craton__BackupRequest req = CRATON__BACKUP_REQUEST__INIT;
	const Craton__BackupReply *reply;

	req.id = *id;
	req.offset = *id ? file_len : 0;
	if (bed_call(b, &rpc_metad_backup, &req.base))
		return b->status;
	file_len = *id ? file_len : 0;
	reply = (const Craton__BackupReply *)b->reply;
	ck_assert_uint_le(file_len + reply->data.len, FILE_MAX);
	memcpy(file + file_len, reply->data.data, reply->data.len);
	file_len += reply->data.len;
	*id = reply->id;
	*ret_end = reply->end;
	return 0;
}

static void whole(void)
{
	uint64_t id = 0;
	bool end = false;

	while (!end)
		ck_assert_int_eq(part(&id, &end), 0);
}

static int count_row(void *ctx, struct slice key, struct slice value)
{
	(void)value;
	((uint32_t *)ctx)[key.data[0]]++;
	return 0;
}

START_TEST(test_of_one_moment)
{
	uint64_t id = 0, other = 0;
	bool end = false;
	int parts = 0, i = 300;

	file = mem_alloc(FILE_MAX);
	metad_bed_open_sim(b, 31);
	make_dirs("before", 0, 1500);
	ck_assert_int_eq(part(&id, &end), 0);
	ck_assert_int_eq(part(&other, &end), ERR_BUSY);
	while (!end) {
		make_dirs("during", i - 300, i - 298); /* commits go on behind the snapshot */
		metad_bed_sleep(b, 300);
		i += 2;
		ck_assert_int_eq(part(&id, &end), 0);
		parts++;
	}
	ck_assert_int_ge(parts, 3);
	ck_assert_int_eq(part(&id, &end), ERR_STALE);
	{
		static struct backup_check c;
		uint32_t rows_of[256] = {0};
		struct err err = {0};
		size_t at = BACKUP_HEADER_BYTES, len;

		ck_assert_int_eq(backup_check_header(&c, slice_of(file, at), &err), 0);
		for (; !c.ended; at += len) {
			ck_assert_int_eq(backup_section_size(file + at, &len), 0);
			ck_assert_msg(backup_check_section(&c, slice_of(file + at, len), count_row, rows_of, &err) == 0, "%s", err.text);
		}
		ck_assert_uint_eq(at, file_len);
		/* an inode and a name of each directory made before it began, and of the root; nothing of those made since */
		ck_assert_uint_eq(rows_of[STATE_TABLE_DIRENT], 1500);
		ck_assert_uint_eq(rows_of[STATE_TABLE_INODE], 1501);
		ck_assert_uint_eq(rows_of[STATE_TABLE_META], 1);
	}
	metad_bed_close(b);
	mem_free(file);
}
END_TEST

START_TEST(test_one_that_nobody_ends)
{
	uint64_t id = 0, other = 0;
	bool end = false;

	file = mem_alloc(FILE_MAX);
	metad_bed_open_sim(b, 32);
	make_dirs("d", 0, 1500);
	ck_assert_int_eq(part(&id, &end), 0);
	metad_bed_sleep(b, 29 * 1000);
	ck_assert_int_eq(part(&other, &end), ERR_BUSY);
	metad_bed_sleep(b, 2 * 1000);
	ck_assert_int_eq(part(&id, &end), ERR_STALE);
	ck_assert_int_eq(part(&other, &end), 0);
	metad_bed_stop(b); /* in the middle of it */
	metad_bed_start(b);
	(void)lookup("d"); /* over the old connection */
	ck_assert_int_eq(part(&other, &end), ERR_STALE);
	metad_bed_close(b);
	mem_free(file);
}
END_TEST

/* ---- restoring ---- */

static int restore_code;
static uint32_t restores_seen; /* by the disks */
static bool restore_forced;
static uint64_t restored_replica; /* 0: a store of one metad */
static bool restore_ended;
static char restore_text[ERR_TEXT_BYTES];

static void on_restored(void *ctx, int code, const char *text)
{
	(void)ctx;
	restore_code = code;
	restore_ended = true;
	snprintf(restore_text, sizeof(restore_text), "%s", text);
}

static bool has_ended(void *ctx)
{
	(void)ctx;
	return restore_ended;
}

static void begin_restore(void *ctx)
{
	const char *dir = *(const char **)ctx;

	restore_ended = false;
	restore_start(b->server_io,
		&(struct restore_options){.dir = dir,
			.file = "/backup",
			.cluster = metad_bed_cluster,
			.restores = restores_seen,
			.force = restore_forced,
			.replica = restored_replica,
			.backend = &kv_mem,
			.log_segment_bytes = 1 << 20,
			.done = on_restored});
}

static int restore(const char *dir)
{
	begin_restore(&dir);
	ck_assert(sim_run(b->sim, has_ended, NULL, sim_now_ns(b->sim) + 60ull * 1000000000));
	return restore_code;
}

static bool leads(void *ctx)
{
	(void)ctx;
	return b->md->ready;
}

/* As what it was restored; 0 when it serves. */
static int try_start_restored(struct err *err)
{
	int code;

	b->options.group = (struct metad_group){.id = restored_replica};
	code = metad_bed_try_start(b, err);
	if (code == 0) {
		ck_assert(sim_run(b->sim, leads, NULL, sim_now_ns(b->sim) + 60ull * 1000000000));
		rpc_peer_reset(b->peer, ERR_CONNRESET);
	}
	return code;
}

static void start_restored(void)
{
	struct err err = {0};

	ck_assert_msg(try_start_restored(&err) == 0, "%s", err.text);
}

static void prepare(uint64_t seed)
{
	file = mem_alloc(FILE_MAX);
	metad_bed_open_sim(b, seed);
	bed_register_all(b, 2);
	make_dirs("before", 0, 20);
	whole();
	make_dirs("after", 0, 3);
	ck_assert_int_eq(bed_register(b, 1, b->options.secret), 0); /* a generation that the backup does not know */
	ck_assert_int_eq(bed_register(b, 3, b->options.secret), 0); /* and a disk */
	metad_bed_stop(b);
	ck_assert_int_eq(io_write_file(b->server_io, "/backup", file, file_len, 0600), 0);
}

static void check_restore(void)
{
	static const char *const notes[] = {"/new/founding", "/new/differs"};

	prepare(33);
	ck_assert_int_eq(restore("/metad"), ERR_NOTEMPTY);
	ck_assert_int_eq(io_mkdir(b->server_io, "/new", 0755), 0);
	for (size_t i = 0; i < ARRAY_COUNT(notes); i++) {
		ck_assert_int_eq(io_write_file(b->server_io, notes[i], "1\n", 2, 0600), 0);
		ck_assert_int_eq(restore("/new"), ERR_NOTEMPTY);
		ck_assert_ptr_nonnull(strstr(restore_text, notes[i]));
		ck_assert_int_eq(io_unlink(b->server_io, notes[i]), 0);
	}
	ck_assert_msg(restore("/new") == 0, "%s", restore_text);
	ck_assert_int_eq(restore("/new"), ERR_NOTEMPTY);
	strcpy(b->dir, "/new");
	for (int i = 0; i < 2; i++) { /* from its log, then from its table */
		start_restored();
		ck_assert_uint_eq(count_dirs("before", 20), 20);
		ck_assert_uint_eq(count_dirs("after", 3), 0);
		ck_assert(bed_has_reason(bed_status(b), "restored"));
		b->state_ms = 0; /* it went back: who was connected learns of it by registering, as he is told to */
		ck_assert(bed_beat(b, 2, 0) == (i == 0));
		ck_assert_int_eq(bed_register(b, 2, b->options.secret), 0);
		ck_assert_uint_gt(b->servers[2].generation, 1ull << 32);
		ck_assert(!bed_beat(b, 2, 0));
		ck_assert_int_eq(bed_register(b, 1, b->options.secret), 0);
		ck_assert_uint_gt(b->servers[1].generation, 1ull << 32);
		ck_assert_int_eq(bed_register(b, 3, b->options.secret), 0);
		if (i == 0) { /* a client of before: what it did since is not known */
			ck_assert_int_eq(bed_mkdir(b, "x"), ERR_SESSION_LOST);
			b->session.session = 0;
		}
		make_dirs("new", i, i + 1);
		metad_bed_sleep(b, 1000);
		metad_bed_stop(b);
	}
	/* the old key goes as soon as the new one is known everywhere */
	start_restored();
	ck_assert_int_eq(bed_register(b, 2, b->options.secret), 0);
	ck_assert_uint_eq(b->token_key_count, 2);
	metad_bed_sleep(b, 40 * 1000);
	ck_assert_int_eq(bed_register(b, 2, b->options.secret), 0);
	ck_assert_uint_eq(b->token_keys[1].id, 2); /* 1 was that of before */
	metad_bed_close(b);
	mem_free(file);
}

START_TEST(test_restore)
{
	check_restore();
}
END_TEST

START_TEST(test_restore_as_group)
{
	restored_replica = FOUNDING_REPLICA;
	check_restore();
}
END_TEST

/* Nobody can write before a disk knows of the restore; then everybody can. */
START_TEST(test_disks_hear_of_it_first)
{
	uint64_t inode, epoch;

	file = mem_alloc(FILE_MAX);
	metad_bed_open_sim(b, 35);
	bed_register_all(b, 6);
	whole();
	metad_bed_stop(b);
	ck_assert_int_eq(io_write_file(b->server_io, "/backup", file, file_len, 0600), 0);
	ck_assert_int_eq(io_mkdir(b->server_io, "/new", 0755), 0);
	ck_assert_msg(restore("/new") == 0, "%s", restore_text);
	strcpy(b->dir, "/new");
	metad_bed_start(b);
	b->session.session = b->state_ms = 0;
	ck_assert_int_eq(bed_open_file(b, "f", false, &inode, &epoch), 0);
	ck_assert_int_eq(bed_register(b, 1, b->options.secret), 0);
	ck_assert_int_eq(bed_allocate(b, inode, epoch, 1), ERR_OVERLOADED); /* again: it is a matter of a heartbeat */
	bed_register_all(b, 6);
	ck_assert_int_eq(bed_allocate(b, inode, epoch, 1), 0);
	metad_bed_close(b);
	mem_free(file);
}
END_TEST

/* The same backup twice: the disks have seen the first restore, and the second one would repeat what it gave away. */
START_TEST(test_restore_beside_another)
{
	static const char *const dirs[] = {"/one", "/two", "/three"};
	struct metad_bed_server before;

	prepare(36);
	for (int i = 0; i < 3; i++) {
		const Craton__RegisterReply *reply;

		restores_seen = i < 2 ? 0 : 255;
		ck_assert_int_eq(io_mkdir(b->server_io, dirs[i], 0755), 0);
		if (i == 2) {
			restore_forced = true; /* beyond all numbers */
			ck_assert_int_eq(restore(dirs[i]), ERR_RANGE);
			restore_forced = false;
			restores_seen = 1;
		}
		ck_assert_msg(restore(dirs[i]) == 0, "%s", restore_text);
		restores_seen = 0;
		strcpy(b->dir, dirs[i]);
		metad_bed_start(b);
		b->session.session = b->state_ms = 0;
		for (uint32_t server = 1; server <= 3; server += 2) { /* 3: one that the backup does not know */
			before = b->servers[server];
			ck_assert_int_eq(bed_register(b, server, b->options.secret), i == 1 ? ERR_GENERATION : 0);
			reply = (const Craton__RegisterReply *)b->reply;
			if (i == 1) {
				ck_assert_ptr_nonnull(strstr(reply->error, "--restores 1"));
				continue;
			}
			ck_assert_uint_gt(b->servers[server].generation, before.generation);
			ck_assert_uint_gt(b->servers[server].generation, (i ? 2ull : 1ull) << 32);
			ck_assert(!bed_beat(b, server, 0));
		}
		metad_bed_stop(b);
	}
	metad_bed_start(b);
	metad_bed_close(b);
	mem_free(file);
}
END_TEST

/* It would use up the restores that a cluster has, for good. */
START_TEST(test_a_number_that_is_a_slip)
{
	prepare(37);
	ck_assert_int_eq(io_mkdir(b->server_io, "/new", 0755), 0);
	restores_seen = RESTORE_PLAUSIBLE + 1;
	ck_assert_int_eq(restore("/new"), ERR_RANGE);
	ck_assert_ptr_nonnull(strstr(restore_text, "add --force if it is meant"));
	restores_seen = RESTORE_PLAUSIBLE;
	ck_assert_msg(restore("/new") == 0, "%s", restore_text);
	restores_seen = 254;
	restore_forced = true;
	ck_assert_int_eq(io_mkdir(b->server_io, "/forced", 0755), 0);
	ck_assert_msg(restore("/forced") == 0, "%s", restore_text);
	restores_seen = 0;
	restore_forced = false;
	metad_bed_start(b);
	metad_bed_close(b);
	mem_free(file);
}
END_TEST

/* What a disk found out before it heard of the restore is of another history. */
START_TEST(test_results_of_disks_that_do_not_know)
{
	const Craton__AllocateReply *reply;
	uint64_t inode, epoch, block;
	uint32_t disk, incarnation;

	file = mem_alloc(FILE_MAX);
	metad_bed_open_sim(b, 38);
	bed_register_all(b, 6);
	ck_assert_int_eq(bed_open_file(b, "f", false, &inode, &epoch), 0);
	ck_assert_int_eq(bed_allocate(b, inode, epoch, 1), 0);
	reply = (const Craton__AllocateReply *)b->reply;
	block = reply->blocks[0]->block;
	disk = reply->blocks[0]->targets[0]->disk;
	incarnation = reply->blocks[0]->targets[0]->incarnation;
	{
		Craton__AllocateReply *kept = (Craton__AllocateReply *)b->reply;

		b->reply = NULL;
		ck_assert_int_eq(bed_commit_one(b, inode, epoch, kept->blocks[0], 0, true, 0), 0);
		protobuf_c_message_free_unpacked(&kept->base, NULL);
	}
	whole();
	metad_bed_stop(b);
	ck_assert_int_eq(io_write_file(b->server_io, "/backup", file, file_len, 0600), 0);
	ck_assert_int_eq(io_mkdir(b->server_io, "/new", 0755), 0);
	ck_assert_msg(restore("/new") == 0, "%s", restore_text);
	strcpy(b->dir, "/new");
	metad_bed_start(b);
	b->session.session = b->state_ms = 0;
	bed_report(b, disk, block, 0, incarnation);
	bed_tell_damaged(b, disk, block, 0, incarnation);
	ck_assert_uint_eq(bed_status(b)->repair->damaged, 0);
	ck_assert_int_eq(bed_register(b, disk, b->options.secret), 0);
	bed_tell_damaged(b, disk, block, 0, incarnation);
	ck_assert_uint_eq(bed_status(b)->repair->damaged, 1);
	metad_bed_close(b);
	mem_free(file);
}
END_TEST

/* Each write fails in turn: metad does not start on what is left, and a second restore into an empty directory does. */
START_TEST(test_restore_cut_short)
{
	uint32_t n;

	prepare(34);
	for (n = 1;; n++) {
		char dir[32];
		struct err err = {0};
		int code;

		snprintf(dir, sizeof(dir), "/try-%u", n);
		ck_assert_int_eq(io_mkdir(b->server_io, dir, 0755), 0);
		sim_fault_after(b->server_io, SIM_FAULT_WRITE, n, ERR_IO);
		code = restore(dir);
		sim_fault_after(b->server_io, SIM_FAULT_WRITE, 0, 0);
		strcpy(b->dir, dir);
		if (code == 0)
			break;
		ck_assert_uint_gt(strlen(restore_text), 10);
		code = metad_bed_try_start(b, &err);
		if (code == 0) { /* before anything was written there: an empty directory is a new store, as ever */
			ck_assert_uint_eq(n, 1);
			ck_assert_int_eq(count_dirs("before", 20), 0);
			metad_bed_stop(b);
			continue;
		}
		ck_assert_msg(code == ERR_INCOMPLETE, "write %u: %s", n, err.text);
	}
	ck_assert_uint_gt(n, 3);
	metad_bed_start(b);
	ck_assert_uint_eq(count_dirs("before", 20), 20);
	metad_bed_close(b);
	mem_free(file);
}
END_TEST

/* ---- losing power ---- */

static bool has_stopped;

static void on_stopped(void *ctx)
{
	(void)ctx;
	has_stopped = true;
	sim_host_crash(b->server_io);
}

static bool has_ended_or_stopped(void *ctx)
{
	return has_stopped || has_ended(ctx);
}

/* A restore; power fails at its nth sync, or if there are fewer, when it has ended (true). */
static bool restore_until(const char *dir, uint64_t nth)
{
	has_stopped = false;
	sim_stop_at_sync(b->server_io, nth, on_stopped, NULL);
	if (!sim_try(b->sim, begin_restore, &dir))
		on_stopped(NULL);
	ck_assert(sim_run(b->sim, has_ended_or_stopped, NULL, sim_now_ns(b->sim) + 60ull * 1000000000));
	sim_stop_at_sync(b->server_io, 0, NULL, NULL);
	if (!has_stopped)
		sim_host_crash(b->server_io);
	sim_host_restart(b->server_io);
	return !has_stopped;
}

static void crash(void)
{
	sim_set_loss(b->server_io, SIM_LOSS_ALL);
	sim_host_crash(b->server_io);
	sim_host_restart(b->server_io);
}

/* Is the directory that of a restored metad? All of it then, and it knows where it comes from. */
static bool starts_restored(void)
{
	struct err err = {0};
	int code = try_start_restored(&err);
	uint32_t found;

	if (code == ERR_INCOMPLETE)
		return false;
	ck_assert_msg(code == 0, "%s: %s", b->dir, err.text);
	found = count_dirs("before", 20);
	ck_assert_msg(found == 20 && bed_has_reason(bed_status(b), "restored"), "%s: metad started with %u of 20 names",
		b->dir, found);
	return true;
}

/*
 * Power fails at each sync of a restore: metad does not start on what is left, or has all of it, also after the next loss of power.
 * The two syncs of `restoring` itself are passed by: before them nothing was written, and an empty directory is a new store.
 */
static void check_restore_at_its_syncs(void)
{
	static const enum sim_loss losses[] = {SIM_LOSS_ALL, SIM_LOSS_NONE, SIM_LOSS_ANY, SIM_LOSS_TORN, SIM_LOSS_ANY,
		SIM_LOSS_TORN, SIM_LOSS_ANY, SIM_LOSS_TORN, SIM_LOSS_ANY, SIM_LOSS_TORN};
	uint32_t started = 0, tries = 0;
	bool ended = false;

	prepare(35);
	for (uint64_t n = 3; !ended; n++) {
		for (size_t i = 0; i < ARRAY_COUNT(losses); i++) {
			bool again;

			snprintf(b->dir, sizeof(b->dir), "/try-%u", ++tries);
			ck_assert_int_eq(io_mkdir(b->server_io, b->dir, 0755), 0);
			ck_assert_int_eq(io_sync_dir(b->server_io, "/"), 0);
			sim_set_loss(b->server_io, losses[i]);
			ended = restore_until(b->dir, n);
			again = starts_restored();
			ck_assert_msg(again || !ended, "a restore that had ended is not there after a loss of power");
			if (again) {
				started++;
				crash();
				ck_assert(starts_restored());
				crash();
			}
		}
	}
	ck_assert_uint_gt(started, ARRAY_COUNT(losses));
	ck_assert_uint_gt(tries, 8 * ARRAY_COUNT(losses));
	ck_assert(starts_restored());
	metad_bed_close(b);
	mem_free(file);
}

START_TEST(test_restore_at_its_syncs)
{
	check_restore_at_its_syncs();
}
END_TEST

START_TEST(test_restore_as_group_at_its_syncs)
{
	restored_replica = FOUNDING_REPLICA;
	check_restore_at_its_syncs();
}
END_TEST

/* ---- groups ---- */

static uint64_t next_number(void)
{
	struct ledger_view view;

	ledger_view(b->md->ledger, &view);
	ck_assert_uint_eq(view.count, 1);
	return view.next_id;
}

/* Neither of members nor of anything else, whatever the backup does not know of. */
START_TEST(test_no_number_is_given_again)
{
	static const uint32_t seen[] = {0, 1, 7};

	prepare(41);
	for (size_t i = 0; i < ARRAY_COUNT(seen); i++) {
		snprintf(b->dir, sizeof(b->dir), "/group-%zu", i);
		ck_assert_int_eq(io_mkdir(b->server_io, b->dir, 0755), 0);
		restored_replica = FOUNDING_REPLICA;
		restores_seen = seen[i];
		ck_assert_msg(restore(b->dir) == 0, "%s", restore_text);
		start_restored();
		ck_assert_uint_eq(next_number(), (seen[i] + 1) * FOUNDING_NUMBERS + 1);
		metad_bed_stop(b);
	}
	restored_replica = restores_seen = 0;
	strcpy(b->dir, "/one");
	ck_assert_int_eq(io_mkdir(b->server_io, b->dir, 0755), 0);
	ck_assert_msg(restore(b->dir) == 0, "%s", restore_text);
	start_restored();
	metad_bed_stop(b);
	b->options.group = (struct metad_group){.id = FOUNDING_REPLICA, .found = true, .members = {.count = 1, .addrs = {b->options.listen}}};
	metad_bed_start(b);
	ck_assert_uint_eq(next_number(), FOUNDING_NUMBERS + 1);
	metad_bed_close(b);
	mem_free(file);
}
END_TEST

UNIT_MAIN("metad_backup", test_of_one_moment, test_one_that_nobody_ends, test_restore, test_restore_as_group, test_disks_hear_of_it_first,
	test_restore_beside_another, test_a_number_that_is_a_slip, test_results_of_disks_that_do_not_know, test_restore_cut_short, test_restore_at_its_syncs,
	test_restore_as_group_at_its_syncs, test_no_number_is_given_again)
