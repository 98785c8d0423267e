"""PyTorch on Rubato: elastic training of a loop that stays as it is.

    model, opt, loader = rubato.torch.elastic(model, opt, loader)

Start the script by `rubato launch -w 2:8 -- python train.py`; alone it trains in one process.
"""
import atexit
import collections
import hashlib
import json
import os
import re
import socket
import sys
import time

import torch

from . import _call, _tensors
from ._away import Away
from ._compile import Compiled, compile, must_be
from ._fit import fit
from ._group import RubatoGroup
from ._call import lib
from .team import Team, place

__all__ = ["Compiled", "RubatoGroup", "compile", "elastic", "fit"]


def elastic(model, opt, loader, *, scheduler=None, seed=0, epochs=0, checkpoint=None, every=60.0, resume=False, noise=False,
            where=None):
    """Train `model` with this process as one member of a job whose members come, leave and die.

    model: parameters on the CPU or on one GPU, trained with one backward per step. opt: an optimizer of torch.optim without a
    closure. loader: a DataLoader with a batch size; it is the batch of all members together, of which each gets its
    share. The loss must be a mean over the batch it is of. scheduler: one that is stepped after each opt.step();
    counts steps that count. seed: of the order of samples where the loader shuffles. epochs: the job ends after so
    many; 0: when the loops end. checkpoint: a folder into which the leader writes model and optimizer every so many
    seconds and at the end, as STEP.safetensors; the two newest are kept. resume: go on from the newest of it, if there
    is one; loops over epochs that are done are empty. noise: measure the noise of gradients and the times of steps; the
    leader writes them as often, as a question for `rubato plan FILE alloc`: into the file with that name, or for True
    into alloc.json, in the folder of checkpoints if there is one.

    Returns (model, opt, loader): the same model and optimizer, and a loader of the members' samples. After backward()
    gradients are those of the whole batch, on all members. When a member is lost in a step, opt.step() of that turn
    changes nothing and the loader gives the samples again. Who joins gets parameters and optimizer slots from the
    others. Buffers follow the member with the first samples of the batch.
    """
    member = _Member(model, opt, loader, scheduler, seed, epochs, where, noise is not False)
    if noise is not False:
        path = os.path.join(checkpoint or "", "alloc.json") if noise is True else os.fspath(noise)
        member.figures = _Figures(member, os.path.abspath(path), every)
    if checkpoint is not None:
        member.saves = _Saves(member, model, os.fspath(checkpoint), every, resume)
    return model, opt, member.loader


def _refuse(sentence, *values):
    raise _call.UnsupportedError(sentence % values)


def _check_tensors(model, opt):
    """The device of the model."""
    must_be(model, torch.nn.Module, "model")
    must_be(opt, torch.optim.Optimizer, "opt")
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    for name, t in [*model.named_parameters(), *model.named_buffers()]:
        if t.device.type not in ("cpu", "cuda") or t.is_sparse:
            _refuse("%s is on %s; elastic() trains dense tensors on the CPU or a GPU of CUDA", name, t.device)
        if t.dtype not in _tensors.NAMES:
            _refuse("%s is %s; elastic() trains real numbers", name, t.dtype)
        if t.device != device:
            _refuse("%s is on %s, others on %s; elastic() trains a model on one device", name, t.device, device)
    known = {id(p) for p in model.parameters()}
    for group in opt.param_groups:
        for p in group["params"]:
            if id(p) not in known:
                _refuse("the optimizer has a parameter of shape %s that the model does not have", tuple(p.shape))
    return device


def _away(device):
    return Away(device) if device.type == "cuda" else None


# What torch.optim's lazily made slots begin with, where it is not zero.
_FIRST = {"mu_product": 1.0, "mu": 1.0}
_LR = {"eta", "step_size"}


def _make_slots(opt):
    """Let the optimizer make its slots, without changing a parameter: a newcomer needs places for those of the others."""
    fresh = [(g, p) for g in opt.param_groups for p in g["params"] if p.requires_grad and not opt.state.get(p)]
    if not fresh:
        return
    with torch.no_grad():
        before = [(p, p.clone(), p.grad) for g in opt.param_groups for p in g["params"]]
        slots = [(p, k, v, v.clone()) for p, s in opt.state.items() for k, v in s.items() if torch.is_tensor(v)]
        for p, _, _ in before:
            p.grad = None
        for _, p in fresh:
            p.grad = torch.zeros_like(p)
        opt.step()
        for p, value, grad in before:
            p.copy_(value)
            p.grad = grad
        for _, _, v, value in slots:
            v.copy_(value)
        for g, p in fresh:
            for name, v in opt.state.get(p, {}).items():
                if torch.is_tensor(v):
                    v.fill_(g["lr"] if name in _LR else _FIRST.get(name, 0.0))
                elif v is not None:
                    _refuse("the optimizer %s keeps %s outside of tensors", type(opt).__name__, name)


