/* Placing a step: units of the model on devices, and parts of units that compute without waiting.
 *
 *     device 1   stem --+--> a1 --> a2 --> join --> head      parts: stem | a1 a2 | join head
 *     device 2          +--> b1 --> b2 ----^                         b1 b2
 *
 * A unit is what one node with a matrix of parameters, or one that joins several units, begins, and
 * all behind it that needs nothing else. So values enter it at its first node. A part is a run of
 * units of one device: only its first one waits for another device, and only its last one is waited
 * for, so that a part can take all that it needs at its start, forward and backward. */
#include <string.h>

#include "train/model/stage_impl.h"
#include "world/pass/pass.h"

#define NONE UINT32_MAX

typedef struct placer {
    const ru_placing *in;
    ru_placed *out;
    const ru_graph *g;
    ru_arena *arena;
    uint32_t *unit_of;         /* [g->n_nodes]; NONE: it needs no sample */
    const char **name;         /* [n] */
    uint32_t *behind;          /* [n] of a unit without a matrix: the one it reads first; NONE */
    uint32_t *device, *order;  /* [n] of each unit; units as they compute */
    const ru_part_edge *edges; /* between units */
    uint32_t n, n_edges;
} placer;

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "the arena of the step graph is full");
}

/* -- units ------------------------------------------------------------------------------------- */

/* The name of a matrix without its last word; of a later unit with the same one "NAME@2". */
static const char *own_name(const placer *p, const char *name)
{
    uint32_t again = 1;
    for (uint32_t u = 0; u < p->n; u++) {
        size_t n = strlen(name);
        again += strncmp(p->name[u], name, n) == 0 && (p->name[u][n] == 0 || p->name[u][n] == '@');
    }
    return again > 1 ? ru_arena_printf(p->arena, "%s@%u", name, again) : name;
}

static const char *name_of(const placer *p, const ru_node *n)
{
    for (uint32_t k = 0; k < n->n_in; k++) {
        const ru_value *v = &p->g->values[n->in[k].v];
        const char *dot = v->name != NULL ? strrchr(v->name, '.') : NULL;
        if (v->kind == RU_VALUE_STATE && v->type.rank > 1 && v->name != NULL) {
            bool weight = dot != NULL && strcmp(dot, ".weight") == 0;
            const char *name = weight ? ru_arena_strn(p->arena, v->name, dot - v->name) : v->name;
            return name != NULL ? own_name(p, name) : NULL;
        }
    }
    return n->name != NULL && n->name[0] != 0 ? n->name
                                              : ru_arena_printf(p->arena, "unit.%u", p->n + 1);
}

/* Does the node begin a unit? Else *unit: the one it is in; NONE: it needs no sample. *behind: what
 * it reads first, where only that says on which device it belongs. */
static bool begins(const placer *p, const bool *learns, const ru_node *n, uint32_t *unit,
                   uint32_t *behind)
{
    bool joins = false, matrix = false, fed = false;
    *unit = NONE;
    for (uint32_t k = 0; k < n->n_in; k++) {
        const ru_value *v = &p->g->values[n->in[k].v];
        uint32_t u = v->producer.v != 0 ? p->unit_of[v->producer.v] : NONE;
        matrix = matrix || learns[n->in[k].v];
        fed = fed || v->kind == RU_VALUE_INPUT || u != NONE;
        joins = joins || (u != NONE && *unit != NONE && u != *unit);
        *unit = *unit == NONE ? u : *unit;
    }
    *behind = matrix ? NONE : *unit;
    return fed && (joins || matrix || *unit == NONE);
}

/* What needs no sample goes to the first unit that needs it; first [g->n_nodes]: NONE. */
static void settle(placer *p, uint32_t *first)
{
    const ru_graph *g = p->g;
    for (uint32_t i = g->n_nodes; i-- > 1;) {
        uint32_t u = p->unit_of[i] != NONE ? p->unit_of[i] : first[i];
        p->unit_of[i] = u != NONE ? u : 0;
        for (uint32_t k = 0; k < g->nodes[i].n_in; k++) {
            uint32_t by = g->values[g->nodes[i].in[k].v].producer.v;
            bool free = by != 0 && p->unit_of[by] == NONE;
            first[by] = free && u < first[by] ? u : first[by];
        }
    }
}

