import json
import os
import warnings
from dataclasses import fields

import pytest
import torch

from vcsd import METHODS, Method
from vcsd.config.recipe import TRAINER_DEFAULTS, Recipe, Section, build_data, build_recipe, load_recipe
from vcsd.errors import ConfigError
from vcsd.rollout.sampling import Sampling

GOOD = {"model": {"path": "m"}, "data": {"path": "d"}}


def problems(tree, *overrides):
    with pytest.raises(ConfigError) as error:
        build_recipe(tree, overrides)
    return error.value.problems


def leaves(group=Recipe, path=()):
    """The path of every field that holds a value rather than a group."""
    for name, field in group.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from leaves(field.annotation, (*path, name))
        elif name not in ("method", "trainer"):
            yield (*path, name)


def meanings():
    """What each of those fields is described as."""
    found = {}
    for path in leaves():
        group = Recipe
        for key in path[:-1]:
            group = group.model_fields[key].annotation
        found[path] = group.model_fields[path[-1]].description
    return found


def with_value(path, value):
    tree = json.loads(json.dumps(GOOD))
    node = tree
    for key in path[:-1]:
        node = node.setdefault(key, {})
    node[path[-1]] = value
    return tree


def test_the_defaults_are_the_papers():
    recipe = build_recipe(GOOD)
    assert recipe.method == METHODS["vcsd"]
    assert (recipe.prompts_per_step, recipe.rollout.num_per_prompt) == (32, 8)
    assert (recipe.rollout.temperature, recipe.rollout.top_p, recipe.rollout.top_k) == (1.0, 1.0, None)
    assert recipe.rollout.max_new_tokens == 1024
    assert recipe.trainer["max_grad_norm"] == 1.0
    assert recipe.trainer == dict(TRAINER_DEFAULTS)
    assert (recipe.trainer["max_steps"], recipe.trainer["learning_rate"], recipe.trainer["warmup_steps"]) == (
        90,
        2e-6,
        10,
    )


@pytest.mark.parametrize("path", list(leaves()), ids=".".join)
@pytest.mark.parametrize("value", [["nonsense"], {"a": 1}, -1, float("nan"), ""], ids=str)
def test_every_field_says_its_path_its_value_and_what_it_is_for(path, value):
    (problem,) = problems(with_value(path, value))
    name = ".".join(path)
    meaning = meanings()[path]
    assert problem.startswith(f"{name} = {value!r} ")
    assert problem.endswith(meaning)
    assert meaning


