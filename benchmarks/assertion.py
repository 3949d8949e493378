"""Count the mentions whose status, in one word, is right: `python -m benchmarks.run statuses FILE`.

The files have notes with `mentions`, or lines with `expect` (benchmarks/notes_layout.jsonl,
assertion_lines.jsonl). Our rules were developed with these texts in view: figures are optimistic.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.record import Row, question
from benchmarks.texts import blank
from spacy_bioel.doc import get_links

_OTHER_WORDS = {"negated": "absent", "affirmed": "present", "uncertain": "possible"}
Case = tuple[str, int, int]  # text, start and end of a mention


def read_statuses(path: Path) -> Iterator[tuple[Case, str]]:
    """Yield mentions with their status."""
    for line in path.read_text("utf8").splitlines():
        row = json.loads(line)
        places = [(row["text"].index(words), words) for words in row.get("expect", {})]
        mentions = [(at, at + len(words), row["expect"][words]) for at, words in places]
        mentions += [(m["start"], m["end"], m["is"]) for m in row.get("mentions", ())]
        for start, end, status in mentions:
            yield (row["text"], start, end), _OTHER_WORDS.get(status, status)


@question("assertion", key=("question", "system", "corpus", "metric"))
def statuses(
    files: list[Path],
    name: Annotated[str, typer.Option(help="Name of our rules in the results.")] = "ours",
) -> Iterator[Row]:
    nlp = blank()
    pipe: Any = nlp.add_pipe("bioel_context")
    for path in files:
        n = right = 0
        for (text, start, end), status in read_statuses(path):
            doc = nlp.make_doc(text)
            doc.spans["bioel"] = [doc.char_span(start, end, alignment_mode="expand")]
            n += 1
            (link,) = get_links(pipe(doc))
            right += link.facts["context"]["assertion"] == status
        about: Row = {"question": "statuses", "corpus": path.stem, "n": n}
        yield {"system": name, **about, "metric": "right", "value": right}
