/* Graph partitioning of grinnder: plain C ABI, no macros, so that cffi parses this file as it stands.
 *
 * Nodes are 0 .. nodes - 1; the neighbours of v are indices[indptr[v]] .. indices[indptr[v + 1] - 1]. Arrays stay the
 * caller's. Functions return 0 or -errno: -EINVAL for arguments that cannot be, -ERANGE for an index outside the
 * graph or an indptr that falls, -ENOMEM, -EIO (a fault in here), -ECANCELED after `stop`. The same call gives the same
 * bytes for any number of threads. */

/* What to do. */
typedef struct {
    int32_t parts;      /* 1 to 4096 */
    int32_t objective;  /* 0: own + halo rows (alpha); 1: switching-aware labels; 2: spinner */
    int32_t start;      /* of objective 0: 0 levels, 1 one stream over the nodes (less memory, worse) */
    int32_t max_rounds; /* of the refinement or of the labels, at least 1 */
    int32_t threads;    /* at least 1 */
    double balance;     /* most nodes of a part over the mean, at least 1 */
    double largest;     /* objective 0: most own + halo rows that refinement may gather in a part, over the most
                         * that it found; 0: no such bound */
    uint64_t seed;
} grinnder_partition_options;

/* Written by the call, read by any thread meanwhile; `stop` the other way round. Zero it before the call. */
typedef struct {
    int32_t stop;      /* not 0: give up within a second or so */
    int32_t phase;     /* 0 begun, 1 symmetric copy, 2 coarsening, 3 first parts, 4 cut, 5 halo, 6 labels, 7 done */
    int32_t level;     /* of coarsening and cut: 0 is the graph itself */
    int32_t rounds;    /* rounds of refinement or labels so far */
    double alpha;      /* mean own + halo rows over nodes, once known, else 0 */
    int64_t edges;     /* directed edges between different nodes, duplicates once, in both directions */
    int64_t rebuilt;   /* levels that were freed for memory and built a second time */
} grinnder_partition_progress;

/* Version of this interface. */
int grinnder_partition_version(void);

/* part[v] in 0 .. parts - 1, at most max(ceil(nodes / parts), balance * nodes / parts) nodes each; a part can be empty
 * where parts have but few nodes. Edges count in both directions and once; a graph that is not so already is copied
 * (8 bytes a node, 8 an edge). */
int grinnder_partition_run(int64_t nodes, int64_t edges, const int64_t *indptr, const int32_t *indices,
                           const grinnder_partition_options *options, int32_t *part,
                           grinnder_partition_progress *progress);
