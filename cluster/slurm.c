#include "cluster/slurm.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/str.h"
#include "env/process/process.h"

enum { SAID_MAX = 256 << 10, WORDS_MAX = 64, AGAIN_LISTS = 2 };
static const int64_t gap_ns = 1000000000, patience_ns = 30 * INT64_C(1000000000);
static const int64_t look_ns = 3 * INT64_C(1000000000), retry_ns = 10 * INT64_C(1000000000);

typedef enum command { NOTHING, LOOK, SUBMIT, CANCEL } command;

typedef struct seat {
    bool wanted;
    int64_t job;   /* of Slurm; 0: none is known */
    uint32_t lost; /* lists since it was submitted that did not have it */
    bool cancelled;
} seat;

struct ru_slurm {
    const ru_slurm_options *opt;
    char prefix[96];
    seat seats[RU_SLURM_SEATS_MAX];
    int64_t extra[RU_SLURM_SEATS_MAX];
    uint32_t n_extra;
    ru_process *p; /* of the command that runs; NULL: none */
    command runs;
    uint32_t at; /* seat of SUBMIT */
    ru_time begun, looked, refused;
    bool adopted; /* a first list came */
    bool known;   /* what Slurm has: a list came since a command whose end is not certain */
    char *said;   /* [SAID_MAX] */
    int64_t used;
    char error[512], trouble[512]; /* of the command; of the last one that failed */
    uint64_t told;                 /* what was said of troubles last */
};

void ru_slurm_seat_name(uint32_t k, char into[16])
{
    (void)snprintf(into, 16, "slurm%u", k + 1);
}

bool ru_slurm_seat_of(const char *name, uint32_t *k)
{
    int64_t number;
    bool is = strncmp(name, "slurm", 5) == 0 && ru_str_i64(ru_str_c(name + 5), &number) &&
              number >= 1 && number <= RU_SLURM_SEATS_MAX;
    *k = is ? (uint32_t)number - 1 : 0;
    return is;
}

static bool is_plain(const char *text)
{
    return text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                             "-_./+")] == 0;
}

ru_status ru_slurm_open(const ru_slurm_options *opt, ru_arena *arena, ru_slurm **out, ru_err *err)
{
    ru_slurm *s = RU_NEW(arena, ru_slurm, 1);
    char *said = ru_arena_alloc(arena, SAID_MAX, 8);
    if (s == NULL || said == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for Slurm's jobs");
    }
    if (!is_plain(opt->folder) || !is_plain(opt->exe)) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "Slurm's nodes start '%s' in '%s': both paths must have letters, digits and "
                       "-_./+ alone",
                       opt->exe, opt->folder);
    }
    s->opt = opt;
    s->said = said;
    bool own = strcmp(opt->name, "slurm") == 0; /* that of a market has another prefix */
    (void)snprintf(s->prefix, sizeof s->prefix, "rubato-%08x-%.64s%s",
                   (unsigned)ru_hash_bytes(opt->folder, (int64_t)strlen(opt->folder), 1),
                   own ? "" : opt->name, own ? "" : "-");
    *out = s;
    return RU_OK;
}

void ru_slurm_want(ru_slurm *s, uint32_t k, bool wanted)
{
    s->seats[k].wanted = wanted;
}

bool ru_slurm_wanted(const ru_slurm *s, uint32_t k)
{
    return s->seats[k].wanted;
}

bool ru_slurm_empty(const ru_slurm *s)
{
    bool empty = s->known && s->p == NULL && s->n_extra == 0;
    for (uint32_t k = 0; k < s->opt->seats; k++) {
        empty = empty && s->seats[k].job == 0;
    }
    return empty;
}

const char *ru_slurm_trouble(const ru_slurm *s)
{
    return s->trouble;
}

/* -- what Slurm has ------------------------------------------------------------------------------
 */

/* It must go; 0: none. */
static void let_go(rui_slurm_list *out, int64_t id)
{
    if (id != 0 && out->n_extra < RU_SLURM_SEATS_MAX) {
        out->extra[out->n_extra++] = id;
    }
}

