"""Shared-prefix scores against the repeated batch, in float64: the same hidden states and the same gradients."""

import copy
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from tiny_groups import (
    gradients,
    make_group,
    make_prompt,
    nonlinear_loss,
    repeated_batch,
    three_groups,
    worst_gap,
)
from tiny_models import build_model, exact_arithmetic, image_token_id
from vcsd.errors import ConfigError, DataError
from vcsd.models.family import family_of
from vcsd.models.packed.packing import Group, longest_view, plan_rows
from vcsd.models.qwen import attention
from vcsd.models.score import hidden_states, score, with_pixels_on

FAMILIES = ["qwen3_vl", "qwen3_5"]
HIDDEN_TOLERANCE, GRADIENT_TOLERANCE = 1e-12, 1e-9


def prepared(family: str, **config: object) -> PreTrainedModel:
    model = build_model(family, dtype=torch.float64, **config)
    family_of(model).prepare(model)
    return model


def reference(family: str, groups: Sequence[Group], **config: object) -> tuple[Tensor, dict[str, Tensor]]:
    """Hidden states and gradients of the stock model on the repeated batch."""
    model = build_model(family, dtype=torch.float64, **config).train()
    with exact_arithmetic(model):
        hidden = torch.cat(repeated_batch(model, groups, family))
        nonlinear_loss(hidden).backward()
    return hidden.detach(), gradients(model)


def shared(model: PreTrainedModel, groups: Sequence[Group]) -> tuple[Tensor, dict[str, Tensor]]:
    model.train()
    with exact_arithmetic(model):
        hidden = hidden_states(model, groups)
        nonlinear_loss(hidden).backward()
    return hidden.detach(), gradients(model)


def assert_same(found: tuple[Tensor, dict[str, Tensor]], expected: tuple[Tensor, dict[str, Tensor]]) -> None:
    assert (found[0] - expected[0]).abs().max() < HIDDEN_TOLERANCE
    gap, name = worst_gap(found[1], expected[1])
    assert gap < GRADIENT_TOLERANCE, name


def lengths_of(groups: list[Group]) -> list[int]:
    return [length for group in groups for length in group.lengths]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("checkpointing", ["off", "on", "reentrant"])
@pytest.mark.parametrize("call_in_pairs", [-1, 10**9], ids=["by_segment", "by_level"])
def test_three_uneven_groups_in_one_row_equal_the_repeated_batch(
    family: str, checkpointing: str, call_in_pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "CALL_IN_PAIRS", call_in_pairs)
    groups = three_groups(family)
    model = prepared(family)
    if checkpointing != "off":
        model.gradient_checkpointing_enable({"use_reentrant": checkpointing == "reentrant"})
    if checkpointing == "reentrant":
        model.enable_input_require_grads()
    assert_same(shared(model, groups), reference(family, groups))


@pytest.mark.parametrize("family", FAMILIES)
def test_one_group_with_responses_of_1_to_70_tokens_equals_the_repeated_batch(family: str) -> None:
    groups = [make_group(make_prompt(family), (9, 3, 17, 1, 70, 2, 5, 30))]
    assert_same(shared(prepared(family), groups), reference(family, groups))


@pytest.mark.parametrize("family", ["qwen3_vl_moe", "qwen3_5_moe"])
def test_mixture_of_experts_variants_are_exact_too(family: str) -> None:
    groups = three_groups(family)[:2]
    assert_same(shared(prepared(family), groups), reference(family, groups))


@pytest.mark.parametrize("family", FAMILIES)
def test_an_untied_head_and_a_prompt_without_an_image_are_exact(family: str) -> None:
    text_only = make_group(make_prompt(family, grids=(), num_before=9), (4, 11))
    for groups in ([text_only], [three_groups(family)[0], text_only]):
        model = prepared(family, tie_word_embeddings=False)
        assert_same(shared(model, groups), reference(family, groups, tie_word_embeddings=False))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("budget", "num_pieces"), [(152, 4), (250, 3)])
