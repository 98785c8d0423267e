/* From steps to addresses: lifetimes, sharing, one allocation.
 *
 * 1. A buffer lives from the first to the last run step that mentions it or a view of it.
 * 2. An update writes its state in place when every other use of the state comes before the step
 * that makes the new value (that step itself may read it when the kernel said so).
 * With option two_phase only steps of the update phase do so; what was made before is copied at the
 * end.
 * 3. A result takes the memory of an operand that dies in its step when the kernel said so.
 * 4. What is left goes through the planner of plan/step/mem.h. */
#include "env/process/memory.h"
#include "exec/cpu/low/update.h"
#include "plan/row/policy.h"
#include "plan/step/mem_policy.h"

#include <string.h>

enum { ALIGN = 64, GUARD = 64, CANARY = 0xc5 };

#define LOOK_BYTES (INT64_C(256) << 20)
#define GIB        1073741824.0

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

static void mention_all(rui_low *lo)
{
    for (uint32_t i = 0; i < lo->run.n; i++) {
        const rui_step_rec *r = &lo->run.at[i];
        for (uint32_t k = 0; k < r->s.n_bufs && i < lo->update_begin; k++) {
            if (r->s.bufs[k].v == 0) {
                continue;
            }
            rui_buf_rec *b = &lo->bufs[rui_root(lo, r->s.bufs[k])];
            b->first = b->first == UINT32_MAX ? i : b->first;
            b->last = i;
        }
    }
}

/* Does `over` (through views) name the root `root`? */
static bool over_is(const rui_low *lo, uint32_t over, uint32_t root)
{
    return over != 0 && rui_root(lo, (rui_buf){over}) == root;
}

/* Rule 2. The step is dropped by giving it no buffers to copy. */
static void updates_in_place(rui_low *lo)
{
    for (uint32_t i = lo->update_begin; i < lo->run.n; i++) {
        rui_step_rec *r = &lo->run.at[i];
        uint32_t from = r->s.bufs[0].v;
        uint32_t state = r->s.bufs[1].v;
        rui_buf_rec *b = &lo->bufs[from];
        const rui_buf_rec *s = &lo->bufs[state];
        bool early = s->first == UINT32_MAX || s->last < b->first ||
                     (s->last == b->first && over_is(lo, b->over, state));
        bool own = b->root == from && b->kind == RUI_BUF_TEMP && b->first != UINT32_MAX;
        bool held = lo->opt.two_phase && b->first < lo->update_from;
        if (own && early && !held && !lo->opt.keep_temps) {
            b->root = state;
            b->offset_bytes = 0;
            r->s.fn = NULL;
        } else {
            rui_buf_rec *root = &lo->bufs[rui_root(lo, r->s.bufs[0])];
            root->pinned = true;
        }
    }
    uint32_t n = lo->update_begin;
    for (uint32_t i = lo->update_begin; i < lo->run.n; i++) {
        if (lo->run.at[i].s.fn != NULL) {
            lo->run.at[n++] = lo->run.at[i];
        } else if (lo->run.at[i].s.fini != NULL) {
            lo->run.at[i].s.fini(lo->run.at[i].s.state);
        }
    }
    lo->run.n = n;
}

/* Rule 3, in the order buffers were made, so that chains share one place. */
static void results_in_place(rui_low *lo)
{
    for (uint32_t i = 1; i < lo->n_bufs; i++) {
        rui_buf_rec *b = &lo->bufs[i];
        if (b->over == 0 || b->root != i || b->kind != RUI_BUF_TEMP || lo->opt.keep_temps ||
            b->first == UINT32_MAX) {
            continue;
        }
        int64_t offset = 0;
        uint32_t o = b->over;
        for (; lo->bufs[o].root != o; o = lo->bufs[o].root) {
            offset += lo->bufs[o].offset_bytes;
        }
        rui_buf_rec *root = &lo->bufs[o];
        if (o != i && root->kind == RUI_BUF_TEMP && !root->pinned && !root->kept &&
            root->last == b->first && offset + b->size_bytes <= root->size_bytes) {
            b->root = o;
            b->offset_bytes = offset;
            root->last = b->last;
            root->pinned = b->pinned;
            root->kept = b->kept;
        }
    }
}

static bool in_arena(const rui_low *lo, uint32_t i)
{
    const rui_buf_rec *b = &lo->bufs[i];
    return (b->kind == RUI_BUF_TEMP || b->kind == RUI_BUF_SCRATCH) && b->root == i && i != 0 &&
           (b->first != UINT32_MAX || b->pinned);
}

