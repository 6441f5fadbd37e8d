/* SPDX-License-Identifier: Apache-2.0
 *
 * A contact sheet: the first images of a set in a grid, each with its label below, as PNG. To see with one's own eyes
 * that images are upright, colours in order and labels right.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef HDO_HAVE_PNG
#include <png.h>
#endif

#include "base/file.h"
#include "data/data_impl.h"
#include "hdo/experimental/data.h"

#ifdef HDO_HAVE_PNG

enum { GLYPH_W = 5, GLYPH_H = 7, GAP = 6, LINE = GLYPH_H + 4, SIDE_MIN = 56, GREY = 24 };

/* Printable ASCII from space to '~', five columns each, lowest bit on top. */
static const uint8_t font[95][GLYPH_W] = {
    {0x00, 0x00, 0x00, 0x00, 0x00}, {0x00, 0x00, 0x5f, 0x00, 0x00}, {0x00, 0x07, 0x00, 0x07, 0x00},
    {0x14, 0x7f, 0x14, 0x7f, 0x14}, {0x24, 0x2a, 0x7f, 0x2a, 0x12}, {0x23, 0x13, 0x08, 0x64, 0x62},
    {0x36, 0x49, 0x55, 0x22, 0x50}, {0x00, 0x05, 0x03, 0x00, 0x00}, {0x00, 0x1c, 0x22, 0x41, 0x00},
    {0x00, 0x41, 0x22, 0x1c, 0x00}, {0x14, 0x08, 0x3e, 0x08, 0x14}, {0x08, 0x08, 0x3e, 0x08, 0x08},
    {0x00, 0x50, 0x30, 0x00, 0x00}, {0x08, 0x08, 0x08, 0x08, 0x08}, {0x00, 0x60, 0x60, 0x00, 0x00},
    {0x20, 0x10, 0x08, 0x04, 0x02}, {0x3e, 0x51, 0x49, 0x45, 0x3e}, {0x00, 0x42, 0x7f, 0x40, 0x00},
    {0x42, 0x61, 0x51, 0x49, 0x46}, {0x21, 0x41, 0x45, 0x4b, 0x31}, {0x18, 0x14, 0x12, 0x7f, 0x10},
    {0x27, 0x45, 0x45, 0x45, 0x39}, {0x3c, 0x4a, 0x49, 0x49, 0x30}, {0x01, 0x71, 0x09, 0x05, 0x03},
    {0x36, 0x49, 0x49, 0x49, 0x36}, {0x06, 0x49, 0x49, 0x29, 0x1e}, {0x00, 0x36, 0x36, 0x00, 0x00},
    {0x00, 0x56, 0x36, 0x00, 0x00}, {0x08, 0x14, 0x22, 0x41, 0x00}, {0x14, 0x14, 0x14, 0x14, 0x14},
    {0x00, 0x41, 0x22, 0x14, 0x08}, {0x02, 0x01, 0x51, 0x09, 0x06}, {0x32, 0x49, 0x79, 0x41, 0x3e},
    {0x7e, 0x11, 0x11, 0x11, 0x7e}, {0x7f, 0x49, 0x49, 0x49, 0x36}, {0x3e, 0x41, 0x41, 0x41, 0x22},
    {0x7f, 0x41, 0x41, 0x22, 0x1c}, {0x7f, 0x49, 0x49, 0x49, 0x41}, {0x7f, 0x09, 0x09, 0x09, 0x01},
    {0x3e, 0x41, 0x49, 0x49, 0x7a}, {0x7f, 0x08, 0x08, 0x08, 0x7f}, {0x00, 0x41, 0x7f, 0x41, 0x00},
    {0x20, 0x40, 0x41, 0x3f, 0x01}, {0x7f, 0x08, 0x14, 0x22, 0x41}, {0x7f, 0x40, 0x40, 0x40, 0x40},
    {0x7f, 0x02, 0x0c, 0x02, 0x7f}, {0x7f, 0x04, 0x08, 0x10, 0x7f}, {0x3e, 0x41, 0x41, 0x41, 0x3e},
    {0x7f, 0x09, 0x09, 0x09, 0x06}, {0x3e, 0x41, 0x51, 0x21, 0x5e}, {0x7f, 0x09, 0x19, 0x29, 0x46},
    {0x46, 0x49, 0x49, 0x49, 0x31}, {0x01, 0x01, 0x7f, 0x01, 0x01}, {0x3f, 0x40, 0x40, 0x40, 0x3f},
    {0x1f, 0x20, 0x40, 0x20, 0x1f}, {0x3f, 0x40, 0x38, 0x40, 0x3f}, {0x63, 0x14, 0x08, 0x14, 0x63},
    {0x07, 0x08, 0x70, 0x08, 0x07}, {0x61, 0x51, 0x49, 0x45, 0x43}, {0x00, 0x7f, 0x41, 0x41, 0x00},
    {0x02, 0x04, 0x08, 0x10, 0x20}, {0x00, 0x41, 0x41, 0x7f, 0x00}, {0x04, 0x02, 0x01, 0x02, 0x04},
    {0x40, 0x40, 0x40, 0x40, 0x40}, {0x00, 0x01, 0x02, 0x04, 0x00}, {0x20, 0x54, 0x54, 0x54, 0x78},
    {0x7f, 0x48, 0x44, 0x44, 0x38}, {0x38, 0x44, 0x44, 0x44, 0x20}, {0x38, 0x44, 0x44, 0x48, 0x7f},
    {0x38, 0x54, 0x54, 0x54, 0x18}, {0x08, 0x7e, 0x09, 0x01, 0x02}, {0x0c, 0x52, 0x52, 0x52, 0x3e},
    {0x7f, 0x08, 0x04, 0x04, 0x78}, {0x00, 0x44, 0x7d, 0x40, 0x00}, {0x20, 0x40, 0x44, 0x3d, 0x00},
    {0x7f, 0x10, 0x28, 0x44, 0x00}, {0x00, 0x41, 0x7f, 0x40, 0x00}, {0x7c, 0x04, 0x18, 0x04, 0x78},
    {0x7c, 0x08, 0x04, 0x04, 0x78}, {0x38, 0x44, 0x44, 0x44, 0x38}, {0x7c, 0x14, 0x14, 0x14, 0x08},
    {0x08, 0x14, 0x14, 0x18, 0x7c}, {0x7c, 0x08, 0x04, 0x04, 0x08}, {0x48, 0x54, 0x54, 0x54, 0x20},
    {0x04, 0x3f, 0x44, 0x40, 0x20}, {0x3c, 0x40, 0x40, 0x20, 0x7c}, {0x1c, 0x20, 0x40, 0x20, 0x1c},
    {0x3c, 0x40, 0x30, 0x40, 0x3c}, {0x44, 0x28, 0x10, 0x28, 0x44}, {0x0c, 0x50, 0x50, 0x50, 0x3c},
    {0x44, 0x64, 0x54, 0x4c, 0x44}, {0x00, 0x08, 0x36, 0x41, 0x00}, {0x00, 0x00, 0x7f, 0x00, 0x00},
    {0x00, 0x41, 0x36, 0x08, 0x00}, {0x08, 0x04, 0x08, 0x10, 0x08}};

