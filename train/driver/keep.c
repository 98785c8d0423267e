#include "train/driver/keep.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "data/probe.h"
#include "env/file/file.h"
#include "env/file/grow.h"
#include "env/process/memory.h"
#include "env/process/self.h"
#include "exec/pool.h"
#include "plan/disk/keep.h"
#include "train/job/batch.h"

#define DISK_MB_PER_S 500.0 /* where it cannot be measured */

enum { TRY_BYTES = 16 << 20, BLOCK_BYTES = 4 << 20, TRY_PART = 16, LIKE_MAX = 15 };
enum { EARLY_FROM = 16, EARLY_TO = 4, EARLY_STEPS = 2 }; /* parts of the first epoch; at least */
#define EARLY_NOISE 0.33
static const int64_t fresh_ns = INT64_C(86400000000000); /* a day */

/* What a set was opened with. */
typedef struct opened {
    ru_data_options opt;
    ru_columns columns;
} opened;

/* Where an epoch stands that began with its first sample. */
typedef struct place {
    ru_time at;
    int64_t samples, beside_ns;
} place;

/* An epoch: what it took, and of that training. */
typedef struct epoch {
    double took_s, own_s;
} epoch;

struct rui_keep {
    ru_keep_in in;    /* hosts 0: nothing is chosen yet */
    ru_keep_in alone; /* as measured before the first step */
    opened train, test;
    uint32_t cores;               /* of this process */
    uint32_t form, chosen;        /* chosen: for so many hosts; 0: nothing yet */
    int64_t epochs;               /* that are over */
    ru_time begun, last;          /* this one; its last step ended */
    int64_t waited_ns, beside_ns; /* in it: for samples; between steps */
    uint32_t told;                /* whole epochs that were seen since the choice */
    bool whole;                   /* it was seen from its beginning */
    bool early;                   /* the newest prediction came within the first epoch */
    place from;                   /* at a 16th of that epoch */
    int64_t least_ns;             /* that a step took since then, without waits */
    int64_t waited_last;          /* waited_ns at the last step */
    epoch like[LIKE_MAX];         /* ring: those from the third on, with these hosts */
    uint32_t n_like, since;       /* since: after the newest prediction */
};

/* What was measured, for processes that ask the same. */
typedef struct record {
    uint64_t bytes; /* of this struct: another version has another */
    ru_keep_in in;
    uint64_t hash; /* of what stands before */
} record;

/* -- measuring --------------------------------------------------------------------------------- */

static double rate_since(ru_time from, int64_t bytes)
{
    int64_t ns = ru_time_since(ru_clock_now(), from);
    return ns > 0 ? 1e3 * (double)bytes / (double)ns : DISK_MB_PER_S;
}

static ru_status write_try(const char *path, const void *block, int64_t bytes, double *mb_per_s,
                           ru_err *err)
{
    ru_out *o;
    ru_time from = ru_clock_now();
    RU_TRY(ru_out_open_own(path, &o, err));
    ru_status st = RU_OK;
    for (int64_t at = 0; st == RU_OK && at < bytes; at += BLOCK_BYTES) {
        st = ru_out_write(o, block, BLOCK_BYTES, err);
    }
    st = st == RU_OK ? ru_out_commit(o, err) : st;
    ru_out_close(o);
    *mb_per_s = rate_since(from, bytes);
    return st;
}

static ru_status read_try(const char *path, void *block, int64_t bytes, bool memory,
                          double *mb_per_s, ru_err *err)
{
    ru_in_file f;
    RU_TRY(ru_in_open_own(path, &f, err));
    ru_status st = memory || ru_in_direct(&f) ? RU_OK : RU_E_UNSUPPORTED;
    ru_time from = ru_clock_now();
    for (int64_t at = 0; st == RU_OK && at < bytes; at += BLOCK_BYTES) {
        st = ru_in_read(&f, path, at, block, BLOCK_BYTES, err);
    }
    *mb_per_s = rate_since(from, bytes);
    ru_in_close(&f);
    return st;
}

/* Of the first folder; what cannot be measured is left as it is. A small set is soon read: then
 * measuring does not take long either. What half of the free memory has room for stays there when
 * it was written, and is read from there. */
