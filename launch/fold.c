/* Pending lines stand in a ring in the order they came; only its head goes out, so that order is
 * kept. A worker's line joins a pending one of the same text only when that one is not older than
 * the last line of this worker: else its own lines would change places. */
#include "launch/fold.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/str.h"

typedef struct entry {
    uint64_t hash;
    uint64_t order; /* 1, 2, ...: of the whole stream */
    ru_time due;
    uint32_t size_bytes;
    uint32_t writers;
} entry;

typedef struct writer {
    uint32_t size_bytes; /* of the line begun */
    bool returned;       /* a carriage return came last */
    uint8_t last_byte; /* before it was made harmless; continues: bytes of its character to come */
    uint8_t continues;
    uint64_t last; /* order of its newest line */
} writer;

struct ru_fold {
    ru_fold_options opt;
    entry *ring;   /* [lines_max] */
    char *texts;   /* [lines_max][line_bytes_max] */
    uint8_t *sets; /* [lines_max][set_bytes] who wrote it */
    uint32_t set_bytes, head, n, living;
    uint64_t orders;
    writer *writers; /* [workers_max + 1]; 0: numbers beyond, whose lines are cut where bytes end */
    char *begun;     /* [workers_max + 1][line_bytes_max] */
    char *out;       /* a line with its prefix */
    int64_t out_bytes;
};

enum { PREFIX_BYTES_MAX = 256 };

ru_status ru_fold_open(const ru_fold_options *opt, ru_arena *arena, ru_fold **out, ru_err *err)
{
    enum { WORKERS_MAX = 1 << 16, LINES_MAX = 1 << 16, LINE_MAX_BYTES = 1 << 20 };
    ru_fold_options o = *opt;
    o.lines_max = o.lines_max == 0 ? 256 : o.lines_max;
    o.line_bytes_max = o.line_bytes_max == 0 ? 4096 : o.line_bytes_max;
    o.window_ns = o.window_ns == 0 ? 200000000 : o.window_ns;
    if (o.workers_max == 0 || o.workers_max > WORKERS_MAX || o.lines_max > LINES_MAX ||
        o.line_bytes_max > LINE_MAX_BYTES || o.window_ns < 0 || o.line == NULL) {
        return RU_FAIL(err, RU_E_ARG, "merging output needs 1 to %d workers and a destination",
                       WORKERS_MAX);
    }
    ru_fold *f = RU_NEW(arena, ru_fold, 1);
    int64_t places = (int64_t)o.workers_max + 1;
    if (f != NULL) {
        f->opt = o;
        f->living = o.workers_max;
        f->set_bytes = o.workers_max / 8 + 1;
        f->out_bytes = (int64_t)o.line_bytes_max + PREFIX_BYTES_MAX;
        f->ring = RU_NEW(arena, entry, o.lines_max);
        f->writers = RU_NEW(arena, writer, places);
        f->texts = ru_arena_alloc(arena, (int64_t)o.lines_max * o.line_bytes_max, 8);
        f->sets = ru_arena_alloc(arena, (int64_t)o.lines_max * f->set_bytes, 8);
        f->begun = ru_arena_alloc(arena, places * o.line_bytes_max, 8);
        f->out = ru_arena_alloc(arena, f->out_bytes, 8);
    }
    if (f == NULL || f->ring == NULL || f->writers == NULL || f->texts == NULL || f->sets == NULL ||
        f->begun == NULL || f->out == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the output of %u workers", o.workers_max);
    }
    *out = f;
    return RU_OK;
}

static uint32_t slot(const ru_fold *f, uint32_t i)
{
    return (f->head + i) % f->opt.lines_max;
}

static bool in_set(const uint8_t *set, uint32_t number)
{
    return ((set[number / 8] >> (number % 8)) & 1) != 0;
}

/* "workers 1,3-5 | "; a list that does not fit ends with how many more. */
static void put_writers(const ru_fold *f, const uint8_t *set, uint32_t writers, ru_text *t)
{
    enum { ROOM_FOR_THE_END = 48 };
    ru_text_put(t, writers == 1 ? "worker " : "workers ");
    uint32_t named = 0;
    for (uint32_t k = 1; k <= f->opt.workers_max && named < writers; k++) {
        if (!in_set(set, k)) {
            continue;
        }
        uint32_t last = k;
        while (last < f->opt.workers_max && in_set(set, last + 1)) {
            last++;
        }
        if (t->n > PREFIX_BYTES_MAX - ROOM_FOR_THE_END) {
            ru_text_putf(t, " and %u more", writers - named);
            break;
        }
        ru_text_putf(t, last > k ? "%s%u-%u" : "%s%u", named > 0 ? "," : "", k, last);
        named += last - k + 1;
        k = last;
    }
    ru_text_put(t, " | ");
}

static void emit(const ru_fold *f, ru_text *prefix, const char *text, uint32_t n)
{
    ru_text_put_n(prefix, text, n);
    f->opt.line(f->opt.self, prefix->p, prefix->n);
}

static void head_out(ru_fold *f)
{
    const entry *e = &f->ring[f->head];
    ru_text t = ru_text_into(f->out, f->out_bytes);
    put_writers(f, f->sets + (size_t)f->head * f->set_bytes, e->writers, &t);
    emit(f, &t, f->texts + (size_t)f->head * f->opt.line_bytes_max, e->size_bytes);
    f->head = slot(f, 1);
    f->n--;
}

