#include "plan/row/arrivals.h"

#include "cost/arrive.h"

enum { POISSON = 1, MAP, GAPS };

#define AT(type_, name_) .offset = offsetof(type_, name_)

static const ru_conf_field map_fields[] = {
    {.name = "d0",
     .type = RU_CONF_F64_LIST,
     AT(rui_arrivals_map, d0),
     .def = "[]",
     .help = "matrix of rates of phase changes without an arrival, row by row; the diagonal is "
             "negative [1/s]"},
    {.name = "d1",
     .type = RU_CONF_F64_LIST,
     AT(rui_arrivals_map, d1),
     .def = "[]",
     .min = 0,
     .max = 1e12,
     .help = "matrix of rates of phase changes with an arrival, row by row [1/s]"},
};
static const ru_conf_table map_table = {.name = "map",
                                        .fields = map_fields,
                                        .n = RU_ARRAY_LEN(map_fields),
                                        .size_bytes = sizeof(rui_arrivals_map)};

static const ru_conf_field arrival_fields[] = {
    {.name = "poisson",
     .type = RU_CONF_F64,
     AT(rui_arrivals_in, poisson),
     .def = "1",
     .min = 0,
     .max = 1e9,
     .open = true,
     .help = "Poisson arrivals: requests per second"},
    {.name = "map",
     .type = RU_CONF_SECTION,
     AT(rui_arrivals_in, map),
     .table = &map_table,
     .help = "Markovian arrival process with up to 8 phases"},
    {.name = "gaps_s",
     .type = RU_CONF_F64_LIST,
     AT(rui_arrivals_in, gaps_s),
     .def = "[]",
     .min = 0,
     .max = 1e9,
     .help = "measured interarrival times in order; Rubato fits an arrival process to them"},
};
const ru_conf_table rui_arrivals_table = {.name = "arrivals",
                                          .fields = arrival_fields,
                                          .n = RU_ARRAY_LEN(arrival_fields),
                                          .size_bytes = sizeof(rui_arrivals_in),
                                          .one_of = "poisson|map|gaps_s",
                                          .which_offset = offsetof(rui_arrivals_in, which)};

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
