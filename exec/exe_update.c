/* Updates in parts: which value waits for which gradient, and guards against a run that does not
 * wait. */
#include "exec/update.h"

#include <math.h>
#include <string.h>

#include "exec/exe_impl.h"
#include "trace/record/recorder.h"

int64_t ru_exe_early_bytes(const ru_exe *e)
{
    return e->ops->early != NULL ? e->ops->early->bytes(e->dev) : 0;
}

/* -- what waits for what -------------------------------------------------------------------------
 */

static void put_guard(exe_update *u, uint32_t step, ru_value_id v)
{
    uint32_t at = u->n_guards++;
    for (; at > 0 && u->guards[at - 1].step > step; at--) {
        u->guards[at] = u->guards[at - 1];
    }
    u->guards[at] = (exe_guard){step, v};
}

static ru_status list(ru_exe *e, ru_err *err)
{
    exe_update *u = &e->update;
    u->needs = RU_NEW(&e->arena, uint32_t, e->outer->n_values + 1);
    u->guards = RU_NEW(&e->arena, exe_guard, e->n_states + e->n_grads + 1);
    u->ns = RU_NEW(&e->arena, int64_t, e->dev->n_steps + 1);
    if (u->needs == NULL || u->guards == NULL || u->ns == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory to update parameters early");
    }
    memset(u->needs, 0xff, (e->outer->n_values + 1) * sizeof *u->needs);
    for (uint32_t k = 0; k < e->n_states + e->n_grads; k++) {
        bool grad = k >= e->n_states;
        ru_value_id v = grad ? e->grads[k - e->n_states].value : e->states[k].id;
        ru_value_id inner = grad ? v : e->states[k].inner;
        rui_dev_value at;
        if (inner.v != 0 && e->ops->value(e->dev, inner, &at)) {
            u->needs[v.v] = e->ops->early->needs(e->dev, inner);
            uint32_t step = grad ? at.begun : at.read;
            if (u->needs[v.v] != UINT32_MAX && step < e->dev->update_from) {
                put_guard(u, step, v);
            }
        }
    }
    return RU_OK;
}

ru_status ru_exe_early_open(ru_exe *e, ru_err *err)
{
    if (ru_exe_early_bytes(e) == 0 || e->update.ready) {
        return RU_OK;
    }
    RU_TRY(e->update.needs == NULL ? list(e, err) : RU_OK);
    RU_TRY(e->ops->early->open(e->dev, err));
    e->update.ready = true;
    return RU_OK;
}

bool ru_exe_updated(const ru_exe *e, ru_value_id v)
{
    uint32_t g = e->update.open ? e->update.needs[v.v] : UINT32_MAX;
    return g == UINT32_MAX || e->ops->early->is_made(e->dev, g);
}

ru_status rui_update_guard(const ru_exe *e, uint32_t step, uint32_t *next, ru_err *err)
{
    const exe_update *u = &e->update;
    for (; u->open && *next < u->n_guards && u->guards[*next].step <= step; ++*next) {
        ru_value_id v = u->guards[*next].value;
        if (!ru_exe_updated(e, v)) {
            const char *name = e->outer->values[v.v].name;
            return RU_FAIL(err, RU_E_ARG,
                           "step %u needs value %u%s%s, whose update is not made: no port has "
                           "waited for it",
                           step, v.v, name != NULL ? " " : "", name != NULL ? name : "");
        }
    }
    return RU_OK;
}

/* -- what may begin ------------------------------------------------------------------------------
 */

ru_status rui_update_possible(const ru_exe *e, ru_err *err)
{
    if (!e->opt.two_phase) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "only a two-phase executable can run its update alone");
    }
    uint32_t step = e->dev->not_alone;
    if (e->next != RU_PHASE_UPDATE && !e->dev->alone) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "the update needs more than gradients: step %u, %s (%s), reads a result of "
                       "an earlier step",
                       step, e->ops->label(e->dev, step), e->ops->kernel(e->dev, step));
    }
    return RU_OK;
}

