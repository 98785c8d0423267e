/* Lists of kernels as inputs of the policy `gate`: those of a request, then those of a training
 * step, each below a head of its own (`zcat request.csv.gz training.csv.gz`).
 *
 *   Name,Profile,Memory_footprint,SM_usage,Duration      ns; Profile 1: limited by compute, 0: by
 *                                                        memory, else unknown
 *
 * The lists do not say how often requests come: the device is taken to be busy with them for 40 %
 * of the time, and they to come at random, one after another. Then 99 of 100 requests take up
 * to 3.52 times their own time (the queue M/D/1).
 *
 * Source: erlang-1909. */
#include <math.h>
#include <stddef.h>

#include "store/gunzip.h"
#include "store/natural.h"

#define LOAD 0.4
#define TAIL 3.519915586727

enum { KINDS_MAX = 4096, NUMBERS = 4 };

static const char head[] = "Name,Profile,Memory_footprint,SM_usage,Duration";
static const char *const classes[] = {"unknown", "memory", "compute"};

typedef struct kind {
    ru_str name;
    uint32_t cls, list;
    double units, ns, n; /* ns: of all together */
} kind;

typedef struct kinds {
    kind *at; /* [KINDS_MAX] */
    uint32_t n, lists;
} kinds;

static bool is_kernels(const char *path, ru_str text)
{
    if (ru_is_gzip(text)) {
        return ru_str_ends(ru_str_c(path), ".csv.gz");
    }
    return ru_str_starts(text, head);
}

/* Names may hold commas, so the numbers are taken from the end. */
static bool kernel_of(ru_str line, kind *out)
{
    double v[NUMBERS];
    for (uint32_t k = NUMBERS; k-- > 0;) {
        int64_t at = line.n;
        while (at > 0 && line.p[at - 1] != ',') {
            at--;
        }
        if (at == 0 || !ru_str_f64(ru_str_trim(ru_str_from(line, at)), &v[k])) {
            return false;
        }
        line.n = at - 1;
    }
    *out = (kind){.name = ru_str_trim(line),
                  .cls = v[0] == 1   ? 2
                         : v[0] == 0 ? 1
                                     : 0,
                  .units = fmax(v[2], 1),
                  .ns = fmax(v[3], 1),
                  .n = 1};
    return out->name.n > 0 && v[2] >= 0 && v[2] <= 1e9 && v[3] >= 0 && v[3] <= 1e15;
}

/* Kernels of one list with the same name, class and units are of one kind; false: too many. */
static bool add(kinds *all, const kind *k)
{
    /* All lists of the training are one. */
    uint32_t list = all->lists < 2 ? all->lists : 2;
    for (uint32_t i = 0; i < all->n; i++) {
        kind *at = &all->at[i];
        if (at->list == list && at->cls == k->cls && fabs(at->units - k->units) < 0.5 &&
            ru_str_eq(at->name, k->name)) {
            at->ns += k->ns;
            at->n += 1;
            return true;
        }
    }
    if (all->n == KINDS_MAX) {
        return false;
    }
    all->at[all->n] = *k;
    all->at[all->n++].list = list;
    return true;
}

/* The units and the class that most of a request's time asks for. */
static void put_service(const kinds *all, ru_json *j)
{
    double ns = 0, n = 0, of_class[RU_ARRAY_LEN(classes)] = {0}, units = 0, most = 0;
    uint32_t cls = 0;
    for (uint32_t i = 0; i < all->n; i++) {
        const kind *k = &all->at[i];
        double same = 0;
        if (k->list != 1) {
            continue;
        }
        ns += k->ns;
        n += k->n;
        of_class[k->cls] += k->ns;
        for (uint32_t o = 0; o < all->n; o++) {
            bool like = all->at[o].list == 1 && fabs(all->at[o].units - k->units) < 0.5;
            same += like ? all->at[o].ns : 0;
        }
        units = same > most ? k->units : units;
        most = fmax(most, same);
    }
    for (uint32_t c = 1; c < RU_ARRAY_LEN(classes); c++) {
        cls = of_class[c] > of_class[cls] ? c : cls;
    }
    ru_json_open(j, "services", '[');
    ru_json_open(j, NULL, '{');
    ru_json_str(j, "name", "requests");
    ru_json_f64(j, "solo_ms", ns * 1e-6);
    ru_json_f64(j, "tail_ms", ns * 1e-6 * TAIL);
    ru_json_f64(j, "rate", LOAD / (ns * 1e-9));
    ru_json_f64(j, "units", units);
    ru_json_i64(j, "ops", (int64_t)n);
    ru_json_str(j, "class", classes[cls]);
    ru_json_close(j);
    ru_json_close(j);
}

static void put_ops(const kinds *all, ru_arena *arena, ru_json *j)
{
    ru_json_open(j, "ops", '[');
    for (uint32_t i = 0; i < all->n; i++) {
        const kind *k = &all->at[i];
        if (k->list == 2) {
            ru_json_open(j, NULL, '{');
            ru_json_str(j, "name",
                        ru_arena_printf(arena, "%.*s %g %s", (int)k->name.n, k->name.p, k->units,
                                        classes[k->cls]));
            ru_json_f64(j, "us", k->ns / k->n * 1e-3);
            ru_json_f64(j, "units", k->units);
            ru_json_f64(j, "count", k->n);
            ru_json_str(j, "class", classes[k->cls]);
            ru_json_close(j);
        }
    }
    ru_json_close(j);
}

static ru_status read_kernels(const char *path, ru_str text, ru_arena *arena, ru_json *j,
                              ru_err *err)
{
    if (ru_is_gzip(text)) {
        RU_TRY(ru_gunzip(path, text, arena, &text, err));
    }
    kinds all = {.at = RU_NEW(arena, kind, KINDS_MAX)};
    if (all.at == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "%s: no memory for kernels", path);
    }
    ru_str line;
    uint32_t in_list = 0, training = 0;
    for (uint32_t n = 1; ru_str_next(&text, '\n', &line); n++) {
        kind k;
        line = ru_str_trim(line);
        if (line.n == 0 || ru_str_eq_c(line, head)) {
            all.lists += line.n > 0 ? 1 : 0;
            continue;
        }
        if (all.lists == 0 || line.n > 4096 || !kernel_of(line, &k)) {
            return RU_FAIL(err, RU_E_DATA, "%s:%u: '%.*s', expected %s", path, n,
                           (int)(line.n < 60 ? line.n : 60), line.p, head);
        }
        in_list += all.lists == 1 ? 1 : 0;
        training += all.lists > 1 ? 1 : 0;
        if (!add(&all, &k)) {
            return RU_FAIL(err, RU_E_LIMIT, "%s:%u: more than %d kinds of kernels", path, n,
                           KINDS_MAX);
        }
    }
    if (in_list == 0 || training == 0) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s: one list of kernels, expected two or more: those of a request, then "
                       "those of a training step, each below its head",
                       path);
    }
    put_service(&all, j);
    put_ops(&all, arena, j);
    return RU_OK;
}

const ru_natural rui_natural_gate_kernels = {
    .policy = "gate",
    .what = "lists of kernels, of a request and then of a training step: CSV with the head "
            "'Name,Profile,Memory_footprint,SM_usage,Duration' before each; requests keep the "
            "device busy for 40 % of the time",
    .is = is_kernels,
    .read = read_kernels,
};
