/* SPDX-License-Identifier: Apache-2.0 */
/* A real metad, spoken to over connections: on simulated hosts, where time and crashes cost nothing, and once on a real loop. */
#include "metad/core.h"
#include "tests/lib/metad_bed.h"
#include "tests/lib/unit.h"

static struct metad_bed bed, *const b = &bed;

static int mkdir_path(const char *path, bool parents)
{
	Craton__MkdirRequest req = CRATON__MKDIR_REQUEST__INIT;

	req.parent = INODE_ROOT;
	req.path = bed_text(path);
	req.mode = 0755;
	req.parents = parents;
	return bed_call(b, &rpc_metad_mkdir, &req.base);
}

static int remove_path(const char *path, bool directory)
{
	Craton__RemoveRequest req = CRATON__REMOVE_REQUEST__INIT;

	req.parent = INODE_ROOT;
	req.path = bed_text(path);
	req.directory = directory;
	return bed_call(b, &rpc_metad_remove, &req.base);
}

static int lookup(const char *path)
{
	return bed_lookup_path(b, path, strlen(path));
}

static const Craton__Attr *attr(void)
{
	return ((Craton__AttrReply *)b->reply)->attr;
}

static int rename_path(const char *from, const char *to)
{
	Craton__RenameRequest req = CRATON__RENAME_REQUEST__INIT;

	req.from_parent = req.to_parent = INODE_ROOT;
	req.from_path = bed_text(from);
	req.to_path = bed_text(to);
	return bed_call(b, &rpc_metad_rename, &req.base);
}

static const Craton__ReaddirReply *list(uint64_t inode, const char *after, uint32_t max)
{
	Craton__ReaddirRequest req = CRATON__READDIR_REQUEST__INIT;

	req.inode = inode;
	req.after = bed_text(after);
	req.max_entries = max;
	ck_assert_int_eq(bed_call(b, &rpc_metad_readdir, &req.base), 0);
	return (const Craton__ReaddirReply *)b->reply;
}

static void names(void)
{
	const Craton__ReaddirReply *page;
	uint64_t inode, epoch;
	char path[32];

	ck_assert_int_eq(lookup(""), 0);
	ck_assert_uint_eq(attr()->inode, INODE_ROOT);
	ck_assert_int_eq(mkdir_path("a/b", false), ERR_NOENT);
	ck_assert_int_eq(mkdir_path("a/b", true), 0);
	inode = attr()->inode;
	for (int i = 0; i < 25; i++) {
		uint64_t file;

		snprintf(path, sizeof(path), "a/b/%03d", i);
		ck_assert_int_eq(bed_open_file(b, path, false, &file, &epoch), 0);
		ck_assert_uint_eq(((Craton__CreateReply *)b->reply)->policy->policy, EC_POLICY_DEFAULT);
	}
	page = list(inode, "", 10);
	ck_assert_uint_eq(page->n_entries, 10);
	ck_assert(!page->end);
	ck_assert_mem_eq(page->entries[9]->name.data, "009", 3);
	ck_assert_uint_eq(page->entries[9]->attr->type, 1);
	page = list(inode, "019", 10);
	ck_assert_uint_eq(page->n_entries, 5);
	ck_assert(page->end);
	ck_assert_int_eq(rename_path("a/b/003", "a/x"), 0);
	ck_assert_int_eq(lookup("a/b/003"), ERR_NOENT);
	ck_assert_int_eq(lookup("a/x"), 0);
	ck_assert_int_eq(rename_path("a", "a/b/a"), ERR_INVAL);
	ck_assert_int_eq(remove_path("a", true), ERR_NOTEMPTY);
	ck_assert_int_eq(remove_path("a/x", false), 0);
	ck_assert_int_eq(lookup("a/b"), 0);
	ck_assert_uint_eq(attr()->size, 24);
}

