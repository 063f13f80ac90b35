"""Pages: what a reader must find on them, from made-up results and journal entries."""

import json

import pytest

from tiny_bases import make_base
from vcsd.config.shipped import recipe_path
from vcsd.evaluation.reading.final_answer import READER
from vcsd.monitor.machine import hardware
from vcsd.reproduce.base_folders import grouped
from vcsd.reproduce.cell import Sweep, as_lines
from vcsd.reproduce.exam import SEVEN
from vcsd.reproduce.experiments import BASE, EXPERIMENTS, OPSD, VCSD
from vcsd.reproduce.journal import JOURNAL, add_to_journal, create_results_folder, read_journal
from vcsd.reproduce.pages.first_screen import WORDS
from vcsd.reproduce.pages.index import headline, index_page, with_page
from vcsd.reproduce.pages.provenance import made_page
from vcsd.reproduce.pages.write_pages import experiment_page, judged, write_pages
from vcsd.reproduce.pool import PoolTally
from vcsd.reproduce.results import Results
from vcsd.reproduce.runners import SERIES

COMMAND = "vcsd reproduce main --jobs 8"


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    root = tmp_path_factory.mktemp("bases")
    make_base(root / "first"), make_base(root / "second", seed=1)
    return root


@pytest.fixture
def results(bases, tmp_path):
    plan = Sweep(recipe_path("world/reproduce"), tmp_path, num_questions=8, num_prompts=16, command=COMMAND)
    return Results(plan, grouped([bases]), [101, 102, 103])


def write(results, variant, accs, **more):
    """Results of a variant, one accuracy a seed."""
    for cell, acc in zip(results.cells_of(variant, results.smallest).values(), accs, strict=True):
        found = {
            **{"key": cell.key, "acc": acc, "scores": dict.fromkeys(SEVEN, acc), "usual": 60.0, "num_questions": 200},
            **{
                "unresolved": 10,
                "reader": READER,
                "truncated": 2,
                "seconds": 20.0,
                "command": COMMAND,
                "hardware": "NVIDIA H200",
            },
            **{"versions": {"torch": "2"}, "identity": {"world": "0123456789ab"}, **more},
        }
        cell.path.parent.mkdir(exist_ok=True)
        cell.path.write_text(as_lines(found))


TRAINED = {"guard": {"warn": 31, "stop": None}, "training_seconds": 15.0, "curve": []}


@pytest.fixture
def told(results):
    write(results, BASE, [50.0, 52.0, 50.0])
    write(results, OPSD, [55.0, 52.0, 57.0], **TRAINED)
    write(results, VCSD, [60.0, 62.6, 61.0], **TRAINED)
    main = EXPERIMENTS["main"]
    add_to_journal(
        [main], results, PoolTally(8, 0, ["k"] * 8, ["x: died"], 160.0), jobs=8, wall_seconds=150.0, ended="done"
    )
    return results


def row(page, name):
    """The cells of the first table row of a name."""
    line = next(line for line in page.splitlines() if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_page_says_from_what_it_was_made(told):
    page = experiment_page(EXPERIMENTS["main"], told)
    assert "3 seeds, 2 bases, 8 runs; 160 s (2.7 min) of run time on NVIDIA H200." in page, "a base is one run a base"
    for line in (
        f"- Command: `{COMMAND}`",
        "- Seeds: 3 (101, 102, 103)",
        "- Bases of Qwen3-VL 0.5M: 2 (first, second)",
        "- Hardware: NVIDIA H200",
        "- Runs: 8, 160 s (2.7 min) in total, many in parallel",
        f"- Wall time: 150 s (2.5 min) for 8 runs (1 failed), 8 in parallel: `{COMMAND}`",
    ):
        assert f"\n{line}\n" in page


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=list(EXPERIMENTS))
def test_a_page_starts_with_its_question_and_the_words_that_it_needs(told, experiment):
    title, question, words, *_ = experiment_page(experiment, told).split("\n\n")
    assert title == f"# {experiment.title}"
    assert question == f"**Question:** {experiment.question}"
    assert "?" in question
    assert words == WORDS


def test_a_comparison_that_the_paper_does_not_make_has_a_result_without_a_verdict(told):
    for variant in EXPERIMENTS["temperature"].variants:
        write(told, variant, [60.0, 62.6, 61.0], **TRAINED)
    page = experiment_page(EXPERIMENTS["temperature"], told)
    assert "\n**Result**, without a verdict. The paper does not compare its T = 2" in page.partition("seeds,")[0]


