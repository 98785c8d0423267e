/* Text of the files a user names. Thread: any. */
#ifndef RU_DATA_MAKE_TEXT_H
#define RU_DATA_MAKE_TEXT_H

#include "data/make/make.h"

/* Files in the order given (folders: their text files, sorted, with subfolders) are concatenated;
 * the last part of each file goes to test.u8, so that both parts hold every kind of text. */
RU_MUST_USE ru_status rui_make_text(const ru_make_options *opt, ru_make_report *report,
                                    ru_err *err);

#endif
