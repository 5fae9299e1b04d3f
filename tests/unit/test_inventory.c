/* SPDX-License-Identifier: Apache-2.0 */
/* What a chunk server says of the copies that it has, to a real metad: orphans go by orders, what is missing is told, all of it. */
#include "chunkd/inventory.h"

#include "chunkd/daemon.h"
#include "chunkd/drops.h"
#include "metad/core.h"
#include "tests/lib/chunkd_bed.h"
#include "tests/lib/unit.h"

/* Five more servers, for blocks that are to lie on distinct ones. */
static void bed_others(void)
{
	for (uint32_t i = 2; i <= 6; i++) {
		ck_assert_int_eq(bed_register(&b->m, i, b->m.options.secret), 0);
		ck_assert(!bed_beat(&b->m, i, 0));
	}
}

/* Is the copy on the disk? Time may have passed. */
static bool is_there(uint64_t block, uint32_t incarnation)
{
	Craton__Copy copy = copy_of(block);
	struct token t;
	int code;

	bed_beat(&b->m, 1, 0); /* what time it is */
	t = good_token(block, TOKEN_WRITE);
	t.incarnation = copy.incarnation = incarnation;
	code = receipt_of(&t, copy);
	ck_assert(code == 0 || code == ERR_NOT_SEALED);
	return code == 0;
}

static void seal_bytes(uint64_t block, uint32_t incarnation, uint32_t bytes)
{
	Craton__Copy copy = copy_of(block);
	struct token t;

	bed_beat(&b->m, 1, 0);
	t = good_token(block, TOKEN_WRITE);
	t.incarnation = copy.incarnation = incarnation;
	ck_assert_int_eq(put_one(&t, copy, bytes, true), 0);
}

static void seal_one(uint64_t block, uint32_t incarnation)
{
	seal_bytes(block, incarnation, DATA_BYTES);
}

/* Copies that nothing names: those below the floor go, when the order has come; above it they stay, however long it takes. */
START_TEST(test_orphans_go_below_the_floor_only)
{
	enum { MINUTE = 60 * 1000, ABOVE = 1000 * 1000 };
	uint64_t inode, epoch;

	bed_open(1);
	bed_others();
	ck_assert_int_eq(bed_open_file(&b->m, "f", false, &inode, &epoch), 0);
	ck_assert_int_eq(bed_allocate(&b->m, inode, epoch, 1), 0); /* a range of ids is reserved */
	seal_one(77, 0);
	seal_one(77, 3);
	seal_one(ABOVE, 0);
	bed_gc_start();
	metad_bed_sleep(&b->m, 30 * MINUTE);
	bed_gc_start();
	metad_bed_sleep(&b->m, 4 * MINUTE);
	ck_assert(is_there(77, 0) && is_there(77, 3));
	metad_bed_sleep(&b->m, 3 * MINUTE); /* the floor passes the range, an inventory finds them, the grace runs */
	ck_assert_uint_gt(bed_gc_start()->floor, 77);
	ck_assert_uint_eq(bed_gc_start()->orphans_found, 2);
	ck_assert(is_there(77, 0) && is_there(77, 3));
	metad_bed_sleep(&b->m, 2 * MINUTE);
	ck_assert(!is_there(77, 0) && !is_there(77, 3));
	ck_assert_uint_eq(bed_gc_start()->copies_dropped, 2);
	ck_assert_uint_eq(bed_gc_start()->copies_waiting, 0);
	metad_bed_sleep(&b->m, 60 * MINUTE);
	ck_assert(is_there(ABOVE, 0));
	/* the same after a restart of both, from what is durable */
	metad_bed_restart(&b->m);
	stop_chunkd();
	start_chunkd((const char *)b->m.options.secret);
	b->m.done = false;
	wait_registered();
	bed_close();
}
END_TEST

static bool is_set(void *ctx)
{
	return *(bool *)ctx;
}

static void set(void *ctx)
{
	*(bool *)ctx = true;
}

