/* SPDX-License-Identifier: Apache-2.0 */
/* metad's side of garbage, over the wire, in virtual time: orders after the grace, acknowledgements, inventories, those that lie. */
#include "common/code/inventory.h"
#include "metad/state/state.h"
#include "tests/lib/metad_bed.h"
#include "tests/lib/unit.h"

static struct metad_bed bed, *const b = &bed;

enum { READ_MS = STATE_GC_READ_MS, GRACE_MS = 120 * 1000, FLOOR_MS = STATE_FLOOR_DELAY_MS, BEAT_MS = 5000 };

static struct {
	Craton__CopyId of[4096], *table[4096];
	size_t count;
} list;

/* One more message at the end of a list of them. */
#define NEXT(l, init) (init(&(l).of[(l).count]), (l).table[(l).count] = &(l).of[(l).count], (l).table[(l).count++])

static void add(uint64_t block, uint32_t index, uint32_t incarnation)
{
	Craton__CopyId *c = NEXT(list, craton__copy_id__init);

	c->block = block;
	c->index = index;
	c->incarnation = incarnation;
}

/* Time goes on, and all servers are heard. */
static void pass(uint64_t ms, uint32_t servers)
{
	for (uint64_t t = 0; t < ms; t += BEAT_MS) {
		metad_bed_sleep(b, BEAT_MS);
		bed_beat_all(b, servers);
	}
}

/* A block for a new file. */
static Craton__AllocateReply *allocated(const char *path, uint64_t *ret_inode, uint64_t *ret_epoch)
{
	Craton__AllocateReply *reply;

	ck_assert_int_eq(bed_open_file(b, path, false, ret_inode, ret_epoch), 0);
	ck_assert_int_eq(bed_allocate(b, *ret_inode, *ret_epoch, 1), 0);
	reply = (Craton__AllocateReply *)b->reply;
	b->reply = NULL;
	return reply;
}

/* One block in a file of its own; its chunk i lies on disk ret_disks[i]. */
static uint64_t put_block(const char *path, uint32_t ret_disks[6])
{
	uint64_t inode, epoch, block;
	Craton__AllocateReply *reply = allocated(path, &inode, &epoch);
	Craton__Allocation *a = reply->blocks[0];

	block = a->block;
	for (size_t i = 0; i < 6; i++)
		ret_disks[i] = a->targets[i]->disk;
	ck_assert_int_eq(bed_commit_one(b, inode, epoch, a, 0, true, 0), 0);
	protobuf_c_message_free_unpacked(&reply->base, NULL);
	return block;
}

static void rm(const char *path)
{
	Craton__RemoveRequest req = CRATON__REMOVE_REQUEST__INIT;

	req.parent = INODE_ROOT;
	req.path = bed_text(path);
	ck_assert_int_eq(bed_call(b, &rpc_metad_remove, &req.base), 0);
}

/* Reports the copies of the list and asks for more; b->reply is the answer. */
static int drops(uint32_t server, int64_t generation_off, bool spoil)
{
	Craton__DropsRequest req = CRATON__DROPS_REQUEST__INIT;
	uint8_t uuid[16] = {(uint8_t)server}, mac[32];

	req.server = b->servers[server].server;
	req.server_uuid = bed_bytes(uuid, sizeof(uuid));
	req.disk = b->servers[server].disk;
	req.generation = b->servers[server].generation + (uint64_t)generation_off;
	req.done = list.table;
	req.n_done = list.count;
	auth_drops(b->options.secret, metad_bed_cluster.bytes, &req, mac);
	mac[5] ^= spoil;
	req.auth = bed_bytes(mac, sizeof(mac));
	list.count = 0;
	return bed_call(b, &rpc_metad_drops, &req.base);
}

static size_t orders(uint32_t server)
{
	ck_assert_int_eq(drops(server, 0, false), 0);
	return ((Craton__DropsReply *)b->reply)->n_drops;
}

static const Craton__GcReply *gc(bool start)
{
	Craton__GcRequest req = CRATON__GC_REQUEST__INIT;

	req.start = start;
	ck_assert_int_eq(bed_call(b, &rpc_metad_gc, &req.base), 0);
	return (const Craton__GcReply *)b->reply;
}

static bool beat_says_drops(uint32_t server)
{
	bed_beat(b, server, 0);
	return ((Craton__HeartbeatReply *)b->reply)->n_drop_disks != 0;
}

