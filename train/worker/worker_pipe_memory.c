/* Memory of a worker: what its executables plan; and less of it, when forward parts run again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "env/process/memory.h"
#include "run/ckpt_held.h"
#include "train/driver/eval.h"
#include "train/pipe/meter.h"
#include "train/pipe/units.h"
#include "train/worker/worker_pipe_impl.h"

/* -- train.recompute --------------------------------------------------------------------------- */

/* The k-th input of the forward part; 0: none. Samples, labels, what other stages send. */
static ru_value_id input_of(const rui_pipe_worker *w, uint32_t k)
{
    uint32_t stage = w->parts[0].stage;
    const ru_step_graph *s = &w->stages.at[stage].step;
    const ru_stage_edge *e = &w->stages.edges[k >= 2 ? k - 2 : 0];
    if (k < 2) {
        return k == 0 ? s->x[0] : s->y[0];
    }
    return e->to == stage && !e->held ? e->in : (ru_value_id){0};
}

static int64_t input_bytes(const rui_pipe_worker *w, ru_value_id v)
{
    const ru_graph *g = &w->stages.at[w->parts[0].stage].step.graph;
    return v.v != 0 ? (ru_type_bytes(&g->values[v.v].type) + 63) / 64 * 64 : 0;
}

static int64_t slot_bytes(const rui_pipe_worker *w)
{
    int64_t sum = 0;
    for (uint32_t k = 0; k < w->stages.n_edges + 2; k++) {
        sum += input_bytes(w, input_of(w, k));
    }
    return sum;
}

static int64_t kept_bytes(const rui_pipe_worker *w)
{
    return w->course.kept != NULL ? w->n_slots * slot_bytes(w) : 0;
}

ru_status rui_redo_open(rui_pipe_worker *w, ru_err *err)
{
    rui_pipe_course *c = &w->course;
    int64_t bytes = slot_bytes(w);
    uint8_t *at = ru_arena_alloc(w->arena, w->n_slots * bytes, 64);
    c->kept = RU_NEW(w->arena, uint8_t *, w->n_slots);
    if (at == NULL || c->kept == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for inputs of %u micro-batches", w->n_slots);
    }
    for (uint32_t k = 0; k < w->n_slots; k++) {
        c->kept[k] = at + k * bytes;
    }
    w->n_exes = c->on ? w->n_exes : 1;
    return RU_OK;
}

/* The executable of a slot: the only one; where slots have weights of their own, its own one. */
static ru_exe *exe_of(const rui_pipe_worker *w, uint32_t slot)
{
    return w->parts[0].slot[w->course.on ? slot : 0];
}

/* Of the executable, from or into the memory of a slot; those for several versions share it. */
static void move(rui_pipe_worker *w, uint32_t slot, bool back)
{
    uint8_t *at = w->course.kept[slot % w->n_slots];
    for (uint32_t k = 0; k < w->stages.n_edges + 2; k++) {
        ru_value_id v = input_of(w, k);
        if (v.v != 0) {
            const ru_graph *g = &w->stages.at[w->parts[0].stage].step.graph;
            void *in = ru_exe_input(exe_of(w, slot), v);
            size_t n = (size_t)ru_type_bytes(&g->values[v.v].type);
            memcpy(back ? in : at, back ? at : in, n);
            at += input_bytes(w, v);
        }
    }
}

/* From now on the activations are those of this slot. Slots with weights of their own have
 * executables of their own, of which the others give their memory back. */
static void begin(rui_pipe_worker *w, uint32_t slot)
{
    rui_pipe_course *c = &w->course;
    if (c->on && c->fresh != slot) {
        ru_exe_rest(exe_of(w, c->fresh));
    }
    c->fresh = slot;
}

void rui_redo_keep(rui_pipe_worker *w, uint32_t slot)
{
    if (w->course.kept != NULL) {
        move(w, slot, false);
        begin(w, slot);
    }
}