void rui_slurm_read(const char *text, const char *prefix, rui_slurm_list *out)
{
    bool runs[RU_SLURM_SEATS_MAX] = {false};
    ru_str rest = ru_str_c(text), line, word[4];
    memset(out, 0, sizeof *out);
    while (ru_str_next(&rest, '\n', &line)) {
        int64_t id, number;
        bool whole = true;
        for (uint32_t k = 0; k < 4; k++) {
            whole = ru_str_next(&line, '|', &word[k]) && whole;
        }
        if (!whole || !ru_str_i64(word[0], &id) || !ru_str_starts(word[2], prefix) ||
            !ru_str_i64(ru_str_from(word[2], (int64_t)strlen(prefix)), &number) || number < 1 ||
            number > RU_SLURM_SEATS_MAX || ru_str_eq_c(word[1], "COMPLETED") ||
            ru_str_eq_c(word[1], "CANCELLED") || ru_str_eq_c(word[1], "FAILED") ||
            ru_str_eq_c(word[1], "TIMEOUT")) {
            continue;
        }
        uint32_t at = (uint32_t)number - 1;
        bool run = ru_str_eq_c(word[1], "RUNNING") || ru_str_eq_c(word[1], "COMPLETING");
        if (ru_str_eq_c(word[3], "launch failed requeued held")) { /* it would wait for ever */
            let_go(out, id);
            continue;
        }
        int64_t goes = out->of[at] == 0 ? 0 : run && !runs[at] ? out->of[at] : id;
        if (goes != id) {
            out->of[at] = id;
            runs[at] = run;
        }
        let_go(out, goes);
    }
}

static void take_list(ru_slurm *s)
{
    rui_slurm_list l;
    rui_slurm_read(s->said, s->prefix, &l);
    for (uint32_t k = 0; k < RU_SLURM_SEATS_MAX; k++) {
        seat *t = &s->seats[k];
        if (t->job != l.of[k]) {
            t->cancelled = false;
        }
        if (t->job != 0 && l.of[k] == 0) { /* a list may be older than a submission */
            t->lost++;
            t->job = t->lost < AGAIN_LISTS ? t->job : 0;
        } else {
            t->lost = 0;
            t->job = l.of[k];
        }
    }
    for (uint32_t k = 0; k < RU_SLURM_SEATS_MAX && !s->adopted; k++) {
        s->seats[k].wanted = s->seats[k].job != 0;
    }
    s->adopted = true;
    memcpy(s->extra, l.extra, sizeof s->extra);
    s->n_extra = l.n_extra;
    s->known = true;
}

/* -- commands ------------------------------------------------------------------------------------
 */

/* Each new trouble once. */
static void complain(ru_slurm *s, const char *program, const char *what)
{
    uint64_t hash = ru_hash_bytes(what, (int64_t)strlen(what), 1);
    if (hash != s->told) {
        s->told = hash;
        ru_log(RU_LOG_WARN, "cluster", "slurm", "%s: %s", program, what);
    }
}

static void begin(ru_slurm *s, command what, const char *const *argv, ru_time now)
{
    ru_err err;
    s->begun = now;
    s->used = 0;
    s->error[0] = 0;
    if (ru_process_start(&(ru_process_options){.argv = argv,
                                               .pipe_in = true,
                                               .pipe_out = true,
                                               .pipe_err = true,
                                               .own_group = true},
                         &s->p, &err) != RU_OK) {
        complain(s, argv[0], err.text);
        s->refused = now;
        s->p = NULL;
        return;
    }
    s->runs = what;
}

static void submit(ru_slurm *s, uint32_t k, ru_time now)
{
    const ru_slurm_options *o = s->opt;
    char name[128], cpus[32], log[2048], wrap[4096], seat_name[80];
    uint32_t cores = o->slots * o->threads, n = 9;
    (void)snprintf(seat_name, sizeof seat_name, "%.64s%u", o->name, k + 1);
    (void)snprintf(name, sizeof name, "--job-name=%s%u", s->prefix, k + 1);
    (void)snprintf(cpus, sizeof cpus, "--cpus-per-task=%u", cores);
    (void)snprintf(log, sizeof log, "--output=%s/log/%s", o->folder, seat_name);
    (void)snprintf(wrap, sizeof wrap,
                   "--wrap=exec srun --ntasks=1 --cpus-per-task=%u %s cluster agent --leaves "
                   "--cluster %s --node %s",
                   cores, o->exe, o->folder, seat_name);
    char partition[256];
    (void)snprintf(partition, sizeof partition, "--partition=%s", o->partition);
    const char *argv[WORDS_MAX] = {"sbatch",     "--parsable", "--nodes=1",
                                   "--ntasks=1", "--requeue",  "--open-mode=append",
                                   name,         cpus,         log};
    if (o->partition[0] != 0) {
        argv[n++] = partition;
    }
    for (uint32_t i = 0; i < o->options.n && n < WORDS_MAX - 2; i++) {
        argv[n++] = o->options.at[i];
    }
    argv[n++] = wrap;
    argv[n] = NULL;
    s->at = k;
    begin(s, SUBMIT, argv, now);
}

