/* SPDX-License-Identifier: Apache-2.0
 *
 * What an operator needs of onnxruntime's C interface, told anew because its wheels bring no header.
 *
 * The interface only grows at its end: places of functions, fields of an operator and numbers of types stay what they
 * are for good (onnxruntime, docs/Versioning and the static_asserts of its own onnxruntime_c_api.cc).
 */
#ifndef DPF_ORT_H
#define DPF_ORT_H

#include <stddef.h>
#include <stdint.h>

typedef struct ort_status ort_status; /* NULL: well */
typedef struct ort_value ort_value;
typedef struct ort_shape ort_shape;
typedef struct ort_info ort_info;       /* of the node that a kernel is made for */
typedef struct ort_context ort_context; /* of one run */
typedef struct ort_domain ort_domain;
typedef struct ort_options ort_options; /* of a session */

enum { ORT_ANY = 0, ORT_F32 = 1, ORT_U8 = 2, ORT_F16 = 10 }; /* element types; 0 as the type of an input: any */
enum { ORT_FAIL = 1, ORT_INVALID_ARGUMENT = 2 };
enum { ORT_REQUIRED = 0, ORT_OPTIONAL = 1 };
enum { ORT_DEFAULT_MEMORY = 0 };
enum { ORT_VERSION = 17 }; /* the first with all that is used here */

typedef struct ort_operator ort_operator;

/* The functions this plugin calls, at their places. */
typedef struct {
    ort_status *(*create_status)(int code, const char *message); /* 0 */
    void *unused1[25];
    ort_status *(*create_domain)(const char *name, ort_domain **made); /* 26 */
    ort_status *(*add_operator)(ort_domain *domain, const ort_operator *added);
    ort_status *(*add_domain)(ort_options *options, ort_domain *domain); /* 28 */
    void *unused2[22];
    ort_status *(*tensor_data)(ort_value *value, void **data); /* 51 */
    void *unused3[8];
    ort_status *(*element_type)(const ort_shape *shape, int *type); /* 60 */
    ort_status *(*rank)(const ort_shape *shape, size_t *rank);
    ort_status *(*sizes)(const ort_shape *shape, int64_t *sizes, size_t rank); /* 62 */
    void *unused4[2];
    ort_status *(*tensor_shape)(const ort_value *value, ort_shape **made); /* 65 */
    void *unused5[20];
    ort_status *(*integer)(const ort_info *info, const char *name, int64_t *value); /* 86 */
    void *unused6[3];
    ort_status *(*input)(const ort_context *context, size_t index, const ort_value **value); /* 90 */
    ort_status *(*output)(ort_context *context, size_t index, const int64_t *sizes, size_t rank, ort_value **value);
    void *unused7[1];
    void (*release_status)(ort_status *status); /* 93 */
    void *unused8[5];
    void (*release_shape)(ort_shape *shape); /* 99 */
    void *unused9[130];
    ort_status *(*node_inputs)(const ort_info *info, size_t *count); /* 230 */
    void *unused10[1];
    ort_status *(*input_name)(const ort_info *info, size_t index, char *to, size_t *size); /* 232; size: with its end */
    void *unused11[16];
    ort_status *(*constant)(const ort_info *info, size_t index, int *is_constant, const ort_value **value); /* 249 */
    void *unused12[24];
    ort_status *(*parallel)(const ort_context *context, void (*each)(void *data, size_t index), size_t total, size_t batches, void *data);
} ort_api; /* the last: 274 */

#define ORT_AT(field, place) _Static_assert(offsetof(ort_api, field) == (place) * sizeof(void *), "onnxruntime has it elsewhere")
ORT_AT(create_domain, 26);
ORT_AT(add_domain, 28);
ORT_AT(tensor_data, 51);
ORT_AT(element_type, 60);
ORT_AT(sizes, 62);
ORT_AT(tensor_shape, 65);
ORT_AT(integer, 86);
ORT_AT(input, 90);
ORT_AT(release_status, 93);
ORT_AT(release_shape, 99);
ORT_AT(node_inputs, 230);
ORT_AT(input_name, 232);
ORT_AT(constant, 249);
ORT_AT(parallel, 274);

typedef struct {
    const ort_api *(*get)(uint32_t version); /* NULL where the library is older */
    const char *(*version)(void);
} ort_base;

/* An operator as its author describes it, in the order of version 17. */
struct ort_operator {
    uint32_t version;
    void *(*create_old)(const ort_operator *self, const ort_api *api, const ort_info *info);
    const char *(*name)(const ort_operator *self);
    const char *(*provider)(const ort_operator *self);
    int (*input_type)(const ort_operator *self, size_t index);
    size_t (*inputs)(const ort_operator *self);
    int (*output_type)(const ort_operator *self, size_t index);
    size_t (*outputs)(const ort_operator *self);
    void (*compute_old)(void *kernel, ort_context *context);
    void (*destroy)(void *kernel);
    int (*input_kind)(const ort_operator *self, size_t index);
    int (*output_kind)(const ort_operator *self, size_t index);
    int (*input_memory)(const ort_operator *self, size_t index);
    int (*least_inputs)(const ort_operator *self);
    int (*alike_inputs)(const ort_operator *self);
    int (*least_outputs)(const ort_operator *self);
    int (*alike_outputs)(const ort_operator *self);
    ort_status *(*create)(const ort_operator *self, const ort_api *api, const ort_info *info, void **kernel);
    ort_status *(*compute)(void *kernel, ort_context *context);
    ort_status *(*infer)(const ort_operator *self, void *context);
    int (*first_version)(const ort_operator *self);
    int (*last_version)(const ort_operator *self);
};

#endif
