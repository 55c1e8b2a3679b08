"""The splits, image by image those of the released code; and anything else refused."""

import json
import tarfile
from io import BytesIO

import numpy as np
import pytest

from helping.fake_datasets import (
    cub_rows,
    empty_zip,
    golden_classes,
    golden_targets,
    python2_pickle,
    relaxed,
    touch,
    write_aircraft,
    write_cars,
    write_cub_lists,
)
from newfound.errors import UserError
from newfound.research.datasets import DATASETS, aircraft, cars, cifar, folders, load_benchmark
from newfound.research.datasets.benchmark import check_class_names, draw_labelled, short_hash
from newfound.research.datasets.facts import published


def check_golden(benchmark, split):
    assert benchmark.labelled.tolist() == sorted(split["labelled_positions"].tolist())
    assert benchmark.known == tuple(split["known_classes"].tolist())
    assert benchmark.new == tuple(split["novel_classes_in_order"].tolist())
    targets = golden_targets(split)
    assert (benchmark.targets() == targets).all()
    labels = benchmark.labels()
    assert (labels[split["labelled_positions"]] == split["labelled_targets_remapped"]).all()
    assert (labels[split["unlabelled_positions"]] == -1).all()


@pytest.fixture
def cub(golden):
    return cub_rows(golden)


@pytest.fixture(scope="module")
def cars_classes(golden):
    return golden_classes(np.load(golden / "split_scars_p50.npz"))


def test_cub_is_the_published_split(tmp_path, golden, cub):
    lists = write_cub_lists(tmp_path / "lists", cub)
    archive = empty_zip(tmp_path / "cub.zip", [row[1] for row in cub if row[3]])
    benchmark = load_benchmark("cub", archive, lists=lists)
    split = np.load(golden / "split_cub_p50.npz")
    check_golden(benchmark, split)
    ids = [row[0] for row in cub if row[3]]
    assert sorted(ids[p] for p in benchmark.labelled) == sorted(split["labelled_image_ids"].tolist())
    assert benchmark.class_names[0] == "001.Black_footed_Albatross"


@pytest.mark.parametrize("inside", ["", "CUB_200_2011"])
def test_cub_as_its_owner_lays_it_out(tmp_path, golden, cub, inside):
    base = write_cub_lists(tmp_path / inside, cub)
    touch(base / "images", [row[1] for row in cub])
    check_golden(load_benchmark("cub", tmp_path), np.load(golden / "split_cub_p50.npz"))


def test_cub_sorted_by_file_name_is_refused(tmp_path, cub):
    in_order = sorted(cub, key=lambda row: (row[1].split("/")[0], str(row[0])[::-1]))
    lists = write_cub_lists(tmp_path / "lists", in_order)
    archive = empty_zip(tmp_path / "cub.zip", [row[1] for row in cub])
    with pytest.raises(UserError, match=r"cub: the labelled images are not those of the published split .*caltech"):
        load_benchmark("cub", archive, lists=lists)


def test_cub_with_another_class_list_is_refused(tmp_path, cub):
    base = write_cub_lists(tmp_path, cub)
    lines = (base / "classes.txt").read_text().splitlines()
    lines[3], lines[4] = "4 " + lines[4].split()[1], "5 " + lines[3].split()[1]
    (base / "classes.txt").write_text("\n".join(lines))
    with pytest.raises(UserError, match=r"classes\.txt: class 4 is '005\.Crested_Auklet', and '004\.Groove_billed_Ani"):
        load_benchmark("cub", tmp_path)


def test_cub_with_a_changed_label_is_refused(tmp_path, cub):
    swapped = [(i, f, 200 if label == 199 else label, t) for i, f, label, t in cub]
    with pytest.raises(UserError, match=r"is of class '200\.Common_Yellowthroat' by the lists"):
        load_benchmark("cub", write_cub_lists(tmp_path, swapped))


def test_cub_without_some_images_names_them(tmp_path, cub):
    lists = write_cub_lists(tmp_path / "lists", cub)
    files = [row[1] for row in cub if row[3]]
    archive = empty_zip(tmp_path / "cub.zip", files[:-2])
    with pytest.raises(UserError, match=rf"cub\.zip: 2 images of cub are not there: {files[-2]}.*caltech"):
        load_benchmark("cub", archive, lists=lists)


def test_cars_is_the_published_split(tmp_path, golden, cars_classes):
    benchmark = load_benchmark("cars", write_cars(tmp_path, cars_classes))
    check_golden(benchmark, np.load(golden / "split_scars_p50.npz"))
    assert benchmark.class_names[benchmark.known[0]] == "Acura RL Sedan 2012"
    assert short_hash(sorted(benchmark.files[p] for p in benchmark.labelled)) == "7a565b1bdd6b1ce4"


def cars_from_memory(monkeypatch, files, classes):
    monkeypatch.setattr(cars, "find", lambda facts, places: places[0])
    monkeypatch.setattr(cars, "check_files", lambda facts, folder, files: None)
    monkeypatch.setattr(cars, "_read_annotations", lambda facts, path: (files, np.asarray(classes)))


