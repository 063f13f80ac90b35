from dataclasses import fields, replace

import pytest

from vcsd import METHODS, Method
from vcsd.errors import ConfigError, DataError
from vcsd.method import PRESETS
from vcsd.types import Example


def example(**changes):
    prompt = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "How many?"}]}]
    return Example(**{"id": "virl-00042", "images": ["a.png"], "prompt": prompt, **changes})


def test_the_default_method_is_the_papers():
    method = METHODS["vcsd"]
    assert method == Method()
    assert (method.target_view, method.contrast_view) == ("original", "black")
    assert (method.alpha, method.beta, method.anchor, method.temperature) == (1.0, 0.1, 1.0, 2.0)
    assert (method.divergence, method.reduction, method.teacher, method.ema_rate) == (
        "forward_kl",
        "response_mean",
        "ema",
        0.05,
    )


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("no_contrast", {"alpha": 0.0}),
        ("no_support", {"beta": 0.0}),
        ("no_anchor", {"anchor": 0.0}),
        ("opsd", {"target_view": "hint", "contrast_view": None, "alpha": 0.0, "beta": 0.0}),
        (
            "opsd_published",
            {
                **{"target_view": "hint", "contrast_view": None, "alpha": 0.0, "beta": 0.0, "temperature": 1.0},
                **{"divergence": "jensen_shannon", "js_weight": 0.5, "student_top_k": 100, "importance_clip": 2.0},
                **{"reduction": "token_mean"},
            },
        ),
    ],
)
def test_a_row_differs_from_vcsd_only_where_it_says(name, changed):
    assert METHODS[name] == replace(METHODS["vcsd"], name=name, **changed)


def test_the_loss_factor_is_the_squared_temperature_unless_given():
    assert Method(temperature=3.0).loss_factor == 9.0
    assert Method(temperature=3.0, loss_scale=0.5).loss_factor == 0.5


def test_the_presets_are_the_papers_and_the_authors_codes():
    paper, code = METHODS["vcsd"].preset("paper"), METHODS["vcsd"].preset("author_code")
    assert paper == METHODS["vcsd"]
    facts = [(m.temperature, m.loss_factor, m.reduction, m.end_tokens_keep_anchor) for m in (paper, code)]
    assert facts == [(2.0, 4.0, "response_mean", False), (1.0, 4.0, "token_mean", True)]


def test_a_preset_changes_conventions_and_nothing_else():
    changed = METHODS["no_anchor"].preset("author_code")
    for field in fields(Method):
        if field.name not in PRESETS["author_code"]:
            assert getattr(changed, field.name) == getattr(METHODS["no_anchor"], field.name)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_published_opsd_has_its_own_conventions_and_no_preset(preset):
    assert METHODS["opsd_published"].loss_factor == 1.0
    with pytest.raises(ConfigError, match=r"sets conventions of VCSD; opsd_published has its own. Remove it"):
        METHODS["opsd_published"].preset(preset)


def test_an_unknown_preset_is_named_with_the_nearest():
    with pytest.raises(ConfigError, match=r"method.preset = 'papr' is not a preset. Did you mean 'paper'\?"):
        METHODS["vcsd"].preset("papr")


NONSENSE = [
    ({"alpha": -0.1}, "method.alpha = -0.1 is outside [0, 100]. 1 is the paper's value; 0 switches the contrast off."),
    ({"beta": 1.7}, "method.beta = 1.7 is outside [0, 1]. 0.1 is the paper's value; 0 shapes the full vocabulary."),
    ({"beta": float("nan")}, "method.beta = nan is outside [0, 1]."),
    ({"anchor": -1}, "method.anchor = -1 is outside [0, 100]."),
    ({"temperature": 0}, "method.temperature = 0 is outside [0.01, 100]. 2 is the paper's value."),
    ({"temperature": float("inf")}, "method.temperature = inf is outside [0.01, 100]."),
    ({"loss_scale": 0.0}, "method.loss_scale = 0.0 is outside (0, 1e6]. Leave it out for the squared temperature."),
    ({"js_weight": 1.0}, "method.js_weight = 1.0 is outside (0, 1)."),
    ({"log_floor": 1.0}, "method.log_floor = 1.0 is outside [-1e6, 0). -10000 is the authors' value."),
    ({"ema_rate": 0.0}, "method.ema_rate = 0.0 is outside (0, 1]. It is the weight of the student;"),
    ({"alpha": "1"}, "method.alpha = '1' is not a number."),
    ({"alpha": True}, "method.alpha = True is not a number."),
    ({"name": 3}, "method.name = 3 is not a name."),
    ({"name": ""}, "method.name = '' is not a name."),
    ({"alpha": 10**400}, "is outside [0, 100]."),
    ({"alpha": 0, "contrast_view": "noise"}, "method.contrast_view = 'noise' has no effect with alpha: 0."),
    ({"end_tokens_keep_anchor": 1}, "method.end_tokens_keep_anchor = 1 is not true or false."),
    ({"target_view": "hints"}, "method.target_view = 'hints' is not a choice. Did you mean 'hint'?"),
    ({"contrast_view": "blck"}, "method.contrast_view = 'blck' is not a choice. Did you mean 'black'?"),
    ({"contrast_view": "none"}, "Write no_image for a control without the image, or null for no contrast at all."),
    (
        {"divergence": "jsd"},
        "method.divergence = 'jsd' is not a choice. Allowed: forward_kl, reverse_kl, jensen_shannon",
    ),
    ({"reduction": "mean"}, "method.reduction = 'mean' is not a choice."),
    ({"teacher": "moving"}, "method.teacher = 'moving' is not a choice. Allowed: ema, fixed, current, periodic."),
    ({"contrast_view": None}, "method.alpha = 1.0 needs a contrast view, but method.contrast_view is null."),
    ({"alpha": 0, "anchor": 0}, "both 0: the target would be uniform. Set one of them to 1."),
    ({"js_weight": 0.3}, "method.js_weight = 0.3 has no effect with divergence: forward_kl."),
    ({"log_floor": -5.0}, "method.log_floor = -5.0 has no effect with divergence: forward_kl."),
    ({"teacher": "fixed", "ema_rate": 0.1}, "method.ema_rate = 0.1 has no effect with teacher: fixed."),
    ({"teacher_every": 0}, "method.teacher_every = 0 is outside [1, inf). It counts optimizer steps."),
    ({"teacher": "periodic", "teacher_every": 2.5}, "method.teacher_every = 2.5 is not a whole number."),
    ({"student_top_k": 100}, "on tokens that the student chooses, but a shaped target lies on tokens that the teacher"),
    ({"student_top_k": 0}, "method.student_top_k = 0 is outside [1, 1e6]. 100 is the published OPSD's value;"),
    ({"student_top_k": 2.5}, "method.student_top_k = 2.5 is not a whole number."),
    ({"importance_clip": 0.5}, "method.importance_clip = 0.5 is outside [1, 1e6]. 2 is the published OPSD's value;"),
    ({"teacher_every": 3}, "method.teacher_every = 3 has no effect with teacher: ema."),
]


