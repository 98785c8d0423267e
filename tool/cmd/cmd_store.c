/* rubato store: what stands in the folders of `storage` and in the store of checkpoints. */
#include <stdio.h>
#include <string.h>

#include "base/table.h"
#include "base/unit.h"
#include "base/vec.h"
#include "data/kept.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "env/file/grow.h"
#include "run/ckpt_store.h"
#include "run/copies.h"
#include "tool/cmd.h"
#include "train/job/job.h"

enum { KEY_SHOWN = 12 };

#define JOB_OPT                                                                                  \
    RU_OPT(TEXT, "job", "FILE",                                                                  \
           "the job whose folders (`storage`) and copies (`checkpoint.copy_to`) are looked at; " \
           "default: the folders in the file that RUBATO_STORAGE names")
#define JSON_OPT RU_OPT(FLAG, "json", NULL, "print one JSON object instead of text")

typedef struct program_file {
    const char *space;
    ru_tier_entry is;
} program_file;

RU_VEC(program_files, program_file)

/* Files of a group that ended, or stand there now. */
typedef struct program_group {
    const char *space, *name;
    uint32_t now, ended, by[RU_TIER_BYS]; /* of both */
    ru_tier_told sum;                     /* of those that ended */
    uint64_t plan;                        /* the last one */
} program_group;

RU_VEC(program_groups, program_group)

typedef struct store {
    const ru_disk_tier *tiers; /* [n_tiers] */
    uint32_t n_tiers;
    const char *copy_to; /* "": nowhere */
    ru_kept_set *sets;   /* [n] */
    uint32_t n;
    program_files files; /* store/tiers/tiers.h */
    program_groups groups;
    ru_ckpt_stored *ckpts; /* [n_ckpts] run/ckpt_store.h */
    uint32_t n_ckpts;
} store;

static ru_status add_told(store *s, const char *space, const char *name, const ru_tier_told *told,
                          bool ended, ru_arena *arena, ru_err *err)
{
    program_group *g = NULL;
    for (uint32_t k = 0; k < s->groups.n && g == NULL; k++) {
        program_group *at = &s->groups.at[k];
        g = strcmp(at->space, space) == 0 && strcmp(at->name, name) == 0 ? at : NULL;
    }
    if (g == NULL) {
        g = program_groups_push(&s->groups, arena);
        const char *own = ru_arena_str(arena, name);
        if (g == NULL || own == NULL) {
            return RU_FAIL(err, RU_E_MEM, "no memory for the names of groups");
        }
        *g = (program_group){.space = space, .name = own};
    }
    g->now += !ended;
    g->by[told->by]++;
    g->plan = told->plan != 0 ? told->plan : g->plan;
    if (ended) {
        g->ended++;
        g->sum.size_bytes += told->size_bytes;
        g->sum.fast_bytes += told->fast_bytes;
        g->sum.expected_usd += told->expected_usd;
        g->sum.measured_usd += told->measured_usd;
        g->sum.decide_s += told->decide_s;
    }
    return RU_OK;
}

/* The space is opened: what killed programs left there goes. */
static ru_status add_space(store *s, const char *space, ru_arena *arena, ru_err *err)
{
    ru_tiers *t;
    ru_tier_entry e;
    const ru_tiers_options o = {.tiers = s->tiers, .n_tiers = s->n_tiers, .space = space};
    RU_TRY(ru_tiers_open(&o, &t, err));
    ru_status st = ru_tiers_look(t, err);
    for (uint32_t at = 0; st == RU_OK && ru_tiers_next(t, &at, &e);) {
        program_file *f = program_files_push(&s->files, arena);
        e.name = ru_arena_str(arena, e.name);
        if (f == NULL || e.name == NULL) {
            st = RU_FAIL(err, RU_E_MEM, "no memory for the names of files");
        } else {
            *f = (program_file){space, e};
            st = e.group[0] != '\0' ? add_told(s, space, e.group, &e.told, false, arena, err) : st;
        }
    }
    ru_tier_told told;
    const char *group;
    for (uint32_t at = 0; st == RU_OK && ru_tiers_ended(t, &at, &group, &told);) {
        st = add_told(s, space, group, &told, true, arena, err);
    }
    ru_tiers_close(t);
    return st;
}

