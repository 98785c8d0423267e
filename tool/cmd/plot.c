#include "tool/cmd/plot.h"

#include <math.h>
#include <stdio.h>

#include "base/status.h"

enum {
    WIDTH = 860,
    LEFT = 76,
    RIGHT = 170, /* the legend stands here */
    TOP = 34,
    HIGH = 190, /* of the area of a panel */
    GAP = 46,
    STYLES = 6,
    POINTS_MAX = 1000,
    TICKS = 5,
};

typedef struct range {
    double low, high;
} range;

double ru_plot_step(double low, double high, uint32_t want)
{
    double raw = (high - low) / (want > 0 ? (double)want : 1.0), ten = 1.0;
    if (!(raw > 0) || !isfinite(raw)) {
        return 1.0;
    }
    while (ten > raw) {
        ten /= 10.0;
    }
    while (ten * 10.0 <= raw) {
        ten *= 10.0;
    }
    double times = raw / ten;
    return ten * (times <= 1.0 ? 1.0 : times <= 2.0 ? 2.0 : times <= 5.0 ? 5.0 : 10.0);
}

static void escape(ru_text *t, const char *s)
{
    for (; *s != 0; s++) {
        if (*s == '<' || *s == '>' || *s == '&' || *s == '"') {
            ru_text_putf(t, "&#%d;", *s);
        } else {
            ru_text_putf(t, "%c", (unsigned char)*s < 32 ? ' ' : *s);
        }
    }
}

static void widen(range *r, double v)
{
    if (isfinite(v)) {
        r->low = v < r->low ? v : r->low;
        r->high = v > r->high ? v : r->high;
    }
}

/* Of what is drawn; never empty. */
static range settled(range r)
{
    if (!(r.low <= r.high)) {
        return (range){0, 1};
    }
    double room = r.high - r.low;
    room = room > 0 ? 0.04 * room : (fabs(r.low) > 0 ? 0.1 * fabs(r.low) : 1.0);
    return (range){r.low - room, r.high + room};
}

static double place(range r, double v, double from, double to)
{
    return from + (v - r.low) / (r.high - r.low) * (to - from);
}

static void axis_y(ru_text *t, range r, double top)
{
    double step = ru_plot_step(r.low, r.high, TICKS);
    for (double v = ceil(r.low / step) * step; v <= r.high; v += step) {
        double y = place(r, v, top + HIGH, top), at = fabs(v) < step * 1e-6 ? 0 : v;
        ru_text_putf(t,
                     "<line class=\"grid\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/>"
                     "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.6g</text>\n",
                     LEFT, y, WIDTH - RIGHT, y, LEFT - 8, y + 4, at);
    }
}

static void axis_x(ru_text *t, range r, double top, const char *name, bool decades)
{
    double step = ru_plot_step(r.low, r.high, TICKS + 1), y = top + HIGH;
    step = decades && step < 1 ? 1 : step;
    for (double v = ceil(r.low / step) * step; v <= r.high; v += step) {
        double x = place(r, v, LEFT, WIDTH - RIGHT);
        ru_text_putf(t, "<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n",
                     x, top, x, y);
        if (name != NULL) {
            ru_text_putf(t,
                         "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" "
                         "text-anchor=\"middle\">%.8g</text>\n",
                         x, y + 18,
                         decades                 ? pow(10, v)
                         : fabs(v) < step * 1e-6 ? 0
                                                 : v);
        }
    }
    if (name != NULL) {
        ru_text_putf(t, "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"middle\">",
                     (LEFT + WIDTH - RIGHT) / 2, y + 36);
        escape(t, name);
        ru_text_put(t, "</text>\n");
    }
}

/* A circle, a square or a triangle. */
static void mark(ru_text *t, uint32_t style, double x, double y)
{
    if (style % 3 == 0) {
        ru_text_putf(t, "<circle class=\"m%u\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.2\"/>", style, x, y);
    } else if (style % 3 == 1) {
        ru_text_putf(t, "<rect class=\"m%u\" x=\"%.1f\" y=\"%.1f\" width=\"6\" height=\"6\"/>",
                     style, x - 3, y - 3);
    } else {
        ru_text_putf(t, "<path class=\"m%u\" d=\"M%.1f %.1fl4 7h-8z\"/>", style, x, y - 4);
    }
}

static void line(ru_text *t, const ru_plot_line *l, range rx, range ry, double top)
{
    uint32_t style = l->style % STYLES;
    int64_t each = (l->n + POINTS_MAX - 1) / POINTS_MAX;
    bool open = false;
    ru_text_putf(t, "<path class=\"%sl%u\" d=\"", l->faint ? "f" : "", style);
    for (int64_t i = 0; i < l->n; i += each) {
        double x = 0, y = 0, n = 0;
        for (int64_t k = i; k < i + each && k < l->n; k++) {
            x += isfinite(l->y[k]) ? l->x[k] : 0;
            y += isfinite(l->y[k]) ? l->y[k] : 0;
            n += isfinite(l->y[k]) ? 1 : 0;
        }
        if (n > 0) {
            ru_text_putf(t, "%s%.1f %.1f", open ? "L" : "M", place(rx, x / n, LEFT, WIDTH - RIGHT),
                         place(ry, y / n, top + HIGH, top));
        }
        open = n > 0;
    }
    ru_text_put(t, "\"/>\n");
    for (int64_t i = 0; l->marks && l->n <= POINTS_MAX && i < l->n; i++) {
        if (isfinite(l->y[i])) {
            mark(t, style, place(rx, l->x[i], LEFT, WIDTH - RIGHT),
                 place(ry, l->y[i], top + HIGH, top));
        }
    }
}

