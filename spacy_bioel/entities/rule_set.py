"""Call a pipe's rule sets in order, and check their results.

Error messages use the config's name for a rule set, since a pipe may have several rule sets of
the same class.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence, Sized
from dataclasses import replace
from functools import cache
from math import isfinite
from pathlib import Path
from traceback import extract_tb
from typing import Any

import numpy as np
from numpy.typing import NDArray
from spacy.tokens import Doc

from spacy_bioel.batch import Batch, Query
from spacy_bioel.doc import long_forms, text_of
from spacy_bioel.entities import EntityRules, LinkerKnowledge
from spacy_bioel.errors import BioelError, Errors, shortened
from spacy_bioel.found import FoundSpans, InvalidSpan
from spacy_bioel.registered import declared_facts
from spacy_bioel.settings import LinkerSettings
from spacy_bioel.text.normalize import subscripts
from spacy_bioel.text.sentences import LongForms
from spacy_bioel.types import Candidate

# Names that facts must not use: link fields in tables and JSON, and Span extensions.
_RESERVED_FACTS = frozenset(
    "document start end text label id ids name preferred_name score evidence candidates facts xrefs"
    " error concept_id cui cuis explanation bioel_records".split()
)

# Functions that rules defined in earlier versions, with their replacements.
_FORMER_FUNCTIONS = {
    "find": "propose(docs, spans)",
    **dict.fromkeys(("queries", "rewrite", "wants_all"), "prepare(batch)"),
}


@cache
def reserved_facts() -> frozenset[str]:
    """Return the names that rules must not use for facts, including those of declared facts."""
    declared = declared_facts().items()
    names = (name for fact, d in declared for name in (fact, *d.columns, *d.extensions))
    return _RESERVED_FACTS.union(names)


NamedRules = tuple[str, EntityRules]  # the rules' name in the config, and the rules


def _run(named: NamedRules, function: str, *args: Any, n: int | None = None) -> Any:
    """Call a function of a rule set, and check the number of results.

    n (int | None): Number of results that the function must return.
    RAISES BioelError: [B497] instead of errors without a code, [B503] if the number of results is
        wrong.
    """
    try:
        results = getattr(named[1], function)(*args)
        found = len(results) if isinstance(results, Sized) else type(results).__name__
        if n is None or found == n:
            return results
    except BioelError:
        raise
    except InvalidSpan as error:
        span, n_tokens = error.args
        raise _error(named, Errors.B498, span=span, n=n_tokens) from error
    except Exception as error:
        *_, last = extract_tb(error.__traceback__)
        problem = f"{type(error).__name__}: {shortened(str(error))}"
        reason = f"{problem} ({Path(last.filename).name}:{last.lineno})"
        raise _error(named, Errors.B497, name=function, found=reason) from error
    raise _error(named, Errors.B503, name=function, found=found, n=n)


def _error(named: NamedRules, message: str, **fields: Any) -> BioelError:
    name, rules = named
    return BioelError(message.format(rules=f"{name} ({type(rules).__name__})", **fields))


class RuleSet:
    """A pipe's rules by name, excluding any that the config switches off (None).

    Rules that override a function are called in config order.

    RAISES BioelError: [B499] if two rule sets return a fact with the same name, [B506] if that name
        is already a field of links or a Span extension, [B508] if rules have a function that is no
        longer called, [B509] if labels or fact names are a single string.
    """

    def __init__(self, rules: Mapping[str, EntityRules | None]) -> None:
        self.rules = {name: one for name, one in rules.items() if one is not None}
        rules_of_fact: dict[str, str] = {}
        for name, entity_rules in self.rules.items():
            for old, new in _FORMER_FUNCTIONS.items():
                if hasattr(entity_rules, old):
                    raise _error((name, entity_rules), Errors.B508, old=old, new=new)
            for field in ("labels", "fact_names"):
                if isinstance(found := getattr(entity_rules, field), str):
                    raise _error((name, entity_rules), Errors.B509, name=field, found=found)
            for fact in entity_rules.fact_names:
                if fact in reserved_facts():
                    raise _error((name, entity_rules), Errors.B506, fact=fact)
                if fact in rules_of_fact:
                    first = rules_of_fact[fact]
                    raise BioelError(Errors.B499.format(fact=fact, first=first, second=name))
                rules_of_fact[fact] = name
        self.fact_names = tuple(rules_of_fact)
        self.labels = {label for one in self.rules.values() for label in one.labels}

    def overriding(self, function: str) -> list[NamedRules]:
        """Return the (name, rules) pairs of the rule sets that override a function."""
        pairs, default = self.rules.items(), getattr(EntityRules, function)
        return [pair for pair in pairs if getattr(type(pair[1]), function) is not default]

    def with_knowledge(self, knowledge: LinkerKnowledge) -> RuleSet:
        return RuleSet({name: r.with_knowledge(knowledge) for name, r in self.rules.items()})

    def for_labels(self, labels: Collection[str], *, labelled: bool = False) -> RuleSet:
        """Return the rules to run in a pipeline that finds or links mentions with these labels.

        labelled (bool): Exclude rules without labels.
        """
        return RuleSet(
            {
                name: rules
                for name, rules in self.rules.items()
                if (not rules.needs_label and (rules.labels or not labelled))
                or set(rules.labels).intersection(labels)
            }
        )

    def completing_dictionary(self) -> RuleSet:
        """Return the rules whose `propose` runs on names found by the dictionary."""
        return RuleSet({name: r for name, r in self.rules.items() if r.completes_dictionary})

    def propose(self, found: Sequence[FoundSpans]) -> None:
        """Let the rules add or drop spans in each document.

        RAISES BioelError: [B497] if rules return anything, [B498] if they add an invalid span, or
            one outside its document.
        """
        for named in self.overriding("propose"):
            for of_doc in found:
                of_doc.why = f"by the rules {named[0]}"
            if _run(named, "propose", [of_doc.doc for of_doc in found], found) is not None:
                reason = "it returned something, but has to change `spans[i]`, and return None"
                raise _error(named, Errors.B497, name="propose", found=reason)
        for of_doc in found:
            of_doc.why = ""

    def forms_of(self, doc: Doc, *, settings: LinkerSettings) -> LongForms:
        """Return the long form of each short form, preferring the document's own definitions.

        A word with a subscript in brackets, "H(2)O", is a short form too.
        """
        text = text_of(doc)
        forms = {text[start:end]: plain for start, end, plain in subscripts(text, text)}
        for named in self.overriding("short_forms"):
            forms |= _run(named, "short_forms", doc)
        return forms | (long_forms(doc) if settings.abbreviations else LongForms())

    def why_other(
        self, doc: Doc, starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> Sequence[str]:
        """Return, for each span, the first reason why it cannot be a name, or "" if it can."""
        first_reasons = [""] * len(starts)
        for named in self.overriding("why_other"):
            reasons = _run(named, "why_other", doc, starts, ends, n=len(starts))
            first_reasons = [a or b for a, b in zip(first_reasons, reasons, strict=True)]
        return first_reasons

    def prepare(self, batch: Batch) -> Batch:
        """Return the batch with its queries updated by all rules."""
        for named in self.overriding("prepare"):
            queries = _run(named, "prepare", batch, n=len(batch))
            if others := [query for query in queries if not isinstance(query, Query)]:
                reason = f"{others[0]!r:.80} is not a Query"
                raise _error(named, Errors.B497, name="prepare", found=reason)
            batch = replace(batch, queries=queries)
        return batch

    def rescore(self, batch: Batch) -> Batch:
        """Return the batch with its candidates rescored by all rules, best first.

        RAISES BioelError: [B497] if a rule does not return candidates with scores from 0 to 1,
            [B500] if an added candidate is not in the knowledge base.
        """
        for named in self.overriding("rescore"):
            rescored = _run(named, "rescore", batch, n=len(batch))
            rows = zip(batch.labels, batch.candidates, rescored, strict=True)
            checked = [row[1] if row[1] is row[2] else _checked(named, *row) for row in rows]
            batch = replace(batch, candidates=checked)
        return batch

    def facts(self, batch: Batch) -> list[dict[str, Any]]:
        """Return the facts about each link.

        RAISES BioelError: [B504] if a fact is not in `fact_names`, [B507] if JSON cannot store its
            value.
        """
        facts: list[dict[str, Any]] = [{} for _ in batch.links]
        for named in self.overriding("facts"):
            returned = _run(named, "facts", batch, n=len(batch.links))
            for facts_of_link, more in zip(facts, returned, strict=True):
                if not (isinstance(more, Mapping) and _is_json(more)):
                    raise _error(named, Errors.B507, found=f"{more!r:.80}")
                if unknown := more.keys() - set(named[1].fact_names):
                    raise _error(named, Errors.B504, fact=min(unknown))
                facts_of_link.update(json.loads(json.dumps(more)) if more else {})  # tuple -> list
        return facts

    def explain(self, batch: Batch) -> list[str]:
        """Return, for each link, the sentences that explain how the rules affected it."""
        texts = [""] * len(batch.links)
        for named in self.overriding("explain"):
            sentences = _run(named, "explain", batch, n=len(batch.links))
            texts = [" ".join(filter(None, pair)) for pair in zip(texts, sentences, strict=True)]
        return texts


def _is_json(value: object) -> bool:
    """Whether a value survives a round trip through JSON (NumPy numbers do not)."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_json(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_json, value))
    return (
        value is None
        or type(value) in (str, int, bool)
        or (type(value) is float and isfinite(value))
    )


