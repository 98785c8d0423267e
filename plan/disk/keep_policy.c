/* The row of `keep` in plan/row/policy.def: its input as a file, its report. */
#include "plan/disk/keep.h"
#include "plan/row/policy.h"

#define SECONDS(name_, def_, help_) RU_ROW(F64, ru_keep_in, name_, def_, help_, RU_IN(0, 1e6))
#define BYTES(name_, help_)         RU_ROW(SIZE, ru_keep_in, name_, "0", help_, RU_IN(0, 1e15))

static const char methods[] = "best|none|bytes|decoded", forms[] = "none|bytes|decoded";

static const ru_conf_field fields[] = {
    RU_ROW(I64, ru_keep_in, samples, NULL, "samples of the dataset", RU_IN(1, 1e15)),
    RU_ROW(I64, ru_keep_in, epochs, "10", "epochs that follow, the first one included",
           RU_IN(1, RU_KEEP_EPOCHS_MAX)),
    RU_ROW(U32, ru_keep_in, hosts, "1", "hosts that read equal parts of each epoch, drawn anew",
           RU_IN(1, 1 << 20)),
    RU_ROW(U32, ru_keep_in, readers, "1", "threads of a host that decode", RU_IN(1, 1 << 16)),
    RU_ROW(U32, ru_keep_in, threads, "1", "threads of a host that train", RU_IN(1, 1 << 16)),
    RU_ROW(U32, ru_keep_in, cores, "0",
           "cores of a host, which both share; 0: each thread has one of its own",
           RU_IN(0, 1 << 16)),
    SECONDS(fetch_s, NULL, "time of a sample from its source, when many are fetched [s]"),
    SECONDS(decode_s, NULL, "time to decode a sample on one thread [s]"),
    SECONDS(unpack_s, "0", "time to take a decoded sample that is kept, on one thread [s]"),
    SECONDS(train_s, "0",
            "time of training per sample of a host, with nothing beside it [s]; 0: reading alone"),
    BYTES(bytes, "a sample in its files; 0: these bytes cannot be kept"),
    BYTES(decoded_bytes, "a decoded sample; 0: it cannot be kept"),
    BYTES(room_bytes, "room on a disk of each host"),
    RU_ROW(F64, ru_keep_in, read_mb_per_s, "500", "rate of reading from that disk [1e6 bytes/s]",
           RU_IN(1e-3, 1e6)),
    RU_ROW(F64, ru_keep_in, write_mb_per_s, "500", "rate of writing to it [1e6 bytes/s]",
           RU_IN(1e-3, 1e6)),
    RU_ROW(F64, ru_keep_in, gain_min, "0.02",
           "part of the time of all epochs; what saves less is not kept", RU_IN(0, 1)),
    RU_ROW(CHOICE, ru_keep_in, method, "best",
           "best: what takes the least time; else this form, whatever it saves",
           .choices = methods),
};

static const ru_conf_table table =
    RU_TABLE("keep", ru_keep_in, fields, "a dataset, measured, and room to keep some of it");

static ru_status plan_keep(const void *in, const ru_policy_tools *tools, void *plan, ru_err *err)
{
    (void)tools;
    return ru_plan_keep(in, plan, err);
}

static ru_status check_keep(const void *in, const void *plan, ru_arena *scratch, ru_err *err)
{
    (void)scratch;
    return ru_plan_keep_check(in, plan, err);
}

static ru_status judge(ru_rival *v, const ru_policy_tools *tools, ru_err *err)
{
    const ru_keep_in *in = v->won_in;
    const ru_keep_plan *p = v->won, *other = v->plan;
    (void)tools;
    (void)err;
    if (p->form == RU_KEPT_NONE && in->method == RU_KEEP_BEST && other->all_s < p->all_s) {
        ru_rival_beside(v, other->all_s, "it saves less than %.3g %% (gain_min)",
                        100 * in->gain_min);
    } else {
        ru_rival_is(v, other->all_s, true, "%.3g s an epoch in the end", other->epoch_s);
    }
    return RU_OK;
}

static const ru_report_row rows[] = {
    RU_FIGURE(F64, ru_keep_plan, all_s, "all_s"),
    RU_FIGURE(F64, ru_keep_plan, first_s, "first_s"),
    RU_FIGURE(F64, ru_keep_plan, epoch_s, "epoch_s"),
    RU_FIGURE(F64, ru_keep_plan, none_s, "epoch_none_s"),
    RU_FIGURE(F64, ru_keep_plan, hit, "hit_ratio"),
    RU_FIGURE(F64, ru_keep_plan, written_mb, "written_mb"),
    RU_DECISION(CHOICE, ru_keep_plan, form, "form", .choices = forms),
    RU_DECISION(I64, ru_keep_plan, kept, "kept_samples"),
};

static ru_status report_keep(const void *in, const void *plan, const ru_policy_tools *tools,
                             ru_report *r, ru_err *err)
{
    const ru_keep_in *k = in;
    const ru_keep_plan *p = plan;
    if (p->form == RU_KEPT_NONE) {
        ru_report_answer(r, "keep nothing: an epoch takes %.3g s", p->none_s);
    } else {
        ru_report_answer(r, "keep %s of up to %lld of %lld samples on each host",
                         p->form == RU_KEPT_BYTES ? "the bytes" : "the decoded form",
                         (long long)p->kept, (long long)k->samples);
        ru_report_answer(r,
                         "an epoch takes %.3g s at first and %.3g s in the end, %.3g s without; "
                         "%.1f %% of the last reads are kept ones",
                         p->first_s, p->epoch_s, p->none_s, 100 * p->hit);
    }
    RU_TRY(ru_policy_rivals(&ru_policy_keep, in, plan, tools, judge, r, err));
    ru_report_assume(r, "fetching, the disk, decoding and training work beside each other");
    if (k->cores > 0 && k->cores < k->readers + k->threads) {
        ru_report_assume(r, "decoding and training share %u cores", k->cores);
    }
    if (k->hosts > 1) {
        ru_report_assume(r, "a host of %u meets a sample once in as many epochs", k->hosts);
    }
    ru_report_assume(r, "each epoch reads every sample once, in an order drawn anew");
    return RU_OK;
}

const ru_policy ru_policy_keep = {
    .name = "keep",
    .version = 1,
    .decides = "in which form samples that were read are kept on a disk",
    .source = "",
    .in = &table,
    .plan_bytes = sizeof(ru_keep_plan),
    .rows = rows,
    .n_rows = RU_ARRAY_LEN(rows),
    .plan = plan_keep,
    .check = check_keep,
    .report = report_keep,
    .example = "# 100,000 pictures of 110 kB in a store that delivers 25 MB/s, 20 GB of room.\n"
               "samples: 100000\n"
               "epochs: 30\n"
               "readers: 2\n"
               "fetch_s: 0.0044\n"
               "decode_s: 0.0021\n"
               "unpack_s: 0.0001\n"
               "bytes: 110KB\n"
               "decoded_bytes: 150KB\n"
               "room_bytes: 20GB\n",
};
