"""The `bioel_linker` pipe, which links mentions to concepts in a knowledge base."""

# No `from __future__ import annotations`: spaCy needs real types in annotations.

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import RLock
from typing import Any

import srsly
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example, validate_get_examples
from spacy.vocab import Vocab
from thinc.api import Model, Optimizer
from thinc.types import FloatsXd

from spacy_bioel.batch import Batch
from spacy_bioel.doc import (
    set_ent_links,
    set_links,
    set_links_as_ents,
    stored_names,
    takes_entities,
)
from spacy_bioel.entities import EntityRules
from spacy_bioel.entities.rule_set import RuleSet
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.explanation import register_extensions
from spacy_bioel.kb import bundled
from spacy_bioel.kb.bundled import INCLUDED, KbSetting, folders_of, open_kbs, setting_of
from spacy_bioel.kb.joined import parts_of
from spacy_bioel.kb.knowledge_base import KnowledgeBase, open_kb
from spacy_bioel.kb.vector_files import Encoded
from spacy_bioel.linking import starter, validation
from spacy_bioel.linking.candidates import Cache, CandidateGenerator, LinkerState
from spacy_bioel.linking.evidence import FEATURES, AliasTable
from spacy_bioel.linking.find import find_mentions
from spacy_bioel.linking.link import link
from spacy_bioel.linking.rescoring import Rescorer, rescorer_of
from spacy_bioel.linking.searches import FrozenEncoder, MakeSearch
from spacy_bioel.linking.training import NameTraining, make_networks, training_strings
from spacy_bioel.models.fusion import Fusion, read_weights
from spacy_bioel.models.name_encoder import encoder_parts, load_encoder, name_encoder_of
from spacy_bioel.parallel import give_back_memory, in_halves
from spacy_bioel.pipe import Pipeline, SavedParts, StoredPipe
from spacy_bioel.settings import (
    BY_DICTIONARY,
    SPANS_AND_DICTIONARY,
    CurrentSettings,
    LinkerSettings,
)  # fmt: skip
from spacy_bioel.types import Link, remember_opener

_ALIAS_TABLE_FILE = "alias_table.json"
_WEIGHT_NAMES = ("fusion", "rescoring")


