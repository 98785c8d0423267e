/* The table of a cluster and questions about it. */
#include "world/cluster.h"

#include <string.h>

#include "base/map.h"

static const ru_conf_field host_fields[] = {
    RU_ROW(TEXT, ru_cluster_host, name, NULL, "its name, unique in the cluster"),
    RU_ROW(TEXT, ru_cluster_host, cpu, "", "model of its processor"),
    RU_ROW(U32, ru_cluster_host, cores, "1", "cores that jobs may use", RU_IN(0, 1e6)),
    RU_ROW(I64, ru_cluster_host, memory_bytes, "0", "memory; 0 unknown", RU_IN(0, 1e18)),
    RU_ROW(F64, ru_cluster_host, net_bytes_per_s, "0",
           "bandwidth of its network interface in each direction; 0: unknown", RU_IN(0, 1e18)),
    RU_ROW(I64, ru_cluster_host, net_latency_ns, "0", "one-way latency to another host",
           RU_IN(0, 1e18)),
    RU_ROW(F64, ru_cluster_host, usd_per_h, "0", "price of the whole host", RU_IN(0, 1e18)),
    RU_ROW(F64, ru_cluster_host, availability, "1", "fraction of time in which it is available",
           RU_IN(0, 1)),
    RU_ROW(TEXT, ru_cluster_host, market, "",
           "market in facts.prices that sets its price; empty: the price is fixed"),
    RU_ROW(CHOICE, ru_cluster_host, tier, "reliable", "transient: it may be taken away at any time",
           .choices = "reliable|transient"),
};

static const ru_conf_field device_fields[] = {
    RU_ROW(TEXT, ru_cluster_device, name, NULL, "its name, unique in the cluster"),
    RU_ROW(TEXT, ru_cluster_device, host, NULL, "name of its host"),
    RU_ROW(TEXT, ru_cluster_device, type, "cpu", "device type, as facts of ops name it"),
    RU_ROW(F64, ru_cluster_device, flops_per_s, "0",
           "highest rate of dense matrix products; 0: unknown", RU_IN(0, 1e18)),
    RU_ROW(F64, ru_cluster_device, bytes_per_s, "0", "bandwidth of its memory; 0: unknown",
           RU_IN(0, 1e18)),
    RU_ROW(I64, ru_cluster_device, memory_bytes, "0", "its own memory; 0: that of the host",
           RU_IN(0, 1e18)),
    RU_ROW(U32, ru_cluster_device, cores, "0",
           "cores of the host that its worker computes with; 0: all", RU_IN(0, 1e6)),
    RU_ROW(BOOL, ru_cluster_device, votes, "true",
           "false: its worker counts in no majority and never leads"),
    RU_ROW(F64, ru_cluster_device, launch_ns, "0", "smallest time of one operation",
           RU_IN(0, 1e18)),
    RU_ROW(F64, ru_cluster_device, usd_per_h, "0", "price in addition to the price of the host",
           RU_IN(0, 1e18)),
    RU_ROW(F64, ru_cluster_device, availability, "1", "fraction of time in which it is available",
           RU_IN(0, 1)),
};

static const ru_conf_field link_fields[] = {
    RU_ROW(TEXT, ru_cluster_link, from, NULL, "host that sends"),
    RU_ROW(TEXT, ru_cluster_link, to, NULL, "host that receives"),
    RU_ROW(F64, ru_cluster_link, bytes_per_s, "0", "bandwidth; 0: unknown", RU_IN(0, 1e18)),
    RU_ROW(I64, ru_cluster_link, latency_ns, "0", "one-way latency", RU_IN(0, 1e18)),
    RU_ROW(F64, ru_cluster_link, usd_per_gb, "0", "price of transferred data", RU_IN(0, 1e18)),
};

static const ru_conf_field disk_fields[] = {
    RU_ROW(TEXT, ru_cluster_disk, name, NULL, "its name, unique in the cluster"),
    RU_ROW(TEXT, ru_cluster_disk, host, "", "name of its host; empty: every host reaches it"),
    RU_ROW(CHOICE, ru_cluster_disk, kind, "ssd", "kind of storage",
           .choices = "ssd|hdd|memory|net"),
    RU_ROW(I64, ru_cluster_disk, size_bytes, "0", "capacity; 0: unknown", RU_IN(0, 1e18)),
    RU_ROW(F64, ru_cluster_disk, read_bytes_per_s, "0", "rate of large reads; 0: unknown",
           RU_IN(0, 1e18)),
    RU_ROW(F64, ru_cluster_disk, write_bytes_per_s, "0", "rate of large writes; 0: unknown",
           RU_IN(0, 1e18)),
    RU_ROW(I64, ru_cluster_disk, seek_ns, "0", "time before the first byte of a read",
           RU_IN(0, 1e18)),
    RU_ROW(F64, ru_cluster_disk, usd_per_gb_month, "0", "price of its capacity", RU_IN(0, 1e18)),
};

static const ru_conf_table host_table =
    RU_TABLE("host", ru_cluster_host, host_fields, "one computer");

static const ru_conf_table device_table =
    RU_TABLE("device", ru_cluster_device, device_fields, "a device inside a host that computes");

static const ru_conf_table link_table =
    RU_TABLE("link", ru_cluster_link, link_fields,
             "one direction between two hosts whose speed differs from that of their interfaces");

static const ru_conf_table disk_table =
    RU_TABLE("disk", ru_cluster_disk, disk_fields, "a disk, file system or object store");

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
    RU_ROW(SECTIONS, ru_cluster, hosts, "[]", "the hosts", .table = &host_table),
    RU_ROW(SECTIONS, ru_cluster, devices, "[]", "their devices", .table = &device_table),
    RU_ROW(SECTIONS, ru_cluster, links, "[]",
           "connections whose speed differs from that of their hosts' interfaces",
           .table = &link_table),
    RU_ROW(SECTIONS, ru_cluster, disks, "[]", "disks, file systems, object stores",
           .table = &disk_table),
};

const ru_conf_table ru_cluster_table = RU_TABLE(
    "cluster", ru_cluster, fields, "hosts, devices, links and disks", .check = check_cluster);
