/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/state_bed.h"
#include "tests/lib/unit.h"

static struct state_bed bed, *const b = &bed;
static char text[8192];

static uint64_t size_of(const char *path)
{
	ck_assert_int_gt(bed_lookup(b, path), 0);
	return b->inode.size;
}

static uint32_t nlink_of(const char *path)
{
	ck_assert_int_gt(bed_lookup(b, path), 0);
	return b->inode.nlink;
}

static void create(const char *path)
{
	ck_assert_int_eq(bed_create(b, path, 0), 0);
}

static void make(const char *path)
{
	ck_assert_int_eq(bed_mkdir(b, path, false), 0);
}

START_TEST(test_example)
{
	state_bed_open(b);
	ck_assert_int_eq(bed_lookup(b, ""), INODE_ROOT);
	make("data");
	create("data/b");
	create("data/a");
	ck_assert_int_eq(bed_lookup(b, "data/c"), ERR_NOENT);
	ck_assert_int_eq(bed_lookup(b, "data/a/x"), ERR_NOTDIR);
	ck_assert_int_gt(bed_lookup(b, "data/a"), INODE_ROOT);
	ck_assert_str_eq(bed_list(b, "data", text, sizeof(text)), "a b ");
	ck_assert_uint_eq(size_of("data"), 2);
	ck_assert_uint_eq(nlink_of(""), 3);
	ck_assert_uint_eq(b->s.meta.file_count, 2);
	ck_assert_uint_eq(b->s.meta.dir_count, 2);
	state_bed_close(b);
}
END_TEST

START_TEST(test_paths_that_cannot_be)
{
	static const struct {
		const char *path;
		size_t len;
		int code;
	} cases[] = {{"", 0, 0}, {"a", 1, 0}, {"a/b/c", 5, 0}, {"...", 3, 0}, {".a", 2, 0}, {"..a", 3, 0},
		{"/", 1, ERR_INVAL}, {"/a", 2, ERR_INVAL}, {"a/", 2, ERR_INVAL}, {"a//b", 4, ERR_INVAL},
		{".", 1, ERR_INVAL}, {"..", 2, ERR_INVAL}, {"a/../b", 6, ERR_INVAL}, {"a/./b", 5, ERR_INVAL},
		{"a\0b", 3, ERR_INVAL}, {"\0", 1, ERR_INVAL}};
	char longest[LIMIT_PATH_BYTES + 1];

	for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
		ck_assert_int_eq(state_path_check(slice_of(cases[i].path, cases[i].len)), cases[i].code);
	memset(longest, 'x', sizeof(longest));
	ck_assert_int_eq(state_path_check(slice_of(longest, LIMIT_NAME_BYTES)), 0);
	ck_assert_int_eq(state_path_check(slice_of(longest, LIMIT_NAME_BYTES + 1)), ERR_NAMETOOLONG);
	for (size_t i = 1; i < sizeof(longest); i += 2)
		longest[i] = '/';
	ck_assert_int_eq(state_path_check(slice_of(longest, 2 * LIMIT_PATH_DEPTH - 1)), 0);
	ck_assert_int_eq(state_path_check(slice_of(longest, 2 * LIMIT_PATH_DEPTH + 1)), ERR_NAMETOOLONG);
	ck_assert_int_eq(state_path_check(slice_of(longest, LIMIT_PATH_BYTES)), ERR_NAMETOOLONG);

	/* In an entry such a path does no harm either: every command refuses it. */
	state_bed_open(b);
	for (size_t i = 6; i < ARRAY_COUNT(cases); i++) {
		struct state_path bad = {.parent = INODE_ROOT, .path = slice_of(cases[i].path, cases[i].len)};
		uint64_t before = state_bed_digest(b->kv);

		for (int parents = 0; parents < 2; parents++) {
			b->cmd.type = STATE_CMD_MKDIR;
			b->cmd.mkdir = (struct state_cmd_mkdir){.at = bad, .parents = parents};
			ck_assert_int_lt(state_bed_run(b), 0);
		}
		b->cmd.type = STATE_CMD_CREATE;
		b->cmd.create = (struct state_cmd_create){.at = bad};
		ck_assert_int_lt(state_bed_run(b), 0);
		b->cmd.type = STATE_CMD_REMOVE;
		b->cmd.remove = (struct state_cmd_remove){.at = bad};
		ck_assert_int_lt(state_bed_run(b), 0);
		ck_assert_uint_eq(state_bed_digest(b->kv), before);
	}
	state_bed_close(b);
}
END_TEST