static ru_status list_units(placer *p, ru_err *err)
{
    const ru_graph *g = p->g;
    bool *learns = RU_NEW(p->arena, bool, g->n_values); /* a matrix, or made of one alone */
    p->unit_of = RU_NEW(p->arena, uint32_t, g->n_nodes);
    p->name = RU_NEW(p->arena, const char *, g->n_nodes);
    p->behind = RU_NEW(p->arena, uint32_t, g->n_nodes);
    uint32_t *first = RU_NEW(p->arena, uint32_t, g->n_nodes);
    if (learns == NULL || p->unit_of == NULL || p->name == NULL || p->behind == NULL ||
        first == NULL) {
        return full(err);
    }
    memset(first, 0xff, g->n_nodes * sizeof *first);
    for (uint32_t v = 1; v < g->n_values; v++) {
        const ru_value *x = &g->values[v];
        learns[v] = x->kind == RU_VALUE_STATE && x->role == RU_ROLE_PARAM && x->type.rank > 1;
    }
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const ru_node *n = &g->nodes[i];
        uint32_t unit, behind;
        if (begins(p, learns, n, &unit, &behind)) {
            unit = p->n;
            p->behind[unit] = behind;
            p->name[unit] = name_of(p, n);
            if (p->name[unit] == NULL) {
                return full(err);
            }
            p->n++;
        }
        p->unit_of[i] = unit;
        for (uint32_t k = 0; k < n->n_in && unit == NONE; k++) {
            for (uint32_t j = 0; j < n->n_out && learns[n->in[k].v]; j++) {
                learns[n->out[j].v] = true;
            }
        }
    }
    settle(p, first);
    return RU_OK;
}

/* -- devices ----------------------------------------------------------------------------------- */

/* How much of a unit's name, or of the names of its nodes and states, an entry says; 0: nothing. */
static size_t says(const placer *p, const char *entry, uint32_t unit)
{
    if (strcmp(entry, p->name[unit]) == 0) {
        return SIZE_MAX;
    }
    bool is = rui_layer_has(entry, p->name[unit]);
    for (uint32_t i = 1; i < p->g->n_nodes && !is; i++) {
        const ru_node *n = &p->g->nodes[i];
        bool here = p->unit_of[i] == unit;
        is = here && rui_layer_has(entry, n->name);
        for (uint32_t k = 0; k < n->n_in && here && !is; k++) {
            const ru_value *v = &p->g->values[n->in[k].v];
            is = v->kind == RU_VALUE_STATE && rui_layer_has(entry, v->name);
        }
    }
    return is ? strlen(entry) : 0;
}

static ru_status check_name(const placer *p, const char *key, const char *name, ru_err *err)
{
    for (uint32_t u = 0; u < p->n; u++) {
        if (says(p, name, u) > 0) {
            return RU_OK;
        }
    }
    return RU_FAIL(err, RU_E_CONFIG,
                   "train.placed.%s: the model has no layer '%.80s'; its layers are %s", key, name,
                   rui_layer_names(p->g, p->arena));
}

static ru_status check_entry(const placer *p, const ru_conf_pair *x, ru_err *err)
{
    double d = x->value;
    if (!(d >= 1 && d <= p->in->devices) || d != (double)(uint32_t)d) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "train.placed.devices: '%.80s' is on device %g, expected a whole number "
                       "from 1 to %u, the workers",
                       x->key, d, p->in->devices);
    }
    return check_name(p, "devices", x->key, err);
}

/* The longest entry counts; key [n]: its place in the list, then the unit's in the model. */
static ru_status find_devices(placer *p, uint64_t *key, ru_err *err)
{
    for (uint32_t i = 0; i < p->in->n; i++) {
        RU_TRY(check_entry(p, &p->in->at[i], err));
    }
    for (uint32_t u = 0; u < p->n; u++) {
        size_t most = 0;
        uint32_t at = p->in->n;
        for (uint32_t i = 0; i < p->in->n; i++) {
            size_t n = says(p, p->in->at[i].key, u);
            at = n > most ? i : at;
            most = n > most ? n : most;
        }
        p->device[u] = at < p->in->n          ? (uint32_t)p->in->at[at].value - 1
                       : p->behind[u] != NONE ? p->device[p->behind[u]]
                                              : 0;
        key[u] = (uint64_t)at << 32 | u;
    }
    for (uint32_t d = 0; d < p->in->devices && !p->in->idle; d++) {
        bool some = false;
        for (uint32_t u = 0; u < p->n; u++) {
            some = some || p->device[u] == d;
        }
        if (!some) {
            return RU_FAIL(err, RU_E_CONFIG,
                           "train.placed.devices gives device %u of %u nothing to compute; name "
                           "layers for it, or start fewer workers",
                           d + 1, p->in->devices);
        }
    }
    return RU_OK;
}

