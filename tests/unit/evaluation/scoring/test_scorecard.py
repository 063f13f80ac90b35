"""A scorecard says what its answers are worth, by hand-worked numbers, and refuses what would mislead."""

import dataclasses
import json

import pytest

from tiny_answers import number, option, say, say_all, yes_no
from vcsd.errors import ConfigError, DataError, RunError
from vcsd.evaluation.benchmarks import BENCHMARKS
from vcsd.evaluation.benchmarks.benchmark import Benchmark
from vcsd.evaluation.reading import READER
from vcsd.evaluation.scoring.aggregate import tally
from vcsd.evaluation.scoring.score_predictions import check_failed, score
from vcsd.evaluation.scoring.scorecard import Scorecard, load_scorecard
from vcsd.evaluation.scoring.terminal_tables import remarks


def exact(questions, predictions, **more):
    return score(questions, predictions, mode="exact", **more)


def blink(*golds):
    return [option(f"q{place}", gold, category="Counting") for place, gold in enumerate(golds)]


def test_a_micro_entry_is_the_share_of_right_answers():
    card = exact(blink("A", "B", "C", "A"), [say("q0", "A"), say("q1", "B"), say("q2", "A"), say("q3", "A")])
    assert card.acc == card.benchmarks["BLINK"].entry == 75.0
    assert card.benchmarks["BLINK"].metrics == {"accuracy": 75.0}
    assert (card.mode, card.rules) == ("exact", "2026-06")


def hr(name, gold, cycle, category="single"):
    return option(name, gold, benchmark="HRBench4K", cycle=cycle, category=category, fields={"question": name[:2]})


def test_hrbench_is_the_mean_of_its_cycles_and_not_of_its_rows():
    questions = [hr("q1", "A", "0"), hr("q2", "A", "0"), hr("q3", "A", "0", "cross"), hr("q1r", "B", "1")]
    card = exact(questions, [say("q1", "A"), say("q2", "B"), say("q3", "A"), say("q1r", "B")])
    score_4k = card.benchmarks["HRBench4K"]
    assert score_4k.metrics == pytest.approx({"cycle 0": 200 / 3, "cycle 1": 100.0})
    assert score_4k.entry == pytest.approx((200 / 3 + 100) / 2)  # by rows it would be 75
    assert score_4k.groups["category"]["single"].metrics == {"cycle 0": 50.0, "cycle 1": 100.0}
    assert score_4k.groups["category"]["cross"].entry == 100.0


def paired_questions():
    """Two figures by two questions in one set; one question in a set of the same number of another subcategory."""
    return [
        yes_no("VD_math_1_0_1_0", "Yes"),
        yes_no("VD_math_1_0_1_1", "No"),
        yes_no("VD_math_2_0_2_0", "No"),
        yes_no("VD_math_2_0_2_1", "No"),
        yes_no("VS_map_1_0_1_0", "Yes"),
    ]


def test_hallusionbench_counts_answers_figures_and_questions():
    said = {"VD_math_2_0_2_0": "Yes"}  # the one mistake: figure 2 and question 0 of the mathematics set
    predictions = [say(q.id, said.get(q.id, q.gold)) for q in paired_questions()]
    result = exact(paired_questions(), predictions).benchmarks["HallusionBench"]
    assert result.metrics == pytest.approx({"aAcc": 80.0, "fAcc": 200 / 3, "qAcc": 200 / 3})
    assert result.entry == pytest.approx((80 + 200 / 3 + 200 / 3) / 3)
    assert result.groups["category"]["VD"].metrics == {"aAcc": 75.0, "fAcc": 50.0, "qAcc": 50.0}
    assert result.groups["l2-category"]["VS_map"].entry == 100.0


def test_a_set_is_named_by_its_subcategory_too():
    parts = tally(BENCHMARKS["HallusionBench"], paired_questions(), [True] * 5).parts
    assert [len(set(parts[name])) for name in ("aAcc", "fAcc", "qAcc")] == [5, 3, 3]


def test_acc_is_the_plain_mean_of_entries_whatever_their_sizes():
    questions = [*blink("A", "A", "A", "A"), option("v0", "B", benchmark="VStarBench", category="x")]
    card = exact(questions, {"BLINK": [say(f"q{n}", "A") for n in range(4)], "VStarBench": [say("v0", "A")]})
    assert card.acc == 50.0
    assert list(card.benchmarks) == ["BLINK", "VStarBench"]


