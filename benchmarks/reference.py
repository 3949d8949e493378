"""Parts of the reference that are generated from the code.

`python -m benchmarks.reference` writes the settings into their page, between
`<!-- generated: NAME -->` and `<!-- end -->`. Commands, error codes and mistakes are put in the
place of `<!-- built: NAME -->` when the site is built.
"""

import json
import re
from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial, reduce
from inspect import cleandoc
from operator import getitem
from pathlib import Path
from typing import Any

import srsly
import typer
from spacy import blank

from benchmarks.tables import table
from spacy_bioel.cli import app
from spacy_bioel.errors import Errors, Warnings
from spacy_bioel.files import replacing_file
from spacy_bioel.settings import (
    DETECTOR,
    LINKER,
    ContextSettings,
    LinkerSettings,
    MentionSettings,
    Settings,
)

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "settings.md"
MISTAKES = Path(__file__).parents[1] / "tests" / "mistakes.yml"
MODELS: dict[str, type[Settings]] = {
    of.pipe: of for of in (MentionSettings, LinkerSettings, ContextSettings)
}
# What registered functions make for a pipe.
PARTS = {
    DETECTOR: {
        "model": "The network that scores spans, `spacy-bioel.SpanEnumerator.v1` by default; "
        "`spacy-bioel.BioTagger.v1` tags tokens instead.",
        "entities.variants": "Rules for sequence variants, which find them by their grammar. As "
        "for all of `entities`, `null` switches the rules off.",
        "entities.composites": "A mention goes on with the members of its family that follow: "
        '"CDK4" of "CDK4/6".',
        "scorer": "What `spacy evaluate` and training report of this pipe.",
    },
    LINKER: {
        "model": "The name encoder, `spacy-bioel.ResCNN.v1` by default; or a model that also reads "
        "the text, such as `spacy-bioel.DualEncoder.v1` "
        "([choose a linker](../guides/choose_linker.md)).",
        "ngram_search": "The search for names of like spelling, by 3-grams of characters.",
        "entities.genes": "Rules for genes. They are of the organisms that the document names; of "
        "those that share a name, the one that it also calls otherwise. As for all of `entities`, "
        "`null` switches the rules off.",
        "entities.notes": "Write out shorthand of clinical notes that the document does not define "
        '("HTN"), unless it is a name of the knowledge base or a mention of the training texts. '
        "With `clinical = true`, also find short forms that are clear in notes alone "
        '("MR", "PE"); with `measurements = true`, measurements out of their reference range: '
        '"Hb 7.2" is linked as anemia. For `mentions = "dictionary"` and, if `clinical` is on, '
        '`"spans+dictionary"`.',
        "entities.variants": "Say the change, the gene and the number in dbSNP of variants; find "
        "them, where names of a knowledge base are found.",
        "entities.composites": "Look for the parts of mentions that name several concepts "
        '("nausea and vomiting").',
        "scorer": "What `spacy evaluate` and training report of this pipe.",
    },
}


def settings_table(pipe: str) -> str:
    """One line a setting: its default, and what it does."""
    config = blank("en").get_factory_meta(pipe).default_config  # it brings the factories
    parts = [
        (name, reduce(getitem, name.split("."), config), text)
        for name, text in PARTS.get(pipe, {}).items()
    ]
    lines = [
        [f"`{name}`", f"`{_shown(value)}`", text]
        for name, value, text in [*parts, *settings_of(MODELS[pipe])]
    ]
    return table(["setting", "default", "what it does"], lines)


def settings_of(model: type[Settings], group: str = "") -> Iterator[tuple[str, object, str]]:
    """Name, default and description of each setting; those of a group as `group.name`."""
    for name, field in model.model_fields.items():
        if isinstance(field.default, Settings):
            yield from settings_of(type(field.default), f"{name}.")
        else:
            yield group + name, field.default, field.description or ""


