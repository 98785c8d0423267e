/* Handlers of signals use their own stacks, and only calls that are allowed in them. A line of the
 * file: executor clock signal name; signal 0: it did not come back. */
#include "env/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "env/clock.h"
#include "env/thread.h"

enum { THREADS_MAX = 128, STACK_BYTES = 32 << 10, LINE_BYTES = 1024 };

static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
static const int64_t look_ns = 250000000, least_ns = INT64_C(60000000000),
                     first_ns = INT64_C(3600000000000);

/* What a thread does. */
typedef struct place {
    const char *name; /* NULL: nothing of users */
    uint32_t executor, clock, calls;
    uint32_t seen; /* the watching thread's: calls when it looked, and the time since */
    int64_t age_ns;
} place;

static struct {
    ru_fault_options opt;
    bool open;
    place at[THREADS_MAX];
    uint32_t n;
    ru_thread watcher;
    ru_mutex lock; /* of quit */
    ru_cond cond;
    bool quit;
    int64_t longest_ns;
} faults;

static struct sigaction before[RU_ARRAY_LEN(signals)]; /* what handled them */
static RU_ALIGNED(64) uint8_t stacks[THREADS_MAX][STACK_BYTES];
static _Thread_local int32_t mine = -1; /* of faults.at; -2: there are too many threads */

/* -- the end of the process ----------------------------------------------------------------------
 */

typedef struct line {
    char text[LINE_BYTES];
    size_t n;
} line;

static void add(line *l, const char *text)
{
    size_t n = strlen(text);
    n = n < sizeof l->text - l->n ? n : sizeof l->text - l->n;
    memcpy(l->text + l->n, text, n);
    l->n += n;
}

static void add_number(line *l, uint64_t v)
{
    char digits[24];
    uint32_t at = sizeof digits - 1;
    digits[at] = '\0';
    do {
        digits[--at] = (char)('0' + v % 10);
        v /= 10;
    } while (v > 0);
    add(l, digits + at);
}

static const char *word_of(int number)
{
    return number == SIGSEGV   ? ", an access to memory that is not its own"
           : number == SIGBUS  ? ", a bus error"
           : number == SIGFPE  ? ", a division by zero or another arithmetic error"
           : number == SIGILL  ? ", an illegal instruction"
           : number == SIGABRT ? ", abort"
                               : "";
}

/* number 0: it did not come back within limit_ns. Only calls that handlers may make. */
RU_NORETURN static void end(const place *p, int number, int64_t limit_ns)
{
    line said = {.n = 0}, kept = {.n = 0};
    add(&said, "rubato: ");
    add(&said, faults.opt.who);
    add(&said, number != 0 ? " crashed in " : " did not return from ");
    add(&said, p->name);
    if (p->executor != RU_FAULT_NONE) {
        add(&said, " of executor ");
        add_number(&said, p->executor);
    }
    if (p->clock != RU_FAULT_NONE) {
        add(&said, p->executor != RU_FAULT_NONE ? ", clock " : " in clock ");
        add_number(&said, p->clock);
    }
    if (number != 0) {
        add(&said, " (signal ");
        add_number(&said, (uint64_t)number);
        add(&said, word_of(number));
        add(&said, ")");
    } else {
        add(&said, " within ");
        add_number(&said, (uint64_t)(limit_ns / 1000000000));
        add(&said, " s (");
        add(&said, faults.opt.key);
        add(&said, ")");
    }
    add(&said, faults.opt.what_now);
    add(&said, "\n");
    add_number(&kept, p->executor);
    add(&kept, " ");
    add_number(&kept, p->clock);
    add(&kept, " ");
    add_number(&kept, (uint64_t)number);
    add(&kept, " ");
    add(&kept, p->name);
    add(&kept, "\n");
    (void)!write(STDERR_FILENO, said.text, said.n);
    int fd = faults.opt.file != NULL
                 ? open(faults.opt.file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)
                 : -1;
    if (fd >= 0) {
        (void)!write(fd, kept.text, kept.n);
    }
    _exit(1);
}

static void restore_signals(void)
{
    for (uint32_t k = 0; k < RU_ARRAY_LEN(signals); k++) {
        (void)sigaction(signals[k], &before[k], NULL);
    }
}

static void on_signal(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (mine >= 0 && faults.at[mine].name != NULL) {
        end(&faults.at[mine], number, 0);
    }
    restore_signals(); /* not a user's: as without this */
    if (info->si_code <= 0) {
        (void)raise(number); /* else the instruction fails once more */
    }
}

/* -- endless loops -------------------------------------------------------------------------------
 */

static int64_t limit_now(void)
{
    if (faults.opt.limit_ns > 0) {
        return faults.opt.limit_ns;
    }
    int64_t far = 50 * faults.longest_ns;
    return faults.longest_ns == 0 ? first_ns : far > least_ns ? far : least_ns;
}