def test_a_command_that_ran_an_experiment_on_other_bases_alone_is_not_behind_its_page(told):
    path = told.sweep.out / "runs.jsonl"
    entry = json.loads(path.read_text().splitlines()[-1])
    planned = {**entry, "command": "run_planned", "bases": {"planned": ["another"]}}
    path.write_text(path.read_text() + json.dumps(planned) + "\n")
    page = experiment_page(EXPERIMENTS["main"], told)
    assert page.count("- Wall time:") == 1
    assert "run_planned" not in page


def test_a_base_that_was_taught_longer_or_shorter_is_told_apart(told):
    (_, second) = told.groups[told.smallest]
    card = second.folder / "card.json"
    card.write_text('{"world": {"answer_steps": 2000, "sway_steps": 900}}')
    try:
        again = Results(told.sweep, grouped([second.folder.parent]), told.seeds)
        page = experiment_page(EXPERIMENTS["main"], again)
    finally:
        card.unlink()
    assert "\n- Bases of Qwen3-VL 0.5M: 2 (first, second (answer_steps=2000))\n" in page


def test_the_table_has_differences_with_their_significance(told):
    page = experiment_page(EXPERIMENTS["main"], told)
    vcsd = row(page, "VCSD")
    assert vcsd[1] == "61.5 ± 1.5"
    assert vcsd[8] == "**61.55 ± 1.48**"
    assert vcsd[9] == "**+10.55 ± 0.05 (p = 0.003), unread +0.00**"
    assert vcsd[10] == "+7.55 ± 3.05 (p = 0.244), unread +0.00", "not clear, not bold"
    write(told, OPSD, [50.0, 51.0, 61.0], unresolved=16)
    assert row(experiment_page(EXPERIMENTS["main"], told), "VCSD")[10].endswith(", unread -3.00")  # 6 of 200
    assert row(page, "base")[9:11] == ["", ""]
    assert row(page, "OPSD")[10] == ""
    assert "| first, seed 101 | second, seed 102 | first, seed 103 |" in page
    assert "| VCSD | 60.00 | 62.60 | 61.00 |" in page
    assert "| VCSD | 5.0 ± 0.0 | 1.0 ± 0.0 | 3 of 3, first at step 31 | 0 of 3 | 15 ± 0 |" in page


def test_pages_say_how_many_runs_are_missing(told):
    main = EXPERIMENTS["main"]
    assert "missing" not in experiment_page(main, told)
    assert headline(main, told) == "base 51.0, OPSD 54.0, VCSD 61.5"
    cells = list(told.cells_of(OPSD, told.smallest).values())
    cells[2].path.unlink()
    assert "\n**1 run is missing**: means are over" in experiment_page(main, told)
    assert headline(main, told) == "base 51.0, OPSD 53.5 (2 of 3 runs), VCSD 61.5"
    cells[0].path.unlink()
    assert "\n**2 runs are missing**" in experiment_page(main, told)


def test_a_page_shows_an_answer_that_no_rule_reads(told):
    assert "Example of an unread answer" not in experiment_page(EXPERIMENTS["main"], told)
    write(told, OPSD, [50.0, 51.0, 52.0], unread=["答案 |\n 和 `A`"])
    assert "\nExample of an unread answer (OPSD): `答案 | 和 'A'`\n" in experiment_page(EXPERIMENTS["main"], told)


def test_a_curve_is_a_table_and_a_name_is_one_row(told):
    for variant, gain in zip(EXPERIMENTS["dynamics"].variants, (1, 3), strict=True):
        scores = dict.fromkeys(SEVEN, 50.0)
        points = [{"step": step, "acc": 50.0 + gain * step, "scores": scores} for step in (1, 2)]
        write(told, variant, [50.0 + 2 * gain] * 3, **{**TRAINED, "curve": points})
    page = experiment_page(EXPERIMENTS["dynamics"], told)
    assert (
        "\n**Result** for [the paper's claims](claims.md). Undecided: \"VCSD stays above OPSD"
        in page.partition("seeds,")[0]
    )
    _, _, after = page.partition("Acc over training, by step:")
    assert row(after, "VCSD") == ["VCSD", "53.0 ± 0.0", "56.0 ± 0.0"]
    table, _, _ = page.partition("Acc run by run")
    assert table.count("| OPSD |") == 1
    assert "**52.00 ± 0.00**" in row(table, "OPSD"), "its own run, not the reference of the same name"