/* Does its memory come from ru_exe_together_open? */
static bool is_later(const rui_low *lo, uint32_t i)
{
    const rui_buf_rec *b = &lo->bufs[i];
    bool input = b->kind == RUI_BUF_INPUT && b->root == i && i != 0;
    return lo->how.together && (input || in_arena(lo, i));
}

/* Rule 4. The plan is checked before it is believed. */
static ru_status place_all(rui_low *lo, ru_mem_buf *bufs, const uint32_t *which, uint32_t n,
                           ru_arena *scratch, ru_err *err)
{
    const ru_mem_in in = {.bufs = bufs, .n = n, .align_bytes = ALIGN};
    ru_mem_plan plan;
    RU_TRY(ru_plan_mem(&in, scratch, scratch, &plan, err));
    RU_TRY(ru_plan_mem_check(&in, &plan, scratch, err));
    for (uint32_t i = 0; i < n; i++) {
        lo->bufs[which[i]].at_bytes = plan.offsets[i];
    }
    ru_mem_policy_in *kept = rui_keep(lo, sizeof *kept);
    ru_mem_buf *copy = ru_arena_copy(lo->arena, bufs, (int64_t)n * (int64_t)sizeof *bufs, 8);
    if (kept == NULL || copy == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory to keep the plan of %u buffers", n);
    }
    *kept = ru_mem_policy_in_of(&in);
    kept->bufs.at = copy;
    rui_low_installed(lo, &ru_policy_mem, kept);
    lo->arena_bytes = plan.peak_bytes;
    lo->arena_bound_bytes = plan.bound_bytes;
    return RU_OK;
}

/* Bytes to set aside: a guarded executable has a zone behind every buffer. */
static int64_t guarded(const rui_low *lo, const rui_buf_rec *b)
{
    return b->size_bytes + (lo->how.guard ? GUARD : 0);
}

/* The most that lives at one time if no update stays open beside the next run. */
static ru_status find_alone(rui_low *lo, const uint32_t *which, uint32_t n, ru_arena *scratch,
                            ru_err *err)
{
    int64_t *change = RU_NEW(scratch, int64_t, (int64_t)lo->run.n + 2), live = 0, most = 0;
    if (change == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory to plan %u buffers", n);
    }
    for (uint32_t k = 0; k < n; k++) {
        const rui_buf_rec *b = &lo->bufs[which[k]];
        int64_t size = (guarded(lo, b) + ALIGN - 1) / ALIGN * ALIGN;
        uint32_t first = b->first, last = b->last;
        rui_update_lives(lo, which[k], false, &first, &last);
        change[first] += size;
        change[last + 1] -= size;
    }
    for (uint32_t i = 0; i <= lo->run.n; i++) {
        live += change[i];
        most = live > most ? live : most;
    }
    lo->up->alone_bound_bytes = most;
    return RU_OK;
}

uint32_t rui_low_bufs(rui_low *lo, ru_mem_buf *bufs, uint32_t *which)
{
    uint32_t n = 0;
    for (uint32_t i = 1; i < lo->n_bufs; i++) {
        rui_buf_rec *b = &lo->bufs[i];
        if (!in_arena(lo, i) && !is_later(lo, i)) {
            continue;
        }
        b->first = b->first == UINT32_MAX ? 0 : b->first;
        b->last = b->pinned || lo->how.guard ? lo->run.n : b->last;
        b->first = lo->how.guard ? 0 : b->first;
        bufs[n] = (ru_mem_buf){.size_bytes = guarded(lo, b), .first = b->first, .last = b->last};
        rui_update_lives(lo, i, lo->opt.overlap, &bufs[n].first, &bufs[n].last);
        which[n++] = i;
    }
    return n;
}

static ru_status plan_arena(rui_low *lo, ru_err *err)
{
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_mem_buf *bufs = RU_NEW(&scratch, ru_mem_buf, lo->n_bufs);
    uint32_t *which = RU_NEW(&scratch, uint32_t, lo->n_bufs), n = 0;
    ru_status st = RU_OK;
    if (bufs == NULL || which == NULL) {
        st = RU_FAIL(err, RU_E_MEM, "no memory to plan %u buffers", lo->n_bufs);
        goto out;
    }
    n = rui_low_bufs(lo, bufs, which);
    st = place_all(lo, bufs, which, n, &scratch, err);
    st = st == RU_OK && lo->opt.overlap ? find_alone(lo, which, n, &scratch, err) : st;
out:
    ru_arena_fini(&scratch);
    return st;
}

