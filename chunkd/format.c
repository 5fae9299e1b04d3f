/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The superblock names the disk and holds the secret of its trailers. It is replaced whole (a new file and a rename), so that a crash
 * leaves the old one or the new one; its CRC tells a damaged one.
 *
 * A trailer makes a chunk self-describing: with the index lost, a scan of the segments finds every sealed chunk. User bytes lie beside
 * trailers at the same grain, so a CRC would not do: whoever can store bytes could store a trailer. Hence an HMAC under a secret that
 * never leaves the disk. It lies in the trailer's last bytes and covers head and lists; the padding between is zeros: damage of any byte
 * shows. (Version 1 had the padding hashed as well, which took longer than all the rest of sealing a small chunk.)
 *
 * Nothing here trusts a length: the size of each list follows from policy, cell and block length, and must be what is there.
 */
#include "chunkd/format.h"

#include <string.h>
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/cursor.h"
#include "common/code/ec.h"
#include "common/code/stripe.h"
#include "common/code/token.h"

#define SUPERBLOCK_MAGIC 0x3142534e54415243ull /* "CRATNSB1" */
#define TRAILER_MAGIC 0x4c545243u              /* "CRTL" */

enum { TRAILER_VERSION = 2, TRAILER_VERSION_PADDING_HASHED = 1, TRAILER_LISTS_AT = 80 };

_Static_assert((int)FORMAT_MAC_BYTES == (int)TOKEN_MAC_BYTES && (int)FORMAT_SECRET_BYTES == (int)TOKEN_KEY_BYTES,
	"trailers use token_hmac");
_Static_assert(
	FORMAT_TRAILER_HEAD_BYTES + (1 + LIMIT_K) * LIMIT_UNITS_PER_CHUNK * 4 + FORMAT_MAC_BYTES <= LIMIT_TRAILER_BYTES,
	"the greatest trailer fits its bound");

void format_superblock_encode(const struct format_superblock *sb, uint8_t ret_bytes[FORMAT_SUPERBLOCK_BYTES])
{
	struct wcursor w;

	wcursor_init(&w, ret_bytes, FORMAT_SUPERBLOCK_BYTES);
	wcursor_u64(&w, SUPERBLOCK_MAGIC);
	wcursor_u32(&w, FORMAT_VERSION);
	wcursor_u32(&w, FORMAT_SUPERBLOCK_BYTES);
	wcursor_bytes(&w, sb->cluster.bytes, sizeof(sb->cluster.bytes));
	wcursor_bytes(&w, sb->disk_uuid.bytes, sizeof(sb->disk_uuid.bytes));
	wcursor_u32(&w, sb->disk);
	wcursor_u32(&w, sb->storage_class);
	wcursor_u64(&w, sb->generation);
	wcursor_bytes(&w, sb->secret, sizeof(sb->secret));
	wcursor_u64(&w, sb->segment_bytes);
	wcursor_u64(&w, sb->features);
	wcursor_u64(&w, sb->features_compat);
	wcursor_u64(&w, (uint64_t)sb->created_ns);
	wcursor_zeros(&w, FORMAT_SUPERBLOCK_BYTES - 4 - w.len);
	wcursor_u32(&w, crc32c(ret_bytes, FORMAT_SUPERBLOCK_BYTES - 4));
	CHECK(!w.failed && w.len == FORMAT_SUPERBLOCK_BYTES);
}

