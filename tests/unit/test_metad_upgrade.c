// SPDX-License-Identifier: Apache-2.0
/* A metad over the directory, or the backup, of an older build: raised where nothing is left to apply, refused where there is. */
#include "common/code/backup.h"
#include "common/kv/journal.h"
#include "metad/core.h"
#include "metad/restore.h"
#include "metad/state/state.h"
#include "tests/lib/metad_bed.h"
#include "tests/lib/unit.h"

enum { OLDER = 1, SMALL = 64 << 10 };

static struct metad_bed bed, *const b = &bed;
static uint16_t found; /* cluster version of the meta row */

static int lookup(const char *path)
{
	return bed_lookup_path(b, path, strlen(path));
}

static size_t older_row(struct slice row, uint8_t out[STATE_ROW_BYTES])
{
	struct state_meta meta;

	ck_assert_int_eq(state_meta_decode(row, &meta), 0);
	found = meta.version;
	meta.version = OLDER;
	return state_meta_encode(&meta, out);
}

/* ---- the directory ---- */

static int make_older(
	void *ctx, struct kv *kv, uint64_t index, struct slice data, struct journal_entry *entry, struct err *err)
{
	uint8_t value[STATE_ROW_BYTES];
	struct state_key key;
	struct slice row;

	(void)ctx, (void)index, (void)data, (void)entry, (void)err;
	state_key_table(&key, STATE_TABLE_META);
	ck_assert_int_eq(kv_get(kv, state_key_slice(&key), &row), 0);
	kv_put(kv, state_key_slice(&key), slice_of(value, older_row(row, value)));
	return 0;
}

static void on_fatal(void *ctx, int code, const char *text)
{
	(void)ctx;
	ck_abort_msg("%s: %s", err_name(code), text);
}

static void on_entry(struct journal_entry *entry, int code)
{
	(void)entry;
	ck_assert_int_eq(code, 0);
	metad_bed_set_done(b);
}

static void on_closed(void *ctx, int code)
{
	ck_assert_int_eq(code, 0);
	metad_bed_set_done(ctx);
}

/* The directory of the metad, which is stopped, is that of one of version OLDER, stopped cleanly. */
static void become_older(void)
{
	struct journal_options o = {.dir = b->dir,
		.backend = b->options.backend,
		.segment_bytes = b->options.log_segment_bytes,
		.entry_growth_bytes = 1 << 20,
		.apply = make_older,
		.on_fatal = on_fatal};
	struct journal_entry entry = {.append.data = slice_of("x", 1), .done = on_entry};
	struct journal *journal;
	struct err err;

	ck_assert_msg(journal_open(b->server_io, &o, &journal, &err) == 0, "%s", err.text);
	journal_submit(journal, &entry);
	metad_bed_wait(b);
	journal_close(journal, on_closed, b);
	metad_bed_wait(b);
}

static int skip(void *ctx, uint64_t index, struct slice data, struct err *err)
{
	(void)data, (void)err;
	*(uint64_t *)ctx = index;
	return 0;
}

static void on_appended(struct wal_append *append, int code)
{
	(void)append;
	ck_assert_int_eq(code, 0);
	metad_bed_set_done(b);
}

/* It was not stopped cleanly: its log has one entry more than its table. */
static void leave_entry(void)
{
	char *dir = mem_printf("%s/log", b->dir);
	struct wal_options o = {.dir = dir, .segment_bytes = b->options.log_segment_bytes, .on_fatal = on_fatal};
	struct state_entry header = {.cluster_version = OLDER, .time_ms = 1, .count = 1};
	static struct state_cmd tick = {.type = STATE_CMD_TICK};
	struct wal_append append = {.done = on_appended};
	uint64_t last = 0;
	uint8_t bytes[256];
	struct wcursor w;
	struct wal *wal;
	struct err err;

	wcursor_init(&w, bytes, sizeof(bytes));
	wcursor_zeros(&w, STATE_ENTRY_HEADER_BYTES);
	state_cmd_encode(&tick, &w);
	state_entry_encode(&header, bytes);
	append.data = slice_of(bytes, w.len);
	ck_assert_msg(wal_open(b->server_io, &o, 1, skip, &last, &wal, &err) == 0, "%s", err.text);
	wal_submit(wal, &append);
	metad_bed_wait(b);
	wal_close(wal, on_closed, b);
	metad_bed_wait(b);
	mem_free(dir);
}

START_TEST(test_stopped_cleanly)
{
	metad_bed_open_sim(b, 51);
	ck_assert_int_eq(bed_mkdir(b, "before"), 0);
	metad_bed_stop(b);
	become_older();
	metad_bed_start(b);
	ck_assert_int_eq(lookup("before"), 0);
	ck_assert_int_eq(bed_mkdir(b, "after"), 0);
	metad_bed_restart(b); /* from its own log */
	ck_assert_int_eq(lookup("after"), 0);
	metad_bed_stop(b);
	become_older();
	ck_assert_uint_eq(found, STATE_CLUSTER_VERSION);
	metad_bed_start(b);
	metad_bed_close(b);
}
END_TEST

