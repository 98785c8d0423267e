/* The judge of buckets: walks the bytes of all gradients and the buckets side by side. */
#include "plan/net/fuse.h"

static ru_status wrong(uint32_t b, const ru_fuse_bucket *x, const char *what, ru_err *err)
{
    return RU_FAIL(err, RU_E_INFEASIBLE, "bucket %u (gradients %u + %u, %lld bytes at %lld) %s", b,
                   x->first, x->n, (long long)x->size_bytes, (long long)x->offset_bytes, what);
}

/* The cut size follows from the input. */
static ru_status judge_cut(const ru_fuse_in *in, const ru_fuse_plan *plan, ru_err *err)
{
    double total = 0;
    for (uint32_t k = 0; k < in->tensor_bytes.n; k++) {
        total += (double)in->tensor_bytes.at[k];
    }
    double each = (double)plan->cut_bytes, half = (double)(in->cuts_max / 2);
    bool right = in->method != RU_FUSE_NEIGHBOURS ? each >= total
                 : plan->cut_bytes == in->cut_bytes && total < each * half
                     ? true
                     : total >= (double)in->cut_bytes * half && plan->cut_bytes % 4 == 0 &&
                           each * half >= total - half && (each - 4) * half <= total;
    return right ? RU_OK
                 : RU_FAIL(err, RU_E_INFEASIBLE, "cuts of %lld bytes", (long long)plan->cut_bytes);
}

ru_status ru_plan_fuse_check(const ru_fuse_in *in, const ru_fuse_plan *plan, ru_err *err)
{
    RU_TRY(judge_cut(in, plan, err));
    uint32_t tensor = 0;
    int64_t offset = 0; /* of the first byte that no bucket has yet */
    for (uint32_t b = 0; b < plan->n; b++) {
        const ru_fuse_bucket *x = &plan->at[b];
        if (tensor >= in->tensor_bytes.n || x->first != tensor || x->offset_bytes != offset ||
            x->n < 1 || x->n > in->tensor_bytes.n - tensor) {
            return wrong(b, x, "does not begin where the one before it ends", err);
        }
        int64_t whole = in->tensor_bytes.at[tensor];
        if (whole > plan->cut_bytes) {
            int64_t left = whole - offset;
            int64_t want = left < plan->cut_bytes ? left : plan->cut_bytes;
            if (x->n != 1 || x->size_bytes != want) {
                return wrong(b, x, "is no cut of its gradient", err);
            }
            offset += want;
            if (offset == whole) {
                tensor++;
                offset = 0;
            }
            continue;
        }
        int64_t bytes = 0;
        for (uint32_t k = 0; k < x->n; k++) {
            if (in->tensor_bytes.at[tensor + k] > plan->cut_bytes) {
                return wrong(b, x, "holds a gradient that is to be cut", err);
            }
            bytes += in->tensor_bytes.at[tensor + k];
        }
        tensor += x->n;
        if (bytes != x->size_bytes) {
            return wrong(b, x, "has another size than its gradients", err);
        }
        bool several =
            in->method == RU_FUSE_NEIGHBOURS ? bytes > in->fuse_bytes : in->method == RU_FUSE_EACH;
        if (x->n > 1 && several) {
            return wrong(b, x, "is too large", err);
        }
        bool more = tensor < in->tensor_bytes.n && in->tensor_bytes.at[tensor] <= plan->cut_bytes;
        int64_t with = more ? bytes + in->tensor_bytes.at[tensor] : 0;
        if (more && (in->method == RU_FUSE_ONE ||
                     (in->method == RU_FUSE_NEIGHBOURS && with <= in->fuse_bytes))) {
            return wrong(b, x, "has room for the next gradient", err);
        }
    }
    if (tensor != in->tensor_bytes.n) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "gradient %u is in no bucket", tensor);
    }
    return RU_OK;
}
