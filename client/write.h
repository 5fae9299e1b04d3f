/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write: the parts of a file being written, shared by
 *
 *   write.c          the stream: its step, what it waits for, how it ends
 *   write_take.c     operations into stripes, memory
 *   write_alloc.c    blocks from metad, ahead of need
 *   write_commit.c   blocks into the file
 *   write_block.c    one block: its chunks' fate, decided by pick.h
 *   write_stripe.c   one stripe: filled, encoded
 *   write_chunk.c    one chunk on its way to one disk: cells, seal, receipt
 *   write_late.c     a chunk that is late is added after the commit
 */
#ifndef CLIENT_WRITE_H
#define CLIENT_WRITE_H

#include "client/client_priv.h"
#include "client/pick.h"
#include "common/code/token.h"

enum {
	WRITE_STRIPES = 8,          /* of one file, given away and not yet acknowledged */
	WRITE_COMMIT_BLOCKS = 16,   /* of one request */
	WRITE_ALLOCATE_MAX = 8,     /* blocks asked for at once: 1, 2, 4, 8 */
	WRITE_REALLOCATIONS = 4,    /* of one block: then the write fails */
	WRITE_CURES = 5,            /* of one block: then it stays without the chunks that metad does not count */
	WRITE_REFUSALS = 10,        /* of one chunk server in a row: then it counts as failed */
	WRITE_CELL_UNITS = LIMIT_CELL_BYTES / LIMIT_UNIT_BYTES,
	WRITE_HERE_BYTES = 32 << 10, /* a stripe with no more data is encoded at once: that takes less than to wake a worker and be woken */
	WRITE_LATE_BLOCKS = 16,     /* of a client: committed, and kept for a chunk that is still on its way */
	WRITE_LATE_SHARE = 8,       /* these hold at most 1/8 of the client's memory */
};

/* A chunk that acknowledges nothing for so long no longer holds the stream up, and its server is asked whether it is there. */
#define WRITE_SLOW_NS (1000ull * 1000 * 1000)
/*
 * A server that is silent is given so long where its chunk would have to share a domain with another one, or has no other place at all: it
 * may be starved, not gone.
 */
#define WRITE_SILENT_NS (10000ull * 1000 * 1000)
/* Before a commit that lacked chunks is tried again, doubled each time: 8 s in all, enough for servers taken for dead to be heard. */
#define WRITE_CURE_NS (250ull * 1000 * 1000)
/* What a chunk that was left is given to arrive after the commit; then its rebuilding is the store's matter. */
#define WRITE_LATE_NS (30ull * 1000 * 1000 * 1000)

struct write_target {
	uint32_t disk, incarnation;
	uint8_t token[TOKEN_BYTES];
	bool used;                  /* spares: given to a chunk */
};

struct write_alloc {
	struct list link;
	uint64_t block;
	uint64_t at_ns;             /* when it was asked for */
	uint32_t probe;             /* a slow disk that it was not kept from; 0: none */
	struct write_target targets[LIMIT_WIDTH];
	struct write_target spares[LIMIT_M];
	uint8_t spare_count;
};

struct write_stripe {
	struct io_op encode;
	struct write_block *block;
	uint32_t number;            /* in its block */
	uint32_t fill;              /* bytes of data so far */
	bool in_place;              /* data are the writer's own memory, */
	uint32_t copied;            /* but for these chunks' */
	bool encoded;
	bool counted;               /* in stream->unacked */
	bool packed;                /* its parity lies behind its data in the first cell */
	uint8_t page_count;         /* reserved */
	const uint8_t *data[LIMIT_K];
	uint8_t *parity[LIMIT_M];
	size_t data_len[LIMIT_K];
	struct pace_race race;      /* of its cells */
	uint32_t *crcs[LIMIT_WIDTH];/* plain unit CRCs by chunk; one piece of memory, from dispatch on */
	uint32_t cell_crc[LIMIT_WIDTH]; /* plain, of the chunk's bytes in this stripe */
	void *pages[LIMIT_WIDTH];
};

struct write_chunk {
	struct write_block *block;
	uint8_t index;
	uint8_t state;              /* enum pick_chunk_state */
	bool seal_sent;
	bool slow;                  /* the window does not wait for it */
	bool probe;                 /* its disk is known to be slow */
	bool was_left, was_counted; /* PICK_LEFT once, and not added since; in client->chunks_left */
	bool asked;                 /* its receipt is in the commit that is under way, or was in the last one */
	uint32_t attempt;           /* calls of an older attempt are ignored */
	uint32_t cells_sent, cells_acked;
	uint32_t calls;             /* of this attempt, in flight */
	uint32_t refusals;          /* without progress, for want of memory or time: the same server is tried again */
	uint32_t most_acked;        /* cells, of all attempts on this target: progress is more than that */
	uint64_t hold_until_ns;     /* nothing is sent before */
	uint64_t announced_bytes;   /* the same in all cells of an upload */
	uint64_t seal_sent_ns, seal_took_ns, progress_ns;
	uint64_t noted_ns;          /* when its disk's pace was last told that it is still waited for; 0: never */
	uint64_t generation;
	uint8_t mac[TOKEN_MAC_BYTES];
	struct write_target target;
	int error;                  /* the last one of this target */
	struct list puts;           /* write_put.link, of all attempts */
};

