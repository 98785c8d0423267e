/* A device that takes virtual time, keeps small parameters, and holds its caller to the contract of
 * train/elastic/elastic.h: calls in a legal order, gradients complete, sums exact, state as of one
 * step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/job_impl.h"

#define BUILD_NS INT64_C(2000000)
#define ABORT_NS INT64_C(300000)
#define KEEP_NS  INT64_C(50000)

static ru_time now_of(const rui_simjob_device *d)
{
    return ru_sim_now(d->node->job->sim);
}

/* Around an answer to elastic training. */
static ru_effects *enter(const rui_simjob_device *d)
{
    return ru_node_enter(d->node->node, now_of(d));
}

static void leave(const rui_simjob_device *d)
{
    ru_node_leave(d->node->node, now_of(d));
}

static const char *phase_name(rui_simjob_phase p)
{
    static const char *const names[] = {"nothing runs",    "it builds",  "it computes",
                                        "it has computed", "it updates", "it aborts"};
    return names[p];
}

static bool legal(const rui_simjob_device *d, bool yes, const char *call)
{
    if (d->node->process.gone) {
        rui_simjob_fail(d->node->job, d->node, "device call '%s' after the process ended", call);
        return false;
    }
    if (!yes) {
        rui_simjob_fail(d->node->job, d->node, "device call '%s' while %s", call,
                        phase_name(d->phase));
    }
    return yes;
}

/* The gradients are the device's again; what they were means nothing any more. */
static void take_gradients(rui_simjob_device *d, const char *call)
{
    const rui_simjob *j = d->node->job;
    if (d->grad == NULL) {
        return;
    }
    int64_t bytes = j->first[j->n_tensors] * (int64_t)sizeof *d->grad;
    if (ru_sim_reads(j->sim, d->grad, bytes)) {
        rui_simjob_fail(d->node->job, d->node,
                        "device call '%s' while the link still reads gradients", call);
    }
    memset(d->grad, 0x55, (size_t)bytes);
}

/* -- build ------------------------------------------------------------------------------------- */

static void built(void *self, uint64_t arg)
{
    (void)arg;
    rui_simjob_device *d = self;
    d->phase = RUI_SIMJOB_IDLE;
    d->built = true;
    ru_elastic_built(d->node->elastic, RU_OK, 1, now_of(d), enter(d));
    leave(d);
}

static void dev_build(void *self, const ru_share *share, bool plain)
{
    (void)plain;
    rui_simjob_device *d = self;
    if (!legal(d, d->phase == RUI_SIMJOB_IDLE, "build")) {
        return;
    }
    take_gradients(d, "build");
    d->phase = RUI_SIMJOB_BUILD;
    d->share = *share;
    d->built = false;
    ru_sim_dev_work(d->dev, BUILD_NS, built, d, 0);
}

/* -- step -------------------------------------------------------------------------------------- */

bool rui_simjob_device_full(const rui_simjob_device *d)
{
    const rui_simjob *j = d->node->job;
    int64_t n = j->opt->counted ? j->n_tensors : j->first[j->n_tensors];
    return memchr(d->param_ok, 0, (size_t)n) == NULL && memchr(d->slot_ok, 0, (size_t)n) == NULL;
}

/* Two steps are under way. */
static bool is_ahead(const rui_simjob_device *d)
{
    return d->older >= 0;
}

static bool told_all(const rui_simjob_device *d)
{
    const rui_simjob *j = d->node->job;
    for (uint32_t k = 0; k < j->n_tensors; k++) {
        if (d->told_bytes[k] != j->tensor_bytes[k]) {
            return false;
        }
    }
    return true;
}

/* Gradients and sums are those of step `step` from now on. */
static void sums_begin(rui_simjob_device *d, int64_t step, const char *call)
{
    const rui_simjob *j = d->node->job;
    take_gradients(d, call);
    memset(d->told_bytes, 0, j->n_tensors * sizeof *d->told_bytes);
    d->sum_step = step;
}

