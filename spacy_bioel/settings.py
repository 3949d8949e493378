"""The settings of the pipes: descriptions, defaults and allowed values.

docs/reference/settings.md is generated from these models, and the factories use their defaults.
spaCy imports this module for every pipeline, so the module itself imports little.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import cached_property
from inspect import Parameter, signature
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from thinc.api import ConfigValidationError

from spacy_bioel.errors import BioelError, Errors

LINKER, DETECTOR, NAMES = "bioel_linker", "bioel_mentions", "bioel_names"  # factory names
GOLD_KEY = "bioel_gold"
SPANS_KEY = "bioel"
# Values of the linker's `mentions` setting that other modules check for.
BY_DICTIONARY, SPANS_AND_DICTIONARY = "dictionary", "spans+dictionary"

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
_as_tuple = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)
NonEmptyStrings = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], _as_tuple]
_Folders = Annotated[list[str], Field(min_length=1)]
_GoldKey = Annotated[str, Field(description="Span group with the gold mentions, for training.")]

# Words for JSON schema types in messages.
_TYPE_WORDS = {
    "boolean": "true or false",
    "null": "null",
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
}


class SettingsError(BioelError, ConfigValidationError):
    """Raised for invalid settings; `spacy train` shows it without a traceback."""

    def _format(self) -> str:
        return super()._format().strip()

    def __reduce__(self) -> tuple[type[BioelError], tuple[str]]:
        return BioelError, (str(self),)


def suggest(name: str, known: Iterable[str]) -> str:
    """Return a hint for a message: the names most similar to a wrong name, or all valid names."""
    if near := get_close_matches(name, known):
        return f"did you mean {_either(near)}?"
    return f"expected one of {', '.join(known)}"


class Settings(BaseModel):
    """Settings for a pipe, or a nested group of them. Each setting has a default."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    pipe: ClassVar[str] = ""  # factory name, for messages

    @classmethod
    def of(cls, cfg: Mapping[str, Any]) -> Self:
        """Check a pipe's settings and copy them.

        RAISES BioelError: [B270] if a setting is unknown, has the wrong type, is out of range, or
            contains half of a surrogate pair, which cannot be saved.
        """
        check_utf8(cfg, pipe=cls.pipe)
        try:
            return cls.model_validate(cfg)
        except ValidationError as error:
            # pydantic reports one error for each type that the setting allows; show only one.
            wrong = dict.fromkeys(cls._complaint(cfg, item["loc"]) for item in error.errors())
            title, desc = Errors.B270.format(pipe=cls.pipe, wrong="\n".join(wrong)).split("\n", 1)
            raise SettingsError(title=title, desc=desc) from None

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Return the default settings in the form used in configs."""
        return cls().model_dump(mode="json")

    @classmethod
    def _complaint(cls, cfg: Mapping[str, Any], loc: tuple[int | str, ...]) -> str:
        """Describe the setting at a pydantic error's `loc` and its expected values on one line."""
        name, *inner = loc
        value = cfg[name]  # type: ignore[index]
        if not isinstance(name, str) or name not in cls.model_fields:
            return f"{name} = {value!r}: unknown, {suggest(str(name), cls.model_fields)}"
        group = cls.model_fields[name].annotation
        if inner and isinstance(group, type) and issubclass(group, Settings):
            return f"{name}.{group._complaint(value, tuple(inner))}"
        expected = _expected(cls.model_json_schema()["properties"][name])
        return f"{name} = {value!r}: expected {expected}"


def check_utf8(cfg: Mapping[str, Any], *, pipe: str) -> None:
    """Check that settings can be saved. RAISES BioelError: [B270] for half of a surrogate pair."""
    for name, value in cfg.items():
        try:
            json.dumps({name: value}, ensure_ascii=False, skipkeys=True, default=repr).encode()
        except UnicodeEncodeError:
            wrong = f"{ascii(name)[1:-1]} = {value!r}: expected no half of a surrogate pair"
            raise BioelError(Errors.B270.format(pipe=pipe, wrong=wrong)) from None


