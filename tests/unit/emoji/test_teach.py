"""A tiny language model learns to see: the tokens are the processor's, and a resumed run gives the same model."""

import json
import math
import random
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from tiny_language import plain_sprites, write_language, write_sprites
from vcsd.batch import show
from vcsd.emoji.captions import CaptionSteps, Shares, conversation
from vcsd.emoji.emoji_exam import SceneExam, english_perplexity, picture_seed, scene_example
from vcsd.emoji.emoji_scenes import ScenePainter, draw_scene
from vcsd.emoji.questions import SUITES
from vcsd.emoji.scene_files import write_prompts_file, write_questions_file
from vcsd.emoji.seeing_model import (
    NUM_VISUAL,
    PromptTokens,
    TowerSize,
    build_seeing_model,
    hidden_states,
    write_processor,
)
from vcsd.emoji.sprites import save_sprites
from vcsd.emoji.teach import CARD, Teaching, TeachingPlan, teach
from vcsd.errors import ConfigError, RunError
from vcsd.evaluation.benchmarks.own_tsv import load_own_tsv
from vcsd.method import METHODS
from vcsd.models.encode import encode
from vcsd.models.family import family_of
from vcsd.models.hub import load_model
from vcsd.models.processor import load_processor
from vcsd.views.hint import hint

PLAN = TeachingPlan(
    sight_steps=2, caption_steps=3, sight_batch=3, shares=Shares(3, 1, 1), tower=TowerSize(32, 1, 2), replay_rows=4
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("emoji")
    write_language(root / "language")
    write_sprites(root / "sprites.safetensors")
    teach(PLAN, root / "language", root / "sprites.safetensors", root / "base", device="cpu", say=str, num_dev=1)
    return root


@pytest.fixture(scope="module")
def painter():
    return ScenePainter(plain_sprites())


def test_lessons_have_the_tokens_that_the_processor_makes(folder, painter):
    processor = load_processor(folder / "base")
    tokens = PromptTokens(processor.tokenizer)
    example, asked = scene_example(painter, "dev", "count", 0)
    encoded = encode(processor, example)
    assert tokens.prompt(asked.text, has_picture=True) == encoded.input_ids.tolist()
    assert encoded.input_ids.tolist().count(processor.image_token_id) == NUM_VISUAL


def test_hinted_lessons_have_the_words_of_the_hint_view(painter):
    example, _ = scene_example(painter, "dev", "count", 0)
    shown = hint(example).prompt[-1]["content"][-1]["text"]
    rng = random.Random(3)
    turns = [turn for _ in range(200) for turn in conversation(rng, draw_scene(rng))]
    hinted = [question for question, _ in turns if "[Reference answer]" in question]
    assert hinted
    ending = shown.partition("[End of the reference answer]")[2]
    assert all(question.endswith(ending) for question in hinted)


def lesson(folder, shares, replay=()):
    tokens = PromptTokens(load_processor(folder / "base").tokenizer)
    return tokens, CaptionSteps(tokens, shares, list(replay), 0, 1)[0]


def test_lessons_teach_answers_with_their_end_and_nothing_else(folder):
    tokens, rows = lesson(folder, Shares(3, 1, 0))
    segment_N = rows.segments_RL.flatten()[rows.before_N]
    assert sorted(set(segment_N.tolist())) == [0, 1, 2, 3]
    for number in range(4):
        text = tokens.tokenizer.decode(rows.taught_N[segment_N == number])
        assert text.endswith(".<|im_end|>")
        assert "?" not in text
        assert "<|im_start|>" not in text
    _, again = lesson(folder, Shares(3, 1, 0))
    assert torch.equal(rows.ids_RL, again.ids_RL)
    assert torch.equal(rows.taught_N, again.taught_N)


def test_packed_lessons_have_the_hidden_states_of_the_model_row_by_row(folder, painter):
    processor = load_processor(folder / "base")
    model = build_seeing_model(folder / "language", processor, PLAN.tower).eval()
    _, rows = lesson(folder, Shares(5, 2, 1), [[5, 6, 7, 8]])
    assert len(rows.ids_RL) < 8, "some rows share a packed row"
    pixels = painter.paint(rows.sprites_B9, rows.tints_B9, torch.Generator().manual_seed(0))
    own_ND = torch.empty(len(rows.before_N), model.config.text_config.hidden_size)
    with torch.no_grad():
        packed_ND = hidden_states(model, rows, pixels[rows.order_B])
        for number in range(8):
            is_here = rows.segments_RL.flatten() == number
            shown = {"pixel_values": 2 * pixels[number][None, None] - 1} if number < 5 else {}
            alone = model.model(input_ids=rows.ids_RL.flatten()[is_here][None], **shown).last_hidden_state[0]
            start = int(is_here.nonzero()[0])
            is_own = is_here[rows.before_N]
            own_ND[is_own] = alone[rows.before_N[is_own] - start]
    torch.testing.assert_close(packed_ND, own_ND, atol=1e-5, rtol=1e-5)


def test_the_model_shares_prompts_among_responses(folder):
    processor = load_processor(folder / "base")
    model = build_seeing_model(folder / "language", processor, PLAN.tower).eval()
    assert family_of(model).name == "idefics3"


def test_the_language_model_keeps_its_weights(folder):
    processor = load_processor(folder / "base")
    model = build_seeing_model(folder / "language", processor, PLAN.tower)
    words = load_file(folder / "language" / "model.safetensors")
    table = model.model.text_model.embed_tokens.weight
    assert torch.equal(table[: len(words["model.embed_tokens.weight"])], words["model.embed_tokens.weight"])
    assert model.lm_head.weight is table
    name = "layers.1.mlp.up_proj.weight"
    assert torch.equal(model.model.text_model.state_dict()[name], words[f"model.{name}"])


def test_a_tokenizer_without_chat_tokens_is_refused(folder, tmp_path):
    source = folder / "language" / "tokenizer.json"
    (tmp_path / "tokenizer.json").write_text(source.read_text().replace("<|im_start|>", "<|other|>"))
    (tmp_path / "tokenizer_config.json").write_text((folder / "language" / "tokenizer_config.json").read_text())
    tree = json.loads((tmp_path / "tokenizer_config.json").read_text())
    tree["bos_token"] = None
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(tree))
    with pytest.raises(ConfigError, match="ChatML"):
        write_processor(tmp_path, tmp_path)
    with pytest.raises(ConfigError, match=r"tokenizer\.json"):
        write_processor(tmp_path / "none", tmp_path)


