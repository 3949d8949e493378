"""Entries of `training/corpora.yml`, and where their files are; `corpora.py` explains the keys."""

from __future__ import annotations

from pathlib import Path

import srsly
from corpus_files import Spec

from spacy_bioel.errors import BioelError

CORPORA = Path(__file__).parents[1] / "corpora.yml"
ASSETS = Path("assets")
DEV_SHARES = {"dev": 1.0, "half_dev": 0.5}
TAUGHT = "taught"  # as teach.py writes it
UNKNOWN = "[T001] There is no corpus '{corpus}' in {path}. Choose from: {known}."
NO_SPLIT = (
    "[T003] There is no {split} split in {folder}. Run the step fetch; if the corpus comes "
    "without it, it cannot be used."
)
NOT_DECLARED = (
    "[T010] {corpus} does not say which labels it annotates, so that it cannot be mixed with "
    "others. Add `annotates: [LABEL, ...]` to it in {path}."
)
BAD_ENTRY = (
    "[T021] {path}, corpus {corpus}: expected {expected}, found {key} = {found}. Correct the "
    "entry; docs/tutorials/corpus.md has one to start from."
)


def is_mixture(corpus: str) -> bool:
    return "+" in corpus


def parts_of(corpus: str) -> list[str]:
    """The corpora of a mixture, "a+b+c", "a+b+c+dev" or "a+b+c+taught".

    RAISES BioelError: [T010] when one does not say what it annotates; those of `load_spec`.
    """
    parts = [part for part in corpus.split("+") if part not in (*DEV_SHARES, TAUGHT)]
    for part in parts:
        labels = load_spec(part).get("annotates")
        if not (labels and isinstance(labels, list)):
            raise BioelError(NOT_DECLARED.format(corpus=part, path=CORPORA))
    return parts


def dev_share_of(corpus: str) -> float:
    """The share of the development documents that a mixture is trained on, too."""
    return DEV_SHARES.get(corpus.rpartition("+")[2], 0.0)


def load_spec(corpus: str, *, fold: str = "*") -> Spec:
    """The entry of a corpus.

    fold (str): What "{fold}" stands for; "*" is the fold that was fetched, whichever that is.
        Of a mixture: the label types of all parts, and the settings of the first.
    RAISES BioelError: [T001] when there is none.
    """
    if is_mixture(corpus):
        specs = [load_spec(part, fold=fold) for part in parts_of(corpus)]
        types = {label: t for spec in reversed(specs) for label, t in spec["label_types"].items()}
        return {"prefix": "", "label_types": types, "settings": specs[0]["settings"]}
    specs = srsly.yaml_loads(CORPORA.read_text(encoding="utf8").replace("{fold}", fold))
    if corpus not in specs:
        known = ", ".join(specs)
        raise BioelError(UNKNOWN.format(corpus=corpus, path=CORPORA, known=known))
    return {"prefix": "", "label_types": {}, "settings": {}} | specs[corpus]


def check_entry(corpus: str, spec: Spec) -> None:
    """RAISES BioelError: [T021] on a value of another form than the steps read."""
    splits, kb = spec.get("splits"), spec.get("kb")
    splits = splits if isinstance(splits, dict) else {}
    kb = kb if isinstance(kb, dict) else {}
    forms = {
        "prefix": (spec["prefix"], str | None, "a prefix or null (several: `prefixes`)"),
        "label_types": (spec["label_types"], dict, "label_types with a list for each label"),
        "splits.train": (splits.get("train"), list, "splits with a list of files for train"),
        "splits.dev": (splits.get("dev"), list, "splits with a list of files for dev"),
        "kb.choices": (kb.get("choices"), list, "kb with a list of choices"),
    }
    for key, (found, form, expected) in forms.items():
        if not isinstance(found, form):
            about = {"path": CORPORA, "corpus": corpus, "expected": expected}
            raise BioelError(BAD_ENTRY.format(key=key, found=found, **about))


def find_split(corpus: str, split: str) -> Path:
    """RAISES BioelError: [T003] when it was not fetched."""
    files = sorted((ASSETS / corpus).glob(f"{split}.*"))
    if not files:
        raise BioelError(NO_SPLIT.format(split=split, folder=ASSETS / corpus))
    return files[0]
