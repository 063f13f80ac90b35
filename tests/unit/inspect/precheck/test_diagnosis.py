"""The pre-check: what it counts, that it resumes, and that its verdict says what it rests on."""

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vcsd.core import shape_target
from vcsd.inspect import open_model
from vcsd.inspect.opened import world_question
from vcsd.inspect.precheck import diagnosis as module
from vcsd.inspect.precheck import diagnosis_page as page_module
from vcsd.inspect.precheck.calibration import (
    FILE,
    UnseenBases,
    base_statistics,
    best_predictor,
    beyond_decoding,
    calibrate,
    calibrated,
    correlated,
    expected_gain,
    misses,
    typical_miss,
    unseen,
    within_groups,
)
from vcsd.inspect.precheck.diagnosis import Diagnosis, ExampleStatistics, asked_question, diagnose, is_right
from vcsd.inspect.precheck.diagnosis_page import (
    categories_left,
    category_rows,
    diagnosis_json,
    diagnosis_page,
    grounds,
    rows_of,
    verdict,
)
from vcsd.inspect.token_scores import prompt_views, scored_tokens, view_log_probs
from vcsd.method import METHODS
from vcsd.report import parts
from vcsd.report.page import page_html
from vcsd.types import Example, user_message
from vcsd.world.questions.examples import training_examples

CELLS = Path(__file__).parents[4] / "docs" / "results" / "cells"


def example(name="a", text="What color?", answer="red"):
    return Example(name, [Image.new("RGB", (8, 8))], [user_message(text, num_images=1)], answer)


def statistics(name, plain, control, contrast, contrasts=(0.5, -0.25), texts=("x", "y", "z")):
    views = ("image", "control", "contrast")
    return ExampleStatistics(
        name,
        "option",
        dict(zip(views, texts, strict=True)),
        dict(zip(views, (plain, control, contrast), strict=True)),
        dict.fromkeys(views, 7),
        list(contrasts),
        **{"support_sizes": [1, 3], "kl_target_original": 0.1, "argmax_changed": 0.5, "entropy": 0.3},
        **{"end_lift": -0.02, "end_lift_unguarded": 0.5},
    )


def toy():
    rights = [(True, False, True), (False, False, True), (False, False, True), (True, True, False)]
    return Diagnosis([statistics(f"q{place}", *right) for place, right in enumerate(rights)], {"bad": "no image"})


def test_the_calibration_equals_the_results_it_came_from():
    bases = base_statistics(CELLS)
    found = {
        name: (own["gain of contrast decoding"], own["gain"])
        for name, own in bases.items()
        if "gain of contrast decoding" in own
    }
    assert found.keys() == calibrated().keys()
    for name, pair in found.items():
        assert calibrated()[name] == pytest.approx(pair, abs=1e-3)


def test_the_shipped_calibration_is_the_published_file():
    shipped = Path(module.__file__).with_name(FILE).read_text(encoding="utf-8")
    assert shipped == (CELLS.parent / "precheck.json").read_text(encoding="utf-8"), "copy the published one"


def test_every_statistic_is_compared_base_by_base_with_the_others_alone():
    predictors = calibrate(CELLS)
    strengths = [abs(one.correlation) for one in predictors]
    assert strengths == sorted(strengths, reverse=True)
    used = best_predictor()
    assert used in predictors or used.num_bases == next(one.num_bases for one in predictors if one.name == used.name)
    bases = calibrated()
    others = [pair for name, pair in bases.items() if name != used.worst[0]]
    slope, start = np.polyfit(*zip(*others, strict=True), 1)
    decoding, training = bases[used.worst[0]]
    assert used.worst[1] == pytest.approx(training - (start + slope * decoding))
    assert used.correlation == pytest.approx(np.corrcoef(*zip(*bases.values(), strict=True))[0, 1])


def test_the_expected_gain_covers_most_calibrated_bases_and_widens_with_doubt():
    pairs = calibrated().values()
    covered = [expected_gain(decoding).low < training < expected_gain(decoding).high for decoding, training in pairs]
    assert sum(covered) >= 0.8 * len(covered)
    sure, unsure = expected_gain(10.0), expected_gain(10.0, 20.0)
    assert unsure.high - unsure.value == pytest.approx(math.hypot(sure.high - sure.value, 20.0))


