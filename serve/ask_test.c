#include "serve/ask.h"

#include <string.h>

#include "base/rng.h"
#include "serve/words.h"
#include "test/test.h"

static void parameters_are_read_or_refused(void **state)
{
    (void)state;
    static const struct {
        const char *body, *says; /* NULL: it is taken */
        bool openai, stream;
    } cases[] = {
        {"{\"prompt\":\"a\",\"stop\":null,\"n\":1,\"echo\":false,\"user\":{\"x\":[1]}}", NULL, true,
         false},
        {"{\"prompt\":[\"a\"],\"logit_bias\":{},\"presence_penalty\":0.0}", NULL, true, false},
        {"{\"prompt\":[1,2],\"stream\":true,\"stream_options\":{\"include_usage\":true}}", NULL,
         true, false},
        {"{\"text_input\":\"a\",\"parameters\":{\"top_k\":-1,\"stream\":false}}", NULL, false,
         false},
        {"{\"prompt\":[1,\"a\"]}", "lists of tokens alone", true, false},
        {"{\"prompt\":[[1],2]}", "lists of tokens alone", true, false},
        {"{\"prompt\":[\"a\",", "a value", true, false},
        {"{\"prompt\":[[1],[]]}", "a token", true, false},
        {"{\"prompt\":[\"a\",\"b\"],\"prompt\":\"c\"}", "given twice", true, false},
        {"{\"prompt\":[\"a\",\"\",\"c\"],\"n\":42}", NULL, true, true},
        {"{\"prompt\": [ [1, 2], [3] ],\"n\":2,\"best_of\":64}", NULL, true, false},
        {"{\"prompt\":[\"a\",\"b\",\"c\"],\"n\":43}", "3 prompts with 43 texts", true, false},
        {"{\"prompt\":[[1],[2]],\"best_of\":65}", "2 prompts with 65 texts", true, false},
        {"{\"text_input\":[\"a\",\"b\"]}", "one text a request", false, false},
        {"{\"prompt\":[]}", "a text or a list", true, false},
        {"{\"prompt\":\"a\",\"n\":2,\"logprobs\":5,\"echo\":true}", NULL, true, false},
        {"{\"prompt\":\"a\",\"n\":129}", "n 129 is above 128", true, false},
        {"{\"prompt\":\"a\",\"n\":0}", "n 0 is below 1", true, false},
        {"{\"prompt\":\"a\",\"logprobs\":21}", "logprobs 21 is above 20", true, false},
        {"{\"prompt\":\"a\",\"best_of\":2}", NULL, true, false},
        {"{\"prompt\":\"a\",\"best_of\":2,\"n\":3}", "best_of 2 is below n 3", true, false},
        {"{\"prompt\":\"a\",\"best_of\":2,\"stream\":true}", "cannot be streamed", true, false},
        {"{\"prompt\":\"a\",\"best_of\":2,\"n\":2,\"stream\":true}", NULL, true, false},
        {"{\"prompt\":\"a\",\"max_tokens\":0,\"echo\":true}", NULL, true, false},
        {"{\"prompt\":\"a\",\"max_tokens\":0}", "max_tokens 0", true, false},
        {"{\"text_input\":\"a\",\"max_tokens\":0}", "max_tokens 0 is below 1", false, false},
        {"{\"text_input\":\"a\",\"n\":2}", "'n'", false, false},
        {"{\"prompt\":\"a\",\"top_p\":2}", "top_p 2", true, false},
        {"{\"prompt\":\"a\",\"temperature\":\"x\"}", "a number", true, false},
        {"{\"prompt\":\"a\",\"stop\":[1]}", "text", true, false},
        {"{\"prompt\":\"a\",\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\"],"
         "\"stop_words\":\"8\"}",
         NULL, true, false},
        {"{\"prompt\":\"a\",\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\"],"
         "\"stop_words\":\"9\"}",
         "at most 8", true, false},
        {"{\"text_input\":\"a\",\"parameters\":{\"parameters\":{\"top_k\":1}}}", "'parameters'",
         false, false},
        {"{\"prompt\":\"a\",\"top_k\":-2}", "top_k", true, false},
        {"{\"prompt\":\"a\",\"priority\":1,\"timeout\":100}", NULL, true, false},
        {"{\"prompt\":\"a\",\"priority\":-1}", "priority -1 is below 0", true, false},
        {"{\"model\":\"m\"}", "no prompt", true, false},
        {"{\"text_input\":\"a\",\"model\":\"m\"}", "'model'", false, false},
        {"{\"text_input\":\"a\",\"stream\":true}", "generate_stream", false, false},
        {"{\"text_input\":\"a\",\"stream\":false}", "generate", false, true},
        {"{\"prompt\":\"a\"} x", "damaged", true, false},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cases); k++) {
        ru_arena arena;
        ru_err err = {0};
        rui_ask a;
        ru_arena_init(&arena, 0);
        ru_status st = rui_ask_read(cases[k].body, (int64_t)strlen(cases[k].body), cases[k].openai,
                                    cases[k].stream, &arena, &a, &err);
        bool right = cases[k].says == NULL
                         ? st == RU_OK
                         : st == RU_E_DATA && strstr(err.text, cases[k].says) != NULL;
        if (!right) {
            fail_msg("%s: %d '%s'", cases[k].body, (int)st, err.text);
        }
        ru_arena_fini(&arena);
    }
}

