#include "cluster/slurm.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/str.h"
#include "env/process/command.h"

enum { WORDS_MAX = 64, AGAIN_LISTS = 2 };
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
    ru_loop *loop;
    ru_command command; /* that runs */
    ru_slurm *by;       /* who runs it */
    command runs;
    uint32_t at; /* seat of SUBMIT */
    ru_time begun, looked;
    char said[64];     /* by SUBMIT: it begins with the job's number */
    char trouble[256]; /* of the last squeue, which is for all; "": it answered */
    uint64_t told;     /* what was said of it last; 0: nothing */
};

struct ru_slurm {
    const ru_slurm_options *opt;
    ru_slurm_shell *shell;
    char prefix[96];
    seat seats[RU_SLURM_SEATS_MAX];
    rui_slurm_list list; /* of the squeue that runs */
    int64_t extra[RU_SLURM_SEATS_MAX];
    uint32_t n_extra;
    ru_time refused;
    bool adopted;      /* a first list came */
    bool known;        /* what Slurm has: a list came since a command whose end is not certain */
    char trouble[256]; /* of the last sbatch; "": it was taken */
    uint64_t told;     /* what was said of this partition's commands last; 0: nothing */
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

ru_status ru_slurm_shell_open(ru_loop *loop, ru_arena *arena, ru_slurm_shell **out, ru_err *err)
{
    ru_slurm_shell *h = RU_NEW(arena, ru_slurm_shell, 1);
    if (h == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for Slurm's jobs");
    }
    h->loop = loop;
    *out = h;
    return RU_OK;
}

void ru_slurm_shell_close(ru_slurm_shell *h)
{
    if (h != NULL) {
        ru_command_close(&h->command);
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
    if (opt->exe == NULL) { /* who started this one has given it another name */
        return RU_FAIL(err, RU_E_MISSING,
                       "Slurm's nodes start the program 'rubato', and there is none beside this "
                       "one; start a program of that name");
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
    bool mine = s->shell->command.p != NULL && s->shell->by == s;
    bool empty = s->known && !mine && s->n_extra == 0;
    for (uint32_t k = 0; k < s->opt->seats; k++) {
        empty = empty && s->seats[k].job == 0;
    }
    return empty;
}

const char *ru_slurm_trouble(const ru_slurm *s)
{
    return s->shell->trouble[0] != 0 ? s->shell->trouble : s->trouble;
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

static void read_line(rui_slurm_list *l, const char *prefix)
{
    int64_t id, number;
    bool whole = true;
    ru_str line = ru_str_n(l->line, l->n_line), word[4];
    for (uint32_t k = 0; k < 4; k++) {
        whole = ru_str_next(&line, '|', &word[k]) && whole;
    }
    if (!whole || !ru_str_i64(word[0], &id) || !ru_str_starts(word[2], prefix) ||
        !ru_str_i64(ru_str_from(word[2], (int64_t)strlen(prefix)), &number) || number < 1 ||
        number > RU_SLURM_SEATS_MAX || ru_str_eq_c(word[1], "COMPLETED") ||
        ru_str_eq_c(word[1], "CANCELLED") || ru_str_eq_c(word[1], "FAILED") ||
        ru_str_eq_c(word[1], "TIMEOUT")) {
        return;
    }
    uint32_t at = (uint32_t)number - 1;
    bool run = ru_str_eq_c(word[1], "RUNNING") || ru_str_eq_c(word[1], "COMPLETING");
    if (ru_str_eq_c(word[3], "launch failed requeued held")) { /* it would wait for ever */
        let_go(l, id);
        return;
    }
    int64_t goes = l->of[at] == 0 ? 0 : run && !l->runs[at] ? l->of[at] : id;
    if (goes != id) {
        l->of[at] = id;
        l->runs[at] = run;
    }
    let_go(l, goes);
}

void rui_slurm_read(rui_slurm_list *l, const char *prefix, const char *bytes, int64_t n)
{
    RU_CHECK(l->n_line <= sizeof l->line);
    while (n > 0) {
        const char *end = memchr(bytes, '\n', (size_t)n);
        int64_t k = end != NULL ? end - bytes : n, room = (int64_t)sizeof l->line - l->n_line;
        memcpy(l->line + l->n_line, bytes, (size_t)(k < room ? k : room));
        l->n_line += (uint32_t)(k < room ? k : room);
        if (end != NULL) {
            read_line(l, prefix);
            l->n_line = 0;
            k++;
        }
        bytes += k;
        n -= k;
    }
}

static void take_list(ru_slurm *s)
{
    const rui_slurm_list *l = &s->list;
    for (uint32_t k = 0; k < RU_SLURM_SEATS_MAX; k++) {
        seat *t = &s->seats[k];
        if (t->job != l->of[k]) {
            t->cancelled = false;
        }
        if (t->job != 0 && l->of[k] == 0) { /* a list may be older than a submission */
            t->lost++;
            t->job = t->lost < AGAIN_LISTS ? t->job : 0;
        } else {
            t->lost = 0;
            t->job = l->of[k];
        }
    }
    for (uint32_t k = 0; k < RU_SLURM_SEATS_MAX && !s->adopted; k++) {
        s->seats[k].wanted = s->seats[k].job != 0;
    }
    s->adopted = true;
    memcpy(s->extra, l->extra, sizeof s->extra);
    s->n_extra = l->n_extra;
}

/* -- commands ------------------------------------------------------------------------------------
 */

/* Each new trouble of a partition once, and of squeue, which is for all. */
static void complain(ru_slurm *s, command what, const char *why)
{
    static const char *const names[] = {"", "squeue", "sbatch", "scancel"};
    uint64_t hash = ru_hash_bytes(why, (int64_t)strlen(why), 1);
    uint64_t *told = what == LOOK ? &s->shell->told : &s->told;
    bool one = what != LOOK && strcmp(s->opt->name, "slurm") != 0;
    if (hash != *told) {
        *told = hash;
        ru_log(RU_LOG_WARN, "cluster", "slurm", "%s%s%s: %s", names[what], one ? " of market " : "",
               one ? s->opt->name : "", why);
    }
}

/* Nothing has come of a command: it is tried again. */
static void failed(ru_slurm *s, command what, const char *why, ru_time now)
{
    complain(s, what, why);
    s->known = false;
    if (what == LOOK) {
        (void)snprintf(s->shell->trouble, sizeof s->shell->trouble, "%s", why);
    } else if (what == SUBMIT) {
        (void)snprintf(s->trouble, sizeof s->trouble, "%s", why);
        s->refused = now;
    }
    for (uint32_t k = 0; k < RU_SLURM_SEATS_MAX; k++) {
        s->seats[k].cancelled = s->seats[k].cancelled && what != CANCEL;
    }
}

static void hear(void *self, const char *bytes, int64_t n)
{
    ru_slurm_shell *h = self;
    for (uint32_t k = 0; h->runs == LOOK && k < h->n; k++) {
        rui_slurm_read(&h->of[k]->list, h->of[k]->prefix, bytes, n);
    }
    int64_t used = (int64_t)strlen(h->said), room = (int64_t)sizeof h->said - 1 - used;
    if (h->runs == SUBMIT && memchr(bytes, 0, (size_t)n) == NULL) {
        memcpy(h->said + used, bytes, (size_t)(n < room ? n : room));
        h->said[used + (n < room ? n : room)] = 0;
    }
}

static void begin(ru_slurm *s, command what, const char *const *argv, ru_time now)
{
    ru_err err;
    ru_slurm_shell *h = s->shell;
    h->begun = now;
    h->said[0] = 0;
    h->by = s;
    h->runs = what;
    h->command.words = hear;
    h->command.self = h;
    if (ru_command_start(&h->command, h->loop, argv, NULL, now, &err) != RU_OK) {
        failed(s, what, err.text, now);
    }
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

/* sbatch has ended well, if it told the job's number. */
static void take_job(ru_slurm *s, ru_time now)
{
    int64_t id;
    ru_slurm_shell *h = s->shell;
    if (!ru_str_i64(ru_str_n(h->said, (int64_t)strspn(h->said, "0123456789")), &id)) {
        failed(s, SUBMIT, "it printed no number of a job", now);
        return;
    }
    s->seats[h->at] = (seat){.wanted = s->seats[h->at].wanted, .job = id};
    s->refused = (ru_time){0};
    s->trouble[0] = 0;
    s->told = 0;
    ru_log(RU_LOG_INFO, "cluster", "slurm", "%s%u is job %lld of Slurm", s->opt->name, h->at + 1,
           (long long)id);
}

/* Why a list may lack jobs, which then are not gone; NULL: it is whole. */
static const char *is_cut(const ru_slurm_shell *h, const ru_slurm *s)
{
    return !h->command.whole    ? "it ended before its output, which another process holds"
           : s->list.n_line > 0 ? "its list ends within a line"
                                : NULL;
}

static void end(ru_slurm_shell *h, int code, ru_time now)
{
    const char *why = h->command.last[0] != 0 ? h->command.last : "it failed without a word";
    const command what = h->runs;
    h->runs = NOTHING;
    for (uint32_t k = 0; k < h->n; k++) {
        ru_slurm *s = h->of[k];
        if (s != h->by && what != LOOK) { /* nothing else ran since a list began */
            continue;
        }
        s->known = what != CANCEL;
        if (code != 0) {
            failed(s, what, why, now);
        } else if (what == LOOK && is_cut(h, s) != NULL) {
            failed(s, what, is_cut(h, s), now);
        } else if (what == LOOK) {
            h->trouble[0] = 0;
            h->told = 0;
            take_list(s);
        } else if (what == SUBMIT) {
            take_job(s, now);
        } else {
            s->told = 0;
        }
    }
}

static void look(ru_slurm *s, ru_time now)
{
    static const char *const argv[] = {"squeue", "--me", "--noheader", "--format=%i|%T|%j|%r",
                                       NULL};
    s->shell->looked = now;
    for (uint32_t k = 0; k < s->shell->n; k++) {
        memset(&s->shell->of[k]->list, 0, sizeof s->shell->of[k]->list);
    }
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
    int code;
    if (ru_command_ended(&h->command, patience_ns, now, &code)) {
        end(h, code, now);
    }
    bool waits =
        h->command.p != NULL || (h->begun.ns != 0 && ru_time_since(now, h->begun) < gap_ns);
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
