/* Vector kernels of matrix factorisation, for each instruction set.
 *
 * Thread: any. */
#ifndef RU_APPS_MF_KERN_H
#define RU_APPS_MF_KERN_H

#include "train/app/app.h"

enum { RUI_MF_AHEAD = 4 }; /* ratings ahead of which a row is fetched */

/* Ratings of some users for items of one block, user by user. */
typedef struct rui_mf_ratings {
    const uint32_t *user; /* [n_users] rows in users, user_bias */
    const int64_t *begin; /* [n_users + 1] */
    const uint32_t *item; /* [begin[n_users] + RUI_MF_AHEAD] rows in items, item_bias */
    const float *value;   /* minus the mean */
    int64_t n_users;
} rui_mf_ratings;

typedef struct rui_mf_step {
    float *users, *items;         /* [.., width] width: a multiple of 8 */
    float *user_bias, *item_bias; /* [..]; NULL: none */
    uint32_t width;
    float lr, lambda;
} rui_mf_step;

/* One pass of stochastic gradient descent over `r`; the sum of squared errors before each step. */
double rui_mf_sgd(const rui_mf_ratings *r, const rui_mf_step *s);
#endif
