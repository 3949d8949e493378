"""Rules for chemicals: find short forms that a document defines, as in "mesalamine (5-ASA)".

Unlike an abbreviation (see `text.sentences`), such a form may have letters that the name lacks.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from spacy.tokens import Doc

from spacy_bioel.batch import Batch, Query
from spacy_bioel.doc import long_forms, text_of
from spacy_bioel.entities import EntityRules
from spacy_bioel.entities.patterns import find_words
from spacy_bioel.found import FoundSpans
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.text.sentences import find_forms, is_short_form
from spacy_bioel.types import CHEMICAL

_BRACKETED_FORM = re.compile(r"(?<=\w)\s?[(\[]([^\s()\[\],;]{2,10})[)\],;]")


class Chemicals(EntityRules):
    """Find short forms that a document defines after a chemical name and then uses again.

    A short form that is also a name of other concepts keeps that meaning.
    """

    labels = (CHEMICAL,)
    needs_label = True

    def propose(self, docs: Sequence[Doc], spans: Sequence[FoundSpans]) -> None:
        for doc, of_doc in zip(docs, spans, strict=True):
            chemicals = {s[:2]: s for s in of_doc.spans if s[2] == CHEMICAL}
            defined = self._definitions(doc, chemicals)
            for short, places in find_forms(text_of(doc), defined).items() if defined else ():
                for span in filter(None, (doc.char_span(*place) for place in places)):
                    place = span.start, span.end
                    near = of_doc.overlapping(*place)
                    if all(s[:2] == place and not self._is_known(short, s[2]) for s in near):
                        form = (*place, *chemicals[defined[short]][2:])
                        why = "a short form in brackets after a chemical"
                        of_doc.add(form, why, instead_of=near)

    def _definitions(
        self, doc: Doc, chemicals: Iterable[tuple[int, int]]
    ) -> dict[str, tuple[int, int]]:
        """Map each short form to the start and end token of the chemical that it abbreviates."""
        text, known = text_of(doc), long_forms(doc)
        shorts = {
            form.start(): form[1]
            for form in _BRACKETED_FORM.finditer(text)
            if is_short_form(form[1])
            and form[1] not in known
            and not find_words("not a chemical", form[1])  # excludes "cisplatin (IC50)"
        }
        defined: dict[str, tuple[int, int]] = {}
        places = find_forms(text, set(shorts.values()))
        for start, end in chemicals if shorts else ():
            short = shorts.get(doc[end - 1].idx + len(doc[end - 1]), "")
            if short and len(places[short]) > 1:
                own, meant = self._concepts(short), self._concepts(doc[start:end].text)
                if meant and own <= meant:
                    defined.setdefault(short, (start, end))
        return defined

    def _is_known(self, short: str, label: str) -> bool:
        """Whether a label's knowledge base has this short form; False for that of chemicals."""
        assert self.knowledge is not None
        kb = self.knowledge.kb_of(label)
        is_other = kb is not self.knowledge.kb_of(CHEMICAL)
        return is_other and kb.lookup_names([normalize_name(short)])[0] >= 0

    def _concepts(self, name: str) -> set[int]:
        assert self.knowledge is not None
        kb = self.knowledge.kb_of(CHEMICAL)
        return set(kb.concepts_of_names(kb.lookup_names([normalize_name(name)]))[1].tolist())

    def prepare(self, batch: Batch) -> list[Query]:
        """Look up the chemical instead of its short form."""
        queries = list(batch.queries)
        chemicals = defaultdict[int, dict[tuple[int, int], None]](dict)
        for span, owner in zip(batch.spans, batch.owners, strict=True):
            if span.label_ == CHEMICAL:
                chemicals[owner][span.start, span.end] = None
        defined = {i: self._definitions(batch.docs[i], chemicals[i]) for i in chemicals}
        for i, (span, owner) in enumerate(zip(batch.spans, batch.owners, strict=True)):
            if span.label_ == CHEMICAL and (place := defined[owner].get(span.text)):
                queries[i] = Query.of(batch.docs[owner][slice(*place)].text)
        return queries


create_chemicals_v1 = Chemicals  # registered as `spacy-bioel.Chemicals.v1`
