// SPDX-License-Identifier: Apache-2.0
/*
 * The cluster version: what an older build wrote gives the rows that it gave there, or is refused with what to do. tests/golden/state-N.bin
 * is a log of version N, with every command that there was, and the rows that it gave: the number of entries (4), each with its length (4);
 * the number of rows (4), each with the lengths of key (4) and value (4). Such a file is never written again; a new version adds one:
 * CRATON_GOLDEN_WRITE=DIR writes that of the present one.
 */
#include "tests/lib/state_bed.h"
#include "tests/lib/unit.h"

enum { FILE_MAX = 256 << 10, BLOCK_BYTES = 16 * STATE_BED_MIB, COMMANDS = 256 };

static struct state_bed bed, *const b = &bed;
static bool applied[COMMANDS]; /* by number: it was applied, and not refused */

/* ---- a log with all commands ---- */

static void run(void)
{
	ck_assert_msg(state_bed_run(b) == 0, "command %u: %s", b->cmd.type, err_name(b->res.status));
	applied[b->cmd.type] = true;
}

static void copies(uint16_t type, uint32_t disk, uint64_t block, uint8_t index)
{
	b->cmd.type = type;
	b->cmd.copies.disk = disk;
	b->cmd.copies.generation = 1;
	b->cmd.copies.count = 1;
	b->cmd.copies.copies[0] = (struct state_copy){.block = block, .index = index};
	run();
}

/* A file of one block; `lost`: a chunk that its commit brings no receipt for, or none. */
static void file(const char *path, uint64_t block, uint8_t lost)
{
	uint64_t inode, epoch;

	ck_assert_int_eq(bed_create(b, path, 0), 0);
	inode = b->res.attr.inode;
	epoch = b->res.epoch;
	bed_commit(b, inode, epoch, true, BLOCK_BYTES);
	bed_drop_receipt(bed_block(b, block, 0, BLOCK_BYTES), lost);
	run();
}

static void gc(uint8_t table)
{
	b->cmd.type = STATE_CMD_GC;
	b->cmd.gc = (struct state_cmd_gc){.table = table, .before_ms = b->time_ms};
	run();
}

static void xattr(uint16_t type, const char *name)
{
	b->cmd.type = type;
	b->cmd.xattr = (struct state_cmd_xattr){.at = state_bed_path("a/f"), .name = slice_of(name, strlen(name)), .now_ns = ++b->now_ns};
	if (type == STATE_CMD_XATTR_SET)
		b->cmd.xattr.value = slice_of("value", 5);
	run();
}

static void names(void)
{
	ck_assert_int_eq(bed_mkdir(b, "a/b", true), 0);
	b->cmd.type = STATE_CMD_POLICY;
	b->cmd.policy = (struct state_cmd_policy){.at = state_bed_path("a/b"),
		.policy = {.id = EC_POLICY_DEFAULT, .cell_bytes = STATE_BED_MIB / 2, .chunk_bytes = STATE_BED_MIB}};
	run();
	ck_assert_int_eq(bed_create(b, "a/gone", 0), 0);
	b->cmd.type = STATE_CMD_ABORT;
	b->cmd.abort = (struct state_cmd_abort){.inode = b->res.attr.inode, .epoch = b->res.epoch};
	run();
	b->cmd.type = STATE_CMD_LINK;
	b->cmd.link = (struct state_cmd_link){.from = state_bed_path("a/f"), .to = state_bed_path("a/g"), .now_ns = ++b->now_ns};
	run();
	b->cmd.type = STATE_CMD_SYMLINK;
	b->cmd.symlink = (struct state_cmd_symlink){.at = state_bed_path("a/s"), .target = slice_of("f", 1), .uid = 3, .now_ns = ++b->now_ns};
	run();
	xattr(STATE_CMD_XATTR_SET, "user.one");
	xattr(STATE_CMD_XATTR_SET, "user.two");
	xattr(STATE_CMD_XATTR_REMOVE, "user.one");
	b->cmd.type = STATE_CMD_SETATTR;
	b->cmd.setattr = (struct state_cmd_setattr){.at = state_bed_path("a/f"), .mask = STATE_SET_MODE | STATE_SET_MTIME, .mode = 0600, .mtime_ns = 99, .now_ns = ++b->now_ns};
	run();
	ck_assert_int_eq(bed_rename(b, "a/g", "a/b/h", false), 0);
}

