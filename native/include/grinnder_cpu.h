/* CPU kernels of grinnder: plain C ABI, no macros, so that cffi parses this file as it stands.
 *
 * Every function returns 0, or -errno: -EINVAL for arguments that cannot be (a null pointer, a negative size),
 * -ERANGE for an index outside the array it points into (the output is then undefined), -ENOMEM.
 * Arrays are row-major and contiguous, need only their element's alignment and stay the caller's.
 * `threads` is the size of the OpenMP team; 1 where the library was built without OpenMP.
 * Sums run in edge order within one row, so results do not depend on `threads` or on how rows are split into calls. */

/* Version of this interface. */
int grinnder_cpu_version(void);

/* Instruction set the kernels use on this machine: "base", "avx2" or "avx512" (static storage). */
const char *grinnder_cpu_isa(void);

/* Use another instruction set than the detected one (tests, benchmarks); null: detect again.
 * -ENOTSUP where this machine or build lacks it. Not safe while a kernel runs. */
int grinnder_cpu_set_isa(const char *name);

/* 1 if the library was built with OpenMP, else 0. */
int grinnder_cpu_has_openmp(void);

/* out[r, :] = scale[r] * sum over e in [indptr[r], indptr[r + 1]) of weight[e] * row(indices[e])
 *
 * rows:    rows of out; indptr has rows + 1 non-decreasing entries, indptr[0] may be > 0 (a slice of a larger graph)
 * edges:   length of indices (and of weight)
 * x_rows, halo_rows: rows of the operand's two pieces: row(i) is x[i, :] for i < x_rows, else halo[i - x_rows, :]
 * width:   columns of x, halo and out
 * weight, scale: may be null (all ones); halo: may be null if halo_rows is 0. out must not overlap an input. */
int grinnder_cpu_spmm_f32(int64_t rows, int64_t edges, int64_t x_rows, int64_t halo_rows, int64_t width,
                          const int64_t *indptr, const int32_t *indices, const float *weight, const float *scale,
                          const float *x, const float *halo, float *out, int threads);
int grinnder_cpu_spmm_f64(int64_t rows, int64_t edges, int64_t x_rows, int64_t halo_rows, int64_t width,
                          const int64_t *indptr, const int32_t *indices, const double *weight, const double *scale,
                          const double *x, const double *halo, double *out, int threads);

/* out[i, :] = x[index[i], :] for rows of row_bytes bytes of any type. out must not overlap an input. */
int grinnder_cpu_gather_rows(int64_t rows, int64_t x_rows, uint64_t row_bytes, const int32_t *index, const void *x,
                             void *out, int threads);

/* In place: x[i, j] = word(i, j) >= floor(p * 2^32) ? x[i, j] * (1 / (1 - p)) : 0, with p in [0, 1).
 *
 * word(i, j) is output j % 4 of Philox4x32-10 with key (seed, stream) and counter
 * (low half of ids[i], high half of ids[i], j / 4, 0): the mask of an element depends on its node id and column only.
 * The gradient's mask is the same call on the gradient. */
int grinnder_cpu_dropout_f32(int64_t rows, int64_t width, const int64_t *ids, uint32_t seed, uint32_t stream,
                             double p, float *x, int threads);
int grinnder_cpu_dropout_f64(int64_t rows, int64_t width, const int64_t *ids, uint32_t seed, uint32_t stream,
                             double p, double *x, int threads);

/* What a GCN computes between two aggregations, row by row (m, n and a are never stored):
 *
 *     m = z + bias;  n = gamma * (m - mean(m)) / sqrt(var(m) + eps) + beta;  a = n + skip
 *     h = max(a, 0), then dropout as above;  hs = scale[r] * h
 *
 * z, skip, hs, h: [rows, width]; bias, gamma, beta: [width]; scale, ids: [rows]; var divides by width.
 * bias, skip, scale, beta: may be null (0, 0, 1, 0). gamma null: no norm, n = m; beta is then null too.
 * ids: may be null if p = 0. h: null where it is not wanted.
 * hs or h may be z or skip itself; no other overlap of an output with anything is allowed, here or below. */
