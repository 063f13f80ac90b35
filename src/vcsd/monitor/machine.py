"""The hardware and versions that results record, and a switch for transformers' output.

Reading the sessions of a run imports no torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import TypedDict, TypeGuard

from vcsd import __version__

ENVIRONMENT = "environment.json"
"""In a run's folder: the machine and the versions it last ran with."""

SESSIONS = "sessions.json"
"""In a run's folder: every machine that contributed steps, since a run may be resumed elsewhere."""


_OF_A_PROCESSOR = ("vendor_id", "cpu family", "model", "stepping", "CPU implementer", "CPU part", "CPU variant")
_VECTORS = {
    "flags": ("sse", "ssse", "avx", "fma", "f16c", "amx"),
    "Features": ("asimd", "sve", "sme", "bf16", "i8mm"),
}
"""Prefixes of the flags of vector instructions, for x86 and for ARM. Other flags depend on the kernel and the virtual
machine and do not affect sums: on x86, `sme` encrypts memory, and `smep` protects the kernel."""


class Session(TypedDict):
    """The steps after `after_step` of a run, up to the next session: where they ran, and with which settings."""

    after_step: int
    environment: dict[str, str | int]
    settings: str
    """A hash of the settings that numbers depend on; empty where it is not known."""


def num_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def hardware() -> str:
    """The GPU and the number of cores, or the processor and its cores."""
    import torch

    if torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()}, {num_cores()} cores"
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{num_cores()} cores, {name}"


def processor() -> str:
    """Torch's vector instructions and a hash of the kind of processor.

    Clouds use one name, such as "AMD EPYC", for several generations, which add numbers in different orders.
    """
    import torch

    info = Path("/proc/cpuinfo")
    first = info.read_text().partition("\n\n")[0] if info.is_file() else platform.processor()
    return f"{torch.backends.cpu.get_cpu_capability()} {kind_of_processor(first)}"


def kind_of_processor(info: str) -> str:
    """Return a hash of the kernel's description of one core, without what may differ between hosts of one kind.

    >>> amd = "vendor_id\\t: AuthenticAMD\\nmodel\\t: 17\\ncpu MHz\\t: {}\\nflags\\t: fpu sse avx2 {}"
    >>> kind_of_processor(amd.format(2400, "")) == kind_of_processor(amd.format(3100, "smep sme"))
    True
    >>> kind_of_processor(amd.format(2400, "")) == kind_of_processor(amd.format(2400, "avx512f"))
    False
    """
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in info.splitlines())}
    flags = [(flag, first) for name, first in _VECTORS.items() for flag in fields.get(name, "").split()]
    vectors = sorted(flag for flag, first in flags if flag.startswith(first))
    kind = json.dumps([[fields.get(name) for name in _OF_A_PROCESSOR], vectors or info])
    return hashlib.sha256(kind.encode()).hexdigest()[:8]


def versions() -> dict[str, str]:
    """The versions of Python and the packages that results depend on."""
    own = {"vcsd": __version__, "python": platform.python_version()}
    return own | {name: version(name) for name in ("torch", "transformers", "accelerate")}


def environment() -> dict[str, str | int]:
    """What a run's numbers depend on besides its recipe: the machine, torch's threads, the ranks, and versions."""
    import torch

    from vcsd.parallel.ranks import num_ranks

    ranks, threads = num_ranks(), torch.get_num_threads()
    return {"hardware": hardware(), "processor": processor(), "threads": threads, "ranks": ranks, **versions()}


def sessions_of(folder: Path) -> list[Session]:
    """The sessions of a run. Folders of earlier versions record only the last machine.

    A file of another form raises a ValueError.
    """
    path, last = folder / SESSIONS, folder / ENVIRONMENT
    known = path if path.is_file() else last
    if not known.is_file():
        return []
    try:
        content: object = json.loads(known.read_text(encoding="utf-8"))
    except RecursionError:
        content = None
    sessions = content if known == path else [{"after_step": 0, "environment": content, "settings": ""}]
    if not are_sessions(sessions):
        raise ValueError(f"{known} does not have the form that a run writes")
    return sessions


def are_sessions(sessions: object) -> TypeGuard[list[Session]]:
    """Whether something that was read has the form of sessions."""
    return isinstance(sessions, list) and all(
        isinstance(session, dict)
        and type(session.get("after_step")) is int
        and isinstance(session.get("environment"), dict)
        and isinstance(session.get("settings"), str)
        for session in sessions
    )


def with_session(sessions: list[Session], after_step: int, settings: str) -> list[Session]:
    """Add this machine to the sessions of a run that starts after a step; steps that are repeated no longer count.

    >>> first = with_session([], 0, "a")
    >>> len(with_session(first, 10, "a")), len(with_session(first, 10, "b")), len(with_session(first, 0, "b"))
    (1, 2, 1)

    If nothing is known about the first steps, the first session is empty.

    >>> with_session([], 10, "a")[0]
    {'after_step': 0, 'environment': {}, 'settings': ''}
    """
    kept = [session for session in sessions if session["after_step"] < after_step]
    if after_step and (not kept or kept[0]["after_step"]):
        kept = [{"after_step": 0, "environment": {}, "settings": ""}, *kept]
    here: Session = {"after_step": after_step, "environment": environment(), "settings": settings}
    is_same = bool(kept) and all(kept[-1][name] == here[name] for name in ("environment", "settings"))
    return kept if is_same else [*kept, here]


def hush_transformers() -> None:
    """Turn off transformers' progress bars and its warnings about tiny models."""
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
