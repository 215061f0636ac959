#include "ritz_write.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void ritz_write_csv(FILE *out, const ritz_values *v)
{
    for (int64_t j = 0; j < v->dim; j++)
        fprintf(out, "x%lld,", (long long)j + 1);
    fputs("u", out);
    for (int64_t j = 0; j < v->dim; j++)
        fprintf(out, ",du_dx%lld", (long long)j + 1);
    fputs(v->exact ? ",exact,error\n" : "\n", out);
    for (int64_t i = 0; i < v->n; i++) {
        for (int64_t j = 0; j < v->dim; j++)
            fprintf(out, "%.17g,", v->x[i * v->dim + j]);
        fprintf(out, "%.17g", v->u[i]);
        for (int64_t j = 0; j < v->dim; j++)
            fprintf(out, ",%.17g", v->gradient[i * v->dim + j]);
        if (v->exact)
            fprintf(out, ",%.17g,%.17g", v->exact[i], v->u[i] - v->exact[i]);
        fputc('\n', out);
    }
}

/* ---- .npz: an archive of arrays, which are not compressed ---- */

enum { ENTRIES_MOST = 5, HEADER_BYTES = 128 };

typedef struct entry { const char *name; uint32_t check, bytes, at; } entry;
typedef struct archive { FILE *out; int n; uint32_t at; entry entries[ENTRIES_MOST]; } archive;

static uint32_t crc(uint32_t sum, const void *data, size_t n)
{
    const unsigned char *bytes = data;
    sum = ~sum;
    for (size_t i = 0; i < n; i++) {
        sum ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            sum = sum >> 1 ^ (sum & 1 ? 0xedb88320u : 0);
    }
    return ~sum;
}

/* Little endian, as the machine is. */
static void put(archive *a, uint32_t value, int bytes)
{
    fwrite(&value, (size_t)bytes, 1, a->out);
    a->at += (uint32_t)bytes;
}

/* The fields that a file and its entry in the directory have in common. */
static void put_fields(archive *a, const entry *one)
{
    put(a, 20, 2), put(a, 0, 2), put(a, 0, 2), put(a, 0, 2), put(a, 0x21, 2); /* version, flags, stored, 1980-01-01 */
    put(a, one->check, 4), put(a, one->bytes, 4), put(a, one->bytes, 4), put(a, (uint32_t)strlen(one->name), 2), put(a, 0, 2);
}

static void put_array(archive *a, const char *name, const double *data, int64_t n, const char *shape)
{
    char header[HEADER_BYTES];
    memset(header, ' ', sizeof header);
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10); /* 118 bytes follow */
    const int used = snprintf(header + 10, sizeof header - 10, "{'descr': '<f8', 'fortran_order': False, 'shape': (%s), }", shape);
    header[10 + used] = ' ';
    header[HEADER_BYTES - 1] = '\n';
    entry *one = &a->entries[a->n++];
    const size_t bytes = (size_t)n * sizeof *data;
    *one = (entry){name, crc(crc(0, header, sizeof header), data, bytes), (uint32_t)(sizeof header + bytes), a->at};
    put(a, 0x04034b50, 4);
    put_fields(a, one);
    fwrite(name, strlen(name), 1, a->out);
    fwrite(header, sizeof header, 1, a->out);
    fwrite(data, bytes, 1, a->out);
    a->at += (uint32_t)strlen(name) + one->bytes;
}

static void end_archive(archive *a)
{
    const uint32_t begin = a->at;
    for (int i = 0; i < a->n; i++) {
        put(a, 0x02014b50, 4), put(a, 20, 2);
        put_fields(a, &a->entries[i]);
        put(a, 0, 2), put(a, 0, 2), put(a, 0, 2), put(a, 0, 4), put(a, a->entries[i].at, 4);
        fwrite(a->entries[i].name, strlen(a->entries[i].name), 1, a->out);
        a->at += (uint32_t)strlen(a->entries[i].name);
    }
    const uint32_t bytes = a->at - begin;
    put(a, 0x06054b50, 4), put(a, 0, 4), put(a, (uint32_t)a->n, 2), put(a, (uint32_t)a->n, 2),
    put(a, bytes, 4), put(a, begin, 4), put(a, 0, 2);
}

