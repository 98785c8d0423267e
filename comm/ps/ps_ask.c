/* Requests of this process: what its executors read and change.
 *
 * A request stays until it is answered, whoever holds its shard meanwhile: what was refused, or
 * went to a process that does not hold the shard any more, is sent again. */
#include <string.h>

#include "comm/ps/ps_impl.h"

static void ask_page_new(ru_ps *ps)
{
    uint32_t page = ps->ask_top / RUI_PS_ASK_PAGE;
    RU_CHECK(page < RUI_PS_ASK_PAGES_MAX); /* executors and shards are bounded */
    rui_ps_ask *a = RU_NEW(ps->arena, rui_ps_ask, RUI_PS_ASK_PAGE);
    uint64_t *words = RU_NEW(ps->arena, uint64_t, (int64_t)RUI_PS_ASK_PAGE * ps->ticket_words);
    RU_CHECK(a != NULL && words != NULL);
    for (uint32_t i = 0; i < RUI_PS_ASK_PAGE; i++) {
        a[i].tickets = words + (int64_t)i * ps->ticket_words;
    }
    ps->ask_page[page] = a;
}

static uint32_t ask_new(ru_ps *ps)
{
    uint32_t i = ps->ask_free;
    if (i != RUI_PS_NONE) {
        ps->ask_free = rui_ps_ask_at(ps, i)->next_free;
    } else {
        if (ps->ask_top % RUI_PS_ASK_PAGE == 0) {
            ask_page_new(ps);
        }
        i = ps->ask_top++;
    }
    rui_ps_ask *a = rui_ps_ask_at(ps, i);
    memset(a->tickets, 0, ps->ticket_words * sizeof *a->tickets);
    *a = (rui_ps_ask){.used = true, .serial = ++ps->serial, .tickets = a->tickets};
    return i;
}

static void ask_free(ru_ps *ps, uint32_t i)
{
    rui_ps_ask *a = rui_ps_ask_at(ps, i);
    RU_CHECK(a->reading == 0);
    ru_bufs_put(&ps->bufs, a->body);
    *a = (rui_ps_ask){.tickets = a->tickets, .next_free = ps->ask_free};
    ps->ask_free = i;
}

static void ask_send(ru_ps *ps, uint32_t i, ru_time now, ru_effects *fx)
{
    rui_ps_ask *a = rui_ps_ask_at(ps, i);
    a->again = false;
    a->to = ps->holder[a->head.shard];
    a->head.generation = ps->generation;
    a->head.epoch = ps->epoch;
    a->head.ask = i;
    a->head.serial = a->serial;
    a->head.hops = a->what == RUI_PS_UPDATE ? ps->fence : 0;
    if (!ru_pull_send(ps->pull, a->to, a->what, &a->head, sizeof a->head, a->body, a->body_bytes,
                      false, i, now, fx)) {
        a->reading++;
    }
}

/* Answered. */
static void ask_over(ru_ps *ps, uint32_t i)
{
    rui_ps_ask *a = rui_ps_ask_at(ps, i);
    a->over = true;
    a->again = false;
    if (a->reading == 0) {
        ask_free(ps, i);
    }
}

void rui_ps_ask_sent(ru_ps *ps, uint64_t cookie, bool ok)
{
    uint32_t i = (uint32_t)cookie;
    RU_CHECK(i < ps->ask_top && rui_ps_ask_at(ps, i)->used && rui_ps_ask_at(ps, i)->reading > 0);
    rui_ps_ask *a = rui_ps_ask_at(ps, i);
    a->reading--;
    if (a->over && a->reading == 0) {
        ask_free(ps, i);
    } else if (!ok && !a->over) {
        a->again = true;
    }
}

void rui_ps_ask_again(ru_ps *ps, bool moved, ru_time now, ru_effects *fx)
{
    for (uint32_t i = 0; i < ps->ask_top; i++) {
        rui_ps_ask *a = rui_ps_ask_at(ps, i);
        if (!a->used || a->over) {
            continue;
        }
        bool waits = !a->kept || a->replays;
        if (waits && (a->again || (moved && !ru_node_is(a->to, ps->holder[a->head.shard])))) {
            ask_send(ps, i, now, fx);
        }
    }
}

