/* Preparation of graphs for grinnder: integers only, plain C ABI, no macros, so that cffi parses this file as it stands.
 *
 * Every function returns 0, or -errno: -EINVAL for arguments that cannot be, -ERANGE for an entry outside the range it
 * must lie in (outputs are then undefined), -ENOMEM. Arrays are contiguous, need only their element's alignment and
 * stay the caller's. No result depends on `threads`.
 *
 * A key is one edge as row * columns + column. `weight` may be null; weight_bytes is then 0, else 2, 4 or 8. */

/* Version of this interface. */
int grinnder_prepare_version(void);

/* Brings edges of one group together: group g's lie at offsets[g] to offsets[g + 1] of the outputs, in input order.
 *
 * group: [count], in 0..groups-1; offsets: [groups + 1]; keys_out, weight_out: [count], not overlapping an input. */
int grinnder_prepare_group(int64_t count, int64_t groups, const int32_t *group, const int64_t *keys, int weight_bytes,
                           const void *weight, int64_t *offsets, int64_t *keys_out, void *weight_out);

/* Edges in any order -> rows: sorted by (row, column), equal edges in input order.
 *
 * keys:        rows first_row to first_row + rows - 1; not changed
 * unique:      of equal edges only the last stays
 * row_counts:  [rows], edges of each row are added to it
 * indices:     [count], the columns, int32 or int64 by index_bytes; as many as kept are meaningful, of weight_out too
 * kept, loops: how many edges stay, and how many of them have row == column
 * Scratch made inside: 8 bytes per row. */
int grinnder_prepare_rows(int64_t count, const int64_t *keys, int64_t columns, int64_t first_row, int64_t rows,
                          int weight_bytes, const void *weight, int unique, int index_bytes, int64_t *row_counts,
                          void *indices, void *weight_out, int64_t *kept, int64_t *loops, int threads);

/* Columns of a whole graph -> columns of one part, in place: own ones (first to last - 1) become 0 to own - 1, the
 * others own + their rank among the distinct others, which `halo` receives, ascending.
 *
 * keys: row * nodes + column before, row * (own + halo_rows) + column after
 * halo_rows: how many distinct others there are; -ERANGE where it is not so
 * Scratch made inside: nodes / 5 bytes. */
int grinnder_prepare_localize(int64_t count, int64_t *keys, int64_t nodes, int64_t first, int64_t last,
                              int64_t halo_rows, int64_t *halo);

/* What parts have to do with each other, over the edges of rows first_row to last_row - 1 that are no self loops.
 *
 * indptr: [nodes + 1]; indices (int32 or int64), weight: whole arrays, of which these rows are read
 * assign:    [nodes], the part of each node, in 0..parts-1
 * boundary:  [nodes], set to 1 for both ends of an edge between parts
 * edges_in, edges_out: [parts], edges into and out of each part's rows are added
 * halo_out:  [parts, parts], (owner of a source, owner of a destination): distinct destinations are added
 * marks:     [4], order-free sums over the edges (two) and over the same edges turned round (two) are added; cut too
 * A row must not be split between calls. */
int grinnder_prepare_describe(int64_t nodes, int64_t parts, int64_t first_row, int64_t last_row, const int64_t *indptr,
                              int index_bytes, const void *indices, int weight_bytes, const void *weight,
                              const int32_t *assign, uint8_t *boundary, int64_t *edges_in, int64_t *edges_out,
                              int64_t *halo_out, uint64_t *marks, int64_t *cut, int threads);

/* Which of the parts first_part to first_part + 63 read each node from another part: bit p - first_part of masks.
 *
 * Rows as above, in any split; masks: [nodes], bits are added. */
int grinnder_prepare_readers(int64_t nodes, int64_t first_part, int64_t first_row, int64_t last_row,
                             const int64_t *indptr, int index_bytes, const void *indices, const int32_t *assign,
                             uint64_t *masks, int threads);

/* Adds what the masks say to halo_in, [parts, parts]: (reader, owner of the node). */
int grinnder_prepare_count_readers(int64_t nodes, int64_t parts, int64_t first_part, const uint64_t *masks,
                                   const int32_t *assign, int64_t *halo_in);
