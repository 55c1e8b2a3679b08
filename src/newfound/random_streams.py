"""Everything random is drawn from (seed, stream, number): no two kinds of draws share a stream."""

SAMPLER = 1  # which images make up an epoch
VIEWS = 2  # which views a step sees
SEMI_KMEANS = 3
HESSIAN_TRACE = 4
LANCZOS = 5
CLASS_COUNT = 6  # samples that classes are counted on
REFERENCES = 7  # of a model
MEMORY_VIEWS = 8  # which views of all images a method looks at between epochs
OF_METHOD = 9  # whatever else a method draws in a step