START_TEST(test_orders_after_the_grace)
{
	uint32_t disks[6];
	uint64_t block;

	metad_bed_open_sim(b, 1);
	bed_register_all(b, 6);
	bed_beat_all(b, 6);
	block = put_block("f", disks);
	rm("f");
	ck_assert_uint_eq(gc(false)->files_waiting, 1);
	pass(READ_MS - BEAT_MS, 6);
	ck_assert_uint_eq(gc(false)->files_waiting, 1);
	pass(2 * BEAT_MS, 6);
	ck_assert_uint_eq(gc(false)->files_waiting, 0);
	ck_assert_uint_eq(gc(false)->copies_waiting, 6);
	ck_assert_uint_eq(gc(false)->pending_bytes, 6 * 4 * METAD_BED_MIB);
	pass(GRACE_MS - 3 * BEAT_MS, 6);
	ck_assert_uint_eq(orders(disks[0]), 0);
	pass(3 * BEAT_MS, 6);
	for (uint32_t i = 0; i < 6; i++) {
		const Craton__DropsReply *r;

		ck_assert(beat_says_drops(disks[i]));
		ck_assert_uint_eq(orders(disks[i]), 1);
		ck_assert_uint_eq(orders(disks[i]), 1); /* until it is reported gone */
		r = (const Craton__DropsReply *)b->reply;
		ck_assert(r->end && r->drops[0]->block == block && r->drops[0]->index == i);
	}
	/* a wrong signature, a generation that is over, another disk's copy, another incarnation: nothing is gone */
	add(block, 0, 0);
	ck_assert_int_eq(drops(disks[0], 0, true), ERR_ACCES);
	add(block, 0, 0);
	ck_assert_int_eq(drops(disks[0], -1, false), ERR_GENERATION);
	add(block, 1, 0);
	add(block, 0, 1);
	ck_assert_int_eq(drops(disks[0], 0, false), 0);
	add(block, 99, 1);
	ck_assert_int_eq(drops(disks[0], 0, false), ERR_INVAL);
	ck_assert_uint_eq(gc(false)->copies_waiting, 6);
	for (uint32_t i = 0; i < 6; i++) {
		add(block, i, 0);
		ck_assert_uint_eq(orders(disks[i]), 0);
	}
	ck_assert_uint_eq(gc(false)->copies_waiting, 0);
	ck_assert_uint_eq(gc(false)->pending_bytes, 0);
	ck_assert_uint_eq(gc(false)->copies_dropped, 6);
	ck_assert(!beat_says_drops(disks[0]));
	metad_bed_close(b);
}
END_TEST

/* Not the whole time of a session, but so long that whoever has the file open could have said so. */
START_TEST(test_start_does_not_wait_for_readers)
{
	uint32_t disks[6];
	uint64_t round;

	metad_bed_open_sim(b, 2);
	bed_register_all(b, 6);
	put_block("f", disks);
	rm("f");
	bed_beat(b, 1, 0);
	round = ((Craton__HeartbeatReply *)b->reply)->inventory_round;
	gc(true);
	metad_bed_sleep(b, 10 * 1000);
	ck_assert_uint_eq(gc(false)->files_waiting, 1);
	metad_bed_sleep(b, 8 * 1000);
	ck_assert_uint_eq(gc(false)->files_waiting, 0);
	ck_assert_uint_eq(gc(false)->copies_waiting, 6);
	bed_beat(b, 1, 0);
	ck_assert_uint_ne(((Craton__HeartbeatReply *)b->reply)->inventory_round, round);
	/* and all of it comes back from the table */
	metad_bed_restart(b);
	ck_assert_uint_eq(gc(false)->copies_waiting, 6);
	metad_bed_close(b);
}
END_TEST

/* ---- inventories ---- */

static struct {
	Craton__InventoryRange of[80], *table[80];
	size_t count;
} sums;

static void add_range(uint64_t range, uint32_t count, uint64_t digest)
{
	Craton__InventoryRange *r = NEXT(sums, craton__inventory_range__init);

	r->range = range;
	r->count = count;
	r->digest = digest;
}

