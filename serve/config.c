#include "serve/config.h"

#include <string.h>

enum { DEPTH_MAX = 8, PATH_BYTES = 256, INSTANCES_MAX = 64 };
#define QUEUE        "dynamic_batching.default_queue_policy."
#define DELAY_MAX_US INT64_C(3600000000) /* an hour */

typedef struct reader {
    const char *p, *end;
    int64_t line;
    rui_config *c;
    ru_err *err;
    ru_status st;
} reader;

static bool wrong(reader *r, const char *expected)
{
    if (r->st == RU_OK) {
        r->st = RU_FAIL(r->err, RU_E_DATA, "line %lld: expected %s", (long long)r->line, expected);
    }
    return false;
}

/* The next byte that is neither blank nor comment. */
static char peek(reader *r)
{
    while (r->p < r->end) {
        char c = *r->p;
        if (c == '#') {
            while (r->p < r->end && *r->p != '\n') {
                r->p++;
            }
        } else if (c == '\n' || c == ' ' || c == '\t' || c == '\r') {
            r->line += c == '\n' ? 1 : 0;
            r->p++;
        } else {
            return c;
        }
    }
    return '\0';
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == '+';
}

static ru_str word(reader *r)
{
    (void)peek(r);
    const char *from = r->p;
    while (r->p < r->end && is_word(*r->p)) {
        r->p++;
    }
    return ru_str_n(from, r->p - from);
}

/* A text in quotes, without escapes, or a word. */
static bool scalar(reader *r, ru_str *out)
{
    char quote = peek(r);
    if (quote != '"' && quote != '\'') {
        *out = word(r);
        return out->n > 0 || wrong(r, "a value");
    }
    const char *from = ++r->p;
    while (r->p < r->end && *r->p != quote && *r->p != '\n' && *r->p != '\\') {
        r->p++;
    }
    if (r->p == r->end || *r->p != quote) {
        return wrong(r, "a text in quotes, without escapes");
    }
    *out = ru_str_n(from, r->p++ - from);
    return true;
}

/* -- fields ------------------------------------------------------------------------------------
 */

static bool unsupported(reader *r, const char *path, ru_str value)
{
    r->st = RU_FAIL(r->err, RU_E_UNSUPPORTED, "line %lld: %s%s%.*s is not supported",
                    (long long)r->line, path, value.n > 0 ? ": " : "",
                    (int)(value.n < 60 ? value.n : 60), value.p);
    return false;
}

static bool number(reader *r, const char *path, ru_str value, int64_t least, int64_t most,
                   int64_t *out)
{
    if (ru_str_i64(value, out) && *out >= least && *out <= most) {
        return true;
    }
    r->st = RU_FAIL(r->err, RU_E_DATA, "line %lld: %s is '%.*s', not a number from %lld to %lld",
                    (long long)r->line, path, (int)(value.n < 60 ? value.n : 60), value.p,
                    (long long)least, (long long)most);
    return false;
}

static bool tensor_field(reader *r, const char *path, const char *field, ru_str value)
{
    bool in = strncmp(path, "input", 5) == 0;
    uint32_t n = in ? r->c->n_inputs : r->c->n_outputs;
    rui_config_tensor *t = n > 0 ? &(in ? r->c->inputs : r->c->outputs)[n - 1] : NULL;
    if (t == NULL) {
        return wrong(r, "a message");
    }
    if (strcmp(field, "name") == 0) {
        t->name = value;
    } else if (strcmp(field, "data_type") == 0 && ru_str_starts(value, "TYPE_")) {
        t->type = ru_str_from(value, 5);
        t->type = ru_str_eq_c(t->type, "STRING") ? ru_str_c("BYTES") : t->type;
    } else if (strcmp(field, "dims") == 0) {
        t->has_dims = true;
        return t->rank == RU_RANK_MAX ? wrong(r, "at most 8 dimensions")
                                      : number(r, path, value, -1, INT64_MAX, &t->dims[t->rank++]);
    } else if (strcmp(field, "format") != 0) { /* nothing of the model depends on it */
        return unsupported(r, path, value);
    }
    return true;
}

