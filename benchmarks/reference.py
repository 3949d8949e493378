"""Generate parts of the reference from the code: settings, commands, messages, and the API.

`python -m benchmarks.reference` writes them to the pages in `docs/reference`, between
`<!-- generated: NAME -->` and `<!-- end -->`. Run it after changing settings, commands, messages,
docstrings or `tests/mistakes.yml`.
"""

import ast
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from enum import Enum
from functools import partial, reduce
from importlib import import_module
from inspect import cleandoc, getsource
from operator import getitem
from pathlib import Path
from pkgutil import resolve_name
from textwrap import dedent
from typing import Any

import srsly
import typer
from spacy import blank

from benchmarks.tables import table
from spacy_bioel.cli import app
from spacy_bioel.errors import Errors, Warnings
from spacy_bioel.files import replacing_file
from spacy_bioel.plugins.clinical.factories import ContextSettings
from spacy_bioel.settings import (
    DETECTOR,
    LINKER,
    LinkerSettings,
    MentionSettings,
    NameSettings,
    Settings,
)

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "docs/reference" / f"{name}.md"
    for name in ("settings", "cli", "error_codes", "mistakes", "api")
]
MISTAKES = ROOT / "tests" / "mistakes.yml"
# Objects in each section of the API page, with the members to list (None: all public members).
API: dict[str, dict[str, tuple[str, ...] | None]] = {
    "package": {
        "spacy_bioel.load": None,
        "spacy_bioel.doc.get_links": None,
        "spacy_bioel.report.explain": None,
        "spacy_bioel.export.html.render": None,
        "spacy_bioel.export.html.links_frame": None,
    },
    "records": {
        "spacy_bioel.types.Concept": None,
        "spacy_bioel.types.Mention": None,
        "spacy_bioel.types.AnnotatedText": None,
        "spacy_bioel.types.Candidate": None,
        "spacy_bioel.types.Link": None,
    },
    "kb": {
        "spacy_bioel.kb.knowledge_base.KnowledgeBase": (
            "open",
            "__getitem__",
            "__contains__",
            "find",
            "names_of",
            "name",
            "xrefs",
            "sources_of",
            "save_to",
        ),
        "spacy_bioel.kb.knowledge_base.search_names": None,
    },
    "linker": {"spacy_bioel.linking.pipe.Linker": ("set_kb", "encode_kb")},
    "rules": {
        "spacy_bioel.entities.EntityRules": None,
        "spacy_bioel.batch.Batch": ("strings", "labels", "n_wholes"),
        "spacy_bioel.batch.Query": None,
        "spacy_bioel.found.FoundSpans": (
            "add_places",
            "add",
            "drop",
            "overlapping",
        ),
    },
    "models": {
        "spacy_bioel.mentions.model.build_span_enumerator_v1": None,
        "spacy_bioel.mentions.model.build_bio_tagger_v1": None,
        "spacy_bioel.models.name_encoder.build_rescnn_v1": None,
        "spacy_bioel.plugins.contextual.transformers.build_transformer_names_v1": None,
        "spacy_bioel.plugins.contextual.document_transformer.build_transformer_v1": None,
        "spacy_bioel.plugins.contextual.document_transformer.build_with_spelling_v1": None,
        "spacy_bioel.plugins.contextual.dual_encoder.build_dual_encoder_v1": None,
        "spacy_bioel.plugins.contextual.reranker.build_reranker_v1": None,
        "spacy_bioel.plugins.contextual.multitask.build_hierarchical_linker_v1": None,
        "spacy_bioel.plugins.contextual.generative.build_generative_linker_v1": None,
    },
    "corpora": {
        "spacy_bioel.corpus.create_corpus_v1": None,
        "spacy_bioel.corpus.mix_corpora_v1": None,
    },
    "spark": {"spacy_bioel.plugins.spark.spark.link_frame": None},
}
MODELS: dict[str, type[Settings]] = {
    model.pipe: model for model in (MentionSettings, NameSettings, LinkerSettings, ContextSettings)
}
# Docstring items and sections: "name (type): ...", "RETURNS (type): ...".
_ITEM = re.compile(
    r"^(?P<names>\w+(?:, \w+)*) \((?P<type>[^)]*(?:\([^)]*\)[^)]*)*)\): (?P<text>.*)", re.M
)
_SECTION = re.compile(r"(RETURNS|YIELDS|RAISES) (.*)")
_WIDTH = 88
# Pipe settings that are registered functions; all other settings are in `MODELS`.
PARTS = {
    DETECTOR: {
        "model": "The network that scores spans: `spacy-bioel.SpanEnumerator.v1` by default. "
        "`spacy-bioel.BioTagger.v1` tags tokens instead.",
        "entities.variants": "Rules that find sequence variants by their grammar. As for all "
        "`entities` rules, `null` turns them off.",
        "entities.composites": "Rules that extend a mention to further members of the same family: "
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
        "entities.genes": "Rules that choose the species of genes from the organisms in the "
        "document, and choose between genes with the same name by their other names in the "
        "document. As for all `entities` rules, `null` turns them off.",
        "entities.notes": "Shorthand that is not defined in the document is expanded "
        '("HTN"), unless it is a name in the knowledge base or a mention in the training texts. '
        "For clinical notes, the plugin `clinical` has `spacy-bioel.Notes.v1` instead: "
        "`clinical = true` also recognises short forms that are unambiguous only in notes "
        '("MR", "PE"); `measurements = true` links abnormal lab values: "Hb 7.2" as anemia. '
        'For `mentions = "dictionary"` and, with `clinical = true`, for `"spans+dictionary"`.',
        "entities.variants": "Rules that add the HGVS form, gene and dbSNP number of sequence "
        "variants. The rules also find variants if the linker itself looks for names.",
        "entities.chemicals": "Rules that find short forms defined in brackets after names of "
        'chemicals, whose letters the names lack ("mesalamine (5-ASA)").',
        "entities.composites": "Rules that link each part of a mention of several concepts "
        '("nausea and vomiting").',
        "scorer": "Function that computes the scores of this pipe for `spacy evaluate` and during "
        "training.",
    },
}


