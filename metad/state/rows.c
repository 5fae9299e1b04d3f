/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows: encodings, little-endian, in the order of the structs. A decoder accepts exactly what its encoder writes: right
 * version, flags that are known, lengths that end with the value. Texts are a u8 length and bytes without NUL.
 */
#include "metad/state/rows.h"

#include "common/base/check.h"
#include "common/base/cursor.h"
#include "common/base/err.h"
#include "common/code/ec.h"
#include "metad/state/cmd.h"

enum {
	ROW_VERSION = 1,
	BLOCK_VERSION = 2,       /* 1 had neither the counter of incarnations nor the time of the commit */
	DISK_VERSION = 2,        /* 1 had neither the time of going down nor that of being taken out */
	META_VERSION = 4,        /* 1 had no next session; 3 has the fields of 2; 4 has the digest */
	INODE_VERSION = 2,       /* 1 had neither lease, holes, tail nor attributes */
	MAINTENANCE_VERSION = 2, /* 1 had no number of restores */
	CHUNK_PRESENT = 1,
	CHUNK_DAMAGED = 2,
};

/* The longest: a disk with path and error. */
_Static_assert(
	1 + 4 + 4 + 1 + 1 + 16 + 8 * 3 + STATE_SALT_BYTES + 2 * STATE_TEXT_BYTES + 17 <= STATE_ROW_BYTES, "disk row");
_Static_assert(1 + 4 + 1 + 16 + 3 * STATE_TEXT_BYTES <= STATE_ROW_BYTES, "server row");
_Static_assert(64 + 13 * LIMIT_WIDTH <= STATE_ROW_BYTES, "block row");
_Static_assert(160 + LIMIT_NAME_BYTES <= STATE_ROW_BYTES, "inode row");

static void row_begin_version(struct wcursor *w, uint8_t out[STATE_ROW_BYTES], uint8_t version)
{
	wcursor_init(w, out, STATE_ROW_BYTES);
	wcursor_u8(w, version);
}

static void row_begin(struct wcursor *w, uint8_t out[STATE_ROW_BYTES])
{
	row_begin_version(w, out, ROW_VERSION);
}

static size_t row_end(const struct wcursor *w)
{
	CHECK(!w->failed);
	return w->len;
}

/* The version, at most `newest`; a cursor behind it, one that has failed if that is unknown. */
static uint8_t row_open_version(struct rcursor *r, struct slice value, uint8_t newest)
{
	uint8_t version;

	rcursor_init(r, value.data, value.len);
	version = rcursor_u8(r);
	if (version == 0 || version > newest)
		r->failed = true;
	return version;
}

static void row_open(struct rcursor *r, struct slice value)
{
	row_open_version(r, value, ROW_VERSION);
}

static int row_close(const struct rcursor *r, bool plausible)
{
	return rcursor_done(r) && plausible ? 0 : ERR_CORRUPT;
}

static void put_text(struct wcursor *w, const char text[STATE_TEXT_BYTES])
{
	size_t len = strnlen(text, STATE_TEXT_BYTES);

	CHECK(len < STATE_TEXT_BYTES);
	wcursor_u8(w, (uint8_t)len);
	wcursor_bytes(w, text, len);
}

static void get_text(struct rcursor *r, char text[STATE_TEXT_BYTES])
{
	size_t len = rcursor_u8(r);

	memset(text, 0, STATE_TEXT_BYTES);
	rcursor_copy(r, text, len);
	if (memchr(text, 0, len))
		r->failed = true;
}

static void put_policy(struct wcursor *w, const struct state_policy *p)
{
	wcursor_u8(w, p->id);
	wcursor_u32(w, p->cell_bytes);
	wcursor_u64(w, p->chunk_bytes);
}

static void get_policy(struct rcursor *r, struct state_policy *p)
{
	p->id = rcursor_u8(r);
	p->cell_bytes = rcursor_u32(r);
	p->chunk_bytes = rcursor_u64(r);
	if (p->id && !ec_policy_by_id(p->id))
		r->failed = true;
}

static uint8_t meta_version(const struct state_meta *row)
{
	if (row->version >= STATE_CLUSTER_DIGEST)
		return META_VERSION;
	return row->version >= STATE_CLUSTER_GATED ? 3 : 2;
}

