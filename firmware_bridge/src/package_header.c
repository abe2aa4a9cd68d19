/* SPDX-License-Identifier: Apache-2.0
 *
 * Header, digests and padding of a package; it opens one by calling the checks of the manifest in their order.
 */
#include "package_parts.h"

enum { HASH_BYTES = 8, RESERVED_AT = 88, RESERVED_END = 120, DIGEST_AT = 56 };

static rule refuse(dpf_package_refusal *why, rule broken, uint64_t byte, uint64_t found, uint64_t allowed) {
    *why = (dpf_package_refusal){.rule = broken, .byte = byte, .found = found, .allowed = allowed};
    return broken;
}

static uint64_t little(const unsigned char *bytes, uint32_t count) {
    uint64_t value = 0;
    for (uint32_t i = count; i-- > 0;) value = value << 8 | bytes[i];
    return value;
}

static rule check_magic(const unsigned char *bytes, uint64_t nbytes, dpf_package_refusal *why) {
    static const unsigned char MAGIC[8] = {0x89, 'D', 'P', 'F', '\r', '\n', 0x1a, '\n'};
    for (uint32_t i = 0; i < 8 && i < nbytes; i++) {
        if (bytes[i] != MAGIC[i]) return refuse(why, DPF_PACKAGE_MAGIC, i, bytes[i], MAGIC[i]);
    }
    return DPF_PACKAGE_OK;
}

static rule check_length(const unsigned char *bytes, uint64_t nbytes, dpf_package_refusal *why) {
    uint64_t length = little(bytes + 12, 4);
    if (length < DPF_PACKAGE_HEADER_BYTES || length > DPF_PACKAGE_ALIGN || length % 8 != 0) {
        return refuse(why, DPF_PACKAGE_HEADER_LENGTH, 12, length, DPF_PACKAGE_HEADER_BYTES);
    }
    if (nbytes < length) return refuse(why, DPF_PACKAGE_CUT_HEADER, 12, nbytes, length);
    uint64_t hash = dpf_xxh3_64(bytes, length - HASH_BYTES), recorded = little(bytes + length - HASH_BYTES, HASH_BYTES);
    if (hash != recorded) return refuse(why, DPF_PACKAGE_HEADER_HASH, length - HASH_BYTES, hash, recorded);
    if (little(bytes + 10, 2) != 0) return DPF_PACKAGE_OK;
    if (length != DPF_PACKAGE_HEADER_BYTES) {
        return refuse(why, DPF_PACKAGE_HEADER_LENGTH, 12, length, DPF_PACKAGE_HEADER_BYTES);
    }
    for (uint32_t i = RESERVED_AT; i < RESERVED_END; i++) {
        if (bytes[i] != 0) return refuse(why, DPF_PACKAGE_HEADER_RESERVED, RESERVED_AT, bytes[i], 0);
    }
    return DPF_PACKAGE_OK;
}

static rule within(dpf_package_refusal *why, rule broken, uint64_t byte, uint64_t found, uint64_t least,
                   uint64_t most) {
    if (found >= least && found <= most) return DPF_PACKAGE_OK;
    return refuse(why, broken, byte, found, found < least ? least : most);
}

/* The four parts follow each other in the file: header, sections, manifest, signature area. */
static rule check_ranges(const dpf_package_header *h, dpf_package_refusal *why) {
    const uint64_t to = DPF_PACKAGE_TAIL_ALIGN;
    if (h->manifest_offset % to != 0) return refuse(why, DPF_PACKAGE_MANIFEST_ALIGN, 24, h->manifest_offset, to);
    if (h->signature_offset % to != 0) return refuse(why, DPF_PACKAGE_SIGNATURE_ALIGN, 40, h->signature_offset, to);
    TRY(within(why, DPF_PACKAGE_FILE_SIZE, 16, h->file_bytes, DPF_PACKAGE_HEADER_BYTES, DPF_PACKAGE_MAX_BYTES));
    TRY(within(why, DPF_PACKAGE_MANIFEST_OFFSET, 24, h->manifest_offset, h->header_bytes, h->file_bytes));
    TRY(within(why, DPF_PACKAGE_MANIFEST_SIZE, 32, h->manifest_bytes, 1, DPF_MANIFEST_MAX_BYTES));
    uint64_t end = h->manifest_offset + h->manifest_bytes, place = (end + to - 1) / to * to;
    TRY(within(why, DPF_PACKAGE_SIGNATURE_OFFSET, 40, h->signature_offset, place, place));
    TRY(within(why, DPF_PACKAGE_SIGNATURE_SIZE, 48, h->signature_bytes, 0, DPF_SIGNATURE_MAX_BYTES));
    end = h->signature_offset + h->signature_bytes;
    return end == h->file_bytes ? DPF_PACKAGE_OK : refuse(why, DPF_PACKAGE_FILE_END, 48, end, h->file_bytes);
}

