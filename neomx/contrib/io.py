"""`mx.contrib.io`: an adapter from gluon's DataLoader to an iterator for Module."""

from __future__ import annotations

from typing import Any

from .. import ndarray as nd
from ..io import DataBatch, DataDesc, DataIter

__all__ = ["DataLoaderIter"]


class DataLoaderIter(DataIter):
    """Iterate over the batches of a gluon DataLoader, each with one array of data and one of labels, as `dtype`.

    A smaller last batch is padded with zeros; `pad` is their number.
    """

    def __init__(
        self, loader: Any, data_name: str = "data", label_name: str = "softmax_label", dtype: str = "float32"
    ) -> None:
        data, label = next(iter(loader))
        super().__init__(data.shape[0])
        self._loader, self.dtype = loader, dtype
        self.provide_data = [DataDesc(data_name, data.shape, dtype)]
        self.provide_label = [DataDesc(label_name, label.shape, dtype)]
        self._current: DataBatch | None = None
        self.reset()

    def reset(self) -> None:
        if self._restarts():
            self._batches = iter(self._loader)

    def _position(self) -> dict[str, Any]:
        return {"loader": self._loader.state()}

    def _go_to(self, state: dict[str, Any]) -> None:
        self._loader.load_state(state["loader"])
        self._batches = iter(() if self._is_at_end else self._loader)

    def iter_next(self) -> bool:
        pair = next(self._batches, None)
        self._current = None if pair is None else self._filled(*pair)
        return self._note(self._current is not None)

    def next(self) -> DataBatch:
        if not self.iter_next():
            raise StopIteration
        assert self._current is not None
        return self._current

    def _filled(self, data: Any, label: Any) -> DataBatch:
        pad = self.batch_size - data.shape[0]
        arrays = [array.astype(self.dtype, copy=False) for array in (data, label)]
        if pad:
            arrays = [nd.concat(a, nd.zeros((pad, *a.shape[1:]), dtype=self.dtype), dim=0) for a in arrays]
        return DataBatch(arrays[:1], arrays[1:], pad)

    def getdata(self) -> Any:
        """Return the data of the current batch."""
        return self._current and self._current.data

    def getlabel(self) -> Any:
        """Return the labels of the current batch."""
        return self._current and self._current.label

    def getpad(self) -> Any:
        """Return the number of padding samples in the current batch."""
        return self._current and self._current.pad
