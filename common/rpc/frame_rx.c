/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame_rx: see frame_rx.h.
 *
 *     HEAD --40 bytes--> BODY --body whole: event HEAD--> PLACE --frame_rx_place--> PAYLOAD --whole: event TAIL--> HEAD
 *                                                           \--(not placed)--> DRAIN ----whole: event TAIL--/
 *
 * Invariants:
 *  1. buf[pos..len) are the bytes received and not consumed, in order; what is received straight into a place or into
 *     `large` comes after them, so a place is filled from buf first and directly only when buf is empty.
 *  2. A bulk connection has the large buffer only while its payloads are small: with many connections it would be most of their memory.
 *  3. The memory held for a frame is at most twice what was received of it plus one buffer: a header that promises 1
 *     MiB and then stalls costs nothing.
 */
#include "common/rpc/frame_rx.h"

#include <string.h>
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/limits.h"
#include "common/base/mem.h"

enum { RX_HEAD, RX_BODY, RX_PLACE, RX_PAYLOAD, RX_DRAIN, RX_LOST };

enum { LARGE_FIRST_BYTES = 64 << 10 };

void frame_rx_init(struct frame_rx *rx, bool bulk)
{
	memset(rx, 0, sizeof(*rx));
	rx->state = RX_HEAD;
	rx->bulk = bulk;
	rx->many = !bulk;
	rx->max_body = LIMIT_FRAME_BODY_BYTES;
	rx->cap = FRAME_RX_BULK_BYTES;
	rx->buf = mem_alloc(rx->cap);
}

static void free_large(struct frame_rx *rx)
{
	mem_free(rx->large);
	rx->large = NULL;
	rx->large_len = rx->large_cap = 0;
}

void frame_rx_fini(struct frame_rx *rx)
{
	free_large(rx);
	mem_free(rx->buf);
	rx->buf = NULL;
}

static size_t buffered(const struct frame_rx *rx)
{
	return rx->len - rx->pos;
}

bool frame_rx_between(const struct frame_rx *rx)
{
	return rx->state == RX_HEAD;
}

bool frame_rx_partial(const struct frame_rx *rx)
{
	return rx->state != RX_HEAD || buffered(rx) > 0;
}

/* ---- where bytes go ---- */

/* As far as the buffer is filled: after a large payload not further than that the next one goes to its place. */
static size_t fill_limit(const struct frame_rx *rx)
{
	if (rx->many)
		return rx->cap;
	return rx->state == RX_BODY && rx->frame.body_len > FRAME_RX_BULK_BYTES ? rx->frame.body_len
										: FRAME_RX_BULK_BYTES;
}

/* Room behind what is buffered: moved to the front, and grown where a connection of small frames keeps its buffer full. */
static int room_in_buf(struct frame_rx *rx, struct iovec *ret_iov)
{
	size_t limit;

	if (rx->grow) {
		rx->cap = FRAME_RX_CONTROL_BYTES;
		rx->buf = mem_realloc(rx->buf, rx->cap);
		rx->grow = false;
	}
	if (rx->pos > 0) {
		memmove(rx->buf, rx->buf + rx->pos, buffered(rx));
		rx->len -= rx->pos;
		rx->pos = 0;
	}
	limit = fill_limit(rx);
	CHECK(rx->len < limit && limit <= rx->cap);
	ret_iov[0] = (struct iovec){rx->buf + rx->len, limit - rx->len};
	return 1;
}

static int room_in_large(struct frame_rx *rx, struct iovec *ret_iov)
{
	if (rx->large_len == rx->large_cap) {
		rx->large_cap = rx->large_cap * 2 < rx->frame.body_len ? rx->large_cap * 2 : rx->frame.body_len;
		rx->large = mem_realloc(rx->large, rx->large_cap);
	}
	ret_iov[0] = (struct iovec){rx->large + rx->large_len, rx->large_cap - rx->large_len};
	return 1;
}

int frame_rx_room(struct frame_rx *rx, struct iovec ret_iov[RPC_PAYLOAD_IOV], bool *ret_all)
{
	int count;

	*ret_all = false;
	if (rx->state == RX_BODY && rx->large) {
		*ret_all = true;
		return room_in_large(rx, ret_iov);
	}
	if (rx->state == RX_PAYLOAD && buffered(rx) == 0) {
		count = rx->place_count - rx->place_idx;
		memcpy(ret_iov, rx->place + rx->place_idx, (size_t)count * sizeof(*ret_iov));
		*ret_all = !rx->many || rx->payload_left > FRAME_RX_SMALL_BYTES || count == RPC_PAYLOAD_IOV;
		return *ret_all ? count : count + room_in_buf(rx, ret_iov + count); /* what comes behind it, too */
	}
	return room_in_buf(rx, ret_iov);
}

/* n bytes of the place are filled. */
static void place_advance(struct frame_rx *rx, size_t n)
{
	CHECK(n <= rx->payload_left);
	rx->payload_left -= (uint32_t)n;
	while (n > 0) {
		struct iovec *v = &rx->place[rx->place_idx];
		size_t step = n < v->iov_len ? n : v->iov_len;

		v->iov_base = (uint8_t *)v->iov_base + step;
		v->iov_len -= step;
		n -= step;
		if (v->iov_len == 0)
			rx->place_idx++;
	}
}

