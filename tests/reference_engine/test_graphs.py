"""Replay rules on the CPU driver: padding, static buffers, splitting, and nothing uncaptured."""

from __future__ import annotations

import pytest
import torch

from reference_engine.batch import Batch, Catalogue, Shape, Stage, Urgency
from reference_engine.errors import UncapturedShapeError
from reference_engine.graphs import CpuDriver, Graphs, ProgramInputs, StepInputs
from tests.builders.engine import profile

POISON = 1000.0
SAMPLES = 4  # per codec frame, in this toy codec


class ToyCodec:
    """A codec on static buffers: sample = the frame's value plus what the slot heard before.

    The running sum is the slot's state, so a wrong row, a padding row that writes, or a replay
    too many shows in every later sample.
    """

    def __init__(self, num_slots: int = 16, num_frames: int = 64) -> None:
        sizes = [1, 2, 4, 8]
        settings = profile(
            chunks={"mode": "fixed", "ramp": [2, 8]},
            buckets={"codec_rows": sizes, "codec_frames": sizes, "max_codec_work": 64},
        )
        self.catalogue = Catalogue(settings)
        self.codes = torch.zeros(num_slots, num_frames)
        self.state = torch.zeros(num_slots)
        self.output = torch.zeros(64 * SAMPLES)
        self.graphs = Graphs(self.catalogue, CpuDriver(), self._program, device="cpu")
        self.num_replays = 0
        self.graphs.capture()

    def _program(self, shape: Shape, inputs: ProgramInputs):
        def run() -> None:
            self.num_replays += 1
            frames = torch.arange(shape.width)
            is_real = frames < inputs.counts[:, None]
            at = (inputs.starts[:, None] + frames).clamp(max=self.codes.shape[1] - 1)
            heard = torch.where(is_real, self.codes[inputs.slots[:, None], at], 0.0)
            total = heard.cumsum(dim=1) + self.state[inputs.slots][:, None]
            is_owned = inputs.slots != 0
            self.state[inputs.slots[is_owned]] = total[is_owned, -1]
            out = torch.where(is_real, total, 0.0).repeat_interleave(SAMPLES, dim=1)
            self.output[: out.numel()] = out.view(-1)

        return run

    def decode(self, slots: list[int], starts: list[int], counts: list[int]) -> list[torch.Tensor]:
        """What callers get: copies of the real samples."""
        width = self.catalogue.width_bucket(Stage.CODEC, max(counts))
        batch = self.catalogue.batch(
            Stage.CODEC, slots, width=width, counts=counts, urgency=Urgency.STEADY
        )
        self.graphs.run(batch, starts=starts)
        out = self.output[: batch.shape.rows * width * SAMPLES].view(batch.shape.rows, -1)
        return [out[row, : count * SAMPLES].clone() for row, count in enumerate(counts)]

    def plain(self, slot: int, start: int, count: int) -> torch.Tensor:
        """The same without buckets or buffers."""
        total = self.codes[slot, : start + count].cumsum(dim=0)[start:]
        return total.repeat_interleave(SAMPLES)

    def poison(self) -> None:
        """What a careless replay would leak."""
        self.output.fill_(POISON)
        for inputs in self.graphs.inputs.values():
            inputs.buffer.fill_(int(POISON))


def test_a_short_chunk_after_a_long_loud_one_hears_nothing_of_it():
    """Eight frames of full-scale noise, then three frames of silence in a bucket of four."""
    codec = ToyCodec()
    codec.codes[1, :8] = torch.randn(8)
    codec.decode([1], [0], [8])
    codec.poison()

    (quiet,) = codec.decode([2], [0], [3])

    assert (3 * SAMPLES, 0.0) == (quiet.numel(), float(quiet.abs().max()))


def test_poison_between_replays_never_reaches_an_output():
    """Static buffers are filled with 1000.0 before every replay; samples equal the plain path."""
    codec = ToyCodec()
    codec.codes.normal_(generator=torch.Generator().manual_seed(1))
    done = [0] * 16
    generator = torch.Generator().manual_seed(2)
    for _ in range(60):
        rows = int(torch.randint(1, 9, (), generator=generator))
        slots = (torch.randperm(15, generator=generator)[:rows] + 1).tolist()
        counts = torch.randint(1, 9, (rows,), generator=generator).tolist()
        counts = [min(count, 64 - done[slot]) for slot, count in zip(slots, counts, strict=True)]
        if min(counts) < 1:
            continue
        codec.poison()
        outputs = codec.decode(slots, [done[slot] for slot in slots], counts)
        for slot, count, output in zip(slots, counts, outputs, strict=True):
            torch.testing.assert_close(
                output, codec.plain(slot, done[slot], count), atol=1e-4, rtol=0
            )
            done[slot] += count

    assert sum(done) > 500


