#include "tool/cluster/markets.h"

#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "env/file/file.h"
#include "env/file/grow.h"
#include "plan/fleet/alloc.h"
#include "tool/cluster/notice.h"

static const int64_t week_s = 7 * 86400;
static const int64_t drawn_begin_s = 1500000000; /* of the clock, without a file */

static const ru_conf_field market_fields[] = {
    RU_ROW(TEXT, rui_cluster_market, name, "spot",
           "name of the market: letters, - and _; its nodes are NAME1, NAME2, ..."),
    RU_ROW(
        TEXT, rui_cluster_market, prices, "",
        "file of prices, as seen from this file: seconds since 1970 and USD an hour of a node, a "
        "line each; empty: `usd` for good"),
    RU_ROW(F64, rui_cluster_market, usd, "0", "price of a node for an hour, without a file",
           RU_IN(0, 1000)),
    RU_ROW(F64, rui_cluster_market, evictions, "0",
           "without a file: how often an hour the market takes all its nodes back, on average",
           RU_IN(0, 3600)),
    RU_ROW_AS("on_demand", F64, rui_cluster_market, on_demand_usd, "0",
              "price of such a node that is never taken back, for an hour [USD]; needed without "
              "`partition`",
              RU_IN(0, 1e6)),
    RU_ROW(TEXT, rui_cluster_market, partition, "",
           "its nodes are jobs of this partition of Slurm; empty: agents of this machine, or "
           "`request`"),
    RU_ROW(TEXT_LIST, rui_cluster_market, options, "[]", "partition: more options of sbatch"),
    RU_ROW(TEXT, rui_cluster_market, request, "",
           "command for sh that starts the machine of node $RUBATO_NODE, and on it its agent; "
           "$RUBATO_BID is empty on demand; ends with 0 when it was asked for"),
    RU_ROW(TEXT, rui_cluster_market, release, "",
           "command for sh that ends that machine, if it is there; run again until it ends with 0"),
    RU_ROW(CHOICE, rui_cluster_market, notice, "none",
           "request: whose metadata tell that a node is taken away", .choices = "none|aws|gcp"),
    RU_ROW(TEXT, rui_cluster_market, notice_url, "http://169.254.169.254", "where they are asked"),
    RU_ROW_AS("patience", TIME, rui_cluster_market, patience_ns, "600s",
              "partition, request: a node that has not come by then is refused, and the market not "
              "asked again for as long; on the markets' clock",
              RU_IN(1e9, 1e14)),
    RU_ROW(U32, rui_cluster_market, nodes, "1", "most nodes at one time",
           RU_IN(1, RU_SPOT_NODES_MAX)),
    RU_ROW(U32, rui_cluster_market, slots, "1", "workers of a node at one time",
           RU_IN(1, RU_ALLOC_DEVICES_MAX)),
    RU_ROW(U32, rui_cluster_market, threads, "1", "compute threads of a worker", RU_IN(1, 1024)),
    RU_ROW(F64, rui_cluster_market, cpu, "0", "cores that a worker may use at most; 0: no limit",
           RU_IN(0, 1024)),
};
const ru_conf_table rui_cluster_market_table =
    RU_TABLE("market", rui_cluster_market, market_fields, "nodes that are rented by the hour");

static const ru_conf_field trade_fields[] = {
    RU_ROW(F64, rui_cluster_trade, speed, "1", "seconds of the markets' clock in one of ours",
           RU_IN(0.001, 3600)),
    RU_ROW_AS("begin", I64, rui_cluster_trade, begin_s, "0",
              "where that clock begins, in seconds since 1970; 0: a week after the first price, or "
              "in the middle of shorter files",
              RU_IN(0, 1e11)),
    RU_ROW_AS("notice", TIME, rui_cluster_trade, notice_ns, "120s",
              "from the notice of an eviction until the node is gone, on that clock",
              RU_IN(1e9, 1e14)),
    RU_ROW_AS("sigma", TIME, rui_cluster_trade, sigma_ns, "120s",
              "until a new node works, on that clock, as long as none was measured",
              RU_IN(0, 3600e9)),
    RU_ROW_AS("lambda", TIME, rui_cluster_trade, lambda_ns, "60s",
              "what jobs lose at an eviction, on that clock, as long as none was measured",
              RU_IN(0, 3600e9)),
};
const ru_conf_table rui_cluster_trade_table =
    RU_TABLE("market", rui_cluster_trade, trade_fields, "what all markets share");

static bool is_told(const rui_cluster_market *m)
{
    return m->partition[0] != 0 || m->request[0] != 0;
}