START_TEST(test_mkdir)
{
	state_bed_open(b);
	make("a");
	ck_assert_int_eq(bed_mkdir(b, "a", false), ERR_EXIST);
	ck_assert_int_eq(bed_mkdir(b, "", false), ERR_EXIST);
	ck_assert_int_eq(bed_mkdir(b, "x/y", false), ERR_NOENT);
	ck_assert_int_eq(bed_mkdir(b, "a/b/c/d", true), 0);
	ck_assert_int_eq(bed_mkdir(b, "a/b/c/d", true), 0); /* again: no error, nothing new */
	ck_assert_int_eq(bed_lookup(b, "a/b/c/d"), (int64_t)b->res.attr.inode);
	ck_assert_uint_eq(b->s.meta.dir_count, 5);
	ck_assert_uint_eq(size_of("a"), 1);
	ck_assert_uint_eq(nlink_of("a/b"), 3);
	ck_assert_int_eq(bed_mkdir(b, "", true), 0);
	create("a/f");
	ck_assert_int_eq(bed_mkdir(b, "a/f", true), ERR_EXIST);
	ck_assert_int_eq(bed_mkdir(b, "a/f/g", true), ERR_NOTDIR);
	ck_assert_int_eq(bed_mkdir(b, "a/f/g", false), ERR_NOTDIR);
	state_bed_close(b);
}
END_TEST

START_TEST(test_remove)
{
	uint64_t file;

	state_bed_open(b);
	ck_assert_int_eq(bed_mkdir(b, "d/e", true), 0);
	create("d/f");
	file = b->res.attr.inode;
	ck_assert_int_eq(bed_remove(b, "d", true), ERR_NOTEMPTY);
	ck_assert_int_eq(bed_remove(b, "d", false), ERR_ISDIR);
	ck_assert_int_eq(bed_remove(b, "d/f", true), ERR_NOTDIR);
	ck_assert_int_eq(bed_remove(b, "d/x", false), ERR_NOENT);
	ck_assert_int_eq(bed_remove(b, "", true), ERR_BUSY);
	ck_assert_int_eq(bed_remove(b, "d/f", false), 0);
	ck_assert(bed_is_orphan(b, file));
	ck_assert_int_eq(bed_lookup(b, "d/f"), ERR_NOENT);
	ck_assert_int_eq(bed_remove(b, "d/e", true), 0);
	ck_assert_uint_eq(nlink_of("d"), 2);
	ck_assert_int_eq(bed_remove(b, "d", true), 0);
	ck_assert_uint_eq(b->s.meta.dir_count, 1);
	ck_assert_uint_eq(b->s.meta.file_count, 0);
	ck_assert_uint_eq(size_of(""), 0);
	state_bed_close(b);
}
END_TEST

