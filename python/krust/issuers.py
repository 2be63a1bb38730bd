"""Asks OAuth issuers by HTTP, for keys and for tokens.

A redirect is not followed, because it leads to an address that nobody has allowed. The certificate
of an `https` address is checked against the authorities of the system. Errors do not show what the
issuer answered.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from krust.errors import KrustError

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


def granted(
    url: str, client_id: str, secret: str, scope: str | None = None
) -> tuple[str, float | None]:
    """A token that an issuer grants by OAuth's client credentials, and when it expires, in seconds
    since 1970; None: the issuer does not say. KrustError: it grants none.
    """
    import json
    from base64 import b64encode
    from urllib.parse import quote_plus

    login = b64encode(f"{quote_plus(client_id)}:{quote_plus(secret)}".encode()).decode()
    form = {"grant_type": "client_credentials"} | ({} if scope is None else {"scope": scope})
    begun_s = time.time()
    try:
        said = json.loads(ask(url, form=form, login=f"Basic {login}"))
        token, lasts_s = said["access_token"], said.get("expires_in")
        if not isinstance(token, str):
            raise TypeError
        return token, None if lasts_s is None else begun_s + float(lasts_s)
    except OSError as error:
        raise KrustError(f"the issuer {url} granted no token: {error}") from None
    except (ValueError, LookupError, TypeError, AttributeError):
        raise KrustError(f"the issuer {url} answered with no access_token") from None
