/* SPDX-License-Identifier: Apache-2.0
 *
 * `BlockProduct` of the domain `dpfedge.cpu` as an operator of onnxruntime: y = x·matrixᵀ (+ bias), on its threads.
 *
 * Inputs: x f32[…, 32·blocks]; codes u8[outputs, blocks, 4·bits]; scales and, optional, ends f16 or f32 [outputs, blocks];
 * bias f32[outputs], optional. Of 8 bits without ends scales may be [outputs, 2·blocks], one for every 16 elements.
 * All but x are constants, read where the session has them.
 * Attributes: bits 4 or 8; centre, what codes of 4 bits are less than they say: then ends are −centre·scale.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "blocks.h"
#include "ort.h"

enum { X, CODES, SCALES, ENDS, BIAS, INPUTS };
enum { RANK_MAX = 8, OUTPUTS_AT_ONCE = 16, TOKENS_AT_ONCE = 8, ALIGNED = 64, PARTS = 16 };

typedef struct {
    const ort_api *api;
    const dpf_blocks_form *form;
    size_t outputs, blocks;
    unsigned bits;
    bool halves, fine, ends, bias;
    float share; /* of sums: 1, or −centre where the scales stand for the ends */
} kernel;

typedef struct {
    int type;
    size_t rank;
    int64_t sizes[RANK_MAX];
} shape;

/* Returns from the function with any error of `call`. */
#define TRY(call)                           \
    do {                                    \
        ort_status *tried = (call);         \
        if (tried != NULL) return tried;    \
    } while (0)

static ort_status *look(const ort_api *api, const ort_value *value, shape *to) {
    ort_shape *info = NULL;
    TRY(api->tensor_shape(value, &info));
    ort_status *status = api->element_type(info, &to->type);
    if (status == NULL) status = api->rank(info, &to->rank);
    if (status == NULL && to->rank > RANK_MAX) status = api->create_status(ORT_INVALID_ARGUMENT, "BlockProduct: a tensor has more than 8 axes");
    if (status == NULL) status = api->sizes(info, to->sizes, to->rank);
    api->release_shape(info);
    return status;
}

static bool is(const shape *found, size_t rank, size_t outer, size_t middle, size_t inner) {
    const size_t wanted[3] = {outer, middle, inner};
    if (found->rank != rank) return false;
    for (size_t i = 0; i < rank; i++) {
        if (found->sizes[i] != (int64_t)wanted[i]) return false;
    }
    return true;
}

/* `input` is not what it must be; where the codes are known, so is what the others must fit. */
static ort_status *wrong(const kernel *k, const char *input, const char *allowed) {
    char text[200];
    if (k->outputs == 0) {
        snprintf(text, sizeof text, "BlockProduct: %s: allowed is %s", input, allowed);
    } else {
        snprintf(text, sizeof text, "BlockProduct: %s does not fit %zu outputs of %zu blocks of %u bits: allowed is %s", input,
                 k->outputs, k->blocks, k->bits, allowed);
    }
    return k->api->create_status(ORT_INVALID_ARGUMENT, text);
}

/* The constant input `index`, called `input`; NULL where the node has none there. One that is computed is refused. */
static ort_status *constant(const kernel *k, const ort_info *info, size_t index, const char *input, const ort_value **value) {
    size_t count = 0, size = 0;
    int known = 0;
    *value = NULL;
    TRY(k->api->node_inputs(info, &count));
    if (index < count) TRY(k->api->input_name(info, index, NULL, &size));
    if (size <= 1 && index > SCALES) return NULL; /* no name */
    TRY(k->api->constant(info, index, &known, value));
    return known && *value != NULL ? NULL : wrong(k, input, "a constant");
}

/* Whether the scales, the ends and the bias are what the codes need. */
static ort_status *check_rest(kernel *k, const ort_info *info) {
    const ort_value *value;
    shape scales, found;
    TRY(constant(k, info, SCALES, "scales", &value));
    TRY(look(k->api, value, &scales));
    k->halves = scales.type == ORT_F16;
    k->fine = k->bits == 8 && is(&scales, 2, k->outputs, 2 * k->blocks, 0);
    if ((!k->fine && !is(&scales, 2, k->outputs, k->blocks, 0)) || (!k->halves && scales.type != ORT_F32)) {
        return wrong(k, "scales", "f16 or f32 [outputs, blocks], of 8 bits also [outputs, 2·blocks]");
    }
    TRY(constant(k, info, ENDS, "ends", &value));
    k->ends = value != NULL;
    if (k->ends) {
        TRY(look(k->api, value, &found));
        const bool fit = is(&found, 2, k->outputs, k->blocks, 0) && found.type == scales.type && !k->fine;
        if (!fit) return wrong(k, "ends", "the type of scales and [outputs, blocks], as theirs");
    }
    TRY(constant(k, info, BIAS, "bias", &value));
    k->bias = value != NULL;
    if (k->bias) {
        TRY(look(k->api, value, &found));
        if (!is(&found, 1, k->outputs, 0, 0) || found.type != ORT_F32) return wrong(k, "bias", "f32 [outputs]");
    }
    return NULL;
}