typedef struct canvas {
    int w, h;
    uint8_t *rgb; /* (h, w, 3) */
} canvas;

static void set_pixel(canvas *c, int x, int y, uint8_t r, uint8_t g, uint8_t b) {
    if (x < 0 || y < 0 || x >= c->w || y >= c->h) return;
    uint8_t *p = c->rgb + 3 * ((size_t)y * (size_t)c->w + (size_t)x);
    p[0] = r, p[1] = g, p[2] = b;
}

/* Text centred on x, cut at width. */
static void draw_text(canvas *c, int x, int y, int width, const char *s) {
    int n = (int)strlen(s), fit = width / (GLYPH_W + 1);
    if (n > fit) n = fit;
    x -= (n * (GLYPH_W + 1) - 1) / 2;
    for (int k = 0; k < n; k++, x += GLYPH_W + 1) {
        const uint8_t *g = font[s[k] >= ' ' && s[k] <= '~' ? s[k] - ' ' : '?' - ' '];
        for (int i = 0; i < GLYPH_W; i++) {
            for (int j = 0; j < GLYPH_H; j++) {
                if (g[i] >> j & 1) set_pixel(c, x + i, y + j, 230, 230, 230);
            }
        }
    }
}

static uint8_t level(float v, float lo, float hi) {
    float t = (v - lo) / (hi - lo) * 255.0f + 0.5f;
    return (uint8_t)(t < 0 ? 0 : t > 255 ? 255 : t);
}

typedef struct look { /* how samples become pixels */
    int zoom;
    float lo, hi; /* black, white */
} look;

static void draw_image(canvas *c, int x0, int y0, const look *k, const int shape[3], const float *px) {
    const int zoom = k->zoom;
    const float lo = k->lo, hi = k->hi;
    const int plane = shape[1] * shape[2];
    for (int y = 0; y < shape[1] * zoom; y++) {
        for (int x = 0; x < shape[2] * zoom; x++) {
            const float *p = px + (y / zoom) * shape[2] + x / zoom;
            uint8_t r = level(p[0], lo, hi), g = r, b = r;
            if (shape[0] >= 3) g = level(p[plane], lo, hi), b = level(p[2 * plane], lo, hi);
            set_pixel(c, x0 + x, y0 + y, r, g, b);
        }
    }
}

typedef struct samples {
    const char *data; /* name of the data set */
    int n;
    const float *in;      /* (n, n_in) */
    const int32_t *label; /* (n) */
} samples;

