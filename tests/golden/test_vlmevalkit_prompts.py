"""What a model is shown is what VLMEvalKit shows it: text to the letter, pixels to the bit, on nasty rows."""

import base64
import importlib.util
import random

import pytest
from PIL import Image

import vlmevalkit_oracle
from toy_benchmarks import ROWS, coded, write_tsv
from vcsd.evaluation.benchmarks import BENCHMARKS, PUBLISHED
from vcsd.evaluation.benchmarks.files.records import MISSING, StoredImage
from vcsd.evaluation.benchmarks.loading import load_benchmark
from vcsd.evaluation.benchmarks.more_benchmarks import MORE_BENCHMARKS
from vcsd.views.original import load_image

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not vlmevalkit_oracle.is_there(), reason="no VLMEvalKit beside us: make .oracle/.installed"),
]
NASTY = (
    *sorted(MISSING),
    *("1", "2.50", "01", "1e5", "True", "yes", " lead", "trail ", "a\tb", "line\nbreak", 'q "uo" te', '"quoted"'),
    *("中文选项", "'single'", "-", "A", "B. x", "{}", "$x^2$", r"\frac{1}{2}", r"x\ny", "inf", '5" pipe'),
)


def options_rows(rng, num, **more):
    """Rows with two to six options of any words, one or two images, a hint now and then, and images of other rows."""
    rows = []
    for index in range(num):
        letters = "ABCDEF"[: rng.randint(2, 6)]
        options = {letter: rng.choice([*NASTY, *("red", "green") * 8]) for letter in letters}
        gold = rng.choice([letter for letter in letters if options[letter]] or "A")
        image = (
            str([coded(index), coded(index + 1)])
            if index % 5 == 4
            else str(index // 7 * 7)
            if index % 7 == 3
            else coded(index)
        )
        row = {"index": str(index), "image": image, "question": say(rng), "hint": rng.choice(["", "look", "None"])}
        rows.append({**row, **options, gold: options[gold] or "red", "answer": gold, "category": "c", **more})
        if more:
            rows[-1]["cycle_category"] = str(index % 4)
    return rows


def say(rng):
    return rng.choice([word for word in NASTY if word not in MISSING] + ["What is it?"] * 9)


def yes_no_rows(rng, num):
    return [
        {
            **{
                "index": f"VD_figure_1_{n}_1_0",
                "image": coded(n),
                "question": say(rng),
                "answer": rng.choice(["Yes", "No"]),
            },
            **{"category": "VD", "l2-category": "VD_figure"},
        }
        for n in range(num)
    ]


def rows_of(name):
    rng = random.Random(name)
    if name == "HallusionBench":
        return yes_no_rows(rng, 150)
    if name == "MathVista_MINI":
        return ROWS[name]
    return options_rows(rng, 150, **({"cycle_category": "0"} if name.startswith("HRBench") else {}))


@pytest.fixture(params=list(ROWS))
def both(request, tmp_path, monkeypatch):
    """The name of a benchmark, their dataset of its nasty rows, and the folder with ours."""
    name = request.param
    monkeypatch.setenv("LMUData", str(tmp_path / "theirs"))
    for folder in ("theirs", "ours"):
        (tmp_path / folder).mkdir()
        write_tsv(tmp_path / folder / f"{name}.tsv", rows_of(name))
    oracle = vlmevalkit_oracle.load()
    classes = {"HallusionBench": oracle.yorn.ImageYORNDataset, "MathVista_MINI": oracle.vqa.MathVista}
    kind = oracle.mcq.HRBenchDataset if name.startswith("HRBench") else oracle.mcq.ImageMCQDataset
    dataset_class = classes.get(name, kind)
    monkeypatch.setattr(dataset_class, "DATASET_MD5", {})
    return name, dataset_class(dataset=name), tmp_path / "ours"


def questions_of(name, folder, style):
    return load_benchmark(BENCHMARKS[name], folder, style=style, allow_unknown_data=True).questions


def test_text_and_pixels_are_vlmevalkits(both):
    name, theirs, folder = both
    questions = questions_of(name, folder, "vlmevalkit")
    assert [question.id for question in questions] == [str(index) for index in theirs.data["index"]]
    for question, (_, line) in zip(questions, theirs.data.iterrows(), strict=True):
        *images, text = theirs.build_prompt(line)
        *places, own = question.example.prompt[0]["content"]
        assert own == {"type": "text", "text": text["value"]}
        assert len(places) == len(images) == len(question.example.images)
        for image, stored in zip(images, question.example.images, strict=True):
            with Image.open(image["value"]) as opened:
                assert load_image("x", stored).tobytes() == opened.convert("RGB").tobytes()


def test_the_direct_style_is_its_text_for_qwen3_vl(both):
    name, theirs, folder = both
    path = vlmevalkit_oracle.FOLDER / "vlmeval" / "vlm" / "qwen3_vl" / "prompt.py"
    spec = importlib.util.spec_from_file_location("qwen3_vl_prompt", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    qwen = module.Qwen3VLPromptMixin()
    qwen.set_dump_image(theirs.dump_image)
    kind = {"HallusionBench": "yorn", "MathVista_MINI": "vqa"}.get(name, "mcq")
    build = getattr(qwen, f"_build_{kind}_prompt")
    for question, (_, line) in zip(questions_of(name, folder, "direct"), theirs.data.iterrows(), strict=True):
        assert question.example.prompt[0]["content"][-1]["text"] == build(line, name)[-1]["value"]


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_jpeg_75_gives_the_pixels_of_a_localized_file(kind, tmp_path):
    vlmevalkit_oracle.load()
    from vlmeval.smp.vlm import decode_base64_to_image_file

    content = coded(77, size=(333, 222), kind=kind)
    decode_base64_to_image_file(content, str(tmp_path / "0.jpg"))
    ours = StoredImage("x", "x", lambda: base64.b64decode(content)).recoded()
    with Image.open(tmp_path / "0.jpg") as theirs:
        assert load_image("x", ours).tobytes() == theirs.tobytes()


def more_rows(name):
    """Rows of a benchmark beside the seven: MMMU's name their images, and some have no options."""
    rng = random.Random(name)
    if name == "POPE":
        return [
            {
                "index": str(n),
                "image": coded(n),
                "question": say(rng),
                "answer": rng.choice(["Yes", "No"]),
                "category": "x",
            }
            for n in range(40)
        ]
    rows = options_rows(rng, 80)
    if name == "MME-RealWorld-Lite":
        cells = {"multi-choice options": str([f"({letter}) x {letter}" for letter in "ABCDE"]), "l2-category": "y"}
        return [
            {**{key: row[key] for key in ("index", "image", "question", "category")}, **cells, "answer": "B"}
            for row in rows
        ]
    if name == "MMMU_DEV_VAL":
        for n, row in enumerate(rows):
            row["split"] = "validation"
            if row["image"].startswith("["):
                row["question"] = rng.choice(["<image 2> or <image 1>?", "See <image 1>", "<image 2><image 2>"])
            if n % 6 == 0:
                row |= {**dict.fromkeys("ABCDEF", ""), "answer": "12"}
    return rows


@pytest.mark.parametrize("name", MORE_BENCHMARKS)
def test_the_other_benchmarks_are_asked_alike(name, tmp_path, monkeypatch):
    monkeypatch.setenv("LMUData", str(tmp_path / "theirs"))
    for folder in ("theirs", "ours"):
        (tmp_path / folder).mkdir()
        write_tsv(tmp_path / folder / f"{name}.tsv", more_rows(name))
    oracle = vlmevalkit_oracle.load()
    classes = {"POPE": oracle.yorn.ImageYORNDataset, "MMMU_DEV_VAL": oracle.mcq.MMMUDataset}
    kind = {**classes, "MME-RealWorld-Lite": oracle.mcq.MMERealWorld}.get(name, oracle.mcq.ImageMCQDataset)
    monkeypatch.setattr(kind, "DATASET_MD5", {})
    theirs = kind(dataset=name)
    questions = load_benchmark(PUBLISHED[name], tmp_path / "ours", allow_unknown_data=True).questions
    assert len(questions) == len(theirs.data) > 20
    for question, (_, line) in zip(questions, theirs.data.iterrows(), strict=True):
        parts = [part for part in theirs.build_prompt(line) if part["value"]]
        images = iter(question.example.images)
        assert [part["type"] for part in parts] == [part["type"] for part in question.example.prompt[0]["content"]]
        for part, own in zip(parts, question.example.prompt[0]["content"], strict=True):
            if part["type"] == "text":
                assert own["text"] == part["value"]
                continue
            with Image.open(part["value"]) as opened:
                assert load_image("x", next(images)).tobytes() == opened.convert("RGB").tobytes()
