"""The report of runs: true to their files, finished or not, small for long runs, and unharmed by what they say."""

import json
import os
import re
from contextlib import suppress
from dataclasses import replace
from html import unescape
from io import StringIO

import pytest
from PIL import Image
from rich.console import Console

from tiny_answers import option, say
from toy_runs import step_record, write_fallen, write_lines, write_run
from vcsd.checkpoint.lock import only_process
from vcsd.errors import ConfigError
from vcsd.evaluation.asked_questions import write_questions
from vcsd.evaluation.scoring.score_predictions import score
from vcsd.inspect.run_dashboard import dashboard
from vcsd.inspect.run_folder import read_run, read_runs
from vcsd.inspect.run_report import run_page, score_table, tones_of, write_run_report
from vcsd.inspect.run_sections import disagreements
from vcsd.monitor.timeline import SYNC_FILE
from vcsd.report.page import page_html
from vcsd.types import user_message


def card_of(rights):
    questions = [option(f"q{place}", "A", category="Counting") for place in range(len(rights))]
    return score(questions, [say(f"q{place}", "BA"[right]) for place, right in enumerate(rights)], mode="exact")


def html_of(*folders):
    return page_html(run_page(read_runs(folders)))


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="is not the folder of a run"):
        read_run(tmp_path)
    (tmp_path / "several" / "seed-1").mkdir(parents=True)
    (tmp_path / "several" / "seed-1" / "scorecard.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"Pass one of its seeds, such as .*several/seed-1\.$"):
        read_run(tmp_path / "several")


def test_a_run_is_finished_stopped_or_running(tmp_path):
    assert read_run(write_run(tmp_path / "a")).state == "finished"
    folder = write_run(tmp_path / "b", num_steps=7)
    assert read_run(folder).state == "stopped"
    with only_process(folder):
        assert read_run(folder).state == "running"
    assert read_run(folder).state == "stopped"


def test_a_killed_run_with_half_a_line_and_a_half_written_file_has_a_report(tmp_path):
    folder = write_run(tmp_path / "a", num_steps=7)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 8, "lo')
    (folder / "environment.json").write_text('{"hard')
    assert read_run(folder).last_step == 7
    html = html_of(folder)
    assert "a (vcsd) has ended before its last step: step 7 of 20." in html


def test_a_run_without_a_step_has_a_report(tmp_path):
    html = html_of(write_run(tmp_path / "a", num_steps=0))
    assert "no step has been recorded yet" in html


def test_the_report_shows_curves_phases_memory_and_settings(tmp_path):
    html = html_of(write_run(tmp_path / "a", evaluations=[(0, 50.0), (20, 61.25)]))
    assert "<title>a: 0.05 at 20</title>" in html  # the last loss
    assert "<title>a: 61.25 at 20</title>" in html
    assert "Constant: Truncated (0)." in html
    assert re.search(r'<th scope="row">rollout</th><td>2</td>', html)
    assert re.search(r'<th scope="row">rollout</th><td>3.00</td>', html)
    assert "<td>59.2 to 63.2</td>" not in html
    assert "<small>59.2 to 63.2</small>" in html
    assert "2 cores" in html
    assert "models/small" in html


def test_the_report_shows_every_sync_of_vllm_and_nothing_without_vllm(tmp_path):
    plain, by_vllm = write_run(tmp_path / "plain"), write_run(tmp_path / "by_vllm")
    syncs = [
        {"step": step, "version": f"step-{step}", "num_tensors": 625, "manifest": f"hash{step}"}
        | {"seconds": 0.5 * step, "probe_mean": 0.001 * step, "probe_max": 0.1}
        for step in range(1, 4)
    ]
    write_lines(by_vllm / SYNC_FILE, syncs)
    assert "Rollouts by vLLM" not in html_of(plain)
    html = html_of(plain, by_vllm)
    cells = ("3", "step-3", "625", "hash3", "0.003")
    assert re.search('<th scope="row">by_vllm</th>' + "".join(f"<td[^>]*>{cell}</td>" for cell in cells), html)
    assert "<title>by_vllm: 0.003 at 3</title>" in html
    assert "<title>by_vllm: 1.5 at 3</title>" in html


def test_steps_that_were_not_taken_and_skipped_rows_are_mentioned(tmp_path):
    folder = write_run(tmp_path / "a")
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    lines[4] = lines[4].replace('"is_taken": true', '"is_taken": false')
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "skipped.jsonl").write_text('{"id": "a"}\n{"id": "b"}\n{"id": "a"}\n')  # a in two epochs
    html = html_of(folder)
    assert "1 steps were not taken, the first is step 5" in html
    assert "2 rows of the data were skipped" in html


