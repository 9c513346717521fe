"""Checks the operations of a SavedModel's graph before TensorFlow can run any of them."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_embed.bundle.files import SAVED_MODEL
from bert_embed.storage.errors import InputError

if TYPE_CHECKING:
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

# Operations that only compute with numbers. Others may read or write files, start programs or
# connect to other machines, or it is not certain that they do not.
_STRUCTURE = """
Const Placeholder PlaceholderWithDefault Identity IdentityN NoOp StopGradient PreventGradient
CheckNumerics EnsureShape Assert ControlTrigger DisableCopyOnRead
PartitionedCall StatefulPartitionedCall If StatelessIf While StatelessWhile Case StatelessCase
Switch Merge Enter Exit NextIteration LoopCond
VarHandleOp ReadVariableOp AssignVariableOp AssignAddVariableOp AssignSubVariableOp
VarIsInitializedOp VariableShape ResourceGather ResourceGatherNd
EmptyTensorList TensorListReserve TensorListStack TensorListFromTensor TensorListGetItem
TensorListSetItem TensorListLength TensorListPushBack TensorListPopBack TensorListElementShape
TensorListConcatV2 TensorListSplit TensorListGather TensorListResize
"""
_SHAPES = """
BroadcastArgs BroadcastGradientArgs BroadcastTo Concat ConcatV2 ConcatOffset Diag DiagPart
DynamicPartition DynamicStitch ParallelDynamicStitch ExpandDims Fill Gather GatherNd GatherV2
InvertPermutation MatrixBandPart MatrixDiag MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3
MatrixDiagV2 MatrixDiagV3 MatrixSetDiag MatrixSetDiagV3 MirrorPad OneHot OnesLike Pack
ParallelConcat Pad PadV2 Range Rank Reshape Reverse ReverseSequence ReverseV2 Roll ScatterNd
SegmentMax SegmentMean SegmentMin SegmentProd SegmentSum Select SelectV2 Shape ShapeN
Size Slice Split SplitV Squeeze StridedSlice TensorScatterAdd TensorScatterMax TensorScatterMin
TensorScatterSub TensorScatterUpdate Tile TopK TopKV2 Transpose Unique UniqueV2 UniqueWithCounts
Unpack UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentSum Where ZerosLike
RaggedGather RaggedRange RaggedTensorToTensor RaggedTensorToSparse SparseToDense
"""
_NUMBERS = """
Abs Acos Acosh Add AddN AddV2 AccumulateNV2 All Any ApproximateEqual ArgMax ArgMin Asin Asinh Atan
Atan2 Atanh BatchMatMul BatchMatMulV2 BatchMatMulV3 BiasAdd BiasAddV1 Bincount Bitcast BitwiseAnd
BitwiseOr BitwiseXor Bucketize Cast Ceil ClipByValue Conv2D Cos Cosh CumulativeLogsumexp
Cumprod Cumsum DepthwiseConv2dNative Digamma Div DivNoNan Einsum Elu Equal Erf Erfc Erfinv Exp Expm1
Floor FloorDiv FloorMod FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3 Greater GreaterEqual
InTopKV2 Inv IsFinite IsInf IsNan L2Loss LeakyRelu LeftShift Less LessEqual Lgamma LinSpace Log
Log1p LogSoftmax LogicalAnd LogicalNot LogicalOr MatMul Max MaxPool AvgPool Maximum Mean Min
Minimum Mod Mul MulNoNan Neg NotEqual Pow Prod RealDiv Reciprocal Relu Relu6 RightShift Rint Round
Rsqrt Selu Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt Square SquaredDifference Sub Sum Tan
Tanh TruncateDiv TruncateMod Xdivy Xlog1py Xlogy Zeta
Dequantize FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVars FakeQuantWithMinMaxVarsPerChannel
QuantizeAndDequantizeV2 QuantizeAndDequantizeV3 QuantizeAndDequantizeV4 QuantizeV2
RandomStandardNormal RandomUniform RandomUniformInt TruncatedNormal Multinomial
StatelessRandomGetAlg StatelessRandomGetKeyCounter StatelessRandomGetKeyCounterAlg
StatelessRandomNormal StatelessRandomNormalV2 StatelessRandomUniform StatelessRandomUniformV2
StatelessTruncatedNormal StatelessTruncatedNormalV2
"""
# Gradients, which models that can be trained further have as functions.
_GRADIENTS = """
AvgPoolGrad BiasAddGrad Conv2DBackpropFilter Conv2DBackpropInput EluGrad
DepthwiseConv2dNativeBackpropFilter DepthwiseConv2dNativeBackpropInput FusedBatchNormGrad
FusedBatchNormGradV2 FusedBatchNormGradV3 InvGrad LeakyReluGrad MaxPoolGrad MirrorPadGrad
ReciprocalGrad Relu6Grad ReluGrad ResourceScatterAdd ResourceScatterSub ResourceScatterUpdate
RsqrtGrad SeluGrad SigmoidGrad SoftmaxCrossEntropyWithLogits SoftplusGrad SoftsignGrad
SparseSoftmaxCrossEntropyWithLogits SqrtGrad StridedSliceGrad SymbolicGradient TanhGrad
TensorListConcatLists
"""
ALLOWED = frozenset(f"{_STRUCTURE} {_SHAPES} {_NUMBERS} {_GRADIENTS}".split())
# Operations that save and restore, in functions that only a SavedModel's saver calls;
# `tf.saved_model.load` reads the variables without them.
_SAVERS = frozenset(
    {
        "MergeV2Checkpoints",
        "RestoreV2",
        "SaveV2",
        "ShardedFilename",
        "StaticRegexFullMatch",
        "StringJoin",
    }
)
_SAVER_NAME = re.compile(r"__inference__traced_(save|restore)_\d+")
_OPERATION_NAME = re.compile(r"_*[A-Z][A-Za-z0-9]*")  # functions so named hide operations
_MOST_NAMED = 5


def check_graph(folder: Path, trusted: bool = False) -> None:
    """Checks that a SavedModel can only compute.

    Its file is parsed, not loaded, because loading runs the initializers of its objects. The check
    includes the main graph and all functions of its library, whether they are called or not.

    Args:
        folder: The SavedModel's.
        trusted: Whether its graph may hold any operation.

    Raises:
        InputError: The graph cannot be read, or holds operations that no encoder needs; the message
            names them.
    """
    saved = parse_graph(folder)
    if trusted:
        return
    found = sorted(foreign_operations(saved))
    if found:
        more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
        raise InputError(
            f"{folder}: uses operations that no BERT encoder has "
            f"({', '.join(found[:_MOST_NAMED])}{more}), which may read or write files or run "
            "programs; where it is the preprocessing of a model, name the encoder itself; where "
            "you trust its maker as the maker of a program, set allow_untrusted_model",
            "allow_untrusted_model",
        )


def parse_graph(folder: Path) -> "SavedModel":
    """Returns a SavedModel's file as a message; InputError if it cannot be read."""
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import saved_model_pb2

    saved = saved_model_pb2.SavedModel()
    try:
        saved.ParseFromString((folder / SAVED_MODEL).read_bytes())
    except OSError as error:
        raise InputError(f"{folder}: {SAVED_MODEL} cannot be read: {error.strerror}") from error
    except DecodeError as error:
        raise InputError(f"{folder}: {SAVED_MODEL} cannot be read, perhaps cut") from error
    return saved


