"""The factories of the pipes: their settings, defaults and what they mean.

spaCy imports this module for every pipeline that anyone makes: the pipes are imported when they are
made.
"""

# No `from __future__ import annotations`: spaCy reads the annotations as types.

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from spacy.language import Language
from thinc.api import Config, Model

from spacy_bioel.pipeline.gold import GOLD_KEY, SPANS_KEY
from spacy_bioel.pipeline.linker.settings import FINDING

if TYPE_CHECKING:
    from spacy_bioel.pipeline.context import MentionContext
    from spacy_bioel.pipeline.linker.component import Linker
    from spacy_bioel.pipeline.mentions.detector import MentionDetector

MENTIONS_MODEL = Config().from_str(
    """
[model]
@architectures = "spacy-bioel.SpanEnumerator.v1"
max_width = 10
hidden = 128
context = 0
dropout = 0.2

[model.tok2vec]
@architectures = "spacy.Tok2Vec.v2"

[model.tok2vec.embed]
@architectures = "spacy.MultiHashEmbed.v2"
width = 96
rows = [5000, 1000, 2500, 1000]
attrs = ["NORM", "PREFIX", "SUFFIX", "SHAPE"]
include_static_vectors = false

[model.tok2vec.encode]
@architectures = "spacy.MaxoutWindowEncoder.v2"
width = 96
window_size = 1
maxout_pieces = 3
depth = 4
"""
)["model"]


# The size of the encoder that comes with the package.
LINKER_MODEL = Config().from_str(
    """
[model]
@architectures = "spacy-bioel.ResCNN.v1"
dim = 192
blocks = 3
filters = 96
widths = [1, 3, 5]
pooling = "max"
dropout = 0.2
max_tokens = 25
"""
)["model"]

LINKER_EVIDENCE = {
    "exact": True,
    "memory": True,
    "sparse": True,
    "dense": True,
    "prior": True,
    "context": True,
    "generated": True,
    "organism": True,
}
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


