/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/rpc.h"

#include <string.h>
#include "common/base/buf.h"
#include "common/base/rng.h"
#include "tests/lib/unit.h"

static const struct rpc_transform *const x = &rpc_transform_xor;

START_TEST(test_by_name)
{
	const struct rpc_transform *t = x;

	ck_assert_int_eq(rpc_transform_by_name("", &t), 0);
	ck_assert_ptr_null(t);
	ck_assert_int_eq(rpc_transform_by_name("xor", &t), 0);
	ck_assert_ptr_eq(t, x);
	ck_assert_int_eq(rpc_transform_by_name("none", &t), 0);
	ck_assert_ptr_null(t);
	ck_assert_int_eq(rpc_transform_by_name("rot13", &t), ERR_INVAL);
}
END_TEST

/* What a client wraps in any pieces, a server unwraps in any others; and the promised bound on lengths holds. */
START_TEST(test_any_pieces)
{
	static uint8_t plain[200000];
	void *client = x->open(x->ctx, false), *server = x->open(x->ctx, true);
	struct buf wire, back;
	struct rng rng;

	rng_init(&rng, 3);
	rng_bytes(&rng, plain, sizeof(plain));
	buf_init(&wire, 1 << 20);
	buf_init(&back, 1 << 20);
	for (size_t pos = 0, n; pos < sizeof(plain); pos += n) {
		size_t before = wire.len;

		n = rng_between(&rng, 1, 40000);
		n = n < sizeof(plain) - pos ? n : sizeof(plain) - pos;
		ck_assert_int_eq(x->wrap(client, plain + pos, n, &wire), 0);
		ck_assert_uint_le(wire.len - before, 2 * n + 1024);
	}
	ck_assert_uint_gt(wire.len, sizeof(plain));
	for (size_t pos = 0, n; pos < wire.len; pos += n) {
		n = rng_between(&rng, 1, 3000);
		n = n < wire.len - pos ? n : wire.len - pos;
		ck_assert_int_eq(x->unwrap(server, wire.data + pos, n, &back), 0);
	}
	ck_assert_uint_eq(back.len, sizeof(plain));
	ck_assert_mem_eq(back.data, plain, sizeof(plain));
	buf_fini(&wire);
	buf_fini(&back);
	x->close(client);
	x->close(server);
}
END_TEST

START_TEST(test_damage)
{
	static const uint8_t bad_type[] = {0x16, 1, 0, 0}, empty[] = {0x17, 0, 0, 0}, too_long[] = {0x17, 1, 0x40, 0};
	static const uint8_t *const all[] = {bad_type, empty, too_long};

	for (int i = 0; i < 3; i++) {
		void *state = x->open(x->ctx, true);
		struct buf out;

		buf_init(&out, 100);
		ck_assert_int_eq(x->unwrap(state, all[i], 4, &out), ERR_PROTO);
		buf_fini(&out);
		x->close(state);
	}
}
END_TEST

UNIT_MAIN("transform", test_by_name, test_any_pieces, test_damage)
