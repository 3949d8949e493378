"""The `bioel_context` pipe: which mentions are negated, uncertain, historical or hypothetical, or
concern another person.

The algorithm is ConText: Harkema et al. (2009), ConText: An algorithm for determining negation,
experiencer, and temporal status from clinical reports, https://doi.org/10.1016/j.jbi.2009.05.002;
for negation: Chapman et al. (2001), https://doi.org/10.1006/jbin.2001.1029. It is applied to the
sentences, cells and items of a note (see scope.py).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import srsly
from numpy.typing import NDArray
from spacy.attrs import IDX, IS_SPACE, LENGTH, LOWER
from spacy.pipeline.pipe import Pipe
from spacy.strings import get_string_id
from spacy.tokens import Doc

from spacy_bioel.doc import linked_groups, set_fact, text_of
from spacy_bioel.errors import BioelError
from spacy_bioel.explanation import register_extensions
from spacy_bioel.kb.bundled import forget_paths
from spacy_bioel.pipe import SavedFiles, save_files
from spacy_bioel.plugins.clinical.answers import Phrase
from spacy_bioel.plugins.clinical.context_rules import parse_rules, read_rules
from spacy_bioel.plugins.clinical.errors import ClinicalErrors
from spacy_bioel.plugins.clinical.layout import Node, read_layout, units_of
from spacy_bioel.plugins.clinical.scope import contexts
from spacy_bioel.plugins.clinical.tables import CUES_FILE
from spacy_bioel.settings import SPANS_KEY, CurrentSettings
from spacy_bioel.text.sentences import broken_words

_RULES_FILE = "rules.json"


class MentionContext(Pipe):
    """Marks spans as negated, uncertain, historical or hypothetical, and sets whom they concern.

    tokenizer (Callable): The pipeline's tokenizer, which also tokenizes the phrases.
    rules (str): JSON file with rules; "": the default rules.
    spans_key (str): The span group.
    RAISES BioelError: [B490] if the rules are malformed.
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
        if not Doc.has_extension("layout"):
            Doc.set_extension("layout", getter=_layout_of)
        self.name = name
        self.tokenizer = tokenizer
        self.cfg = CurrentSettings({"spans_key": spans_key, "rules": rules})
        path = Path(rules) if rules else CUES_FILE
        self._set_table(read_rules(path), origin=str(path))

    def _set_table(self, table: dict[str, Any], *, origin: str = _RULES_FILE) -> None:
        self._table = table
        try:
            self.rules = parse_rules(table)
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise BioelError(ClinicalErrors.B490.format(path=origin, error=error)) from error
        # All phrases are in one text, which is faster to tokenize.
        doc = self.tokenizer("\n".join(self.rules.phrases))
        words, starts, _ = _lowercase_words(doc)
        ends = np.cumsum([len(phrase) + 1 for phrase in self.rules.phrases])
        borders = [0, *np.searchsorted(starts, ends).tolist()]
        # Phrases by the hashes of their words, and numbers of words by those of the first two.
        self._phrases = {
            tuple(words[start:end].tolist()): phrase
            for (start, end), phrase in zip(pairwise(borders), self.rules.phrases, strict=True)
            if start < end
        }
        lengths: dict[tuple[int, ...], set[int]] = defaultdict(set)
        for phrase in self._phrases:
            lengths[phrase[:2]].add(len(phrase))
        self._lengths = {first: sorted(n, reverse=True) for first, n in lengths.items()}
        self._first_words = {phrase[0] for phrase in self._phrases}

    def __call__(self, doc: Doc) -> Doc:
        """Set the context of each span in the group (see `span._.negated`)."""
        key = self.cfg["spans_key"]
        keys = [key] if key else dict.fromkeys([SPANS_KEY, *linked_groups(doc)])
        places = {
            key: [(span.start_char, span.end_char) for span in doc.spans[key]]
            for key in keys
            if key in doc.spans and len(doc.spans[key])
        }
        phrases = self._find_phrases(doc) if places else []
        for key, spans in places.items():
            found = contexts(text_of(doc), self.rules, phrases, spans)
            set_fact(doc, "context", [context.to_fact() for context in found], spans_key=key)
        return doc

    def _find_phrases(self, doc: Doc) -> list[Phrase]:
        """Find phrases of the rules in the sentences of a document; of overlapping phrases, keep
        the longest."""
        columns = _lowercase_words(doc)
        units = np.searchsorted(units_of(text_of(doc)), columns[1], side="right").tolist()
        words, starts, ends = (column.tolist() for column in columns)
        phrases: list[Phrase] = []
        end = 0
        for start, word in enumerate(words):
            if start < end or word not in self._first_words:
                continue
            lengths = self._lengths.get(tuple(words[start : start + 2]), ())
            for length in (*lengths, *self._lengths.get((word,), ())):
                name = self._phrases.get(tuple(words[start : start + length]), "")
                last = start + length - 1
                if name and last < len(words) and units[last] == units[start]:
                    end = last + 1
                    phrases.append(Phrase(starts[start], ends[last], name))
                    break
        return phrases

    def current_settings(self) -> dict[str, Any]:
        """Return the current settings in the form used in configs."""
        return dict(self.cfg)

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        data: bytes = srsly.msgpack_dumps({"rules": self._table})
        return data

    def from_bytes(self, bytes_data: bytes, *, exclude: Iterable[str] = ()) -> MentionContext:
        self._set_table(srsly.msgpack_loads(bytes_data)["rules"])
        return self

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        """Save the rules with the pipeline."""
        rules = json.dumps(self._table, indent=1, ensure_ascii=False)
        save_files(Path(path), {_RULES_FILE: rules.encode})
        forget_paths(Path(path), rules="")

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> MentionContext:
        """Load the saved rules, unless the config names others.

        RAISES BioelError: [B042, B466] if a file is missing or damaged, [B490] if the rules are
            malformed.
        """
        if not self.cfg["rules"]:
            self.cfg["rules"] = str(Path(path, _RULES_FILE).resolve())
            table = json.loads(SavedFiles(Path(path)).read(_RULES_FILE))
            self._set_table(table, origin=self.cfg["rules"])
        return self


def _layout_of(doc: Doc) -> Node:
    return read_layout(text_of(doc))


def _lowercase_words(doc: Doc) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return the hashes of lower-case words without white space, and their offsets.

    The first token of a word that is broken at the end of a line has the hash of the whole word.
    """
    columns = doc.to_array([LOWER, IS_SPACE, IDX, LENGTH]).reshape(-1, 4)
    is_word = columns[:, 1] == 0
    starts = np.ascontiguousarray(columns[:, 2])  # searched without copying it each time
    for start, end, whole in broken_words(text_of(doc)):
        first, last = np.searchsorted(starts, [start, end])
        columns[first, 0] = get_string_id(whole.lower())
        is_word[first + 1 : last] = False
    tokens = np.flatnonzero(is_word)
    return columns[tokens, 0], starts[tokens], (starts + columns[:, 3])[tokens]
