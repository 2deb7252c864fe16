"""Says in words why an endpoint has its weight, or why a request went where it went.

The documents are those of `/api/v1/decisions`. A few fields make the sentences; all others follow by their
names, so that nothing that a newer server tells is lost. Null is told as unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cli.view.model import number, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_INDENT: Final = "  "
_DEEPEST: Final = 6
_MOST_PICKS: Final = 5
_MOST_CHANGES: Final = 5
_UNITS: Final = (
    ("_seconds_ago", "s ago"), ("_tokens_per_second", "tokens/s"), ("_per_second", "/s"), ("_seconds", "s"),
    ("_bytes", "bytes"), ("_celsius", "°C"), ("_tokens", "tokens"),
)  # fmt: skip
_SHARES: Final = ("_ratio", "_share")
_TOLD_OF_PICK: Final = frozenset(
    ("at", "request", "pool", "reason", "endpoint", "fallbacks", "matched_share",
     "expected_seconds", "considered")
)  # fmt: skip
_TOLD_OF_WEIGHT: Final = frozenset(
    ("address", "endpoint", "pool", "weight", "share", "reason", "signals", "load")
)
_TOLD_OF_CHANGE: Final = _TOLD_OF_WEIGHT | {"at", "before"}
_NOTHING_IF_NULL: Final = frozenset({"override", "overridden_until"})


def explained(document: Any) -> list[str]:
    """Return lines; none when the document says nothing about what was asked."""
    if not isinstance(document, dict):
        return []
    lines: list[str] = []
    rest = dict(document)
    for entry in _objects(rest.pop("verdict", None)):
        lines += [*_weight(entry), ""]
    for at, entry in enumerate(_objects(rest.pop("weights", None))[:_MOST_CHANGES]):
        lines += [*_change(entry, newest=at == 0), ""]
    for entry in _objects(rest.pop("picks", None))[:_MOST_PICKS]:
        lines += [*_pick(entry), ""]
    for name, value in rest.items():
        if isinstance(value, dict | list) and value:
            lines += [*_tree(name, value, 0), ""]
    return [printable(line) for line in lines[:-1]]


def _objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list, of a mapping by address, or the one object itself."""
    if isinstance(value, dict):
        by_address = {key: held for key, held in value.items() if ":" in key and isinstance(held, dict)}
        if by_address and len(by_address) == len(value):
            return [{"address": key, **held} for key, held in by_address.items()]
        return [value] if value else []
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _weight(entry: Mapping[str, Any]) -> Iterator[str]:
    address, pool = entry.get("address") or entry.get("endpoint"), entry.get("pool")
    weight, share = number(entry.get("weight")), number(entry.get("share"))
    sentence = f"{address}{f' (pool {pool})' if pool else ''} "
    sentence += "gets no new requests" if weight is None else f"has weight {weight:,.0f}"
    if share is not None:
        sentence += f", {share:.1%} of its pool"
    yield f"{sentence}: {entry['reason']}" if entry.get("reason") else sentence
    yield from _signals(entry.get("signals") or entry.get("load"))
    for name, value in entry.items():
        if name not in _TOLD_OF_WEIGHT and value != {} and not (value is None and name in _NOTHING_IF_NULL):
            yield from _tree(name, value, 1)


def _change(entry: Mapping[str, Any], *, newest: bool) -> Iterator[str]:
    """One change of a weight; with all that it came from only for the newest."""
    before, weight = number(entry.get("before")), number(entry.get("weight"))
    moved = " -> ".join("none" if value is None else f"{value:,.0f}" for value in (before, weight))
    at = f"{entry['at']}  " if entry.get("at") else ""
    yield f"{at}weight of {entry.get('address')} {moved}: {entry.get('reason') or 'no reason told'}"
    if not newest:
        return
    yield from _signals(entry.get("signals") or entry.get("load"))
    for name, value in entry.items():
        if name not in _TOLD_OF_CHANGE and value is not None and value != {}:
            yield from _tree(name, value, 1)


