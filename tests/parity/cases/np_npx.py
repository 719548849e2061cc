"""The functions of mx.npx, one call or a few of each."""

from parity.spec import const, f, family, ints, outcome

case, program = family(__name__)

for _name in ("relu", "sigmoid", "erf", "gammaln", "gamma", "log_softmax", "softmax", "batch_flatten", "shape_array"):
    case.np("npx." + _name, f(2, 3, lo=0.5, hi=2))
case.np("npx.erfinv", f(2, 3, lo=-0.9, hi=0.9))
case.np("npx.relu", f(2, 3, dtype="float64"))
case.np("npx.relu", f(0, 3))
case.np("npx.sigmoid", f())
case.np("npx.softmax", f(2, 3, 4), axis=1, temperature=2.0)
case.np("npx.softmax", f(2, 4), ints(2, lo=1, hi=4, dtype="int32"), axis=1, use_length=True)
case.np("npx.log_softmax", f(2, 3, 4), axis=0)
for _kind in ("relu", "sigmoid", "tanh", "softrelu", "softsign"):
    case.np("npx.activation", f(2, 3), act_type=_kind)
for _kind in ("leaky", "elu", "selu", "gelu"):
    case.np("npx.leaky_relu", f(2, 3), act_type=_kind)
case.np("npx.fully_connected", f(2, 3), f(4, 3), f(4), num_hidden=4)
case.np("npx.fully_connected", f(2, 5, 3), f(4, 3), num_hidden=4, no_bias=True, flatten=False)
case.np("npx.convolution", f(1, 2, 5, 5), f(3, 2, 3, 3), f(3), kernel=(3, 3), num_filter=3, pad=(1, 1))
case.np("npx.deconvolution", f(1, 2, 4, 4), f(2, 3, 3, 3), kernel=(3, 3), num_filter=3, stride=(2, 2), no_bias=True)
case.np("npx.pooling", f(1, 2, 6, 6), kernel=(2, 2), stride=(2, 2), pool_type="max")
case.np("npx.pooling", f(1, 2, 6, 6), pool_type="avg", global_pool=True, kernel=(1, 1))
case.np("npx.layer_norm", f(2, 3, 4), f(4), f(4), eps=1e-3)
case.np("npx.batch_norm", f(4, 3), f(3), f(3), f(3), f(3, lo=0.5, hi=1), fix_gamma=False, _grad=(0, 1, 2))
case.np("npx.dropout", f(2, 3), p=0.5, _train=False)
case.np("npx.embedding", ints(2, 3), f(5, 4), input_dim=5, output_dim=4, _grad=(1,))
case.np("npx.one_hot", ints(2, 3), 5)
case.np("npx.one_hot", ints(2, 3, dtype="int32"), depth=4, on_value=2.0, off_value=-1.0, dtype="float64")
case.np("npx.pick", f(2, 3), const([2, 0]))
case.np("npx.pick", f(2, 3), const([1, 0, 1]), axis=0, keepdims=True)
case.np("npx.topk", f(2, 5), k=2)
case.np("npx.topk", f(2, 5), k=3, ret_typ="value", axis=1)
case.np("npx.topk", f(2, 5), k=2, ret_typ="both", is_ascend=True, dtype="int32")
case.np("npx.batch_dot", f(2, 3, 4), f(2, 4, 5))
case.np("npx.batch_dot", f(2, 3, 4), f(2, 5, 4), transpose_b=True)
case.np("npx.softmax", f(4), length=const([2], dtype="int32"), use_length=True, axis=-1, _grad=(0,))
case.np("npx.sequence_mask", f(3, 2, 2), const([1, 2]), use_sequence_length=True, value=-1.0)
case.np("npx.sequence_mask", f(2, 3), const([1, 2]), use_sequence_length=True, axis=1)
case.np("npx.gather_nd", f(3, 4), const([[0, 2], [1, 3]], dtype="int64"))
case.np("npx.reshape_like", f(2, 6), f(3, 4))
case.np("npx.arange_like", f(2, 3), axis=1)
case.np("npx.arange_like", f(2, 3), start=2, step=0.5)
case.np("npx.slice", f(4, 5), begin=(1, 0), end=(3, 4), step=(1, 2))
case.np("npx.smooth_l1", f(2, 3, lo=-2, hi=2), scalar=1.5)
case.np("npx.cast", f(2, 3, lo=-3, hi=3), dtype="int32")
case.np("npx.nonzero", const([[1, 0, 2], [0, 0, 3]]))
case.np("npx.reshape", f(2, 3, 4), (-5, -4))
case.np("npx.reshape", f(6, 4), (-6, 2, -1, -2))
case.np("npx.roi_pooling", f(1, 2, 6, 6), const([[0, 0, 0, 3, 3]]), pooled_size=(2, 2), spatial_scale=1.0, _grad=(0,))
case.np("npx.multibox_prior", f(1, 2, 3, 3), sizes=(0.5, 0.3), ratios=(1, 2))
case.np("npx.rnn", f(3, 2, 2), f(36), f(1, 2, 2), state_size=2, num_layers=1, mode="gru")


@program.np
def constraints(mx):
    holds = mx.np.array([1.0, 2.0]) > 0
    return [
        mx.npx.constraint_check(holds, "all must hold"),
        outcome(lambda: mx.npx.constraint_check(mx.np.ones(2), "m")),
    ]


@program.np
def pictures(mx):
    x = mx.np.arange(2 * 4 * 3).reshape(2, 4, 3).astype("uint8")
    scaled = mx.npx.image.to_tensor(x)
    return [scaled, mx.npx.image.normalize(scaled, mean=(0.1, 0.2, 0.3), std=(0.5, 0.5, 0.5))] + [
        getattr(mx.npx.image, name)(x) for name in ("flip_left_right", "flip_top_bottom")
    ]
