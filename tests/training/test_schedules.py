import numpy as np
import pytest

from newfound.training.schedules import learning_rate, teacher_temperature


@pytest.mark.parametrize("i", range(3))
def test_schedules_match_the_released_training(golden, i):
    data = np.load(golden / "schedules.npz", allow_pickle=False)
    columns = ["epochs", "lr", "warmup_teacher_temp_epochs", "warmup_teacher_temp", "teacher_temp"]
    assert list(data["config_columns"]) == columns
    epochs, lr, warmup, start, end = data["configs"][i]
    ours = [learning_rate(e, int(epochs), lr) for e in range(int(epochs))]
    np.testing.assert_allclose(ours, data[f"lr_{i}"], atol=1e-12, rtol=0)
    ours = [teacher_temperature(e, int(warmup), start, end) for e in range(int(epochs))]
    np.testing.assert_allclose(ours, data[f"teacher_temp_{i}"], atol=1e-12, rtol=0)


def test_a_single_warmup_epoch_has_the_start_temperature():
    assert [teacher_temperature(e, 1, 0.07, 0.04) for e in range(3)] == [0.07, 0.04, 0.04]
