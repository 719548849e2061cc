"""Random numbers of mx.np: shapes, dtypes, and what does not depend on the numbers."""

from ..spec import family, outcome

case, program = family(__name__)


def shapes_and_dtypes(mx, calls):
    """The shape and dtype of what each call gives, or its kind of error."""
    mx.npx.set_np()
    try:
        told = []
        for call in calls:
            result = outcome(call)
            told.append(result if isinstance(result, str) else "%s %s" % (result.shape, result.dtype))
        return told
    finally:
        mx.npx.reset_np()


@program
def np_random_shapes(mx):
    random = mx.np.random
    one = mx.nd.array([0.5, 1, 2]).as_np_ndarray()
    two = mx.nd.array([[0.5, 1, 2], [2, 1, 0.5]]).as_np_ndarray()
    calls = []
    for name in ("uniform", "normal", "lognormal", "logistic", "gumbel", "gamma", "beta"):
        f = getattr(random, name)
        calls += [lambda f=f: f(1.0, 2.0), lambda f=f: f(1.0, 2.0, size=3), lambda f=f: f(1.0, 2.0, size=(2, 0))]
        calls += [lambda f=f: f(one, 2.0), lambda f=f: f(1.0, two), lambda f=f: f(one, two)]
        calls += [lambda f=f: f(one, 2.0, size=(4, 2, 3)), lambda f=f: f(one, 2.0, size=3)]
    for name in ("uniform", "normal", "lognormal", "gamma", "beta"):
        f = getattr(random, name)
        calls += [lambda f=f, d=d: f(1.0, 2.0, size=2, dtype=d) for d in ("float16", "float32", "float64")]
    for name in ("exponential", "rayleigh", "weibull", "pareto", "power", "chisquare"):
        f = getattr(random, name)
        calls += [lambda f=f: f(1.0), lambda f=f: f(1.0, size=3), lambda f=f: f(two), lambda f=f: f(one, size=(2, 3))]
    calls += [random.rand, lambda: random.rand(2, 3), random.randn, lambda: random.randn(2, 3)]
    calls += [lambda: random.randint(5), lambda: random.randint(2, 5, size=(2, 3))]
    calls += [lambda d=d: random.randint(0, 9, size=2, dtype=d) for d in ("int32", "int64", "int", "float32")]
    calls += [lambda: random.choice(5), lambda: random.choice(5, 3), lambda: random.choice(5, (2, 2), replace=False)]
    calls += [lambda: random.choice(two, 4), lambda: random.choice(one, 3, p=one), lambda: random.choice(3, 2, p=one)]
    calls += [lambda: random.multinomial(5, [0.5, 0.5]), lambda: random.multinomial(5, [0.2] * 5, size=(2, 3))]
    cov = mx.nd.array([[2, 0, 0], [0, 1, 0.5], [0, 0.5, 1]]).as_np_ndarray()
    calls += [lambda size=size: random.multivariate_normal(one, cov, size=size) for size in (None, 4, (2, 4))]
    calls += [lambda: random.multivariate_normal(two, cov, size=4)]
    npx = mx.npx.random
    calls += [npx.normal_n, lambda: npx.normal_n(one, two), lambda: npx.normal_n(one, 1.0, batch_shape=(4, 2))]
    calls += [npx.uniform_n, lambda: npx.uniform_n(one, two), lambda: npx.uniform_n(one, 9.0, batch_shape=4)]
    calls += [lambda: npx.bernoulli(0.5), lambda: npx.bernoulli(logit=one), lambda: npx.bernoulli(0.5, size=(2, 3))]
    calls += [lambda d=d: npx.bernoulli(0.5, size=2, dtype=d) for d in ("bool", "int32", "uint8", "float64")]
    calls += [npx.bernoulli, lambda: npx.bernoulli(0.5, 0.5), lambda: npx.seed("a")]
    calls += [lambda: random.uniform(0, 1, dtype="int32")]
    return shapes_and_dtypes(mx, calls)


@program
def np_random_gradients(mx):
    """Gradients divided by what the numbers that were drawn say they must be."""
    mx.npx.set_np()
    try:
        np, results = mx.np, []
        for name in ("uniform", "normal", "logistic", "gumbel", "lognormal", "gamma"):
            loc, scale = np.array([0.5, 1, 2]), np.array([[1, 2, 3], [0.5, 1, 4]])
            loc.attach_grad()
            scale.attach_grad()
            with mx.autograd.record():
                drawn = getattr(np.random, name)(loc, scale)
            drawn.backward()
            if name == "lognormal":
                results += [abs(loc.grad - drawn.sum(axis=0)) < 1e-3]
            elif name in ("uniform", "gamma"):
                results += [loc.grad, scale.grad]
            else:
                results += [loc.grad, abs(scale.grad - (drawn - loc) / scale) < 1e-3]
        for name in ("exponential", "rayleigh", "power", "weibull", "pareto"):
            a = np.array([0.5, 1, 2])
            a.attach_grad()
            with mx.autograd.record():
                drawn = getattr(np.random, name)(a)
            drawn.backward()
            expected = drawn / a
            if name == "power":
                expected = drawn * 0
            elif name == "weibull":
                expected = -drawn * np.log(drawn) / a
            elif name == "pareto":
                expected = -(drawn + 1) * np.log(drawn + 1) / a
            results += [abs(a.grad - expected) < 1e-3 * (1 + abs(expected))]
        return results
    finally:
        mx.npx.reset_np()


@program
def np_random_repeats_and_writes(mx):
    mx.npx.set_np()
    try:
        np, results = mx.np, []
        drawn = []
        for seed in (mx.random.seed, mx.npx.random.seed):
            seed(3)
            drawn.append(np.random.normal(size=4))
        results += [drawn[0] == drawn[1], np.random.normal(size=4) == drawn[0]]
        out = np.zeros((2, 3))
        results += [np.random.uniform(1, 2, size=(2, 3), out=out) is out, out >= 1]
        x = np.array([[0, 1], [2, 3], [4, 5]])
        results += [str(np.random.shuffle(x)), x.sum(axis=0), x.sum(axis=1).sum()]
        results += [np.random.choice(5, 3, p=np.array([0, 0, 1, 0, 0])), np.random.choice(4, 4, replace=False).sum()]
        results += [np.random.multinomial(20, [0.3, 0.7], size=(2, 2)).sum(axis=-1)]
        return results
    finally:
        mx.npx.reset_np()