static void sessions(void)
{
	uint64_t session = bed_session(b), inode, epoch;
	static uint8_t tail[777];

	bed_as(b, session, 1, 1);
	b->cmd.type = STATE_CMD_OPEN_WRITE;
	b->cmd.create = (struct state_cmd_create){.at = state_bed_path("a/w"), .mode = 0644, .now_ns = ++b->now_ns};
	run();
	inode = b->res.attr.inode;
	epoch = b->res.epoch;
	bed_as(b, session, 2, 1);
	b->cmd.type = STATE_CMD_COMMIT_TAIL;
	b->cmd.commit = (struct state_cmd_commit){.inode = inode, .epoch = epoch, .size = sizeof(tail), .now_ns = ++b->now_ns, .tail = slice_of(tail, sizeof(tail))};
	run();
	bed_as(b, session, 3, 3); /* one that is refused is remembered, too */
	ck_assert_int_eq(bed_mkdir(b, "a", false), ERR_EXIST);
	b->cmd.type = STATE_CMD_SESSION_END;
	b->cmd.request = (struct state_request){0};
	b->cmd.session_end.session = session;
	run();
	(void)bed_session(b); /* one that stays */
}

static void garbage(uint64_t first)
{
	b->cmd.type = STATE_CMD_TRUNCATE;
	b->cmd.truncate = (struct state_cmd_truncate){.at = state_bed_path("a/cut"), .size = 0, .now_ns = ++b->now_ns};
	run();
	ck_assert_int_eq(bed_remove(b, "a/removed", false), 0);
	bed_release(b);
	b->time_ms += STATE_FLOOR_DELAY_MS;
	b->cmd.type = STATE_CMD_TICK;
	run();
	gc(STATE_TABLE_GC);
	gc(STATE_TABLE_GC_CUT);
	gc(STATE_TABLE_GC_BLOCK);
	gc(STATE_TABLE_BLOCK_GONE);
	copies(STATE_CMD_DROPPED, 1, first + 2, 0);
	copies(STATE_CMD_ORPHANS, 7, first + 7, 1);
}

static void intent(uint64_t block, uint8_t index, uint32_t disk, struct state_cmd_sealed *ret_sealed)
{
	ck_assert_int_eq(state_block_get(&b->s, block, &b->block), 0);
	b->cmd.type = STATE_CMD_INTENT;
	b->cmd.intent = (struct state_cmd_intent){.block = block, .index = index, .cause = STATE_CAUSE_MISSING, .disk = disk, .version = b->block.version};
	run();
	*ret_sealed = (struct state_cmd_sealed){.block = block, .version = b->block.version, .crc = b->block.chunks[index].crc,
		.receipt = {.index = index, .disk = disk, .incarnation = b->res.incarnation, .generation = 1}};
}

static void repair(uint64_t first)
{
	struct state_cmd_sealed sealed;

	copies(STATE_CMD_MISSING, 3, first, 2);
	b->cmd.type = STATE_CMD_DAMAGED;
	b->cmd.damaged = (struct state_cmd_damaged){.block = first, .index = 1, .disk = 2};
	run();
	intent(first, 2, 7, &sealed);
	b->cmd.type = STATE_CMD_LOCATION;
	b->cmd.sealed = sealed;
	run();
	intent(first + 1, 5, 8, &sealed);
	b->cmd.type = STATE_CMD_INTENT_END;
	b->cmd.intent_end = (struct state_cmd_intent_end){.block = sealed.block, .index = sealed.receipt.index, .incarnation = sealed.receipt.incarnation};
	run();
	intent(first + 1, 5, 9, &sealed); /* one that stays */
}

static void fleet(void)
{
	b->cmd.type = STATE_CMD_CONFIRM;
	b->cmd.confirm = (struct state_cmd_confirm){.disk = 1, .generation = 1};
	run();
	b->cmd.type = STATE_CMD_MAINTENANCE;
	b->cmd.maintenance = (struct state_cmd_maintenance){.server = 4, .for_ms = 3600 * 1000};
	run();
	b->cmd.type = STATE_CMD_SERVER_DOWN;
	b->cmd.server_down.server = 4;
	run();
	b->cmd.type = STATE_CMD_DISK_FAILED;
	b->cmd.disk_failed = (struct state_cmd_disk_failed){.disk = 6, .generation = 1, .error = slice_of("a write failed", 14)};
	run();
	b->cmd.type = STATE_CMD_TAKE_OUT;
	b->cmd.take_out.disk = 6;
	run();
	b->time_ms += STATE_DROPS_KEPT_MS;
	b->cmd.type = STATE_CMD_TOKEN_ROLL;
	memset(b->cmd.token_roll.salt, 5, STATE_SALT_BYTES);
	run();
	b->cmd.type = STATE_CMD_FORGET_DROPS;
	b->cmd.forget_drops = (struct state_cmd_forget_drops){.disk = 6};
	run();
}

