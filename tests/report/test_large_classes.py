"""Known classes that are much larger than their labels suggest."""

import numpy as np

from helping.small_runs import write_run
from newfound.report import look_through
from newfound.report.large_classes import large_known_classes
from newfound.screen import Screen

QUIET = Screen(quiet=True)


def run_of(labelled, unlabelled, new=20):
    """``given`` and ``classes`` of images of known classes, and of one new class."""
    given, classes = [], []
    for k, (some, others) in enumerate(zip(labelled, unlabelled, strict=True)):
        given += [k] * some + [-1] * others
        classes += [k] * (some + others)
    return np.array(given + [-1] * new), np.array(classes + [len(labelled)] * new)


def found_in(labelled, unlabelled):
    given, classes = run_of(labelled, unlabelled)
    found = large_known_classes(np.ones((len(given), 2)), given, classes, len(labelled))
    return [item.class_ for item in found]


def test_a_class_with_one_label_that_took_in_a_new_class_stands_out():
    assert found_in([10, 11, 9, 10, 1], [10, 9, 12, 10, 18]) == [4]
    assert found_in([10, 11, 9, 10, 1], [10, 9, 12, 10, 3]) == []  # as large as chance may make it


def test_two_of_them_do_not_hide_each_other():
    assert found_in([10, 11, 9, 10, 1, 1], [10, 9, 12, 10, 18, 30]) == [5, 4]  # the larger excess first


def test_labels_of_a_fixed_number_per_class_say_nothing_about_sizes():
    assert found_in([5] * 8, [10, 20, 30, 40, 60, 80, 100, 120]) == []


def test_nothing_is_reported_without_classes_to_compare_with():
    assert found_in([10, 10, 1], [10, 10, 40]) == []
    assert large_known_classes(np.ones((4, 2)), np.full(4, -1), np.zeros(4, np.int64), 0) == []


def test_where_all_others_are_labelled_throughout_a_few_images_are_not_many():
    assert found_in([20, 20, 20, 1], [0, 0, 0, 2]) == []
    assert found_in([20, 20, 20, 1], [0, 0, 0, 12]) == [3]


def test_labels_given_at_random_are_rarely_called_too_few():
    random = np.random.default_rng(0)
    listed = 0
    for _ in range(100):
        sizes = random.integers(10, 120, 20)
        labelled = np.maximum(random.binomial(sizes, random.uniform(0.1, 0.6)), 1)
        listed += len(found_in(labelled.tolist(), (sizes - labelled).tolist()))
    assert listed <= 4  # of 2,000 classes


def test_labels_the_model_contradicts_count_for_their_own_class():
    given, classes = run_of([10, 10, 10, 10], [10, 10, 10, 10])
    classes[:10] = 3  # the model puts all labelled images of class 0 elsewhere
    assert large_known_classes(np.ones((len(given), 2)), given, classes, 4) == []


def test_the_images_shown_are_those_least_like_the_labelled_ones():
    given, classes = run_of([10, 10, 10, 1], [10, 10, 10, 30], new=0)
    places = np.tile([1.0, 0.0], (len(given), 1))
    members = np.flatnonzero((given < 0) & (classes == 3))
    places[members[5:12]] = [0.0, 1.0]
    (found,) = large_known_classes(places, given, classes, 4)
    assert found.images[:7] == tuple(members[5:12])
    assert (found.labelled, found.size, found.expected) == (1, 31, 2)


def test_the_page_lists_it(tmp_path):
    given, classes = run_of([5, 5, 5, 1], [5, 5, 5, 19], new=4)
    names = ("a", "b", "c", "sphynx", "new-1")
    files = [f"{i}.png" for i in range(len(given))]
    results = write_run(tmp_path, files, classes.tolist(), names, 4, given=given.tolist())
    content, thumbnails = look_through(results, QUIET)
    (item,) = content["findings"]["large"]
    assert item["class"] == 3
    assert item["reason"] == ("1 labelled image, 20 images in total; the other known classes suggest about 2.")
    assert set(item["images"]) <= thumbnails.pictures.keys()
    assert "1 known class is much larger than its labels suggest and may have taken in a new one." in content["summary"]
