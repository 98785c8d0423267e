#include "tool/explain/explain_sums.h"

#include <stdlib.h>
#include <string.h>

#include "env/file/file.h"
#include "trace/read/sums.h"

enum { TRACE_BYTES = 16 << 20 };

/* What a run recorded; n 0: nothing. */
typedef struct recorded {
    ru_trace *traces;
    ru_sum_time *at; /* [n] in the order in which their gradients become ready */
    uint32_t n;
} recorded;

/* The first gradient of a sum that is named "gradients 3..5 ring"; -1: it is not. */
static int64_t gradient_of(const ru_sum_time *x)
{
    static const char head[] = "gradients ";
    size_t n = sizeof head - 1;
    return strncmp(x->name, head, n) == 0 ? strtoll(x->name + n, NULL, 10) : -1;
}

static int by_gradient(const void *pa, const void *pb)
{
    const ru_sum_time *a = pa, *b = pb;
    int64_t x = gradient_of(a), y = gradient_of(b);
    return x != y ? (x < y ? -1 : 1) : (a->sum > b->sum) - (a->sum < b->sum);
}

/* Sums are numbered as they are needed: from the last gradient on where two steps are under way, or
 * in any order with servers. As gradients become ready; cuts of one, whose numbers rise or fall, by
 * their names: all but the first tell their offset. */
static void sort_as_ready(recorded *r)
{
    if (r->n > 0) {
        qsort(r->at, r->n, sizeof *r->at, by_gradient);
    }
    for (uint32_t from = 0, to; from < r->n; from = to) {
        for (to = from + 1; to < r->n && gradient_of(&r->at[to]) == gradient_of(&r->at[from]);
             to++) {
        }
        bool falls = gradient_of(&r->at[from]) >= 0 && strstr(r->at[from].name, " + ") != NULL;
        for (uint32_t a = from, b = to - 1; falls && a < b; a++, b--) {
            ru_sum_time swap = r->at[a];
            r->at[a] = r->at[b];
            r->at[b] = swap;
        }
    }
}

static ru_status load(const char *path, ru_arena *arena, recorded *r, ru_err *err)
{
    ru_trace_clocks clocks;
    uint32_t n;
    const char *dir = ru_path_join(arena, path, "trace");
    *r = (recorded){0};
    if (dir == NULL || !ru_path_is_dir(dir)) {
        return RU_OK;
    }
    ru_status st = ru_trace_run_load_end(path, TRACE_BYTES, arena, &r->traces, &n, err);
    if (st == RU_E_MISSING) { /* a run that records nothing */
        return RU_OK;
    }
    RU_TRY(st);
    RU_TRY(ru_trace_align(r->traces, n, arena, &clocks, err));
    RU_TRY(ru_trace_sums(r->traces, n, &clocks, arena, &r->at, &r->n, err));
    sort_as_ready(r);
    return RU_OK;
}

/* A place in the recorded sums, which stand one behind another in the order in which gradients
 * become ready. */
typedef struct cursor {
    uint32_t i;
    int64_t at; /* bytes before it */
} cursor;

/* Of the sums with bytes [from, to) the one whose result comes last; NULL: there is none. */
static const ru_sum_time *sum_of(const recorded *r, cursor *c, int64_t from, int64_t to)
{
    while (c->i < r->n && c->at + r->at[c->i].size_bytes <= from) {
        c->at += r->at[c->i++].size_bytes;
    }
    const ru_sum_time *last = NULL;
    int64_t at = c->at;
    for (uint32_t i = c->i; i < r->n && at < to; i++) {
        last = last == NULL || r->at[i].arrive_ns > last->arrive_ns ? &r->at[i] : last;
        at += r->at[i].size_bytes;
    }
    return last;
}

/* Do the recorded sums hold the same bytes? */
static bool fits(const recorded *r, const ru_sums_in *in)
{
    int64_t sums = 0, grads = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        sums += r->at[i].size_bytes;
    }
    for (uint32_t i = 0; i < in->n; i++) {
        grads += in->param_bytes[i];
    }
    return r->n > 0 && sums == grads;
}

