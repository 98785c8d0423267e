/* The stages of a pipeline: the step of one micro-batch, cut into graphs that run in one process
 * each; and the parts of a placed step, of which a process has several.
 *
 *     stage 0   x --> layers --+--> a            forward: `a` leaves, backward waits for d a
 *     stage 1        a --> layers --+--> b       ... d a leaves
 *     stage 2             b --> layers --> loss  d b leaves
 *
 * Every stage has its parameters, their gradients, the optimizer's nodes and its running
 * statistics. Over the micro-batches of a step, gradients added in their order are those of
 * ru_step_build with as many in `accumulate`; so are the statistics, where the owner writes `news`
 * into `stats` after each forward part.
 *
 * Thread: any, no shared state. */
#ifndef RU_TRAIN_MODEL_STAGE_H
#define RU_TRAIN_MODEL_STAGE_H

#include "base/conf.h"
#include "exec/together.h"
#include "train/model/step.h"

enum { RU_STAGES_MAX = 64, RU_STAGE_PIECE_BYTES = 4 << 20 /* of the states that it sends */ };

/* A value that crosses from one stage to a later one, and its gradient back. Or a parameter that
 * both have, as tied embeddings are: stage `from` adds the gradients of all and updates it, and
 * who runs the stages writes its new value into those of the others after each update. */
typedef struct ru_stage_edge {
    uint32_t from, to;
    bool held; /* the parameter: `out` and `in` are states, and nothing crosses in a forward part */
    ru_type type;
    ru_value_id out, in;    /* in the graphs of `from` and of `to` */
    ru_value_id grad, seed; /* in those of `to` and of `from`; absent: no gradient comes back */
} ru_stage_edge;

typedef struct ru_stage {
    ru_step_graph step; /* micro 1; x absent but in stages that read samples, y and loss but in the
                           last */
    ru_value_id *ends;  /* [n_ends] for ru_exe_options.forward: what leaves, `news`, loss */
    ru_value_id *ports; /* [n_ports] for ru_exe_options.ports: what leaves, `news`, gradients */
    uint32_t n_ends, n_ports;
    ru_value_id *stats, *news; /* [n_stats] states, and values that replace them */
    uint32_t n_stats;
    const char *first; /* name of the first layer with a state; "" */
} ru_stage;

typedef struct ru_stages {
    ru_stage *at;         /* [n] */
    ru_stage_edge *edges; /* [n_edges] by from, to, and place in the model */
    uint32_t n, n_edges;
} ru_stages;

/* Is the state one of an earlier stage, of which this one has a copy? */
bool ru_stage_holds(const ru_stages *s, uint32_t stage, ru_value_id state);
/* Name of a parameter that several stages have; NULL: there is none. */
const char *ru_stages_held(const ru_stages *s);

/* Cut the step. `opt` is of one micro-batch: its batch, share_of the samples of a step. cut[k]
 * [n_cut] begins stage k + 1: the name of a layer, or of the module that contains it, as the names
 * of its states begin ("layer2" of layer2.0.conv1.weight), or the name of a node.
 * Errors: RU_E_CONFIG naming a cut that the model does not have, that is out of order, or that
 * leaves a running statistic in two stages; those of ru_step_build. */
RU_MUST_USE ru_status ru_stages_build(const ru_graph *model, const ru_step_options *opt,
                                      const char *const *cut, uint32_t n_cut, ru_arena *arena,
                                      ru_stages *out, ru_err *err);

/* The evaluation of opt->batch samples, cut at the same layers: `model` is the inference form of
 * the one of which `step` has the stages. Of each stage x and y, loss, figures and output
 * (opt->outputs) as of ru_step_build_eval, in the first and the last one; `ends` are outputs of its
 * graph. Of an edge `out` and `in` count, and none is held: each stage has all states that it
 * reads. Errors: RU_E_CONFIG, or RU_E_UNSUPPORTED, when the inference form cannot be cut there. */
RU_MUST_USE ru_status ru_stages_build_eval(const ru_graph *model, const ru_step_options *opt,
                                           const char *const *cut, uint32_t n_cut,
                                           const ru_stages *step, ru_arena *arena, ru_stages *out,
                                           ru_err *err);

/* Which device has which layers of a placed step. */
typedef struct ru_placing {
    const ru_conf_pair *at; /* [n] a name as in `cut`, a device from 1; of several the longest name
                               counts; layers without one are on device 1, and a node that only
                               joins layers is where its first input is made */
    uint32_t n;
    const char *const *back; /* [n_back] names as they go backward, where the graph leaves it open;
                                none: the reverse of forward */
    uint32_t n_back;
    uint32_t devices; /* 0: no placement, each unit is a part */
    bool idle;        /* a device may have nothing */
} ru_placing;

typedef struct ru_placed {
    const char **name; /* [n] of each part: the layer, or node, with which it begins */
    uint32_t *device;  /* [n] from 0 */
    uint32_t *order;   /* [n] parts as they go forward, each device its own. What the graph leaves
                          open goes by the list of ru_placing */
    uint32_t *back;    /* [n] and backward */
    uint32_t n;        /* those of ru_stages */
} ru_placed;

/* Cut the step so that each part is of one device, waits for others at its start only, and is
 * waited for at its end only. A part is a stage of `out`; the last one has the loss.
 * Errors: as above. */
RU_MUST_USE ru_status ru_stages_place(const ru_graph *model, const ru_step_options *opt,
                                      const ru_placing *in, ru_arena *arena, ru_stages *out,
                                      ru_placed *placed, ru_err *err);

/* The ports of a part for ru_exe_options, in `arena`: first the *n_brief whose values go to parts
 * of the same device alone. Errors: RU_E_LIMIT. */
RU_MUST_USE ru_status ru_placed_ports(const ru_stages *s, const ru_placed *p, uint32_t part,
                                      ru_arena *arena, ru_value_id **ports, uint32_t *n_brief,
                                      ru_err *err);

/* What parts part[n], those of a device, hand over to each other: in `arena`, for
 * ru_exe_together_open of their executables in this order. Errors: RU_E_LIMIT. */
RU_MUST_USE ru_status ru_placed_hands(const ru_stages *s, const uint32_t *part, uint32_t n,
                                      ru_arena *arena, ru_exe_hand **hands, uint32_t *n_hands,
                                      ru_err *err);

/* The edge over which the value of `edge` comes to the device of its reader, once for all parts
 * there: that of the part which computes first. */
uint32_t ru_placed_lead(const ru_stages *s, const ru_placed *p, uint32_t edge);

#endif
