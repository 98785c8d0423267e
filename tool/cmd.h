/* The command line: one table from which parsing, --help, man pages and completions come.
 *
 * Each command is a constant in its own file, named in tool/commands.def:
 *
 *     static const ru_opt opts[] = {
 *         RU_OPT(TEXT, "out", "DIR", "folder of the run", .letter = 'o', .def = "runs/last"),
 *         RU_OPT(FLAG, "json", NULL, "one JSON object a line on stdout"),
 *     };
 *     static ru_status run(ru_cmd_in *in, ru_err *err) { ... ru_cmd_text(in, "out") ... }
 *     const ru_cmd rui_cmd_train = {
 *         .name = "train", .summary = "train the model of a job file", .run = run,
 *         RU_CMD_ARGS("JOB.yaml", 1, 1), RU_CMD_LISTS(opts, examples), ...};
 *
 * Commands with verbs (`rubato data make`) have `subs` instead of `run`.
 *
 * Results go to stdout, everything else to stderr (ru_log, or the error sentence that `run`
 * returns: the top prints it once and turns the status into the exit code).
 *
 * Every command understands -h, --help, -q, -v, --color, --log-format without listing them.
 *
 * Thread: main only. */
#ifndef RU_TOOL_CMD_H
#define RU_TOOL_CMD_H

#include "base/arena.h"
#include "base/conf.h"

typedef enum ru_opt_type {
    RU_OPT_FLAG,  /* --json; also --no-json when def is "true" */
    RU_OPT_TEXT,  /* --out DIR, --out=DIR, -o DIR */
    RU_OPT_TEXTS, /* may be given several times; all are kept in order */
    RU_OPT_I64,   /* whole number within min..max */
    RU_OPT_F64,
    RU_OPT_TIME,   /* 250us, 2h */
    RU_OPT_SIZE,   /* 64KiB */
    RU_OPT_CHOICE, /* a word of `choices` */
} ru_opt_type;

typedef struct ru_opt {
    const char *name; /* long form without dashes; '-' and '_' are the same to the user */
    char letter;      /* short form, 0 for none */
    ru_opt_type type;
    const char *word; /* what the value is called: DIR, FILE, N; DIR and FILE complete to paths */
    const char *def;  /* default as typed; NULL: none, the getters give 0, NULL or false */
    const char *choices; /* "auto|always|never" */
    double min, max;     /* used when min < max */
    const char *help;    /* one sentence without full stop */
} ru_opt;

/* A row: type without RU_OPT_, name, what the value is called (NULL for a flag), help, then what
 * else the row needs; RU_IN (base/conf.h) gives bounds. */
#define RU_OPT(type_, name_, word_, ...)                                              \
    {                                                                                 \
        .name = (name_), .type = RU_OPT_##type_, .word = (word_), .help = __VA_ARGS__ \
    }
/* The row of an option that means the same in every command that has it. */
#define RU_OPT_THREADS(letter_)                                                                  \
    {                                                                                            \
        .name = "threads", .letter = (letter_), .type = RU_OPT_I64, .word = "N", .def = "0",     \
        .min = 0, .max = 1024, .help = "threads that compute; 0: all cores this process may use" \
    }

typedef struct ru_example {
    const char *line; /* "rubato train job.yaml --set train.epochs=1" */
    const char *what; /* "one epoch only" */
} ru_example;

typedef struct ru_cmd_in ru_cmd_in;
typedef struct ru_cmd ru_cmd;

struct ru_cmd {
    const char *name;
    const char *summary;       /* one line without full stop, begins with a verb in lower case */
    const char *about;         /* paragraphs for --help and man, blank line between; may be NULL */
    const char *args;          /* "JOB.yaml", "MODEL.onnx [FILE]..."; NULL when it takes none */
    uint32_t arg_min, arg_max; /* number of positional arguments; arg_max UINT32_MAX: any */
    const ru_opt *opts;        /* [n_opts] */
    uint32_t n_opts;
    /* Options of other programs and what to use here, "np=-w N|lr=..."; for the error of an unknown
     * option; may be NULL. */
    const char *called;
    const ru_example *examples; /* [n_examples] shown first by --help */
    uint32_t n_examples;
    const char
        *exits; /* exit codes worth knowing, "65 a data file is damaged|75 ..."; may be NULL */
    const ru_cmd *subs; /* [n_subs] verbs; then run is NULL */
    uint32_t n_subs;
    bool computes; /* uses the compute threads: main sets how long they spin before it starts */
    ru_status (*run)(ru_cmd_in *in, ru_err *err);
};

/* In a command's constant: its arguments, at least and at most; its options and examples, arrays.
 */
#define RU_CMD_ARGS(args_, min_, max_) .args = (args_), .arg_min = (min_), .arg_max = (max_)
#define RU_CMD_LISTS(opts_, examples_)                                       \
    .opts = (opts_), .n_opts = RU_ARRAY_LEN(opts_), .examples = (examples_), \
    .n_examples = RU_ARRAY_LEN(examples_)

/* What a command gets. Everything lives until the program ends. */
struct ru_cmd_in {
    const ru_cmd *cmd;
    ru_arena *arena;
    const char *const *args; /* [n_args] positional arguments */
    uint32_t n_args;
    const char *const *words; /* [n_words] all that was typed after the command's name */
    uint32_t n_words;
    int exit_code; /* a command may set it for an exit without an error sentence; 0 to begin with */
    bool color;    /* stdout may be coloured; stderr is the log's business */
    bool progress; /* stderr is a terminal with a width and -q was not given */
    int verbose;   /* -1 with -q, +1 for each -v */
    struct rui_cmd_values *values;
};

/* Values of options by long name: given, else default. A name that is not in the table is a bug and
 * panics. */
bool ru_cmd_given(const ru_cmd_in *in, const char *name);
bool ru_cmd_flag(const ru_cmd_in *in, const char *name);
const char *ru_cmd_text(const ru_cmd_in *in, const char *name); /* TEXT, CHOICE; NULL: no default */
const char *const *ru_cmd_texts(const ru_cmd_in *in, const char *name, uint32_t *n);
int64_t ru_cmd_i64(const ru_cmd_in *in, const char *name); /* I64, TIME (ns), SIZE (bytes) */
double ru_cmd_f64(const ru_cmd_in *in, const char *name);
uint32_t ru_cmd_choice(const ru_cmd_in *in, const char *name); /* index in choices */

#endif
