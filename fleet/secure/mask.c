#include "fleet/secure/mask.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { KEY = RU_CIPHER_KEY_BYTES, PUBLIC = RU_MASK_PUBLIC_BYTES, BOX = RU_MASK_BOX_BYTES };
enum { PARTS = RU_MASK_PARTS_BYTES, PART = RU_SHAMIR_BYTES, PURPOSE = 80, PAIRS_AT_A_TIME = 8 };

/* -- numbers --------------------------------------------------------------------------------------
 */

/* A sum of at most 1024 roundings stays below 2^31. */
static const double most = 2147483648.0 - 4096;

double ru_mask_unit(const ru_mask_scale *s)
{
    return (s->clip > 0 ? s->clip : s->range) / most;
}

ru_status ru_mask_encode(const ru_mask_scale *s, const float *from, const float *values,
                         int64_t count, uint32_t *into, ru_err *err)
{
    double square = 0, by = s->share / ru_mask_unit(s);
    for (int64_t i = 0; i < count; i++) {
        double move = (double)values[i] - (double)from[i];
        if (!isfinite(move) || (!(s->clip > 0) && fabs(move) > s->range)) {
            return RU_FAIL(err, RU_E_USER,
                           "value %lld moves by %g in a round; what is masked moves by at most %g "
                           "(federated.secure.range)",
                           (long long)i, move, s->range);
        }
        square += move * move;
    }
    double length = sqrt(square);
    by *= s->clip > 0 && length > s->clip ? s->clip / length : 1;
    for (int64_t i = 0; i < count; i++) {
        double x = by * ((double)values[i] - (double)from[i]);
        into[i] = (uint32_t)(int32_t)(s->clip > 0 ? trunc(x) : rint(x));
    }
    return RU_OK;
}

/* -- a client -------------------------------------------------------------------------------------
 */

static const uint8_t *box_key(const uint8_t *publics, uint32_t k)
{
    return publics + (size_t)k * PUBLIC;
}

static const uint8_t *mask_key(const uint8_t *publics, uint32_t k)
{
    return publics + (size_t)k * PUBLIC + KEY;
}

static bool is_there(const uint8_t *publics, uint32_t k)
{
    static const uint8_t none[PUBLIC];
    return memcmp(publics + (size_t)k * PUBLIC, none, PUBLIC) != 0;
}

/* Is b a neighbour of a, or a itself? */
static bool is_near(uint32_t n, uint32_t near, uint32_t a, uint32_t b)
{
    uint32_t far = a < b ? b - a : a - b;
    return near == 0 || far <= near / 2 || n - far <= near / 2;
}

static void purpose_of(const char *what, uint32_t round, uint32_t a, uint32_t b, char into[PURPOSE])
{
    (void)snprintf(into, PURPOSE, "rubato secure %s %u %u %u", what, round, a, b);
}

ru_status ru_masker_open(uint32_t n_max, void (*random)(void *, int64_t), ru_arena *arena,
                         ru_masker *out, ru_err *err)
{
    RU_CHECK(n_max >= 1 && n_max <= RU_MASK_CLIENTS_MAX);
    *out = (ru_masker){.n_max = n_max, .random = random};
    out->publics = RU_NEW(arena, uint8_t, (int64_t)n_max * PUBLIC);
    out->parts = RU_NEW(arena, uint8_t, (int64_t)n_max * PARTS);
    out->work = RU_NEW(arena, uint8_t, 2 * (int64_t)n_max * PARTS);
    out->in = RU_NEW(arena, bool, n_max);
    return out->publics != NULL && out->parts != NULL && out->work != NULL && out->in != NULL
               ? RU_OK
               : RU_FAIL(err, RU_E_MEM, "no memory for masks of %u clients", n_max);
}

void ru_masker_forget(ru_masker *m)
{
    ru_cipher_wipe(m->box_secret, KEY);
    ru_cipher_wipe(m->mask_secret, KEY);
    ru_cipher_wipe(m->seed, KEY);
    ru_cipher_wipe(m->parts, (int64_t)m->n_max * PARTS);
    ru_cipher_wipe(m->work, 2 * (int64_t)m->n_max * PARTS); /* parts that were not sealed yet */
    m->stage = RU_MASKER_IDLE;
}

