"""Asks OAuth issuers by HTTP, for keys and for tokens.

A redirect is not followed, because it leads to an address that nobody has allowed. The certificate
of an `https` address is checked against the authorities of the system. Errors do not show what the
issuer answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_BYTES = 1 << 20
"""A longer answer is refused."""
TIMEOUT_S = 10.0
"""how long an issuer may be silent"""


def ask(url: str, *, form: Mapping[str, str] | None = None, login: str | None = None) -> bytes:
    """What an issuer answers. OSError: it does not, or too much.

    url    http:// or https://
    form   sent by POST; None: GET
    login  the header Authorization
    """
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.parse import urlencode
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class NoRedirects(HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            return None

    if not url.startswith(("https://", "http://")):
        raise OSError(f"{url} is no address of HTTP")
    headers = {"Accept": "application/json"} | ({} if login is None else {"Authorization": login})
    data = None if form is None else urlencode(form).encode()
    request = Request(url, data=data, headers=headers)  # noqa: S310 -- checked above
    try:
        with build_opener(NoRedirects).open(request, timeout=TIMEOUT_S) as answer:
            found: bytes = answer.read(MAX_BYTES + 1)
    except HTTPError as error:
        error.close()
        raise OSError(f"it answered {error.code}") from None
    except (HTTPException, ValueError) as error:
        raise OSError(f"it does not speak HTTP ({type(error).__name__})") from None
    if len(found) > MAX_BYTES:
        raise OSError(f"it answered more than {MAX_BYTES} bytes")
    return found
