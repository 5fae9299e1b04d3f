/* SPDX-License-Identifier: Apache-2.0 */
/* jsonread: see jsonread.h. A recursive descent; a node is reserved when its value starts. */
#include "trainer/jsonread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct jsonread_state {
	struct jsonread *j;
	const char *at, *end;
	int depth;
};

static int jsonread_value(struct jsonread_state *s, int *ret_node);

static void jsonread_space(struct jsonread_state *s)
{
	while (s->at < s->end && (*s->at == ' ' || *s->at == '\n' || *s->at == '\t' || *s->at == '\r'))
		s->at++;
}

static int jsonread_accept(struct jsonread_state *s, char c)
{
	jsonread_space(s);
	if (s->at == s->end || *s->at != c)
		return 0;
	s->at++;
	return 1;
}

static int jsonread_node(struct jsonread_state *s, enum jsonread_type type)
{
	struct jsonread *j = s->j;

	if (j->count == JSONREAD_NODES_MAX)
		return -E2BIG;
	if (j->count == j->cap) {
		int cap = j->cap ? 2 * j->cap : 256;
		struct jsonread_node *nodes = realloc(j->nodes, (size_t)cap * sizeof(*nodes));

		if (!nodes)
			return -ENOMEM;
		j->nodes = nodes;
		j->cap = cap;
	}
	j->nodes[j->count] = (struct jsonread_node){.type = type, .next = -1, .child = -1};
	return j->count++;
}

/* The opening quote is behind us. */
static int jsonread_string(struct jsonread_state *s, const char **ret_text, size_t *ret_len)
{
	const char *from = s->at;

	while (s->at < s->end && *s->at != '"') {
		if ((unsigned char)*s->at < 0x20)
			return -EBADMSG;
		s->at += *s->at == '\\' && s->end - s->at > 1 ? 2 : 1;
	}
	if (s->at == s->end)
		return -EBADMSG;
	*ret_text = from;
	*ret_len = (size_t)(s->at - from);
	s->at++;
	return 0;
}

/* Members or items up to the closing bracket. */
static int jsonread_children(struct jsonread_state *s, int parent, int object, char close)
{
	int last = -1, node, rc;

	if (jsonread_accept(s, close))
		return 0;
	do {
		const char *key = NULL;
		size_t key_len = 0;

		if (object) {
			if (!jsonread_accept(s, '"') || jsonread_string(s, &key, &key_len) || !jsonread_accept(s, ':'))
				return -EBADMSG;
		}
		rc = jsonread_value(s, &node);
		if (rc)
			return rc;
		s->j->nodes[node].key = key;
		s->j->nodes[node].key_len = key_len;
		if (last < 0)
			s->j->nodes[parent].child = node;
		else
			s->j->nodes[last].next = node;
		last = node;
	} while (jsonread_accept(s, ','));
	return jsonread_accept(s, close) ? 0 : -EBADMSG;
}

static int jsonread_scalar(struct jsonread_state *s, int *ret_node)
{
	const char *from = s->at;
	int number = (*from >= '0' && *from <= '9') || *from == '-', node;

	while (s->at < s->end && strchr("+-.0123456789abcdefghijklmnopqrstuvwxyzE", *s->at) && *s->at)
		s->at++;
	if (s->at == from)
		return -EBADMSG;
	node = jsonread_node(s, number ? JSONREAD_NUMBER : JSONREAD_WORD);
	if (node < 0)
		return node;
	s->j->nodes[node].value = from;
	s->j->nodes[node].value_len = (size_t)(s->at - from);
	*ret_node = node;
	return 0;
}

static int jsonread_value(struct jsonread_state *s, int *ret_node)
{
	int node, rc, object;

	jsonread_space(s);
	if (s->at == s->end)
		return -EBADMSG;
	if (*s->at == '"') {
		node = jsonread_node(s, JSONREAD_STRING);
		s->at++;
		rc = node < 0 ? node : jsonread_string(s, &s->j->nodes[node].value, &s->j->nodes[node].value_len);
		*ret_node = node;
		return rc;
	}
	if (*s->at != '{' && *s->at != '[')
		return jsonread_scalar(s, ret_node);
	if (s->depth == JSONREAD_DEPTH_MAX)
		return -E2BIG;
	object = *s->at++ == '{';
	node = jsonread_node(s, object ? JSONREAD_OBJECT : JSONREAD_ARRAY);
	if (node < 0)
		return node;
	s->depth++;
	rc = jsonread_children(s, node, object, object ? '}' : ']');
	s->depth--;
	*ret_node = node;
	return rc;
}

