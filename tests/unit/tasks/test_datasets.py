"""Tasks from files: rows checked one by one, overlap told, clear errors."""

import gzip
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories import written
from teamtune.envs.writing import TLDR
from teamtune.errors import ConfigError
from teamtune.tasks import DatasetTasks, GeneratedTasks, Task, fingerprint
from teamtune.tasks.datasets import compare
from teamtune.training.data import TaskDataModule

FIELDS = {"prompt": "prompt"}
LONG = "one two three four five six seven eight"
"""A run of eight words."""


def posts(path, *texts, **settings):
    """A source of rows that hold these prompts."""
    return DatasetTasks(written(path, *({"prompt": text} for text in texts)), FIELDS, **settings)


def test_a_row_becomes_a_task_with_the_fields_that_are_asked_for(tmp_path):
    row = {"question": "1+1?", "gold": [2], "extra": None}
    path = written(tmp_path / "sums.jsonl", row, "", {**row, "question": "2+2?"})
    source = DatasetTasks(path, {"prompt": "question", "answer": "gold"})
    assert source.tasks == [
        Task("sums-0", {"prompt": "1+1?", "answer": [2]}),
        Task("sums-1", {"prompt": "2+2?", "answer": [2]}),
    ]
    assert source.count == 2
    assert source.places["sums-1"] == f"{path}:3"


def test_first_and_count_take_a_part(tmp_path):
    source = posts(tmp_path / "x.jsonl", *"abcdef", first=2, count=3)
    assert [task.data["prompt"] for task in source.tasks] == ["c", "d", "e"]
    assert [task.id for task in source.tasks] == ["x-2", "x-3", "x-4"]


def test_an_index_gives_the_same_task_and_the_source_starts_over(tmp_path):
    source, env = posts(tmp_path / "x.jsonl", *"abcde"), TLDR()
    assert source.take(env, 3, 4) == source.take(env, 0, 5)[3:] + source.take(env, 0, 2)
    assert len({task.id for task in source.take(env, 4, 5)}) == 5


def test_held_out_rows_are_left_out(tmp_path):
    source = posts(tmp_path / "x.jsonl", *"abcde")
    held_out = {fingerprint(source.tasks[1]), fingerprint(source.tasks[4])}
    taken = source.take(TLDR(), 0, 3, held_out)
    assert [task.data["prompt"] for task in taken] == ["a", "c", "d"]


def test_more_tasks_than_rows_are_refused(tmp_path):
    source = posts(tmp_path / "x.jsonl", *"abc")
    with pytest.raises(ConfigError, match="4 tasks are asked for at once, and it has 3 rows"):
        source.take(TLDR(), 0, 4)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"prompt": "b"', r"x.jsonl:2: no JSON: Expecting ',' delimiter at column 15"),
        ("prompt: b", "x.jsonl:2: no JSON"),
        ('{"prompt": ' + "9" * 5000 + "}", "x.jsonl:2: cannot read it"),
        ('["b"]', "x.jsonl:2: expected a JSON object, got a list"),
        ("null", "x.jsonl:2: expected a JSON object, got a NoneType"),
        ('{"promt": "b"}', "x.jsonl:2: no field 'prompt' .did you mean 'promt'.*has: promt"),
        ("{}", "x.jsonl:2: no field 'prompt'; the row has: none"),
        ('{"prompt": " "}', "x.jsonl:2: field 'prompt' is empty"),
        ('{"prompt": null}', "x.jsonl:2: field 'prompt' is empty"),
        ('{"prompt": []}', "x.jsonl:2: field 'prompt' is empty"),
        ('{"prompt": "\\ud800"}', "x.jsonl:2: field 'prompt' is no valid text"),
    ],
)
def test_a_malformed_row_is_told_with_file_line_and_field(tmp_path, line, message):
    path = written(tmp_path / "x.jsonl", {"prompt": "a"}, line, {"prompt": "c"})
    with pytest.raises(ConfigError, match=message) as error:
        DatasetTasks(path, FIELDS)
    assert "\n" not in str(error.value)


def test_zero_and_false_are_values(tmp_path):
    path = written(tmp_path / "x.jsonl", {"prompt": 0, "hard": False})
    assert DatasetTasks(path, {"a": "prompt", "b": "hard"}).tasks[0].data == {"a": 0, "b": False}


