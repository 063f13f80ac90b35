"""`vcsd world`: make a base model, look at the world."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - Typer reads the annotation when it runs
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

app = typer.Typer(help="The offline world: make a base model, look at the pictures.", no_args_is_help=True)


@app.command()
def pretrain(
    out: Annotated[Path, typer.Option(help="The folder of the base; an unfinished one is gone on with.")],
    family: Annotated[str, typer.Option(help="qwen3_vl or qwen3_5.")] = "qwen3_vl",
    size: Annotated[str, typer.Option(help="small, as shipped, or medium.")] = "small",
    seed: Annotated[int, typer.Option(help="Of weights and data.")] = 1,
    device: Annotated[str | None, typer.Option(help="cuda or cpu; by default a GPU if there is one.")] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="A change to the world's parameters, such as black_share=0.")
    ] = None,
) -> None:
    """Pre-train a tiny base model that sees and trusts its prior. Started again, it goes on from its checkpoint.

    Example: `vcsd world pretrain --family qwen3_vl --size small --seed 1 --out bases/mine`
    """
    from vcsd.world.parameters import PARAMETERS
    from vcsd.world.plan import Plan, command_line
    from vcsd.world.pretrain import pretrain as make
    from vcsd.world.pretrain import refuse_unfit

    plan = Plan(cast("Any", family), size, seed, PARAMETERS.changed(change or ()))
    refuse_unfit(plan, out)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        task = progress.add_task("pre-training", total=None)

        def tell(done: int, total: int, line: str) -> None:
            if ":" in line:
                progress.console.print(line, highlight=False, markup=False)
            else:
                progress.update(task, completed=done, total=total, description=line)

        make(plan, out, device=device, tell=tell, command=command_line("vcsd world pretrain", plan, change or ()))
    Console().print(f"The base is in {out}; {out / 'README.md'} says what it can do.", highlight=False, soft_wrap=True)


@app.command()
def measure(
    folder: Annotated[Path, typer.Argument(help="The folder of a base.")],
    num: Annotated[int, typer.Option(help="Questions of each suite.")] = 512,
    split: Annotated[str, typer.Option(help="dev, for choosing parameters, or test.")] = "test",
) -> None:
    """Measure a base: sight, the seven suites greedily and by contrast decoding, hints. Its card gets the numbers.

    Example: `vcsd world measure bases/mine`
    """
    from vcsd.world.card import record, refuse_half_card
    from vcsd.world.given import refuse_none
    from vcsd.world.measure import measure_folder

    refuse_none("--num", num)
    refuse_half_card(folder)
    found = measure_folder(folder, num=num, split=split)
    record(folder, found)
    console = Console()
    for name in ("greedy", "contrast"):
        scores = "  ".join(f"{suite} {score:.1f}" for suite, score in found[name].items())
        console.print(f"{name:9} {scores}", highlight=False, soft_wrap=True)
    console.print(f"sight {found['sight']}  hint {found['hint']}", highlight=False, soft_wrap=True)


@app.command()
def sheet(
    out: Annotated[Path, typer.Option(help="Where to write the picture.")],
    columns: Annotated[int, typer.Option(help="Pictures in a row, one row a suite.")] = 6,
) -> None:
    """Draw a contact sheet: a few pictures of each suite.

    Example: `vcsd world sheet --out docs/world.png`
    """
    from vcsd.world.given import refuse_no_folder, refuse_none
    from vcsd.world.sheet import draw_sheet, refuse_no_picture

    refuse_none("--columns", columns)
    refuse_no_picture(out)
    refuse_no_folder(out.parent)
    out.parent.mkdir(parents=True, exist_ok=True)
    draw_sheet(columns).save(out)
    Console().print(f"The sheet is in {out}.", highlight=False, soft_wrap=True)
