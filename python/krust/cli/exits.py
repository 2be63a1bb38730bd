"""The table of exit codes, and the function that maps an error to its code.

Promised: the numbers. Not promised: the texts of errors.
"""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """The exit codes of commands."""

    OK = 0
    FAILED = 1
    """the operation failed"""
    USAGE = 2
    """the command line is invalid"""
    NOT_STARTED = 3
    """the broker did not start (port or data directory taken, unwritable, of another cluster), or
    metadata was not moved between a data directory and a ZooKeeper"""
    UNREACHABLE = 4
    """no connection, or no answer in time"""
    NOT_FOUND = 5
    """no such topic, group, transaction, ACL or key"""
    EXISTS = 6
    """the thing to create exists already"""
    REFUSED = 7
    """authentication or authorisation; `acl check`: denied"""
    PARTIAL = 8
    """some of many items failed"""
    PROBLEMS = 9
    """a check (`log verify`, `cluster health`, `pipeline check`) found problems"""
    INTERRUPTED = 130
    """Ctrl-C"""
    TERMINATED = 143
    """SIGTERM ended the command cleanly"""


BY_ERROR_NAME = {
    "UNKNOWN_TOPIC_OR_PARTITION": Exit.NOT_FOUND,
    "UNKNOWN_TOPIC_ID": Exit.NOT_FOUND,
    "GROUP_ID_NOT_FOUND": Exit.NOT_FOUND,
    "TRANSACTIONAL_ID_NOT_FOUND": Exit.NOT_FOUND,
    "TOPIC_ALREADY_EXISTS": Exit.EXISTS,
    "LEADER_NOT_AVAILABLE": Exit.UNREACHABLE,
    "REQUEST_TIMED_OUT": Exit.UNREACHABLE,
    "SASL_AUTHENTICATION_FAILED": Exit.REFUSED,
    "UNSUPPORTED_SASL_MECHANISM": Exit.REFUSED,
    "ILLEGAL_SASL_STATE": Exit.REFUSED,
    "TOPIC_AUTHORIZATION_FAILED": Exit.REFUSED,
    "GROUP_AUTHORIZATION_FAILED": Exit.REFUSED,
    "CLUSTER_AUTHORIZATION_FAILED": Exit.REFUSED,
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": Exit.REFUSED,
}
"""Kafka's error name -> exit code; other names: FAILED."""

BY_ERROR_CLASS = {
    "ServerError": Exit.NOT_STARTED,
    "ConfigError": Exit.USAGE,
    "UnreachableError": Exit.UNREACHABLE,
    "ConnectionError": Exit.UNREACHABLE,
    "TimeoutError": Exit.UNREACHABLE,
    "FileNotFoundError": Exit.NOT_FOUND,
    "FileExistsError": Exit.EXISTS,
}
"""The class name of a Python error, or of a base class -> exit code."""


def exit_of(error: BaseException) -> Exit:
    """The exit code of an error: by its `.exit`, its Kafka name, its class, else FAILED."""
    own = getattr(error, "exit", None)
    if isinstance(own, int):
        return Exit(own)
    by_name = BY_ERROR_NAME.get(str(getattr(error, "name", "")))
    if by_name is not None:
        return by_name
    found = (BY_ERROR_CLASS.get(kind.__name__) for kind in type(error).__mro__)
    return next((code for code in found if code is not None), Exit.FAILED)