static bool set(reader *r, const char *path, ru_str value)
{
    rui_config *c = r->c;
    int64_t n;
    if (strncmp(path, "input.", 6) == 0 || strncmp(path, "output.", 7) == 0) {
        return tensor_field(r, path, strchr(path, '.') + 1, value);
    }
    if (strcmp(path, "name") == 0) {
        c->name = value;
    } else if (strcmp(path, "default_model_filename") == 0) {
        c->file = value;
    } else if (strcmp(path, "platform") == 0 || strcmp(path, "backend") == 0) {
        return ru_str_eq_c(value, "onnxruntime_onnx") || ru_str_eq_c(value, "onnxruntime") ||
               ru_str_eq_c(value, "rubato") || ru_str_eq_c(value, "rubato_onnx") ||
               unsupported(r, path, value);
    } else if (strcmp(path, "max_batch_size") == 0) {
        return number(r, path, value, 0, INT32_MAX, &c->rows_max);
    } else if (strcmp(path, "instance_group.count") == 0) {
        return number(r, path, value, 1, INSTANCES_MAX, &c->instances);
    } else if (strcmp(path, "instance_group.kind") == 0) {
        return ru_str_eq_c(value, "KIND_CPU") || ru_str_eq_c(value, "KIND_AUTO") ||
               unsupported(r, path, value);
    } else if (strcmp(path, "instance_group.name") == 0) {
        return true;
    } else if (strcmp(path, "dynamic_batching.max_queue_delay_microseconds") == 0) {
        return number(r, path, value, 0, DELAY_MAX_US, &c->delay_us);
    } else if (strcmp(path, "dynamic_batching.default_priority_level") == 0) {
        return number(r, path, value, 1, 7, &c->priority);
    } else if (strcmp(path, "dynamic_batching.priority_levels") == 0) {
        return number(r, path, value, 1, 7, &n);
    } else if (strcmp(path, "dynamic_batching.preserve_ordering") == 0) {
        return ru_str_eq_c(value, "false") || unsupported(r, path, value);
    } else if (strcmp(path, QUEUE "default_timeout_microseconds") == 0) {
        return number(r, path, value, 0, INT64_MAX / 1000000, &c->timeout_us);
    } else if (strcmp(path, QUEUE "allow_timeout_override") == 0) {
        c->shorter = ru_str_eq_c(value, "true");
        return c->shorter || ru_str_eq_c(value, "false") || unsupported(r, path, value);
    } else if (strcmp(path, QUEUE "timeout_action") == 0) {
        return ru_str_eq_c(value, "REJECT") || unsupported(r, path, value);
    } else if (strcmp(path, "version_policy.latest.num_versions") == 0) {
        return number(r, path, value, 1, INT64_MAX, &c->latest);
    } else if (strcmp(path, "version_policy.specific.versions") == 0) {
        if (c->n_specific == RUI_CONFIG_NAMES || !number(r, path, value, 1, INT64_MAX, &n)) {
            return wrong(r, "at most 64 versions");
        }
        c->specific[c->n_specific++] = n;
    } else {
        return unsupported(r, path, value);
    }
    return true;
}

/* A message begins. */
static bool begin(reader *r, const char *path)
{
    rui_config *c = r->c;
    bool in = strcmp(path, "input") == 0;
    if (in || strcmp(path, "output") == 0) {
        uint32_t *n = in ? &c->n_inputs : &c->n_outputs;
        if (*n == RUI_CONFIG_NAMES) {
            return wrong(r, "at most 64 inputs and outputs");
        }
        (in ? c->inputs : c->outputs)[(*n)++] = (rui_config_tensor){0};
        return true;
    }
    c->all = c->all || strcmp(path, "version_policy.all") == 0;
    return strcmp(path, "dynamic_batching") == 0 ||
           strcmp(path, "dynamic_batching.default_queue_policy") == 0 ||
           strcmp(path, "instance_group") == 0 || strncmp(path, "version_policy", 14) == 0 ||
           unsupported(r, path, ru_str_c(""));
}

/* -- the text format ---------------------------------------------------------------------------
 */

static bool fields(reader *r, char *path, uint32_t depth, char closer);

/* colon: one stands before it, or before its list; only messages do without. */
static bool value(reader *r, char *path, uint32_t depth, bool colon)
{
    ru_str v;
    if (peek(r) == '{') {
        r->p++;
        return begin(r, path) && fields(r, path, depth + 1, '}');
    }
    return (colon || wrong(r, "':' before a value")) && scalar(r, &v) && set(r, path, v);
}

/* One value, or a list of them. */
static bool values(reader *r, char *path, uint32_t depth)
{
    bool colon = peek(r) == ':';
    r->p += colon ? 1 : 0;
    if (peek(r) != '[') {
        return value(r, path, depth, colon);
    }
    r->p++;
    while (r->st == RU_OK && peek(r) != ']') {
        if (!value(r, path, depth, colon)) {
            return false;
        }
        if (peek(r) == ',') {
            r->p++;
        } else if (peek(r) != ']') {
            return wrong(r, "',' or ']'");
        }
    }
    r->p++;
    return true;
}

static bool fields(reader *r, char *path, uint32_t depth, char closer)
{
    size_t n = strlen(path);
    if (depth > DEPTH_MAX) {
        return wrong(r, "fewer levels");
    }
    while (peek(r) != closer) {
        ru_str name = word(r);
        if (name.n == 0 || n + 2 + (size_t)name.n > PATH_BYTES) {
            return wrong(r, closer == '}' ? "a field or '}'" : "a field");
        }
        ru_text t = ru_text_into(path + n, PATH_BYTES - (int64_t)n);
        ru_text_putf(&t, "%s%.*s", n > 0 ? "." : "", (int)name.n, name.p);
        bool ok = values(r, path, depth);
        path[n] = '\0';
        if (!ok) {
            return false;
        }
        if (peek(r) == ',' || peek(r) == ';') {
            r->p++;
        }
    }
    if (closer == '}') {
        r->p++;
    }
    return true;
}

ru_status rui_config_read(ru_str text, rui_config *out, ru_err *err)
{
    char path[PATH_BYTES] = "";
    *out = (rui_config){.rows_max = -1, .latest = 1};
    const char *p = text.n > 0 ? text.p : "";
    reader r = {.p = p, .end = p + text.n, .line = 1, .c = out, .err = err};
    if (fields(&r, path, 0, '\0') && r.p != r.end) {
        (void)wrong(&r, "text without zero bytes");
    }
    return r.st;
}
