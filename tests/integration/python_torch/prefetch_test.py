"""tarn.torch over a fake client: what is pulled ahead."""

import contextlib
import io
import pathlib
import sys
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "python"))

try:
    import torch
except ImportError:
    print("prefetch_test.py: skipped: torch is not installed", file=sys.stderr)
    sys.exit(77)

import tarn.torch  # noqa: E402
from fake_fleet import FakeClient  # noqa: E402
from small_model import Bags, attached, ids_of  # noqa: E402
from tarn.torch import session  # noqa: E402
from torch import nn  # noqa: E402


class PrefetchTest(unittest.TestCase):
    def setUp(self):
        self.client = FakeClient()
        self.model, self.optimizer = attached(Bags(), self.client)

    def train(self, loader, ids=lambda batch: batch, accumulate=1):
        for i, batch in enumerate(loader):
            self.model(ids(batch)).sum().backward()
            if (i + 1) % accumulate == 0:
                self.optimizer.step()
                self.optimizer.zero_grad()

    def clocks(self):
        """(clock for which rows are pulled, number of tables) of every request after the three of the first step."""
        return [(clock, len(names)) for clock, names in self.client.pulls[3:]]

    def test_views_of_a_batch(self):
        batches = [ids_of(size, seed=size) for size in (5, 5, 5, 5, 2)]
        self.train(tarn.torch.prefetch(batches, self.model, depth=2))
        self.assertEqual(self.clocks(), [(clock, 3) for clock in (1, 2, 3, 4)])

    def test_it_pulls_ahead(self):
        seen = []
        loader = tarn.torch.prefetch([ids_of(seed=i) for i in range(6)], self.model, depth=2)
        self.assertEqual(len(loader), 6)
        for batch in loader:
            seen.append((self.client.clock, max(clock for clock, _ in self.client.pulls) if self.client.pulls else None))
            self.train([batch])
        self.assertEqual(seen, [(0, None), (1, 3), (2, 4), (3, 5), (4, 5), (5, 5)])

    def test_the_state_is_saved_before_it_changes(self):
        """Also in the last steps, whose rows are all pulled already."""
        for loader in ([ids_of(seed=i) for i in range(4)], tarn.torch.prefetch([ids_of(seed=i) for i in range(4)], self.model)):
            self.client.states.clear()
            stepped = []
            for batch in loader:
                self.train([batch])
                stepped.append(self.model.top.bias.item())
            self.client.save_state()
            saved = [torch.load(io.BytesIO(each), weights_only=True)["model"]["top.bias"].item() for each in self.client.states]
            self.assertEqual(saved[-len(stepped):], stepped)

    def test_evaluation(self):
        """Without steps nothing more is pulled ahead."""
        batches = [ids_of(seed=i) for i in range(4)] * 40
        with self.assertWarnsRegex(UserWarning, "64 batches without a step: nothing is pulled ahead until the next one"):
            for batch in tarn.torch.prefetch(batches, self.model, depth=2):
                with torch.no_grad():
                    self.model(batch)
        self.assertLess(sum(clock > 0 for clock, _ in self.client.pulls), 70)

    def test_a_dict_and_a_copy(self):
        batches = [{"label": torch.zeros(5), "ids": ids_of(seed=i).int()} for i in range(4)]
        bag = tarn.torch.remote(nn.EmbeddingBag(1000, 2, mode="sum"), client := FakeClient())
        optimizer = tarn.torch.attach(bag)
        for batch in tarn.torch.prefetch([{"ids": each["ids"][:, 0]} for each in batches], bag, depth=2):
            bag(batch["ids"].long()).sum().backward()
            self.assertEqual(max(clock for clock, _ in client.pulls), min(3, client.clock + 2) if client.clock else 0)
            optimizer.step()
        self.assertEqual(len(client.pulls), 4)

    def test_accumulation(self):
        loader = tarn.torch.prefetch([ids_of(seed=i) for i in range(8)], self.model, depth=2, accumulate=2)
        self.train(loader, accumulate=2)
        self.assertEqual(self.clocks(), [(0, 3), (1, 3), (1, 3), (2, 3), (2, 3), (3, 3), (3, 3)])

    def test_a_wrong_guess_of_the_clock_waits_for_nothing(self):
        """Servers hold back rows of a later clock until this worker ticks, so it must not wait for them."""
        loader = tarn.torch.prefetch([ids_of(seed=i) for i in range(8)], self.model, depth=2)
        self.train(loader, accumulate=2)
        self.assertEqual(self.client.clock, 4)

    def test_ids_that_are_not_in_the_batch(self):
        batches = [ids_of(seed=i) for i in range(4)]
        shifted = lambda batch: (batch + 1) % 1000  # noqa: E731
        with self.assertWarnsRegex(UserWarning, r"the ids of \['bags.0', 'bags.1', 'bags.2'\] are not part of the batch"):
            self.train(tarn.torch.prefetch(batches, self.model), shifted)
        self.assertEqual(self.client.clock, 4)
        self.client.pulls.clear()
        keys = lambda batch: {f"bags.{i}": shifted(batch)[:, i] for i in range(3)}  # noqa: E731
        self.train(tarn.torch.prefetch(batches, self.model, depth=2, keys=keys), shifted)
        self.assertEqual([(clock, len(names)) for clock, names in self.client.pulls], [(clock, 3) for clock in range(4, 8)])
        with self.assertRaisesRegex(ValueError, "keys\\(\\) returned 'bag', expected paths of"):
            self.train(tarn.torch.prefetch(batches, self.model, keys=lambda batch: {"bag": batch}))

    def test_ids_that_the_program_changes(self):
        """Rows that were pulled for the ids before the change are not used."""
        batches = [torch.full((1, 3, 1), i) for i in range(4)]
        for batch in tarn.torch.prefetch(batches, self.model):
            self.train([batch.add_(100)])
        self.assertEqual([list(push["bags.0"]) for push in self.client.pushes], [[100], [101], [102], [103]])

    def test_an_empty_loader_and_a_break(self):
        self.train(tarn.torch.prefetch([], self.model))
        for batch in tarn.torch.prefetch([ids_of(seed=i) for i in range(4)], self.model):
            self.train([batch])
            break
        self.assertEqual(self.client.torch_session.calls, [])

    def test_refusals(self):
        with self.assertRaisesRegex(ValueError, "depth = -1"):
            tarn.torch.prefetch([], self.model, depth=-1)
        with self.assertRaisesRegex(ValueError, "tarn.torch.prefetch: Linear has no module whose rows"):
            tarn.torch.prefetch([], nn.Linear(1, 1))