static int inventory(uint32_t server, uint32_t mode, uint64_t from, uint64_t to)
{
	Craton__InventoryRequest req = CRATON__INVENTORY_REQUEST__INIT;
	uint8_t uuid[16] = {(uint8_t)server}, mac[32];

	req.server = b->servers[server].server;
	req.server_uuid = bed_bytes(uuid, sizeof(uuid));
	req.disk = b->servers[server].disk;
	req.generation = b->servers[server].generation;
	req.mode = mode;
	req.from = from;
	req.to = to;
	req.ranges = sums.table;
	req.n_ranges = sums.count;
	req.copies = list.table;
	req.n_copies = list.count;
	auth_inventory(b->options.secret, metad_bed_cluster.bytes, &req, mac);
	req.auth = bed_bytes(mac, sizeof(mac));
	list.count = sums.count = 0;
	return bed_call(b, &rpc_metad_inventory, &req.base);
}

static const Craton__InventoryReply *answer(void)
{
	return (const Craton__InventoryReply *)b->reply;
}

/* Who stood still until the floor had passed his block is refused; that is counted, and he can go on with another one. */
START_TEST(test_commit_below_the_floor)
{
	uint64_t inode, epoch;
	uint32_t disks[6];
	Craton__AllocateReply *reply;

	metad_bed_open_sim(b, 3);
	bed_register_all(b, 6);
	bed_beat_all(b, 6);
	reply = allocated("f", &inode, &epoch);
	pass(FLOOR_MS + 3 * BEAT_MS, 6);
	ck_assert_uint_gt(gc(false)->floor, reply->blocks[0]->block);
	ck_assert_int_eq(bed_open_file(b, "g", false, &inode, &epoch), 0);
	ck_assert_uint_eq(bed_refused(b, "block_closed"), 0);
	for (uint64_t n = 1; n < 3; n++) {
		ck_assert_int_eq(bed_commit_one(b, inode, epoch, reply->blocks[0], 0, true, 0), ERR_BLOCK_CLOSED);
		ck_assert_uint_eq(bed_refused(b, "block_closed"), n);
	}
	protobuf_c_message_free_unpacked(&reply->base, NULL);
	put_block("h", disks);
	ck_assert_uint_eq(bed_refused(b, "block_closed"), 2);
	metad_bed_close(b);
}
END_TEST

START_TEST(test_inventory_finds_orphans_and_missing)
{
	uint32_t disks[6];
	uint64_t block, floor;

	metad_bed_open_sim(b, 3);
	bed_register_all(b, 6);
	bed_beat_all(b, 6);
	block = put_block("f", disks);
	/* not below the floor yet: refused */
	ck_assert_int_eq(inventory(disks[0], 1, 0, block + 1), ERR_INVAL);
	pass(FLOOR_MS + 3 * BEAT_MS, 6);
	floor = gc(false)->floor;
	ck_assert_uint_gt(floor, block + 10);

	/* the digest of what should be there, of less, of more */
	add_range(block / INVENTORY_RANGE_BLOCKS, 1, inventory_digest(block, 0, 0));
	ck_assert_int_eq(inventory(disks[0], 1, 0, floor), 0);
	ck_assert_uint_eq(answer()->n_differing, 0);
	ck_assert_uint_eq(answer()->next, floor);
	ck_assert_int_eq(inventory(disks[0], 1, 0, floor), 0);
	ck_assert_uint_eq(answer()->n_differing, 1);
	ck_assert_uint_eq(answer()->differing[0], block / INVENTORY_RANGE_BLOCKS);
	add_range(block / INVENTORY_RANGE_BLOCKS, 1, inventory_digest(block, 0, 1));
	add_range(3, 1, inventory_digest(3 * INVENTORY_RANGE_BLOCKS, 0, 0));
	ck_assert_int_eq(inventory(disks[0], 1, 0, floor), 0);
	ck_assert_uint_eq(answer()->n_differing, 2);

	/* copy by copy: the named one stays, others become drop rows, and have the grace before they are ordered */
	add(block, 0, 0);
	add(block, 0, 1);
	add(block + 1, 2, 0);
	ck_assert_int_eq(inventory(disks[0], 2, 0, INVENTORY_RANGE_BLOCKS), 0);
	ck_assert_uint_eq(answer()->orphans, 2);
	ck_assert_uint_eq(answer()->n_missing, 0);
	ck_assert_uint_eq(answer()->next, INVENTORY_RANGE_BLOCKS);
	ck_assert_uint_eq(orders(disks[0]), 0);
	pass(GRACE_MS + BEAT_MS, 6);
	ck_assert_uint_eq(orders(disks[0]), 2);
	add(block, 0, 0);
	add(block, 0, 1);
	add(block + 1, 2, 0);
	ck_assert_int_eq(inventory(disks[0], 2, 0, INVENTORY_RANGE_BLOCKS), 0);
	ck_assert_uint_eq(answer()->orphans, 0); /* they have their rows */

	/* a missing one is asked about, and marked when it is confirmed */
	ck_assert_int_eq(inventory(disks[1], 2, 0, INVENTORY_RANGE_BLOCKS), 0);
	ck_assert_uint_eq(answer()->n_missing, 1);
	ck_assert(answer()->missing[0]->block == block && answer()->missing[0]->index == 1);
	ck_assert_uint_eq(bed_status(b)->blocks->full, 1);
	add(block, 1, 0);
	ck_assert_int_eq(inventory(disks[1], 3, 0, 0), 0);
	ck_assert_uint_eq(bed_status(b)->blocks->degraded, 1);
	ck_assert_uint_eq(gc(false)->missing_found, 1);
	ck_assert_uint_eq(gc(false)->orphans_found, 2);
	metad_bed_close(b);
}
END_TEST

