#include "store/tokenizer.h"

#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/heap.h"
#include "base/map.h"
#include "env/file/file.h"

enum { TOKENS_MAX = 1 << 24, ADDED_MAX = 1024, BYTES = 256 };
static const int64_t file_max_bytes = (int64_t)1 << 28;

typedef struct added {
    ru_str content;
    int64_t id;
} added;

/* Which parts of a text (between added tokens) get a blank before them. */
typedef enum prefix {
    NONE,
    FIRST,  /* the one at the beginning, if it has none */
    ALWAYS, /* each that has none */
    EVEN,   /* each, also one that has one */
} prefix;

struct ru_tokenizer {
    ru_arena *arena;
    const char *path;
    ru_map ids;    /* a token, as its bytes or (spaced) as it stands in the file -> its id */
    ru_map pairs;  /* two ids -> rank and merged id, 32 bits each */
    ru_str *bytes; /* [size]; p NULL: there is no such token */
    ru_tokenizer_facts facts;
    int64_t byte_ids[BYTES];
    added *added; /* [n_added] found in the text before words are */
    uint32_t n_added;
    prefix prefix; /* GPT-2's kind: NONE */
    bool spaced;   /* Llama's kind: letters are merged, blanks are one */
    bool words;    /* of it: a word begins at each blank */
};

/* -- letters -----------------------------------------------------------------------------------
 */

typedef enum kind { OTHER, LETTER, NUMBER, SPACE } kind;

typedef struct range {
    uint32_t first, last;
} range;