def settings_table(pipe: str) -> str:
    """Return a table with the default and description of each pipe setting."""
    # `blank` also registers the factories.
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
    """Yield the name (in groups `group.name`), default and description of each setting."""
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
    """Return a section with the help, arguments and options of each command."""
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
    parts = [f"## {path}", _unwrapped(cleandoc(command.help or ""))]
    if arguments:
        parts.append(table(["argument", ""], arguments))
    parts.append(table(["option", "value", "default", ""], options))
    return "\n\n".join(parts)


def _value(param: Any) -> str:
    """Return the placeholder for an option's value: its choices, metavar or type."""
    annotation = param.type_descriptor.annotation
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return " or ".join(choice.value for choice in annotation)
    return param.metavar or getattr(annotation, "__name__", "value").replace("str", "text")


def _default(param: Any) -> str:
    value = param.default
    if value in (None, False, "") or callable(value) or param.required:
        return ""
    return f"`{getattr(value, 'value', value)}`"


def messages_of(kind: type) -> list[tuple[str, str]]:
    """Return the codes and messages of the engine and of all plugins, sorted by code.

    kind (type): `Errors` or `Warnings`.
    """
    for path in (ROOT / "spacy_bioel").glob("plugins/*/errors.py"):
        import_module(f"spacy_bioel.plugins.{path.parent.name}.errors")
    return sorted(
        (name, getattr(owner, name).removeprefix(f"[{name}] "))
        for owner in (kind, *kind.__subclasses__())
        for name in vars(owner)
        if re.fullmatch(r"[A-Z]\d{3}", name)
    )


def codes(kind: type) -> str:
    """Return a table of codes and messages, with message fields in italics."""
    lines = [[f'<a id="{code}"></a>{code}', _cell(text)] for code, text in messages_of(kind)]
    return table(["code", "message"], lines)