/* Time counts as far as this thread sees it: a process that was stopped for an hour is not late. */
static void look(int64_t since_ns)
{
    uint32_t n = __atomic_load_n(&faults.n, __ATOMIC_ACQUIRE);
    for (uint32_t k = 0; k < n && k < THREADS_MAX; k++) {
        place *p = &faults.at[k];
        uint32_t calls = __atomic_load_n(&p->calls, __ATOMIC_ACQUIRE);
        bool same = calls == p->seen;
        if (!same && calls > 2) { /* a call was over since */
            faults.longest_ns = p->age_ns >= faults.longest_ns ? p->age_ns + 1 : faults.longest_ns;
        }
        p->age_ns = same && calls % 2 != 0 ? p->age_ns + since_ns : 0;
        p->seen = calls;
        if (p->age_ns > limit_now() && __atomic_load_n(&p->calls, __ATOMIC_ACQUIRE) == calls) {
            place copy = *p;
            end(&copy, 0, limit_now());
        }
    }
}

static void watch(void *self)
{
    (void)self;
    ru_time last = ru_clock_now();
    ru_mutex_lock(&faults.lock);
    while (!faults.quit) {
        (void)ru_cond_wait_for(&faults.cond, &faults.lock, look_ns);
        ru_time now = ru_clock_now();
        int64_t since_ns = now.ns - last.ns;
        look(since_ns < 2 * look_ns ? since_ns : 2 * look_ns);
        last = now;
    }
    ru_mutex_unlock(&faults.lock);
}

/* -- threads -------------------------------------------------------------------------------------
 */

static void take_place(void)
{
    uint32_t k = __atomic_fetch_add(&faults.n, 1, __ATOMIC_ACQ_REL);
    mine = k < THREADS_MAX ? (int32_t)k : -2;
    const stack_t stack = {.ss_sp = stacks[k % THREADS_MAX], .ss_size = STACK_BYTES};
    stack_t has;
    if (mine >= 0 && sigaltstack(NULL, &has) == 0 && (has.ss_flags & SS_DISABLE) != 0) {
        (void)sigaltstack(&stack, NULL); /* sanitizers give threads one */
    }
}

void ru_fault_enter(const char *name, uint32_t executor, uint32_t clock)
{
    if (!faults.open) {
        return;
    }
    if (mine == -1) {
        take_place();
    }
    if (mine >= 0) {
        place *p = &faults.at[mine];
        p->name = name;
        p->executor = executor;
        p->clock = clock;
        __atomic_store_n(&p->calls, p->calls + 1, __ATOMIC_RELEASE); /* odd: inside */
    }
}

void ru_fault_leave(void)
{
    if (faults.open && mine >= 0) {
        place *p = &faults.at[mine];
        p->name = NULL;
        __atomic_store_n(&p->calls, p->calls + 1, __ATOMIC_RELEASE);
    }
}

ru_status ru_fault_open(const ru_fault_options *opt, ru_err *err)
{
    RU_CHECK(!faults.open);
    faults.opt = *opt;
    faults.quit = false;
    faults.longest_ns = 0;
    ru_mutex_init(&faults.lock);
    ru_cond_init(&faults.cond);
    ru_status st = ru_thread_start(&faults.watcher, "faults", watch, NULL, err);
    if (st != RU_OK) {
        ru_cond_fini(&faults.cond);
        ru_mutex_fini(&faults.lock);
        return st;
    }
    struct sigaction sa = {.sa_sigaction = on_signal,
                           .sa_flags = SA_ONSTACK | SA_NODEFER | SA_SIGINFO};
    sigemptyset(&sa.sa_mask);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(signals); k++) {
        (void)sigaction(signals[k], &sa, &before[k]);
    }
    faults.open = true;
    return RU_OK;
}

void ru_fault_close(void)
{
    if (!faults.open) {
        return;
    }
    restore_signals();
    ru_mutex_lock(&faults.lock);
    faults.quit = true;
    ru_cond_signal(&faults.cond);
    ru_mutex_unlock(&faults.lock);
    ru_thread_join(&faults.watcher);
    ru_cond_fini(&faults.cond);
    ru_mutex_fini(&faults.lock);
    faults.open = false;
}

/* -- what others left ----------------------------------------------------------------------------
 */

bool ru_fault_hopeless(const char *file, uint32_t executor, char why[256])
{
    FILE *f = fopen(file, "re");
    char text[256], name[64];
    unsigned long long k, clock, number, last_clock = 0;
    uint32_t same = 0;
    bool hopeless = false;
    while (f != NULL && !hopeless && fgets(text, sizeof text, f) != NULL) {
        if (sscanf(text, "%llu %llu %llu %63s", &k, &clock, &number, name) != 4 ||
            (k != executor && k != RU_FAULT_NONE)) {
            continue;
        }
        same = same > 0 && clock == last_clock ? same + 1 : 1;
        last_clock = clock;
        hopeless = number == 0 || same >= 2;
        char of[64] = "";
        if (k != RU_FAULT_NONE) {
            (void)snprintf(of, sizeof of, " of executor %llu", k);
        }
        if (number == 0) {
            (void)snprintf(why, 256, "did not return from %s%s in clock %llu", name, of, clock);
        } else {
            (void)snprintf(why, 256, "crashed %u workers in %s%s in clock %llu (signal %llu)", same,
                           name, of, clock, number);
        }
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    return hopeless;
}
