"""The ops that can be exported to ONNX, measured by `scripts/measure_onnx.py`: onnxruntime computes the same values."""

from __future__ import annotations

from ..ops.table import get_op

_MEASURED = """
    Activation BatchNorm BilinearSampler BlockGrad Cast Concat Convolution Convolution_v1 Correlation Crop
    Deconvolution Dropout Embedding Flatten FullyConnected GridGenerator GroupNorm InstanceNorm L2Normalization
    LRN LayerNorm LeakyReLU LinearRegressionOutput LogisticRegressionOutput MAERegressionOutput MakeLoss Pad
    Pooling Pooling_v1 RNN Reshape SVMOutput SequenceLast SequenceMask SequenceReverse SliceChannel
    SoftmaxActivation SoftmaxOutput SpatialTransformer SwapAxis UpSampling _arange _contrib_AdaptiveAvgPooling2D
    _contrib_BatchNormWithReLU _contrib_BilinearResize2D _contrib_DeformableConvolution
    _contrib_MultiBoxDetection _contrib_MultiBoxPrior _contrib_SparseEmbedding _contrib_SyncBatchNorm
    _contrib_allclose _contrib_arange_like _contrib_backward_gradientmultiplier _contrib_boolean_mask
    _contrib_box_decode _contrib_box_iou _contrib_dequantize _contrib_div_sqrt_dim _contrib_gradientmultiplier
    _contrib_index_array _contrib_index_copy _contrib_interleaved_matmul_encdec_qk
    _contrib_interleaved_matmul_encdec_valatt _contrib_interleaved_matmul_selfatt_qk
    _contrib_interleaved_matmul_selfatt_valatt _contrib_quadratic _contrib_quantize _contrib_quantize_asym
    _contrib_requantize _contrib_round_ste _contrib_sign_ste _copy _cvcopyMakeBorder _cvimresize _div_scalar
    _equal _equal_scalar _full _grad_add _greater _greater_equal _greater_equal_scalar _greater_scalar
    _identity_with_attr_like_rhs _image_adjust_lighting _image_crop _image_flip_left_right
    _image_flip_top_bottom _image_resize _image_to_tensor _lesser _lesser_equal _lesser_equal_scalar
    _lesser_scalar _linalg_det _linalg_extractdiag _linalg_extracttrian _linalg_gemm _linalg_gemm2
    _linalg_makediag _linalg_maketrian _linalg_sumlogdiag _linalg_syrk _linalg_trmm _linspace _logical_and
    _logical_and_scalar _logical_or _logical_or_scalar _logical_xor _logical_xor_scalar _maximum _maximum_scalar
    _minimum _minimum_scalar _minus_scalar _mod _mod_scalar _mul_scalar _not_equal _not_equal_scalar
    _onehot_encode _ones _plus_scalar _power _power_scalar _ravel_multi_index _rdiv_scalar _rminus_scalar
    _rmod_scalar _rnn_param_concat _rpower_scalar _scatter_elemwise_div _scatter_minus_scalar
    _scatter_plus_scalar _slice_assign _slice_assign_scalar _split_v2 _unravel_index _zeros abs add_n all_finite
    amp_cast amp_multicast arccos arccosh arcsin arcsinh arctan arctanh argmax argmax_channel argmin argsort
    batch_dot batch_take broadcast_add broadcast_axis broadcast_div broadcast_equal broadcast_greater
    broadcast_greater_equal broadcast_lesser broadcast_lesser_equal broadcast_like broadcast_logical_and
    broadcast_logical_or broadcast_logical_xor broadcast_maximum broadcast_minimum broadcast_mod broadcast_mul
    broadcast_not_equal broadcast_power broadcast_sub broadcast_to cbrt ceil clip col2im cos cosh cumsum degrees
    depth_to_space diag dot elemwise_add elemwise_div elemwise_mul elemwise_sub erf exp expand_dims expm1
    fill_element_0index fix floor gather_nd hard_sigmoid im2col khatri_rao log log10 log1p log2 log_softmax
    logical_not make_loss max mean min moments multi_all_finite nanprod nansum negative norm one_hot ones_like
    pick prod radians rcbrt reciprocal relu repeat reshape_like reverse rint round rsqrt scatter_nd shape_array
    sigmoid sign sin sinh size_array slice slice_axis slice_like smooth_l1 softmax softmax_cross_entropy softmin
    softsign sort space_to_depth sqrt square squeeze stack sum take tan tanh tile topk transpose trunc where
    zeros_like
""".split()  # noqa: SIM905


def get_operator_support(opset_version: int | None = None) -> list[str]:
    """Return the names of the ops that `export_model` supports, for any opset."""
    return sorted({name for measured in _MEASURED for name in get_op(measured).names})
