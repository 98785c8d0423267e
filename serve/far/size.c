/* Requests that differ in size: their classes, the table in force, the page. */
#include <math.h>

#include "serve/far/called.h"
#include "serve/far/far_impl.h"

enum { BLOCK = 256 }; /* requests whose sizes are compared with those that the choice knows */
#define SHIFT 0.15    /* part of a block that is of other sizes; by chance 0.07 of 8 classes */

/* -- classes -----------------------------------------------------------------------------------
 */

ru_status rui_size_open(rui_far *f, ru_err *err)
{
    int64_t most = ru_served_facts_get(f->v->served)->size_max;
    uint32_t n = f->opt->sizes < RUI_FAR_CLASSES ? f->opt->sizes : RUI_FAR_CLASSES;
    n = n < most ? n : (uint32_t)most;
    if (n < 2) {
        return RU_OK;
    }
    f->size = RU_NEW(&f->v->arena, rui_far_size, 1);
    if (f->size == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for functions");
    }
    f->size->n = n;
    f->size->most = most;
    for (uint32_t k = 0; k < n; k++) {
        f->size->bound[k] = (double)ru_called_bound(most, n, k);
        f->size->share[k] = 1.0 / n;
    }
    return RU_OK;
}

uint32_t rui_size_class(const rui_far *f, int64_t size)
{
    return ru_called_class(f->size->most, f->size->n, size);
}

double rui_size_bound(const rui_far *f, uint32_t class_of)
{
    return f->size != NULL ? f->size->bound[class_of] : 0;
}

bool rui_size_came(rui_far *f, uint32_t class_of)
{
    rui_far_size *z = f->size;
    double off = 0;
    z->class_of[f->n_came % RUI_FAR_CAME] = (uint8_t)class_of;
    z->block[class_of]++;
    if (++z->n_block < BLOCK) {
        return false;
    }
    for (uint32_t k = 0; k < z->n; k++) {
        off += fabs((double)z->block[k] / BLOCK - z->share[k]) / 2;
        z->block[k] = 0;
    }
    z->n_block = 0;
    if (off > SHIFT && f->n_came >= BLOCK) {
        uint64_t from = f->n_came - BLOCK + 1;
        f->from = f->from > from ? f->from : from;
    }
    return off > SHIFT;
}

/* Every class has half a request more than were seen: none is impossible. */
void rui_size_fit(rui_far *f)
{
    rui_far_size *z = f->size;
    double all = 0.5 * z->n + (double)(f->n_came - f->from);
    for (uint32_t k = 0; k < z->n; k++) {
        z->share[k] = 0.5 / all;
    }
    for (uint64_t k = f->from; k < f->n_came; k++) {
        z->share[z->class_of[k % RUI_FAR_CAME]] += 1 / all;
    }
}

/* -- in force ----------------------------------------------------------------------------------
 */

void rui_size_begin(rui_far *f, const ru_batch_choice *at)
{
    uint32_t m = rui_far_memory(f, at->memory_mb);
    rui_far_routes *r = &f->size->next;
    *r = (rui_far_routes){.n = 1, .at = {*at}};
    for (uint32_t k = 0; k < f->size->n; k++) {
        r->route[k] = 1;
        r->latency_s[k] = at->timeout_s + rui_far_service_s(f, k, m, at->batch);
    }
}

static void say(rui_far *f, ru_serve_word word, const void *data, int64_t n)
{
    rui_infer_step(
        f->v,
        (ru_event){.kind = RU_EV_LOCAL, .what = (uint32_t)word, .data = data, .size_bytes = n});
}

void rui_size_install(rui_far *f)
{
    rui_far_size *z = f->size;
    ru_serve_rule rule[RUI_FAR_CLASSES];
    z->now = z->next;
    z->asked = z->own = z->padded = 0;
    for (uint32_t k = 0; k < z->n; k++) {
        z->took[k] = (ru_hist){0};
        z->late[k] = 0;
    }
    for (uint32_t i = 0; i < z->now.n; i++) {
        const ru_batch_choice *c = &z->now.at[i];
        rule[i] = (ru_serve_rule){.batch = c->batch,
                                  .timeout_ns = (int64_t)(c->timeout_s * 1e9),
                                  .memory_mb = c->memory_mb,
                                  .promise_ns = f->v->server->opt.slo_ns};
    }
    const ru_serve_table table = {
        .n = z->now.n, .n_classes = z->n, .rule = rule, .share = z->now.route};
    say(f, RU_SERVE_TABLE, &table, sizeof table);
    for (uint32_t i = 0; i < z->now.n; i++) {
        ru_serve_pace p = {.buffer = i, .batch = rule[i].batch};
        uint32_t largest = 0;
        for (uint32_t k = 0; k < z->n; k++) {
            largest = z->now.route[i * z->n + k] > 0 ? k : largest;
        }
        for (uint32_t k = 0; k < f->n_sizes && 1u << k < 2 * p.batch; k++) {
            double s = rui_far_now_s(f, largest, rui_far_memory(f, rule[i].memory_mb), 1u << k);
            p.service_ns[k] = (int64_t)(s * 1e9);
        }
        f->v->pace = p;
        say(f, RU_SERVE_PACE, &p, sizeof p);
    }
}