static void gradients(rui_simjob_device *d, uint32_t tensor)
{
    const rui_simjob *j = d->node->job;
    int64_t from = d->share.at;
    for (int64_t i = j->first[tensor]; i < j->first[tensor + 1]; i++) {
        d->grad[i] = rui_simjob_gradient(from, from + d->share.n, i, d->param[i]);
    }
}

/* -- what it computes -------------------------------------------------------------------------- */

static void go_on(rui_simjob_device *d);
static void updated(void *self, uint64_t arg);

static ru_script_play *play_of(rui_simjob_device *d, int64_t step)
{
    return &d->play[step % 2];
}

/* The newest step is computed. */
static void computed(rui_simjob_device *d)
{
    rui_simjob *j = d->node->job;
    d->phase = RUI_SIMJOB_COMPUTED;
    d->computed_ns[d->step % 2] = now_of(d).ns;
    int64_t took_ns = now_of(d).ns - d->begun_ns[d->step % 2] - d->waited_ns;
    j->computed_ns += took_ns;
    j->computed_n++;
    if (d->program != NULL) {
        rui_simjob_program_look(d->program);
        return;
    }
    ru_elastic_computed(d->node->elastic, d->step, RU_OK, took_ns, now_of(d), enter(d));
    leave(d);
}

/* Gradients up to n_ready of the play are; the last ends the step. */
static void advanced(void *self, uint64_t arg)
{
    (void)arg;
    rui_simjob_device *d = self;
    rui_simjob *j = d->node->job;
    const ru_script_play *p = play_of(d, d->step);
    if (p->n_ready > 0 && d->sum_step != d->step) {
        sums_begin(d, d->step, "gradients of the next step");
    }
    uint64_t seq = d->seq;
    while (d->readied < p->n_ready && d->phase == RUI_SIMJOB_STEP && d->seq == seq) {
        uint32_t k = d->readied++;
        ru_span span = {.size_bytes = j->tensor_bytes[k]};
        if (!j->opt->counted) {
            gradients(d, k);
            span.data = &d->grad[j->first[k]];
        }
        if (d->program != NULL) {
            rui_simjob_program_ready(d->program, k);
            continue;
        }
        ru_elastic_ready(d->node->elastic, d->step, k, &span, now_of(d), enter(d));
        leave(d);
    }
    if (d->seq == seq && d->phase == RUI_SIMJOB_STEP && d->readied == j->n_tensors) {
        computed(d);
    }
    go_on(d);
}

static void some_updated(void *self, uint64_t arg)
{
    (void)arg;
    go_on(self);
}

/* The forward pass goes on to the next parameter; false: it waits for its sums. */
static bool has_parameters(rui_simjob_device *d)
{
    const rui_simjob *j = d->node->job;
    ru_script_play *p = play_of(d, d->step);
    uint32_t k;
    while (ru_script_needs(p, &k)) {
        if (is_ahead(d) && d->told_bytes[k] != j->tensor_bytes[k]) {
            d->waits_ns = d->waits_ns > 0 ? d->waits_ns : now_of(d).ns;
            return false;
        }
        ru_script_has(p);
    }
    d->waited_ns += d->waits_ns > 0 ? now_of(d).ns - d->waits_ns : 0;
    d->waits_ns = 0;
    return true;
}

/* The device has one queue: sums that are there while it waits for others, or for a step ahead, are
 * applied first; then it computes. */
static void go_on(rui_simjob_device *d)
{
    if (d->node->process.gone || ru_sim_dev_busy(d->dev)) {
        return;
    }
    bool early = d->phase == RUI_SIMJOB_COMPUTED || (d->phase == RUI_SIMJOB_STEP && is_ahead(d));
    int64_t ns = early ? ru_script_update_early(play_of(d, is_ahead(d) ? d->older : d->step)) : 0;
    if (ns > 0) {
        ru_sim_dev_work(d->dev, ns, some_updated, d, 0);
    } else if (d->phase == RUI_SIMJOB_STEP && !d->hungry && has_parameters(d)) {
        ru_sim_dev_work(d->dev, ru_script_compute(play_of(d, d->step)), advanced, d, 0);
    } else if (d->phase == RUI_SIMJOB_UPDATE) {
        ru_sim_dev_work(d->dev, ru_script_update(play_of(d, d->step)), updated, d, 0);
    }
}

