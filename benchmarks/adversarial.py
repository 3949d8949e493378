"""Measure how time grows with texts that are hard: `python -m benchmarks.run adversarial`.

Each generator repeats what a rule looks for (a cue, a bullet, a symbol, an opening bracket without
its end) until the text has the requested length. Every pipeline links texts of 10,000 and 40,000
characters on one thread; the exponent says how processor time grows: 1 is linear, 2 quadratic. The
five worst of each pipeline are measured at up to 320,000 characters.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from itertools import count
from math import log
from pathlib import Path
from string import ascii_lowercase
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

from spacy.language import Language

import spacy_bioel
from benchmarks.record import NoteOption, Row, question, rows_of
from spacy_bioel.kb.build import build_kb
from spacy_bioel.loading import dictionary_pipeline, load_model, set_preset
from spacy_bioel.parallel import use_one_thread
from spacy_bioel.types import Concept

SHORT, LONG, LONGEST = 10_000, 40_000, 320_000
N_WORST = 5
WORST = "the worst of all"  # the highest exponent and the most seconds
# Times below this many seconds are mostly noise and costs that do not grow.
_FLOOR = 0.1

# Units that are repeated as they are.
_CHARACTERS = ".,-()[]{}\"'`/+*:;?!_=<>|~^#%&@\\\t\n\r\f \u00a0\u200b\u0301aA1éµα中😀"
_PAIRS = [
    "1,", "1.", "a.", "a-", "a/", "A/", "1/", "a,", "a(", "()", "[]", "(a", "a)", "\t\n", "\n ",
    "- ", "\n-", "\n\t", "|\n", "| ", "?\n", ":\n", ".\n", "' ", '" ', "a'", "A1", "1A", "p.", "c.",
    ">A", "*1", "+1", "-1", "_1", "(1", "1)", "a1", "α-", "-/", "–-", "é\u0301", "a\n", "a:", "a;",
]  # fmt: skip
UNITS = {
    "negations": "no fever, ", "denials": "Denies fever. ", "fevers absent": "fever absent ",
    "cues alone": "no denies without negative for ruled out ", "cue chain": "no no no no ",
    "uncertain": "possible fever ", "questions": "?fever ", "histories": "history of fever ",
    "family": "mother with fever, ", "relatives": "mother father sister brother ",
    "conditions": "if fever then ", "contrasts": "no fever but rash ", "or": "fever or ",
    "and": "fever and ", "nor": "neither fever nor rash ", "except": "no fever except rash ",
    "without full stops": "the patient has fever and no rash while ",
    "lines no fever": "no fever\n", "bullets": "- seizures\n", "numbers": "1. seizures\n",
    "stars": "* no seizures\n", "boxes": "[x] fever [ ] rash\n", "headers": "Family history:\n",
    "headers in capitals": "PAST MEDICAL HISTORY\nfever\n", "keys": "Fever: no\n",
    "table": "| fever | no | yes |\n", "tabbed table": "fever\tno\tyes\n",
    "mixed note": "Family history:\n- mother: fever\n- no rash\n\nExam: no fever. Hb 9.1\n",
    "hyphenated ends": "sei-\nzures ", "tabs": "seizures\t\t\t", "spaces": "seizures    ",
    "clinical short forms": "HTN, DM2, CKD3 ", "short forms": "AKI, ", "one short form": "CKD ",
    "measurements": "Hb 9.1 g/dL, WBC 3.1, ", "numbers alone": "120/80 ",
    "definitions": "acute kidney injury (AKI), ", "defined in brackets": "(AKI) ",
    "open definitions": "acute kidney injury (AKI ", "long brackets": "(fever and rash) ",
    "nested brackets": "(fever (", "square brackets": "[fever] ", "quotes": "\"fever\" ",
    "open quotes": "\"fever ", "apostrophes": "Crohn's ", "genes": "BRCA1 ",
    "lists of genes": "BRCA1, TP53, ", "genes by slash": "CDK4/6 and ", "slashes": "CDK4/",
    "gene ranges": "HDAC1-", "gene lists": "HDAC1, 2, 3, ", "greek": "IL-1α/β ",
    "organisms": "human mouse rat ", "genes of organisms": "mouse Trp53 and human TP53 ",
    "gene in organism": "In mouse and human, TP53 ", "cell lines": "HeLa cells ",
    "composites": "breast and ovarian cancer, ", "composite heads": "breast, ovarian, ",
    "types": "type 1 and 2 diabetes ", "vitamins": "vitamin A, B, C, ", "alleles": "HLA-A, B ",
    "variants": "V600E ", "protein variants": "p.Val600Glu ", "coding variants": "c.1799T>A ",
    "rs": "rs113488022 ", "variants in brackets": "BRAF (V600E) ",
    "phrases": "valine to glutamic acid ", "phrases at": "Val to Glu at codon 600 ",
    "deletions": "c.35delG ", "frames": "p.Lys23fs*7 ", "exons": "deletion of exon 19 ",
    "genotypes": "A/G ", "arrows": "A->G ", "positions": "+49 A/G ", "variant starts": "p.(",
    "long numbers": "c.1234567890", "letters and numbers": "A1T",
    "chemicals": "2-(4-chlorophenyl)-", "open formula": "2,3-(", "formulas": "NaCl, ",
    "names with commas": "1,2,3,4-tetra", "drugs": "clonidine ", "typos": "clonidnie naloxnoe ",
    "words": "the patient was seen ", "capitals": "THE PATIENT ", "sentences": "He had fever. ",
    "abbreviated": "e.g. i.e. et al. ", "initials": "J. K. ", "no spaces": "Fever.Rash.",
    "names in a chain": "breast cancer cell line ", "hyphens": "long-term-care-",
    "urls": "http://a.b/c?", "emails": "a.b@", "percent": "5% ", "ratios": "1:2:", "dna": "ACGT",
    "roman": "I, II, III, ", "combining": "e\u0301", "windows ends": "fever\r\n",
    "form feeds": "fever\f", "wide spaces": "fever\u3000",
}  # fmt: skip


def _letters(n: int) -> str:
    """Write a number in letters, so that each word of a text is new."""
    word = ""
    while True:
        n, last = divmod(n, 26)
        word = ascii_lowercase[last] + word
        if not n:
            return word


# Writers of the unit of a number: all units of a text differ.
VARYING: dict[str, Callable[[int], str]] = {
    "variant forms": lambda i: f"A{100 + i}T ",
    "positions of variants": lambda i: f"c.{100 + i}A>G, ",
    "rs numbers": lambda i: f"rs{1000 + i} ",
    "numbered": lambda i: f"{i}, ",
    "numbered lines": lambda i: f"{i}. fever\n",
    "new words": lambda i: f"{_letters(10_000 + i)} ",
    "new capitals": lambda i: f"{_letters(10_000 + i).upper()} ",
    "new symbols": lambda i: f"{_letters(1_000 + i).upper()}{i % 9} ",
    "new symbols in organisms": lambda i: (
        ("In mouse and human, " if i == 0 else "") + f"{_letters(1_000 + i).upper()}{i % 9}, "
    ),
    "new genes by slash": lambda i: f"CDK{i}/{i + 2} and ",
    "new definitions": lambda i: f"acute {_letters(i)} kidney injury (A{_letters(i).upper()}KI), ",
    "new definitions of genes": lambda i: f"alpha{i} beta{i} (AB{i}), ",
    "short form after definition": lambda i: "acute kidney injury (AKI). " if i == 0 else "AKI, ",
    "new short forms after": lambda i: f"{_letters(9_000 + i).upper()} (fever), ",
    "new typos": lambda i: f"clonid{_letters(i)}ne ",
    "new headers": lambda i: f"{_letters(700 + i).title()}:\nno fever\n",
    "deep bullets": lambda i: " " * (i % 40) + "- fever\n",
    "cells": lambda i: f"HeLa-{i} cells ",
    "new rows": lambda i: f"| {_letters(700 + i)} | {i} |\n",
    "organism once": lambda i: "mice. " if i == 0 else f"TP{i} ",
    "a bracket and then": lambda i: "(" if i == 0 else "fever, ",
    "a quote and then": lambda i: '"' if i == 0 else "fever, ",
    "a cue and then": lambda i: "no " if i == 0 else "fever ",
    "cue and words": lambda i: "no " if i == 0 else "word ",
    "a header and then": lambda i: "Family history:\n" if i == 0 else "fever ",
}


def generators() -> dict[str, Callable[[int], str]]:
    """Return functions from a length in characters to a text, by name."""

    def repeated(unit: str) -> Callable[[int], str]:
        return lambda n: (unit * (n // len(unit) + 1))[:n]

    def written(write: Callable[[int], str]) -> Callable[[int], str]:
        def text(n: int) -> str:
            units: list[str] = []
            length = 0
            for i in count():
                if length >= n:
                    return "".join(units)[:n]
                units.append(write(i))
                length += len(units[-1])
            raise AssertionError

        return text

    named = {repr(unit): repeated(unit) for unit in (*_CHARACTERS, *_PAIRS)}
    named |= {f"fever and then {c!r}": lambda n, c=c: "fever" + c * (n - 5) for c in _CHARACTERS}
    named |= {name: repeated(unit) for name, unit in UNITS.items()}
    return named | {name: written(write) for name, write in VARYING.items()}


def _own_kb(folder: Path) -> str:
    """Build a small knowledge base of one's own, with names of several kinds."""
    names = ["fever", "rash", "seizures", "acute kidney injury", "breast cancer", "ovarian cancer"]
    names += ["BRCA1", "TP53", "CDK4", "CDK6", "clonidine", "naloxone", "diabetes", "vitamin A"]
    names += ["human", "mouse", "HeLa", "word", "a", "(", "1,2,3,4-tetrachlorobenzene"]
    concepts = [Concept(f"X:{i}", (name,)) for i, name in enumerate(names, 1)]
    build_kb(concepts, folder / "kb")
    return str(folder / "kb")


