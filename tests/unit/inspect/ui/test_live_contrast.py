"""What the page of `vcsd ui` shows, without Gradio: the numbers of core for any alpha and beta, and no new forward."""

import re
from dataclasses import replace
from html import unescape

import pytest
from PIL import Image

from vcsd.cli import ui_command
from vcsd.core import plausible_support, shape_target
from vcsd.errors import ConfigError, install_command
from vcsd.inspect import open_model, token_contrast
from vcsd.inspect.opened import world_question
from vcsd.inspect.ui import live_contrast, ui_app
from vcsd.inspect.ui.live_contrast import ask, live_html
from vcsd.inspect.ui.ui_app import Desk
from vcsd.method import METHODS


@pytest.fixture(scope="module")
def world():
    return open_model("world")


@pytest.fixture(scope="module")
def live(world):
    return ask(world, *world_question())


@pytest.fixture
def no_forward(world, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a new forward")

    monkeypatch.setattr(world.model, "forward", refuse)


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.1), (0.0, 0.0), (2.5, 0.4)])
def test_other_values_give_what_the_contrast_command_shows(world, live, alpha, beta):
    method = replace(METHODS["vcsd"], alpha=alpha, beta=beta)
    fresh = token_contrast(world, *world_question(), method=method)
    shaped = live.shaped(alpha=alpha, beta=beta)
    assert shaped.response == fresh.response
    for own, other in zip(shaped.tokens, fresh.tokens, strict=True):
        assert own.support_size == other.support_size
        assert own.kl_target_original == pytest.approx(other.kl_target_original, abs=1e-5)
        assert own.candidates[0].token_id == other.candidates[0].token_id
        assert own.realised.contrast == pytest.approx(other.realised.contrast, abs=1e-5)


@pytest.mark.usefixtures("no_forward")
def test_a_slider_shapes_the_stored_log_probabilities_as_core_does(live):
    log_p = live.log_p_original, live.log_p_control
    log_q = shape_target(*log_p, alpha=2.0, beta=0.3, end_token_ids=sorted(live.end_token_ids))
    for place, token in enumerate(live.shaped(alpha=2.0, beta=0.3).tokens):
        assert token.support_size == int(plausible_support(log_p[0], 0.3)[place].sum())
        for one in token.candidates:
            expected = log_q[place, one.token_id].item()
            assert (one.log_q is None) == (expected == float("-inf"))
            assert one.log_q is None or one.log_q == pytest.approx(expected, abs=1e-4)


@pytest.mark.usefixtures("no_forward")
def test_the_target_leaves_the_prior_as_alpha_grows(live):
    desk = Desk(None)
    pages = [unescape(desk.reshape(live, alpha, 0.1)) for alpha in (0.0, 1.0)]
    changed = [len(re.findall(r" \*<", page)) for page in pages]
    assert changed[0] == 0
    assert changed[1] > 0


def test_the_page_answers_at_once_and_says_what_is_missing(world, live):
    desk = Desk(world)
    stored, said, page = desk.answer(*desk.first(), 1.0, 0.1)
    assert "triangle" in said
    assert stored.seen.response == live.seen.response
    assert page == live_html(live, alpha=1.0, beta=0.1)
    nothing, said, page = desk.answer(None, "What?", 1.0, 0.1)
    assert (nothing, said) == (None, "")
    assert "Drop an image" in page
    assert desk.reshape(None, 1.0, 0.1) == ""


def test_an_answer_that_needs_too_much_memory_is_refused_with_a_sentence(world, monkeypatch):
    monkeypatch.setattr(live_contrast, "MOST_BYTES", 1000)
    _, _, page = Desk(world).answer(*world_question(), 1.0, 0.1)
    assert "Ask for a shorter one." in page


def test_a_question_stays_text_inside_the_frame(world):
    evil = "</iframe><script>window.ran = 1</script>\" onload='window.ran = 2'"
    _, _, page = Desk(world).answer(Image.new("RGB", (64, 64), "red"), evil, 1.0, 0.1)
    (frame,) = re.findall(r'^<iframe title="token contrast" sandbox srcdoc="([^"]*)" style="[^"]*"></iframe>$', page)
    inner = unescape(frame)
    assert "<script" not in inner
    assert evil in unescape(inner)
    assert "default-src &#x27;none&#x27;" in inner or "default-src 'none'" in inner


def test_the_command_prints_the_address_that_it_serves(monkeypatch, capsys):
    pytest.importorskip("gradio", reason="gradio is not installed (the extra ui has it)")

    class Served:
        def block_thread(self):
            assert "vcsd ui listens on http://127.0.0.1:7861/." in capsys.readouterr().out  # before it waits

    monkeypatch.setattr(ui_app, "build", lambda desk: Served())
    monkeypatch.setattr(ui_app, "serve", lambda blocks, port: "http://127.0.0.1:7861/")
    ui_command.ui()


def test_without_the_extra_the_command_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "gradio", None)
    with pytest.raises(ConfigError, match=re.escape(install_command("ui"))):
        ui_app.gradio()
