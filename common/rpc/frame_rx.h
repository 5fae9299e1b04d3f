/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame_rx: cuts a byte stream into frames. Pure: it says where the next bytes shall go, is told how many came, and
 * yields events. (Private to common/rpc.)
 *
 *     for (;;) {
 *             frame_rx_room(rx, iov, &all);  n = receive(iov, all);  frame_rx_filled(rx, n);
 *             while ((code = frame_rx_next(rx, &event)) == 0 && event != FRAME_RX_MORE)
 *                     FRAME_RX_HEAD: rx->frame and rx->body are there; frame_rx_place() now, or the payload is drained
 *                     FRAME_RX_TAIL: its payload is whole (also when there is none)
 *     }
 *
 * Small frames are read many at a time into one buffer; a payload that was given a place is received straight into it,
 * but for the first bytes that had come along with its head. On a bulk connection few bytes come along, as long as its payloads are
 * large: after a small one it is read like a control connection, since one copy of such a payload costs less than a receive of its own. When
 * large ones come again it gives the larger buffer back.
 */
#ifndef COMMON_RPC_FRAME_RX_H
#define COMMON_RPC_FRAME_RX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>
#include "common/rpc/frame.h"
#include "common/rpc/rpc.h"

enum {
	FRAME_RX_BULK_BYTES = 4 << 10,     /* head buffer of a bulk connection: what of a payload is copied at most */
	FRAME_RX_CONTROL_BYTES = 64 << 10, /* of a control connection once it is busy; it starts with the small one */
	FRAME_RX_SMALL_BYTES = 16 << 10,   /* greatest payload of which many are read at once */
};

enum frame_rx_event { FRAME_RX_MORE, FRAME_RX_HEAD, FRAME_RX_TAIL };

struct frame_rx {
	uint8_t state; /* private */
	bool bulk;
	bool many; /* frames may be read into all of the buffer */
	bool grow;
	uint8_t *buf; /* what was received and not consumed: buf[pos..len) */
	size_t pos, len, cap;
	uint8_t *large; /* a body that does not fit into buf */
	size_t large_len, large_cap;
	uint32_t max_body;   /* LIMIT_FRAME_BODY_BYTES; the owner may set it lower */
	struct frame frame;  /* valid from HEAD to TAIL */
	const uint8_t *body; /* frame.body_len bytes, valid at HEAD until the next call */
	struct iovec place[RPC_PAYLOAD_IOV];
	int place_count, place_idx;
	uint32_t payload_left; /* of this frame, not yet received */
	struct err err;        /* what was wrong */
};

void frame_rx_init(struct frame_rx *rx, bool bulk);
void frame_rx_fini(struct frame_rx *rx);
/* Where the next bytes go: at least one byte. *ret_all: all of it at once is wanted. Returns the count of iovecs. */
int frame_rx_room(struct frame_rx *rx, struct iovec ret_iov[RPC_PAYLOAD_IOV], bool *ret_all);
void frame_rx_filled(struct frame_rx *rx, size_t n);
/* 0, or a code of frame_decode, or ERR_PROTO (CRC of the body), or ERR_MSGSIZE (max_body): the stream is lost. */
int frame_rx_next(struct frame_rx *rx, enum frame_rx_event *ret_event);
/* After HEAD. The lengths add up to frame.payload_len. */
void frame_rx_place(struct frame_rx *rx, const struct iovec *iov, int count);
/* Between two frames: nothing of the next one was looked at. */
bool frame_rx_between(const struct frame_rx *rx);
/* A part of a frame is there and the rest is awaited. */
bool frame_rx_partial(const struct frame_rx *rx);

#endif