/*
 *   OPEN (filling) -> CLOSED (no more data; chunks are sent and sealed) -> READY (enough receipts) -> COMMITTING -> DONE
 *   from any of them but the last two to RENEW (waits for another allocation, then everything is sent again), from all to DONE (failed)
 *   COMMITTING -> LATE (part of the file; a chunk that was left is still on its way) -> READY (it is there: the same commit again adds it)
 */
enum write_block_state { WRITE_OPEN, WRITE_CLOSED, WRITE_READY, WRITE_COMMITTING, WRITE_LATE, WRITE_DONE };

struct write_block {
	struct list link;           /* stream->blocks, in file order */
	struct write_stream *stream;
	uint8_t state;              /* enum write_block_state */
	bool renew;                 /* another allocation is wanted */
	uint8_t renewals;
	uint8_t cures;              /* times that receipts were asked for anew */
	bool committed;             /* its bytes are part of the file: only more chunks are being added to it */
	bool late;                  /* it was WRITE_LATE, and nobody waits for it */
	bool in_flight;             /* in client->blocks_in_flight */
	uint64_t commit_after_ns;   /* metad refused it for a reason that may pass */
	uint64_t id;
	uint64_t file_offset;
	struct stripe_geom geom;    /* length grows until it is closed */
	uint32_t stripe_count, encoded_count;
	uint32_t acked_count;       /* stripes no longer counted */
	struct write_stripe **stripes;
	/* Masked lists of the data chunks, for parity trailers; by renewal, since cancelled calls may still use the older ones. */
	uint8_t *data_lists[WRITE_REALLOCATIONS + 1];
	size_t data_lists_bytes;
	uint32_t chunk_crc[LIMIT_WIDTH];
	bool sums_ready;            /* data_lists and chunk_crc are those of this id */
	struct write_chunk chunks[LIMIT_WIDTH];
	struct pace_race race;      /* of the seals */
	uint64_t late_until_ns;     /* LATE: given up then */
	uint32_t late_pages;        /* of client->late_pages */
	struct write_target spares[LIMIT_M];
	uint8_t spare_count;
	uint32_t calls_active;      /* of all attempts: they use the stripes' memory */
	uint32_t encodes_active;
	struct io_op timer;         /* until something is late */
	uint64_t wake_ns;           /* when the timer is wanted; 0: not at all */
};

struct write_commit;

/* What an operation keeps in op->priv while it waits here. */
struct write_op {
	struct list link;
	uint64_t taken;             /* bytes of it in blocks */
	uint64_t until;             /* in `waiting`: done when committed reaches this */
};
_Static_assert(sizeof(struct write_op) <= sizeof(((struct client_op *)0)->priv), "fits the operation");

static inline struct write_op *write_op_of(struct client_op *op)
{
	return (struct write_op *)(void *)op->priv;
}

static inline struct client_op *write_client_op(struct list *link)
{
	return CONTAINER_OF((uint64_t *)(void *)link, struct client_op, priv[0]);
}

/*
 * The last bytes of the file, while they are few: no block holds them. fsync and close send them to metad, which keeps them itself; more
 * bytes make them the beginning of a block, whose commit takes the tail's place.
 */
struct write_tail {
	uint8_t *bytes;             /* `most` of them, once there are any */
	uint32_t most;              /* 0: the file has none */
	uint32_t len;               /* they end at `filled` */
	uint32_t committed;         /* of them */
	bool wanted;                /* by an fsync or close: nothing is added until they are committed */
};

struct write_stream {
	struct client *client;
	struct client_file *file;   /* NULL once the handle is gone */
	uint64_t inode, epoch;
	const struct ec_policy *policy;
	uint32_t cell_bytes;
	uint64_t chunk_bytes;
	uint64_t end;               /* bytes accepted */
	uint64_t filled;            /* bytes in blocks, and in the tail */
	uint64_t committed;
	struct list ops;            /* to be taken, in order */
	struct list waiting;        /* until `committed` reaches their end */
	struct list blocks;
	struct write_tail tail;
	struct write_block *open;
	struct write_stripe *stripe;/* being filled, of `open` */
	uint32_t unacked;           /* stripes */
	struct list allocs;
	uint32_t alloc_count, alloc_next;
	struct write_allocate *allocate; /* in flight */
	struct write_commit *commit;     /* in flight */
	struct pool_wait pool_wait;
	uint32_t granted_pages;
	struct io_op timer;         /* the window is full */
	struct io_turn_hook hook;
	struct err err;             /* sticky */
	struct client_op *close_op, *abort_op;
	bool complete;              /* the completing commit succeeded */
	bool closed;                /* the handle is gone; only late blocks are left */
	bool ending;                /* cancel all, then free */
	bool abort_sent;
	struct session_call abort_call;
	Craton__AbortRequest abort_request;
	char path[CR_PATH_MAX];
};

