"""Small pipelines and their results in plain form, for the tests of the pipes."""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import spacy
from confection import Config
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.training import Example
from thinc.api import Optimizer

from spacy_bioel.doc import add_gold, get_links
from spacy_bioel.entities import Query
from spacy_bioel.factories import MENTIONS_MODEL
from spacy_bioel.linking.link import decide_one
from spacy_bioel.types import AnnotatedText, Candidate, Link

TOKENIZER = {"nlp": {"tokenizer": {"@tokenizers": "spacy-bioel.BioTokenizer.v1"}}}
DETECTOR: dict[str, Any] = {
    "model": {
        "max_width": 6,
        "hidden": 32,
        "tok2vec": {
            "embed": {"width": 32, "rows": [300, 100, 100, 100]},
            "encode": {"width": 32, "depth": 1},
        },
    }
}
LINKER: dict[str, Any] = {
    "model": {"dim": 32, "blocks": 1, "filters": 8},
    "training": {"synonyms": 16, "negatives": 1, "refresh_every": 5},
}
# Of the fixture `checkpoint`.
LISTENER = {"@architectures": "spacy.Tok2VecListener.v1", "width": 32, "upstream": "tok2vec"}
LISTENING_DETECTOR = {"max_width": 6, "hidden": 64, "dropout": 0.0, "tok2vec": LISTENER}
SPELLING_DETECTOR = LISTENING_DETECTOR | {
    "tok2vec": {
        "@architectures": "spacy-bioel.WithSpelling.v1",
        "tok2vec": LISTENER,
        "spelling": {
            "@architectures": "spacy.HashEmbedCNN.v2",
            "width": 16,
            "depth": 1,
            "embed_size": 300,
            "window_size": 1,
            "maxout_pieces": 2,
            "subword_features": True,
            "pretrained_vectors": False,
        },
    }
}
# Of the default detector, smaller.
TOK2VEC = Config(MENTIONS_MODEL["tok2vec"]).merge(
    {"embed": {"width": 48, "rows": [500, 200, 200, 200]}, "encode": {"width": 48, "depth": 1}}
)
VOCABULARY = {"vocabulary": 300, "width": 32}


def needs(plugin: str) -> pytest.MarkDecorator:
    """Skip a test if a plugin has been removed."""
    is_there = is_installed(f"spacy_bioel.plugins.{plugin}")
    return pytest.mark.skipif(not is_there, reason=f"needs the plugin {plugin}")


def is_installed(module: str) -> bool:
    """Whether a module can be found, in a package that may be missing as well."""
    outer = module.rpartition(".")[0]
    return (not outer or is_installed(outer)) and find_spec(module) is not None


def blank() -> Language:
    return spacy.blank("en", config=TOKENIZER)


def linking_nlp(kb: Any, patterns: Sequence[str] = (), **settings: Any) -> Language:
    """The linker behind an entity ruler, untrained: `patterns` are found as "Thing"."""
    nlp = blank()
    if patterns:
        ruler = nlp.add_pipe("entity_ruler")
        ruler.add_patterns([{"label": "Thing", "pattern": pattern} for pattern in patterns])
    nlp.add_pipe("bioel_linker", config={"kb": str(kb) if isinstance(kb, Path) else kb} | settings)
    return nlp


def light_nlp(kb: Path) -> Language:
    """A small detector and a small linker, untrained."""
    nlp = blank()
    nlp.add_pipe("bioel_mentions", config=DETECTOR)
    nlp.add_pipe("bioel_linker", config=LINKER | {"kb": str(kb)})
    nlp.config["initialize"]["components"]["bioel_linker"] = VOCABULARY
    return nlp


def dual_nlp(kb: Path, checkpoint: Path, **settings: Any) -> Language:
    """A detector and a linker with a dual encoder that share a transformer, untrained."""
    nlp = sharing_nlp(checkpoint, detector=settings.pop("detector", LISTENING_DETECTOR))
    model = {
        "@architectures": "spacy-bioel.DualEncoder.v1",
        "tok2vec": LISTENER,
        "names": {"@architectures": "spacy-bioel.ResCNN.v1"} | LINKER["model"],
    } | settings.pop("model", {})
    return with_linker(nlp, kb, model, **settings)


def with_linker(nlp: Language, kb: Path, model: dict[str, Any], **settings: Any) -> Language:
    """A linker at the end, untrained. settings: Those of `training` are added to small ones."""
    training = LINKER["training"] | settings.pop("training", {"candidates": 4})
    config = {"kb": str(kb), "model": model, "training": training, "mentions": "spans"}
    nlp.add_pipe("bioel_linker", config=config | settings)
    nlp.config["initialize"]["components"]["bioel_linker"] = VOCABULARY
    return nlp


def with_entity(nlp: Language, text: str, mention: str) -> Doc:
    """A tokenised text with one entity, as some other pipe may have found it."""
    doc = nlp.make_doc(text)
    start = text.index(mention)
    doc.ents = [doc.char_span(start, start + len(mention), label="Thing")]
    return doc


def examples(nlp: Language, texts: Iterable[AnnotatedText]) -> list[Example]:
    result = []
    for text in texts:
        reference = nlp.make_doc(text.text)
        add_gold(reference, text)
        result.append(Example(nlp.make_doc(text.text), reference))
    return result


