/* SPDX-License-Identifier: Apache-2.0 */
/* limits: every bound of the system, each with its reason. A bound that belongs to one module's inside may stay there. */
#ifndef COMMON_BASE_LIMITS_H
#define COMMON_BASE_LIMITS_H

#include <stdint.h>

enum {
	/* names */
	LIMIT_NAME_BYTES = 255,         /* POSIX NAME_MAX, fits an LMDB key with its parent id */
	LIMIT_PATH_BYTES = 4096,        /* POSIX PATH_MAX */
	LIMIT_PATH_DEPTH = 128,         /* components of one lookup: bounds the work of one request */

	/* coding: DESIGN: cell 1 MiB; unit 16 KiB is the grain of checksums */
	LIMIT_UNIT_BYTES = 16 << 10,
	LIMIT_CELL_BYTES = 1 << 20,     /* greatest cell, so greatest bulk payload of one frame */
	LIMIT_CHUNK_BYTES = 64 << 20,   /* greatest chunk */
	LIMIT_K = 10,
	LIMIT_M = 6,
	LIMIT_WIDTH = 15,               /* greatest k + m (9-6) */
	LIMIT_UNITS_PER_CHUNK = LIMIT_CHUNK_BYTES / LIMIT_UNIT_BYTES,

	/* wire */
	LIMIT_FRAME_BODY_BYTES = 1 << 20,   /* protobuf part: an 8-block commit of 9-6 is about 8 KiB, a readdir page 256 KiB */
	LIMIT_FRAME_PAYLOAD_BYTES = LIMIT_CELL_BYTES,
	LIMIT_CONN_REQUESTS = 1024,         /* in flight on one connection, either side */
	LIMIT_SERVER_CONNS = 4096,
	LIMIT_CONN_SEND_QUEUE_BYTES = 64 << 20, /* beyond it a connection reads no further requests */
	LIMIT_PEER_CONNS = 16,              /* of one peer: more gave nothing in measurements */
	LIMIT_SERVER_REQUEST_BYTES = 256 << 20, /* decoded requests that handlers hold; beyond it a server reads no more */
	LIMIT_SERVER_SEND_BYTES = 64 << 20, /* of answers not sent yet, payloads apart: beyond it who has any of them waits */
	LIMIT_SERVER_BODY_BYTES = 64 << 20, /* of request bodies beyond a connection's own buffer, while they arrive */
	LIMIT_HELLO_MS = 10 * 1000,         /* a connection that has not said HELLO by then is closed */
	LIMIT_STALL_MS = 30 * 1000,         /* half a frame, or a send, without progress: the other side is gone */

	/* metadata */
	LIMIT_LOG_ENTRY_BYTES = 256 << 10,  /* one batch of commands: one log frame */
	LIMIT_COMMIT_BLOCKS = 56,           /* of one CommitBlocks: with 15 chunks each it stays within 1,024 rows */
	LIMIT_ALLOCATE_BLOCKS = 64,
	LIMIT_READDIR_ENTRIES = 1024,
	LIMIT_ATTRS = 1 << 20,              /* of files, kept by metad in memory: 64 MiB */
	LIMIT_LAYOUT_EXTENTS = 256,         /* of one reply; the client asks on */
	LIMIT_METADS = 5,                   /* replicas of the metadata: two may be lost; each more makes every change slower */
	LIMIT_DISKS = 4096,                 /* of one cluster in this version: status replies stay in one frame */
	LIMIT_DISKS_PER_SERVER = 64,
	LIMIT_DROPS = 256,                  /* copies of one exchange about garbage: one command of metad, one record of an index */
	LIMIT_INVENTORY_RANGES = 64,        /* digests of one request */
	LIMIT_INVENTORY_COPIES = 4096,      /* of one listed range: each chunk of 1,024 blocks, and three strays a block */

	LIMIT_SESSIONS = 4096,              /* as connections; their windows lie in memory, at most 48 KiB each */
	LIMIT_SESSION_MS = 60 * 1000,       /* silence after which a session ends: long for a partition, short for its garbage */
	LIMIT_SESSION_LEASES = 1 << 20,     /* files that a session has open for writing: a row each, given up 128 a command */
	LIMIT_OPEN_FILES = 8192,            /* of one client: it names all of them when it renews its session */
	LIMIT_TAIL_BYTES = 32 << 10,        /* of a file's bytes in the metadata: below it six chunks cost more than three log copies */
	LIMIT_XATTR_NAME_BYTES = 255,       /* Linux's XATTR_NAME_MAX */
	LIMIT_XATTR_BYTES = 32 << 10,       /* names and values of one inode: a reply with all of them stays small */
	LIMIT_XATTRS = 64,                  /* of one inode: its end drops all of them in one command */
	LIMIT_CUT_EXTENTS = 128,            /* that one command drops: three rows and a block's own at most */

	/* key-value store */
	LIMIT_KEY_BYTES = 511,              /* LMDB's */
	LIMIT_VALUE_BYTES = 64 << 10,
	LIMIT_BACKUP_SECTION_BYTES = 256 << 10, /* one answer of metad while a backup is made: a millisecond of its loop */
	LIMIT_MEMTABLE_BYTES = 64 << 20,    /* active + frozen */

	/* the mount */
	LIMIT_MOUNT_REQUESTS = 1024,        /* of the kernel's, unanswered: beyond it no more are read */
	LIMIT_MOUNT_BUFFERS = 32,           /* of 1 MiB, for requests and as many for answers: twice what two streams keep busy */
	LIMIT_MOUNT_HANDLES = 16384,        /* files and directories open at once; one costs up to 90 KiB. Files: LIMIT_OPEN_FILES */
	LIMIT_MOUNT_TOLD = 16384,           /* inodes whose last attributes are remembered: 32 bytes each */
	LIMIT_MOUNT_DIR_ENTRIES = 256,      /* of one page of a listing: 85 KiB */
	LIMIT_MOUNT_LINGER_MS = 10 * 1000,  /* how long files that are still open hold up an unmount by signal */

	/* disks that hang: what one holds in the kernel must leave room for the others of its server */
	LIMIT_DISK_CALLS = 4,               /* blocking calls of one disk: its superblock, a segment, one of its log, its free space */
	LIMIT_DISK_IOS = 80,                /* reads, writes and syncs of one disk: its queue (64), a log's two writes, a probe, segments' syncs */

	/* chunk servers */
	LIMIT_TOKEN_LIFE_MS = 30 * 60 * 1000,
	LIMIT_ROOM_BYTES = 4 << 10,         /* how much room a disk has is told for chunks of this size, */
	LIMIT_ROOM_SIZES = 15,              /* of twice that, and so on up to the greatest */
	LIMIT_TRAILER_BYTES = 512 << 10,    /* 64 MiB chunk of 10-4 with all lists is 192 KiB */
};

_Static_assert(LIMIT_CELL_BYTES % LIMIT_UNIT_BYTES == 0, "cells are whole units");
_Static_assert((uint64_t)LIMIT_ROOM_BYTES << (LIMIT_ROOM_SIZES - 1) == LIMIT_CHUNK_BYTES, "figures up to the greatest chunk");
_Static_assert(LIMIT_FRAME_PAYLOAD_BYTES >= LIMIT_CELL_BYTES, "a cell fits a frame");
_Static_assert(1 + 8 + LIMIT_NAME_BYTES <= LIMIT_KEY_BYTES, "a dirent key fits LMDB");

#endif
