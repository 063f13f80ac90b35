"""Draw the pictures of the gallery and of the README from the shipped base: `python examples/gallery.py`.

docs/method.png        the method in one picture
docs/gallery.md        a page with the answers below
docs/gallery/*.png     answers of the base, coloured by what the image changes

Each suite shows its first question where the target prefers another token than the model's.
"""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle
from PIL import Image

from vcsd.inspect import open_model, token_contrast, write_contrast
from vcsd.inspect.opened import world_question
from vcsd.report.tokens import full_colour
from vcsd.types import message_texts
from vcsd.world.questions.suites import build_suite

if TYPE_CHECKING:
    from vcsd.inspect import OpenedModel, ResponseContrast, TokenScore

SUITES = ("attributes", "correspondence", "hallucination", "smaller")
MOST_TRIED = 40

INK, SOFT, WARM, COOL, GREEN = "#1c2024", "#62686f", (0.933, 0.478, 0.102), (0.235, 0.545, 0.878), "#1f7a6d"


def changed_token(seen: ResponseContrast) -> TokenScore | None:
    """Return the token where the image argues most clearly for another one; None if there is none."""
    changed = [token for token in seen.tokens if token.candidates[0].token_id != token.realised.token_id]
    return max(changed, key=lambda token: token.kl_target_original, default=None)


def first_changed(world: OpenedModel, suite: str) -> ResponseContrast:
    """Return the first answer of a suite that the contrast would change."""
    for question in build_suite(suite, num=MOST_TRIED):
        (image,) = question.example.images
        if isinstance(image, Image.Image):
            seen = token_contrast(world, image, "\n".join(message_texts(question.example.prompt[-1])))
            if changed_token(seen) is not None:
                return seen
    raise SystemExit(
        f"none of the first {MOST_TRIED} questions of {suite} has an answer that the contrast would change"
    )


def draw_method(seen: ResponseContrast, path: Path) -> None:
    """Draw the method: two views of one answer, the contrast of its tokens, and the target at one of them."""
    figure = Figure(figsize=(11, 3.7))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 11), ylim=(0, 3.7))
    axes.axis("off")
    for title, x in (("1  Look twice", 0.25), ("2  What did the image change?", 3.35), ("3  Learn that", 7.75)):
        axes.text(x, 3.45, title, fontsize=13, weight="bold", va="center", color=INK)
    for name, image, y in (("with the image", seen.images[0], 1.85), ("with it erased", seen.control_images[0], 0.3)):
        picture = figure.add_axes((0.25 / 11, y / 3.7, 1.3 / 11, 1.3 / 3.7))
        picture.imshow(image.convert("RGB"))
        picture.axis("off")
        axes.text(
            1.65, y + 0.65, f"{name},\nhow likely is\neach word of\nthe answer?", fontsize=9, va="center", color=SOFT
        )
    for start, end in (((2.85, 2.4), (3.3, 1.95)), ((2.85, 1.05), (3.3, 1.5)), ((7.25, 1.72), (7.7, 1.72))):
        axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=14, color=SOFT, linewidth=1.4))
    draw_tokens(axes, seen)
    draw_target(axes, changed_token(seen) or seen.tokens[0])
    figure.savefig(path, dpi=130)
    shrink(path)


def draw_tokens(axes, seen: ResponseContrast) -> None:
    """Draw the answer in lines, each token on the colour of its contrast."""
    question = seen.question.partition("\n")[0]
    axes.text(3.4, 2.85, question, fontsize=9.5, style="italic", va="center", color=SOFT)
    scale = full_colour(token.realised.contrast for token in seen.tokens)
    x, y, size = 3.4, 2.3, 0.118
    for token in seen.tokens:
        text = token.realised.text if not token.is_end else ""
        if x + len(text) * size > 7.2 and x > 3.4:
            x, y, text = 3.4, y - 0.42, text.lstrip()
        level = max(-1.0, min(1.0, token.realised.contrast / scale))
        end = WARM if level > 0 else COOL
        colour = tuple(1 - (1 - part) * abs(level) * 0.85 for part in end)
        axes.add_patch(Rectangle((x, y - 0.16), len(text) * size, 0.32, facecolor=colour, edgecolor="none"))
        axes.text(x, y, text, fontsize=14, family="monospace", va="center_baseline", color=INK)
        x += len(text) * size
    axes.add_patch(Rectangle((3.4, 0.86), 0.3, 0.2, facecolor=WARM, edgecolor="none"))
    axes.text(3.8, 0.96, "the image makes it more likely", fontsize=9, va="center", color=SOFT)
    axes.add_patch(Rectangle((3.4, 0.5), 0.3, 0.2, facecolor=COOL, edgecolor="none"))
    axes.text(3.8, 0.6, "less likely: the model guessed from habit", fontsize=9, va="center", color=SOFT)


