"""Rollouts against `generate` and against a full forward; keyed randomness; banned tokens; restored modes."""

import gc
import weakref
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from tiny_groups import TinyPrompt, make_group, make_prompt, repeated_batch
from tiny_models import build_model, exact_arithmetic, image_token_id
from vcsd.errors import ConfigError, RunError
from vcsd.models.family import family_of
from vcsd.rollout import decoder, memory
from vcsd.rollout import engine as engine_module
from vcsd.rollout.engine import TransformersEngine
from vcsd.rollout.memory import rows_that_fit
from vcsd.rollout.sampling import Sampling

pytestmark = pytest.mark.filterwarnings("ignore:.* once per response")  # tested in test_fallback

FAMILIES = ["qwen3_vl", "qwen3_5", "llava"]
GREEDY = Sampling(temperature=0, max_new_tokens=20)
CACHED = ("keys", "values", "conv_states", "recurrent_states")


def three_prompts(family: str) -> list[TinyPrompt]:
    return [
        make_prompt(family, ((8, 12),), 5, 7, seed=1, example_id="a"),
        make_prompt(family, ((4, 4),), 30, 3, seed=2, example_id="b"),
        make_prompt(family, ((12, 8),), 1, 1, seed=3, example_id="c"),
    ]


def likely_to_stop(model: PreTrainedModel, family: str) -> PreTrainedModel:
    """Give the end and image tokens larger logits, so that random models stop early and are tempted to draw images."""
    with torch.no_grad():
        head = model.get_output_embeddings().weight
        for token in (*model.generation_config.eos_token_id, image_token_id(family)):
            head[token] *= 8 if family == "llava" else 3
    return model


def by_generate(model: PreTrainedModel, prompt: TinyPrompt, family: str) -> list[int]:
    ids = prompt.input_ids[None]
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "pixel_values": prompt.pixel_values}
    if family != "llava":
        inputs |= {"image_grid_thw": prompt.grid_thw, "mm_token_type_ids": (ids == image_token_id(family)).int()}
    banned = sorted(family_of(model).vision_token_ids(model))
    out = model.generate(**inputs, do_sample=False, max_new_tokens=20, suppress_tokens=banned)
    return out[0, ids.shape[1] :].tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_rollouts_are_the_tokens_of_generate(family: str) -> None:
    model = likely_to_stop(build_model(family, dtype=torch.float64), family)
    prompts = three_prompts(family)
    with exact_arithmetic(model):
        expected = [by_generate(model, prompt, family) for prompt in prompts]
        found = TransformersEngine(model).sample(prompts, GREEDY, num_rollouts=2, seed=0).rollouts
    assert [rollout.index for rollout in found] == [0, 1, 0, 1, 0, 1]
    assert [rollout.example_id for rollout in found] == ["a", "a", "b", "b", "c", "c"]
    assert [list(rollout.token_ids) for rollout in found] == [ids for ids in expected for _ in range(2)]


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_5"])
def test_a_prepared_model_still_generates_and_saves_as_a_stock_one(family: str, tmp_path: Path) -> None:
    model, prompt = build_model(family), three_prompts(family)[0]
    expected = by_generate(model, prompt, family)
    family_of(model).prepare(model)
    assert by_generate(model, prompt, family) == expected
    model.save_pretrained(tmp_path)
    assert "vcsd" not in (tmp_path / "config.json").read_text()
    assert by_generate(type(model).from_pretrained(tmp_path), prompt, family) == expected


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("per_forward", "use_graph"), [(1, False), (10_000, False), (10_000, True)])
def test_the_logits_of_every_step_are_those_of_a_full_forward(
    family: str, per_forward: int, use_graph: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoder, "PREFILL_TOKENS", per_forward)
    model = build_model(family, dtype=torch.float64)
    family_of(model).prepare(model)
    counts, length = [3, 1, 2], 70
    pairs = zip(three_prompts(family), counts, strict=True)
    groups = [make_group(prompt, count * [length], seed=count) for prompt, count in pairs]
    forced = torch.tensor([response for group in groups for response in group.responses])
    with exact_arithmetic(model), torch.no_grad():
        expected = model.lm_head(torch.stack(repeated_batch(model, groups, family)))
        decoding = decoder.prefill(model, [group.prompt for group in groups])
        decoding.fork(torch.arange(3).repeat_interleave(torch.tensor(counts)), length, use_graph=use_graph)
        rows = torch.arange(6)
        assert_close(decoding.logits, expected[:, 0])
        for position in range(1, length):
            if position == 5:
                keep = torch.tensor([0, 2, 4, 5])
            elif position == 9:
                keep = torch.tensor([2])
            else:
                keep = torch.arange(len(rows))
            if len(keep) < len(rows):
                decoding.keep(keep)
                rows = rows[keep]
            assert_close(decoding.step(forced[rows, position - 1]), expected[rows, position])


