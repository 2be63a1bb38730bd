"""The messages of Kafka's protocol as TypedDicts: a module per API.

Generated from `rust/schema/` by `make messages`; do not edit these files. Keys are Kafka's field
names in snake_case. A UUID is its 22 characters of base64. A key may be absent (`NotRequired`)
where some version of the API lacks the field: a request then lacks it too, and the core gives a
response the field's default. Nothing checks these types while krust runs.
"""