def test_a_row_that_the_environment_cannot_start_from_is_told_with_its_line(tmp_path):
    path = written(tmp_path / "x.jsonl", {"prompt": "a"}, {"prompt": 7})
    source = DatasetTasks(path, FIELDS)
    with pytest.raises(ConfigError, match="x.jsonl:2: task x-1: 'prompt' must be a text"):
        source.take(TLDR(), 0, 1)
    renamed = DatasetTasks(path, {"post": "prompt"})
    with pytest.raises(ConfigError, match="x.jsonl:1: task x-0: 'prompt' must be a text.*None"):
        renamed.check(TLDR())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"fields": {}}, "fields: got none"),
        ({"first": 1}, "wanted one or more rows from row 1 on, got 0"),
        ({"count": 2}, "wanted 2 rows from row 0 on, got 1"),
        ({"path": "nowhere.jsonl"}, "cannot read nowhere.jsonl: No such file"),
        ({"path": "nowhere.parquet"}, "cannot read nowhere.parquet"),
        ({"path": __file__}, "allowed: a .jsonl, .jsonl.gz or"),
    ],
)
def test_what_cannot_be_read_is_told_in_one_line(tmp_path, settings, message):
    path = written(tmp_path / "x.jsonl", {"prompt": "a"})
    with pytest.raises(ConfigError, match=message) as error:
        DatasetTasks(**{"path": path, "fields": FIELDS, **settings})
    assert "\n" not in str(error.value)


def test_a_file_in_another_encoding_is_told(tmp_path):
    (tmp_path / "x.jsonl").write_bytes('{"prompt": "ä"}'.encode("latin-1"))
    with pytest.raises(ConfigError, match="no UTF-8 text"):
        DatasetTasks(str(tmp_path / "x.jsonl"), FIELDS)


def test_compressed_files_are_read(tmp_path):
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"prompt": "a"}\n{"prompt": ""}'))
    assert DatasetTasks(str(path), FIELDS, count=1).tasks == [Task("x-0", {"prompt": "a"})]
    with pytest.raises(ConfigError, match="x.jsonl.gz:2: field 'prompt' is empty"):
        DatasetTasks(str(path), FIELDS)
    for broken in (b"no gzip", path.read_bytes()[:-12]):
        path.write_bytes(broken)
        with pytest.raises(ConfigError, match="cannot read .*x.jsonl.gz: "):
            DatasetTasks(str(path), FIELDS)


