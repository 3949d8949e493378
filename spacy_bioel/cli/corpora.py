"""Commands for corpora.

`bioel convert` writes spaCy's training format or JSON lines, and `bioel corpus check` examines a
corpus before training on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option

from spacy_bioel.cli import console
from spacy_bioel.cli.kb_show import open_kb_argument
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.files import replacing_file
from spacy_bioel.io.jsonl import write_texts_jsonl
from spacy_bioel.io.open import counting_kept
from spacy_bioel.types import AnnotatedText

if TYPE_CHECKING:
    from spacy.language import Language


@console.expand_options
def convert(
    corpus: Annotated[Path, Argument(help="PubTator, BioC, BRAT, JSON lines or .spacy.")],
    out: Annotated[Path, Argument(help="File to write: OUT.spacy or OUT.jsonl.")],
    options: console.GoldPlace,
    format: console.Format = None,
    prefix: console.Prefix = "",
    lang: Annotated[str, Option(help="Language of the tokenizer.")] = "en",
    tokenizer: Annotated[
        str, Option(help="Registered tokenizer; use the same one for training.")
    ] = "spacy-bioel.BioTokenizer.v1",
    widen: Annotated[
        bool, Option(help="Widen mentions that split tokens to whole tokens; otherwise drop them.")
    ] = True,
    skip_bad: console.SkipBad = None,
    json_file: console.Json = None,
) -> None:
    """Convert a corpus, and report mentions that cannot be aligned to tokens.

    OUT.spacy stores the gold mentions in doc.spans["bioel_gold"], with ids joined by "|" in kb_id_.
    OUT.jsonl stores character offsets, without tokens. JSON lines may come from `bioel link`,
    Prodigy or doccano. In a .spacy file, the gold mentions may be in any span group or in doc.ents.
    A corpus without mentions is refused.

    With --skip-bad, documents with an error are left out: blocks of PubTator, lines of JSON, BRAT
    files and BioC documents. A damaged file always stops the command.

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
    """Count documents and mentions. RAISES BioelError: [B076] at the end if none has a mention."""
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


@console.expand_options
def check_command(
    train: Annotated[Path, Argument(help="Training documents, as for `bioel convert`.")],
    dev: Annotated[Path, Argument(help="Development documents.")],
    kb: Annotated[list[str], Option(help="Knowledge base: a folder or starter:NAME; repeatable.")],
    options: console.GoldOptions,
    json_file: console.Json = None,
    html: console.Html = None,
) -> None:
    """Check a corpus before training: labels, ids, offsets, overlaps, repeated documents.

    The table counts the mentions of each label, the gold ids that the knowledge base has, and the
    ids and strings in DEV that TRAIN lacks. All faults are listed. The exit status is 1 if training
    makes no sense: no mentions or no ids, fewer than half of the ids in the knowledge base, most
    offsets inside words, DEV and TRAIN with the same documents or without a common label. The page
    of --html also shows the lengths of documents and mentions, and what TRAIN lacks by label.

    Example: `bioel corpus check train.pubtator dev.pubtator --kb kb/mine --prefix MESH`
    """
    from spacy_bioel.cli.inputs import stream_mapped_gold
    from spacy_bioel.evaluation.corpus_check import (
        describe,
        find_faults,
        summarise,
        unseen_by_label,
    )
    from spacy_bioel.export.pages import PAGES, bins_of
    from spacy_bioel.kb.bundled import open_kbs
    from spacy_bioel.loading import dictionary_pipeline

    console.check_distinct([train, dev], [json_file, html])
    base, nlp = open_kbs(kb, open_kb_argument), dictionary_pipeline(kb)
    seen = set[str]()  # an option may apply to one of the files only
    summaries = []
    for path in (train, dev):
        texts = stream_mapped_gold(path, options, seen=seen, is_last=path is dev)
        summaries.append(summarise(console.track(texts, str(path)), path, nlp))
    first, second = summaries
    rows = describe(first, base), describe(second, base, first)
    report: dict[str, Any] = {"train": rows[0], "dev": rows[1]}
    faults = list(find_faults(first, second, base))
    report["errors"] = [message for message in faults if message.startswith("[B")]
    report["warnings"] = [message for message in faults if not message.startswith("[B")]
    titles, columns = dict.fromkeys(chain(*rows)), ("train", "dev")
    cells = [(t, *(f"{of[t]:,}" if t in of else "" for of in rows)) for t in titles]
    if console.write_json(json_file, report):
        console.show_table(("", *columns), cells)
    if html is not None:
        of_mentions = bins_of(first.mention_lengths, second.mention_lengths)
        of_documents = bins_of(first.lengths, second.lengths)
        unseen = unseen_by_label(first, second)
        charts = [
            ("Mentions by label.", ("label", *columns), _shares(first.mentions, second.mentions)),
            ("% of dev's ids and strings that train lacks.", ("label", "ids", "strings"), unseen),
            ("Mentions by number of tokens.", ("tokens", *columns), _shares(*of_mentions)),
            ("Documents by number of tokens.", ("tokens", *columns), _shares(*of_documents)),
        ]
        tables = [("Counts", ("Count", *columns), cells)]
        about = {"messages": faults, "charts": charts, "tables": tables}
        with console.writing(html) as file:
            file.write(PAGES.get_template("report.html").render(about, title="Corpus check"))
    for message in report["warnings"]:
        console.show_note(message)
    for message in report["errors"]:
        console.show_error(message)
    if report["errors"]:
        raise Exit(1)


def _shares(*counts: Counter[str]) -> list[tuple[str, *tuple[float, ...]]]:
    """Return each name with the percentages of it in several counts."""
    names = dict.fromkeys(chain(*counts))
    return [(name, *(100 * of[name] / max(of.total(), 1) for of in counts)) for name in names]
