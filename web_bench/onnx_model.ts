// ONNX models as bytes, written by hand: what the conformance tests and the web benchmark give to
// onnxruntime.

/** One node of a model: every tensor's extents are left open. */
export interface Node {
  op: string;
  /** "" is ai.onnx. */
  domain: string;
  /** Absent inputs are "". */
  inputs: { name: string; type: ElementType }[];
  outputs: string[];
  /** Whole numbers or lists of them, or floats for those that the operators declare so. */
  attributes: Record<string, number | number[] | undefined>;
}

/** Numbers that a model brings along. */
export interface Constant {
  name: string;
  data: Float32Array;
  shape: number[];
}

export type ElementType = "float32" | "int32" | "int64" | "bool";

const ELEMENT_TYPES: Record<ElementType, number> = { float32: 1, int32: 6, int64: 7, bool: 9 };

/** Attributes that the operators declare as floating point. */
const FLOATS: ReadonlySet<string> = new Set(["scale", "softcap", "mask_filter_value", "epsilon"]);

/** Writes Protocol Buffers: tag (number << 3 | wire type), then a varint, 4 bytes, or a block. */
class Message {
  readonly #parts: Uint8Array[] = [];

  #varint(value: number | bigint): void {
    const bytes: number[] = [];
    let rest = BigInt.asUintN(64, BigInt(value));
    for (; rest > 127n; rest >>= 7n) bytes.push(Number(rest & 127n) | 128);
    this.#parts.push(Uint8Array.of(...bytes, Number(rest)));
  }
  int(field: number, value: number): this {
    this.#varint(field * 8);
    this.#varint(value);
    return this;
  }
  float(field: number, value: number): this {
    this.#varint(field * 8 + 5);
    this.#parts.push(new Uint8Array(Float32Array.of(value).buffer));
    return this;
  }
  block(field: number, bytes: Uint8Array): this {
    this.#varint(field * 8 + 2);
    this.#varint(bytes.length);
    this.#parts.push(bytes);
    return this;
  }
  text(field: number, text: string): this {
    return this.block(field, new TextEncoder().encode(text));
  }
  message(field: number, message: Message): this {
    return this.block(field, message.bytes());
  }
  bytes(): Uint8Array {
    const bytes = new Uint8Array(this.#parts.reduce((sum, part) => sum + part.length, 0));
    let at = 0;
    for (const part of this.#parts) {
      bytes.set(part, at);
      at += part.length;
    }
    return bytes;
  }
}

// AttributeProto: name 1, f 2, i 3, ints 8, type 20 (1 float, 2 int, 7 ints).
function attribute(name: string, value: number | number[]): Message {
  const message = new Message().text(1, name);
  if (Array.isArray(value)) {
    for (const one of value) message.int(8, one);
    return message.int(20, 7);
  }
  return FLOATS.has(name) ? message.float(2, value).int(20, 1) : message.int(3, value).int(20, 2);
}

// ValueInfoProto: name 1, type 2 { tensor_type 1 { elem_type 1 } }: no shape, any rank.
const valueInfo = (name: string, type: ElementType): Message =>
  new Message()
    .text(1, name)
    .message(2, new Message().message(1, new Message().int(1, ELEMENT_TYPES[type])));

// NodeProto: input 1, output 2, op_type 4, attribute 5, domain 7.
function nodeMessage(node: Node): Message {
  const message = new Message();
  for (const { name } of node.inputs) message.text(1, name);
  for (const name of node.outputs) message.text(2, name);
  message.text(4, node.op).text(7, node.domain);
  for (const [name, value] of Object.entries(node.attributes)) {
    if (value !== undefined) message.message(5, attribute(name, value));
  }
  return message;
}

// TensorProto: dims 1, data_type 2, name 8, raw_data 9.
function tensor({ name, data, shape }: Constant): Message {
  const message = new Message();
  for (const extent of shape) message.int(1, extent);
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  return message.int(2, ELEMENT_TYPES.float32).text(8, name).block(9, bytes);
}

/**
 * A model of nodes that are in order, as the bytes of a ModelProto (ir_version 1, graph 7,
 * opset_import 8). Inputs of the graph are those that no node and no constant gives.
 */
export function graphModel(
  { nodes, outputs, constants = [] }: { nodes: Node[]; outputs: string[]; constants?: Constant[] },
  opset: number,
): Uint8Array {
  const graph = new Message();
  for (const node of nodes) graph.message(1, nodeMessage(node));
  graph.text(2, "graph");
  for (const constant of constants) graph.message(5, tensor(constant));
  const given = new Set(["", ...nodes.flatMap((node) => node.outputs)]);
  for (const { name } of constants) given.add(name);
  for (const { name, type } of nodes.flatMap((node) => node.inputs)) {
    if (!given.has(name)) graph.message(11, valueInfo(name, type));
    given.add(name);
  }
  for (const name of outputs) graph.message(12, valueInfo(name, "float32"));
  const model = new Message().int(1, 10).message(7, graph);
  model.message(8, new Message().text(1, "").int(2, opset));
  for (const domain of new Set(nodes.map((node) => node.domain))) {
    if (domain !== "") model.message(8, new Message().text(1, domain).int(2, 1));
  }
  return model.bytes();
}

/** A model of one node. */
export const oneNodeModel = (node: Node, opset: number): Uint8Array =>
  graphModel({ nodes: [node], outputs: node.outputs }, opset);