def test_a_few_bases_that_gain_far_more_promise_no_gain_to_the_others():
    assert abs(expected_gain(0.0).value) < 1.86, "less than the smallest gain of the paper where decoding gains nothing"
    alike = {f"{place}": (10.0 * place, 10.0 * place + 1) for place in range(5)}
    rows = {name: numbers for name, *numbers in misses({**alike, "strong prior": (10.0, 60.0)})}
    assert rows["3"] == pytest.approx((31.0, 31.0, 0.0))
    assert rows["strong prior"] == pytest.approx((11.0, 60.0, 49.0))
    assert misses({**alike, "strong prior": (10.0, 60.0)}, np.mean)[1][3] < -5  # what the mean would do to the others


def test_the_page_shows_how_far_the_verdict_was_off_for_each_base():
    rows = {name: numbers for name, *numbers in misses()}
    assert rows.keys() == calibrated().keys()
    rest = {name: training - decoding for name, (decoding, training) in calibrated().items()}
    for name, (predicted, measured, miss) in rows.items():
        others = [value for other, value in rest.items() if other != name]
        assert predicted == pytest.approx(calibrated()[name][0] + np.median(others))
        assert measured == calibrated()[name][1]
        assert miss == pytest.approx(measured - predicted)
    worst = misses()[0]
    assert abs(worst[3]) == max(abs(miss) for _, _, miss in rows.values())
    html = page_html(diagnosis_page(toy(), {f"q{place}": example(f"q{place}") for place in range(4)}, "toy"))
    section = html[html.index("How good is the forecast?") :]
    cells = re.findall(r"<t[hd][^>]*>(?:<[^>]*>)*([^<]+)", section[section.index(f">{worst[0]}<") :])[:4]
    assert cells == [parts.signed(calibrated()[worst[0]][0]), *(parts.signed(value) for value in worst[1:])]
    assert diagnosis_json(toy())["calibration"][0]["base"] == worst[0]


def test_accuracies_and_the_gain_are_counted_by_hand():
    found = toy()
    assert [found.accuracy(view) for view in ("image", "control", "contrast")] == [50.0, 25.0, 75.0]
    gain, low, high = found.decoding_gain()
    assert gain == 25.0  # two gained, one lost, of four
    assert low < 25.0 < high
    assert diagnosis_json(found)["decoding_gain"][0] == 25.0
    assert "Contrast decoding gains +25.0 points here" in verdict(found)
    assert f"for {len(calibrated())} tiny bases" in verdict(found)
    assert "unread" not in verdict(found)  # not known of answers that an earlier release stored
    unread = [{"image": place < 2, "control": True, "contrast": False} for place in range(4)]
    found = replace(found, examples=[replace(one, is_unread=n) for one, n in zip(found.examples, unread, strict=True)])
    assert re.search(r"gains \+25\.0 points here \(95%: .*; unread -50\.0\)\. If", verdict(found))
    assert diagnosis_json(found)["unread"] == -50.0


def test_the_grounds_quote_the_correlation_and_the_worst_miss():
    said, best = " ".join(grounds()), best_predictor()
    assert f"correlation {best.correlation:+.2f}, 95%: {best.low:+.2f} to {best.high:+.2f}" in said
    assert f"the typical miss was {typical_miss():.1f} points and the worst {parts.signed(misses()[0][3])}." in said
    large = [pair for pair in calibrated().values() if pair[1] > 20]
    r = np.corrcoef(*zip(*large, strict=True))[0, 1]
    assert f"among the {len(large)} that gained more than 20 points" in said
    assert f"; {r:+.2f}, 95%: " in said
    assert r < best.correlation, "the correlation does not hold across doses where gains are large"
    assert typical_miss() > 1.86
    assert "it cannot tell a gain of the paper's size (1.86 to 4.77 points) from none" in verdict(toy())


