"""OpenVINO: bfloat16 on processors that have instructions for it, and float32 where it is named."""

from bert_embed.backends.protocol import Backend

BACKEND = Backend(
    name="openvino",
    package="openvino",
    precisions={"cpu": ("float32", "bfloat16")},
    load="bert_embed.backends.openvino.engine:OpenVINOEngine",
    instructions={"bfloat16": ("avx512_bf16", "amx_bf16")},
)