/* write.c */
void write_kick(struct write_stream *s);      /* the stream's step runs at the end of the turn */
void write_fail(struct write_stream *s, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* write_take.c */
void write_take(struct write_stream *s);      /* takes what can be taken */

/* write_alloc.c */
/* What metad says, as it is used; but when it was asked for and the probe. False: a block of that policy cannot be written with it. Pure. */
bool write_alloc_read(const Craton__Allocation *in, const struct ec_policy *policy, struct write_alloc *ret_alloc);
void write_alloc_ask(struct write_stream *s, uint32_t count); /* no-op while an answer is awaited */
/* The oldest allocation that is young enough, and made for the servers as they are; NULL: one is asked for. The caller's. */
struct write_alloc *write_alloc_next(struct write_stream *s);
void write_alloc_cancel(struct write_stream *s);

/* write_commit.c */
void write_commit_try(struct write_stream *s);
void write_commit_cancel(struct write_stream *s);

/* write_block.c */
struct write_block *write_block_open(struct write_stream *s, struct write_alloc *alloc); /* frees alloc */
void write_block_close(struct write_block *b);
void write_block_renew(struct write_block *b, struct write_alloc *alloc);   /* frees alloc */
void write_block_step(struct write_block *b);
void write_block_look_again(struct write_block *b, uint64_t wait_ns); /* kicks the stream after so long at most */
void write_block_cancel(struct write_block *b);   /* gives everything in flight up */
void write_block_end_flight(struct write_block *b); /* others that wait for memory need not wait for it */
bool write_block_idle(const struct write_block *b); /* nothing in flight uses it */
bool write_block_borrows(const struct write_block *b); /* something in flight reads the writer's own memory */
void write_block_free(struct write_block *b);
void write_block_mark_slow(struct write_block *b, uint64_t before_ns);

/* write_stripe.c */
struct write_stripe *write_stripe_open(struct write_block *b, bool in_place, uint32_t page_count);
uint32_t write_stripe_pages(const struct write_stream *s, bool in_place);
uint32_t write_stripe_bytes(const struct write_stream *s);
void write_stripe_copy(struct write_stripe *t, const void *data, uint32_t len);
void write_stripe_in_place(struct write_stripe *t, const void *data);
void write_stripe_dispatch(struct write_stripe *t);
void write_stripe_release(struct write_stripe *t);
/* Gives back the memory of the cells of all chunks but those in the set `keep`, where cells lie in pages of their own. Pages kept. */
uint32_t write_stripe_keep(struct write_stripe *t, uint32_t keep);
/* Data of chunk `index` are the writer's own memory. */
static inline bool write_stripe_borrows(const struct write_stripe *t, uint8_t index)
{
	return t->in_place && index < t->block->geom.k && t->data_len[index] > 0 && !(t->copied & 1u << index);
}
/* Copies what of chunk `index` is the writer's own memory, into a page more. False: there is none. */
bool write_stripe_copy_out(struct write_stripe *t, uint8_t index);

/* write_late.c */
/* The block was committed without a chunk that was left, or came while the commit was on its way: true: it goes on as WRITE_LATE; false: it is over. */
bool write_late_keep(struct write_block *b);
void write_late_step(struct write_block *b);
/* A commit of the block was answered: what was late is added if it was asked for and counted. `not_counted` is a set of chunks. */
void write_late_added(struct write_block *b, uint32_t not_counted);
void write_late_drop(struct write_stream *s);   /* memory is short */

/* write_chunk.c */
static inline bool write_chunk_moving(const struct write_chunk *c)
{
	return c->state == PICK_SENDING || c->state == PICK_LEFT;
}
/* From the first cell on, to `t`; its own target: the same disk again. */
void write_chunk_begin(struct write_chunk *c, const struct write_target *t);
void write_chunk_send(struct write_chunk *c);                  /* what is encoded and not sent yet; the seal if all is */
void write_chunk_failed(struct write_chunk *c, int status);
void write_chunk_stop(struct write_chunk *c, uint8_t state);   /* gives the attempt up; `state` is the new one */
void write_chunk_cancel(struct write_chunk *c);                /* its calls end soon */
/* Its data lie in other memory now: what is still being sent from the old one is cancelled, and the chunk sent again. */
void write_chunk_moved(struct write_chunk *c);
bool write_chunk_borrows(const struct write_chunk *c); /* a call of any attempt still reads the writer's own memory */
/* metad did not count this chunk: asks its disk for a fresh receipt. */
void write_chunk_fresh_receipt(struct write_chunk *c);

#endif