/* More blocks than one turn has time for: whole ranges are answered, none in part. */
START_TEST(test_inventory_in_turns)
{
	enum { BLOCKS = 2300 /* a turn looks at 2000 */, RANGES = 80 };
	static uint64_t digest[RANGES];
	static uint32_t count[RANGES];
	uint64_t floor, from = 0, inode, epoch;
	uint32_t turns = 0;

	metad_bed_open_sim(b, 13);
	bed_register_all(b, 6);
	bed_beat_all(b, 6);
	ck_assert_int_eq(bed_open_file(b, "f", false, &inode, &epoch), 0);
	for (uint32_t done = 0; done < BLOCKS;) {
		Craton__AllocateReply *reply;

		ck_assert_int_eq(bed_allocate(b, inode, epoch, LIMIT_ALLOCATE_BLOCKS), 0);
		reply = (Craton__AllocateReply *)b->reply;
		b->reply = NULL;
		for (size_t n = 0; n < reply->n_blocks; n++, done++) {
			const Craton__Allocation *a = reply->blocks[n];
			uint64_t range = a->block / INVENTORY_RANGE_BLOCKS;

			ck_assert_uint_lt(range, RANGES);
			for (uint8_t i = 0; i < 6; i++)
				if (a->targets[i]->disk == 1) {
					digest[range] += inventory_digest(a->block, i, 0);
					count[range]++;
				}
			ck_assert_int_eq(bed_commit_one(b, inode, epoch, a, done * 16ull * METAD_BED_MIB, false, 0), 0);
		}
		protobuf_c_message_free_unpacked(&reply->base, NULL);
	}
	pass(FLOOR_MS + 3 * BEAT_MS, 6);
	floor = gc(false)->floor;
	for (; from < floor; turns++) {
		for (uint64_t r = from / INVENTORY_RANGE_BLOCKS; r < RANGES; r++)
			if (count[r])
				add_range(r, count[r], digest[r]);
		ck_assert_int_eq(inventory(1, 1, from, floor), 0);
		ck_assert_uint_eq(answer()->n_differing, 0);
		ck_assert_uint_gt(answer()->next, from);
		ck_assert_uint_le(answer()->next, floor);
		from = answer()->next;
		ck_assert(from == floor || from % INVENTORY_RANGE_BLOCKS == 0);
	}
	ck_assert_uint_ge(turns, 2);
	metad_bed_close(b);
}
END_TEST