static void due_out(ru_fold *f, ru_time now)
{
    while (f->n > 0 &&
           (f->ring[f->head].due.ns <= now.ns || f->ring[f->head].writers >= f->living)) {
        head_out(f);
    }
}

/* A pending line of this text that the writer may join; lines_max: none. */
static uint32_t pending(const ru_fold *f, uint32_t number, const char *text, uint32_t n,
                        uint64_t hash)
{
    for (uint32_t i = 0; i < f->n; i++) {
        uint32_t s = slot(f, i);
        const entry *e = &f->ring[s];
        if (e->hash == hash && e->size_bytes == n && e->order > f->writers[number].last &&
            memcmp(f->texts + (size_t)s * f->opt.line_bytes_max, text, n) == 0) {
            return s;
        }
    }
    return f->opt.lines_max;
}

static void whole_line(ru_fold *f, uint32_t number, const char *text, uint32_t n, ru_time now)
{
    uint64_t hash = ru_hash_bytes(text, n, 0);
    uint32_t s = pending(f, number, text, n, hash);
    if (s == f->opt.lines_max) {
        if (f->n == f->opt.lines_max) {
            head_out(f);
        }
        s = slot(f, f->n++);
        f->ring[s] = (entry){.hash = hash,
                             .order = ++f->orders,
                             .due = (ru_time){now.ns + f->opt.window_ns},
                             .size_bytes = n};
        memcpy(f->texts + (size_t)s * f->opt.line_bytes_max, text, n);
        memset(f->sets + (size_t)s * f->set_bytes, 0, f->set_bytes);
    }
    f->sets[(size_t)s * f->set_bytes + number / 8] |= (uint8_t)(1u << (number % 8));
    f->ring[s].writers++;
    f->writers[number].last = f->ring[s].order;
}

/* Numbers beyond the table: each line for itself. */
static void pass(ru_fold *f, uint32_t number, const char *text, uint32_t n)
{
    ru_text t = ru_text_into(f->out, f->out_bytes);
    ru_text_putf(&t, "worker %u | ", number);
    emit(f, &t, text, n);
}

static void line_done(ru_fold *f, uint32_t number, ru_time now)
{
    uint32_t place = number <= f->opt.workers_max ? number : 0;
    writer *w = &f->writers[place];
    const char *text = f->begun + (size_t)place * f->opt.line_bytes_max;
    if (place == 0) {
        pass(f, number, text, w->size_bytes);
    } else {
        whole_line(f, number, text, w->size_bytes, now);
    }
    w->size_bytes = 0;
    w->returned = false;
}

void ru_fold_workers(ru_fold *f, uint32_t n, ru_time now)
{
    f->living = n == 0 ? 1 : n;
    due_out(f, now);
}

/* A terminal obeys control bytes: an escape sequence of a worker could hide lines of others or move
 * the title. Tabs stay. 0x80 to 0x9f are controls too, by themselves and as the characters U+0080
 * to U+009f, c2 80 to c2 9f; inside other characters they are text. */
static char harmless(writer *w, char c)
{
    uint8_t byte = (uint8_t)c, before = w->last_byte;
    w->last_byte = byte;
    if (byte < 0x80) {
        w->continues = 0;
        return (byte < 0x20 && c != '\t') || byte == 0x7f ? '?' : c;
    }
    if (byte >= 0xc0) { /* c0, c1 and f5 up begin nothing legal */
        bool legal = byte >= 0xc2 && byte < 0xf5;
        w->continues = !legal ? 0 : byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : 1;
        return legal ? c : '?';
    }
    bool control = byte < 0xa0 && (w->continues == 0 || before == 0xc2 || before == 0xe0);
    bool longer = byte < 0x90 && before == 0xf0; /* like e0: a longer form of a shorter character */
    w->continues = control || longer || w->continues == 0 ? 0 : (uint8_t)(w->continues - 1);
    return control || longer ? '?' : c;
}

void ru_fold_bytes(ru_fold *f, uint32_t number, const char *data, int64_t size_bytes, ru_time now)
{
    RU_CHECK(number > 0 && size_bytes >= 0);
    uint32_t place = number <= f->opt.workers_max ? number : 0;
    writer *w = &f->writers[place];
    char *text = f->begun + (size_t)place * f->opt.line_bytes_max;
    for (int64_t i = 0; i < size_bytes; i++) {
        char c = data[i];
        if (c == '\n') {
            line_done(f, number, now);
            w->continues = 0;
            continue;
        }
        if (w->returned) {
            w->size_bytes = 0;
            w->returned = false;
        }
        if (c == '\r') {
            w->returned = true;
            continue;
        }
        if (w->size_bytes == f->opt.line_bytes_max) {
            line_done(f, number, now);
        }
        text[w->size_bytes++] = harmless(w, c);
    }
    if (place == 0 && w->size_bytes > 0) {
        line_done(f, number, now);
        w->continues = 0;
    }
    due_out(f, now);
}

void ru_fold_end(ru_fold *f, uint32_t number, ru_time now)
{
    if (number <= f->opt.workers_max && f->writers[number].size_bytes > 0) {
        line_done(f, number, now);
    }
    due_out(f, now);
}

ru_time ru_fold_tick(ru_fold *f, ru_time now)
{
    due_out(f, now);
    return (ru_time){f->n > 0 ? f->ring[f->head].due.ns : INT64_MAX};
}

void ru_fold_flush(ru_fold *f)
{
    while (f->n > 0) {
        head_out(f);
    }
}
