/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/manifest.h"

#include <errno.h>
#include <string.h>
#include "tests/lib/unit.h"

static void bed_manifest(struct manifest *m, struct model *model)
{
	struct terr e;

	memset(m, 0, sizeof(*m));
	m->meta.step = 1234;
	m->meta.sample = 19744;
	m->meta.rng = (struct model_rng){{1, 2, UINT64_MAX, 4}};
	m->meta.shape = (struct model_shape){2, 16, 2, 32};
	m->meta.batch_size = 16;
	m->meta.lanes = 4;
	m->meta.holdout_percent = 5;
	m->meta.seed = UINT64_MAX;
	m->meta.adamw = (struct adamw_options){0.1, 1.0 / 3, 1, 50, 2000};
	strcpy(m->meta.data_path, "/data/\"odd\" name\\ \xc3\xbc");
	memset(m->meta.data_id, 0xab, sizeof(m->meta.data_id));
	for (int i = 0; i < MANIFEST_FILES; i++) {
		m->file_bytes[i] = 1000 + (uint64_t)i;
		memset(m->file_sha256[i], i, MANIFEST_SHA_BYTES);
	}
	ck_assert_int_eq(model_init(model, &m->meta.shape, &e), 0);
}

START_TEST(test_round_trip)
{
	static struct manifest in, out;
	static struct model model;
	struct terr e;
	char *text;
	size_t len;

	bed_manifest(&in, &model);
	ck_assert_int_eq(manifest_encode(&in, &model, &text, &len), 0);
	ck_assert_msg(manifest_decode(text, len, &out, &e) == 0, "%s", e.text);
	ck_assert_int_eq(memcmp(&in, &out, sizeof(in)), 0);
	free(text);
}
END_TEST

START_TEST(test_every_changed_byte_is_refused)
{
	static struct manifest in, out;
	static struct model model;
	struct terr e;
	char *text;
	size_t len;

	bed_manifest(&in, &model);
	ck_assert_int_eq(manifest_encode(&in, &model, &text, &len), 0);
	for (size_t i = 0; i + 3 < len; i++) { /* the closing quote, brace and newline carry nothing */
		text[i] ^= 1;
		ck_assert_msg(manifest_decode(text, len, &out, &e) < 0, "byte %zu", i);
		text[i] ^= 1;
	}
	for (size_t cut = 0; cut + 4 < len; cut += 7)
		ck_assert_int_lt(manifest_decode(text, cut, &out, &e), 0);
	free(text);
}
END_TEST

/* A whole manifest of another kind or version, and one with values out of range, with a hash that fits. */
START_TEST(test_wrong_content_is_refused)
{
	static const char *const edit[][2] = {{"craton-train checkpoint", "craton-train chexkpoint"},
		{"\"version\": 1", "\"version\": 2"}, {"\"layers\": 2", "\"layers\": 0"},
		{"\"width\": 16", "\"width\": 99999999"}, {"\"lr\": ", "\"lx\": "}, {"params.f32", "params.f64"},
		{"\"step\": 1234", "\"step\": -234"}};
	static struct manifest in, out;
	static struct model model;
	struct terr e;
	char *text;
	size_t len;

	bed_manifest(&in, &model);
	ck_assert_int_eq(manifest_encode(&in, &model, &text, &len), 0);
	for (size_t i = 0; i < sizeof(edit) / sizeof(edit[0]); i++) {
		char *at = strstr(text, edit[i][0]), *copy = NULL, *tail = strstr(text, "\"manifest_sha256\"");
		uint8_t sha[MANIFEST_SHA_BYTES];
		char hex[2 * MANIFEST_SHA_BYTES + 1];
		size_t copy_len;
		FILE *f = open_memstream(&copy, &copy_len);

		ck_assert_ptr_nonnull(at);
		fprintf(f, "%.*s%s%.*s", (int)(at - text), text, edit[i][1], (int)(tail - at) - (int)strlen(edit[i][0]),
			at + strlen(edit[i][0]));
		fflush(f);
		manifest_sha256(copy, copy_len, sha);
		manifest_hex(sha, hex);
		fprintf(f, "\"manifest_sha256\": \"%s\"\n}\n", hex);
		fclose(f);
		ck_assert_msg(manifest_decode(copy, copy_len, &out, &e) == (i < 2 ? -EINVAL : -EBADMSG), "%s: %s",
			edit[i][1], e.text);
		free(copy);
	}
	free(text);
}
END_TEST

UNIT_MAIN("manifest", test_round_trip, test_every_changed_byte_is_refused, test_wrong_content_is_refused)
