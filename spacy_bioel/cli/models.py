"""Pipelines, knowledge bases and gold documents, as arguments and options of commands name them.

Imports of the pipeline are late: they keep `bioel --help` free of spaCy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.io.records import curie
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.types import AnnotatedText, Mention

if TYPE_CHECKING:
    from spacy.language import Language

    from spacy_bioel.pipeline.linker.component import Linker

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


def load_model(model: str, *, more: Sequence[str] = ()) -> Language:
    """Load a pipeline, see `pipeline.loading.load_model`."""
    from spacy_bioel.pipeline import loading

    return loading.load_model(model, more=more)


def find_linker(nlp: Language) -> Linker | None:
    """Find the linker of a pipeline, see `pipeline.loading.find_linker`."""
    from spacy_bioel.pipeline import loading

    return loading.find_linker(nlp)


def require_linker(nlp: Language, model: str) -> Linker:
    """Find the linker of a pipeline. RAISES BioelError: [B072] when it has none."""
    linker = find_linker(nlp)
    if linker is None:
        raise BioelError(Errors.B072.format(model=model, pipes=", ".join(nlp.pipe_names) or "none"))
    return linker


def open_kb(kb: str) -> KnowledgeBase:
    """Open a knowledge base for reading: a folder, or one of the package, as "starter:genes"."""
    if kb.startswith("starter:") and not Path(kb).exists():
        from spacy_bioel.pipeline.linker.starter import starter_kb

        return starter_kb(kb)
    return KnowledgeBase.open(kb)


def load_with_gold(
    model: str, gold: Path, *, format: str | None, prefix: str
) -> tuple[Language, list[AnnotatedText]]:
    """Load a pipeline and gold documents, with mentions from the pipeline's own `gold_key`.

    The documents are read first, so that errors in them are reported without delay.
    """
    from spacy_bioel.corpus import read_texts
    from spacy_bioel.pipeline.annotate import GOLD_KEY
    from spacy_bioel.pipeline.measuring import gold_key

    texts = list(read_texts(gold, format=format, prefix=prefix))
    nlp = load_model(model)
    key = gold_key(nlp)
    if key != GOLD_KEY:
        texts = list(read_texts(gold, format=format, prefix=prefix, gold_key=key))
    return nlp, texts


def load_with_mapped_gold(
    model: str,
    gold: Path,
    *,
    kb: Path | None,
    format: str | None,
    prefix: Sequence[str] | None,
    label: Sequence[str] | None,
    annotates: Sequence[str] | None,
) -> tuple[Language, list[AnnotatedText]]:
    """Load a pipeline with another knowledge base, if one is given, and gold documents with the
    labels and ids of the pipeline; arguments are the options above.

    RAISES BioelError: [B361] on two prefixes for the same ids, [B362] on what is no GOLD=MODEL,
        [B363] when no mention has a label that an option names, [B364] when a mention has one that
        is not among `annotates`, [B369] on a label that the detector does not have; and on gold
        that nothing can be measured on.
    """
    from spacy_bioel.pipeline.loading import find_detector
    from spacy_bioel.pipeline.measuring import check_gold

    prefixes, labels = _parse_prefixes(prefix or ()), _parse_labels(label or ())
    # The reader gives one prefix to all labels. Where they differ, ids get theirs after it.
    of_all = prefixes.pop("", "") if set(prefixes) <= {""} else ""
    nlp, texts = load_with_gold(model, gold, format=format, prefix=of_all)
    if detector := find_detector(nlp):
        for old, new in labels.items():
            if new and detector.labels and new not in detector.labels:
                known = ", ".join(detector.labels)
                raise BioelError(Errors.B369.format(gold=old, label=new, known=known))
    found = {mention.label for text in texts for mention in text.mentions}
    for name in [*labels, *filter(None, prefixes)]:
        if name not in found:
            known = ", ".join(sorted(filter(None, found))) or "none"
            raise BioelError(Errors.B363.format(path=gold, label=name, known=known))
    texts = [_mapped(text, labels, prefixes) for text in texts]
    if annotates:
        texts = [_restricted(text, annotates, gold) for text in texts]
    if kb is not None:
        require_linker(nlp, model).set_kb(kb)
    check_gold(texts, find_linker(nlp), gold)
    return nlp, texts


def _parse_prefixes(values: Sequence[str]) -> dict[str, str]:
    """Prefixes by label; that of all other labels has the key ""."""
    prefixes: dict[str, str] = {}
    for value in values:
        label, _, prefix = value.rpartition("=")
        prefix = prefix.strip().removesuffix(":")
        if prefixes.setdefault(label.strip(), prefix) != prefix:
            raise BioelError(Errors.B361.format(first=prefixes[label.strip()], second=value))
    return prefixes


def _parse_labels(values: Sequence[str]) -> dict[str, str]:
    """The pipeline's label of each label of the corpus, "" for those that are left out."""
    labels: dict[str, str] = {}
    for value in values:
        gold, separator, model = (part.strip() for part in value.partition("="))
        if not (gold and separator) or labels.setdefault(gold, model) != model:
            raise BioelError(Errors.B362.format(found=value))
    return labels


def _mapped(
    text: AnnotatedText, labels: Mapping[str, str], prefixes: Mapping[str, str]
) -> AnnotatedText:
    def mentions() -> Iterator[Mention]:
        for one in text.mentions:
            label = labels.get(one.label, one.label)
            if label or one.label not in labels:
                prefix = prefixes.get(one.label, prefixes.get("", ""))
                yield replace(one, label=label, ids=tuple(curie(id, prefix) for id in one.ids))

    annotates = filter(None, (labels.get(label, label) for label in text.annotates))
    return replace(text, mentions=tuple(mentions()), annotates=tuple(dict.fromkeys(annotates)))


def _restricted(text: AnnotatedText, annotates: Collection[str], path: Path) -> AnnotatedText:
    for one in text.mentions:
        if one.label not in annotates:
            found = f"{one.label!r} ({text.text[one.start : one.end]!r})"
            known = ", ".join(annotates)
            raise BioelError(Errors.B364.format(path=path, id=text.id, found=found, known=known))
    return replace(text, annotates=tuple(dict.fromkeys(annotates)))
