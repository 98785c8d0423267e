/* The row of `storage` in plan/row/policy.def: its input as a file, its report. */
#include <math.h>
#include <string.h>

#include "base/map.h"
#include "plan/disk/storage.h"
#include "plan/row/policy.h"

enum { BOUNDED_MAX = 1024, /* files: a second of search */ SHOWN_MAX = 30 };

typedef struct file_in {
    ru_density_file f; /* without the number of its group */
    const char *group;
} file_in;

typedef struct storage_in {
    ru_storage_in q; /* without files, quota and solver */
    ru_conf_sections files;
    int64_t quota_bytes;
    uint32_t readers;
} storage_in;
_Static_assert(offsetof(storage_in, q) == 0, "rows name fields of q");

#define NUMBER(owner, word, place, dflt, low, high, text)                                 \
    {                                                                                     \
        .name = word, .type = RU_CONF_F64, .offset = offsetof(owner, place), .def = dflt, \
        .min = low, .max = high, .help = text                                             \
    }

static const ru_conf_field file_fields[] = {
    RU_ROW(TEXT, file_in, group, "",
           "group of similar files: step of a pipeline, or path that the job reads; empty: none"),
    NUMBER(ru_density_file, "open_s", open_s, NULL, 0, 4e9,
           "time at which it is opened [s]; files are sorted by it"),
    NUMBER(ru_density_file, "input_bytes", input_bytes, "0", 0, 1e18,
           "size of the input of its job"),
    NUMBER(ru_density_file, "writers", writers, "1", 0, 1e9, "number of tasks that write it"),
    NUMBER(ru_density_file, "readers", readers, "0", 0, 1e9,
           "number of tasks that read it; 0: unknown"),
    NUMBER(ru_density_file, "size_bytes", size_bytes, NULL, 1, 1e18, "final size of the file"),
    NUMBER(ru_density_file, "life_s", life_s, NULL, 0, 4e9,
           "time from its opening to its deletion [s]"),
    NUMBER(ru_density_file, "ops", ops, NULL, 0, 1e18, "number of disk operations on it"),
};

static const ru_conf_table file_table = RU_TABLE("file", file_in, file_fields, "a temporary file");

static ru_status check_in(const void *section, ru_err *err)
{
    const storage_in *in = section;
    const file_in *f = in->files.at;
    if (in->files.n < 1 || in->files.n > RU_STORAGE_FILES_MAX) {
        return RU_FAIL(err, RU_E_ARG, "'files' has %u entries, expected 1 to %d", in->files.n,
                       RU_STORAGE_FILES_MAX);
    }
    for (uint32_t i = 1; i < in->files.n; i++) {
        if (f[i].f.open_s < f[i - 1].f.open_s) {
            return RU_FAIL(err, RU_E_ARG, "file %u is opened before file %u: sort them by open_s",
                           i, i - 1);
        }
    }
    if (f[in->files.n - 1].f.open_s < in->q.from_s) {
        return RU_FAIL(err, RU_E_ARG,
                       "no file is opened at from_s (%g) or later, so there is nothing to place",
                       in->q.from_s);
    }
    return RU_OK;
}

