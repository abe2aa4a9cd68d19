/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of dpf/table.h. The one who owns a slot has the smallest cost / weight there; of two with the same, the larger
 * hash. Between instances of one weight the larger hash decides alone: costs never rise with the hash, and two seeds never
 * give one hash.
 */
#include "dpf/table.h"

enum { INDEX_BITS = 10, FRACTION_BITS = 40, ROWS = 16, CHUNK = 1024 };

/* Eight owners at once; a compiler makes of them what its machine has. */
typedef uint16_t __attribute__((vector_size(16), aligned(2), may_alias)) eight;
typedef uint64_t __attribute__((vector_size(16))) two;

/* A candidate for one slot. */
typedef struct bid {
    uint64_t hash;
    uint64_t cost; /* 0: not reckoned yet; a cost is at least 1 */
    uint32_t weight;
} bid;

/* x² >> 63 without its lowest bit where that makes 65; `bit` says so. In halves: firmware may have no 128-bit product. */
static uint64_t square63(uint64_t x, uint32_t *bit) {
    uint64_t low = x & UINT64_C(0xFFFFFFFF), high = x >> 32u;
    uint64_t cross = low * high, bottom = low * low;
    uint64_t middle = (bottom >> 32u) + ((cross & UINT64_C(0x7FFFFFFF)) << 1u);
    uint64_t top = high * high + (cross >> 31u) + (middle >> 32u);
    uint64_t rest = (middle << 32u) | (bottom & UINT64_C(0xFFFFFFFF));
    *bit = (uint32_t)(top >> 63u);
    return (*bit != 0u) ? top : ((top << 1u) | (rest >> 63u));
}

void dpf_table_logs(uint64_t *logs) {
    for (uint32_t i = 0u; i < (uint32_t)DPF_TABLE_LOGS - 1u; i++) {
        uint64_t x = (uint64_t)(1024u + i) << 53u, bits = 0u;
        for (uint32_t k = 0u; k < (uint32_t)FRACTION_BITS; k++) {
            uint32_t bit;
            x = square63(x, &bit);
            bits = (bits << 1u) | bit;
        }
        logs[i] = bits;
    }
    logs[DPF_TABLE_LOGS - 1] = UINT64_C(1) << (uint32_t)FRACTION_BITS;
}

uint64_t dpf_table_cost(const uint64_t *logs, uint64_t hash) {
    uint64_t x = (hash != 0u) ? hash : 1u;
    uint32_t zeros = (uint32_t)__builtin_clzll(x);
    uint64_t m = x << zeros;
    uint32_t i = (uint32_t)(m >> (63u - (uint32_t)INDEX_BITS)) & 1023u;
    uint64_t f = (m >> 21u) & UINT64_C(0xFFFFFFFF);
    uint64_t between = ((logs[i + 1u] - logs[i]) * f) >> 32u; /* steps stay under 2^31: no overflow */
    return ((uint64_t)(zeros + 1u) << (uint32_t)FRACTION_BITS) - (logs[i] + between);
}

uint64_t dpf_table_seed(const void *name, uint32_t nbytes) {
    return dpf_xxh64(name, nbytes, DPF_TABLE_NAME_SEED);
}

bool dpf_table_init(dpf_table *table, uint32_t bits, uint16_t *slots, dpf_table_instance *instances, uint32_t most,
                    const uint64_t *logs) {
    bool fits = (bits >= (uint32_t)DPF_ROUTE_BITS_LEAST) && (bits <= (uint32_t)DPF_ROUTE_BITS_MOST) &&
                (most <= (uint32_t)DPF_TABLE_INSTANCES_MOST);
    if (fits) {
        table->slots = slots; /* one by one: some compilers copy a whole struct by calling memcpy */
        table->heirs = 0;
        table->stale = (uint32_t)DPF_ROUTE_NONE;
        table->instances = instances;
        table->logs = logs;
        table->bits = bits;
        table->count = 0u;
        table->most = most;
        dpf_table_build(table);
    }
    return fits;
}

