/* SPDX-License-Identifier: Apache-2.0 */
/* manifest: see manifest.h. Written by printf, read through jsonread; every value read is checked for its range. */
#include "trainer/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include "trainer/jsonread.h"

#define MANIFEST_FORMAT "craton-train checkpoint"
#define MANIFEST_HASH_KEY "\"manifest_sha256\""

const char *const manifest_file_name[MANIFEST_FILES] = {"params.f32", "adam_m.f32", "adam_v.f32"};

int manifest_sha256(const void *data, size_t len, uint8_t out[MANIFEST_SHA_BYTES])
{
	return EVP_Digest(data, len, out, NULL, EVP_sha256(), NULL) == 1 ? 0 : -EIO;
}

void manifest_hex(const uint8_t sha[MANIFEST_SHA_BYTES], char out[2 * MANIFEST_SHA_BYTES + 1])
{
	for (int i = 0; i < MANIFEST_SHA_BYTES; i++)
		snprintf(out + 2 * i, 3, "%02x", sha[i]);
}

static int manifest_unhex(const char *text, uint8_t sha[MANIFEST_SHA_BYTES])
{
	if (strlen(text) != 2 * MANIFEST_SHA_BYTES || strspn(text, "0123456789abcdef") != 2 * MANIFEST_SHA_BYTES)
		return -EBADMSG;
	for (int i = 0; i < MANIFEST_SHA_BYTES; i++) {
		char pair[3] = {text[2 * i], text[2 * i + 1], 0};

		sha[i] = (uint8_t)strtoul(pair, NULL, 16);
	}
	return 0;
}

/* ---- writing ---- */

static void manifest_put_string(FILE *f, const char *s)
{
	putc('"', f);
	for (; *s; s++) {
		if (*s == '"' || *s == '\\')
			fprintf(f, "\\%c", *s);
		else if ((unsigned char)*s < 0x20 || (unsigned char)*s > 0x7e)
			fprintf(f, "\\u00%02x", (unsigned char)*s);
		else
			putc(*s, f);
	}
	putc('"', f);
}

static void manifest_put_meta(FILE *f, const struct manifest_meta *m)
{
	char hex[2 * MANIFEST_SHA_BYTES + 1];

	fprintf(f, "{\n\t\"format\": \"%s\",\n\t\"version\": %d,\n", MANIFEST_FORMAT, MANIFEST_VERSION);
	fprintf(f, "\t\"step\": %" PRIu64 ",\n\t\"sample\": %" PRIu64 ",\n", m->step, m->sample);
	fprintf(f, "\t\"rng\": [\"%016" PRIx64 "\", \"%016" PRIx64 "\", \"%016" PRIx64 "\", \"%016" PRIx64 "\"],\n",
		m->rng.s[0], m->rng.s[1], m->rng.s[2], m->rng.s[3]);
	fprintf(f, "\t\"model\": {\"layers\": %u, \"width\": %u, \"heads\": %u, \"seq_len\": %u},\n", m->shape.layers,
		m->shape.width, m->shape.heads, m->shape.seq_len);
	fprintf(f, "\t\"batch_size\": %u,\n\t\"lanes\": %u,\n\t\"seed\": %" PRIu64 ",\n", m->batch_size, m->lanes,
		m->seed);
	fprintf(f,
		"\t\"optimizer\": {\"name\": \"adamw\", \"lr\": %.17g, \"weight_decay\": %.17g, \"clip\": %.17g, "
		"\"warmup_steps\": %" PRIu64 ", \"decay_steps\": %" PRIu64 "},\n",
		m->adamw.lr, m->adamw.weight_decay, m->adamw.clip, m->adamw.warmup_steps, m->adamw.decay_steps);
	fprintf(f, "\t\"data\": {\"path\": ");
	manifest_put_string(f, m->data_path);
	manifest_hex(m->data_id, hex);
	fprintf(f, ", \"id\": \"%s\", \"holdout_percent\": %u},\n", hex, m->holdout_percent);
}

