"""Commands for corpora.

`bioel convert` writes spaCy's training format or JSON lines, and `bioel corpus check` examines a
corpus before training on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from spacy_bioel.cli import console
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.files import replacing_file
from spacy_bioel.io.jsonl import write_texts_jsonl
from spacy_bioel.io.open import counting_kept
from spacy_bioel.types import AnnotatedText

if TYPE_CHECKING:
    from spacy.language import Language


@console.expand_options
def convert(
    corpus: Annotated[Path, Argument(help="Corpus as PubTator, BioC, BRAT, JSON lines or .spacy.")],
    out: Annotated[Path, Argument(help="File to write: OUT.spacy or OUT.jsonl.")],
    options: console.GoldPlace,
    format: console.Format = None,
    prefix: console.Prefix = "",
    lang: Annotated[str, Option(help="Language code for the tokenizer.")] = "en",
    tokenizer: Annotated[
        str, Option(help="Name of a registered tokenizer; use the same one for training.")
    ] = "spacy-bioel.BioTokenizer.v1",
    widen: Annotated[
        bool, Option(help="Widen mentions that start or end inside a token; otherwise, drop them.")
    ] = True,
    skip_bad: console.SkipBad = None,
    json_file: console.Json = None,
) -> None:
    """Convert a corpus and report mentions that cannot be aligned with tokens.

    OUT.spacy stores the gold mentions in doc.spans["bioel_gold"], with ids joined by "|" in kb_id_.
    OUT.jsonl stores character offsets, without tokens. JSON lines may come from `bioel link`,
    Prodigy or doccano. In a .spacy file, the gold mentions may be in any span group or in doc.ents.
    A corpus without mentions is rejected.

    With --skip-bad, documents with errors (PubTator blocks, JSON lines, BRAT files, BioC documents)
    are skipped. A damaged file always stops the command.

    Example: `bioel convert train.pubtator train.spacy --prefix MESH`
    """
    from spacy_bioel.corpus import read_texts

    console.check_distinct([corpus], [out, skip_bad, json_file])
    place, counts = options.key(), Counter(documents=0, mentions=0)
    with console.reporting_bad(skip_bad, sources=[corpus]), console.naming(out):
        texts = counting_kept(read_texts(corpus, format=format, prefix=prefix, spans_key=place))
        texts = console.track(_counted(texts, counts, corpus), "Converting")
        console.make_folder(out.parent)
        if out.suffix == ".jsonl":
            write_texts_jsonl(out, texts)
            report: dict[str, Any] = {}
            console.show_note(f"{console.count_of(counts['mentions'], 'mention')}.")
        elif out.suffix == ".spacy":
            report = _write_docbin(texts, out, nlp=_make_nlp(lang, tokenizer), widen=widen)
        else:
            raise BioelError(Errors.B074.format(path=out))
    n_documents = console.count_of(counts["documents"], "document")
    console.show_note(f"{corpus}: {n_documents} written to {out}.")
    console.write_json(json_file, counts | report)


def _counted(
    texts: Iterable[AnnotatedText], counts: Counter[str], corpus: Path
) -> Iterator[AnnotatedText]:
    """Count documents and mentions. RAISES BioelError: [B076] if the corpus has no mentions."""
    for text in texts:
        counts.update(documents=1, mentions=len(text.mentions))
        yield text
    if not counts["mentions"]:
        raise BioelError(Errors.B076.format(path=corpus, n=counts["documents"]))


def _make_nlp(lang: str, tokenizer: str) -> Language:
    import spacy

    try:
        spacy.util.get_lang_class(lang)
    except ImportError as error:
        raise BioelError(Errors.B410.format(lang=lang, error=error)) from error
    try:
        return spacy.blank(lang, config={"nlp": {"tokenizer": {"@tokenizers": tokenizer}}})
    except (ImportError, ValueError) as error:
        raise BioelError(Errors.B075.format(lang=lang, tokenizer=tokenizer, error=error)) from error


def _write_docbin(
    texts: Iterable[AnnotatedText], out: Path, *, nlp: Language, widen: bool
) -> dict[str, Any]:
    """Write texts as Docs with gold spans. RETURNS (dict): Widened and dropped mentions."""
    from spacy_bioel.corpus import Alignment, docs_to_bin, text_to_doc

    total, packed = Alignment(), docs_to_bin([])
    for text in texts:
        doc, alignment = text_to_doc(nlp, text, widen=widen)
        total.add(alignment)
        packed.add(doc)
    with replacing_file(out) as path:
        packed.to_disk(path)
    counts = f"{total.widened:,} widened to tokens, {len(total.lost):,} lost"
    console.show_note(f"{console.count_of(total.n, 'mention')}: {counts}.")
    for lost in total.lost[:5]:
        console.show_note(f"  lost: {lost}")
    return {"widened": total.widened, "lost": total.lost}