static const ru_conf_field fields[] = {
    RU_ROW(SECTIONS, storage_in, files, NULL,
           "temporary files in the order in which they are opened", .table = &file_table),
    RU_ROW_AS("quota", SIZE, storage_in, quota_bytes, NULL, "space on SSD for these files",
              RU_IN(1, 1e18)),
    NUMBER(ru_storage_in, "from_s", from_s, "0", 0, 4e9,
           "files opened before this time are history; later files become history when they end"),
    NUMBER(ru_storage_in, "hdd_usd_per_byte_s", prices.hdd_byte_s, "1.27e-19", 0, 1,
           "price of space on HDD per byte and second"),
    NUMBER(ru_storage_in, "hdd_usd_per_io_s", prices.hdd_io_s, "2.5e-6", 0, 1e3,
           "price of one second of disk time"),
    NUMBER(ru_storage_in, "ssd_usd_per_byte_s", prices.ssd_byte_s, "6.3e-19", 0, 1,
           "price of space on SSD per byte and second"),
    NUMBER(ru_storage_in, "wear_usd_per_byte", prices.wear_byte, "1.1e-13", 0, 1,
           "price of wear per byte written to SSD"),
    NUMBER(ru_storage_in, "seek_s", prices.seek_s, "8e-3", 0, 10,
           "time of an operation on HDD [s]"),
    RU_ROW_AS("hdd_bytes_per_s", F64, ru_storage_in, prices.hdd_bytes_per_s, "150e6",
              "rate of one disk", RU_OVER(0, 1e15)),
    NUMBER(ru_storage_in, "stake", stake, "0.25", 0, 1e9,
           "method trees: fraction of the savings so far that one file may lose"),
    NUMBER(ru_storage_in, "ttl_s", ttl_s, "600", 0, 4e9,
           "method lifetime: longest life of a file on SSD"),
    NUMBER(ru_storage_in, "window_s", window_s, "3600", 1, 4e9,
           "method cachesack: length of a window [s]"),
    NUMBER(ru_storage_in, "spill_low", spill_low, "0.01", 0, 1,
           "fraction of spilled disk time below which the threshold is lowered"),
    NUMBER(ru_storage_in, "spill_high", spill_high, "0.15", 0, 1,
           "fraction above which the threshold is raised"),
    NUMBER(ru_storage_in, "look_s", look_s, "900", 1, 4e9,
           "length of the time for which this fraction is computed [s]"),
    NUMBER(ru_storage_in, "decide_s", decide_s, "60", 1, 4e9,
           "time between two changes of the threshold [s]"),
    RU_ROW(CHOICE, storage_in, readers, "told",
           "told: the number of readers of a file is known when it is opened; hidden: it is not",
           .choices = "told|hidden"),
    RU_ROW(I64, ru_storage_in, seed, "1", "seed of the trees and of random classes", RU_IN(0, 1e9)),
    RU_ROW(CHOICE, ru_storage_in, method, "trees",
           "trees: boosted trees on what is known at the opening (XGBoost); history: records of "
           "groups; first-fit: every file that fits; cachesack: groups by density; lifetime: files "
           "with short lives; category, hash, true-class: classes by trees, at random, or the true "
           "ones; hindsight: the limits that were best afterwards; greedy: everything is known, "
           "and taken by true saving while there is room, which is no bound",
           .choices =
               "trees|history|first-fit|cachesack|lifetime|category|hash|true-class|hindsight|"
               "greedy"),
};

static const ru_conf_table table =
    RU_TABLE("storage", storage_in, fields, "temporary files on SSD and HDD", .check = check_in);

/* Groups get numbers by their first appearance; a file without one is alone in its own. */
static ru_status inner(const storage_in *in, ru_arena *a, ru_storage_in *out, ru_err *err)
{
    const file_in *f = in->files.at;
    ru_density_file *files = RU_NEW(a, ru_density_file, in->files.n);
    ru_map groups;
    ru_map_init(&groups, a, 0);
    uint32_t n_groups = 0;
    if (files == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u files", in->files.n);
    }
    for (uint32_t i = 0; i < in->files.n; i++) {
        bool fresh = true, none = f[i].group[0] == '\0';
        uint64_t alone = 0, *at = none ? &alone : ru_map_put_c(&groups, f[i].group, &fresh);
        if (at == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "no memory for %u files", in->files.n);
        }
        *at = fresh ? n_groups++ : *at;
        files[i] = f[i].f;
        files[i].group = (uint32_t)*at;
        files[i].readers = in->readers == 0 ? files[i].readers : 0;
    }
    *out = in->q;
    out->files = files;
    out->n = in->files.n;
    out->n_groups = n_groups;
    out->quota_bytes = (double)in->quota_bytes;
    return RU_OK;
}

static ru_status plan_storage(const void *in, const ru_policy_tools *tools, void *plan, ru_err *err)
{
    ru_storage_in q;
    RU_TRY(inner(in, tools->scratch, &q, err));
    q.solver = tools->solver;
    return ru_plan_storage(&q, tools->out, tools->scratch, plan, err);
}

static ru_status check_storage(const void *in, const void *plan, ru_arena *scratch, ru_err *err)
{
    ru_storage_in q;
    RU_TRY(inner(in, scratch, &q, err));
    return ru_plan_storage_check(&q, plan, scratch, err);
}

static void places_table(const storage_in *s, const ru_storage_plan *p, ru_report *r)
{
    const file_in *f = s->files.at;
    ru_table *t = ru_report_grid_of(r, p->n > SHOWN_MAX ? "places (the last ones)" : "places",
                                    ">open_s <group <place >limit >size");
    for (uint32_t k = p->n > SHOWN_MAX ? p->n - SHOWN_MAX : 0; k < p->n; k++) {
        const ru_storage_place *at = &p->places[k];
        const file_in *is = &f[at->file];
        ru_table_f64(t, is->f.open_s, 0);
        ru_table_str(t, is->group);
        bool whole = at->ssd_bytes >= is->f.size_bytes;
        ru_table_str(t, !(at->ssd_bytes > 0) ? "hdd" : whole ? "ssd" : "ssd, then hdd");
        if (at->ssd_bytes > 0 && at->limit_bytes < 1e18) {
            ru_table_bytes(t, (int64_t)at->limit_bytes);
        } else {
            ru_table_none(t);
        }
        ru_table_bytes(t, (int64_t)is->f.size_bytes);
    }
}

