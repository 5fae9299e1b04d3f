/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Capability tokens on arbitrary bytes: as they are (none may open), and with a MAC that fits: what opens says what its bytes say, and no
 * receipt of arbitrary bytes is good. Secret files, too.
 */
#include <string.h>
#include "common/base/check.h"
#include "common/base/err.h"
#include "common/code/token.h"
#include "common/rpc/auth.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t raw_keys[2][TOKEN_KEY_BYTES] = {
	"an older key of thirty-two byte", "the current key, thirty-two byt"};
static struct token_key keys[2];

static void prepare_keys(void)
{
	for (int i = 0; i < 2; i++) {
		keys[i].id = (uint8_t)(3 + i);
		hmac_key_init(&keys[i].key, raw_keys[i]);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct receipt receipt = {.block = 5, .length = 6, .generation = 7, .disk = 8};
	uint8_t bytes[TOKEN_BYTES], again[TOKEN_BYTES], secret[AUTH_SECRET_BYTES];
	struct hmac_key receipt_key;
	struct token t;
	int rc;

	prepare_keys();
	CHECK(token_open(slice_of(data, size), keys, 2, &t) == ERR_TOKEN);
	hmac_key_init(&receipt_key, raw_keys[0]);
	CHECK(receipt_verify(&receipt, &receipt_key, slice_of(data, size)) == ERR_RECEIPT);
	rc = auth_parse_secret(slice_of(data, size), secret);
	CHECK(rc == 0 || rc == ERR_FORMAT);
	if (size < TOKEN_BYTES)
		return 0;
	memcpy(bytes, data, TOKEN_BYTES);
	token_hmac(&keys[1].key, bytes, TOKEN_BYTES - TOKEN_MAC_BYTES, bytes + TOKEN_BYTES - TOKEN_MAC_BYTES);
	rc = token_open(slice_of(bytes, TOKEN_BYTES), keys, 2, &t);
	CHECK(rc == 0 || rc == ERR_TOKEN);
	if (rc == 0) {
		token_seal(&t, &keys[1], again);
		CHECK(t.key_id == 4 && t.rights == again[4] && t.index == again[2]);
		CHECK(token_open(slice_of(again, TOKEN_BYTES), keys, 2, &t) == 0);
	}
	return 0;
}
