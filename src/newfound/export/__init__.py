"""A finished run for other tools: an ONNX model, a folder per class, a Parquet table, tasks for Label Studio.

What a person decided in a review counts in all of them; the run itself is never changed.
"""

from newfound.export.folders import FoldersExport, export_folders
from newfound.export.label_studio import LabelStudioExport, export_label_studio
from newfound.export.onnx_model import OnnxExport, export_onnx
from newfound.export.parquet import ParquetExport, export_parquet

__all__ = [
    "FoldersExport",
    "LabelStudioExport",
    "OnnxExport",
    "ParquetExport",
    "export_folders",
    "export_label_studio",
    "export_onnx",
    "export_parquet",
]
