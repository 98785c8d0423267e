/* The tables of facts. */
#include "world/facts.h"

#include <string.h>

static ru_status check_fact(const void *section, ru_err *err)
{
    const ru_fact *f = section;
    bool bounded = f->max_ns > 0;
    if (bounded && (f->mean_ns < (double)f->min_ns || f->mean_ns > (double)f->max_ns)) {
        return RU_FAIL(err, RU_E_ARG, "a mean of %.0f ns lies outside %lld .. %lld ns", f->mean_ns,
                       (long long)f->min_ns, (long long)f->max_ns);
    }
    return RU_OK;
}

static ru_status check_op(const void *section, ru_err *err)
{
    const ru_op_fact *f = section;
    for (uint32_t i = 0; i < f->after.n; i++) {
        if (f->after.at[i] >= (int64_t)f->step) {
            return RU_FAIL(err, RU_E_ARG, "step %u is after step %lld of its own list", f->step,
                           (long long)f->after.at[i]);
        }
    }
    return RU_OK;
}

static const ru_conf_field fact_fields[] = {
    RU_ROW(I64, ru_fact, count, "1", "number of measurements; 0: none", RU_IN(0, 1e18)),
    RU_ROW(F64, ru_fact, mean_ns, NULL, "mean duration", RU_IN(0, 1e18)),
    RU_ROW(F64, ru_fact, stddev_ns, "0", "standard deviation of one measurement; 0: unknown",
           RU_IN(0, 1e18)),
    RU_ROW(I64, ru_fact, min_ns, "0", "shortest duration; 0: unknown", RU_IN(0, 1e18)),
    RU_ROW(I64, ru_fact, median_ns, "0", "median; 0: unknown", RU_IN(0, 1e18)),
    RU_ROW(I64, ru_fact, p90_ns, "0", "90th percentile; 0: unknown", RU_IN(0, 1e18)),
    RU_ROW(I64, ru_fact, max_ns, "0", "longest duration; 0: unknown", RU_IN(0, 1e18)),
    RU_ROW(I64, ru_fact, age_ns, "0", "age of the newest measurement", RU_IN(0, 1e18)),
    RU_ROW(F64, ru_fact, predicted_ns, "0", "mean predicted duration; 0: none", RU_IN(0, 1e18)),
};

const ru_conf_table ru_fact_table = RU_TABLE(
    "fact", ru_fact, fact_fields, "measured durations of one activity", .check = check_fact);

static const ru_conf_field op_fields[] = {
    RU_ROW(U32, ru_op_fact, rank, "0", "worker that ran it", RU_IN(0, 1e6)),
    RU_ROW(U32, ru_op_fact, step, "0", "index of its step in the executable's list", RU_IN(0, 1e8)),
    RU_ROW(TEXT, ru_op_fact, node, "", "graph nodes that it computes, joined with +"),
    RU_ROW(TEXT, ru_op_fact, op, "", "the op"),
    RU_ROW(TEXT, ru_op_fact, kernel, "", "kernel that computes it"),
    RU_ROW(TEXT, ru_op_fact, shapes, "", "shapes and types of its inputs and outputs"),
    RU_ROW(TEXT, ru_op_fact, device_type, "cpu", "type of device, as in the cluster"),
    RU_ROW(I64, ru_op_fact, flops, "0", "flops of one run", RU_IN(0, 1e18)),
    RU_ROW(I64, ru_op_fact, bytes, "0", "bytes that one run reads and writes", RU_IN(0, 1e18)),
    RU_ROW(I64_LIST, ru_op_fact, after, "[]", "steps of the same list whose results it reads",
           RU_IN(0, 1e8)),
    RU_ROW(SECTION, ru_op_fact, took, NULL, "measured durations", .table = &ru_fact_table),
};

const ru_conf_table ru_op_fact_table =
    RU_TABLE("op", ru_op_fact, op_fields, "an instance of an op", .check = check_op);

static const ru_conf_field transfer_fields[] = {
    RU_ROW(TEXT, ru_transfer_fact, name, "", "name of the transferred data"),
    RU_ROW(TEXT, ru_transfer_fact, from, "", "host that sends"),
    RU_ROW(TEXT, ru_transfer_fact, to, "", "host that receives"),
    RU_ROW(I64, ru_transfer_fact, size_bytes, "0", "bytes of one transfer", RU_IN(0, 1e18)),
    RU_ROW(I64, ru_transfer_fact, made_by, "-1", "step that produces it; -1: none", RU_IN(-1, 1e8)),
    RU_ROW(I64, ru_transfer_fact, needed_by, "-1", "first step that reads it; -1: none",
           RU_IN(-1, 1e8)),
    RU_ROW(I64, ru_transfer_fact, used_by, "-1",
           "of a gradient: first step of the next run that reads its parameter; -1: none",
           RU_IN(-1, 1e8)),
    RU_ROW(I64, ru_transfer_fact, rank, "0", "of a pulled parameter: its place in the order",
           RU_IN(0, 1e8)),
    RU_ROW(I64, ru_transfer_fact, arrived_ns, "0",
           "of a pulled parameter: when it had arrived, since the first was asked for",
           RU_IN(0, 1e18)),
    RU_ROW(I64, ru_transfer_fact, needed_ns, "0", "... and when a step needed it; 0: none did",
           RU_IN(0, 1e18)),
    RU_ROW(SECTION, ru_transfer_fact, took, NULL, "measured durations", .table = &ru_fact_table),
};

