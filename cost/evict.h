/* When a bid on a market of changing prices is evicted: exact counts over the market's history.
 *
 * An instance with a bid runs while price <= bid. For the bid price(s) + delta, begun at every
 * stride of the history, the first later price above the bid ends it. Counts are whole numbers:
 * nothing is fitted. The hazard of each minute follows from them.
 *
 * Source: harlap-2017 sec 4.2 (chance of eviction and time to it by bid delta); tables by the
 * minute are ours.
 * Thread: any, pure. */
#ifndef RU_COST_EVICT_H
#define RU_COST_EVICT_H

#include "base/str.h"

enum { RU_EVICT_MINUTES = 60, RU_EVICT_STRIDE_S = 300, RU_EVICT_ROWS_MAX = 1 << 22 };

/* Prices of one market: usd[k] holds from at_s[k] until the next row. */
typedef struct ru_prices {
    const int64_t *at_s; /* [n] never falls */
    const double *usd;   /* [n] an hour, > 0 */
    uint32_t n;
} ru_prices;

/* Errors: RU_E_ARG with the row, counted from 1, that is out of order or no price. */
RU_MUST_USE ru_status ru_prices_check(const ru_prices *p, ru_err *err);
/* A file of prices: seconds since 1970, a blank and a price a line, as they changed. Owner:
 * `arena`. Errors: RU_E_DATA with `label` and the line, RU_E_MEM. */
RU_MUST_USE ru_status ru_prices_parse(const char *label, ru_str text, ru_arena *arena,
                                      ru_prices *out, ru_err *err);
/* Prices of a market that takes all its instances back now and then: `usd`, and for one second a
 * price above every bid, `per_hour` times an hour on average, drawn by `seed` from `from_s` on for
 * ten years or half a million times. Owner: `arena`. Errors: RU_E_MEM. */
RU_MUST_USE ru_status ru_prices_drawn(double usd, double per_hour, int64_t from_s, uint64_t seed,
                                      ru_arena *arena, ru_prices *out, ru_err *err);
/* The last row at or before `s`; UINT32_MAX: the history begins later. Cost: O(log n). */
uint32_t ru_prices_row(const ru_prices *p, int64_t s);

typedef struct ru_evict_law {
    uint32_t n_starts;
    uint32_t evicted[RU_EVICT_MINUTES + 1]; /* [k] starts evicted within k minutes */
    double median_s;                        /* to eviction, of those evicted in an hour, the later
                                               one of the middle two; 0: none */
} ru_evict_law;

/* How the price at `s` stands to the hour before: a price below the recent ones rises sooner. */
enum {
    RU_EVICT_TOP,    /* never above in that hour */
    RU_EVICT_MIDDLE, /* above in less than half of it */
    RU_EVICT_LOW,
    RU_EVICT_STATES,
    RU_EVICT_ALL = RU_EVICT_STATES /* starts of every state; also: no price at `s` */
};
uint32_t ru_evict_state(const ru_prices *p, int64_t s);

/* Starts every RU_EVICT_STRIDE_S in [from_s, until_s - 3600) that have a price and, unless `state`
 * is RU_EVICT_ALL, are in that state; evicted at the first row with s < t <= s + 3600 and a price
 * above the bid by more than 1e-9. Cost: O(starts * rows of an hour). Errors: RU_E_LIMIT (scratch),
 * RU_E_ARG for a window without a start. */
RU_MUST_USE ru_status ru_evict_count(const ru_prices *p, int64_t from_s, int64_t until_s,
                                     double delta_usd, uint32_t state, ru_arena *scratch,
                                     ru_evict_law *out, ru_err *err);

/* Chance of an eviction within `hours` <= 1 of the start, linear between minutes. */
double ru_evict_chance(const ru_evict_law *l, double hours);
/* Expected hours in service within `hours` <= 1: the integral of the survival. */
double ru_evict_service(const ru_evict_law *l, double hours);

#endif
