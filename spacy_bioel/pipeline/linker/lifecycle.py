"""The lifecycle of a linker: its state, composed of its parts, and the generator made from it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType, ref

from spacy.language import Language
from spacy.vocab import Vocab
from thinc.api import Model

from spacy_bioel.errors import BioelError, Errors, Warnings
from spacy_bioel.opened import remember_opener
from spacy_bioel.pipeline.annotate import register_extensions
from spacy_bioel.pipeline.linker.kbs import KbSetting, open_kbs, setting_of
from spacy_bioel.pipeline.linker.storage import StoredLinker

if TYPE_CHECKING:
    from spacy_bioel.kb.columns.store import KnowledgeBase
    from spacy_bioel.kb.vectors.writing import Encoded
    from spacy_bioel.pipeline.linker.candidates import CandidateGenerator
    from spacy_bioel.pipeline.linker.names import FrozenEncoder
    from spacy_bioel.pipeline.linker.spelling import MakeSearch
    from spacy_bioel.pipeline.linker.state import LinkerState, MakeIndex
    from spacy_bioel.pipeline.linker.training import NameTraining


class LiveLinker(StoredLinker):
    """A linker whose state follows its parts.

    Weights (`fusion`, `reading`, `finding`), mention statistics and settings (`cfg`) may be
    assigned at any time: the next batch is linked by them.
    """

    def __init__(
        self,
        vocab: Vocab,
        model: Model[Any, Any],
        name: str,
        *,
        index: MakeIndex,
        spelling: MakeSearch,
        settings: dict[str, Any],
        scorer: Callable[..., dict[str, Any]] | None = None,
    ) -> None:
        from spacy_bioel.pipeline.linker.statistics import MentionStatistics

        register_extensions()
        remember_opener(self)
        self.vocab = vocab
        self.model = model
        self.name = name
        self.scorer = scorer
        self.cfg = settings
        self.statistics = MentionStatistics()
        self.fusion = None
        self.reading = None
        self.finding = None
        self._index = index
        self._spelling = spelling
        # A relative path is relative to the current folder of now, not of the first use.
        self._base = Path.cwd() if settings.get("kb") else Path()
        self._kb: KnowledgeBase | None = None
        self._opened_as: KbSetting = ""  # the setting when the knowledge base was opened
        self._is_equipped = False
        self._dense: tuple[tuple[KnowledgeBase, FrozenEncoder], bool] | None = None
        self._frozen: tuple[Model[Any, Any], FrozenEncoder] | None = None
        self._generator: CandidateGenerator | None = None
        self._training: NameTraining | None = None
        self._nlp: ReferenceType[Language] | None = None
        self._checked: list[str] = []
        self._is_warned = False
        self._lock = RLock()

    def _loaded(self) -> None:
        with self._lock:
            self._kb, self._is_equipped = None, False
            self._frozen = self._generator = self._training = None

    def join(self, nlp: Language) -> None:
        """Remember the pipeline, whose order is checked at first use, and when it has changed."""
        self._nlp = ref(nlp)

    def _check_order(self) -> None:
        nlp = self._nlp() if self._nlp else None
        if nlp is not None and nlp.pipe_names != self._checked:
            from spacy_bioel.pipeline.linker.checks import check_order

            check_order(nlp, self)
            self._checked = list(nlp.pipe_names)

    def _warn_alone(self) -> None:
        """Warn [W323], once, when the linker is the only pipe and documents have no mentions."""
        nlp = self._nlp() if self._nlp else None
        # Those that are switched off too: rulers read their patterns with the pipes before them.
        if nlp is not None and nlp.component_names == [self.name] and not self._is_warned:
            self._is_warned = True
            warnings.warn(Warnings.W323.format(linker=self.name), stacklevel=2)

    # State: composed of what is assigned, never told that something changed.

    @property
    def state(self) -> LinkerState:
        """The parts as they are now. RAISES BioelError: Those of `kb` and `check_settings`."""
        from spacy_bioel.kb.columns.joined import parts_of
        from spacy_bioel.pipeline.linker.state import LinkerState

        with self._lock:
            kb = self.kb  # first: opening it may bring the package's encoder and statistics
            settings = self.check_settings()
            if len(parts_of(kb)) > 1:  # which knows its labels; in bytes they have no folders
                settings = replace(settings, only_labels=())
            return LinkerState(
                kb=kb,
                encoder=self._freeze() if self.has_encoder else None,
                statistics=self.statistics,
                fusion=self.fusion,
                reading=self.reading,
                finding=self.finding,
                settings=settings,
                make_index=self._index,
                make_spelling=self._spelling,
            )

    @property
    def generator(self) -> CandidateGenerator:
        """Candidate generation by the state as it is now.

        While a large knowledge base is trained on, it searches a pool of its names, see
        `linker.training`; until `encode_kb` or `set_kb` ends the training.
        """
        from spacy_bioel.pipeline.linker.joined import make_generator

        with self._lock:
            state = self.state
            pool = self._training.pool_of(state) if self._training else None
            if pool is None and not self._is_dense(state):
                state = replace(state, encoder=None)
            if self._generator is None or self._generator.state != state:
                self._generator = make_generator(state, before=self._generator, pool=pool)
            return self._generator

    def _open(self) -> None:
        """Open the knowledge base; unset components default to those of the package."""
        if self._kb is not None and self.cfg["kb"] != self._opened_as:
            self.set_kb(self.cfg["kb"])  # another one was assigned
        if self._kb is not None and self._is_equipped:
            return
        from spacy_bioel.kb.columns.joined import parts_of
        from spacy_bioel.pipeline.linker import starter
        from spacy_bioel.pipeline.linker.checks import check_types

        kb = self._configured_kb() if self._kb is None else self._kb
        if not self.has_encoder:
            starter.add_starter_encoder(self.encoder, kb, mentions=self.cfg["mentions"])
            if starter.is_starter(kb) and not self.statistics.counts:
                self.statistics = starter.starter_statistics()
        for part in parts_of(kb):
            self._ensure_vectors(part)
        check_types(kb, self.cfg["label_types"])
        self._kb, self._is_equipped = kb, True
        self._opened_as = deepcopy(self.cfg["kb"])

    def _configured_kb(self) -> KnowledgeBase:
        """Open the knowledge base of the settings, or several; unset: the package's."""
        return open_kbs(self.cfg["kb"], self._open_folder)

    def _open_folder(self, path: str) -> KnowledgeBase:
        from spacy_bioel.pipeline.linker.starter import open_setting

        kb = open_setting(path, self._base)
        self._ensure_vectors(kb)  # before the next is built: the peaks of both would add up
        return kb

    def _is_dense(self, state: LinkerState) -> bool:
        """Whether vectors of names can be asked for; of several knowledge bases each decides."""
        from spacy_bioel.kb.columns.joined import parts_of
        from spacy_bioel.pipeline.linker.starter import is_dense

        if state.encoder is None or not state.is_dense or len(parts_of(state.kb)) > 1:
            return True
        known = (state.kb, state.encoder)
        if self._dense is None or self._dense[0] != known:
            self._dense = known, is_dense(*known, mentions=state.settings.mentions)
        return self._dense[1]

    def _ensure_vectors(self, kb: KnowledgeBase) -> None:
        """Encode a knowledge base of the package at its first use."""
        from spacy_bioel.pipeline.linker import starter

        is_dense = self.has_encoder and "dense" in self.check_settings().evidence
        if is_dense and starter.is_starter(kb):
            starter.ensure_vectors(kb, self._freeze())

    def _freeze(self) -> FrozenEncoder:
        from spacy_bioel.pipeline.linker.names import FrozenEncoder

        network = self.encoder.get_ref("network")
        if self._frozen is None or self._frozen[0] is not network:
            self._frozen = network, FrozenEncoder.of(self.encoder)
        return self._frozen[1]

    @property
    def kb(self) -> KnowledgeBase:
        """The knowledge base, which is opened at first use.

        RAISES BioelError: Those of `KnowledgeBase.open`, `starter_kb` and `check_settings`.
        """
        with self._lock:
            self._check_order()
            self._open()
            assert self._kb is not None
            return self._kb

    def kb_if_built(self) -> KnowledgeBase:
        """The knowledge base as it lies on the disk, for records that read in it: reading a
        property builds and encodes nothing.

        RAISES BioelError: [B320] where it would have to be built; those of `KnowledgeBase.open`.
        """
        from spacy_bioel.pipeline.linker.starter import open_built

        with self._lock:
            if self._kb is None:
                self._kb = open_kbs(self.cfg["kb"], lambda path: open_built(path, self._base))
                self._opened_as = deepcopy(self.cfg["kb"])
            return self._kb

    def set_kb(self, kb: KnowledgeBase | Path | KbSetting) -> None:
        """Link against another knowledge base, or several, without training; ends a training.

        kb (KnowledgeBase | Path | KbSetting): Open, or as in the settings. Needs vectors of this
            pipe's encoder, unless it is small.
        RAISES BioelError: Those of `KnowledgeBase.open` and `open_kbs`.
        """
        from spacy_bioel.kb.columns.store import open_kb
        from spacy_bioel.pipeline.linker import starter

        if isinstance(kb, str | list | dict):
            self._take(open_kbs(kb, starter.open_setting), kb)
        else:
            self._take(open_kb(kb), "")

    def _take(self, kb: KnowledgeBase, setting: KbSetting) -> None:
        """Link against an open knowledge base from now on.

        setting (KbSetting): By which it was opened, for its labels.
        """
        from spacy_bioel.pipeline.linker.starter import place_of

        with self._lock:
            self._kb, self._is_equipped = kb, False
            self._training = self._generator = None
            self._checked = []  # labels are compared with those of the pipes anew
            # The cache folder of this machine means nothing elsewhere.
            self.cfg["kb"] = setting_of(kb, lambda _, part: place_of(part), before=setting)
            self._opened_as = deepcopy(self.cfg["kb"])

    def encode_kb(
        self, kb: KnowledgeBase | str | Path, *, progress: Callable[[int], None] | None = None
    ) -> Encoded:
        """Write vectors of all names, and what a model that reads needs, into the folder of a
        knowledge base, or of each of several; ends a training.

        progress (Callable | None): Is told the number of names each time that some are done.
        RETURNS (kb.vectors.writing.Encoded): How many names were new, and the approximate index;
            of several knowledge bases that of the last.
        RAISES BioelError: [B053] without an encoder, its own or the package's; those of
            `kb.vectors.writing.write_vectors`.
        """
        from spacy_bioel.kb.columns.joined import parts_of
        from spacy_bioel.kb.columns.store import open_kb
        from spacy_bioel.kb.vectors.writing import Encoded
        from spacy_bioel.pipeline.contextual.methods import prepare_kb
        from spacy_bioel.pipeline.linker.starter import read_starter_encoder

        with self._lock:
            if not self.has_encoder:
                read_starter_encoder(self.encoder)
            if not self.has_encoder:
                raise BioelError(Errors.B053.format(name=self.name))
            self._training = self._generator = None
            encoder = self._freeze()
        done = [encoder.write(part, progress=progress) for part in parts_of(open_kb(kb))]
        prepare_kb(self.model, open_kb(kb))
        return Encoded(sum(d.encoded for d in done), sum(d.copied for d in done), done[-1].ann)

    @property
    def reads(self) -> bool:
        """Whether mentions are read in their documents."""
        from spacy_bioel.models.reading import reading_evidence, reads

        return reads(self.model) and reading_evidence(self.model) in self.check_settings().evidence

    @property
    def fingerprint(self) -> str:
        """Identifies the encoder.

        RAISES BioelError: [B053] without one.
        """
        encoder = self.state.encoder
        if encoder is None:
            raise BioelError(Errors.B053.format(name=self.name))
        return encoder.fingerprint

    def _weights_changed(self) -> None:
        """Drop the fused copy; to be called wherever weights change."""
        with self._lock:
            self._frozen = None