void frame_rx_filled(struct frame_rx *rx, size_t n)
{
	if (rx->state == RX_BODY && rx->large) {
		CHECK(n <= rx->large_cap - rx->large_len);
		rx->large_len += n;
		return;
	}
	if (rx->state == RX_PAYLOAD && buffered(rx) == 0) {
		size_t placed = n < rx->payload_left ? n : rx->payload_left;

		place_advance(rx, (uint32_t)placed);
		n -= placed;
		if (n == 0)
			return;
	}
	CHECK(n <= rx->cap - rx->len);
	rx->grow = rx->many && n == rx->cap - rx->len && rx->cap < FRAME_RX_CONTROL_BYTES;
	rx->len += n;
}

/* ---- what they mean ---- */

static int lost(struct frame_rx *rx, int code)
{
	rx->state = RX_LOST;
	return code;
}

/* A body that can never lie in buf as a whole moves to memory of its own, as far as it is there. */
static void start_large(struct frame_rx *rx)
{
	size_t have = buffered(rx) < rx->frame.body_len ? buffered(rx) : rx->frame.body_len;

	rx->large_cap = rx->frame.body_len < LARGE_FIRST_BYTES ? rx->frame.body_len : LARGE_FIRST_BYTES;
	CHECK(have <= rx->large_cap);
	rx->large = mem_alloc(rx->large_cap);
	memcpy(rx->large, rx->buf + rx->pos, have);
	rx->large_len = have;
	rx->pos += have;
}

/* Back to the small buffer, if what is there fits: if not, the next large payload leaves less. */
static void shrink(struct frame_rx *rx)
{
	size_t have = buffered(rx);

	rx->grow = false;
	if (rx->cap <= FRAME_RX_BULK_BYTES || have > FRAME_RX_BULK_BYTES)
		return;
	memmove(rx->buf, rx->buf + rx->pos, have);
	rx->pos = 0;
	rx->len = have;
	rx->cap = FRAME_RX_BULK_BYTES;
	rx->buf = mem_realloc(rx->buf, rx->cap);
}

static int step_head(struct frame_rx *rx, bool *ret_more)
{
	int code;

	if (buffered(rx) < FRAME_HEADER_BYTES) {
		*ret_more = true;
		return 0;
	}
	code = frame_decode(rx->buf + rx->pos, &rx->frame, &rx->err);
	if (code)
		return lost(rx, code);
	if (rx->frame.body_len > rx->max_body)
		return lost(rx,
			err_set(&rx->err, ERR_MSGSIZE, "frame: body of %u bytes, at most %u here", rx->frame.body_len,
				rx->max_body));
	rx->pos += FRAME_HEADER_BYTES;
	rx->payload_left = rx->frame.payload_len;
	rx->many = !rx->bulk || rx->frame.payload_len <= FRAME_RX_SMALL_BYTES;
	rx->state = RX_BODY;
	if (!rx->many)
		shrink(rx);
	if (rx->frame.body_len > rx->cap)
		start_large(rx);
	return 0;
}

static int step_body(struct frame_rx *rx, bool *ret_more)
{
	if (rx->large) {
		*ret_more = rx->large_len < rx->frame.body_len;
		rx->body = rx->large;
	} else {
		*ret_more = buffered(rx) < rx->frame.body_len;
		rx->body = rx->buf + rx->pos;
	}
	if (*ret_more)
		return 0;
	if (crc32c(rx->body, rx->frame.body_len) != rx->frame.body_crc)
		return lost(
			rx, err_set(&rx->err, ERR_PROTO, "frame: wrong CRC of a body of %u bytes", rx->frame.body_len));
	if (!rx->large)
		rx->pos += rx->frame.body_len;
	rx->state = RX_PLACE;
	return 0;
}

void frame_rx_place(struct frame_rx *rx, const struct iovec *iov, int count)
{
	size_t sum = 0;

	CHECK(rx->state == RX_PLACE && count > 0 && count <= RPC_PAYLOAD_IOV);
	for (int i = 0; i < count; i++) {
		CHECK(iov[i].iov_len > 0);
		sum += iov[i].iov_len;
	}
	CHECK(sum == rx->frame.payload_len);
	memcpy(rx->place, iov, (size_t)count * sizeof(*iov));
	rx->place_count = count;
	rx->place_idx = 0;
	rx->state = RX_PAYLOAD;
}

static void take_buffered(struct frame_rx *rx)
{
	while (rx->payload_left > 0 && buffered(rx) > 0) {
		size_t n = buffered(rx);

		if (rx->state == RX_PAYLOAD) {
			struct iovec *v = &rx->place[rx->place_idx];

			n = n < v->iov_len ? n : v->iov_len;
			memcpy(v->iov_base, rx->buf + rx->pos, n);
			place_advance(rx, n);
		} else {
			n = n < rx->payload_left ? n : rx->payload_left;
			rx->payload_left -= (uint32_t)n;
		}
		rx->pos += n;
	}
}

int frame_rx_next(struct frame_rx *rx, enum frame_rx_event *ret_event)
{
	bool more = false;
	int code = 0;

	CHECK(rx->state != RX_LOST);
	if (rx->state == RX_PLACE) {
		/* The owner had its chance to give a place. */
		rx->state = RX_DRAIN;
	}
	if (rx->state == RX_PAYLOAD || rx->state == RX_DRAIN) {
		rx->body = NULL;
		free_large(rx);
		take_buffered(rx);
		if (rx->payload_left == 0)
			rx->state = RX_HEAD;
		*ret_event = rx->payload_left == 0 ? FRAME_RX_TAIL : FRAME_RX_MORE;
		return 0;
	}
	if (rx->state == RX_HEAD)
		code = step_head(rx, &more);
	if (code == 0 && !more && rx->state == RX_BODY)
		code = step_body(rx, &more);
	if (code == 0)
		*ret_event = more ? FRAME_RX_MORE : FRAME_RX_HEAD;
	return code;
}
