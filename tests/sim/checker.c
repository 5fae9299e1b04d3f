// SPDX-License-Identifier: Apache-2.0
/* checker: see the header. It trusts nothing of the store; it only compares. */
#include "tests/sim/checker.h"

#include <string.h>
#include "common/base/check.h"
#include "common/base/mem.h"

#define FOREVER UINT64_MAX

/* ---- contents ---- */

static uint64_t content_word(uint64_t id, uint64_t idx)
{
	uint64_t z = id * 0x9e3779b97f4a7c15u + idx * 0xd1342543de82ef95u + 0x632be59bd9b4e019u;

	z = (z ^ (z >> 32)) * 0xbf58476d1ce4e5b9u;
	return z ^ (z >> 29);
}

void content_fill(struct content content, uint64_t offset, uint8_t *buf, uint64_t len)
{
	uint64_t done = 0;

	for (; offset % 8 == 0 && done + 8 <= len; done += 8) {
		uint64_t word = content_word(content.id, (offset + done) / 8);

		memcpy(buf + done, &word, 8);
	}
	while (done < len) {
		uint64_t at = offset + done, word = content_word(content.id, at / 8), skip = at % 8;
		uint64_t n = 8 - skip < len - done ? 8 - skip : len - done;

		memcpy(buf + done, (uint8_t *)&word + skip, n);
		done += n;
	}
}

bool content_matches(struct content content, uint64_t offset, const uint8_t *buf, uint64_t len)
{
	uint8_t want[4096];

	if (offset + len > content.bytes)
		return false;
	for (uint64_t done = 0; done < len;) {
		uint64_t n = len - done < sizeof(want) ? len - done : sizeof(want);

		content_fill(content, offset + done, want, n);
		if (memcmp(want, buf + done, n) != 0)
			return false;
		done += n;
	}
	return true;
}

static bool content_equal(struct content a, struct content b)
{
	return a.id == b.id;
}

/* ---- entries ---- */

struct checker *checker_new(struct cluster *cluster)
{
	struct checker *k = MEM_NEW(struct checker);

	k->cluster = cluster;
	k->next_content = CHECKER_DIRECTORY + 1;
	k->tick = 1;
	return k;
}

void checker_free(struct checker *k)
{
	for (uint32_t i = 0; i < k->entry_count; i++) {
		for (uint32_t j = 0; j < k->entries[i]->state_count; j++)
			mem_free(k->entries[i]->states[j].synced);
		mem_free(k->entries[i]->states);
		mem_free(k->entries[i]);
	}
	mem_free(k->entries);
	mem_free(k);
}

struct checker_entry *checker_find(struct checker *k, const char *path)
{
	for (uint32_t i = 0; i < k->entry_count; i++)
		if (strcmp(k->entries[i]->path, path) == 0)
			return k->entries[i];
	return NULL;
}

static void add_state(struct checker *k, struct checker_entry *e, struct content content)
{
	if (e->state_count == e->state_cap) {
		e->state_cap = e->state_cap ? 2 * e->state_cap : 4;
		e->states = mem_realloc(e->states, e->state_cap * sizeof(e->states[0]));
	}
	e->states[e->state_count++] = (struct checker_state){.content = content, .from = ++k->tick, .to = FOREVER};
}

struct checker_entry *checker_add(struct checker *k, uint32_t owner, const char *path)
{
	struct checker_entry *e = MEM_NEW(struct checker_entry);

	CHECK(!checker_find(k, path) && strlen(path) < sizeof(e->path));
	snprintf(e->path, sizeof(e->path), "%s", path);
	e->owner = owner;
	add_state(k, e, (struct content){0});
	if (k->entry_count == k->entry_cap) {
		k->entry_cap = k->entry_cap ? 2 * k->entry_cap : 64;
		k->entries = mem_realloc(k->entries, k->entry_cap * sizeof(struct checker_entry *));
	}
	k->entries[k->entry_count++] = e;
	return e;
}

struct content checker_new_content(struct checker *k, uint64_t bytes)
{
	return (struct content){k->next_content++, bytes};
}

