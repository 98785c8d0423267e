/* Times of networks that were left out, from timings of the others: twelve published layer profiles
 * of one device; then four rented devices (replay_device_rent.c). */
#include "bench/replay/cut/replay_device.h"

#include <math.h>
#include <string.h>

#include "cost/step/timing.h"
#include "env/file/file.h"
#include "solve/solver.h"
#include "store/layers.h"

enum { NETS = 12, METHODS = 5, PASSES = 2 };

static const char *const nets[NETS] = {
    "alexnet",  "densenet121", "inception_v3", "nasnetalarge", "nasnetamobile", "resnet101",
    "resnet18", "resnet50",    "resnext101",   "resnext50",    "squeezenet1_0", "vgg16"};
static const char *const methods[METHODS] = {"trees", "squares", "ceer", "median", "paleo"};

typedef struct profile {
    ru_timing_row *rows;
    uint32_t n, n_max;
    const char *kinds[RU_TIMING_KINDS_MAX];
    uint32_t n_kinds;
} profile;

/* The k-th number after `word` in a layer's name; 0: none. */
static double number_after(const char *name, const char *word, uint32_t k)
{
    const char *at = strstr(name, word);
    double v = 0;
    for (at = at == NULL ? "" : at + strlen(word); *at != '\0'; at++) {
        uint32_t digits = 0;
        for (v = 0; at[digits] >= '0' && at[digits] <= '9'; digits++) {
            v = 10 * v + (at[digits] - '0');
        }
        if (digits > 0 && k-- == 0) {
            return v;
        }
        at += digits > 0 ? digits - 1 : 0;
    }
    return 0;
}

static uint32_t kind_of(ru_replay *r, profile *p, const char *name, bool back, double groups,
                        double taps)
{
    char text[96];
    ru_text t = ru_text_into(text, sizeof text);
    const char *end = strchr(name, '(');
    ru_text_putf(&t, "%s/%.*s", back ? "backward" : "forward",
                 (int)(end == NULL ? strlen(name) : (size_t)(end - name)), name);
    if (strncmp(name, "Conv2d", 6) == 0) {
        ru_text_put(&t, groups > 1 ? "/grouped" : taps > 1 ? "/wide" : "/1x1");
    }
    for (uint32_t i = 0; i < p->n_kinds; i++) {
        if (strcmp(p->kinds[i], text) == 0) {
            return i;
        }
    }
    RU_CHECK(p->n_kinds < RU_TIMING_KINDS_MAX);
    p->kinds[p->n_kinds] = ru_arena_str(r->arena, text);
    return p->n_kinds++;
}

/* Both passes of a layer. What reads the step's input has no gradient of it to compute, and waits
 * for the host in the profile. */
static ru_status add_layer(ru_replay *r, profile *p, const ru_layer *l, double in, double host,
                           uint32_t net, ru_err *err)
{
    bool conv = strncmp(l->name, "Conv2d(", 7) == 0, product = strncmp(l->name, "Linear(", 7) == 0;
    bool pool = strstr(l->name, "Pool2d(") != NULL;
    double taps = 1, groups = 1, ci = 0, co = 0, flops = 0, out = l->activation_bytes / 4;
    if (conv) {
        double g = number_after(l->name, "groups=", 0);
        groups = g > 0 ? g : 1;
        taps = number_after(l->name, "kernel_size=", 0) * number_after(l->name, "kernel_size=", 1);
        ci = number_after(l->name, "(", 0) / groups;
        co = number_after(l->name, "(", 1) / groups;
        flops = 2 * out * ci * taps;
    } else if (product) {
        ci = number_after(l->name, "in_features=", 0);
        co = number_after(l->name, "out_features=", 0);
        flops = 2 * out * ci;
    } else if (pool) {
        double k = number_after(l->name, "kernel_size=", 0);
        flops = out * k * k;
    }
    for (uint32_t back = 0; back < PASSES; back++) {
        double *x = RU_NEW(r->arena, double, RU_TIMING_COLUMNS);
        if (x == NULL || p->n == p->n_max) {
            return RU_FAIL(err, RU_E_LIMIT, "no memory for %u timings", p->n);
        }
        const ru_timing_op op = {
            .in_bytes = back == 1 && host > 0 ? 0 : in,
            .out_bytes = l->activation_bytes,
            .host_bytes = back == 1 ? 0 : host,
            .param_bytes = l->param_bytes,
            .flops = back == 1 && !(host > 0) ? 2 * flops : flops,
            .channels_in = conv ? ci : 0,
            .channels_out = conv ? co : 0,
            .taps = taps,
        };
        ru_timing_add(&op, 1, x);
        p->rows[p->n++] = (ru_timing_row){kind_of(r, p, l->name, back == 1, groups, taps), net, x,
                                          1e-3 * (back == 1 ? l->backward_ms : l->forward_ms)};
    }
    return RU_OK;
}

