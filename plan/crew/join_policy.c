/* The row of `join` in plan/row/policy.def: its table, its checker, its report. */
#include <math.h>

#include "plan/crew/join.h"
#include "plan/row/policy.h"

static const ru_conf_field fields[] = {
    RU_ROW(F64, ru_join_in, rate_bytes_per_s, "0",
           "network bandwidth to the joining worker; 0: not measured", RU_IN(0, 1e15)),
    RU_ROW(F64, ru_join_in, step_ns, "0", "time of one step; 0: not measured", RU_IN(0, 1e18)),
    RU_ROW(F64, ru_join_in, part, "0.1",
           "largest fraction of the bandwidth for the transfer of state", RU_OVER(0, 1)),
    RU_ROW(I64, ru_join_in, piece_bytes, "1048576", "size of the pieces in which state moves",
           RU_IN(1, 1e15)),
    RU_ROW(I64, ru_join_in, state_bytes, "0",
           "size of the state that a joining worker needs; 0: unknown", RU_IN(0, 1e18)),
    RU_ROW(CHOICE, ru_join_in, method, "part",
           "part: a fraction of the bandwidth; piece: one piece per step; all: everything at once",
           .choices = "part|piece|all"),
};

static const ru_conf_table table =
    RU_TABLE("join", ru_join_in, fields, "state for a worker that joins");

ru_status ru_plan_join_check(const ru_join_in *in, const ru_join_plan *plan, ru_err *err)
{
    int64_t got = plan->budget_bytes, piece = in->piece_bytes;
    bool known = in->rate_bytes_per_s > 0 && in->step_ns > 0;
    bool right = false;
    switch (in->method) {
    case RU_JOIN_PIECE:
        right = got == piece;
        break;
    case RU_JOIN_ALL:
        right = got >= piece && got >= in->state_bytes && (got == piece || got == in->state_bytes);
        break;
    default:
        if (!known) {
            right = got == RU_JOIN_PIECES_FIRST * piece;
        } else if (got > 1 && got < RU_JOIN_PIECES_MAX * piece) {
            /* what it takes of the network, back from bytes to the part: within one byte */
            double carried = in->rate_bytes_per_s * in->step_ns / 1e9;
            right = fabs((double)got - in->part * carried) <= 1 + 1e-12 * carried;
        } else {
            double wish = in->part * (in->rate_bytes_per_s * in->step_ns / 1e9);
            right = got == 1 ? wish < 2 + 1e-9
                             : got == RU_JOIN_PIECES_MAX * piece && wish >= (double)got - 1;
        }
        break;
    }
    /* a piece fits into so many steps, and into no fewer */
    double steps = (double)plan->every_steps, bytes = (double)piece / (double)got;
    right = right && plan->every_steps >= 1 && steps >= bytes * (1 - 1e-12) &&
            (plan->every_steps == 1 || (steps - 1) * (double)got < (double)piece);
    return right ? RU_OK
                 : RU_FAIL(err, RU_E_INFEASIBLE,
                           "a budget of %lld bytes per step does not follow from the facts",
                           (long long)got);
}

static ru_status plan_join(const void *in, const ru_policy_tools *tools, void *plan, ru_err *err)
{
    (void)tools;
    return ru_plan_join(in, plan, err);
}

static ru_status check_join(const void *in, const void *plan, ru_arena *scratch, ru_err *err)
{
    (void)scratch;
    return ru_plan_join_check(in, plan, err);
}

/* Until the last byte is there: a piece in the first of `every_steps`, or as many as a step has. */
static double steps_of(const ru_join_in *in, const ru_join_plan *p)
{
    double state = (double)in->state_bytes;
    if (p->every_steps > 1) {
        double pieces = ceil(state / (double)in->piece_bytes);
        return pieces > 0 ? (pieces - 1) * (double)p->every_steps + 1 : 0;
    }
    return ceil(state / (double)p->budget_bytes);
}

static double share_of(const ru_join_in *in, const ru_join_plan *p)
{
    double carried = in->rate_bytes_per_s * in->step_ns * 1e-9;
    double bytes = p->every_steps > 1 ? (double)in->piece_bytes / (double)p->every_steps
                                      : (double)p->budget_bytes;
    return carried > 0 ? bytes / carried : 0;
}

/* A method that takes more of the network than it may is no rival. */
static ru_status judge(ru_rival *v, const ru_policy_tools *tools, ru_err *err)
{
    (void)tools;
    (void)err;
    const ru_join_in *j = v->in;
    double share = share_of(j, v->plan), steps = steps_of(j, v->plan);
    if (!(j->rate_bytes_per_s > 0 && j->step_ns > 0)) {
        ru_rival_is(v, steps, false, "what it takes of the network is not known");
        return RU_OK;
    }
    bool legal = share <= j->part * (1 + 1e-9);
    ru_rival_is(v, steps, legal,
                legal ? "%.3g %% of the network meanwhile"
                      : "%.3g %% of the network, more than 'part' allows",
                100 * share);
    return RU_OK;
}

static const ru_report_row rows[] = {
    RU_DECISION(I64, ru_join_plan, budget_bytes, "budget_bytes"),
    RU_DECISION(I64, ru_join_plan, every_steps, "every_steps"),
};

static ru_status report_join(const void *in, const void *plan, const ru_policy_tools *tools,
                             ru_report *r, ru_err *err)
{
    const ru_join_in *j = in;
    const ru_join_plan *mine = plan;
    if (mine->every_steps > 1) {
        ru_report_answer(r, "send a joining worker a piece of %lld bytes in one of %lld steps",
                         (long long)j->piece_bytes, (long long)mine->every_steps);
    } else {
        ru_report_answer(r, "send a joining worker %lld bytes of state in each step",
                         (long long)mine->budget_bytes);
    }
    ru_report_figure(r, "join_steps", steps_of(j, mine));
    ru_report_figure(r, "join_s", steps_of(j, mine) * j->step_ns * 1e-9);
    ru_report_figure(r, "network_part", share_of(j, mine));
    ru_policy_winner(&ru_policy_join, in, r, steps_of(j, mine), true,
                     "%.3g %% of the network meanwhile", 100 * share_of(j, mine));
    RU_TRY(ru_policy_rivals(&ru_policy_join, in, plan, tools, judge, r, err));
    ru_report_assume(r, "bandwidth and step time stay as measured");
    ru_report_trigger(r, "join_s", 0.5);
    return RU_OK;
}

const ru_policy ru_policy_join = {
    .name = "join",
    .version = 2,
    .decides = "how much state a joining worker gets in each step",
    .source = "litz-2018",
    .in = &table,
    .plan_bytes = sizeof(ru_join_plan),
    .rows = rows,
    .n_rows = RU_ARRAY_LEN(rows),
    .plan = plan_join,
    .check = check_join,
    .report = report_join,
    .example = "# 100 MB of state over 1 Gbit/s while steps take 200 ms.\n"
               "rate_bytes_per_s: 1.17e8\n"
               "step_ns: 2e8\n"
               "state_bytes: 100000000\n",
};
