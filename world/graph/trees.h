/* Boosted trees as plain arrays: what solve/ trains and cost/ evaluates. Thread: any. */
#ifndef RU_WORLD_TREES_H
#define RU_WORLD_TREES_H

#include "base/arena.h"

typedef enum ru_trees_link {
    RU_TREES_IDENTITY,
    RU_TREES_LOGISTIC, /* 1 / (1 + e^-m) */
    RU_TREES_SOFTMAX,  /* over the outputs */
    RU_TREES_EXP,      /* e^m */
} ru_trees_link;

typedef struct ru_trees {
    uint32_t n_features, n_outputs, n_trees, n_nodes;
    ru_trees_link link;
    const float *base;      /* [n_outputs] before the link */
    const uint32_t *root;   /* [n_trees] */
    const uint32_t *output; /* [n_trees] which output the tree adds to */
    /* [n_nodes] each; a child's index is above its parent's. */
    const int32_t *feature; /* -1: a leaf */
    const float *value;     /* split: left when x < value; leaf: what it adds */
    const uint32_t *left, *right;
    const uint8_t *missing_left; /* 1: NaN goes left */
} ru_trees;

/* Are all indexes in range and every tree finite? RU_E_DATA names the first that is not. */
RU_MUST_USE ru_status ru_trees_check(const ru_trees *t, ru_err *err);

#endif