START_TEST(test_lying_inventories)
{
	uint32_t disks[6];
	uint64_t block, floor, refused = 0;

	metad_bed_open_sim(b, 4);
	bed_register_all(b, 6);
	bed_beat_all(b, 6);
	block = put_block("f", disks);
	pass(FLOOR_MS + 3 * BEAT_MS, 6);
	floor = gc(false)->floor;
	refused = gc(false)->inventories_refused;

	ck_assert_int_eq(inventory(1, 1, 0, floor + 1), ERR_INVAL); /* not below the floor */
	add(floor, 0, 0);
	ck_assert_int_eq(inventory(1, 2, floor, floor + 1), ERR_INVAL);
	ck_assert_int_eq(inventory(1, 1, 5, floor), ERR_INVAL); /* within a range */
	ck_assert_int_eq(inventory(1, 1, 0, 0), ERR_INVAL);
	ck_assert_int_eq(inventory(1, 2, 0, floor), ERR_INVAL); /* more than a range */
	ck_assert_int_eq(inventory(1, 7, 0, floor), ERR_INVAL);
	add(block + 1, 0, 0); /* outside of what it is about */
	ck_assert_int_eq(inventory(1, 2, 0, block + 1), ERR_INVAL);
	add(block, 1, 0); /* out of order */
	add(block, 0, 0);
	ck_assert_int_eq(inventory(1, 2, 0, INVENTORY_RANGE_BLOCKS), ERR_INVAL);
	add(block, 0, 0); /* twice */
	add(block, 0, 0);
	ck_assert_int_eq(inventory(1, 2, 0, INVENTORY_RANGE_BLOCKS), ERR_INVAL);
	add(block, LIMIT_WIDTH, 0);
	ck_assert_int_eq(inventory(1, 2, 0, INVENTORY_RANGE_BLOCKS), ERR_INVAL);
	for (uint32_t i = 0; i < 70; i++)
		add_range(0, 1, 1);
	ck_assert_int_eq(inventory(1, 1, 0, floor), ERR_INVAL); /* too many, and the same again */
	for (uint32_t i = 0; i < STATE_COPIES + 1; i++)
		add(block, 0, i);
	ck_assert_int_eq(inventory(1, 3, 0, 0), ERR_INVAL);
	b->servers[1].disk = b->servers[2].disk; /* of another server */
	ck_assert_int_eq(inventory(1, 1, 0, floor), ERR_GENERATION);
	b->servers[1].disk = 77;
	ck_assert_int_eq(inventory(1, 1, 0, floor), ERR_NOENT);
	ck_assert_uint_eq(gc(false)->inventories_refused, refused + 13);
	ck_assert_uint_eq(bed_refused(b, "inventory"), refused + 13);
	ck_assert_uint_eq(gc(false)->orphans_found, 0);
	ck_assert_uint_eq(bed_status(b)->blocks->full, 1);
	metad_bed_close(b);
}
END_TEST

START_TEST(test_many_orphans_in_slices)
{
	uint64_t floor, found = 0, from = 0;
	uint32_t disks[6];

	metad_bed_open_sim(b, 5);
	bed_register_all(b, 6);
	bed_beat_all(b, 6);
	put_block("f", disks);
	pass(FLOOR_MS + 3 * BEAT_MS, 6);
	floor = gc(false)->floor;
	ck_assert_uint_gt(floor, 900);
	while (from < INVENTORY_RANGE_BLOCKS) {
		for (uint64_t i = from > 10 ? from : 10; i < 900; i++)
			add(i, 3, 0);
		ck_assert_int_eq(inventory(1, 2, from, INVENTORY_RANGE_BLOCKS), 0);
		ck_assert_uint_gt(answer()->next, from);
		ck_assert_uint_le(answer()->orphans, STATE_COPIES);
		found += answer()->orphans;
		from = answer()->next;
	}
	ck_assert_uint_eq(found, 890);
	ck_assert_uint_eq(gc(false)->copies_waiting, 890);
	metad_bed_close(b);
}
END_TEST

/* ---- no room for metadata ---- */

static int make_dir(const char *path)
{
	Craton__MkdirRequest req = CRATON__MKDIR_REQUEST__INIT;

	req.parent = INODE_ROOT;
	req.path = bed_text(path);
	return bed_call(b, &rpc_metad_mkdir, &req.base);
}

