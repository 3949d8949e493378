"""Files of the errors of a pipeline: what `bioel evaluate --errors` and `--html` write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spacy_bioel.cli.console import show_note, writing
from spacy_bioel.cli.error_page import ErrorReport, render_errors
from spacy_bioel.cli.error_rows import NameOf, write_errors
from spacy_bioel.cli.models import find_linker
from spacy_bioel.cli.plots import can_plot, draw_counts, draw_reliability
from spacy_bioel.errors import Warnings
from spacy_bioel.pipeline.linker.component import Linker
from spacy_bioel.pipeline.measuring import knowledge_of
from spacy_bioel.scoring.counts import KINDS
from spacy_bioel.scoring.evaluation import Reliability, reliability
from spacy_bioel.scoring.linking_errors import LinkingError, find_errors
from spacy_bioel.types import AnnotatedText, Link

if TYPE_CHECKING:
    from spacy.language import Language

    from spacy_bioel.pipeline.measuring import Predicted
    from spacy_bioel.scoring.measure import Measurement


def report_errors(
    nlp: Language,
    texts: Sequence[AnnotatedText],
    links: Predicted,
    *,
    scores: Sequence[Measurement],
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
    linker = find_linker(nlp)
    given = False not in links
    predicted = links[given]
    has_labels = any(mention.label for text in texts for mention in text.mentions)
    errors = list(
        find_errors(
            texts,
            predicted,
            knowledge=None if linker is None else knowledge_of(linker),
            labels=labels and has_labels and not given,
            given=given,
        )
    )
    name_of = _names(linker)
    if rows is not None:
        write_errors(rows, errors, name_of)
    if page is not None:
        reliabilities = _reliabilities(linker, texts, predicted)
        report = ErrorReport(
            about=_about(about, linker, texts, predicted, given=given),
            scores=scores,
            errors=errors,
            name_of=name_of,
            reliabilities=reliabilities,
            figures=_figures(errors, reliabilities) if can_plot() else {},
            all_errors="" if rows is None else str(rows),
        )
        with writing(page) as file:
            file.write(render_errors(report))
        if not report.figures:
            show_note(Warnings.W310.format(path=page))
    return len(errors)


def _names(linker: Linker | None) -> NameOf:
    kb = None if linker is None else linker.kb

    def name_of(id: str) -> str:
        row = -1 if kb is None else kb.find(id)
        return "" if kb is None or row < 0 else kb.preferred_name(row)

    return name_of


def _reliabilities(
    linker: Linker | None, texts: Sequence[AnnotatedText], predicted: Sequence[Sequence[Link]]
) -> dict[str, Reliability]:
    if linker is None:
        return {}
    canonical = linker.kb.canonical
    found = {
        "all predictions": reliability(texts, predicted, canonical=canonical),
        "those on gold borders": reliability(
            texts, predicted, canonical=canonical, on_gold_borders=True
        ),
    }
    return {name: one for name, one in found.items() if one.n}


def _figures(
    errors: Sequence[LinkingError], reliabilities: Mapping[str, Reliability]
) -> dict[str, str]:
    n = Counter(error.kind for error in errors)
    figures = {"counts": draw_counts({kind: n[kind] for kind in KINDS})}
    if reliabilities:
        figures["reliability"] = draw_reliability(reliabilities)
    return figures


def _about(
    about: Mapping[str, Any],
    linker: Linker | None,
    texts: Sequence[AnnotatedText],
    predicted: Sequence[Sequence[Link]],
    *,
    given: bool,
) -> dict[str, str]:
    mentions = sum(len(text.mentions) for text in texts)
    shown = {
        "model": str(about["model"]),
        "corpus": f"{about['gold']}: {len(texts):,} documents, {mentions:,} gold mentions",
        "predictions": f"{sum(map(len, predicted)):,}, "
        + ("of the gold mentions, which the linker was given" if given else "from the bare text"),
    }
    if linker is not None:
        meta = linker.kb.meta
        named = " ".join(str(meta.get(key, "")) for key in ("source", "release")).strip()
        shown["knowledge base"] = f"{named or linker.kb.title}, fingerprint {linker.kb.fingerprint}"
        if not linker.statistics.counts:
            shown["mention statistics"] = "none, so that no error is marked as unseen"
    return shown | {"command": str(about["command"])}