static void measure_disk(const char *path, ru_keep_in *in)
{
    double mb_per_s = 0;
    int64_t most = in->decoded_bytes > in->bytes ? in->decoded_bytes : in->bytes;
    int64_t bytes = most * in->samples / TRY_PART / BLOCK_BYTES * BLOCK_BYTES;
    bytes = bytes < BLOCK_BYTES ? BLOCK_BYTES : bytes > TRY_BYTES ? TRY_BYTES : bytes;
    ru_err none = {0};
    uint8_t *block = aligned_alloc(RU_DIRECT_BYTES, BLOCK_BYTES);
    if (block == NULL) {
        return;
    }
    memset(block, 0x5a, BLOCK_BYTES);
    bool memory = 2 * most * in->samples < ru_memory_free_bytes(); /* holds what was written */
    if (write_try(path, block, bytes, &mb_per_s, &none) == RU_OK) {
        in->write_mb_per_s = mb_per_s;
        in->read_mb_per_s = read_try(path, block, bytes, memory, &mb_per_s, &none) == RU_OK
                                ? mb_per_s
                                : in->read_mb_per_s;
        (void)!ru_path_remove(path, &none);
    }
    free(block);
}

static int64_t epochs_of(const rui_trainer *t)
{
    const ru_job_train *j = &t->job->train;
    int64_t by_steps = j->steps > 0 ? (j->steps * j->batch + t->count - 1) / t->count : 0;
    int64_t n = by_steps > 0 ? by_steps : j->epochs;
    return n < 1 ? 1 : n < RU_KEEP_EPOCHS_MAX ? n : RU_KEEP_EPOCHS_MAX;
}

static ru_status measure(rui_trainer *t, const char *folder, ru_keep_in *in, ru_err *err)
{
    ru_data_probe p;
    const char *path = ru_arena_printf(t->arena, "%s/try", folder);
    RU_TRY(ru_data_probe_take(t->train_set, &p, err));
    *in = (ru_keep_in){.samples = t->count,
                       .fetch_s = p.fetch_s,
                       .decode_s = p.decode_s,
                       .unpack_s = p.unpack_s,
                       .bytes = p.bytes,
                       .decoded_bytes = p.decoded_bytes,
                       .read_mb_per_s = DISK_MB_PER_S,
                       .write_mb_per_s = DISK_MB_PER_S,
                       .gain_min = 0.02};
    if (path != NULL && (p.bytes > 0 || p.decoded_bytes > 0)) {
        measure_disk(path, in);
    }
    return RU_OK;
}

/* -- one answer for the processes of this machine ---------------------------------------------- */

static bool read_record(const char *path, int64_t samples, ru_keep_in *in)
{
    record *r = NULL;
    int64_t n;
    ru_err none = {0};
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    bool fresh = ru_clock_wall_ns() - ru_path_changed_ns(path) < fresh_ns;
    bool fine = fresh && ru_file_read(path, sizeof *r, &scratch, (char **)&r, &n, &none) == RU_OK &&
                n == (int64_t)sizeof *r && r->bytes == sizeof *r &&
                r->hash == ru_hash_bytes(r, offsetof(record, hash), 0) && r->in.samples == samples;
    if (fine) {
        *in = r->in;
    }
    ru_arena_fini(&scratch);
    return fine;
}

/* The first folder of `storage` that takes files, and what others measured there; its lock. */
static ru_status get_turn(rui_trainer *t, const char *key, const char **folder, const char **path,
                          ru_lock **lock, ru_err *err)
{
    ru_status st = RU_E_CREATE;
    for (uint32_t k = 0; st == RU_E_CREATE && k < t->job->storage.n; k++) {
        *folder = ru_path_join(t->arena, t->job->storage.at[k].path, "samples");
        *path = *folder != NULL ? ru_arena_printf(t->arena, "%s/auto-%s", *folder, key) : NULL;
        const char *turn = *path != NULL ? ru_arena_printf(t->arena, "%s/auto", *folder) : NULL;
        if (turn == NULL) {
            return RU_FAIL(err, RU_E_MEM, "no memory for the names of kept samples");
        }
        st = ru_dir_make(*folder, err);
        if (st == RU_OK && !ru_dir_is_own(*folder)) {
            return RU_FAIL(err, RU_E_CONFIG,
                           "storage: %s belongs to another user, or others may write into it; name "
                           "a folder of your own, or run: chmod go-w %s",
                           *folder, *folder);
        }
        st = st == RU_OK ? ru_lock_open(turn, true, true, lock, err) : st;
    }
    return st;
}

