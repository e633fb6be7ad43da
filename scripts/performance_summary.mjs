// The README's sentences about speed.

/** What the README says of a run beside PyTorch and oneDNN: of heads of 64 without a mask. */
export function summary({ rows, build, machine }) {
  const timed = rows.filter(
    ({ status, threads, shape }) =>
      status === "timed" && threads === 1 && shape.head_dim === 64 && shape.mask === "full",
  );
  const ours = timed.filter(({ peer }) => peer === "heed");
  const times = (row, peer) => {
    const other = timed.find((each) => each.peer === peer && each.case === row.case);
    return other.ms.median / row.ms.median;
  };
  const long = ours.filter(({ shape }) => shape.q_len >= 512);
  const short = ours.find(({ shape }) => shape.q_len === 128);
  const range = (values, text) => `${text(Math.min(...values))} to ${text(Math.max(...values))}`;
  const two = (value) => value.toFixed(2);
  const share = (row) => 100 * row.fraction_of_fma_peak;
  const lengths = long.map(({ shape }) => shape.q_len);
  const { chosen } = machine.simd;
  const words = [
    `In short, float32 without a mask, head size 64, ${range(lengths, String)} tokens, one core of an`,
    `${machine.cpu_model.split(" (")[0]} with ${chosen.startsWith("AVX3") ? "AVX-512" : chosen} (commit ${build.commit}):`,
    `heed runs at ${range(long.map(share), (value) => value.toFixed(0))} % of the FMA peak measured in the same run;`,
    `PyTorch takes ${range(
      long.map((row) => times(row, "libtorch")),
      two,
    )} times as long,`,
    `oneDNN ${range(
      long.map((row) => times(row, "onednn")),
      two,
    )} times.`,
    `At 128 tokens heed reaches ${share(short).toFixed(0)} %, and oneDNN takes ${two(times(short, "onednn"))} times as long.`,
  ];
  return words.join(" ").replaceAll(/(.{90,112}) /g, "$1\n");
}
