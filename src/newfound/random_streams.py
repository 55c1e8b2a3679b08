"""The numbers of the random streams.

Everything random is drawn from ``np.random.default_rng([seed, stream, number])``, so that two different choices never
share their random numbers, and neither order nor interruptions matter. A new choice gets a new number here.
"""

SAMPLER = 1  # which images an epoch sees, in which order
STEP_VIEWS = 2  # which views a training step sees
SEMI_KMEANS = 3  # first centres of semi-supervised k-means
HESSIAN_TRACE = 4
HESSIAN_LANCZOS = 5
CLASS_COUNT = 6  # samples of a class count
MODEL_REFERENCES = 7  # images that a model keeps as references
MEMORY_VIEWS = 8  # views of all images between epochs
METHOD_STEP = 9  # a method's own draws in a step
WHITENING_CHECK = 10  # known classes and labelled images of the check
HIDDEN_CLASSES = 11  # known classes that play new ones in a split of tune
HIDDEN_IMAGES = 12  # labelled images of the other classes that play unlabelled ones
