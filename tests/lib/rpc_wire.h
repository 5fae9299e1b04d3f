/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_wire: the bare side. One side is ours, the other is a socket in the test's hand: what a broken, hostile or stuck other side
 * does to us.
 */
#ifndef TESTS_LIB_RPC_WIRE_H
#define TESTS_LIB_RPC_WIRE_H

#include "tests/lib/rpc_bed.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>
#include "common/base/crc32c.h"
#include "common/rpc/frame.h"
#include "common/rpc/hello.h"

struct wire {
	int fd;
	bool closed; /* the other side closed */
	uint8_t in[1 << 20];
	size_t in_len;
};

static struct wire wire;

/* Reads what is there. For BED_WAIT. */
static inline void wire_pull(void)
{
	ssize_t n;

	while (!wire.closed && wire.in_len < sizeof(wire.in)) {
		n = recv(wire.fd, wire.in + wire.in_len, sizeof(wire.in) - wire.in_len, MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return;
		if (n <= 0)
			wire.closed = true;
		else
			wire.in_len += (size_t)n;
	}
}

static inline bool wire_is_closed(void *ctx)
{
	(void)ctx;
	wire_pull();
	return wire.closed;
}

/* A whole frame (header and body) is there. */
static inline bool wire_has_frame(void *ctx)
{
	struct frame f;
	struct err err = {0};

	(void)ctx;
	wire_pull();
	if (wire.in_len < FRAME_HEADER_BYTES)
		return false;
	ck_assert_msg(frame_decode(wire.in, &f, &err) == 0, "%s", err.text);
	return wire.in_len >= FRAME_HEADER_BYTES + f.body_len;
}

static inline struct frame wire_take(struct bed *bed)
{
	struct frame f;
	struct err err = {0};
	size_t len;

	BED_WAIT(bed, wire_has_frame, NULL);
	ck_assert_int_eq(frame_decode(wire.in, &f, &err), 0);
	len = FRAME_HEADER_BYTES + f.body_len;
	ck_assert_uint_eq(crc32c(wire.in + FRAME_HEADER_BYTES, f.body_len), f.body_crc);
	memmove(wire.in, wire.in + len, wire.in_len - len);
	wire.in_len -= len;
	return f;
}

static inline void wire_put(const void *data, size_t len)
{
	const uint8_t *p = data;

	while (len > 0) {
		ssize_t n = send(wire.fd, p, len, MSG_NOSIGNAL);

		if (n < 0)
			return; /* the other side has already closed: that is what the test will see */
		p += n;
		len -= (size_t)n;
	}
}

static inline void wire_frame(struct frame f, const ProtobufCMessage *msg)
{
	uint8_t bytes[4096] = {0};
	size_t len = msg ? protobuf_c_message_get_packed_size(msg) : 0;

	ck_assert_uint_le(FRAME_HEADER_BYTES + len, sizeof(bytes));
	if (msg)
		protobuf_c_message_pack(msg, bytes + FRAME_HEADER_BYTES);
	f.body_len = (uint32_t)len;
	f.body_crc = crc32c(bytes + FRAME_HEADER_BYTES, len);
	frame_encode(&f, bytes);
	wire_put(bytes, FRAME_HEADER_BYTES + len);
}

static inline void wire_hello(uint8_t role)
{
	struct rpc_identity self = bed_identity(role, "bare");
	Craton__Hello hello;

	hello_fill(&self, &hello);
	wire_frame((struct frame){.kind = FRAME_HELLO}, &hello.base);
}

static inline struct sockaddr_in loopback(uint16_t port)
{
	return (struct sockaddr_in){
		.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static inline void wire_nodelay(void)
{
	int one = 1;

	ck_assert_int_eq(setsockopt(wire.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), 0);
}

static inline void wire_connect(struct bed *bed)
{
	struct sockaddr_in to = loopback(rpc_server_addr(bed->server).port);

	memset(&wire, 0, sizeof(wire));
	wire.fd = socket(AF_INET, SOCK_STREAM, 0);
	ck_assert_int_eq(connect(wire.fd, (struct sockaddr *)&to, sizeof(to)), 0);
	wire_nodelay();
}

static inline void wire_close(void)
{
	close(wire.fd);
}

/* No frame at all. */
static inline void wire_garbage(void)
{
	static const char text[] = "GET / HTTP/1.1\r\nHost: a.long.enough.host\r\n\r\n";

	wire_put(text, sizeof(text) - 1);
}

static inline void wire_bed_open(struct bed *bed, bool bulk)
{
	/* wire.fd stays blocking: what the test sends fits the socket's buffers. */
	bed_open_real(bed, IO_BACKEND_AUTO, NULL, bulk);
}

/* Some turns of the loop have passed. */
static inline bool wire_ticked(void *ctx)
{
	return ++*(int *)ctx > 30;
}

#endif
