/* `rubato train --functions`: the steps of a job on function instances.
 *
 * Thread: main only. */
#ifndef RU_TOOL_FUNCTIONS_H
#define RU_TOOL_FUNCTIONS_H

#include "launch/hosts.h"
#include "tool/cmd.h"
#include "train/driver/trainer.h"

/* The rows of the options. */
#define RU_OPT_FUNCTIONS                                                                           \
    RU_OPT(TEXT, "functions", "local|URL",                                                         \
           "compute the steps on -w function instances: local starts them on this machine, each "  \
           "in a control group of its own; URL calls those of an endpoint of Lambda's Invoke "     \
           "(`rubato function --train` is the program)"),                                          \
        RU_OPT(TEXT, "function-name", "NAME", "with --functions URL: name of the function",        \
               .def = "rubato"),                                                                   \
        RU_OPT(FLAG, "sign", NULL,                                                                 \
               "with --functions URL: sign calls (version 4, AWS_ACCESS_KEY_ID and the like)"),    \
        RU_OPT(TEXT, "memory", "MB[:MB[:STEP]]",                                                   \
               "with --functions: memory of an instance, or with --deadline or --budget those to " \
               "choose from; 1769 MB bring one core. With --beside, one number: memory that the "  \
               "training may have (half of what is left, if it is not said)",                      \
               .def = "1769"),                                                                     \
        RU_OPT(TIME, "deadline", "TIME",                                                           \
               "with --functions and -w MIN:MAX: choose workers and memory such that the run "     \
               "ends in time at the least cost"),                                                  \
        RU_OPT(TEXT, "budget", "USD",                                                              \
               "with --functions and -w MIN:MAX: ... such that the run costs no more (3usd); "     \
               "without --deadline it ends as soon as that allows"),                               \
        RU_OPT(TEXT, "usd-gb-s", "USD|FILE",                                                       \
               "with --functions: US dollars for a GB-s, or a file that has them; it is read "     \
               "again each second, and with --deadline or --budget a new price leads to a new "    \
               "choice",                                                                           \
               .def = "1.66667e-5"),                                                               \
        RU_OPT(F64, "usd-call", "USD", "with --functions: price of a call", .def = "2e-7",         \
               RU_IN(0, 1)),                                                                       \
        RU_OPT(TIME, "life", "TIME",                                                               \
               "with --functions: time limit of a call; its workers hand over at a step before "   \
               "it. 0: none",                                                                      \
               .def = "900s"),                                                                     \
        RU_OPT(TEXT, "store", "STORE",                                                             \
               "with --functions: where gradients cross: own is memory of this process, at "       \
               "--store-listen; else redis://HOST:PORT or s3://BUCKET/PREFIX",                     \
               .def = "own"),                                                                      \
        RU_OPT(TEXT, "store-listen", "ADDR",                                                       \
               "with --functions: where the own store listens: PORT (this machine only), :PORT "   \
               "or HOST:PORT",                                                                     \
               .def = "0"),                                                                        \
        RU_OPT(TEXT, "store-reach", "HOST:PORT",                                                   \
               "with --functions URL: address under which functions reach the own store "          \
               "(default: where it listens)")

/* Errors: RU_E_USAGE for options that need --functions, or do not go with it. */
RU_MUST_USE ru_status rui_check_functions(ru_cmd_in *in, ru_err *err);
/* Errors: RU_E_USAGE for options that do not go with --functions; those of ru_functions_train. */
RU_MUST_USE ru_status rui_train_functions(ru_cmd_in *in, const ru_train_options *to,
                                          const ru_hosts_plan *plan, ru_err *err);

#endif
