"""A sync must be complete, current and seen by every cache, or it is an error."""

import pytest
import torch

from tiny_groups import make_prompt
from tiny_models import build_model
from vcsd.errors import RunError
from vcsd.models.family import family_of
from vcsd.rollout.vllm.sync_probe import Gap, SyncProbe, gap_of, student_log_probs
from vcsd.rollout.vllm.weight_sync import WeightSync, checksum, expected_shapes, student_weights

EXPECTED = {"a": (2,), "b": (1, 2)}


class ToyTarget:
    """Takes weights as vLLM does, and remembers the order of calls."""

    def __init__(self, version=None):
        self.calls, self.weights, self._other = [], {}, version

    def start_weight_update(self):
        self.calls.append("start")

    def load(self, weights):
        self.weights |= dict(weights)
        self.calls.append("load")

    def finish_weight_update(self, version):
        self.version = version
        self.calls.append("finish")

    def clear_caches(self):
        self.calls.append("clear")

    def weight_version(self):
        return self._other or self.version


def weights(**more):
    return {"a": torch.tensor([1.0, 2.0]), "b": torch.zeros(1, 2), **more}.items


def test_a_sync_sends_everything_under_a_version_and_clears_the_caches():
    target = ToyTarget()
    record = WeightSync(EXPECTED).send(target, weights(), step=3)
    assert target.calls == ["start", "load", "finish", "clear"]
    assert target.weights["a"].tolist() == [1.0, 2.0]
    assert (record.step, record.version, record.num_tensors, record.num_bytes) == (3, "step-3", 2, 16)


def test_the_manifest_changes_with_the_weights_and_only_then():
    sync = WeightSync(EXPECTED)
    first, again = (sync.send(ToyTarget(), weights(), step=step).manifest for step in (1, 2))
    other = sync.send(ToyTarget(), weights(a=torch.tensor([2.0, 1.0])), step=3).manifest
    assert first == again != other


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        ({"a": torch.zeros(2)}.items, "missing: b"),
        (weights(c=torch.zeros(1)), "unknown: c"),
        (weights(b=torch.zeros(2)), "of another shape: b"),
    ],
)
def test_a_sync_of_other_weights_than_the_models_is_refused(sent, problem):
    with pytest.raises(RunError, match=problem):
        WeightSync(EXPECTED).send(ToyTarget(), sent, step=1)


def test_a_weight_that_is_sent_twice_is_refused():
    twice = lambda: [("a", torch.zeros(2)), ("a", torch.zeros(2))]  # noqa: E731
    with pytest.raises(RunError, match="a would be sent twice"):
        WeightSync(EXPECTED).send(ToyTarget(), twice, step=1)


def test_an_engine_that_reports_an_old_version_is_refused():
    with pytest.raises(RunError, match="uses the weights 'step-1' instead of 'step-2'"):
        WeightSync(EXPECTED).send(ToyTarget(version="step-1"), weights(), step=2)


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_5", "llava"])
def test_a_students_weights_are_those_its_configuration_asks_for(family):
    model = build_model(family)
    sent = {name: tuple(weight.shape) for name, weight in student_weights(model, torch.bfloat16)}
    assert sent == expected_shapes(model.config)


def test_weights_travel_in_the_engines_dtype():
    sent = dict(student_weights(build_model(), torch.bfloat16))
    assert {weight.dtype for weight in sent.values()} == {torch.bfloat16}


def test_adapters_are_merged_into_the_weights_they_change():
    from peft import LoraConfig, get_peft_model

    plain = build_model()
    adapted = get_peft_model(build_model(), LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    sent = dict(student_weights(adapted, torch.float32))
    assert {name: tuple(weight.shape) for name, weight in sent.items()} == expected_shapes(plain.config)
    merged = dict(adapted.merge_and_unload().named_parameters())
    assert all(torch.allclose(weight, merged[name], atol=1e-6) for name, weight in sent.items())
    own = dict(plain.named_parameters())
    assert {name for name in sent if not torch.equal(sent[name], own[name])} == {n for n in own if "q_proj" in n}


def test_a_checksum_sees_every_bit():
    tensor = torch.randn(1000)
    changed = tensor.clone()
    changed[500] = torch.nextafter(changed[500], torch.tensor(10.0))
    assert checksum(tensor) == checksum(tensor.clone())
    assert checksum(tensor) != checksum(changed)


def test_the_student_scores_a_response_as_a_plain_forward_does():
    model = build_model()
    asked, response = make_prompt(), [5, 6, 7]
    ids = torch.cat([asked.input_ids, torch.tensor(response)])[None]
    kinds = (ids == model.config.image_token_id).int()
    with torch.no_grad():
        inputs = {
            "pixel_values": asked.pixel_values.float(),
            "image_grid_thw": asked.grid_thw,
            "mm_token_type_ids": kinds,
        }
        log_p = model(input_ids=ids, **inputs).logits[0].log_softmax(-1)
    start = len(asked.input_ids) - 1
    plain = torch.stack([log_p[start + place, token] for place, token in enumerate(response)])
    family_of(model).prepare(model)
    torch.testing.assert_close(student_log_probs(model, asked, response), plain, atol=1e-4, rtol=0)


def test_the_student_returns_to_its_modes_also_after_an_error():
    model = build_model().train()
    family_of(model).prepare(model)
    model.model.visual.eval()
    modes = [module.training for module in model.modules()]
    student_log_probs(model, make_prompt(), [5, 6, 7])
    assert [module.training for module in model.modules()] == modes
    with pytest.raises(IndexError):
        student_log_probs(model, make_prompt(), [5, model.config.text_config.vocab_size + 8])
    assert [module.training for module in model.modules()] == modes


def test_a_gap_is_the_absolute_difference():
    gap = gap_of([-1.0, -3.0], torch.tensor([-1.5, -2.0]))
    assert (gap.mean, gap.max) == (0.75, 1.0)


@pytest.mark.parametrize(
    ("dtype", "means"),
    [(torch.float32, [1e-6, 5e-4]), (torch.bfloat16, [0.01, 0.06]), (torch.float32, [2e-3]), (torch.bfloat16, [0.2])],
)
def test_a_jump_is_refused_and_so_is_a_bad_start(dtype, means):
    probe = SyncProbe(dtype)
    *good, bad = (Gap(mean, mean) for mean in means)
    for gap in good:
        probe.check(gap, "step-1")
    with pytest.raises(RunError, match="are not the student's"):
        probe.check(bad, "step-2")


def test_rounding_passes_however_small_the_first_gap_was():
    probe = SyncProbe(torch.bfloat16)
    for mean in (1e-4, 0.02, 0.029):
        probe.check(Gap(mean, mean), "step-1")


def test_log_probabilities_that_are_not_numbers_are_refused():
    with pytest.raises(RunError, match="nan nats on average"):
        SyncProbe(torch.bfloat16).check(Gap(float("nan"), float("nan")), "step-1")
