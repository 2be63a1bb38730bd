"""Decodes records' values to typed columns: JSON, Avro, Protobuf (pyarrow, fastavro, protobuf).

    decoder = options.decoder({"valueFormat": "json", "valueSchema": "id bigint, name string"})
    decoded = decoder.decode(values)      # a binary Arrow array -> columns of the good rows

Pure: a decoder reads values and schemas only; `schemas.py` alone asks a registry or reads files. A
null value (a tombstone) is a good row of nulls. A value that cannot be decoded is reported with a
reason and costs no other row. No bytes of a value raise an exception.
"""
