"""Reading the files: what is missing is named, images come out, and no file makes us run anything."""

import hashlib
import io
import json
import os
import pickle
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from helping.fake_datasets import cub_rows, empty_zip, python2_pickle, relaxed, touch, write_cub_lists
from helping.pictures import write_class_folders
from newfound.errors import UserError
from newfound.research.datasets import flowers, load_benchmark
from newfound.research.datasets.image_table import table_of
from newfound.research.datasets.pickles import read_pickle
from newfound.research.datasets.sources import FileSource, ZipSource, class_files


def png(shade: int) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (5, 4), (shade, 0, 0)).save(stream, format="PNG")
    return stream.getvalue()


def write_folder(root: Path, classes=("ant", "bee", "cat"), each=4) -> Path:
    for number, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for image in range(each):
            (root / name / f"{image}.png").write_bytes(png(10 * number + image))
    return root


def write_lists(path: Path, content: object) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


# Missing files

MISSING = {
    "cifar10": (r"data_batch_1 is missing; it is part of CIFAR-10.*toronto\.edu", "cifar-10-python.tar.gz"),
    "cifar100": (r"train is missing; it is part of CIFAR-100.*toronto\.edu", "cifar-100-python"),
    "imagenet100": (r"100 of 100 class folders are missing: n01443537.*image-net\.org", "looked in"),
    "cub": (r"images\.txt is missing; it is part of CUB-200-2011.*caltech\.edu", "CUB_200_2011"),
    "cars": (r"cars_train_annos\.mat is missing; it is part of Stanford Cars.*stanford\.edu", "devkit"),
    "aircraft": (r"variants\.txt is missing; it is part of FGVC-Aircraft.*ox\.ac\.uk", "fgvc-aircraft-2013b"),
    "herbarium": (r"683 of 683 class folders are missing: 0.*visipedia", "looked in"),
    "flowers": (r"imagelabels\.mat is missing.*part of Oxford Flowers-102.*ox\.ac\.uk", "looked in"),
}


@pytest.mark.parametrize("name", MISSING)
def test_a_missing_file_is_named_with_its_owner_and_place(tmp_path, name):
    message, place = MISSING[name]
    with pytest.raises(UserError, match=message) as caught:
        load_benchmark(name, tmp_path)
    assert place in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_wrong_calls_are_explained(tmp_path):
    with pytest.raises(UserError, match="'mnist' is not a data set newfound can read; choose from cifar10"):
        load_benchmark("mnist", tmp_path)
    with pytest.raises(UserError, match="there is no such file or folder; give the place of cub"):
        load_benchmark("cub", tmp_path / "no")
    with pytest.raises(UserError, match="cars needs no --lists"):
        load_benchmark("cars", tmp_path, lists=tmp_path)
    with pytest.raises(UserError, match="a folder needs --lists"):
        load_benchmark("folder", tmp_path)
    with pytest.raises(UserError, match=r"needs --lists, the folder with images\.txt"):
        load_benchmark("cub", empty_zip(tmp_path / "a.zip", []))


def test_a_second_missing_file_is_named_too(tmp_path, golden):
    base = write_cub_lists(tmp_path, cub_rows(golden))
    (base / "train_test_split.txt").unlink()
    with pytest.raises(UserError, match=r"train_test_split\.txt is missing"):
        load_benchmark("cub", tmp_path)
    (base / "train_test_split.txt").write_text("1 1\nfoo\n")
    with pytest.raises(UserError, match=r"train_test_split\.txt, line 2: a number and a word are expected, not 'foo'"):
        load_benchmark("cub", tmp_path)


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "imagenet100", "herbarium", "flowers", "folder"])
def test_a_damaged_archive_is_refused(tmp_path, name):
    damaged = tmp_path / "data.tar.gz"
    damaged.write_bytes(b"\x1f\x8b\x08 not really")
    lists = write_lists(tmp_path / "lists.json", {"known": ["a"], "new": ["b"]}) if name == "folder" else None
    with pytest.raises(UserError, match=r"data\.tar\.gz: "):
        load_benchmark(name, damaged, lists=lists)


