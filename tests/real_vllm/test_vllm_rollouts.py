"""Rollouts by the real vLLM, on a CPU: `make test-vllm` runs this file in an environment of its own."""

import copy
import os

import pytest

pytest.importorskip("vllm", reason="vLLM has an environment of its own: make test-vllm")

os.environ.update(HF_HUB_OFFLINE="1", VLLM_CPU_KVCACHE_SPACE="1", TORCH_COMPILE_DISABLE="1", VLLM_LOGGING_LEVEL="ERROR")

import torch

from tiny_examples import example, picture
from tiny_models import build_model, for_vllm
from tiny_processor import build_processor, write_processor_files
from vcsd.errors import RunError
from vcsd.models.encode import encode
from vcsd.models.family import family_of
from vcsd.rollout.engine import TransformersEngine
from vcsd.rollout.sampling import Sampling
from vcsd.rollout.vllm.in_process import start_in_process
from vcsd.rollout.vllm.server_target import SendsNccl, encoded_images
from vcsd.rollout.vllm.sync_probe import student_log_probs
from vcsd.rollout.vllm.vllm_engine import VLLMEngine
from vcsd.rollout.vllm.vllm_requests import RequestImages, image_spans
from vcsd.rollout.vllm.weight_sync import expected_shapes, student_weights
from vcsd.views import VIEWS

SAMPLING = Sampling(max_new_tokens=12)


def prompt(*pictures, text="How many?"):
    return encode(build_processor(), VIEWS["original"](example(*pictures, text=text)))