def is_of_objects(saved: "SavedModel") -> bool:
    """Returns whether it has the objects and functions that TensorFlow 2 saves."""
    return len(saved.meta_graphs) == 1 and saved.meta_graphs[0].HasField("object_graph_def")


def foreign_operations(saved: "SavedModel") -> set[str]:
    """Returns the names of the operations that are not allowed, of all graphs and functions."""
    found: set[str] = set()
    by_objects = is_of_objects(saved)  # otherwise TensorFlow runs the main graph and what it calls
    for graph in saved.meta_graphs:
        library = graph.graph_def.library.function
        functions = {each.signature.name for each in library}
        allowed = ALLOWED | {name for name in functions if not _OPERATION_NAME.fullmatch(name)}
        savers = set(_savers(graph)) if by_objects else set()
        found |= _operations(graph.graph_def.node) - allowed
        for function in library:
            more = _SAVERS if function.signature.name in savers else frozenset()
            found |= _operations(function.node_def) - allowed - more
    return found


def _operations(nodes: Iterable[Any]) -> set[str]:
    return {node.op for node in nodes}


def _savers(graph: Any) -> Iterator[str]:
    """Yields the names of functions that save and restore, and that no other function names."""
    library = graph.graph_def.library.function
    suspects = [each for each in library if _SAVER_NAME.fullmatch(each.signature.name)]
    if not suspects:
        return
    names = [each.signature.name for each in suspects]
    others = [graph.object_graph_def.SerializeToString()]
    others += [each.SerializeToString() for each in graph.graph_def.library.gradient]
    others += [each.SerializeToString() for each in library if each not in suspects]
    for function, name in zip(suspects, names, strict=True):
        beside = [each.SerializeToString() for each in suspects if each is not function]
        called = any(name.encode() in each for each in (*others, *beside))
        stands_for_others = any(key.startswith("api_") for key in function.attr)
        if names.count(name) == 1 and not called and not stands_for_others:
            yield name
