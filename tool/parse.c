/* Options and arguments of one command, by its table.
 *
 *   --out DIR   --out=DIR   -o DIR   -oDIR   --json   --no-json   -qv   --   -
 * '-' and '_' are the same inside long names, so torchrun's spellings work. */
#include <math.h>
#include <string.h>

#include "base/unit.h"
#include "tool/cmd_impl.h"

/* Where parsing stands. */
typedef struct cursor {
    ru_cmd_in *in;
    const char *const *argv;
    uint32_t n, at;
} cursor;

static bool same_name(ru_str typed, const char *name)
{
    ru_str n = ru_str_c(name);
    if (typed.n != n.n) {
        return false;
    }
    for (int64_t i = 0; i < n.n; i++) {
        char c = typed.p[i] == '_' ? '-' : typed.p[i];
        if (c != (n.p[i] == '_' ? '-' : n.p[i])) {
            return false;
        }
    }
    return true;
}

static int32_t find_long(const ru_cmd *cmd, ru_str name)
{
    for (uint32_t i = 0; i < rui_cmd_opts(cmd); i++) {
        if (same_name(name, rui_cmd_opt(cmd, i)->name)) {
            return (int32_t)i;
        }
    }
    return -1;
}

static void put_expected(const ru_opt *o, ru_text *t)
{
    static const char *const words[] = {
        [RU_OPT_FLAG] = "nothing",
        [RU_OPT_TEXT] = "a text",
        [RU_OPT_TEXTS] = "a text",
        [RU_OPT_I64] = "a whole number",
        [RU_OPT_F64] = "a number",
        [RU_OPT_TIME] = "a time such as 250us or 60s",
        [RU_OPT_SIZE] = "a size such as 4MiB or 2GB",
        [RU_OPT_CHOICE] = "one of",
    };
    ru_text_putf(t, "%s", words[o->type]);
    ru_str rest = ru_str_c(o->choices), word;
    for (uint32_t i = 0; ru_str_next(&rest, '|', &word); i++) {
        ru_text_putf(t, "%s %.*s", i > 0 ? "," : "", RU_STR_ARG(word));
    }
    if (o->min < o->max && o->type != RU_OPT_TIME && o->type != RU_OPT_SIZE) {
        ru_text_put(t, " from ");
        ru_text_f64(t, o->min);
        if (o->max < 9e18) {
            ru_text_put(t, " to ");
            ru_text_f64(t, o->max);
        } else {
            ru_text_put(t, " up");
        }
    }
}

static bool in_bounds(const ru_opt *o, double v)
{
    return o->min >= o->max || (v >= o->min && v <= o->max);
}

/* Read `text` as the option's value; false when it is not one. */
static bool read_value(const ru_opt *o, const char *text, rui_value *v)
{
    ru_str s = ru_str_c(text);
    ru_str rest = ru_str_c(o->choices), word;
    v->text = text;
    switch (o->type) {
    case RU_OPT_FLAG:
        v->flag = strcmp(text, "true") == 0;
        return true;
    case RU_OPT_TEXT:
    case RU_OPT_TEXTS:
        return true;
    case RU_OPT_I64:
        return ru_str_i64(s, &v->i64) && in_bounds(o, (double)v->i64);
    case RU_OPT_F64:
        return ru_str_f64(s, &v->f64) && isfinite(v->f64) && in_bounds(o, v->f64);
    case RU_OPT_TIME:
        return ru_unit_time(s, &v->i64) && in_bounds(o, (double)v->i64);
    case RU_OPT_SIZE:
        return ru_unit_size(s, &v->i64) && in_bounds(o, (double)v->i64);
    case RU_OPT_CHOICE:
        for (v->choice = 0; ru_str_next(&rest, '|', &word); v->choice++) {
            if (ru_str_eq(word, s)) {
                return true;
            }
        }
        return false;
    }
    return false;
}

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_MEM, "not enough memory for the command line");
}

static ru_status keep_text(ru_cmd_in *in, rui_value *v, const char *text, ru_err *err)
{
    if (v->n_texts == v->cap_texts) {
        uint32_t cap = v->cap_texts == 0 ? 8 : v->cap_texts * 2;
        const char **more = RU_NEW(in->arena, const char *, cap);
        if (more == NULL) {
            return full(err);
        }
        if (v->n_texts > 0) {
            memcpy(more, v->texts, v->n_texts * sizeof *more);
        }
        v->texts = more;
        v->cap_texts = cap;
    }
    v->texts[v->n_texts++] = text;
    return RU_OK;
}

