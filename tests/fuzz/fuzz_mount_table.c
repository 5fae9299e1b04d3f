/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /proc/self/mountinfo: any text is read within its bounds, and a mount point of any name, written as the kernel writes it, is found below
 * any other lines. The first byte says how much of the input is the name; the rest are the lines.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "client/mount/mount_table.h"
#include "common/base/check.h"
#include "common/base/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* As the kernel's mangle() does: blanks and what ends a line become three octal digits. */
static void write_name(char *to, const char *name)
{
	for (; *name; name++) {
		if (strchr(" \t\n\\#", *name))
			to += sprintf(to, "\\%03o", (unsigned char)*name);
		else
			*to++ = *name;
	}
	*to = '\0';
}

static void try_lines(const char *lines, const char *path)
{
	struct mount_entry e;

	memset(&e, 0xa5, sizeof(e));
	if (mount_table_parse(lines, path, &e)) {
		CHECK(memchr(e.fstype, 0, sizeof(e.fstype)) && memchr(e.device, 0, sizeof(e.device)));
	} else {
		for (size_t i = 0; i < sizeof(e); i++)
			CHECK(((const uint8_t *)&e)[i] == 0xa5);
	}
}

static void try_name(const char *lines, const char *name)
{
	char *written = mem_alloc(4 * strlen(name) + 1), *text;
	struct mount_entry e = {{0}, {0}};

	write_name(written, name);
	text = mem_printf("%s\n36 35 0:52 / %s rw,nosuid shared:1 - fuse.craton craton rw\n40 35 0:53 / /other rw - proc proc rw", lines,
		written);
	CHECK(mount_table_parse(text, name, &e));
	CHECK(!strcmp(e.device, "0:52") && !strcmp(e.fstype, MOUNT_FSTYPE));
	mem_free(text);
	mem_free(written);
}

static char *text_of(const uint8_t *data, size_t size)
{
	char *text = mem_alloc(size + 1);

	if (size)
		memcpy(text, data, size);
	text[size] = '\0';
	return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t len = size ? data[0] : 0;
	char *name, *lines;

	if (size == 0)
		return 0;
	len = len > size - 1 ? size - 1 : len;
	name = text_of(data + 1, len);
	lines = text_of(data + 1 + len, size - 1 - len);
	try_lines(lines, name);
	try_lines(lines, "/mnt/store");
	if (*name && strcmp(name, "/other"))
		try_name(lines, name);
	mem_free(lines);
	mem_free(name);
	return 0;
}
