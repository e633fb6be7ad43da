// A library with the functions of NVML that the benchmark calls, and one device.
#include <cstring>

namespace {

constexpr int kInvalidArgument = 2, kNotSupported = 3, kNotFound = 6;
int the_device;

int Answer(const void* device, unsigned number, unsigned* value) {
  if (device != &the_device) return kInvalidArgument;
  *value = number;
  return 0;
}

}  // namespace

extern "C" {

int nvmlInit_v2() { return 0; }
int nvmlSystemGetDriverVersion(char* text, unsigned bytes) {
  std::strncpy(text, "580.159.04", bytes);
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  *device = &the_device;
  return std::strcmp(bus_id, "0000:3b:00.0") == 0 ? 0 : kNotFound;
}
int nvmlDeviceGetMaxClockInfo(void* device, int clock, unsigned* mhz) {
  return clock == 1 ? Answer(device, 1980, mhz) : kInvalidArgument;
}
int nvmlDeviceGetClockInfo(void* device, int clock, unsigned* mhz) {
  return Answer(device, clock == 1 ? 1755 : 3201, mhz);
}
int nvmlDeviceGetPowerManagementLimit(void* device, unsigned* milliwatts) {
  return Answer(device, 700000, milliwatts);
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  return Answer(device, 512340, milliwatts);
}
int nvmlDeviceGetTemperature(void*, int, unsigned*) { return kNotSupported; }

}  // extern "C"