def _cell(text: str) -> str:
    """Escape text for a table cell, with message fields in italics."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")
    return re.sub(r"\{(\w+)[^}]*\}", r"*\1*", text)


def mistakes() -> str:
    """Return the mistakes in tests/mistakes.yml, with the codes of their messages."""
    parts = []
    for section, examples in srsly.read_yaml(MISTAKES).items():
        parts.append(f"## {section}\n")
        for title, example in examples.items():
            code, mistake = title.split(" ", 1)
            page = f"](error_codes.md#{code})" if code[0] in "BW" else "]"
            # Indented, because the page tests would run a ```python block, which fails on purpose.
            lines = "".join(f"    {line}\n" for line in example.splitlines())
            parts.append(f"**{mistake[0].upper()}{mistake[1:]}**: [{code}{page}\n\n{lines}")
    return "\n".join(parts)


def api(section: str) -> str:
    """Return the signatures and docstrings of all objects in an API page section."""
    return "\n\n".join(_documented(name, members) for name, members in API[section].items())


def _documented(name: str, members: tuple[str, ...] | None) -> str:
    thing = resolve_name(name)
    parts = [f"### `{name}`"]
    (node,) = ast.parse(dedent(getsource(thing))).body
    if not isinstance(node, ast.ClassDef):
        return "\n\n".join([*parts, *_function(node)])
    doc = ast.get_docstring(node) or ""
    has_fields = is_dataclass(thing) or hasattr(thing, "_fields")
    listed = {name for match in _ITEM.finditer(doc) for name in match["names"].split(", ")}
    fields = [
        f"    {_field(item)}"
        for item in node.body
        if isinstance(item, ast.AnnAssign)
        and not (target := ast.unparse(item.target)).startswith("_")
        and (has_fields or target in listed)
    ]
    colon = ":" if fields else ""
    parts += [_code("\n".join([f"class {node.name}{colon}", *fields])), markdown(doc)]
    public = [key for key in vars(thing) if not key.startswith("_")]
    for member in public if members is None else members:
        method = getattr(thing, member)
        method = method.fget if isinstance(method, property) else method
        if callable(method) and method.__doc__:
            (inner,) = ast.parse(dedent(getsource(method))).body
            parts += [f"#### `{node.name}.{member}`", *_function(inner)]
    return "\n\n".join(parts)


def _field(node: ast.AnnAssign) -> str:
    text = f"{ast.unparse(node.target)}: {ast.unparse(node.annotation)}"
    if node.value is None:
        return text
    is_factory = isinstance(node.value, ast.Call)  # field(default_factory=...)
    return f"{text} = {'...' if is_factory else ast.unparse(node.value)}"


def _function(node: Any) -> list[str]:
    """Return a function's signature, without `self`, and its docstring."""
    kinds = [ast.unparse(decorator) for decorator in node.decorator_list]
    arguments = node.args
    if arguments.args and arguments.args[0].arg in ("self", "cls"):
        del arguments.args[0]
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    doc = markdown(ast.get_docstring(node) or "")
    if "property" in kinds or "cached_property" in kinds:
        return [_code(f"{node.name}: {ast.unparse(node.returns)}"), doc]
    positional = [*arguments.posonlyargs, *arguments.args]
    no_default = [None] * (len(positional) - len(arguments.defaults))
    pairs = zip(positional, [*no_default, *arguments.defaults], strict=True)
    texts = [_argument(*pair) for pair in pairs]
    if arguments.vararg:
        texts.append(f"*{ast.unparse(arguments.vararg)}")
    elif arguments.kwonlyargs:
        texts.append("*")
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    texts += [_argument(*pair) for pair in pairs]
    if arguments.kwarg:
        texts.append(f"**{ast.unparse(arguments.kwarg)}")
    line = f"def {node.name}({', '.join(texts)}){returns}"
    if len(line) > _WIDTH:
        lines = "".join(f"    {text},\n" for text in texts)
        line = f"def {node.name}(\n{lines}){returns}"
    return [_code(line), doc]


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    text = ast.unparse(argument)
    equals = " = " if argument.annotation else "="
    return f"{text}{equals}{ast.unparse(default)}" if default else text


def _code(text: str) -> str:
    text = text.replace("'", '"')  # ast.unparse writes single quotes
    return f"```py\n{text}\n```"  # not ```python, which the page tests would run


def markdown(doc: str) -> str:
    """Convert a docstring to Markdown, with arguments, RETURNS and RAISES as a list."""
    done: list[str] = []
    in_list = False
    for line in doc.splitlines():
        section, item = _SECTION.match(line), _ITEM.match(line)
        if section or item:
            if not in_list and done and done[-1]:
                done.append("")
            in_list = True
        if section:
            kind, _, rest = section[2].partition(": ")
            done.append(f"- **{section[1].capitalize()}** `{kind.strip('()')}`: {_inline(rest)}")
        elif item:
            names = ", ".join(f"`{name}`" for name in item["names"].split(", "))
            done.append(f"- {names} (`{item['type']}`): {_inline(item['text'])}")
        elif in_list and line.startswith(" "):
            done[-1] += f" {_inline(line.strip())}"
        else:
            in_list = in_list and not line.strip()
            done.append(_inline(line))
    return _unwrapped("\n".join(done))


def _unwrapped(text: str) -> str:
    """Join the lines of each paragraph and list item, unless they are indented code."""
    return re.sub(r"(?<=\S)\n {0,3}(?=[^\s*-])", " ", text)


def _inline(text: str) -> str:
    """Convert a docstring line to Markdown, with links to the error codes."""
    parts = re.split("(`[^`]*`)", text)
    for i, part in enumerate(parts):
        if not part.startswith("`"):
            part = re.sub(r"([*<\\])", r"\\\1", part)
            parts[i] = re.sub(r"\[([BW]\d{3})\]", r"[[\1](error_codes.md#\1)]", part)
    return "".join(parts)


GENERATED: dict[str, Callable[[], str]] = {
    **{f"settings {pipe}": partial(settings_table, pipe) for pipe in MODELS},
    "commands": commands,
    "errors": partial(codes, Errors),
    "warnings": partial(codes, Warnings),
    "mistakes": mistakes,
    **{f"api {section}": partial(api, section) for section in API},
}


def filled(page: str) -> str:
    """Return the page with its generated parts updated."""
    return re.sub(
        r"(<!-- generated: ([\w ]+) -->\n).*?(?=<!-- end -->)",
        lambda match: f"{match[1]}{GENERATED[match[2]]()}\n",
        page,
        flags=re.DOTALL,
    )


if __name__ == "__main__":
    for path in PAGES:
        text = filled(path.read_text("utf8"))
        with replacing_file(path) as temporary:
            temporary.write_text(text, encoding="utf8")
