"""Floats to bytes and back."""

import numpy as np

from parity.spec import const, f, family, ints, outcome

case, program = family(__name__)

DATA = f(4, 6, lo=-3, hi=3)
LOW, HIGH = const([-1.2]), const([2.3])

for out_type in ("uint8", "int8"):
    case("_contrib_quantize", DATA, LOW, HIGH, _grad=False, out_type=out_type)
    case("_contrib_quantize", DATA, const([-2.5]), const([0.5]), _grad=False, out_type=out_type)
    case("_contrib_quantize", f(2, 3, 4, 4, lo=0), const([0.0]), const([1.0]), _grad=False, out_type=out_type)
    case("_contrib_quantize_v2", DATA, _grad=False, out_type=out_type)
    case("_contrib_quantize_v2", f(2, 3, 4, 4), _grad=False, out_type=out_type)
    case(
        "_contrib_requantize",
        ints(4, 6, lo=-(2**28), hi=2**28, dtype="int32"),
        LOW,
        HIGH,
        _grad=False,
        out_type=out_type,
    )
for out_type in ("uint8", "int8", "auto"):
    for low in (-1.7, 0.0, 0.3):
        case("_contrib_quantize_v2", DATA, _grad=False, out_type=out_type, min_calib_range=low, max_calib_range=1.3)
        case(
            "_contrib_requantize",
            ints(4, 6, lo=-(2**30), hi=2**30, dtype="int32"),
            LOW,
            HIGH,
            _grad=False,
            out_type=out_type,
            min_calib_range=low,
            max_calib_range=0.7,
        )
case("_contrib_quantize_v2", ints(3, 4, lo=0, hi=100, dtype="uint8"), _grad=False, out_type="uint8")
case("_contrib_quantize_v2", ints(3, 4, lo=-100, hi=100, dtype="int8"), _grad=False, out_type="int8")
case("_contrib_dequantize", ints(3, 4, lo=0, hi=256, dtype="uint8"), LOW, HIGH, _grad=False)
case("_contrib_dequantize", ints(3, 4, lo=-127, hi=128, dtype="int8"), LOW, HIGH, _grad=False)
case("_contrib_dequantize", ints(2, 3, 2, 2, lo=-127, hi=128, dtype="int8"), LOW, HIGH, _grad=False)
# MXNet dies of data that has not three dimensions.
case("_contrib_quantize_asym", f(2, 3, 4, lo=-1, hi=3), _grad=False)
case("_contrib_quantize_asym", f(2, 3, 4, lo=-1, hi=3), _grad=False, min_calib_range=-0.5, max_calib_range=2.0)


@program
def entropy_calibration(mx):
    rng = np.random.RandomState(1)
    results = []
    for values, bins, quantized in [
        (rng.normal(size=10000), 101, 15),
        (rng.normal(size=10000), 101, 31),
        (rng.normal(size=300), 201, 31),
        (rng.exponential(size=1000), 301, 25),
        (rng.laplace(size=5000), 401, 63),
    ]:
        reach = np.abs(values).max()
        hist, edges = np.histogram(values, bins=bins, range=(-reach, reach))
        threshold, divergence = mx.nd.contrib.calibrate_entropy(
            mx.nd.array(hist), mx.nd.array(edges), num_quantized_bins=quantized
        )
        # MXNet adds up many small numbers in single precision
        results += [threshold, np.round(divergence.asnumpy(), 4)]
    return results


@program
def there_and_back(mx):
    x = mx.nd.array(np.linspace(-3, 3, 24).reshape(4, 6))
    results = []
    for out_type in ("int8", "uint8"):
        data, low, high = mx.nd.contrib.quantize_v2(x, out_type=out_type, min_calib_range=-2.0, max_calib_range=2.0)
        results += [data, mx.nd.contrib.dequantize(data, low, high)]
    return results


@program
def what_they_refuse(mx):
    def array(shape, dtype):
        return mx.nd.array(np.ones(shape), dtype=dtype)

    low, high = mx.nd.array([-1.0]), mx.nd.array([1.0])
    pair = mx.nd.array([-1.0, 1.0])
    calls = [
        lambda: mx.nd.contrib.quantize(array((2,), "float64"), low, high),
        lambda: mx.nd.contrib.quantize(array((2,), "float32"), pair, pair),
        lambda: mx.nd.contrib.quantize(array((2,), "float32"), low, high, out_type="int32"),
        lambda: mx.nd.contrib.quantize_v2(array((2,), "float16")),
        lambda: mx.nd.contrib.dequantize(array((2,), "int32"), low, high),
        lambda: mx.nd.contrib.requantize(array((2,), "float32"), low, high),
        lambda: mx.nd.contrib.quantize_asym(array((2,), "uint8")),
    ]
    return [outcome(call) for call in calls]
