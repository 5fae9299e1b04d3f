/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A founder asks the others before it takes part (founders.h): all of them again and again, until it is told enough, however long that takes. What it
 * accepts it writes to DIR/log/founders first. It answers the same questions, for as long as it lives.
 */
#include "metad/ledger.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/base/sometimes.h"
#include "metad/raft_links.h"

enum { ASK_MS = 200, ASK_SOON_MS = 20 /* when all are there, */, HURRIES = 50 /* a few times */, SAY_MS = 3000, SAY_AGAIN_MS = 30000 };
static const uint64_t ms_ns = 1000000;

static char *path_of(const char *dir)
{
	return mem_printf("%s/log/founders", dir);
}

static void fail(struct ledger *l, int code, const char *text)
{
	l->failed = true;
	l->options.on_fatal(l->options.ctx, code, text);
}

/* ---- DIR/log/founders ---- */

static int write_own(struct io *io, const char *dir, const struct uuid *cluster, uint64_t id, const struct founders_said *said)
{
	uint8_t bytes[FOUNDERS_BYTES_MAX];
	char *path = path_of(dir);
	int rc = io_write_file(io, path, bytes, founders_encode(cluster, id, said, bytes), 0600);

	mem_free(path);
	return rc;
}

static int read_own(struct ledger *l, struct founders_said *ret_said, struct err *err)
{
	char *path = path_of(l->dir), *bytes;
	size_t len;
	int rc = io_read_file(l->io, path, FOUNDERS_BYTES_MAX, &bytes, &len);

	if (rc == 0) {
		rc = founders_decode(path, slice_of(bytes, len), &l->options.cluster, l->group.id, ret_said, err);
		mem_free(bytes);
	} else if (rc != ERR_NOENT) {
		err_set(err, rc, "%s: cannot read: %s", path, err_text(rc));
	}
	mem_free(path);
	return rc;
}

/* Before anybody is told of it. The last life may have ended behind the rename of what is there. */
static int keep_own(struct ledger *l, struct founders_said *own, struct err *err)
{
	int rc;

	if (!own->heard)
		io_random(l->io, own->nonce, sizeof(own->nonce));
	own->heard = true;
	rc = write_own(l->io, l->dir, &l->options.cluster, l->group.id, own);
	return rc ? err_set(err, rc, "%s/log/founders: cannot write: %s", l->dir, err_text(rc)) : 0;
}

int ledger__founders_open(struct ledger *l, struct err *err)
{
	struct founders *f = &l->founding.founders;
	bool founds = replica_founds(l->replica);
	struct founders_said own = {.heard = false};
	int rc = read_own(l, &own, err);

	/* Who has a log needs it no more, and can do without: whoever has lost its directory is refused then, and whoever has not waits for somebody who can say so. */
	if (rc == ERR_NOENT || (rc && !founds && !l->waits)) {
		if (rc != ERR_NOENT && l->options.on_warn)
			l->options.on_warn(l->options.ctx, "founders-unread", err->text);
		own = (struct founders_said){.heard = false};
		rc = 0;
	}
	if (!rc && founds && own.roll.count && own.roll.count != l->group.members.count)
		rc = err_set(err, ERR_INVAL, "%s/log/founders: the group was to be founded by %" PRIu32 " metads, and the configuration names %" PRIu32 ": name those",
			l->dir, own.roll.count, l->group.members.count);
	if (!rc && l->waits && own.roll.count)
		rc = err_set(err, ERR_INVAL, "%s/log/founders: this metad was to found a group: start it with --found, or, if that was given up, empty %s", l->dir, l->dir);
	l->founding.waits = founds && l->group.members.count > 1;
	if (!rc && l->founding.waits)
		rc = keep_own(l, &own, err);
	if (rc)
		return rc;
	l->founding.own = own;
	l->founding.own.heard = l->founding.waits;
	f->self = l->group.id;
	f->count = l->group.members.count;
	if (l->founding.waits)
		f->said[f->self - 1] = own;
	return 0;
}

void ledger__founders_said(void *ctx, struct founders_said *ret_said)
{
	const struct ledger *l = ctx;
	const struct raft_core *core = replica_core(l->replica);

	*ret_said = l->founding.own;
	if (core && (core->term || core->last_index)) /* also one that joined */
		ret_said->heard = ret_said->member = true;
}

/* ---- asking ---- */

static void step(struct ledger *l);

static void write_run(struct io_op *op)
{
	struct ledger *l = CONTAINER_OF(op, struct ledger, founding.write);

	l->founding.write_code = write_own(l->io, l->dir, &l->options.cluster, l->group.id, &l->founding.accepting);
}

static void write_done(struct io_op *op)
{
	struct ledger *l = CONTAINER_OF(op, struct ledger, founding.write);
	int code = op->result < 0 ? (int)op->result : l->founding.write_code;

	if (l->closing) {
		ledger__group_quiet(l);
		return;
	}
	if (code) {
		char text[ERR_TEXT_BYTES];

		snprintf(text, sizeof(text), "%.200s/log/founders: cannot write: %s", l->dir, err_text(code));
		fail(l, code, text);
		return;
	}
	l->founding.own = l->founding.accepting;
	l->founding.founders.said[l->group.id - 1] = l->founding.own;
	step(l);
}

