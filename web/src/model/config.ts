// What config.json says of a model, or the metadata of its safetensors file under the same names.
import type { RopeScaling } from "heed";
import { type Message, shown, t } from "./message.js";
import { ModelError, refuse } from "./model_error.js";
import { decodeUtf8, type Json, JsonProblem, parseJson } from "./strict_json.js";

const MAX_CONFIG = 1_000_000;

/** The values of a config by name, each read as what it must be. Throws ModelError ("bad-config"). */
export class Config {
  constructor(private readonly values: ReadonlyMap<string, Json>) {}

  /** null counts as absent, as in Python. */
  get(name: string): Json | undefined {
    return this.values.get(name) ?? undefined;
  }

  private wrong(name: string, expected: Message): never {
    const value = this.get(name);
    const given = typeof value === "object" ? "…" : shown(String(value));
    return refuse("bad-config", t`config.json: ${name} is ${given}; expected ${expected}.`);
  }

  /** A whole number from 1 to 2^31 - 1. */
  count(name: string): number | undefined {
    const value = this.get(name);
    if (value === undefined) return undefined;
    if (Number.isInteger(value) && (value as number) > 0 && (value as number) < 2 ** 31)
      return value as number;
    return this.wrong(name, t`a whole number above 0`);
  }

  positive(name: string): number | undefined {
    const value = this.get(name);
    if (value === undefined) return undefined;
    if (typeof value === "number" && value > 0) return value;
    return this.wrong(name, t`a number above 0`);
  }

  text(name: string): string | undefined {
    const value = this.get(name);
    if (value === undefined || typeof value === "string") return value;
    return this.wrong(name, t`a text`);
  }

  flag(name: string): boolean | undefined {
    const value = this.get(name);
    if (value === undefined || typeof value === "boolean") return value;
    return this.wrong(name, t`true or false`);
  }

  object(name: string): Config | undefined {
    const value = this.get(name);
    if (value === undefined) return undefined;
    return value instanceof Map ? new Config(value) : this.wrong(name, t`an object`);
  }

  /** One whole number or a list of them. */
  ids(name: string): readonly number[] {
    const value = this.get(name) ?? [];
    const ids = Array.isArray(value) ? value : [value];
    if (ids.every((id) => Number.isInteger(id) && id >= 0)) return ids as readonly number[];
    return this.wrong(name, t`whole numbers`);
  }

  /** Refuses what would compute something else than this page does. */
  expect(name: string, known: readonly Json[]): void {
    const value = this.get(name);
    if (value === undefined || known.includes(value)) return;
    const given = typeof value === "object" ? "…" : shown(String(value));
    refuse(
      "unknown-model",
      t`config.json: ${name} is ${given}; this page knows ${known.join(", ")}.`,
    );
  }
}

/** Throws ModelError ("bad-config"). */
export async function readConfig(file: Blob): Promise<Config> {
  if (file.size > MAX_CONFIG)
    refuse("bad-config", t`config.json has ${file.size} bytes; at most ${MAX_CONFIG} are read.`);
  const text = decodeUtf8(await file.arrayBuffer());
  if (text === null) return refuse("bad-config", t`config.json is not UTF-8.`);
  try {
    const value = parseJson(text, { depth: 16, values: 100_000 });
    if (value instanceof Map) return new Config(value);
  } catch (error) {
    if (!(error instanceof JsonProblem)) throw error;
    throw new ModelError("bad-config", t`config.json cannot be read: ${error.found}.`);
  }
  return refuse("bad-config", t`config.json is not an object.`);
}

/** Metadata are texts: those that are JSON count as their values, all others as they stand. */
export function configOfMetadata(metadata: ReadonlyMap<string, string>): Config {
  const read = (text: string): Json => {
    try {
      return parseJson(text, { depth: 4, values: 1000 });
    } catch (error) {
      if (error instanceof JsonProblem) return text;
      throw error;
    }
  };
  return new Config(new Map([...metadata].map(([name, text]) => [name, read(text)])));
}

/** Llama's base and scaling: `rope_theta` and `rope_scaling`, or both in `rope_parameters`. */
export function readRotation(config: Config): { base: number; scaling: RopeScaling | undefined } {
  const parameters = config.object("rope_parameters") ?? config.object("rope_scaling");
  parameters?.expect("partial_rotary_factor", [1]);
  const base = parameters?.positive("rope_theta") ?? config.positive("rope_theta") ?? 10_000;
  return { base, scaling: parameters && readScaling(parameters) };
}

function readScaling(parameters: Config): RopeScaling | undefined {
  const key = parameters.get("rope_type") === undefined ? "type" : "rope_type";
  parameters.expect(key, ["default", "linear", "llama3"]);
  const type = parameters.text(key) ?? "default";
  const needed = (name: string) =>
    parameters.positive(name) ?? refuse("missing", t`config.json: the rotation lacks ${name}.`);
  if (type === "linear") return { type, factor: needed("factor") };
  if (type !== "llama3") return undefined;
  return {
    type,
    factor: needed("factor"),
    originalLen: needed("original_max_position_embeddings"),
    lowFreqFactor: needed("low_freq_factor"),
    highFreqFactor: needed("high_freq_factor"),
  };
}