struct content checker_certain(const struct checker_entry *e)
{
	CHECK(!e->busy && !e->doubtful);
	for (uint32_t i = 0; i < e->state_count; i++)
		if (e->states[i].to == FOREVER)
			return e->states[i].content;
	CHECK_UNREACHABLE();
}

static bool is(const struct checker_entry *e, bool (*what)(uint64_t id))
{
	return !e->busy && !e->doubtful && what(checker_certain(e).id);
}

static bool id_is_file(uint64_t id)
{
	return id > CHECKER_DIRECTORY;
}

static bool id_is_dir(uint64_t id)
{
	return id == CHECKER_DIRECTORY;
}

static bool id_is_nothing(uint64_t id)
{
	return id == CHECKER_NOTHING;
}

bool checker_is_file(const struct checker_entry *e)
{
	return is(e, id_is_file);
}

bool checker_is_dir(const struct checker_entry *e)
{
	return is(e, id_is_dir);
}

bool checker_is_nothing(const struct checker_entry *e)
{
	return is(e, id_is_nothing);
}

/* ---- changes ---- */

/* The state that is the last one added stays, or those before it do. */
static void settle(struct checker *k, struct checker_entry *e, bool keep_last)
{
	k->tick++;
	for (uint32_t i = 0; i < e->state_count; i++)
		if (e->states[i].to == FOREVER && (i + 1 == e->state_count) != keep_last)
			e->states[i].to = k->tick;
	k->tick++;
}

void checker_begin(struct checker *k, struct checker_entry *e, struct content next)
{
	CHECK(!e->busy && !e->doubtful);
	e->busy = true;
	add_state(k, e, next);
}

void checker_end(struct checker *k, struct checker_entry *e, enum checker_outcome outcome)
{
	CHECK(e->busy);
	e->busy = false;
	switch (outcome) {
	case CHECKER_DONE:
		k->acknowledged++;
		settle(k, e, true);
		break;
	case CHECKER_NOT_DONE:
		k->refused++;
		settle(k, e, false);
		break;
	case CHECKER_UNKNOWN:
		k->doubts++;
		e->doubtful = true;
	}
}

static struct checker_state *last_state(struct checker_entry *e)
{
	return &e->states[e->state_count - 1];
}

void checker_stream_begin(struct checker *k, struct checker_entry *e, struct content next)
{
	checker_begin(k, e, next);
	last_state(e)->in_the_open = true;
}

static void add_synced(struct checker *k, struct checker_state *s, uint64_t bytes);

void checker_append_begin(struct checker *k, struct checker_entry *e, struct content next)
{
	uint64_t bytes = checker_certain(e).bytes;

	checker_stream_begin(k, e, next);
	add_synced(k, last_state(e), bytes);
	last_state(e)->synced[0].tick = 0; /* whenever a look began */
}

void checker_stream_made(struct checker *k, struct checker_entry *e)
{
	CHECK(e->busy);
	settle(k, e, true);
}

static void add_synced(struct checker *k, struct checker_state *s, uint64_t bytes)
{
	CHECK(bytes <= s->content.bytes);
	if (s->synced_count == s->synced_cap) {
		s->synced_cap = s->synced_cap ? 2 * s->synced_cap : 4;
		s->synced = mem_realloc(s->synced, s->synced_cap * sizeof(s->synced[0]));
	}
	s->synced[s->synced_count++] = (struct checker_synced){++k->tick, bytes};
}

/* The least length that a look may show which began at `since`. */
static uint64_t least_at(const struct checker_state *s, uint64_t since)
{
	uint64_t least = s->in_the_open ? 0 : s->content.bytes;

	for (uint32_t i = 0; i < s->synced_count && s->synced[i].tick < since; i++)
		least = s->synced[i].bytes;
	return least;
}

void checker_stream_synced(struct checker *k, struct checker_entry *e, uint64_t bytes)
{
	CHECK(e->busy);
	k->acknowledged++;
	add_synced(k, last_state(e), bytes);
}

void checker_stream_end(struct checker *k, struct checker_entry *e, enum checker_outcome outcome)
{
	if (outcome == CHECKER_DONE) {
		add_synced(k, last_state(e), last_state(e)->content.bytes);
		last_state(e)->closed = k->tick;
	}
	checker_end(k, e, outcome);
}

