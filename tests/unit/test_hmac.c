/* SPDX-License-Identifier: Apache-2.0 */
#include "common/code/hmac.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>
#include "tests/lib/unit.h"

/* What libcrypto makes of the same bytes, whatever the pieces they come in. */
START_TEST(test_equal_to_libcrypto)
{
	uint8_t key[HMAC_KEY_BYTES], data[300], want[HMAC_BYTES], got[HMAC_BYTES];
	unsigned len = 0;

	for (size_t i = 0; i < sizeof(key); i++)
		key[i] = (uint8_t)(i * 37 + 200);
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 91 + 7);
	for (size_t n = 0; n <= sizeof(data); n += 13)
		for (size_t piece = 1; piece <= sizeof(data); piece = piece * 3 + 1) {
			struct hmac h;

			ck_assert_ptr_nonnull(HMAC(EVP_sha256(), key, sizeof(key), data, n, want, &len));
			hmac_init(&h, key);
			for (size_t at = 0; at < n; at += piece)
				hmac_update(&h, data + at, n - at < piece ? n - at : piece);
			hmac_fini(&h, got);
			ck_assert_mem_eq(got, want, sizeof(want));
		}
}
END_TEST

/* Under a prepared key, at all lengths around a block's. */
START_TEST(test_prepared_key)
{
	uint8_t key[HMAC_KEY_BYTES], data[200], want[HMAC_BYTES], got[HMAC_BYTES];
	struct hmac_key prepared;
	unsigned len = 0;

	for (size_t i = 0; i < sizeof(key); i++)
		key[i] = (uint8_t)(i * 59 + 3);
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 17 + 130);
	hmac_key_init(&prepared, key);
	for (size_t n = 0; n <= sizeof(data); n++) {
		ck_assert_ptr_nonnull(HMAC(EVP_sha256(), key, sizeof(key), data, n, want, &len));
		hmac_once(&prepared, data, n, got);
		ck_assert_mem_eq(got, want, sizeof(want));
	}
}
END_TEST

/* Test case 2 of RFC 4231 needs a shorter key; padded with zeros it is the same key. */
START_TEST(test_known_answer)
{
	static const uint8_t want[4] = {0x5b, 0xdc, 0xc1, 0x46};
	const uint8_t key[HMAC_KEY_BYTES] = "Jefe";
	uint8_t got[HMAC_BYTES];
	struct hmac h;

	hmac_init(&h, key);
	hmac_update(&h, "what do ya want for nothing?", 28);
	hmac_fini(&h, got);
	ck_assert_mem_eq(got, want, sizeof(want));
}
END_TEST

UNIT_MAIN("hmac", test_equal_to_libcrypto, test_prepared_key, test_known_answer)
