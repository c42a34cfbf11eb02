"""Runs the steps of a real checkpoint; the owner of all device tensors.

Everything a request has on the device lies in its slot of `ModelState` and `CodecState`. A step
writes the batch's slots into static buffers and replays a program; no tensor is made per request.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from reference_engine.batch import Batch, Catalogue, Shape, Stage, Urgency
from reference_engine.codec import state as codec_state
from reference_engine.codec.decoder import CodecModel, codec_step
from reference_engine.config import CodecMode, Profile, Sampler
from reference_engine.errors import StepError, UnsayableError
from reference_engine.graphs import GraphDriver, Graphs, HostCopy, ProgramInputs
from reference_engine.messages import SAMPLES_PER_CODEC_FRAME, Job
from reference_engine.model import state as model_state
from reference_engine.model.code_predictor import predictor_step
from reference_engine.model.frame import frame_step
from reference_engine.model.sampling import SamplerKind, SamplerPlan, SamplingSettings
from reference_engine.model.talker import first_input, prefill_step, talker_step
from reference_engine.model.text.prompts import Prompt
from reference_engine.model.tts_model import TtsModel
from reference_engine.runner import PcmHandle, RowFlag

__all__ = ["ModelPrompt", "ModelRunner"]

# Without recorded programs attention may be told how far it has to look, in steps of this.
_CONTEXT_STEP = 64
_PLANS = {
    Sampler.CAPPED: SamplerPlan(SamplerKind.CAPPED),
    Sampler.ANY: SamplerPlan(SamplerKind.ANY),
    Sampler.GREEDY: SamplerPlan(SamplerKind.GREEDY),
}


@dataclass(frozen=True, slots=True)
class ModelPrompt:
    """What a request begins with: `Job.prompt` of this runner."""

    prompt: Prompt
    sampling: SamplingSettings


@dataclass(frozen=True, slots=True)
class _StoredPrefix:
    """Talker KV of a prompt's constant rows, each [layers, rows, kv heads, head_dim]."""

    k: Tensor
    v: Tensor


@dataclass(slots=True)
class _Row:
    """Host-side integers of a slot: what the device knows too, without reading it back."""

    prompt: ModelPrompt
    num_positions: int
    num_text: int
    num_decoded: int = 0


class _Pcm:
    """The samples of one codec step, and which of its rows can be trusted."""

    def __init__(self, samples: HostCopy, is_sound: HostCopy, batch: Batch) -> None:
        self._samples, self._is_sound, self._batch = samples, is_sound, batch

    def wait(self) -> None:
        """Block until both copies are here."""
        self._samples.wait()
        self._is_sound.wait()

    def samples(self, row: int, num_samples: int) -> npt.NDArray[np.int16]:
        """The first samples of a row."""
        if not self._is_sound.array()[row]:
            raise StepError((self._batch.slots[row],), "its numbers were not finite")
        return np.asarray(self._samples.array()[row, :num_samples], dtype=np.int16)


