/* SPDX-License-Identifier: Apache-2.0 */
#include "client/mount/mount_table.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>
#include "common/base/mem.h"

enum { TABLE_BYTES_MAX = 16 << 20 }; /* more mounts than that nobody has */

/* The word at *at, with \040 and its like undone, into `to`; moves *at behind it. False: there is none, or it is too long. */
static bool next_word(const char **at, char *to, size_t to_bytes)
{
	const char *s = *at;
	size_t n = 0;

	while (*s == ' ')
		s++;
	for (; *s && *s != ' ' && *s != '\n'; n++) {
		if (n + 1 >= to_bytes)
			return false;
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' && s[3] >= '0' &&
			s[3] <= '7') {
			to[n] = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 4;
		} else {
			to[n] = *s++;
		}
	}
	to[n] = '\0';
	*at = s;
	return n > 0;
}

/* "36 35 0:52 / /mnt/store rw,nosuid shared:1 - fuse.craton craton rw": the words behind " - " follow a varying number of others. */
static bool parse_line(const char *line, const char *path, struct mount_entry *ret_entry)
{
	char word[4096];
	struct mount_entry e;

	for (int i = 0; i < 5; i++) {
		if (!next_word(&line, i == 2 ? e.device : word, i == 2 ? sizeof(e.device) : sizeof(word)))
			return false;
	}
	if (strcmp(word, path))
		return false;
	do {
		if (!next_word(&line, word, sizeof(word)))
			return false;
	} while (strcmp(word, "-"));
	if (!next_word(&line, e.fstype, sizeof(e.fstype)))
		return false;
	*ret_entry = e;
	return true;
}

bool mount_table_parse(const char *text, const char *path, struct mount_entry *ret_entry)
{
	bool found = false;

	for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n')
		found |= parse_line(line, path, ret_entry);
	return found;
}

char *mount_table_path(const char *given)
{
	size_t n = strlen(given);
	char *trimmed = mem_strdup(given), *path;

	while (n > 1 && trimmed[n - 1] == '/')
		trimmed[--n] = '\0'; /* it would ask the mount itself, and a dead one does not answer */
	path = realpath(trimmed, NULL);
	mem_free(trimmed);
	return path;
}

bool mount_table_find(const char *path, struct mount_entry *ret_entry)
{
	size_t cap = 64 << 10, len = 0;
	char *text = mem_alloc(cap);
	int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	bool found;
	ssize_t n;

	while (fd >= 0 && (n = read(fd, text + len, cap - 1 - len)) > 0) {
		len += (size_t)n;
		if (len + 1 < cap)
			continue;
		if (cap >= TABLE_BYTES_MAX)
			break;
		cap *= 2;
		text = mem_realloc(text, cap);
	}
	if (fd >= 0)
		close(fd);
	text[len] = '\0';
	found = mount_table_parse(text, path, ret_entry);
	mem_free(text);
	return found;
}

int mount_table_unmount(const char *path, bool lazy)
{
	extern char **environ;
	char *argv[] = {"fusermount3", "-u", lazy ? "-z" : "--", lazy ? "--" : (char *)(uintptr_t)path,
		lazy ? (char *)(uintptr_t)path : NULL, NULL};
	int status;
	pid_t pid;

	if (geteuid() == 0)
		return umount2(path, (lazy ? MNT_DETACH : 0) | UMOUNT_NOFOLLOW) == 0 ? 0 : -errno;
	if (posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ) != 0)
		return -ENOENT;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}
