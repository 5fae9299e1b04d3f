/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jsonread: parses one JSON text (RFC 8259) into a flat array of nodes and looks values up in it. Bounded in depth and in
 * nodes; any byte sequence gives a result or an error. The text must outlive the nodes.
 */
#ifndef TRAINER_JSONREAD_H
#define TRAINER_JSONREAD_H

#include <stddef.h>
#include <stdint.h>

enum { JSONREAD_DEPTH_MAX = 16, JSONREAD_NODES_MAX = 65536 };
enum jsonread_type { JSONREAD_OBJECT, JSONREAD_ARRAY, JSONREAD_STRING, JSONREAD_NUMBER, JSONREAD_WORD };

struct jsonread_node {
	enum jsonread_type type;
	int next;        /* sibling; -1: last */
	int child;       /* first member or item; -1: none */
	const char *key; /* raw bytes between the quotes; NULL outside objects */
	size_t key_len;
	const char *value; /* strings: between the quotes; numbers and words: as they stand */
	size_t value_len;
};

struct jsonread {
	struct jsonread_node *nodes; /* [0] is the root */
	int count, cap;
};

int jsonread_parse(struct jsonread *j, const char *text, size_t len); /* -EBADMSG, -E2BIG, -ENOMEM */
void jsonread_fini(struct jsonread *j);

/* All take the index of a node and give -1 or -EBADMSG if it is not there (node -1 is allowed) or of another type. */
int jsonread_member(const struct jsonread *j, int object, const char *key);
int jsonread_item(const struct jsonread *j, int array, unsigned idx);
int jsonread_u64(const struct jsonread *j, int node, uint64_t *ret_value); /* digits only */
int jsonread_f64(const struct jsonread *j, int node, double *ret_value);
/* Without escapes other than \" \\ \/ and \u00XX (what writers of paths produce); -E2BIG if it does not fit. */
int jsonread_str(const struct jsonread *j, int node, char *out, size_t out_bytes);

#endif