ru_status ru_masker_begin(ru_masker *m, uint32_t round, uint32_t need, uint32_t near,
                          uint8_t publics[PUBLIC], ru_err *err)
{
    m->random(m->box_secret, KEY);
    m->random(m->mask_secret, KEY);
    m->random(m->seed, KEY);
    m->round = round;
    m->need = need;
    m->near = near;
    m->stage = RU_MASKER_BEGUN;
    RU_TRY(ru_cipher_public(m->box_secret, publics, err));
    return ru_cipher_public(m->mask_secret, publics + KEY, err);
}

/* The parts of this client's secrets, [n] of both, into m->work. */
static void split(ru_masker *m)
{
    uint8_t *random = m->work + (size_t)m->n_max * PARTS;
    const uint8_t *secrets[] = {m->mask_secret, m->seed};
    for (uint32_t k = 0; k < 2; k++) {
        m->random(random, ((int64_t)m->need - 1) * PART);
        ru_shamir_split(secrets[k], m->need, m->n, random, m->work + (size_t)k * PART, PARTS);
    }
    ru_cipher_wipe(random, (int64_t)m->need * PART);
}

/* The parts for client k. Both ways of a pair have keys of one agreement: the one that opens what k
 * seals waits where its parts will be. */
static ru_status seal_for(ru_masker *m, ru_cipher_secret *box_secret, uint32_t k, uint8_t *box,
                          ru_err *err)
{
    uint8_t keys[2][KEY];
    char there[PURPOSE], back[PURPOSE];
    const char *const purposes[] = {there, back};
    purpose_of("box", m->round, m->self, k, there);
    purpose_of("box", m->round, k, m->self, back);
    ru_status st = ru_cipher_agree(box_secret, box_key(m->publics, k), purposes, 2, keys, err);
    if (st == RU_OK) {
        st = ru_cipher_seal(keys[0], m->work + (size_t)k * PARTS, PARTS, box, err);
        memcpy(m->parts + (size_t)k * PARTS, keys[1], KEY);
    }
    ru_cipher_wipe(keys, sizeof keys);
    return st;
}

static ru_status begin_share(ru_masker *m, uint32_t n, uint32_t self, const uint8_t *publics,
                             ru_err *err)
{
    uint8_t mine[KEY];
    uint32_t there = 0;
    bool fits = m->stage == RU_MASKER_BEGUN && n <= m->n_max && self < n;
    for (uint32_t k = 0; fits && k < n; k++) {
        there += is_near(n, m->near, self, k) && is_there(publics, k) ? 1 : 0;
    }
    RU_TRY(ru_cipher_public(m->mask_secret, mine, err));
    if (!fits || there < m->need || memcmp(mask_key(publics, self), mine, KEY) != 0) {
        return RU_FAIL(err, RU_E_DATA,
                       "the server's list of keys has %u clients near this one, without its own or "
                       "fewer than federated.secure.threshold, %u",
                       there, m->need);
    }
    memcpy(m->publics, publics, (size_t)n * PUBLIC);
    m->n = n;
    m->self = self;
    m->next = 0;
    m->stage = RU_MASKER_SEALING;
    split(m);
    return RU_OK;
}

ru_status ru_masker_share(ru_masker *m, uint32_t n, uint32_t self, const uint8_t *publics,
                          uint8_t *boxes, bool *more, ru_err *err)
{
    if (m->stage != RU_MASKER_SEALING) {
        RU_TRY(begin_share(m, n, self, publics, err));
        memset(boxes, 0, (size_t)n * BOX);
    }
    ru_cipher_secret *box_secret = NULL;
    ru_status st = ru_cipher_secret_open(m->box_secret, &box_secret, err);
    for (uint32_t done = 0; m->next < m->n && done < PAIRS_AT_A_TIME && st == RU_OK; m->next++) {
        uint32_t k = m->next;
        if (k != m->self && is_near(m->n, m->near, m->self, k) && is_there(m->publics, k)) {
            st = seal_for(m, box_secret, k, boxes + (size_t)k * BOX, err);
            done++;
        }
    }
    ru_cipher_secret_close(box_secret);
    *more = st == RU_OK && m->next < m->n;
    if (!*more) {
        memcpy(m->parts + (size_t)m->self * PARTS, m->work + (size_t)m->self * PARTS, PARTS);
        ru_cipher_wipe(m->work, (int64_t)m->n * PARTS);
        m->stage = st == RU_OK ? RU_MASKER_SHARED : RU_MASKER_IDLE; /* a key seals one box */
    }
    return st;
}