ru_status ru_storage_policy_bound(const void *in, ru_arena *scratch, double *usd, ru_err *err)
{
    ru_storage_in q;
    RU_TRY(inner(in, scratch, &q, err));
    return ru_plan_storage_bound(&q, scratch, usd, err);
}

static ru_status judge(ru_rival *v, const ru_policy_tools *tools, ru_err *err)
{
    (void)tools;
    (void)err;
    const ru_storage_plan *p = v->plan;
    ru_rival_beside(v, p->saving_usd, "%u files on SSD%s", p->admitted,
                    v->method >= RU_STORAGE_TRUE_CLASS ? "; it knows the future" : "");
    return RU_OK;
}

static const ru_report_row rows[] = {
    RU_FIGURE(F64, ru_storage_plan, saving_usd, "saving_usd"),
    RU_DECISION(U32, ru_storage_plan, n, "files"),
    RU_DECISION(U32, ru_storage_plan, admitted, "files_on_ssd"),
    RU_DECISION(U32, ru_storage_plan, demoted, "files_demoted"),
};

static ru_status report_storage(const void *in, const void *plan, const ru_policy_tools *tools,
                                ru_report *r, ru_err *err)
{
    const storage_in *s = in;
    const ru_storage_plan *p = plan;
    ru_report_answer(r, "place %u of %u files on SSD; %u of them grow beyond their limit",
                     p->admitted, p->n, p->demoted);
    ru_report_figure(r, "share_of_hdd_cost", p->hdd_usd > 0 ? p->saving_usd / p->hdd_usd : 0);
    ru_report_figure(r, "hdd_usd", p->hdd_usd);
    ru_report_figure(r, "ssd_peak_bytes", p->peak_bytes);
    places_table(s, p, r);
    RU_TRY(ru_policy_rivals(&ru_policy_storage, in, plan, tools, judge, r, err));
    if (p->n <= BOUNDED_MAX) {
        double most;
        RU_TRY(ru_storage_policy_bound(s, tools->scratch, &most, err));
        ru_report_candidate(r, "bound", most, false,
                            "no choice saves more than %.4g USD, were all files known", most);
    }
    ru_report_assume(r, "a file is written once and read once; the part of a file on SSD saves the "
                        "same fraction of its cost");
    ru_report_assume(r, "a file keeps its space until it is deleted");
    return RU_OK;
}

