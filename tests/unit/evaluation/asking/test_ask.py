"""Every question gets one prediction, in order; what is known is not asked again; what fails is on record."""

import io
import random
import re
import weakref
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rich.console import Console

from tiny_models import build_model
from tiny_processor import build_processor, write_processor_files
from toy_questions import Parrot, question
from vcsd.errors import ConfigError
from vcsd.evaluation.asking import asking_bar as bars
from vcsd.evaluation.asking import model_answerer
from vcsd.evaluation.asking.ask import ask
from vcsd.evaluation.asking.asking_bar import AskingBar
from vcsd.evaluation.asking.model_answerer import ModelAnswerer, encode_question, folder_identity
from vcsd.evaluation.asking.presets import PAPER_SAMPLING
from vcsd.evaluation.reading import read_answer
from vcsd.method import METHODS
from vcsd.models.processor import load_processor
from vcsd.rollout.contrast_engine import ContrastEngine, pair
from vcsd.rollout.engine import TransformersEngine
from vcsd.rollout.sampling import Sampling
from vcsd.rollout.vllm.vllm_requests import RequestRefusedError

SHORT = Sampling(max_new_tokens=6, temperature=0)
FIVE = [question(str(place), text=f"how many, {place}?") for place in range(5)]


@pytest.fixture(scope="module")
def model():
    return build_model()


def answerer(model, **settings):
    return ModelAnswerer(TransformersEngine(model), build_processor(), **{"name": "tiny", **settings})


def test_predictions_come_in_the_order_of_questions_whatever_the_order_of_answers():
    assert [p.text for p in ask(FIVE, Parrot())] == [f"how many, {place}?" for place in range(5)]


def test_an_interrupted_run_goes_on_and_asks_nothing_twice(tmp_path):
    path = tmp_path / "predictions.jsonl"
    first, second, third = Parrot(dies_after=2), Parrot(), Parrot()
    with pytest.raises(KeyboardInterrupt):
        ask(FIVE, first, path=path)
    whole = ask(FIVE, second, path=path)
    assert sorted(first.asked + second.asked) == ["0", "1", "2", "3", "4"]
    assert ask(FIVE, third, path=path) == whole == ask(FIVE, Parrot())
    assert third.asked == []


def test_a_failed_question_is_on_record_and_asked_again(tmp_path):
    path = tmp_path / "predictions.jsonl"
    found = ask(FIVE, Parrot(fails={"1"}), path=path)
    assert [p.error for p in found] == [None, "DataError: broken", None, None, None]
    mended = Parrot()
    assert ask(FIVE, mended, path=path)[1].text == "how many, 1?"
    assert mended.asked == ["1"]


def test_another_model_prompt_or_sampling_is_asked_anew(tmp_path):
    path = tmp_path / "predictions.jsonl"
    ask(FIVE, Parrot(), path=path)
    other_model, other_sampling, other_prompt = Parrot("other"), Parrot(), Parrot()
    ask(FIVE, other_model, path=path)
    ask(FIVE, other_sampling, sampling=SHORT, path=path)
    ask([*FIVE[:4], question("4", text="think first")], other_prompt, path=path)
    assert len(other_model.asked) == len(other_sampling.asked) == 5
    assert other_prompt.asked == ["4"]


def test_two_questions_of_one_name_are_refused():
    with pytest.raises(ConfigError, match="1 question ids are not unique, such as toy '0'"):
        ask([question(), question()], Parrot())
    assert len(ask([question(), question(benchmark="other")], Parrot())) == 2


def test_the_papers_sampling_is_pinned():
    assert Sampling(4096, 0.0, top_p=0.8, top_k=20, presence_penalty=1.5) == PAPER_SAMPLING


def test_a_model_answers_as_generate_does_and_a_broken_image_fails_alone(model, tmp_path):
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no image")
    asked = [FIVE[0], question("bad", images=(broken,)), FIVE[1], question("text", images=())]
    found = ask(asked, answerer(model, batch_size=2), sampling=SHORT)
    assert [p.question_id for p in found] == ["0", "bad", "1", "text"]
    assert "broken.png' cannot be read" in found[1].error
    assert found[1].stop is None
    processor = build_processor()
    for place in (0, 2):
        messages = [dict(m) for m in asked[place].example.prompt]
        text = processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        inputs = processor(text=[text], images=list(asked[place].example.images), return_tensors="pt")
        ids = model.generate(**inputs, max_new_tokens=6, do_sample=False)[0, inputs["input_ids"].shape[1] :]
        kept = ids.tolist()
        assert found[place].text == processor.tokenizer.decode(kept, skip_special_tokens=True)
        assert found[place].num_tokens == len(kept)


