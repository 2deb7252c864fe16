"""Who is there: sources of endpoints, merged, let in once they answer, drained when they leave."""

from xds_server.endpoints.keeper import EndpointKeeper
from xds_server.endpoints.source import EndpointSource

__all__ = ["EndpointKeeper", "EndpointSource"]
