#include "store/tokenizer.h"

#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "test/scratch.h"
#include "test/test.h"

typedef struct row {
    const char *text;
    const int64_t *ids; /* ends with -1 */
} row;

/* Witness: Hugging Face's tokenizers (test/oracle/tokens.py). */
#define TOKENS(text, ...) {text, (const int64_t[]){__VA_ARGS__}},
static const row rows[] = {
#include "test/oracle/data/tokens.def"
};
static const row prepend[] = {
#include "test/oracle/data/tokens_prepend.def"
};
static const row metaspace[] = {
#include "test/oracle/data/tokens_metaspace.def"
};
static const row split[] = {
#include "test/oracle/data/tokens_split.def"
};
#undef TOKENS

static ru_tokenizer *open_file(ru_arena *arena, const char *path)
{
    ru_err err = {0};
    ru_tokenizer *t;
    assert_ok(ru_tokenizer_open(path, arena, &t, &err), err);
    return t;
}

static ru_tokenizer *open_small(ru_arena *arena)
{
    return open_file(arena, "test/oracle/data/tokenizer.json");
}

static void same_tokens(const ru_tokenizer *t, const row *r, ru_arena *arena, int64_t **ids,
                        int64_t *n)
{
    ru_err err = {0};
    int64_t want = 0;
    assert_ok(ru_tokenizer_split(t, ru_str_c(r->text), arena, ids, n, &err), err);
    while (r->ids[want] >= 0) {
        if (want >= *n || (*ids)[want] != r->ids[want]) {
            fail_msg("'%s': token %lld is %lld, expected %lld", r->text, (long long)want,
                     want < *n ? (long long)(*ids)[want] : -1, (long long)r->ids[want]);
        }
        want++;
    }
    assert_int_equal(*n, want);
}

/* Llama's kind; the texts are the tokens' bytes, but for blanks before parts. */
static void letters_are_merged_beside_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        const row *rows;
        uint32_t n;
    } kinds[] = {
        {"test/oracle/data/tokenizer_prepend.json", prepend, RU_ARRAY_LEN(prepend)},
        {"test/oracle/data/tokenizer_metaspace.json", metaspace, RU_ARRAY_LEN(metaspace)},
        {"test/oracle/data/tokenizer_split.json", split, RU_ARRAY_LEN(split)},
    };
    for (uint32_t kind = 0; kind < RU_ARRAY_LEN(kinds); kind++) {
        ru_arena arena;
        ru_arena_init(&arena, 0);
        ru_tokenizer *t = open_file(&arena, kinds[kind].path);
        assert_int_equal(ru_tokenizer_facts_get(t).end, 2);
        for (uint32_t k = 0; k < kinds[kind].n; k++) {
            int64_t *ids, n;
            char text[400];
            ru_text back = ru_text_into(text, sizeof text);
            const char *given = kinds[kind].rows[k].text;
            same_tokens(t, &kinds[kind].rows[k], &arena, &ids, &n);
            for (int64_t i = 0; i < n; i++) {
                ru_str b = ru_tokenizer_bytes(t, ids[i]);
                ru_text_put_n(&back, b.p, b.n);
            }
            if (strstr(given, "s>") == NULL && strstr(given, "\xE2\x96\x81") == NULL) {
                bool blank = text[0] == ' ' && strcmp(text, given) != 0;
                assert_string_equal(text + (blank ? 1 : 0), given);
            }
        }
        ru_arena_fini(&arena);
    }
}

static void tokens_are_those_of_the_usual_library(void **state)
{
    (void)state;
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_tokenizer *t = open_small(&arena);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        int64_t *ids, n;
        ru_str text = ru_str_c(rows[k].text);
        same_tokens(t, &rows[k], &arena, &ids, &n);
        int64_t at = 0;
        for (int64_t i = 0; i < n && strstr(rows[k].text, "<|") == NULL; i++) { /* and back */
            ru_str b = ru_tokenizer_bytes(t, ids[i]);
            assert_memory_equal(text.p + at, b.p, (size_t)b.n);
            at += b.n;
        }
    }
    assert_true(ru_tokenizer_facts_get(t).end == 0 && ru_tokenizer_facts_get(t).size == 501);
    for (int64_t id = 0; id < ru_tokenizer_facts_get(t).size; id++) {
        assert_true(ru_tokenizer_bytes(t, id).n <= ru_tokenizer_facts_get(t).longest);
    }
    assert_true(ru_tokenizer_facts_get(t).longest >= (int64_t)strlen("<|endoftext|>"));
    ru_arena_fini(&arena);
}

/* Long words take no longer than their merges, and bytes that are no letters stand for themselves.
 */