static void put_recorded(ru_table *t, const recorded *r, const ru_sum_time *x)
{
    if (x == NULL) {
        ru_table_absent(t, "s");
        ru_table_absent(t, "s");
        ru_table_none(t);
        return;
    }
    ru_table_ns(t, x->ready_ns);
    ru_table_ns(t, x->arrive_ns);
    char text[80], json[160];
    ru_text shown = ru_text_into(text, sizeof text), typed = ru_text_into(json, sizeof json);
    ru_json j = ru_json_into(&typed);
    ru_text_putf(&shown, "%u (%lld of %lld)", ru_trace_number(&r->traces[x->last]),
                 (long long)x->last_n, (long long)x->n);
    ru_json_open(&j, NULL, '{');
    ru_json_i64(&j, "worker", ru_trace_number(&r->traces[x->last]));
    ru_json_i64(&j, "sums", x->last_n);
    ru_json_i64(&j, "of_sums", x->n);
    ru_json_close(&j);
    ru_table_raw(t, text, json);
}

/* What ran of a bucket. */
typedef struct ran {
    ru_coll_algo algo; /* RU_COLL_ALGOS: several, or none is known */
    int64_t took_ns;   /* from its last gradient until the last result; 0: nothing was recorded */
} ran;

/* A recorded sum is named by its gradients and, last, by what added it. */
static ru_coll_algo algo_of(const ru_sum_time *x)
{
    const char *word = strrchr(x->name, ' ');
    return word != NULL ? ru_coll_algo_find(word + 1) : RU_COLL_ALGOS;
}

/* The recorded sums with bytes [from, to), which move the cursor. */
static ran ran_of(const recorded *r, cursor *c, int64_t from, int64_t to)
{
    int64_t ready = 0, arrives = 0;
    ran x = {.algo = RU_COLL_ALGOS};
    (void)sum_of(r, c, from, to);
    int64_t at = c->at;
    for (uint32_t i = c->i; i < r->n && at < to; i++) {
        ru_coll_algo algo = algo_of(&r->at[i]);
        x.algo = i == c->i || algo == x.algo ? algo : RU_COLL_ALGOS;
        ready = r->at[i].ready_ns > ready ? r->at[i].ready_ns : ready;
        arrives = r->at[i].arrive_ns > arrives ? r->at[i].arrive_ns : arrives;
        at += r->at[i].size_bytes;
    }
    x.took_ns = arrives > ready ? arrives - ready : 0;
    return x;
}

static void put_ran(ru_table *t, const ran *x)
{
    if (x->algo < RU_COLL_ALGOS) {
        ru_table_str(t, ru_coll_algo_name(x->algo));
    } else {
        ru_table_none(t);
    }
    if (x->took_ns > 0) {
        ru_table_ns(t, x->took_ns);
    } else {
        ru_table_absent(t, "s");
    }
}

/* Buckets of the plan: the algorithm of each and how long it takes among the others. */
static ru_status show_buckets(const ru_sums_policy_in *input, const ru_sums_plan *plan,
                              const ru_sums_time *times, const recorded *r, bool measured,
                              ru_arena *arena, const ru_tell *out, ru_err *err)
{
    ru_table t = ru_table_in(arena);
    cursor c = {0};
    int64_t at = 0;
    bool other = false;
    ru_table_col(&t, "first gradient", RU_TABLE_LEFT);
    ru_table_col(&t, "gradients", RU_TABLE_RIGHT);
    ru_table_col(&t, "bytes", RU_TABLE_RIGHT);
    ru_table_col(&t, "pieces", RU_TABLE_RIGHT);
    ru_table_col(&t, "algorithm", RU_TABLE_LEFT);
    ru_table_col(&t, "takes", RU_TABLE_RIGHT);
    if (measured) {
        ru_table_col(&t, "went by", RU_TABLE_LEFT);
        ru_table_col(&t, "took", RU_TABLE_RIGHT);
    }
    for (uint32_t i = 0; i < plan->n_buckets; i++) {
        const ru_sums_bucket *b = &plan->buckets[i];
        int64_t ready = 0, arrives = 0;
        for (uint32_t k = b->first; k < b->first + b->n; k++) {
            ready = times[k].ready_ns > ready ? times[k].ready_ns : ready;
            arrives = times[k].arrive_ns > arrives ? times[k].arrive_ns : arrives;
        }
        ru_table_str(&t, input->ops.at[plan->tensors[b->first]].name);
        ru_table_i64(&t, b->n);
        ru_table_bytes(&t, b->size_bytes);
        ru_table_i64(&t, (b->size_bytes - 1) / b->chunk_bytes + 1);
        ru_table_str(&t, ru_coll_algo_name(b->algo));
        ru_table_ns(&t, arrives - ready);
        if (measured) {
            ran x = ran_of(r, &c, at, at + b->size_bytes);
            put_ran(&t, &x);
            other = other || x.algo != b->algo;
        }
        at += b->size_bytes;
    }
    RU_TRY(ru_tell_table(out, "buckets",
                         "sums of a step, from the last gradient of each until its result", &t,
                         err));
    if (other) {
        ru_tell_note(out, "algorithms_are", "%s",
                     "  sums went by other algorithms than the plan has: before a first plan, and "
                     "where it gains less than 2 %, among another number of workers than it was "
                     "made for, where workers share the memory of a host, and with servers each "
                     "goes by what was measured as the fastest");
    }
    return RU_OK;
}