int grinnder_cpu_norm_act_f32(int64_t rows, int64_t width, const float *z, const float *bias, const float *gamma,
                              const float *beta, double eps, const float *skip, const float *scale,
                              const int64_t *ids, uint32_t seed, uint32_t stream, double p, float *hs, float *h,
                              int threads);
int grinnder_cpu_norm_act_f64(int64_t rows, int64_t width, const double *z, const double *bias, const double *gamma,
                              const double *beta, double eps, const double *skip, const double *scale,
                              const int64_t *ids, uint32_t seed, uint32_t stream, double p, double *hs, double *h,
                              int threads);

/* Its gradient, from the same inputs: everything in between is computed again.
 *
 * g_hs, g_h: gradients at hs and h [rows, width]; null: zero.
 * dz, dskip: [rows, width]; dgamma, dbeta, dbias: [width], overwritten by the sums over the rows of this call; each
 * may be null where it is not wanted (dgamma and dbeta must be, without gamma). No gradient passes where a <= 0.
 * dz or dskip may be g_hs or g_h itself.
 * Sums over rows: blocks of 256 rows, then the blocks in their order. Scratch made inside: about 3 / 256 of z. */
int grinnder_cpu_norm_act_grad_f32(int64_t rows, int64_t width, const float *z, const float *bias, const float *gamma,
                                   const float *beta, double eps, const float *skip, const float *scale,
                                   const int64_t *ids, uint32_t seed, uint32_t stream, double p, const float *g_hs,
                                   const float *g_h, float *dz, float *dskip, float *dgamma, float *dbeta,
                                   float *dbias, int threads);
int grinnder_cpu_norm_act_grad_f64(int64_t rows, int64_t width, const double *z, const double *bias,
                                   const double *gamma, const double *beta, double eps, const double *skip,
                                   const double *scale, const int64_t *ids, uint32_t seed, uint32_t stream, double p,
                                   const double *g_hs, const double *g_h, double *dz, double *dskip, double *dgamma,
                                   double *dbeta, double *dbias, int threads);

/* Scores of GAT's edges, per node and head: s[r, h] = <y[r, h, :], att_src[h, :]>, d with att_dst alike.
 *
 * y: [rows, heads * channels]; att_src, att_dst: [heads, channels]; s, d: [rows, heads]; att_dst and d may be null,
 * both. A row's bits depend on the row alone: whoever holds a copy of it gets the same. */
int grinnder_cpu_attention_scores_f32(int64_t rows, int64_t heads, int64_t channels, const float *y,
                                      const float *att_src, const float *att_dst, float *s, float *d, int threads);
int grinnder_cpu_attention_scores_f64(int64_t rows, int64_t heads, int64_t channels, const double *y,
                                      const double *att_src, const double *att_dst, double *s, double *d, int threads);

/* GAT's attention over in-edges. Row r of the call is node v, edge e comes from row u = indices[e] of the operand:
 *
 *     x = s[u, h] + d[v, h];  leaky = x > 0 ? x : slope * x;  slopes: leaky' = x > 0 ? 1 : slope
 *     lse[v, h] = log(sum of exp(leaky));  alpha = exp(leaky - lse)
 *     out[v, h, :] = sum of alpha * mask * y[u, h, :]     big_q[v, h, :] = sum of alpha * mask * leaky' * y[u, h, :]
 *     q[v, h] = sum of alpha * leaky'
 *
 * rows, edges, indptr, indices: as of grinnder_cpu_spmm_f32; a row without edges gets zeros
 * own_rows, halo_rows: rows of the operand's two pieces, [y | y_halo] and [s | s_halo]; pieces of no rows may be null
 * y: [., heads * channels]; s: [., heads]; d: [rows, heads]; slope > 0
 * big_q, q: what backward needs; may be null, both
 * mask: 1 if p = 0 (ids may then be null), else word >= floor(p * 2^32) ? 1 / (1 - p) : 0, where word is output 0 of
 * Philox4x32-10 with key (seed, stream) and counter (source id, destination id, occurrence, h). row_ids: of the rows,
 * ids and ids_halo: of the operand's rows, each below 2^32, else -EOVERFLOW. An edge's occurrence is the number of
 * equal edges before it in its row; equal ones must be neighbours. */
