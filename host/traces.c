/* Windows of the traces of all workers, and traces of other hosts in the run's folder.
 *
 *   asker --TRACE_ASK(steps)-----------------> leader --WINDOW(id, first, end)--> all members
 *   asker <--TRACE_TAKEN(folder)-------------- leader     each saves [begin of first, begin of end)
 *   asker <--TRACE_DONE(saved of members)----- leader <--TRACE_SAVED(id)--------- each
 *
 * Every worker records all the time, so a window is a choice of what to keep, and every worker
 * makes it by itself: it knows when each step began here. A leader that took over knows the window
 * as well and tells those who joined. A flight recording is a window too: the seconds before a
 * step, after a step that took long or the loss of a worker.
 *
 * Workers of other hosts than the leader's send what they write as it grows, and saved windows, in
 * parts that the leader's writer thread appends to files of the same names; where such a file is
 * there already the disk is a common one, and the leader says HAVE. A leader that takes over gets
 * all from the beginning.
 *
 * Thread: loop only. */
#include "host/traces.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/str.h"
#include "base/wire.h"
#include "comm/member/among.h"
#include "env/file/file.h"
#include "host/shell_impl.h"

enum {
    PART_BYTES = 32 << 10,
    PARTS_MAX = 8, /* at one time: 5 MB/s */
    NAME_MAX_BYTES = 96,
    FLIGHTS_MAX = 8, /* of a run */
    WARM_STEPS = 20,
};
static const int64_t LOOK_NS = 50000000, FLIGHT_NS = 5000000000, SLOW_EVERY_NS = 60000000000;
static const int64_t DONE_NS = 5000000000; /* the asker waits no longer for members */

static void send(ru_tracing *t, ru_node_id to, uint32_t what, const void *data, int64_t n,
                 ru_time now)
{
    (void)!ru_chan_message(t->chan, to, what, data, n, now);
}

/* The machine of a member; NULL: it is none. */
static const char *host_of(const ru_tracing *t, ru_node_id node)
{
    const ru_view *v = ru_member_view(t->member);
    const ru_member_info *m = ru_member_among(v->at, v->n, node);
    return m != NULL ? m->host : NULL;
}

/* Does the leader have this process' disk? Where there is none: yes. */
static bool at_leader(const ru_tracing *t)
{
    const char *mine = host_of(t, t->self);
    const char *theirs = host_of(t, ru_member_view(t->member)->leader);
    return mine == NULL || theirs == NULL || strcmp(mine, theirs) == 0;
}

/* -- windows -----------------------------------------------------------------------------------
 */

static void window_name(const rui_window *x, char into[64])
{
    if (x->back_ns > 0) {
        (void)snprintf(into, 64, "flight-%lld", (long long)x->end);
    } else {
        (void)snprintf(into, 64, "steps-%lld-%lld", (long long)x->first, (long long)x->end);
    }
}

static void window_tell(ru_tracing *t, ru_time now)
{
    const ru_view *v = ru_member_view(t->member);
    const rui_window *x = &t->window;
    uint8_t buf[64];
    ru_wire_out o = ru_wire_out_into(buf, sizeof buf);
    ru_wire_put_u64(&o, x->id);
    ru_wire_put_u64(&o, (uint64_t)x->first);
    ru_wire_put_u64(&o, (uint64_t)x->end);
    ru_wire_put_u64(&o, (uint64_t)x->back_ns);
    for (uint32_t i = 0; i < v->n; i++) {
        if (!ru_node_is(v->at[i].node, t->self)) {
            send(t, v->at[i].node, RUI_MSG_TRACE_WINDOW, buf, ru_wire_size(&o), now);
        }
    }
    t->told_epoch = v->epoch;
}

static void look(void *self, uint32_t what, ru_time now);

static void look_soon(ru_tracing *t, ru_time now)
{
    if (t->recorder != NULL && !t->looks) {
        t->looks = true;
        ru_loop_timer(t->loop, look, t, 0, ru_time_after(now, LOOK_NS));
    }
}

/* When step k began here; of steps before this worker came: when its first one began. */
static int64_t begun_at(const ru_tracing *t, int64_t k)
{
    int64_t least = INT64_MAX;
    for (uint32_t i = 0; i < RUI_BEGUN_MAX; i++) {
        bool later = t->begun[i].ns != 0 && t->begun[i].step >= k;
        least = later && t->begun[i].ns < least ? t->begun[i].ns : least;
    }
    return least == INT64_MAX ? 0 : least;
}