static void bad_names(void)
{
	char longest[LIMIT_PATH_BYTES + 100];

	ck_assert_int_eq(bed_lookup_path(b, "a\0b", 3), ERR_INVAL);
	ck_assert_int_eq(lookup("/a"), ERR_INVAL);
	ck_assert_int_eq(lookup("a/../b"), ERR_INVAL);
	ck_assert_int_eq(mkdir_path(".", true), ERR_INVAL);
	memset(longest, 'x', sizeof(longest));
	ck_assert_int_eq(bed_lookup_path(b, longest, 256), ERR_NAMETOOLONG);
	ck_assert_int_eq(bed_lookup_path(b, longest, 255), ERR_NOENT);
	ck_assert_int_eq(bed_lookup_path(b, longest, sizeof(longest)), ERR_NAMETOOLONG);
}

START_TEST(test_names)
{
	metad_bed_open_sim(b, 1);
	names();
	bad_names();
	metad_bed_restart(b);
	ck_assert_int_eq(lookup("a/b"), 0);
	ck_assert_uint_eq(attr()->size, 24);
	metad_bed_close(b);
}
END_TEST

START_TEST(test_names_on_a_real_loop)
{
	metad_bed_open_real(b);
	names();
	bad_names();
	metad_bed_restart(b);
	ck_assert_int_eq(lookup("a/b"), 0);
	ck_assert_uint_eq(attr()->size, 24);
	metad_bed_close(b);
}
END_TEST

static int policy(const char *path, bool set, uint32_t id)
{
	Craton__PolicyRequest req = CRATON__POLICY_REQUEST__INIT;
	Craton__Policy p = CRATON__POLICY__INIT;

	req.parent = INODE_ROOT;
	req.path = bed_text(path);
	req.set = set;
	p.policy = id;
	req.policy = &p;
	return bed_call(b, &rpc_metad_policy, &req.base);
}

START_TEST(test_policy_and_attributes)
{
	Craton__SetattrRequest req = CRATON__SETATTR_REQUEST__INIT;

	metad_bed_open_sim(b, 2);
	ck_assert_int_eq(mkdir_path("d/e", true), 0);
	ck_assert_int_eq(policy("d", true, 2), 0);
	ck_assert_int_eq(policy("d/e", false, 0), 0);
	ck_assert_uint_eq(((Craton__PolicyReply *)b->reply)->policy->policy, 2);
	ck_assert(!((Craton__PolicyReply *)b->reply)->own);
	ck_assert_int_eq(policy("d", true, 300), ERR_INVAL);
	ck_assert_int_eq(policy("", true, 0), ERR_INVAL);
	req.parent = INODE_ROOT;
	req.path = bed_text("d");
	req.mask = 1;
	req.mode = 0700;
	ck_assert_int_eq(bed_call(b, &rpc_metad_setattr, &req.base), 0);
	ck_assert_uint_eq(attr()->mode, 0700);
	metad_bed_close(b);
}
END_TEST

/* Every token opens under the keys that chunk servers derive, and says what the reply says. */
static void check_tokens(const Craton__AllocateReply *reply)
{
	for (size_t i = 0; i < reply->n_blocks; i++) {
		const Craton__Allocation *a = reply->blocks[i];
		uint32_t used = 0;

		ck_assert_uint_eq(a->n_targets, 6);
		ck_assert_uint_le(a->n_spares, 2);
		for (size_t j = 0; j < a->n_targets + a->n_spares; j++) {
			const Craton__Target *t = j < a->n_targets ? a->targets[j] : a->spares[j - a->n_targets];
			struct token token;

			ck_assert_int_eq(token_open(slice_of(t->token.data, t->token.len), b->token_keys,
						 b->token_key_count, &token),
				0);
			ck_assert_uint_eq(token.block, a->block);
			ck_assert_uint_eq(token.disk, t->disk);
			ck_assert_uint_eq(token.index, t->index);
			ck_assert_uint_eq(token.index, j < a->n_targets ? j : TOKEN_INDEX_ANY);
			ck_assert_uint_eq(token.incarnation, t->incarnation);
			ck_assert_uint_eq(token.incarnation, j < a->n_targets ? 0 : j - a->n_targets + 1);
			ck_assert_uint_eq(token.rights, TOKEN_WRITE);
			ck_assert_uint_eq(token.expires_ms, reply->expires_ms);
			ck_assert_uint_eq(token.max_chunk_bytes, 4 * METAD_BED_MIB);
			if (j < a->n_targets) {
				ck_assert(!(used & 1u << t->disk));
				used |= 1u << t->disk;
			}
		}
	}
}

