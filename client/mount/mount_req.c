/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mount_req: requests under way, the buffers they use, and what the kernel was told.
 *
 * The reading thread waits for buffers and for room; requests give both back when they end, and every one ends, since every call of
 * craton.h does within its timeout.
 */
#include "client/mount/mount_priv.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>
#include "common/base/check.h"
#include "common/base/mem.h"

enum { MANY_BYTES = 64 << 10 }; /* to copy fewer costs less than to wake a thread */

static void req_done(struct cr_op *op)
{
	struct mount_req *r = CONTAINER_OF(op, struct mount_req, op);

	r->answer(r);
}

struct mount_req *mount__req_new(struct mount *m, fuse_req_t fuse, void (*answer)(struct mount_req *r))
{
	struct mount_req *r = MEM_NEW(struct mount_req);

	r->mount = m;
	r->fuse = fuse;
	mount__req_then(r, answer);
	pthread_mutex_lock(&m->lock);
	m->requests++;
	pthread_mutex_unlock(&m->lock);
	return r;
}

void mount__req_then(struct mount_req *r, void (*answer)(struct mount_req *r))
{
	r->op.done = req_done;
	r->answer = answer;
}

void mount__req_end(struct mount_req *r)
{
	struct mount *m = r->mount;

	if (r->in)
		mount__in_put(m, r->in);
	if (r->out)
		mount__out_put(m, r->out);
	if (r->is_write) {
		pthread_mutex_lock(&m->lock);
		r->writer->writes--;
		pthread_mutex_unlock(&m->lock);
	}
	if (r->writer)
		mount__writer_put(m, r->writer);
	mem_free(r->name);
	mem_free(r->from_name);
	mem_free(r);
	/* The last thing that touches the mount: who ends it waits for no requests. */
	pthread_mutex_lock(&m->lock);
	m->requests--;
	pthread_cond_signal(&m->freed);
	pthread_mutex_unlock(&m->lock);
}

void mount__req_error(struct mount_req *r, int error)
{
	void (*failed)(struct mount_req * r, int error) = r->failed;

	if (failed) {
		r->failed = NULL;
		failed(r, error);
		return;
	}
	if (r->fuse)
		fuse_reply_err(r->fuse, error);
	mount__req_end(r);
}

/* ---- answers with many bytes ---- */

static void *replier(void *arg)
{
	struct mount *m = arg;
	struct list *l;

	pthread_mutex_lock(&m->lock);
	for (;;) {
		struct mount_req *r;

		while (!(l = list_pop_front(&m->replies)) && !m->replier_stop)
			pthread_cond_wait(&m->replies_wake, &m->lock);
		if (!l)
			break;
		pthread_mutex_unlock(&m->lock);
		r = LIST_ENTRY(l, struct mount_req, reply);
		fuse_reply_buf(r->fuse, r->out->data, r->len);
		mount__req_end(r);
		pthread_mutex_lock(&m->lock);
	}
	pthread_mutex_unlock(&m->lock);
	return NULL;
}

int mount__replier_start(struct mount *m)
{
	list_init(&m->replies);
	pthread_cond_init(&m->replies_wake, NULL);
	return -pthread_create(&m->replier, NULL, replier, m);
}

void mount__replier_end(struct mount *m)
{
	pthread_mutex_lock(&m->lock);
	m->replier_stop = true;
	pthread_cond_signal(&m->replies_wake);
	pthread_mutex_unlock(&m->lock);
	pthread_join(m->replier, NULL);
	pthread_cond_destroy(&m->replies_wake);
}

void mount__req_data(struct mount_req *r, size_t len)
{
	struct mount *m = r->mount;

	if (len < MANY_BYTES) {
		fuse_reply_buf(r->fuse, r->out->data, len);
		mount__req_end(r);
		return;
	}
	r->len = len;
	pthread_mutex_lock(&m->lock);
	list_push_back(&m->replies, &r->reply);
	pthread_cond_signal(&m->replies_wake);
	pthread_mutex_unlock(&m->lock);
}

int mount__failure(const struct mount_req *r)
{
	switch (r->op.result) {
	case -ECONNREFUSED: /* that the store is away has one name here, however it was noticed: a file is no socket */
	case -ECONNRESET:
	case -EHOSTUNREACH:
	case -EPIPE:
	case -ESHUTDOWN:
		return ETIMEDOUT;
	default:
		return r->op.result < 0 ? (int)-r->op.result : 0;
	}
}