def test_a_run_that_stopped_because_too_many_rows_were_skipped_says_so(tmp_path):
    folder = write_run(tmp_path / "a", num_steps=1)
    config = json.loads((folder / "config.json").read_text())
    config |= {"prompts_per_step": 32, "data": {**config.get("data", {}), "max_skipped_share": 0.25}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "metrics.jsonl").write_text(json.dumps({"step": 1, "examples": [f"used {i}" for i in range(32)]}) + "\n")

    def told(num_skipped):
        (folder / "skipped.jsonl").write_text("".join(f'{{"id": "{i}"}}\n' for i in range(num_skipped)))
        console = Console(file=StringIO(), width=100)
        console.print(dashboard(read_run(folder)))
        return html_of(folder), " ".join(console.file.getvalue().split())

    cause = "rows could not be used, more than 25% of those read, which stops a run (data.max_skipped_share); see"
    assert all(f"36 {cause} skipped.jsonl" in text for text in told(36))
    assert not any(cause in text for text in told(35))  # 100 rows were read, or fewer: no run stops so early
    config["data"]["max_skipped_share"] = 0.5
    (folder / "config.json").write_text(json.dumps(config))
    assert not any("could not be used" in text for text in told(36))
    assert "36 rows of the data were skipped" in told(36)[0]


def test_rows_of_a_short_file_are_counted_in_every_epoch_as_the_run_did(tmp_path):
    folder = write_run(tmp_path / "a", num_steps=1)
    config = json.loads((folder / "config.json").read_text())
    config |= {"prompts_per_step": 6, "data": {**config.get("data", {}), "max_skipped_share": 0.05}}
    (folder / "config.json").write_text(json.dumps(config))
    used = [{"step": step, "examples": [f"used {i}" for i in range(6)]} for step in range(1, 16)]  # 90 of ten rows
    skipped = [{"id": f"broken {i}"} for i in range(2)] * 5
    write_lines(folder / "metrics.jsonl", used)
    write_lines(folder / "skipped.jsonl", skipped)
    assert read_run(folder).cause.startswith("2 rows could not be used, more than 5% of those read")
    write_lines(folder / "skipped.jsonl", skipped[:5])
    assert read_run(folder).cause is None


def test_alarms_are_listed_where_they_begin(tmp_path):
    html = html_of(write_run(tmp_path / "a", guard={8: "warn", 9: "warn", 12: "warn", 13: "stop"}))
    rows = re.findall(r'<th scope="row">a</th><td[^>]*>(\d+)</td><td[^>]*>(\w+)</td><td[^>]*>length grew', html)
    assert rows == [("8", "warn"), ("12", "warn"), ("13", "stop")]


def test_an_evaluation_that_is_clearly_below_the_first_or_the_best_is_among_the_alarms(tmp_path):
    html = html_of(write_fallen(tmp_path / "a"))
    assert "BLINK -20.00 (95% -24.00 to -16.00) since the first evaluation, at step 0" in html
    assert "BLINK -30.00 (95% -34.00 to -26.00) since its best evaluation, at step 10" in html


def test_several_runs_share_charts_and_differ_in_the_table_of_settings(tmp_path):
    first = write_run(tmp_path / "x" / "run", evaluations=[(20, 50.0)])
    second = write_run(tmp_path / "y" / "run", config={"method": {"name": "opsd"}}, evaluations=[(20, 60.0)])
    html = html_of(first, second)
    assert "<h1>2 runs</h1>" in html
    assert html.count(f"{first}: 0.05 at 20") == 1  # runs of the same name are told apart by their path
    assert "&quot;vcsd&quot;</td><td>&quot;opsd&quot;" in html
    table = score_table(read_runs([first, second]), {str(first): "vcsd", str(second): "opsd"})
    assert [row.scores["BLINK"].value for row in table.rows] == [50.0, 60.0]
    assert table.rows[0].tone == "vcsd"


def test_a_run_that_stays_constant_does_not_flatten_the_curve_of_another(tmp_path):
    folders = [write_run(tmp_path / name) for name in ("still", "moving")]
    records = [{**step_record(step), "support_size": 640.0, "truncated": -4e-10} for step in range(1, 21)]
    write_lines(folders[0] / "metrics.jsonl", records)
    write_lines(folders[1] / "metrics.jsonl", [{**record, "support_size": record["step"]} for record in records])
    html = html_of(*folders)
    assert "Support of still (640)" in html
    assert "Truncated (0)" in html  # both stay there
    assert "<title>moving: 20 at 20</title>" in html
    assert "<title>still: 640 at 20</title>" not in html


def test_an_evaluation_has_no_settings_to_differ_in(tmp_path):
    base, run = tmp_path / "base", write_run(tmp_path / "run", config={"rollout": {"top_p": 0.75}})
    base.mkdir()
    for folder in (base, run):
        card_of([1, 0]).save(folder / "scorecard.json")
    html = html_of(base, run)
    assert "null" not in html
    assert "rollout.top_p" not in html  # only among all settings, as JSON
    assert "0.75" in html