static void restored(void)
{
	struct state_cmd_register *r = &b->cmd.register_;

	b->cmd.type = STATE_CMD_RESTORED;
	memset(b->cmd.restored.salt, 7, STATE_SALT_BYTES);
	b->cmd.restored.seen = 2;
	run();
	b->cmd.type = STATE_CMD_REGISTER;
	memset(r, 0, sizeof(*r));
	r->uuid.bytes[0] = 1;
	r->name = r->domain = slice_of("again", 5);
	r->address = slice_of("127.0.0.1:2", 11);
	r->version = slice_of("1", 1);
	r->disk_count = 1;
	r->disks[0] = (struct state_register_disk){.uuid.bytes[0] = 101, .disk = 1, .generation = 1, .capacity_bytes = 1ull << 40, .storage_class = 1, .path = slice_of("/d", 2)};
	run();
	r->disks[0].generation = b->res.disks[0].generation;
	r->disks[0].failed = true;
	b->cmd.type = STATE_CMD_REGISTER;
	run();
}

/* What garbage collection would take away is there at the end, too. */
static void leave(void)
{
	ck_assert_int_eq(bed_remove(b, "a/left", false), 0);
	ck_assert_int_eq(bed_rename(b, "a/late", "a/s", false), 0);
	b->cmd.type = STATE_CMD_TRUNCATE;
	b->cmd.truncate = (struct state_cmd_truncate){.at = state_bed_path("a/shorter"), .size = 5 * STATE_BED_MIB, .now_ns = ++b->now_ns};
	run();
	ck_assert_int_eq(bed_create(b, "a/hidden", BED_HIDDEN), 0);
}

static void everything(void)
{
	uint64_t first;

	state_bed_open(b);
	applied[STATE_CMD_FORMAT] = true;
	b->cmd.type = STATE_CMD_RAISE;
	b->cmd.raise.version = STATE_CLUSTER_VERSION;
	run();
	bed_disks(b, STATE_BED_DISKS, 1);
	b->cmd.type = STATE_CMD_CONFIG_SET;
	b->cmd.config_set = (struct state_cmd_config_set){.name = slice_of("gc.grace", 8), .value = 600 * 1000};
	run();
	first = bed_reserve(b, 16);
	ck_assert_int_eq(bed_mkdir(b, "a", false), 0);
	file("a/f", first, LIMIT_WIDTH);
	file("a/late", first + 1, 5);
	file("a/removed", first + 2, LIMIT_WIDTH);
	file("a/cut", first + 3, LIMIT_WIDTH);
	file("a/left", first + 4, LIMIT_WIDTH);
	file("a/shorter", first + 5, LIMIT_WIDTH);
	names();
	sessions();
	garbage(first);
	repair(first);
	fleet();
	restored();
	leave();
	/* by helpers of the bed, which say when one is refused */
	applied[STATE_CMD_MKDIR] = applied[STATE_CMD_CREATE] = applied[STATE_CMD_REMOVE] = applied[STATE_CMD_RENAME] =
		applied[STATE_CMD_RESERVE] = applied[STATE_CMD_RELEASE] = applied[STATE_CMD_SESSION_OPEN] = true;
}

static bool is_command(uint16_t type)
{
	uint8_t bytes[STATE_CMD_HEADER_BYTES] = {(uint8_t)type, (uint8_t)(type >> 8)};
	struct rcursor r;

	rcursor_init(&r, bytes, sizeof(bytes));
	return state_cmd_decode(&r, &b->cmd) != ERR_VERSION;
}

/* ---- files ---- */

static size_t make_file(uint8_t *out)
{
	struct kv_scan scan;
	struct wcursor w, count;
	uint32_t rows = 0;
	size_t at;

	wcursor_init(&w, out, FILE_MAX);
	wcursor_u32(&w, (uint32_t)b->log_count);
	for (size_t i = 0; i < b->log_count; i++) {
		wcursor_u32(&w, (uint32_t)b->log[i].len);
		wcursor_bytes(&w, b->log[i].data, b->log[i].len);
	}
	at = w.len;
	wcursor_zeros(&w, 4);
	state_bed_settle(b->kv); /* with the rows that follow from others */
	for (kv_seek(b->kv, &scan, slice_of(NULL, 0)); kv_scan_valid(&scan); kv_scan_next(&scan), rows++) {
		wcursor_u32(&w, (uint32_t)scan.key.len);
		wcursor_u32(&w, (uint32_t)scan.value.len);
		wcursor_bytes(&w, scan.key.data, scan.key.len);
		wcursor_bytes(&w, scan.value.data, scan.value.len);
	}
	kv_scan_end(&scan);
	wcursor_init(&count, out + at, 4);
	wcursor_u32(&count, rows);
	ck_assert(!w.failed);
	return w.len;
}

