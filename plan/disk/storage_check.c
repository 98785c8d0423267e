/* The checker of placements of files: room at every opening, money by its definition. */
#include <math.h>

#include "cost/math/quantile.h"
#include "plan/disk/storage.h"

static bool near(double a, double b, double scale)
{
    return a == b || (isfinite(a - b) && fabs(a - b) <= 1e-9 * scale);
}

static ru_status check_place(const ru_storage_in *in, const ru_storage_plan *p, uint32_t k,
                             uint32_t file, ru_err *err)
{
    const ru_storage_place *at = &p->places[k];
    double size = in->files[file].size_bytes;
    if (at->file != file) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "place %u belongs to file %u, expected %u", k,
                       at->file, file);
    }
    if (!(at->ssd_bytes >= 0) || at->ssd_bytes > size || at->ssd_bytes > at->limit_bytes ||
        (at->limit_bytes > 0) != (at->ssd_bytes > 0)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "file %u has %g bytes on SSD, limit %g, size %g", file,
                       at->ssd_bytes, at->limit_bytes, size);
    }
    bool classes = in->method == RU_STORAGE_CATEGORY || in->method == RU_STORAGE_HASH ||
                   in->method == RU_STORAGE_TRUE_CLASS;
    if (!classes && at->ssd_bytes > 0 && at->ssd_bytes < fmin(size, at->limit_bytes)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "file %u spills below its limit", file);
    }
    return RU_OK;
}

/* Openings and deletions in the order of time, deletions first. */
static ru_status check_room(const ru_storage_in *in, const ru_storage_plan *p, ru_arena *scratch,
                            ru_err *err)
{
    double *end = RU_NEW(scratch, double, p->n + 1), used = 0, peak = 0;
    uint32_t *order = RU_NEW(scratch, uint32_t, p->n + 1), gone = 0;
    if (end == NULL || order == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u places", p->n);
    }
    for (uint32_t k = 0; k < p->n; k++) {
        const ru_density_file *f = &in->files[p->places[k].file];
        end[k] = floor((f->open_s + f->life_s) * 1e6);
    }
    ru_sort_order_f64(end, order, p->n);
    for (uint32_t k = 0; k < p->n; k++) {
        double now = floor(in->files[p->places[k].file].open_s * 1e6);
        while (gone < p->n && order[gone] < k && end[order[gone]] <= now) {
            used -= p->places[order[gone++]].ssd_bytes;
        }
        used += p->places[k].ssd_bytes;
        if (used > in->quota_bytes * (1 + 1e-9)) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "file %u overfills the SSD by %g bytes",
                           p->places[k].file, used - in->quota_bytes);
        }
        peak = fmax(peak, used);
    }
    return near(peak, p->peak_bytes, fmax(in->quota_bytes, 1))
               ? RU_OK
               : RU_FAIL(err, RU_E_INFEASIBLE, "the SSD holds %g bytes at most, not %g", peak,
                         p->peak_bytes);
}

ru_status ru_plan_storage_check(const ru_storage_in *in, const ru_storage_plan *p,
                                ru_arena *scratch, ru_err *err)
{
    uint32_t k = 0, admitted = 0, demoted = 0;
    double hdd_usd = 0, saving_usd = 0, at_stake = 0;
    const ru_density_prices *c = &in->prices;
    for (uint32_t i = 0; i < in->n; i++) {
        const ru_density_file *f = &in->files[i];
        if (f->open_s < in->from_s) {
            continue;
        }
        if (k == p->n) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "file %u has no place", i);
        }
        RU_TRY(check_place(in, p, k, i, err));
        double share = p->places[k].ssd_bytes / f->size_bytes, byte_s = f->size_bytes * f->life_s;
        double hdd = byte_s * c->hdd_byte_s +
                     c->hdd_io_s * (c->seek_s * f->ops + 2 * f->size_bytes / c->hdd_bytes_per_s);
        double ssd = byte_s * c->ssd_byte_s + c->wear_byte * f->size_bytes;
        hdd_usd += hdd;
        saving_usd += share * (hdd - ssd);
        at_stake += hdd + ssd;
        admitted += share > 0 ? 1 : 0;
        demoted += share > 0 && share < 1 ? 1 : 0;
        k++;
    }
    if (k != p->n || admitted != p->admitted || demoted != p->demoted) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "%u places, %u admitted and %u demoted, not %u, %u, %u", k, admitted,
                       demoted, p->n, p->admitted, p->demoted);
    }
    if (!near(hdd_usd, p->hdd_usd, at_stake) || !near(saving_usd, p->saving_usd, at_stake)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "%g USD of %g are saved, not %g of %g", saving_usd,
                       hdd_usd, p->saving_usd, p->hdd_usd);
    }
    return check_room(in, p, scratch, err);
}
