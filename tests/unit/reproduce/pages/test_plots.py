"""The plots of experiments, drawn from made-up results."""

import sys

import pytest
from PIL import Image

from tiny_bases import make_base
from vcsd.config.shipped import recipe_path
from vcsd.errors import install_command
from vcsd.reproduce.base_folders import grouped
from vcsd.reproduce.cell import Sweep, as_lines
from vcsd.reproduce.exam import SEVEN
from vcsd.reproduce.experiments import BASE, EXPERIMENTS, OPSD
from vcsd.reproduce.pages import plots
from vcsd.reproduce.results import Results


@pytest.fixture
def results(tmp_path):
    make_base(tmp_path / "bases" / "one"), make_base(tmp_path / "bases" / "two", seed=1)
    plan = Sweep(recipe_path("world/reproduce"), tmp_path, num_questions=8, num_prompts=16)
    return Results(plan, grouped([tmp_path / "bases"]), [101, 102])


def write(results, variant, acc):
    """A result for every run of a variant; the second base is ten points better."""
    for place, cell in enumerate(results.cells_of(variant, results.smallest).values()):
        here = acc + 10 * place
        points = [{"step": step, "acc": here + step, "scores": dict.fromkeys(SEVEN, here)} for step in (1, 2)]
        others = dict.fromkeys(("rank_correlation", "same_sign", "same_choice", "mean_gap"), 0.5)
        found = {
            **{"acc": here, "scores": dict.fromkeys(SEVEN, here), "curve": points},
            "series": {"language_drift": [0.1, None, 0.3]},
            "pmi": {name: {"correlation": 0.5, **others} for name in plots.CONTROLS},
        }
        cell.path.parent.mkdir(exist_ok=True)
        cell.path.write_text(as_lines(found))


@pytest.mark.parametrize("name", [name for name, each in EXPERIMENTS.items() if each.on in ("smallest", "ordinary")])
def test_every_experiment_has_a_picture(results, tmp_path, name):
    experiment = EXPERIMENTS[name]
    assert plots.plot(experiment, results, tmp_path / "none.png") is None, "nothing has been run"
    for place, variant in enumerate((BASE, OPSD, *experiment.variants)):
        write(results, variant, 40.0 + place)
    path = plots.plot(experiment, results, tmp_path / f"{name}.png")
    with Image.open(path) as image:
        assert min(image.size) > 300
        assert len(image.convert("RGB").getcolors(2**24)) > 3, "not blank"


def intervals(axis):
    """The mean and the half width of every interval that is drawn."""
    bars = [container for container in axis.containers if type(container).__name__ == "ErrorbarContainer"]
    ends = [bar.lines[2][0].get_segments()[0][:, 1] for bar in bars]
    return [((low + high) / 2, (high - low) / 2) for low, high in ends]


def test_alpha_has_means_with_intervals_and_a_line_for_each_base(results):
    experiment = EXPERIMENTS["alpha"]
    for place, variant in enumerate(experiment.variants):
        write(results, variant, 40.0 + place)
    (axis,) = plots._alpha(experiment, results).axes
    (line,) = [line for line in axis.lines if line.get_label() == "VCSD"]
    assert list(line.get_xdata()) == [0, 0.5, 1, 1.25, 1.5, 2]
    assert list(line.get_ydata()) == [45, 46, 47, 48, 49, 50], "the mean of two bases, ten points apart"
    assert [mean for mean, _ in intervals(axis)] == pytest.approx([45, 46, 47, 48, 49, 50])
    assert intervals(axis)[0][1] == pytest.approx(12.7062 * 5), "Student's t with one degree of freedom"
    assert "axis starts at" in axis.get_ylabel()


def test_variants_without_an_order_have_intervals_and_no_line_between_them(results):
    experiment = EXPERIMENTS["control"]
    for place, variant in enumerate((BASE, OPSD, *experiment.variants)):
        write(results, variant, 40.0 + place)
    (axis,) = plots._dots(experiment, results).axes
    assert [mean for mean, _ in intervals(axis)] == pytest.approx([45, 46, 47, 48, 49, 50])
    joined = [line for line in axis.lines if len(set(line.get_xdata())) > 1]
    assert joined == []


def test_a_curve_begins_at_the_base_and_has_a_band(results):
    experiment = EXPERIMENTS["support"]
    write(results, BASE, 30.0)
    for variant in experiment.variants:
        write(results, variant, 40.0)
    (axis,) = plots._curves(experiment, results).axes
    means = [line for line in axis.lines if not line.get_label().startswith("_")]
    assert [line.get_label() for line in means] == ["beta 0.1", "beta 0"]
    assert list(means[0].get_ydata()) == [35, 46, 47]
    assert [list(line.get_ydata()) for line in axis.lines[:2]] == [[30, 41, 42], [40, 51, 52]], "a line a run"
    assert len(axis.collections) == 2, "a band each"


def test_without_matplotlib_there_is_no_plot_and_a_word(results, tmp_path, monkeypatch, caplog):
    write(results, BASE, 40.0)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)  # so that importing it fails
    assert plots.plot(EXPERIMENTS["main"], results, tmp_path / "x.png") is None
    assert install_command("eval") in caplog.text