/* Workers of one host take turns, so that one measures and all keep the same. */
static ru_status get_measured(rui_trainer *t, const ru_data_options *opt, ru_keep_in *in,
                              ru_err *err)
{
    ru_hasher h;
    ru_lock *lock = NULL;
    ru_hasher_init(&h);
    ru_hasher_put_str(&h, opt->format);
    for (uint32_t k = 0; k < opt->n_paths; k++) {
        ru_hasher_put_str(&h, opt->paths[k]);
    }
    ru_hasher_put_u64(&h, (uint64_t)opt->image_size);
    ru_hasher_put_u64(&h, t->job->data.threads);
    char key[33];
    ru_hash128_text(ru_hasher_get(&h), key);
    const char *folder, *path;
    RU_TRY(get_turn(t, key, &folder, &path, &lock, err));
    ru_status st = RU_OK;
    if (!read_record(path, t->count, in)) {
        st = measure(t, folder, in, err);
        record r = {.bytes = sizeof r, .in = *in};
        r.hash = ru_hash_bytes(&r, offsetof(record, hash), 0);
        ru_err none = {0};
        if (st == RU_OK && ru_file_own(path, &r, sizeof r, &none) != RU_OK) {
            ru_log(RU_LOG_WARN, "data", "cache", "%s", none.text);
        }
    }
    ru_lock_close(lock);
    return st;
}

/* -- the decision ------------------------------------------------------------------------------ */

static void copy_opened(opened *to, const ru_data_options *opt)
{
    to->opt = *opt;
    if (opt->columns != NULL) {
        to->columns = *opt->columns;
        to->opt.columns = &to->columns;
    }
}

ru_status rui_keep_measure(rui_trainer *t, const ru_data_options *opt, ru_err *err)
{
    ru_keep_in in;
    RU_TRY(get_measured(t, opt, &in, err));
    return rui_keep_open(t, opt, &in, err);
}

ru_status rui_keep_open(rui_trainer *t, const ru_data_options *opt, const ru_keep_in *measured,
                        ru_err *err)
{
    struct rui_keep *k = RU_NEW(t->arena, struct rui_keep, 1);
    if (k == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for what is known of the training data");
    }
    copy_opened(&k->train, opt);
    k->cores = ru_self_cores();
    k->alone = k->in = *measured;
    for (uint32_t i = 0; i < t->job->storage.n; i++) {
        k->in.room_bytes += t->job->storage.at[i].quota_bytes;
    }
    t->keep = k;
    return RU_OK;
}

void rui_keep_test(rui_trainer *t, const ru_data_options *opt)
{
    copy_opened(&t->keep->test, opt);
}

/* Workers of one host share its folders, and each has threads and cores of its own. True: it is
 * not as it was; then epochs that were seen say nothing of those that follow. */
static bool count_hosts(const rui_trainer *t, struct rui_keep *k)
{
    const ru_job *j = t->job;
    uint32_t mates, hosts = rui_trainer_hosts(t, &mates);
    uint32_t readers = mates * (j->data.threads > 0 ? j->data.threads : 1);
    if (k->in.hosts == hosts && k->in.readers == readers) {
        return false;
    }
    k->n_like = k->since = 0;
    k->whole = false;
    k->in.hosts = hosts;
    k->in.readers = readers;
    k->in.cores = mates * k->cores;
    k->in.threads = mates * (j->train.threads > 0 ? (uint32_t)j->train.threads : k->cores);
    return true;
}

static ru_status keep_set(const struct rui_keep *k, ru_dataset *set, opened *o, ru_err *err)
{
    static const ru_cache_kind kinds[RU_KEPT_FORMS] = {
        [RU_KEPT_NONE] = RU_CACHE_NONE,
        [RU_KEPT_BYTES] = RU_CACHE_BYTES,
        [RU_KEPT_DECODED] = RU_CACHE_DECODED,
    };
    o->opt.cache.kind = kinds[k->form];
    return k->form == RU_KEPT_NONE || set == NULL ? RU_OK : ru_dataset_keep(set, &o->opt, err);
}

static ru_status choose(rui_trainer *t, ru_err *err)
{
    ru_keep_plan p;
    struct rui_keep *k = t->keep;
    char *id = RU_NEW(t->arena, char, 33);
    if (id == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the id of a plan");
    }
    int64_t left = epochs_of(t) - t->samples / t->count;
    k->in.epochs = left > 1 ? left : 1;
    k->in.method = RU_KEEP_BEST;
    RU_TRY(ru_plan_keep(&k->in, &p, err));
    RU_TRY(ru_plan_keep_check(&k->in, &p, err));
    k->form = p.form;
    k->chosen = k->in.hosts;
    k->told = 0; /* its first epoch follows */
    k->early = false;
    ru_hash128_text(ru_policy_head(&ru_policy_keep, &k->in).id, id);
    ru_cache_options *c = &k->train.opt.cache;
    c->plan = id;
    c->none_s = p.none_s;
    c->epoch_s = p.epoch_s;
    ru_decisions_add(t->decisions, &ru_policy_keep, &k->in, false);
    ru_log(RU_LOG_INFO, "data", "cache",
           "auto keeps %s: reading an epoch takes %.3g s in the end, %.3g s without; hosts %u, "
           "kept ones are %.3g %% of the last reads",
           p.form == RU_KEPT_BYTES     ? "the bytes of samples"
           : p.form == RU_KEPT_DECODED ? "decoded samples"
                                       : "nothing",
           p.epoch_s, p.none_s, k->in.hosts, 100 * p.hit);
    RU_TRY(keep_set(k, t->train_set, &k->train, err));
    return keep_set(k, t->test_set, &k->test, err);
}

