#include "serve/far/far.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "serve/far/called.h"
#include "serve/far/far_impl.h"

enum { TRIES = 3 };
#define START_NS INT64_C(60000000000)
/* Between probes: an instance with a part of a core has it anew in each period (10 ms), and one
 * that is called again at once stands still for what its last call took. Requests leave such
 * pauses. */
#define PAUSE_NS INT64_C(12000000)
/* A call that takes so many promises is lost: its instance is frozen, or never answers. */
#define LIMIT_OF     20
#define LIMIT_MIN_NS INT64_C(2000000000)
#define LIMIT_MAX_NS INT64_C(60000000000)

uint32_t rui_far_memory(const rui_far *f, double memory_mb)
{
    uint32_t m = 0;
    while (m + 1 < f->n_memory && f->memory_mb[m] < memory_mb) {
        m++;
    }
    return m;
}

uint32_t rui_far_rows(const rui_far *f, uint32_t k)
{
    uint32_t size = 0;
    while (size + 1 < f->n_sizes && 1u << size < k) { /* instances compute whole powers of two */
        size++;
    }
    return size;
}

double rui_far_service_s(const rui_far *f, uint32_t class_of, uint32_t memory, uint32_t k)
{
    return (double)f->service_ns[class_of][memory][rui_far_rows(f, k)] * 1e-9;
}

/* -- batches -----------------------------------------------------------------------------------
 */

/* A call of some parts of a job. */
typedef struct calling {
    rui_far *far;
    rui_job *job;
    uint32_t from, n;
    uint32_t class_of; /* of its largest request */
} calling;

static void call(rui_far *f, rui_job *job, uint32_t from, uint32_t n);

static void settle(rui_far *f, rui_job *job, uint32_t from, uint32_t n, ru_status st)
{
    for (uint32_t k = from; k < from + n; k++) {
        job->parts[k]->st = st;
    }
    if (--f->open[job->instance] == 0) {
        job->ended = ru_clock_now();
        job->next = NULL;
        *f->last = job;
        f->last = &job->next;
        ru_loop_wake(f->v->server->opt.loop, f->v->server->waker);
    }
}

/* As the client hears it: what may be tried again, what was its own fault, what failed. */
static ru_status status_of(const ru_function_outcome *o)
{
    ru_function_result r = o->answer.result;
    return r == RU_FUNCTION_THROTTLED || r == RU_FUNCTION_LATE || r == RU_FUNCTION_START
               ? RU_E_LIMIT
           : r == RU_FUNCTION_ERROR && strstr(o->text, "\"errorType\":\"data\"") != NULL ? RU_E_DATA
                                                                                         : RU_E_IO;
}

static void learn(rui_far *f, const calling *c, const ru_function_answer *o)
{
    uint32_t rows = 0;
    for (uint32_t k = c->from; k < c->from + c->n; k++) {
        rows += (uint32_t)c->job->parts[k]->rows;
    }
    rui_far_waited(f, o->cold ? (double)o->wait_ns * 1e-9 : 0);
    if (!o->cold) { /* an instance's first call warms it up */
        rui_far_ran(f, c->class_of, rui_far_memory(f, c->job->memory_mb), rows,
                    (double)o->run_ns * 1e-9);
    }
}

static void on_done(void *self, const ru_function_outcome *o)
{
    calling *c = self, was = *c;
    rui_far *f = c->far;
    rui_job *job = c->job;
    free(c);
    ru_status st = RU_OK;
    if (o->answer.result == RU_FUNCTION_OK) {
        ru_arena scratch;
        ru_arena_init(&scratch, 0);
        st = ru_called_take(ru_served_facts_get(f->v->served), job->parts + was.from, was.n,
                            (int64_t)rui_size_bound(f, was.class_of), o->text, o->n, &scratch,
                            &job->err);
        ru_arena_fini(&scratch);
        st = st == RU_E_DATA ? RU_E_IO : st; /* the function's fault, not the client's */
        learn(f, &was, &o->answer);
    } else if (o->answer.result == RU_FUNCTION_ERROR && was.n > 1) { /* one of them is bad */
        f->open[job->instance] += was.n;
        for (uint32_t k = was.from; k < was.from + was.n; k++) {
            call(f, job, k, 1);
        }
        f->open[job->instance]--;
        return;
    } else {
        st = RU_FAIL(&job->err, status_of(o), "the function: %s", o->why);
    }
    settle(f, job, was.from, was.n, st);
}

/* The class of the largest, and how much larger than asked for that makes the others. */
static uint32_t class_of(rui_far *f, const rui_job *job, uint32_t from, uint32_t n)
{
    uint32_t largest = 0;
    for (uint32_t k = from; f->size != NULL && k < from + n; k++) {
        uint32_t own = rui_size_class(f, job->parts[k]->size);
        largest = own > largest ? own : largest;
        f->size->asked += (double)(job->parts[k]->rows * job->parts[k]->size);
        f->size->own += (double)job->parts[k]->rows * rui_size_bound(f, own);
    }
    for (uint32_t k = from; f->size != NULL && k < from + n; k++) {
        f->size->padded += (double)job->parts[k]->rows * rui_size_bound(f, largest);
    }
    return largest;
}

