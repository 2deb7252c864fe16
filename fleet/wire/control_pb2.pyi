from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FollowRequest(_message.Message):
    __slots__ = ("hello", "report")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    report: TrafficReport
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., report: _Optional[_Union[TrafficReport, _Mapping]] = ...) -> None: ...

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
    __slots__ = ("address", "in_flight", "started_total", "finished_total", "duration_p99_seconds")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    STARTED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    FINISHED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    DURATION_P99_SECONDS_FIELD_NUMBER: _ClassVar[int]
    address: str
    in_flight: int
    started_total: int
    finished_total: int
    duration_p99_seconds: float
    def __init__(self, address: _Optional[str] = ..., in_flight: _Optional[int] = ..., started_total: _Optional[int] = ..., finished_total: _Optional[int] = ..., duration_p99_seconds: _Optional[float] = ...) -> None: ...

class FleetUpdate(_message.Message):
    __slots__ = ("membership", "loads")
    MEMBERSHIP_FIELD_NUMBER: _ClassVar[int]
    LOADS_FIELD_NUMBER: _ClassVar[int]
    membership: MembershipUpdate
    loads: LoadUpdate
    def __init__(self, membership: _Optional[_Union[MembershipUpdate, _Mapping]] = ..., loads: _Optional[_Union[LoadUpdate, _Mapping]] = ...) -> None: ...

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
    __slots__ = ("address", "models", "engine", "region", "zone", "sub_zone", "fault_domains")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    SUB_ZONE_FIELD_NUMBER: _ClassVar[int]
    FAULT_DOMAINS_FIELD_NUMBER: _ClassVar[int]
    address: str
    models: _containers.RepeatedScalarFieldContainer[str]
    engine: str
    region: str
    zone: str
    sub_zone: str
    fault_domains: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, address: _Optional[str] = ..., models: _Optional[_Iterable[str]] = ..., engine: _Optional[str] = ..., region: _Optional[str] = ..., zone: _Optional[str] = ..., sub_zone: _Optional[str] = ..., fault_domains: _Optional[_Iterable[str]] = ...) -> None: ...

class LoadUpdate(_message.Message):
    __slots__ = ("endpoints",)
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    endpoints: _containers.RepeatedCompositeFieldContainer[EndpointLoad]
    def __init__(self, endpoints: _Optional[_Iterable[_Union[EndpointLoad, _Mapping]]] = ...) -> None: ...

class EndpointLoad(_message.Message):
    __slots__ = ("weight", "memory_used_ratio", "queue_depth", "running", "latency_p99_seconds", "prefix_hit_ratio", "kv_capacity_tokens", "prefill_tokens_per_second", "reachable", "in_flight_elsewhere", "latency_p50_seconds", "generation_tokens_per_second", "batch_limit", "gpu_memory_used_ratio", "gpu_health_score", "error_ratio", "stalled", "trust_ratio")
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_USED_RATIO_FIELD_NUMBER: _ClassVar[int]
    QUEUE_DEPTH_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    LATENCY_P99_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PREFIX_HIT_RATIO_FIELD_NUMBER: _ClassVar[int]
    KV_CAPACITY_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_TOKENS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    REACHABLE_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_ELSEWHERE_FIELD_NUMBER: _ClassVar[int]
    LATENCY_P50_SECONDS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_TOKENS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    BATCH_LIMIT_FIELD_NUMBER: _ClassVar[int]
    GPU_MEMORY_USED_RATIO_FIELD_NUMBER: _ClassVar[int]
    GPU_HEALTH_SCORE_FIELD_NUMBER: _ClassVar[int]
    ERROR_RATIO_FIELD_NUMBER: _ClassVar[int]
    STALLED_FIELD_NUMBER: _ClassVar[int]
    TRUST_RATIO_FIELD_NUMBER: _ClassVar[int]
    weight: int
    memory_used_ratio: Signal
    queue_depth: Signal
    running: Signal
    latency_p99_seconds: Signal
    prefix_hit_ratio: Signal
    kv_capacity_tokens: Signal
    prefill_tokens_per_second: Signal
    reachable: Signal
    in_flight_elsewhere: int
    latency_p50_seconds: Signal
    generation_tokens_per_second: Signal
    batch_limit: Signal
    gpu_memory_used_ratio: Signal
    gpu_health_score: Signal
    error_ratio: Signal
    stalled: Signal
    trust_ratio: Signal
    def __init__(self, weight: _Optional[int] = ..., memory_used_ratio: _Optional[_Union[Signal, _Mapping]] = ..., queue_depth: _Optional[_Union[Signal, _Mapping]] = ..., running: _Optional[_Union[Signal, _Mapping]] = ..., latency_p99_seconds: _Optional[_Union[Signal, _Mapping]] = ..., prefix_hit_ratio: _Optional[_Union[Signal, _Mapping]] = ..., kv_capacity_tokens: _Optional[_Union[Signal, _Mapping]] = ..., prefill_tokens_per_second: _Optional[_Union[Signal, _Mapping]] = ..., reachable: _Optional[_Union[Signal, _Mapping]] = ..., in_flight_elsewhere: _Optional[int] = ..., latency_p50_seconds: _Optional[_Union[Signal, _Mapping]] = ..., generation_tokens_per_second: _Optional[_Union[Signal, _Mapping]] = ..., batch_limit: _Optional[_Union[Signal, _Mapping]] = ..., gpu_memory_used_ratio: _Optional[_Union[Signal, _Mapping]] = ..., gpu_health_score: _Optional[_Union[Signal, _Mapping]] = ..., error_ratio: _Optional[_Union[Signal, _Mapping]] = ..., stalled: _Optional[_Union[Signal, _Mapping]] = ..., trust_ratio: _Optional[_Union[Signal, _Mapping]] = ...) -> None: ...

class Signal(_message.Message):
    __slots__ = ("value", "age_seconds", "source")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    value: float
    age_seconds: float
    source: str
    def __init__(self, value: _Optional[float] = ..., age_seconds: _Optional[float] = ..., source: _Optional[str] = ...) -> None: ...