START_TEST(test_rename_moves)
{
	int64_t f, d;

	state_bed_open(b);
	make("x");
	make("y");
	make("x/d");
	create("x/d/f");
	f = bed_lookup(b, "x/d/f");
	d = bed_lookup(b, "x/d");
	ck_assert_int_eq(bed_rename(b, "x/d/f", "x/d/g", false), 0);
	ck_assert_int_eq(bed_lookup(b, "x/d/g"), f);
	ck_assert_int_eq(bed_lookup(b, "x/d/f"), ERR_NOENT);
	ck_assert_uint_eq(size_of("x/d"), 1);
	ck_assert_int_eq(bed_rename(b, "x/d", "y/e", false), 0);
	ck_assert_int_eq(bed_lookup(b, "y/e"), d);
	ck_assert_int_eq(bed_lookup(b, "y/e/g"), f);
	ck_assert_uint_eq(size_of("x"), 0);
	ck_assert_uint_eq(nlink_of("x"), 2);
	ck_assert_uint_eq(size_of("y"), 1);
	ck_assert_uint_eq(nlink_of("y"), 3);
	ck_assert_int_eq(bed_rename(b, "nothing", "y/n", false), ERR_NOENT);
	ck_assert_int_eq(bed_rename(b, "", "y/n", false), ERR_BUSY);
	ck_assert_int_eq(bed_rename(b, "y", "", false), ERR_BUSY);
	ck_assert_int_eq(bed_rename(b, "y/e/g", "no/where", false), ERR_NOENT);
	ck_assert_int_eq(bed_rename(b, "y/e", "y/e/g/h", false), ERR_NOTDIR);
	state_bed_close(b);
}
END_TEST

START_TEST(test_rename_loops)
{
	uint64_t before;

	state_bed_open(b);
	ck_assert_int_eq(bed_mkdir(b, "a/b/c/d", true), 0);
	before = state_bed_digest(b->kv);
	ck_assert_int_eq(bed_rename(b, "a", "a/b/c/d/a", false), ERR_INVAL);
	ck_assert_int_eq(bed_rename(b, "a", "a/x", false), ERR_INVAL);
	ck_assert_int_eq(bed_rename(b, "a/b", "a/b/c/b", false), ERR_INVAL);
	ck_assert_int_eq(bed_rename(b, "a/b", "a/b/b", false), ERR_INVAL);
	ck_assert_int_eq(bed_rename(b, "a/b/c", "a/b", false), ERR_NOTEMPTY); /* onto its own parent */
	ck_assert_int_eq(bed_rename(b, "a/b/c", "a", false), ERR_NOTEMPTY);
	ck_assert_int_eq(bed_rename(b, "a/b", "a/b", false), 0); /* onto itself: nothing happens */
	ck_assert_int_eq(bed_rename(b, "a/b", "a/b", true), ERR_EXIST);
	ck_assert_uint_eq(state_bed_digest(b->kv), before);
	/* After a move the ancestors are the new ones. */
	ck_assert_int_eq(bed_rename(b, "a/b/c", "c", false), 0);
	ck_assert_int_eq(bed_rename(b, "a", "c/d/a", false), 0);
	ck_assert_int_eq(bed_rename(b, "c", "c/d/a/b/c", false), ERR_INVAL);
	ck_assert_int_gt(bed_lookup(b, "c/d/a/b"), 0);
	state_bed_close(b);
}
END_TEST

START_TEST(test_rename_replaces)
{
	uint64_t old;

	state_bed_open(b);
	create("f");
	create("g");
	old = b->res.attr.inode;
	make("d");
	make("e");
	make("e/full");
	ck_assert_int_eq(bed_rename(b, "f", "g", true), ERR_EXIST);
	ck_assert_int_eq(bed_rename(b, "f", "d", false), ERR_ISDIR);
	ck_assert_int_eq(bed_rename(b, "d", "f", false), ERR_NOTDIR);
	ck_assert_int_eq(bed_rename(b, "d", "e", false), ERR_NOTEMPTY);
	ck_assert(!bed_is_orphan(b, old));
	ck_assert_int_eq(bed_rename(b, "f", "g", false), 0);
	ck_assert(bed_is_orphan(b, old));
	ck_assert_str_eq(bed_list(b, "", text, sizeof(text)), "d e g ");
	ck_assert_uint_eq(size_of(""), 3);
	ck_assert_uint_eq(b->s.meta.file_count, 1);
	ck_assert_int_eq(bed_rename(b, "e", "d", false), 0);
	ck_assert_int_gt(bed_lookup(b, "d/full"), 0);
	ck_assert_uint_eq(nlink_of(""), 3);
	ck_assert_uint_eq(size_of(""), 2);
	ck_assert_uint_eq(b->s.meta.dir_count, 3);
	/* Across directories. */
	make("h");
	ck_assert_int_eq(bed_mkdir(b, "x/h", true), 0);
	ck_assert_int_eq(bed_rename(b, "h", "x/h", false), 0);
	ck_assert_uint_eq(nlink_of("x"), 3);
	ck_assert_uint_eq(size_of("x"), 1);
	state_bed_close(b);
}
END_TEST