static uint64_t available(struct metad_bed *bed)
{
	Craton__EmptyRequest req = CRATON__EMPTY_REQUEST__INIT;

	ck_assert_int_eq(bed_call(bed, &rpc_metad_df, &req.base), 0);
	return ((Craton__DfReply *)bed->reply)->available_bytes;
}

START_TEST(test_allocate)
{
	Craton__AllocateRequest req = CRATON__ALLOCATE_REQUEST__INIT;
	Craton__AllocateReply *reply;
	uint32_t avoid[] = {2, 5};
	uint64_t inode, epoch, last;

	metad_bed_open_sim(b, 4);
	ck_assert_int_eq(bed_open_file(b, "f", false, &inode, &epoch), 0);
	for (uint32_t n = 0; n < 3; n++) {
		ck_assert_int_eq(bed_allocate(b, inode, epoch, 1), ERR_NO_PLACEMENT);
		ck_assert_uint_eq(((Craton__AllocateReply *)b->reply)->missing_domains, 3 - n);
		ck_assert_int_eq(bed_register(b, n + 1, b->options.secret), 0);
		ck_assert(!bed_beat(b, n + 1, 0));
	}
	ck_assert_int_eq(bed_allocate(b, inode, epoch, 1), 0); /* three domains: two chunks each */
	ck_assert(((Craton__AllocateReply *)b->reply)->blocks[0]->crowded);
	bed_register_all(b, 8);
	bed_beat_all(b, 8);
	ck_assert_int_eq(bed_allocate(b, inode, epoch, 64), 0);
	reply = (Craton__AllocateReply *)b->reply;
	ck_assert_uint_eq(reply->n_blocks, 64);
	ck_assert_uint_eq(reply->n_disks, 8);
	ck_assert_uint_ge(reply->expires_ms, reply->state_time_ms + LIMIT_TOKEN_LIFE_MS - 1000);
	check_tokens(reply);
	for (size_t i = 1; i < 64; i++)
		ck_assert_uint_eq(reply->blocks[i]->block, reply->blocks[0]->block + i);
	last = reply->blocks[63]->block;

	req.inode = inode;
	req.epoch = epoch;
	req.count = 20;
	req.avoid_disks = avoid;
	req.n_avoid_disks = 2;
	ck_assert_int_eq(bed_call(b, &rpc_metad_allocate, &req.base), 0);
	reply = (Craton__AllocateReply *)b->reply;
	ck_assert_uint_eq(reply->blocks[0]->block, last + 1);
	for (size_t i = 0; i < 20; i++)
		for (size_t j = 0; j < 6; j++)
			ck_assert(reply->blocks[i]->targets[j]->disk != 2 && reply->blocks[i]->targets[j]->disk != 5);

	ck_assert_int_eq(bed_allocate(b, inode, epoch, 0), ERR_INVAL);
	ck_assert_int_eq(bed_allocate(b, inode, epoch, 65), ERR_INVAL);
	ck_assert_int_eq(bed_allocate(b, inode, epoch + 1, 1), ERR_FENCED);
	ck_assert_int_eq(bed_allocate(b, inode + 1, epoch, 1), ERR_STALE);
	ck_assert_int_eq(bed_allocate(b, INODE_ROOT, 0, 1), ERR_ISDIR);
	/* ids of a range are given for a minute only; and never again after a restart */
	metad_bed_sleep(b, 61 * 1000);
	for (uint32_t i = 1; i <= 8; i++)
		ck_assert(bed_beat(b, i, 0)); /* silent for so long, they are down */
	bed_register_all(b, 8);
	ck_assert_int_eq(bed_allocate(b, inode, epoch, 1), 0);
	reply = (Craton__AllocateReply *)b->reply;
	ck_assert_uint_gt(reply->blocks[0]->block, last + 1000);
	last = reply->blocks[0]->block;
	metad_bed_restart(b);
	ck_assert_int_eq(bed_allocate(b, inode, epoch, 1), 0);
	ck_assert_uint_gt(((Craton__AllocateReply *)b->reply)->blocks[0]->block, last + 1000);
	/* disks with room for a whole chunk come first, those where a small one may find room last; the room that is told is that for whole ones */
	for (uint32_t i = 1; i <= 8; i++)
		ck_assert(!bed_beat(b, i, i == 3 ? BED_BEAT_SPLINTERED : 0));
	for (int n = 0; n < 10; n++) {
		ck_assert_int_eq(bed_allocate(b, inode, epoch, 1), 0);
		reply = (Craton__AllocateReply *)b->reply;
		for (size_t j = 0; j < 6; j++)
			ck_assert_uint_ne(reply->blocks[0]->targets[j]->disk, 3);
	}
	ck_assert_uint_gt(available(b), 0);
	for (uint32_t i = 1; i <= 8; i++)
		ck_assert(!bed_beat(b, i, BED_BEAT_SPLINTERED));
	ck_assert_int_eq(bed_allocate(b, inode, epoch, 1), 0);
	ck_assert_uint_eq(available(b), 0);
	for (uint32_t i = 1; i <= 8; i++)
		ck_assert(!bed_beat(b, i, BED_BEAT_BY_CLASS));
	ck_assert_int_eq(bed_allocate(b, inode, epoch, 1), 0);
	ck_assert_uint_gt(available(b), 0);
	/* no room is another thing than no domains */
	for (uint32_t i = 1; i <= 8; i++)
		ck_assert(!bed_beat(b, i, BED_BEAT_FULL));
	ck_assert_int_eq(bed_allocate(b, inode, epoch, 1), ERR_NOSPC);
	metad_bed_close(b);
}
END_TEST

