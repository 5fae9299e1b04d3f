/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of sessions, and the replies in them, on arbitrary bytes. Byte 0: bit 0 a reply, else a row. What decodes says the same when it is
 * written and read again: a reply that got lost on the way would let a change that is sent again take effect twice.
 */
#include <string.h>
#include "common/base/check.h"
#include "common/base/err.h"
#include "common/base/mem.h"
#include "metad/state/state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What there is nothing to say of is left out, once: a flag without its field, a block without news. */
static size_t write_again(struct slice bytes, uint8_t out[STATE_REPLY_BYTES])
{
	static struct state_result res;
	int rc;

	memset(&res, 0, sizeof(res));
	rc = state__session_reply_decode(bytes, &res);
	CHECK(rc == 0 || rc == ERR_CORRUPT);
	CHECK(rc || (res.status <= 0 && res.count <= LIMIT_COMMIT_BLOCKS));
	return rc ? 0 : state__session_reply_encode(&res, out);
}

static void try_reply(struct slice bytes)
{
	uint8_t a[STATE_REPLY_BYTES], b[STATE_REPLY_BYTES], c[STATE_REPLY_BYTES];
	size_t a_len = write_again(bytes, a), b_len, c_len;

	if (a_len == 0)
		return;
	CHECK(memcmp(a, bytes.data, 2) == 0); /* the status */
	b_len = write_again(slice_of(a, a_len), b);
	c_len = write_again(slice_of(b, b_len), c);
	CHECK(b_len > 0 && b_len == c_len && memcmp(b, c, b_len) == 0);
}

static void same_session(const struct state_session *a, const struct state_session *b)
{
	CHECK(a->secret == b->secret && a->low == b->low && a->opened_ms == b->opened_ms && a->ending == b->ending);
	CHECK(strcmp(a->name, b->name) == 0);
	for (int i = 0; i < STATE_WINDOW; i++) {
		const struct state_reply *x = &a->replies[i], *y = &b->replies[i];

		CHECK((x->bytes == NULL) == (y->bytes == NULL) && x->seq == y->seq);
		CHECK(!x->bytes || (x->len == y->len && memcmp(x->bytes, y->bytes, x->len) == 0));
	}
}

static void try_row(struct slice bytes)
{
	struct state_session *session = MEM_NEW(struct state_session), *again = MEM_NEW(struct state_session);
	uint8_t *out = mem_alloc(STATE_SESSION_ROW_BYTES);
	int rc = state__session_row_decode(bytes, session);

	CHECK(rc == 0 || rc == ERR_CORRUPT);
	if (rc == 0) {
		CHECK(state__session_row_decode(slice_of(out, state__session_row_encode(session, out)), again) == 0);
		same_session(session, again);
	}
	state__session_fini(session);
	state__session_fini(again);
	mem_free(session);
	mem_free(again);
	mem_free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	if (data[0] & 1)
		try_reply(slice_of(data + 1, size - 1));
	else
		try_row(slice_of(data + 1, size - 1));
	return 0;
}
