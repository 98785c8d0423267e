/* Saving: copy, then write from a thread. One thread per checkpoint; its result comes back over a
 * ring, so nothing here locks. */
#include "run/ckpt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/ring.h"
#include "base/str.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "env/file/memfile.h"
#include "env/thread.h"
#include "run/ckpt_held.h"
#include "run/ckpt_store.h"
#include "run/copies.h"

typedef struct tensor {
    ru_value_id id;
    ru_array array;    /* data in the snapshot; its name in the file */
    const char *state; /* its name in the graph */
    void *data;
    bool slot;
} tensor;

typedef struct outcome {
    ru_status status;
    ru_ckpt_at at;
    ru_err err;
} outcome;

struct ru_ckpt {
    ru_ckpt_options opt;
    const char *dir;  /* run_dir/checkpoints */
    tensor *tensors;  /* [n] parameters and statistics first, then slots */
    ru_array *arrays; /* [n] the same, as the writer wants them */
    uint32_t n, n_model;
    void *snapshot; /* all tensors' bytes; NULL before the first save */
    int64_t snapshot_bytes;
    bool on_disk;      /* it is a file's */
    ru_copies *copies; /* NULL: none are made */
    ru_ckpt_storage storage;
    ru_arena scratch; /* of the writing thread */
    ru_thread thread;
    bool busy;
    ru_ckpt_at at; /* of the write under way */
    ru_spsc ring;  /* writing thread -> loop */
    outcome slots[1];
    uint16_t name_write;
    ru_status (*read)(void *self, const char *state, void *into, ru_err *err);
    void *read_self; /* of `read`; NULL: states come from an executable */
};

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "the arena of the checkpoints is full");
}

/* -- opening ----------------------------------------------------------------------------------- */

const char *ru_ckpt_name(const ru_graph *g, const ru_value *s, ru_arena *arena, bool *slot)
{
    static const char ema[] = "." RU_EMA_SUFFIX;
    *slot = s->role == RU_ROLE_SLOT;
    if (ru_model_ema(g, s).v != 0) {
        *slot = true;
        return ru_arena_printf(arena, "%s.raw", s->name);
    }
    if (*slot && ru_str_ends(ru_str_c(s->name), ema)) {
        const char *stem = ru_arena_strn(arena, s->name, (int64_t)(strlen(s->name) - strlen(ema)));
        ru_value_id p = stem != NULL ? ru_graph_find(g, stem) : (ru_value_id){0};
        if (p.v != 0 && ru_model_ema(g, &g->values[p.v]).v != 0) {
            *slot = false;
            return stem;
        }
    }
    return ru_arena_str(arena, s->name);
}

static ru_status list_tensors(ru_ckpt *c, ru_arena *arena, ru_err *err)
{
    const ru_graph *g = c->opt.graph;
    c->tensors = RU_NEW(arena, tensor, g->n_values);
    c->arrays = RU_NEW(arena, ru_array, g->n_values);
    if (c->tensors == NULL || c->arrays == NULL) {
        return full(err);
    }
    for (int slots = 0; slots < 2; slots++) {
        for (uint32_t v = 1; v < g->n_values; v++) {
            const ru_value *s = &g->values[v];
            if (s->kind != RU_VALUE_STATE || s->name == NULL) {
                continue;
            }
            bool slot;
            const char *name = ru_ckpt_name(g, s, arena, &slot);
            const char *state = ru_arena_str(arena, s->name);
            if (name == NULL || state == NULL) {
                return full(err);
            }
            if (slot == (slots == 1)) {
                c->tensors[c->n++] = (tensor){.id = {v},
                                              .array = {.name = name, .type = s->type},
                                              .state = state,
                                              .slot = slots == 1};
                c->snapshot_bytes += (ru_type_bytes(&s->type) + 63) / 64 * 64;
            }
        }
        c->n_model = slots == 0 ? c->n : c->n_model;
    }
    return RU_OK;
}

/* A folder with a temporary name is what a killed writer left. */
static ru_status remove_leftovers(ru_ckpt *c, ru_arena *arena, ru_err *err)
{
    char **names;
    uint32_t n;
    RU_TRY(ru_dir_list(c->dir, arena, &names, &n, err));
    for (uint32_t k = 0; k < n; k++) {
        if (ru_str_ends(ru_str_c(names[k]), RU_CKPT_TEMP)) {
            const char *path = ru_path_join(arena, c->dir, names[k]);
            RU_TRY(path != NULL ? ru_ckpt_remove(path, err) : full(err));
        }
    }
    return RU_OK;
}

/* What comes after the checkpoint that the run goes on from was passed over as damaged: under its
 * name it would count among the newest, and good ones would be removed for it. */
