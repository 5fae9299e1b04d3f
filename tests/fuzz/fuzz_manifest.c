/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The decoder of a checkpoint's manifest on arbitrary bytes, as they are and once more followed by a hash that fits, so that
 * the JSON behind it is reached too.
 */
#include "trainer/manifest.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_decode(const char *text, size_t size)
{
	static struct manifest m;
	struct terr e;

	if (manifest_decode(text, size, &m, &e))
		return;
	if (m.meta.shape.layers < 1 || m.meta.shape.layers > MODEL_LAYERS_MAX || m.meta.holdout_percent > 99 ||
		!memchr(m.meta.data_path, 0, sizeof(m.meta.data_path)))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char key[] = "\"manifest_sha256\"";
	uint8_t sha[MANIFEST_SHA_BYTES];
	char hex[2 * MANIFEST_SHA_BYTES + 1], *copy = malloc(size + 128);
	const uint8_t *at = memmem(data, size, key, sizeof(key) - 1);
	size_t body = at ? (size_t)(at - data) : size;

	try_decode((const char *)data, size);
	if (copy && manifest_sha256(data, body, sha) == 0) {
		int tail;

		manifest_hex(sha, hex);
		memcpy(copy, data, body);
		tail = snprintf(copy + body, 128, "%s: \"%s\"\n}\n", key, hex);
		try_decode(copy, body + (size_t)tail);
	}
	free(copy);
	return 0;
}