ru_status rui_keep_begin(rui_trainer *t, ru_err *err)
{
    struct rui_keep *k = t->keep;
    /* what is kept stays in its form; where nothing is, other hosts may make it worth its place */
    if (k == NULL || (k->chosen > 0 && k->form != RU_KEPT_NONE)) {
        return RU_OK;
    }
    (void)count_hosts(t, k);
    if (k->chosen == k->in.hosts) {
        return RU_OK;
    }
    bool sealed = rui_trainer_seal(t, false);
    ru_status st = choose(t, err);
    (void)rui_trainer_seal(t, sealed);
    return st;
}

/* -- what training takes ----------------------------------------------------------------------- */

void rui_keep_waited(rui_trainer *t, int64_t ns)
{
    if (t->keep != NULL) {
        t->keep->waited_ns += ns;
    }
}

static int by_time(const void *a, const void *b)
{
    double x = ((const epoch *)a)->took_s, y = ((const epoch *)b)->took_s;
    return (x > y) - (x < y);
}

/* The middle one of the newest `n` epochs. */
static epoch middle(const struct rui_keep *k, uint32_t n)
{
    epoch at[LIKE_MAX];
    n = n < LIKE_MAX ? n : LIKE_MAX;
    RU_CHECK(n > 0 && n <= k->n_like);
    for (uint32_t i = 0; i < n; i++) {
        at[i] = k->like[(k->n_like - 1 - i) % LIKE_MAX];
    }
    qsort(at, n, sizeof *at, by_time);
    return at[(n - 1) / 2];
}

/* What steps take, from epochs in which samples are kept: in the first one steps begin after long
 * waits, with cold caches: one of 2.9 ms took 4.2 ms after 55 ms of waiting, with nothing beside
 * it. Reading from the disk took no longer than the epoch. What it took beyond the slowest stage,
 * or less than that, is given to all stages alike: others want the cores too, the kernel may hold
 * what is kept in memory, and a stage waits at times for the next one. Where they differ by less
 * than `noise`, the mean of both measurements counts. */
static ru_status find_times(const rui_trainer *t, struct rui_keep *k, epoch e, double noise,
                            ru_err *err)
{
    ru_keep_plan p;
    ru_keep_in in = k->in;
    RU_CHECK(in.hosts > 0 && e.took_s > 0);
    in.fetch_s = k->alone.fetch_s;
    in.decode_s = k->alone.decode_s;
    in.unpack_s = k->alone.unpack_s;
    in.read_mb_per_s = k->alone.read_mb_per_s;
    in.write_mb_per_s = k->alone.write_mb_per_s;
    in.epochs = k->told + 1 < RU_KEEP_EPOCHS_MAX ? k->told + 1 : RU_KEEP_EPOCHS_MAX;
    in.method = RU_KEEP_NONE + k->form;
    RU_TRY(ru_plan_keep(&in, &p, err)); /* how much of it was read from kept samples */
    bool decoded = k->form == RU_KEPT_DECODED;
    double part = (double)in.hosts / (double)t->count; /* seconds of a sample of this host */
    double kept = decoded ? p.hit : 0, mb = 1e-6 * (double)(decoded ? in.decoded_bytes : in.bytes);
    ru_keep_in reading = in;
    reading.decode_s = (1 - kept) * in.decode_s + kept * in.unpack_s;
    in.read_mb_per_s = fmax(in.read_mb_per_s, mb * p.hit / (e.took_s * part));
    in.train_s = fmax(ru_keep_train_alone(&reading, e.own_s * part, e.took_s * part), 1e-12);
    RU_TRY(ru_plan_keep(&in, &p, err));
    double slow = e.took_s / p.epoch_s;
    slow = fabs(slow - 1) < noise ? (1 + slow) / 2 : slow;
    in.fetch_s *= slow;
    in.decode_s *= slow;
    in.unpack_s *= slow;
    in.train_s *= slow;
    in.read_mb_per_s /= slow;
    in.write_mb_per_s /= slow;
    in.epochs = k->in.epochs;
    k->in = in;
    return RU_OK;
}