/* -- a step ------------------------------------------------------------------------------------ */

/* The samples of a step are there; it may have been given up meanwhile. */
static void fed(void *self, uint64_t seq)
{
    rui_simjob_device *d = self;
    if (d->phase == RUI_SIMJOB_STEP && d->seq == seq && !d->node->process.gone) {
        d->hungry = false;
        d->begun_ns[d->step % 2] = now_of(d).ns;
        go_on(d);
    }
}

/* Is it the step that follows, on the parameters that it follows, and are its samples those that
 * follow? */
static bool step_is_next(rui_simjob_device *d, int64_t step, const ru_share *share, bool ahead)
{
    rui_simjob *j = d->node->job;
    const rui_simjob_oracle *o = &j->oracle;
    int64_t first = share->at - share->first, before = ahead ? 1 : 0;
    if (share->n != d->share.n || share->batch != d->share.batch) {
        rui_simjob_fail(j, d->node, "a step of %lld samples, built for %lld", (long long)share->n,
                        (long long)d->share.n);
    } else if (share->n > 0 && !rui_simjob_device_full(d)) {
        rui_simjob_fail(j, d->node, "a share of step %lld without all parameters", (long long)step);
    } else if (ahead && step != d->step + 1) {
        rui_simjob_fail(j, d->node, "step %lld begins behind step %lld", (long long)step,
                        (long long)d->step);
    } else if (share->n > 0 && !j->opt->counted && step - before != d->steps) {
        rui_simjob_fail(j, d->node, "step %lld on the parameters of step %lld", (long long)step,
                        (long long)d->steps);
    } else if (!j->opt->counted && o->step == step - before &&
               first - before * share->batch != o->position) {
        rui_simjob_fail(j, d->node, "step %lld begins at sample %lld, those before end at %lld",
                        (long long)step, (long long)first,
                        (long long)(o->position + before * share->batch));
    } else {
        return true;
    }
    return false;
}

static void dev_step(void *self, int64_t step, const ru_share *share)
{
    rui_simjob_device *d = self;
    rui_simjob *j = d->node->job;
    bool ahead =
        d->phase == RUI_SIMJOB_COMPUTED && j->opt->pace.ahead && !d->keeping && !is_ahead(d);
    if (!legal(d, (ahead || d->phase == RUI_SIMJOB_IDLE) && d->built, "step") ||
        !step_is_next(d, step, share, ahead)) {
        return;
    }
    d->older = ahead ? d->step : -1;
    j->result->seen[RU_SIM_SEEN_AHEAD] += ahead ? 1 : 0;
    if (!ahead) {
        sums_begin(d, step, "step");
    }
    d->phase = RUI_SIMJOB_STEP;
    d->step = step;
    d->share = *share;
    d->readied = 0;
    d->waits_ns = d->waited_ns = 0;
    d->begun_ns[step % 2] = now_of(d).ns;
    d->seq++;
    double factor = 1 + (j->opt->pace.noise > 0 ? j->opt->pace.noise * ru_rng_normal(&j->rng) : 0);
    ru_script_begin(play_of(d, step), j->script, share->n, factor > 0.2 ? factor : 0.2, ahead);
    d->hungry = j->opt->input != NULL && share->n > 0;
    if (d->hungry) {
        j->opt->input->step(j->opt->input->self, d->node->index, fed, d, d->seq);
    }
    go_on(d);
}