static size_t read_file(uint32_t version, uint8_t *out)
{
	const char *srcdir = getenv("srcdir");
	char path[600];
	size_t len;
	FILE *f;

	snprintf(path, sizeof(path), "%s/tests/golden/state-%u.bin", srcdir ? srcdir : ".", version);
	f = fopen(path, "r");
	ck_assert_msg(f != NULL, "%s is missing", path);
	len = fread(out, 1, FILE_MAX, f);
	ck_assert_uint_gt(len, 8);
	ck_assert_int_eq(fclose(f), 0);
	return len;
}

/* What this build makes of commands is what the first build of this version made of them. */
START_TEST(test_this_version_is_what_it_was)
{
	const char *out = getenv("CRATON_GOLDEN_WRITE");
	uint8_t *made = mem_alloc(FILE_MAX), *gold = mem_alloc(FILE_MAX);
	char path[600];
	size_t len;
	FILE *f;

	everything();
	len = make_file(made);
	for (uint16_t type = 1; type < COMMANDS; type++)
		ck_assert_msg(!is_command(type) || applied[type], "command %u is not in the golden log", type);
	if (out) {
		snprintf(path, sizeof(path), "%s/state-%u.bin", out, STATE_CLUSTER_VERSION);
		f = fopen(path, "w");
		ck_assert_msg(f && fwrite(made, 1, len, f) == len && fclose(f) == 0, "%s", path);
	} else {
		ck_assert_uint_eq(read_file(STATE_CLUSTER_VERSION, gold), len);
		ck_assert_msg(memcmp(made, gold, len) == 0,
			"commands or rows of cluster version %u have changed: give the change a version of its own (metad/state/cmd.h)",
			STATE_CLUSTER_VERSION);
	}
	state_bed_close(b);
	mem_free(made);
	mem_free(gold);
}
END_TEST

/* The rows of a golden file into a table; each one as `kv` has it, if it is filled already. */
static void take_rows(struct rcursor *r, struct kv *kv, bool filled)
{
	uint32_t rows = rcursor_u32(r), found = 0;
	struct kv_scan scan;
	struct slice value;

	for (uint32_t i = 0; i < rows; i++) {
		uint32_t key_len = rcursor_u32(r), value_len = rcursor_u32(r);
		struct slice key = rcursor_slice(r, key_len), want = rcursor_slice(r, value_len);

		ck_assert(!r->failed);
		if (!filled) {
			if (key.data[0] != state_reverse.target) /* they follow from the others */
				kv_put(kv, key, want);
			continue;
		}
		ck_assert_int_eq(kv_get(kv, key, &value), 0);
		ck_assert_msg(value.len == want.len && memcmp(value.data, want.data, want.len) == 0, "row %u, of table %02x, differs",
			i, key.data[0]);
	}
	ck_assert(rcursor_done(r));
	if (!filled) {
		kv_applied(kv, ++b->index);
		state_bed_settle(kv);
	}
	for (kv_seek(kv, &scan, slice_of(NULL, 0)); kv_scan_valid(&scan); kv_scan_next(&scan))
		found++;
	kv_scan_end(&scan);
	ck_assert_uint_eq(found, rows);
}

static void take_log(struct rcursor *r, struct state *s)
{
	uint32_t entries = rcursor_u32(r);
	struct err err = {0};

	for (uint32_t i = 0; i < entries; i++) {
		struct slice entry = rcursor_slice(r, rcursor_u32(r));

		ck_assert(!r->failed);
		ck_assert_msg(state_apply(s, entry, NULL, NULL, &err) == 0, "entry %u: %s", i, err.text);
	}
}

