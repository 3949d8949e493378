"""Generate the parts of the reference pages that come from the code.

`python -m benchmarks.reference` writes the settings into their page, between
`<!-- generated: NAME -->` and `<!-- end -->`. When the site is built, commands, error codes and
common mistakes replace `<!-- built: NAME -->`.
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
    model.pipe: model for model in (MentionSettings, LinkerSettings, ContextSettings)
}
# Parts of the pipes that registered functions make; their other settings are in `MODELS`.
PARTS = {
    DETECTOR: {
        "model": "The network that scores spans: `spacy-bioel.SpanEnumerator.v1` by default. "
        "`spacy-bioel.BioTagger.v1` tags tokens instead.",
        "entities.variants": "Rules that find sequence variants by their grammar. As for all of "
        "`entities`, `null` turns the rules off.",
        "entities.composites": "Rules that extend a mention to the other members of its family: "
        '"CDK4" becomes "CDK4/6".',
        "scorer": "Function that computes the scores of this pipe for `spacy evaluate` and during "
        "training.",
    },
    LINKER: {
        "model": "The name encoder: `spacy-bioel.ResCNN.v1` by default; or a contextual model, "
        "which also reads the text, such as `spacy-bioel.DualEncoder.v1` "
        "([choose a linker](../guides/choose_linker.md)).",
        "ngram_search": "Function that makes the n-gram search, which finds similarly spelled "
        "names.",
        "entities.genes": "Rules that choose the species of genes from the organisms that the "
        "document names, and decide between genes with the same name by other names that the "
        "document uses for them. As for all of `entities`, `null` turns the rules off.",
        "entities.notes": "Rules for clinical notes. Shorthand that the document does not define "
        'is expanded ("HTN"), unless it is a name in the knowledge base or a mention in the '
        "training texts. `clinical = true` also recognises short forms that are unambiguous only "
        'in notes ("MR", "PE"); `measurements = true` recognises measurements outside their '
        'reference range: "Hb 7.2" is linked as anemia. For `mentions = "dictionary"` and, with '
        '`clinical = true`, for `"spans+dictionary"`.',
        "entities.variants": "Rules that add the HGVS form, the gene and the dbSNP number of "
        "sequence variants. They also find variants if the linker itself looks for names.",
        "entities.composites": "Rules that link the parts of mentions that name several concepts "
        '("nausea and vomiting").',
        "scorer": "Function that computes the scores of this pipe for `spacy evaluate` and during "
        "training.",
    },
}


def settings_table(pipe: str) -> str:
    """Return a table with the default and the description of each setting of a pipe."""
    # `blank` registers the factories.
    config = blank("en").get_factory_meta(pipe).default_config
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
    """Yield the name, default and description of each setting; those of groups as `group.name`."""
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
    """Return a section for each command, with its help, arguments and options."""
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
    """Return the placeholder for an option's value: its choices, or its metavar or type."""
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
    """Return a table of codes and their messages, in which the fields are italic."""
    names = sorted(name for name in vars(messages) if re.fullmatch(r"[A-Z]\d{3}", name))
    lines = []
    for name in names:
        text = getattr(messages, name).removeprefix(f"[{name}] ")
        lines.append([f'<a id="{name}"></a>{name}', _cell(text)])
    return table(["code", "message"], lines)


def _cell(text: str) -> str:
    """Escape a text for a cell of a table, with the fields of messages in italics."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")
    return re.sub(r"\{(\w+)[^}]*\}", r"*\1*", text)


def mistakes() -> str:
    """Return the mistakes of tests/mistakes.yml, with the codes of the messages."""
    parts = []
    for section, examples in srsly.read_yaml(MISTAKES).items():
        parts.append(f"## {section}\n")
        for title, example in examples.items():
            code, mistake = title.split(" ", 1)
            page = f"](error_codes.md#{code})" if code[0] in "BW" else "]"
            # Not as ```python: the tests of the pages would run it, and it fails on purpose.
            lines = "".join(f"    {line}\n" for line in example.splitlines())
            parts.append(f"**{mistake[0].upper()}{mistake[1:]}**: [{code}{page}\n\n{lines}")
    return "\n".join(parts)


BUILT: dict[str, Callable[[], str]] = {
    "commands": commands,
    "errors": partial(codes, Errors),
    "warnings": partial(codes, Warnings),
    "mistakes": mistakes,
}


def filled(page: str) -> str:
    """Fill the tables of settings of a page."""
    return re.sub(
        r"(<!-- generated: settings (\w+) -->\n).*?(?=\n<!-- end -->)",
        lambda match: match[1] + settings_table(match[2]),
        page,
        flags=re.DOTALL,
    )


def built(page: str) -> str:
    """Fill in the parts of a page that only the site has."""
    return re.sub(f"<!-- built: ({'|'.join(BUILT)}) -->", lambda m: BUILT[m[1]](), page)


if __name__ == "__main__":
    with replacing_file(PAGE) as temporary:
        temporary.write_text(filled(PAGE.read_text("utf8")), encoding="utf8")