/* A file is made and gets its first block in one request; what is not to be had then is left out, and its name is there all the same. */
START_TEST(test_create_with_first_block)
{
	Craton__CreateRequest req = CRATON__CREATE_REQUEST__INIT;
	const Craton__CreateReply *reply;
	uint64_t inode, epoch, first;

	metad_bed_open_sim(b, 16);
	req.parent = INODE_ROOT;
	req.path = bed_text("f");
	req.mode = 0644;
	req.allocate = true;
	ck_assert_int_eq(bed_call(b, &rpc_metad_create, &req.base), 0);
	ck_assert_ptr_null(((const Craton__CreateReply *)b->reply)->allocated); /* there are no disks */
	bed_register_all(b, 8);
	bed_beat_all(b, 8);
	ck_assert_int_eq(bed_open_file(b, "ids", false, &inode, &epoch), 0);
	ck_assert_int_eq(bed_allocate(b, inode, epoch, 1), 0); /* there is a range of ids */
	first = ((Craton__AllocateReply *)b->reply)->blocks[0]->block;

	req.path = bed_text("g");
	ck_assert_int_eq(bed_call(b, &rpc_metad_create, &req.base), 0);
	reply = (const Craton__CreateReply *)b->reply;
	ck_assert_ptr_nonnull(reply->allocated);
	ck_assert_uint_eq(reply->allocated->n_blocks, 1);
	ck_assert_uint_gt(reply->allocated->blocks[0]->block, first);
	check_tokens(reply->allocated);
	for (size_t j = 0; j < 6; j++)
		ck_assert_uint_ne(reply->allocated->blocks[0]->targets[j]->disk, 0);
	ck_assert_uint_eq(reply->allocated->n_disks, 8);

	req.append = true; /* it may have a tail, and room in no block yet */
	ck_assert_int_eq(bed_call(b, &rpc_metad_create, &req.base), 0);
	ck_assert_ptr_null(((const Craton__CreateReply *)b->reply)->allocated);
	metad_bed_close(b);
}
END_TEST

static const Craton__LayoutReply *layout(uint64_t inode, uint64_t offset, uint64_t length)
{
	Craton__LayoutRequest req = CRATON__LAYOUT_REQUEST__INIT;

	req.inode = inode;
	req.offset = offset;
	req.length = length;
	ck_assert_int_eq(bed_call(b, &rpc_metad_layout, &req.base), 0);
	return (const Craton__LayoutReply *)b->reply;
}

static Craton__AllocateReply *allocation(uint64_t inode, uint64_t epoch, uint32_t count)
{
	ck_assert_int_eq(bed_allocate(b, inode, epoch, count), 0);
	return (Craton__AllocateReply *)metad_bed_copy(&rpc_metad_allocate, b->reply);
}

