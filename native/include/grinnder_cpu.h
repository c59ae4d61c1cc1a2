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

/* out[0..4) = Philox4x32-10 of counter[0..4) and key[0..2). */
int grinnder_cpu_philox(const uint32_t *counter, const uint32_t *key, uint32_t *out);
