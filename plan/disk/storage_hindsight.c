/* What limits could save at most if they follow from what is known at an opening, see storage.h.
 *
 * A file of a group with a record, or whose readers tell its size, goes to SSD if it saves. Of the
 * others, in the order of the bytes that their jobs read, every ten share one limit, the best one
 * in hindsight. */
#include <math.h>

#include "cost/math/quantile.h"
#include "plan/disk/storage_impl.h"

enum { TOGETHER = 10 };

/* The most readers of any file: more bytes need no more of them, so they do not tell the size. */
static double most_readers(const ru_storage_in *in)
{
    double most = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        most = fmax(most, in->files[i].readers);
    }
    return most;
}

/* Of these files; one of their sizes, or 0: between two sizes the saving is linear in the limit. */
static double best_limit(const ru_storage_in *in, const uint32_t *file, uint32_t n)
{
    double best = 0, limit = 0;
    for (uint32_t k = 0; k < n; k++) {
        double at = in->files[file[k]].size_bytes, saved = 0;
        for (uint32_t i = 0; i < n; i++) {
            const ru_density_file *f = &in->files[file[i]];
            saved += ru_density_saving(&in->prices, f) * fmin(1, at / f->size_bytes);
        }
        limit = saved > best ? at : limit;
        best = fmax(best, saved);
    }
    return limit;
}

ru_status rui_storage_hindsight_init(ru_storage_live *p, ru_err *err)
{
    const ru_storage_in *in = p->in;
    double *first_end = RU_NEW(p->scratch, double, in->n_groups), most = most_readers(in);
    double *key = RU_NEW(p->scratch, double, in->n + 1);
    uint32_t *unknown = RU_NEW(p->scratch, uint32_t, in->n + 1), n = 0;
    uint32_t *order = RU_NEW(p->scratch, uint32_t, in->n + 1), file[TOGETHER];
    p->limit_bytes = RU_NEW(p->scratch, double, in->n);
    if (first_end == NULL || key == NULL || unknown == NULL || order == NULL ||
        p->limit_bytes == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u files", in->n);
    }
    for (uint32_t g = 0; g < in->n_groups; g++) {
        first_end[g] = INFINITY;
    }
    for (uint32_t i = 0; i < in->n; i++) {
        const ru_density_file *f = &in->files[i];
        first_end[f->group] = fmin(first_end[f->group], f->open_s + f->life_s);
    }
    for (uint32_t i = 0; i < in->n; i++) {
        const ru_density_file *f = &in->files[i];
        bool sized = f->readers > 0 && f->readers < most;
        if (sized || first_end[f->group] <= f->open_s) {
            p->limit_bytes[i] = ru_density_saving(&in->prices, f) > 0 ? f->size_bytes : 0;
        } else if (f->open_s >= in->from_s) {
            unknown[n] = i;
            key[n++] = f->input_bytes;
        }
    }
    ru_sort_order_f64(key, order, n);
    for (uint32_t k = 0; k < n; k += TOGETHER) {
        uint32_t m = n - k < TOGETHER ? n - k : TOGETHER;
        for (uint32_t i = 0; i < m; i++) {
            file[i] = unknown[order[k + i]];
        }
        double limit = best_limit(in, file, m);
        for (uint32_t i = 0; i < m; i++) {
            p->limit_bytes[file[i]] = limit;
        }
    }
    return RU_OK;
}
