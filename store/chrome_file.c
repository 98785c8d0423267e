/* Chrome trace JSON. Times are microseconds with fractions, numbers or text; they become whole
 * nanoseconds. Source: the Trace Event Format of Chromium, as far as profilers use it. */
#include "store/chrome_file.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "env/file/file.h"
#include "store/gunzip.h"

enum {
    NAMES_MAX = 65535,
    SLOTS = 1 << 17,
    THREADS_MAX = 4096,
    CUTS_MAX = 1 << 20, /* records more than events, since a record has at most 4.29 s: 52 days */
};

typedef struct reading {
    ru_arena *arena;
    ru_trace *out;
    ru_trace_name *names; /* [NAMES_MAX + 1], 0 unused */
    uint16_t *slots;      /* [SLOTS] hash -> name; 0: free */
    ru_trace_thread *threads;
    uint64_t *ids;       /* [n_threads] of pid and tid */
    ru_record **records; /* [n_threads] */
    int64_t *rooms;
    int64_t cuts;
} reading;

static int64_t ns_of(const json_t *v)
{
    double us = json_is_number(v)   ? json_number_value(v)
                : json_is_string(v) ? strtod(json_string_value(v), NULL)
                                    : RU_NAN;
    bool sane = us >= 0 && us < 2e15; /* 63 years */
    return sane ? llround(us * 1000) : -1;
}

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s != NULL ? s : "";
}

/* Of a category and a name; 0: no memory, or too many. */
static uint16_t name_of(reading *rd, const char *category, const char *name)
{
    uint64_t h = ru_hash_bytes(name, (int64_t)strlen(name),
                               ru_hash_bytes(category, (int64_t)strlen(category), 1));
    uint32_t at = (uint32_t)h & (SLOTS - 1);
    while (rd->slots[at] != 0) {
        const ru_trace_name *k = &rd->names[rd->slots[at]];
        if (strcmp(k->name, name) == 0 && strcmp(k->category, category) == 0) {
            return rd->slots[at];
        }
        at = (at + 1) & (SLOTS - 1);
    }
    if (rd->out->n_names == NAMES_MAX) {
        return 0;
    }
    uint16_t id = (uint16_t)rd->out->n_names;
    rd->names[id] =
        (ru_trace_name){ru_arena_str(rd->arena, category), ru_arena_str(rd->arena, name)};
    if (rd->names[id].category == NULL || rd->names[id].name == NULL) {
        return 0;
    }
    rd->out->n_names++;
    rd->slots[at] = id;
    return id;
}

/* Index of the thread; THREADS_MAX: too many. */
static uint32_t thread_of(reading *rd, const json_t *e)
{
    char id[128];
    const json_t *pid = json_object_get(e, "pid"), *tid = json_object_get(e, "tid");
    snprintf(id, sizeof id, "%.40s%lld %.40s%lld",
             json_is_string(pid) ? json_string_value(pid) : "", (long long)json_integer_value(pid),
             json_is_string(tid) ? json_string_value(tid) : "", (long long)json_integer_value(tid));
    uint64_t h = ru_hash_bytes(id, (int64_t)strlen(id), 0);
    uint32_t k = 0;
    while (k < rd->out->n_threads && rd->ids[k] != h) {
        k++;
    }
    if (k == rd->out->n_threads && k < THREADS_MAX) {
        rd->ids[k] = h;
        rd->threads[k].name = ru_arena_str(rd->arena, id);
        rd->out->n_threads += rd->threads[k].name != NULL;
    }
    return k;
}

static ru_status put(reading *rd, uint32_t k, const ru_record *r, ru_err *err)
{
    ru_trace_thread *t = &rd->threads[k];
    if (t->n == rd->rooms[k]) {
        int64_t room = rd->rooms[k] * 2 + 64;
        ru_record *more = RU_NEW(rd->arena, ru_record, room);
        if (more == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "there is no memory for the trace");
        }
        if (t->n > 0) {
            memcpy(more, rd->records[k], (size_t)t->n * sizeof *more);
        }
        rd->records[k] = more;
        rd->rooms[k] = room;
        t->records = more;
    }
    rd->records[k][t->n++] = *r;
    return RU_OK;
}