int grinnder_cpu_attention_f32(int64_t rows, int64_t edges, int64_t own_rows, int64_t halo_rows, int64_t heads,
                               int64_t channels, double slope, const int64_t *indptr, const int32_t *indices,
                               const float *y, const float *y_halo, const float *s, const float *s_halo, const float *d,
                               const int64_t *row_ids, const int64_t *ids, const int64_t *ids_halo, uint32_t seed,
                               uint32_t stream, double p, float *out, float *lse, float *big_q, float *q, int threads);
int grinnder_cpu_attention_f64(int64_t rows, int64_t edges, int64_t own_rows, int64_t halo_rows, int64_t heads,
                               int64_t channels, double slope, const int64_t *indptr, const int32_t *indices,
                               const double *y, const double *y_halo, const double *s, const double *s_halo,
                               const double *d, const int64_t *row_ids, const int64_t *ids, const int64_t *ids_halo,
                               uint32_t seed, uint32_t stream, double p, double *out, double *lse, double *big_q,
                               double *q, int threads);

/* What backward needs to know about a destination, once the gradient g at out is known, row by row:
 *
 *     delta = <g[h, :], out[h, :]>;  edge[r, :] = (d[r, :] | lse[r, :] | delta);  dd[r, h] = <g, big_q> - delta * q
 *
 * g, out, big_q: [rows, heads * channels]; edge: [rows, 3 * heads]; the others [rows, heads]. dd: the gradient at d. */
int grinnder_cpu_attention_settle_f32(int64_t rows, int64_t heads, int64_t channels, const float *g, const float *out,
                                      const float *big_q, const float *q, const float *d, const float *lse, float *edge,
                                      float *dd, int threads);
int grinnder_cpu_attention_settle_f64(int64_t rows, int64_t heads, int64_t channels, const double *g, const double *out,
                                      const double *big_q, const double *q, const double *d, const double *lse,
                                      double *edge, double *dd, int threads);

/* The gradient of attention, pulled along out-edges. Row r of the call is node u, edge e goes to row v = indices[e] of
 * the operand, with d, lse and delta in edge[v, :]:
 *
 *     alpha = exp(leaky(s[u, h] + d) - lse)
 *     ds[u, h] = sum of alpha * leaky' * (mask * <y[u, h, :], g[v, h, :]> - delta)
 *     dy[u, h, :] = sum of alpha * mask * g[v, h, :] + ds[u, h] * att_src[h, :] + dd[u, h] * att_dst[h, :]
 *
 * g, g_halo: [., heads * channels]; edge, edge_halo: [., 3 * heads], as grinnder_cpu_attention_settle_f32 made them
 * y, dy: [rows, heads * channels]; s, dd, ds: [rows, heads]. The rest as above; here row_ids are sources. */
int grinnder_cpu_attention_grad_f32(int64_t rows, int64_t edges, int64_t own_rows, int64_t halo_rows, int64_t heads,
                                    int64_t channels, double slope, const int64_t *indptr, const int32_t *indices,
                                    const float *g, const float *g_halo, const float *edge, const float *edge_halo,
                                    const float *y, const float *s, const float *dd, const float *att_src,
                                    const float *att_dst, const int64_t *row_ids, const int64_t *ids,
                                    const int64_t *ids_halo, uint32_t seed, uint32_t stream, double p, float *dy,
                                    float *ds, int threads);
int grinnder_cpu_attention_grad_f64(int64_t rows, int64_t edges, int64_t own_rows, int64_t halo_rows, int64_t heads,
                                    int64_t channels, double slope, const int64_t *indptr, const int32_t *indices,
                                    const double *g, const double *g_halo, const double *edge, const double *edge_halo,
                                    const double *y, const double *s, const double *dd, const double *att_src,
                                    const double *att_dst, const int64_t *row_ids, const int64_t *ids,
                                    const int64_t *ids_halo, uint32_t seed, uint32_t stream, double p, double *dy,
                                    double *ds, int threads);

/* out[0..4) = Philox4x32-10 of counter[0..4) and key[0..2). */
int grinnder_cpu_philox(const uint32_t *counter, const uint32_t *key, uint32_t *out);
