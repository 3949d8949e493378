"""Serve the id check: the /check route, and the check_ids tool for agents."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any

from pydantic import BaseModel, Field
from spacy.language import Language

from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.loading import require_linker
from spacy_bioel.plugins.curation.check import Checker
from spacy_bioel.plugins.curation.pairs import IdVerdict
from spacy_bioel.plugins.curation.report import finding_record

_MAX_FINDINGS = 200  # maximum number of findings returned to an agent


class CheckRequest(BaseModel):
    """Texts with concept ids. A single text may be sent as `text` instead of `texts`."""

    texts: list[str] = Field(examples=[["Marinesco-Sjogren syndrome (MONDO:0008541)"]])


class MeaningOut(BaseModel):
    """A concept that an id or a name refers to, with its preferred name and a similarity score."""

    id: str
    name: str
    score: float | None = None


class CheckedIdOut(BaseModel):
    """An id in a text, and whether it matches the name next to it."""

    text: int = Field(description="Number of the text in the request, from 0")
    line: int
    column: int
    id: str
    name: str = Field(description="Empty if the id stands alone")
    verdict: IdVerdict
    score: float | None = Field(description="Similarity of the name to a name of the concept")
    found: MeaningOut | None = Field(description="The concept with this id, or its replacement")
    proposals: list[MeaningOut] = Field(description="Concepts that the name may mean, best first")
    reason: str | None = Field(description="Why the id was not checked, if a vocabulary lacks it")
    certain: bool = Field(description="Whether the id can be replaced by that of `found`")


class CheckAnswer(BaseModel):
    """The ids found in the texts, in order."""

    findings: list[CheckedIdOut]


def check_request(nlp: Language, request: CheckRequest) -> CheckAnswer:
    """Check that the ids in texts exist and match the names next to them."""
    checker = _checker_of(require_linker(nlp, "The pipeline").kb)
    found = ((n, one) for n, text in enumerate(request.texts) for one in checker.check_text(text))
    return CheckAnswer.model_validate(
        {"findings": [{"text": n, **finding_record(one)} for n, one in found]}
    )


def check_for_agent(
    kb: KnowledgeBase,
    text: Annotated[
        str, Field(description="Text or Markdown with names and ids: 'Seizure (HP:0001250)'")
    ],
) -> dict[str, Any]:
    """Check that the ids in a text exist and match the names next to them.

    Use this tool before you show ids to a person. Returns the findings that are not correct, with
    `found` (the concept with the id, or its replacement) and `proposals` (concepts that the name
    may mean, best first). `checked` counts all ids.
    """
    checked = _checker_of(kb).check_text(text)
    shown = [c for c in checked if c.is_wrong or c.verdict is IdVerdict.NOT_CHECKED]
    records = map(finding_record, shown[:_MAX_FINDINGS])
    keys = ("line", "name", "id", "verdict", "found", "proposals", "reason")
    findings = [{key: record[key] for key in keys} for record in records]
    return {"findings": findings, "checked": len(checked)}


check_for_agent.instructions = "Check your answer with check_ids."  # type: ignore[attr-defined]


@lru_cache(maxsize=1)
def _checker_of(kb: KnowledgeBase) -> Checker:
    return Checker([kb])
