"""Storage of a linker: encoder, mention statistics and weights as parts, the KB as a folder.

The parts are the same before and after the first use: a component that was not set is the
package's own, and is saved as such.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import srsly
from spacy.util import load_config
from spacy.vocab import Vocab
from thinc.api import Model

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.pipeline.linker.kbs import KbSetting, folders_of, map_folders, open_kbs, setting_of
from spacy_bioel.pipeline.linker.settings import LinkerSettings, check_settings
from spacy_bioel.pipeline.manifest import Parts
from spacy_bioel.pipeline.storage import StoredPipe
from spacy_bioel.storage.atomic import replacing_file

if TYPE_CHECKING:
    from spacy_bioel.kb.columns.store import KnowledgeBase
    from spacy_bioel.pipeline.linker.fusion import Fusion
    from spacy_bioel.pipeline.linker.spelling import MakeSearch
    from spacy_bioel.pipeline.linker.state import MakeIndex
    from spacy_bioel.pipeline.linker.statistics import MentionStatistics

_INCLUDED = "kb"
# Named as the first versions named it, so that their pipelines load.
_STATISTICS = "memory.json"


class StoredLinker(StoredPipe):
    """The linker as files or bytes."""

    vocab: Vocab
    model: Model[Any, Any]
    name: str
    scorer: Callable[..., dict[str, Any]] | None
    statistics: MentionStatistics
    fusion: Fusion | None
    reading: Fusion | None
    finding: Fusion | None
    _kb: KnowledgeBase | None
    _index: MakeIndex
    _spelling: MakeSearch
    _base: Path

    @property
    def encoder(self) -> Model[Any, Any]:
        """All of the model, or its side that encodes names."""
        from spacy_bioel.models.reading import name_side

        return name_side(self.model)

    @property
    def has_encoder(self) -> bool:
        return self.encoder.attrs["tokenizer"] is not None

    @property
    def kb(self) -> KnowledgeBase:
        """See `Linker.kb`."""
        raise NotImplementedError

    def _take(self, kb: KnowledgeBase, setting: KbSetting) -> None:
        """See `LiveLinker._take`."""
        raise NotImplementedError

    def _loaded(self) -> None:
        """Called when parts were taken back."""
        raise NotImplementedError

    def check_settings(self) -> LinkerSettings:
        """The settings as they are now. RAISES BioelError: Those of `settings.check_settings`."""
        return check_settings(self.cfg, self.model)

    def stored_cfg(self) -> dict[str, Any]:
        # The folder that the knowledge base came from means nothing to who gets a copy of it.
        return self.cfg | ({"kb": self._included()} if self.cfg["include_kb"] else {})

    def _included(self) -> KbSetting:
        """The setting `kb` of a pipeline that its knowledge base is saved with."""
        if isinstance(self.cfg["kb"], str):
            return _INCLUDED
        from spacy_bioel.kb.columns.joined import parts_of

        several = len(parts_of(self.kb)) > 1
        return setting_of(
            self.kb,
            lambda n, _: f"{_INCLUDED}.{n}" if several else _INCLUDED,
            before=self.cfg["kb"],
        )

    def parts(self) -> Parts:
        from spacy_bioel.models.encoder_storage import encoder_parts
        from spacy_bioel.models.reading import reading_parts

        if not self.has_encoder:
            _ = self.kb  # opening it brings the package's encoder, where that serves
        tables: dict[str, Any] = {_STATISTICS: self.statistics.counts, "fusion.json": None}
        for name, features in _features().items():
            if weights := getattr(self, name):
                tables[f"{name}.json"] = weights.to_json(features)
        _read_tables(tables)  # what could not be loaded is not saved
        return (
            {name: partial(_to_json, table) for name, table in tables.items()}
            | encoder_parts(self.encoder)
            | reading_parts(self.model)
        )

    def load_parts(self, parts: Mapping[str, bytes]) -> None:
        from spacy_bioel.models.encoder_storage import load_encoder
        from spacy_bioel.models.reading import load_reading

        names = {_STATISTICS, *(f"{name}.json" for name in _features())} & parts.keys()
        tables = _read_tables({name: srsly.json_loads(parts[name]) for name in names})
        for name, table in tables.items():
            setattr(self, name, table)
        load_encoder(self.encoder, parts)
        load_reading(self.model, parts)
        self._loaded()

    def __reduce__(self) -> tuple[Any, ...]:
        # For worker processes under spawn. The knowledge base goes by its path, so that the
        # workers share its pages.
        data = self.to_bytes(exclude=["kb"])
        make = partial(
            type(self),
            self.vocab,
            self.model,
            self.name,
            index=self._index,
            spelling=self._spelling,
            settings={},
            scorer=self.scorer,
        )
        return _unpickle, (make, data, self.kb)

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        from spacy_bioel.kb.columns.joined import parts_of

        includes_kb = self.cfg["include_kb"] and "kb" not in exclude
        if "kb" not in exclude:
            self._check_kb()
        kbs = [part.to_bytes() for part in parts_of(self.kb)] if includes_kb else []
        data: bytes = srsly.msgpack_dumps({"pipe": super().to_bytes(), "kbs": kbs})
        return data

    def read_bytes(self, bytes_data: bytes) -> None:
        from spacy_bioel.kb.columns.store import KnowledgeBase

        parts = srsly.msgpack_loads(bytes_data)
        super().read_bytes(parts["pipe"])
        if parts["kbs"]:
            blocks = dict(zip(folders_of(self.cfg["kb"]), parts["kbs"], strict=True))
            kb = open_kbs(self.cfg["kb"], lambda place: KnowledgeBase.from_bytes(blocks[place]))
            self._take(kb, self.cfg["kb"])

    def _check_kb(self) -> None:
        """RAISES BioelError: [B467] when the pipe is saved without a knowledge base that is
        nowhere else, and would come back with that of the package."""
        from spacy_bioel.kb.columns.joined import parts_of

        is_open = self._kb is not None and not self.cfg["include_kb"]
        if is_open and any(part.path is None for part in parts_of(self.kb)):
            raise BioelError(Errors.B467.format(name=self.name))

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        from spacy_bioel.kb.columns.joined import parts_of

        self._check_kb()
        super().to_disk(path)
        if self.cfg["include_kb"] and "kb" not in exclude:
            _forget_folder(Path(path), self._included())
            places = folders_of(self._included())
            for place, part in zip(places, parts_of(self.kb), strict=True):
                part.save_to(Path(path) / place)

    def read_folder(self, folder: Path) -> None:
        super().read_folder(folder)
        if self.cfg["include_kb"] and self.cfg["kb"]:
            self.cfg["kb"] = map_folders(self.cfg["kb"], partial(_found, folder.resolve()))


def _features() -> dict[str, Sequence[str]]:
    """What each of the weights of a linker are for."""
    from spacy_bioel.pipeline.contextual.weighing import READ_FEATURES
    from spacy_bioel.pipeline.linker.evidence import FEATURES
    from spacy_bioel.pipeline.mentions import evidence

    return {"fusion": FEATURES, "reading": READ_FEATURES, "finding": evidence.FEATURES}


def _read_tables(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Mention statistics and weights, by the names that the linker has for them.

    RAISES BioelError: [B062], [B272] when they are none.
    """
    from spacy_bioel.pipeline.linker.fusion import Fusion
    from spacy_bioel.pipeline.linker.statistics import MentionStatistics

    found: dict[str, Any] = {"statistics": MentionStatistics.from_json(tables[_STATISTICS])}
    for name, features in _features().items():
        table = tables.get(f"{name}.json")
        found[name] = None if table is None else Fusion.from_json(table, features)
    return found


def _forget_folder(pipe: Path, kb: KbSetting) -> None:
    """Correct the config of a pipeline that includes its knowledge base, which spaCy has written
    beside the pipe, with the folder that the knowledge base was in on this machine.
    """
    path = pipe.parent / "config.cfg"
    if not path.is_file():
        return  # the pipe is saved alone
    config = load_config(path)
    if "kb" in (settings := config.get("components", {}).get(pipe.name, {})):
        settings["kb"] = kb
        with replacing_file(path) as temporary:
            config.to_disk(temporary, interpolate=False)


def _found(folder: Path, place: str) -> str:
    """Folder of a knowledge base that came with a pipeline."""
    if not (folder / place).is_dir():
        raise BioelError(Errors.B056.format(path=folder / place))
    return str(folder / place)


def _unpickle(make: Callable[[], StoredLinker], data: bytes, kb: KnowledgeBase) -> StoredLinker:
    linker = make()
    linker.from_bytes(data)
    linker._take(kb, linker.cfg["kb"])
    return linker


def _to_json(table: Any) -> bytes:
    text: str = srsly.json_dumps(table)
    return text.encode("utf8")
