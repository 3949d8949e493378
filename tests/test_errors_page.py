"""docs/guides/errors.md: its example gives what it says, and its definitions are those in use."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from benchmarks.protocols import ERRORS, errors_page
from spacy_bioel.cli import main
from spacy_bioel.cli.error_files import SHOWN
from spacy_bioel.scoring.evaluation import BINS

PAGE = ERRORS.read_text(encoding="utf8")
BLOCK = re.compile(r"```(python|bash)\n(.*?)```\n(?:```text\n(.*?)```)?", re.DOTALL)


def test_the_definitions_are_current() -> None:
    assert errors_page() == PAGE
    assert "| `spurious` | a prediction that is paired with no gold mention |" in PAGE
    assert f"up to {SHOWN} errors of each kind" in PAGE
    assert BINS == 10 and "in ten bins" in PAGE
    assert "| `rank` | rank of the first gold id among the candidates" in PAGE


def test_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(PAGE)
    assert [language for language, *_ in blocks] == ["python", "bash", "python", "bash"]
    for language, code, printed in blocks:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            if language == "python":
                exec(compile(code, "docs/guides/errors.md", "exec"), {})
            for line in code.splitlines() if language == "bash" else ():
                with pytest.raises(SystemExit) as done:
                    main(shlex.split(line)[1:])
                assert not done.value.code
        assert language == "bash" or out.getvalue() == printed
    assert "| authors | A. Person |" in Path("models/small/README.md").read_text("utf8")
    assert "<h2>wrong_id (2)</h2>" in Path("errors.html").read_text("utf8")
