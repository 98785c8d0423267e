/* Lists of hosts: ours ("a:2,b"), Slurm's compressed one, Slurm's counts. */
#include <string.h>

#include "base/map.h"
#include "base/vec.h"
#include "launch/hosts.h"

RU_VEC(rui_host_list, ru_host)

static bool name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_';
}

static bool name_ok(const char *s, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (!name_char(s[i])) {
            return false;
        }
    }
    return n > 0 && n < RU_HOSTS_NAME_MAX && s[0] != '-';
}

bool ru_host_same(ru_str a, ru_str b)
{
    ru_str shorter = a.n < b.n ? a : b, longer = a.n < b.n ? b : a;
    bool number = true; /* 10.0.0.1 has no first label that says anything */
    for (int64_t i = 0; i < longer.n; i++) {
        number = number && (longer.p[i] == '.' || (longer.p[i] >= '0' && longer.p[i] <= '9'));
    }
    return shorter.n > 0 && memcmp(shorter.p, longer.p, (size_t)shorter.n) == 0 &&
           (shorter.n == longer.n || (longer.p[shorter.n] == '.' && !number));
}

typedef struct builder {
    ru_arena *arena;
    rui_host_list list;
    ru_map seen; /* name -> index + 1 */
    uint64_t workers;
} builder;

static ru_status add(builder *b, const char *name, int64_t n, uint32_t workers, ru_err *err)
{
    if (!name_ok(name, n)) {
        return RU_FAIL(
            err, RU_E_CONFIG,
            "'%.*s' is not a host name; expected at most %d letters, digits, '.', '-' and '_'",
            (int)(n > 80 ? 80 : n), name, RU_HOSTS_NAME_MAX - 1);
    }
    b->workers += workers;
    if (b->workers > RU_HOSTS_WORKERS_MAX) {
        return RU_FAIL(err, RU_E_LIMIT, "more than %d workers", RU_HOSTS_WORKERS_MAX);
    }
    bool fresh = false;
    uint64_t *at = ru_map_put(&b->seen, ru_str_n(name, n), &fresh);
    if (at != NULL && !fresh) {
        b->list.at[*at].workers += workers;
        return RU_OK;
    }
    if (at != NULL && b->list.n == RU_HOSTS_MAX) {
        return RU_FAIL(err, RU_E_LIMIT, "more than %d hosts", RU_HOSTS_MAX);
    }
    ru_host *h = at == NULL ? NULL : rui_host_list_push(&b->list, b->arena);
    char *copy = h == NULL ? NULL : ru_arena_strn(b->arena, name, n);
    if (copy == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a list of hosts");
    }
    *at = b->list.n - 1;
    *h = (ru_host){.name = copy, .workers = workers};
    return RU_OK;
}

static void finish(builder *b, ru_hosts *out)
{
    *out = (ru_hosts){.at = b->list.at, .n = b->list.n, .workers = (uint32_t)b->workers};
}

static ru_status count_from(ru_str s, uint32_t *out)
{
    int64_t v;
    bool digits = s.n > 0 && s.n <= 5;
    for (int64_t i = 0; i < s.n && digits; i++) {
        digits = s.p[i] >= '0' && s.p[i] <= '9';
    }
    if (!digits || !ru_str_i64(s, &v) || v < 1 || v > RU_HOSTS_WORKERS_MAX) {
        return RU_E_DATA;
    }
    *out = (uint32_t)v;
    return RU_OK;
}

/* What follows a second colon: a tier, which is cut off. */
static bool tier_from(ru_str *count, bool *transient)
{
    int64_t colon = ru_str_find(*count, ":");
    if (colon < 0) {
        return true;
    }
    ru_str tier = ru_str_from(*count, colon + 1);
    *count = ru_str_n(count->p, colon);
    *transient = ru_str_eq_c(tier, "transient");
    return *transient || ru_str_eq_c(tier, "reliable");
}

ru_status ru_hosts_from_flag(ru_str text, ru_arena *arena, ru_hosts *out, ru_err *err)
{
    builder b = {.arena = arena};
    ru_map_init(&b.seen, arena, 0);
    ru_str rest = text, item;
    bool any = false;
    while (ru_str_next(&rest, ',', &item)) {
        any = true;
        ru_str name = item, count = {0};
        int64_t colon = ru_str_find(item, ":");
        uint32_t workers = 1;
        if (colon >= 0) {
            name = ru_str_n(item.p, colon);
            count = ru_str_from(item, colon + 1);
        }
        bool transient = false;
        if ((colon >= 0 && !tier_from(&count, &transient)) ||
            (colon >= 0 && count_from(count, &workers) != RU_OK)) {
            return RU_FAIL(err, RU_E_USAGE,
                           "--hosts: '%.*s': expected host:workers or host:workers:transient with "
                           "1 to %d workers",
                           (int)(item.n > 80 ? 80 : item.n), item.p, RU_HOSTS_WORKERS_MAX);
        }
        ru_status st = add(&b, name.p, name.n, workers, err);
        if (st != RU_OK) {
            return ru_err_wrap(err, st == RU_E_CONFIG ? RU_E_USAGE : st, "--hosts");
        }
        ru_host *h = &b.list.at[*ru_map_get(&b.seen, name)];
        if (h->workers != workers && h->transient != transient) {
            return RU_FAIL(err, RU_E_USAGE, "--hosts: %s is given twice, once as transient",
                           h->name);
        }
        h->transient = transient;
    }
    if (!any || text.p[text.n - 1] == ',') {
        return RU_FAIL(err, RU_E_USAGE, "--hosts: expected host:workers,host:workers,...");
    }
    finish(&b, out);
    return RU_OK;
}

