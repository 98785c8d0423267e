/* The question of the policy `device` for a job: the types of a cluster, what profiles measured on
 * them, and the ops of the job's step. */
#include <string.h>

#include "cost/step/profile.h"
#include "store/world_file.h"
#include "tool/plan/ways.h"
#include "train/pipe/profile.h"

static void put_types(const ru_cluster *c, ru_json *j)
{
    ru_json_open(j, "types", '[');
    for (uint32_t i = 0; i < c->devices.n; i++) {
        const ru_cluster_device *d = &c->devices.at[i];
        const ru_cluster_host *h = &c->hosts.at[ru_cluster_host_find(c, d->host)];
        uint32_t count = 0, first = 0;
        while (strcmp(c->devices.at[first].type, d->type) != 0) {
            first++;
        }
        for (uint32_t k = i; k < c->devices.n; k++) {
            count += strcmp(c->devices.at[k].type, d->type) == 0 ? 1 : 0;
        }
        if (first < i) {
            continue;
        }
        ru_json_open(j, NULL, '{');
        ru_json_str(j, "name", d->type);
        ru_json_f64(j, "usd_per_h", h->usd_per_h + d->usd_per_h);
        ru_json_i64(j, "count_max", count < 256 ? count : 256);
        ru_json_i64(j, "memory", d->memory_bytes > 0 ? d->memory_bytes : h->memory_bytes);
        ru_json_f64(j, "link_bytes_per_s", h->net_bytes_per_s);
        ru_json_close(j);
    }
    ru_json_close(j);
}

static void put_op(const ru_op_fact *op, const char *net, double seconds, ru_json *j)
{
    char kind[128];
    ru_timing_op x;
    ru_cost_profile_op(op, kind, &x);
    ru_json_open(j, NULL, '{');
    ru_json_str(j, "op", kind);
    if (net != NULL) {
        ru_json_str(j, "type", op->device_type);
        ru_json_str(j, "net", net);
        ru_json_f64(j, "seconds", seconds);
    }
    ru_json_f64(j, "in_bytes", x.in_bytes);
    ru_json_f64(j, "out_bytes", x.out_bytes);
    ru_json_f64(j, "param_bytes", x.param_bytes);
    ru_json_f64(j, "flops", x.flops);
    ru_json_f64(j, "channels_in", x.channels_in);
    ru_json_f64(j, "channels_out", x.channels_out);
    ru_json_f64(j, "taps", x.taps);
    ru_json_close(j);
}

static bool has_type(const ru_cluster *c, const char *type)
{
    bool is = false;
    for (uint32_t i = 0; i < c->devices.n && !is; i++) {
        is = strcmp(c->devices.at[i].type, type) == 0;
    }
    return is;
}

/* A net is a job at one batch. */
static const char *net_of(const ru_step_fact *s, ru_arena *arena)
{
    return ru_arena_printf(arena, "%s, batch %lld", s->job, (long long)s->batch);
}

static void put_facts(const ru_facts *f, const ru_cluster *c, ru_arena *arena, ru_json *j)
{
    ru_json_open(j, "timed", '[');
    for (uint32_t i = 0; i < f->ops.n; i++) {
        const ru_op_fact *op = &f->ops.at[i];
        const ru_step_fact *s = ru_cost_profile_of(f, op->rank);
        if (s != NULL && op->took.count > 0 && has_type(c, op->device_type)) {
            put_op(op, net_of(s, arena), 1e-9 * ru_cost_profile_own(f, op), j);
        }
    }
    ru_json_close(j);
    ru_json_open(j, "steps", '[');
    for (uint32_t i = 0, rank = UINT32_MAX; i < f->ops.n; i++) {
        const ru_op_fact *op = &f->ops.at[i];
        const ru_step_fact *s = op->rank != rank ? ru_cost_profile_of(f, op->rank) : NULL;
        rank = op->rank;
        if (s != NULL && s->compute_ns > 0 && has_type(c, op->device_type)) {
            ru_json_open(j, NULL, '{');
            ru_json_str(j, "type", op->device_type);
            ru_json_str(j, "net", net_of(s, arena));
            ru_json_f64(j, "seconds", 1e-9 * ru_cost_profile_alone(f, s));
            ru_json_close(j);
        }
    }
    ru_json_close(j);
}

ru_status rui_device_question(const rui_ways_ask *ask, ru_arena *arena, ru_json *j, ru_err *err)
{
    ru_cluster c;
    ru_world w;
    ru_job job;
    ru_op_fact *ops;
    uint32_t n;
    int64_t memory, samples;
    if (ask->cluster == NULL || ask->facts == NULL) {
        return RU_FAIL(err, RU_E_USAGE,
                       "device needs the types of a cluster and what was profiled on them; give "
                       "--cluster and --facts with a job");
    }
    RU_TRY(rui_cluster_read(ask->cluster, arena, &c, err));
    RU_TRY(ru_world_file_load(ask->facts, arena, &w, err));
    RU_TRY(ru_profile_check(&w, ask->facts, err));
    RU_TRY(ru_job_load(ask->job, NULL, 0, arena, &job, NULL, err));
    RU_TRY(ru_profile_list(&job, arena, &ops, &n, &memory, &samples, err));
    if (c.devices.n == 0) {
        return RU_FAIL(err, RU_E_CONFIG, "%s has no devices, whose types are asked for",
                       ask->cluster);
    }
    put_types(&c, j);
    put_facts(&w.facts, &c, arena, j);
    ru_json_open(j, "net", '[');
    for (uint32_t i = 0; i < n; i++) {
        put_op(&ops[i], NULL, 0, j);
    }
    ru_json_close(j);
    int64_t epochs = job.train.epochs > 0 ? job.train.epochs : 1;
    ru_json_i64(j, "samples",
                job.train.steps > 0 ? job.train.steps * job.train.batch : epochs * samples);
    ru_json_i64(j, "batch", job.train.batch);
    ru_json_i64(j, "memory", memory);
    return RU_OK;
}
