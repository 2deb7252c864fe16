"""Envoy listeners in front of the pools."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from fleet.engine_paths import ALL_ADMIN_PATHS, EVERY_PATH
from fleet.settings.address import IpAddress, is_local
from fleet.settings.headers import HeaderName, OptionalHeaderName
from fleet.settings.strict import Name, Seconds, Strict, Unique
from fleet.settings.tls import ListenerTlsSettings


def _admin_path(path: str) -> str:
    if path != EVERY_PATH and path not in ALL_ADMIN_PATHS:
        near = get_close_matches(path, ALL_ADMIN_PATHS, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ValueError(
            f"{hint}allowed: {EVERY_PATH}, or a path that is closed by default: see docs/settings.md"
        )
    return path


AdminPath = Annotated[str, AfterValidator(_admin_path)]


class ListenerSettings(Strict):
    """One Envoy listener in front of one pool, or of several that the requests' models choose between."""

    name: Name
    address: IpAddress
    pool: Name = ""
    """Of several pools the default."""
    pools: Annotated[tuple[Name, ...], Unique, Field(max_length=64)] = ()
    """All of them, the default first."""
    model_header: OptionalHeaderName = "x-model"
    """Names the model where path, body and query name none that is known. Empty: none."""
    unknown_models: Literal["default", "refuse"] = "default"
    """What becomes of a model that no pool has: the default pool gets it, or the client gets 404."""
    show_decision: bool | None = None
    """Whether responses have headers with the chosen endpoint, the matched share and the reason: they show
    which prompts others have sent. None: on loopback only."""
    open_paths: Annotated[tuple[AdminPath, ...], Unique] = ()
    """Engines' paths of administration that clients may use, of `fleet.engine_paths`; `*`: all."""
    session_header: HeaderName = "x-session-id"
    """The fallback's Maglev hashes it, so that sessions keep their endpoint when ext_proc is away."""
    large_body_bytes: Annotated[int, Field(ge=1024, le=16_777_216)] = 1_048_576
    """From this content-length on, only the leading part of a body goes to ext_proc."""
    stream_idle_timeout_seconds: Seconds = 3600.0
    """The longest silence of a token stream. A long prefill is silent too."""
    tls: ListenerTlsSettings | None = None
    """None: plaintext from clients."""

    @model_validator(mode="after")
    def _pool_and_pools(self) -> Self:
        """Fill in the one by the other; the default pool becomes the first."""
        pools = self.pools or ((self.pool,) if self.pool else ())
        if not pools:
            raise ValueError("allowed: pool, or pools")
        pool = self.pool or pools[0]
        if pool not in pools:
            raise ValueError(f"allowed: as pool, the default, one of pools ({', '.join(pools)})")
        # The model is frozen for all others.
        object.__setattr__(self, "pool", pool)
        object.__setattr__(self, "pools", (pool, *(each for each in pools if each != pool)))
        return self

    @property
    def shows_decision(self) -> bool:
        """Whether responses show the decision, by the setting, otherwise by the address."""
        return is_local(self.address) if self.show_decision is None else self.show_decision