static ort_status *check(kernel *k, const ort_info *info) {
    const ort_value *value;
    shape codes;
    int64_t bits = 0, centre = 0;
    TRY(k->api->integer(info, "bits", &bits));
    TRY(k->api->integer(info, "centre", &centre));
    k->bits = bits == 8 ? 8 : 4;
    TRY(constant(k, info, CODES, "codes", &value));
    TRY(look(k->api, value, &codes));
    const bool three = codes.rank == 3 && codes.type == ORT_U8 && codes.sizes[0] > 0 && codes.sizes[1] > 0;
    if (!three || (bits != 4 && bits != 8) || codes.sizes[2] != 4 * bits) return wrong(k, "codes", "u8 [outputs, blocks, 4·bits], bits 4 or 8");
    k->outputs = (size_t)codes.sizes[0];
    k->blocks = (size_t)codes.sizes[1];
    TRY(check_rest(k, info));
    if (centre < 0 || centre > 15 || (centre != 0 && (k->ends || bits != 4))) return wrong(k, "centre", "0 to 15, of 4 bits without ends");
    k->share = centre != 0 ? -(float)centre : 1;
    return NULL;
}

static ort_status *create(const ort_operator *self, const ort_api *api, const ort_info *info, void **made) {
    (void)self;
    kernel *k = calloc(1, sizeof *k);
    if (k == NULL) return api->create_status(ORT_FAIL, "BlockProduct: no memory");
    k->api = api;
    k->form = dpf_blocks_best();
    ort_status *status = check(k, info);
    if (status != NULL) {
        free(k);
        return status;
    }
    *made = k;
    return NULL;
}

static void destroy(void *made) {
    free(made);
}

/* One run: what its threads share. */
typedef struct {
    const dpf_blocks_form *form;
    dpf_matrix matrix;
    dpf_rounded rounded;
    const float *x;
    float *y;
    float share;
    size_t part; /* outputs that one call computes */
} job;

static void round_some(void *data, size_t index) {
    const job *j = data;
    const size_t first = index * TOKENS_AT_ONCE, rest = j->rounded.tokens - first;
    const size_t last = first + (rest < TOKENS_AT_ONCE ? rest : TOKENS_AT_ONCE);
    j->form->round(j->x, j->matrix.blocks * DPF_BLOCK, j->matrix.bits, j->share, &j->rounded, first, last);
}

static void multiply_some(void *data, size_t index) {
    const job *j = data;
    const size_t first = index * j->part, rest = j->matrix.outputs - first;
    j->form->multiply(&j->matrix, &j->rounded, first, first + (rest < j->part ? rest : j->part), j->y);
}

static ort_status *run(const ort_api *api, const ort_context *context, job *j) {
    const size_t groups = (j->rounded.tokens + TOKENS_AT_ONCE - 1) / TOKENS_AT_ONCE;
    if (groups > 1) {
        TRY(api->parallel(context, round_some, groups, 0, j));
    } else {
        round_some(j, 0);
    }
    const size_t strips = (j->matrix.outputs + OUTPUTS_AT_ONCE - 1) / OUTPUTS_AT_ONCE;
    j->part = (strips + PARTS - 1) / PARTS * OUTPUTS_AT_ONCE;
    return api->parallel(context, multiply_some, (j->matrix.outputs + j->part - 1) / j->part, 0, j);
}

/* Rounded activations in one piece of memory; NULL where there is none. */
static void *place(dpf_rounded *r, size_t tokens, size_t blocks, unsigned bits) {
    r->tokens = tokens;
    r->chunks = dpf_chunks(blocks, bits);
    r->ends = dpf_padded(blocks);
    const size_t row = r->chunks * (DPF_CHUNK * 8 / bits * sizeof(int16_t) + DPF_LANES * sizeof(float)) + r->ends * sizeof(float);
    if (tokens > SIZE_MAX / 2 / row) return NULL;
    char *memory = aligned_alloc(ALIGNED, (tokens * row + ALIGNED - 1) / ALIGNED * ALIGNED);
    if (memory == NULL) return NULL;
    r->words = (int16_t *)(void *)memory;
    r->scales = (float *)(void *)(memory + tokens * r->chunks * (DPF_CHUNK * 8 / bits) * sizeof(int16_t));
    r->sums = r->scales + tokens * r->chunks * DPF_LANES;
    return memory;
}

static ort_status *data_of(const ort_api *api, const ort_context *context, size_t index, const void **data) {
    const ort_value *value = NULL;
    TRY(api->input(context, index, &value));
    return api->tensor_data((ort_value *)value, (void **)data);
}