/* A drop that a disk never finishes: metad hears at once that the server stops, and the stop ends when the drop does. */
START_TEST(test_goodbye_beside_a_drop_that_hangs)
{
	enum { MINUTE = 60 * 1000 };
	const uint64_t second_ns = 1000000000;
	uint64_t inode, epoch;
	bool stopped = false;
	char text[200];

	bed_open(4);
	bed_others();
	ck_assert_int_eq(bed_open_file(&b->m, "f", false, &inode, &epoch), 0);
	ck_assert_int_eq(bed_allocate(&b->m, inode, epoch, 1), 0); /* a range of ids is reserved */
	seal_one(77, 0);
	bed_gc_start();
	metad_bed_sleep(&b->m, 37 * MINUTE); /* the floor passes the range, an inventory finds it, the grace runs */
	sim_dir_stall(b->host, "/disk", 240 * second_ns);
	metad_bed_sleep(&b->m, 2 * MINUTE);
	ck_assert(drops_under_way(b->chunkd->drops));
	chunkd_stop(b->chunkd, set, &stopped);
	ck_assert(!sim_run(b->m.sim, is_set, &stopped, sim_now_ns(b->m.sim) + second_ns));
	ck_assert(!state_server_at(&b->m.md->state, state_disk_at(&b->m.md->state, b->disk)->server)->up);
	chunkd_waits_for(b->chunkd, text, sizeof(text));
	ck_assert_str_eq(text, "/disk does not end what it was given");
	ck_assert(sim_run(b->m.sim, is_set, &stopped, sim_now_ns(b->m.sim) + 200 * second_ns));
	start_chunkd((const char *)b->m.options.secret);
	b->m.done = false;
	wait_registered();
	ck_assert(!is_there(77, 0));
	bed_close();
}
END_TEST

/* Blocks `first` and behind, as rows: chunk 0 is to lie on the chunk server's disk, the others on those that the bed plays. */
static void commit_rows(uint64_t inode, uint64_t epoch, uint64_t first, uint32_t count, uint64_t *offset)
{
	enum { LENGTH = METAD_BED_MIB, WIDTH = 6 };
	Craton__CommitRequest req = CRATON__COMMIT_REQUEST__INIT;
	Craton__BlockCommit block[LIMIT_COMMIT_BLOCKS], *blocks[LIMIT_COMMIT_BLOCKS];
	Craton__ChunkReceipt receipts[LIMIT_COMMIT_BLOCKS][3], *tables[LIMIT_COMMIT_BLOCKS][3];
	uint8_t macs[LIMIT_COMMIT_BLOCKS][3][TOKEN_MAC_BYTES];
	static uint32_t crcs[WIDTH] = {1000, 0, 0, 0, 1004, 1005};
	static const uint32_t indices[3] = {0, 4, 5}; /* a block of one cell: one data chunk, two of parity */

	ck_assert_uint_le(count, LIMIT_COMMIT_BLOCKS);
	req.inode = inode;
	req.epoch = epoch;
	req.blocks = blocks;
	req.n_blocks = count;
	for (uint32_t n = 0; n < count; n++, *offset += LENGTH) {
		craton__block_commit__init(&block[n]);
		blocks[n] = &block[n];
		block[n].block = first + n;
		block[n].policy = EC_POLICY_DEFAULT;
		block[n].cell_bytes = METAD_BED_MIB;
		block[n].length = LENGTH;
		block[n].file_offset = *offset;
		block[n].chunk_crcs = crcs;
		block[n].n_chunk_crcs = WIDTH;
		block[n].receipts = tables[n];
		block[n].n_receipts = 3;
		for (uint32_t i = 0; i < 3; i++) {
			const struct state_disk *disk = state_disk_at(&b->m.md->state, i + 1);
			struct receipt r = {.block = first + n,
				.length = LENGTH,
				.generation = disk->generation,
				.disk = disk->id,
				.crc = crcs[indices[i]],
				.index = (uint8_t)indices[i]};

			receipt_mac(&r, metad__receipt_key(b->m.md, disk), macs[n][i]);
			craton__chunk_receipt__init(&receipts[n][i]);
			tables[n][i] = &receipts[n][i];
			receipts[n][i].index = r.index;
			receipts[n][i].disk = r.disk;
			receipts[n][i].generation = r.generation;
			receipts[n][i].mac = bed_bytes(macs[n][i], TOKEN_MAC_BYTES);
		}
	}
	ck_assert_int_eq(bed_call(&b->m, &rpc_metad_commit, &req.base), 0);
}

