/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration files: any bytes are read or refused with one line. */
#include <stdint.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/opt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct values {
	bool flag;
	const char *text;
	uint64_t number, bytes, ms;
	struct opt_list list;
};

static const struct opt table[] = {
	{.name = "flag", .type = OPT_FLAG, .offset = offsetof(struct values, flag)},
	{.name = "listen", .type = OPT_STRING, .offset = offsetof(struct values, text), .default_ = "x"},
	{.name = "number", .type = OPT_U64, .offset = offsetof(struct values, number), .min = 1, .max = 64},
	{.name = "capacity", .type = OPT_BYTES, .offset = offsetof(struct values, bytes), .max = 1ull << 50},
	{.name = "timeout", .type = OPT_MS, .offset = offsetof(struct values, ms)},
	{.name = "disk", .type = OPT_LIST, .offset = offsetof(struct values, list)},
	{0},
};

static const char *const others[] = {"metad", "cluster", NULL};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct opt_parser parser;
	struct values values;
	struct err err = {0};
	int rc;

	opt_init(&parser, table, &values);
	rc = opt_parse_text(&parser, "fuzz", (const char *)data, size, size & 1 ? others : NULL, &err);
	CHECK(rc == 0 || rc == ERR_INVAL);
	CHECK(rc == err.code && !strchr(err.text, '\n'));
	CHECK(rc || (values.number <= 64 && values.text));
	opt_fini(&parser);
	return 0;
}
