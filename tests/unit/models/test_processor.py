import dataclasses
import json
from pathlib import Path

import PIL.Image
import pytest
import torch
import transformers
from transformers import AutoTokenizer
from transformers.models.auto import image_processing_auto

from tiny_examples import example, picture
from tiny_language import write_language
from tiny_processor import CHAT_TEMPLATES, build_processor, build_tokenizer, write_processor_files
from vcsd.emoji.seeing_model import write_processor
from vcsd.errors import ConfigError, DataError
from vcsd.models.encode import Encoded, assert_same_layout, encode
from vcsd.models.processor import load_processor, save_processor_files
from vcsd.types import Example
from vcsd.views import VIEWS

FAMILIES = ("qwen3_vl", "qwen3_5", "llava")
QWEN = FAMILIES[:2]


def shown(*args: object, **columns: object) -> Example:
    return VIEWS["original"](example(*args, **columns))  # type: ignore[arg-type]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# Loading


@pytest.mark.parametrize("family", FAMILIES)
def test_a_processor_loads_with_the_pil_backend(family: str) -> None:
    assert type(build_processor(family).image_processor).__name__.endswith("ImageProcessorPil")


@pytest.mark.parametrize("family", QWEN)
def test_the_pil_backend_is_chosen_where_torchvision_is_installed_too(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_processor_files(tmp_path, family)
    monkeypatch.setattr(image_processing_auto, "is_torchvision_available", lambda: True)
    monkeypatch.setattr(image_processing_auto, "DEFAULT_TO_PIL_BACKEND_IMAGE_PROCESSORS", [])
    choose, chosen = image_processing_auto._resolve_backend, []

    def noted(*args: object) -> str:
        chosen.append(choose(*args))
        return chosen[-1]

    monkeypatch.setattr(image_processing_auto, "_resolve_backend", noted)
    assert type(load_processor(tmp_path).image_processor).__name__.endswith("ImageProcessorPil")
    assert set(chosen) == {"pil"}
    assert choose(None, None, "Qwen2VLImageProcessor") == "torchvision", "by default it would be the other"


@pytest.mark.parametrize("family", QWEN)
def test_the_kind_of_model_is_enough_to_find_the_processor(family: str, tmp_path: Path) -> None:
    settings = json.loads((write_processor_files(tmp_path, family) / "preprocessor_config.json").read_text())
    del settings["processor_class"]
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    with pytest.raises(ConfigError, match="does not say which processor it needs"):
        load_processor(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
    assert encode(load_processor(tmp_path), shown(picture())).grid_thw.tolist() == [[1, 4, 6]]


def test_the_layout_written_by_transformers_5_loads_too(tmp_path: Path) -> None:
    settings = json.loads((write_processor_files(tmp_path) / "preprocessor_config.json").read_text())
    (tmp_path / "preprocessor_config.json").unlink()
    nested = {"processor_class": "Qwen3VLProcessor", "image_processor": settings, "video_processor": {}}
    (tmp_path / "processor_config.json").write_text(json.dumps(nested))
    assert encode(load_processor(tmp_path), shown(picture())).grid_thw.tolist() == [[1, 4, 6]]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_chat_template_may_stand_in_the_tokenizer_file(family: str, tmp_path: Path) -> None:
    write_processor_files(tmp_path, family)
    expected = encode(load_processor(tmp_path), shown(picture())).text
    for name in ("chat_template.json", "chat_template.jinja"):
        (tmp_path / name).unlink(missing_ok=True)
    with pytest.raises(ConfigError, match="has no chat template"):
        load_processor(tmp_path)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    settings["chat_template"] = CHAT_TEMPLATES[family]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    assert encode(load_processor(tmp_path), shown(picture())).text == expected


def test_a_folder_that_is_not_there_and_a_class_of_its_own_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="missing is not a folder"):
        load_processor(tmp_path / "missing")
    (write_processor_files(tmp_path) / "processor_config.json").write_text('{"processor_class": "MyProcessor"}')
    with pytest.raises(ConfigError, match="'MyProcessor' is not part of transformers"):
        load_processor(tmp_path)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("content", ["{ broken", "[1]", "\ud800"])
@pytest.mark.parametrize("name", ["preprocessor_config.json", "tokenizer.json", "tokenizer_config.json"])
def test_a_broken_file_is_named(name: str, content: str, family: str, tmp_path: Path) -> None:
    (write_processor_files(tmp_path, family) / name).write_bytes(content.encode("utf-8", "surrogatepass"))
    with pytest.raises(ConfigError, match=rf"/{name} (is not JSON: .*|holds no JSON object)\. Copy it") as error:
        load_processor(tmp_path)
    assert len(error.value.problems) == 1


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_without_a_tokenizer_says_what_it_lacks(family: str, tmp_path: Path) -> None:
    (write_processor_files(tmp_path, family) / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"its processor cannot be loaded\. It has no tokenizer\.json\. Copy"):
        load_processor(tmp_path)


def test_a_file_that_is_json_and_yet_no_tokenizer_is_refused_in_our_words(tmp_path: Path) -> None:
    (write_processor_files(tmp_path) / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"its processor cannot be loaded\. Copy the processor files"):
        load_processor(tmp_path)


# Pixel bounds


@pytest.mark.parametrize("size", [(640, 480), (97, 61), (60, 300), (5, 5)])
def test_pixel_bounds_are_honoured(size: tuple[int, int]) -> None:
    for low, high in ((32 * 32, 64 * 64), (128 * 128, 256 * 256)):
        encoded = encode(build_processor(min_pixels=low, max_pixels=high), shown(picture(*size)))
        assert low <= 16 * 16 * int(encoded.grid_thw.prod()) <= high


def test_one_bound_leaves_the_other_to_the_folder() -> None:
    size = build_processor(max_pixels=64 * 64).image_processor.size
    assert (size["shortest_edge"], size["longest_edge"]) == (32 * 32, 64 * 64)


def test_bounds_replace_those_of_the_folder_under_either_name(tmp_path: Path) -> None:
    settings = json.loads((write_processor_files(tmp_path) / "preprocessor_config.json").read_text())
    settings.update(min_pixels=999, max_pixels=99_999)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    size = load_processor(tmp_path, min_pixels=2048, max_pixels=4096).image_processor.size
    assert (size["shortest_edge"], size["longest_edge"]) == (2048, 4096)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"min_pixels": 0}, "min_pixels = 0 is not a positive whole number"),
        ({"min_pixels": True}, "min_pixels = True is not a positive whole number"),
        ({"max_pixels": 1.5e4}, "max_pixels = 15000.0 is not a positive whole number"),
        ({"max_pixels": "9000"}, "max_pixels = '9000' is not a positive whole number"),
        ({"min_pixels": 200, "max_pixels": 100}, "^min_pixels = 200 is larger than max_pixels = 100[.]$"),
        (
            {"min_pixels": 70_000},
            "^min_pixels = 70000 is larger than max_pixels = 65536 of the model's folder[.] Give both, or a larger",
        ),
        (
            {"max_pixels": 100},
            "^min_pixels = 1024 of the model's folder is larger than max_pixels = 100[.] Give both, or a larger",
        ),
    ],
)
def test_bounds_that_make_no_sense_are_refused(bounds: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_processor(**bounds)


def test_bounds_are_refused_where_they_would_do_nothing() -> None:
    with pytest.raises(
        ConfigError, match="max_pixels cannot be set: CLIPImageProcessorPil sizes images by another rule"
    ):
        build_processor("llava", max_pixels=1000)


# Encoding


@pytest.mark.parametrize("family", QWEN)
def test_an_example_becomes_one_unpadded_row_that_ends_where_the_answer_begins(family: str) -> None:
    processor = build_processor(family)
    encoded = encode(processor, shown(picture(96, 64), picture(32, 64)))
    assert encoded.input_ids.dtype == torch.int64
    assert encoded.input_ids.dim() == 1
    assert encoded.grid_thw.tolist() == [[1, 4, 6], [1, 4, 2]]
    assert encoded.pixel_values.shape == (24 + 8, 3 * 2 * 16 * 16)
    assert encoded.image_sizes == ((96, 64), (32, 64))
    assert (encoded.input_ids == processor.image_token_id).sum() == (24 + 8) // 4
    assert set(encoded.extra) == {"mm_token_type_ids"}
    assert encoded.extra["mm_token_type_ids"].shape == (1, len(encoded))
    opening = "<|im_start|>assistant\n" + ("<think>\n" if family == "qwen3_5" else "")
    assert processor.tokenizer.decode(encoded.input_ids).endswith(f"How many?<|im_end|>\n{opening}")


def test_another_family_keeps_what_its_model_takes() -> None:
    encoded = encode(build_processor("llava"), shown(picture(96, 64), picture(32, 64)))
    assert encoded.pixel_values.shape == (2, 3, 32, 32)
    assert (encoded.grid_thw, dict(encoded.extra)) == (None, {})
    assert (encoded.input_ids == build_tokenizer().convert_tokens_to_ids("<image>")).sum() == 2 * 4


@pytest.mark.parametrize("family", FAMILIES)
def test_encoding_is_what_the_stock_processor_does(family: str) -> None:
    processor = build_processor(family)
    given = shown(picture(97, 61))
    chat = [{"role": "user", "content": [{"type": "image", "image": given.images[0]}, given.prompt[0]["content"][1]]}]
    expected = processor.apply_chat_template(
        chat, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
    )
    encoded = encode(processor, given)
    assert torch.equal(encoded.input_ids, expected["input_ids"][0])
    assert torch.equal(encoded.pixel_values, expected["pixel_values"])


def test_a_text_only_example_has_no_pixels() -> None:
    encoded = encode(build_processor(), shown())
    assert (encoded.pixel_values, encoded.grid_thw, encoded.image_sizes) == (None, None, ())
    assert encoded.text == "<|im_start|>user\nHow many?<|im_end|>\n<|im_start|>assistant\n"


def test_thinking_is_switched_by_the_caller() -> None:
    processor = build_processor("qwen3_5")
    texts = [
        encode(processor, shown(), chat_template_kwargs=switch).text for switch in (None, {"enable_thinking": False})
    ]
    assert texts[0].endswith("assistant\n<think>\n")
    assert texts[1].endswith("assistant\n<think>\n\n</think>\n\n")


def test_a_switch_the_template_does_not_know_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"chat_template_kwargs\.enable_thinking: the chat template has no such switch"
    ):
        encode(build_processor("qwen3_vl"), shown(), chat_template_kwargs={"enable_thinking": False})