/* What client k sealed for this one, and the stream that both share. */
static ru_status from_other(ru_masker *m, ru_cipher_secret *mask_secret, uint32_t k,
                            const uint8_t *box, ru_mask_stream *s, ru_err *err)
{
    uint8_t key[KEY], *parts = m->parts + (size_t)k * PARTS;
    char text[PURPOSE];
    const char *const purpose = text;
    uint32_t low = k < m->self ? k : m->self, high = k < m->self ? m->self : k;
    memcpy(key, parts, KEY);
    ru_status st = ru_cipher_open(key, box, PARTS, parts, err);
    ru_cipher_wipe(key, KEY);
    RU_TRY(st);
    purpose_of("mask", m->round, low, high, text);
    s->minus = m->self == high;
    return ru_cipher_agree(mask_secret, mask_key(m->publics, k), &purpose, 1, &s->key, err);
}

static ru_status begin_streams(ru_masker *m, const uint8_t *in, ru_mask_stream *streams,
                               uint32_t *n_streams, ru_err *err)
{
    uint32_t there = 0;
    for (uint32_t k = 0; m->stage == RU_MASKER_SHARED && k < m->n; k++) {
        m->in[k] = in[k] == 1 && is_near(m->n, m->near, m->self, k) && is_there(m->publics, k);
        there += m->in[k] ? 1 : 0;
    }
    if (m->stage != RU_MASKER_SHARED || there < m->need || !m->in[m->self]) {
        return RU_FAIL(err, RU_E_DATA,
                       "the server hands on the boxes of %u clients, fewer than "
                       "federated.secure.threshold, %u, or none of this one",
                       there, m->need);
    }
    memcpy(streams[0].key, m->seed, KEY);
    streams[0].minus = false;
    *n_streams = 1;
    m->next = 0;
    m->stage = RU_MASKER_OPENING;
    return RU_OK;
}

ru_status ru_masker_streams(ru_masker *m, const uint8_t *in, const uint8_t *boxes,
                            ru_mask_stream *streams, uint32_t *n_streams, bool *more, ru_err *err)
{
    RU_TRY(m->stage != RU_MASKER_OPENING ? begin_streams(m, in, streams, n_streams, err) : RU_OK);
    ru_cipher_secret *mask_secret = NULL;
    ru_status st = ru_cipher_secret_open(m->mask_secret, &mask_secret, err);
    for (uint32_t done = 0; m->next < m->n && done < PAIRS_AT_A_TIME && st == RU_OK; m->next++) {
        uint32_t k = m->next;
        if (k != m->self && m->in[k]) {
            st = from_other(m, mask_secret, k, boxes + (size_t)k * BOX, &streams[(*n_streams)++],
                            err);
            done++;
        }
    }
    ru_cipher_secret_close(mask_secret);
    *more = st == RU_OK && m->next < m->n;
    if (!*more) { /* keys are where parts are now: a second try opens nothing */
        m->stage = st == RU_OK ? RU_MASKER_READY : RU_MASKER_IDLE;
    }
    return st;
}

ru_status ru_masker_reveal(ru_masker *m, const uint8_t *survived, uint8_t *parts, ru_err *err)
{
    uint32_t n = 0;
    bool fine = m->stage == RU_MASKER_READY;
    for (uint32_t k = 0; fine && k < m->n; k++) {
        bool near = is_near(m->n, m->near, m->self, k);
        n += near && survived[k] == 1 ? 1 : 0;
        fine = !near || survived[k] == 0 || (survived[k] == 1 && m->in[k]);
    }
    if (!fine || n < m->need) {
        return RU_FAIL(err, RU_E_DATA,
                       "the server asks what would show the sum of %u clients, fewer than "
                       "federated.secure.threshold, %u, or asks twice",
                       n, m->need);
    }
    memset(parts, 0, (size_t)m->n * PART);
    for (uint32_t k = 0; k < m->n; k++) {
        if (m->in[k]) {
            memcpy(parts + (size_t)k * PART,
                   m->parts + (size_t)k * PARTS + (survived[k] == 1 ? PART : 0), PART);
        }
    }
    ru_masker_forget(m);
    return RU_OK;
}

/* -- the server -----------------------------------------------------------------------------------
 */