@pytest.mark.parametrize("content", [b"", b"MATLAB 5.0 MAT-file, or not", b"\0" * 500])
def test_a_damaged_matlab_file_is_refused(tmp_path, content):
    (tmp_path / "cars_train_annos.mat").write_bytes(content)
    with pytest.raises(UserError, match=r"cars_train_annos\.mat: `annotations` cannot be read from it"):
        load_benchmark("cars", tmp_path)


# A folder of one's own


def test_folder_in_native_order_and_in_the_order_of_the_lists(tmp_path):
    root = write_folder(tmp_path / "images")
    lists = write_lists(tmp_path / "lists.json", {"known": ["cat", "ant"], "new": ["bee"]})
    benchmark = load_benchmark("folder", root, lists=lists)
    assert benchmark.class_names == ("ant", "bee", "cat")
    assert (benchmark.known, benchmark.new) == ((2, 0), (1,))
    assert benchmark.files[:5] == ("ant/0.png", "ant/1.png", "ant/2.png", "ant/3.png", "bee/0.png")
    assert benchmark.targets().tolist() == [1] * 4 + [2] * 4 + [0] * 4
    assert len(benchmark.labelled) == 4


def test_labels_never_tell_more_than_the_labelled_classes(tmp_path):
    root = write_folder(tmp_path / "images")
    lists = write_lists(tmp_path / "lists.json", {"known": ["cat", "ant"], "new": ["bee"]})
    benchmark = load_benchmark("folder", root, lists=lists)
    labels = benchmark.labels()
    unlabelled = np.setdiff1d(np.arange(len(benchmark)), benchmark.labelled)
    assert (labels[unlabelled] == -1).all()
    assert (labels[benchmark.labelled] == benchmark.targets()[benchmark.labelled]).all()
    assert set(labels.tolist()) <= {-1, 0, 1}
    labels[:] = 0  # a copy: what training does to its labels cannot come back
    assert (benchmark.labels()[unlabelled] == -1).all()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"known": ["ant"], "new": ["bee"]}, "holds classes that .* does not name, as known or new: cat"),
        ({"known": ["ant", "dog"], "new": ["bee", "cat"]}, "names classes without an image in .*: dog"),
        ({"known": ["ant", "bee"], "new": ["bee", "cat"]}, "named twice: bee"),
        ({"known": [], "new": ["ant", "bee", "cat"]}, "no class is known"),
        ({"known": "ant", "new": []}, "two lists of class names are expected"),
        (["ant"], "two lists of class names are expected"),
        ("{", "not a readable JSON file"),
    ],
)
def test_folder_with_wrong_lists_is_refused(tmp_path, content, message):
    root = write_folder(tmp_path / "images", each=1)
    with pytest.raises(UserError, match=message):
        load_benchmark("folder", root, lists=write_lists(tmp_path / "lists.json", content))


@pytest.mark.parametrize("around", ["", "data/train/"])
def test_zip_gives_the_same_as_the_folder(tmp_path, around):
    root = write_folder(tmp_path / "images")
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
        for file in sorted(root.rglob("*.png"), reverse=True):
            archive.write(file, around + file.relative_to(root).as_posix())
        archive.writestr("__MACOSX/ant/._0.png", b"")
        archive.writestr("readme.txt", b"")
    lists = write_lists(tmp_path / "lists.json", {"known": ["cat", "ant"], "new": ["bee"]})
    one, other = (load_benchmark("folder", path, lists=lists) for path in (root, tmp_path / "images.zip"))
    assert one.files == other.files
    assert one.labels().tolist() == other.labels().tolist()
    assert [one.digest(p) for p in range(len(one))] == [other.digest(p) for p in range(len(other))]
    assert one.digest(5) == hashlib.sha256((root / one.files[5]).read_bytes()).hexdigest()
    assert other.open(5).tobytes() == one.open(5).tobytes()
    assert (other.open(5).mode, other.open(5).getpixel((0, 0))) == ("RGB", (11, 0, 0))


def test_zip_with_class_folders_in_two_places_is_refused(tmp_path):
    archive = empty_zip(tmp_path / "a.zip", ["train/ant/1.jpg", "test/ant/1.jpg"])
    with pytest.raises(UserError, match="class folders in several places: test; train"):
        class_files(archive)


