/* The table of a cluster and questions about it. */
#include "world/cluster.h"

#include <string.h>

#include "base/map.h"

static const ru_conf_field host_fields[] = {
    {.name = "name",
     .type = RU_CONF_TEXT,
     .offset = offsetof(ru_cluster_host, name),
     .help = "its name, unique in the cluster"},
    {.name = "cpu",
     .type = RU_CONF_TEXT,
     .offset = offsetof(ru_cluster_host, cpu),
     .def = "",
     .help = "model of its processor"},
    {.name = "cores",
     .type = RU_CONF_U32,
     .offset = offsetof(ru_cluster_host, cores),
     .def = "1",
     .min = 0,
     .max = 1e6,
     .help = "cores that jobs may use"},
    {.name = "memory_bytes",
     .type = RU_CONF_I64,
     .offset = offsetof(ru_cluster_host, memory_bytes),
     .def = "0",
     .min = 0,
     .max = 1e18,
     .help = "memory; 0 unknown"},
    {.name = "net_bytes_per_s",
     .type = RU_CONF_F64,
     .offset = offsetof(ru_cluster_host, net_bytes_per_s),
     .def = "0",
     .min = 0,
     .max = 1e18,
     .help = "bandwidth of its network interface in each direction; 0: unknown"},
    {.name = "net_latency_ns",
     .type = RU_CONF_I64,
     .offset = offsetof(ru_cluster_host, net_latency_ns),
     .def = "0",
     .min = 0,
     .max = 1e18,
     .help = "one-way latency to another host"},
    {.name = "usd_per_h",
     .type = RU_CONF_F64,
     .offset = offsetof(ru_cluster_host, usd_per_h),
     .def = "0",
     .min = 0,
     .max = 1e18,
     .help = "price of the whole host"},
    {.name = "availability",
     .type = RU_CONF_F64,
     .offset = offsetof(ru_cluster_host, availability),
     .def = "1",
     .min = 0,
     .max = 1,
     .help = "fraction of time in which it is available"},
    {.name = "market",
     .type = RU_CONF_TEXT,
     .offset = offsetof(ru_cluster_host, market),
     .def = "",
     .help = "market in facts.prices that sets its price; empty: the price is fixed"},
    {.name = "tier",
     .type = RU_CONF_CHOICE,
     .offset = offsetof(ru_cluster_host, tier),
     .def = "reliable",
     .choices = "reliable|transient",
     .help = "transient: it may be taken away at any time"},
};

static const ru_conf_field device_fields[] = {
    {.name = "name",
     .type = RU_CONF_TEXT,
     .offset = offsetof(ru_cluster_device, name),
     .help = "its name, unique in the cluster"},
    {.name = "host",
     .type = RU_CONF_TEXT,
     .offset = offsetof(ru_cluster_device, host),
     .help = "name of its host"},
    {.name = "type",
     .type = RU_CONF_TEXT,
     .offset = offsetof(ru_cluster_device, type),
     .def = "cpu",
     .help = "device type, as facts of ops name it"},
    {.name = "flops_per_s",
     .type = RU_CONF_F64,
     .offset = offsetof(ru_cluster_device, flops_per_s),
     .def = "0",
     .min = 0,
     .max = 1e18,
     .help = "highest rate of dense matrix products; 0: unknown"},
    {.name = "bytes_per_s",
     .type = RU_CONF_F64,
     .offset = offsetof(ru_cluster_device, bytes_per_s),
     .def = "0",
     .min = 0,
     .max = 1e18,
     .help = "bandwidth of its memory; 0: unknown"},
    {.name = "memory_bytes",
     .type = RU_CONF_I64,
     .offset = offsetof(ru_cluster_device, memory_bytes),
     .def = "0",
     .min = 0,
     .max = 1e18,
     .help = "its own memory; 0: that of the host"},
    {.name = "cores",
     .type = RU_CONF_U32,
     .offset = offsetof(ru_cluster_device, cores),
     .def = "0",
     .min = 0,
     .max = 1e6,
     .help = "cores of the host that its worker computes with; 0: all"},
    {.name = "votes",
     .type = RU_CONF_BOOL,
     .offset = offsetof(ru_cluster_device, votes),
     .def = "true",
     .help = "false: its worker counts in no majority and never leads"},
    {.name = "launch_ns",
     .type = RU_CONF_F64,
     .offset = offsetof(ru_cluster_device, launch_ns),
     .def = "0",
     .min = 0,
     .max = 1e18,
     .help = "smallest time of one operation"},
    {.name = "usd_per_h",
     .type = RU_CONF_F64,
     .offset = offsetof(ru_cluster_device, usd_per_h),
     .def = "0",
     .min = 0,
     .max = 1e18,
     .help = "price in addition to the price of the host"},
    {.name = "availability",
     .type = RU_CONF_F64,
     .offset = offsetof(ru_cluster_device, availability),
     .def = "1",
     .min = 0,
     .max = 1,
     .help = "fraction of time in which it is available"},
};

