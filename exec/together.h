/* Executables whose phases run one after the other, in an order that repeats: parts of a step on
 * one device. Their activations, gradients, ports and inputs have one memory, planned by how long
 * each of them lives over all phases; what one part no longer needs, another one uses.
 *
 *     phases    F a   F b   B b   B a   U a   U b   F a ...
 *     of a      |--activations----------|
 *     of b            |-------|                 ... this place serves B a
 *     a hands b |----------|                        its port and the input of b are one place
 *
 * Values with ports live to the end of the order, so that they may leave until the next run begins;
 * so do inputs, which may come before their run begins.
 *
 * Thread: that of the executables. */
#ifndef RU_EXEC_TOGETHER_H
#define RU_EXEC_TOGETHER_H

#include "exec/exe.h"

typedef struct ru_exe_turn {
    uint32_t exe;   /* which of them */
    ru_phase phase; /* forward, backward or update */
} ru_exe_turn;

/* What a port of `from` shows is an input of `to`, whose phases that read it come later. */
typedef struct ru_exe_hand {
    uint32_t from, to; /* which of them */
    ru_value_id port, input;
} ru_exe_hand;

/* The order that repeats: of each executable forward before backward before update, each once at
 * most. What a phase leaves for one that is none of the turns stays until the next turn. */
typedef struct ru_exe_order {
    const ru_exe_turn *turns; /* [n_turns] */
    uint32_t n_turns;
    const ru_exe_hand *hands; /* [n_hands] */
    uint32_t n_hands;
} ru_exe_order;

typedef struct ru_exe_together ru_exe_together;

/* As ru_exe_open with two_phase and forward, but the memory of activations, gradients, ports and
 * inputs comes before the first run, from ru_exe_together_open. The first n_brief of opt->ports
 * leave by ru_exe_order.hands alone, or are copied in their port: their memory serves others
 * then. */
RU_MUST_USE ru_status ru_exe_open_part(const ru_graph *g, const ru_exe_options *opt,
                                       uint32_t n_brief, ru_exe **out, ru_err *err);

/* Plan and get the memory of all [n], opened by ru_exe_open_part on one device, for phases in this
 * order. A port and the inputs that it hands over to have one place where that can be: then
 * ru_exe_input of those is what the port shows, and nobody copies; else whoever has the port does.
 * Before the first run, and before ru_exe_input, ru_exe_ports_set and ru_exe_grads.
 * Errors: RU_E_MEM, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_exe_together_open(ru_exe *const *at, uint32_t n, const ru_exe_order *order,
                                           ru_exe_together **out, ru_err *err);
int64_t ru_exe_together_bytes(const ru_exe_together *t);
/* Behind the last run of any of them; NULL is fine. */
void ru_exe_together_close(ru_exe_together *t);

#endif
