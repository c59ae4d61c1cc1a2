/* Edges by group, in input order; columns of a part; arguments that cannot be. */
#include "check.h"
#include "grinnder_prepare.h"

enum { EDGES = 5000, GROUPS = 37, NODES = 1000, OWN_FIRST = 130, OWN_LAST = 260 };

static void check_group(void) {
    static int32_t group[EDGES];
    static int64_t keys[EDGES], keys_out[EDGES], offsets[GROUPS + 1];
    static uint16_t weight[EDGES], weight_out[EDGES];
    for (int i = 0; i < EDGES; ++i) {
        group[i] = (int32_t)random_below(GROUPS - 1);
        keys[i] = i;
        weight[i] = (uint16_t)(3 * i);
    }
    CHECK(grinnder_prepare_group(EDGES, GROUPS, group, keys, 2, weight, offsets, keys_out, weight_out) == 0);
    CHECK(offsets[0] == 0 && offsets[GROUPS] == EDGES && offsets[GROUPS - 1] == EDGES);
    for (int g = 0; g < GROUPS; ++g)
        for (int64_t i = offsets[g]; i < offsets[g + 1]; ++i) {
            CHECK(group[keys_out[i]] == g && weight_out[i] == (uint16_t)(3 * keys_out[i]));
            CHECK(i == offsets[g] || keys_out[i - 1] < keys_out[i]);
        }
    CHECK(grinnder_prepare_group(0, 1, NULL, NULL, 0, NULL, offsets, NULL, NULL) == 0 && offsets[1] == 0);
    CHECK(grinnder_prepare_group(EDGES, GROUPS, group, keys, 3, weight, offsets, keys_out, weight_out) == -EINVAL);
    CHECK(grinnder_prepare_group(EDGES, GROUPS, group, keys, 2, NULL, offsets, keys_out, NULL) == -EINVAL);
    group[9] = GROUPS;
    CHECK(grinnder_prepare_group(EDGES, GROUPS, group, keys, 0, NULL, offsets, keys_out, NULL) == -ERANGE);
}

static void check_localize(void) {
    static int64_t keys[EDGES], before[EDGES], halo[NODES];
    static char others[NODES];
    int64_t distinct = 0;
    for (int i = 0; i < EDGES; ++i) {
        const int64_t column = random_below(NODES) / 2 * 2;
        before[i] = random_below(20) * NODES + column;
        if ((column < OWN_FIRST || column >= OWN_LAST) && !others[column]) others[column] = 1, ++distinct;
    }
    memcpy(keys, before, sizeof keys);
    CHECK(grinnder_prepare_localize(EDGES, keys, NODES, OWN_FIRST, OWN_LAST, distinct, halo) == 0);
    const int64_t own = OWN_LAST - OWN_FIRST, width = own + distinct;
    for (int64_t h = 0; h < distinct; ++h) CHECK(others[halo[h]] && (h == 0 || halo[h - 1] < halo[h]));
    for (int i = 0; i < EDGES; ++i) {
        const int64_t local = keys[i] % width, column = local < own ? OWN_FIRST + local : halo[local - own];
        CHECK(keys[i] / width == before[i] / NODES && column == before[i] % NODES);
    }
    memcpy(keys, before, sizeof keys);
    CHECK(grinnder_prepare_localize(EDGES, keys, NODES, OWN_FIRST, OWN_LAST, distinct - 1, halo) == -ERANGE);
    CHECK(grinnder_prepare_localize(EDGES, keys, NODES, OWN_FIRST, OWN_LAST, distinct + 1, halo) == -ERANGE);
    CHECK(grinnder_prepare_localize(0, NULL, NODES, 0, NODES, 0, NULL) == 0);
    CHECK(grinnder_prepare_localize(EDGES, keys, NODES, OWN_LAST, OWN_FIRST, distinct, halo) == -EINVAL);
    keys[0] = -1;
    CHECK(grinnder_prepare_localize(EDGES, keys, NODES, OWN_FIRST, OWN_LAST, distinct, halo) == -ERANGE);
}

int main(void) {
    check_group();
    check_localize();
    return 0;
}