def test_runs_of_known_methods_keep_their_colours_and_others_get_their_own(tmp_path):
    methods = ("opsd", "vcsd", "vcsd", "new")
    runs = [
        read_run(write_run(tmp_path / f"{place}", config={"method": {"name": name}}))
        for place, name in enumerate(methods)
    ]
    tones = tones_of(runs)
    assert (tones["0"], tones["1"]) == ("opsd", "vcsd")
    assert len(set(tones.values())) == 4


def test_scorecards_give_paired_differences_and_cases(tmp_path):
    runs = []
    for name, right in (("base", [1, 0, 0, 1]), ("trained", [1, 1, 0, 0])):
        folder = write_run(tmp_path / name)
        card_of(right).save(folder / "scorecard.json")
        runs.append(read_run(folder))
    tones = {"base": "vcsd", "trained": "opsd"}
    (difference,) = score_table(runs, tones).differences
    assert difference.name == "trained - base"
    assert difference.scores["Acc"].value == 0
    gained, lost = disagreements(runs, tones)
    assert [answer.is_right for answer in gained.answers] == [False, True]
    assert [answer.is_right for answer in lost.answers] == [True, False]


def test_an_answer_of_other_settings_is_not_shown_with_a_score(tmp_path):
    card_of([1]).save(tmp_path / "scorecard.json")
    write_lines(tmp_path / "asked.jsonl", [{"seeds": [0]}, {"benchmark": "toy", "question": "q0", "keys": ["greedy"]}])
    said = [("greedy", "The first."), ("warm", "The second.")]
    lines = [{"benchmark": "toy", "question": "q0", "key": key, "text": text} for key, text in said]
    write_lines(tmp_path / "predictions.jsonl", lines)
    assert read_run(tmp_path).answers() == {("toy", "q0"): "The first."}


def test_the_change_in_unread_answers_stands_next_to_every_difference_and_curve(tmp_path):
    questions = [option(f"q{place}", "A", category="Counting") for place in range(4)]
    for name, said in (("base", "?AAB"), ("trained", "AAAB")):
        folder = write_run(tmp_path / name)
        lines = [(0, 3), (20, 3 - (name == "trained"))]
        write_lines(
            folder / "evaluation.jsonl",
            [
                {
                    "step": step,
                    "acc": 50.0,
                    "benchmarks": {"toy": {"entry": 50.0, "num_questions": 8, "unresolved": num}},
                }
                for step, num in lines
            ],
        )
        score(questions, [say(f"q{n}", word) for n, word in enumerate(said)], mode="final").save(
            folder / "scorecard.json"
        )
    html = html_of(tmp_path / "base", tmp_path / "trained")
    assert "<small>unread -25.0</small>" in html
    assert "From the first to the last: base unread +0.0, trained unread -12.5." in html


def test_samples_show_their_picture_and_their_tokens_on_one_scale(tmp_path):
    first = write_run(tmp_path / "a", contrast={"It": 0.0, " is": -1.0, " red": 2.0})
    second = write_run(tmp_path / "b", contrast={"It": 4.0})
    html = html_of(first, second)
    assert "+4 nats" in html
    assert html.count("data:image/jpeg") == 10
    row = re.search(r'aria-label="response at step 1 to row-1">(.*?)</details>', html)
    labels = re.findall(r"<label( class=\"(\w+)\" style=\"--c:(\d+)\")?>", row.group(1))
    assert [(kind, level) for _, kind, level in labels] == [("", ""), ("cool", "25"), ("warm", "50")]
    assert "contrast +2.0000 nats" in row.group(1)
    groups = re.findall(r'name="(sample-[\d-]+)"', html)
    assert len(set(groups)) == 10  # one group of radio buttons for each sample


def test_a_sample_never_shows_a_file_outside_the_runs_folder(tmp_path):
    folder = write_run(tmp_path / "a", contrast={"x": 1.0})
    secret = tmp_path / "secret.jpg"
    (folder / "thumbnails" / "red.jpg").rename(secret)
    lines = (folder / "samples.jsonl").read_text().replace("thumbnails/red.jpg", "thumbnails/../../secret.jpg")
    (folder / "samples.jsonl").write_text(lines)
    assert "<img" not in html_of(folder)


def test_a_link_among_the_thumbnails_shows_no_file_outside_the_runs_folder(tmp_path):
    folder = write_run(tmp_path / "a", contrast={"x": 1.0})
    secret = tmp_path / "secret.jpg"
    (folder / "thumbnails" / "red.jpg").rename(secret)
    (folder / "thumbnails" / "red.jpg").symlink_to(secret)
    assert "<img" not in html_of(folder)


