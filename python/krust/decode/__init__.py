"""A record's value becomes typed columns: JSON, Avro and Protobuf, by pyarrow, fastavro, protobuf.

    decoder = options.decoder({"valueFormat": "json", "valueSchema": "id bigint, name string"})
    decoded = decoder.decode(values)      # a binary Arrow array -> columns of the good rows

Pure: a decoder reads values and schemas, nothing else; only `schemas.py` asks a registry or reads
files. A null value (a tombstone) is a good row of nulls. A value that cannot be decoded is told
apart with its reason and costs no other row; no bytes, however hostile, raise anything else.
"""