/* -- orders ------------------------------------------------------------------------------------ */

/* All n in an order in which values go forward, the smallest key first where it is open. */
static ru_status sequence(const placer *p, const ru_part_edge *e, uint32_t n_e, uint32_t n,
                          const uint64_t *key, uint32_t *order, ru_err *err)
{
    uint32_t *waits = RU_NEW(p->arena, uint32_t, n + 1);
    if (waits == NULL) {
        return full(err);
    }
    for (uint32_t i = 0; i < n_e; i++) {
        waits[e[i].to]++;
    }
    for (uint32_t k = 0; k < n; k++) {
        uint32_t best = NONE;
        for (uint32_t u = 0; u < n; u++) {
            best = waits[u] == 0 && (best == NONE || key[u] < key[best]) ? u : best;
        }
        RU_CHECK(best != NONE);
        order[k] = best;
        waits[best] = NONE;
        for (uint32_t i = 0; i < n_e; i++) {
            waits[e[i].to] -= e[i].from == best;
        }
    }
    return RU_OK;
}

/* Can `u` continue a run that waits for no more than it does at its start, and in which gradients
 * of a value that it reads several times are added as in one graph: no reader elsewhere in between?
 */
static bool continues(const placer *p, const uint32_t *run_of, uint32_t run, uint32_t u)
{
    for (uint32_t i = 0; i < p->n_edges; i++) {
        const ru_part_edge *e = &p->edges[i];
        if (e->to != u || run_of[e->from] == run) {
            continue;
        }
        uint32_t reader = NONE;
        for (uint32_t k = 0; k < p->n_edges; k++) {
            uint32_t by = p->edges[k].to;
            bool here = p->edges[k].value.v == e->value.v && run_of[by] == run;
            reader = here && (reader == NONE || by > reader) ? by : reader;
        }
        if (reader == NONE && p->device[e->from] != p->device[u]) {
            return false;
        }
        for (uint32_t k = 0; k < p->n_edges && reader != NONE; k++) {
            uint32_t by = p->edges[k].to;
            if (p->edges[k].value.v == e->value.v && run_of[by] != run && by != u &&
                (by > reader) == (by < u)) {
                return false;
            }
        }
    }
    return true;
}

/* Runs of units of one device, by the order of units. */
static uint32_t find_runs(const placer *p, uint32_t *run_of, uint32_t *last, bool *shut)
{
    uint32_t n = 0;
    memset(last, 0xff, p->in->devices * sizeof *last);
    memset(run_of, 0xff, p->n * sizeof *run_of);
    for (uint32_t k = 0; k < p->n; k++) {
        uint32_t u = p->order[k], d = p->device[u];
        bool awaited = false;
        for (uint32_t i = 0; i < p->n_edges; i++) {
            awaited = awaited || (p->edges[i].from == u && p->device[p->edges[i].to] != d);
        }
        if (last[d] == NONE || shut[last[d]] || !continues(p, run_of, last[d], u)) {
            last[d] = n++;
        }
        run_of[u] = last[d];
        shut[last[d]] = awaited;
    }
    return n;
}

/* Where a unit stands in the list of those that go backward: by the longest entry; behind all: none
 * is its. */
static uint32_t place_back(const placer *p, uint32_t unit)
{
    uint32_t at = p->in->n_back;
    size_t most = 0;
    for (uint32_t i = 0; i < p->in->n_back; i++) {
        size_t n = says(p, p->in->back[i], unit);
        at = n > most ? i : at;
        most = n > most ? n : most;
    }
    return at;
}

/* Runs as they go backward, e [n_e] between them: a run by that of its units which begins first,
 * then the reverse of forward, in which they are numbered. */
