/* The row of `mem` in plan/row/policy.def: its input as a file, its baselines, its report. */
#include "plan/step/mem_policy.h"

#include "plan/row/policy.h"

enum { SEARCH, FIRST_FIT, APART, METHODS };

static const char *const order_names[RU_MEM_ORDER_COUNT] = {"size", "start", "area", "lifetime",
                                                            "fullest step first"};

static ru_status check_in(const void *section, ru_err *err)
{
    const ru_mem_policy_in *in = section;
    if (in->bufs.n > RU_MEM_BUFS_MAX) {
        return RU_FAIL(err, RU_E_ARG, "'bufs' has %u entries, expected at most %d", in->bufs.n,
                       RU_MEM_BUFS_MAX);
    }
    if ((in->align_bytes & (in->align_bytes - 1)) != 0) {
        return RU_FAIL(err, RU_E_ARG, "'align_bytes' is %lld, expected a power of two",
                       (long long)in->align_bytes);
    }
    return RU_OK;
}

static const ru_conf_field buf_fields[] = {
    RU_ROW(I64, ru_mem_buf, size_bytes, NULL, "size of the buffer in bytes", RU_IN(0, 1e15)),
    RU_ROW(U32, ru_mem_buf, first, NULL, "index of the first step that writes it"),
    RU_ROW(U32, ru_mem_buf, last, NULL, "index of the last step that reads it"),
    RU_ROW(U32, ru_mem_buf, part_of, "0",
           "1 + index of an earlier buffer that contains it; 0: it is not part of another buffer"),
    RU_ROW(I64, ru_mem_buf, part_at_bytes, "0", "offset in that buffer", RU_IN(0, 1e15)),
};

static ru_status check_buf(const void *section, ru_err *err)
{
    const ru_mem_buf *b = section;
    return b->first <= b->last
               ? RU_OK
               : RU_FAIL(err, RU_E_ARG, "it lives from step %u to step %u; expected rising steps",
                         b->first, b->last);
}

static const ru_conf_table buf_table =
    RU_TABLE("buffer", ru_mem_buf, buf_fields, "a buffer of one step", .check = check_buf);

static const ru_conf_field fields[] = {
    RU_ROW(SECTIONS, ru_mem_policy_in, bufs, NULL, "buffers with their lifetimes",
           .table = &buf_table),
    RU_ROW(I64, ru_mem_policy_in, align_bytes, "64", "alignment of every offset; a power of two",
           RU_IN(1, 1073741824)),
    RU_ROW(I64, ru_mem_policy_in, work_max, "0",
           "budget of the local search in tried neighbours; 0: a default", RU_IN(0, 1e15)),
    RU_ROW(I64, ru_mem_policy_in, seed, "0", "seed of the local search", RU_IN(0, 9e18)),
    RU_ROW(CHOICE, ru_mem_policy_in, method, "search",
           "search: first fit with local search; first-fit: first fit in the best of five "
           "orders; apart: no two buffers share memory",
           .choices = "search|first-fit|apart"),
};

static const ru_conf_table table = RU_TABLE(
    "mem", ru_mem_policy_in, fields, "buffers of one step of an executable", .check = check_in);

ru_mem_policy_in ru_mem_policy_in_of(const ru_mem_in *in)
{
    return (ru_mem_policy_in){.bufs = {in->bufs, in->n},
                              .align_bytes =
                                  in->align_bytes != 0 ? in->align_bytes : RU_MEM_ALIGN_DEFAULT,
                              .work_max = in->work_max > 0 ? in->work_max : 0,
                              .seed = (int64_t)in->seed,
                              .method = in->work_max < 0 ? FIRST_FIT : SEARCH};
}

static ru_mem_in question(const ru_mem_policy_in *in, uint32_t method)
{
    return (ru_mem_in){.bufs = in->bufs.at,
                       .n = in->bufs.n,
                       .align_bytes = in->align_bytes,
                       .work_max = method == SEARCH ? in->work_max : -1,
                       .seed = (uint64_t)in->seed};
}

static int64_t aligned(const ru_mem_in *in, int64_t n)
{
    return (n + in->align_bytes - 1) / in->align_bytes * in->align_bytes;
}

/* Every buffer that stands alone behind the one before it, with room for what lies in it. */
static ru_status lay_apart(const ru_mem_in *in, ru_arena *out, ru_arena *scratch, ru_mem_plan *plan,
                           ru_err *err)
{
    int64_t *at = RU_NEW(out, int64_t, in->n);
    int64_t *room = RU_NEW(scratch, int64_t, in->n);
    uint32_t *root = RU_NEW(scratch, uint32_t, in->n);
    if (at == NULL || room == NULL || root == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory to place %u buffers", in->n);
    }
    for (uint32_t i = 0; i < in->n; i++) { /* first where in its root, then where in the arena */
        const ru_mem_buf *b = &in->bufs[i];
        root[i] = b->part_of == 0 ? i : root[b->part_of - 1];
        at[i] = b->part_of == 0 ? 0 : at[b->part_of - 1] + b->part_at_bytes;
        int64_t end = at[i] + aligned(in, b->size_bytes);
        room[root[i]] = end > room[root[i]] ? end : room[root[i]];
    }
    int64_t end = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        if (root[i] == i) {
            at[i] = end;
            end += room[i];
        } else {
            at[i] += at[root[i]];
        }
    }
    plan->offsets = at;
    plan->peak_bytes = end;
    return RU_OK;
}

