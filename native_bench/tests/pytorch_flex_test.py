"""What pytorch/flex.py computes without PyTorch: rules of rows, and their blocks."""

import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "pytorch"))
import flex  # noqa: E402


def row(mechanism="scaled_dot_product", **params):
    return {"mechanism": mechanism, "params": params}


class Flex(unittest.TestCase):
    def test_windows_end_at_the_query_when_causal(self):
        self.assertEqual(flex.reach(row(window_left=256.0, causal=1.0)), (256, 0))
        self.assertEqual(flex.reach(row(window_left=3.0, window_right=2.0)), (3, 2))

    def test_dense_rows_and_blocks_have_no_window(self):
        self.assertIsNone(flex.reach(row()))
        self.assertIsNone(flex.reach(row("block_sparse", block_size=64.0)))

    def test_other_mechanisms_are_refused(self):
        with self.assertRaisesRegex(ValueError, "longformer"):
            flex.reach(row("longformer"))

    def test_blocks_are_checked_in_part_and_whole(self):
        blocks = {**row("block_sparse", block_size=64.0), "density": 0.1, "length": 8192}
        self.assertEqual(flex.checked_lengths(blocks), [1280, 1301])
        self.assertEqual(flex.checked_lengths({**blocks, "length": 1280}), [1280])
        self.assertEqual(flex.checked_lengths({**blocks, "length": 40}), [40])
        window = {**row(window_left=256.0, causal=1.0), "length": 8192}
        self.assertEqual(flex.checked_lengths(window), [1301])

    def test_every_row_keeps_as_many_blocks_as_its_density_says(self):
        rows = flex.random_blocks(64, 0.1, 1)
        self.assertEqual({len(columns) for columns in rows}, {6})
        self.assertEqual(rows, [sorted(set(columns)) for columns in rows])
        self.assertEqual(flex.random_blocks(5, 0.01, 1)[0].__len__(), 1)
        self.assertEqual(rows, flex.random_blocks(64, 0.1, 1))

    def test_blocks_of_a_window_are_what_each_pair_says(self):
        for left, right, length in [(9, 0, 40), (3, 5, 37), (20, 20, 64), (0, 0, 8), (99, 99, 30)]:
            partial, whole = flex.window_blocks(left, right, length, 8)
            for i in range(len(partial)):
                for j in range(len(partial)):
                    seen = [
                        q - kv <= left and kv - q <= right
                        for q in range(8 * i, min(8 * i + 8, length))
                        for kv in range(8 * j, min(8 * j + 8, length))
                    ]
                    wanted = "whole" if all(seen) and len(seen) == 64 else "part" if any(seen) else ""
                    found = "whole" if j in whole[i] else "part" if j in partial[i] else ""
                    self.assertEqual(found, wanted, (left, right, length, i, j))
                    self.assertFalse(j in whole[i] and j in partial[i])


if __name__ == "__main__":
    unittest.main()