class _Member:
    """What model, optimizer and loader of one process share."""

    def __init__(self, model, opt, loader, scheduler, seed, epochs, where, noise):
        device = _check_tensors(model, opt)
        must_be(loader, torch.utils.data.DataLoader, "loader")
        if scheduler is not None and not callable(getattr(scheduler, "step", None)):
            raise TypeError("scheduler must be one of torch.optim.lr_scheduler, got %s" % type(scheduler).__name__)
        _make_slots(opt)
        self.away = _away(device)
        self.opt, self.scheduler, self.where = opt, scheduler, where or place()
        self.team = self.step = self.saves = self.figures = None
        self.start = self.stands = (0, 0)  # steps, and samples of these: of a checkpoint, and done
        self.updated = False  # by the last opt.step()
        self.torn = False  # parameters and slots are between two steps
        self.trained = [p for p in reversed(list(model.parameters())) if p.requires_grad]
        # Small things that are no gradients: each is the one of the member with the first samples.
        self.small = list(model.buffers())  # those of the GPU first
        self.state, self.keep = [], []
        for group, p in enumerate(model.parameters()):
            if not p.data.is_contiguous():
                p.data = p.data.contiguous()
            self._add_state(p.data, group)
            for name, v in sorted(opt.state.get(p, {}).items()):
                if not torch.is_tensor(v):
                    continue
                if v.numel() == 1:
                    self.small.append(v)
                    continue
                if not v.is_contiguous():
                    v = opt.state[p][name] = v.contiguous()
                self._add_state(v, group)
        self.small.sort(key=lambda t: self.away is None or t.device != device)
        self.n_far = sum(t.numel() for t in self.small if self.away is not None and t.device == device)
        self.before = [t.clone() for t in self.small]
        # Gradients travel as bf16 where all are; noise is measured of f32.
        self.short = not noise and all(p.dtype == torch.bfloat16 for p in self.trained)
        self.sent = [self._memory(p.numel()) for p in self.trained]
        self.grads = [g[:p.numel()].view(p.shape) for g, p in zip(self.sent, self.trained)]
        # Behind them, for figures, a place for each host: how many members it has.
        self.more = torch.zeros(max(1, sum(t.numel() for t in self.small) + (_HOSTS if noise else 0)), pin_memory=self.away is not None)
        self.sent.append(self._memory(3 * self.more.numel()) if self.short else self.more)
        self.made = [False] * (len(self.grads) + 1)
        self.finished = self.counts = True
        self.loader = _Loader(self, loader, seed)
        self.epochs = epochs
        self.agreed = "optimizer %s\nseed %d\nsamples %d\nmodel %s" % (
            type(opt).__name__, seed, len(loader.dataset), hashlib.sha256(repr(
                [(n, tuple(p.shape), p.dtype, p.requires_grad) for n, p in model.named_parameters()]).encode()).hexdigest()[:16])
        for k, p in enumerate(self.trained):
            p.register_post_accumulate_grad_hook(lambda p, k=k: self._made(k, p))
        self._real_step = opt.step

        def step(closure=None):
            return self._opt_step(closure)

        step._wrapped_by_lr_sched = True  # schedulers look whether the step that they count is the optimizer's own
        opt.step = step
        if scheduler is not None:
            self._real_schedule, scheduler.step = scheduler.step, self._schedule
            self.scheduled = 0
        atexit.register(self.close)

    def _add_state(self, t, group):
        self.keep.append(t)
        self.state.append((0 if self.away is not None else t.data_ptr(), t.numel() * t.element_size(), group))

    def _memory(self, n):
        """Of n elements that travel, an even number of bf16."""
        return torch.zeros(n + n % 2 if self.short else n, dtype=torch.bfloat16 if self.short else torch.float32,
                           pin_memory=self.away is not None)

    def _move(self, k, offset, memory, into_state):
        self.away.move(self.keep[k], offset, memory, into_state)

    def open(self):
        data = self.loader
        # Opening waits for nothing; parameters may have been loaded since elastic().
        if self.away is not None:
            self.away.changed()
        self.team = Team([(g.data_ptr(), g.numel() * g.element_size()) for g in self.sent], self.state, batch=data.batch,
                         count=data.count, steps=self.epochs * len(data), before=self.start, agreed=self.agreed, where=self.where,
                         noise=0 if self.figures is None else len(self.grads), bf16=self.short,
                         move=None if self.away is None else self._move)

    def close(self):
        if self.team is not None and self.team.is_here():
            try:
                if self.saves is not None and not self.torn:
                    if self.step is not None and not self.updated:
                        self._small_back()
                    self.saves.after(last=True)
                if self.figures is not None:
                    self.figures.write(last=True)
            finally:  # a file that cannot be written holds up nobody
                self.team.close()

    # -- a step ---------------------------------------------------------------------------------

    def begin(self):
        """The next step of which this member has, or receives, something; None: the job has ended."""
        if self.step is not None and not self.finished:
            self._finish()
        if self.step is not None and self.counts and not self.updated:
            raise RuntimeError("opt.step() must be called once for each batch of an elastic loader")
        self.step = self.team.begin()
        if self.figures is not None:
            self.figures.begin(self.step)
        self.finished, self.counts, self.updated = False, True, False
        self.made = [False] * len(self.made)
        if self.step is not None and self.scheduler is not None:
            while self.scheduled < self.step.step:
                self.scheduled += 1
                self._real_schedule()
        return self.step

    def _made(self, k, p):
        if self.step is None:
            return
        if self.finished or self.made[k]:
            raise RuntimeError("a second backward() in one step; elastic() takes one backward for each batch")
        if not any(self.made):
            torch.autograd.Variable._execution_engine.queue_callback(self._finish)
        self._leave(k, p.grad)

    def _leave(self, k, grad):
        """Gradient k goes to the others."""
        self.made[k] = True
        if self.step.n == 0 or not self.counts:
            return  # zeros, which are ready already
        with torch.no_grad():
            if grad is None:
                self.grads[k].zero_()
            elif grad.is_sparse:
                _refuse("a gradient is sparse; elastic() sums dense ones")
            elif self.away is not None:
                self.away.leave(k, grad, self.step.n / self.step.batch, self.grads[k])
                return self._left(False)
            else:
                torch.mul(grad, self.step.n / self.step.batch, out=self.grads[k])
        self.counts = self.team.ready(k)

    def _left(self, all_of_them):
        for k in self.away.left(all_of_them):
            self.counts = self.counts and self.team.ready(k)

    def _finish(self):
        """All gradients become sums."""
        if self.finished or self.step is None:
            return
        self.finished = True
        for k, made in enumerate(self.made[:-1]):
            if not made:
                self._leave(k, None)
        with torch.no_grad():
            if self.away is not None:
                self._left(True)
            if self.step.n > 0 and self.counts:
                self.more.zero_()
                if self.step.first == 0:
                    self._small_leave()
                if self.figures is not None:
                    self.more[-_HOSTS + self.figures.place] = 1
                    self.figures.computed()
                if self.short:
                    self.sent[-1][:3 * self.more.numel()].copy_(_thirds(self.more))
                self.counts = self.team.ready(len(self.made) - 1)
            self.counts = self.team.wait()
            if not self.counts:
                self._small_back()
                return
            if self.short:
                self.more.copy_(self.sent[-1][:3 * self.more.numel()].float().view(3, -1).sum(0))
            far, *sums = [None, *self.grads] if self.away is None else self.away.back([self.more, *self.grads])
            at = 0
            for t in self.small:
                value = (far if at < self.n_far else self.more)[at:at + t.numel()].view(t.shape)
                t.copy_(value if t.is_floating_point() else value.round())
                at += t.numel()
            for p, g in zip(self.trained, sums):
                p.grad = g if p.dtype == g.dtype else g.to(p.dtype)

    def _small_leave(self):
        if self.n_far > 0:
            self.more[:self.n_far].copy_(torch.cat([t.reshape(-1).float() for t in self.small if t.device == self.away.device]))
        at = 0
        for t in self.small:
            if at >= self.n_far:
                self.more[at:at + t.numel()].copy_(t.reshape(-1))
            at += t.numel()

    def _small_back(self):
        """The step under way has not been."""
        with torch.no_grad():
            for t, before in zip(self.small, self.before):
                t.copy_(before)

    def _opt_step(self, closure=None):
        if closure is not None:
            _refuse("opt.step() with a closure; elastic() takes optimizers without one")
        if self.step is None:
            return self._real_step()
        self._finish()
        if not self.counts or self.updated:
            return None
        self.torn = True  # until all is as after the step: an exception leaves it so
        self._real_step()
        with torch.no_grad():
            for t, before in zip(self.small, self.before):
                before.copy_(t)
        self.updated = True
        self.stands = (self.step.step + 1, self.step.position - self.step.first + self.step.batch)
        self.torn = False
        if self.away is not None:
            self.away.changed()
        self.team.done()
        if self.saves is not None:
            self.saves.after()
        if self.figures is not None:
            self.figures.after(self.more[-_HOSTS:])
        return None

    def _schedule(self, *args):
        if self.updated and self.scheduled <= self.step.step:
            self.scheduled += 1
            self._real_schedule(*args)