def test_the_shipped_test_is_on_other_bases_and_equals_the_results_it_came_from():
    test = unseen()
    assert len(test.pairs) == 8
    assert not set(test.pairs) & set(calibrated())
    own = base_statistics(CELLS, list(test.pairs))
    for name, (decoding, training) in test.pairs.items():
        assert (own[name]["gain of contrast decoding"], own[name]["gain"]) == pytest.approx(
            (decoding, training), abs=1e-3
        )
    assert test.constant == pytest.approx(np.mean([calibrated()[name][1] for name in test.earlier]))


def test_the_grounds_quote_the_test_on_unseen_bases_beside_a_constant():
    test, page = unseen(), (CELLS.parent / "paper_dose.md").read_text(encoding="utf-8")
    said = re.search(
        r"On (\d+) bases that the calibration had not seen, which gained (\S+) to (\S+) points, it was no better "
        r"than a constant: off by (\S+) points typically \(correlation (\S+)\), where always saying (\S+), the "
        r"mean gain of (\d) earlier bases, is off by (\d+\.\d+)\.",
        " ".join(grounds()),
    ).groups()
    predicted = [decoding + np.median(beyond_decoding(calibrated())) for decoding, _ in test.pairs.values()]
    gains = np.array([gain for _, gain in test.pairs.values()])
    off, off_of_constant = (np.sqrt(np.mean((gains - each) ** 2)) for each in (np.array(predicted), test.constant))
    assert said[:3] == ("8", parts.signed(min(gains)), parts.signed(max(gains)))
    assert said[3:] == (
        f"{off:.2f}",
        f"{np.corrcoef(predicted, gains)[0, 1]:+.2f}",
        f"{test.constant:+.2f}",
        "3",
        f"{off_of_constant:.2f}",
    )
    assert f"it is off by {said[3]} points (correlation {said[4]}); always saying {said[5]}" in page
    assert f"is off by {said[7]}." in page


def test_the_page_and_the_file_show_every_unseen_base(monkeypatch):
    test, shown = unseen(), {f"q{place}": example(f"q{place}") for place in range(4)}
    html = page_html(diagnosis_page(toy(), shown, "toy"))
    assert "no better than a constant" in html
    section = html[html.index("Bases that the calibration had not seen") : html.index("Bases of the calibration")]
    assert all(f">{name}<" in section for name in test.pairs)
    stored = diagnosis_json(toy())["tested_on_unseen_bases"]
    assert [one["base"] for one in stored["bases"]] == [name for name, *_ in test.misses]
    assert (stored["typical_miss"], stored["typical_miss_of_constant"]) == pytest.approx((2.40, 2.15), abs=0.01)
    monkeypatch.setattr(page_module, "unseen", lambda: None)  # as in a folder whose test may not be read yet
    assert "had not seen" not in page_html(diagnosis_page(toy(), shown, "toy"))
    assert "than a constant" not in page_html(diagnosis_page(toy(), shown, "toy"))
    assert "than a constant" not in verdict(toy())
    assert diagnosis_json(toy())["tested_on_unseen_bases"] is None


def test_the_words_about_unseen_bases_follow_the_numbers(monkeypatch):
    close = UnseenBases({"a": (10.0, 10.0), "b": (20.0, 20.5), "c": (30.0, 29.5)}, 15.0, ["d", "e"])
    monkeypatch.setattr(page_module, "unseen", lambda: close)
    said = " ".join(grounds())
    assert "calibration had not seen, which gained +10.0 to +29.5 points, it was better than a constant" in said
    assert "always saying +15.00, the mean gain of 2 earlier bases, is off by 9.41." in said
    assert "than a constant" not in verdict(toy())
    far = UnseenBases({"a": (10.0, 15.0), "b": (20.0, 15.0), "c": (30.0, 15.5)}, 15.0, ["d"])
    monkeypatch.setattr(page_module, "unseen", lambda: far)
    assert "it was no better than a constant" in " ".join(grounds())
    assert "on 3 bases that it had not seen, it was no better than a constant" in verdict(toy())


