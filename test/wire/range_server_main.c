/* The server of bench/reader/range_server.h as a process, for test/lab/ranges.sh.
 *
 *   range-server DIR [port=N] [delay=MS] [rate=BYTES] [log=FILE] [FAULT=N ...]
 *
 * FAULT=N: every N-th request gets it. Prints the port and serves until it is ended. */
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "bench/reader/range_server.h"

static bool read_word(ru_range_server_options *o, const char *word)
{
    static const char *const faults[] = {
#define RU_X(name, help) #name,
        RU_RANGE_FAULT_LIST(RU_X)
#undef RU_X
    };
    const char *equal = strchr(word, '=');
    int64_t n = 0;
    if (equal == NULL) {
        return false;
    }
    ru_str name = ru_str_n(word, equal - word);
    if (ru_str_eq_c(name, "log")) {
        o->log = equal + 1;
        return true;
    }
    if (!ru_str_i64(ru_str_c(equal + 1), &n) || n < 0) {
        return false;
    }
    for (uint32_t k = 0; k < RU_RANGE_FAULTS; k++) {
        if (ru_str_eq_c(name, faults[k])) {
            o->every[k] = (uint32_t)n;
            return true;
        }
    }
    if (ru_str_eq_c(name, "port")) {
        o->port = (uint32_t)n;
    } else if (ru_str_eq_c(name, "delay")) {
        o->delay_ns = n * 1000000;
    } else if (ru_str_eq_c(name, "rate")) {
        o->bytes_per_s = n;
    } else {
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    ru_range_server_options o = {.dir = argc > 1 ? argv[1] : NULL};
    ru_range_server *s = NULL;
    ru_err err = {0};
    for (int k = 2; k < argc; k++) {
        if (!read_word(&o, argv[k])) {
            (void)fprintf(stderr, "range-server: %s is no option\n", argv[k]);
            return 2;
        }
    }
    if (o.dir == NULL || ru_range_server_open(&o, &s, &err) != RU_OK) {
        (void)fprintf(stderr, "range-server DIR [WORD=N ...]: %s\n", err.text);
        return 2;
    }
    (void)printf("%u\n", ru_range_server_port(s));
    (void)fflush(stdout);
    ru_status st = ru_range_server_run(s, &err);
    ru_range_server_close(s);
    return ru_status_exit_code(st);
}