static uint32_t dev_depth(void *self, const char **why)
{
    const rui_simjob_device *d = self;
    const rui_simjob *j = d->node->job;
    *why =
        j->opt->pace.ahead ? "it updates when all sums are there" : "the simulated job asks for it";
    return j->opt->pace.ahead && j->script->early ? 2 : 1;
}

/* One step of so many ends with something that needs its update; where they differ, each process
 * has steps of its own. */
static const char *dev_barrier(void *self, int64_t step)
{
    const rui_simjob_device *d = self;
    const ru_sim_job *o = d->node->job->opt;
    int64_t own = o->pace.barriers_differ ? d->node->index : 0;
    return o->pace.barriers > 0 && (step + own) % o->pace.barriers == 0 ? "a checkpoint" : NULL;
}

/* -- update, and back -------------------------------------------------------------------------- */

/* Element i of the open update; what it was is kept until the update counts. */
static void apply(rui_simjob_device *d, int64_t i)
{
    d->undo_param[i] = d->param[i];
    d->undo_slot[i] = d->slot[i];
    d->applied[i] = 1;
    rui_simjob_update(&d->param[i], &d->slot[i], d->grad[i]);
}

static void undo(rui_simjob_device *d)
{
    const rui_simjob *j = d->node->job;
    for (int64_t i = 0; !j->opt->counted && i < j->first[j->n_tensors]; i++) {
        if (d->applied[i]) {
            d->param[i] = d->undo_param[i];
            d->slot[i] = d->undo_slot[i];
            d->applied[i] = 0;
        }
    }
}

static void aborted(void *self, uint64_t arg)
{
    (void)arg;
    rui_simjob_device *d = self;
    d->phase = RUI_SIMJOB_IDLE;
    d->undoes = false;
    undo(d);
    ru_elastic_aborted(d->node->elastic, now_of(d), enter(d));
    leave(d);
}

static void dev_abort(void *self)
{
    rui_simjob_device *d = self;
    bool going = d->phase == RUI_SIMJOB_STEP || d->phase == RUI_SIMJOB_COMPUTED;
    if (!legal(d, going && !d->keeping, "abort")) {
        return;
    }
    d->phase = RUI_SIMJOB_ABORT;
    d->undoes = is_ahead(d);
    d->older = -1;
    d->seq++;
    ru_sim_dev_cancel(d->dev);
    ru_sim_dev_work(d->dev, ABORT_NS, aborted, d, 0);
}

/* Is the sum of element i that of one process? Says what is not. */
static bool sum_is_right(rui_simjob_device *d, int64_t i)
{
    rui_simjob *j = d->node->job;
    const float *sum = rui_simjob_oracle_sums(j, d->share.batch);
    if (d->grad[i] != sum[i]) {
        rui_simjob_fail(j, d->node,
                        "the sum of element %lld in step %lld is %g, one process has %g",
                        (long long)i, (long long)d->sum_step, (double)d->grad[i], (double)sum[i]);
        return false;
    }
    return true;
}

/* The device updates with it already: it must be the sum, said once, to one that has everything,
 * when the update of the step before counts. */
static void dev_summed(void *self, int64_t step, uint32_t k, int64_t offset, int64_t size)
{
    rui_simjob_device *d = self;
    rui_simjob *j = d->node->job;
    bool going = d->phase == RUI_SIMJOB_STEP || d->phase == RUI_SIMJOB_COMPUTED;
    bool open = step == d->sum_step && step == (is_ahead(d) ? d->older : d->step) && !d->keeping;
    if (!legal(d, going && open && rui_simjob_device_full(d), "summed")) {
        return;
    }
    d->told_bytes[k] += size;
    for (int64_t i = j->first[k] + offset / 4;
         !j->opt->counted && i < j->first[k] + (offset + size) / 4; i++) {
        if (i >= j->first[k + 1] || d->applied[i] != 0) {
            rui_simjob_fail(j, d->node, "the sum of element %lld is said to be there twice",
                            (long long)i);
            return;
        }
        if (j->oracle.step == step && !sum_is_right(d, i)) {
            return;
        }
        apply(d, i);
    }
    ru_script_summed(play_of(d, step), size);
    go_on(d);
}

