/* The three matrix products that MLX takes from a BLAS, for builds that compile MLX where no BLAS is installed: our
 * forwarding library (blas_forward.S) offers exactly these. Row-major constants are those of every CBLAS. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

enum CBLAS_ORDER { CblasRowMajor = 101, CblasColMajor = 102 };
enum CBLAS_TRANSPOSE { CblasNoTrans = 111, CblasTrans = 112, CblasConjTrans = 113 };

void cblas_sgemm(enum CBLAS_ORDER order, enum CBLAS_TRANSPOSE a_is, enum CBLAS_TRANSPOSE b_is, int m, int n, int k,
                 float alpha, const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);
void cblas_dgemm(enum CBLAS_ORDER order, enum CBLAS_TRANSPOSE a_is, enum CBLAS_TRANSPOSE b_is, int m, int n, int k,
                 double alpha, const double *a, int lda, const double *b, int ldb, double beta, double *c, int ldc);
void cblas_cgemm(enum CBLAS_ORDER order, enum CBLAS_TRANSPOSE a_is, enum CBLAS_TRANSPOSE b_is, int m, int n, int k,
                 const void *alpha, const void *a, int lda, const void *b, int ldb, const void *beta, void *c, int ldc);

#ifdef __cplusplus
}
#endif
