/* The one process-wide log. A line has level, part, event, then names and values, without '=':
 *
 *     12.345 warn train checkpoint_late step 310 late 1.2 s
 *
 * People read logs, machines read traces. Lines go to stderr and, once opened, to a file; each is
 * one write, so lines of several threads never mix. Set up by the main thread before others start.
 *
 * Thread: ru_log any; set-up main only. */
#ifndef RU_BASE_LOG_H
#define RU_BASE_LOG_H

#include "base/status.h"

RU_API_BEGIN

typedef enum ru_log_level {
    RU_LOG_DEBUG,
    RU_LOG_INFO,
    RU_LOG_WARN,
    RU_LOG_ERROR,
    RU_LOG_OFF,
} ru_log_level;

typedef struct ru_log_options {
    ru_log_level level;      /* least level that is shown on stderr; zero: debug */
    ru_log_level level_file; /* the same for the file */
    bool json;               /* one JSON object a line, schema rubato.log/1 */
    bool color;              /* levels in colour on stderr */
    int fd_file;             /* 0: no file; else an open descriptor, not closed here */
    int64_t (*now_ns)(void); /* clock for the time in front of lines; NULL: lines carry no time */
    int64_t start_ns;        /* what the clock shows at time 0 of the lines */
} ru_log_options;

/* Until set: warnings and errors on stderr, plain. */
void ru_log_set(const ru_log_options *options);
ru_log_options ru_log_get(void);
bool ru_log_on(ru_log_level level); /* would a line of this level be written anywhere? */

/* `part` is a folder or program part, `event` a word_with_underscores. */
void ru_log(ru_log_level level, const char *part, const char *event, const char *fmt, ...)
    RU_PRINTF(4, 5);

RU_API_END

/* Inside Rubato: librubato.so does not export these. */
/* "debug", "info", "warn", "error", "off"; false for other words. */

#endif
