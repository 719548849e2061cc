"""Datasets, samplers, and DataLoader, which creates batches."""

from . import audio, dataloader, dataset, place, sampler, shard, text, vision
from .dataloader import DataLoader
from .dataset import ArrayDataset, Dataset, RecordFileDataset, SimpleDataset
from .sampler import BatchSampler, FilterSampler, RandomSampler, Sampler, SequentialSampler, SplitSampler
from .shard import ShardedDataset

__all__ = [
    "ArrayDataset",
    "BatchSampler",
    "DataLoader",
    "Dataset",
    "FilterSampler",
    "RandomSampler",
    "RecordFileDataset",
    "Sampler",
    "SequentialSampler",
    "ShardedDataset",
    "SimpleDataset",
    "SplitSampler",
    "audio",
    "dataloader",
    "dataset",
    "place",
    "sampler",
    "shard",
    "text",
    "vision",
]
