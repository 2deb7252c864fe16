"""Generated from envoy.binpb by `make proto`."""

from fleet.envoy_api.descriptors import define

define(__name__, globals())