static ru_status order_back(const placer *p, const uint32_t *run_of, ru_part_edge *e, uint32_t n_e,
                            uint32_t n, uint32_t *order, ru_err *err)
{
    uint64_t *key = RU_NEW(p->arena, uint64_t, n + 1);
    if (key == NULL) {
        return full(err);
    }
    memset(key, 0xff, n * sizeof *key);
    for (uint32_t i = 0; i < p->in->n_back; i++) {
        RU_TRY(check_name(p, "back", p->in->back[i], err));
    }
    for (uint32_t u = 0; u < p->n; u++) {
        uint64_t k = (uint64_t)place_back(p, u) << 32 | (n - run_of[u]);
        key[run_of[u]] = k < key[run_of[u]] ? k : key[run_of[u]];
    }
    for (uint32_t i = 0; i < n_e; i++) {
        e[i] = (ru_part_edge){.from = e[i].to, .to = e[i].from};
    }
    return sequence(p, e, n_e, n, key, order, err);
}

/* Parts are numbered in the order of the model, so that gradients of a value that several parts
 * read are added as in one graph. */
static ru_status number_runs(placer *p, uint32_t *run_of, uint32_t n, ru_err *err)
{
    ru_part_edge *e = RU_NEW(p->arena, ru_part_edge, p->n_edges + 1);
    uint64_t *first = RU_NEW(p->arena, uint64_t, n + 1);
    uint32_t *order = RU_NEW(p->arena, uint32_t, n + 1), n_e = 0;
    uint32_t *part = RU_NEW(p->arena, uint32_t, n + 1);
    ru_placed *o = p->out;
    *o = (ru_placed){.n = n,
                     .device = RU_NEW(p->arena, uint32_t, n),
                     .order = RU_NEW(p->arena, uint32_t, n),
                     .back = RU_NEW(p->arena, uint32_t, n),
                     .name = RU_NEW(p->arena, const char *, n)};
    if (e == NULL || first == NULL || order == NULL || part == NULL || o->device == NULL ||
        o->order == NULL || o->back == NULL || o->name == NULL) {
        return full(err);
    }
    for (uint32_t i = 0; i < p->n_edges; i++) {
        uint32_t from = run_of[p->edges[i].from], to = run_of[p->edges[i].to];
        if (from != to) {
            e[n_e++] = (ru_part_edge){.from = from, .to = to};
        }
    }
    for (uint32_t u = p->n; u-- > 0;) {
        first[run_of[u]] = u;
    }
    RU_TRY(sequence(p, e, n_e, n, first, order, err));
    for (uint32_t k = 0; k < n; k++) {
        part[order[k]] = k;
        o->device[k] = p->device[first[order[k]]];
        o->name[k] = p->name[first[order[k]]];
    }
    for (uint32_t k = 0; k < n; k++) { /* runs came in the order in which they compute */
        o->order[k] = part[k];
    }
    RU_TRY(order_back(p, run_of, e, n_e, n, o->back, err));
    for (uint32_t k = 0; k < n; k++) {
        o->back[k] = part[o->back[k]];
    }
    for (uint32_t u = 0; u < p->n; u++) {
        run_of[u] = part[run_of[u]];
    }
    return RU_OK;
}

/* -- parts ------------------------------------------------------------------------------------- */

static ru_status find(void *self, const ru_graph *g, const bool *held, ru_arena *arena,
                      uint32_t **part_of, uint32_t *n, ru_err *err)
{
    placer *p = self;
    p->g = g;
    p->arena = arena;
    RU_TRY(list_units(p, err));
    ru_part_edge *edges;
    RU_TRY(ru_pass_part_edges(g, p->unit_of, held, arena, &edges, &p->n_edges, err));
    p->edges = edges;
    uint32_t *run_of = RU_NEW(arena, uint32_t, p->n + 1), n_runs = p->n;
    uint32_t *last = RU_NEW(arena, uint32_t, p->in->devices + 1);
    uint64_t *key = RU_NEW(arena, uint64_t, p->n + 1);
    bool *shut = RU_NEW(arena, bool, p->n + 1);
    p->device = RU_NEW(arena, uint32_t, p->n + 1);
    p->order = RU_NEW(arena, uint32_t, p->n + 1);
    if (run_of == NULL || last == NULL || key == NULL || shut == NULL || p->device == NULL ||
        p->order == NULL) {
        return full(err);
    }
    for (uint32_t u = 0; u < p->n; u++) {
        run_of[u] = u;
    }
    if (p->in->devices > 0) { /* else each unit is a part */
        RU_TRY(find_devices(p, key, err));
        RU_TRY(sequence(p, edges, p->n_edges, p->n, key, p->order, err));
        n_runs = find_runs(p, run_of, last, shut);
    }
    RU_TRY(number_runs(p, run_of, n_runs, err));
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        p->unit_of[i] = run_of[p->unit_of[i]];
    }
    *part_of = p->unit_of;
    *n = n_runs;
    return RU_OK;
}

