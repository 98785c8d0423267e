/* Placement benchmarks, operator graphs and layer profiles as inputs of the policy `place`. */
#include <math.h>
#include <stddef.h>

#include "base/map.h"
#include "store/layers.h"
#include "store/natural.h"

static void put_ms(ru_json *j, const char *key, double ms)
{
    char time[32];
    ru_text t = ru_text_into(time, sizeof time);
    ru_text_putf(&t, "%lldns", (long long)floor(fmin(ms, 1e7) * 1e6 + 0.5));
    ru_json_str(j, key, time);
}

static void put_devices(ru_json *j, uint32_t n, double memory_bytes, bool cpu)
{
    ru_json_open(j, "devices", '[');
    for (uint32_t d = 0; d < n + (cpu ? 1u : 0u); d++) {
        ru_json_open(j, NULL, '{');
        if (d == n) {
            ru_json_str(j, "name", "cpu");
        } else {
            ru_json_i64(j, "memory", (int64_t)fmin(memory_bytes, 1e18));
        }
        ru_json_close(j);
    }
    ru_json_close(j);
}

/* -- benchmarks -------------------------------------------------------------------------------- */

enum { COLUMNS = 3 };

/* A line of numbers: how many there are; 0: something else stands there, or too many. */
static uint32_t numbers(ru_str line, double *at)
{
    ru_str rest = ru_str_trim(line), word;
    uint32_t n = 0;
    while (ru_str_next(&rest, ' ', &word)) {
        word = ru_str_trim(word);
        if (word.n == 0) {
            continue;
        }
        if (n == COLUMNS || !ru_str_f64(word, &at[n]) || !(at[n] >= 0) || at[n] > 1e18) {
            return 0;
        }
        n++;
    }
    return n;
}

static bool is_count(double x)
{
    return x <= 1e6 && x == floor(x);
}

/* The first line has three numbers, the second has two. */
static bool is_bench(const char *path, ru_str text)
{
    (void)path;
    ru_str line;
    double at[COLUMNS];
    return ru_str_next(&text, '\n', &line) && numbers(line, at) == 3 && is_count(at[0]) &&
           is_count(at[1]) && ru_str_next(&text, '\n', &line) && numbers(line, at) == 2;
}

static ru_status bad_line(const char *path, uint32_t at, ru_str line, const char *expected,
                          ru_err *err)
{
    return RU_FAIL(err, RU_E_DATA, "%s:%u: '%.*s', expected %s", path, at,
                   (int)(line.n < 60 ? line.n : 60), line.p, expected);
}

static ru_status read_bench(const char *path, ru_str text, ru_arena *arena, ru_json *j, ru_err *err)
{
    (void)arena;
    ru_str line;
    double head[COLUMNS], at[COLUMNS];
    RU_CHECK(ru_str_next(&text, '\n', &line) && numbers(line, head) == 3);
    uint32_t n = (uint32_t)head[0], m = (uint32_t)head[1];
    put_devices(j, 2, head[2], false);
    ru_json_open(j, "ops", '[');
    for (uint32_t i = 0; i < n; i++) {
        line = ru_str_n("", 0);
        if (!ru_str_next(&text, '\n', &line) || numbers(line, at) != 2) {
            return bad_line(path, i + 2, line, "ms of an op and its bytes", err);
        }
        ru_json_open(j, NULL, '{');
        put_ms(j, "time", at[0]);
        ru_json_i64(j, "memory", (int64_t)at[1]);
        ru_json_close(j);
    }
    ru_json_close(j);
    ru_json_open(j, "edges", '[');
    for (uint32_t e = 0; e < m; e++) {
        line = ru_str_n("", 0);
        if (!ru_str_next(&text, '\n', &line) || numbers(line, at) != 3 || !is_count(at[0]) ||
            !is_count(at[1]) || at[0] >= n || at[1] >= n) {
            return bad_line(path, n + e + 2, line,
                            "numbers of two ops (from 0) and the ms of a transfer", err);
        }
        ru_json_open(j, NULL, '{');
        ru_json_i64(j, "from", (int64_t)at[0]);
        ru_json_i64(j, "to", (int64_t)at[1]);
        put_ms(j, "time", at[2]);
        ru_json_close(j);
    }
    ru_json_close(j);
    while (ru_str_next(&text, '\n', &line)) {
        if (ru_str_trim(line).n > 0) {
            return bad_line(path, n + m + 2, line, "no more lines than the first one says", err);
        }
    }
    return RU_OK;
}

const ru_natural rui_natural_place_bench = {
    .policy = "place",
    .what = "placement benchmark for 2 devices: line 'OPS EDGES BYTES_OF_A_DEVICE', a line 'MS "
            "BYTES' for each op, a line 'FROM TO TRANSFER_MS' for each edge",
    .is = is_bench,
    .read = read_bench,
};

/* -- graphs ------------------------------------------------------------------------------------ */

static bool is_operators(const char *path, ru_str text)
{
    return ru_layers_are_operators(path, text);
}

static bool is_profile(const char *path, ru_str text)
{
    return ru_layers_are_profile(path, text);
}

