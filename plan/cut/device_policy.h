/* The input of the policy `device` as a file, and predictions for it. Inside of plan/, and for who
 * fills such an input without a file. Thread: any, pure. */
#ifndef RU_PLAN_DEVICE_POLICY_H
#define RU_PLAN_DEVICE_POLICY_H

#include "base/conf.h"
#include "cost/step/timing.h"
#include "plan/cut/device.h"
#include "plan/row/policy.h"

typedef struct ru_device_type_in {
    const char *name;
    double usd_per_h;
    uint32_t count_max;
    int64_t memory_bytes;
    double released;
    double link_bytes_per_s;
    int64_t link_latency_ns;
    double bytes_per_s, flops_per_s;
} ru_device_type_in;

typedef struct ru_device_op_in {
    const char *type, *net, *op;
    double count, in_bytes, out_bytes, host_bytes, param_bytes, flops, channels_in, channels_out,
        taps, seconds;
} ru_device_op_in;

typedef struct ru_device_step_in {
    const char *type, *net;
    uint32_t devices;
    double seconds;
} ru_device_step_in;

typedef struct ru_device_policy_in {
    ru_conf_sections types, timed, steps, net;
    int64_t samples, batch, memory_bytes;
    uint32_t goal;
    int64_t deadline_ns;
    double budget_usd, sure, overlap;
    const char *anchor;
    uint32_t method;
} ru_device_policy_in;

typedef struct ru_device_policy_plan {
    ru_device_in in; /* with the predicted steps */
    ru_device_plan plan;
    const char *type; /* what it chose */
    uint32_t count;
} ru_device_policy_plan;

/* How steps are predicted. */
typedef struct ru_device_from {
    ru_timing_method method;
    bool scaled; /* from the anchor by the roofline */
    bool profet; /* from the anchor by regression over times of kinds */
} ru_device_from;

/* Types, offers and limits of the planner's input. Owner: in tools->out. Errors: RU_E_INFEASIBLE
 * when a type has no timings, RU_E_UNSUPPORTED, RU_E_LIMIT. */
RU_MUST_USE ru_status rui_device_predict(const ru_device_policy_in *in, const ru_device_from *from,
                                         const ru_policy_tools *tools, ru_device_in *q,
                                         ru_err *err);

#endif