static ru_status check_way(const rui_cluster_market *m, ru_err *err)
{
    if (m->partition[0] != 0 && (m->request[0] != 0 || m->on_demand_usd > 0)) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "market '%s': nodes of a partition have no `request`, `release` or "
                       "`on_demand`",
                       m->name);
    }
    if (m->partition[0] == 0 && m->options.n > 0) {
        return RU_FAIL(err, RU_E_CONFIG, "market '%s': `options` are for nodes of a `partition`",
                       m->name);
    }
    if (m->request[0] == 0 && m->notice != RUI_NOTICE_NONE) {
        return RU_FAIL(err, RU_E_CONFIG, "market '%s': `notice` is for nodes of a `request`",
                       m->name);
    }
    if ((m->request[0] != 0) != (m->release[0] != 0)) {
        return RU_FAIL(err, RU_E_CONFIG, "market '%s': give `request` and `release` together",
                       m->name);
    }
    return m->partition[0] != 0 || m->on_demand_usd > 0
               ? RU_OK
               : RU_FAIL(err, RU_E_CONFIG, "market '%s': give `on_demand`, above 0", m->name);
}

ru_status rui_cluster_markets_check(const rui_cluster *c, ru_err *err)
{
    uint32_t nodes = 0;
    for (uint32_t k = 0; k < c->markets.n; k++) {
        const rui_cluster_market *m = &c->markets.at[k];
        size_t n = strspn(m->name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_");
        bool twice = false;
        for (uint32_t o = 0; o < k; o++) {
            twice = twice || strcmp(c->markets.at[o].name, m->name) == 0;
        }
        if (n < 1 || n > 60 || m->name[n] != 0 || twice || strcmp(m->name, "slurm") == 0) {
            return RU_FAIL(err, RU_E_CONFIG,
                           "market '%s': each market has another name, of 1 to 60 letters, - and "
                           "_, and not 'slurm'",
                           m->name);
        }
        if ((m->prices[0] != 0) == (m->usd > 0)) {
            return RU_FAIL(err, RU_E_CONFIG, "market '%s': give either `prices` or `usd` above 0",
                           m->name);
        }
        RU_TRY(check_way(m, err));
        nodes += m->nodes;
    }
    return nodes <= RU_SPOT_LEASES_MAX && c->markets.n <= RU_SPOT_MARKETS_MAX
               ? RU_OK
               : RU_FAIL(err, RU_E_CONFIG, "%u markets with %u nodes; expected at most %d with %d",
                         c->markets.n, nodes, RU_SPOT_MARKETS_MAX, RU_SPOT_LEASES_MAX);
}

ru_status rui_cluster_markets_place(rui_cluster *c, const char *dir, ru_arena *arena, ru_err *err)
{
    rui_cluster_market *own =
        ru_arena_copy(arena, c->markets.at, c->markets.n * (int64_t)sizeof *own, 8);
    bool full = own == NULL && c->markets.n > 0;
    for (uint32_t k = 0; !full && k < c->markets.n; k++) {
        if (own[k].prices[0] != 0 && own[k].prices[0] != '/') {
            own[k].prices = ru_path_join(arena, dir, own[k].prices);
            full = own[k].prices == NULL;
        }
    }
    c->markets.at = own;
    return full ? RU_FAIL(err, RU_E_MEM, "no memory for a cluster") : RU_OK;
}

bool rui_cluster_market_node(const rui_cluster *c, const char *name, rui_cluster_node *out)
{
    for (uint32_t k = 0; k < c->markets.n; k++) {
        const rui_cluster_market *m = &c->markets.at[k];
        size_t n = strlen(m->name);
        int64_t number;
        if (strncmp(name, m->name, n) == 0 && name[n] != '0' &&
            ru_str_i64(ru_str_c(name + n), &number) && number >= 1 && number <= m->nodes) {
            const double grace_ns = (double)c->market.notice_ns / c->market.speed;
            *out = (rui_cluster_node){.name = name,
                                      .host = "",
                                      .slots = m->slots,
                                      .threads = m->threads,
                                      .cpu = m->cpu,
                                      .notice = m->notice,
                                      .notice_url = m->notice_url,
                                      .leaves = true,
                                      .grace_ns = is_told(m) ? 0 : (int64_t)grace_ns};
            return true;
        }
    }
    return false;
}

bool rui_cluster_markets_far(const rui_cluster *c)
{
    bool far = false;
    for (uint32_t k = 0; k < c->markets.n; k++) {
        far = far || is_told(&c->markets.at[k]);
    }
    return far;
}

ru_status rui_cluster_providers(const rui_cluster *c, const char *folder, const char *exe,
                                ru_arena *arena, const ru_market_provider **out, ru_err *err)
{
    ru_market_provider *at = RU_NEW(arena, ru_market_provider, c->markets.n);
    ru_slurm_options *slurm = RU_NEW(arena, ru_slurm_options, c->markets.n);
    if (at == NULL || slurm == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for markets");
    }
    for (uint32_t k = 0; k < c->markets.n; k++) {
        const rui_cluster_market *m = &c->markets.at[k];
        slurm[k] = (ru_slurm_options){.name = m->name,
                                      .folder = folder,
                                      .exe = exe,
                                      .partition = m->partition,
                                      .options = m->options,
                                      .seats = m->nodes,
                                      .slots = m->slots,
                                      .threads = m->threads};
        at[k].slurm = m->partition[0] != 0 ? &slurm[k] : NULL;
        at[k].request = m->request[0] != 0 ? m->request : NULL;
        at[k].release = m->request[0] != 0 ? m->release : NULL;
    }
    *out = at;
    return RU_OK;
}

static ru_status read_prices(const char *path, ru_arena *arena, ru_prices *out, ru_err *err)
{
    char *text;
    int64_t n;
    if (ru_path_exists(path) && !ru_path_is_file(path)) { /* a pipe would be waited for */
        return RU_FAIL(err, RU_E_DATA, "%s is no file; prices are read from a file", path);
    }
    RU_TRY(ru_file_read(path, 64 << 20, arena, &text, &n, err));
    return ru_prices_parse(path, ru_str_n(text, n), arena, out, err);
}

struct rui_cluster_prices {
    const rui_cluster *c;
    ru_spot_market *at;                  /* [c->markets.n] */
    uint64_t stamp[RU_SPOT_MARKETS_MAX]; /* of the file as it was read */
    uint64_t seen[RU_SPOT_MARKETS_MAX];  /* at the last look */
    ru_arena arena[RU_SPOT_MARKETS_MAX]; /* of what was read again */
};

void rui_cluster_prices_refresh(void *prices, int64_t now_ns)
{
    rui_cluster_prices *f = prices;
    for (uint32_t k = 0; k < f->c->markets.n; k++) {
        const rui_cluster_market *m = &f->c->markets.at[k];
        const uint64_t stamp = m->prices[0] != 0 ? ru_path_stamp(m->prices) : 0;
        const bool still = stamp == f->seen[k]; /* else somebody writes it */
        f->seen[k] = stamp;
        if (m->prices[0] == 0 || stamp == f->stamp[k] || !still) {
            continue;
        }
        ru_arena arena;
        ru_prices fresh;
        ru_err err;
        ru_arena_init(&arena, 0);
        f->stamp[k] = stamp;
        ru_status st = read_prices(m->prices, &arena, &fresh, &err);
        st = st == RU_OK ? ru_spot_reaches(m->name, &fresh, now_ns, &err) : st;
        if (st != RU_OK) {
            ru_log(RU_LOG_WARN, "cluster", "prices", "%s; market '%s' keeps the prices before",
                   err.text, m->name);
            ru_arena_fini(&arena);
            continue;
        }
        ru_log(RU_LOG_INFO, "cluster", "prices", "%s: %u prices of market '%s'", m->prices, fresh.n,
               m->name);
        f->at[k].prices = fresh;
        ru_arena_fini(&f->arena[k]);
        f->arena[k] = arena;
    }
}

void rui_cluster_prices_close(rui_cluster_prices *f)
{
    for (uint32_t k = 0; f != NULL && k < f->c->markets.n; k++) {
        ru_arena_fini(&f->arena[k]);
    }
}

ru_status rui_cluster_spot(const rui_cluster *c, ru_arena *arena, ru_spot_options *out,
                           rui_cluster_prices **prices, ru_err *err)
{
    ru_spot_market *at = RU_NEW(arena, ru_spot_market, c->markets.n);
    rui_cluster_prices *f = RU_NEW(arena, rui_cluster_prices, 1);
    int64_t begin = c->market.begin_s;
    if (at == NULL || f == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for markets");
    }
    *f = (rui_cluster_prices){.c = c, .at = at};
    for (uint32_t k = 0; k < c->markets.n; k++) {
        const rui_cluster_market *m = &c->markets.at[k];
        ru_prices *p = &at[k].prices;
        at[k] = (ru_spot_market){.name = m->name,
                                 .nodes = m->nodes,
                                 .slots = m->slots,
                                 .on_demand_usd = m->on_demand_usd,
                                 .told = is_told(m),
                                 .flat_usd = is_told(m) ? m->usd : 0,
                                 .patience_ns = m->patience_ns};
        ru_arena_init(&f->arena[k], 0);
        if (m->prices[0] != 0) {
            f->stamp[k] = f->seen[k] = ru_path_stamp(m->prices);
            RU_TRY(read_prices(m->prices, arena, p, err));
            int64_t half = (p->at_s[p->n - 1] - p->at_s[0]) / 2;
            int64_t own = p->at_s[0] + (half < week_s ? half : week_s);
            begin = c->market.begin_s == 0 && own > begin ? own : begin;
        }
    }
    begin = begin > 0 ? begin : drawn_begin_s;
    const int64_t from = begin > week_s ? begin - week_s : 0;
    for (uint32_t k = 0; k < c->markets.n; k++) {
        const rui_cluster_market *m = &c->markets.at[k];
        if (m->prices[0] == 0) {
            uint64_t seed = ru_hash_bytes(m->name, (int64_t)strlen(m->name), 1);
            RU_TRY(ru_prices_drawn(m->usd, m->evictions, from, seed, arena, &at[k].prices, err));
        }
    }
    *prices = f;
    *out = (ru_spot_options){.at = at,
                             .n = c->markets.n,
                             .speed = c->market.speed,
                             .begin_s = begin,
                             .sigma_ns = c->market.sigma_ns,
                             .lambda_ns = c->market.lambda_ns};
    return RU_OK;
}
