"""Reads Parquet files that others may have written: neither what a page says of its size nor what a text becomes in all rows is believed."""

import errno
import io
from collections.abc import Collection, Iterator, Sequence
from typing import Any, BinaryIO

_MIB = 2**20
_ROWS, _MOST_BATCH_BYTES = 1024, 64 * _MIB
_MOST_PAGE_BYTES, _MOST_PAGES = 256 * _MIB, 100_000
_HEADER_BYTES, _DEEPEST, _MOST_VALUES = (4096, 65_536), 16, 1_000_000
_LARGEST_FOOTER_BYTES, _TAIL_BYTES = 4 * _MIB, 8


def open_parquet(opened: BinaryIO, columns: Collection[str]) -> tuple[Sequence[str], Iterator[Any]]:
    """The names of a file's columns, and record batches of those among them that are named, in which texts are dictionaries.

    A few bytes of a file may stand for the same text in every row; as a dictionary it is kept once. Raises ImportError without pyarrow, and its errors. The batches
    raise OSError where 1,024 rows take more than 64 MiB, pages of all columns together more than 256 MiB, its metadata have more than
    1,000,000 values, or a column is neither numbers nor text.
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
        _check_pages(opened, used)
        checked = dict[str, Any]()
        for batch in source.iter_batches(_ROWS, columns=used):
            if batch.nbytes > _MOST_BATCH_BYTES:
                raise OSError(errno.EFBIG, f"{_ROWS:,} rows of it take more than {_MOST_BATCH_BYTES // _MIB} MiB")
            _check_texts(batch, checked)
            yield batch

    return schema.names, batches()


def _check_texts(batch: Any, checked: dict[str, Any]) -> None:
    """Raises pyarrow's errors for texts that are none, OSError for rows that name none of them, which pyarrow looks up unchecked.

    `checked` are the dictionaries of earlier batches, by column.
    """
    import pyarrow as pa
    from pyarrow import compute

    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if not pa.types.is_dictionary(column.type):
            continue
        texts, before = column.dictionary, checked.get(name)
        if before is None or [part and part.address for part in texts.buffers()] != [part and part.address for part in before.buffers()]:
            texts.validate(full=True)
            checked[name] = texts
        ends = compute.min_max(column.indices).as_py()
        if ends["max"] is not None and not 0 <= ends["min"] <= ends["max"] < len(texts):
            raise OSError(errno.EINVAL, f"{name}: a row has a text that the file lacks")


def _check_pages(opened: BinaryIO, used: Collection[str]) -> None:
    """Raises OSError if the pages of these columns are too large by what their headers say, or too many.

    pyarrow reserves what a page's header says, and reads a page of each column at a time. What it tells of a damaged file's columns may end the process (its
    exceptions in C++ are not all caught), so the end of the file is read here, too: Parquet's FileMetaData, fields by their numbers.
    """
    reader, largest, pages = _CompactReader(), dict[bytes, int](), 0
    names = {name.encode() for name in used}
    for group in _list(_footer(opened, reader), 4):
        for chunk in _list(group, 1):
            column = _struct(chunk, 3)
            path = b".".join(part for part in _list(column, 3) if isinstance(part, bytes))
            if path not in names:
                continue
            at, dictionary_at = _number(column, 9), _number(column, 11, otherwise=0)
            at = dictionary_at if 0 < dictionary_at < at else at
            end = at + _number(column, 7)
            while at < end:
                length, header = _page_header(opened, at, reader)
                largest[path] = max(_number(header, 2), largest.get(path, 0))
                pages += 1
                if sum(largest.values()) > _MOST_PAGE_BYTES or pages > _MOST_PAGES:
                    raise OSError(errno.EFBIG, f"its pages are larger than {_MOST_PAGE_BYTES // _MIB} MiB, or more than {_MOST_PAGES:,}")
                at += length + _number(header, 3)


def _footer(opened: BinaryIO, reader: "_CompactReader") -> dict[int, Any]:
    """The file's metadata; raises OSError for what is none."""
    end = opened.seek(0, io.SEEK_END)
    opened.seek(max(end - _TAIL_BYTES, 0))
    tail = opened.read(_TAIL_BYTES)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != b"PAR1" or not 0 < length <= min(_LARGEST_FOOTER_BYTES, end - _TAIL_BYTES):
        raise OSError(errno.EINVAL, f"its end is none of a Parquet file, or larger than {_LARGEST_FOOTER_BYTES // _MIB} MiB")
    opened.seek(end - _TAIL_BYTES - length)
    try:
        return reader.read(opened.read(length))
    except (IndexError, ValueError):
        raise OSError(errno.EINVAL, "its end cannot be read") from None


def _page_header(opened: BinaryIO, at: int, reader: "_CompactReader") -> tuple[int, dict[int, Any]]:
    """The length of the page header at an offset, and its fields; raises OSError for what is none."""
    for size in _HEADER_BYTES:
        opened.seek(at)
        try:
            fields = reader.read(opened.read(size))
        except (IndexError, ValueError):
            continue
        return reader.at, fields
    raise OSError(errno.EINVAL, f"there is no page at byte {at:,}, where the end of the file says that there is one")


def _struct(fields: object, number: int) -> dict[int, Any]:
    found = fields.get(number) if isinstance(fields, dict) else None
    return found if isinstance(found, dict) else {}


def _list(fields: object, number: int) -> list[Any]:
    found = fields.get(number) if isinstance(fields, dict) else None
    return found if isinstance(found, list) else []


def _number(fields: dict[int, Any], number: int, otherwise: int = -1) -> int:
    """A number that is not negative; raises OSError if there is none, or another value."""
    found = fields.get(number, otherwise)
    if not isinstance(found, int) or not 0 <= found < 2**63:
        raise OSError(errno.EINVAL, "one of its columns or pages has no size or no place")
    return found


class _CompactReader:
    """Reads structs in Thrift's compact protocol, as Parquet's metadata are: fields by number, texts as bytes.

    Source: the Apache Thrift project's thrift-compact-protocol.md. Raises IndexError where the data end, ValueError for what is no struct, and OSError when all that
    it read has too many values: the same bytes may be named, and so read, many times.
    """

    def __init__(self) -> None:
        self.data, self.at, self._left = b"", 0, _MOST_VALUES

    def read(self, data: bytes) -> dict[int, Any]:
        self.data, self.at = data, 0
        return self._struct()

    def _struct(self, depth: int = 0) -> dict[int, Any]:
        fields, number = dict[int, Any](), 0
        while kind := self._byte():
            number = number + (kind >> 4) if kind >> 4 else self._signed()
            fields[number] = self._value(kind & 15, depth, is_field=True)
        return fields

    def _value(self, kind: int, depth: int, is_field: bool = False) -> Any:
        if not self._left:
            raise OSError(errno.EFBIG, f"its end and the headers of its pages have more than {_MOST_VALUES:,} values")
        self._left -= 1
        if depth > _DEEPEST:
            raise ValueError("nested too deep")
        match kind:
            case 1 | 2 if is_field:  # true and false are the kind itself
                return kind == 1
            case 1 | 2 | 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._signed()
            case 7:
                return self._bytes(8)
            case 8:
                return self._bytes(self._varint())
            case 9 | 10:
                head = self._byte()
                count = self._varint() if head >> 4 == 15 else head >> 4
                return [self._value(head & 15, depth + 1) for _ in range(count)]
            case 12:
                return self._struct(depth + 1)
        raise ValueError(f"unknown kind {kind}")

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _bytes(self, count: int) -> bytes:
        self.at += count
        if self.at > len(self.data):
            raise IndexError
        return self.data[self.at - count : self.at]

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