static ru_status add_net(ru_replay *r, profile *p, uint32_t net, ru_err *err)
{
    const char *path =
        ru_replay_data(r, ru_arena_printf(r->arena, "pipedream-profiles/%s.graph.txt", nets[net]));
    char *text;
    int64_t size;
    ru_layer_graph g;
    if (path == NULL) {
        return RU_FAIL(err, RU_E_MISSING, "a file of the published data is missing");
    }
    RU_TRY(ru_file_read(path, 64 << 20, r->arena, &text, &size, err));
    RU_TRY(ru_layers_read(path, ru_str_n(text, size), r->arena, &g, err));
    double *in = RU_NEW(r->arena, double, g.n), *host = RU_NEW(r->arena, double, g.n);
    if (in == NULL || host == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u layers", g.n);
    }
    for (uint32_t e = 0; e < g.n_edges; e++) {
        const ru_layer *from = &g.layers[g.edges[e].from];
        in[g.edges[e].to] += from->activation_bytes;
        host[g.edges[e].to] += strncmp(from->name, "Input", 5) == 0 ? from->activation_bytes : 0;
    }
    for (uint32_t i = 0; i < g.n; i++) {
        if (strncmp(g.layers[i].name, "Input", 5) != 0) {
            RU_TRY(add_layer(r, p, &g.layers[i], in[i], host[i], net, err));
        }
    }
    return RU_OK;
}

/* Kinds whose ops take 0.5 ms. */
static void mark_heavy(const profile *p, bool *heavy)
{
    for (uint32_t k = 0; k < p->n_kinds; k++) {
        double sum = 0, n = 0;
        for (uint32_t i = 0; i < p->n; i++) {
            sum += p->rows[i].kind == k ? p->rows[i].seconds : 0;
            n += p->rows[i].kind == k ? 1 : 0;
        }
        heavy[k] = n > 0 && sum / n >= 0.5e-3;
    }
}

/* The relative error of the sum of a network, fitted to the others; `factor` NULL: no interval. */
static ru_status left_out(ru_replay *r, const profile *p, uint32_t net, uint32_t method,
                          double *error, double *factor, ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(r->arena);
    ru_timing_row *rows = RU_NEW(r->arena, ru_timing_row, p->n);
    bool *heavy = RU_NEW(r->arena, bool, p->n_kinds);
    if (rows == NULL || heavy == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u timings", p->n);
    }
    mark_heavy(p, heavy);
    ru_timing_in in = {.rows = rows,
                       .kinds = p->kinds,
                       .n_kinds = p->n_kinds,
                       .heavy = heavy,
                       .method = (ru_timing_method)method,
                       .solver = &ru_solver_library,
                       .seed = 1};
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->rows[i].net != net) {
            rows[in.n] = p->rows[i];
            rows[in.n++].net -= p->rows[i].net > net ? 1 : 0;
        }
    }
    ru_timing_model m;
    RU_TRY(ru_timing_fit(&in, r->arena, r->arena, &m, err));
    double is = 0, was = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->rows[i].net == net) {
            is += p->rows[i].seconds;
            was += ru_timing_at(&m, &p->rows[i]);
        }
    }
    *error = was / is - 1;
    if (factor != NULL) {
        ru_timing_case cases[NETS] = {{0}};
        for (uint32_t i = 0; i < in.n; i++) { /* rows of a network follow each other */
            ru_timing_case *c = &cases[rows[i].net];
            c->rows = c->n == 0 ? &rows[i] : c->rows;
            c->n++;
        }
        for (uint32_t k = 0; k < NETS - 1; k++) {
            cases[k].net = k;
            cases[k].teaches = true;
            cases[k].step.devices = 1;
        }
        RU_TRY(ru_timing_margin(&in, cases, NETS - 1, 0.8, r->arena, factor, err));
    }
    ru_arena_rewind(r->arena, mark);
    return RU_OK;
}

