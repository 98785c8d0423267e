/* A cluster as data: hosts, their devices and disks, and the links between hosts, each with speed,
 * memory, price and availability. A world file holds one (store/world_file.h); planners and the
 * simulator read it.
 *
 * Records name each other by `name`; ru_cluster_host gives the index. A number that nobody measured
 * or stated is 0, and whoever needs it says so.
 *
 * Thread: any, plain data. */
#ifndef RU_WORLD_CLUSTER_H
#define RU_WORLD_CLUSTER_H

#include "base/conf.h"

enum { RU_CLUSTER_HOSTS_MAX = 1 << 16 };

/* How likely a machine is to be taken away; the same numbers as ru_tier of comm/member. */
typedef enum ru_host_tier { RU_HOST_RELIABLE, RU_HOST_TRANSIENT } ru_host_tier;

typedef struct ru_cluster_host {
    const char *name; /* unique */
    const char *cpu;  /* "AMD EPYC 7763"; "" unknown */
    uint32_t cores;
    int64_t memory_bytes;
    double net_bytes_per_s; /* of its network interface, each direction */
    int64_t net_latency_ns; /* one way to another host, unless a link says otherwise */
    double usd_per_h;       /* of the whole host */
    double availability;    /* fraction of time in which it is there, 0..1 */
    const char *market;     /* where its price is set: name in facts.prices; "" fixed price */
    uint32_t tier;          /* ru_host_tier */
} ru_cluster_host;

typedef struct ru_cluster_device {
    const char *name, *host;
    const char *type;     /* what facts call it: "cpu", "V100" */
    double flops_per_s;   /* best rate of dense products */
    double bytes_per_s;   /* of its memory */
    int64_t memory_bytes; /* 0: that of the host */
    uint32_t cores;       /* of the host that a worker on it computes with; 0: all */
    bool votes;           /* its worker counts in majorities and may lead */
    double launch_ns;     /* least time of one operation */
    double usd_per_h;     /* beside the host's */
    double availability;  /* 0..1 */
} ru_cluster_device;

/* One direction of a connection between two hosts that differs from what their interfaces say. */
typedef struct ru_cluster_link {
    const char *from, *to; /* names of hosts */
    double bytes_per_s;
    int64_t latency_ns; /* one way */
    double usd_per_gb;  /* of what it carries */
} ru_cluster_link;

typedef enum ru_disk_kind {
    RU_DISK_SSD,
    RU_DISK_HDD,
    RU_DISK_MEMORY,
    RU_DISK_NET, /* a file system or object store over the network */
    RU_DISK_KINDS
} ru_disk_kind;

typedef struct ru_cluster_disk {
    const char *name, *host; /* host "": any host reaches it */
    uint32_t kind;           /* ru_disk_kind */
    int64_t size_bytes;
    double read_bytes_per_s, write_bytes_per_s;
    int64_t seek_ns; /* before the first byte of one read */
    double usd_per_gb_month;
} ru_cluster_disk;

/* The lists are laid out as ru_conf_sections. */
typedef struct ru_cluster {
    struct {
        const ru_cluster_host *at; /* [n] */
        uint32_t n;
    } hosts;
    struct {
        const ru_cluster_device *at; /* [n] */
        uint32_t n;
    } devices;
    struct {
        const ru_cluster_link *at; /* [n] */
        uint32_t n;
    } links;
    struct {
        const ru_cluster_disk *at; /* [n] */
        uint32_t n;
    } disks;
} ru_cluster;

/* The file's keys; its check refuses names that are used twice and names of hosts that are not
 * there. */
extern const ru_conf_table ru_cluster_table;

/* Index of the host of this name; UINT32_MAX: there is none. */
uint32_t ru_cluster_host_find(const ru_cluster *c, const char *name);

#endif