static ru_status add_files(store *s, ru_arena *arena, ru_err *err)
{
    char **names = NULL;
    uint32_t n = 0;
    if (s->n_tiers == 0 || s->n_tiers > RU_TIERS_MAX) { /* then no program can have any */
        return RU_OK;
    }
    const char *dir = ru_path_join(arena, s->tiers[s->n_tiers - 1].path, "files");
    if (dir != NULL && ru_path_is_dir(dir)) {
        RU_TRY(ru_dir_list(dir, arena, &names, &n, err));
    }
    for (uint32_t k = 0; k < n; k++) {
        ru_status st = add_space(s, names[k], arena, err);
        RU_TRY(st == RU_E_ARG ? RU_OK : st); /* somebody else's: no space has such a name */
    }
    return RU_OK;
}

static ru_status open_store(ru_cmd_in *in, store *s, ru_err *err)
{
    ru_job job;
    const char *path = ru_cmd_text(in, "job");
    *s = (store){.copy_to = ""};
    if (path != NULL) {
        RU_TRY(ru_job_load(path, NULL, 0, in->arena, &job, NULL, err));
        s->tiers = job.storage.at;
        s->n_tiers = job.storage.n;
        s->copy_to = job.checkpoint.copy_to;
    } else {
        RU_TRY(ru_job_storage_load(in->arena, &s->tiers, &s->n_tiers, err));
    }
    if (s->n_tiers == 0 && s->copy_to[0] == '\0') {
        return RU_FAIL(err, RU_E_USAGE,
                       "%s names no folder and no store; name a job with `storage` or "
                       "`checkpoint.copy_to` (--job FILE), or a file of folders in RUBATO_STORAGE",
                       path != NULL ? path : "RUBATO_STORAGE");
    }
    return ru_kept_list(s->tiers, s->n_tiers, in->arena, &s->sets, &s->n, err);
}

/* Every argument must begin a key; without arguments all are wanted. */
static bool wanted(const ru_cmd_in *in, const char *key)
{
    bool is = in->n_args == 0;
    for (uint32_t k = 0; k < in->n_args; k++) {
        is = is || strncmp(key, in->args[k], strlen(in->args[k])) == 0;
    }
    return is;
}

static ru_status add_ckpts(ru_cmd_in *in, store *s, bool verify, ru_err *err)
{
    return ru_ckpt_stored_list(s->tiers, s->n_tiers, verify, in->arena, &s->ckpts, &s->n_ckpts,
                               err);
}

/* A file of a program is named as a whole, SPACE/NAME: its name may begin those of others. */
static bool names_file(const char *word, const program_file *f)
{
    size_t n = strlen(f->space);
    return strcmp(f->space, RU_CKPT_SPACE) != 0 && strncmp(word, f->space, n) == 0 &&
           word[n] == '/' && strcmp(word + n + 1, f->is.name) == 0;
}

static bool names_some_file(const char *word, const store *s)
{
    bool is = false;
    for (uint32_t i = 0; i < s->files.n; i++) {
        is = is || names_file(word, &s->files.at[i]);
    }
    return is;
}

static ru_status check_keys(const ru_cmd_in *in, const store *s, ru_err *err)
{
    for (uint32_t k = 0; k < in->n_args; k++) {
        const char *word = in->args[k], *key = NULL;
        bool many = false;
        for (uint32_t i = 0; i < s->n + s->n_ckpts; i++) {
            const char *of = i < s->n ? s->sets[i].key : s->ckpts[i - s->n].key;
            bool is = strncmp(of, word, strlen(word)) == 0;
            many = many || (is && key != NULL && strcmp(key, of) != 0);
            key = is ? of : key;
        }
        if (!names_some_file(word, s) && (key == NULL || many || word[0] == '\0')) {
            return RU_FAIL(err, RU_E_USAGE, "%s '%s'; `rubato store ls` lists the keys",
                           many ? "several keys begin with" : "no key begins with", word);
        }
    }
    return RU_OK;
}