static ort_status *fill(const kernel *k, const ort_context *context, job *j) {
    const void *data[INPUTS] = {NULL};
    TRY(data_of(k->api, context, X, &data[X]));
    TRY(data_of(k->api, context, CODES, &data[CODES]));
    TRY(data_of(k->api, context, SCALES, &data[SCALES]));
    if (k->ends) TRY(data_of(k->api, context, ENDS, &data[ENDS]));
    if (k->bias) TRY(data_of(k->api, context, BIAS, &data[BIAS]));
    j->form = k->form;
    j->x = data[X];
    j->share = k->share;
    const void *ends = k->share != 1 ? data[SCALES] : data[ENDS];
    j->matrix = (dpf_matrix){data[CODES], data[SCALES], ends, data[BIAS], k->outputs, k->blocks, k->bits, k->halves, k->fine};
    return NULL;
}

static ort_status *compute(void *made, ort_context *context) {
    const kernel *k = made;
    const ort_value *x = NULL;
    ort_value *y = NULL;
    shape found;
    job j;
    TRY(k->api->input(context, X, &x));
    TRY(look(k->api, x, &found));
    if (found.rank == 0 || found.sizes[found.rank - 1] != (int64_t)(k->blocks * DPF_BLOCK)) return wrong(k, "x", "f32 [..., 32·blocks]");
    size_t tokens = 1;
    for (size_t i = 0; i + 1 < found.rank; i++) tokens *= (size_t)found.sizes[i];
    found.sizes[found.rank - 1] = (int64_t)k->outputs;
    TRY(k->api->output(context, 0, found.sizes, found.rank, &y));
    if (tokens == 0) return NULL;
    TRY(fill(k, context, &j));
    TRY(k->api->tensor_data(y, (void **)&j.y));
    void *memory = place(&j.rounded, tokens, k->blocks, k->bits);
    if (memory == NULL) return k->api->create_status(ORT_FAIL, "BlockProduct: no memory for the rounded activations");
    ort_status *status = run(k->api, context, &j);
    free(memory);
    return status;
}

static const char *name(const ort_operator *self) {
    (void)self;
    return "BlockProduct";
}

static const char *provider(const ort_operator *self) {
    (void)self;
    return "CPUExecutionProvider";
}

static int input_type(const ort_operator *self, size_t index) {
    (void)self;
    return index == CODES ? ORT_U8 : index == SCALES || index == ENDS ? ORT_ANY : ORT_F32;
}

static int output_type(const ort_operator *self, size_t index) {
    (void)self, (void)index;
    return ORT_F32;
}

static size_t inputs(const ort_operator *self) {
    (void)self;
    return INPUTS;
}

static size_t outputs(const ort_operator *self) {
    (void)self;
    return 1;
}

static int input_kind(const ort_operator *self, size_t index) {
    (void)self;
    return index > SCALES ? ORT_OPTIONAL : ORT_REQUIRED;
}

static int output_kind(const ort_operator *self, size_t index) {
    (void)self, (void)index;
    return ORT_REQUIRED;
}

static int memory(const ort_operator *self, size_t index) {
    (void)self, (void)index;
    return ORT_DEFAULT_MEMORY;
}

static int one(const ort_operator *self) {
    (void)self;
    return 1;
}

static int any_version(const ort_operator *self) {
    (void)self;
    return INT_MAX;
}

static const ort_operator block_product = {
    .version = ORT_VERSION, .name = name, .provider = provider, .input_type = input_type, .inputs = inputs, .output_type = output_type,
    .outputs = outputs, .destroy = destroy, .input_kind = input_kind, .output_kind = output_kind, .input_memory = memory,
    .least_inputs = one, .alike_inputs = one, .least_outputs = one, .alike_outputs = one, .create = create, .compute = compute,
    .first_version = one, .last_version = any_version,
};

/* onnxruntime calls this where the library is registered with a session's options. */
__attribute__((visibility("default"))) ort_status *RegisterCustomOps(ort_options *options, const ort_base *base);
ort_status *RegisterCustomOps(ort_options *options, const ort_base *base) {
    static ort_domain *domain; /* sessions refer to it for as long as they live, and it is the same for all */
    const ort_api *api = base->get(ORT_VERSION);
    if (api == NULL) return base->get(1)->create_status(ORT_FAIL, "the kernels of dpfedge-cpu need onnxruntime 1.17 or newer");
    ort_domain *known = __atomic_load_n(&domain, __ATOMIC_ACQUIRE);
    if (known == NULL) {
        ort_domain *mine = NULL;
        TRY(api->create_domain("dpfedge.cpu", &mine));
        TRY(api->add_operator(mine, &block_product));
        /* of two threads that come first together one leaves a domain that nobody uses */
        if (!__atomic_compare_exchange_n(&domain, &known, mine, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) mine = known;
        known = mine;
    }
    return api->add_domain(options, known);
}