const ru_conf_table ru_transfer_fact_table =
    RU_TABLE("transfer", ru_transfer_fact, transfer_fields, "bytes from one host to another");

static const ru_conf_field coll_fields[] = {
    RU_ROW(TEXT, ru_coll_fact, op, "all-reduce", "which collective"),
    RU_ROW(TEXT, ru_coll_fact, algo, "ring", "algorithm"),
    RU_ROW(U32, ru_coll_fact, n_ranks, "2", "members of the group", RU_IN(0, 1e6)),
    RU_ROW(I64, ru_coll_fact, size_bytes, "0", "bytes of the whole buffer", RU_IN(0, 1e18)),
    RU_ROW(I64, ru_coll_fact, chunk_bytes, "0", "chunk size; 0: no chunks", RU_IN(0, 1e18)),
    RU_ROW(U32, ru_coll_fact, depth, "0", "chunks in flight; 0: one", RU_IN(0, 1e6)),
    RU_ROW(SECTION, ru_coll_fact, took, NULL, "measured durations", .table = &ru_fact_table),
};

const ru_conf_table ru_coll_fact_table =
    RU_TABLE("collective", ru_coll_fact, coll_fields, "a collective operation of a group");

static const ru_conf_field disk_fields[] = {
    RU_ROW(TEXT, ru_disk_fact, disk, NULL, "name in the cluster"),
    RU_ROW(BOOL, ru_disk_fact, writes, "false", "true: a write; false: a read"),
    RU_ROW(BOOL, ru_disk_fact, random, "false", "true: each operation is at another place"),
    RU_ROW(U32, ru_disk_fact, depth, "0", "number of outstanding operations; 0: one",
           RU_IN(0, 1e6)),
    RU_ROW(I64, ru_disk_fact, size_bytes, "0", "bytes of one operation", RU_IN(0, 1e18)),
    RU_ROW(SECTION, ru_disk_fact, took, NULL, "measured durations", .table = &ru_fact_table),
};

const ru_conf_table ru_disk_fact_table =
    RU_TABLE("disk", ru_disk_fact, disk_fields, "reads or writes of one kind");

static const ru_conf_field step_fields[] = {
    RU_ROW(TEXT, ru_step_fact, job, "", "name of the job"),
    RU_ROW(U32, ru_step_fact, rank, "0", "worker", RU_IN(0, 1e6)),
    RU_ROW(U32, ru_step_fact, workers, "1", "workers of the job at that time", RU_IN(0, 1e6)),
    RU_ROW(I64, ru_step_fact, samples, "0", "samples that this worker computes in one step",
           RU_IN(0, 1e18)),
    RU_ROW(I64, ru_step_fact, batch, "0", "samples of one step of the whole job", RU_IN(0, 1e18)),
    RU_ROW(I64, ru_step_fact, flops, "0", "flops of one step of this worker", RU_IN(0, 1e18)),
    RU_ROW(I64, ru_step_fact, state_bytes, "0", "parameters and optimizer state", RU_IN(0, 1e18)),
    RU_ROW(I64, ru_step_fact, arena_bytes, "0", "temporaries", RU_IN(0, 1e18)),
    RU_ROW(F64, ru_step_fact, compute_ns, "0", "mean time inside kernels", RU_IN(0, 1e18)),
    RU_ROW(F64, ru_step_fact, network_ns, "0",
           "mean time of sums that did not overlap with computation", RU_IN(0, 1e18)),
    RU_ROW(F64, ru_step_fact, input_ns, "0", "mean time of waiting for samples", RU_IN(0, 1e18)),
    RU_ROW(F64, ru_step_fact, wait_ns, "0", "mean time of waiting for other workers",
           RU_IN(0, 1e18)),
    RU_ROW(F64, ru_step_fact, gradient_noise, "0",
           "simple gradient noise scale in samples; 0: unknown", RU_IN(0, 1e18)),
    RU_ROW(SECTION, ru_step_fact, took, NULL, "measured durations", .table = &ru_fact_table),
};

const ru_conf_table ru_step_fact_table =
    RU_TABLE("step", ru_step_fact, step_fields, "training steps of one worker");