def _is_candidate(value: object) -> bool:
    """Return whether a value is a candidate with an id and a score from 0 to 1."""
    match value:
        case Candidate(str(id), float() | int() | np.number() as score):
            return bool(id) and "|" not in id and bool(0 <= score <= 1)
    return False


def _checked(
    named: NamedRules, label: str, before: Sequence[Candidate], after: Any
) -> tuple[Candidate, ...]:
    """Check the candidates that `rescore` returned for a mention, and return them best first.

    RAISES BioelError: [B497] if a value is not a candidate, [B500] if a new candidate with a score
        below 1 is not in the knowledge base of the label.
    """
    if not (isinstance(after, Sequence) and all(map(_is_candidate, after))):
        reason = f"{after!r:.200} is not a list of Candidates with ids and scores from 0 to 1"
        raise _error(named, Errors.B497, name="rescore", found=reason)
    _, rules = named
    new_ids = sorted({c.id for c in after if c.score < 1}.difference(c.id for c in before))
    if new_ids and rules.knowledge is not None and not rules.outside_ids:
        rows = rules.knowledge.kb_of(label).find_all(new_ids)
        if (rows < 0).any():
            raise _error(named, Errors.B500, id=new_ids[int(np.argmin(rows))], label=label)
    floats = (c if type(c.score) is float else replace(c, score=float(c.score)) for c in after)
    return tuple(sorted(floats, key=lambda c: -c.score))