static void window_close(ru_tracing *t, ru_time now)
{
    rui_window *x = &t->window;
    char name[64];
    window_name(x, name);
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    const char *trace = ru_path_join(&scratch, t->out, "trace");
    const char *dir = trace != NULL ? ru_path_join(&scratch, trace, name) : NULL;
    int64_t from = x->back_ns > 0 ? now.ns - x->back_ns : x->from_ns;
    ru_recorder_stats stats;
    ru_recorder_stats_get(t->recorder, &stats);
    x->waits = false;
    x->saves = stats.saves;
    x->failed = stats.saves_failed;
    t->saved_at = now; /* whoever asked waits from here on */
    x->saving = dir != NULL &&
                ru_recorder_save(t->recorder, dir, from, now.ns - (x->back_ns == 0)) == RU_OK;
    ru_arena_fini(&scratch);
    look_soon(t, now);
}

static void window_open(ru_tracing *t, const rui_window *x, ru_time now)
{
    if (t->window.waits || t->window.saving || x->id == t->window.id || t->recorder == NULL) {
        return; /* one at a time: a person asks again */
    }
    t->window = *x;
    t->window.waits = true;
    t->window.from_ns = x->back_ns > 0 ? 0 : begun_at(t, x->first);
    if (t->step >= x->end) {
        window_close(t, now); /* told late */
    }
}

static void answer_asker(ru_tracing *t, ru_time now)
{
    if (t->asker.v == 0) {
        return;
    }
    uint8_t buf[8];
    ru_wire_out o = ru_wire_out_into(buf, sizeof buf);
    ru_wire_put_u32(&o, t->saved);
    ru_wire_put_u32(&o, ru_member_view(t->member)->n);
    send(t, t->asker, RUI_MSG_TRACE_DONE, buf, ru_wire_size(&o), now);
    t->asker = (ru_node_id){0};
}

/* The leader: a window of steps to come (back_ns 0), or what was before the next one begins. */
static bool window_begin(ru_tracing *t, int64_t first, int64_t end, int64_t back_ns, ru_time now)
{
    if (t->window.waits || t->window.saving || t->recorder == NULL) {
        return false;
    }
    const uint64_t words[] = {t->self.v, (uint64_t)now.ns, (uint64_t)first, (uint64_t)end};
    const rui_window x = {.id = ru_hash_bytes(words, sizeof words, 1) | 1,
                          .first = first,
                          .end = end,
                          .back_ns = back_ns};
    answer_asker(t, now); /* of the window before: some of its members may be gone */
    t->saved = 0;
    window_open(t, &x, now);
    window_tell(t, now);
    return true;
}

static void flight(ru_tracing *t, const char *why, int64_t every_ns, ru_time now)
{
    bool soon = t->flight_at.ns != 0 && ru_time_since(now, t->flight_at) < every_ns;
    if (!ru_member_leads(t->member) || *t->over || t->flights == FLIGHTS_MAX || soon ||
        !window_begin(t, t->step + 1, t->step + 1, FLIGHT_NS, now)) {
        return;
    }
    t->flights++;
    t->flight_at = now;
    ru_log(RU_LOG_DEBUG, "train", "flight",
           "%s: the last seconds of all workers go to %s/trace/flight-%lld", why, t->out,
           (long long)t->step + 1);
}

void ru_tracing_lost(ru_tracing *t, ru_time now)
{
    flight(t, "a worker was lost", 0, now);
}

void ru_tracing_step(ru_tracing *t, int64_t step, ru_time now)
{
    bool again =
        t->begun[step % RUI_BEGUN_MAX].step == step && t->begun[step % RUI_BEGUN_MAX].ns != 0;
    if (!again) {
        t->begun[step % RUI_BEGUN_MAX] = (rui_step_begun){step, now.ns};
    }
    t->step = step;
    rui_window *x = &t->window;
    if (x->waits && x->back_ns == 0 && x->from_ns == 0 && step >= x->first) {
        x->from_ns = now.ns;
    }
    if (x->waits && step >= x->end) {
        window_close(t, now);
    } else if (x->waits && ru_member_leads(t->member) &&
               ru_member_view(t->member)->epoch != t->told_epoch) {
        window_tell(t, now); /* to those who joined */
    }
    if (!at_leader(t)) {
        look_soon(t, now);
    }
}