static void predict(const rui_trainer *t, struct rui_keep *k)
{
    k->since = 0;
    k->in.method = RU_KEEP_NONE + k->form;
    ru_decisions_add(t->decisions, &ru_policy_keep, &k->in, false);
}

/* From a 16th of the first epoch to a quarter of it: what steps take, and how long all stages take
 * beside each other. Before, reading alone is known. The shortest step counts: most are slowed by
 * cold caches after a wait, as above. Tried too, with 1,024 JPEGs that all fit: the mean step, and
 * all stages scaled by what this part of the epoch took; the third epoch was 17 to 90 % off, and is
 * 0 to 20 % off now. */
static void look_early(rui_trainer *t, struct rui_keep *k, ru_time before, ru_time now)
{
    ru_err none = {0};
    const place p = {now, t->samples % t->count, k->beside_ns};
    if (k->told > 0 || !k->whole || k->early) {
        return;
    }
    if (k->from.at.ns == 0) {
        k->from = p.samples * EARLY_FROM >= t->count ? p : k->from;
        k->least_ns = INT64_MAX;
        return;
    }
    int64_t own_ns = ru_time_since(now, before) - (k->waited_ns - k->waited_last);
    own_ns = own_ns > 0 ? own_ns : 0;
    k->least_ns = own_ns < k->least_ns ? own_ns : k->least_ns;
    int64_t n = p.samples - k->from.samples;
    if (p.samples * EARLY_TO < t->count || n < EARLY_STEPS * t->batch) {
        return;
    }
    double all = 1e-9 * (double)t->count;
    int64_t ns = ru_time_since(now, k->from.at) - (p.beside_ns - k->from.beside_ns);
    const epoch e = {all * (double)ns / (double)n, all * (double)k->least_ns / (double)t->batch};
    if (ns > 0 && find_times(t, k, e, EARLY_NOISE, &none) == RU_OK) {
        bool sealed = rui_trainer_seal(t, false);
        predict(t, k);
        (void)rui_trainer_seal(t, sealed);
        k->early = true;
    }
}

/* An epoch is over, which took so long. What is kept stays in its form. The second one does not
 * count: it still keeps what came too fast for the disk in the first. Predictions come after one,
 * two, four, eight, ... of those from the third on. */
static void end_epoch(const rui_trainer *t, struct rui_keep *k, double took_s)
{
    ru_err none = {0};
    bool others = count_hosts(t, k), found = false;
    if (k->whole && took_s > 0) {
        if (k->told == 0) {
            ru_decisions_measured(t->decisions, &ru_policy_keep, "first_s", RU_NAN, took_s);
        } else if (k->told > 1) {
            k->like[k->n_like++ % LIKE_MAX] =
                (epoch){took_s, fmax(took_s - 1e-9 * (double)k->waited_ns, 0)};
            k->since += k->n_like > 1 || k->early;
            if (k->since > 0) {
                ru_decisions_measured(t->decisions, &ru_policy_keep, "epoch_s", RU_NAN,
                                      middle(k, k->since).took_s);
            }
            found = (k->n_like & (k->n_like - 1)) == 0 &&
                    find_times(t, k, middle(k, k->n_like), 0, &none) == RU_OK;
        }
        k->told++;
    }
    if (others || found) {
        predict(t, k);
        k->early = false;
    }
}

/* Evaluations and what else stands between steps count in no epoch. */
void rui_keep_stepped(rui_trainer *t, ru_time begun, ru_time now)
{
    struct rui_keep *k = t->keep;
    if (k == NULL || k->in.hosts == 0) {
        return;
    }
    int64_t epochs = t->samples / t->count, before = t->samples - t->batch;
    if (k->begun.ns == 0) {
        k->begun = begun;
        k->epochs = before / t->count;
        k->whole = before % t->count == 0;
    }
    bool beside = k->last.ns != 0 && begun.ns > k->last.ns;
    ru_time from = beside || k->last.ns == 0 ? begun : k->last;
    k->beside_ns += beside ? begun.ns - k->last.ns : 0;
    k->last = now;
    if (epochs == k->epochs) {
        look_early(t, k, from, now);
        k->waited_last = k->waited_ns;
        return;
    }
    bool sealed = rui_trainer_seal(t, false);
    end_epoch(t, k, 1e-9 * (double)(ru_time_since(now, k->begun) - k->beside_ns));
    (void)rui_trainer_seal(t, sealed);
    k->whole = true;
    k->epochs = epochs;
    k->begun = now;
    k->waited_ns = k->waited_last = k->beside_ns = 0;
    k->from = (place){0};
}