static void check_sums(rui_simjob_device *d, int64_t step)
{
    rui_simjob *j = d->node->job;
    const rui_simjob_oracle *o = &j->oracle;
    if (j->opt->counted || o->step != step || d->sum_step != step) {
        return; /* somebody has updated already: the parameters will be compared */
    }
    for (int64_t i = 0; i < j->first[j->n_tensors]; i++) {
        if (!sum_is_right(d, i)) {
            return;
        }
    }
}

static void check_state(rui_simjob_device *d)
{
    rui_simjob *j = d->node->job;
    const rui_simjob_oracle *o = &j->oracle;
    rui_simjob_oracle_to(j, d->steps, d->share.batch);
    if (o->step != d->steps) {
        return; /* a process that nobody counts on any more; it cannot be in the view */
    }
    for (int64_t i = 0; i < j->first[j->n_tensors]; i++) {
        bool wrong = (d->param_ok[i] && d->param[i] != o->param[i]) ||
                     (d->slot_ok[i] && d->slot[i] != o->slot[i]);
        if (wrong) {
            rui_simjob_fail(j, d->node,
                            "after step %lld element %lld is %g with slot %g, one process has %g "
                            "with slot %g",
                            (long long)d->steps - 1, (long long)i, (double)d->param[i],
                            (double)d->slot[i], (double)o->param[i], (double)o->slot[i]);
            return;
        }
    }
}

/* The update of step `step` counts: what was not applied yet is, nothing can be taken back. */
static void counts(rui_simjob_device *d, int64_t step)
{
    rui_simjob *j = d->node->job;
    for (int64_t i = 0; !j->opt->counted && i < j->first[j->n_tensors]; i++) {
        if (!d->applied[i]) {
            rui_simjob_update(&d->param[i], &d->slot[i], d->grad[i]);
        }
        d->applied[i] = 0;
        bool whole = d->param_ok[i] && d->slot_ok[i]; /* each needs the other */
        d->param_ok[i] = d->slot_ok[i] = whole;
    }
    d->steps = step + 1;
    ru_rec_span(d->node->recorder, d->node->names.step, d->begun_ns[step % 2], now_of(d).ns,
                d->steps);
    if (!j->opt->counted) {
        check_state(d);
    }
}

static void updated(void *self, uint64_t arg)
{
    (void)arg;
    rui_simjob_device *d = self;
    d->phase = RUI_SIMJOB_IDLE;
    counts(d, d->step);
    if (d->program != NULL) {
        rui_simjob_program_updated(d->program);
        return;
    }
    ru_elastic_updated(d->node->elastic, d->step, RU_OK, now_of(d), enter(d));
    leave(d);
    go_on(d);
}

/* The same while the next step goes on. */
static void kept(void *self, uint64_t step)
{
    rui_simjob_device *d = self;
    d->keeping = false;
    d->older = -1;
    counts(d, (int64_t)step);
    ru_elastic_updated(d->node->elastic, (int64_t)step, RU_OK, now_of(d), enter(d));
    leave(d);
    go_on(d);
}

static void dev_update(void *self, int64_t step)
{
    rui_simjob_device *d = self;
    bool going = d->phase == RUI_SIMJOB_STEP || d->phase == RUI_SIMJOB_COMPUTED;
    bool ahead = is_ahead(d);
    if (!legal(d,
               (ahead ? going && step == d->older && !d->keeping
                      : d->phase == RUI_SIMJOB_COMPUTED && step == d->step),
               "update")) {
        return;
    }
    if (d->placing > 0) {
        rui_simjob_fail(d->node->job, d->node, "an update while state of step %lld is missing",
                        (long long)step);
        return;
    }
    if (ahead && d->sum_step == step && !told_all(d)) {
        rui_simjob_fail(d->node->job, d->node, "step %lld counts before all its sums were told",
                        (long long)step);
        return;
    }
    check_sums(d, step);
    ru_rec_wait(d->node->recorder, d->node->names.sums, d->computed_ns[step % 2], now_of(d).ns,
                d->node->names.sums);
    if (ahead) {
        d->keeping = true;
        ru_sim_at_node(d->node->job->sim, d->node->process.node, ru_time_after(now_of(d), KEEP_NS),
                       kept, d, (uint64_t)step);
        return;
    }
    d->phase = RUI_SIMJOB_UPDATE;
    go_on(d);
}