def _thirds(t):
    """f32 as three bf16 whose sum it is: of one member's values nothing is lost on the way."""
    finite, parts = t.isfinite(), []
    rest = torch.where(finite, t, 0.0)
    for _ in range(3):
        parts.append((rest.view(torch.int32) & -65536).view(torch.float32))  # cut off: the largest ones round to infinity
        rest = rest - parts[-1]
    parts[0] = torch.where(finite, parts[0], t)
    return torch.cat(parts).bfloat16()


_HOSTS = 64  # places for the names of hosts, by their hash


class _Figures:
    """Times of steps by members and hosts, and the noise of gradients: a question for `rubato plan FILE alloc`."""

    def __init__(self, member, path, every):
        self.member, self.path, self.every, self.at = member, path, every, time.monotonic()
        self.place = hashlib.sha256(socket.gethostname().encode()).digest()[0] % _HOSTS
        self.times, self.noise = {}, (0.0, 0.0)  # (hosts, members): [steps, seconds of passes, of steps]
        self.opened, self.service, self.pass_s = self.at, 0.0, None

    def begin(self, step):
        self.begun, self.pass_s = time.monotonic(), None
        if step is not None and step.noise_var > 0:
            self.noise = (step.noise_sqr, step.noise_var)

    def computed(self):
        self.pass_s = time.monotonic() - self.begun

    def after(self, hosts):
        """A step counts; `hosts`: how many members of each had a share."""
        took, s = time.monotonic() - self.begun, self.member.step
        self.service += took * s.members
        if self.pass_s is not None and s.batch == self.member.loader.batch and round(float(hosts.sum())) == s.members:
            of = self.times.setdefault((int((hosts > 0.5).sum()), s.members), [-_WARM, 0.0, 0.0])
            of[0] += 1
            if of[0] > 0:
                of[1], of[2] = of[1] + self.pass_s, of[2] + took
        self.write()

    def write(self, last=False):
        now = time.monotonic()
        known = {key: of for key, of in self.times.items() if of[0] > 0}
        if not known or (not last and now - self.at < self.every) or not self.member.team.leads():
            return
        self.at, data = now, self.member.loader
        hosts, members = max(known, key=lambda key: (key[1], key[0]))
        job = {"name": os.fsencode(os.path.basename(sys.argv[0])).decode("utf-8", "replace") or "job", "batch_first": data.batch, "batch_max": data.count,
               "local_max": data.batch, "replicas": members, "age": "%.3fs" % (now - self.opened), "service": self.service,
               "measured": [{"nodes": h, "replicas": n, "local": max(1, round(data.batch / n)), "pass": max(of[1] / of[0], 1e-9),
                             "step": max(of[2] / of[0], 1e-9)} for (h, n), of in sorted(known.items())]}
        if self.noise[1] > 0:
            job.update(sqr=self.noise[0], var=self.noise[1])
        if self.member.epochs > 0:
            job["left"] = max(0, self.member.epochs * data.count - self.member.stands[1])
        with open(self.path + ".part", "w") as f:
            json.dump({"nodes": [-(-members // hosts)] * hosts, "jobs": [job]}, f, indent=1)
        os.replace(self.path + ".part", self.path)


_WARM = 4  # steps of new members or hosts that are not counted


class _Saves:
    """Checkpoints, by whoever leads."""

    def __init__(self, member, model, folder, every, resume):
        self.member, self.folder, self.every, self.at = member, folder, every, time.monotonic()
        self.tensors = dict(model.state_dict())
        names = {id(p): n for n, p in model.named_parameters()}
        for p, slots in member.opt.state.items():
            self.tensors.update({"%s/%s" % (names[id(p)], k): v for k, v in slots.items() if torch.is_tensor(v)})
        os.makedirs(folder, exist_ok=True)
        there = self._there() if member.where.join is None else []  # else its state comes from the others
        self.saved = 0
        if resume and there:
            facts = _tensors.load(os.path.join(folder, "%d.safetensors" % there[-1]), self.tensors)
            member.start = member.stands = (int(facts["step"]), int(facts["position"]))
            self.saved = member.start[0]
            member.before = [t.clone() for t in member.small]
        elif there and not resume:
            raise _call.BusyError("%s holds checkpoints of another training: give resume=True or another folder" % folder)

    def _there(self):
        return sorted(int(m[1]) for m in (re.fullmatch(r"(\d+)\.safetensors", n) for n in os.listdir(self.folder)) if m)

    def after(self, last=False):
        """A step counts, or the training ends."""
        step, position = self.member.stands
        if not self.member.team.leads() or (not last and time.monotonic() - self.at < self.every):
            return
        if step > self.saved:
            _tensors.save(os.path.join(self.folder, "%d.safetensors" % step), self.tensors,
                          {"step": str(step), "position": str(position)})
            self.saved, self.at = step, time.monotonic()
            for old in self._there()[:-2]:
                os.unlink(os.path.join(self.folder, "%d.safetensors" % old))


class _Loader:
    """Batches of this member's samples, as the loader that it stands for would collate them."""

    def __init__(self, member, loader, seed):
        if loader.batch_size is None or not hasattr(loader.dataset, "__len__"):
            _refuse("the loader has no batch size or its dataset no length; elastic() takes a DataLoader of samples with numbers")
        sampler = type(loader.sampler).__name__
        if sampler not in ("RandomSampler", "SequentialSampler", "DistributedSampler"):
            _refuse("the loader's sampler is a %s; elastic() gives samples in order or shuffled", sampler)
        self.member, self.given, self.seed = member, loader, seed
        self.batch, self.dataset = loader.batch_size, loader.dataset
        self.shuffles = sampler == "RandomSampler" or (sampler == "DistributedSampler" and loader.sampler.shuffle)
        n = len(loader.dataset)
        self.count = n // self.batch * self.batch if loader.drop_last else n
        if self.count < 1:
            _refuse("%d samples are fewer than the batch of %d", n, self.batch)
        self.epoch, self.waits = 0, None
        self._at = self._share = None
        self._tags, self._fetched = collections.deque(), None

    def __len__(self):
        """Batches of an epoch, those of all members: so many steps."""
        return -(-self.count // self.batch)

    def __iter__(self):
        """One epoch; of epochs that the others have done already, nothing."""
        epoch, self.epoch = self.epoch, self.epoch + 1
        m = self.member
        if m.team is None:
            m.open()
        while True:
            s, self.waits = self.waits or m.begin(), None
            if s is None:
                return
            begin = s.position - s.first
            if begin // self.count < epoch:
                raise RuntimeError("a loop over an elastic loader was left in epoch %d, which is not over: all members go "
                                   "through all batches of an epoch" % (begin // self.count + 1))
            if begin // self.count > epoch:
                self.waits = s  # the next loop begins with it
                return
            # Who only receives computes something too, which counts nothing: so the loop is the same on all members.
            yield self._get(s.position if s.n > 0 else begin, s.n or max(1, s.batch // s.members))

    def _sample(self, position):
        epoch, at = divmod(position, self.count)
        return lib.ru_order_sample(self.seed, epoch, at, len(self.dataset)) if self.shuffles else at

    # Workers of a DataLoader fetch ahead, for the shares of now: what was fetched for other ones is dropped.

    def _ahead(self):
        while True:
            at, n = self._at
            self._tags.append((at, n))
            self._at = (at + self.batch, n)
            yield [self._sample(at + k) for k in range(n)]

    def _get(self, position, n):
        g = self.given
        if g.num_workers == 0:
            return g.collate_fn([self.dataset[self._sample(position + k)] for k in range(n)])
        if self._fetched is None:
            self._at = (position, n)
            self._fetched = iter(torch.utils.data.DataLoader(
                g.dataset, batch_sampler=_Sampler(self._ahead()), num_workers=g.num_workers, collate_fn=g.collate_fn,
                pin_memory=g.pin_memory, timeout=g.timeout, worker_init_fn=g.worker_init_fn,
                multiprocessing_context=g.multiprocessing_context, prefetch_factor=g.prefetch_factor))
        if (position, n) not in self._tags:
            self._at = (position, n)
        while True:
            batch = next(self._fetched)
            if self._tags.popleft() == (position, n):
                return batch


class _Sampler:
    """What a DataLoader asks for the next samples."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return self.batches