ru_status rui_update_allows(const ru_exe *e, uint32_t end, ru_err *err)
{
    if (!e->update.open) {
        return RU_OK;
    }
    if (end > e->dev->update_from) {
        return RU_FAIL(err, RU_E_ARG,
                       "an update is open: keep it or take it back before another one");
    }
    uint32_t step = e->dev->not_alone;
    if (!e->opt.overlap) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "an update is open, and the executable was opened without option overlap: "
                       "no run can go on beside it");
    }
    return e->dev->alone
               ? RU_OK
               : RU_FAIL(err, RU_E_UNSUPPORTED,
                         "an update is open, and its step %u, %s (%s), reads a result that the "
                         "next run overwrites",
                         step, e->ops->label(e->dev, step), e->ops->kernel(e->dev, step));
}

/* -- an open update ------------------------------------------------------------------------------
 */

static void on_made(void *self, uint32_t step, int64_t begun_ns, int64_t ended_ns)
{
    ru_exe *e = self;
    e->update.ns[step] += ended_ns - begun_ns;
    ru_rec_act(e->recorder, e->trace_names[step], begun_ns, ended_ns, step, (uint32_t)e->dev->id,
               0);
}

ru_status ru_exe_update_open(ru_exe *e, const ru_run_args *args, ru_err *err)
{
    RU_TRY(rui_update_possible(e, err));
    RU_TRY(rui_update_allows(e, UINT32_MAX, err));
    if (ru_exe_early_bytes(e) == 0) {
        uint32_t step = e->ops->early != NULL ? e->ops->early->needs_more(e->dev) : UINT32_MAX;
        return step < e->dev->n_steps
                   ? RU_FAIL(err, RU_E_UNSUPPORTED,
                             "the update needs several gradients at once: step %u, %s (%s)", step,
                             e->ops->label(e->dev, step), e->ops->kernel(e->dev, step))
                   : RU_FAIL(err, RU_E_UNSUPPORTED, "the %s device makes updates at once only",
                             e->ops->name);
    }
    if (!e->update.ready) {
        return RU_FAIL(err, RU_E_ARG, "an update can open only after ru_exe_early_open");
    }
    const ru_run_args no_args = {0};
    bool measured = e->opt.profile || e->recorder != NULL;
    memset(e->update.ns, 0, e->dev->n_steps * sizeof *e->update.ns);
    e->update.open = true;
    e->next = RU_PHASE_FORWARD;
    ru_pool_enter(e->pool);
    e->ops->early->begin(e->dev, args != NULL ? args : &no_args,
                         &(rui_dev_made){.fn = measured ? on_made : NULL, .self = e});
    return RU_OK;
}

bool ru_exe_update_is_open(const ru_exe *e)
{
    return e->update.open;
}

void ru_exe_early(ru_exe *e, ru_value_id grad, int64_t offset_bytes, int64_t size_bytes)
{
    uint32_t g = e->update.open ? e->update.needs[grad.v] : UINT32_MAX;
    if (g == UINT32_MAX) {
        return;
    }
    RU_CHECK(e->outer->values[grad.v].role == RU_ROLE_GRAD);
    RU_CHECK(offset_bytes >= 0 && size_bytes >= 0 && offset_bytes % 4 == 0 && size_bytes % 4 == 0);
    e->ops->early->update(e->dev, g, offset_bytes / 4, (offset_bytes + size_bytes) / 4);
}

/* Steps of the update were measured by their parts. */
static void count_times(ru_exe *e)
{
    bool measured = false;
    for (uint32_t i = e->dev->update_from; i < e->dev->n_steps; i++) {
        measured = measured || e->update.ns[i] > 0;
    }
    for (uint32_t i = e->dev->update_from; measured && i < e->dev->n_steps; i++) {
        rui_step_took(&e->times[i], e->update.ns[i]);
    }
}

ru_status ru_exe_update_keep(ru_exe *e, ru_err *err)
{
    if (!e->update.open) {
        return RU_FAIL(err, RU_E_ARG, "no update is open");
    }
    ru_status st = e->ops->early->finish(e->dev);
    e->update.open = false;
    count_times(e);
    return st == RU_OK ? RU_OK : RU_FAIL(err, st, "a step of the update failed");
}

void ru_exe_early_undo(ru_exe *e)
{
    if (e->update.open) {
        e->ops->early->undo(e->dev);
        e->update.open = false;
    }
}

double ru_exe_grad_squares(const ru_exe *e, ru_value_id grad, int64_t step, const float *x,
                           const float *y, int64_t first, int64_t n)
{
    return e->ops->early != NULL ? e->ops->early->squares(e->dev, grad, step, x, y, first, n)
                                 : RU_NAN;
}
