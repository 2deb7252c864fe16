"""`warmroute bootstrap`: print the bootstrap with which an Envoy, or a gRPC client, finds xds_server."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import yaml

from fleet.endpoint import Locality
from fleet.errors import SettingsError
from fleet.settings import load_settings
from fleet.settings.address import split_host_port
from xds_server.envoy.bootstrap import bootstrap
from xds_server.envoy.proxyless import grpc_bootstrap
from xds_server.envoy.tls import SDS_FILES, bootstrap_socket, sds_file


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("settings", type=Path, metavar="SETTINGS.yaml")
    parser.add_argument("--node-id", default="envoy", help="this Envoy's own name (default: %(default)s)")
    parser.add_argument(
        "--node-cluster", default="warmroute", help="what Envoys of one use share (default: %(default)s)"
    )
    parser.add_argument("--region", default="", help="this Envoy's own")
    parser.add_argument("--zone", default="", help="this Envoy's own")
    parser.add_argument("--sub-zone", default="", help="its host or NVLink island")
    parser.add_argument(
        "--grpc", action="store_true", help="for gRPC's own xDS client: JSON for GRPC_XDS_BOOTSTRAP"
    )
    parser.add_argument("--sds", choices=SDS_FILES, help="print this file of tls.envoy.sds_directory instead")
    parser.add_argument("--delta", action="store_true", help="incremental xDS instead of state of the world")
    parser.add_argument(
        "--admin",
        default="127.0.0.1:9901",
        metavar="ADDRESS",
        type=_admin_address,
        help="ip:port of Envoy's admin interface, '' for none (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Print YAML for an Envoy, JSON for gRPC.

    Raises:
        SettingsError: the settings cannot be used.
    """
    settings = load_settings(args.settings)
    tls = settings.tls.envoy if settings.tls.xds is not None else None
    if args.sds:
        if settings.tls.envoy is None:
            raise SettingsError(["tls.envoy: missing; --sds prints files of its sds_directory"])
        print(yaml.safe_dump(sds_file(settings.tls.envoy, args.sds), sort_keys=False), end="")
        return 0
    address, place = settings.xds.address, Locality(args.region, args.zone, args.sub_zone)
    if args.grpc:
        document = grpc_bootstrap(
            ads_address=address,
            node_id=args.node_id,
            node_cluster=args.node_cluster,
            locality=place,
            tls=tls,
        )
        print(json.dumps(document, indent=2))
        return 0
    made = bootstrap(
        ads_address=address,
        node_id=args.node_id,
        node_cluster=args.node_cluster,
        locality=place,
        delta=args.delta,
        admin_address=args.admin,
        transport_socket=None if tls is None else bootstrap_socket(tls),
        connections=settings.connections,
    )
    print(yaml.safe_dump(made, sort_keys=False, default_flow_style=False), end="")
    return 0


def _admin_address(text: str) -> str:
    if text:
        try:
            split_host_port(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r}; {error}") from error
    return text
