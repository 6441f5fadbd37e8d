/* SPDX-License-Identifier: Apache-2.0
 *
 * CIFAR-10 as PNG sheets: 1024 columns, one row per image, column p = pixel p in row-major order, 8-bit RGB; labels in
 * a JSON list. Turned once into the official binary layout, byte for byte, so that everything else has one format.
 *
 * libpng's simplified interface: no setjmp, and the size is known before any memory is taken for pixels.
 */
#include <stdlib.h>
#include <string.h>
#ifdef HDO_HAVE_PNG
#include <png.h>
#endif

#include "data/data_impl.h"

enum { PIXELS = 1024 };

static void skip_space(const char *text, size_t len, size_t *i) {
    while (*i < len && (text[*i] == ' ' || text[*i] == '\t' || text[*i] == '\n' || text[*i] == '\r')) (*i)++;
}

hdo_status hdo__cifar_labels_parse(const char *text, size_t len, uint8_t *label, size_t n, const char *what,
                                   hdo_error *e) {
    size_t i = 0;
    skip_space(text, len, &i);
    if (i == len || text[i] != '[') return hdo__fail(e, HDO_E_DATA, "'%s' is not a JSON list of labels", what);
    i++;
    for (size_t k = 0; k < n; k++) {
        skip_space(text, len, &i);
        if (i == len || text[i] < '0' || text[i] > '9') {
            return hdo__fail(e, HDO_E_DATA, "'%s': label %zu of %zu is missing or is not a digit", what, k + 1, n);
        }
        label[k] = (uint8_t)(text[i++] - '0');
        skip_space(text, len, &i);
        char want = k + 1 < n ? ',' : ']';
        if (i == len || text[i] != want) {
            return hdo__fail(e, HDO_E_DATA, "'%s': expected '%c' after label %zu of %zu", what, want, k + 1, n);
        }
        i++;
    }
    skip_space(text, len, &i);
    if (i != len) return hdo__fail(e, HDO_E_DATA, "'%s' goes on after its list of %zu labels", what, n);
    return HDO_OK;
}

hdo_status hdo__cifar_sheet_decode(const uint8_t *png, size_t len, const uint8_t *label, int rows, uint8_t *out,
                                   const char *what, hdo_error *e) {
#ifdef HDO_HAVE_PNG
    png_image im;
    memset(&im, 0, sizeof im);
    im.version = PNG_IMAGE_VERSION;
    if (!png_image_begin_read_from_memory(&im, png, len)) {
        return hdo__fail(e, HDO_E_DATA, "'%s' is not a readable PNG file: %s", what, im.message);
    }
    if (im.width != PIXELS || im.height != (png_uint_32)rows) {
        hdo_status st = hdo__fail(e, HDO_E_DATA, "'%s' is %ux%u; a sheet of %d images is %dx%d", what, im.width,
                                  im.height, rows, PIXELS, rows);
        png_image_free(&im);
        return st;
    }
    if (im.format != PNG_FORMAT_RGB) { /* 16 bits, grey or transparent: converting would change values */
        png_image_free(&im);
        return hdo__fail(e, HDO_E_DATA, "'%s' is not an 8-bit RGB picture", what);
    }
    uint8_t *rgb = malloc(PNG_IMAGE_SIZE(im));
    if (rgb == NULL) {
        png_image_free(&im);
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for the pixels of '%s'", what);
    }
    if (!png_image_finish_read(&im, NULL, rgb, 0, NULL)) {
        free(rgb);
        return hdo__fail(e, HDO_E_DATA, "'%s' is damaged: %s", what, im.message);
    }
    for (int i = 0; i < rows; i++) {
        const uint8_t *src = rgb + (size_t)i * 3 * PIXELS;
        uint8_t *dst = out + (size_t)i * HDO_CIFAR_ROW;
        *dst++ = label[i];
        for (int p = 0; p < PIXELS; p++) {
            dst[p] = src[3 * p];
            dst[p + PIXELS] = src[3 * p + 1];
            dst[p + 2 * PIXELS] = src[3 * p + 2];
        }
    }
    free(rgb);
    return HDO_OK;
#else
    (void)png, (void)len, (void)label, (void)rows, (void)out;
    return hdo__fail(e, HDO_E_UNSUPPORTED,
                     "'%s': this build has no libpng; use the binary batches (data_batch_1.bin ...)", what);
#endif
}