size_t state_meta_encode(const struct state_meta *row, uint8_t out[STATE_ROW_BYTES])
{
	struct wcursor w;

	row_begin_version(&w, out, meta_version(row));
	wcursor_bytes(&w, row->cluster.bytes, sizeof(row->cluster.bytes));
	wcursor_u16(&w, row->version);
	wcursor_u64(&w, row->time_ms);
	wcursor_u64(&w, row->next_inode);
	wcursor_u64(&w, row->next_block);
	wcursor_u64(&w, row->floor);
	wcursor_u32(&w, row->next_disk);
	wcursor_u32(&w, row->next_server);
	wcursor_u32(&w, row->next_domain);
	wcursor_u64(&w, row->file_count);
	wcursor_u64(&w, row->dir_count);
	wcursor_u64(&w, row->file_bytes);
	wcursor_u64(&w, row->pending_bytes);
	wcursor_u64(&w, row->next_session);
	for (int i = 0; i < STATE_TOKEN_KEYS; i++) {
		wcursor_u8(&w, row->token_keys[i].id);
		wcursor_bytes(&w, row->token_keys[i].salt, STATE_SALT_BYTES);
		wcursor_u64(&w, row->token_keys[i].created_ms);
	}
	if (row->version >= STATE_CLUSTER_DIGEST)
		wcursor_u32(&w, row->digest);
	return row_end(&w);
}

bool state_meta_is_newer(struct slice value)
{
	return value.len > 0 && value.data[0] > META_VERSION;
}

int state_meta_decode(struct slice value, struct state_meta *ret_row)
{
	struct rcursor r;
	uint8_t version = row_open_version(&r, value, META_VERSION);

	rcursor_copy(&r, ret_row->cluster.bytes, sizeof(ret_row->cluster.bytes));
	ret_row->version = rcursor_u16(&r);
	ret_row->time_ms = rcursor_u64(&r);
	ret_row->next_inode = rcursor_u64(&r);
	ret_row->next_block = rcursor_u64(&r);
	ret_row->floor = rcursor_u64(&r);
	ret_row->next_disk = rcursor_u32(&r);
	ret_row->next_server = rcursor_u32(&r);
	ret_row->next_domain = rcursor_u32(&r);
	ret_row->file_count = rcursor_u64(&r);
	ret_row->dir_count = rcursor_u64(&r);
	ret_row->file_bytes = rcursor_u64(&r);
	ret_row->pending_bytes = rcursor_u64(&r);
	ret_row->next_session = version >= 2 ? rcursor_u64(&r) : 1;
	for (int i = 0; i < STATE_TOKEN_KEYS; i++) {
		ret_row->token_keys[i].id = rcursor_u8(&r);
		rcursor_copy(&r, ret_row->token_keys[i].salt, STATE_SALT_BYTES);
		ret_row->token_keys[i].created_ms = rcursor_u64(&r);
	}
	ret_row->digest = version >= 4 ? rcursor_u32(&r) : 0;
	return row_close(&r,
		(version == meta_version(ret_row) || version == 1) && ret_row->floor <= ret_row->next_block &&
			ret_row->token_keys[0].id != 0);
}

size_t state_inode_encode(const struct state_inode *row, uint8_t out[STATE_ROW_BYTES])
{
	struct wcursor w;

	row_begin_version(&w, out, INODE_VERSION);
	wcursor_u8(&w, row->type);
	wcursor_u8(&w, row->flags);
	wcursor_u32(&w, row->mode);
	wcursor_u32(&w, row->uid);
	wcursor_u32(&w, row->gid);
	wcursor_u32(&w, row->nlink);
	wcursor_u64(&w, row->size);
	wcursor_u64(&w, (uint64_t)row->mtime_ns);
	wcursor_u64(&w, (uint64_t)row->ctime_ns);
	wcursor_u64(&w, row->parent);
	put_policy(&w, &row->policy);
	wcursor_u16(&w, row->xattr_count);
	wcursor_u32(&w, row->xattr_bytes);
	if (row->type != STATE_TYPE_DIR) {
		wcursor_u64(&w, row->epoch);
		wcursor_u64(&w, row->lease);
		wcursor_u64(&w, row->stored_bytes);
		wcursor_u64(&w, row->hole_bytes);
		wcursor_u64(&w, row->end_bytes);
		wcursor_u64(&w, row->raw_bytes);
		wcursor_u64(&w, row->tail_offset);
		wcursor_u32(&w, row->tail_bytes);
		wcursor_u8(&w, row->name_len);
		wcursor_bytes(&w, row->name, row->name_len);
	}
	return row_end(&w);
}