static uint32_t turn_of(const ru_placed *p, uint32_t part)
{
    uint32_t turn = 0;
    while (p->order[turn] != part) {
        turn++;
    }
    return turn;
}

uint32_t ru_placed_lead(const ru_stages *s, const ru_placed *p, uint32_t edge)
{
    const ru_stage_edge *e = &s->edges[edge];
    uint32_t lead = edge;
    RU_CHECK(edge < s->n_edges && e->to < p->n);
    for (uint32_t i = 0; i < s->n_edges && !e->held; i++) {
        const ru_stage_edge *x = &s->edges[i];
        bool same = x->from == e->from && x->out.v == e->out.v && !x->held &&
                    p->device[x->to] == p->device[e->to];
        lead = same && turn_of(p, x->to) < turn_of(p, s->edges[lead].to) ? i : lead;
    }
    return lead;
}

/* Does the value leave a part of this device for its other parts alone? */
static bool stays_here(const ru_stages *s, const ru_placed *p, uint32_t part, ru_value_id v)
{
    bool leaves = false, here = true;
    for (uint32_t i = 0; i < s->n_edges; i++) {
        const ru_stage_edge *e = &s->edges[i];
        bool out = e->from == part && !e->held && e->out.v == v.v;
        bool back = e->to == part && e->grad.v == v.v;
        leaves = leaves || out || back;
        here = here && (!(out || back) || p->device[e->from] == p->device[e->to]);
    }
    return leaves && here;
}

ru_status ru_placed_ports(const ru_stages *s, const ru_placed *p, uint32_t part, ru_arena *arena,
                          ru_value_id **ports, uint32_t *n_brief, ru_err *err)
{
    const ru_stage *x = &s->at[part];
    ru_value_id *at = RU_NEW(arena, ru_value_id, x->n_ports + 1);
    uint32_t n = 0;
    if (at == NULL) {
        return full(err);
    }
    for (uint32_t turn = 0; turn < 2; turn++) {
        for (uint32_t k = 0; k < x->n_ports; k++) {
            bool read = false; /* statistics are, after the forward part */
            for (uint32_t i = 0; i < x->n_stats; i++) {
                read = read || x->news[i].v == x->ports[k].v;
            }
            bool brief = !read && stays_here(s, p, part, x->ports[k]);
            if (brief == (turn == 0)) {
                at[n++] = x->ports[k];
            }
        }
        *n_brief = turn == 0 ? n : *n_brief;
    }
    *ports = at;
    return RU_OK;
}

/* Which of part[n] it is; NONE: of another device. */
static uint32_t index_of(const uint32_t *part, uint32_t n, uint32_t which)
{
    uint32_t k = 0;
    while (k < n && part[k] != which) {
        k++;
    }
    return k < n ? k : NONE;
}

ru_status ru_placed_hands(const ru_stages *s, const uint32_t *part, uint32_t n, ru_arena *arena,
                          ru_exe_hand **hands, uint32_t *n_hands, ru_err *err)
{
    ru_exe_hand *at = RU_NEW(arena, ru_exe_hand, 2 * (int64_t)s->n_edges + 1);
    if (at == NULL) {
        return full(err);
    }
    *n_hands = 0;
    for (uint32_t i = 0; i < s->n_edges; i++) {
        const ru_stage_edge *e = &s->edges[i];
        uint32_t from = index_of(part, n, e->from), to = index_of(part, n, e->to);
        bool here = from != NONE && to != NONE;
        if (here && !e->held) {
            at[(*n_hands)++] = (ru_exe_hand){from, to, e->out, e->in};
        }
        if (here && e->grad.v != 0) {
            at[(*n_hands)++] = (ru_exe_hand){to, from, e->grad, e->seed};
        }
    }
    *hands = at;
    return RU_OK;
}

ru_status ru_stages_place(const ru_graph *model, const ru_step_options *opt, const ru_placing *in,
                          ru_arena *arena, ru_stages *out, ru_placed *placed, ru_err *err)
{
    placer p = {.in = in, .out = placed};
    const rui_cutting how = {
        .find = find, .self = &p, .key = "train.placed.devices", .part = "part"};
    return rui_stages_cut(model, opt, &how, arena, out, err);
}
