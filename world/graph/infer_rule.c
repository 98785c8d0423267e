/* The rules of world/graph/rules.def: does every input of a node have the type and shape, and every
 * attribute the kind and value, that the row of its op states?
 *
 * A row is read from left to right. A letter takes the first type or size that it meets and must
 * fit all later ones. Shape rules (world/graph/infer*.c) run afterwards: they find the ranks they
 * expect and check what depends on values. */
#include "world/graph/infer_impl.h"

#include <string.h>

typedef struct row {
    const char *inputs, *attrs;
} row;

/* An op without a row does not compile: the switch names every op. */
static row row_of(ru_op op)
{
    switch (op) {
#define RU_RULE(op, inputs, attrs) \
    case RU_OP_##op:               \
        return (row){inputs, attrs};
#include "world/graph/rules.def"
#undef RU_RULE
    case RU_OP_NONE:
    case RU_OP_COUNT:
    default:
        return (row){"", ""};
    }
}

enum { LETTERS = 26, ITEMS_MAX = RU_RANK_MAX + 1, TEXT_MAX = 160 };

/* What the letters stand for so far. */
typedef struct bound {
    ru_dtype type[LETTERS]; /* RU_NONE: nothing yet */
    bool dim_set[LETTERS], axes_set[LETTERS];
    int64_t dim[LETTERS];
    ru_type axes[LETTERS]; /* of S..., as dims */
} bound;

/* One axis of a pattern: `coef` times `letter`, or the number coef when letter is 0; '*': any. */
typedef struct item {
    char letter;
    int64_t coef;
    bool group; /* any number of axes */
} item;

/* One input of a row. */
typedef struct pattern {
    const char *name, *type;
    int name_len, type_len;
    bool skip, more, swap;
    bool shaped, one, fits; /* shape given; "=1"; "<S..." */
    uint32_t n;
    item items[ITEMS_MAX];
} pattern;

/* -- reading a row ----------------------------------------------------------------------------- */

static const char *item_read(const char *at, item *it)
{
    *it = (item){.coef = 1};
    if (*at >= '0' && *at <= '9') {
        for (it->coef = 0; *at >= '0' && *at <= '9'; at++) {
            it->coef = it->coef * 10 + (*at - '0');
        }
    }
    if (*at == '*' || (*at >= 'A' && *at <= 'Z')) {
        it->letter = *at++;
    }
    if (*at == '.') {
        RU_CHECK(strncmp(at, "...", 3) == 0);
        it->group = true;
        it->letter = it->letter == 0 ? '*' : it->letter;
        at += 3;
    }
    return at;
}

static const char *shape_read(const char *at, pattern *p)
{
    p->shaped = true;
    p->one = *at == '=';
    p->fits = *at == '<';
    at += p->one || p->fits ? 1 : 0;
    while (*at != ']') {
        RU_CHECK(p->n < ITEMS_MAX && *at != '\0');
        at = item_read(at, &p->items[p->n++]);
        RU_CHECK(*at == ',' || *at == ']');
        at += *at == ',' ? 1 : 0;
    }
    return at + 1;
}

/* The next input of a row; NULL: there is none. Layout 1 swaps the first two axes where the row
 * says so. */
static const char *pattern_read(const char *at, bool swap, pattern *p)
{
    at += strspn(at, " ");
    if (*at == '\0') {
        return NULL;
    }
    at += *at == '!' ? 1 : 0;
    *p = (pattern){.name = at, .name_len = (int)strcspn(at, ":")};
    at += p->name_len;
    RU_CHECK(*at == ':');
    p->type = ++at;
    p->type_len = (int)strcspn(at, "?+~[ ");
    at += p->type_len;
    for (; *at == '?' || *at == '+' || *at == '~'; at++) {
        p->skip = p->skip || *at == '?';
        p->more = p->more || *at == '+';
        p->swap = p->swap || (*at == '~' && swap);
    }
    if (*at == '[') {
        at = shape_read(at + 1, p);
    }
    RU_CHECK(*at == ' ' || *at == '\0');
    if (p->swap) {
        RU_CHECK(p->n >= 2);
        item first = p->items[0];
        p->items[0] = p->items[1];
        p->items[1] = first;
    }
    return at;
}

