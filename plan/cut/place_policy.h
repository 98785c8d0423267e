/* The input of the policy `place` as its file holds it: what plan/cut/place_policy.c's table fills.
 * Thread: any, plain data. */
#ifndef RU_PLAN_PLACE_POLICY_H
#define RU_PLAN_PLACE_POLICY_H

#include "base/conf.h"
#include "plan/cut/place.h"

typedef struct ru_place_file_op {
    const char *name;
    int64_t time_ns, bytes, group, pin, given;
} ru_place_file_op;

typedef struct ru_place_file_device {
    const char *name;
    int64_t memory_bytes;
    double speed;
} ru_place_file_device;

typedef struct ru_place_file {
    ru_place_in q;            /* without the lists */
    ru_conf_sections ops;     /* of ru_place_file_op */
    ru_conf_sections edges;   /* of ru_place_edge */
    ru_conf_sections devices; /* of ru_place_file_device */
    ru_conf_sections links;   /* of ru_place_link */
    uint32_t seed;
} ru_place_file;

#endif