static ru_status print(ru_cmd_in *in, const ru_table *const *tables, const char *const *names,
                       uint32_t n, ru_err *err)
{
    ru_text out = ru_text_arena(in->arena);
    if (ru_cmd_flag(in, "json")) {
        ru_json j = ru_json_into(&out);
        ru_json_open(&j, NULL, '{');
        ru_json_str(&j, "schema", "rubato.store/1");
        for (uint32_t k = 0; k < n; k++) {
            RU_TRY(ru_table_json(tables[k], &j, names[k], err));
        }
        ru_json_close(&j);
        ru_text_put(&out, "\n");
    } else {
        for (uint32_t k = 0; k < n; k++) {
            ru_text_put(&out, k > 0 && tables[k]->cells.n > 0 ? "\n" : "");
            RU_TRY(tables[k]->cells.n > 0 ? ru_table_print(tables[k], 0, &out, err) : RU_OK);
        }
    }
    fputs(out.p, stdout);
    return out.cut ? RU_FAIL(err, RU_E_MEM, "no memory for the output") : RU_OK;
}

/* -- top --------------------------------------------------------------------------------------- */

static const ru_opt look_opts[] = {JOB_OPT, JSON_OPT};

static void put_tier(ru_table *t, const store *s, uint32_t k, ru_arena *arena)
{
    const ru_disk_tier *tier = &s->tiers[k];
    int64_t sets = 0, files = 0, records = 0, found = 0, reads = 0, saved = 0;
    const char *samples = ru_path_join(arena, tier->path, "samples");
    const char *other = ru_path_join(arena, tier->path, "files");
    int64_t used = samples != NULL ? ru_dir_bytes(samples) : 0;
    used += other != NULL ? ru_dir_bytes(other) : 0;
    for (uint32_t i = 0; i < s->files.n && k < RU_TIERS_MAX; i++) {
        files += s->files.at[i].is.in_bytes[k] > 0;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        const ru_kept_set *x = &s->sets[i];
        bool here = x->tier == k;
        sets += here;
        files += here ? x->files : 0;
        records += here ? x->records : 0;
        found += here ? x->about.found : 0;
        reads += here ? x->about.found + x->about.read : 0;
        saved += here ? ru_kept_saved_ns(&x->about) : 0;
    }
    ru_table_str(t, tier->path);
    ru_table_bytes(t, tier->quota_bytes);
    ru_table_bytes(t, used);
    ru_table_percent(t, (double)used / (double)tier->quota_bytes, 1);
    ru_table_i64(t, files);
    ru_table_i64(t, sets);
    ru_table_i64(t, records);
    ru_table_i64(t, reads);
    if (reads > 0) {
        ru_table_percent(t, (double)found / (double)reads, 1);
        ru_table_ns(t, saved);
    } else {
        ru_table_none(t);
        ru_table_none(t);
    }
    double ended = 0, usd = 0;
    for (uint32_t i = 0; i < s->groups.n; i++) {
        const ru_tier_told *x = &s->groups.at[i].sum;
        ended += k == 0 ? x->fast_bytes : x->size_bytes - x->fast_bytes;
        usd += k == 0 ? x->measured_usd : 0;
    }
    if (k == 0 || s->n_tiers == 2) {
        ru_table_bytes(t, (int64_t)ended);
    } else {
        ru_table_none(t); /* only what was on the first one is told */
    }
    ru_table_textf(t, "%.3g", usd);
}

static ru_status run_top(ru_cmd_in *in, ru_err *err)
{
    static const char *const columns[] = {"quota", "used", "share", "files", "datasets", "records",
                                          "reads", "hits", "saved", "ended", "usd"};
    store s;
    RU_TRY(open_store(in, &s, err));
    RU_TRY(add_files(&s, in->arena, err));
    ru_table t = ru_table_in(in->arena);
    ru_table_col(&t, "folder", RU_TABLE_LEFT);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(columns); k++) {
        ru_table_col(&t, columns[k], RU_TABLE_RIGHT);
    }
    for (uint32_t k = 0; k < s.n_tiers; k++) {
        put_tier(&t, &s, k, in->arena);
    }
    return print(in, (const ru_table *const[]){&t}, (const char *const[]){"tiers"}, 1, err);
}

/* -- ls ---------------------------------------------------------------------------------------- */

