"""A DLRM of TorchRec on generated click-through data, whose EmbeddingBagCollection is in a tarn fleet.

    tools/launch examples/torch/torchrec_dlrm.toml -- python3 examples/torch/torchrec_dlrm.py
    diff examples/torch/torchrec_local.py examples/torch/torchrec_dlrm.py

Shows: five changed lines put the tables of a TorchRec model into a fleet. The collection is on the meta device, so its
tables may be of any size. The servers run the optimizer of apply_optimizer_in_backward. Needs torch, TorchRec and
fbgemm-gpu-cpu (pip install torchrec fbgemm-gpu-cpu).

Expect: ten seconds on two cores; the loss falls from 0.70 to below 0.60.
"""

import argparse

import torch
from torch.distributed.optim import _apply_optimizer_in_backward as apply_optimizer_in_backward
from torch.nn import functional as F
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.models.dlrm import DLRM

import tarn.torch

NUMBERS, DIM = 13, 16
ROWS = {"site": 20_000, "user": 200_000, "ad": 5_000, "words": 50_000}


def batches(count, size):
    """numbers float32 [size, 13], ids of the features with 0 to 3 ids each, clicks float32 [size]."""
    random = torch.Generator().manual_seed(1)
    for _ in range(count):
        numbers = torch.randn(size, NUMBERS, generator=random)
        lengths = torch.randint(0, 4, (len(ROWS) * size,), generator=random)
        per_feature = [int(each.sum()) for each in lengths.split(size)]
        ids = torch.cat([(torch.rand(each, generator=random) ** 4 * rows).long()
                         for each, rows in zip(per_feature, ROWS.values())])
        features = KeyedJaggedTensor(list(ROWS), ids, lengths=lengths)
        # An odd id of an ad makes a click likely.
        ads = features["ad"]
        owner = torch.repeat_interleave(torch.arange(size), ads.lengths())
        effect = torch.zeros(size).index_add_(0, owner, (ads.values() % 2) * 2.0 - 1)
        yield numbers, features, torch.bernoulli(torch.sigmoid(effect + numbers[:, 0] * 0.5), generator=random)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=512)
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)

    tables = [EmbeddingBagConfig(name=f"{name}_table", embedding_dim=DIM, num_embeddings=rows, feature_names=[name])
              for name, rows in ROWS.items()]
    collection = EmbeddingBagCollection(tables, device=torch.device("meta"))
    apply_optimizer_in_backward(torch.optim.Adagrad, collection.parameters(), {"lr": 0.05})
    model = tarn.torch.remote(DLRM(collection, NUMBERS, dense_arch_layer_sizes=[32, DIM], over_arch_layer_sizes=[32, 1]))
    dense = [each for name, each in model.named_parameters() if "embedding_bags" not in name]
    optimizer = torch.optim.Adam(dense, lr=0.002)
    tarn.torch.attach(model, optimizer)

    losses = []
    for numbers, features, clicks in tarn.torch.prefetch(batches(options.steps, options.batch), model):
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model(numbers, features).squeeze(1), clicks)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    first, last = losses[:20], losses[-20:]
    print(f"loss {sum(first) / len(first):.4f} at the beginning, {sum(last) / len(last):.4f} at the end")


if __name__ == "__main__":
    main()