static const range letters[] = {
#define L(a, b) {a, b},
#define N(a, b)
#include "store/letters.def"
#undef L
#undef N
};
static const range numbers[] = {
#define L(a, b)
#define N(a, b) {a, b},
#include "store/letters.def"
#undef L
#undef N
};
static const range spaces[] = {
    {9, 13},          {32, 32},         {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
    {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};

static bool is_in(const range *r, uint32_t n, uint32_t c)
{
    uint32_t low = 0;
    while (low < n) {
        uint32_t mid = low + (n - low) / 2;
        if (c > r[mid].last) {
            low = mid + 1;
        } else if (c < r[mid].first) {
            n = mid;
        } else {
            return true;
        }
    }
    return false;
}

/* The letter at `at`, its bytes in *len; a byte that begins none is one of its own. */
static uint32_t letter_at(ru_str s, int64_t at, int64_t *len)
{
    uint8_t c = (uint8_t)s.p[at];
    int64_t n = c < 0x80 ? 1 : c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC2 ? 2 : 0;
    uint32_t code = n == 1 ? c : c & (0xFFu >> (n + 1));
    for (int64_t k = 1; k < n; k++) {
        if (at + k >= s.n || ((uint8_t)s.p[at + k] & 0xC0) != 0x80) {
            n = 0;
            break;
        }
        code = code << 6 | ((uint8_t)s.p[at + k] & 0x3Fu);
    }
    *len = n > 0 ? n : 1;
    return n > 0 ? code : 0xFFFD;
}

static kind kind_at(ru_str s, int64_t at, int64_t *len)
{
    uint32_t c = letter_at(s, at, len);
    return is_in(spaces, RU_ARRAY_LEN(spaces), c)     ? SPACE
           : is_in(letters, RU_ARRAY_LEN(letters), c) ? LETTER
           : is_in(numbers, RU_ARRAY_LEN(numbers), c) ? NUMBER
                                                      : OTHER;
}

/* Where the word that begins at `at` ends: 's|'t|'re|'ve|'m|'ll|'d| ?letters| ?numbers| ?others|
 * blanks but the last before a word|blanks. */
static int64_t word_end(ru_str s, int64_t at)
{
    static const char *const endings[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
    int64_t len = 0, from = at, last = at;
    ru_str rest = ru_str_n(s.p + at, s.n - at);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(endings); k++) {
        if (ru_str_starts(rest, endings[k])) {
            return at + (int64_t)strlen(endings[k]);
        }
    }
    if (s.p[at] == ' ' && at + 1 < s.n && kind_at(s, at + 1, &len) != SPACE) {
        from = at + 1;
    }
    kind of = kind_at(s, from, &len);
    int64_t end = from;
    while (end < s.n && kind_at(s, end, &len) == of) {
        last = end;
        end += len;
    }
    return of == SPACE && end < s.n && last > at ? last : end;
}

/* -- the file ----------------------------------------------------------------------------------
 */

static ru_status damaged(const ru_tokenizer *t, const char *what, ru_err *err)
{
    return RU_FAIL(err, RU_E_DATA, "%s: %s", t->path, what);
}

static ru_status no_memory(const ru_tokenizer *t, ru_err *err)
{
    return RU_FAIL(err, RU_E_MEM, "%s: no memory for the tokenizer", t->path);
}

/* Letters of the file stand for bytes: printable ones for themselves, others from 256 on. */
static int byte_of(uint32_t letter)
{
    int beyond = 256;
    for (int b = 0; b < BYTES; b++) {
        bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        uint32_t stands = itself ? (uint32_t)b : (uint32_t)beyond++;
        if (stands == letter) {
            return b;
        }
    }
    return -1;
}

/* The bytes that a token of the file stands for; p NULL: no memory, or none. */
static ru_str bytes_of(const ru_tokenizer *t, const short *table, const char *token)
{
    ru_str s = ru_str_c(token);
    char *out = ru_arena_alloc(t->arena, s.n + 1, 1);
    int64_t n = 0, len;
    for (int64_t at = 0; out != NULL && at < s.n; at += len) {
        uint32_t c = letter_at(s, at, &len);
        if (c >= 2 * BYTES || table[c] < 0) {
            return (ru_str){0};
        }
        out[n++] = (char)(uint8_t)table[c];
    }
    return ru_str_n(out, n);
}

#define BLANK "\xE2\x96\x81" /* U+2581 stands for it */

/* The same for Llama's kind: <0xNN> is a byte, BLANK a blank, everything else itself. */
static ru_str text_of(const ru_tokenizer *t, ru_str token)
{
    char *out = ru_arena_alloc(t->arena, token.n + 1, 1);
    int64_t n = 0;
    if (out == NULL) {
        return (ru_str){0};
    }
    if (token.n == 6 && ru_str_starts(token, "<0x") && isxdigit((uint8_t)token.p[3]) != 0 &&
        isxdigit((uint8_t)token.p[4]) != 0 && token.p[5] == '>') {
        out[0] = (char)(uint8_t)strtol(token.p + 3, NULL, 16);
        return ru_str_n(out, 1);
    }
    for (int64_t at = 0; at < token.n; at++) {
        bool blank = ru_str_starts(ru_str_from(token, at), BLANK);
        out[n++] = blank ? ' ' : token.p[at];
        at += blank ? (int64_t)sizeof BLANK - 2 : 0;
    }
    return ru_str_n(out, n);
}

/* How a token of the file stands in `ids`; p NULL: no memory, or letters that stand for no bytes.
 */
static ru_str key_of(const ru_tokenizer *t, const short *table, const char *token)
{
    const char *copy = t->spaced ? ru_arena_str(t->arena, token) : NULL;
    return !t->spaced ? bytes_of(t, table, token) : copy != NULL ? ru_str_c(copy) : (ru_str){0};
}

static ru_status put_token(ru_tokenizer *t, ru_str key, int64_t id, ru_err *err)
{
    ru_str bytes = key.p != NULL && t->spaced ? text_of(t, key) : key;
    if (id < 0 || id >= t->facts.size || bytes.p == NULL) {
        return damaged(t, "a token has no legal number, or letters that stand for no bytes", err);
    }
    uint64_t *at = ru_map_put(&t->ids, key, NULL);
    if (at == NULL) {
        return no_memory(t, err);
    }
    *at = (uint64_t)id;
    t->bytes[id] = bytes;
    t->facts.longest = bytes.n > t->facts.longest ? bytes.n : t->facts.longest;
    return RU_OK;
}

static ru_status read_vocab(ru_tokenizer *t, const json_t *vocab, const json_t *more,
                            const short *table, ru_err *err)
{
    const char *token;
    json_t *id;
    json_t *all = json_is_object(vocab) ? json_incref((json_t *)(uintptr_t)vocab) : NULL;
    int64_t most = -1;
    ru_status st = all != NULL ? RU_OK : damaged(t, "it has no model.vocab", err);
    json_object_foreach(all, token, id)
    {
        most = json_integer_value(id) > most ? json_integer_value(id) : most;
    }
    for (size_t k = 0; k < json_array_size(more); k++) {
        int64_t n = json_integer_value(json_object_get(json_array_get(more, k), "id"));
        most = n > most ? n : most;
    }
    st = st == RU_OK && most >= TOKENS_MAX ? damaged(t, "a token has a number above 2^24 - 1", err)
                                           : st;
    t->facts.size = st == RU_OK ? most + 1 : 0;
    t->bytes = st == RU_OK ? RU_NEW(t->arena, ru_str, t->facts.size) : NULL;
    st = st == RU_OK && t->bytes == NULL ? no_memory(t, err) : st;
    json_object_foreach(all, token, id)
    {
        bool special = false; /* tokens that are added stand as they are */
        for (size_t k = 0; k < json_array_size(more) && !special; k++) {
            const json_t *one = json_array_get(more, k);
            special = json_integer_value(json_object_get(one, "id")) == json_integer_value(id);
        }
        if (st == RU_OK && !special) {
            st = put_token(t, key_of(t, table, token), json_integer_value(id), err);
        }
    }
    json_decref(all);
    return st;
}

static ru_status read_merge(ru_tokenizer *t, const json_t *merge, size_t rank, const short *table,
                            ru_err *err)
{
    const char *text = json_string_value(merge), *blank = text != NULL ? strchr(text, ' ') : NULL;
    const char *left = blank != NULL ? ru_arena_strn(t->arena, text, blank - text)
                                     : json_string_value(json_array_get(merge, 0));
    const char *right = blank != NULL ? blank + 1 : json_string_value(json_array_get(merge, 1));
    if (left == NULL || right == NULL) {
        return damaged(t, "a merge is no pair of tokens", err);
    }
    ru_str a = key_of(t, table, left), b = key_of(t, table, right), both;
    char *joined = ru_arena_alloc(t->arena, a.n + b.n + 1, 1);
    if (joined == NULL || a.p == NULL || b.p == NULL) {
        return joined == NULL ? no_memory(t, err) : damaged(t, "a merge is of no bytes", err);
    }
    memcpy(joined, a.p, (size_t)a.n);
    memcpy(joined + a.n, b.p, (size_t)b.n);
    both = ru_str_n(joined, a.n + b.n);
    const uint64_t *x = ru_map_get(&t->ids, a), *y = ru_map_get(&t->ids, b);
    const uint64_t *made = ru_map_get(&t->ids, both);
    if (x == NULL || y == NULL || made == NULL) {
        return damaged(t, "a merge is of tokens that model.vocab has not", err);
    }
    bool fresh;
    uint64_t *at = ru_map_put_u64(&t->pairs, *x << 32 | *y, &fresh);
    if (at == NULL) {
        return no_memory(t, err);
    }
    *at = fresh ? (uint64_t)rank << 32 | *made : *at;
    return RU_OK;
}

static ru_status read_added(ru_tokenizer *t, const json_t *more, ru_err *err)
{
    size_t n = json_array_size(more);
    t->added = RU_NEW(t->arena, added, n);
    if (t->added == NULL) {
        return no_memory(t, err);
    }
    for (size_t k = 0; k < n; k++) {
        const json_t *one = json_array_get(more, k);
        const char *content = json_string_value(json_object_get(one, "content"));
        int64_t id = json_integer_value(json_object_get(one, "id"));
        bool special = json_is_true(json_object_get(one, "special"));
        if (t->prefix == EVEN && json_is_true(json_object_get(one, "normalized"))) {
            return RU_FAIL(err, RU_E_UNSUPPORTED,
                           "%s: added token '%s' is normalized, which is not carried out", t->path,
                           content != NULL ? content : "");
        }
        if (json_is_true(json_object_get(one, "lstrip")) ||
            json_is_true(json_object_get(one, "rstrip")) ||
            json_is_true(json_object_get(one, "single_word"))) {
            return RU_FAIL(err, RU_E_UNSUPPORTED,
                           "%s: added token '%s' strips blanks or stands alone as a word, which "
                           "is not carried out",
                           t->path, content != NULL ? content : "");
        }
        if (content == NULL || content[0] == '\0' || id < 0 || id >= t->facts.size) {
            return damaged(t, "an added token has no content or no number", err);
        }
        ru_str text = ru_str_c(ru_arena_str(t->arena, content));
        t->added[t->n_added++] = (added){text, id};
        t->facts.longest = text.n > t->facts.longest ? text.n : t->facts.longest;
        t->bytes[id] = special ? ru_str_n("", 0) : text;
        bool end = strcmp(content, t->spaced ? "</s>" : "<|endoftext|>") == 0;
        t->facts.end = special && end ? id : t->facts.end;
    }
    return RU_OK;
}

static bool is_nothing(const json_t *v)
{
    return v == NULL || json_is_null(v) || json_is_false(v) ||
           (json_is_string(v) && json_string_length(v) == 0);
}

static bool is_type(const json_t *v, const char *type)
{
    const char *is = json_string_value(json_object_get(v, "type"));
    return is != NULL && strcmp(is, type) == 0;
}

static bool is_text(const json_t *v, const char *text)
{
    const char *is = json_string_value(v);
    return is != NULL && strcmp(is, text) == 0;
}

/* The normalizer of Llama's kind: a blank before each part, then blanks as BLANK. */
static bool is_prepend_replace(const json_t *v)
{
    const json_t *both = json_object_get(v, "normalizers"), *pre = json_array_get(both, 0);
    const json_t *rep = json_array_get(both, 1);
    return is_type(v, "Sequence") && json_array_size(both) == 2 && is_type(pre, "Prepend") &&
           is_text(json_object_get(pre, "prepend"), BLANK) && is_type(rep, "Replace") &&
           is_text(json_object_get(json_object_get(rep, "pattern"), "String"), " ") &&
           is_text(json_object_get(rep, "content"), BLANK);
}

/* Of which kind is it? What is neither is named; NULL: nothing. */
static const char *kind_of(ru_tokenizer *t, const json_t *root)
{
    const json_t *words = json_object_get(root, "pre_tokenizer");
    const json_t *norm = json_object_get(root, "normalizer"), *scheme;
    if (is_type(words, "ByteLevel")) {
        return !is_nothing(norm)                                          ? "a normalizer"
               : json_is_true(json_object_get(words, "add_prefix_space")) ? "add_prefix_space"
               : json_is_false(json_object_get(words, "use_regex"))       ? "use_regex: false"
                                                                          : NULL;
    }
    t->spaced = true;
    if (is_nothing(words)) {
        t->prefix = EVEN;
        return is_prepend_replace(norm) ? NULL
               : is_nothing(norm)       ? "neither pre_tokenizer nor normalizer"
                                        : "a normalizer other than Prepend and Replace";
    }
    scheme = json_object_get(words, "prepend_scheme");
    t->prefix = is_text(scheme, "first") ? FIRST : is_text(scheme, "never") ? NONE : ALWAYS;
    t->words = !json_is_false(json_object_get(words, "split"));
    return !is_type(words, "Metaspace") ? "a pre_tokenizer other than ByteLevel and Metaspace"
           : !is_text(json_object_get(words, "replacement"), BLANK) ? "an own replacement of blanks"
           : !is_nothing(norm)                                      ? "a normalizer"
                                                                    : NULL;
}

/* What would change tokens and is not carried out. Tokens that a template puts around a text are
 * not part of it. */
static ru_status check(ru_tokenizer *t, const json_t *root, ru_err *err)
{
    static const char *const no[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix",
                                     "ignore_merges"};
    const json_t *model = json_object_get(root, "model");
    const json_t *post = json_object_get(root, "post_processor");
    const char *type = json_string_value(json_object_get(model, "type"));
    const char *after = json_string_value(json_object_get(post, "type"));
    const char *what = kind_of(t, root);
    bool fallback = json_is_true(json_object_get(model, "byte_fallback"));
    for (uint32_t k = 0; k < RU_ARRAY_LEN(no); k++) {
        what = is_nothing(json_object_get(model, no[k])) ? what : no[k];
    }
    what = fallback == t->spaced ? what : fallback ? "byte_fallback" : "no byte_fallback";
    what = type != NULL && strcmp(type, "BPE") != 0 ? type : what;
    what = after == NULL || strcmp(after, t->spaced ? "TemplateProcessing" : "ByteLevel") == 0
               ? what
               : after;
    return what == NULL ? RU_OK
                        : RU_FAIL(err, RU_E_UNSUPPORTED,
                                  "%s: the tokenizer has %s, which is not carried out; byte-pair "
                                  "tokenizers of GPT-2's and of Llama's kind are",
                                  t->path, what);
}

static ru_status read_root(ru_tokenizer *t, const json_t *root, ru_err *err)
{
    short table[2 * BYTES];
    const json_t *model = json_object_get(root, "model");
    const json_t *more = json_object_get(root, "added_tokens");
    const json_t *merges = json_object_get(model, "merges");
    for (uint32_t c = 0; c < RU_ARRAY_LEN(table); c++) {
        table[c] = (short)byte_of(c);
    }
    RU_TRY(check(t, root, err));
    if (json_array_size(more) > ADDED_MAX) { /* each token of the vocabulary is sought among them */
        return damaged(t, "it has more than 1024 added tokens", err);
    }
    RU_TRY(read_vocab(t, json_object_get(model, "vocab"), more, table, err));
    for (size_t k = 0; k < json_array_size(merges); k++) {
        RU_TRY(read_merge(t, json_array_get(merges, k), k, table, err));
    }
    for (uint32_t b = 0; b < BYTES; b++) {
        char name[8] = {(char)(uint8_t)b};
        if (t->spaced) {
            ru_text n = ru_text_into(name, sizeof name);
            ru_text_putf(&n, "<0x%02X>", b);
        }
        const uint64_t *id = ru_map_get(&t->ids, ru_str_n(name, t->spaced ? 6 : 1));
        t->byte_ids[b] = id != NULL ? (int64_t)*id : -1;
    }
    return read_added(t, more, err);
}

ru_status ru_tokenizer_open(const char *path, ru_arena *arena, ru_tokenizer **out, ru_err *err)
{
    char *data;
    int64_t n;
    json_error_t problem;
    ru_tokenizer *t = RU_NEW(arena, ru_tokenizer, 1);
    if (t == NULL) {
        return RU_FAIL(err, RU_E_MEM, "%s: no memory for the tokenizer", path);
    }
    *t = (ru_tokenizer){
        .arena = arena, .path = ru_arena_str(arena, path), .facts = {.end = -1, .longest = 1}};
    ru_map_init(&t->ids, arena, 0);
    ru_map_init(&t->pairs, arena, 0);
    RU_TRY(ru_file_read(path, file_max_bytes, arena, &data, &n, err));
    json_t *root = json_loadb(data, (size_t)n, 0, &problem);
    if (root == NULL) {
        return RU_FAIL(err, RU_E_DATA, "%s:%d: %s", path, problem.line, problem.text);
    }
    ru_status st = read_root(t, root, err);
    json_decref(root);
    *out = t;
    return st;
}

ru_tokenizer_facts ru_tokenizer_facts_get(const ru_tokenizer *t)
{
    return t->facts;
}

ru_str ru_tokenizer_bytes(const ru_tokenizer *t, int64_t id)
{
    return id >= 0 && id < t->facts.size && t->bytes[id].p != NULL ? t->bytes[id] : ru_str_n("", 0);
}

/* -- texts -------------------------------------------------------------------------------------
 */

/* Pieces of a word, a list; merged ones are 0 in `id` + 1. */
typedef struct piece {
    int64_t id; /* -1: it was merged into the one before */
    int64_t before, after;
} piece;

static void offer(const ru_tokenizer *t, ru_heap *h, const piece *w, int64_t left)
{
    if (left < 0 || w[left].after < 0) {
        return;
    }
    uint64_t both = (uint64_t)w[left].id << 32 | (uint64_t)w[w[left].after].id;
    const uint64_t *merge = ru_map_get_u64(&t->pairs, both);
    if (merge != NULL) { /* of one rank the leftmost first */
        RU_CHECK(ru_heap_push(h, (int64_t)((*merge >> 32) << 32 | (uint64_t)left), both) == RU_OK);
    }
}

/* Merge by rank until no pair has one. */
static void merge_word(const ru_tokenizer *t, piece *w, int64_t n, ru_heap *h)
{
    ru_heap_item top;
    for (int64_t k = 0; k + 1 < n; k++) {
        offer(t, h, w, k);
    }
    while (ru_heap_pop(h, &top)) {
        int64_t left = top.key & 0xFFFFFFFF, right = w[left].id < 0 ? -1 : w[left].after;
        if (right < 0 || ((uint64_t)w[left].id << 32 | (uint64_t)w[right].id) != top.value) {
            continue; /* one of them was merged meanwhile */
        }
        w[left].id = (int64_t)(*ru_map_get_u64(&t->pairs, top.value) & 0xFFFFFFFF);
        w[left].after = w[right].after;
        if (w[right].after >= 0) {
            w[w[right].after].before = left;
        }
        w[right].id = -1;
        offer(t, h, w, w[left].before);
        offer(t, h, w, left);
    }
}

static ru_status split_word(const ru_tokenizer *t, ru_str word, ru_arena *arena, int64_t *ids,
                            int64_t *n, ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(arena);
    piece *w = RU_NEW(arena, piece, word.n);
    ru_heap_item *items = RU_NEW(arena, ru_heap_item, 3 * word.n);
    ru_heap heap;
    if (w == NULL || items == NULL || word.n > INT32_MAX / 3) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a word of %lld bytes", (long long)word.n);
    }
    ru_heap_init(&heap, items, (uint32_t)(3 * word.n));
    int64_t pieces = 0;
    for (int64_t at = 0, len; at < word.n; at += len) {
        len = 1;
        (void)(t->spaced && letter_at(word, at, &len));
        const uint64_t *letter = t->spaced ? ru_map_get(&t->ids, ru_str_n(word.p + at, len)) : NULL;
        for (int64_t k = 0; k < (letter != NULL ? 1 : len); k++) {
            uint8_t byte = (uint8_t)word.p[at + k];
            int64_t id = letter != NULL ? (int64_t)*letter : t->byte_ids[byte];
            if (id < 0) {
                return RU_FAIL(err, RU_E_DATA, "the tokenizer has no token for byte %u", byte);
            }
            w[pieces] = (piece){id, pieces - 1, pieces + 1};
            pieces++;
        }
    }
    w[pieces - 1].after = -1;
    merge_word(t, w, pieces, &heap);
    for (int64_t k = 0; k >= 0; k = w[k].after) {
        ids[(*n)++] = w[k].id;
    }
    ru_arena_rewind(arena, mark);
    return RU_OK;
}

/* The added token at the beginning of `s`, the longest; NULL: none. */
static const added *added_at(const ru_tokenizer *t, ru_str s)
{
    const added *found = NULL;
    for (uint32_t k = 0; k < t->n_added; k++) {
        const added *a = &t->added[k];
        if (a->content.n <= s.n && memcmp(a->content.p, s.p, (size_t)a->content.n) == 0 &&
            (found == NULL || a->content.n > found->content.n)) {
            found = a;
        }
    }
    return found;
}

/* A part of a text without added tokens, with BLANK for its blanks, in `arena`. */
static ru_str with_blanks(const ru_tokenizer *t, ru_str part, bool first, ru_arena *arena)
{
    enum { N = sizeof BLANK - 1 };
    bool has = ru_str_starts(part, " ") || ru_str_starts(part, BLANK);
    bool put =
        t->prefix == EVEN || (!has && (t->prefix == ALWAYS || (t->prefix == FIRST && first)));
    char *out = ru_arena_alloc(arena, N * (part.n + 1), 1);
    int64_t n = 0;
    for (int64_t k = put ? -1 : 0; out != NULL && k < part.n; k++) {
        if (k < 0 || part.p[k] == ' ') {
            memcpy(out + n, BLANK, N);
            n += N;
        } else {
            out[n++] = part.p[k];
        }
    }
    return ru_str_n(out, n);
}

/* Where the word that begins at `at` ends: before the next BLANK. */
static int64_t spaced_end(const ru_tokenizer *t, ru_str s, int64_t at)
{
    int64_t next = t->words ? ru_str_find(ru_str_from(s, at + 1), BLANK) : -1;
    return next < 0 ? s.n : at + 1 + next;
}

static ru_status split_part(const ru_tokenizer *t, ru_str part, bool first, ru_arena *arena,
                            int64_t *ids, int64_t *n, ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(arena);
    if (t->spaced && part.n > 0) {
        part = with_blanks(t, part, first, arena);
        if (part.p == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "no memory for the tokens of a text");
        }
    }
    for (int64_t k = 0, word; k < part.n; k = word) {
        word = t->spaced ? spaced_end(t, part, k) : word_end(part, k);
        RU_TRY(split_word(t, ru_str_n(part.p + k, word - k), arena, ids, n, err));
    }
    ru_arena_rewind(arena, mark);
    return RU_OK;
}

ru_status ru_tokenizer_split(const ru_tokenizer *t, ru_str text, ru_arena *arena, int64_t **ids,
                             int64_t *n, ru_err *err)
{
    *n = 0;
    /* a part of one letter may get a blank, and each be the three bytes of BLANK */
    *ids = RU_NEW(arena, int64_t, (t->spaced ? 6 : 1) * text.n + 1);
    if (*ids == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the tokens of a text");
    }
    for (int64_t at = 0; at < text.n;) {
        const added *a = NULL;
        int64_t end = at;
        while (end < text.n && a == NULL) {
            a = added_at(t, ru_str_n(text.p + end, text.n - end));
            end += a == NULL ? 1 : 0;
        }
        const ru_str part = ru_str_n(text.p + at, end - at);
        RU_TRY(split_part(t, part, at == 0, arena, *ids, n, err));
        if (a != NULL) {
            (*ids)[(*n)++] = a->id;
            end += a->content.n;
        }
        at = end;
    }
    return RU_OK;
}
