/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest: manifest.json of a checkpoint (docs/FORMATS.md): what was saved, under which options, and the length and SHA-256
 * of every file. Its last member is the SHA-256 of the text before it, so a manifest is whole and unchanged or it is refused.
 */
#ifndef TRAINER_MANIFEST_H
#define TRAINER_MANIFEST_H

#include "trainer/adamw.h"
#include "trainer/model.h"

#define MANIFEST_NAME "manifest.json"
enum {
	MANIFEST_VERSION = 1,
	MANIFEST_BYTES_MAX = 1 << 20,
	MANIFEST_SHA_BYTES = 32,
	MANIFEST_PATH_BYTES = 4096,
};

/* The three arrays of the state, each a file of little-endian IEEE floats in the order of model.h. */
enum manifest_file { MANIFEST_PARAMS, MANIFEST_ADAM_M, MANIFEST_ADAM_V, MANIFEST_FILES };
extern const char *const manifest_file_name[MANIFEST_FILES];

/* What determines a run from here on. Everything up to `rng` moves; the rest must be the same when a run is resumed. */
struct manifest_meta {
	uint64_t step;   /* steps taken */
	uint64_t sample; /* of the next batch's first sample */
	struct model_rng rng;
	struct model_shape shape;
	uint32_t batch_size, lanes, holdout_percent;
	uint64_t seed;
	struct adamw_options adamw;
	char data_path[MANIFEST_PATH_BYTES];
	uint8_t data_id[MANIFEST_SHA_BYTES];
};

struct manifest {
	struct manifest_meta meta;
	uint64_t file_bytes[MANIFEST_FILES];
	uint8_t file_sha256[MANIFEST_FILES][MANIFEST_SHA_BYTES];
};

/* malloc'ed text with its length; -ENOMEM, -E2BIG */
int manifest_encode(const struct manifest *m, const struct model *model, char **ret_text, size_t *ret_len);
/* -EBADMSG: damaged; -EINVAL: of another version or kind. */
int manifest_decode(const char *text, size_t len, struct manifest *ret_manifest, struct terr *e);

int manifest_sha256(const void *data, size_t len, uint8_t out[MANIFEST_SHA_BYTES]); /* -EIO if libcrypto fails */
void manifest_hex(const uint8_t sha[MANIFEST_SHA_BYTES], char out[2 * MANIFEST_SHA_BYTES + 1]);

#endif