static ru_table list_sets(const ru_cmd_in *in, const store *s)
{
    static const char *const columns[] = {"key", "data", "form", "folder"};
    static const char *const numbers[] = {"records", "samples", "size", "idle", "in_use"};
    ru_table t = ru_table_in(in->arena);
    bool json = ru_cmd_flag(in, "json");
    for (uint32_t k = 0; k < RU_ARRAY_LEN(columns); k++) {
        ru_table_col(&t, columns[k], RU_TABLE_LEFT);
    }
    for (uint32_t k = 0; k < RU_ARRAY_LEN(numbers); k++) {
        ru_table_col(&t, numbers[k], RU_TABLE_RIGHT);
    }
    for (uint32_t k = 0; k < s->n; k++) {
        const ru_kept_set *x = &s->sets[k];
        ru_table_textf(&t, "%.*s", json ? 32 : KEY_SHOWN, x->key);
        ru_table_str(&t, x->about.data[0] != '\0' ? x->about.data : NULL);
        ru_table_str(&t, x->about.kind[0] != '\0' ? x->about.kind : NULL);
        ru_table_str(&t, s->tiers[x->tier].path);
        ru_table_i64(&t, x->records);
        ru_table_i64(&t, x->about.samples);
        ru_table_bytes(&t, x->bytes);
        ru_table_ns(&t, x->used_ns > 0 ? ru_clock_wall_ns() - x->used_ns : 0);
        ru_table_bool(&t, x->in_use);
    }
    return t;
}

static ru_table list_files(const ru_cmd_in *in, const store *s)
{
    ru_table t = ru_table_in(in->arena);
    ru_table_col(&t, "file", RU_TABLE_LEFT);
    ru_table_col(&t, "space", RU_TABLE_LEFT);
    ru_table_col(&t, "size", RU_TABLE_RIGHT);
    ru_table_col(&t, "expected", RU_TABLE_RIGHT);
    ru_table_col(&t, "in", RU_TABLE_LEFT);
    for (uint32_t i = 0; i < s->files.n; i++) {
        const program_file *f = &s->files.at[i];
        ru_text where = ru_text_arena(in->arena);
        for (uint32_t k = 0; k < s->n_tiers; k++) {
            if (f->is.in_bytes[k] > 0) {
                ru_text_putf(&where, "%s%s ", where.n > 0 ? ", " : "", s->tiers[k].path);
                ru_text_size_short(&where, f->is.in_bytes[k]);
            }
        }
        ru_table_str(&t, f->is.name);
        ru_table_str(&t, f->space);
        ru_table_bytes(&t, f->is.bytes);
        ru_table_bytes(&t, f->is.expected_bytes);
        ru_table_str(&t, where.p);
    }
    return t;
}

static ru_table list_ckpts(const ru_cmd_in *in, const store *s, bool verify)
{
    ru_table t = ru_table_in(in->arena);
    ru_table_col(&t, "checkpoint", RU_TABLE_LEFT);
    ru_table_col(&t, "run", RU_TABLE_LEFT);
    ru_table_col(&t, "files", RU_TABLE_RIGHT);
    ru_table_col(&t, "size", RU_TABLE_RIGHT);
    ru_table_col(&t, "complete", RU_TABLE_RIGHT);
    ru_table_col(&t, verify ? "damaged" : "in_use", RU_TABLE_RIGHT);
    for (uint32_t k = 0; k < s->n_ckpts; k++) {
        const ru_ckpt_stored *c = &s->ckpts[k];
        if (!wanted(in, c->key)) {
            continue;
        }
        ru_table_str(&t, c->key);
        ru_table_str(&t, c->run[0] != '\0' ? c->run : NULL);
        ru_table_i64(&t, c->files);
        ru_table_bytes(&t, c->bytes);
        ru_table_bool(&t, c->complete);
        if (verify) {
            ru_table_i64(&t, c->damaged);
        } else {
            ru_table_bool(&t, c->in_use);
        }
    }
    return t;
}