/* A state made of rows works: what was committed can be read, and new things are made, at this build's version. */
static void works(uint32_t version)
{
	ck_assert_int_eq(state_open(&b->s, b->kv), 0);
	ck_assert_uint_eq(b->s.meta.version, version);
	b->version = (uint16_t)version;
	b->time_ms = b->s.meta.time_ms;
	b->cmd.request = (struct state_request){0};
	b->cmd.type = STATE_CMD_RAISE;
	b->cmd.raise.version = STATE_CLUSTER_VERSION;
	run();
	b->version = STATE_CLUSTER_VERSION;
	ck_assert_uint_eq(b->s.meta.version, STATE_CLUSTER_VERSION);
	ck_assert_int_gt(bed_lookup(b, "a/f"), 0);
	ck_assert_int_eq(state_policy_get(&b->s, &b->inode, &b->inode.policy, &(bool){0}), 0);
	ck_assert_uint_eq(b->inode.size, BLOCK_BYTES);
	ck_assert_int_gt(bed_lookup(b, "a/b/h"), 0);
	ck_assert_int_eq(bed_create(b, "a/new", 0), 0);
	ck_assert_int_eq(bed_remove(b, "a/f", false), 0);
	ck_assert_int_eq(state_failure(&b->s, NULL), 0);
}

START_TEST(test_every_version_is_read)
{
	uint8_t *gold = mem_alloc(FILE_MAX);

	for (uint32_t version = STATE_CLUSTER_OLDEST; version <= STATE_CLUSTER_VERSION; version++) {
		size_t len = read_file(version, gold);
		struct rcursor r;

		memset(b, 0, sizeof(*b));
		b->sim = sim_new(&(struct sim_options){.seed = 1});
		b->io = sim_host_add(b->sim, "metad", 64 * STATE_BED_MIB);
		rcursor_init(&r, gold, len);
		b->kv = state_bed_kv(b->io, "/log");
		ck_assert_int_eq(state_open(&b->s, b->kv), 0);
		take_log(&r, &b->s);
		kv_applied(b->kv, ++b->index);
		state_bed_settle(b->kv);
		take_rows(&r, b->kv, true);
		state_close(&b->s);
		works(version); /* with the rows of its log */
		state_close(&b->s);
		kv_abandon(b->kv);

		rcursor_init(&r, gold, len);
		for (uint32_t n = rcursor_u32(&r); n; n--)
			(void)rcursor_slice(&r, rcursor_u32(&r));
		b->kv = state_bed_kv(b->io, "/rows");
		take_rows(&r, b->kv, false);
		works(version);
		state_close(&b->s);
		kv_abandon(b->kv);
		for (size_t i = 0; i < b->log_count; i++)
			mem_free((void *)(uintptr_t)b->log[i].data);
		sim_free(b->sim);
	}
	mem_free(gold);
}
END_TEST

/* ---- what is refused ---- */

static int apply(uint16_t version, uint16_t type, struct err *err)
{
	struct state_entry entry = {.cluster_version = version, .time_ms = b->time_ms, .count = 1};
	uint8_t bytes[256];
	struct wcursor w;

	b->cmd.type = type;
	wcursor_init(&w, bytes, sizeof(bytes));
	wcursor_zeros(&w, STATE_ENTRY_HEADER_BYTES);
	state_entry_encode(&entry, bytes);
	state_cmd_encode(&b->cmd, &w);
	ck_assert(!w.failed);
	return state_apply(&b->s, slice_of(bytes, w.len), NULL, NULL, err);
}

static void forget_log(void)
{
	for (size_t i = 0; i < b->log_count; i++)
		mem_free((void *)(uintptr_t)b->log[i].data);
	b->log_count = 0;
}

/* The meta row says that an older build wrote this state. */
static void make_older(uint16_t version)
{
	uint8_t value[STATE_ROW_BYTES];
	struct state_meta meta = b->s.meta;
	struct state_key key;

	meta.version = version;
	state_key_table(&key, STATE_TABLE_META);
	kv_put(b->kv, state_key_slice(&key), slice_of(value, state_meta_encode(&meta, value)));
	state_close(&b->s);
	ck_assert_int_eq(state_open(&b->s, b->kv), version > STATE_CLUSTER_VERSION ? ERR_VERSION : 0);
	forget_log();
}

/* The whole of what builds from before the gate ask of the meta row, but for its length: they decode row versions 1 and 2. */
static bool opened_before_the_gate(void)
{
	struct state_key key;
	struct slice row;

	state_key_table(&key, STATE_TABLE_META);
	ck_assert_int_eq(kv_get(b->kv, state_key_slice(&key), &row), 0);
	return row.data[0] == 1 || row.data[0] == 2;
}

