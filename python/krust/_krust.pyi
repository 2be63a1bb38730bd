"""The native core: the door between Python's decisions and the bytes that Rust moves.

Every call that can wait lets other threads run. Messages are dicts with Kafka's field names in
snake_case; topic ids are text of 22 characters ("A" * 22: none). Errors are `krust.errors`.
"""

from typing import Any, final

__version__: str

def logs() -> list[tuple[int, str, str]]:
    """Take the core's log lines since the last call: level as `logging` counts, logger, text."""

@final
class Server:
    """The core of one broker: log directories, image, network threads.

    Order of calls: make it, `load`, `join`, `start`, `apply`, `listen`; then `events` and `answer`
    until `stop`. In a forked child every call raises ForkedError.
    """

    def __new__(cls, config: dict[str, Any]) -> Server:
        """Open the log directories. ServerError: in use, unwritable, of another cluster.

        config   node_id: int; cluster_id: str | None; log_dirs: [str]; temporary: bool (nothing is
                 synced); threads: int (0: by the processors); settings: {name: typed value}
        """

    @property
    def cluster_id(self) -> str | None:
        """The cluster that the directories belong to, if they say so."""

    @property
    def connections(self) -> int:
        """How many connections are open."""

    def join(self, cluster_id: str) -> None:
        """Make the directories belong to a cluster. ServerError: they belong to another."""

    def load(self) -> list[dict[str, Any]]:
        """What partitions lie in the directories.

        returns   dicts of topic, partition, topic_id (None: unknown), leader_epoch (the last one in
                  the log, -1: none), clean (whether the last stop was), kind (live, delete, future
                  or stray)
        """

    def start(self) -> None:
        """Start syncing, and take the marks of a clean stop away. Before the first `apply`."""

    def apply(self, delta: dict[str, Any]) -> list[tuple[str, int, str]]:
        """Bring a change to the image; make and delete logs. What failed: topic, partition, why.

        delta   version: int, above the last; and where they changed: cluster_id, controller_id,
                brokers: [{id, rack, endpoints: [(listener, host, port)]}], settings: {name: value},
                topics: {name: None (gone) | {id, internal, config: {name: typed value},
                partitions: [{leader, leader_epoch, isr, replicas}]}}
        """

    def listen(self, listeners: list[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
        """Accept connections at (name, host, port); what was bound. ServerError: it cannot be.

        listeners   host "localhost" is 127.0.0.1 and ::1, "" every address; port 0 a free one
        """

    def events(
        self, timeout_ms: int
    ) -> list[tuple[int, str, int, dict[str, Any], dict[str, Any]]] | None:
        """All requests that wait for a decision; waits for the first. None: it has stopped.

        returns   (ticket, API's name, version, request, client: {id, host, listener})
        """

    def nudge(self) -> None:
        """Make `events` return at once, now or the next time. From any thread."""

    def answer(self, ticket: int, response: dict[str, Any]) -> None:
        """Answer an event. ValueError, TypeError: that is no response of its API."""

    def retain(self) -> int:
        """Delete segments whose time is over; how many."""

    def checkpoint(self) -> None:
        """Write the checkpoint files of all directories."""

    def stop(self) -> None:
        """Close connections, logs and directories. Nothing but `stop` works after it."""
