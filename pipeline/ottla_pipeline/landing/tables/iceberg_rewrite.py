"""The snapshot that replaces data files of an Iceberg table, and drops files of deletes that apply to none any more.

pyiceberg leaves these, and writes no manifests of deletes. Every reader would open them for as long as the table lives.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    ManifestWriter,
    ManifestWriterV2,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _OverwriteFiles
from pyiceberg.typedef import EMPTY_DICT, TableVersion
from pyiceberg.types import IntegerType, ListType, NestedField, StructType


class Rewrite(_OverwriteFiles):
    """pyiceberg's producer of a snapshot, which belongs to one transaction."""

    def __init__(self, transaction: Any, io: Any, properties: dict[str, str]) -> None:
        super().__init__(Operation.OVERWRITE, transaction, io, snapshot_properties=properties)
        self.needed: Collection[str] = ()
        """The paths of the files of deletes that apply to files that the table still has afterwards."""
        self.dated: int | None = None
        """The data sequence number of the new files, if deletes after it are to apply to them."""
        self._dropped: set[DataFile] = set()

    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        writer, dated = super().new_manifest_writer(spec), self.dated
        if dated is not None:
            add = writer.add

            def add_dated(entry: ManifestEntry) -> ManifestWriter:
                entry.sequence_number = dated
                return add(entry)

            writer.add = add_dated  # type: ignore[method-assign]
        return writer

    def _existing_manifests(self) -> list[ManifestFile]:
        found = []
        for one in super()._existing_manifests():
            if one.content != ManifestContent.DELETES:
                found.append(one)
            elif entries := one.fetch_manifest_entry(self._io):
                found.append(self._left(one, entries))
        return found

    def _left(self, manifest: ManifestFile, entries: list[ManifestEntry]) -> ManifestFile:
        spec = self.spec(manifest.partition_spec_id)
        gone = {one.data_file for one in entries if one.data_file.file_path not in self.needed}
        # Without a partition's column, pyiceberg can't write its value.
        if not gone or any(self.schema().find_column_name(one.source_id) is None for one in spec.fields):
            return manifest
        output = self.new_manifest_output()
        with DeletesManifest(spec, self.schema(), output, self._snapshot_id, self._compression) as writer:
            for one in entries:
                (writer.delete if one.data_file in gone else writer.existing)(one)
        self._dropped |= gone
        return writer.to_manifest_file()

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        self._deleted_data_files |= self._dropped
        return super()._summary(snapshot_properties)


class DeletesManifest(ManifestWriterV2):
    """A manifest of files of deletes."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}

    def _with_partition(self, format_version: TableVersion) -> Schema:
        """With ``equality_ids`` of 32 bits, as specified; those of 64 bits that pyiceberg has stop Java."""
        ids = ListType(element_id=136, element_type=IntegerType(), element_required=True)
        *fields, last = super()._with_partition(format_version).fields
        entry: Any = last.field_type
        kind = StructType(
            *(
                NestedField(one.field_id, one.name, ids, required=False)
                if one.name == "equality_ids"
                else one
                for one in entry.fields
            )
        )
        return Schema(*fields, NestedField(last.field_id, last.name, kind, required=True))