uint32_t dpf_table_index(const dpf_table *table, uint64_t seed) {
    uint32_t found = (uint32_t)DPF_ROUTE_NONE;
    for (uint32_t i = 0u; (i < table->count) && (found == (uint32_t)DPF_ROUTE_NONE); i++) {
        if ((table->instances[i].used != 0u) && (table->instances[i].seed == seed)) found = i;
    }
    return found;
}

static bool may_note(const dpf_table *table, uint32_t index, uint64_t seed, uint32_t weight) {
    bool fits = (index < table->most) && (weight <= (uint32_t)DPF_TABLE_WEIGHT_MOST);
    if (fits) {
        uint32_t other = dpf_table_index(table, seed);
        fits = (other == index) || (other == (uint32_t)DPF_ROUTE_NONE);
    }
    return fits;
}

static void note(dpf_table *table, uint32_t index, uint64_t seed, uint32_t weight) {
    for (; table->count <= index; table->count++) table->instances[table->count] = (dpf_table_instance){0u, 0u, 0u};
    table->instances[index] = (dpf_table_instance){seed, weight, 1u};
}

bool dpf_table_note(dpf_table *table, uint32_t index, uint64_t seed, uint32_t weight) {
    bool fits = may_note(table, index, seed, weight);
    if (fits) note(table, index, seed, weight);
    return fits;
}

static uint64_t cost_of(const uint64_t *logs, bid *one) {
    if (one->cost == 0u) one->cost = dpf_table_cost(logs, one->hash);
    return one->cost;
}

/* Whether `a` beats `b`; both have weight. */
static bool beats(const uint64_t *logs, bid *a, bid *b) {
    bool won = a->hash > b->hash;
    if (a->weight != b->weight) {
        uint64_t left = cost_of(logs, a) * b->weight, right = cost_of(logs, b) * a->weight;
        won = (left < right) || ((left == right) && won);
    }
    return won;
}

/* The largest hash of those of [from, until) that weigh the same as the first of them; its index goes to `owner`, and the
 * first index of another weight is returned. A loop with nothing else in it is three times as fast. */
static uint32_t best_of_run(const dpf_table *table, uint32_t slot, uint32_t from, uint32_t until, uint64_t *hash, uint32_t *owner) {
    const dpf_table_instance *instances = table->instances;
    uint32_t weight = instances[from].weight, best = from, i = from;
    uint64_t highest = 0u;
    for (; (i < until) && (instances[i].weight == weight); i++) {
        uint64_t one = dpf_table_hash(instances[i].seed, slot);
        best = (one > highest) ? i : best;
        highest = (one > highest) ? one : highest;
    }
    *hash = highest;
    *owner = best;
    return i;
}

/* Who is best at a slot, leaving out the instance `without`, which DPF_ROUTE_NONE is not. */
static uint16_t decide(const dpf_table *table, uint32_t slot, uint32_t without) {
    bid best = {0u, 0u, 0u};
    uint32_t owner = (uint32_t)DPF_ROUTE_NONE, i = 0u;
    while (i < table->count) {
        bid one = {0u, 0u, table->instances[i].weight};
        uint32_t candidate = i;
        if ((one.weight == 0u) || (i == without)) {
            i++;
        } else {
            uint32_t until = ((i < without) && (without < table->count)) ? without : table->count;
            i = best_of_run(table, slot, i, until, &one.hash, &candidate);
            if ((owner == (uint32_t)DPF_ROUTE_NONE) || beats(table->logs, &one, &best)) {
                best.hash = one.hash; /* one by one, as in dpf_table_init */
                best.cost = one.cost;
                best.weight = one.weight;
                owner = candidate;
            }
        }
    }
    return (uint16_t)owner;
}

static void set_heir(dpf_table *table, uint32_t slot, uint32_t heir) {
    if (table->heirs != 0) table->heirs[slot] = (uint16_t)heir;
}

