/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/store_files.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include "common/base/mem.h"

enum { SECRET_BYTES = 32 };

int store_random(void *out, size_t len, struct err *err)
{
	if (getrandom(out, len, 0) != (ssize_t)len)
		return err_set(err, ERR_IO, "cannot get random bytes: %s", strerror(errno));
	return ERR_OK;
}

static int sync_folder_of(const char *path)
{
	char *copy = mem_printf("%s", path);
	int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = fd < 0 ? -1 : fsync(fd), error = errno;

	if (fd >= 0)
		close(fd);
	mem_free(copy);
	errno = error;
	return r;
}

int store_publish(int fd, const char *temp, const char *path, struct err *err)
{
	if (fsync(fd) < 0 || rename(temp, path) < 0 || sync_folder_of(path) < 0)
		return err_set(err, err_from_errno(errno), "cannot write %s: %s", path, strerror(errno));
	return ERR_OK;
}

int store_write_file(const char *path, const char *text, mode_t mode, struct err *err)
{
	char *temp = mem_printf("%s.new", path);
	int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
	size_t len = strlen(text);
	int r = ERR_OK;

	if (fd < 0 || fchmod(fd, mode) < 0 || write(fd, text, len) != (ssize_t)len)
		r = err_set(err, err_from_errno(errno), "cannot write %s: %s", path, strerror(errno));
	else
		r = store_publish(fd, temp, path, err);
	if (fd >= 0)
		close(fd);
	mem_free(temp);
	return r;
}

int store_write_secret(const char *path, struct err *err)
{
	char text[2 * SECRET_BYTES + 2];
	uint8_t secret[SECRET_BYTES];
	int r = store_random(secret, sizeof(secret), err);

	for (size_t i = 0; i < sizeof(secret); i++)
		snprintf(text + 2 * i, 3, "%02x", secret[i]);
	text[2 * SECRET_BYTES] = '\n';
	text[2 * SECRET_BYTES + 1] = '\0';
	return r < 0 ? r : store_write_file(path, text, 0600, err);
}

int store_write_conf(const char *path, const struct store_conf *c, struct err *err)
{
	char *text = mem_printf("# written by %s\ncluster = %s\nmetad = %s\nsecret-file = %s\n%s", c->made_by, c->cluster, c->metad,
	                        c->secret_file,
	                        c->plaintext ? "# addresses beyond loopback, without encryption: for networks that are trusted\nplaintext = yes\n" : "");
	int r = store_write_file(path, text, 0644, err);

	mem_free(text);
	return r;
}
