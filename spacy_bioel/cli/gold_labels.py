"""Gold documents whose labels and ids are written otherwise than the pipeline has them: the options
of `bioel evaluate` and `bioel tune` that map them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spacy_bioel.cli.models import load_with_gold
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.io.records import curie
from spacy_bioel.types import AnnotatedText, Mention

if TYPE_CHECKING:
    from spacy.language import Language

LabelOption = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        metavar="GOLD=MODEL",
        help="The label MODEL of the pipeline is GOLD in the corpus; can be repeated, also for one "
        "MODEL. GOLD= leaves the mentions of GOLD out.",
    ),
]
PrefixesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--prefix",
        metavar="PREFIX",
        help="Prefix of ids without one, e.g. MESH: D003920 becomes MESH:D003920. Gene=NCBIGene is "
        "for the label Gene of the corpus alone; can be repeated.",
    ),
]
AnnotatesOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="LABEL",
        help="A label of the pipeline that the corpus annotates, can be repeated: predictions of "
        "other labels are left out, and not counted as wrong. Default: what the documents say, or "
        "all labels.",
    ),
]


def load_with_mapped_gold(
    model: str,
    gold: Path,
    *,
    format: str | None,
    prefix: Sequence[str] | None,
    label: Sequence[str] | None,
    annotates: Sequence[str] | None,
) -> tuple[Language, list[AnnotatedText]]:
    """Load a pipeline, and gold documents with its labels; arguments are the options above.

    RAISES BioelError: Those of the functions below, before anything is loaded where that can be.
    """
    prefixes, labels = parse_prefixes(prefix or ()), parse_labels(label or ())
    # The reader gives one prefix to all labels. Where they differ, ids get theirs after it.
    of_all = prefixes.pop("", "") if set(prefixes) <= {""} else ""
    nlp, texts = load_with_gold(model, gold, format=format, prefix=of_all)
    check_labels_of_model(nlp, labels)
    return nlp, with_labels_of_model(
        texts, labels=labels, prefixes=prefixes, annotates=annotates or (), path=gold
    )


def parse_prefixes(values: Sequence[str]) -> dict[str, str]:
    """Prefixes by label; that of all other labels has the key "".

    RAISES BioelError: [B361] on two prefixes for the same ids.
    """
    prefixes: dict[str, str] = {}
    for value in values:
        label, _, prefix = value.rpartition("=")
        prefix = prefix.strip().removesuffix(":")
        if prefixes.setdefault(label.strip(), prefix) != prefix:
            raise BioelError(Errors.B361.format(first=prefixes[label.strip()], second=value))
    return prefixes


def parse_labels(values: Sequence[str]) -> dict[str, str]:
    """The pipeline's label of each label of the corpus, "" for those that are left out.

    RAISES BioelError: [B362] on what is no GOLD=MODEL, or says two things of one label.
    """
    labels: dict[str, str] = {}
    for value in values:
        gold, separator, model = (part.strip() for part in value.partition("="))
        if not (gold and separator) or labels.setdefault(gold, model) != model:
            raise BioelError(Errors.B362.format(found=value))
    return labels


def check_labels_of_model(nlp: Language, labels: Mapping[str, str]) -> None:
    """RAISES BioelError: [B369] on a label that the detector of the pipeline does not have."""
    from spacy_bioel.pipeline.loading import find_detector

    detector = find_detector(nlp)
    known = detector.labels if detector is not None else ()
    for gold, label in labels.items():
        if known and label and label not in known:
            shown = ", ".join(known)
            raise BioelError(Errors.B369.format(gold=gold, label=label, known=shown))


def with_labels_of_model(
    texts: Sequence[AnnotatedText],
    *,
    labels: Mapping[str, str],
    prefixes: Mapping[str, str],
    annotates: Sequence[str],
    path: Path,
) -> list[AnnotatedText]:
    """Gold documents with the labels of the pipeline, and with prefixes of their ids.

    labels, prefixes (Mapping): Results of the functions above; prefixes are by gold label.
    annotates (Sequence[str]): Labels of the pipeline; none: what the documents say.
    RAISES BioelError: [B363] when no mention has a label that an option names, [B364] when a
        mention has one that is not among `annotates`.
    """
    known = {mention.label for text in texts for mention in text.mentions}
    for label in [*labels, *filter(None, prefixes)]:
        if label not in known:
            shown = ", ".join(sorted(filter(None, known))) or "none"
            raise BioelError(Errors.B363.format(path=path, label=label, known=shown))
    return [
        _mapped(text, labels=labels, prefixes=prefixes, annotates=annotates, path=path)
        for text in texts
    ]


def _mapped(
    text: AnnotatedText,
    *,
    labels: Mapping[str, str],
    prefixes: Mapping[str, str],
    annotates: Sequence[str],
    path: Path,
) -> AnnotatedText:
    mentions = tuple(_mapped_mentions(text, labels, prefixes))
    for mention in mentions:
        if annotates and mention.label not in annotates:
            found = f"{mention.label!r} ({text.text[mention.start : mention.end]!r})"
            known = ", ".join(annotates)
            raise BioelError(Errors.B364.format(path=path, id=text.id, found=found, known=known))
    declared = annotates or filter(None, (labels.get(label, label) for label in text.annotates))
    return replace(text, mentions=mentions, annotates=tuple(dict.fromkeys(declared)))


def _mapped_mentions(
    text: AnnotatedText, labels: Mapping[str, str], prefixes: Mapping[str, str]
) -> Iterator[Mention]:

    for mention in text.mentions:
        label = labels.get(mention.label, mention.label)
        if label or mention.label not in labels:
            prefix = prefixes.get(mention.label, prefixes.get("", ""))
            yield replace(mention, label=label, ids=tuple(curie(i, prefix) for i in mention.ids))