/* -- types ------------------------------------------------------------------------------------- */

static bool type_fits(const pattern *p, bound *b, ru_dtype t)
{
    char ch = p->type[0];
    if (p->type_len > 1) {
        const char *name = ru_dtype_name(t);
        return strncmp(name, p->type, (size_t)p->type_len) == 0 && name[p->type_len] == '\0';
    }
    if (ch < 'A' || ch > 'Z') {
        return ch == 'a' || (ch == 'f' && ru_dtype_is_float(t)) ||
               (ch == 'i' && (t == RU_I32 || t == RU_I64)) || (ch == 'n' && ru_dtype_is_int(t)) ||
               (ch == 'b' && t == RU_BOOL);
    }
    ru_dtype *have = &b->type[ch - 'A'];
    if (*have == RU_NONE && (ch != 'F' || ru_dtype_is_float(t))) {
        *have = t;
    }
    return *have == t;
}

static const char *type_words(const pattern *p, const bound *b)
{
    char ch = p->type[0];
    if (p->type_len > 1) {
        return NULL; /* the row's own word */
    }
    if (ch >= 'A' && ch <= 'Z' && b->type[ch - 'A'] != RU_NONE) {
        return ru_dtype_name(b->type[ch - 'A']);
    }
    return ch == 'F' || ch == 'f' ? "a float type"
           : ch == 'i'            ? "i32 or i64"
           : ch == 'n'            ? "an integer type"
           : ch == 'b'            ? "bool"
                                  : "any type";
}

/* -- shapes ------------------------------------------------------------------------------------ */

/* A dimension that is not known must turn out right: binding infers again and checks. */
static bool may_equal(int64_t a, int64_t b)
{
    return a == b || a == RU_DIM_UNKNOWN || b == RU_DIM_UNKNOWN || ru_dim_is_symbolic(a) ||
           ru_dim_is_symbolic(b);
}

static bool dim_fits(const item *it, bound *b, int64_t d)
{
    if (it->letter == '*') {
        return true;
    }
    if (it->letter == 0) {
        return may_equal(d, it->coef);
    }
    uint32_t k = (uint32_t)(it->letter - 'A');
    int64_t each = ru_dim_div(d, it->coef);
    bool vague = !b->dim_set[k] || ru_dim_is_symbolic(b->dim[k]);
    if (vague && each != RU_DIM_UNKNOWN && !(b->dim_set[k] && ru_dim_is_symbolic(each))) {
        b->dim_set[k] = true;
        b->dim[k] = each;
        return true;
    }
    if (vague) {
        return ru_dim_is_symbolic(d);
    }
    return may_equal(d, ru_dim_mul(b->dim[k], it->coef));
}

static bool axes_fit(const item *it, bound *b, const int64_t *dims, uint32_t n)
{
    if (it->letter == '*') {
        return true;
    }
    ru_type *have = &b->axes[it->letter - 'A'];
    bool *set = &b->axes_set[it->letter - 'A'];
    if (!*set) {
        *set = true;
        *have = ru_type_make(RU_NONE, n, dims);
        return true;
    }
    bool ok = have->rank == n;
    for (uint32_t i = 0; i < n && ok; i++) {
        ok = may_equal(have->dims[i], dims[i]);
    }
    return ok;
}

/* Does `t` broadcast to the axes of the pattern's letter? */
static bool broadcast_fits(const pattern *p, const bound *b, const ru_type *t)
{
    const ru_type *to = &b->axes[p->items[0].letter - 'A'];
    bool ok = t->rank <= to->rank;
    for (uint32_t i = 0; i < t->rank && ok; i++) {
        ok = t->dims[i] == 1 || may_equal(t->dims[i], to->dims[to->rank - t->rank + i]);
    }
    return ok;
}

