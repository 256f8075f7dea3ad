"""Sequential recommendation: which item comes next, by a small transformer whose layers are spread over processes.

    tools/launch examples/torch/sequence.toml -- python3 examples/torch/sequence.py --tensor 2 --pipeline 2

Shows: tables beside every kind of parallelism of torch. The item tables are in a tarn fleet; the encoder is tensor
parallel (--tensor: parallelize_module over a DeviceMesh divides heads and hidden units), pipeline parallel (--pipeline:
stages of torch.distributed.pipelining) and data parallel (workers / tensor / pipeline copies), over gloo. A process
pulls and pushes only the rows that its stage needs. However the four workers are divided, the losses are those of one
process (--set fleet.workers=1) up to rounding. Needs torch and NumPy.

Expect: a minute on two cores for 400 steps. The sequences come from a hidden chain: an item is followed by one of five
others in 7 of 10 cases. HR@10, the share of sequences whose next item is among the ten best of 5,000: 0.48; 0.69 if one
knows the chain.

Model: Kang and McAuley, "Self-attentive sequential recommendation", 2018.
"""

import argparse

import numpy as np
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F

import tarn.torch
import workers
from workers import RANK, WORKERS

ITEMS, LENGTH, NEGATIVES = 5_000, 20, 8
DIM, HEADS, LAYERS, HIDDEN = 32, 2, 2, 64
MICROBATCHES = 2