class ModelRunner:
    """A checkpoint's steps behind the runner protocol.

    Args:
        model, codec: loaded, on one device.
        profile: slots, positions, shapes, sampler, codec mode.
        driver: how programs are run.
    """

    text_lookahead = 0  # the text row is added at the start of the step that needs it

    def __init__(
        self, model: TtsModel, codec: CodecModel, profile: Profile, driver: GraphDriver
    ) -> None:
        self._model, self._codec, self._driver = model, codec, driver
        self._profile, self.catalogue = profile, Catalogue(profile)
        self.plan = _PLANS[profile.sampler]
        device, num_slots = model.device, profile.slots + 1
        max_rows = max(profile.buckets.frame_rows)
        self.state = model_state.allocate(
            model.config,
            num_slots,
            max_positions=profile.positions_per_slot,
            max_rows=max_rows,
            device=device,
            dtype=model.dtype,
        )
        self.codec_state = codec_state.allocate(
            codec.config, num_slots, device=device, dtype=codec.dtype
        )
        self._rows: list[_Row | None] = [None] * num_slots
        self._context = profile.positions_per_slot
        self._flags: deque[tuple[Batch, HostCopy]] = deque()
        self._handle: _Pcm | None = None
        self._prefixes: dict[tuple[tuple[int, ...], tuple[int, ...]], _StoredPrefix] = {}
        self._make_outputs(device, max_rows)
        self.graphs = Graphs(self.catalogue, driver, self._make_program, device=device)
        self.graphs.capture()

    def _make_outputs(self, device: torch.device, max_rows: int) -> None:
        """Static memory that programs write and prefill reads."""
        buckets = self._profile.buckets
        work = max(buckets.max_codec_work, buckets.codec_frames[-1])
        self._pcm_out = torch.zeros(work * SAMPLES_PER_CODEC_FRAME, dtype=torch.int16).to(device)
        self._sound_out = torch.zeros(max(buckets.codec_rows), dtype=torch.bool).to(device)
        self._status_out = torch.zeros(2 * max_rows, dtype=torch.bool).to(device)
        tokens = max(buckets.prefill_rows) * max(buckets.prefill_tokens)
        self._prefill_text = torch.zeros(tokens, dtype=torch.int64).to(device)
        self._prefill_codec = torch.zeros(tokens, dtype=torch.int64).to(device)

    # -- programs: captured once per shape ---------------------------------------------------------

    def rehearse(self, shape: Shape) -> None:
        """Run a shape on padding alone and wait for it; nothing that is kept changes."""
        self.graphs.run(Batch(shape, [], [], 0, Urgency.STARTUP))
        # Page-locked memory for a copy of a size is made once, and kept: not under load. Twice, for
        # the delivery may still hold the copy before.
        copies = [self._driver.copy_out(view) for view in self._copied_views(shape) * 2]
        for copy in copies:
            copy.wait()
        self._driver.synchronize()

    def _copied_views(self, shape: Shape) -> tuple[Tensor, ...]:
        """What the host may ask for after a step."""
        if shape.stage is Stage.CODEC:
            return self._pcm_view(shape), self._sound_out[: shape.rows]
        is_frame = shape.stage is Stage.FRAME or shape.stage is Stage.TALKER
        return (self._status_view(shape),) if is_frame else ()

    def _make_program(self, shape: Shape, inputs: ProgramInputs) -> Callable[[], None]:
        if shape.stage is Stage.CODEC:
            return partial(self._run_codec, shape, inputs)
        if shape.stage is Stage.PREFILL:
            return partial(self._run_prefill, shape, inputs)
        return partial(self._run_frames, shape, inputs)

    def _run_frames(self, shape: Shape, inputs: ProgramInputs) -> None:
        model, state, slots = self._model, self.state, inputs.slots
        if shape.stage is Stage.FRAME:
            frame_step(model, state, slots, sampler=self.plan, context=self._context)
        elif shape.stage is Stage.TALKER:
            talker_step(model, state, slots, sampler=self.plan, context=self._context)
        else:
            predictor_step(model, state, slots, sampler=self.plan)
        self._status_view(shape).copy_(state.status.index_select(1, slots))

    def _run_prefill(self, shape: Shape, inputs: ProgramInputs) -> None:
        num_tokens = shape.rows * shape.width
        prefill_step(
            self._model,
            self.state,
            inputs.slots,
            text_ids=self._prefill_text[:num_tokens].view(shape.rows, shape.width),
            codec_ids=self._prefill_codec[:num_tokens].view(shape.rows, shape.width),
            num_rows=inputs.counts,
            # A prompt begins in an empty slot, so nothing lies beyond the bucket.
            context=min(shape.width, self.state.max_positions),
        )

    def _run_codec(self, shape: Shape, inputs: ProgramInputs) -> None:
        samples = codec_step(
            self._codec,
            self.codec_state,
            inputs.slots,
            codes=model_state.gather_codes(
                self.state, inputs.slots, inputs.starts, count=shape.width
            ),
            num_frames=inputs.counts,
        )
        # A slot whose talker went wrong makes codes that decode well and mean nothing. The flag
        # travels with the samples: so early a fault costs no host read of its own.
        is_sound = ~self.state.broken.index_select(0, inputs.slots)
        self._sound_out[: shape.rows].copy_(is_sound & self._is_finite(samples, inputs.counts))
        self._pcm_view(shape).copy_(self._codec.kernels.to_pcm16(samples))

    def _is_finite(self, samples: Tensor, counts: Tensor) -> Tensor:
        """Whether the real samples of each row are all finite: [B, N], [B] -> [B] bool."""
        at = torch.arange(samples.shape[1], device=samples.device)
        is_padding = at >= counts[:, None] * SAMPLES_PER_CODEC_FRAME
        return (samples.isfinite() | is_padding).all(dim=1)

    # Views of one piece of memory, padding included: a strided copy to the host would be two.

    def _status_view(self, shape: Shape) -> Tensor:
        return self._status_out[: 2 * shape.rows].view(2, shape.rows)

    def _pcm_view(self, shape: Shape) -> Tensor:
        num_samples = shape.width * SAMPLES_PER_CODEC_FRAME
        return self._pcm_out[: shape.rows * num_samples].view(shape.rows, num_samples)

    # -- requests ----------------------------------------------------------------------------------

    def job(
        self,
        request_id: str,
        prompt: ModelPrompt,
        *,
        num_characters: int,
        max_new_tokens: int,
        is_text_complete: bool = True,
    ) -> Job:
        """Describe a request to the engine.

        Raises:
            UnsayableError: settings that the captured sampler cannot serve, or more text than a
                slot can speak.
        """
        if not self.plan.serves(prompt.sampling):
            raise UnsayableError(
                f"the sampler of this profile is {self._profile.sampler.value!r} and cannot serve"
                f" top_k {prompt.sampling.top_k}; serve a profile with sampler 'any'"
            )
        self._check_text(len(prompt.prompt.text_rows))
        num_rows = prompt.prompt.num_rows
        return Job(
            request_id=request_id,
            prompt=prompt,
            num_prompt_positions=num_rows + 1,
            num_prefill_positions=num_rows - self._num_stored(prompt.prompt),
            num_text_tokens=len(prompt.prompt.text_rows),
            is_text_complete=is_text_complete,
            num_characters=num_characters,
            max_new_tokens=max_new_tokens,
            ignore_eos=prompt.sampling.ignore_eos,
        )

    def _check_text(self, num_rows: int) -> None:
        if num_rows > self.state.max_text:
            raise UnsayableError(
                f"the text has {num_rows} tokens, and a slot can speak {self.state.max_text};"
                " split it"
            )

    def store_prefixes(self, prompts: Iterable[Prompt]) -> None:
        """Compute the constant rows of these prompts once, to be copied at admission.

        Every prompt must be one without text (`PromptBuilder.open`). Needs slot 1 to be free.
        """
        assert self._rows[1] is None
        for prompt in prompts:
            key = (prompt.text_ids, prompt.codec_ids)
            if not prompt.has_common_prefix or key in self._prefixes:
                continue
            self._prefill([1], [prompt], rows=1)
            self._driver.synchronize()
            at = slice(0, prompt.num_rows)
            k, v = self.state.talker_k[:, 1, at].clone(), self.state.talker_v[:, 1, at].clone()
            self._prefixes[key] = _StoredPrefix(k, v)
            self._reset(1, prompt.num_rows)

    def _num_stored(self, prompt: Prompt) -> int:
        """Leading rows of a prompt whose KV is stored."""
        return prompt.num_rows if self._stored(prompt) is not None else 0

    def _stored(self, prompt: Prompt) -> _StoredPrefix | None:
        if not self._profile.prefix_kv:
            return None
        return self._prefixes.get((prompt.text_ids, prompt.codec_ids))

    def admit(self, slot: int, job: Job) -> None:
        """Load a request into a slot that was left clean."""
        assert isinstance(job.prompt, ModelPrompt)
        prompt = job.prompt.prompt
        row = _Row(job.prompt, num_positions=prompt.num_rows, num_text=len(prompt.text_rows))
        self._rows[slot] = row
        try:
            self._load(slot, job, job.prompt)
        except Exception:
            self.release(slot)
            raise

    def _load(self, slot: int, job: Job, loaded: ModelPrompt) -> None:
        prompt, sampling = loaded.prompt, loaded.sampling
        if not job.is_text_complete:
            # The end of speech is not legal before the end of the text.
            sampling = dataclasses.replace(sampling, ignore_eos=True)
        model_state.write_sampling(self.state, slot, sampling)
        model_state.write_text(self.state, slot, 0, prompt.text_rows)
        if not job.num_prefill_positions:
            self._copy_prefix(slot, prompt)

    def _copy_prefix(self, slot: int, prompt: Prompt) -> None:
        stored = self._stored(prompt)
        assert stored is not None
        self.state.talker_k[:, slot, : prompt.num_rows].copy_(stored.k)
        self.state.talker_v[:, slot, : prompt.num_rows].copy_(stored.v)
        self.state.lengths[slot].fill_(prompt.num_rows)
        self.state.next_input[slot].copy_(first_input(self._model))

    def append_text(self, slot: int, tokens: object, *, is_end: bool) -> None:
        """More text rows (a sequence of ids, the closing `tts_eos` among them at the end).

        Raises:
            UnsayableError: more text than a slot can speak.
        """
        row = self._row(slot)
        assert isinstance(tokens, tuple)
        self._check_text(row.num_text + len(tokens))
        model_state.write_text(self.state, slot, row.num_text, tokens)
        row.num_text += len(tokens)
        if is_end:
            model_state.write_sampling(self.state, slot, row.prompt.sampling)

    def release(self, slot: int) -> None:
        """Leave the slot clean for its next owner, while nobody waits for it."""
        row = self._row(slot)
        self._rows[slot] = None
        self._reset(slot, row.num_positions)

    def _reset(self, slot: int, num_positions: int) -> None:
        model_state.reset_slot(self.state, slot, num_positions=num_positions)
        codec_state.reset_slot(self.codec_state, slot)

    def _row(self, slot: int) -> _Row:
        row = self._rows[slot]
        assert row is not None, f"slot {slot} is free"
        return row

    # -- steps -------------------------------------------------------------------------------------

    def launch(self, batch: Batch, *, wants_flags: bool) -> None:
        """Start one step."""
        if batch.stage is Stage.CODEC:
            self._decode(batch)
            return
        if batch.stage is Stage.PREFILL:
            prompts = [self._row(slot).prompt.prompt for slot in batch.slots]
            self._prefill(batch.slots, prompts, rows=batch.shape.rows)
            return
        if batch.stage is not Stage.PREDICTOR:
            for slot in batch.slots:
                self._row(slot).num_positions += 1
        self._look_back(batch.slots, 0)
        self.graphs.run(batch)
        if wants_flags:
            self._flags.append((batch, self._driver.copy_out(self._status_view(batch.shape))))

    def _look_back(self, slots: list[int], num_more: int) -> None:
        """Bound attention by the longest row, where the program is not recorded."""
        if self._driver.is_recorded:
            return
        longest = max(self._row(slot).num_positions for slot in slots) + num_more
        stepped = -(-longest // _CONTEXT_STEP) * _CONTEXT_STEP
        self._context = min(stepped, self.state.max_positions)

    def _prefill(self, slots: list[int], prompts: list[Prompt], *, rows: int) -> None:
        counts = [prompt.num_rows for prompt in prompts]
        width = self.catalogue.width_bucket(Stage.PREFILL, max(counts))
        assert width is not None, "admission refuses what no bucket covers"
        shape = Shape(Stage.PREFILL, rows, width)
        text = np.zeros((rows, width), np.int64)
        codec = np.full((rows, width), self._model.no_code, np.int64)
        for index, prompt in enumerate(prompts):
            text[index, : prompt.num_rows] = prompt.text_ids
            codec[index, : prompt.num_rows] = prompt.codec_ids
        self._prefill_text[: text.size].copy_(torch.from_numpy(text).view(-1))
        self._prefill_codec[: codec.size].copy_(torch.from_numpy(codec).view(-1))
        self.graphs.run(Batch(shape, slots, counts, slots[0], Urgency.STARTUP))

    def _decode(self, batch: Batch) -> None:
        """One codec step: the new codec frames, or all of them again where nothing is kept."""
        rows = [self._row(slot) for slot in batch.slots]
        if self._profile.codec is CodecMode.CACHED:
            starts = [row.num_decoded for row in rows]
            self.graphs.run(batch, starts=starts)
            self._handle = self._collect(batch)
        else:
            self._handle = self._redecode(batch, rows)
        for row, count in zip(rows, batch.counts, strict=True):
            row.num_decoded += count

    def _collect(self, batch: Batch) -> _Pcm:
        num = len(batch.slots)
        samples = self._driver.copy_out(self._pcm_view(batch.shape)[:num])
        is_sound = self._driver.copy_out(self._sound_out[: batch.shape.rows])
        return _Pcm(samples, is_sound, batch)

    def _redecode(self, batch: Batch, rows: list[_Row]) -> _Pcm:
        """Decode each row's history again from fresh state, then its new frames in one last call.

        Every call has the batch's own shape. A row whose history is shorter than its neighbour's
        sits out with no frames until the last call.
        """
        for slot in batch.slots:
            codec_state.reset_slot(self.codec_state, slot)
        width = batch.shape.width
        done = [0] * len(rows)
        while any(at < row.num_decoded for at, row in zip(done, rows, strict=True)):
            counts = [min(width, row.num_decoded - at) for at, row in zip(done, rows, strict=True)]
            self.graphs.run(batch, counts=counts, starts=done)
            done = [at + count for at, count in zip(done, counts, strict=True)]
        self.graphs.run(batch, starts=done)
        return self._collect(batch)

    def wait(self) -> None:
        """Block until the step launched last is done."""
        self._driver.synchronize()

    def read_flags(self) -> list[int]:
        """Row flags of the oldest unread launch."""
        batch, copy = self._flags.popleft()
        copy.wait()
        is_eos, is_bad = copy.array()[:, : len(batch.slots)]
        flags = (is_eos * RowFlag.EOS.value) | (is_bad * RowFlag.BAD.value)
        return [int(flag) for flag in flags]

    def pcm(self) -> PcmHandle:
        """The samples of the codec step just waited for."""
        assert self._handle is not None
        return self._handle

    def close(self) -> None:
        """Free what was captured."""
        self.graphs.close()