int state_inode_decode(struct slice value, uint64_t id, struct state_inode *ret_row)
{
	struct rcursor r;
	uint8_t version = row_open_version(&r, value, INODE_VERSION);

	ret_row->id = id;
	ret_row->type = rcursor_u8(&r);
	ret_row->flags = rcursor_u8(&r);
	ret_row->mode = rcursor_u32(&r);
	ret_row->uid = rcursor_u32(&r);
	ret_row->gid = rcursor_u32(&r);
	ret_row->nlink = rcursor_u32(&r);
	ret_row->size = rcursor_u64(&r);
	ret_row->mtime_ns = (int64_t)rcursor_u64(&r);
	ret_row->ctime_ns = (int64_t)rcursor_u64(&r);
	ret_row->parent = rcursor_u64(&r);
	get_policy(&r, &ret_row->policy);
	ret_row->xattr_count = version >= 2 ? rcursor_u16(&r) : 0;
	ret_row->xattr_bytes = version >= 2 ? rcursor_u32(&r) : 0;
	ret_row->epoch = ret_row->lease = ret_row->stored_bytes = ret_row->hole_bytes = ret_row->end_bytes = 0;
	ret_row->raw_bytes = ret_row->tail_offset = 0;
	ret_row->tail_bytes = 0;
	ret_row->name_len = 0;
	if (ret_row->type != STATE_TYPE_DIR) {
		ret_row->epoch = rcursor_u64(&r);
		ret_row->lease = version >= 2 ? rcursor_u64(&r) : 0;
		ret_row->stored_bytes = rcursor_u64(&r);
		ret_row->hole_bytes = version >= 2 ? rcursor_u64(&r) : 0;
		ret_row->end_bytes = rcursor_u64(&r);
		ret_row->raw_bytes = rcursor_u64(&r);
		ret_row->tail_offset = version >= 2 ? rcursor_u64(&r) : 0;
		ret_row->tail_bytes = version >= 2 ? rcursor_u32(&r) : 0;
		ret_row->name_len = rcursor_u8(&r);
		rcursor_copy(&r, ret_row->name, ret_row->name_len);
	}
	return row_close(&r,
		ret_row->type >= STATE_TYPE_FILE && ret_row->type <= STATE_TYPE_SYMLINK &&
			!(ret_row->flags & ~STATE_INODE_FLAGS) && ret_row->tail_bytes <= LIMIT_TAIL_BYTES);
}

size_t state_dirent_encode(const struct state_dirent *row, uint8_t out[STATE_ROW_BYTES])
{
	struct wcursor w;

	row_begin(&w, out);
	wcursor_u8(&w, row->type);
	wcursor_u64(&w, row->inode);
	return row_end(&w);
}

int state_dirent_decode(struct slice value, struct state_dirent *ret_row)
{
	struct rcursor r;

	row_open(&r, value);
	ret_row->type = rcursor_u8(&r);
	ret_row->inode = rcursor_u64(&r);
	return row_close(&r, ret_row->type >= STATE_TYPE_FILE && ret_row->type <= STATE_TYPE_SYMLINK);
}

size_t state_extent_encode(const struct state_extent *row, uint8_t out[STATE_ROW_BYTES])
{
	struct wcursor w;

	row_begin(&w, out);
	wcursor_u64(&w, row->length);
	wcursor_u64(&w, row->block);
	wcursor_u64(&w, row->block_offset);
	return row_end(&w);
}

int state_extent_decode(struct slice value, uint64_t end, struct state_extent *ret_row)
{
	struct rcursor r;

	row_open(&r, value);
	ret_row->length = rcursor_u64(&r);
	ret_row->block = rcursor_u64(&r);
	ret_row->block_offset = rcursor_u64(&r);
	ret_row->offset = end - ret_row->length;
	return row_close(&r, ret_row->length > 0 && ret_row->length <= end);
}

