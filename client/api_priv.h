/* SPDX-License-Identifier: Apache-2.0 */
/* api_priv: what the files of craton.h's implementation share: the handles, and a call on its way through the loop. */
#ifndef CLIENT_API_PRIV_H
#define CLIENT_API_PRIV_H

#include "client/craton.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include "client/client.h"
#include "common/base/list.h"

struct cr_store {
	struct io *io;
	struct client *client;
	uint64_t timeout_ns; /* of a call */
	pthread_t thread;
	struct io_post close_post;
	_Atomic uint32_t posting; /* threads that may still touch the loop for a call that has ended meanwhile */
	struct list handles; /* cr_file.link; the loop's thread only, until it has ended */
};

struct cr_file {
	struct cr_store *store;
	struct list link; /* from the answer of open to the start of close */
	struct client_file *file;
	bool sequential;
};

struct api_call {
	struct client_op op; /* first */
	struct io_post post;
	struct cr_store *store;
	struct cr_file *handle; /* OPEN: to be filled; CLOSE, ABORT: to be freed */
	sem_t *sem;          /* blocking: posted when done */
	struct cr_op *async; /* asynchronous: the caller's */
	void (*take)(struct api_call *c); /* or NULL: in the loop's thread, before the caller hears of the end, good or bad */
};

int api__fail_text(int code, const char *text); /* sets cr_error(); returns the negative errno */
struct api_call *api__call_new(enum client_op_kind kind, const char *path);
/* Blocking: 0 or the negative errno, with cr_error() set. The second frees the call. */
int api__call_run(struct cr_store *store, struct api_call *c);
int api__run_and_free(struct cr_store *store, struct api_call *c);
/* The call, mem_alloc'ed and with its operation filled in, is the loop's from here on, which frees it before op->done. */
void api__call_async(struct cr_store *store, struct api_call *c, struct cr_op *op);

#endif
