"""The pipe factories with their default models and rules, and the tokenizer.

spaCy imports this module for every pipeline, so the factories import their pipes only when called.
"""

# No `from __future__ import annotations`: spaCy reads the annotations as types.

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from spacy.language import Language
from spacy.tokenizer import Tokenizer
from spacy.util import compile_infix_regex, compile_prefix_regex
from thinc.api import Model

from spacy_bioel.settings import (
    DETECTOR,
    LINKER,
    NAMES,
    LinkerSettings,
    MentionSettings,
    NameSettings,
    takes,
)

if TYPE_CHECKING:
    from spacy_bioel.linking.names import NameLookup
    from spacy_bioel.linking.pipe import Linker
    from spacy_bioel.mentions.pipe import MentionDetector


MENTIONS_MODEL: dict[str, Any] = {
    "@architectures": "spacy-bioel.SpanEnumerator.v1",
    **{"max_width": 10, "hidden": 128, "dropout": 0.2},
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
# A model of the same size as the bundled encoder.
LINKER_MODEL: dict[str, Any] = {
    "@architectures": "spacy-bioel.ResCNN.v1",
    **{"dim": 192, "blocks": 3, "filters": 96, "widths": [1, 3, 5], "pooling": "max"},
    **{"dropout": 0.2, "max_tokens": 25},
}
# Entity rules (see `spacy_bioel.entities`). A config can add rules, or turn some off with null.
_MENTION_RULES = {
    "variants": {"@misc": "spacy-bioel.Variants.v1"},
    "composites": {"@misc": "spacy-bioel.Composites.v1"},
}
_LINKER_RULES = {
    "genes": {"@misc": "spacy-bioel.Genes.v1"},
    "notes": {"@misc": "spacy-bioel.Shorthand.v1"},
    **_MENTION_RULES,
    "chemicals": {"@misc": "spacy-bioel.Chemicals.v1"},
}


@Language.factory(
    DETECTOR,
    assigns=["doc.spans"],
    default_config={
        "model": MENTIONS_MODEL,
        **MentionSettings.defaults(),
        "entities": _MENTION_RULES,
        "scorer": {"@scorers": "spacy-bioel.mention_scorer.v1"},
    },
    default_score_weights={"bioel_mention_f": 1.0, "bioel_mention_p": 0.0, "bioel_mention_r": 0.0},
)
@takes(MentionSettings)
def make_mention_detector(
    nlp: Language,
    name: str,
    model: Model,
    entities: dict[str, Any],
    scorer: Callable | None,
    **settings: Any,
) -> "MentionDetector":
    """Create a `bioel_mentions` pipe, which finds mentions with a trained model."""
    from spacy_bioel.mentions.pipe import MentionDetector

    about: Any = {"settings": settings, "entities": entities, "scorer": scorer}
    pipe = MentionDetector(nlp.vocab, model, name, **about)
    pipe.join(nlp)
    return pipe


@Language.factory(
    LINKER,
    assigns=["doc.spans", "doc.ents"]
    + [f"span._.{name}" for name in ("concept_id", "cui", "cuis", "candidates")],
    default_config={
        "model": LINKER_MODEL,
        "ngram_search": {"@misc": "spacy-bioel.Ngrams.v1"},
        **LinkerSettings.defaults(),
        "entities": _LINKER_RULES,
        "scorer": {"@scorers": "spacy-bioel.link_scorer.v1"},
    },
    default_score_weights={
        "bioel_link_f": 1.0,
        "bioel_link_p": 0.0,
        "bioel_link_r": 0.0,
        "bioel_link_acc": 0.0,
    },
)
@takes(LinkerSettings)
def make_linker(
    nlp: Language,
    name: str,
    model: Model,
    ngram_search: Callable,
    entities: dict[str, Any],
    scorer: Callable | None,
    **settings: Any,
) -> "Linker":
    """Create a `bioel_linker` pipe, which links mentions to a knowledge base."""
    from spacy_bioel.linking.pipe import Linker
    from spacy_bioel.linking.validation import check_folders

    linker = Linker(
        nlp.vocab,
        model,
        name,
        ngram_search=ngram_search,
        settings=settings,
        entities=entities,
        scorer=scorer,
    )
    linker.join(nlp)
    check_folders(linker.cfg["kb"])
    return linker


@Language.factory(NAMES, assigns=["doc.spans"], default_config=NameSettings.defaults())
@takes(NameSettings)
def make_names(nlp: Language, name: str, **settings: Any) -> "NameLookup":
    """Create a `bioel_names` pipe, which finds names from a knowledge base."""
    from spacy_bioel.linking.names import NameLookup

    linker: Any = None
    if NameSettings.of(settings).kb:
        # Switch off vectors, since names are not searched by similarity.
        config = {"kb": settings["kb"], "mentions": "dictionary", "evidence": {"dense": False}}
        linker = nlp.create_pipe(LINKER, name=LINKER, config=config)
    names = NameLookup(name, settings=settings, linker=linker)
    names.join(nlp)
    return names


# Combining accents are not separators, because they belong to their letters. The group is needed
# because spaCy joins and anchors patterns.
_SEPARATOR = r"(?:[^\w\s\u0300-\u036f]|_)"
# spaCy splits off an infix at the start of a string only if another infix follows, so a lone
# separator must be a prefix. Treating all separators as prefixes would take quadratic time.
_LONE_SEPARATOR = rf"{_SEPARATOR}(?!{_SEPARATOR})"
_NUMBER_BEFORE_UNIT = r"(?<=[0-9])(?=(?:mg|g|kg|ml|l|[mn]?M|m?mol|hr?|days?|weeks?|wk)(?:[\W_]|$))"
# "CCR5Delta32" is a gene and its variant.
_DELETION_BEHIND_GENE = r"(?<=[A-Za-z0-9])(?=(?:[Dd]elta|[Δ∆])[0-9])"


def create_bio_tokenizer() -> Callable[[Language], Tokenizer]:
    """Return a function that creates the `spacy-bioel.BioTokenizer.v1` tokenizer.

    With spaCy's English rules, chemicals and diseases may start or end inside a token, as in
    "naloxone-induced", "levodopa/carbidopa", "[3H]-naloxone" and "100mg", so 1.3 % of the mentions
    in BC5CDR cannot be represented. This spaCy Tokenizer makes every character that is neither a
    letter nor a digit a token, and separates numbers from their units.
    """

    def create_tokenizer(nlp: Language) -> Tokenizer:
        return Tokenizer(
            nlp.vocab,
            prefix_search=compile_prefix_regex([_LONE_SEPARATOR]).search,
            infix_finditer=compile_infix_regex(
                [_SEPARATOR, _NUMBER_BEFORE_UNIT, _DELETION_BEHIND_GENE]
            ).finditer,
        )

    return create_tokenizer