static int64_t *total_of(rui_low *lo, rui_buf_kind kind)
{
    switch (kind) {
    case RUI_BUF_STATE:
        return &lo->state_bytes;
    case RUI_BUF_PACKED:
        return &lo->const_bytes;
    case RUI_BUF_INPUT:
    case RUI_BUF_OUTPUT:
        return &lo->io_bytes;
    case RUI_BUF_TEMP:
    case RUI_BUF_SCRATCH:
    case RUI_BUF_DATA:
    case RUI_BUF_SHARED:
        break;
    }
    return NULL;
}

/* Scratch of preparing steps (packing weights for Winograd needs some) is not part of the run: one
 * place serves all, because they run one after the other. Returns its end. */
static int64_t place_prep_scratch(rui_low *lo, int64_t at)
{
    int64_t most = 0;
    for (uint32_t i = 1; i < lo->n_bufs; i++) {
        rui_buf_rec *b = &lo->bufs[i];
        if (b->kind == RUI_BUF_SCRATCH && b->root == i && !in_arena(lo, i)) {
            b->at_bytes = at;
            most = b->size_bytes > most ? b->size_bytes : most;
        }
    }
    return at + round_up(most, ALIGN);
}

/* Fixed places for inputs and outputs, or for what stays from run to run. Returns their end. */
static int64_t place_fixed(rui_low *lo, bool io, int64_t at)
{
    for (uint32_t i = 1; i < lo->n_bufs; i++) {
        rui_buf_rec *b = &lo->bufs[i];
        int64_t *total = total_of(lo, b->kind);
        if (total != NULL && b->root == i && (total == &lo->io_bytes) == io && !is_later(lo, i)) {
            b->at_bytes = at;
            at += round_up(guarded(lo, b), ALIGN);
            *total += round_up(b->size_bytes, ALIGN);
        }
    }
    return at;
}

/* The system gives memory that is not there and kills who uses it: look first, where it is much. */
ru_status rui_low_free(int64_t need_bytes, const char *at_least, ru_err *err)
{
    if (need_bytes < LOOK_BYTES) {
        return RU_OK;
    }
    int64_t free_bytes = ru_memory_free_bytes();
    if (free_bytes < 0 || need_bytes <= free_bytes) {
        return RU_OK;
    }
    return RU_FAIL(err, RU_E_MEM,
                   "the executable needs %s%.3g GiB of memory, but %.3g GiB are free", at_least,
                   (double)need_bytes / GIB, (double)free_bytes / GIB);
}

ru_status rui_low_fits(const ru_graph *g, ru_err *err)
{
    int64_t most = 0;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const ru_node *n = &g->nodes[i];
        int64_t sum = 0;
        for (uint32_t k = 0; k < n->n_in + n->n_out; k++) {
            ru_value_id v = k < n->n_in ? n->in[k] : n->out[k - n->n_in];
            int64_t bytes = v.v != 0 ? ru_type_bytes(&g->values[v.v].type) : 0;
            sum = bytes > INT64_MAX - sum ? INT64_MAX : sum + bytes;
        }
        most = sum > most ? sum : most;
    }
    return rui_low_free(most, "at least ", err);
}

/* The arena, what passes through from run to run, what stays; then the memory itself. */
static ru_status allocate(rui_low *lo, ru_err *err)
{
    int64_t passing = place_prep_scratch(lo, round_up(lo->arena_bytes, ALIGN));
    passing = place_fixed(lo, true, passing);
    int64_t at = place_fixed(lo, false, passing);
    if (lo->inference && at - passing >= RU_MEMORY_LARGE_BYTES) {
        /* on large pages of its own, which stay whole when the rest is given back (rest) */
        lo->state_bytes = lo->const_bytes = 0;
        at = place_fixed(lo, false, round_up(passing, RU_MEMORY_PAGE_BYTES));
    }
    lo->memory_bytes = at < ALIGN ? ALIGN : at;
    RU_TRY(rui_low_free(lo->memory_bytes, "", err));
    lo->memory = ru_memory_map(lo->memory_bytes);
    if (lo->memory == NULL) {
        return RU_FAIL(err, RU_E_MEM,
                       "the executable needs %lld MiB of memory, which this machine does not have",
                       (long long)(lo->memory_bytes >> 20));
    }
    for (uint32_t i = 1; i < lo->n_bufs; i++) {
        rui_buf_rec *b = &lo->bufs[i];
        if (b->root == i && b->kind != RUI_BUF_DATA && b->kind != RUI_BUF_SHARED &&
            !is_later(lo, i)) {
            b->ptr = lo->memory + b->at_bytes;
        }
    }
    return RU_OK;
}