/* Jobs that nobody wants; false: there are none. */
static bool cancel(ru_slurm *s, ru_time now)
{
    enum { AT_ONCE = 32 };
    char numbers[AT_ONCE][24];
    const char *argv[AT_ONCE + 2] = {"scancel"};
    uint32_t n = 0;
    for (uint32_t k = 0; k < RU_SLURM_SEATS_MAX && n < AT_ONCE; k++) {
        seat *t = &s->seats[k];
        if (t->job != 0 && !t->cancelled && !(t->wanted && k < s->opt->seats)) {
            (void)snprintf(numbers[n++], 24, "%lld", (long long)t->job);
            t->cancelled = true;
        }
    }
    while (s->n_extra > 0 && n < AT_ONCE) {
        (void)snprintf(numbers[n++], 24, "%lld", (long long)s->extra[--s->n_extra]);
    }
    for (uint32_t k = 0; k < n; k++) {
        argv[1 + k] = numbers[k];
    }
    if (n > 0) {
        begin(s, CANCEL, argv, now);
    }
    return n > 0;
}

static void end(ru_slurm *s, ru_time now)
{
    int code = ru_process_wait(s->p);
    int64_t id, n = ru_process_read(s->p, true, s->error, sizeof s->error - 1);
    if (n > 0) {
        s->error[n] = 0;
    }
    ru_process_close(s->p);
    s->p = NULL;
    s->said[s->used] = 0;
    s->error[strcspn(s->error, "\n")] = 0;
    s->known = code == 0 && s->runs != CANCEL;
    if (code != 0) {
        static const char *const names[] = {"", "squeue", "sbatch", "scancel"};
        complain(s, names[s->runs], s->error[0] != 0 ? s->error : "it failed without a word");
        (void)snprintf(s->trouble, sizeof s->trouble, "%s", s->error);
        s->refused = now;
        for (uint32_t k = 0; k < RU_SLURM_SEATS_MAX; k++) {
            s->seats[k].cancelled = s->seats[k].cancelled && s->runs != CANCEL;
        }
    } else if (s->runs == LOOK) {
        take_list(s);
    } else if (s->runs == SUBMIT &&
               ru_str_i64(ru_str_n(s->said, (int64_t)strspn(s->said, "0123456789")), &id)) {
        s->seats[s->at] = (seat){.wanted = s->seats[s->at].wanted, .job = id};
        s->refused = (ru_time){0};
        s->trouble[0] = 0;
        ru_log(RU_LOG_INFO, "cluster", "slurm", "%s%u is job %lld of Slurm", s->opt->name,
               s->at + 1, (long long)id);
    }
    s->runs = NOTHING;
}

/* What the command says now; true: it has ended. */
static bool hear(ru_slurm *s, ru_time now)
{
    int64_t n, room = SAID_MAX - 1 - s->used;
    while ((n = ru_process_read(s->p, false, s->said + s->used, room)) > 0) {
        s->used += n;
        room -= n;
        if (room == 0) { /* more than any list of ours: it would be cut */
            ru_process_kill(s->p, SIGKILL);
            return true;
        }
    }
    if (n == 0 && ru_time_since(now, s->begun) > patience_ns) {
        ru_process_kill(s->p, SIGKILL);
        (void)snprintf(s->error, sizeof s->error, "no answer in 30 s");
        return true;
    }
    return n < 0;
}

static void step(ru_slurm *s, ru_time now)
{
    static const char *const look[] = {"squeue", "--me", "--noheader", "--format=%i|%T|%j|%r",
                                       NULL};
    if (s->p != NULL) {
        if (!hear(s, now)) {
            return;
        }
        end(s, now);
    }
    if (s->begun.ns != 0 && ru_time_since(now, s->begun) < gap_ns) {
        return;
    }
    if (!s->known || ru_time_since(now, s->looked) > look_ns) {
        s->looked = now;
        begin(s, LOOK, look, now);
        return;
    }
    if (cancel(s, now) || (s->refused.ns != 0 && ru_time_since(now, s->refused) < retry_ns)) {
        return;
    }
    for (uint32_t k = 0; k < s->opt->seats; k++) {
        if (s->seats[k].wanted && s->seats[k].job == 0) {
            submit(s, k, now);
            return;
        }
    }
}

bool ru_slurm_tick(ru_slurm *s, ru_time now)
{
    step(s, now);
    return s->adopted;
}

void ru_slurm_close(ru_slurm *s)
{
    if (s != NULL) {
        ru_process_close(s->p);
    }
}
