/* The row of `pick` in plan/row/policy.def: its input as a file, its report. */
#include <math.h>

#include "plan/fleet/pick.h"
#include "plan/row/policy.h"

#define NUMBER(type_, name_, default_, low_, high_, help_) \
    RU_ROW(F64, type_, name_, default_, help_, RU_IN(low_, high_))
#define COUNT(type_, name_, default_, low_, high_, help_) \
    RU_ROW(U32, type_, name_, default_, help_, RU_IN(low_, high_))

static const ru_conf_field client_fields[] = {
    NUMBER(ru_pick_client, latency_s, NULL, 0, 1e9,
           "mean time from sending the task to the answer [s]; above 0 unless the client is away"),
    NUMBER(ru_pick_client, samples, "1", 1e-9, 1e12, "number of samples of the client"),
    NUMBER(ru_pick_client, loss, "-1", -1, 1e9, "root mean square of its last losses; -1: unknown"),
    COUNT(ru_pick_client, picks, "0", 0, 1e9, "number of rounds in which it has trained"),
    COUNT(ru_pick_client, last_round, "0", 0, 1e9, "last round in which it trained; 0: none"),
    RU_ROW(BOOL, ru_pick_client, away, "false", "true: the client is not available"),
};

static const ru_conf_table client_table =
    RU_TABLE("client", ru_pick_client, client_fields, "a client");

static const ru_conf_field tier_fields[] = {
    NUMBER(ru_pick_tier, credits, "-1", -1, 1e9,
           "number of rounds for which the tier may still be chosen; -1: the initial number"),
    NUMBER(ru_pick_tier, accuracy, "-1", -1, 1,
           "last accuracy that its clients reported; -1: none yet"),
    NUMBER(ru_pick_tier, before, "-1", -1, 1, "accuracy one interval earlier; -1: none"),
};

static const ru_conf_table tier_table =
    RU_TABLE("tier", ru_pick_tier, tier_fields, "a tier, the fastest first");

static ru_status check_in(const void *section, ru_err *err)
{
    const ru_pick_in *in = section;
    const ru_pick_client *c = in->client;
    uint32_t there = 0;
    if (in->n < 1 || in->n > RU_PICK_CLIENTS_MAX) {
        return RU_FAIL(err, RU_E_ARG, "'clients' has %u entries, expected 1 to %d", in->n,
                       RU_PICK_CLIENTS_MAX);
    }
    for (uint32_t i = 0; i < in->n; i++) {
        there += c[i].away ? 0 : 1;
        if (!c[i].away && !(c[i].latency_s >= 1e-9)) {
            return RU_FAIL(
                err, RU_E_ARG,
                "client %u is available, but its 'latency_s' is %g; expected at least 1e-9", i,
                c[i].latency_s);
        }
    }
    if (there < in->per_round || there < in->n_tiers) {
        return RU_FAIL(
            err, RU_E_ARG,
            "%u clients are available, which is too few for 'per_round' %u and 'tiers' %u", there,
            in->per_round, in->n_tiers);
    }
    if (in->n_told != 0 && in->n_told != in->n_tiers) {
        return RU_FAIL(err, RU_E_ARG, "'tiers_now' has %u entries, expected %u", in->n_told,
                       in->n_tiers);
    }
    double sum = 0;
    for (uint32_t t = 0; t < in->n_chance; t++) {
        sum += in->chance[t];
    }
    if (in->n_chance != 0 && (in->n_chance != in->n_tiers || !(fabs(sum - 1) <= 1e-6))) {
        return RU_FAIL(err, RU_E_ARG, "'chance' must hold %u numbers that add up to 1",
                       in->n_tiers);
    }
    if (in->last_tier >= in->n_tiers) {
        return RU_FAIL(err, RU_E_ARG, "'last_tier' is %lld, but there are %u tiers (from 0)",
                       (long long)in->last_tier, in->n_tiers);
    }
    if (in->kmeans && there > 4096) {
        return RU_FAIL(err, RU_E_ARG,
                       "'split: kmeans' takes at most 4096 clients, but there are %u", there);
    }
    return RU_OK;
}