@pytest.mark.parametrize(("changes", "message"), NONSENSE, ids=[str(changes) for changes, _ in NONSENSE])
def test_a_method_that_makes_no_sense_cannot_be_built(changes, message):
    with pytest.raises(ConfigError) as error:
        Method(**changes)
    assert message in str(error.value)


WHOLE = {
    **dict.fromkeys(("anchor", "temperature", "loss_scale", "student_top_k", "importance_clip", "teacher_every"), 3),
    **{"alpha": 0, "beta": 0, "log_floor": -5, "teacher": "periodic", "divergence": "reverse_kl"},
}


def test_a_number_is_the_same_setting_with_and_without_a_point():
    pointed = {name: float(value) if isinstance(value, int) else value for name, value in WHOLE.items()}
    assert repr(Method(**WHOLE)) == repr(Method(**pointed))
    assert repr(Method(ema_rate=1)) == repr(Method(ema_rate=1.0))
    assert (Method(**WHOLE).anchor, Method(**pointed).student_top_k) == (3.0, 3)


def test_all_that_is_wrong_is_said_at_once():
    with pytest.raises(ConfigError) as error:
        Method(alpha=-1, beta=2, temperature=0, divergence="kl")
    assert len(error.value.problems) == 4


def test_every_field_with_a_value_that_no_field_takes_is_refused_by_name():
    for field in fields(Method):
        with pytest.raises(ConfigError, match=f"method.{field.name} = "):
            Method(**{field.name: ["nonsense"]})


def test_fields_that_need_another_field_work_with_it():
    assert Method(divergence="jensen_shannon", js_weight=0.3).js_weight == 0.3
    assert Method(divergence="reverse_kl", log_floor=-50).log_floor == -50
    assert Method(teacher="periodic", teacher_every=3).teacher_every == 3


def test_a_hint_needs_an_answer():
    with pytest.raises(DataError) as error:
        METHODS["opsd"].check(example())
    assert "example 'virl-00042': view 'hint' needs an answer, but there is none." in str(error.value)
    assert "Fill the column 'answer', or choose target_view: original." in str(error.value)
    METHODS["opsd"].check(example(answer="7"))


@pytest.mark.parametrize(
    ("view", "column", "value", "words"),
    [
        ("crop", "boxes", ((1, 2, 3, 4),), "an evidence box"),
        ("crop_added", "boxes", ((1, 2, 3, 4),), "an evidence box"),
        ("demonstration", "demonstration", "It is 7.", "a demonstration"),
        ("feedback", "feedback", "Count again.", "feedback"),
    ],
)
def test_a_view_needs_the_column_that_it_shows(view, column, value, words):
    method = Method(target_view=view)
    with pytest.raises(DataError, match=f"view '{view}' needs {words}, but there is none. Fill the column '{column}'"):
        method.check(example())
    method.check(example(**{column: value}))


def test_a_given_control_needs_its_column():
    method = Method(contrast_view="given")
    with pytest.raises(DataError, match=r"needs a control image, .*'control_images', or choose contrast_view: black"):
        method.check(example())
    method.check(example(control_images=("other.png",)))


def test_an_empty_answer_is_none():
    with pytest.raises(DataError, match="needs an answer"):
        METHODS["opsd"].check(example(answer=""))


def test_a_contrast_needs_an_image_to_erase():
    blind = example(images=[], prompt=[{"role": "user", "content": "How many?"}], answer="7")
    with pytest.raises(DataError, match=r"erases images, but there is none: .*\(data.text_only=drop\)"):
        METHODS["vcsd"].check(blind)
    METHODS["opsd"].check(blind)
    METHODS["no_contrast"].check(blind)


def test_the_views_of_the_papers_control_ablation_can_be_chosen():
    for view in ("black", "noise", "blur", "no_image"):
        assert Method(contrast_view=view).contrast_view == view


def test_vcsd_needs_no_answer():
    METHODS["vcsd"].check(example())
    assert example().answer is None
