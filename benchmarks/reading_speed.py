"""Mentions that each kind of linker links in a second of processor time, and its size.

python -m benchmarks.reading_speed CORPUS CHECKPOINT takes the pipeline that `project run all
--vars.config dual_encoder` has made of a corpus, and the transformer's checkpoint. All four kinds
get the gold mentions of the same development documents, with the same knowledge base, in one run:

light         the strings of the mentions alone, see training/configs/rescnn.cfg
collective    the bi-encoder: each document is read once
single        the same weights, each mention read in a window of its own
rerank        a cross-encoder of the same size, with ten candidates of the light linker. It is not
              trained, which changes nothing for its speed.

Processor time of all threads, not time on the clock: other programs may run beside it.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import spacy
import typer
from spacy.language import Language

from benchmarks.record import add, measurement
from spacy_bioel.corpus import read_texts
from spacy_bioel.models.bi_encoder import build_dual_encoder_v1
from spacy_bioel.models.cross_encoder import build_cross_encoder_v1, build_reranker_v1
from spacy_bioel.models.reading import add_reading
from spacy_bioel.pipeline.measuring import link_given

CANDIDATES = 10
KEY = ("corpus", "system", "metric", "max_pieces")


def main(
    corpus: str,
    checkpoint: Path,
    documents: Annotated[int, typer.Option(help="Of dev.")] = 100,
    max_pieces: Annotated[int, typer.Option(help="Word pieces of a pair.")] = 64,
) -> None:
    folder = Path("models") / corpus / "final"
    texts = list(read_texts(Path("corpus") / corpus / "dev.jsonl"))[: documents + 2]
    n = sum(len(text.mentions) for text in texts[2:])
    speeds: dict[str, float] = {}
    sizes: dict[str, float] = {}
    for system in ("light", "collective", "single", "rerank"):
        nlp = make(system, folder, checkpoint, max_pieces=max_pieces)
        linker: Any = nlp.get_pipe("bioel_linker")
        list(link_given(nlp, linker, texts[:2]))
        start = time.process_time()
        list(link_given(nlp, linker, texts[2:]))
        speeds[system] = n / (time.process_time() - start)
        sizes[system] = megabytes(nlp)
        typer.echo(f"{system}: {speeds[system]:.1f} mentions a second, {sizes[system]} MB")
    about = {"corpus": corpus, "n": n, "names": linker.kb.n_names, "max_pieces": max_pieces}
    rows = [
        measurement("reading_speed", system, metric=metric, value=round(value, 2), **about)
        for system in speeds
        for metric, value in (
            ("mentions_per_second", speeds[system]),
            ("collective_is_faster", speeds["collective"] / speeds[system]),
            ("megabytes", sizes[system]),
        )
    ]
    typer.echo(add("reading_speed", rows, key=KEY))


def make(system: str, folder: Path, checkpoint: Path, *, max_pieces: int) -> Language:
    """The pipeline without its detector, and with the linker of a system."""
    nlp = spacy.load(folder, exclude=["bioel_mentions"])
    linker: Any = nlp.get_pipe("bioel_linker")
    names, tower = linker.model.get_ref("names"), linker.model.get_ref("network")
    if system == "light":
        linker.cfg["evidence"]["context"] = False
    elif system == "single":
        tok2vec: Any = nlp.get_pipe("tok2vec")
        settings = linker.model.attrs["settings"]
        linker.model = build_dual_encoder_v1(tok2vec.model, names, collective=False, **settings)
        linker.model.layers.append(tower)
        linker.model.set_ref("network", tower)
    elif system == "rerank":
        pairs = build_cross_encoder_v1(path=str(checkpoint), max_pieces=max_pieces)
        linker.model = build_reranker_v1(names, pairs)
        add_reading(linker.model)
        linker.cfg["max_candidates"] = CANDIDATES
    if system != "collective":  # the one that shares its transformer
        nlp.remove_pipe("tok2vec")
    return nlp


def megabytes(nlp: Language) -> float:
    """Size of the pipeline, the knowledge base aside."""
    with tempfile.TemporaryDirectory() as folder:
        nlp.to_disk(folder)
        files = [path for path in Path(folder).rglob("*") if path.is_file()]
        return round(sum(p.stat().st_size for p in files if "kb" not in p.parts) / 1e6, 1)


if __name__ == "__main__":
    typer.run(main)
