"""Published steps priced from end to end."""

import pytest
from accuracy_helpers import step

from archplace.arch_configs.errors import ConfigError
from archplace.search.accuracy import figures_of, predict
from archplace.search.accuracy.calibrate import PARAMETERS, Predictor, calibrate, split
from archplace.search.uncertainty import PRIORS, Basis
from archplace.workloads import Precision, Recompute

# Narayanan et al. 2021 (arXiv:2104.04473), table 1: seconds of a step follow from its batch, sequences of 2,048 tokens
# and the published aggregate petaFLOP/s by the paper's equation 3.
_DEGREES = ["n_devices", "tp", "pp", "vpp", "dp"]
_COLUMNS = [*_DEGREES, "n_layers", "d_model", "n_heads", "micro_batch", "global_batch", "step_s"]
NARAYANAN = [
    (32, 1, 1, 1, 32, 24, 2304, 24, 16, 512, 3.528),
    (64, 2, 1, 1, 32, 30, 3072, 32, 16, 512, 3.697),
    (128, 4, 1, 1, 32, 36, 4096, 32, 16, 512, 3.696),
    (256, 8, 1, 1, 32, 40, 6144, 48, 8, 1024, 9.399),
    (512, 8, 2, 1, 32, 48, 8192, 64, 4, 1536, 14.453),
    (1536, 8, 8, 2, 24, 80, 12288, 96, 2, 2304, 24.817),
]


def narayanan():
    found = []
    for number, row in enumerate(NARAYANAN):
        values = dict(zip(_COLUMNS, row, strict=True))
        heads, width = values["n_heads"], values["d_model"]
        found.append(
            step(
                **values,
                id=str(number),
                source="narayanan",
                n_kv_heads=heads,
                head_dim=width // heads,
                d_ff=4 * width,
                fused_attention=False,
                precision=Precision.FP16,
                recompute=Recompute.FULL,
            )
        )
    return found


def test_published_steps_of_megatron_are_predicted_within_some_percent():
    found = list(predict(narayanan()))
    assert all(prediction.reason is None and prediction.fits for prediction in found)
    (figures,) = figures_of(found)
    assert figures.mean_error < 0.06
    assert abs(figures.bias) < 0.05


def test_the_stack_adds_up_to_the_step():
    for prediction in predict(narayanan()[3:]):
        assert sum(prediction.parts_s.values()) == pytest.approx(prediction.predicted_s, rel=1e-9)
        assert prediction.memory_bytes > 0
        assert prediction.flops > 0


def test_rows_that_cannot_be_priced_have_reasons_and_others_are_priced():
    found = list(
        predict([step(n_devices=16), step(hardware="nowhere"), step(n_heads=15, head_dim=128, n_kv_heads=4), step()])
    )
    assert "= 8 devices, but n_devices is 16" in found[0].reason
    assert "unknown cluster" in found[1].reason
    assert "n_kv_heads 4 does not divide n_heads 15" in found[2].reason
    assert found[3].reason is None


def test_rows_held_out_are_a_share_of_every_source():
    rows = [step(id=f"{source}{i}", source=source) for source, count in (("a", 8), ("b", 5)) for i in range(count)]
    fitted, kept = split(rows, 0.25)
    assert sorted([*fitted, *kept], key=rows.index) == rows
    assert [sum(row.source == source for row in kept) for source in "ab"] == [2, 1]
    assert split(rows, 0.0) == (rows, [])


def test_a_fit_finds_the_values_that_made_the_rows():
    usual = {parameter.name: parameter.usual for parameter in PARAMETERS}
    truth = usual | {"tensor_rate": 0.7, "vector_traffic": 2.5}
    # Products decide one row, element-wise operators weigh more in the other.
    rows = [
        step(id="wide", d_model=8192, n_heads=64, n_kv_heads=64, d_ff=32768, n_layers=4, micro_batch=2),
        step(id="narrow", d_model=1024, n_heads=16, n_kv_heads=16, head_dim=64, d_ff=4096, micro_batch=8),
    ]
    seconds = Predictor(rows).seconds(truth)
    made = [step(**{**_values(row), "step_s": float(s)}) for row, s in zip(rows, seconds, strict=True)]
    others = {name: value for name, value in usual.items() if name not in ("tensor_rate", "vector_traffic")}
    found = calibrate(made, fixed=others, held_out=0.0)
    assert found.values["tensor_rate"] == pytest.approx(0.7, rel=0.03)
    assert found.values["vector_traffic"] == pytest.approx(2.5, rel=0.1)
    assert abs(found.errors).max() < 0.03
    assert found.clusters == ("a100-80gb-selene",)
    assert len(found.held_out_errors) == 0


def _values(row):
    return {name: getattr(row, name) for name in row.__dataclass_fields__}


def test_what_cannot_be_fitted_is_said():
    with pytest.raises(ValueError, match="of which none is left to fit"):
        calibrate([step()], held_out=1.0)
    with pytest.raises(ValueError, match="n_devices is 16"):
        calibrate([step(n_devices=16)], held_out=0.0)
    with pytest.raises(ConfigError, match="unknown cluster"):
        calibrate([step(hardware="nowhere")], held_out=0.0)


def test_steps_of_clusters_that_nothing_was_fitted_on_are_within_their_interval():
    # Published throughputs of whole trainings. Seconds: tokens of a step over tokens per second, or 6 FLOPs for each
    # parameter and token over FLOP/s and devices.
    full = {"precision": Precision.BF16, "recompute": Recompute.FULL}
    palm = {"n_layers": 118, "d_model": 18432, "n_heads": 48, "n_kv_heads": 1, "head_dim": 256, "d_ff": 73728}
    llama = {"n_layers": 126, "d_model": 16384, "n_heads": 128, "n_kv_heads": 8, "head_dim": 128, "d_ff": 53248}
    rows = [
        # Chowdhery et al. 2022 (arXiv:2204.02311, sections 4 and 4.1): 238.3 thousand tokens per second, two pods.
        step(
            **palm,
            **full,
            hardware="tpu-v4",
            n_devices=6144,
            note="slices=2",
            vocab=256000,
            seq_len=2048,
            tp=12,
            dp=512,
            zero_stage=3,
            micro_batch=4,
            global_batch=2048,
            fused_attention=False,
            step_s=2048 * 2048 / 238.3e3,
        ),
        # Llama Team 2024 (arXiv:2407.21783, table 4): 400 TFLOP/s on 16,384 devices, 8,192 tokens, 16 million a step.
        step(
            **llama,
            hardware="h100-grandteton-500w",
            n_devices=16384,
            vocab=128256,
            seq_len=8192,
            tp=8,
            pp=16,
            vpp=8,
            dp=128,
            zero_stage=1,
            micro_batch=1,
            global_batch=2048,
            sequence_parallel=True,
            fused_attention=True,
            gated_mlp=True,
            precision=Precision.BF16,
            step_s=6 * 405e9 * 2048 * 8192 / (16384 * 400e12),
        ),
    ]
    for prediction in predict(rows):
        assert prediction.reason is None
        low, high = PRIORS[Basis.TRANSFERRED]
        assert low < prediction.step.step_s / prediction.predicted_s < high
