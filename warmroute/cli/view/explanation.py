"""Says in words why an endpoint has its weight, or why a request went where it went.

The documents are those of `/api/v1/decisions`. A few fields make the sentences; all others follow by their
names, so that no field of a newer server is lost. Null is shown as unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fleet.ranks import address_of_rank
from warmroute.cli.view.model import ENDPOINTS, WEIGHTS, brief, drained_until, kept_out, number, printable
from warmroute.cli.view.wrapping import wrapped

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
_PICK_FIELDS: Final = frozenset(
    ("at", "request", "pool", "reason", "endpoint", "refused_with", "fallbacks", "matched_share",
     "expected_seconds", "considered")
)  # fmt: skip
_WEIGHT_FIELDS: Final = frozenset(
    ("address", "endpoint", "pool", "weight", "share", "reason", "signals", "load",
     "by_place", "weight_by_place", "overridden_until")
)  # fmt: skip
_CHANGE_FIELDS: Final = _WEIGHT_FIELDS | {"at", "before"}
_MOST_PEERS: Final = 8
_INPUTS: Final = ("memory_used_ratio", "queue_depth", "latency_p99_seconds")
"""Inputs of the weight strategies."""
_TERMS: Final = ("wait_seconds", "cold_seconds", "price_seconds", "penalty_seconds")
_LEGENDS: Final = {
    "price_seconds": "price: what the price of cold work adds, for the later requests that the work delays",
    "penalty_seconds": "penalty: the part of the cost that is the same for every prompt",
}
_MATTERS: Final = 0.1
"""Of the difference between the costs: what a cost term must make up to be named."""
_HIDDEN: Final = frozenset(("price_seconds", "penalty_seconds", "terms"))
"""Of an endpoint whose cost terms are shown: their parts are among them."""
_REST: Final = "+ other terms_seconds"
_CALLED: Final = {"pick_seconds": "decided in"}


def explained(document: Any, columns: int | None = None) -> list[str]:
    """Return lines; none when the document does not cover the endpoint or request.

    Tables wider than `columns` stand below each other in parts, and long lines are broken; None: as wide as
    they are.
    """
    if not isinstance(document, dict):
        return []
    lines: list[str] = []
    rest = dict(document)
    peers = _objects(rest.pop("peers", None))
    verdicts = _objects(rest.pop("verdict", None))
    if isinstance(out := rest.pop("kept_out", None), dict):
        peer_table = [] if verdicts else _table("of its pool", peers, out.get("address"), columns)
        lines += [f"{out.get('address')} (pool {out.get('pool')}) is {out.get('why')}", *peer_table, ""]
    for entry in verdicts:
        table = _table("of its pool", peers, entry.get("address"), columns)
        lines += [*_weight(entry), *table, *_words([entry, *peers]), ""]
    for at, entry in enumerate(_objects(rest.pop("weights", None))[:_MOST_CHANGES]):
        lines += [*_change(entry, newest=at == 0), ""]
    for entry in _objects(rest.pop("picks", None))[:_MOST_PICKS]:
        lines += [*_pick(entry, columns), ""]
    for name, value in rest.items():
        if isinstance(value, dict | list) and value:
            lines += [*_tree(name, value, 0), ""]
    return [part for line in lines[:-1] for part in wrapped(printable(line), columns)]


def _words(entries: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Explain the words of weights, as far as they occur."""
    if any(entry.get("score") is not None for entry in entries):
        yield f"{_INDENT}score: the strategy's number (weights.strategy); the higher, the more requests"
    if any(str(entry.get("reason")).startswith("neutral") for entry in entries):
        yield (
            f"{_INDENT}neutral: a new endpoint, which counts at best as the mean of the others"
            " (weights.stabiliser.neutral_seconds)"
        )


