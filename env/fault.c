/* Handlers of signals use their own stacks, and only calls that are allowed in them. A line of the
 * file: executor clock signal name; signal 0: it did not come back; 255: it called exit. */
#include "env/fault_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "env/clock.h"
#include "env/thread.h"

enum {
    THREADS_MAX = 2048,
    STACK_BYTES = 32 << 10,
    LINE_BYTES = 1024,
    LATE = 0,     /* in place of a signal's number: it did not come back */
    EXITED = 255, /* it called exit */
};

static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
static const int64_t look_ns = 250000000, least_ns = INT64_C(60000000000),
                     first_ns = INT64_C(3600000000000);

static struct {
    ru_fault_options opt;
    bool open;
    rui_fault_place at[THREADS_MAX];
    uint8_t *stack[THREADS_MAX]; /* of handlers; NULL: the thread has its own */
    uint32_t n;
    ru_thread watcher;
    ru_mutex lock; /* of quit */
    ru_cond cond;
    bool quit;
    bool hears_exit;
    pid_t process; /* children that the app forks are not watched */
    bool ending;
    rui_fault_longest longest;
} faults;

static struct sigaction before[RU_ARRAY_LEN(signals)]; /* what handled them */
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

/* number: a signal's, LATE or EXITED. Only calls that handlers may make. */
RU_NORETURN static void end(const rui_fault_call *p, int number)
{
    line said = {.n = 0}, kept = {.n = 0};
    while (__atomic_exchange_n(&faults.ending, true, __ATOMIC_ACQ_REL)) {
        (void)pause(); /* another thread says so */
    }
    add(&said, "rubato: ");
    add(&said, faults.opt.who);
    add(&said, number == LATE     ? " did not return from "
               : number == EXITED ? " ended the process in "
                                  : " crashed in ");
    add(&said, p->name);
    if (p->executor != RU_FAULT_NONE) {
        add(&said, " of executor ");
        add_number(&said, p->executor);
    }
    if (p->clock != RU_FAULT_NONE) {
        add(&said, p->executor != RU_FAULT_NONE ? ", clock " : " in clock ");
        add_number(&said, p->clock);
    }
    if (number == EXITED) {
        add(&said, " (exit)");
    } else if (number != LATE) {
        add(&said, " (signal ");
        add_number(&said, (uint64_t)number);
        add(&said, word_of(number));
        add(&said, ")");
    } else {
        add(&said, " within ");
        add_number(&said, (uint64_t)(p->limit_ns / 1000000000));
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
                 ? open(faults.opt.file,
                        O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644)
                 : -1;
    if (fd >= 0) {
        (void)!write(fd, kept.text, kept.n);
    }
    _exit(1);
}

/* A user's function called exit, which would look like the end of a run that went well. */
static void on_exit_call(void)
{
    const rui_fault_place *p = faults.open && mine >= 0 ? &faults.at[mine] : NULL;
    if (p != NULL && p->calls % 2 != 0 && getpid() == faults.process) {
        const rui_fault_call c = {.name = p->name, .executor = p->executor, .clock = p->clock};
        end(&c, EXITED);
    }
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
    const rui_fault_place *p = mine >= 0 ? &faults.at[mine] : NULL;
    if (p != NULL && p->calls % 2 != 0) {
        const rui_fault_call c = {.name = p->name, .executor = p->executor, .clock = p->clock};
        end(&c, number);
    }
    restore_signals(); /* not a user's: as without this */
    if (info->si_code <= 0) {
        (void)raise(number); /* else the instruction fails once more */
    }
}

/* -- endless loops -------------------------------------------------------------------------------
 */

static int64_t *longest_of(rui_fault_longest *l, const char *name)
{
    uint32_t k = 0;
    while (k < l->n && strcmp(l->name[k], name) != 0) {
        k++;
    }
    if (k == RUI_FAULT_NAMES) {
        return NULL;
    }
    if (k == l->n) {
        l->name[l->n++] = name;
        l->ns[k] = 0;
    }
    return &l->ns[k];
}

static void learn(rui_fault_longest *l, const char *name, int64_t ns)
{
    int64_t *longest = longest_of(l, name);
    if (longest != NULL && ns > *longest) {
        *longest = ns;
    }
}

static int64_t limit_of(rui_fault_longest *l, const char *name, int64_t set_ns)
{
    const int64_t *longest = longest_of(l, name);
    if (set_ns > 0) {
        return set_ns;
    }
    if (longest == NULL || *longest == 0) {
        return first_ns;
    }
    return 50 * *longest > least_ns ? 50 * *longest : least_ns;
}

bool rui_fault_look(rui_fault_place *p, rui_fault_longest *l, int64_t since_ns, int64_t set_ns,
                    rui_fault_call *late)
{
    uint32_t calls = __atomic_load_n(&p->calls, __ATOMIC_ACQUIRE);
    *late = (rui_fault_call){.name = __atomic_load_n(&p->name, __ATOMIC_ACQUIRE),
                             .executor = __atomic_load_n(&p->executor, __ATOMIC_ACQUIRE),
                             .clock = __atomic_load_n(&p->clock, __ATOMIC_ACQUIRE)};
    bool inside = calls % 2 != 0;
    if (calls == 0 || __atomic_load_n(&p->calls, __ATOMIC_ACQUIRE) != calls) {
        return false; /* it moves, so it is not late */
    }
    if (calls == p->seen) {
        p->age_ns = inside ? p->age_ns + since_ns : 0;
    } else {
        if (p->seen % 2 != 0) {
            learn(l, p->was, p->age_ns + 1);
        }
        if (!inside) {
            learn(l, late->name, 1); /* it may have begun since the last look */
        }
        p->age_ns = 0;
    }
    p->seen = calls;
    p->was = late->name;
    late->limit_ns = inside ? limit_of(l, late->name, set_ns) : INT64_MAX;
    return p->age_ns > late->limit_ns;
}

/* Time counts as far as this thread sees it: a process that was stopped for an hour is not late. */
static void look(int64_t since_ns)
{
    uint32_t n = __atomic_load_n(&faults.n, __ATOMIC_ACQUIRE);
    for (uint32_t k = 0; k < n && k < THREADS_MAX; k++) {
        rui_fault_call late;
        if (rui_fault_look(&faults.at[k], &faults.longest, since_ns, faults.opt.limit_ns, &late)) {
            end(&late, LATE);
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
    stack_t has;
    if (mine < 0 || sigaltstack(NULL, &has) != 0 || (has.ss_flags & SS_DISABLE) == 0) {
        return; /* sanitizers give threads one */
    }
    faults.stack[k] = malloc(STACK_BYTES); /* as long as the thread may live */
    if (faults.stack[k] != NULL) {
        const stack_t stack = {.ss_sp = faults.stack[k], .ss_size = STACK_BYTES};
        (void)sigaltstack(&stack, NULL);
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
        rui_fault_place *p = &faults.at[mine];
        __atomic_store_n(&p->name, name, __ATOMIC_RELEASE);
        __atomic_store_n(&p->executor, executor, __ATOMIC_RELEASE);
        __atomic_store_n(&p->clock, clock, __ATOMIC_RELEASE);
        __atomic_store_n(&p->calls, p->calls + 1, __ATOMIC_RELEASE); /* odd: inside */
    }
}

void ru_fault_leave(void)
{
    if (faults.open && mine >= 0) {
        rui_fault_place *p = &faults.at[mine];
        __atomic_store_n(&p->calls, p->calls + 1, __ATOMIC_RELEASE);
    }
}

ru_status ru_fault_open(const ru_fault_options *opt, ru_err *err)
{
    RU_CHECK(!faults.open);
    faults.opt = *opt;
    faults.quit = false;
    faults.longest = (rui_fault_longest){.n = 0};
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
    if (!faults.hears_exit) {
        faults.hears_exit = atexit(on_exit_call) == 0;
    }
    faults.process = getpid();
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
        hopeless = number == LATE || same >= 2;
        char of[64] = "", in[64] = "";
        if (k != RU_FAULT_NONE) {
            (void)snprintf(of, sizeof of, " of executor %llu", k);
        }
        if (clock != RU_FAULT_NONE) {
            (void)snprintf(in, sizeof in, " in clock %llu", clock);
        }
        if (number == LATE) {
            (void)snprintf(why, 256, "did not return from %s%s%s", name, of, in);
        } else if (number == EXITED) {
            (void)snprintf(why, 256, "ended %u workers in %s%s%s (exit)", same, name, of, in);
        } else {
            (void)snprintf(why, 256, "crashed %u workers in %s%s%s (signal %llu)", same, name, of,
                           in, number);
        }
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    return hopeless;
}