def test_a_plan_of_several_rows_with_a_split_group_is_exact(family: str, budget: int, num_pieces: int) -> None:
    groups = three_groups(family)
    plan = plan_rows(longest_view([groups]), budget)
    assert len(plan.rows) > 1
    assert sum(len(row) for row in plan.rows) == num_pieces
    model = prepared(family).train()
    parts: dict[tuple[int, int], Tensor] = {}
    with exact_arithmetic(model):
        for row in range(len(plan.rows)):
            chosen = plan.select(groups, row)
            places = [(piece.group, index) for piece in plan.rows[row] for index in piece.responses]
            parts |= dict(zip(places, score(model, chosen).hidden_ND.split(lengths_of(chosen)), strict=True))
        hidden = torch.cat([parts[g, i] for g, group in enumerate(groups) for i in range(len(group.responses))])
        nonlinear_loss(hidden).backward()
    assert_same((hidden.detach(), gradients(model)), reference(family, groups))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_response_sees_its_own_prompt_and_nothing_of_other_responses_or_groups(family: str) -> None:
    model, groups = prepared(family), three_groups(family)
    with exact_arithmetic(model), torch.no_grad():
        before = score(model, groups)

        def moved(changed: list[Group]) -> list[bool]:
            after = hidden_states(model, changed)
            pairs = zip(*(hidden.split(lengths_of(groups)) for hidden in (after, before.hidden_ND)), strict=True)
            return [bool((a - b).abs().max() > 1e-6) for a, b in pairs]

        other_answer = replace(groups[0], responses=[groups[0].responses[0], [7, 8, 9], *groups[0].responses[2:]])
        assert moved([other_answer, *groups[1:]]) == [False, True] + 7 * [False]
        other_image = replace(groups[1].prompt, pixel_values=-groups[1].prompt.pixel_values)
        assert moved([groups[0], replace(groups[1], prompt=other_image), groups[2]]) == 4 * [False] + 2 * [True] + 3 * [
            False
        ]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_comparison_notices_positions_that_are_off_by_one(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = three_groups(family)
    model, kind = prepared(family), type(family_of(prepared(family)))
    right = kind.prompt_positions
    monkeypatch.setattr(kind, "prompt_positions", lambda self, m, p: right(self, m, p) - int(p is groups[1].prompt))
    expected = reference(family, groups)[0]
    with exact_arithmetic(model), torch.no_grad():
        hidden = hidden_states(model, groups)
    assert (hidden - expected).abs().max() < HIDDEN_TOLERANCE, "rotary positions are relative: a shift of all is none"

    def late(self: object, m: PreTrainedModel, p: object) -> Tensor:
        positions = right(self, m, p)
        positions[:, -1] += 1  # the responses begin one later
        return positions

    monkeypatch.setattr(kind, "prompt_positions", late)
    with exact_arithmetic(model), torch.no_grad():
        hidden = hidden_states(model, groups)
    assert (hidden - expected).abs().max() > 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prepared_model_runs_plain_batches_bit_for_bit_as_before(family: str) -> None:
    groups = three_groups(family)
    with torch.no_grad():
        stock = repeated_batch(build_model(family), groups, family)
        model = build_model(family)
        family_of(model).prepare(model)
        family_of(model).prepare(model)
        assert all(torch.equal(a, b) for a, b in zip(repeated_batch(model, groups, family), stock, strict=True))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_layer_that_does_not_see_the_layout_is_an_error(family: str) -> None:
    model = prepared(family)
    model.set_attn_implementation("sdpa")
    with pytest.raises(RuntimeError, match="responses would see each other"):
        hidden_states(model, three_groups(family))


@pytest.mark.parametrize("family", FAMILIES)
def test_autocast_is_as_close_to_the_truth_as_the_repeated_batch(family: str) -> None:
    groups = three_groups(family)
    truth, true_grads = reference(family, groups)
    errors = []
    for path in (hidden_states, lambda m, g: torch.cat(repeated_batch(m, g, family))):
        model = build_model(family).train()
        family_of(model).prepare(model)
        with torch.autocast("cpu", torch.bfloat16):
            hidden = path(model, groups)
        nonlinear_loss(hidden).backward()
        grads = gradients(model)
        assert {g.dtype for g in grads.values()} == {torch.float32}
        total = sum(((grads[k] - g) ** 2).sum() for k, g in true_grads.items()) ** 0.5
        size = sum((g**2).sum() for g in true_grads.values()) ** 0.5
        errors.append(((hidden - truth).norm() / truth.norm(), total / size))
    (hidden_error, gradient_error), (naive_hidden_error, naive_gradient_error) = errors
    assert hidden_error < 1.5 * naive_hidden_error
    assert gradient_error < 1.5 * naive_gradient_error


def test_autocast_leaves_float64_alone() -> None:  # Qwen3.5 itself casts to float32 on the way
    groups, model = three_groups("qwen3_vl"), prepared("qwen3_vl").double()
    with torch.no_grad():
        expected = hidden_states(model, groups)
        with torch.autocast("cpu", torch.bfloat16):
            found = hidden_states(model, groups)
    assert (found - expected).abs().max() < 1e-12


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # of the frozen tower's blocks
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_lora_gradients_equal_those_of_the_repeated_batch(family: str, checkpointing: bool) -> None:
    peft = pytest.importorskip("peft")
    linears = ["q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj", "in_proj_qkv", "in_proj_z", "out_proj"]
    groups = three_groups(family)

    def lora_model() -> PreTrainedModel:
        torch.manual_seed(3)
        config = peft.LoraConfig(r=4, target_modules=linears, init_lora_weights=False)
        return peft.get_peft_model(build_model(family), config).double().train()

    stock, model = lora_model(), lora_model()
    with exact_arithmetic(stock, model):
        expected = torch.cat(repeated_batch(stock.get_base_model(), groups, family))
        nonlinear_loss(expected).backward()
        family_of(model).prepare(model)
        if checkpointing:
            model.enable_input_require_grads()
            model.gradient_checkpointing_enable({"use_reentrant": True})
        hidden = hidden_states(model, groups)
        nonlinear_loss(hidden).backward()
    found = gradients(model)
    assert found
    assert all("lora" in name for name in found)
    assert_same((hidden.detach(), found), (expected.detach(), gradients(stock)))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_deep_copied_teacher_scores_with_its_own_weights(family: str) -> None:
    student, groups = prepared(family), three_groups(family)
    teacher = copy.deepcopy(student)
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.mul_(1.5)
    expected = reference(family, groups)[0]
    with exact_arithmetic(student, teacher), torch.no_grad():
        assert (hidden_states(teacher, groups) - expected).abs().max() < HIDDEN_TOLERANCE
        assert (hidden_states(student, groups) - expected).abs().max() > 1e-2


def test_the_scores_carry_the_head_and_one_row_per_response_token() -> None:
    model, groups = prepared("qwen3_vl"), three_groups("qwen3_vl")
    scores = score(model, groups)
    assert len(scores.hidden_ND) == sum(lengths_of(groups)) == 115
    assert scores.head.weight_VD is model.lm_head.weight


def test_a_response_with_a_vision_token_is_refused_by_name() -> None:
    bad = Group(make_prompt(example_id="virl-00042"), [[1, 2, image_token_id("qwen3_vl")]])
    with pytest.raises(DataError, match=r"virl-00042.*response 0 contains the vision token id"):
        score(prepared("qwen3_vl"), [bad])


@pytest.mark.parametrize("where", ["attention", "module"])
def test_dropout_is_refused(where: str) -> None:
    model = prepared("qwen3_vl")
    if where == "attention":
        model.config.text_config.attention_dropout = 0.1
    else:
        model.model.language_model.layers[0].mlp.dropout = torch.nn.Dropout(0.1)
    with pytest.raises(ConfigError, match="Set it to 0"):
        score(model, three_groups("qwen3_vl"))


@pytest.mark.parametrize("family", ["qwen3_vl", "llava"])
def test_a_group_without_responses_is_refused_by_name(family: str) -> None:
    model, groups = build_model(family), three_groups(family)
    with pytest.raises(DataError, match="example 'b': its group has no responses"):
        score(model, [groups[0], replace(groups[1], responses=[]), groups[2]])


def test_a_prompt_that_two_views_show_is_sent_once() -> None:
    student, other = three_groups("qwen3_vl")[:2], three_groups("qwen3_vl")[2:]
    nowhere = torch.device("meta")
    sent = with_pixels_on(nowhere, student, [*student, *other])
    assert [len(view) for view in sent] == [2, 3]
    assert all(group.prompt.pixel_values.device == nowhere for view in sent for group in view)
    assert all(mine.prompt is theirs.prompt for mine, theirs in zip(*sent, strict=False))
    assert [group.responses for group in sent[0]] == [group.responses for group in student]


def test_without_images_there_is_nothing_to_send() -> None:
    group = make_group(replace(make_prompt("qwen3_vl"), pixel_values=None, grid_thw=None), (3,))
    assert with_pixels_on(torch.device("meta"), [group])[0][0].prompt is group.prompt
