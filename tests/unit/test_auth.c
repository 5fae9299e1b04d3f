/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/auth.h"

#include <stdbool.h>
#include <string.h>
#include "tests/lib/unit.h"

static const uint8_t secret[AUTH_SECRET_BYTES] = "the secret of the test cluster!";
static const uint8_t other_secret[AUTH_SECRET_BYTES] = "the secret of another cluster!!";
static const uint8_t cluster[16] = "test cluster id";

START_TEST(test_derived_keys_differ)
	{
		uint8_t salt[AUTH_SALT_BYTES] = {1}, a[32], b[32];
		struct slice s = slice_of(salt, sizeof(salt));

		ck_assert_int_eq(auth_derive(secret, "token", s, a), 0);
		ck_assert_int_eq(auth_derive(secret, "token", s, b), 0);
		ck_assert_mem_eq(a, b, sizeof(a));
		ck_assert_int_eq(auth_derive(secret, "receipt", s, b), 0);
		ck_assert_mem_ne(a, b, sizeof(a));
		salt[15] ^= 1;
		ck_assert_int_eq(auth_derive(secret, "token", s, b), 0);
		ck_assert_mem_ne(a, b, sizeof(a));
		ck_assert_int_eq(auth_derive(secret, "token", slice_of(salt, 15), b), ERR_FORMAT);
		ck_assert_int_eq(auth_derive(secret, "token", slice_of(NULL, 0), b), ERR_FORMAT);
	}
END_TEST

static ProtobufCBinaryData bytes_of(const char *text)
{
	return (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)text, .len = strlen(text)};
}

START_TEST(test_registration_covers_its_fields)
	{
		Craton__RegisterRequest request = CRATON__REGISTER_REQUEST__INIT;
		Craton__DiskRegister disk = CRATON__DISK_REGISTER__INIT, *disks[] = {&disk};
		uint8_t mac[32], other_cluster[16] = "another cluster";
		char name[] = "chunkd-1", address[] = "127.0.0.1:7101", domain[] = "rack-1";

		request.server_uuid = bytes_of("0123456789abcdef");
		request.name = name;
		request.address = address;
		request.domain = domain;
		request.nonce = bytes_of("nonce");
		disk.uuid = bytes_of("fedcba9876543210");
		request.n_disks = 1;
		request.disks = disks;
		auth_register(secret, cluster, &request, mac);
		request.auth = (ProtobufCBinaryData){.data = mac, .len = sizeof(mac)};
		ck_assert_int_eq(auth_register_verify(secret, cluster, &request), 0);

		ck_assert_int_eq(auth_register_verify(secret, other_cluster, &request), ERR_ACCES);
		ck_assert_int_eq(auth_register_verify(other_secret, cluster, &request), ERR_ACCES);
		disk.disk = 1;
		ck_assert_int_eq(auth_register_verify(secret, cluster, &request), ERR_ACCES);
		disk.disk = 0;
		disk.generation = 1;
		ck_assert_int_eq(auth_register_verify(secret, cluster, &request), ERR_ACCES);
		disk.generation = 0;
		request.name = address;
		ck_assert_int_eq(auth_register_verify(secret, cluster, &request), ERR_ACCES);
		request.name = name;
		request.n_disks = 0;
		ck_assert_int_eq(auth_register_verify(secret, cluster, &request), ERR_ACCES);
		request.n_disks = 1;
		request.auth.len = 31;
		ck_assert_int_eq(auth_register_verify(secret, cluster, &request), ERR_ACCES);
		request.auth.len = 32;
		ck_assert_int_eq(auth_register_verify(secret, cluster, &request), 0);
	}
END_TEST

START_TEST(test_heartbeat_covers_its_fields)
	{
		Craton__HeartbeatRequest request = CRATON__HEARTBEAT_REQUEST__INIT;
		Craton__DiskBeat beat = CRATON__DISK_BEAT__INIT, *beats[] = {&beat};
		uint64_t free_bytes[3] = {1, 2, 3};
		char error[] = "EIO";
		uint8_t mac[32];

		request.server = 1;
		request.server_uuid = bytes_of("0123456789abcdef");
		request.disks = beats;
		request.n_disks = 1;
		beat.free_bytes = free_bytes;
		beat.n_free_bytes = 3;
		auth_heartbeat(secret, cluster, &request, mac);
		request.auth = (ProtobufCBinaryData){.data = mac, .len = sizeof(mac)};
		ck_assert_int_eq(auth_heartbeat_verify(secret, cluster, &request), 0);

		ck_assert_int_eq(auth_heartbeat_verify(other_secret, cluster, &request), ERR_ACCES);
		beat.failed = true;
		ck_assert_int_eq(auth_heartbeat_verify(secret, cluster, &request), ERR_ACCES);
		beat.failed = false;
		request.stopping = true;
		ck_assert_int_eq(auth_heartbeat_verify(secret, cluster, &request), ERR_ACCES);
		request.stopping = false;
		beat.generation = 1;
		ck_assert_int_eq(auth_heartbeat_verify(secret, cluster, &request), ERR_ACCES);
		beat.generation = 0;
		free_bytes[2]++;
		ck_assert_int_eq(auth_heartbeat_verify(secret, cluster, &request), ERR_ACCES);
		free_bytes[2]--;
		beat.error = error;
		ck_assert_int_eq(auth_heartbeat_verify(secret, cluster, &request), ERR_ACCES);
		beat.error = (char *)(uintptr_t)protobuf_c_empty_string;
		request.auth.len = 0;
		ck_assert_int_eq(auth_heartbeat_verify(secret, cluster, &request), ERR_ACCES);
		request.auth.len = 32;
		ck_assert_int_eq(auth_heartbeat_verify(secret, cluster, &request), 0);
	}
END_TEST

START_TEST(test_secret_file)
	{
		static const char text[] = "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F\n";
		uint8_t out[AUTH_SECRET_BYTES], keep;

		ck_assert_int_eq(auth_parse_secret(slice_of(text, 65), out), 0);
		for (size_t i = 0; i < sizeof(out); i++)
			ck_assert_uint_eq(out[i], i);
		ck_assert_int_eq(auth_parse_secret(slice_of(text, 64), out), 0);
		keep = out[0];
		ck_assert_int_eq(auth_parse_secret(slice_of(text, 63), out), ERR_FORMAT);
		ck_assert_int_eq(auth_parse_secret(slice_of(text + 1, 64), out), ERR_FORMAT);
		ck_assert_int_eq(auth_parse_secret(slice_of(NULL, 0), out), ERR_FORMAT);
		ck_assert_uint_eq(out[0], keep);
	}
END_TEST

UNIT_MAIN("auth", test_derived_keys_differ, test_registration_covers_its_fields, test_heartbeat_covers_its_fields,
	test_secret_file)
