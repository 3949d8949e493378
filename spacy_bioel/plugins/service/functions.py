"""Functions from other packages that the service offers as routes and agent tools.

The first parameter's type decides where a function runs. A function that takes a `KnowledgeBase`
runs in the main process, as /search does. A function that takes a `Language` (the pipeline) runs
alone in a worker process, with the same deadline as a text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, get_type_hints

from spacy.language import Language

from spacy_bioel.errors import LOGGER, BioelError, Errors
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.plugins.service.errors import ServiceErrors
from spacy_bioel.registered import NOUNS, load_registered, refuse_twice, registered_names


def runs_in_worker(function: Callable[..., Any]) -> bool:
    """Whether a function takes a pipeline, not a KB. RAISES TypeError: If it takes neither."""
    first = next(iter(get_type_hints(function).values()), None)
    if first not in (Language, KnowledgeBase):
        raise TypeError(f"the type of its first parameter is {first!r}")
    return first is Language


def offer_registered(
    group: str, own: Collection[str], offer: Callable[[str, Callable[..., Any]], None]
) -> dict[str, BioelError]:
    """Offer all functions that are registered in a group.

    own (Collection[str]): Names that the service uses itself.
    offer (Callable): Called with the name of each function, and the function.
    RETURNS (dict): Maps each unusable function's name to the reason, which is also logged.
    RAISES BioelError: [B660] if a name is used twice.
    """
    unusable: dict[str, BioelError] = {}
    for name in registered_names(group):
        refuse_twice(group, name)
        try:
            function = load_registered(group, name)
        except BioelError as error:
            unusable[name] = error
            continue
        about = {"what": NOUNS[group], "name": name}
        module = getattr(function, "__module__", "")
        if name in own:
            raise BioelError(Errors.B660.format(**about, first=__package__, second=module))
        try:
            offer(name, function)
        except Exception as error:  # raised for missing or unusable types
            message = ServiceErrors.B395.format(**about, module=module, error=error)
            unusable[name] = BioelError(message)
    for reason in unusable.values():
        LOGGER.error("%s", reason)
    return unusable