void rui_ps_ask_reset(ru_ps *ps)
{
    for (uint32_t i = 0; i < ps->ask_top; i++) {
        if (rui_ps_ask_at(ps, i)->used && !rui_ps_ask_at(ps, i)->over) {
            ask_over(ps, i);
        }
    }
    memset(ps->ticket, 0, ps->opt.tickets * sizeof *ps->ticket);
    memset(ps->unacked, 0, ps->opt.flows * sizeof *ps->unacked);
    memset(ps->replays, 0, ps->opt.n_executors * sizeof *ps->replays);
    memset(ps->copy, 0, ps->place.n_rows * sizeof *ps->copy);
}

/* -- reading -------------------------------------------------------------------------------------
 */

static void run_room(ru_ps *ps, uint32_t n)
{
    if (n <= ps->run_cap) {
        return;
    }
    uint32_t cap = n < 256 ? 256 : 2 * n;
    rui_ps_wanted *run = ru_bufs_need(&ps->bufs, cap * (int64_t)sizeof *run);
    RU_CHECK(run != NULL);
    if (ps->run_cap > 0) {
        memcpy(run, ps->run, ps->run_cap * sizeof *run);
    }
    ru_bufs_put(&ps->bufs, ps->run);
    ps->run = run;
    ps->run_cap = cap;
}

/* One more run of scratch, the last of its shard. */
static void run_add(ru_ps *ps, uint32_t i, uint32_t row, uint32_t n, uint32_t shard, uint32_t table)
{
    rui_ps_wants *w = &ps->wants[shard];
    run_room(ps, i + 1);
    ps->run[i] = (rui_ps_wanted){{row, n}, shard, table, RUI_PS_NONE, 0};
    if (w->n_runs == 0) {
        w->first = i;
    } else {
        ps->run[w->last].next = i;
    }
    w->last = i;
    w->n_runs++;
}

static void wait_for(ru_ps *ps, uint32_t ticket, uint32_t i)
{
    uint64_t *w = &rui_ps_ask_at(ps, i)->tickets[ticket / 64], bit = UINT64_C(1) << ticket % 64;
    if ((*w & bit) == 0) {
        *w |= bit;
        ps->ticket[ticket].waits++;
    }
}

/* Rows of one block that must be asked for, as runs of scratch; rows under way are waited for. */
static uint32_t missing(ru_ps *ps, uint32_t ticket, uint32_t need, bool fresh, uint32_t row,
                        uint32_t n, uint32_t shard, uint32_t table, uint32_t n_runs)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t r = row + i, q = ps->copy[r].asked;
        /* Not one that waits for a later clock: that may wait for this executor. */
        if (q != 0 && rui_ps_ask_at(ps, q - 1)->head.need == need) {
            wait_for(ps, ticket, q - 1);
            continue;
        }
        if (!fresh && ps->copy[r].age > need) {
            continue;
        }
        rui_ps_run *last = n_runs > 0 ? &ps->run[n_runs - 1].run : NULL;
        if (i > 0 && last != NULL && last->row + last->n == r) {
            last->n++;
            continue;
        }
        run_add(ps, n_runs++, r, 1, shard, table);
    }
    return n_runs;
}

/* One request for the runs of one shard. */
static void ask_rows(ru_ps *ps, uint32_t ticket, uint32_t need, uint32_t shard, ru_time now,
                     ru_effects *fx)
{
    uint32_t q = ask_new(ps), n = ps->wants[shard].n_runs, k = 0;
    rui_ps_ask *a = rui_ps_ask_at(ps, q);
    a->what = RUI_PS_GET;
    a->head = (rui_ps_head){.shard = shard, .need = need, .n_runs = n};
    a->body_bytes = n * (int64_t)sizeof(rui_ps_run);
    rui_ps_run *run = a->body = ru_bufs_need(&ps->bufs, a->body_bytes);
    RU_CHECK(run != NULL);
    for (uint32_t i = ps->wants[shard].first; i != RUI_PS_NONE; i = ps->run[i].next) {
        run[k] = ps->run[i].run;
        for (uint32_t r = 0; r < run[k].n; r++) {
            ps->copy[run[k].row + r].asked = q + 1;
        }
        k++;
    }
    ps->wants[shard].n_runs = 0;
    wait_for(ps, ticket, q);
    ask_send(ps, q, now, fx);
}

