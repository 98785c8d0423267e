/* Drawn digits. Each class has several ways to be written, each a few strokes through control
 * points:
 *
 *     way -> points jittered -> smooth curve -> slant, turn, stretch, bend -> fitted into 20 x 20
 *         -> ink: distance to the curve against a pen width that varies along the stroke
 *         -> placed by its centre of mass, a little noise
 *
 * The layout (digit in a 20 x 20 box, centre of mass in the middle, ink on 0) follows MNIST's, so
 * that a net for one takes the other. Coordinates of ways: x right, y down, the digit's box is
 * 0..1. */
#include "data/make/digits.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"

enum { POINTS_MAX = 12, STROKES_MAX = 3, CURVE_MAX = 200, STEPS = 7 };

typedef struct point {
    float x, y;
} point;

typedef struct way {
    int digit;
    int n_strokes;
    int n[STROKES_MAX]; /* points of each stroke */
    point at[STROKES_MAX][POINTS_MAX];
} way;

/* clang-format off: one way a line or two, to be read as coordinates */
static const way ways[] = {
    {0,
     1,
     {9},
     {{{.55f, .02f},
       {.2f, .12f},
       {.05f, .45f},
       {.12f, .82f},
       {.45f, 1.f},
       {.82f, .85f},
       {.95f, .5f},
       {.82f, .14f},
       {.5f, .03f}}}},
    {0,
     1,
     {10},
     {{{.7f, .1f},
       {.4f, .0f},
       {.12f, .25f},
       {.05f, .6f},
       {.25f, .95f},
       {.6f, .98f},
       {.88f, .7f},
       {.92f, .3f},
       {.7f, .05f},
       {.45f, .1f}}}},
    {1, 1, {2}, {{{.5f, .0f}, {.5f, 1.f}}}},
    {1, 1, {3}, {{{.25f, .25f}, {.55f, .0f}, {.52f, 1.f}}}},
    {1, 2, {3, 2}, {{{.2f, .22f}, {.52f, .0f}, {.5f, 1.f}}, {{.15f, 1.f}, {.88f, 1.f}}}},
    {2,
     1,
     {8},
     {{{.08f, .25f},
       {.3f, .02f},
       {.72f, .05f},
       {.85f, .32f},
       {.55f, .65f},
       {.08f, .98f},
       {.5f, .97f},
       {.95f, .95f}}}},
    {2,
     1,
     {10},
     {{{.1f, .22f},
       {.4f, .0f},
       {.8f, .15f},
       {.75f, .45f},
       {.4f, .78f},
       {.12f, .95f},
       {.1f, .78f},
       {.32f, .76f},
       {.6f, .95f},
       {.95f, .9f}}}},
    {3,
     1,
     {9},
     {{{.1f, .12f},
       {.5f, .0f},
       {.85f, .18f},
       {.68f, .43f},
       {.38f, .48f},
       {.75f, .55f},
       {.88f, .8f},
       {.5f, 1.f},
       {.08f, .88f}}}},
    {3,
     2,
     {3, 5},
     {{{.12f, .03f}, {.88f, .02f}, {.42f, .4f}},
      {{.42f, .4f}, {.82f, .5f}, {.88f, .78f}, {.5f, 1.f}, {.08f, .9f}}}},
    {4,
     2,
     {4, 2},
     {{{.55f, .0f}, {.3f, .35f}, {.05f, .68f}, {.95f, .66f}}, {{.7f, .35f}, {.68f, 1.f}}}},
    {4,
     2,
     {4, 3},
     {{{.12f, .05f}, {.1f, .4f}, {.3f, .55f}, {.82f, .5f}},
      {{.85f, .0f}, {.82f, .5f}, {.78f, 1.f}}}},
    {4, 1, {6}, {{{.62f, .02f}, {.08f, .6f}, {.5f, .62f}, {.9f, .58f}, {.72f, .25f}, {.6f, 1.f}}}},
    {5,
     2,
     {6, 2},
     {{{.2f, .05f}, {.15f, .45f}, {.55f, .4f}, {.88f, .65f}, {.6f, .97f}, {.08f, .92f}},
      {{.2f, .05f}, {.9f, .02f}}}},
    {5,
     1,
     {8},
     {{{.9f, .03f},
       {.3f, .05f},
       {.2f, .42f},
       {.5f, .38f},
       {.85f, .55f},
       {.8f, .85f},
       {.45f, 1.f},
       {.08f, .88f}}}},
    {6,
     1,
     {9},
     {{{.75f, .02f},
       {.35f, .2f},
       {.1f, .55f},
       {.15f, .88f},
       {.5f, 1.f},
       {.85f, .85f},
       {.8f, .58f},
       {.45f, .52f},
       {.15f, .75f}}}},
    {6,
     1,
     {8},
     {{{.5f, .0f},
       {.2f, .35f},
       {.1f, .75f},
       {.4f, 1.f},
       {.82f, .88f},
       {.85f, .62f},
       {.5f, .52f},
       {.18f, .7f}}}},
    {7, 1, {4}, {{{.06f, .06f}, {.92f, .03f}, {.6f, .48f}, {.4f, 1.f}}}},
    {7,
     2,
     {4, 2},
     {{{.06f, .08f}, {.94f, .03f}, {.62f, .45f}, {.42f, 1.f}}, {{.25f, .5f}, {.85f, .46f}}}},
    {7, 1, {5}, {{{.08f, .22f}, {.1f, .05f}, {.9f, .04f}, {.62f, .5f}, {.5f, 1.f}}}},
    {8,
     1,
     {11},
     {{{.75f, .12f},
       {.42f, .0f},
       {.15f, .2f},
       {.45f, .45f},
       {.85f, .72f},
       {.6f, .98f},
       {.2f, .93f},
       {.15f, .7f},
       {.5f, .47f},
       {.82f, .25f},
       {.68f, .06f}}}},
    {8,
     2,
     {7, 7},
     {{{.5f, .0f}, {.2f, .1f}, {.25f, .4f}, {.52f, .47f}, {.8f, .36f}, {.78f, .1f}, {.48f, .01f}},
      {{.5f, .48f}, {.15f, .6f}, {.12f, .88f}, {.5f, 1.f}, {.9f, .86f}, {.85f, .6f}, {.5f, .48f}}}},
    {9,
     1,
     {9},
     {{{.82f, .2f},
       {.5f, .0f},
       {.15f, .18f},
       {.2f, .45f},
       {.55f, .48f},
       {.82f, .22f},
       {.84f, .5f},
       {.75f, .8f},
       {.62f, 1.f}}}},
    {9,
     1,
     {10},
     {{{.8f, .15f},
       {.45f, .02f},
       {.12f, .25f},
       {.35f, .5f},
       {.75f, .38f},
       {.85f, .12f},
       {.85f, .55f},
       {.7f, .9f},
       {.4f, 1.f},
       {.15f, .92f}}}},
};
/* clang-format on */

