"""Write tests/fixtures/convert with MXNet 1.9.1: a checkpoint of a small net, and its predictions.

python tests/record_convert.py
"""

import os

import mxnet as mx
import numpy as np

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixtures", "convert")


def net():
    data = mx.sym.var("data")
    x = mx.sym.Convolution(data, kernel=(3, 3), num_filter=4, pad=(1, 1), name="conv0")
    x = mx.sym.BatchNorm(x, name="bn0")  # its gamma is fixed: the value in the file is ignored
    x = mx.sym.LeakyReLU(x, act_type="prelu", name="prelu0")
    x = mx.sym.Pooling(x, kernel=(3, 3), stride=(2, 2), pool_type="max", pooling_convention="full", name="pool0")
    x = mx.sym.Dropout(x, p=0.5)
    x = mx.sym.FullyConnected(mx.sym.Flatten(x), num_hidden=5, name="fc0")
    return mx.sym.SoftmaxOutput(x, name="softmax")


def main():
    rng = np.random.RandomState(7)
    symbol = net()
    shapes, _, states = symbol.infer_shape(data=(2, 3, 8, 8))
    args = dict(zip(symbol.list_arguments(), shapes, strict=True))
    arguments = {
        name: mx.nd.array(rng.uniform(-0.5, 0.5, shape))
        for name, shape in args.items()
        if name not in ("data", "softmax_label")
    }
    auxiliary = {
        name: mx.nd.array(rng.uniform(0.5, 1.5, shape))
        for name, shape in zip(symbol.list_auxiliary_states(), states, strict=True)
    }
    os.makedirs(FOLDER, exist_ok=True)
    mx.model.save_checkpoint(os.path.join(FOLDER, "small"), 3, symbol, arguments, auxiliary)
    data = rng.uniform(-1, 1, (2, 3, 8, 8)).astype("float32")
    module = mx.mod.Module(symbol)
    module.bind([("data", data.shape)], [("softmax_label", (2,))], for_training=False)
    module.set_params(arguments, auxiliary)
    module.forward(mx.io.DataBatch([mx.nd.array(data)]), is_train=False)
    predicted = module.get_outputs()[0].asnumpy()
    np.savez(os.path.join(FOLDER, "small.npz"), data=data, predicted=predicted)


if __name__ == "__main__":
    main()
