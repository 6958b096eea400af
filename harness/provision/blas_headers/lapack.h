/* The LAPACK routines that MLX calls, for builds that compile MLX where no LAPACK is installed. Fortran passes the
 * lengths of text arguments behind all others; a macro adds them, in the form in which MLX looks for such macros
 * (`LAPACK_name`, told by `LAPACK_GLOBAL`). MLX's own header defines the complex types before it includes this one. */
#pragma once

#include <stddef.h>

#define LAPACK_GLOBAL(name, NAME) name##_

#define REGRAFT_REAL(T, P)                                                                                              \
    void P##geqrf_(const int *m, const int *n, T *a, const int *lda, T *tau, T *work, const int *lwork, int *info);     \
    void P##orgqr_(const int *m, const int *n, const int *k, T *a, const int *lda, const T *tau, T *work,               \
                   const int *lwork, int *info);                                                                        \
    void P##getrf_(const int *m, const int *n, T *a, const int *lda, int *ipiv, int *info);                             \
    void P##getri_(const int *n, T *a, const int *lda, const int *ipiv, T *work, const int *lwork, int *info);          \
    void P##potrf_(const char *uplo, const int *n, T *a, const int *lda, int *info, size_t);                            \
    void P##trtri_(const char *uplo, const char *diag, const int *n, T *a, const int *lda, int *info, size_t, size_t);  \
    void P##syevd_(const char *jobz, const char *uplo, const int *n, T *a, const int *lda, T *w, T *work,               \
                   const int *lwork, int *iwork, const int *liwork, int *info, size_t, size_t);                         \
    void P##geev_(const char *jobvl, const char *jobvr, const int *n, T *a, const int *lda, T *wr, T *wi, T *vl,        \
                  const int *ldvl, T *vr, const int *ldvr, T *work, const int *lwork, int *info, size_t, size_t);       \
    void P##gesdd_(const char *jobz, const int *m, const int *n, T *a, const int *lda, T *s, T *u, const int *ldu,      \
                   T *vt, const int *ldvt, T *work, const int *lwork, int *iwork, int *info, size_t);

#ifdef __cplusplus
extern "C" {
#endif

REGRAFT_REAL(float, s)
REGRAFT_REAL(double, d)

void cheevd_(const char *jobz, const char *uplo, const int *n, lapack_complex_float *a, const int *lda, float *w,
             lapack_complex_float *work, const int *lwork, float *rwork, const int *lrwork, int *iwork,
             const int *liwork, int *info, size_t, size_t);
void cgeev_(const char *jobvl, const char *jobvr, const int *n, lapack_complex_float *a, const int *lda,
            lapack_complex_float *w, lapack_complex_float *vl, const int *ldvl, lapack_complex_float *vr,
            const int *ldvr, lapack_complex_float *work, const int *lwork, float *rwork, int *info, size_t, size_t);
void cgesdd_(const char *jobz, const int *m, const int *n, lapack_complex_float *a, const int *lda, float *s,
             lapack_complex_float *u, const int *ldu, lapack_complex_float *vt, const int *ldvt,
             lapack_complex_float *work, const int *lwork, float *rwork, int *iwork, int *info, size_t);

#ifdef __cplusplus
}
#endif

#undef REGRAFT_REAL

#define LAPACK_sgeqrf sgeqrf_
#define LAPACK_dgeqrf dgeqrf_
#define LAPACK_sorgqr sorgqr_
#define LAPACK_dorgqr dorgqr_
#define LAPACK_sgetrf sgetrf_
#define LAPACK_dgetrf dgetrf_
#define LAPACK_sgetri sgetri_
#define LAPACK_dgetri dgetri_
#define LAPACK_spotrf(...) spotrf_(__VA_ARGS__, 1)
#define LAPACK_dpotrf(...) dpotrf_(__VA_ARGS__, 1)
#define LAPACK_strtri(...) strtri_(__VA_ARGS__, 1, 1)
#define LAPACK_dtrtri(...) dtrtri_(__VA_ARGS__, 1, 1)
#define LAPACK_ssyevd(...) ssyevd_(__VA_ARGS__, 1, 1)
#define LAPACK_dsyevd(...) dsyevd_(__VA_ARGS__, 1, 1)
#define LAPACK_cheevd(...) cheevd_(__VA_ARGS__, 1, 1)
#define LAPACK_sgeev(...) sgeev_(__VA_ARGS__, 1, 1)
#define LAPACK_dgeev(...) dgeev_(__VA_ARGS__, 1, 1)
#define LAPACK_cgeev(...) cgeev_(__VA_ARGS__, 1, 1)
#define LAPACK_sgesdd(...) sgesdd_(__VA_ARGS__, 1)
#define LAPACK_dgesdd(...) dgesdd_(__VA_ARGS__, 1)
#define LAPACK_cgesdd(...) cgesdd_(__VA_ARGS__, 1)