/* -- state ------------------------------------------------------------------------------------- */

static rui_simjob_copy *copy_new(rui_simjob_device *d, uint32_t k, int64_t offset, int64_t size,
                                 uint64_t *cookie)
{
    const rui_simjob *j = d->node->job;
    uint32_t at = 0;
    while (at < RUI_SIMJOB_COPIES && d->copies[at].used) {
        at++;
    }
    uint32_t tensor = k % j->n_tensors;
    if (at == RUI_SIMJOB_COPIES || k >= 2 * j->n_tensors || offset < 0 || size < 4 ||
        offset % 4 != 0 || size % 4 != 0 || offset + size > j->tensor_bytes[tensor]) {
        rui_simjob_fail(d->node->job, d->node,
                        "state %u bytes %lld + %lld: outside, or too many at once", k,
                        (long long)offset, (long long)size);
        return NULL;
    }
    rui_simjob_copy *c = &d->copies[at];
    *c = (rui_simjob_copy){.used = true, .tensor = k, .first = offset / 4, .n = size / 4};
    if (!j->opt->counted) {
        c->data = malloc((size_t)size);
        RU_CHECK(c->data != NULL);
    }
    *cookie = at;
    return c;
}

/* State tensors: all parameters, then all slots. */
static float *state_at(rui_simjob_device *d, const rui_simjob_copy *c)
{
    const rui_simjob *j = d->node->job;
    float *all = c->tensor < j->n_tensors ? d->param : d->slot;
    return &all[j->first[c->tensor % j->n_tensors] + c->first];
}

static ru_status dev_state_copy(void *self, uint32_t k, int64_t offset, int64_t size, ru_span *span,
                                uint64_t *cookie)
{
    rui_simjob_device *d = self;
    bool still = d->phase == RUI_SIMJOB_IDLE || d->phase == RUI_SIMJOB_STEP ||
                 d->phase == RUI_SIMJOB_COMPUTED;
    if (!legal(d, still, "state_copy")) {
        return RU_E_BUG;
    }
    int64_t all = d->node->job->first[d->node->job->n_tensors];
    if (d->applied != NULL && memchr(d->applied, 1, (size_t)all) != NULL) {
        rui_simjob_fail(d->node->job, d->node, "state is copied while an update is open");
        return RU_E_BUG;
    }
    if (!rui_simjob_device_full(d)) {
        rui_simjob_fail(d->node->job, d->node, "state is copied from a process without all of it");
        return RU_E_BUG;
    }
    rui_simjob_copy *c = copy_new(d, k, offset, size, cookie);
    if (c == NULL) {
        return RU_E_BUG;
    }
    if (c->data != NULL) {
        memcpy(c->data, state_at(d, c), (size_t)size);
    }
    *span = (ru_span){c->data, size};
    return RU_OK;
}

static void copy_free(rui_simjob_device *d, uint64_t cookie, bool place, const char *call)
{
    if (cookie >= RUI_SIMJOB_COPIES || !d->copies[cookie].used ||
        d->copies[cookie].place != place) {
        rui_simjob_fail(d->node->job, d->node, "device call '%s' of what is not out", call);
        return;
    }
    rui_simjob_copy *c = &d->copies[cookie];
    d->placing -= place ? 1 : 0;
    int64_t bytes = c->n * (int64_t)sizeof *c->data;
    if (!place && !d->node->process.gone && c->data != NULL &&
        ru_sim_reads(d->node->job->sim, c->data, bytes)) {
        rui_simjob_fail(d->node->job, d->node, "state is released that the link still reads");
    }
    free(c->data);
    *c = (rui_simjob_copy){0};
}

