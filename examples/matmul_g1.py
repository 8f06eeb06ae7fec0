"""G1: block-scaled numbers on GeForce Blackwell and GB10 (DGX Spark): nvfp4, by mma.sync."""

from blackwell_matmul import GeforceMatmulG1, Problem
from blackwell_matmul.harness import report
from blackwell_matmul.harness.calls.inputs import arguments_of

problem = Problem(512, 512, 512, "nvfp4")


def main() -> int:
    # Random elements, two in a byte, and random scales, in atoms of 128 rows and 4 blocks.
    m, n, k, a, b, scale_a, scale_b, c = arguments_of(problem, seed=0)

    matmul = GeforceMatmulG1()
    run = matmul(m, n, k, a, b, scale_a, scale_b, c)  # C[m, n] = (A[m, k] scales) @ (B[n, k] scales).T

    result = report(run, a, b, scale_a, scale_b, c)  # against float64, of the numbers that the bytes stand for
    print(result)
    return 0 if result.ok else 1


if __name__ == "__main__":
    raise SystemExit(main())
