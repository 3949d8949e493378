"""Readers turn any bytes into records or raise a coded error."""

import json
import random
import re
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from zlib import crc32

import athena
import pytest
import spacy
from io_cases import PACK, Case, load, reader

from spacy_bioel.corpus import docs_to_bin, read_texts, text_to_doc
from spacy_bioel.errors import BioelError
from spacy_bioel.io.open import BadRecord, skipping_bad
from spacy_bioel.types import AnnotatedText, Concept, Mention

Draw = random.Random


def docbin() -> bytes:
    text = AnnotatedText("1", "Naïve flu here", (Mention(6, 9, "Disease", ("MESH:D1",)),))
    nlp = spacy.blank("en")
    return docs_to_bin(text_to_doc(nlp, text)[0] for _ in range(3)).to_bytes()


# The first good file of each section, and others. (A text to link may have half a character.)
SAMPLES = {
    name: case
    for name, case in load("good.yml")
    if name.endswith(" 1") and name not in ("texts jsonl 1", "texts pubtator 1")
}
_OBO = SAMPLES["ontology obo 1"].files["toy.obo"]
_PUBTATOR = SAMPLES["corpus pubtator 1"].files["x.txt"]
SAMPLES |= {
    "omop": Case({f"{k}.csv": v.encode() for k, v in athena.FILES.items()}, reader("ontology", {})),
    "spacy": Case({"x.spacy": docbin()}, lambda path: read_texts(path, format=None, prefix="")),
    "packed corpus": Case({"x.gz": PACK["gz"](_PUBTATOR)}, reader("corpus", {})),
    "packed ontology": Case({"x.zst": PACK["zst"](_OBO)}, reader("ontology", {})),
    "zipped ontology": Case({"x.zip": PACK["zip"](_OBO)}, reader("ontology", {})),
}
_TOKENS = (
    b"\xed\xa0\x80", b"\\ud800", b"\\udc00", b"\x00", b"\xff", b"\xef\xbb\xbf", b"\xc2\x85", b"\r",
    b"\n", b"\n\n", b"\t", b"|", b"||", b'"', b"'", b",", b"{", b"}", b"[", b"]", b"<", b">", b"#",
    b"&#0;", b"&x;", b"&#xD800;", b"null", b"true", b"-1", b"NaN", b"1e999", b"[]", b"{}", b'""',
    b":", b"/", b".", b" ", "²".encode(), "\u2028".encode(), "İ".encode(), b"10000000000",
    b"9" * 19, b"9" * 5000,
)  # fmt: skip
_DEEP = ((b"[", b"]"), (b'{"a":', b"}"), (b"<a>", b"</a>"), (b"(", b")"))
_ENCODINGS = ("utf-16", "utf-8-sig", "latin-1", "cp037")


def _place(draw: Draw, content: bytes) -> int:
    return draw.randint(0, len(content))


def flip(draw: Draw, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.choice([1, 1, 2, 5, 30])):
        changed[draw.randrange(len(changed))] = draw.randrange(256)
    return bytes(changed)


def cut(draw: Draw, content: bytes) -> bytes:
    return content[: _place(draw, content)]


def insert(draw: Draw, content: bytes) -> bytes:
    for _ in range(draw.choice([1, 1, 3])):
        place = _place(draw, content)
        content = content[:place] + draw.choice(_TOKENS) + content[place:]
    return content


def move(draw: Draw, content: bytes) -> bytes:
    start, end, to = sorted(_place(draw, content) for _ in range(3))
    return content[:start] + content[end:to] + content[start:end] * 2 + content[to:]


def replace_value(draw: Draw, content: bytes) -> bytes:
    """Replace a number or a quoted string with another value, often of another type."""
    values = list(re.finditer(rb'\d+|"[^"]*"|\[[^][]*\]|\w+', content))
    if not values:
        return content
    chosen = draw.choice(values)
    return content[: chosen.start()] + draw.choice(_TOKENS) + content[chosen.end() :]


