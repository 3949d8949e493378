"""Growth of time with the size of the input. python -m benchmarks.run linear_time --system NAME

Inputs that once took quadratic time or more, each at a size and at half of it. The seconds are
processor time at the whole size, the minimum of three runs. The ratio is the time at the whole size
over the time at half of it: 2 if time is linear. NAME is the version that is measured.

abbreviations   a document that defines so many short forms, through an untrained bioel_mentions
separators      so many "-" without a space, through the tokenizer
chain           a knowledge base of one concept and so many retired ids, each replaced by the next
spaces          a file of no known format that begins with so many spaces, to be recognised
strings         so many different mentions of a document that share their candidates
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Annotated

import spacy
import typer
from spacy.language import Language
from spacy.training import Example

from benchmarks.record import add, measurement
from spacy_bioel.corpus import text_to_doc
from spacy_bioel.io.formats import detect_corpus_format
from spacy_bioel.kb.build.build import build_kb
from spacy_bioel.pipeline.linker.queries import agree_in_document
from spacy_bioel.types import AnnotatedText, Candidate, Concept, Mention

Case = Callable[[Language, Path, int], Callable[[], object]]
_TOKENIZER = {"nlp": {"tokenizer": {"@tokenizers": "spacy-bioel.BioTokenizer.v1"}}}
_TURNS = 3
_LONG = 5.0  # seconds; what takes as long is not repeated


def abbreviations(nlp: Language, folder: Path, n: int) -> Callable[[], object]:
    text = " ".join(f"Alpha{i} beta gamma (A{i}BG)." for i in range(n))
    return lambda: nlp(text)


def separators(nlp: Language, folder: Path, n: int) -> Callable[[], object]:
    return lambda: nlp.make_doc("-" * n)


def chain(nlp: Language, folder: Path, n: int) -> Callable[[], object]:
    retired = [Concept(f"X:{i}", (), replaced_by=f"X:{i + 1}") for i in range(n)]
    return lambda: build_kb([*retired, Concept(f"X:{n}", ("fever",))], folder / "kb")


def spaces(nlp: Language, folder: Path, n: int) -> Callable[[], object]:
    path = folder / "corpus.txt"

    def run() -> object:
        path.write_text(" " * n + "Fever\n")
        try:
            return detect_corpus_format(path)
        except ValueError:  # no known format
            return None

    return run


def strings(nlp: Language, folder: Path, n: int) -> Callable[[], object]:
    candidates = tuple(Candidate(f"X:{i}", 0.1, "fever", "exact") for i in range(5))
    ranked = {(f"fever {i}", ""): candidates for i in range(n)}
    return lambda: agree_in_document(list(ranked), ranked, weight=1.0)


CASES: dict[str, tuple[Case, int]] = {
    "abbreviations": (abbreviations, 10_000),
    "separators": (separators, 32_000),
    "chain": (chain, 4_000),
    "spaces": (spaces, 60_000),
    "strings": (strings, 10_000),
}


def main(system: Annotated[str, typer.Option(help="Name of the version.")] = "now") -> None:
    nlp = make_pipeline()
    rows = []
    for name, (case, n) in CASES.items():
        with TemporaryDirectory() as folder:
            half, whole = (seconds(case(nlp, Path(folder), size)) for size in (n // 2, n))
        found = {"seconds": round(whole, 3), "ratio": round(whole / half, 2)}
        rows += [
            measurement("linear_time", system, case=name, n=n, metric=metric, value=value)
            for metric, value in found.items()
        ]
        typer.echo(f"{system} {name} {n}: {whole:.3f} s, {whole / half:.2f} times the half")
    add("linear_time", rows, key=("system", "case", "metric"))


def make_pipeline() -> Language:
    """A tokenizer and a detector that has seen one document."""
    nlp = spacy.blank("en", config=_TOKENIZER)
    nlp.max_length = 10_000_000
    nlp.add_pipe("bioel_mentions")
    text = AnnotatedText("1", "Fever", (Mention(0, 5, "Disease"),))
    nlp.initialize(lambda: [Example(nlp.make_doc(text.text), text_to_doc(nlp, text)[0])])
    return nlp


def seconds(run: Callable[[], object]) -> float:
    """Least time of some turns; one turn of what takes long."""
    least = float("inf")
    for _ in range(_TURNS):
        start = process_time()
        run()
        least = min(least, process_time() - start)
        if least > _LONG:
            break
    return least


if __name__ == "__main__":
    typer.run(main)
