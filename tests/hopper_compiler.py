"""Compile Triton kernels for a Hopper GPU on a machine without one.

Triton decides when a kernel is defined whether it is interpreted, and these tests interpret kernels. Compilation
therefore needs another process. One serves a whole session, because it spends seconds importing torch and triton.
"""

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import contextmanager

RunProgram = Callable[..., None]
"""(program, *arguments): run a program's text, and fail with its traceback if it raises."""


@contextmanager
def hopper_compiler():
    """Start the process; yield a function that runs a program in it and raises if the program does."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, __file__]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as process:

        def run(program, *arguments):
            assert process.poll() is None, "an earlier program ended the compiler's process"
            process.stdin.write(json.dumps([program, arguments]) + "\n")
            process.stdin.flush()
            reply = process.stdout.readline()
            assert reply, "the program ended the compiler's process"
            error = json.loads(reply)
            assert error is None, error

        yield run
        process.stdin.close()


def main() -> None:
    """Run each program that arrives on stdin; reply with its traceback, or null."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a program prints must not look like a reply
    for line in sys.stdin:
        program, arguments = json.loads(line)
        sys.argv = ["program", *arguments]
        error = None
        try:
            exec(compile(program, "program", "exec"), {"__name__": "__main__"})
        except Exception:
            error = traceback.format_exc()
        print(json.dumps(error), file=replies, flush=True)


if __name__ == "__main__":
    main()
