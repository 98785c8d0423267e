/* What a policy says about its plan, as data: the answer, predicted figures, assumptions,
 * runners-up and tables. One printer shows it to people, another writes JSON, so policies print
 * nothing.
 *
 *     ru_report_answer(r, "give worker %u %lld samples", k, n);
 *     ru_report_figure(r, "step_s", 0.12);                 the first figure is the objective
 *     ru_report_assume(r, "speeds stay as measured");
 *     ru_report_candidate(r, "equal shares", 0.15, true, "worker 3 is the last by 30 ms");
 *     ru_table *t = ru_report_grid_of(r, "shares", "<worker >samples");   cells: base/table.h
 *
 * What stands in the plan's struct itself is described by a table of rows: figures come from there,
 * and so does the member `decision` of the JSON form, the answer as typed values:
 *
 *     static const ru_report_row rows[] = {
 *         RU_FIGURE(F64, ru_stage_plan, clock.clock_s, "clock_s"),
 *         RU_DECISION(U32, ru_stage_plan, servers, "servers"),
 *         RU_DECISION(U32, ru_stage_plan, holder, "holder", RU_LIST(ru_stage_plan, partitions)),
 *     };
 *
 * All text is copied into the report's arena. A full arena is remembered and reported once by
 * ru_report_status.
 *
 * Thread: any, pure. */
#ifndef RU_PLAN_REPORT_H
#define RU_PLAN_REPORT_H

#include <stddef.h>

#include "base/table.h"
#include "base/vec.h"
#include "world/plan.h"

/* The C type that stands at a row's offset, and what JSON gets. */
typedef enum ru_report_type {
    RU_REPORT_BOOL,
    RU_REPORT_U32, /* UINT32_MAX, which stands for none, as -1 */
    RU_REPORT_I64,
    RU_REPORT_F64,
    RU_REPORT_NS,      /* int64_t, in seconds */
    RU_REPORT_CHOICE,  /* uint32_t or enum: its word of `choices` */
    RU_REPORT_CHOICE8, /* uint8_t: the same */
    RU_REPORT_TEXT,    /* const char *; of decisions only */
} ru_report_type;

/* One value of a plan's struct, or a list of values that a pointer there names or that stands
 * there itself. */
typedef struct ru_report_row {
    const char *name; /* its unit at the end, as in world/plan.h */
    ru_report_type type;
    uint32_t at;         /* offset in the plan's struct */
    bool figure;         /* a predicted figure, left out unless it is finite; else a decision */
    const char *choices; /* CHOICE: "push|pull" */
    uint32_t n_at;       /* 1 + offset of the uint32_t that counts a list; 0: no list */
    uint32_t width_at;   /* the same of lists in the list */
    uint32_t each_bytes; /* size of an element; 0: that of its type */
    uint32_t each_at;    /* offset of the value in an element */
    bool inside;         /* the list stands in the plan's struct */
} ru_report_row;

#define RU_FIGURE(type_, plan_, field_, name_)                                                  \
    {                                                                                           \
        .type = RU_REPORT_##type_, .at = offsetof(plan_, field_), .name = name_, .figure = true \
    }
/* The name, then what else the row needs. */
#define RU_DECISION(type_, plan_, field_, ...)                                        \
    {                                                                                 \
        .type = RU_REPORT_##type_, .at = offsetof(plan_, field_), .name = __VA_ARGS__ \
    }
#define RU_LIST(plan_, n_)          .n_at = 1 + offsetof(plan_, n_)
#define RU_LISTS(plan_, n_, width_) RU_LIST(plan_, n_), .width_at = 1 + offsetof(plan_, width_)
/* A field of each struct of the list. */
#define RU_LIST_OF(plan_, n_, each_, field_) \
    RU_LIST(plan_, n_), .each_bytes = sizeof(each_), .each_at = offsetof(each_, field_)
#define RU_LIST_INSIDE(plan_, n_) RU_LIST(plan_, n_), .inside = true

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
    const void *plan;
    const ru_report_row *rows; /* [n_rows] over `plan` */
    uint32_t n_rows;
    bool full;
    bool unit_keys; /* of tables in JSON: ru_table_json_units */
    int64_t valid_ns;
    ru_report_texts answers, assumptions;
    ru_report_figures figures;
    ru_report_candidates candidates; /* the first one is the winner */
    ru_report_grids grids;
    ru_report_triggers triggers;
} ru_report;

/* The figures of the rows come first. Views: plan, rows. */
void ru_report_init(ru_report *r, ru_arena *arena, const void *plan, const ru_report_row *rows,
                    uint32_t n_rows);
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
/* The same with its columns: names with '<' (left) or '>' (right) in front, between blanks. */
ru_table *ru_report_grid_of(ru_report *r, const char *title, const char *columns);
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
/* As members of the open JSON object: answer, decision, predicted, candidates, tables, assumptions,
 * valid_s, triggers; decision only when a row is one. */
RU_MUST_USE ru_status ru_report_json(const ru_report *r, ru_json *j, ru_err *err);

#endif
