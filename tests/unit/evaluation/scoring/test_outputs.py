"""What an evaluation leaves behind: numbers, a page that needs nothing else, and files that others can score."""

import csv
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from rich.console import Console

from faulty_disk import faulty_disk
from toy_benchmarks import ROWS, write_tsvs
from toy_questions import question
from vcsd.errors import ConfigError, RunError
from vcsd.evaluation.asking.presets import PAPER_SAMPLING, parse_sampling
from vcsd.evaluation.benchmarks import BENCHMARKS
from vcsd.evaluation.benchmarks.files.records import StoredImage
from vcsd.evaluation.benchmarks.files.tsv import read_tsv
from vcsd.evaluation.benchmarks.world_suites import load_world
from vcsd.evaluation.evaluate import Asking, Scoring, evaluate, load_questions
from vcsd.evaluation.reading.marking import Marking
from vcsd.evaluation.scoring import scorecard_page as page_module
from vcsd.evaluation.scoring.compare import Comparison, Difference, compare, over_seeds
from vcsd.evaluation.scoring.scorecard import load_scorecard
from vcsd.evaluation.scoring.terminal_tables import (
    comparison_remarks,
    comparison_table,
    remarks,
    score_table,
    seeds_table,
    unread_warning,
)
from vcsd.evaluation.scoring.uncertainty import Interval
from vcsd.evaluation.scoring.vlmevalkit_files import FAILED_TEXT, export_predictions
from vcsd.monitor.lines import Lines
from vcsd.rollout.sampling import Sampling
from vcsd.types import Prediction, Verdict

EXACT = Scoring(Marking("exact"))


class Knows:
    """Gives the gold answer, but for some questions; with a temperature, by the seed."""

    def __init__(self, name="knows", wrong=(), failed=(), texts=()):
        self.identity = {"model": name}
        self.wrong, self.failed, self.texts = wrong, failed, dict(texts)
        self.num_asked = 0

    def answer(self, questions, sampling, *, seed):
        for place, each in enumerate(questions):
            self.num_asked += 1
            key = f"{each.benchmark}/{each.id}"
            if key in self.failed:
                yield place, Prediction(each.id, "", None, error="DataError: no image")
            elif key in self.wrong or (sampling.temperature and place < seed):
                yield place, Prediction(each.id, "I cannot tell.", "length", 4)
            else:
                yield place, Prediction(each.id, self.texts.get(key, each.gold), "end", 1)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    folder = write_tsvs(tmp_path_factory.mktemp("data"))
    return load_questions("all", folder, Asking(allow_unknown_data=True))


def run(loaded, out, answerer=None, scoring=EXACT, **asking):
    return evaluate(loaded, answerer or Knows(), out, Asking(**asking), scoring, title="toy model")


def shown(table):
    console = Console(file=io.StringIO(), width=80)
    console.print(table)
    return console.file.getvalue()


def test_everything_is_written_and_the_scorecard_says_how_it_was_made(loaded, tmp_path):
    (card,) = run(loaded, tmp_path, Knows(wrong={"BLINK/1"}))
    assert {path.name for path in tmp_path.iterdir()} == {
        *(".lock", "predictions.jsonl", "scorecard.json", "report.html", "vlmevalkit"),
        *("asked.jsonl", "questions.jsonl", "thumbnails"),
    }
    assert load_scorecard(tmp_path / "scorecard.json").benchmarks["BLINK"].entry == card.benchmarks["BLINK"].entry == 75
    made = json.loads((tmp_path / "scorecard.json").read_text())["made_with"]
    assert made["style"] == "vlmevalkit"
    assert made["sampling"]["presence_penalty"] == 1.5
    assert made["asker"] == {"model": "knows"}
    assert made["data"]["BLINK"]["md5"] == loaded[0].report.md5
    assert card.benchmarks["BLINK"].counts.truncated == 1


def test_what_was_answered_is_not_asked_again_in_whatever_mode_it_is_scored(loaded, tmp_path):
    first, second = Knows(), Knows()
    run(loaded, tmp_path, first)
    run(loaded, tmp_path, second, scoring=Scoring(Marking("exact", "2025-08")))
    assert first.num_asked == sum(map(len, ROWS.values()))
    assert second.num_asked == 0