void checker_rename_begin(struct checker *k, struct checker_entry *from, struct checker_entry *to)
{
	struct content moved = checker_certain(from);

	checker_begin(k, from, (struct content){0});
	checker_begin(k, to, moved);
	from->moved = moved;
}

void checker_rename_end(
	struct checker *k, struct checker_entry *from, struct checker_entry *to, enum checker_outcome outcome)
{
	checker_end(k, from, outcome);
	checker_end(k, to, outcome);
	if (outcome == CHECKER_UNKNOWN)
		from->twin = to;
}

/* ---- looks ---- */

bool checker_possible(const struct checker_entry *e, uint64_t since, struct content content)
{
	for (uint32_t i = 0; i < e->state_count; i++)
		if (e->states[i].to >= since && content_equal(e->states[i].content, content))
			return true;
	return false;
}

static bool possible_kind(const struct checker_entry *e, uint64_t since, bool (*what)(uint64_t id))
{
	for (uint32_t i = 0; i < e->state_count; i++)
		if (e->states[i].to >= since && what(e->states[i].content.id))
			return true;
	return false;
}

bool checker_possible_file(const struct checker_entry *e, uint64_t since)
{
	return possible_kind(e, since, id_is_file);
}

bool checker_stable(const struct checker_entry *e, uint64_t since)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < e->state_count; i++)
		count += e->states[i].to >= since;
	return count == 1 && !e->busy && !e->doubtful;
}

void checker_look_begin(struct checker *k, struct checker_look *look, struct checker_entry *e)
{
	*look = (struct checker_look){.entry = e, .since = ++k->tick};
}

void checker_look_opened(struct checker *k, struct checker_look *look, uint64_t bytes)
{
	const struct checker_entry *e = look->entry;

	look->bytes = bytes;
	for (uint32_t i = 0; i < e->state_count; i++) {
		const struct checker_state *s = &e->states[i];

		if (s->to < look->since || !id_is_file(s->content.id) || bytes < least_at(s, look->since) ||
			bytes > s->content.bytes)
			continue;
		CHECK(look->may_count < ARRAY_COUNT(look->may)); /* files of one size at one name within one look */
		look->may[look->may_count++] = s->content;
	}
	if (!look->may_count)
		cluster_fail(k->cluster, "%s was opened with %llu bytes: no such file was ever there", e->path,
			(unsigned long long)bytes);
}

/* Where the first wrong byte is, for the report. */
static uint64_t first_difference(struct content content, uint64_t offset, const uint8_t *buf, uint64_t len)
{
	uint64_t i = 0;

	while (i < len && content_matches(content, offset + i, buf + i, 1))
		i++;
	return offset + i;
}

/* The shortest that the file may have been since the look began, by whatever name it was cut. */
static uint64_t shortest(const struct checker *k, const struct checker_look *look, uint64_t id)
{
	uint64_t bytes = look->bytes;

	for (uint32_t i = 0; i < k->entry_count; i++) {
		const struct checker_entry *e = k->entries[i];

		for (uint32_t j = 0; j < e->state_count; j++) {
			const struct checker_state *s = &e->states[j];

			if (s->content.id == id && s->to >= look->since && least_at(s, look->since) < bytes)
				bytes = least_at(s, look->since);
		}
	}
	return bytes;
}

/* As it may be by now: an append may have begun, and its bytes be there, after the file was opened. */
static struct content grown(const struct checker *k, struct content content)
{
	for (uint32_t i = 0; i < k->entry_count; i++) {
		const struct checker_entry *e = k->entries[i];

		for (uint32_t j = 0; j < e->state_count; j++)
			if (e->states[j].content.id == content.id && e->states[j].content.bytes > content.bytes)
				content.bytes = e->states[j].content.bytes;
	}
	return content;
}

/* What this look at a file may have got: what was there when it was opened, or more if the file has grown since, less if it was cut. */
static bool may_have_got(const struct checker *k, const struct checker_look *look, struct content content,
	uint64_t offset, uint64_t len, uint64_t got)
{
	uint64_t bytes = shortest(k, look, content.id), left = offset < bytes ? bytes - offset : 0;
	uint64_t most = offset < content.bytes ? content.bytes - offset : 0;

	return got >= (len < left ? len : left) && got <= (len < most ? len : most);
}

