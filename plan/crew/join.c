/* The budget of state for a joining worker. */
#include "plan/crew/join.h"

ru_status ru_plan_join(const ru_join_in *in, ru_join_plan *plan, ru_err *err)
{
    if (in->piece_bytes < 1 || !(in->part > 0 && in->part <= 1) ||
        !(in->rate_bytes_per_s >= 0 && in->step_ns >= 0) || in->method >= RU_JOIN_METHODS ||
        in->piece_bytes > INT64_MAX / RU_JOIN_PIECES_MAX) {
        return RU_FAIL(err, RU_E_ARG, "the question is not valid: pieces of %lld bytes, part %g",
                       (long long)in->piece_bytes, in->part);
    }
    double piece = (double)in->piece_bytes, most = RU_JOIN_PIECES_MAX * piece;
    bool measured = in->rate_bytes_per_s > 0 && in->step_ns > 0;
    double bytes = measured ? in->rate_bytes_per_s * in->step_ns * 1e-9 * in->part
                            : RU_JOIN_PIECES_FIRST * piece;
    if (in->method == RU_JOIN_ALL) {
        bytes = in->state_bytes > in->piece_bytes ? (double)in->state_bytes : piece;
    } else {
        bytes = in->method == RU_JOIN_PIECE ? piece : bytes < 1 ? 1 : bytes > most ? most : bytes;
    }
    plan->budget_bytes = (int64_t)bytes;
    plan->every_steps = (in->piece_bytes - 1) / plan->budget_bytes + 1;
    RU_CHECK(plan->budget_bytes >= 1 && plan->every_steps >= 1);
    return RU_OK;
}
