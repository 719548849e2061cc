def get_operator_support(opset_version=None):
    return []
