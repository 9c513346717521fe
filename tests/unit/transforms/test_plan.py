"""The plan: cut from names and sizes alone, the same every time."""

import itertools
import pickle

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bert_embed.base.errors import SettingError
from bert_embed.storage.files import FileInfo
from bert_embed.transforms.listing import list_input, listing_digest
from bert_embed.transforms.parts import InputFile, default_block_bytes, plan_blocks
from bert_embed.transforms.plan import packed_blocks


def file_of(path, size, at=1.0, compression=None):
    return InputFile(FileInfo(path, size, at), "text", compression, size)


def listing(sizes, compressed=()):
    return [
        file_of(f"/in/{n:04d}", size, compression="gzip" if n in compressed else None)
        for n, size in enumerate(sizes)
    ]


@given(
    sizes=st.lists(st.integers(0, 5000), max_size=30),
    compressed=st.sets(st.integers(0, 29)),
    block_bytes=st.integers(1, 2000),
)
@example(sizes=[0, 7], compressed=set(), block_bytes=7)
def test_blocks_cover_every_byte_once_in_order(sizes, compressed, block_bytes):
    files = listing(sizes, compressed)
    specs = list(plan_blocks(files, block_bytes))
    assert sorted({spec.number for spec in specs}) == list(range(len({s.number for s in specs})))
    pieces = [(p.file, p.start, p.stop) for spec in specs for p in spec.slices]
    assert pieces == sorted(pieces)
    for number, file in enumerate(files):
        mine = [(start, stop) for n, start, stop in pieces if n == number]
        assert mine
        assert mine[0][0] == 0
        assert mine[-1][1] == file.stop
        assert all(one[1] == other[0] for one, other in itertools.pairwise(mine))


@given(sizes=st.lists(st.integers(0, 100), min_size=1, max_size=50))
def test_small_neighbours_share_a_block(sizes):
    specs = list(plan_blocks(listing(sizes), 101))
    for spec in specs:
        assert sum(piece.stop for piece in spec.slices) <= 101
    for one, other in itertools.pairwise(specs):
        assert sum(piece.stop for piece in one.slices) + other.slices[0].stop > 101


def test_tiny_files_make_blocks_for_many_workers():
    specs = list(plan_blocks(listing([40] * 5_000), 1 << 18))
    assert 60 <= len(specs) <= 70
    assert [piece.file for spec in specs for piece in spec.slices] == list(range(5_000))
    assert len(list(plan_blocks(listing([40] * 60), 1 << 18))) == 1, "a few stay together"


def test_parts_of_a_few_large_compressed_files_go_to_several_workers():
    (spec,) = plan_blocks(listing([9_000_000], {0}), 1 << 20)
    assert (spec.number, spec.read_through, spec.spread) == (0, True, True)
    (small,) = plan_blocks(listing([9_000], {0}), 1 << 20)
    assert (small.read_through, small.spread) == (True, False)
    many = list(plan_blocks(listing([9_000_000] * 64, set(range(64))), 1 << 20))
    assert [spec.number for spec in many] == list(range(64))
    assert not any(spec.spread for spec in many)


def test_the_digest_covers_name_size_and_time():
    files = listing([1, 2, 3])
    others = [[*files[:2], file_of("/in/other", 3)], [*files[:2], file_of("/in/0002", 3, 2.0)]]
    others += [listing([1, 2, 4]), listing([1, 2])]
    assert len({listing_digest(each) for each in (files, *others)}) == 5
    assert listing_digest(listing([1, 2, 3])) == listing_digest(files)