static ru_status event(reading *rd, const json_t *e, ru_err *err)
{
    int64_t ts = ns_of(json_object_get(e, "ts")), dur = ns_of(json_object_get(e, "dur"));
    if (strcmp(text_of(e, "ph"), "X") != 0 || ts < 0 || dur < 0) {
        return RU_OK;
    }
    uint32_t k = thread_of(rd, e);
    ru_record r = {.start_ns = ts, .kind = RU_REC_SPAN};
    r.name = name_of(rd, text_of(e, "cat"), text_of(e, "name"));
    if (r.name == 0 || k >= rd->out->n_threads) {
        return RU_FAIL(err, RU_E_LIMIT, "the trace has more than %d names or %d threads", NAMES_MAX,
                       THREADS_MAX);
    }
    rd->cuts += dur / UINT32_MAX;
    if (rd->cuts > CUTS_MAX) {
        return RU_FAIL(err, RU_E_DATA, "the events of the trace last more than 52 days together");
    }
    ru_trace *out = rd->out;
    out->first_ns = out->records == 0 || ts < out->first_ns ? ts : out->first_ns;
    out->last_ns = ts + dur > out->last_ns ? ts + dur : out->last_ns;
    out->records++;
    for (; dur > UINT32_MAX; dur -= UINT32_MAX, r.start_ns += UINT32_MAX) { /* joined by readers */
        r.dur_ns = UINT32_MAX;
        RU_TRY(put(rd, k, &r, err));
        out->records++;
    }
    r.dur_ns = (uint32_t)dur;
    return put(rd, k, &r, err);
}

static ru_status take(const json_t *root, ru_arena *arena, ru_trace *out, ru_err *err)
{
    const json_t *events = json_is_array(root) ? root : json_object_get(root, "traceEvents");
    if (!json_is_array(events)) {
        return RU_FAIL(err, RU_E_DATA, "it is not a Chrome trace: traceEvents is missing");
    }
    reading rd = {.arena = arena, .out = out};
    rd.names = RU_NEW(arena, ru_trace_name, NAMES_MAX + 1);
    rd.slots = RU_NEW(arena, uint16_t, SLOTS);
    rd.threads = RU_NEW(arena, ru_trace_thread, THREADS_MAX);
    rd.ids = RU_NEW(arena, uint64_t, THREADS_MAX);
    rd.records = RU_NEW(arena, ru_record *, THREADS_MAX);
    rd.rooms = RU_NEW(arena, int64_t, THREADS_MAX);
    if (rd.names == NULL || rd.slots == NULL || rd.threads == NULL || rd.ids == NULL ||
        rd.records == NULL || rd.rooms == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "there is no memory for the trace");
    }
    json_int_t rank =
        json_integer_value(json_object_get(json_object_get(root, "distributedInfo"), "rank"));
    *out = (ru_trace){.process = "chrome",
                      .rank = rank > 0 && rank <= UINT32_MAX ? (uint32_t)rank : 0,
                      .names = rd.names,
                      .threads = rd.threads,
                      .n_names = 1,
                      .complete = true,
                      .damaged_at = -1};
    rd.names[0] = (ru_trace_name){"", ""};
    size_t i;
    const json_t *e;
    json_array_foreach(events, i, e)
    {
        RU_TRY(event(&rd, e, err));
    }
    return RU_OK;
}

static ru_status parse(const char *path, ru_str text, ru_arena *arena, ru_trace *out, ru_err *err)
{
    if (ru_is_gzip(text)) {
        RU_TRY(ru_gunzip(path, text, arena, &text, err));
    }
    json_error_t why;
    json_t *root = json_loadb(text.p, (size_t)text.n, 0, &why);
    if (root == NULL) {
        return RU_FAIL(err, RU_E_DATA, "%s is not valid JSON: line %d: %s", path, why.line,
                       why.text);
    }
    ru_status st = take(root, arena, out, err);
    json_decref(root);
    return st == RU_OK ? st : ru_err_wrap(err, st, "%s", path);
}

ru_status ru_chrome_file_load(const char *path, ru_arena *arena, ru_trace *out, ru_err *err)
{
    ru_map_file m;
    RU_TRY(ru_file_map(path, &m, err));
    ru_status st = parse(path, ru_str_n((const char *)m.data, m.size_bytes), arena, out, err);
    ru_file_unmap(&m);
    return st;
}
