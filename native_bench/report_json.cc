#include <nlohmann/json.hpp>

#include "native_bench/report.h"

namespace heed::bench {
namespace {

using nlohmann::json;

json MachineJson(const Report& report) {
  json caches = json::object();
  for (const Cache& cache : report.machine.caches) caches[cache.name] = cache.bytes;
  json machine = {{"system", report.machine.system},
                  {"cpu_model", report.machine.cpu_model},
                  {"cores", report.machine.cores},
                  {"cache_bytes", caches},
                  {"governor", report.machine.governor},
                  {"memory_bytes", report.machine.memory_bytes},
                  {"load_average", report.machine.load_average},
                  {"simd", {{"chosen", report.simd_chosen}, {"supported", report.simd_supported}}}};
  if (report.gpu.has_value()) machine["gpu"] = GpuJson(*report.gpu);
  return machine;
}

json BuildJson(const Build& build) {
  return {{"compiler", build.compiler},
          {"flags", build.flags},
          {"build_type", build.build_type},
          {"commit", build.commit}};
}

json PeakJson(const std::vector<FmaPeak>& peaks) {
  json list = json::array();
  for (const FmaPeak& peak : peaks) {
    list.push_back({{"target", peak.target}, {"threads", peak.threads}, {"gflops", peak.gflops}});
    if (!peak.dtype.empty()) list.back()["dtype"] = peak.dtype;
  }
  return list;
}

json ProbesJson(const Report& report) {
  json streams = json::array();
  for (const StreamRate& rate : report.streams) {
    streams.push_back({{"threads", rate.threads}, {"read_gbps", rate.read_gbps}});
    if (rate.triad_gbps > 0) streams.back()["triad_gbps"] = rate.triad_gbps;
    if (rate.copy_gbps > 0) streams.back()["copy_gbps"] = rate.copy_gbps;
  }
  return {{"fma", PeakJson(report.peaks)},
          {"fma_after", PeakJson(report.peaks_after)},
          {"stream", streams}};
}

json ShapeJson(const Case& c) {
  json shape = {{"batch", c.batch},
                {"num_heads", c.heads.num_heads},
                {"num_kv_heads", c.heads.num_kv_heads},
                {"q_len", c.lengths.q_len},
                {"kv_len", c.lengths.kv_len},
                {"head_dim", c.head_dim},
                {"head_dim_v", c.ValueDim()},
                {"mask", MaskName(c.mask)}};
  if (c.window_left.has_value()) shape["window_left"] = *c.window_left;
  if (c.softcap.has_value()) shape["softcap"] = *c.softcap;
  if (c.sinks) shape["sinks"] = true;
  if (c.alibi) shape["alibi"] = true;
  if (c.key_length.has_value()) shape["key_length"] = *c.key_length;
  if (c.device_lengths) shape["device_lengths"] = true;
  return shape;
}

json RowJson(const Row& row) {
  json object = {{"case", row.shape.Name()},
                 {"mechanism", row.shape.mechanism},
                 {"shape", ShapeJson(row.shape)},
                 {"dtype", DTypeName(row.shape.dtype)},
                 {"peer", row.peer},
                 {"threads", row.shape.threads},
                 {"status", StatusName(row.status)}};
  if (row.shape.device == Device::kCuda) object["device"] = DeviceName(row.shape.device);
  if (!row.shape.model.empty()) object["model"] = row.shape.model;
  if (!row.reason.empty()) object["reason"] = row.reason;
  if (row.status == Status::kRefused) return object;
  // An infinite error (a NaN in the output) has no number in JSON: nlohmann writes null.
  object["max_error"] = row.verdict.max_error;
  object["error_bound"] = row.verdict.bound;
  object["rows_verified"] = row.verdict.rows;
  if (row.status != Status::kTimed) return object;
  object["ms"] = TimesJson(row.seconds);
  if (row.cold_seconds.count > 0) {
    object["cold_ms"] = TimesJson(row.cold_seconds);
    object["cold_reps"] = row.cold_seconds.count;
    object["sending_ms"] = row.sending_seconds * 1e3;
  }
  if (const json load = SensorsJson(row.load); !load.empty()) object["load"] = load;
  object["reps"] = row.seconds.count;
  object["bytes"] = row.cost.bytes_read + row.cost.bytes_written;
  object["gbps"] = row.Gbps();
  if (row.peak_bytes.has_value()) object["peak_bytes"] = *row.peak_bytes;
  if (row.peer == "heed" && row.cost.scratch_bytes.has_value()) {
    object["scratch_bytes"] = *row.cost.scratch_bytes;
  }
  if (!row.cost.flops.has_value()) return object;
  object["flop"] = *row.cost.flops;
  object["gflops"] = row.Gflops();
  object["fraction_of_fma_peak"] = row.PeakFraction();
  return object;
}

}  // namespace

json TimesJson(const Summary& seconds) {
  return {{"median", seconds.median * 1e3},
          {"p10", seconds.p10 * 1e3},
          {"p90", seconds.p90 * 1e3},
          {"min", seconds.min * 1e3}};
}

json ContextJson(const Report& report) {
  return {{"schema", "heed-bench"},
          {"schema_version", kJsonSchemaVersion},
          {"date", report.machine.date},
          {"command", report.command},
          {"machine", MachineJson(report)},
          {"build", BuildJson(report.build)},
          {"flop_formula", kFlopFormula},
          {"inputs", {{"distribution", "inputs.inc"}, {"seed", report.seed}}},
          {"plan",
           {{"clock", ClockName(report.plan.clock)},
            {"min_reps", report.plan.min_reps},
            {"min_seconds", report.plan.min_seconds},
            {"max_seconds", report.plan.max_seconds}}},
          {"probes", ProbesJson(report)}};
}

json ToJson(const Report& report) {
  json object = ContextJson(report);
  json& peers = object["peers"] = json::array();
  for (const PeerInfo& peer : report.peers) {
    peers.push_back({{"id", peer.id}, {"summary", peer.summary}, {"details", peer.details}});
  }
  json& rows = object["rows"] = json::array();
  for (const Row& row : report.rows) rows.push_back(RowJson(row));
  return object;
}

}  // namespace heed::bench
