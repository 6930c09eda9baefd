"""Reads Parquet files that others may have written: neither what a page says of its size nor what a text becomes in all rows is believed."""

import errno
from collections.abc import Collection, Iterator, Sequence
from typing import Any, BinaryIO

_MIB = 2**20
_ROWS, _MOST_BATCH_BYTES = 1024, 64 * _MIB
_MOST_PAGE_BYTES, _MOST_PAGES = 256 * _MIB, 100_000
_HEADER_BYTES, _DEEPEST = (4096, _MIB), 8


def open_parquet(opened: BinaryIO, columns: Collection[str]) -> tuple[Sequence[str], Iterator[Any]]:
    """The names of a file's columns, and record batches of those among them that are named, in which texts are dictionaries.

    A few bytes of a file may stand for the same text in every row; as a dictionary it is kept once. Raises ImportError without pyarrow, and its errors. The batches
    raise OSError where 1,024 rows take more than 64 MiB, pages of all columns together more than 256 MiB, or a column is neither numbers nor text.
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
            kind = schema.field(name).type
            if not (name in texts or pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)):
                raise OSError(errno.EINVAL, f"{name}: expected a column of numbers or text")
        _check_pages(opened, source.metadata, used)
        for batch in source.iter_batches(_ROWS, columns=used):
            if batch.nbytes > _MOST_BATCH_BYTES:
                raise OSError(errno.EFBIG, f"{_ROWS:,} rows of it take more than {_MOST_BATCH_BYTES // _MIB} MiB")
            yield batch

    return schema.names, batches()


def _check_pages(opened: BinaryIO, metadata: Any, used: Collection[str]) -> None:
    """Raises OSError if the pages of these columns are too large by what their headers say, or too many.

    pyarrow reserves what a page's header says, and reads a page of each column at a time.
    """
    largest, pages = dict[str, int](), 0
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(number)
            if chunk.path_in_schema not in used:
                continue
            at = chunk.data_page_offset
            if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < at:
                at = chunk.dictionary_page_offset
            end = at + chunk.total_compressed_size
            while at < end:
                length, header = _page_header(opened, at)
                size_bytes, compressed_bytes = (header.get(field, 0) for field in (2, 3))
                largest[chunk.path_in_schema] = max(size_bytes, largest.get(chunk.path_in_schema, 0))
                pages += 1
                if not (isinstance(size_bytes, int) and isinstance(compressed_bytes, int) and min(size_bytes, compressed_bytes) >= 0):
                    raise OSError(errno.EINVAL, f"the page at byte {at:,} has no size")
                if sum(largest.values()) > _MOST_PAGE_BYTES or pages > _MOST_PAGES:
                    raise OSError(errno.EFBIG, f"its pages are larger than {_MOST_PAGE_BYTES // _MIB} MiB, or more than {_MOST_PAGES:,}")
                at += length + compressed_bytes


def _page_header(opened: BinaryIO, at: int) -> tuple[int, dict[int, Any]]:
    """The length of the page header at an offset, and its fields; raises OSError for what is none."""
    for size in _HEADER_BYTES:
        opened.seek(at)
        reader = _CompactReader(opened.read(size))
        try:
            fields = reader.struct()
        except (IndexError, ValueError):
            continue
        return reader.at, fields
    raise OSError(errno.EINVAL, f"there is no page at byte {at:,}, where the end of the file says that there is one")


class _CompactReader:
    """Reads a struct in Thrift's compact protocol, as Parquet's headers are: fields by number, without the contents of texts.

    Source: the Apache Thrift project's thrift-compact-protocol.md. Raises IndexError where the data end, ValueError for what is no struct.
    """

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        if depth > _DEEPEST:
            raise ValueError("nested too deep")
        fields, number = dict[int, Any](), 0
        while kind := self._byte():
            number = number + (kind >> 4) if kind >> 4 else self._signed()
            fields[number] = self._value(kind & 15, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        match kind:
            case 1 | 2:  # true and false are the kind itself
                return kind == 1
            case 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._signed()
            case 7:
                return self._skip(8)
            case 8:
                return self._skip(self._varint())
            case 9 | 10:
                head = self._byte()
                count = self._varint() if head >> 4 == 15 else head >> 4
                return [self._byte() if head & 15 in (1, 2) else self._value(head & 15, depth + 1) for _ in range(count)]
            case 12:
                return self.struct(depth + 1)
        raise ValueError(f"unknown kind {kind}")

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _skip(self, count: int) -> None:
        self.at += count
        if self.at > len(self.data):
            raise IndexError

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 128:
            value |= (byte & 127) << shift
            if (shift := shift + 7) > 63:
                raise ValueError("a number of more than 64 bits")
        return value | byte << shift

    def _signed(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)
