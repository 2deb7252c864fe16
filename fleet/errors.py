"""The errors that cross a module's border. A peer's fault and ours are different types."""


class WarmrouteError(Exception):
    """Base of every error that Warmroute raises on purpose."""


class SettingsError(WarmrouteError):
    """The operator's settings cannot be used; the text names each field, its value and what is allowed."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class PeerError(WarmrouteError):
    """What came from the other side of a connection breaks its protocol; ours goes on."""


class SnapshotError(WarmrouteError):
    """A snapshot contradicts itself and is not served: our own fault, never a client's."""
