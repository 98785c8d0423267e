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

struct ru_slurm_shell {
    ru_slurm *of[RU_SLURM_MAX];
    uint32_t n, turn;
    ru_process *p; /* of the command that runs; NULL: none */
    ru_slurm *by;  /* who runs it */
    command runs;
    uint32_t at; /* seat of SUBMIT */
    ru_time begun, looked;
    char *said; /* [SAID_MAX] */
    int64_t used;
    char error[512];
    uint64_t told; /* what was said of troubles last */
};

struct ru_slurm {
    const ru_slurm_options *opt;
    ru_slurm_shell *shell;
    char prefix[96];
    seat seats[RU_SLURM_SEATS_MAX];
    int64_t extra[RU_SLURM_SEATS_MAX];
    uint32_t n_extra;
    ru_time refused;
    bool adopted;      /* a first list came */
    bool known;        /* what Slurm has: a list came since a command whose end is not certain */
    char trouble[512]; /* of the last command that failed */
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

ru_status ru_slurm_shell_open(ru_arena *arena, ru_slurm_shell **out, ru_err *err)
{
    ru_slurm_shell *h = RU_NEW(arena, ru_slurm_shell, 1);
    char *said = ru_arena_alloc(arena, SAID_MAX, 8);
    if (h == NULL || said == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for Slurm's jobs");
    }
    h->said = said;
    *out = h;
    return RU_OK;
}

void ru_slurm_shell_close(ru_slurm_shell *h)
{
    if (h != NULL) {
        ru_process_close(h->p);
    }
}

ru_status ru_slurm_open(const ru_slurm_options *opt, ru_slurm_shell *shell, ru_arena *arena,
                        ru_slurm **out, ru_err *err)
{
    RU_CHECK(shell->n < RU_SLURM_MAX);
    ru_slurm *s = RU_NEW(arena, ru_slurm, 1);
    if (s == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for Slurm's jobs");
    }
    if (!is_plain(opt->folder) || !is_plain(opt->exe)) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "Slurm's nodes start '%s' in '%s': both paths must have letters, digits and "
                       "-_./+ alone",
                       opt->exe, opt->folder);
    }
    s->opt = opt;
    s->shell = shell;
    shell->of[shell->n++] = s;
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
    bool mine = s->shell->p != NULL && s->shell->by == s;
    bool empty = s->known && !mine && s->n_extra == 0;
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
    rui_slurm_read(s->shell->said, s->prefix, &l);
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
}

/* -- commands ------------------------------------------------------------------------------------
 */

/* Each new trouble once. */
static void complain(ru_slurm_shell *h, const char *program, const char *what)
{
    uint64_t hash = ru_hash_bytes(what, (int64_t)strlen(what), 1);
    if (hash != h->told) {
        h->told = hash;
        ru_log(RU_LOG_WARN, "cluster", "slurm", "%s: %s", program, what);
    }
}

/* Nothing has come of a command: it is tried again. */
static void failed(ru_slurm *s, command what, const char *why, ru_time now)
{
    (void)snprintf(s->trouble, sizeof s->trouble, "%s", why);
    s->refused = now;
    for (uint32_t k = 0; k < RU_SLURM_SEATS_MAX; k++) {
        s->seats[k].cancelled = s->seats[k].cancelled && what != CANCEL;
    }
}