START_TEST(test_listing_pages)
{
	struct state_listing l;
	char name[8], after[8] = "";
	size_t seen = 0;
	int code;

	state_bed_open(b);
	make("d");
	for (int i = 99; i >= 0; i--) {
		snprintf(name, sizeof(name), "d/%02d", i);
		create(name);
	}
	/* Three at a time, entries behind and before the cursor come and go meanwhile. */
	for (;;) {
		int n = 0;
		uint64_t dir = (uint64_t)bed_lookup(b, "d");

		for (code = state_list_begin(&b->s, dir, slice_of(after, strlen(after)), &l); !code && n < 3;
			code = state_list_next(&b->s, &l), n++) {
			memcpy(after, l.name.data, l.name.len);
			after[l.name.len] = 0;
			if (strlen(after) == 2)
				ck_assert_uint_eq((size_t)atoi(after), seen++);
		}
		state_list_end(&l);
		if (code == ERR_NOENT)
			break;
		if (seen == 30) {
			create("d/000");
			ck_assert_int_eq(bed_remove(b, "d/29", false), 0); /* the cursor itself */
			ck_assert_int_eq(bed_remove(b, "d/00", false), 0);
		}
	}
	ck_assert_uint_eq(seen, 100);
	ck_assert_uint_eq(size_of("d"), 99);
	state_bed_close(b);
}
END_TEST

START_TEST(test_setattr)
{
	state_bed_open(b);
	create("f");
	b->cmd.type = STATE_CMD_SETATTR;
	b->cmd.setattr = (struct state_cmd_setattr){.at = state_bed_path("f"),
		.mask = STATE_SET_MODE | STATE_SET_MTIME,
		.mode = 0100600,
		.uid = 7,
		.mtime_ns = -5,
		.now_ns = 77};
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_uint_eq(b->res.attr.mode, 0600);
	ck_assert_uint_eq(b->res.attr.uid, 0);
	ck_assert_int_eq(b->res.attr.mtime_ns, -5);
	ck_assert_int_eq(b->res.attr.ctime_ns, 77);
	b->cmd.setattr.mask = STATE_SET_UID | STATE_SET_GID;
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_uint_eq(b->res.attr.uid, 7);
	ck_assert_uint_eq(b->res.attr.mode, 0600);
	b->cmd.setattr.at = state_bed_path("g");
	ck_assert_int_eq(state_bed_run(b), ERR_NOENT);
	state_bed_close(b);
}
END_TEST

static int set_policy(const char *path, uint8_t id)
{
	b->cmd.type = STATE_CMD_POLICY;
	b->cmd.policy = (struct state_cmd_policy){.at = state_bed_path(path)};
	if (id)
		b->cmd.policy.policy =
			(struct state_policy){.id = id, .cell_bytes = STATE_BED_MIB, .chunk_bytes = 4 * STATE_BED_MIB};
	return state_bed_run(b);
}

static uint8_t policy_of(const char *path)
{
	struct state_policy policy;
	bool own;

	ck_assert_int_gt(bed_lookup(b, path), 0);
	ck_assert_int_eq(state_policy_get(&b->s, &b->inode, &policy, &own), 0);
	return policy.id;
}

