"""Recipes, overrides and command lines from a stranger: a valid recipe, or an error that names every problem."""

import json
import re

import pytest
import yaml

from attacker import CLEAN, mutated, mutated_bytes, rng_of, text, value
from vcsd.cli import main
from vcsd.config.recipe import Recipe, build_recipe, load_recipe
from vcsd.config.sections import DataConfig, EvaluationConfig, ModelConfig, RolloutConfig
from vcsd.config.yaml_text import parse_yaml
from vcsd.evaluation.asking.address import Address
from vcsd.evaluation.asking.presets import parse_sampling
from vcsd.method import METHODS, PRESETS

NUM_TREES, NUM_OVERRIDES, NUM_TEXTS, NUM_ARGUMENTS, NUM_COMMANDS, NUM_WORDS = 3000, 1500, 2500, 250, 200, 1500

RECIPE = {
    "model": {"path": "m", "max_pixels": 1000, "chat_template_kwargs": {"enable_thinking": False}},
    "data": {"path": "d", "images": "i", "columns": {"prompt": "p", "id": None}, "max_skipped_share": 0.1},
    "method": {"name": "vcsd", "preset": "paper", "alpha": 0.5, "beta": 0.1},
    "rollout": {"num_per_prompt": 8, "temperature": 1.0, "top_p": 0.9, "top_k": 20},
    "prompts_per_step": 4,
    "evaluation": {"every": 10, "benchmarks": ["world"], "limit": 10, "sampling": "paper,max_new_tokens=5"},
    "guard": "warn",
    "trainer": {"max_steps": 5, "learning_rate": 1e-5, "output_dir": "runs/a", "seed": 3, "save_steps": 2},
}
SECTIONS = {"model": ModelConfig, "data": DataConfig, "rollout": RolloutConfig, "evaluation": EvaluationConfig}
KEYS = [f"{name}.{key}" for name, section in SECTIONS.items() for key in section.model_fields]
KEYS += ["method.name", "method.preset", "method.alpha", "method", "trainer.max_steps", "trainer", "guard", "resume"]
WORDS = [*METHODS, *PRESETS, "auto", "null", "1e-5", "true", "[1]", "{a: 1}", "0", "-1", "1.5", "&a [*a]", "!!str 1"]
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")


def check_recipe(recipe):
    """A recipe is typed, finite, and equal to itself after being written and read."""
    assert isinstance(recipe, Recipe)
    written = recipe.to_json()
    json.loads(written, parse_constant=pytest.fail)
    assert build_recipe(parse_yaml(written, source="itself")) == recipe


def test_a_hostile_recipe_is_refused_or_equals_itself_when_read_again(tally):
    for number in range(NUM_TREES):
        rng = rng_of("trees", number)
        tree = mutated(rng, RECIPE, rate=rng.choice((0.003, 0.01, 0.05, 0.2)))
        with tally.case(tree):
            check_recipe(build_recipe(tree))
            tally.note("recipe")


def test_a_hostile_override_is_refused_or_gives_a_recipe(tally):
    for number in range(NUM_OVERRIDES):
        rng = rng_of("overrides", number)
        overrides = [
            f"{rng.choice(KEYS) if rng.random() < 0.8 else text(rng)}{rng.choice(('=', '=', '=', ''))}"
            f"{rng.choice(WORDS) if rng.random() < 0.6 else value(rng)}"
            for _ in range(rng.randrange(1, 4))
        ]
        with tally.case(overrides):
            check_recipe(build_recipe({"model": {"path": "m"}, "data": {"path": "d"}}, overrides))
            tally.note("recipe")


def test_a_hostile_recipe_file_is_refused_or_gives_a_recipe(tally, tmp_path):
    """YAML and JSON with damaged bytes, aliases, tags and bases."""
    whole = [yaml.safe_dump(RECIPE).encode(), json.dumps(RECIPE).encode()]
    whole += [f"base: b.yaml\n{yaml.safe_dump({'method': {'alpha': 0.2}})}".encode()]
    (tmp_path / "b.yaml").write_bytes(whole[0])
    for number in range(NUM_TEXTS):
        rng = rng_of("texts", number)
        content = rng.choice(whole)
        for _ in range(rng.choice((1, 1, 1, 3))):
            content = mutated_bytes(rng, content)
        if rng.random() < 0.2:
            extra = rng.choice(
                ("&a [*a]", "<<: {b: 1}", "!!python/name:os.system", "? [a]\n: b", "%YAML 9.9", "--- a\n--- b")
            )
            content += f"\nx: {extra}\n".encode()
        (tmp_path / "a.yaml").write_bytes(content)
        with tally.case(content):
            check_recipe(load_recipe(tmp_path / "a.yaml"))
            tally.note("recipe")


def test_hostile_trainer_arguments_are_refused_or_accepted(tally, tmp_path, monkeypatch):
    """What transformers makes of the section `trainer`: an object, or an error of one sentence."""
    from transformers import TrainingArguments

    monkeypatch.chdir(tmp_path)
    names = sorted(TrainingArguments.__dataclass_fields__)
    for number in range(NUM_ARGUMENTS):
        rng = rng_of("arguments", number)
        chosen = {rng.choice(names): value(rng, 1) for _ in range(rng.randrange(1, 3))}
        tree = RECIPE | {"trainer": RECIPE["trainer"] | chosen | {"bf16": False, "use_cpu": True}}
        with tally.case(tree["trainer"]):
            recipe = build_recipe(tree)
            recipe.training_arguments()
            tally.note("arguments")


def test_a_hostile_command_line_ends_without_a_traceback(tally, tmp_path, monkeypatch, capsys):
    """`vcsd config` prints JSON and ends with 0, or one error without control characters and ends with 2."""
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(RECIPE))
    for number in range(NUM_COMMANDS):
        rng = rng_of("commands", number)
        recipe = str(tmp_path / "a.yaml") if rng.random() < 0.8 else text(rng)
        words = [f"{rng.choice(KEYS)}={rng.choice(WORDS) if rng.random() < 0.5 else text(rng)}" for _ in range(2)]
        monkeypatch.setattr("sys.argv", ["vcsd", "config", "--", recipe, *words])
        with tally.case(words), pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert not OBEYED.search(out + err)
        assert ended.value.code in (0, 2), (words, out, err)
        if ended.value.code == 0:
            check_recipe(build_recipe(json.loads(out)))
        else:
            assert err.strip()
            assert "Traceback" not in err
        tally.note(f"exit code {ended.value.code}")


def test_hostile_addresses_and_presets_are_refused_or_read(tally):
    """Addresses of servers and sampling presets, as they are typed."""
    for number in range(NUM_WORDS):
        rng = rng_of("words", number)
        parse = rng.choice((Address.parse, parse_sampling))
        parts = [
            "http://",
            "https://",
            "u:p@",
            "h",
            ":80",
            ":x",
            "/v1",
            "?key=1",
            "paper",
            ",",
            "temperature=",
            "1",
            "top_k=",
            text(rng),
        ]
        word = "".join(rng.choice(parts) for _ in range(rng.randrange(1, 7)))
        with tally.case(word):
            parse(word)
            tally.note(f"{parse.__name__} accepts it")


def test_the_attacker_would_notice(tally):
    """A case that raises anything but a clean error fails, and a clean error without words too."""
    with pytest.raises(KeyError), tally.case():
        raise KeyError("a bug")
    for error in CLEAN:
        with pytest.raises(AssertionError, match="without words"), tally.case():
            raise error.__new__(error)
