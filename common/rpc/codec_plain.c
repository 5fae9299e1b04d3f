/* SPDX-License-Identifier: Apache-2.0 */
/* codec_plain: see the header. Each switch over types has a default that answers "not plain": types that our schema does not use. */
#include "common/rpc/codec_plain.h"

#include <string.h>

enum { VARINT_BYTES = 10 };

/* ---- unpack ---- */

struct reader {
	const uint8_t *at, *end;
};

static inline size_t left(const struct reader *r)
{
	return (size_t)(r->end - r->at);
}

static bool long_varint(struct reader *r, uint64_t *ret_value)
{
	uint64_t value = 0;

	for (unsigned shift = 0; shift < 7 * VARINT_BYTES && r->at < r->end; shift += 7) {
		uint8_t byte = *r->at++;

		if (shift == 63 && byte > 1)
			return false; /* more than 64 bits */
		value |= (uint64_t)(byte & 0x7f) << shift;
		if (byte < 0x80) {
			*ret_value = value;
			return true;
		}
	}
	return false;
}

static inline bool get_varint(struct reader *r, uint64_t *ret_value)
{
	if (r->at < r->end && *r->at < 0x80) {
		*ret_value = *r->at++;
		return true;
	}
	return long_varint(r, ret_value);
}

static inline bool get_fixed(struct reader *r, void *out, size_t len)
{
	if (left(r) < len)
		return false;
	memcpy(out, r->at, len); /* little-endian, as this machine is */
	r->at += len;
	return true;
}
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "fixed values are copied");

/* Of a tag or a length: protobuf-c takes 5 bytes at most. */
static inline bool get_short(struct reader *r, uint64_t *ret_value)
{
	const uint8_t *at = r->at;

	return get_varint(r, ret_value) && r->at - at <= 5;
}

static inline bool get_length(struct reader *r, size_t *ret_len)
{
	uint64_t len;

	if (!get_short(r, &len) || len > left(r))
		return false;
	*ret_len = len;
	return true;
}

static bool get_message(struct codec_arena *a, const ProtobufCMessageDescriptor *type, struct reader r, int depth,
	ProtobufCMessage **ret_msg);

static bool get_inner(
	struct codec_arena *a, const ProtobufCFieldDescriptor *f, struct reader *r, int depth, void *member)
{
	ProtobufCMessage *msg;
	size_t len;

	if (!get_length(r, &len))
		return false;
	if (!get_message(a, f->descriptor, (struct reader){r->at, r->at + len}, depth + 1, &msg))
		return false;
	r->at += len;
	*(ProtobufCMessage **)member = msg;
	return true;
}

static bool get_string(struct codec_arena *a, struct reader *r, void *member)
{
	size_t len;
	char *text;

	if (!get_length(r, &len))
		return false;
	text = codec_arena_alloc(a, len + 1);
	if (!text)
		return false;
	memcpy(text, r->at, len);
	text[len] = '\0';
	r->at += len;
	*(char **)member = text;
	return true;
}

static bool get_bytes(struct codec_arena *a, struct reader *r, void *member)
{
	ProtobufCBinaryData *data = member;

	if (!get_length(r, &data->len))
		return false;
	if (data->len == 0) {
		data->data = NULL;
		return true;
	}
	data->data = codec_arena_alloc(a, data->len);
	if (!data->data)
		return false;
	memcpy(data->data, r->at, data->len);
	r->at += data->len;
	return true;
}

static int wire_type_of(const ProtobufCFieldDescriptor *f)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_ENUM:
	case PROTOBUF_C_TYPE_BOOL:
		return PROTOBUF_C_WIRE_TYPE_VARINT;
	case PROTOBUF_C_TYPE_FIXED64:
		return PROTOBUF_C_WIRE_TYPE_64BIT;
	case PROTOBUF_C_TYPE_FIXED32:
		return PROTOBUF_C_WIRE_TYPE_32BIT;
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_BYTES:
	case PROTOBUF_C_TYPE_MESSAGE:
		return PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED;
	default:
		return -1;
	}
}

/* One value behind its tag, whose wire type is right. */
static bool get_value(
	struct codec_arena *a, const ProtobufCFieldDescriptor *f, struct reader *r, int depth, void *member)
{
	uint64_t v;

