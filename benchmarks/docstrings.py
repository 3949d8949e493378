"""Griffe extension of mkdocs.yml: docstrings of this package as sections that mkdocstrings knows.

The package writes "name (type): ..." for arguments and fields, and RETURNS, YIELDS and RAISES.
"""

import re
from typing import Any

from griffe import Extension, Object

_ITEM = re.compile(
    r"(?P<names>\w+(?:, \w+)*)(?: \((?P<type>[^)]*(?:\([^)]*\)[^)]*)*)\))?: (?P<text>.*)"
)
_SECTION = re.compile(r"(RETURNS|YIELDS|RAISES) (.*)")


def sections(text: str, fields: str) -> str:
    """A docstring in the style of Google.

    fields (str): Heading of the items: "Args" or "Attributes".
    """
    done: list[str] = []
    heading = ""
    for line in text.splitlines():
        section, item = _SECTION.match(line), _ITEM.match(line)
        if section:
            heading = section[1].title()
            kind, _, rest = section[2].partition(": ")
            kind = kind.strip("()")
            done += ["", f"{heading}:", f"    {kind}: {rest}"]
        elif item and item["type"] is not None:
            if heading != fields:
                heading = fields
                done += ["", f"{fields}:"]
            done += [
                f"    {name} ({item['type']}): {item['text']}" for name in item["names"].split(", ")
            ]
        elif heading and line.strip():
            done.append(f"    {line}")
        else:
            done.append(line)
            heading = "" if line.strip() else heading
    return "\n".join(done)


class PackageDocstrings(Extension):
    """Rewrites each docstring as it is collected."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            fields = "Attributes" if obj.is_class else "Args"
            obj.docstring.value = sections(obj.docstring.value, fields)
