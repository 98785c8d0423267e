/* Inside of the scheduler: scheduler.c (loop, journal, agents), scheduler_orders.c (what nodes
 * shall do), scheduler_seats.c, scheduler_market.c and scheduler_provider.c (nodes that come and
 * go), scheduler_http.c (what people ask).
 *
 * Thread: loop only. */
#ifndef RU_CLUSTER_SCHEDULER_IMPL_H
#define RU_CLUSTER_SCHEDULER_IMPL_H

#include "base/table.h"
#include "cluster/book.h"
#include "cluster/figures.h"
#include "cluster/scheduler.h"
#include "cluster/slurm.h"
#include "cluster/wire.h"
#include "comm/node/loop.h"
#include "env/process/command.h"
#include "web/http.h"

enum { RUI_SCHEDULER_CONNS = 256 }; /* of people; submissions of all of them share a transaction */

/* What a node said last, and what it was told. */
typedef struct rui_live {
    ru_node_id guest; /* v 0: not connected */
    bool known;       /* it has spoken since this scheduler began */
    ru_time heard;
    ru_arena arena; /* of state */
    ru_cluster_state state;
    ru_cluster_orders told; /* its texts are gone */
    uint64_t told_hash;
} rui_live;

typedef struct rui_scheduler {
    const ru_scheduler_options *opt;
    ru_arena *arena;
    ru_loop *loop;
    ru_journal journal;
    ru_book book;
    ru_node_loop bridge;
    struct ru_link_tcp *link;
    ru_http *http;
    rui_live live[RU_BOOK_NODES_MAX];
    uint64_t prepared[RU_BOOK_LIVE_MAX]; /* by slot: job and generation whose folder is ready */
    struct {
        uint32_t job, most; /* workers with which it is fastest; 0: not known */
        ru_cluster_figures is;
        uint32_t stops, stopped; /* moves that were measured, and the last one's generation */
        double stopped_s;        /* from their grants to their first workers, sum */
    } * figures;                 /* [RU_BOOK_LIVE_MAX] by slot */
    struct rui_commit *commit;   /* scheduler_http.c; NULL: none yet */
    uint64_t number, epoch;      /* of orders, of who leads */
    bool ousted;                 /* another one led meanwhile */
    bool leads;                  /* else nothing can be made durable, so nobody is told anything */
    ru_status lead;              /* of the last try to lead */
    ru_err *err;                 /* of who waits for the lead */
    ru_time opened, ticked;      /* ticked: last looked at what is due */
    int64_t still_ns;            /* since it opened it stood still for so long */
    int64_t opened_at_ns;        /* on the cluster's clock */
    ru_time planned, copy_at;
    int64_t copied_seq; /* the last event in the copy of the journal, or in one that failed */
    int64_t gap_ns;     /* least time between plans: four times what the last one took */
    bool plan_due, closing;
    struct ru_slurm_shell *shell;       /* of slurm and of partitions */
    struct ru_slurm *slurm;             /* NULL: none */
    bool seat_goes[RU_SLURM_SEATS_MAX]; /* it is wanted until no worker is left there */
    ru_time seats_enough;               /* when no seat was too many last */
    ru_arena round;                     /* of the last plan */
    const char *questions;              /* of it: a line of JSON for each, as `alloc` reads it */
    int64_t planned_wall_ns;
    struct rui_spot *spot;                            /* scheduler_market.c; NULL: no markets */
    struct ru_slurm *partitions[RU_SPOT_MARKETS_MAX]; /* by market; NULL: it is none of Slurm's */
} rui_scheduler;

typedef enum rui_wish { RUI_STAY, RUI_COME, RUI_GO } rui_wish;

/* A node that a market may give, and the command that works for it. */
typedef struct rui_seat {
    ru_command command; /* that runs */
    rui_wish does;      /* it */
    ru_time tried;
    char said[256];            /* its last line of errors, or what Slurm refuses */
    bool asked, refused, gone; /* commands: it was requested, was not given, was released */
    int64_t bought_ns; /* on the market's clock; 0: not known, or its first worker has come */
} rui_seat;

/* What a node of a market shall do, and what is known of it. */
typedef struct rui_wished {
    rui_seat *seat;
    const char *name;
    uint32_t market, lease;
    rui_wish wish;
    bool there, up, lent; /* it has slots or is connected; is connected; was rented at some time */
    double bid_usd;       /* 0: on demand */
} rui_wished;

/* The cluster's clock: it stands still while no scheduler runs, and no step of the wall clock moves
 * it. */
int64_t rui_scheduler_clock(const rui_scheduler *s);
/* Make events durable and fold them. Errors: those of the journal; nothing changed then. */
RU_MUST_USE ru_status rui_scheduler_append(rui_scheduler *s, ru_journal_event *events, uint32_t n,
                                           ru_err *err);
RU_MUST_USE ru_status rui_scheduler_event(rui_scheduler *s, ru_journal_event e, ru_err *err);
/* Something changed: ends, plan, orders. */
void rui_scheduler_settle(rui_scheduler *s, ru_time now);

/* Does a process live on node k, as far as it has said? */
bool rui_scheduler_lives_on(const rui_scheduler *s, uint32_t k);
/* It takes no more work, or does again: the scheduler's own word, which people's overrules. */
void rui_scheduler_drain(rui_scheduler *s, uint32_t k, bool drain);