/* A drawn curve: points with pen radius; `up` marks the first point of a stroke. */
typedef struct curve {
    int n;
    point at[CURVE_MAX];
    float radius[CURVE_MAX];
    bool up[CURVE_MAX];
} curve;

static float jitter(ru_rng *r, double deviation)
{
    double v = ru_rng_normal(r); /* cut at 2.5 so that no class turns into another */
    v = v > 2.5 ? 2.5 : v < -2.5 ? -2.5 : v;
    return (float)(v * deviation);
}

static const way *pick_way(ru_rng *r, int digit)
{
    int of_digit = 0, first = -1;
    for (int i = 0; i < (int)RU_ARRAY_LEN(ways); i++) {
        if (ways[i].digit == digit) {
            first = first < 0 ? i : first;
            of_digit++;
        }
    }
    return &ways[first + (int)ru_rng_below(r, (uint32_t)of_digit)];
}

/* Between b and c, with a and d as neighbours (Catmull-Rom). */
static float spline(float a, float b, float c, float d, float t)
{
    float t2 = t * t, t3 = t2 * t;
    return 0.5f * (2.0f * b + (c - a) * t + (2.0f * a - 5.0f * b + 4.0f * c - d) * t2 +
                   (3.0f * b - a - 3.0f * c + d) * t3);
}

