/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/refused.h"

#include "common/base/check.h"

static const char *const names[REFUSED_CAUSES] = {
	[REFUSED_CONNECTIONS] = "too_many_connections",
	[REFUSED_ACCEPT] = "not_accepted",
	[REFUSED_STRANGER] = "stranger",
	[REFUSED_MALFORMED] = "malformed",
	[REFUSED_OVERLOADED] = "overloaded",
	[REFUSED_NO_HELLO] = "no_hello",
	[REFUSED_STALLED] = "stalled",
	[REFUSED_IDLE] = "idle",
	[REFUSED_METHOD] = "unknown_method",
	[REFUSED_METRICS_CONNECTIONS] = "metrics_connections",
	[REFUSED_METRICS_SLOW] = "metrics_slow",
	[REFUSED_METRICS_REQUEST] = "metrics_request",
	[REFUSED_SECRET] = "secret",
	[REFUSED_REGISTRATION] = "registration",
	[REFUSED_INVENTORY] = "inventory",
	[REFUSED_SESSION_FORGED] = "session_forged",
	[REFUSED_SESSION_WINDOW] = "session_out_of_window",
	[REFUSED_RECEIPT] = "receipt",
	[REFUSED_BLOCK_CLOSED] = "block_closed",
	[REFUSED_RECEIPT_OLD] = "receipt_old",
	[REFUSED_TOKEN] = "token",
	[REFUSED_TOKEN_EXPIRED] = "token_expired",
	[REFUSED_TOKEN_OTHER] = "token_other",
};

const char *refused_name(enum refused_cause cause)
{
	CHECK(cause < REFUSED_CAUSES && names[cause]);
	return names[cause];
}

bool refused_count(struct refused *r, enum refused_cause cause, uint64_t now_ns, uint64_t *ret_unlogged)
{
	CHECK(cause < REFUSED_CAUSES);
	r->of[cause].count++;
	r->of[cause].last_ns = now_ns;
	if (!ret_unlogged)
		return false;
	if (r->of[cause].has_line && now_ns - r->of[cause].line_ns < REFUSED_LINE_MS * (uint64_t)1000000) {
		r->of[cause].unlogged++;
		return false;
	}
	*ret_unlogged = r->of[cause].unlogged;
	r->of[cause].has_line = true;
	r->of[cause].line_ns = now_ns;
	r->of[cause].unlogged = 0;
	return true;
}

void refused_write(const struct refused *r, struct metrics *m)
{
	static const struct metric refused = {"craton_refused_total", METRIC_COUNTER,
		"What came from the network and was refused, connections and requests, by cause."};
	struct metrics_labels l;

	metrics_begin(m, &refused);
	for (int i = 0; i < REFUSED_CAUSES; i++) {
		metrics_labels_init(&l);
		metrics_value(m, metrics_label(&l, "cause", refused_name((enum refused_cause)i)), r->of[i].count);
	}
}