static bool shape_fits(const pattern *p, bound *b, const ru_type *t)
{
    if (!p->shaped) {
        return true;
    }
    if (p->one) {
        return may_equal(ru_type_count(t), 1);
    }
    if (p->fits) {
        return broadcast_fits(p, b, t);
    }
    uint32_t group = 0;
    while (group < p->n && !p->items[group].group) {
        group++;
    }
    bool open = group < p->n;
    if (open ? t->rank + 1 < p->n : t->rank != p->n) {
        return false;
    }
    uint32_t wide = open ? t->rank + 1 - p->n : 0;
    bool ok = true;
    for (uint32_t i = 0; i < p->n && ok; i++) {
        uint32_t at = open && i > group ? i - 1 + wide : i;
        ok = open && i == group ? axes_fit(&p->items[i], b, t->dims + at, wide)
                                : dim_fits(&p->items[i], b, t->dims[at]);
    }
    return ok;
}

/* -- what was expected ------------------------------------------------------------------------- */

/* Text of at most TEXT_MAX - 1 bytes; what does not fit is left out. */
typedef struct words {
    char text[TEXT_MAX];
    size_t n;
} words;

static void say(words *w, const char *text, size_t len)
{
    len = len < TEXT_MAX - 1 - w->n ? len : TEXT_MAX - 1 - w->n;
    memcpy(w->text + w->n, text, len);
    w->n += len;
    w->text[w->n] = '\0';
}

static void say_dim(const rui_infer *c, words *w, int64_t d)
{
    const char *text = rui_dim_text(c->g, c->g->arena, d);
    say(w, text != NULL ? text : "?", text != NULL ? strlen(text) : 1);
}

static void say_axes(const rui_infer *c, words *w, const ru_type *t)
{
    for (uint32_t i = 0; i < t->rank; i++) {
        say(w, ",", i > 0 ? 1 : 0);
        say_dim(c, w, t->dims[i]);
    }
}

static void say_item(const rui_infer *c, words *w, const bound *b, const item *it)
{
    uint32_t k = it->letter >= 'A' ? (uint32_t)(it->letter - 'A') : 0;
    bool letter = it->letter != 0 && it->letter != '*';
    if (it->group && letter && b->axes_set[k]) {
        say_axes(c, w, &b->axes[k]);
    } else if (!it->group && letter && b->dim_set[k]) {
        say_dim(c, w, ru_dim_mul(b->dim[k], it->coef));
    } else if (it->letter == 0) {
        say_dim(c, w, it->coef);
    } else if (it->group) {
        say(w, "...", 3);
    } else {
        if (it->coef != 1) {
            say_dim(c, w, it->coef);
        }
        say(w, &it->letter, 1);
    }
}

static ru_status input_fail(const rui_infer *c, uint32_t k, const pattern *p, const bound *b)
{
    words w = {.n = 0};
    char got[128];
    ru_arena_mark mark = ru_arena_mark_get(c->g->arena);
    const char *type = type_words(p, b);
    say(&w, type != NULL ? type : p->type, type != NULL ? strlen(type) : (size_t)p->type_len);
    if (p->one) {
        say(&w, ", one element", 13);
    } else if (p->fits) {
        say(&w, " that broadcasts to ", 20);
    }
    if (p->shaped && !p->one) {
        say(&w, "[", 1);
        for (uint32_t i = 0; i < p->n; i++) {
            say(&w, ",", i > 0 ? 1 : 0);
            say_item(c, &w, b, &p->items[i]);
        }
        say(&w, "]", 1);
    }
    (void)ru_type_print(c->g, rui_in(c, k), got, sizeof got);
    ru_arena_rewind(c->g->arena, mark);
    return rui_infer_fail(c, "input %u '%.*s' is %s, expected %s", k, p->name_len, p->name, got,
                          w.text);
}

