"""On a GPU: fused attention stays close to the truth, gradients repeat bit for bit, and graphs change nothing."""

import gc
import os
import threading

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS starts; needed for reproducibility

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from tiny_experts import FixedRouting, decoded, error
from tiny_groups import TinyPrompt, gradients, nonlinear_loss, repeated_batch, three_groups
from tiny_models import build_model
from vcsd.models.family import family_of
from vcsd.models.packed.packing import Group
from vcsd.models.qwen import fused
from vcsd.models.score import hidden_states, with_pixels_on
from vcsd.rollout import decoder
from vcsd.rollout.engine import TransformersEngine
from vcsd.rollout.sampling import Sampling

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
FAMILIES = ["qwen3_vl", "qwen3_5"]
MOE = ["qwen3_vl_moe", "qwen3_5_moe"]


def on_gpu(family: str, dtype: torch.dtype) -> PreTrainedModel:
    model = build_model(family).to("cuda", dtype).train()
    family_of(model).prepare(model)
    return model


def scored(model: PreTrainedModel, groups: list[Group]) -> tuple[Tensor, Tensor]:
    hidden = hidden_states(model, groups)
    nonlinear_loss(hidden.float()).backward()
    return hidden.detach().double().cpu(), flat(gradients(model))


def flat(grads: dict[str, Tensor]) -> Tensor:
    return torch.cat([grads[name].double().cpu().flatten() for name in sorted(grads)])


