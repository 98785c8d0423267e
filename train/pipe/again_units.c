/* A placement again: the question that was asked, with other devices. */
#include <math.h>
#include <string.h>

#include "plan/cut/place_policy.h"
#include "trace/read/stages.h"
#include "train/pipe/again.h"
#include "train/pipe/meter.h"

enum { TRACE_BYTES = 1 << 20 }; /* of each trace: the newest steps */
#define SPEED_MIN 0.01          /* that the policy takes */
#define SPEED_MAX 100

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "no memory for another placement");
}

static ru_status read_question(const char *asked, ru_arena *arena, ru_place_file *f, ru_err *err)
{
    ru_conf *c;
    RU_TRY(ru_conf_new(ru_policy_place.in, arena, &c, err));
    ru_conf_bulk(c);
    RU_TRY(ru_conf_add_json(c, "measured layers", asked, (int64_t)strlen(asked), err));
    return ru_conf_apply(c, f, err);
}

static ru_status answer(const ru_place_file *f, ru_arena *arena, const ru_place_plan **plan,
                        ru_err *err)
{
    ru_arena scratch;
    ru_policy_answer a;
    ru_arena_init(&scratch, 0);
    ru_status st = ru_policy_run(&ru_policy_place, f,
                                 &(ru_policy_tools){.out = arena, .scratch = &scratch}, &a, err);
    ru_arena_fini(&scratch);
    *plan = a.plan;
    return st;
}

/* The same text with these devices. The question holds no list in its list of devices. */
static ru_status with_devices(const char *asked, const ru_place_file_device *at, uint32_t n,
                              ru_arena *arena, const char **out, ru_err *err)
{
    static const char key[] = "\"devices\":";
    ru_text text = ru_text_arena(arena);
    const char *from = strstr(asked, key), *to = from != NULL ? strchr(from, ']') : NULL;
    if (to == NULL) {
        return RU_FAIL(err, RU_E_DATA, "the question of a placement names no devices");
    }
    ru_text_put_n(&text, asked, from - asked + (int64_t)sizeof key - 1);
    ru_json j = ru_json_into(&text);
    ru_json_open(&j, NULL, '[');
    for (uint32_t d = 0; d < n; d++) {
        ru_json_open(&j, NULL, '{');
        ru_json_str(&j, "name", at[d].name);
        ru_json_i64(&j, "memory", at[d].memory_bytes);
        ru_json_f64(&j, "speed", at[d].speed);
        ru_json_close(&j);
    }
    ru_json_close(&j);
    ru_text_put(&text, to + 1);
    *out = text.p;
    return text.cut ? full(err) : RU_OK;
}

/* Op k of n / 2 goes forward, op n / 2 + k back. */
static ru_status take(const ru_place_file *f, const ru_place_plan *p, ru_arena *arena,
                      ru_units_choice *c, ru_err *err)
{
    uint32_t n = f->ops.n / 2;
    const ru_place_file_op *ops = f->ops.at;
    ru_conf_pair *at = RU_NEW(arena, ru_conf_pair, n + 1);
    const char **back = RU_NEW(arena, const char *, n + 1);
    uint32_t *order = RU_NEW(arena, uint32_t, n + 1);
    uint64_t used = 0;
    if (at == NULL || back == NULL || order == NULL) {
        return full(err);
    }
    rui_units_by_start(p->start_ns, n, order);
    for (uint32_t k = 0; k < n; k++) {
        at[k] = (ru_conf_pair){ops[order[k]].name, p->device[order[k]] + 1};
        used |= UINT64_C(1) << p->device[order[k]];
    }
    rui_units_by_start(p->start_ns + n, n, order);
    for (uint32_t k = 0; k < n; k++) {
        back[k] = ops[order[k]].name;
    }
    *c = (ru_units_choice){.devices = {.at = at, .n = n},
                           .back = {.at = back, .n = n},
                           .n = n,
                           .step_s = 1e-9 * (double)p->step_ns};
    for (; used != 0; used &= used - 1) {
        c->used++;
    }
    return RU_OK;
}

