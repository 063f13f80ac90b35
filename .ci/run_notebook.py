"""Execute a notebook from its first cell to its last. A cell that fails fails the command; the notebook is not changed.

python .ci/run_notebook.py examples/demo.ipynb [--save executed.ipynb]
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

WAIT = 900
"""Seconds for one cell; a busy machine is slow, a hanging cell fails."""


def main() -> int:
    """Execute the notebook in an empty folder and print how long it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--save", type=Path, help="write the notebook with its outputs here")
    chosen = parser.parse_args()
    notebook = nbformat.read(chosen.notebook, as_version=4)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=WAIT, kernel_name="python3", resources={"metadata": {"path": folder}})
        try:
            client.execute()
        except CellExecutionError as error:
            print(error, file=sys.stderr)
            return 1
    if chosen.save is not None:
        nbformat.write(notebook, chosen.save)
    num = sum(cell.cell_type == "code" for cell in notebook.cells)
    print(f"{chosen.notebook}: {num} cells in {time.monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
