/** One node of a model: every tensor's extents are left open. */
export interface Node {
  op: string;
  /** "" is ai.onnx. */
  domain: string;
  /** Absent inputs are "". */
  inputs: { name: string; type: ElementType }[];
  outputs: string[];
  /** Whole numbers, or floats for those that the operators declare so. */
  attributes: Record<string, number | undefined>;
}

export type ElementType = "float32" | "int32" | "int64" | "bool";

const ELEMENT_TYPES: Record<ElementType, number> = { float32: 1, int32: 6, int64: 7, bool: 9 };

/** Attributes that the operators declare as floating point. */
const FLOATS: ReadonlySet<string> = new Set(["scale", "softcap", "mask_filter_value", "epsilon"]);

/** Writes Protocol Buffers: tag (number << 3 | wire type), then a varint, 4 bytes, or a block. */
class Message {
  readonly #bytes: number[] = [];

  #varint(value: number | bigint): void {
    let rest = BigInt.asUintN(64, BigInt(value));
    for (; rest > 127n; rest >>= 7n) this.#bytes.push(Number(rest & 127n) | 128);
    this.#bytes.push(Number(rest));
  }
  int(field: number, value: number): this {
    this.#varint(field * 8);
    this.#varint(value);
    return this;
  }
  float(field: number, value: number): this {
    this.#varint(field * 8 + 5);
    this.#bytes.push(...new Uint8Array(Float32Array.of(value).buffer));
    return this;
  }
  block(field: number, bytes: ArrayLike<number>): this {
    this.#varint(field * 8 + 2);
    this.#varint(bytes.length);
    this.#bytes.push(...Array.from(bytes));
    return this;
  }
  text(field: number, text: string): this {
    return this.block(field, new TextEncoder().encode(text));
  }
  message(field: number, message: Message): this {
    return this.block(field, message.#bytes);
  }
  bytes(): Uint8Array {
    return Uint8Array.from(this.#bytes);
  }
}

// AttributeProto: name 1, f 2, i 3, type 20 (1 float, 2 int).
function attribute(name: string, value: number): Message {
  const message = new Message().text(1, name);
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

/** A model of one node, as the bytes of a ModelProto (ir_version 1, graph 7, opset_import 8). */
export function oneNodeModel(node: Node, opset: number): Uint8Array {
  const graph = new Message().message(1, nodeMessage(node)).text(2, "one");
  for (const { name, type } of node.inputs) {
    if (name !== "") graph.message(11, valueInfo(name, type));
  }
  for (const name of node.outputs) graph.message(12, valueInfo(name, "float32"));
  const opsets = [new Message().text(1, "").int(2, opset)];
  if (node.domain !== "") opsets.push(new Message().text(1, node.domain).int(2, 1));
  const model = new Message().int(1, 10).message(7, graph);
  for (const imported of opsets) model.message(8, imported);
  return model.bytes();
}
