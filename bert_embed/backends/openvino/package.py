"""Imports OpenVINO without openvino_telemetry, by which it reports each import to Intel."""

import sys
from typing import Any

_REPORTS = "openvino_telemetry"
_before = sys.modules.get(_REPORTS)
_modules: dict[str, Any] = sys.modules
_modules[_REPORTS] = None  # as if it were not installed
try:
    import openvino as ov
    from openvino import opset15 as op
finally:
    del _modules[_REPORTS]
    if _before is not None:
        _modules[_REPORTS] = _before

__all__ = ["op", "ov"]