	switch (f->type) {
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_INT64:
		return get_varint(r, (uint64_t *)member);
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_ENUM:
		if (!get_varint(r, &v))
			return false;
		*(uint32_t *)member = (uint32_t)v;
		return true;
	case PROTOBUF_C_TYPE_BOOL:
		if (!get_varint(r, &v))
			return false;
		*(protobuf_c_boolean *)member = v != 0;
		return true;
	case PROTOBUF_C_TYPE_FIXED64:
		return get_fixed(r, member, 8);
	case PROTOBUF_C_TYPE_FIXED32:
		return get_fixed(r, member, 4);
	case PROTOBUF_C_TYPE_STRING:
		return get_string(a, r, member);
	case PROTOBUF_C_TYPE_BYTES:
		return get_bytes(a, r, member);
	case PROTOBUF_C_TYPE_MESSAGE:
		return get_inner(a, f, r, depth, member);
	default:
		return false;
	}
}

static size_t packed_element_bytes(const ProtobufCFieldDescriptor *f)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_FIXED64:
		return 8;
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_FIXED32:
		return 4;
	default:
		return 0;
	}
}

/* How many values lie packed in the bytes; the last one may be cut short. */
static size_t packed_count(const ProtobufCFieldDescriptor *f, const struct reader *r)
{
	size_t count = 0;

	if (f->type == PROTOBUF_C_TYPE_FIXED64)
		return left(r) / 8;
	if (f->type == PROTOBUF_C_TYPE_FIXED32)
		return left(r) / 4;
	for (const uint8_t *p = r->at; p < r->end; p++)
		count += *p < 0x80;
	return count;
}

static bool get_packed(
	struct codec_arena *a, const ProtobufCFieldDescriptor *f, struct reader *r, size_t *ret_count, void **ret_array)
{
	size_t bytes = packed_element_bytes(f), len, count;
	struct reader in;
	uint8_t *array;

	if (!bytes || !get_length(r, &len) || len == 0)
		return false;
	in = (struct reader){r->at, r->at + len};
	r->at += len;
	count = packed_count(f, &in);
	array = codec_arena_alloc(a, count * bytes);
	if (!array)
		return false;
	for (size_t i = 0; i < count; i++)
		if (!get_value(a, f, &in, 0, array + i * bytes))
			return false;
	if (left(&in))
		return false;
	*ret_count = count;
	*ret_array = array;
	return true;
}

/* Behind the first tag of a run of values with lengths: how many there are. 0: one of them is malformed. */
static size_t run_length(struct reader r, const uint8_t *tag, size_t tag_len)
{
	size_t count = 0, len;

	for (;;) {
		if (!get_length(&r, &len))
			return 0;
		r.at += len;
		count++;
		if (left(&r) < tag_len || memcmp(r.at, tag, tag_len) != 0)
			return count;
		r.at += tag_len;
	}
}

static bool get_run(struct codec_arena *a, const ProtobufCFieldDescriptor *f, struct reader *r, const uint8_t *tag,
	int depth, size_t *ret_count, void **ret_array)
{
	size_t tag_len = (size_t)(r->at - tag), count = run_length(*r, tag, tag_len), bytes;
	uint8_t *array;

	bytes = f->type == PROTOBUF_C_TYPE_BYTES ? sizeof(ProtobufCBinaryData) : sizeof(void *);
	array = count ? codec_arena_alloc(a, count * bytes) : NULL;
	if (!array)
		return false;
	for (size_t i = 0; i < count; i++) {
		if (i)
			r->at += tag_len;
		if (!get_value(a, f, r, depth, array + i * bytes))
			return false;
	}
	*ret_count = count;
	*ret_array = array;
	return true;
}

static bool get_repeated(struct codec_arena *a, const ProtobufCFieldDescriptor *f, struct reader *r, const uint8_t *tag,
	int wire_type, int depth, uint8_t *msg)
{
	size_t *count = (size_t *)(void *)(msg + f->quantifier_offset);
	void **array = (void **)(void *)(msg + f->offset);

	if (wire_type != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED)
		return false;
	if (wire_type_of(f) == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED)
		return get_run(a, f, r, tag, depth, count, array);
	return get_packed(a, f, r, count, array);
}