int format_superblock_decode(struct slice bytes, struct format_superblock *ret_sb, struct err *err)
{
	struct format_superblock sb = {0};
	struct rcursor r;
	uint32_t version, size, crc;

	if (bytes.len != FORMAT_SUPERBLOCK_BYTES)
		return err_set(err, ERR_FORMAT, "the superblock has %zu bytes instead of %d", bytes.len,
			FORMAT_SUPERBLOCK_BYTES);
	rcursor_init(&r, bytes.data + bytes.len - 4, 4);
	crc = rcursor_u32(&r);
	rcursor_init(&r, bytes.data, bytes.len);
	if (rcursor_u64(&r) != SUPERBLOCK_MAGIC)
		return err_set(err, ERR_FORMAT, "the superblock is not one of a Craton disk");
	version = rcursor_u32(&r);
	size = rcursor_u32(&r);
	/* Before the CRC: another version may keep it elsewhere. */
	if (version != FORMAT_VERSION)
		return err_set(err, ERR_VERSION,
			"the disk's format has version %u, this program knows %d: use a newer one", version,
			FORMAT_VERSION);
	if (crc != crc32c(bytes.data, bytes.len - 4) || size != FORMAT_SUPERBLOCK_BYTES)
		return err_set(err, ERR_CORRUPT, "the superblock is damaged (checksum mismatch)");
	rcursor_copy(&r, sb.cluster.bytes, sizeof(sb.cluster.bytes));
	rcursor_copy(&r, sb.disk_uuid.bytes, sizeof(sb.disk_uuid.bytes));
	sb.disk = rcursor_u32(&r);
	sb.storage_class = rcursor_u32(&r);
	sb.generation = rcursor_u64(&r);
	rcursor_copy(&r, sb.secret, sizeof(sb.secret));
	sb.segment_bytes = rcursor_u64(&r);
	sb.features = rcursor_u64(&r);
	sb.features_compat = rcursor_u64(&r);
	sb.created_ns = (int64_t)rcursor_u64(&r);
	if (sb.features)
		return err_set(err, ERR_VERSION,
			"the disk uses features (bits %#llx) that this program does not know: use a newer one",
			(unsigned long long)sb.features);
	if (sb.segment_bytes < FORMAT_SEGMENT_BYTES_MIN || sb.segment_bytes > FORMAT_SEGMENT_BYTES_MAX ||
		sb.segment_bytes % FORMAT_GRAIN_BYTES)
		return err_set(err, ERR_FORMAT, "the superblock names a segment size of %llu bytes, which cannot be",
			(unsigned long long)sb.segment_bytes);
	*ret_sb = sb;
	return 0;
}

/* ---- trailers ---- */

/* Sum of the data chunks' unit counts; *ret_before: of those before `index`. */
static size_t data_units(const struct stripe_geom *g, uint8_t index, size_t *ret_before)
{
	uint8_t count = stripe_data_chunks(g);
	size_t sum = 0;

	*ret_before = 0;
	for (uint8_t i = 0; i < count; i++) {
		if (i == index)
			*ret_before = sum;
		sum += stripe_unit_count(stripe_chunk_len(g, i));
	}
	return sum;
}

int format_trailer_check(const struct format_trailer *t)
{
	const struct ec_policy *policy = ec_policy_by_id(t->policy);
	struct stripe_geom g;
	size_t before, lists = 0;

	if (!policy || t->copy.index >= policy->k + policy->m || t->copy.block == 0)
		return ERR_INVAL;
	if (t->cell_bytes == 0 || t->cell_bytes > LIMIT_CELL_BYTES || t->cell_bytes % LIMIT_UNIT_BYTES)
		return ERR_INVAL;
	if (t->block_length == 0 || t->block_length > (uint64_t)policy->k * LIMIT_CHUNK_BYTES)
		return ERR_INVAL;
	g = (struct stripe_geom){
		.k = policy->k, .m = policy->m, .cell_bytes = t->cell_bytes, .length = t->block_length};
	if (t->length == 0 || t->length > LIMIT_CHUNK_BYTES || t->length != stripe_chunk_len(&g, t->copy.index))
		return ERR_INVAL;
	if (t->copy.index >= policy->k)
		lists = data_units(&g, 0, &before) * 4;
	if (t->list.len != (size_t)stripe_unit_count(t->length) * 4 || t->data_lists.len != lists)
		return ERR_INVAL;
	return 0;
}

size_t format_trailer_bytes(size_t list_bytes, size_t data_lists_bytes)
{
	return format_round(FORMAT_TRAILER_HEAD_BYTES + list_bytes + data_lists_bytes + FORMAT_MAC_BYTES);
}

size_t format_trailer_bound(uint8_t policy_id, uint8_t index, uint64_t announced)
{
	const struct ec_policy *policy = ec_policy_by_id(policy_id);
	size_t list_bytes;

	if (!policy || index >= policy->k + policy->m || announced > LIMIT_CHUNK_BYTES)
		return 0;
	list_bytes = (size_t)stripe_unit_count(announced) * 4;
	return format_trailer_bytes(list_bytes, index < policy->k ? 0 : policy->k * list_bytes);
}

