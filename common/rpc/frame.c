/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame: the 40-byte header, both ways.
 *
 * Order of the checks on decode: the magic tells that this is our protocol at all, then the version (whose later values
 * may move everything behind it), then the CRC, and only then is any field believed. A header that passes has every
 * length within limits.h and every reserved bit zero, so that the bits are free for later versions to mean something.
 */
#include "common/rpc/frame.h"

#include <string.h>
#include "common/base/crc32c.h"
#include "common/base/cursor.h"
#include "common/base/limits.h"

static const uint8_t magic[4] = {'C', 'R', 'F', '1'};

enum { CRC_AT = 36 };

void frame_encode(const struct frame *f, uint8_t ret_header[FRAME_HEADER_BYTES])
{
	struct wcursor w;

	wcursor_init(&w, ret_header, FRAME_HEADER_BYTES);
	wcursor_bytes(&w, magic, sizeof(magic));
	wcursor_u8(&w, FRAME_VERSION);
	wcursor_u8(&w, f->kind);
	wcursor_u16(&w, f->flags);
	wcursor_u64(&w, f->request_id);
	wcursor_u16(&w, f->method);
	wcursor_u16(&w, 0);
	wcursor_u32(&w, (uint32_t)f->status);
	wcursor_u32(&w, f->body_len);
	wcursor_u32(&w, f->payload_len);
	wcursor_u32(&w, f->body_crc);
	wcursor_u32(&w, crc32c(ret_header, CRC_AT));
}

/* What a kind of frame may say. */
static int check_kind(const struct frame *f, struct err *err)
{
	if (f->kind < FRAME_HELLO || f->kind > FRAME_RESPONSE)
		return err_set(err, ERR_PROTO, "frame: unknown kind %u", f->kind);
	if (f->flags & ~(f->kind == FRAME_RESPONSE ? FRAME_MORE : 0))
		return err_set(err, ERR_PROTO, "frame: unknown flags 0x%x", f->flags);
	if (f->kind == FRAME_HELLO && (f->request_id || f->method || f->payload_len))
		return err_set(err, ERR_PROTO, "frame: a hello with request id, method or payload");
	if (f->kind == FRAME_REQUEST && f->status)
		return err_set(err, ERR_PROTO, "frame: a request with status %d", f->status);
	if (f->status > 0)
		return err_set(err, ERR_PROTO, "frame: positive status %d", f->status);
	return 0;
}

int frame_decode(const uint8_t header[FRAME_HEADER_BYTES], struct frame *ret_frame, struct err *err)
{
	struct frame f = {0};
	struct rcursor r;
	uint8_t head[4], version;
	uint16_t reserved;
	uint32_t crc;
	int code;

	rcursor_init(&r, header, FRAME_HEADER_BYTES);
	rcursor_copy(&r, head, sizeof(head));
	version = rcursor_u8(&r);
	f.kind = rcursor_u8(&r);
	f.flags = rcursor_u16(&r);
	f.request_id = rcursor_u64(&r);
	f.method = rcursor_u16(&r);
	reserved = rcursor_u16(&r);
	f.status = (int32_t)rcursor_u32(&r);
	f.body_len = rcursor_u32(&r);
	f.payload_len = rcursor_u32(&r);
	f.body_crc = rcursor_u32(&r);
	crc = rcursor_u32(&r);

	if (memcmp(head, magic, sizeof(magic)) != 0)
		return err_set(
			err, ERR_PROTO, "frame: wrong magic %02x%02x%02x%02x", head[0], head[1], head[2], head[3]);
	if (version != FRAME_VERSION)
		return err_set(err, ERR_VERSION, "frame: version %u, this side speaks %u", version, FRAME_VERSION);
	if (crc != crc32c(header, CRC_AT))
		return err_set(err, ERR_PROTO, "frame: wrong header CRC");
	if (reserved)
		return err_set(err, ERR_PROTO, "frame: reserved field is 0x%x", reserved);
	if (f.body_len > LIMIT_FRAME_BODY_BYTES)
		return err_set(err, ERR_MSGSIZE, "frame: body of %u bytes", f.body_len);
	if (f.payload_len > LIMIT_FRAME_PAYLOAD_BYTES)
		return err_set(err, ERR_MSGSIZE, "frame: payload of %u bytes", f.payload_len);
	code = check_kind(&f, err);
	if (code)
		return code;
	*ret_frame = f;
	return 0;
}
