"""The settings of the pipes: what each means, its default, and the values that it may have.

docs/reference/settings.md is made from these models, and the factories take their defaults from
them. spaCy imports this module for every pipeline that anyone makes.
"""

import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from spacy_bioel.errors import BioelError, Errors

LINKER, DETECTOR, CONTEXT = "bioel_linker", "bioel_mentions", "bioel_context"  # factories
GOLD_KEY = "bioel_gold"
SPANS_KEY = "bioel"
# Values of the linker's setting `mentions` that the code names.
BY_DICTIONARY, SPANS_AND_DICTIONARY = "dictionary", "spans+dictionary"

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Word = Annotated[str, Field(min_length=1)]
_as_tuple = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)
Words = Annotated[tuple[Word, ...], _as_tuple]

_KINDS = {
    **{"boolean": "true or false", "null": "null", "string": "a string"},
    **{"integer": "a whole number", "number": "a number"},
}


class Settings(BaseModel):
    """Settings of a pipe, or a group of them. One that is left out has its default."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    pipe: ClassVar[str] = ""  # the factory, for messages

    @classmethod
    def of(cls, cfg: Mapping[str, Any]) -> Self:
        """Check the settings of a pipe, and copy them.

        RAISES BioelError: [B270] on an unknown setting, a value of another type or out of range.
        """
        try:
            return cls.model_validate(cfg)
        except ValidationError as error:
            # A value of several types has an error for each of them.
            wrong = dict.fromkeys(cls._complaint(cfg, of["loc"]) for of in error.errors())
            raise BioelError(Errors.B270.format(pipe=cls.pipe, wrong="\n".join(wrong))) from None

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Make the default settings, as a config has them."""
        return cls().model_dump(mode="json")

    @classmethod
    def _complaint(cls, cfg: Mapping[str, Any], loc: tuple[int | str, ...]) -> str:
        """Say which setting is wrong, what was found and what is expected.

        loc (tuple): Of an error of pydantic: the setting, after its group, and what of its value.
        """
        name, *inner = loc
        found = cfg[name]  # type: ignore[index]
        if not isinstance(name, str) or name not in cls.model_fields:
            return f"{name} = {found!r}: unknown, expected one of {', '.join(cls.model_fields)}"
        group = cls.model_fields[name].annotation
        if inner and isinstance(group, type) and issubclass(group, Settings):
            return f"{name}.{group._complaint(found, tuple(inner))}"
        expected = _expected(cls.model_json_schema()["properties"][name])
        return f"{name} = {found!r}: expected {expected}"