static ru_status list_copies(const ru_cmd_in *in, const store *s, ru_table *t, ru_err *err)
{
    ru_copy *copies = NULL;
    uint32_t n = 0;
    *t = ru_table_in(in->arena);
    ru_table_col(t, "copies_in", RU_TABLE_LEFT);
    ru_table_col(t, "step", RU_TABLE_RIGHT);
    ru_table_col(t, "files", RU_TABLE_RIGHT);
    ru_table_col(t, "complete", RU_TABLE_RIGHT);
    RU_TRY(s->copy_to[0] != '\0' ? ru_copies_list(s->copy_to, in->arena, &copies, &n, err) : RU_OK);
    for (uint32_t k = 0; k < n; k++) {
        ru_table_str(t, s->copy_to);
        ru_table_i64(t, copies[k].step);
        ru_table_i64(t, copies[k].files);
        ru_table_bool(t, copies[k].complete);
    }
    return RU_OK;
}

static ru_status run_ls(ru_cmd_in *in, ru_err *err)
{
    store s;
    ru_table copies;
    RU_TRY(open_store(in, &s, err));
    RU_TRY(add_files(&s, in->arena, err));
    RU_TRY(add_ckpts(in, &s, false, err));
    ru_table sets = list_sets(in, &s), files = list_files(in, &s);
    ru_table ckpts = list_ckpts(in, &s, false);
    ru_err why = {0};
    ru_status st = list_copies(in, &s, &copies, &why); /* a store that is away hides no folder */
    RU_TRY(print(in, (const ru_table *const[]){&sets, &files, &ckpts, &copies},
                 (const char *const[]){"sets", "files", "checkpoints", "copies"}, 4, err));
    return st == RU_OK ? st : ru_err_set(err, st, "%s", why.text);
}

/* -- explain ----------------------------------------------------------------------------------- */

static void explain(const store *s, const ru_kept_set *x, ru_text *t)
{
    const ru_kept_about *a = &x->about;
    ru_text_putf(t, "%s in %s\n", x->key, s->tiers[x->tier].path);
    if (a->kind[0] == '\0') {
        ru_text_put(t, "  nobody said what it holds: another version of Rubato made it\n");
        return;
    }
    ru_text_putf(t, "  holds     %s (%s) of %s: %lld records of %lld samples, ",
                 a->kind[0] == 'b' ? "bytes of files" : "decoded samples", a->format, a->data,
                 (long long)x->records, (long long)a->samples);
    ru_text_size_short(t, x->bytes);
    if (a->plan[0] != '\0') {
        ru_text_putf(t,
                     "\n  why       data.cache: auto; the policy keep chose it, plan %s\n"
                     "  expected  reading an epoch takes %.3g s, %.3g s without\n",
                     a->plan, a->epoch_s, a->none_s);
    } else {
        ru_text_putf(t,
                     "\n  why       data.cache: %s in the job\n"
                     "  expected  nothing was predicted (data.cache: auto predicts)\n",
                     a->kind);
    }
    if (a->found > 0 && a->read > 0) {
        ru_text_putf(t,
                     "  measured  %lld of %lld reads of %lld processes came from here; one takes "
                     "%.3g ms of a thread instead of %.3g, which saved %.3g s\n",
                     (long long)a->found, (long long)(a->found + a->read), (long long)a->processes,
                     1e-6 * (double)a->found_ns / (double)a->found,
                     1e-6 * (double)a->read_ns / (double)a->read,
                     1e-9 * (double)ru_kept_saved_ns(a));
    } else {
        ru_text_putf(t, "  measured  %lld of %lld reads of %lld processes came from here\n",
                     (long long)a->found, (long long)(a->found + a->read), (long long)a->processes);
    }
    if (a->damaged > 0) {
        ru_text_putf(t, "  damaged   %lld reads met a damaged record and went to the source\n",
                     (long long)a->damaged);
    }
}

