"""Read entries of `training/corpora.yml`; `corpora.py` explains their keys."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

from corpus_files import Spec, parse_yaml

from spacy_bioel.errors import BioelError

CORPORA = Path(__file__).parents[1] / "corpora.yml"
ASSETS = Path("assets")
DEV_SHARES = {"dev": 1.0, "half_dev": 0.5}
TAUGHT = "taught"  # a corpus that teach.py writes
WITHOUT = "+without+"  # before the corpora whose documents a mixture leaves out
UNKNOWN = "[T001] There is no corpus '{corpus}' in {path}. Choose from: {known}."
NO_SPLIT = (
    "[T003] {folder} does not have a {split} split. Run the step fetch; if the corpus comes "
    "without this split, it cannot be used."
)
NOT_DECLARED = (
    "[T010] {corpus} does not list the labels it annotates, so it cannot be mixed with "
    "others. Add `annotates: [LABEL, ...]` to it in {path}."
)
BAD_ENTRY = (
    "[T021] {path}, corpus {corpus}: expected {expected}, found {key} = {found}. Correct the "
    "entry; docs/tutorials/corpus.md has an example."
)


def is_mixture(corpus: str) -> bool:
    return "+" in corpus


def parts_of(corpus: str) -> list[str]:
    """Return the corpora of a mixture, "a+b", "a+b+dev", "a+b+taught" or "a+b+without+c+d".

    RAISES BioelError: [T010] when one does not list its labels; the errors of `load_spec`.
    """
    mixed = corpus.partition(WITHOUT)[0].split("+")
    parts = [part for part in mixed if part not in (*DEV_SHARES, TAUGHT)]
    for part in parts:
        labels = load_spec(part).get("annotates")
        if not (labels and isinstance(labels, list)):
            raise BioelError(NOT_DECLARED.format(corpus=part, path=CORPORA))
    return parts


def left_out_of(corpus: str) -> list[str]:
    """Return the corpora whose documents a mixture leaves out, whichever corpus has them."""
    return [part for part in corpus.partition(WITHOUT)[2].split("+") if part not in ("", TAUGHT)]


def dev_share_of(corpus: str) -> float:
    """Return the share of the development documents that a mixture is also trained on."""
    return DEV_SHARES.get(corpus.partition(WITHOUT)[0].rpartition("+")[2], 0.0)


def load_spec(corpus: str, *, fold: str = "*") -> Spec:
    """Return the entry of a corpus; for a mixture the label types of all and settings of the first.

    fold (str): Replaces "{fold}"; "*" matches the fold that was fetched.
    RAISES BioelError: [T001] for an unknown corpus.
    """
    if is_mixture(corpus):
        specs = [load_spec(part, fold=fold) for part in parts_of(corpus)]
        types = {label: t for spec in reversed(specs) for label, t in spec["label_types"].items()}
        return {"prefix": "", "label_types": types, "settings": specs[0]["settings"]}
    specs = parse_yaml(CORPORA.read_text(encoding="utf8").replace("{fold}", fold))
    if corpus not in specs:
        known = ", ".join(specs)
        raise BioelError(UNKNOWN.format(corpus=corpus, path=CORPORA, known=known))
    return {"prefix": "", "label_types": {}, "settings": {}} | deepcopy(specs[corpus])


def check_entry(corpus: str, spec: Spec) -> None:
    """Check the types of the values. RAISES BioelError: [T021]."""
    splits, kb = spec.get("splits"), spec.get("kb")
    splits = splits if isinstance(splits, dict) else {}
    kb = kb if isinstance(kb, dict) else {}
    expected_forms = {
        "prefix": (spec["prefix"], str | None, "a prefix or null (several: `prefixes`)"),
        "label_types": (spec["label_types"], dict, "label_types with a list for each label"),
        "splits.train": (splits.get("train"), list, "splits with a list of files for train"),
        "splits.dev": (splits.get("dev"), list, "splits with a list of files for dev"),
        "kb.choices": (kb.get("choices"), list, "kb with a list of choices"),
    }
    for key, (value, form, expected) in expected_forms.items():
        if not isinstance(value, form):
            about = {"path": CORPORA, "corpus": corpus, "expected": expected}
            raise BioelError(BAD_ENTRY.format(key=key, found=value, **about))


def find_split(corpus: str, split: str) -> Path:
    """Return the file of a fetched split. RAISES BioelError: [T003] if it was not fetched."""
    files = sorted((ASSETS / corpus).glob(f"{split}.*"))
    if not files:
        raise BioelError(NO_SPLIT.format(split=split, folder=ASSETS / corpus))
    return files[0]