static void manifest_put_lists(FILE *f, const struct manifest *m, const struct model *model)
{
	char hex[2 * MANIFEST_SHA_BYTES + 1];

	fprintf(f, "\t\"files\": [\n");
	for (int i = 0; i < MANIFEST_FILES; i++) {
		manifest_hex(m->file_sha256[i], hex);
		fprintf(f, "\t\t{\"name\": \"%s\", \"bytes\": %" PRIu64 ", \"sha256\": \"%s\"}%s\n",
			manifest_file_name[i], m->file_bytes[i], hex, i + 1 < MANIFEST_FILES ? "," : "");
	}
	fprintf(f, "\t],\n\t\"tensors\": [\n");
	for (uint32_t i = 0; i < model->tensor_count; i++) {
		const struct model_tensor *t = &model->tensor[i];

		fprintf(f, "\t\t{\"name\": \"%s\", \"offset\": %zu, \"shape\": [%u, %u]}%s\n", t->name, t->offset,
			t->rows, t->cols, i + 1 < model->tensor_count ? "," : "");
	}
	fprintf(f, "\t],\n\t");
}

int manifest_encode(const struct manifest *m, const struct model *model, char **ret_text, size_t *ret_len)
{
	uint8_t sha[MANIFEST_SHA_BYTES];
	char hex[2 * MANIFEST_SHA_BYTES + 1], *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);
	int rc = 0;

	if (!f)
		return -ENOMEM;
	manifest_put_meta(f, &m->meta);
	manifest_put_lists(f, m, model);
	if (fflush(f))
		rc = -ENOMEM;
	if (rc == 0)
		rc = manifest_sha256(text, len, sha);
	if (rc == 0) {
		manifest_hex(sha, hex);
		fprintf(f, "%s: \"%s\"\n}\n", MANIFEST_HASH_KEY, hex);
	}
	if (fclose(f) && rc == 0)
		rc = -ENOMEM;
	if (rc == 0 && len > MANIFEST_BYTES_MAX)
		rc = -E2BIG;
	if (rc) {
		free(text);
		return rc;
	}
	*ret_text = text;
	*ret_len = len;
	return 0;
}

/* ---- reading ---- */

struct manifest_reader {
	const struct jsonread *j;
	int rc; /* sticky */
};

static uint64_t manifest_get_u64(struct manifest_reader *r, int object, const char *key, uint64_t min, uint64_t max)
{
	uint64_t v = min;

	if (jsonread_u64(r->j, jsonread_member(r->j, object, key), &v) || v < min || v > max)
		r->rc = -EBADMSG;
	return v;
}

static double manifest_get_f64(struct manifest_reader *r, int object, const char *key)
{
	double v = 0;

	if (jsonread_f64(r->j, jsonread_member(r->j, object, key), &v) || !(v >= 0 && v <= 1e6))
		r->rc = -EBADMSG;
	return v;
}

static void manifest_get_sha(struct manifest_reader *r, int object, const char *key, uint8_t sha[MANIFEST_SHA_BYTES])
{
	char text[2 * MANIFEST_SHA_BYTES + 1];

	if (jsonread_str(r->j, jsonread_member(r->j, object, key), text, sizeof(text)) || manifest_unhex(text, sha))
		r->rc = -EBADMSG;
}

static void manifest_get_rng(struct manifest_reader *r, struct model_rng *rng)
{
	int list = jsonread_member(r->j, 0, "rng");

	for (unsigned i = 0; i < 4; i++) {
		char text[17], *end = text;

		if (jsonread_str(r->j, jsonread_item(r->j, list, i), text, sizeof(text)) || strlen(text) != 16) {
			r->rc = -EBADMSG;
			return;
		}
		rng->s[i] = strtoull(text, &end, 16);
		if (*end)
			r->rc = -EBADMSG;
	}
}

