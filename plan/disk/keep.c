#include "plan/disk/keep.h"

#include <math.h>

static int64_t record_of(const ru_keep_in *in, ru_keep_form form)
{
    return form == RU_KEPT_NONE ? 0 : form == RU_KEPT_BYTES ? in->bytes : in->decoded_bytes;
}

static ru_status check_in(const ru_keep_in *in, ru_err *err)
{
    bool right = in->samples > 0 && in->epochs >= 1 && in->epochs <= RU_KEEP_EPOCHS_MAX &&
                 in->hosts >= 1 && in->readers >= 1 && in->threads >= 1 && in->fetch_s >= 0 &&
                 in->decode_s >= 0 && in->unpack_s >= 0 && in->train_s >= 0 && in->bytes >= 0 &&
                 in->decoded_bytes >= 0 && in->room_bytes >= 0 && in->read_mb_per_s > 0 &&
                 in->write_mb_per_s > 0 && in->gain_min >= 0 && in->gain_min <= 1;
    return right ? RU_OK
                 : RU_FAIL(err, RU_E_ARG,
                           "samples, epochs (at most %d), hosts, threads and rates must be above 0 "
                           "and nothing below",
                           RU_KEEP_EPOCHS_MAX);
}

/* An epoch of a host: `hit` of its reads are kept ones, and `fresh` of its samples are kept in it.
 */
static double epoch_s(const ru_keep_in *in, ru_keep_form form, double hit, double fresh)
{
    double n = (double)in->samples / in->hosts, mb = 1e-6 * (double)record_of(in, form);
    double decode =
        form == RU_KEPT_DECODED ? (1 - hit) * in->decode_s + hit * in->unpack_s : in->decode_s;
    double stages = fmax((1 - hit) * in->fetch_s, decode / in->readers);
    stages = fmax(stages, mb * (hit / in->read_mb_per_s + fresh / in->write_mb_per_s));
    double work = decode + fmin(in->threads, in->cores) * in->train_s; /* of the cores */
    stages = fmax(stages, in->cores > 0 ? work / in->cores : 0);
    return n * fmax(stages, in->train_s);
}

double ru_keep_train_alone(const ru_keep_in *in, double step_s, double all_s)
{
    if (in->cores == 0 || all_s <= 0) {
        return step_s;
    }
    double c = in->cores, k = in->threads, r = in->readers;
    double alone = fmin(1, c / k), fair = fmin(1, c / (k + r)); /* of a core, for each thread */
    double busy = fmin(1, in->decode_s / (r * fair * all_s));   /* readers, of the time */
    return step_s * (1 - busy * (1 - fair / alone));
}

static ru_keep_plan keeping(const ru_keep_in *in, ru_keep_form form)
{
    ru_keep_plan p = {.form = form, .none_s = epoch_s(in, RU_KEPT_NONE, 0, 0)};
    int64_t record = record_of(in, form), room = record > 0 ? in->room_bytes / record : 0;
    p.kept = room < in->samples ? room : in->samples;
    double most = (double)p.kept / (double)in->samples, met = 0, each = 1.0 / in->hosts;
    for (int64_t e = 0; e < in->epochs; e++) {
        double next = met + (1 - met) * each;
        double hit = fmin(met, most), fresh = (fmin(next, most) - hit) * in->hosts;
        p.epoch_s = epoch_s(in, form, hit, fresh);
        p.first_s = e == 0 ? p.epoch_s : p.first_s;
        p.all_s += p.epoch_s;
        p.hit = hit;
        met = next;
    }
    p.written_mb = 1e-6 * (double)record * fmin(met, most) * (double)in->samples;
    return p;
}

ru_status ru_plan_keep(const ru_keep_in *in, ru_keep_plan *plan, ru_err *err)
{
    RU_TRY(check_in(in, err));
    ru_keep_plan best = keeping(in, RU_KEPT_NONE);
    double none_s = best.all_s;
    for (uint32_t form = RU_KEPT_BYTES; form < RU_KEPT_FORMS; form++) {
        bool can = record_of(in, (ru_keep_form)form) > 0;
        if (in->method == RU_KEEP_NONE + form) {
            if (!can) {
                return RU_FAIL(err, RU_E_INFEASIBLE, "samples cannot be kept in this form");
            }
            *plan = keeping(in, (ru_keep_form)form);
            return RU_OK;
        }
        ru_keep_plan p = can ? keeping(in, (ru_keep_form)form) : best;
        if (in->method == RU_KEEP_BEST && p.all_s < best.all_s &&
            p.all_s <= (1 - in->gain_min) * none_s) {
            best = p;
        }
    }
    *plan = best;
    return RU_OK;
}