int jsonread_parse(struct jsonread *j, const char *text, size_t len)
{
	struct jsonread_state s = {.j = j, .at = text, .end = text + len};
	int node, rc;

	memset(j, 0, sizeof(*j));
	rc = jsonread_value(&s, &node);
	jsonread_space(&s);
	if (rc == 0 && s.at != s.end)
		rc = -EBADMSG;
	if (rc)
		jsonread_fini(j);
	return rc;
}

void jsonread_fini(struct jsonread *j)
{
	free(j->nodes);
	memset(j, 0, sizeof(*j));
}

static const struct jsonread_node *jsonread_at(const struct jsonread *j, int node, enum jsonread_type type)
{
	return node >= 0 && node < j->count && j->nodes[node].type == type ? &j->nodes[node] : NULL;
}

int jsonread_member(const struct jsonread *j, int object, const char *key)
{
	const struct jsonread_node *n = jsonread_at(j, object, JSONREAD_OBJECT);
	size_t len = strlen(key);

	for (int i = n ? n->child : -1; i >= 0; i = j->nodes[i].next)
		if (j->nodes[i].key_len == len && !memcmp(j->nodes[i].key, key, len))
			return i;
	return -1;
}

int jsonread_item(const struct jsonread *j, int array, unsigned idx)
{
	const struct jsonread_node *n = jsonread_at(j, array, JSONREAD_ARRAY);
	int i = n ? n->child : -1;

	while (i >= 0 && idx--)
		i = j->nodes[i].next;
	return i;
}

int jsonread_u64(const struct jsonread *j, int node, uint64_t *ret_value)
{
	const struct jsonread_node *n = jsonread_at(j, node, JSONREAD_NUMBER);
	uint64_t v = 0;

	if (!n || n->value_len > 20)
		return -EBADMSG;
	for (size_t i = 0; i < n->value_len; i++) {
		unsigned digit = (unsigned char)n->value[i] - '0';

		if (digit > 9 || v > (UINT64_MAX - digit) / 10)
			return -EBADMSG;
		v = v * 10 + digit;
	}
	*ret_value = v;
	return 0;
}

int jsonread_f64(const struct jsonread *j, int node, double *ret_value)
{
	const struct jsonread_node *n = jsonread_at(j, node, JSONREAD_NUMBER);
	char text[64], *end;
	double v;

	if (!n || n->value_len >= sizeof(text))
		return -EBADMSG;
	memcpy(text, n->value, n->value_len);
	text[n->value_len] = 0;
	v = strtod(text, &end);
	if (*end)
		return -EBADMSG;
	*ret_value = v;
	return 0;
}

static int jsonread_hex(char c)
{
	return c >= '0' && c <= '9'    ? c - '0'
		: c >= 'a' && c <= 'f' ? c - 'a' + 10
		: c >= 'A' && c <= 'F' ? c - 'A' + 10
				       : -1;
}

int jsonread_str(const struct jsonread *j, int node, char *out, size_t out_bytes)
{
	const struct jsonread_node *n = jsonread_at(j, node, JSONREAD_STRING);
	const char *at = n ? n->value : NULL, *end = n ? at + n->value_len : NULL;
	size_t used = 0;

	if (!n)
		return -EBADMSG;
	while (at < end) {
		char c = *at++;

		if (c == '\\' && at < end && strchr("\"\\/", *at)) {
			c = *at++;
		} else if (c == '\\') {
			if (end - at < 5 || memcmp(at, "u00", 3) || jsonread_hex(at[3]) < 0 || jsonread_hex(at[4]) < 0)
				return -EBADMSG;
			c = (char)(jsonread_hex(at[3]) << 4 | jsonread_hex(at[4]));
			at += 5;
		}
		if (used + 1 >= out_bytes)
			return -E2BIG;
		out[used++] = c;
	}
	out[used] = 0;
	return 0;
}
