"""notebook.py FILE: executes a notebook where it is; an error in it is one here."""

import sys

import nbclient
import nbformat

notebook = nbformat.read(sys.argv[1], as_version=4)
code = [cell for cell in notebook.cells if cell.cell_type == "code"]
lines = [line for cell in code for line in cell.source.splitlines() if line.strip()]
assert len(lines) <= 10, f"{len(lines)} lines of code, ten were promised"
nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
outputs = [output for cell in code for output in cell.outputs]
assert any("image/png" in output.get("data", {}) for output in outputs), "the notebook shows no figure"