static void accept(struct ledger *l, const struct founders_roll *roll)
{
	l->founding.accepting = l->founding.own;
	l->founding.accepting.roll = *roll;
	io_prep_offload(&l->founding.write, IO_LANE_FILE, write_run, write_done);
	io_submit(l->io, &l->founding.write);
}

static void take_part(struct ledger *l)
{
	l->founding.waits = false;
	l->founding.own.member = true;
	io_cancel(l->io, &l->founding.timer);
	raft_links_attach(l->links, l->replica);
	replica_found(l->replica);
}

static void refuse(struct ledger *l, uint64_t who)
{
	char text[ERR_TEXT_BYTES];
	bool is_old = l->founding.founders.said[who - 1].roll.count == 0;

	io_cancel(l->io, &l->founding.timer);
	snprintf(text, sizeof(text),
		"metad-%" PRIu64 " is in a group that was founded with another directory than %.80s, which is new: this metad lost what it had, and with it what it "
		"voted and acknowledged%s. `craton meta remove` what `craton meta ls` shows at its address, then start one under the next number with --join in an empty directory, and add it (docs/groups.md)",
		who, l->dir, is_old ? "; or that one's build is older and it never served: see docs/groups.md" : "");
	fail(l, ERR_EXIST, text);
}

static void step(struct ledger *l)
{
	struct founders_roll roll;
	enum founders_step next;

	if (!l->founding.waits || l->closing || l->failed || io_pending(&l->founding.write))
		return;
	next = l->founding.step = founders_decide(&l->founding.founders, &roll, &l->founding.who);
	if (next == FOUNDERS_ACCEPT) {
		accept(l, &roll);
	} else if (next == FOUNDERS_TAKE_PART) {
		SOMETIMES(group_founded);
		take_part(l);
	} else if (next == FOUNDERS_LOST) {
		refuse(l, l->founding.who);
	}
}

static void on_said(void *ctx, uint64_t id, int status, const struct founders_said *said)
{
	struct ledger *l = ctx;
	struct founders_said *known = &l->founding.founders.said[id - 1];

	l->founding.asked &= ~(1u << id);
	l->founding.status[id - 1] = status;
	if (!status && !known->heard)
		l->founding.hurries = HURRIES;
	if (!status)
		*known = *said;
	else if (known->roll.count == 0) /* it may come back with another directory */
		*known = (struct founders_said){.heard = false};
	step(l);
}

static enum ledger_wait why(const struct ledger *l)
{
	if (io_pending(&l->founding.write))
		return LEDGER_WAIT_DISK;
	if (l->founding.step == FOUNDERS_DIFFER)
		return LEDGER_WAIT_DIFFER;
	if (l->founding.step == FOUNDERS_UNSAID)
		return LEDGER_WAIT_UNSAID;
	return l->founding.founders.said[l->founding.who - 1].heard && !l->founding.status[l->founding.who - 1] ? LEDGER_WAIT_ACCEPT : LEDGER_WAIT_ANSWER;
}

/* Sooner or later all are there; who has forgotten one of them should hear of it. */
static void say_wait(struct ledger *l)
{
	uint64_t now_ns = io_now_ns(l->io), who = l->founding.who;

	if (now_ns < l->founding.say_ns)
		return;
	l->founding.say_ns = now_ns + SAY_AGAIN_MS * ms_ns;
	if (l->options.on_wait)
		l->options.on_wait(l->options.ctx, who, why(l), l->founding.status[who - 1]);
}

static void arm(struct ledger *l);

static void on_timer(struct io_op *op)
{
	struct ledger *l = CONTAINER_OF(op, struct ledger, founding.timer);

	if (l->closing) {
		ledger__group_quiet(l);
		return;
	}
	if (op->result || !l->founding.waits || l->failed)
		return;
	for (uint64_t id = 1; id <= l->founding.founders.count; id++)
		if (id != l->group.id && !(l->founding.asked & 1u << id) && raft_links_ask_founder(l->links, id, on_said, l) == 0)
			l->founding.asked |= 1u << id;
	step(l);
	if (!l->founding.waits || l->failed)
		return;
	say_wait(l);
	arm(l);
}

static bool all_heard(const struct ledger *l)
{
	for (uint32_t i = 0; i < l->founding.founders.count; i++)
		if (!l->founding.founders.said[i].heard)
			return false;
	return true;
}

static void arm(struct ledger *l)
{
	bool soon = l->founding.hurries && l->founding.step != FOUNDERS_DIFFER && all_heard(l);

	l->founding.hurries -= soon;
	io_prep_timer(&l->founding.timer, io_now_ns(l->io) + (soon ? ASK_SOON_MS : ASK_MS) * ms_ns, on_timer);
	io_submit(l->io, &l->founding.timer);
}

bool ledger__founders_wait(struct ledger *l)
{
	if (!l->founding.waits)
		return false;
	replica_wait(l->replica);
	l->founding.say_ns = io_now_ns(l->io) + SAY_MS * ms_ns;
	l->founding.who = l->group.id == 1 ? 2 : 1;
	io_prep_timer(&l->founding.timer, io_now_ns(l->io), on_timer);
	io_submit(l->io, &l->founding.timer);
	return true;
}

void ledger__founders_close(struct ledger *l)
{
	io_cancel(l->io, &l->founding.timer);
}

bool ledger__founders_quiet(const struct ledger *l)
{
	return !io_pending(&l->founding.timer) && !io_pending(&l->founding.write);
}
