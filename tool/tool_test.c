/* The command line: picking, parsing, help, man and completion of every command. */
#include <stdio.h>
#include <string.h>

#include "test/test.h"
#include "tool/cmd_impl.h"

static const ru_opt opts[] = {
    RU_OPT(TEXT, "out", "DIR", "folder", .letter = 'o', .def = "runs"),
    RU_OPT(TEXTS, "set", "KEY=VALUE", "change a key"),
    RU_OPT(I64, "threads", NULL, "threads", .letter = 't', .def = "2", RU_IN(1, 64)),
    RU_OPT(F64, "rate", NULL, "rate"),
    RU_OPT(I64, "nproc-per-node", NULL, "workers"),
    RU_OPT(TIME, "every", NULL, "time between", .def = "60s"),
    RU_OPT(SIZE, "cache", NULL, "bytes"),
    RU_OPT(CHOICE, "mode", NULL, "mode", .def = "slow", .choices = "fast|slow"),
    RU_OPT(FLAG, "json", NULL, "as JSON"),
    RU_OPT(FLAG, "check", NULL, "check first", .def = "true"),
};

static ru_status run_nothing(ru_cmd_in *in, ru_err *err)
{
    (void)in;
    (void)err;
    return RU_OK;
}

static const ru_cmd sample = {.name = "sample",
                              .summary = "try things",
                              RU_CMD_ARGS("FILE [FILE]", 1, 2),
                              .opts = opts,
                              .n_opts = RU_ARRAY_LEN(opts),
                              .called = "np=-w N|max-restarts=-w MIN:MAX",
                              .exits = "73 no output|1 it failed|65 bad input",
                              .run = run_nothing};

static ru_status parse(ru_cmd_in *in, ru_arena *a, const char *line, ru_err *err)
{
    static const char *words[32];
    uint32_t n = 0;
    ru_str rest = ru_str_c(ru_arena_str(a, line)), word;
    while (*line != '\0' && n < 32 && ru_str_next(&rest, ' ', &word)) {
        words[n++] = ru_arena_strn(a, word.p, word.n);
    }
    *in = (ru_cmd_in){.cmd = &sample, .arena = a};
    RU_TRY(rui_cmd_parse(in, words, n, err));
    return rui_cmd_parse_args(in, err);
}

static void test_every_form_of_option(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_cmd_in in;
    ru_err err;
    assert_ok(parse(&in, &a,
                    "a -o x --set k=1 --threads=7 --set=l=2 --nproc_per_node 3 -qv "
                    "--every 250us --cache 64KiB --mode fast --no-check --rate -1.5 -- -b",
                    &err),
              err);
    assert_string_equal(ru_cmd_text(&in, "out"), "x");
    uint32_t n;
    const char *const *set = ru_cmd_texts(&in, "set", &n);
    assert_true(n == 2 && strcmp(set[0], "k=1") == 0 && strcmp(set[1], "l=2") == 0);
    assert_int_equal(ru_cmd_i64(&in, "threads"), 7);
    assert_int_equal(ru_cmd_i64(&in, "nproc-per-node"), 3);
    assert_int_equal(ru_cmd_i64(&in, "every"), 250000);
    assert_int_equal(ru_cmd_i64(&in, "cache"), 65536);
    assert_int_equal(ru_cmd_choice(&in, "mode"), 0);
    assert_true(ru_cmd_f64(&in, "rate") == -1.5);
    assert_false(ru_cmd_flag(&in, "check"));
    assert_false(ru_cmd_flag(&in, "json"));
    assert_true(ru_cmd_flag(&in, "quiet") && ru_cmd_flag(&in, "verbose"));
    assert_true(in.n_args == 2 && strcmp(in.args[1], "-b") == 0);
    assert_ok(parse(&in, &a, "- -oy -t5", &err), err);
    assert_string_equal(ru_cmd_text(&in, "out"), "y");
    assert_int_equal(ru_cmd_i64(&in, "threads"), 5);
    assert_string_equal(in.args[0], "-");
    assert_ok(parse(&in, &a, "f", &err), err);
    assert_string_equal(ru_cmd_text(&in, "out"), "runs");
    assert_int_equal(ru_cmd_i64(&in, "every"), 60000000000);
    assert_int_equal(ru_cmd_choice(&in, "mode"), 1);
    assert_true(ru_cmd_flag(&in, "check"));
    assert_false(ru_cmd_given(&in, "out"));
    assert_null(ru_cmd_texts(&in, "set", &n));
    ru_arena_fini(&a);
}

