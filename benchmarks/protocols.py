"""Write docs/protocols.md from the table in spacy_bioel/scoring/protocols.py, and the definitions
in docs/guides/errors.md from spacy_bioel/scoring/counts.py: python -m benchmarks.protocols.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path

from benchmarks.readme import write_block
from benchmarks.tables import table
from spacy_bioel.cli.error_files import COLUMNS
from spacy_bioel.scoring.counts import KINDS, MARKS, PAIRING
from spacy_bioel.scoring.protocols import ALIASES, PROTOCOLS, Protocol, Rules

_DOCS = Path(__file__).parents[1] / "docs"
PAGE, ERRORS = _DOCS / "protocols.md", _DOCS / "guides" / "errors.md"
_INTRODUCTION = """\
# Protocols

A protocol is a named way to compare what a pipeline predicts with gold, the annotations of a
corpus. `bioel evaluate MODEL CORPUS --protocol NAME` measures by one or several. Which to take:

* How good is the pipeline, from text to ids? `end_to_end`, which is also called `strict`: a link is
  right if its first and last character and its ids are those of a gold mention. Labels are not
  compared, and mentions without an id (NIL) are left out.
* Does it find the mentions? `mention`: the same with labels, and without ids.
* How good is the linker, if mentions are given? `gold`; or `gold_any`, for which one right id of a
  composite (a mention of several concepts) is enough.
* Which concepts is a document about? `document`.

For example, gold has "breast cancer" (characters 10 to 23, Disease, MESH:D001943), and a pipeline
links "cancer" (17 to 23, Disease) to the same id. That is wrong by `mention` and `end_to_end`, as
its first character differs, right by `partial_binary`, and right by `document`.

This page is written by `python -m benchmarks.protocols` from `spacy_bioel/scoring/protocols.py`,
from which `bioel evaluate` takes the protocols too. What holds for all of them:

Gold mentions and predictions are compared by character offsets. Ids of both sides are first
replaced by their current ids; wherever ids are compared, a composite is its set of ids. The
denominator of recall is that of the corpus: a gold mention that no tokens can represent, or whose
ids the knowledge base does not know, counts as wrong (`missing_from_kb` in the details says how
many those are). Where exact duplicates collapse, "different" says so. A row of one label restricts
gold and predictions to that label. Intervals are 95 %, by bootstrap over documents.
"""
_GIVEN = """\
The linker is given the places and labels of the gold mentions, never their ids. A mention that
begins or ends inside a token is found in the link that was widened to whole tokens. The label only
tells mentions of equal offsets apart. Ranks are counted within the candidates that the linker
keeps, its `max_candidates`; every row states them (`candidates`), and there is no recall at a k
beyond them.
"""


def page() -> str:
    """All of docs/protocols.md."""
    texts = {name: one for name, one in PROTOCOLS.items() if not one.given_mentions}
    given = {name: one for name, one in PROTOCOLS.items() if one.given_mentions}
    parts = [
        _INTRODUCTION,
        "## From bare text\n",
        _rules_table(texts),
        _metrics_table(texts),
        "## Gold mentions given\n",
        _GIVEN,
        _rules_table(given),
        _metrics_table(given),
    ]
    return "\n".join(parts)


def errors_page() -> str:
    """All of docs/guides/errors.md, with the definitions as they are now."""
    parts = [PAIRING]
    tables = {"kind": KINDS, "mark, beside the kind": MARKS, "column of the file": COLUMNS}
    for name, meanings in tables.items():
        rows = [[f"`{key}`", meaning] for key, meaning in meanings.items()]
        parts.append(table([name, ""], rows))
    return write_block(ERRORS.read_text(encoding="utf8"), "ERRORS", "\n\n".join(parts))


def _rules_table(protocols: dict[str, Protocol]) -> str:
    names = [field.name for field in fields(Rules)]
    lines = []
    for name, protocol in protocols.items():
        also = [f"also `{alias}`" for alias, proper in ALIASES.items() if proper == name]
        rules = asdict(protocol.rules)
        lines.append([", ".join([f"`{name}`", *also]), *(rules[key] or "–" for key in names)])
    return table(["protocol", *names], lines) + "\n"


def _metrics_table(protocols: dict[str, Protocol]) -> str:
    metrics = {name: one for p in protocols.values() for name, one in p.metrics.items()}
    return table(["metric", ""], [[f"`{name}`", one.meaning] for name, one in metrics.items()]) + (
        "\n"
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf8")
    ERRORS.write_text(errors_page(), encoding="utf8")