ru_status rui_redo(rui_pipe_worker *w, uint32_t slot, const ru_run_args *args, ru_err *err)
{
    rui_pipe_course *c = &w->course;
    if (c->kept == NULL || c->fresh == slot) {
        return RU_OK;
    }
    begin(w, slot);
    move(w, slot, true);
    c->redo = true;
    ru_status st = ru_exe_phase(exe_of(w, slot), RU_PHASE_FORWARD, args, err);
    c->redo = false;
    return st;
}

/* -- what is planned --------------------------------------------------------------------------- */

ru_status rui_pipe_join_parts(rui_pipe_worker *w, ru_err *err)
{
    const rui_pipe_course *c = &w->course;
    uint32_t n = 0, *part = RU_NEW(w->arena, uint32_t, w->n_parts);
    ru_exe **exes = RU_NEW(w->arena, ru_exe *, w->n_parts);
    ru_exe_turn *turns = RU_NEW(w->arena, ru_exe_turn, 3 * (int64_t)w->n_parts);
    ru_exe_hand *hands;
    uint32_t n_hands;
    if (part == NULL || exes == NULL || turns == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the parts of a device");
    }
    for (uint32_t k = 0; k < w->n_parts; k++) {
        exes[k] = w->parts[k].slot[0];
        part[k] = w->parts[k].stage;
    }
    for (uint32_t k = 0; k < c->n; k++) {
        if (c->order[k].micro == 0) {
            turns[n++] = (ru_exe_turn){c->order[k].part,
                                       c->order[k].back ? RU_PHASE_BACKWARD : RU_PHASE_FORWARD};
        }
    }
    for (uint32_t k = 0; k < w->n_parts && w->micro == 1; k++) {
        turns[n++] = (ru_exe_turn){k, RU_PHASE_UPDATE};
    }
    RU_TRY(ru_placed_hands(&w->stages, part, w->n_parts, w->arena, &hands, &n_hands, err));
    const ru_exe_order order = {turns, n, hands, n_hands};
    return ru_exe_together_open(exes, w->n_parts, &order, &w->course.together, err);
}

/* Memory of the executables of the part under way. Of `home` apart from slots only sums of
 * gradients are written, beside its state. */
static int64_t part_bytes(const rui_pipe_worker *w)
{
    const ru_exe *home = w->at->home;
    const ru_exe_grad *grads;
    ru_exe_stats s;
    ru_exe_stats_get(home, &s);
    int64_t sum = s.state_bytes + s.const_bytes;
    for (uint32_t k = ru_exe_grads(home, &grads); k-- > 0 && w->at->slot[0] != home;) {
        sum += grads[k].size_bytes;
    }
    for (uint32_t k = 0; k < w->course.versions; k++) {
        ru_exe_stats_get(w->at->ring[k], &s);
        sum += w->at->ring[k] != home ? s.state_bytes : 0;
    }
    for (uint32_t k = 0; k < w->n_exes; k++) {
        ru_exe_stats_get(w->at->slot[k], &s);
        bool rests = k > 0 && w->course.kept != NULL; /* while another one runs */
        sum += rests ? 0 : s.arena_bytes + s.scratch_bytes + s.io_bytes;
        sum += w->at->slot[k] != home ? s.state_bytes : 0;
    }
    return sum;
}

/* Of steps beside messages and pieces, which the first evaluation or checkpoint needs; more than
 * the job or the control group allows is refused before the first step. */
static ru_status refuse_more(rui_pipe_worker *w, int64_t all, int64_t largest, const char *part,
                             ru_err *err)
{
    int64_t most = ru_units_memory(w->t.job);
    bool said = most > 0;
    most = said ? most : ru_memory_limit_bytes(w->arena);
    bool fits = most == 0 || all <= most;
    if (fits) {
        rui_sets_fit(w, all + rui_pipe_eval_bytes(w));
    }
    return fits ? RU_OK
                : RU_FAIL(err, RU_E_CONFIG,
                          "%s %u needs %lld bytes, of which %lld are of the part that begins with "
                          "'%s', and %s allows %lld; give some of its layers to another %s, or "
                          "lower train.batch",
                          w->seats.called, w->seats.place[w->seats.own] + 1, (long long)all,
                          (long long)largest, part, said ? "train.memory" : "its control group",
                          (long long)most, w->seats.called);
}

