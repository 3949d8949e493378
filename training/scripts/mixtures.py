"""Mixtures of corpora that annotate different labels: their documents, and their knowledge base."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from zlib import crc32

from documents import pieces
from plain import grouped
from specs import ASSETS, dev_share_of, find_split, load_spec, parts_of

from spacy_bioel.corpus import declare_labels
from spacy_bioel.errors import BioelError
from spacy_bioel.files import replacing_folder
from spacy_bioel.io.formats import read_corpus
from spacy_bioel.io.jsonl import write_texts_jsonl
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.types import AnnotatedText, Concept

NO_MENTION = (
    "[T020] {corpus} is said to annotate {labels}, but no mention of {path} has that label: it "
    "cannot be learned. Correct `annotates` or `labels` of {corpus} in training/corpora.yml."
)
_BEGINNING = 200  # letters and digits by which a document is known in another corpus


def write_mixture(corpus: str) -> None:
    """Write assets/CORPUS, the training and development documents of all parts, which were fetched.

    Training documents that one of the parts has for development are left out, and sentences of
    them. Development documents that are trained on too are development documents still only if
    there are no others.

    RAISES BioelError: [B330] on a mention of a label that its corpus does not annotate, [T020] on
        a label that it annotates and no mention has.
    """
    parts, share = parts_of(corpus), dev_share_of(corpus)
    for part in parts:
        check_annotated(part)
    of_parts = [list(_read(part, "dev")) for part in parts]
    dev = list(mixed(of_parts))
    measured = [text for text in dev if not is_learned(text, share)]
    learned = [[text for text in texts if is_learned(text, share)] for texts in of_parts]
    train = mixed(
        [chain(_read(part, "train"), more) for part, more in zip(parts, learned, strict=True)],
        left_out=" ".join(letters(text.text) for text in measured),
    )
    with replacing_folder(ASSETS / corpus) as folder:
        write_texts_jsonl(folder / "dev.jsonl", measured or dev)
        write_texts_jsonl(folder / "train.jsonl", chain.from_iterable(map(pieces, grouped(train))))


def is_learned(text: AnnotatedText, share: float) -> bool:
    """Whether a development document is among those that are trained on, the same in any corpus."""
    return crc32(beginning(text).encode()) / 2**32 < share


def check_annotated(corpus: str) -> None:
    """RAISES BioelError: [T020] when no training mention has a label that the corpus annotates."""
    spec = load_spec(corpus)
    missing = set(spec.get("annotates", ()))
    path = find_split(corpus, "train")
    texts = iter(read_corpus(path, prefix=spec["prefix"]) if missing else ())
    while missing and (text := next(texts, None)) is not None:
        missing -= {mention.label for mention in text.mentions}
    if missing:
        found = ", ".join(sorted(missing))
        raise BioelError(NO_MENTION.format(corpus=corpus, labels=found, path=path))


def _read(part: str, split: str) -> Iterator[AnnotatedText]:
    spec, path = load_spec(part), find_split(part, split)
    texts = read_corpus(path, prefix=spec["prefix"])
    return (declare_labels(text, spec["annotates"], path=path) for text in texts)


def beginning(text: AnnotatedText) -> str:
    """By which a document is known. Ids are no help: many corpora number their documents."""
    return letters(text.text)[:_BEGINNING]


def letters(text: str) -> str:
    return re.sub(r"[\W_]", "", text).lower()


def mixed(
    corpora: Iterable[Iterable[AnnotatedText]], *, left_out: str = ""
) -> Iterator[AnnotatedText]:
    """The documents of several corpora, each with what it annotates.

    If several corpora have a document and annotate the same label, the first of them counts.

    left_out (str): Letters of documents: those that begin within are left out.
    """
    found: dict[str, set[str]] = {}
    for texts in corpora:
        own: dict[str, set[str]] = {}
        for text in texts:
            key = beginning(text)
            labels = tuple(label for label in text.annotates if label not in found.get(key, ()))
            if labels and key not in left_out:
                own.setdefault(key, set()).update(labels)
                mentions = tuple(m for m in text.mentions if m.label in labels)
                yield replace(text, mentions=mentions, annotates=labels)
        for key, labels_of_key in own.items():
            found.setdefault(key, set()).update(labels_of_key)


def join_kbs(folders: Sequence[Path], out: Path) -> None:
    """Build one knowledge base of the concepts of several."""
    kbs = [KnowledgeBase.open(folder) for folder in folders]
    sources = ", ".join(dict.fromkeys(kb.meta["source"] for kb in kbs))
    build_kb(chain.from_iterable(map(_concepts, kbs)), out, source=sources)


def _concepts(kb: KnowledgeBase) -> Iterator[Concept]:
    for row, id in enumerate(kb.ids):
        yield Concept(
            id,
            tuple(kb.names.take(kb.names_of(row))),
            kb.types_of(row),
            tuple(kb.ids_of(kb.parents_of(row))),
            kb.definition(row),
            xrefs=kb.xrefs(row),
        )
    for id in kb.retired:
        yield Concept(id, (), replaced_by=kb.canonical(id))