START_TEST(test_crashed)
{
	struct err err = {0};

	metad_bed_open_sim(b, 52);
	ck_assert_int_eq(bed_mkdir(b, "before"), 0);
	metad_bed_stop(b);
	become_older();
	leave_entry();
	ck_assert_int_eq(metad_bed_try_start(b, &err), ERR_VERSION);
	ck_assert_msg(strstr(err.text, "start the build that wrote them once more, stop it cleanly"), "%s", err.text);
	metad_bed_close(b);
}
END_TEST

static bool is_ready(void *ctx)
{
	(void)ctx;
	return b->md->ready;
}

/* It becomes the first of a group at the start that raises it: a change that comes as soon as it is served is of the version that this build has. */
START_TEST(test_stopped_cleanly_becomes_a_group)
{
	metad_bed_open_sim(b, 53);
	ck_assert_int_eq(bed_mkdir(b, "before"), 0);
	metad_bed_stop(b);
	become_older();
	b->options.group = (struct metad_group){.id = 1, .found = true, .members.count = 1, .members.addrs = {b->options.listen}};
	metad_bed_start(b);
	ck_assert(sim_run(b->sim, is_ready, NULL, sim_now_ns(b->sim) + 60ull * 1000000000));
	ck_assert_uint_ge(b->md->state.meta.version, STATE_CLUSTER_OLDEST);
	ck_assert_int_eq(bed_mkdir(b, "after"), 0);
	metad_bed_restart(b);
	ck_assert(sim_run(b->sim, is_ready, NULL, sim_now_ns(b->sim) + 60ull * 1000000000));
	ck_assert_int_eq(lookup("before"), 0);
	ck_assert_int_eq(lookup("after"), 0);
	metad_bed_close(b);
}
END_TEST

/* ---- a backup ---- */

static int older_rows(void *ctx, struct slice key, struct slice value)
{
	uint8_t row[STATE_ROW_BYTES];

	if (key.data[0] == STATE_TABLE_META)
		value = slice_of(row, older_row(value, row));
	ck_assert(backup_writer_row(ctx, key, value));
	return 0;
}

static void append(uint8_t *file, size_t *len, const struct backup_writer *w)
{
	memcpy(file + *len, w->out, w->len);
	*len += w->len;
}

/* The same backup, as one of version OLDER; it has one section. */
static size_t older_backup(const uint8_t *file, uint8_t *out)
{
	static struct backup_check c;
	struct backup_writer w;
	struct err err = {0};
	size_t len, out_len = 0;

	ck_assert_int_eq(backup_check_header(&c, slice_of(file, BACKUP_HEADER_BYTES), &err), 0);
	backup_writer_init(&w, &c.header, mem_alloc(BACKUP_SECTION_BYTES));
	append(out, &out_len, &w);
	backup_writer_next(&w);
	ck_assert_int_eq(backup_section_size(file + BACKUP_HEADER_BYTES, &len), 0);
	ck_assert_int_eq(backup_check_section(&c, slice_of(file + BACKUP_HEADER_BYTES, len), older_rows, &w, &err), 0);
	backup_writer_seal(&w);
	append(out, &out_len, &w);
	backup_writer_next(&w);
	backup_writer_end(&w);
	append(out, &out_len, &w);
	mem_free(w.out);
	return out_len;
}

static size_t take_backup(uint8_t *file)
{
	Craton__BackupRequest req = CRATON__BACKUP_REQUEST__INIT;
	const Craton__BackupReply *reply;

	do {
		ck_assert_int_eq(bed_call(b, &rpc_metad_backup, &req.base), 0);
		reply = (const Craton__BackupReply *)b->reply;
		ck_assert_uint_le(req.offset + reply->data.len, SMALL);
		memcpy(file + req.offset, reply->data.data, reply->data.len);
		req.offset += reply->data.len;
		req.id = reply->id;
	} while (!reply->end);
	return req.offset;
}

static void on_restored(void *ctx, int code, const char *text)
{
	ck_assert_msg(code == 0, "%s", text);
	metad_bed_set_done(ctx);
}

START_TEST(test_of_a_backup)
{
	uint8_t *file = mem_alloc(SMALL), *older = mem_alloc(SMALL);

	metad_bed_open_sim(b, 53);
	ck_assert_int_eq(bed_mkdir(b, "before"), 0);
	(void)take_backup(file);
	ck_assert_int_eq(io_write_file(b->server_io, "/backup", older, older_backup(file, older), 0600), 0);
	metad_bed_stop(b);
	strcpy(b->dir, "/new");
	ck_assert_int_eq(io_mkdir(b->server_io, b->dir, 0755), 0);
	restore_start(b->server_io,
		&(struct restore_options){.dir = b->dir,
			.file = "/backup",
			.cluster = metad_bed_cluster,
			.backend = b->options.backend,
			.log_segment_bytes = b->options.log_segment_bytes,
			.done = on_restored,
			.ctx = b});
	metad_bed_wait(b);
	metad_bed_start(b);
	ck_assert_int_eq(lookup("before"), 0);
	b->session.session = 0;
	ck_assert_int_eq(bed_mkdir(b, "after"), 0);
	metad_bed_stop(b);
	become_older();
	ck_assert_uint_eq(found, STATE_CLUSTER_VERSION);
	metad_bed_start(b);
	metad_bed_close(b);
	mem_free(file);
	mem_free(older);
}
END_TEST

UNIT_MAIN("metad_upgrade", test_stopped_cleanly, test_stopped_cleanly_becomes_a_group, test_crashed, test_of_a_backup)
