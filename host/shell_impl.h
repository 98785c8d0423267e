/* Inside of a live process: messages between processes, whatever the job.
 *
 *   newcomer --JOB_ASK--> any process;  process --JOB_PART(total, offset, bytes)...--> newcomer
 *   asker --WORLD_ASK--> a process that does not lead --WORLD_AT(address of the leader)--> asker
 *   asker --WORLD_ASK--> leader --WORLD(total, offset, bytes)...--> asker
 *   traces: host/traces.c
 *
 * Thread: loop only. */
#ifndef RU_HOST_SHELL_IMPL_H
#define RU_HOST_SHELL_IMPL_H

#include "host/shell.h"

enum {
    RUI_MSG_JOB_ASK = RU_NODE_WHAT_OWNER,
    RUI_MSG_JOB_PART,
    RUI_MSG_WORLD_ASK = RU_NODE_WHAT_OWNER + 4,
    RUI_MSG_WORLD,        /* a part of it */
    RUI_MSG_WORLD_AT,     /* ask there */
    RUI_MSG_TRACE_ASK,    /* for a window of so many steps */
    RUI_MSG_TRACE_AT,     /* ask there */
    RUI_MSG_TRACE_TAKEN,  /* its folder; empty: another one is under way */
    RUI_MSG_TRACE_WINDOW, /* save it */
    RUI_MSG_TRACE_SAVED,  /* it is */
    RUI_MSG_TRACE_DONE,   /* by so many of so many */
    RUI_MSG_TRACE_PART,   /* of a trace of another host */
    RUI_MSG_TRACE_HAVE,   /* the disk is a common one */
    RUI_MSG_TRACE_END,    /* all parts are sent */
};

/* shell_part.c: the part of the node that takes them, the owner's own kinds too */
ru_part rui_shell_part(ru_shell *h);

#endif