def _objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list, of a mapping by address, or the one object itself."""
    if isinstance(value, dict):
        by_address = {key: fields for key, fields in value.items() if ":" in key and isinstance(fields, dict)}
        if by_address and len(by_address) == len(value):
            return [{"address": key, **fields} for key, fields in by_address.items()]
        return [value] if value else []
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def endpoint_details(address: str, documents: Mapping[str, Any]) -> dict[str, Any]:
    """Return an endpoint's details from the endpoints' and weights' documents, by path.

    The inputs of the formulas for its pool's endpoints, itself first and then the heaviest; the reason for no
    new requests.
    """
    entries = _objects(documents.get(ENDPOINTS, {}).get("endpoints"))
    own = next((entry for entry in entries if entry.get("address") == address), None)
    if own is None:
        return {}
    weights = documents.get(WEIGHTS, {}).get("weights", {})
    pool = [entry for entry in entries if entry.get("pool") == own.get("pool")]
    pool.sort(key=lambda entry: (entry is not own, -(number(entry.get("weight")) or 0.0)))
    details: dict[str, Any] = {}
    ends = drained_until(documents.get(WEIGHTS))
    if (out := kept_out(own, ends)) is not None:
        details["kept_out"] = {"address": address, "pool": own.get("pool"), "why": _in_words(*out)}
    if len(pool) > 1:
        details["peers"] = [
            _peer(entry, weights.get(entry.get("address"), {}), kept_out(entry, ends))
            for entry in pool[:_MOST_PEERS]
        ]
    return details


def _peer(
    entry: Mapping[str, Any], verdict: Mapping[str, Any], out: tuple[str, str] | None
) -> dict[str, Any]:
    """Return its row; a kept-out endpoint has the weight "none", which is not unknown."""
    load = entry.get("load") or {}
    none = None if out is None or verdict else "none"
    return {
        "address": entry.get("address"),
        "weight": none or entry.get("weight"),
        "share": none or verdict.get("share"),
        "score": none or verdict.get("score"),
        **{name: load.get(name) for name in _INPUTS},
        "reason": verdict.get("reason") or (out and brief(_in_words(*out))),
    }


def _in_words(cause: str, why: str) -> str:
    return f"{cause} {why}" if cause == "drained" else f"{cause.replace('_', ' ')}: {why}"


def _weight(entry: Mapping[str, Any]) -> Iterator[str]:
    address, pool = entry.get("address") or entry.get("endpoint"), entry.get("pool")
    weight, share = number(entry.get("weight")), number(entry.get("share"))
    sentence = f"{address}{f' (pool {pool})' if pool else ''} "
    sentence += "gets no new requests" if weight is None else f"has weight {weight:,.0f}"
    if share is not None:
        sentence += f", {share:.1%} of its pool"
    sentence += f": {entry['reason']}" if entry.get("reason") else ""
    yield f"{sentence}, until {until}" if (until := entry.get("overridden_until")) else sentence
    yield from _places(entry)
    yield from _signals(entry.get("signals") or entry.get("load"))
    for name, value in entry.items():
        if name not in _WEIGHT_FIELDS and value != {}:
            yield from _tree(name, value, 1)


def _places(entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield one line per place whose Envoys have another weight, because nearness multiplies it."""
    weights, factors = entry.get("weight_by_place"), entry.get("by_place")
    for place, value in weights.items() if isinstance(weights, dict) else ():
        weight = number(value)
        if weight is not None and weight != number(entry.get("weight")):
            factor = number(factors.get(place)) if isinstance(factors, dict) else None
            nearness = "" if factor is None else f" (nearness {factor:.3g})"
            yield f"{_INDENT}weight for Envoys in {place}: {weight:,.0f}{nearness}"


def _change(entry: Mapping[str, Any], *, newest: bool) -> Iterator[str]:
    """One change of a weight; only the newest shows all its inputs."""
    before, weight = number(entry.get("before")), number(entry.get("weight"))
    moved = " -> ".join("none" if value is None else f"{value:,.0f}" for value in (before, weight))
    at = f"{entry['at']}  " if entry.get("at") else ""
    yield f"{at}weight of {entry.get('address')} {moved}: {entry.get('reason') or 'without a reason'}"
    if not newest:
        return
    yield from _signals(entry.get("signals") or entry.get("load"))
    for name, value in entry.items():
        if name not in _CHANGE_FIELDS and value is not None and value != {}:
            yield from _tree(name, value, 1)


