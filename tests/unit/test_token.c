/* SPDX-License-Identifier: Apache-2.0 */
#include "common/code/token.h"

#include "common/base/err.h"
#include "tests/lib/unit.h"

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

static const struct token sample = {
	.block = 0x0102030405060708,
	.expires_ms = 123456789,
	.max_chunk_bytes = 4 << 20,
	.disk = 7,
	.incarnation = 2,
	.index = 5,
	.policy = 1,
	.rights = TOKEN_WRITE,
};

START_TEST(test_sealed_token_opens)
	{
		uint8_t bytes[TOKEN_BYTES], mac[TOKEN_MAC_BYTES];
		struct token t;

		prepare_keys();
		token_seal(&sample, &keys[1], bytes);
		token_hmac(&keys[1].key, bytes, TOKEN_BYTES - TOKEN_MAC_BYTES, mac);
		ck_assert_mem_eq(bytes + TOKEN_BYTES - TOKEN_MAC_BYTES, mac, sizeof(mac));
		ck_assert_int_eq(token_open(slice_of(bytes, sizeof(bytes)), keys, 2, &t), 0);
		ck_assert_uint_eq(t.block, sample.block);
		ck_assert_uint_eq(t.expires_ms, sample.expires_ms);
		ck_assert_uint_eq(t.max_chunk_bytes, sample.max_chunk_bytes);
		ck_assert_uint_eq(t.disk, 7);
		ck_assert_uint_eq(t.incarnation, 2);
		ck_assert_uint_eq(t.key_id, 4);
		ck_assert_uint_eq(t.index, 5);
		ck_assert_uint_eq(t.policy, 1);
		ck_assert_uint_eq(t.rights, TOKEN_WRITE);
	}
END_TEST

START_TEST(test_any_changed_bit_is_refused)
	{
		uint8_t bytes[TOKEN_BYTES];
		struct token t;

		prepare_keys();
		token_seal(&sample, &keys[0], bytes);
		for (size_t bit = 0; bit < TOKEN_BYTES * 8; bit++) {
			bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
			ck_assert_int_eq(token_open(slice_of(bytes, sizeof(bytes)), keys, 2, &t), ERR_TOKEN);
			bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
		}
		ck_assert_int_eq(token_open(slice_of(bytes, sizeof(bytes)), keys, 2, &t), 0);
	}
END_TEST

START_TEST(test_wrong_length_and_unknown_key)
	{
		uint8_t bytes[TOKEN_BYTES + 1] = {0};
		struct token t;

		prepare_keys();
		token_seal(&sample, &keys[1], bytes);
		for (size_t len = 0; len <= sizeof(bytes); len++)
			ck_assert_int_eq(
				token_open(slice_of(bytes, len), keys, 2, &t), len == TOKEN_BYTES ? 0 : ERR_TOKEN);
		ck_assert_int_eq(token_open(slice_of(bytes, TOKEN_BYTES), keys, 1, &t), ERR_TOKEN);
		ck_assert_int_eq(token_open(slice_of(bytes, TOKEN_BYTES), keys, 0, &t), ERR_TOKEN);
	}
END_TEST

START_TEST(test_hmac_known_answer)
	{
		/* RFC 4231 test case 2: zero padding to the block makes "Jefe" and "Jefe" + zeros the same HMAC key. */
		static const uint8_t key[TOKEN_KEY_BYTES] = "Jefe";
		static const uint8_t expected[TOKEN_MAC_BYTES] = {
			0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e, 0x6a, 0x04, 0x24, 0x26, 0x08, 0x95, 0x75, 0xc7};
		uint8_t mac[TOKEN_MAC_BYTES];
		struct hmac_key prepared;

		hmac_key_init(&prepared, key);
		token_hmac(&prepared, "what do ya want for nothing?", 28, mac);
		ck_assert_mem_eq(mac, expected, sizeof(mac));
	}
END_TEST

START_TEST(test_receipt_covers_every_field)
	{
		const struct receipt good = {.block = 9,
			.length = 4096,
			.generation = 3,
			.disk = 2,
			.incarnation = 1,
			.crc = 0xabcdef01,
			.index = 4};
		struct hmac_key prepared[2];
		struct receipt bad[7];
		uint8_t mac[TOKEN_MAC_BYTES];

		for (int i = 0; i < 2; i++)
			hmac_key_init(&prepared[i], raw_keys[i]);
		receipt_mac(&good, &prepared[0], mac);
		ck_assert_int_eq(receipt_verify(&good, &prepared[0], slice_of(mac, sizeof(mac))), 0);
		ck_assert_int_eq(receipt_verify(&good, &prepared[1], slice_of(mac, sizeof(mac))), ERR_RECEIPT);
		ck_assert_int_eq(receipt_verify(&good, &prepared[0], slice_of(mac, sizeof(mac) - 1)), ERR_RECEIPT);
		ck_assert_int_eq(receipt_verify(&good, &prepared[0], slice_of(NULL, 0)), ERR_RECEIPT);
		for (int i = 0; i < 7; i++)
			bad[i] = good;
		bad[0].block++;
		bad[1].length++;
		bad[2].generation++;
		bad[3].disk++;
		bad[4].incarnation++;
		bad[5].crc++;
		bad[6].index++;
		for (int i = 0; i < 7; i++)
			ck_assert_int_eq(receipt_verify(&bad[i], &prepared[0], slice_of(mac, sizeof(mac))), ERR_RECEIPT);
	}
END_TEST

START_TEST(test_bytes)
	{
		const struct receipt r = {.block = 9, .length = 4096, .generation = 3, .disk = 2, .incarnation = 1, .crc = 0xabcdef01, .index = 4};
		uint8_t bytes[TOKEN_BYTES], mac[TOKEN_MAC_BYTES];

		prepare_keys();
		token_seal(&sample, &keys[1], bytes);
		ck_assert_str_eq(unit_hex(bytes, sizeof(bytes)),
			"01" "04" "05" "01" "02" "000000" "0807060504030201" "15cd5b0700000000" "0000400000000000"
			"07000000" "02000000" "0000000000000000" "b7993220764e36c2be35c20fa2ce4c60");
		receipt_mac(&r, &keys[0].key, mac);
		ck_assert_str_eq(unit_hex(mac, sizeof(mac)), "e198011a8c1defca79c3ab39536685b5");
	}
END_TEST

UNIT_MAIN("token", test_bytes, test_sealed_token_opens, test_any_changed_bit_is_refused, test_wrong_length_and_unknown_key,
	test_hmac_known_answer, test_receipt_covers_every_field)
