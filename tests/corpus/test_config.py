import pytest

from deeped_ray.corpus.config import CorpusConfig
from deeped_ray.corpus.inputs import Inputs
from deeped_ray.types import DeepEdError


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("min_word_count", 0, "`min_word_count` must be at least 1, not 0."),
        ("memory_gib", 0.25, "`memory_gib` must be at least 0.5, not 0.25."),
        ("partitions", -1, "`partitions` must be at least 0, not -1."),
    ],
)
def test_a_setting_that_is_too_small_is_named(name: str, value: float, message: str) -> None:
    with pytest.raises(DeepEdError) as refused:
        CorpusConfig(**{name: value})  # type: ignore[arg-type]
    assert str(refused.value) == message


def test_a_config_opens_no_file_and_inputs_tell_which_is_missing() -> None:
    config = CorpusConfig(dump=("nowhere.xml",))
    with pytest.raises(DeepEdError, match=r"Cannot read nowhere\.xml: No such file"):
        Inputs.find(config)


def test_a_task_gathers_less_if_it_may_take_less_memory() -> None:
    sizes = [CorpusConfig(memory_gib=memory).gathered_bytes for memory in (0.5, 1, 2, 4)]
    assert sizes == sorted(sizes)
    assert all(2**24 <= size < memory * 2**30 / 8 for size, memory in zip(sizes, (0.5, 1, 2, 4), strict=True))
