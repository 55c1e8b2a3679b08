"""Labels of the estimator, as people write them."""

import pytest

from newfound.estimator_labels import encoded


@pytest.mark.parametrize("word", ["unlabelled", "Unlabeled", "unknown", "other"])
def test_a_word_for_no_label_is_a_class_with_a_warning(word):
    with pytest.warns(UserWarning, match=f"y has '{word}', which is taken as the name of a class; .* use -1 or None"):
        targets, known = encoded(["cat", word, "cat"])
    assert known.tolist() == sorted(["cat", word])
    assert (targets >= 0).all()


def test_ordinary_labels_come_without_a_warning(recwarn):
    encoded(["cat", None, "", -1, "otter"])
    encoded([0, 1, -1])
    assert not recwarn.list
