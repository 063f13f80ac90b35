"""The command line."""

import signal


def main() -> None:
    """Run the command line as a process of its own.

    Before and after the command, while modules are loaded and while Python ends, Ctrl-C ends the process without the
    traceback of a KeyboardInterrupt.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a job in the background may ignore it
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from vcsd.cli import app

    app.main()


__all__ = ["main"]