void format_trailer_encode(const struct format_trailer *t, const struct hmac_key *key, uint8_t *out)
{
	size_t bytes = format_trailer_bytes(t->list.len, t->data_lists.len), used;
	struct wcursor w;

	wcursor_init(&w, out, bytes);
	wcursor_u32(&w, TRAILER_MAGIC);
	wcursor_u16(&w, TRAILER_VERSION);
	wcursor_u16(&w, FORMAT_TRAILER_HEAD_BYTES);
	wcursor_u32(&w, (uint32_t)bytes);
	wcursor_u32(&w, 0); /* flags */
	wcursor_u64(&w, t->copy.block);
	wcursor_u32(&w, t->copy.incarnation);
	wcursor_u8(&w, t->copy.index);
	wcursor_u8(&w, t->policy);
	wcursor_u8(&w, 0); /* key id: not sealed by the client */
	wcursor_u8(&w, 0); /* bytes of authentication tag a unit */
	wcursor_u64(&w, t->length);
	wcursor_u64(&w, t->block_length);
	wcursor_u32(&w, t->cell_bytes);
	wcursor_u32(&w, t->chunk_crc);
	wcursor_u32(&w, t->disk);
	wcursor_u32(&w, t->segment);
	wcursor_u64(&w, t->offset);
	wcursor_u64(&w, t->sequence);
	wcursor_u32(&w, (uint32_t)t->list.len);
	wcursor_u32(&w, (uint32_t)t->data_lists.len);
	wcursor_zeros(&w, FORMAT_TRAILER_HEAD_BYTES - w.len);
	wcursor_bytes(&w, t->list.data, t->list.len);
	wcursor_bytes(&w, t->data_lists.data, t->data_lists.len);
	used = w.len;
	wcursor_zeros(&w, bytes - FORMAT_MAC_BYTES - w.len);
	CHECK(!w.failed && w.len == bytes - FORMAT_MAC_BYTES);
	token_hmac(key, out, used, out + w.len);
}

static bool same_mac(const uint8_t *a, const uint8_t *b)
{
	uint8_t diff = 0;

	for (int i = 0; i < FORMAT_MAC_BYTES; i++)
		diff |= a[i] ^ b[i];
	return diff == 0;
}

/* Of both lists together, as the head says; it is all there. */
static uint64_t trailer_list_bytes(struct slice bytes)
{
	struct rcursor r;
	uint64_t list_bytes;

	rcursor_init(&r, bytes.data, bytes.len);
	(void)rcursor_slice(&r, TRAILER_LISTS_AT);
	list_bytes = rcursor_u32(&r);
	return list_bytes + rcursor_u32(&r);
}

static bool all_zeros(const uint8_t *bytes, size_t len)
{
	return len == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, len - 1) == 0);
}

/* `used`: head and lists. */
static bool is_ours(const uint8_t *bytes, uint16_t version, size_t used, size_t size, const struct hmac_key *key)
{
	size_t hashed = version == TRAILER_VERSION_PADDING_HASHED ? size - FORMAT_MAC_BYTES : used;
	uint8_t mac[FORMAT_MAC_BYTES];

	token_hmac(key, bytes, hashed, mac);
	return same_mac(mac, bytes + size - FORMAT_MAC_BYTES) &&
		all_zeros(bytes + used, size - FORMAT_MAC_BYTES - used);
}