static int write_npz(FILE *out, const ritz_values *v, pt_error *e)
{
    archive a = {.out = out};
    char scalar[96] = "", vector[112];
    double *error = v->exact ? malloc((size_t)v->n * sizeof *error + 1) : NULL;
    if ((double)v->n * (double)(2 * v->dim + 3) * 8 > 4e9)
        return pt_fail(e, PT_USAGE, "a .npz file of more than 4 GB is not possible: evaluate fewer points");
    if (v->exact && !error)
        return pt_fail(e, PT_FAILED, "out of memory");
    for (int64_t j = 0; j < (v->grid && v->dim <= 3 ? v->dim : 1); j++)
        snprintf(scalar + strlen(scalar), sizeof scalar - strlen(scalar), "%lld, ", (long long)(v->grid && v->dim <= 3 ? v->grid : v->n));
    snprintf(vector, sizeof vector, "%s%lld, ", scalar, (long long)v->dim);
    put_array(&a, "x.npy", v->x, v->n * v->dim, vector);
    put_array(&a, "u.npy", v->u, v->n, scalar);
    put_array(&a, "gradient.npy", v->gradient, v->n * v->dim, vector);
    for (int64_t i = 0; i < v->n && v->exact; i++)
        error[i] = v->u[i] - v->exact[i];
    if (v->exact) {
        put_array(&a, "exact.npy", v->exact, v->n, scalar);
        put_array(&a, "error.npy", error, v->n, scalar);
    }
    end_archive(&a);
    free(error);
    return 0;
}

/* ---- .vtk: a regular grid, in which the first axis runs fastest ---- */

/* The point of a C array that is number i of the file. */
static int64_t place(const ritz_values *v, int64_t i)
{
    int64_t at = 0;
    for (int64_t j = 0; j < v->dim; j++, i /= v->grid) {
        int64_t step = 1;
        for (int64_t k = j + 1; k < v->dim; k++)
            step *= v->grid;
        at += i % v->grid * step;
    }
    return at;
}

static void put_scalars(FILE *out, const ritz_values *v, const char *name, const double *data, const double *less)
{
    fprintf(out, "SCALARS %s double 1\nLOOKUP_TABLE default\n", name);
    for (int64_t i = 0; i < v->n; i++) {
        const int64_t at = place(v, i);
        fprintf(out, "%.9g\n", data[at] - (less ? less[at] : 0));
    }
}

static int write_vtk(FILE *out, const ritz_values *v, pt_error *e)
{
    double spacing[3] = {1, 1, 1}, origin[3] = {0};
    long long sides[3] = {1, 1, 1};
    if (!v->grid || v->dim > 3)
        return pt_fail(e, PT_USAGE, "a .vtk file holds a grid of 1 to 3 dimensions: give --grid%s", v->dim > 3 ? ", or write .npz" : "");
    for (int64_t j = 0; j < v->dim; j++) {
        sides[j] = v->grid;
        origin[j] = v->lower[j];
        spacing[j] = (v->upper[j] - v->lower[j]) / (double)(v->grid - 1);
    }
    fprintf(out, "# vtk DataFile Version 3.0\nDeep Ritz\nASCII\nDATASET STRUCTURED_POINTS\nDIMENSIONS %lld %lld %lld\nORIGIN %.17g "
                 "%.17g %.17g\nSPACING %.17g %.17g %.17g\nPOINT_DATA "
                 "%lld\n", sides[0], sides[1], sides[2], origin[0], origin[1], origin[2], spacing[0],
            spacing[1], spacing[2], (long long)v->n);
    put_scalars(out, v, "u", v->u, NULL);
    if (v->exact) {
        put_scalars(out, v, "exact", v->exact, NULL);
        put_scalars(out, v, "error", v->u, v->exact);
    }
    fputs("VECTORS gradient double\n", out);
    for (int64_t i = 0; i < v->n; i++) {
        const double *g = v->gradient + place(v, i) * v->dim;
        fprintf(out, "%.9g %.9g %.9g\n", g[0], v->dim > 1 ? g[1] : 0, v->dim > 2 ? g[2] : 0);
    }
    return 0;
}

bool ritz_ends_in(const char *path, const char *ending)
{
    const char *end = strrchr(path, '.');
    return end && !strcmp(end, ending);
}

int ritz_write_file(const char *path, const ritz_values *v, pt_error *e)
{
    const bool csv = ritz_ends_in(path, ".csv"), npz = ritz_ends_in(path, ".npz"), vtk = ritz_ends_in(path, ".vtk");
    if (!csv && !npz && !vtk)
        return pt_fail(e, PT_USAGE, "--write %.300s: the name must end in .csv, .npz, .vtk or .onnx", path);
    FILE *out = fopen(path, "wbe");
    if (!out)
        return pt_fail_errno(e, PT_FAILED, "%s cannot be written", path);
    int failed = npz ? write_npz(out, v, e) : vtk ? write_vtk(out, v, e) : 0;
    if (csv)
        ritz_write_csv(out, v);
    const bool lost = ferror(out), closed = !fclose(out);
    if (!failed && (lost || !closed))
        failed = pt_fail_errno(e, PT_FAILED, "%s cannot be written", path);
    if (failed)
        remove(path);
    return failed;
}