static bool get_message(struct codec_arena *a, const ProtobufCMessageDescriptor *type, struct reader r, int depth,
	ProtobufCMessage **ret_msg)
{
	unsigned next = 0; /* field of the type */
	uint8_t *msg;

	if (depth > CODEC_DEPTH || !type->message_init)
		return false;
	msg = codec_arena_alloc(a, type->sizeof_message);
	if (!msg)
		return false;
	type->message_init((ProtobufCMessage *)(void *)msg);
	while (left(&r)) {
		const ProtobufCFieldDescriptor *f;
		const uint8_t *tag = r.at;
		uint64_t key;
		bool good;

		if (!get_short(&r, &key) || key > UINT32_MAX)
			return false;
		while (next < type->n_fields && type->fields[next].id < key >> 3)
			next++;
		if (next == type->n_fields)
			return false;
		f = &type->fields[next++]; /* once more: not plain */
		if (f->id != key >> 3 || f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
			return false;
		if (f->label == PROTOBUF_C_LABEL_REPEATED)
			good = get_repeated(a, f, &r, tag, key & 7, depth, msg);
		else
			good = f->label == PROTOBUF_C_LABEL_NONE && wire_type_of(f) == (int)(key & 7) &&
				get_value(a, f, &r, depth, msg + f->offset);
		if (!good)
			return false;
	}
	*ret_msg = (ProtobufCMessage *)(void *)msg;
	return true;
}

bool codec__plain_unpack(struct codec_arena *a, const ProtobufCMessageDescriptor *type, struct slice body,
	const ProtobufCMessage **ret_msg)
{
	ProtobufCMessage *msg;
	struct reader r = {body.data, body.len ? body.data + body.len : body.data};

	if (!get_message(a, type, r, 1, &msg))
		return false;
	*ret_msg = msg;
	return true;
}

/* ---- pack ---- */

struct writer {
	uint8_t *at, *end;
};

static inline bool put_varint(struct writer *w, uint64_t v)
{
	if (w->end - w->at < VARINT_BYTES)
		return false; /* it may fit: the caller has a way for that */
	while (v >= 0x80) {
		*w->at++ = (uint8_t)(v | 0x80);
		v >>= 7;
	}
	*w->at++ = (uint8_t)v;
	return true;
}

static inline bool put_raw(struct writer *w, const void *data, size_t len)
{
	if ((size_t)(w->end - w->at) < len)
		return false;
	if (len)
		memcpy(w->at, data, len);
	w->at += len;
	return true;
}

/* Behind the bytes from `start` on, which a byte was left for: their length goes before them. */
static bool put_length_before(struct writer *w, uint8_t *start)
{
	size_t len = (size_t)(w->at - start), more = 0;
	struct writer before = {start - 1, w->end};

	for (size_t rest = len >> 7; rest; rest >>= 7)
		more++;
	if (more) {
		if ((size_t)(w->end - w->at) < more + VARINT_BYTES)
			return false;
		memmove(start + more, start, len);
		w->at += more;
	}
	return put_varint(&before, len);
}

static bool put_message(struct writer *w, const ProtobufCMessage *msg, int depth);

static bool put_inner(struct writer *w, const ProtobufCMessage *msg, int depth)
{
	uint8_t *start;

	if (!put_raw(w, "", 1))
		return false;
	start = w->at;
	return (!msg || put_message(w, msg, depth + 1)) && put_length_before(w, start);
}

static bool put_bytes(struct writer *w, const void *data, size_t len)
{
	return put_varint(w, len) && put_raw(w, data, len);
}

static bool put_value(struct writer *w, const ProtobufCFieldDescriptor *f, const void *member, int depth)
{
	const ProtobufCBinaryData *data = member;
	const char *text;

	switch (f->type) {
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_INT64:
		return put_varint(w, *(const uint64_t *)member);
	case PROTOBUF_C_TYPE_UINT32:
		return put_varint(w, *(const uint32_t *)member);
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_ENUM:
		return put_varint(w, (uint64_t)(int64_t) * (const int32_t *)member);
	case PROTOBUF_C_TYPE_BOOL:
		return put_varint(w, *(const protobuf_c_boolean *)member != 0);
	case PROTOBUF_C_TYPE_FIXED64:
		return put_raw(w, member, 8);
	case PROTOBUF_C_TYPE_FIXED32:
		return put_raw(w, member, 4);
	case PROTOBUF_C_TYPE_STRING:
		text = *(const char *const *)member;
		return put_bytes(w, text, text ? strlen(text) : 0);
	case PROTOBUF_C_TYPE_BYTES:
		return put_bytes(w, data->data, data->len);
	case PROTOBUF_C_TYPE_MESSAGE:
		return put_inner(w, *(const ProtobufCMessage *const *)member, depth);
	default:
		return false;
	}
}

/* proto3 leaves out what has its type's zero. */
static bool is_zero(const ProtobufCFieldDescriptor *f, const void *member)
{
	const char *text;

	switch (f->type) {
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_FIXED64:
		return *(const uint64_t *)member == 0;
	case PROTOBUF_C_TYPE_STRING:
		text = *(const char *const *)member;
		return !text || !*text;
	case PROTOBUF_C_TYPE_BYTES:
		return ((const ProtobufCBinaryData *)member)->len == 0;
	case PROTOBUF_C_TYPE_MESSAGE:
		return !*(const void *const *)member;
	default:
		return *(const uint32_t *)member == 0;
	}
}

static bool put_packed(
	struct writer *w, const ProtobufCFieldDescriptor *f, uint64_t tag, const uint8_t *array, size_t count)
{
	size_t bytes = packed_element_bytes(f);
	uint8_t *start;

	if (!bytes || !put_varint(w, tag | PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED) || !put_raw(w, "", 1))
		return false;
	start = w->at;
	for (size_t i = 0; i < count; i++)
		if (!put_value(w, f, array + i * bytes, 0))
			return false;
	return put_length_before(w, start);
}

static bool put_run(struct writer *w, const ProtobufCFieldDescriptor *f, uint64_t tag, const uint8_t *array,
	size_t count, int depth)
{
	size_t bytes = f->type == PROTOBUF_C_TYPE_BYTES ? sizeof(ProtobufCBinaryData) : sizeof(void *);

	for (size_t i = 0; i < count; i++)
		if (!put_varint(w, tag | PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED) ||
			!put_value(w, f, array + i * bytes, depth))
			return false;
	return true;
}

static bool put_field(struct writer *w, const ProtobufCFieldDescriptor *f, const uint8_t *msg, int depth)
{
	const uint8_t *member = msg + f->offset, *array;
	uint64_t tag = (uint64_t)f->id << 3;
	int wire_type = wire_type_of(f);
	size_t count;

	if (wire_type < 0 || f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
		return false;
	if (f->label == PROTOBUF_C_LABEL_NONE)
		return is_zero(f, member) ||
			(put_varint(w, tag | (unsigned)wire_type) && put_value(w, f, member, depth));
	if (f->label != PROTOBUF_C_LABEL_REPEATED)
		return false;
	count = *(const size_t *)(const void *)(msg + f->quantifier_offset);
	array = *(const uint8_t *const *)(const void *)member;
	if (count == 0)
		return true;
	if (wire_type == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED)
		return put_run(w, f, tag, array, count, depth);
	return f->flags & PROTOBUF_C_FIELD_FLAG_PACKED && put_packed(w, f, tag, array, count);
}

static bool put_message(struct writer *w, const ProtobufCMessage *msg, int depth)
{
	const ProtobufCMessageDescriptor *type = msg->descriptor;

	if (depth > CODEC_DEPTH || msg->n_unknown_fields)
		return false;
	for (unsigned i = 0; i < type->n_fields; i++)
		if (!put_field(w, &type->fields[i], (const uint8_t *)msg, depth))
			return false;
	return true;
}

bool codec__plain_pack(const ProtobufCMessage *msg, uint8_t *out, size_t cap, size_t *ret_len)
{
	struct writer w = {out, out + cap};

	if (!put_message(&w, msg, 1))
		return false;
	*ret_len = (size_t)(w.at - out);
	return true;
}