static const ru_conf_field fields[] = {
    RU_ROW_AS("clients", SECTIONS, ru_pick_in, client, NULL, "all clients", .table = &client_table),
    RU_ROW_AS("tiers", U32, ru_pick_in, n_tiers, "5",
              "number of tiers: groups of clients by latency", RU_IN(1, RU_PICK_TIERS_MAX)),
    RU_ROW_AS("split", CHOICE, ru_pick_in, kmeans, "equal",
              "equal: tiers of equal size; kmeans: tiers by k-means of the logarithm of latency",
              .choices = "equal|kmeans"),
    RU_ROW_AS("tiers_now", SECTIONS, ru_pick_in, tier, "[]",
              "credits and accuracy of each tier; empty: the job starts", .table = &tier_table),
    RU_ROW(F64_LIST, ru_pick_in, chance, "[]", "current probability of each tier; empty: none yet",
           RU_IN(0, 1)),
    COUNT(ru_pick_in, round, "1", 1, 1e9, "number of the round, from 1"),
    COUNT(ru_pick_in, rounds, "300", 1, 1e9, "number of rounds of the whole job"),
    COUNT(ru_pick_in, per_round, "5", 1, RU_PICK_ROUND_MAX, "number of clients in a round"),
    COUNT(ru_pick_in, interval, "10", 1, 1e9,
          "number of rounds between two evaluations of the accuracy"),
    RU_ROW(I64, ru_pick_in, last_tier, "-1", "tier of the previous round; -1: none",
           RU_IN(-1, RU_PICK_TIERS_MAX)),
    NUMBER(ru_pick_in, deadline_s, "0", 0, 1e9,
           "deadline of a round [s]; 0: 1.5 times its slowest client"),
    NUMBER(ru_pick_in, fedcs_s, "0", 0, 1e9, "method fedcs: deadline [s]; 0: the median latency"),
    NUMBER(ru_pick_in, prefer, "0.3", 0, 1, "method oort: quantile of latency that is fast enough"),
    NUMBER(ru_pick_in, spread, "0.1", 0, 3,
           "standard deviation of the logarithm of a client's latency"),
    RU_ROW(I64, ru_pick_in, seed, "1", "seed of random choices", RU_IN(0, 1e15)),
    RU_ROW(CHOICE, ru_pick_in, method, "adaptive",
           "adaptive: Rubato's; tifl: the published tiers; vanilla: any clients (FedAvg); over: "
           "1.3 times as many clients; fedcs, oort, choice: FedCS, Oort, power of choice; "
           "uniform: equal probability of all tiers; random: mostly the fastest tier; fast, "
           "slow: only the fastest or slowest tier",
           .choices = "adaptive|tifl|vanilla|over|fedcs|oort|choice|uniform|random|fast|slow"),
};

static const ru_conf_table table =
    RU_TABLE("pick", ru_pick_in, fields, "a round of federated learning", .check = check_in);

static ru_status plan_pick(const void *in, const ru_policy_tools *tools, void *plan, ru_err *err)
{
    return ru_plan_pick(in, tools->out, tools->scratch, plan, err);
}

static ru_status check_pick(const void *in, const void *plan, ru_arena *scratch, ru_err *err)
{
    return ru_plan_pick_check(in, plan, scratch, err);
}

static const ru_report_row rows[] = {
    RU_DECISION(U32, ru_pick_plan, client, "clients", RU_LIST(ru_pick_plan, n)),
    RU_DECISION(U32, ru_pick_plan, wait, "wait_answers"),
    RU_DECISION(F64, ru_pick_plan, deadline_s, "deadline_s"),
    RU_DECISION(U32, ru_pick_plan, tier, "tier"),
    RU_DECISION(F64, ru_pick_plan, chance, "chance", RU_LIST(ru_pick_plan, n_tiers)),
    RU_DECISION(F64, ru_pick_plan, credits, "credits", RU_LIST(ru_pick_plan, n_tiers)),
};

static void tiers_table(const ru_pick_in *q, const ru_pick_plan *p, ru_report *r)
{
    ru_table *t =
        ru_report_grid_of(r, "tiers", ">tier >clients >slowest_s >chance >credits >accuracy");
    for (uint32_t k = 0; k < q->n_tiers; k++) {
        uint32_t n = 0;
        double slowest = 0;
        for (uint32_t i = 0; i < q->n; i++) {
            if (!q->client[i].away && p->tier_of[i] == k) {
                n++;
                slowest = fmax(slowest, q->client[i].latency_s);
            }
        }
        ru_table_i64(t, k);
        ru_table_i64(t, n);
        ru_table_f64(t, slowest, 3);
        ru_table_f64(t, p->chance[k], 3);
        ru_table_f64(t, p->credits[k], 0);
        double accuracy = ru_pick_tier_now(q, k).accuracy;
        if (accuracy >= 0) {
            ru_table_f64(t, accuracy, 3);
        } else {
            ru_table_none(t);
        }
    }
}

