/* Longest paths through a step. */
#include "base/heap.h"
#include "cost/step/step.h"
#include "cost/step/step_impl.h"

typedef struct walk {
    rui_step_links_of followers;
    uint32_t *waits, *order;
    int64_t *head, *tail;
    ru_heap ready;
} walk;

static bool walk_init(walk *w, const ru_step_in *in, ru_arena *out, ru_arena *scratch)
{
    ru_heap_item *items = RU_NEW(scratch, ru_heap_item, in->n);
    *w = (walk){.waits = RU_NEW(scratch, uint32_t, in->n),
                .order = RU_NEW(out, uint32_t, in->n),
                .head = RU_NEW(out, int64_t, in->n),
                .tail = RU_NEW(out, int64_t, in->n)};
    if (items == NULL || w->waits == NULL || w->order == NULL || w->head == NULL ||
        w->tail == NULL || !rui_step_links(in, scratch, &w->followers)) {
        return false;
    }
    ru_heap_init(&w->ready, items, in->n);
    return true;
}

/* Topological order with earliest starts; how many tasks it reached. */
static uint32_t forward(walk *w, const ru_step_in *in)
{
    for (uint32_t e = 0; e < in->n_edges; e++) {
        w->waits[in->edges[e].to]++;
    }
    for (uint32_t i = 0; i < in->n; i++) {
        w->head[i] = in->tasks[i].ready_ns;
        if (w->waits[i] == 0) {
            RU_CHECK(ru_heap_push(&w->ready, i, i) == RU_OK);
        }
    }
    uint32_t n = 0;
    for (ru_heap_item top; ru_heap_pop(&w->ready, &top);) {
        uint32_t i = (uint32_t)top.value;
        w->order[n++] = i;
        int64_t arrives = w->head[i] + in->tasks[i].ns + in->tasks[i].latency_ns;
        for (uint32_t k = w->followers.first[i]; k < w->followers.first[i + 1]; k++) {
            uint32_t j = w->followers.at[k];
            w->head[j] = arrives > w->head[j] ? arrives : w->head[j];
            if (--w->waits[j] == 0) {
                RU_CHECK(ru_heap_push(&w->ready, j, j) == RU_OK);
            }
        }
    }
    return n;
}

static int64_t backward(walk *w, const ru_step_in *in)
{
    int64_t path = 0;
    for (uint32_t at = in->n; at-- > 0;) {
        uint32_t i = w->order[at];
        int64_t rest = 0;
        for (uint32_t k = w->followers.first[i]; k < w->followers.first[i + 1]; k++) {
            int64_t tail = w->tail[w->followers.at[k]];
            rest = tail > rest ? tail : rest;
        }
        w->tail[i] = in->tasks[i].ns + in->tasks[i].latency_ns + rest;
        path = w->head[i] + w->tail[i] > path ? w->head[i] + w->tail[i] : path;
    }
    return path;
}

ru_status ru_cost_step_path(const ru_step_in *in, ru_arena *out, ru_arena *scratch,
                            ru_step_path *path, ru_err *err)
{
    RU_TRY(rui_step_check(in, err));
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    walk w;
    int64_t *busy = RU_NEW(scratch, int64_t, in->n_servers);
    if (busy == NULL || !walk_init(&w, in, out, scratch)) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the paths of %u tasks", in->n);
    }
    uint32_t reached = forward(&w, in);
    ru_step_path p = {.head_ns = w.head, .tail_ns = w.tail, .order = w.order};
    if (reached == in->n) {
        p.path_ns = backward(&w, in);
    }
    for (uint32_t i = 0; i < in->n; i++) {
        busy[in->tasks[i].server] += in->tasks[i].ns;
    }
    for (uint32_t s = 0; s < in->n_servers; s++) {
        int64_t lanes = in->lanes != NULL ? in->lanes[s] : 1;
        int64_t least = (busy[s] + lanes - 1) / lanes;
        p.busy_max_ns = least > p.busy_max_ns ? least : p.busy_max_ns;
    }
    if (out != scratch) {
        ru_arena_rewind(scratch, mark);
    }
    if (reached < in->n) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "%u of %u tasks wait for each other in a circle",
                       in->n - reached, in->n);
    }
    *path = p;
    return RU_OK;
}
