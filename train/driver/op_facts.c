#include "train/driver/op_facts.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "env/file/file.h"
#include "store/world_file.h"
#include "trace/read/fold.h"

#define LIST_END  ".ops.json"
#define TRACE_END ".trace"

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "no memory for the op instances of the run");
}

/* -- the list ---------------------------------------------------------------------------------- */

static int64_t step_of(uint32_t step)
{
    return step == UINT32_MAX ? -1 : (int64_t)step;
}

/* Gradients as transfers of the list of ops: when each is made, and needed again. */
static ru_status put_gradients(const ru_exe *e, ru_arena *arena, ru_world *w, ru_err *err)
{
    const ru_exe_grad *grads;
    uint32_t n = ru_exe_grads(e, &grads);
    ru_transfer_fact *at = RU_NEW(arena, ru_transfer_fact, n);
    if (at == NULL) {
        return full(err);
    }
    for (uint32_t k = 0; k < n; k++) {
        const char *name = grads[k].param != NULL ? ru_arena_printf(arena, "%s", grads[k].param)
                                                  : ru_arena_printf(arena, "gradient %u", k);
        if (name == NULL) {
            return full(err);
        }
        at[k] = (ru_transfer_fact){.name = name,
                                   .from = "",
                                   .to = "",
                                   .size_bytes = grads[k].size_bytes,
                                   .made_by = grads[k].made,
                                   .needed_by = step_of(grads[k].read),
                                   .used_by = step_of(grads[k].used)};
    }
    w->facts.transfers.at = at;
    w->facts.transfers.n = n;
    return RU_OK;
}

ru_status ru_op_list(const ru_exe *e, uint32_t rank, ru_arena *arena, ru_world *w, ru_err *err)
{
    ru_op_fact *ops;
    RU_TRY(ru_exe_ops(e, rank, arena, &ops, &w->facts.ops.n, err));
    w->facts.ops.at = ops;
    return put_gradients(e, arena, w, err);
}

ru_status ru_op_list_put(const char *trace_dir, const ru_exe *e, uint32_t rank, ru_err *err)
{
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_world w = {0};
    ru_text text = ru_text_arena(&arena);
    const char *path =
        ru_arena_printf(&arena, "%s/rank%u.%08x" LIST_END, trace_dir, rank, (uint32_t)ru_exe_id(e));
    ru_status st = path != NULL ? ru_op_list(e, rank, &arena, &w, err) : full(err);
    st = st == RU_OK ? ru_world_file_put(&w, &text, err) : st;
    st = st == RU_OK ? ru_file_own(path, text.p, text.n, err) : st;
    ru_arena_fini(&arena);
    return st;
}

/* -- folding ----------------------------------------------------------------------------------- */

/* An executable of a worker, with the newest records that any trace has of it. */
typedef struct list {
    uint32_t rank, exe;
    const char *path;
    ru_world w;
    int64_t wall_ns; /* of its newest record, since 1970; 0: none */
    int64_t records;
} list;

/* The processor time of a worker, by its newest trace. */
typedef struct processor {
    ru_processor_fact fact;
    int64_t wall_ns;
} processor;

typedef struct folder {
    ru_arena *arena;
    const char *dir;
    int64_t bytes_max;
    list *lists;           /* [n_lists] */
    list **newest;         /* [n_newest] of each rank, by rank */
    processor *processors; /* [n_processors] by rank */
    uint32_t n_lists, n_newest, n_processors;
} folder;

static bool list_named(const char *name, list *l)
{
    unsigned rank, exe;
    int end = 0;
    if (sscanf(name, "rank%u.%8x" LIST_END "%n", &rank, &exe, &end) != 2 || name[end] != '\0' ||
        end == 0) {
        return false;
    }
    l->rank = rank;
    l->exe = exe;
    return true;
}

