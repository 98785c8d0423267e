/* A federation between two rounds as bytes. */
#include "fleet/fed_impl.h"

enum { SAVED_BYTES = 72, SAVED_TIER_BYTES = 32, SAVED_CLIENT_BYTES = 56 };
enum { WHOLE_BYTES = 36, WHOLE_CLIENT_BYTES = 32 };
enum { ACCOUNT_MARK = 0x52445031, ACCOUNT_BYTES = 4 + 8 * RU_PRIVACY_ORDERS };

int64_t ru_fed_saved_bytes(const ru_fed *f, bool whole)
{
    int64_t more = WHOLE_BYTES + WHOLE_CLIENT_BYTES * (int64_t)f->opt.n +
                   (int64_t)sizeof(uint32_t) * ((int64_t)f->n_queue + f->n_probes);
    return SAVED_BYTES + SAVED_TIER_BYTES * (int64_t)f->opt.n_tiers +
           SAVED_CLIENT_BYTES * (int64_t)f->opt.n +
           (f->privacy.account != NULL ? ACCOUNT_BYTES : 0) + (whole ? more : 0);
}

/* -- what clients owe -----------------------------------------------------------------------------
 */

static void save_whole(const ru_fed *f, ru_wire_out *o)
{
    RU_CHECK(f->stage == KEEP);
    ru_wire_put_u32(o, f->profiles);
    ru_wire_put_u32(o, f->wait);
    ru_wire_put_u32(o, f->answered);
    ru_wire_put_u32(o, f->sent_n);
    ru_wire_put_u32(o, f->stale);
    ru_wire_put_u64(o, (uint64_t)f->told.ns);
    ru_wire_put_u32(o, f->n_queue);
    ru_wire_put_u32(o, f->n_probes);
    for (uint32_t i = 0; i < f->opt.n; i++) {
        const client *c = &f->clients[i];
        ru_wire_put_f64(o, c->profile_s);
        ru_wire_put_f64(o, c->log_square);
        ru_wire_put_u32(o, c->task);
        ru_wire_put_u32(o, (uint32_t)c->state << 1 | (c->probing ? 1 : 0));
        ru_wire_put_u64(o, (uint64_t)c->sent.ns);
    }
    for (uint32_t k = 0; k < f->n_queue; k++) {
        ru_wire_put_u32(o, f->queue[(f->queue_at + k) % f->opt.n]);
    }
    for (uint32_t k = 0; k < f->n_probes; k++) {
        ru_wire_put_u32(o, f->probes[k]);
    }
}

static bool load_list(const ru_fed *f, ru_wire_in *w, uint32_t *list, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        list[k] = ru_wire_u32(w);
        if (w->bad || list[k] >= f->opt.n) {
            return false;
        }
    }
    return true;
}

/* No client stands in the list twice. Those of it are marked as queued then. */
static bool each_once(ru_fed *f, const uint32_t *list, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        if (f->clients[list[k]].queued) {
            return false;
        }
        f->clients[list[k]].queued = true;
    }
    return true;
}

static bool load_whole(ru_fed *f, ru_wire_in *w)
{
    f->profiles = ru_wire_u32(w);
    f->wait = ru_wire_u32(w);
    f->answered = ru_wire_u32(w);
    f->sent_n = ru_wire_u32(w);
    f->stale = ru_wire_u32(w) != 0;
    f->told.ns = (int64_t)ru_wire_u64(w);
    f->n_queue = ru_wire_u32(w);
    f->n_probes = ru_wire_u32(w);
    f->stage = KEEP;
    bool fine = f->n_queue <= f->opt.n && f->n_probes <= rui_fed_at_once(&f->opt);
    for (uint32_t i = 0; i < f->opt.n && fine; i++) {
        client *c = &f->clients[i];
        c->profile_s = ru_wire_f64(w);
        c->log_square = ru_wire_f64(w);
        c->task = ru_wire_u32(w);
        uint32_t state = ru_wire_u32(w);
        c->sent.ns = (int64_t)ru_wire_u64(w);
        c->state = (client_state)(state >> 1);
        c->probing = (state & 1) != 0;
        fine = state >> 1 <= AWAY && !w->bad;
        rui_fed_recount(f, c);
    }
    fine = fine && load_list(f, w, f->queue, f->n_queue) && load_list(f, w, f->probes, f->n_probes);
    fine = fine && each_once(f, f->probes, f->n_probes);
    for (uint32_t k = 0; k < f->n_probes && fine; k++) {
        f->clients[f->probes[k]].queued = false;
    }
    return fine && each_once(f, f->queue, f->n_queue);
}

/* -- what all know --------------------------------------------------------------------------------
 */