def test_cars_in_alphabetical_ids_is_refused(tmp_path, monkeypatch, cars_classes):
    names = published("cars").class_names
    rank = {number: place for place, number in enumerate(sorted(range(196), key=lambda k: names[k]))}
    files = [f"{number:05d}.jpg" for number in range(1, 8145)]
    cars_from_memory(monkeypatch, files, [rank[k] for k in cars_classes])
    with pytest.raises(UserError, match=r"cars: .* (published split|the published split has)"):
        load_benchmark("cars", tmp_path)


def test_cars_in_another_order_is_refused(tmp_path, monkeypatch, cars_classes):
    files = [f"{number:05d}.jpg" for number in range(8144, 0, -1)]
    cars_from_memory(monkeypatch, files, cars_classes[::-1])
    with pytest.raises(UserError, match="in another order"):
        load_benchmark("cars", tmp_path)


def test_cars_with_two_known_classes_exchanged_is_refused(tmp_path, monkeypatch, cars_classes):
    """The labelled images are the right ones then; only their classes are not."""
    first, second = published("cars").known[:2]
    exchanged = np.arange(196)
    exchanged[[first, second]] = second, first
    files = [f"{number:05d}.jpg" for number in range(1, 8145)]
    cars_from_memory(monkeypatch, files, exchanged[cars_classes])
    with pytest.raises(UserError, match="cars: the classes of the images, in order, are not those of the published"):
        load_benchmark("cars", tmp_path)


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_cifar_is_the_published_split(golden, name):
    split = np.load(golden / f"split_{name}_p50.npz")
    pixels = np.broadcast_to(np.uint8(0), (50_000, 3072))
    form = {"cifar10": cifar._CIFAR10, "cifar100": cifar._CIFAR100}[name]
    batch = {"data": pixels, form.labels: split["labels_official_order"].tolist()}
    benchmark = cifar._from_batches(published(name), form, [batch])
    check_golden(benchmark, split)


def test_cifar10_from_the_owners_archive(tmp_path, golden):
    """All of it, written as Python 2 did, batches in another order than they are to be read."""
    split = np.load(golden / "split_cifar10_p50.npz")
    labels = split["labels_official_order"].reshape(5, -1)
    with tarfile.open(tmp_path / "cifar-10-python.tar.gz", "w:gz", compresslevel=1) as archive:
        for number in (4, 1, 3, 5, 2):
            pixels = np.zeros((10_000, 3072), np.uint8)
            pixels[0] = np.arange(3072) % 251 + number
            batch = {"labels": labels[number - 1].tolist(), "data": pixels, "batch_label": "training batch"}
            content = python2_pickle(batch)
            entry = tarfile.TarInfo(f"cifar-10-batches-py/data_batch_{number}")
            entry.size = len(content)
            archive.addfile(entry, BytesIO(content))
    benchmark = load_benchmark("cifar10", tmp_path)
    check_golden(benchmark, split)
    expected = (np.arange(3072) % 251 + 2).reshape(3, 32, 32).transpose(1, 2, 0)
    assert (np.asarray(benchmark.open(10_000)) == expected).all()
    assert benchmark.digest(0) != benchmark.digest(10_000)
    assert benchmark.digest(1) == benchmark.digest(2)


def test_cifar_with_batches_swapped_is_refused(golden):
    labels = np.load(golden / "split_cifar10_p50.npz")["labels_official_order"]
    pixels = np.broadcast_to(np.uint8(0), (50_000, 3072))
    batch = {"data": pixels, "labels": np.roll(labels, 10_000).tolist()}
    with pytest.raises(UserError, match="in another order"):
        cifar._from_batches(published("cifar10"), cifar._CIFAR10, [batch])


def write_subset(path, labels, positions, names=None):
    images = np.zeros((len(labels), 32, 32, 3), np.uint8)
    names = np.array(names or published("cifar100").class_names)
    np.savez_compressed(path, images=images, fine_labels=labels, official_index=positions, class_names=names)
    return path


