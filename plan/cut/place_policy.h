/* The input of the policy `place` as its file holds it: what plan/cut/place_policy.c's table fills.
 * Thread: any, plain data. */
#ifndef RU_PLAN_PLACE_POLICY_H
#define RU_PLAN_PLACE_POLICY_H

#include "base/conf.h"

typedef struct ru_place_file_op {
    const char *name;
    int64_t time_ns, bytes, group, pin, given;
} ru_place_file_op;

typedef struct ru_place_file_edge {
    uint32_t from, to;
    int64_t time_ns, bytes;
} ru_place_file_edge;

typedef struct ru_place_file_device {
    const char *name;
    int64_t memory_bytes;
    double speed;
} ru_place_file_device;

typedef struct ru_place_file_link {
    uint32_t from, to;
    int64_t latency_ns;
    double bytes_per_s;
} ru_place_file_link;

typedef struct ru_place_file {
    ru_conf_sections ops;     /* of ru_place_file_op */
    ru_conf_sections edges;   /* of ru_place_file_edge */
    ru_conf_sections devices; /* of ru_place_file_device */
    ru_conf_sections links;   /* of ru_place_file_link */
    int64_t latency_ns, work, nodes;
    double bytes_per_s;
    uint32_t coarse, method, seed;
} ru_place_file;

#endif
