/* SPDX-License-Identifier: Apache-2.0 */
/* restore: see restore.h. */
#include "trainer/restore.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

enum { RESTORE_PIECE_BYTES = 8 << 20 };

bool restore_damaged(int rc)
{
	return rc == -EBADMSG || rc == -EIO || rc == -ENOENT || rc == -ESTALE;
}

static int restore_open(struct cr_store *store, const char *path, const char *name, struct cr_file **ret_file,
	uint64_t *ret_bytes, struct terr *e)
{
	char full[CR_PATH_MAX + 64];
	struct cr_file *file;
	struct cr_stat st;
	int rc;

	snprintf(full, sizeof(full), "%s/%s", path, name);
	rc = cr_open(store, full, CR_READ, 0, &file);
	if (rc)
		return terr_set(e, rc, "%.300s: %.300s", full, cr_error());
	rc = cr_fstat(file, &st);
	if (rc) {
		terr_set(e, rc, "%.300s: %.300s", full, cr_error());
		cr_close(file);
		return rc;
	}
	*ret_file = file;
	*ret_bytes = st.size;
	return 0;
}

int restore_manifest(struct cr_store *store, const char *path, struct manifest *ret_manifest, struct terr *e)
{
	struct cr_file *file;
	struct terr why;
	uint64_t bytes;
	char *text;
	ssize_t n;
	int rc;

	if (strlen(path) >= CR_PATH_MAX)
		return terr_set(e, -ENAMETOOLONG, "%.100s...: the path is too long", path);
	rc = restore_open(store, path, MANIFEST_NAME, &file, &bytes, e);
	if (rc)
		return rc;
	if (bytes > MANIFEST_BYTES_MAX) {
		cr_close(file);
		return terr_set(e, -EBADMSG, "%.300s/%s: too long for a manifest", path, MANIFEST_NAME);
	}
	text = malloc(bytes + 1);
	n = text ? cr_pread(file, text, bytes, 0) : -ENOMEM;
	if (n < 0)
		rc = terr_set(e, (int)n, "%.300s/%s: %.280s", path, MANIFEST_NAME, text ? cr_error() : "out of memory");
	else if ((rc = manifest_decode(text, (size_t)n, ret_manifest, &why)))
		terr_set(e, rc, "%.300s/%s: %.280s", path, MANIFEST_NAME, why.text);
	cr_close(file);
	free(text);
	return rc;
}

static int restore_array(struct cr_store *store, const char *path, const struct manifest *m, int which, real *to,
	EVP_MD_CTX *hash, struct terr *e)
{
	uint64_t want = m->file_bytes[which], bytes;
	const char *name = manifest_file_name[which];
	uint8_t sha[MANIFEST_SHA_BYTES];
	struct cr_file *file;
	int rc = restore_open(store, path, name, &file, &bytes, e);

	if (rc)
		return rc;
	if (bytes != want)
		rc = terr_set(e, -EBADMSG, "%.300s/%s: %llu bytes, not %llu as its manifest says", path, name,
			(unsigned long long)bytes, (unsigned long long)want);
	if (rc == 0 && EVP_DigestInit_ex(hash, EVP_sha256(), NULL) != 1)
		rc = terr_set(e, -ENOMEM, "SHA-256 failed");
	for (uint64_t at = 0; rc == 0 && at < want;) {
		size_t len = want - at < RESTORE_PIECE_BYTES ? (size_t)(want - at) : RESTORE_PIECE_BYTES;
		ssize_t n = cr_pread(file, (char *)to + at, len, at);

		if (n < 0)
			rc = terr_set(e, (int)n, "%.300s/%s: %.280s", path, name, cr_error());
		else if (n == 0)
			rc = terr_set(e, -EBADMSG, "%.300s/%s: cut short", path, name);
		else if (EVP_DigestUpdate(hash, (char *)to + at, (size_t)n) != 1)
			rc = terr_set(e, -ENOMEM, "SHA-256 failed");
		else
			at += (uint64_t)n;
	}
	if (rc == 0 && EVP_DigestFinal_ex(hash, sha, NULL) != 1)
		rc = terr_set(e, -ENOMEM, "SHA-256 failed");
	if (rc == 0 && memcmp(sha, m->file_sha256[which], sizeof(sha)))
		rc = terr_set(e, -EBADMSG, "%.300s/%s: its SHA-256 is not the one in its manifest", path, name);
	cr_close(file);
	return rc;
}

int restore_arrays(struct cr_store *store, const char *path, const struct manifest *m, size_t param_count,
	real *const arrays[MANIFEST_FILES], struct terr *e)
{
	EVP_MD_CTX *hash = EVP_MD_CTX_new();
	int rc = hash ? 0 : terr_set(e, -ENOMEM, "out of memory");

	for (int i = 0; i < MANIFEST_FILES && rc == 0; i++) {
		if (m->file_bytes[i] != param_count * sizeof(real))
			rc = terr_set(e, -EBADMSG, "%.300s: its arrays do not have the size of its model", path);
		else
			rc = restore_array(store, path, m, i, arrays[i], hash, e);
	}
	EVP_MD_CTX_free(hash);
	return rc;
}