size_t state_block_encode(const struct state_block *row, uint8_t out[STATE_ROW_BYTES])
{
	struct wcursor w;

	row_begin_version(&w, out, BLOCK_VERSION);
	wcursor_u8(&w, row->policy);
	wcursor_u8(&w, row->crowded);
	wcursor_u32(&w, row->cell_bytes);
	wcursor_u64(&w, row->length);
	wcursor_u32(&w, row->refcount);
	wcursor_u32(&w, row->version);
	wcursor_u64(&w, row->inode);
	wcursor_u64(&w, row->file_offset);
	wcursor_u32(&w, row->next_incarnation);
	wcursor_u64(&w, row->time_ms);
	for (int i = 0; i < row->width; i++) {
		const struct state_chunk *c = &row->chunks[i];

		wcursor_u32(&w, c->disk);
		wcursor_u32(&w, c->incarnation);
		wcursor_u32(&w, c->crc);
		wcursor_u8(&w, (uint8_t)((c->present ? CHUNK_PRESENT : 0) | (c->damaged ? CHUNK_DAMAGED : 0)));
	}
	return row_end(&w);
}

int state_block_decode(struct slice value, uint64_t id, struct state_block *ret_row)
{
	const struct ec_policy *policy;
	struct rcursor r;
	uint8_t crowded, version = row_open_version(&r, value, BLOCK_VERSION);

	ret_row->id = id;
	ret_row->policy = rcursor_u8(&r);
	crowded = rcursor_u8(&r);
	ret_row->crowded = crowded != 0;
	ret_row->cell_bytes = rcursor_u32(&r);
	ret_row->length = rcursor_u64(&r);
	ret_row->refcount = rcursor_u32(&r);
	ret_row->version = rcursor_u32(&r);
	ret_row->inode = rcursor_u64(&r);
	ret_row->file_offset = rcursor_u64(&r);
	ret_row->next_incarnation = version < 2 ? STATE_INCARNATIONS_ALLOCATED : rcursor_u32(&r);
	ret_row->time_ms = version < 2 ? 0 : rcursor_u64(&r);
	policy = ec_policy_by_id(ret_row->policy);
	if (r.failed || !policy || crowded > 1 || ret_row->next_incarnation < STATE_INCARNATIONS_ALLOCATED)
		return ERR_CORRUPT;
	ret_row->width = (uint8_t)(policy->k + policy->m);
	for (int i = 0; i < ret_row->width; i++) {
		struct state_chunk *c = &ret_row->chunks[i];
		uint8_t flags;

		c->disk = rcursor_u32(&r);
		c->incarnation = rcursor_u32(&r);
		c->crc = rcursor_u32(&r);
		flags = rcursor_u8(&r);
		c->present = flags & CHUNK_PRESENT;
		c->damaged = flags & CHUNK_DAMAGED;
		if (flags > (version < 2 ? CHUNK_PRESENT : CHUNK_PRESENT | CHUNK_DAMAGED) || flags == CHUNK_DAMAGED ||
			(c->present && c->disk == 0))
			return ERR_CORRUPT;
	}
	return row_close(&r,
		ret_row->cell_bytes > 0 && ret_row->cell_bytes % LIMIT_UNIT_BYTES == 0 &&
			ret_row->cell_bytes <= LIMIT_CELL_BYTES && ret_row->length > 0 &&
			ret_row->length <= (uint64_t)policy->k * LIMIT_CHUNK_BYTES);
}

size_t state_disk_encode(const struct state_disk *row, uint8_t out[STATE_ROW_BYTES])
{
	struct wcursor w;

	row_begin_version(&w, out, DISK_VERSION);
	wcursor_u32(&w, row->server);
	wcursor_u32(&w, row->domain);
	wcursor_u8(&w, row->state);
	wcursor_u8(&w, row->storage_class);
	wcursor_bytes(&w, row->uuid.bytes, sizeof(row->uuid.bytes));
	wcursor_u64(&w, row->generation);
	wcursor_u64(&w, row->confirmed);
	wcursor_u64(&w, row->capacity_bytes);
	wcursor_bytes(&w, row->salt, sizeof(row->salt));
	put_text(&w, row->path);
	put_text(&w, row->error);
	wcursor_u64(&w, row->down_ms);
	wcursor_u8(&w, (uint8_t)(row->out | row->left << 1));
	wcursor_u64(&w, row->out_ms);
	return row_end(&w);
}