def test_a_correlation_within_groups_sets_no_groups_apart():
    down = [(0.0, 3.0), (1.0, 2.0), (2.0, 0.5), (3.0, 0.0)]
    groups = [down, [(x + 100, y + 100) for x, y in down]]
    together, within = correlated([*groups[0], *groups[1]]), within_groups(groups)
    assert together.value > 0.99
    assert within.value == pytest.approx(np.corrcoef(*zip(*down, strict=True))[0, 1])
    half = 1.96 / math.sqrt(8 - 2 - 2)  # one degree of freedom less than a correlation of eight pairs has
    assert within.low == pytest.approx(math.tanh(math.atanh(within.value) - half))
    assert within.num_bases == 8
    assert correlated(down) is None, "too few bases"
    assert within_groups([[pair] for pair in down]) is None, "a base alone in its group says nothing"
    assert within_groups([*groups, [(9.0, 9.0)]]) == within


def wilson(share, num):
    """Wilson's 95% interval of a share of `num` questions, in percent."""
    z = 1.959964
    arm = z * math.sqrt(share * (1 - share) / num + (z / (2 * num)) ** 2)
    return [100 * (share + z * z / (2 * num) + side * arm) / (1 + z * z / num) for side in (-1, 1)]


def categorised():
    rights = [(True, False, True), (False, False, True), (False, False, True), (True, True, False)]
    names = ["shape", "color", "color", None]
    several = [
        replace(statistics(f"q{place}", *right, contrasts=(place, -place)), category=name)
        for place, (right, name) in enumerate(zip(rights, names, strict=True))
    ]
    return Diagnosis([*several, replace(several[0], id="<b>", category="<script>")], {})


def test_statistics_by_category_are_counted_by_hand():
    found = categorised().by_category()
    assert list(found) == ["color", "<script>", "shape", "without a category"]  # the largest first, unknown ones last
    assert [one.id for one in found["color"].examples] == ["q1", "q2"]
    numbers = diagnosis_json(categorised())["by_category"]
    assert numbers["color"]["accuracy"] == {"plain": 0.0, "control": 0.0, "contrast": 100.0}
    gain, low, high = numbers["color"]["decoding_gain"]
    assert (gain, high) == (100.0, 100.0)
    assert low < 50  # two examples are hardly evidence
    assert numbers["color"]["largest_contrast"] == 1.5
    assert numbers["without a category"]["decoding_gain"][0] == -100.0
    assert numbers["shape"]["same_without_image"] == 0.0
    assert sum(own["num_examples"] for own in numbers.values()) == 5
    assert toy().by_category() == {}
    assert diagnosis_json(toy())["by_category"] == {}


def test_the_page_shows_categories_and_intervals_only_where_they_mean_something():
    several = [replace(one, id=f"{place}", category="many") for place, one in enumerate(toy().examples * 3)]
    found = Diagnosis([*several, replace(several[0], id="few", category="few<b>")], {})
    rows = {row[0]: row for row in category_rows(found)}
    assert rows["many"][1:6] == ["12", "50.0", "25.0", "75.0", "+25.0"]
    # Of each four questions, two are right plainly, three with contrast, and one both times. The jackknife's variance
    # of a share p of 12 questions is p (1 - p) / 11: Wilson's intervals are those of 11 questions.
    low_plain, high_plain = wilson(2 / 4, 11)
    low_shaped, high_shaped = wilson(3 / 4, 11)
    r = (1 / 4 - 2 / 4 * 3 / 4) / math.sqrt(2 / 4 * 2 / 4 * 3 / 4 * 1 / 4)
    down, up = (
        math.sqrt(own**2 + other**2 - 2 * r * own * other)
        for own, other in ((75 - low_shaped, high_plain - 50), (high_shaped - 75, 50 - low_plain))
    )
    assert rows["many"][6] == f"{parts.signed(25 - down)} to {parts.signed(25 + up)}"
    assert rows["few<b>"][6] == "-"
    shown = {one.id: example(one.id) for one in found.examples}
    html = page_html(diagnosis_page(found, shown, "toy"))
    assert "few&lt;b&gt;" in html
    assert "few<b>" not in html
    bare = {f"q{place}": example(f"q{place}") for place in range(4)}
    assert "The data has no column &#x27;category&#x27;" in page_html(diagnosis_page(toy(), bare, "toy"))