static uint32_t heir_of(const dpf_table *table, uint32_t slot) {
    return (table->heirs != 0) ? table->heirs[slot] : (uint32_t)DPF_ROUTE_NONE;
}

void dpf_table_build_part(dpf_table *table, uint32_t from, uint32_t until) {
    for (uint32_t slot = from; slot < until; slot++) {
        table->slots[slot] = decide(table, slot, (uint32_t)DPF_ROUTE_NONE);
        set_heir(table, slot, (uint32_t)DPF_ROUTE_NONE);
    }
}

void dpf_table_build(dpf_table *table) {
    dpf_table_build_part(table, 0u, UINT32_C(1) << table->bits);
}

void dpf_table_use_heirs(dpf_table *table, uint16_t *heirs) {
    table->heirs = heirs;
    table->stale = (uint32_t)DPF_ROUTE_NONE;
    for (uint32_t slot = 0u; slot < (UINT32_C(1) << table->bits); slot++) set_heir(table, slot, (uint32_t)DPF_ROUTE_NONE);
}

/* The bid of an instance for a slot; `mixed` is dpf_xxh64_round(0, slot), the part of the hash that no seed is in. */
static inline bid bid_of(const dpf_table *table, uint32_t index, uint64_t mixed) {
    const dpf_table_instance *one = &table->instances[index];
    uint64_t hash = dpf_xxh64_turn((one->seed + DPF_XXH64_5 + 8u) ^ mixed, 27u) * DPF_XXH64_1 + DPF_XXH64_4;
    return (bid){dpf_xxh64_end(hash), 0u, one->weight};
}

/* Whether the instance wins the slot at its new, larger weight. Who had it is its heir then. Who does not beat the heir does
 * not beat the owner, whose hash is not needed. */
static bool gain_slot(dpf_table *table, uint32_t slot, uint32_t index) {
    uint32_t owner = table->slots[slot], heir = heir_of(table, slot);
    uint64_t mixed = dpf_xxh64_round(0u, slot);
    bid mine = bid_of(table, index, mixed), other = {0u, 0u, 0u};
    bool known = (heir != (uint32_t)DPF_ROUTE_NONE) && (heir != index);
    bool may = owner != index, won = false;
    if (may && known) {
        other = bid_of(table, heir, mixed);
        may = beats(table->logs, &mine, &other);
    }
    if (may) {
        if (owner != (uint32_t)DPF_ROUTE_NONE) other = bid_of(table, owner, mixed);
        won = (owner == (uint32_t)DPF_ROUTE_NONE) || beats(table->logs, &mine, &other);
        if (won) table->slots[slot] = (uint16_t)index;
        if (won || known) set_heir(table, slot, won ? owner : index);
    }
    return won;
}

static uint32_t gain(dpf_table *table, uint32_t index) {
    uint32_t moved = 0u, slots = UINT32_C(1) << table->bits;
    for (uint32_t slot = 0u; slot < slots; slot++) moved += gain_slot(table, slot, index) ? 1u : 0u;
    return moved;
}

static bool wins(const dpf_table *table, uint32_t slot, uint32_t one, uint32_t other) {
    uint64_t mixed = dpf_xxh64_round(0u, slot);
    bid a = bid_of(table, one, mixed), b = bid_of(table, other, mixed);
    return beats(table->logs, &a, &b);
}

/* A slot of the instance at its new, smaller weight: its heir's where that one is better now. Whether it moved. */
static bool lose_slot(dpf_table *table, uint32_t slot, uint32_t index) {
    uint32_t heir = heir_of(table, slot);
    bool known = heir != (uint32_t)DPF_ROUTE_NONE;
    if (!known) {
        table->slots[slot] = decide(table, slot, (uint32_t)DPF_ROUTE_NONE);
    } else if ((table->instances[index].weight == 0u) || wins(table, slot, heir, index)) {
        table->slots[slot] = (uint16_t)heir;
        set_heir(table, slot, (uint32_t)DPF_ROUTE_NONE);
    } else {
        /* it stays the best, and its heir the best of the others */
    }
    return table->slots[slot] != index;
}