/* The leader hears that step is done. A step is slow beyond mean and deviation, with a weight
 * of 0.05 for the newest; also beyond twice the mean, since small steps vary by more than their
 * deviation says. */
void ru_tracing_updated(ru_tracing *t, int64_t step, ru_time now)
{
    const double weight = 0.05;
    const rui_step_begun *b = &t->begun[step % RUI_BEGUN_MAX];
    if (b->step != step || b->ns == 0) {
        return;
    }
    double d = (double)(now.ns - b->ns), off = d - t->mean_ns;
    bool slow =
        t->timed >= WARM_STEPS && d > t->mean_ns + 3 * sqrt(t->var_ns2) && d > 2 * t->mean_ns;
    if (slow) {
        flight(t, "a step took long", SLOW_EVERY_NS, now);
    }
    double share = t->timed < WARM_STEPS ? 1.0 / (double)(t->timed + 1) : weight;
    t->mean_ns += share * off;
    t->var_ns2 = (1 - share) * (t->var_ns2 + share * off * off);
    t->timed++;
}

/* -- what others say ---------------------------------------------------------------------------
 */

static void asked(ru_tracing *t, ru_node_id from, ru_wire_in *in, ru_time now)
{
    int64_t steps = ru_wire_u32(in);
    const ru_view *v = ru_member_view(t->member);
    if (in->bad || steps < 1) {
        return;
    }
    const ru_member_info *leader = ru_member_among(v->at, v->n, v->leader);
    if (!ru_member_leads(t->member) && leader != NULL) {
        send(t, from, RUI_MSG_TRACE_AT, leader->address, (int64_t)strlen(leader->address), now);
        return;
    }
    int64_t first = t->step + 2; /* all hear of it before it begins */
    const char *text = "";
    char name[64], path[512] = "";
    if (ru_member_leads(t->member) && !*t->over && window_begin(t, first, first + steps, 0, now)) {
        t->asker = from;
        window_name(&t->window, name);
        (void)snprintf(path, sizeof path, "%s/trace/%s", t->out, name);
        text = path;
    }
    send(t, from, RUI_MSG_TRACE_TAKEN, text, (int64_t)strlen(text), now);
}

static void told(ru_tracing *t, ru_wire_in *in, ru_time now)
{
    rui_window x = {.id = ru_wire_u64(in)};
    x.first = (int64_t)ru_wire_u64(in);
    x.end = (int64_t)ru_wire_u64(in);
    x.back_ns = (int64_t)ru_wire_u64(in);
    if (!in->bad && x.first >= 0 && x.end >= x.first && x.back_ns >= 0 && x.back_ns <= FLIGHT_NS) {
        window_open(t, &x, now);
    }
}

/* Only names that workers give traces, so that none leads out of the folder. */
static bool name_ok(const char *s)
{
    const char *slash = strchr(s, '/');
    bool window = strncmp(s, "steps-", 6) == 0 || strncmp(s, "flight-", 7) == 0;
    const char *file = slash != NULL ? slash + 1 : s;
    size_t n = strlen(file);
    bool plain = strspn(file, "rank0123456789+-.tce") == n && strchr(file, '/') == NULL;
    bool folder =
        slash == NULL || (window && strspn(s, "stepflight-0123456789") == (size_t)(slash - s));
    return folder && plain && strncmp(file, "rank", 4) == 0 && n > 10 &&
           strcmp(file + n - 6, ".trace") == 0 && strstr(file, "..") == NULL;
}

/* Is this file one that was begun here from parts? Fills itself by names. */
static bool begun_here(ru_tracing *t, const char *name, bool add)
{
    uint64_t h = ru_hash_bytes(name, (int64_t)strlen(name), 0) | 1;
    uint32_t at = (uint32_t)h % RUI_TRACES_MAX;
    for (uint32_t k = 0; k < RUI_TRACES_MAX && t->files[at] != 0; k++) {
        if (t->files[at] == h) {
            return true;
        }
        at = (at + 1) % RUI_TRACES_MAX;
    }
    if (add && t->files[at] == 0) {
        t->files[at] = h;
    }
    return false;
}

