"""Kafka's messages as TypedDicts: a module per API and per value of a record.

Generated from `rust/schema/` by `make messages`; do not edit these files. Keys are Kafka's field
names in snake_case. A UUID is its 22 characters of base64. A key may be absent (`NotRequired`)
where some version of the API lacks the field: a request then lacks it too, and the core gives a
response the field's default. Nothing checks these types while krust runs.
"""

from collections.abc import Mapping
from typing import Any, TypedDict

Message = Mapping[str, Any]
"""A message of any API: the type of code that queues, sends or answers messages of all APIs and
does not know which one it holds. Code that serves one API names that API's TypedDict."""


class RequestContext(TypedDict, total=False):
    """Where a request comes from. News from the core and requests of this process have no keys."""

    id: str | None
    """the client id"""
    host: str | None
    user: str
    """the name of the client's principal; ANONYMOUS without a login and certificate"""
    proof: str
    """how it proved that: `login`, `certificate`, `token` (a delegation token) or `nothing`"""
    listener: str
    connection: int
    """a number that is never used twice"""
    memory: object
    """keeps the memory of the request leased for as long as something refers to it"""