@pytest.mark.parametrize("name", [field.name for field in fields(Method)])
def test_every_field_of_the_method_is_checked_at_its_path(name):
    assert problems({**GOOD, "method": {name: {"a": 1}}})[0].startswith(f"method.{name} = ")


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ({"model": {"path": "m"}}, "data is missing. The questions and images."),
        ({**GOOD, "model": {}}, "model.path is missing. A folder or hub id, such as Qwen/Qwen3-VL-2B-Instruct."),
        ({**GOOD, "model": {"path": ""}}, "model.path = '' is empty."),
        ({**GOOD, "methd": 1}, "methd is not a key. Did you mean 'method'?"),
        ({**GOOD, "model": {"path": "m", "max_pixel": 3}}, "model.max_pixel is not a key. Did you mean 'max_pixels'?"),
        ({**GOOD, "alpha": 1}, "alpha is not a key. Did you mean 'method.alpha'?"),
        ({**GOOD, "lora": {"alpha": 16}}, "lora.alpha is not a key. Did you mean 'lora.scale'? It is lora_alpha / r."),
        (
            {**GOOD, "model": {"path": "m", "name_or_path": "m"}},
            "model.name_or_path is not a key. Did you mean 'model.path'?",
        ),
        (
            {**GOOD, "temperature": 1},
            "temperature is not a key. Did you mean 'method.temperature' or 'rollout.temperature'?",
        ),
        ({**GOOD, "learning_rate": 1}, "learning_rate is not a key. Did you mean 'trainer.learning_rate'?"),
        (
            {**GOOD, "zzz": 1},
            "zzz is not a key. Allowed: data, evaluation, guard, lora, method, model, offload, prompts_per_step, "
            "resume, rollout, token_budget, trainer.",
        ),
        (
            {**GOOD, "rollout": 3},
            "rollout = 3 is not a section. Its keys: rollout.num_per_prompt, rollout.max_new_tokens, ",
        ),
        ({**GOOD, "evaluation": {"benchmarks": "BLNK"}}, "has an unknown name. Did you mean 'BLINK'?"),
        ({**GOOD, "evaluation": {"benchmarks": "my.tsv"}}, "unknown name. For a TSV: evaluation.tsv=FILE."),
        ({**GOOD, "evaluation": {"benchmarks": []}}, "evaluation.benchmarks = [] names none. Name some, or set eval"),
        ({**GOOD, "evaluation": {"every": 30, "tsv": []}}, "evaluation.tsv = [] is not a path or a list of paths."),
        (
            {**GOOD, "evaluation": {"every": 30, "tsv": "my.csv"}},
            "evaluation.tsv = 'my.csv' names a file that does not",
        ),
        (
            {**GOOD, "evaluation": {"tsv": "my.tsv"}},
            "evaluation.tsv = ['my.tsv'] has no effect without evaluation.every",
        ),
        ({**GOOD, "evaluation": {"benchmarks": "pope"}}, "has an unknown name. Did you mean 'POPE'?"),
        ({**GOOD, "prompts_per_step": 0}, "prompts_per_step = 0 must be at least 1."),
        ({**GOOD, "prompts_per_step": "32"}, "prompts_per_step = '32' is not a whole number."),
        ({**GOOD, "prompts_per_step": True}, "prompts_per_step = True is not a whole number."),
        ({**GOOD, "rollout": {"top_p": 0}}, "rollout.top_p = 0 must be greater than 0"),
        ({**GOOD, "rollout": {"top_p": 1.5}}, "rollout.top_p = 1.5 must be at most 1"),
        ({**GOOD, "rollout": {"temperature": float("inf")}}, "rollout.temperature = inf is not finite."),
        ({**GOOD, "method": 4}, "method = 4 is not a method. Allowed: vcsd, no_contrast,"),
        ({**GOOD, "method": "vscd"}, "method.name = 'vscd' is not a choice. Did you mean 'vcsd'?"),
        ({**GOOD, "method": {"name": ["vcsd"]}}, "method.name = ['vcsd'] is not a choice."),
        ({**GOOD, "method": {"preset": "papr"}}, "method.preset = 'papr' is not a choice. Did you mean 'paper'?"),
        ({**GOOD, "method": {"bata": 1}}, "method.bata is not a key. Did you mean 'beta'?"),
        ({**GOOD, "method": {"beta": 1.7}}, "method.beta = 1.7 is outside [0, 1]. 0.1 is the paper's value;"),
        ({**GOOD, "trainer": 3}, "trainer = 3 is not a section. See transformers.TrainingArguments."),
        ({**GOOD, "trainer": {"learning_rat": 1}}, "trainer.learning_rat is not a key. Did you mean 'learning_rate'?"),
        ({**GOOD, "trainer": {"learning_rate": "fast"}}, "trainer.learning_rate = 'fast' is not a number."),
        ({**GOOD, "trainer": {"learning_rate": float("nan")}}, "trainer.learning_rate = nan is not finite."),
        ({**GOOD, "trainer": {"lr_scheduler_type": "linera"}}, "is not a choice. Did you mean 'linear'?"),
        ({**GOOD, "trainer": {"max_steps": 0}}, "trainer.max_steps = 0 must be at least 1"),
        ({**GOOD, "trainer": {"num_train_epochs": 3}}, "cannot be set. Set trainer.max_steps, which would override it"),
        (
            {**GOOD, "model": {"path": "m", "min_pixels": 9, "max_pixels": 4}},
            "model.min_pixels = 9 exceeds model.max_pixels = 4.",
        ),
        ({**GOOD, "trainer": {"report_to": 3}}, "trainer.report_to = 3 is not of type"),
        ({**GOOD, "trainer": {"gradient_accumulation_steps": 2}}, "cannot be set. Set prompts_per_step;"),
        ({**GOOD, "trainer": {"deepspeed": "ds.json"}}, "cannot be set. DeepSpeed is not supported. Use FSDP2"),
        ({**GOOD, "lora": {"use_dora": True}}, "lora.use_dora is not supported. An average of DoRA's magnitudes"),
        ({**GOOD, "lora": {"modules_to_save": ["lm_head"]}}, "lora.modules_to_save is not supported. Checkpoints of"),
        ({**GOOD, "lora": {"target_modules": ["lm_head"]}}, "too, and never the head, whose weight scoring reads."),
        ({**GOOD, "lora": {"lm_head": True}}, "lora.lm_head is not supported. Scoring reads the head's weight"),
        ({**GOOD, "model": {"path": "m", "load_in_4bit": True}}, "model.load_in_4bit is not supported. An adapter"),
        ({**GOOD, "trainer": {"per_device_train_batch_size": 2}}, "cannot be set. Set prompts_per_step,"),
        (3, "a recipe has sections, but this one is 3. Start with 'model:' and 'data:'."),
    ],
)
def test_a_wrong_tree_says_what_to_do(tree, expected):
    (problem,) = problems(tree)
    assert expected in problem


