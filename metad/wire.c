/* SPDX-License-Identifier: Apache-2.0 */
/* wire: between the messages of proto/metad.proto and the structs of the state. */
#include "metad/core.h"

void metad__wire_attr(const struct state_attr *a, Craton__Attr *ret_attr)
{
	craton__attr__init(ret_attr);
	ret_attr->inode = a->inode;
	ret_attr->type = a->type;
	ret_attr->mode = a->mode;
	ret_attr->uid = a->uid;
	ret_attr->gid = a->gid;
	ret_attr->nlink = a->nlink;
	ret_attr->size = a->size;
	ret_attr->mtime_ns = a->mtime_ns;
	ret_attr->ctime_ns = a->ctime_ns;
	ret_attr->complete = a->complete;
}

void metad__wire_policy(const struct state_policy *p, Craton__Policy *ret_policy)
{
	craton__policy__init(ret_policy);
	ret_policy->policy = p->id;
	ret_policy->cell_bytes = p->cell_bytes;
	ret_policy->chunk_bytes = p->chunk_bytes;
}

struct slice metad__slice(const ProtobufCBinaryData *data)
{
	return slice_of(data->data, data->len);
}

struct state_path metad__path(uint64_t parent, const ProtobufCBinaryData *path)
{
	return (struct state_path){.parent = parent, .path = metad__slice(path)};
}

void metad__wire_disks_begin(struct metad *md)
{
	md->scratch->disk_count = 0;
	if (++md->mark == 0) { /* came round: no old mark may look new */
		memset(md->disk_mark, 0, sizeof(*md->disk_mark) * (LIMIT_DISKS + 1));
		md->mark = 1;
	}
}

void metad__wire_disk(struct metad *md, uint32_t id)
{
	const struct state_disk *disk = state_disk_at(&md->state, id);
	const struct state_server *server = disk ? state_server_at(&md->state, disk->server) : NULL;
	struct metad_scratch *sc = md->scratch;
	Craton__Disk *out;

	if (!server || md->disk_mark[id] == md->mark)
		return;
	md->disk_mark[id] = md->mark;
	out = &sc->disk[sc->disk_count];
	sc->disks[sc->disk_count++] = out;
	craton__disk__init(out);
	out->disk = id;
	out->server = server->id;
	out->domain = disk->domain;
	out->address = (char *)(uintptr_t)server->address;
	out->server_name = (char *)(uintptr_t)server->name;
	out->up = state_disk_counts(&md->state, id);
	out->slow = metad__is_slow(md, id);
}
