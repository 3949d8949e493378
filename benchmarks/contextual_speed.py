"""Mentions that each kind of linker links in a second of processor time, and its size.

python -m benchmarks.run contextual_speed CORPUS PIPELINE CHECKPOINT takes the pipeline that `project
run all --vars.config multitask` has made of a corpus, and the transformer's checkpoint. All kinds
get the gold mentions of the same development documents, with the same knowledge base, in one run:

exact, tfidf, biosyn, dense    the systems of benchmarks.linking
light         the light linker: the strings of the mentions alone, see training/configs/rescnn.cfg
collective    the bi-encoder: each document is read once
single        the same, each mention read in a window of its own
rerank        a cross-encoder of the same size, with ten candidates of the light linker
closed, open  the multi-task linker by its closed vocabulary alone, and as it is
tagging       closed, and the mentions are found too, instead of the gold ones
generative    the pipeline of --generative, if there is one

Bi-encoders and cross-encoder are not trained, which changes nothing for their speed. Processor time
of all threads, not time on the clock: other programs may run beside it.
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
from spacy_bioel.contextual.dual_encoder import build_dual_encoder_v1
from spacy_bioel.contextual.reranker import build_cross_encoder_v1, build_reranker_v1
from spacy_bioel.evaluation.run import link_bare_texts, link_gold_mentions
from spacy_bioel.models.name_encoder import EncoderSource

_OF_STRINGS = {
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
        Path | None, typer.Option(help="Of training/configs/generative.cfg.")
    ] = None,
    documents: Annotated[int, typer.Option(help="Of dev.")] = 100,
    max_pieces: Annotated[int, typer.Option(help="Word pieces of a pair.")] = 64,
) -> Iterator[Row]:
    texts = dev(corpus)[: documents + 2]
    n = sum(len(text.mentions) for text in texts[2:])
    kinds: dict[str, Callable[[], Language]] = {
        name: partial(of_strings, corpus, system) for name, system in _OF_STRINGS.items()
    }
    kinds |= {
        name: partial(that_reads, name, pipeline, checkpoint, max_pieces=max_pieces)
        for name in ("collective", "single", "rerank", "closed", "open", "tagging")
    }
    if generative is not None:
        kinds["generative"] = partial(spacy.load, generative)
    found: dict[str, tuple[float, float]] = {}
    for name, make in kinds.items():
        nlp = make()
        linker: Any = nlp.get_pipe("bioel_linker")
        linker.set_kb(f"kb/{corpus}")
        link = link_bare_texts if name == "tagging" else link_gold_mentions
        list(link(nlp, linker, texts[:2]))
        start = time.process_time()
        list(link(nlp, linker, texts[2:]))
        found[name] = time.process_time() - start, megabytes(nlp)
    about = {"corpus": corpus, "n": n, "names": linker.kb.n_names, "max_pieces": max_pieces}
    for name, (seconds, size) in found.items():
        values = {
            "mentions_per_second": n / seconds,
            "documents_per_second": (len(texts) - 2) / seconds,
            "collective_is_faster": seconds / found["collective"][0],
            "megabytes": size,
        }
        yield from rows_of(name, values, **about)


def of_strings(corpus: str, system: str) -> Language:
    """A pipeline that links by strings alone."""
    found = SYSTEMS[system]
    nlp, linker = make_pipeline(corpus, found, encoder=ENCODER, uses_training=True)
    if found.ranks_by:
        linker.fusion = Similarity(found.ranks_by)
    return nlp


def that_reads(name: str, pipeline: Path, checkpoint: Path, *, max_pieces: int) -> Language:
    """The pipeline with the linker of a kind that reads."""
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
    if name in ("single", "rerank"):  # which share no transformer
        nlp.remove_pipe("tok2vec")
    return nlp


def megabytes(nlp: Language) -> float:
    """Size of the pipeline, the knowledge base aside."""
    with tempfile.TemporaryDirectory() as folder:
        nlp.to_disk(folder)
        files = [path for path in Path(folder).rglob("*") if path.is_file()]
        return round(sum(p.stat().st_size for p in files if "kb" not in p.parts) / 1e6, 1)