def test_all_problems_are_reported_at_once():
    tree = {"model": {"pth": 1}, "method": {"beta": 2, "alpha": "x", "gamma": 1}, "trainer": {"lr": 1, "seed": "x"}}
    found = problems(tree, "rollout.top_p=7", "no_equals", "method.beta=[")
    paths = [problem.split()[0] for problem in found]
    assert paths == [
        "override",
        "override",
        "model.path",
        "model.pth",
        "data",
        "method.gamma",
        "method.alpha",
        "method.beta",
        "rollout.top_p",
        "trainer.lr",
        "trainer.seed",
    ]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("method.alpha", "is not of the form key.key=value, without spaces. Write null for no value."),
        ("method.alpha=", "is not of the form key.key=value, without spaces."),
        ("=3", "is not of the form"),
        ("method..alpha=3", "is not of the form"),
        ("model.path.x=3", "model.path is a value, not a section."),
        ("method.alpha={", "not valid YAML"),
        ("trainer.learning_rate=1e400", "trainer.learning_rate"),
    ],
)
def test_a_malformed_override_is_explained(override, message):
    assert any(message in problem for problem in problems(GOOD, override))


def test_overrides_reach_any_depth_and_are_typed_like_the_file():
    recipe = build_recipe(
        GOOD, ["method.alpha=5e-1", "trainer.learning_rate=1e-5", "method.contrast_view=noise", "model.path=a=b"]
    )
    assert (recipe.method.alpha, recipe.trainer["learning_rate"]) == (0.5, 1e-5)
    assert (recipe.method.contrast_view, recipe.model.path) == ("noise", "a=b")


def test_overrides_leave_the_given_tree_alone():
    tree = {**GOOD, "method": {"alpha": 1.0}}
    build_recipe(tree, ["method.alpha=0.5"])
    assert tree["method"] == {"alpha": 1.0}


def test_a_method_can_be_named_in_one_word_or_started_from():
    assert build_recipe({**GOOD, "method": "opsd"}).method == METHODS["opsd"]
    assert build_recipe(GOOD, ["method=no_anchor"]).method == METHODS["no_anchor"]
    changed = build_recipe({**GOOD, "method": {"name": "no_anchor", "alpha": 2, "preset": "author_code"}}).method
    assert (changed.anchor, changed.alpha, changed.temperature, changed.loss_factor) == (0.0, 2, 1.0, 4.0)


def test_a_method_named_in_one_word_can_be_changed_further():
    assert build_recipe({**GOOD, "method": "no_anchor"}, ["method.alpha=2"]).method.alpha == 2
    assert build_recipe({**GOOD, "rollout": None}, ["rollout.top_p=0.5"]).rollout.top_p == 0.5


def test_the_same_key_overridden_twice_is_an_error():
    assert "method.alpha is overridden twice" in problems(GOOD, "method.alpha=1", "method.alpha=2")[0]


def test_an_override_of_a_section_keeps_the_keys_that_are_overridden_in_it():
    for overrides in (["method.alpha=0.5", "method=no_anchor"], ["method=no_anchor", "method.alpha=0.5"]):
        method = build_recipe(GOOD, overrides).method
        assert (method.name, method.alpha) == ("no_anchor", 0.5), overrides
    trainer = build_recipe(GOOD, ["trainer.max_steps=5", "trainer={output_dir: runs/x}"]).trainer
    assert (trainer["max_steps"], trainer["output_dir"]) == (5, "runs/x")


