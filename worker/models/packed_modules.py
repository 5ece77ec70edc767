"""Modules over our CPU kernels that stand where a network had torch's own. All compute in float32."""

from typing import Any

import torch
from torch import nn

from worker.kernels.cpu.library import Kernels
from worker.kernels.cpu.linear import PackedLinear


class LinearModule(nn.Module):
    """Stands for nn.Linear and for the transposed Conv1D of GPT-2."""

    def __init__(self, packed: PackedLinear) -> None:
        super().__init__()
        self.packed = packed
        self.in_features, self.out_features = packed.in_size, packed.out_size
        self.bias = packed.bias
        self.is_weight_read = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.packed(x if x.dtype is torch.float32 else x.float())

    @property
    def weight(self) -> torch.Tensor:
        """[out, in] as the panels hold it, unpacked each time: for the few that read what is another module's."""
        self.is_weight_read = True
        return self.packed.rows(torch.arange(self.packed.out_size))

    def dense(self) -> nn.Linear:
        """torch's own module with the same weight."""
        linear = nn.Linear(self.in_features, self.out_features, bias=self.bias is not None)
        linear.weight = nn.Parameter(self.weight, requires_grad=False)
        if self.bias is not None:
            linear.bias = nn.Parameter(self.bias, requires_grad=False)
        return linear


class StoredRows(nn.Embedding):
    """An embedding whose rows are kept in the type they were stored in and computed with in float32."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return super().forward(ids).float()


class PackedRows(nn.Embedding):
    """An embedding that reads the rows of the head it is tied to."""

    packed: PackedLinear

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.packed.rows(ids)


def keep_rows_as_stored(embedding: nn.Embedding) -> None:
    """Makes StoredRows of an embedding."""
    _become(embedding, StoredRows)


def take_rows_of(embedding: Any, packed: PackedLinear) -> None:
    """Makes PackedRows of an embedding, whose own weight is let go of."""
    shape = embedding.weight.shape
    del embedding._parameters["weight"]
    _become(embedding, PackedRows)
    # For those that ask for its type. Whoever reads what it holds is found out in the probe.
    embedding.weight = torch.tensor(torch.nan).expand(shape)
    embedding.packed = packed


def _become(embedding: nn.Embedding, kind: type[nn.Embedding]) -> None:
    """Lets an embedding look rows up as `kind` does. What a subclass of its own does to the rows, it still does."""
    own = type(embedding)
    # Behind its own class in the order of methods: there the forward of `kind` takes the place of nn.Embedding's.
    embedding.__class__ = kind if own is nn.Embedding else type(f"{kind.__name__}Of{own.__name__}", (own, kind), {})


class NormModule(nn.Module):
    """Stands for a root mean square norm over the last dimension."""

    def __init__(self, kernels: Kernels, weight: torch.Tensor, factors: torch.Tensor, epsilon: float) -> None:
        """`weight` is what the model calls so, `factors` [size] in float32 what rows are multiplied by."""
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self._factors = factors.contiguous()
        self._epsilon = epsilon
        self._kernels = kernels
        self._compute = kernels.library.hr_rms_norm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.float().contiguous()
        y = torch.empty_like(x)
        size = len(self._factors)
        self._compute(
            self._kernels.crew, x.data_ptr(), x.numel() // size, size, self._factors.data_ptr(), self._epsilon,
            y.data_ptr(),
        )  # fmt: skip
        return y


class ExpertsModule(nn.Module):
    """Stands for a mixture's experts, whose weights transformers keeps in one tensor for all of them."""

    def __init__(self, own: Any, ups: list[PackedLinear], downs: list[PackedLinear]) -> None:
        """`own` is transformers' module, which still knows how to gate; one up and one down layer for each expert."""
        super().__init__()
        self._own = own
        self._ups = ups
        self._downs = downs

    def forward(self, hidden: torch.Tensor, expert_ids: torch.Tensor, expert_weights: torch.Tensor) -> torch.Tensor:
        """[T, hidden] from `hidden` of the same shape; each row's experts and their weights are [T, k]."""
        num_chosen = expert_ids.shape[-1]
        flat = expert_ids.reshape(-1)
        found = hidden.new_empty(len(flat), hidden.shape[-1])
        for expert in sorted(set(flat.tolist())):
            places = (flat == expert).nonzero().squeeze(-1)
            found[places] = self._expert(expert, hidden[places // num_chosen])
        weighted = found.view(-1, num_chosen, hidden.shape[-1]) * expert_weights.unsqueeze(-1)
        return weighted.sum(dim=1)

    def _expert(self, expert: int, rows: torch.Tensor) -> torch.Tensor:
        up = self._ups[expert](rows)
        return self._downs[expert](self._own._apply_gate(up) if self._own.has_gate else self._own.act_fn(up))
