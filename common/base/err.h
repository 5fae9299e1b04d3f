/* SPDX-License-Identifier: Apache-2.0 */
/*
 * err: the one list of results of the whole tree.
 *
 * A function that can fail returns 0 (or a count >= 0) or one of these negative codes; int64_t results of I/O use them too.
 * The number is also the wire value: never renumber, never reuse. Codes that POSIX knows carry -errno of Linux; Craton's own
 * start at -1001. `struct err` adds one line for people: what was wrong and what to do next.
 */
#ifndef COMMON_BASE_ERR_H
#define COMMON_BASE_ERR_H

#include <stdint.h>

/* X(name, number, errno shown to applications, text) */
#define ERR_LIST(X)                                                                    \
	X(ERR_PERM, -1, 1, "operation not permitted")                                  \
	X(ERR_NOENT, -2, 2, "no such file or directory")                               \
	X(ERR_INTR, -4, 4, "interrupted")                                              \
	X(ERR_IO, -5, 5, "input/output error")                                         \
	X(ERR_BADF, -9, 9, "bad file handle")                                          \
	X(ERR_AGAIN, -11, 11, "try again")                                             \
	X(ERR_NOMEM, -12, 12, "out of memory")                                         \
	X(ERR_ACCES, -13, 13, "permission denied")                                     \
	X(ERR_BUSY, -16, 16, "busy")                                                   \
	X(ERR_EXIST, -17, 17, "already exists")                                        \
	X(ERR_XDEV, -18, 18, "crosses a volume")                                       \
	X(ERR_NOTDIR, -20, 20, "not a directory")                                      \
	X(ERR_ISDIR, -21, 21, "is a directory")                                        \
	X(ERR_INVAL, -22, 22, "invalid argument")                                      \
	X(ERR_MFILE, -24, 24, "too many open files")                                   \
	X(ERR_FBIG, -27, 27, "file too large")                                         \
	X(ERR_NOSPC, -28, 28, "no space left")                                         \
	X(ERR_ROFS, -30, 30, "read-only file system")                                  \
	X(ERR_MLINK, -31, 31, "too many links")                                        \
	X(ERR_PIPE, -32, 32, "broken pipe")                                            \
	X(ERR_RANGE, -34, 34, "out of range")                                          \
	X(ERR_NAMETOOLONG, -36, 36, "name too long")                                   \
	X(ERR_NOSYS, -38, 38, "not supported by this kernel")                          \
	X(ERR_NOTEMPTY, -39, 39, "directory not empty")                                \
	X(ERR_LOOP, -40, 40, "too many levels of links")                               \
	X(ERR_NODATA, -61, 61, "no such attribute")                                    \
	X(ERR_PROTO, -71, 71, "protocol error")                                        \
	X(ERR_OVERFLOW, -75, 75, "value too large")                                    \
	X(ERR_MSGSIZE, -90, 90, "message too large")                                   \
	X(ERR_OPNOTSUPP, -95, 95, "operation not supported")                           \
	X(ERR_ADDRINUSE, -98, 98, "address in use")                                    \
	X(ERR_ADDRNOTAVAIL, -99, 99, "address not available")                          \
	X(ERR_CONNRESET, -104, 104, "connection reset")                                \
	X(ERR_TIMEDOUT, -110, 110, "timed out")                                        \
	X(ERR_CONNREFUSED, -111, 111, "connection refused")                            \
	X(ERR_HOSTUNREACH, -113, 113, "host unreachable")                              \
	X(ERR_STALE, -116, 116, "stale handle")                                        \
	X(ERR_CANCELED, -125, 125, "canceled")                                         \
	X(ERR_CORRUPT, -1001, 5, "checksum mismatch")                                  \
	X(ERR_TRAILER_CORRUPT, -1002, 5, "chunk trailer damaged")                      \
	X(ERR_BLOCK_LOST, -1003, 5, "more chunks of a block are lost than its policy bears") \
	X(ERR_BLOCK_CLOSED, -1004, 116, "block id is below the floor")                 \
	X(ERR_NO_PLACEMENT, -1005, 28, "too few failure domains can take a chunk")     \
	X(ERR_NO_EXTENT, -1006, 28, "no free extent of this size on the disk")         \
	X(ERR_TOKEN, -1007, 13, "capability token refused")                            \
	X(ERR_RECEIPT, -1008, 5, "receipt refused")                                    \
	X(ERR_GENERATION, -1009, 116, "disk generation is not the current one")        \
	X(ERR_WRONG_CLUSTER, -1010, 71, "belongs to another cluster")                  \
	X(ERR_VERSION, -1011, 71, "unknown version")                                   \
	X(ERR_NOT_LEADER, -1012, 11, "not the leader")                                 \
	X(ERR_SESSION_LOST, -1013, 5, "session lost, outcome unknown")                 \
	X(ERR_FENCED, -1014, 116, "another writer took the file over")                 \
	X(ERR_DISK_FAILED, -1015, 5, "disk failed")                                    \
	X(ERR_OVERLOADED, -1016, 11, "queue full")                                     \
	X(ERR_TOO_FEW_CHUNKS, -1017, 5, "too few chunks were stored to commit the block") \
	X(ERR_STOPPED, -1018, 108, "stopped")                                          \
	X(ERR_FORMAT, -1019, 22, "malformed data")                                     \
	X(ERR_NOT_SEALED, -1020, 2, "chunk was never sealed")                          \
	X(ERR_INCOMPLETE, -1021, 11, "file is not complete")                           \
	X(ERR_META_FULL, -1030, 28, "no room left for metadata")

enum err_code {
	ERR_OK = 0,
#define ERR_X(name, number, errno_, text) name = number,
	ERR_LIST(ERR_X)
#undef ERR_X
};

enum { ERR_TEXT_BYTES = 512 };

struct err {
	int code;                  /* 0 or an err_code */
	char text[ERR_TEXT_BYTES]; /* one line, no newline; empty if code is 0 */
};

/* Sets e (may be NULL) and returns `code`, so that `return err_set(err, ERR_INVAL, "...")` reads well. */
int err_set(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Puts "prefix: " before the text that e has. Returns e->code. */
int err_prefix(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

const char *err_name(int code);      /* "ERR_NOENT"; "ERR_UNKNOWN" for a number not in the list */
const char *err_text(int code);      /* "no such file or directory" */
int err_to_errno(int code);          /* positive errno; EIO for a number not in the list; 0 for >= 0 */
int err_from_errno(int os_errno);    /* ERR_IO where the list has no such errno */
int err_from_wire(int64_t number);   /* the code, or ERR_PROTO if the list has no such number; 0 stays 0 */

#endif
