"""The factories of the pipes, and the defaults of their settings; docs/reference/settings.yml says
what each means.

spaCy imports this module for every pipeline that anyone makes: the pipes are imported when they are
made.
"""

# No `from __future__ import annotations`: spaCy reads the annotations as types.

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from spacy.language import Language
from thinc.api import Model

from spacy_bioel.doc import GOLD_KEY, SPANS_KEY
from spacy_bioel.linking.settings import FINDING, SWITCHES

if TYPE_CHECKING:
    from spacy_bioel.entities.notes.context import MentionContext
    from spacy_bioel.linking.pipe import Linker
    from spacy_bioel.mentions.pipe import MentionDetector

MENTIONS_MODEL: dict[str, Any] = {
    "@architectures": "spacy-bioel.SpanEnumerator.v1",
    **{"max_width": 10, "hidden": 128, "context": 0, "dropout": 0.2},
    "tok2vec": {
        "@architectures": "spacy.Tok2Vec.v2",
        "embed": {
            "@architectures": "spacy.MultiHashEmbed.v2",
            "width": 96,
            "rows": [5000, 1000, 2500, 1000],
            "attrs": ["NORM", "PREFIX", "SUFFIX", "SHAPE"],
            "include_static_vectors": False,
        },
        "encode": {
            "@architectures": "spacy.MaxoutWindowEncoder.v2",
            **{"width": 96, "window_size": 1, "maxout_pieces": 3, "depth": 4},
        },
    },
}
# The size of the encoder that comes with the package.
LINKER_MODEL: dict[str, Any] = {
    "@architectures": "spacy-bioel.ResCNN.v1",
    **{"dim": 192, "blocks": 3, "filters": 96, "widths": [1, 3, 5], "pooling": "max"},
    **{"dropout": 0.2, "max_tokens": 25},
}
LINKER_EVIDENCE = dict.fromkeys(SWITCHES, True)
LINKER_TRAINING = {
    "synonyms": 96,
    "negatives": 2,
    "candidates": 10,
    "mentions": 24,
    "refresh_every": 250,
    "pool_names": 50000,
    "loss": "info_nce",
    "seed": 0,
}
_MENTIONS: dict[str, Any] = {
    "threshold": 0.5,
    "consistency": 0.0,
    "allow_overlap": True,
    "abbreviations": False,
    "always": {},
    "never": [],
    "people": None,
    "set_ents": False,
    "spans_key": SPANS_KEY,
    "gold_key": GOLD_KEY,
}
_LINKER: dict[str, Any] = {
    "mentions": "auto",
    "finding": FINDING,
    "label_types": {},
    "nil_threshold": 0.25,
    "search_names": 32,
    "max_candidates": 5,
    "evidence": LINKER_EVIDENCE,
    "abbreviations": True,
    "shorthand": True,
    "composites": True,
    "coherence": 1.0,
    "include_kb": True,
    "set_ents": True,
    "training": LINKER_TRAINING,
    "spans_key": SPANS_KEY,
    "gold_key": GOLD_KEY,
}
_CONTEXT = ("negated", "uncertain", "historical", "hypothetical", "experiencer", "context_cues")


@Language.factory(
    "bioel_mentions",
    assigns=["doc.spans"],
    default_config={
        "model": MENTIONS_MODEL,
        **_MENTIONS,
        "scorer": {"@scorers": "spacy-bioel.mention_scorer.v1"},
    },
    default_score_weights={"bioel_mention_f": 1.0, "bioel_mention_p": 0.0, "bioel_mention_r": 0.0},
)
def make_mention_detector(
    nlp: Language,
    name: str,
    model: Model,
    threshold: float,
    consistency: float,
    allow_overlap: bool,
    abbreviations: bool,
    always: dict[str, list[str]],
    never: list[str],
    people: bool | None,
    set_ents: bool,
    spans_key: str,
    gold_key: str,
    scorer: Callable | None,
) -> "MentionDetector":
    """Make a `bioel_mentions`, which finds mentions by a trained model."""
    settings = {key: value for key, value in locals().items() if key in _MENTIONS}
    from spacy_bioel.mentions.pipe import MentionDetector

    return MentionDetector(nlp.vocab, model, name, settings=settings, scorer=scorer)


@Language.factory(
    "bioel_context",
    assigns=[f"span._.{name}" for name in _CONTEXT],
    requires=["doc.spans"],
    default_config={"rules": "", "spans_key": SPANS_KEY},
)
def make_context(nlp: Language, name: str, rules: str, spans_key: str) -> "MentionContext":
    """Make a `bioel_context`, which says what the text says of each mention."""
    from spacy_bioel.entities.notes.context import MentionContext

    return MentionContext(nlp.tokenizer, name, rules=rules, spans_key=spans_key)


@Language.factory(
    "bioel_linker",
    assigns=["doc.spans", "doc.ents"]
    + [f"span._.{name}" for name in ("cui", "cuis", "candidates", "hgvs", "component", "gene")],
    default_config={
        "model": LINKER_MODEL,
        "kb": "",
        "spelling": {"@misc": "spacy-bioel.Ngrams.v1"},
        **_LINKER,
        "scorer": {"@scorers": "spacy-bioel.link_scorer.v1"},
    },
    default_score_weights={
        "bioel_link_f": 1.0,
        "bioel_link_p": 0.0,
        "bioel_link_r": 0.0,
        "bioel_link_acc": 0.0,
    },
)
def make_linker(
    nlp: Language,
    name: str,
    model: Model,
    kb: str | list[str] | dict[str, str],
    spelling: Callable,
    mentions: str,
    finding: dict[str, bool | float | list[str]],
    label_types: dict[str, list[str]],
    nil_threshold: float,
    search_names: int,
    max_candidates: int,
    evidence: dict[str, bool],
    abbreviations: bool,
    shorthand: bool,
    composites: bool,
    coherence: float,
    include_kb: bool,
    set_ents: bool | str,
    training: dict[str, Any],
    spans_key: str,
    gold_key: str,
    scorer: Callable | None,
) -> "Linker":
    """Make a `bioel_linker`, which links mentions to a knowledge base."""
    settings = {key: value for key, value in locals().items() if key == "kb" or key in _LINKER}
    from spacy_bioel.linking.pipe import Linker

    for key in ("finding", "evidence", "training"):  # a config may give a part of them
        settings[key] = {**_LINKER[key], **settings[key]}
    linker = Linker(nlp.vocab, model, name, spelling=spelling, settings=settings, scorer=scorer)
    linker.check_settings()
    linker.join(nlp)
    return linker
