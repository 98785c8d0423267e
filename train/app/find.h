/* The apps that are built in, and finding one by name.
 *
 * Thread: any. */
#ifndef RU_TRAIN_APP_FIND_H
#define RU_TRAIN_APP_FIND_H

#include "train/app/app.h"

/* X(name): one ru_app_<name> each. */
#define RUI_APP_LIST(X) X(mf) X(lda) X(mlr) X(lasso) X(kmeans)

const ru_app_ops *ru_app_at(uint32_t k); /* NULL past the end */
/* An app by its name, or of the library at a path (with a '/'), which stays loaded.
 * Errors: RU_E_CONFIG, RU_E_MISSING; RU_E_USER when the library does not fit. */
RU_MUST_USE ru_status ru_app_find(const char *name, const ru_app_ops **out, ru_err *err);

#endif
