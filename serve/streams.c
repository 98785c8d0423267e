#include "serve/streams.h"

#include <math.h>
#include <stdlib.h>

#include "env/clock.h"

/* A step with a piece of a prompt takes about so much of what it takes without: also one in a
 * hundred should take less than twice as long. */
enum { PIECE_PERCENT = 150 };

/* Positions from which what they cost stands out of what else a step takes. */
enum { SEEN_MIN = 64 };

typedef struct place {
    ru_stream *stream; /* NULL: free */
    uint64_t turn;     /* who asked first */
    int64_t rows;      /* of it in this step; the last one may be wanted */
} place;

struct ru_streams {
    ru_arena arena;
    ru_steps *steps;
    ru_steps_facts facts;
    place *places;      /* [slots] */
    ru_stream *waiting; /* by priority, then by who asked first */
    uint64_t turns;
    ru_steps_row *rows; /* [rows_max] */
    int64_t n_rows, n_wanted;
    ru_pace pace;
    ru_pace_step step;
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
    s->rows = RU_NEW(&s->arena, ru_steps_row, s->facts.rows_max);
    s->scratch = RU_NEW(&s->arena, float, s->facts.vocab);
    s->order = RU_NEW(&s->arena, uint32_t, s->facts.vocab);
    if (s->places == NULL || s->rows == NULL || s->scratch == NULL || s->order == NULL) {
        ru_streams_close(s);
        return RU_FAIL(err, RU_E_MEM, "no memory for texts under way");
    }
    s->pace.rows_max = s->facts.rows_max;
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

static void leave(ru_streams *s)
{
    for (int64_t k = 0; k < s->facts.slots; k++) {
        ru_stream *t = s->places[k].stream;
        if (t != NULL && t->leaves) {
            t->end = RU_STREAM_DROPPED;
            s->places[k].stream = NULL;
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
static void put_rows(ru_streams *s, int64_t slot, int64_t n)
{
    place *p = &s->places[slot];
    const ru_stream *t = p->stream;
    for (int64_t k = 0; k < n; k++) {
        int64_t at = t->cached + k;
        bool wanted = wants(t, at);
        if (wanted && s->n_wanted == s->facts.slots) {
            return;
        }
        s->n_wanted += wanted ? 1 : 0;
        s->rows[s->n_rows++] =
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

static double opened_ns(const ru_pace *p, int64_t rows)
{
    return rows == 0 ? 0 : (double)p->opened_ns[size_of(rows)];
}

/* Without a prompt: what was measured, and the positions that its texts see by now. */
static double without_ns(const ru_pace *p, const ru_pace_step *s)
{
    uint32_t k = size_of(s->going);
    double opened = opened_ns(p, s->going), ns = p->alone_ns[k];
    if (s->going == 0 || ns == 0) {
        return opened;
    }
    ns += p->seen_ns[size_of(s->going + 1)] * ((double)s->going_see - p->alone_see[k]);
    return ns > opened ? ns : opened;
}

int64_t ru_pace_rows(const ru_pace *p, const ru_pace_step *s)
{
    int64_t most = s->going + 1;
    double without = without_ns(p, s), each = 0;
    for (int64_t n = 1; s->going > 0 && n <= p->rows_max; n *= 2) {
        if (n <= s->going) {
            continue;
        }
        each = p->seen_ns[size_of(n)] > 0 ? p->seen_ns[size_of(n)] : 2 * each;
        double more =
            opened_ns(p, n) - opened_ns(p, s->going) + each * (double)(s->piece_see + n - s->going);
        if (n > most && 100 * more <= (PIECE_PERCENT - 100) * without) {
            most = n;
        }
    }
    return s->going == 0 || most > p->rows_max ? p->rows_max : most;
}

static void approach(double *mean, double x, double most)
{
    x = *mean > 0 && x > most ? most : x;
    *mean += *mean == 0 ? x : (x - *mean) / 4;
}

/* What size k took lately bounds the others, which otherwise would keep what one slow step left
 * them: more rows take at least as long, twice as many at most twice. Slowly they forget. */
static void spread(ru_pace *p, uint32_t k)
{
    for (uint32_t j = 0; j < RU_PACE_SIZES; j++) {
        double *x = &p->seen_ns[j], now = p->seen_ns[k], bound = ldexp(now, (int)j - (int)k);
        if (j != k && *x > 0 && now > 0) {
            *x = fmin(fmax(*x, fmin(now, bound)), fmax(now, bound));
            *x += (now - *x) / 256;
        }
    }
}

void ru_pace_learn(ru_pace *p, const ru_pace_step *s, int64_t ns)
{
    uint32_t k = size_of(s->rows), g = size_of(s->going);
    if (s->piece_see == 0) {
        approach(&p->alone_ns[k], (double)ns, 2 * p->alone_ns[k]);
        approach(&p->alone_see[k], (double)s->going_see, (double)s->going_see);
        return;
    }
    double *alone = s->going > 0 && p->alone_ns[g] > 0 ? &p->alone_ns[g] : NULL,
           without = alone != NULL ? *alone : opened_ns(p, s->going),
           wider = opened_ns(p, s->rows) - opened_ns(p, s->going), see = (double)s->piece_see,
           more = (double)ns - wider - without;
    see += alone != NULL ? (double)s->going_see - p->alone_see[g] : 0;
    if (see >= SEEN_MIN) {
        double most = 2 * p->seen_ns[k], half = without / 2 / see;
        approach(&p->seen_ns[k], more > 0 ? more / see : 0, most > half ? most : half);
        spread(p, k);
        if (more < 0 && alone != NULL) { /* slow ones came before the prompt */
            *alone += more / 4;
            *alone = *alone > opened_ns(p, s->going) ? *alone : opened_ns(p, s->going);
        }
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

static void choose_rows(ru_streams *s)
{
    s->n_rows = s->n_wanted = 0;
    s->step = (ru_pace_step){0};
    for (int64_t k = 0; k < s->facts.slots; k++) {
        s->places[k].rows = 0;
        if (left_of(&s->places[k]) == 1) {
            put_rows(s, k, 1);
            s->step.going_see += s->places[k].stream->cached + 1;
        }
    }
    int64_t k = next_prompt(s), see = 0;
    s->step.going = s->n_rows;
    s->step.piece_see = k < 0 ? 0 : s->places[k].stream->cached;
    int64_t most = k < 0 ? s->n_rows : ru_pace_rows(&s->pace, &s->step);
    for (; k >= 0 && s->n_rows < most; k = next_prompt(s)) {
        int64_t left = left_of(&s->places[k]), room = most - s->n_rows;
        put_rows(s, k, left < room ? left : room);
        if (s->places[k].rows == 0) {
            break;
        }
        see = see > 0 ? see : s->rows[s->n_rows - 1].at + 1;
    }
    s->step.rows = s->n_rows;
    s->step.piece_see = see;
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

bool ru_streams_step(ru_streams *s, ru_err *err)
{
    const float *logits = NULL;
    leave(s);
    enter(s);
    share(s);
    choose_rows(s);
    if (s->n_rows == 0) {
        return false;
    }
    ru_time from = ru_clock_now();
    ru_status st = ru_steps_run(s->steps, s->rows, s->n_rows, &logits, err);
    if (st == RU_OK) {
        ru_pace_learn(&s->pace, &s->step, ru_time_since(ru_clock_now(), from));
    }
    for (int64_t i = 0; i < s->n_rows; i++) {
        place *p = &s->places[s->rows[i].slot];
        ru_stream *t = p->stream;
        t->cached += st == RU_OK ? 1 : 0;
        if (st != RU_OK) {
            t->end = RU_STREAM_FAILED;
        } else if (s->rows[i].wanted) {
            if (s->rows[i].at < t->n - 1) {
                score(s, t, s->rows[i].at + 1, logits);
            } else {
                take(s, t, logits);
            }
            logits += s->facts.vocab;
        } else if (t->cached == t->n_max) { /* it only reads */
            t->end = RU_STREAM_LENGTH;
        }
    }
    share(s); /* before one that has read leaves */
    for (int64_t k = 0; k < s->facts.slots; k++) {
        place *p = &s->places[k];
        p->stream = p->stream != NULL && p->stream->end != RU_STREAM_RUNS ? NULL : p->stream;
    }
    return true;
}
