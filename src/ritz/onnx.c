/* onnx.c - the network as an ONNX file, opset 13: x (points, dim) -> u (points). With hard faces u is the network times the factor of
 * ansatz.h. The file is a protocol buffer (onnx.proto): messages of fields, each a key, (number << 3 | type), and a value; of a message
 * inside another one its length comes first.
 */
#include "ritz/ansatz.h"
#include "ritz/solver.h"

#include <stdlib.h>
#include <string.h>

enum { IR_VERSION = 7, OPSET = 13, VARINT = 0, LENGTH = 2, ONNX_FLOAT = 1, ONNX_INT64 = 7, ONNX_DOUBLE = 11 };
static const uint64_t most_bytes = (UINT64_C(1) << 31) - (1 << 20); /* of a protocol buffer */

/* ---- protocol buffers ---- */

typedef struct message { char *at; size_t n, room; bool lost; } message;

static void put(message *m, const void *data, size_t n)
{
    if (m->n + n > m->room) {
        const size_t room = 2 * (m->n + n);
        char *more = m->lost ? NULL : realloc(m->at, room);
        m->lost = !more;
        if (!more)
            return;
        m->at = more;
        m->room = room;
    }
    memcpy(m->at + m->n, data, n);
    m->n += n;
}

static void put_varint(message *m, uint64_t value)
{
    unsigned char byte;
    for (; value > 127; value >>= 7)
        byte = (unsigned char)(value | 128), put(m, &byte, 1);
    byte = (unsigned char)value;
    put(m, &byte, 1);
}

static void put_int(message *m, int field, int64_t value)
{
    put_varint(m, (uint64_t)field << 3 | VARINT);
    put_varint(m, (uint64_t)value);
}

static void put_bytes(message *m, int field, const void *data, size_t n)
{
    put_varint(m, (uint64_t)field << 3 | LENGTH);
    put_varint(m, n);
    put(m, data, n);
}

static void put_text(message *m, int field, const char *text) { put_bytes(m, field, text, strlen(text)); }

static void put_message(message *m, int field, message *inner)
{
    put_bytes(m, field, inner->at, inner->n);
    m->lost |= inner->lost;
    free(inner->at);
}

/* ---- the parts of a graph; numbers: the fields of onnx.proto ---- */

typedef struct graph {
    message nodes, tensors;
    int named;         /* results so far */
    int type;          /* of the network's values */
    char now[24];      /* name of the last result */
} graph;

static void add_tensor(graph *g, const char *name, int type, int dims_n, const int64_t *dims, const void *data, size_t bytes)
{
    message t = {0};
    for (int i = 0; i < dims_n; i++)
        put_int(&t, 1, dims[i]);
    put_int(&t, 2, type);
    put_text(&t, 8, name);
    put_bytes(&t, 9, data, bytes);
    put_message(&g->tensors, 5, &t);
}

static void put_attribute(message *node, const char *name, int64_t value)
{
    message a = {0};
    put_text(&a, 1, name);
    put_int(&a, 3, value);
    put_int(&a, 20, 2); /* an integer */
    put_message(node, 5, &a);
}

/* A node whose first input is the last result, unless `from` is given; its output becomes that. attribute may be NULL. */
static void add_node(graph *g, const char *op, const char *from, const char *second, const char *third, const char *attribute)
{
    message n = {0};
    char out[sizeof g->now];
    snprintf(out, sizeof out, "t%d", ++g->named);
    put_text(&n, 1, from ? from : g->now);
    if (second)
        put_text(&n, 1, second);
    if (third)
        put_text(&n, 1, third);
    put_text(&n, 2, out);
    put_text(&n, 4, op);
    if (attribute)
        put_attribute(&n, attribute, 1);
    put_message(&g->nodes, 1, &n);
    memcpy(g->now, out, sizeof out);
}

/* Field `field` of the graph: a tensor (points, cols), or (points) without cols. */
static void put_value(message *graph, int field, const char *name, int type, int64_t cols)
{
    message value = {0}, types = {0}, tensor = {0}, shape = {0}, points = {0}, columns = {0};
    put_text(&points, 2, "points");
    put_message(&shape, 1, &points);
    if (cols) {
        put_int(&columns, 1, cols);
        put_message(&shape, 1, &columns);
    }
    put_int(&tensor, 1, type);
    put_message(&tensor, 2, &shape);
    put_message(&types, 1, &tensor);
    put_text(&value, 1, name);
    put_message(&value, 2, &types);
    put_message(graph, field, &value);
}

/* ---- the network ---- */

/* relu(z) + log(1 + exp(-|z|)): onnxruntime's own Softplus knows no fp64. */
static void add_softplus(graph *g)
{
    static const char *const ops[] = {"Abs", "Neg", "Exp"};
    char z[sizeof g->now], s[sizeof g->now];
    memcpy(z, g->now, sizeof z);
    add_node(g, "Relu", NULL, NULL, NULL, NULL);
    memcpy(s, g->now, sizeof s);
    for (int i = 0; i < 3; i++)
        add_node(g, ops[i], i ? NULL : z, NULL, NULL, NULL);
    add_node(g, "Add", NULL, "one", NULL, NULL);
    add_node(g, "Log", NULL, NULL, NULL, NULL);
    add_node(g, "Add", NULL, s, NULL, NULL);
}

