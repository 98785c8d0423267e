#include "trace/read/stages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STAGES_MAX = 256, MICRO_MAX = 1 << 16, CUT = 10, CUT_XFER = 3 };

/* One duration of something: means are taken of those with one key. */
typedef struct sample {
    uint64_t key;
    int64_t ns;
} sample;

typedef struct samples {
    sample *at; /* [n] room for n_max */
    int64_t n, n_max;
} samples;

/* Keys: what, then stage or flow, then micro-batch. */
enum { STEP, FORWARD, BACKWARD, UPDATE, INPUT, WAIT, XFER };

static uint64_t key_of(uint32_t what, uint32_t which, uint32_t micro)
{
    return (uint64_t)what << 48 | (uint64_t)which << 24 | micro;
}

static void put(samples *s, uint64_t key, int64_t ns)
{
    if (s->n < s->n_max) {
        s->at[s->n++] = (sample){key, ns};
    }
}

/* To the sample of this key from `mine` on: several pieces of a flow are one. */
static void add(samples *s, int64_t mine, uint64_t key, int64_t ns)
{
    while (mine < s->n && s->at[mine].key != key) {
        mine++;
    }
    if (mine < s->n) {
        s->at[mine].ns += ns;
    } else {
        put(s, key, ns);
    }
}

static int by_key(const void *pa, const void *pb)
{
    const sample *a = pa, *b = pb;
    if (a->key != b->key) {
        return a->key < b->key ? -1 : 1;
    }
    return (a->ns > b->ns) - (a->ns < b->ns);
}

/* Typical is a mean: parts add up to a step, and under a quota of processor time some are many
 * times as long as the others. It leaves out a tenth at each end; of transfers a third, because the
 * first one after a pause is short where links have buffers. Those of a key stand together, by
 * duration. *n: how many; of `whole` (at least) the others took no time. */
static int64_t typical(const samples *s, uint64_t key, int64_t whole, int64_t *n)
{
    int64_t low = 0, high = s->n;
    while (low < high) {
        int64_t mid = low + (high - low) / 2;
        low = s->at[mid].key < key ? mid + 1 : low;
        high = s->at[mid].key < key ? high : mid;
    }
    int64_t end = low, sum = 0;
    while (end < s->n && s->at[end].key == key) {
        end++;
    }
    *n = end - low;
    whole = whole > *n ? whole : *n;
    int64_t none = whole - *n, cut = whole / (key >> 48 == XFER ? CUT_XFER : CUT),
            kept = whole - 2 * cut;
    for (int64_t i = cut > none ? cut - none : 0; i < *n - cut; i++) {
        sum += s->at[low + i].ns;
    }
    return kept > 0 ? sum / kept : 0;
}

/* -- who is who -------------------------------------------------------------------------------- */

typedef struct role {
    unsigned stage, n, micro;
    char schedule[16];
    int first; /* where the name of the layer begins */
} role;

static const char *role_of(const ru_trace *t, role *r)
{
    const char *said = ru_trace_meta_get(t, "pipe");
    bool is = said != NULL && sscanf(said, "%u %u %u %15s %n", &r->stage, &r->n, &r->micro,
                                     r->schedule, &r->first) == 4;
    is = is && r->n <= STAGES_MAX && r->stage < r->n && r->micro > 0 && r->micro <= MICRO_MAX;
    return is ? said : NULL;
}

static bool same_pipe(const role *a, const role *b)
{
    return a->n == b->n && a->micro == b->micro && strcmp(a->schedule, b->schedule) == 0;
}

/* The pipeline of the newest trace; of two traces of one stage the newer one counts. */
static ru_status find_roles(const ru_trace *traces, uint32_t n, ru_arena *arena, ru_trace_pipe *p,
                            ru_err *err)
{
    role newest = {0}, r;
    int64_t at_ns = INT64_MIN;
    for (uint32_t k = 0; k < n; k++) {
        if (role_of(&traces[k], &r) != NULL && traces[k].wall_ns >= at_ns) {
            newest = r;
            at_ns = traces[k].wall_ns;
        }
    }
    *p = (ru_trace_pipe){.n = newest.n,
                         .micro = newest.micro,
                         .schedule = ru_arena_str(arena, newest.schedule),
                         .stages = RU_NEW(arena, ru_stage_time, newest.n + 1)};
    if (p->schedule == NULL || p->stages == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the stages of the trace is full");
    }
    for (uint32_t s = 0; s < p->n; s++) {
        p->stages[s] = (ru_stage_time){.trace = UINT32_MAX, .first = ""};
    }
    for (uint32_t k = 0; k < n; k++) {
        const char *said = role_of(&traces[k], &r);
        if (said != NULL && same_pipe(&r, &newest)) {
            ru_stage_time *s = &p->stages[r.stage];
            bool older = s->trace != UINT32_MAX && traces[s->trace].wall_ns > traces[k].wall_ns;
            s->trace = older ? s->trace : k;
            s->first = older ? s->first : said + r.first;
        }
    }
    return RU_OK;
}