class Linker(StoredPipe[LinkerSettings]):
    """Pipe that links mentions to concepts; for its settings, see `LinkerSettings`.

    Weights (`fusion`, `rescoring`), `alias_table` and settings (`cfg`) can be changed at any time;
    changes apply from the next batch. Several threads can predict, but only one can train.
    """

    def __init__(
        self,
        vocab: Vocab,
        model: Model[Any, Any],
        name: str,
        *,
        ngram_search: MakeSearch,
        settings: dict[str, Any],
        entities: Mapping[str, EntityRules | None] | None = None,
        scorer: Callable[..., dict[str, Any]] | None = None,
    ) -> None:
        self.entities = RuleSet(entities or {})
        register_extensions(self.entities.fact_names)
        remember_opener(self)
        self.vocab = vocab
        self.model = model
        self.name = name
        self.scorer = scorer
        self.cfg = CurrentSettings(settings)
        self.alias_table = AliasTable()
        self.fusion: Fusion | None = None
        self.rescoring: Fusion | None = None
        self._ngram_search = ngram_search
        # Resolve relative paths against this folder, even if the working directory changes before
        # they are first used.
        self._base = Path.cwd() if settings.get("kb") else Path()
        self.included: KbSetting = ""  # knowledge bases in the saved linker's folder
        self.pipeline = Pipeline()
        self._lock = RLock()
        self._cache = Cache()
        self._forget_kb()

    def _forget_kb(self) -> None:
        """End training, and drop the open knowledge base, so that it is reopened on next use."""
        self._kb: KnowledgeBase | None = None
        self._opened_as: KbSetting = ""  # the `kb` setting when `_kb` was opened
        self._is_equipped = False  # whether `_equip` has added the bundled components
        self._training: NameTraining | None = None
        self._cache = self._cache.only("encoder")

    @property
    def encoder(self) -> Model[Any, Any]:
        """The name encoder: the whole model or, in a contextual model, a part of it."""
        return name_encoder_of(self.model)

    @property
    def has_encoder(self) -> bool:
        return self.encoder.attrs["tokenizer"] is not None

    @property
    def rescorer(self) -> Rescorer | None:
        """The contextual part of the model; None if the model is only a name encoder."""
        return self._cache.get("rescorer", self.model, partial(rescorer_of, self.model))

    @property
    def is_contextual(self) -> bool:
        """Whether a contextual model rescores candidates."""
        rescorer = self.rescorer
        if rescorer is None or not rescorer.is_ready:
            return False
        return rescorer.evidence in self.check_settings().evidence.names

    @property
    def fingerprint(self) -> str:
        """Digest of the encoder. RAISES BioelError: [B053] if the linker has no encoder."""
        encoder = self.state.encoder
        if encoder is None:
            raise BioelError(Errors.B053.format(name=self.name))
        return encoder.fingerprint

    def read_settings(self) -> LinkerSettings:
        """Check the settings. Raises the same errors as `validation.check_settings`."""
        return validation.check_settings(self.cfg, self.model)

    @property
    def state(self) -> LinkerState:
        """Snapshot of the linker's parts. Raises the same errors as `kb` and `check_settings`."""
        with self._lock:
            return LinkerState(
                kb=self.kb,  # first: opening the KB may add the bundled encoder and alias table
                encoder=self._freeze() if self.has_encoder else None,
                alias_table=self.alias_table,
                fusion=self.fusion,
                rescoring=self.rescoring,
                settings=self.check_settings(),
                make_ngram_search=self._ngram_search,
                rules=self.entities,
                rescorer=self.rescorer if self.is_contextual else None,
            )

    @property
    def generator(self) -> CandidateGenerator:
        """The candidate generator for the current state.

        During training with a large knowledge base, the generator searches only a pool of names
        (see `NamePool`), until `encode_kb` or `set_kb` ends the training.
        """
        with self._lock:
            state = self.state
            if self._training is not None:
                state = replace(state, pool=self._training.pool_of(state))
            make = partial(CandidateGenerator, state, self._cache)
            return self._cache.get("generator", state, make)

    def _freeze(self) -> FrozenEncoder:
        network = self.encoder.get_ref("network")
        return self._cache.get("encoder", network, lambda: FrozenEncoder.of(self.encoder))

    # The knowledge base.

    @property
    def kb(self) -> KnowledgeBase:
        """The knowledge base, opened on first use.

        A linker without an encoder gets the bundled encoder when the knowledge base is opened.
        Raises the same errors as `KnowledgeBase.open`, `starter_kb` and `check_settings`.
        """
        with self._lock:
            self.pipeline.check_order(partial(validation.check_order, linker=self))
            if self._kb is not None and self.cfg["kb"] != self._opened_as:
                self.set_kb(self.cfg["kb"])  # the setting has changed
            if self._kb is None or not self._is_equipped:
                kb = self._opened_kb()
                self._equip(kb)
                self._kb, self._is_equipped = kb, True
                self._opened_as = deepcopy(self.cfg["kb"])
                give_back_memory()  # after loading or building the KB
            return self._kb

    def _opened_kb(self) -> KnowledgeBase:
        """Return the open knowledge base, or open the one in the settings."""
        return self._kb or open_kbs(self.cfg["kb"], self._open_folder)

    def _open_folder(self, path: str) -> KnowledgeBase:
        kb = bundled.open_setting(path, self._base)
        self._ensure_vectors(kb)  # before the next KB is built, to limit peak memory
        return kb

    def _equip(self, kb: KnowledgeBase) -> None:
        """Add the bundled encoder, alias table and vectors to a linker that lacks them."""
        if not self.has_encoder:
            starter.add_starter_encoder(self.encoder, kb, mentions=self.cfg["mentions"])
            if bundled.bundled_name(kb) and not self.alias_table.counts:
                self.alias_table = starter.starter_alias_table()
        for part in parts_of(kb):
            self._ensure_vectors(part)
        validation.check_types(kb, self.cfg["label_types"])

    def _ensure_vectors(self, kb: KnowledgeBase) -> None:
        """Encode a bundled knowledge base on first use."""
        is_dense = self.has_encoder and "dense" in self.check_settings().evidence.names
        if is_dense and bundled.bundled_name(kb):
            starter.ensure_vectors(kb, self._freeze())

    def kb_if_built(self) -> KnowledgeBase:
        """Open the knowledge base to read its records, without building or encoding anything.

        RAISES BioelError: [B320] if the KB is not built; the same errors as `KnowledgeBase.open`.
        """
        with self._lock:
            if self._kb is None:
                open_built = partial(bundled.open_setting, base=self._base, builds=False)
                kb = open_kbs(self.cfg["kb"], open_built)
                self._kb, self._opened_as = kb, deepcopy(self.cfg["kb"])
            return self._kb

    def set_kb(self, kb: KnowledgeBase | Path | KbSetting) -> None:
        """Switch to other knowledge bases without retraining; this ends any training in progress.

        kb (KnowledgeBase | Path | KbSetting): An open knowledge base, or a value of the `kb`
            setting. Large knowledge bases need vectors from this pipe's encoder (see `encode_kb`).
        RAISES BioelError: The same errors as `KnowledgeBase.open` and `open_kbs`.
        """
        if isinstance(kb, str | list | dict):
            self._take(open_kbs(kb, bundled.open_setting), kb)
        else:
            self._take(open_kb(kb), "")

    def _take(self, kb: KnowledgeBase, setting: KbSetting) -> None:
        """Link against an open knowledge base; `setting` assigns labels to its parts."""
        with self._lock:
            self.pipeline.forget_order()  # check again that the other pipes' labels fit.
            # Save bundled KBs by name, because their cache path differs between machines.
            folders = [bundled.place_of(part) for part in parts_of(kb)]
            self.cfg["kb"] = setting_of(kb, folders, before=setting)
            self._forget_kb()
            self._kb, self._opened_as = kb, deepcopy(self.cfg["kb"])

    # Storage: encoder, alias table and weights are saved as parts, the knowledge base as a folder.
    # Bundled components are saved too, so that using a pipe for the first time does not change what
    # is saved.

    def saved_state(self) -> dict[str, Any]:
        return {"kb": self._included_kb()} if self.cfg["include_kb"] else {}

    def _included_kb(self) -> KbSetting:
        """Build the `kb` setting for a pipe that is saved with its knowledge bases."""
        if isinstance(self.cfg["kb"], str):
            return INCLUDED  # without opening the knowledge base
        n = len(parts_of(self.kb))
        folders = [INCLUDED] if n == 1 else [f"{INCLUDED}.{number}" for number in range(n)]
        return setting_of(self.kb, folders, before=self.cfg["kb"])

    def parts(self) -> SavedParts:
        if not self.has_encoder:
            _ = self.kb  # opening the KB may add the bundled encoder
        tables: dict[str, Any] = {_ALIAS_TABLE_FILE: self.alias_table.counts, "fusion.json": None}
        for name in _WEIGHT_NAMES:
            if weights := getattr(self, name):
                tables[f"{name}.json"] = weights.to_json(self.features_of(name))
        self._read_tables(tables)  # refuse to save tables that could not be loaded again
        stored = {name: srsly.json_dumps(table).encode for name, table in tables.items()}
        contextual = self.rescorer.parts() if self.rescorer else {}
        return {**stored, **encoder_parts(self.encoder), **contextual}

    def load_parts(self, parts: Mapping[str, bytes], state: Mapping[str, Any]) -> None:
        self.included = state.get("kb", "")
        names = {_ALIAS_TABLE_FILE, *(f"{name}.json" for name in _WEIGHT_NAMES)} & parts.keys()
        tables = {name: srsly.json_loads(parts[name]) for name in names}
        self.alias_table, self.fusion, self.rescoring = self._read_tables(tables)
        load_encoder(self.encoder, parts)
        if self.rescorer:
            self.rescorer.load(parts)
        with self._lock:
            self._cache = Cache()
            self._forget_kb()

    def features_of(self, weights: str) -> Sequence[str]:
        """Return the feature names for the "fusion" or "rescoring" weights."""
        if weights == "fusion":
            return FEATURES
        return self.rescorer.features if self.rescorer else ()

    def _read_tables(
        self, tables: Mapping[str, Any]
    ) -> tuple[AliasTable, Fusion | None, Fusion | None]:
        """Read the alias table and weights. RAISES BioelError: [B272] if damaged."""
        alias_table = AliasTable.from_json(tables[_ALIAS_TABLE_FILE])
        fusion, rescoring = (
            read_weights(tables.get(f"{name}.json"), self.features_of(name))
            for name in _WEIGHT_NAMES
        )
        return alias_table, fusion, rescoring

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        if "kb" not in exclude:
            validation.check_saved_kb(self._kb, self.name, includes_kb=self.cfg["include_kb"])
        includes_kb = self.cfg["include_kb"] and "kb" not in exclude
        kbs = [part.to_bytes() for part in parts_of(self.kb)] if includes_kb else []
        data: bytes = srsly.msgpack_dumps({"pipe": super().to_bytes(), "kbs": kbs})
        return data

    def read_bytes(self, bytes_data: bytes) -> None:
        parts = srsly.msgpack_loads(bytes_data)
        super().read_bytes(parts["pipe"])
        if parts["kbs"]:
            blocks = dict(zip(folders_of(self.included), parts["kbs"], strict=True))
            kb = open_kbs(self.included, lambda name: KnowledgeBase.from_bytes(blocks[name]))
            self._take(kb, self.included)

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        validation.check_saved_kb(self._kb, self.name, includes_kb=self.cfg["include_kb"])
        super().to_disk(path)
        if self.cfg["include_kb"] and "kb" not in exclude:
            setting = self._included_kb()
            bundled.forget_paths(Path(path), kb=setting)
            for folder, part in zip(folders_of(setting), parts_of(self.kb), strict=True):
                part.save_to(Path(path) / folder)

    def read_folder(self, folder: Path) -> None:
        super().read_folder(folder)
        # A different `kb` setting in the config takes precedence over the saved knowledge base.
        if self.included and self.cfg["kb"] in ("", self.included):
            find = partial(bundled.find_included, folder.resolve())
            self.cfg["kb"] = bundled.map_folders(self.included, find)

    # Prediction.

    def predict(self, docs: Iterable[Doc]) -> list[list[Link]]:
        """Return each document's links, in the order of its mentions."""
        return sum(in_halves(lambda part: self.link(part)[1], list(docs)), [])

    def link(self, docs: Iterable[Doc]) -> tuple[Batch, list[list[Link]]]:
        """Find the mentions and link them (see `linking.link`)."""
        return link(self.find(docs), self.generator)

    def find(self, docs: Iterable[Doc]) -> Batch:
        """Find the mentions, and the strings to look up for them."""
        generator, settings = self.generator, self.check_settings()
        if settings.mentions == "model":
            if self.rescorer is None or not self.rescorer.is_ready:
                raise BioelError(Errors.B053.format(name=self.name))
            return generator.rules.prepare(self.rescorer.find(docs, settings))
        batch = find_mentions(docs, generator)
        if settings.mentions != BY_DICTIONARY:
            self.pipeline.check_mentions(batch.docs, len(batch), self.name)
        return batch

    def set_annotations(self, docs: Iterable[Doc], scores: list[list[Link]]) -> None:
        """Write links to the `spans_key` span group and, depending on `set_ents`, to doc.ents."""
        key, kb, nil = self.cfg["spans_key"], self.kb.fingerprint, self.cfg["nil_threshold"]
        mentions = self.cfg["mentions"]
        for doc, links in zip(docs, scores, strict=True):
            names = stored_names(doc, key)
            adds = bool(names) or mentions == SPANS_AND_DICTIONARY
            from_ents = takes_entities(doc, mentions, spans_key=key)
            about = {"kb": kb, "nil_threshold": nil, "adds": adds, "from_ents": from_ents}
            set_links(doc, links, spans_key=key, **about)
            has_ents = from_ents or (names.get("from_ents") and self.cfg["set_ents"] != "links")
            if has_ents and self.cfg["set_ents"]:
                set_ent_links(doc, spans_key=key)
            elif self.cfg["set_ents"] == "links":
                set_links_as_ents(doc, spans_key=key)

    # Training.

    def initialize(
        self,
        get_examples: Callable[[], Iterable[Example]],
        *,
        nlp: Language | None = None,
        kb: Any = None,
        encoder: str | None = None,
        embeddings: str | None = None,
        vocabulary: int = 16000,
        width: int = 256,
    ) -> None:
        """Set the knowledge base, count the training mentions, and build the networks.

        kb (KnowledgeBase | str | None): Knowledge base or its folder; None: the `kb` setting.
        encoder, embeddings, vocabulary, width: See `training.make_networks`.
        """
        validate_get_examples(get_examples, "Linker.initialize")
        with self._lock:
            if kb is None or kb == "":
                self._take(self._opened_kb(), self.cfg["kb"])
            else:
                self.set_kb(kb)
            self.alias_table = AliasTable()
            # The old weights were fitted to another encoder's evidence.
            self.fusion = self.rescoring = None
            if nlp is not None:
                nlp.meta.get("bioel", {}).pop("tuning", None)
            self.count_mentions(get_examples())
            validation.check_gold_ids(self._opened_kb(), self.alias_table.ids, "training documents")
            make_networks(
                self.model,
                self.rescorer,
                self._opened_kb(),
                get_examples,
                more_names=self.alias_table.names,
                gold_key=self.cfg["gold_key"],
                encoder=encoder,
                embeddings=embeddings,
                vocabulary=vocabulary,
                width=width,
            )
            self._cache.forget("encoder")
            self._start_training()

    def count_mentions(self, examples: Iterable[Example]) -> None:
        """Add training mentions to the alias table, as written and with abbreviations expanded."""
        kb = self._kb or self.kb
        settings = self.check_settings()
        self.alias_table = self.alias_table.with_mentions(
            (string, kb.canonical(concept_id))
            for example in examples
            for string, concept_id in training_strings([example], settings)
        )

    def learn(self, examples: Sequence[Example]) -> float | None:
        """Accumulate a batch's gradients. RAISES BioelError: [B053] before `initialize`."""
        if not self.has_encoder:
            raise BioelError(Errors.B053.format(name=self.name))
        with self._lock:
            training = self._training or self._start_training()
        return training.update(examples)

    def _start_training(self) -> NameTraining:
        train = self.rescorer.training if self.rescorer else NameTraining
        self._training = train(self.model, self.state, self.check_settings().training)
        return self._training

    def finish_update(self, sgd: Optimizer) -> None:
        super().finish_update(sgd)
        self._cache.forget("encoder")

    def use_params(self, params: dict[tuple[int, str], FloatsXd]) -> Iterator[None]:
        """Predict with other weights, such as averages, until the iterator is advanced.

        As in spaCy's pipes, this is a generator for `Language.use_params`, not a context manager.
        """
        try:
            with self.model.use_params(params):
                self._cache.forget("encoder")
                yield
        finally:
            self._cache.forget("encoder")

    def score(self, examples: Iterable[Example], **kwargs: object) -> dict[str, Any]:
        """Score predictions with the pipe's scorer, which maps retired ids to current ids.

        Warns [W340] if the knowledge base lacks most of the gold ids.
        """
        examples = list(examples)
        validation.warn_of_gold_ids(self.kb, examples, key=self.cfg["gold_key"])
        scores: dict[str, Any] = super().score(examples, canonical=self.kb.canonical, **kwargs)
        return scores

    # Vectors and pickling.

    def encode_kb(
        self, kb: KnowledgeBase | str | Path, *, progress: Callable[[int], None] | None = None
    ) -> Encoded:
        """Write name vectors and contextual model data to knowledge base folders, ending training.

        progress (Callable | None): Called after each block with the number of new names.
        RETURNS (Encoded): Counts for all knowledge bases, and the last one's approximate index.
        RAISES BioelError: [B053] if there is no encoder; the same errors as `write_vectors`.
        """
        with self._lock:
            if not self.has_encoder:
                starter.read_starter_encoder(self.encoder)
            if not self.has_encoder:
                raise BioelError(Errors.B053.format(name=self.name))
            self._training, self._cache = None, self._cache.only("encoder")
            encoder = self._freeze()
        done = [encoder.write(part, progress=progress) for part in parts_of(open_kb(kb))]
        if self.rescorer:
            self.rescorer.encode_kb(open_kb(kb))
        return Encoded(sum(d.encoded for d in done), sum(d.copied for d in done), done[-1].ann)

    def __reduce__(self) -> tuple[Any, ...]:
        # Used by spawned worker processes. The knowledge base is pickled as a path, so that all
        # workers share its memory-mapped pages.
        parts: dict[str, Any] = {"entities": self.entities.rules, "scorer": self.scorer}
        parts |= {"ngram_search": self._ngram_search, "settings": self.cfg}
        make = partial(type(self), self.vocab, self.model, self.name, **parts)
        return _unpickle_linker, (make, self.to_bytes(exclude=["kb"]), self.kb)


def _unpickle_linker(make: Callable[[], Linker], data: bytes, kb: KnowledgeBase) -> Linker:
    linker = make()
    linker.from_bytes(data)
    linker._take(kb, linker.cfg["kb"])
    return linker