def test_threads_read_a_zip_at_the_same_time(tmp_path):
    members = [f"a/{number}.png" for number in range(200)]
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for number, member in enumerate(members):
            archive.writestr(member, png(number))
    source = ZipSource(tmp_path / "a.zip", members)
    with ThreadPoolExecutor(8) as pool:
        images = list(pool.map(lambda number: source.open_with_digest(number % 200, None)[0], range(600)))
    assert [image.getpixel((0, 0))[0] for image in images] == [number % 200 for number in range(600)]


def test_an_unreadable_image_is_named(tmp_path):
    root = write_folder(tmp_path / "images", each=1)
    (root / "ant" / "0.png").write_bytes(b"hello")
    lists = write_lists(tmp_path / "lists.json", {"known": ["cat", "ant"], "new": ["bee"]})
    with pytest.raises(UserError, match=r"ant/0\.png: not a PNG"):
        load_benchmark("folder", root, lists=lists).open(0)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("ant/0.png", b"hello")
    with pytest.raises(UserError, match=r"a\.zip, ant/0\.png: not a PNG"):
        ZipSource(tmp_path / "a.zip", ["ant/0.png"]).open_with_digest(0, None)


def test_an_image_changed_after_it_was_looked_at_is_refused(tmp_path):
    """A bank goes by the content it was promised."""
    root, lists = write_class_folders(tmp_path)
    benchmark = load_benchmark("folder", root, lists=lists)
    table = table_of(benchmark, root)
    assert table.open(3).size == table.open(4).size
    (root / table.files[3]).write_bytes((root / table.files[4]).read_bytes())
    with pytest.raises(UserError, match=rf"{table.files[3]} in .* has changed since"):
        table.open(3)
    table.open(4)


def test_large_jpegs_are_decoded_smaller_from_a_zip_too(tmp_path):
    stream = io.BytesIO()
    Image.new("RGB", (800, 600)).save(stream, format="JPEG")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a/1.jpg", stream.getvalue())
    assert ZipSource(tmp_path / "a.zip", ["a/1.jpg"]).open_with_digest(0, 64)[0].size == (200, 150)


# Flowers


def test_flowers_is_one_split_in_both_forms(tmp_path, monkeypatch):
    monkeypatch.setattr(flowers, "published", relaxed())
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(1, 103), 3))
    numbers = np.arange(1, len(labels) + 1)
    for_test = [np.flatnonzero(labels == label)[0] + 1 for label in range(1, 103)]
    chosen = np.random.default_rng(1).permutation(np.setdiff1d(numbers, for_test))
    owner = touch(tmp_path / "owner", [f"jpg/image_{number:05d}.jpg" for number in numbers])
    savemat(owner / "imagelabels.mat", {"labels": labels[None]})
    savemat(owner / "setid.mat", {"trnid": chosen[None, :90], "valid": chosen[None, 90:], "tstid": [for_test]})
    names = [f"{labels[number - 1]}.name/image_{number:05d}.jpg" for number in sorted(chosen)]
    archive = empty_zip(tmp_path / "flowers.zip", names)
    one, other = (load_benchmark("flowers", path) for path in (owner, archive))
    assert list(one.files) == [file.split("/")[1] for file in other.files]
    assert one.classes.tolist() == other.classes.tolist() == sorted(other.classes.tolist())
    assert one.labelled.tolist() == other.labelled.tolist()


def test_flowers_folders_must_begin_with_a_class_id(tmp_path):
    with pytest.raises(UserError, match="the folder 'rose' does not begin with a class id from 1 to 102"):
        load_benchmark("flowers", touch(tmp_path, ["rose/1.jpg"]))


# Pickles


