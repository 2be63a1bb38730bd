"""What tells clients how to reach a broker or a cluster of this process, secured or not."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from krust.errors import ConfigError

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from krust.security.opened import OpenSecurity
    from krust.security.security import Security


class Reachable(ABC):
    """A broker or a cluster. With `secure` its own clients are those of the user admin."""

    security: OpenSecurity | None = None
    """its certificates and users; None: it is not secured"""

    @property
    @abstractmethod
    def bootstrap(self) -> str:
        """Where clients connect."""

    @property
    def users(self) -> dict[str, str]:
        """The users with their passwords, admin first; empty: it is not secured."""
        return {} if self.security is None else dict(self.security.users)

    @property
    def security_dir(self) -> Path | None:
        """The directory with ca.pem, secure.json and each user's USER.properties; None: it is not
        secured.
        """
        return None if self.security is None else self.security.folder

    def client_settings(
        self, user: str = "admin", client: str = "krust", **extra: Any
    ) -> dict[str, Any]:
        """How a user of a secured broker logs in: `Producer(broker.client_settings("alice"))`.

        client  krust, confluent-kafka: a dict of keys with dots; kafka-python, aiokafka: keywords;
                java: keys of Kafka's own clients
        extra   further settings, with `_` for `.` where keys have dots
        raises  ConfigError: it is not secured, or there is no such user or client
        """
        if self.security is None:
            raise ConfigError(f"{self!r} has no users", hint="make it with secure=True")
        from krust.security.client_settings import settings

        found = settings(self.security.login(self.bootstrap, user), client)
        dotted = "bootstrap.servers" in found
        return found | {_key(name, dotted=dotted): value for name, value in extra.items()}

    def _core_options(self) -> dict[str, object]:
        """The settings by which the native clients of this process may do everything."""
        if self.security is None:
            return {}
        from krust.clients.options import BOOTSTRAP, renamed

        found = renamed(self.client_settings())
        del found[BOOTSTRAP]
        return found

    def client_config(self, **extra: Any) -> dict[str, Any]:
        """Settings for confluent-kafka: `Consumer(broker.client_config(group_id="billing"))`.

        extra  further settings, with `_` for `.`
        """
        if self.security is not None:
            return self.client_settings(**extra)
        more = {_key(name, dotted=True): value for name, value in extra.items()}
        return {"bootstrap.servers": self.bootstrap, **more}

    def kwargs(self, **extra: Any) -> dict[str, Any]:
        """Settings for krust's clients, kafka-python and aiokafka: `Consumer(**broker.kwargs())`.

        extra  further settings, unchanged
        """
        if self.security is not None:
            return self.client_settings(client="kafka-python", **extra)
        return {"bootstrap_servers": self.bootstrap, **extra}


def _key(name: str, *, dotted: bool) -> str:
    return name.replace("_", ".") if dotted else name


def opened(asked: bool | Security | OpenSecurity, folder: Path | None) -> OpenSecurity | None:
    """The security that was asked for; None: none. Its modules are loaded only if it is.

    folder  where its files are kept; None: a temporary one
    """
    if asked is False:
        return None
    from krust.security.opened import OpenSecurity
    from krust.security.security import Security

    if isinstance(asked, OpenSecurity):
        return asked
    return OpenSecurity(Security() if asked is True else asked, folder)


def beside(data_dir: str | os.PathLike[str] | None) -> Path | None:
    """The folder for the security of a broker with this log directory. It is not in it, because
    Kafka refuses a log directory with a folder that it does not know.
    """
    if data_dir is None:
        return None
    whole = Path(data_dir).absolute()
    return whole.with_name(f"{whole.name}-security")


def secured(security: OpenSecurity | None, config: Mapping[str, object] | object, port: int) -> Any:
    """The settings of a broker without peers. ConfigError: they are no dict."""
    if security is None:
        return config
    if config is not None and not hasattr(config, "keys"):
        raise ConfigError("secure needs the settings as a dict", hint="hand in config={...}")
    given: Any = config or {}
    return security.broker_settings(given, port, has_peers=False)
