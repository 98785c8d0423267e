#include "fleet/latency.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/map.h"
#include "env/file/file.h"

enum { COLUMNS_MAX = 256, ROWS_MAX = 1 << 26, CLIENTS_MAX = 1 << 20, LOST = -1 };

static const double seconds_max = 1e6; /* as the longest round */

typedef struct row {
    uint32_t client, round, line;
    double seconds;
} row;

struct ru_latency_trace {
    row *rows;       /* [first[n]] by client, then by round, then as they come */
    uint32_t *first; /* [n + 1] */
    uint32_t n;
    bool rounds;
    uint64_t hash;
};

double ru_latency_speed(ru_latency_law law, double spread, ru_rng *rng)
{
    if (law == RU_LATENCY_LOGNORMAL) {
        return ru_math_exp(spread * ru_rng_normal(rng));
    }
    double u = fmax(ru_rng_f64(rng), 1e-12);
    return law == RU_LATENCY_PARETO ? ru_math_exp(-spread * ru_math_log(2 * u))
                                    : fmax(1 + fmin(spread, 1) * (2 * u - 1), 1e-6);
}

/* -- reading --------------------------------------------------------------------------------------
 */

/* Where the columns are. */
typedef struct columns {
    int32_t client, seconds, round; /* -1: not there */
} columns;

typedef struct reading {
    const char *path;
    int64_t line;
    columns at;
    ru_map names;
    row *rows;
    int64_t n, max;
} reading;

static ru_status read_head(reading *r, ru_str head, ru_err *err)
{
    const struct {
        const char *name;
        int32_t *at;
    } known[] = {{"client", &r->at.client}, {"seconds", &r->at.seconds}, {"round", &r->at.round}};
    ru_str name;
    r->at = (columns){-1, -1, -1};
    for (int32_t k = 0; k < COLUMNS_MAX && ru_str_next(&head, ',', &name); k++) {
        name = ru_str_trim(name);
        for (uint32_t i = 0; i < RU_ARRAY_LEN(known); i++) {
            if (ru_str_eq_c(name, known[i].name) && *known[i].at >= 0) {
                return RU_FAIL(err, RU_E_DATA, "%s:%lld: two columns are named '%s'", r->path,
                               (long long)r->line, known[i].name);
            }
            *known[i].at = ru_str_eq_c(name, known[i].name) ? k : *known[i].at;
        }
    }
    return r->at.client >= 0 && r->at.seconds >= 0
               ? RU_OK
               : RU_FAIL(err, RU_E_DATA,
                         "%s:%lld: the first line of latencies names the columns; 'client' and "
                         "'seconds' must be among them, and 'round' may be",
                         r->path, (long long)r->line);
}

static ru_status put_row(reading *r, ru_str client, ru_str seconds, ru_str round, ru_err *err)
{
    row *at = &r->rows[r->n];
    int64_t number = 0;
    bool fresh = false, lost = ru_str_eq_c(seconds, "lost");
    if (client.n == 0) {
        return RU_FAIL(err, RU_E_DATA, "%s:%lld: a row without a client", r->path,
                       (long long)r->line);
    }
    at->seconds = LOST;
    if (!lost &&
        !(ru_str_f64(seconds, &at->seconds) && at->seconds > 0 && at->seconds <= seconds_max)) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s:%lld: expected seconds above 0, at most %g, or 'lost', not '%.*s'",
                       r->path, (long long)r->line, seconds_max,
                       (int)(seconds.n < 40 ? seconds.n : 40), seconds.p);
    }
    if (r->at.round >= 0 && !(ru_str_i64(round, &number) && number >= 1 && number <= UINT32_MAX)) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s:%lld: expected the number of a round, from 1, not '%.*s'", r->path,
                       (long long)r->line, (int)(round.n < 40 ? round.n : 40), round.p);
    }
    uint64_t *id = ru_map_put(&r->names, client, &fresh);
    if (id == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "%s:%lld: more than %d clients", r->path,
                       (long long)r->line, CLIENTS_MAX);
    }
    *id = fresh ? r->names.count - 1 : *id;
    at->client = (uint32_t)*id;
    at->line = (uint32_t)r->line;
    at->round = (uint32_t)number;
    r->n++;
    return RU_OK;
}

static ru_status read_row(reading *r, ru_str line, ru_err *err)
{
    ru_str field, none = {0}, client = none, seconds = none, round = none;
    int32_t last = r->at.client > r->at.seconds ? r->at.client : r->at.seconds;
    last = r->at.round > last ? r->at.round : last;
    int32_t k = 0;
    for (; k <= last && ru_str_next(&line, ',', &field); k++) {
        field = ru_str_trim(field);
        client = k == r->at.client ? field : client;
        seconds = k == r->at.seconds ? field : seconds;
        round = k == r->at.round ? field : round;
    }
    if (k <= last) {
        return RU_FAIL(err, RU_E_DATA, "%s:%lld: the line has %d fields; column %d is missing",
                       r->path, (long long)r->line, k, last + 1);
    }
    return put_row(r, client, seconds, round, err);
}