static void trace_stroke(ru_rng *r, const point *points, int n, curve *c)
{
    point p[POINTS_MAX];
    for (int i = 0; i < n; i++) {
        p[i].x = points[i].x + jitter(r, 0.046);
        p[i].y = points[i].y + jitter(r, 0.042);
    }
    for (int i = 0; i + 1 < n; i++) {
        point a = p[i > 0 ? i - 1 : 0], b = p[i], e = p[i + 1], f = p[i + 2 < n ? i + 2 : n - 1];
        for (int k = i == 0 ? 0 : 1; k <= STEPS && c->n < CURVE_MAX; k++) {
            float t = (float)k / (float)STEPS;
            c->at[c->n] = (point){spline(a.x, b.x, e.x, f.x, t), spline(a.y, b.y, e.y, f.y, t)};
            c->up[c->n++] = i == 0 && k == 0;
        }
    }
}

/* Turn, slant, stretch and bend the whole digit. */
static void deform(ru_rng *r, curve *c)
{
    float turn = jitter(r, 0.028), slant = jitter(r, 0.2) + 0.08f; /* turn in whole turns */
    float wide = 1.0f + jitter(r, 0.16), bend_x = jitter(r, 0.06), bend_y = jitter(r, 0.042);
    double phase_x = ru_rng_f64(r), phase_y = ru_rng_f64(r);
    double angle = turn < 0.0f ? 1.0 + (double)turn : (double)turn;
    float cosine = (float)ru_math_cos2pi(angle), sine = (float)ru_math_sin2pi(angle);
    for (int i = 0; i < c->n; i++) {
        float x = c->at[i].x - 0.5f, y = c->at[i].y - 0.5f;
        double wave_x = phase_x + 0.7 * (double)(y + 0.75f),
               wave_y = phase_y + 0.7 * (double)(x + 0.75f);
        wave_x -= floor(wave_x);
        wave_y -= floor(wave_y);
        x += bend_x * (float)ru_math_sin2pi(wave_x);
        y += bend_y * (float)ru_math_sin2pi(wave_y);
        x = x * wide * 0.72f - slant * y;
        c->at[i] = (point){cosine * x - sine * y, sine * x + cosine * y};
    }
}

/* Scale into the box (its larger side filled) and choose the pen. */
static void fit(ru_rng *r, curve *c)
{
    point low = c->at[0], high = c->at[0];
    for (int i = 1; i < c->n; i++) {
        low.x = c->at[i].x < low.x ? c->at[i].x : low.x;
        low.y = c->at[i].y < low.y ? c->at[i].y : low.y;
        high.x = c->at[i].x > high.x ? c->at[i].x : high.x;
        high.y = c->at[i].y > high.y ? c->at[i].y : high.y;
    }
    float side = high.y - low.y > high.x - low.x ? high.y - low.y : high.x - low.x;
    float scale = (17.2f + jitter(r, 1.1)) / (side > 0.1f ? side : 0.1f);
    float middle = (float)RU_DIGIT_SIDE / 2.0f;
    float pen = 1.25f + jitter(r, 0.26), press = (float)ru_rng_f64(r), swing = jitter(r, 0.2);
    for (int i = 0; i < c->n; i++) {
        c->at[i].x = (c->at[i].x - (low.x + high.x) / 2.0f) * scale + middle;
        c->at[i].y = (c->at[i].y - (low.y + high.y) / 2.0f) * scale + middle;
        double t = (double)press + 1.3 * (double)i / (double)c->n;
        c->radius[i] = pen * (1.0f + swing * (float)ru_math_sin2pi(t - floor(t)));
        c->radius[i] = c->radius[i] < 0.55f ? 0.55f : c->radius[i];
    }
}