static void part(ru_tracing *t, ru_node_id from, ru_wire_in *in, ru_time now)
{
    char name[NAME_MAX_BYTES + 1] = "";
    uint32_t n = ru_wire_u16(in);
    int64_t left = ru_wire_left(in);
    if (in->bad || n == 0 || n > NAME_MAX_BYTES || left <= n + 8 || t->recorder == NULL) {
        return;
    }
    memcpy(name, in->at, n);
    in->at += n;
    int64_t offset = (int64_t)ru_wire_u64(in);
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    const char *dir = ru_path_join(&scratch, t->out, "trace");
    const char *path = dir != NULL && name_ok(name) ? ru_path_join(&scratch, dir, name) : NULL;
    bool known = path != NULL && begun_here(t, name, false);
    if (path != NULL && !known && (offset != 0 || ru_path_exists(path))) {
        send(t, from, RUI_MSG_TRACE_HAVE, name, (int64_t)n, now);
    } else if (path != NULL && offset >= 0) {
        (void)begun_here(t, name, true);
        ru_status st = ru_recorder_append(t->recorder, path, offset, in->at, ru_wire_left(in));
        if (st != RU_OK && !t->lost) {
            t->lost = true;
            ru_log(RU_LOG_WARN, "train", "trace",
                   "the copy of %s ends early: the disk is slower than the hosts that send traces",
                   name);
        }
    }
    ru_arena_fini(&scratch);
}

void ru_tracing_hear(ru_tracing *t, ru_node_id from, uint32_t what, const void *data,
                     int64_t size_bytes, ru_time now)
{
    ru_wire_in in = ru_wire_in_from(data, size_bytes);
    if (what == RUI_MSG_TRACE_ASK) {
        asked(t, from, &in, now);
    } else if (what == RUI_MSG_TRACE_WINDOW) {
        told(t, &in, now);
    } else if (what == RUI_MSG_TRACE_SAVED) {
        t->saved += ru_wire_u64(&in) == t->window.id && !in.bad;
    } else if (what == RUI_MSG_TRACE_PART) {
        part(t, from, &in, now);
    } else if (what == RUI_MSG_TRACE_HAVE) {
        char name[NAME_MAX_BYTES + 1] = "";
        size_t n = (size_t)(size_bytes < NAME_MAX_BYTES ? size_bytes : NAME_MAX_BYTES);
        if (n > 0) {
            memcpy(name, data, n);
        }
        t->ship.have = t->ship.have || strcmp(name, t->ship.name) == 0;
    } else if (what == RUI_MSG_TRACE_END) {
        t->ended++;
    }
}

/* -- shipping ----------------------------------------------------------------------------------
 */

/* Send what the file has beyond t->ship.at; false: no room in the channel now. */
static bool ship_file(ru_tracing *t, const char *path, const char *name, int64_t *at, ru_time now)
{
    ru_in_file in;
    if (ru_in_open(path, &in, NULL) != RU_OK) {
        return true;
    }
    bool room = true;
    uint8_t buf[PART_BYTES + NAME_MAX_BYTES + 16];
    for (uint32_t k = 0; room && k < PARTS_MAX && *at < in.size_bytes; k++) {
        int64_t n = in.size_bytes - *at < PART_BYTES ? in.size_bytes - *at : PART_BYTES;
        ru_wire_out o = ru_wire_out_into(buf, sizeof buf);
        uint32_t length = (uint32_t)strlen(name);
        ru_wire_put_u16(&o, (uint16_t)length);
        ru_wire_put_bytes(&o, name, length);
        ru_wire_put_u64(&o, (uint64_t)*at);
        uint8_t *place = buf + ru_wire_size(&o);
        if (ru_in_read(&in, path, *at, place, n, NULL) != RU_OK) {
            break;
        }
        ru_status st = ru_chan_message(t->chan, ru_member_view(t->member)->leader,
                                       RUI_MSG_TRACE_PART, buf, ru_wire_size(&o) + n, now);
        room = st == RU_OK;
        *at += room ? n : 0;
    }
    room = room && *at >= in.size_bytes;
    ru_in_close(&in);
    return room;
}

