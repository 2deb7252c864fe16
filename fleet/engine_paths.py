"""Paths by which engines are administered: clients of a listener do not get through to them by default.

By such a path a client may empty caches, put an engine to sleep, exchange weights, or read the requests of
others. A path with a `/` at its end stands for itself and for all below it, and `*` for one segment.

Sources: vLLM `vllm/entrypoints/serve/`, SGLang `srt/entrypoints/http_server.py`, TensorRT-LLM
`tensorrt_llm/serve/openai_server.py`, llama.cpp `tools/server/README.md`, Triton's protocol extensions
(model repository, statistics, trace, logging, shared memory), TGI and NIM by their metrics pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

ADMIN_PATHS: Final[Mapping[str, tuple[str, ...]]] = {
    "vllm": (
        "/metrics", "/load", "/server_info", "/sleep", "/wake_up", "/is_sleeping", "/pause", "/resume",
        "/is_paused", "/reset_prefix_cache", "/reset_mm_cache", "/reset_encoder_cache", "/collective_rpc",
        "/abort_requests", "/start_profile", "/stop_profile", "/scale_elastic_ep", "/is_scaling_elastic_ep",
        "/init_weight_transfer_engine", "/start_weight_update", "/update_weights", "/finish_weight_update",
        "/get_world_size", "/v1/load_lora_adapter", "/v1/unload_lora_adapter",
    ),
    "sglang": (
        "/flush_cache", "/clear_hicache_storage_backend", "/hicache/", "/freeze_gc", "/slow_down",
        "/get_load", "/v1/loads", "/get_server_info",
        "/set_internal_state", "/get_internal_state", "/configure_logging",
        "/set_trace_level", "/abort_request", "/pause_generation", "/continue_generation",
        "/load_lora_adapter", "/load_lora_adapter_from_tensors", "/unload_lora_adapter",
        "/update_weights_from_disk", "/update_weights_from_distributed", "/update_weights_from_tensor",
        "/update_weights_from_ipc", "/update_weight_version", "/init_weights_update_group",
        "/destroy_weights_update_group", "/init_weights_send_group_for_remote_instance",
        "/send_weights_to_remote_instance", "/remote_instance_transfer_engine_info",
        "/get_remote_instance_transfer_engine_info", "/get_weights_by_name", "/weights_checker",
        "/release_memory_occupation", "/resume_memory_occupation", "/start_expert_distribution_record",
        "/stop_expert_distribution_record", "/dump_expert_distribution_record", "/dumper/",
    ),
    "tensorrt-llm": (
        "/perf_metrics", "/energy_metrics", "/prometheus/metrics", "/kv_cache_events", "/steady_clock_offset",
        "/release_memory", "/resume_memory",
    ),
    "llama.cpp": ("/slots/", "/lora-adapters", "/props", "/models/load", "/models/unload", "/cors-proxy"),
    "triton": (
        "/v2/repository/", "/v2/logging", "/v2/trace/", "/v2/models/*/trace/",
        "/v2/models/*/versions/*/trace/", "/v2/systemsharedmemory/", "/v2/cudasharedmemory/",
    ),
    "nim": ("/v1/metrics",),
}  # fmt: skip
"""Engine to its paths; a path that several engines have is with the first of them."""

ALL_ADMIN_PATHS: Final = tuple(path for paths in ADMIN_PATHS.values() for path in paths)
EVERY_PATH: Final = "*"
"""In the settings: all of them."""