/* A step of the placement `now`. */
static ru_status given(const ru_place_file *f, const ru_conf_pairs *now, ru_arena *arena,
                       const ru_place_plan **plan, ru_err *err)
{
    ru_place_file as = *f;
    uint32_t n = f->ops.n / 2;
    ru_place_file_op *ops = ru_arena_copy(arena, f->ops.at, 2 * n * (int64_t)sizeof *ops, 8);
    if (ops == NULL) {
        return full(err);
    }
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = 0;
        while (i < now->n && strcmp(now->at[i].key, ops[k].name) != 0) {
            i++;
        }
        if (i == now->n) {
            return RU_FAIL(err, RU_E_MISSING, "'%.80s' has no device of its own", ops[k].name);
        }
        ops[k].given = ops[n + k].given = (int64_t)now->at[i].value - 1;
    }
    as.ops.at = ops;
    as.q.method = RU_PLACE_GIVEN;
    return answer(&as, arena, plan, err);
}

/* By how much each device is slower than in the question. */
static ru_status read_speeds(const char *run, const ru_place_plan *p, double *speed, uint32_t n,
                             ru_arena *arena, ru_err *err)
{
    uint32_t n_traces;
    ru_trace *traces;
    ru_trace_clocks clocks;
    ru_trace_pipe seen;
    RU_TRY(ru_trace_run_load_end(run, TRACE_BYTES, arena, &traces, &n_traces, err));
    RU_TRY(ru_trace_align(traces, n_traces, arena, &clocks, err));
    RU_TRY(ru_trace_pipe_read(traces, n_traces, &clocks, arena, &seen, err));
    if (seen.n != n || strcmp(seen.schedule, "placed") != 0) {
        return RU_FAIL(err, RU_E_MISSING, "no records of %u devices", n);
    }
    for (uint32_t d = 0; d < n; d++) {
        const ru_stage_time *x = &seen.stages[d];
        double took = x->parts * (double)(x->forward_ns + x->backward_ns) +
                      x->updates * (double)x->update_ns,
               said = 0;
        for (uint32_t i = 0; i < p->n_ops; i++) {
            said += p->device[i] == d ? (double)p->took_ns[i] : 0;
        }
        if (x->trace == UINT32_MAX || x->steps == 0 || !(took > 0) || !(said > 0)) {
            return RU_FAIL(err, RU_E_MISSING, "no records of device %u", d + 1);
        }
        speed[d] = fmin(fmax(speed[d] * said / took, SPEED_MIN), SPEED_MAX);
    }
    return RU_OK;
}

ru_status ru_units_speeds_read(const char *asked, const ru_conf_pairs *now, const char *run,
                               ru_arena *arena, double **speed, ru_err *err)
{
    ru_place_file f;
    const ru_place_plan *p;
    RU_TRY(read_question(asked, arena, &f, err));
    const ru_place_file_device *at = f.devices.at;
    double *to = RU_NEW(arena, double, f.devices.n + 1);
    if (to == NULL) {
        return full(err);
    }
    for (uint32_t d = 0; d < f.devices.n; d++) {
        to[d] = at[d].speed;
    }
    RU_TRY(given(&f, now, arena, &p, err));
    RU_TRY(read_speeds(run, p, to, f.devices.n, arena, err));
    *speed = to;
    return RU_OK;
}

ru_status ru_units_again(const char *asked, const ru_conf_pairs *now, const double *speed,
                         uint32_t devices, ru_arena *arena, double *was_s, ru_units_choice *out,
                         ru_err *err)
{
    ru_place_file f;
    const char *text = NULL;
    const ru_place_plan *p;
    RU_TRY(read_question(asked, arena, &f, err));
    const ru_place_file_device *was = f.devices.at;
    ru_place_file_device *at = RU_NEW(arena, ru_place_file_device, devices + 1);
    for (uint32_t d = 0; d < devices && at != NULL; d++) {
        const char *name = ru_arena_printf(arena, "device %u", d + 1);
        double before = d < f.devices.n ? was[d].speed : 1;
        at[d] = (ru_place_file_device){name != NULL ? name : "", was[0].memory_bytes,
                                       speed != NULL ? speed[d] : before};
    }
    RU_TRY(at != NULL ? with_devices(asked, at, devices, arena, &text, err) : full(err));
    RU_TRY(read_question(text, arena, &f, err));
    RU_TRY(answer(&f, arena, &p, err));
    RU_TRY(take(&f, p, arena, out, err));
    out->asked = text;
    if (now != NULL) {
        RU_TRY(given(&f, now, arena, &p, err));
        *was_s = 1e-9 * (double)p->step_ns;
    }
    return RU_OK;
}