static void begin(ru_slurm *s, command what, const char *const *argv, ru_time now)
{
    ru_err err;
    ru_slurm_shell *h = s->shell;
    h->begun = now;
    h->used = 0;
    h->error[0] = 0;
    h->by = s;
    if (ru_process_start(&(ru_process_options){.argv = argv,
                                               .pipe_in = true,
                                               .pipe_out = true,
                                               .pipe_err = true,
                                               .own_group = true},
                         &h->p, &err) != RU_OK) {
        complain(h, argv[0], err.text);
        failed(s, what, err.text, now);
        h->p = NULL;
        return;
    }
    h->runs = what;
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
    s->shell->at = k;
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

/* A command of s has ended; h->said and h->error are whole. */
static void follow(ru_slurm *s, const ru_slurm_shell *h, int code, ru_time now)
{
    int64_t id;
    s->known = code == 0 && h->runs != CANCEL;
    if (code != 0) {
        failed(s, h->runs, h->error, now);
    } else if (h->runs == LOOK) {
        take_list(s);
    } else if (h->runs == SUBMIT &&
               ru_str_i64(ru_str_n(h->said, (int64_t)strspn(h->said, "0123456789")), &id)) {
        s->seats[h->at] = (seat){.wanted = s->seats[h->at].wanted, .job = id};
        s->refused = (ru_time){0};
        s->trouble[0] = 0;
        ru_log(RU_LOG_INFO, "cluster", "slurm", "%s%u is job %lld of Slurm", s->opt->name,
               h->at + 1, (long long)id);
    }
}

static void end(ru_slurm_shell *h, ru_time now)
{
    static const char *const names[] = {"", "squeue", "sbatch", "scancel"};
    int code = ru_process_wait(h->p);
    int64_t n = ru_process_read(h->p, true, h->error, sizeof h->error - 1);
    if (n > 0) {
        h->error[n] = 0;
    }
    ru_process_close(h->p);
    h->p = NULL;
    h->said[h->used] = 0;
    h->error[strcspn(h->error, "\n")] = 0;
    if (code != 0) {
        complain(h, names[h->runs], h->error[0] != 0 ? h->error : "it failed without a word");
    }
    for (uint32_t k = 0; k < h->n; k++) {
        if (h->of[k] == h->by || h->runs == LOOK) { /* nothing else ran since the list began */
            follow(h->of[k], h, code, now);
        }
    }
    h->runs = NOTHING;
}

/* What the command says now; true: it has ended. */
static bool hear(ru_slurm_shell *h, ru_time now)
{
    int64_t n, room = SAID_MAX - 1 - h->used;
    while ((n = ru_process_read(h->p, false, h->said + h->used, room)) > 0) {
        h->used += n;
        room -= n;
        if (room == 0) { /* more than any list of ours: it would be cut */
            ru_process_kill(h->p, SIGKILL);
            return true;
        }
    }
    if (n == 0 && ru_time_since(now, h->begun) > patience_ns) {
        ru_process_kill(h->p, SIGKILL);
        (void)snprintf(h->error, sizeof h->error, "no answer in 30 s");
        return true;
    }
    return n < 0;
}

static void look(ru_slurm *s, ru_time now)
{
    static const char *const argv[] = {"squeue", "--me", "--noheader", "--format=%i|%T|%j|%r",
                                       NULL};
    s->shell->looked = now;
    begin(s, LOOK, argv, now);
}

/* The next command that s needs; false: none now. */
static bool work(ru_slurm *s, ru_time now)
{
    if (!s->known) {
        look(s, now);
        return true;
    }
    if (cancel(s, now)) {
        return true;
    }
    bool waits = s->refused.ns != 0 && ru_time_since(now, s->refused) < retry_ns;
    for (uint32_t k = 0; !waits && k < s->opt->seats; k++) {
        if (s->seats[k].wanted && s->seats[k].job == 0) {
            submit(s, k, now);
            return true;
        }
    }
    return false;
}

bool ru_slurm_tick(ru_slurm *s, ru_time now)
{
    ru_slurm_shell *h = s->shell;
    if (h->p != NULL && hear(h, now)) {
        end(h, now);
    }
    bool waits = h->p != NULL || (h->begun.ns != 0 && ru_time_since(now, h->begun) < gap_ns);
    if (!waits && ru_time_since(now, h->looked) > look_ns) { /* it is for all, and nobody's turn */
        look(s, now);
        waits = true;
    }
    for (uint32_t k = 0; !waits && k < h->n; k++) { /* each in its turn */
        h->turn = (h->turn + 1) % h->n;
        waits = work(h->of[h->turn], now);
    }
    return s->adopted;
}