static void write_file(const char *path, uint64_t *ret_inode)
{
	Craton__AllocateReply *blocks;
	uint64_t inode, epoch;

	ck_assert_int_eq(bed_open_file(b, path, true, &inode, &epoch), 0);
	blocks = allocation(inode, epoch, 3);
	ck_assert_int_eq(bed_commit_one(b, inode, epoch, blocks->blocks[0], 0, false, 0), 0);
	ck_assert_int_eq(lookup(path), ERR_NOENT);
	ck_assert_int_eq(
		bed_commit_one(b, inode, epoch, blocks->blocks[1], 16 * METAD_BED_MIB, false, 1 << 2), ERR_RECEIPT);
	ck_assert_int_eq(((Craton__CommitReply *)b->reply)->blocks[0]->status, ERR_RECEIPT);
	ck_assert_int_eq(bed_commit_one(b, inode, epoch, blocks->blocks[1], 16 * METAD_BED_MIB, true, 0), 0);
	ck_assert(((Craton__CommitReply *)b->reply)->attr->complete);
	ck_assert_int_eq(bed_commit_one(b, inode, epoch, blocks->blocks[1], 16 * METAD_BED_MIB, true, 0), 0);
	craton__allocate_reply__free_unpacked(blocks, NULL);
	ck_assert_int_eq(lookup(path), 0);
	ck_assert_uint_eq(attr()->size, 32 * METAD_BED_MIB);
	*ret_inode = inode;
}

static void check_layout(uint64_t inode)
{
	const Craton__LayoutReply *l = layout(inode, 0, UINT64_MAX);
	struct token token;

	ck_assert_uint_eq(l->n_extents, 2);
	ck_assert_uint_eq(l->n_blocks, 2);
	ck_assert_uint_eq(l->end_offset, UINT64_MAX);
	ck_assert_uint_eq(l->extents[1]->file_offset, 16 * METAD_BED_MIB);
	ck_assert_uint_eq(l->blocks[1]->n_chunks, 6);
	ck_assert_uint_eq(l->blocks[1]->chunks[5]->crc, 1005);
	ck_assert(l->blocks[1]->chunks[5]->present);
	ck_assert_int_eq(token_open(slice_of(l->blocks[0]->read_token.data, l->blocks[0]->read_token.len),
				 b->token_keys, b->token_key_count, &token),
		0);
	ck_assert_uint_eq(token.rights, TOKEN_READ);
	ck_assert_uint_eq(token.block, l->blocks[0]->block);
	ck_assert_uint_ge(l->n_disks, 6);
	l = layout(inode, 16 * METAD_BED_MIB - 1, 1);
	ck_assert_uint_eq(l->n_extents, 1);
	ck_assert_uint_eq(l->end_offset, 16 * METAD_BED_MIB);
	l = layout(inode, 32 * METAD_BED_MIB, 10);
	ck_assert_uint_eq(l->n_extents, 0);
	ck_assert_uint_eq(l->end_offset, 32 * METAD_BED_MIB + 10);
}

static void write_and_read_layout(void)
{
	uint64_t inode;

	bed_register_all(b, 6);
	bed_beat_all(b, 6);
	write_file("f", &inode);
	ck_assert_uint_eq(bed_refused(b, "receipt"), 1);
	check_layout(inode);
	metad_bed_restart(b);
	check_layout(inode);
}

START_TEST(test_write_and_layout)
{
	metad_bed_open_sim(b, 5);
	write_and_read_layout();
	metad_bed_close(b);
	metad_bed_open_real(b);
	write_and_read_layout();
	metad_bed_close(b);
}
END_TEST

