"""Code that runs inside a wrapped model's forward: gradients under FSDP2 equal those of the plain model."""

from collections.abc import Iterator
from functools import partial

import pytest
import torch
import torch.distributed as dist
from accelerate.hooks import ModelHook, add_hook_to_module
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from tiny_groups import short_groups, three_groups
from tiny_models import build_model, shallow
from tiny_shards import loss, shard
from vcsd.models.family import family_of
from vcsd.models.inside import inside, with_head
from vcsd.models.qwen import fused


@pytest.fixture
def one_rank(tmp_path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def all_gradients(model: nn.Module) -> Tensor:
    return torch.cat([_local(p.grad).float().flatten() for p in model.parameters() if p.grad is not None])


def _local(x: Tensor) -> Tensor:
    return x.to_local() if hasattr(x, "to_local") else x


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_5"])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_sharded_model_gives_the_gradients_of_the_plain_one(
    one_rank: None, family: str, tied: bool, dtype: torch.dtype
) -> None:
    groups = three_groups(family)
    plain, sharded = (build_model(family, tie_word_embeddings=tied).train() for _ in range(2))
    for model in (plain, sharded):
        family_of(model).prepare(model)
    mesh = dist.device_mesh.init_device_mesh("cpu", (1,))
    policy = MixedPrecisionPolicy(dtype, torch.float32)  # with a compute type, FSDP2 copies dataclasses at every layer
    shard(sharded, mesh, *(() if tied else (sharded.lm_head, sharded.model.visual)), mp_policy=policy)
    for model in (plain, sharded):
        model.gradient_checkpointing_enable()
        for _ in range(2):
            model.zero_grad()
            inside(model, partial(loss, groups=groups)).backward()
    expected, found = all_gradients(plain), all_gradients(sharded)
    tolerance = 1e-3 if dtype == torch.float32 else 0.2
    assert (found - expected).norm() / expected.norm() < tolerance


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_5"])
def test_fused_layers_recompute_what_they_computed_though_fsdp2_casts_arguments_only_once(
    one_rank: None, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What goes wrong before torch 2.13 only; elsewhere it is a model of fused layers that is sharded."""
    monkeypatch.setattr(fused, "_suits", lambda x: x.dtype in fused._DTYPES)  # Triton interprets the kernels
    groups = short_groups(family)[:1]
    plain, sharded = (build_model(family, tie_word_embeddings=False, **shallow(family)).train() for _ in range(2))
    plain = plain.to(torch.bfloat16)
    for model in (plain, sharded):
        family_of(model).prepare(model)
        model.gradient_checkpointing_enable()
    mesh = dist.device_mesh.init_device_mesh("cpu", (1,))
    shard(sharded, mesh, sharded.lm_head, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
    for model in (plain, sharded):
        inside(model, partial(loss, groups=groups)).backward()
    expected, found = all_gradients(plain), all_gradients(sharded)
    assert (found - expected).norm() / expected.norm() < 3e-2  # bfloat16 alone: 2.3e-2, alike in all parameters


def test_the_head_of_a_sharded_model_is_whole_only_inside(one_rank: None) -> None:
    model = build_model(tie_word_embeddings=False)
    family = family_of(model)
    family.prepare(model)
    mesh = dist.device_mesh.init_device_mesh("cpu", (1,))
    fully_shard(model.lm_head, mesh=mesh)
    fully_shard(model, mesh=mesh)
    assert hasattr(family.head(model).weight_VD, "to_local")
    assert not inside(model, lambda m: with_head(m, lambda head: hasattr(head.weight_VD, "to_local")))


class Seen(ModelHook):
    """A hook of accelerate, as device_map puts them, that says whose forward it went around."""

    def __init__(self, name: str, seen: list[str]) -> None:
        self.name, self.seen = name, seen

    def pre_forward(self, module: nn.Module, *args: object, **keywords: object) -> tuple[object, object]:
        self.seen.append(self.name)
        return args, keywords


def test_hooks_added_before_still_run_around_patched_forwards() -> None:
    groups, seen = three_groups("qwen3_vl"), []
    plain, hooked = build_model(), build_model()
    parts = {"root": hooked, "tower": hooked.model.visual, "layer": hooked.model.language_model.layers[0]}
    for name, module in (parts | {"head": hooked.lm_head}).items():
        add_hook_to_module(module, Seen(name, seen))
    for model in (plain, hooked, hooked):
        family_of(model).prepare(model)
    expected, found = (inside(model, partial(loss, groups=groups)) for model in (plain, hooked))
    assert seen == ["root", "tower", "layer", "head"]
    torch.testing.assert_close(found, expected)
