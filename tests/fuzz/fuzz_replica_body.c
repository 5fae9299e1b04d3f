/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies of a replica's log, as the log has them and as they are sent, and the group's row in its table, on arbitrary bytes. What decodes
 * encodes to the bytes it came from, and a core that begins with such a configuration refuses it or has it.
 */
#include <string.h>
#include "common/base/check.h"
#include "common/base/err.h"
#include "common/base/mem.h"
#include "metad/replica/table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* As of a table with all entries up to the one that says so. */
static void begin(const struct raft_config *config)
{
	static const struct raft_options options = {.id = 1,
		.heartbeat_ms = 50,
		.election_ms = 250,
		.message_bytes = 1000,
		.inflight_bytes = 4000,
		.seed = 1};
	const struct raft_boot boot = {.term = 2,
		.base_index = config->index,
		.base_term = 1,
		.last_index = config->index,
		.config = *config,
		.commit = config->index};
	struct raft_core *core = MEM_NEW(struct raft_core);
	int rc = raft_init(core, &options, &boot, 0);

	CHECK(rc == 0 || rc == ERR_CORRUPT);
	CHECK(rc || (config->count > 0 && body_configs_equal(&core->config, config)));
	mem_free(core);
}

static void try_body(struct slice data)
{
	enum { INDEX = 7 };
	uint8_t out[BODY_CONFIG_BYTES_MAX];
	struct raft_config config;
	enum body_kind kind;
	int rc = body_decode(data, INDEX, &kind, &config);

	CHECK(rc == 0 || rc == ERR_FORMAT);
	if (rc)
		return;
	if (kind != BODY_CONFIG) {
		CHECK(kind == BODY_NOOP ? data.len == 1 : kind == BODY_COMMANDS && data.len > 1);
		return;
	}
	CHECK(config.index == INDEX && config.count <= RAFT_MEMBERS_MAX);
	CHECK(slice_compare(slice_of(out, body_encode_config(&config, out)), data) == 0);
	begin(&config);
}

static void try_row(struct slice data)
{
	uint8_t out[TABLE_GROUP_BYTES_MAX];
	struct raft_config config;
	int rc = table_group_decode(data, &config);

	CHECK(rc == 0 || rc == ERR_CORRUPT);
	if (rc)
		return;
	CHECK(config.index > 0 && config.count <= RAFT_MEMBERS_MAX);
	CHECK(slice_compare(slice_of(out, table_group_encode(&config, out)), data) == 0);
	begin(&config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	try_body(slice_of(data, size));
	try_row(slice_of(data, size));
	return 0;
}