/* Which of the rows of eight owners are that one: bit `row` of each lane. Told in words, not as a vector: a core that is
 * compiled without the registers of floating point has no way to return one. */
static inline void where(const uint16_t *owners, uint32_t rows, uint16_t one, uint64_t words[2]) {
    const eight wanted = {one, one, one, one, one, one, one, one};
    eight found = {0u, 0u, 0u, 0u, 0u, 0u, 0u, 0u}, bit = {1u, 1u, 1u, 1u, 1u, 1u, 1u, 1u};
    for (uint32_t row = 0u; row < rows; row++) {
        found |= (eight)(*(const eight *)(const void *)(owners + 8u * row) == wanted) & bit;
        bit += bit;
    }
    const two both = (two)found;
    words[0] = both[0];
    words[1] = both[1];
}

/* Which is the lowest of some bits, at least one. */
static inline uint32_t lowest(uint64_t bits) {
#if UINTPTR_MAX > UINT32_MAX
    return (uint32_t)__builtin_ctzll(bits);
#else /* there a function of the compiler's library would do it, which firmware need not have */
    const uint32_t low = (uint32_t)bits, high = (uint32_t)(bits >> 32u);
    return (uint32_t)((low != 0u) ? __builtin_ctz(low) : 32 + __builtin_ctz(high));
#endif
}

/* Writes the place of the lowest of these bits, if there is one, and takes it away; how many places there are then. */
static inline uint32_t append(uint16_t *places, uint32_t count, uint32_t from, uint64_t *bits) {
    const uint32_t turned = (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__) ? 3u : 0u; /* lanes of a word, first one highest */
    uint32_t at = lowest(*bits | (UINT64_C(1) << 63u));
    places[count] = (uint16_t)(from + 8u * (at & 15u) + ((at >> 4u) ^ turned));
    count += (*bits != 0u) ? 1u : 0u;
    *bits &= *bits - 1u;
    return count;
}

/* Where among `nslots` owners, at most CHUNK, that one is; how often. There is room for one place more than are found. Of
 * 64 owners two or fewer are the same one mostly: these are taken without a branch, which would be guessed wrong often. */
static uint32_t find(const uint16_t *owners, uint32_t nslots, uint32_t one, uint16_t *places) {
    uint32_t rows = (nslots < 8u * (uint32_t)ROWS) ? nslots / 8u : (uint32_t)ROWS, count = 0u;
    for (uint32_t first = 0u; first < nslots; first += 8u * rows) {
        uint64_t found[2];
        where(owners + first, rows, (uint16_t)one, found);
        for (uint32_t half = 0u; half < 2u; half++) {
            uint64_t bits = found[half];
            uint32_t from = first + 4u * half;
            count = append(places, count, from, &bits);
            count = append(places, count, from, &bits);
            while (bits != 0u) count = append(places, count, from, &bits);
        }
    }
    return count;
}

static uint32_t chunk_of(const dpf_table *table) {
    uint32_t slots = UINT32_C(1) << table->bits;
    return (slots < (uint32_t)CHUNK) ? slots : (uint32_t)CHUNK;
}

/* Every slot of the instance, decided again at its new, smaller weight. Where it is the heir, another may be now: that
 * waits, for no lookup needs it. */
static uint32_t lose(dpf_table *table, uint32_t index) {
    uint16_t places[CHUNK + 1];
    uint32_t moved = 0u, slots = UINT32_C(1) << table->bits, chunk = chunk_of(table);
    for (uint32_t first = 0u; first < slots; first += chunk) {
        uint32_t count = find(table->slots + first, chunk, index, places);
        for (uint32_t k = 0u; k < count; k++) moved += lose_slot(table, first + places[k], index) ? 1u : 0u;
    }
    table->stale = (table->heirs != 0) ? index : (uint32_t)DPF_ROUTE_NONE;
    return moved;
}

