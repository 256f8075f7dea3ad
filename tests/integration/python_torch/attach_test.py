"""tarn.torch over a fake client: what a step of the optimizer pushes."""

import gc
import pathlib
import sys
import unittest
import unittest.mock
import warnings
import weakref

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "python"))

try:
    import torch
except ImportError:
    print("attach_test.py: skipped: torch is not installed", file=sys.stderr)
    sys.exit(77)

import tarn.torch  # noqa: E402
from fake_fleet import FakeClient  # noqa: E402
from small_model import SGD, Bags, attached, ids_of  # noqa: E402
from tarn.torch import session  # noqa: E402
from torch import nn  # noqa: E402


class AttachTest(unittest.TestCase):
    def setUp(self):
        self.client = FakeClient()

    def test_a_step_pushes_distinct_rows_and_ticks(self):
        model, optimizer = attached(Bags(), self.client)
        ids = torch.tensor([[[1, 1], [2, 3], [4, 5]], [[1, 6], [2, 7], [4, 8]]])
        model(ids).sum().backward()
        [pushed] = [self.client.pushes] if not self.client.pushes else self.fail("pushed before the step")
        self.assertEqual(pushed, [])
        optimizer.step()
        self.assertEqual(self.client.clock, 1)
        [pushed] = self.client.pushes
        self.assertEqual({name: sorted(rows) for name, rows in pushed.items()},
                         {"bags.0": [1, 6], "bags.1": [2, 3, 7], "bags.2": [4, 5, 8]})
        torch.testing.assert_close(torch.from_numpy(pushed["bags.0"][1]),
                                   3 * (model.top.weight.detach() + 0.01 * model.top.weight.grad)[0, :4])
        self.assertEqual(len(optimizer.param_groups[-1]["params"]), 2)

    def test_one_pull_for_all_tables_from_the_second_step(self):
        model, optimizer = attached(Bags(), self.client)
        for step, batch in enumerate([5, 5, 3]):
            model(ids_of(batch, seed=step)).sum().backward()
            optimizer.step()
        self.assertEqual([(clock, len(names)) for clock, names in self.client.pulls], [(0, 1), (0, 1), (0, 1), (1, 3), (2, 3)])

    def test_gradient_accumulation(self):
        model, optimizer = attached(Bags(), self.client)
        whole = ids_of(6)
        for part in whole.split(2):
            model(part).sum().backward()
        optimizer.step()
        model2, optimizer2 = attached(Bags(), other := FakeClient())
        model2.load_state_dict({"top.weight": model.top.weight.detach() + 0.01 * model.top.weight.grad,
                                "top.bias": model.top.bias.detach()})
        model2(whole).sum().backward()
        optimizer2.step()
        [pushed], [expected] = self.client.pushes, other.pushes
        for name in expected:
            self.assertEqual(sorted(pushed[name]), sorted(expected[name]))
            for key in expected[name]:
                torch.testing.assert_close(torch.from_numpy(pushed[name][key]), torch.from_numpy(expected[name][key]))

    def test_zero_grad_drops(self):
        model, optimizer = attached(Bags(), self.client)
        model(ids_of(seed=1)).sum().backward()
        optimizer.zero_grad()
        ids = torch.full((1, 3, 1), 9)
        model(ids).sum().backward()
        optimizer.step()
        self.assertEqual([list(rows) for rows in self.client.pushes[0].values()], [[9]] * 3)

    def test_clipping_counts_the_rows_it_is_given(self):
        model, optimizer = attached(Bags(), self.client)
        model(ids_of()).sum().backward()
        tensors = [*model.parameters(), *tarn.torch.rows(model)]
        self.assertEqual(len(tensors), 5)
        norm = torch.nn.utils.clip_grad_norm_(tensors, 0.5)
        self.assertGreater(norm, 1)
        clipped = torch.cat([each.grad.flatten() for each in tensors]).norm()
        optimizer.step()
        pushed = torch.cat([torch.from_numpy(row) for rows in self.client.pushes[0].values() for row in rows.values()])
        dense = torch.cat([each.grad.flatten() for each in model.parameters()])
        self.assertAlmostEqual(float(torch.cat([pushed, dense]).norm()), float(clipped), places=5)
        self.assertAlmostEqual(float(clipped), 0.5, places=4)

    def scaled_steps(self, fused, clear):
        """Three steps with a GradScaler; the gradients of the second overflow."""
        model, optimizer = attached(Bags(), self.client, fused=fused)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for step in range(3):
            clear(model, optimizer)
            loss = model(torch.full((1, 3, 1), step)).sum() * (float("inf") if step == 1 else 1)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        self.assertEqual([[list(rows) for rows in push.values()] for push in self.client.pushes], [[[0]] * 3, [[2]] * 3])
        self.assertEqual(self.client.clock, 2)
        for push in self.client.pushes:
            for rows in push.values():
                self.assertLess(abs(next(iter(rows.values()))).max(), 1, "unscaled")

    def test_grad_scaler(self):
        self.scaled_steps(False, lambda model, optimizer: optimizer.zero_grad())

    def test_grad_scaler_with_model_zero_grad(self):
        self.scaled_steps(False, lambda model, optimizer: model.zero_grad())

    def test_grad_scaler_with_a_fused_optimizer(self):
        self.scaled_steps(True, lambda model, optimizer: optimizer.zero_grad())

    def test_grad_scaler_sees_an_overflow_of_rows_alone(self):
        model, optimizer = attached(Bags(), self.client)
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(model(ids_of()).sum()).backward()
        tarn.torch.rows(model)[0].grad[0, 0] = float("inf")
        before = model.top.weight.detach().clone()
        scaler.step(optimizer)
        self.assertTrue(torch.equal(model.top.weight, before))
        self.assertEqual(self.client.pushes, [])

    def test_the_state_of_the_optimizer_has_no_rows(self):
        model, optimizer = attached(Bags(), self.client, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        model(ids_of()).sum().backward()
        state = optimizer.state_dict()
        self.assertEqual(state["param_groups"][0]["params"], [0, 1])
        optimizer.load_state_dict(state)
        optimizer.step()
        scheduler.step()
        self.assertEqual(len(self.client.pushes), 1)
        self.assertEqual(len(optimizer.state), 2)

    def test_a_closure(self):
        model, optimizer = attached(Bags(), self.client)

        def closure():
            optimizer.zero_grad()
            loss = model(ids_of()).sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        self.assertEqual(len(self.client.pushes), 1)

    def test_a_closure_of_an_optimizer_with_state(self):
        """The optimizer gets no state of the rows that the closure makes; gradients before the closure are dropped by its
        zero_grad()."""
        for kind in (torch.optim.Adam, torch.optim.Adagrad):
            client = FakeClient()
            model = tarn.torch.remote(Bags(), client, optimizer=SGD)
            optimizer = tarn.torch.attach(model, kind(model.parameters()))
            model(ids_of(seed=7)).sum().backward()
            for step in range(3):

                def closure():
                    optimizer.zero_grad()
                    loss = model(ids_of(seed=step)).sum()
                    loss.backward()
                    return loss

                self.assertIsNotNone(optimizer.step(closure))
                self.assertEqual(set(client.pushes[step]["bags.0"]), set(ids_of(seed=step)[:, 0].flatten().tolist()))
            optimizer.step(closure=closure)
            self.assertEqual((client.clock, len(client.pushes)), (4, 4))
            self.assertEqual(len(optimizer.state_dict()["state"]), 2)

    def test_a_step_that_fails(self):
        """It may be repeated. If the program goes on with another batch, the gradients are dropped."""
        for repeats in (True, False):
            client = FakeClient()
            model, optimizer = attached(Bags(), client)
            model(ids_of(seed=1)).sum().backward()
            with unittest.mock.patch.object(torch.Tensor, "add_", side_effect=MemoryError), self.assertRaises(MemoryError):
                optimizer.step()
            if not repeats:
                optimizer.zero_grad()
                model(ids_of(seed=2)).sum().backward()
            optimizer.step()
            expected = ids_of(seed=1 if repeats else 2)[:, 0]
            self.assertEqual(set(client.pushes[0]["bags.0"]), set(expected.flatten().tolist()))

    def test_a_subclass_that_calls_the_step_of_its_base(self):
        """torch runs the hooks of both: one push and one tick, also after a step that fails."""
        class Clipped(torch.optim.SGD):
            def step(self, closure=None):
                return super().step(closure)

        torch.optim.SGD([torch.zeros(1)])  # torch wraps the step of a class when its first object is made
        model = tarn.torch.remote(Bags(), self.client, optimizer=SGD)
        optimizer = tarn.torch.attach(model, Clipped(model.parameters(), lr=0.01))
        self.assertTrue(torch.optim.SGD.step.hooked and Clipped.step.hooked)
        for clock in range(3):
            model(ids_of(seed=clock)).sum().backward()
            if clock == 1:
                with unittest.mock.patch.object(torch.Tensor, "add_", side_effect=MemoryError), self.assertRaises(MemoryError):
                    optimizer.step()
            optimizer.step()
            optimizer.zero_grad()
            self.assertEqual((self.client.clock, len(self.client.pushes)), (clock + 1, clock + 1))

    def test_a_model_that_calls_itself(self):
        class Recursive(Bags):
            def forward(self, ids, depth=2):
                return super().forward(ids) if depth == 0 else self(ids + 1, depth - 1)

        model, optimizer = attached(Recursive(), self.client)
        for step in range(3):
            model(ids_of(seed=step)).sum().backward()
            optimizer.step()
            self.assertEqual(session.of(self.client).calls, [])
        self.assertEqual(set(self.client.pushes[2]["bags.0"]), set((ids_of(seed=2)[:, 0] + 2).flatten().tolist()))

    def test_two_backward_passes_over_one_graph(self):
        """The gradient of the second is not added to that of the first, which is pushed already."""
        bag = tarn.torch.remote(nn.Embedding(10, 2), self.client, optimizer=SGD)
        optimizer = tarn.torch.attach(bag)
        rows = bag(torch.tensor([3]))
        for factor in (1.0, 2.0):
            (rows.sum() * factor).backward(retain_graph=True)
            optimizer.step()
            optimizer.zero_grad()
        self.assertEqual([push["embedding"][3].tolist() for push in self.client.pushes], [[1, 1], [2, 2]])

    def test_gradients_dropped_with_those_of_dense_parameters(self):
        """model.zero_grad() after a skipped step; autograd reaches the rows first, or the dense parameters."""
        class Product(nn.Module):
            def __init__(self, rows_last):
                super().__init__()
                self.rows, self.dense, self.rows_last = nn.Embedding(10, 2), nn.Linear(2, 2), rows_last

            def forward(self, ids):
                parts = [lambda: self.dense(torch.ones(len(ids), 2)), lambda: self.rows(ids)]
                first, second = (part() for part in (parts if self.rows_last else parts[::-1]))
                return first * second

        for rows_last in (False, True):
            with self.subTest(rows_last=rows_last):
                client = FakeClient()
                model, optimizer = attached(Product(rows_last), client)
                model(torch.tensor([1, 2])).sum().backward()
                model.zero_grad()
                model(torch.tensor([3])).sum().backward()
                optimizer.step()
                self.assertEqual([sorted(push["rows"]) for push in client.pushes], [[3]])

    def test_parameters_that_nobody_trains_or_saves(self):
        model = tarn.torch.remote(nn.Sequential(nn.Embedding(10, 2), nn.Linear(2, 1)), self.client, optimizer=SGD)
        with self.assertRaisesRegex(ValueError, "parameter '1.weight' and 1 others are in no table"):
            tarn.torch.attach(model)
        other = nn.Linear(2, 1)
        optimizer = torch.optim.SGD([*model.parameters(), *other.parameters()], 0.1)
        with self.assertRaisesRegex(ValueError, r"a parameter \[1, 2\] of the optimizer is not in the model"):
            tarn.torch.attach(model, optimizer)
        tarn.torch.attach(model, optimizer, state={"other": other})

    def test_workers_that_exchange_no_dense_parameters(self):
        self.client.job_text = "[fleet]\nworkers = 2\n"
        model = tarn.torch.remote(nn.Sequential(nn.Embedding(10, 2), nn.Linear(2, 1)), self.client, optimizer=SGD)
        with self.assertWarnsRegex(UserWarning, "each of the 2 workers trains dense parameters of its own, such as '1.weight'"):
            tarn.torch.attach(model, torch.optim.SGD(model.parameters(), 0.1))

    def test_a_model_of_tables_alone(self):
        model = tarn.torch.remote(nn.Embedding(10, 2), self.client, optimizer=SGD)
        optimizer = tarn.torch.attach(model)
        self.assertIsInstance(optimizer, torch.optim.Optimizer)
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.tensor([3])).sum().backward()
            optimizer.step()
        self.assertEqual(self.client.clock, 2)
        self.assertEqual(self.client.tables["embedding"].row(3).tolist(), [2, 2])

    def test_a_compiled_dense_part(self):
        model, optimizer = attached(Bags(), self.client)
        compiled = torch.compile(model, backend="eager")
        for step in range(3):
            ids = ids_of(seed=step)
            with torch.no_grad():
                plain = model(ids)
            self.assertTrue(torch.equal(compiled(ids), plain))
            compiled(ids).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        self.assertEqual(len(self.client.pushes), 3)

    def test_a_forgotten_attach_is_warned_about_at_the_second_step(self):
        model = tarn.torch.remote(Bags(), self.client, optimizer=SGD)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for step in range(3):
                model(ids_of(seed=step)).sum().backward()
                self.assertEqual(len(caught), min(step, 1))
        self.assertIn("Expected tarn.torch.attach(model, optimizer)", str(caught[0].message))
        self.assertEqual(len(tarn.torch.rows(model)), 3, "of the last step alone")

    def test_refusals(self):
        model = tarn.torch.remote(bags := Bags(10, "cpu"), self.client)
        plain = Bags(10, "cpu")
        weights = list(plain.parameters())
        other = tarn.torch.remote(plain, self.client, tables={f"bags.{i}": {"name": f"other.{i}"} for i in range(3)})
        for arguments, error, said in [
            ((nn.Linear(1, 1), torch.optim.SGD(bags.top.parameters())), ValueError, "expected tarn.torch.remote\\(model\\) before"),
            ((other, torch.optim.SGD(weights)), ValueError, r"the old weight \[10, 4\] of module 'bags.0'"),
            ((model, torch.optim.LBFGS(model.parameters())), TypeError, "LBFGS calls its closure repeatedly"),
            ((model, model.parameters()), TypeError, "optimizer is a generator, expected a torch.optim.Optimizer"),
            ((model.parameters(),), TypeError, "model is a generator, expected a torch.nn.Module"),
        ]:
            with self.subTest(said=said), self.assertRaisesRegex(error, said):
                tarn.torch.attach(*arguments)
        tarn.torch.attach(model, torch.optim.SGD(model.parameters()))
        with self.assertRaisesRegex(ValueError, "attached to a SGD already; expected one optimizer"):
            tarn.torch.attach(model, torch.optim.Adam(model.parameters()))

    def test_a_push_waits_for_earlier_ones_beyond_a_limit(self):
        """Such waits are logged and can be interrupted; those of the library cannot."""
        order = []

        class Pushed:
            def __init__(self, number):
                self.number, self.waited = number, False

            def ready(self):
                return self.waited

            def wait(self, timeout=None):
                order.append(f"waited {self.number}")
                self.waited = True

        class Slow(FakeClient):
            def push_from(self, plans, addresses):
                super().push_from(plans, addresses)
                order.append(f"pushed {len(self.pushes)}")
                return Pushed(len(self.pushes))

        model, optimizer = attached(Bags(), Slow())
        size = 3 * 4 * 4  # of the gradients of one key in each of three tables
        with unittest.mock.patch.object(session, "UNACKNOWLEDGED_BYTES_MAX", 2 * size):
            for step in range(4):
                model(torch.full((1, 3, 1), step)).sum().backward()
                optimizer.step()
        self.assertEqual(order, ["pushed 1", "pushed 2", "waited 1", "pushed 3", "waited 2", "pushed 4"])

    def test_rows_are_freed(self):
        """Neither hooks nor futures keep rows beyond the step, nor those of a forward pass without backward."""
        model, optimizer = attached(Bags(), self.client)
        gc.disable()
        self.addCleanup(gc.enable)
        alive = lambda: sum(type(each) is torch.Tensor and each.requires_grad for each in gc.get_objects())  # noqa: E731
        before, kept = alive(), []
        for step in range(3):
            out = model(ids_of(seed=step)).sum()
            if step != 1:
                out.backward()
                kept += [weakref.ref(each) for each in tarn.torch.rows(model)]
                optimizer.step()
        del out
        self.assertEqual([each() for each in kept], [None] * 6)
        self.assertEqual(alive(), before)

    def test_rows_of_a_second_derivative_are_freed(self):
        model, optimizer = attached(Bags(), self.client)
        model(ids_of()).sum().square().backward(create_graph=True)
        kept = [weakref.ref(each) for each in tarn.torch.rows(model)]
        optimizer.step()
        optimizer.zero_grad()
        gc.collect()
        self.assertEqual([each() for each in kept], [None] * 3)

    def test_a_client_with_rows_pulled_ahead_is_freed(self):
        client = FakeClient()
        model, optimizer = attached(Bags(), client)
        for batch in tarn.torch.prefetch([ids_of(seed=i) for i in range(5)], model):
            model(batch).sum().backward()
            optimizer.step()
            if client.clock == 3:
                break
        freed = weakref.ref(client)
        del model, optimizer, client
        gc.collect()
        self.assertIsNone(freed())

    def test_defaults_of_torch_do_not_apply_to_rows(self):
        """The library reads and writes float32 on the CPU."""
        for change, back in [(lambda: torch.set_default_dtype(torch.bfloat16), lambda: torch.set_default_dtype(torch.float32)),
                             (lambda: torch.set_default_dtype(torch.float64), lambda: torch.set_default_dtype(torch.float32)),
                             (lambda: torch.set_default_device("meta"), lambda: torch.set_default_device(None))]:
            client = FakeClient()
            model, ids = tarn.torch.remote(nn.Embedding(10, 3, device="meta"), client, optimizer=SGD), torch.tensor([1, 2, 2])
            optimizer = tarn.torch.attach(model)
            change()
            try:
                rows = model(ids)
                (rows * torch.tensor(2.0, dtype=torch.float32, device="cpu")).sum().backward()
                model(ids).sum().backward()  # two gradients of one table are summed
                optimizer.step()
            finally:
                back()
            self.assertEqual((rows.dtype, rows.tolist()), (torch.float32, [[1] * 3, [2] * 3, [2] * 3]))
            (pushed,), = [each.values() for each in client.pushes]
            self.assertEqual({key: each.tolist() for key, each in pushed.items()}, {1: [3] * 3, 2: [6] * 3})

    def test_a_part_in_inference_mode(self):
        """Rows can be trained although the model pulls them with the rows of that part, or in inference mode."""
        client = FakeClient()

        class Distilled(nn.Module):
            def __init__(self):
                super().__init__()
                self.teacher, self.student = (nn.Embedding(10, 2, device="meta") for _ in range(2))

            def forward(self, ids):
                with torch.inference_mode():
                    known = self.teacher(ids)
                return (self.student(ids) - known.clone()).square().sum()

        model = tarn.torch.remote(Distilled(), client, optimizer=SGD)
        optimizer = tarn.torch.attach(model)
        for step in range(3):
            model(torch.tensor([step, 5])).backward()
            optimizer.step()
        self.assertEqual([list(each) for each in client.pushes], [["student"]] * 3)
        with torch.inference_mode():
            ahead = model.student.session.pull([(model.student, torch.tensor([1]))], client.clock)
        self.assertTrue(model.student.session.leaf(ahead[0], torch.device("cpu")).requires_grad)


if __name__ == "__main__":
    unittest.main()