static ru_status set_value(ru_cmd_in *in, uint32_t i, const char *text, ru_err *err)
{
    const ru_opt *o = rui_cmd_opt(in->cmd, i);
    rui_value *v = &in->values->at[i];
    v->times++;
    if (!read_value(o, text, v)) {
        char buf[300];
        ru_text t = ru_text_into(buf, sizeof buf);
        put_expected(o, &t);
        return RU_FAIL(err, RU_E_USAGE, "--%s is '%.80s', expected %s", o->name, text, buf);
    }
    return o->type == RU_OPT_TEXTS ? keep_text(in, v, text, err) : RU_OK;
}

/* The value that belongs to option i: `inline_value` (after '=' or the letter), else the next word.
 */
static ru_status take_value(cursor *c, uint32_t i, const char *inline_value, ru_err *err)
{
    const ru_opt *o = rui_cmd_opt(c->in->cmd, i);
    if (inline_value == NULL) {
        if (c->at == c->n) {
            return RU_FAIL(err, RU_E_USAGE, "--%s needs a value: --%s %s", o->name, o->name,
                           rui_opt_word(o));
        }
        inline_value = c->argv[c->at++];
    }
    return set_value(c->in, i, inline_value, err);
}

/* What stands for another program's option; false: nothing is known. '_' is '-'. */
static bool called(const ru_cmd *cmd, ru_str name, ru_str *hint)
{
    ru_str rest = ru_str_c(cmd->called != NULL ? cmd->called : ""), word;
    while (ru_str_next(&rest, '|', &word)) {
        int64_t eq = ru_str_find(word, "=");
        bool same = eq == name.n;
        for (int64_t k = 0; same && k < eq; k++) {
            same = word.p[k] == (name.p[k] == '_' ? '-' : name.p[k]);
        }
        if (same) {
            *hint = ru_str_from(word, eq + 1);
            return true;
        }
    }
    return false;
}

static ru_status called_so(const char *dashes, ru_str name, ru_str hint, ru_err *err)
{
    return RU_FAIL(err, RU_E_USAGE, "unknown option '%s%.*s'; here it is %.*s", dashes,
                   RU_STR_ARG(name), RU_STR_ARG(hint));
}

static ru_status unknown_option(const ru_cmd_in *in, ru_str name, ru_err *err)
{
    ru_str hint;
    if (called(in->cmd, name, &hint)) {
        return called_so("--", name, hint, err);
    }
    enum { NAMES_MAX = 128 };
    const char *names[NAMES_MAX];
    uint32_t n = 0;
    for (; n < rui_cmd_opts(in->cmd) && n < NAMES_MAX; n++) {
        names[n] = rui_cmd_opt(in->cmd, n)->name;
    }
    int32_t near = ru_str_nearest(name, names, n);
    if (near >= 0) {
        return RU_FAIL(err, RU_E_USAGE, "unknown option '--%.*s'; did you mean '--%s'?",
                       RU_STR_ARG(name), names[near]);
    }
    return RU_FAIL(err, RU_E_USAGE, "unknown option '--%.*s'; --help lists the options",
                   RU_STR_ARG(name));
}

static ru_status parse_long(cursor *c, const char *word, ru_err *err)
{
    const char *eq = strchr(word, '=');
    ru_str name = eq != NULL ? ru_str_n(word, eq - word) : ru_str_c(word);
    int32_t i = find_long(c->in->cmd, name);
    bool no = false;
    if (i < 0 && ru_str_starts(name, "no-")) {
        i = find_long(c->in->cmd, ru_str_from(name, 3));
        no = true;
        if (i >= 0 && rui_cmd_opt(c->in->cmd, (uint32_t)i)->type != RU_OPT_FLAG) {
            i = -1;
        }
    }
    if (i < 0) {
        return unknown_option(c->in, name, err);
    }
    const ru_opt *o = rui_cmd_opt(c->in->cmd, (uint32_t)i);
    if (o->type != RU_OPT_FLAG) {
        return take_value(c, (uint32_t)i, eq != NULL ? eq + 1 : NULL, err);
    }
    if (eq != NULL) {
        return RU_FAIL(err, RU_E_USAGE, "--%s takes no value", o->name);
    }
    return set_value(c->in, (uint32_t)i, no ? "false" : "true", err);
}