/* The rest of `lose`, before anything else looks at the heirs. */
static void settle(dpf_table *table) {
    uint16_t places[CHUNK + 1];
    uint32_t slots = (table->stale != (uint32_t)DPF_ROUTE_NONE) ? UINT32_C(1) << table->bits : 0u, chunk = chunk_of(table);
    for (uint32_t first = 0u; first < slots; first += chunk) {
        uint32_t count = find(table->heirs + first, chunk, table->stale, places);
        for (uint32_t k = 0u; k < count; k++) set_heir(table, first + places[k], (uint32_t)DPF_ROUTE_NONE);
    }
    table->stale = (uint32_t)DPF_ROUTE_NONE;
}

static uint32_t weigh(dpf_table *table, uint32_t index, uint32_t weight) {
    uint32_t before = table->instances[index].weight;
    settle(table);
    table->instances[index].weight = weight;
    return (weight > before) ? gain(table, index) : ((weight < before) ? lose(table, index) : 0u);
}

uint32_t dpf_table_find_heirs(dpf_table *table, uint32_t from, uint32_t until) {
    uint32_t found = 0u;
    settle(table);
    for (uint32_t slot = from; (slot < until) && (table->heirs != 0); slot++) {
        uint32_t owner = table->slots[slot];
        if ((table->heirs[slot] == (uint16_t)DPF_ROUTE_NONE) && (owner != (uint32_t)DPF_ROUTE_NONE)) {
            table->heirs[slot] = decide(table, slot, owner);
            if (table->heirs[slot] != (uint16_t)DPF_ROUTE_NONE) found++;
        }
    }
    return found;
}

bool dpf_table_weigh(dpf_table *table, uint32_t index, uint32_t weight, uint32_t *moved) {
    bool fits = (index < table->count) && (table->instances[index].used != 0u) && (weight <= (uint32_t)DPF_TABLE_WEIGHT_MOST);
    *moved = fits ? weigh(table, index, weight) : 0u;
    return fits;
}

bool dpf_table_put(dpf_table *table, uint32_t index, uint64_t seed, uint32_t weight, uint32_t *moved) {
    bool fits = may_note(table, index, seed, weight);
    *moved = 0u;
    if (fits) {
        bool same = (index < table->count) && (table->instances[index].used != 0u) && (table->instances[index].seed == seed);
        if (!same) {
            if (index < table->count) *moved = weigh(table, index, 0u);
            note(table, index, seed, 0u);
        }
        *moved += weigh(table, index, weight);
    }
    return fits;
}

uint64_t dpf_table_digest(const uint16_t *slots, uint32_t bits) {
    uint64_t digest;
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    /* XXH64 by hand over swapped words: the digest is of little-endian owners on every machine. */
    uint64_t lanes[4] = {DPF_XXH64_1 + DPF_XXH64_2, DPF_XXH64_2, 0u, 0u - DPF_XXH64_1};
    uint32_t count = UINT32_C(1) << bits;
    for (uint32_t i = 0u; i < count; i += 4u) {
        uint64_t word = slots[i] | ((uint64_t)slots[i + 1u] << 16u) | ((uint64_t)slots[i + 2u] << 32u) |
                        ((uint64_t)slots[i + 3u] << 48u);
        lanes[(i / 4u) & 3u] = dpf_xxh64_round(lanes[(i / 4u) & 3u], word);
    }
    digest = dpf_xxh64_turn(lanes[0], 1u) + dpf_xxh64_turn(lanes[1], 7u) + dpf_xxh64_turn(lanes[2], 12u) +
             dpf_xxh64_turn(lanes[3], 18u);
    for (uint32_t i = 0u; i < 4u; i++) digest = dpf_xxh64_merge(digest, lanes[i]);
    digest = dpf_xxh64_end(digest + (uint64_t)count * 2u);
#else
    digest = dpf_xxh64(slots, (uint64_t)sizeof(uint16_t) << bits, 0u);
#endif
    return digest;
}
