"""A captured step may not look at a value on the host, nor bring one from there."""

from __future__ import annotations

import pytest
import torch

from reference_engine.codec.decoder import codec_step
from reference_engine.model.code_predictor import predictor_step
from reference_engine.model.frame import frame_step
from reference_engine.model.sampling import (
    DEFAULT_PLAN,
    GREEDY_PLAN,
    SamplerKind,
    SamplerPlan,
    SamplingSettings,
)
from reference_engine.model.talker import prefill_step, talker_step
from tests.builders.audit import audit, tensors_of, to_meta
from tests.builders.checkpoints import Loaded, admit, random_codes, slot_vector

SAMPLED = SamplingSettings.from_defaults
ANY_PLAN = SamplerPlan(SamplerKind.ANY)
PLANS = {"greedy": GREEDY_PLAN, "capped": DEFAULT_PLAN, "any": ANY_PLAN}
# The official step takes about 4,930 operations and 17 host reads.
MAX_OPERATIONS_A_FRAME = 2_200


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_frame_reads_nothing_on_the_host(tiny: Loaded, device: str, plan: SamplerPlan):
    """The fused frame, with every sampler, on values and on none."""
    model, state, slots = tiny.model, tiny.state(), slot_vector([1, 2, 0])
    if device == "meta":
        model, state, slots = to_meta(model), to_meta(state), to_meta(slots)

    found = audit(lambda: frame_step(model, state, slots, sampler=plan), device=device)

    assert [] == found.offences
    assert found.num_operations > 0


def test_a_frame_stays_within_its_operations(tiny: Loaded, capsys: pytest.CaptureFixture[str]):
    """Operations are launches on a GPU: at most 2,200 a frame with the full sampler."""
    state = tiny.state()
    counts = {
        name: audit(
            lambda plan=plan: frame_step(tiny.model, state, slot_vector([1]), sampler=plan)
        ).num_operations
        for name, plan in PLANS.items()
    }
    print(f"aten operations a frame: {counts}")

    assert counts["greedy"] <= counts["capped"] <= MAX_OPERATIONS_A_FRAME


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_the_split_stages_read_nothing_on_the_host(tiny: Loaded, device: str):
    """Talker and predictor alone."""
    model, state, slots = tiny.model, tiny.state(), slot_vector([1, 2, 0])
    if device == "meta":
        model, state, slots = to_meta(model), to_meta(state), to_meta(slots)

    talker = audit(lambda: talker_step(model, state, slots), device=device)
    predictor = audit(lambda: predictor_step(model, state, slots), device=device)

    assert [] == talker.offences + predictor.offences


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_prefill_reads_nothing_on_the_host(tiny: Loaded, device: str):
    """Prompt rows of several requests at once."""
    model, state = tiny.model, tiny.state()
    ids = torch.full((2, 7), 5)
    arguments = {
        "text_ids": ids,
        "codec_ids": torch.full((2, 7), model.no_code),
        "num_rows": torch.tensor([7, 3]),
    }
    slots = slot_vector([1, 2])
    if device == "meta":
        model, state, slots = to_meta(model), to_meta(state), to_meta(slots)
        arguments = {name: value.to("meta") for name, value in arguments.items()}

    found = audit(lambda: prefill_step(model, state, slots, **arguments), device=device)

    assert [] == found.offences


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_the_codec_reads_nothing_on_the_host(micro: Loaded, device: str):
    """One codec call with rows of different length and a padding row."""
    codec, state, slots = micro.codec, micro.codec_state(), slot_vector([1, 2, 0])
    codes, num_frames = random_codes(4, num_streams=3), torch.tensor([4, 2, 0])
    if device == "meta":
        codec, state, slots = to_meta(codec), to_meta(state), to_meta(slots)
        codes, num_frames = codes.to("meta"), num_frames.to("meta")

    found = audit(
        lambda: codec_step(codec, state, slots, codes=codes, num_frames=num_frames),
        device=device,
    )

    assert [] == found.offences


def test_no_tensor_of_the_state_ever_moves(tiny: Loaded):
    """A captured graph reads addresses: after 100 steps they are those of the first."""
    state, codec_state = tiny.state(max_positions=128), tiny.codec_state()
    admit(tiny, state, 1, tiny.prompt(), SAMPLED(tiny.model.config.generation, ignore_eos=True))
    slots = slot_vector([1, 0])
    before = [t.data_ptr() for t in (*tensors_of(state), *tensors_of(codec_state))]

    for step in range(100):
        frame_step(tiny.model, state, slots)
        if step % 10 == 0:
            codec_step(
                tiny.codec,
                codec_state,
                slots,
                codes=state.codes[:2, :1],
                num_frames=torch.tensor([1, 0]),
            )

    assert 100 == int(state.num_frames[1])
    assert before == [t.data_ptr() for t in (*tensors_of(state), *tensors_of(codec_state))]


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("item", lambda x: x[0].item()),
        ("bool", lambda x: bool(x[0] > 1)),
        ("nonzero", lambda x: x.nonzero()),
        ("mask", lambda x: x[x > 1]),
        ("mask put", lambda x: x.masked_select(x > 1)),
        ("tolist", lambda x: x.tolist()),
        ("cpu", lambda x: x.cpu()),
        ("to cpu", lambda x: x.to("cpu")),
        ("host value", lambda x: x.index_put_((torch.tensor([0]),), torch.tensor([1.0]))),
        ("set item", lambda x: x.__setitem__(0, torch.tensor(2.0))),
        ("split", lambda x: x.tensor_split(torch.tensor([1]))),
        ("unique", lambda x: x.unique()),
        ("equal", lambda x: x.equal(x)),
        ("tensor index", lambda x: x[torch.tensor(1)]),
    ],
)
def test_the_auditor_catches(name: str, step):
    """Each way to leak a value to the host, so that a clean audit means something."""
    values = torch.arange(4.0)

    assert [] != audit(lambda: step(values)).offences
