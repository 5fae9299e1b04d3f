/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of a connection, as frames. Byte 0: bit 0 bulk, bit 1 repair the CRCs (so that mutations reach behind them),
 * bit 2 drain payloads, the other bits the size of the pieces in which the bytes arrive; then the stream.
 */
#include <stdlib.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/rpc/frame_rx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint32_t u32_at(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static void repair(uint8_t *p, size_t len)
{
	while (len >= FRAME_HEADER_BYTES) {
		uint64_t body_len = u32_at(p + 24), payload_len = u32_at(p + 28), all;
		uint32_t crc;

		if (body_len <= len - FRAME_HEADER_BYTES) {
			crc = crc32c(p + FRAME_HEADER_BYTES, body_len);
			memcpy(p + 32, &crc, sizeof(crc));
		}
		crc = crc32c(p, 36);
		memcpy(p + 36, &crc, sizeof(crc));
		all = FRAME_HEADER_BYTES + body_len + payload_len;
		if (all > len)
			return;
		p += all;
		len -= all;
	}
}

struct reader {
	struct frame_rx rx;
	uint8_t *payload;
	bool drain;
};

static void on_head(struct reader *r)
{
	const struct frame *f = &r->rx.frame;
	uint8_t header[FRAME_HEADER_BYTES];
	struct frame again;
	struct iovec iov;

	CHECK(f->body_len <= LIMIT_FRAME_BODY_BYTES && f->payload_len <= LIMIT_FRAME_PAYLOAD_BYTES && f->status <= 0);
	CHECK(crc32c(r->rx.body, f->body_len) == f->body_crc);
	/* What was read says the same when it is written again. */
	frame_encode(f, header);
	CHECK(frame_decode(header, &again, NULL) == 0 && again.request_id == f->request_id &&
		again.status == f->status);
	if (f->payload_len == 0 || r->drain)
		return;
	r->payload = mem_alloc(f->payload_len);
	iov = (struct iovec){r->payload, f->payload_len};
	frame_rx_place(&r->rx, &iov, 1);
}

static int pump(struct reader *r)
{
	enum frame_rx_event event;
	int code;

	while ((code = frame_rx_next(&r->rx, &event)) == 0 && event != FRAME_RX_MORE) {
		if (event == FRAME_RX_HEAD) {
			on_head(r);
			continue;
		}
		mem_free(r->payload);
		r->payload = NULL;
	}
	CHECK(code == 0 || (code == r->rx.err.code && r->rx.err.text[0]));
	return code;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t how = size ? data[0] : 0;
	size_t len = size ? size - 1 : 0, pos = 0, piece = (size_t)(how >> 3) * (how >> 3) * 97 + 1;
	struct reader r = {.drain = how & 4};
	uint8_t *stream = mem_alloc(len + 1);
	int code = 0;

	if (len)
		memcpy(stream, data + 1, len);
	if (how & 2)
		repair(stream, len);
	frame_rx_init(&r.rx, how & 1);
	while (pos < len && code == 0) {
		struct iovec iov[RPC_PAYLOAD_IOV];
		bool all;
		size_t n = len - pos < piece ? len - pos : piece;

		frame_rx_room(&r.rx, iov, &all);
		n = n < iov[0].iov_len ? n : iov[0].iov_len;
		CHECK(n > 0);
		memcpy(iov[0].iov_base, stream + pos, n);
		frame_rx_filled(&r.rx, n);
		pos += n;
		code = pump(&r);
	}
	frame_rx_fini(&r.rx);
	mem_free(r.payload);
	mem_free(stream);
	return 0;
}
