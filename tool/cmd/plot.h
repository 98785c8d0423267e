/* Line charts as one SVG picture: panels above each other with a common x axis.
 *
 * The picture needs no other file. Its colours follow the viewer's light or dark scheme, and lines
 * differ in dashes and marks as well, so that it can be read in grey.
 *
 * Thread: any, no shared state. */
#ifndef RU_TOOL_PLOT_H
#define RU_TOOL_PLOT_H

#include "base/str.h"

typedef struct ru_plot_line {
    const char *name; /* in the legend */
    const double *x;  /* [n] ascending */
    const double *y;  /* [n] a value that is not finite leaves a gap */
    int64_t n;
    uint32_t style; /* 0, 1, ...: colour, dashes and mark */
    bool marks;     /* mark each point, for few points */
    bool faint;     /* behind the others, pale, not in the legend */
} ru_plot_line;

typedef struct ru_plot_panel {
    const char *title;
    const ru_plot_line *lines; /* [n] */
    uint32_t n;
} ru_plot_panel;

/* The picture into `out`. `x_name` is written below the last panel. `decades`: x are decimal
 * logarithms, the axis has their powers of ten.
 * Cost: points of all lines; a line of more than 1,000 points is drawn by means of neighbours. */
void ru_plot_svg(const ru_plot_panel *panels, uint32_t n, const char *x_name, bool decades,
                 ru_text *out);

/* The distance of about `want` round numbers (1, 2 or 5 times a power of ten) in [low, high]. */
double ru_plot_step(double low, double high, uint32_t want);

#endif