def test_many_categories_are_cut_in_tables_and_whole_in_the_file():
    one = toy().examples[0]
    found = Diagnosis([replace(one, id=f"{place}", category=f"c{place}") for place in range(35)], {})
    assert len(category_rows(found)) == 30
    assert categories_left(found) == "5 smaller categories are in precheck.json."
    assert len(diagnosis_json(found)["by_category"]) == 35


def test_data_without_answers_gets_no_verdict():
    found = Diagnosis([statistics("q", None, None, None)], {})
    assert found.accuracy("image") is None
    assert verdict(found).startswith("No verdict: the data has no answers")
    assert not any(row[0].startswith("accuracy") for row in rows_of(found))


def test_the_page_shows_statistics_histogram_and_cases_as_text():
    evil = "<script>alert(1)</script>"
    found = Diagnosis([statistics("q0", True, False, True, texts=(evil, evil, evil))], {"bad": "no image"})
    html = page_html(diagnosis_page(found, {"q0": example("q0", evil)}, evil))
    assert "<script" not in html
    assert html.count("&lt;script&gt;alert(1)") > 5
    assert "Examples: 1 could not be used; precheck.json has the reasons." in html
    assert "0.5 to 1" in html


@pytest.mark.parametrize(
    ("answer", "text", "right"),
    [
        ("B", "It is green. The answer is B.", True),
        ("B", "The answer is A.", False),
        ("no", "The answer is no.", True),
        ("3", "There are 3 things. The answer is 3.", True),
        ("0.50", "The answer is 0.5.", True),
        ("1234567", "There are 1,234,567 things.", True),
        ("1234567", "There are 1,234,568 things.", False),
        ("red", "The ring is red. The answer is red.", True),
        ("red", "", False),
    ],
)
def test_answers_are_compared_by_their_kind(answer, text, right):
    asked = example(text="What?\nA. red\nB. green", answer=answer)
    assert is_right(text, asked_question(asked)) is right


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("\\boxed{7}", "There are 7 cups."),
        ("$\\boxed{B}$", "The answer is B."),
        ("\\boxed{\\text{Yes}}", "Yes."),
        ("\\boxed{\\frac{1}{2}}", "It is \\boxed{\\frac{1}{2}}."),
        ("(B)", "The answer is B."),
        ("B.", "The answer is B."),
        ("\\boxed{\\dfrac{1}{2}}", "It is 0.5."),
        ("1,200", "There are 1200 cups."),
        ("45^\\circ", "The angle is 45 degrees."),
        ("$x + 1$", "The answer is x+1."),
        ("\u22123", "It is -3."),
        ("\uff08B\uff09", "The answer is B."),
    ],
)
def test_an_answer_of_the_data_may_be_in_a_box_or_in_brackets(answer, text):
    asked = example(text="What?\nA. red\nB. green", answer=answer)
    question = asked_question(asked)
    assert is_right(text, question) is True
    assert is_right("Something else.", question) is False


@pytest.mark.parametrize(
    "text",
    ["Which? (A) red (B) green", "Which?\nA: red, B: green", "Which one in the picture?", "?\n(A) red\n(B) green"],
)
def test_a_letter_is_read_wherever_its_options_are(text):
    question = asked_question(example(text=text, answer="B"))
    assert is_right("The answer is B.", question) is True
    assert is_right("The answer is A.", question) is False


def test_a_check_measures_resumes_and_skips_what_cannot_be_used(tmp_path, monkeypatch):
    world = open_model("world")
    examples = [*training_examples(4), Example("text", [], [user_message("Why?")], "because")]
    options = {"name": "world", "max_new_tokens": 24}
    first = diagnose(world, examples, tmp_path, METHODS["vcsd"], **options)
    assert len(first.examples) == 4
    assert list(first.skipped) == ["text"]
    for one in first.examples:
        assert one.end_lift is not None
        assert one.end_lift_unguarded is not None
        assert len(one.contrasts) == one.num_tokens["image"]
    monkeypatch.setattr(module, "prompt_views", pytest.fail)  # nothing is scored again
    monkeypatch.setattr(module.TransformersEngine, "sample", pytest.fail)
    again = diagnose(world, examples, tmp_path, METHODS["vcsd"], **options)
    assert diagnosis_json(again) == diagnosis_json(first)
    assert [one.category for one in first.examples] == [one.category for one in examples[:4]]
    renamed = [replace(one, category="other") for one in examples]
    other = diagnose(world, renamed, tmp_path, METHODS["vcsd"], **options)
    assert list(other.by_category()) == ["other"]  # categories come from the data, not from what is stored


