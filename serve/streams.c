#include "serve/streams.h"

#include <stdlib.h>

#include "env/clock.h"

/* What a piece of a prompt adds to a step is about so much of it: also one in a hundred should take
 * less than twice as long. */
enum { PIECE_PERCENT = 50 };

/* Of a prompt that joins a step: positions that cost little beside any; rows that read a position
 * together; rows below which a piece by itself is faster, but at its end. */
enum { SEEN_MIN = 64, TOGETHER = 16, JOIN_MIN = 4 };

typedef struct place {
    ru_stream *stream; /* NULL: free */
    uint64_t turn;     /* who asked first */
    int64_t rows;      /* of it in what was chosen last; the last one may be wanted */
} place;

typedef struct batch {
    ru_steps_row *rows; /* [n] of rows_max */
    int64_t n, n_wanted;
} batch;

struct ru_streams {
    ru_arena arena;
    ru_steps *steps;
    ru_steps_facts facts;
    place *places;      /* [slots] */
    ru_stream *waiting; /* by priority, then by who asked first */
    uint64_t turns;
    batch step, piece; /* piece.n > 0: it is under way */
    ru_pace pace;
    float *scratch;  /* [vocab] */
    uint32_t *order; /* [vocab] */
};

ru_status ru_streams_open(ru_steps *steps, ru_streams **out, ru_err *err)
{
    ru_streams *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for texts under way");
    }
    ru_arena_init(&s->arena, 0);
    s->steps = steps;
    s->facts = ru_steps_facts_get(steps);
    s->places = RU_NEW(&s->arena, place, s->facts.slots);
    s->step.rows = RU_NEW(&s->arena, ru_steps_row, s->facts.rows_max);
    s->piece.rows = RU_NEW(&s->arena, ru_steps_row, s->facts.rows_max);
    s->scratch = RU_NEW(&s->arena, float, s->facts.vocab);
    s->order = RU_NEW(&s->arena, uint32_t, s->facts.vocab);
    if (s->places == NULL || s->step.rows == NULL || s->piece.rows == NULL || s->scratch == NULL ||
        s->order == NULL) {
        ru_streams_close(s);
        return RU_FAIL(err, RU_E_MEM, "no memory for texts under way");
    }
    s->pace = (ru_pace){
        .rows = s->facts.piece_min, .rows_min = s->facts.piece_min, .rows_max = s->facts.rows_max};
    for (uint32_t k = 0; INT64_C(1) << k <= s->facts.rows_max; k++) {
        s->pace.opened_ns[k] = ru_steps_opened_ns(steps, INT64_C(1) << k);
    }
    *out = s;
    return RU_OK;
}

void ru_streams_close(ru_streams *s)
{
    if (s != NULL) {
        ru_arena_fini(&s->arena);
        free(s);
    }
}

void ru_streams_ask(ru_streams *s, ru_stream *t)
{
    t->n = t->n_prompt;
    t->cached = 0;
    t->end = RU_STREAM_RUNS;
    t->leaves = false;
    ru_stream **at = &s->waiting;
    while (*at != NULL && (*at)->priority <= t->priority) {
        at = &(*at)->next;
    }
    t->next = *at;
    *at = t;
}

void ru_streams_drop(ru_stream *t)
{
    t->leaves = true;
}

/* -- who is in ---------------------------------------------------------------------------------
 */

/* A piece that has rows of this slot is forgotten: the prompts of others begin it again. */
static void forget(ru_streams *s, int64_t slot)
{
    bool has = false;
    for (int64_t i = 0; i < s->piece.n; i++) {
        has = has || s->piece.rows[i].slot == slot;
    }
    s->piece.n = has ? 0 : s->piece.n;
}

static void leave(ru_streams *s)
{
    for (int64_t k = 0; k < s->facts.slots; k++) {
        ru_stream *t = s->places[k].stream;
        if (t != NULL && t->leaves) {
            t->end = RU_STREAM_DROPPED;
            s->places[k].stream = NULL;
            forget(s, k);
        }
    }
    for (ru_stream **at = &s->waiting; *at != NULL;) {
        ru_stream *t = *at;
        if (t->leaves) {
            *at = t->next;
            t->end = RU_STREAM_DROPPED;
        } else {
            at = &t->next;
        }
    }
}

static void enter(ru_streams *s)
{
    for (int64_t k = 0; k < s->facts.slots && s->waiting != NULL; k++) {
        if (s->places[k].stream == NULL) {
            s->places[k] = (place){.stream = s->waiting, .turn = s->turns++};
            s->waiting = s->waiting->next;
        }
    }
}

/* -- a step ------------------------------------------------------------------------------------
 */

static int64_t left_of(const place *p)
{
    return p->stream == NULL ? 0 : p->stream->n - p->stream->cached;
}

/* Are the logits of position `at` asked? */
static bool wants(const ru_stream *t, int64_t at)
{
    return at == t->n - 1 ? t->n < t->n_max : t->scores != NULL && t->scores->prompt;
}