def assert_close(found: Tensor, expected: Tensor) -> None:
    assert (found - expected).abs().max() < 1e-11


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_5"])
def test_prompt_and_image_are_computed_once_for_all_rollouts(family: str) -> None:
    model, prompts = build_model(family), three_prompts(family)
    patches, tokens = [], []
    model.model.visual.register_forward_pre_hook(
        lambda _, args, kwargs: patches.append(len(args[0] if args else kwargs["hidden_states"])), with_kwargs=True
    )
    model.model.language_model.register_forward_pre_hook(
        lambda _, args, kwargs: tokens.append(kwargs["inputs_embeds"].shape[:2].numel()), with_kwargs=True
    )
    TransformersEngine(model).sample(prompts, Sampling(max_new_tokens=1), num_rollouts=8, seed=0)
    assert sum(patches) == sum(len(prompt.pixel_values) for prompt in prompts)
    assert sum(tokens) == 3 * max(len(prompt.input_ids) for prompt in prompts)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_rollout_depends_on_its_key_and_not_on_its_batch(family: str) -> None:
    model = likely_to_stop(build_model(family, dtype=torch.float64), family)
    prompts = three_prompts(family)
    sampling = Sampling(max_new_tokens=24, top_p=0.95, presence_penalty=0.5)

    def drawn(some: Sequence[TinyPrompt], num_rollouts: int = 3, seed: int = 5, **options: int) -> dict:
        step = options.pop("step", 2)
        with exact_arithmetic(model):
            engine = TransformersEngine(model, **options)
            rollouts = engine.sample(some, sampling, num_rollouts=num_rollouts, seed=seed, step=step).rollouts
        return {(rollout.example_id, rollout.index): rollout.token_ids for rollout in rollouts}

    expected = drawn(prompts)
    assert len(set(expected.values())) > 6, "rollouts of a prompt differ"
    assert {len(ids) for ids in expected.values()} != {24}, "some stop early"
    assert drawn(prompts[::-1]) == expected
    assert drawn(prompts, max_rows=2) == expected
    assert drawn(prompts, use_graph=True) == expected
    assert drawn(prompts[1:2]) | drawn([prompts[2], prompts[0]]) == expected
    assert {key: ids for key, ids in drawn(prompts, num_rollouts=5).items() if key[1] < 3} == expected
    assert drawn(prompts, seed=6) != expected
    assert drawn(prompts, step=3) != expected


@pytest.mark.parametrize("family", FAMILIES)
def test_a_rollout_ends_with_its_end_token_and_never_holds_a_vision_token(family: str) -> None:
    model = likely_to_stop(build_model(family), family)
    ends = family_of(model).end_token_ids(model)
    sampling = Sampling(max_new_tokens=30, temperature=1.5)
    rollouts = TransformersEngine(model).sample(three_prompts(family), sampling, num_rollouts=20, seed=0).rollouts
    assert {rollout.stop for rollout in rollouts} == {"end", "length"}
    for rollout in rollouts:
        assert not family_of(model).vision_token_ids(model).intersection(rollout.token_ids)
        assert not ends.intersection(rollout.token_ids[:-1])
        assert (rollout.token_ids[-1] in ends) == (rollout.stop == "end")
        assert rollout.stop == "end" or len(rollout.token_ids) == 30


