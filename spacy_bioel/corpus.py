"""Conversion between annotated texts and Docs, and the corpus reader for `spacy train`."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.training import Example
from spacy.vocab import Vocab

from spacy_bioel.doc import (
    Alignment,
    add_gold,
    annotated_labels,
    gold_scores,
    split_kb_id,
    with_gold_mentions,
)
from spacy_bioel.errors import LOGGER, BioelError, Errors, Warnings
from spacy_bioel.io.formats import read_corpus
from spacy_bioel.settings import GOLD_KEY
from spacy_bioel.types import AnnotatedText, Mention

Corpus = Callable[[Language], Iterator[Example]]
_ID = "bioel_id"


def create_corpus_v1(
    path: str,
    *,
    format: str | None = None,
    prefix: str = "",
    widen: bool = True,
    limit: int = 0,
    given_mentions: bool = False,
    annotates: Sequence[str] = (),
) -> Corpus:
    """Registered as `spacy-bioel.Corpus.v1`: any supported corpus file as training examples.

    path (str): A .spacy file of `bioel convert`, or PubTator, BioC, JSONL, ...
    format (str | None): Name of the format; None: detected from the content.
    prefix (str): CURIE prefix for ids without one, e.g. "MESH".
    widen (bool): Widen mentions that cut a token to whole tokens; otherwise drop them, with a
        warning that counts them.
    limit (int): Maximum number of documents; 0: all.
    given_mentions (bool): Give the pipeline the offsets and labels of the gold mentions, never
        their ids: for a pipeline with a linker only.
    annotates (Sequence[str]): Labels that the corpus annotates: where it has no mention of another
        label, that is unknown, and not learned from. None given: what the documents say, or all.
    RAISES BioelError: [B330] on a mention of another label.
    """

    def read_examples(nlp: Language) -> Iterator[Example]:
        total = Alignment()
        texts = read_texts(Path(path), format=format, prefix=prefix)
        for text in islice(texts, limit or None):
            if annotates:
                text = declared(text, annotates, path=Path(path))
            reference, alignment = text_to_doc(nlp, text, widen=widen)
            total.add(alignment)
            predicted = nlp.make_doc(text.text)
            if given_mentions:
                with_gold_mentions(predicted, text)
            yield Example(predicted, reference)
        if total.lost:
            lost, first = len(total.lost), "; ".join(total.lost[:3])
            LOGGER.warning(Warnings.W060.format(path=path, lost=lost, n=total.n, first=first))

    return read_examples


def mix_corpora_v1(*corpora: Corpus) -> Corpus:
    """Registered as `spacy-bioel.Mix.v1`: the documents of several corpora, one after another.

    corpora: Readers, such as `spacy-bioel.Corpus.v1`, each with what its corpus `annotates`.
    """

    return lambda nlp: chain.from_iterable(corpus(nlp) for corpus in corpora)


def declared(
    text: AnnotatedText, annotates: Sequence[str], *, path: Path, error: str = Errors.B330
) -> AnnotatedText:
    """Add the labels that were looked for. RAISES BioelError: `error` on another one."""
    for m in text.mentions:
        if m.label not in annotates:
            found, known = f"{m.label!r} ({text.text[m.start : m.end]!r})", ", ".join(annotates)
            raise BioelError(error.format(path=path, id=text.id, found=found, annotates=known))
    return replace(text, annotates=tuple(annotates))


def read_texts(
    path: Path, *, format: str | None = None, prefix: str = "", gold_key: str = GOLD_KEY
) -> Iterator[AnnotatedText]:
    """Read the documents of a corpus file in any format, .spacy included.

    gold_key (str): Span group of the gold mentions in a .spacy file.
    RAISES BioelError: [B060] on a damaged .spacy file; those of the format's reader.
    """
    if format == "spacy" or (format is None and path.suffix == ".spacy"):
        return (text for _, text in _docs_and_texts(path, Vocab(), gold_key))
    return read_corpus(path, format=format, prefix=prefix)


def read_docs(path: Path, vocab: Vocab) -> Iterator[Doc]:
    """Read a .spacy file. RAISES BioelError: [B060] when it is missing, damaged or not one."""
    return (doc for doc, _ in _docs_and_texts(path, vocab, GOLD_KEY))


def _docs_and_texts(path: Path, vocab: Vocab, gold_key: str) -> Iterator[tuple[Doc, AnnotatedText]]:
    """Yield Docs of a .spacy file with their texts; in a damaged one, both conversions may fail."""
    with _spacy_errors(path):
        docs = DocBin().from_disk(path).get_docs(vocab)
    while True:
        with _spacy_errors(path):
            doc = next(docs, None)
            if doc is None:
                return
            text = doc_to_text(doc, gold_key=gold_key)
        yield doc, text


@contextmanager
def _spacy_errors(path: Path) -> Iterator[None]:
    """Turn errors of spaCy, zlib, msgpack, numpy and the system into [B060]."""
    collects = gc.isenabled()
    try:
        yield
    except Exception as error:
        if collects:  # srsly does not enable it again after an error
            gc.enable()
        reason = str(error) or type(error).__name__
        raise BioelError(Errors.B060.format(path=path, error=f"{reason:.200}")) from error


def text_to_doc(
    nlp: Language, text: AnnotatedText, *, widen: bool = False
) -> tuple[Doc, Alignment]:
    """Tokenise a text, with its gold mentions in doc.spans["bioel_gold"]."""
    doc = nlp.make_doc(text.text)
    doc.user_data[_ID] = text.id
    return doc, add_gold(doc, text, widen=widen)


def doc_to_text(doc: Doc, *, gold_key: str = GOLD_KEY) -> AnnotatedText:
    """Convert a Doc to an annotated text; without the group `gold_key` it has no mentions."""
    spans = doc.spans[gold_key] if gold_key in doc.spans else ()
    scores = gold_scores(doc, key=gold_key) if spans else ()
    mentions = tuple(
        Mention(
            span.start_char, span.end_char, span.label_, split_kb_id(span.kb_id_), probability=score
        )
        for span, score in zip(spans, scores, strict=True)
    )
    annotates = annotated_labels(doc, key=gold_key)
    return AnnotatedText(str(doc.user_data.get(_ID, "")), doc.text, mentions, annotates)


def docs_to_bin(docs: Iterable[Doc]) -> DocBin:
    """Pack Docs into a DocBin that keeps span groups and document ids."""
    return DocBin(docs=docs, store_user_data=True)