/* At most `n` rows of it, as many as there may be wanted ones. */
static void put_rows(ru_streams *s, batch *b, int64_t slot, int64_t n)
{
    place *p = &s->places[slot];
    const ru_stream *t = p->stream;
    for (int64_t k = 0; k < n; k++) {
        int64_t at = t->cached + k;
        bool wanted = wants(t, at);
        if (wanted && b->n_wanted == s->facts.slots) {
            return;
        }
        b->n_wanted += wanted ? 1 : 0;
        b->rows[b->n++] =
            (ru_steps_row){.token = t->tokens[at], .slot = slot, .at = at, .wanted = wanted};
        p->rows++;
    }
}

static uint32_t size_of(int64_t rows)
{
    uint32_t k = 0;
    while (k + 1 < RU_PACE_SIZES && INT64_C(1) << k < rows) {
        k++;
    }
    return k;
}

int64_t ru_pace_joined(const ru_pace *p, int64_t going, int64_t going_see, int64_t at, int64_t left)
{
    int64_t most = going, without = p->opened_ns[size_of(going)];
    for (int64_t n = 1; n <= p->rows_max; n *= 2) {
        int64_t more = n - going, seen = (at + more) * ((more + TOGETHER - 1) / TOGETHER);
        if (more > 0 && (seen <= SEEN_MIN || 100 * seen <= PIECE_PERCENT * going_see) &&
            100 * p->opened_ns[size_of(n)] <= (100 + PIECE_PERCENT) * without) {
            most = n;
        }
    }
    return most - going < left && most - going < JOIN_MIN ? going : most;
}

int64_t ru_pace_budget_ns(ru_pace *p, int64_t ns)
{
    double x = (double)ns, most = 2 * p->alone_ns;
    p->alone_ns += p->alone_ns == 0 ? x : ((x > most ? most : x) - p->alone_ns) / 4;
    return (int64_t)(x < p->alone_ns ? x : p->alone_ns) * PIECE_PERCENT / 100;
}

void ru_pace_learn(ru_pace *p, int64_t ns)
{
    double budget = p->alone_ns * PIECE_PERCENT / 100;
    if ((double)ns > budget && p->rows > p->rows_min) {
        p->rows /= 2;
    } else if (2 * (double)ns <= budget && p->rows < p->rows_max) {
        p->rows *= 2;
    }
}

static bool before(const place *a, const place *b)
{
    uint32_t x = a->stream->priority, y = b->stream->priority;
    return x != y ? x < y : a->turn < b->turn;
}

static bool reads_before(const place *a, const place *b)
{
    int64_t x = a->stream->cached, y = b->stream->cached;
    return x != y ? x > y : a->turn < b->turn;
}

/* Which place of its kin has read most, or came first; -1: none, or it must read by itself. */
static int64_t reader_of(const ru_streams *s, const place *p)
{
    const ru_stream *t = p->stream;
    bool alone = t->kin == 0 || (t->scores != NULL && t->scores->prompt);
    int64_t found = -1;
    for (int64_t k = 0; !alone && k < s->facts.slots; k++) {
        const place *q = &s->places[k];
        if (q != p && q->stream != NULL && q->stream->kin == t->kin &&
            (found < 0 || reads_before(q, &s->places[found]))) {
            found = k;
        }
    }
    return found;
}

/* Those whose prompt another one has read take what it made of all but the last token, whose logits
 * they need. One whose step failed gives nothing. */
static void share(ru_streams *s)
{
    for (int64_t k = 0; k < s->facts.slots; k++) {
        ru_stream *t = s->places[k].stream;
        int64_t most = t != NULL && t->cached == 0 ? t->n_prompt - 1 : 0,
                from = most > 0 ? reader_of(s, &s->places[k]) : -1;
        if (from >= 0 && s->places[from].stream->cached >= most &&
            s->places[from].stream->end != RU_STREAM_FAILED) {
            ru_steps_copy(s->steps, from, k, most);
            t->cached = most;
        }
    }
}

/* Does one of its kin read the prompt for it? */
static bool is_read(const ru_streams *s, const place *p)
{
    int64_t by = p->stream->cached == 0 ? reader_of(s, p) : -1;
    return by >= 0 && reads_before(&s->places[by], p);
}

/* The first of the streams whose prompts are not in and have no piece yet; -1: none. */
static int64_t next_prompt(const ru_streams *s)
{
    int64_t found = -1;
    for (int64_t k = 0; k < s->facts.slots; k++) {
        const place *p = &s->places[k];
        if (left_of(p) > 1 && p->rows == 0 && !is_read(s, p) &&
            (found < 0 || before(p, &s->places[found]))) {
            found = k;
        }
    }
    return found;
}