def test_the_random_models_would_draw_vision_tokens_if_they_could() -> None:
    model = likely_to_stop(build_model(), "qwen3_vl")
    engine = TransformersEngine(model)
    engine.vision_ids = []
    drawn = engine.sample(three_prompts("qwen3_vl"), Sampling(max_new_tokens=1), num_rollouts=50, seed=0).rollouts
    assert image_token_id("qwen3_vl") in {token for rollout in drawn for token in rollout.token_ids}


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_5"])
def test_log_probabilities_are_the_models_own(family: str) -> None:
    model, prompts = build_model(family, dtype=torch.float64), three_prompts(family)
    sampling = Sampling(max_new_tokens=9, temperature=0.5, top_k=20)
    with exact_arithmetic(model), torch.no_grad():
        sampled = TransformersEngine(model).sample(prompts, sampling, num_rollouts=2, seed=0, with_log_probs=True)
        assert sampled.log_probs is not None
        for rollout, log_probs in zip(sampled.rollouts, sampled.log_probs, strict=True):
            group = make_group(prompts["abc".index(rollout.example_id)], ())
            hidden = repeated_batch(model, [type(group)(group.prompt, [rollout.token_ids])], family)[0]
            expected = model.lm_head(hidden).log_softmax(-1).gather(1, torch.tensor(rollout.token_ids)[:, None])[:, 0]
            torch.testing.assert_close(log_probs.double(), expected, rtol=0, atol=1e-6)


def test_mode_gradients_and_checkpointing_are_as_before() -> None:
    model, prompts = build_model(), three_prompts("qwen3_vl")
    expected = TransformersEngine(model).sample(prompts, GREEDY, num_rollouts=1, seed=0).rollouts
    model.gradient_checkpointing_enable()
    model.train()
    model.model.visual.eval()
    modes = [module.training for module in model.modules()]
    assert TransformersEngine(model).sample(prompts, GREEDY, num_rollouts=1, seed=0).rollouts == expected
    assert [module.training for module in model.modules()] == modes
    assert model.is_gradient_checkpointing
    assert torch.is_grad_enabled()
    assert model.model.rope_deltas is None


def test_what_fails_in_between_leaves_mode_and_gradients_as_before() -> None:
    model, prompts = build_model().train(), three_prompts("qwen3_vl")
    seen: list[bool] = []

    def interrupt(done: int, total: int) -> None:
        seen.append(torch.is_grad_enabled() or model.training)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TransformersEngine(model).sample(prompts, GREEDY, num_rollouts=1, seed=0, progress=interrupt)
    assert seen == [False], "tokens are drawn in eval mode, without gradients"
    assert torch.is_grad_enabled()
    assert all(module.training for module in model.modules())


def test_a_presence_penalty_counts_every_token_of_its_own_rollout() -> None:
    model, prompts = build_model(), three_prompts("qwen3_vl")
    with torch.no_grad():
        model.model.language_model.norm.weight.mul_(0.05)  # logits closer together than the penalty
    greedy = TransformersEngine(model).sample(prompts, GREEDY, num_rollouts=1, seed=0).rollouts
    assert any(len(set(rollout.token_ids)) < len(rollout.token_ids) for rollout in greedy), "they would repeat"
    penalised = Sampling(temperature=0, max_new_tokens=20, presence_penalty=2.0)
    together = TransformersEngine(model).sample(prompts, penalised, num_rollouts=1, seed=0).rollouts
    assert all(len(set(rollout.token_ids)) == len(rollout.token_ids) for rollout in together)
    assert all(mine.token_ids[0] == other.token_ids[0] for mine, other in zip(together, greedy, strict=True))
    alone = [TransformersEngine(model).sample([p], penalised, num_rollouts=1, seed=0).rollouts[0] for p in prompts]
    assert [rollout.token_ids for rollout in together] == [rollout.token_ids for rollout in alone]


