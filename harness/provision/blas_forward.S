/* BLAS and LAPACK under their plain names, for programs that were linked to a slow copy of them: every function jumps to
 * its namesake in scipy-openblas32, which carries the prefix `scipy_`. Loaded first (LD_PRELOAD) on Linux.
 * The list is what libmlx imports; `nm -D --undefined-only libmlx.so` shows it. */

#if defined(__x86_64__)
#define FORWARD(name)                                                                                                  \
    .globl name;                                                                                                       \
    .type name, @function;                                                                                             \
    name: jmp scipy_##name@PLT;                                                                                        \
    .size name, .- name;
#elif defined(__aarch64__)
#define FORWARD(name)                                                                                                  \
    .globl name;                                                                                                       \
    .type name, %function;                                                                                             \
    name: b scipy_##name;                                                                                              \
    .size name, .- name;
#else
#error "no trampoline for this processor"
#endif

    .text
FORWARD(cblas_cgemm)
FORWARD(cblas_dgemm)
FORWARD(cblas_sgemm)
FORWARD(cgeev_)
FORWARD(cgesdd_)
FORWARD(cheevd_)
FORWARD(dgeev_)
FORWARD(dgeqrf_)
FORWARD(dgesdd_)
FORWARD(dgetrf_)
FORWARD(dgetri_)
FORWARD(dorgqr_)
FORWARD(dpotrf_)
FORWARD(dsyevd_)
FORWARD(dtrtri_)
FORWARD(sgeev_)
FORWARD(sgeqrf_)
FORWARD(sgesdd_)
FORWARD(sgetrf_)
FORWARD(sgetri_)
FORWARD(sorgqr_)
FORWARD(spotrf_)
FORWARD(ssyevd_)
FORWARD(strtri_)

    .section .note.GNU-stack, "", %progbits