def test_parquet_is_read_in_the_same_schema(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    table = pyarrow.table({"prompt": ["a", "b", ""], "tests": [["x"], ["y", "z"], ["w"]]})
    parquet.write_table(table, tmp_path / "x.parquet")
    path, fields = str(tmp_path / "x.parquet"), {"prompt": "prompt", "tests": "tests"}
    source = DatasetTasks(path, fields, count=2)
    assert source.tasks[1] == Task("x-1", {"prompt": "b", "tests": ["y", "z"]})
    with pytest.raises(ConfigError, match="x.parquet, row 2: field 'prompt' is empty"):
        DatasetTasks(path, fields)
    (tmp_path / "broken.parquet").write_text("no parquet")
    with pytest.raises(ConfigError, match="cannot read"):
        DatasetTasks(str(tmp_path / "broken.parquet"), fields)


class Hub:
    """Stands for the package `datasets`."""

    class exceptions:
        class DatasetsError(Exception):
            pass

    @staticmethod
    def load_dataset(name, split):
        if split != "train":
            raise ValueError(f'Unknown split "{split}".\nShould be one of ["train"].')
        return [{"prompt": f"{name} {i}"} for i in range(5)]


def test_a_data_set_from_the_hub_is_read_by_name_and_split(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", Hub)
    source = DatasetTasks("some-lab/posts", FIELDS, count=2, first=1)
    assert [task.id for task in source.tasks] == [
        "some-lab/posts[train]-1",
        "some-lab/posts[train]-2",
    ]
    assert source.tasks[0].data["prompt"] == "some-lab/posts 1"
    with pytest.raises(ConfigError, match="some-lab/posts.train., row 0: no field 'post'"):
        DatasetTasks("some-lab/posts", {"prompt": "post"})
    with pytest.raises(ConfigError, match="cannot load 'some-lab/posts', split 'test': Unknown"):
        DatasetTasks("some-lab/posts", FIELDS, split="test")


def test_without_the_package_the_command_that_installs_it_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ConfigError, match=r'pip install "teamtune\[data\]"'):
        DatasetTasks("some-lab/posts", FIELDS)


# --- overlap -----------------------------------------------------------------------------------


def test_rows_in_both_are_found_up_to_case_spaces_and_punctuation(tmp_path):
    train = posts(tmp_path / "train.jsonl", "Hello, world!", "Other text")
    val = posts(tmp_path / "val.jsonl", "new", "hello   WORLD")
    assert train.overlap(val) == (
        "of 2 evaluation rows, 1 occur in training and 0 share 8 words in a row with it "
        f"({tmp_path}/val.jsonl:2 = {tmp_path}/train.jsonl:1)"
    )
    assert train.overlap(posts(tmp_path / "clean.jsonl", "new")) is None
    assert train.overlap(GeneratedTasks(0)) is None


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        (LONG, 1),
        (f"before {LONG.upper()}, after", 1),
        (LONG.replace(" eight", " nine"), 0),
        (LONG.removesuffix(" eight"), 0),
        ("eight seven six five four three two one", 0),
    ],
)
def test_eight_words_in_a_row_are_told_in_a_warning(tmp_path, text, phrases):
    train = posts(tmp_path / "train.jsonl", f"It says {LONG} here", "unrelated")
    val = posts(tmp_path / "val.jsonl", text, "something else")
    found = compare(train, val)
    assert (found.rows, found.exact, len(found.phrases)) == (2, (), phrases)
    if phrases:
        with pytest.warns(UserWarning, match=f"1 share 8 words .*val.jsonl:1 ~ .*: '{LONG}'"):
            assert train.overlap(val) is None


def test_texts_without_words_are_compared_as_they_are(tmp_path):
    train, val = posts(tmp_path / "train.jsonl", "?!"), posts(tmp_path / "val.jsonl", "?!", "!!")
    assert len(compare(train, val).exact) == 1


@given(st.lists(st.text("ab ", min_size=1), min_size=1, max_size=5))
def test_every_row_overlaps_itself(tmp_path_factory, texts):
    texts = [text for text in texts if text.strip()] or ["a"]
    source = posts(tmp_path_factory.mktemp("self") / "x.jsonl", *texts)
    found = compare(source, source)
    assert len(found.exact) == found.rows == len(texts) and not found.phrases


def test_a_run_refuses_to_evaluate_on_what_it_trains_on(tmp_path):
    train = posts(tmp_path / "train.jsonl", "a", "b")
    with pytest.raises(ConfigError, match="data.val overlaps data.train: of 1 evaluation rows, 1"):
        TaskDataModule(TLDR(), train, posts(tmp_path / "val.jsonl", "b"), tasks_per_step=1)
    data = TaskDataModule(TLDR(), train, posts(tmp_path / "other.jsonl", "c"), tasks_per_step=2)
    assert [task.data["prompt"] for task in data.step_tasks(0)] == ["a", "b"]
    assert [task.data["prompt"] for task in data.held_out] == ["c"]


def test_the_shipped_samples_do_not_overlap(pytestconfig):
    folder = pytestconfig.rootpath / "configs/writing/data"
    for train, val, field in (
        ("tldr_train", "tldr_test", "prompt"),
        ("tldr_train", "tldr_final", "prompt"),
        ("tldr_test", "tldr_final", "prompt"),
        ("arxiv_train", "arxiv_val", "abstract_text"),
    ):
        sources = [DatasetTasks(str(folder / f"{n}.jsonl"), {field: field}) for n in (train, val)]
        found = compare(*sources)
        assert (found.exact, found.phrases) == ((), ())


def test_overlap_is_looked_for_in_the_field_that_both_have(tmp_path):
    written(tmp_path / "x.jsonl", {"prompt": "the same", "name": "f"})
    train = DatasetTasks(str(tmp_path / "x.jsonl"), {"prompt": "prompt", "name": "name"})
    val = DatasetTasks(str(tmp_path / "x.jsonl"), {"name": "name", "prompt": "prompt"})
    assert len(compare(train, val).exact) == len(compare(val, train).exact) == 1