static const char *name_in(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* The segments as they grow. true: all of it is on its way. */
static bool ship(ru_tracing *t, ru_time now)
{
    ru_node_id leader = ru_member_view(t->member)->leader;
    if (!ru_node_is(leader, t->ship.to)) {
        t->ship = (rui_ship){.to = leader};
    }
    if (t->ship.have || at_leader(t) || t->recorder == NULL) {
        return true;
    }
    char path[4200];
    ru_recorder_stats stats;
    ru_recorder_stats_get(t->recorder, &stats);
    while (t->ship.segment < stats.segment &&
           !ru_recorder_segment(t->recorder, t->ship.segment, path, sizeof path)) {
        t->ship.segment++; /* deleted before it was sent */
        t->ship.at = 0;
    }
    if (!ru_recorder_segment(t->recorder, t->ship.segment, path, sizeof path)) {
        return true;
    }
    (void)snprintf(t->ship.name, sizeof t->ship.name, "%.63s", name_in(path));
    bool all = ship_file(t, path, t->ship.name, &t->ship.at, now);
    if (all && t->ship.segment < stats.segment) {
        t->ship.segment++;
        t->ship.at = 0;
        return false;
    }
    return all;
}

/* A saved window of another host. true: nothing of it is left to send. */
static bool ship_window(ru_tracing *t, ru_time now)
{
    if (!t->window.ships || at_leader(t)) {
        return true;
    }
    char dir[64], path[4200], name[NAME_MAX_BYTES + 1];
    window_name(&t->window, dir);
    int n = snprintf(name, sizeof name, "%s/rank%u.trace", dir, t->rank);
    int m = snprintf(path, sizeof path, "%s/trace/%s", t->out, name);
    if (n < 0 || n >= (int)sizeof name || m < 0 || m >= (int)sizeof path) {
        return true;
    }
    bool all = ship_file(t, path, name, &t->window.ship_at, now);
    t->window.ships = !all;
    return all;
}

static void window_look(ru_tracing *t, ru_time now)
{
    ru_recorder_stats stats;
    ru_recorder_stats_get(t->recorder, &stats);
    if (!t->window.saving || stats.saves == t->window.saves) {
        return;
    }
    t->window.saving = false;
    t->saved_at = now;
    if (stats.saves_failed != t->window.failed) {
        return; /* the recorder said why; who asked hears of one trace less */
    }
    t->window.ships = true;
    t->saved++;
    if (!ru_member_leads(t->member)) {
        uint8_t id[8];
        ru_wire_out o = ru_wire_out_into(id, sizeof id);
        ru_wire_put_u64(&o, t->window.id);
        send(t, ru_member_view(t->member)->leader, RUI_MSG_TRACE_SAVED, id, sizeof id, now);
    }
}

static void look(void *self, uint32_t what, ru_time now)
{
    (void)what;
    ru_tracing *t = self;
    t->looks = false;
    window_look(t, now);
    bool shipped = ship_window(t, now) && ship(t, now);
    bool late = t->saved_at.ns != 0 && ru_time_since(now, t->saved_at) > DONE_NS;
    if (t->asker.v != 0 && !t->window.waits && !t->window.saving &&
        (t->saved >= ru_member_view(t->member)->n || late)) {
        answer_asker(t, now);
    }
    if (*t->over && shipped && !t->window.saving && !t->said_end && !at_leader(t)) {
        t->said_end = true;
        send(t, ru_member_view(t->member)->leader, RUI_MSG_TRACE_END, "", 0, now);
    }
    if (t->window.saving || t->asker.v != 0 || !shipped || (!at_leader(t) && !t->said_end)) {
        look_soon(t, now);
    }
}

/* -- the end ----------------------------------------------------------------------------------- */

/* The job is over: what was recorded until now goes to the leader. */
void ru_tracing_end(ru_tracing *t, ru_time now)
{
    if (t->recorder == NULL) {
        return;
    }
    if (t->window.waits) {
        window_close(t, now);
    }
    if (!at_leader(t)) {
        ru_recorder_sync(t->recorder);
        look(t, 0, now);
    }
}

/* Members of other hosts that have not yet sent all. */
bool ru_tracing_waits(ru_tracing *t)
{
    const ru_view *v = ru_member_view(t->member);
    const char *mine = host_of(t, t->self);
    uint32_t away = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        away += mine == NULL || strcmp(v->at[i].host, mine) != 0;
    }
    bool leader = ru_member_leads(t->member), sends = !leader && !at_leader(t) && !t->said_end;
    return t->recorder != NULL && (t->window.saving || sends || (leader && t->ended < away));
}