static ru_status read_lines(reading *r, ru_str rest, ru_err *err)
{
    ru_str line;
    bool head = false;
    while (ru_str_next(&rest, '\n', &line)) {
        r->line++;
        line = ru_str_trim(line);
        if (line.n == 0 || line.p[0] == '#') {
            continue;
        }
        RU_TRY(head ? read_row(r, line, err) : read_head(r, line, err));
        head = true;
    }
    return r->n > 0
               ? RU_OK
               : RU_FAIL(err, RU_E_DATA, "%s has no row with a client and its seconds", r->path);
}

static int by_client(const void *a, const void *b)
{
    const row *x = a, *y = b;
    if (x->client != y->client) {
        return x->client < y->client ? -1 : 1;
    }
    if (x->round != y->round) {
        return x->round < y->round ? -1 : 1;
    }
    return x->line < y->line ? -1 : 1;
}

static ru_status order(const reading *r, ru_latency_trace *t, ru_arena *arena, ru_err *err)
{
    t->n = r->names.count;
    t->rounds = r->at.round >= 0;
    t->rows = RU_NEW(arena, row, r->n);
    t->first = RU_NEW(arena, uint32_t, (int64_t)t->n + 1);
    if (t->rows == NULL || t->first == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %lld latencies", (long long)r->n);
    }
    memcpy(t->rows, r->rows, (size_t)r->n * sizeof *t->rows);
    qsort(t->rows, (size_t)r->n, sizeof *t->rows, by_client);
    for (int64_t i = 0; i < r->n; i++) {
        const row *one = &t->rows[i], *before = i > 0 ? one - 1 : NULL;
        if (before == NULL || before->client != one->client) {
            t->first[one->client] = (uint32_t)i;
        } else if (t->rounds && before->round == one->round) {
            return RU_FAIL(err, RU_E_DATA, "%s:%u: line %u has this client and round too", r->path,
                           one->line, before->line);
        }
    }
    t->first[t->n] = (uint32_t)r->n;
    return RU_OK;
}

static uint64_t hash_of(const reading *r)
{
    ru_hasher h;
    ru_hasher_init(&h);
    for (int64_t i = 0; i < r->n; i++) {
        ru_hasher_put_u64(&h, (uint64_t)r->rows[i].client << 32 | r->rows[i].round);
        ru_hasher_put(&h, &r->rows[i].seconds, sizeof r->rows[i].seconds);
    }
    return ru_hasher_get(&h).low;
}

ru_status ru_latency_trace_open(const char *path, ru_arena *arena, ru_latency_trace **out,
                                ru_err *err)
{
    char *text;
    int64_t size;
    ru_arena scratch;
    ru_latency_trace *t = RU_NEW(arena, ru_latency_trace, 1);
    ru_arena_init(&scratch, 0);
    ru_status st = t != NULL ? ru_file_read(path, 0, &scratch, &text, &size, err)
                             : RU_FAIL(err, RU_E_MEM, "no memory for latencies");
    reading r = {.path = path};
    if (st == RU_OK) {
        for (int64_t k = 0; k < size; k++) {
            r.max += text[k] == '\n' ? 1 : 0;
        }
        r.max++;
        r.rows = r.max <= ROWS_MAX ? RU_NEW(&scratch, row, r.max) : NULL;
        ru_map_init(&r.names, &scratch, CLIENTS_MAX);
        st = r.rows == NULL ? RU_FAIL(err, RU_E_LIMIT, "%s has %lld lines; the most is %d", path,
                                      (long long)r.max, ROWS_MAX)
                            : read_lines(&r, ru_str_n(text, size), err);
    }
    if (st == RU_OK) {
        *t = (ru_latency_trace){.hash = hash_of(&r)};
        st = order(&r, t, arena, err);
    }
    ru_arena_fini(&scratch);
    *out = t;
    return st;
}

double ru_latency_trace_at(const ru_latency_trace *t, uint32_t client, uint32_t round,
                           uint32_t turn)
{
    client %= t->n;
    uint32_t low = t->first[client], n = t->first[client + 1] - low;
    if (!t->rounds) {
        return t->rows[low + turn % n].seconds;
    }
    uint32_t high = low + n; /* the last of (low, high) whose round is not later, else low */
    while (high - low > 1) {
        uint32_t mid = low + (high - low) / 2;
        if (t->rows[mid].round <= round) {
            low = mid;
        } else {
            high = mid;
        }
    }
    return t->rows[low].seconds;
}

uint64_t ru_latency_trace_hash(const ru_latency_trace *t)
{
    return t->hash;
}