static void add_activation(graph *g, jet_kind kind)
{
    char z[sizeof g->now], s[sizeof g->now];
    static const char *const ops[JET_KINDS] = {"Tanh", "Tanh", "Relu", NULL, "Sin", "Sigmoid"};
    if (kind == JET_SOFTPLUS) {
        add_softplus(g);
        return;
    }
    memcpy(z, g->now, sizeof z);
    add_node(g, ops[kind], NULL, NULL, NULL, NULL);
    memcpy(s, g->now, sizeof s);
    if (kind == JET_SILU)
        add_node(g, "Mul", NULL, z, NULL, NULL);
    for (int i = 0; i < 2 && (kind == JET_TANH3 || kind == JET_RELU3); i++)
        add_node(g, "Mul", NULL, s, NULL, NULL);
}

/* values: W and then the bias. residual: the result that is added, if the stage has one. */
static void add_stage(graph *g, const pt_ritz *ritz, const ritz_stage *s, const char *values, const char *residual)
{
    const size_t each = dtype_bytes(ritz->net.type), weights = (size_t)(s->rows * s->cols) * each;
    char weight[48], bias[48];
    snprintf(weight, sizeof weight, "%s.weight", s->name);
    snprintf(bias, sizeof bias, "%s.bias", s->name);
    add_tensor(g, weight, g->type, 2, (const int64_t[]){s->rows, s->cols}, values, weights);
    add_tensor(g, bias, g->type, 1, &s->rows, values + weights, (size_t)s->rows * each);
    add_node(g, "Gemm", NULL, weight, bias, "transB");
    if (s->activated)
        add_activation(g, ritz->net.activation);
    if (s->residual >= 0)
        add_node(g, "Add", NULL, residual, NULL, NULL);
}

static void add_vector(graph *g, const char *name, const double *values, int64_t n)
{
    float *single = calloc((size_t)n, sizeof *single);
    g->tensors.lost |= !single;
    for (int64_t i = 0; single && i < n; i++)
        single[i] = (float)values[i];
    if (single)
        add_tensor(g, name, g->type, 1, &n, g->type == ONNX_DOUBLE ? (const void *)values : single,
                   (size_t)n * (g->type == ONNX_DOUBLE ? sizeof *values : sizeof *single));
    free(single);
}

/* x padded with zeros to the width of the first block. */
static void add_padding(graph *g, const pt_ritz *ritz)
{
    const int64_t pads[4] = {0, 0, 0, ritz->net.input - ritz->net.dim}, four = 4;
    add_tensor(g, "pads", ONNX_INT64, 1, &four, pads, sizeof pads);
    add_node(g, "Pad", NULL, "pads", NULL, NULL);
}

/* The network's result times a product over the axes of c0 + s (c1 + s c2), where s goes from 0 to 1. */
static int add_factor(graph *g, const pt_ritz *ritz, pt_error *e)
{
    const int64_t dim = ritz->net.dim;
    static const char *const names[] = {"lower", "scale", "c0", "c1", "c2"};
    char network[sizeof g->now], axis[sizeof g->now], factor[sizeof g->now];
    double *v = calloc((size_t)(5 * dim), sizeof *v);
    if (!v)
        return pt_fail(e, PT_FAILED, "out of memory");
    for (int64_t j = 0; j < dim; j++) {
        const bool low = domain_boundary(&ritz->problem.is, 2 * j) == PT_RITZ_HARD;
        const bool high = domain_boundary(&ritz->problem.is, 2 * j + 1) == PT_RITZ_HARD;
        v[j] = ritz->problem.is.lower[j];
        v[dim + j] = 1 / (ritz->problem.is.upper[j] - ritz->problem.is.lower[j]);
        v[2 * dim + j] = !low;
        v[3 * dim + j] = low && high ? 4 : low - high;
        v[4 * dim + j] = low && high ? -4 : 0;
    }
    for (int k = 0; k < 5; k++)
        add_vector(g, names[k], v + k * dim, dim);
    free(v);
    memcpy(network, g->now, sizeof network);
    add_node(g, "Sub", "x", "lower", NULL, NULL);
    add_node(g, "Mul", NULL, "scale", NULL, NULL);
    memcpy(axis, g->now, sizeof axis);
    add_node(g, "Mul", NULL, "c2", NULL, NULL);
    add_node(g, "Add", NULL, "c1", NULL, NULL);
    add_node(g, "Mul", NULL, axis, NULL, NULL);
    add_node(g, "Add", NULL, "c0", NULL, NULL);
    memcpy(factor, g->now, sizeof factor);
    for (int64_t j = 0; j < dim; j++) {
        char index[40];
        if (domain_boundary(&ritz->problem.is, 2 * j) != PT_RITZ_HARD && domain_boundary(&ritz->problem.is, 2 * j + 1) != PT_RITZ_HARD)
            continue;
        snprintf(index, sizeof index, "axis %lld", (long long)j);
        add_tensor(g, index, ONNX_INT64, 0, NULL, &j, sizeof j);
        add_node(g, "Gather", factor, index, NULL, "axis");
        add_node(g, "Mul", NULL, network, NULL, NULL);
        memcpy(network, g->now, sizeof network);
    }
    return 0;
}