def _expected(schema: Mapping[str, Any]) -> str:
    """Describe the values that a JSON schema allows, in config syntax."""
    if "examples" in schema:
        return f"a value such as {_either(map(json.dumps, schema['examples']))}"
    if "anyOf" in schema:
        return _either(map(_expected, schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return _either(map(json.dumps, schema.get("enum") or [schema["const"]]))
    type_words = _TYPE_WORDS.get(schema.get("type", ""), "a table")
    if "maximum" in schema:
        return f"{type_words} from {schema['minimum']:g} to {schema['maximum']:g}"
    if "minimum" in schema:
        return f"{type_words} of at least {schema['minimum']:g}"
    return type_words


def _either(values: Iterable[str]) -> str:
    *others, last = values
    return f"{', '.join(others)} or {last}" if others else last


class CurrentSettings(dict[str, Any]):
    """The current settings of a pipe (`cfg`). RAISES BioelError: [B270] if a name is unknown."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in self:
            wrong = f"{name} = {value!r:.80}: unknown, {suggest(name, self)}"
            raise BioelError(Errors.B270.format(pipe="this pipe", wrong=wrong))
        super().__setitem__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return CurrentSettings, (dict(self),)


class MentionSettings(Settings):
    pipe = DETECTOR

    threshold: Share = Field(
        default=0.5,
        description="A span is a mention if its probability, from 0 to 1, is above this value. "
        "`bioel tune` chooses the value.",
    )
    document_smoothing: Share = Field(
        default=0.0,
        description="How far a span's probability is moved towards the highest probability of the "
        "same words in the document, from 0 (not at all) to 1 (all the way). `bioel tune` chooses "
        "the value.",
    )
    allow_overlap: bool = Field(
        default=True,
        description="Keep overlapping and nested mentions. `false` keeps the most probable set of "
        "non-overlapping mentions.",
    )
    abbreviations: bool = Field(
        default=False,
        description='If the document defines a short form for a mention ("acute kidney injury '
        '(AKI)"), every occurrence of the short form is also a mention.',
    )
    include: dict[str, NonEmptyStrings] = Field(
        default={},
        description='Words that are always mentions, by label: `{"Species": ["patients"]}`. Case '
        "is ignored. Other mentions that overlap these words are dropped.",
        examples=[{"Species": ["patients"]}],
    )
    exclude: NonEmptyStrings = Field(
        default=(),
        description="Words that are never mentions. Case is ignored.",
        examples=[["2015"]],
    )
    label_people: bool | None = Field(
        default=None,
        description='`true`: "patients", "men" and "women" are mentions of the species human, as '
        "in BioRED. `false`: they are not mentions, as in Linnaeus and S800. `null`: the model "
        "decides.",
    )
    set_ents: bool = Field(
        default=False,
        description="Also write the mentions to `doc.ents`, without ids. If mentions overlap, only "
        "the longest is kept.",
    )
    spans_key: str = Field(default=SPANS_KEY, description="Span group for the mentions.")
    gold_key: _GoldKey = GOLD_KEY


class DictionarySettings(Settings):
    """How knowledge base names are found in texts (see `DictionaryLookup`)."""

    variants: bool = Field(
        default=True,
        description="Also find inflected forms, different word orders and related words. The "
        '`dictionary` settings apply to `mentions = "dictionary"` and to `bioel_names`.',
    )
    typos: bool = Field(
        default=True,
        description="Also find words that are one typo away from a word in the knowledge base.",
    )
    threshold: Share = Field(default=0.5, description="Minimum probability of a mention.")
    nested: bool = Field(
        default=False,
        description='Also find names inside longer names: "colitis" in "ulcerative colitis".',
    )
    exclude: NonEmptyStrings = Field(
        default=(),
        description="Names that are not mentions in your texts. `bioel tune` adds names that are "
        "not annotated in your documents.",
        examples=[["protein"]],
    )


class EvidenceSettings(Settings):
    """A switch for each source of evidence."""

    exact: bool = Field(
        default=True,
        description="An exact match of the mention with a concept name, or with a spelling variant "
        "of the name.",
    )
    alias_table: bool = Field(
        default=True,
        description="The alias table: how often a string was linked to the concept in training.",
    )
    ngram: bool = Field(
        default=True,
        description="The n-gram search: names that share 3-grams (three characters in a row) with "
        "the mention.",
    )
    dense: bool = Field(
        default=True,
        description="The dense search: names whose vectors are close to the vector of the mention. "
        "Mentions that match a name skip this search. The search is exact; above 200,000 names, it "
        "uses faiss if installed.",
    )
    prior: bool = Field(
        default=True,
        description="How often the concept is mentioned in the training texts, under any name.",
    )
    contextual: bool = Field(
        default=True,
        description="Scores from a contextual model, which reads the text around the mention. This "
        "has no effect with other models.",
    )
    generated: bool = Field(
        default=True,
        description="Names generated by a generative model. This has no effect with other models.",
    )

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of the evidence that is switched on."""
        return frozenset(name for name, is_on in self if is_on)


class TrainingSettings(Settings):
    synonyms: Natural = Field(
        default=96,
        description="Number of synonym pairs from the knowledge base in each update of the name "
        "encoder, in addition to the mentions; 0 for none.",
    )
    negatives: Natural = Field(
        default=2,
        description="Number of hard negatives (similar names of other concepts) for each mention "
        "in an update of the name encoder.",
    )
    candidates: Positive = Field(
        default=10,
        description="Contextual models: number of candidates that compete with the correct concept "
        "for each mention. Dual encoders use this many random names, and as many hard negatives.",
    )
    mentions: Positive = Field(
        default=24,
        description="Number of mentions per update of a cross-encoder or a generative model.",
    )
    refresh_every: Positive = Field(
        default=250,
        description="Number of updates between two searches for hard negatives.",
    )
    pool_names: Positive = Field(
        default=50_000,
        description="Large knowledge bases: number of names searched during training, for hard "
        "negatives and for evaluation.",
    )
    loss: Literal["info_nce", "multi_similarity", "marginal"] = Field(
        default="info_nce",
        description='Loss of the name encoder: `"info_nce"`, `"multi_similarity"` or `"marginal"`.',
    )
    seed: Natural = Field(default=0, description="Random seed for sampling.")


# Labels in general pipelines such as en_core_web_sm; they do not mark biomedical concepts.
GENERAL_LABELS = frozenset(
    "PERSON PER NORP FAC ORG GPE LOC EVENT WORK_OF_ART LAW LANGUAGE DATE TIME PERCENT MONEY"
    " QUANTITY ORDINAL CARDINAL".split()
)


class LinkerSettings(Settings):
    pipe = LINKER

    kb: str | _Folders | Annotated[dict[str, str], Field(min_length=1)] = Field(
        default="",
        description="Knowledge base folder; or a list of folders, which are all searched; or a "
        'folder for each label: `{"Disease": "kb/mondo"}` '
        '([rules](../guides/knowledge_bases.md#in-one-linker)). `""` is the bundled MeSH.',
        examples=["kb/mondo", ["kb/mondo", "kb/hp"], {"Disease": "kb/mondo", "Phenotype": "kb/hp"}],
    )
    mentions: Literal["auto", "spans", "spans+dictionary", "ents", "dictionary", "model"] = Field(
        default="auto",
        description='Which mentions are linked. `"spans"`: the spans in the `spans_key` group. '
        '`"spans+dictionary"`: these spans, and unambiguous names in the knowledge base. `"ents"`: '
        '`doc.ents`. `"auto"`: the span group if the document has it, otherwise `doc.ents`. '
        '`"dictionary"`: the linker itself looks for exact and similar knowledge base names in the '
        'text. `"model"`: the model finds the mentions; it must be '
        "`spacy-bioel.HierarchicalLinker.v1`.",
    )
    dictionary: DictionarySettings = DictionarySettings()
    label_types: dict[str, Annotated[tuple[str, ...], _as_tuple]] = Field(
        default={},
        description='Semantic types that mentions with a label can link to: `{"Disease": ["C", '
        '"F03"]}`. `{"Disease": []}` excludes a label. Labels that are not listed can link to any '
        "type, except labels of general-purpose NER (ORG, PERSON, GPE, LOC, DATE, ...), which are "
        "not linked unless the `kb` setting lists them.",
        examples=[{"Disease": ["C", "F03"]}],
    )
    nil_threshold: Share = Field(
        default=0.25,
        description="If the best candidate scores below this value, from 0 to 1, the mention is "
        "not linked (NIL). `bioel tune` chooses the value.",
    )
    # With more candidates, the search would be slow and the candidate table would fill the memory.
    max_candidates: int = Field(
        default=5,
        ge=1,
        le=10_000,
        description="Maximum number of candidates per mention; recall@k cannot be measured above "
        "this number. All concepts that have the mention as a name are kept.",
    )
    evidence: EvidenceSettings = EvidenceSettings()
    abbreviations: bool = Field(
        default=True,
        description="Expand short forms that are defined in the document before looking them up.",
    )
    coherence: float = Field(
        default=1.0,
        ge=0,
        description="Weight of document coherence: how strongly a mention prefers candidates that "
        "it shares with other mentions in the document. 0 turns it off.",
    )
    include_kb: bool = Field(
        default=True,
        description="Save the knowledge base with the pipeline. `false` saves only its path.",
    )
    set_ents: bool | Literal["links"] = Field(
        default=True,
        description="If the mentions come from `doc.ents`, write the ids to these entities "
        '(`ent.kb_id_`). `"links"` replaces `doc.ents` with the links; if links overlap, only the '
        "longest is kept.",
    )
    training: TrainingSettings = TrainingSettings()
    spans_key: str = Field(default=SPANS_KEY, description="Span group for the mentions and links.")
    gold_key: _GoldKey = GOLD_KEY

    @property
    def only_labels(self) -> tuple[str, ...]:
        """Labels of the mentions that can be linked; empty if all labels can be linked.

        Only a `kb` setting with the same folder for all its labels restricts the labels.
        """
        is_one_folder = isinstance(self.kb, dict) and len(set(self.kb.values())) == 1
        return tuple(self.kb) if is_one_folder else ()


class NameSettings(Settings):
    pipe = NAMES

    kb: str | _Folders = Field(
        default="",
        description="Knowledge base folder or list of folders, which are not saved with the "
        'pipeline. `""`: the knowledge base of the `bioel_linker` with the same `spans_key`.',
        examples=["kb/mondo", ["kb/mondo", "kb/hp"]],
    )
    names: Literal["all", "unambiguous"] = Field(
        default="all",
        description='Which names are found. `"all"`: exact and similar names, as with `mentions = '
        '"dictionary"`, except those that overlap mentions from earlier pipes. `"unambiguous"`: '
        'names that hardly ever have another meaning, as with `mentions = "spans+dictionary"`; the '
        "linker then needs `label_types`, or a `kb` for each label.",
    )
    dictionary: DictionarySettings = DictionarySettings()
    spans_key: str = Field(default=SPANS_KEY, description="Span group for the mentions and names.")


_Factory = TypeVar("_Factory", bound=Callable[..., Any])


def takes(settings: type[Settings]) -> Callable[[_Factory], _Factory]:
    """Replace `**settings` in a factory's signature with one parameter for each setting.

    spaCy rejects config keys that are not in the signature. The pipe checks the values.
    """

    def add_settings(factory: _Factory) -> _Factory:
        original = signature(factory)
        parameters = [p for name, p in original.parameters.items() if name != "settings"]
        parameters += [Parameter(name, Parameter.KEYWORD_ONLY) for name in settings.model_fields]
        factory.__signature__ = original.replace(parameters=parameters)  # type: ignore[attr-defined]
        return factory

    return add_settings
