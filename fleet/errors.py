"""The errors that cross modules. Faults of peers and of our own have different types."""


class WarmrouteError(Exception):
    """Base of every error that Warmroute raises on purpose."""


class SettingsError(WarmrouteError):
    """The operator's settings cannot be used. The text names each field, its value and the allowed values."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class PeerError(WarmrouteError):
    """A peer has violated the protocol of its connection; this process goes on."""


class SnapshotError(WarmrouteError):
    """A snapshot contradicts itself and is not served: our own fault, never a client's."""
