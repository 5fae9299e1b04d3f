/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/log.h"

#include <inttypes.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include "common/base/err.h"
#include "tests/lib/unit.h"

struct sink {
	char line[2048];
	enum log_level level;
	int count;
};

static void sink_write(void *ctx, enum log_level level, const char *line)
{
	struct sink *sink = ctx;

	ck_assert_uint_lt(strlen(line), sizeof(sink->line));
	strcpy(sink->line, line);
	sink->level = level;
	sink->count++;
}

static struct sink sink;
static const struct log logger = {.min_level = LOG_INFO, .write = sink_write, .ctx = &sink, .name = "chunkd-3"};

START_TEST(test_line)
{
	log_line(&logger, LOG_WARN, "disk-failed", "disk=%u error=%s", 3u, err_name(ERR_IO));
	ck_assert_str_eq(sink.line, "chunkd-3 disk-failed disk=3 error=ERR_IO");
	ck_assert_int_eq(sink.level, LOG_WARN);
	log_line(&logger, LOG_INFO, "started", "%s", "");
	log_line(&logger, LOG_DEBUG, "unseen", "%s", "x");
	ck_assert_int_eq(sink.count, 2);
}
END_TEST

START_TEST(test_quoting)
{
	const char *volatile none = NULL; /* or the compiler warns */

	log_line(&logger, LOG_INFO, "e", "path=%s next=%s", "a b", "x\"y\\z");
	ck_assert_str_eq(sink.line, "chunkd-3 e path=\"a b\" next=\"x\\\"y\\\\z\"");
	log_line(&logger, LOG_INFO, "e", "empty=%s none=%s", "", none);
	ck_assert_str_eq(sink.line, "chunkd-3 e empty=\"\" none=null");
	/* Nobody breaks a line or forges a key. */
	log_line(&logger, LOG_INFO, "e", "name=%s plain %s", "a\nb=c", "x\ny\x7f");
	ck_assert_str_eq(sink.line, "chunkd-3 e name=\"a\\x0ab=c\" plain x\\x0ay\\x7f");
	log_line(&logger, LOG_INFO, "e", "name=%.*s", 3, "abcdef");
	ck_assert_str_eq(sink.line, "chunkd-3 e name=abc");
}
END_TEST

START_TEST(test_conversions)
{
	uint64_t big = UINT64_MAX;
	int64_t low = INT64_MIN;
	size_t size = 5;
	ssize_t ssize = -5;

	log_line(&logger, LOG_INFO, "e", "%d %ld %" PRId64 " %zd %hhu %" PRIu64 " %zu %lx %llu", -1, -2L, low, ssize,
		(unsigned char)200, big, size, 0xabcUL, 1ull << 63);
	ck_assert_str_eq(sink.line,
		"chunkd-3 e -1 -2 -9223372036854775808 -5 200 18446744073709551615 5 abc 9223372036854775808");
	log_line(&logger, LOG_INFO, "e", "%04x %-4d| %*d %.2f %g %c 100%% %016" PRIx64, 0xabu, 7, 4, 7, 1.005, 0.5, 'q', big);
	ck_assert_str_eq(sink.line, "chunkd-3 e 00ab 7   |    7 1.00 0.5 q 100% ffffffffffffffff");
}
END_TEST

START_TEST(test_long_lines_are_cut)
{
	char many[3000];

	memset(many, 'a', sizeof(many) - 1);
	many[sizeof(many) - 1] = 0;
	log_line(&logger, LOG_INFO, "e", "x=%s y=%s", many, many);
	ck_assert_uint_eq(strlen(sink.line), 1024);
}
END_TEST

UNIT_MAIN("log", test_line, test_quoting, test_conversions, test_long_lines_are_cut)
