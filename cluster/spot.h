/* Nodes that a cluster rents by the hour on markets, as the fold of its journal: what it holds,
 * what that costs and was expected to cost, and what the policy `bid` would do now.
 *
 *   clock, prices --ru_spot_next--> PRICE, TIMER --------------+
 *   clock, jobs ----ru_spot_ask---> ACQUIRE, RENEW, RELEASE ---+--journal--> ru_spot_fold
 *
 *   the provider --------ru_spot_tell---> GIVEN, TAKEN --------+
 *
 * The machine is cluster/market.h without work and end: one allocation is one node, its lease the
 * number of the node in its market. The market's clock counts nanoseconds since 1970, as its prices
 * do, and may run faster than ours. An eviction takes the node out of the machine when its notice
 * comes, so nothing that has a notice can be released.
 *
 * Source: harlap-2017 sec 4.2 (when to ask). Thread: any. No clock. */
#ifndef RU_CLUSTER_SPOT_H
#define RU_CLUSTER_SPOT_H

#include "cluster/journal.h"
#include "cluster/market.h"

enum {
    RU_SPOT_MARKETS_MAX = 8,
    RU_SPOT_NODES_MAX = 64 /* of a market; of all together RU_SPOT_LEASES_MAX */,
    RU_SPOT_LEASES_MAX = 200,
    RU_SPOT_EVENTS_MAX = RU_MARKET_ALLOCS_MAX + RU_SPOT_LEASES_MAX + RU_SPOT_MARKETS_MAX
};

typedef struct ru_spot_market {
    const char *name;      /* its nodes are NAME1, NAME2, ... */
    uint32_t nodes, slots; /* most nodes at one time; workers of each */
    double on_demand_usd;  /* an hour; 0: there are none */
    int64_t patience_ns; /* told: who does not come by then is refused, and nobody asked as long */
    bool told;           /* its nodes come late or never, and the provider takes them back */
    double flat_usd;     /* an hour costs this, and `prices` tell evictions alone; 0: those */
    ru_prices prices;
} ru_spot_market;

typedef struct ru_spot_options {
    const ru_spot_market *at; /* [n] */
    uint32_t n;
    double speed;    /* seconds of the market's clock in one of ours */
    int64_t begin_s; /* where that clock begins, an hour or more after the first prices */
    int64_t sigma_ns, lambda_ns; /* as long as they are not measured */
} ru_spot_options;

typedef struct ru_spot {
    bool begun;
    int64_t clock_ns, wall_ns; /* the markets' clock when it was last told, and the time of day */
    ru_market_job job;
    double hour_usd;      /* of an hour of all nodes, as the policy last expected */
    double predicted_usd; /* the same until now */
    bool lent[RU_SPOT_MARKETS_MAX][RU_SPOT_NODES_MAX]; /* [market][lease - 1]: at some time */
    int64_t refused_ns[RU_SPOT_MARKETS_MAX]; /* when last; 0: not yet. It is not asked meanwhile */
} ru_spot;

/* What jobs need and measure. */
typedef struct ru_spot_facts {
    uint32_t wants; /* workers that jobs could have on such nodes */
    double phi;     /* part of its work that one more worker adds, 0..1 */
    double work;    /* of a worker in an hour of the market, > 0 */
    int64_t sigma_ns, lambda_ns;
    /* [market][lease - 1]: the last node of this number is not gone yet */
    bool busy[RU_SPOT_MARKETS_MAX][RU_SPOT_NODES_MAX];
} ru_spot_facts;

typedef struct ru_spot_answer {
    ru_journal_event *events; /* [n] for the journal */
    uint32_t n;
    const char *input; /* JSON of what the policy was asked; NULL: it was not */
    char id[33];       /* of its plan */
    double hour_usd;   /* that it expects */
} ru_spot_answer;

/* Fold one event of those below: node is the market, job the lease, a the word
 * (ru_market_word), b the instant on the market's clock. Errors: RU_E_DATA for one that does not
 * follow from those before. */
RU_MUST_USE ru_status ru_spot_fold(ru_spot *s, const ru_journal_event *e, ru_err *err);
/* The next event that the clock brings until `until_ns`, without its kind; false: none. Owner: its
 * text lives in `arena`. */
bool ru_spot_next(const ru_spot *s, const ru_spot_options *o, int64_t until_ns, ru_arena *arena,
                  ru_journal_event *out);
/* A node of a market that tells comes (GIVEN), or does not, or goes (TAKEN): events in `out`
 * without their kind. Gives how many; 0: nothing like this can happen to it, or no memory. */
uint32_t ru_spot_tell(const ru_spot *s, const ru_spot_options *o, ru_market_word word,
                      uint32_t market, uint32_t lease, const char *why, int64_t now_ns,
                      ru_arena *arena, ru_journal_event out[2]);
/* What to buy, keep and give back, after all events of the clock until `now_ns`; kinds are not set.
 * Owner: `arena`. Errors: those of the policy. */
RU_MUST_USE ru_status ru_spot_ask(const ru_spot *s, const ru_spot_options *o,
                                  const ru_spot_facts *f, int64_t now_ns, ru_arena *arena,
                                  ru_spot_answer *out, ru_err *err);
/* Does an hour end so soon that somebody must say whether it is renewed? */
bool ru_spot_due(const ru_spot *s, int64_t now_ns);
/* Paid so far without what is left of hours that run. */
double ru_spot_cost(const ru_spot *s, int64_t now_ns);
double ru_spot_price(const ru_spot_market *m, int64_t now_ns);
/* Do these prices of a market begin more than an hour before, as the policy needs them? Errors:
 * RU_E_CONFIG. */
RU_MUST_USE ru_status ru_spot_reaches(const char *name, const ru_prices *p, int64_t now_ns,
                                      ru_err *err);

/* Name of a node, and the market and lease of a name; false: of none. */
void ru_spot_name(const ru_spot_options *o, uint32_t market, uint32_t lease, char into[80]);
bool ru_spot_of(const ru_spot_options *o, const char *name, uint32_t *market, uint32_t *lease);

#endif
