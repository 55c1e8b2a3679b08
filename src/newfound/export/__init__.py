"""A finished run for other tools: tables of labels, a folder per class, an ONNX model, Parquet, Label Studio.

What a person decided in a review counts in all of them; the run itself is never changed.
"""

from newfound.export.folders import FoldersExport, export_folders
from newfound.export.label_studio import LabelStudioExport, export_label_studio
from newfound.export.label_tables import TableExport, export_csv, export_xlsx
from newfound.export.onnx_model import OnnxExport, export_onnx
from newfound.export.parquet import ParquetExport, export_parquet

__all__ = [
    "FoldersExport",
    "LabelStudioExport",
    "OnnxExport",
    "ParquetExport",
    "TableExport",
    "export_csv",
    "export_folders",
    "export_label_studio",
    "export_onnx",
    "export_parquet",
    "export_xlsx",
]