bool ru_ps_fetch(ru_ps *ps, uint32_t ticket, uint32_t need, uint32_t step, bool fresh,
                 const ru_ps_rows *rows, uint32_t n, ru_time now, ru_effects *fx)
{
    const rui_ps_place *p = &ps->place;
    RU_CHECK(ticket < ps->opt.tickets && !ps->ticket[ticket].active);
    ps->ticket[ticket] = (rui_ps_ticket){.active = true};
    uint32_t n_runs = 0;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t t = rows[k].table, row = p->first[t] + rows[k].first, end = row + rows[k].n;
        RU_CHECK(t < p->n_tables && end <= p->first[t + 1]);
        while (row < end) {
            uint32_t b = rui_ps_block_of(p, t, row), shard = p->shard[b];
            uint32_t many = rui_ps_block_left(p, b, row, end - row);
            uint32_t age = shard < p->n_spread ? need : step;
            n_runs = missing(ps, ticket, age, fresh, row, many, shard, t, n_runs);
            row += many;
        }
    }
    for (uint32_t i = 0; i < n_runs; i++) {
        uint32_t shard = ps->run[i].shard;
        if (ps->wants[shard].n_runs > 0) {
            ask_rows(ps, ticket, shard < p->n_spread ? need : step, shard, now, fx);
        }
    }
    if (ps->ticket[ticket].waits == 0) {
        ps->ticket[ticket].active = false;
        return true;
    }
    return false;
}

/* Where a row's copy is. */
static float *cached(ru_ps *ps, uint32_t table, uint32_t row)
{
    const rui_ps_place *p = &ps->place;
    uint32_t b = rui_ps_block_of(p, table, row), width = p->table[table].width;
    if (ps->cache[b] == NULL) {
        uint32_t rows = p->block_row[b + 1] - p->block_row[b];
        ps->cache[b] = ru_bufs_need(&ps->bufs, (int64_t)rows * width * 4);
        RU_CHECK(ps->cache[b] != NULL);
    }
    uint32_t in = row - p->block_row[b];
    return ps->cache[b] + (int64_t)in * width;
}

void ru_ps_read(const ru_ps *ps, const ru_ps_rows *rows, float *into)
{
    const rui_ps_place *p = &ps->place;
    uint32_t t = rows->table, row = p->first[t] + rows->first, end = row + rows->n;
    uint32_t width = p->table[t].width;
    while (row < end) {
        uint32_t b = rui_ps_block_of(p, t, row), in = row - p->block_row[b];
        uint32_t n = rui_ps_block_left(p, b, row, end - row);
        const float *from = ps->cache[b];
        RU_CHECK(from != NULL);
        memcpy(into, from + (int64_t)in * width, (size_t)n * width * 4);
        into += (int64_t)n * width;
        row += n;
    }
}

static void take_rows(ru_ps *ps, uint32_t q, uint32_t closed, const float *from)
{
    const rui_ps_place *p = &ps->place;
    const rui_ps_ask *a = rui_ps_ask_at(ps, q);
    const rui_ps_run *run = a->body;
    for (uint32_t k = 0; k < a->head.n_runs; k++) {
        uint32_t t = rui_ps_table_of(p, run[k].row), width = p->table[t].width;
        float *to = cached(ps, t, run[k].row);
        for (uint32_t i = 0; i < run[k].n; i++, from += width) {
            rui_ps_copy *c = &ps->copy[run[k].row + i];
            if (c->age <= closed + 1) { /* answers may overtake each other */
                memcpy(to + (int64_t)i * width, from, (size_t)width * 4);
                c->age = closed + 1;
            }
            c->asked = c->asked == q + 1 ? 0 : c->asked;
        }
    }
}

static void wake(ru_ps *ps, uint32_t i, ru_time now, ru_effects *fx)
{
    uint64_t *set = rui_ps_ask_at(ps, i)->tickets;
    for (uint32_t w = 0; w < ps->ticket_words; w++) {
        while (set[w] != 0) {
            uint32_t ticket = w * 64 + (uint32_t)__builtin_ctzll(set[w]);
            set[w] &= set[w] - 1;
            rui_ps_ticket *t = &ps->ticket[ticket];
            if (t->active && --t->waits == 0) {
                t->active = false;
                ps->opt.user.fetched(ps->opt.user.self, ticket, now, fx);
            }
        }
    }
}

void ru_ps_forget(ru_ps *ps, uint32_t ticket)
{
    ps->ticket[ticket] = (rui_ps_ticket){0};
    for (uint32_t i = 0; i < ps->ask_top; i++) {
        rui_ps_ask_at(ps, i)->tickets[ticket / 64] &= ~(UINT64_C(1) << ticket % 64);
    }
}

/* -- changing ------------------------------------------------------------------------------------
 */