static void call(rui_far *f, rui_job *job, uint32_t from, uint32_t n)
{
    uint32_t largest = class_of(f, job, from, n);
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_text body = ru_text_arena(&scratch);
    calling *c = malloc(sizeof *c);
    ru_status st =
        c == NULL ? RU_FAIL(&job->err, RU_E_MEM, "no memory for a call")
                  : ru_called_put(ru_served_facts_get(f->v->served), job->parts + from, n,
                                  (int64_t)rui_size_bound(f, largest), &scratch, &body, &job->err);
    if (st == RU_OK) {
        *c = (calling){.far = f, .job = job, .from = from, .n = n, .class_of = largest};
        st = ru_function_host_call(f->host, (uint32_t)job->memory_mb, body.p, body.n, on_done, c,
                                   &job->err);
    }
    ru_arena_fini(&scratch);
    if (st != RU_OK) {
        free(c);
        settle(f, job, from, n, st);
    }
}

void rui_far_give(rui_far *f, rui_job *job)
{
    job->given = job->begun = ru_clock_now();
    f->open[job->instance] = 1;
    call(f, job, 0, job->n);
}

rui_job *rui_far_take(rui_far *f)
{
    rui_job *job = f->done;
    if (job != NULL) {
        f->done = job->next;
        f->last = f->done == NULL ? &f->done : f->last;
    }
    return job;
}

/* -- probes ------------------------------------------------------------------------------------
 */

static void probe(rui_far *f);

static void known(rui_far *f)
{
    ru_err err = {0};
    ru_time now = ru_clock_now();
    ru_status st = rui_far_begin(f, now, &err);
    rui_version_known(f->v, st, &err, now);
}

static int by_time(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y ? 1 : 0;
}

/* The next size, or the next class or memory where a batch takes longer than promised: twice the
 * rows take twice as long there. */
static void probe_next(rui_far *f, bool fits)
{
    rui_far_probe *p = &f->probe;
    int64_t *row = f->service_ns[p->class_of][p->memory];
    int64_t promise = f->v->server->opt.slo_ns;
    p->round = 0;
    if (fits && row[p->size] <= promise && p->size + 1 < f->n_sizes) {
        p->size++;
        return;
    }
    for (uint32_t k = p->size + 1; k < f->n_sizes; k++) {
        row[k] = fits ? 2 * row[k - 1] : (int64_t)(RUI_FAR_NEVER_S * 1e9);
    }
    p->size = 0;
    if (f->size == NULL || ++p->class_of == f->size->n) {
        p->class_of = 0;
        p->memory++;
    }
}

static void on_pause(void *self, uint32_t what, ru_time now)
{
    (void)what;
    (void)now;
    probe(self);
}

static void on_probe(void *self, const ru_function_outcome *o)
{
    rui_far *f = self;
    rui_far_probe *p = &f->probe;
    int64_t *at = &f->service_ns[p->class_of][p->memory][p->size];
    if (o->answer.result != RU_FUNCTION_OK) {
        *at = (int64_t)(RUI_FAR_NEVER_S * 1e9);
        ru_text t = ru_text_into(f->why, sizeof f->why);
        ru_text_put(&t, o->why);
        ru_log(RU_LOG_WARN, "serve", "probe", "%s with %g MB, %u rows: %s", f->v->model,
               f->memory_mb[p->memory], 1u << p->size, o->why);
        probe_next(f, false);
    } else {
        if (p->round > 0) { /* the first one warms up */
            p->ns[p->round - 1] = o->answer.run_ns;
        }
        if (++p->round == RUI_FAR_ROUNDS + 1) {
            qsort(p->ns, RUI_FAR_ROUNDS, sizeof p->ns[0], by_time);
            int64_t steps = (p->ns[RUI_FAR_ROUNDS / 2] - 1) / RUI_FAR_BILLING_NS + 1;
            *at = steps * RUI_FAR_BILLING_NS;
            probe_next(f, true);
        }
    }
    if (p->memory == f->n_memory) {
        known(f);
    } else if (f->memory_mb[p->memory] < RU_FUNCTION_CORE_MB) {
        ru_loop_timer(f->v->server->opt.loop, on_pause, f, 0,
                      ru_time_after(ru_clock_now(), PAUSE_NS));
    } else {
        probe(f);
    }
}