/* A checkpoint, and where each of its files lies. */
static void explain_ckpt(const store *s, const ru_ckpt_stored *c, ru_text *t)
{
    size_t n = strlen(c->key);
    ru_text_putf(t, "%s\n  holds     ", c->key);
    if (c->complete && c->run[0] == '\0') {
        ru_text_put(t, "a checkpoint whose manifest is damaged, or lost with its disk");
    } else if (c->complete) {
        ru_text_putf(t, "a checkpoint of the run in %s, ", c->run);
        ru_text_put(t, c->in_use ? "which still has it" : "which does not have it any more");
    } else {
        ru_text_put(t, "a checkpoint that is being written, or was never finished");
    }
    for (uint32_t i = 0; i < s->files.n; i++) {
        const ru_tier_entry *e = &s->files.at[i].is;
        if (strncmp(e->name, c->key, n) != 0 || e->name[n] != '/') {
            continue;
        }
        ru_text_putf(t, "\n  %s", e->name + n + 1);
        for (uint32_t k = 0, parts = 0; k < s->n_tiers; k++) {
            if (e->in_bytes[k] > 0) {
                ru_text_put(t, parts++ > 0 ? ", then " : ": ");
                ru_text_size_short(t, e->in_bytes[k]);
                ru_text_putf(t, " in %s", s->tiers[k].path);
            }
        }
    }
    ru_text_put(t, "\n  why       checkpoint.in_storage in the job; each file begins in the first "
                   "folder where all of it fitted (first fit), and goes on in the next one\n");
}

/* What decided where files of groups begin, and what that saved. */
static ru_status explain_groups(const ru_cmd_in *in, const store *s, ru_text *t, ru_err *err)
{
    static const char *const why[RU_TIER_BYS] = {
        "there was one folder, or the first one failed",
        "",
        "fewer than 50 files had ended",
        "the library XGBoost is missing",
        "the first trees were being trained",
        "training took too long",
        "training failed",
    };
    static const char *const columns[] = {"space",    "now",          "ended",
                                          "on_first", "expected_usd", "saved_usd",
                                          "by_trees", "decision",     "plan"};
    uint32_t by[RU_TIER_BYS] = {0};
    ru_table groups = ru_table_in(in->arena);
    ru_table_col(&groups, "group", RU_TABLE_LEFT);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(columns); k++) {
        ru_table_col(&groups, columns[k], k == 0 ? RU_TABLE_LEFT : RU_TABLE_RIGHT);
    }
    for (uint32_t k = 0; k < s->groups.n; k++) {
        const program_group *g = &s->groups.at[k];
        for (uint32_t i = 0; i < RU_TIER_BYS; i++) {
            by[i] += g->by[i];
        }
        ru_table_str(&groups, g->name);
        ru_table_str(&groups, g->space);
        ru_table_i64(&groups, g->now);
        ru_table_i64(&groups, g->ended);
        ru_table_percent(&groups, g->sum.size_bytes > 0 ? g->sum.fast_bytes / g->sum.size_bytes : 0,
                         0);
        ru_table_textf(&groups, "%.3g", g->sum.expected_usd);
        ru_table_textf(&groups, "%.3g", g->sum.measured_usd);
        ru_table_i64(&groups, g->by[RU_TIER_BY_TREES]);
        ru_table_ns(&groups, g->ended > 0 ? (int64_t)(1e9 * g->sum.decide_s / g->ended) : 0);
        ru_table_textf(&groups, "%016llx", (unsigned long long)g->plan);
    }
    if (s->groups.n == 0) {
        return RU_OK;
    }
    ru_text_putf(t, "files of groups: %u begin where the policy storage says (trees)\n",
                 by[RU_TIER_BY_TREES]);
    for (uint32_t k = 0; k < RU_TIER_BYS; k++) {
        if (k != RU_TIER_BY_TREES && by[k] > 0) {
            ru_text_putf(t, "  %u in the first folder where they fit (first fit), because %s\n",
                         by[k], why[k]);
        }
    }
    return ru_table_print(&groups, 2, t, err);
}

static const ru_opt job_opts[] = {JOB_OPT};

