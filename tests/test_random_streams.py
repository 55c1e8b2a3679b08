from newfound import random_streams


def test_the_numbers_are_pinned():
    """Another number is another run: results would no longer be those of earlier versions."""
    numbers = {name: value for name, value in vars(random_streams).items() if name.isupper()}
    assert numbers == {
        "SAMPLER": 1,
        "STEP_VIEWS": 2,
        "SEMI_KMEANS": 3,
        "HESSIAN_TRACE": 4,
        "HESSIAN_LANCZOS": 5,
        "CLASS_COUNT": 6,
        "MODEL_REFERENCES": 7,
        "MEMORY_VIEWS": 8,
        "METHOD_STEP": 9,
        "WHITENING_CHECK": 10,
        "HIDDEN_CLASSES": 11,
        "HIDDEN_IMAGES": 12,
    }