START_TEST(test_receipts_of_an_older_generation_do_not_count)
{
	Craton__AllocateReply *blocks;
	uint64_t inode, epoch;
	struct metad_bed_server old;

	metad_bed_open_sim(b, 6);
	bed_register_all(b, 6);
	ck_assert_int_eq(bed_open_file(b, "f", false, &inode, &epoch), 0);
	blocks = allocation(inode, epoch, 1);
	old = b->servers[blocks->blocks[0]->targets[4]->disk];
	bed_beat_all(b, 6);
	ck_assert_int_eq(
		bed_register(b, old.disk, b->options.secret), 0); /* restarted: another generation, another key */
	{
		struct metad_bed_server fresh = b->servers[old.disk];

		b->servers[old.disk] = old;
		ck_assert_int_eq(bed_commit_one(b, inode, epoch, blocks->blocks[0], 0, false, 0), 0);
		ck_assert_uint_eq(((Craton__CommitReply *)b->reply)->blocks[0]->n_not_counted, 1);
		ck_assert_uint_eq(((Craton__CommitReply *)b->reply)->blocks[0]->not_counted[0], 4);
		b->servers[old.disk] = fresh;
	}
	ck_assert_uint_eq(bed_refused(b, "receipt_old"), 1);
	ck_assert_uint_eq(bed_refused(b, "receipt"), 0);
	ck_assert_uint_eq(bed_status(b)->blocks->degraded, 1);
	/* with a fresh receipt of that disk the block is whole */
	ck_assert_int_eq(bed_commit_one(b, inode, epoch, blocks->blocks[0], 0, true, 0), 0);
	ck_assert_uint_eq(bed_status(b)->blocks->full, 1);
	ck_assert_uint_eq(bed_status(b)->blocks->degraded, 0);
	craton__allocate_reply__free_unpacked(blocks, NULL);
	metad_bed_close(b);
}
END_TEST

static void registered_behind(struct rpc_call *call, int status, const ProtobufCMessage *msg, uint32_t payload_len)
{
	(void)call, (void)msg, (void)payload_len;
	ck_assert_int_eq(status, 0);
}

/* Nobody can verify a receipt of the generation that a registration under way is about to give; nor may it count. */
START_TEST(test_forged_receipts_of_the_next_generation)
{
	struct rpc_call call = {.method = &rpc_metad_register, .done = registered_behind};
	struct metad_bed_registration g;
	Craton__AllocateReply *blocks;
	const Craton__CommitReply *reply;
	uint64_t inode, epoch;
	uint32_t disk;

	metad_bed_open_sim(b, 12);
	bed_register_all(b, 6);
	bed_beat_all(b, 6);
	ck_assert_int_eq(bed_open_file(b, "f", false, &inode, &epoch), 0);
	blocks = allocation(inode, epoch, 1);
	disk = blocks->blocks[0]->targets[2]->disk;
	metad_bed_registration(b, disk, b->options.secret, &g);
	call.request = &g.req.base;
	call.deadline_ns = io_clock_ns(b->client_io) + 60ull * 1000000000;
	rpc_call_start(b->peer, &call);
	b->servers[disk].generation++; /* and a key that is not yet known: any MAC will do */
	ck_assert_int_eq(bed_commit_one(b, inode, epoch, blocks->blocks[0], 0, false, 1 << 2), 0);
	reply = (const Craton__CommitReply *)b->reply;
	ck_assert_uint_eq(reply->blocks[0]->n_not_counted, 1);
	ck_assert_uint_eq(reply->blocks[0]->not_counted[0], 2);
	ck_assert_uint_eq(bed_status(b)->blocks->degraded, 1);
	craton__allocate_reply__free_unpacked(blocks, NULL);
	metad_bed_close(b);
}
END_TEST