int format_trailer_decode(struct slice bytes, const struct hmac_key *key, struct format_trailer *ret_trailer)
{
	struct format_trailer t = {0};
	uint32_t size, list_bytes, data_bytes;
	uint16_t version;
	struct rcursor r;
	uint64_t used;

	rcursor_init(&r, bytes.data, bytes.len);
	if (rcursor_u32(&r) != TRAILER_MAGIC)
		return ERR_TRAILER_CORRUPT;
	version = rcursor_u16(&r);
	if (version < TRAILER_VERSION_PADDING_HASHED || version > TRAILER_VERSION ||
		rcursor_u16(&r) != FORMAT_TRAILER_HEAD_BYTES)
		return ERR_TRAILER_CORRUPT;
	size = rcursor_u32(&r);
	if (size > bytes.len || size > LIMIT_TRAILER_BYTES || size < FORMAT_GRAIN_BYTES || size % FORMAT_GRAIN_BYTES)
		return ERR_TRAILER_CORRUPT;
	used = FORMAT_TRAILER_HEAD_BYTES + trailer_list_bytes(bytes);
	if (used > size - FORMAT_MAC_BYTES || !is_ours(bytes.data, version, used, size, key))
		return ERR_TRAILER_CORRUPT;
	/* From here on the bytes are ours; they are still checked: a bug of an older build must not become a crash of this one. */
	(void)rcursor_u32(&r);
	t.copy.block = rcursor_u64(&r);
	t.copy.incarnation = rcursor_u32(&r);
	t.copy.index = rcursor_u8(&r);
	t.policy = rcursor_u8(&r);
	(void)rcursor_u8(&r);
	if (rcursor_u8(&r) != 0)
		return ERR_TRAILER_CORRUPT;
	t.length = rcursor_u64(&r);
	t.block_length = rcursor_u64(&r);
	t.cell_bytes = rcursor_u32(&r);
	t.chunk_crc = rcursor_u32(&r);
	t.disk = rcursor_u32(&r);
	t.segment = rcursor_u32(&r);
	t.offset = rcursor_u64(&r);
	t.sequence = rcursor_u64(&r);
	list_bytes = rcursor_u32(&r);
	data_bytes = rcursor_u32(&r);
	(void)rcursor_slice(&r, FORMAT_TRAILER_HEAD_BYTES - r.pos);
	t.list = rcursor_slice(&r, list_bytes);
	t.data_lists = rcursor_slice(&r, data_bytes);
	if (r.failed || r.pos != used || format_trailer_check(&t) < 0)
		return ERR_TRAILER_CORRUPT;
	*ret_trailer = t;
	return 0;
}

size_t format_trailer_peek(const uint8_t grain[FORMAT_GRAIN_BYTES], uint32_t segment, uint64_t at)
{
	uint32_t magic, size, own_segment, list_bytes, data_bytes;
	uint64_t length, offset;
	struct rcursor r;

	rcursor_init(&r, grain, FORMAT_GRAIN_BYTES);
	magic = rcursor_u32(&r);
	(void)rcursor_u32(&r);
	size = rcursor_u32(&r);
	(void)rcursor_slice(&r, 20);
	length = rcursor_u64(&r);
	(void)rcursor_slice(&r, 20);
	own_segment = rcursor_u32(&r);
	offset = rcursor_u64(&r);
	(void)rcursor_u64(&r);
	list_bytes = rcursor_u32(&r);
	data_bytes = rcursor_u32(&r);
	if (magic != TRAILER_MAGIC || own_segment != segment || length > LIMIT_CHUNK_BYTES || offset > at ||
		offset % FORMAT_GRAIN_BYTES || at - offset != format_round(length))
		return 0;
	if (list_bytes > LIMIT_TRAILER_BYTES || data_bytes > LIMIT_TRAILER_BYTES || size > LIMIT_TRAILER_BYTES ||
		size != format_trailer_bytes(list_bytes, data_bytes))
		return 0;
	return size;
}

struct slice format_trailer_data_list(const struct format_trailer *t, uint8_t index)
{
	const struct ec_policy *policy = ec_policy_by_id(t->policy);
	struct stripe_geom g;
	size_t before, bytes;

	if (!policy || t->data_lists.len == 0)
		return slice_of(NULL, 0);
	g = (struct stripe_geom){
		.k = policy->k, .m = policy->m, .cell_bytes = t->cell_bytes, .length = t->block_length};
	if (index >= stripe_data_chunks(&g))
		return slice_of(NULL, 0);
	(void)data_units(&g, index, &before);
	bytes = (size_t)stripe_unit_count(stripe_chunk_len(&g, index)) * 4;
	return slice_of(t->data_lists.data + before * 4, bytes);
}
