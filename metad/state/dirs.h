/* SPDX-License-Identifier: Apache-2.0 */
/* dirs: directories that were used lately, decoded, beside the table. For path.c and apply.c: what reads and writes inodes and entries. */
#ifndef METAD_STATE_DIRS_H
#define METAD_STATE_DIRS_H

#include <stdbool.h>
#include <stdint.h>
#include "common/base/slice.h"
#include "metad/state/rows.h"

struct state;

void state__dirs_open(struct state *s);
void state__dirs_close(struct state *s);

/* False: it is not here, look in the table. */
bool state__dir_get(struct state *s, uint64_t id, struct state_inode *ret_row);
/* The row was read from the table. */
void state__dir_keep(struct state *s, const struct state_inode *row);
/* The row was changed. True: it is written when the entry ends. False: the caller writes it. */
bool state__dir_put(struct state *s, const struct state_inode *row);
void state__dir_forget(struct state *s, uint64_t id);
/* Writes what was changed; when all commands of an entry have been applied. */
void state__dirs_write(struct state *s);

/* The directory that this entry leads to; 0: it is not here, look in the table. */
uint64_t state__step_get(struct state *s, uint64_t dir, struct slice name);
void state__step_keep(struct state *s, uint64_t dir, struct slice name, uint64_t inode);
void state__step_forget(struct state *s, uint64_t dir, struct slice name);

#endif
