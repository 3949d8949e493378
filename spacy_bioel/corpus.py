"""Conversion between annotated texts and Docs, and corpus readers for `spacy train`."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
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
_DOC_ID_KEY = "bioel_id"


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
    """Registered as `spacy-bioel.Corpus.v1`: read any supported corpus file as training examples.

    path (str): A .spacy file from `bioel convert`, or PubTator, BioC, JSONL, ...
    format (str | None): Name of the format; None: detected from the content.
    prefix (str): CURIE prefix for ids that have no prefix, e.g. "MESH".
    widen (bool): Widen mentions that start or end inside a token to whole tokens; False: drop
        them, with a warning that counts them [W060].
    limit (int): Maximum number of documents; 0: all.
    given_mentions (bool): Provide the pipeline with the offsets and labels of the gold mentions,
        but not their ids, to train a pipeline that has only a linker.
    annotates (Sequence[str]): Labels that the corpus annotates. For other labels, training does not
        use unannotated text as negative examples. Empty: as declared in each document, or all
        labels.
    RAISES BioelError: [B330] if a mention has another label.
    """

    def read_examples(nlp: Language) -> Iterator[Example]:
        total = Alignment()
        texts = read_texts(Path(path), format=format, prefix=prefix)
        for text in islice(texts, limit or None):
            if annotates:
                text = declare_labels(text, annotates, path=Path(path))
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
    """Registered as `spacy-bioel.Mix.v1`: read the documents in several corpora, one after another.

    corpora: Readers, such as `spacy-bioel.Corpus.v1`, each with the labels that it `annotates`.
    """

    def read_examples(nlp: Language) -> Iterator[Example]:
        for corpus in corpora:
            yield from corpus(nlp)

    return read_examples


def declare_labels(
    text: AnnotatedText, annotates: Sequence[str], *, path: Path, error: str = Errors.B330
) -> AnnotatedText:
    """Set the labels annotated in a document.

    RAISES BioelError: `error` if a mention has another label.
    """
    for m in text.mentions:
        if m.label not in annotates:
            found, known = f"{m.label!r} ({text.text[m.start : m.end]!r})", ", ".join(annotates)
            raise BioelError(error.format(path=path, id=text.id, found=found, annotates=known))
    return replace(text, annotates=tuple(annotates))


def read_texts(
    path: Path, *, format: str | None = None, prefix: str = "", gold_key: str = GOLD_KEY
) -> Iterator[AnnotatedText]:
    """Read the documents in a corpus file of any format, including .spacy.

    gold_key (str): Span group with the gold mentions in a .spacy file.
    RAISES BioelError: [B060] if a .spacy file is damaged, and the same errors as the format's
        reader.
    """
    if format == "spacy" or (format is None and path.suffix == ".spacy"):
        return (text for _, text in _docs_and_texts(path, Vocab(), gold_key))
    return read_corpus(path, format=format, prefix=prefix)


def read_docs(path: Path, vocab: Vocab) -> Iterator[Doc]:
    """Read a .spacy file.

    RAISES BioelError: [B060] if the file is missing, damaged or not a .spacy file.
    """
    return (doc for doc, _ in _docs_and_texts(path, vocab, GOLD_KEY))


def _docs_and_texts(path: Path, vocab: Vocab, gold_key: str) -> Iterator[tuple[Doc, AnnotatedText]]:
    """Yield the Docs in a .spacy file, and their annotated texts. RAISES BioelError: [B060]"""
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
    """Turn errors from spaCy, zlib, msgpack, numpy and the operating system into [B060]."""
    gc_was_enabled = gc.isenabled()
    try:
        yield
    except Exception as error:
        if gc_was_enabled:  # srsly leaves garbage collection disabled after an error
            gc.enable()
        reason = str(error) or type(error).__name__
        raise BioelError(Errors.B060.format(path=path, error=f"{reason:.200}")) from error


def text_to_doc(
    nlp: Language, text: AnnotatedText, *, widen: bool = False
) -> tuple[Doc, Alignment]:
    """Tokenise a text, and add its gold mentions as doc.spans["bioel_gold"]."""
    doc = nlp.make_doc(text.text)
    doc.user_data[_DOC_ID_KEY] = text.id
    return doc, add_gold(doc, text, widen=widen)


def doc_to_text(doc: Doc, *, gold_key: str = GOLD_KEY) -> AnnotatedText:
    """Convert a Doc to an annotated text, with the gold mentions in the `gold_key` span group."""
    spans = doc.spans[gold_key] if gold_key in doc.spans else ()
    scores = gold_scores(doc, key=gold_key) if spans else ()
    mentions = []
    for span, score in zip(spans, scores, strict=True):
        offsets, ids = (span.start_char, span.end_char), split_kb_id(span.kb_id_)
        mentions.append(Mention(*offsets, span.label_, ids, probability=score))
    doc_id, annotates = doc.user_data.get(_DOC_ID_KEY, ""), annotated_labels(doc, key=gold_key)
    return AnnotatedText(str(doc_id), doc.text, tuple(mentions), annotates)


def docs_to_bin(docs: Iterable[Doc]) -> DocBin:
    """Pack Docs into a DocBin that keeps span groups and document ids."""
    return DocBin(docs=docs, store_user_data=True)