@pytest.mark.parametrize("name", ["a.txt.xz", "a.txt.lz4", "texts.zip", "texts.tar.gz", "a.TAR"])
def test_other_compressions_and_archives_are_refused_by_name(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(ValueError, match=rf"{name}: \.\w+ files cannot be read"):
        list_input([str(tmp_path)])


def names(folder, *patterns):
    files = list_input([str(folder / pattern) for pattern in patterns]).files
    return [str(file.info.path).removeprefix(f"{folder}/") for file in files]


def test_names_that_spark_and_arrow_hide_are_hidden_below_folders_and_globs(tmp_path):
    shown = ["_year=2024/a.txt", "a.txt", "b_/c_.txt", "year=2024/part-0.txt"]
    hidden = ["a_$folder$", "_temporary/0/a.txt", "_notes.txt", "b_/_a.txt", ".a.txt", ".b/a.txt"]
    hidden += ["a.txt~"]  # a backup by an editor
    for name in (*shown, *hidden):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text("one\n")
    assert names(tmp_path, "") == shown
    assert names(tmp_path, "**") == names(tmp_path, "**/*.txt") == shown
    assert names(tmp_path, "*.txt") == ["a.txt"]
    # What is named itself is read.
    assert names(tmp_path, "_notes.txt", ".a.txt") == [".a.txt", "_notes.txt"]
    assert names(tmp_path, "_n*.txt") == ["_notes.txt"]
    assert names(tmp_path, "_temporary") == names(tmp_path, "_temp*/**/*.txt")
    assert names(tmp_path, "_temporary") == ["_temporary/0/a.txt"]
    assert names(tmp_path, "*.txt~") == ["a.txt~"]
    assert list_input([str(tmp_path)]).skipped == {"_*": 5}  # those with a dot are not even listed
    with pytest.raises(SettingError, match=r"names only hidden files.*name such a file itself"):
        list_input([str(tmp_path / "b_" / "[_]a.txt")])


@pytest.fixture(
    params=[
        ("Delta Lake", "_delta_log/00000000000000000000.json"),
        ("Iceberg", "metadata/v1.metadata.json"),
        ("Hudi", ".hoodie/hoodie.properties"),
    ],
    ids=lambda param: param[0],
)
def logged(request, tmp_path):
    """The kind of a table with a log, and its folder; it holds files that were removed."""
    kind, log = request.param
    table = tmp_path / "lake" / "table"
    for name in (log, "part-0.txt", "data/year=2024/part-1.txt"):
        (table / name).parent.mkdir(exist_ok=True, parents=True)
        (table / name).write_text("one\n")
    return kind, table


def refuses(kind, table, *places):
    for place in places:
        with pytest.raises(
            SettingError, match=f"^input {table} is a table of {kind}: only its log"
        ):
            list_input([str(place)])


def test_a_table_with_a_log_is_refused(tmp_path, logged):
    kind, table = logged
    refuses(kind, table, table, table / "*.txt", table / "data", table / "data/*/*.txt")
    refuses(kind, table, tmp_path / "*/*/*.txt", tmp_path / "**/*.txt")
    refuses(kind, table, tmp_path / "lake/t*/data/*=*/*", tmp_path)
    assert names(table, "part-0.txt") == ["part-0.txt"]  # named itself


def test_a_table_of_a_store_is_refused_whatever_names_its_files(logged, gcs):
    kind, folder = logged
    table = gcs.put_folder(folder, f"tables-{kind[0].lower()}", "lake/table")
    lake = table.removesuffix("/table")
    refuses(kind, table, table, lake, f"{table}/*.txt", f"{table}/data")
    refuses(kind, table, f"{lake}/*/*.txt", f"{lake}/**/part*.txt")
    [file] = list_input([f"{table}/part-0.txt"]).files
    assert file.info.path == f"{table}/part-0.txt"


def test_the_block_size_depends_on_the_input_alone():
    assert default_block_bytes(0) == default_block_bytes(1 << 20) == 256 << 10
    assert default_block_bytes(64 * 500_000) == 500_000
    assert default_block_bytes(1 << 50) == 1 << 20


def test_blocks_of_a_large_plan_travel_together():
    """Runners hold each element several times: 50,000 blocks took 100 MB of memory, now 40."""
    packed = list(packed_blocks(plan_blocks(listing([2_500_000]), 50)))
    specs = [spec for element in packed for spec in pickle.loads(element)]
    assert [spec.number for spec in specs] == list(range(50_000))
    assert len(packed) > 4000  # for many workers
    assert sum(map(len, packed)) / len(specs) < 90  # each alone: 198