static ru_status run_explain(ru_cmd_in *in, ru_err *err)
{
    store s;
    ru_text t = ru_text_arena(in->arena);
    RU_TRY(open_store(in, &s, err));
    RU_TRY(add_ckpts(in, &s, false, err));
    RU_TRY(check_keys(in, &s, err));
    RU_TRY(add_files(&s, in->arena, err));
    for (uint32_t k = 0; k < s.n; k++) {
        if (wanted(in, s.sets[k].key)) {
            explain(&s, &s.sets[k], &t);
        }
    }
    for (uint32_t k = 0; k < s.n_ckpts; k++) {
        if (wanted(in, s.ckpts[k].key)) {
            explain_ckpt(&s, &s.ckpts[k], &t);
        }
    }
    if (s.copy_to[0] != '\0' && in->n_args == 0) {
        ru_text_putf(&t, "copies of checkpoints are in %s: checkpoint.copy_to in the job\n",
                     s.copy_to);
    }
    uint32_t others = 0;
    for (uint32_t i = 0; i < s.files.n; i++) {
        others +=
            strcmp(s.files.at[i].space, RU_CKPT_SPACE) != 0 && s.files.at[i].is.group[0] == '\0';
    }
    if (others > 0 && in->n_args == 0) {
        ru_text_putf(&t,
                     "%u files of programs without a group: each begins in the first folder where "
                     "all that was "
                     "expected of it fitted (first fit), and goes on in the next one\n",
                     others);
    }
    RU_TRY(in->n_args == 0 ? explain_groups(in, &s, &t, err) : RU_OK);
    fputs(t.p, stdout);
    return RU_OK;
}

/* -- rm and verify ----------------------------------------------------------------------------- */

static ru_status rm_file(const store *s, const program_file *f, ru_arena *arena, ru_err *err)
{
    ru_tiers *t;
    ru_text size = ru_text_arena(arena);
    const ru_tiers_options o = {.tiers = s->tiers, .n_tiers = s->n_tiers, .space = f->space};
    RU_TRY(ru_tiers_open(&o, &t, err));
    ru_status st = ru_tier_remove(t, f->is.name, err);
    ru_tiers_close(t);
    RU_TRY(st);
    ru_text_size_short(&size, f->is.bytes);
    printf("%s/%s is removed: %s\n", f->space, f->is.name, size.p);
    return RU_OK;
}

static ru_status run_rm(ru_cmd_in *in, ru_err *err)
{
    store s;
    RU_TRY(open_store(in, &s, err));
    RU_TRY(add_ckpts(in, &s, false, err));
    RU_TRY(add_files(&s, in->arena, err));
    RU_TRY(check_keys(in, &s, err));
    for (uint32_t i = 0; i < s.files.n * in->n_args; i++) {
        const program_file *f = &s.files.at[i / in->n_args];
        if (names_file(in->args[i % in->n_args], f)) {
            RU_TRY(rm_file(&s, f, in->arena, err));
        }
    }
    for (uint32_t k = 0; k < s.n; k++) {
        const ru_kept_set *x = &s.sets[k];
        if (wanted(in, x->key)) {
            RU_TRY(ru_kept_remove(&s.tiers[x->tier], x, err));
            ru_text t = ru_text_arena(in->arena);
            ru_text_size_short(&t, x->bytes);
            printf("%s in %s is removed: %s\n", x->key, s.tiers[x->tier].path, t.p);
        }
    }
    for (uint32_t k = 0; k < s.n_ckpts; k++) {
        const ru_ckpt_stored *c = &s.ckpts[k];
        if (wanted(in, c->key)) {
            RU_TRY(ru_ckpt_stored_remove(s.tiers, s.n_tiers, c, err));
            ru_text t = ru_text_arena(in->arena);
            ru_text_size_short(&t, c->bytes);
            printf("%s is removed: %s\n", c->key, t.p);
        }
    }
    return RU_OK;
}

