"""Find, download and convert the corpora of `training/corpora.yml`, and build their KBs.

Keys of a corpus:

splits, kb.choices: alternatives; the first one is used whose files are all found. A choice without
    files uses the concepts and names of the training mentions.
labels: new names of mention labels; mentions of a label renamed to null are dropped.
annotates: labels that annotators looked for, if these are not all labels of a mixture.
prefix, prefixes: vocabulary of ids without one, for all labels or by label; null: they are not ids.
fold: the corpus comes in folds; "{fold}" is replaced by --vars.fold everywhere.
phrases: each row of a table is a document that consists of one mention.
label_types, settings: read by `train.py`.
about: read by `card.py`: `title`, `licence`, `domain`, `authors`, and `demo` if the pipeline is not
    meant for real work.

Keys of a file:

file, archive: name pattern or end of a path; the asset of project.yml that is or contains the file.
columns, encoding, format: of a table; if not UTF-8; of a source that only `phrases.py` reads.
ids, left_out, fifths: documents to keep: those listed in a file, those in none of some corpora, and
    those in some fifths by a hash of their ids.
skip_bad: leave out PubTator documents with a wrong row, with a note.
sentences: the part to read of a file of sentences.
mentions: files with the same sentences, or with the mentions of articles: a `label` each, without
    the concepts in `dropped` (see `plain.py`).

"a+b+c" is a mixture of corpora, each of which must list what it annotates. "a+b+c+dev" is also
trained on their development documents, once all choices are made; "a+b+c+half_dev" on half of them.
"a+b+c+without+d+e" has no document of d and e, to measure on corpora that a detector has not seen.
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
from concepts import without_bad
from corpus_files import DOWNLOADS, MISSING, Finder, Spec
from documents import FIFTHS, relabelled, selected
from doubts import doubts
from mixtures import check_annotated, join_kbs, write_mixture
from phrases import READERS, read_phrase_table
from plain import read_articles, read_sentences
from specs import (
    ASSETS,
    check_entry,
    find_split,
    is_mixture,
    left_out_of,
    load_spec,
    parts_of,
)

from spacy_bioel.cli.console import count_of, show_error, show_note
from spacy_bioel.cli.corpora import convert as convert_corpus
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
BAD_FOLD = "[T005] {corpus} does not have a fold {fold}: choose 0 to {last} (--vars.fold)."
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
        for part in [*parts_of(corpus), *left_out_of(corpus)]:
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
    # If the user specified a folder, test documents are not downloaded: often they are kept apart.
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
    for note in dict.fromkeys(notes):  # two splits may come from one file
        show_note(f"Left out: {note}")
    placed = sorted(p.relative_to(target) for p in target.rglob("*") if p.is_file())
    show_note(f"{target}: {', '.join(map(str, placed))}")


def is_complete(target: Path, spec: Spec) -> bool:
    """Tell whether an earlier run placed all files of this fold, and they still exist."""
    if not target.is_dir() or not all(path.exists() for path in target.rglob("*")):
        return False
    return "fold" not in spec or any(target.glob(f"train.fold-{spec['fold']}.*"))


def check_fold(corpus: str, spec: Spec, finder: Finder) -> None:
    """Check that a fold exists. RAISES BioelError: [T004] when only other folds are found."""
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
    """Return files that select documents of a corpus file or add mentions to them, with a role."""
    files = [{"file": choice["ids"], "role": "ids"}] if "ids" in choice else []
    for role in ("left_out", "mentions"):
        files += [file | {"role": role} for file in choice.get(role, [])]
    return files


def place_split(
    files: list[tuple[Spec, Path]],
    folder: Path,
    split: str,
    *,
    spec: Spec,
    note: Callable[[str], None] = show_note,
) -> None:
    """Link to the corpus file, or write JSON lines if documents are selected or relabelled.

    files (list): The corpus file, then those of `_other_files`.
    note (Callable): Receives a message on each document that is left out for a wrong row.
    """
    file, path = files[0]
    labels = spec.get("labels", {})
    if not labels and "fifths" not in file and len(files) == 1:
        suffix = "brat" if path.is_dir() else path.name.partition(".")[2]
        link_or_copy(path, folder / f"{split}.{suffix}")
        return
    mention_files = [path for other, path in files[1:] if other["role"] == "mentions"]
    if "sentences" in file:
        texts = read_sentences([path, *mention_files], file["sentences"])
    elif mention_files:
        mentions = [
            (listed["label"], listed.get("dropped", ()), mention_file)
            for listed, mention_file in zip(file["mentions"], mention_files, strict=True)
        ]
        texts = read_articles(path, mentions)
    elif spec.get("phrases"):
        texts = read_phrase_table(path, prefix=spec["prefix"])
    else:
        texts = read_texts(path, prefix=spec["prefix"])
    ids = [
        {line.strip() for _, line in numbered_lines(path)}
        for other, path in files[1:]
        if other["role"] == "ids"
    ]
    left_out = {
        text.id
        for other, path in files[1:]
        if other["role"] == "left_out"
        for text in read_texts(path)
    }
    kept = selected(
        texts,
        ids=ids[0] if ids else None,
        left_out=left_out,
        fifths=file.get("fifths", range(FIFTHS)),
    )
    prefixes = spec.get("prefixes", {})
    renamed = (relabelled(text, labels=labels, prefixes=prefixes) for text in kept)
    name = f"{split}.fold-{spec['fold']}.jsonl" if "fold" in spec else f"{split}.jsonl"
    skips = skipping_bad(lambda bad: note(bad.message)) if file.get("skip_bad") else nullcontext()
    with skips:
        write_texts_jsonl(folder / name, renamed)


def in_utf8(file: Spec, path: Path, folder: Path) -> Path:
    """Copy a file to UTF-8; return the file itself if its entry does not have an encoding."""
    if "encoding" not in file:
        return path
    copy = folder / path.name
    copy.write_bytes(path.read_bytes().decode(file["encoding"]).encode("utf8"))
    return copy


def link_or_copy(source: Path, target: Path) -> None:
    try:
        target.symlink_to(source.resolve())
    except OSError:  # Windows, unless the user may create links
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, target)


@app.command()
def convert(corpus: str, split: str) -> None:
    """Convert a split: train for training, test for evaluation, dev for both."""
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
        source_name = spec["kb"]["source"]
        show_note(f"{source_name} was not found: using the concepts of the training documents.")
    report = build_kb(concepts, Path("kb") / corpus, types=types, **about)
    counts = f"{count_of(report.concepts, 'concept')}, {count_of(report.names, 'name')}"
    show_note(f"kb/{corpus}: {counts}.")


def choose_sources(folder: Path, spec: Spec) -> list[tuple[Spec, Path]]:
    """Return the files of the choice that was fetched; [] for the training mentions."""
    finder = Finder([folder], may_download=False)
    return finder.choose([choice["files"] for choice in spec["kb"]["choices"]])


def chosen_types(chosen: list[tuple[Spec, Path]], spec: Spec) -> list[str] | None:
    """Return the types of concepts to keep; None: all."""
    return next(c.get("types") for c in spec["kb"]["choices"] if chosen[0][0] in c["files"])


def read_sources(chosen: Iterable[tuple[Spec, Path]], spec: Spec) -> Iterator[Concept]:
    """Read the concepts of all files of a choice, without bad records if these are few."""
    for file, path in chosen:
        if "columns" in file:
            concepts = read_table(path, columns=file["columns"], prefix=spec["prefix"])
        else:
            concepts = READERS.get(file.get("format"), read_ontology)(path, prefix=spec["prefix"])
        yield from without_bad(concepts)


def concepts_of_mentions(texts: Iterable[AnnotatedText]) -> Iterator[Concept]:
    """Yield a concept for each mention with one id, with its string as name and label as type."""
    for text in texts:
        for mention in text.mentions:
            if len(mention.ids) == 1:
                name = text.text[mention.start : mention.end]
                yield Concept(mention.ids[0], (name,), types=(mention.label,))


def main() -> None:
    """Run a command; exit with status 2 and one line on stderr if something is missing."""
    try:
        app()
    except BioelError as error:
        show_error(str(error))
        sys.exit(2)


if __name__ == "__main__":
    main()