static ru_status set_aside(ru_ckpt *c, ru_arena *arena, ru_err *err)
{
    ru_ckpt_entry *list;
    uint32_t n;
    RU_TRY(ru_ckpt_list(c->dir, arena, &list, &n, err));
    for (uint32_t k = 0; k < n && list[k].step > c->opt.from_step; k++) {
        const char *from = ru_path_join(arena, c->dir, list[k].name);
        const char *to = ru_arena_printf(arena, "%s/%s.damaged", c->dir, list[k].name);
        if (from == NULL || to == NULL) {
            return full(err);
        }
        RU_TRY(ru_path_exists(to) ? ru_ckpt_remove(to, err) : RU_OK);
        RU_TRY(ru_path_rename(from, to, err));
    }
    return RU_OK;
}

ru_status ru_ckpt_open(const ru_ckpt_options *opt, ru_arena *arena, ru_ckpt **out, ru_err *err)
{
    ru_ckpt *c = ru_arena_zalloc(arena, (int64_t)sizeof *c, 64);
    if (c == NULL) {
        return full(err);
    }
    c->opt = *opt;
    c->dir = ru_path_join(arena, opt->run_dir, "checkpoints");
    if (c->dir == NULL) {
        return full(err);
    }
    RU_TRY(ru_dir_make(c->dir, err));
    RU_TRY(opt->takes_over ? RU_OK : remove_leftovers(c, arena, err));
    RU_TRY(opt->go_on && !opt->takes_over ? set_aside(c, arena, err) : RU_OK);
    RU_TRY(list_tensors(c, arena, err));
    if (opt->copy_to != NULL && opt->copy_to[0] != '\0') {
        RU_TRY(ru_copies_open(opt->copy_to, opt->keep, &c->copies, err));
    }
    c->storage = (ru_ckpt_storage){.tiers = opt->tiers, .n_tiers = opt->n_tiers};
    ru_arena_init(&c->scratch, 0);
    ru_spsc_init(&c->ring, c->slots, 1, (uint32_t)sizeof(outcome));
    c->name_write = ru_recorder_name(opt->recorder, "write", "ckpt");
    *out = c;
    return RU_OK;
}

void ru_ckpt_close(ru_ckpt *c)
{
    if (c == NULL) {
        return;
    }
    ru_err err;
    ru_status st = ru_ckpt_wait(c, &err);
    if (st != RU_OK) {
        ru_log(RU_LOG_ERROR, "train", "checkpoint_failed", "%s", err.text);
    }
    ru_copies_close(c->copies);
    c->copies = NULL;
    ru_arena_fini(&c->scratch);
    if (c->on_disk) {
        ru_memfile_leave(c->snapshot, c->snapshot_bytes);
    } else {
        free(c->snapshot);
    }
    c->snapshot = NULL;
}

/* -- the copy ---------------------------------------------------------------------------------- */

static ru_status make_snapshot(ru_ckpt *c, ru_err *err)
{
    if (c->snapshot != NULL) {
        return RU_OK;
    }
    void *memory = NULL;
    c->snapshot_bytes = c->snapshot_bytes > 0 ? c->snapshot_bytes : 64;
    RU_TRY(c->on_disk ? ru_memfile_on_disk(c->dir, c->snapshot_bytes, &memory, err) : RU_OK);
    uint8_t *at = c->on_disk ? memory : aligned_alloc(64, (size_t)c->snapshot_bytes);
    if (at == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a checkpoint's copy of the state (%lld bytes)",
                       (long long)c->snapshot_bytes);
    }
    c->snapshot = at;
    for (uint32_t k = 0; k < c->n; k++) {
        c->tensors[k].array.data = c->tensors[k].data = at;
        at += (ru_type_bytes(&c->tensors[k].array.type) + 63) / 64 * 64;
        c->arrays[k] = c->tensors[k].array;
    }
    return RU_OK;
}

static void write_thread(void *arg);

void ru_ckpt_source(ru_ckpt *c,
                    ru_status (*read)(void *self, const char *state, void *into, ru_err *err),
                    void *self)
{
    c->read = read;
    c->read_self = self;
}

void ru_ckpt_on_disk(ru_ckpt *c)
{
    RU_CHECK(c->snapshot == NULL);
    c->on_disk = true;
}

ru_status ru_ckpt_held(ru_ckpt *c, const char *state, void **at, ru_err *err)
{
    *at = NULL;
    RU_TRY(make_snapshot(c, err));
    for (uint32_t k = 0; k < c->n && *at == NULL; k++) {
        *at = strcmp(c->tensors[k].state, state) == 0 ? c->tensors[k].data : NULL;
    }
    return RU_OK;
}

