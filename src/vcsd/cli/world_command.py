"""`vcsd world`: pre-train and measure base models, and draw a contact sheet of the world."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - Typer reads the annotation when it runs
from typing import Annotated

import typer

from vcsd.terminal import say, show_log

app = typer.Typer(help="The offline world: pre-train and measure base models, draw its pictures.", no_args_is_help=True)


@app.command()
def pretrain(
    out: Annotated[Path, typer.Option(help="Folder for the base. Resumes an unfinished base.")],
    family: Annotated[str, typer.Option(help="Model family: qwen3_vl or qwen3_5.")] = "qwen3_vl",
    size: Annotated[str, typer.Option(help="Model size: tiny (for tests), small (as shipped) or medium.")] = "small",
    seed: Annotated[int, typer.Option(help="Seed for weights and data.")] = 1,
    device: Annotated[str | None, typer.Option(help="Device: cuda or cpu. Default: a GPU if there is one.")] = None,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a parameter of the world, such as black_share=0; repeatable."),
    ] = None,
) -> None:
    """Pre-train a tiny base model that sees but trusts its prior. Resumes from its checkpoint if interrupted.

    Example: `vcsd world pretrain --family qwen3_vl --size small --seed 1 --out bases/mine`
    """
    from vcsd.bases.curriculum import Curriculum, command_line
    from vcsd.bases.pretrain import pretrain as make
    from vcsd.bases.pretrain import refuse_unfit
    from vcsd.bases.tiny_models import checked_family
    from vcsd.monitor.work_bar import WorkBar
    from vcsd.world.parameters import PARAMETERS

    plan = Curriculum(checked_family(family), size, seed, PARAMETERS.changed(change or ()))
    refuse_unfit(plan, out)
    show_log()
    with WorkBar("pre-training") as bar:

        def tell(done: int, total: int, line: str) -> None:
            if ":" in line or not total:
                say(line)
            else:
                bar.advance(done, total, line)

        make(plan, out, device=device, tell=tell, command=command_line("vcsd world pretrain", plan, change or ()))
    say(f"The base is in {out}; see {out / 'README.md'} for its scores.")


@app.command()
def measure(
    folder: Annotated[Path, typer.Argument(help="Folder of a base.")],
    num: Annotated[int, typer.Option(help="Questions per suite.")] = 512,
    split: Annotated[str, typer.Option(help="Questions to ask: test, or dev for choosing parameters.")] = "test",
) -> None:
    """Measure a base and add the scores to its card: sight, hints, and the suites with greedy and contrast decoding.

    Example: `vcsd world measure bases/mine`
    """
    from vcsd.bases.card import record, refuse_incomplete_card
    from vcsd.bases.measure import measure_folder
    from vcsd.world.checks import refuse_none

    show_log()
    refuse_none("--num", num)
    refuse_incomplete_card(folder)
    measured = measure_folder(folder, num=num, split=split)
    record(folder, measured)
    for name, scores in (("greedy", measured["greedy"]), ("contrast", measured["contrast"])):
        line = "  ".join(f"{suite} {score:.1f}" for suite, score in scores.items())
        say(f"{name:9} {line}")
    say(f"sight {measured['sight']}  hint {measured['hint']}")


@app.command()
def sheet(
    out: Annotated[Path, typer.Option(help="Image file to write.")],
    columns: Annotated[int, typer.Option(help="Pictures per suite. Each suite is one row.")] = 6,
) -> None:
    """Draw a contact sheet with a few pictures of each suite.

    Example: `vcsd world sheet --out docs/world.png`
    """
    from vcsd.world.checks import refuse_no_folder, refuse_none
    from vcsd.world.questions.sheet import draw_sheet, refuse_no_picture

    refuse_none("--columns", columns)
    refuse_no_picture(out)
    refuse_no_folder(out.parent)
    out.parent.mkdir(parents=True, exist_ok=True)
    draw_sheet(columns).save(out)
    say(f"Wrote {out}.")