int state_disk_decode(struct slice value, uint32_t id, struct state_disk *ret_row)
{
	struct rcursor r;
	uint8_t out, version = row_open_version(&r, value, DISK_VERSION);

	ret_row->id = id;
	ret_row->server = rcursor_u32(&r);
	ret_row->domain = rcursor_u32(&r);
	ret_row->state = rcursor_u8(&r);
	ret_row->storage_class = rcursor_u8(&r);
	rcursor_copy(&r, ret_row->uuid.bytes, sizeof(ret_row->uuid.bytes));
	ret_row->generation = rcursor_u64(&r);
	ret_row->confirmed = rcursor_u64(&r);
	ret_row->capacity_bytes = rcursor_u64(&r);
	rcursor_copy(&r, ret_row->salt, sizeof(ret_row->salt));
	get_text(&r, ret_row->path);
	get_text(&r, ret_row->error);
	ret_row->down_ms = version < 2 ? 0 : rcursor_u64(&r);
	out = version < 2 ? 0 : rcursor_u8(&r);
	ret_row->out = out & 1;
	ret_row->left = out >> 1;
	ret_row->out_ms = version < 2 ? 0 : rcursor_u64(&r);
	return row_close(&r, ret_row->state >= STATE_DISK_UP && ret_row->state <= STATE_DISK_FAILED && out <= 3);
}

size_t state_server_encode(const struct state_server *row, uint8_t out[STATE_ROW_BYTES])
{
	struct wcursor w;

	row_begin(&w, out);
	wcursor_u32(&w, row->domain);
	wcursor_u8(&w, row->up);
	wcursor_bytes(&w, row->uuid.bytes, sizeof(row->uuid.bytes));
	put_text(&w, row->name);
	put_text(&w, row->address);
	put_text(&w, row->version);
	return row_end(&w);
}

int state_server_decode(struct slice value, uint32_t id, struct state_server *ret_row)
{
	struct rcursor r;
	uint8_t up;

	row_open(&r, value);
	ret_row->id = id;
	ret_row->domain = rcursor_u32(&r);
	up = rcursor_u8(&r);
	ret_row->up = up != 0;
	rcursor_copy(&r, ret_row->uuid.bytes, sizeof(ret_row->uuid.bytes));
	get_text(&r, ret_row->name);
	get_text(&r, ret_row->address);
	get_text(&r, ret_row->version);
	return row_close(&r, up <= 1);
}

size_t state_gc_encode(const struct state_gc *row, uint8_t out[STATE_ROW_BYTES])
{
	struct wcursor w;

	row_begin(&w, out);
	wcursor_u64(&w, row->raw_bytes);
	wcursor_u64(&w, row->time_ms);
	return row_end(&w);
}

int state_gc_decode(struct slice value, struct state_gc *ret_row)
{
	struct rcursor r;

	row_open(&r, value);
	ret_row->raw_bytes = rcursor_u64(&r);
	ret_row->time_ms = rcursor_u64(&r);
	return row_close(&r, true);
}

size_t state_drop_encode(const struct state_drop *row, uint8_t out[STATE_ROW_BYTES])
{
	struct wcursor w;

	row_begin(&w, out);
	wcursor_u64(&w, row->bytes);
	wcursor_u64(&w, row->time_ms);
	return row_end(&w);
}

int state_drop_decode(struct slice value, struct state_drop *ret_row)
{
	struct rcursor r;

	row_open(&r, value);
	ret_row->bytes = rcursor_u64(&r);
	ret_row->time_ms = rcursor_u64(&r);
	return row_close(&r, ret_row->bytes <= LIMIT_CHUNK_BYTES);
}

size_t state_orphan_encode(uint64_t raw_bytes, uint8_t out[STATE_ROW_BYTES])
{
	struct wcursor w;

	row_begin(&w, out);
	wcursor_u64(&w, raw_bytes);
	return row_end(&w);
}

int state_orphan_decode(struct slice value, uint64_t *ret_raw_bytes)
{
	struct rcursor r;

	row_open(&r, value);
	*ret_raw_bytes = rcursor_u64(&r);
	return row_close(&r, true);
}

size_t state_range_encode(const struct state_range *row, uint8_t out[STATE_ROW_BYTES])
{
	struct wcursor w;

	row_begin(&w, out);
	wcursor_u64(&w, row->count);
	wcursor_u64(&w, row->time_ms);
	return row_end(&w);
}