/* How many parameters are read before that of each op: ops stand in the order of reading. */
static uint32_t *ranks_of(const ru_sums_in *in, ru_arena *arena)
{
    uint32_t *rank = RU_NEW(arena, uint32_t, in->n), n = 0;
    for (uint32_t i = 0; rank != NULL && i < in->n; i++) {
        rank[i] = n;
        n += in->param_bytes[i] > 0 ? 1 : 0;
    }
    return rank;
}

static ru_status show(const ru_sums_policy_in *input, const ru_sums_in *in,
                      const ru_sums_time *times, uint32_t n, const recorded *r, ru_arena *arena,
                      const ru_tell *out, ru_err *err)
{
    static const char *const heads[] = {"rank",      "bytes",     "ready",
                                        "arrives",   "is needed", "waits",
                                        "was ready", "arrived",   "worker that began last"};
    bool measured = fits(r, in);
    uint32_t *rank = ranks_of(in, arena);
    ru_table t = ru_table_in(arena);
    int64_t at = 0;
    cursor c = {0};
    if (rank == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u gradients", n);
    }
    ru_table_col(&t, "gradient", RU_TABLE_LEFT);
    for (uint32_t k = 0; k < (measured ? 9 : 6); k++) {
        ru_table_col(&t, heads[k], RU_TABLE_RIGHT);
    }
    for (uint32_t k = 0; k < n; k++) {
        const ru_sums_time *x = &times[k];
        int64_t bytes = in->param_bytes[x->op];
        ru_table_str(&t, input->ops.at[x->op].name);
        ru_table_i64(&t, rank[x->op]);
        ru_table_bytes(&t, bytes);
        ru_table_ns(&t, x->ready_ns);
        ru_table_ns(&t, x->arrive_ns);
        ru_table_ns(&t, x->need_ns);
        ru_table_ns(&t, x->wait_ns);
        if (measured) {
            put_recorded(&t, r, sum_of(r, &c, at, at + bytes));
        }
        at += bytes;
    }
    RU_TRY(ru_tell_table(out, "gradients",
                         "gradients of a step, from its begin, as they become ready", &t, err));
    ru_tell_note(
        out, "gradients_are", "%s",
        measured ? "  predicted for this plan; recorded (was ready, arrived, began "
                   "last) of the sums that the run did"
        : r->n > 0
            ? "  predicted; the recorded sums hold other bytes than these gradients"
            : "  predicted; the run recorded no sums whose time it had predicted (those in shared "
              "memory are not)");
    ru_tell_note(
        out, "backward_order_is", "%s",
        "  the backward order is fixed: each gradient is made as soon as it can be; a search "
        "of other orders gains 1.2 % of a step at most (published graphs), less than the "
        "2 % for which a job begins a view");
    return RU_OK;
}

ru_status rui_explain_sums(const char *path, const ru_sums_policy_in *input,
                           const ru_sums_plan *plan, ru_arena *arena, const ru_tell *out,
                           ru_err *err)
{
    ru_sums_in in;
    recorded r;
    RU_TRY(ru_sums_in_of(input, arena, &in, err));
    ru_sums_time *times = RU_NEW(arena, ru_sums_time, plan->n_tensors);
    if (times == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u gradients", plan->n_tensors);
    }
    RU_TRY(ru_sums_times(&in, plan, arena, times, err));
    RU_TRY(load(path, arena, &r, err));
    RU_TRY(show(input, &in, times, plan->n_tensors, &r, arena, out, err));
    return show_buckets(input, plan, times, &r, fits(&r, &in), arena, out, err);
}
