/* --metrics of `rubato train`: the run's figures over HTTP while it trains. Thread: main. */
#ifndef RU_TOOL_METRICS_H
#define RU_TOOL_METRICS_H

#include "run/report.h"
#include "tool/cmd.h"
#include "watch/serve.h"

typedef struct rui_metrics {
    ru_cmd_in *in;
    const char *token;
    ru_watch_serve *serve;
} rui_metrics;

/* What the owner of the run calls when its folder is there; without --metrics fn is NULL. */
ru_run_opened rui_metrics_opened(rui_metrics *m);
void rui_metrics_close(rui_metrics *m);

#endif