def _signals(signals: Any) -> Iterator[str]:
    """One line a signal: value, age, source; those that are unknown in one line at the end."""
    if isinstance(signals, list):
        signals = {str(entry.get("name")): entry for entry in signals if isinstance(entry, dict)}
    if not isinstance(signals, dict) or not signals:
        return
    with_value = {name: value for name, value in signals.items() if number(value) is not None}
    yield f"{_INDENT}signals"
    width = max((len(_plain(name)) for name in with_value), default=0)
    for name, value in with_value.items():
        line = f"{_INDENT * 2}{_plain(name):<{width}}  {_quantity(name, number(value))}"
        if isinstance(value, dict):
            age, source = number(value.get("age_seconds")), value.get("source")
            line += f", {age:.1f} s old" if age is not None else ""
            line += f", from {_plain(str(source))}" if source else ""
        yield line
    if unknown := [_unknown(name, value) for name, value in signals.items() if name not in with_value]:
        yield f"{_INDENT * 2}unknown: {', '.join(unknown)}"


def _unknown(name: str, value: Any) -> str:
    """Name an unknown signal, with the age of one that is too old to count."""
    age = number(value.get("age_seconds")) if isinstance(value, dict) else None
    return _plain(name) if age is None else f"{_plain(name)} ({age:.1f} s old)"


def _pick(entry: Mapping[str, Any], columns: int | None) -> Iterator[str]:
    request = f"request {entry['request']}" if entry.get("request") else "a request"
    pool, reason, chosen = entry.get("pool"), entry.get("reason"), entry.get("endpoint")
    at = f"{entry['at']}  " if entry.get("at") else ""
    what = "went by weights, without a pick"
    if chosen:
        what = f"was sent to {chosen}"
    elif (status := entry.get("refused_with")) is not None:
        what = f"was refused with {status}"
    yield f"{at}{request}{f' to pool {pool}' if pool else ''} {what}: {reason}"
    if chosen and (matched := number(entry.get("matched_share"))) is not None:
        yield f"{_INDENT}{matched:.0%} of its prompt was warm there"
    if (expected := number(entry.get("expected_seconds"))) is not None:
        yield f"{_INDENT}expected time to the first token: {_quantity('_seconds', expected)}"
    if isinstance(fallbacks := entry.get("fallbacks"), list) and fallbacks:
        yield f"{_INDENT}for retries: {', '.join(map(str, fallbacks))}"
    compared = _objects(entry.get("considered"))
    considered = _by_term(compared) or [_in_parts(parts) for parts in compared]
    yield from _table("compared", considered, chosen, columns)
    names = {name.lstrip("=+ ") for parts in considered for name in parts}
    yield from (f"{_INDENT}{legend}" for name, legend in _LEGENDS.items() if name in names)
    if any(_REST in parts for parts in considered):
        yield f"{_INDENT}the lowest cost wins; other terms: weights, and what else depends on the prompt"
        yield f"{_INDENT}(each cost term is shown by its name for a traced request)"
    for name, value in entry.items():
        if name not in _PICK_FIELDS and value is not None:
            yield from _tree(name, value, 1)