static void test_wrong_usage_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *line, *want;
    } rows[] = {
        {"", "an argument is missing: FILE [FILE]"},
        {"a b c", "unexpected argument 'c'; the command takes FILE [FILE]"},
        {"a --thread 3", "unknown option '--thread'; did you mean '--threads'?"},
        {"a --zzzzz", "unknown option '--zzzzz'; --help lists the options"},
        {"a -x", "unknown option '-x'; --help lists the options"},
        {"a -np 4", "unknown option '-np'; here it is -w N"},
        {"a --max_restarts=4", "unknown option '--max_restarts'; here it is -w MIN:MAX"},
        {"a --threads 0", "--threads is '0', expected a whole number from 1 to 64"},
        {"a --threads two", "--threads is 'two', expected a whole number from 1 to 64"},
        {"a --out", "--out needs a value: --out DIR"},
        {"a --json=1", "--json takes no value"},
        {"a --no-out", "unknown option '--no-out'; --help lists the options"},
        {"a --mode quick", "--mode is 'quick', expected one of fast, slow"},
        {"a --every 5", "--every is '5', expected a time such as 250us or 60s"},
        {"a --rate nan", "--rate is 'nan', expected a number"},
    };
    for (uint32_t i = 0; i < RU_ARRAY_LEN(rows); i++) {
        ru_arena a;
        ru_arena_init(&a, 0);
        ru_cmd_in in;
        ru_err err = {0};
        assert_int_equal(parse(&in, &a, rows[i].line, &err), RU_E_USAGE);
        assert_string_equal(err.text, rows[i].want);
        ru_arena_fini(&a);
    }
    const ru_cmd *parent, *cmd;
    uint32_t used;
    ru_err err = {0};
    const char *typed[] = {"hepl"};
    assert_int_equal(rui_cmd_pick(typed, 1, &parent, &cmd, &used, &err), RU_E_USAGE);
    assert_string_equal(err.text, "unknown command 'hepl'; did you mean 'help'?");
}

static void test_the_table_is_sound_and_prints(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    uint32_t n;
    const ru_cmd *const *cmds = rui_cmds(&n);
    for (uint32_t i = 0; i < n; i++) {
        assert_ok(rui_cmd_check(cmds[i], &err), err);
        for (uint32_t k = 0; k <= cmds[i]->n_subs; k++) {
            const ru_cmd *cmd = k == 0 ? cmds[i] : &cmds[i]->subs[k - 1];
            ru_cmd_in in = {.cmd = cmd, .arena = &a};
            assert_ok(rui_cmd_parse(&in, NULL, 0, &err), err); /* every default fits */
            ru_text t = ru_text_arena(&a);
            rui_help_cmd(k == 0 ? NULL : cmds[i], cmd, true, 80, &t);
            ru_str rest = ru_str_c(t.p), line;
            while (ru_str_next(&rest, '\n', &line)) {
                bool example = ru_str_starts(line, "  rubato ");
                assert_true(line.n <= 100 || example);
            }
            assert_non_null(strstr(t.p, cmd->summary));
        }
        ru_text man = ru_text_arena(&a);
        rui_man_cmd(cmds[i], &man);
        assert_non_null(strstr(man.p, "# SYNOPSIS"));
    }
    ru_text t = ru_text_arena(&a);
    rui_help_all(80, &t);
    rui_man_all(&t);
    rui_complete_bash(&t);
    rui_complete_zsh(&t);
    rui_complete_fish(&t);
    assert_false(t.cut);
    ru_arena_fini(&a);
}

static void test_help_text(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_text t = ru_text_arena(&a);
    rui_help_cmd(NULL, &sample, true, 80, &t);
    assert_non_null(strstr(t.p, "rubato sample FILE [FILE] [options]\n    try things\n"));
    assert_non_null(strstr(t.p, "  -o, --out DIR             folder [runs]\n"));
    assert_non_null(strstr(t.p, "      --no-check            check first\n"));
    assert_non_null(strstr(t.p, "      --mode WORD           mode: fast, slow [slow]\n"));
    const char *exits = strstr(t.p, "\nExit codes\n");
    assert_non_null(exits);
    assert_string_equal(exits, "\nExit codes\n  0    done\n  1    it failed\n  2    wrong usage\n"
                               "  65   bad input\n  70   a bug in Rubato\n  73   no output\n");
    ru_arena_fini(&a);
}

RU_TESTS(tool_tool, cmocka_unit_test(test_every_form_of_option),
         cmocka_unit_test(test_wrong_usage_is_named),
         cmocka_unit_test(test_the_table_is_sound_and_prints), cmocka_unit_test(test_help_text))