void checker_look_read(
	struct checker *k, struct checker_look *look, uint64_t offset, const uint8_t *buf, uint64_t len, uint64_t got)
{
	struct content first = look->may[0];
	bool right_length = false;
	uint32_t kept = 0;

	if (k->cluster->failed)
		return;
	k->reads++;
	k->bytes_read += got;
	for (uint32_t i = 0; i < look->may_count; i++) {
		struct content now = grown(k, look->may[i]);

		if (!may_have_got(k, look, now, offset, len, got))
			continue;
		right_length = true;
		if (content_matches(now, offset, buf, got))
			look->may[kept++] = look->may[i];
	}
	look->may_count = kept;
	if (!right_length)
		cluster_fail(k->cluster, "%s: %llu bytes at %llu of %llu were read as %llu", look->entry->path,
			(unsigned long long)len, (unsigned long long)offset, (unsigned long long)look->bytes,
			(unsigned long long)got);
	else if (!kept)
		cluster_fail(k->cluster, "%s: wrong bytes from %llu on (read: %llu at %llu of %llu)", look->entry->path,
			(unsigned long long)first_difference(first, offset, buf, got), (unsigned long long)got,
			(unsigned long long)offset, (unsigned long long)look->bytes);
}

/* ---- listings ---- */

static bool in_dir(const struct checker_entry *e, const char *dir)
{
	size_t n = strlen(dir);

	return strncmp(e->path, dir, n) == 0 && e->path[n] == '/' && !strchr(e->path + n + 1, '/');
}

static bool may_look_so(const struct checker_entry *e, uint64_t since, const struct cr_stat *stat)
{
	for (uint32_t i = 0; i < e->state_count; i++) {
		const struct checker_state *s = &e->states[i];

		if (s->to < since)
			continue;
		if (s->content.id == CHECKER_DIRECTORY && stat->type == CR_TYPE_DIR)
			return true;
		if (id_is_file(s->content.id) && stat->type == CR_TYPE_FILE && stat->size >= least_at(s, since) &&
			stat->size <= s->content.bytes &&
			(stat->complete || (s->in_the_open && (!s->closed || s->closed >= since))))
			return true;
	}
	return false;
}

void checker_listed(struct checker *k, const char *dir, const struct cr_dirent *entry, uint64_t since)
{
	char path[CR_NAME_MAX + CHECKER_PATH_BYTES + 2];
	struct checker_entry *e;

	snprintf(path, sizeof(path), "%s/%s", dir, entry->name);
	e = checker_find(k, path);
	k->names_checked++;
	if (!e)
		cluster_fail(k->cluster, "%s is listed: it was never made", path);
	else if (e->listed >= since)
		cluster_fail(k->cluster, "%s is listed twice", path);
	else if (!may_look_so(e, since, &entry->stat))
		cluster_fail(k->cluster, "%s is listed as type %u with %llu bytes, complete %u: it cannot be that",
			path, entry->stat.type, (unsigned long long)entry->stat.size, entry->stat.complete);
	if (e)
		e->listed = since;
}

void checker_list_end(struct checker *k, const char *dir, uint64_t since)
{
	for (uint32_t i = 0; i < k->entry_count; i++) {
		const struct checker_entry *e = k->entries[i];

		if (in_dir(e, dir) && e->listed < since && !possible_kind(e, since, id_is_nothing))
			cluster_fail(k->cluster, "%s is missing from the listing of %s", e->path, dir);
	}
}

/* ---- the last look ---- */

void checker_seen(struct checker_entry *e, struct content content)
{
	e->seen = content;
}

void checker_check_twins(struct checker *k)
{
	for (uint32_t i = 0; i < k->entry_count; i++) {
		const struct checker_entry *from = k->entries[i], *to = from->twin;

		if (!to || from->seen.id == CHECKER_UNSURE || to->seen.id == CHECKER_UNSURE)
			continue;
		if ((from->seen.id == from->moved.id) == (to->seen.id == from->moved.id))
			cluster_fail(k->cluster, "the rename of %s to %s took effect by half: it is at %s", from->path,
				to->path, from->seen.id ? "both names" : "neither name");
	}
}