const ru_policy ru_policy_storage = {
    .name = "storage",
    .version = 4,
    .decides = "which temporary files go to SSD, and how far they may grow there",
    .source = "hafeez-2022; byom-2025",
    .in = &table,
    .plan_bytes = sizeof(ru_storage_plan),
    .rows = rows,
    .n_rows = RU_ARRAY_LEN(rows),
    .more_is_better = true,
    .plan = plan_storage,
    .check = check_storage,
    .report = report_storage,
    .example = "# Two hours of three pipelines; where do the files of the second hour go?\n"
               "files:\n"
               "  - {open_s: 1224, group: sort/spill, input_bytes: 2.32e10, writers: 80, "
               "size_bytes: 2.09e10,\n"
               "     life_s: 606, ops: 41767}\n"
               "  - {open_s: 1282, group: join/shuffle, input_bytes: 3.25e11, writers: 1600, "
               "size_bytes: 2.43e10,\n"
               "     life_s: 1010, ops: 184346}\n"
               "  - {open_s: 1293, group: stats/groups, input_bytes: 5.58e10, writers: 240, "
               "size_bytes: 4.65e7,\n"
               "     life_s: 355, ops: 1006}\n"
               "  - {open_s: 1831, group: stats/groups, input_bytes: 5.47e10, writers: 240, "
               "size_bytes: 4.56e7,\n"
               "     life_s: 296, ops: 1005}\n"
               "  - {open_s: 1847, group: join/shuffle, input_bytes: 4.73e11, writers: 1600, "
               "size_bytes: 3.55e10,\n"
               "     life_s: 751, ops: 265855}\n"
               "  - {open_s: 1885, group: sort/spill, input_bytes: 2.15e10, writers: 80, "
               "size_bytes: 1.93e10,\n"
               "     life_s: 668, ops: 38614}\n"
               "  - {open_s: 2437, group: sort/spill, input_bytes: 1.61e10, writers: 80, "
               "size_bytes: 1.45e10,\n"
               "     life_s: 720, ops: 28916}\n"
               "  - {open_s: 2470, group: join/shuffle, input_bytes: 3.36e11, writers: 1600, "
               "size_bytes: 2.52e10,\n"
               "     life_s: 1022, ops: 191606}\n"
               "  - {open_s: 2497, group: stats/groups, input_bytes: 7.18e10, writers: 240, "
               "size_bytes: 5.99e7,\n"
               "     life_s: 301, ops: 1019}\n"
               "  - {open_s: 3005, group: stats/groups, input_bytes: 6.99e10, writers: 240, "
               "size_bytes: 5.83e7,\n"
               "     life_s: 249, ops: 1018}\n"
               "  - {open_s: 3029, group: sort/spill, input_bytes: 2.01e10, writers: 80, "
               "size_bytes: 1.81e10,\n"
               "     life_s: 645, ops: 36112}\n"
               "  - {open_s: 3076, group: join/shuffle, input_bytes: 3.95e11, writers: 1600, "
               "size_bytes: 2.96e10,\n"
               "     life_s: 823, ops: 221588}\n"
               "  - {open_s: 3625, group: stats/groups, input_bytes: 7.49e10, writers: 240, "
               "size_bytes: 6.24e7,\n"
               "     life_s: 247, ops: 1022}\n"
               "  - {open_s: 3635, group: join/shuffle, input_bytes: 4.03e11, writers: 1600, "
               "size_bytes: 3.02e10,\n"
               "     life_s: 906, ops: 228646}\n"
               "  - {open_s: 3689, group: sort/spill, input_bytes: 2.18e10, writers: 80, "
               "size_bytes: 1.96e10,\n"
               "     life_s: 655, ops: 39297}\n"
               "  - {open_s: 4245, group: sort/spill, input_bytes: 1.85e10, writers: 80, "
               "size_bytes: 1.66e10,\n"
               "     life_s: 682, ops: 33276}\n"
               "  - {open_s: 4281, group: join/shuffle, input_bytes: 4.84e11, writers: 1600, "
               "size_bytes: 3.63e10,\n"
               "     life_s: 947, ops: 273132}\n"
               "  - {open_s: 4281, group: stats/groups, input_bytes: 6.39e10, writers: 240, "
               "size_bytes: 5.32e7,\n"
               "     life_s: 307, ops: 1013}\n"
               "  - {open_s: 4812, group: join/shuffle, input_bytes: 4.83e11, writers: 1600, "
               "size_bytes: 3.62e10,\n"
               "     life_s: 1022, ops: 273008}\n"
               "  - {open_s: 4830, group: stats/groups, input_bytes: 6.46e10, writers: 240, "
               "size_bytes: 5.38e7,\n"
               "     life_s: 254, ops: 1013}\n"
               "  - {open_s: 4835, group: sort/spill, input_bytes: 2.24e10, writers: 80, "
               "size_bytes: 2.01e10,\n"
               "     life_s: 774, ops: 40272}\n"
               "  - {open_s: 5436, group: stats/groups, input_bytes: 7.40e10, writers: 240, "
               "size_bytes: 6.17e7,\n"
               "     life_s: 328, ops: 1021}\n"
               "  - {open_s: 5437, group: join/shuffle, input_bytes: 4.88e11, writers: 1600, "
               "size_bytes: 3.66e10,\n"
               "     life_s: 885, ops: 273416}\n"
               "  - {open_s: 5489, group: sort/spill, input_bytes: 1.64e10, writers: 80, "
               "size_bytes: 1.47e10,\n"
               "     life_s: 583, ops: 29493}\n"
               "  - {open_s: 6002, group: join/shuffle, input_bytes: 4.93e11, writers: 1600, "
               "size_bytes: 3.70e10,\n"
               "     life_s: 836, ops: 273758}\n"
               "  - {open_s: 6019, group: sort/spill, input_bytes: 1.89e10, writers: 80, "
               "size_bytes: 1.70e10,\n"
               "     life_s: 777, ops: 34011}\n"
               "  - {open_s: 6079, group: stats/groups, input_bytes: 5.91e10, writers: 240, "
               "size_bytes: 4.92e7,\n"
               "     life_s: 321, ops: 1009}\n"
               "  - {open_s: 6617, group: sort/spill, input_bytes: 2.00e10, writers: 80, "
               "size_bytes: 1.80e10,\n"
               "     life_s: 630, ops: 35995}\n"
               "  - {open_s: 6620, group: stats/groups, input_bytes: 6.42e10, writers: 240, "
               "size_bytes: 5.35e7,\n"
               "     life_s: 279, ops: 1013}\n"
               "  - {open_s: 6679, group: join/shuffle, input_bytes: 3.34e11, writers: 1600, "
               "size_bytes: 2.50e10,\n"
               "     life_s: 788, ops: 191449}\n"
               "from_s: 3600\n"
               "quota: 60GB\n"
               "method: history  # trees, the default, need XGBoost and 50 files that ended\n",
};
