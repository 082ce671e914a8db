"""Runs docs/tutorial.ipynb from an empty store and writes it with its outputs: `python -m tests.write_tutorial`."""

import os
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from tests.conftest import HANG_S, REPOSITORY

TUTORIAL = REPOSITORY / "docs" / "tutorial.ipynb"


def executed(notebook: nbformat.NotebookNode, folder: Path) -> nbformat.NotebookNode:
    """Returns the notebook with its outputs, run by a kernel of its own in a folder."""
    nbformat.validate(notebook)
    client = NotebookClient(notebook, timeout=HANG_S, resources={"metadata": {"path": str(folder)}})
    return client.execute(env={**os.environ, "PYTHONPATH": str(REPOSITORY)})


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as store:
        os.environ["HEADROOM_CACHE"] = store
        notebook = executed(nbformat.read(TUTORIAL, as_version=4), REPOSITORY / "docs")
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times, which differ in every run
    nbformat.write(notebook, TUTORIAL)
