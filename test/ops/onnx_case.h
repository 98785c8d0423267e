/* One ONNX test vector: a folder with model.onnx and test_data_set_<k>/{input,output}_<i>.pb.
 *
 * Runs the model on the inputs and compares with the outputs, with the tolerances of the ONNX
 * project's own runner (relative 1e-3, absolute 1e-7; integers and booleans exactly).
 *
 * Thread: any; one case at a time per arena. */
#ifndef RU_TEST_ONNX_CASE_H
#define RU_TEST_ONNX_CASE_H

#include "exec/exe.h"

typedef enum ru_onnx_verdict {
    RU_ONNX_PASS,
    RU_ONNX_FAIL,        /* wrong result, or an error where there should be none */
    RU_ONNX_UNSUPPORTED, /* an op that Rubato does not have */
    RU_ONNX_OUT,         /* sequences, optionals, texts, subgraphs, foreign domains, types */
} ru_onnx_verdict;

/* Run the case in `dir`. `why` gets the reason when it does not pass. Never fails itself. */
ru_onnx_verdict ru_onnx_case_run(const char *dir, ru_device_kind device, ru_err *why);

#endif