def test_a_question_longer_than_the_positions_of_the_model_fails_alone(model):
    asked = [FIVE[0], question("long", text="7" * 5000, images=())]
    found = ask(asked, answerer(model), sampling=SHORT)
    assert found[0].error is None
    assert re.search(r"its prompt has \d+ tokens, 4095 are allowed", found[1].error)


def test_control_tokens_in_a_question_are_text(model):
    encoded = encode_question(question("a", text="What is <|im_end|>?", images=()), build_processor())
    plain = encode_question(question("a", text="What is it?", images=()), build_processor())
    end = build_processor().tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert (encoded.input_ids == end).sum() == (plain.input_ids == end).sum() == 1


def test_a_model_that_cannot_be_drawn_from_has_failed_and_not_said_nothing():
    broken = build_model()
    with torch.no_grad():
        broken.lm_head.weight[3] = torch.nan
    asker = ModelAnswerer(TransformersEngine(broken, keeps_broken=True), build_processor(), name="tiny")
    for found in ask(FIVE[:2], asker, sampling=SHORT):
        assert (found.text, found.stop) == ("", None)
        assert found.error == "RunError: the model's logits are not finite."


def test_answers_do_not_depend_on_batches_nor_on_who_reads_the_images(model, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no image")
    asked = [question(str(n), text="how many?" * n) for n in range(1, 8)]
    asked.insert(3, question("bad", images=(tmp_path / "broken.png",)))
    alone = ask(asked, answerer(model, batch_size=1), sampling=SHORT)
    assert ask(asked, answerer(model, batch_size=3, num_readers=3), sampling=SHORT) == alone
    assert [p.error is None for p in alone] == [p.question_id != "bad" for p in alone]


def test_a_batch_ends_when_its_prompts_are_long(model, monkeypatch):
    sizes = []

    class Counting(TransformersEngine):
        def sample(self, prompts, sampling, **given):
            sizes.append(len(prompts))
            return super().sample(prompts, sampling, **given)

    monkeypatch.setattr(model_answerer, "BATCH_TOKENS", 60)
    asker = ModelAnswerer(Counting(model), build_processor(), name="tiny")
    length = len(asker._prompt(FIVE[0]))
    assert 20 <= length < 60
    assert len(ask(FIVE, asker, sampling=SHORT)) == 5
    assert sizes == [-(-60 // length)] * (5 // -(-60 // length)) + [5 % -(-60 // length)] * (5 % -(-60 // length) > 0)


def test_the_thinking_switch_reaches_the_prompt_and_the_key():
    model = build_model("qwen3_5")
    processor = build_processor("qwen3_5")
    answers = {}
    for switch in ({}, {"enable_thinking": False}):
        asker = ModelAnswerer(TransformersEngine(model), processor, name="t", chat_template_kwargs=switch)
        assert asker._prompt(FIVE[0]).text.endswith("</think>\n\n") == bool(switch)
        answers[len(switch)] = (asker.identity, ask(FIVE[:1], asker, sampling=SHORT)[0].text)
    assert answers[0][0] != answers[1][0]
    assert answers[0][1] != answers[1][1]


@pytest.mark.parametrize("switch", [{}, {"enable_thinking": True}, {"enable_thinking": False}])
def test_a_thought_that_the_template_opens_is_part_of_the_answer(switch, monkeypatch):
    """Without the tag, thinking that is cut off looks like an answer, and is read as one."""
    processor = build_processor("qwen3_5")
    asker = ModelAnswerer(TransformersEngine(build_model("qwen3_5")), processor, name="t", chat_template_kwargs=switch)
    thinks, decode = switch.get("enable_thinking", True), processor.tokenizer.decode
    for said, found in (("So the answer is B.", None), ("A? No.</think>The answer is B.", "B")):

        def answered(ids, *, skip_special_tokens, said=said):
            return said if skip_special_tokens else decode(ids)

        with monkeypatch.context() as patch:
            patch.setattr(processor.tokenizer, "decode", answered)
            (prediction,) = ask(FIVE[:1], asker, sampling=SHORT)
        assert prediction.text == (f"<think>{said}" if thinks else said)
        assert read_answer(prediction.text, "option", {"A": "one", "B": "two"}).found == (found if thinks else "B")


def test_a_model_in_training_is_left_as_it_was(model):
    live = build_model()
    live.train()
    live.model.visual.eval()
    modes = [module.training for module in live.modules()]
    torch.manual_seed(3), random.seed(3), np.random.seed(3)
    expected = (torch.rand(2).tolist(), random.random(), np.random.rand())
    torch.manual_seed(3), random.seed(3), np.random.seed(3)
    found = ask(FIVE, answerer(live), sampling=Sampling(max_new_tokens=6, temperature=1.0))
    assert (torch.rand(2).tolist(), random.random(), np.random.rand()) == expected
    assert [module.training for module in live.modules()] == modes
    assert all(parameter.grad is None for parameter in live.parameters())
    assert found == ask(FIVE, answerer(model), sampling=Sampling(max_new_tokens=6, temperature=1.0))


def test_every_random_generator_is_left_as_it_was_whatever_draws_from_it():
    torch.manual_seed(3), random.seed(3), np.random.seed(3)
    expected = (torch.rand(2).tolist(), random.random(), np.random.rand())
    torch.manual_seed(3), random.seed(3), np.random.seed(3)
    with model_answerer.same_randomness():
        torch.rand(5), random.random(), np.random.rand()
    assert (torch.rand(2).tolist(), random.random(), np.random.rand()) == expected


def test_the_key_of_an_answer_has_the_models_precision_and_how_large_it_sees(model, tmp_path):
    usual = answerer(model).identity
    half = TransformersEngine(model, compute_dtype=torch.bfloat16)
    assert ModelAnswerer(half, build_processor(), name="tiny").identity != usual
    write_processor_files(tmp_path)
    small = load_processor(tmp_path, max_pixels=32 * 32 * 4)
    assert ModelAnswerer(TransformersEngine(model), small, name="tiny").identity != usual
    assert answerer(model).identity == usual


def test_an_answer_that_was_cut_off_says_so_and_the_seed_reaches_the_draws(model):
    drawn = Sampling(max_new_tokens=6, temperature=1.0)
    first, again, other = (ask(FIVE, answerer(model), sampling=drawn, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    assert {p.stop for p in ask(FIVE, answerer(model), sampling=Sampling(max_new_tokens=1))} == {"length"}


class NoMemory:
    """An engine without room for more than one prompt, nor for the prompt of one question at all."""

    def __init__(self, engine, too_large):
        self.engine, self.too_large = engine, too_large
        self.base, self.compute_dtype = engine.base, engine.compute_dtype

    def sample(self, prompts, sampling, **given):
        if len(prompts) > 1 or prompts[0].example_id == self.too_large:
            raise torch.OutOfMemoryError("out of memory")
        return self.engine.sample(prompts, sampling, **given)


def test_a_question_without_room_fails_alone(model):
    asker = ModelAnswerer(NoMemory(TransformersEngine(model), "3"), build_processor(), name="tiny")
    found = ask(FIVE, asker, sampling=SHORT)
    assert [p.error is None for p in found] == [True, True, True, False, True]
    assert "OutOfMemoryError" in found[3].error
    assert found[0] == ask(FIVE[:1], answerer(model), sampling=SHORT)[0]


def test_a_batch_that_did_not_fit_is_freed_before_its_questions_are_asked_alone(model):
    are_freed = []

    class Holding(NoMemory):
        cache = staticmethod(lambda: None)

        def sample(self, prompts, sampling, **given):
            are_freed.append(self.cache() is None)
            cache = torch.zeros(1)
            self.cache = weakref.ref(cache)
            return super().sample(prompts, sampling, **given)

    asker = ModelAnswerer(Holding(TransformersEngine(model), "3"), build_processor(), name="tiny")
    ask(FIVE, asker, sampling=SHORT)
    assert are_freed == [True] * 6


class LittleRoom:
    """An engine with room for `room` tokens of prompt and response. It refuses one question, like vLLM would."""

    def __init__(self, engine, room, refused):
        self.engine, self.room, self.refused = engine, room, refused
        self.base, self.compute_dtype = engine.base, engine.compute_dtype

    def sample(self, prompts, sampling, **given):
        if self.refused in [prompt.example_id for prompt in prompts]:
            raise RequestRefusedError("vLLM refuses the request: an image is too large.")
        drawn = self.engine.sample(prompts, sampling, **given)
        most = [self.room - len(prompt.input_ids) for prompt in prompts]
        cut = [
            replace(rollout, token_ids=rollout.token_ids[:fits], stop="cut")
            if len(rollout.token_ids) > fits
            else rollout
            for rollout, fits in zip(drawn.rollouts, most, strict=True)
        ]
        return replace(drawn, rollouts=tuple(cut))


def test_what_an_engine_has_no_room_for_fails_alone_and_says_what_to_change(model):
    engine = TransformersEngine(model)
    asked = [*FIVE, question("long", text="how many? " * 40)]
    lengths = [len(encode_question(one, build_processor()).input_ids) for one in asked]
    room = max(lengths[:5]) + 3  # fewer than the six tokens of a response
    found = ask(asked, ModelAnswerer(LittleRoom(engine, room, "2"), build_processor(), name="tiny"), sampling=SHORT)
    texts = [one.error or "" for one in found]
    assert texts[5].startswith(
        f"DataError: example 'long': its prompt has {lengths[5]} tokens, {room - 1} are allowed."
    )
    assert texts[2] == "RequestRefusedError: vLLM refuses the request: an image is too large."
    assert texts[0] == (
        f"RunError: its response was cut off after 3 tokens: the engine has room for {room} tokens of prompt and "
        "response. Lower the limit of new tokens, lower max_pixels, or give vLLM more memory."
    )
    enough = ask(
        asked, ModelAnswerer(LittleRoom(engine, room + 3, "2"), build_processor(), name="tiny"), sampling=SHORT
    )
    assert [one.error is None for one in enough] == [True, True, False, True, True, False]
    assert enough[0] == ask(FIVE[:1], answerer(model), sampling=SHORT)[0]


def test_a_folder_is_known_by_all_that_changes_answers(tmp_path, model):
    model.save_pretrained(tmp_path / "a")
    write_processor_files(tmp_path / "a")
    build_model(seed=1).save_pretrained(tmp_path / "b")
    write_processor_files(tmp_path / "b")
    first = folder_identity(tmp_path / "a")
    assert folder_identity(tmp_path / "b") != first
    template = tmp_path / "a" / "chat_template.json"
    template.write_text(template.read_text().replace("assistant", "model"))
    assert folder_identity(tmp_path / "a") != first
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="holds no weights"):
        folder_identity(tmp_path / "empty")


def test_the_bar_counts_failures_and_what_was_known():
    screen = Console(file=io.StringIO(), force_terminal=True, width=120)
    bar = AskingBar("toy", screen)
    ask(FIVE, Parrot(fails={"2"}), bar=bar)
    assert "5/5" in screen.file.getvalue()
    assert "1 failed" in screen.file.getvalue()
    assert bar.line() == "4 of 5 answered, 1 failed"


def test_without_a_terminal_the_log_says_how_far_it_is(caplog, monkeypatch):
    monkeypatch.setattr(bars, "LOG_EVERY_SECONDS", 0.0)
    monkeypatch.setattr(bars, "BATCH_SECONDS", 0.0)
    with caplog.at_level("INFO", logger="vcsd"):
        ask(FIVE, Parrot(), bar=AskingBar("toy", Console(file=io.StringIO(), force_terminal=False)))
    assert [record.getMessage() for record in caplog.records][2:] == [
        *("toy: 3 of 5 answered, 0:00:00 left", "toy: 4 of 5 answered, 0:00:00 left"),
        "toy: 5 of 5 answered",
    ]


def test_the_time_left_is_that_of_whole_batches(caplog, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(bars, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with caplog.at_level("INFO", logger="vcsd"), AskingBar("toy", Console(force_terminal=False)) as bar:
        bar.begin(0, 48)
        for seconds in (70.0, 140.0):
            now[0] = seconds
            for _ in range(16):
                bar.step(is_failed=False)
        assert [record.getMessage() for record in caplog.records] == ["toy: 16 of 48 answered, 0:02:20 left"]
        assert bar.line() == "32 of 48 answered, 0:01:10 left"


def test_contrast_decoding_goes_through_the_same_answerer(model):
    processor, method = build_processor(), METHODS["vcsd"]
    pairs = [pair(each.example, method, processor) for each in FIVE]
    engine = ContrastEngine(model, method=method)
    drawn = engine.sample(pairs, SHORT, num_rollouts=1, seed=0).rollouts
    contrast = ModelAnswerer(engine, processor, name="tiny")
    assert [rollout.token_ids for _, rollout in contrast.rollouts(FIVE, SHORT, seed=0)] == [r.token_ids for r in drawn]
    assert [p.num_tokens for p in ask(FIVE, contrast, sampling=SHORT)] == [len(r.token_ids) for r in drawn]
    other = ModelAnswerer(ContrastEngine(model, method=replace(method, alpha=0.5)), processor, name="tiny")
    identities = [repr(each.identity) for each in (answerer(model), contrast, other)]
    assert len(set(identities)) == 3, "answers of one way of decoding must not be taken for those of another"


def test_prompts_may_be_kept_from_one_model_to_the_next(model):
    processor, kept = build_processor(), {}

    def prompt_of(question):
        if question.id not in kept:
            kept[question.id] = encode_question(question, processor)
        return kept[question.id]

    settings = {"name": "tiny", "prompt_of": prompt_of, "identity": {"model": "m"}}
    asker = ModelAnswerer(TransformersEngine(model), processor, **settings)
    assert ask(FIVE, asker, sampling=SHORT) == ask(FIVE, answerer(model), sampling=SHORT)
    assert (len(kept), asker.identity) == (5, {"model": "m"})
