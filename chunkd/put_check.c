/* SPDX-License-Identifier: Apache-2.0 */
#include "chunkd/put_check.h"

#include <string.h>
#include "chunkd/format.h"
#include "common/code/ec.h"
#include "common/code/stripe.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "unit CRCs are compared and kept as they come off the wire");

enum { UNITS_PER_CELL = LIMIT_CELL_BYTES / LIMIT_UNIT_BYTES };

void put_check_read(const Craton__PutRequest *m, uint32_t payload_len, struct put_request *ret_request)
{
	struct put_request r = {.offset = m->offset, .len = payload_len, .announced_bytes = m->announced_bytes};

	r.unit_crcs = slice_of(m->unit_crcs.data, m->unit_crcs.len);
	if (m->seal) {
		r.seal = true;
		r.length = m->seal->length;
		r.chunk_crc = m->seal->chunk_crc;
		r.block_length = m->seal->block_length;
		r.cell_bytes = m->seal->cell_bytes;
		r.data_lists = slice_of(m->seal->data_lists.data, m->seal->data_lists.len);
	}
	*ret_request = r;
}

int put_check_request(const struct put_request *r)
{
	if (r->len > LIMIT_CELL_BYTES || (r->len ? r->offset % LIMIT_UNIT_BYTES != 0 : !r->seal))
		return ERR_INVAL;
	if (r->announced_bytes == 0 || r->announced_bytes > LIMIT_CHUNK_BYTES || r->offset > r->announced_bytes ||
		r->len > r->announced_bytes - r->offset)
		return ERR_INVAL;
	if (r->unit_crcs.len != (size_t)stripe_unit_count(r->len) * 4)
		return ERR_INVAL;
	/* After a cell that ends within a unit only an empty seal can follow: no other offset is unit-aligned. */
	if (!r->seal)
		return 0;
	if (r->length == 0 || r->length != r->offset + r->len)
		return ERR_INVAL;
	return r->data_lists.len > LIMIT_TRAILER_BYTES ? ERR_INVAL : 0;
}

int put_check_bytes(const struct put_request *r, const uint8_t *data, uint32_t *ret_crcs)
{
	uint32_t units = stripe_unit_count(r->len), crcs[UNITS_PER_CELL];

	ec_unit_crcs(data, r->len, crcs);
	stripe_mask_units(r->copy.block, r->copy.index, (uint32_t)(r->offset / LIMIT_UNIT_BYTES), units, crcs);
	if (memcmp(crcs, r->unit_crcs.data, units * sizeof(crcs[0])) != 0)
		return ERR_CORRUPT;
	memcpy(ret_crcs, crcs, units * sizeof(crcs[0]));
	return 0;
}

int put_check_seal(const struct put_request *r, uint8_t policy, const uint32_t *crcs)
{
	struct format_trailer t = {
		.copy = r->copy,
		.policy = policy,
		.length = r->length,
		.block_length = r->block_length,
		.cell_bytes = r->cell_bytes,
		.list = slice_of(crcs, (size_t)stripe_unit_count(r->length) * 4),
		.data_lists = r->data_lists,
	};

	if (format_trailer_check(&t) < 0)
		return ERR_INVAL;
	return stripe_combine(r->copy.block, r->copy.index, r->length, crcs) == r->chunk_crc ? 0 : ERR_CORRUPT;
}
