"""Convert between annotated texts and Docs, and read corpora for `spacy train`."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path

from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.training import Example
from spacy.util import filter_spans
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
from spacy_bioel.io.open import curie
from spacy_bioel.settings import GOLD_KEY
from spacy_bioel.types import DOC_ENTS, AnnotatedText, Mention

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
    spans_key: str | None = None,
) -> Corpus:
    """Registered as `spacy-bioel.Corpus.v1`: read any supported corpus file as training examples.

    path (str): A .spacy file from `bioel convert`, or PubTator, BioC, JSONL, ...
    format (str | None): Name of the format; None: detected from the contents.
    prefix (str): CURIE prefix for ids that have no prefix, e.g. "MESH".
    widen (bool): Widen mentions that start or end inside a token to whole tokens; False: drop them,
        with a warning that gives their number [W060].
    limit (int): Maximum number of documents; 0: all.
    given_mentions (bool): Give the pipeline the offsets and labels of the gold mentions but not
        their ids. Use this to train a linker-only pipeline.
    annotates (Sequence[str]): Labels that the corpus annotates. For other labels, training does not
        use unannotated text as negative examples. Empty: as declared in each document, or all
        labels.
    spans_key (str | None): Span group of gold mentions in .spacy, or "doc.ents"; None: detected.
    RAISES BioelError: [B330] if a mention has a label that is not in `annotates`.
    """

    def read_examples(nlp: Language) -> Iterator[Example]:
        total = Alignment()
        texts = read_texts(Path(path), format=format, prefix=prefix, spans_key=spans_key)
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

    corpora: Readers, such as `spacy-bioel.Corpus.v1`, each with its own `annotates`.
    """
    return lambda nlp: chain.from_iterable(corpus(nlp) for corpus in corpora)


def declare_labels(
    text: AnnotatedText, annotates: Sequence[str], *, path: Path, error: str = Errors.B330
) -> AnnotatedText:
    """Record which labels are annotated in a document.

    RAISES BioelError: `error` if a mention has a label that is not in `annotates`.
    """
    for m in text.mentions:
        if m.label not in annotates:
            found, known = f"{m.label!r} ({text.text[m.start : m.end]!r})", ", ".join(annotates)
            raise BioelError(error.format(path=path, id=text.id, found=found, annotates=known))
    return replace(text, annotates=tuple(annotates))


def read_texts(
    path: Path,
    *,
    format: str | None = None,
    prefix: str = "",
    spans_key: str | None = None,
) -> Iterator[AnnotatedText]:
    """Read the documents in a corpus file of any format, including .spacy.

    spans_key (str | None): Span group with the gold mentions in a .spacy file, or "doc.ents". None:
        "bioel_gold" if it has mentions, else any other place with mentions, with a warning [W335].
        Places with the same mentions count as one.
    RAISES BioelError: [B060] if a .spacy file is damaged, [B520] if its mentions are in several
        places, [B521] if they are not in `spans_key`, [B522] if `spans_key` is given for another
        format, and the same errors as the format's reader.
    """
    if format == "spacy" or (format is None and path.suffix == ".spacy"):
        return _read_docbin(path, prefix, spans_key)
    if spans_key is not None:
        raise BioelError(Errors.B522.format(problem=f"{path} has another format", option="them"))
    return read_corpus(path, format=format, prefix=prefix)


def read_docs(path: Path, vocab: Vocab) -> Iterator[Doc]:
    """Read a .spacy file.

    RAISES BioelError: [B060] if the file is missing, damaged or not a .spacy file.
    """
    return (doc for doc, _ in _docs_and_texts(path, _open_docbin(path), vocab, GOLD_KEY))


def _read_docbin(path: Path, prefix: str, spans_key: str | None) -> Iterator[AnnotatedText]:
    packed = _open_docbin(path)
    place = _find_gold(path, packed, spans_key)
    texts = _docs_and_texts(path, packed, Vocab(), place, prefix)
    for number, (doc, text) in enumerate(texts, start=1):
        text = text if text.id else replace(text, id=str(number))
        lacks_group = spans_key is None and place not in (DOC_ENTS, *doc.spans)
        if lacks_group and (doc.ents or any(doc.spans.values())):
            found = f"{_place_name(place)}, which document {text.id} lacks, and another place"
            raise BioelError(Errors.B520.format(path=path, found=found))
        yield text


