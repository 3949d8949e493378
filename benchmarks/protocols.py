"""Write the documentation of protocols and kinds of error: python -m benchmarks.protocols.

The tables of docs/reference/protocols.md and the definitions in docs/guides/errors.md are made from
spacy_bioel/scoring/protocols.py.
"""

from pathlib import Path

from benchmarks.readme import write_block
from benchmarks.tables import table
from spacy_bioel.plugins.evaluation.error_files import COLUMNS
from spacy_bioel.scoring.protocols import ALIASES, KINDS, MARKS, PAIRING, PROTOCOLS

_DOCS = Path(__file__).parents[1] / "docs"
PAGE, ERRORS = _DOCS / "reference" / "protocols.md", _DOCS / "guides" / "errors.md"


def page() -> str:
    """Return docs/reference/protocols.md with current tables."""
    text = PAGE.read_text(encoding="utf8")
    text = write_block(text, "TEXT PROTOCOLS", _tables(given_mentions=False))
    return write_block(text, "GIVEN PROTOCOLS", _tables(given_mentions=True))


def errors_page() -> str:
    """Return docs/guides/errors.md with current definitions."""
    parts = [PAIRING]
    tables = {"kind": KINDS, "mark, beside the kind": MARKS, "column of the file": COLUMNS}
    for name, meanings in tables.items():
        rows = [[f"`{key}`", meaning] for key, meaning in meanings.items()]
        parts.append(table([name, ""], rows))
    return write_block(ERRORS.read_text(encoding="utf8"), "ERRORS", "\n\n".join(parts))


def _tables(*, given_mentions: bool) -> str:
    """Return tables of the rules of protocols and of the meaning of their metrics."""
    names = list(PROTOCOLS["end_to_end"].rules)
    lines, metrics = [], {}
    for name, protocol in PROTOCOLS.items():
        if bool(protocol.given_mentions) == given_mentions:
            also = [f"also `{alias}`" for alias, proper in ALIASES.items() if proper == name]
            rules = (rule or "–" for rule in protocol.rules.values())
            lines.append([", ".join([f"`{name}`", *also]), *rules])
            metrics |= {f"`{key}`": metric.meaning for key, metric in protocol.metrics.items()}
    shown = [table(["protocol", *names], lines), table(["metric", ""], list(metrics.items()))]
    return "\n\n".join(shown)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf8")
    ERRORS.write_text(errors_page(), encoding="utf8")
