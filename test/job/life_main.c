/* The k-th system call or allocation fails over the whole life of a worker, in a job of two real
 * processes over sockets and shared memory.
 *
 *   worker-life                       some k of each kind
 *   worker-life os|alloc FROM-TO [member|leader]    every k of that range; of one: how all ended
 *
 * Either the job ends right in both: all steps, the loss of an undisturbed run. Or whoever was
 * struck ends by itself, with one sentence and a status, and the other one goes on and ends right,
 * if need be with a third one in its place. Nobody hangs; with sanitizers nothing is lost. */
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "env/file/file.h"
#include "env/loop/loop.h"
#include "test/test.h"
#include "train/worker/worker.h"

#define PATIENCE_NS INT64_C(20000000000)

enum { LIVES = 3, PATIENCE_MS = 20000, LATER = 1000000000 };

static const uint8_t token[RU_TOKEN_BYTES] = "a token of these lives, 32 bytes";
static const char yaml[] =
    "name: life\nmodel: {zoo: mlp, hidden: [8]}\n"
    "data: {format: synthetic, generator: gaussian, count: 200, features: 6, classes: 3}\n"
    "train: {batch: 16, steps: 40, threads: 1, device: ref, optimizer: {adam: {lr: 0.01}}}\n";

/* What a process says through its pipe. */
typedef enum said { LISTENS, BEGAN, ENDED } said;

typedef struct word {
    said what;
    ru_status status;
    bool led;
    int64_t step, made[2]; /* made: allocations and calls, where they fail */
    double loss;
    char text[256];
} word;

typedef struct life {
    pid_t pid;
    int pipe, lines; /* words; what it writes to stderr */
    bool began, ended, crashed;
    word end;
    char address[128];
    char last[512]; /* of its lines */
} life;

typedef struct failing {
    bool os, leader;
    int64_t k; /* -1: nothing fails */
} failing;

/* -- a process -----------------------------------------------------------------------------------
 */

static void say(int fd, const word *w)
{
    RU_CHECK(sizeof *w <= 4096);          /* whole or not at all */
    while (write(fd, w, sizeof *w) < 0) { /* this call may be the one that fails */
    }
}

static void told_address(void *self, const char *address)
{
    word w = {.what = LISTENS};
    snprintf(w.text, sizeof w.text, "%s", address);
    say(*(const int *)self, &w);
}

static void told_member(void *self, uint32_t number, bool takes_state)
{
    (void)number, (void)takes_state;
    say(*(const int *)self, &(word){.what = BEGAN});
}

static int work(const char *out, const char *join, int fd, const failing *f)
{
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_job job;
    ru_err err = {0};
    word w = {.what = ENDED};
    ru_worker_result r = {0};
    w.status = ru_job_parse("life", yaml, &arena, &job, &err);
    if (w.status == RU_OK) {
        const ru_worker_options wo = {
            .train = {.job = &job, .out = out, .dir_made = true, .quiet = true, .no_trace = true},
            .shell = {.join = join,
                      .token = token,
                      .token_bytes = sizeof token,
                      .address = told_address,
                      .member = told_member,
                      .self = &fd},
            .founders = 2,
        };
        if (f != NULL) {
            ru_test_fail_everywhere(f->os, f->k);
        }
        w.status = ru_worker_run(&wo, &arena, &r, &err);
        w.made[0] = ru_test_everywhere_count(false);
        w.made[1] = ru_test_everywhere_count(true);
        ru_test_fail_everywhere(true, -1);
    }
    w.led = r.reported;
    w.step = r.step;
    w.loss = r.reported ? r.summary.loss : 0;
    snprintf(w.text, sizeof w.text, "%.255s", w.status == RU_OK ? "" : err.text);
    say(fd, &w);
    ru_arena_fini(&arena);
    return w.status == RU_OK ? 0 : ru_status_exit_code(w.status);
}

static void begin(life *l, const char *out, const char *join, const failing *f)
{
    int words[2], lines[2];
    *l = (life){0};
    RU_CHECK(pipe(words) == 0 && pipe(lines) == 0);
    fflush(NULL);
    l->pid = fork();
    RU_CHECK(l->pid >= 0);
    if (l->pid == 0) {
        const struct rlimit none = {0, 0};
        (void)setrlimit(RLIMIT_CORE, &none);
        (void)dup2(lines[1], 2);
        close(words[0]);
        close(lines[0]);
        close(lines[1]);
        exit(work(out, join, words[1], f));
    }
    close(words[1]);
    close(lines[1]);
    l->pipe = words[0];
    l->lines = lines[0];
}