class Trap:
    """What an attacker would pickle."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("function", [os.system, eval, exec, np.load, np.array, getattr, pickle.loads])
def test_a_malicious_pickle_runs_nothing(tmp_path, protocol, function):
    mark = tmp_path / "was run"
    content = {"data": Trap(function, f"touch '{mark}'"), "fine_labels": [0]}
    (tmp_path / "train").write_bytes(pickle.dumps(content, protocol=protocol))
    with pytest.raises(UserError, match=r"train: refused, as it is not plain data.*nothing was run"):
        load_benchmark("cifar100", tmp_path)
    assert not mark.exists()


@pytest.mark.parametrize(
    "program",
    [
        b"cos\nsystem\n(S'touch run'\ntR.",  # protocol 0
        b"(S'touch run'\nios\nsystem\n.",  # INST
        b"\x80\x02cnumpy\nndarray\n)\x81.",  # NEWOBJ of a name that is allowed
        b"\x80\x02cnumpy\nndarray\n)R.",  # a call of a name that is allowed
        b"\x80\x02cnumpy\ndtype\nU\x01O\x85R.",  # objects as content
        b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x01x\x85R.",  # STACK_GLOBAL
        b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00hex\x86R.",  # another codec
        b"\x80\x02}}b.",  # state of a dictionary
        b"\x80\x02K\x01.",  # not a dictionary
        b"\x80\x02)K\x01a.",  # appends to a tuple
    ],
)
def test_every_other_instruction_is_refused(program):
    with pytest.raises(UserError, match="a file: refused, as it is not plain data"):
        read_pickle(io.BytesIO(program), "a file")


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_arrays_are_read_as_pickle_reads_them(protocol):
    data = np.random.default_rng(0).integers(0, 256, (3, 50), dtype=np.uint8)
    content = {b"data": data, b"labels": [0, 255, 70_000, -1, 1 << 40], "text": "ü", "none": None, "yes": True}
    read = read_pickle(io.BytesIO(pickle.dumps(content, protocol=protocol)), "a file")
    assert (read.pop("data") == data).all()
    assert read == {"labels": content[b"labels"], "text": "ü", "none": None, "yes": True}


def test_python_2_batches_are_read_as_pickle_reads_them():
    data = np.random.default_rng(0).integers(0, 256, (4, 3072), dtype=np.uint8)
    content = python2_pickle({"data": data, "labels": [1, 2, 3, 4], "batch_label": "training batch 1 of 5"})
    reference = pickle.loads(content, encoding="latin1")
    read = read_pickle(io.BytesIO(content), "a file")
    assert (read["data"] == reference["data"]).all()
    assert read["labels"] == reference["labels"]
    assert read["batch_label"] == reference["batch_label"]


def test_arrays_of_another_kind_are_refused():
    for array in (np.zeros(3), np.array([{}]), np.zeros((4, 4), np.uint8, order="F")):
        with pytest.raises(UserError, match="refused"):
            read_pickle(io.BytesIO(pickle.dumps({"data": array}, protocol=2)), "a file")


def test_damaged_pickles_are_refused_and_nothing_else_happens():
    whole = python2_pickle({"data": np.zeros((2, 8), np.uint8), "labels": [1, 2]})
    for end in range(len(whole)):
        with pytest.raises(UserError):
            read_pickle(io.BytesIO(whole[:end]), "a file")
    random = np.random.default_rng(0)
    for _ in range(500):
        damaged = bytearray(whole)
        damaged[random.integers(len(whole))] = random.integers(256)
        try:
            read_pickle(io.BytesIO(bytes(damaged)), "a file")
        except UserError:
            continue


def test_cifar_batches_without_images_are_refused(tmp_path):
    for batch, message in [
        ({"labels": [1]}, "without rows of 3,072 bytes"),
        ({"data": np.zeros((1, 8), np.uint8), "fine_labels": [1]}, "without rows of 3,072 bytes"),
        ({"data": np.zeros((1, 3072), np.uint8), "fine_labels": "x"}, "without a list of class ids"),
        ({"data": np.zeros((1, 3072), np.uint8), "fine_labels": [1, 2]}, "1 images and 2 labels"),
        ({"data": np.zeros((1, 3072), np.uint8), "fine_labels": [1]}, "1 training images, the published split has 50"),
    ]:
        (tmp_path / "train").write_bytes(python2_pickle(batch))
        with pytest.raises(UserError, match=message):
            load_benchmark("cifar100", tmp_path)


def test_a_file_is_read_once_for_its_picture_and_its_digest(tmp_path, monkeypatch):
    root, lists = write_class_folders(tmp_path)
    table = table_of(load_benchmark("folder", root, lists=lists), root)
    monkeypatch.setattr(FileSource, "digest", lambda *_: pytest.fail("its content is read again"))
    assert table.open(0).mode == "RGB"
