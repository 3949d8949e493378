"""The corpora of `training/corpora.yml`: find or download them, convert them, build their KB.

Keys of a corpus there: `splits` and `kb.choices` list alternatives, of which the first is taken
whose files are all found. A file has a name pattern, or the end of a path (`file`), the asset of
project.yml that is or contains it (`archive`, if not the file itself), the ids of the documents to
keep (`ids`), the `columns` of a table, its `encoding` if that is not UTF-8, and the `format` of a
source that only `phrases.py` reads. A choice without files stands for the concepts and names of the
training mentions. `labels` renames mention labels; the mentions of a label renamed to null are
dropped. `annotates` are the labels that were looked for, if these are not all that a mixture has.
`prefix` is for ids that name no vocabulary, `prefixes` for those of single labels; null: these are
no ids. A file may have `fifths`, the fifths of the documents to keep, by a hash of their ids,
`left_out`, corpora whose documents are not kept, and `skip_bad`: documents of PubTator with a wrong
row are left out, with a note. `sentences` is the part of a file of sentences, and `mentions` are
files with the same sentences, or with the mentions of articles: of one `label` each, and of all
concepts but those `dropped` (`plain.py`).
"a+b+c" is a mixture of corpora, each of which must say what it annotates. "a+b+c+dev" is trained on
their development documents too, when all is chosen, and "a+b+c+half_dev" on half of these. "{fold}"
stands for --vars.fold everywhere; a corpus in folds says so by `fold`. `phrases` says that each row
of a table is a document that is one mention. `label_types` and `settings` are for `train.py`,
`about` is for `card.py`: `title`, `licence`, `domain`, `authors`, and `demo`, of a corpus whose
pipeline is for no real work.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from corpus_files import DOWNLOADS, MISSING, Finder, Spec
from documents import FIFTHS, relabelled, selected
from doubts import doubts
from mixtures import check_annotated, join_kbs, write_mixture
from phrases import READERS, read_phrase_table
from plain import read_articles, read_sentences
from specs import ASSETS, check_entry, find_split, is_mixture, load_spec, parts_of

from spacy_bioel.cli.console import count_of, show_error, show_note
from spacy_bioel.cli.documents import convert as convert_corpus
from spacy_bioel.corpus import read_texts
from spacy_bioel.errors import BioelError
from spacy_bioel.files import replacing_folder
from spacy_bioel.io.formats import read_ontology
from spacy_bioel.io.jsonl import write_texts_jsonl
from spacy_bioel.io.open import numbered_lines, skipping_bad
from spacy_bioel.io.table import read_table
from spacy_bioel.kb.build import build_kb
from spacy_bioel.types import AnnotatedText, Concept

SPLITS = ("train", "dev", "test")

FOLDS = 10  # of every corpus that comes in folds
BAD_FOLD = "[T005] There is no fold {fold} of {corpus}: choose one of 0 to {last} (--vars.fold)."
NO_FOLD = (
    "[T004] There is no fold {fold} of {corpus} below {folders}, only {found}. Choose one of "
    "these (--vars.fold NUMBER), or put {file} there."
)
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def fetch(
    corpus: str,
    data: Annotated[str, typer.Option()] = "",
    fold: Annotated[int, typer.Option()] = 0,
) -> None:
    """Place the splits of a corpus and the sources of its KB in assets/CORPUS."""
    if is_mixture(corpus):
        for part in parts_of(corpus):
            fetch(part, data=data, fold=fold)
        write_mixture(corpus)
        return
    spec, target = load_spec(corpus, fold=str(fold)), ASSETS / corpus
    check_entry(corpus, spec)
    if "fold" in spec and not 0 <= fold < FOLDS:
        raise BioelError(BAD_FOLD.format(fold=fold, corpus=corpus, last=FOLDS - 1))
    folder = spec.get("folder", data)
    if not folder and is_complete(target, spec):
        show_note(f"{target} is complete.")
        return
    if folder and not Path(folder).is_dir():
        raise BioelError(
            MISSING.format(file=corpus, folders=folder, reason="there is no such folder")
        )
    DOWNLOADS.mkdir(parents=True, exist_ok=True)
    folders = [Path(folder)] * bool(folder) + [DOWNLOADS]
    finder = Finder(folders, may_download=True)
    # A folder that was given is all there is of the test documents: often they are kept elsewhere.
    test_finder = Finder(folders, may_download=not folder)
    notes: list[str] = []
    with replacing_folder(target) as staging, TemporaryDirectory() as decoded:
        for split in SPLITS:
            listed = spec["splits"].get(split) or []
            if not listed and split == "test":
                continue
            choices = [[choice, *_other_files(choice)] for choice in listed]
            try:
                files = (test_finder if split == "test" else finder).choose(choices)
            except BioelError:
                if split != "test":
                    check_fold(corpus, spec, finder)
                    raise
                names = ", ".join(choice["file"] for choice in spec["splits"]["test"])
                show_note(f"No test split of {corpus}: {names} was not found. Training needs none.")
                continue
            files = [(file, in_utf8(file, path, Path(decoded))) for file, path in files]
            place_split(files, staging, split, spec=spec, note=notes.append)
        (staging / "kb").mkdir()
        for file, path in finder.choose([choice["files"] for choice in spec["kb"]["choices"]]):
            if "encoding" in file:
                in_utf8(file, path, staging / "kb")
            else:
                link_or_copy(path, staging / "kb" / path.name)
    for note in dict.fromkeys(notes):  # two splits may be parts of one file
        show_note(f"Left out: {note}")
    placed = sorted(p.relative_to(target) for p in target.rglob("*") if p.is_file())
    show_note(f"{target}: {', '.join(map(str, placed))}")


def is_complete(target: Path, spec: Spec) -> bool:
    """Whether an earlier run placed all files, of this fold, and they are still there."""
    if not target.is_dir() or not all(path.exists() for path in target.rglob("*")):
        return False
    return "fold" not in spec or any(target.glob(f"train.fold-{spec['fold']}.*"))


def check_fold(corpus: str, spec: Spec, finder: Finder) -> None:
    """RAISES BioelError: [T004] when other folds of the corpus are there, but not this one."""
    if "fold" not in spec:
        return
    pattern = load_spec(corpus)["splits"]["train"][0]["file"]
    paths = finder.find_all(pattern)
    found = sorted({int(fold[1]) for path in paths if (fold := re.search(r"(\d+)", path.name))})
    if found and int(spec["fold"]) not in found:
        raise BioelError(
            NO_FOLD.format(
                fold=spec["fold"],
                corpus=corpus,
                folders=", ".join(map(str, finder.folders)),
                found=", ".join(map(str, found)),
                file=spec["splits"]["train"][0]["file"],
            )
        )


def _other_files(choice: Spec) -> list[Spec]:
    """Files that say which documents of another one are kept, or have mentions in them."""
    ids = [{"file": choice["ids"], "says": "ids"}] if "ids" in choice else []
    for says in ("left_out", "mentions"):
        ids += [file | {"says": says} for file in choice.get(says, [])]
    return ids


def place_split(
    files: list[tuple[Spec, Path]],
    folder: Path,
    split: str,
    *,
    spec: Spec,
    note: Callable[[str], None] = show_note,
) -> None:
    """Link to the file, or write what it says to JSON lines where ids or labels have a say.

    files (list): The corpus, and those of `_other_files`.
    note (Callable): Is told of each document that is left out for a wrong row.
    """
    file, path = files[0]
    labels = spec.get("labels", {})
    if not labels and "fifths" not in file and len(files) == 1:
        ends = "brat" if path.is_dir() else path.name.partition(".")[2]
        link_or_copy(path, folder / f"{split}.{ends}")
        return
    beside = [path for about, path in files[1:] if about["says"] == "mentions"]
    if "sentences" in file:
        texts = read_sentences([path, *beside], file["sentences"])
    elif beside:
        said = [(m["label"], m.get("dropped", ())) for m in file["mentions"]]
        texts = read_articles(
            path, [(*one, other) for one, other in zip(said, beside, strict=True)]
        )
    elif spec.get("phrases"):
        texts = read_phrase_table(path, prefix=spec["prefix"])
    else:
        texts = read_texts(path, prefix=spec["prefix"])
    ids = [
        {line.strip() for _, line in numbered_lines(other)}
        for about, other in files[1:]
        if about["says"] == "ids"
    ]
    left_out = {
        text.id
        for about, other in files[1:]
        if about["says"] == "left_out"
        for text in read_texts(other)
    }
    kept = selected(
        texts,
        ids=ids[0] if ids else None,
        left_out=left_out,
        fifths=file.get("fifths", range(FIFTHS)),
    )
    prefixes = spec.get("prefixes", {})
    named = (relabelled(text, labels=labels, prefixes=prefixes) for text in kept)
    name = f"{split}.fold-{spec['fold']}.jsonl" if "fold" in spec else f"{split}.jsonl"
    skips = skipping_bad(lambda bad: note(bad.message)) if file.get("skip_bad") else nullcontext()
    with skips:
        write_texts_jsonl(folder / name, named)


def in_utf8(file: Spec, path: Path, folder: Path) -> Path:
    """A copy of a file with another encoding than UTF-8; others are returned as they are."""
    if "encoding" not in file:
        return path
    copy = folder / path.name
    copy.write_bytes(path.read_bytes().decode(file["encoding"]).encode("utf8"))
    return copy


def link_or_copy(source: Path, target: Path) -> None:
    try:
        target.symlink_to(source.resolve())
    except OSError:  # Windows, unless the user may
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, target)


@app.command()
def convert(corpus: str, split: str) -> None:
    """Convert a split: train for training, test for measuring, dev for both."""
    source, prefix = find_split(corpus, split), load_spec(corpus)["prefix"]
    if split == "train" and not is_mixture(corpus):
        check_annotated(corpus)
    if split != "test":
        convert_corpus(source, Path("corpus") / corpus / f"{split}.spacy", prefix=prefix)
    if split != "train":
        convert_corpus(source, Path("corpus") / corpus / f"{split}.jsonl", prefix=prefix)
        for warning in doubts(corpus, split):
            show_note(f"Warning: {warning}")


@app.command()
def kb(corpus: str, umls: Annotated[str, typer.Option()] = "") -> None:
    """Build kb/CORPUS from the sources in assets/CORPUS/kb, or from those of a mixture."""
    if is_mixture(corpus):
        for part in parts_of(corpus):
            kb(part, umls=umls)
        join_kbs([Path("kb") / part for part in parts_of(corpus)], Path("kb") / corpus)
        return
    spec = load_spec(corpus)
    about = {key: spec["kb"].get(key, "") for key in ("source", "release", "licence")}
    types = None
    if chosen := choose_sources(ASSETS / corpus / "kb", spec):
        concepts, types = read_sources(chosen, spec), chosen_types(chosen, spec)
    elif umls and not spec["prefix"]:  # UMLS ids are bare
        concepts = read_ontology(umls, format="umls")
    else:
        source = find_split(corpus, "train")
        concepts = concepts_of_mentions(read_texts(source, prefix=spec["prefix"]))
        about = {"source": "mentions of the training documents"}
        wanted = spec["kb"]["source"]
        show_note(f"Without {wanted}, the concepts are those of the training documents.")
    report = build_kb(concepts, Path("kb") / corpus, types=types, **about)
    counts = f"{count_of(report.concepts, 'concept')}, {count_of(report.names, 'name')}"
    show_note(f"kb/{corpus}: {counts}.")


def choose_sources(folder: Path, spec: Spec) -> list[tuple[Spec, Path]]:
    """The files of the choice that was fetched; none, if that is the training mentions."""
    finder = Finder([folder], may_download=False)
    return finder.choose([choice["files"] for choice in spec["kb"]["choices"]])


def chosen_types(chosen: list[tuple[Spec, Path]], spec: Spec) -> list[str] | None:
    """The types of concepts to keep; None: all."""
    return next(c.get("types") for c in spec["kb"]["choices"] if chosen[0][0] in c["files"])


def read_sources(chosen: Iterable[tuple[Spec, Path]], spec: Spec) -> Iterator[Concept]:
    """The concepts of all files of a choice."""
    for file, path in chosen:
        if "columns" in file:
            yield from read_table(path, columns=file["columns"], prefix=spec["prefix"])
        else:
            yield from READERS.get(file.get("format"), read_ontology)(path, prefix=spec["prefix"])


def concepts_of_mentions(texts: Iterable[AnnotatedText]) -> Iterator[Concept]:
    """A concept for each id, named and typed as the mentions that have no other id are."""
    for text in texts:
        for mention in text.mentions:
            if len(mention.ids) == 1:
                name = text.text[mention.start : mention.end]
                yield Concept(mention.ids[0], (name,), types=(mention.label,))


def main() -> None:
    """Run a command. Exits with status 2 and one line on stderr when something is missing."""
    try:
        app()
    except BioelError as error:
        show_error(str(error))
        sys.exit(2)


if __name__ == "__main__":
    main()
