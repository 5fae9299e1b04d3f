/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report: what readers find wrong is told to metad, which makes the copy's server look at it again. Nobody waits for that: one
 * call at a time, no more than one a second, a copy no more than once a minute; what finds no room is found again.
 */
#ifndef CLIENT_REPORT_H
#define CLIENT_REPORT_H

#include <stdint.h>
#include "client/session.h"
#include "proto/metad.pb-c.h"

struct client;

enum { REPORT_COPIES = 32 };

struct report_copy {
	uint64_t block, told_ns; /* told_ns 0: not yet */
	uint32_t disk, incarnation;
	uint8_t index;
	int status;
};

struct report {
	struct session_call call;
	struct report_copy copies[REPORT_COPIES];
	uint64_t sent_ns;
	uint32_t next; /* place of the next copy */
	Craton__ReportRequest request;
	Craton__CopyReport message[REPORT_COPIES], *messages[REPORT_COPIES];
};

/* This copy is not what its block's proof says (ERR_CORRUPT, ERR_TRAILER_CORRUPT), or not there (ERR_NOENT, ERR_IO). */
void report_copy(struct client *client, uint64_t block, uint8_t index, uint32_t disk, uint32_t incarnation, int status);

#endif
