"""Parameters on a GPU: gradients leave and sums come back through pinned memory, on streams of their own."""
import collections

import torch


class Away:
    """Copies between the memory of `device` and that of this process, in which the others' bytes come and go."""

    def __init__(self, device):
        self.device = device
        self.sums, self.state = torch.cuda.Stream(device), torch.cuda.Stream(device)
        self.read, self.updated = torch.cuda.Event(), torch.cuda.Event()
        self.leaving = collections.deque()
        self.changed()

    def changed(self):
        """What was queued so far makes the state that others may ask for; sums are not read any more."""
        self.updated.record(torch.cuda.current_stream(self.device))
        self.read.synchronize()

    def leave(self, k, grad, factor, into):
        """Gradient k goes into pinned memory, behind what computes it."""
        self.sums.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.sums):
            into.copy_((grad * factor).to(into.dtype), non_blocking=True)
            there = torch.cuda.Event()
            there.record(self.sums)
        grad.record_stream(self.sums)
        self.leaving.append((k, there))

    def left(self, all_of_them):
        """Numbers of the gradients that are there, in the order in which they were made."""
        while self.leaving and (all_of_them or self.leaving[0][1].query()):
            k, there = self.leaving.popleft()
            there.synchronize()
            yield k

    def back(self, sums):
        """The same on the device, for what the current stream does next."""
        now = torch.cuda.current_stream(self.device)
        with torch.cuda.stream(self.sums):
            out = [t.to(self.device, non_blocking=True, copy=True) for t in sums]
            self.read.record(self.sums)
        now.wait_stream(self.sums)
        for t in out:
            t.record_stream(now)
        return out

    def move(self, tensor, offset, memory, into_state):
        """Bytes of a tensor into `memory` or out of it, as of the last update; on a thread of the library."""
        there = tensor.detach().reshape(-1).view(torch.uint8)[offset:offset + len(memory)]
        here = torch.frombuffer(memory, dtype=torch.uint8)
        with torch.cuda.stream(self.state):
            self.state.wait_event(self.updated)
            if into_state:
                there.copy_(here)
            else:
                here.copy_(there)
        self.state.synchronize()
