"""Cells: what their names depend on, what they share, and the recipes behind the paper's tables."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest

from forked_python import start_python
from tiny_bases import make_base, shared_base
from vcsd.bases.shipped_bases import shipped_base
from vcsd.cli.reproduce_command import parse_seeds
from vcsd.config.shipped import recipe_path
from vcsd.errors import ConfigError, RunError
from vcsd.evaluation.reading.final_answer import READER
from vcsd.method import METHODS, PRESETS
from vcsd.reproduce import cell as cell_module
from vcsd.reproduce.base_folders import Base, grouped
from vcsd.reproduce.cell import Cell, Sweep
from vcsd.reproduce.exam import SEVEN
from vcsd.reproduce.experiments import BASE, EXPERIMENTS, OPSD, VCSD, Experiment, Variant, chosen
from vcsd.reproduce.results import Results
from vcsd.world.parameters import PARAMETERS


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return Base(shared_base(str(tmp_path_factory.mktemp("bases"))))


@pytest.fixture
def plan(tmp_path):
    return Sweep(recipe_path("world/reproduce"), tmp_path, num_questions=8, num_prompts=16)


def test_the_recipe_is_the_papers_but_for_what_it_says(base, plan):
    recipe = Cell(VCSD, base, 101, plan).recipe()
    assert recipe.method == METHODS["vcsd"]
    assert (recipe.prompts_per_step, recipe.rollout.num_per_prompt) == (32, 8)
    assert (recipe.trainer["max_steps"], recipe.trainer["warmup_steps"], recipe.trainer["seed"]) == (90, 10, 101)


EXPECTED = {
    ("main", "OPSD"): METHODS["opsd"],
    ("alpha", "alpha 0"): METHODS["no_contrast"],
    ("alpha", "alpha 0.5"): replace(METHODS["vcsd"], alpha=0.5),
    ("alpha", "alpha 2"): replace(METHODS["vcsd"], alpha=2.0),
    ("support", "beta 0"): METHODS["no_support"],
    ("divergence", "reverse KL"): replace(METHODS["vcsd"], divergence="reverse_kl"),
    ("divergence", "JSD"): replace(METHODS["vcsd"], divergence="jensen_shannon"),
    ("control", "noise"): replace(METHODS["vcsd"], contrast_view="noise"),
    ("control", "blur"): replace(METHODS["vcsd"], contrast_view="blur"),
    ("control", "no image"): replace(METHODS["vcsd"], contrast_view="no_image"),
    ("anchor", "no anchor"): METHODS["no_anchor"],
    ("black", "VCSD with no image"): replace(METHODS["vcsd"], contrast_view="no_image"),
    ("black", "VCSD with noise"): replace(METHODS["vcsd"], contrast_view="noise"),
    ("sharpening", "sharpened 1.5"): replace(METHODS["no_contrast"], anchor=1.5),
    ("sharpening", "sharpened 3"): replace(METHODS["no_contrast"], anchor=3.0),
    ("sharpening", "another picture"): replace(METHODS["vcsd"], contrast_view="given"),
    ("sharpening", "OPSD beta 0.1"): replace(METHODS["opsd"], beta=0.1),
    ("temperature", "author_code"): replace(METHODS["vcsd"], **PRESETS["author_code"]),
}


@pytest.mark.parametrize(("experiment", "name"), EXPECTED)
def test_a_variant_changes_what_it_says_and_nothing_else(experiment, name, base, plan):
    (variant,) = [each for each in EXPERIMENTS[experiment].variants if each.name == name]
    found, vcsd = Cell(variant, base, 101, plan).recipe(), Cell(VCSD, base, 101, plan).recipe()
    assert found.method == EXPECTED[experiment, name]
    changed = {key for key in vcsd.trainer if found.trainer[key] != vcsd.trainer[key]}
    assert changed == ({"max_steps"} if experiment == "support" else set())
    assert found.rollout == vcsd.rollout


def test_a_cell_is_named_by_what_its_numbers_depend_on(base, plan, tmp_path):
    key = Cell(VCSD, base, 101, plan).key
    elsewhere = replace(plan, out=tmp_path / "elsewhere", command="another command")
    assert Cell(VCSD, base, 101, elsewhere).key == key
    assert Cell(Variant("forward KL"), base, 101, plan).key == key, "the same run under another name"
    others = [
        Cell(VCSD, base, 102, plan),
        Cell(OPSD, base, 101, plan),
        Cell(replace(VCSD, curve_every=10), base, 101, plan),
        Cell(VCSD, base, 101, replace(plan, num_questions=9)),
        Cell(VCSD, base, 101, replace(plan, num_prompts=17)),
        Cell(VCSD, base, 101, replace(plan, split="dev")),
        Cell(VCSD, base, 101, replace(plan, overrides=("trainer.learning_rate=1e-5",))),
        Cell(BASE, base, 101, plan),
        Cell(Variant("contrast decoding", "decode"), base, 101, plan),
        Cell(replace(OPSD, chosen_on_dev=True), base, 101, plan),
        Cell(Variant("majority of 8", "vote"), base, 101, plan),
        Cell(Variant("majority of 8", "vote"), base, 102, plan),
    ]
    assert len({key, *(other.key for other in others)}) == 1 + len(others)


def test_another_base_is_another_cell(base, plan, tmp_path):
    other = Base(shared_base(str(tmp_path), seed=1))
    assert Cell(VCSD, other, 101, plan).key != Cell(VCSD, base, 101, plan).key
    assert Cell(BASE, other, 101, plan).key != Cell(BASE, base, 101, plan).key


def test_what_draws_nothing_is_one_cell_for_all_seeds(base, plan):
    for variant in (BASE, Variant("contrast decoding", "decode")):
        assert Cell(variant, base, 101, plan).key == Cell(variant, base, 102, plan).key
    measured = Variant("contrast and PMI", "pmi")
    assert Cell(measured, base, 101, plan).key != Cell(measured, base, 102, plan).key


def test_prompts_of_a_quick_command_are_not_those_of_a_whole_one(base, plan, tmp_path):
    few, many = (Cell(VCSD, base, 101, replace(plan, num_prompts=num)) for num in (8, 3072))
    paths = [Path(cell.recipe(tmp_path / "work" / cell.key).data.path) for cell in (few, many)]
    assert paths[0] != paths[1]
    assert paths[0].parent == few.prompts(tmp_path / "work" / few.key)


@pytest.mark.parametrize("text", ["", '{"acc": 5', "[1]", "\x00"])
def test_a_damaged_result_is_named_and_said_to_be_deleted(text, base, plan):
    cell = Cell(BASE, base, 101, plan)
    assert cell.result() is None
    cell.path.parent.mkdir()
    cell.path.write_text(text)
    with pytest.raises(RunError, match=rf"{cell.key}\.json .*Delete the file"):
        cell.result()


@pytest.mark.parametrize(
    ("told", "is_kept"),
    [
        ({"unresolved": 3, "num_questions": 1000}, False),
        ({"unresolved": 2, "num_questions": 1000}, True),
        ({}, True),
        ({"unresolved": 3, "num_questions": 1000, "reader": READER}, True),
    ],
)
def test_a_result_with_answers_that_earlier_rules_could_not_read_is_run_again(told, is_kept, base, plan, monkeypatch):
    cell = Cell(VCSD, base, 101, plan)
    cell.path.parent.mkdir(parents=True)
    cell.path.write_text(json.dumps(told))
    monkeypatch.setitem(cell_module.RUNNERS, "train", lambda cell, work: {"acc": 50.0})
    assert (cell.result() is not None) == is_kept
    experiment = Experiment("one", "", "", (VCSD,), on="ordinary")
    assert Results(plan, {"group": [base]}, [101]).num_missing(experiment) == (not is_kept)
    found = cell.run()
    assert ("acc" in found) != is_kept
    assert found.get("reader") == (told.get("reader") if is_kept else READER)


def test_a_run_finds_nothing_of_one_that_was_killed(base, plan, monkeypatch):
    cell = Cell(BASE, base, 101, plan)
    work = plan.out / "work" / cell.key
    (work / "inspect").mkdir(parents=True)
    (work / "metrics.jsonl").write_text('{"step": 1, "guard": "stop"}\n')
    (work / "inspect" / "batch.json").write_text("{}")
    beside = cell.prompts(work)
    beside.mkdir()
    seen = []

    def runner(cell, folder):
        seen.extend(path.name for path in folder.iterdir() if path.name != ".lock")
        return {"acc": 1.0}

    monkeypatch.setitem(cell_module.RUNNERS, "base", runner)
    assert cell.run()["acc"] == cell.result()["acc"] == 1.0
    assert seen == []
    assert not work.exists()
    assert beside.exists(), "prompts are everybody's"


def test_a_run_that_another_process_is_at_is_left_alone(base, plan, monkeypatch, tmp_path):
    cell = Cell(BASE, base, 101, plan)
    work = plan.out / "work" / cell.key
    monkeypatch.setitem(cell_module.RUNNERS, "base", lambda *given: pytest.fail("run twice"))
    script = tmp_path / "hold.py"
    script.write_text(
        "import sys, time; from pathlib import Path; from vcsd.checkpoint.lock import only_process\n"
        "with only_process(Path(sys.argv[1])): print('held', flush=True); time.sleep(3600)"
    )
    other = start_python(script, work)
    try:
        other.wait_for_output("held")
        (work / "metrics.jsonl").write_text("")
        with pytest.raises(RunError, match="in use by"):
            cell.run()
    finally:
        other.kill()
    assert (work / "metrics.jsonl").exists()


def test_a_quick_plan_wins_over_a_variants_long_training(base, plan):
    quick = replace(plan, overrides=("trainer.max_steps=2",), curve_every=1)
    (_, variant) = EXPERIMENTS["support"].variants
    cell = Cell(variant, base, 101, quick)
    assert (cell.recipe().trainer["max_steps"], cell.curve_every) == (2, 1)
    assert Cell(VCSD, base, 101, quick).curve_every is None
    assert cell.recipe().method == METHODS["no_support"]


def test_seeds_are_spread_over_bases_or_crossed_with_them(base, plan, tmp_path):
    root = str(tmp_path)
    folders = [shared_base(root, "qwen3_5"), base.folder, shared_base(root, seed=1), shared_base(root, seed=2)]
    groups = grouped(folders)
    assert [name.split()[0] for name in groups] == ["Qwen3-VL", "Qwen3.5"]
    names = [each.folder.name for each in groups[next(iter(groups))]]
    spread = Results(plan, groups, [101, 102, 103, 104])
    runs = list(spread.cells_of(VCSD, next(iter(groups))))
    assert runs == [(names[0], 101), (names[1], 102), (names[2], 103), (names[0], 104)]
    crossed = Results(plan, groups, [101, 102], cross=True)
    assert len(crossed.cells_of(VCSD, next(iter(groups)))) == 6
    main, alpha = (len(list(crossed.cells(EXPERIMENTS[name]))) for name in ("main", "alpha"))
    assert main == 3 * 2 * (3 + 1), "three methods, two seeds, bases of both families"
    assert alpha == 8 * 2 * 3, "six strengths and two references on the first group"


def test_a_folder_of_bases_stands_for_all_of_them(tmp_path):
    for seed in (1, 2):
        shared_base(str(tmp_path), seed=seed)
    (group,) = grouped([tmp_path]).values()
    assert [base.folder.name for base in group] == ["qwen3_vl-1", "qwen3_vl-2"]
    with pytest.raises(ConfigError, match="no base model in nothing"):
        grouped([])
    with pytest.raises(ConfigError, match="no base model in nowhere"):
        grouped([Path("nowhere")])


def test_unknown_experiments_and_seeds_are_refused():
    assert len(chosen("all")) == len(EXPERIMENTS) == 13
    with pytest.raises(ConfigError, match="Did you mean 'alpha'"):
        chosen("alhpa")
    for text in ("", "1..x", "5..1", "1,1"):
        with pytest.raises(ConfigError, match="is not a list of distinct seeds"):
            parse_seeds(text)
    for text in ("-1", "-2..3", "4294967296"):
        with pytest.raises(ConfigError, match="is not a seed"):
            parse_seeds(text)
    assert parse_seeds("0..1") == [0, 1]


def test_the_keys_of_committed_results_still_hold():
    """A key of a recipe that is added later, or a number that is read otherwise, must not rename a finished run."""
    recorded = {}
    for path in sorted((Path(__file__).parents[3] / "docs" / "results").glob("**/cells/*.json")):
        identity = json.loads(path.read_bytes()).get("identity", {})
        if "recipe" in identity:
            identity["recipe"]["trainer"]["seed"] = 0
        if part := next((name for name in ("recipe", "method") if name in identity), None):
            recorded[part, json.dumps(identity[part], sort_keys=True)] = identity
    assert len(recorded) == 27
    base = Base(shipped_base("qwen3_vl"))
    for (part, written), identity in recorded.items():
        tree = json.loads(written) if part == "recipe" else {"method": json.loads(written)}
        variant = Variant("as before", identity["kind"], overrides=tuple(flat(tree)))
        sweep = Sweep(recipe_path("world/reproduce"), Path("out"), identity["num_questions"], 3072)
        assert json.dumps(Cell(variant, base, 0, sweep).identity[part], sort_keys=True) == written


def test_every_committed_result_has_the_name_of_what_it_depends_on_and_the_mean_of_its_suites():
    """Pages find results by these names: a file that was copied or renamed would count as another run."""
    for path in sorted((Path(__file__).parents[3] / "docs" / "results").glob("**/cells/*.json")):
        result = json.loads(path.read_bytes())
        if "identity" not in result:
            continue  # of a language study, whose list names its runs
        digest = hashlib.sha256(json.dumps(result["identity"], sort_keys=True).encode()).hexdigest()[:16]
        assert path.stem == result["key"] == digest, path
        if "acc" in result:
            assert result["acc"] == pytest.approx(mean(result["scores"][suite] for suite in SEVEN), abs=1e-3), path


def flat(tree, path=""):
    """The leaves of a recipe as overrides."""
    for key, value in tree.items():
        is_section = isinstance(value, dict) and value
        yield from flat(value, f"{path}{key}.") if is_section else [f"{path}{key}={json.dumps(value)}"]


def test_later_additions_to_variants_name_other_cells_and_leave_the_old_names_alone(base, plan):
    others = [
        Cell(replace(VCSD, has_abilities=True), base, 101, plan),
        Cell(replace(VCSD, prompts="told"), base, 101, plan),
        Cell(replace(BASE, has_abilities=True), base, 101, plan),
    ]
    keys = {Cell(VCSD, base, 101, plan).key, Cell(BASE, base, 101, plan).key, *(other.key for other in others)}
    assert len(keys) == 5
    shipped = Base(shipped_base("qwen3_vl"))
    kept = Path(__file__).parents[3] / "docs" / "results"
    whole = Sweep(recipe_path("world/reproduce"), kept, 512, 3072)
    assert Cell(VCSD, shipped, 101, whole).path.is_file(), "a committed result keeps its name"
    assert Cell(BASE, shipped, 101, whole).path.is_file()


def test_a_base_answers_at_the_length_it_was_taught(base, plan, tmp_path):
    assert Cell(BASE, base, 101, plan).greedy.max_new_tokens == 40
    folder = make_base(tmp_path / "reasons")
    (folder / "card.json").write_text(json.dumps({"world": {"reason_share": 1.0, "blur": 32, "canonical_share": 0.9}}))
    other = Cell(replace(VCSD, prompts="usual"), Base(folder), 101, plan)
    assert other.greedy.max_new_tokens == 96
    assert (other.prompt_world.canonical_share, other.prompt_world.blur) == (0.9, 1), "asked about sharp pictures"
    assert Cell(VCSD, Base(folder), 101, plan).prompt_world == PARAMETERS