static void any_bytes_are_tokens(void **state)
{
    (void)state;
    enum { N = 200000 };
    ru_arena arena;
    ru_err err = {0};
    int64_t *ids, n, at = 0;
    ru_arena_init(&arena, 0);
    ru_tokenizer *t = open_small(&arena);
    char *text = ru_arena_alloc(&arena, N, 1);
    ru_rng rng = ru_rng_from(ru_test_seed(), 1);
    for (int64_t k = 0; k < N; k++) {
        text[k] = k < N / 2 ? 'e' : (char)(uint8_t)ru_rng_below(&rng, 256);
    }
    assert_ok(ru_tokenizer_split(t, ru_str_n(text, N), &arena, &ids, &n, &err), err);
    for (int64_t i = 0; i < n; i++) {
        ru_str b = ru_tokenizer_bytes(t, ids[i]);
        assert_memory_equal(text + at, b.p, (size_t)b.n);
        at += b.n;
    }
    assert_int_equal(at, N);
    ru_arena_fini(&arena);
}

static void put_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* Blanks for which a file of Llama's kind has no token are three bytes each. <0x+2> is no byte. */
static void blanks_without_a_token_are_bytes(void **state)
{
    enum { N = 1000 };
    ru_scratch *s = *state;
    ru_err err = {0};
    ru_tokenizer *t;
    char text[N];
    int64_t *ids, n;
    const char *path = ru_arena_printf(&s->arena, "%s/tokenizer.json", s->root);
    put_file(path,
             "{\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"merges\":[],\"vocab\":{"
             "\"<0xE2>\":0,\"<0x96>\":1,\"<0x81>\":2,\"<0x+2>\":3}},\"normalizer\":{\"type\":"
             "\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"\xE2\x96\x81\"},"
             "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":"
             "\"\xE2\x96\x81\"}]}}");
    assert_ok(ru_tokenizer_open(path, &s->arena, &t, &err), err);
    assert_int_equal(ru_tokenizer_bytes(t, 3).n, 6);
    memset(text, ' ', N);
    assert_ok(ru_tokenizer_split(t, ru_str_n(text, N), &s->arena, &ids, &n, &err), err);
    for (int64_t k = 0; k < N; k++) { /* zeros behind them */
        assert_non_null(RU_NEW(&s->arena, int64_t, 1));
    }
    assert_int_equal(n, 3 * (N + 1));
    for (int64_t k = 0; k < n; k++) {
        assert_int_equal(ids[k], k % 3);
    }
}

static void what_changes_tokens_is_refused(void **state)
{
    ru_scratch *s = *state;
    static const struct {
        const char *json, *says;
        ru_status st;
    } cases[] = {
        {"{", "json:1", RU_E_DATA},
        {"{\"model\":{\"type\":\"WordPiece\"},\"pre_tokenizer\":{\"type\":\"ByteLevel\"}}",
         "WordPiece", RU_E_UNSUPPORTED},
        {"{\"model\":{\"type\":\"BPE\"},\"pre_tokenizer\":{\"type\":\"Metaspace\","
         "\"replacement\":\"\xE2\x96\x81\"}}",
         "no byte_fallback", RU_E_UNSUPPORTED},
        {"{\"model\":{\"type\":\"BPE\",\"byte_fallback\":true},\"normalizer\":{\"type\":"
         "\"Prepend\"}}",
         "other than Prepend and Replace", RU_E_UNSUPPORTED},
        {"{\"model\":{\"type\":\"BPE\",\"byte_fallback\":true},\"pre_tokenizer\":{\"type\":"
         "\"Whitespace\"}}",
         "pre_tokenizer", RU_E_UNSUPPORTED},
        {"{\"normalizer\":{\"type\":\"NFC\"},\"model\":{\"type\":\"BPE\"},\"pre_tokenizer\":{"
         "\"type\":\"ByteLevel\"}}",
         "normalizer", RU_E_UNSUPPORTED},
        {"{\"model\":{\"type\":\"BPE\"},\"pre_tokenizer\":{\"type\":\"ByteLevel\"}}", "model.vocab",
         RU_E_DATA},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[\"a b\"]},"
         "\"pre_tokenizer\":{\"type\":\"ByteLevel\"}}",
         "model.vocab has not", RU_E_DATA},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-3},\"merges\":[]},"
         "\"pre_tokenizer\":{\"type\":\"ByteLevel\"}}",
         "no legal number", RU_E_DATA},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":9223372036854775807},\"merges\":[]},"
         "\"pre_tokenizer\":{\"type\":\"ByteLevel\"}}",
         "above 2^24", RU_E_DATA},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cases); k++) {
        ru_err err = {0};
        ru_tokenizer *t;
        const char *path = ru_arena_printf(&s->arena, "%s/tokenizer.json", s->root);
        put_file(path, cases[k].json);
        assert_int_equal(ru_tokenizer_open(path, &s->arena, &t, &err), cases[k].st);
        if (strstr(err.text, cases[k].says) == NULL) {
            fail_msg("case %u says '%s'", k, err.text);
        }
    }
}

RU_TESTS(store_tokenizer, cmocka_unit_test(tokens_are_those_of_the_usual_library),
         cmocka_unit_test(letters_are_merged_beside_bytes), cmocka_unit_test(any_bytes_are_tokens),
         cmocka_unit_test_setup_teardown(blanks_without_a_token_are_bytes, ru_scratch_open,
                                         ru_scratch_close),
         cmocka_unit_test_setup_teardown(what_changes_tokens_is_refused, ru_scratch_open,
                                         ru_scratch_close))