static ru_status inputs_check(const rui_infer *c)
{
    const char *at = row_of(c->n.op).inputs;
    bool swap = ru_node_int(&c->n, RU_ATTR_layout, 0) == 1;
    uint16_t in_min = ru_op_get(c->n.op)->in_min;
    bound b;
    memset(&b, 0, sizeof b);
    pattern p = {.more = false};
    for (uint32_t k = 0; k < c->n.n_in; k++) {
        if (!p.more) {
            at = pattern_read(at, swap, &p);
            RU_CHECK(at != NULL);
        }
        const ru_type *t = rui_in(c, k);
        if (t == NULL && k < in_min && !p.skip) {
            return rui_infer_fail(c, "input %u '%.*s' is absent", k, p.name_len, p.name);
        }
        if (t != NULL && t->dtype == RU_NONE) {
            return rui_infer_fail(c, "input %u '%.*s' has no type yet", k, p.name_len, p.name);
        }
        if (t != NULL && (!type_fits(&p, &b, t->dtype) || !shape_fits(&p, &b, t))) {
            return input_fail(c, k, &p, &b);
        }
    }
    return RU_OK;
}

/* -- attributes -------------------------------------------------------------------------------- */

static int64_t number_read(const char *at)
{
    int64_t sign = *at == '-' ? -1 : 1;
    int64_t n = 0;
    for (at += *at == '-' ? 1 : 0; *at >= '0' && *at <= '9'; at++) {
        n = n * 10 + (*at - '0');
    }
    return sign * n;
}

/* Is `word` one of the words of "a|b|c", which ends at a space? */
static bool word_listed(const char *at, const char *word, size_t len)
{
    while (*at != '\0' && *at != ' ') {
        size_t n = strcspn(at, "| ");
        if (n == len && strncmp(at, word, len) == 0) {
            return true;
        }
        at += n + (at[n] == '|' ? 1 : 0);
    }
    return false;
}

static ru_status axes_check(const rui_infer *c, const char *key, const int64_t *axes, uint32_t n)
{
    const ru_type *x = rui_in(c, 0);
    uint32_t used = 0;
    for (uint32_t i = 0; x != NULL && i < n; i++) {
        uint32_t a;
        RU_TRY(rui_axis(c, axes[i], x->rank, &a));
        if ((used >> a & 1u) != 0) {
            return rui_infer_fail(c, "attribute %s names axis %lld twice", key, (long long)axes[i]);
        }
        used |= 1u << a;
    }
    return RU_OK;
}

/* `limit` stands after the kind: "", "@0", ">=1", "=a|b". */
static ru_status limit_check(const rui_infer *c, const ru_attr *a, const char *limit)
{
    const char *key = ru_attr_name(a->key);
    bool list = a->kind == RU_ATTR_INTS;
    const int64_t *v = list ? a->u.is : &a->u.i;
    uint32_t n = list ? a->n : 1;
    if (*limit == '@') {
        return axes_check(c, key, v, n);
    }
    for (uint32_t i = 0; limit[0] == '>' && i < n; i++) {
        if (v[i] < number_read(limit + 2)) {
            return rui_infer_fail(c, "attribute %s is %lld, expected at least %lld", key,
                                  (long long)v[i], (long long)number_read(limit + 2));
        }
    }
    if (limit[0] == '=') {
        words w = {.n = 0};
        if (a->kind == RU_ATTR_STR) {
            say(&w, a->u.s, strlen(a->u.s));
        } else {
            say_dim(c, &w, a->u.i);
        }
        if (!word_listed(limit + 1, w.text, w.n)) {
            return rui_infer_fail(c, "attribute %s is '%s', expected %.*s", key, w.text,
                                  (int)strcspn(limit + 1, " "), limit + 1);
        }
    }
    return RU_OK;
}

static const char *kind_words(ru_attr_kind k)
{
    switch (k) {
    case RU_ATTR_INT:
        return "an integer";
    case RU_ATTR_FLOAT:
        return "a float";
    case RU_ATTR_STR:
        return "a text";
    case RU_ATTR_INTS:
        return "a list of integers";
    case RU_ATTR_FLOATS:
        return "a list of floats";
    case RU_ATTR_STRS:
        return "a list of texts";
    case RU_ATTR_TENSOR:
        return "a tensor";
    default:
        return "of no known kind";
    }
}