static const ru_conf_field processor_fields[] = {
    RU_ROW(U32, ru_processor_fact, rank, NULL, "worker", RU_IN(0, 1e6)),
    RU_ROW(F64, ru_processor_fact, quota_ns, "0",
           "processor time that the worker may use in each period; 0: no bound", RU_IN(0, 1e15)),
    RU_ROW(F64, ru_processor_fact, period_ns, "0", "length of a period", RU_IN(0, 1e15)),
    RU_ROW(F64, ru_processor_fact, compute_ns, "0",
           "processor time of a step, without the thread of the messages", RU_IN(0, 1e18)),
    RU_ROW(F64, ru_processor_fact, message_ns, "0",
           "processor time of the thread that sends and receives, in a step", RU_IN(0, 1e18)),
    RU_ROW(F64, ru_processor_fact, read_ns, "0",
           "wall time that the readers need for the samples of a step", RU_IN(0, 1e18)),
    RU_ROW(SECTION, ru_processor_fact, took, NULL, "wall time of the steps, without the first ones",
           .table = &ru_fact_table),
};

const ru_conf_table ru_processor_fact_table =
    RU_TABLE("processor", ru_processor_fact, processor_fields, "processor time of one worker");

static const ru_conf_field request_fields[] = {
    RU_ROW(TEXT, ru_request_fact, model, "", "name of the model"),
    RU_ROW(I64, ru_request_fact, size, "0", "size of one request in elements, tokens or bytes",
           RU_IN(0, 1e18)),
    RU_ROW(I64, ru_request_fact, batch, "1", "requests served together", RU_IN(0, 1e18)),
    RU_ROW(F64, ru_request_fact, rate_per_s, "0", "arrival rate of such requests; 0: unknown",
           RU_IN(0, 1e18)),
    RU_ROW(SECTION, ru_request_fact, took, NULL, "from arrival to answer", .table = &ru_fact_table),
    RU_ROW(SECTION, ru_request_fact, served, NULL, "compute time alone", .table = &ru_fact_table),
};

const ru_conf_table ru_request_fact_table =
    RU_TABLE("request", ru_request_fact, request_fields, "inference or function calls of one kind");

static const ru_conf_field price_fields[] = {
    RU_ROW(TEXT, ru_price_fact, market, NULL, "name, as cluster.hosts.market"),
    RU_ROW(I64, ru_price_fact, at_s, "0", "time in seconds since 1970", RU_IN(0, 1e18)),
    RU_ROW(F64, ru_price_fact, usd_per_h, NULL, "price from then on", RU_IN(0, 1e18)),
};

const ru_conf_table ru_price_fact_table =
    RU_TABLE("price", ru_price_fact, price_fields, "a price of a market");

static ru_status check_facts(const void *section, ru_err *err)
{
    const ru_facts *f = section;
    for (uint32_t i = 1; i < f->ops.n; i++) {
        const ru_op_fact *a = &f->ops.at[i - 1], *b = &f->ops.at[i];
        if (b->rank < a->rank || (b->rank == a->rank && b->step <= a->step)) {
            return RU_FAIL(err, RU_E_ARG,
                           "'ops' must be sorted by rank and step: entry %u is step %u of rank %u",
                           i, b->step, b->rank);
        }
    }
    for (uint32_t i = 1; i < f->prices.n; i++) {
        const ru_price_fact *a = &f->prices.at[i - 1], *b = &f->prices.at[i];
        int order = strcmp(a->market, b->market);
        if (order > 0 || (order == 0 && b->at_s <= a->at_s)) {
            return RU_FAIL(err, RU_E_ARG,
                           "'prices' must be sorted by market and time: entry %u is %lld s of '%s'",
                           i, (long long)b->at_s, b->market);
        }
    }
    return RU_OK;
}

static const ru_conf_field fields[] = {
    RU_ROW(SECTIONS, ru_facts, ops, "[]", "op instances, by rank and step",
           .table = &ru_op_fact_table),
    RU_ROW(SECTIONS, ru_facts, transfers, "[]", "bytes between hosts",
           .table = &ru_transfer_fact_table),
    RU_ROW(SECTIONS, ru_facts, collectives, "[]", "collective operations",
           .table = &ru_coll_fact_table),
    RU_ROW(SECTIONS, ru_facts, disks, "[]", "reads and writes", .table = &ru_disk_fact_table),
    RU_ROW(SECTIONS, ru_facts, steps, "[]", "training steps", .table = &ru_step_fact_table),
    RU_ROW(SECTIONS, ru_facts, processors, "[]", "processor time of the workers, by rank",
           .table = &ru_processor_fact_table),
    RU_ROW(SECTIONS, ru_facts, requests, "[]", "inference and function calls",
           .table = &ru_request_fact_table),
    RU_ROW(SECTIONS, ru_facts, prices, "[]", "prices of markets, by market and time",
           .table = &ru_price_fact_table),
};

const ru_conf_table ru_facts_table =
    RU_TABLE("facts", ru_facts, fields, "measurements", .check = check_facts);