ru_status ru_ckpt_save(ru_ckpt *c, ru_exe *exe, const ru_ckpt_at *at, int64_t *pause_ns,
                       ru_err *err)
{
    RU_TRY(ru_ckpt_wait(c, err));
    ru_time t0 = ru_clock_now();
    RU_TRY(make_snapshot(c, err));
    for (uint32_t k = 0; k < c->n; k++) {
        tensor *t = &c->tensors[k];
        if (c->read != NULL) {
            RU_TRY(c->read(c->read_self, t->state, t->data, err));
            continue;
        }
        const ru_value *v =
            t->id.v < c->opt.graph->n_values ? &c->opt.graph->values[t->id.v] : NULL;
        if (v == NULL || v->name == NULL || strcmp(v->name, t->state) != 0) {
            t->id = ru_graph_find(c->opt.graph, t->state); /* a step of another size */
        }
        RU_TRY(ru_exe_state_read(exe, t->id, t->data, err));
    }
    c->at = *at;
    c->busy = true;
    ru_status st = ru_thread_start(&c->thread, "checkpoint", write_thread, c, err);
    if (st != RU_OK) {
        c->busy = false;
        return st;
    }
    if (pause_ns != NULL) {
        *pause_ns = ru_time_since(ru_clock_now(), t0);
    }
    return RU_OK;
}

/* -- the write (on the thread) ----------------------------------------------------------------- */

/* A state with infinities or NaNs is never saved: it would bury the last good one. */
static ru_status check_finite(const ru_ckpt *c, ru_err *err)
{
    for (uint32_t k = 0; k < c->n; k++) {
        const tensor *t = &c->tensors[k];
        if (t->array.type.dtype != RU_F32) {
            continue;
        }
        const uint32_t *bits = t->data;
        uint32_t most = 0;
        for (int64_t e = 0, n = ru_type_count(&t->array.type); e < n; e++) {
            uint32_t b = bits[e] & 0x7fffffffu;
            most = b > most ? b : most;
        }
        if (most >= 0x7f800000u) {
            return RU_FAIL(
                err, RU_E_USER,
                "'%s' contains values that are not finite after step %lld: training diverged, and "
                "no checkpoint was written; lower the learning rate or set train.clip_norm",
                t->array.name, (long long)c->at.step);
        }
    }
    return RU_OK;
}

static void type_text(ru_text *t, const ru_type *type)
{
    ru_text_putf(t, "{\"dtype\":\"%s\",\"dims\":[", ru_dtype_name(type->dtype));
    for (uint32_t d = 0; d < type->rank; d++) {
        ru_text_putf(t, "%s%lld", d > 0 ? "," : "", (long long)type->dims[d]);
    }
    ru_text_put(t, "]}");
}

static void texts_text(ru_text *t, const char *key, const ru_conf_texts *texts)
{
    ru_text_putf(t, ",\"%s\":[", key);
    for (uint32_t k = 0; k < texts->n; k++) {
        ru_text_put(t, k > 0 ? "," : "");
        ru_text_json(t, ru_str_c(texts->at[k]));
    }
    ru_text_put(t, "]");
}

static void columns_text(ru_text *t, const ru_columns *c)
{
    ru_text_putf(t, "{\"named\":%s,\"width\":%lld,\"label_place\":%lld,\"label\":",
                 c->named ? "true" : "false", (long long)c->width, (long long)c->label_place);
    ru_text_json(t, ru_str_c(c->label != NULL ? c->label : ""));
    ru_text_put(t, ",\"inputs\":[");
    for (uint32_t k = 0; k < c->n; k++) {
        ru_text_put(t, k > 0 ? ",{\"name\":" : "{\"name\":");
        ru_text_json(t, ru_str_c(c->at[k].name));
        ru_text_putf(t, ",\"place\":%lld", (long long)c->at[k].place);
        if (c->at[k].categories.n > 0) {
            texts_text(t, "categories", &c->at[k].categories);
        } else if (c->normalize || c->missing == RU_MISSING_MEAN) {
            ru_text_put(t, ",\"mean\":");
            ru_text_f64(t, c->at[k].mean);
            ru_text_put(t, ",\"std\":");
            ru_text_f64(t, c->at[k].std);
        }
        ru_text_put(t, "}");
    }
    ru_text_put(t, "]");
    texts_text(t, "ignored", &c->ignored);
    ru_text_putf(t, ",\"missing\":%u,\"normalize\":%s}", c->missing,
                 c->normalize ? "true" : "false");
}

