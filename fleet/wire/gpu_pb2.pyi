from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GpuReportAck(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GpuReport(_message.Message):
    __slots__ = ("node", "age_seconds", "gpus", "unavailable", "driver_version")
    NODE_FIELD_NUMBER: _ClassVar[int]
    AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    UNAVAILABLE_FIELD_NUMBER: _ClassVar[int]
    DRIVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    node: str
    age_seconds: float
    gpus: _containers.RepeatedCompositeFieldContainer[Gpu]
    unavailable: str
    driver_version: str
    def __init__(self, node: _Optional[str] = ..., age_seconds: _Optional[float] = ..., gpus: _Optional[_Iterable[_Union[Gpu, _Mapping]]] = ..., unavailable: _Optional[str] = ..., driver_version: _Optional[str] = ...) -> None: ...

class Gpu(_message.Message):
    __slots__ = ("uuid", "index", "name", "memory_used_bytes", "memory_total_bytes", "utilisation_ratio", "temperature_celsius", "power_watts", "power_limit_watts", "clocks_reasons", "ecc_corrected_total", "ecc_uncorrected_total", "remapped_rows", "retirement_pending", "mig_enabled", "mig_slices", "nvlinks", "pcie_generation", "pcie_width", "peers", "recovery_action", "faults", "lost")
    UUID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MEMORY_USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    UTILISATION_RATIO_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_CELSIUS_FIELD_NUMBER: _ClassVar[int]
    POWER_WATTS_FIELD_NUMBER: _ClassVar[int]
    POWER_LIMIT_WATTS_FIELD_NUMBER: _ClassVar[int]
    CLOCKS_REASONS_FIELD_NUMBER: _ClassVar[int]
    ECC_CORRECTED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    ECC_UNCORRECTED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    REMAPPED_ROWS_FIELD_NUMBER: _ClassVar[int]
    RETIREMENT_PENDING_FIELD_NUMBER: _ClassVar[int]
    MIG_ENABLED_FIELD_NUMBER: _ClassVar[int]
    MIG_SLICES_FIELD_NUMBER: _ClassVar[int]
    NVLINKS_FIELD_NUMBER: _ClassVar[int]
    PCIE_GENERATION_FIELD_NUMBER: _ClassVar[int]
    PCIE_WIDTH_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_ACTION_FIELD_NUMBER: _ClassVar[int]
    FAULTS_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    uuid: str
    index: int
    name: str
    memory_used_bytes: int
    memory_total_bytes: int
    utilisation_ratio: float
    temperature_celsius: float
    power_watts: float
    power_limit_watts: float
    clocks_reasons: ClocksReasons
    ecc_corrected_total: int
    ecc_uncorrected_total: int
    remapped_rows: RemappedRows
    retirement_pending: bool
    mig_enabled: bool
    mig_slices: _containers.RepeatedCompositeFieldContainer[MigSlice]
    nvlinks: NvLinks
    pcie_generation: int
    pcie_width: int
    peers: Peers
    recovery_action: str
    faults: _containers.RepeatedCompositeFieldContainer[GpuFault]
    lost: bool
    def __init__(self, uuid: _Optional[str] = ..., index: _Optional[int] = ..., name: _Optional[str] = ..., memory_used_bytes: _Optional[int] = ..., memory_total_bytes: _Optional[int] = ..., utilisation_ratio: _Optional[float] = ..., temperature_celsius: _Optional[float] = ..., power_watts: _Optional[float] = ..., power_limit_watts: _Optional[float] = ..., clocks_reasons: _Optional[_Union[ClocksReasons, _Mapping]] = ..., ecc_corrected_total: _Optional[int] = ..., ecc_uncorrected_total: _Optional[int] = ..., remapped_rows: _Optional[_Union[RemappedRows, _Mapping]] = ..., retirement_pending: _Optional[bool] = ..., mig_enabled: _Optional[bool] = ..., mig_slices: _Optional[_Iterable[_Union[MigSlice, _Mapping]]] = ..., nvlinks: _Optional[_Union[NvLinks, _Mapping]] = ..., pcie_generation: _Optional[int] = ..., pcie_width: _Optional[int] = ..., peers: _Optional[_Union[Peers, _Mapping]] = ..., recovery_action: _Optional[str] = ..., faults: _Optional[_Iterable[_Union[GpuFault, _Mapping]]] = ..., lost: _Optional[bool] = ...) -> None: ...

class ClocksReasons(_message.Message):
    __slots__ = ("reasons",)
    REASONS_FIELD_NUMBER: _ClassVar[int]
    reasons: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, reasons: _Optional[_Iterable[str]] = ...) -> None: ...

class RemappedRows(_message.Message):
    __slots__ = ("correctable", "uncorrectable", "pending", "failed")
    CORRECTABLE_FIELD_NUMBER: _ClassVar[int]
    UNCORRECTABLE_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    correctable: int
    uncorrectable: int
    pending: bool
    failed: bool
    def __init__(self, correctable: _Optional[int] = ..., uncorrectable: _Optional[int] = ..., pending: _Optional[bool] = ..., failed: _Optional[bool] = ...) -> None: ...

class MigSlice(_message.Message):
    __slots__ = ("uuid", "instance", "name", "memory_used_bytes", "memory_total_bytes")
    UUID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MEMORY_USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    uuid: str
    instance: int
    name: str
    memory_used_bytes: int
    memory_total_bytes: int
    def __init__(self, uuid: _Optional[str] = ..., instance: _Optional[int] = ..., name: _Optional[str] = ..., memory_used_bytes: _Optional[int] = ..., memory_total_bytes: _Optional[int] = ...) -> None: ...

class NvLinks(_message.Message):
    __slots__ = ("links",)
    LINKS_FIELD_NUMBER: _ClassVar[int]
    links: _containers.RepeatedCompositeFieldContainer[NvLink]
    def __init__(self, links: _Optional[_Iterable[_Union[NvLink, _Mapping]]] = ...) -> None: ...

class NvLink(_message.Message):
    __slots__ = ("link", "active", "peer")
    LINK_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    link: int
    active: bool
    peer: str
    def __init__(self, link: _Optional[int] = ..., active: _Optional[bool] = ..., peer: _Optional[str] = ...) -> None: ...

class Peers(_message.Message):
    __slots__ = ("peers",)
    PEERS_FIELD_NUMBER: _ClassVar[int]
    peers: _containers.RepeatedCompositeFieldContainer[PeerLink]
    def __init__(self, peers: _Optional[_Iterable[_Union[PeerLink, _Mapping]]] = ...) -> None: ...

class PeerLink(_message.Message):
    __slots__ = ("uuid", "link")
    UUID_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    uuid: str
    link: str
    def __init__(self, uuid: _Optional[str] = ..., link: _Optional[str] = ...) -> None: ...

class GpuFault(_message.Message):
    __slots__ = ("kind", "code", "count", "age_seconds")
    KIND_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    code: str
    count: int
    age_seconds: float
    def __init__(self, kind: _Optional[str] = ..., code: _Optional[str] = ..., count: _Optional[int] = ..., age_seconds: _Optional[float] = ...) -> None: ...
