"""Check whether this machine can run vcsd, and what a run would use: versions, device, implementations, extras.

The checks run real code: they import packages, compute the loss, and build a model without weights.
"""

from __future__ import annotations

import importlib.util
import platform
import sys
from dataclasses import dataclass
from importlib import metadata
from math import isclose, log
from typing import TYPE_CHECKING, Literal

from packaging.requirements import Requirement

from vcsd.errors import install_command, is_checkout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

State = Literal["ok", "off", "broken"]

_FOR_CHECKOUTS = ("dev", "docs", "release")
"""Extras for tests, docs and releases. The wheel does not contain those files."""


@dataclass(frozen=True)
class Finding:
    """One line of the report. `off` is an optional extra that is not installed; `broken` needs a fix.

    >>> Finding("torch", "ok", "2.13.0").state
    'ok'
    """

    subject: str
    state: State
    detail: str


def examine() -> Iterator[tuple[str, list[Finding]]]:
    """Yield the sections of the report. Later ones are slower, because they import torch and transformers."""
    if not _is_installed():
        yield "Required", [Finding("vcsd", "broken", "on the path, but not installed; run pip install -e .")]
        return
    yield "Required", [_python(), *_requirements(None)]
    yield (
        "Checks",
        [
            _attempt("method's arithmetic", _try_arithmetic),
            _attempt("image processing", _try_images),
            _attempt("Qwen3-VL and Qwen3.5", _try_families),
        ],
    )
    yield (
        "Used here",
        [
            _attempt("device", _device),
            _attempt("loss", _loss),
            _attempt("attention", _attention),
            _attempt("Qwen3.5's recurrence", _recurrence),
            _attempt("rollouts", _engine),
        ],
    )
    yield "Extras", [_extra(name) for name in _extras()]


def _is_installed() -> bool:
    try:
        metadata.version("vcsd")
    except metadata.PackageNotFoundError:
        return False
    return True


def _python() -> Finding:
    return Finding("python", "ok" if sys.version_info >= (3, 11) else "broken", f"{platform.python_version()} (>=3.11)")


def _requirements(extra: str | None) -> list[Finding]:
    """Compare the installed packages with what vcsd, or one of its extras, requires."""
    findings = []
    for line in metadata.requires("vcsd") or []:
        requirement = Requirement(line)
        always = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        wanted = requirement.marker is None or requirement.marker.evaluate({"extra": extra or ""})
        if wanted and always == (extra is None):
            findings.append(_requirement(requirement))
    return findings


def _requirement(requirement: Requirement) -> Finding:
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return Finding(requirement.name, "broken", f"not installed; needs {requirement.specifier or 'any version'}")
    # A local suffix (2.13.0+cpu) belongs to the build, not to the required version.
    fits = requirement.specifier.contains(version, prereleases=True)
    return Finding(requirement.name, "ok" if fits else "broken", f"{version} ({requirement.specifier or 'any'})")


def _extras() -> list[str]:
    """Return the names of the extras; outside a checkout, without those for development."""
    extras = list(metadata.metadata("vcsd").get_all("Provides-Extra") or [])
    return extras if is_checkout() else [name for name in extras if name not in _FOR_CHECKOUTS]


def _extra(name: str) -> Finding:
    """Return whether an extra is installed, and how to install it unless it is for development only."""
    missing = [finding for finding in _requirements(name) if finding.state != "ok"]
    if not missing:
        return Finding(name, "ok", "installed")
    if name in _FOR_CHECKOUTS:
        return Finding(name, "off", "not complete; only for work on vcsd itself")
    unfit = ", ".join(f"{one.subject} {one.detail}" for one in missing if not one.detail.startswith("not installed"))
    return Finding(name, "off", install_command(name) + (f" (found {unfit})" if unfit else ""))


def _attempt(subject: str, trial: Callable[[], str]) -> Finding:
    """Run a trial and report any exception as the finding."""
    try:
        return Finding(subject, "ok", trial())
    except Exception as error:
        return Finding(
            subject, "broken", f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
        )


def _try_arithmetic() -> str:
    """Compute the target and the loss of a worked example on the device that a run would use."""
    import torch

    from vcsd.core import forward_kl, shape_target

    device = "cuda" if torch.cuda.is_available() else "cpu"
    original = torch.tensor([0.5, 0.4, 0.1], device=device).log()
    control = torch.tensor([0.5, 0.1, 0.4], device=device).log()
    loss = forward_kl(shape_target(original, control, beta=0.5), original).item()
    expected = 5 / 21 * log(10 / 21) + 16 / 21 * log(40 / 21)  # q* = [5/21, 16/21, 0]
    if not isclose(loss, expected, rel_tol=1e-5):
        raise ArithmeticError(f"the worked example's loss is {loss:.6f} instead of {expected:.6f} on {device}")
    return f"the worked example's loss is correct on {device}"


def _try_images() -> str:
    """Run the PIL image processor. A torchvision built for another torch breaks it and gets its own error."""
    if importlib.util.find_spec("torchvision") is not None:
        try:
            import torchvision  # type: ignore[import-not-found] # noqa: F401
        except Exception as error:
            raise ImportError(f"torchvision does not match torch ({error}): uninstall it, it is not needed") from error
    from PIL import Image
    from transformers import Qwen2VLImageProcessorPil

    inputs = Qwen2VLImageProcessorPil()(Image.new("RGB", (64, 96)), return_tensors="pt")
    return f"PIL: a 64 x 96 image makes {inputs['image_grid_thw'].prod().item()} patches"


def _try_families() -> str:
    from transformers import Qwen3_5ForConditionalGeneration, Qwen3VLForConditionalGeneration

    return f"{Qwen3VLForConditionalGeneration.__name__}, {Qwen3_5ForConditionalGeneration.__name__}"


def _device() -> str:
    import torch

    if not torch.cuda.is_available():
        return f"CPU, threads: {torch.get_num_threads()}, no CUDA device"
    cards = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return ", ".join(f"{card.name} ({card.total_memory / 2**30:.0f} GiB)" for card in cards)


def _loss() -> str:
    import torch

    from vcsd.loss import which_impl

    return which_impl("cuda" if torch.cuda.is_available() else "cpu")


def _recurrence() -> str:
    """Name the implementation of the delta rule for scoring."""
    import torch

    if torch.cuda.is_available() and importlib.util.find_spec("triton") is not None:
        return "Triton kernels in bfloat16 and float16, torch in float32"
    return "torch"


def _engine() -> str:
    from vcsd.rollout.engine import TransformersEngine

    return f"transformers ({TransformersEngine.__name__})"


def _attention() -> str:
    """Name the attention that transformers chooses for a Qwen3-VL model without weights."""
    import torch
    from transformers import AutoModelForImageTextToText, Qwen3VLConfig

    small = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2}
    text = {**small, "num_hidden_layers": 1, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 32}
    vision = {**small, "depth": 1, "num_heads": 2, "out_hidden_size": 32, "deepstack_visual_indexes": [0]}
    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(  # type: ignore[no-untyped-call]
            Qwen3VLConfig(text_config=text, vision_config=vision), trust_remote_code=False
        )
    return str(model.config._attn_implementation)
