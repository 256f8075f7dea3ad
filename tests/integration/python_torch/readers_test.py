"""tarn.torch.CriteoRows and ParquetRows: rows by number, the values of fields, and the errors for damaged files."""

import datetime
import gzip
import math
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "python"))

try:
    import torch
except ImportError:
    print("readers_test.py: skipped: torch is not installed", file=sys.stderr)
    sys.exit(77)

from tarn.torch.readers import CriteoRows, ParquetRows  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

try:
    import pyarrow
    import pyarrow.parquet
except ImportError:
    pyarrow = None


class ReaderTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)


class CriteoRowsTest(ReaderTest):
    LINES = ["1\t3\t\t05db9164\t000000ff\n", "0\t-2\t7\t\tz\u00fcrich\n", "1\t0\t1\t1\t2"]

    def open(self, text, name="rows.tsv", **options):
        (self.folder / name).write_bytes(text)
        return CriteoRows(self.folder / name, integer_columns=2, categorical_columns=2, **options)

    def test_rows(self):
        text = "".join(self.LINES).encode()
        for number, whole in enumerate((text, text + b"\n", text.replace(b"\n", b"\r\n"), gzip.compress(text))):
            data = self.open(whole, f"rows-{number}")
            self.assertEqual(len(data), 3)
            ids, dense, label = data[0]
            self.assertEqual((ids.dtype, dense.dtype, label.dtype), (torch.int64, torch.float32, torch.float32))
            self.assertEqual(ids.tolist(), [0x05db9164 + 1, 0xff + 1])
            self.assertEqual(dense.tolist(), [torch.tensor(math.log(4), dtype=torch.float32).item(), 0.0])
            self.assertEqual(float(label), 1)
            ids, dense, label = data[1]
            self.assertEqual((int(ids[0]), float(dense[0]), float(label)), (0, 0.0, 0))
            self.assertGreater(int(ids[1]), 0, "hashed")
            self.assertTrue(torch.equal(data[-1][0], data[2][0]))
            with self.assertRaises(IndexError):
                data[3]

    def test_other_spellings_of_a_number_are_other_categories(self):
        data = self.open("".join(f"1\t1\t1\t{text}\t\n" for text in ("000000ff", "000000FF", "0x0000ff", "+00000ff", "ff")).encode())
        self.assertEqual(len({int(data[row][0][0]) for row in range(5)}), 5)

    def test_ids_are_bounded(self):
        data = self.open("".join(self.LINES).encode(), ids_max=10)
        self.assertTrue(all(0 <= int(i) <= 10 for row in range(3) for i in data[row][0]))

    def test_a_loader_makes_batches(self):
        ids, dense, labels = next(iter(DataLoader(self.open("".join(self.LINES).encode()), batch_size=3)))
        self.assertEqual((ids.shape, dense.shape, labels.shape), ((3, 2), (3, 2), (3,)))

    def test_errors_name_the_line(self):
        for line, expected in (("1\t2\t3\tff", "4 columns, expected 5"), ("2\t1\t1\tff\tff", "label b'2', expected 0 or 1"),
                               ("1\tx\t1\tff\tff", "expected whole numbers")):
            data = self.open((self.LINES[0] + line).encode())
            with self.assertRaisesRegex(ValueError, "rows.tsv:2: .*" + expected):
                data[1]
        with self.assertRaisesRegex(ValueError, "empty file"):
            self.open(b"")
        with self.assertRaisesRegex(ValueError, "expected gzip data"):
            self.open(gzip.compress(b"1\t2")[:-4])
        damaged = bytearray(gzip.compress(bytes(1000)))
        damaged[12] ^= 255
        with self.assertRaisesRegex(ValueError, "rows.tsv: expected gzip data"):
            self.open(bytes(damaged))
        with self.assertRaises(FileNotFoundError):
            CriteoRows(self.folder / "none")


@unittest.skipIf(pyarrow is None, "pyarrow is not installed")
class ParquetRowsTest(ReaderTest):
    def write(self, name, first, count, **more):
        numbers = list(range(first, first + count))
        columns = {"user": numbers, "score": [n / 2 for n in numbers], "items": [[n, n + 1] for n in numbers], **more}
        pyarrow.parquet.write_table(pyarrow.table(columns), self.folder / name, row_group_size=10)
        return self.folder / name

    def test_files_are_one_set(self):
        data = ParquetRows([self.write("a.parquet", 0, 25), self.write("b.parquet", 25, 13)], groups_kept=2)
        self.assertEqual(len(data), 38)
        for row in (0, 9, 10, 24, 25, 37, 3):
            self.assertEqual((data[row]["user"], data[row]["score"]), (row, row / 2))
            self.assertEqual(data[row]["items"].tolist(), [row, row + 1])
        batch = next(iter(DataLoader(data, batch_size=38)))
        self.assertEqual(batch["user"].tolist(), list(range(38)))
        self.assertEqual(batch["items"].shape, (38, 2))
        with self.assertRaises(IndexError):
            data[38]

    def test_a_shuffled_batch_reads_each_group_once(self):
        data = ParquetRows(self.write("a.parquet", 0, 50), groups_kept=1)
        rows = [(7 * i) % 50 for i in range(50)]
        read = mock.Mock(side_effect=data._files[0].read_row_group)
        with mock.patch.object(data._files[0], "read_row_group", read):
            self.assertEqual([row["user"] for row in data.__getitems__(rows)], rows)
        self.assertEqual(read.call_count, 5)

    def test_only_the_columns_that_are_asked_for(self):
        self.assertEqual(list(ParquetRows(self.write("a.parquet", 0, 5), columns=["score"])[1]), ["score"])

    def test_errors(self):
        path = self.write("a.parquet", 0, 5, empty=[1, None, 2, 3, 4])
        with self.assertRaisesRegex(ValueError, "a.parquet: no column 'usr', expected one of"):
            ParquetRows(path, columns=["usr"])
        with self.assertRaisesRegex(ValueError, "column 'empty' has 1 null values"):
            ParquetRows(path)[0]
        with self.assertRaisesRegex(ValueError, "a.parquet: column 'hole' has 1 null values"):
            ParquetRows(self.write("a.parquet", 0, 2, hole=[[1, 2], [1, None]]))[0]
        with self.assertRaisesRegex(ValueError, "a.parquet: column 'ragged' has lists of [12] and of [12] values, expected one length"):
            ParquetRows(self.write("a.parquet", 0, 2, ragged=[[1, 2], [1]]))[0]
        for column in ([datetime.datetime(2026, 1, 1)], [["a"]], [{"a": 1}]):
            with self.assertRaisesRegex(ValueError, "a.parquet: column 'odd' has the type .*, expected numbers"):
                ParquetRows(self.write("a.parquet", 0, 1, odd=column))
        damaged = bytearray(self.write("a.parquet", 0, 1000).read_bytes())
        damaged[4:400] = bytes(396)
        (self.folder / "a.parquet").write_bytes(damaged)
        with self.assertRaisesRegex(ValueError, "a.parquet: columns .* of row group 0 cannot be read"):
            ParquetRows(path)[0]
        (self.folder / "text").write_text("text")
        with self.assertRaisesRegex(ValueError, "text: expected a Parquet file"):
            ParquetRows(self.folder / "text")
        with self.assertRaises(FileNotFoundError):
            ParquetRows(self.folder / "none")


if __name__ == "__main__":
    unittest.main()
