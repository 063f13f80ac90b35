"""The command line."""

import signal


def main() -> None:
    """Run the command line: the entry point of the process.

    Ctrl-C prints no KeyboardInterrupt traceback, even while modules are imported and while Python shuts down.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a background job may ignore SIGINT
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from vcsd.cli import app

    app.main()


__all__ = ["main"]