static void dev_state_release(void *self, uint64_t cookie)
{
    copy_free(self, cookie, false, "state_release");
}

static ru_status dev_state_place(void *self, uint32_t k, int64_t offset, int64_t size,
                                 ru_span *span, uint64_t *cookie)
{
    rui_simjob_device *d = self;
    rui_simjob_copy *c = copy_new(d, k, offset, size, cookie);
    if (c == NULL) {
        return RU_E_BUG;
    }
    c->place = true;
    d->placing++;
    *span = (ru_span){c->data, size};
    return RU_OK;
}

static void dev_state_placed(void *self, uint64_t cookie, bool arrived)
{
    rui_simjob_device *d = self;
    rui_simjob *j = d->node->job;
    if (arrived && cookie < RUI_SIMJOB_COPIES && d->copies[cookie].used) {
        const rui_simjob_copy *c = &d->copies[cookie];
        uint8_t *ok = c->tensor < j->n_tensors ? d->param_ok : d->slot_ok;
        if (c->data == NULL) {
            ok[c->tensor % j->n_tensors] = 1;
        } else {
            memcpy(state_at(d, c), c->data, (size_t)c->n * sizeof(float));
            memset(&ok[j->first[c->tensor % j->n_tensors] + c->first], 1, (size_t)c->n);
        }
    }
    copy_free(d, cookie, true, "state_placed");
}

/* -- memory of the other processes of a host --------------------------------------------------- */

static const char *dev_local_handle(void *self)
{
    return ((rui_simjob_device *)self)->handle;
}

static void local_opened(void *self, uint64_t seq)
{
    rui_simjob_device *d = self;
    if (seq == d->near_seq) {
        ru_elastic_local_opened(d->node->elastic, RU_OK, now_of(d), enter(d));
        leave(d);
    }
}

/* Each takes its own time to map what the others offer. */
static void dev_local_open(void *self, const char *const *handles, uint32_t n, uint32_t rank,
                           uint32_t epoch)
{
    enum { OPEN_MAX_NS = 3000000 };
    rui_simjob_device *d = self;
    rui_simjob *j = d->node->job;
    (void)rank;
    (void)epoch;
    RU_CHECK(n <= RU_ARRAY_LEN(d->near));
    for (uint32_t k = 0; k < n; k++) {
        d->near[k] = &j->nodes[strtoul(handles[k], NULL, 10)];
    }
    ru_time at = ru_time_after(now_of(d), 1 + ru_rng_below(&j->rng, OPEN_MAX_NS));
    ru_sim_at_node(j->sim, d->node->process.node, at, local_opened, d, ++d->near_seq);
}

static ru_span dev_local_memory(void *self, uint32_t rank)
{
    const rui_simjob_device *d = self;
    const rui_simjob *j = d->node->job;
    return (ru_span){d->near[rank]->device.grad, j->first[j->n_tensors] * (int64_t)sizeof *d->grad};
}

static void dev_local_close(void *self)
{
    ((rui_simjob_device *)self)->near_seq++;
}

#define OPS_OF_STATE                                                  \
    .state_copy = dev_state_copy, .state_release = dev_state_release, \
    .state_place = dev_state_place, .state_placed = dev_state_placed

#define OPS_OF_ALL                                                                  \
    .build = dev_build, .step = dev_step, .abort = dev_abort, .update = dev_update, \
    .depth = dev_depth, .barrier = dev_barrier, .summed = dev_summed, OPS_OF_STATE

static bool dev_reads(void *self, ru_elastic_reads *into)
{
    const rui_simjob_device *d = self;
    const ru_sim_input *input = d->node->job->opt->input;
    input->reads(input->self, d->node->index, into);
    return true;
}