void mount__log(const char *fmt, ...)
{
	char line[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	for (char *c = line; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = '?';
	syslog(LOG_ERR, "%s", line);
}

/* ---- buffers ---- */

static struct mount_buf *pool_get(struct mount *m, struct mount_pool *pool)
{
	struct mount_buf *b;

	pthread_mutex_lock(&m->lock);
	while (!pool->free && pool->made == LIMIT_MOUNT_BUFFERS)
		pthread_cond_wait(&m->freed, &m->lock);
	b = pool->free;
	if (b)
		pool->free = b->next;
	else
		pool->made++;
	pthread_mutex_unlock(&m->lock);
	return b ? b : MEM_NEW(struct mount_buf);
}

static void pool_put(struct mount *m, struct mount_pool *pool, struct mount_buf *b)
{
	pthread_mutex_lock(&m->lock);
	b->next = pool->free;
	pool->free = b;
	pthread_cond_signal(&m->freed);
	pthread_mutex_unlock(&m->lock);
}

struct mount_buf *mount__in_get(struct mount *m)
{
	return pool_get(m, &m->in);
}

struct mount_buf *mount__in_keep(struct mount *m)
{
	struct mount_buf *b = m->current;

	CHECK(b);
	m->current = NULL;
	return b;
}

void mount__in_put(struct mount *m, struct mount_buf *b)
{
	pool_put(m, &m->in, b);
}

struct mount_buf *mount__out_get(struct mount *m)
{
	struct mount_buf *b = pool_get(m, &m->out);

	if (!b->data)
		b->data = mem_aligned(4096, MOUNT_IO_BYTES);
	return b;
}

void mount__out_put(struct mount *m, struct mount_buf *b)
{
	pool_put(m, &m->out, b);
}

static void pool_fini(struct mount_pool *pool)
{
	struct mount_buf *b;

	while ((b = pool->free)) {
		pool->free = b->next;
		free(b->fuse.mem);
		mem_free(b->data);
		mem_free(b);
	}
}

void mount__pools_fini(struct mount *m)
{
	pool_fini(&m->in);
	pool_fini(&m->out);
}

bool mount__handle_add(struct mount *m, struct list *handles, struct list *link)
{
	bool room;

	pthread_mutex_lock(&m->lock);
	room = m->handles < LIMIT_MOUNT_HANDLES;
	m->handles += room;
	if (room)
		list_push_back(handles, link);
	pthread_mutex_unlock(&m->lock);
	return room;
}

void mount__handle_drop(struct mount *m, struct list *link)
{
	pthread_mutex_lock(&m->lock);
	list_remove(link);
	m->handles--;
	pthread_mutex_unlock(&m->lock);
}

/* ---- attributes ---- */

static struct mount_told *told_of(struct mount *m, uint64_t inode)
{
	return &m->told[inode % LIMIT_MOUNT_TOLD];
}

static struct timespec time_of(int64_t ns)
{
	struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};

	if (t.tv_nsec < 0) {
		t.tv_sec--;
		t.tv_nsec += 1000000000;
	}
	return t;
}

mode_t mount__type(uint8_t type)
{
	return type == CR_TYPE_DIR ? S_IFDIR : type == CR_TYPE_SYMLINK ? S_IFLNK : S_IFREG;
}

void mount__attr(struct mount *m, const struct cr_stat *in, struct stat *out)
{
	const struct mount_writer *w;
	struct mount_told *t;
	uint64_t size = in->size;
	bool hidden;

	pthread_mutex_lock(&m->lock);
	w = mount__writer_find(m, in->inode);
	if (w && mount__writer_dirty(w) && w->end > size)
		size = w->end;
	hidden = w && w->hidden_dir;
	t = told_of(m, in->inode);
	*t = (struct mount_told){in->inode, size, in->mtime_ns, in->ctime_ns, t->cuts};
	pthread_mutex_unlock(&m->lock);
	*out = (struct stat){
		.st_ino = in->inode,
		.st_mode = mount__type(in->type) | (in->mode & 07777),
		.st_nlink = hidden ? in->nlink - 1 : in->nlink,
		.st_uid = in->uid,
		.st_gid = in->gid,
		.st_size = (off_t)size,
		.st_blocks = in->type == CR_TYPE_DIR ? 0 : (blkcnt_t)((size + 511) / 512),
		.st_blksize = MOUNT_IO_BYTES, /* what programs then read and write at once */
		.st_atim = time_of(in->mtime_ns),
		.st_mtim = time_of(in->mtime_ns),
		.st_ctim = time_of(in->ctime_ns),
	};
}

void mount__entry(struct mount *m, const struct cr_stat *in, struct fuse_entry_param *out)
{
	*out = (struct fuse_entry_param){
		.ino = in->inode,
		.attr_timeout = MOUNT_TIMEOUT_S,
		.entry_timeout = MOUNT_TIMEOUT_S,
	};
	mount__attr(m, in, &out->attr);
}

void mount__told_grown(struct mount *m, uint64_t inode, uint64_t size)
{
	struct mount_told *t = told_of(m, inode);

	if (t->inode == inode && t->size < size)
		t->size = size;
}

void mount__told_cut(struct mount *m, uint64_t inode, uint64_t size)
{
	struct mount_told *t = told_of(m, inode);

	t->cuts = ++m->cuts;
	if (t->inode == inode)
		t->size = size;
}

uint64_t mount__told_cuts(struct mount *m)
{
	uint64_t cuts;

	pthread_mutex_lock(&m->lock);
	cuts = m->cuts;
	pthread_mutex_unlock(&m->lock);
	return cuts;
}

bool mount__told_was_cut(struct mount *m, uint64_t inode, uint64_t since)
{
	bool cut;

	pthread_mutex_lock(&m->lock);
	cut = told_of(m, inode)->cuts > since;
	pthread_mutex_unlock(&m->lock);
	return cut;
}

bool mount__told_same(struct mount *m, const struct cr_stat *in)
{
	struct mount_told *t;
	bool same;

	pthread_mutex_lock(&m->lock);
	t = told_of(m, in->inode);
	same = t->inode == in->inode && t->size == in->size && t->mtime_ns == in->mtime_ns &&
		t->ctime_ns == in->ctime_ns;
	pthread_mutex_unlock(&m->lock);
	return same;
}

bool mount__told_beyond(struct mount *m, uint64_t inode, uint64_t end)
{
	const struct mount_writer *w;
	const struct mount_told *t;
	bool beyond;

	pthread_mutex_lock(&m->lock);
	t = told_of(m, inode);
	w = mount__writer_find(m, inode);
	beyond = t->inode != inode || t->size > end || (w && w->end > end);
	pthread_mutex_unlock(&m->lock);
	return beyond;
}
