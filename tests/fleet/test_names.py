"""Names that are shared with Envoy."""

from __future__ import annotations

from fleet import names


def test_no_header_of_ours_that_a_client_sends_goes_on() -> None:
    """Engines and logs believe headers by these names."""
    ours = {value for name, value in vars(names).items() if name.startswith("HEADER_")}

    assert names.HEADER_IDEMPOTENCY in ours
    assert ours <= {*names.REMOVED_REQUEST_HEADERS}
