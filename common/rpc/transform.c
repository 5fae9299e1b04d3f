/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transform: the trivial transform, shaped like the one that will sit here (TLS): records with a header of their own,
 * so that the wire has other lengths than the plain bytes and a record may arrive in pieces, and a key stream by
 * position and direction, so that a byte lost, doubled or reordered shows at once.
 *
 * Record: 0x17, u16 little-endian length 1..16384, then as many bytes XOR key(position in its direction).
 */
#include "common/rpc/rpc.h"

#include <string.h>
#include "common/base/buf.h"
#include "common/base/mem.h"

enum { RECORD_TYPE = 0x17, RECORD_HEAD = 3, RECORD_MAX = 16384 };

struct xor_state {
	bool is_server;
	uint64_t wrap_pos, unwrap_pos;
	uint8_t head[RECORD_HEAD]; /* of the record that is being unwrapped */
	size_t head_len;
	size_t record_left;
};

static void *xor_open(void *ctx, bool is_server)
{
	struct xor_state *x = MEM_NEW(struct xor_state);

	(void)ctx;
	x->is_server = is_server;
	return x;
}

static void xor_close(void *state)
{
	mem_free(state);
}

static uint8_t xor_key(uint64_t pos, bool from_server)
{
	return (uint8_t)(pos * 167 + (from_server ? 0x5a : 0xc3));
}

/* Eight at a time: eight places on, each byte of the key is 8 * 167 mod 256 = 0x38 more. */
static void xor_bytes(uint8_t *out, const uint8_t *in, size_t len, uint64_t pos, bool from_server)
{
	const uint64_t low = 0x7f7f7f7f7f7f7f7fu, step = 0x3838383838383838u;
	uint8_t first[8];
	uint64_t key, v;
	size_t i = 0;

	for (size_t j = 0; j < sizeof(first); j++)
		first[j] = xor_key(pos + j, from_server);
	memcpy(&key, first, sizeof(key));
	for (; i + 8 <= len; i += 8) {
		memcpy(&v, in + i, sizeof(v));
		v ^= key;
		memcpy(out + i, &v, sizeof(v));
		key = ((key & low) + step) ^ (key & ~low);
	}
	for (; i < len; i++)
		out[i] = in[i] ^ xor_key(pos + i, from_server);
}

static int xor_wrap(void *state, const void *plain, size_t len, struct buf *out)
{
	struct xor_state *x = state;
	const uint8_t *p = plain;

	while (len > 0) {
		size_t n = len < RECORD_MAX ? len : RECORD_MAX;
		uint8_t *at = buf_extend(out, RECORD_HEAD + n);

		if (!at)
			return ERR_NOMEM;
		at[0] = RECORD_TYPE;
		at[1] = (uint8_t)n;
		at[2] = (uint8_t)(n >> 8);
		xor_bytes(at + RECORD_HEAD, p, n, x->wrap_pos, x->is_server);
		x->wrap_pos += n;
		p += n;
		len -= n;
	}
	return 0;
}

static int xor_begin_record(struct xor_state *x)
{
	x->record_left = x->head[1] | (size_t)x->head[2] << 8;
	x->head_len = 0;
	if (x->head[0] != RECORD_TYPE || x->record_left == 0 || x->record_left > RECORD_MAX)
		return ERR_PROTO;
	return 0;
}

static int xor_unwrap(void *state, const void *wire, size_t len, struct buf *out)
{
	struct xor_state *x = state;
	const uint8_t *p = wire;
	const uint8_t *end = p + len;

	while (p < end) {
		size_t n = (size_t)(end - p);
		uint8_t *at;

		if (x->record_left == 0) {
			x->head[x->head_len++] = *p++;
			if (x->head_len == RECORD_HEAD && xor_begin_record(x))
				return ERR_PROTO;
			continue;
		}
		n = n < x->record_left ? n : x->record_left;
		at = buf_extend(out, n);
		if (!at)
			return ERR_NOMEM;
		xor_bytes(at, p, n, x->unwrap_pos, !x->is_server);
		x->unwrap_pos += n;
		x->record_left -= n;
		p += n;
	}
	return 0;
}

const struct rpc_transform rpc_transform_xor = {
	.name = "xor",
	.open = xor_open,
	.wrap = xor_wrap,
	.unwrap = xor_unwrap,
	.close = xor_close,
};

int rpc_transform_by_name(const char *name, const struct rpc_transform **ret_transform)
{
	if (!*name || strcmp(name, "none") == 0)
		*ret_transform = NULL;
	else if (strcmp(name, rpc_transform_xor.name) == 0)
		*ret_transform = &rpc_transform_xor;
	else
		return ERR_INVAL;
	return 0;
}
