"""What pytorch/sdpa.py computes without PyTorch: cases, statistics, rows, the joined report."""

import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "pytorch"))
import sdpa  # noqa: E402


def row(case, peer, **changes):
    return {
        "case": case,
        "mechanism": "scaled_dot_product",
        "dtype": "bfloat16",
        "device": "cuda",
        "peer": peer,
        "status": "timed",
        "shape": {"mask": "full", "q_len": 8, "kv_len": 8},
        "error_bound": 0.1,
        "flop": 4e9,
        "bytes": 1000000,
        "ms": {"median": 1.0},
        "sending_ms": 0.007,
        "reps": 20,
        **changes,
    }


REPORT = {
    "peers": [{"id": "heed"}],
    "probes": {
        "fma": [{"gflops": 60, "dtype": "float32"}, {"gflops": 8000, "dtype": "bfloat16"}],
        "fma_after": [{"gflops": 7900, "dtype": "bfloat16"}],
    },
    "rows": [row("a", "heed"), row("a", "cublas"), row("b", "heed")],
}


class TorchSdpa(unittest.TestCase):
    def test_quantiles_are_linear_between_neighbours(self):
        self.assertEqual(sdpa.quantile([3, 1, 2], 0.5), 2)
        self.assertAlmostEqual(sdpa.quantile([0, 10], 0.1), 1)
        self.assertEqual(sdpa.summarize([5])["p90"], 5)

    def test_samples_go_on_until_both_minima_are_reached(self):
        plan = {"min_reps": 10, "min_seconds": 0.5, "max_seconds": 10}
        self.assertTrue(sdpa.needs_another(plan, 9, 3))
        self.assertTrue(sdpa.needs_another(plan, 100, 0.4))
        self.assertFalse(sdpa.needs_another(plan, 10, 0.5))
        self.assertFalse(sdpa.needs_another(plan, 1, 11))
        self.assertTrue(sdpa.needs_another(plan, 0, 11))

    def test_a_case_is_taken_once_and_only_where_pytorch_has_it(self):
        report = {
            "rows": REPORT["rows"]
            + [
                row("c", "heed", status="refused"),
                row("d", "heed", mechanism="linear"),
                row("e", "heed", device="cpu"),
                row("f", "heed", shape={"mask": "full", "softcap": 50}),
                row("g", "heed", dtype="float8_e4m3"),
            ]
        }
        rows = sdpa.attention_rows(report)
        self.assertEqual([r["case"] for r in rows], ["a", "b"])
        self.assertNotIn("ms", rows[0])
        self.assertNotIn("sending_ms", rows[0])
        self.assertEqual(rows[0]["flop"], 4e9)

    def test_causal_decoding_is_refused(self):
        self.assertTrue(sdpa.refusal({"mask": "causal", "q_len": 1, "kv_len": 8}))
        self.assertFalse(sdpa.refusal({"mask": "full", "q_len": 1, "kv_len": 8}))

    def test_rates_follow_the_median(self):
        timed = sdpa.timed_row(row("a", ""), "torch_flash", [1.0, 2.0, 3.0], [4.0], 0.01, REPORT)
        self.assertEqual(timed["gflops"], 2000)  # 4e9 in 2 ms
        self.assertEqual(timed["gbps"], 0.5)  # 1e6 bytes in 2 ms
        self.assertEqual(timed["fraction_of_fma_peak"], 0.25)
        self.assertEqual(timed["cold_ms"]["median"], 4)
        self.assertEqual(timed["sending_ms"], 0.01)

    def test_rows_join_their_case(self):
        joined = sdpa.merged(REPORT, [{"id": "torch_flash"}], [row("a", "torch_flash")])
        self.assertEqual(
            [(r["case"], r["peer"]) for r in joined["rows"]],
            [("a", "heed"), ("a", "cublas"), ("a", "torch_flash"), ("b", "heed")],
        )
        self.assertEqual([p["id"] for p in joined["peers"]], ["heed", "torch_flash"])
        self.assertEqual(len(REPORT["rows"]), 3)


if __name__ == "__main__":
    unittest.main()