static int add_network(graph *g, pt_ritz *ritz, pt_error *e)
{
    const int64_t one = 1;
    char inputs[2][sizeof g->now]; /* of this stage and of the one before */
    int failed = 0;
    snprintf(g->now, sizeof g->now, "x");
    if (ritz->net.direct && ritz->net.input > ritz->net.dim)
        add_padding(g, ritz);
    for (int i = 0; i < ritz->net.stages_n && !failed; i++) {
        const ritz_stage *s = &ritz->net.stages[i];
        const ritz_chunk *c = &ritz->space.chunks[ritz->space.chunk_of_stage[i]];
        if (i == c->stage0)
            failed = ritz_slab(ritz, OBJECT_WEIGHTS, 0, ritz->space.chunk_of_stage[i], true, e);
        memcpy(inputs[i % 2], g->now, sizeof g->now);
        add_stage(g, ritz, s, ritz->staging + (uint64_t)(s->weight_at - c->value0) * dtype_bytes(ritz->net.type), inputs[!(i % 2)]);
    }
    if (ritz->net.activation == JET_SOFTPLUS)
        add_vector(g, "one", (const double[]){1}, 1);
    add_tensor(g, "columns", ONNX_INT64, 1, &one, &one, sizeof one);
    add_node(g, "Squeeze", NULL, "columns", NULL, NULL);
    return failed || !ansatz_is_hard(&ritz->problem) ? failed : add_factor(g, ritz, e);
}

/* ---- the file ---- */

/* A ModelProto around the graph, whose last result becomes u. */
static void put_model(message *model, graph *g, int64_t dim)
{
    message all = {0}, opset = {0}, last = {0};
    put_text(&last, 1, g->now);
    put_text(&last, 2, "u");
    put_text(&last, 4, "Identity");
    put(&all, g->nodes.at, g->nodes.n);
    put_message(&all, 1, &last);
    put_text(&all, 2, "u");
    put(&all, g->tensors.at, g->tensors.n);
    put_value(&all, 11, "x", g->type, dim);
    put_value(&all, 12, "u", g->type, 0);
    all.lost |= g->nodes.lost || g->tensors.lost;
    put_text(&opset, 1, "");
    put_int(&opset, 2, OPSET);
    put_int(model, 1, IR_VERSION);
    put_text(model, 2, "ProTrain");
    put_message(model, 7, &all);
    put_message(model, 8, &opset);
}

static int check(const pt_ritz *ritz, pt_error *e)
{
    const uint64_t bytes = (uint64_t)ritz->net.params * dtype_bytes(ritz->net.type);
    if (ansatz_has_hard_holes(&ritz->problem))
        return pt_fail(e, PT_USAGE, "%s: a hard hole's factor cannot be written as ONNX: make the hole dirichlet, or evaluate the network "
                                    "here", ritz->problem.name);
    if (ansatz_has_lift(&ritz->problem))
        return pt_fail(e, PT_USAGE, "%s: the solution is g plus the network times a factor, and g cannot be written as ONNX: give a hard "
                                    "boundary with g 0, or evaluate the network here", ritz->problem.name);
    if (bytes > most_bytes)
        return pt_fail(e, PT_USAGE, "the network has %llu bytes, and an ONNX file holds at most 2 GiB: read network.safetensors instead",
                       (unsigned long long)bytes);
    return 0;
}

static int write_file(const char *file, const message *model, pt_error *e)
{
    file_stage stage;
    int failed = model->lost ? pt_fail(e, PT_FAILED, "out of memory") : file_stage_begin(&stage, file, e);
    if (failed)
        return failed;
    failed = file_stage_write(&stage, model->at, model->n, e);
    if (!failed)
        failed = file_stage_commit(&stage, e);
    file_stage_abort(&stage);
    return failed;
}

int pt_ritz_write_onnx(pt_ritz *ritz, const char *file, pt_error *e)
{
    message model = {0};
    int failed = ritz_check_call(ritz, "pt_ritz_write_onnx", false, e);
    if (!failed && !file)
        failed = pt_fail_null(e, "pt_ritz_write_onnx", "file");
    if (!failed)
        failed = check(ritz, e);
    if (failed)
        return failed;
    graph g = {.type = ritz->net.type == PT_F64 ? ONNX_DOUBLE : ONNX_FLOAT};
    failed = add_network(&g, ritz, e);
    if (!failed)
        put_model(&model, &g, ritz->net.dim);
    free(g.nodes.at);
    free(g.tensors.at);
    failed = failed ? failed : write_file(file, &model, e);
    free(model.at);
    return failed;
}