ru_status rui_pipe_check_memory(rui_pipe_worker *w, ru_err *err)
{
    int64_t all = rui_flows_bytes(w, false) + kept_bytes(w), largest = 0;
    all += w->course.together != NULL ? ru_exe_together_bytes(w->course.together) : 0;
    const char *part = "";
    for (w->at = w->parts; w->at < w->parts + w->n_parts; w->at++) {
        int64_t bytes = part_bytes(w);
        bool more = bytes > largest;
        part = !more                   ? part
               : w->seats.placed.n > 0 ? w->seats.placed.name[w->at->stage]
                                       : w->stages.at[w->at->stage].first;
        largest = more ? bytes : largest;
        all += bytes;
    }
    w->at = w->parts;
    w->plan.memory += all;
    return refuse_more(w, all + rui_flows_bytes(w, true), largest, part, err);
}

static int64_t all_states(const rui_pipe_worker *w)
{
    int64_t sum = 0;
    for (uint32_t k = 0; k < w->stages.n; k++) {
        sum += w->state_bytes[k];
    }
    return sum;
}

void rui_pipe_save_where(rui_pipe_worker *w)
{
    int64_t share = ru_units_share(w->t.job, w->seats.n, w->arena);
    int64_t all = w->plan.memory + rui_flows_bytes(w, true) + rui_pipe_eval_bytes(w);
    all += w->sets.off ? 0 : rui_sets_bytes(w);
    if (share > 0 && all + all_states(w) > share) {
        w->plan.on_disk = true;
        ru_ckpt_on_disk(w->t.ckpt);
        ru_log(RU_LOG_INFO, "train", "checkpoint",
               "%s %u has no memory for the copy of the whole state, %lld bytes, from which it "
               "writes checkpoints; the copy stands on the disk of the run",
               w->seats.called, w->seats.place[w->seats.own] + 1, (long long)all_states(w));
    }
}

void rui_pipe_tell_memory(rui_pipe_worker *w)
{
    int64_t weights = 0, packed = 0, saves = rui_flows_bytes(w, true);
    char text[128];
    for (const rui_pipe_part *p = w->parts; p < w->parts + w->n_parts; p++) {
        weights += rui_meter_bytes(&w->stages.at[p->stage].step.graph, RU_ROLE_PARAM);
    }
    saves += w->t.ckpt != NULL && !w->plan.on_disk ? all_states(w) : 0; /* that is written */
    saves += w->t.eval != NULL ? ru_eval_bytes(w->t.eval, &packed) - packed : 0;
    const ru_pipe_shape shape = rui_pipe_shape(w);
    (void)snprintf(text, sizeof text, "%u %lld %lld %lld %u",
                   ru_pipe_versions(&shape, w->at->stage), (long long)weights,
                   (long long)(w->plan.memory + packed), (long long)saves,
                   ru_pipe_late(&shape, w->at->stage));
    ru_recorder_meta(w->t.recorder, "pipe memory", text);
}

void rui_pipe_parts_close(rui_pipe_worker *w)
{
    for (const rui_pipe_part *p = w->parts; p != NULL && p < w->parts + w->n_parts; p++) {
        for (uint32_t k = 0; k < w->n_exes && p->slot != NULL; k++) {
            ru_exe_close(p->slot[k] != p->home ? p->slot[k] : NULL);
        }
        for (uint32_t k = 0; k < w->course.versions && p->ring != NULL; k++) {
            ru_exe_close(p->ring[k] != w->t.exe ? p->ring[k] : NULL); /* the trainer's */
        }
    }
}