@pytest.mark.parametrize("temperature", [0, 1e-40, 0.0099, 0.01, 1, 5])
def test_a_recipe_takes_the_temperatures_that_sampling_takes(temperature):
    tree = {**GOOD, "rollout": {"temperature": float(temperature)}}
    if temperature in (0, 0.01, 1, 5):
        assert build_recipe(tree).rollout.temperature == Sampling(temperature=temperature).temperature
    else:
        assert problems(tree) == (f"rollout.temperature = {temperature} is neither 0 (greedy) nor at least 0.01.",)
        with pytest.raises(ConfigError, match=r"or a finite number from 0.01 on"):
            Sampling(temperature=temperature)


def test_greedy_rollouts_can_be_asked_for():
    assert build_recipe(GOOD, ["rollout.temperature=0"]).rollout.temperature == 0


def test_a_field_beside_a_preset_wins():
    assert build_recipe({**GOOD, "method": {"preset": "author_code", "temperature": 3}}).method.temperature == 3


@pytest.mark.parametrize(
    ("given", "benchmarks"),
    [({}, []), ({"benchmarks": "MMStar"}, ["MMStar"]), ({"benchmarks": ["all"]}, ["all"]), ({"benchmarks": []}, [])],
)
def test_own_questions_are_asked_alone_unless_benchmarks_are_named(given, benchmarks):
    recipe = build_recipe({**GOOD, "evaluation": given}, ["evaluation.every=30", "evaluation.tsv=my.tsv"])
    assert (recipe.evaluation.tsv, recipe.evaluation.benchmarks) == (["my.tsv"], benchmarks)
    assert build_recipe(json.loads(recipe.to_json())) == recipe
    off = build_recipe({**GOOD, "evaluation": given}, ["evaluation.every=null", "evaluation.tsv=[a.tsv, b.tsv]"])
    assert off.evaluation.tsv == ["a.tsv", "b.tsv"]


def test_the_resolved_tree_is_a_recipe_that_resolves_to_itself(tmp_path):
    recipe = build_recipe(GOOD, ["method.preset=author_code", "trainer.seed=7", "method.alpha=0.5"])
    path = tmp_path / "config.json"
    path.write_text(recipe.to_json())
    assert load_recipe(path) == recipe
    assert json.loads(recipe.to_json())["method"]["alpha"] == 0.5


@pytest.mark.parametrize(
    ("whole", "pointed"),
    [
        ("method.alpha=1", "method.alpha=1.0"),
        ("rollout.temperature=1", "rollout.temperature=1e0"),
        ("data.max_skipped_share=0", "data.max_skipped_share=0.0"),
        ("trainer.max_grad_norm=1", "trainer.max_grad_norm=1.0"),
        ("trainer.weight_decay=0", "trainer.weight_decay=0.0"),
        ("trainer.warmup_steps=10", "trainer.warmup_steps=10.0"),
        ("trainer.save_steps=1", "trainer.save_steps=1.0"),
    ],
)
def test_a_number_is_the_same_setting_with_and_without_a_point(whole, pointed):
    """Their hash decides whether steps can be compared bit for bit."""
    assert build_recipe(GOOD, [whole]).to_json() == build_recipe(GOOD, [pointed]).to_json()


def test_shares_of_steps_stay_shares_and_counts_stay_whole():
    trainer = build_recipe(GOOD, ["trainer.warmup_steps=0.1", "trainer.save_steps=5.0"]).trainer
    assert repr((trainer["warmup_steps"], trainer["save_steps"], trainer["logging_steps"])) == "(0.1, 5, 1)"