static void ask_update(ru_ps *ps, ru_ps_tag tag, uint32_t shard, const float *change, ru_time now,
                       ru_effects *fx)
{
    const rui_ps_place *p = &ps->place;
    uint32_t n = ps->wants[shard].n_runs, first = n > 0 ? ps->wants[shard].first : RUI_PS_NONE;
    uint32_t q = ask_new(ps), k = 0;
    rui_ps_ask *a = rui_ps_ask_at(ps, q);
    int64_t floats = 0;
    for (uint32_t i = first; i != RUI_PS_NONE; i = ps->run[i].next) {
        floats += (int64_t)ps->run[i].run.n * p->table[ps->run[i].table].width;
    }
    a->what = RUI_PS_UPDATE;
    a->flow = tag.flow;
    a->head = (rui_ps_head){.shard = shard,
                            .executor = tag.executor,
                            .step = tag.step,
                            .part = tag.part,
                            .part2 = tag.part2,
                            .need = ps->closed,
                            .n_runs = n};
    a->body_bytes = n * (int64_t)sizeof(rui_ps_run) + 4 * floats;
    rui_ps_run *run = a->body = ru_bufs_need(&ps->bufs, a->body_bytes);
    RU_CHECK(run != NULL);
    float *to = (float *)(void *)(run + n);
    for (uint32_t i = first; i != RUI_PS_NONE; i = ps->run[i].next) {
        int64_t many = (int64_t)ps->run[i].run.n * p->table[ps->run[i].table].width;
        run[k++] = ps->run[i].run;
        memcpy(to, change + ps->run[i].offset, (size_t)many * 4);
        to += many;
    }
    ps->wants[shard].n_runs = 0;
    ps->stats.write_bytes += a->body_bytes;
    ps->unacked[tag.flow]++;
    ask_send(ps, q, now, fx);
}

bool ru_ps_update(ru_ps *ps, ru_ps_tag tag, uint32_t block, const ru_ps_rows *rows, uint32_t n,
                  const float *change, ru_time now, ru_effects *fx)
{
    const rui_ps_place *p = &ps->place;
    uint32_t n_runs = 0;
    int64_t offset = 0;
    RU_CHECK(tag.executor < ps->opt.n_executors && tag.flow < ps->opt.flows &&
             ps->unacked[tag.flow] == 0);
    for (uint32_t k = 0; k < n; k++) {
        uint32_t t = rows[k].table, row = p->first[t] + rows[k].first, end = row + rows[k].n;
        RU_CHECK(t < p->n_tables && end <= p->first[t + 1]);
        while (row < end) {
            uint32_t b = rui_ps_block_of(p, t, row);
            uint32_t many = rui_ps_block_left(p, b, row, end - row);
            run_add(ps, n_runs, row, many, p->shard[b], t);
            ps->run[n_runs++].offset = offset;
            offset += (int64_t)many * p->table[t].width;
            row += many;
        }
    }
    if (p->n_shards > p->n_spread && ps->wants[p->n_spread + block].n_runs == 0) {
        ask_update(ps, tag, p->n_spread + block, change, now, fx);
    }
    for (uint32_t i = 0; i < n_runs; i++) {
        if (ps->wants[ps->run[i].shard].n_runs > 0) {
            ask_update(ps, tag, ps->run[i].shard, change, now, fx);
        }
    }
    return ps->unacked[tag.flow] == 0;
}

/* -- answers -------------------------------------------------------------------------------------
 */

/* Its shard keeps the update until the clock closes. If the shard is lost before that, the rebuilt
 * one needs it again; several rounds of a clock could arrive in another order. */
static bool keeps(const ru_ps *ps, const rui_ps_ask *a)
{
    return ps->opt.partial && ps->opt.ordered && ps->opt.rounds == 1 &&
           a->head.shard < ps->place.n_spread && a->head.step >= ps->closed &&
           ps->bufs.used_bytes < ps->bufs.max_bytes / 2;
}

void rui_ps_ask_closed(ru_ps *ps)
{
    for (uint32_t i = 0; i < ps->ask_top && ps->opt.partial; i++) {
        rui_ps_ask *a = rui_ps_ask_at(ps, i);
        if (a->used && a->kept && !a->over && a->head.step < ps->closed) {
            /* It waits still if this process did not know that the clock was closed. */
            ps->replays[a->head.executor] -= a->replays ? 1 : 0;
            ask_over(ps, i);
        }
    }
}

/* A lost executor's step is divided anew: parts of it are withdrawn. */
static void withdraw(ru_ps *ps, uint32_t i)
{
    rui_ps_ask *a = rui_ps_ask_at(ps, i);
    if (a->replays) {
        ps->replays[a->head.executor]--;
    } else if (!a->kept) {
        ps->unacked[a->flow]--;
    }
    ask_over(ps, i);
}