@pytest.mark.parametrize("name", ["messages", "add_generation_prompt", "tokenize", "chat_template"])
@pytest.mark.parametrize("family", FAMILIES)
def test_an_argument_that_the_encoder_sets_is_not_a_switch(family: str, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^chat_template_kwargs\.{name} is not a switch"):
        encode(build_processor(family), shown(), chat_template_kwargs={name: False})


def test_a_chat_template_that_cannot_be_read_is_no_fault_of_the_example(tmp_path: Path) -> None:
    (write_processor_files(tmp_path, "llava") / "chat_template.jinja").write_text("{% for m in messages %}{{ m.role ")
    with pytest.raises(ConfigError, match="the chat template is broken, at its line 1: "):
        encode(load_processor(tmp_path), shown())


def test_images_that_no_view_has_loaded_are_a_mistake_of_the_caller() -> None:
    with pytest.raises(AssertionError, match="example 'virl-7': its images are not loaded"):
        encode(build_processor(), example("a.png"))


# What an example may not be


def test_a_prompt_over_the_budget_names_the_example_and_its_files(tmp_path: Path) -> None:
    picture(200, 120).save(tmp_path / "large.png")
    processor, given = build_processor(), shown(tmp_path / "large.png")
    num_tokens = len(encode(processor, given))
    assert len(encode(processor, given, max_tokens=num_tokens)) == num_tokens
    message = rf"example 'virl-7': its prompt has {num_tokens} tokens, 20 are allowed.*large.png \(200 x 120\)"
    with pytest.raises(DataError, match=message) as error:
        encode(processor, given, max_tokens=20)
    assert error.value.file is not None
    assert Path(error.value.file).name == "large.png"
    with pytest.raises(DataError, match=message):
        encode(processor, VIEWS["black"](given), max_tokens=20)


def test_a_shape_the_processor_refuses_names_the_example_and_its_file(tmp_path: Path) -> None:
    picture(900, 1).save(tmp_path / "thin.png")
    with pytest.raises(DataError, match=r"example 'virl-7': the processor refuses it: .*200.*thin.png \(900 x 1\)"):
        encode(build_processor(), shown(tmp_path / "thin.png"))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tokenizer_that_was_saved_to_truncate_does_not(family: str, tmp_path: Path) -> None:
    folder = write_processor_files(tmp_path, family)
    expected = encode(load_processor(folder), shown(picture())).input_ids
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer("how many? " * 50, truncation=True, max_length=len(expected) - 8)
    tokenizer.save_pretrained(folder)
    assert json.loads((folder / "tokenizer.json").read_text())["truncation"] is not None
    assert encode(load_processor(folder), shown(picture())).input_ids.tolist() == expected.tolist()


@pytest.mark.parametrize("token", ["<|image_pad|>", "<|video_pad|>"])
def test_a_chat_template_may_not_add_images(token: str, tmp_path: Path) -> None:
    template = CHAT_TEMPLATES["qwen3_5"].replace("assistant", f"{token}assistant")
    (write_processor_files(tmp_path, "qwen3_5") / "chat_template.jinja").write_text(template)
    with pytest.raises(DataError, match=r"'virl-7': .*_pad\|>' [12] times, for 1 images\. The chat template adds"):
        encode(load_processor(tmp_path), shown(picture()))


@pytest.mark.parametrize("family", ["qwen3_5", "llava"])
def test_an_image_the_chat_template_drops_is_noticed(family: str, tmp_path: Path) -> None:
    text_only = "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}"
    (write_processor_files(tmp_path, family) / "chat_template.jinja").write_text(text_only)
    # Since transformers 5.23, the processor of Llava notices it first.
    reason = r"(its prompt has .* The chat template drops images|the processor refuses it: .* Found total 0 <image>)"
    with pytest.raises(DataError, match=f"example 'virl-7': {reason}"):
        encode(load_processor(tmp_path), shown(picture()))


def test_a_family_that_needs_torchvision_says_so(tmp_path: Path) -> None:
    if transformers.utils.is_torchvision_available():
        pytest.skip("torchvision is installed")
    settings = json.loads((write_processor_files(tmp_path) / "preprocessor_config.json").read_text())
    settings["processor_class"] = "Qwen2_5_VLProcessor"
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    with pytest.raises(ConfigError, match=r"(?s)Qwen2_5_VLProcessor has other parts .*video_processor.*[Tt]orchvision"):
        load_processor(tmp_path)


def test_a_question_the_chat_template_drops_is_refused(tmp_path: Path) -> None:
    write_processor_files(tmp_path, "llava")
    strings_only = "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% endif %}{% endfor %}"
    (tmp_path / "chat_template.jinja").write_text(strings_only)
    processor = load_processor(tmp_path)
    with pytest.raises(DataError, match=r"example 'a': the chat template dropped 'How many\?'"):
        encode(processor, Example(id="a", images=(), prompt=({"role": "user", "content": "How many?"},)))


def test_a_prompt_the_chat_template_refuses_names_the_example(tmp_path: Path) -> None:
    (write_processor_files(tmp_path, "llava") / "chat_template.jinja").write_text("{{ raise_exception('no system') }}")
    with pytest.raises(DataError, match="example 'virl-7': the chat template refuses it: no system"):
        encode(load_processor(tmp_path), shown())


# Layout


def encoded_pair() -> tuple[Encoded, Encoded]:
    processor = build_processor()
    first, second = (encode(processor, VIEWS[view](example(picture()))) for view in ("original", "black"))
    return first, second


def test_equal_layouts_pass_although_the_pixels_differ() -> None:
    original, control = encoded_pair()
    assert_same_layout(original, control, view="black")
    assert not torch.equal(original.pixel_values, control.pixel_values)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"example_id": "other"}, "example virl-7 became other"),
        ({"image_sizes": ((96, 65),)}, r"image sizes \(\(96, 64\),\) became \(\(96, 65\),\)"),
        ({"grid_thw": torch.tensor([[1, 6, 4]])}, r"grid \[\[1, 4, 6\]\] became \[\[1, 6, 4\]\]"),
        ({"grid_thw": None}, r"grid \[\[1, 4, 6\]\] became None"),
        ({"input_ids": torch.arange(3)}, r"token count \d+ became 3"),
        ({"pixel_values": torch.zeros(1, 2)}, r"shape of pixel values \(24, 1536\) became \(1, 2\)"),
        ({"pixel_values": None}, r"shape of pixel values \(24, 1536\) became None"),
        ({"extra": {}}, "shape of mm_token_type_ids"),
    ],
)
def test_a_control_of_another_layout_is_named(changes: dict[str, object], message: str) -> None:
    original, control = encoded_pair()
    with pytest.raises(
        AssertionError, match=f"example 'virl-7': view 'noise' must change pixel values only, .*{message}"
    ):
        assert_same_layout(original, dataclasses.replace(control, **changes), view="noise")