static ru_status profiles(ru_replay *r, ru_err *err)
{
    profile *p = RU_NEW(r->arena, profile, 1);
    if (p == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the profiles");
    }
    p->n_max = 20000;
    p->rows = RU_NEW(r->arena, ru_timing_row, p->n_max);
    if (p->rows == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the profiles");
    }
    for (uint32_t net = 0; net < NETS; net++) {
        RU_TRY(add_net(r, p, net, err));
    }
    double errors[METHODS][NETS], mean[METHODS] = {0}, most[METHODS] = {0}, held = 0, wide = 0;
    for (uint32_t m = 0; m < METHODS; m++) {
        for (uint32_t net = 0; net < NETS; net++) {
            double factor;
            bool interval = m == 0 && !r->quick;
            ru_status st = left_out(r, p, net, m, &errors[m][net], interval ? &factor : NULL, err);
            if (st == RU_E_UNSUPPORTED) {
                errors[m][net] = RU_NAN;
                continue;
            }
            RU_TRY(st);
            if (interval) {
                held += 1 / (1 + errors[m][net]) <= factor ? 1.0 / NETS : 0;
                wide += factor / NETS;
            }
        }
        for (uint32_t net = 0; net < NETS; net++) {
            mean[m] += fabs(errors[m][net]) / NETS;
            most[m] = fmax(most[m], fabs(errors[m][net]));
        }
    }
    for (uint32_t k = 0; k < NETS + 2; k++) {
        char name[64];
        ru_text t = ru_text_into(name, sizeof name);
        ru_text_putf(&t, "profile, %s",
                     k < NETS    ? nets[k]
                     : k == NETS ? "mean of 12"
                                 : "worst of 12");
        ru_replay_row row = ru_replay_row_of(name, "error_percent", true);
        for (uint32_t m = 0; m < METHODS; m++) {
            double e = 100 * (k < NETS ? fabs(errors[m][k]) : k == NETS ? mean[m] : most[m]);
            if (m == 0) {
                row.ours = e;
            } else {
                ru_replay_baseline(r, &row, methods[m], e);
            }
        }
        row.goal = k < NETS ? RU_NAN : k == NETS ? 8 : 20;
        row.best_known = k < NETS ? RU_NAN : k == NETS ? 8.8 : 23;
        RU_TRY(ru_replay_add(r, &row, err));
    }
    if (!r->quick) {
        ru_replay_row row = ru_replay_row_of("profile, margins of 0.8", "share_below", false);
        char note[64];
        ru_text t = ru_text_into(note, sizeof note);
        ru_text_putf(&t, "mean factor %.3g", wide);
        row.note = note;
        row.ours = held;
        row.goal = 0.75; /* 9 of 12: the law of 12 draws allows it */
        RU_TRY(ru_replay_add(r, &row, err));
    }
    return RU_OK;
}

ru_status rui_replay_device(ru_replay *r, ru_err *err)
{
    RU_TRY(profiles(r, err));
    return rui_device_rent(r, err);
}