def test_a_page_without_suites_has_no_table_of_them(told):
    others = dict.fromkeys(("rank_correlation", "same_sign", "same_choice", "mean_gap"), 0.5)
    near = {name: {"correlation": r, **others} for name, r in (("black", 0.75), ("no_image", 0.25))}
    (variant,) = EXPERIMENTS["pmi"].variants
    write(told, variant, [0.0] * 3, pmi=near)
    for cell in told.cells_of(variant, told.smallest).values():
        found = cell.result()
        del found["acc"]
        cell.path.write_text(as_lines(found))
    page = experiment_page(EXPERIMENTS["pmi"], told)
    assert row(page, "no image")[1] == "0.25 ± 0.00"
    assert "above OPSD" not in page
    assert "3 seeds, 2 bases, 3 runs" in page


def test_the_front_page_has_headlines_and_verdicts_and_another_page_wall_time(told):
    (told.sweep.out / "main.md").write_text("")
    page = index_page(told, judged(told))
    assert "| [main](main.md) | Base, OPSD and VCSD | Table 1 and Figure 6 | base 51.0, OPSD 54.0, VCSD 61.5 |" in page
    assert "Not finished: alpha, support" in page
    page = made_page(with_page(told), told)
    assert f"| `{COMMAND}` | {hardware()} | 3 | 2 | 8 (0 already done, 1 failed) | 8 | 160 | 150 |" in page
    assert "- World parameters: 0123456789ab;" in page
    assert "holds" not in page, "every result is of a noted command"
    (told.sweep.out / JOURNAL).unlink()
    add_to_journal(
        [EXPERIMENTS["main"]], told, PoolTally(8, 0, ["k"] * 5), jobs=8, wall_seconds=90.0, ended="interrupted"
    )
    add_to_journal([EXPERIMENTS["main"]], told, PoolTally(8, 5, ["k"]), jobs=8, wall_seconds=60.0, ended="done")
    page = made_page(with_page(told), told)
    assert "| 90, interrupted |" in page
    assert "Total: 6 runs, 150 s (2.5 min) of wall time." in page
    assert "holds 8 results, but these commands ran 6" in page


def test_more_runs_than_results_leave_no_wall_time_unknown(told):
    (told.sweep.out / "main.md").write_text("")
    add_to_journal([EXPERIMENTS["main"]], told, PoolTally(3, 5, ["k"] * 3), jobs=8, wall_seconds=60.0, ended="done")
    page = made_page(with_page(told), told)
    assert "Total: 11 runs" in page, "of 8 results: three were run again"
    assert "has no wall time" not in page


def test_a_command_that_ran_nothing_is_not_noted(results):
    add_to_journal([EXPERIMENTS["main"]], results, PoolTally(0, 8), jobs=1, wall_seconds=1.0, ended="done")
    assert read_journal(results.sweep.out) == []


def test_a_command_is_noted_with_the_bases_that_it_started_from(bases, tmp_path):
    black = make_base(tmp_path / "black", seed=5)
    (black / "card.json").write_text('{"world": {"black_share": 0.0}}')
    plan = Sweep(recipe_path("world/reproduce"), tmp_path / "out", num_questions=8, num_prompts=16)
    results = Results(plan, grouped([bases, black]), [101])
    add_to_journal([EXPERIMENTS["black"]], results, PoolTally(5, 0, ["k"] * 5), jobs=2, wall_seconds=9.0, ended="done")
    add_to_journal([EXPERIMENTS["main"]], results, PoolTally(3, 0, ["k"] * 3), jobs=2, wall_seconds=9.0, ended="done")
    found = [entry.bases for entry in read_journal(plan.out)]
    assert found == [{"Qwen3-VL 0.5M, black_share=0": ["black"]}, {"Qwen3-VL 0.5M": ["first"]}]


def test_a_folder_of_results_keeps_logs_and_work_out_of_git(told):
    create_results_folder(told.sweep.out)
    written = {path.name for path in write_pages([EXPERIMENTS["main"]], told)}
    assert written == {"main.md", "claims.md", "README.md", "how_made.md"}
    assert {"logs/", "work/", "*.partial"} <= set((told.sweep.out / ".gitignore").read_text().split())


def test_a_result_stays_small_and_whole():
    series = {name: [0.12345 + step / 1e5 for step in range(90)] for name in SERIES}
    found = {"acc": 50.0, "curve": [], "series": {name: [round(v, 5) for v in each] for name, each in series.items()}}
    text = as_lines(found)
    assert json.loads(text) == found
    assert len(text.splitlines()) == 2 + len(found)
    assert len(text) < 8_000, "two hundred of them are to be committed"