def test_cifar100_subset_is_called_so(tmp_path):
    labels = (np.arange(10_000) % 100).astype(np.uint8)
    benchmark = load_benchmark("cifar100", write_subset(tmp_path / "subset.npz", labels, 5 * np.arange(10_000)))
    assert benchmark.name == "cifar100-subset"
    assert (len(benchmark), len(benchmark.labelled), benchmark.files[1]) == (10_000, 4_000, "00005")
    with pytest.raises(UserError, match="not in CIFAR-100's order"):
        load_benchmark("cifar100", write_subset(tmp_path / "b.npz", labels, np.arange(10_000)[::-1]))
    with pytest.raises(UserError, match="not 100 images of each class"):
        load_benchmark("cifar100", write_subset(tmp_path / "c.npz", labels // 2, np.arange(10_000)))
    names = sorted(published("cifar100").class_names, reverse=True)
    with pytest.raises(UserError, match="class 1 is 'worm', and 'apple' in the published split"):
        load_benchmark("cifar100", write_subset(tmp_path / "d.npz", labels, np.arange(10_000), names))


def test_aircraft_classes_are_the_published_ones(tmp_path, golden):
    stored = np.load(golden / "classes_aircraft.npz")
    classes = np.sort(np.arange(6667) % 100)
    benchmark = load_benchmark("aircraft", write_aircraft(tmp_path, published("aircraft").class_names, classes))
    assert benchmark.known == tuple(stored["known_classes"].tolist())
    assert benchmark.new == tuple(stored["novel_classes_in_order"].tolist())
    assert (benchmark.classes == classes).all()
    assert len(benchmark.labelled) == int(0.5 * np.isin(classes, stored["known_classes"]).sum())


def test_aircraft_in_another_class_order_is_refused(tmp_path):
    names = published("aircraft").class_names
    with pytest.raises(UserError, match=r"variants\.txt: class 1 is 'Yak-42', and '707-320' in the published split"):
        load_benchmark("aircraft", write_aircraft(tmp_path, names[::-1], range(100)))
    with pytest.raises(UserError, match=r"variants\.txt: 99 classes, aircraft has 100"):
        load_benchmark("aircraft", write_aircraft(tmp_path / "b", names[:99], range(99)))


def test_aircraft_with_too_few_images_is_refused(tmp_path):
    with pytest.raises(UserError, match="aircraft: 100 training images, the published split has 6,667"):
        load_benchmark("aircraft", write_aircraft(tmp_path, published("aircraft").class_names, range(100)))


def test_aircraft_reads_names_with_spaces(tmp_path):
    lines = tmp_path / "list.txt"
    lines.write_text("0000001 Cessna 172\n0000002 A310\n")
    assert aircraft._read_list(lines, ["A310", "Cessna 172"])[1].tolist() == [1, 0]
    lines.write_text("0000001 Concorde\n")
    with pytest.raises(UserError, match="'0000001 Concorde' does not end in a variant"):
        aircraft._read_list(lines, ["A310"])


def test_herbarium_counts_folders_as_text(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "published", relaxed())
    touch(tmp_path / "small-train", [f"{number}/{image:05d}.jpg" for number in range(683) for image in range(2)])
    benchmark = load_benchmark("herbarium", tmp_path)
    assert benchmark.class_names[:5] == ("0", "1", "10", "100", "101")
    assert benchmark.files[4] == "10/00000.jpg"
    assert benchmark.classes[4] == 2
    (tmp_path / "small-train" / "683").mkdir()
    with pytest.raises(UserError, match="no class of herbarium: 683"):
        load_benchmark("herbarium", tmp_path)


def test_imagenet100_is_found_by_folder_names(tmp_path, monkeypatch):
    names = published("imagenet100").class_names
    touch(tmp_path / "train", [f"{name}/{name}_{image}.JPEG" for name in (*names, "n99999999") for image in range(2)])
    with pytest.raises(UserError, match="imagenet100: 200 training images, the published split has between 127,100"):
        load_benchmark("imagenet100", tmp_path)
    monkeypatch.setattr(folders, "published", relaxed())
    benchmark = load_benchmark("imagenet100", tmp_path)
    assert benchmark.class_names == names
    assert benchmark.classes.tolist() == np.repeat(np.arange(100), 2).tolist()
    assert (benchmark.known, benchmark.new) == (tuple(range(50)), tuple(range(50, 100)))


def test_imagenet100_with_a_thousand_other_folders_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "published", relaxed())
    names = published("imagenet100").class_names
    touch(tmp_path, [f"{name}/1.JPEG" for name in (*names, *(f"n9{number:07d}" for number in range(900)))])
    with pytest.raises(UserError, match="not those of ImageNet-1k"):
        load_benchmark("imagenet100", tmp_path)


def test_stored_class_lists_are_whole():
    for name in DATASETS[:-1]:
        facts = published(name)
        assert sorted([*facts.known, *facts.new]) == list(range(len(facts.known) + len(facts.new)))
        assert len(facts.class_names) in (0, len(facts.known) + len(facts.new))
        assert len(set(facts.class_names)) == len(facts.class_names)
    drawn = np.random.RandomState(0).choice(1000, 100, replace=False)  # as the released code does
    assert list(published("imagenet100").imagenet1k_ids) == sorted(drawn.tolist())


def test_draw_is_pooled_and_rounds_down():
    classes = np.array([0] * 7 + [1] * 4 + [2] * 9)
    labelled = draw_labelled(classes, [0, 1])
    assert len(labelled) == 5
    assert (classes[labelled] != 2).all()
    assert labelled.tolist() == sorted(np.random.RandomState(0).permutation(11)[:5].tolist())


def test_names_are_compared_one_by_one():
    facts = published("cifar10")
    check_class_names(facts, "meta", facts.class_names)
    with pytest.raises(UserError, match="meta: class 10 is 'lorry', and 'truck'"):
        check_class_names(facts, "meta", [*facts.class_names[:-1], "lorry"])


def test_package_holds_its_class_lists():
    from importlib import resources

    content = json.loads(resources.files("newfound.research.datasets").joinpath("classes.json").read_text())
    assert set(DATASETS) - {"folder"} <= set(content)