def test_nine_rows_are_split_into_captured_sizes():
    """Nine is not captured: asked for as one batch it is refused, as eight and one it runs."""
    codec = ToyCodec()
    codec.codes.fill_(1.0)
    slots = list(range(1, 10))

    with pytest.raises(UncapturedShapeError, match="split the cohort"):
        codec.decode(slots, [0] * 9, [1] * 9)
    outputs = codec.decode(slots[:8], [0] * 8, [1] * 8) + codec.decode(slots[8:], [0], [1])

    assert codec.num_replays == 2
    assert [1.0] * 9 == [float(output[0]) for output in outputs]


def test_a_held_output_does_not_change_on_the_next_replay():
    """What a caller got is a copy, not a view of the static buffer."""
    codec = ToyCodec()
    codec.codes[1, :4] = 1.0
    (held,) = codec.decode([1], [0], [2])
    before = held.clone()

    codec.decode([1], [2], [2])

    assert torch.equal(before, held)


def test_a_shape_outside_the_catalogue_never_runs():
    """Not even where a driver could run it."""
    codec = ToyCodec()
    batch = Batch(Shape(Stage.CODEC, 3, 8), [1, 2, 3], [1, 1, 1], 1, Urgency.STEADY)

    with pytest.raises(UncapturedShapeError, match="never captured"):
        codec.graphs.run(batch)


def test_more_frames_than_the_width_are_refused():
    """A row longer than its bucket would lose samples in silence."""
    codec = ToyCodec()
    batch = Batch(Shape(Stage.CODEC, 1, 2), [1], [3], 1, Urgency.STEADY)

    with pytest.raises(UncapturedShapeError, match="do not fit"):
        codec.graphs.run(batch)


def test_padding_rows_leave_the_padding_slot_at_rest():
    """More padded replays than slots: slot 0 still holds nothing."""
    codec = ToyCodec()
    codec.codes.fill_(1.0)

    for _ in range(20):
        codec.decode([1, 2, 3], [0, 0, 0], [1, 1, 1])

    assert float(codec.state[0]) == 0.0


def test_the_input_buffer_keeps_its_address():
    """A captured program reads the address it was captured with."""
    codec = ToyCodec()
    address = codec.graphs.inputs[Stage.CODEC].buffer.data_ptr()

    for _ in range(10):
        codec.decode([1, 2], [0, 0], [1, 2])

    assert address == codec.graphs.inputs[Stage.CODEC].buffer.data_ptr()


@pytest.mark.parametrize("rows", [1, 3, 8])
def test_the_inputs_of_a_shape_are_one_piece_of_memory(rows: int):
    """One copy to the device, whatever the number of rows; padding included."""
    inputs = StepInputs(8, "cpu")
    inputs.buffer.fill_(int(POISON))
    view = inputs.view(rows)

    inputs.write([5], rows=rows, counts=[2], starts=[7])

    pieces = [view.slots, view.counts, view.starts]
    padding = [0] * (rows - 1)
    assert [[5, *padding], [2, *padding], [7, *padding]] == [each.tolist() for each in pieces]
    at = inputs.buffer.data_ptr()
    assert [at, at + 8 * rows, at + 16 * rows] == [each.data_ptr() for each in pieces]


def test_a_closed_driver_holds_no_program():
    """What was captured is freed."""
    codec = ToyCodec()

    codec.graphs.close()

    with pytest.raises(UncapturedShapeError):
        codec.decode([1], [0], [1])


def test_capture_goes_from_the_largest_shape_to_the_smallest():
    """So that the pool is as large as the largest, and no larger."""
    order: list[Shape] = []

    class Recorder(CpuDriver):
        def capture(self, shape, program):
            order.append(shape)
            super().capture(shape, program)

    catalogue = Catalogue(profile())
    Graphs(catalogue, Recorder(), lambda shape, inputs: lambda: None, device="cpu").capture()

    sizes = [shape.rows * shape.width for shape in order]
    assert sorted(sizes, reverse=True) == sizes
    assert set(catalogue.shapes) == set(order)
