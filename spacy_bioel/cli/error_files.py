"""Files of the errors of a pipeline: what `bioel evaluate --errors` and `--html` write.

The page is `templates/errors.html`. It needs no other file, and its colours follow the reader's
preference for dark or light.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from spacy_bioel.cli.console import writing
from spacy_bioel.evaluation.evaluate import (
    Figure,
    LinkingError,
    Reliability,
    confusions,
    find_errors,
    reliability,
    strings_of,
)
from spacy_bioel.evaluation.protocols import KINDS, MARKS, PAIRING
from spacy_bioel.evaluation.run import Predicted, knowledge_of
from spacy_bioel.export.html import PAGES
from spacy_bioel.linking.pipe import Linker
from spacy_bioel.types import AnnotatedText, Link, Mention

NameOf = Callable[[str], str]  # from an id to its preferred name; "": unknown

SHOWN = 50  # errors of a kind on the page
_WORST = 20  # rows of a table of confusions or strings
_METRICS = ("precision", "recall", "f1", "accuracy@1")
_AROUND = 80  # characters of context on each side
# Columns of the file of errors, with their meaning for users.
COLUMNS = {
    "document": "id of the document",
    "kind": "the kind of the error",
    "marks": "its marks",
    "start": "where the gold mention begins, in characters; empty for a spurious prediction",
    "end": "where it ends",
    "string": "the gold mention as it stands in the text",
    "label": "its label",
    "gold_ids": "its ids, the current ones of retired ids; empty for NIL",
    "gold_names": "their preferred names; empty for an id that the knowledge base does not know",
    "predicted_start": "where the prediction begins; empty for a missed mention",
    "predicted_end": "where it ends",
    "predicted_string": "the prediction as it stands in the text",
    "predicted_label": "its label",
    "predicted_ids": "its ids; empty for NIL",
    "predicted_names": "their preferred names",
    "rank": "rank of the first gold id among the candidates, from 1; empty: not among them",
    "candidates": "id, matched name, score and evidence of each, the best first",
    "context": "the text around the gold mention, which is between [[ and ]]; around the "
    "prediction, if that is spurious",
}


def report_errors(
    linker: Linker | None,
    texts: Sequence[AnnotatedText],
    links: Predicted,
    *,
    scores: Sequence[Figure],
    about: Mapping[str, Any],
    rows: Path | None,
    page: Path | None,
    labels: bool,
) -> int:
    """Write the errors on bare texts; on given mentions, if `links` has no others.

    rows, page (Path | None): Files to write.
    labels (bool): Whether the labels of the pipeline are those of gold.
    RETURNS (int): Number of errors.
    """
    given = False not in links
    has_labels = any(mention.label for text in texts for mention in text.mentions)
    errors = list(
        find_errors(
            texts,
            links[given],
            knowledge=None if linker is None else knowledge_of(linker),
            labels=labels and has_labels and not given,
            given=given,
        )
    )

    def name_of(id: str) -> str:
        row = -1 if linker is None else linker.kb.find(id)
        return "" if linker is None or row < 0 else linker.kb.preferred_name(row)

    if rows is not None:
        _write_rows(rows, errors, name_of)
    if page is not None:
        text = _render(
            errors,
            name_of,
            about=_about(about, linker, texts, links[given], given=given),
            scores=[m for m in scores if not m.label and m.metric in _METRICS],
            reliabilities=_reliabilities(linker, texts, links[given]),
            all_errors=rows,
        )
        with writing(page) as file:
            file.write(text)
    return len(errors)


def _write_rows(path: Path, errors: Iterable[LinkingError], name_of: NameOf) -> None:
    """Write all errors, a row each, in the format of the suffix."""
    rows = (row_of(error, name_of) for error in errors)
    suffix = path.suffix.lower()
    with writing(path) as file:
        if suffix == ".jsonl":
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            return
        table = csv.writer(file, delimiter="," if suffix == ".csv" else "\t", lineterminator="\n")
        table.writerow(COLUMNS)
        table.writerows(map(_cell, row.values()) for row in rows)


def _cell(value: object) -> str:
    if isinstance(value, list):
        return " | ".join(_described(one) if isinstance(one, dict) else one for one in value)
    return "" if value is None else str(value)


def _described(candidate: dict[str, Any]) -> str:
    """A candidate of a row in one line, "MESH:D003920 Diabetes (0.91, exact+dense)"."""
    return "{id} {name} ({score:.2f}, {evidence})".format(**candidate)


def row_of(error: LinkingError, name_of: NameOf) -> dict[str, Any]:
    """Describe an error by the names of `COLUMNS`; None where there is nothing to say."""
    before, mention, after = _context(error)
    candidates = error.link.candidates if error.link else ()
    values = [
        *(error.text.id, error.kind, list(error.marks)),
        *_side(error, error.gold, name_of),
        *_side(error, error.link, name_of),
        error.rank or None,
        [{key: getattr(c, key) for key in ("id", "name", "score", "evidence")} for c in candidates],
        f"{before}[[{mention}]]{after}",
    ]
    return dict(zip(COLUMNS, values, strict=True))


def _side(error: LinkingError, one: Mention | Link | None, name_of: NameOf) -> Sequence[Any]:
    """Start, end, string, label, ids and names of the gold mention or the prediction."""
    if one is None:
        return (None, None, None, None, [], [])
    string = _one_line(error.text.text[one.start : one.end])
    return one.start, one.end, string, one.label, list(one.ids), [name_of(id) for id in one.ids]


def _context(error: LinkingError) -> tuple[str, str, str]:
    """The text before a mention, the mention, and the text after it, each as one line."""
    text, place = error.text.text, error.place
    start, end = max(0, place.start - _AROUND), min(len(text), place.end + _AROUND)
    return (
        ("…" if start else "") + _one_line(text[start : place.start]),
        _one_line(text[place.start : place.end]),
        _one_line(text[place.end : end]) + ("…" if end < len(text) else ""),
    )


def _one_line(text: str) -> str:
    # No white space is lost, as it may divide mention and context.
    return "".join(" " if c.isspace() or c < " " else c for c in text)


def _render(errors: Sequence[LinkingError], name_of: NameOf, **shown: Any) -> str:
    """Render the page.

    shown: about (dict[str, str]), scores (list[Figure]), reliabilities (dict[str,
        Reliability]), all_errors (Path | None).
    """
    by_kind = {kind: [error for error in errors if error.kind == kind] for kind in KINDS}

    def named(ids: Iterable[str]) -> str:
        return ", ".join(f"{id} {name_of(id)}".strip() for id in ids)

    def worst(kind: str) -> list[tuple[str, str, int]]:
        return [(*at, n) for at, n in strings_of(errors, kind).most_common(_WORST)]

    def examples(found: Sequence[LinkingError]) -> list[tuple[dict[str, Any], tuple[str, ...]]]:
        """Some that are spread over the corpus, and not of its first documents."""
        n = len(found)
        chosen = [found[i * n // SHOWN] for i in range(SHOWN)] if n > SHOWN else found
        return [(row_of(error, name_of), _context(error)) for error in chosen]

    return PAGES.get_template("errors.html").render(
        **shown,
        counts={kind: len(found) for kind, found in by_kind.items()},
        labels=sorted({error.place.label for error in errors}),
        n_of=Counter((error.kind, error.place.label) for error in errors),
        n_marked=Counter(mark for error in errors for mark in error.marks),
        confused=[
            (named(gold), named(predicted), n)
            for (gold, predicted), n in confusions(errors).most_common(_WORST)
        ],
        worst=worst,
        examples={kind: examples(found) for kind, found in by_kind.items() if found},
        named=named,
        described=_described,
        pairing=PAIRING,
        kinds=KINDS,
        marks=MARKS,
    )


def _reliabilities(
    linker: Linker | None, texts: Sequence[AnnotatedText], predicted: Sequence[Sequence[Link]]
) -> dict[str, Reliability]:
    if linker is None:
        return {}
    names = {"all predictions": False, "those on gold borders": True}
    found = {
        name: reliability(texts, predicted, canonical=linker.kb.canonical, on_gold_borders=on_gold)
        for name, on_gold in names.items()
    }
    return {name: one for name, one in found.items() if one.n}


def _about(
    about: Mapping[str, Any],
    linker: Linker | None,
    texts: Sequence[AnnotatedText],
    predicted: Sequence[Sequence[Link]],
    *,
    given: bool,
) -> dict[str, str]:
    mentions = sum(len(text.mentions) for text in texts)
    of = "of the gold mentions, which the linker was given" if given else "from the bare text"
    shown = {
        "model": str(about["model"]),
        "corpus": f"{about['gold']}: {len(texts):,} documents, {mentions:,} gold mentions",
        "predictions": f"{sum(map(len, predicted)):,}, {of}",
    }
    if linker is not None:
        meta = linker.kb.meta
        named = " ".join(str(meta.get(key, "")) for key in ("source", "release")).strip()
        shown["knowledge base"] = f"{named or linker.kb.title}, fingerprint {linker.kb.fingerprint}"
        if not linker.alias_table.counts:
            shown["mention statistics"] = "none, so that no error is marked as unseen"
    return shown | {"command": str(about["command"])}