def _expected(schema: Mapping[str, Any]) -> str:
    """Say which values a JSON schema allows, as a config has them."""
    if "examples" in schema:
        return f"a value such as {_either(map(json.dumps, schema['examples']))}"
    if "anyOf" in schema:
        return _either(map(_expected, schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return _either(map(json.dumps, schema.get("enum") or [schema["const"]]))
    kind = _KINDS.get(schema.get("type", ""), "a table")
    if "maximum" in schema:
        return f"{kind} from {schema['minimum']:g} to {schema['maximum']:g}"
    return f"{kind} of at least {schema['minimum']:g}" if "minimum" in schema else kind


def _either(values: Iterable[str]) -> str:
    *others, last = values
    return f"{', '.join(others)} or {last}" if others else last


class MentionSettings(Settings):
    """Settings of `bioel_mentions`."""

    pipe = DETECTOR

    threshold: Share = Field(
        default=0.5,
        description="From 0 to 1. A span is a mention if its probability is above it. `bioel tune` "
        "chooses it.",
    )
    document_smoothing: Share = Field(
        default=0.0,
        description="From 0 to 1. How far the probability of a span moves towards that of the "
        "surest occurrence of the same words in the document. `bioel tune` chooses it.",
    )
    allow_overlap: bool = Field(
        default=True,
        description="Keep overlapping and nested mentions. `false` keeps the likeliest choice "
        "without overlaps.",
    )
    abbreviations: bool = Field(
        default=False,
        description='Short forms that the document defines for a mention ("acute kidney injury '
        '(AKI)") are mentions too, wherever they stand.',
    )
    include: dict[str, Words] = Field(
        default={},
        description='Words that are always mentions, by label: `{"Species": ["patients"]}`. Case '
        "does not count. No other mention overlaps them.",
        examples=[{"Species": ["patients"]}],
    )
    exclude: Words = Field(
        default=(),
        description="Words that are never mentions. Case does not count.",
        examples=[["2015"]],
    )
    label_people: bool | None = Field(
        default=None,
        description='`true`: "patients", "men" and "women" are mentions of the organism human, as '
        "in BioRED; `false`: they are none, as in Linnaeus and S800; `null`: what the model says.",
    )
    set_ents: bool = Field(
        default=False,
        description="Also fill `doc.ents`, with mentions that do not overlap, the longest first. "
        "They have no ids.",
    )
    spans_key: str = Field(default=SPANS_KEY, description="Span group for the mentions.")
    gold_key: str = Field(
        default=GOLD_KEY, description="Span group of the gold mentions, in training."
    )


class DictionarySettings(Settings):
    """How names are found with a knowledge base; see `dictionary.lookup.DictionaryLookup.find`."""

    variants: bool = Field(
        default=True,
        description='With `mentions = "dictionary"`, as for all of `dictionary`: also find other endings, '
        "word orders and words than a name has.",
    )
    typos: bool = Field(
        default=True,
        description="Also find words that are one slip away from a word of the knowledge base.",
    )
    threshold: Share = Field(default=0.5, description="Least probability of a span, from 0 to 1.")
    nested: bool = Field(
        default=False,
        description='Find names within longer names too, "colitis" in "ulcerative colitis".',
    )
    exclude: Words = Field(
        default=(),
        description="Names that are no mentions in your texts. `bioel tune` adds those that your "
        "documents do not annotate.",
        examples=[["protein"]],
    )


class EvidenceSettings(Settings):
    """Evidence that is switched on."""

    exact: bool = Field(
        default=True,
        description="The mention is a name of the concept, or a spelling variant of one.",
    )
    alias_table: bool = Field(
        default=True,
        description="Mention statistics, what training texts called the concept.",
    )
    ngram: bool = Field(
        default=True,
        description="The spelling search, names that are spelled like the mention.",
    )
    dense: bool = Field(
        default=True,
        description="The dense search, names whose vectors are near. It is exact for up to 32,768 "
        "names, compares half of each vector first above that, and above 200,000 names uses faiss, "
        "if faiss is installed.",
    )
    prior: bool = Field(
        default=True,
        description="How often the concept was mentioned in training, under any name.",
    )
    contextual: bool = Field(
        default=True,
        description="What a model reads around the mention. Counts only with a model that reads.",
    )
    generated: bool = Field(
        default=True,
        description="Names that a generative model writes. Counts only with such a model.",
    )

    @cached_property
    def names(self) -> frozenset[str]:
        """What is switched on."""
        return frozenset(name for name, is_on in self if is_on)


class TrainingSettings(Settings):
    """Settings of training."""

    synonyms: Natural = Field(
        default=96,
        description="How many pairs of names of one concept an update of the name encoder has, "
        "beside its mentions; 0 turns them off.",
    )
    negatives: Natural = Field(
        default=2,
        description="How many wrong names that look right (hard negatives) are taken for each name "
        "in an update.",
    )
    candidates: Positive = Field(
        default=10,
        description="Candidates that compete with the right one for a mention that is read; for a "
        "dual encoder, of each kind.",
    )
    mentions: Positive = Field(
        default=24,
        description="Mentions of an update that a cross-encoder reads.",
    )
    refresh_every: Positive = Field(
        default=250,
        description="Updates after which hard negatives are looked for again.",
    )
    pool_names: Positive = Field(
        default=50_000,
        description="How many names are encoded for evaluation while training.",
    )
    loss: Literal["info_nce", "multi_similarity", "marginal"] = Field(
        default="info_nce",
        description='`"info_nce"`, `"multi_similarity"` or `"marginal"`.',
    )
    seed: Natural = Field(default=0, description="Random seed for the choice of names.")


class LinkerSettings(Settings):
    """Settings of `bioel_linker`."""

    pipe = LINKER

    kb: (
        str
        | Annotated[list[str], Field(min_length=1)]
        | Annotated[dict[str, str], Field(min_length=1)]
    ) = Field(
        default="",
        description="Folder of a knowledge base. Or a list of folders: all of them are searched. "
        'Or a folder for each label, `{"Disease": "kb/mondo"}` '
        '([rules](../guides/knowledge_bases.md#in-one-linker)). `""` is the MeSH of the package.',
        examples=["kb/mondo", ["kb/mondo", "kb/hp"], {"Disease": "kb/mondo", "Phenotype": "kb/hp"}],
    )
    mentions: Literal["auto", "spans", "spans+dictionary", "ents", "dictionary", "model"] = Field(
        default="auto",
        description='Mentions to link. `"spans"`: those of the group `spans_key`. '
        '`"spans+dictionary"`: these, and names of the knowledge base that mean nothing else. '
        '`"ents"`: `doc.ents`. `"auto"`: the group if it is there, else the entities. `"dictionary"`: '
        "names of the knowledge base that the linker finds in the text, and what is nearly one. "
        '`"model"`: those that the model finds, if it is `spacy-bioel.HierarchicalLinker.v1`.',
    )
    dictionary: DictionarySettings = DictionarySettings()
    label_types: dict[str, Annotated[tuple[str, ...], _as_tuple]] = Field(
        default={},
        description="Semantic types of the knowledge base that a label may be linked to: "
        '`{"Disease": ["C", "F03"]}`. A label that is not listed may be linked to all.',
        examples=[{"Disease": ["C", "F03"]}],
    )
    nil_threshold: Share = Field(
        default=0.25,
        description="From 0 to 1. The best candidate is not linked (NIL) if its score is below it. "
        "`bioel tune` chooses it.",
    )
    # Above its limit a search is slower than all that is gained, and its table fills the memory.
    max_candidates: int = Field(
        default=5,
        ge=1,
        le=10_000,
        description="How many candidates a mention keeps. There is no recall beyond it.",
    )
    evidence: EvidenceSettings = EvidenceSettings()
    abbreviations: bool = Field(
        default=True,
        description="Write out short forms that the document defines before looking them up.",
    )
    coherence: float = Field(
        default=1.0,
        ge=0,
        description="How far a mention is drawn to what the other mentions of its document are; 0 "
        "is not at all.",
    )
    include_kb: bool = Field(
        default=True,
        description="Save the knowledge base with the pipeline. `false` saves its path only.",
    )
    set_ents: bool | Literal["links"] = Field(
        default=True,
        description="Where mentions are taken from `doc.ents`, give the entities their ids "
        '(`ent.kb_id_`). `"links"` replaces `doc.ents` by the links; of links that overlap, by the '
        "longest.",
    )
    training: TrainingSettings = TrainingSettings()
    spans_key: str = Field(default=SPANS_KEY, description="Span group of the mentions and links.")
    gold_key: str = Field(
        default=GOLD_KEY, description="Span group of the gold mentions, in training."
    )

    @property
    def only_labels(self) -> tuple[str, ...]:
        """Labels of the mentions that may be linked, where all of them have the same folder; ():
        mentions of all labels may be.
        """
        is_one = isinstance(self.kb, dict) and len(set(self.kb.values())) == 1
        return tuple(self.kb) if is_one else ()


class ContextSettings(Settings):
    """Settings of `bioel_context`."""

    pipe = CONTEXT

    rules: str = Field(
        default="",
        description='JSON file of cues and sections; "" stands for those of the package. They are '
        "saved with the pipeline.",
    )
    spans_key: str = Field(default=SPANS_KEY, description="Span group of the mentions.")