def test_one_changed_token_is_noticed() -> None:
    original, control = encoded_pair()
    input_ids = control.input_ids.clone()
    input_ids[-1] += 1
    with pytest.raises(AssertionError, match="the token ids differ"):
        assert_same_layout(original, dataclasses.replace(control, input_ids=input_ids))


@pytest.mark.parametrize("view", ["no_image", "crop", "crop_added", "hint"])
def test_views_that_change_the_layout_do_not_pass(view: str) -> None:
    processor = build_processor()
    given = example(picture(300, 200), boxes=((10, 10, 60, 50),), answer="7")
    with pytest.raises(AssertionError, match=f"view '{view}' must change pixel values only"):
        assert_same_layout(
            encode(processor, VIEWS["original"](given)), encode(processor, VIEWS[view](given)), view=view
        )


# Saving


@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_folder_is_equal_byte_for_byte_and_loads_again(family: str, tmp_path: Path) -> None:
    source = write_processor_files(tmp_path / "source", family)
    save_processor_files(source, tmp_path / "student")
    assert contents(tmp_path / "student") == contents(source)
    first, second = (encode(load_processor(tmp_path / name), shown(picture())) for name in ("source", "student"))
    assert_same_layout(first, second)
    assert torch.equal(first.pixel_values, second.pixel_values)