def draw_target(axes, token: TokenScore) -> None:
    """Draw the leading candidates at one token: probability given the image, given black, and in the target."""
    axes.text(
        7.8, 2.95, f"the target at \u201c{token.realised.text.strip()}\u201d", fontsize=10, va="center", color=SOFT
    )
    leading = sorted(token.candidates, key=lambda one: -one.log_p_original)[:4]
    shown = leading if token.candidates[0] in leading else [*leading[:3], token.candidates[0]]
    values = [(one, p(one.log_p_original), p(one.log_p_control), p(one.log_q)) for one in shown]
    largest = max(max(row[1:]) for row in values)
    for place, (one, *shares) in enumerate(values):
        y = 2.6 - 0.52 * place
        axes.text(8.5, y - 0.14, one.text.strip(), fontsize=11, ha="right", va="center", color=INK)
        for bar, (share, colour) in enumerate(zip(shares, ("#8a8f98", "#d0d3d8", GREEN), strict=True)):
            width = 1.75 * share / largest
            axes.add_patch(Rectangle((8.6, y - 0.13 * bar - 0.06), width, 0.115, facecolor=colour, edgecolor="none"))
        axes.text(8.66 + 1.75 * shares[2] / largest, y - 0.26, f"{shares[2]:.0%}", fontsize=8, va="center", color=GREEN)
    for place, (name, colour) in enumerate((("image", "#8a8f98"), ("erased", "#d0d3d8"), ("target", GREEN))):
        x = 8.0 + 0.95 * place
        axes.add_patch(Rectangle((x, 0.36), 0.16, 0.16, facecolor=colour, edgecolor="none"))
        axes.text(x + 0.22, 0.44, name, fontsize=9, va="center", color=SOFT)


def p(log_p: float | None) -> float:
    """Return a probability, given its logarithm; None means outside the support."""
    return 0.0 if log_p is None else 2.718281828459045**log_p


def shrink(path: Path) -> None:
    """Store a picture with few colours, which halves its size."""
    with Image.open(path) as image:
        image.convert("RGB").quantize(256).save(path, optimize=True)


def page(shown: dict[str, ResponseContrast]) -> str:
    """Return the page of the gallery."""
    lines = [
        "# Gallery",
        "",
        "Answers of the shipped base, which can see but trusts its prior, coloured by contrast: warm tokens are more",
        "likely with the image, cool ones less. Each suite shows its first question where the target prefers another",
        "token than the model's; nothing else was selected. `python examples/gallery.py` draws everything.",
    ]
    for suite, seen in shown.items():
        token = changed_token(seen)
        assert token is not None
        best, said = token.candidates[0], token.realised
        before, after = (f"{p(log_p):.0%}" for log_p in (best.log_p_original, best.log_q))
        lines += ["", f"## {suite.capitalize()}", "", f"> {'; '.join(seen.question.splitlines())}", ""]
        lines += [f"The base says \u201c{said.text.strip()}\u201d. The target prefers \u201c{best.text.strip()}\u201d:"]
        lines += [f"{before} given the image, {after} in the target.", ""]
        lines += [f"![The answer to a question of the suite {suite}, coloured by contrast](gallery/{suite}.png)"]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Draw everything into a folder."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "docs")
    out: Path = parser.parse_args().out
    (out / "gallery").mkdir(parents=True, exist_ok=True)
    world = open_model("world")
    draw_method(token_contrast(world, *world_question()), out / "method.png")
    shown = {suite: first_changed(world, suite) for suite in SUITES}
    for suite, seen in shown.items():
        write_contrast([seen], out / "gallery" / f"{suite}.png")
    (out / "gallery.md").write_text(page(shown), encoding="utf-8")


if __name__ == "__main__":
    main()