def test_every_kind_of_flawed_answer_is_counted():
    questions = blink(*"AAAAAA")
    loop = "the red one is on the left of it and " * 20
    predictions = [
        say("q0", "A"),
        say("q1", "I think that maybe"),
        say("q2", loop, stop="length"),
        say("q3", "  \n"),
        say("q4", "", stop=None, error="HTTP 500"),
    ]
    counts = exact(questions, predictions, allow_failed=True).benchmarks["BLINK"].counts
    assert (counts.failed, counts.unresolved, counts.truncated, counts.empty, counts.repeated) == (2, 3, 1, 1, 1)


def test_failed_questions_are_not_averaged_unless_allowed():
    questions = blink("A", "A", "A", "A")
    predictions = [say("q0", "A"), say("q1", "A"), say("q2", "A", stop=None, error="HTTP 500")]
    with pytest.raises(
        RunError, match=r"BLINK: 2 failed, the first is 'q2': HTTP 500\. .*\(allow_failed=True\) to count"
    ):
        exact(questions, predictions)
    assert exact(questions, predictions, allow_failed=True).acc == 50.0


def test_who_cannot_allow_failed_questions_is_not_told_to():
    failed = [say("q0", "A", stop=None, error="RefusedError: example 'q0': too long.")]
    with pytest.raises(RunError, match=r"the first is 'q0': too long\. Ask them again\.$"):
        check_failed(blink("A"), failed, allow_failed=False)


def test_predictions_must_belong_to_questions_one_to_one():
    questions = blink("A", "B")
    with pytest.raises(ConfigError, match="'q9' of no benchmark, which is not asked"):
        exact(questions, [say("q0", "A"), say("q1", "A"), say("q9", "A")])
    with pytest.raises(ConfigError, match="'q0' of BLINK has two predictions"):
        exact(questions, [say("q0", "A"), say("q1", "A"), say("q0", "B")])
    with pytest.raises(ConfigError, match="'q0' of BLINK occurs twice"):
        exact([*questions, questions[0]], [say("q0", "A"), say("q1", "A")])


def test_two_benchmarks_with_equal_ids_need_predictions_by_benchmark():
    questions = [option("7", "A", category="x"), option("7", "B", benchmark="MMStar", category="x")]
    with pytest.raises(ConfigError, match=r"in BLINK and in MMStar.*by benchmark"):
        exact(questions, [say("7", "A")])
    card = exact(questions, {"BLINK": [say("7", "A")], "MMStar": [say("7", "A")]})
    assert [score.entry for score in card.benchmarks.values()] == [100.0, 0.0]


def test_unknown_benchmarks_modes_and_rules_are_named():
    with pytest.raises(ConfigError, match=r"'BLINKK', which is not known. Did you mean 'BLINK'"):
        exact([option("q", benchmark="BLINKK")], [say("q", "A")])
    with pytest.raises(ConfigError, match=r"mode = 'exakt' is not a way to score. Did you mean 'exact'"):
        score(blink("A"), [say("q0", "A")], mode="exakt")
    with pytest.raises(ConfigError, match=r"rules = '2026-07' are not known. Did you mean '2026-06'"):
        exact(blink("A"), [say("q0", "A")], rules="2026-07")
    with pytest.raises(ConfigError, match="no questions"):
        exact([], [])


def test_any_suite_can_be_scored_and_its_row_is_checked():
    suites = {"pairs": Benchmark("pairs", aggregation="paired", cluster="set", set_keys=("set",), breakdown=("set",))}
    questions = [dataclasses.replace(question, benchmark="pairs") for question in paired_questions()[:4]]
    card = exact(questions, say_all(questions, "Yes"), suites=suites)
    assert card.benchmarks["pairs"].metrics == {"aAcc": 25.0, "fAcc": 0.0, "qAcc": 0.0}
    assert card.benchmarks["pairs"].is_whole
    wrong = {"pairs": dataclasses.replace(suites["pairs"], aggregation="micr")}
    with pytest.raises(ConfigError, match=r"aggregation = 'micr' is unknown. Did you mean 'micro'"):
        exact(questions, say_all(questions, "Yes"), suites=wrong)
    torn = {"pairs": dataclasses.replace(suites["pairs"], cluster="question")}
    with pytest.raises(ConfigError, match="fAcc has units that span several clusters"):
        exact(questions, say_all(questions, "Yes"), suites=torn)


def test_a_group_that_the_average_needs_must_be_there():
    with pytest.raises(DataError, match="by the group 'cycle'; the question's groups are: category"):
        exact([option("q", benchmark="HRBench4K", category="single")], [say("q", "A")])


def test_a_question_counts_in_each_of_its_skills():
    questions = [
        number("1", "5", task="geometry", skills="['arithmetic', 'algebra']"),
        number("2", "6", task="geometry", skills="['algebra']"),
    ]
    skills = exact(questions, [say("1", "4"), say("2", "6")]).benchmarks["MathVista_MINI"].groups["skills"]
    assert {name: (group.entry, group.num_questions) for name, group in skills.items()} == {
        "algebra": (50.0, 2),
        "arithmetic": (0.0, 1),
    }


