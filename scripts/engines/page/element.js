const labels = ["to", "be", "or"];
document.querySelector("attention-map").data = {
  rows: labels,
  columns: labels,
  values: [
    [1, null, null],
    [0.25, 0.75, null],
    [0.5, 0.25, 0.25],
  ],
};