static ru_status run_verify(ru_cmd_in *in, ru_err *err)
{
    store s;
    int64_t records = 0, damaged = 0;
    uint32_t lost = 0;
    ru_table t = ru_table_in(in->arena);
    RU_TRY(open_store(in, &s, err));
    RU_TRY(add_ckpts(in, &s, true, err));
    RU_TRY(check_keys(in, &s, err));
    ru_table_col(&t, "key", RU_TABLE_LEFT);
    ru_table_col(&t, "folder", RU_TABLE_LEFT);
    ru_table_col(&t, "right", RU_TABLE_RIGHT);
    ru_table_col(&t, "size", RU_TABLE_RIGHT);
    ru_table_col(&t, "damaged", RU_TABLE_RIGHT);
    ru_table_col(&t, "damaged_lines", RU_TABLE_RIGHT);
    for (uint32_t k = 0; k < s.n; k++) {
        const ru_kept_set *x = &s.sets[k];
        ru_kept_verified v;
        if (!wanted(in, x->key)) {
            continue;
        }
        RU_TRY(ru_kept_verify(&s.tiers[x->tier], x, &v, err));
        ru_table_textf(&t, "%.*s", ru_cmd_flag(in, "json") ? 32 : KEY_SHOWN, x->key);
        ru_table_str(&t, s.tiers[x->tier].path);
        ru_table_i64(&t, v.records);
        ru_table_bytes(&t, v.bytes);
        ru_table_i64(&t, v.damaged);
        ru_table_i64(&t, v.lines);
        records += v.records;
        damaged += v.damaged + v.lines;
    }
    ru_table ckpts = list_ckpts(in, &s, true);
    for (uint32_t k = 0; k < s.n_ckpts; k++) {
        lost += wanted(in, s.ckpts[k].key) && s.ckpts[k].damaged > 0;
    }
    RU_TRY(print(in, (const ru_table *const[]){&t, &ckpts},
                 (const char *const[]){"sets", "checkpoints"}, 2, err));
    if (lost > 0) {
        return RU_FAIL(err, RU_E_DATA,
                       "%u checkpoints are damaged; their runs go on from older ones", lost);
    }
    return damaged == 0 ? RU_OK
                        : RU_FAIL(err, RU_E_DATA,
                                  "%lld of %lld kept records are damaged; jobs read these samples "
                                  "from their source, and `rubato store rm KEY` removes a dataset",
                                  (long long)damaged, (long long)(records + damaged));
}

/* -- the command ------------------------------------------------------------------------------- */

static const ru_example top_examples[] = {
    {"rubato store top --job job.yaml", "how full the job's folders are and what they saved"},
};
static const ru_example ls_examples[] = {
    {"rubato store ls --job job.yaml", "the datasets and copies of checkpoints, with their keys"},
};
static const ru_example explain_examples[] = {
    {"rubato store explain --job job.yaml 3f09", "why this dataset is kept and what that saved"},
};
static const ru_example rm_examples[] = {
    {"rubato store rm --job job.yaml 3f09", "remove a dataset whose key begins so"},
};
static const ru_example verify_examples[] = {
    {"rubato store verify --job job.yaml", "read all that is kept and compare its checksums"},
};

#define LOOK_EXITS "66 there is no such job|78 the job or RUBATO_STORAGE is wrong"
#define VERB(name_, opts_)                                                                      \
    .name = #name_, .opts = opts_, .n_opts = RU_ARRAY_LEN(opts_), .examples = name_##_examples, \
    .n_examples = RU_ARRAY_LEN(name_##_examples), .run = run_##name_

static const ru_cmd subs[] = {
    {.summary = "show per folder: quota, used, files, reads and what they saved",
     .exits = LOOK_EXITS,
     VERB(top, look_opts)},
    {.summary =
         "list the datasets, files and checkpoints in the folders, and the copies of checkpoints",
     .exits = LOOK_EXITS "|69 the store does not answer",
     VERB(ls, look_opts)},
    {.summary =
         "say why a dataset or a checkpoint is kept there, what that was expected to save and did",
     .args = "[KEY...]",
     .arg_max = UINT32_MAX,
     .exits = LOOK_EXITS,
     VERB(explain, job_opts)},
    {.summary = "remove a dataset or checkpoint that no process or run uses, or a program's file "
                "(SPACE/NAME)",
     RU_CMD_ARGS("KEY...", 1, UINT32_MAX),
     .exits = LOOK_EXITS "|75 a process or a run uses it now",
     VERB(rm, job_opts)},
    {.summary = "compare the checksums of all kept records and checkpoints with their bytes",
     .args = "[KEY...]",
     .arg_max = UINT32_MAX,
     .exits = LOOK_EXITS "|65 records or checkpoints are damaged",
     VERB(verify, look_opts)},
};

const ru_cmd rui_cmd_store = {
    .name = "store",
    .summary = "show, check and free what jobs keep in the folders of `storage`",
    .subs = subs,
    .n_subs = RU_ARRAY_LEN(subs),
};
