/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire_listing: entries of a ReaddirReply, packed by hand. A listing has a thousand messages in it; making each of them only to have it
 * packed took most of a listing's time. The bytes are those of protobuf-c: what is zero is left out, fields come in their order.
 */
#include "metad/core.h"

#include <string.h>

enum {
	VARINT = 0,
	BYTES = 2,
	ENTRY_FIELD = 1, /* ReaddirReply */
	END_FIELD = 2,
	NAME_FIELD = 1, /* Dirent */
	ATTR_FIELD = 2,
	ATTR_BYTES = 10 + 4 * 10 + 5 * 5 + 1, /* tags; four values of 64 bits, five of 32, one flag */
	LENGTH_BYTES = 2,
};
_Static_assert(ATTR_BYTES < 128, "its length is one byte");
_Static_assert(1 + LENGTH_BYTES + 1 + LENGTH_BYTES + LIMIT_NAME_BYTES + 2 + ATTR_BYTES <= WIRE_ENTRY_BYTES,
	"the longest entry");

static uint8_t *put_varint(uint8_t *at, uint64_t v)
{
	for (; v >= 0x80; v >>= 7)
		*at++ = (uint8_t)(v | 0x80);
	*at++ = (uint8_t)v;
	return at;
}

static uint8_t *put_tag(uint8_t *at, unsigned field, unsigned type)
{
	*at++ = (uint8_t)(field << 3 | type);
	return at;
}

static uint8_t *put_number(uint8_t *at, unsigned field, uint64_t v)
{
	return v ? put_varint(put_tag(at, field, VARINT), v) : at;
}

static uint8_t *put_attr(uint8_t *at, const struct state_attr *a)
{
	at = put_number(at, 1, a->inode);
	at = put_number(at, 2, a->type);
	at = put_number(at, 3, a->mode);
	at = put_number(at, 4, a->uid);
	at = put_number(at, 5, a->gid);
	at = put_number(at, 6, a->nlink);
	at = put_number(at, 7, a->size);
	at = put_number(at, 8, (uint64_t)a->mtime_ns);
	at = put_number(at, 9, (uint64_t)a->ctime_ns);
	return put_number(at, 10, a->complete);
}

uint8_t *metad__wire_entry(uint8_t *at, struct slice name, const struct state_attr *attr)
{
	uint8_t packed[ATTR_BYTES];
	size_t attr_len = (size_t)(put_attr(packed, attr) - packed), name_len = 0;

	if (name.len)
		name_len = 1 + (name.len < 128 ? 1u : LENGTH_BYTES) + name.len;
	at = put_varint(put_tag(at, ENTRY_FIELD, BYTES), name_len + 2 + attr_len);
	if (name.len) {
		at = put_varint(put_tag(at, NAME_FIELD, BYTES), name.len);
		memcpy(at, name.data, name.len);
		at += name.len;
	}
	at = put_varint(put_tag(at, ATTR_FIELD, BYTES), attr_len);
	memcpy(at, packed, attr_len);
	return at + attr_len;
}

uint8_t *metad__wire_end(uint8_t *at, bool end)
{
	return put_number(at, END_FIELD, end);
}
