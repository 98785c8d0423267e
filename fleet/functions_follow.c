/* Training on what arrives: a thread looks for new files and notes their samples; the loop thread
 * calls workers for those that wait. */
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "env/process/self.h"
#include "fleet/functions_impl.h"

enum {
    SHOWN = 64,      /* files that show what samples look like */
    FILES = 64,      /* of a call, but at least one step */
    STEPS = 256,     /* of a call: then the queue is looked at anew */
    QUEUE_STEPS = 16 /* for each worker, unless data.follow_queue says otherwise */
};
static const int64_t round_ns = 50000000;

/* -- files ----------------------------------------------------------------------------------------
 */

static int64_t look_ns(const rui_functions *a)
{
    return a->opt->train->job->data.follow_ns;
}

/* Until the next look may be; the lock is held. Does it come? */
static bool wait_look(rui_functions *a, ru_time looked, int64_t round)
{
    int64_t left = look_ns(a) - ru_time_since(ru_clock_now(), looked);
    while (left > 0 && !a->slot.ending && !(round > 0 && ru_self_stop_asked() != 0)) {
        (void)ru_cond_wait_for(&a->changed, &a->lock, round > 0 && left > round ? round : left);
        left = look_ns(a) - ru_time_since(ru_clock_now(), looked);
    }
    return left <= 0 && !a->slot.ending;
}

/* Does nobody wait for a look any more? The lock is free. */
static bool is_over(void *self)
{
    rui_functions *a = self;
    ru_mutex_lock(&a->lock);
    bool over = a->slot.ending || ru_self_stop_asked() != 0;
    ru_mutex_unlock(&a->lock);
    return over;
}

static ru_status not_first(const rui_functions *a, bool late, ru_err *err)
{
    const char *dir = a->opt->train->job->data.train.at[0];
    return late ? RU_FAIL(err, RU_E_MISSING, "no file came to %s before --deadline", dir)
                : RU_FAIL(err, RU_E_CANCELLED, "stopped before a file came to %s", dir);
}

/* Until there are files, or it is too late for them. */
static ru_status wait_first(rui_functions *a, const char *const **names, uint32_t *n, ru_err *err)
{
    int64_t deadline = a->opt->scale.deadline_ns;
    ru_time begun = ru_clock_now();
    a->follow.looked = begun;
    RU_TRY(ru_follow_look(a->follow.files, names, n, err));
    for (bool told = false; *n == 0;) {
        ru_mutex_lock(&a->lock);
        bool looks = wait_look(a, a->follow.looked, round_ns);
        ru_mutex_unlock(&a->lock);
        a->follow.looked = ru_clock_now();
        bool late = deadline > 0 && ru_time_since(a->follow.looked, begun) >= deadline;
        if (!looks || late) {
            return not_first(a, late, err);
        }
        RU_TRY(ru_follow_look(a->follow.files, names, n, err));
        if (*n == 0 && !told) {
            ru_log(RU_LOG_INFO, "functions", "follow", "waits for the first file in %s",
                   a->opt->train->job->data.train.at[0]);
            told = true;
        }
    }
    return RU_OK;
}

ru_status rui_functions_first(rui_functions *a, const char *const **files, uint32_t *n, ru_err *err)
{
    const char *dir = a->opt->train->job->data.train.at[0], *const * names;
    RU_TRY(ru_follow_open(dir, is_over, a, &a->follow.files, err));
    ru_status st = wait_first(a, &names, n, err);
    RU_TRY(st == RU_E_CANCELLED ? not_first(a, false, err) : st);
    *n = *n < SHOWN ? *n : SHOWN;
    const char **paths = RU_NEW(&a->follow.arena, const char *, *n);
    for (uint32_t k = 0; k < *n; k++) {
        const char *path =
            paths != NULL ? ru_follow_path(a->follow.files, names[k], &a->follow.arena) : NULL;
        if (path == NULL) {
            return RU_FAIL(err, RU_E_MEM, "no memory for the files of %s", dir);
        }
        paths[k] = path;
    }
    *files = paths;
    return RU_OK;
}

/* Samples of a new file. A damaged one is left out where the job says so. */
static ru_status count(rui_functions *a, const char *path, int64_t *samples, ru_err *err)
{
    ru_dataset *d;
    ru_status st = ru_summed_data(&a->follow.run, &path, 1, &d, err);
    if (st == RU_E_DATA && !a->follow.run.job.data.strict) {
        ru_log(RU_LOG_WARN, "functions", "damaged", "%s is left out (data.strict: false): %s", path,
               err->text);
        *samples = 0;
        return RU_OK;
    }
    RU_TRY(st == RU_OK ? RU_OK : ru_err_wrap(err, st, "a new file, %s", path));
    *samples = ru_dataset_count(d);
    ru_dataset_close(d);
    return RU_OK;
}