def repeated(family: str, groups: list[Group], dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Hidden states and gradients of the repeated batch, on the CPU."""
    model = build_model(family).to(dtype).train()
    hidden = torch.cat(repeated_batch(model, groups, family))
    nonlinear_loss(hidden if dtype == torch.float64 else hidden.float()).backward()
    return hidden.detach().double(), flat(gradients(model))


@pytest.mark.parametrize("family", FAMILIES)
def test_scores_and_gradients_in_float32_are_close_to_the_truth(family: str) -> None:
    groups = three_groups(family)
    for mine, true in zip(scored(on_gpu(family, torch.float32), groups), repeated(family, groups), strict=True):
        assert (mine - true).norm() / true.norm() < 1e-3  # convolutions round to TF32


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("dtype", "autocast"), [(torch.float32, True), (torch.bfloat16, False)])
def test_scores_and_gradients_in_bfloat16_are_as_close_to_the_truth_as_the_repeated_batch(
    family: str, dtype: torch.dtype, autocast: bool
) -> None:
    groups = three_groups(family)
    with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
        found = scored(on_gpu(family, dtype), groups)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        plain = repeated(family, groups, dtype)
    for mine, other, true in zip(found, plain, repeated(family, groups), strict=True):
        assert (mine - true).norm() < 1.3 * (other - true).norm()


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_repeat_bit_for_bit_with_deterministic_algorithms(family: str) -> None:
    model, groups = on_gpu(family, torch.bfloat16), three_groups(family)
    torch.use_deterministic_algorithms(True)
    try:
        first, second = scored(model, groups), scored(model, groups)
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(first[1], second[1])


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_repeat_closely_without(family: str) -> None:
    model, groups = on_gpu(family, torch.bfloat16), three_groups(family)
    first, second = scored(model, groups), scored(model, groups)
    assert (first[1] - second[1]).norm() / first[1].norm() < 1e-2


@pytest.mark.parametrize("family", FAMILIES)
def test_a_graph_gives_the_logits_of_plain_decoding(family: str) -> None:
    model = on_gpu(family, torch.float32).eval()
    groups = three_groups(family)
    prompt_R = torch.tensor([0, 0, 1, 2], device="cuda")
    forced = torch.randint(1, 200, (150, 4), device="cuda")
    logits: dict[bool, list[Tensor]] = {}
    with torch.no_grad():
        for use_graph in (False, True):
            decoding = decoder.prefill(model, [group.prompt for group in groups])
            decoding.fork(prompt_R, 150, use_graph=use_graph)
            logits[use_graph] = [decoding.step(token).clone() for token in forced[:80]]
            decoding.keep(torch.tensor([0, 2], device="cuda"))
            logits[use_graph] += [decoding.step(token[:2]).clone() for token in forced[80:]]
            assert use_graph == (decoding.graphed is not None and decoding.graphed.is_recorded)
    for plain, graphed in zip(logits[False], logits[True], strict=True):
        torch.testing.assert_close(graphed, plain, rtol=1e-3, atol=1e-3)


def test_recording_survives_garbage_collection_and_other_threads() -> None:
    """Old graphs lie in rings, for the collector to find, and a thread asks for pinned memory all the time."""
    model, stop = on_gpu("qwen3_vl", torch.float32).eval(), threading.Event()
    engine = TransformersEngine(model, use_graph=True)
    prompts = [group.prompt for group in three_groups("qwen3_vl")]

    num_read = 0

    def reads_ahead() -> None:
        nonlocal num_read
        while not stop.is_set():
            torch.randn(1000).pin_memory().to("cuda", non_blocking=True)
            num_read += 1

    def leave_a_graph_behind() -> None:
        ring: list[object] = [torch.cuda.CUDAGraph(), torch.empty(1000, device="cuda")]
        with torch.cuda.graph(ring[0], capture_error_mode="thread_local"):
            ring.append(ring[1] + 1)
        ring.append(ring)

    thread, thresholds = threading.Thread(target=reads_ahead), gc.get_threshold()
    thread.start()
    try:
        for seed in range(8):
            gc.set_threshold(100_000)
            leave_a_graph_behind()
            gc.set_threshold(30, 1, 1)
            engine.sample(prompts, Sampling(max_new_tokens=12), num_rollouts=4, seed=seed)
        assert thread.is_alive()
        assert num_read > 0
    finally:
        gc.set_threshold(*thresholds)
        stop.set()
        thread.join()


@pytest.mark.parametrize("use_graph", [False, True])
def test_rollouts_run_under_autocast(use_graph: bool) -> None:
    model = on_gpu("qwen3_vl", torch.float32)
    prompts: list[TinyPrompt] = [group.prompt for group in three_groups("qwen3_vl")]
    engine = TransformersEngine(model, compute_dtype=torch.bfloat16, use_graph=use_graph)
    sampling = Sampling(max_new_tokens=100, top_p=0.9, presence_penalty=0.5)
    rollouts = engine.sample(prompts, sampling, num_rollouts=8, seed=0).rollouts
    assert len(rollouts) == 24
    assert model.training


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("home", ["cpu", "cuda"])
def test_scoring_never_waits_for_the_device(family: str, home: str) -> None:
    model = on_gpu(family, torch.bfloat16).eval()
    (groups,) = with_pixels_on(torch.device(home), three_groups(family))
    with torch.no_grad():
        hidden_states(model, groups)  # kernels are compiled, and tables of grids sent
        torch.cuda.set_sync_debug_mode("error")
        try:
            hidden_states(model, groups)
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.filterwarnings("ignore:decoding steps wait for the device")  # eager experts do
@pytest.mark.parametrize("family", MOE)
@pytest.mark.parametrize("experts", ["eager", "grouped_mm"])
def test_steps_with_experts_are_recorded_unless_they_wait(
    family: str, experts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Experts in a Python loop ask the device which of them are needed; a grouped product does not.

    Both paths are compared with float32 at its routing: a step of a wrong graph is off by about half its size.
    """
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    half, single = on_gpu(family, torch.bfloat16).eval(), on_gpu(family, torch.bfloat16).eval().float()
    half.set_experts_implementation(experts)
    prompts = [group.prompt for group in three_groups(family)]
    forced, routing = torch.randint(1, 200, (20, 6), device="cuda"), FixedRouting()
    true, _ = decoded(single, prompts, forced, routing)
    plain, _ = decoded(half, prompts, forced, routing)
    graphed, decoding = decoded(half, prompts, forced, routing, use_graph=True)
    assert decoding.graphed is not None
    assert decoding.graphed.is_recorded == (experts == "grouped_mm")
    assert error(graphed, true) < 1.5 * error(plain, true)
    assert max(error(mine, right) for mine, right in zip(graphed, true, strict=True)) < 0.2


@pytest.mark.parametrize("family", MOE)
def test_scores_of_experts_are_close_to_the_truth(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # a rounded image may ask other experts
    groups = three_groups(family)
    for mine, true in zip(scored(on_gpu(family, torch.float32), groups), repeated(family, groups), strict=True):
        assert (mine - true).norm() / true.norm() < 1e-3


def test_a_batch_that_does_not_fit_while_it_is_recorded_is_halved() -> None:
    model = on_gpu("qwen3_vl", torch.float32).eval()
    prompts = [group.prompt for group in three_groups("qwen3_vl")]
    engine = TransformersEngine(model, use_graph=True)
    sampling = Sampling(temperature=0, max_new_tokens=12)
    expected = engine.sample(prompts, sampling, num_rollouts=4, seed=0).rollouts
    sizes: list[int] = []

    def tight(module: object, args: object, inputs: dict[str, Tensor]) -> None:
        if torch.cuda.is_current_stream_capturing():
            sizes.append(len(inputs["input_ids"]))
            if sizes[-1] > 4:
                raise torch.OutOfMemoryError("no room")

    handle = model.register_forward_pre_hook(tight, with_kwargs=True)
    try:
        assert engine.sample(prompts, sampling, num_rollouts=4, seed=0).rollouts == expected
    finally:
        handle.remove()
    assert sizes[0] == 12
    assert max(sizes[1:]) == 4


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("use_graph", [False, True])
def test_decoding_by_kernels_is_close_to_transformers_own(
    family: str, use_graph: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # patches are convolved or multiplied
    model = on_gpu(family, torch.float32).eval()
    prompts = [group.prompt for group in three_groups(family)]
    forced = torch.randint(1, 200, (30, 4), device="cuda")
    logits: dict[bool, list[Tensor]] = {}
    with torch.no_grad():
        for fuse in (False, True):
            monkeypatch.setattr(fused, "FUSE", fuse)
            decoding = decoder.prefill(model, prompts)
            decoding.fork(torch.tensor([0, 0, 1, 2], device="cuda"), 30, use_graph=use_graph)
            logits[fuse] = [decoding.logits, *(decoding.step(token).clone() for token in forced)]
    for plain, mine in zip(logits[False], logits[True], strict=True):
        torch.testing.assert_close(mine, plain, rtol=1e-3, atol=1e-3)