/* Prompts fill the batch up to `most` rows. */
static void put_prompts(ru_streams *s, batch *b, int64_t most)
{
    for (int64_t k = next_prompt(s); k >= 0 && b->n < most; k = next_prompt(s)) {
        int64_t left = left_of(&s->places[k]), room = most - b->n;
        put_rows(s, b, k, left < room ? left : room);
        if (s->places[k].rows == 0) {
            break;
        }
    }
}

static void choose_rows(ru_streams *s)
{
    int64_t see = 0;
    s->step.n = s->step.n_wanted = 0;
    for (int64_t k = 0; k < s->facts.slots; k++) {
        s->places[k].rows = 0;
        if (left_of(&s->places[k]) == 1) {
            put_rows(s, &s->step, k, 1);
            see += s->places[k].stream->cached + 1;
        }
    }
    int64_t going = s->step.n, k = s->piece.n > 0 ? -1 : next_prompt(s);
    if (k < 0) {
        return;
    }
    int64_t joined = going == 0 ? s->facts.rows_max
                                : ru_pace_joined(&s->pace, going, see, s->places[k].stream->cached,
                                                 left_of(&s->places[k]));
    put_prompts(s, &s->step, joined);
    if (s->step.n == going && going > 0) {
        s->piece.n_wanted = 0;
        put_prompts(s, &s->piece, s->pace.rows);
        ru_steps_piece_begin(s->steps, s->pace.rows, s->piece.rows, s->piece.n);
    }
}

/* Log probabilities of token `at` by the logits before it. */
static void score(const ru_streams *s, ru_stream *t, int64_t at, const float *logits)
{
    const ru_scores *o = t->scores;
    if (o != NULL) {
        ru_draw_score(logits, s->facts.vocab, t->tokens[at], o->k, &o->own[at], &o->top[at * o->k],
                      &o->top_own[at * o->k]);
    }
}

/* Its next token is there. */
static void take(ru_streams *s, ru_stream *t, const float *logits)
{
    int64_t token =
        ru_draw_token(&t->draw, logits, s->facts.vocab,
                      t->draw.first + (uint64_t)(t->n - t->n_prompt), s->scratch, s->order);
    t->tokens[t->n] = token;
    score(s, t, t->n++, logits);
    t->end = token == t->end_token                         ? RU_STREAM_STOP
             : t->n == t->n_max || t->n > s->facts.context ? RU_STREAM_LENGTH
                                                           : RU_STREAM_RUNS;
}

/* What its rows have become; logits of those that are wanted, in their order. */
static void take_rows(ru_streams *s, const batch *b, ru_status st, const float *logits)
{
    for (int64_t i = 0; i < b->n; i++) {
        ru_stream *t = s->places[b->rows[i].slot].stream;
        t->cached += st == RU_OK ? 1 : 0;
        if (st != RU_OK) {
            t->end = RU_STREAM_FAILED;
        } else if (b->rows[i].wanted) {
            if (b->rows[i].at < t->n - 1) {
                score(s, t, b->rows[i].at + 1, logits);
            } else {
                take(s, t, logits);
            }
            logits += s->facts.vocab;
        } else if (t->cached == t->n_max) { /* it only reads */
            t->end = RU_STREAM_LENGTH;
        }
    }
}

/* For so long; its rows are taken when it has ended. */
static void go_on(ru_streams *s, int64_t budget_ns, ru_err *err)
{
    const float *logits = NULL;
    ru_status st = ru_steps_piece_go(s->steps, budget_ns, &logits, err);
    if (st != RU_OK || logits != NULL) {
        take_rows(s, &s->piece, st, logits);
        ru_pace_learn(&s->pace, ru_steps_piece_longest_ns(s->steps, s->pace.rows));
        s->piece.n = 0;
    }
}

bool ru_streams_step(ru_streams *s, ru_err *err)
{
    const float *logits = NULL;
    leave(s);
    enter(s);
    share(s);
    choose_rows(s);
    if (s->step.n == 0 && s->piece.n == 0) {
        return false;
    }
    int64_t budget_ns = INT64_MAX; /* nobody waits */
    ru_status st = RU_OK;
    if (s->step.n > 0) {
        ru_time from = ru_clock_now();
        st = ru_steps_run(s->steps, s->step.rows, s->step.n, &logits, err);
        int64_t ns = ru_time_since(ru_clock_now(), from);
        take_rows(s, &s->step, st, logits);
        budget_ns = s->piece.n > 0 && st == RU_OK ? ru_pace_budget_ns(&s->pace, ns) : 0;
    }
    if (s->piece.n > 0 && st == RU_OK) { /* else `err` is the step's */
        go_on(s, budget_ns, err);
    }
    share(s); /* before one that has read leaves */
    for (int64_t k = 0; k < s->facts.slots; k++) {
        place *p = &s->places[k];
        p->stream = p->stream != NULL && p->stream->end != RU_STREAM_RUNS ? NULL : p->stream;
    }
    return true;
}
