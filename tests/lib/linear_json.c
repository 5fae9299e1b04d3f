// SPDX-License-Identifier: Apache-2.0
/* linear_json: see the header. A line is read as it comes, so that a long history needs no more memory than its operations. */
#include "tests/lib/linear_json.h"

#include <stdlib.h>
#include <string.h>
#include "common/base/json.h"
#include "trainer/jsonread.h"

enum { LINE_BYTES_MAX = 4096, HISTORY_VERSION = 1 };

static void write_op(struct json *j, const struct linear_op *op)
{
	json_object(j, NULL);
	json_u64(j, "client", op->client);
	json_str(j, "op", linear_kind_name(op->kind));
	json_str(j, "name", op->name);
	if (op->kind == LINEAR_RENAME || op->kind == LINEAR_LINK)
		json_str(j, "to", op->to);
	if (op->noreplace)
		json_bool(j, "noreplace", true);
	json_u64(j, "invoke", op->invoke);
	if (op->outcome != LINEAR_UNKNOWN)
		json_u64(j, "return", op->ret);
	json_str(j, "outcome", linear_outcome_name(op->outcome));
	if (op->outcome == LINEAR_OK && op->inode)
		json_u64(j, "inode", op->inode);
	json_end_object(j);
}

int linear_write(FILE *out, const struct linear_history *h)
{
	struct buf line;
	bool good = fprintf(out, "{\"craton_history\": %d}\n", HISTORY_VERSION) > 0;

	buf_init(&line, LINE_BYTES_MAX);
	for (size_t i = 0; i < h->count && good; i++) {
		struct json j;

		buf_clear(&line);
		json_init(&j, &line);
		write_op(&j, &h->ops[i]);
		good = !line.failed && fprintf(out, "%.*s\n", (int)line.len, (const char *)line.data) > 0;
	}
	buf_fini(&line);
	return good && fflush(out) == 0 ? 0 : ERR_IO;
}

static int read_u64(const struct jsonread *j, const char *key, uint64_t *ret_value)
{
	return jsonread_u64(j, jsonread_member(j, 0, key), ret_value);
}

static int read_str(const struct jsonread *j, const char *key, char *out, size_t bytes)
{
	return jsonread_str(j, jsonread_member(j, 0, key), out, bytes);
}

/* The number of the name that stands there, or -1. */
static int read_name(const struct jsonread *j, const char *key, const char *(*name)(int number))
{
	char text[32];

	if (read_str(j, key, text, sizeof(text)))
		return -1;
	for (int i = 0; name(i); i++)
		if (strcmp(name(i), text) == 0)
			return i;
	return -1;
}

static const char *kind_name(int number)
{
	return linear_kind_name((enum linear_kind)number);
}

static const char *outcome_name(int number)
{
	return linear_outcome_name((enum linear_outcome)number);
}

static const char *read_op(const struct jsonread *j, struct linear_op *op)
{
	int kind = read_name(j, "op", kind_name), outcome = read_name(j, "outcome", outcome_name);
	int noreplace = jsonread_member(j, 0, "noreplace");
	uint64_t client;

	if (kind < 0)
		return "op is create, lookup, unlink, rename or link";
	if (outcome < 0)
		return "outcome is ok, EEXIST, ENOENT or unknown";
	op->kind = (enum linear_kind)kind;
	op->outcome = (enum linear_outcome)outcome;
	if (read_u64(j, "client", &client) || client > UINT32_MAX)
		return "client is a number";
	op->client = (uint32_t)client;
	if (read_str(j, "name", op->name, sizeof(op->name)))
		return "name is a string of at most 31 bytes";
	if ((kind == LINEAR_RENAME || kind == LINEAR_LINK) && read_str(j, "to", op->to, sizeof(op->to)))
		return "to is a string of at most 31 bytes";
	if (noreplace >= 0) {
		if (j->nodes[noreplace].type != JSONREAD_WORD)
			return "noreplace is true or false";
		op->noreplace = j->nodes[noreplace].value[0] == 't';
	}
	if (read_u64(j, "invoke", &op->invoke))
		return "invoke is a number";
	if (outcome != LINEAR_UNKNOWN && read_u64(j, "return", &op->ret))
		return "return is a number";
	if (jsonread_member(j, 0, "inode") >= 0 && read_u64(j, "inode", &op->inode))
		return "inode is a number";
	return NULL;
}

static const char *read_line(const char *text, size_t len, bool first, struct linear_history *h)
{
	struct jsonread j = {0};
	const char *why = NULL;
	uint64_t version;

	if (jsonread_parse(&j, text, len))
		why = "this is not JSON";
	else if (first && read_u64(&j, "craton_history", &version))
		why = "a history begins with {\"craton_history\": 1}";
	else if (first && version != HISTORY_VERSION)
		why = "this version of the form is not known";
	else if (!first)
		why = read_op(&j, linear_add(h));
	jsonread_fini(&j);
	return why;
}

int linear_read(FILE *in, struct linear_history *h, struct err *err)
{
	char *line = malloc(LINE_BYTES_MAX);
	size_t number = 0;
	int rc = line ? 0 : err_set(err, ERR_NOMEM, "no memory");

	while (rc == 0 && fgets(line, LINE_BYTES_MAX, in)) {
		size_t len = strlen(line);
		const char *why = NULL;

		number++;
		if (len == 0 || line[len - 1] != '\n')
			why = "the line is too long, or does not end";
		else
			why = read_line(line, len - 1, number == 1, h);
		if (why)
			rc = err_set(err, ERR_CORRUPT, "line %zu: %s", number, why);
	}
	if (rc == 0 && ferror(in))
		rc = err_set(err, ERR_IO, "line %zu cannot be read", number + 1);
	if (rc == 0 && number == 0)
		rc = err_set(err, ERR_CORRUPT, "line 1: a history begins with {\"craton_history\": 1}");
	free(line);
	return rc;
}
