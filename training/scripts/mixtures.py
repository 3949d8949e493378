"""Mix corpora that annotate different labels: their documents and their knowledge bases."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from zlib import crc32

from documents import pieces
from plain import grouped
from specs import ASSETS, dev_share_of, find_split, left_out_of, load_spec, parts_of

from spacy_bioel.corpus import declare_labels
from spacy_bioel.errors import BioelError
from spacy_bioel.files import replacing_folder
from spacy_bioel.io.formats import read_corpus
from spacy_bioel.io.jsonl import write_texts_jsonl
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.types import AnnotatedText, Concept

NO_MENTION = (
    "[T020] {corpus} lists {labels} in `annotates`, but no mention of {path} has that label: it "
    "cannot be learned. Correct `annotates` or `labels` of {corpus} in training/corpora.yml."
)
_KEY_LENGTH = 200  # letters and digits that identify a document across corpora


def write_mixture(corpus: str) -> None:
    """Write assets/CORPUS: the training and development documents of all fetched parts.

    Training documents and sentences that are development documents of another part are left out.
    Development documents that are also trained on are kept for development only if there are no
    others. Documents of the corpora after "+without+" are left out, whichever part has them.

    RAISES BioelError: [B330] on a mention of a label that its corpus does not annotate, [T020] on
        an annotated label without mentions.
    """
    parts, share = parts_of(corpus), dev_share_of(corpus)
    for part in parts:
        check_annotated(part)
    unseen = " ".join(
        letters(text.text)
        for other in left_out_of(corpus)
        for split in ("train", "dev")
        for text in _read(other, split)
    )
    dev_of_parts = [list(_read(part, "dev")) for part in parts]
    dev = list(mixed(dev_of_parts, left_out=unseen))
    measured = [text for text in dev if not is_learned(text, share)]
    learned = [[text for text in texts if is_learned(text, share)] for texts in dev_of_parts]
    train = mixed(
        [chain(_read(part, "train"), more) for part, more in zip(parts, learned, strict=True)],
        left_out=" ".join([unseen, *(letters(text.text) for text in measured)]),
    )
    with replacing_folder(ASSETS / corpus) as folder:
        write_texts_jsonl(folder / "dev.jsonl", measured or dev)
        write_texts_jsonl(folder / "train.jsonl", chain.from_iterable(map(pieces, grouped(train))))


def is_learned(text: AnnotatedText, share: float) -> bool:
    """Tell whether a development document is also trained on; the same in every corpus."""
    return crc32(beginning(text).encode()) / 2**32 < share


def check_annotated(corpus: str) -> None:
    """Check that each annotated label has a training mention. RAISES BioelError: [T020]."""
    spec = load_spec(corpus)
    missing = set(spec.get("annotates", ()))
    path = find_split(corpus, "train")
    texts = iter(read_corpus(path, prefix=spec["prefix"]) if missing else ())
    while missing and (text := next(texts, None)) is not None:
        missing -= {mention.label for mention in text.mentions}
    if missing:
        labels = ", ".join(sorted(missing))
        raise BioelError(NO_MENTION.format(corpus=corpus, labels=labels, path=path))


def _read(part: str, split: str) -> Iterator[AnnotatedText]:
    spec, path = load_spec(part), find_split(part, split)
    texts = read_corpus(path, prefix=spec["prefix"])
    return (declare_labels(text, spec["annotates"], path=path) for text in texts)


def beginning(text: AnnotatedText) -> str:
    """Return the key of a document across corpora: its ids differ, its first letters do not."""
    return letters(text.text)[:_KEY_LENGTH]


def letters(text: str) -> str:
    return re.sub(r"[\W_]", "", text).lower()


def mixed(
    corpora: Iterable[Iterable[AnnotatedText]], *, left_out: str = ""
) -> Iterator[AnnotatedText]:
    """Yield the documents of several corpora, each with the labels it annotates.

    If several corpora annotate the same label in a document, the first of them counts.

    left_out (str): Letters of documents; a document whose first letters occur in them is left out.
    """
    annotated: dict[str, set[str]] = {}
    for texts in corpora:
        in_corpus: dict[str, set[str]] = {}
        for text in texts:
            key = beginning(text)
            labels = tuple(label for label in text.annotates if label not in annotated.get(key, ()))
            if labels and key not in left_out:
                in_corpus.setdefault(key, set()).update(labels)
                mentions = tuple(m for m in text.mentions if m.label in labels)
                yield replace(text, mentions=mentions, annotates=labels)
        for key, labels_of_key in in_corpus.items():
            annotated.setdefault(key, set()).update(labels_of_key)


def join_kbs(folders: Sequence[Path], out: Path) -> None:
    """Build one knowledge base from the concepts of several."""
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