/* Of two copies of a chunk on one disk, one that a row names and one that nothing does, the order names the latter: that one goes. */
START_TEST(test_an_order_drops_one_incarnation)
{
	enum { MINUTE = 60 * 1000, STRAY = 3 };
	uint64_t inode, epoch, offset = 0;

	bed_open(1);
	bed_others();
	ck_assert_int_eq(bed_open_file(&b->m, "f", false, &inode, &epoch), 0);
	ck_assert_int_eq(bed_allocate(&b->m, inode, epoch, 1), 0);
	seal_one(10, 0);
	seal_one(10, STRAY);
	commit_rows(inode, epoch, 10, 1, &offset);
	metad_bed_sleep(&b->m, 37 * MINUTE);
	ck_assert_uint_eq(bed_gc_start()->orphans_found, 1);
	ck_assert(is_there(10, 0) && is_there(10, STRAY));
	metad_bed_sleep(&b->m, 3 * MINUTE);
	ck_assert(is_there(10, 0));
	ck_assert(!is_there(10, STRAY));
	ck_assert_uint_eq(bed_gc_start()->copies_dropped, 1);
	bed_close();
}
END_TEST

/* More than one request may name, in the range of ids that begins at 0: all of them are found in one inventory. */
START_TEST(test_all_that_is_missing_is_told)
{
	enum { MINUTE = 60 * 1000, LOST = 3 * STATE_COPIES };
	uint64_t inode, epoch, offset = 0;

	bed_open(1);
	bed_others();
	ck_assert_int_eq(bed_open_file(&b->m, "f", false, &inode, &epoch), 0);
	ck_assert_int_eq(bed_allocate(&b->m, inode, epoch, 1), 0);
	for (uint32_t n = 0; n < LOST; n += 48)
		commit_rows(inode, epoch, 10 + n, 48, &offset);
	metad_bed_sleep(&b->m, 37 * MINUTE);
	ck_assert_uint_gt(bed_gc_start()->floor, 10 + LOST);
	metad_bed_sleep(&b->m, 2 * MINUTE);
	ck_assert_uint_eq(bed_gc_start()->missing_found, LOST);
	bed_close();
}
END_TEST

/* The longest time between two of a series of events, as seen now and then. */
struct gaps {
	uint64_t last_ns, longest_ns;
	uint32_t count;
};

static void gaps_look(struct gaps *g, uint64_t at_ns)
{
	if (at_ns == g->last_ns)
		return;
	if (g->count++ && at_ns - g->last_ns > g->longest_ns)
		g->longest_ns = at_ns - g->last_ns;
	g->last_ns = at_ns;
}

/* Thousands of orders on disks so slow that they take many heartbeats: those are neither sent nor answered later for it. */
START_TEST(test_heartbeats_beside_thousands_of_drops)
{
	enum { MINUTE = 60 * 1000, COPIES = 2000, INCARNATIONS = 4, BYTES = 100, SLOW = 2000, LOOK_MS = 10 };
	struct gaps heard = {0}, answered = {0};
	uint64_t inode, epoch, beat_ns, dropped = 0, most = 0;
	uint32_t server;

	bed_open(1);
	bed_others();
	ck_assert_int_eq(bed_open_file(&b->m, "f", false, &inode, &epoch), 0);
	ck_assert_int_eq(bed_allocate(&b->m, inode, epoch, 1), 0);
	for (uint32_t n = 0; n < COPIES; n++)
		seal_bytes(10 + n / INCARNATIONS, n % INCARNATIONS, BYTES);
	metad_bed_sleep(&b->m, 37 * MINUTE);
	for (int i = 0; bed_gc_start()->orphans_found < COPIES; i++) {
		ck_assert_int_lt(i, 100);
		metad_bed_silence(&b->m, 1000);
	}
	ck_assert_uint_eq(b->m.md->gc.dropped, 0);
	sim_disk_slow(b->host, SLOW);
	sim_disk_slow(b->m.server_io, SLOW);
	server = state_disk_at(&b->m.md->state, b->disk)->server;
	beat_ns = metad__heartbeat_ms(b->m.md) * 1000000;
	for (int i = 0; dropped < COPIES; i++) {
		uint64_t now = b->m.md->gc.dropped;

		ck_assert_int_lt(i, 5 * MINUTE / LOOK_MS);
		if (now && dropped == 0) /* from the first ones on */
			heard = answered = (struct gaps){0};
		most = now - dropped > most ? now - dropped : most;
		dropped = now;
		gaps_look(&heard, b->m.md->servers[server].heard_ns);
		gaps_look(&answered, b->chunkd->state_at_ns);
		metad_bed_silence(&b->m, LOOK_MS);
	}
	ck_assert_uint_le(most, LIMIT_DROPS); /* at a time */
	ck_assert_uint_ge(heard.count, 5);
	ck_assert_uint_ge(answered.count, 5);
	ck_assert_uint_le(heard.longest_ns, beat_ns / 4 * 5);
	ck_assert_uint_le(answered.longest_ns, beat_ns / 4 * 5);
	bed_close();
}
END_TEST

