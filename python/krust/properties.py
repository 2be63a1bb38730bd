"""Reads Java's properties files as `java.util.Properties.load` does, and writes such. Pure text,
without limits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


_LONE = "surrogatepass"
"""Java writes a character above U+FFFF as two escapes, and accepts one of them alone."""


def properties(text: str) -> dict[str, str]:
    """The keys and values of a file: `#` `!` begin a comment, `=` `:` or a blank separates key and
    value, a backslash continues a line.
    """
    pairs: dict[str, str] = {}
    pending = ""
    for raw in text.splitlines():
        line = pending + raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        slashes = len(line) - len(line.rstrip("\\"))
        if slashes % 2:
            pending = line[:-1]
            continue
        pending = ""
        name, value = _split(line)
        pairs[_unescape(name)] = _unescape(value).rstrip()
    if pending:
        name, value = _split(pending)
        pairs[_unescape(name)] = _unescape(value).rstrip()
    return pairs


def written(pairs: Mapping[str, object]) -> str:
    """The text of a file with these keys, which need no escapes, and values. It is ASCII."""
    return "".join(f"{key}={_escaped(str(value))}\n" for key, value in pairs.items())


def _escaped(value: str) -> str:
    """A value of one line, as Java reads it in any character set."""
    blanks = len(value) - len(value.lstrip(" "))
    units = value.replace("\\", "\\\\").encode("utf-16-be")
    codes = (int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2))
    text = "".join(chr(code) if 31 < code < 127 else f"\\u{code:04x}" for code in codes)
    return "\\ " * blanks + text[blanks:]


def _split(line: str) -> tuple[str, str]:
    """Key and value, separated by the first `=`, `:` or blank without a backslash."""
    end = 0
    while end < len(line) and line[end] not in "=: \t\f":
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    return line[:end], rest


def _unescape(text: str) -> str:
    r"""Java's escapes: \t \n \r \f \uXXXX; any other character stands for itself."""
    if "\\" not in text:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char != "\\" or at == len(text):
            out.append(char)
            continue
        code = text[at]
        at += 1
        digits = text[at : at + 4]
        if code == "u" and len(digits) == 4 and all(d in "0123456789abcdefABCDEF" for d in digits):
            out.append(chr(int(digits, 16)))
            at += 4
        else:
            out.append({"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(code, code))
    whole = "".join(out)
    return whole if whole.isascii() else whole.encode("utf-16", _LONE).decode("utf-16", _LONE)