/* Bodies with places changed and cut off: taken or refused. */
static void damaged_bodies_are_refused(void **state)
{
    (void)state;
    static const char body[] =
        "{\"model\":\"m\",\"prompt\":[1,2,\"a\\u00e9\"],\"stop\":[\"x\",\"\\n\"],\"top_p\":0.5,"
        "\"stream_options\":{\"include_usage\":true},\"logit_bias\":{\"1\":[2,{}]},\"seed\":-1}";
    ru_rng rng = ru_rng_from(ru_test_seed(), 1);
    for (uint32_t round = 0; round < 20000; round++) {
        char text[sizeof body];
        ru_arena arena;
        ru_err err = {0};
        rui_ask a;
        ru_arena_init(&arena, 0);
        memcpy(text, body, sizeof body);
        for (uint32_t k = ru_rng_below(&rng, 4); k > 0; k--) {
            text[ru_rng_below(&rng, sizeof body - 1)] = "{}[]\",:\\0a.-e"[ru_rng_below(&rng, 13)];
        }
        int64_t n = 1 + (int64_t)ru_rng_below(&rng, sizeof body - 1);
        ru_status st = rui_ask_read(text, n, ru_rng_below(&rng, 4) > 0, false, &arena, &a, &err);
        assert_true(st == RU_OK || st == RU_E_DATA);
        ru_arena_fini(&arena);
    }
}

/* Bytes that come one by one: what is sent is a part of what is kept in the end, and ends with
 * whole letters. */
static void pieces_stop_where_the_whole_does(void **state)
{
    (void)state;
    ru_rng rng = ru_rng_from(ru_test_seed(), 2);
    for (uint32_t round = 0; round < 5000; round++) {
        char text[40], stops[2][4];
        int64_t n = 0, sent = 0, end = -1, want = -1;
        rui_ask a = {.n_stops = 2};
        for (uint32_t k = 0; k < 2; k++) {
            int64_t len = 1 + (int64_t)ru_rng_below(&rng, 3);
            for (int64_t i = 0; i < len; i++) {
                stops[k][i] = "ab"[ru_rng_below(&rng, 2)];
            }
            a.stops[k] = ru_str_n(stops[k], len);
        }
        while (n < 36) {
            const char *letter = ((const char *[]){"a", "b", "c", "\xc3\xa9",
                                                   "\xf0\x9f\x98\x80"})[ru_rng_below(&rng, 5)];
            memcpy(text + n, letter, strlen(letter));
            n += (int64_t)strlen(letter);
        }
        for (int64_t at = 0; at < n && want < 0; at++) { /* the first end of a stop text wins */
            for (uint32_t k = 0; k < 2; k++) {
                int64_t begin = at + 1 - a.stops[k].n;
                bool here =
                    begin >= 0 && memcmp(text + begin, a.stops[k].p, (size_t)a.stops[k].n) == 0;
                want = here && (want < 0 || begin < want) ? begin : want;
            }
        }
        for (int64_t k = 1; k <= n && end < 0; k++) {
            int64_t safe;
            end = rui_ask_stop(&a, ru_str_n(text, k), k - 1, &safe);
            assert_true(safe >= sent && safe <= k);
            assert_true(want < 0 || safe <= want);
            assert_true(safe == n || ((uint8_t)text[safe] & 0xC0) != 0x80);
            sent = safe;
        }
        assert_int_equal(end, want);
    }
}