static void close_bed(void)
{
	state_close(&b->s);
	kv_abandon(b->kv);
	forget_log();
	sim_free(b->sim);
}

START_TEST(test_entries_of_before_the_gate)
{
	struct err err = {0};

	state_bed_open(b);
	ck_assert(!opened_before_the_gate());
	make_older(1);
	ck_assert(opened_before_the_gate());
	ck_assert_int_eq(apply(1, STATE_CMD_TICK, &err), ERR_VERSION);
	ck_assert_ptr_nonnull(strstr(err.text, "start the build that wrote them once more, stop it cleanly"));
	ck_assert_int_eq(apply(STATE_CLUSTER_VERSION, STATE_CMD_TICK, &err), ERR_VERSION); /* nobody has raised it */
	b->cmd.raise.version = STATE_CLUSTER_VERSION;
	ck_assert_int_eq(apply(1, STATE_CMD_RAISE, &err), 0);
	ck_assert_uint_eq(b->s.meta.version, STATE_CLUSTER_VERSION);
	ck_assert_int_eq(apply(STATE_CLUSTER_VERSION, STATE_CMD_TICK, &err), 0);
	state_close(&b->s);
	ck_assert_int_eq(state_open(&b->s, b->kv), 0);
	ck_assert_uint_eq(b->s.meta.version, STATE_CLUSTER_VERSION);
	ck_assert(!opened_before_the_gate());
	/* the older build again, from a table of before the raise: what it acknowledged, it decided by other rules */
	ck_assert_int_eq(apply(1, STATE_CMD_TICK, &err), ERR_VERSION);
	ck_assert_ptr_nonnull(strstr(err.text, "an older build has written to this log since"));
	close_bed();
}
END_TEST

START_TEST(test_a_log_of_before_the_gate)
{
	struct err err = {0};

	memset(b, 0, sizeof(*b));
	b->sim = sim_new(&(struct sim_options){.seed = 1});
	b->io = sim_host_add(b->sim, "metad", 64 * STATE_BED_MIB);
	b->kv = state_bed_kv(b->io, "/kv");
	ck_assert_int_eq(state_open(&b->s, b->kv), 0);
	b->cmd.format = (struct state_cmd_format){
		.policy = {.id = EC_POLICY_DEFAULT, .cell_bytes = STATE_BED_MIB, .chunk_bytes = 4 * STATE_BED_MIB}};
	ck_assert_int_eq(apply(1, STATE_CMD_FORMAT, &err), ERR_VERSION);
	ck_assert_ptr_nonnull(strstr(err.text, "older build"));
	close_bed();
}
END_TEST

START_TEST(test_newer_ones)
{
	uint8_t value[STATE_ROW_BYTES];
	struct err err = {0};
	struct state_key key;

	state_bed_open(b);
	b->cmd.raise.version = 1; /* never down */
	ck_assert_int_eq(apply(STATE_CLUSTER_VERSION, STATE_CMD_RAISE, &err), 0);
	ck_assert_uint_eq(b->s.meta.version, STATE_CLUSTER_VERSION);
	ck_assert_int_eq(apply(STATE_CLUSTER_VERSION + 1, STATE_CMD_TICK, &err), ERR_VERSION);
	ck_assert_ptr_nonnull(strstr(err.text, "newer binary"));
	b->cmd.raise.version = STATE_CLUSTER_VERSION + 1;
	ck_assert_int_eq(apply(STATE_CLUSTER_VERSION, STATE_CMD_RAISE, &err), ERR_VERSION);
	ck_assert_ptr_nonnull(strstr(err.text, "newer binary"));
	close_bed();

	state_bed_open(b);
	make_older(STATE_CLUSTER_VERSION + 1);
	ck_assert_ptr_nonnull(strstr(b->s.fault.text, "newer binary"));
	close_bed();

	/* one whose meta row has fields that are not known here */
	state_bed_open(b);
	state_meta_encode(&b->s.meta, value);
	value[0]++;
	state_key_table(&key, STATE_TABLE_META);
	kv_put(b->kv, state_key_slice(&key), slice_of(value, 1));
	state_close(&b->s);
	ck_assert_int_eq(state_open(&b->s, b->kv), ERR_VERSION);
	ck_assert_ptr_nonnull(strstr(b->s.fault.text, "newer binary"));
	close_bed();
}
END_TEST

UNIT_MAIN("state_golden", test_this_version_is_what_it_was, test_every_version_is_read, test_entries_of_before_the_gate,
	test_a_log_of_before_the_gate, test_newer_ones)
