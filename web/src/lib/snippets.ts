// The call that a page shows, as code to copy: one line, a JavaScript module, a C++ program.
import type { Mechanism, MechanismInput, Parameter } from "heed";
import type { Example, ExampleParams, ExampleTensor, ExampleValue } from "./example.js";

/** What the example and the visitor say of the controls: the others change nothing here. */
export function givenParams(
  example: Example,
  changes: ExampleParams,
  controls: readonly Parameter[],
): ExampleParams {
  const given = Object.entries({ ...example.params, ...changes });
  return Object.fromEntries(given.filter(([name]) => controls.some((row) => row.name === name)));
}

/** The call in one line. */
export function call(
  mechanism: Mechanism,
  example: Example,
  changes: ExampleParams,
  controls: readonly Parameter[],
): string {
  const inputs = Object.keys(example.inputs).join(", ");
  const given = Object.entries(givenParams(example, changes, controls));
  const params = given.map(([name, value]) => `${name}: ${JSON.stringify(value)}`).join(", ");
  const last = params === "" ? "" : `, { ${params} }`;
  return `heed.run("${mechanism.id}", { ${inputs} }${last})`;
}

const inputOf = (mechanism: Mechanism, name: string): MechanismInput | undefined =>
  mechanism.inputs.find((input) => input.name === name);

/** Numbers that a reader can replace: seeded ones would need the generator as well. */
function jsTensor({ data, shape }: ExampleTensor, input: MechanismInput | undefined): string {
  const extents = `[${shape.join(", ")}]`;
  if (data instanceof Int32Array) {
    return `{ data: Int32Array.of(${data.join(", ")}), shape: ${extents} }`;
  }
  if (data instanceof Uint8Array)
    return `{ data: Uint8Array.of(${data.join(", ")}), shape: ${extents} }`;
  if (input?.draw === "log_gate") return `random(${extents}, -0.2, 0)`;
  if (input?.draw === "positive" || input?.draw === "fraction" || input?.draw === "slopes") {
    return `random(${extents}, 0.1, 0.9)`;
  }
  return `random(${extents})`;
}

export function javaScript(mechanism: Mechanism, example: Example, params: ExampleParams): string {
  const inputs = Object.entries(example.inputs).map(
    ([name, tensor]) => `  ${name}: ${jsTensor(tensor, inputOf(mechanism, name))},`,
  );
  const values = Object.entries(params).map(([name, value]) => `${name}: ${JSON.stringify(value)}`);
  const last = values.length > 0 ? `, {\n  ${values.join(",\n  ")},\n}` : "";
  return `import { load } from "heed";

const heed = await load();

// [batch, heads, length, dimension], numbers between low and high.
function random(shape, low = -1, high = 1) {
  const count = shape.reduce((product, extent) => product * extent, 1);
  const number = () => low + Math.random() * (high - low);
  return { data: Float32Array.from({ length: count }, number), shape };
}

const { output } = heed.run("${mechanism.id}", {
${inputs.join("\n")}
}${last});
console.log(output.shape, output.data);
`;
}

const snakeCase = (name: string): string =>
  name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

function cppValue(value: ExampleValue): string {
  if (Array.isArray(value)) return `std::vector<double>{${value.join(", ")}}`;
  if (typeof value === "number") return Number.isInteger(value) ? `${value}.0` : String(value);
  return typeof value === "string" ? `std::string("${value}")` : String(value);
}

function cppTensor(name: string, { data, shape }: ExampleTensor): string {
  const id = snakeCase(name);
  const extents = `{${shape.join(", ")}}`;
  if (data instanceof Float32Array) {
    return `  inputs.push_back(Floats("${id}", ${extents}));`;
  }
  const [type, dtype] = data instanceof Int32Array ? ["int32_t", "kInt32"] : ["uint8_t", "kUInt8"];
  return [
    `  static std::vector<${type}> ${id} = {${data.join(", ")}};`,
    `  inputs.push_back({"${id}", heed::ContiguousTensor(heed::DType::${dtype}, ${id}.data(),`,
    `                                                   std::vector<int64_t>${extents})});`,
  ].join("\n");
}

export function cpp(mechanism: Mechanism, example: Example, params: ExampleParams): string {
  const inputs = Object.entries(example.inputs).map(([name, tensor]) => cppTensor(name, tensor));
  const values = Object.entries(params).map(
    ([name, value]) => `{"${snakeCase(name)}", ${cppValue(value)}}`,
  );
  return `#include <heed/heed.h>

#include <cstdint>
#include <deque>
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

// Memory of the tensors: [batch, heads, length, dimension], to be filled with your numbers.
static std::deque<std::vector<float>> memory;

static heed::NamedTensor Floats(const std::string& name, const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  memory.emplace_back(static_cast<size_t>(count), 0.5f);
  return {name, heed::ContiguousTensor(heed::DType::kFloat32, memory.back().data(), shape)};
}

int main() {
  std::vector<heed::NamedTensor> inputs;
${inputs.join("\n")}
  const heed::Request request = {
      "${mechanism.id}", inputs, {${values.join(", ")}}};

  std::vector<heed::NamedTensor> outputs;
  for (const heed::OutputSpec& spec : heed::PlanOutputs(request)) {
    const std::vector<int64_t> shape(spec.shape.begin(), spec.shape.begin() + spec.rank);
    outputs.push_back(Floats(spec.name, shape));
  }
  heed::Run(request, outputs);
  std::cout << static_cast<float*>(outputs[0].tensor.data)[0] << "\\n";
}
`;
}
