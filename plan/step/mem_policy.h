/* The input of the policy `mem` as its file has it (plan/step/mem.h).
 *
 * Thread: any, pure. */
#ifndef RU_PLAN_MEM_POLICY_H
#define RU_PLAN_MEM_POLICY_H

#include "base/conf.h"
#include "plan/step/mem.h"

typedef struct ru_mem_policy_in {
    struct {
        const ru_mem_buf *at; /* [n] laid out as ru_conf_sections */
        uint32_t n;
    } bufs;
    int64_t align_bytes, work_max, seed;
    uint32_t method; /* 0: ours */
} ru_mem_policy_in;

/* The question that `in` asks; views. */
ru_mem_policy_in ru_mem_policy_in_of(const ru_mem_in *in);

#endif