void ru_ckpt_state_put(const ru_ckpt_options *o, const ru_ckpt_at *at, ru_text *t)
{
    const ru_model_facts *f = o->facts;
    ru_text_putf(t,
                 "{\"schema\":\"rubato.checkpoint/1\",\"step\":%lld,\"samples\":%lld,\"seed\":%lld,"
                 "\"x\":",
                 (long long)at->step, (long long)at->samples, (long long)o->seed);
    type_text(t, &f->x);
    if (at->done > 0) {
        ru_text_putf(t, ",\"done\":%.17g", at->done);
    }
    ru_text_put(t, ",\"y\":");
    type_text(t, &f->y);
    ru_text_putf(t, ",\"classes\":%lld,\"class_names\":[", (long long)f->classes);
    for (uint32_t k = 0; k < f->n_class_names; k++) {
        ru_text_put(t, k > 0 ? "," : "");
        ru_text_json(t, ru_str_c(f->class_names[k]));
    }
    ru_text_put(t, "]");
    if (f->columns.n > 0) {
        ru_text_put(t, ",\"columns\":");
        columns_text(t, &f->columns);
    }
    ru_text_put(t, ",\"job\":");
    ru_text_json(t, ru_str_c(o->job_yaml));
    ru_text_put(t, "}\n");
}

static ru_status link_best(ru_ckpt *c, ru_err *err)
{
    char name[32];
    (void)snprintf(name, sizeof name, RU_CKPT_NAME, (long long)c->at.step);
    const char *path = ru_path_join(&c->scratch, c->dir, "best");
    RU_TRY(path != NULL ? ru_path_link(name, path, err) : full(err));
    c->opt.best_step = c->at.step;
    return RU_OK;
}

static ru_status write_files(ru_ckpt *c, ru_ckpt_folder *f, ru_err *err)
{
    ru_text state = ru_text_arena(&c->scratch);
    RU_TRY(c->storage.n_tiers > 0 ? ru_ckpt_to_storage(f, &c->storage, c->at.step, err) : RU_OK);
    RU_TRY(ru_ckpt_put_arrays(f, "model.safetensors", c->arrays, c->n_model, err));
    RU_TRY(ru_ckpt_put_arrays(f, "optimizer.safetensors", c->arrays + c->n_model, c->n - c->n_model,
                              err));
    ru_ckpt_state_put(&c->opt, &c->at, &state);
    return state.cut ? full(err) : ru_ckpt_put_text(f, "state.json", state.p, state.n, err);
}

static ru_status write_checkpoint(ru_ckpt *c, ru_err *err)
{
    ru_ckpt_folder f;
    RU_TRY(check_finite(c, err));
    RU_TRY(ru_ckpt_begin(&f, c->opt.run_dir, c->at.step, &c->scratch, err));
    RU_TRY(ru_ckpt_finish(&f, write_files(c, &f, err), err));
    if (c->at.best) {
        RU_TRY(link_best(c, err));
    }
    return ru_ckpt_prune(&f, c->opt.keep, c->opt.best_step, err);
}

static void write_thread(void *arg)
{
    ru_ckpt *c = arg;
    outcome *o = ru_spsc_place(&c->ring);
    RU_CHECK(o != NULL); /* the loop took the last one before it started this thread */
    int64_t t0 = ru_rec_now();
    ru_recorder_thread(c->opt.recorder, "checkpoint");
    ru_arena_mark mark = ru_arena_mark_get(&c->scratch);
    o->at = c->at;
    uint32_t tries = 0;
    do {
        o->status = write_checkpoint(c, &o->err);
    } while (ru_ckpt_again(o->status, !ru_path_exists(c->dir), &tries));
    if (o->status != RU_OK) {
        ru_err_wrap(&o->err, o->status, "checkpoint of step %lld", (long long)c->at.step);
    }
    ru_arena_rewind(&c->scratch, mark);
    ru_rec_span(c->opt.recorder, c->name_write, t0, ru_rec_now(), c->snapshot_bytes);
    ru_recorder_thread_end(c->opt.recorder);
    ru_spsc_put(&c->ring);
}

/* -- the result -------------------------------------------------------------------------------- */

/* Take the outcome that lies in the ring. */
static ru_status take(ru_ckpt *c, ru_ckpt_at *at, ru_err *err)
{
    outcome o;
    ru_thread_join(&c->thread);
    c->busy = false;
    RU_CHECK(ru_spsc_pop(&c->ring, &o));
    if (o.status != RU_OK) {
        return RU_FAIL(err, o.status, "%s", o.err.text);
    }
    if (at != NULL) {
        *at = o.at;
    }
    if (c->copies != NULL) {
        ru_copies_take(c->copies, c->dir, o.at.step, c->opt.best_step);
    }
    return RU_OK;
}

bool ru_ckpt_busy(ru_ckpt *c)
{
    return c->busy;
}

ru_status ru_ckpt_poll(ru_ckpt *c, bool *done, ru_ckpt_at *at, ru_err *err)
{
    *done = false;
    if (c->copies != NULL) {
        ru_copies_poll(c->copies);
    }
    if (!c->busy || ru_spsc_used(&c->ring) == 0) {
        return RU_OK;
    }
    RU_TRY(take(c, at, err));
    *done = true;
    return RU_OK;
}

ru_status ru_ckpt_wait(ru_ckpt *c, ru_err *err)
{
    return c->busy ? take(c, NULL, err) : RU_OK;
}
