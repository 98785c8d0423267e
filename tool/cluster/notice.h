/* Notices of a cloud that it takes this machine away, by its metadata over HTTP:
 *
 *   aws  PUT /latest/api/token, GET /latest/meta-data/spot/instance-action: 404 until there is one
 *   gcp  GET /computeMetadata/v1/instance/preempted?wait_for_change=true: FALSE, then TRUE
 *
 * A thread asks; a notice becomes SIGTERM of this process, as Slurm's does.
 *
 * Thread: open and close by one; it has a thread of its own. */
#ifndef RU_TOOL_CLUSTER_NOTICE_H
#define RU_TOOL_CLUSTER_NOTICE_H

#include "base/arena.h"
#include "base/status.h"

typedef enum rui_notice_kind { RUI_NOTICE_NONE, RUI_NOTICE_AWS, RUI_NOTICE_GCP } rui_notice_kind;

typedef struct rui_notice rui_notice;

/* `url`: http://HOST[:PORT] of the metadata, without a path; must live. */
RU_MUST_USE ru_status rui_notice_open(rui_notice_kind kind, const char *url, ru_arena *arena,
                                      rui_notice **out, ru_err *err);
void rui_notice_close(rui_notice *n); /* NULL is fine; waits for a request that runs, at most 5 s */

#endif
