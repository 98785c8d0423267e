#include "train/driver/histograms.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "env/file/file.h"

enum {
    SHIFT = 22,
    BINS = 1 << (32 - SHIFT)
}; /* the upper bits of a float; the sign is the first */

typedef struct histogram {
    int64_t count[BINS];
    int64_t n;
    double min, max, sum, squares;
} histogram;

struct rui_hists {
    histogram *gradients; /* [n] by parameter of the step */
    histogram now;        /* of a parameter */
    float *data;          /* the largest parameter */
    uint32_t n;
};

bool rui_hists_due(const rui_trainer *t)
{
    int64_t every = t->job->train.histograms;
    return every > 0 && (t->step_done + 1) % every == 0;
}

ru_status rui_hists_open(rui_trainer *t, ru_err *err)
{
    if (t->job->train.histograms == 0 || t->hists != NULL) {
        return RU_OK;
    }
    int64_t most = 1;
    for (uint32_t k = 0; k < t->step.n_params; k++) {
        int64_t n = ru_type_count(&t->step.graph.values[t->step.params[k].v].type);
        most = n > most ? n : most;
    }
    struct rui_hists *h = calloc(1, sizeof *h);
    if (h != NULL) {
        h->n = t->step.n_params;
        h->gradients = calloc(h->n, sizeof *h->gradients);
        h->data = malloc((size_t)most * sizeof *h->data);
    }
    t->hists = h;
    if (h == NULL || h->gradients == NULL || h->data == NULL) {
        rui_hists_close(t);
        return RU_FAIL(err, RU_E_MEM, "not enough memory for train.histograms");
    }
    return RU_OK;
}

void rui_hists_close(rui_trainer *t)
{
    if (t->hists != NULL) {
        free(t->hists->gradients);
        free(t->hists->data);
        free(t->hists);
        t->hists = NULL;
    }
}

/* `own` of the n numbers count, the others are zeros of a layout. */
static void fill(histogram *h, const float *data, int64_t n, int64_t own)
{
    memset(h, 0, sizeof *h);
    h->n = own;
    h->min = INFINITY;
    h->max = -INFINITY;
    for (int64_t e = 0; e < n; e++) {
        uint32_t bits;
        memcpy(&bits, &data[e], sizeof bits);
        h->count[bits >> SHIFT]++;
        double x = (double)data[e];
        h->sum += x;
        h->squares += x * x;
        h->min = x < h->min ? x : h->min;
        h->max = x > h->max ? x : h->max;
    }
    h->count[0] -= n - own < h->count[0] ? n - own : h->count[0];
}

static int64_t count_of(const rui_trainer *t, uint32_t k)
{
    return ru_type_count(&t->step.graph.values[t->step.params[k].v].type);
}

void rui_hists_gradient(rui_trainer *t, uint32_t k, const float *data, int64_t n)
{
    if (t->hists != NULL && k < t->hists->n) {
        fill(&t->hists->gradients[k], data, n, count_of(t, k));
    }
}

static ru_status on_gradient(void *self, const ru_exe_at *at)
{
    rui_trainer *t = self;
    for (uint32_t k = 0; rui_hists_due(t) && k < t->step.n_params; k++) {
        if (t->step.grads[k].v == at->value.v) {
            rui_hists_gradient(t, k, at->data, at->size_bytes / (int64_t)sizeof(float));
        }
    }
    return RU_OK;
}

ru_status rui_hists_listen(rui_trainer *t, ru_err *err)
{
    const ru_exe_port port = {.leaves = true, .fn = on_gradient, .self = t};
    return t->job->train.histograms > 0 ? ru_exe_ports_set(t->exe, &port, 1, err) : RU_OK;
}

/* -- the file ---------------------------------------------------------------------------------- */

static double edge(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

/* [upper limit, count] of each bin that is not empty, from the lowest number up. */
static void put_bins(const histogram *h, ru_text *out)
{
    const char *comma = "";
    for (uint32_t i = 0; i < BINS; i++) {
        bool negative = i < BINS / 2;
        uint32_t bin = negative ? BINS - 1 - i : i - BINS / 2;
        uint32_t bits = (negative ? bin : bin + 1) << SHIFT; /* the edge above it */
        double up = edge(bits);
        if (h->count[bin] > 0 && isfinite(up)) {
            ru_text_putf(out, "%s[%.9g,%lld]", comma, up, (long long)h->count[bin]);
            comma = ",";
        }
    }
}

/* A tensor without finite numbers is left out: JSON has no other. */
static void put(const histogram *h, const char *of, const char *name, ru_text *out)
{
    if (h->n == 0 || !isfinite(h->squares)) {
        return;
    }
    bool first = out->p[out->n - 2] == '[';
    ru_text_putf(out, "%s{\"of\":\"%s\",\"name\":", first ? "" : ",\n", of);
    ru_text_json(out, ru_str_c(name));
    ru_text_putf(out, ",\"n\":%lld,\"min\":%.9g,\"max\":%.9g,\"sum\":%.9g,\"squares\":%.9g,",
                 (long long)h->n, h->min, h->max, h->sum, h->squares);
    ru_text_put(out, "\"bins\":[");
    put_bins(h, out);
    ru_text_put(out, "]}");
}

static ru_status put_all(rui_trainer *t, ru_text *out, ru_err *err)
{
    struct rui_hists *h = t->hists;
    ru_text_putf(out, "{\"schema\":\"rubato.train.histograms/1\",\"step\":%lld,\"tensors\":[\n",
                 (long long)t->step_done);
    for (uint32_t k = 0; k < h->n; k++) {
        ru_value_id p = t->step.params[k];
        int64_t n = count_of(t, k);
        const char *name = t->step.graph.values[p.v].name;
        RU_TRY(ru_exe_state_read(t->exe, p, h->data, err));
        fill(&h->now, h->data, n, n);
        put(&h->gradients[k], "gradient", name != NULL ? name : "", out);
        put(&h->now, "parameter", name != NULL ? name : "", out);
        h->gradients[k].n = 0;
    }
    ru_text_put(out, "]}\n");
    return out->cut ? RU_FAIL(err, RU_E_MEM, "not enough memory for histograms") : RU_OK;
}

ru_status rui_hists_write(rui_trainer *t, ru_err *err)
{
    int64_t every = t->job->train.histograms;
    if (t->hists == NULL || t->step_done % every != 0) {
        return RU_OK;
    }
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_text text = ru_text_arena(&scratch);
    const char *dir = ru_path_join(&scratch, t->out, "histograms");
    const char *path = ru_arena_printf(&scratch, "%s/%09lld.json", dir != NULL ? dir : "",
                                       (long long)t->step_done);
    ru_status st = dir != NULL && path != NULL
                       ? ru_dir_make(dir, err)
                       : RU_FAIL(err, RU_E_MEM, "not enough memory for histograms");
    st = st == RU_OK ? put_all(t, &text, err) : st;
    st = st == RU_OK ? ru_file_own(path, text.p, text.n, err) : st;
    ru_arena_fini(&scratch);
    return st;
}