static ru_status find_lists(folder *f, char **names, uint32_t n, ru_err *err)
{
    f->lists = RU_NEW(f->arena, list, n);
    f->newest = RU_NEW(f->arena, list *, n);
    f->processors = RU_NEW(f->arena, processor, n);
    if (f->lists == NULL || f->newest == NULL || f->processors == NULL) {
        return full(err);
    }
    for (uint32_t k = 0; k < n; k++) {
        list *l = &f->lists[f->n_lists];
        if (!list_named(names[k], l)) {
            continue;
        }
        l->path = ru_path_join(f->arena, f->dir, names[k]);
        if (l->path == NULL) {
            return full(err);
        }
        RU_TRY(ru_world_file_load(l->path, f->arena, &l->w, err));
        f->n_lists++;
    }
    return RU_OK;
}

/* The facts that one trace gives for a list, if they are newer than what it has. */
static ru_status fold_one(const ru_trace *t, list *l, ru_arena *arena, ru_arena *scratch,
                          ru_err *err)
{
    uint32_t n = l->w.facts.ops.n;
    ru_op_fact *ops = RU_NEW(arena, ru_op_fact, n);
    if (ops == NULL) {
        return full(err);
    }
    memcpy(ops, l->w.facts.ops.at, n * sizeof *ops);
    ru_op_fold got;
    RU_TRY(ru_trace_fold_ops(t, l->exe, ops, n, scratch, &got, err));
    int64_t wall_ns = got.last_ns - t->mono_ns + t->wall_ns;
    if (got.records > 0 && wall_ns > l->wall_ns) {
        l->w.facts.ops.at = ops;
        l->wall_ns = wall_ns;
        l->records = got.records;
    }
    return RU_OK;
}

static void fold_processor(folder *f, const ru_trace *t)
{
    processor got = {.wall_ns = t->last_ns - t->mono_ns + t->wall_ns};
    uint32_t at = 0;
    if (!ru_trace_fold_processor(t, &got.fact)) {
        return;
    }
    while (at < f->n_processors && f->processors[at].fact.rank < t->rank) {
        at++;
    }
    processor *p = &f->processors[at];
    if (at == f->n_processors || p->fact.rank != t->rank) {
        memmove(p + 1, p, (f->n_processors - at) * sizeof *p);
        f->n_processors++;
        *p = got;
    } else if (got.wall_ns > p->wall_ns) {
        *p = got;
    }
}

static ru_status fold_trace(folder *f, const char *name, ru_err *err)
{
    size_t length = strlen(name), end = sizeof TRACE_END - 1;
    const char *path = ru_path_join(f->arena, f->dir, name);
    if (length <= end || strcmp(name + length - end, TRACE_END) != 0) {
        return RU_OK;
    }
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_trace t;
    ru_status st =
        path == NULL ? full(err) : ru_trace_load_end(path, f->bytes_max, &scratch, &t, err);
    if (st == RU_OK) {
        fold_processor(f, &t);
    }
    for (uint32_t k = 0; st == RU_OK && k < f->n_lists; k++) {
        st = f->lists[k].rank == t.rank ? fold_one(&t, &f->lists[k], f->arena, &scratch, err)
                                        : RU_OK;
    }
    ru_arena_fini(&scratch);
    return st;
}

/* Of each rank the list that ran last. */
static void choose(folder *f)
{
    for (uint32_t k = 0; k < f->n_lists; k++) {
        list *l = &f->lists[k];
        uint32_t at = 0;
        while (at < f->n_newest && f->newest[at]->rank < l->rank) {
            at++;
        }
        if (l->wall_ns == 0) {
            continue;
        }
        if (at < f->n_newest && f->newest[at]->rank == l->rank) {
            f->newest[at] = l->wall_ns > f->newest[at]->wall_ns ? l : f->newest[at];
            continue;
        }
        memmove(f->newest + at + 1, f->newest + at, (f->n_newest - at) * sizeof(list *));
        f->newest[at] = l;
        f->n_newest++;
    }
}

/* The list of the worker that the facts of steps are of; else the first. */
static const list *of_steps(const folder *f, const ru_world *w)
{
    for (uint32_t k = 0; k < f->n_newest && w->facts.steps.n > 0; k++) {
        if (f->newest[k]->rank == w->facts.steps.at[0].rank) {
            return f->newest[k];
        }
    }
    return f->newest[0];
}

