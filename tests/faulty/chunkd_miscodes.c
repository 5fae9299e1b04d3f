/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A chunk server whose decoder is wrong: one bit of all that it decodes. Linked with --wrap=ec_decode around the real
 * program, for tools/prove.
 */
#include "common/code/ec.h"

int __real_ec_decode(const struct ec_policy *p, size_t len, const uint8_t have_idx[], const uint8_t *const have[],
	const size_t have_len[], const uint8_t want_idx[], size_t want_count, uint8_t *const out[]);
int __wrap_ec_decode(const struct ec_policy *p, size_t len, const uint8_t have_idx[], const uint8_t *const have[],
	const size_t have_len[], const uint8_t want_idx[], size_t want_count, uint8_t *const out[]);

int __wrap_ec_decode(const struct ec_policy *p, size_t len, const uint8_t have_idx[], const uint8_t *const have[],
	const size_t have_len[], const uint8_t want_idx[], size_t want_count, uint8_t *const out[])
{
	int rc = __real_ec_decode(p, len, have_idx, have, have_len, want_idx, want_count, out);

	if (rc == 0 && want_count && len)
		out[0][0] ^= 1;
	return rc;
}
