"""`exact` is VLMEvalKit: string for string, and cell for cell of what its own evaluate reports on every benchmark."""

import base64
import csv
import io
import random
import re

import pytest
from PIL import Image

import nasty_answers
import vlmevalkit_oracle
from vcsd.evaluation.benchmarks import PUBLISHED
from vcsd.evaluation.benchmarks.loading import load_benchmark
from vcsd.evaluation.reading.exact import read_option, read_yes_no
from vcsd.evaluation.reading.marking import Marking, mark
from vcsd.evaluation.scoring.score_predictions import score
from vcsd.evaluation.scoring.vlmevalkit_files import export_predictions
from vcsd.types import Prediction

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),  # VLMEvalKit closes none of its files
    pytest.mark.skipif(not vlmevalkit_oracle.is_there(), reason="no VLMEvalKit beside us: make .oracle/.installed"),
]
NUM_STRINGS = 120_000
RULES = "2025-08"  # of ms-vlmeval 0.0.20


@pytest.fixture(scope="module")
def oracle(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LMUData", str(tmp_path_factory.mktemp("LMUData")))
        yield vlmevalkit_oracle.load()


def test_options_are_read_alike_from_many_strings(oracle):
    rng = random.Random(0)
    differ, num_found = [], 0
    for _ in range(NUM_STRINGS):
        text, options = nasty_answers.text(rng), nasty_answers.options(rng)
        theirs = oracle.matching.can_infer(text, dict(options)) or None
        ours = read_option(text, options, RULES)
        num_found += ours is not None
        differ += [(text, options, ours, theirs)] if ours != theirs else []
    assert differ == []
    assert NUM_STRINGS * 0.1 < num_found < NUM_STRINGS * 0.9  # neither side of the rules goes untried


def test_the_later_rules_add_one_pattern_between_letter_and_words(oracle):
    rng = random.Random(1)
    differ, num_changed = [], 0
    for _ in range(NUM_STRINGS):
        text, options = nasty_answers.text(rng), nasty_answers.options(rng)
        letter = oracle.matching.can_infer_option(text, dict(options))
        said = re.search(r"answer\s+is\s+\**([ABCD])", text, re.I)
        if not letter and said and said[1].upper() in options and "Failed to obtain answer via API" not in text:
            letter = said[1].upper()
        theirs = letter or oracle.matching.can_infer_text(text, dict(options)) or None
        ours = read_option(text, options, "2026-06")
        num_changed += ours != read_option(text, options, RULES)
        differ += [(text, options, ours, theirs)] if ours != theirs else []
    assert differ == []
    assert num_changed > 500


def test_yes_and_no_are_read_alike_from_many_strings(oracle):
    rng = random.Random(2)
    differ, found = [], set()
    for _ in range(NUM_STRINGS):
        text = nasty_answers.text(rng)
        theirs = oracle.words.YOrN_Extraction(text)
        ours = read_yes_no(text) or "Unknown"
        found.add(ours)
        differ += [(text, ours, theirs)] if ours != theirs else []
    assert differ == []
    assert found == {"Yes", "No", "Unknown"}


def picture():
    file = io.BytesIO()
    Image.new("RGB", (2, 2)).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def lettered(rng, index, **cells):
    options = {letter: text for letter, text in nasty_answers.options(rng, most=4).items() if letter in "ABCD"}
    options = {"A": "red", "B": "a dog", **options}
    columns = {letter: options.get(letter, "") for letter in "ABCD"}
    row = {"index": index, "image": picture(), "question": f"What is number {index}?", **columns}
    return {**row, "answer": rng.choice(list(options)), **cells}


def hallusion(rng, index):
    category, sub = rng.choice([("VD", "math"), ("VD", "ocr"), ("VS", "map"), ("VS", "ocr")])
    name = f"{category}_{sub}_1_{rng.randint(0, 3)}_{rng.randint(0, 3)}_{index}"
    name = name if index % 3 else f"{category}_{sub}_2_0_{index}_0"
    cells = {"answer": rng.choice(["Yes", "No"]), "category": category, "l2-category": f"{category}_{sub}"}
    return {"index": name, "image": picture(), "question": "Is it so?", **cells}


def mathvista(rng, index):
    kind = rng.choice(["option", "option", "integer", "integer", "float", "list"])
    choices = list(nasty_answers.options(rng).values())
    letter = rng.randrange(len(choices))
    answer = {"integer": str(rng.choice([0, 3, 12, -1])), "float": rng.choice(["0.0", "3.5", "12"]), "list": "[1, 2]"}
    row = {"index": index, "image": picture(), "question": "Hint: so.\nQuestion: How many?"}
    row |= {"answer": choices[letter] if kind == "option" else answer[kind], "choices": str(choices)}
    row |= {"question_type": "multi_choice" if kind == "option" else "free_form"}
    row |= {"answer_type": "text" if kind == "option" else kind, "answer_option": "ABCDEFG"[letter]}
    skills = rng.sample(["algebra", "arithmetic", "geometry"], rng.randint(1, 3))
    return {**row, "task": rng.choice(["figures", "word problems"]), "skills": str(skills)}


def mmmu(rng, index):
    """Every fourth question has no options; VLMEvalKit makes two of its answer."""
    row = lettered(rng, index, split=rng.choice(["validation", "dev"]), category=f"subject {index % 5}")
    if index % 4 == 0:
        row |= {**dict.fromkeys("ABCD", ""), "answer": rng.choice(["3.5", "a dog", "12"])}
    return row


def mmbench(rng, index):
    """Three rotations of each question; one or two of them may be answered wrongly."""
    question, rotation = index % 100, index // 100
    row = lettered(random.Random(question), question, category=f"category {question % 3}")
    return {**row, "index": rotation * 1_000_000 + question, "l2-category": f"ability {question % 7}"}


def real_world(rng, index):
    options = [f"({letter}) {rng.choice(['red', 'two', 'This image lacks it'])}" for letter in "ABCDE"]
    cells = {"category": rng.choice(["Reasoning/Monitoring", "Perception/Remote Sensing"]), "l2-category": "count"}
    row = {"index": index, "image": picture(), "question": "How many?", "multi-choice options": str(options)}
    return {**row, "answer": rng.choice("ABCDE"), **cells}


def pope(rng, index):
    names = rng.sample(["random", "popular", "adversarial"], rng.randint(1, 3))
    cells = {"answer": rng.choice(["Yes", "No"]), "category": ",".join(names)}
    return {"index": index, "image": picture(), "question": f"Is there a {index}?", **cells}


MORE_ROWS = {
    "MMBench_DEV_EN": mmbench,
    "MMMU_DEV_VAL": mmmu,
    "MME-RealWorld-Lite": real_world,
    "POPE": pope,
    "AI2D_TEST": lambda rng, n: lettered(rng, n, category=f"category {n % 9}"),
    "RealWorldQA": lambda rng, n: lettered(rng, n, category="one"),
    "ScienceQA_VAL": lambda rng, n: lettered(rng, n, category=f"category {n % 5}", hint=rng.choice(["", "Look."])),
    "ScienceQA_TEST": lambda rng, n: lettered(rng, n, category=f"category {n % 5}", hint=rng.choice(["", "Look."])),
}
ROWS = {
    **MORE_ROWS,
    "BLINK": lambda rng, n: lettered(rng, n, category=rng.choice(["Counting", "Jigsaw", "IQ_Test"])),
    "MMStar": lambda rng, n: lettered(rng, n, category=f"category {n % 3}", **{"l2-category": f"ability {n % 7}"}),
    "VStarBench": lambda rng, n: lettered(rng, n, category=rng.choice(["direct_attributes", "relative_position"])),
    "HRBench4K": lambda rng, n: lettered(rng, n, category=rng.choice(["single", "cross"]), cycle_category=f"c{n % 4}"),
    "HRBench8K": lambda rng, n: lettered(rng, n, category=rng.choice(["single", "cross"]), cycle_category=n % 4),
    "MathVista_MINI": mathvista,
    "HallusionBench": hallusion,
}
NUM_ROWS = 300


def says(rng, question):
    """Right, wrong, nasty or no answers."""
    kind = rng.random()
    if kind < 0.35:
        return question.gold
    if kind < 0.5:
        return rng.choice([*question.options.values(), "Yes", "No", "3", "0", "3.5", "[1, 2]", "3.0"])
    if kind < 0.6 and question.benchmark != "MME-RealWorld-Lite":  # there it cannot take an empty answer
        return rng.choice(["", "None", "nan", "NA", "n/a", "null", " "])
    text = nasty_answers.text(rng)
    if question.benchmark == "MME-RealWorld-Lite":
        return rng.choice(
            [f"{text} so", f"<answer>{text}</answer>", "a", "(c)", "The best answer is", "Best option: D"]
        )
    return text


@pytest.fixture
def prepared(request, tmp_path, oracle):
    """Questions of a stand-in benchmark, predictions, and the path of the predictions as VLMEvalKit reads them."""
    name = request.param
    rng = random.Random(name)
    rows = [ROWS[name](rng, n) for n in range(NUM_ROWS)]
    rows = list({row["index"]: row for row in rows}.values())
    with (tmp_path / f"{name}.tsv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter="\t")
        writer.writeheader()
        writer.writerows(rows)
    questions = load_benchmark(PUBLISHED[name], tmp_path, allow_unknown_data=True).questions
    predictions = [Prediction(question.id, says(rng, question), "end") for question in questions]
    (path,) = export_predictions(tmp_path / "predictions", questions, predictions)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LMUData", str(tmp_path))
        yield name, questions, predictions, str(path)


def their_cells(oracle, name, path):
    """What their evaluate reports, as rows."""
    classes = {"HallusionBench": oracle.yorn.ImageYORNDataset, "MathVista_MINI": oracle.vqa.MathVista}
    classes |= {"POPE": oracle.yorn.ImageYORNDataset, "MMMU_DEV_VAL": oracle.mcq.MMMUDataset}
    classes |= {"MME-RealWorld-Lite": oracle.mcq.MMERealWorld}
    usual = oracle.mcq.HRBenchDataset if name.startswith("HRBench") else oracle.mcq.ImageMCQDataset
    kind = classes.get(name, usual)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "DATASET_MD5", {})
        patch.setattr(oracle.vqa, "build_judge", vlmevalkit_oracle.SilentJudge)
        found = kind(dataset=name).evaluate(path, model="exact_matching", nproc=1)
    return found if isinstance(found, dict) else found.to_dict("records")


def our_cells(name, questions, predictions):
    """The same from our scorecard."""
    card = score(questions, predictions, mode="exact", rules=RULES).benchmarks[name]
    if name.startswith("HRBench"):
        groups = {"all": card, **card.groups["category"]}
        cells = {
            (cycle.removeprefix("cycle "), kind): value / 100
            for kind, group in groups.items()
            for cycle, value in group.metrics.items()
        }
        return cells | {("Average", kind): group.entry / 100 for kind, group in groups.items()}
    if name == "HallusionBench":
        groups = {"Overall": card, **card.groups["category"], **card.groups["l2-category"]}
        return {(split, metric): value for split, group in groups.items() for metric, value in group.metrics.items()}
    if name == "MathVista_MINI":
        return mathvista_cells(card, questions, predictions)
    if name == "POPE":
        groups = {"Overall": card, **card.groups["category"]}
        names = {"F1": "Overall"}
        return {
            (split, names.get(m, m)): value for split, group in groups.items() for m, value in group.metrics.items()
        }
    if name == "MME-RealWorld-Lite":
        groups = card.groups["category"].items()
        return {"Overall": card.entry / 100} | {category: group.entry / 100 for category, group in groups}
    groups = {key: group for kind in card.groups.values() for key, group in kind.items()}
    return {"Overall": card.entry / 100} | {key: group.entry / 100 for key, group in groups.items()}


def mathvista_cells(card, questions, predictions):
    verdicts = mark(questions, predictions, Marking("exact", RULES), PUBLISHED)
    first = {verdict.question_id for verdict in verdicts if "first reading" in verdict.by}
    groups = {"Overall": card, **card.groups["task"], **card.groups["skills"]}
    cells = {}
    for name, group in groups.items():
        inside = [q for q in questions if name in ("Overall", q.groups["task"]) or f"'{name}'" in q.groups["skills"]]
        num_first = sum(question.id in first for question in inside)
        cells[name] = (
            len(inside),
            num_first,
            group.entry * len(inside) / 100,
            100 * num_first / len(inside),
            group.entry,
        )
    return cells


def as_ours(name, records):
    """Their rows under our keys."""
    if name.startswith("HRBench"):
        return {(str(row["cycle"]), row["type"]): row["accuracy"] for row in records}
    if name == "HallusionBench":
        return {(row["split"], metric): row[metric] for row in records for metric in ("aAcc", "fAcc", "qAcc")}
    if name == "MathVista_MINI":
        columns = ("tot", "prefetch", "hit", "prefetch_rate", "acc")
        return {row["Task&Skill"]: tuple(row[column] for column in columns) for row in records}
    if name == "POPE":
        return {(row["split"], m): row[m] for row in records for m in ("Overall", "acc", "precision", "recall")}
    if name == "MME-RealWorld-Lite":
        tasks = {name: subtasks for name, subtasks in records.items() if name != "Overall"}
        cells = {f"{t}/{s}": v["Avg"] for t, subtasks in tasks.items() for s, v in subtasks.items() if s != "Avg"}
        return {"Overall": records["Overall"]} | {name: value for name, value in cells.items() if value}
    (row,) = records
    assert row.pop("split") == ("validation" if name == "MMMU_DEV_VAL" else "none")
    return row


@pytest.mark.parametrize("prepared", ROWS, indirect=True)
def test_every_cell_of_their_evaluate_is_ours(prepared, oracle):
    name, questions, predictions, path = prepared
    theirs = as_ours(name, their_cells(oracle, name, path))
    ours = our_cells(name, questions, predictions)
    assert ours.keys() == theirs.keys()
    for key, cells in theirs.items():
        assert ours[key] == pytest.approx(cells, abs=1e-9), key
    values = [cells[-1] / 100 if isinstance(cells, tuple) else cells for cells in theirs.values()]
    assert max(values) > 0.05
