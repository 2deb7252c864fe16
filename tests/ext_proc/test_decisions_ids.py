"""Which requests an id means: that of the header, or that of an answer that was made of it."""

import pytest

from ext_proc.decisions import request_ids

ID = "5f2e7a10-3c1f-4a55-9a54-6a2b7f1c0e11"


@pytest.mark.parametrize(
    "given",
    [ID, f"chatcmpl-{ID}", f"cmpl-{ID}", f"cmpl-{ID}-0", f"embd-{ID}", f"resp_{ID}", f"generate-tokens-{ID}"],
)
def test_an_id_is_found_in_what_engines_make_of_it(given: str) -> None:
    assert ID in request_ids(given)
    assert given in request_ids(given), "a client may have chosen it so"


def test_a_clients_own_id_may_end_in_a_number() -> None:
    assert {"chatcmpl-a-b-7", "a-b-7", "a-b"} == request_ids("chatcmpl-a-b-7")


def test_a_long_id_is_compared_as_far_as_it_is_kept() -> None:
    assert request_ids("chatcmpl-" + "x" * 300) >= {"x" * 128}


@pytest.mark.parametrize("given", ["", "chatcmpl-", "-", "x", ID.upper()])
def test_anything_else_means_itself_alone(given: str) -> None:
    assert request_ids(given) == {given}
