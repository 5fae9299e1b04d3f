/* SPDX-License-Identifier: Apache-2.0 */
/* The decoder of metad's log entries on arbitrary bytes. What decodes must encode to the bytes it came from. */
#include "common/base/check.h"
#include "common/base/mem.h"
#include "metad/state/cmd.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct state_cmd *cmd = mem_alloc(sizeof(*cmd));
	uint8_t *out = mem_alloc(size + 1);
	struct state_entry entry;
	struct rcursor r;

	rcursor_init(&r, data, size);
	if (state_entry_decode(&r, &entry) == 0) {
		for (uint32_t i = 0; i < entry.count; i++) {
			size_t start = r.pos;
			struct wcursor w;

			if (state_cmd_decode(&r, cmd))
				break;
			wcursor_init(&w, out, size);
			state_cmd_encode(cmd, &w);
			CHECK(!w.failed && w.len == r.pos - start && memcmp(out, data + start, w.len) == 0);
		}
	}
	mem_free(out);
	mem_free(cmd);
	return 0;
}