static const ru_conf_field link_fields[] = {
    {.name = "from",
     .type = RU_CONF_TEXT,
     .offset = offsetof(ru_cluster_link, from),
     .help = "host that sends"},
    {.name = "to",
     .type = RU_CONF_TEXT,
     .offset = offsetof(ru_cluster_link, to),
     .help = "host that receives"},
    {.name = "bytes_per_s",
     .type = RU_CONF_F64,
     .offset = offsetof(ru_cluster_link, bytes_per_s),
     .def = "0",
     .min = 0,
     .max = 1e18,
     .help = "bandwidth; 0: unknown"},
    {.name = "latency_ns",
     .type = RU_CONF_I64,
     .offset = offsetof(ru_cluster_link, latency_ns),
     .def = "0",
     .min = 0,
     .max = 1e18,
     .help = "one-way latency"},
    {.name = "usd_per_gb",
     .type = RU_CONF_F64,
     .offset = offsetof(ru_cluster_link, usd_per_gb),
     .def = "0",
     .min = 0,
     .max = 1e18,
     .help = "price of transferred data"},
};

static const ru_conf_field disk_fields[] = {
    {.name = "name",
     .type = RU_CONF_TEXT,
     .offset = offsetof(ru_cluster_disk, name),
     .help = "its name, unique in the cluster"},
    {.name = "host",
     .type = RU_CONF_TEXT,
     .offset = offsetof(ru_cluster_disk, host),
     .def = "",
     .help = "name of its host; empty: every host reaches it"},
    {.name = "kind",
     .type = RU_CONF_CHOICE,
     .offset = offsetof(ru_cluster_disk, kind),
     .def = "ssd",
     .choices = "ssd|hdd|memory|net",
     .help = "kind of storage"},
    {.name = "size_bytes",
     .type = RU_CONF_I64,
     .offset = offsetof(ru_cluster_disk, size_bytes),
     .def = "0",
     .min = 0,
     .max = 1e18,
     .help = "capacity; 0: unknown"},
    {.name = "read_bytes_per_s",
     .type = RU_CONF_F64,
     .offset = offsetof(ru_cluster_disk, read_bytes_per_s),
     .def = "0",
     .min = 0,
     .max = 1e18,
     .help = "rate of large reads; 0: unknown"},
    {.name = "write_bytes_per_s",
     .type = RU_CONF_F64,
     .offset = offsetof(ru_cluster_disk, write_bytes_per_s),
     .def = "0",
     .min = 0,
     .max = 1e18,
     .help = "rate of large writes; 0: unknown"},
    {.name = "seek_ns",
     .type = RU_CONF_I64,
     .offset = offsetof(ru_cluster_disk, seek_ns),
     .def = "0",
     .min = 0,
     .max = 1e18,
     .help = "time before the first byte of a read"},
    {.name = "usd_per_gb_month",
     .type = RU_CONF_F64,
     .offset = offsetof(ru_cluster_disk, usd_per_gb_month),
     .def = "0",
     .min = 0,
     .max = 1e18,
     .help = "price of its capacity"},
};

static const ru_conf_table host_table = {.name = "host",
                                         .fields = host_fields,
                                         .n = RU_ARRAY_LEN(host_fields),
                                         .size_bytes = sizeof(ru_cluster_host),
                                         .help = "one computer"};

static const ru_conf_table device_table = {.name = "device",
                                           .fields = device_fields,
                                           .n = RU_ARRAY_LEN(device_fields),
                                           .size_bytes = sizeof(ru_cluster_device),
                                           .help = "a device inside a host that computes"};

static const ru_conf_table link_table = {
    .name = "link",
    .fields = link_fields,
    .n = RU_ARRAY_LEN(link_fields),
    .size_bytes = sizeof(ru_cluster_link),
    .help = "one direction between two hosts whose speed differs from that of their interfaces"};

static const ru_conf_table disk_table = {.name = "disk",
                                         .fields = disk_fields,
                                         .n = RU_ARRAY_LEN(disk_fields),
                                         .size_bytes = sizeof(ru_cluster_disk),
                                         .help = "a disk, file system or object store"};

/* -- relations ------------------------------------------------------------------------------------
 */

uint32_t ru_cluster_host_find(const ru_cluster *c, const char *name)
{
    for (uint32_t i = 0; i < c->hosts.n; i++) {
        if (strcmp(c->hosts.at[i].name, name) == 0) {
            return i;
        }
    }
    return UINT32_MAX;
}

