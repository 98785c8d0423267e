/* Status codes, the error sentence that goes with them, and the checks that stay on.
 *
 * A function that can fail returns ru_status and takes `ru_err *err` last (may be NULL). The first
 * finder writes one sentence (what, where, what was expected, what to do); callers add a prefix
 * with ru_err_wrap; only the owner at the top prints it. Nothing here allocates.
 *
 * Thread: any; a ru_err belongs to one thread at a time. */
#ifndef RU_BASE_STATUS_H
#define RU_BASE_STATUS_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

#if defined(__GNUC__)
#define RU_MUST_USE     __attribute__((warn_unused_result))
#define RU_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define RU_NORETURN     __attribute__((noreturn))
#define RU_LIKELY(x)    __builtin_expect(!!(x), 1)
#define RU_UNLIKELY(x)  __builtin_expect(!!(x), 0)
#define RU_UNUSED       __attribute__((unused))
#define RU_ALIGNED(n)   __attribute__((aligned(n)))
#define RU_RESTRICT     __restrict__
#define RU_EXPORT_BEGIN _Pragma("GCC visibility push(default)")
#define RU_EXPORT_END   _Pragma("GCC visibility pop")
#else
#define RU_MUST_USE
#define RU_PRINTF(f, a)
#define RU_NORETURN
#define RU_LIKELY(x)   (x)
#define RU_UNLIKELY(x) (x)
#define RU_UNUSED
#define RU_ALIGNED(n)
#define RU_RESTRICT
#define RU_EXPORT_BEGIN
#define RU_EXPORT_END
#endif

/* Around the declarations of every installed header, and of those alone: what stands between the
 * two has C linkage and is exported by librubato.so; all else is hidden. */
#ifdef __cplusplus
#define RU_API_BEGIN \
    extern "C" {     \
    RU_EXPORT_BEGIN
#define RU_API_END \
    RU_EXPORT_END  \
    }
#else
#define RU_API_BEGIN RU_EXPORT_BEGIN
#define RU_API_END   RU_EXPORT_END
#endif
/* Size of a type's alignment in both languages. */
#ifdef __cplusplus
#define RU_ALIGNOF(type) alignof(type)
#else
#define RU_ALIGNOF(type) _Alignof(type)
#endif

RU_API_BEGIN

/* X(name, exit code, short name, what the caller can do) */
#define RU_STATUS_LIST(X)                                                         \
    X(OK, 0, "ok", "continue")                                                    \
    X(E_AGAIN, 75, "again", "retry later, nothing changed")                       \
    X(E_LIMIT, 75, "limit", "shrink the request or raise the named limit")        \
    X(E_CANCELLED, 75, "cancelled", "a stop was requested")                       \
    X(E_USER, 1, "user", "a worker or user code failed")                          \
    X(E_USAGE, 2, "usage", "fix the command line")                                \
    X(E_ARG, 70, "argument", "fix the caller: an argument violates its contract") \
    X(E_CONFIG, 78, "config", "fix the job file or setting")                      \
    X(E_DATA, 65, "data", "fix the input data")                                   \
    X(E_MISSING, 66, "missing", "name an input that exists")                      \
    X(E_UNSUPPORTED, 65, "unsupported", "use what is supported")                  \
    X(E_INFEASIBLE, 65, "infeasible", "relax the limits")                         \
    X(E_PEER, 69, "peer", "drop the peer")                                        \
    X(E_CREATE, 73, "create", "free space or choose another place")               \
    X(E_IO, 74, "io", "check the device")                                         \
    X(E_PERM, 77, "permission", "grant the permission")                           \
    X(E_MEM, 71, "memory", "free memory or shrink the job")                       \
    X(E_BUG, 70, "bug", "report it")

typedef enum ru_status {
#define RU_X(name, code, word, act) RU_##name,
    RU_STATUS_LIST(RU_X)
#undef RU_X
        RU_STATUS_COUNT
} ru_status;

#define RU_ERR_TEXT_MAX 768

typedef struct ru_err {
    ru_status status;
    char text[RU_ERR_TEXT_MAX]; /* one sentence, NUL-terminated, cut with "..." when too long */
} ru_err;

/* Short name ("io") and process exit code (74) of a status. */
const char *ru_status_name(ru_status st);
int ru_status_exit_code(ru_status st);

/* Write the sentence and return `st`. `err` may be NULL. */
ru_status ru_err_set(ru_err *err, ru_status st, const char *fmt, ...) RU_PRINTF(3, 4);

/* Put "prefix: " before the sentence; keeps the status. Returns `st`. */
ru_status ru_err_wrap(ru_err *err, ru_status st, const char *fmt, ...) RU_PRINTF(3, 4);

#define RU_FAIL(err, st, ...) ru_err_set((err), (st), __VA_ARGS__)

/* Return from the caller when `expr` fails. For functions where an arena owns everything. */
#define RU_TRY(expr)                                 \
    do {                                             \
        ru_status rui_try_status_ = (expr);          \
        if (RU_UNLIKELY(rui_try_status_ != RU_OK)) { \
            return rui_try_status_;                  \
        }                                            \
    } while (0)

/* Print file:line and the sentence on stderr, then abort. For broken invariants only. */
RU_NORETURN void ru_panic(const char *file, int line, const char *fmt, ...) RU_PRINTF(3, 4);

/* One condition each; stays on in release builds. */
#define RU_CHECK(cond)                                               \
    do {                                                             \
        if (RU_UNLIKELY(!(cond))) {                                  \
            ru_panic(__FILE__, __LINE__, "check failed: %s", #cond); \
        }                                                            \
    } while (0)

/* May be slow; compiled in when RU_DEBUG is defined (sanitizer and fuzz builds). */
#ifdef RU_DEBUG
#define RU_DCHECK(cond) RU_CHECK(cond)
#else
#define RU_DCHECK(cond) ((void)sizeof(cond))
#endif

#define RU_ARRAY_LEN(a) ((uint32_t)(sizeof(a) / sizeof((a)[0])))
/* NAN of <math.h> is a float. */
#define RU_NAN ((double)NAN)

RU_API_END

#endif
