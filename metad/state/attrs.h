/* SPDX-License-Identifier: Apache-2.0 */
/* attrs: attributes of files that were used lately, beside the table. For path.c and for what takes rows of inodes away. */
#ifndef METAD_STATE_ATTRS_H
#define METAD_STATE_ATTRS_H

#include <stdbool.h>
#include <stdint.h>

struct state;
struct state_attr;
struct state_inode;

void state__attrs_open(struct state *s);
void state__attrs_close(struct state *s);

/* False: they are not here, look in the table. */
bool state__attr_get(const struct state *s, uint64_t inode, struct state_attr *ret_attr);
/* The row was read from the table, or written to it. Of directories nothing is kept: dirs.h has them, and more of them. */
void state__attr_keep(struct state *s, const struct state_inode *row);
/* The row goes. */
void state__attr_forget(struct state *s, uint64_t inode);

#endif