/* Rows of numbers that take as long to write as those of clients. */
static ru_status put_probe(const rui_far *f, int64_t rows, ru_arena *arena, ru_text *body,
                           ru_err *err)
{
    const ru_served_facts *facts = ru_served_facts_get(f->v->served);
    int64_t size = (int64_t)rui_size_bound(f, f->probe.class_of);
    ru_served_part part = {.rows = rows, .size = size}, *parts[] = {&part};
    ru_rng rng = ru_rng_from(1, ru_rng_label("probe"));
    for (uint32_t k = 0; k < facts->n_inputs; k++) {
        const ru_served_value *v = &facts->inputs[k];
        int64_t bytes = rows * ru_served_row_bytes(facts, v, size);
        float *x = ru_arena_zalloc(arena, bytes, 64);
        if (x == NULL) {
            return RU_FAIL(err, RU_E_MEM, "no memory for a probe of %lld rows", (long long)rows);
        }
        for (int64_t i = 0; v->type.dtype == RU_F32 && i < bytes / 4; i++) {
            x[i] = (float)ru_rng_below(&rng, 1000000) * 1e-6f;
        }
        part.in[k] = x;
    }
    return ru_called_put(facts, parts, 1, size, arena, body, err);
}

static void probe(rui_far *f)
{
    ru_arena scratch;
    ru_err err = {0};
    ru_arena_init(&scratch, 0);
    ru_text body = ru_text_arena(&scratch);
    ru_status st = put_probe(f, INT64_C(1) << f->probe.size, &scratch, &body, &err);
    if (st == RU_OK) {
        st = ru_function_host_call(f->host, (uint32_t)f->memory_mb[f->probe.memory], body.p, body.n,
                                   on_probe, f, &err);
    }
    ru_arena_fini(&scratch);
    if (st != RU_OK) {
        rui_version_known(f->v, st, &err, ru_clock_now());
    }
}

/* -- open, close -------------------------------------------------------------------------------
 */

static ru_status begin(rui_far *f, ru_err *err)
{
    enum { ARGS = 60 };
    rui_version *v = f->v;
    const ru_server_functions *o = f->opt;
    const char **argv = RU_NEW(&v->arena, const char *, ARGS + 4);
    uint32_t n = 0;
    f->open = RU_NEW(&v->arena, uint32_t, v->instances);
    if (argv == NULL || f->open == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for functions");
    }
    while (o->argv != NULL && n < ARGS && o->argv[n] != NULL) {
        argv[n] = o->argv[n];
        n++;
    }
    RU_TRY(rui_size_open(f, err));
    if (f->size != NULL && n < ARGS) {
        argv[n++] = "--sizes";
        argv[n++] = ru_arena_printf(&v->arena, "%u", f->size->n);
    }
    argv[n] = v->path;
    for (double m = o->memory_min_mb; m <= o->memory_max_mb + 1e-6; m += o->memory_step_mb) {
        if (f->n_memory == RUI_FAR_MEMORIES) {
            return RU_FAIL(err, RU_E_USAGE,
                           "memories from %g to %g MB in steps of %g MB are more than %d",
                           o->memory_min_mb, o->memory_max_mb, o->memory_step_mb, RUI_FAR_MEMORIES);
        }
        f->memory_mb[f->n_memory++] = m;
    }
    int64_t rows = ru_served_facts_get(v->served)->rows_max;
    for (f->n_sizes = 1; f->n_sizes < RUI_FAR_SIZES && INT64_C(1) << f->n_sizes <= rows;) {
        f->n_sizes++;
    }
    int64_t limit_ns = LIMIT_OF * v->server->opt.slo_ns;
    limit_ns = limit_ns < LIMIT_MIN_NS ? LIMIT_MIN_NS : limit_ns;
    const ru_function_host_options ho = {
        .loop = v->server->opt.loop,
        .pool = {.instances_max = v->instances,
                 .waiting_max = v->instances,
                 .tries_max = TRIES,
                 .limit_ns = limit_ns < LIMIT_MAX_NS ? limit_ns : LIMIT_MAX_NS,
                 .start_max_ns = START_NS,
                 .keep_ns = o->keep_ns},
        .argv = argv,
        .url = o->url,
        .name = o->name,
        .sign = o->sign};
    return ru_function_host_open(&ho, &v->arena, &f->host, err);
}

ru_status rui_far_open(rui_version *v, ru_err *err)
{
    rui_far *f = RU_NEW(&v->arena, rui_far, 1);
    if (f == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for functions");
    }
    *f = (rui_far){.v = v, .opt = v->server->opt.functions};
    f->last = &f->done;
    ru_arena_init(&f->plan_arena, 0);
    v->far = f;
    RU_TRY(begin(f, err));
    probe(f);
    return RU_OK;
}

void rui_far_close(rui_far *f)
{
    if (f != NULL) {
        ru_loop_timer_off(f->v->server->opt.loop, on_pause, f, 0);
        ru_function_host_close(f->host);
        ru_arena_fini(&f->plan_arena);
        f->v->far = NULL;
    }
}
