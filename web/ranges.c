/* The thread of ru_objects: takes pieces from the queue, keeps `depth` requests under way, tries
 * again what failed. The lock is open while libcurl works and waits. */
#include "web/objects_impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "env/clock.h"

#ifdef RU_HAS_CURL

enum { POLL_MS = 1000, PROGRESS_BYTES = 4096 };
static const int64_t tell_again_ns = 60000000000;

/* -- ends ----------------------------------------------------------------------------------------
 */

static void unqueue(ru_objects *o, ru_ranges *r)
{
    for (ru_ranges **at = &o->queue; *at != NULL; at = &(*at)->after) {
        if (*at == r) {
            *at = r->after;
            return;
        }
    }
}

/* A piece of `r` has ended with so many bytes. */
static void end_piece(ru_objects *o, ru_ranges *r, ru_read_piece *p, int64_t got)
{
    p->got_bytes = got;
    p->ended_ns = ru_clock_now().ns;
    o->figures.bytes += got > 0 ? got : 0;
    r->bytes += got > 0 ? got : 0;
    if (++r->ended == r->n) {
        unqueue(o, r);
        ru_cond_broadcast(&o->ended);
    }
}

static void end_transfer(rui_transfer *t, int64_t got)
{
    ru_objects *o = t->of;
    o->outstanding -= t->piece->size_bytes;
    o->n_busy--;
    t->state = RUI_IDLE;
    end_piece(o, t->set, t->piece, got);
}

static void stop(rui_transfer *t)
{
    ru_objects *o = t->of;
    ru_object *b = t->object;
    if (b->failed == RU_OK) {
        b->failed = t->err.status;
        o->figures.failed++;
        b->err = t->err;
    }
    end_transfer(t, -1);
}

static void tell(ru_objects *o, const ru_err *why, int64_t patience_ns, int64_t now)
{
    if (o->told_ns == 0 || now - o->told_ns > tell_again_ns) {
        o->told_ns = now;
        ru_log(RU_LOG_WARN, "data", "store_again", "%s; it is asked again for up to %lld s",
               why->text, (long long)(patience_ns / 1000000000));
    }
}

static void again(rui_transfer *t)
{
    ru_objects *o = t->of;
    int64_t now = ru_clock_now().ns, fresh = t->got - t->got_before;
    bool first = t->object->version.size_bytes < 0;
    int64_t patience = 1000000 * (first ? o->opt.patience_first_ms : o->opt.patience_ms);
    int64_t all = t->judged ? t->want : t->piece->size_bytes; /* the object may end before */
    bool progress = fresh >= PROGRESS_BYTES || (fresh > 0 && 4 * fresh >= all - t->got_before);
    if (progress) {
        t->tries = 0;
        t->since_ns = now;
    }
    int64_t wait = rui_answer_wait_ns(t->tries, t->answer.retry_after_s, &o->rng);
    if (now + wait - t->since_ns > patience) {
        (void)ru_err_wrap(&t->err, t->err.status, "no answer for %lld s",
                          (long long)((now - t->since_ns + 999999999) / 1000000000));
        stop(t);
        return;
    }
    tell(o, &t->err, patience, now);
    o->figures.again++;
    t->tries++;
    t->due_ns = progress ? now : now + wait;
    t->state = RUI_WAITS;
}

static void run_transfer(rui_transfer *t)
{
    ru_objects *o = t->of;
    ru_status st = rui_transfer_begin(t, &t->err);
    if (st == RU_OK && o->curl.multi_add_handle(o->multi, t->handle) != CURLM_OK) {
        st = RU_FAIL(&t->err, RU_E_MEM, "no memory for a request");
    }
    if (st != RU_OK) {
        stop(t);
        return;
    }
    o->figures.requests++;
    t->state = RUI_RUNS;
}

static void finish(rui_transfer *t, CURLcode rc)
{
    rui_verdict v = rui_transfer_end(t, rc);
    if (v == RUI_TAKE) {
        end_transfer(t, t->got);
    } else if (t->set->cancelled) {
        end_transfer(t, -1);
    } else if (v == RUI_AGAIN) {
        again(t);
    } else {
        stop(t);
    }
}

/* -- issue ---------------------------------------------------------------------------------------
 */

static uint32_t group_busy(const ru_objects *o, uint32_t group)
{
    uint32_t n = 0;
    for (const ru_ranges *r = o->queue; r != NULL; r = r->after) {
        n += r->group == group ? r->next - r->ended : 0;
    }
    return n;
}

static rui_transfer *idle(ru_objects *o)
{
    for (uint32_t k = 0; k < o->opt.requests_max; k++) {
        if (o->transfer[k].state == RUI_IDLE) {
            return &o->transfer[k];
        }
    }
    return NULL;
}

/* The next piece of a set. False: there is no room for it now. */
static bool issue_one(ru_objects *o, ru_ranges *r)
{
    ru_read_piece *p = &r->pieces[r->next];
    ru_object *b = p->object;
    int64_t now = ru_clock_now().ns;
    if (b->failed != RU_OK || r->cancelled) {
        p->issued_ns = now;
        r->next++;
        end_piece(o, r, p, -1);
        return true;
    }
    bool fits = o->n_busy == 0 || o->outstanding + p->size_bytes <= o->opt.bytes_max;
    rui_transfer *t = fits ? idle(o) : NULL;
    if (t == NULL) {
        return false;
    }
    CURL *h = t->handle;
    *t = (rui_transfer){
        .of = o, .handle = h, .set = r, .piece = p, .object = b, .since_ns = now, .due_ns = now};
    p->issued_ns = now;
    r->next++;
    o->n_busy++;
    o->outstanding += p->size_bytes;
    if (o->outstanding > o->figures.outstanding_most) {
        o->figures.outstanding_most = o->outstanding;
    }
    run_transfer(t);
    return true;
}