def train(nlp: Language, texts: Sequence[AnnotatedText], *, updates: int) -> None:
    """Learn a handful of documents by heart."""
    data = examples(nlp, texts)
    optimizer = nlp.initialize(lambda: data)
    optimizer.learn_rate = 0.01
    for _ in range(updates):
        nlp.update(examples(nlp, texts), sgd=optimizer)


def decide_by(
    scores: Mapping[str, Mapping[str, float]], query: Query, *, nil_threshold: float
) -> Link:
    """Decide on a mention by the scores of concepts for each of its strings."""
    candidates = {
        string: tuple(
            Candidate(id, score, f"name of {id}", "exact")
            for id, score in scores.get(string, {}).items()
        )
        for string in (query.whole, *query.parts)
    }
    doc = blank().make_doc(query.whole)
    span = Span(doc, 0, len(doc), label="Disease")
    return decide_one(span, query, candidates[query.whole], candidates, nil_threshold=nil_threshold)


def links(doc: Doc, key: str = "bioel") -> list[tuple[str, str]]:
    """(words, kb_id) of each link, with "|" between several ids."""
    text = doc.text  # put together from the tokens at each call
    return [(text[x.start : x.end], "|".join(x.ids)) for x in get_links(doc, key)]


def assert_same_links(
    nlp: Language, inputs: Callable[[Language], Iterable[Any]], *others: Iterable[Any]
) -> None:
    """Links are those of each input alone: in batches, of the pipeline as bytes, of other inputs.

    A transformer rounds by the shape of its batch, which scores can show.
    """
    again = spacy.util.load_model_from_config(nlp.config).from_bytes(nlp.to_bytes())
    alone = [get_links(nlp(one)) for one in inputs(nlp)]
    runs = [nlp.pipe(inputs(nlp), batch_size=4), again.pipe(inputs(again)), *map(nlp.pipe, others)]
    for run in runs:
        for found, expected in zip(map(get_links, run), alone, strict=True):
            plain, wanted = (
                [(x.start, x.end, x.label, x.ids) for x in of] for of in (found, expected)
            )
            scores, known = (
                [c.score for x in of for c in x.candidates] for of in (found, expected)
            )
            assert plain == wanted and scores == pytest.approx(known, abs=5e-4)
    assert any(link.candidates for links in alone for link in links)


def gold_links(texts: Iterable[AnnotatedText]) -> set[tuple[str, str]]:
    """What `links` would have of all gold mentions with an id."""
    return {(t.text[m.start : m.end], "|".join(m.ids)) for t in texts for m in t.mentions if m.ids}


def ents(doc: Doc) -> list[tuple[str, str]]:
    return [(ent.text, ent.kb_id_) for ent in doc.ents]


def transformer(checkpoint: Path | str) -> dict[str, Any]:
    return {
        "@architectures": "spacy-bioel.Transformer.v1",
        "path": str(checkpoint),
        "width": 32,
        "max_pieces": 32,
        "overlap": 8,
        "learn_rate_scale": 0.03,
    }


def sharing_nlp(
    checkpoint: Path | str, *, detector: dict[str, Any] = LISTENING_DETECTOR
) -> Language:
    """A detector that listens to the transformer in the pipe `tok2vec`."""
    nlp = blank()
    nlp.add_pipe("tok2vec", config={"model": transformer(checkpoint)})
    nlp.add_pipe("bioel_mentions", config={"model": detector})
    return nlp


def step(
    nlp: Language, texts: list[AnnotatedText], optimizer: Optimizer, frozen: Sequence[str] = ()
) -> dict[str, float]:
    """One update as `spacy train` does it. RETURNS (dict): Losses by pipe.

    `nlp.update` with an optimizer would change a shared pipe before its listeners have learnt.
    """
    losses: dict[str, float] = {}
    data = examples(nlp, texts)
    nlp.update(data, sgd=False, losses=losses, exclude=frozen, annotates=frozen)
    for name, pipe in nlp.pipeline:
        if name not in frozen:
            pipe.finish_update(optimizer)
    return losses


def learn(
    nlp: Language, texts: list[AnnotatedText], *, updates: int, name: str = "bioel_mentions"
) -> list[float]:
    """Losses of a pipe in the updates."""
    data = examples(nlp, texts)
    optimizer = nlp.initialize(lambda: data)
    optimizer.learn_rate = 0.02
    return [step(nlp, texts, optimizer)[name] for _ in range(updates)]


@contextmanager
def fleeting(checkpoint: Path, folder: Path, *, dropout: bool = False) -> Iterator[Path]:
    """A copy of a checkpoint in a folder, to train from; what is saved must do without it.

    dropout (bool): As the checkpoint has it; so small a network learns little with it.
    """
    copy = shutil.copytree(checkpoint, folder / "bert")
    if not dropout:
        config = (copy / "config.json").read_text(encoding="utf8")
        config = config.replace('_prob": 0.1', '_prob": 0.0')
        (copy / "config.json").write_text(config, encoding="utf8")
    spacy.util.fix_random_seed(0)
    yield copy
    shutil.rmtree(copy)


def evidence_of(docs: Iterable[Doc]) -> set[str]:
    """What the candidates of all links of documents say of their evidence."""
    return {c.evidence for doc in docs for span in doc.spans["bioel"] for c in span._.candidates}


def leave_evidence(nlp: Language, name: str) -> None:
    """Switch all other evidence of the linker off."""
    cfg = nlp.get_pipe("bioel_linker").cfg  # type: ignore[attr-defined]
    cfg["evidence"] = dict.fromkeys(cfg["evidence"], False) | {name: True}