def _signals(told: Any) -> Iterator[str]:
    """One line a signal: value, age, source; those that are unknown in one line at the end."""
    if isinstance(told, list):
        told = {str(entry.get("name")): entry for entry in told if isinstance(entry, dict)}
    if not isinstance(told, dict) or not told:
        return
    known = {name: value for name, value in told.items() if number(value) is not None}
    yield f"{_INDENT}signals"
    width = max((len(_plain(name)) for name in known), default=0)
    for name, value in known.items():
        line = f"{_INDENT * 2}{_plain(name):<{width}}  {_quantity(name, number(value))}"
        if isinstance(value, dict):
            age, source = number(value.get("age_seconds")), value.get("source")
            line += f", {age:.1f} s old" if age is not None else ""
            line += f", from {source}" if source else ""
        yield line
    if unknown := [_plain(name) for name in told if name not in known]:
        yield f"{_INDENT * 2}unknown: {', '.join(unknown)}"


def _pick(entry: Mapping[str, Any]) -> Iterator[str]:
    who = f"request {entry['request']}" if entry.get("request") else "a request"
    pool, reason, chosen = entry.get("pool"), entry.get("reason"), entry.get("endpoint")
    at = f"{entry['at']}  " if entry.get("at") else ""
    if chosen:
        yield f"{at}{who}{f' to pool {pool}' if pool else ''} was sent to {chosen}: {reason}"
    else:
        yield f"{at}{who}{f' to pool {pool}' if pool else ''} went by weights, without a pick: {reason}"
    if chosen and (matched := number(entry.get("matched_share"))) is not None:
        yield f"{_INDENT}{matched:.0%} of its prompt was warm there"
    if (expected := number(entry.get("expected_seconds"))) is not None:
        yield f"{_INDENT}expected time to the first token: {_quantity('_seconds', expected)}"
    if isinstance(fallbacks := entry.get("fallbacks"), list) and fallbacks:
        yield f"{_INDENT}for retries: {', '.join(map(str, fallbacks))}"
    yield from _considered(_objects(entry.get("considered")), chosen)
    for name, value in entry.items():
        if name not in _TOLD_OF_PICK and value is not None:
            yield from _tree(name, value, 1)


def _considered(entries: Sequence[Mapping[str, Any]], chosen: Any) -> Iterator[str]:
    """The endpoints that were compared, as a small table: the lowest cost wins."""
    if not entries:
        return
    names = [name for name in dict.fromkeys(key for entry in entries for key in entry) if name != "address"]
    rows = [["compared", *(_plain(name) for name in names)]]
    rows += [
        [
            f"{entry.get('address')}{' *' if entry.get('address') == chosen else ''}",
            *(_quantity(name, entry.get(name)) for name in names),
        ]
        for entry in entries
    ]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        yield _INDENT + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _tree(name: str, value: Any, depth: int) -> Iterator[str]:
    """Any value below its name."""
    indent = _INDENT * depth
    if depth >= _DEEPEST:
        yield f"{indent}{_plain(name)}: ..."
    elif isinstance(value, dict):
        yield f"{indent}{_plain(name)}"
        for key, held in value.items():
            yield from _tree(str(key), held, depth + 1)
    elif isinstance(value, list) and any(isinstance(held, dict | list) for held in value):
        yield f"{indent}{_plain(name)}"
        for at, held in enumerate(value):
            yield from _tree(str(at + 1), held, depth + 1)
    elif isinstance(value, list):
        yield f"{indent}{_plain(name)}: {', '.join(map(str, value)) or 'none'}"
    else:
        yield f"{indent}{_plain(name)}: {_quantity(name, value)}"


def _plain(name: str) -> str:
    """A field's name as words, without the unit that stands behind the value."""
    for suffix, _ in _UNITS:
        name = name.removesuffix(suffix)
    return name.strip("_").replace("_", " ")


def _quantity(name: str, value: Any) -> str:
    """A value with the unit that its name tells."""
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    figure = number(value)
    if figure is None or isinstance(value, dict):
        return str(value)
    if name.endswith(_SHARES):
        return f"{figure:.1%}"
    text = f"{figure:,.0f}" if figure == int(figure) and abs(figure) < 1e15 else f"{figure:.4g}"
    unit = next((unit for suffix, unit in _UNITS if name.endswith(suffix)), "")
    return f"{text} {unit}".rstrip()