/* The numbers (from 1) in the name of a link. */
static bool is_link(const char *name, unsigned *from, unsigned *to)
{
    return sscanf(name, "stage %u to %u", from, to) == 2 ||
           sscanf(name, "device %u to %u", from, to) == 2;
}

/* The flow with the name of a link; NULL: it is none. */
static ru_stage_flow *flow_named(const ru_trace_pipe *p, const ru_trace *t, int64_t name)
{
    unsigned from, to;
    if (name <= 0 || name >= t->n_names || !is_link(t->names[name].name, &from, &to) || from < 1 ||
        to < 1 || from > p->n || to > p->n) {
        return NULL;
    }
    for (uint32_t k = 0; k < p->n_flows; k++) {
        if (p->flows[k].from == from - 1 && p->flows[k].to == to - 1) {
            return &p->flows[k];
        }
    }
    return NULL;
}

static bool connects(const ru_trace *traces, const ru_trace_pipe *p, uint32_t from, uint32_t to)
{
    unsigned a, b;
    const ru_trace *t = p->stages[from].trace != UINT32_MAX ? &traces[p->stages[from].trace] : NULL;
    for (uint32_t k = 0; t != NULL && k < t->n_names; k++) {
        if (is_link(t->names[k].name, &a, &b) && a == from + 1 && b == to + 1) {
            return true;
        }
    }
    return false;
}

static ru_status find_flows(const ru_trace *traces, ru_arena *arena, ru_trace_pipe *p, ru_err *err)
{
    for (uint32_t turn = 0; turn < 2; turn++) { /* count, then fill */
        uint32_t n = 0;
        for (uint32_t k = 0; k < p->n * p->n; k++) {
            uint32_t from = k / p->n, to = k % p->n;
            if (from == to || !connects(traces, p, from, to) || !connects(traces, p, to, from)) {
                continue;
            }
            if (turn == 1) {
                p->flows[n] = (ru_stage_flow){
                    .from = from, .to = to, .wait_ns = RU_NEW(arena, int64_t, p->micro)};
            }
            n++;
        }
        p->n_flows = n;
        p->flows = turn == 0 ? RU_NEW(arena, ru_stage_flow, n + 1) : p->flows;
        if (p->flows == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "the arena for the stages of the trace is full");
        }
    }
    for (uint32_t k = 0; k < p->n_flows; k++) {
        if (p->flows[k].wait_ns == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "the arena for the stages of the trace is full");
        }
    }
    return RU_OK;
}

/* -- parts of a step --------------------------------------------------------------------------- */

static uint32_t part_of(const ru_trace *t, const ru_record *r)
{
    static const char *const parts[] = {"step", "forward", "backward", "update", "input"};
    const ru_trace_name *name = &t->names[r->name];
    uint32_t k = 0;
    while (k < RU_ARRAY_LEN(parts) && strcmp(parts[k], name->name) != 0) {
        k++;
    }
    bool is = r->kind == RU_REC_SPAN && strcmp(name->category, "train") == 0;
    return is ? k : (uint32_t)RU_ARRAY_LEN(parts);
}

/* The waits inside of spans[0], a part, which are told by their link, and reading. Returns the sum.
 */
static int64_t rests_in(const ru_trace_pipe *p, const ru_trace *t, const ru_trace_span *spans,
                        int64_t n, uint32_t stage, samples *out)
{
    int64_t sum = 0, mine = out->n;
    for (int64_t i = 1; i < n && spans[i].start_ns < spans[0].end_ns; i++) {
        const ru_record *r = spans[i].record;
        int64_t ns = spans[i].end_ns - spans[i].start_ns;
        bool waits = r->kind == RU_REC_WAIT;
        const ru_stage_flow *f = waits ? flow_named(p, t, r->value) : NULL;
        if (!waits && part_of(t, r) != INPUT) {
            continue;
        }
        sum += ns;
        if (f != NULL && f->to == stage) {
            uint32_t micro = (uint32_t)spans[0].record->value % p->micro;
            add(out, mine, key_of(WAIT, (uint32_t)(f - p->flows), micro), ns);
        }
    }
    return sum;
}

