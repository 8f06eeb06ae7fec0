"""The samples that torch tests its own operations with: ours beside torch's, in both directions."""

import hypothesis
import pytest
import torch

from blackwell_matmul import baddbmm, bmm, linear, matmul, scaled_mm

OURS = {"matmul": matmul, "bmm": bmm, "baddbmm": baddbmm, "nn.functional.linear": linear}


@pytest.fixture(scope="module")
def infos():
    """By name. Imported here, as it takes more than a second, and puts settings of its own in place of other tests'."""
    pytest.importorskip("expecttest", reason="torch's own samples need expecttest")
    profile = hypothesis.settings.get_current_profile_name()
    from torch.testing._internal.common_methods_invocations import op_db

    hypothesis.settings.load_profile(profile)
    return {each.name: each for each in op_db if not each.variant_test_name}


def samples(info, dtype):
    torch.manual_seed(0)
    return [((each.input, *each.args), each.kwargs) for each in info.sample_inputs("cpu", dtype)]


def with_gradients(operation, tensors, dtype, **rest):
    """The result, and the gradients of all tensors for one that is drawn."""
    leaves = [each.to(dtype).requires_grad_() for each in tensors]
    made = operation(*leaves, **rest)
    made.backward(torch.randn(made.shape, generator=torch.Generator().manual_seed(1)).half().to(dtype))
    return made.detach(), *(each.grad for each in leaves)


def assert_as_good(ours, torchs, exact):
    """At most twice torch's own error in the same types."""
    assert ours.shape == torchs.shape and ours.dtype == torchs.dtype
    error, allowed = ((each.double() - exact).abs().flatten().tolist() for each in (ours, torchs))
    assert max(error, default=0) <= 2 * max(allowed, default=0) + 1e-30


@pytest.mark.process
@pytest.mark.parametrize(
    "name, dtype, taken",
    [
        ("matmul", torch.float16, lambda tensors: True),
        ("bmm", torch.bfloat16, lambda tensors: True),
        ("baddbmm", torch.float16, lambda tensors: tensors[0].dim() != 1),
        ("nn.functional.linear", torch.bfloat16, lambda tensors: len(tensors) == 3 and tensors[0].shape[-1] < 8),
    ],
)
def test_torchs_samples(infos, name, dtype, taken):
    """taken: those with a bias, say, as the same come without; each new shape is a kernel to compile."""
    of_torch = torch.nn.functional.linear if name.endswith("linear") else getattr(torch, name)
    found = [each for each in samples(infos[name], dtype) if taken(each[0])]
    assert found
    for tensors, rest in found:
        exact = with_gradients(of_torch, tensors, torch.float64, **rest)
        torchs = with_gradients(of_torch, tensors, dtype, **rest)
        ours = with_gradients(OURS[name], tensors, dtype, simulate=True, **rest)
        for each in zip(ours, torchs, exact):
            assert_as_good(*each)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_torchs_samples_with_scales(infos, dtype):
    for (a, b, *scales), _ in samples(infos["torch._scaled_mm"], dtype):
        exact = a.double() @ b.double() * scales[0].double() * scales[1].double()
        assert_as_good(scaled_mm(a, b, *scales, simulate=True), exact.to(torch.bfloat16), exact)