static hdo_status draw(canvas *c, const hdo_dataset *ds, const samples *s, int cols, hdo_error *e) {
    const int n = s->n;
    int side = ds->shape[1] > ds->shape[2] ? ds->shape[1] : ds->shape[2];
    look k = {.zoom = side < SIDE_MIN ? (SIDE_MIN + side - 1) / side : 1, .lo = 0, .hi = 1};
    const int cell_w = ds->shape[2] * k.zoom + GAP, cell_h = ds->shape[1] * k.zoom + LINE + GAP;
    const int rows = (n + cols - 1) / cols;
    *c = (canvas){.w = cols * cell_w + GAP, .h = rows * cell_h + GAP};
    c->rgb = malloc(3 * (size_t)c->w * (size_t)c->h);
    if (c->rgb == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for a picture of %dx%d", c->w, c->h);
    memset(c->rgb, GREY, 3 * (size_t)c->w * (size_t)c->h);
    for (size_t i = 0; i < (size_t)n * (size_t)ds->n_in;
         i++) { /* bytes were scaled to [0, 1]; floats may be anything */
        k.lo = fminf(k.lo, s->in[i]);
        k.hi = fmaxf(k.hi, s->in[i]);
    }
    for (int i = 0; i < n; i++) {
        const int x = GAP + i % cols * cell_w, y = GAP + i / cols * cell_h;
        char number[16];
        snprintf(number, sizeof number, "%d", s->label[i]);
        const char *name = hdo_data_class_name(s->data, s->label[i]);
        draw_image(c, x, y, &k, ds->shape, s->in + (size_t)i * (size_t)ds->n_in);
        draw_text(c, x + (cell_w - GAP) / 2, y + ds->shape[1] * k.zoom + 3, cell_w, name != NULL ? name : number);
    }
    return HDO_OK;
}

static hdo_status write_png(const canvas *c, const char *path, hdo_error *e) {
    png_image im;
    memset(&im, 0, sizeof im);
    im.version = PNG_IMAGE_VERSION;
    im.width = (png_uint_32)c->w;
    im.height = (png_uint_32)c->h;
    im.format = PNG_FORMAT_RGB;
    png_alloc_size_t len = 0; /* into memory first, so that the file is whole or absent */
    uint8_t *png = NULL;
    hdo_status st = HDO_OK;
    if (!png_image_write_to_memory(&im, NULL, &len, 0, c->rgb, 0, NULL) || (png = malloc(len)) == NULL ||
        !png_image_write_to_memory(&im, png, &len, 0, c->rgb, 0, NULL)) {
        st = hdo__fail(e, HDO_E_MEMORY, "cannot make the picture '%s': %s", path, im.message);
    }
    if (st == HDO_OK) st = hdo__file_write(path, png, len, e);
    free(png);
    return st;
}

hdo_status hdo_data_sheet(const hdo_data_config *c, bool val, int rows, int cols, const char *path, hdo_error *e) {
    if (rows < 1 || cols < 1 || rows > 100 || cols > 100) {
        return hdo__fail(e, HDO_E_CONFIG, "a sheet of %d rows and %d columns; 1 .. 100 of each are possible", rows,
                         cols);
    }
    hdo_data_config d = *c;
    d.scaling = (hdo_choice){.id = HDO_SCALING_UNIT};
    hdo_dataset *both[2];
    hdo_status st = hdo__data_open(&d, &both[0], &both[1], e);
    if (st != HDO_OK) return st;
    const hdo_dataset *ds = both[val];
    canvas cv = {0};
    float *in = NULL;
    int64_t *idx = NULL;
    int32_t *label = NULL;
    if (ds == NULL || ds->vocab > 0 || ds->shape[1] < 2 || ds->shape[1] > 1024 || ds->shape[2] > 1024 ||
        (ds->shape[0] != 1 && ds->shape[0] != 3 && ds->shape[0] != 4)) {
        st = hdo__fail(e, HDO_E_UNSUPPORTED, "samples of %s are not pictures", c->name);
        goto out;
    }
    const int n = ds->count < (int64_t)rows * cols ? (int)ds->count : rows * cols;
    in = malloc((size_t)n * (size_t)ds->n_in * sizeof *in);
    idx = malloc((size_t)n * sizeof *idx);
    label = malloc((size_t)n * sizeof *label);
    if (in == NULL || idx == NULL || label == NULL) {
        st = hdo__fail(e, HDO_E_MEMORY, "out of memory for %d images", n);
        goto out;
    }
    for (int k = 0; k < n; k++) idx[k] = k;
    hdo__dataset_gather(ds, idx, n, NULL, in, NULL, label);
    st = draw(&cv, ds, &(samples){c->name, n, in, label}, cols, e);
    if (st == HDO_OK) st = write_png(&cv, path, e);
out:
    free(cv.rgb);
    free(in);
    free(idx);
    free(label);
    hdo__dataset_destroy(both[0]);
    hdo__dataset_destroy(both[1]);
    return st;
}

#else

hdo_status hdo_data_sheet(const hdo_data_config *c, bool val, int rows, int cols, const char *path, hdo_error *e) {
    (void)c, (void)val, (void)rows, (void)cols, (void)path;
    return hdo__fail(e, HDO_E_UNSUPPORTED, "this build has no libpng and cannot draw pictures");
}

#endif