/* -- Slurm ----------------------------------------------------------------------------------------
 */

enum { SEGMENTS_MAX = 4, DIGITS_MAX = 9 };

/* One item "r[1-2]n[01-03]-x": texts and lists of ranges in turn. */
typedef struct item {
    ru_str text[SEGMENTS_MAX + 1];
    ru_str ranges[SEGMENTS_MAX];
    uint32_t n; /* brackets */
} item;

static bool number(ru_str s, uint32_t *v)
{
    uint32_t x = 0;
    for (int64_t i = 0; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9') {
            return false;
        }
        x = x * 10 + (uint32_t)(s.p[i] - '0');
    }
    *v = x;
    return s.n > 0 && s.n <= DIGITS_MAX;
}

/* The next range of a list: low, high, digits to pad to. */
static bool range_next(ru_str *rest, uint32_t *low, uint32_t *high, uint32_t *width)
{
    ru_str r;
    if (!ru_str_next(rest, ',', &r)) {
        return false;
    }
    int64_t dash = ru_str_find(r, "-");
    ru_str a = dash < 0 ? r : ru_str_n(r.p, dash), b = dash < 0 ? r : ru_str_from(r, dash + 1);
    *width = (uint32_t)a.n;
    return number(a, low) && number(b, high) && *low <= *high && *high - *low < RU_HOSTS_MAX;
}

static bool ranges_ok(ru_str list)
{
    ru_str rest = list;
    uint32_t low, high, width;
    if (list.n == 0 || list.p[list.n - 1] == ',') {
        return false;
    }
    while (rest.n > 0) {
        if (!range_next(&rest, &low, &high, &width)) {
            return false;
        }
    }
    return true;
}

/* Take one item off the list; false: malformed. */
static bool item_next(ru_str *rest, item *it)
{
    int64_t i = 0, from = 0;
    *it = (item){0};
    for (; i < rest->n && rest->p[i] != ','; i++) {
        if (rest->p[i] == ']') {
            return false;
        }
        if (rest->p[i] != '[') {
            continue;
        }
        int64_t close = i + 1;
        while (close < rest->n && rest->p[close] != ']') {
            close++;
        }
        if (close == rest->n || it->n == SEGMENTS_MAX) {
            return false;
        }
        it->text[it->n] = ru_str_n(rest->p + from, i - from);
        it->ranges[it->n] = ru_str_n(rest->p + i + 1, close - i - 1);
        if (!ranges_ok(it->ranges[it->n])) {
            return false;
        }
        it->n++;
        from = close + 1;
        i = close;
    }
    it->text[it->n] = ru_str_n(rest->p + from, i - from);
    bool more = i < rest->n;
    *rest = ru_str_from(*rest, i + more);
    return !more || rest->n > 0;
}

/* Where the odometer of one bracket stands. */
typedef struct wheel {
    ru_str rest;
    uint32_t at, high, width;
} wheel;

static void wheel_reset(wheel *w, ru_str ranges)
{
    w->rest = ranges;
    RU_CHECK(range_next(&w->rest, &w->at, &w->high, &w->width));
}

static bool wheel_turn(wheel *w)
{
    if (w->at < w->high) {
        w->at++;
        return true;
    }
    return range_next(&w->rest, &w->at, &w->high, &w->width);
}

