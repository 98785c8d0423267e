#include "plan/row/arrivals.h"

#include "cost/arrive.h"

enum { POISSON = 1, MAP, GAPS };

static const ru_conf_field map_fields[] = {
    RU_ROW(F64_LIST, rui_arrivals_map, d0, "[]",
           "matrix of rates of phase changes without an arrival, row by row; the diagonal is "
           "negative [1/s]"),
    RU_ROW(F64_LIST, rui_arrivals_map, d1, "[]",
           "matrix of rates of phase changes with an arrival, row by row [1/s]", RU_IN(0, 1e12)),
};
static const ru_conf_table map_table = RU_TABLE("map", rui_arrivals_map, map_fields, NULL);

static const ru_conf_field arrival_fields[] = {
    RU_ROW(F64, rui_arrivals_in, poisson, "1", "Poisson arrivals: requests per second",
           RU_OVER(0, 1e9)),
    RU_ROW(SECTION, rui_arrivals_in, map, NULL, "Markovian arrival process with up to 8 phases",
           .table = &map_table),
    RU_ROW(F64_LIST, rui_arrivals_in, gaps_s, "[]",
           "measured interarrival times in order; Rubato fits an arrival process to them",
           RU_IN(0, 1e9)),
};
const ru_conf_table rui_arrivals_table =
    RU_TABLE("arrivals", rui_arrivals_in, arrival_fields, NULL, .one_of = "poisson|map|gaps_s",
             .which_offset = offsetof(rui_arrivals_in, which));

ru_status rui_arrivals_of(const rui_arrivals_in *a, ru_markov *out, ru_err *err)
{
    if (a->which == POISSON) {
        *out = ru_markov_poisson(a->poisson);
        return RU_OK;
    }
    if (a->which == GAPS) {
        ru_arrive_fit fit;
        RU_TRY(ru_arrive_of(a->gaps_s.at, a->gaps_s.n, &fit, err));
        *out = fit.process;
        return RU_OK;
    }
    uint32_t n = 0;
    while (n <= RU_MARKOV_PHASES_MAX && n * n < a->map.d0.n) {
        n++;
    }
    if (n < 1 || n > RU_MARKOV_PHASES_MAX || n * n != a->map.d0.n || a->map.d1.n != a->map.d0.n) {
        return RU_FAIL(err, RU_E_ARG,
                       "'map' has %u and %u numbers, expected two square matrices of the same 1 to "
                       "%d phases",
                       a->map.d0.n, a->map.d1.n, RU_MARKOV_PHASES_MAX);
    }
    *out = (ru_markov){.n = n};
    for (uint32_t i = 0; i < n * n; i++) {
        out->d0[i] = a->map.d0.at[i];
        out->d1[i] = a->map.d1.at[i];
    }
    return ru_markov_check(out, err);
}
