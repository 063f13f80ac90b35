"""What a command shows on the terminal, and how Ctrl-C and SIGTERM end it."""

from vcsd.terminal.output import (
    announce_slow_import,
    exit_on_error,
    guard_terminal,
    is_replica,
    plain,
    say,
    say_once,
    say_prose,
    show_log,
)

__all__ = [
    "announce_slow_import",
    "exit_on_error",
    "guard_terminal",
    "is_replica",
    "plain",
    "say",
    "say_once",
    "say_prose",
    "show_log",
]