/* scheduler_seats.c: as many of Slurm's seats as the jobs need; twice a second. */
void rui_scheduler_seats(rui_scheduler *s, ru_time now);
/* Workers that jobs could have beyond the slots of nodes that are always there. */
uint32_t rui_scheduler_wants(const rui_scheduler *s);
/* Slots of a job that Slurm and markets could give beside those that are there. */
uint32_t rui_scheduler_more(const rui_scheduler *s);
/* Is this the node of a seat that goes, or one of a market that is given back? */
bool rui_scheduler_seat_goes(const rui_scheduler *s, const char *node);

/* scheduler_market.c: nodes of markets, whose clock goes on from where the journal has it. */
RU_MUST_USE ru_status rui_market_open(rui_scheduler *s, ru_err *err);
/* Twice a second: what prices do, what the policy `bid` says, nodes that come and go. */
void rui_market_tick(rui_scheduler *s, ru_time now);
/* Are its nodes gone? */
bool rui_market_empty(const rui_scheduler *s);
/* Slots of nodes of markets that are not there, of at most `nodes` of them. */
uint32_t rui_market_more(const rui_scheduler *s, uint32_t nodes);
/* Is this the node of a market that nobody rents, or that is given back? */
bool rui_market_goes(const rui_scheduler *s, const char *node);
/* Why a node that its market gave is lost, for the journal; NULL: it is not. A notice counts when
 * its agent is gone before anybody looks, and when the scheduler that heard it is gone: it drained
 * the node. */
const char *rui_market_lost(const ru_market_alloc *a, const ru_book_node *n, const rui_live *l);
/* What a job has there and what that costs. */
void rui_market_explain(const rui_scheduler *s, const ru_book_job *j, ru_text *t);
/* What the policy `bid` was asked last, as JSON, and when; NULL: nothing yet. */
const char *rui_market_question(const rui_scheduler *s, int64_t *wall_ns);
void rui_market_close(rui_scheduler *s);
/* scheduler_provider.c: a market's way to have nodes. Errors: those of Slurm's paths. */
RU_MUST_USE ru_status rui_provider_open(rui_scheduler *s, uint32_t market, ru_err *err);
/* false: it is not known yet what is there. */
bool rui_provider_tick(rui_scheduler *s, uint32_t market, ru_time now);
void rui_provider_wish(rui_scheduler *s, const rui_wished *w, ru_time now);
bool rui_provider_empty(const rui_scheduler *s, uint32_t market);
/* scheduler_world.c: a world file of the cluster. Errors: RU_E_MEM, RU_E_LIMIT. */
RU_MUST_USE ru_status rui_scheduler_world(rui_scheduler *s, ru_arena *arena, ru_text *t,
                                          ru_err *err);

/* Events that follow from what agents say: ends and failures of jobs. */
/* Has a job ended, as its processes tell, so that `*e` is to be written down? */
bool rui_scheduler_ended(const rui_scheduler *s, const ru_book_job *j, ru_journal_event *e);
void rui_scheduler_judge(rui_scheduler *s);
/* What node k shall do now. Its texts are views until the next event or STATE. */
void rui_scheduler_orders(rui_scheduler *s, uint32_t k, ru_cluster_orders *out);
/* Processes of a job that live; in *ready those of its generation that are in the job and were not
 * told to leave it, in *at (may be NULL) the address of one, of a node that keeps its slots if one
 * is there. */
uint32_t rui_scheduler_alive(const rui_scheduler *s, const ru_book_job *j, uint32_t *ready,
                             const char **at);
/* Why one that ended with a code did: a sentence. */
const char *rui_scheduler_why(const ru_cluster_proc *p);
/* What was measured of a living job. */
const ru_cluster_figures *rui_scheduler_figures(rui_scheduler *s, const ru_book_job *j);
/* Does no process of any job live, as far as all nodes have said since their newest orders? */
bool rui_scheduler_silence(const rui_scheduler *s);

/* For people, in words. Errors: RU_E_LIMIT. */
RU_MUST_USE ru_status rui_scheduler_explain(rui_scheduler *s, const ru_book_job *j, ru_arena *arena,
                                            ru_text *t, ru_err *err);
/* Columns of a table; '>' before a name: to the right. */
void rui_scheduler_columns(ru_table *t, const char *const *names, uint32_t n);
/* The jobs that run, with what their files say of them now. */
void rui_scheduler_top(rui_scheduler *s, ru_table *t);
/* Services that agents pace; false: there are none. */
bool rui_scheduler_services(const rui_scheduler *s, ru_table *t);
/* Those with this name. Errors: RU_E_MISSING. */
RU_MUST_USE ru_status rui_scheduler_service(const rui_scheduler *s, const char *name, ru_text *t,
                                            ru_err *err);
/* scheduler_metrics.c: the same for Prometheus. */
void rui_scheduler_metrics(rui_scheduler *s, ru_text *t);
void rui_scheduler_request(void *self, ru_http_request *r);
/* All jobs end with their checkpoints and wait for the next scheduler; this one ends after them. */
RU_MUST_USE ru_status rui_scheduler_close(rui_scheduler *s, ru_err *err);

#endif