def test_bounds_used_in_training_do_not_reach_the_saved_files(tmp_path: Path) -> None:
    source = write_processor_files(tmp_path / "source")
    load_processor(source, max_pixels=64 * 64).save_pretrained(tmp_path / "student")
    assert contents(tmp_path / "student") == contents(source)


def test_weights_stay_and_processor_files_of_another_layout_go(tmp_path: Path) -> None:
    source = write_processor_files(tmp_path / "source")
    (source / "model.safetensors").write_bytes(b"old weights")
    (source / "additional_chat_templates").mkdir()
    (source / "additional_chat_templates" / "tools.jinja").write_text("tools")
    student = tmp_path / "student"
    student.mkdir()
    (student / "config.json").write_text("{}")
    (student / "model.safetensors").write_bytes(b"new weights")
    (student / "chat_template.jinja").write_text("another template")
    save_processor_files(source, student)
    expected = contents(source) | {"config.json": b"{}", "model.safetensors": b"new weights"}
    assert contents(student) == expected


def test_saving_onto_itself_changes_nothing(tmp_path: Path) -> None:
    before = contents(write_processor_files(tmp_path))
    save_processor_files(tmp_path, tmp_path)
    assert contents(tmp_path) == before


def test_a_folder_is_found_again_from_another_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_processor_files(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    processor = load_processor("model")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    processor.save_pretrained(tmp_path / "student")
    assert contents(tmp_path / "student").keys() == contents(tmp_path / "model").keys()


def test_a_source_without_processor_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no processor files"):
        save_processor_files(tmp_path, tmp_path / "student")


def test_the_saved_folder_names_the_stock_class_for_other_programs(tmp_path: Path) -> None:
    load_processor(write_processor_files(tmp_path / "source")).save_pretrained(tmp_path / "student")
    name = json.loads((tmp_path / "student" / "preprocessor_config.json").read_text())["processor_class"]
    assert hasattr(transformers, name)


# Templates and folders that go wrong


@pytest.mark.parametrize(
    "part", ["{{ range(10 ** 9) }}", "{{ 1 / 0 }}", "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}"]
)
def test_a_chat_template_that_fails_on_an_example_is_an_error_of_that_example(part: str) -> None:
    processor = build_processor()
    processor.chat_template = part + CHAT_TEMPLATES["qwen3_vl"]
    with pytest.raises(DataError, match="the chat template fails on it"):
        encode(processor, shown())


@pytest.mark.parametrize(
    ("section", "values"),
    [
        ("text_config", {"num_hidden_layers": 10**6}),
        ("vision_config", {"depth": 10**6}),
        ("text_config", {"num_experts": 10**6}),
        ("text_config", {"layer_types": ["full_attention"] * 10**5}),
        ("vision_config", {"depths": [2, 10**6]}),
    ],
)
def test_a_model_of_a_million_layers_is_refused_before_it_is_built(
    section: str, values: object, tmp_path: Path
) -> None:
    write_processor_files(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3_vl", section: values}))
    with pytest.raises(ConfigError, match=r"config.json: [\w.]+ = (1,000,000|100,000) is more than 4,096"):
        load_processor(tmp_path)


def test_a_configuration_nested_without_end_is_an_error(tmp_path: Path) -> None:
    write_processor_files(tmp_path)
    (tmp_path / "config.json").write_text('{"a": ' + "[" * 100_000)
    with pytest.raises(ConfigError, match=r"config.json is not JSON"):
        load_processor(tmp_path)


@pytest.mark.parametrize(
    ("file", "key", "value", "words"),
    [
        ("preprocessor_config.json", "patch_size", [14], "its processor cannot be loaded"),
        ("preprocessor_config.json", "patch_size", 10**9, "patch_size = 1000000000 of its images is not between 1"),
        ("preprocessor_config.json", "merge_size", 0, "merge_size = 0 of its images is not between 1 and 1024"),
        (
            "preprocessor_config.json",
            "size",
            {"shortest_edge": 10**30, "longest_edge": 10**31},
            "size.shortest_e",
        ),
        ("preprocessor_config.json", "image_mean", "red", "its processor cannot be loaded"),
        ("tokenizer_config.json", "model_max_length", "long", "its processor cannot be loaded"),
    ],
)
def test_a_setting_that_no_image_or_text_fits_is_an_error_of_the_folder(file, key, value, words, tmp_path) -> None:
    """It would otherwise fail for every row, or fill the memory."""
    settings = json.loads((write_processor_files(tmp_path) / file).read_text())
    (tmp_path / file).write_text(json.dumps(settings | {key: value}))
    with pytest.raises(ConfigError, match=words):
        load_processor(tmp_path)


def test_idefics3_is_read_by_pillow_also_where_transformers_hides_its_class(tmp_path):
    """transformers 5.17 shows a placeholder for this class if torchvision is missing; later versions do not."""
    write_language(tmp_path / "language")
    (tmp_path / "model").mkdir()
    processor = write_processor(tmp_path / "language", tmp_path / "model")
    assert type(processor.image_processor).__name__ == "Idefics3ImageProcessorPil"
    pixels = processor.image_processor(images=[PIL.Image.new("RGB", (144, 144))], return_tensors="pt")["pixel_values"]
    assert pixels.shape == (1, 1, 3, 144, 144)
    assert (pixels == -1).all()