def pipelines(folder: Path) -> Iterator[tuple[str, Language]]:
    yield "starter", spacy_bioel.load()
    yield "starter, clinical", load_model("starter", preset="clinical")
    kb = _own_kb(folder)
    yield "own knowledge base", dictionary_pipeline(kb)
    clinical = dictionary_pipeline(kb)
    set_preset(clinical, "clinical")
    yield "own knowledge base, clinical", clinical


def seconds(nlp: Language, text: str) -> float:
    """Return the processor time of linking a text and reading the context of its mentions."""
    gc.collect()
    start = process_time()
    doc = nlp(text)
    for group in list(doc.spans.values()):
        for span in group:
            span._.negated  # noqa: B018
    return process_time() - start


def exponent(
    nlp: Language, text: Callable[[int], str], lengths: tuple[int, int]
) -> tuple[float, float]:
    """Return the exponent of the growth between two lengths, and the seconds at the second."""
    first, last = (seconds(nlp, text(n)) for n in lengths)
    ratio = lengths[1] / lengths[0]
    for _ in range(2):
        if last > _FLOOR and last > first * ratio:  # measure again, as this may be noise
            again = [seconds(nlp, text(n)) for n in lengths]
            first, last = min(first, again[0]), min(last, again[1])
    return log(max(last, _FLOOR) / max(first, _FLOOR / ratio)) / log(ratio), last


