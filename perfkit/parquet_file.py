"""Reads Parquet files that others may have written: some rows at a time, and nothing that the file says of its size is believed."""

import errno
from collections.abc import Collection, Iterator, Sequence
from typing import Any, BinaryIO

_ROWS, _MOST_BYTES = 1024, 2**26


def open_parquet(opened: BinaryIO, columns: Collection[str]) -> tuple[Sequence[str], Iterator[Any]]:
    """The names of a file's columns, and record batches of those among them that are named, in which texts are dictionaries.

    A value that recurs in a few bytes of the file is so kept once, for all rows. Raises ImportError without pyarrow, and its errors. The batches raise OSError where a
    thousand rows take more than 64 MiB, or a column is neither numbers nor text.
    """
    import pyarrow as pa
    from pyarrow import parquet

    schema = parquet.ParquetFile(opened).schema_arrow
    used = [name for name in schema.names if name in columns]
    texts = [
        name
        for name in used
        if pa.types.is_string(kind := schema.field(name).type) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind)
    ]
    source = parquet.ParquetFile(opened, read_dictionary=texts)

    def batches() -> Iterator[Any]:
        for name in used:
            if pa.types.is_nested(schema.field(name).type) or pa.types.is_binary(schema.field(name).type):
                raise OSError(errno.EINVAL, f"{name}: expected a column of numbers or text")
        for batch in source.iter_batches(_ROWS, columns=used):
            if batch.nbytes > _MOST_BYTES:
                raise OSError(errno.EFBIG, f"{_ROWS:,} rows of it take more than {_MOST_BYTES // 2**20} MiB")
            yield batch

    return schema.names, batches()