static ru_status parts_of(const ru_trace_pipe *p, const ru_trace *t, uint32_t stage,
                          ru_arena *arena, samples *out, ru_err *err)
{
    for (uint32_t h = 0; h < t->n_threads; h++) {
        ru_trace_span *spans;
        int64_t n;
        RU_TRY(ru_trace_spans(&t->threads[h], arena, &spans, &n, err));
        for (int64_t i = 0; i < n; i++) {
            uint32_t what = part_of(t, spans[i].record);
            int64_t ns = spans[i].end_ns - spans[i].start_ns;
            if (what == FORWARD || what == BACKWARD) {
                ns -= rests_in(p, t, &spans[i], n - i, stage, out);
            }
            if (what <= INPUT) {
                put(out, key_of(what, stage, 0), ns);
            }
        }
    }
    return RU_OK;
}

/* -- transfers --------------------------------------------------------------------------------- */

/* One end of a piece. */
typedef struct end {
    uint64_t flow;
    uint32_t number; /* of the micro-batch, in all */
    uint32_t which;  /* flow between stages */
    int64_t at_ns;   /* first byte at the sender, last one at the receiver; on one clock */
    int64_t bytes;
} end;

static int by_flow(const void *pa, const void *pb)
{
    const end *a = pa, *b = pb;
    if (a->flow != b->flow) {
        return a->flow < b->flow ? -1 : 1;
    }
    return (a->number > b->number) - (a->number < b->number);
}

static int64_t ends_of(const ru_trace_pipe *p, const ru_trace *t, uint32_t k,
                       const ru_trace_clocks *clocks, ru_rec_kind kind, end *at)
{
    int64_t n = 0;
    for (uint32_t h = 0; h < t->n_threads; h++) {
        for (int64_t i = 0; i < t->threads[h].n; i++) {
            const ru_record *r = &t->threads[h].records[i];
            const ru_record_more *m =
                r->kind == (uint16_t)kind ? ru_trace_more(&t->threads[h], r) : NULL;
            const ru_stage_flow *f = m != NULL ? flow_named(p, t, m->label) : NULL;
            if (f == NULL || (m->flags & RU_REC_FAILED) != 0) {
                continue;
            }
            int64_t own = kind == RU_REC_SEND ? r->start_ns + m->wait_ns : r->start_ns + r->dur_ns;
            at[n++] = (end){.flow = m->flow,
                            .number = m->step,
                            .which = (uint32_t)(f - p->flows),
                            .at_ns = ru_trace_global(clocks, k, own),
                            .bytes = r->value};
        }
    }
    return n;
}

/* A piece whose both ends are known. */
typedef struct piece {
    uint64_t micro; /* flow between stages, number of the micro-batch */
    uint32_t from;  /* stage */
    int64_t start_ns, end_ns, ns, bytes;
} piece;

static int by_end(const void *pa, const void *pb)
{
    const piece *a = pa, *b = pb;
    if (a->from != b->from) {
        return a->from < b->from ? -1 : 1;
    }
    if (a->end_ns != b->end_ns) {
        return a->end_ns < b->end_ns ? -1 : 1;
    }
    return (a->micro > b->micro) - (a->micro < b->micro);
}

/* How long each occupies the link of its sender, where it queues behind the one before. */
static void set_times(piece *at, int64_t n)
{
    qsort(at, (size_t)n, sizeof *at, by_end);
    for (int64_t i = 0; i < n; i++) {
        bool behind = i > 0 && at[i - 1].from == at[i].from;
        int64_t from = at[i].start_ns;
        from = behind && at[i - 1].end_ns > from ? at[i - 1].end_ns : from;
        at[i].ns = at[i].end_ns > from ? at[i].end_ns - from : 0;
    }
}

static int by_micro(const void *pa, const void *pb)
{
    const piece *a = pa, *b = pb;
    return (a->micro > b->micro) - (a->micro < b->micro);
}

/* Pieces of one micro-batch follow each other on the link. */
static void add_pieces(ru_trace_pipe *p, piece *at, int64_t n, samples *out)
{
    qsort(at, (size_t)n, sizeof *at, by_micro);
    for (int64_t from = 0, to; from < n; from = to) {
        int64_t ns = 0, bytes = 0;
        for (to = from; to < n && at[to].micro == at[from].micro; to++) {
            ns += at[to].ns;
            bytes += at[to].bytes;
        }
        ru_stage_flow *f = &p->flows[at[from].micro >> 32];
        f->bytes = bytes > f->bytes ? bytes : f->bytes; /* the first one may lack pieces */
        put(out, key_of(XFER, (uint32_t)(at[from].micro >> 32), 0), ns);
    }
}