START_TEST(test_policy_is_inherited)
{
	state_bed_open(b);
	ck_assert_int_eq(bed_mkdir(b, "a/b", true), 0);
	ck_assert_uint_eq(policy_of("a/b"), 1);
	create("a/b/old");
	ck_assert_int_eq(set_policy("a", 2), 0);
	ck_assert_uint_eq(policy_of("a/b"), 2);
	create("a/b/new");
	ck_assert_uint_eq(policy_of("a/b/old"), 1);
	ck_assert_uint_eq(policy_of("a/b/new"), 2);
	ck_assert_int_eq(set_policy("a/b", 7), 0);
	ck_assert_uint_eq(policy_of("a/b"), 7);
	ck_assert_int_eq(set_policy("a/b", 0), 0);
	ck_assert_uint_eq(policy_of("a/b"), 2);
	ck_assert_uint_eq(b->res.policy.id, 2);
	ck_assert(!b->res.policy_own);
	ck_assert_int_eq(set_policy("", 0), ERR_INVAL); /* the root has one, always */
	ck_assert_int_eq(set_policy("a", 99), ERR_INVAL);
	ck_assert_int_eq(set_policy("a/b/new", 1), ERR_NOTDIR);
	ck_assert_int_eq(set_policy("q", 1), ERR_NOENT);
	state_bed_close(b);
}
END_TEST

/* A tree changed at random, beside a model of paths; the counters of every directory must fit what is in it. */
static void check_tree(uint64_t dir, uint64_t *files, uint64_t *dirs)
{
	struct state_inode inode;
	struct state_listing l;
	uint64_t names = 0, kids[256], kid_count = 0;

	ck_assert_int_eq(state_inode_get(&b->s, dir, &inode), 0);
	*dirs += 1;
	for (int code = state_list_begin(&b->s, dir, slice_of("", 0), &l); !code; code = state_list_next(&b->s, &l)) {
		names++;
		if (l.dirent.type == STATE_TYPE_DIR)
			kids[kid_count++] = l.dirent.inode;
		else
			*files += 1;
	}
	state_list_end(&l);
	ck_assert_uint_eq(inode.size, names);
	ck_assert_uint_eq(inode.nlink, 2 + kid_count);
	for (uint64_t i = 0; i < kid_count; i++) {
		struct state_inode kid;

		ck_assert_int_eq(state_inode_get(&b->s, kids[i], &kid), 0);
		ck_assert_uint_eq(kid.parent, dir);
		check_tree(kids[i], files, dirs);
	}
}

static const char *random_path(struct rng *rng, char *path)
{
	int depth = (int)rng_between(rng, 1, 4);
	char *p = path;

	for (int i = 0; i < depth; i++)
		p += sprintf(p, "%s%c", i ? "/" : "", (char)('a' + rng_below(rng, 4)));
	return path;
}

START_TEST(test_random_tree)
{
	uint64_t done[5] = {0}, files = 0, dirs = 0;
	char p[32], q[32];
	struct rng rng;

	rng_init(&rng, 11);
	state_bed_open(b);
	for (int i = 0; i < 6000; i++) {
		int what = (int)rng_below(&rng, 5), code;

		random_path(&rng, p);
		if (what == 0)
			code = bed_mkdir(b, p, rng_chance(&rng, 1, 4));
		else if (what == 1)
			code = bed_create(b, p, rng_chance(&rng, 1, 3) ? BED_EXCL : 0);
		else if (what == 2)
			code = bed_remove(b, p, rng_chance(&rng, 1, 2));
		else
			code = bed_rename(b, p, random_path(&rng, q), rng_chance(&rng, 1, 4));
		done[what] += code == 0;
	}
	for (int i = 0; i < 5; i++)
		ck_assert_uint_gt(done[i], 20);
	check_tree(INODE_ROOT, &files, &dirs);
	ck_assert_uint_eq(b->s.meta.file_count, files);
	ck_assert_uint_eq(b->s.meta.dir_count, dirs);
	state_bed_close(b);
}
END_TEST

UNIT_MAIN("state_name", test_example, test_paths_that_cannot_be, test_mkdir, test_remove, test_rename_moves,
	test_rename_loops, test_rename_replaces, test_listing_pages, test_setattr, test_policy_is_inherited,
	test_random_tree)
