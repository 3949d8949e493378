"""The pipe `bioel_context`: what the text says of each mention, after the pipes that find them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import srsly
from numpy.typing import NDArray
from spacy.attrs import IS_SPACE, LOWER
from spacy.pipeline.pipe import Pipe
from spacy.tokens import Doc

from spacy_bioel.pipeline.annotate import set_contexts, text_of
from spacy_bioel.pipeline.explanation import register_extensions
from spacy_bioel.pipeline.stored_pipe import SavedFiles, save_files
from spacy_bioel.text.context import contexts
from spacy_bioel.text.rules import Phrase, Rules, parse_rules, read_rules

_RULES, _CFG = "rules.json", "cfg.json"
_OWN = Path(__file__).parents[1] / "assets" / "context.json"
_LONGEST = 12  # words of a phrase


class MentionContext(Pipe):
    """Say of each span of a group whether it is negated, uncertain, past, conditional, and whose.

    tokenizer (Callable): Of the pipeline; phrases of the rules are cut as the texts are.
    rules (str): JSON file of the rules; "": those of the package.
    spans_key (str): The group of spans.
    RAISES BioelError: [B490] when the rules are not of their form.
    """

    def __init__(
        self,
        tokenizer: Callable[[str], Doc],
        name: str = "bioel_context",
        *,
        rules: str = "",
        spans_key: str,
    ) -> None:
        register_extensions()
        self.name = name
        self.tokenizer = tokenizer
        self.cfg: dict[str, Any] = {"spans_key": spans_key}
        path = Path(rules) if rules else _OWN
        self._set_table(read_rules(path), origin=str(path))

    def _set_table(self, table: dict[str, Any], *, origin: str = _RULES) -> None:
        self._table = table
        self.rules: Rules = parse_rules(table, origin=origin)
        # Phrases by the number of their first word, the longest first.
        self._by_first: dict[int, list[tuple[tuple[int, ...], str]]] = {}
        for phrase in self.rules.phrases:
            words = tuple(_words(self.tokenizer(phrase))[0].tolist())
            if words:
                self._by_first.setdefault(words[0], []).append((words, phrase))
        for phrases in self._by_first.values():
            phrases.sort(key=lambda one: -len(one[0]))
        self._first = np.array(sorted(self._by_first), dtype=np.uint64)

    def __call__(self, doc: Doc) -> Doc:
        """Write what is said of each span of the group; see `span._.negated`."""
        key = self.cfg["spans_key"]
        if key in doc.spans and len(doc.spans[key]):
            places = [(span.start_char, span.end_char) for span in doc.spans[key]]
            found = contexts(text_of(doc), self.rules, self._phrases(doc), places)
            set_contexts(doc, found, spans_key=key)
        return doc

    def _phrases(self, doc: Doc) -> list[Phrase]:
        """Phrases of the rules in a document, the longest at each place; none overlap."""
        words, tokens = _words(doc)
        found: list[Phrase] = []
        end = 0
        for at in np.flatnonzero(np.isin(words, self._first)).tolist():
            here = tuple(words[at : at + _LONGEST].tolist()) if at >= end else ()
            for phrase, name in self._by_first[here[0]] if here else ():
                if here[: len(phrase)] == phrase:
                    end = at + len(phrase)
                    last = doc[int(tokens[end - 1])]
                    start = doc[int(tokens[at])].idx
                    found.append(Phrase(start, last.idx + len(last), name))
                    break
        return found

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        return srsly.msgpack_dumps({"cfg": self.cfg, "rules": self._table})

    def from_bytes(self, bytes_data: bytes, *, exclude: Iterable[str] = ()) -> MentionContext:
        parts = srsly.msgpack_loads(bytes_data)
        self._set_table(parts["rules"])
        self.cfg.update(parts["cfg"])
        return self

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        """Save the rules with the pipeline."""
        tables = {_CFG: self.cfg, _RULES: self._table}
        save_files(Path(path), {name: partial(_json, table) for name, table in tables.items()})

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> MentionContext:
        """RAISES BioelError: [B042, B466] on files that are missing or damaged, [B490]."""
        files = SavedFiles(Path(path))
        table = json.loads(files.read(_RULES))
        self._set_table(table, origin=str(Path(path) / _RULES))
        self.cfg.update(json.loads(files.read(_CFG)))
        return self


def _words(doc: Doc) -> tuple[NDArray[np.uint64], Sequence[int]]:
    """Numbers of the words in small letters, without white space, and their tokens."""
    columns = doc.to_array([LOWER, IS_SPACE])
    tokens: Any = np.flatnonzero(columns[:, 1] == 0)
    return columns[tokens, 0], tokens


def _json(table: object) -> bytes:
    return json.dumps(table, indent=1, ensure_ascii=False).encode("utf8")