def start(folder, dtype=torch.float32, **settings):
    model = build_model(**settings)
    write_processor_files(folder, settings.get("family", "qwen3_vl"))
    model.save_pretrained(folder)
    family_of(model).prepare(model)
    target = start_in_process(folder, dtype, max_tokens=512)
    engine = VLLMEngine(model, target, tokenizer=build_processor().tokenizer, dtype=dtype)
    return model, engine


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A student and an engine with its weights. Tests may change the student, if they refresh the engine."""
    return start(tmp_path_factory.mktemp("model"))


def change(model, part=""):
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if part in name:
                parameter.add_(0.05 * torch.randn_like(parameter))


def largest_gap(model, engine, prompts):
    drawn = engine.sample(prompts, SAMPLING, num_rollouts=4, seed=0, with_log_probs=True)
    by_prompt = [prompt for prompt in prompts for _ in range(4)]
    return max(
        (student_log_probs(model, prompt, rollout.token_ids) - log_probs).abs().max().item()
        for prompt, rollout, log_probs in zip(by_prompt, drawn.rollouts, drawn.log_probs, strict=True)
    )


PROBE = prompt(picture())


def test_vllm_gives_its_tokens_the_students_probabilities(running):
    model, engine = running
    engine.refresh(1, PROBE)
    several = [PROBE, prompt(picture(64, 64), picture(96, 32), text="Which is wider?"), prompt(text="how many?")]
    assert largest_gap(model, engine, several) < 1e-4


def test_after_a_change_of_the_vision_tower_a_repeated_image_is_seen_with_the_new_one(running):
    model, engine = running
    engine.refresh(1, PROBE)
    before = engine.sample([PROBE], SAMPLING, num_rollouts=1, seed=0, with_log_probs=True)
    change(model, "visual")
    record = engine.refresh(2, PROBE)
    assert (record.version, engine.version) == ("step-2", "step-2")
    assert largest_gap(model, engine, [PROBE]) < 1e-4
    old = student_log_probs(model, PROBE, before.rollouts[0].token_ids)
    assert (old - before.log_probs[0]).abs().max() > 1e-2  # the change matters


def test_without_the_cache_reset_old_features_would_be_used(running, monkeypatch):
    model, engine = running
    engine.refresh(1, PROBE)
    monkeypatch.setattr(engine._target, "clear_caches", lambda: None)
    monkeypatch.setattr(type(engine), "_input", without_version(type(engine)._input))
    engine.sample([PROBE], SAMPLING, num_rollouts=1, seed=0)
    change(model, "visual")
    with pytest.raises(RunError, match=r"rollouts of step-2 are not the student's: on the probe"):
        engine.refresh(2, PROBE)


def without_version(build):
    """Make the inputs of an engine that names images and prefixes by their content alone."""

    def plain(self, prompt):
        request = build(self, prompt)
        names = [name.partition("/")[2] for name in request["mm_hashes"]["image"]]
        return {**request, "mm_hashes": {"image": names}, "cache_salt": "same"}

    return plain


def test_a_sync_that_leaves_out_every_query_projection_is_refused(running, monkeypatch):
    model, engine = running
    without = [(name, weight) for name, weight in student_weights(model, torch.float32) if "q_proj" not in name]
    monkeypatch.setattr("vcsd.rollout.vllm.vllm_engine.student_weights", lambda *args: iter(without))
    with pytest.raises(RunError, match=r"missing: model\.language_model\.layers\.0\.self_attn\.q_proj\.weight"):
        engine.refresh(3, PROBE)


def test_stale_weights_under_the_right_names_are_caught_by_the_probe(running, monkeypatch):
    model, engine = running
    engine.refresh(1, PROBE)
    stale = [
        (name, torch.zeros_like(weight) if "q_proj" in name else weight)
        for name, weight in student_weights(model, torch.float32)
    ]
    monkeypatch.setattr("vcsd.rollout.vllm.vllm_engine.student_weights", lambda *args: iter(stale))
    with pytest.raises(RunError, match="on the probe"):
        engine.refresh(2, PROBE)


def test_weights_of_another_version_are_refused(running):
    _, engine = running
    engine.refresh(1, PROBE)
    engine._target._llm.update_weight_version("step-0")
    with pytest.raises(RunError, match="uses the weights 'step-0' instead of 'step-1'"):
        engine.sample([PROBE], SAMPLING, num_rollouts=1, seed=0)


def test_a_prompt_that_vllm_reads_differently_is_refused(running, monkeypatch):
    _, engine = running
    engine.refresh(1, PROBE)
    build = engine._target.to_input
    monkeypatch.setattr(engine._target, "to_input", lambda ids, images, salt: build([*ids, ids[-1]], images, salt))
    with pytest.raises(RunError, match=r"the trainer's prompt has \d+ tokens, vLLM read \d+; they differ"):
        engine.sample([PROBE], SAMPLING, num_rollouts=1, seed=0)


def test_rollouts_depend_on_their_key_alone_and_hold_no_placeholder(running):
    _, engine = running
    engine.refresh(1, PROBE)
    other = prompt(picture(64, 64), text="What colour?")
    together = engine.sample([PROBE, other], SAMPLING, num_rollouts=3, seed=5, step=7).rollouts
    alone = engine.sample([other], SAMPLING, num_rollouts=3, seed=5, step=7).rollouts
    assert [rollout.token_ids for rollout in together[3:]] == [rollout.token_ids for rollout in alone]
    assert len({rollout.token_ids for rollout in together}) == 6
    placeholders = set(engine.vision_ids)
    assert not any(placeholders & set(rollout.token_ids) for rollout in together)


def test_vllms_vision_tower_gets_the_trainers_own_patches(running):
    """To the bit, for two images in one prompt, in the process and as features for a server."""
    from vllm.entrypoints.scale_out.token_in_token_out.mm_serde import decode_mm_kwargs_item

    _, engine = running
    engine.refresh(1, PROBE)
    two, seen = prompt(picture(64, 64), picture(96, 32), text="Which is taller?"), []
    tower = engine._target._llm.llm_engine.model_executor.driver_worker.worker.model_runner.model.visual
    handle = tower.register_forward_pre_hook(lambda module, given, named: seen.append(given[0]), with_kwargs=True)
    engine.sample([two], SAMPLING, num_rollouts=2, seed=0)
    handle.remove()
    assert torch.equal(torch.cat(seen), two.pixel_values)
    spans = image_spans(two, engine.base.config.image_token_id, 2)
    encoded = encoded_images(RequestImages(two.pixel_values, two.grid_thw, ["a", "b"], spans))
    decoded = [decode_mm_kwargs_item(item)["pixel_values"].data for item in encoded]
    assert len(decoded) == 2
    assert torch.equal(torch.cat(decoded), two.pixel_values)


def test_both_engines_draw_from_the_same_distribution(running):
    """The first token, 2,000 times each: its mean log-probability, and how often the likeliest token is drawn."""
    model, engine = running
    engine.refresh(1, PROBE)
    one = Sampling(max_new_tokens=1)
    theirs = engine.sample([PROBE], one, num_rollouts=2000, seed=1, with_log_probs=True)
    own = TransformersEngine(model, tokenizer=build_processor().tokenizer)
    ours = own.sample([PROBE], one, num_rollouts=2000, seed=1, with_log_probs=True)
    means = [torch.cat(list(drawn.log_probs)).double() for drawn in (theirs, ours)]
    error = (means[0].var() / 2000 + means[1].var() / 2000).sqrt()
    assert abs(means[0].mean() - means[1].mean()) < 4 * error
    assert error < 0.05


def test_qwen3_5_in_bfloat16_differs_by_no_more_than_rounding(tmp_path):
    """vLLM computes delta nets on a CPU in bfloat16 only. The student in bfloat16 shows how much rounding is."""
    model, engine = start(tmp_path, torch.bfloat16, family="qwen3_5", **for_vllm("qwen3_5"))
    several = [PROBE, prompt(picture(64, 64), picture(96, 32), text="Which is wider?"), prompt(text="how many?")]
    for step in (1, 2):  # the second with another vision tower, and images that were seen before
        engine.refresh(step, PROBE)
        drawn = engine.sample(several, SAMPLING, num_rollouts=8, seed=step, with_log_probs=True)
        rounded = copy.deepcopy(model).to(torch.bfloat16)
        own, theirs, others = [], [], []
        for place, (rollout, log_probs) in enumerate(zip(drawn.rollouts, drawn.log_probs, strict=True)):
            asked, ids = several[place // 8], rollout.token_ids
            exact = student_log_probs(model, asked, ids)
            own.append((student_log_probs(rounded, asked, ids) - exact).abs())
            theirs.append((log_probs - exact).abs())
            others.append((student_log_probs(model, several[0 if place >= 16 else 2], ids) - exact).abs())
        own, theirs, others = (torch.cat(gaps).mean().item() for gaps in (own, theirs, others))
        assert theirs < 1.5 * own
        assert others > 5 * own  # what another prompt would change
        change(model, "visual")


class ToyClient:
    """A server of two workers that takes whatever is posted."""

    host = "127.0.0.1"

    def __init__(self):
        self.posted = []

    def get(self, path):
        return {"/get_world_size": {"world_size": 2}}[path]

    def post(self, path, body):
        self.posted.append((path, body))


def test_nccl_sends_what_vllms_own_classes_accept(monkeypatch):
    """Everything but the broadcast itself, which needs GPUs."""
    from vllm.distributed.weight_transfer import nccl_engine

    worlds, sent = [], []
    monkeypatch.setattr(nccl_engine, "open_trainer_endpoint", lambda info: worlds.append(info.world_size))
    trainer = nccl_engine.NCCLTrainerWeightTransferEngine
    monkeypatch.setattr(trainer, "_broadcast", lambda self, source, meta: sent.extend(source))
    monkeypatch.setattr(trainer, "_post_send_sync", lambda self: None)
    model, client = build_model(), ToyClient()
    sender = SendsNccl(expected_shapes(model.config), torch.bfloat16)
    sender.connect(client)
    sender.send(client, student_weights(model, torch.bfloat16))
    (_, init), (_, update) = client.posted
    assert nccl_engine.NCCLWeightTransferInitInfo(**init["init_info"]).world_size == 3
    assert worlds == [3]
    told = nccl_engine.NCCLWeightTransferUpdateInfo(**update["update_info"])
    assert told.names == [name for name, _ in sent]  # vLLM requires the order that it was told
    assert [tuple(shape) for shape in told.shapes] == [tuple(tensor.shape) for _, tensor in sent]
    assert set(told.dtype_names) == {"bfloat16"}
