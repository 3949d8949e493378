"""Run the notebook of docs/tutorials, and show it on the site.

python -m benchmarks.notebook runs it and saves its outputs. Needs nbclient and ipykernel, which the
extra `dev` has.
"""

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

# A shadow root, since the styles of the site would also apply to the tables of an output.
_OUTPUT = """<div style="overflow-x: auto" tabindex="0" role="group" aria-label="Output">
<template shadowrootmode="open"><style>
table { border: 0; border-collapse: collapse; font-size: 14px }
th, td { border: 0; border-bottom: 1px solid #8886; padding: 4px 12px 4px 0; text-align: start }
</style>%s</template></div>"""
NOTEBOOK = Path(__file__).parents[1] / "docs" / "tutorials" / "notebook.ipynb"


def run(path: Path = NOTEBOOK) -> Any:
    """Run a notebook in a new kernel, and return it with its outputs."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    folder = {"metadata": {"path": str(path.parent)}}
    client = NotebookClient(notebook, timeout=300, record_timing=False, resources=folder)
    client.execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":  # without warnings about the machine
            cell.outputs = [o for o in cell.outputs if o.output_type != "stream"]
    notebook.metadata = {"kernelspec": notebook.metadata.kernelspec}
    return notebook


def markdown_of(path: Path) -> str:
    """Return a notebook as a page in Markdown, with its outputs as HTML."""
    parts = []
    for cell in json.loads(path.read_text("utf8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        else:
            parts.append(f"```python\n{source}\n```")
            parts += [_OUTPUT % html for html in outputs(cell)]
    parts.append(f'<a href="{path.name}" download>Download this page as a notebook.</a>')
    return "\n\n".join(parts) + "\n"


def outputs(cell: Any) -> Iterator[str]:
    """Yield the HTML that a cell has shown."""
    for output in cell.get("outputs", ()):
        yield "".join(output["data"]["text/html"])


def words_of(html: str) -> str:
    """Return the words of an output, without styles and tags."""
    text = re.sub(r"<style.*?</style>|<[^>]*>", " ", html, flags=re.S)
    return " ".join(unescape(text).split())


if __name__ == "__main__":
    import nbformat

    nbformat.write(run(), NOTEBOOK)