void ru_fed_save(const ru_fed *f, bool whole, ru_wire_out *o)
{
    ru_wire_put_u32(o, f->opt.n);
    ru_wire_put_u32(o, f->opt.n_tiers);
    ru_wire_put_u32(o, f->round);
    ru_wire_put_u32(o, f->task);
    ru_wire_put_u32(o, f->last_tier);
    ru_wire_put_u32(o, f->tiered_round);
    ru_wire_put_u32(o, f->spread_n);
    ru_wire_put_u32(o, f->has_chance);
    ru_wire_put_f64(o, f->spread_square);
    ru_wire_put_f64(o, f->doubt);
    ru_wire_put_f64(o, f->utility);
    ru_wire_put_f64(o, f->utility_before);
    ru_wire_put_f64(o, f->prefer);
    for (uint32_t t = 0; t < f->opt.n_tiers; t++) {
        ru_wire_put_f64(o, f->tier[t].credits);
        ru_wire_put_f64(o, f->tier[t].accuracy);
        ru_wire_put_f64(o, f->tier[t].before);
        ru_wire_put_f64(o, f->chance[t]);
    }
    for (uint32_t i = 0; i < f->opt.n; i++) {
        const client *c = &f->clients[i];
        ru_wire_put_f64(o, c->samples);
        ru_wire_put_f64(o, c->mean_s);
        ru_wire_put_f64(o, c->tiered_s);
        ru_wire_put_f64(o, c->loss);
        ru_wire_put_u32(o, c->picks);
        ru_wire_put_u32(o, c->last_round);
        ru_wire_put_u32(o, f->tier_of[i]);
        ru_wire_put_u32(o, c->measured);
        ru_wire_put_f64(o, c->log_sum);
    }
    if (f->privacy.account != NULL) {
        ru_wire_put_u32(o, ACCOUNT_MARK);
        for (uint32_t k = 0; k < RU_PRIVACY_ORDERS; k++) {
            ru_wire_put_f64(o, ru_privacy_orders(f->privacy.account)[k]);
        }
    }
    if (whole) {
        save_whole(f, o);
    }
}

static bool within(double v, double least)
{
    return v >= least && v <= 1e300;
}

/* What the rounds before told: without it a promise for all of them would not be true. */
static bool load_account(const ru_fed *f, ru_wire_in *w)
{
    bool fine = f->privacy.account == NULL || ru_wire_u32(w) == ACCOUNT_MARK;
    for (uint32_t k = 0; k < RU_PRIVACY_ORDERS && f->privacy.account != NULL && fine; k++) {
        double spent = ru_wire_f64(w);
        fine = within(spent, 0);
        ru_privacy_orders(f->privacy.account)[k] = spent;
    }
    return fine && !w->bad;
}

ru_status ru_fed_load(ru_fed *f, bool whole, ru_wire_in *w, ru_err *err)
{
    bool same = ru_wire_u32(w) == f->opt.n;
    same = ru_wire_u32(w) == f->opt.n_tiers && same;
    f->round = ru_wire_u32(w);
    f->task = ru_wire_u32(w);
    f->last_tier = ru_wire_u32(w);
    f->tiered_round = ru_wire_u32(w);
    f->spread_n = ru_wire_u32(w);
    f->has_chance = ru_wire_u32(w) != 0;
    f->spread_square = ru_wire_f64(w);
    f->doubt = ru_wire_f64(w);
    f->utility = ru_wire_f64(w);
    f->utility_before = ru_wire_f64(w);
    f->prefer = ru_wire_f64(w);
    bool fine = same && f->opt.absent && within(f->spread_square, 0) && within(f->doubt, 0);
    for (uint32_t t = 0; t < f->opt.n_tiers && fine; t++) {
        f->tier[t].credits = ru_wire_f64(w);
        f->tier[t].accuracy = ru_wire_f64(w);
        f->tier[t].before = ru_wire_f64(w);
        f->chance[t] = ru_wire_f64(w);
        fine = within(f->chance[t], 0) && within(f->tier[t].credits, -1e300);
    }
    for (uint32_t i = 0; i < f->opt.n && fine; i++) {
        client *c = &f->clients[i];
        c->samples = ru_wire_f64(w);
        c->mean_s = ru_wire_f64(w);
        c->tiered_s = ru_wire_f64(w);
        c->loss = ru_wire_f64(w);
        c->picks = ru_wire_u32(w);
        c->last_round = ru_wire_u32(w);
        f->tier_of[i] = ru_wire_u32(w);
        c->measured = ru_wire_u32(w);
        c->log_sum = ru_wire_f64(w);
        fine = within(c->samples, 0) && within(c->mean_s, 0) && within(c->tiered_s, 0) &&
               within(c->loss, -1) &&
               (f->tier_of[i] < f->opt.n_tiers || f->tier_of[i] == RU_PICK_NONE);
    }
    f->task += whole ? 0 : f->opt.rounds; /* above all numbers that went out after the snapshot */
    if (fine && !w->bad && !load_account(f, w)) {
        return RU_FAIL(err, RU_E_DATA,
                       "the snapshot of the federation does not say what its rounds tell about a "
                       "client; the run began without federated.privacy.noise");
    }
    fine = fine && (!whole || load_whole(f, w));
    return fine && !w->bad ? RU_OK
                           : RU_FAIL(err, RU_E_DATA,
                                     "the snapshot of the federation is damaged, or of one with "
                                     "another number of clients or tiers");
}
