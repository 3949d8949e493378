"""The `bioel_context` pipe, which marks mentions as negated, uncertain, historical, hypothetical or
about another person.

The algorithm is ConText: Harkema et al. (2009), ConText: An algorithm for determining negation,
experiencer, and temporal status from clinical reports, https://doi.org/10.1016/j.jbi.2009.05.002;
for negation: Chapman et al. (2001), https://doi.org/10.1006/jbin.2001.1029. The pipe applies the
algorithm to the sentences, cells and items of a note (see scope.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import srsly
from spacy.pipeline.pipe import Pipe
from spacy.tokens import Doc

from spacy_bioel.doc import get_links, linked_groups, set_fact, text_of
from spacy_bioel.errors import BioelError
from spacy_bioel.explanation import register_extensions
from spacy_bioel.kb.bundled import forget_paths
from spacy_bioel.pipe import SavedFiles, save_files
from spacy_bioel.plugins.clinical.context_rules import parse_rules, read_rules
from spacy_bioel.plugins.clinical.errors import ClinicalErrors
from spacy_bioel.plugins.clinical.layout import Node, read_layout
from spacy_bioel.plugins.clinical.scope import contexts
from spacy_bioel.plugins.clinical.tables import CUES_FILE
from spacy_bioel.settings import SPANS_KEY, CurrentSettings

_RULES_FILE = "rules.json"


class MentionContext(Pipe):
    """Marks spans as negated, uncertain, historical or hypothetical, and records who each is about.

    tokenizer (Callable): The pipeline's tokenizer, which also tokenizes the phrases.
    rules (str): JSON file with rules; "": the default rules.
    spans_key (str): The span group with the mentions; "": all groups of detectors and linkers.
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

    def __call__(self, doc: Doc) -> Doc:
        """Set the context of each span in the span groups (see `span._.negated`)."""
        key = self.cfg["spans_key"]
        keys = [key] if key else dict.fromkeys([SPANS_KEY, *linked_groups(doc)])
        places = {
            key: [(span.start_char, span.end_char) for span in doc.spans[key]]
            for key in keys
            if key in doc.spans and len(doc.spans[key])
        }
        for key, spans in places.items():
            words = self._cues_in(doc, key) if key in linked_groups(doc) else ()
            found = contexts(text_of(doc), self.rules, spans, words)
            set_fact(doc, "context", [context.to_fact() for context in found], spans_key=key)
        return doc

    def _cues_in(self, doc: Doc, key: str) -> set[tuple[int, int]]:
        """Return offsets of unlinked mentions that are cues, e.g. "gone" tagged as a chemical."""
        look_up = self.rules.cue_words.look_up
        return {
            (link.start, link.end)
            for link, span in zip(get_links(doc, key), doc.spans[key], strict=True)
            if not link.ids and len(span) == 1 and look_up(span.text)[2]
        }

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
        """Load the saved rules, unless the config names another rules file.

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