/* A store that is away for a while ends nothing: the next look asks it again. */
static bool asks_again(ru_status st, const ru_err *err)
{
    if (st == RU_E_PEER) {
        ru_log(RU_LOG_WARN, "functions", "follow", "it is asked again: %s", err->text);
    }
    return st == RU_E_PEER;
}

static ru_status look(rui_functions *a, ru_arena *scratch, ru_err *err)
{
    ru_follow *f = a->follow.files;
    const char *const *names;
    uint32_t n, taken = 0;
    bool ends = false;
    RU_TRY(ru_follow_look(f, &names, &n, err));
    for (uint32_t k = 0; k < n && !ends; k++) { /* counting many takes long */
        int64_t samples;
        const char *path = ru_follow_path(f, names[k], scratch);
        if (path == NULL) {
            return RU_FAIL(err, RU_E_MEM, "no memory for a name");
        }
        ru_status st = count(a, path, &samples, err);
        if (st == RU_E_MISSING) { /* it went away */
            continue;
        }
        if (asks_again(st, err)) { /* what came later follows it */
            break;
        }
        RU_TRY(st);
        ru_mutex_lock(&a->lock);
        st = ru_follow_take(f, names[k], samples, err);
        ends = a->slot.ending;
        ru_mutex_unlock(&a->lock);
        RU_TRY(st);
        taken++;
    }
    RU_TRY(taken > 0 ? ru_follow_sync(f, err) : RU_OK);
    ru_mutex_lock(&a->lock);
    a->slot.arrived = ru_follow_samples(f);
    ru_mutex_unlock(&a->lock);
    if (taken > 0) {
        ru_log(RU_LOG_INFO, "functions", "follow", "%u new file%s, %lld samples in all", taken,
               taken == 1 ? "" : "s", (long long)ru_follow_samples(f));
        ru_loop_wake(a->loop, a->waker);
    }
    return RU_OK;
}

static void follow_main(void *self)
{
    rui_functions *a = self;
    ru_err err = {0};
    ru_status st = RU_OK;
    while (st == RU_OK) {
        ru_mutex_lock(&a->lock);
        bool goes_on = wait_look(a, a->follow.looked, 0);
        ru_mutex_unlock(&a->lock);
        if (!goes_on) {
            break;
        }
        ru_arena scratch;
        a->follow.looked = ru_clock_now();
        ru_arena_init(&scratch, 0);
        st = look(a, &scratch, &err);
        st = asks_again(st, &err) ? RU_OK : st;
        ru_arena_fini(&scratch);
    }
    if (st != RU_OK && st != RU_E_CANCELLED) {
        rui_functions_fail(a, st, err.text);
    }
}

static void on_deadline(void *self, uint32_t what, ru_time now)
{
    (void)what;
    (void)now;
    ru_log(RU_LOG_INFO, "functions", "deadline", "the time of --deadline is over");
    rui_functions_stop(self);
}

ru_status rui_functions_follow_open(rui_functions *a, ru_err *err)
{
    rui_functions_follow *f = &a->follow;
    const char *notes = ru_path_join(&f->arena, a->run.dir, "follow.files"),
               *log = ru_path_join(&f->arena, a->run.dir, "follow.jsonl");
    if (notes == NULL || log == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a name");
    }
    RU_TRY(ru_summed_job(a->run.facts, (int64_t)strlen(a->run.facts), &f->arena, &f->run, err));
    RU_TRY(ru_follow_begin(f->files, notes, a->run.step > 0, err));
    RU_TRY(ru_log_file_open(log, a->run.step > 0, &f->log, err));
    a->slot.arrived = ru_follow_samples(f->files);
    if (a->slot.arrived < a->run.step * a->run.batch) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s names files with %lld samples, but the run has read %lld; it must stay "
                       "with the checkpoints of the run",
                       notes, (long long)a->slot.arrived, (long long)(a->run.step * a->run.batch));
    }
    if (a->opt->scale.deadline_ns > 0) {
        ru_loop_timer(a->loop, on_deadline, a, 0,
                      ru_time_after(ru_clock_now(), a->opt->scale.deadline_ns));
    }
    return RU_OK;
}

