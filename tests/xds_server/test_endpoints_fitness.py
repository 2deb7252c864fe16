"""An endpoint is excluded only while others serve each of its models."""

from __future__ import annotations

import pytest

from fleet.endpoint import Endpoint, Pool
from xds_server.endpoints.fitness import exclusions

A, B, C = (f"10.0.0.{number}:8000" for number in (1, 2, 3))


def pool(**models: tuple[str, ...]) -> tuple[Pool, ...]:
    addresses = {"a": A, "b": B, "c": C}
    return (Pool("p", tuple(Endpoint(addresses[n], pool="p", models=names) for n, names in models.items())),)


@pytest.mark.parametrize(
    ("models", "unfit", "out"),
    [
        ({"a": (), "b": ()}, "", A),
        ({"a": (), "b": ()}, B, ""),
        ({"a": ("m",), "b": ("m",)}, "", A),
        ({"a": ("m", "lora"), "b": ("m",)}, "", ""),
        ({"a": ("m", "lora"), "b": ("m",), "c": ("lora",)}, "", A),
        ({"a": ("m", "lora"), "b": ("m",), "c": ("lora",)}, C, ""),
        ({"a": ("m",), "b": ()}, "", A),
        ({"a": ("m",), "b": ("other",)}, "", ""),
    ],
)
def test_last_endpoint_of_a_model_stays(models: dict[str, tuple[str, ...]], unfit: str, out: str) -> None:
    got = exclusions(pool(**models), frozenset((A,)), frozenset((unfit,)))
    assert got == frozenset((out,)) - {""}


class CountedModels(tuple[str, ...]):
    """Models that count how often they are read."""

    __slots__ = ()
    reads = 0

    def __len__(self) -> int:
        type(self).reads += 1
        return super().__len__()


def test_work_grows_with_the_pool_not_its_square() -> None:
    """A name server may name thousands of addresses, some of which do not answer."""
    endpoints = tuple(Endpoint(f"10.0.0.{n}:1", "p", models=CountedModels(("m",))) for n in range(200))
    candidates = frozenset(endpoint.address for endpoint in endpoints[:100])
    assert exclusions((Pool("p", endpoints),), candidates, frozenset()) == candidates
    assert CountedModels.reads <= 4 * len(endpoints)