/* Ink of one piece of curve: 1 within the pen, falling to 0 over one pixel at its edge. */
static void ink_piece(point a, point b, float ra, float rb, float *ink)
{
    float reach = (ra > rb ? ra : rb) + 1.0f, dx = b.x - a.x, dy = b.y - a.y;
    float length2 = dx * dx + dy * dy;
    float edge_x0 = (a.x < b.x ? a.x : b.x) - reach, edge_x1 = (a.x > b.x ? a.x : b.x) + reach;
    float edge_y0 = (a.y < b.y ? a.y : b.y) - reach, edge_y1 = (a.y > b.y ? a.y : b.y) + reach;
    int last = RU_DIGIT_SIDE - 1;
    int x0 = edge_x0 < 0.0f ? 0 : (int)edge_x0, x1 = edge_x1 > (float)last ? last : (int)edge_x1;
    int y0 = edge_y0 < 0.0f ? 0 : (int)edge_y0, y1 = edge_y1 > (float)last ? last : (int)edge_y1;
    for (int y = y0; y <= y1; y++) {
        for (int x = x0; x <= x1; x++) {
            float px = (float)x + 0.5f - a.x, py = (float)y + 0.5f - a.y;
            float t = length2 > 0.0f ? (px * dx + py * dy) / length2 : 0.0f;
            t = t < 0.0f ? 0.0f : t > 1.0f ? 1.0f : t;
            float ex = px - t * dx, ey = py - t * dy;
            float v = ra + t * (rb - ra) + 0.5f - sqrtf(ex * ex + ey * ey);
            v = v > 1.0f ? 1.0f : v;
            float *cell = &ink[y * RU_DIGIT_SIDE + x];
            *cell = v > *cell ? v : *cell;
        }
    }
}

/* Ink the curve twice: the first time shows how far its centre of mass is from the middle (`off`
 * beside it), the second is drawn shifted. */
static void draw(curve *c, point off, float *ink)
{
    for (int pass = 0; pass < 2; pass++) {
        memset(ink, 0, RU_DIGIT_PIXELS * sizeof *ink);
        for (int i = 0; i + 1 < c->n; i++) {
            if (!c->up[i + 1]) {
                ink_piece(c->at[i], c->at[i + 1], c->radius[i], c->radius[i + 1], ink);
            }
        }
        float sum = 0.0f, sum_x = 0.0f, sum_y = 0.0f;
        for (int i = 0; pass == 0 && i < RU_DIGIT_PIXELS; i++) {
            sum += ink[i];
            sum_x += ink[i] * ((float)(i % RU_DIGIT_SIDE) + 0.5f);
            sum_y += ink[i] * ((float)(i / RU_DIGIT_SIDE) + 0.5f);
        }
        for (int i = 0; sum > 0.0f && i < c->n; i++) {
            c->at[i].x += (float)RU_DIGIT_SIDE / 2.0f + off.x - sum_x / sum;
            c->at[i].y += (float)RU_DIGIT_SIDE / 2.0f + off.y - sum_y / sum;
        }
    }
}

int32_t ru_digit_draw(uint64_t seed, int64_t index, uint8_t *pixels)
{
    ru_rng base = ru_rng_from(seed, ru_rng_label("digits"));
    ru_rng r = ru_rng_split(&base, (uint64_t)index);
    int digit = (int)ru_rng_below(&r, 10);
    const way *w = pick_way(&r, digit);
    curve c;
    c.n = 0;
    for (int i = 0; i < w->n_strokes; i++) {
        trace_stroke(&r, w->at[i], w->n[i], &c);
    }
    deform(&r, &c);
    fit(&r, &c);
    point off = {jitter(&r, 0.6), jitter(&r, 0.6)};
    float ink[RU_DIGIT_PIXELS];
    draw(&c, off, ink);
    float dark = 255.0f * (1.0f - 0.22f * ru_rng_f32(&r)), soft = 0.35f + 0.5f * ru_rng_f32(&r);
    for (int i = 0; i < RU_DIGIT_PIXELS; i++) {
        float v = ink[i];
        v = v < 1.0f ? v * (soft + (1.0f - soft) * v) : v;
        float grain = v > 0.0f ? 14.0f * (ru_rng_f32(&r) - 0.5f) : 0.0f;
        v = v * dark + grain * v;
        pixels[i] = (uint8_t)(v < 0.0f ? 0.0f : v > 255.0f ? 255.0f : v);
    }
    return digit;
}