/* Colours of two ops or more become groups 0, 1, ... in the order of the file. */
static ru_status find_groups(const ru_layer_graph *g, ru_arena *arena, int64_t *group, ru_err *err)
{
    ru_map first; /* colour -> first op with it */
    int64_t n = 0;
    ru_map_init(&first, arena, 0);
    for (uint32_t i = 0; i < g->n; i++) {
        group[i] = -1;
        if (g->layers[i].color < 0) {
            continue;
        }
        bool fresh;
        uint64_t *at = ru_map_put_u64(&first, (uint64_t)g->layers[i].color, &fresh);
        if (at == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "no memory for the colours of %u ops", g->n);
        }
        if (fresh) {
            *at = i;
        } else {
            group[*at] = group[*at] < 0 ? n++ : group[*at];
            group[i] = group[*at];
        }
    }
    return RU_OK;
}

static void put_op(ru_json *j, const char *name, const char *pass, double ms, double bytes,
                   int64_t group, int64_t device)
{
    char text[96];
    ru_text t = ru_text_into(text, sizeof text);
    ru_text_putf(&t, "%s%s", name, pass);
    ru_json_open(j, NULL, '{');
    ru_json_str(j, "name", text);
    put_ms(j, "time", ms);
    ru_json_i64(j, "memory", (int64_t)fmin(bytes, 1e15));
    if (group >= 0) {
        ru_json_i64(j, "group", group);
    }
    if (device >= 0) {
        ru_json_i64(j, "device", device);
    }
    ru_json_close(j);
}

static void put_edge(ru_json *j, uint32_t from, uint32_t to, double ms, double bytes)
{
    ru_json_open(j, NULL, '{');
    ru_json_i64(j, "from", from);
    ru_json_i64(j, "to", to);
    if (ms > 0) {
        put_ms(j, "time", ms);
    }
    if (bytes > 0) {
        ru_json_i64(j, "bytes", (int64_t)fmin(bytes, 1e15));
    }
    ru_json_close(j);
}

static ru_status read_operators(const char *path, ru_str text, ru_arena *arena, ru_json *j,
                                ru_err *err)
{
    ru_layer_graph g;
    RU_TRY(ru_layers_read(path, text, arena, &g, err));
    int64_t *group = RU_NEW(arena, int64_t, g.n);
    if (group == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "%s: no memory for %u ops", path, g.n);
    }
    RU_TRY(find_groups(&g, arena, group, err));
    uint32_t devices = g.accelerators < 1 ? 1 : g.accelerators > 1000 ? 1000 : g.accelerators;
    bool cpu = false;
    for (uint32_t i = 0; i < g.n; i++) {
        cpu = cpu || !g.layers[i].accelerated;
    }
    put_devices(j, devices, g.accelerator_bytes, cpu);
    ru_json_open(j, "ops", '[');
    for (uint32_t i = 0; i < g.n; i++) {
        const ru_layer *l = &g.layers[i];
        put_op(j, l->id, "", l->accelerated ? l->forward_ms : l->cpu_ms, l->param_bytes, group[i],
               l->accelerated ? -1 : (int64_t)devices);
    }
    ru_json_close(j);
    ru_json_open(j, "edges", '[');
    for (uint32_t e = 0; e < g.n_edges; e++) {
        put_edge(j, g.edges[e].from, g.edges[e].to, g.edges[e].ms, 0);
    }
    ru_json_close(j);
    return RU_OK;
}

/* Layer i is op i forward and op n + i backward, both on one device: outputs go forward, their
 * gradients, of the same size, backward. Layers that load samples have no backward pass. */
static ru_status read_profile(const char *path, ru_str text, ru_arena *arena, ru_json *j,
                              ru_err *err)
{
    ru_layer_graph g;
    RU_TRY(ru_layers_read(path, text, arena, &g, err));
    put_devices(j, 2, 0, false);
    ru_json_open(j, "ops", '[');
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < g.n; i++) {
            const ru_layer *l = &g.layers[i];
            bool loads = ru_str_starts(ru_str_c(l->name), "Input");
            double ms = pass == 0 ? l->forward_ms : l->backward_ms;
            put_op(j, l->id, pass == 0 ? "" : ".grad", loads ? 0 : ms,
                   pass == 0 ? l->param_bytes + l->activation_bytes : 0, i, -1);
        }
    }
    ru_json_close(j);
    ru_json_open(j, "edges", '[');
    for (uint32_t i = 0; i < g.n; i++) {
        put_edge(j, i, g.n + i, 0, 0);
    }
    for (uint32_t e = 0; e < g.n_edges; e++) {
        uint32_t from = g.edges[e].from, to = g.edges[e].to;
        double bytes = g.layers[from].activation_bytes;
        bool loads = ru_str_starts(ru_str_c(g.layers[from].name), "Input");
        put_edge(j, from, to, 0, bytes);
        put_edge(j, g.n + to, g.n + from, 0, loads ? 0 : bytes);
    }
    ru_json_close(j);
    return RU_OK;
}

const ru_natural rui_natural_place_operators = {
    .policy = "place",
    .what = "operator graph: JSON with 'nodes' and 'edges', plain or .json.gz; its accelerators, "
            "and a CPU when some op needs one",
    .is = is_operators,
    .read = read_operators,
};

const ru_natural rui_natural_place_profile = {
    .policy = "place",
    .what = "layer profile: lines 'ID -- NAME -- forward_compute_time=ms, ...', edges 'ID -- ID'; "
            "a forward and a backward op for each layer, on 2 devices; 'devices', 'bytes_per_s' by "
            "--set",
    .is = is_profile,
    .read = read_profile,
};