def _find_gold(path: Path, packed: DocBin, spans_key: str | None) -> str:
    """Return the span group with the gold mentions, or "doc.ents" (see `read_texts`)."""
    wanted = GOLD_KEY if spans_key is None else spans_key
    counts, digests = Counter[str](), dict[str, int]()
    for number, (doc, text) in enumerate(_docs_and_texts(path, packed, Vocab(), wanted)):
        if text.mentions:
            return wanted
        for place in (*doc.spans, DOC_ENTS):
            with _spacy_errors(path):
                mentions = doc_to_text(doc, gold_key=place).mentions
            if mentions:
                counts[place] += len(mentions)
                spans = frozenset((m.start, m.end, m.label, m.ids) for m in mentions)
                digests[place] = hash((digests.get(place), number, spans))
    found = "; ".join(f"{n:,} in {_place_name(place)}" for place, n in counts.items())
    if counts and spans_key is not None:
        raise BioelError(Errors.B521.format(path=path, asked=_place_name(wanted), found=found))
    if len(set(digests.values())) > 1:
        raise BioelError(Errors.B520.format(path=path, found=found))
    for place, n in counts.items():
        _warn_once(Warnings.W335.format(path=path, place=_place_name(place), n=n))
        return place
    return wanted


_warn_once = lru_cache(LOGGER.warning)  # `spacy train` reads a corpus many times


def _place_name(place: str) -> str:
    return place if place == DOC_ENTS else f"doc.spans[{place!r}]"


def _open_docbin(path: Path) -> DocBin:
    with _spacy_errors(path):
        return DocBin().from_disk(path)


def _docs_and_texts(
    path: Path, packed: DocBin, vocab: Vocab, gold_key: str, prefix: str = ""
) -> Iterator[tuple[Doc, AnnotatedText]]:
    """Yield each Doc in a .spacy file with its annotated text. RAISES BioelError: [B060]"""
    docs = packed.get_docs(vocab)
    while True:
        with _spacy_errors(path):
            doc = next(docs, None)
            if doc is None:
                return
            text = doc_to_text(doc, gold_key=gold_key, prefix=prefix)
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
    """Tokenise a text, and add its entities and its gold mentions (doc.spans["bioel_gold"])."""
    doc = nlp.make_doc(text.text)
    doc.user_data[_DOC_ID_KEY] = text.id
    if text.entities is not None:
        entities = [
            doc.char_span(m.start, m.end, m.label, "|".join(m.ids), alignment_mode="expand")
            for m in text.entities
        ]
        doc.set_ents(filter_spans(span for span in entities if span is not None))
    return doc, add_gold(doc, text, widen=widen)


def doc_to_text(doc: Doc, *, gold_key: str = GOLD_KEY, prefix: str = "") -> AnnotatedText:
    """Convert a Doc to an annotated text.

    gold_key (str): Span group with the gold mentions, or "doc.ents".
    prefix (str): CURIE prefix for ids that have no prefix.
    """
    spans = doc.ents if gold_key == DOC_ENTS else tuple(doc.spans.get(gold_key, ()))
    scores = gold_scores(doc, key=gold_key) if gold_key in doc.spans else []
    if len(scores) != len(spans):  # scores are missing, or the group was filtered
        scores = [1.0] * len(spans)
    mentions = []
    for span, score in zip(spans, scores, strict=True):
        ids = tuple(curie(id_, prefix) for id_ in split_kb_id(span.kb_id_))
        place = (span.start_char, span.end_char)
        mentions.append(Mention(*place, span.label_, ids, probability=float(score)))
    doc_id, annotates = doc.user_data.get(_DOC_ID_KEY, ""), annotated_labels(doc, key=gold_key)
    ents = [Mention(e.start_char, e.end_char, e.label_, split_kb_id(e.kb_id_)) for e in doc.ents]
    entities = tuple(ents) if doc.has_annotation("ENT_IOB") else None
    return AnnotatedText(str(doc_id), doc.text, tuple(mentions), annotates, entities)


def docs_to_bin(docs: Iterable[Doc]) -> DocBin:
    """Pack Docs into a DocBin that keeps span groups and document ids."""
    return DocBin(docs=docs, store_user_data=True)
