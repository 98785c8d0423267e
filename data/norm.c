#include "data/norm.h"

static ru_status not_fit(const ru_data_options *opt, const ru_type *x, int64_t dim,
                         const char *where, ru_err *err)
{
    char many[32] = "";
    ru_text t = ru_text_into(many, sizeof many);
    if (dim > 1) {
        ru_text_putf(&t, " or %lld of them", (long long)dim);
    }
    return RU_FAIL(err, RU_E_CONFIG,
                   "%s: mean has %u and std %u numbers; x is %s: expected one number%s", where,
                   opt->n_mean, opt->n_std,
                   x->dtype != RU_F32 ? "no field of floats"
                   : x->rank == 3     ? "an image"
                                      : "a vector",
                   many);
}

ru_status ru_norm_open(const ru_data_options *opt, const ru_type *x, const char *where,
                       ru_arena *arena, ru_norm *out, ru_err *err)
{
    uint32_t n = opt->n_mean > opt->n_std ? opt->n_mean : opt->n_std;
    int64_t dim = x->rank == 1 || x->rank == 3 ? x->dims[0] : 1;
    bool fits = (opt->n_mean <= 1 || opt->n_mean == n) && (opt->n_std <= 1 || opt->n_std == n) &&
                (n == 1 || (int64_t)n == dim);
    *out = (ru_norm){0};
    if (n == 0) {
        return RU_OK;
    }
    if (x->dtype != RU_F32 || !fits) {
        return not_fit(opt, x, dim, where, err);
    }
    ru_norm norm = {.channels = (int64_t)n, .inner = ru_type_count(x) / (int64_t)n};
    norm.sub = RU_NEW(arena, float, n);
    norm.mul = RU_NEW(arena, float, n);
    if (norm.sub == NULL || norm.mul == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for mean and std (%lld bytes)", (long long)n * 8);
    }
    for (uint32_t k = 0; k < n; k++) {
        double s = opt->n_std == 0 ? 1.0 : opt->std[opt->n_std == 1 ? 0 : k];
        if (!(s > 0)) {
            return RU_FAIL(err, RU_E_CONFIG, "data: std is %g; it must be above 0", s);
        }
        norm.sub[k] = opt->n_mean == 0 ? 0.0f : (float)opt->mean[opt->n_mean == 1 ? 0 : k];
        norm.mul[k] = (float)(1.0 / s);
    }
    *out = norm;
    return RU_OK;
}

void ru_norm_apply(const ru_norm *norm, float *x, int64_t n)
{
    for (int64_t i = 0; norm->mul != NULL && i < n * norm->channels; i++) {
        float sub = norm->sub[i % norm->channels], mul = norm->mul[i % norm->channels];
        for (int64_t j = 0; j < norm->inner; j++) {
            x[i * norm->inner + j] = (x[i * norm->inner + j] - sub) * mul;
        }
    }
}