@Language.factory(
    "bioel_mentions",
    assigns=["doc.spans"],
    default_config={
        "model": MENTIONS_MODEL,
        "threshold": 0.5,
        "consistency": 0.0,
        "allow_overlap": True,
        "abbreviations": False,
        "always": {},
        "never": [],
        "set_ents": False,
        "spans_key": SPANS_KEY,
        "gold_key": GOLD_KEY,
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
    set_ents: bool,
    spans_key: str,
    gold_key: str,
    scorer: Callable | None,
) -> "MentionDetector":
    """Factory of `bioel_mentions`.

    model (Model): See `spacy-bioel.SpanEnumerator.v1` and `spacy-bioel.BioTagger.v1`.
    threshold (float): Probability above which a span is a mention; tune it on dev.
    consistency (float): From 0 to 1, how far the probability of a span moves towards that of the
        surest occurrence of the same words in the document; tune it on dev.
    allow_overlap (bool): Keep overlapping and nested mentions; else the likeliest choice without
        overlaps, see `pipeline.mentions.choosing`.
    abbreviations (bool): Short forms that the document defines for a mention are mentions too.
    always (dict): Label -> words that are always mentions, {"Species": ["patient", "patients"]};
        case does not count, and no other mention overlaps them.
    never (list): Words that are never mentions.
    set_ents (bool): Also fill doc.ents with a non-overlapping choice: longest first.
    spans_key, gold_key (str): Span groups of predictions and of gold mentions.
    """
    from spacy_bioel.pipeline.mentions.detector import MentionDetector

    return MentionDetector(
        nlp.vocab,
        model,
        name,
        threshold=threshold,
        consistency=consistency,
        allow_overlap=allow_overlap,
        abbreviations=abbreviations,
        always=always,
        never=never,
        set_ents=set_ents,
        spans_key=spans_key,
        gold_key=gold_key,
        scorer=scorer,
    )


@Language.factory(
    "bioel_context",
    assigns=[
        "span._.negated",
        "span._.uncertain",
        "span._.historical",
        "span._.hypothetical",
        "span._.experiencer",
        "span._.context_cues",
    ],
    requires=["doc.spans"],
    default_config={"rules": "", "spans_key": SPANS_KEY},
)
def make_context(nlp: Language, name: str, rules: str, spans_key: str) -> "MentionContext":
    """Factory of `bioel_context`, which says what the text says of each mention.

    rules (str): JSON file of cues and sections; "": those of the package. Saved with the pipeline.
    spans_key (str): Span group of the mentions.
    """
    from spacy_bioel.pipeline.context import MentionContext

    return MentionContext(nlp.tokenizer, name, rules=rules, spans_key=spans_key)


@Language.factory(
    "bioel_linker",
    assigns=[
        "doc.spans",
        "doc.ents",
        "span._.cui",
        "span._.cuis",
        "span._.candidates",
        "span._.hgvs",
    ],  # fmt: skip
    default_config={
        "model": LINKER_MODEL,
        "kb": "",
        "index": {"@misc": "spacy-bioel.AutoIndex.v1"},
        "spelling": {"@misc": "spacy-bioel.Ngrams.v1"},
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
    index: Callable,
    spelling: Callable,
    mentions: str,
    finding: dict[str, bool | float],
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
    """Factory of `bioel_linker`.

    model (Model): Encoder of names, see `spacy-bioel.ResCNN.v1`, or one that reads mentions in
        their documents too: `spacy-bioel.DualEncoder.v1`, `spacy-bioel.Reranker.v1`,
        `spacy-bioel.HierarchicalLinker.v1`.
    kb (str | list | dict): Folder of a knowledge base, opened at first use. A list of folders: one
        linker over all of them. Label -> folder: mentions of a label are linked to this knowledge
        base alone, those of other labels to all of them, or to none if there is one folder only.
        "" stands for the package's own.
    index (Callable): Makes the nearest-name search from the vectors of the knowledge base:
        `spacy-bioel.AutoIndex.v1`, exact for up to 200,000 names and approximate above, if faiss
        is there; `spacy-bioel.ExactIndex.v1` or `spacy-bioel.FaissIndex.v1`.
    spelling (Callable): Makes the search by spelling from the knowledge base.
    mentions (str): Mentions to link: "spans" (the group `spans_key`), "ents", "auto" (the group if
        it is there, else the entities), "kb" (names of the knowledge base in the text, or nearly
        so, for use without a mention detector), "kb_exact" (every longest name, and nothing that
        is only like one), or "read" (those that the model finds, if it is
        `spacy-bioel.HierarchicalLinker.v1`).
    finding (dict): For "kb": "variants" (other endings, orders and words than a name has),
        "typos" (words that are one slip away from a word of the knowledge base), "learned"
        (evidence is weighed as it was learned from unlabelled texts, else by rules), "threshold"
        (probability of a span from which on it is a mention), "nested" (names within longer names
        too).
    label_types (dict): Mention label -> semantic types of the knowledge base that it may link to.
        A label that is not listed may link to all.
    nil_threshold (float): Probability below which the best candidate is not linked (NIL).
    search_names (int): Nearest names that are looked at for a mention.
    max_candidates (int): Candidates kept for a mention.
    evidence (dict): Which evidence to use: "exact" (names and spelling variants), "memory"
        (training mentions), "sparse" (search by spelling), "dense" (search by the encoder),
        "prior" (how often a concept was mentioned in training), "context" (what a model that may
        do so reads in the document), "generated" (names that a generative model writes), "organism"
        (genes are of the organisms that the document names).
    abbreviations (bool): Write short forms out that the document defines.
    shorthand (bool): Write short forms out that clinical notes have and do not define ("HTN"), but
        for those that are names of the knowledge base or training mentions.
    coherence (float): How far a mention is drawn to what the other mentions of its document are;
        0: not at all.
    composites (bool): Look for the parts of mentions such as "breast and ovarian cancer".
    set_ents (bool | str): Give the entities that were linked the ids of the links too, see
        `mentions`. Of several linkers, the last that does so has its ids there. "links": make
        entities of the links, in place of those of other pipes; of links that overlap, of the
        longest.
    include_kb (bool): Save the knowledge base with the pipeline; else only its path.
    training (dict): synonyms, negatives, refresh_every (updates between minings), pool_names,
        loss ("info_nce", "multi_similarity" or "marginal"), seed; candidates (that a mention which
        is read is told from; for a dual encoder, of each kind) and mentions (of an update that a
        cross-encoder reads); see `pipeline.linker.training`.
    """
    from spacy_bioel.pipeline.linker.component import Linker

    settings: dict[str, Any] = {
        "kb": kb,
        "mentions": mentions,
        "finding": FINDING | dict(finding),
        "label_types": dict(label_types),
        "nil_threshold": nil_threshold,
        "search_names": search_names,
        "max_candidates": max_candidates,
        "evidence": LINKER_EVIDENCE | dict(evidence),
        "abbreviations": abbreviations,
        "shorthand": shorthand,
        "composites": composites,
        "coherence": coherence,
        "include_kb": include_kb,
        "set_ents": set_ents,
        "training": LINKER_TRAINING | dict(training),
        "spans_key": spans_key,
        "gold_key": gold_key,
    }
    linker = Linker(
        nlp.vocab, model, name, index=index, spelling=spelling, settings=settings, scorer=scorer
    )
    linker.check_settings()
    linker.join(nlp)
    return linker