static ru_status attrs_check(const rui_infer *c)
{
    static const char kinds[] = "ifsIFSt"; /* in the order of ru_attr_kind */
    const ru_type *x = rui_in(c, 0);
    for (const char *at = row_of(c->n.op).attrs; *at != '\0'; at += strspn(at, " ")) {
        at += *at == '!' ? 1 : 0;
        size_t len = strcspn(at, ":");
        const char *kind = strchr(kinds, at[len + 1]);
        RU_CHECK(at[len] == ':' && kind != NULL);
        const char *limit = at + len + 2;
        const ru_attr *a = NULL;
        for (uint32_t i = 0; i < c->n.n_attrs && a == NULL; i++) {
            const char *key = ru_attr_name(c->n.attrs[i].key);
            a = strncmp(key, at, len) == 0 && key[len] == '\0' ? &c->n.attrs[i] : NULL;
        }
        ru_attr_kind want = (ru_attr_kind)(kind - kinds);
        if (a != NULL && a->kind != want) {
            return rui_infer_fail(c, "attribute %s is %s, expected %s", ru_attr_name(a->key),
                                  kind_words(a->kind), kind_words(want));
        }
        if (a != NULL) {
            RU_TRY(limit_check(c, a, limit));
        } else if (limit[0] == '@' && want == RU_ATTR_INT && x != NULL) {
            uint32_t axis;
            RU_TRY(rui_axis(c, number_read(limit + 1), x->rank, &axis));
        }
        at += strcspn(at, " ");
    }
    return RU_OK;
}

/* -- outputs ----------------------------------------------------------------------------------- */

#define BYTES_MAX (INT64_C(1) << 46) /* of one value: sums and products of sizes never overflow */

/* Counts of elements and bytes stay numbers, with an axis of 0 taken for 1 (strides multiply). */
static ru_status outputs_check(const rui_infer *c)
{
    for (uint32_t k = 0; k < c->n.n_out; k++) {
        if (!ru_node_has_out(&c->n, k)) {
            continue;
        }
        const ru_type *t = &c->g->values[c->n.out[k].v].type;
        int64_t bytes = ru_dtype_bytes(t->dtype);
        for (uint32_t i = 0; i < t->rank; i++) {
            bool number = !ru_dim_is_symbolic(t->dims[i]) && t->dims[i] > 1;
            if (number && (bytes = ru_dim_mul(bytes, t->dims[i])) == RU_DIM_UNKNOWN) {
                bytes = INT64_MAX;
            }
            if (bytes > BYTES_MAX) {
                char got[128];
                return rui_infer_fail(c, "output %u would be %s, more than 2^46 bytes", k,
                                      ru_type_print(c->g, t, got, sizeof got));
            }
        }
    }
    return RU_OK;
}

uint32_t rui_op_model_inputs(ru_op op)
{
    uint32_t n = 0;
    for (const char *at = row_of(op).inputs; *at != '\0'; at += strspn(at, " ")) {
        size_t len = strcspn(at, " ");
        n += *at != '!' ? 1 : 0;
        if (memchr(at, '+', len) != NULL) {
            return UINT32_MAX;
        }
        at += len;
    }
    return n;
}

bool rui_op_model_attr(ru_op op, const char *name)
{
    for (const char *at = row_of(op).attrs; *at != '\0'; at += strspn(at, " ")) {
        size_t len = strcspn(at, ":");
        if (strncmp(name, at, len) == 0 && name[len] == '\0') {
            return true;
        }
        at += strcspn(at, " ");
    }
    return false;
}

ru_status rui_rule_before(const rui_infer *c)
{
    const ru_op_info *op = ru_op_get(c->n.op);
    if (c->n.n_in < op->in_min || c->n.n_in > op->in_max || c->n.n_out < op->out_min ||
        c->n.n_out > op->out_max) {
        return rui_infer_fail(c, "the op has %u inputs and %u outputs, expected %u..%u and %u..%u",
                              c->n.n_in, c->n.n_out, op->in_min, op->in_max, op->out_min,
                              op->out_max);
    }
    RU_TRY(inputs_check(c));
    return attrs_check(c);
}

ru_status rui_rule_after(const rui_infer *c)
{
    return outputs_check(c);
}