def test_rows_at_once_follow_from_free_memory_and_the_longest_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    model, prompts, sizes = build_model(), three_prompts("qwen3_vl"), []
    engine, begin = TransformersEngine(model), TransformersEngine.begin
    longest = max(len(prompt.input_ids) for prompt in prompts)
    one = engine.cache_cost().of(longest, GREEDY.max_new_tokens, 4, is_shared=True)

    def counted(self, prompts):
        sizes.append(len(prompts))
        return begin(self, prompts)

    def fit_into(free, cost, _, *sizes, **settings):
        return rows_that_fit(cost, free, *sizes, **settings)

    monkeypatch.setattr(TransformersEngine, "begin", counted)
    for share, expected in ((3.1, [3]), (2.9, [2, 1]), (1.1, [1, 1, 1]), (0.7, 6 * [1]), (0.1, 12 * [1])):
        sizes.clear()
        fit = partial(fit_into, int(share * one / 0.8))
        monkeypatch.setattr(engine_module, "rows_that_fit", fit)  # the CPU's free memory does not count
        engine.sample(prompts, GREEDY, num_rollouts=4, seed=0)
        assert sizes == expected, share


def test_a_placeholder_without_a_logit_need_not_be_banned(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Mllama, whose image token is one past the end of its head."""
    model, prompts = build_model(), three_prompts("qwen3_vl")
    expected = TransformersEngine(model).sample(prompts, GREEDY, num_rollouts=1, seed=0).rollouts
    engine = TransformersEngine(model)
    engine.vision_ids = [*engine.vision_ids, model.config.text_config.vocab_size]
    assert engine.sample(prompts, GREEDY, num_rollouts=1, seed=0).rollouts == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_joined_caches_leave_nothing_behind(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, prompts, parts = build_model(family), three_prompts(family), []
    join = decoder._join
    monkeypatch.setattr(decoder, "_join", lambda caches: join(parts.extend(caches) or caches))
    monkeypatch.setattr(decoder, "PREFILL_TOKENS", 1)
    TransformersEngine(model).sample(prompts, GREEDY, num_rollouts=1, seed=0)
    assert len(parts) == 3
    left = [vars(layer).get(name) for cache in parts[1:] for layer in cache.layers for name in CACHED]
    tensors = [x for held in left for x in (held.values() if isinstance(held, dict) else held or []) if x is not None]
    assert not tensors


@pytest.mark.parametrize("is_deterministic", [False, True])
def test_deterministic_mode_is_as_before(is_deterministic: bool) -> None:
    torch.use_deterministic_algorithms(is_deterministic)
    try:
        TransformersEngine(build_model()).sample(three_prompts("qwen3_vl"), Sampling(2), num_rollouts=1, seed=0)
        assert torch.are_deterministic_algorithms_enabled() == is_deterministic
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


def test_sampling_values_do_not_come_from_the_generation_config() -> None:
    model, prompts = build_model(), three_prompts("qwen3_vl")
    expected = TransformersEngine(model).sample(prompts, Sampling(max_new_tokens=9), num_rollouts=2, seed=0).rollouts
    model.generation_config.update(temperature=0.01, top_k=1, top_p=0.1, do_sample=True, max_new_tokens=2)
    found = TransformersEngine(model).sample(prompts, Sampling(max_new_tokens=9), num_rollouts=2, seed=0).rollouts
    assert found == expected


def test_a_batch_that_does_not_fit_is_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    model, prompts, sizes = build_model(), three_prompts("qwen3_vl"), []
    draw_batch = TransformersEngine._draw_batch

    def tight(self, prompts, batch, *rest):
        sizes.append(len(batch))
        if len(batch) > 3:
            raise torch.OutOfMemoryError("no room")
        return draw_batch(self, prompts, batch, *rest)

    expected = TransformersEngine(model).sample(prompts, GREEDY, num_rollouts=4, seed=0).rollouts
    monkeypatch.setattr(TransformersEngine, "_draw_batch", tight)
    assert TransformersEngine(model).sample(prompts, GREEDY, num_rollouts=4, seed=0).rollouts == expected
    assert sizes == [12, 4, 2, 2, 2, 2, 2, 2]
    monkeypatch.setattr(TransformersEngine, "_draw_batch", lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError()))
    with pytest.raises(torch.OutOfMemoryError):
        TransformersEngine(model).sample(prompts, GREEDY, num_rollouts=1, seed=0)


def test_counts_below_one_are_refused() -> None:
    model = build_model("qwen3_vl")
    with pytest.raises(ConfigError, match="max_rows = -1 must be at least 1"):
        TransformersEngine(model, max_rows=-1)
    with pytest.raises(ConfigError, match="num_rollouts = 0 must be at least 1"):
        TransformersEngine(model).sample(three_prompts("qwen3_vl"), GREEDY, num_rollouts=0, seed=0)


def test_progress_grows_up_to_the_number_of_rollouts() -> None:
    seen: list[tuple[int, int]] = []
    model = likely_to_stop(build_model(), "qwen3_vl")
    TransformersEngine(model, max_rows=40).sample(
        three_prompts("qwen3_vl"),
        Sampling(max_new_tokens=20),
        num_rollouts=20,
        seed=0,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == sorted(seen)
    assert (40, 60) in seen
    assert seen[-1] == (60, 60)
    assert any(0 < done < 40 for done, _ in seen), "also within a batch"


def test_finished_rows_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    model = likely_to_stop(build_model(), "qwen3_vl")
    rows: list[int] = []
    step = decoder.Decoder.step
    monkeypatch.setattr(decoder.Decoder, "step", lambda self, t: rows.append(len(t)) or step(self, t))
    TransformersEngine(model).sample(three_prompts("qwen3_vl"), Sampling(max_new_tokens=64), num_rollouts=30, seed=0)
    assert rows[0] == 90
    assert rows[-1] < 80
    assert engine_module._LOOK_EVERY > 1


def test_autocast_casts_and_stays_close() -> None:
    model, prompts = build_model(), three_prompts("qwen3_vl")
    sampled = TransformersEngine(model, compute_dtype=torch.bfloat16).sample(
        prompts, GREEDY, num_rollouts=1, seed=0, with_log_probs=True
    )
    exact = TransformersEngine(model).sample(prompts, GREEDY, num_rollouts=1, seed=0, with_log_probs=True)
    assert sampled.log_probs is not None
    assert exact.log_probs is not None
    assert sampled.rollouts[0].token_ids[0] == exact.rollouts[0].token_ids[0]
    assert 0 < (sampled.log_probs[0][0] - exact.log_probs[0][0]).abs() < 0.1
    with torch.autocast("cpu", torch.bfloat16):  # the caller's own, where the engine has none
        enclosed = TransformersEngine(model).sample(prompts, GREEDY, num_rollouts=1, seed=0, with_log_probs=True)
    assert enclosed.rollouts == sampled.rollouts
    assert enclosed.log_probs is not None
    assert torch.equal(enclosed.log_probs[0], sampled.log_probs[0])


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_5"])
def test_the_cache_cost_counts_every_byte_of_the_cache(family: str) -> None:
    model = build_model(family)
    family_of(model).prepare(model)
    prompt = make_prompt(family)
    with torch.no_grad():
        cache = decoder.prefill(model, [prompt]).cache
    found = 0
    for layer in cache.layers:
        for tensor in (getattr(layer, "keys", None), getattr(layer, "values", None)):
            found += tensor.nbytes if isinstance(tensor, Tensor) else 0
        for states in (getattr(layer, "conv_states", None), getattr(layer, "recurrent_states", None)):
            found += sum(state.nbytes for state in (states.values() if isinstance(states, dict) else states or ()))
    cost = memory.cache_cost(model, torch.float32)
    logits = 4 * 4 * model.config.text_config.vocab_size
    assert found == len(prompt.input_ids) * cost.per_token + cost.per_rollout - logits


class NotFinite(TransformersEngine):
    """An engine whose model has NaN among the logits of one prompt's rollouts, from one position on."""

    example_id, position = "b", 3

    def begin(self, prompts: Sequence[TinyPrompt]) -> decoder.Decoding:  # type: ignore[override]
        inner = super().begin(prompts)
        original_fork, original_step, original_keep = inner.fork, inner.step, inner.keep
        rows = torch.zeros(0, dtype=torch.bool)
        num_steps = 0

        def fork(prompt_R: Tensor, max_new_tokens: int, *, use_graph: bool = False) -> None:
            nonlocal rows
            original_fork(prompt_R, max_new_tokens, use_graph=use_graph)
            rows = torch.tensor([prompts[int(p)].example_id == self.example_id for p in prompt_R])
            if not self.position:
                inner.logits[rows, 7] = torch.nan

        def step(token_R: Tensor) -> Tensor:
            nonlocal num_steps
            num_steps += 1
            logits = original_step(token_R)
            if num_steps >= self.position:
                logits[rows, 7] = torch.nan
            return logits

        def keep(alive: Tensor) -> None:
            nonlocal rows
            original_keep(alive)
            rows = rows[alive]

        inner.fork, inner.step, inner.keep = fork, step, keep  # type: ignore[method-assign]
        return inner


@pytest.mark.parametrize("position", [0, 3])
@pytest.mark.parametrize("temperature", [0, 1.0])
def test_logits_that_are_not_finite_end_a_rollout_and_mark_it(temperature: float, position: int) -> None:
    model, sampling = build_model(), Sampling(temperature=temperature, max_new_tokens=20)
    prompts = three_prompts("qwen3_vl")
    sound = TransformersEngine(model).sample(prompts, sampling, num_rollouts=2, seed=0).rollouts
    engine = NotFinite(model, keeps_broken=True)
    engine.position = position
    found = engine.sample(prompts, sampling, num_rollouts=2, seed=0).rollouts
    assert all(len(rollout.token_ids) > position for rollout in sound), "every rollout meets the NaN"
    for expected, rollout in zip(sound, found, strict=True):
        if rollout.example_id == "b":
            assert rollout.stop == "broken"
            assert rollout.token_ids == (*expected.token_ids[:position], engine.end_ids[0])
        else:
            assert rollout == expected


@pytest.mark.parametrize("temperature", [0, 1.0])
def test_a_model_that_cannot_be_drawn_from_is_an_error_that_names_the_example(temperature: float) -> None:
    sampling = Sampling(temperature=temperature, max_new_tokens=20)
    with pytest.raises(RunError, match="not finite in 2 of 6 rollouts, of example 'b', the first after 3 tokens"):
        NotFinite(build_model()).sample(three_prompts("qwen3_vl"), sampling, num_rollouts=2, seed=0)


def test_what_a_row_does_after_its_end_does_not_break_it() -> None:
    model, prompts = likely_to_stop(build_model(), "qwen3_vl"), three_prompts("qwen3_vl")
    sampling = Sampling(max_new_tokens=20)
    sound = TransformersEngine(model).sample(prompts, sampling, num_rollouts=8, seed=0).rollouts
    engine = NotFinite(model, keeps_broken=True)
    found = engine.sample(prompts, sampling, num_rollouts=8, seed=0).rollouts
    early = [i for i, rollout in enumerate(sound) if rollout.example_id == "b" and len(rollout.token_ids) <= 3]
    assert early
    assert all(found[i] == sound[i] for i in early)


def test_a_decoder_is_gone_with_its_last_name() -> None:
    """It holds the memory of a batch and of its graph, which must not wait for a collection."""
    model, prompts = build_model(), three_prompts("qwen3_vl")
    family_of(model).prepare(model)
    with torch.no_grad():
        decoding = decoder.prefill(model, prompts)
        decoding.fork(torch.tensor([0, 1, 2]), 4, use_graph=True)
        for token in (5, 6):
            decoding.step(torch.full((3,), token))
    seen = [weakref.ref(decoding), weakref.ref(decoding.graphed), weakref.ref(decoding.shared)]
    gc.collect()
    gc.disable()
    try:
        del decoding
        assert [each() for each in seen] == [None, None, None]
    finally:
        gc.enable()
