"""Findings about models, their pools behind listeners, and decisions that strangers see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.settings.address import is_local
from fleet.settings.role_check import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet.settings.listeners import ListenerSettings
    from fleet.settings.model import Settings
    from fleet.settings.pools import PoolSettings


def model_findings(settings: Settings) -> tuple[Finding, ...]:
    """Return names that lead nowhere or to another pool, and decisions that strangers see."""
    texts = [text for i, pool in enumerate(settings.pools) for text in _aliases(f"pools[{i}]", pool)]
    pools = {pool.name: (i, pool) for i, pool in enumerate(settings.pools)}
    for i, listener in enumerate(settings.listeners):
        path = f"listeners[{i}]"
        texts += _doubles(listener, [pools[name] for name in listener.pools])
        texts += _nameless(path, listener, [pools[name][1] for name in listener.pools])
        if listener.show_decision and not is_local(listener.address):
            texts.append(
                f"{path}.show_decision: true at {listener.address!r}, so clients learn from the matched share"
                " which prompts others have sent; allowed: without the line, only loopback shows it"
            )
    return tuple(Finding(text, grave=False) for text in dict.fromkeys(texts))


def _models(pool: PoolSettings) -> set[str]:
    of_endpoints = (endpoint.models or () for endpoint in pool.endpoints)
    return {*pool.models, *(model for models in of_endpoints for model in models)}


def _aliases(path: str, pool: PoolSettings) -> Iterator[str]:
    models = _models(pool)
    for alias, model in pool.aliases.items():
        if alias in models:
            yield (
                f"{path}.aliases: {alias!r} is a model of the pool itself, so it is never replaced;"
                " allowed: an alias that is no model"
            )
        elif models and model not in models:
            yield (
                f"{path}.aliases: {alias!r} stands for {model!r}, which the pool does not name; allowed: one"
                f" of its models ({', '.join(sorted(models))}), or an adapter that its engines list"
            )


def _doubles(listener: ListenerSettings, pools: list[tuple[int, PoolSettings]]) -> Iterator[str]:
    """Yield names that an earlier pool has, and that therefore never lead to the later one."""
    first: dict[str, str] = {}
    for i, pool in pools:
        for field, names in (("models", _models(pool)), ("aliases", pool.aliases)):
            for name in sorted(names):
                if (other := first.setdefault(name, pool.name)) != pool.name:
                    yield (
                        f"pools[{i}].{field}: {name!r} is also in pool {other!r}, which gets its requests at"
                        f" listener {listener.name!r}; allowed: each name in one pool, or one pool for both"
                    )


def _nameless(path: str, listener: ListenerSettings, pools: list[PoolSettings]) -> Iterator[str]:
    refuses = listener.unknown_models == "refuse"
    for pool in pools if refuses else pools[1:]:
        if not _models(pool) and not pool.discovery:
            effect = (
                "a model that no engine lists gets 404"
                if refuses
                else "only what its engines list leads there"
            )
            names = f"{path}: pool {pool.name!r} names no models"
            yield f"{names}, so {effect}; allowed: its models in pools.models"