def nest(draw: Draw, content: bytes) -> bytes:
    """Insert or substitute brackets up to 100,000 deep, closed or not."""
    before, after = draw.choice(_DEEP)
    depth = draw.choice([90, 950, 1_100, 100_000])
    deep = before * depth + b"1" + after * draw.choice([0, depth])
    values = list(re.finditer(rb'\d+|"[^"]*"|\[[^][]*\]', content)) or [re.match(b"", content)]
    start, end = draw.choice([*[v.span() for v in values if v], (_place(draw, content),) * 2])
    return content[:start] + deep + content[end:]


def encode(draw: Draw, content: bytes) -> bytes:
    """Use another encoding, or declare an unknown one."""
    if draw.random() < 0.5:
        name = draw.choice([b"klingon", b"utf-16", b"hex", b"idna", b"x" * 300, b"big5", b""])
        declared = b'<?xml version="1.0" encoding="' + name + b'"?>'
        return declared + re.sub(rb"^<\?xml[^>]*>", b"", content)
    text = content.decode("utf8", "replace")
    return text.encode(draw.choice(_ENCODINGS), "replace")


def pack(draw: Draw, content: bytes) -> bytes:
    """Pack the content, perhaps damage the archive, perhaps exceed the limit of its size."""
    if draw.random() < 0.1:
        content += draw.choice([b" ", b"\n", b"[],", b"a"]) * 1_000_000
    packed = PACK[draw.choice(["gz", "zst"])](content)
    return draw.choice([bytes, lambda data: cut(draw, data), lambda data: flip(draw, data)])(packed)


def one_line(draw: Draw, content: bytes) -> bytes:
    """Return a single line that does not decode."""
    line = draw.choice(content.splitlines() or [b""])
    return line[: _place(draw, line)] + b"\xe9" + draw.choice([b"", b"\n", b"\r", b"\r\n"])


CHANGES: tuple[Callable[[Draw, bytes], bytes], ...] = (
    *(flip, cut, insert, move, replace_value, replace_value, nest, encode, pack, one_line),
)


def check(record: object) -> None:
    """Check that the text of records can be encoded, and that mentions lie inside the text."""
    if isinstance(record, tuple):  # of a stream of texts
        record = AnnotatedText(record[1] or "", record[0], ())
    assert isinstance(record, AnnotatedText | Concept)
    json.dumps(asdict(record), ensure_ascii=False).encode("utf8")
    if isinstance(record, AnnotatedText):
        assert all(0 <= m.start <= m.end <= len(record.text) for m in record.mentions)


def read_changed(sample: Case, folder: Path, draw: Draw, log: list[str]) -> None:
    changed = draw.choice(list(sample.files))
    change = draw.choice(CHANGES)
    content = change(draw, sample.files[changed])
    path = sample.write(folder, {**sample.files, changed: content})
    noted: list[BadRecord] = []
    skipping = skipping_bad(noted.append) if draw.random() < 0.3 else nullcontext()
    try:
        with skipping:
            for record in sample.read(path):
                check(record)
    except BioelError as error:
        assert re.match(r"\[B\d{3}\] ", str(error))
        str(error).encode("utf8")
    except Exception as error:
        log.append(f"{change.__name__} {content[:2000]!r}: {error!r:.300}")


def fuzz(name: str, folder: Path, n: int, seed: int) -> None:
    draw = Draw(crc32(name.encode()) + seed)
    log: list[str] = []
    assert [check(record) for record in SAMPLES[name].read(SAMPLES[name].write(folder))]
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("error")
        patch.setattr("spacy_bioel.io.open._MIN_LIMIT", 1 << 16)
        for _ in range(n):
            read_changed(SAMPLES[name], folder, draw, log)
    assert not log, "\n".join(log[:5])


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize(("n", "seed"), [(40, 0), pytest.param(2_000, 1, marks=pytest.mark.slow)])
def test_changed_files_are_read_or_refused(name, tmp_path, n, seed):
    fuzz(name, tmp_path, n, seed)