def test_other_data_with_the_same_ids_is_scored_again(tmp_path):
    world = open_model("world")
    examples, options = training_examples(2), {"name": "world", "max_new_tokens": 24}
    first = diagnose(world, examples, tmp_path, METHODS["vcsd"], **options)
    read = [one.texts["image"] for one in first.examples]
    corrected = [replace(one, answer="zebra") for one in examples]
    second = diagnose(world, corrected, tmp_path, METHODS["vcsd"], **options)
    assert [one.is_right["image"] for one in second.examples] == [False, False]
    swapped = [replace(one, id=other.id) for one, other in zip(examples, examples[::-1], strict=True)]
    third = diagnose(world, swapped, tmp_path, METHODS["vcsd"], **options)
    assert [one.texts["image"] for one in third.examples] == read
    assert [one.contrasts for one in third.examples] == [one.contrasts for one in first.examples]


def test_the_lift_of_the_end_is_that_of_core_with_and_without_the_guard():
    world = open_model("world")
    image, text = world_question()
    example = Example(id="a", images=[image], prompt=[user_message(text, num_images=1)])
    method = replace(METHODS["vcsd"], beta=0.0)  # all tokens are in the support
    views = prompt_views(world, example, response="The answer is C.", method=method)
    tokens = scored_tokens(views.scores, views.token_ids, views.objective, world.processor.tokenizer)
    log_p = [view_log_probs(scores, method.temperature, 8)[-1:] for scores in views.scores[:2]]
    end = views.token_ids[-1]
    expected = [
        (shape_target(*log_p, alpha=1.0, beta=0.0, end_token_ids=ids) - log_p[0])[0, end].item()
        for ids in (views.objective.end_token_ids, ())
    ]
    assert abs(expected[0] - expected[1]) > 1e-3
    assert module._end_lifts(views, tokens[-1], world.processor.tokenizer) == pytest.approx(expected, abs=1e-5)


def test_the_expected_change_in_length_has_a_paired_interval():
    several = [statistics(f"{place}", True, False, True) for place in range(8)]
    longer = [replace(one, num_tokens={"image": 10, "control": 10, "contrast": 12}) for one in several]
    assert Diagnosis(longer, {}).length_change() == (2.0, 2.0, 2.0)
    mixed = [replace(one, num_tokens={**one.num_tokens, "contrast": 10 + k}) for k, one in enumerate(longer)]
    # The changes 0 to 7 have the mean 3.5 and the deviation 2.449; Student's t of 7 degrees of freedom is 2.365.
    assert Diagnosis(mixed, {}).length_change() == pytest.approx((3.5, 1.452, 5.548), abs=1e-3)
    table = {row[0]: row[1:] for row in rows_of(Diagnosis(longer, {}))}
    assert table["change of length"] == ["+2.0", "expected tokens; 95%: +2.0 to +2.0"]
    assert table["end token, guarded"][0] == "-0.0200 nats"
    assert table["end token, unguarded"][0] == "+0.5000 nats"


def test_the_page_draws_how_many_candidates_are_plausible():
    html = page_html(diagnosis_page(toy(), {f"q{place}": example(f"q{place}") for place in range(4)}, "toy"))
    bars = re.findall(r"<span>(1|2|3 to 5|6 to 20|21 and more)</span>.*?<span>([\d.]+) ", html)
    assert bars == [("1", "50.0"), ("2", "0.0"), ("3 to 5", "50.0"), ("6 to 20", "0.0"), ("21 and more", "0.0")]
