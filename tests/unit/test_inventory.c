/* SPDX-License-Identifier: Apache-2.0 */
/* What a chunk server says of the copies that it has, to a real metad: orphans go by orders, what is missing is told, all of it. */
#include "chunkd/inventory.h"

#include "chunkd/daemon.h"
#include "metad/core.h"
#include "tests/lib/chunkd_bed.h"
#include "tests/lib/unit.h"

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
	for (uint32_t i = 2; i <= 6; i++)
		ck_assert_int_eq(bed_register(&b->m, i, b->m.options.secret), 0);
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

/* More than one request may name, in the range of ids that begins at 0: all of them are found in one inventory. */
START_TEST(test_all_that_is_missing_is_told)
{
	enum { MINUTE = 60 * 1000, LOST = 3 * STATE_COPIES };
	uint64_t inode, epoch, offset = 0;

	bed_open(1);
	for (uint32_t i = 2; i <= 6; i++)
		ck_assert_int_eq(bed_register(&b->m, i, b->m.options.secret), 0);
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
	for (uint32_t i = 2; i <= 6; i++)
		ck_assert_int_eq(bed_register(&b->m, i, b->m.options.secret), 0);
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

UNIT_MAIN("inventory", test_orphans_go_below_the_floor_only, test_all_that_is_missing_is_told,
	test_heartbeats_beside_thousands_of_drops)