class CopiesToAGpuTest(unittest.TestCase):
    """The order of the calls of torch.cuda, which is replaced; cuda_test.py has the same with a GPU."""

    def setUp(self):
        self.log = []
        self.streams = [FakeStream("own", self), FakeStream("other", self)]
        own = FakeStream("copies", self)
        for name, each in [("current_stream", lambda _: self.streams[0]), ("stream", own.entered)]:
            self.enterContext(mock.patch.object(torch.cuda, name, each))
        self.enterContext(mock.patch.object(session, "_stream_of_copies", lambda _: own))
        self.gpu = mock.Mock(type="cuda")
        self.slab = self.slab_of("")

    def slab_of(self, name, arrived=None):
        slab = session._Slab(FakeHost(f"{name}rows", self), FakeHost(f"{name}index", self))
        slab.future = mock.Mock(ready=lambda: self.arrived if arrived is None else arrived)
        return slab

    COPIES = ["enter copies", "rows to GPU", "index to GPU", "record on copies", "leave copies"]

    def test_rows_that_have_not_arrived_are_not_copied(self):
        self.arrived = False
        self.slab.copy_if_arrived(self.gpu)
        self.assertEqual(self.log, [])

    def test_one_copy_each_and_every_stream_waits_once(self):
        self.arrived = True
        for _ in range(2):
            self.slab.copy_if_arrived(self.gpu)
        self.assertEqual(self.log, self.COPIES)
        self.log.clear()
        for _ in range(2):
            for _ in range(2):
                copies = self.slab.on(self.gpu)
            self.streams.reverse()
        self.assertEqual([each.name for each in copies], ["rows on GPU", "index on GPU"])
        self.assertEqual(self.log, [each for stream in ("own", "other") for each in (
            f"{stream} waits", f"rows on GPU used by {stream}", f"index on GPU used by {stream}")])

    def test_the_rows_of_each_request_are_copied_in_order_behind_those_needed_now(self):
        client = FakeClient()
        attached(Bags(), client)
        own = session.of(client)
        for name, arrived, gpu in (("b ", True, self.gpu), ("late ", False, self.gpu), ("cpu ", True, None), ("a ", True, self.gpu)):
            own._ahead += [mock.Mock(slab=self.slab_of(name, arrived), module=mock.Mock(gpu=gpu))] * 2
        own.copy_ahead_due = True
        now = mock.Mock(plan=None)
        now.rows = lambda _: self.log.append("rows needed now") or torch.zeros(1)
        with torch.inference_mode():
            for _ in range(2):
                own.leaf(now, self.gpu)
        copies = [each for each in self.log if "rows" in each]
        self.assertEqual(copies, ["rows needed now", "b rows to GPU", "a rows to GPU", "rows needed now"])
        own._ahead.clear()

    def test_without_memory_the_copy_is_tried_again(self):
        self.arrived = True
        with mock.patch.object(FakeHost, "to", side_effect=torch.cuda.OutOfMemoryError):
            self.slab.copy_if_arrived(self.gpu)
        self.log.clear()
        self.slab.on(self.gpu)
        self.assertEqual(self.log[:5], self.COPIES)

    def test_rows_that_nobody_copied_before(self):
        self.slab.on(self.gpu)
        self.assertEqual(self.log[:6], [*self.COPIES, "own waits"])


class FakeStream:
    def __init__(self, name, test):
        self.name, self.log = name, test.log

    @contextlib.contextmanager
    def entered(self, stream):
        self.log.append(f"enter {stream.name}")
        yield
        self.log.append(f"leave {stream.name}")

    def record_event(self):
        self.log.append(f"record on {self.name}")

    def wait_event(self, _):
        self.log.append(f"{self.name} waits")


class FakeHost:
    def __init__(self, name, test):
        self.name, self.test = name, test

    def to(self, _, non_blocking):
        self.test.assertFalse(torch.is_inference_mode_enabled())
        self.test.log.append(f"{self.name} to GPU")
        return FakeHost(f"{self.name} on GPU", self.test)

    def record_stream(self, stream):
        self.test.log.append(f"{self.name} used by {stream.name}")


if __name__ == "__main__":
    unittest.main()