/* -- seen from outside ---------------------------------------------------------------------------
 */

static void take_lines(life *l)
{
    char part[512];
    ssize_t n = read(l->lines, part, sizeof part - 1);
    if (n > 0) {
        part[n] = '\0';
        size_t have = strlen(l->last), drop = have + (size_t)n < sizeof l->last ? 0 : have;
        memmove(l->last, l->last + drop, have - drop + 1);
        snprintf(l->last + have - drop, sizeof l->last - (have - drop), "%s", part);
    } else {
        close(l->lines);
        l->lines = -1;
    }
}

static void take_word(life *l)
{
    word w;
    if (read(l->pipe, &w, sizeof w) == sizeof w) {
        if (w.what == LISTENS) {
            snprintf(l->address, sizeof l->address, "%.127s", w.text);
        } else if (w.what == BEGAN) {
            l->began = true;
        } else {
            l->end = w;
        }
        return;
    }
    int how = 0;
    while (l->lines >= 0) {
        take_lines(l);
    }
    RU_CHECK(waitpid(l->pid, &how, 0) == l->pid);
    close(l->pipe);
    l->ended = true;
    l->crashed = !WIFEXITED(how);
    if (WIFEXITED(how) && l->end.what == ENDED) { /* sanitizers have a code of their own */
        int want = l->end.status == RU_OK ? 0 : ru_status_exit_code(l->end.status);
        l->crashed = WEXITSTATUS(how) != want;
    } else {
        l->crashed = true;
    }
}

/* Words and lines of those that run, until `until` holds; false: that took too long. */
static bool hear(life *l, uint32_t n, bool (*until)(const life *l, uint32_t n))
{
    ru_time begun = ru_clock_now();
    while (!until(l, n)) {
        struct pollfd fds[2 * LIVES];
        uint32_t of[2 * LIVES], n_fds = 0;
        for (uint32_t i = 0; i < n; i++) {
            for (uint32_t k = 0; k < 2 && !l[i].ended; k++) {
                if (k == 0 || l[i].lines >= 0) {
                    of[n_fds] = i * 2 + k;
                    fds[n_fds++] =
                        (struct pollfd){.fd = k == 0 ? l[i].pipe : l[i].lines, .events = POLLIN};
                }
            }
        }
        int some = poll(fds, n_fds, PATIENCE_MS);
        if (some == 0 || ru_time_since(ru_clock_now(), begun) > PATIENCE_NS) {
            return false;
        }
        for (uint32_t k = 0; k < n_fds && some > 0; k++) {
            life *x = &l[of[k] / 2];
            if (fds[k].revents != 0 && !x->ended) {
                if (of[k] % 2 == 0) {
                    take_word(x);
                } else if (x->lines >= 0) {
                    take_lines(x);
                }
            }
        }
    }
    return true;
}

static bool one_listens(const life *l, uint32_t n)
{
    (void)n;
    return l[0].address[0] != '\0' || l[0].ended;
}

static bool one_ended(const life *l, uint32_t n)
{
    return l[0].ended || (n > 1 && l[1].ended);
}

static bool all_ended(const life *l, uint32_t n)
{
    bool all = true;
    for (uint32_t i = 0; i < n; i++) {
        all = all && l[i].ended;
    }
    return all;
}

static void end_all(life *l, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (!l[i].ended && l[i].pid > 0) {
            kill(l[i].pid, SIGKILL);
        }
    }
    (void)hear(l, n, all_ended);
}

/* -- a job ---------------------------------------------------------------------------------------
 */

static double right_loss;
static int64_t made[2][2]; /* [leader][os] in an undisturbed life */

static bool is_right(const life *l)
{
    return l->end.what == ENDED && l->end.status == RU_OK && l->end.step == 40 &&
           (!l->end.led || right_loss == 0 || fabs(l->end.loss - right_loss) < 1e-3);
}

/* What is wrong with how they ended; NULL: nothing. */
static const char *judge(const life *l, uint32_t n, const failing *f)
{
    uint32_t led = 0, right = 0;
    for (uint32_t i = 0; i < n; i++) {
        bool struck = f->k >= 0 && i == (f->leader ? 0U : 1U);
        right += is_right(&l[i]) ? 1 : 0;
        led += is_right(&l[i]) && l[i].end.led ? 1 : 0;
        if (l[i].crashed && !(struck && strstr(l[i].last, "out of memory") != NULL)) {
            return "a process crashed";
        }
        if (l[i].end.status != RU_OK && l[i].end.text[0] == '\0') {
            return "an error without a sentence";
        }
        if (l[i].end.status == RU_OK && !l[i].crashed && !is_right(&l[i])) {
            return "a wrong result";
        }
        if (!struck && l[i].began && !is_right(&l[i]) && !(f->leader && l[0].began)) {
            return "another one did not end right";
        }
    }
    bool last_words = l[0].end.status != RU_OK && l[0].end.step == 40; /* at the checkpoint */
    bool told = led == 1 || (f->leader && last_words);
    return right > 0 && !told ? "not one of them wrote the summary" : NULL;
}

