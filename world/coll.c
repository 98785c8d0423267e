/* Names of collectives. */
#include "world/coll.h"

#include <string.h>

static const char *const op_names[RU_COLL_OPS] = {
    "all-reduce", "reduce-scatter", "all-gather", "reduce", "broadcast", "all-to-all", "barrier"};
static const char *const algo_names[RU_COLL_ALGOS] = {"ring",        "halving", "doubling", "tree",
                                                      "double-tree", "direct",  "hierarchy"};

const char *ru_coll_op_name(ru_coll_op op)
{
    return (uint32_t)op < RU_COLL_OPS ? op_names[op] : "unknown";
}

const char *ru_coll_algo_name(ru_coll_algo algo)
{
    return (uint32_t)algo < RU_COLL_ALGOS ? algo_names[algo] : "unknown";
}

ru_coll_op ru_coll_op_find(const char *name)
{
    uint32_t i = 0;
    while (i < RU_COLL_OPS && strcmp(op_names[i], name) != 0) {
        i++;
    }
    return (ru_coll_op)i;
}

ru_coll_algo ru_coll_algo_find(const char *name)
{
    uint32_t i = 0;
    while (i < RU_COLL_ALGOS && strcmp(algo_names[i], name) != 0) {
        i++;
    }
    return (ru_coll_algo)i;
}
