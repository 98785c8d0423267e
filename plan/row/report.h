/* What a policy says about its plan, as data: the answer, predicted figures, assumptions,
 * runners-up and tables. One printer shows it to people, another writes JSON, so policies print
 * nothing.
 *
 *     ru_report_answer(r, "give worker %u %lld samples", k, n);
 *     ru_report_figure(r, "step_s", 0.12);                 the first figure is the objective
 *     ru_report_assume(r, "speeds stay as measured");
 *     ru_report_candidate(r, "equal shares", 0.15, true, "worker 3 is the last by 30 ms");
 *     ru_table *t = ru_report_table(r, "shares");           columns and cells as in base/table.h
 *
 * All text is copied into the report's arena. A full arena is remembered and reported once by
 * ru_report_status.
 *
 * Thread: any, pure. */
#ifndef RU_PLAN_REPORT_H
#define RU_PLAN_REPORT_H

#include "base/table.h"
#include "base/vec.h"
#include "world/plan.h"

typedef struct ru_candidate {
    const char *name;
    double cost;     /* of the objective, in its unit */
    bool legal;      /* false: it breaks a limit that `why` names, or was not tried */
    bool rival;      /* the winner must not be worse; false: it does something else, or knows what
                        nobody can know, as `why` says */
    const char *why; /* why it lost or won */
} ru_candidate;

typedef struct ru_report_grid {
    const char *title;
    ru_table table;
} ru_report_grid;

typedef const char *ru_report_text;
RU_VEC(ru_report_texts, ru_report_text)
RU_VEC(ru_report_figures, ru_figure)
RU_VEC(ru_report_candidates, ru_candidate)
RU_VEC(ru_report_grids, ru_report_grid *)
RU_VEC(ru_report_triggers, ru_plan_trigger)

typedef struct ru_report {
    ru_arena *arena;
    bool full;
    int64_t valid_ns;
    ru_report_texts answers, assumptions;
    ru_report_figures figures;
    ru_report_candidates candidates; /* the first one is the winner */
    ru_report_grids grids;
    ru_report_triggers triggers;
} ru_report;

void ru_report_init(ru_report *r, ru_arena *arena);
void ru_report_answer(ru_report *r, const char *fmt, ...) RU_PRINTF(2, 3);
void ru_report_assume(ru_report *r, const char *fmt, ...) RU_PRINTF(2, 3);
void ru_report_figure(ru_report *r, const char *name, double value);
/* `fmt` says why it lost, or why it won: the winner comes first. */
void ru_report_candidate(ru_report *r, const char *name, double cost, bool legal, const char *fmt,
                         ...) RU_PRINTF(5, 6);
/* One that is shown beside the others and does not compete with them. */
void ru_report_beside(ru_report *r, const char *name, double cost, const char *fmt, ...)
    RU_PRINTF(4, 5);
/* A table to be filled as base/table.h says; it belongs to the report. */
ru_table *ru_report_table(ru_report *r, const char *title);
/* How long the plan holds, and what makes it stale before. */
void ru_report_valid(ru_report *r, int64_t valid_ns);
void ru_report_trigger(ru_report *r, const char *figure, double error_max);
/* Errors: RU_E_LIMIT when something did not fit. */
RU_MUST_USE ru_status ru_report_status(const ru_report *r, ru_err *err);

/* A figure's value in the unit that its name ends with, and the name without the unit. */
void ru_figure_put(const char *name, double value, ru_text *out);
void ru_figure_put_name(const char *name, ru_text *out);
/* For people. Errors: RU_E_LIMIT. */
RU_MUST_USE ru_status ru_report_print(const ru_report *r, const ru_plan_head *head, ru_text *out,
                                      ru_err *err);
/* As members of the open JSON object: answer, predicted, assumptions, candidates, tables. */
RU_MUST_USE ru_status ru_report_json(const ru_report *r, ru_json *j, ru_err *err);

#endif
