/* The members of a pipeline: a step machine over membership and channel, a part of a node beside
 * elastic training's place.
 *
 *   leader:  VIEW (all founders) --> all: each has its stage     owner: build, post, ru_pipe_ready
 *   all:     READY --> leader;  leader: GO --> all               owner: compute
 *   step:    links carry numbered pieces of fixed size from one member to another
 *   leader:  DECIDE --> all: what follows a step, in order       owner: in the order they come
 *   a member is lost, or says FAIL: leader: END --> all
 *   who joins later is a spare: the leader counts it, and it hears END too
 *
 * The leader has the last stage, so loss and decisions are in one process; the others follow in
 * the order of their numbers. A piece that is sent has been posted before, or is posted soon: who
 * owns the links sees to it.
 *
 * Thread: loop only; a step machine (env/event.h). */
#ifndef RU_TRAIN_PIPE_PIPE_H
#define RU_TRAIN_PIPE_PIPE_H

#include "comm/node/node.h"

typedef struct ru_pipe ru_pipe;

enum { RU_PIPE_DECISION_MAX = 64, RU_PIPE_LINKS_MAX = 1 << 14, RU_PIPE_SPARES_MAX = 8 };

typedef struct ru_pipe_link {
    uint32_t from, to; /* stages */
    uint16_t label;    /* of its records (ru_recorder_name); 0: none */
    uint16_t rank;     /* smaller leaves first */
    bool urgent;       /* before all that are not */
} ru_pipe_link;

typedef enum ru_pipe_what {
    RU_PIPE_VIEW,    /* all are there; a: the stage of this process, b: `after` of the leader */
    RU_PIPE_GO,      /* all are ready */
    RU_PIPE_SENT,    /* a: link, b: number; its memory is free */
    RU_PIPE_ARRIVED, /* a: link, b: number */
    RU_PIPE_DECIDED, /* not the leader: data [a] of ru_pipe_decide */
    RU_PIPE_STOP,    /* leader: somebody asks for the job's end */
    RU_PIPE_SPARES,  /* leader: a: how many spares wait now; and when only those are missing */
    RU_PIPE_ENDED,   /* the job is over for this process: status, text */
} ru_pipe_what;

typedef struct ru_pipe_news {
    ru_pipe_what what;
    int64_t a, b;
    ru_status status;
    const char *text; /* view until return */
    const void *data;
} ru_pipe_news;

typedef struct ru_pipe_options {
    ru_node *node;
    ru_node_id self;
    uint32_t n; /* stages and members: each of several workers of a stage counts as a stage here */
    const uint32_t *stage_of; /* [n] for people; NULL: each stage has one worker */
    const char *called;       /* what people call it; NULL: "stage" */
    uint32_t stages;          /* for people; 0: n */
    uint32_t spares;          /* leader: of the n, those that joined later */
    int64_t after;            /* leader: the step after which all go on */
    void (*news)(void *self, const ru_pipe_news *news, ru_time now);
    void *news_self;
} ru_pipe_options;

/* Lives in `arena`. Errors: RU_E_MEM. */
RU_MUST_USE ru_status ru_pipe_open(const ru_pipe_options *opt, ru_arena *arena, ru_pipe **out,
                                   ru_err *err);
/* Before RU_PIPE_VIEW, or at it: links by number, view while the pipe is open. */
void ru_pipe_links(ru_pipe *p, const ru_pipe_link *links, uint32_t n);
/* Send or expect piece `number` of a link; `span` is view until SENT or ARRIVED. */
void ru_pipe_send(ru_pipe *p, uint32_t link, uint32_t number, ru_span span, ru_time now,
                  ru_effects *fx);
void ru_pipe_post(ru_pipe *p, uint32_t link, uint32_t number, ru_span span, ru_time now,
                  ru_effects *fx);
void ru_pipe_ready(ru_pipe *p, ru_time now, ru_effects *fx);
/* The leader says it to all others. */
void ru_pipe_decide(ru_pipe *p, const void *data, int64_t size_bytes, ru_time now, ru_effects *fx);
/* Ask the leader for the job's end. */
void ru_pipe_stop(ru_pipe *p, ru_time now, ru_effects *fx);
/* What this process does failed, or, of the leader, the job is over (RU_OK): all end. */
void ru_pipe_end(ru_pipe *p, ru_status st, const char *text, ru_time now, ru_effects *fx);
/* Number of the member with a stage; 0: there is no view. */
uint32_t ru_pipe_number(const ru_pipe *p, uint32_t stage);
bool ru_pipe_leads(const ru_pipe *p);

#endif