/* An empty text is a line's end, and long ones have more tokens than is said before they are
 * divided. */
static void texts_have_tokens(void **state)
{
    (void)state;
    ru_arena arena;
    ru_err err = {0};
    ru_tokenizer *t;
    int64_t *ids, n;
    char text[1000];
    ru_arena_init(&arena, 0);
    assert_ok(ru_tokenizer_open("test/oracle/data/tokenizer.json", &arena, &t, &err), err);
    const ru_words kinds[] = {{501, t}, {256, NULL}, {1000, NULL}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(kinds); k++) {
        assert_ok(ru_words_split(&kinds[k], ru_str_n("", 0), &arena, &ids, &n, &err), err);
        assert_int_equal(n, 1);
        assert_int_equal(ru_words_least(&kinds[k], 0), 0);
        if (kinds[k].tokenizer != NULL) {
            assert_memory_equal(ru_tokenizer_bytes(t, ids[0]).p, "\n", 1);
        }
        memset(text, k < 2 ? 'e' : ' ', sizeof text);
        assert_ok(ru_words_split(&kinds[k], ru_str_n(text, sizeof text), &arena, &ids, &n, &err),
                  err);
        assert_true(n >= ru_words_least(&kinds[k], sizeof text));
    }
    ru_arena_fini(&arena);
}

/* As the public interface has it: what stands at each place, and how far from the beginning. A byte
 * that is no letter has a name; the token that stands there is among the likely ones or behind
 * them.
 */
static void log_probabilities_have_the_public_form(void **state)
{
    (void)state;
    int64_t tokens[] = {'a', 0xC3, 0xA9, '"'};
    float own[] = {0, -1.5f, -0.25f, -3}, top_own[] = {0, 0, -0.5f, -1, -0.25f, -2, -0.125f, -4};
    uint32_t top[] = {0, 0, 'x', 'y', 0xA9, 'z', 'b', 'c'};
    ru_scores scores = {.k = 2, .own = own, .top = top, .top_own = top_own};
    const ru_stream s = {.tokens = tokens, .n_prompt = 1, .scores = &scores};
    const ru_words words = {.vocab = 256};
    const rui_ask a = {.openai = true};
    const rui_told_choice c = {.index = 1,
                               .text = ru_str_c("a\xc3\xa9\""),
                               .finish = "stop",
                               .scored = &s,
                               .to = 4,
                               .letters = 0};
    const rui_told w = {.model = "m",
                        .words = &words,
                        .choices = &c,
                        .n = 1,
                        .number = 7,
                        .created_s = 5,
                        .prompt_tokens = 1,
                        .tokens = 3};
    char text[2048];
    ru_text t = ru_text_into(text, sizeof text);
    rui_ask_answer(&a, &w, true, &t);
    assert_string_equal(
        text, "{\"id\":\"cmpl-7\",\"object\":\"text_completion\",\"created\":5,\"model\":\"m\","
              "\"choices\":[{\"index\":1,\"text\":\"a\xc3\xa9\\\"\",\"logprobs\":{"
              "\"tokens\":[\"a\",\"bytes:\\\\xc3\",\"bytes:\\\\xa9\",\"\\\"\"],"
              "\"token_logprobs\":[null,-1.5,-0.25,-3],"
              "\"top_logprobs\":[null,{\"x\":-0.5,\"y\":-1,\"bytes:\\\\xc3\":-1.5},"
              "{\"bytes:\\\\xa9\":-0.25,\"z\":-2},{\"b\":-0.125,\"c\":-4,\"\\\"\":-3}],"
              "\"text_offset\":[0,1,2,2]},\"finish_reason\":\"stop\"}],"
              "\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":3,\"total_tokens\":4}}");
}

RU_TESTS(serve_ask, cmocka_unit_test(log_probabilities_have_the_public_form),
         cmocka_unit_test(texts_have_tokens), cmocka_unit_test(parameters_are_read_or_refused),
         cmocka_unit_test(damaged_bodies_are_refused),
         cmocka_unit_test(pieces_stop_where_the_whole_does))