static void legend(ru_text *t, const ru_plot_panel *p, double top)
{
    enum { X = WIDTH - RIGHT + 14, ROWS_MAX = 11 };
    uint32_t row = 0;
    for (uint32_t k = 0; k < p->n && row < ROWS_MAX; k++) {
        const ru_plot_line *l = &p->lines[k];
        double y = top + 8 + 17.0 * (double)row;
        if (l->faint) {
            continue;
        }
        row++;
        ru_text_putf(t, "<path class=\"l%u\" d=\"M%d %.1fh24\"/>", l->style % STYLES, X, y);
        if (l->marks) {
            mark(t, l->style % STYLES, X + 12, y);
        }
        ru_text_putf(t, "<text class=\"tick\" x=\"%d\" y=\"%.1f\">", X + 30, y + 4);
        escape(t, l->name);
        ru_text_put(t, "</text>\n");
    }
}

/* l: lines, fl: pale lines behind them, m: marks. */
static const char style_sheet[] =
    "<style>\n"
    "svg{background:#fff;font:13px sans-serif}.ink,.tick{fill:#222}.tick{font-size:12px}\n"
    ".grid{stroke:#ddd}.frame{fill:none;stroke:#888}\n"
    "path[class^=l],path[class^=f]{fill:none;stroke-width:1.8;stroke-linejoin:round}\n"
    "path[class^=f]{stroke-width:1;opacity:.35}\n"
    ".l1{stroke-dasharray:7 3}.l2{stroke-dasharray:2 3}.l3{stroke-dasharray:9 3 2 3}\n"
    ".l4{stroke-dasharray:12 4}.l5{stroke-dasharray:4 2}\n"
    ".l0,.fl0{stroke:#0b61a4}.l1,.fl1{stroke:#c2410c}.l2,.fl2{stroke:#15803d}\n"
    ".l3,.fl3{stroke:#7e22ce}.l4,.fl4{stroke:#111}.l5,.fl5{stroke:#a16207}\n"
    ".m0{fill:#0b61a4}.m1{fill:#c2410c}.m2{fill:#15803d}.m3{fill:#7e22ce}.m4{fill:#111}\n"
    ".m5{fill:#a16207}\n"
    "@media (prefers-color-scheme:dark){svg{background:#16181d}.ink,.tick{fill:#e6e6e6}\n"
    ".grid{stroke:#33363d}.l0,.fl0{stroke:#6cb6ff}.l1,.fl1{stroke:#ffa657}\n"
    ".l2,.fl2{stroke:#7ee787}.l3,.fl3{stroke:#d2a8ff}.l4,.fl4{stroke:#eee}\n"
    ".l5,.fl5{stroke:#e3b341}.m0{fill:#6cb6ff}.m1{fill:#ffa657}.m2{fill:#7ee787}\n"
    ".m3{fill:#d2a8ff}.m4{fill:#eee}.m5{fill:#e3b341}}\n"
    "</style>\n";

void ru_plot_svg(const ru_plot_panel *panels, uint32_t n, const char *x_name, bool decades,
                 ru_text *out)
{
    range rx = {(double)INFINITY, (double)-INFINITY};
    RU_CHECK(n > 0);
    for (uint32_t p = 0; p < n; p++) {
        for (uint32_t k = 0; k < panels[p].n; k++) {
            for (int64_t i = 0; i < panels[p].lines[k].n; i++) {
                widen(&rx, panels[p].lines[k].x[i]);
            }
        }
    }
    rx = rx.low < rx.high ? rx : settled(rx);
    int height = TOP + (int)n * (HIGH + GAP) + 14;
    ru_text_putf(out,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
                 "height=\"%d\" role=\"img\">\n",
                 WIDTH, height, WIDTH, height);
    ru_text_put(out, style_sheet);
    for (uint32_t p = 0; p < n; p++) {
        double top = TOP + (double)p * (HIGH + GAP);
        range ry = {(double)INFINITY, (double)-INFINITY};
        for (uint32_t k = 0; k < panels[p].n; k++) {
            for (int64_t i = 0; i < panels[p].lines[k].n; i++) {
                widen(&ry, panels[p].lines[k].y[i]);
            }
        }
        ry = settled(ry);
        ru_text_putf(out, "<text class=\"ink\" x=\"%d\" y=\"%.1f\">", LEFT, top - 10);
        escape(out, panels[p].title);
        ru_text_put(out, "</text>\n");
        axis_y(out, ry, top);
        axis_x(out, rx, top, p + 1 == n ? x_name : NULL, decades);
        for (uint32_t k = 0; k < panels[p].n; k++) {
            line(out, &panels[p].lines[k], rx, ry, top);
        }
        ru_text_putf(out,
                     "<rect class=\"frame\" x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%d\"/>\n",
                     LEFT, top, WIDTH - RIGHT - LEFT, HIGH);
        legend(out, &panels[p], top);
    }
    ru_text_put(out, "</svg>\n");
}