static void manifest_get_meta(struct manifest_reader *r, struct manifest_meta *m)
{
	int model = jsonread_member(r->j, 0, "model"), adam = jsonread_member(r->j, 0, "optimizer");
	int data = jsonread_member(r->j, 0, "data");

	m->step = manifest_get_u64(r, 0, "step", 0, UINT64_MAX);
	m->sample = manifest_get_u64(r, 0, "sample", 0, UINT64_MAX);
	manifest_get_rng(r, &m->rng);
	m->shape.layers = (uint32_t)manifest_get_u64(r, model, "layers", 1, MODEL_LAYERS_MAX);
	m->shape.width = (uint32_t)manifest_get_u64(r, model, "width", 1, MODEL_WIDTH_MAX);
	m->shape.heads = (uint32_t)manifest_get_u64(r, model, "heads", 1, MODEL_WIDTH_MAX);
	m->shape.seq_len = (uint32_t)manifest_get_u64(r, model, "seq_len", 1, MODEL_SEQ_MAX);
	m->batch_size = (uint32_t)manifest_get_u64(r, 0, "batch_size", 1, UINT32_MAX);
	m->lanes = (uint32_t)manifest_get_u64(r, 0, "lanes", 1, UINT32_MAX);
	m->seed = manifest_get_u64(r, 0, "seed", 0, UINT64_MAX);
	m->adamw.lr = manifest_get_f64(r, adam, "lr");
	m->adamw.weight_decay = manifest_get_f64(r, adam, "weight_decay");
	m->adamw.clip = manifest_get_f64(r, adam, "clip");
	m->adamw.warmup_steps = manifest_get_u64(r, adam, "warmup_steps", 0, UINT64_MAX);
	m->adamw.decay_steps = manifest_get_u64(r, adam, "decay_steps", 0, UINT64_MAX);
	m->holdout_percent = (uint32_t)manifest_get_u64(r, data, "holdout_percent", 1, 99);
	if (jsonread_str(r->j, jsonread_member(r->j, data, "path"), m->data_path, sizeof(m->data_path)))
		r->rc = -EBADMSG;
	manifest_get_sha(r, data, "id", m->data_id);
}

static int manifest_read(const struct jsonread *j, struct manifest *m, struct terr *e)
{
	struct manifest_reader r = {.j = j};
	int files = jsonread_member(j, 0, "files");
	char format[64];
	uint64_t version;

	if (jsonread_str(j, jsonread_member(j, 0, "format"), format, sizeof(format)) || strcmp(format, MANIFEST_FORMAT))
		return terr_set(e, -EINVAL, "not the manifest of a checkpoint of craton-train");
	if (jsonread_u64(j, jsonread_member(j, 0, "version"), &version) || version != MANIFEST_VERSION)
		return terr_set(
			e, -EINVAL, "its version is not %d: use the craton-train that wrote it", MANIFEST_VERSION);
	manifest_get_meta(&r, &m->meta);
	for (unsigned i = 0; i < MANIFEST_FILES; i++) {
		int file = jsonread_item(j, files, i);
		char name[64];

		if (jsonread_str(j, jsonread_member(j, file, "name"), name, sizeof(name)) ||
			strcmp(name, manifest_file_name[i]))
			r.rc = -EBADMSG;
		m->file_bytes[i] = manifest_get_u64(&r, file, "bytes", 1, INT64_MAX);
		manifest_get_sha(&r, file, "sha256", m->file_sha256[i]);
	}
	return r.rc ? terr_set(e, r.rc, "a member is missing or out of range") : 0;
}

/* The text before the last member, and that member's value. */
static int manifest_check_hash(const char *text, size_t len)
{
	static const char key[] = MANIFEST_HASH_KEY;
	size_t key_len = sizeof(key) - 1, at = len;
	uint8_t want[MANIFEST_SHA_BYTES], have[MANIFEST_SHA_BYTES];
	char hex[2 * MANIFEST_SHA_BYTES + 1];

	while (at > 0 && (len - at < key_len || memcmp(text + at, key, key_len)))
		at--;
	if (at == 0 || len - at < key_len + 3 + 2 * MANIFEST_SHA_BYTES)
		return -EBADMSG;
	memcpy(hex, text + at + key_len + 3, 2 * MANIFEST_SHA_BYTES);
	hex[2 * MANIFEST_SHA_BYTES] = 0;
	if (manifest_unhex(hex, want) || manifest_sha256(text, at, have))
		return -EBADMSG;
	return memcmp(want, have, sizeof(want)) ? -EBADMSG : 0;
}

int manifest_decode(const char *text, size_t len, struct manifest *ret_manifest, struct terr *e)
{
	struct jsonread j;
	struct manifest m = {0};
	int rc = manifest_check_hash(text, len);

	if (rc)
		return terr_set(e, rc, "its SHA-256 does not fit its text");
	rc = jsonread_parse(&j, text, len);
	if (rc)
		return terr_set(e, -EBADMSG, "it is not JSON");
	rc = manifest_read(&j, &m, e);
	jsonread_fini(&j);
	if (rc == 0)
		*ret_manifest = m;
	return rc;
}