def test_a_part_of_a_benchmark_says_so():
    result = exact(blink("A"), [say("q0", "A")]).benchmarks["BLINK"]
    assert (result.num_questions, result.num_expected, result.is_whole) == (1, 1901, False)


def test_a_scorecard_survives_its_json_and_the_order_of_its_questions(tmp_path):
    questions = [*paired_questions(), hr("q1", "A", "0"), hr("q1r", "B", "1")]
    made_with = {"model": "tiny", "sampling": {"temperature": 0.0}}
    card = exact(questions, say_all(questions, "Yes"), made_with=made_with)
    card.save(tmp_path / "scorecard.json")
    assert load_scorecard(tmp_path / "scorecard.json") == card
    assert card.made_with["model"] == "tiny"
    assert card.made_with["interval"]["level"] == 0.95
    assert card.made_with["reader"] == READER
    assert exact(questions[::-1], say_all(questions, "Yes"), made_with=made_with) == card


def test_the_scorecard_of_a_demonstration_can_be_read(tmp_path):
    """It names its sampling in a word."""
    questions = blink("A")
    card = exact(questions, say_all(questions, "A"), made_with={"sampling": "greedy", "world": "a5bd"})
    card.save(tmp_path / "scorecard.json")
    assert load_scorecard(tmp_path / "scorecard.json") == card


def test_what_is_no_scorecard_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="this is not a scorecard"):
        Scorecard.from_json("[]")
    with pytest.raises(ConfigError, match="this is not a scorecard"):
        Scorecard.from_json("{")
    later = json.loads(exact(blink("A"), [say("q0", "A")]).to_json()) | {"format": 99}
    with pytest.raises(ConfigError, match="format 99; this release reads 1"):
        Scorecard.from_json(json.dumps(later))
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"list.json: this is not a scorecard"):
        load_scorecard(tmp_path / "list.json")
    with pytest.raises(ConfigError, match=r"there is no scorecard at .* Pass the folder of an evaluation"):
        load_scorecard(tmp_path / "nowhere.json")


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("acc",), "75"),
        (("acc",), float("nan")),
        pytest.param(("acc",), 10**400, id="beyond every float"),
        (("made_with",), None),
        (("made_with",), {"share": float("nan")}),
        (("benchmarks",), []),
        (("benchmarks", "BLINK", "groups"), []),
        (("benchmarks", "BLINK", "num_questions"), True),
        (("benchmarks", "BLINK", "metrics"), {"accuracy": "a"}),
        (("benchmarks", "BLINK", "interval"), {"low": 1}),
        (("benchmarks", "BLINK", "tally", "is_right"), "1"),
        (("benchmarks", "BLINK", "tally", "clusters"), "[0, 7]"),
        (("benchmarks", "BLINK", "tally", "ids"), "[1, 2]"),
        (("benchmarks", "BLINK", "tally", "parts"), {"accuracy": "[" * 100_000}),
        (("benchmarks", "BLINK", "tally", "parts"), {}),
        (("benchmarks", "BLINK", "tally", "parts"), {"accuracy": "[-1, -1]"}),
        (("benchmarks", "BLINK", "tally", "clusters"), "[-1, 0]"),
        (("benchmarks", "BLINK", "num_questions"), 0),
        (("benchmarks", "BLINK", "metrics"), 0),
        (("benchmarks",), {}),
        (("made_with", "data"), {"BLINK": 1}),
        (("made_with", "judge"), {"preset": "strict"}),
    ],
)
def test_a_damaged_scorecard_is_refused_in_one_sentence(place, value):
    content = json.loads(exact(blink("A", "B"), [say("q0", "A"), say("q1", "A")]).to_json())
    node = content
    for key in place[:-1]:
        node = node[key]
    node[place[-1]] = value
    with pytest.raises(ConfigError, match=r"this is not a scorecard: .*\. Pass the scorecard\.json"):
        Scorecard.from_json(json.dumps(content))


def test_a_judged_scorecard_of_a_version_without_presets_is_read():
    content = json.loads(exact(blink("A", "B"), [say("q0", "A"), say("q1", "A")]).to_json())
    content["made_with"]["judge"] = {"model": "reader", "server": "http://localhost"}
    said = next(remarks(Scorecard.from_json(json.dumps(content))))
    assert "judge reader, asked as in an earlier version" in said


def test_a_scorecard_that_is_not_text_is_refused(tmp_path):
    (tmp_path / "scorecard.json").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"scorecard\.json cannot be read: .*utf-8"):
        load_scorecard(tmp_path / "scorecard.json")
