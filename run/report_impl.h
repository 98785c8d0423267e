/* Inside of the report: its state, and the half that people see (report_view.c).
 *
 * Thread: under the report's lock. */
#ifndef RU_RUN_REPORT_IMPL_H
#define RU_RUN_REPORT_IMPL_H

#include "env/clock.h"
#include "env/file/file.h"
#include "env/thread.h"
#include "run/live.h"
#include "run/message.h"
#include "run/report.h"

#define RUI_REPORT_PERIOD_NS 100000000 /* a terminal line is redrawn at most ten times a second */

struct ru_run_report {
    ru_run_report_options opt;
    ru_mutex lock;
    uint32_t workers, members, voters;
    const char *path_metrics, *path_log; /* NULL without a run directory */
    ru_log_file *metrics, *log;
    ru_time begun, shown; /* start of the report; last time people saw progress */
    int64_t step_first;   /* steps done at `begun` */
    int64_t told;         /* the last step that was told */
    int64_t evaluated;    /* the last evaluation that was told */
    bool goes_on;         /* the metrics file holds what an earlier process told */
    bool muted;
    bool seen, clock; /* a step of this process: loss_mean counts; a line of progress may come */
    int64_t percent_shown;           /* last line without a terminal: part of the way */
    bool judged;                     /* steps tell an accuracy */
    double loss_mean, accuracy_mean; /* smoothed for people */
    ru_live live;
};

/* report_file.c: the metrics file as it is to go on, under a new inode. Errors: those of the disk.
 */
RU_MUST_USE ru_status rui_report_files(ru_run_report *r, ru_err *err);
/* 1234567 -> "1.23 M"; 83 -> "1:23". */
const char *rui_count_text(double v, char into[32]);
const char *rui_duration_text(double s, char into[32]);
/* report_view.c */
void rui_report_progress_fill(const ru_run_report *r, const ru_run_report_step *s,
                              ru_msg_progress *out);
void rui_report_progress(ru_run_report *r, const ru_run_report_step *s);
void rui_report_evaluation(ru_run_report *r, int64_t step, int64_t epoch, const ru_metrics *m);
void rui_report_end(ru_run_report *r, const ru_run_report_summary *s);
void rui_report_say(ru_run_report *r, const char *fmt, ...) RU_PRINTF(2, 3);

#endif
