"""Others' part of benchmarks.finding and .no_labels, in an environment with FastHPOCR and
pyahocorasick: SYSTEM FOLDER.

fasthpocr     FastHPOCR with the longest matches, its index made of FOLDER/hp.obo and kept there
aho_corasick  longest names of FOLDER/names.json, in lower case, that begin and end with a word
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Annotate = Callable[[str], list[tuple[int, int, str]]]
Find = Callable[[list[str]], list[Any]]


def fasthpocr(folder: Path) -> Annotate:
    from FastHPOCR.cr.CRIndexKB import CRIndexKB
    from FastHPOCR.HPOAnnotator import HPOAnnotator
    from FastHPOCR.IndexHPO import IndexHPO

    members: dict[str, list[str]] = {}

    def tokens_of(self: Any, cluster: str, base: dict[str, str]) -> list[str]:
        if not members:
            for token, of in base.items():
                members.setdefault(of, []).append(token)
        return list(members.get(cluster, ()))

    if not (folder / "hp.index").is_file():
        # Theirs reads all 573,507 tokens for each cluster, which takes more than ten minutes.
        CRIndexKB.compileClusterList = tokens_of
        IndexHPO(str(folder / "hp.obo"), str(folder)).index()
    annotator = HPOAnnotator(str(folder / "hp.index"))

    def annotate(text: str) -> list[tuple[int, int, str]]:
        found = annotator.annotate(text, longestMatch=True)
        return [(a.getStartOffset(), a.getEndOffset(), a.getHPOUri()) for a in found]

    return annotate


def aho_corasick(folder: Path) -> Annotate:
    import ahocorasick

    automaton: Any = ahocorasick.Automaton()
    for name, id in json.loads((folder / "names.json").read_text("utf8")):
        automaton.add_word(name.lower(), (len(name), id))
    automaton.make_automaton()

    def annotate(text: str) -> list[tuple[int, int, str]]:
        lowered = text.lower()
        found = []
        for last, (length, id) in automaton.iter_long(lowered):
            start, end = last - length + 1, last + 1
            before, after = lowered[start - 1 : start], lowered[end : end + 1]
            if not before.isalnum() and not after.isalnum():
                found.append((start, end, id))
        return found

    return annotate


SYSTEMS = {"fasthpocr": fasthpocr, "aho_corasick": aho_corasick}


def peak_megabytes() -> float:
    """Peak of this process alone: that of getrusage begins with its parent's. Linux only."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def measure(folder: Path, load: Callable[[], Find]) -> None:
    """Write what a system finds in FOLDER/texts.json, and what that takes, to FOLDER/out.json."""
    texts = json.loads((folder / "texts.json").read_text("utf8"))
    start = time.perf_counter()
    find = load()
    find(texts[:1])
    loaded = time.perf_counter()
    found = find(texts)
    result = {
        "load": loaded - start,
        "documents_per_second": len(texts) / (time.perf_counter() - loaded),
        "memory": peak_megabytes(),
        "found": found,
    }
    (folder / "out.json").write_text(json.dumps(result), "utf8")


def main(system: str, folder: Path) -> None:
    def load() -> Find:
        annotate = SYSTEMS[system](folder)
        return lambda texts: [annotate(text) for text in texts]

    measure(folder, load)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