ru_status rui_functions_follow_start(rui_functions *a, ru_err *err)
{
    return ru_thread_start(&a->follow.thread, "follow", follow_main, a, err);
}

void rui_functions_follow_close(rui_functions *a)
{
    ru_log_file_close(a->follow.log);
    ru_follow_close(a->follow.files);
    ru_arena_fini(&a->follow.arena);
}

/* -- choices --------------------------------------------------------------------------------------
 */

/* For `rubato top`, --metrics and explain. */
static void tell(rui_functions *a, int64_t arrived, uint32_t workers)
{
    ru_arena scratch;
    ru_err err = {0};
    a->follow.told = arrived;
    ru_arena_init(&scratch, 0);
    ru_text line = ru_text_arena(&scratch);
    ru_json j = ru_json_into(&line);
    ru_json_open(&j, NULL, '{');
    ru_json_str(&j, "schema", "rubato.follow/1");
    ru_json_f64(&j, "seconds", (double)ru_time_since(ru_clock_now(), a->begun) * 1e-9);
    ru_json_i64(&j, "step", a->done);
    ru_json_i64(&j, "arrived", arrived);
    ru_json_i64(&j, "queue", arrived - a->done * a->run.batch);
    ru_json_i64(&j, "workers", workers);
    ru_json_close(&j);
    ru_text_put(&line, "\n");
    if (line.cut || ru_log_file_append(a->follow.log, line.p, line.n, &err) != RU_OK) {
        ru_log(RU_LOG_WARN, "functions", "follow", "the length of the queue is not told: %s",
               err.text);
    }
    ru_arena_fini(&scratch);
}

static uint32_t workers_for(const rui_functions *a, int64_t queue)
{
    const ru_func_scale_options *o = &a->opt->scale;
    int64_t each = a->opt->train->job->data.follow_queue;
    each = each > 0 ? each : QUEUE_STEPS * a->run.batch;
    int64_t n = queue / each + (queue % each > 0);
    return n < o->workers_min ? o->workers_min : n > o->workers_max ? o->workers_max : (uint32_t)n;
}

void rui_functions_follow_choose(rui_functions *a)
{
    int64_t batch = a->run.batch, read = a->done * batch;
    ru_mutex_lock(&a->lock);
    int64_t arrived = a->slot.arrived, end = arrived / batch;
    if (end > a->done) {
        int64_t reach = ru_follow_reach(a->follow.files, read, FILES) / batch;
        end = end < reach ? end : reach;
        end = end > a->done ? end : a->done + 1;
        end = end < a->done + STEPS ? end : a->done + STEPS;
        end = end < a->run.steps ? end : a->run.steps;
    }
    a->slot.idle = end <= a->done;
    a->slot.rested = a->slot.rested && a->slot.idle;
    ru_cond_broadcast(&a->changed);
    ru_mutex_unlock(&a->lock);
    if (end > a->done) {
        a->choice = (ru_func_choice){.workers = workers_for(a, arrived - read),
                                     .memory_mb = (uint32_t)a->opt->scale.memory_min_mb,
                                     .end = end};
    } else if (!a->follow.waits) {
        ru_log(RU_LOG_INFO, "functions", "follow",
               "waits for samples after step %lld: %lld are there, a step needs %lld",
               (long long)a->done, (long long)(arrived - read), (long long)batch);
    }
    a->follow.waits = end <= a->done;
    tell(a, arrived, a->follow.waits ? 0 : a->choice.workers);
    if (!a->follow.waits) {
        rui_functions_say(a, RU_FUNC_CHOICE, 0, &a->choice, sizeof a->choice);
    }
}

void rui_functions_follow_more(rui_functions *a)
{
    if (a->follow.files == NULL) {
        return;
    }
    ru_mutex_lock(&a->lock);
    int64_t arrived = a->slot.arrived;
    ru_mutex_unlock(&a->lock);
    if (a->follow.waits && arrived / a->run.batch > a->done) {
        rui_functions_follow_choose(a);
    } else if (arrived != a->follow.told) {
        tell(a, arrived, a->follow.waits ? 0 : a->choice.workers);
    }
}

ru_status rui_functions_follow_files(rui_functions *a, const ru_func_call *call, ru_arena *arena,
                                     ru_follow_part *out, ru_err *err)
{
    int64_t batch = a->run.batch;
    ru_mutex_lock(&a->lock);
    ru_status st =
        ru_follow_find(a->follow.files, call->first * batch, call->end * batch, arena, out, err);
    ru_mutex_unlock(&a->lock);
    return st;
}