def _shown(value: object) -> str:
    if isinstance(value, dict):
        registered = [name for key, name in value.items() if key.startswith("@")]
        if registered:
            return registered[0]
    return json.dumps(value)


def commands() -> str:
    """A section for each command, with its help, arguments and options."""
    group = typer.main.get_command(app)
    return "\n\n".join(_command(command, path) for path, command in _leaves(group, "bioel"))


def _leaves(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, inner in getattr(command, "commands", {}).items():
        yield from _leaves(inner, f"{path} {name}")
    if not hasattr(command, "commands"):
        yield path, command


def _command(command: Any, path: str) -> str:
    options, arguments = [], []
    for param in command.params:
        text = _cell(getattr(param, "help", None) or "")
        if param.param_type_name == "argument":
            arguments.append([f"`{param.metavar or param.name.upper()}`", text])
        else:
            names = ", ".join(f"`{name}`" for name in (*param.opts, *param.secondary_opts))
            kind = "" if param.is_flag else f"`{_value(param)}`"
            options.append([names, kind, _default(param), text])
    parts = [f"## {path}", cleandoc(command.help or "")]
    if arguments:
        parts.append(table(["argument", ""], arguments))
    parts.append(table(["option", "value", "default", ""], options))
    return "\n\n".join(parts)


def _value(param: Any) -> str:
    """Placeholder of an option's value: the choices where there are some."""
    annotation = param.type_descriptor.annotation
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return " or ".join(choice.value for choice in annotation)
    return param.metavar or getattr(annotation, "__name__", "value").replace("str", "text")


def _default(param: Any) -> str:
    value = param.default
    if value in (None, False, "") or callable(value) or param.required:
        return ""
    return f"`{getattr(value, 'value', value)}`"


def codes(messages: type) -> str:
    """One line a code: the message, with the names of what is filled in."""
    names = sorted(name for name in vars(messages) if re.fullmatch(r"[A-Z]\d{3}", name))
    lines = []
    for name in names:
        text = getattr(messages, name).removeprefix(f"[{name}] ")
        lines.append([f'<a id="{name}"></a>{name}', _cell(text)])
    return table(["code", "message"], lines)


def _cell(text: str) -> str:
    """A text as it may stand in a cell of a table; what a message fills in is set in italics."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")
    return re.sub(r"\{(\w+)[^}]*\}", r"*\1*", text)


def mistakes() -> str:
    """List what tests/mistakes.yml makes wrong, with the codes of the messages."""
    parts = []
    for section, found in srsly.read_yaml(MISTAKES).items():
        parts.append(f"## {section}\n")
        for about, what in found.items():
            code, mistake = about.split(" ", 1)
            page = f"](error_codes.md#{code})" if code[0] in "BW" else "]"
            # Not as ```python, which would be run: it is meant to fail.
            lines = "".join(f"    {line}\n" for line in what.splitlines())
            parts.append(f"**{mistake[0].upper()}{mistake[1:]}**: [{code}{page}\n\n{lines}")
    return "\n".join(parts)


BUILT: dict[str, Callable[[], str]] = {
    "commands": commands,
    "errors": partial(codes, Errors),
    "warnings": partial(codes, Warnings),
    "mistakes": mistakes,
}


def filled(page: str) -> str:
    """Write the settings as they are now into a page."""
    return re.sub(
        r"(<!-- generated: settings (\w+) -->\n).*?(?=\n<!-- end -->)",
        lambda match: match[1] + settings_table(match[2]),
        page,
        flags=re.DOTALL,
    )


def built(page: str) -> str:
    """Put the parts that only the site has into a page."""
    return re.sub(f"<!-- built: ({'|'.join(BUILT)}) -->", lambda m: BUILT[m[1]](), page)


if __name__ == "__main__":
    with replacing_file(PAGE) as temporary:
        temporary.write_text(filled(PAGE.read_text("utf8")), encoding="utf8")