/* -- the page ----------------------------------------------------------------------------------
 */

static void put_buffers(const rui_far *f, const ru_tell *o)
{
    ru_text *t = o->text;
    const rui_far_size *z = f->size;
    ru_tell_open(o, "buffers", '[');
    ru_text_putf(t, "%-28s %8s %8s %10s\n", "buffer, sizes", "MB", "batch", "wait");
    for (uint32_t i = 0; i < z->now.n; i++) {
        uint32_t first = z->n, last = 0;
        char sizes[32];
        for (uint32_t k = 0; k < z->n; k++) {
            bool takes = z->now.route[i * z->n + k] > 0;
            first = takes && k < first ? k : first;
            last = takes ? k : last;
        }
        ru_text of = ru_text_into(sizes, sizeof sizes);
        double least = first == 0 ? 1 : z->bound[first - 1] + 1;
        ru_text_putf(&of, "%g to %g", least, z->bound[last]);
        ru_tell_open(o, NULL, '{');
        ru_tell_f64(o, "from_size", least);
        ru_tell_f64(o, "to_size", z->bound[last]);
        ru_tell_f64(o, "memory_mb", z->now.at[i].memory_mb);
        ru_tell_i64(o, "batch", z->now.at[i].batch);
        ru_tell_f64(o, "wait_s", z->now.at[i].timeout_s);
        ru_tell_close(o);
        ru_text_putf(t, "%-28s %8g %8u %8.4g s\n", sizes, z->now.at[i].memory_mb,
                     z->now.at[i].batch, z->now.at[i].timeout_s);
    }
    ru_tell_close(o);
}

void rui_size_explain(const rui_far *f, const ru_tell *o)
{
    ru_text *t = o->text;
    const rui_far_size *z = f->size;
    double q = f->v->server->opt.slo_q;
    put_buffers(f, o);
    ru_tell_open(o, "sizes", '[');
    ru_text_putf(t, "p%-6g %20s %12s %12s %12s\n", q * 100, "requests", "predicted", "measured",
                 "late");
    for (uint32_t k = 0; k < z->n; k++) {
        uint64_t n = z->took[k].n;
        ru_tell_open(o, NULL, '{');
        ru_tell_f64(o, "size", z->bound[k]);
        ru_tell_i64(o, "requests", (int64_t)n);
        ru_tell_f64(o, "predicted_s", z->now.latency_s[k]);
        ru_tell_ns(o, "measured_s", (double)ru_hist_quantile(&z->took[k], q));
        ru_tell_f64(o, "late_share", n > 0 ? (double)z->late[k] / (double)n : 0);
        ru_tell_close(o);
        ru_text_putf(t, "size to %-8g %10llu %10.4g s %10.4g s %10.3g %%\n", z->bound[k],
                     (unsigned long long)n, z->now.latency_s[k],
                     (double)ru_hist_quantile(&z->took[k], q) * 1e-9,
                     n > 0 ? 100 * (double)z->late[k] / (double)n : 0);
    }
    ru_tell_close(o);
    ru_tell_f64(o, "padding_predicted_share", z->now.padding);
    ru_tell_f64(o, "padding_measured_share", z->own > 0 ? z->padded / z->own - 1 : 0);
    ru_tell_f64(o, "padding_own_share", z->asked > 0 ? z->own / z->asked - 1 : 0);
    ru_text_putf(t, "%-28s %10.3g %% %10.3g %%\n", "padding beyond own classes",
                 100 * z->now.padding, z->own > 0 ? 100 * (z->padded / z->own - 1) : 0);
    ru_text_putf(t, "%-28s %12s %10.3g %%\n", "padding to own classes", "",
                 z->asked > 0 ? 100 * (z->own / z->asked - 1) : 0);
}