class Layer(nn.Module):
    """float32 [batch, LENGTH, DIM] -> the same; a position attends to itself and those before it."""

    def __init__(self):
        super().__init__()
        self.before_attention, self.before_hidden = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.query, self.key, self.value, self.out = (nn.Linear(DIM, DIM) for _ in range(4))
        self.up, self.down = nn.Linear(DIM, HIDDEN), nn.Linear(HIDDEN, DIM)

    def forward(self, x):
        normal = self.before_attention(x)
        query, key, value = (each(normal).unflatten(-1, (-1, DIM // HEADS)).transpose(1, 2)  # of the heads here
                             for each in (self.query, self.key, self.value))
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.down(F.relu(self.up(self.before_hidden(x))))


class Encoder(nn.Module):
    """ids int64 [batch, LENGTH] -> float32 [batch, LENGTH, DIM]. A pipeline stage runs only its own layers; the first
    stage also looks up the items, the others take the output of the stage before."""

    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(ITEMS, DIM, device="meta")
        self.positions = nn.Parameter(torch.randn(LENGTH, DIM) * 0.1)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.first, self.here = True, range(LAYERS)

    def forward(self, x):
        if self.first:
            x = self.items(x) + self.positions
        for i in self.here:
            x = self.layers[i](x)
        return x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.targets = nn.Embedding(ITEMS, DIM, device="meta")

    def loss(self, encoded, targets):
        """targets int64 [batch, LENGTH, 1 + NEGATIVES]: the item that follows, and others. Returns the mean over a
        batch, divided by MICROBATCHES."""
        logits = (self.targets(targets) @ encoded[..., None]).squeeze(-1)
        return F.cross_entropy(logits.flatten(0, 1), torch.zeros(logits[..., 0].numel(), dtype=torch.int64)) / MICROBATCHES


class Division:
    """Divides the workers into data x tensor x pipeline, and the model among them."""

    def __init__(self, model, tensor, pipeline):
        self.model, self.pipeline, self.data = model, pipeline, WORKERS // tensor // pipeline
        self.mesh = init_device_mesh("cpu", (self.data, tensor, pipeline), mesh_dim_names=("data", "tensor", "pipeline"))
        self.part = self.mesh.get_local_rank("data")
        encoder, stage, layers = model.encoder, self.mesh.get_local_rank("pipeline"), LAYERS // pipeline
        encoder.first, encoder.here = stage == 0, range(stage * layers, (stage + 1) * layers)
        self.last = stage == pipeline - 1
        if tensor > 1:
            for i in encoder.here:
                parallelize_module(encoder.layers[i], self.mesh["tensor"], {
                    "query": ColwiseParallel(), "key": ColwiseParallel(), "value": ColwiseParallel(), "out": RowwiseParallel(),
                    "up": ColwiseParallel(), "down": RowwiseParallel()})
        if pipeline > 1:
            self.stage = PipelineStage(encoder, stage, pipeline, torch.device("cpu"), group=self.mesh.get_group("pipeline"))
            self.schedule = ScheduleGPipe(self.stage, MICROBATCHES, loss_fn=model.loss, scale_grads=False)

    def parameters(self):
        """The dense parameters of this stage."""
        encoder = self.model.encoder
        yield from [encoder.positions] if encoder.first else []
        for i in encoder.here:
            yield from encoder.layers[i].parameters()

    def backward(self, ids, targets):
        """Returns the loss of the batch where the last stage is, elsewhere None."""
        if self.pipeline == 1:
            losses = [self.model.loss(self.model.encoder(few), of) for few, of in zip(ids.chunk(MICROBATCHES),
                                                                                      targets.chunk(MICROBATCHES))]
            sum(losses).backward()
        else:
            losses = []
            self.schedule.step(*([ids] if self.model.encoder.first else []), target=targets if self.last else None,
                               losses=losses if self.last else None)
        for parameter in self.parameters():
            if self.data > 1:
                gradient = parameter.grad.to_local() if isinstance(parameter.grad, DTensor) else parameter.grad
                distributed.all_reduce(gradient, group=self.mesh.get_group("data"))
                gradient /= self.data
        for rows in tarn.torch.rows(self.model):  # servers average over all workers; only one stage has rows of a table
            rows.grad *= self.pipeline
        return sum(losses).item() if self.last else None

    def whole(self):
        """A copy of the model with all parameters, on every process."""
        copy = Model()
        copy.encoder.items, copy.targets = self.model.encoder.items, self.model.targets
        whole = dict(copy.named_parameters())
        for stage in range(self.pipeline):
            owner = int(self.mesh.mesh[0, 0, stage])
            layers = range(stage * LAYERS // self.pipeline, (stage + 1) * LAYERS // self.pipeline)
            prefixes = tuple(f"encoder.layers.{i}." for i in layers) + (("encoder.positions",) if stage == 0 else ())
            for name, parameter in self.model.named_parameters():
                if not name.startswith(prefixes):
                    continue
                if self.mesh.get_local_rank("pipeline") == stage:
                    value = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
                    whole[name].data.copy_(value.detach())
                if WORKERS > 1:
                    distributed.broadcast(whole[name].data, src=owner)
        return copy


class Chain:
    """The hidden model: five items of which one follows an item in 7 of 10 cases."""

    def __init__(self):
        self.following = np.random.default_rng(0).integers(ITEMS, size=(ITEMS, 5))

    def sequences(self, count, random):
        """int64 [count, LENGTH + 1]."""
        sequences = random.integers(ITEMS, size=(count, LENGTH + 1))
        follows = random.random((count, LENGTH)) < 0.7
        for i in range(LENGTH):
            next_items = self.following[sequences[:, i], random.integers(5, size=count)]
            sequences[:, i + 1] = np.where(follows[:, i], next_items, sequences[:, i + 1])
        return sequences


def batches(chain, steps, size, part, parts):
    """Part `part` of `parts` of each batch; the whole batches do not depend on `parts`."""
    random = np.random.default_rng(1)
    for _ in range(steps):
        sequences = chain.sequences(size, random)
        others = random.integers(ITEMS, size=(size, LENGTH, NEGATIVES))
        targets = np.concatenate([sequences[:, 1:, None], others], axis=2)
        mine = slice(size // parts * part, size // parts * (part + 1))
        yield torch.from_numpy(sequences[mine, :-1].copy()), torch.from_numpy(targets[mine])


def hits(model, chain, count):
    """The share of sequences whose last item is among the ten with the highest scores, and the share whose last item is
    among the five that follow the item before it in the hidden chain."""
    sequences = torch.from_numpy(chain.sequences(count, np.random.default_rng(2)))
    with torch.no_grad():
        encoded = model.encoder(sequences[:, :-1])[:, -1]
        best = (encoded @ model.targets(torch.arange(ITEMS)).T).topk(10, dim=1).indices
    chosen = torch.from_numpy(chain.following)[sequences[:, -2]]
    return [(each == sequences[:, -1:]).any(dim=1).float().mean().item() for each in (best, chosen)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=128, help="sequences of a batch, of all workers together")
    parser.add_argument("--tensor", type=int, default=1, help="workers that share a layer; 1 or 2")
    parser.add_argument("--pipeline", type=int, default=1, help="stages; 1 or 2")
    options = parser.parse_args()
    if options.tensor not in (1, 2) or options.pipeline not in (1, 2) or WORKERS % (options.tensor * options.pipeline):
        parser.error(f"--tensor {options.tensor} --pipeline {options.pipeline}: expected 1 or 2, whose product divides "
                     f"{WORKERS} workers")
    torch.manual_seed(1)
    torch.set_num_threads(1)

    model = tarn.torch.remote(Model(), initializer={"kind": "normal", "stddev": 0.1})
    workers.meet()
    division, chain = Division(model, options.tensor, options.pipeline), Chain()
    optimizer = torch.optim.Adam(division.parameters(), lr=0.003)
    tarn.torch.attach(model, optimizer)

    losses = []
    loader = batches(chain, options.steps, options.batch, division.part, division.data)
    for step, (ids, targets) in enumerate(loader, 1):
        optimizer.zero_grad()
        loss = division.backward(ids, targets)
        optimizer.step()
        mean = torch.tensor([0.0 if loss is None else loss * options.pipeline / WORKERS])
        distributed.all_reduce(mean)
        losses.append(mean.item())
        if RANK == 0 and (step % 50 == 0 or step in (1, options.steps)):
            print(f"step {step}: loss {np.mean(losses[-50:]):.6f}")
    whole = division.whole()
    if RANK == 0:
        found, best = hits(whole, chain, 2_000)
        print(f"HR@10 {found:.4f}, of the hidden chain {best:.4f}")
    workers.part()


if __name__ == "__main__":
    main()
