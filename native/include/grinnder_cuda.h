/* CUDA kernels of grinnder: plain C ABI, no macros, so that cffi parses this file as it stands.
 *
 * `stream` is a cudaStream_t (null: the default stream) of the calling thread's current device. Functions that take
 * one only put work on it and return; arrays must stay as they are until that work is done.
 * Every function returns 0, or -errno: -EINVAL for arguments that cannot be (a null pointer, a negative size), -ENOTSUP
 * where said, -EIO for an error of CUDA, whose text grinnder_cuda_error() then returns. Errors do not stay behind.
 * Arrays are row-major and contiguous, need only their element's alignment (16 bytes make most of them faster) and lie
 * where the device can reach them: its memory, or host memory that is pinned. Indices are not checked.
 * No sum uses atomics: results depend neither on the run nor on how rows are split into calls, except sums over the
 * rows of a call, which depend on those rows. */

/* Version of this interface. */
int grinnder_cuda_version(void);

/* Devices that this library can use; 0 without a driver, or with one that is too old: grinnder_cuda_error() says. */
int grinnder_cuda_devices(void);

/* Text of this thread's last error, "" if there was none (static storage). */
const char *grinnder_cuda_error(void);

/* Pin n bytes of memory that the caller has allocated, for every device; -ENOMEM where the system refuses. */
int grinnder_cuda_host_register(void *p, uint64_t n);
int grinnder_cuda_host_unregister(void *p);

/* Copy between any two memories, asynchronous where host memory is pinned. */
int grinnder_cuda_copy(void *dst, const void *src, uint64_t nbytes, void *stream);

/* n bytes of zeros, into the device's memory or pinned host memory. */
int grinnder_cuda_zero(void *p, uint64_t n, void *stream);

/* Collect rows of several sources: for every segment s and i in [0, count[s]), row first[s] + i of out becomes
 * row rows[first[s] + i] of source[s]; rows null: row i of source[s].
 *
 * source, first, count: host arrays of `segments` entries, free again when the call returns. The memories that source
 * names, rows and out are the device's, or pinned host memory. Segments must not overlap in out.
 * blocks:  size of the grid; 0: a small one, which keeps the bus busy and leaves the device to other kernels
 * variant: 0 the best known; 1 bulk copies through shared memory (0 where the device or the alignment has none);
 *          2 plain loads that ask the L2 cache for 256 bytes at a time. The result is the same. */
int grinnder_cuda_regather(int32_t segments, const void *const *source, const int64_t *first, const int64_t *count,
                           uint64_t row_bytes, const int32_t *rows, void *out, int blocks, int variant, void *stream);

/* out[i, :] = x[index[i], :] for rows of row_bytes bytes of any type. out must not overlap an input. */
int grinnder_cuda_gather_rows(int64_t rows, uint64_t row_bytes, const int32_t *index, const void *x, void *out,
                              void *stream);

/* target[index[i], :] += values[i, :]; index null: row i. No row twice in index; target may be pinned host memory. */
int grinnder_cuda_add_rows_f32(int64_t rows, int64_t width, const int32_t *index, const float *values, float *target,
                               void *stream);

/* out[r, :] = scale[r] * sum over e in [indptr[r], indptr[r + 1]) of weight[e] * row(indices[e])
 *
 * Arguments as of grinnder_cpu_spmm_f32. A row's sum has one order, which depends on its degree and on the width. */
int grinnder_cuda_spmm_f32(int64_t rows, int64_t edges, int64_t x_rows, int64_t halo_rows, int64_t width,
                           const int64_t *indptr, const int32_t *indices, const float *weight, const float *scale,
                           const float *x, const float *halo, float *out, void *stream);

/* Dropout in place as by grinnder_cpu_dropout_f32, bit by bit; `stream_word` is its `stream`. */
int grinnder_cuda_dropout_f32(int64_t rows, int64_t width, const int64_t *ids, uint32_t seed, uint32_t stream_word,
                              double p, float *x, void *stream);

/* What a GCN computes between two aggregations; arguments as of grinnder_cpu_norm_act_f32, hs and h may be z or skip
 * in the same way. -ENOTSUP where width is above 8192.
 *
 * added_word: null, or a word of device memory that is added to stream_word when the kernel runs: a launch that was
 * captured once serves every epoch. */
int grinnder_cuda_norm_act_f32(int64_t rows, int64_t width, const float *z, const float *bias, const float *gamma,
                               const float *beta, double eps, const float *skip, const float *scale,
                               const int64_t *ids, uint32_t seed, uint32_t stream_word, const uint32_t *added_word,
                               double p, float *hs, float *h, void *stream);

/* Its gradient; arguments as of grinnder_cpu_norm_act_grad_f32, dz and dskip may be g_hs or g_h in the same way.
 *
 * scratch: device memory for grinnder_cuda_norm_act_scratch(rows, width) floats, used by this call's work only; may be
 * null where dgamma, dbeta and dbias are. */
int grinnder_cuda_norm_act_grad_f32(int64_t rows, int64_t width, const float *z, const float *bias, const float *gamma,
                                    const float *beta, double eps, const float *skip, const float *scale,
                                    const int64_t *ids, uint32_t seed, uint32_t stream_word,
                                    const uint32_t *added_word, double p, const float *g_hs, const float *g_h, float *dz, float *dskip, float *dgamma,
                                    float *dbeta, float *dbias, float *scratch, void *stream);
int64_t grinnder_cuda_norm_act_scratch(int64_t rows, int64_t width);

/* Attention; arguments as of the functions grinnder_cpu_attention*_f32, word for word, masks bit by bit. Ids are not
 * checked. stream_word is their `stream`, added_word as of grinnder_cuda_norm_act_f32. A sum has one order, which
 * depends on the row's degree and on the channels. */
int grinnder_cuda_attention_scores_f32(int64_t rows, int64_t heads, int64_t channels, const float *y,
                                       const float *att_src, const float *att_dst, float *s, float *d, void *stream);
int grinnder_cuda_attention_f32(int64_t rows, int64_t edges, int64_t own_rows, int64_t halo_rows, int64_t heads,
                                int64_t channels, double slope, const int64_t *indptr, const int32_t *indices,
                                const float *y, const float *y_halo, const float *s, const float *s_halo,
                                const float *d, const int64_t *row_ids, const int64_t *ids, const int64_t *ids_halo,
                                uint32_t seed, uint32_t stream_word, const uint32_t *added_word, double p, float *out,
                                float *lse, float *big_q, float *q, void *stream);
int grinnder_cuda_attention_settle_f32(int64_t rows, int64_t heads, int64_t channels, const float *g, const float *out,
                                       const float *big_q, const float *q, const float *d, const float *lse,
                                       float *edge, float *dd, void *stream);
int grinnder_cuda_attention_grad_f32(int64_t rows, int64_t edges, int64_t own_rows, int64_t halo_rows, int64_t heads,
                                     int64_t channels, double slope, const int64_t *indptr, const int32_t *indices,
                                     const float *g, const float *g_halo, const float *edge, const float *edge_halo,
                                     const float *y, const float *s, const float *dd, const float *att_src,
                                     const float *att_dst, const int64_t *row_ids, const int64_t *ids,
                                     const int64_t *ids_halo, uint32_t seed, uint32_t stream_word,
                                     const uint32_t *added_word, double p, float *dy, float *ds, void *stream);