START_TEST(test_full_metadata_refuse_growth_only)
{
	uint64_t total, left, inode, epoch;
	uint32_t disks[6];
	int fd;

	metad_bed_open_sim(b, 6);
	bed_register_all(b, 6);
	bed_beat_all(b, 6);
	put_block("f", disks);
	ck_assert_int_eq(make_dir("d"), 0);
	ck_assert(!bed_has_reason(bed_status(b), "metadata-full"));
	ck_assert_int_eq(io_open(b->server_io, "/metad/ballast", IO_OPEN_WRITE | IO_OPEN_CREATE, 0600, &fd), 0);
	ck_assert_int_eq(io_disk_space(b->server_io, "/metad", &total, &left), 0);
	ck_assert_int_eq(io_allocate(b->server_io, fd, 0, left - METAD_BED_MIB), 0);
	pass(20 * 1000, 6); /* a tick is committed */
	ck_assert(bed_has_reason(bed_status(b), "metadata-full"));
	ck_assert_str_eq(bed_status(b)->health, "error");
	b->session.unanswered = --b->session.number; /* what was done before is sent again: its answer was lost */
	ck_assert_int_eq(make_dir("d"), 0);
	ck_assert_int_eq(make_dir("e"), ERR_META_FULL);
	ck_assert_int_eq(bed_open_file(b, "g", false, &inode, &epoch), ERR_META_FULL);
	ck_assert_int_eq(bed_allocate(b, 1, 1, 1), ERR_META_FULL);
	/* removing works, to the last copy; servers may come and go */
	rm("f");
	gc(true);
	pass(20 * 1000, 6); /* until whoever has it open could have said so */
	pass(GRACE_MS + 2 * BEAT_MS, 6);
	for (uint32_t i = 0; i < 6; i++) {
		const Craton__DropsReply *r;

		ck_assert_uint_eq(orders(disks[i]), 1);
		r = (const Craton__DropsReply *)b->reply;
		add(r->drops[0]->block, i, 0);
		ck_assert_uint_eq(orders(disks[i]), 0);
	}
	ck_assert_uint_eq(gc(false)->pending_bytes, 0);
	ck_assert(bed_beat(b, 1, BED_BEAT_STOPPING) == false);
	ck_assert_int_eq(bed_register(b, 1, b->options.secret), 0);
	metad_bed_restart(b);
	ck_assert_int_eq(make_dir("e"), ERR_META_FULL);
	/* and when there is room again, all goes on */
	io_close(b->server_io, fd);
	ck_assert_int_eq(io_unlink(b->server_io, "/metad/ballast"), 0);
	ck_assert_int_eq(io_sync_dir(b->server_io, "/metad"), 0);
	pass(20 * 1000, 6);
	ck_assert_int_eq(make_dir("e"), 0);
	ck_assert(!bed_has_reason(bed_status(b), "metadata-full"));
	metad_bed_close(b);
}
END_TEST

/* ---- no room for data ---- */

static void set(const char *name, const char *value)
{
	Craton__ConfigRequest req = CRATON__CONFIG_REQUEST__INIT;

	req.name = (char *)(uintptr_t)name;
	req.value = (char *)(uintptr_t)value;
	ck_assert_int_eq(bed_call(b, &rpc_metad_config, &req.base), 0);
}

/* Servers say that half of their disks is free. */
START_TEST(test_full_disks_take_no_new_data)
{
	uint64_t inode, epoch;

	metad_bed_open_sim(b, 7);
	bed_register_all(b, 6);
	bed_beat_all(b, 6);
	ck_assert_int_eq(bed_open_file(b, "f", false, &inode, &epoch), 0);
	ck_assert_int_eq(bed_allocate(b, inode, epoch, 1), 0);
	ck_assert(!bed_has_reason(bed_status(b), "disk-near-full"));
	set("disk.near_full", "50");
	ck_assert(bed_has_reason(bed_status(b), "disk-near-full"));
	ck_assert_str_eq(bed_status(b)->health, "warn");
	ck_assert_int_eq(bed_allocate(b, inode, epoch, 1), 0);
	set("disk.full", "50");
	ck_assert(bed_has_reason(bed_status(b), "disk-full"));
	ck_assert(!bed_has_reason(bed_status(b), "disk-near-full"));
	ck_assert(bed_has_reason(bed_status(b), "no-placement"));
	ck_assert_int_eq(bed_allocate(b, inode, epoch, 1), ERR_NOSPC);
	set("disk.full", "default");
	ck_assert_int_eq(bed_allocate(b, inode, epoch, 1), 0);
	metad_bed_close(b);
}
END_TEST

UNIT_MAIN("metad_gc", test_full_disks_take_no_new_data, test_full_metadata_refuse_growth_only, test_orders_after_the_grace, test_start_does_not_wait_for_readers,
	test_commit_below_the_floor, test_inventory_finds_orphans_and_missing, test_inventory_in_turns, test_lying_inventories, test_many_orphans_in_slices)
