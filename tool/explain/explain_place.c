#include "tool/explain/explain_place.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/unit.h"
#include "tool/explain/explain_pipe.h"

typedef struct shown {
    ru_trace *traces;
    ru_trace_pipe p;
    const ru_place_file *in; /* NULL: nothing was predicted */
    const ru_place_plan *plan;
    ru_arena *arena;
} shown;

static bool is_whole(const ru_trace_pipe *p)
{
    bool is = p->n > 0 && strcmp(p->schedule, "placed") == 0;
    for (uint32_t d = 0; d < p->n && is; d++) {
        is = p->stages[d].trace != UINT32_MAX && p->stages[d].steps > 0;
    }
    return is;
}

static void cols(ru_table *t, const char *const *names, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        ru_table_col(t, names[k], RU_TABLE_RIGHT);
    }
}

/* Computation and memory of a device in the plan. */
static double said_s(const shown *s, uint32_t device, int64_t *bytes)
{
    const ru_place_file_op *ops = s->in->ops.at;
    double ns = 0;
    *bytes = 0;
    for (uint32_t i = 0; i < s->plan->n_ops; i++) {
        bool here = s->plan->device[i] == device;
        ns += here ? (double)s->plan->took_ns[i] : 0;
        *bytes += here ? ops[i].bytes : 0;
    }
    return ns;
}

static void put_bytes(ru_table *t, int64_t bytes)
{
    if (bytes >= 0) {
        ru_table_bytes(t, bytes);
    } else { /* nobody said */
        ru_table_absent(t, "bytes");
    }
}

static ru_status show_devices(const shown *s, const ru_tell *out, ru_err *err)
{
    static const char *const names[] = {"device",  "worker",  "parts",  "predicted",
                                        "compute", "update",  "input",  "idle",
                                        "memory",  "planned", "to save"};
    ru_table t = ru_table_in(s->arena);
    cols(&t, names, RU_ARRAY_LEN(names));
    for (uint32_t d = 0; d < s->p.n; d++) {
        const ru_stage_time *x = &s->p.stages[d];
        const ru_trace *trace = &s->traces[x->trace];
        double compute = x->parts * (double)(x->forward_ns + x->backward_ns);
        double update = x->updates * (double)x->update_ns;
        double busy = compute + update + (double)(x->input_ns * s->p.micro);
        const char *text = ru_trace_meta_get(trace, "pipe memory");
        long long planned = 0, saves = 0;
        int64_t bytes = 0;
        ru_table_i64(&t, d + 1);
        ru_table_i64(&t, ru_trace_number(trace));
        ru_table_i64(&t, llround(x->parts / s->p.micro));
        if (s->plan != NULL) {
            ru_table_ns(&t, (int64_t)said_s(s, d, &bytes));
        } else {
            ru_table_absent(&t, "s");
        }
        ru_table_ns(&t, (int64_t)(compute + update));
        ru_table_ns(&t, (int64_t)update);
        ru_table_ns(&t, x->input_ns * s->p.micro);
        ru_table_percent(&t, x->step_ns > 0 ? fmax(1 - busy / (double)x->step_ns, 0) : 0, 0);
        put_bytes(&t, bytes > 0 ? bytes : -1);
        bool said = text != NULL && sscanf(text, "%*u %*d %lld %lld", &planned, &saves) == 2;
        put_bytes(&t, said ? planned : -1);
        put_bytes(&t, said ? saves : -1);
    }
    const char *title =
        ru_arena_printf(s->arena,
                        "devices in a step, means of %lld recorded steps: computation that the "
                        "plan predicted, and that came; memory that it counts, and that "
                        "executables planned, and what an evaluation or a checkpoint needs beside",
                        (long long)s->p.stages[s->p.n - 1].steps);
    return ru_tell_table(out, "devices", title != NULL ? title : "", &t, err);
}

/* Does an earlier edge bring the same value to the same device? */
static bool again(const shown *s, uint32_t e)
{
    const ru_place_edge *edges = s->in->edges.at;
    const uint32_t *device = s->plan->device;
    bool is = false;
    for (uint32_t i = 0; i < e && edges[e].value > 0; i++) {
        is = is || (edges[i].value == edges[e].value && device[edges[i].to] == device[edges[e].to]);
    }
    return is;
}

/* Of one direction in a step of the plan. */
static void said_link(const shown *s, const ru_stage_flow *f, double *ns, int64_t *bytes)
{
    const ru_place_edge *edges = s->in->edges.at;
    double latency = (double)s->in->q.latency_ns, rate = s->in->q.bytes_per_s;
    const ru_place_link *links = s->in->links.at;
    for (uint32_t k = 0; k < s->in->links.n; k++) {
        bool is = links[k].from == f->from && links[k].to == f->to;
        latency = is ? (double)links[k].latency_ns : latency;
        rate = is ? links[k].bytes_per_s : rate;
    }
    for (uint32_t i = 0; i < s->in->edges.n; i++) {
        if (s->plan->device[edges[i].from] == f->from && s->plan->device[edges[i].to] == f->to &&
            !again(s, i)) {
            *ns += (double)edges[i].time_ns + latency + 1e9 * (double)edges[i].bytes / rate;
            *bytes += edges[i].bytes;
        }
    }
}

static ru_status show_links(const shown *s, const ru_tell *out, ru_err *err)
{
    static const char *const names[] = {"from",      "to",       "expected", "bytes",
                                        "predicted", "transfer", "waited"};
    ru_table t = ru_table_in(s->arena);
    cols(&t, names, RU_ARRAY_LEN(names));
    for (uint32_t k = 0; k < s->p.n_flows; k++) {
        const ru_stage_flow *f = &s->p.flows[k];
        double ns = 0;
        int64_t bytes = 0, waited = 0;
        for (uint32_t j = 0; j < s->p.micro; j++) {
            waited += f->wait_ns[j];
        }
        ru_table_i64(&t, f->from + 1);
        ru_table_i64(&t, f->to + 1);
        if (s->plan != NULL) {
            said_link(s, f, &ns, &bytes);
            ru_table_bytes(&t, bytes);
        } else {
            ru_table_absent(&t, "bytes");
        }
        ru_table_bytes(&t, f->bytes * s->p.micro);
        if (s->plan != NULL) {
            ru_table_ns(&t, (int64_t)ns);
        } else {
            ru_table_absent(&t, "s");
        }
        ru_table_ns(&t, f->xfer_ns * s->p.micro);
        ru_table_ns(&t, waited);
    }
    return ru_tell_table(out, "links",
                         "links in a step: bytes and time that the plan expected, and that came; "
                         "waits of the receiver",
                         &t, err);
}

ru_status rui_explain_place(const char *path, const ru_place_file *input, const ru_place_plan *plan,
                            ru_arena *arena, const ru_tell *out, bool *whole, ru_err *err)
{
    uint32_t n;
    shown s = {.arena = arena};
    RU_TRY(rui_explain_pipe_load(path, arena, &s.traces, &n, &s.p, err));
    *whole = is_whole(&s.p);
    if (!*whole) {
        return RU_OK;
    }
    if (plan != NULL && input->devices.n == s.p.n) { /* else of another placement */
        s.in = input;
        s.plan = plan;
    }
    RU_TRY(show_devices(&s, out, err));
    return show_links(&s, out, err);
}