def test_a_file_that_cannot_be_read_is_a_config_error(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load_recipe(tmp_path / "missing.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_recipe(tmp_path / "binary.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_recipe("\0")


def test_an_empty_file_misses_what_has_no_default(tmp_path):
    (tmp_path / "empty.yaml").write_text("")
    with pytest.raises(ConfigError) as error:
        load_recipe(tmp_path / "empty.yaml")
    assert [problem.split()[0] for problem in error.value.problems] == ["model", "data"]


def test_a_token_that_cannot_be_set_is_not_shown():
    with pytest.raises(ConfigError, match=r"trainer.hub_token = \*\*\* cannot be set") as caught:
        build_recipe(GOOD, ["trainer.hub_token=hf_secret"])
    assert "hf_secret" not in str(caught.value)


def test_trainer_becomes_training_arguments(tmp_path):
    arguments = build_recipe(GOOD, [f"trainer.output_dir={tmp_path}", "trainer.use_cpu=true"]).training_arguments()
    assert (arguments.max_steps, arguments.learning_rate, arguments.warmup_steps) == (90, 2e-6, 10)
    assert arguments.lr_scheduler_type == "constant_with_warmup"


def test_a_dry_run_of_a_recipe_for_the_cpu_keeps_its_bfloat16(tmp_path):
    recipe = build_recipe(GOOD, [f"trainer.output_dir={tmp_path}", "trainer.use_cpu=true"])
    assert recipe.training_arguments(on_any_machine=True).bf16 is True


def test_checkpointing_has_one_name_in_recipes_whatever_transformers_calls_it(tmp_path):
    path = f"trainer.output_dir={tmp_path / 'out'}"
    settings = "trainer.gradient_checkpointing_kwargs={use_reentrant: false}"
    chosen = build_recipe(GOOD, ["trainer.bf16=false", "trainer.gradient_checkpointing=true", settings, path])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # transformers 5.23 warns about the first name
        arguments = chosen.training_arguments()
    assert arguments.gradient_checkpointing is True
    assert arguments.gradient_checkpointing_kwargs == {"use_reentrant": False}
    (problem,) = problems(GOOD, "trainer.activation_checkpointing=true")
    assert problem.endswith("cannot be set. Set trainer.gradient_checkpointing, as before transformers 5.23.")


def test_what_transformers_refuses_is_an_error_that_names_the_argument(tmp_path):
    overrides = [f"trainer.output_dir={tmp_path}", "trainer.use_cpu=true", "trainer.bf16=false"]
    recipe = build_recipe(GOOD, [*overrides, "trainer.debug=missing"])
    with pytest.raises(ConfigError) as error:
        recipe.training_arguments()
    words = str(error.value)
    assert words.startswith("trainer.debug = 'missing' is refused by transformers: ")
    assert words.endswith("Correct it, or leave it out.")


def test_no_file_that_a_recipe_names_as_accelerators_configuration_is_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")  # opening it would wait forever
    (problem,) = problems(GOOD, f"trainer.accelerator_config={tmp_path / 'pipe'}")
    assert problem.endswith("cannot be set. Set prompts_per_step: it makes the batches.")


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU may compute in bfloat16")
def test_bfloat16_without_a_gpu_says_how_to_train_on_the_cpu(tmp_path):
    with pytest.raises(ConfigError, match=r"Set trainer\.bf16=false to train on the CPU"):
        build_recipe(GOOD, [f"trainer.output_dir={tmp_path}", "trainer.bf16=true"]).training_arguments()


def test_commands_without_a_recipe_take_keys_of_the_data_alone():
    data = build_data("d", ["data.columns.prompt=Question", "data.columns.id=null", "data.images=pictures"])
    assert (data.path, data.images, data.columns) == ("d", "pictures", {"prompt": "Question", "id": None})
    with pytest.raises(ConfigError, match=r"'method.alpha=2' is not a data key") as error:
        build_data("d", ["method.alpha=2", "prompt=Question"])
    assert len(error.value.problems) == 2


@pytest.mark.parametrize(
    ("tree", "overrides", "words"),
    [
        ({"\ud800": 1}, [], r"the recipe has the key '\\ud800', which is not text"),
        ({"method": {"\udfff": 1}}, [], r"method has the key '\\udfff', which is not text"),
        ({"data": {"path": "\ud800"}}, [], r"data.path = '\\ud800' contains half a surrogate pair"),
        ({"evaluation": {"benchmarks": ["\ud800"]}}, [], "evaluation.benchmarks = .* contains half a surrogate pair"),
        ({3: 1}, [], "the recipe has the key 3, which is not text"),
        ({}, ["\udcff=2"], r"the recipe has the key '\\udcff', which is not text"),
    ],
)
def test_keys_and_values_that_are_not_text_are_named(tree, overrides, words):
    with pytest.raises(ConfigError, match=words):
        build_recipe(tree, overrides)


def test_messages_about_huge_keys_values_and_overrides_are_short():
    tree = {"x" * 5000: 1, "method": {"alpha": "y" * 5000, "z" * 5000: 1}, "model": {"path": 10**5000}}
    with pytest.raises(ConfigError) as caught:
        build_recipe(tree, ["w" * 5000, "v" * 5000 + "=1"])
    assert len(str(caught.value)) < 1500


def test_a_recipe_whose_name_no_file_can_have_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load_recipe("a" * 5000)
    (tmp_path / "a.yaml").write_text(f"base: {'b' * 5000}")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_recipe(tmp_path / "a.yaml")
