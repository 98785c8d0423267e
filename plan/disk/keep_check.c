/* The checker of `keep`: powers instead of sums over epochs, and no other form may be better. */
#include <math.h>

#include "plan/disk/keep.h"

/* What a host has met of the data after `e` epochs. */
static double met(const ru_keep_in *in, int64_t e)
{
    return 1 - pow(1 - 1.0 / in->hosts, (double)e);
}

/* Seconds of epoch `e` for one sample of the host. */
static double sample_s(const ru_keep_in *in, uint32_t form, double bytes, double most, int64_t e)
{
    double before = e == 0 || form == RU_KEPT_NONE ? 0 : met(in, e),
           after = form == RU_KEPT_NONE ? 0 : met(in, e + 1);
    before = before < most ? before : most;
    after = after < most ? after : most;
    double miss = 1 - before, written = in->hosts * (after - before);
    double decode =
        form == RU_KEPT_DECODED ? miss * in->decode_s + before * in->unpack_s : in->decode_s;
    uint32_t shared = in->cores < in->threads ? in->cores : in->threads;
    double stage[] = {
        miss * in->fetch_s,
        decode / in->readers,
        bytes / 1e6 * (before / in->read_mb_per_s + written / in->write_mb_per_s),
        in->train_s,
        in->cores == 0 ? 0 : (decode + shared * in->train_s) / in->cores,
    };
    double most_s = 0;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(stage); k++) {
        most_s = stage[k] > most_s ? stage[k] : most_s;
    }
    return most_s;
}

typedef struct times {
    double all, first, last, hit, written;
    int64_t kept;
} times;

static times times_of(const ru_keep_in *in, uint32_t form)
{
    int64_t record = form == RU_KEPT_BYTES     ? in->bytes
                     : form == RU_KEPT_DECODED ? in->decoded_bytes
                                               : 0;
    times t = {.kept = record == 0                              ? 0
                       : in->room_bytes / record >= in->samples ? in->samples
                                                                : in->room_bytes / record};
    double most = (double)t.kept / (double)in->samples, n = (double)in->samples / in->hosts;
    for (int64_t e = in->epochs; e-- > 0;) {
        double s = n * sample_s(in, form, (double)record, most, e);
        t.last = e == in->epochs - 1 ? s : t.last;
        t.first = s;
        t.all += s;
    }
    double held = met(in, in->epochs), hit = in->epochs > 1 ? met(in, in->epochs - 1) : 0;
    t.hit = hit < most ? hit : most;
    t.written = (double)record / 1e6 * (held < most ? held : most) * (double)in->samples;
    return t;
}

static bool near(double a, double b)
{
    return a == b || fabs(a - b) <= 1e-7 * fmax(fabs(a), fabs(b)) + 1e-12;
}

ru_status ru_plan_keep_check(const ru_keep_in *in, const ru_keep_plan *p, ru_err *err)
{
    const int64_t record[RU_KEPT_FORMS] = {0, in->bytes, in->decoded_bytes};
    bool fixed = in->method != RU_KEEP_BEST;
    if (p->form >= RU_KEPT_FORMS || (p->form != RU_KEPT_NONE && record[p->form] == 0) ||
        (fixed && p->form != in->method - RU_KEEP_NONE)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "samples cannot be kept in form %u", p->form);
    }
    times t = times_of(in, p->form), none = times_of(in, RU_KEPT_NONE);
    if (p->kept != t.kept || p->kept < 0 || p->kept > in->samples ||
        !near(p->written_mb, t.written) || !near(p->hit, t.hit)) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "a host has room for %lld samples, and %g of the last reads are kept ones",
                       (long long)t.kept, t.hit);
    }
    if (!near(p->all_s, t.all) || !near(p->first_s, t.first) || !near(p->epoch_s, t.last) ||
        !near(p->none_s, none.last)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "all epochs take %g s and the last one %g s", t.all,
                       t.last);
    }
    double slack = 1e-7 * none.all + 1e-12, enough = (1 - in->gain_min) * none.all;
    for (uint32_t form = RU_KEPT_BYTES; !fixed && form < RU_KEPT_FORMS; form++) {
        double s = times_of(in, form).all;
        if (record[form] > 0 && s < t.all - slack && s < enough - slack) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "form %u takes %g s, not %g", form, s, t.all);
        }
    }
    if (!fixed && p->form != RU_KEPT_NONE && t.all > enough + slack) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "form %u saves too little", p->form);
    }
    return RU_OK;
}