static bool try(const char *folder, const failing *f, bool verbose)
{
    life l[LIVES] = {0};
    uint32_t n = 1;
    char out[128];
    snprintf(out, sizeof out, "%s/run", folder);
    ru_err err;
    RU_CHECK(ru_dir_make(out, &err) == RU_OK);
    begin(&l[0], out, NULL, f->leader ? f : NULL);
    bool heard = hear(l, n, one_listens);
    if (heard && !l[0].ended) {
        n = 2;
        begin(&l[1], out, l[0].address, f->leader ? NULL : f);
        heard = hear(l, n, one_ended);
    }
    if (heard && n == 2 && l[1].ended && !l[0].ended && !l[0].began) { /* another in its place */
        n = 3;
        begin(&l[2], out, l[0].address, NULL);
    }
    if (heard && f->leader && l[0].ended && n == 2 && !l[1].began) { /* it has nobody to join */
        kill(l[1].pid, SIGKILL);
        n = 1;
        life second = l[1];
        (void)hear(&second, 1, all_ended);
    }
    heard = heard && hear(l, n, all_ended);
    const char *why = !heard ? "somebody hangs" : judge(l, n, f);
    end_all(l, n);
    if (why != NULL || verbose) {
        printf("%s %" PRId64 " of the %s: %s\n", f->os ? "call" : "allocation", f->k,
               f->leader ? "leader" : "member", why != NULL ? why : "fine");
        for (uint32_t i = 0; i < n; i++) {
            printf("  %u: %s%s%s, %s, step %" PRId64 ", loss %.6f %s\n    %s\n", i + 1,
                   l[i].began ? "began, " : "", l[i].crashed ? "crashed, " : "",
                   l[i].end.led ? "led" : "followed", ru_status_name(l[i].end.status),
                   l[i].end.step, l[i].end.loss, l[i].end.text, l[i].last);
        }
    }
    if (f->k < 0 && why == NULL) {
        right_loss = l[0].end.loss;
        for (uint32_t os = 0; os < 2; os++) {
            made[f->leader ? 1 : 0][os] = l[f->leader ? 0 : 1].end.made[os];
        }
    }
    RU_CHECK(ru_path_remove(out, &err) == RU_OK);
    return why == NULL;
}

/* Every k of [from, to) that is a multiple of `step` after from; how many were wrong. */
static uint32_t sweep(const char *folder, failing f, int64_t from, int64_t to, int64_t step)
{
    uint32_t wrong = 0;
    for (f.k = from; f.k < to; f.k += step) {
        wrong += try(folder, &f, to - from == 1) ? 0 : 1;
    }
    return wrong;
}

int main(int argc, char **argv)
{
    char folder[] = "/tmp/rubato-life-XXXXXX";
    uint32_t wrong = 0, tried = 0;
    if (mkdtemp(folder) == NULL) {
        return 1;
    }
    for (uint32_t leader = 0; leader < 2; leader++) {
        wrong += try(folder, &(failing){.leader = leader == 1, .k = -1}, false) ? 0 : 1;
        printf("the %s: %" PRId64 " allocations, %" PRId64 " calls\n",
               leader == 1 ? "leader" : "member", made[leader][0], made[leader][1]);
    }
    for (uint32_t k = 0; k < 4 && wrong == 0; k++) {
        failing f = {.os = k % 2 == 1, .leader = k >= 2};
        int64_t from = 0, to = made[f.leader][f.os], step = to / 8 + 1;
        if (argc > 2) {
            bool asked = strcmp(argv[1], f.os ? "os" : "alloc") == 0 &&
                         (argc < 4 || strcmp(argv[3], f.leader ? "leader" : "member") == 0);
            step = 1;
            to = asked && sscanf(argv[2], "%" SCNd64 "-%" SCNd64, &from, &to) == 2 ? to + 1 : 0;
        }
        wrong += sweep(folder, f, from, to, step);
        tried += to > from ? (uint32_t)((to - from + step - 1) / step) : 0;
    }
    ru_err err;
    (void)!ru_path_remove(folder, &err);
    printf("%u lives, %u wrong\n", tried, wrong);
    return wrong > 0 ? 1 : 0;
}