START_TEST(test_status)
{
	const Craton__StatusReply *s;
	uint64_t inode;

	metad_bed_open_sim(b, 7);
	s = bed_status(b);
	ck_assert_str_eq(s->health, "error");
	ck_assert(bed_has_reason(s, "no-placement"));
	/* Disks that have just registered are expected to report: fewer than are needed are too few at once. */
	bed_register_all(b, 1);
	ck_assert(bed_has_reason(bed_status(b), "no-placement"));
	bed_register_all(b, 6);
	ck_assert(!bed_has_reason(bed_status(b), "no-placement"));
	bed_beat_all(b, 6);
	write_file("f", &inode);
	s = bed_status(b);
	ck_assert(bed_has_reason(s, "plaintext")); /* a simulated host is no loopback */
	ck_assert_uint_eq(s->n_reasons, 1);
	ck_assert_uint_eq(s->blocks->full, 2);
	ck_assert_uint_eq(s->blocks->by_margin[2], 2);
	ck_assert_uint_eq(s->n_servers, 6);
	ck_assert_str_eq(s->servers[3]->name, "chunkd-4");
	ck_assert_str_eq(s->servers[3]->state, "up");
	ck_assert_uint_eq(s->disks[5]->free_bytes, 50ull << 30);
	ck_assert_uint_eq(s->df->total_bytes, 600ull << 30);
	/* Half of each disk is free, 5 % are kept for repair, four of six chunks are data. */
	ck_assert_uint_eq(s->df->available_bytes, 4 * ((50ull << 30) - (100ull << 30) / 100 * 5));
	ck_assert(s->df->available_known);
	ck_assert_uint_eq(s->df->file_bytes, 32 * METAD_BED_MIB);
	ck_assert_str_eq(s->default_policy, "rs-4-2");

	/* one says goodbye, another falls silent, a third one's disk fails */
	ck_assert(!bed_beat(b, 1, BED_BEAT_STOPPING));
	s = bed_status(b);
	ck_assert_str_eq(s->health, "warn");
	ck_assert(bed_has_reason(s, "server-down"));
	ck_assert(bed_has_reason(s, "blocks-degraded"));
	ck_assert(bed_has_reason(s, "few-domains"));
	ck_assert_uint_eq(s->blocks->degraded, 2);
	ck_assert_str_eq(s->servers[0]->state, "down");
	ck_assert_str_eq(s->disks[0]->state, "down");
	for (int i = 0; i < 12; i++) {
		for (uint32_t n = 3; n <= 6; n++)
			bed_beat(b, n, 0);
		metad_bed_sleep(b, 1000);
	}
	s = bed_status(b);
	ck_assert_str_eq(s->servers[1]->state, "down");
	ck_assert_str_eq(s->servers[2]->state, "up");
	ck_assert_uint_eq(s->blocks->at_risk, 2);
	ck_assert(bed_has_reason(s, "blocks-at-risk"));
	ck_assert_str_eq(s->health, "warn");
	ck_assert(!bed_beat(b, 3, BED_BEAT_FAILED));
	metad_bed_sleep(b, 100); /* a heartbeat is answered before what it says is durable */
	s = bed_status(b);
	ck_assert_str_eq(s->health, "error");
	ck_assert_uint_eq(s->blocks->lost, 2);
	ck_assert(bed_has_reason(s, "blocks-unavailable"));
	ck_assert(!bed_has_reason(s, "blocks-lost"));
	ck_assert(bed_has_reason(s, "disk-failed"));
	ck_assert_str_eq(s->disks[2]->state, "failed");
	ck_assert_str_eq(s->disks[2]->error, "EIO on read");
	/* back again */
	ck_assert(bed_beat(b, 2, 0)); /* a server that is down is told to register */
	ck_assert_int_eq(bed_register(b, 1, b->options.secret), 0);
	ck_assert_int_eq(bed_register(b, 2, b->options.secret), 0);
	ck_assert_int_eq(bed_register(b, 3, b->options.secret), 0);
	bed_beat_all(b, 3);
	s = bed_status(b);
	ck_assert_uint_eq(s->blocks->full, 2);
	ck_assert_uint_eq(s->n_reasons, 1);
	/* what nobody can miss is not counted */
	ck_assert_int_eq(remove_path("f", false), 0);
	s = bed_status(b);
	ck_assert_uint_eq(s->blocks->full, 0);
	ck_assert_uint_eq(s->df->pending_bytes, 12ull * 4 * METAD_BED_MIB);
	ck_assert_uint_eq(s->df->file_bytes, 0);
	metad_bed_close(b);
}
END_TEST