@pytest.mark.parametrize("stop", [1, 2, 4])
def test_a_resumed_run_gives_the_same_model(folder, tmp_path, stop):
    paths = (folder / "language", folder / "sprites.safetensors", tmp_path)
    stopped, said = Teaching(PLAN, *paths, "cpu", str), []
    assert not stopped.run(lambda: stopped.num_done >= stop)
    teach(PLAN, *paths, device="cpu", say=said.append, num_dev=1)
    assert said[0] == f"resumed after {stop} steps"
    one, other = (load_file(path / "model.safetensors") for path in (folder / "base", tmp_path))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize("is_finite", [False, True])
def test_a_gradient_that_is_not_finite_costs_a_step_and_no_weight(folder, tmp_path, monkeypatch, is_finite):
    said = []
    teaching = Teaching(PLAN, folder / "language", folder / "sprites.safetensors", tmp_path, "cpu", said.append)
    before = {name: parameter.detach().clone() for name, parameter in teaching._named().items()}
    clip = torch.nn.utils.clip_grad_norm_
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda *a: clip(*a) * (1 if is_finite else math.inf))
    assert not teaching.run(lambda: True)
    is_same = all(torch.equal(before[name], parameter) for name, parameter in teaching._named().items())
    assert is_same != is_finite
    again = Teaching(PLAN, folder / "language", folder / "sprites.safetensors", tmp_path, "cpu", said.append)
    assert (again.num_done, again.num_skipped) == (1, 0 if is_finite else 1)
    assert ("the gradient of step 1 is not finite; the step is skipped" in said) != is_finite


def test_a_run_that_diverges_ends(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda *a: torch.tensor(math.nan))
    plan = replace(PLAN, sight_steps=12)
    with pytest.raises(RunError, match="not finite in 11 steps"):
        Teaching(plan, folder / "language", folder / "sprites.safetensors", tmp_path, "cpu", str).run()


def test_a_folder_with_another_base_is_refused_and_a_finished_one_is_kept(folder):
    paths = (folder / "language", folder / "sprites.safetensors", folder / "base")
    said = []
    teach(PLAN, *paths, device="cpu", say=said.append)
    assert said == [f"{folder / 'base'} is already done."]
    with pytest.raises(ConfigError, match="another plan"):
        teach(TeachingPlan(seed=2), *paths, device="cpu", say=str)