def _by_term(compared: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Endpoints with their cost by cost term, in seconds; empty when a server sent no terms.

    Terms that make no difference to speak of are summed up as others; those that are 0 are left out.
    """
    terms = [entry["terms"] for entry in compared if isinstance(entry.get("terms"), dict)]
    if not terms or len(terms) < len(compared):
        return []
    names = list(dict.fromkeys(key for part in terms for key in part))
    costs = [number(entry.get("cost")) or 0.0 for entry in compared]
    least = _MATTERS * (max(costs) - min(costs))
    columns: dict[str, list[float]] = {}
    others = [0.0] * len(terms)
    for name in names:
        column = [number(part.get(name)) or 0.0 for part in terms]
        if any(column) and max(column) - min(column) >= least:
            columns[name] = column
        else:
            others = [sum(pair) for pair in zip(others, column, strict=True)]
    if any(others):
        columns["others"] = others
    return [
        {"address": entry.get("address"), "cost_seconds": entry.get("cost")}
        | {f"{'+' if at else '='} {name}_seconds": columns[name][row] for at, name in enumerate(columns)}
        | {key: value for key, value in entry.items() if key not in {"cost", *_HIDDEN}}
        for row, entry in enumerate(compared)
    ]


def _in_parts(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A compared endpoint with the parts of its cost, which add up, in seconds."""
    entry = {name: value for name, value in entry.items() if name != "terms"}
    cost = number(entry.get("cost"))
    names = [name for name in _TERMS if name in entry]
    terms = [number(entry[name]) for name in names]
    known_terms = [term for term in terms if term is not None]
    if cost is None or len(known_terms) < len(terms) or "penalty_seconds" not in names:
        return dict(entry)
    terms_by_name = {"address": entry.get("address"), "cost_seconds": cost}
    terms_by_name |= {f"{'+' if at else '='} {name}": entry[name] for at, name in enumerate(names)}
    terms_by_name[_REST] = cost - sum(known_terms)
    return terms_by_name | {name: value for name, value in entry.items() if name not in {*_TERMS, "cost"}}


def _table(
    title: str, entries: Sequence[Mapping[str, Any]], chosen: Any, columns: int | None
) -> Iterator[str]:
    """Endpoints below each other, the one in question with a star, in parts that have room."""
    if not entries:
        return
    # The best one stands first, and of a data-parallel engine its ranks were compared.
    starred = next((entry for entry in entries if address_of_rank(str(entry.get("address"))) == chosen), None)
    names = [name for name in dict.fromkeys(key for entry in entries for key in entry) if name != "address"]
    rows = [[title, *(_plain(name) for name in names)]]
    rows += [
        [
            f"{entry.get('address')}{' *' if entry is starred else ''}",
            *(_quantity(name, entry.get(name)) for name in names),
        ]
        for entry in entries
    ]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for part in _parts(widths, columns):
        for row in rows:
            yield _INDENT + "  ".join(row[at].ljust(widths[at]) for at in part).rstrip()


def _parts(widths: Sequence[int], columns: int | None) -> Iterator[list[int]]:
    """Which columns stand side by side: in each part the first one, and as many others as have room."""
    part = [0]
    for at in range(1, len(widths)):
        width = len(_INDENT) + sum(widths[other] + 2 for other in part) + widths[at]
        if columns is not None and width > columns and len(part) > 1:
            yield part
            part = [0]
        part.append(at)
    yield part


def _tree(name: str, value: Any, depth: int) -> Iterator[str]:
    """Any value below its name."""
    indent = _INDENT * depth
    if depth >= _DEEPEST:
        yield f"{indent}{_plain(name)}: ..."
    elif isinstance(value, dict):
        yield f"{indent}{_plain(name)}"
        for key, item in value.items():
            yield from _tree(str(key), item, depth + 1)
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        yield f"{indent}{_plain(name)}"
        for at, item in enumerate(value):
            yield from _tree(str(at + 1), item, depth + 1)
    elif isinstance(value, list):
        yield f"{indent}{_plain(name)}: {', '.join(map(str, value)) or 'none'}"
    else:
        yield f"{indent}{_plain(name)}: {_quantity(name, value)}"


def _plain(name: str) -> str:
    """A field's name as words, without the unit that stands behind the value."""
    if name in _CALLED:
        return _CALLED[name]
    for suffix, _ in _UNITS:
        name = name.removesuffix(suffix)
    return name.strip("_").replace("_", " ")


def _quantity(name: str, value: Any) -> str:
    """A value with the unit of its name's suffix."""
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    figure = number(value)
    if figure is None or isinstance(value, dict):
        return str(value)
    if name.endswith(_SHARES) or name == "share":
        return f"{figure:.1%}"
    text = f"{figure:,.0f}" if figure == int(figure) and abs(figure) < 1e15 else f"{figure:.4g}"
    unit = next((unit for suffix, unit in _UNITS if name.endswith(suffix)), "")
    return f"{text} {unit}".rstrip()