@question("adversarial", key=("system", "text", "characters", "metric"))
def adversarial(note: NoteOption = "") -> Iterator[Row]:
    use_one_thread()
    gc.set_threshold(50_000, 20, 20)  # as in the workers of the service
    with TemporaryDirectory() as folder:
        for system, nlp in pipelines(Path(folder)):
            nlp("The patient has fever.")  # loads and builds what the first use does
            gc.freeze()
            texts = generators()
            growths = {name: exponent(nlp, text, (SHORT, LONG)) for name, text in texts.items()}
            worst = sorted(growths, key=lambda name: -growths[name][0])[:N_WORST]
            slowest = max(growths, key=lambda name: growths[name][1])
            about = {"n": len(growths), "note": note}
            for name in dict.fromkeys([*worst, slowest]):
                yield from _rows(system, name, LONG, *growths[name], **about)
            yield from _rows(system, WORST, LONG, *map(max, *growths.values()), **about)
            for n in (LONGEST // 2, LONGEST):
                grown = {name: exponent(nlp, texts[name], (n // 4, n)) for name in worst}
                for name, growth in grown.items():
                    yield from _rows(system, name, n, *growth, **about)
                about["n"] = len(grown)
                yield from _rows(system, WORST, n, *map(max, *grown.values()), **about)


def _rows(
    system: str, name: str, characters: int, exponent: float, seconds: float, **about: Any
) -> Iterator[Row]:
    values = {"exponent": exponent, "seconds": seconds}
    yield from rows_of(system, values, text=name, characters=characters, **about)