rule dpf_package_read_header(const void *bytes, uint64_t nbytes, uint64_t file_bytes, dpf_package_header *header,
                             dpf_package_refusal *refusal) {
    const unsigned char *at = bytes;
    TRY(check_magic(at, nbytes, refusal));
    if (nbytes < DPF_PACKAGE_HEADER_BYTES) {
        return refuse(refusal, DPF_PACKAGE_CUT_HEADER, 0, nbytes, DPF_PACKAGE_HEADER_BYTES);
    }
    header->major = (uint16_t)little(at + 8, 2), header->minor = (uint16_t)little(at + 10, 2);
    header->header_bytes = (uint32_t)little(at + 12, 4);
    if (header->major != DPF_PACKAGE_MAJOR) {
        return refuse(refusal, DPF_PACKAGE_MAJOR_UNKNOWN, 8, header->major, DPF_PACKAGE_MAJOR);
    }
    TRY(check_length(at, nbytes, refusal));
    header->file_bytes = little(at + 16, 8);
    header->manifest_offset = little(at + 24, 8), header->manifest_bytes = little(at + 32, 8);
    header->signature_offset = little(at + 40, 8), header->signature_bytes = little(at + 48, 8);
    for (uint32_t i = 0; i < DPF_SHA256_BYTES; i++) header->manifest_sha256[i] = at[DIGEST_AT + i];
    if (file_bytes != header->file_bytes) {
        rule broken = file_bytes < header->file_bytes ? DPF_PACKAGE_FILE_CUT : DPF_PACKAGE_FILE_LONG;
        return refuse(refusal, broken, 16, file_bytes, header->file_bytes);
    }
    return check_ranges(header, refusal);
}

static bool same_bytes(const unsigned char *a, const unsigned char *b, uint32_t count) {
    unsigned char differ = 0;
    for (uint32_t i = 0; i < count; i++) differ |= a[i] ^ b[i];
    return differ == 0;
}

static bool has_sha256(const void *bytes, uint64_t nbytes, const unsigned char *recorded) {
    unsigned char digest[DPF_SHA256_BYTES];
    dpf_sha256 sha256;
    dpf_sha256_begin(&sha256);
    dpf_sha256_add(&sha256, bytes, nbytes);
    dpf_sha256_end(&sha256, digest);
    return same_bytes(digest, recorded, DPF_SHA256_BYTES);
}

rule dpf_package_read_manifest(const dpf_package_header *header, const void *manifest, dpf_package *package,
                               dpf_package_refusal *refusal) {
    check c = {.package = package, .why = refusal};
    uint64_t start = header->manifest_offset, found, allowed;
    uint32_t place;
    package->header = *header;
    package->manifest = manifest, package->manifest_bytes = (uint32_t)header->manifest_bytes;
    package->section_count = package->model_count = package->target_count = package->golden_count = 0;
    if (!has_sha256(manifest, header->manifest_bytes, header->manifest_sha256)) {
        return refuse(refusal, DPF_PACKAGE_MANIFEST_DIGEST, start, 0, 0);
    }
    rule broken = dpf_cbor_walk(package->manifest, package->manifest_bytes, &place, &found, &allowed);
    if (broken != DPF_PACKAGE_OK) return refuse(refusal, broken, start + place, found, allowed);
    TRY(dpf_check_fields(&c));
    TRY(dpf_check_places(&c));
    TRY(dpf_check_references(&c));
    return dpf_check_golden(&c);
}

rule dpf_package_open(const void *file, uint64_t nbytes, dpf_package *package, dpf_package_refusal *refusal) {
    dpf_package_header header;
    package->manifest_bytes = 0;
    TRY(dpf_package_read_header(file, nbytes, nbytes, &header, refusal));
    return dpf_package_read_manifest(&header, (const unsigned char *)file + header.manifest_offset, package, refusal);
}

rule dpf_package_check_section(const dpf_section *section, const void *bytes, dpf_package_refusal *refusal) {
    unsigned char digest[DPF_XXH3_BYTES];
    dpf_xxh3_128(bytes, section->size, digest);
    if (!same_bytes(digest, section->xxh3, DPF_XXH3_BYTES)) {
        return refuse(refusal, DPF_PACKAGE_SECTION_XXH3, section->offset, 0, 0);
    }
    if (!has_sha256(bytes, section->size, section->sha256)) {
        return refuse(refusal, DPF_PACKAGE_SECTION_SHA256, section->offset, 0, 0);
    }
    return DPF_PACKAGE_OK;
}

static rule check_gap(const unsigned char *file, uint64_t start, uint64_t end, dpf_package_refusal *why) {
    for (uint64_t at = start; at < end; at++) {
        if (file[at] != 0) return refuse(why, DPF_PACKAGE_PADDING, at, file[at], 0);
    }
    return DPF_PACKAGE_OK;
}

rule dpf_package_check(const dpf_package *package, const void *file, dpf_package_refusal *refusal) {
    const dpf_package_header *h = &package->header;
    uint64_t end = h->header_bytes;
    dpf_section section;
    for (uint32_t i = 0; dpf_package_section(package, i, &section); i++) {
        /* Never so after the checks, unless the manifest is being written over. */
        if (section.offset < end || section.size > h->manifest_offset - end ||
            section.offset > h->manifest_offset - section.size) {
            return refuse(refusal, DPF_PACKAGE_SECTION_END, section.offset, section.size, h->manifest_offset);
        }
        TRY(check_gap(file, end, section.offset, refusal));
        TRY(dpf_package_check_section(&section, (const unsigned char *)file + section.offset, refusal));
        end = section.offset + section.size;
    }
    TRY(check_gap(file, end, h->manifest_offset, refusal));
    return check_gap(file, h->manifest_offset + h->manifest_bytes, h->signature_offset, refusal);
}
