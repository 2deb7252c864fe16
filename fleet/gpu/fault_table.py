"""CUDA errors, XID codes and states of a GPU, each with its class. docs/faults.md shows the same table.

XID codes and what to do about each: https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html.
The class follows the catalog's immediate action: "ignore" is fine, "restart the application" is transient
(the GPU is well, and the engine's own page shows whether it survived), "reset the GPU" and beyond is drained.
CUDA errors: https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html, numbers as of CUDA 13.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class FaultClass(Enum):
    """Effect of a fault on the endpoints of its GPU; the value is the health score."""

    FINE = 1.0
    TRANSIENT = 0.9
    """Limited for a short time."""
    ISOLATED = 0.4
    """Without requests for some minutes."""
    DRAINED = 0.0
    """Drained immediately."""


class FaultRule(NamedTuple):
    """One row of the table: codes with the same class."""

    codes: tuple[int, ...]
    fault_class: FaultClass
    meaning: str


_FINE, _TRANSIENT = FaultClass.FINE, FaultClass.TRANSIENT
_ISOLATED, _DRAINED = FaultClass.ISOLATED, FaultClass.DRAINED

XID_RULES: Final = (
    FaultRule((14,), _FINE, "an error that was injected for a test"),
    FaultRule((37, 38, 44, 66, 67), _FINE, "firmware complaint to ignore, by the vendor"),
    FaultRule((63,), _FINE, "a memory row or page was put aside; the pending reset is a state of its own"),
    FaultRule((93,), _FINE, "wear limit of the InfoROM"),
    FaultRule((106, 107), _FINE, "test message"),
    FaultRule((108, 141, 152, 153), _FINE, "logged only"),
    FaultRule((121,), _FINE, "corrected errors of the link to the CPU"),
    FaultRule((154,), _FINE, "the recovery action changed; the action is a state of its own"),
    FaultRule((160, 161), _FINE, "a memory channel was put aside, or could not be"),
    FaultRule((162, 163, 164, 165), _FINE, "power smoothing"),
    FaultRule((8, 43), _TRANSIENT, "an application's work was stopped; the GPU is well"),
    FaultRule((11, 25, 32, 80), _TRANSIENT, "broken stream of commands to the GPU"),
    FaultRule((13, 69), _TRANSIENT, "exception in an application's kernel"),
    FaultRule((31, 137), _TRANSIENT, "an application touched an address that is not its own"),
    FaultRule((45,), _TRANSIENT, "an application was torn down, because it ended or after another fault"),
    FaultRule(
        (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136)), _TRANSIENT, "exception of a copy engine"
    ),
    FaultRule(
        (60, 68, 82, 83, 84, 86, 88, 89, *range(96, 106), 139, 142), _TRANSIENT, "exception of a video engine"
    ),
    FaultRule((92,), _TRANSIENT, "many corrected memory errors, an early sign"),
    FaultRule((157,), _TRANSIENT, "nothing is left to repair memory with; work goes on"),
    FaultRule((78, 151, 159, 166, 168, 170), _ISOLATED, "set up wrongly: vGPU, keys, encryption, memory"),
    FaultRule((94,), _ISOLATED, "uncorrected memory error, contained: the application has to be restarted"),
    FaultRule((144, 145, 146, 147, 148, 150), _ISOLATED, "NVLink; the recovery action has its severity"),
    FaultRule((155,), _ISOLATED, "an NVLink went down, perhaps on purpose"),
    FaultRule((46, 109, 158), _DRAINED, "the GPU does not answer in time"),
    FaultRule((48, 171, 172), _DRAINED, "uncorrected memory error; a reset clears it"),
    FaultRule((54,), _DRAINED, "auxiliary power is not connected"),
    FaultRule((62, 169), _DRAINED, "a controller inside the GPU halted"),
    FaultRule((64,), _DRAINED, "a memory row or page could not be put aside"),
    FaultRule((74, 136, 149), _DRAINED, "an NVLink failed"),
    FaultRule((79, 167), _DRAINED, "the GPU is not reachable over PCIe"),
    FaultRule((95, 140), _DRAINED, "uncorrected memory error, not contained"),
    FaultRule((110,), _DRAINED, "security fault, as by failing hardware"),
    FaultRule((119, 120), _DRAINED, "the GPU's system processor failed or is silent"),
    FaultRule((143,), _DRAINED, "the GPU could not be initialised"),
    FaultRule((156,), _DRAINED, "memory was put aside and waits for a reset"),
)
"""Codes that the catalog calls unused are not here: they count as unknown."""

CUDA_NAMES: Final[Mapping[int, str]] = {
    0: "cudaSuccess",
    1: "cudaErrorInvalidValue",
    2: "cudaErrorMemoryAllocation",
    3: "cudaErrorInitializationError",
    9: "cudaErrorInvalidConfiguration",
    34: "cudaErrorStubLibrary",
    35: "cudaErrorInsufficientDriver",
    36: "cudaErrorCallRequiresNewerDriver",
    46: "cudaErrorDevicesUnavailable",
    49: "cudaErrorIncompatibleDriverContext",
    52: "cudaErrorMissingConfiguration",
    69: "cudaErrorLaunchPendingCountExceeded",
    98: "cudaErrorInvalidDeviceFunction",
    100: "cudaErrorNoDevice",
    101: "cudaErrorInvalidDevice",
    127: "cudaErrorStartupFailure",
    200: "cudaErrorInvalidKernelImage",
    201: "cudaErrorDeviceUninitialized",
    209: "cudaErrorNoKernelImageForDevice",
    214: "cudaErrorECCUncorrectable",
    216: "cudaErrorDeviceAlreadyInUse",
    217: "cudaErrorPeerAccessUnsupported",
    218: "cudaErrorInvalidPtx",
    220: "cudaErrorNvlinkUncorrectable",
    221: "cudaErrorJitCompilerNotFound",
    222: "cudaErrorUnsupportedPtxVersion",
    226: "cudaErrorContained",
    302: "cudaErrorSharedObjectSymbolNotFound",
    303: "cudaErrorSharedObjectInitFailed",
    304: "cudaErrorOperatingSystem",
    400: "cudaErrorInvalidResourceHandle",
    401: "cudaErrorIllegalState",
    600: "cudaErrorNotReady",
    700: "cudaErrorIllegalAddress",
    701: "cudaErrorLaunchOutOfResources",
    702: "cudaErrorLaunchTimeout",
    709: "cudaErrorContextIsDestroyed",
    710: "cudaErrorAssert",
    714: "cudaErrorHardwareStackError",
    715: "cudaErrorIllegalInstruction",
    716: "cudaErrorMisalignedAddress",
    717: "cudaErrorInvalidAddressSpace",
    718: "cudaErrorInvalidPc",
    719: "cudaErrorLaunchFailure",
    720: "cudaErrorCooperativeLaunchTooLarge",
    721: "cudaErrorTensorMemoryLeak",
    800: "cudaErrorNotPermitted",
    801: "cudaErrorNotSupported",
    802: "cudaErrorSystemNotReady",
    803: "cudaErrorSystemDriverMismatch",
    804: "cudaErrorCompatNotSupportedOnDevice",
    805: "cudaErrorMpsConnectionFailed",
    806: "cudaErrorMpsRpcFailure",
    807: "cudaErrorMpsServerNotReady",
    808: "cudaErrorMpsMaxClientsReached",
    809: "cudaErrorMpsMaxConnectionsReached",
    909: "cudaErrorTimeout",
    911: "cudaErrorExternalDevice",
    912: "cudaErrorInvalidClusterSize",
    999: "cudaErrorUnknown",
}

CUDA_RULES: Final = (
    FaultRule((0, 600), _FINE, "no error, or not finished yet"),
    FaultRule((702, 909), _TRANSIENT, "a launch took too long"),
    FaultRule((69, 701), _TRANSIENT, "a launch found too few resources"),
    FaultRule((46,), _TRANSIENT, "every GPU is busy"),
    FaultRule((802, 806, 807, 808, 809), _TRANSIENT, "a daemon of the driver is not ready or has no room"),
    FaultRule((2,), _ISOLATED, "no memory could be allocated"),
    FaultRule((1, 9, 49, 52, 101, 201, 216, 217, 720, 912), _ISOLATED, "set up wrongly"),
    FaultRule((98, 200, 209, 218, 221, 222), _ISOLATED, "no code that fits this GPU"),
    FaultRule((302, 303, 304, 800, 801, 805), _ISOLATED, "the host lacks something, or forbids it"),
    FaultRule((400, 401, 709), _ISOLATED, "the process lost what it had on the GPU"),
    FaultRule(
        (226, 700, 710, 715, 716, 717, 718, 719, 721, 911),
        _ISOLATED,
        "the process cannot go on and has to be restarted",
    ),
    FaultRule((999,), _ISOLATED, "unknown inside CUDA"),
    FaultRule((3, 34, 35, 36, 127, 803, 804), _DRAINED, "the driver does not start, or does not fit"),
    FaultRule((100,), _DRAINED, "no GPU is found"),
    FaultRule((214,), _DRAINED, "uncorrected memory error"),
    FaultRule((220,), _DRAINED, "uncorrected NVLink error"),
    FaultRule((714,), _DRAINED, "broken call stack, as by failing hardware"),
)

STATE_RULES: Final[Mapping[str, tuple[FaultClass, str]]] = {
    "lost": (_DRAINED, "the GPU was there and does not answer any more, or its driver is gone"),
    "reset_required": (_DRAINED, "NVML says that the GPU must be reset"),
    "row_remap_failed": (_DRAINED, "a memory row could not be remapped"),
    "recovery_gpu_reset": (_DRAINED, "the driver asks for a reset of the GPU"),
    "recovery_node_reboot": (_DRAINED, "the driver asks for a reboot"),
    "recovery_drain_and_reset": (_DRAINED, "the driver asks to drain and reset the GPU"),
    "recovery_bus_reset": (_DRAINED, "the driver asks for a reset of the bus"),
    "recovery_system_reboot": (_DRAINED, "the driver asks for a reboot of the system"),
    "recovery_drain_p2p": (_ISOLATED, "the driver asks to drain traffic between GPUs"),
    "recovery_recover_imex_domain": (_ISOLATED, "the driver asks to recover the IMEX domain"),
    "ecc_uncorrected": (_ISOLATED, "the count of uncorrected memory errors grew"),
    "row_remap_pending": (_TRANSIENT, "a remapped memory row waits for a reset"),
    "retirement_pending": (_TRANSIENT, "a retired memory page waits for a reset"),
}
"""States of a GPU, as its readings show them."""

UNKNOWN_CLASS: Final = _ISOLATED
"""Of a code that is not in the table: the driver reports a fault that cannot be rated."""


def _by_code(rules: tuple[FaultRule, ...]) -> dict[int, FaultRule]:
    return {code: rule for rule in rules for code in rule.codes}


XIDS: Final[Mapping[int, FaultRule]] = _by_code(XID_RULES)
CUDA_ERRORS: Final[Mapping[int, FaultRule]] = _by_code(CUDA_RULES)
CUDA_CODES: Final[Mapping[str, int]] = {name: code for code, name in CUDA_NAMES.items()}
