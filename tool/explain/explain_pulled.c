#include "tool/explain/explain_pulled.h"

/* A step that reads several tensors waits for the last of them only. */
static int64_t wait_of(const ru_transfer_fact *x)
{
    return x->needed_ns > 0 && x->arrived_ns > x->needed_ns ? x->arrived_ns - x->needed_ns : 0;
}

static bool is_timed(const ru_transfer_fact *x)
{
    return x->made_by < 0 && x->used_by >= 0 && x->arrived_ns > 0;
}

static double least(const ru_op_fact *f)
{
    return f->took.min_ns > 0 ? (double)f->took.min_ns : f->took.mean_ns;
}

/* From the request for tensors to the end of the steps: when the last tensor that a step needed was
 * there and needed, then what that step and those after it computed. */
static double took(const ru_world *w)
{
    int64_t at = 0, step = 0;
    for (uint32_t i = 0; i < w->facts.transfers.n; i++) {
        const ru_transfer_fact *x = &w->facts.transfers.at[i];
        int64_t ready = x->arrived_ns > x->needed_ns ? x->arrived_ns : x->needed_ns;
        if (is_timed(x) && (x->used_by > step || (x->used_by == step && ready > at))) {
            at = ready;
            step = x->used_by;
        }
    }
    double ns = (double)at;
    for (uint32_t i = 0; i < w->facts.ops.n; i++) {
        const ru_op_fact *f = &w->facts.ops.at[i];
        ns += f->step >= step ? least(f) : 0;
    }
    return ns;
}

/* U all times one after the other, L the longer resource, m as measured. */
static void put_efficiency(const ru_world *w, const ru_tell *out)
{
    double compute = 0, link = 0, wait = 0;
    for (uint32_t i = 0; i < w->facts.ops.n; i++) {
        compute += least(&w->facts.ops.at[i]);
    }
    for (uint32_t i = 0; i < w->facts.transfers.n; i++) {
        const ru_transfer_fact *x = &w->facts.transfers.at[i];
        link += is_timed(x) ? x->took.mean_ns : 0;
        wait += is_timed(x) ? (double)wait_of(x) : 0;
    }
    double all = compute + link, bound = compute > link ? compute : link, is = took(w);
    if (!(bound > 0) || !(all > bound)) {
        return;
    }
    bool small = all < 1e6; /* one digit of ms would say 0 */
    double unit = small ? 1e-3 : 1e-6;
    const char *u = small ? "us" : "ms";
    ru_tell_open(out, "overlap", '{');
    ru_tell_ns(out, "saves_s", all - bound);
    ru_tell_ns(out, "apart_s", all);
    ru_tell_f64(out, "speedup_most", (all - bound) / bound);
    ru_tell_ns(out, "took_s", is);
    ru_tell_f64(out, "efficiency", (all - is) / (all - bound));
    ru_tell_ns(out, "computed_s", compute);
    ru_tell_ns(out, "waited_s", wait);
    ru_tell_close(out);
    ru_text_putf(out->text,
                 "a perfect order saves %.1f %s of %.1f %s without overlap (S %.2f); this one took "
                 "%.1f %s (E %.2f): steps computed %.1f %s and waited %.1f %s\n",
                 (all - bound) * unit, u, all * unit, u, (all - bound) / bound, is * unit, u,
                 (all - is) / (all - bound), compute * unit, u, wait * unit, u);
}

ru_status rui_explain_pulled(const ru_world *w, ru_arena *arena, const ru_tell *out, ru_err *err)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->facts.transfers.n; i++) {
        n += is_timed(&w->facts.transfers.at[i]);
    }
    if (n == 0) {
        ru_text_put(out->text,
                    "  predicted, for parameters that are all asked for when a step begins; "
                    "`rubato predict --from --record` measures it\n"
                    "  sums from servers come as they are made, most of them before the "
                    "step begins: `rubato explain RUN sums` shows when\n");
        return RU_OK;
    }
    put_efficiency(w, out);
    const char *title = ru_arena_printf(arena, "%u tensors in the order in which they came", n);
    ru_tell_i64(out, "tensors", n);
    ru_table t = ru_table_in(arena);
    ru_table_col(&t, "tensor", RU_TABLE_LEFT);
    ru_table_col(&t, "rank", RU_TABLE_RIGHT);
    ru_table_col(&t, "size", RU_TABLE_RIGHT);
    ru_table_col(&t, "step", RU_TABLE_RIGHT);
    ru_table_col(&t, "needed", RU_TABLE_RIGHT);
    ru_table_col(&t, "arrived", RU_TABLE_RIGHT);
    ru_table_col(&t, "waited", RU_TABLE_RIGHT);
    for (uint32_t i = 0; i < w->facts.transfers.n; i++) {
        const ru_transfer_fact *x = &w->facts.transfers.at[i];
        if (!is_timed(x)) {
            continue;
        }
        ru_table_str(&t, x->name);
        ru_table_i64(&t, x->rank);
        ru_table_bytes(&t, x->size_bytes);
        ru_table_i64(&t, x->used_by);
        if (x->needed_ns > 0) {
            ru_table_ns(&t, x->needed_ns);
        } else {
            ru_table_absent(&t, "s");
        }
        ru_table_ns(&t, x->arrived_ns);
        ru_table_ns(&t, wait_of(x));
    }
    return ru_tell_table(out, "pulled", title != NULL ? title : "", &t, err);
}
