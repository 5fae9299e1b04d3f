/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The small parsers of text that people, files and other hosts give: sizes, times, numbers, uuids, addresses and lists of them, values of
 * settings, names of segment files. What has one way to be written is written that way and read again.
 */
#include <string.h>
#include "chunkd/segment.h"
#include "common/base/check.h"
#include "common/base/err.h"
#include "common/base/ids.h"
#include "common/base/mem.h"
#include "common/base/units.h"
#include "common/io/io.h"
#include "common/rpc/replicas.h"
#include "metad/state/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_identities(const char *text)
{
	char out[IO_ADDR_TEXT_BYTES], uuid_text[UUID_TEXT_BYTES];
	struct io_addr addr, addr_again;
	struct uuid uuid, uuid_again;
	enum alloc_class class;
	uint32_t number;

	if (uuid_parse(text, &uuid) == 0) {
		uuid_format(&uuid, uuid_text);
		CHECK(uuid_parse(uuid_text, &uuid_again) == 0 && uuid_equal(&uuid, &uuid_again));
	}
	if (io_addr_parse(text, &addr) == 0) {
		CHECK(addr.family == 4 || addr.family == 6);
		CHECK(io_addr_parse(io_addr_format(&addr, out), &addr_again) == 0);
		CHECK(addr.family == addr_again.family && addr.port == addr_again.port &&
			memcmp(addr.ip, addr_again.ip, addr.family == 4 ? 4 : 16) == 0);
	}
	if (segment_parse_name(text, &number, &class))
		CHECK(number < SEGMENT_COUNT_MAX);
}

static void try_list(const char *text)
{
	struct rpc_addrs addrs, again;
	char out[RPC_ADDRS_TEXT_BYTES];
	int rc = rpc_addrs_parse(text, &addrs);

	CHECK(rc == 0 || ((rc == ERR_INVAL || rc == ERR_EXIST || rc == ERR_MSGSIZE) && rpc_addrs_fault(rc)[0]));
	if (rc)
		return;
	CHECK(addrs.count >= 1 && addrs.count <= LIMIT_METADS);
	for (uint32_t i = 1; i < addrs.count; i++)
		for (uint32_t j = 0; j < i; j++)
			CHECK(!io_addr_equal(&addrs.addrs[i], &addrs.addrs[j]));
	rpc_addrs_format(&addrs, out);
	CHECK(rpc_addrs_parse(out, &again) == 0 && again.count == addrs.count);
	for (uint32_t i = 0; i < addrs.count; i++)
		CHECK(io_addr_equal(&addrs.addrs[i], &again.addrs[i]));
}

static void try_numbers(const char *text)
{
	uint64_t value = 7;
	int rc = units_parse_bytes(text, &value);

	CHECK(rc == 0 || ((rc == ERR_INVAL || rc == ERR_RANGE) && value == 7));
	value = 7;
	rc = units_parse_ms(text, &value);
	CHECK(rc == 0 || ((rc == ERR_INVAL || rc == ERR_RANGE) && value == 7));
	value = 7;
	rc = units_parse_u64(text, 3, 1000, &value);
	CHECK(rc == 0 ? value >= 3 && value <= 1000 : (rc == ERR_INVAL || rc == ERR_RANGE) && value == 7);
}

static void try_settings(const char *text)
{
	for (int i = 0; i < CONFIG_COUNT; i++) {
		const struct config_setting *setting = &config_settings[i];
		char out[CONFIG_TEXT_BYTES];
		struct err err = {0};
		uint64_t value;
		int rc = config_parse(setting, text, &value, &err);

		CHECK(rc == err.code && !strchr(err.text, '\n'));
		CHECK(rc == 0 || rc == ERR_INVAL || rc == ERR_RANGE);
		if (rc == 0) {
			CHECK(value >= setting->min && value <= setting->max);
			CHECK(strlen(config_format(setting->type, value, out)) < sizeof(out));
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = mem_alloc(size + 1);
	enum config_id id;
	int rc;

	if (size)
		memcpy(text, data, size);
	text[size] = '\0';
	try_identities(text);
	try_list(text);
	try_numbers(text);
	try_settings(text);
	rc = config_find(slice_of(data, size), &id);
	CHECK(rc == ERR_NOENT || (rc == 0 && strlen(config_settings[id].name) == size));
	mem_free(text);
	return 0;
}