/* -abc: flags a and b, then c, whose value is the rest of the word or the next one. */
static ru_status parse_short(cursor *c, const char *letters, ru_err *err)
{
    ru_str hint;
    if (called(c->in->cmd, ru_str_c(letters), &hint)) { /* -np */
        return called_so("-", ru_str_c(letters), hint, err);
    }
    for (const char *p = letters; *p != '\0'; p++) {
        int32_t found = -1;
        for (uint32_t i = 0; i < rui_cmd_opts(c->in->cmd); i++) {
            found = rui_cmd_opt(c->in->cmd, i)->letter == *p ? (int32_t)i : found;
        }
        if (found < 0) {
            return RU_FAIL(err, RU_E_USAGE, "unknown option '-%c'; --help lists the options", *p);
        }
        uint32_t i = (uint32_t)found;
        if (rui_opt_takes_value(rui_cmd_opt(c->in->cmd, i))) {
            return take_value(c, i, p[1] != '\0' ? p + 1 : NULL, err);
        }
        RU_TRY(set_value(c->in, i, "true", err));
    }
    return RU_OK;
}

static ru_status set_defaults(ru_cmd_in *in, ru_err *err)
{
    uint32_t n = rui_cmd_opts(in->cmd);
    in->values = RU_NEW(in->arena, rui_cmd_values, 1);
    rui_value *at = RU_NEW(in->arena, rui_value, n);
    if (in->values == NULL || at == NULL) {
        return full(err);
    }
    in->values->at = at;
    for (uint32_t i = 0; i < n; i++) {
        const ru_opt *o = rui_cmd_opt(in->cmd, i);
        if (o->def != NULL && !read_value(o, o->def, &at[i])) {
            return RU_FAIL(err, RU_E_BUG, "default '%s' of --%s does not fit its type", o->def,
                           o->name);
        }
    }
    return RU_OK;
}

ru_status rui_cmd_parse(ru_cmd_in *in, const char *const *argv, uint32_t n, ru_err *err)
{
    RU_TRY(set_defaults(in, err));
    const char **args = RU_NEW(in->arena, const char *, n + 1);
    if (args == NULL) {
        return full(err);
    }
    in->args = args;
    in->n_args = 0;
    cursor c = {in, argv, n, 0};
    bool only_args = false;
    while (c.at < c.n) {
        const char *word = c.argv[c.at++];
        if (only_args || word[0] != '-' || word[1] == '\0') {
            args[in->n_args++] = word;
        } else if (strcmp(word, "--") == 0) {
            only_args = true;
        } else if (word[1] == '-') {
            RU_TRY(parse_long(&c, word + 2, err));
        } else {
            RU_TRY(parse_short(&c, word + 1, err));
        }
    }
    return RU_OK;
}

ru_status rui_cmd_parse_args(const ru_cmd_in *in, ru_err *err)
{
    const ru_cmd *cmd = in->cmd;
    if (in->n_args < cmd->arg_min) {
        return RU_FAIL(err, RU_E_USAGE, "an argument is missing: %s", cmd->args);
    }
    if (in->n_args > cmd->arg_max) {
        const char *extra = in->args[cmd->arg_max];
        if (cmd->args == NULL) {
            return RU_FAIL(err, RU_E_USAGE,
                           "unexpected argument '%.80s'; the command takes no arguments", extra);
        }
        return RU_FAIL(err, RU_E_USAGE, "unexpected argument '%.80s'; the command takes %s", extra,
                       cmd->args);
    }
    return RU_OK;
}

/* The value of the option called `name`; a name that the command does not have is our bug. */
static const rui_value *value_of(const ru_cmd_in *in, const char *name)
{
    int32_t i = find_long(in->cmd, ru_str_c(name));
    if (i < 0) {
        ru_panic(__FILE__, __LINE__, "command '%s' has no option '%s'", in->cmd->name, name);
    }
    return &in->values->at[i];
}

bool ru_cmd_given(const ru_cmd_in *in, const char *name)
{
    return value_of(in, name)->times > 0;
}

bool ru_cmd_flag(const ru_cmd_in *in, const char *name)
{
    return value_of(in, name)->flag;
}

const char *ru_cmd_text(const ru_cmd_in *in, const char *name)
{
    return value_of(in, name)->text;
}

const char *const *ru_cmd_texts(const ru_cmd_in *in, const char *name, uint32_t *n)
{
    const rui_value *v = value_of(in, name);
    *n = v->n_texts;
    return v->texts;
}

int64_t ru_cmd_i64(const ru_cmd_in *in, const char *name)
{
    return value_of(in, name)->i64;
}

double ru_cmd_f64(const ru_cmd_in *in, const char *name)
{
    return value_of(in, name)->f64;
}

uint32_t ru_cmd_choice(const ru_cmd_in *in, const char *name)
{
    return value_of(in, name)->choice;
}
