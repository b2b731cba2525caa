"""Framing: records of a trace stand behind their length, a little-endian base-128 number (protobuf's varint)."""

from collections.abc import Iterator

from archplace.workloads.traces._source import BLOCK_BYTES, Source

MAX_RECORD_BYTES = 16 << 20
"""A node has names, parents and operands, not data: thousands of bytes, a few millions at the most. The limit holds
down what a damaged length can make of memory."""

_LENGTH_BITS = 32


def read_records(source: Source) -> Iterator[tuple[int, bytes]]:
    """Return the records one by one, each with the offset of its length.

    Raises :class:`ConfigError` for a length that is cut off, has more than 32 bits, is over the limit, or is more than
    the file still has, and for an empty record after the first: other readers take it for the end.
    """
    block, position, base = b"", 0, source.offset
    while True:
        start, length, shift = position, 0, 0
        while True:
            if position == len(block):
                rest = block[start:]
                base += start
                position, start = len(rest), 0
                block = rest + source.read(BLOCK_BYTES)
                if position == len(block):
                    if rest:
                        raise source.error("the file ends inside a record's length: it was cut off", base)
                    return
            byte = block[position]
            position += 1
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift >= _LENGTH_BITS + 3:
                raise source.error("a record's length has more than 32 bits: this is no Chakra trace", base + start)
        if not 0 < length <= MAX_RECORD_BYTES:
            _refuse_length(source, length, base + start)
        end = position + length
        if end > len(block):
            base, block = base + start, block[start:]
            position, end, start = position - start, end - start, 0
            block = _filled(source, block, end, base, length)
        yield base + start, block[position:end]
        position = end


def _filled(source: Source, block: bytes, end: int, base: int, length: int) -> bytes:
    parts, have = [block], len(block)
    while have < end:
        part = source.read(max(BLOCK_BYTES, end - have))
        if not part:
            raise source.error(
                f"a record of {length:,} bytes begins here, and the file ends after {have:,} of these "
                f"{end:,} bytes: it was cut off, or is no Chakra trace",
                base,
            )
        parts.append(part)
        have += len(part)
    return b"".join(parts)


def _refuse_length(source: Source, length: int, offset: int) -> None:
    if length > MAX_RECORD_BYTES:
        raise source.error(
            f"a record of {length:,} bytes; at most {MAX_RECORD_BYTES:,} are read: the file is damaged, or is no "
            "Chakra trace",
            offset,
        )
    if offset:
        raise source.error("an empty record: other readers take it for the end of the trace", offset)


def frame(record: bytes) -> bytes:
    """Return a record behind its length."""
    length, prefix = len(record), bytearray()
    while length > 0x7F:
        prefix.append(length & 0x7F | 0x80)
        length >>= 7
    prefix.append(length)
    return bytes(prefix) + record