static ru_status expand(builder *b, const item *it, ru_err *err)
{
    wheel w[SEGMENTS_MAX];
    for (uint32_t k = 0; k < it->n; k++) {
        wheel_reset(&w[k], it->ranges[k]);
    }
    for (;;) {
        char name[RU_HOSTS_NAME_MAX + 1];
        ru_text t = ru_text_into(name, sizeof name);
        for (uint32_t k = 0; k <= it->n; k++) {
            ru_text_put_n(&t, it->text[k].p, it->text[k].n);
            if (k < it->n) {
                ru_text_putf(&t, "%0*u", (int)w[k].width, w[k].at);
            }
        }
        if (b->list.n == RU_HOSTS_MAX) {
            return RU_FAIL(err, RU_E_LIMIT, "more than %d hosts", RU_HOSTS_MAX);
        }
        if (t.cut) {
            return RU_FAIL(err, RU_E_CONFIG, "a host name has more than %d characters",
                           RU_HOSTS_NAME_MAX - 1);
        }
        uint32_t before = b->list.n;
        RU_TRY(add(b, t.p, t.n, 1, err));
        if (b->list.n == before) {
            return RU_FAIL(err, RU_E_CONFIG, "host '%s' appears twice in the list of hosts", t.p);
        }
        /* As Slurm does, whose counts of tasks follow it: the last bracket turns first, then the
         * first, the second, ... */
        uint32_t turns = 0;
        for (; turns < it->n; turns++) {
            uint32_t k = turns == 0 ? it->n - 1 : turns - 1;
            if (wheel_turn(&w[k])) {
                break;
            }
            wheel_reset(&w[k], it->ranges[k]);
        }
        if (turns == it->n) {
            return RU_OK;
        }
    }
}

ru_status ru_hosts_from_slurm(ru_str text, ru_arena *arena, ru_hosts *out, ru_err *err)
{
    builder b = {.arena = arena};
    ru_map_init(&b.seen, arena, 0);
    ru_str rest = text;
    if (text.n == 0) {
        return RU_FAIL(err, RU_E_CONFIG, "the list of hosts is empty");
    }
    while (rest.n > 0) {
        item it;
        int64_t at = rest.p - text.p;
        if (!item_next(&rest, &it)) {
            return RU_FAIL(err, RU_E_CONFIG,
                           "the list of hosts is malformed from character %lld: '%.*s'",
                           (long long)at + 1, (int)(text.n > 60 ? 60 : text.n), text.p);
        }
        RU_TRY(expand(&b, &it, err));
    }
    finish(&b, out);
    return RU_OK;
}

ru_status ru_hosts_counts(ru_str text, ru_arena *arena, ru_hosts *hosts, ru_err *err)
{
    ru_host *at = ru_arena_copy(arena, hosts->at, (int64_t)hosts->n * (int64_t)sizeof *at,
                                (int64_t) _Alignof(ru_host));
    if (at == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a list of hosts");
    }
    ru_str rest = text, c;
    uint32_t n = 0;
    uint64_t workers = 0;
    while (ru_str_next(&rest, ',', &c)) {
        int64_t open = ru_str_find(c, "(x");
        uint32_t count = 0, times = 1;
        ru_str number_text = open < 0 ? c : ru_str_n(c.p, open);
        bool ok = count_from(number_text, &count) == RU_OK;
        if (ok && open >= 0) {
            ok = ru_str_ends(c, ")") && c.n > open + 3 &&
                 count_from(ru_str_n(c.p + open + 2, c.n - open - 3), &times) == RU_OK;
        }
        if (!ok) {
            return RU_FAIL(err, RU_E_CONFIG, "'%.*s': expected counts such as 2(x3),1",
                           (int)(text.n > 80 ? 80 : text.n), text.p);
        }
        for (uint32_t k = 0; k < times; k++, n++) {
            if (n < hosts->n) {
                at[n].workers = count;
            }
            workers += count;
        }
    }
    if (n != hosts->n || workers > RU_HOSTS_WORKERS_MAX) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "the counts are for %u hosts with %llu workers, but the list has %u hosts",
                       n, (unsigned long long)workers, hosts->n);
    }
    hosts->at = at;
    hosts->workers = (uint32_t)workers;
    return RU_OK;
}

ru_status ru_hosts_range(ru_str text, const char *what, uint32_t *min, uint32_t *max, ru_err *err)
{
    int64_t colon = ru_str_find(text, ":");
    ru_str a = colon < 0 ? text : ru_str_n(text.p, colon);
    ru_str b = colon < 0 ? text : ru_str_from(text, colon + 1);
    uint32_t low, high;
    if (count_from(a, &low) != RU_OK || count_from(b, &high) != RU_OK || low > high) {
        return RU_FAIL(err, RU_E_USAGE,
                       "%s '%.*s': expected N, or MIN:MAX with MIN <= MAX, from 1 to %d", what,
                       (int)(text.n > 40 ? 40 : text.n), text.p, RU_HOSTS_WORKERS_MAX);
    }
    *min = low;
    *max = high;
    return RU_OK;
}

bool ru_host_listed(const ru_conf_texts *names, const char *host)
{
    for (uint32_t k = 0; k < names->n; k++) {
        if (ru_host_same(ru_str_c(names->at[k]), ru_str_c(host))) {
            return true;
        }
    }
    return false;
}

bool ru_hosts_transient(const ru_hosts *hosts, const char *name)
{
    for (uint32_t k = 0; hosts != NULL && k < hosts->n; k++) {
        if (hosts->at[k].transient && strcmp(hosts->at[k].name, name) == 0) {
            return true;
        }
    }
    return false;
}