static ru_status transfers(const ru_trace *traces, const ru_trace_clocks *clocks, ru_trace_pipe *p,
                           ru_arena *arena, samples *out, ru_err *err)
{
    int64_t most = 0, n_sent = 0, n_came = 0, n = 0;
    for (uint32_t s = 0; s < p->n; s++) {
        uint32_t k = p->stages[s].trace;
        most += k != UINT32_MAX ? traces[k].records : 0;
    }
    end *sent = RU_NEW(arena, end, most + 1), *came = RU_NEW(arena, end, most + 1);
    piece *pieces = RU_NEW(arena, piece, most + 1);
    if (sent == NULL || came == NULL || pieces == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the stages of the trace is full");
    }
    for (uint32_t s = 0; s < p->n; s++) {
        uint32_t k = p->stages[s].trace;
        if (k != UINT32_MAX) {
            n_sent += ends_of(p, &traces[k], k, clocks, RU_REC_SEND, sent + n_sent);
            n_came += ends_of(p, &traces[k], k, clocks, RU_REC_RECV, came + n_came);
        }
    }
    qsort(sent, (size_t)n_sent, sizeof *sent, by_flow);
    for (int64_t i = 0; i < n_came; i++) {
        const end *x =
            n_sent > 0 ? bsearch(&came[i], sent, (size_t)n_sent, sizeof *sent, by_flow) : NULL;
        if (x != NULL && x->which == came[i].which) {
            pieces[n++] = (piece){.micro = (uint64_t)x->which << 32 | x->number,
                                  .from = p->flows[x->which].from,
                                  .start_ns = x->at_ns,
                                  .end_ns = came[i].at_ns,
                                  .bytes = came[i].bytes};
        }
    }
    set_times(pieces, n);
    add_pieces(p, pieces, n, out);
    return RU_OK;
}

/* -- all --------------------------------------------------------------------------------------- */

static void fill(ru_trace_pipe *p, const samples *all)
{
    int64_t n;
    for (uint32_t s = 0; s < p->n; s++) {
        ru_stage_time *t = &p->stages[s];
        t->step_ns = typical(all, key_of(STEP, s, 0), 0, &t->steps);
        t->forward_ns = typical(all, key_of(FORWARD, s, 0), 0, &n);
        t->parts = t->steps > 0 ? (double)n / (double)t->steps : 0;
        t->backward_ns = typical(all, key_of(BACKWARD, s, 0), 0, &n);
        t->update_ns = typical(all, key_of(UPDATE, s, 0), 0, &n);
        t->updates = t->steps > 0 ? (double)n / (double)t->steps : 0;
        t->input_ns = typical(all, key_of(INPUT, s, 0), 0, &n);
    }
    for (uint32_t k = 0; k < p->n_flows; k++) {
        ru_stage_flow *f = &p->flows[k];
        f->xfer_ns = typical(all, key_of(XFER, k, 0), 0, &f->n);
        for (uint32_t j = 0; j < p->micro; j++) {
            int64_t steps = p->stages[f->to].steps;
            f->wait_ns[j] = typical(all, key_of(WAIT, k, j), steps, &n);
            if (n > steps && steps > 0) { /* of several parts */
                f->wait_ns[j] = (int64_t)((double)f->wait_ns[j] * (double)n / (double)steps);
            }
        }
    }
}

ru_status ru_trace_pipe_read(const ru_trace *traces, uint32_t n, const ru_trace_clocks *clocks,
                             ru_arena *arena, ru_trace_pipe *out, ru_err *err)
{
    ru_trace_pipe p;
    samples all = {0};
    RU_TRY(find_roles(traces, n, arena, &p, err));
    RU_TRY(find_flows(traces, arena, &p, err));
    for (uint32_t k = 0; k < n; k++) {
        all.n_max += traces[k].records;
    }
    all.at = RU_NEW(arena, sample, all.n_max + 1);
    if (all.at == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the stages of the trace is full");
    }
    for (uint32_t s = 0; s < p.n; s++) {
        uint32_t k = p.stages[s].trace;
        RU_TRY(k != UINT32_MAX ? parts_of(&p, &traces[k], s, arena, &all, err) : RU_OK);
    }
    RU_TRY(transfers(traces, clocks, &p, arena, &all, err));
    qsort(all.at, (size_t)all.n, sizeof *all.at, by_key);
    fill(&p, &all);
    *out = p;
    return RU_OK;
}