@pytest.mark.parametrize("asking", [{}, {"seeds": (1, 2), "sampling": Sampling(max_new_tokens=9)}])
def test_results_of_another_model_are_not_replaced(loaded, tmp_path, asking):
    run(loaded, tmp_path, **asking)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json*")}
    other = Knows("other")
    with pytest.raises(ConfigError, match=r"holds the results of 'toy model'.*Choose another folder \(--out\)"):
        run(loaded, tmp_path, other)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.json*")} == before
    assert other.num_asked == 0


def test_weights_on_a_server_are_told_apart_but_its_address_may_change(loaded, tmp_path):
    first, moved, changed = Knows(), Knows(), Knows()
    first.identity = {"model": "m", "server": "http://a/v1", "weights": "1"}
    moved.identity = {"model": "m", "server": "http://b/v1", "weights": "1"}
    changed.identity = {"model": "m", "server": "http://a/v1", "weights": "2"}
    run(loaded[:1], tmp_path, first)
    run(loaded[:1], tmp_path, moved)
    with pytest.raises(ConfigError, match="or of other weights with the same name"):
        run(loaded[:1], tmp_path, changed)


def test_a_folder_that_cannot_be_written_is_an_error_and_answers_are_kept(loaded, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file cannot be written to: .*Choose another folder"):
        run(loaded, tmp_path / "file")
    real, left = Lines.append, [3]

    def append(lines, record):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        real(lines, record)

    monkeypatch.setattr(Lines, "append", append)
    with pytest.raises(RunError, match=r"No space left on device.* the same command resumes"):
        run(loaded, tmp_path / "full")
    monkeypatch.undo()
    rest = Knows()
    run(loaded, tmp_path / "full", rest)
    assert rest.num_asked == sum(map(len, ROWS.values())) - 3


def test_a_disk_that_is_full_from_any_event_on_leaves_no_results_or_whole_ones(loaded, tmp_path):
    at, failed = 0, ["some"]
    while failed:
        out = tmp_path / f"full-{at}"
        out.mkdir()
        message = ""
        with faulty_disk(out, at) as failed:
            try:
                run(loaded[:1], out)
            except (RunError, ConfigError) as error:
                message = str(error)
        assert ("No space left on device" in message) == bool(failed), at
        assert "\n" not in message
        if (out / "scorecard.json").exists():
            assert load_scorecard(out / "scorecard.json").benchmarks["BLINK"].entry == 100
        rest = Knows()
        run(loaded[:1], out, rest)
        assert load_scorecard(out / "scorecard.json").benchmarks["BLINK"].entry == 100
        assert not list(out.rglob("*.partial"))
        at += 1
    assert at > 20


def test_two_processes_do_not_write_into_one_folder(loaded, tmp_path):
    fcntl = pytest.importorskip("fcntl")
    second = Knows()
    with (tmp_path / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(RunError, match="is in use by"):
            run(loaded, tmp_path, second)
    assert second.num_asked == 0
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_style_limit_and_jpeg_reach_the_questions(tmp_path):
    folder = write_tsvs(tmp_path)
    given = Asking(style="cot", limit=4, jpeg75=True, allow_unknown_data=True)
    (found,) = load_questions("HRBench4K", folder, given)
    assert len(found.questions) == 4
    assert "within \\boxed{}" in found.questions[0].example.prompt[0]["content"][-1]["text"]
    assert found.questions[0].example.images[0].is_recoded


def test_a_style_is_checked_before_any_file_is_read():
    with pytest.raises(ConfigError, match=r"style = 'coot' is not a prompt style. Did you mean 'cot'"):
        Asking(style="coot")


def test_failed_questions_are_not_averaged_unless_allowed_and_their_file_is_there(loaded, tmp_path):
    answerer = Knows(failed={"BLINK/0"})
    with pytest.raises(RunError, match=r"BLINK: 1 failed, .*: no image\. Ask .* \(--allow-failed\) to count them"):
        run(loaded, tmp_path, answerer)
    assert FAILED_TEXT in (tmp_path / "vlmevalkit" / "BLINK.tsv").read_text()
    (card,) = run(loaded, tmp_path, answerer, scoring=Scoring(Marking("exact"), allow_failed=True))
    assert card.benchmarks["BLINK"].counts.failed == 1
    assert "DataError: no image" in (tmp_path / "report.html").read_text()


def test_seeds_are_asked_apart_and_averaged(loaded, tmp_path):
    cards = run(loaded[:1], tmp_path, sampling=Sampling(temperature=1.0), seeds=(0, 1, 2))
    assert [card.acc for card in cards] == [100.0, 75.0, 50.0]
    found = json.loads((tmp_path / "seeds.json").read_text())
    assert (found["acc"]["mean"], found["acc"]["sd"]) == (75.0, 25.0)
    assert (tmp_path / "seed-2" / "scorecard.json").exists()
    (name,) = cards[0].benchmarks
    table = shown(seeds_table(over_seeds(cards), {name: "A benchmark's title"}))
    assert "A benchmark's title" in table
    assert name not in table
    head, row, *_ = (line.split() for line in table.splitlines())
    assert head == ["benchmark", "mean", "sd", "failed", "unread", "cut", "seeds"]
    unread, cut = (
        sum(getattr(card.benchmarks[name].counts, kind) for card in cards) for kind in ("unresolved", "truncated")
    )
    assert row[3:] == ["75.00", "25.00", "0", str(unread), str(cut), "100.00,", "75.00,", "50.00"]
    assert found["counts"][name]["unresolved"] == unread > 0


def test_many_seeds_fit_80_columns_and_their_problems_are_counted(loaded, tmp_path):
    cards = run(loaded[:1], tmp_path, sampling=Sampling(temperature=1.0), seeds=tuple(range(9)))
    (name,) = cards[0].benchmarks
    counts = replace(cards[0].benchmarks[name].counts, failed=2, truncated=3)
    ill = replace(cards[0], benchmarks={name: replace(cards[0].benchmarks[name], counts=counts)})
    table = shown(seeds_table(over_seeds([ill, *cards[1:]]), {}))
    assert max(map(len, table.splitlines())) <= 80
    assert table.count("100.00") == 2  # of the benchmark and of Acc; every other seed is wrapped, not cut off
    assert "\u2026" not in table
    assert over_seeds([ill, *cards[1:]]).counts[name].failed == 2


@pytest.mark.parametrize(
    ("asking", "message"),
    [
        ({"seeds": (0, 1)}, "several seeds at temperature 0 give the same answers"),
        ({"limit": 0}, "limit = 0 leaves no question"),
        ({"seeds": (1, 1), "sampling": Sampling()}, "must be one number or several different ones"),
    ],
)
def test_what_makes_no_sense_is_refused(asking, message):
    with pytest.raises(ConfigError, match=message):
        Asking(**asking)


def test_the_export_has_vlmevalkits_columns_and_every_answer_to_the_letter(loaded, tmp_path):
    odd = 'It is "B",\n\tor\r so. 中'
    texts = {"HallusionBench/VD_figure_1_0_1_0": odd}
    run(loaded, tmp_path, Knows(texts=texts))
    for name, rows in ROWS.items():
        with (tmp_path / "vlmevalkit" / f"{name}.tsv").open(newline="", encoding="utf-8") as file:
            found = list(csv.DictReader(file, delimiter="\t"))
        assert [row["index"] for row in found] == [row["index"] for row in rows]
        assert set(found[0]) == {*rows[0], "prediction"} - {"image"} | {
            key for row in rows for key in row if key != "image"
        }
        assert all(found[n][key] == row[key] for n, row in enumerate(rows) for key in row if key != "image")
    assert found[0]["prediction"] == odd


def test_questions_from_no_file_are_exported_too(tmp_path):
    asked = [question("a", gold="2", options={"A": "2"}, groups={"shape": "cube"})]
    (path,) = export_predictions(tmp_path, asked, [Prediction("a", "two", "end")])
    with path.open(newline="") as file:
        (row,) = csv.DictReader(file, delimiter="\t")
    assert row == {"index": "a", "question": "how many?", "A": "2", "answer": "2", "shape": "cube", "prediction": "two"}


def test_a_group_named_as_a_column_does_not_replace_it_in_the_export(tmp_path):
    (loaded,) = load_world(["world/hallucination"], limit=2)
    asked = loaded.questions[0]
    assert "question" in asked.groups
    (path,) = export_predictions(tmp_path, [asked], [Prediction(asked.id, "Yes", "end")])
    with path.open(newline="") as file:
        (row,) = csv.DictReader(file, delimiter="\t")
    assert (row["question"], row["set"]) == (asked.text, asked.groups["set"])


class Tags(HTMLParser):
    """Checks that every tag is closed, and notes what the page refers to."""

    def __init__(self, text):
        super().__init__()
        self.open, self.links, self.images, self.samples = [], [], 0, {}
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.links += [value for key, value in attributes if key in ("src", "href")]
        self.images += tag == "img"
        if tag == "details":
            self.samples[found["class"]] = self.samples.get(found["class"], 0) + 1
        if tag not in ("meta", "img", "br", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_refers_to_nothing_and_shows_right_and_wrong_answers(loaded, tmp_path):
    nasty = "<script>alert(1)</script> & so on"
    (card,) = run(loaded, tmp_path, Knows(wrong={"MMStar/0", "MMStar/1"}, texts={"MMStar/2": nasty}))
    text = (tmp_path / "report.html").read_text()
    tags = Tags(text)
    assert tags.open == []
    assert all(link.startswith("data:image/jpeg;base64,") for link in tags.links)
    assert tags.images > 30
    assert tags.samples["right"] > tags.samples["unread"] >= 2
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert "prefers-color-scheme:dark" in text
    assert f"{card.acc:.2f}" in text
    bars = re.findall(r"science &amp; technology</span>.*?width:([\d.]+)%", text)
    assert bars == [f"{card.benchmarks['MMStar'].groups['category']['science & technology'].entry:.1f}"]


def test_a_page_shows_few_answers_of_each_kind_spread_over_all():
    answers = [(question(str(n)), Prediction(str(n), "x", "end"), None) for n in range(80)]
    chosen = [int(answer[0].id) for answer in page_module.chosen_along(answers, page_module.PER_KIND)]
    assert [n // 10 for n in chosen] == list(range(8))


def test_an_image_that_cannot_be_read_and_a_text_without_end_do_not_break_the_page():
    broken = StoredImage("toy.tsv, row 3", "x", lambda: b"no image")
    sample = page_module._sample(
        "wrong", question(images=(broken,)), Prediction("0", "y" * 9000, "length"), Verdict("0", "1", False, "x")
    )
    assert "toy.tsv, row 3" in sample.images[0]
    assert "[... 3000 characters ...]" in sample.texts[1]
    assert "cut off" in sample.about


def test_the_table_fits_a_terminal_of_80_columns_and_says_what_is_not_whole(loaded, tmp_path):
    (card,) = run(loaded, tmp_path)
    text = shown(score_table(card))
    assert "…" not in text
    assert "4/1901" in text
    assert len(text.splitlines()) == 2 + len(BENCHMARKS)
    notes = "\n".join(remarks(card))
    assert "Decoded by contrast" not in notes
    by_contrast = replace(card, made_with={**card.made_with, "asker": {"contrast": "vcsd"}})
    assert any("Decoded by contrast" in line for line in remarks(by_contrast))
    assert "Incomplete, so not comparable with published or complete results: BLINK" in notes
    assert "Not the published data (see scorecard.json): BLINK" in notes
    assert "presence_penalty 1.5" in notes


def test_a_comparison_shows_what_was_gained_and_lost(loaded, tmp_path):
    (first,) = run(loaded[:1], tmp_path / "a", Knows("a", wrong={"BLINK/0", "BLINK/1"}))
    (second,) = run(loaded[:1], tmp_path / "b", Knows("b", wrong={"BLINK/2"}))
    row = next(
        line for line in shown(comparison_table(compare(first, second), "a", "b")).splitlines() if "BLINK" in line
    )
    assert row.split()[:4] == ["BLINK", "50.00", "75.00", "+25.00"]
    assert row.split()[-3:] == ["2", "1", "-25.0"]  # a wrong answer of this toy is also unread


def test_a_comparison_fits_80_columns_with_long_names_and_large_numbers():
    found = Difference(100.0, 0.0, -100.0, Interval(-100.0, -100.0), 1000, 1000)
    text = shown(
        comparison_table(Comparison(found, {"a benchmark with a very long name": found}, {}), "eight ch", "b" * 8)
    )
    assert "-100.0 to -100.0" in text
    assert "1000" in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80


def test_a_comparison_warns_if_unread_answers_changed_by_more_than_the_score():
    few, many = (Difference(60.0, 61.0, 1.0, Interval(-1.0, 3.0), 3, 1, unread) for unread in (-0.5, -2.5))
    comparison = Comparison(few, {"BLINK": few, "MMStar": many}, {})
    (warning,) = (line for line in comparison_remarks(comparison) if "unread" in line)
    assert "MMStar +1.0 with -2.5 unread" in warning
    assert "BLINK" not in warning
    assert "Score both with a judge before" in warning
    (judged,) = unread_warning(replace(comparison, mode="judge"))
    assert "Read some of them before" in judged
    assert not any("unread" in line for line in comparison_remarks(Comparison(few, {"BLINK": few}, {})))
    assert "-2.5" in shown(comparison_table(comparison, "a", "b"))
    assert [cell.style for cell in comparison_table(comparison, "a", "b").columns[7].cells] == ["", "yellow", ""]


def test_a_comparison_says_in_sentences_what_was_made_differently():
    found = Difference(50.0, 60.0, 10.0, Interval(1.0, 9.0), 3, 1)
    asked = ({"model": "a" * 32, "dtype": "float32"}, {"model": "b" * 32, "dtype": "float32"})
    made = {
        "model": ("base", "trained"),
        "asker": asked,
        "sampling": ({"top_k": None, "top_p": 1}, {"top_k": 20, "top_p": 1}),
    }
    (line,) = comparison_remarks(Comparison(found, {}, made))
    assert line == "Their settings differ too: top_k none and 20. The change may come from that."
    (line,) = comparison_remarks(Comparison(found, {}, {"asker": asked}))
    assert line == "All settings are the same; only the model differs."
    (line,) = comparison_remarks(Comparison(found, {}, {}))
    assert line == "Both results are of the same model."


def test_sampling_is_a_preset_and_changes_to_it():
    assert parse_sampling("paper") == PAPER_SAMPLING == parse_sampling("")
    assert parse_sampling("greedy, max_new_tokens=7") == Sampling(7, 0.0)
    assert parse_sampling("top_k=none,temperature=.5").top_k is None
    # What VLMEvalKit ships for these models.
    shipped = {"top_k": 20, "presence_penalty": 1.5}
    assert parse_sampling("qwen3_vl") == Sampling(16384, 0.7, top_p=0.8, **shipped)
    assert parse_sampling("qwen3_5") == Sampling(32768, 1.0, top_p=0.95, **shipped)
    for text, message in {
        "papr": "sampling = 'papr' is not a preset. Did you mean 'paper'",
        "paper,temprature=1": "sampling.temprature is not a sampling setting. Did you mean 'temperature'",
        "max_new_tokens=many": "sampling.max_new_tokens = 'many' is not a number",
        "max_new_tokens=1.5": "is not a number",
        "top_p=7": "sampling.top_p = 7.0 must be in",
    }.items():
        with pytest.raises(ConfigError, match=re.escape(message)):
            parse_sampling(text)


def test_a_stand_in_file_reads_back_as_it_was_exported(loaded, tmp_path):
    run(loaded, tmp_path)
    path = tmp_path / "vlmevalkit" / "VStarBench.tsv"
    text = path.read_text().replace("prediction", "image_path", 1)
    (tmp_path / "again.tsv").write_text(text)
    assert len(read_tsv(tmp_path / "again.tsv").rows) == 5


@pytest.mark.parametrize(
    ("difference", "interval", "style"),
    [(4.0, (1.0, 7.0), "green"), (-4.0, (-7.0, -1.0), "red"), (4.0, (-1.0, 9.0), "")],
)
def test_a_clear_difference_is_green_for_better_and_red_for_worse(difference, interval, style):
    found = Difference(50.0, 50.0 + difference, difference, Interval(*interval), 3, 1)
    table = comparison_table(Comparison(found, {"BLINK": found}, {}), "a", "b")
    assert [cell.style for cell in table.columns[3].cells] == [style, style]
