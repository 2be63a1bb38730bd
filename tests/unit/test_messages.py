"""The generated package `krust.messages` beside the schemas that it is made of."""

from tests import typed_messages


def test_the_typed_messages_are_those_of_the_schemas() -> None:
    modules = {path.name: path.read_text() for path in typed_messages.MODULES.glob("*.py")}
    assert modules == typed_messages.modules(), "run `make messages`"


def test_a_key_is_required_where_every_version_has_the_field() -> None:
    text = typed_messages.module(
        "# Says what it is for.\n"
        "api 7 Example 0-3 flexible 2\n\n"
        "request\n"
        "  names   [string]  ?1+\n"
        "  inner   Inner     2+\n"
        "    count  int32\n"
        "    since  int64  3+ = -1\n"
        "  rack    string    ? tag 0\n"
        "response\n"
    )
    assert text.endswith(
        "class Inner(TypedDict):\n"
        "    count: int\n"
        "    since: NotRequired[int]\n\n\n"
        "class ExampleRequest(TypedDict):\n"
        "    names: Sequence[str] | None\n"
        "    inner: NotRequired[Inner]\n"
        "    rack: NotRequired[str | None]\n\n\n"
        "class ExampleResponse(TypedDict):\n"
        "    pass\n"
    )
