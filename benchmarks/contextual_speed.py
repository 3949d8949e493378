"""Measure the size of each kind of linker, and its speed in mentions a second of processor time.

python -m benchmarks.run contextual_speed CORPUS PIPELINE CHECKPOINT: the pipeline that `project run
all --vars.config multitask` has made of a corpus, and the checkpoint of its transformer. All kinds
get the gold mentions of the same development documents, with the same knowledge base, in one run:

exact, tfidf, biosyn, dense    the systems of benchmarks.linking
light         the light linker, which uses mention strings only (training/configs/rescnn.cfg)
collective    the bi-encoder, which encodes each document once
single        the same with a separate text window for each mention
rerank        a cross-encoder of the same size, with ten candidates of the light linker
closed, open  the multi-task linker with its closed vocabulary only, and unchanged
tagging       closed, with mentions found by the network instead of gold mentions
generative    the pipeline of --generative, if specified

Bi-encoders and cross-encoder are not trained, which does not affect their speed. Times are
processor time of all threads, so that other programs on the machine matter less.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import spacy
import typer
from spacy.language import Language

from benchmarks.linking import ENCODER, SYSTEMS, Similarity, make_pipeline
from benchmarks.multitask import alone
from benchmarks.record import Row, question, rows_of
from benchmarks.texts import CANDIDATES, dev
from spacy_bioel.evaluation.run import link_bare_texts, link_gold_mentions
from spacy_bioel.models.name_encoder import EncoderSource
from spacy_bioel.plugins.contextual.dual_encoder import build_dual_encoder_v1
from spacy_bioel.plugins.contextual.reranker import build_cross_encoder_v1, build_reranker_v1

_STRING_SYSTEMS = {
    "exact": "exact",
    "tfidf": "tfidf",
    "biosyn": "biosyn",
    "dense": "dense",
    "light": "rescnn",
}


@question("contextual_speed", key=("corpus", "system", "metric", "max_pieces"))
def contextual_speed(
    corpus: str,
    pipeline: Path,
    checkpoint: Path,
    generative: Annotated[
        Path | None, typer.Option(help="Pipeline of training/configs/generative.cfg.")
    ] = None,
    documents: Annotated[int, typer.Option(help="Development documents.")] = 100,
    max_pieces: Annotated[int, typer.Option(help="Word pieces of a pair.")] = 64,
) -> Iterator[Row]:
    texts = dev(corpus)[: documents + 2]
    n = sum(len(text.mentions) for text in texts[2:])
    kinds: dict[str, Callable[[], Language]] = {
        name: partial(string_pipeline, corpus, system) for name, system in _STRING_SYSTEMS.items()
    }
    kinds |= {
        name: partial(contextual_pipeline, name, pipeline, checkpoint, max_pieces=max_pieces)
        for name in ("collective", "single", "rerank", "closed", "open", "tagging")
    }
    if generative is not None:
        kinds["generative"] = partial(spacy.load, generative)
    costs: dict[str, tuple[float, float]] = {}
    for name, make in kinds.items():
        nlp = make()
        linker: Any = nlp.get_pipe("bioel_linker")
        linker.set_kb(f"kb/{corpus}")
        link = link_bare_texts if name == "tagging" else link_gold_mentions
        list(link(nlp, linker, texts[:2]))
        start = time.process_time()
        list(link(nlp, linker, texts[2:]))
        costs[name] = time.process_time() - start, megabytes(nlp)
    about = {"corpus": corpus, "n": n, "names": linker.kb.n_names, "max_pieces": max_pieces}
    for name, (seconds, size) in costs.items():
        values = {
            "mentions_per_second": n / seconds,
            "documents_per_second": (len(texts) - 2) / seconds,
            "collective_is_faster": seconds / costs["collective"][0],
            "megabytes": size,
        }
        yield from rows_of(name, values, **about)


def string_pipeline(corpus: str, system: str) -> Language:
    """Return a pipeline that links by mention strings only."""
    chosen = SYSTEMS[system]
    nlp, linker = make_pipeline(corpus, chosen, encoder=ENCODER, uses_training=True)
    if chosen.ranks_by:
        linker.fusion = Similarity(chosen.ranks_by)
    return nlp


def contextual_pipeline(
    name: str, pipeline: Path, checkpoint: Path, *, max_pieces: int
) -> Language:
    """Return the pipeline with a contextual linker of a kind."""
    nlp = spacy.load(pipeline)
    linker: Any = nlp.get_pipe("bioel_linker")
    tok2vec: Any = nlp.get_pipe("tok2vec")
    names, listener = linker.model.get_ref("names"), linker.model.get_ref("tok2vec")
    if name in ("closed", "tagging"):
        alone(linker)
        linker.model.attrs["vocabulary"] = "closed"
    elif name == "collective":
        linker.model = build_dual_encoder_v1(listener, names)
    elif name == "single":
        linker.model = build_dual_encoder_v1(tok2vec.model, names, collective=False)
    elif name == "rerank":
        pairs = build_cross_encoder_v1(path=str(checkpoint), max_pieces=max_pieces)
        linker.model = build_reranker_v1(names, pairs)
        linker.cfg["max_candidates"] = CANDIDATES
    linker.rescorer.add_network(EncoderSource(linker.kb, (), None, 0, 0))
    if name in ("single", "rerank"):  # they do not share a transformer
        nlp.remove_pipe("tok2vec")
    return nlp


def megabytes(nlp: Language) -> float:
    """Return the size of the pipeline without its knowledge base."""
    with tempfile.TemporaryDirectory() as folder:
        nlp.to_disk(folder)
        files = [path for path in Path(folder).rglob("*") if path.is_file()]
        return round(sum(p.stat().st_size for p in files if "kb" not in p.parts) / 1e6, 1)