static ru_status plan_by(const ru_mem_policy_in *p, uint32_t method, ru_arena *out,
                         ru_arena *scratch, ru_mem_plan *plan, ru_err *err)
{
    ru_mem_in q = question(p, method);
    RU_TRY(ru_plan_mem(&q, out, scratch, plan, err)); /* the bound also of what lies apart */
    return method == APART ? lay_apart(&q, out, scratch, plan, err) : RU_OK;
}

static ru_status plan_mem(const void *in, const ru_policy_tools *tools, void *plan, ru_err *err)
{
    const ru_mem_policy_in *p = in;
    return plan_by(p, p->method, tools->out, tools->scratch, plan, err);
}

static ru_status check_mem(const void *in, const void *plan, ru_arena *scratch, ru_err *err)
{
    const ru_mem_policy_in *p = in;
    ru_mem_in q = question(p, p->method);
    return ru_plan_mem_check(&q, plan, scratch, err);
}

static ru_status judge(ru_rival *v, const ru_policy_tools *tools, ru_err *err)
{
    (void)tools;
    (void)err;
    const ru_mem_plan *p = v->plan, *mine = v->won;
    ru_rival_is(v, (double)p->peak_bytes, true,
                p->peak_bytes > mine->peak_bytes    ? "needs more memory"
                : p->peak_bytes == mine->peak_bytes ? "needs as much"
                                                    : "the method was given");
    return RU_OK;
}

static const ru_report_row rows[] = {
    RU_FIGURE(I64, ru_mem_plan, peak_bytes, "arena_bytes"),
    RU_FIGURE(I64, ru_mem_plan, bound_bytes, "bound_bytes"),
    RU_DECISION(U32, ru_mem_plan, n, "buffers"),
    RU_DECISION(I64, ru_mem_plan, peak_bytes, "arena_bytes"),
    RU_DECISION(I64, ru_mem_plan, offsets, "offsets_bytes", RU_LIST(ru_mem_plan, n)),
};

static ru_status report_mem(const void *in, const void *plan, const ru_policy_tools *tools,
                            ru_report *r, ru_err *err)
{
    const ru_mem_policy_in *p = in;
    const ru_mem_plan *mine = plan;
    int64_t sum = 0;
    for (uint32_t i = 0; i < p->bufs.n; i++) {
        sum += p->bufs.at[i].part_of == 0 ? p->bufs.at[i].size_bytes : 0;
    }
    ru_report_answer(r, "place %u buffers in one arena", mine->n);
    ru_report_figure(r, "apart_bytes", (double)sum);
    if (mine->n <= 64) {
        ru_table *t = ru_report_grid_of(r, "places", ">buffer >first >last >size >offset");
        for (uint32_t i = 0; i < mine->n; i++) {
            ru_table_i64(t, i);
            ru_table_i64(t, p->bufs.at[i].first);
            ru_table_i64(t, p->bufs.at[i].last);
            ru_table_bytes(t, p->bufs.at[i].size_bytes);
            ru_table_i64(t, mine->offsets[i]);
        }
    }
    ru_policy_winner(&ru_policy_mem, in, r, (double)mine->peak_bytes, true,
                     "order: %s, %u improvements", order_names[mine->order], mine->improved);
    RU_TRY(ru_policy_rivals(&ru_policy_mem, in, plan, tools, judge, r, err));
    ru_report_assume(r, "no arena is smaller than the bound, which is the sum of the buffers that "
                        "are alive at the fullest step");
    ru_report_trigger(r, "arena_bytes", 0);
    return RU_OK;
}

const ru_policy ru_policy_mem = {
    .name = "mem",
    .version = 1,
    .decides = "where the buffers of a step lie in one arena",
    .source = "pisarchyk-2020",
    .in = &table,
    .plan_bytes = sizeof(ru_mem_plan),
    .rows = rows,
    .n_rows = RU_ARRAY_LEN(rows),
    .plan = plan_mem,
    .check = check_mem,
    .report = report_mem,
    .example = "# Forward and backward of three layers: activations live until their gradients.\n"
               "bufs:\n"
               "  - {size_bytes: 4194304, first: 0, last: 5}\n"
               "  - {size_bytes: 2097152, first: 1, last: 4}\n"
               "  - {size_bytes: 1048576, first: 2, last: 3}\n"
               "  - {size_bytes: 2097152, first: 3, last: 4}\n"
               "  - {size_bytes: 4194304, first: 4, last: 5}\n"
               "  - {size_bytes: 6291456, first: 5, last: 6}\n",
};