@pytest.mark.parametrize("part", ["language", "sprites"])
def test_other_sprites_and_other_language_models_are_refused_before_and_after_the_end(folder, tmp_path, part):
    paths = {"language": folder / "language", "sprites": folder / "sprites.safetensors"}
    assert not Teaching(PLAN, **paths, out=tmp_path / "out", device="cpu", say=str).run(lambda: True)
    if part == "sprites":
        save_sprites(255 - plain_sprites(), tmp_path / part)
    else:
        shutil.copytree(folder / part, tmp_path / part)
        weights = load_file(tmp_path / part / "model.safetensors")
        save_file({name: 2 * weight for name, weight in weights.items()}, tmp_path / part / "model.safetensors")
    paths[part] = tmp_path / part
    with pytest.raises(ConfigError, match=f"belongs to another run: {part}"):
        teach(PLAN, **paths, out=tmp_path / "out", device="cpu", say=str)
    with pytest.raises(ConfigError, match=f"holds a base of another {part}"):
        teach(PLAN, **paths, out=folder / "base", device="cpu", say=str)


def test_a_gpu_that_is_not_there_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="torch sees no GPU"):
        teach(PLAN, tmp_path, tmp_path, tmp_path, device="cuda:0", say=str)


def test_the_card_holds_every_suite(folder):
    card = json.loads((folder / "base" / CARD).read_text())
    assert card["dev"].keys() == SUITES.keys()
    assert card["plan"]["shares"] == {"picture": 3, "fact": 1, "replay": 1}
    assert card["english_perplexity"] > 100  # random weights


def test_the_exam_scores_words_sentences_and_suggestions(folder, painter, monkeypatch):
    exam = SceneExam(painter, load_processor(folder / "base"), "dev", 2)
    said = [asked.sentence for asked in exam.asked]
    said[exam.questions.index(next(q for q in exam.questions if q.benchmark == "count"))] = "Two, no, nine."
    first = next(i for i, q in enumerate(exam.questions) if q.benchmark == "unusual_prompted")
    said[first] = f"Hm, {exam.asked[first].suggested}!"
    monkeypatch.setattr(exam, "answers", lambda model, method=None: said)
    scores = exam.take(None)
    assert scores["name"] == {
        "right": 100.0,
        "sentence": 100.0,
        "suggested": 0.0,
        "unread": 0.0,
        "num": 2,
        "marks": "11",
    }
    assert scores["count"]["sentence"] == 50.0
    assert scores["unusual_prompted"] == {
        **{"right": 50.0, "sentence": 50.0, "suggested": 50.0},
        **{"unread": 0.0, "num": 2, "marks": "01"},
    }


def test_no_two_questions_share_the_seed_of_their_picture():
    numbers = [*range(300), 5000, 99_999]
    seeds = [picture_seed(split, suite, n) for split in ("train", "dev", "test") for suite in SUITES for n in numbers]
    assert len(set(seeds)) == len(seeds) == 3 * 14 * 302


def test_a_base_answers_plainly_and_by_contrast(folder, painter):
    model, processor = load_model(folder / "base", torch.float32), load_processor(folder / "base")
    exam = SceneExam(painter, processor, "test", 1)
    assert exam.take(model).keys() == exam.take(model, METHODS["vcsd"]).keys() == SUITES.keys()
    assert english_perplexity(model, processor.tokenizer) > 100


def test_prompts_and_questions_are_ordinary_files(painter, tmp_path):
    table = write_prompts_file(painter, tmp_path, 6)
    rows = [json.loads(line) for line in table.read_text().splitlines()]
    assert [row["category"] for row in rows] == [row["id"].split("-")[1] for row in rows]
    assert all((tmp_path / row["image"]).is_file() for row in rows)
    assert write_prompts_file(painter, tmp_path, 6) == table
    with pytest.raises(ConfigError, match=r"'prompts': 6, .*, not as \{'prompts': 7"):
        write_prompts_file(painter, tmp_path, 7)
    with pytest.raises(ConfigError, match="Choose another folder"):
        write_prompts_file(ScenePainter(255 - plain_sprites()), tmp_path, 6)
    path = write_questions_file(painter, tmp_path / "emoji_dev.tsv", "dev", 1)
    _, loaded = load_own_tsv(path)
    assert [question.groups["category"] for question in loaded.questions] == list(SUITES)
    assert all(question.gold.endswith(".") for question in loaded.questions)


def test_the_control_is_black_and_seen_as_a_picture(folder, painter):
    processor = load_processor(folder / "base")
    model = load_model(folder / "base", torch.float32)
    example, _ = scene_example(painter, "dev", "count", 0)
    shown = show(example, METHODS["vcsd"], processor)
    assert torch.equal(shown.contrast.pixel_values, torch.full_like(shown.contrast.pixel_values, -1.0))
    assert torch.equal(shown.contrast.input_ids, shown.target.input_ids)
    seen = model.model.get_image_features(
        pixel_values=shown.contrast.pixel_values, **shown.contrast.extra
    ).pooler_output
    assert [picture.shape[0] for picture in seen] == [NUM_VISUAL], "Idefics3 drops pictures of zeros as padding"