def test_samples_without_thumbnails_name_their_files_and_open_none(tmp_path):
    folder = write_run(tmp_path / "a", contrast={"x": 1.0})
    secret = (folder / "thumbnails" / "red.jpg").rename(tmp_path / "secret.jpg")
    records = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    for record in records:
        del record["thumbnails"]
        record["images"] = [{"file": str(secret)}]
    (folder / "samples.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    html = html_of(folder)
    assert "<img" not in html
    assert str(secret) in html


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "samples.jsonl", "skipped.jsonl"])
def test_a_pipe_or_a_deep_tree_in_place_of_a_file_ends_no_report(tmp_path, name):
    folder = write_run(tmp_path / "a")
    (folder / name).unlink(missing_ok=True)
    (folder / name).write_text("[" * 100_000 + "\n")
    with suppress(ConfigError):
        html_of(folder)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with suppress(ConfigError):  # reading it would wait for a writer forever
        html_of(folder)


def test_case_studies_show_picture_question_and_answers_of_base_opsd_and_vcsd(tmp_path):
    questions = [option(f"q{place}", "A", category="Counting") for place in range(4)]
    shown = {"images": [Image.new("RGB", (9, 9))], "prompt": [user_message("What is it?", num_images=1)]}
    pictured = [replace(one, example=replace(one.example, **shown)) for one in questions]
    runs = []
    for name, right in (("base", [0, 0, 1, 1]), ("opsd", [0, 1, 1, 1]), ("vcsd", [1, 1, 0, 1])):
        folder = tmp_path / name
        if name != "base":
            write_run(folder, config={"method": {"name": name}})
        folder.mkdir(exist_ok=True)
        card_of(right).save(folder / "scorecard.json")
        write_questions(folder, pictured)
        write_lines(
            folder / "predictions.jsonl",
            [{"benchmark": one.benchmark, "question": one.id, "text": f"{name} says"} for one in questions],
        )
        runs.append(read_run(folder))
    assert [run.state for run in runs] == ["evaluated", "finished", "finished"]
    assert list(tones_of(runs).values()) == ["base", "opsd", "vcsd"]
    gained, lost = disagreements(runs, tones_of(runs))
    assert [answer.is_right for answer in gained.answers] == [False, False, True]
    assert [answer.is_right for answer in lost.answers] == [True, True, False]
    assert [answer.text for answer in gained.answers] == ["base says", "opsd says", "vcsd says"]
    for case in (gained, lost):
        assert case.question == "What is it?"
        assert case.gold == "A"
        assert [image.size for image in case.images] == [(9, 9)]
    html = page_html(run_page(runs))
    assert "base was evaluated, not trained." in html
    assert "q0, only vcsd is right" in html
    assert "q2, only vcsd is wrong" in html


def test_ten_thousand_steps_make_a_small_page_that_keeps_the_peaks(tmp_path):
    folder = write_run(tmp_path / "a", num_steps=10_000)
    html = html_of(folder)
    assert len(html) < 1_000_000
    longest = max(len(path.split(" L")) for path in re.findall(r'd="M([^"]*)"', html))
    assert 300 < longest <= 500
    assert "step 10000 of 20" in html


def test_what_runs_say_stays_text(tmp_path):
    evil = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    config = {"method": {"name": evil}, "model": {"path": evil}, "trainer": {"max_steps": 20}}
    folder = write_run(tmp_path / "<b>run", response=evil, config=config)
    (folder / "environment.json").write_text('{"hardware": "<script>"}')
    html = html_of(folder)
    assert "<script" not in html
    assert "<img" not in html
    assert "<b>run" not in html
    assert evil in unescape(html)


def test_a_report_that_cannot_be_written_is_an_error(tmp_path):
    run = read_run(write_run(tmp_path / "a"))
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        write_run_report([run], tmp_path / "file" / "report.html")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("metrics.jsonl", '{"step": "x"}\n'),
        ("metrics.jsonl", '{"step": 1, "findings": 7, "guard": "warn"}\n'),
        ("evaluation.jsonl", '{"step": 0, "benchmarks": {"a": "b"}}\n'),
        ("samples.jsonl", '{"step": 1}\n'),
        ("weight_sync.jsonl", '{"step": "x", "probe_mean": 1.0}\n'),
    ],
)
def test_a_run_with_records_that_no_run_writes_is_one_sentence_or_a_page(tmp_path, file, content):
    run = write_run(tmp_path / "run")
    (run / file).write_text(content)
    try:
        write_run_report([read_run(run)], tmp_path / "page.html")
    except ConfigError as error:
        assert str(tmp_path / "run") in str(error)  # noqa: PT017  either outcome is fine, a traceback is not
