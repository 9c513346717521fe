"""LiteRT, with the kernels of XNNPACK: float32 and int8 on processors, without TensorFlow."""

from bert_embed.backends.protocol import Backend

# The encoder for LiteRT, by the precision of its products.
FILES = {"float32": "float32.tflite", "int8": "int8.tflite"}
BACKEND = Backend(
    name="litert",
    package="ai_edge_litert",
    precisions={"cpu": tuple(FILES)},
    load="bert_embed.backends.litert.engine:LiteRTEngine",
    files=FILES,
    write="bert_embed.backends.litert.model:write_litert",
)