ru_status ru_unmasker_open(uint32_t n_max, int64_t count, ru_arena *arena, ru_unmasker *out,
                           ru_err *err)
{
    RU_CHECK(n_max >= 1 && n_max <= RU_MASK_CLIENTS_MAX);
    int64_t n = n_max;
    *out = (ru_unmasker){.n_max = n_max, .count = count};
    out->publics = RU_NEW(arena, uint8_t, n * PUBLIC);
    out->boxes = RU_NEW(arena, uint8_t, n * n * (1 + BOX));
    out->parts = RU_NEW(arena, uint8_t, n * n * PART);
    out->holder = RU_NEW(arena, uint32_t, n * n);
    out->n_parts = RU_NEW(arena, uint32_t, n);
    out->weights = RU_NEW(arena, uint16_t, n);
    out->told = RU_NEW(arena, bool, 3 * n);
    out->survived = RU_NEW(arena, uint8_t, n);
    out->sum = RU_NEW(arena, uint32_t, count);
    if (out->publics == NULL || out->boxes == NULL || out->parts == NULL || out->holder == NULL ||
        out->n_parts == NULL || out->weights == NULL || out->told == NULL ||
        out->survived == NULL || out->sum == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the masked sum of %lld values of %u clients",
                       (long long)count, n_max);
    }
    out->shared = out->told + n;
    out->revealed = out->shared + n;
    return RU_OK;
}

void ru_unmasker_begin(ru_unmasker *u, uint32_t n, uint32_t need, uint32_t near, uint32_t round)
{
    RU_CHECK(n <= u->n_max && need >= 1);
    u->n = n;
    u->need = need;
    u->near = near;
    u->round = round;
    u->n_told = u->n_shared = u->n_survived = u->n_open = 0;
    memset(u->publics, 0, (size_t)u->n_max * PUBLIC);
    memset(u->boxes, 0, (size_t)u->n_max * u->n_max * (1 + BOX));
    memset(u->told, 0, 3 * (size_t)u->n_max);
    memset(u->survived, 0, u->n_max);
    memset(u->n_parts, 0, u->n_max * sizeof *u->n_parts);
    memset(u->sum, 0, (size_t)u->count * sizeof *u->sum);
}

uint32_t ru_unmasker_fewest(const ru_unmasker *u, const bool *of, const bool *who)
{
    uint32_t fewest = u->n;
    for (uint32_t k = 0, n = 0; k < u->n; k++) {
        if (!of[k] || (u->near == 0 && n > 0)) { /* all have one neighbourhood */
            continue;
        }
        n = 0;
        for (uint32_t other = 0; other < u->n; other++) {
            n += who[other] && is_near(u->n, u->near, k, other) ? 1 : 0;
        }
        fewest = n < fewest ? n : fewest;
    }
    return fewest;
}

bool ru_unmasker_opens(const ru_unmasker *u)
{
    return u->n_open == u->n_shared;
}

static uint8_t *row(const ru_unmasker *u, uint32_t k)
{
    return u->boxes + (size_t)k * u->n_max * (1 + BOX);
}

const uint8_t *ru_unmasker_row(const ru_unmasker *u, uint32_t k, int64_t *bytes)
{
    RU_CHECK(k < u->n);
    *bytes = (int64_t)u->n * (1 + BOX);
    return row(u, k);
}

/* Others end when they cannot agree with a key on a secret, so none of these reaches them. */
static bool agree(const uint8_t publics[PUBLIC])
{
    static const uint8_t any[KEY] = {8};
    ru_cipher_secret *mine = NULL;
    bool fine = ru_cipher_secret_open(any, &mine, NULL) == RU_OK &&
                ru_cipher_agree(mine, box_key(publics, 0), NULL, 0, NULL, NULL) == RU_OK &&
                ru_cipher_agree(mine, mask_key(publics, 0), NULL, 0, NULL, NULL) == RU_OK;
    ru_cipher_secret_close(mine);
    return fine;
}

bool ru_unmasker_public(ru_unmasker *u, uint32_t k, const uint8_t *publics, int64_t bytes)
{
    if (k >= u->n || u->told[k] || bytes != PUBLIC || !agree(publics)) {
        return false;
    }
    memcpy(u->publics + (size_t)k * PUBLIC, publics, PUBLIC);
    u->told[k] = true;
    u->n_told++;
    return true;
}