static ru_status install(const folder *f, ru_world *w, int64_t *records, ru_err *err)
{
    uint32_t n = 0;
    int64_t now_ns = 0;
    for (uint32_t k = 0; k < f->n_newest; k++) {
        n += f->newest[k]->w.facts.ops.n;
        now_ns = f->newest[k]->wall_ns > now_ns ? f->newest[k]->wall_ns : now_ns;
    }
    ru_op_fact *all = RU_NEW(f->arena, ru_op_fact, n);
    ru_processor_fact *processors = RU_NEW(f->arena, ru_processor_fact, f->n_processors);
    if (all == NULL || processors == NULL) {
        return full(err);
    }
    for (uint32_t k = 0; k < f->n_processors; k++) { /* a trace ends behind its last op */
        int64_t age_ns = now_ns - f->processors[k].wall_ns;
        processors[k] = f->processors[k].fact;
        processors[k].took.age_ns = age_ns > 0 ? age_ns : 0;
    }
    w->facts.processors.at = processors;
    w->facts.processors.n = f->n_processors;
    w->facts.ops.at = all;
    w->facts.ops.n = n;
    const list *of = of_steps(f, w);
    w->facts.transfers.at = of->w.facts.transfers.at;
    w->facts.transfers.n = of->w.facts.transfers.n;
    for (uint32_t k = 0; k < f->n_newest; k++) {
        const list *l = f->newest[k];
        for (uint32_t i = 0; i < l->w.facts.ops.n; i++) {
            *all = l->w.facts.ops.at[i];
            all->rank = l->rank;
            all->took.age_ns += all->took.count > 0 ? now_ns - l->wall_ns : 0;
            all++;
        }
        *records += l->records;
    }
    return RU_OK;
}

ru_status ru_op_facts(const char *run, int64_t bytes_max, ru_arena *arena, ru_world *w,
                      int64_t *records, ru_err *err)
{
    folder f = {.arena = arena, .dir = ru_path_join(arena, run, "trace"), .bytes_max = bytes_max};
    char **names;
    uint32_t n;
    int64_t none, *sum = records != NULL ? records : &none;
    *sum = 0;
    if (f.dir == NULL) {
        return full(err);
    }
    if (!ru_path_is_dir(f.dir)) {
        return RU_OK;
    }
    RU_TRY(ru_dir_list(f.dir, arena, &names, &n, err));
    RU_TRY(find_lists(&f, names, n, err));
    for (uint32_t k = 0; k < n && f.n_lists > 0; k++) {
        RU_TRY(fold_trace(&f, names[k], err));
    }
    choose(&f);
    return f.n_newest > 0 ? install(&f, w, sum, err) : RU_OK;
}

static ru_status fold_into(const char *run, ru_arena *arena, ru_err *err)
{
    ru_world w;
    int64_t records;
    ru_text text = ru_text_arena(arena);
    const char *path = ru_path_join(arena, run, "world.json");
    if (path == NULL) {
        return full(err);
    }
    if (!ru_path_exists(path)) { /* no worker of this launcher has led */
        return RU_OK;
    }
    RU_TRY(ru_world_file_load(path, arena, &w, err));
    RU_TRY(ru_op_facts(run, RU_OP_FACTS_BYTES, arena, &w, &records, err));
    if (records == 0) {
        return RU_OK;
    }
    RU_TRY(ru_world_file_put(&w, &text, err));
    return ru_file_own(path, text.p, text.n, err);
}

void ru_op_facts_fold(const char *run)
{
    ru_arena arena;
    ru_err err = {0};
    ru_arena_init(&arena, 0);
    if (fold_into(run, &arena, &err) != RU_OK) {
        ru_log(RU_LOG_WARN, "train", "facts", "world.json lacks the times of ops: %s", err.text);
    }
    ru_arena_fini(&arena);
}