static void issue(ru_objects *o)
{
    for (ru_ranges *r = o->queue, *after; r != NULL; r = after) {
        after = r->after; /* r leaves the queue when its last piece ends at once */
        while (r->next < r->n && (r->cancelled || group_busy(o, r->group) < r->depth)) {
            if (!issue_one(o, r)) {
                return;
            }
        }
    }
}

/* -- the thread ----------------------------------------------------------------------------------
 */

static void take_ended(ru_objects *o)
{
    CURLMsg *m;
    int left = 0;
    while ((m = o->curl.multi_info_read(o->multi, &left)) != NULL) {
        char *self = NULL;
        CURLcode rc = m->data.result;
        CURL *h = m->easy_handle;
        if (m->msg != CURLMSG_DONE) {
            continue;
        }
        (void)o->curl.easy_getinfo(h, CURLINFO_PRIVATE, &self);
        (void)o->curl.multi_remove_handle(o->multi, h);
        finish((rui_transfer *)(void *)self, rc);
    }
}

/* Transfers that waited long enough, and those nobody wants. Returns how long to wait, ms. */
static int run_due(ru_objects *o)
{
    int64_t now = ru_clock_now().ns, wait = (int64_t)POLL_MS * 1000000;
    for (uint32_t k = 0; k < o->opt.requests_max; k++) {
        rui_transfer *t = &o->transfer[k];
        if (t->state != RUI_IDLE && t->set->cancelled) {
            if (t->state == RUI_RUNS) {
                (void)o->curl.multi_remove_handle(o->multi, t->handle);
            }
            end_transfer(t, -1);
        } else if (t->state == RUI_WAITS && t->object->failed != RU_OK) {
            end_transfer(t, -1);
        } else if (t->state == RUI_WAITS && t->due_ns <= now) {
            run_transfer(t);
        } else if (t->state == RUI_WAITS && t->due_ns - now < wait) {
            wait = t->due_ns - now;
        }
    }
    return (int)(wait / 1000000) + 1;
}

void rui_objects_main(void *objects)
{
    ru_objects *o = objects;
    ru_mutex_lock(&o->lock);
    while (!o->stop) {
        take_ended(o);
        int wait_ms = run_due(o);
        issue(o);
        ru_mutex_unlock(&o->lock);
        int running =
            0; /* new requests begin in multi_perform; multi_poll does not wait for them */
        (void)o->curl.multi_poll(o->multi, NULL, 0, wait_ms, NULL);
        (void)o->curl.multi_perform(o->multi, &running);
        ru_mutex_lock(&o->lock);
    }
    ru_mutex_unlock(&o->lock);
}

/* -- users ---------------------------------------------------------------------------------------
 */

ru_status ru_ranges_open(ru_objects *o, uint32_t group, ru_ranges **out, ru_err *err)
{
    ru_ranges *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for requests to a store");
    }
    r->of = o;
    r->group = group;
    *out = r;
    return RU_OK;
}

void ru_ranges_close(ru_ranges *r)
{
    RU_CHECK(r == NULL || r->ended == r->n);
    free(r);
}

void ru_ranges_begin(ru_ranges *r, ru_read_piece *pieces, uint32_t n, uint32_t depth)
{
    ru_objects *o = r->of;
    RU_CHECK(r->ended == r->n && depth >= 1);
    ru_mutex_lock(&o->lock);
    r->pieces = pieces;
    r->next = r->ended = 0;
    r->n = n;
    r->depth = depth;
    ru_ranges **at = &o->queue;
    while (*at != NULL) {
        at = &(*at)->after;
    }
    r->after = NULL;
    *at = n > 0 ? r : NULL;
    ru_mutex_unlock(&o->lock);
    if (n > 0) {
        (void)o->curl.multi_wakeup(o->multi);
    }
}

void ru_ranges_end(ru_ranges *r)
{
    ru_mutex_lock(&r->of->lock);
    while (r->ended < r->n) {
        ru_cond_wait(&r->of->ended, &r->of->lock);
    }
    ru_mutex_unlock(&r->of->lock);
}

void ru_ranges_depth_set(ru_ranges *r, uint32_t depth)
{
    RU_CHECK(depth >= 1);
    ru_mutex_lock(&r->of->lock);
    r->depth = depth;
    ru_mutex_unlock(&r->of->lock);
    (void)r->of->curl.multi_wakeup(r->of->multi);
}

int64_t ru_ranges_bytes(const ru_ranges *r)
{
    ru_mutex_lock(&r->of->lock);
    int64_t bytes = r->bytes;
    ru_mutex_unlock(&r->of->lock);
    return bytes;
}

void ru_ranges_cancel(ru_ranges *r)
{
    ru_mutex_lock(&r->of->lock);
    r->cancelled = true;
    ru_mutex_unlock(&r->of->lock);
    (void)r->of->curl.multi_wakeup(r->of->multi);
}

#endif