bool ru_unmasker_boxes(ru_unmasker *u, uint32_t k, const uint8_t *boxes, int64_t bytes)
{
    if (k >= u->n || !u->told[k] || u->shared[k] || bytes != (int64_t)u->n * BOX) {
        return false;
    }
    for (uint32_t to = 0; to < u->n; to++) {
        if (is_near(u->n, u->near, k, to)) {
            row(u, to)[k] = 1;
            memcpy(row(u, to) + u->n + (size_t)k * BOX, boxes + (size_t)to * BOX, BOX);
        }
    }
    u->shared[k] = true;
    u->n_shared++;
    return true;
}

bool ru_unmasker_add(ru_unmasker *u, uint32_t k, const uint32_t *masked)
{
    if (k >= u->n || !u->shared[k] || u->survived[k] != 0) {
        return false;
    }
    for (int64_t i = 0; i < u->count; i++) {
        u->sum[i] += masked[i];
    }
    u->survived[k] = 1;
    u->n_survived++;
    return true;
}

bool ru_unmasker_parts(ru_unmasker *u, uint32_t k, const uint8_t *parts, int64_t bytes)
{
    if (k >= u->n || u->survived[k] == 0 || u->revealed[k] || ru_unmasker_opens(u) ||
        bytes != (int64_t)u->n * PART) {
        return false;
    }
    for (uint32_t of = 0; of < u->n; of++) {
        uint32_t at = u->n_parts[of];
        if (u->shared[of] && at < u->need && is_near(u->n, u->near, k, of)) {
            memcpy(u->parts + ((size_t)at * u->n_max + of) * PART, parts + (size_t)of * PART, PART);
            u->holder[(size_t)of * u->n_max + at] = k;
            u->n_parts[of] = at + 1;
            u->n_open += at + 1 == u->need ? 1 : 0;
        }
    }
    u->revealed[k] = true;
    return true;
}

/* Client k is lost: what it shares with the survivors goes. */
static ru_status take_away(ru_unmasker *u, uint32_t k, const uint8_t secret[KEY], ru_err *err)
{
    uint8_t mine[KEY], key[1][KEY];
    char text[PURPOSE];
    const char *const purpose = text;
    ru_cipher_secret *own = NULL;
    RU_TRY(ru_cipher_public(secret, mine, err));
    if (memcmp(mine, mask_key(u->publics, k), KEY) != 0) {
        return RU_FAIL(err, RU_E_DATA, "what clients revealed is not the key of client %u of %u", k,
                       u->n);
    }
    ru_status st = ru_cipher_secret_open(secret, &own, err);
    for (uint32_t v = 0; v < u->n && st == RU_OK; v++) {
        if (u->survived[v] != 0 && is_near(u->n, u->near, k, v)) {
            purpose_of("mask", u->round, v < k ? v : k, v < k ? k : v, text);
            st = ru_cipher_agree(own, mask_key(u->publics, v), &purpose, 1, key, err);
            st = st == RU_OK ? ru_cipher_stream(key[0], v < k, u->sum, u->count, err) /* v added */
                             : st;
        }
    }
    ru_cipher_secret_close(own);
    ru_cipher_wipe(key, sizeof key);
    return st;
}

ru_status ru_unmasker_unmask(ru_unmasker *u, ru_err *err)
{
    uint8_t secret[KEY];
    const uint32_t *last = NULL; /* holders that the weights are of */
    RU_CHECK(ru_unmasker_opens(u));
    ru_status st = RU_OK;
    for (uint32_t k = 0; k < u->n && st == RU_OK; k++) {
        const uint32_t *holder = u->holder + (size_t)k * u->n_max;
        if (!u->shared[k]) {
            continue;
        }
        if (last == NULL || memcmp(last, holder, u->need * sizeof *holder) != 0) {
            ru_shamir_weights(holder, u->need, u->weights);
            last = holder;
        }
        ru_shamir_join(u->weights, u->need, u->parts + (size_t)k * PART, (int64_t)u->n_max * PART,
                       secret);
        st = u->survived[k] != 0 ? ru_cipher_stream(secret, true, u->sum, u->count, err)
                                 : take_away(u, k, secret, err);
    }
    ru_cipher_wipe(secret, KEY);
    ru_cipher_wipe(u->parts, (int64_t)u->need * u->n_max * PART);
    return st;
}