int state_range_decode(struct slice value, struct state_range *ret_row)
{
	struct rcursor r;

	row_open(&r, value);
	ret_row->count = rcursor_u64(&r);
	ret_row->time_ms = rcursor_u64(&r);
	return row_close(&r, ret_row->count > 0);
}

size_t state_disk_block_encode(uint16_t indices, uint8_t out[STATE_ROW_BYTES])
{
	struct wcursor w;

	row_begin(&w, out);
	wcursor_u16(&w, indices);
	return row_end(&w);
}

int state_disk_block_decode(struct slice value, uint16_t *ret_indices)
{
	struct rcursor r;

	row_open(&r, value);
	*ret_indices = rcursor_u16(&r);
	return row_close(&r, *ret_indices != 0);
}

size_t state_number_encode(uint32_t number, uint8_t out[STATE_ROW_BYTES])
{
	struct wcursor w;

	row_begin(&w, out);
	wcursor_u32(&w, number);
	return row_end(&w);
}

int state_number_decode(struct slice value, uint32_t *ret_number)
{
	struct rcursor r;

	row_open(&r, value);
	*ret_number = rcursor_u32(&r);
	return row_close(&r, *ret_number != 0);
}

size_t state_config_encode(uint64_t value, uint8_t out[STATE_ROW_BYTES])
{
	struct wcursor w;

	row_begin(&w, out);
	wcursor_u64(&w, value);
	return row_end(&w);
}

int state_config_decode(struct slice value, uint64_t *ret_value)
{
	struct rcursor r;

	row_open(&r, value);
	*ret_value = rcursor_u64(&r);
	return row_close(&r, true);
}

size_t state_intent_encode(const struct state_intent *row, uint8_t out[STATE_ROW_BYTES])
{
	struct wcursor w;

	row_begin(&w, out);
	wcursor_u8(&w, row->cause);
	wcursor_u32(&w, row->disk);
	wcursor_u32(&w, row->incarnation);
	wcursor_u64(&w, row->time_ms);
	return row_end(&w);
}

int state_intent_decode(struct slice value, uint64_t block, uint8_t index, struct state_intent *ret_row)
{
	struct rcursor r;

	row_open(&r, value);
	ret_row->block = block;
	ret_row->index = index;
	ret_row->cause = rcursor_u8(&r);
	ret_row->disk = rcursor_u32(&r);
	ret_row->incarnation = rcursor_u32(&r);
	ret_row->time_ms = rcursor_u64(&r);
	return row_close(&r,
		ret_row->cause >= STATE_CAUSE_LOST && ret_row->cause <= STATE_CAUSE_SPREAD && ret_row->disk &&
			index < LIMIT_WIDTH && ret_row->incarnation >= STATE_INCARNATIONS_ALLOCATED);
}

size_t state_restore_encode(const struct state_restore *row, uint8_t out[STATE_ROW_BYTES])
{
	struct wcursor w;

	row_begin(&w, out);
	wcursor_u32(&w, row->count);
	wcursor_u64(&w, row->first_block);
	wcursor_u64(&w, row->end_block);
	wcursor_u64(&w, row->time_ms);
	return row_end(&w);
}

int state_restore_decode(struct slice value, struct state_restore *ret_row)
{
	struct rcursor r;

	row_open(&r, value);
	ret_row->count = rcursor_u32(&r);
	ret_row->first_block = rcursor_u64(&r);
	ret_row->end_block = rcursor_u64(&r);
	ret_row->time_ms = rcursor_u64(&r);
	return row_close(&r, ret_row->count > 0 && ret_row->first_block < ret_row->end_block);
}

size_t state_maintenance_encode(const struct state_maintenance *row, uint8_t out[STATE_ROW_BYTES])
{
	struct wcursor w;

	row_begin_version(&w, out, MAINTENANCE_VERSION);
	wcursor_u64(&w, row->until_ms);
	wcursor_u32(&w, row->restores);
	return row_end(&w);
}

int state_maintenance_decode(struct slice value, struct state_maintenance *ret_row)
{
	struct rcursor r;
	uint8_t version = row_open_version(&r, value, MAINTENANCE_VERSION);

	ret_row->until_ms = rcursor_u64(&r);
	ret_row->restores = version < 2 ? 0 : rcursor_u32(&r);
	return row_close(&r, ret_row->until_ms > 0);
}
