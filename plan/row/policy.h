/* Policies as rows: the decision, the table of the input, the planner, the separate checker and the
 * report. plan/row/policy.def lists the rows.
 *
 *   input (by table) --ru_policy_run--> checked input, plan, checked plan, report, id
 *
 * A policy reads only its input and writes only its plan: equal input gives equal bytes at any
 * address of the arenas. Baselines are methods of the same policy: a CHOICE field `method` whose
 * first choice is Rubato's.
 *
 * Thread: any, pure. */
#ifndef RU_PLAN_POLICY_H
#define RU_PLAN_POLICY_H

#include "base/fields.h"
#include "plan/row/report.h"
#include "world/solver.h"
#include "world/world.h"

/* What a planner may use. Both arenas are the caller's; the plan lives in `out`. */
typedef struct ru_policy_tools {
    ru_arena *out, *scratch;
    const ru_solver *solver; /* programs and trees (world/solver.h); NULL: none, and a policy that
                                needs one says so */
} ru_policy_tools;

typedef struct ru_policy {
    const char *name;    /* "share": one lower-case word, or several with '-' */
    uint32_t version;    /* grows when an equal input may give another plan */
    const char *decides; /* one line without full stop: "how many samples each worker computes" */
    const char *source;  /* keys of docs/sources.bib with sections: "litz-2018 sec 3" */
    const ru_conf_table *in;
    uint32_t plan_bytes;       /* size of the plan's struct */
    const ru_report_row *rows; /* [n_rows] over that struct; NULL: none */
    uint32_t n_rows;
    bool more_is_better; /* of the objective, the first figure and the cost of a candidate; false:
                            less is */
    /* `in` has passed ru_fields_check. Errors: RU_E_ARG when its fields contradict each other in a
     * way that the table's check cannot see, RU_E_INFEASIBLE when no legal plan exists, RU_E_LIMIT,
     * RU_E_UNSUPPORTED without a solver that is needed. */
    ru_status (*plan)(const void *in, const ru_policy_tools *tools, void *plan, ru_err *err);
    /* Is the plan legal, and are its predicted figures those of the input? Shares no code with the
     * planner. Errors: RU_E_INFEASIBLE, RU_E_LIMIT. */
    ru_status (*check)(const void *in, const void *plan, ru_arena *scratch, ru_err *err);
    /* Fill the report; figures, runners-up. May plan again with other methods in scratch. */
    ru_status (*report)(const void *in, const void *plan, const ru_policy_tools *tools,
                        ru_report *r, ru_err *err);
    /* Put the members of an input that these facts give into the open object of `j`; what is left
     * out has its default. NULL: facts alone do not give one. Errors: RU_E_MISSING names the facts
     * that are needed, RU_E_LIMIT. */
    ru_status (*derive)(const ru_world *w, ru_arena *scratch, ru_json *j, ru_err *err);
    const char *example; /* an input as YAML that gives a plan worth looking at */
} ru_policy;

typedef struct ru_policy_answer {
    ru_plan_head head;
    const void *plan; /* of policy->plan_bytes */
    ru_report report;
} ru_policy_answer;

/* All rows in the order of plan/row/policy.def. */
const ru_policy *const *ru_policies(uint32_t *n);
/* By name; NULL: there is none. */
const ru_policy *ru_policy_find(const char *name);

/* Check the input, plan, check the plan, report.
 * Owner: everything in `answer` lives in tools->out. Errors: RU_E_ARG for an input outside its
 * table, RU_E_CONFIG for one that the row's functions refuse, otherwise those of the row's
 * functions; the policy's name stands in front. */
RU_MUST_USE ru_status ru_policy_run(const ru_policy *p, const void *in,
                                    const ru_policy_tools *tools, ru_policy_answer *answer,
                                    ru_err *err);
/* The head alone, without planning: hash and id. */
ru_plan_head ru_policy_head(const ru_policy *p, const void *in);

/* The same input with another method, its plan, and what is to be said about it. */
typedef struct ru_rival {
    uint32_t method; /* of `in` */
    const void *in, *plan;
    const void *won_in, *won; /* the input and the plan that are reported */
    ru_candidate is;          /* by ru_rival_is or ru_rival_beside */
    char why[RU_ERR_TEXT_MAX];
} ru_rival;

typedef ru_status (*ru_rival_judge)(ru_rival *v, const ru_policy_tools *tools, ru_err *err);

/* The judge's word, as ru_report_candidate and ru_report_beside. */
void ru_rival_is(ru_rival *v, double cost, bool legal, const char *fmt, ...) RU_PRINTF(4, 5);
void ru_rival_beside(ru_rival *v, double cost, const char *fmt, ...) RU_PRINTF(3, 4);
/* The winner by the name of its method. */
void ru_policy_winner(const ru_policy *p, const void *in, ru_report *r, double cost, bool legal,
                      const char *fmt, ...) RU_PRINTF(6, 7);
/* Put one candidate: the plan of `v->in`, which is `v->won_in` with something changed, planned in
 * scratch, as ru_policy_rivals says. `name`: NULL is the word of its method. */
RU_MUST_USE ru_status ru_policy_rival(const ru_policy *p, const char *name, ru_rival *v,
                                      const ru_policy_tools *tools, ru_rival_judge judge,
                                      ru_report *r, ru_err *err);
/* Put the candidates: the winner at the first figure as "chosen", unless the report has one, then
 * every other choice of the field `method`, planned in scratch. One that has no plan, needs what is
 * not there or cannot answer a question of this size is not legal, and the reason is shown: the
 * chosen plan stands without it. The judge sees the others. */
RU_MUST_USE ru_status ru_policy_rivals(const ru_policy *p, const void *in, const void *plan,
                                       const ru_policy_tools *tools, ru_rival_judge judge,
                                       ru_report *r, ru_err *err);

#define RU_POLICY(name, symbol) extern const ru_policy ru_policy_##symbol;
#include "plan/row/policy.def"
#undef RU_POLICY

#endif
