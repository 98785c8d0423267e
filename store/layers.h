/* Graphs of layers and operators with measured times, as profilers and placement benchmarks write
 * them.
 *
 *   layer profile   node4 -- Conv2d(3, 64) -- forward_compute_time=1.2, backward_compute_time=2.1,
 *                   activation_size=25690112.0, parameter_size=9536.0        times in ms
 *                   <tab>node3 -- node4                                      an edge
 *   operator graph  {"nodes": [{"id", "name", "fpgaLatency", "size", ...}], "edges": [{"sourceId",
 *                   "destId", "cost", "size"}], "maxFPGAs", ...}             plain or gzip
 *
 * Source: pipedream-2019 (profiles); tarnawski-2020 (operator graphs). Thread: any. */
#ifndef RU_STORE_LAYERS_H
#define RU_STORE_LAYERS_H

#include "base/str.h"

enum { RU_LAYERS_MAX = 1 << 20 };
#define RU_LAYERS_NUMBER_MAX 1e15 /* of a profile: ms, bytes */

typedef struct ru_layer {
    const char *id;          /* "node4", or the number of an operator */
    const char *name;        /* "Conv2d(3, 64)" */
    double forward_ms;       /* operator graph: on an accelerator */
    double backward_ms;      /* operator graph: 0, backward ops are nodes of their own */
    double cpu_ms;           /* operator graph only */
    double activation_bytes; /* of all outputs; operator graph: 0, see edges */
    double param_bytes;      /* operator graph: what the node keeps in memory, of any kind */
    bool accelerated;        /* operator graph: may run on an accelerator; profile: true */
    bool backward;           /* operator graph: part of the backward pass */
    int64_t color;           /* operator graph: ops of one colour stay together; -1: none */
} ru_layer;

typedef struct ru_layer_edge {
    uint32_t from, to; /* places in layers */
    double ms, bytes;  /* operator graph: cost of the transfer between devices; profile: 0 */
} ru_layer_edge;

typedef struct ru_layer_graph {
    ru_layer *layers; /* [n] in the order of the file */
    uint32_t n;
    ru_layer_edge *edges; /* [n_edges] in the order of the file */
    uint32_t n_edges;
    bool operators;              /* an operator graph */
    double accelerator_bytes;    /* operator graph: memory of one accelerator */
    uint32_t accelerators, cpus; /* operator graph: at most so many */
} ru_layer_graph;

/* By the first bytes of a file and its name. */
bool ru_layers_are_profile(const char *path, ru_str text);
bool ru_layers_are_operators(const char *path, ru_str text);

/* Either form. Numbers are finite and at least 0, those of a
 * profile at most RU_LAYERS_NUMBER_MAX; edges join two layers of the graph.
 * Owner: everything lives in `arena`. Errors: RU_E_DATA with path and place, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_layers_read(const char *path, ru_str text, ru_arena *arena,
                                     ru_layer_graph *g, ru_err *err);

#endif