static bool is_fixed(rui_buf_kind kind)
{
    return kind != RUI_BUF_TEMP && kind != RUI_BUF_SCRATCH && kind != RUI_BUF_DATA &&
           kind != RUI_BUF_SHARED;
}

/* Does buffer i have a guard zone? Scratch of preparing steps shares one place and has none. */
static bool has_guard(const rui_low *lo, uint32_t i)
{
    const rui_buf_rec *b = &lo->bufs[i];
    bool shared = b->kind == RUI_BUF_SCRATCH && !in_arena(lo, i);
    return lo->how.guard && b->root == i && b->kind != RUI_BUF_DATA && b->ptr != NULL && !shared &&
           (in_arena(lo, i) || is_fixed(b->kind));
}

static void set_guards(rui_low *lo)
{
    for (uint32_t i = 1; i < lo->n_bufs; i++) {
        if (has_guard(lo, i)) {
            memset((uint8_t *)lo->bufs[i].ptr + lo->bufs[i].size_bytes, CANARY, GUARD);
        }
    }
}

/* The last step that was given root buffer i. */
static const char *last_kernel(const rui_low *lo, uint32_t i)
{
    const char *kernel = "a preparing step";
    for (uint32_t s = 0; s < lo->run.n; s++) {
        for (uint32_t k = 0; k < lo->run.at[s].s.n_bufs; k++) {
            rui_buf b = lo->run.at[s].s.bufs[k];
            kernel = b.v != 0 && rui_root(lo, b) == i ? lo->run.at[s].s.kernel : kernel;
        }
    }
    return kernel;
}

ru_status rui_low_guards(const rui_low *lo, ru_err *err)
{
    for (uint32_t i = 1; i < lo->n_bufs; i++) {
        if (!has_guard(lo, i)) {
            continue;
        }
        const uint8_t *tail = (const uint8_t *)lo->bufs[i].ptr + lo->bufs[i].size_bytes;
        for (uint32_t k = 0; k < GUARD; k++) {
            if (tail[k] != CANARY) {
                return RU_FAIL(err, RU_E_BUG,
                               "a kernel wrote byte %u after the end of buffer %u of %lld bytes; "
                               "%s used it last",
                               k, i, (long long)lo->bufs[i].size_bytes, last_kernel(lo, i));
            }
        }
    }
    return RU_OK;
}

void *rui_buf_ptr(const rui_low *lo, rui_buf b)
{
    if (b.v == 0) {
        return NULL;
    }
    int64_t offset = 0;
    uint32_t i = b.v;
    for (; lo->bufs[i].root != i; i = lo->bufs[i].root) {
        offset += lo->bufs[i].offset_bytes;
    }
    return lo->bufs[i].ptr == NULL ? NULL : (uint8_t *)lo->bufs[i].ptr + offset;
}

static ru_status bind_list(rui_low *lo, rui_step_list *list, ru_err *err)
{
    for (uint32_t i = 0; i < list->n; i++) {
        rui_step_rec *r = &list->at[i];
        for (uint32_t k = 0; k < r->s.n_bufs; k++) {
            r->ptrs[k] = rui_buf_ptr(lo, r->s.bufs[k]);
        }
        if (r->s.bind != NULL) {
            RU_TRY(r->s.bind(r->s.state, r->ptrs, err));
        }
    }
    return RU_OK;
}

ru_status rui_low_bind(rui_low *lo, ru_err *err)
{
    RU_TRY(bind_list(lo, &lo->run, err));
    return rui_update_bound(lo, err);
}

ru_status rui_low_plan(rui_low *lo, ru_err *err)
{
    RU_TRY(rui_share_packed(lo, err));
    mention_all(lo);
    rui_low_note_makers(lo);
    RU_TRY(rui_grads_plan(lo, err));
    updates_in_place(lo);
    results_in_place(lo);
    RU_TRY(rui_update_plan(lo, err));
    RU_TRY(lo->how.together ? RU_OK : plan_arena(lo, err));
    if (lo->status != RU_OK) {
        return ru_err_set(err, lo->status, "%s", lo->err.text);
    }
    RU_TRY(allocate(lo, err));
    set_guards(lo);
    RU_TRY(bind_list(lo, &lo->prep, err));
    return lo->how.together ? RU_OK : rui_low_bind(lo, err);
}