static void dev_read_share(void *self, int64_t outstanding_bytes, uint64_t plan)
{
    (void)plan;
    const rui_simjob_device *d = self;
    const ru_sim_input *input = d->node->job->opt->input;
    input->share(input->self, d->node->index, outstanding_bytes);
}

const ru_elastic_device_ops rui_simjob_device_plain = {.name = "simulated", OPS_OF_ALL};

const ru_elastic_device_ops *rui_simjob_device_ops(const ru_sim_job *job)
{
    static const ru_elastic_device_ops near_ops = {
        .name = "simulated, several to a host",
        OPS_OF_ALL,
        .local_handle = dev_local_handle,
        .local_open = dev_local_open,
        .local_memory = dev_local_memory,
        .local_close = dev_local_close,
    };
    static const ru_elastic_device_ops reading = {
        .name = "simulated, reads samples",
        OPS_OF_ALL,
        .reads = dev_reads,
        .read_share = dev_read_share,
    };
    static const ru_elastic_device_ops program = {
        .name = "simulated program",
        .build = rui_simjob_program_build,
        .step = rui_simjob_program_step,
        .abort = rui_simjob_program_abort,
        .update = rui_simjob_program_update,
        OPS_OF_STATE,
    };
    RU_CHECK(!job->near || job->input == NULL);
    return job->pace.program    ? &program
           : job->near          ? &near_ops
           : job->input != NULL ? &reading
                                : &rui_simjob_device_plain;
}

ru_status rui_simjob_device_open(rui_simjob_node *n, bool holds_state, ru_err *err)
{
    rui_simjob *j = n->job;
    rui_simjob_device *d = &n->device;
    int64_t all = j->opt->counted ? j->n_tensors : j->first[j->n_tensors];
    double slowest = j->opt->slowest > 0 ? j->opt->slowest : 1;
    *d = (rui_simjob_device){.node = n, .speed = 1, .older = -1};
    (void)snprintf(d->handle, sizeof d->handle, "%u", n->index);
    d->speed = slowest < 1 ? ru_rng_uniform(&j->rng, slowest, 1) : 1;
    if (j->opt->speeds != NULL && n->index < j->opt->founders) {
        d->speed = j->opt->speeds[n->index];
    }
    d->dev = ru_sim_dev_add(j->sim, n->process.node, d->speed);
    d->param_ok = RU_NEW(&n->process.arena, uint8_t, all);
    d->slot_ok = RU_NEW(&n->process.arena, uint8_t, all);
    d->told_bytes = RU_NEW(&n->process.arena, int64_t, j->n_tensors);
    d->copies = RU_NEW(&n->process.arena, rui_simjob_copy, RUI_SIMJOB_COPIES);
    bool ok = d->dev != NULL && d->param_ok != NULL && d->slot_ok != NULL &&
              d->told_bytes != NULL && d->copies != NULL;
    if (ok && !j->opt->counted) {
        d->param = RU_NEW(&n->process.arena, float, all);
        d->slot = RU_NEW(&n->process.arena, float, all);
        d->grad = RU_NEW(&n->process.arena, float, all);
        d->undo_param = RU_NEW(&n->process.arena, float, all);
        d->undo_slot = RU_NEW(&n->process.arena, float, all);
        d->applied = RU_NEW(&n->process.arena, uint8_t, all);
        ok = d->param != NULL && d->slot != NULL && d->grad != NULL && d->undo_param != NULL &&
             d->undo_slot != NULL && d->applied != NULL;
    }
    if (!ok) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a simulated device");
    }
    if (holds_state) {
        memset(d->param_ok, 1, (size_t)all);
        memset(d->slot_ok, 1, (size_t)all);
        for (int64_t i = 0; !j->opt->counted && i < all; i++) {
            d->param[i] = rui_simjob_first(i);
        }
    }
    return j->opt->pace.program ? rui_simjob_program_open(d, err) : RU_OK;
}
