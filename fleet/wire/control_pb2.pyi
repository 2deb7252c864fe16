from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FollowRequest(_message.Message):
    __slots__ = ("hello", "report", "placed")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    PLACED_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    report: TrafficReport
    placed: Placements
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., report: _Optional[_Union[TrafficReport, _Mapping]] = ..., placed: _Optional[_Union[Placements, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("worker",)
    WORKER_FIELD_NUMBER: _ClassVar[int]
    worker: str
    def __init__(self, worker: _Optional[str] = ...) -> None: ...

class TrafficReport(_message.Message):
    __slots__ = ("endpoints",)
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    endpoints: _containers.RepeatedCompositeFieldContainer[EndpointTraffic]
    def __init__(self, endpoints: _Optional[_Iterable[_Union[EndpointTraffic, _Mapping]]] = ...) -> None: ...

class EndpointTraffic(_message.Message):
    __slots__ = ("address", "in_flight", "started_total", "finished_total", "duration_p99_seconds", "oldest_in_flight_seconds", "prefill_seconds_total")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    STARTED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    FINISHED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    DURATION_P99_SECONDS_FIELD_NUMBER: _ClassVar[int]
    OLDEST_IN_FLIGHT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_SECONDS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    address: str
    in_flight: int
    started_total: int
    finished_total: int
    duration_p99_seconds: float
    oldest_in_flight_seconds: float
    prefill_seconds_total: float
    def __init__(self, address: _Optional[str] = ..., in_flight: _Optional[int] = ..., started_total: _Optional[int] = ..., finished_total: _Optional[int] = ..., duration_p99_seconds: _Optional[float] = ..., oldest_in_flight_seconds: _Optional[float] = ..., prefill_seconds_total: _Optional[float] = ...) -> None: ...

class FleetUpdate(_message.Message):
    __slots__ = ("membership", "loads", "in_flight", "missed", "placed")
    MEMBERSHIP_FIELD_NUMBER: _ClassVar[int]
    LOADS_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    PLACED_FIELD_NUMBER: _ClassVar[int]
    membership: MembershipUpdate
    loads: LoadUpdate
    in_flight: InFlightUpdate
    missed: MissedUpdate
    placed: Placements
    def __init__(self, membership: _Optional[_Union[MembershipUpdate, _Mapping]] = ..., loads: _Optional[_Union[LoadUpdate, _Mapping]] = ..., in_flight: _Optional[_Union[InFlightUpdate, _Mapping]] = ..., missed: _Optional[_Union[MissedUpdate, _Mapping]] = ..., placed: _Optional[_Union[Placements, _Mapping]] = ...) -> None: ...

class Placements(_message.Message):
    __slots__ = ("placements",)
    PLACEMENTS_FIELD_NUMBER: _ClassVar[int]
    placements: _containers.RepeatedCompositeFieldContainer[Placement]
    def __init__(self, placements: _Optional[_Iterable[_Union[Placement, _Mapping]]] = ...) -> None: ...

class Placement(_message.Message):
    __slots__ = ("name", "endpoint")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    name: int
    endpoint: str
    def __init__(self, name: _Optional[int] = ..., endpoint: _Optional[str] = ...) -> None: ...

class MembershipUpdate(_message.Message):
    __slots__ = ("pools",)
    POOLS_FIELD_NUMBER: _ClassVar[int]
    pools: _containers.RepeatedCompositeFieldContainer[Pool]
    def __init__(self, pools: _Optional[_Iterable[_Union[Pool, _Mapping]]] = ...) -> None: ...

class Pool(_message.Message):
    __slots__ = ("name", "endpoints")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    endpoints: _containers.RepeatedCompositeFieldContainer[Endpoint]
    def __init__(self, name: _Optional[str] = ..., endpoints: _Optional[_Iterable[_Union[Endpoint, _Mapping]]] = ...) -> None: ...

class Endpoint(_message.Message):
    __slots__ = ("address", "models", "engine", "region", "zone", "sub_zone", "fault_domains", "kv_events", "listed", "own_names")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    SUB_ZONE_FIELD_NUMBER: _ClassVar[int]
    FAULT_DOMAINS_FIELD_NUMBER: _ClassVar[int]
    KV_EVENTS_FIELD_NUMBER: _ClassVar[int]
    LISTED_FIELD_NUMBER: _ClassVar[int]
    OWN_NAMES_FIELD_NUMBER: _ClassVar[int]
    address: str
    models: _containers.RepeatedScalarFieldContainer[str]
    engine: str
    region: str
    zone: str
    sub_zone: str
    fault_domains: _containers.RepeatedScalarFieldContainer[str]
    kv_events: KvEventSource
    listed: _containers.RepeatedScalarFieldContainer[str]
    own_names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, address: _Optional[str] = ..., models: _Optional[_Iterable[str]] = ..., engine: _Optional[str] = ..., region: _Optional[str] = ..., zone: _Optional[str] = ..., sub_zone: _Optional[str] = ..., fault_domains: _Optional[_Iterable[str]] = ..., kv_events: _Optional[_Union[KvEventSource, _Mapping]] = ..., listed: _Optional[_Iterable[str]] = ..., own_names: _Optional[_Iterable[str]] = ...) -> None: ...

class KvEventSource(_message.Message):
    __slots__ = ("port", "replay_port", "topic", "ranks")
    PORT_FIELD_NUMBER: _ClassVar[int]
    REPLAY_PORT_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    port: int
    replay_port: int
    topic: str
    ranks: int
    def __init__(self, port: _Optional[int] = ..., replay_port: _Optional[int] = ..., topic: _Optional[str] = ..., ranks: _Optional[int] = ...) -> None: ...

class LoadUpdate(_message.Message):
    __slots__ = ("weights", "signals", "sampling_ratio_floor", "overridden", "ranks")
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    SIGNALS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_RATIO_FLOOR_FIELD_NUMBER: _ClassVar[int]
    OVERRIDDEN_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    weights: _containers.RepeatedScalarFieldContainer[int]
    signals: _containers.RepeatedCompositeFieldContainer[SignalColumn]
    sampling_ratio_floor: float
    overridden: _containers.RepeatedScalarFieldContainer[int]
    ranks: _containers.RepeatedCompositeFieldContainer[PoolRanks]
    def __init__(self, weights: _Optional[_Iterable[int]] = ..., signals: _Optional[_Iterable[_Union[SignalColumn, _Mapping]]] = ..., sampling_ratio_floor: _Optional[float] = ..., overridden: _Optional[_Iterable[int]] = ..., ranks: _Optional[_Iterable[_Union[PoolRanks, _Mapping]]] = ...) -> None: ...

class PoolRanks(_message.Message):
    __slots__ = ("pool", "count", "named", "signals")
    POOL_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    NAMED_FIELD_NUMBER: _ClassVar[int]
    SIGNALS_FIELD_NUMBER: _ClassVar[int]
    pool: str
    count: int
    named: bool
    signals: _containers.RepeatedCompositeFieldContainer[SignalColumn]
    def __init__(self, pool: _Optional[str] = ..., count: _Optional[int] = ..., named: _Optional[bool] = ..., signals: _Optional[_Iterable[_Union[SignalColumn, _Mapping]]] = ...) -> None: ...

class SignalColumn(_message.Message):
    __slots__ = ("name", "values", "ages_seconds")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    AGES_SECONDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    values: bytes
    ages_seconds: bytes
    def __init__(self, name: _Optional[str] = ..., values: _Optional[bytes] = ..., ages_seconds: _Optional[bytes] = ...) -> None: ...

class MissedUpdate(_message.Message):
    __slots__ = ("missed",)
    MISSED_FIELD_NUMBER: _ClassVar[int]
    missed: _containers.RepeatedCompositeFieldContainer[Missed]
    def __init__(self, missed: _Optional[_Iterable[_Union[Missed, _Mapping]]] = ...) -> None: ...

class Missed(_message.Message):
    __slots__ = ("prompt", "picked", "served", "serial", "request")
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    PICKED_FIELD_NUMBER: _ClassVar[int]
    SERVED_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    prompt: int
    picked: str
    served: str
    serial: int
    request: int
    def __init__(self, prompt: _Optional[int] = ..., picked: _Optional[str] = ..., served: _Optional[str] = ..., serial: _Optional[int] = ..., request: _Optional[int] = ...) -> None: ...

class InFlightUpdate(_message.Message):
    __slots__ = ("elsewhere", "prefill_seconds_total")
    ELSEWHERE_FIELD_NUMBER: _ClassVar[int]
    PREFILL_SECONDS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    elsewhere: _containers.RepeatedScalarFieldContainer[int]
    prefill_seconds_total: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, elsewhere: _Optional[_Iterable[int]] = ..., prefill_seconds_total: _Optional[_Iterable[float]] = ...) -> None: ...