/* ---- numbers ---- */

START_TEST(test_status_warns_before_numbers_end)
{
	struct state_meta *meta;

	bed_open(4);
	meta = &b->m.md->state.meta;
	meta->next_disk = LIMIT_DISKS / 8 * 7;
	ck_assert(!bed_has_reason(bed_status(&b->m), "numbers-scarce"));
	meta->next_disk++;
	ck_assert(bed_has_reason(bed_status(&b->m), "numbers-scarce"));
	meta->next_disk = 3;
	meta->next_server = STATE_SERVERS - 1;
	ck_assert(bed_has_reason(bed_status(&b->m), "numbers-scarce"));
	meta->next_server = 3;
	bed_close();
}
END_TEST

/* ---- asking in vain ---- */

static uint64_t requests(void)
{
	struct rpc_stats stats;

	rpc_server_get_stats(b->m.md->server, &stats);
	return stats.requests;
}

/* Heartbeats go on, and each says that there may be orders; the exchange comes to nothing for a reason of its own. */
START_TEST(test_exchanges_that_come_to_nothing)
{
	enum { SECONDS = 600, OTHERS = 60 };
	uint64_t before;

	bed_open(2);
	b->chunkd->disks[0]->sb.generation += 7; /* which its heartbeats do not show */
	metad_bed_silence(&b->m, 60 * 1000);
	before = requests();
	metad_bed_silence(&b->m, SECONDS * 1000);
	ck_assert(metad__drops_due(b->m.md, b->disk));
	ck_assert_uint_le(requests() - before, SECONDS * 11 / 10 + OTHERS);
	b->chunkd->disks[0]->sb.generation -= 7;
	metad_bed_silence(&b->m, 90 * 1000);
	ck_assert(!metad__drops_due(b->m.md, b->disk));
	bed_close();
}
END_TEST

static uint32_t refusals_said;

static void count_refusals(void *ctx, enum log_level level, const char *line)
{
	(void)ctx, (void)level;
	refusals_said += strstr(line, "-refused") && strstr(line, "times=");
}

START_TEST(test_a_refused_server_asks_ever_less)
{
	enum { HOUR = 3600 * 1000, MOST_S = 30 };
	uint64_t before;

	bed_open(3);
	metad_bed_stop(&b->m);
	strcpy(b->m.dir, "/other"); /* metadata that know nothing of the disk */
	ck_assert_int_eq(io_mkdir(b->m.server_io, b->m.dir, 0755), 0);
	b->m.log.write = count_refusals;
	metad_bed_start(&b->m);
	metad_bed_silence(&b->m, 60 * 1000);
	ck_assert_uint_eq(refusals_said, 1);
	before = requests();
	metad_bed_silence(&b->m, HOUR);
	ck_assert_uint_ge(requests() - before, HOUR / 1000 / MOST_S);
	ck_assert_uint_le(requests() - before, 3 * HOUR / 1000 / MOST_S);
	ck_assert_uint_le(refusals_said, 1 + HOUR / REPEATS_AGAIN_MS);
	ck_assert_uint_ge(refusals_said, 5);
	metad_bed_stop(&b->m);
	strcpy(b->m.dir, "/metad");
	metad_bed_start(&b->m);
	metad_bed_silence(&b->m, (MOST_S + 10) * 1000);
	ck_assert_uint_eq(state_disk_at(&b->m.md->state, b->disk)->generation, 2);
	ck_assert(state_disk_counts(&b->m.md->state, b->disk));
	bed_close();
}
END_TEST

UNIT_MAIN("inventory", test_orphans_go_below_the_floor_only, test_goodbye_beside_a_drop_that_hangs,
	test_an_order_drops_one_incarnation,
	test_all_that_is_missing_is_told, test_heartbeats_beside_thousands_of_drops,
	test_status_warns_before_numbers_end, test_exchanges_that_come_to_nothing, test_a_refused_server_asks_ever_less)