static ru_status judge(ru_rival *v, const ru_policy_tools *tools, ru_err *err)
{
    const ru_pick_in *q = v->in;
    uint32_t k = v->method;
    bool by_accuracy = q->n_chance > 0; /* tiers differ in more than in their time */
    for (uint32_t t = 0; t < q->n_tiers; t++) {
        by_accuracy = by_accuracy || ru_pick_tier_now(q, t).accuracy >= 0;
    }
    double s, mine;
    RU_TRY(ru_pick_round_mean(q, v->plan, tools->scratch, &s, err));
    RU_TRY(ru_pick_round_mean(v->won_in, v->won, tools->scratch, &mine, err));
    bool looks = k == RU_PICK_FEDCS || k == RU_PICK_OORT || k == RU_PICK_CHOICE;
    bool same = k == RU_PICK_VANILLA || k == RU_PICK_UNIFORM;
    if (same && !by_accuracy) {
        ru_rival_is(v, s, true, "rounds last longer");
        return RU_OK;
    }
    ru_rival_beside(v, s, "%s",
                    looks ? "it chooses single clients; its time is that of a random choice"
                    : k == RU_PICK_FAST   ? "it does not train on slower clients"
                    : k == RU_PICK_SLOW   ? "it does not train on faster clients"
                    : k == RU_PICK_OVER   ? "the work of the last is thrown away"
                    : k == RU_PICK_RANDOM ? "it rarely chooses slow clients"
                    : s > mine            ? "rounds last longer"
                    : same                ? "it trains less on the tiers that need it"
                                          : "it chooses slow tiers less often");
    return RU_OK;
}

static ru_status report_pick(const void *in, const void *plan, const ru_policy_tools *tools,
                             ru_report *r, ru_err *err)
{
    const ru_pick_in *q = in;
    const ru_pick_plan *p = plan;
    char list[256];
    ru_text text = ru_text_into(list, sizeof list);
    for (uint32_t k = 0; k < p->n && k < 12; k++) {
        ru_text_putf(&text, "%s%u", k > 0 ? ", " : "", p->client[k]);
    }
    ru_report_answer(r, "send round %u to clients %s%s", q->round, list, p->n > 12 ? ", ..." : "");
    ru_report_answer(r, "end it with %u answers, or after %.4g s", p->wait, p->deadline_s);
    if (p->tier != RU_PICK_NONE) {
        uint32_t own = 0;
        for (uint32_t i = 0; i < p->n; i++) {
            own += p->tier_of[p->client[i]] == p->tier ? 1 : 0;
        }
        if (own == p->n) {
            ru_report_answer(r, "they are of tier %u", p->tier);
        } else {
            ru_report_answer(r,
                             "%u of them are all clients of tier %u, the others of the next tiers",
                             own, p->tier);
        }
    }
    double s;
    RU_TRY(ru_pick_round_mean(q, p, tools->scratch, &s, err));
    ru_report_figure(r, "mean_round_s", s);
    ru_report_figure(r, "rounds_left_s", s * (q->rounds - fmin(q->round - 1, q->rounds)));
    ru_report_figure(r, "largest_client_chance", p->share_most);
    tiers_table(q, p, r);
    ru_pick_in others = *q;
    others.n_chance = 0; /* each method has its own */
    RU_TRY(ru_policy_rivals(&ru_policy_pick, &others, plan, tools, judge, r, err));
    ru_report_assume(r, "latencies are log-normal about their means; every client of a tier is "
                        "equally likely in a round of this tier");
    ru_report_trigger(r, "mean_round_s", 0.3);
    return RU_OK;
}

const ru_policy ru_policy_pick = {
    .name = "pick",
    .version = 2,
    .decides = "which clients train in a round of federated learning",
    .source = "chai-2020 (TiFL)",
    .in = &table,
    .plan_bytes = sizeof(ru_pick_plan),
    .rows = rows,
    .n_rows = RU_ARRAY_LEN(rows),
    .plan = plan_pick,
    .check = check_pick,
    .report = report_pick,
    .example = "# Twelve clients in three tiers; the slow ones lag behind.\n"
               "clients:\n"
               "  - {latency_s: 0.21, samples: 80}\n"
               "  - {latency_s: 0.24, samples: 60}\n"
               "  - {latency_s: 0.19, samples: 90}\n"
               "  - {latency_s: 0.22, samples: 70}\n"
               "  - {latency_s: 0.83, samples: 75}\n"
               "  - {latency_s: 0.91, samples: 80}\n"
               "  - {latency_s: 0.78, samples: 65}\n"
               "  - {latency_s: 0.88, samples: 95}\n"
               "  - {latency_s: 8.4, samples: 80}\n"
               "  - {latency_s: 7.9, samples: 85}\n"
               "  - {latency_s: 8.8, samples: 60}\n"
               "  - {latency_s: 9.1, samples: 70}\n"
               "tiers: 3\n"
               "tiers_now:\n"
               "  - {credits: 140, accuracy: 0.93}\n"
               "  - {credits: 75, accuracy: 0.91}\n"
               "  - {credits: 25, accuracy: 0.84}\n"
               "round: 81\n"
               "rounds: 200\n"
               "per_round: 2\n",
};
