/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The small files in the directory of a group's metad (`founding`, a table's `snapshot`, `differs`, `founders`) on any bytes, as they are and with a
 * CRC that fits. What is taken must encode to the bytes it came from.
 */
#include <string.h>
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "metad/founders.h"
#include "metad/ledger.h"
#include "metad/replica/founding.h"
#include "metad/replica/table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_code(int rc, const struct err *err)
{
	CHECK(rc == 0 ||
		((rc == ERR_CORRUPT || rc == ERR_VERSION) && rc == err->code && strncmp(err->text, "file: ", 6) == 0));
}

static void try_founding(struct slice data)
{
	uint8_t out[FOUNDING_BYTES];
	struct err err = {0};
	struct founding f;
	int rc = founding_decode("file", data, &f, &err);

	check_code(rc, &err);
	if (rc)
		return;
	founding_encode(&f, out);
	CHECK(slice_compare(slice_of(out, sizeof(out)), data) == 0);
}

static void try_mark(struct slice data)
{
	uint8_t out[TABLE_MARK_BYTES];
	struct err err = {0};
	uint64_t snapshot;
	int rc = table_mark_decode("file", data, &snapshot, &err);

	check_code(rc, &err);
	if (rc)
		return;
	table_mark_encode(snapshot, out);
	CHECK(slice_compare(slice_of(out, sizeof(out)), data) == 0);
}

static void try_differs(struct slice data)
{
	uint8_t out[LEDGER_DIFFERS_BYTES];
	uint64_t same, differs;
	int rc = ledger__differs_decode(data, &same, &differs);

	CHECK(rc == 0 || rc == ERR_CORRUPT);
	if (rc)
		return;
	ledger__differs_encode(same, differs, out);
	CHECK(slice_compare(slice_of(out, sizeof(out)), data) == 0);
}

static void try_founders(struct slice data)
{
	static const struct uuid cluster;
	uint8_t out[FOUNDERS_BYTES_MAX];
	struct founders_said said;
	struct err err = {0};
	int rc = founders_decode("file", data, &cluster, 2, &said, &err);

	CHECK(rc == 0 || (rc == err.code && strncmp(err.text, "file: ", 6) == 0));
	CHECK(rc == 0 || rc == ERR_CORRUPT || rc == ERR_VERSION || rc == ERR_WRONG_CLUSTER || rc == ERR_INVAL);
	if (rc)
		return;
	CHECK(slice_compare(slice_of(out, founders_encode(&cluster, 2, &said, out)), data) == 0);
}

/* As it would have been written, were it one that is so long. */
static void try_mended(const uint8_t *data, size_t size, size_t bytes, void (*try)(struct slice data))
{
	uint8_t copy[FOUNDERS_BYTES_MAX];
	uint32_t crc;

	if (size < bytes - sizeof(crc))
		return;
	memcpy(copy, data, bytes - sizeof(crc));
	crc = crc32c(copy, bytes - sizeof(crc));
	memcpy(copy + bytes - sizeof(crc), &crc, sizeof(crc));
	try(slice_of(copy, bytes));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	try_founding(slice_of(data, size));
	try_mark(slice_of(data, size));
	try_differs(slice_of(data, size));
	try_founders(slice_of(data, size));
	try_mended(data, size, FOUNDING_BYTES, try_founding);
	try_mended(data, size, TABLE_MARK_BYTES, try_mark);
	try_mended(data, size, LEDGER_DIFFERS_BYTES, try_differs);
	for (size_t i = 0; i <= LIMIT_METADS; i++)
		try_mended(data, size, FOUNDERS_BYTES_MAX - i * FOUNDERS_NONCE_BYTES, try_founders);
	return 0;
}