/* Two servers move into one rack after their blocks were written: crowded is what is so now. */
START_TEST(test_crowded_by_the_domains_of_today)
{
	char rack[] = "rack-1";
	uint64_t inode;

	metad_bed_open_sim(b, 16);
	bed_register_all(b, 6);
	bed_beat_all(b, 6);
	write_file("f", &inode);
	ck_assert_uint_eq(bed_status(b)->blocks->full, 2);
	for (uint32_t i = 1; i <= 2; i++) {
		struct metad_bed_registration g;

		metad_bed_registration(b, i, b->options.secret, &g);
		g.req.domain = rack;
		auth_register(b->options.secret, metad_bed_cluster.bytes, &g.req, g.mac);
		ck_assert_int_eq(bed_call(b, &rpc_metad_register, &g.req.base), 0);
	}
	ck_assert_uint_eq(bed_status(b)->blocks->crowded, 2);
	ck_assert_uint_eq(bed_status(b)->blocks->full, 0);
	ck_assert(bed_has_reason(bed_status(b), "blocks-crowded"));
	metad_bed_close(b);
}
END_TEST

/* Another one of its name is there: but it still has chunks, and is missed. */
START_TEST(test_replaced_with_chunks)
{
	struct metad_bed_registration g;
	char name[] = "chunkd-3";
	uint64_t inode;

	metad_bed_open_sim(b, 18);
	bed_register_all(b, 6);
	bed_beat_all(b, 6);
	write_file("f", &inode);
	bed_beat(b, 3, BED_BEAT_STOPPING);
	metad_bed_registration(b, 7, b->options.secret, &g);
	g.req.name = name;
	auth_register(b->options.secret, metad_bed_cluster.bytes, &g.req, g.mac);
	ck_assert_int_eq(bed_call(b, &rpc_metad_register, &g.req.base), 0);
	metad_bed_sleep(b, 1000); /* the table has the rows, too */
	ck_assert(bed_has_reason(bed_status(b), "server-down"));
	metad_bed_close(b);
}
END_TEST

START_TEST(test_another_cluster_is_refused)
{
	struct err err = {0};

	metad_bed_open_sim(b, 9);
	ck_assert_int_eq(mkdir_path("d", false), 0);
	metad_bed_stop(b);
	b->options.cluster.bytes[0]++;
	ck_assert_int_eq(metad_bed_try_start(b, &err), ERR_WRONG_CLUSTER);
	ck_assert_ptr_nonnull(strstr(err.text, "holds the metadata of cluster"));
	b->options.cluster.bytes[0]--;
	metad_bed_start(b);
	ck_assert_int_eq(lookup("d"), 0);
	metad_bed_close(b);
}
END_TEST

START_TEST(test_stops_when_the_log_fails)
{
	metad_bed_open_sim(b, 10);
	ck_assert_int_eq(mkdir_path("d", false), 0);
	sim_fault_after(b->server_io, SIM_FAULT_WRITE, 1, ERR_IO);
	ck_assert_int_lt(mkdir_path("e", false), 0);
	ck_assert_int_ne(b->fatal, 0);
	ck_assert_int_eq(lookup("d"), ERR_STOPPED);
	metad_bed_stop(b);
	b->fatal = 0;
	metad_bed_start(b); /* and what was acknowledged is there */
	ck_assert_int_eq(lookup("d"), 0);
	metad_bed_close(b);
}
END_TEST

/* Reading the whole table holds what was freed meanwhile: of that there may be so much, and no more. */
START_TEST(test_reading_the_table_gives_way)
{
	static const uint64_t MIB = 1 << 20;

	ck_assert(!metad__table_check_gives_way(0, 64 * MIB));
	ck_assert(metad__table_check_gives_way(0, 64 * MIB + 1));
	ck_assert(!metad__table_check_gives_way(8192 * MIB, (8192 + 1024 + 64) * MIB));
	ck_assert(metad__table_check_gives_way(8192 * MIB, (8192 + 1024 + 65) * MIB));
	ck_assert(!metad__table_check_gives_way(8192 * MIB, 4096 * MIB));
}
END_TEST

UNIT_MAIN("metad", test_replaced_with_chunks, test_reading_the_table_gives_way, test_names, test_names_on_a_real_loop, test_policy_and_attributes, test_allocate,
	test_create_with_first_block, test_write_and_layout, test_receipts_of_an_older_generation_do_not_count,
	test_forged_receipts_of_the_next_generation, test_status, test_crowded_by_the_domains_of_today,
	test_another_cluster_is_refused, test_stops_when_the_log_fails)