/* Names used once. Hosts first: the map then answers who is a host. */
static ru_status take_name(ru_map *names, const char *what, const char *name, ru_err *err)
{
    bool fresh;
    if (name[0] == '\0') {
        return RU_FAIL(err, RU_E_ARG, "an entry of '%ss' has no name", what);
    }
    if (ru_map_put_c(names, name, &fresh) == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the names of the cluster");
    }
    return fresh ? RU_OK
                 : RU_FAIL(err, RU_E_ARG, "two entries of '%ss' have the name '%s'", what, name);
}

static ru_status known(const ru_map *hosts, const char *what, const char *name, ru_err *err)
{
    return ru_map_get_c(hosts, name) != NULL
               ? RU_OK
               : RU_FAIL(err, RU_E_ARG, "%s names a host '%s' that is not in 'hosts'", what, name);
}

static ru_status check_names(const ru_cluster *c, ru_map *hosts, ru_map *devices, ru_map *disks,
                             ru_err *err)
{
    for (uint32_t i = 0; i < c->hosts.n; i++) {
        RU_TRY(take_name(hosts, "host", c->hosts.at[i].name, err));
    }
    for (uint32_t i = 0; i < c->devices.n; i++) {
        RU_TRY(take_name(devices, "device", c->devices.at[i].name, err));
        RU_TRY(known(hosts, "a device", c->devices.at[i].host, err));
    }
    for (uint32_t i = 0; i < c->links.n; i++) {
        RU_TRY(known(hosts, "a link", c->links.at[i].from, err));
        RU_TRY(known(hosts, "a link", c->links.at[i].to, err));
    }
    for (uint32_t i = 0; i < c->disks.n; i++) {
        RU_TRY(take_name(disks, "disk", c->disks.at[i].name, err));
        if (c->disks.at[i].host[0] != '\0') {
            RU_TRY(known(hosts, "a disk", c->disks.at[i].host, err));
        }
    }
    return RU_OK;
}

static ru_status check_cluster(const void *section, ru_err *err)
{
    const ru_cluster *c = section;
    if (c->hosts.n > RU_CLUSTER_HOSTS_MAX) {
        return RU_FAIL(err, RU_E_ARG, "'hosts' has %u entries, expected at most %d", c->hosts.n,
                       RU_CLUSTER_HOSTS_MAX);
    }
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_map hosts, devices, disks;
    ru_map_init(&hosts, &a, 0);
    ru_map_init(&devices, &a, 0);
    ru_map_init(&disks, &a, 0);
    ru_status st = check_names(c, &hosts, &devices, &disks, err);
    ru_arena_fini(&a);
    return st;
}

static const ru_conf_field fields[] = {
    {.name = "hosts",
     .type = RU_CONF_SECTIONS,
     .offset = offsetof(ru_cluster, hosts),
     .def = "[]",
     .table = &host_table,
     .help = "the hosts"},
    {.name = "devices",
     .type = RU_CONF_SECTIONS,
     .offset = offsetof(ru_cluster, devices),
     .def = "[]",
     .table = &device_table,
     .help = "their devices"},
    {.name = "links",
     .type = RU_CONF_SECTIONS,
     .offset = offsetof(ru_cluster, links),
     .def = "[]",
     .table = &link_table,
     .help = "connections whose speed differs from that of their hosts' interfaces"},
    {.name = "disks",
     .type = RU_CONF_SECTIONS,
     .offset = offsetof(ru_cluster, disks),
     .def = "[]",
     .table = &disk_table,
     .help = "disks, file systems, object stores"},
};

const ru_conf_table ru_cluster_table = {.name = "cluster",
                                        .fields = fields,
                                        .n = RU_ARRAY_LEN(fields),
                                        .size_bytes = sizeof(ru_cluster),
                                        .check = check_cluster,
                                        .help = "hosts, devices, links and disks"};

ru_cluster_link ru_cluster_path(const ru_cluster *c, uint32_t from, uint32_t to)
{
    RU_CHECK(from < c->hosts.n && to < c->hosts.n);
    const ru_cluster_host *a = &c->hosts.at[from], *b = &c->hosts.at[to];
    ru_cluster_link path = {.from = a->name, .to = b->name};
    for (uint32_t i = 0; i < c->links.n; i++) {
        const ru_cluster_link *l = &c->links.at[i];
        if (strcmp(l->from, a->name) == 0 && strcmp(l->to, b->name) == 0) {
            return *l;
        }
    }
    if (from != to) {
        bool first = b->net_bytes_per_s <= 0 ||
                     (a->net_bytes_per_s > 0 && a->net_bytes_per_s < b->net_bytes_per_s);
        path.bytes_per_s = first ? a->net_bytes_per_s : b->net_bytes_per_s;
        path.latency_ns =
            a->net_latency_ns > b->net_latency_ns ? a->net_latency_ns : b->net_latency_ns;
    }
    return path;
}