void ru_ps_lost(ru_ps *ps, uint32_t k, bool here)
{
    uint64_t least = (uint64_t)ps->fence << 32;
    uint32_t n = ps->place.n_shards;
    bool parts = k >= n && ps->opt.ordered && ps->opt.flows > ps->opt.n_executors;
    ps->moving[k].hops = least > ps->moving[k].hops ? least : ps->moving[k].hops;
    if (k >= n && !parts) {
        return;
    }
    if (parts) {
        ps->lost_at[k - n] = ps->fence;
    }
    for (uint32_t i = 0; i < ps->ask_top; i++) {
        rui_ps_ask *a = rui_ps_ask_at(ps, i);
        bool of =
            k < n ? a->head.shard == k : a->what == RUI_PS_UPDATE && a->head.executor == k - n;
        if (!a->used || a->over || !of) {
            continue;
        }
        if (parts && (a->head.part != 0 || !here)) {
            withdraw(ps, i);
            continue;
        }
        a->again = true;
        if (a->kept && !a->replays) {
            a->replays = true;
            ps->replays[a->head.executor]++;
        }
    }
}

bool ru_ps_replays(const ru_ps *ps, uint32_t executor)
{
    return ps->replays[executor] > 0;
}

bool ru_ps_replays_any(const ru_ps *ps)
{
    bool any = false;
    for (uint32_t e = 0; e < ps->opt.n_executors; e++) {
        any = any || ps->replays[e] > 0;
    }
    return any;
}

bool ru_ps_keeps(const ru_ps *ps, uint32_t executor)
{
    for (uint32_t i = 0; i < ps->ask_top && ps->opt.partial; i++) {
        const rui_ps_ask *a = rui_ps_ask_at(ps, i);
        if (a->used && !a->over && a->kept && a->head.executor == executor) {
            return true;
        }
    }
    return false;
}

bool ru_ps_updates(const ru_ps *ps, uint32_t executor, uint32_t shard)
{
    for (uint32_t i = 0; i < ps->ask_top; i++) {
        const rui_ps_ask *a = rui_ps_ask_at(ps, i);
        if (a->used && !a->over && !a->kept && a->what == RUI_PS_UPDATE && a->head.shard == shard &&
            a->head.executor == executor) {
            return true;
        }
    }
    return false;
}

static void acknowledged(ru_ps *ps, uint32_t i, ru_time now, ru_effects *fx)
{
    rui_ps_ask *a = rui_ps_ask_at(ps, i);
    uint32_t flow = a->flow;
    uint32_t *left = a->kept ? &ps->replays[a->head.executor] : &ps->unacked[flow];
    if (a->kept && !a->replays) {
        return; /* a second answer */
    }
    a->replays = a->again = false;
    if (a->kept || keeps(ps, a)) {
        a->kept = true;
    } else {
        ask_over(ps, i);
    }
    RU_CHECK(*left > 0);
    if (--*left == 0 && ps->unacked[flow] == 0) {
        ps->opt.user.flushed(ps->opt.user.self, flow, now, fx);
    }
}

void rui_ps_answer(ru_ps *ps, uint32_t what, const rui_ps_head *h, const void *body,
                   int64_t body_bytes, ru_time now, ru_effects *fx)
{
    uint32_t i = h->ask;
    if (h->generation != ps->generation || h->epoch < ps->fence || i >= ps->ask_top ||
        !rui_ps_ask_at(ps, i)->used || rui_ps_ask_at(ps, i)->over ||
        rui_ps_ask_at(ps, i)->serial != h->serial) {
        return; /* answered before, or not asked any more */
    }
    rui_ps_ask *a = rui_ps_ask_at(ps, i);
    if (what == RUI_PS_NACK) {
        a->again = true;
        return;
    }
    if (what == RUI_PS_ROWS && a->what == RUI_PS_GET) {
        int64_t floats;
        if (!rui_ps_runs_ok(ps, a->head.shard, a->body, a->body_bytes, a->head.n_runs, &floats) ||
            body_bytes != 4 * floats || h->need < a->head.need) {
            return;
        }
        take_rows(ps, i, h->need, body);
        ps->stats.read_bytes += body_bytes;
        wake(ps, i, now, fx);
        ask_over(ps, i);
    } else if (what == RUI_PS_ACK && a->what == RUI_PS_UPDATE) {
        acknowledged(ps, i, now, fx);
    }
}
