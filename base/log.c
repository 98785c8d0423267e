/* The log's sink: options in one static struct, a line put together on the stack, one write each.
 */
#include "base/log.h"

#include <string.h>
#include <unistd.h>

#include "base/str.h"

enum { LINE_MAX_BYTES = 2048 };

static ru_log_options options = {.level = RU_LOG_WARN, .level_file = RU_LOG_OFF};

static const char *const level_names[] = {"debug", "info", "warn", "error", "off"};

void ru_log_set(const ru_log_options *o)
{
    options = *o;
}

ru_log_options ru_log_get(void)
{
    return options;
}

bool ru_log_on(ru_log_level level)
{
    return level >= options.level || (options.fd_file > 0 && level >= options.level_file);
}

static void plain_line(ru_text *t, ru_log_level level, const char *part, const char *event,
                       const char *words, bool color)
{
    static const char *const paint[] = {"\033[2m", "", "\033[33m", "\033[31m", ""};
    if (options.now_ns != NULL) {
        int64_t ms = (options.now_ns() - options.start_ns) / 1000000;
        ru_text_putf(t, "%lld.%03lld ", (long long)(ms / 1000), (long long)(ms % 1000));
    }
    const char *on = color ? paint[level] : "";
    ru_text_putf(t, "%s%s%s %s %s", on, level_names[level], *on != '\0' ? "\033[0m" : "", part,
                 event);
    if (*words != '\0') {
        ru_text_putf(t, " %s", words);
    }
}

static void json_line(ru_text *t, ru_log_level level, const char *part, const char *event,
                      const char *words)
{
    ru_text_putf(t, "{\"schema\":\"rubato.log/1\",\"level\":\"%s\",", level_names[level]);
    if (options.now_ns != NULL) {
        ru_text_putf(t, "\"at_ns\":%lld,", (long long)(options.now_ns() - options.start_ns));
    }
    ru_text_putf(t, "\"part\":\"%s\",\"event\":\"%s\",\"text\":", part, event);
    ru_text_json(t, ru_str_c(words));
    ru_text_char(t, '}', 1);
}

static void write_line(int fd, ru_log_level level, const char *part, const char *event,
                       const char *words, bool color)
{
    char buf[LINE_MAX_BYTES];
    ru_text t = ru_text_into(buf, sizeof buf - 1);
    if (options.json) {
        json_line(&t, level, part, event, words);
    } else {
        plain_line(&t, level, part, event, words, color);
    }
    buf[t.n] = '\n';
    /* A log that cannot be written has nobody to tell. */
    ssize_t done = write(fd, buf, (size_t)t.n + 1);
    (void)done;
}

void ru_log(ru_log_level level, const char *part, const char *event, const char *fmt, ...)
{
    RU_CHECK(level < RU_LOG_OFF);
    if (!ru_log_on(level)) {
        return;
    }
    char words[LINE_MAX_BYTES / 2];
    ru_text t = ru_text_into(words, sizeof words);
    va_list ap;
    va_start(ap, fmt);
    ru_text_vputf(&t, fmt, ap);
    va_end(ap);
    for (int64_t i = 0; i < t.n; i++) {
        words[i] = words[i] == '\n' ? ' ' : words[i];
    }
    if (level >= options.level) {
        write_line(STDERR_FILENO, level, part, event, words, options.color);
    }
    if (options.fd_file > 0 && level >= options.level_file) {
        write_line(options.fd_file, level, part, event, words, false);
    }
}
