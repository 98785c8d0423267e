/* The test binary: every *_test.c of the tree.
 *
 *   rubato-test [--filter WORD]... [--seed N] [--jobs N] [--list]
 *
 * With several filters a test runs that one of them names; ^WORD names what begins with it. With
 * --jobs N, N processes take suites from a pipe, the last of the list first: those of whole folders
 * together stand there and take longest. Each process notes after each suite how many tests passed;
 * a test of which nobody noted that has failed, so that a crash cannot hide one. */
#include "test/test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define RU_SUITE(name) extern const ru_test_suite ru_suite_##name;
#include "suites.def"
#undef RU_SUITE

static const ru_test_suite *const suites[] = {
#define RU_SUITE(name) &ru_suite_##name,
#include "suites.def"
#undef RU_SUITE
};

enum { SUITES = (int)(sizeof suites / sizeof suites[0]), FILTERS_MAX = 16, JOBS_MAX = 64 };

typedef struct options {
    const char *filters[FILTERS_MAX];
    int n_filters, jobs;
    bool list;
} options;

typedef int verdict[2]; /* tests that ran, tests that failed */

static uint64_t seed = 20170829;

uint64_t ru_test_seed(void)
{
    return seed;
}

bool ru_test_crashes(void (*f)(void *self), void *self)
{
    int how = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)signal(SIGABRT, SIG_DFL);
        (void)fclose(stderr);
        f(self);
        _exit(0);
    }
    assert_true(waitpid(child, &how, 0) == child);
    return WIFSIGNALED(how) && WTERMSIG(how) == SIGABRT;
}

static bool named(const options *o, const char *full)
{
    for (int f = 0; f < o->n_filters; f++) {
        const char *word = o->filters[f];
        if (word[0] == '^' ? strncmp(full, word + 1, strlen(word) - 1) == 0
                           : strstr(full, word) != NULL) {
            return true;
        }
    }
    return o->n_filters == 0;
}

/* The tests of suite s that the filters name; the caller frees them. */
static struct CMUnitTest *pick(const options *o, int s, size_t *n)
{
    struct CMUnitTest *picked = calloc(suites[s]->n, sizeof *picked);
    *n = 0;
    for (size_t t = 0; picked != NULL && t < suites[s]->n; t++) {
        char full[256];
        snprintf(full, sizeof full, "%s.%s", suites[s]->name, suites[s]->tests[t].name);
        if (named(o, full)) {
            picked[(*n)++] = suites[s]->tests[t];
            if (o->list) {
                printf("%s\n", full);
            }
        }
    }
    return picked;
}

static void run_suite(const options *o, int s, verdict sum)
{
    size_t n;
    struct CMUnitTest *picked = pick(o, s, &n);
    if (n > 0 && !o->list) {
        sum[1] += _cmocka_run_group_tests(suites[s]->name, picked, n, NULL, NULL);
        sum[0] += (int)n;
    }
    free(picked);
}

/* Run the suites whose numbers come over `queue`, with all that they print in `log`; passed[suite].
 */
static void work(const options *o, int queue, int *passed, FILE *log)
{
    uint16_t s;
    dup2(fileno(log), STDOUT_FILENO);
    dup2(fileno(log), STDERR_FILENO);
    while (read(queue, &s, sizeof s) == sizeof s) {
        verdict v = {0};
        run_suite(o, s, v);
        passed[s] = v[0] - v[1];
    }
    exit(EXIT_SUCCESS);
}

/* Print what a process said and how it ended; false: not as it should. */
static bool ended(pid_t pid, FILE *log)
{
    char text[4096];
    int how = 0;
    waitpid(pid, &how, 0);
    rewind(log);
    for (size_t n; (n = fread(text, 1, sizeof text, log)) > 0;) {
        fwrite(text, 1, n, stdout);
    }
    fclose(log);
    if (how != 0) {
        printf("rubato-test: a process of tests ended with %s %d\n",
               WIFSIGNALED(how) ? "signal" : "code",
               WIFSIGNALED(how) ? WTERMSIG(how) : WEXITSTATUS(how));
    }
    return how == 0;
}

/* Processes of their own run all suites; false: one of them ended badly. */
static bool run_apart(const options *o, verdict sum)
{
    /* Shared memory, not a pipe: a crash may leave children behind that hold a pipe open. */
    int *passed = mmap(NULL, SUITES * sizeof *passed, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int queue[2];
    pid_t pids[JOBS_MAX];
    FILE *logs[JOBS_MAX];
    bool good = true;
    if (passed == MAP_FAILED || pipe2(queue, O_CLOEXEC) != 0) {
        perror("rubato-test: no memory or pipe for processes of tests");
        exit(EXIT_FAILURE);
    }
    for (int s = SUITES - 1; s >= 0; s--) {
        size_t n;
        uint16_t number = (uint16_t)s;
        free(pick(o, s, &n));
        sum[0] += (int)n;
        good = good && (n == 0 || write(queue[1], &number, sizeof number) == sizeof number);
    }
    close(queue[1]);
    int jobs = 0;
    for (; jobs < o->jobs && (logs[jobs] = tmpfile()) != NULL; jobs++) {
        fflush(stdout);
        if ((pids[jobs] = fork()) < 0) {
            break;
        }
        if (pids[jobs] == 0) {
            work(o, queue[0], passed, logs[jobs]);
        }
    }
    if (jobs == 0) {
        perror("rubato-test: no process of tests can be started");
    }
    close(queue[0]);
    for (int j = 0; j < jobs; j++) {
        good = ended(pids[j], logs[j]) && good;
    }
    sum[1] = sum[0];
    for (int s = 0; s < SUITES; s++) {
        sum[1] -= passed[s];
    }
    return good;
}

static bool parse(options *o, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        bool value = i + 1 < argc;
        if (strcmp(argv[i], "--filter") == 0 && value && o->n_filters < FILTERS_MAX) {
            o->filters[o->n_filters++] = argv[++i];
        } else if (strcmp(argv[i], "--seed") == 0 && value) {
            seed = strtoull(argv[++i], NULL, 0);
        } else if (strcmp(argv[i], "--jobs") == 0 && value) {
            long jobs = strtol(argv[++i], NULL, 10);
            if (jobs < 1) {
                return false;
            }
            o->jobs = jobs < JOBS_MAX ? (int)jobs : JOBS_MAX; /* a machine may have more cores */
        } else if (strcmp(argv[i], "--list") == 0) {
            o->list = true;
        } else {
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    options o = {0};
    verdict sum = {0};
    bool good = true;
    if (!parse(&o, argc, argv)) {
        fprintf(stderr, "usage: rubato-test [--filter WORD]... [--seed N] [--jobs N] [--list]\n");
        return 2;
    }
    if (o.jobs > 1 && !o.list) {
        good = run_apart(&o, sum);
    } else {
        for (int s = 0; s < SUITES; s++) {
            run_suite(&o, s, sum);
        }
    }
    if (o.list) {
        return 0;
    }
    if (sum[0] == 0) {
        fprintf(stderr, "rubato-test: no test matches '%s' (--list shows all)\n",
                o.n_filters > 0 ? o.filters[0] : "");
        return 2;
    }
    printf("%d passed, %d failed\n", sum[0] - sum[1], sum[1]);
    return sum[1] != 0 || !good;
}
