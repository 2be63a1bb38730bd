"""An authorizer in Python: users do what they want with the topics and groups of their team.

    krust serve -o authorizer.class.name=teams:Teams -o super.users=User:admin \
        -o authorizer.class.name.teams.blocked=blocked.txt

The user `team-a-loader` is of the team `team-a`: it may use topics and groups whose names begin
with `team-a-`, read those that begin with `public-`, and delete no topic. A user whose name is a
line of the file `blocked` may do nothing, within a second.
"""

from __future__ import annotations

from pathlib import Path

from krust import AclClient, ClientAcl


class Teams:
    """Decides by the name of the user."""

    name = "teams"

    def __init__(self) -> None:
        self._file: Path | None = None

    def configure(self, configs: dict[str, str]) -> None:
        """`blocked` names a file of users."""
        if "blocked" in configs:
            self._file = Path(configs["blocked"])

    def acls(self, client: AclClient) -> list[ClientAcl]:
        """The ACLs of a client; of a blocked one, none."""
        team, dash, _ = client.user.rpartition("-")
        if not dash or client.user in self._blocked():
            return []
        return [
            ClientAcl.allow("topic", f"{team}-*", "all"),
            ClientAcl.deny("topic", "*", "delete"),
            ClientAcl.allow("topic", "public-*", "read"),
            ClientAcl.allow("group", f"{team}-*", "all"),
            ClientAcl.allow("transactional-id", f"{team}-*", "all"),
        ]

    def _blocked(self) -> set[str]:
        if self._file is None or not self._file.exists():
            return set()
        return set(self._file.read_text().split())
